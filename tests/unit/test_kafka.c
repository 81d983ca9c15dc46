/* The consumer of Kafka with a client of the test: what is read from where, and when offsets are given to the broker,
 * to the letter. The client has one partition, "plays" 0. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "kafka/client.h"
#include "kafka/kafka.h"
#include "kafka/start.h"
#include "store/positions.h"
#include "tests/lib/store_fixture.h"
#include "tests/lib/world_fixture.h"

enum { WAIT_S = 30, LARGE = 3 * 1024 * 1024 };

struct kafka_client {
    const struct client_hooks *hooks;
    void *owner;
    char text[128];

    pthread_mutex_t mutex; /* guards: */
    enum { QUIET, ASSIGN, REVOKE } tell;
    int64_t assigned_at, end, next, stored;
    bool paused, has_paused, closed;
    bool unreadable; /* messages 10 and 11, the latter is large */
};

static struct kafka_client client = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static struct client_hooks client_hooks_copy;
static struct world world;
static char folder[64], large[LARGE];
static struct kafka *kafka;

#define LOCKED(statement)                                                                                              \
    do {                                                                                                               \
        pthread_mutex_lock(&client.mutex);                                                                             \
        statement;                                                                                                     \
        pthread_mutex_unlock(&client.mutex);                                                                           \
    } while (0)

static const char *version(void)
{
    return "a test's";
}

static int open_client(const struct client_setup *setup, struct kafka_client **out, char *text)
{
    (void)text;
    client_hooks_copy = setup->hooks;
    client.hooks = &client_hooks_copy;
    client.owner = setup->owner;
    *out = &client;
    return 0;
}

static enum client_event poll_client(struct kafka_client *c, int ms, struct client_message *out)
{
    pthread_mutex_lock(&c->mutex);
    int tell = (int)c->tell;
    c->tell = QUIET;
    bool has = tell == QUIET && c->next >= 0 && c->next < c->end && !c->paused;
    int64_t offset = has ? c->next++ : -1;
    pthread_mutex_unlock(&c->mutex);
    if (tell == ASSIGN) {
        c->hooks->assigned(c->owner, &(struct client_position){"plays", 0, CLIENT_COMMITTED}, 1);
    } else if (tell == REVOKE) {
        c->hooks->revoked(c->owner);
        LOCKED(c->next = -1);
    }
    if (!has) {
        usleep((useconds_t)ms * 100);
        return CLIENT_NOTHING;
    }
    int n = snprintf(c->text, sizeof c->text, "{\"user\":\"u\",\"item\":\"i%d\"}", (int)offset);
    *out = (struct client_message){
        .topic = slice_str("plays"), .offset = offset, .at_ms = START, .value = slice_of(c->text, (size_t)n)};
    if (c->unreadable && offset < 12) {
        out->value = slice_of(large, offset == 10 ? 10 : sizeof large);
    }
    return CLIENT_MESSAGE;
}

static void done(struct kafka_client *c, struct client_message *message)
{
    (void)c;
    (void)message;
}

static int assign(struct kafka_client *c, const struct client_position *positions, size_t n, char *text)
{
    (void)text;
    LOCKED(c->assigned_at = n > 0 ? positions[0].offset : -1; c->next = n > 0 ? positions[0].offset : -1;
           c->next = c->next == CLIENT_COMMITTED ? 10 : c->next);
    return 0;
}

static int pause_client(struct kafka_client *c, bool paused, char *text)
{
    (void)text;
    LOCKED(c->paused = paused; c->has_paused = c->has_paused || paused);
    return 0;
}

static int store_offsets(struct kafka_client *c, const struct client_position *positions, size_t n, char *text)
{
    (void)text;
    LOCKED(c->stored = positions[n - 1].offset);
    return 0;
}

static int range(struct kafka_client *c, const char *topic, int32_t partition, int ms, int64_t *first, int64_t *end,
                 char *text)
{
    (void)topic;
    (void)partition;
    (void)ms;
    (void)text;
    *first = 0;
    LOCKED(*end = c->end);
    return 0;
}

static bool cluster(struct kafka_client *c, char *out, size_t size)
{
    (void)c;
    snprintf(out, size, "test");
    return true;
}

static int reach(struct kafka_client *c, int ms, char *text)
{
    (void)c;
    (void)ms;
    (void)text;
    return 0;
}

static void close_client(struct kafka_client *c, int ms)
{
    (void)ms;
    c->hooks->revoked(c->owner);
    LOCKED(c->closed = true);
}

