#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kafka/start.h"
#include "store/positions.h"
#include "tests/lib/store_fixture.h"
#include "tests/unit/kafka_fixture.h"

struct world world;
char folder[64];
struct kafka *kafka;

int kafka_setup(void **state)
{
    (void)state;
    world_fixture_init(&world, "kafka", START, folder);
    start(&world);
    return 0;
}

int kafka_teardown(void **state)
{
    (void)state;
    vfs_fault_heal();
    finish();
    fake_kafka_reset();
    world_fixture_end(&world, folder);
    return 0;
}

void begin(int64_t end)
{
    struct err err = {0};
    fake_kafka_begin(end);
    if (kafka_start_with(&fake_kafka_ops, &world.dedup, &kafka, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

void begin_nowhere(const char *at, int64_t first, int64_t end)
{
    snprintf(world.cfg.kafka_start, sizeof world.cfg.kafka_start, "%s", at);
    LOCKED(client.nowhere = true; client.first = first);
    begin(end);
}

void finish(void)
{
    kafka_stop(kafka);
    kafka_free(kafka);
    kafka = NULL;
}

struct kafka_state look(void)
{
    struct kafka_state s;
    kafka_look(kafka, &s, NULL, 0);
    return s;
}

int64_t position(void)
{
    int64_t next = -1;
    world.store->positions->find(world.store, slice_str("kafka/test/plays/0"), &next);
    return next;
}

bool has(int64_t offset)
{
    char item[24];
    snprintf(item, sizeof item, "i%lld", (long long)offset);
    return is_seen(&world, "u", item);
}

void check_has(int64_t from, int64_t to)
{
    for (int64_t i = from; i < to; i += 1 + (to - from) / 100) {
        if (!has(i)) {
            fail_msg("offset %lld is lost", (long long)i);
        }
    }
}
