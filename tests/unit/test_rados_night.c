/* The walk of a night that nodes share: what each takes, what it tells of it, and what fails meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "store/rados/night.h"
#include "store/rados/rados_store.h"
#include "tests/lib/rados_fixture.h"

enum { LOOKS = 3 };

static void to_midnight(void)
{
    assert_int_equal(calendar_set_zone("UTC"), 0);
    clock_test_advance(DAY_MS - clock_wall_ms() % DAY_MS);
}

static void tick(struct store_fixture *f)
{
    assert_int_equal(call(f, f->store->ops->tick, NULL), 0);
}

static int64_t day_of(struct cluster_of_nodes *c, size_t i)
{
    char name[NIGHT_NAME], value[LAYOUT_HEX + 1];
    uint64_t day;
    night_piece_name(i, name);
    int len = memory_pool_value(c->pool, name, "done", value, sizeof value);
    return len == LAYOUT_HEX && layout_unhex(slice_str(value), &day) ? (int64_t)day : -1;
}

static int walked_today(struct cluster_of_nodes *c)
{
    int n = 0;
    for (size_t i = 0; i < NIGHT_PIECES; i++) {
        n += day_of(c, i) == clock_wall_ms() / DAY_MS;
    }
    return n;
}

/* Somebody who takes the locks of all pieces, and walks none. */
static struct cluster *take_locks(void)
{
    const struct cluster_options to = {.pool = "rados"};
    struct cluster *other;
    struct err err = {0};
    assert_int_equal(memory_pool_ops.connect(&to, &other, &err), 0);
    for (size_t i = 0; i < NIGHT_PIECES; i++) {
        char name[NIGHT_NAME];
        night_piece_name(i, name);
        assert_int_equal(memory_pool_ops.lock(other, name, "somebody", 2 * DAY_MS / 1000, &err), 1);
    }
    return other;
}

static void leave_locks(struct cluster *other)
{
    struct err err = {0};
    for (size_t i = 0; i < NIGHT_PIECES; i++) {
        char name[NIGHT_NAME];
        night_piece_name(i, name);
        assert_int_equal(memory_pool_ops.unlock(other, name, "somebody", &err), 0);
    }
    memory_pool_ops.disconnect(other);
}

/* --- what a node tells --- */

/* A night is over when its pieces are walked, and not when others have them in hand. */
static void a_night_in_other_hands_is_not_over(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0], *idle = &c->nodes[1];
    struct cluster *other = take_locks();
    close_node(idle);
    close_node(&c->nodes[2]);
    to_midnight();
    tick(f);
    assert_int_equal(walked_today(c), 0);
    assert_int_equal(stats(f).swept_ms, 0);
    assert_int_equal(stats(f).sealed_ms, 0);
    leave_locks(other);
    tick(f);
    assert_int_equal(stats(f).swept_ms, clock_wall_ms());
    assert_int_equal(stats(f).sealed_ms, clock_wall_ms());
    int walked = walked_today(c);
    assert_true(walked > 0);
    open_node(idle); /* it finds that all is done, which is no less an end of the night */
    assert_int_equal(walked_today(c), walked);
    assert_int_equal(stats(idle).swept_ms, clock_wall_ms());
    assert_int_equal(stats(f).flush_errors + stats(idle).flush_errors, 0);
}

/* Of what was missed a few pieces a night are walked, by all nodes together, however often they look. */
static void a_new_pool_takes_some_nights(void **state)
{
    struct cluster_of_nodes *c = *state;
    enum { A_NIGHT = NIGHT_PIECES / NIGHTS + NIGHT_MISSED };
    to_midnight();
    for (int night = 1; night <= 3; night++) {
        for (int look = 0; look < LOOKS; look++) {
            for (int i = 0; i < NODES; i++) {
                tick(&c->nodes[i]);
            }
            clock_test_advance(60 * 1000);
        }
        assert_int_equal(walked_today(c), A_NIGHT);
        to_midnight();
    }
    int never = 0;
    for (size_t i = 0; i < NIGHT_PIECES; i++) {
        never += day_of(c, i) < 0;
    }
    assert_true(never > 0 && never <= NIGHT_PIECES - 2 * A_NIGHT);
}

/* What MONTHS shows is as old as the oldest piece of it, whoever walked that; a node knows it from its start on. */
static void months_have_an_age(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    struct err err = {0};
    int64_t first = clock_wall_ms() / DAY_MS * DAY_MS;
    assert_int_equal(calendar_set_zone("UTC"), 0);
    assert_int_equal(stats(f).months_found_ms, 0);
    assert_int_equal(rados_store_walk(f->store, &err), 0);
    assert_int_equal(stats(f).months_found_ms, first);
    clock_test_advance(3 * (int64_t)DAY_MS);
    close_node(f);
    open_node(f);
    assert_int_equal(stats(f).months_found_ms, first);
    assert_int_equal(rados_store_walk(f->store, &err), 0);
    assert_int_equal(stats(f).months_found_ms, first + 3 * (int64_t)DAY_MS);
}

