/* The courier alone, over a real store: whatever fails, in whatever order, its consumer has all that was acknowledged,
 * in its order, and of the feed nothing is done that it hasn't durable. Three kinds of consumer: a local one, a remote
 * one in whose place it stands how far it is, and one that has events durable only many at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <unistd.h>

#include "base/clock.h"
#include "dedup/courier.h"
#include "store/node.h"
#include "tests/lib/random.h"
#include "tests/lib/rounds.h"
#include "tests/lib/store_calls.h"

enum { TAKEN_MAX = 4000, COURSES = 24, STEPS = 50, BATCH = 8, PARCEL = 20, STUCK_S = 300, LOOKS_MAX = 200000 };

static const uint64_t NO_LIMIT = UINT64_C(1) << 40;
static _Atomic uint64_t feed_limit;

static uint64_t limit(const struct config *live)
{
    (void)live;
    return atomic_load(&feed_limit);
}

/* What stands at the consumer, durably. */
struct stand {
    uint64_t node, run, to;
    bool has[TAKEN_MAX];
};

struct world {
    struct store_fixture *f;
    struct courier c;
    const struct courier_ops *ops;
    bool runs, late; /* late: an event is durable there only with its parcel */

    pthread_mutex_t mutex; /* guards: */
    int taken;             /* items 0 to taken - 1 are recorded */
    struct stand at;
    bool held_back[TAKEN_MAX]; /* sent, and not durable there */
    int n_held_back;
    bool is_open, filled;
    int opens, fills, sends;
    int fail_open, fail_look, fail_send, lose_reply; /* once, with that error */
    int down;                                        /* open() and look() fail for as long */
    bool stop_in_open, stop_in_send;
};

static int fails(const struct world *w, int *how, struct err *err)
{
    const int code = *how != 0 ? *how : w->down;
    *how = 0;
    return code == 0 ? 0 : err_set(err, code, "it was told to fail");
}

static void ask_stop(struct world *w, bool *wanted)
{
    if (*wanted) {
        *wanted = false;
        courier_ask_stop(&w->c);
    }
}

/* Nothing is recorded meanwhile. */
static int begin(struct world *w, struct err *err)
{
    struct store_node self;
    w->f->store->node->get(w->f->store, &self);
    const enum feed_fit fit = feed_fits(w->f->store, w->ops->consumer, w->at.node, w->at.run, w->at.to);
    int rc = courier_enlist(&w->c, err);
    if (rc == 0 && fit == FEED_FITS) {
        courier_go_from(&w->c, w->at.to);
    } else if (rc == 0) {
        w->fills++;
        memset(w->at.has, true, (size_t)w->taken);
        w->at.to = courier_skip(&w->c);
    }
    w->at.node = self.node;
    w->at.run = self.run;
    return rc;
}

static int open_far(void *arg, struct err *err)
{
    struct world *w = arg;
    pthread_mutex_lock(&w->mutex);
    assert_false(w->is_open);
    ask_stop(w, &w->stop_in_open);
    int rc = fails(w, &w->fail_open, err);
    rc = rc < 0 || !feed_is_remote(w->ops->consumer) ? rc : begin(w, err);
    memset(w->held_back, 0, sizeof w->held_back);
    w->n_held_back = 0;
    w->is_open = rc == 0;
    w->opens++;
    pthread_mutex_unlock(&w->mutex);
    return rc;
}

static int look_far(void *arg, struct err *err)
{
    struct world *w = arg;
    pthread_mutex_lock(&w->mutex);
    assert_true(w->is_open);
    int rc = fails(w, &w->fail_look, err);
    pthread_mutex_unlock(&w->mutex);
    return rc;
}

/* All that was recorded before it is there. */
static void take(struct world *w, const struct feed_event *e)
{
    char text[16];
    snprintf(text, sizeof text, "%.*s", (int)e->item.len, e->item.data);
    const int item = atoi(text);
    for (int i = 0; i < item; i++) {
        assert_true(w->at.has[i] || w->held_back[i]);
    }
    w->held_back[item] = true;
    w->n_held_back++;
}

static void make_durable(struct world *w, uint64_t to)
{
    for (int i = 0; i < w->taken; i++) {
        w->at.has[i] |= w->held_back[i];
    }
    memset(w->held_back, 0, sizeof w->held_back);
    w->n_held_back = 0;
    w->at.to = to;
}

