/* The embedded store through its seam: a real store in a folder of its own, the test's clock, and a file system that
 * fails on demand. What takes several steps of time or crashes stands in tests/scenario; here is what needs a closer
 * look: what is found afterwards in the files, calls that must be answered, and readers beside it all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "filter/sieve.h"
#include "store_fixture.h"

enum { HOUR_MS = 3600 * 1000, DAY_MS = 24 * HOUR_MS };

static void copy_file(const char *from, const char *to, const char *name)
{
    char path[PATH_MAX];
    char bytes[65536];
    snprintf(path, sizeof path, "%s/%s", from, name);
    FILE *in = fopen(path, "rb");
    if (in == NULL) {
        return;
    }
    snprintf(path, sizeof path, "%s/%s", to, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;) {
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    }
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

/* The machine stops while all files are open: the store goes on in a copy of what they hold at this moment. */
static void crash_into_copy(struct store_fixture *f, char first[CONFIG_TEXT])
{
    static const char *const files[] = {"history.db", "history.db-wal", "staging.db", "staging.db-wal"};
    snprintf(first, CONFIG_TEXT, "%s", f->cfg.data);
    char copy[] = "/tmp/unseen-test-store.XXXXXX";
    assert_non_null(mkdtemp(copy));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        copy_file(first, copy, files[i]);
    }
    kill_store(f);
    snprintf(f->cfg.data, sizeof f->cfg.data, "%s", copy);
    open_store(f);
}

static int setup(void **state)
{
    struct store_fixture *f = store_fixture_new("store");
    open_store(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    store_fixture_free(*state);
    return 0;
}

/* --- one call each --- */

static int64_t key_of(const char *user)
{
    return hash_user_key(SEED, slice_str(user));
}

static void add(struct store_batch *batch, enum store_kind kind, int64_t at, const char *user, const char *item)
{
    struct slice id = slice_str(item);
    uint64_t hash = hash_id(SEED, id);
    assert_int_equal(store_batch_add(batch, kind, at, key_of(user), slice_str(user), &id, &hash, 1), 0);
}

static int record_at(struct store_fixture *f, enum store_kind kind, int64_t at, const char *user, const char *item)
{
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    add(&batch, kind, at, user, item);
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    buf_free(&batch.bytes);
    return batch.err.code;
}

static void play(struct store_fixture *f, const char *user, const char *item)
{
    assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms(), user, item), 0);
}

static void deliver(struct store_fixture *f, const char *user, const char *item)
{
    assert_int_equal(record_at(f, STORE_DELIVERY, clock_wall_ms(), user, item), 0);
}

static int call(struct store_fixture *f, void (*op)(struct store *, struct store_call *), struct err *err)
{
    int done = 0;
    struct store_call c = {.done = call_done, .owner = &done};
    op(f->store, &c);
    wait_flag(&done);
    if (err != NULL) {
        *err = c.err;
    }
    return c.err.code;
}

static int flush(struct store_fixture *f)
{
    return call(f, f->store->ops->flush, NULL);
}

static void advance(struct store_fixture *f, int64_t ms)
{
    clock_test_advance(ms);
    assert_int_equal(call(f, f->store->ops->tick, NULL), 0);
}

/* FORGET user [item]: the answer, or an error. */
static int64_t forget(struct store_fixture *f, const char *user, const char *item)
{
    int done = 0;
    struct slice id = slice_str(item != NULL ? item : "");
    uint64_t hash = hash_id(SEED, id);
    struct store_forget fg = {.key = key_of(user),
                              .user = slice_str(user),
                              .items = &id,
                              .hashes = &hash,
                              .n_items = item != NULL,
                              .first_month = INT_MIN,
                              .done = forget_done,
                              .owner = &done};
    f->store->ops->forget(f->store, &fg);
    wait_flag(&done);
    return fg.err.code < 0 ? fg.err.code : fg.answer;
}

static int load(struct store_fixture *f, struct store_reader *reader, const char *user, struct store_view *view,
                struct err *err)
{
    return f->store->ops->load(reader, key_of(user), slice_str(user), INT_MIN, view, err);
}

/* What a question would say: staged, or in a filter and no exception, or delivered. */
static bool in_view(const struct store_view *view, const char *item)
{
    uint64_t hash = hash_id(SEED, slice_str(item));
    for (size_t i = 0; i < view->n_plays; i++) {
        if (view->plays[i].hash == hash) {
            return true;
        }
    }
    for (size_t i = 0; i < view->n_deliveries; i++) {
        if (view->deliveries[i].hash == hash) {
            return true;
        }
    }
    bool exception = false;
    for (size_t i = 0; i < view->n_exceptions; i++) {
        exception = exception || view->exceptions[i] == hash;
    }
    for (size_t i = 0; i < view->n_months && !exception; i++) {
        if (filter_has(&view->months[i].filter, hash)) {
            return true;
        }
    }
    return false;
}

static bool seen(struct store_fixture *f, const char *user, const char *item)
{
    struct store_view view;
    struct err err = {0};
    if (load(f, f->reader, user, &view, &err) < 0) {
        fail_msg("load: %s", err.text);
    }
    return in_view(&view, item);
}

static bool known(struct store_fixture *f, const char *user)
{
    struct store_view view;
    struct err err = {0};
    assert_int_equal(load(f, f->reader, user, &view, &err), 0);
    return view.known;
}

static struct store_stats stats(struct store_fixture *f)
{
    struct store_stats out;
    f->store->ops->stats(f->store, &out);
    return out;
}

static enum store_slot_state slot_state(struct store_fixture *f, int slot)
{
    struct store_ring ring;
    f->store->ops->ring(f->store, &ring);
    for (int i = 0; i < ring.n_slots; i++) {
        if (ring.slots[i].slot == slot) {
            return ring.slots[i].state;
        }
    }
    return SLOT_EMPTY;
}

static void rule(unsigned ops, const char *file, uint64_t nth, bool sticky, enum vfs_action action)
{
    assert_true(vfs_fault_add(
                    &(struct vfs_rule){.ops = ops, .file = file, .nth = nth, .sticky = sticky, .action = action}) >= 0);
}

/* --- the files, by another connection; the store is open or closed --- */

static sqlite3 *open_file(struct store_fixture *f, const char *name)
{
    char path[PATH_MAX];
    sqlite3 *db = NULL;
    snprintf(path, sizeof path, "%s/%s.db", f->cfg.data, name);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    sqlite3_busy_timeout(db, 2000);
    return db;
}

static int64_t ask(struct store_fixture *f, const char *name, const char *sql)
{
    sqlite3 *db = open_file(f, name);
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return n;
}

/* Changes a file of a closed store, as damage does. */
static void damage(struct store_fixture *f, const char *name, const char *sql)
{
    sqlite3 *db = open_file(f, name);
    char *message = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK) {
        fail_msg("%s: %s", sql, message);
    }
    sqlite3_close(db);
}

/* --- tests: round trips --- */

