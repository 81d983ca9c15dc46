/* The feed with several consumers through the store's seam, on a file system that fails on demand: each gets what was
 * recorded while it listened, in its order and once, or is lost and says so; and nothing stays that nobody waits for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "store/user/deliveries.h"
#include "tests/lib/store_calls.h"

enum { READ_MAX = 3000, LIMIT = 10000 };

static struct arena arena;
static struct feed_event waiting[READ_MAX];
static uint64_t limits[2]; /* of "slow" and "fast" */

static uint64_t slow_limit(const struct config *live)
{
    (void)live;
    return limits[0];
}

static uint64_t fast_limit(const struct config *live)
{
    (void)live;
    return limits[1];
}

static void listen(struct store_fixture *f, const char *name)
{
    struct err err = {0};
    const struct feed_consumer c = {name, strcmp(name, "slow") == 0 ? slow_limit : fast_limit, NULL, NULL};
    assert_int_equal(f->store->feed->listen(f->store, &c, &err), 0);
}

static void open_both(struct store_fixture *f)
{
    open_store(f);
    listen(f, "slow");
    listen(f, "fast");
}

static int setup(void **state)
{
    struct store_fixture *f = store_fixture_new("feed");
    limits[0] = limits[1] = LIMIT;
    open_both(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    store_fixture_free(*state);
    arena_free(&arena);
    return 0;
}

static void play_some(struct store_fixture *f, const char *user, int n)
{
    for (int i = 0; i < n; i++) {
        play(f, user, "an item");
    }
}

static void move_position(struct store_fixture *f, const char *source, int64_t next)
{
    int done = 0;
    const struct store_position position = {slice_str(source), next};
    struct store_batch batch = {.positions = &position, .n_positions = 1, .done = batch_done, .owner = &done};
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    assert_int_equal(batch.err.code, 0);
}

static void enlist(struct store_fixture *f, const char *name)
{
    int done = 0;
    struct feed_enlist e = {.call = {.done = call_done, .owner = &done}, .consumer = name};
    f->store->feed->enlist(f->store, &e);
    wait_flag(&done);
    assert_int_equal(e.call.err.code, 0);
}

static struct feed_state state_of(struct store_fixture *f, const char *name)
{
    struct feed_state s;
    feed_state_of(f->store, name, &s);
    return s;
}

/* What waits for it; checks that the totals agree. */
static int read_all(struct store_fixture *f, const char *name)
{
    struct err err = {0};
    uint64_t bytes = 0;
    arena_reset(&arena);
    int n = f->store->feed->read(f->reader, name, 0, waiting, READ_MAX, &arena, &err);
    assert_true(n >= 0);
    for (int i = 0; i < n; i++) {
        assert_true(i == 0 || waiting[i].seq > waiting[i - 1].seq);
        bytes += feed_event_bytes(waiting[i].user, waiting[i].item, waiting[i].group);
    }
    assert_int_equal(state_of(f, name).events, n);
    assert_int_equal(state_of(f, name).bytes, bytes);
    return n;
}

static void do_some(struct store_fixture *f, const char *name, int n)
{
    uint64_t bytes = 0;
    assert_true(read_all(f, name) >= n);
    for (int i = 0; i < n; i++) {
        bytes += feed_event_bytes(waiting[i].user, waiting[i].item, waiting[i].group);
    }
    f->store->feed->done(f->store, name, waiting[n - 1].seq, (uint64_t)n, bytes);
}

static void reset(struct store_fixture *f, const char *name)
{
    int done = 0;
    struct feed_reset r = {.call = {.done = call_done, .owner = &done}, .consumer = name};
    f->store->feed->reset(f->store, &r);
    wait_flag(&done);
    assert_int_equal(r.call.err.code, 0);
}

static int64_t rows(struct store_fixture *f)
{
    struct store_call c = {.done = call_done};
    int done = 0;
    c.owner = &done;
    f->store->ops->tick(f->store, &c); /* what nobody waits for is deleted */
    wait_flag(&done);
    return ask(f, "staging", "SELECT count(*) FROM feed");
}

/* --- tests --- */

/* Each has a cursor of its own; rows go once both are past them; both survive a stop and a kill. */
static void test_slow_and_fast(void **state)
{
    struct store_fixture *f = *state;
    play_some(f, "u", 10);
    do_some(f, "fast", 10);
    do_some(f, "slow", 3);
    assert_int_equal(rows(f), 7);
    assert_int_equal(read_all(f, "slow"), 7);
    assert_int_equal(read_all(f, "fast"), 0);
    assert_int_equal(state_of(f, "slow").place, FEED_BEHIND);
    assert_int_equal(state_of(f, "fast").place, FEED_IN_STEP);
    close_store(f);
    open_both(f);
    assert_int_equal(read_all(f, "slow"), 7);
    assert_int_equal(read_all(f, "fast"), 0);
    play_some(f, "v", 2);
    kill_store(f);
    open_both(f);
    assert_int_equal(read_all(f, "slow"), 9);
    assert_int_equal(read_all(f, "fast"), 2);
    assert_memory_equal(waiting[0].user.data, "v", 1);
    do_some(f, "slow", 9);
    do_some(f, "fast", 2);
    assert_int_equal(rows(f), 0);
    assert_int_equal(state_of(f, "slow").cursor, state_of(f, "fast").cursor);
    assert_int_equal(state_of(f, "slow").cursor, state_of(f, "slow").last);
}

/* What was done and is not written down is read once more after a crash, never passed over. */
static void test_killed_before_the_cursor_is_durable(void **state)
{
    struct store_fixture *f = *state;
    play_some(f, "u", 5);
    do_some(f, "fast", 5);
    kill_store(f);
    open_both(f);
    assert_int_equal(read_all(f, "fast"), 5);
    do_some(f, "fast", 5);
    assert_int_equal(rows(f), 5);
    kill_store(f);
    open_both(f);
    assert_int_equal(read_all(f, "fast"), 0);
    assert_int_equal(read_all(f, "slow"), 5);
}

/* One who comes later gets what is recorded from then on. */
static void test_a_later_one(void **state)
{
    struct store_fixture *f = *state;
    play_some(f, "u", 5);
    listen(f, "later");
    assert_int_equal(read_all(f, "later"), 0);
    play_some(f, "v", 2);
    assert_int_equal(read_all(f, "later"), 2);
    assert_int_equal(read_all(f, "slow"), 7);
    kill_store(f);
    open_both(f);
    listen(f, "later");
    assert_int_equal(read_all(f, "later"), 2);
}

/* The slow one is lost when its limit is reached; the fast one is not concerned, and what it has done goes. */
static void test_lost(void **state)
{
    struct store_fixture *f = *state;
    limits[0] = 10 * feed_event_bytes(slice_str("u"), slice_str("an item"), 0);
    play_some(f, "u", 10);
    do_some(f, "fast", 10);
    assert_int_equal(state_of(f, "slow").place, FEED_BEHIND);
    clock_test_advance(5);
    play_some(f, "v", 20);
    struct feed_state s = state_of(f, "slow");
    assert_int_equal(s.place, FEED_LOST);
    assert_int_equal(s.left_out, 20);
    assert_int_equal(s.lost_ms, START + 5);
    assert_int_equal(s.since_ms, START + 5);
    assert_int_equal(read_all(f, "slow"), 10);
    assert_int_equal(rows(f), 30);
    do_some(f, "fast", 15);
    assert_int_equal(rows(f), 10 + 5); /* what only the lost one misses doesn't stay */
    kill_store(f);
    open_both(f);
    s = state_of(f, "slow");
    assert_true(s.place == FEED_LOST && s.left_out == 20 && s.lost_ms == START + 5);
    assert_int_equal(read_all(f, "slow"), 10);
    assert_int_equal(read_all(f, "fast"), 5);

    do_some(f, "slow", 9);
    play_some(f, "w", 1); /* room alone doesn't help: what lies before would be missing in between */
    assert_int_equal(state_of(f, "slow").left_out, 21);
    assert_int_equal(read_all(f, "slow"), 1);
    do_some(f, "slow", 1);
    play_some(f, "x", 3); /* from here on it has everything again, and is lost for what it misses */
    assert_int_equal(read_all(f, "slow"), 3);
    assert_memory_equal(waiting[0].user.data, "x", 1);
    assert_int_equal(state_of(f, "slow").place, FEED_LOST);
    reset(f, "slow");
    s = state_of(f, "slow");
    assert_true(s.place == FEED_BEHIND && s.left_out == 0 && s.events == 3);
    do_some(f, "fast", 9);
    assert_int_equal(rows(f), 3);
    do_some(f, "slow", 3);
    assert_int_equal(rows(f), 0);
    close_store(f);
    open_both(f);
    assert_int_equal(state_of(f, "slow").place, FEED_IN_STEP);
}

/* One who doesn't listen in a run is lost by what it misses, and can be given up. */
static void test_absent(void **state)
{
    struct store_fixture *f = *state;
    play_some(f, "u", 4);
    close_store(f);
    open_store(f);
    listen(f, "fast");
    assert_int_equal(state_of(f, "slow").place, FEED_BEHIND);
    forget(f, "stranger", NULL); /* of whom there is nothing to be erased here */
    struct feed_state s = state_of(f, "slow");
    assert_true(s.place == FEED_LOST && s.left_out == 0 && !s.listens && s.events == 4);
    assert_int_equal(read_all(f, "fast"), 5);
    do_some(f, "fast", 5);
    assert_int_equal(rows(f), 4);
    reset(f, "slow");
    assert_int_equal(state_of(f, "slow").name[0], '\0');
    assert_int_equal(rows(f), 0);
    reset(f, "slow"); /* is nobody now */
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM feed_consumers"), 1);
}

/* A commit that fails changes nobody: neither what waits nor who is lost. */
static void test_failed_commits(void **state)
{
    struct store_fixture *f = *state;
    play_some(f, "u", 2);
    limits[0] = 1;
    for (int i = 0; i < 2; i++) {
        vfs_fault_add(&(struct vfs_rule){
            .ops = i == 0 ? VFS_WRITE : VFS_SYNC, .file = "staging.db-wal", .nth = 1, .action = VFS_EIO});
        assert_true(record_at(f, STORE_PLAY, clock_wall_ms(), "u", "lost") < 0);
        vfs_fault_heal();
        assert_int_equal(state_of(f, "slow").place, FEED_BEHIND);
        assert_int_equal(read_all(f, "slow"), 2);
        assert_int_equal(read_all(f, "fast"), 2);
    }
    limits[0] = LIMIT;
    play_some(f, "u", 1);
    kill_store(f);
    open_both(f);
    assert_int_equal(state_of(f, "slow").place, FEED_BEHIND);
    assert_int_equal(read_all(f, "slow"), 3);
    assert_int_equal(read_all(f, "fast"), 3);
}

/* Nobody has the file open beside, so what it has written is found when it is opened again: also who was lost by it. */
static void test_a_failed_commit_that_was_written(void **state)
{
    struct store_fixture *f = *state;
    play_some(f, "u", 2);
    limits[0] = 1;
    rule(VFS_SYNC, "staging.db-wal", 1, false, VFS_EIO);
    assert_true(record_at(f, STORE_PLAY, clock_wall_ms(), "u", "lost") < 0);
    vfs_fault_heal();
    limits[0] = LIMIT;
    play_some(f, "u", 1);
    kill_store(f);
    open_both(f);
    assert_int_equal(state_of(f, "slow").place, FEED_BEHIND);
    assert_int_equal(state_of(f, "slow").left_out, 0);
    assert_int_equal(read_all(f, "slow"), 3);
    assert_int_equal(read_all(f, "fast"), 3);
}

/* The age of the oldest that waits. */
static void test_lag(void **state)
{
    struct store_fixture *f = *state;
    assert_int_equal(state_of(f, "fast").behind_ms, 0);
    play_some(f, "u", 1);
    clock_test_advance(1000);
    play_some(f, "u", 1);
    clock_test_advance(500);
    assert_int_equal(state_of(f, "fast").behind_ms, 1500);
    do_some(f, "fast", 1);
    assert_int_equal(read_all(f, "fast"), 1);
    assert_int_equal(state_of(f, "fast").behind_ms, 500);
    kill_store(f);
    open_both(f);
    assert_int_equal(state_of(f, "slow").behind_ms, 1500);
    assert_int_equal(state_of(f, "slow").since_ms, START);
    do_some(f, "slow", 2);
    assert_int_equal(state_of(f, "slow").behind_ms, 0);
    play_some(f, "u", 1); /* after a while in which nothing waited */
    assert_int_equal(state_of(f, "slow").behind_ms, 0);
}

/* It stops before an event that it doesn't know, and says who does. */
static void test_a_kind_of_a_later_version(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    play_some(f, "u", 3);
    uint64_t second = (read_all(f, "fast"), waiting[1].seq);
    close_store(f);
    char sql[160];
    snprintf(
        sql, sizeof sql,
        "UPDATE feed SET kind = 99 WHERE seq = %d; UPDATE meta SET value = 'unseen 7.8.9' WHERE name = 'feed_needs'",
        (int)second);
    damage(f, "staging", sql);
    open_both(f);
    assert_int_equal(f->store->feed->read(f->reader, "fast", 0, waiting, READ_MAX, &arena, &err), 1);
    assert_int_equal(f->store->feed->read(f->reader, "fast", second - 1, waiting, READ_MAX, &arena, &err), ERR_VERSION);
    assert_non_null(strstr(err.text, "is of kind 99, which unseen "));
    assert_non_null(strstr(err.text, "use unseen 7.8.9, or a later one"));
    assert_int_equal(state_of(f, "fast").events, 3);
}

/* What people read in the shell. */
static void test_views(void **state)
{
    struct store_fixture *f = *state;
    listen(f, "mirror");
    play_some(f, "u", 2);
    do_some(f, "mirror", 1);
    do_some(f, "fast", 2);
    assert_int_equal(rows(f), 2);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM mirror_queue WHERE kind = 'play' AND user = 'u'"), 1);
    assert_int_equal(ask(f, "staging", "SELECT events FROM feed_lag WHERE name = 'slow' AND state = 'behind'"), 2);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM feed_lag WHERE name = 'fast' AND state = 'in step'"), 1);
}

/* A delivery keeps its group in the feed and in its slot, over a crash too, and people see it apart from the item. */
static void test_groups(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    struct store_view view;
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    const struct slice items[] = {slice_str("a"), slice_of("\xff+1", 3), slice_str("none")};
    const uint64_t hashes[] = {hash_id(SEED, items[0]), hash_id(SEED, items[1]), hash_id(SEED, items[2])};
    const uint64_t groups[] = {UINT64_MAX, 7, 0};
    listen(f, "mirror");
    assert_int_equal(store_batch_add_groups(&batch, STORE_DELIVERY, clock_wall_ms(), STORE_STAMPED, key_of("u"),
                                            slice_str("u"), items, hashes, groups, 3),
                     0);
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    assert_int_equal(batch.err.code, 0);
    buf_free(&batch.bytes);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(read_all(f, "fast"), 3);
        assert_int_equal(load(f, f->reader, "u", &view, &err), 0);
        assert_int_equal(view.n_deliveries, 3);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(waiting[i].kind, FEED_DELIVERY);
            assert_true(slice_eq(waiting[i].item, items[i]) && waiting[i].group == groups[i]);
            assert_true(delivered_group(view.deliveries, view.n_deliveries, hashes[i]) == groups[i]);
        }
        assert_int_equal(ask(f, "staging", "SELECT count(*) FROM mirror_queue WHERE kind = 'delivery' AND item = 'a'"),
                         1);
        assert_int_equal(ask(f, "staging", "SELECT group_hash FROM staged WHERE item = 'a' AND kind = 'delivery'"), -1);
        assert_int_equal(ask(f, "staging", "SELECT group_hash FROM staged WHERE item = x'ff2b31'"), 7);
        assert_int_equal(ask(f, "staging", "SELECT group_hash IS NULL FROM staged WHERE item = 'none'"), 1);
        kill_store(f);
        open_both(f);
    }
    close_store(f);
    damage(f, "staging", "UPDATE feed SET item = 'a' WHERE kind = 9");
    open_both(f);
    assert_int_equal(f->store->feed->read(f->reader, "fast", 0, waiting, READ_MAX, &arena, &err), ERR_CORRUPT);
}

