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
#include "tests/lib/random.h"
#include "tests/lib/rounds.h"
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

/* While the open slot itself is read, a play waits until it is. */
static bool answers(struct store_fixture *f)
{
    struct store_ring ring;
    f->store->ring->look(f->store, &ring);
    return ring.slots[ring.open].state == SLOT_OPEN;
}

static void record_one(struct between *b)
{
    b->recorded = answers(b->f) ? record_at(b->f, STORE_PLAY, clock_wall_ms(), b->user, "between") : 1;
}

static struct store_batch waiting;
static int answered;

static void hand_in(struct between *b)
{
    answered = 0;
    waiting = (struct store_batch){.owner = &answered, .done = batch_done};
    add(&waiting, STORE_PLAY, clock_wall_ms(), b->user, "between");
    b->f->store->ops->record(b->f->store, &waiting);
}

static void expect_answer(int code)
{
    wait_flag(&answered);
    assert_int_equal(waiting.err.code, code);
    buf_free(&waiting.bytes);
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
    bool taken[KILLS];
    stage_old(f);
    for (int i = 0; i < KILLS; i++) {
        begin(f);
        snprintf(user, sizeof user, "k%d", i);
        struct between b = {.f = f, .user = user};
        taken[i] = answers(f);
        if (taken[i]) {
            record_one(&b);
            assert_int_equal(b.recorded, 0);
        } else {
            hand_in(&b);
        }
        vfs_fault_freeze(true);
        f->store->ops->close(f->store);
        vfs_fault_heal();
        if (!taken[i]) {
            expect_answer(ERR_CLOSED);
        }
    }
    assert_true(taken[0] && !taken[KILLS - 1]);
    begin(f);
    struct between b = {.act = hand_in, .user = "last"};
    recover(f, &b);
    expect_answer(0);
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i < KILLS; i++) {
            snprintf(user, sizeof user, "k%d", i);
            assert_int_equal(seen(f, user, "between"), taken[i]);
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
    bool taken[OLD] = {false};
    stage_old(f);
    stage(f, 5, INT64_C(1) << 33, 20);
    for (int stopped = 1; stopped == 1; stops += stopped) {
        struct err err = {0};
        snprintf(user, sizeof user, "k%d", stops);
        struct between b = {.f = f, .act = record_one, .user = user, .stop = 1 + stops * (int)test_stride()};
        begin(f);
        int rc = f->store->ops->recover(f->store, on_progress, &b, &err);
        assert_int_equal(rc, err.code);
        taken[stops] = b.recorded == 0;
        assert_true(taken[stops] || b.recorded == 1);
        stopped = rc < 0;
        if (stopped) {
            assert_int_equal(rc, ERR_CLOSED);
            assert_int_equal(b.told, b.stop);
            f->store->ops->close(f->store);
        }
    }
    assert_true(stops > OLD / 512 / (int)test_stride());
    struct err err = {0};
    assert_int_equal(f->store->ops->reader_open(f->store, &f->reader, &err), 0);
    for (int again = 0; again < 2; again++) {
        for (int i = 0; i <= stops; i++) {
            snprintf(user, sizeof user, "k%d", i);
            assert_int_equal(seen(f, user, "between"), taken[i]);
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

/* A start that may hold few rows at once. */
enum { SMALL = 256 * 1024, USERS = 40, ITEMS = 60 };

struct life {
    struct store_fixture *f;
    int told, stop; /* stop: the word at which it is killed; 0: at none */
    uint64_t most;  /* of memory that closed slots took */
    int recorded;   /* the code of a play at the first word */
};

static void note_memory(struct life *life)
{
    struct store_ring ring;
    life->f->store->ring->look(life->f->store, &ring);
    uint64_t closed = ring.memory;
    for (int i = 0; i < ring.n_slots; i++) {
        closed -= ring.slots[i].state == SLOT_OPEN ? ring.slots[i].bytes : 0;
    }
    life->most = closed > life->most ? closed : life->most;
}

static bool on_life(void *arg, uint64_t rows, uint64_t of)
{
    struct life *life = arg;
    assert_true(rows <= of);
    note_memory(life);
    if (life->told == 0) {
        struct between b = {.f = life->f, .user = "x"};
        record_one(&b);
        life->recorded = b.recorded;
    }
    clock_test_advance(10 * 1000); /* for what is tried again */
    if (++life->told == life->stop) {
        vfs_fault_freeze(true);
        return false;
    }
    return true;
}

static struct vfs_rule begin_rule; /* from then on; without an operation: none */

/* Returns whether it has recovered; else it was killed. */
static bool live(struct life *life)
{
    struct store_fixture *f = life->f;
    struct err err = {0};
    begin(f);
    if (begin_rule.ops != 0) {
        vfs_fault_add(&begin_rule);
    }
    int rc = f->store->ops->recover(f->store, on_life, life, &err);
    if (rc < 0) {
        assert_true(rc == ERR_CLOSED || begin_rule.ops != 0);
        f->store->ops->close(f->store);
        f->store = NULL;
    }
    vfs_fault_heal();
    if (rc == 0 && f->store->ops->reader_open(f->store, &f->reader, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return rc == 0;
}

static int64_t late_ms; /* of plays that are past retention */

static void draw(struct store_fixture *f, uint64_t *random, int n)
{
    char user[16], item[16];
    for (int i = 0; i < n; i++) {
        int done = 0;
        struct store_batch batch = {.done = batch_done, .owner = &done};
        for (int k = 0; k < 50; k++) {
            uint64_t r = random_next(random);
            snprintf(user, sizeof user, "u%d", (int)(r % USERS));
            snprintf(item, sizeof item, "i%d", (int)(r / USERS % ITEMS));
            int64_t at = r >> 60 == 0 ? late_ms : START - (int64_t)(r >> 40 & 1) * 40 * DAY_MS;
            add(&batch, r >> 50 & 1 ? STORE_DELIVERY : STORE_PLAY, at, user, item);
        }
        f->store->ops->record(f->store, &batch);
        wait_flag(&done);
        assert_int_equal(batch.err.code, 0);
        buf_free(&batch.bytes);
        if (i % 4 == 0) {
            uint64_t r = random_next(random);
            snprintf(user, sizeof user, "u%d", (int)(r % USERS));
            snprintf(item, sizeof item, "i%d", (int)(r / USERS % ITEMS));
            assert_true(forget(f, user, r >> 40 & 3 ? item : NULL) >= 0);
        }
    }
}

/* Some of it in history, the rest in some tables of three slots, or of all. */
static void draw_folder(struct store_fixture *f, uint64_t seed, int slots)
{
    uint64_t random = seed;
    late_ms = START - 300 * (int64_t)DAY_MS;
    draw(f, &random, 20);
    assert_int_equal(flush(f), 0);
    draw(f, &random, 100);
    kill_store(f);
    int64_t from = ask(f, "staging", "SELECT min(id) FROM staged_1");
    for (int i = 0; i < slots; i++) {
        char sql[256];
        int slot = (i + 2) % 6;
        if (slot == 1) {
            continue; /* the last rows stay where they are */
        }
        snprintf(sql, sizeof sql,
                 "INSERT INTO staged_%d SELECT * FROM staged_1 WHERE id < %" PRId64 "; DELETE FROM staged_1 WHERE id < "
                 "%" PRId64,
                 slot, from + (i + 1) * 4500 / slots, from + (i + 1) * 4500 / slots);
        damage(f, "staging", sql);
    }
}

static struct store_fixture *copy_of(struct store_fixture *f)
{
    struct store_fixture *copy = store_fixture_new("copy");
    static const char *const names[] = {"staging.db", "staging.db-wal", "history.db", "history.db-wal"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        copy_file(f->cfg.data, names[i], copy->cfg.data, names[i]);
    }
    return copy;
}

static void compare_user(struct store_fixture *f, struct store_fixture *copy, const char *user)
{
    struct store_view a, b;
    struct err err = {0};
    assert_int_equal(load(f, f->reader, user, &a, &err), 0);
    assert_int_equal(load(copy, copy->reader, user, &b, &err), 0);
    assert_int_equal(a.known, b.known);
    for (int i = 0; i < ITEMS; i++) {
        char item[16];
        snprintf(item, sizeof item, "i%d", i);
        if (in_view(&a, item) != in_view(&b, item)) {
            fail_msg("%s %s: %d, expected %d", user, item, in_view(&a, item), in_view(&b, item));
        }
    }
    assert_int_equal(a.n_deliveries, b.n_deliveries);
    for (size_t i = 0; i < a.n_deliveries; i++) {
        assert_int_equal(a.deliveries[i].stamp, b.deliveries[i].stamp);
        assert_int_equal(a.deliveries[i].hash, b.deliveries[i].hash);
    }
}

static void compare(struct store_fixture *f, struct store_fixture *copy)
{
    for (int i = 0; i < USERS; i++) {
        char user[16];
        snprintf(user, sizeof user, "u%d", i);
        compare_user(f, copy, user);
    }
}

/* Of f, once it has recovered in little memory, against its copy, which had enough. */
static void expect_same(struct store_fixture *f, struct store_fixture *copy)
{
    assert_int_equal(flush(copy), 0); /* what is past retention shows until it is flushed */
    assert_int_equal(flush(f), 0);
    compare(f, copy);
    close_store(f);
    open_store(f);
    compare(f, copy);
    store_fixture_free(copy);
    assert_true(stats(f).disk_bytes > 0);
    close_store(f);
    expect_problem(f, NULL);
}

static void test_little_memory(void **state)
{
    struct store_fixture *f = *state;
    draw_folder(f, 1, 3);
    struct store_fixture *copy = copy_of(f);
    int64_t rows = ask(f, "staging", "SELECT count(*) FROM staged");
    open_store(copy);
    f->cfg.staging_memory = SMALL;
    struct life life = {.f = f};
    assert_true(live(&life));
    assert_true(stats(f).flushes > 2);
    assert_int_equal(stats(f).recovered_rows, rows);
    assert_true(ask(f, "staging", "SELECT count(*) FROM staged") < rows / 2);
    expect_same(f, copy);
}

/* No slot is empty: the open one is flushed in parts, too, before plays are taken. */
static void test_little_memory_and_no_slot_empty(void **state)
{
    struct store_fixture *f = *state;
    draw_folder(f, 2, 6);
    struct store_fixture *copy = copy_of(f);
    open_store(copy);
    f->cfg.staging_memory = SMALL / 2;
    struct life life = {.f = f};
    assert_true(live(&life));
    assert_true(stats(f).flushes > 2);
    expect_same(f, copy);
}

/* Killed at one word of progress after the other, in each life at a later one. */
static void test_little_memory_and_kills(void **state)
{
    struct store_fixture *f = *state;
    draw_folder(f, 3, 3);
    struct store_fixture *copy = copy_of(f);
    open_store(copy);
    f->cfg.staging_memory = SMALL;
    struct life life = {.f = f};
    do {
        life.told = 0;
        life.stop++;
    } while (!live(&life));
    assert_true(life.stop > 5);
    expect_same(f, copy);
}

/* Whatever is written fails once, or from then on until it is killed. */
static void test_little_memory_and_errors(void **state)
{
    struct store_fixture *f = *state;
    draw_folder(f, 4, 2);
    struct store_fixture *copy = copy_of(f);
    open_store(copy);
    f->cfg.staging_memory = SMALL;
    struct life life = {.f = f};
    for (uint64_t nth = 1; nth < 400; nth += nth / 4 + 1) {
        life.told = 0;
        life.stop = 12;
        begin_rule = (struct vfs_rule){VFS_CHANGE, nth % 2 ? "history" : "", nth, nth % 3 == 0, VFS_FULL};
        if (live(&life)) {
            close_store(f);
        }
    }
    begin_rule = (struct vfs_rule){0};
    life.told = life.stop = 0;
    assert_true(live(&life));
    expect_same(f, copy);
}

/* A command does not wait for a disk with more room. */
static void test_a_command_ends_where_nothing_can_be_flushed(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    draw_folder(f, 3, 3);
    f->cfg.staging_memory = SMALL / 2;
    begin(f);
    const struct vfs_rule full = {VFS_CHANGE, "history", 1, true, VFS_FULL};
    vfs_fault_add(&full);
    assert_int_equal(f->store->ops->recover(f->store, NULL, NULL, &err), ERR_IO);
    assert_non_null(strstr(err.text, "can't be flushed: "));
    f->store->ops->close(f->store);
    f->store = NULL;
    vfs_fault_heal();
    open_store(f);
}

/* Plays are taken at once, however much was staged, as long as they take less than half of the memory. */
static void test_plays_beside_little_memory(void **state)
{
    struct store_fixture *f = *state;
    close_store(f);
    for (int slot = 1; slot < 4; slot++) { /* 5.5 MiB of ids */
        stage(f, slot, (slot + 1) * (INT64_C(1) << 33), 40000);
    }
    f->cfg.staging_memory = 4 << 20;
    struct life life = {.f = f};
    assert_true(live(&life));
    assert_int_equal(life.recorded, 0);
    assert_true(life.most < (2 << 20) + (1 << 20)); /* an index grows by 1 MiB at once */
    assert_true(stats(f).flushes > 0);
    assert_true(seen(f, "x", "between"));
    assert_true(seen(f, "u7", "i7") && seen(f, "u49", "i39999"));
}

/* --- what fails --- */

static void test_a_read_fails(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    int failed = 0;
    stage_old(f);
    for (uint64_t nth = 1; failed == 0 || err.code < 0; nth += test_stride()) {
        err = (struct err){0};
        begin(f);
        if (answers(f)) {
            assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms(), "u7", "before"), 0);
        }
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
    damage(f, "staging", "UPDATE staged_3 SET kind = 8 WHERE id % 1000 = 0");
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
    struct between b = {.act = hand_in, .user = "u7"};
    recover(f, &b);
    expect_answer(0);
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
        TEST(test_little_memory),
        TEST(test_little_memory_and_no_slot_empty),
        TEST(test_little_memory_and_kills),
        TEST(test_little_memory_and_errors),
        TEST(test_a_command_ends_where_nothing_can_be_flushed),
        TEST(test_plays_beside_little_memory),
        TEST(test_a_read_fails),
        TEST(test_rows_that_cannot_be_read),
        TEST(test_no_slot_is_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
