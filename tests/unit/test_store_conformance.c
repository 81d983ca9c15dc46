/* What every engine of the store must keep, whatever it is made of: one table of promises, each run over every engine.
 * docs/store.md tells how to add one. What only one engine has is tested elsewhere (test_store*.c for SQLite).
 *
 * An engine may move what it has been given to other places, while it works or when it is opened again. So a promise
 * calls settle() wherever that might make a difference, and each engine is run in several ways: nothing is done there,
 * everything is flushed, it is closed and opened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "filter/filter.h"
#include "store/codec/user_snapshot.h"
#include "store/memory/memory_store.h"
#include "store/positions.h"
#include "store/rados/rados_store.h"
#include "store/ring.h"
#include "store/stats.h"
#include "store/user/deliveries.h"
#include "tests/lib/memory_pool.h"
#include "tests/lib/random.h"
#include "tests/lib/rounds.h"
#include "tests/lib/sent_list.h"
#include "tests/lib/store_calls.h"

enum { LAST = 5 }; /* delivered_max */

/* --- the engines, and the ways in which they are run --- */

struct engine {
    const char *name;
    int (*open)(struct store_fixture *f, struct err *err); /* with f->cfg: f->store */
    void (*hold)(void); /* what the next write waits for; NULL: nothing that could last */
    void (*wait_held)(void), (*release)(void);
    int (*flush)(struct store_fixture *f); /* all that waits to be moved */
    bool shared;                           /* with other nodes, so that none knows how many forgets all remember */
};

static int open_memory(struct store_fixture *f, struct err *err)
{
    return memory_store_open(&f->cfg, NULL, &f->store, err);
}

static int open_memory_later(struct store_fixture *f, struct err *err)
{
    return memory_store_open(&f->cfg, &(struct memory_store_options){.later = true}, &f->store, err);
}

static void hold_sync(void)
{
    rule(VFS_SYNC, "staging", 1, false, VFS_HOLD);
}

/* A pool that outlives the store in it; in one way what may be carried out next is drawn. */
static struct memory_pool *pool;

static int open_rados(struct store_fixture *f, struct err *err)
{
    snprintf(f->cfg.rados_pool, sizeof f->cfg.rados_pool, "conformance");
    if (pool == NULL) {
        pool = memory_pool_new("conformance");
        if (rados_store_init(&f->cfg, &memory_pool_ops, err) < 0) {
            return err->code;
        }
    }
    return rados_store_open(&f->cfg, &(struct rados_store_options){.ops = &memory_pool_ops}, &f->store, err);
}

static int open_rados_shuffled(struct store_fixture *f, struct err *err)
{
    int result = open_rados(f, err);
    memory_pool_shuffle(pool, 17);
    return result;
}

static void hold_pool(void)
{
    memory_pool_hold(pool, MEMORY_POOL_WRITES);
}

static void wait_pool(void)
{
    memory_pool_wait_held(pool, 1);
}

static void release_pool(void)
{
    memory_pool_hold(pool, 0);
}

static int walk_rados(struct store_fixture *f)
{
    struct err err = {0};
    int result = rados_store_walk(f->store, &err);
    if (result < 0) {
        print_error("walk: %s\n", err.text);
    }
    return result;
}

static const struct engine sqlite = {"sqlite",          try_open, hold_sync, vfs_fault_wait_held,
                                     vfs_fault_release, flush,    false};
static const struct engine memory = {"memory", open_memory, NULL, NULL, NULL, NULL, false};
static const struct engine memory_later = {"memory, later", open_memory_later, NULL, NULL, NULL, NULL, false};
static const struct engine rados = {"rados", open_rados, hold_pool, wait_pool, release_pool, walk_rados, true};
static const struct engine rados_shuffled = {"rados, shuffled", open_rados_shuffled, hold_pool, wait_pool,
                                             release_pool,      walk_rados,          true};

static const struct way {
    const struct engine *engine;
    enum { STAYS, FLUSHES, OPENS_AGAIN } settling;
    const char *name;
} ways[] = {
    {&sqlite, STAYS, "sqlite"},
    {&sqlite, FLUSHES, "sqlite, flushed"},
    {&sqlite, OPENS_AGAIN, "sqlite, opened again"},
    {&memory, STAYS, "memory"},
    {&memory_later, STAYS, "memory, later"},
    {&rados, STAYS, "rados"},
    {&rados, FLUSHES, "rados, walked"},
    {&rados, OPENS_AGAIN, "rados, opened again"},
    {&rados_shuffled, FLUSHES, "rados, shuffled"},
};

static const struct way *way; /* of the test that runs */

static void open_engine(struct store_fixture *f)
{
    struct err err = {0};
    if (way->engine->open(f, &err) < 0 || f->store->ops->reader_open(f->store, &f->reader, &err) < 0) {
        fail_msg("open: %s", err.text);
    }
}

static void settle(struct store_fixture *f)
{
    if (way->settling == FLUSHES) {
        assert_int_equal(way->engine->flush(f), 0);
    } else if (way->settling == OPENS_AGAIN) {
        close_store(f);
        open_engine(f);
    }
}

/* --- calls --- */

static struct store_view view_of(struct store_fixture *f, const char *user, int first_month)
{
    struct store_view view;
    struct err err = {0};
    if (store_load_wait(f->store, f->reader, key_of(user), slice_str(user), first_month, &view, &err) < 0) {
        fail_msg("load: %s", err.text);
    }
    return view;
}

static bool seen_since(struct store_fixture *f, const char *user, const char *item, int first_month)
{
    struct store_view view = view_of(f, user, first_month);
    return in_view(&view, item);
}

/* Deliveries newest first, as "c b a". */
static void expect_deliveries(struct store_fixture *f, const char *user, const char *expected)
{
    char text[256] = "";
    struct store_view view = view_of(f, user, INT_MIN);
    for (size_t i = 0; i < view.n_deliveries; i++) {
        size_t len = strlen(text);
        assert_true(i == 0 || view.deliveries[i - 1].stamp >= view.deliveries[i].stamp);
        if (view.deliveries[i].nth > 0) {
            continue;
        }
        snprintf(text + len, sizeof text - len, "%s%.*s", i > 0 ? " " : "", (int)view.deliveries[i].item.len,
                 view.deliveries[i].item.data);
        assert_true(view.deliveries[i].hash == hash_id(SEED, view.deliveries[i].item));
    }
    assert_string_equal(text, expected);
}

static int64_t month_ms(int months_ago)
{
    return month_start_ms(month_of_ms(clock_wall_ms()) - months_ago);
}

/* --- promises: what is written is seen --- */

static void nothing_of_unknown_users(struct store_fixture *f)
{
    play(f, "u", "a");
    settle(f);
    struct store_view view = view_of(f, "v", INT_MIN);
    assert_false(view.known);
    assert_int_equal(view.n_months + view.n_plays + view.n_deliveries + view.n_exceptions, 0);
    assert_int_equal(forget(f, "v", NULL), 0);
    assert_int_equal(forget(f, "v", "a"), 0);
}

static void seen_after_the_answer(struct store_fixture *f)
{
    struct store_reader *other;
    struct store_view view;
    struct err err = {0};
    for (int i = 0; i < 20; i++) {
        char item[16];
        snprintf(item, sizeof item, "i%d", i);
        assert_false(seen(f, "u", item));
        play(f, "u", item);
        assert_true(seen(f, "u", item));
        assert_int_equal(f->store->ops->reader_open(f->store, &other, &err), 0);
        assert_int_equal(load(f, other, "u", &view, &err), 0);
        assert_true(in_view(&view, item));
        f->store->ops->reader_close(other);
    }
    deliver(f, "u", "sent");
    settle(f);
    assert_true(seen(f, "u", "i0"));
    assert_true(seen(f, "u", "i19"));
    assert_true(seen(f, "u", "sent"));
    assert_false(seen(f, "u", "i20"));
    assert_true(known(f, "u"));
}

struct question {
    struct store_load load;
    int done;
};

static void question_done(struct store_load *load)
{
    struct question *q = load->owner;
    struct store_call raise = {.owner = &q->done};
    call_done(&raise);
}

/* As a loop asks: one load a reader, many readers, any of which may be closed before its answer has come. */
static void many_are_under_way(struct store_fixture *f)
{
    enum { N = 64 };
    static struct question questions[N];
    struct store_reader *readers[N];
    struct err err = {0};
    play(f, "u", "a");
    settle(f);
    for (int i = 0; i < N; i++) {
        const char *user = i % 2 == 0 ? "u" : "v";
        struct question *q = &questions[i];
        *q = (struct question){.load = {.key = key_of(user),
                                        .user = slice_str(user),
                                        .first_month = INT_MIN,
                                        .done = question_done,
                                        .owner = q}};
        assert_int_equal(f->store->ops->reader_open(f->store, &readers[i], &err), 0);
        int code = f->store->ops->load(readers[i], &q->load);
        if (code != STORE_LATER) { /* and done() was not called */
            assert_int_equal(code, q->load.err.code);
            assert_false(is_raised(&q->done));
            q->done = 1;
        }
    }
    for (int i = 0; i < N; i++) {
        struct question *q = &questions[i];
        if (i % 4 >= 2) {
            f->store->ops->reader_close(readers[i]);
            assert_true(is_raised(&q->done));
            assert_true(q->load.err.code == 0 || q->load.err.code == ERR_CLOSED);
            continue;
        }
        wait_flag(&q->done);
        assert_int_equal(store_load_view(f->store, readers[i], &q->load), 0);
        assert_int_equal(in_view(&q->load.view, "a"), i % 2 == 0);
        f->store->ops->reader_close(readers[i]);
    }
}

