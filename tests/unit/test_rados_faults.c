/* Every operation of the cluster, and every allocation, fails once: of what each call does, the first, the second, and
 * so on until there are no more. Whatever failed, the call ends; nothing acknowledged is lost, no forgotten user is
 * back, and no memory stays claimed. A ledger of three answers knows that: an item is there, isn't, or may be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "store/codec/user_snapshot.h"
#include "store/rados/merge.h"
#include "store/rados/night.h"
#include "store/rados/rados_store.h"
#include "tests/lib/alloc.h"
#include "tests/lib/pool_fixture.h"

enum { WAITING = 8 };

/* --- allocations --- */

static _Atomic int left; /* before one fails; below 0: none does */

static bool counted(enum alloc_by by, size_t n, size_t size)
{
    (void)by, (void)n, (void)size;
    return !memory_pool_allocates() && atomic_load(&left) >= 0 && atomic_fetch_sub(&left, 1) == 0;
}

/* --- what is done --- */

static int stated(struct store_fixture *f, const char *item)
{
    struct slice id = slice_str(item);
    uint64_t hash = hash_id(SEED, id);
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    int in_vain = atomic_exchange(&left, -1); /* the batch is the caller's */
    assert_int_equal(store_batch_add(&batch, STORE_PLAY, clock_wall_ms() + 1000, STORE_STATED, key_of("u"),
                                     slice_str("u"), &id, &hash, 1),
                     0);
    atomic_store(&left, in_vain);
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    buf_free(&batch.bytes);
    return batch.err.code;
}

static int stamped(struct store_fixture *f, const char *item)
{
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    int in_vain = atomic_exchange(&left, -1);
    add(&batch, STORE_PLAY, clock_wall_ms(), "u", item);
    atomic_store(&left, in_vain);
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    buf_free(&batch.bytes);
    return batch.err.code;
}

struct merging {
    int done, code;
};

static void on_merged(void *arg, const struct merge_outcome *outcome)
{
    struct merging *m = arg;
    struct store_call raise = {.owner = &m->done};
    m->code = outcome->err.code;
    call_done(&raise);
}

static int merge(struct store_fixture *f, bool night)
{
    struct merging m = {0};
    int code = merge_start((struct rados_store *)f->store, key_of("u"), slice_str("u"), night, on_merged, &m);
    if (code == 0) {
        wait_flag(&m.done);
        code = m.code;
    }
    return code;
}

static struct buf packed; /* of a user with the item "i" */

static void pack(void)
{
    const struct store_play play = {hash_id(SEED, slice_str("i")), month_of_ms(START)};
    const struct user_snapshot snapshot = {.key = key_of("u"),
                                           .user = slice_str("u"),
                                           .last_month = play.month,
                                           .forgotten_ms = START,
                                           .plays = &play,
                                           .n_plays = 1};
    packed.len = 0;
    assert_int_equal(user_snapshot_encode(&snapshot, &packed), 0);
}

static int import(struct store_fixture *f)
{
    int done = 0;
    uint8_t verdict = 0;
    struct slice snapshot = buf_slice(&packed);
    struct store_import in = {
        .call = {.done = call_done, .owner = &done}, .snapshots = &snapshot, .n = 1, .verdicts = &verdict};
    f->store->ops->import(f->store, &in);
    wait_flag(&done);
    assert_int_equal(verdict != 0, in.call.err.code == 0);
    return in.call.err.code;
}

static int question(struct store_fixture *f)
{
    struct store_view view;
    struct err err = {0};
    int code = load(f, f->reader, "u", &view, &err);
    assert_true(code == 0 || err.text[0] != '\0');
    if (code == 0) { /* an answer is a right one */
        assert_true(in_view(&view, "merged") && in_view(&view, "waiting"));
        assert_false(in_view(&view, "unseen") || in_view(&view, "never"));
    }
    return code;
}

static void see_nothing(void *arg, const struct filter_part *part, uint32_t before, const uint32_t *positions,
                        uint32_t n)
{
    (void)arg, (void)part, (void)before, (void)positions, (void)n;
}

static void no_month(void *arg, int month, bool good)
{
    (void)arg, (void)month, (void)good;
}