static void test_too_many(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    struct feed_consumer c = {"", slow_limit, NULL, NULL};
    assert_int_equal(f->store->feed->listen(f->store, &c, &err), ERR_INVALID);
    char name[FEED_NAME_MAX];
    c.name = name;
    for (int i = 2; i <= FEED_CONSUMERS_MAX; i++) {
        snprintf(name, sizeof name, "c%d", i);
        assert_int_equal(f->store->feed->listen(f->store, &c, &err), i < FEED_CONSUMERS_MAX ? 0 : ERR_INVALID);
    }
    struct feed_state all[FEED_CONSUMERS_MAX];
    assert_int_equal(f->store->feed->states(f->store, all), FEED_CONSUMERS_MAX);
    play_some(f, "u", 1);
    assert_int_equal(read_all(f, "c15"), 1);
}

/* What a replica does for the others: it keeps what comes by its time alone, and finds where one of them goes on.
 */
static void test_marks(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    uint64_t seq = 0, first;
    const struct slice node = slice_str("feed:00000000000000aa:");
    enlist(f, FEED_REMOTE "00000000000000bb"); /* without a remote one no position is told */
    assert_int_equal(f->store->feed->mark(f->reader, node, 100, &seq, &err), 0);
    play_some(f, "ann", 3);
    move_position(f, "feed:00000000000000aa:01", 40);
    first = f->store->feed->last(f->store);
    play_some(f, "ann", 2);
    move_position(f, "feed:00000000000000aa:02", 60);
    move_position(f, "feed:00000000000000ab:01", 50); /* another node */
    move_position(f, "topic", 55);
    assert_int_equal(f->store->feed->mark(f->reader, node, 39, &seq, &err), 0);
    assert_int_equal(f->store->feed->mark(f->reader, node, 59, &seq, &err), 1);
    assert_int_equal(seq, first);
    assert_int_equal(f->store->feed->mark(f->reader, node, 60, &seq, &err), 1);
    assert_true(seq > first + 2 && seq < f->store->feed->last(f->store));
    assert_int_equal(f->store->feed->mark(f->reader, slice_str("feed:"), 52, &seq, &err), 1);
    assert_int_equal(seq, f->store->feed->last(f->store) - 1);
    assert_int_equal(f->store->feed->mark(f->reader, slice_str(""), 52, &seq, &err), ERR_INVALID);
}