static const struct client_ops ops = {
    .version = version,
    .open = open_client,
    .poll = poll_client,
    .done = done,
    .assign = assign,
    .pause = pause_client,
    .store = store_offsets,
    .range = range,
    .cluster = cluster,
    .reach = reach,
    .close = close_client,
};

static void begin(int64_t end)
{
    struct err err = {0};
    LOCKED(client.tell = ASSIGN; client.end = end; client.next = client.assigned_at = client.stored = -1;
           client.paused = client.has_paused = client.closed = false);
    if (kafka_start_with(&ops, &world.dedup, &kafka, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static void finish(void)
{
    kafka_stop(kafka);
    kafka_free(kafka);
    kafka = NULL;
}

static int setup(void **state)
{
    (void)state;
    world_fixture_init(&world, "kafka", START, folder);
    start(&world);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    vfs_fault_heal();
    finish();
    world_fixture_end(&world, folder);
    return 0;
}
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static void until_stored(int64_t offset)
{
    int64_t until_us = clock_stopwatch_us() + WAIT_S * INT64_C(1000000), stored;
    do {
        LOCKED(stored = client.stored);
        usleep(500);
    } while (stored != offset && clock_stopwatch_us() < until_us);
    assert_int_equal(stored, offset);
}

static int64_t position(void)
{
    int64_t next = -1;
    world.store->positions->find(world.store, slice_str("kafka/test/plays/0"), &next);
    return next;
}

static struct kafka_state look(void)
{
    struct kafka_state s;
    kafka_look(kafka, &s, NULL, 0);
    return s;
}

static void test_the_brokers_offset_then_ours(void **state)
{
    (void)state;
    begin(20);
    until_stored(20);
    assert_int_equal(client.assigned_at, CLIENT_COMMITTED);
    assert_int_equal(position(), 20);
    assert_int_equal(look().plays, 10);
    finish();
    assert_true(client.closed);
    begin(25);
    until_stored(25);
    assert_int_equal(client.assigned_at, 20);
    assert_int_equal(look().plays, 5);
    assert_true(is_seen(&world, "u", "i24"));
}

/* A commit that fails gives the broker nothing, and is done again. */
static void test_a_failed_commit(void **state)
{
    (void)state;
    vfs_fault_add(&(struct vfs_rule){VFS_WRITE | VFS_SYNC, "staging", 1, true, VFS_FULL});
    begin(20);
    for (bool paused = false; !paused;) {
        LOCKED(paused = client.has_paused);
        usleep(500);
    }
    LOCKED(assert_int_equal(client.stored, -1));
    vfs_fault_heal();
    until_stored(20);
    assert_int_equal(position(), 20);
    assert_int_equal(look().plays, 10);
    assert_true(is_seen(&world, "u", "i10"));
}

/* What is with the store when partitions are taken away is waited for, and the broker is told of it. */
static void test_taken_away_in_the_middle(void **state)
{
    (void)state;
    vfs_fault_add(&(struct vfs_rule){VFS_SYNC | VFS_WRITE, "staging", 1, false, VFS_HOLD});
    begin(20);
    vfs_fault_wait_held();
    LOCKED(client.tell = REVOKE; assert_int_equal(client.stored, -1));
    vfs_fault_release();
    for (int64_t stored = -1; stored < 0;) {
        LOCKED(stored = client.stored);
        usleep(500);
    }
    LOCKED(client.tell = ASSIGN);
    for (int64_t at = -1; at <= 10;) { /* ours: what was handed in counts */
        LOCKED(at = client.assigned_at);
        usleep(500);
    }
    until_stored(20);
    for (int i = 10; i < 20; i++) {
        char item[16];
        snprintf(item, sizeof item, "i%d", i);
        assert_true(is_seen(&world, "u", item));
    }
}

/* A letter that can't be kept takes those of its group along, so their messages are read again. */
static void test_no_room_for_a_letter(void **state)
{
    (void)state;
    struct rlimit all;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){LARGE, all.rlim_max}), 0);
    client.unreadable = true;
    begin(20);
    for (bool paused = false; !paused;) {
        LOCKED(paused = client.has_paused);
        usleep(500);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    until_stored(20);
    client.unreadable = false;
    struct kafka_state s = look();
    assert_int_equal(s.dead_letters, 2);
    assert_int_equal(s.dead, 2);
    assert_int_equal(s.messages, 10);
    assert_int_equal(s.plays, 8);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        TEST(test_the_brokers_offset_then_ours),
        TEST(test_a_failed_commit),
        TEST(test_taken_away_in_the_middle),
        TEST(test_no_room_for_a_letter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
