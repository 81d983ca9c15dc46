/* What comes into the embedded store from elsewhere, through its seam: bulk loads, the notes of users who stand in
 * another Redis, and loads beside the service. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "store/bulk.h"
#include "store/migration.h"
#include "tests/lib/store_calls.h"

static void test_bulk(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    f->cfg.staging_memory = 2 << 20; /* so that it takes several indexes */
    assert_int_equal(f->store->bulk->begin(f->store, false, &err), 0);
    for (int i = 0; i < 60000; i++) {
        char user[16];
        char item[16];
        snprintf(user, sizeof user, "u%d", i % 3000);
        snprintf(item, sizeof item, "i%d", i);
        assert_int_equal(f->store->bulk->add(f->store, START - (i % 3) * 31 * (int64_t)DAY_MS, key_of(user),
                                             slice_str(user), hash_id(SEED, slice_str(item)), &err),
                         0);
    }
    assert_int_equal(f->store->bulk->end(f->store, &err), 0);
    assert_true(seen(f, "u0", "i0"));
    assert_true(seen(f, "u2999", "i59999"));
    assert_int_equal(ask(f, "history", "SELECT sum(plays) FROM months"), 60000);

    /* One that fails half-way says so, and the next one is a union. */
    assert_int_equal(f->store->bulk->begin(f->store, false, &err), 0);
    assert_int_equal(f->store->bulk->add(f->store, START, key_of("n"), slice_str("n"), 1, &err), 0);
    rule(VFS_SYNC, "history.db-wal", 1, true, VFS_EIO);
    assert_true(f->store->bulk->end(f->store, &err) < 0);
    assert_non_null(strstr(err.text, "history"));
    vfs_fault_heal();
    assert_int_equal(f->store->bulk->begin(f->store, false, &err), 0);
    assert_int_equal(f->store->bulk->add(f->store, START, key_of("n"), slice_str("n"), 1, &err), 0);
    assert_int_equal(f->store->bulk->end(f->store, &err), 0);
    assert_true(known(f, "n"));
    close_store(f);
    expect_problem(f, NULL);
}

/* --- tests: notes --- */

static int change_migration_users(struct store_fixture *f, struct store_migration_change *users_to_migrate)
{
    int done = 0;
    users_to_migrate->call.done = call_done;
    users_to_migrate->call.owner = &done;
    f->store->migration->note(f->store, users_to_migrate);
    wait_flag(&done);
    return users_to_migrate->call.err.code;
}

static int add_migration_users(struct store_fixture *f, const char *a, const char *b, uint64_t *changed)
{
    const struct slice users[] = {slice_str(a), slice_str(b)};
    struct store_migration_change users_to_migrate = {.kind = MIGRATION_ADD, .users = users, .n = 2};
    int rc = change_migration_users(f, &users_to_migrate);
    *changed = users_to_migrate.changed;
    return rc;
}

static void mark(struct store_fixture *f, const char *user, enum store_note state)
{
    const struct slice users[] = {slice_str(user)};
    struct store_migration_change users_to_migrate = {.kind = MIGRATION_MARK, .users = users, .n = 1, .state = state};
    assert_int_equal(change_migration_users(f, &users_to_migrate), 0);
}

static enum store_note migration_state(struct store_fixture *f, const char *user)
{
    return f->store->migration->of(f->store, key_of(user));
}

static struct store_migration_counts count_migration_users(struct store_fixture *f)
{
    struct store_migration_counts state;
    f->store->migration->state(f->store, &state);
    return state;
}

/* How many wait, each met once, max at a time, and near the place that the key has among all keys. */
static int read_migration_users(struct store_fixture *f, int max)
{
    static struct slice users[1000];
    struct arena arena = {0};
    struct err err = {0};
    struct store_migration_walk walk = {0};
    uint64_t all = count_migration_users(f).waiting;
    bool *met = calloc(20001, sizeof *met);
    int sum = 0, n;
    assert_true(max <= 1000 && met != NULL);
    while ((n = f->store->migration->read(f->reader, &walk, users, max, &arena, &err)) > 0) {
        assert_true(n <= max);
        for (int i = 0; i < n; i++, sum++) {
            char name[8];
            snprintf(name, sizeof name, "%.*s", (int)users[i].len, users[i].data);
            int number = name[0] == 'n' ? atoi(name + 1) : 20000;
            assert_true(number == 20000 || !met[number]);
            met[number] = true;
            int64_t key = hash_user_key(SEED, users[i]);
            assert_int_equal(f->store->migration->of(f->store, key), MIGRATION_WAITING);
            double off = fabs(((double)key + 0x1p63) / 0x1p64 - (double)sum / (double)all);
            assert_true(all < 1000 || off < 0.05 || off > 0.95);
        }
        arena_reset(&arena);
    }
    arena_free(&arena);
    assert_int_equal(n, 0);
    assert_true(walk.ended);
    free(met);
    return sum;
}