static void again_is_once(struct store_fixture *f)
{
    for (int i = 0; i < 40; i++) {
        play(f, "u", "a");
        deliver(f, "u", "d");
        if (i == 20) {
            settle(f);
        }
    }
    settle(f);
    assert_true(seen(f, "u", "a"));
    assert_int_equal(view_of(f, "u", INT_MIN).n_deliveries, 1);
    assert_int_equal(forget(f, "u", "a"), 1);
    assert_false(seen(f, "u", "a"));
}

/* --- promises: positions --- */

/* A batch of one play, or of none, with positions; how it was answered. */
static int record_positions(struct store_fixture *f, const char *item, const struct store_position *positions, size_t n)
{
    int done = 0;
    struct store_batch batch = {.positions = positions, .n_positions = n, .done = batch_done, .owner = &done};
    if (item != NULL) {
        add(&batch, STORE_PLAY, START, "u", item);
    }
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    buf_free(&batch.bytes);
    return batch.err.code;
}

/* -1: none. */
static int64_t position_of(struct store_fixture *f, const char *source)
{
    int64_t next = -1;
    int found = f->store->positions->find(f->store, slice_str(source), &next);
    assert_int_equal(found, next != -1);
    return next;
}

static void positions_go_with_their_batch(struct store_fixture *f)
{
    static char long_name[STORE_SOURCE_MAX + 1];
    if (f->store->positions == NULL) {
        return;
    }
    memset(long_name, 'x', sizeof long_name);
    assert_int_equal(position_of(f, "t/0"), -1);
    const struct store_position first[] = {{slice_str("t/0"), 5}, {slice_str("t/1"), 7}, {slice_str("t/0"), 6}};
    assert_int_equal(record_positions(f, "a", first, 3), 0);
    assert_int_equal(position_of(f, "t/0"), 6); /* the last one says it */
    assert_int_equal(position_of(f, "t/1"), 7);
    assert_int_equal(position_of(f, "t"), -1);
    settle(f);
    const struct store_position empty[] = {{slice_str("t/1"), INT64_MAX}, {slice_of("\xff\0", 2), -2}};
    assert_int_equal(record_positions(f, NULL, empty, 2), 0); /* nothing of it was a play */
    const struct store_position back = {slice_str("t/0"), 0};
    assert_int_equal(record_positions(f, "b", &back, 1), 0);
    const struct store_position wrong[] = {{slice_str("t/0"), 9}, {slice_of(long_name, sizeof long_name), 1}};
    assert_int_equal(record_positions(f, "c", wrong, 2), ERR_INVALID);
    settle(f);
    assert_int_equal(position_of(f, "t/0"), 0);
    assert_int_equal(position_of(f, "t/1"), INT64_MAX);
    int64_t next = 0;
    assert_int_equal(f->store->positions->find(f->store, slice_of("\xff\0", 2), &next), 1);
    assert_int_equal(next, -2);
    assert_true(seen(f, "u", "a"));
    assert_true(seen(f, "u", "b"));
    assert_false(seen(f, "u", "c")); /* refused as a whole */
}

/* --- promises: a replay undoes no forget --- */

static void replay(struct store_fixture *f, enum store_kind kind, int64_t at, const char *user, const char *item)
{
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    struct slice ids[] = {slice_str(item), slice_str("beside")};
    uint64_t hashes[] = {hash_id(SEED, ids[0]), hash_id(SEED, ids[1])};
    add(&batch, STORE_PLAY, START, "beside", "a");
    assert_int_equal(store_batch_add(&batch, kind, at, STORE_STATED, key_of(user), slice_str(user), ids, hashes, 2), 0);
    add(&batch, STORE_PLAY, START, "beside", "b");
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    assert_int_equal(batch.err.code, 0); /* as for any play that is too old to matter */
    assert_int_equal(batch.events, 3);
    buf_free(&batch.bytes);
}

/* In whatever order they come, and however often: each with the times that were stated. */
static void deliveries_have_times(struct store_fixture *f)
{
    static const struct {
        int ago;
        const char *item;
    } expected[] = {{100, "beside"}, {100, "a"}, {200, "beside"}, {200, "b"},
                    {300, "beside"}, {300, "a"}, {400, "beside"}, {400, "c"}};
    const size_t n = sizeof expected / sizeof *expected;
    replay(f, STORE_DELIVERY, START - 300, "u", "a");
    replay(f, STORE_DELIVERY, START - 100, "u", "a");
    settle(f);
    replay(f, STORE_DELIVERY, START - 200, "u", "b");
    replay(f, STORE_DELIVERY, START - 400, "u", "c");
    for (int again = 0; again < 3; again++) {
        const struct store_view view = view_of(f, "u", INT_MIN);
        assert_int_equal(view.n_deliveries, n);
        for (size_t i = 0; i < n; i++) {
            const struct store_delivery *d = &view.deliveries[i];
            assert_int_equal(delivered_ms(d->stamp), START - expected[i].ago);
            assert_true(slice_eq(d->item, slice_str(expected[i].item)));
            assert_int_equal(d->nth, strcmp(expected[i].item, "beside") == 0 ? i / 2 : i == 5);
        }
        expect_deliveries(f, "u", "beside a b c");
        replay(f, STORE_DELIVERY, START - 200, "u", "b"); /* once more */
        settle(f);
    }
    assert_int_equal(forget(f, "u", "beside"), 1);
    expect_deliveries(f, "u", "a b c");
    assert_int_equal(view_of(f, "u", INT_MIN).n_deliveries, 4);
}

/* An item of a group at a time; group 0: none. */
static void send_of(struct store_fixture *f, int ago, const char *user, const char *item, uint64_t group)
{
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    const struct slice ids[] = {slice_str(item), slice_str("beside")};
    const uint64_t hashes[] = {hash_id(SEED, ids[0]), hash_id(SEED, ids[1])}, groups[] = {group, 0};
    add(&batch, STORE_PLAY, START, "beside", "a");
    assert_int_equal(store_batch_add_groups(&batch, STORE_DELIVERY, START - ago, STORE_STATED, key_of(user),
                                            slice_str(user), ids, hashes, groups, 2),
                     0);
    assert_int_equal(store_batch_add_groups(&batch, STORE_DELIVERY, START - ago, STORE_STATED, key_of("other"),
                                            slice_str("other"), ids, hashes, NULL, 1),
                     0);
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    assert_int_equal(batch.err.code, 0);
    buf_free(&batch.bytes);
}

static uint64_t group_there(struct store_fixture *f, const char *user, const char *item)
{
    const struct store_view view = view_of(f, user, INT_MIN);
    return delivered_group(view.deliveries, view.n_deliveries, hash_id(SEED, slice_str(item)));
}

/* A delivery keeps its group, whatever was moved when; an item's is that of its newest time that has one. */
static void deliveries_have_groups(struct store_fixture *f)
{
    send_of(f, 300, "u", "a", UINT64_MAX);
    send_of(f, 250, "u", "b", 7);
    settle(f);
    send_of(f, 200, "u", "a", 0);
    for (int again = 0; again < 3; again++) {
        const struct store_view view = view_of(f, "u", INT_MIN);
        assert_int_equal(view.n_deliveries, 6);
        for (size_t i = 0; i < view.n_deliveries; i++) {
            const struct store_delivery *d = &view.deliveries[i];
            const bool is_a = slice_eq(d->item, slice_str("a")), is_b = slice_eq(d->item, slice_str("b"));
            assert_int_equal(d->group, is_a && delivered_ms(d->stamp) == START - 300 ? UINT64_MAX : is_b ? 7 : 0);
        }
        assert_true(group_there(f, "u", "a") == UINT64_MAX);
        assert_int_equal(group_there(f, "u", "b"), 7);
        assert_int_equal(group_there(f, "u", "beside"), 0);
        assert_int_equal(group_there(f, "other", "a"), 0);
        send_of(f, 300, "u", "a", UINT64_MAX); /* once more */
        settle(f);
    }
    send_of(f, 100, "u", "a", 5);
    assert_int_equal(group_there(f, "u", "a"), 5);
    settle(f);
    assert_int_equal(group_there(f, "u", "a"), 5);
    assert_int_equal(forget(f, "u", "a"), 1);
    assert_int_equal(group_there(f, "u", "a"), 0);
    assert_int_equal(group_there(f, "u", "b"), 7);
}

static void a_replay_undoes_no_forget(struct store_fixture *f)
{
    replay(f, STORE_PLAY, START - 5, "u", "a");
    replay(f, STORE_DELIVERY, START - 5, "u", "d");
    settle(f);
    assert_true(seen(f, "u", "a"));
    assert_int_equal(forget(f, "u", NULL), 1);
    assert_int_equal(forget(f, "stranger", NULL), 0); /* whose plays may still come */
    settle(f);
    uint64_t dropped = stats(f).forgotten_dropped;
    replay(f, STORE_PLAY, START - 5, "u", "a");
    replay(f, STORE_DELIVERY, START, "u", "d");
    replay(f, STORE_PLAY, START - 5, "stranger", "a");
    assert_int_equal(stats(f).forgotten_dropped - dropped, 6);
    if (!(way->engine->shared && way->settling == OPENS_AGAIN)) {
        assert_int_equal(stats(f).tombstones, 2);
    }
    settle(f);
    assert_false(known(f, "u"));
    assert_false(known(f, "stranger"));
    assert_true(seen(f, "beside", "b"));
    advance(f, 1000);
    replay(f, STORE_PLAY, START + 1, "u", "new");
    play(f, "stranger", "b");
    record_at(f, STORE_PLAY, START - 5, "stranger", "stamped");
    settle(f);
    assert_false(seen(f, "u", "a"));
    assert_true(seen(f, "u", "new"));
    assert_true(seen(f, "stranger", "b"));
    assert_true(seen(f, "stranger", "stamped"));
}

