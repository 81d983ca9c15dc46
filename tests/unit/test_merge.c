/* What an old primary brings when it rejoins, over a real store: its plays and forgets count by the time at which they
 * happened, whatever was recorded here since, and however often they are brought. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "replica/change_impl.h"
#include "replica/event.h"
#include "replica/replica.h"
#include "store/bulk.h"
#include "store/codec/user_snapshot.h"
#include "store/positions.h"
#include "tests/lib/store_calls.h"

enum { OLD = 0xaa, RUN = 0xbb, COMMON = 100 };
static const char consumer[] = FEED_REMOTE "00000000000000aa";

struct fixture {
    struct store_fixture *f;
    struct dedup dedup;
    struct replica r;
    struct buf events;
    struct event_state state;
    uint64_t seq;
};

static void start(struct fixture *x)
{
    open_store(x->f);
    dedup_init(&x->dedup, x->f->store, &x->f->cfg);
    x->r = (struct replica){.dedup = &x->dedup, .store = x->f->store, .cfg = &x->f->cfg};
    reach_init(&x->r.reach, &x->f->cfg, "", "");
}

static uint64_t limit(const struct config *live)
{
    return (uint64_t)live->feed_max;
}

/* As a promotion does it: from now on all is kept for the old primary. */
static void part(struct fixture *x, uint64_t node)
{
    int done = 0;
    struct err err = {0};
    struct store *s = x->f->store;
    struct feed_enlist e = {.call = {.done = call_done, .owner = &done}, .consumer = consumer};
    s->feed->enlist(s, &e);
    wait_flag(&done);
    assert_int_equal(e.call.err.code, 0);
    assert_int_equal(s->feed->listen(s, &(struct feed_consumer){consumer, limit, NULL, NULL}, &err), 0);
    const struct store_position positions[] = {{slice_str("promoted:node"), (int64_t)node},
                                               {slice_str("promoted:run"), RUN},
                                               {slice_str("promoted:common"), COMMON},
                                               {slice_str("promoted:at"), (int64_t)s->feed->last(s)}};
    struct store_batch batch = {.positions = positions, .n_positions = 4};
    assert_int_equal(change_record(s, &batch, &err), 0);
}

static int setup(void **state)
{
    struct fixture *x = *state = calloc(1, sizeof *x);
    x->f = store_fixture_new("merge");
    start(x);
    x->seq = COMMON;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    close_store(x->f);
    store_fixture_free(x->f);
    buf_free(&x->events);
    free(x);
    return 0;
}

/* --- what the old one has --- */

static void put(struct fixture *x, enum feed_kind kind, int64_t at, const char *user, const char *item)
{
    uint64_t hash = kind == FEED_UNSEE_HASH ? hash_id(SEED, slice_str(item)) : 0;
    struct feed_event e = {++x->seq, kind, slice_str(user), slice_str(item), at, at, 0};
    if (kind == FEED_UNSEE_HASH) {
        e.item = slice_of((const char *)&hash, sizeof hash);
    }
    assert_int_equal(event_write(&x->state, &e, &x->events), 0);
}

static struct change bring_as(struct fixture *x, bool forgets, bool force, int wanted)
{
    struct change ch = {.kind = CHANGE_MERGE,
                        .node = OLD,
                        .run = RUN,
                        .to = x->seq,
                        .forgets = forgets,
                        .force = force,
                        .events = buf_slice(&x->events)};
    struct err err = {0};
    assert_int_equal(change_merge(&x->r, &ch, &err), wanted);
    return ch;
}

static void bring(struct fixture *x)
{
    assert_int_equal(bring_as(x, false, false, 0).left, 0);
    buf_clear(&x->events);
    x->state = (struct event_state){0};
}

static void assert_seen(struct fixture *x, const char *user, const char *items, const char *wanted)
{
    char item[2] = "";
    for (size_t i = 0; items[i] != '\0'; i++) {
        item[0] = items[i];
        if (seen(x->f, user, item) != (wanted[i] == '1')) {
            fail_msg("%s %s: expected %c of %s", user, item, wanted[i], wanted);
        }
    }
}

