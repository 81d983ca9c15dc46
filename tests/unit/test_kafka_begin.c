/* Where the consumer of Kafka begins to read: what `start` says, what the group has committed, and what the broker
 * noted of this folder, which may have gone back to before that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/positions.h"
#include "tests/lib/store_fixture.h"
#include "tests/unit/kafka_fixture.h"

/* --- where a group begins of which nobody knows anything --- */

static void test_earliest(void **state)
{
    (void)state;
    begin_nowhere("earliest", 12, 20);
    UNTIL(client.stored == 20);
    assert_int_equal(look().plays, 8);
    assert_int_equal(look().errors, 0);
}

/* "latest" of the first start is kept: what comes while the service is down is read by the next one. */
static void test_latest(void **state)
{
    (void)state;
    begin_nowhere("latest", 0, 20);
    UNTIL(client.stored == 20);
    assert_int_equal(look().plays, 0);
    assert_int_equal(position(), 20);
    LOCKED(client.end = 22);
    UNTIL(client.stored == 22);
    finish();
    begin(25);
    UNTIL(client.stored == 25);
    assert_int_equal(client.assigned_at, 22);
    assert_false(has(19));
    check_has(20, 25);
}

static void test_a_time(void **state)
{
    (void)state;
    LOCKED(client.at_time = 17);
    begin_nowhere("1795255100123", 0, 20);
    UNTIL(client.stored == 20);
    LOCKED(assert_int_equal(client.asked_ms, INT64_C(1795255100123)));
    assert_int_equal(look().plays, 3);
    assert_false(has(16));
    check_has(17, 20);
}

/* Another one was read before, so this one was added since: all of it is news. */
static void test_a_partition_that_was_added(void **state)
{
    (void)state;
    const struct store_position p = {slice_str("kafka/test/plays/1"), 7};
    struct store_batch batch = {.positions = &p, .n_positions = 1};
    int raised = 0;
    batch.done = batch_done;
    batch.owner = &raised;
    world.store->ops->record(world.store, &batch);
    wait_flag(&raised);
    LOCKED(client.two = true);
    begin_nowhere("latest", 3, 20);
    UNTIL(s.plays == 17);
    assert_int_equal(position(), 20);
    check_has(3, 20);
}

/* --- a folder that has gone back to before it held the partition --- */

/* As `cp -a` does it, of a stopped service; a backup has the same files. */
static void copy_folder(const char *from, const char *to)
{
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -a '%s' '%s'", to, from, to);
    assert_int_equal(system(command), 0);
}

static char copy[80];

/* The folder as it is now: back to before it held the partition. */
static void go_back(void)
{
    finish();
    world_stop(&world);
    copy_folder(copy, folder);
    start(&world);
    assert_int_equal(position(), -1);
}

/* Whoever goes back reads again what they lack: from where they began, whatever that was. */
static void check_gone_back(const char *at, int64_t began)
{
    snprintf(copy, sizeof copy, "%s.copy", folder);
    world_stop(&world);
    copy_folder(folder, copy);
    start(&world);
    if (strcmp(at, "group") == 0) {
        begin(14);
    } else {
        begin_nowhere(at, 0, 14);
    }
    UNTIL(client.stored == 14);
    LOCKED(client.end = 20);
    UNTIL(client.stored == 20);
    for (int64_t end = 25; end <= 30; end += 5) { /* the second time is like the first */
        go_back();
        assert_false(has(15));
        begin(end);
        UNTIL(client.stored == end);
        assert_int_equal(client.assigned_at, began);
        assert_int_equal(look().plays, end - began);
        check_has(began, end);
    }
    finish();
    begin(35); /* its own position counts from now on */
    UNTIL(client.stored == 35);
    assert_int_equal(client.assigned_at, 30);
    world_remove_folder(copy);
}

static void test_gone_back_from_the_groups_offset(void **state)
{
    (void)state;
    check_gone_back("group", 10);
}

static void test_gone_back_from_earliest(void **state)
{
    (void)state;
    check_gone_back("earliest", 0);
}

static void test_gone_back_from_latest(void **state)
{
    (void)state;
    check_gone_back("latest", 14);
}

/* Where another folder has read, the group's offset counts; so does one that somebody has set by hand. */
static void check_note(const char *note, int64_t expected)
{
    LOCKED(client.committed = 15; snprintf(client.note, sizeof client.note, "%s", note));
    begin(20);
    UNTIL(client.stored == 20);
    assert_int_equal(client.assigned_at, expected);
    assert_int_equal(position(), 20);
}

static void test_a_strangers_note(void **state)
{
    (void)state;
    check_note("unseen 0123456789abcdef 3 test", 15);
    assert_null(strstr(client.note, "0123456789abcdef")); /* and from now on it is ours */
    assert_non_null(strstr(client.note, " 15"));
}

static void test_no_note(void **state)
{
    (void)state;
    check_note("", 15);
}