/* Also one that no row has: a replica that has heard of it would pass over what gets it again. */
static void test_no_id_is_given_twice(void **state)
{
    struct store_fixture *f = *state;
    static const char remote[] = FEED_REMOTE "00000000000000bb";
    struct err err = {0};
    uint64_t last = 0;
    close_store(f);
    open_store(f); /* it is the only one, so nothing stays once it is given up */
    for (int taken = 1; taken >= 0; taken--) {
        for (int what = 0; what < 2; what++) {
            enlist(f, remote);
            f->cfg.feed_max = taken ? 64 * 1024 * 1024 : 0;
            if (what == 0) {
                move_position(f, "stepdown", 2);
            } else {
                assert_int_equal(change_pool(f, STORE_POOL_SET, "pool", NULL, NULL, "abc", &err), 0);
            }
            assert_true(f->store->feed->last(f->store) > last);
            last = f->store->feed->last(f->store);
            assert_int_equal(read_all(f, remote), taken);
            reset(f, remote);
            kill_store(f);
            open_store(f);
            assert_int_equal(f->store->feed->last(f->store), last);
        }
    }
}

/* It kept them in the feed alone. */
static void test_no_id_of_an_earlier_release_is_given_twice(void **state)
{
    struct store_fixture *f = *state;
    static const char remote[] = FEED_REMOTE "00000000000000bb";
    close_store(f);
    open_store(f);
    enlist(f, remote);
    uint64_t before = f->store->feed->last(f->store);
    move_position(f, "stepdown", 2);
    uint64_t last = f->store->feed->last(f->store);
    assert_int_equal(last, before + 1);
    kill_store(f);
    damage(f, "staging", "UPDATE meta SET value = value - 1 WHERE name = 'high_water'");
    open_store(f);
    reset(f, remote);
    kill_store(f);
    open_store(f);
    assert_int_equal(f->store->feed->last(f->store), last);
}