static void a_replay_undoes_no_unseeing(struct store_fixture *f)
{
    replay(f, STORE_PLAY, START - 5, "u", "a");
    replay(f, STORE_PLAY, START - 5, "u", "b");
    settle(f);
    assert_int_equal(forget(f, "u", "a"), 1);
    settle(f);
    replay(f, STORE_PLAY, START - 5, "u", "a");
    replay(f, STORE_PLAY, START - 5, "u", "c");
    settle(f);
    assert_false(seen(f, "u", "a"));
    assert_true(seen(f, "u", "b"));
    assert_true(seen(f, "u", "c"));
    assert_true(seen(f, "u", "beside"));
    advance(f, 1000);
    replay(f, STORE_PLAY, START + 1, "u", "a");
    settle(f);
    assert_true(seen(f, "u", "a"));
    assert_int_equal(forget(f, "u", NULL), 1);
    replay(f, STORE_PLAY, START + 1, "u", "b");
    settle(f);
    assert_false(known(f, "u"));
}

/* As prefixes of one another, with NUL, not UTF-8, and as long as they may be. */
static void ids_of_any_bytes(struct store_fixture *f)
{
    static char long_id[255], longer[255];
    memset(long_id, 0xff, sizeof long_id);
    memset(longer, 0xff, sizeof longer);
    longer[254] = 0;
    const struct slice ids[] = {{"a", 1},        {"\0", 1},      {"\0\0", 2},   {"a\0", 2},     {"a\0b", 3},
                                {"\xff\xfe", 2}, {long_id, 254}, {longer, 255}, {long_id, 255}, {"\xc3\xa4", 2}};
    enum { N = sizeof ids / sizeof *ids };
    for (int u = 0; u < N; u++) {
        int done = 0;
        struct store_batch batch = {.done = batch_done, .owner = &done};
        uint64_t hash = hash_id(SEED, ids[u]);
        for (enum store_kind kind = STORE_PLAY; kind <= STORE_DELIVERY; kind++) {
            assert_int_equal(store_batch_add(&batch, kind, START, STORE_STAMPED, hash_user_key(SEED, ids[u]), ids[u],
                                             &ids[u], &hash, 1),
                             0);
        }
        f->store->ops->record(f->store, &batch);
        wait_flag(&done);
        assert_int_equal(batch.err.code, 0);
        buf_free(&batch.bytes);
    }
    settle(f);
    for (int u = 0; u < N; u++) {
        struct store_view view;
        struct err err = {0};
        int64_t key = hash_user_key(SEED, ids[u]);
        assert_int_equal(store_load_wait(f->store, f->reader, key, ids[u], INT_MIN, &view, &err), 0);
        assert_true(view.known);
        assert_int_equal(view.n_deliveries, 1);
        assert_true(slice_eq(view.deliveries[0].item, ids[u]));
    }
}

static void many_users(struct store_fixture *f)
{
    enum { USERS = 3000, EACH = 3 };
    for (int round = 0; round < EACH; round++) {
        int done = 0;
        struct store_batch batch = {.done = batch_done, .owner = &done};
        for (int u = 0; u < USERS; u++) {
            char user[16], item[32];
            snprintf(user, sizeof user, "user%d", u);
            snprintf(item, sizeof item, "%d of %s", round, user);
            add(&batch, STORE_PLAY, START, user, item);
        }
        f->store->ops->record(f->store, &batch);
        wait_flag(&done);
        assert_int_equal(batch.err.code, 0);
        buf_free(&batch.bytes);
        settle(f);
    }
    for (int u = 0; u < USERS; u += 7) {
        char user[16], item[32], other[32];
        snprintf(user, sizeof user, "user%d", u);
        snprintf(other, sizeof other, "0 of user%d", u + 1);
        for (int round = 0; round < EACH; round++) {
            snprintf(item, sizeof item, "%d of %s", round, user);
            assert_true(seen(f, user, item));
        }
        assert_false(seen(f, user, other));
    }
}

/* Two users whose ids hash to one key: each sees all that is his own; a forget is exact, or it is refused. The key is
 * made up, so an engine that is opened again, and hashes the ids itself, finds another one. */
static void users_who_share_a_key(struct store_fixture *f)
{
    const int64_t key = key_of("a");
    static const char *const users[] = {"a", "b"};
    for (int u = 0; u < 2; u++) {
        int done = 0;
        struct store_batch batch = {.done = batch_done, .owner = &done};
        struct slice item = slice_str(users[u]);
        uint64_t hash = hash_id(SEED, item);
        assert_int_equal(
            store_batch_add(&batch, STORE_PLAY, START, STORE_STAMPED, key, slice_str(users[u]), &item, &hash, 1), 0);
        f->store->ops->record(f->store, &batch);
        wait_flag(&done);
        assert_int_equal(batch.err.code, 0);
        buf_free(&batch.bytes);
    }
    if (way->settling != OPENS_AGAIN) {
        settle(f);
    }
    int64_t answer = forget(f, "a", NULL);
    assert_true(answer == 1 || answer == ERR_SHARED);
    assert_int_equal(seen(f, "a", "a"), answer == ERR_SHARED);
    struct store_view view;
    struct err err = {0};
    assert_int_equal(store_load_wait(f->store, f->reader, key, slice_str("b"), INT_MIN, &view, &err), 0);
    assert_true(in_view(&view, "b"));
}

/* --- promises: order --- */

struct handed {
    struct store_batch batch;
    struct store_forget forget;
    struct store_merge merge;
    struct slice item;
    uint64_t hash;
    int done;
};

static void hand_in_play(struct store_fixture *f, struct handed *h, const char *user, const char *item)
{
    *h = (struct handed){.batch = {.done = batch_done, .owner = &h->done}};
    add(&h->batch, STORE_PLAY, START, user, item);
    f->store->ops->record(f->store, &h->batch);
}

static void hand_in_forget(struct store_fixture *f, struct handed *h, const char *user, const char *item)
{
    *h = (struct handed){.item = slice_str(item != NULL ? item : "")};
    h->hash = hash_id(SEED, h->item);
    h->forget = (struct store_forget){.key = key_of(user),
                                      .user = slice_str(user),
                                      .items = &h->item,
                                      .hashes = &h->hash,
                                      .n_items = item != NULL,
                                      .first_month = INT_MIN,
                                      .done = forget_done,
                                      .owner = &h->done};
    f->store->ops->forget(f->store, &h->forget);
}

/* Handed in without waiting: they take effect as they came. */
static void writes_in_their_order(struct store_fixture *f)
{
    enum { N = 9 };
    static struct handed all[N];
    play(f, "u", "before");
    play(f, "v", "x");
    settle(f);
    hand_in_play(f, &all[0], "u", "a");
    hand_in_forget(f, &all[1], "u", NULL);
    hand_in_play(f, &all[2], "u", "b");
    hand_in_forget(f, &all[3], "v", "x");
    hand_in_play(f, &all[4], "v", "x");
    hand_in_play(f, &all[5], "v", "y");
    hand_in_forget(f, &all[6], "v", "y");
    hand_in_play(f, &all[7], "w", "z");
    hand_in_forget(f, &all[8], "w", "z");
    for (int i = 0; i < N; i++) {
        wait_flag(&all[i].done);
        assert_int_equal(all[i].batch.err.code, 0);
        assert_int_equal(all[i].forget.err.code, 0);
        buf_free(&all[i].batch.bytes);
    }
    assert_int_equal(all[1].forget.answer, 1);
    assert_int_equal(all[3].forget.answer, 1);
    assert_int_equal(all[6].forget.answer, 1);
    for (int round = 0; round < 2; round++) {
        assert_false(seen(f, "u", "before"));
        assert_false(seen(f, "u", "a"));
        assert_true(seen(f, "u", "b"));
        assert_true(seen(f, "v", "x"));
        assert_false(seen(f, "v", "y"));
        assert_false(seen(f, "w", "z"));
        settle(f);
    }
}

/* While a write waits for the disk, questions are answered. */
static void no_load_waits(struct store_fixture *f)
{
    static struct handed write;
    play(f, "u", "a");
    settle(f);
    if (way->engine->hold != NULL) {
        way->engine->hold();
    }
    hand_in_play(f, &write, "u", "b");
    if (way->engine->hold != NULL) {
        way->engine->wait_held();
        assert_false(is_raised(&write.done));
    }
    assert_true(seen(f, "u", "a"));
    assert_true(known(f, "u"));
    assert_false(known(f, "v"));
    if (way->engine->hold != NULL) {
        way->engine->release();
    }
    wait_flag(&write.done);
    buf_free(&write.batch.bytes);
    assert_int_equal(write.batch.err.code, 0);
    assert_true(seen(f, "u", "b"));
}