static void later(struct fixture *x)
{
    advance(x->f, 1000);
}

/* --- tests --- */

static void plays_count_by_their_time(void **state)
{
    struct fixture *x = *state;
    part(x, OLD);
    int64_t before = clock_wall_ms();
    later(x);
    forget(x->f, "ann", NULL);
    forget(x->f, "bob", "b");
    put(x, FEED_PLAY, before, "ann", "a");
    put(x, FEED_DELIVERY, clock_wall_ms() + 1, "ann", "b");
    put(x, FEED_PLAY, before, "bob", "a");
    put(x, FEED_PLAY, before, "bob", "b");
    bring(x);
    assert_seen(x, "ann", "ab", "01");
    assert_seen(x, "bob", "ab", "10");
}

/* What the old one has forgotten goes, and what came here later stays. */
/* Whatever its time: what was acknowledged here since the promotion stays. */
static void a_forget_ends_what_both_had(void **state)
{
    struct fixture *x = *state;
    play(x->f, "ann", "a");
    play(x->f, "bob", "a");
    part(x, OLD);
    play(x->f, "ann", "b");
    later(x);
    int64_t at = clock_wall_ms();
    later(x);
    play(x->f, "ann", "c");
    deliver(x->f, "ann", "d");
    play(x->f, "bob", "a");
    play(x->f, "bob", "b");
    flush(x->f);
    put(x, FEED_PLAY, at - 1, "ann", "x");
    put(x, FEED_FORGET, at, "ann", "");
    put(x, FEED_PLAY, at, "ann", "y"); /* of the same millisecond, and behind it */
    put(x, FEED_UNSEE, at, "bob", "a");
    bring(x);
    assert_seen(x, "ann", "abcdxy", "011101");
    assert_seen(x, "bob", "ab", "11");
}

static int nothing_more(struct store_forget *forget, struct err *err)
{
    (void)forget;
    (void)err;
    return 0;
}

static int cannot_be_told(struct store_forget *forget, struct err *err)
{
    (void)forget;
    return err_set(err, ERR_STALE, "no");
}

/* Once more, and in the middle of it the server was killed: what the first try has forgotten is in the feed now. */
static void repeated_it_ends_no_more(void **state)
{
    struct fixture *x = *state;
    play(x->f, "ann", "a");
    part(x, OLD);
    later(x);
    int64_t at = clock_wall_ms();
    later(x);
    play(x->f, "ann", "b");
    put(x, FEED_FORGET, at, "ann", "");
    put(x, FEED_PLAY, at + 1, "ann", "c");
    /* The first try ends behind the forget, and what that spares. */
    int done = 0;
    struct slice item = slice_str("b");
    uint64_t hash = hash_id(SEED, item);
    struct store_batch spared = {.events = 0};
    assert_int_equal(
        store_batch_add(&spared, STORE_PLAY, at + 1, STORE_STATED, key_of("ann"), slice_str("ann"), &item, &hash, 1),
        0);
    struct store_forget first = {.key = key_of("ann"),
                                 .user = slice_str("ann"),
                                 .first_month = INT32_MIN,
                                 .stated_ms = at,
                                 .spared = &spared,
                                 .gather = nothing_more,
                                 .done = forget_done,
                                 .owner = &done};
    x->f->store->ops->forget(x->f->store, &first);
    wait_flag(&done);
    buf_free(&spared.bytes);
    assert_seen(x, "ann", "abc", "010");
    kill_store(x->f);
    start(x);
    bring_as(x, false, false, 0);
    assert_seen(x, "ann", "abc", "011");
    forget(x->f, "ann", "b");
    bring(x); /* all of it is here */
    assert_seen(x, "ann", "abc", "001");
}