/* Added once, read, marked, all of it over a kill; again; problems once a key; the pause. */
static void test_notes(void **state)
{
    struct store_fixture *f = *state;
    uint64_t changed;
    assert_int_equal(migration_state(f, "anna"), MIGRATION_NONE);
    assert_int_equal(add_migration_users(f, "anna", "anna", &changed), 0);
    assert_int_equal(changed, 1);
    assert_int_equal(add_migration_users(f, "bert", "anna", &changed), 0);
    assert_int_equal(changed, 1);
    assert_int_equal(add_migration_users(f, "carl", "dora", &changed), 0);
    kill_store(f);
    open_store(f);
    assert_int_equal(count_migration_users(f).waiting, 4);
    assert_int_equal(read_migration_users(f, 3), 4);
    mark(f, "anna", MIGRATION_DONE);
    mark(f, "bert", MIGRATION_LEFT);
    mark(f, "nobody", MIGRATION_DONE);
    assert_int_equal(migration_state(f, "nobody"), MIGRATION_NONE);
    assert_int_equal(read_migration_users(f, 8), 2);

    const struct store_problem keys[] = {{.key = slice_str("played:bert"), .what = slice_str("first")},
                                         {.key = slice_str("played:bert"), .what = slice_str("second")}};
    struct store_migration_change found = {.kind = MIGRATION_PROBLEMS, .problems = keys, .n = 2};
    struct store_migration_change pause = {.kind = MIGRATION_PAUSE, .paused = true};
    assert_int_equal(change_migration_users(f, &found), 0);
    assert_int_equal(found.changed, 1);
    assert_int_equal(change_migration_users(f, &pause), 0);
    kill_store(f);
    open_store(f);
    struct store_migration_counts now = count_migration_users(f);
    assert_true(now.all == 4 && now.waiting == 2 && now.done == 1 && now.left == 1 && now.problems == 1 && now.paused);
    struct store_problem listed[4];
    struct arena arena = {0};
    struct err err = {0};
    assert_int_equal(f->store->migration->problems(f->reader, listed, 4, &arena, &err), 1);
    assert_true(slice_eq(listed[0].key, keys[0].key) && slice_eq(listed[0].what, slice_str("second")));
    arena_free(&arena);

    struct store_migration_change again = {.kind = MIGRATION_AGAIN};
    assert_int_equal(change_migration_users(f, &again), 0);
    assert_true(again.changed == 2 && again.more == 0);
    now = count_migration_users(f);
    assert_true(now.waiting == 4 && now.problems == 0);
    close_store(f);
    expect_problem(f, NULL);
}

/* A set that has to grow many times, then read from the file. */
static void test_many_notes(void **state)
{
    struct store_fixture *f = *state;
    static char names[20000][8];
    static struct slice users[20000];
    for (int i = 0; i < 20000; i++) {
        snprintf(names[i], sizeof names[i], "n%d", i);
        users[i] = slice_str(names[i]);
    }
    for (int i = 0; i < 20000; i += 1000) {
        struct store_migration_change users_to_migrate = {.kind = MIGRATION_ADD, .users = users + i, .n = 1000};
        assert_int_equal(change_migration_users(f, &users_to_migrate), 0);
        assert_int_equal(users_to_migrate.changed, 1000);
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 20000; i++) {
            assert_int_equal(migration_state(f, names[i]), i < 5 && round > 0 ? MIGRATION_DONE : MIGRATION_WAITING);
        }
        assert_int_equal(migration_state(f, "n20000"), MIGRATION_NONE);
        assert_int_equal(read_migration_users(f, 300), round > 0 ? 19995 : 20000);
        for (int i = 0; i < 5; i++) {
            mark(f, names[i], MIGRATION_DONE);
        }
        kill_store(f);
        open_store(f);
    }
}

/* A forgotten user's note is ended for good, and nothing is left of the id. */
static void test_forget_noted(void **state)
{
    struct store_fixture *f = *state;
    uint64_t changed;
    assert_int_equal(add_migration_users(f, "anna", "bert", &changed), 0);
    assert_int_equal(forget(f, "anna", NULL), 1); /* known: what the other system has */
    assert_int_equal(migration_state(f, "anna"), MIGRATION_ENDED);
    assert_int_equal(forget(f, "anna", NULL), 0);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(read_migration_users(f, 4), 1);
        assert_int_equal(add_migration_users(f, "anna", "bert", &changed), 0);
        assert_int_equal(changed, 0);
        mark(f, "anna", MIGRATION_DONE);
        struct store_migration_change again = {.kind = MIGRATION_AGAIN};
        assert_int_equal(change_migration_users(f, &again), 0);
        assert_int_equal(migration_state(f, "anna"), MIGRATION_ENDED);
        kill_store(f);
        open_store(f);
    }
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM noted WHERE user = 'anna'"), 0);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM noted WHERE state = 3"), 1);
    mark(f, "bert", MIGRATION_DONE);
    assert_int_equal(forget(f, "bert", NULL), 0); /* all that there was has been taken over: nothing */
}