/* A delivery that has fallen off the list never comes back, though a forget makes room: whatever was moved when. */
static void what_fell_off_stays_off(struct store_fixture *f)
{
    for (const char *item = "abcdef"; *item != '\0'; item++) {
        deliver(f, "u", (const char[]){*item, '\0'});
    }
    assert_int_equal(forget(f, "u", "f"), 1); /* nothing was moved yet */
    expect_deliveries(f, "u", "e d c b");
    settle(f);
    expect_deliveries(f, "u", "e d c b");
    deliver(f, "u", "g");
    deliver(f, "u", "h");
    settle(f);
    expect_deliveries(f, "u", "h g e d c");
    deliver(f, "u", "i");
    assert_int_equal(forget(f, "u", "g"), 1); /* "c" has fallen off, and may lie beside the list */
    settle(f);
    expect_deliveries(f, "u", "i h e d");
    assert_int_equal(forget(f, "u", "c"), 0);
    deliver(f, "u", "j");
    settle(f);
    expect_deliveries(f, "u", "j i h e d");
}

/* The same of drawn histories: the list is what a list in memory would be that is cut at each delivery. */
static void deliveries_of_any_history(struct store_fixture *f)
{
    enum { ITEMS = 9, STEPS = 150 };
    uint64_t random = 11;
    char list[LAST + 2] = "";
    for (int step = test_rounds(STEPS); step > 0; step--) {
        const char item[] = {(char)('a' + random_below(&random, ITEMS)), '\0'};
        char *at = strchr(list, *item), wanted[2 * LAST + 1] = "";
        uint64_t what = random_below(&random, 8);
        if (what < 2) {
            assert_int_equal(forget(f, "u", item), at != NULL);
        } else if (what < 7) {
            deliver(f, "u", item);
        } else {
            settle(f);
        }
        if (what < 7 && at != NULL) {
            memmove(at, at + 1, strlen(at));
        }
        if (what >= 2 && what < 7) {
            memmove(list + 1, list, LAST);
            list[0] = *item;
            list[LAST] = '\0';
        }
        for (size_t i = 0; list[i] != '\0'; i++) {
            wanted[2 * i] = list[i];
            wanted[2 * i + 1] = list[i + 1] != '\0' ? ' ' : '\0';
        }
        expect_deliveries(f, "u", wanted);
    }
}

static void deliveries_newest_first(struct store_fixture *f)
{
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    deliver(f, "u", "a");
    add(&batch, STORE_DELIVERY, START, "u", "b");
    add(&batch, STORE_DELIVERY, START, "v", "z");
    add(&batch, STORE_DELIVERY, START, "u", "c");
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    buf_free(&batch.bytes);
    expect_deliveries(f, "u", "c b a");
    settle(f);
    deliver(f, "u", "a"); /* to the front */
    expect_deliveries(f, "u", "a c b");
    settle(f);
    for (const char *item = "defg"; *item != '\0'; item++) {
        deliver(f, "u", (const char[]){*item, '\0'});
    }
    expect_deliveries(f, "u", "g f e d a"); /* the last ones count */
    settle(f);
    expect_deliveries(f, "u", "g f e d a");
    expect_deliveries(f, "v", "z");
    assert_false(seen(f, "u", "b"));
    assert_true(seen(f, "u", "e"));
}

/* --- promises: forgetting --- */

static void a_user_is_forgotten(struct store_fixture *f)
{
    play(f, "other", "a");
    for (int round = 0; round < 3; round++) {
        play(f, "u", "a");
        deliver(f, "u", "d");
        settle(f);
        if (round > 1) {
            play(f, "u", "b");
        }
        assert_int_equal(forget(f, "u", NULL), 1);
        assert_false(known(f, "u"));
        assert_false(seen(f, "u", "a"));
        assert_false(seen(f, "u", "b"));
        assert_false(seen(f, "u", "d"));
        assert_int_equal(forget(f, "u", NULL), 0);
        settle(f);
        assert_false(known(f, "u"));
    }
    assert_true(seen(f, "other", "a"));
}

static void items_are_unseen_until_played(struct store_fixture *f)
{
    static const char *const items[] = {"a", "b", "d"};
    play(f, "u", "a");
    settle(f);
    play(f, "u", "b");
    deliver(f, "u", "d");
    play(f, "u", "stays");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(forget(f, "u", items[i]), 1);
        assert_int_equal(forget(f, "u", items[i]), 0);
        assert_false(seen(f, "u", items[i]));
    }
    settle(f);
    for (int i = 0; i < 3; i++) {
        assert_false(seen(f, "u", items[i]));
        play(f, "u", items[i]);
        assert_true(seen(f, "u", items[i]));
    }
    settle(f);
    for (int i = 0; i < 3; i++) {
        assert_true(seen(f, "u", items[i]));
    }
    assert_true(seen(f, "u", "stays"));
    assert_true(known(f, "u"));
}

/* How many distinct ones were seen in the window; what lies before it is forgotten all the same. */
static void items_are_counted_once(struct store_fixture *f)
{
    play(f, "u", "a");
    play(f, "u", "b");
    assert_int_equal(record_at(f, STORE_PLAY, month_ms(5), "u", "old"), 0);
    settle(f);
    int done = 0;
    const struct slice items[] = {slice_str("a"), slice_str("b"), slice_str("a"), slice_str("c"), slice_str("old")};
    uint64_t hashes[5];
    for (int i = 0; i < 5; i++) {
        hashes[i] = hash_id(SEED, items[i]);
    }
    struct store_forget all = {.key = key_of("u"),
                               .user = slice_str("u"),
                               .items = items,
                               .hashes = hashes,
                               .n_items = 5,
                               .first_month = month_of_ms(START) - 3,
                               .done = forget_done,
                               .owner = &done};
    f->store->ops->forget(f->store, &all);
    wait_flag(&done);
    assert_int_equal(all.err.code, 0);
    assert_int_equal(all.answer, 2);
    settle(f);
    assert_false(seen(f, "u", "a"));
    assert_false(seen(f, "u", "old"));
}

/* --- promises: time --- */

static void the_window_begins_where_it_is_asked(struct store_fixture *f)
{
    int now = month_of_ms(START);
    assert_int_equal(record_at(f, STORE_PLAY, month_ms(3), "u", "first ms"), 0);
    assert_int_equal(record_at(f, STORE_PLAY, month_ms(3) - 1, "u", "ms before"), 0);
    assert_int_equal(record_at(f, STORE_PLAY, START + DAY_MS, "u", "tomorrow"), 0);
    settle(f);
    assert_true(seen_since(f, "u", "first ms", now - 3));
    assert_false(seen_since(f, "u", "ms before", now - 3));
    assert_true(seen_since(f, "u", "ms before", now - 4));
    assert_true(seen_since(f, "u", "ms before", INT_MIN));
    assert_true(seen_since(f, "u", "tomorrow", now));
    assert_true(view_of(f, "u", now + 2).known);
    assert_false(seen_since(f, "u", "tomorrow", now + 2));
}

static void plays_end_with_their_retention(struct store_fixture *f)
{
    int month = month_of_ms(START);
    play(f, "u", "a");
    deliver(f, "u", "d");
    settle(f);
    advance(f, month_start_ms(month + 6) - clock_wall_ms());
    settle(f);
    assert_true(seen(f, "u", "a")); /* retention: 6 months before the current one */
    play(f, "v", "b");
    advance(f, month_start_ms(month + 8) - clock_wall_ms());
    settle(f);
    advance(f, DAY_MS);
    assert_false(known(f, "u"));
    assert_false(seen(f, "u", "a"));
    assert_false(seen(f, "u", "d"));
    assert_true(seen(f, "v", "b"));
}

/* A clock that jumps is doubted: the window begins by the earlier time, a play is stamped with the later one. */
static void a_jump_is_doubted(struct store_fixture *f)
{
    struct store_clock clock;
    int64_t later, earlier;
    f->store->ops->now(f->store, &later, &earlier);
    assert_true(later == START && earlier == START);
    assert_int_equal(f->store->ops->time_known(f->store, NULL), 0);
    assert_int_equal(f->store->ops->refusal(f->store, NULL), 0);
    clock_test_jump(40 * (int64_t)DAY_MS);
    f->store->ops->now(f->store, &later, &earlier);
    assert_true(later == START + 40 * (int64_t)DAY_MS);
    assert_true(earlier == START);
    assert_int_equal(call(f, f->store->ops->tick, NULL), 0);
    f->store->ops->clock(f->store, &clock);
    assert_true(clock.known && clock.doubted);
    assert_int_not_equal(clock.reason[0], '\0');

    int done = 0;
    struct store_clock_change change = {.call = {.done = call_done, .owner = &done}};
    f->store->ops->clock_change(f->store, &change);
    wait_flag(&done);
    assert_int_equal(change.call.err.code, 0);
    f->store->ops->clock(f->store, &clock);
    assert_false(clock.doubted);
    done = 0;
    f->store->ops->clock_change(f->store, &change);
    wait_flag(&done);
    assert_int_equal(change.call.err.code, ERR_INVALID);

    /* The later time was wrong: what was forgotten by it was forgotten by now. */
    assert_int_equal(forget(f, "v", "a"), 0);
    clock_test_jump(-2 * (int64_t)DAY_MS);
    done = 0;
    change.set_back = true;
    f->store->ops->clock_change(f->store, &change);
    wait_flag(&done);
    assert_int_equal(change.call.err.code, 0);
    f->store->ops->now(f->store, &later, &earlier);
    replay(f, STORE_PLAY, later + 1, "v", "a");
    assert_true(seen(f, "v", "a"));
}