static int scan(struct store_fixture *f)
{
    const struct store_scan nothing = {.see = see_nothing, .month = no_month};
    struct store_view view;
    struct err err = {0};
    int code = f->store->ops->scan(f->reader, key_of("u"), slice_str("u"), INT_MIN, &nothing, &view, &err);
    assert_true(code == 0 || err.text[0] != '\0');
    assert_true(code != 0 || (view.known && view.n_months > 0));
    return code;
}

static int record(struct store_fixture *f)
{
    return stamped(f, "new");
}

static int record_stated(struct store_fixture *f)
{
    return stated(f, "new");
}

/* Of plays that have waited long enough, or it would leave so few. */
static int merge_by_day(struct store_fixture *f)
{
    const int64_t slot_length_ms = f->cfg.slot_length_ms;
    f->cfg.slot_length_ms = -1;
    int code = merge(f, false);
    f->cfg.slot_length_ms = slot_length_ms;
    return code;
}

static int merge_by_night(struct store_fixture *f)
{
    return merge(f, true);
}

static int unsee(struct store_fixture *f)
{
    int64_t n = forget(f, "u", "merged");
    return n < 0 ? (int)n : 0;
}

static int forget_user(struct store_fixture *f)
{
    int64_t n = forget(f, "u", NULL);
    return n < 0 ? (int)n : 0;
}

/* One that ends well has left its mark at every piece. */
static int walk(struct store_fixture *f)
{
    struct err err = {0};
    char name[NIGHT_NAME];
    for (size_t i = 0; i < NIGHT_PIECES; i++) {
        night_piece_name(i, name);
        memory_pool_drop(one_pool, name);
    }
    int code = rados_store_walk(f->store, &err);
    for (size_t i = 0; i < NIGHT_PIECES && code == 0; i++) {
        night_piece_name(i, name);
        assert_int_equal(memory_pool_count(one_pool, name, "done"), 1);
    }
    return code;
}

/* What a call that ended well has changed, and one that failed may have. */
enum change { NOTHING, PLAYS_NEW, PLAYS_I, UNSEES, FORGETS };

static const struct work {
    const char *name;
    int (*run)(struct store_fixture *f);
    enum change change;
} works[] = {
    {"question", question, NOTHING},  {"scan", scan, NOTHING},
    {"record", record, PLAYS_NEW},    {"record stated", record_stated, PLAYS_NEW},
    {"merge", merge_by_day, NOTHING}, {"merge by night", merge_by_night, NOTHING},
    {"un-see", unsee, UNSEES},        {"forget", forget_user, FORGETS},
    {"import", import, PLAYS_I},      {"walk", walk, NOTHING},
};
enum { WORKS = sizeof works / sizeof *works };

/* What stands before each try. */
static void prepare(struct store_fixture *f)
{
    memory_pool_drop(one_pool, "u.u");
    assert_int_equal(stamped(f, "gone"), 0);
    assert_int_equal(forget(f, "u", NULL), 1);
    assert_int_equal(stamped(f, "merged"), 0);
    assert_int_equal(stamped(f, "unseen"), 0);
    while (merge(f, true) == ERR_BUSY) { /* one that enough plays have begun was faster */
    }
    assert_int_equal(forget(f, "u", "unseen"), 1);
    for (int i = 0; i < WAITING; i++) {
        char item[16];
        snprintf(item, sizeof item, "w%d", i);
        assert_int_equal(stamped(f, item), 0);
    }
    assert_int_equal(stamped(f, "waiting"), 0);
    assert_int_equal(record_at(f, STORE_DELIVERY, START, "u", "delivered"), 0);
}