/* With the store's own words: what is spared comes with the forget, or neither does. */
static void spared_with_the_forget_or_not_at_all(void **state)
{
    struct fixture *x = *state;
    int64_t at = clock_wall_ms();
    part(x, OLD);
    play(x->f, "ann", "a");
    play(x->f, "ann", "b");
    flush(x->f);
    play(x->f, "ann", "c");
    struct slice item = slice_str("b");
    uint64_t hash = hash_id(SEED, item);
    for (int i = 0; i < 3; i++) {
        int done = 0;
        struct store_batch spared = {.events = 0};
        assert_int_equal(
            store_batch_add(&spared, STORE_PLAY, at, STORE_STATED, key_of("ann"), slice_str("ann"), &item, &hash, 1),
            0);
        struct store_forget forget = {.key = key_of("ann"),
                                      .user = slice_str("ann"),
                                      .first_month = INT32_MIN,
                                      .stated_ms = at - 1,
                                      .spared = &spared,
                                      .gather = i == 0 ? cannot_be_told : nothing_more,
                                      .done = forget_done,
                                      .owner = &done};
        if (i == 1) {
            rule(VFS_SYNC, "staging.db-wal", 1, true, VFS_EIO);
        }
        x->f->store->ops->forget(x->f->store, &forget);
        wait_flag(&done);
        vfs_fault_heal();
        assert_int_equal(forget.err.code, i == 0 ? ERR_STALE : i == 1 ? ERR_IO : 0);
        assert_seen(x, "ann", "abc", i == 2 ? "010" : "111");
        buf_free(&spared.bytes);
    }
    kill_store(x->f);
    start(x);
    assert_seen(x, "ann", "abc", "010");
    flush(x->f);
    assert_seen(x, "ann", "abc", "010");
    kill_store(x->f);
    start(x);
    assert_seen(x, "ann", "abc", "010");
}

/* Several forgets of one user, one behind the other: each spares what was recorded here. */
static void each_forget_spares_what_is_newer(void **state)
{
    struct fixture *x = *state;
    int64_t at[4];
    play(x->f, "ann", "a");
    play(x->f, "bob", "a");
    part(x, OLD);
    for (int i = 0; i < 4; i++) {
        const char item[] = {(char)('b' + i), '\0'};
        later(x);
        at[i] = clock_wall_ms();
        later(x);
        play(x->f, "ann", item);
        play(x->f, "bob", item);
    }
    forget(x->f, "ann", "c");
    put(x, FEED_FORGET, at[1], "ann", "");
    put(x, FEED_PLAY, at[1] + 1, "ann", "x"); /* which the last one ends */
    put(x, FEED_UNSEE, at[2], "ann", "d");
    put(x, FEED_UNSEE, at[3] + HOUR_MS, "ann", "d"); /* a clock that is ahead */
    put(x, FEED_UNSEE, at[3], "bob", "e");
    put(x, FEED_UNSEE, at[3], "bob", "a");
    put(x, FEED_FORGET, at[3] + HOUR_MS, "bob", "");
    put(x, FEED_FORGET, at[3] + HOUR_MS, "ann", "");
    bring(x);
    assert_seen(x, "ann", "abcdex", "010110");
    assert_seen(x, "bob", "abcde", "01111");
    flush(x->f);
    assert_seen(x, "ann", "abcdex", "010110");
}

/* A client's forget holds, whether it comes before or behind what the old one's has ended. */
static void clients_forgets_hold(void **state)
{
    struct fixture *x = *state;
    int64_t at = clock_wall_ms();
    part(x, OLD);
    later(x);
    for (int i = 0; i < 2; i++) {
        const char *user = i == 0 ? "ann" : "bob";
        play(x->f, user, "a");
        forget(x->f, user, "z"); /* once this made the plays before it come back */
        play(x->f, user, "b");
        forget(x->f, user, "b");
        if (i == 0) {
            forget(x->f, user, NULL);
        }
        play(x->f, user, "c"); /* of the same millisecond as the forget before it */
        play(x->f, user, "d");
        forget(x->f, user, "d");
        play(x->f, user, "d");
    }
    put(x, FEED_FORGET, at, "ann", "");
    put(x, FEED_FORGET, at, "bob", "");
    put(x, FEED_UNSEE, at, "bob", "a");
    bring(x);
    assert_seen(x, "ann", "abcd", "0011");
    assert_seen(x, "bob", "abcd", "1011");
}