/* --- promises: a large user --- */

struct scanned {
    uint64_t hash;
    bool found;
};

static void look_at(void *arg, const struct filter_part *part, uint32_t before, const uint32_t *positions, uint32_t n)
{
    struct scanned *s = arg;
    for (uint32_t i = 0; i < n; i++) {
        s->found = s->found || (positions[i] == filter_part_position(part, s->hash) &&
                                filter_part_fits(part->tails, before + i, s->hash));
    }
}

static void end_month(void *arg, int month, bool good)
{
    (void)arg, (void)month;
    assert_true(good);
}

static void the_large_are_scanned(struct store_fixture *f)
{
    enum { BATCH = 10000 };
    const int plays = test_stride() == 1 ? 300 * 1000 : 100 * 1000; /* of which STORE_LARGE is a part anyway */
    for (int at = 0; at < plays; at += BATCH) {
        int done = 0;
        struct store_batch batch = {.done = batch_done, .owner = &done};
        for (int i = at; i < at + BATCH; i++) {
            char item[16];
            snprintf(item, sizeof item, "%d", i);
            add(&batch, STORE_PLAY, START, "giant", item);
        }
        f->store->ops->record(f->store, &batch);
        wait_flag(&done);
        assert_int_equal(batch.err.code, 0);
        buf_free(&batch.bytes);
    }
    settle(f);
    struct store_view view;
    struct err err = {0};
    assert_int_equal(load(f, f->reader, "giant", &view, &err), ERR_LARGE);
    for (int i = 0; i < plays; i += plays / 7) {
        char item[16];
        snprintf(item, sizeof item, "%d", i);
        struct scanned s = {.hash = hash_id(SEED, slice_str(item))};
        const struct store_scan scan = {look_at, end_month, &s};
        assert_int_equal(
            f->store->ops->scan(f->reader, key_of("giant"), slice_str("giant"), INT_MIN, &scan, &view, &err), 0);
        for (size_t k = 0; k < view.n_plays; k++) {
            s.found = s.found || view.plays[k].hash == s.hash;
        }
        assert_true(s.found);
    }
}

/* --- promises: users from elsewhere --- */

/* A user of another store: "stored" in a filter and "unseen" too, but un-seen; "staged"; deliveries "y x". */
static int64_t pack_forgotten_ms; /* what it says of a forget; 0: nothing */
static const char *pack_item;     /* NULL; or an item that was forgotten, and when: */
static int64_t pack_item_ms;

static void pack(struct buf *out, const char *user, uint64_t seed, const int *damaged, size_t n_damaged)
{
    struct arena arena = {0};
    struct delivered_codec codec = {0};
    struct filter filter = {0};
    struct buf blob = {0}, sent = {0};
    int month = month_of_ms(START);
    const uint64_t stored = hash_id(SEED, slice_str("stored")), unseen = hash_id(SEED, slice_str("unseen"));
    uint32_t positions[] = {filter_position(stored, FILTER_LIVE_M), filter_position(unseen, FILTER_LIVE_M)};
    struct store_delivery deliveries[] = {SENT(900, hash_id(SEED, slice_str("y")), slice_str("y")),
                                          SENT(7, hash_id(SEED, slice_str("x")), slice_str("x"))};
    const struct store_play plays[] = {{hash_id(SEED, slice_str("staged")), month}};
    uint32_t n = filter_sort(positions, 2, NULL);
    assert_int_equal(filter_add(&filter, positions, n, 4000, &arena), 0);
    assert_int_equal(filter_encode(&filter, &blob), 0);
    assert_int_equal(sent_list_pack(&codec, deliveries, 2, &sent), 0);
    const struct snapshot_forgotten item = {pack_item == NULL ? 0 : hash_id(SEED, slice_str(pack_item)), pack_item_ms};
    const struct snapshot_month stored_month = {month - 1, buf_slice(&blob)};
    const struct user_snapshot p = {.key = hash_user_key(seed, slice_str(user)),
                                    .user = slice_str(user),
                                    .last_month = month,
                                    .months = &stored_month,
                                    .n_months = 1,
                                    .plays = plays,
                                    .n_plays = 1,
                                    .deliveries = buf_slice(&sent),
                                    .exceptions = &unseen,
                                    .n_exceptions = 1,
                                    .damaged = damaged,
                                    .n_damaged = n_damaged,
                                    .forgotten_ms = pack_forgotten_ms,
                                    .forgotten = &item,
                                    .n_forgotten = pack_item != NULL};
    assert_int_equal(user_snapshot_encode(&p, out), 0);
    buf_free(&blob);
    buf_free(&sent);
    arena_free(&arena);
    delivered_codec_free(&codec);
}

static int import(struct store_fixture *f, struct slice bytes, uint8_t *verdict)
{
    int done = 0;
    struct store_import import = {.snapshots = &bytes, .n = 1, .verdicts = verdict};
    import.call.done = call_done;
    import.call.owner = &done;
    f->store->ops->import(f->store, &import);
    wait_flag(&done);
    return import.call.err.code;
}

/* What is imported is put among all deliveries that are here by its time, whatever was moved when. */
static void imports_are_united_by_time(struct store_fixture *f)
{
    struct buf bytes = {0};
    uint8_t verdict = 0;
    char first[128] = "", second[128];
    pack(&bytes, "u", SEED, NULL, 0);
    deliver(f, "u", "a");
    settle(f);
    deliver(f, "u", "b");
    deliver(f, "u", "c");
    for (int again = 0; again < 3; again++) {
        assert_int_equal(import(f, buf_slice(&bytes), &verdict), 0);
        struct store_view view = view_of(f, "u", INT_MIN);
        second[0] = '\0';
        for (size_t i = 0; i < view.n_deliveries; i++) {
            snprintf(second + strlen(second), sizeof second - strlen(second), "%.*s ", (int)view.deliveries[i].item.len,
                     view.deliveries[i].item.data);
        }
        if (again == 0) {
            snprintf(first, sizeof first, "%s", second);
        }
        assert_string_equal(first, second);
        settle(f);
    }
    assert_string_equal(first, "c b a y x "); /* those were sent in 1970 */
    buf_free(&bytes);
}

static void users_are_united(struct store_fixture *f)
{
    struct buf bytes = {0};
    uint8_t verdict = 0;
    pack(&bytes, "u", SEED, NULL, 0);
    play(f, "u", "here");
    deliver(f, "u", "a");
    deliver(f, "u", "b");
    for (int round = 0; round < 3; round++) {
        settle(f);
        assert_int_equal(import(f, buf_slice(&bytes), &verdict), 0); /* once more, nothing changes */
        assert_int_equal(verdict, IMPORT_DONE);
        assert_true(seen(f, "u", "here"));
        assert_true(seen(f, "u", "stored"));
        assert_true(seen(f, "u", "staged"));
        assert_false(seen(f, "u", "unseen"));
        assert_int_equal(view_of(f, "u", INT_MIN).n_deliveries, 4);
    }
    settle(f);
    assert_true(seen(f, "u", "x") && seen(f, "u", "y") && seen(f, "u", "a") && seen(f, "u", "b"));
    struct store_view view = view_of(f, "u", INT_MIN);
    assert_true(slice_eq(view.deliveries[3].item, slice_str("x")) || slice_eq(view.deliveries[3].item, slice_str("a")));
    deliver(f, "u", "newest"); /* whatever ids they had there */
    view = view_of(f, "u", INT_MIN);
    assert_true(slice_eq(view.deliveries[0].item, slice_str("newest")));

    assert_int_equal(forget(f, "u", "stored"), 1);
    assert_int_equal(forget(f, "u", "staged"), 1);
    settle(f);
    assert_false(seen(f, "u", "stored"));
    assert_false(seen(f, "u", "staged"));
    play(f, "u", "stored");
    settle(f);
    assert_true(seen(f, "u", "stored"));
    assert_int_equal(forget(f, "u", NULL), 1);
    assert_false(known(f, "u"));
    buf_free(&bytes);
}

/* --- drawn users --- */

enum {
    DRAWN_ITEMS = 24,
    DRAWN_USERS = 4,
    DRAWN_SIDES = 3, /* other stores, from which each comes */
    DRAWN_MONTHS = 3,
};

/* What one store has of a user, by the rule said plainly: a bit of each item. */
struct drawn {
    uint32_t filters[DRAWN_MONTHS],
        plays[DRAWN_MONTHS]; /* of the current month, and before; the last is past retention */
    uint32_t unseen;
    struct buf bytes;
};

static uint64_t drawn_hash(unsigned item)
{
    char name[16];
    snprintf(name, sizeof name, "i%u", item);
    return hash_id(SEED, slice_str(name));
}

static int drawn_month(int back)
{
    return month_of_ms(START) - (back == DRAWN_MONTHS - 1 ? 40 : back);
}

static uint32_t draw_few(uint64_t *random)
{
    return (uint32_t)(random_next(random) & random_next(random)) & ((1U << DRAWN_ITEMS) - 1);
}

/* What it hides. */
static uint32_t drawn_hides(const struct drawn *d)
{
    uint32_t filters = 0, plays = 0;
    for (int i = 0; i + 1 < DRAWN_MONTHS; i++) {
        filters |= d->filters[i];
        plays |= d->plays[i];
    }
    return plays | (filters & ~d->unseen);
}