static void test_round_trip(void **state)
{
    struct store_fixture *f = *state;
    assert_false(known(f, "u"));
    play(f, "u", "a");
    deliver(f, "u", "d");
    assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms() - 40 * (int64_t)DAY_MS, "u", "late"), 0);
    for (int round = 0; round < 3; round++) {
        assert_true(known(f, "u"));
        assert_true(seen(f, "u", "a"));
        assert_true(seen(f, "u", "d"));
        assert_true(seen(f, "u", "late"));
        assert_false(seen(f, "u", "b"));
        assert_false(seen(f, "v", "a"));
        if (round == 0) {
            assert_int_equal(flush(f), 0);
            assert_int_equal(stats(f).staged_rows, 0);
        } else {
            close_store(f);
            open_store(f);
        }
    }
    struct store_view view;
    struct err err = {0};
    assert_int_equal(load(f, f->reader, "u", &view, &err), 0);
    assert_int_equal(view.n_months, 2);
    assert_int_equal(view.months[0].month, month_of_ms(START));
    assert_int_equal(view.n_deliveries, 1);
    assert_true(slice_eq(view.deliveries[0].item, slice_str("d")));
}

static void test_recovery(void **state)
{
    struct store_fixture *f = *state;
    play(f, "u", "a");
    deliver(f, "u", "d");
    kill_store(f);
    open_store(f);
    assert_int_equal(stats(f).recovered_rows, 2);
    assert_true(seen(f, "u", "a"));
    assert_true(seen(f, "u", "d"));
    assert_int_equal(flush(f), 0);
    assert_true(seen(f, "u", "a"));
    assert_true(seen(f, "u", "d"));
}

static void test_forget_user(void **state)
{
    struct store_fixture *f = *state;
    play(f, "other", "a");
    /* staged; stored; both */
    for (int round = 0; round < 3; round++) {
        assert_int_equal(forget(f, "u", NULL), 0);
        play(f, "u", "a");
        deliver(f, "u", "d");
        if (round > 0) {
            assert_int_equal(flush(f), 0);
        }
        if (round > 1) {
            play(f, "u", "b");
        }
        assert_int_equal(forget(f, "u", NULL), 1);
        assert_false(known(f, "u"));
        assert_false(seen(f, "u", "a"));
        assert_false(seen(f, "u", "d"));
        assert_true(seen(f, "other", "a"));
        assert_int_equal(ask(f, "history", "SELECT count(*) FROM users WHERE user = 'u'"), 0);
        assert_int_equal(ask(f, "history", "SELECT count(*) FROM delivered"), 0);
        assert_int_equal(ask(f, "staging", "SELECT count(*) FROM staged_0 WHERE user = 'u'"), 0);
    }
    assert_int_equal(flush(f), 0);
    assert_false(known(f, "u"));
    assert_true(seen(f, "other", "a"));
}

static void test_forget_items(void **state)
{
    struct store_fixture *f = *state;
    play(f, "u", "a");
    play(f, "u", "b");
    deliver(f, "u", "d");
    assert_int_equal(forget(f, "u", "a"), 1);
    assert_false(seen(f, "u", "a"));
    assert_int_equal(flush(f), 0);
    assert_int_equal(ask(f, "history", "SELECT count(*) FROM exceptions"), 0);

    assert_int_equal(forget(f, "u", "b"), 1);
    assert_int_equal(forget(f, "u", "b"), 0);
    assert_int_equal(forget(f, "u", "d"), 1);
    assert_false(seen(f, "u", "b"));
    assert_false(seen(f, "u", "d"));
    assert_int_equal(ask(f, "history", "SELECT count(*) FROM exceptions"), 1);
    close_store(f);
    open_store(f);
    assert_false(seen(f, "u", "b"));

    /* The next play ends the exception, staged and flushed. */
    play(f, "u", "b");
    assert_true(seen(f, "u", "b"));
    assert_int_equal(flush(f), 0);
    assert_true(seen(f, "u", "b"));
    assert_int_equal(ask(f, "history", "SELECT count(*) FROM exceptions"), 0);
    assert_int_equal(forget(f, "u", NULL), 1);
}

/* Two in the queue at once: the second is answered as if it came after the first was carried out. */
static void test_forget_twice_at_once(void **state)
{
    struct store_fixture *f = *state;
    play(f, "u", "a");
    assert_int_equal(flush(f), 0);
    int done[2] = {0};
    struct store_forget both[2];
    for (int i = 0; i < 2; i++) {
        both[i] = (struct store_forget){
            .key = key_of("u"), .user = slice_str("u"), .first_month = INT_MIN, .done = forget_done, .owner = &done[i]};
    }
    rule(VFS_SYNC, "history", 1, false, VFS_HOLD);
    f->store->ops->forget(f->store, &both[0]);
    f->store->ops->forget(f->store, &both[1]);
    vfs_fault_wait_held();
    vfs_fault_release();
    wait_flag(&done[0]);
    wait_flag(&done[1]);
    assert_int_equal(both[0].answer, 1);
    assert_int_equal(both[1].answer, 0);
}

/* A commit that failed may be in the file all the same; whoever is forgotten then must not come back with it. */
static void test_forget_after_failed_commit(void **state)
{
    struct store_fixture *f = *state;
    char first[CONFIG_TEXT];
    play(f, "other", "a");
    sqlite3 *shell = open_file(f, "staging"); /* keeps the WAL from being deleted when the file is opened again */
    assert_int_equal(sqlite3_exec(shell, "SELECT * FROM staged_0", NULL, NULL, NULL), SQLITE_OK);
    rule(VFS_SYNC, "staging.db-wal", 1, false, VFS_EIO);
    assert_true(record_at(f, STORE_PLAY, clock_wall_ms(), "u", "a") < 0);
    assert_false(known(f, "u"));
    assert_int_equal(forget(f, "u", NULL), 0);
    crash_into_copy(f, first);
    assert_false(known(f, "u"));
    assert_true(seen(f, "other", "a"));
    sqlite3_close(shell);
    remove_folder(first);
}

static void test_ids_never_again(void **state)
{
    struct store_fixture *f = *state;
    play(f, "other", "a");
    int64_t before = ask(f, "staging", "SELECT max(id) FROM staged_0");
    play(f, "u", "a");
    assert_int_equal(forget(f, "u", NULL), 1);
    kill_store(f);
    open_store(f);
    play(f, "v", "a");
    /* The slot was recovered as closed or is open again; the new row is in whichever is open. */
    int64_t after = 0;
    for (int i = 0; i < 6; i++) {
        char sql[80];
        snprintf(sql, sizeof sql, "SELECT coalesce(max(id), 0) FROM staged_%d", i);
        int64_t id = ask(f, "staging", sql);
        after = id > after ? id : after;
    }
    assert_true(after > before + 1);
}

/* --- tests: the ring --- */

static void test_ring_flush_of_nothing(void **state)
{
    struct store_fixture *f = *state;
    struct store_ring ring;
    f->store->ops->ring(f->store, &ring);
    uint64_t turn = ring.turn;
    assert_int_equal(flush(f), 0);
    f->store->ops->ring(f->store, &ring);
    assert_int_equal(ring.turn, turn);
    play(f, "u", "a");
    assert_int_equal(flush(f), 0);
    f->store->ops->ring(f->store, &ring);
    assert_int_equal(ring.turn, turn + 1);
    assert_int_equal(ring.n_slots, 6);
    for (int i = 0; i < ring.n_slots; i++) {
        assert_int_equal(ring.slots[i].state, i == ring.open ? SLOT_OPEN : SLOT_EMPTY);
    }
}

/* Every slot holds rows that can't be flushed: RING FLUSH has nowhere to turn to, and must say why. Healed, the same
 * command does it all. */