/* Of an item of which only the hash is known: here, and for those who follow. */
static void an_item_by_its_hash(void **state)
{
    struct fixture *x = *state;
    struct arena arena = {0};
    struct err err = {0};
    struct feed_event events[16];
    for (int i = 0; i < 2; i++) {
        play(x->f, i == 0 ? "ann" : "bob", "a");
        deliver(x->f, i == 0 ? "ann" : "bob", "b");
        flush(x->f);
    }
    part(x, OLD);
    later(x);
    int64_t at = clock_wall_ms();
    later(x);
    play(x->f, "bob", "a");
    put(x, FEED_UNSEE_HASH, at, "ann", "a");
    put(x, FEED_UNSEE_HASH, at, "ann", "b");
    put(x, FEED_UNSEE_HASH, at, "bob", "a");
    bring(x);
    assert_seen(x, "ann", "ab", "00");
    assert_seen(x, "bob", "ab", "11");
    int n = x->f->store->feed->read(x->f->reader, consumer, 0, events, 16, &arena, &err), hashes = 0;
    for (int i = 0; i < n; i++) {
        bool is = events[i].kind == FEED_UNSEE_HASH && slice_eq(events[i].user, slice_str("ann"));
        hashes += is && feed_item_hash(events[i].item) == hash_id(SEED, slice_str("b"));
    }
    assert_int_equal(hashes, 1);
    arena_free(&arena);
    kill_store(x->f);
    start(x);
    assert_seen(x, "ann", "ab", "00");
}

/* Whoever was loaded since has more than the feed tells: the forget is left. */
static void a_user_who_was_loaded_since(void **state)
{
    struct fixture *x = *state;
    struct err err = {0};
    int64_t at = clock_wall_ms();
    play(x->f, "ann", "a");
    part(x, OLD);
    later(x);
    assert_int_equal(x->f->store->bulk->begin(x->f->store, true, &err), 0);
    assert_int_equal(x->f->store->bulk->add(x->f->store, clock_wall_ms(), key_of("ann"), slice_str("ann"),
                                            hash_id(SEED, slice_str("b")), &err),
                     0);
    assert_int_equal(x->f->store->bulk->end(x->f->store, &err), 0);
    put(x, FEED_FORGET, at, "ann", "");
    assert_int_equal(bring_as(x, false, false, 0).left, 1);
    assert_seen(x, "ann", "ab", "11");
}

/* Where the feed here has not all since, nothing is done, unless it is to be. */
static void what_cannot_be_told_apart(void **state)
{
    struct fixture *x = *state;
    play(x->f, "ann", "a");
    int64_t at = clock_wall_ms();
    later(x);
    play(x->f, "ann", "b");
    part(x, OLD + 1); /* another one */
    put(x, FEED_PLAY, at, "bob", "a");
    put(x, FEED_FORGET, at, "ann", "");
    put(x, FEED_PLAY, at + 1, "ann", "c");
    bring_as(x, false, false, ERR_NOTFOUND);
    assert_seen(x, "ann", "abc", "110");
    assert_seen(x, "bob", "a", "0");
    bring_as(x, false, true, 0);
    assert_seen(x, "ann", "abc", "001");
    assert_seen(x, "bob", "a", "1");
}

/* Numbers of forgets without a feed are no seqs: they don't hold up what the old one brings the next time. */
static void numbers_of_forgets_are_their_own(void **state)
{
    struct fixture *x = *state;
    play(x->f, "ann", "a");
    part(x, OLD);
    later(x);
    x->seq = COMMON * 1000;
    put(x, FEED_FORGET, clock_wall_ms(), "ann", "");
    bring_as(x, true, false, 0);
    assert_seen(x, "ann", "a", "0");
    later(x);
    play(x->f, "ann", "a");
    bring_as(x, true, false, 0); /* it was brought */
    assert_seen(x, "ann", "a", "1");
    buf_clear(&x->events);
    x->state = (struct event_state){0};
    x->seq = COMMON;
    put(x, FEED_PLAY, clock_wall_ms(), "bob", "a");
    bring(x);
    assert_seen(x, "bob", "a", "1");
}