static void check(struct store_fixture *f, const struct work *w, int code, const char *what, unsigned nth)
{
    struct store_view view;
    struct err err = {0};
    if (load(f, f->reader, "u", &view, &err) < 0) {
        fail_msg("%s, %s %u: %s", w->name, what, nth, err.text);
    }
    bool forgotten = w->change == FORGETS && code == 0, may_be = w->change == FORGETS && !view.known;
    bool wrong = forgotten && view.known;
    if (!forgotten && !may_be) {
        wrong = !view.known || !in_view(&view, "waiting") || !in_view(&view, "delivered") || in_view(&view, "unseen") ||
                in_view(&view, "gone") || in_view(&view, "never");
        for (int i = 0; i < WAITING && !wrong; i++) {
            char item[16];
            snprintf(item, sizeof item, "w%d", i);
            wrong = !in_view(&view, item);
        }
        wrong = wrong || (w->change != UNSEES && !in_view(&view, "merged")) ||
                (w->change == UNSEES && code == 0 && in_view(&view, "merged")) ||
                (w->change == PLAYS_NEW && code == 0 && !in_view(&view, "new")) ||
                (w->change != PLAYS_NEW && in_view(&view, "new")) ||
                (w->change == PLAYS_I && code == 0 && !in_view(&view, "i")) ||
                (w->change != PLAYS_I && in_view(&view, "i"));
    }
    if (wrong) {
        fail_msg("%s, %s %u: answered %d, and the ledger doesn't hold", w->name, what, nth, code);
    }
    f->store->ops->rest(f->reader);
    while (stats(f).queue_messages > 0 || stats(f).user_bytes > 0 || stats(f).staged_bytes > 0) {
        call(f, f->store->ops->tick, NULL); /* what ends behind an answer */
    }
}

/* --- operations --- */

static void each_operation_fails(void **state)
{
    static const struct {
        const char *name;
        unsigned kinds;
        enum cluster_result result;
        bool carried_out;
    } faults[] = {
        {"failed read", MEMORY_POOL_READS, CLUSTER_FAILED, false},
        {"late read", MEMORY_POOL_READS, CLUSTER_LATE, false},
        {"read without memory", MEMORY_POOL_READS, CLUSTER_NOMEM, false},
        {"failed write", MEMORY_POOL_WRITES, CLUSTER_FAILED, false},
        {"late write", MEMORY_POOL_WRITES, CLUSTER_LATE, false},
        {"late write that was carried out", MEMORY_POOL_WRITES, CLUSTER_LATE, true},
        {"failed write that was carried out", MEMORY_POOL_WRITES, CLUSTER_FAILED, true},
        {"write that another was faster with", MEMORY_POOL_WRITES, CLUSTER_DIFFERS, false},
        {"full", MEMORY_POOL_WRITES, CLUSTER_FULL, false},
    };
    struct store_fixture *f = *state;
    pack();
    for (int i = 0; i < WORKS; i++) {
        for (size_t j = 0; j < sizeof faults / sizeof *faults; j++) {
            bool more = true;
            for (unsigned nth = 1; more && nth < 20; nth++) {
                prepare(f);
                uint64_t before = memory_pool_operations(one_pool, faults[j].kinds);
                memory_pool_fault(one_pool, &(struct memory_pool_fault){.kinds = faults[j].kinds,
                                                                        .object = "u.u",
                                                                        .nth = nth,
                                                                        .result = faults[j].result,
                                                                        .carried_out = faults[j].carried_out});
                int code = works[i].run(f);
                memory_pool_fault(one_pool, NULL);
                more = code < 0 || memory_pool_operations(one_pool, faults[j].kinds) - before >= nth;
                check(f, &works[i], code, faults[j].name, nth);
                if (works[i].run == walk) {
                    more = more && nth < 3; /* its other operations are on other objects */
                }
            }
        }
    }
    buf_free(&packed);
}

/* --- allocations --- */

static void each_allocation_fails(void **state)
{
    struct store_fixture *f = *state;
    bool (*before)(enum alloc_by, size_t, size_t) = atomic_load(&alloc_fails);
    pack();
    for (int i = 0; i < WORKS; i++) {
        unsigned failed = 0;
        for (int nth = 0, behind = 0; behind < 2; nth++) {
            prepare(f);
            atomic_store(&left, nth);
            atomic_store(&alloc_fails, counted);
            int code = works[i].run(f);
            bool used = atomic_exchange(&left, -1) < 0;
            atomic_store(&alloc_fails, before);
            behind += !used;
            failed += code < 0;
            check(f, &works[i], code, "allocation", (unsigned)nth);
        }
        assert_true(failed > 0);
    }
    buf_free(&packed);
}

/* --- a pool that is made, and opened --- */

