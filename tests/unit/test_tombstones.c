/* Tombstones of the embedded store over kills, refusals and copies. What every engine keeps is in
 * test_store_conformance.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "store/admin.h"
#include "store/bulk.h"
#include "tests/lib/store_calls.h"

static void state_play(struct store_fixture *f, int64_t at, const char *user, const char *item)
{
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    struct slice id = slice_str(item);
    uint64_t hash = hash_id(SEED, id);
    assert_int_equal(
        store_batch_add(&batch, STORE_PLAY, at, STORE_STATED, key_of(user), slice_str(user), &id, &hash, 1), 0);
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    assert_int_equal(batch.err.code, 0);
    buf_free(&batch.bytes);
}

static void begin_forget(struct store_fixture *f, struct store_forget *forget, const struct slice *item,
                         const uint64_t *hash, int *done)
{
    *forget = (struct store_forget){.key = key_of("u"),
                                    .user = slice_str("u"),
                                    .items = item,
                                    .hashes = hash,
                                    .n_items = item != NULL,
                                    .first_month = INT_MIN,
                                    .done = forget_done,
                                    .owner = done};
    f->store->ops->forget(f->store, forget);
}

/* The folder becomes that of a machine that stopped when staging had the forget, and history didn't; `first` is the one
 * that it was copied from, for the caller to remove. The store is closed. */
static void forget_and_stop_between(struct store_fixture *f, const struct slice *item, const uint64_t *hash,
                                    char first[CONFIG_TEXT])
{
    static const char *const files[] = {"history.db", "history.db-wal", "staging.db", "staging.db-wal"};
    char copy[] = "/tmp/unseen-test-tombstones.XXXXXX";
    struct store_forget under_way;
    int done = 0;
    rule(VFS_WRITE, "history.db-wal", 1, false, VFS_HOLD);
    begin_forget(f, &under_way, item, hash, &done);
    vfs_fault_wait_held();
    assert_non_null(mkdtemp(copy));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        copy_file(f->cfg.data, files[i], copy, files[i]);
    }
    vfs_fault_release();
    wait_flag(&done);
    snprintf(first, CONFIG_TEXT, "%s", f->cfg.data);
    close_store(f);
    snprintf(f->cfg.data, sizeof f->cfg.data, "%s", copy);
}

/* The machine stops when staging has the forget, and history doesn't: the next start carries it out, and what was
 * replayed in between stays away. */
static void killed_between_files(struct store_fixture *f, bool of_item)
{
    char first[CONFIG_TEXT];
    struct slice item = slice_str("a");
    uint64_t hash = hash_id(SEED, item);
    play(f, "u", "a");
    deliver(f, "u", "a");
    play(f, "u", "b");
    play(f, "other", "a");
    assert_int_equal(flush(f), 0);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM staged"), 0);
    forget_and_stop_between(f, of_item ? &item : NULL, &hash, first);
    for (int starts = 0; starts < 2; starts++) {
        open_store(f);
        assert_int_equal(known(f, "u"), of_item || starts > 0);
        assert_false(seen(f, "u", "a"));
        assert_int_equal(seen(f, "u", "b"), of_item);
        assert_true(seen(f, "other", "a"));
        state_play(f, START - 1, "u", "a");
        assert_false(seen(f, "u", "a"));
        play(f, "u", "new");
        assert_int_equal(flush(f), 0);
        kill_store(f); /* the next start erases nothing newer */
    }
    open_store(f);
    assert_true(seen(f, "u", "new"));
    remove_folder(first);
}

/* The item was one of a full list, some of which had been in history and some not: what fell off stays off. */
static void test_full_list_killed_between_files(void **state)
{
    struct store_fixture *f = *state;
    char first[CONFIG_TEXT];
    struct slice item = slice_str("d");
    uint64_t hash = hash_id(SEED, item);
    f->cfg.delivered_max = 3;
    close_store(f);
    open_store(f);
    deliver(f, "u", "a");
    deliver(f, "u", "b");
    deliver(f, "u", "c");
    assert_int_equal(flush(f), 0);
    deliver(f, "u", "d");
    forget_and_stop_between(f, &item, &hash, first);
    open_store(f);
    assert_false(seen(f, "u", "a"));
    assert_false(seen(f, "u", "d"));
    assert_true(seen(f, "u", "b"));
    assert_true(seen(f, "u", "c"));
    remove_folder(first);
}

static void test_user_killed_between_files(void **state)
{
    killed_between_files(*state, false);
}

static void test_item_killed_between_files(void **state)
{
    killed_between_files(*state, true);
}