static void a_run_that_is_cut_off(void **state)
{
    struct fixture *x = *state;
    part(x, OLD);
    put(x, FEED_PLAY, clock_wall_ms(), "ann", "a");
    put(x, FEED_FORGET, clock_wall_ms(), "bob", "");
    x->events.len -= 1;
    bring_as(x, false, false, ERR_CORRUPT);
    assert_seen(x, "ann", "a", "0"); /* nothing of it */
}

/* The disk fails while forgets are carried out, or while what is newer is recorded again: the same run once more makes
 * it good. */
static void the_disk_fails(void **state)
{
    struct fixture *x = *state;
    for (uint64_t nth = 1; nth <= 40; nth++) {
        char user[16];
        snprintf(user, sizeof user, "u%d", (int)nth);
        play(x->f, user, "a");
    }
    part(x, OLD);
    later(x);
    int64_t at = clock_wall_ms();
    later(x);
    for (uint64_t nth = 1; nth <= 40; nth++) {
        char user[16];
        struct change ch = {.kind = CHANGE_MERGE, .node = OLD, .run = RUN};
        struct err err = {0};
        snprintf(user, sizeof user, "u%d", (int)nth);
        play(x->f, user, "b");
        put(x, FEED_PLAY, at - 1, user, "x");
        put(x, FEED_FORGET, at, user, "");
        put(x, FEED_PLAY, at + 1, user, "c");
        ch.events = buf_slice(&x->events);
        ch.to = x->seq;
        rule(VFS_WRITE | VFS_SYNC, "", nth, false, VFS_EIO);
        int rc = change_merge(&x->r, &ch, &err);
        vfs_fault_heal();
        assert_seen(x, user, "b", "1"); /* acknowledged here: never absent */
        advance(x->f, HOUR_MS);         /* what was refused is tried again */
        for (int i = 0; i < 20 && rc < 0; i++) {
            err = (struct err){0};
            rc = change_merge(&x->r, &ch, &err);
            advance(x->f, HOUR_MS);
        }
        assert_int_equal(rc, 0);
        assert_seen(x, user, "abcx", "0110");
        buf_clear(&x->events);
        x->state = (struct event_state){0};
        later(x);
    }
}

/* --- what comes while a round is under way --- */

/* Clients, between any two looks into the feed, and at the last moment before a forget is handed in. */
static struct visitor {
    struct fixture *x;
    pthread_t thread; /* that of the test: the store's own can't wait for itself */
    const struct store_ops *ops;
    const struct store_feed_ops *feed;
    void (*visit)(struct fixture *x, int n, bool last_moment);
    int visits;
    bool holds; /* history's disk, until the forget is handed in */
} visitor;

enum { VISITS_MAX = 500 }; /* more of them: it never ends */

static void visit(bool last_moment)
{
    if (pthread_equal(pthread_self(), visitor.thread) && visitor.visits < VISITS_MAX) {
        visitor.visit(visitor.x, visitor.visits++, last_moment);
    }
}

static int visited_read(struct store_reader *reader, const char *name, uint64_t after, struct feed_event *out, int max,
                        struct arena *arena, struct err *err)
{
    int n = visitor.feed->read(reader, name, after, out, max, arena, err);
    visit(false);
    return n;
}

static void visited_forget(struct store *s, struct store_forget *forget)
{
    if (forget->spared != NULL) {
        visit(true);
    }
    visitor.ops->forget(s, forget);
    if (forget->spared != NULL && visitor.holds && forget->key == key_of("ann")) {
        visitor.holds = false;
        vfs_fault_release();
    }
}

static struct change bring_visited(struct fixture *x, void (*visits)(struct fixture *, int, bool), int wanted)
{
    static struct store_ops ops;
    static struct store_feed_ops feed;
    struct store *s = x->f->store;
    visitor = (struct visitor){x, pthread_self(), s->ops, s->feed, visits, 0, false};
    ops = *s->ops;
    ops.forget = visited_forget;
    feed = *s->feed;
    feed.read = visited_read;
    s->ops = &ops;
    s->feed = &feed;
    struct change ch = bring_as(x, false, false, wanted);
    s->ops = visitor.ops;
    s->feed = visitor.feed;
    assert_in_range(visitor.visits, 1, VISITS_MAX - 1);
    return ch;
}

