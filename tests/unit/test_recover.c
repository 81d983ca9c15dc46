/* Plays that come in while what was staged is still read: they are durable at once, and nothing that was there before
 * is lost by it, whatever fails meanwhile. The recovery tells its progress on its own thread, which so waits until the
 * test has done something in between. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "store/bulk.h"
#include "tests/lib/store_calls.h"

/* Ids far apart make few rows a large slot, which threads read. */
enum { OLD = 3000, STEP = 64 };

struct between {
    struct store_fixture *f;
    void (*act)(struct between *b); /* at the first word of progress */
    const char *user;
    int told, recorded; /* recorded: the code */
    int stop;           /* at that word; 0: at none */
    uint64_t rows, of;
    bool lower; /* progress went back, or beyond its end */
};

static void record_one(struct between *b)
{
    b->recorded = record_at(b->f, STORE_PLAY, clock_wall_ms(), b->user, "between");
}

static bool on_progress(void *arg, uint64_t rows, uint64_t of)
{
    struct between *b = arg;
    b->lower = b->lower || rows < b->rows || rows > of || (b->told > 0 && of != b->of);
    b->rows = rows;
    b->of = of;
    if (b->told++ == 0 && b->act != NULL) {
        b->act(b);
    }
    return b->told != b->stop;
}

static int begin_store(struct store_fixture *f, struct err *err)
{
    return sqlite_store_begin(&f->cfg, &(struct sqlite_store_options){.vfs = VFS_FAULT_NAME}, &f->store, err);
}

static void begin(struct store_fixture *f)
{
    struct err err = {0};
    if (begin_store(f, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static void recover(struct store_fixture *f, struct between *b)
{
    struct err err = {0};
    b->f = f;
    if (f->store->ops->recover(f->store, on_progress, b, &err) < 0 ||
        f->store->ops->reader_open(f->store, &f->reader, &err) < 0) {
        fail_msg("%s", err.text);
    }
    assert_false(b->lower);
}

/* Of the last run: n rows in a table, item "i0" .. of users "u0" .. "u49". */
static void stage(struct store_fixture *f, int slot, int64_t first, int64_t n)
{
    char sql[512];
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i + 1 < %" PRId64 ") "
             "INSERT INTO staged_%d SELECT %" PRId64 " + i * %d, 1, 'u' || (i %% 50), 'i' || i, %" PRId64 " FROM c",
             n, slot, first, STEP, START);
    damage(f, "staging", sql);
}

static void stage_old(struct store_fixture *f)
{
    close_store(f);
    stage(f, 3, 2 * STORE_RANK_MAX, OLD);
}

static const char *wrong(struct store_fixture *f)
{
    static char text[64];
    for (int i = 0; i < OLD; i += 7) {
        char user[16], item[16];
        snprintf(user, sizeof user, "u%d", i % 50);
        snprintf(item, sizeof item, "i%d", i);
        if (!seen(f, user, item)) {
            snprintf(text, sizeof text, "%s lost %s", user, item);
            return text;
        }
        if (seen(f, user, "never")) {
            return "something was made up";
        }
    }
    return NULL;
}

static void expect_all(struct store_fixture *f)
{
    const char *why = wrong(f);
    if (why != NULL) {
        fail_msg("%s", why);
    }
}

/* --- plays are taken at once --- */

static void test_taken_while_it_recovers(void **state)
{
    struct store_fixture *f = *state;
    stage_old(f);
    begin(f);
    struct between b = {.act = record_one, .user = "u7"};
    recover(f, &b);
    assert_int_equal(b.recorded, 0);
    assert_true(b.told > 0);
    assert_true(seen(f, "u7", "between"));
    expect_all(f);
    assert_int_equal(stats(f).recovered_rows, OLD);
    assert_int_equal(flush(f), 0);
    assert_true(seen(f, "u7", "between"));
    expect_all(f);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM staged_3"), 0);
}

static void test_taken_before_it_recovers(void **state)
{
    struct store_fixture *f = *state;
    stage_old(f);
    begin(f);
    assert_int_equal(record_at(f, STORE_DELIVERY, clock_wall_ms(), "u8", "early"), 0);
    struct between b = {0};
    recover(f, &b);
    assert_true(seen(f, "u8", "early"));
    expect_all(f);
}

/* A crash meanwhile, again and again, until no slot is empty any more, and beyond. */
static void test_killed_while_it_recovers(void **state)
{
    struct store_fixture *f = *state;
    char user[16];
    enum { KILLS = 9 };
    stage_old(f);
    for (int i = 0; i < KILLS; i++) {
        begin(f);
        snprintf(user, sizeof user, "k%d", i);
        assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms(), user, "between"), 0);
        vfs_fault_freeze(true);
        f->store->ops->close(f->store);
        vfs_fault_heal();
    }
    begin(f);
    struct between b = {.act = record_one, .user = "last"};
    recover(f, &b);
    assert_int_equal(b.recorded, 0);
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < KILLS; i++) {
            snprintf(user, sizeof user, "k%d", i);
            assert_true(seen(f, user, "between"));
        }
        assert_true(seen(f, "last", "between"));
        expect_all(f);
        assert_int_equal(flush(f), 0);
    }
}