/* --- what fails --- */

static void fail_marks(struct cluster_of_nodes *c)
{
    clock_test_advance(2 * (int64_t)HOUR_MS); /* they are read each hour */
    log_from_here();
    memory_pool_fault(
        c->pool, &(struct memory_pool_fault){
                     .kinds = MEMORY_POOL_READS, .object = "night.", .nth = 1, .result = CLUSTER_LATE, .every = true});
}

/* Marks that can't be read are told of by day, too, and while the clock is doubted. */
static void marks_that_fail_are_told_of(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    to_midnight();
    clock_test_advance(12 * (int64_t)HOUR_MS);
    tick(f);
    fail_marks(c);
    tick(f);
    assert_true(stats(f).flush_errors > 0);
    assert_true(logged("nightly walk broken off"));
    memory_pool_fault(c->pool, NULL);
    tick(f);
    clock_test_jump(40 * (int64_t)DAY_MS);
    uint64_t before = stats(f).flush_errors;
    fail_marks(c);
    tick(f);
    assert_true(stats(f).flush_errors > before);
    assert_true(logged("nightly walk broken off"));
}

/* --- each operation of a night, in turn, in each way --- */

static const struct fault_kind {
    const char *name;
    unsigned kinds;
    const char *object;
    enum cluster_result result;
    bool carried_out;
    const char *logs; /* NULL: it is no error */
} night_faults[] = {
    {"late lock", MEMORY_POOL_LOCKS, "night.", CLUSTER_LATE, false, "nightly walk broken off"},
    {"late lock that is ours", MEMORY_POOL_LOCKS, "night.", CLUSTER_LATE, true, "nightly walk broken off"},
    {"failed lock", MEMORY_POOL_LOCKS, "night.", CLUSTER_FAILED, false, "nightly walk broken off"},
    {"lock of another", MEMORY_POOL_LOCKS, "night.", CLUSTER_DIFFERS, false, NULL},
    {"late end of a lock", MEMORY_POOL_UNLOCKS, "night.", CLUSTER_LATE, false, "lock of the walk not released"},
    {"late end of a lock that ended", MEMORY_POOL_UNLOCKS, "night.", CLUSTER_LATE, true,
     "lock of the walk not released"},
    {"failed end of a lock", MEMORY_POOL_UNLOCKS, "night.", CLUSTER_FAILED, false, "lock of the walk not released"},
    {"late list", MEMORY_POOL_LISTS, "", CLUSTER_LATE, false, "nightly walk broken off"},
    {"failed list", MEMORY_POOL_LISTS, "", CLUSTER_FAILED, false, "nightly walk broken off"},
    {"late read of a mark", MEMORY_POOL_READS, "night.", CLUSTER_LATE, false, "nightly walk broken off"},
    {"failed read of a mark", MEMORY_POOL_READS, "night.", CLUSTER_FAILED, false, "nightly walk broken off"},
    {"late mark", MEMORY_POOL_WRITES, "night.", CLUSTER_LATE, false, "nightly walk broken off"},
    {"late mark that is there", MEMORY_POOL_WRITES, "night.", CLUSTER_LATE, true, "nightly walk broken off"},
    {"failed mark", MEMORY_POOL_WRITES, "night.", CLUSTER_FAILED, false, "nightly walk broken off"},
    {"full", MEMORY_POOL_WRITES, "night.", CLUSTER_FULL, false, "nightly walk broken off"},
    {"late read of a user", MEMORY_POOL_READS, "u.", CLUSTER_LATE, false, "nightly walk broken off"},
    {"late merge that took place", MEMORY_POOL_WRITES, "u.", CLUSTER_LATE, true, "nightly walk broken off"},
    {"failed merge", MEMORY_POOL_WRITES, "u.", CLUSTER_FAILED, false, "nightly walk broken off"},
};
enum { PIECES_A_NIGHT = NIGHT_PIECES / NIGHTS, NAME = 24, FEW = 20 };

/* A user whom the memory pool lists in that piece. */
static void name_user(size_t piece, char name[NAME])
{
    char object[NAME + 2];
    int n = 0;
    do {
        snprintf(name, NAME, "u%d", n);
        snprintf(object, sizeof object, "u.u%d", n++);
    } while (hash_checksum(object, strlen(object)) % NIGHT_PIECES != piece);
}

static void users_of(int64_t day, char names[PIECES_A_NIGHT][NAME])
{
    for (size_t i = 0; i < PIECES_A_NIGHT; i++) {
        name_user((size_t)(day % NIGHTS) * PIECES_A_NIGHT + i, names[i]);
    }
}