static void draw(struct drawn *d, const char *user, uint64_t *random)
{
    struct arena arena = {0};
    struct buf blobs[DRAWN_MONTHS] = {{0}};
    struct snapshot_month months[DRAWN_MONTHS];
    struct store_play plays[DRAWN_MONTHS * DRAWN_ITEMS];
    uint64_t unseen[DRAWN_ITEMS];
    struct user_snapshot p = {.key = hash_user_key(SEED, slice_str(user)),
                              .user = slice_str(user),
                              .last_month = drawn_month(0),
                              .months = months,
                              .plays = plays,
                              .exceptions = unseen};
    *d = (struct drawn){.unseen = draw_few(random)};
    for (int back = DRAWN_MONTHS - 1; back >= 0; back--) {
        uint32_t positions[DRAWN_ITEMS], n = 0;
        struct filter filter = {0};
        d->filters[back] = draw_few(random);
        d->plays[back] = draw_few(random) & draw_few(random);
        for (unsigned i = 0; i < DRAWN_ITEMS; i++) {
            if (d->filters[back] >> i & 1) {
                positions[n++] = filter_position(drawn_hash(i), FILTER_LIVE_M);
            }
            if (d->plays[back] >> i & 1) {
                plays[p.n_plays++] = (struct store_play){drawn_hash(i), drawn_month(back)};
            }
        }
        assert_int_equal(filter_add(&filter, positions, filter_sort(positions, n, NULL), 12, &arena), 0);
        assert_int_equal(filter_encode(&filter, &blobs[back]), 0);
        months[p.n_months++] = (struct snapshot_month){drawn_month(back), buf_slice(&blobs[back])};
    }
    for (unsigned i = 0; i < DRAWN_ITEMS; i++) {
        if (d->unseen >> i & 1) {
            unseen[p.n_exceptions++] = drawn_hash(i);
        }
    }
    p.n_plays = user_snapshot_sort_plays(plays, p.n_plays);
    hash_sort(unseen, p.n_exceptions);
    assert_int_equal(user_snapshot_encode(&p, &d->bytes), 0);
    for (int i = 0; i < DRAWN_MONTHS; i++) {
        buf_free(&blobs[i]);
    }
    arena_free(&arena);
}

static uint32_t hidden(struct store_fixture *f, const char *user)
{
    struct store_view view = view_of(f, user, INT_MIN);
    uint32_t bits = 0;
    for (unsigned i = 0; i < DRAWN_ITEMS; i++) {
        char name[16];
        snprintf(name, sizeof name, "i%u", i);
        bits |= (uint32_t)in_view(&view, name) << i;
    }
    return bits;
}

/* An item is hidden if any of the stores hides it; so it doesn't matter in which order they come, or how often, and
 * what was merged or forgotten here in between. */
static void drawn_users_are_united_alike(struct store_fixture *f)
{
    uint64_t random = 34;
    for (int u = 0; u < DRAWN_USERS; u++) {
        char users[2][8];
        struct drawn sides[2][DRAWN_SIDES];
        uint32_t expected = 0;
        uint8_t verdict = 0;
        snprintf(users[0], sizeof users[0], "a%d", u);
        snprintf(users[1], sizeof users[1], "b%d", u);
        for (int i = 0; i < DRAWN_SIDES; i++) {
            uint64_t same = random;
            draw(&sides[0][i], users[0], &random);
            draw(&sides[1][i], users[1], &same);
        }
        for (int i = 0; i < DRAWN_SIDES; i++) {
            expected |= drawn_hides(&sides[0][i]);
            assert_int_equal(import(f, buf_slice(&sides[0][i].bytes), &verdict), 0);
            assert_int_equal(hidden(f, users[0]), expected);
            assert_int_equal(import(f, buf_slice(&sides[1][DRAWN_SIDES - 1 - i].bytes), &verdict), 0);
            settle(f);
        }
        assert_int_equal(hidden(f, users[1]), expected);
        for (unsigned i = 0; i < DRAWN_ITEMS; i++) { /* here, too, some are un-seen, and some of them played again */
            char name[16];
            snprintf(name, sizeof name, "i%u", i);
            if (i % 3 == 0) {
                assert_int_equal(forget(f, users[0], name), expected >> i & 1);
                expected &= ~(1U << i);
            }
            if (i % 6 == 0) {
                play(f, users[0], name);
                expected |= 1U << i;
            }
        }
        settle(f);
        assert_int_equal(hidden(f, users[0]), expected);
        for (int round = 0; round < 2; round++) {
            expected |= drawn_hides(&sides[0][1]);
            assert_int_equal(import(f, buf_slice(&sides[0][1].bytes), &verdict), 0);
            assert_int_equal(verdict, IMPORT_DONE);
            assert_int_equal(hidden(f, users[0]), expected);
            settle(f);
        }
        for (int i = 0; i < 2 * DRAWN_SIDES; i++) {
            buf_free(&sides[i / DRAWN_SIDES][i % DRAWN_SIDES].bytes);
        }
    }
}

/* A snapshot can't say whether its play of the item came before the forget: it hides the item, until it is forgotten
 * again. A replay of the play still doesn't. */
static void an_import_may_end_the_forget_of_an_item(struct store_fixture *f)
{
    static const char *const items[] = {"stored", "staged"};
    struct buf bytes = {0};
    uint8_t verdict = 0;
    pack(&bytes, "u", SEED, NULL, 0);
    assert_int_equal(import(f, buf_slice(&bytes), &verdict), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(forget(f, "u", items[i]), 1);
        settle(f);
        replay(f, STORE_PLAY, START - 1, "u", items[i]);
        assert_false(seen(f, "u", items[i]));
        assert_int_equal(import(f, buf_slice(&bytes), &verdict), 0);
        assert_true(seen(f, "u", items[i]));
        assert_int_equal(forget(f, "u", items[i]), 1);
        settle(f);
        assert_false(seen(f, "u", items[i]));
    }
    buf_free(&bytes);
}

/* Of a file that is older than the forget; of one that knows of it, or of a later one. */
static void an_import_undoes_no_forget(struct store_fixture *f)
{
    struct buf older = {0}, newer = {0};
    uint8_t verdict = 0;
    pack(&older, "u", SEED, NULL, 0);
    pack_forgotten_ms = START + 5000;
    pack(&newer, "u", SEED, NULL, 0);
    pack_forgotten_ms = 0;
    assert_int_equal(import(f, buf_slice(&older), &verdict), 0);
    assert_true(seen(f, "u", "stored"));
    assert_int_equal(forget(f, "u", NULL), 1);
    settle(f);
    assert_int_equal(import(f, buf_slice(&older), &verdict), 0);
    assert_int_equal(verdict, IMPORT_OLD);
    settle(f);
    assert_false(known(f, "u"));
    play(f, "u", "since");
    assert_int_equal(import(f, buf_slice(&newer), &verdict), 0);
    assert_int_equal(verdict, IMPORT_DONE);
    settle(f);
    assert_true(seen(f, "u", "stored"));
    assert_true(seen(f, "u", "since")); /* its forget erases nothing here, */
    replay(f, STORE_PLAY, START + 5000, "u", "replayed");
    assert_false(seen(f, "u", "replayed")); /* and is ours */
    advance(f, 6000);
    assert_int_equal(forget(f, "u", NULL), 1);
    assert_int_equal(import(f, buf_slice(&newer), &verdict), 0);
    assert_false(known(f, "u"));
    buf_free(&older);
    buf_free(&newer);
}

/* Items that were forgotten there: no replay brings them back here. Nothing is erased, and what comes since counts. */
static void an_import_brings_the_forgets_of_items(struct store_fixture *f)
{
    static const int64_t ahead[] = {START + DAY_MS + 2, START + 5000};
    struct buf bytes = {0};
    uint8_t verdict = 0;
    play(f, "u", "item");
    settle(f);
    pack_item = "item";
    for (size_t i = 0; i < 2; i++) {
        buf_clear(&bytes);
        pack_item_ms = ahead[i];
        pack(&bytes, "u", SEED, NULL, 0);
        assert_int_equal(import(f, buf_slice(&bytes), &verdict), i == 0 ? ERR_RANGE : 0);
    }
    assert_true(seen(f, "u", "item") && seen(f, "u", "stored"));
    assert_int_equal(forget(f, "u", "item"), 1); /* here earlier than there */
    settle(f);
    replay(f, STORE_PLAY, START + 5000, "u", "item");
    assert_false(seen(f, "u", "item"));
    replay(f, STORE_DELIVERY, START + 5000, "u", "item");
    assert_false(seen(f, "u", "item"));
    assert_true(seen(f, "u", "beside"));
    replay(f, STORE_PLAY, START + 5001, "u", "item");
    assert_true(seen(f, "u", "item"));

    buf_clear(&bytes); /* an earlier one changes nothing */
    pack_item_ms = START - 5000;
    pack(&bytes, "u", SEED, NULL, 0);
    assert_int_equal(import(f, buf_slice(&bytes), &verdict), 0);
    advance(f, 6000);
    assert_int_equal(forget(f, "u", "item"), 1);
    assert_int_equal(import(f, buf_slice(&bytes), &verdict), 0);
    replay(f, STORE_PLAY, START + 5002, "u", "item");
    assert_false(seen(f, "u", "item"));
    assert_int_equal(forget(f, "u", NULL), 1); /* nor does it of a user who was forgotten since */
    assert_int_equal(import(f, buf_slice(&bytes), &verdict), 0);
    assert_int_equal(verdict, IMPORT_OLD);
    settle(f);
    assert_false(known(f, "u"));
    pack_item = NULL;
    buf_free(&bytes);
}