static int send_far(void *arg, struct courier_batch *b, struct err *err)
{
    struct world *w = arg;
    uint64_t before = 0;
    pthread_mutex_lock(&w->mutex);
    assert_true(w->is_open && (b->n > 0 || w->ops->beat_ms > 0));
    ask_stop(w, &w->stop_in_send);
    int rc = fails(w, &w->fail_send, err);
    for (int i = 0; rc == 0 && i < b->n; i++) {
        assert_true(b->events[i].seq > before && b->events[i].seq <= b->to);
        before = b->events[i].seq;
        take(w, &b->events[i]);
    }
    w->sends++;
    if (rc == 0 && (!w->late || w->n_held_back >= PARCEL || b->n == 0)) {
        make_durable(w, b->to);
    } else if (rc == 0) {
        b->done = w->at.to;
    }
    rc = rc < 0 ? rc : fails(w, &w->lose_reply, err);
    pthread_mutex_unlock(&w->mutex);
    return rc;
}

static void close_far(void *arg)
{
    struct world *w = arg;
    pthread_mutex_lock(&w->mutex);
    w->is_open = false;
    pthread_mutex_unlock(&w->mutex);
}

#define OPS                                                                                                            \
    .task = "courier", .name = "the test's consumer", .limit = limit, .batch_max = BATCH, .first_delay_ms = 100,       \
    .last_delay_ms = 1000, .open = open_far, .look = look_far, .send = send_far, .close = close_far
static const struct courier_ops local = {.consumer = "mirror", .gather_ms = 5, OPS};
static const struct courier_ops remote = {.consumer = FEED_FRONT, .beat_ms = 250, .unreached = "not yet", OPS};

/* --- the world --- */

static void start(struct world *w)
{
    struct err err = {0};
    courier_init(&w->c, w->ops, w, w->f->store, NULL);
    assert_int_equal(courier_start(&w->c, &err), 0);
    w->runs = true;
}

static void stop(struct world *w)
{
    if (w->runs) {
        courier_stop(&w->c);
        courier_free(&w->c);
        w->runs = false;
    }
}

static struct world *world_new(const struct courier_ops *ops, bool late)
{
    struct world *w = calloc(1, sizeof *w);
    w->f = store_fixture_new("courier");
    w->ops = ops;
    w->late = late;
    pthread_mutex_init(&w->mutex, NULL);
    atomic_store(&feed_limit, NO_LIMIT);
    open_store(w->f);
    start(w);
    return w;
}