static void test_ring_flush_without_a_free_slot(void **state)
{
    struct store_fixture *f = *state;
    f->cfg.slots = 2;
    close_store(f);
    open_store(f);
    play(f, "u", "a");
    rule(VFS_WRITE, "history.db-wal", 1, true, VFS_EIO);
    assert_true(flush(f) < 0);
    play(f, "u", "b");
    struct err err = {0};
    assert_true(call(f, f->store->ops->flush, &err) < 0);
    assert_non_null(strstr(err.text, "history"));
    assert_true(seen(f, "u", "a"));
    assert_true(seen(f, "u", "b"));
    vfs_fault_heal();
    assert_int_equal(flush(f), 0);
    assert_int_equal(stats(f).staged_rows, 0);
    assert_true(seen(f, "u", "a"));
    assert_true(seen(f, "u", "b"));
}

/* A flush that failed is tried again by RING FLUSH before it is answered, not answered with the old error. */
static void test_ring_flush_tries_again(void **state)
{
    struct store_fixture *f = *state;
    for (int i = 0; i < 20; i++) {
        play(f, "u", "a");
        rule(VFS_WRITE, "history.db-wal", 1, true, VFS_EIO);
        assert_true(flush(f) < 0);
        vfs_fault_heal();
        assert_int_equal(flush(f), 0);
    }
}

/* Neither hangs nor answers early: what failed is due exactly now. */
static void test_tick_waits_for_retries(void **state)
{
    struct store_fixture *f = *state;
    for (int i = 0; i < 20; i++) {
        play(f, "u", "a");
        rule(VFS_WRITE, "history.db-wal", 1, true, VFS_EIO);
        assert_true(flush(f) < 0);
        vfs_fault_heal();
        advance(f, 5 * 60 * 1000);
        assert_int_equal(stats(f).staged_rows, 0);
    }
}

static void test_slot_that_is_not_emptied(void **state)
{
    struct store_fixture *f = *state;
    play(f, "u", "a");
    int slot = 0;
    while (slot_state(f, slot) != SLOT_OPEN) {
        slot++;
    }
    /* The new time is written first, then the turn, then the emptying. */
    clock_test_advance(HOUR_MS);
    rule(VFS_SYNC, "staging.db-wal", 3, true, VFS_EIO);
    assert_int_equal(call(f, f->store->ops->tick, NULL), 0);
    assert_int_equal(slot_state(f, slot), SLOT_EMPTYING);
    struct store_ring ring;
    f->store->ops->ring(f->store, &ring);
    assert_non_null(strstr(ring.slots[slot].error, "staging"));
    assert_true(ring.slots[slot].retry_ms > clock_wall_ms());
    assert_true(seen(f, "u", "a"));
    assert_true(flush(f) < 0);
    vfs_fault_heal();
    advance(f, 30 * 1000);
    assert_int_equal(slot_state(f, slot), SLOT_EMPTYING);
    advance(f, 5 * 60 * 1000);
    assert_int_equal(slot_state(f, slot), SLOT_EMPTY);
    assert_true(seen(f, "u", "a"));
}

/* A range that was merged before a commit failed is merged again, although only another range was left to do. */
static void test_loss_between_tries(void **state)
{
    struct store_fixture *f = *state;
    /* One month's table is made unwritable for plays: that user's range fails, the other is merged. */
    play(f, "bad", "a");
    play(f, "good", "a");
    play(f, "other", "a");
    assert_int_equal(flush(f), 0);
    play(f, "bad", "b");
    play(f, "good", "b");
    close_store(f);
    char sql[256];
    snprintf(sql, sizeof sql,
             "CREATE TRIGGER stop BEFORE UPDATE ON plays_202611 WHEN NEW.user_key = %" PRId64
             " BEGIN SELECT raise(ABORT, 'stop'); END",
             key_of("bad"));
    damage(f, "history", sql);
    open_store(f);
    assert_true(flush(f) < 0); /* both in one transaction */
    assert_true(flush(f) < 0); /* in one again: the range has fewer than 16 */
    assert_true(flush(f) < 0); /* each alone: good is merged */
    assert_int_equal(ask(f, "history", "SELECT count(*) FROM plays_202611 WHERE items = 2"), 1);

    /* Now a commit of somebody else's forget fails: what is not yet durable may be gone. */
    rule(VFS_SYNC, "history.db-wal", 1, false, VFS_EIO);
    assert_true(forget(f, "other", NULL) < 0);
    snprintf(sql, sizeof sql,
             "UPDATE plays_202611 SET items = 1, filter = (SELECT filter FROM plays_202611 WHERE "
             "user_key = %" PRId64 ") WHERE items = 2",
             key_of("bad"));
    damage(f, "history", sql); /* gone, for the test */
    assert_int_equal(ask(f, "history", "SELECT count(*) FROM plays_202611 WHERE items = 2"), 0);
    damage(f, "history", "DROP TRIGGER stop");
    assert_int_equal(flush(f), 0);
    assert_true(seen(f, "bad", "b"));
    assert_true(seen(f, "good", "b"));
}

static void test_slots_lowered(void **state)
{
    struct store_fixture *f = *state;
    for (int i = 0; i < 6; i++) {
        char item[8];
        snprintf(item, sizeof item, "i%d", i);
        play(f, "u", item);
        rule(VFS_WRITE, "history.db-wal", 1, true, VFS_EIO);
        flush(f);
        vfs_fault_heal();
    }
    kill_store(f);
    f->cfg.slots = 4;
    open_store(f);
    assert_int_equal(flush(f), 0);
    for (int i = 0; i < 6; i++) {
        char item[8];
        snprintf(item, sizeof item, "i%d", i);
        assert_true(seen(f, "u", item));
    }
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM sqlite_schema WHERE name GLOB 'staged_*'"), 4);

    /* Empty ones go at the start. */
    close_store(f);
    f->cfg.slots = 2;
    open_store(f);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM sqlite_schema WHERE name GLOB 'staged_*'"), 2);
}

/* --- tests: memory and disk --- */

static void fill(struct store_fixture *f, int batches)
{
    for (int b = 0; b < batches; b++) {
        int done = 0;
        struct store_batch batch = {.done = batch_done, .owner = &done};
        for (int i = 0; i < 1000; i++) {
            char user[32];
            char item[16];
            snprintf(user, sizeof user, "user%d-%d", b, i);
            snprintf(item, sizeof item, b == 0 ? "a" : "%d", rand()); /* so that each fill changes the filters */
            add(&batch, STORE_PLAY, clock_wall_ms(), user, item);
        }
        f->store->ops->record(f->store, &batch);
        wait_flag(&done);
        assert_int_equal(batch.err.code, 0);
        buf_free(&batch.bytes);
    }
}

static void test_early_turns(void **state)
{
    struct store_fixture *f = *state;
    f->cfg.staging_memory = 1 << 20;
    fill(f, 40);
    assert_true(stats(f).early_turns > 0);
    assert_int_equal(flush(f), 0);
    assert_true(seen(f, "user0-0", "a"));
    assert_true(known(f, "user39-999"));
    assert_int_equal(ask(f, "history", "SELECT count(*) FROM users"), 40 * 1000);
}