static void test_skip(void **state)
{
    struct store_fixture *f = *state;
    play_some(f, "ann", 5);
    f->store->feed->pass(f->store, "slow");
    f->store->feed->pass(f->store, "nobody");
    assert_int_equal(read_all(f, "slow"), 0);
    assert_int_equal(state_of(f, "slow").cursor, f->store->feed->last(f->store));
    assert_int_equal(read_all(f, "fast"), 5); /* another's is its own */
    play_some(f, "ann", 2);
    assert_int_equal(read_all(f, "slow"), 2);
    limits[0] = 1; /* lost: what it misses is not done by skipping what waits */
    play_some(f, "ann", 2);
    assert_int_equal(state_of(f, "slow").place, FEED_LOST);
    f->store->feed->pass(f->store, "slow");
    assert_int_equal(state_of(f, "slow").place, FEED_LOST);
    assert_int_equal(state_of(f, "slow").events, 2);
}

enum { PLAYS = 3000 };

struct going {
    struct store_fixture *f;
    _Atomic bool *ended;
    const char *name;
    int seen;
    int code;
};

/* As the front's writer: what it has read goes as far as was said before it read. */
static void *read_on(void *arg)
{
    struct going *g = arg;
    const struct store_feed_ops *feed = g->f->store->feed;
    struct store_reader *reader = NULL;
    struct feed_event *events = calloc(PLAYS, sizeof *events);
    struct feed_state states[FEED_CONSUMERS_MAX];
    struct arena own = {0};
    struct err err = {0};
    g->code = events == NULL ? ERR_NOMEM : g->f->store->ops->reader_open(g->f->store, &reader, &err);
    uint64_t to = 0;
    for (bool ended = false; g->code == 0 && !ended;) {
        ended = atomic_load(g->ended);
        uint64_t last = feed->last(g->f->store);
        if (last == to) {
            feed->states(g->f->store, states); /* as others do, who look at it meanwhile */
            continue;
        }
        arena_reset(&own);
        int n = feed->read(reader, g->name, to, events, PLAYS, &own, &err);
        g->code = n < 0 ? n : 0;
        g->seen += n > 0 ? n : 0;
        to = n > 0 && events[n - 1].seq > last ? events[n - 1].seq : last;
    }
    if (reader != NULL) {
        g->f->store->ops->reader_close(reader);
    }
    arena_free(&own);
    free(events);
    return NULL;
}