/* What is closed before it has recovered was not lost. */
static void test_closed_before_it_recovers(void **state)
{
    struct store_fixture *f = *state;
    stage_old(f);
    begin(f);
    assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms(), "u9", "early"), 0);
    f->store->ops->close(f->store);
    begin(f);
    struct between b = {0};
    recover(f, &b);
    assert_true(seen(f, "u9", "early"));
    expect_all(f);
}

/* What is stopped amid it neither: where threads read, and where they don't, at whichever batch. */
static void test_stopped_while_it_recovers(void **state)
{
    struct store_fixture *f = *state;
    char user[16];
    int stops = 0;
    stage_old(f);
    stage(f, 5, INT64_C(1) << 33, 20);
    for (int stopped = 1; stopped == 1; stops += stopped) {
        struct err err = {0};
        snprintf(user, sizeof user, "k%d", stops);
        struct between b = {.f = f, .act = record_one, .user = user, .stop = stops + 1};
        begin(f);
        int rc = f->store->ops->recover(f->store, on_progress, &b, &err);
        assert_int_equal(rc, err.code);
        assert_int_equal(b.recorded, 0);
        stopped = rc < 0;
        if (stopped) {
            assert_int_equal(rc, ERR_CLOSED);
            assert_int_equal(b.told, b.stop);
            f->store->ops->close(f->store);
        }
    }
    assert_true(stops > OLD / 512);
    struct err err = {0};
    assert_int_equal(f->store->ops->reader_open(f->store, &f->reader, &err), 0);
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i <= stops; i++) {
            snprintf(user, sizeof user, "k%d", i);
            assert_true(seen(f, user, "between"));
        }
        expect_all(f);
        assert_int_equal(flush(f), 0);
    }
}

/* --- order --- */

/* Deliveries of the last run are older than those that came in meanwhile. */
static void test_order_of_deliveries(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    struct store_view view;
    deliver(f, "u", "old");
    close_store(f);
    begin(f);
    assert_int_equal(record_at(f, STORE_DELIVERY, clock_wall_ms(), "u", "new"), 0);
    struct between b = {0};
    recover(f, &b);
    assert_int_equal(load(f, f->reader, "u", &view, &err), 0);
    assert_int_equal(view.n_deliveries, 2);
    assert_memory_equal(view.deliveries[0].item.data, "new", 3);
    assert_memory_equal(view.deliveries[1].item.data, "old", 3);
}

/* A forget after the start covers both. */
static void test_forget_of_both(void **state)
{
    struct store_fixture *f = *state;
    stage_old(f);
    begin(f);
    struct between b = {.act = record_one, .user = "u7"};
    recover(f, &b);
    assert_int_equal(forget(f, "u7", NULL), 1);
    assert_false(known(f, "u7"));
    close_store(f);
    open_store(f);
    assert_false(known(f, "u7"));
    assert_true(seen(f, "u8", "i8"));
}

/* --- memory --- */

static struct store_batch waiting;
static int answered;

/* What is not read yet counts: the batch waits. */
static void try_without_room(struct between *b)
{
    waiting = (struct store_batch){.owner = &answered, .done = batch_done};
    add(&waiting, STORE_PLAY, clock_wall_ms(), "u7", "between");
    b->f->store->ops->record(b->f->store, &waiting);
    struct store_stats now;
    do { /* until the stager has taken it, and holds it */
        b->f->store->ops->stats(b->f->store, &now);
    } while (now.queue_messages != 1);
    b->recorded = is_raised(&answered);
}