/* --- promises: merged is either's --- */

static void expect_seen(struct store_fixture *f, const char *user, const char *const *items, size_t n, bool is)
{
    for (size_t i = 0; i < n; i++) {
        if (seen(f, user, items[i]) != is) {
            fail_msg("of %s %s is %s", user, items[i], is ? "unseen" : "seen");
        }
    }
}

/* Of one: in a filter, staged, only sent, and what it has un-seen; and what the other one has un-seen of those. */
static void merged_is_hidden_by_either(struct store_fixture *f)
{
    static const char *const hidden[] = {"stored", "staged", "x", "y", "own", "sent", "taken back"};
    static const char *const shown[] = {"unseen", "unseen by both", "never"};
    struct buf bytes = {0};
    uint8_t verdict = 0;
    pack(&bytes, "from", SEED, NULL, 0);
    assert_int_equal(import(f, buf_slice(&bytes), &verdict), 0);
    play(f, "from", "taken back");
    play(f, "from", "unseen by both");
    deliver(f, "from", "sent");
    play(f, "into", "own");
    play(f, "into", "taken back");
    play(f, "into", "unseen by both");
    settle(f);
    assert_int_equal(forget(f, "into", "taken back"), 1);
    assert_int_equal(forget(f, "into", "unseen by both"), 1);
    assert_int_equal(forget(f, "from", "unseen by both"), 1);
    for (int again = 0; again < 3; again++) {
        settle(f);
        assert_int_equal(merge_into(f, "from", "into", false, NULL), 1);
        expect_seen(f, "into", hidden, sizeof hidden / sizeof *hidden, true);
        expect_seen(f, "into", shown, sizeof shown / sizeof *shown, false);
        assert_false(seen(f, "from", "own"));
        assert_true(seen(f, "from", "stored") && seen(f, "from", "sent") && seen(f, "from", "staged"));
    }
    settle(f);
    expect_seen(f, "into", hidden, sizeof hidden / sizeof *hidden, true);
    expect_seen(f, "into", shown, sizeof shown / sizeof *shown, false);
    play(f, "into", "unseen by both");
    assert_true(seen(f, "into", "unseen by both"));
    expect_deliveries(f, "into", "sent y x");
    buf_free(&bytes);
}

/* A forget of either drops nothing of it; and the times of what was sent go along. */
static void merges_mind_no_forget(struct store_fixture *f)
{
    play(f, "into", "a");
    settle(f);
    assert_int_equal(forget(f, "into", NULL), 1);
    play(f, "from", "a");
    deliver(f, "from", "d");
    settle(f);
    assert_int_equal(merge_into(f, "from", "into", false, NULL), 1);
    assert_true(seen(f, "into", "a") && seen(f, "into", "d"));
    assert_true(view_of(f, "into", INT_MIN).deliveries[0].stamp == view_of(f, "from", INT_MIN).deliveries[0].stamp);
    settle(f);
    assert_true(seen(f, "into", "a"));
    assert_int_equal(forget(f, "into", NULL), 1);
    settle(f);
    assert_false(seen(f, "into", "a") || seen(f, "into", "d"));
    assert_true(seen(f, "from", "a") && seen(f, "from", "d"));
}

static void a_merge_may_forget(struct store_fixture *f)
{
    const uint64_t before = stats(f).users_forgotten;
    play(f, "from", "a");
    deliver(f, "from", "d");
    settle(f);
    play(f, "from", "b");
    play(f, "into", "c");
    assert_int_equal(merge_into(f, "from", "into", true, NULL), 1);
    for (int again = 0; again < 2; again++) {
        assert_true(seen(f, "into", "a") && seen(f, "into", "b") && seen(f, "into", "c") && seen(f, "into", "d"));
        assert_false(known(f, "from"));
        assert_false(seen(f, "from", "a") || seen(f, "from", "b") || seen(f, "from", "d"));
        replay(f, STORE_PLAY, START - 5, "from", "a");
        replay(f, STORE_PLAY, START - 5, "into", "of into");
        settle(f);
        assert_false(seen(f, "from", "a"));
        assert_true(seen(f, "into", "of into"));
    }
    assert_true(way->settling == OPENS_AGAIN || stats(f).users_forgotten == before + 1);
    play(f, "from", "new");
    settle(f);
    assert_true(seen(f, "from", "new"));
    assert_false(seen(f, "into", "new") || seen(f, "from", "a"));
    assert_int_equal(merge_into(f, "stranger", "into", true, NULL), 0);
    replay(f, STORE_PLAY, START - 5, "stranger", "a"); /* is forgotten all the same */
    assert_false(seen(f, "stranger", "a"));
}

static void a_merge_of_nothing_changes_nothing(struct store_fixture *f)
{
    struct err err;
    play(f, "u", "a");
    settle(f);
    assert_int_equal(merge_into(f, "stranger", "u", false, NULL), 0);
    assert_int_equal(merge_into(f, "stranger", "other", false, NULL), 0);
    assert_false(known(f, "other"));
    assert_int_equal(merge_into(f, "u", "u", true, &err), ERR_INVALID);
    assert_string_equal(err.text, "\"u\" can't be merged into itself");
    assert_true(seen(f, "u", "a"));
}

/* A filter of a month that has a part of each of many ranges, so that it can be joined with no other. */
static void pack_parts(struct buf *out, const char *user, unsigned first, unsigned n)
{
    struct arena arena = {0};
    struct filter filter = {0};
    struct buf blob = {0};
    const int month = month_of_ms(START);
    for (unsigned i = 0; i < n; i++) {
        struct filter one = {0};
        uint32_t position = UINT32_C(1) << 31;
        assert_int_equal(filter_add(&one, &position, 1, 0, &arena), 0);
        assert_int_equal(filter_cut(&one.parts[0], 1000000 + first + i), 0);
        assert_int_equal(filter_join(&filter, &one, 1000, &arena), 0);
    }
    assert_int_equal(filter_encode(&filter, &blob), 0);
    const struct snapshot_month one = {month, buf_slice(&blob)};
    const struct user_snapshot p = {
        .key = key_of(user), .user = slice_str(user), .last_month = month, .months = &one, .n_months = 1};
    assert_int_equal(user_snapshot_encode(&p, out), 0);
    buf_free(&blob);
    arena_free(&arena);
}

static void a_full_month_is_not_merged(struct store_fixture *f)
{
    struct buf from = {0}, into = {0};
    struct err err;
    uint8_t verdict;
    pack_parts(&from, "from", 0, 9);
    pack_parts(&into, "into", 100, 8);
    assert_int_equal(import(f, buf_slice(&from), &verdict), 0);
    assert_int_equal(import(f, buf_slice(&into), &verdict), 0);
    play(f, "from", "a");
    settle(f);
    for (int forgets = 0; forgets < 2; forgets++) {
        assert_int_equal(merge_into(f, "from", "into", forgets, &err), ERR_CONFLICT);
        assert_string_equal(err.text, "user \"into\": 2026-11 would need more than 16 parts");
        settle(f);
        assert_true(seen(f, "from", "a"));
        assert_false(seen(f, "into", "a"));
    }
    play(f, "from", "b");
    assert_int_equal(forget(f, "into", NULL), 1);
    assert_int_equal(merge_into(f, "from", "into", true, NULL), 1);
    assert_true(seen(f, "into", "a") && seen(f, "into", "b"));
    buf_free(&from);
    buf_free(&into);
}

static void hand_in_merge(struct store_fixture *f, struct handed *h, const char *from, const char *into, bool forgets)
{
    *h = (struct handed){.done = 0};
    h->merge = (struct store_merge){.from_key = key_of(from),
                                    .into_key = key_of(into),
                                    .from = slice_str(from),
                                    .into = slice_str(into),
                                    .forgets = forgets,
                                    .done = merge_done,
                                    .owner = &h->done};
    f->store->ops->merge(f->store, &h->merge);
}

/* Of one user on one node, the order is that in which they were handed in. Of two it is kept by who takes both in one
 * step. */
static void merges_in_their_order(struct store_fixture *f)
{
    enum { HANDED = 10 };
    static struct handed all[HANDED];
    memset(all, 0, sizeof all);
    play(f, "a", "early");
    settle(f);
    hand_in_play(f, &all[0], "a", "before");
    hand_in_merge(f, &all[1], "a", "b", true);
    hand_in_play(f, &all[2], "a", "behind");
    hand_in_forget(f, &all[3], "b", NULL);
    hand_in_play(f, &all[4], "b", "own");
    hand_in_merge(f, &all[5], "a", "b", false);
    hand_in_play(f, &all[6], "a", "late");
    hand_in_merge(f, &all[7], "b", "c", false);
    hand_in_forget(f, &all[8], "b", "own");
    hand_in_play(f, &all[9], "c", "last");
    for (int i = 0; i < HANDED; i++) {
        wait_flag(&all[i].done);
        assert_int_equal(all[i].batch.err.code, 0);
        assert_int_equal(all[i].forget.err.code, 0);
        assert_int_equal(all[i].merge.err.code, 0);
        buf_free(&all[i].batch.bytes);
    }
    for (int again = 0; again < 2 && !way->engine->shared; again++) {
        static const char *const of_a[] = {"behind", "late"}, *const of_b[] = {"behind"},
                                 *const of_c[] = {"behind", "own", "last"}, *const not_a[] = {"early", "before", "own"},
                                 *const not_b[] = {"early", "before", "own", "late"},
                                 *const not_c[] = {"early", "late"};
        expect_seen(f, "a", of_a, 2, true);
        expect_seen(f, "a", not_a, 3, false);
        expect_seen(f, "b", of_b, 1, true);
        expect_seen(f, "b", not_b, 4, false);
        expect_seen(f, "c", of_c, 3, true);
        expect_seen(f, "c", not_c, 2, false);
        settle(f);
    }
}