/* Rows that are in the file and found no place in memory are not acknowledged, and don't stay in the file. */
static void test_no_memory_for_the_index(void **state)
{
    struct store_fixture *f = *state;
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    for (int i = 0; i < 5000; i++) {
        char user[16];
        snprintf(user, sizeof user, "u%d", i);
        add(&batch, STORE_PLAY, clock_wall_ms(), user, "a");
    }
    play(f, "first", "a");
    atomic_store(&no_large, true);
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    atomic_store(&no_large, false);
    buf_free(&batch.bytes);
    assert_int_equal(batch.err.code, ERR_NOMEM);
    play(f, "last", "a");
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM staged_0"), (int64_t)stats(f).staged_rows);
    assert_true(seen(f, "first", "a"));
    assert_true(seen(f, "last", "a"));
    assert_false(seen(f, "u4999", "a"));
}

static void test_busy_after_a_minute(void **state)
{
    struct store_fixture *f = *state;
    f->cfg.staging_memory = 1 << 20;
    rule(VFS_WRITE, "history.db-wal", 1, true, VFS_EIO);
    struct store_ring ring;
    do {
        fill(f, 1);
        f->store->ops->ring(f->store, &ring);
    } while (ring.memory < ring.memory_limit);

    int waits = 0;
    struct store_batch batch = {.done = batch_done, .owner = &waits};
    add(&batch, STORE_PLAY, clock_wall_ms(), "w", "a");
    f->store->ops->record(f->store, &batch);
    advance(f, 0); /* the minute begins when the stager has seen it */
    advance(f, 59 * 1000);
    assert_false(is_raised(&waits));
    assert_true(seen(f, "user0-0", "a"));
    advance(f, 2 * 1000);
    wait_flag(&waits);
    assert_int_equal(batch.err.code, ERR_BUSY);
    assert_non_null(strstr(batch.err.text, "staging memory (1 MiB) is full"));
    assert_non_null(strstr(batch.err.text, "slot"));
    assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms(), "w", "a"), ERR_BUSY);
    f->store->ops->ring(f->store, &ring);
    assert_true(ring.busy);

    /* A forget goes on, and does not need the memory. */
    assert_int_equal(forget(f, "nobody", NULL), 0);
    vfs_fault_heal();
    assert_int_equal(flush(f), 0);
    assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms(), "w", "a"), 0);
    f->store->ops->ring(f->store, &ring);
    assert_false(ring.busy);
    buf_free(&batch.bytes);
}

static void test_min_free(void **state)
{
    struct store_fixture *f = *state;
    play(f, "u", "a");
    f->cfg.min_free = INT64_C(1) << 60;
    advance(f, 1000);
    assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms(), "u", "b"), ERR_FULL);
    struct store_ring ring;
    f->store->ops->ring(f->store, &ring);
    assert_true(ring.busy);
    assert_non_null(strstr(ring.busy_cause, "min_free"));
    assert_true(seen(f, "u", "a"));
    assert_int_equal(forget(f, "u", "a"), 1);
    assert_false(seen(f, "u", "a"));
    assert_int_equal(flush(f), 0);
    f->cfg.min_free = 0;
    advance(f, 1000);
    f->store->ops->ring(f->store, &ring);
    assert_false(ring.busy);
    play(f, "u", "b");
}

/* --- tests: damage --- */

static void test_quarantine(void **state)
{
    struct store_fixture *f = *state;
    play(f, "u", "a");
    play(f, "v", "a");
    deliver(f, "u", "d");
    assert_int_equal(flush(f), 0);
    close_store(f);
    damage(f, "history",
           "UPDATE plays_202611 SET filter = x'00010203' WHERE user_key = "
           "(SELECT user_key FROM users WHERE user = 'u')");
    open_store(f);

    struct store_view view;
    struct err err = {0};
    assert_int_equal(load(f, f->reader, "u", &view, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "\"u\""));
    assert_non_null(strstr(err.text, "2026-11"));
    assert_true(seen(f, "v", "a"));
    assert_int_equal(forget(f, "u", "a"), ERR_CORRUPT);

    f->cfg.on_damage = DAMAGE_ANSWER;
    assert_int_equal(load(f, f->reader, "u", &view, &err), 0);
    assert_int_equal(view.damaged_months, 1);
    assert_true(in_view(&view, "d"));
    assert_int_equal(forget(f, "u", "d"), 1);
    assert_false(seen(f, "u", "d"));

    play(f, "u", "b");
    assert_int_equal(flush(f), 0);
    assert_int_equal(stats(f).quarantined, 1);
    assert_true(seen(f, "u", "b"));
    f->cfg.on_damage = DAMAGE_ERROR;
    assert_int_equal(load(f, f->reader, "u", &view, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "set aside"));
    assert_int_equal(forget(f, "u", NULL), 1);
    assert_int_equal(stats(f).quarantined, 0);
    assert_false(known(f, "u"));
}

static char problems[16][1024];
static int n_problems;

static void found(void *arg, const char *problem)
{
    (void)arg;
    if (n_problems < 16) {
        snprintf(problems[n_problems++], sizeof problems[0], "%s", problem);
    }
}

/* Checks the closed folder; each of the words must be in some problem. */
static void expect_problem(struct store_fixture *f, const char *words)
{
    struct err err = {0};
    n_problems = 0;
    int n = sqlite_check_folder(f->cfg.data, false, found, NULL, NULL, &err);
    if (n < 0) {
        fail_msg("check: %s", err.text);
    }
    if (words == NULL) {
        if (n > 0) {
            fail_msg("check found: %s", problems[0]);
        }
        return;
    }
    for (int i = 0; i < n_problems; i++) {
        if (strstr(problems[i], words) != NULL) {
            return;
        }
    }
    fail_msg("nothing about \"%s\" among %d problems: %s", words, n, n > 0 ? problems[0] : "");
}

/* --- tests: a user who is large --- */

enum { LARGE_STAGED = STORE_LARGE / 8 + 1, LARGE_STORED = 80000 };

static uint64_t large_item(int i, char text[16])
{
    snprintf(text, 16, "i%d", i);
    return hash_id(SEED, slice_str(text));
}

static void play_many(struct store_fixture *f, const char *user, int from, int to)
{
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    for (int i = from; i < to; i++) {
        char text[16];
        uint64_t hash = large_item(i, text);
        struct slice id = slice_str(text);
        assert_int_equal(
            store_batch_add(&batch, STORE_PLAY, clock_wall_ms(), key_of(user), slice_str(user), &id, &hash, 1), 0);
    }
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    assert_int_equal(batch.err.code, 0);
    buf_free(&batch.bytes);
}

struct seen_positions {
    uint64_t n;
    uint32_t last;
    bool ascending;
    int good, bad;
    struct sieve *sieve;
};

static void see_positions(void *arg, const struct filter_part *part, uint32_t before, const uint32_t *positions,
                          uint32_t n)
{
    struct seen_positions *seen = arg;
    assert_true(filter_part_live(part) && n > 0 && n <= FILTER_RUN);
    seen->ascending &= before == 0 || positions[0] > seen->last;
    seen->last = positions[n - 1];
    seen->n += n;
    sieve_see(seen->sieve, part, before, positions, n);
}

static void see_month(void *arg, int month, bool good)
{
    struct seen_positions *seen = arg;
    assert_int_equal(month, month_make(2026, 11));
    good ? seen->good++ : seen->bad++;
    sieve_month(seen->sieve, good);
}

