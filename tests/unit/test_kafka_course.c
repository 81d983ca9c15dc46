/* What may come in the way of the consumer of Kafka: a store that stands still or is full, a client that is of no more
 * use, letters that can't be written, offsets that are missing or come twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "kafka/dead_letters.h"
#include "tests/lib/store_fixture.h"
#include "tests/unit/kafka_fixture.h"

enum { MANY = 40000 };

/* --- the store stands still --- */

/* One group is with the store and the other one is full: reading pauses, and polls go on. */
static void test_a_store_that_does_not_answer(void **state)
{
    (void)state;
    vfs_fault_add(&(struct vfs_rule){VFS_SYNC | VFS_WRITE, "staging", 1, false, VFS_HOLD});
    begin(10 + 2 * MANY);
    vfs_fault_wait_held();
    UNTIL(s.doing == KAFKA_PAUSED && client.paused && client.polls_paused > 3);
    assert_non_null(strstr(look().cause, "has not committed yet"));
    LOCKED(assert_int_equal(client.stored, -1); assert_false(client.closed));
    assert_int_equal(look().n_partitions, 1);
    assert_int_equal(look().rebalances, 1);
    vfs_fault_release();
    UNTIL(client.stored == 10 + 2 * MANY && s.doing == KAFKA_READING);
    assert_int_equal(position(), 10 + 2 * MANY);
    assert_int_equal(look().plays, 2 * MANY);
    assert_int_equal(look().rebalances, 1);
    check_has(10, 10 + 2 * MANY);
}

/* Staging is full, since a flush does not end: writes wait, then they are refused, and the consumer keeps its member.
 */
static void test_staging_that_is_full(void **state)
{
    (void)state;
    world.cfg.staging_memory = 1 << 20;
    vfs_fault_add(&(struct vfs_rule){VFS_SYNC | VFS_WRITE, "history", 1, false, VFS_HOLD});
    begin(10 + 4 * MANY);
    UNTIL(s.doing == KAFKA_PAUSED && strstr(s.cause, "not committed yet") != NULL);
    clock_test_advance(61 * 1000);
    int raised = 0; /* the stager looks at the clock */
    struct store_call tick = {.done = call_done, .owner = &raised};
    world.store->ops->tick(world.store, &tick);
    UNTIL(s.doing == KAFKA_PAUSED && strstr(s.cause, "staging memory (1 MiB) is full") != NULL);
    int polls;
    LOCKED(polls = client.polls_paused);
    UNTIL(client.polls_paused > polls + 3);
    LOCKED(assert_true(client.stored < 10 + 4 * MANY); assert_false(client.closed));
    vfs_fault_release();
    wait_flag(&raised);
    UNTIL(client.stored == 10 + 4 * MANY && s.doing == KAFKA_READING);
    assert_int_equal(look().plays, 4 * MANY);
    assert_int_equal(look().rebalances, 1);
    check_has(10, 10 + 4 * MANY);
}

/* --- a client of no more use --- */

/* It is closed, and opened anew until that works; reading goes on from the folder's offset. */
static void test_a_fatal_error(void **state)
{
    (void)state;
    begin(20);
    UNTIL(client.stored == 20);
    LOCKED(client.refusals = 2; client.tell = FAKE_KAFKA_FATAL);
    UNTIL(client.closed);
    UNTIL(strstr(s.error, "fenced") != NULL && s.n_partitions == 0 && s.errors == 1);
    LOCKED(client.end = 30);
    for (int left = 1; left >= 0; left--) {
        clock_test_advance(10500);
        UNTIL(client.refusals == left && strstr(s.error, "refused") != NULL);
    }
    LOCKED(assert_int_equal(client.opened, 1); client.tell = FAKE_KAFKA_ASSIGN);
    clock_test_advance(10500);
    UNTIL(client.opened == 2 && client.stored == 30 && s.doing == KAFKA_READING);
    LOCKED(assert_int_equal(client.assigned_at, 20));
    assert_int_equal(look().errors, 3);
    assert_int_equal(look().plays, 20);
    check_has(10, 30);
}