static void what_is_wrong_is_not_imported(struct store_fixture *f)
{
    struct buf bytes = {0};
    uint8_t verdict = 0;
    pack(&bytes, "u", SEED + 1, NULL, 0);
    assert_int_equal(import(f, buf_slice(&bytes), &verdict), ERR_SEED);
    buf_clear(&bytes);
    pack(&bytes, "u", SEED, NULL, 0);
    assert_int_equal(import(f, slice_of(bytes.data, bytes.len - 1), &verdict), ERR_CORRUPT);
    assert_false(known(f, "u"));
    int64_t much_later = month_start_ms(month_of_ms(START) + 9) - START;
    advance(f, much_later);
    assert_int_equal(import(f, buf_slice(&bytes), &verdict), 0);
    assert_int_equal(verdict, IMPORT_OLD);
    assert_false(known(f, "u"));
    buf_free(&bytes);
}

/* What could not be read there is an error here, or is left out and counted (on_damage). */
static void damage_goes_along(struct store_fixture *f)
{
    struct buf bytes = {0};
    uint8_t verdict = 0;
    const int damaged[] = {month_of_ms(START) - 2};
    pack(&bytes, "u", SEED, damaged, 1);
    assert_int_equal(import(f, buf_slice(&bytes), &verdict), 0);
    settle(f);
    struct store_view view;
    struct err err = {0};
    assert_int_equal(load(f, f->reader, "u", &view, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "2026-09"));
    assert_int_equal(
        store_load_wait(f->store, f->reader, key_of("u"), slice_str("u"), month_of_ms(START) - 1, &view, &err), 0);
    assert_int_equal(forget(f, "u", "stored"), ERR_CORRUPT);
    f->cfg.on_damage = DAMAGE_ANSWER;
    assert_int_equal(load(f, f->reader, "u", &view, &err), 0);
    assert_int_equal(view.damaged_months, 1);
    assert_true(in_view(&view, "stored"));
    assert_int_equal(forget(f, "u", NULL), 1);
    f->cfg.on_damage = DAMAGE_ERROR;
    assert_false(known(f, "u"));
    buf_free(&bytes);
}

/* --- promises: pools, where they outlive the store at all --- */

static void expect_pools(struct store_fixture *f, const char *expected)
{
    char pools[POOLS_TEXT];
    struct err err = {0};
    settle(f);
    if (list_pools(f, pools, &err) < 0) {
        fail_msg("pools: %s", err.text);
    }
    assert_string_equal(pools, expected);
}

static void pools_are_kept(struct store_fixture *f)
{
    struct err err = {0};
    if (f->store->pools == NULL) {
        return;
    }
    expect_pools(f, "");
    assert_int_equal(change_pool(f, STORE_POOL_SET, "hot", NULL, NULL, "abc", &err), 0);
    assert_int_equal(change_pool(f, STORE_POOL_SET, "cold", NULL, NULL, "z", &err), 0);
    expect_pools(f, "cold=z hot=abc");
    assert_int_equal(change_pool(f, STORE_POOL_ADD, "hot", NULL, "abc", "de", &err), 0);
    expect_pools(f, "cold=z hot=abcde");
    assert_int_equal(change_pool(f, STORE_POOL_SET, "hot", NULL, "abcde", "xy", &err), 0);
    assert_int_equal(change_pool(f, STORE_POOL_SET, "new", NULL, NULL, "n", &err), 0);
    expect_pools(f, "cold=z hot=xy new=n");
    assert_int_equal(change_pool(f, STORE_POOL_RENAME, "new", "hot", "n", NULL, &err), 0);
    expect_pools(f, "cold=z hot=n");
    assert_int_equal(change_pool(f, STORE_POOL_RENAME, "hot", "free", "n", NULL, &err), 0);
    assert_int_equal(change_pool(f, STORE_POOL_DROP, "cold", NULL, NULL, NULL, &err), 0);
    assert_int_equal(change_pool(f, STORE_POOL_DROP, "cold", NULL, NULL, NULL, &err), 0);
    expect_pools(f, "free=n");
    play(f, "u", "n"); /* and nothing else is hurt by them */
    assert_true(seen(f, "u", "n"));
}

/* Whoever adds to a pool, or renames it, says what is there. */
static void pools_change_as_they_are(struct store_fixture *f)
{
    struct err err = {0};
    if (f->store->pools == NULL) {
        return;
    }
    assert_int_equal(change_pool(f, STORE_POOL_SET, "hot", NULL, NULL, "abc", &err), 0);
    settle(f);
    assert_int_equal(change_pool(f, STORE_POOL_ADD, "hot", NULL, "ab", "d", &err), ERR_INVALID);
    assert_int_equal(change_pool(f, STORE_POOL_RENAME, "hot", "new", "ab", NULL, &err), ERR_INVALID);
    assert_int_equal(change_pool(f, STORE_POOL_ADD, "none", NULL, "ab", "d", &err), ERR_INVALID);
    expect_pools(f, "hot=abc");
}

/* --- promises: what is told --- */

static void it_counts(struct store_fixture *f)
{
    struct store_stats before = stats(f);
    assert_true(f->store->ops->seed(f->store) == SEED);
    assert_non_null(f->store->engine);
    play(f, "u", "a");
    deliver(f, "u", "d");
    struct store_stats now = stats(f);
    assert_int_equal(now.rows_recorded - before.rows_recorded, 2);
    assert_int_equal(now.staged_rows, 2);
    assert_int_equal(forget(f, "u", "a"), 1);
    assert_int_equal(forget(f, "u", NULL), 1);
    now = stats(f);
    assert_int_equal(now.users_forgotten, 1);
    assert_int_equal(now.items_forgotten, 1);
}

/* --- every promise over every engine --- */

static const struct promise {
    const char *name;
    void (*keep)(struct store_fixture *f);
} promises[] = {
#define PROMISE(name)                                                                                                  \
    {                                                                                                                  \
#name, name                                                                                                    \
    }
    PROMISE(nothing_of_unknown_users),
    PROMISE(seen_after_the_answer),
    PROMISE(many_are_under_way),
    PROMISE(again_is_once),
    PROMISE(positions_go_with_their_batch),
    PROMISE(a_replay_undoes_no_forget),
    PROMISE(a_replay_undoes_no_unseeing),
    PROMISE(ids_of_any_bytes),
    PROMISE(many_users),
    PROMISE(users_who_share_a_key),
    PROMISE(writes_in_their_order),
    PROMISE(no_load_waits),
    PROMISE(deliveries_newest_first),
    PROMISE(deliveries_have_times),
    PROMISE(deliveries_have_groups),
    PROMISE(what_fell_off_stays_off),
    PROMISE(deliveries_of_any_history),
    PROMISE(a_user_is_forgotten),
    PROMISE(items_are_unseen_until_played),
    PROMISE(items_are_counted_once),
    PROMISE(the_window_begins_where_it_is_asked),
    PROMISE(plays_end_with_their_retention),
    PROMISE(a_jump_is_doubted),
    PROMISE(the_large_are_scanned),
    PROMISE(users_are_united),
    PROMISE(drawn_users_are_united_alike),
    PROMISE(imports_are_united_by_time),
    PROMISE(an_import_undoes_no_forget),
    PROMISE(an_import_brings_the_forgets_of_items),
    PROMISE(an_import_may_end_the_forget_of_an_item),
    PROMISE(what_is_wrong_is_not_imported),
    PROMISE(damage_goes_along),
    PROMISE(merged_is_hidden_by_either),
    PROMISE(merges_mind_no_forget),
    PROMISE(a_merge_may_forget),
    PROMISE(a_merge_of_nothing_changes_nothing),
    PROMISE(a_full_month_is_not_merged),
    PROMISE(merges_in_their_order),
    PROMISE(pools_are_kept),
    PROMISE(pools_change_as_they_are),
    PROMISE(it_counts),
};

enum { WAYS = sizeof ways / sizeof *ways, PROMISES = sizeof promises / sizeof *promises };

struct run {
    const struct way *way;
    const struct promise *promise;
    char name[96];
};

static void run_one(void **state)
{
    const struct run *run = *state;
    struct store_fixture *f = store_fixture_new("conformance");
    way = run->way;
    f->cfg.delivered_max = LAST;
    open_engine(f);
    run->promise->keep(f);
    store_fixture_free(f);
    if (pool != NULL) {
        memory_pool_free(pool);
        pool = NULL;
    }
}

int main(int argc, char **argv)
{
    static struct run runs[WAYS * PROMISES];
    static struct CMUnitTest tests[WAYS * PROMISES];
    begin_tests(argc, argv);
    for (int i = 0; i < WAYS * PROMISES; i++) {
        struct run *run = &runs[i];
        run->way = &ways[i / PROMISES];
        run->promise = &promises[i % PROMISES];
        snprintf(run->name, sizeof run->name, "%s: %s", run->way->name, run->promise->name);
        tests[i] = (struct CMUnitTest){.name = run->name, .test_func = run_one, .initial_state = run};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