/* All up to the last one can be read at once. Two readers, who keep each other and the writer waiting. */
static void test_read_while_it_grows(void **state)
{
    struct store_fixture *f = *state;
    _Atomic bool ended = false;
    struct going going[] = {{.f = f, .ended = &ended, .name = "slow"}, {.f = f, .ended = &ended, .name = "fast"}};
    pthread_t threads[2];
    limits[0] = limits[1] = 1 << 30;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, &going[i]), 0);
    }
    play_some(f, "ann", PLAYS);
    atomic_store(&ended, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(going[i].code, 0);
        assert_int_equal(going[i].seen, PLAYS);
    }
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
#undef TEST
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_slow_and_fast),
        TEST(test_killed_before_the_cursor_is_durable),
        TEST(test_a_later_one),
        TEST(test_lost),
        TEST(test_absent),
        TEST(test_failed_commits),
        TEST(test_a_failed_commit_that_was_written),
        TEST(test_lag),
        TEST(test_a_kind_of_a_later_version),
        TEST(test_views),
        TEST(test_groups),
        TEST(test_too_many),
        TEST(test_marks),
        TEST(test_no_id_is_given_twice),
        TEST(test_no_id_of_an_earlier_release_is_given_twice),
        TEST(test_skip),
        TEST(test_read_while_it_grows),
    };
    return cmocka_run_group_tests_name("feed", tests, NULL, NULL);
}