/* Answered with an error: what is played after it is never erased by a later start. */
static void test_refused_by_history(void **state)
{
    struct store_fixture *f = *state;
    struct store_forget under_way;
    int done = 0;
    play(f, "u", "a");
    assert_int_equal(flush(f), 0);
    rule(VFS_WRITE, "history.db-wal", 1, false, VFS_EIO);
    begin_forget(f, &under_way, NULL, NULL, &done);
    wait_flag(&done);
    assert_true(under_way.err.code < 0);
    play(f, "u", "new");
    assert_int_equal(flush(f), 0);
    state_play(f, START - 1, "u", "replayed"); /* its tombstone stands */
    assert_false(seen(f, "u", "replayed"));
    kill_store(f);
    open_store(f);
    assert_true(seen(f, "u", "new"));
    assert_false(seen(f, "u", "replayed"));
    assert_int_equal(forget(f, "u", NULL), 1);
    assert_false(known(f, "u"));
}

/* A forget whose staged half failed leaves no tombstone, and the one before it stays. */
static void test_staged_half_fails(void **state)
{
    struct store_fixture *f = *state;
    play(f, "u", "a");
    assert_int_equal(forget(f, "v", NULL), 0);
    int64_t before = ask(f, "staging", "SELECT at FROM forgets");
    advance(f, 5000);
    for (int i = 0; i < 2; i++) {
        rule(VFS_SYNC, "staging.db-wal", 1, false, VFS_EIO);
        assert_true(forget(f, i == 0 ? "u" : "v", NULL) < 0);
    }
    assert_int_equal(stats(f).tombstones, 1);
    play(f, "other", "a");
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM forgets"), 1);
    assert_int_equal(ask(f, "staging", "SELECT at FROM forgets"), before);
    assert_true(seen(f, "u", "a"));
    state_play(f, START - 1, "u", "old");
    kill_store(f);
    open_store(f);
    assert_true(seen(f, "u", "old"));
}

/* They last as long as events of their time are taken. */
static void test_expiry(void **state)
{
    struct store_fixture *f = *state;
    assert_int_equal(forget(f, "u", NULL), 0);
    assert_int_equal(forget(f, "v", "a"), 0);
    for (int month = 0; month < 6; month++) {
        advance(f, 30 * (int64_t)DAY_MS);
        assert_int_equal(stats(f).tombstones, 2);
    }
    advance(f, 30 * (int64_t)DAY_MS);
    for (int hour = 0; hour < 24; hour++) {
        advance(f, HOUR_MS);
    }
    assert_int_equal(stats(f).tombstones, 0);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM forgets"), 0);
}

static void test_damaged_rows(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    assert_int_equal(forget(f, "u", NULL), 0);
    close_store(f);
    expect_problem(f, NULL);
    damage(f, "staging", "UPDATE forgets SET at = 'x'");
    assert_int_equal(try_open(f, &err), ERR_CORRUPT);
    expect_problem(f, "row of forgets");
    assert_true(sqlite_repair_folder(f->cfg.data, NAMELESS_KEEP, found, NULL, NULL, &err) > 0);
    expect_problem(f, NULL);
    open_store(f);
}

/* --- a load of many events --- */

static void bring(struct store_fixture *f, int64_t at, const char *user, const char *item)
{
    struct err err = {0};
    struct slice id = slice_str(item);
    uint64_t hash = hash_id(SEED, id);
    assert_int_equal(f->store->bulk->add(f->store, at, key_of(user), slice_str(user), hash, &err), 0);
    assert_int_equal(
        f->store->bulk->deliver(f->store, at, key_of(user), slice_str(user), id, hash, STORE_RANK_MAX, &err), 0);
}

/* A file that is imported again brings back nothing that is not newer than the forget; nor after a restart. */
static void import_after_forgets(struct store_fixture *f, bool serving)
{
    struct err err = {0};
    play(f, "u", "a");
    play(f, "v", "a");
    assert_int_equal(forget(f, "u", NULL), 1);
    assert_int_equal(forget(f, "v", "a"), 1);
    int64_t at = ask(f, "staging", "SELECT max(at) FROM forgets");
    for (int starts = 0; starts < 2; starts++) {
        uint64_t before = stats(f).forgotten_dropped;
        assert_int_equal(f->store->bulk->begin(f->store, serving, &err), 0);
        bring(f, at, "u", "a");
        bring(f, at, "v", "a");
        bring(f, at - 1, "v", "b");
        assert_int_equal(f->store->bulk->end(f->store, &err), 0);
        assert_int_equal(stats(f).forgotten_dropped - before, 4);
        assert_false(known(f, "u"));
        assert_false(seen(f, "v", "a"));
        assert_true(seen(f, "v", "b"));
        kill_store(f);
        open_store(f);
    }
    assert_int_equal(f->store->bulk->begin(f->store, serving, &err), 0);
    bring(f, at + 1, "u", "a");
    assert_int_equal(f->store->bulk->end(f->store, &err), 0);
    assert_true(seen(f, "u", "a"));
}

static void test_import_after_forgets(void **state)
{
    import_after_forgets(*state, false);
}

static void test_import_after_forgets_serving(void **state)
{
    import_after_forgets(*state, true);
}

/* --- files of different ages, and what is saved of damaged ones --- */

static const char *const staging_files[] = {"staging.db", "staging.db-wal"};