static const char *of_visit(int n, char kind, char out[16])
{
    snprintf(out, 16, "%c%d", kind, n);
    return out;
}

/* Items of before that are played once more or forgotten, new ones, and one that is forgotten at once. */
static void plays_and_forgets(struct fixture *x, int n, bool last_moment)
{
    char item[16];
    play(x->f, "ann", of_visit(n, 'p', item));
    play(x->f, "ann", of_visit(n, 'f', item));
    forget(x->f, "ann", item);
    forget(x->f, "ann", of_visit(n, 'o', item));
    if (last_moment) {
        play(x->f, "ann", "last");
        forget(x->f, "ann", "f");
        flush(x->f);
        play(x->f, "ann", "behind");
    }
}

/* However often clients record and forget meanwhile, of the same user, and whatever the old one's clock said. */
static void clients_who_never_rest(void **state)
{
    struct fixture *x = *state;
    char item[16];
    play(x->f, "ann", "a");
    part(x, OLD);
    later(x);
    for (int n = 0; n < VISITS_MAX; n++) {
        play(x->f, "ann", of_visit(n, 'o', item));
    }
    play(x->f, "ann", "f");
    put(x, FEED_UNSEE, clock_wall_ms(), "ann", "o499");
    put(x, FEED_FORGET, clock_wall_ms() + HOUR_MS, "ann", "");
    put(x, FEED_UNSEE, clock_wall_ms() + 2 * HOUR_MS, "ann", "o498");
    assert_int_equal(bring_visited(x, plays_and_forgets, 0).left, 0);
    for (int i = 0; i < 2; i++) {
        assert_seen(x, "ann", "af", "00");
        assert_true(seen(x->f, "ann", "last") && seen(x->f, "ann", "behind"));
        for (int n = 0; n < VISITS_MAX; n++) {
            bool was = n < visitor.visits;
            if (seen(x->f, "ann", of_visit(n, 'p', item)) != was || seen(x->f, "ann", of_visit(n, 'f', item)) ||
                seen(x->f, "ann", of_visit(n, 'o', item)) == was) {
                fail_msg("visit %d of %d: %s", n, visitor.visits, item);
            }
        }
        flush(x->f);
    }
}

static void load_once(struct fixture *x, int n, bool last_moment)
{
    struct err err = {0};
    struct store *s = x->f->store;
    (void)n;
    if (last_moment && !seen(x->f, "ann", "b")) {
        assert_int_equal(s->bulk->begin(s, true, &err), 0);
        assert_int_equal(
            s->bulk->add(s, clock_wall_ms(), key_of("ann"), slice_str("ann"), hash_id(SEED, slice_str("b")), &err), 0);
        assert_int_equal(s->bulk->end(s, &err), 0);
    }
}

static void a_user_who_is_loaded_at_the_last_moment(void **state)
{
    struct fixture *x = *state;
    int64_t at = clock_wall_ms();
    play(x->f, "ann", "a");
    play(x->f, "bob", "a");
    part(x, OLD);
    later(x);
    put(x, FEED_FORGET, at, "ann", "");
    put(x, FEED_FORGET, at, "bob", "");
    put(x, FEED_UNSEE, at, "ann", "a");
    assert_int_equal(bring_visited(x, load_once, 0).left, 2);
    assert_seen(x, "ann", "ab", "11");
    assert_seen(x, "bob", "a", "0");
}

/* A user's snapshot, of another node with the same seed, with one play; it is not waited for. */
static struct {
    struct buf bytes;
    struct slice snapshot;
    uint8_t verdict;
    int done;
    struct store_import import;
} brought;