/* A commit that fails changes nothing, and the next one is good. */
static void test_notes_fail(void **state)
{
    struct store_fixture *f = *state;
    uint64_t changed;
    assert_int_equal(add_migration_users(f, "anna", "bert", &changed), 0);
    rule(VFS_SYNC, "staging.db-wal", 1, false, VFS_EIO);
    assert_true(add_migration_users(f, "carl", "dora", &changed) < 0);
    vfs_fault_heal();
    enum store_note carl = migration_state(f, "carl"); /* it isn't known what of it the file has */
    assert_int_equal(add_migration_users(f, "carl", "dora", &changed), 0);
    assert_int_equal(changed, carl == MIGRATION_NONE ? 2 : 0);
    assert_int_equal(count_migration_users(f).waiting, 4);
    kill_store(f);
    open_store(f);
    assert_int_equal(count_migration_users(f).waiting, 4);
    assert_int_equal(migration_state(f, "dora"), MIGRATION_WAITING);
}

/* --- tests: a load beside the service --- */

static void bring(struct store_fixture *f, const char *user, const char *item)
{
    struct err err = {0};
    assert_int_equal(
        f->store->bulk->add(f->store, START, key_of(user), slice_str(user), hash_id(SEED, slice_str(item)), &err), 0);
}

/* What is brought in is older than all that clients do meanwhile. */
static void test_bulk_serving(void **state)
{
    struct store_fixture *f = *state;
    const struct store_bulk_ops *bulk = f->store->bulk;
    struct err err = {0};
    uint64_t changed;
    assert_int_equal(add_migration_users(f, "anna", "bert", &changed), 0);
    assert_int_equal(record_at(f, STORE_PLAY, START, "anna", "here"), 0);
    assert_int_equal(bulk->begin(f->store, true, &err), 0);
    bring(f, "anna", "a1");
    bring(f, "anna", "a2");
    bring(f, "bert", "b1");
    assert_int_equal(forget(f, "anna", "a2"), 0); /* not there yet, but it is to be un-seen */
    assert_int_equal(forget(f, "bert", NULL), 1);
    assert_int_equal(bulk->turn(f->store, &err), 0);
    assert_int_equal(bulk->turn(f->store, &err), 0); /* the first is durable */
    assert_true(seen(f, "anna", "a1"));
    assert_true(seen(f, "anna", "here"));
    assert_false(seen(f, "anna", "a2"));
    assert_false(known(f, "bert"));
    kill_store(f);
    open_store(f);
    bulk = f->store->bulk;
    assert_true(seen(f, "anna", "a1"));
    assert_false(seen(f, "anna", "a2"));

    /* Read once more: the exception stays; a play here ends it. */
    assert_int_equal(bulk->begin(f->store, true, &err), 0);
    bring(f, "anna", "a2");
    assert_int_equal(bulk->end(f->store, &err), 0);
    assert_false(seen(f, "anna", "a2"));
    assert_int_equal(record_at(f, STORE_PLAY, START, "anna", "a2"), 0);
    assert_int_equal(flush(f), 0);
    assert_true(seen(f, "anna", "a2"));
    close_store(f);
    expect_problem(f, NULL);
}

/* Of old and new deliveries the new ones are the last, though they came first. */
static void test_bulk_deliveries(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    assert_int_equal(record_at(f, STORE_DELIVERY, START, "anna", "new"), 0);
    assert_int_equal(record_at(f, STORE_DELIVERY, START, "anna", "newer"), 0);
    assert_int_equal(f->store->bulk->begin(f->store, true, &err), 0);
    for (int rank = 1; rank <= STORE_RANK_MAX; rank++) {
        char item[16];
        snprintf(item, sizeof item, "d%d", rank);
        struct slice id = slice_str(item);
        assert_int_equal(f->store->bulk->deliver(f->store, START, key_of("anna"), slice_str("anna"), id,
                                                 hash_id(SEED, id), (uint64_t)rank, &err),
                         0);
    }
    assert_int_equal(f->store->bulk->end(f->store, &err), 0);
    for (int round = 0; round < 2; round++) {
        assert_true(seen(f, "anna", "new"));
        assert_true(seen(f, "anna", "newer"));
        assert_true(seen(f, "anna", "d100"));
        assert_true(seen(f, "anna", "d3"));
        assert_false(seen(f, "anna", "d2"));
        assert_false(seen(f, "anna", "d1"));
        assert_int_equal(flush(f), 0);
    }
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(test_bulk),       TEST(test_notes),        TEST(test_many_notes),      TEST(test_forget_noted),
        TEST(test_notes_fail), TEST(test_bulk_serving), TEST(test_bulk_deliveries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