/* Asks about twice as many items as were played, of which the first half must be seen. */
static int scan_large(struct store_fixture *f, struct store_view *view, struct seen_positions *seen, size_t *n_unseen,
                      struct err *err)
{
    static uint64_t hashes[2 * LARGE_STORED];
    static uint8_t unseen[2 * LARGE_STORED / 8];
    char text[16];
    for (int i = 0; i < 2 * LARGE_STORED; i++) {
        hashes[i] = large_item(i, text);
    }
    *seen = (struct seen_positions){.ascending = true, .sieve = sieve_new()};
    assert_non_null(seen->sieve);
    assert_int_equal(sieve_begin(seen->sieve, hashes, 2 * LARGE_STORED), 0);
    const struct store_scan scan = {see_positions, see_month, seen};
    int code = f->store->ops->scan(f->reader, key_of("giant"), slice_str("giant"), INT_MIN, &scan, view, err);
    for (size_t i = 0; code == 0 && i < view->n_plays; i++) {
        sieve_exact(seen->sieve, view->plays[i].hash);
    }
    *n_unseen = sieve_end(seen->sieve, unseen);
    for (int i = 0; code == 0 && seen->bad == 0 && i < LARGE_STORED; i++) {
        assert_int_equal(unseen[i / 8] & (0x80 >> i % 8), 0);
    }
    sieve_free(seen->sieve);
    return code;
}

/* A large user is not loaded, wherever his plays are, but scanned, and then nothing of him is missing. */
static void test_large(void **state)
{
    struct store_fixture *f = *state;
    struct store_view view;
    struct seen_positions seen;
    struct err err = {0};
    size_t n_unseen;
    play_many(f, "giant", 0, LARGE_STAGED - 1);
    assert_int_equal(load(f, f->reader, "giant", &view, &err), 0);
    assert_int_equal(view.n_plays, LARGE_STAGED - 1);
    play_many(f, "giant", LARGE_STAGED - 1, LARGE_STORED);
    assert_int_equal(load(f, f->reader, "giant", &view, &err), ERR_LARGE);
    assert_int_equal(scan_large(f, &view, &seen, &n_unseen, &err), 0);
    assert_int_equal(view.n_plays, LARGE_STORED);
    assert_int_equal(n_unseen, LARGE_STORED);

    assert_int_equal(flush(f), 0);
    play_many(f, "giant", 0, 5);
    assert_int_equal(load(f, f->reader, "giant", &view, &err), ERR_LARGE);
    assert_int_equal(scan_large(f, &view, &seen, &n_unseen, &err), 0);
    assert_int_equal(view.n_plays, 5);
    assert_int_equal(view.n_months, 1);
    assert_int_equal(view.months[0].filter.n_parts, 1);
    assert_null(view.months[0].filter.parts[0].positions);
    assert_int_equal(view.months[0].filter.parts[0].n, seen.n);
    assert_true(seen.ascending && seen.n <= LARGE_STORED && seen.n > LARGE_STORED - 10);
    assert_true(seen.good == 1 && seen.bad == 0);
    assert_true(n_unseen <= LARGE_STORED && n_unseen > LARGE_STORED - 20);
    play(f, "small", "a");
    assert_int_equal(load(f, f->reader, "small", &view, &err), 0);

    assert_int_equal(forget(f, "giant", "i9"), 1);
    assert_int_equal(forget(f, "giant", "i9"), 0);
    assert_int_equal(forget(f, "giant", "no such"), 0);

    close_store(f);
    damage(f, "history",
           "UPDATE plays_202611 SET filter = zeroblob(200000) WHERE user_key = "
           "(SELECT user_key FROM users WHERE user = 'giant')");
    open_store(f);
    assert_int_equal(load(f, f->reader, "giant", &view, &err), ERR_LARGE);
    assert_int_equal(scan_large(f, &view, &seen, &n_unseen, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "2026-11"));
    f->cfg.on_damage = DAMAGE_ANSWER;
    assert_int_equal(scan_large(f, &view, &seen, &n_unseen, &err), 0);
    assert_true(seen.good == 0 && seen.bad == 1 && view.damaged_months == 1);
    assert_int_equal(forget(f, "giant", NULL), 1);
    assert_int_equal(load(f, f->reader, "giant", &view, &err), 0);
    assert_false(view.known);
}

static void test_check(void **state)
{
    static const struct {
        const char *file, *sql, *undo, *words;
    } cases[] = {
        {"history", "UPDATE plays_202611 SET items = items + 1", "UPDATE plays_202611 SET items = items - 1",
         "the filter holds 1"},
        {"history", "UPDATE months SET plays = plays + 1", "UPDATE months SET plays = plays - 1", "totals"},
        {"history", "UPDATE users SET user = 'x' WHERE user = 'u'", "UPDATE users SET user = 'u' WHERE user = 'x'",
         "key is not the hash"},
        {"history", "CREATE TABLE plays_202001 (x)", "DROP TABLE plays_202001", "plays_202001"},
        {"history", "INSERT INTO exceptions VALUES (5, 5)", "DELETE FROM exceptions", "exception without"},
        {"history", "INSERT INTO delivered VALUES (5, x'00')", "DELETE FROM delivered WHERE user_key = 5",
         "deliveries can't be read"},
        {"history", "INSERT INTO plays_202611 VALUES (5, 1, x'00')", "DELETE FROM plays_202611 WHERE user_key = 5",
         "without a row in users"},
        {"history",
         "INSERT INTO quarantine (id, user_key, user, month, at, reason, blob) VALUES (1, 5, 'q', 0, 0, 'bad', x'')",
         "DELETE FROM quarantine", "set aside"},
        {"staging", "INSERT INTO staged_0 VALUES (999, 7, 'u', 'i', 0)", "DELETE FROM staged_0 WHERE id = 999",
         "row 999"},
    };
    struct store_fixture *f = *state;
    play(f, "u", "a");
    deliver(f, "u", "d");
    assert_int_equal(flush(f), 0);
    play(f, "v", "a");
    close_store(f);
    expect_problem(f, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        damage(f, cases[i].file, cases[i].sql);
        expect_problem(f, cases[i].words);
        damage(f, cases[i].file, cases[i].undo);
        expect_problem(f, NULL);
    }
}

/* --- tests: opening --- */

static void test_lock(void **state)
{
    struct store_fixture *f = *state;
    struct store *second;
    struct err err = {0};
    assert_int_equal(sqlite_store_publish(f->store, "127.0.0.1:1", &err), 0);
    assert_int_equal(sqlite_store_open(&f->cfg, NULL, &second, &err), ERR_LOCKED);
    assert_non_null(strstr(err.text, "127.0.0.1:1"));
    assert_int_equal(sqlite_check_folder(f->cfg.data, false, found, NULL, NULL, &err), ERR_LOCKED);
    play(f, "u", "a");
}

static void test_seed(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    close_store(f);
    f->cfg.hash_seed = SEED + 1; /* without plays another one is adopted */
    open_store(f);
    assert_int_equal(f->store->ops->seed(f->store), SEED + 1);
    close_store(f);
    f->cfg.hash_seed = SEED;
    open_store(f);
    play(f, "u", "a");
    close_store(f);
    f->cfg.hash_seed = SEED + 1;
    assert_int_equal(try_open(f, &err), ERR_SEED);
    assert_non_null(strstr(err.text, f->cfg.data));
    f->cfg.hash_seed_given = false;
    open_store(f);
    assert_int_equal(f->store->ops->seed(f->store), SEED);
    assert_true(seen(f, "u", "a"));
}