static void import_begin_one(struct fixture *x, const char *user, const char *item)
{
    struct store_play play = {hash_id(SEED, slice_str(item)), month_of_ms(clock_wall_ms())};
    struct user_snapshot p = {
        .user = slice_str(user), .key = key_of(user), .last_month = play.month, .plays = &play, .n_plays = 1};
    buf_clear(&brought.bytes);
    assert_int_equal(user_snapshot_encode(&p, &brought.bytes), 0);
    brought.snapshot = buf_slice(&brought.bytes);
    brought.done = 0;
    brought.import = (struct store_import){.call = {.done = call_done, .owner = &brought.done},
                                           .snapshots = &brought.snapshot,
                                           .n = 1,
                                           .verdicts = &brought.verdict};
    x->f->store->ops->import(x->f->store, &brought.import);
}

static int import_ended(void)
{
    wait_flag(&brought.done);
    buf_free(&brought.bytes);
    return brought.import.call.err.code;
}

static void imports_once(struct fixture *x, int n, bool last_moment)
{
    (void)n;
    if (last_moment && brought.bytes.len == 0) {
        vfs_fault_add(&(struct vfs_rule){VFS_SYNC, "history", 1, false, VFS_HOLD});
        import_begin_one(x, "ann", "b");
        vfs_fault_wait_held();
        visitor.holds = true;
    }
}

/* A LOAD that was taken, and is answered after the forget: history has the user by then, and the feed doesn't tell. The
 * forget waits for that, and is left; so is it when it is brought once more, and after a kill. */
static void a_user_who_is_being_imported(void **state)
{
    struct fixture *x = *state;
    int64_t at = clock_wall_ms();
    play(x->f, "ann", "a");
    play(x->f, "bob", "a");
    part(x, OLD);
    later(x);
    put(x, FEED_FORGET, at, "ann", "");
    put(x, FEED_FORGET, at, "bob", "");
    assert_int_equal(bring_visited(x, imports_once, 0).left, 1);
    assert_int_equal(import_ended(), 0);
    assert_int_equal(brought.verdict, IMPORT_DONE);
    for (int i = 0; i < 3; i++) {
        assert_seen(x, "ann", "ab", "11");
        assert_seen(x, "bob", "a", "0");
        if (i == 1) {
            kill_store(x->f);
            start(x);
        }
        bring_as(x, false, false, 0);
    }
    vfs_fault_heal();
}

/* An import that fails holds up no forget. */
static void an_import_that_fails(void **state)
{
    struct fixture *x = *state;
    int64_t at = clock_wall_ms();
    play(x->f, "ann", "a");
    part(x, OLD);
    later(x);
    vfs_fault_add(&(struct vfs_rule){VFS_SYNC, "history", 1, true, VFS_EIO});
    import_begin_one(x, "ann", "b");
    assert_true(import_ended() < 0);
    vfs_fault_heal();
    put(x, FEED_FORGET, at, "ann", "");
    assert_int_equal(bring_as(x, false, false, 0).left, 0);
    assert_seen(x, "ann", "ab", "00");
}

/* The same of `unseen import`, on a thread of its own. */
static pthread_t loader;

static void *load_main(void *arg)
{
    struct fixture *x = arg;
    struct err err = {0};
    struct store *s = x->f->store;
    assert_int_equal(s->bulk->begin(s, true, &err), 0);
    assert_int_equal(
        s->bulk->add(s, clock_wall_ms(), key_of("ann"), slice_str("ann"), hash_id(SEED, slice_str("b")), &err), 0);
    assert_int_equal(s->bulk->end(s, &err), 0);
    return NULL;
}

static bool loaded;

static void loads_once(struct fixture *x, int n, bool last_moment)
{
    (void)n;
    if (last_moment && !loaded) {
        loaded = true;
        vfs_fault_add(&(struct vfs_rule){VFS_WRITE | VFS_SYNC, "history", 1, false, VFS_HOLD});
        assert_int_equal(pthread_create(&loader, NULL, load_main, x), 0);
        vfs_fault_wait_held();
        visitor.holds = true;
    }
}

static void a_user_who_is_being_loaded(void **state)
{
    struct fixture *x = *state;
    int64_t at = clock_wall_ms();
    play(x->f, "ann", "a");
    play(x->f, "bob", "a");
    part(x, OLD);
    later(x);
    put(x, FEED_FORGET, at, "ann", "");
    put(x, FEED_FORGET, at, "bob", "");
    loaded = false;
    assert_int_equal(bring_visited(x, loads_once, 0).left, 1);
    pthread_join(loader, NULL);
    for (int i = 0; i < 3; i++) {
        assert_seen(x, "ann", "ab", "11");
        assert_seen(x, "bob", "a", "0");
        if (i == 1) {
            kill_store(x->f);
            start(x);
        }
        bring_as(x, false, false, 0);
    }
    vfs_fault_heal();
}

