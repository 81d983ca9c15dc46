/* The consumer of Kafka with a client of the test: what is read from where, and when offsets are given to the broker,
 * to the letter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "kafka/dead_letters.h"
#include "kafka/kafka.h"
#include "kafka/start.h"
#include "store/positions.h"
#include "tests/lib/store_fixture.h"
#include "tests/lib/world_fixture.h"
#include "tests/unit/fake_kafka.h"

enum { WAIT_S = 30 };

static struct world world;
static char folder[64];
static struct kafka *kafka;

#define LOCKED FAKE_KAFKA_LOCKED
#define client fake_kafka

static _Atomic int failing_syncs; /* of the dead letters alone */

/* In the place of that of tests/lib/no_sync.c. */
int fdatasync(int fd)
{
    char link[64], path[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    if (strstr(path, DEAD_LETTERS_FILE) != NULL && atomic_load(&failing_syncs) > 0) {
        atomic_fetch_sub(&failing_syncs, 1);
        errno = EIO;
        return -1;
    }
    return 0;
}

static void begin(int64_t end)
{
    struct err err = {0};
    fake_kafka_begin(end);
    if (kafka_start_with(&fake_kafka_ops, &world.dedup, &kafka, &err) < 0) {
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
    fake_kafka_reset();
    world_fixture_end(&world, folder);
    return 0;
}
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static void pass(void)
{
    clock_test_advance(1);
    usleep(500);
}

static void until_stored(int64_t offset)
{
    int64_t until_us = clock_real_us() + WAIT_S * INT64_C(1000000), stored;
    do {
        LOCKED(stored = client.stored);
        pass();
    } while (stored != offset && clock_real_us() < until_us);
    assert_int_equal(stored, offset);
}

static void until_paused(void)
{
    for (bool paused = false; !paused;) {
        LOCKED(paused = client.has_paused);
        pass();
    }
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
    assert_int_equal(client.assigned_at, 10);
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
    until_paused();
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
    LOCKED(client.tell = FAKE_KAFKA_REVOKE; assert_int_equal(client.stored, -1));
    vfs_fault_release();
    for (int64_t stored = -1; stored < 0;) {
        LOCKED(stored = client.stored);
        pass();
    }
    LOCKED(client.tell = FAKE_KAFKA_ASSIGN);
    for (int64_t at = -1; at <= 10;) { /* ours: what was handed in counts */
        LOCKED(at = client.assigned_at);
        pass();
    }
    until_stored(20);
    for (int i = 10; i < 20; i++) {
        char item[16];
        snprintf(item, sizeof item, "i%d", i);
        assert_true(is_seen(&world, "u", item));
    }
}

/* Dead letters that can't be kept hold back their group, with all plays and letters that it had. */
static void test_dead_letters_that_fail(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/" DEAD_LETTERS_FILE, folder);
    client.poison_end = 13;
    begin(10);
    for (int64_t at = -1; at == -1;) {
        LOCKED(at = client.assigned_at);
        pass();
    }
    assert_int_equal(mkdir(path, 0700), 0);
    LOCKED(client.end = 20);
    until_paused();
    LOCKED(assert_true(client.stored <= 10));
    assert_true(position() <= 10);
    assert_int_equal(rmdir(path), 0);
    until_stored(20);
    assert_int_equal(look().plays, 7);
    assert_int_equal(look().dead, 3);
    assert_int_equal(look().dead_letters, 3);
}

/* A sync that fails takes back what was written, so it is read and written again. */
static void test_dead_letters_whose_sync_fails(void **state)
{
    (void)state;
    client.poison_end = 13;
    atomic_store(&failing_syncs, 1);
    begin(20);
    until_stored(20);
    assert_true(client.has_paused);
    assert_int_equal(look().plays, 7);
    assert_int_equal(look().dead, 3);
    assert_int_equal(look().dead_letters, 3);
    assert_int_equal(position(), 20);
}

/* A group that failed goes with its partitions, and so does the pause: who is given them reads it again. */
static void test_taken_away_after_a_failure(void **state)
{
    (void)state;
    vfs_fault_add(&(struct vfs_rule){VFS_WRITE | VFS_SYNC, "staging", 1, true, VFS_FULL});
    begin(20);
    until_paused();
    LOCKED(client.has_paused = false; client.tell = FAKE_KAFKA_REVOKE);
    for (enum kafka_doing doing = KAFKA_READING; doing != KAFKA_WAITING;) {
        doing = look().doing;
        pass();
    }
    vfs_fault_heal();
    LOCKED(assert_int_equal(client.stored, -1); client.tell = FAKE_KAFKA_ASSIGN);
    until_stored(20);
    assert_int_equal(position(), 20);
    assert_int_equal(look().plays, 10);
}

static void *release_later(void *arg)
{
    (void)arg;
    usleep(20 * 1000); /* the stop has begun by then; either order is right */
    vfs_fault_release();
    return NULL;
}

/* What was handed in is waited for, and the broker is told of it before the group is left. */
static void test_stopped_in_the_middle(void **state)
{
    (void)state;
    pthread_t thread;
    vfs_fault_add(&(struct vfs_rule){VFS_SYNC | VFS_WRITE, "staging", 1, false, VFS_HOLD});
    begin(20);
    vfs_fault_wait_held();
    assert_int_equal(pthread_create(&thread, NULL, release_later, NULL), 0);
    kafka_stop(kafka);
    pthread_join(thread, NULL);
    assert_true(client.closed);
    int64_t next = position();
    assert_true(next > 10);
    assert_int_equal(client.stored, next);
    finish();
    begin(25);
    until_stored(25);
    assert_int_equal(client.assigned_at, next);
}

/* Our offset lies before the log's first one, or behind its end: both are told, and reading begins at the first. */
static void check_reset(int64_t ours, int64_t first, const char *told)
{
    struct store_position p = {slice_str("kafka/test/plays/0"), ours};
    struct store_batch batch = {.positions = &p, .n_positions = 1};
    int raised = 0;
    batch.done = batch_done;
    batch.owner = &raised;
    world.store->ops->record(world.store, &batch);
    wait_flag(&raised);
    assert_int_equal(batch.err.code, 0);
    client.first = first;
    begin(20);
    until_stored(20);
    assert_int_equal(look().plays, 20 - first);
    struct kafka_partition shown;
    struct kafka_state s;
    for (shown.error[0] = '\0'; told[0] != '\0' && shown.error[0] == '\0'; pass()) {
        assert_int_equal(kafka_look(kafka, &s, &shown, 1), 1);
    }
    assert_int_equal(kafka_look(kafka, &s, &shown, 1), 1);
    assert_true(told[0] == '\0' ? shown.error[0] == '\0' : strstr(shown.error, told) != NULL);
}

static void test_before_the_logs_first(void **state)
{
    (void)state;
    check_reset(3, 15, "deleted before they were read");
}

static void test_behind_the_logs_end(void **state)
{
    (void)state;
    check_reset(5000, 5, "ends before our offset");
}

/* An offset of 0 asks for all that there is. */
static void test_from_the_oldest(void **state)
{
    (void)state;
    check_reset(0, 15, "");
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        TEST(test_the_brokers_offset_then_ours),  TEST(test_a_failed_commit),       TEST(test_taken_away_in_the_middle),
        TEST(test_taken_away_after_a_failure),    TEST(test_stopped_in_the_middle), TEST(test_before_the_logs_first),
        TEST(test_behind_the_logs_end),           TEST(test_from_the_oldest),       TEST(test_dead_letters_that_fail),
        TEST(test_dead_letters_whose_sync_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