static void test_foreign_and_newer(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    close_store(f);
    damage(f, "history", "UPDATE meta SET value = 99 WHERE name = 'schema'");
    assert_int_equal(try_open(f, &err), ERR_VERSION);
    assert_non_null(strstr(err.text, "99"));
    f->store = NULL;
    damage(f, "history", "UPDATE meta SET value = 1 WHERE name = 'schema'");
    damage(f, "staging", "PRAGMA application_id = 77");
    assert_int_equal(try_open(f, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "another program"));
    f->store = NULL;
}

/* --- tests: time --- */

static void test_sweep(void **state)
{
    struct store_fixture *f = *state;
    enum { USERS = 300 };
    for (int i = 0; i < USERS; i++) {
        char user[16];
        snprintf(user, sizeof user, "u%d", i);
        play(f, user, "a");
    }
    deliver(f, "sent", "d"); /* a user with deliveries alone */
    assert_int_equal(flush(f), 0);

    /* May 31st: the last day on which November is kept. */
    advance(f, month_start_ms(month_make(2027, 5)) + 30 * (int64_t)DAY_MS - START);
    play(f, "u0", "b");
    assert_int_equal(flush(f), 0);
    assert_int_equal(ask(f, "history", "SELECT count(*) FROM plays_202611"), USERS);

    /* June: each night a share. */
    int64_t left = USERS;
    for (int day = 1; day <= 30; day++) {
        advance(f, month_start_ms(month_make(2027, 6)) + (day - 1) * (int64_t)DAY_MS + 4 * HOUR_MS - clock_wall_ms());
        int64_t now = ask(f, "history", "SELECT count(*) FROM plays_202611");
        assert_true(now <= left);
        if (day == 15) {
            assert_in_range(now, USERS / 2 - 60, USERS / 2 + 60);
        }
        left = now;
    }
    advance(f, month_start_ms(month_make(2027, 7)) + HOUR_MS - clock_wall_ms());
    assert_int_equal(ask(f, "history", "SELECT count(*) FROM months"), 1);
    assert_int_equal(ask(f, "history", "SELECT count(*) FROM sqlite_schema WHERE name = 'plays_202611'"), 0);
    assert_int_equal(ask(f, "history", "SELECT count(*) FROM users"), 1);
    assert_int_equal(ask(f, "history", "SELECT count(*) FROM delivered"), 0);
    assert_true(known(f, "u0"));
    assert_false(known(f, "u1"));
    close_store(f);
    expect_problem(f, NULL);
}

/* An old time that was wrong is not met again at the next start. */
static void test_clock_believed_again(void **state)
{
    struct store_fixture *f = *state;
    struct store_ring ring;
    clock_test_jump(-10 * (int64_t)DAY_MS);
    advance(f, 1000);
    f->store->ops->ring(f->store, &ring);
    assert_true(ring.clock_doubted);
    for (int hour = 0; hour < 25; hour++) {
        advance(f, HOUR_MS);
    }
    f->store->ops->ring(f->store, &ring);
    assert_false(ring.clock_doubted);
    kill_store(f);
    open_store(f);
    f->store->ops->ring(f->store, &ring);
    assert_false(ring.clock_doubted);
}

/* --- tests: bulk load --- */

static void test_bulk(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    f->cfg.staging_memory = 2 << 20; /* so that it takes several indexes */
    assert_int_equal(f->store->ops->bulk_begin(f->store, false, &err), 0);
    for (int i = 0; i < 60000; i++) {
        char user[16];
        char item[16];
        snprintf(user, sizeof user, "u%d", i % 3000);
        snprintf(item, sizeof item, "i%d", i);
        assert_int_equal(f->store->ops->bulk_add(f->store, START - (i % 3) * 31 * (int64_t)DAY_MS, key_of(user),
                                                 slice_str(user), hash_id(SEED, slice_str(item)), &err),
                         0);
    }
    assert_int_equal(f->store->ops->bulk_end(f->store, &err), 0);
    assert_true(seen(f, "u0", "i0"));
    assert_true(seen(f, "u2999", "i59999"));
    assert_int_equal(ask(f, "history", "SELECT sum(plays) FROM months"), 60000);

    /* One that fails half-way says so, and the next one is a union. */
    assert_int_equal(f->store->ops->bulk_begin(f->store, false, &err), 0);
    assert_int_equal(f->store->ops->bulk_add(f->store, START, key_of("n"), slice_str("n"), 1, &err), 0);
    rule(VFS_SYNC, "history.db-wal", 1, true, VFS_EIO);
    assert_true(f->store->ops->bulk_end(f->store, &err) < 0);
    assert_non_null(strstr(err.text, "history"));
    vfs_fault_heal();
    assert_int_equal(f->store->ops->bulk_begin(f->store, false, &err), 0);
    assert_int_equal(f->store->ops->bulk_add(f->store, START, key_of("n"), slice_str("n"), 1, &err), 0);
    assert_int_equal(f->store->ops->bulk_end(f->store, &err), 0);
    assert_true(known(f, "n"));
    close_store(f);
    expect_problem(f, NULL);
}

/* --- tests: notes --- */

static int change_notes(struct store_fixture *f, struct store_notes *notes)
{
    int done = 0;
    notes->call.done = call_done;
    notes->call.owner = &done;
    f->store->ops->note(f->store, notes);
    wait_flag(&done);
    return notes->call.err.code;
}

static int add_notes(struct store_fixture *f, const char *a, const char *b, uint64_t *changed)
{
    const struct slice users[] = {slice_str(a), slice_str(b)};
    struct store_notes notes = {.kind = NOTES_ADD, .users = users, .n = 2};
    int rc = change_notes(f, &notes);
    *changed = notes.changed;
    return rc;
}

static void mark(struct store_fixture *f, const char *user, enum store_note state)
{
    const struct slice users[] = {slice_str(user)};
    struct store_notes notes = {.kind = NOTES_MARK, .users = users, .n = 1, .state = state};
    assert_int_equal(change_notes(f, &notes), 0);
}

static enum store_note noted(struct store_fixture *f, const char *user)
{
    return f->store->ops->noted(f->store, key_of(user));
}

static struct store_notes_state count_notes(struct store_fixture *f)
{
    struct store_notes_state state;
    f->store->ops->notes_state(f->store, &state);
    return state;
}