static void world_free(struct world *w)
{
    stop(w);
    store_fixture_free(w->f);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

static void record(struct world *w, int n)
{
    char item[16];
    pthread_mutex_lock(&w->mutex);
    for (; n > 0; n--) {
        snprintf(item, sizeof item, "%d", w->taken);
        play(w->f, "u", item);
        w->taken++;
    }
    pthread_mutex_unlock(&w->mutex);
}

static bool has_all(struct world *w)
{
    pthread_mutex_lock(&w->mutex);
    const bool all = w->taken == 0 || memchr(w->at.has, false, (size_t)w->taken) == NULL;
    pthread_mutex_unlock(&w->mutex);
    return all;
}

static struct courier_status look(struct world *w)
{
    struct courier_status s;
    courier_look(&w->c, &s);
    return s;
}

static int opens(struct world *w)
{
    pthread_mutex_lock(&w->mutex);
    const int n = w->opens;
    pthread_mutex_unlock(&w->mutex);
    return n;
}

static int fills(struct world *w)
{
    pthread_mutex_lock(&w->mutex);
    const int n = w->fills;
    pthread_mutex_unlock(&w->mutex);
    return n;
}

static void fail_at(struct world *w, int *where, int code)
{
    pthread_mutex_lock(&w->mutex);
    *where = code;
    pthread_mutex_unlock(&w->mutex);
    courier_wake(&w->c);
}

/* Waits for its thread, which the clock may have to move for. */
static void let_run(int look, int64_t ms)
{
    assert_true(look < LOOKS_MAX);
    clock_test_advance(ms);
    usleep(500);
}

static void until_doing(struct world *w, enum courier_doing doing, int64_t ms)
{
    for (int i = 0; look(w).doing != doing; i++) {
        let_run(i, ms);
    }
}

static void until_level(struct world *w)
{
    struct courier_status s = look(w);
    for (int i = 0; s.doing != COURIER_IN_STEP || s.queue.events > 0 || !has_all(w); i++) {
        let_run(i, 100);
        s = look(w);
    }
    assert_true(s.cause[0] == '\0' && s.since_ms == 0 && s.queue.bytes == 0);
}

static void heal(struct world *w)
{
    pthread_mutex_lock(&w->mutex);
    w->fail_open = w->fail_look = w->fail_send = w->lose_reply = w->down = 0;
    w->stop_in_open = w->stop_in_send = false;
    pthread_mutex_unlock(&w->mutex);
    atomic_store(&feed_limit, NO_LIMIT);
}

/* --- drawn courses --- */

static void become_another_node(struct world *w)
{
    int done = 0;
    struct store_call renew = {.done = call_done, .owner = &done};
    w->f->store->node->renew(w->f->store, &renew);
    wait_flag(&done);
    assert_int_equal(renew.err.code, 0);
}

static void open_again(struct world *w, bool killed)
{
    stop(w);
    if (killed) {
        kill_store(w->f);
    } else {
        close_store(w->f);
    }
    open_store(w->f);
    start(w);
}

static void draw_step(struct world *w, uint64_t *random, struct stand *old)
{
    static const int codes[] = {ERR_SYSTEM, ERR_STALE, ERR_CLOSED, ERR_INVALID};
    const int code = codes[random_below(random, 4)];
    const bool is_remote = feed_is_remote(w->ops->consumer);
    pthread_mutex_lock(&w->mutex);
    const uint64_t what = random_below(random, 16);
    w->fail_open = what == 0 ? code : w->fail_open;
    w->fail_look = what == 1 ? code : w->fail_look;
    w->fail_send = what == 2 ? code : w->fail_send;
    w->lose_reply = what == 3 ? code : w->lose_reply;
    w->stop_in_open = what == 4 || w->stop_in_open;
    w->stop_in_send = what == 5 || w->stop_in_send;
    pthread_mutex_unlock(&w->mutex);
    switch (what) {
    case 6:
        stop(w);
        start(w);
        break;
    case 7:
        open_again(w, random_below(random, 2) == 0);
        break;
    case 8: /* the consumer's disk goes back */
        if (is_remote) {
            stop(w);
            if (random_below(random, 2) == 0) {
                *old = w->at;
            } else {
                w->at = *old;
            }
            start(w);
        }
        break;
    case 9:
        if (is_remote) {
            become_another_node(w);
        }
        break;
    case 10: /* more waits than may */
        if (is_remote) {
            atomic_store(&feed_limit, 1);
            record(w, 2);
            atomic_store(&feed_limit, NO_LIMIT);
        }
        break;
    case 11:
        clock_test_advance((int64_t)random_below(random, 3000));
        break;
    default:
        record(w, (int)random_below(random, 12));
    }
}

static void draw(const struct courier_ops *ops, bool late)
{
    const int courses = test_rounds(COURSES);
    for (int course = 0; course < courses; course++) {
        uint64_t random = (uint64_t)course;
        struct world *w = world_new(ops, late);
        struct stand *old = calloc(1, sizeof *old);
        for (int i = 0; i < STEPS; i++) {
            draw_step(w, &random, old);
        }
        heal(w);
        stop(w); /* it may have been asked to end */
        start(w);
        record(w, 3);
        until_level(w);
        free(old);
        world_free(w);
    }
}

static void drawn_local(void **state)
{
    (void)state;
    draw(&local, false);
}

static void drawn_remote(void **state)
{
    (void)state;
    draw(&remote, false);
}

static void drawn_late(void **state)
{
    (void)state;
    draw(&remote, true);
}

/* --- told one by one --- */

static void what_is_shown(void **state)
{
    (void)state;
    struct world *w = world_new(&local, false);
    assert_int_equal(look(w).doing, COURIER_IN_STEP);
    record(w, 10);
    until_level(w);
    assert_int_equal(look(w).events, 10);
    assert_int_equal(look(w).to, look(w).queue.last);
    assert_int_equal(look(w).queue.place, FEED_IN_STEP);

    const int64_t now = clock_wall_ms();
    fail_at(w, &w->down, ERR_SYSTEM);
    until_doing(w, COURIER_WAITING, 100);
    record(w, 1);
    struct courier_status s = look(w);
    assert_string_equal(s.cause, "it was told to fail");
    assert_true(s.since_ms >= now && s.queue.place == FEED_BEHIND && s.queue.events == 1);
    fail_at(w, &w->down, ERR_INVALID);
    for (int i = 0, n = opens(w); opens(w) < n + 3; i++) {
        let_run(i, 100);
    }
    assert_true(look(w).since_ms == s.since_ms && look(w).outages == 1); /* all failures are of one */
    heal(w);
    until_level(w);
    assert_int_equal(look(w).outages, 1);
    world_free(w);
}

/* Only what has been open for a while, or it would go round and round. */
static void opened_again_at_once(void **state)
{
    (void)state;
    static const int codes[] = {ERR_STALE, ERR_CLOSED};
    for (int i = 0; i < 2; i++) {
        struct world *w = world_new(&remote, false);
        record(w, 1);
        until_level(w);
        clock_test_advance(COURIER_AGAIN_MS);
        const int n = opens(w);
        fail_at(w, &w->fail_look, codes[i]);
        for (int k = 0; opens(w) == n; k++) {
            let_run(k, 0);
        }
        fail_at(w, &w->down, codes[i]);
        until_doing(w, COURIER_WAITING, 0);
        heal(w);
        until_level(w);
        assert_int_equal(look(w).outages, 1);
        assert_int_equal(fills(w), 1);
        world_free(w);
    }
}

static void fenced(void **state)
{
    (void)state;
    struct world *w = world_new(&remote, false);
    until_level(w);
    fail_at(w, &w->fail_look, ERR_LOCKED);
    until_doing(w, COURIER_FENCED, 100);
    const int n = opens(w);
    record(w, 3);
    clock_test_advance(3600 * 1000);
    courier_wake(&w->c);
    assert_int_equal(look(w).doing, COURIER_FENCED);
    assert_int_equal(opens(w), n);
    courier_retry(&w->c);
    until_level(w);
    assert_int_equal(look(w).outages, 0);
    world_free(w);
}

static void filled_again(void **state)
{
    (void)state;
    struct world *w = world_new(&remote, false);
    record(w, 5);
    until_level(w);
    assert_int_equal(fills(w), 1);
    clock_test_advance(COURIER_AGAIN_MS);
    become_another_node(w);
    for (int i = 0; fills(w) < 2; i++) {
        let_run(i, 100);
    }
    until_level(w);

    stop(w);
    const int n = fills(w);
    atomic_store(&feed_limit, 1); /* lost while it is away */
    w->down = ERR_SYSTEM;
    start(w);
    until_doing(w, COURIER_WAITING, 100);
    record(w, 2);
    assert_int_equal(look(w).queue.place, FEED_LOST);
    heal(w);
    until_level(w);
    assert_int_equal(fills(w), n + 1);

    stop(w);
    courier_give_up(w->f->store, &remote);
    close_store(w->f);
    open_store(w->f);
    start(w);
    until_level(w);
    assert_int_equal(fills(w), n + 2);
    world_free(w);
}

/* What is behind a limit is lost; what waits before it, and what comes when there is room again, is not. */
static void a_local_one_is_lost(void **state)
{
    (void)state;
    struct world *w = world_new(&local, false);
    fail_at(w, &w->down, ERR_SYSTEM);
    until_doing(w, COURIER_WAITING, 100);
    record(w, 20);
    atomic_store(&feed_limit, 1);
    record(w, 1);
    pthread_mutex_lock(&w->mutex);
    w->at.has[20] = true;
    pthread_mutex_unlock(&w->mutex);
    assert_int_equal(look(w).queue.place, FEED_LOST);
    heal(w);
    until_level(w);
    record(w, 3);
    until_level(w);
    assert_int_equal(look(w).queue.place, FEED_LOST);
    assert_int_equal(look(w).queue.left_out, 1);
    world_free(w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_shown), cmocka_unit_test(opened_again_at_once), cmocka_unit_test(fenced),
        cmocka_unit_test(filled_again),  cmocka_unit_test(a_local_one_is_lost),  cmocka_unit_test(drawn_local),
        cmocka_unit_test(drawn_remote),  cmocka_unit_test(drawn_late),
    };
    alarm(STUCK_S);
    begin_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