/* What was with the store counts, what was not is read again, and an end in between is no trouble. */
static void test_a_fatal_error_while_paused_and_the_end(void **state)
{
    (void)state;
    vfs_fault_add(&(struct vfs_rule){VFS_WRITE | VFS_SYNC, "staging", 1, true, VFS_FULL});
    begin(20);
    UNTIL(s.doing == KAFKA_PAUSED);
    LOCKED(client.tell = FAKE_KAFKA_FATAL);
    UNTIL(client.closed);
    LOCKED(assert_int_equal(client.stored, -1));
    finish();
    vfs_fault_heal();
    begin(20);
    UNTIL(client.stored == 20);
    assert_int_equal(look().plays, 10);
    check_has(10, 20);
}

/* --- letters --- */

/* Plays, then a letter that can't be written, then plays: the offset stays before the letter. */
static void test_a_letter_in_the_middle(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/" DEAD_LETTERS_FILE, folder);
    LOCKED(client.poison_first = 25; client.poison_end = 26);
    begin(20);
    UNTIL(client.stored == 20);
    assert_int_equal(mkdir(path, 0700), 0);
    LOCKED(client.end = 40);
    UNTIL(s.doing == KAFKA_PAUSED && client.polls_paused > 3);
    assert_non_null(strstr(look().cause, "dead letter"));
    LOCKED(assert_true(client.stored <= 25));
    assert_true(position() <= 25);
    finish(); /* nor does an end move it */
    assert_true(position() <= 25);
    LOCKED(assert_true(client.stored <= 25));
    assert_int_equal(rmdir(path), 0);
    begin(40);
    UNTIL(client.stored == 40);
    LOCKED(assert_true(client.assigned_at <= 25));
    assert_int_equal(look().dead, 1);
    assert_int_equal(look().dead_letters, 1);
    check_has(10, 25);
    assert_false(has(25));
    check_has(26, 40);
}

/* The letters have all that they may: what came before them is durable, and it goes on once they are taken away. */
static void test_letters_that_have_all_they_may(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/" DEAD_LETTERS_FILE, folder);
    world.cfg.kafka_dead_letters_max = 1;
    LOCKED(client.poison_first = 15; client.poison_end = 18);
    begin(30);
    for (int i = 0; i < 2; i++) {
        UNTIL(s.doing == KAFKA_PAUSED && client.polls_paused > 3 && client.stored == 16 + i);
        assert_non_null(strstr(look().cause, "dead_letters_max"));
        check_has(10, 15);
        assert_int_equal(unlink(path), 0);
    }
    UNTIL(client.stored == 30 && s.doing == KAFKA_READING);
    assert_int_equal(look().dead, 3);
    assert_int_equal(look().dead_letters, 1);
    check_has(18, 30);
}

/* --- offsets --- */

/* Compaction took some: the next one that there is counts, also at the end of a group and across one. */
static void test_a_gap(void **state)
{
    (void)state;
    LOCKED(client.gap_first = 15; client.gap_end = 5000);
    begin(5010);
    UNTIL(client.stored == 5010);
    assert_int_equal(look().messages, 15);
    assert_int_equal(look().errors, 0);
    assert_int_equal(position(), 5010);
    check_has(10, 15);
    check_has(5000, 5010);
}

/* What was taken comes once more, as after a new fetch: it counts once, and the offset never goes back. */
static void test_out_of_order(void **state)
{
    (void)state;
    LOCKED(client.twice = 29; client.twice_from = 12);
    begin(40);
    UNTIL(client.stored == 40);
    assert_int_equal(look().messages, 30);
    assert_int_equal(look().plays, 30);
    assert_int_equal(position(), 40);
    check_has(10, 40);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        KAFKA_TEST(test_a_store_that_does_not_answer),
        KAFKA_TEST(test_staging_that_is_full),
        KAFKA_TEST(test_a_fatal_error),
        KAFKA_TEST(test_a_fatal_error_while_paused_and_the_end),
        KAFKA_TEST(test_a_letter_in_the_middle),
        KAFKA_TEST(test_letters_that_have_all_they_may),
        KAFKA_TEST(test_a_gap),
        KAFKA_TEST(test_out_of_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