/* How many wait, each met once, max at a time, and near the place that the key has among all keys. */
static int read_notes(struct store_fixture *f, int max)
{
    static struct slice users[1000];
    struct arena arena = {0};
    struct err err = {0};
    struct store_notes_walk walk = {0};
    uint64_t all = count_notes(f).waiting;
    bool *met = calloc(20001, sizeof *met);
    int sum = 0, n;
    assert_true(max <= 1000 && met != NULL);
    while ((n = f->store->ops->notes_read(f->reader, &walk, users, max, &arena, &err)) > 0) {
        assert_true(n <= max);
        for (int i = 0; i < n; i++, sum++) {
            char name[8];
            snprintf(name, sizeof name, "%.*s", (int)users[i].len, users[i].data);
            int number = name[0] == 'n' ? atoi(name + 1) : 20000;
            assert_true(number == 20000 || !met[number]);
            met[number] = true;
            int64_t key = hash_user_key(SEED, users[i]);
            assert_int_equal(f->store->ops->noted(f->store, key), NOTE_WAITING);
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
    assert_int_equal(noted(f, "anna"), NOTE_NONE);
    assert_int_equal(add_notes(f, "anna", "anna", &changed), 0);
    assert_int_equal(changed, 1);
    assert_int_equal(add_notes(f, "bert", "anna", &changed), 0);
    assert_int_equal(changed, 1);
    assert_int_equal(add_notes(f, "carl", "dora", &changed), 0);
    kill_store(f);
    open_store(f);
    assert_int_equal(count_notes(f).waiting, 4);
    assert_int_equal(read_notes(f, 3), 4);
    mark(f, "anna", NOTE_DONE);
    mark(f, "bert", NOTE_LEFT);
    mark(f, "nobody", NOTE_DONE);
    assert_int_equal(noted(f, "nobody"), NOTE_NONE);
    assert_int_equal(read_notes(f, 8), 2);

    const struct store_problem keys[] = {{.key = slice_str("played:bert"), .what = slice_str("first")},
                                         {.key = slice_str("played:bert"), .what = slice_str("second")}};
    struct store_notes found = {.kind = NOTES_PROBLEMS, .problems = keys, .n = 2};
    struct store_notes pause = {.kind = NOTES_PAUSE, .paused = true};
    assert_int_equal(change_notes(f, &found), 0);
    assert_int_equal(found.changed, 1);
    assert_int_equal(change_notes(f, &pause), 0);
    kill_store(f);
    open_store(f);
    struct store_notes_state now = count_notes(f);
    assert_true(now.all == 4 && now.waiting == 2 && now.done == 1 && now.left == 1 && now.problems == 1 && now.paused);
    struct store_problem listed[4];
    struct arena arena = {0};
    struct err err = {0};
    assert_int_equal(f->store->ops->notes_problems(f->reader, listed, 4, &arena, &err), 1);
    assert_true(slice_eq(listed[0].key, keys[0].key) && slice_eq(listed[0].what, slice_str("second")));
    arena_free(&arena);

    struct store_notes again = {.kind = NOTES_AGAIN};
    assert_int_equal(change_notes(f, &again), 0);
    assert_true(again.changed == 2 && again.more == 0);
    now = count_notes(f);
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
        struct store_notes notes = {.kind = NOTES_ADD, .users = users + i, .n = 1000};
        assert_int_equal(change_notes(f, &notes), 0);
        assert_int_equal(notes.changed, 1000);
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 20000; i++) {
            assert_int_equal(noted(f, names[i]), i < 5 && round > 0 ? NOTE_DONE : NOTE_WAITING);
        }
        assert_int_equal(noted(f, "n20000"), NOTE_NONE);
        assert_int_equal(read_notes(f, 300), round > 0 ? 19995 : 20000);
        for (int i = 0; i < 5; i++) {
            mark(f, names[i], NOTE_DONE);
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
    assert_int_equal(add_notes(f, "anna", "bert", &changed), 0);
    assert_int_equal(forget(f, "anna", NULL), 1); /* known: what the other system has */
    assert_int_equal(noted(f, "anna"), NOTE_ENDED);
    assert_int_equal(forget(f, "anna", NULL), 0);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(read_notes(f, 4), 1);
        assert_int_equal(add_notes(f, "anna", "bert", &changed), 0);
        assert_int_equal(changed, 0);
        mark(f, "anna", NOTE_DONE);
        struct store_notes again = {.kind = NOTES_AGAIN};
        assert_int_equal(change_notes(f, &again), 0);
        assert_int_equal(noted(f, "anna"), NOTE_ENDED);
        kill_store(f);
        open_store(f);
    }
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM noted WHERE user = 'anna'"), 0);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM noted WHERE state = 3"), 1);
    mark(f, "bert", NOTE_DONE);
    assert_int_equal(forget(f, "bert", NULL), 0); /* all that there was has been taken over: nothing */
}

/* A commit that fails changes nothing, and the next one is good. */
static void test_notes_fail(void **state)
{
    struct store_fixture *f = *state;
    uint64_t changed;
    assert_int_equal(add_notes(f, "anna", "bert", &changed), 0);
    rule(VFS_SYNC, "staging.db-wal", 1, false, VFS_EIO);
    assert_true(add_notes(f, "carl", "dora", &changed) < 0);
    vfs_fault_heal();
    enum store_note carl = noted(f, "carl"); /* it isn't known what of it the file has */
    assert_int_equal(add_notes(f, "carl", "dora", &changed), 0);
    assert_int_equal(changed, carl == NOTE_NONE ? 2 : 0);
    assert_int_equal(count_notes(f).waiting, 4);
    kill_store(f);
    open_store(f);
    assert_int_equal(count_notes(f).waiting, 4);
    assert_int_equal(noted(f, "dora"), NOTE_WAITING);
}

/* --- tests: a load beside the service --- */

static void bring(struct store_fixture *f, const char *user, const char *item)
{
    struct err err = {0};
    assert_int_equal(
        f->store->ops->bulk_add(f->store, START, key_of(user), slice_str(user), hash_id(SEED, slice_str(item)), &err),
        0);
}