/* Whoever was forgotten isn't back, and what was recorded then is there; also what waits, and where. */
static void check_users(struct cluster_of_nodes *c, char names[PIECES_A_NIGHT][NAME], bool merged, const char *what)
{
    for (size_t i = 0; i < PIECES_A_NIGHT; i++) {
        char object[NAME + 2];
        snprintf(object, sizeof object, "u.%s", names[i]);
        if (!seen(&c->nodes[0], names[i], "new") || seen(&c->nodes[0], names[i], "gone") ||
            (merged && memory_pool_count(c->pool, object, "p") != 0)) {
            fail_msg("%s: user %s is not as they were", what, names[i]);
        }
    }
}

/* A night in which the nth operation of the kind fails, and which heals by the next look. False: there were fewer. */
static bool is_night_with(struct cluster_of_nodes *c, const struct fault_kind *k, unsigned nth)
{
    struct store_fixture *f = &c->nodes[0];
    char names[PIECES_A_NIGHT][NAME], what[80];
    snprintf(what, sizeof what, "%s %u", k->name, nth);
    clock_test_advance(DAY_MS / 2); /* noon: nothing is due */
    tick(f);
    users_of(clock_wall_ms() / DAY_MS + 1, names);
    for (size_t i = 0; i < PIECES_A_NIGHT; i++) {
        play(f, names[i], "gone");
        assert_int_equal(forget(f, names[i], NULL), 1);
        play(f, names[i], "new");
    }
    const struct store_stats before = stats(f);
    unsigned faults = memory_pool_faults(c->pool);
    log_from_here();
    memory_pool_fault(
        c->pool,
        &(struct memory_pool_fault){
            .kinds = k->kinds, .object = k->object, .nth = nth, .result = k->result, .carried_out = k->carried_out});
    to_midnight();
    tick(f);
    memory_pool_fault(c->pool, NULL);
    bool failed = memory_pool_faults(c->pool) > faults;
    check_users(c, names, false, what);
    bool told = k->logs == NULL || logged(k->logs);
    bool counted = k->logs == NULL || k->result == CLUSTER_FULL || stats(f).rados_errors > before.rados_errors;
    if (failed && !(told && counted)) {
        fail_msg("%s: it was not told of", what);
    }
    tick(f);
    check_users(c, names, true, what);
    if (stats(f).swept_ms != (uint64_t)clock_wall_ms() || walked_today(c) < PIECES_A_NIGHT) {
        fail_msg("%s: the night isn't over", what);
    }
    return failed;
}

static void each_operation_of_a_night_fails(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct err err = {0};
    close_node(&c->nodes[1]);
    close_node(&c->nodes[2]);
    to_midnight();
    assert_int_equal(rados_store_walk(c->nodes[0].store, &err), 0); /* nothing is overdue */
    for (size_t i = 0; i < sizeof night_faults / sizeof *night_faults; i++) {
        unsigned nth = 1;
        while (is_night_with(c, &night_faults[i], nth)) {
            nth += nth >= FEW && nth < NIGHT_PIECES - FEW ? NIGHT_PIECES / 4 : 1; /* of all marks some will do */
        }
        assert_true(nth > PIECES_A_NIGHT);
    }
}

/* A piece that fails look by look, as one whose placement groups are away does, keeps none behind it from being walked.
 */
static void a_piece_that_fails_stops_no_other(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    struct err err = {0};
    char name[NIGHT_NAME], words[80];
    close_node(&c->nodes[1]);
    close_node(&c->nodes[2]);
    to_midnight();
    assert_int_equal(rados_store_walk(f->store, &err), 0);
    size_t piece = (size_t)((clock_wall_ms() / DAY_MS + 1) % NIGHTS) * PIECES_A_NIGHT;
    night_piece_name(piece, name);
    snprintf(words, sizeof words, "nightly walk broken off error=\"piece %zu: ", piece);
    memory_pool_fault(c->pool,
                      &(struct memory_pool_fault){
                          .kinds = MEMORY_POOL_LOCKS, .object = name, .nth = 1, .result = CLUSTER_LATE, .every = true});
    log_from_here();
    to_midnight();
    tick(f);
    assert_int_equal(walked_today(c), PIECES_A_NIGHT - 1);
    assert_true(stats(f).swept_ms < (uint64_t)clock_wall_ms());
    assert_true(logged(words));
    memory_pool_fault(c->pool, NULL);
    tick(f);
    assert_int_equal(walked_today(c), PIECES_A_NIGHT);
    assert_int_equal(stats(f).swept_ms, clock_wall_ms());
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        RADOS_TEST(a_night_in_other_hands_is_not_over),
        RADOS_TEST(a_new_pool_takes_some_nights),
        RADOS_TEST(months_have_an_age),
        RADOS_TEST(marks_that_fail_are_told_of),
        RADOS_TEST(each_operation_of_a_night_fails),
        RADOS_TEST(a_piece_that_fails_stops_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
