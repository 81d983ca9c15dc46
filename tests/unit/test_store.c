/* The embedded store through its seam: a real store in a folder of its own, the test's clock, and a file system that
 * fails on demand. What takes several steps of time or crashes stands in tests/scenario; here is what needs a closer
 * look: what is found afterwards in the files, and calls that must be answered. Its ring, its readers, and what comes
 * from elsewhere have tests of their own, test_store_*. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "store/ring.h"
#include "store/sqlite/state.h"
#include "tests/lib/store_calls.h"

/* The machine stops while all files are open: the store goes on in a copy of what they hold at this moment. */
static void crash_into_copy(struct store_fixture *f, char first[CONFIG_TEXT])
{
    static const char *const files[] = {"history.db", "history.db-wal", "staging.db", "staging.db-wal"};
    snprintf(first, CONFIG_TEXT, "%s", f->cfg.data);
    char copy[] = "/tmp/unseen-test-store.XXXXXX";
    assert_non_null(mkdtemp(copy));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        copy_file(first, files[i], copy, files[i]);
    }
    kill_store(f);
    snprintf(f->cfg.data, sizeof f->cfg.data, "%s", copy);
    open_store(f);
}

/* --- tests: what is found in the files --- */

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

static void test_check(void **state)
{
    static const struct {
        const char *file, *sql, *undo, *words;
    } cases[] = {
        {"history", "UPDATE plays_202611 SET counted = items + 1", "UPDATE plays_202611 SET counted = NULL",
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
    assert_int_equal(f->store->ops->publish(f->store, "127.0.0.1:1", &err), 0);
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

static bool doubted(struct store_fixture *f)
{
    struct store_clock clock;
    f->store->ops->clock(f->store, &clock);
    return clock.doubted;
}

static int set_back(struct store_fixture *f, struct err *err)
{
    int done = 0;
    struct store_clock_change change = {.call = {.done = call_done, .owner = &done}, .set_back = true};
    f->store->ops->clock_change(f->store, &change);
    wait_flag(&done);
    *err = change.call.err;
    return err->code;
}

/* A time that was wrong, and was taken back, is not met again at the next start. What isn't durable isn't believed. */
static void test_clock_set_back(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    struct store_clock clock;
    clock_test_jump(-10 * (int64_t)DAY_MS);
    advance(f, 1000);
    assert_true(doubted(f));
    for (int hour = 0; hour < 25; hour++) {
        advance(f, HOUR_MS);
    }
    assert_true(doubted(f));
    rule(VFS_CHANGE, "staging", 1, true, VFS_EIO);
    assert_int_equal(set_back(f, &err), ERR_IO);
    assert_true(doubted(f));
    vfs_fault_heal();
    assert_int_equal(set_back(f, &err), 0);
    assert_false(doubted(f));
    kill_store(f);
    open_store(f);
    f->store->ops->clock(f->store, &clock);
    assert_false(clock.doubted);
    assert_int_equal(clock.newest_ms, clock_wall_ms());
    assert_int_equal(set_back(f, &err), ERR_INVALID);
}

/* After a crash nothing is stamped with the month before: a new one is written down at once. */
static void test_clock_kept_at_a_new_month(void **state)
{
    struct store_fixture *f = *state;
    int64_t december = month_start_ms(month_make(2026, 12)), later, earlier;
    advance(f, december - 1000 - clock_wall_ms());
    advance(f, 1001);
    kill_store(f);
    clock_test_jump(-9000 * (int64_t)DAY_MS);
    open_store(f);
    f->store->ops->now(f->store, &later, &earlier);
    assert_true(later >= december);
    assert_true(earlier < december - 8999 * (int64_t)DAY_MS);
}

/* --- tests: closing with work in hand --- */

/* It was answered; that it goes on its thread says behind that. */
static void expect_no_stall(struct store_fixture *f)
{
    struct err err = {0};
    while (f->store->ops->stalled(f->store, &err) < 0 || f->store->ops->forgets_stalled(f->store, &err) < 0) {
        sched_yield();
    }
}

/* As if the thread had been before the disk for that long. */
static void age(struct heartbeat *thread)
{
    atomic_fetch_sub(&thread->at_us, STORE_STALLED_MS * INT64_C(1000));
}

static struct store_forget forget_of(const char *user, int *done)
{
    return (struct store_forget){
        .key = key_of(user), .user = slice_str(user), .first_month = INT_MIN, .done = forget_done, .owner = done};
}

/* A commit that the disk doesn't end. */
static void test_stalled(void **state)
{
    struct store_fixture *f = *state;
    struct store_batch batch = {.done = batch_done};
    struct err err = {0};
    int done = 0;
    batch.owner = &done;
    add(&batch, STORE_PLAY, START, "u", "a");
    rule(VFS_SYNC, "staging", 1, false, VFS_HOLD);
    f->store->ops->record(f->store, &batch);
    vfs_fault_wait_held();
    assert_int_equal(f->store->ops->stalled(f->store, &err), 0);
    clock_test_advance(STORE_STALLED_MS); /* which is no matter of the disk */
    assert_int_equal(f->store->ops->stalled(f->store, &err), 0);
    age(&((struct sqlite_store *)f->store)->stager.queue.task.heartbeat);
    assert_int_equal(f->store->ops->stalled(f->store, &err), ERR_LATE);
    assert_non_null(strstr(err.text, "has not answered for 10 s"));
    assert_int_equal(f->store->ops->forgets_stalled(f->store, &err), 0);
    vfs_fault_release();
    wait_flag(&done);
    assert_int_equal(batch.err.code, 0);
    expect_no_stall(f);
    buf_free(&batch.bytes);
}

/* A forget reads history before it changes anything: what comes behind it waits for that. */
static void test_stalled_by_a_read(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    play(f, "u", "a");
    assert_int_equal(flush(f), 0);
    close_store(f);
    open_store(f);
    int done = 0;
    struct store_forget forget = forget_of("u", &done);
    rule(VFS_READ, "history", 1, true, VFS_HOLD);
    f->store->ops->forget(f->store, &forget);
    vfs_fault_wait_held();
    assert_int_equal(f->store->ops->stalled(f->store, &err), 0);
    age(&((struct sqlite_store *)f->store)->stager.queue.task.heartbeat);
    assert_int_equal(f->store->ops->stalled(f->store, &err), ERR_LATE);
    vfs_fault_heal();
    wait_flag(&done);
    assert_int_equal(forget.err.code, 0);
    assert_int_equal(forget.answer, 1);
    expect_no_stall(f);
}

/* History's half hangs: other writes go on, until one comes that must not pass a second forget of that user. */
static void test_stalled_forgets(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    struct heartbeat *historian = &((struct sqlite_store *)f->store)->historian.queue.task.heartbeat;
    play(f, "u", "a");
    assert_int_equal(flush(f), 0);
    int done = 0, again = 0, behind = 0;
    struct store_forget first = forget_of("u", &done), second = forget_of("u", &again);
    struct store_batch batch = {.done = batch_done, .owner = &behind};
    rule(VFS_SYNC, "history", 1, true, VFS_HOLD);
    f->store->ops->forget(f->store, &first);
    vfs_fault_wait_held();
    age(historian);
    assert_int_equal(f->store->ops->forgets_stalled(f->store, &err), ERR_LATE);
    play(f, "v", "b");
    assert_int_equal(f->store->ops->stalled(f->store, &err), 0);
    f->store->ops->forget(f->store, &second);
    add(&batch, STORE_PLAY, START, "v", "c");
    f->store->ops->record(f->store, &batch);
    while (f->store->ops->stalled(f->store, &err) == 0) {
        sched_yield();
    }
    vfs_fault_heal();
    wait_flag(&done);
    wait_flag(&again);
    wait_flag(&behind);
    assert_int_equal(first.err.code + second.err.code + batch.err.code, 0);
    expect_no_stall(f);
    assert_true(seen(f, "v", "c"));
    buf_free(&batch.bytes);
}

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
        f->store->ring->flush(f->store, &calls[2 * i]);
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
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(test_recovery),
        TEST(test_forget_user),
        TEST(test_forget_items),
        TEST(test_forget_twice_at_once),
        TEST(test_forget_after_failed_commit),
        TEST(test_ids_never_again),
        TEST(test_quarantine),
        TEST(test_check),
        TEST(test_lock),
        TEST(test_seed),
        TEST(test_foreign_and_newer),
        TEST(test_sweep),
        TEST(test_clock_set_back),
        TEST(test_clock_kept_at_a_new_month),
        TEST(test_stalled),
        TEST(test_stalled_by_a_read),
        TEST(test_stalled_forgets),
        TEST(test_close_answers_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