static void test_memory_of_what_is_not_read(void **state)
{
    struct store_fixture *f = *state;
    close_store(f);
    for (int slot = 1; slot < 4; slot++) { /* 20 MiB of ids */
        stage(f, slot, (slot + 1) * (INT64_C(1) << 33), 150000);
    }
    f->cfg.staging_memory = 16 << 20;
    begin(f);
    answered = 0;
    struct between b = {.act = try_without_room};
    recover(f, &b);
    assert_int_equal(b.recorded, 0);
    wait_flag(&answered); /* once a slot is flushed */
    assert_int_equal(waiting.err.code, 0);
    assert_true(seen(f, "u7", "between"));
    buf_free(&waiting.bytes);
}

/* --- what fails --- */

static void test_a_read_fails(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    int failed = 0;
    stage_old(f);
    for (uint64_t nth = 1; failed == 0 || err.code < 0; nth++) {
        err = (struct err){0};
        begin(f);
        assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms(), "u7", "before"), 0);
        rule(VFS_READ, "staging.db", nth, true, VFS_EIO);
        int rc = f->store->ops->recover(f->store, NULL, NULL, &err);
        assert_int_equal(rc, err.code);
        assert_true(rc == 0 || err.text[0] != '\0');
        failed += rc < 0;
        vfs_fault_heal();
        if (rc < 0) {
            f->store->ops->close(f->store);
        }
    }
    struct err opened = {0};
    assert_int_equal(f->store->ops->reader_open(f->store, &f->reader, &opened), 0);
    assert_true(failed > 0);
    assert_true(seen(f, "u7", "before"));
    expect_all(f);
}

/* The stager writes meanwhile, and sets them aside at the end. */
static void test_rows_that_cannot_be_read(void **state)
{
    struct store_fixture *f = *state;
    stage_old(f);
    damage(f, "staging", "UPDATE staged_3 SET kind = 9 WHERE id % 1000 = 0");
    damage(f, "staging", "UPDATE staged_3 SET user = x'' WHERE item = 'i1'");
    int64_t all = ask(f, "staging", "SELECT count(*) FROM staged_3");
    begin(f);
    struct between b = {.act = record_one, .user = "u7"};
    recover(f, &b);
    assert_int_equal(b.recorded, 0);
    int64_t aside = ask(f, "staging", "SELECT count(*) FROM set_aside");
    assert_true(aside > 1);
    assert_int_equal(stats(f).rows_set_aside, aside);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM staged_3"), all - aside);
    assert_true(seen(f, "u7", "between"));
    assert_true(seen(f, "u2", "i2"));
    assert_false(seen(f, "u1", "i1"));
}

/* All slots that the ring has have rows: the open one is read before plays are taken. */
static void test_no_slot_is_empty(void **state)
{
    struct store_fixture *f = *state;
    int slots = (int)f->cfg.slots;
    close_store(f);
    for (int slot = 0; slot < slots; slot++) {
        stage(f, slot, (slot + 1) * (INT64_C(1) << 33), slot == 3 ? OLD : 10);
    }
    begin(f);
    struct between b = {.act = record_one, .user = "u7"};
    recover(f, &b);
    assert_int_equal(b.recorded, 0);
    assert_true(seen(f, "u7", "between"));
    expect_all(f);
    assert_int_equal(stats(f).recovered_rows, OLD + 10 * (slots - 1));
    assert_int_equal(flush(f), 0);
    assert_true(seen(f, "u7", "between"));
    expect_all(f);
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(test_taken_while_it_recovers),
        TEST(test_taken_before_it_recovers),
        TEST(test_killed_while_it_recovers),
        TEST(test_closed_before_it_recovers),
        TEST(test_stopped_while_it_recovers),
        TEST(test_order_of_deliveries),
        TEST(test_forget_of_both),
        TEST(test_memory_of_what_is_not_read),
        TEST(test_a_read_fails),
        TEST(test_rows_that_cannot_be_read),
        TEST(test_no_slot_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