/* What is brought in is older than all that clients do meanwhile. */
static void test_bulk_serving(void **state)
{
    struct store_fixture *f = *state;
    const struct store_ops *ops = f->store->ops;
    struct err err = {0};
    uint64_t changed;
    assert_int_equal(add_notes(f, "anna", "bert", &changed), 0);
    assert_int_equal(record_at(f, STORE_PLAY, START, "anna", "here"), 0);
    assert_int_equal(ops->bulk_begin(f->store, true, &err), 0);
    bring(f, "anna", "a1");
    bring(f, "anna", "a2");
    bring(f, "bert", "b1");
    assert_int_equal(forget(f, "anna", "a2"), 0); /* not there yet, but it is to be un-seen */
    assert_int_equal(forget(f, "bert", NULL), 1);
    assert_int_equal(ops->bulk_turn(f->store, &err), 0);
    assert_int_equal(ops->bulk_turn(f->store, &err), 0); /* the first is durable */
    assert_true(seen(f, "anna", "a1"));
    assert_true(seen(f, "anna", "here"));
    assert_false(seen(f, "anna", "a2"));
    assert_false(known(f, "bert"));
    kill_store(f);
    open_store(f);
    ops = f->store->ops;
    assert_true(seen(f, "anna", "a1"));
    assert_false(seen(f, "anna", "a2"));

    /* Read once more: the exception stays; a play here ends it. */
    assert_int_equal(ops->bulk_begin(f->store, true, &err), 0);
    bring(f, "anna", "a2");
    assert_int_equal(ops->bulk_end(f->store, &err), 0);
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
    assert_int_equal(f->store->ops->bulk_begin(f->store, true, &err), 0);
    for (int rank = 1; rank <= STORE_RANK_MAX; rank++) {
        char item[16];
        snprintf(item, sizeof item, "d%d", rank);
        struct slice id = slice_str(item);
        assert_int_equal(f->store->ops->bulk_deliver(f->store, START, key_of("anna"), slice_str("anna"), id,
                                                     hash_id(SEED, id), (uint64_t)rank, &err),
                         0);
    }
    assert_int_equal(f->store->ops->bulk_end(f->store, &err), 0);
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

/* --- tests: readers beside it all --- */

struct race {
    struct store_fixture *f;
    _Atomic int acknowledged; /* items i0 .. of user "u" */
    _Atomic bool stop;
    _Atomic int unseen;
    _Atomic int loads;
};

static void *read_all(void *arg)
{
    struct race *race = arg;
    struct store *store = race->f->store;
    struct store_reader *reader;
    struct err err = {0};
    if (store->ops->reader_open(store, &reader, &err) < 0) {
        atomic_fetch_add(&race->unseen, 1);
        return NULL;
    }
    while (!atomic_load(&race->stop)) {
        int n = atomic_load(&race->acknowledged);
        struct store_view view;
        if (load(race->f, reader, "u", &view, &err) < 0) {
            atomic_fetch_add(&race->unseen, 1);
            break;
        }
        for (int i = n > 20 ? n - 20 : 0; i < n; i++) {
            char item[16];
            snprintf(item, sizeof item, "i%d", i);
            if (!in_view(&view, item)) {
                atomic_fetch_add(&race->unseen, 1);
            }
        }
        atomic_fetch_add(&race->loads, 1);
    }
    store->ops->reader_close(reader);
    return NULL;
}

static void test_readers_race(void **state)
{
    struct store_fixture *f = *state;
    struct race race = {.f = f};
    pthread_t threads[2];
    play(f, "u", "first");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, &race), 0);
    }
    for (int i = 0; i < 150; i++) {
        char item[16];
        snprintf(item, sizeof item, "i%d", i);
        play(f, "u", item);
        atomic_store(&race.acknowledged, i + 1);
        if (i % 3 == 0) {
            play(f, "victim", item);
            assert_int_equal(flush(f), 0);
        }
        if (i % 10 == 0) {
            assert_int_equal(forget(f, "victim", NULL), 1);
            assert_false(known(f, "victim"));
        }
    }
    while (atomic_load(&race.loads) < 10 && atomic_load(&race.unseen) == 0) {
        play(f, "u", "more");
    }
    atomic_store(&race.stop, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(atomic_load(&race.unseen), 0);
}

/* --- tests: the WAL --- */

static int64_t wal_file_bytes(struct store_fixture *f)
{
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%s/history.db-wal", f->cfg.data);
    return stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
}

/* A shell that forgot its transaction: flushes pause at the limit and say why, forgets go on, the WAL stays bounded. */
static void test_wal_limit_with_a_shell(void **state)
{
    struct store_fixture *f = *state;
    f->cfg.wal_limit = 4 << 20;
    play(f, "u", "a");
    assert_int_equal(flush(f), 0);
    sqlite3 *shell = open_file(f, "history");
    assert_int_equal(sqlite3_exec(shell, "BEGIN; SELECT count(*) FROM users", NULL, NULL, NULL), SQLITE_OK);
    struct err err = {0};
    int rounds = 0;
    while (call(f, f->store->ops->flush, &err) == 0 && rounds++ < 100) {
        fill(f, 4);
    }
    assert_int_equal(err.code, ERR_BUSY);
    assert_non_null(strstr(err.text, "wal_limit"));
    assert_true(stats(f).wal_pauses > 0);
    assert_true(wal_file_bytes(f) < 6 << 20);
    assert_int_equal(forget(f, "u", NULL), 1);
    assert_false(known(f, "u"));
    play(f, "u", "b");
    sqlite3_close(shell);
    assert_int_equal(flush(f), 0);
    assert_int_equal(stats(f).staged_rows, 0);
    assert_true(seen(f, "u", "b"));
    assert_true(wal_file_bytes(f) < 6 << 20);
}

static void test_wal_limit_with_readers(void **state)
{
    struct store_fixture *f = *state;
    f->cfg.wal_limit = 4 << 20;
    struct race race = {.f = f};
    pthread_t threads[2];
    play(f, "u", "i0");
    atomic_store(&race.acknowledged, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, &race), 0);
    }
    for (int i = 0; i < 30; i++) {
        fill(f, 2);
        assert_int_equal(flush(f), 0);
    }
    atomic_store(&race.stop, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(atomic_load(&race.unseen), 0);
    assert_true(wal_file_bytes(f) < 6 << 20);
}

/* --- tests: closing with work in hand --- */

static void test_close_answers_everything(void **state)
{
    struct store_fixture *f = *state;
    enum { N = 5 };
    int done[4 * N] = {0};
    struct store_batch batches[N];
    struct store_forget forgets[N];
    struct store_call calls[2 * N];
    memset(batches, 0, sizeof batches);
    memset(forgets, 0, sizeof forgets);
    memset(calls, 0, sizeof calls);
    for (int i = 0; i < N; i++) {
        batches[i].done = batch_done;
        batches[i].owner = &done[i];
        add(&batches[i], STORE_PLAY, clock_wall_ms(), "u", "a");
        f->store->ops->record(f->store, &batches[i]);
        forgets[i] = (struct store_forget){
            .key = key_of("u"), .user = slice_str("u"), .done = forget_done, .owner = &done[N + i]};
        f->store->ops->forget(f->store, &forgets[i]);
        calls[2 * i] = (struct store_call){.done = call_done, .owner = &done[2 * N + 2 * i]};
        f->store->ops->flush(f->store, &calls[2 * i]);
        calls[2 * i + 1] = (struct store_call){.done = call_done, .owner = &done[2 * N + 2 * i + 1]};
        f->store->ops->tick(f->store, &calls[2 * i + 1]);
    }
    close_store(f);
    for (int i = 0; i < 4 * N; i++) {
        assert_int_equal(done[i], 1);
    }
    for (int i = 0; i < N; i++) {
        buf_free(&batches[i].bytes);
    }
}

int main(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL); /* one test, or some: test_forget_* */
    log_set_level(getenv("UNSEEN_TEST_LOG") != NULL ? LOG_LEVEL_DEBUG : (enum log_level) - 1);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),
        TEST(test_recovery),
        TEST(test_forget_user),
        TEST(test_forget_items),
        TEST(test_forget_twice_at_once),
        TEST(test_forget_after_failed_commit),
        TEST(test_ids_never_again),
        TEST(test_ring_flush_of_nothing),
        TEST(test_ring_flush_without_a_free_slot),
        TEST(test_ring_flush_tries_again),
        TEST(test_tick_waits_for_retries),
        TEST(test_slot_that_is_not_emptied),
        TEST(test_loss_between_tries),
        TEST(test_slots_lowered),
        TEST(test_early_turns),
        TEST(test_no_memory_for_the_index),
        TEST(test_busy_after_a_minute),
        TEST(test_min_free),
        TEST(test_quarantine),
        TEST(test_large),
        TEST(test_check),
        TEST(test_lock),
        TEST(test_seed),
        TEST(test_foreign_and_newer),
        TEST(test_sweep),
        TEST(test_clock_believed_again),
        TEST(test_bulk),
        TEST(test_notes),
        TEST(test_many_notes),
        TEST(test_forget_noted),
        TEST(test_notes_fail),
        TEST(test_bulk_serving),
        TEST(test_bulk_deliveries),
        TEST(test_readers_race),
        TEST(test_wal_limit_with_a_shell),
        TEST(test_wal_limit_with_readers),
        TEST(test_close_answers_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