/* The staging.db of a moment ago is put back, and a forget came in between: it must not be undone in silence. */
static void test_staging_older_by_a_forget(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    char copy[] = "/tmp/unseen-test-tombstones.XXXXXX";
    play(f, "u", "a");
    assert_int_equal(flush(f), 0);
    play(f, "u", "b");
    assert_non_null(mkdtemp(copy));
    for (size_t i = 0; i < sizeof staging_files / sizeof *staging_files; i++) {
        copy_file(f->cfg.data, staging_files[i], copy, staging_files[i]);
    }
    assert_int_equal(forget(f, "u", NULL), 1);
    int64_t mark = ask(f, "history", "SELECT value FROM meta WHERE name = 'forgets'");
    kill_store(f);
    for (size_t i = 0; i < sizeof staging_files / sizeof *staging_files; i++) {
        copy_file(copy, staging_files[i], f->cfg.data, staging_files[i]);
    }
    assert_int_equal(try_open(f, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "staging.db is older than history.db"));
    assert_true(sqlite_repair_folder(f->cfg.data, NAMELESS_KEEP, found, NULL, NULL, &err) > 0);
    open_store(f); /* as was accepted; the next forget's id is higher than what is settled */
    assert_int_equal(forget(f, "u", NULL), 1);
    assert_true(ask(f, "staging", "SELECT max(id) FROM forgets") > mark);
    remove_folder(copy);
}

static void salvage(struct store_fixture *f)
{
    char target[CONFIG_TEXT], first[CONFIG_TEXT];
    uint64_t seed = SEED;
    struct err err = {0};
    snprintf(first, sizeof first, "%s", f->cfg.data);
    assert_true(snprintf(target, sizeof target, "%.200s-saved", first) > 0);
    struct sqlite_salvage order = {.folder = first, .target = target, .seed = &seed, .did = found};
    assert_true(sqlite_salvage_folder(&order, &err) >= 0);
    snprintf(f->cfg.data, sizeof f->cfg.data, "%s", target);
    remove_folder(first);
}

/* A salvage that can't read how far forgets were carried out erases nothing that was played after them. */
static void salvaged(struct store_fixture *f, const char *sql)
{
    play(f, "u", "a");
    assert_int_equal(forget(f, "u", NULL), 1);
    play(f, "u", "new");
    assert_int_equal(flush(f), 0);
    close_store(f);
    if (sql != NULL) {
        damage(f, "history", sql);
    }
    salvage(f);
    open_store(f);
    assert_true(seen(f, "u", "new"));
    assert_false(seen(f, "u", "a"));
    state_play(f, START - 1, "u", "a"); /* and the tombstones stand */
    assert_false(seen(f, "u", "a"));
    kill_store(f);
    open_store(f);
    assert_true(seen(f, "u", "new"));
}

static void test_salvaged(void **state)
{
    salvaged(*state, NULL);
}

static void test_salvaged_without_the_mark(void **state)
{
    salvaged(*state, "DELETE FROM meta WHERE name = 'forgets'");
}

/* --- a clock that ran ahead --- */

/* A time that was believed wrongly is set back: what was forgotten meanwhile was forgotten by now, not later. */
static void test_clock_set_back(void **state)
{
    struct store_fixture *f = *state;
    struct store_clock_change change = {.call = {.done = call_done}, .set_back = true};
    play(f, "u", "a");
    advance(f, 5 * (int64_t)HOUR_MS);
    assert_int_equal(forget(f, "u", NULL), 1);
    assert_int_equal(forget(f, "v", "a"), 0);
    clock_test_jump(-4 * (int64_t)HOUR_MS);
    int done = 0;
    change.call.owner = &done;
    f->store->ops->clock_change(f->store, &change);
    wait_flag(&done);
    assert_int_equal(change.call.err.code, 0);
    for (int starts = 0; starts < 2; starts++) {
        int64_t later, earlier;
        f->store->ops->now(f->store, &later, &earlier);
        assert_true(ask(f, "staging", "SELECT max(at) FROM forgets") <= later);
        assert_int_equal(stats(f).tombstones, 2);
        state_play(f, START, "u", "old");
        assert_false(seen(f, "u", "old"));
        state_play(f, later + 1, "u", "new");
        state_play(f, later + 1, "v", "a");
        assert_true(seen(f, "u", "new"));
        assert_true(seen(f, "v", "a"));
        kill_store(f);
        open_store(f);
    }
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(test_user_killed_between_files),
        TEST(test_item_killed_between_files),
        TEST(test_full_list_killed_between_files),
        TEST(test_refused_by_history),
        TEST(test_staged_half_fails),
        TEST(test_expiry),
        TEST(test_import_after_forgets),
        TEST(test_import_after_forgets_serving),
        TEST(test_damaged_rows),
        TEST(test_staging_older_by_a_forget),
        TEST(test_salvaged),
        TEST(test_salvaged_without_the_mark),
        TEST(test_clock_set_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