static void test_notes_that_are_none(void **state)
{
    (void)state;
    int64_t lineage;
    char note[CLIENT_NOTE];
    static const char *const parts[][2] = {{"unseen ", " -3 test"},
                                           {"unseen ", ""},
                                           {"unseen ", " 3"},
                                           {"unseen ", " 3 test 4"},
                                           {"unseen ", " 3 another"},
                                           {"seen ", " 3 test"},
                                           {"unseen ", " 99999999999999999999 test"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        assert_int_equal(world.store->positions->find(world.store, slice_str(STORE_LINEAGE), &lineage), 1);
        snprintf(note, sizeof note, "%s%016llx%s", parts[i][0], (unsigned long long)lineage, parts[i][1]);
        check_note(note, 15);
        kafka_teardown(NULL);
        kafka_setup(NULL);
    }
}

/* What is durable here is told at once, also where somebody has moved the group's offset. */
static void test_the_broker_is_told_at_the_start(void **state)
{
    (void)state;
    begin(20);
    UNTIL(client.stored == 20);
    finish();
    LOCKED(client.committed = 3; client.note[0] = '\0');
    begin(20);
    UNTIL(client.committed == 20 && client.note[0] != '\0');
    assert_int_equal(client.assigned_at, 20);
}

/* The group's coordinator says nothing for a while: nothing is read from a guess. */
static void test_a_silent_coordinator(void **state)
{
    (void)state;
    LOCKED(client.silences = 3);
    begin(20);
    for (int asked = 1; asked <= 3; asked++) {
        UNTIL(client.asked == asked && strstr(s.error, "silent") != NULL);
        LOCKED(assert_int_equal(client.next, -1));
        clock_test_advance(1100);
    }
    UNTIL(client.stored == 20);
    assert_int_equal(client.assigned_at, 10);
    assert_int_equal(look().plays, 10);
}

/* What says where it began can't be written: nothing is told, and it is tried again. */
static void test_a_beginning_that_fails(void **state)
{
    (void)state;
    vfs_fault_add(&(struct vfs_rule){VFS_WRITE | VFS_SYNC, "staging", 1, true, VFS_FULL});
    begin(10); /* nothing is to be read */
    UNTIL(s.doing == KAFKA_PAUSED);
    LOCKED(assert_int_equal(client.stored, -1));
    vfs_fault_heal();
    UNTIL(client.stored == 10 && client.note[0] != '\0');
    int64_t began = -1;
    assert_int_equal(world.store->positions->find(world.store, slice_str("kafka-begin/test/plays/0"), &began), 1);
    assert_int_equal(began, 10);
}

/* --- a broker that has forgotten the group's offset --- */

static bool is_told(void)
{
    int64_t hash;
    return world.store->positions->find(world.store, slice_str("kafka-group/test"), &hash) == 1;
}

/* Has read up to 20; then the broker knows nothing of the group, and the log of that name has 40 messages. */
static void check_forgotten(int64_t expected)
{
    finish();
    LOCKED(client.nowhere = true);
    begin(40);
    UNTIL(client.stored == 40);
    assert_int_equal(client.assigned_at, expected);
    assert_int_equal(look().plays, 40 - expected);
    struct kafka_partition shown = {.partition = -1};
    for (struct kafka_state s; shown.next != 40; usleep(500)) { /* it is shown some times a second */
        assert_int_equal(kafka_look(kafka, &s, &shown, 1), 1);
    }
    UNTIL(s.lag == 0);
    assert_int_equal(kafka_look(kafka, &(struct kafka_state){0}, &shown, 1), 1);
    assert_int_equal(strstr(shown.error, "forgotten our offset") != NULL, expected == 0);
}

/* As it does when the topic is deleted, so what has that name now is another one. */
static void test_a_topic_made_anew(void **state)
{
    (void)state;
    begin(20);
    UNTIL(client.stored == 20 && is_told());
    check_forgotten(0);
    check_has(0, 40);
    finish();
    begin(45); /* and its own offset counts again */
    UNTIL(client.stored == 45);
    assert_int_equal(client.assigned_at, 40);
}

/* What is older than `start` stays out. */
static void test_a_topic_made_anew_since_a_time(void **state)
{
    (void)state;
    begin(20);
    UNTIL(client.stored == 20 && is_told());
    finish();
    LOCKED(client.at_time = 17; client.nowhere = true);
    begin_nowhere("1795255100123", 0, 40);
    UNTIL(client.stored == 40);
    LOCKED(assert_int_equal(client.asked_ms, INT64_C(1795255100123)); assert_int_equal(client.assigned_at, 17));
    assert_int_equal(look().plays, 23);
}

/* It never had it: the answer was lost, or it is another group that is asked for. */
static void test_a_broker_that_never_had_it(void **state)
{
    (void)state;
    LOCKED(client.keeps_silent = true);
    begin(20);
    UNTIL(client.stored == 20);
    check_forgotten(20);
    assert_false(is_told());
}

static void test_another_group(void **state)
{
    (void)state;
    begin(20);
    UNTIL(client.stored == 20 && is_told());
    snprintf(world.cfg.kafka_group, sizeof world.cfg.kafka_group, "another");
    check_forgotten(20);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        KAFKA_TEST(test_earliest),
        KAFKA_TEST(test_latest),
        KAFKA_TEST(test_a_time),
        KAFKA_TEST(test_a_partition_that_was_added),
        KAFKA_TEST(test_gone_back_from_the_groups_offset),
        KAFKA_TEST(test_gone_back_from_earliest),
        KAFKA_TEST(test_gone_back_from_latest),
        KAFKA_TEST(test_a_strangers_note),
        KAFKA_TEST(test_no_note),
        KAFKA_TEST(test_notes_that_are_none),
        KAFKA_TEST(test_the_broker_is_told_at_the_start),
        KAFKA_TEST(test_a_silent_coordinator),
        KAFKA_TEST(test_a_beginning_that_fails),
        KAFKA_TEST(test_a_topic_made_anew),
        KAFKA_TEST(test_a_topic_made_anew_since_a_time),
        KAFKA_TEST(test_a_broker_that_never_had_it),
        KAFKA_TEST(test_another_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