static const struct way {
    const char *name;
    unsigned kinds;
    enum cluster_result result;
    bool carried_out;
} ways[] = {
    {"late read", MEMORY_POOL_READS, CLUSTER_LATE, false},
    {"failed read", MEMORY_POOL_READS, CLUSTER_FAILED, false},
    {"read without memory", MEMORY_POOL_READS, CLUSTER_NOMEM, false},
    {"read that is not allowed", MEMORY_POOL_READS, CLUSTER_DENIED, false},
    {"late write", MEMORY_POOL_WRITES, CLUSTER_LATE, false},
    {"late write that was carried out", MEMORY_POOL_WRITES, CLUSTER_LATE, true},
    {"failed write", MEMORY_POOL_WRITES, CLUSTER_FAILED, false},
    {"failed write that was carried out", MEMORY_POOL_WRITES, CLUSTER_FAILED, true},
    {"full", MEMORY_POOL_WRITES, CLUSTER_FULL, false},
    {"late list", MEMORY_POOL_LISTS, CLUSTER_LATE, false},
    {"failed list", MEMORY_POOL_LISTS, CLUSTER_FAILED, false},
};
enum { WAYS = sizeof ways / sizeof *ways };

static unsigned arm(struct memory_pool *pool, const struct way *w, const char *object, unsigned nth)
{
    memory_pool_fault(
        pool, &(struct memory_pool_fault){
                  .kinds = w->kinds, .object = object, .nth = nth, .result = w->result, .carried_out = w->carried_out});
    return memory_pool_faults(pool);
}

/* Whoever makes it is told, and does it again: then there is one seed. */
static void each_making_fails(void **state)
{
    struct store_fixture *f = *state;
    struct config cfg = f->cfg;
    snprintf(cfg.rados_pool, sizeof cfg.rados_pool, "made");
    for (int i = 0; i < WAYS; i++) {
        bool fails = true;
        for (unsigned nth = 1; fails; nth++) {
            struct memory_pool *pool = memory_pool_new("made");
            struct err err = {0};
            unsigned faults = arm(pool, &ways[i], "", nth);
            int code = rados_store_init(&cfg, &memory_pool_ops, &err);
            memory_pool_fault(pool, NULL);
            fails = memory_pool_faults(pool) > faults;
            bool there = memory_pool_count(pool, LAYOUT_META, "seed") == 1;
            if (fails ? code >= 0 || err.text[0] == '\0' || there != ways[i].carried_out : code != 1) {
                fail_msg("%s %u: %d, and the pool %s made", ways[i].name, nth, code, there ? "is" : "isn't");
            }
            assert_int_equal(rados_store_init(&cfg, &memory_pool_ops, &err), !there);
            assert_int_equal(memory_pool_count(pool, LAYOUT_META, ""), 4);
            memory_pool_free(pool);
        }
    }
}

/* A node that can't be started is started again, with all that was there, and a number that none had. */
static void each_opening_fails(void **state)
{
    struct store_fixture *f = *state;
    static const char *const objects[] = {LAYOUT_META, LAYOUT_POSITIONS};
    char starts[LAYOUT_HEX + 1], now[LAYOUT_HEX + 1];
    play(f, "u", "a");
    memory_pool_value(one_pool, LAYOUT_META, "starts", starts, sizeof starts);
    for (int i = 0; i < 2 * WAYS; i++) {
        const struct way *w = &ways[i / 2];
        bool fails = true;
        for (unsigned nth = 1; fails; nth++) {
            struct err err = {0};
            close_node(f);
            clock_test_advance(11 * 60 * 1000); /* so that the clock is kept, too */
            unsigned faults = arm(one_pool, w, objects[i % 2], nth);
            int code =
                rados_store_open(&f->cfg, &(struct rados_store_options){.ops = &memory_pool_ops}, &f->store, &err);
            memory_pool_fault(one_pool, NULL);
            fails = memory_pool_faults(one_pool) > faults;
            assert_true(code == 0 || (fails && err.text[0] != '\0'));
            if (code == 0) { /* what opens all the same makes it good later */
                f->store->ops->close(f->store);
            }
            open_node(f);
            assert_true(seen(f, "u", "a") && !seen(f, "u", "b"));
            memory_pool_value(one_pool, LAYOUT_META, "starts", now, sizeof now);
            assert_true(strcmp(now, starts) > 0);
            memcpy(starts, now, sizeof starts);
        }
    }
    play(f, "u", "b");
    assert_true(seen(f, "u", "b"));
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        POOL_TEST(each_operation_fails),
        POOL_TEST(each_allocation_fails),
        POOL_TEST(each_making_fails),
        POOL_TEST(each_opening_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