static void more_than_is_kept(struct fixture *x, int n, bool last_moment)
{
    (void)n;
    if (last_moment) {
        play(x->f, "ann", "b");
    }
}

/* The feed ends, before it is looked at for the last time. */
static void a_feed_that_is_lost_meanwhile(void **state)
{
    struct fixture *x = *state;
    part(x, OLD);
    play(x->f, "ann", "a");
    put(x, FEED_FORGET, clock_wall_ms(), "ann", "");
    x->f->cfg.feed_max = 1;
    bring_visited(x, more_than_is_kept, ERR_NOTFOUND);
    assert_seen(x, "ann", "ab", "11");
}

static void *record_and_forget(void *arg)
{
    struct fixture *x = arg;
    char item[16];
    for (int n = 0; n < VISITS_MAX; n++) {
        plays_and_forgets(x, n, false);
        play(x->f, "bob", of_visit(n, 'p', item));
    }
    return NULL;
}

/* The same, by a thread. */
static void a_client_beside_it(void **state)
{
    struct fixture *x = *state;
    char item[16];
    pthread_t thread;
    part(x, OLD);
    for (int n = 0; n < VISITS_MAX; n++) {
        play(x->f, "ann", of_visit(n, 'o', item));
        put(x, FEED_UNSEE, clock_wall_ms() + HOUR_MS, n % 2 == 0 ? "ann" : "bob", of_visit(n, 'p', item));
        if (n % 50 == 0) {
            put(x, FEED_FORGET, clock_wall_ms() + HOUR_MS, n % 100 == 0 ? "ann" : "bob", "");
        }
    }
    assert_int_equal(pthread_create(&thread, NULL, record_and_forget, x), 0);
    assert_int_equal(bring_as(x, false, false, 0).left, 0);
    pthread_join(thread, NULL);
    for (int n = 0; n < VISITS_MAX; n++) {
        if (!seen(x->f, "ann", of_visit(n, 'p', item)) || !seen(x->f, "bob", item) ||
            seen(x->f, "ann", of_visit(n, 'f', item)) || seen(x->f, "ann", of_visit(n, 'o', item))) {
            fail_msg("%d: %s", n, item);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plays_count_by_their_time, setup, teardown),
        cmocka_unit_test_setup_teardown(a_forget_ends_what_both_had, setup, teardown),
        cmocka_unit_test_setup_teardown(repeated_it_ends_no_more, setup, teardown),
        cmocka_unit_test_setup_teardown(spared_with_the_forget_or_not_at_all, setup, teardown),
        cmocka_unit_test_setup_teardown(each_forget_spares_what_is_newer, setup, teardown),
        cmocka_unit_test_setup_teardown(clients_forgets_hold, setup, teardown),
        cmocka_unit_test_setup_teardown(an_item_by_its_hash, setup, teardown),
        cmocka_unit_test_setup_teardown(a_user_who_was_loaded_since, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_told_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_of_forgets_are_their_own, setup, teardown),
        cmocka_unit_test_setup_teardown(a_run_that_is_cut_off, setup, teardown),
        cmocka_unit_test_setup_teardown(the_disk_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(clients_who_never_rest, setup, teardown),
        cmocka_unit_test_setup_teardown(a_user_who_is_loaded_at_the_last_moment, setup, teardown),
        cmocka_unit_test_setup_teardown(a_user_who_is_being_imported, setup, teardown),
        cmocka_unit_test_setup_teardown(an_import_that_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(a_user_who_is_being_loaded, setup, teardown),
        cmocka_unit_test_setup_teardown(a_feed_that_is_lost_meanwhile, setup, teardown),
        cmocka_unit_test_setup_teardown(a_client_beside_it, setup, teardown),
    };
    begin_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
