/* The primary's half, over a real store: a fetch is answered at once or waits for events; what is durable there is done
 * here, also after a restart; whoever can't go on from where they are is lost; and a folder that went back becomes
 * another node. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "replica/event.h"
#include "replica/feeder.h"
#include "replica/replica.h"
#include "store/feed_sent.h"
#include "tests/lib/store_calls.h"

enum { NODE = 0xaa };
static const char consumer[] = FEED_REMOTE "00000000000000aa";

struct fixture {
    struct store_fixture *f;
    struct dedup dedup;
    struct replica r;
    struct feeder_fetch fetch;
    size_t bytes_max; /* of a reply; 0: as many as there may be */
    int done;
};

static void start(struct fixture *x)
{
    struct err err;
    open_store(x->f);
    dedup_init(&x->dedup, x->f->store, &x->f->cfg);
    x->r = (struct replica){.dedup = &x->dedup, .store = x->f->store, .cfg = &x->f->cfg};
    reach_init(&x->r.reach, &x->f->cfg, "", "");
    x->r.ack = ack_new(&x->f->cfg);
    assert_int_equal(feeder_start(&x->r, &x->r.feeder, &err), 0);
}

static void stop(struct fixture *x)
{
    feeder_stop(x->r.feeder);
    close_store(x->f); /* before: it may still answer the feeder */
    feeder_free(x->r.feeder);
    ack_free(x->r.ack);
}

static int setup(void **state)
{
    struct fixture *x = *state = calloc(1, sizeof *x);
    x->f = store_fixture_new("feeder");
    start(x);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    stop(x);
    store_fixture_free(x->f);
    buf_free(&x->fetch.events);
    free(x);
    return 0;
}

static uint64_t enlist(struct fixture *x)
{
    int done = 0;
    struct feed_enlist e = {.call = {.done = call_done, .owner = &done}, .consumer = consumer};
    x->f->store->feed->enlist(x->f->store, &e);
    wait_flag(&done);
    assert_int_equal(e.call.err.code, 0);
    return e.cursor;
}

static void on_done(struct feeder_fetch *fetch)
{
    struct store_call flag = {.owner = fetch->owner};
    call_done(&flag);
}

static struct store_node self(struct fixture *x)
{
    struct store_node n;
    x->f->store->node->get(x->f->store, &n);
    return n;
}

static void ask_from(struct fixture *x, uint64_t run, uint64_t after, uint64_t durable, int64_t wait_ms)
{
    buf_free(&x->fetch.events);
    x->done = 0;
    x->fetch = (struct feeder_fetch){.replica = NODE,
                                     .node = self(x).node,
                                     .run = run,
                                     .after = after,
                                     .durable = durable,
                                     .bytes_max = x->bytes_max > 0 ? x->bytes_max : FEEDER_REPLY_MAX,
                                     .wait_ms = wait_ms,
                                     .done = on_done,
                                     .owner = &x->done};
    feeder_fetch(x->r.feeder, &x->fetch);
}

static const struct feeder_fetch *fetch(struct fixture *x, uint64_t after, uint64_t durable, int64_t wait_ms)
{
    ask_from(x, self(x).run, after, durable, wait_ms);
    wait_flag(&x->done);
    return &x->fetch;
}

static struct feed_state queue(struct fixture *x)
{
    struct feed_state state;
    feed_state_of(x->f->store, consumer, &state);
    return state;
}

static void answered_at_once_or_when_something_comes(void **state)
{
    struct fixture *x = *state;
    uint64_t cursor = enlist(x);
    assert_int_equal(fetch(x, cursor, cursor, 0)->n, 0); /* it doesn't wait */
    play(x->f, "ann", "one");
    assert_int_equal(fetch(x, cursor, cursor, 10000)->n, 1);
    uint64_t first = x->fetch.to;
    assert_int_equal(fetch(x, first, cursor, 10000)->n, 0); /* it has something to tell: not parked */
    assert_int_equal(x->fetch.err.code, 0);
    ask_from(x, self(x).run, first, first, 10000);
    assert_false(is_raised(&x->done));
    play(x->f, "ann", "two");
    wait_flag(&x->done);
    assert_int_equal(x->fetch.n, 1);
    assert_true(x->fetch.to > first && x->fetch.last == x->fetch.to);
    struct event_state at = {0};
    struct feed_event event;
    struct err err;
    size_t read = 0;
    assert_int_equal(event_read(&at, buf_slice(&x->fetch.events), &read, &event, &err), 1);
    assert_true(event.kind == FEED_PLAY && slice_eq(event.item, slice_str("two")));
}

static void what_is_durable_there_is_done(void **state)
{
    struct fixture *x = *state;
    uint64_t cursor = enlist(x);
    for (int i = 0; i < 10; i++) {
        play(x->f, "ann", (char[]){(char)('a' + i), 0});
    }
    assert_int_equal(queue(x).events, 10);
    assert_int_equal(fetch(x, cursor, cursor, 0)->n, 10);
    uint64_t to = x->fetch.to;
    fetch(x, to, cursor + 4, 0); /* a part of it: counted where it stands */
    assert_int_equal(queue(x).events, 6);
    fetch(x, to, to, 0);
    assert_int_equal(queue(x).events, 0);
    assert_int_equal(queue(x).bytes, 0);
    assert_int_equal(queue(x).place, FEED_IN_STEP);
}

/* However few bytes a reply may have. */
static void a_forget_and_what_follows_of_the_user(void **state)
{
    enum { PLAYS = 300 };
    struct fixture *x = *state;
    uint64_t cursor = enlist(x);
    play(x->f, "bob", "a");
    forget(x->f, "ann", NULL);
    for (int i = 0; i < PLAYS; i++) {
        char item[16];
        snprintf(item, sizeof item, "%d", i);
        play(x->f, "ann", item);
    }
    play(x->f, "bob", "b");
    x->bytes_max = 20; /* two events */
    assert_int_equal(fetch(x, cursor, cursor, 0)->n, 2 + PLAYS);
    assert_int_equal(fetch(x, x->fetch.to, cursor, 0)->n, 1);
}

static void also_after_a_restart(void **state)
{
    struct fixture *x = *state;
    uint64_t cursor = enlist(x), run = self(x).run;
    for (int i = 0; i < 10; i++) {
        play(x->f, "ann", (char[]){(char)('a' + i), 0});
    }
    uint64_t last = x->f->store->feed->last(x->f->store);
    stop(x);
    start(x);
    play(x->f, "ann", "later");
    ask_from(x, run, last, last, 0); /* of the run before */
    wait_flag(&x->done);
    assert_int_equal(x->fetch.err.code, 0);
    assert_int_equal(x->fetch.n, 1);
    assert_int_equal(queue(x).events, 1);
    assert_true(queue(x).cursor == last && cursor < last);
}

static void it_may_go_back_a_while(void **state)
{
    struct fixture *x = *state;
    uint64_t cursor = enlist(x);
    for (int i = 0; i < 10; i++) {
        play(x->f, "ann", (char[]){(char)('a' + i), 0});
    }
    fetch(x, cursor, cursor, 0);
    uint64_t to = x->fetch.to;
    fetch(x, to, to, 0);
    assert_int_equal(fetch(x, cursor + 2, cursor + 2, 0)->n, 8);
    assert_int_equal(queue(x).events, 0); /* that is no debt */
    for (int i = 0; i < 40; i++) {        /* ten minutes later, and some more */
        advance(x->f, 30 * 1000 + 1);
        play(x->f, "bob", "x");
        fetch(x, to, to, 0);
        to = x->fetch.to;
        fetch(x, to, to, 0);
    }
    assert_int_equal(fetch(x, cursor + 2, cursor + 2, 0)->err.code, ERR_NOTFOUND);
    assert_int_equal(x->fetch.n, 0);
}

static void lost(void **state)
{
    struct fixture *x = *state;
    play(x->f, "ann", "one");
    assert_int_equal(fetch(x, 0, 0, 0)->err.code, ERR_NOTFOUND); /* not enlisted */
    uint64_t cursor = enlist(x);
    ask_from(x, self(x).run + 1, cursor, cursor, 0); /* a run that is none */
    wait_flag(&x->done);
    assert_int_equal(x->fetch.err.code, ERR_NOTFOUND);
}

/* As when each new replica is a clone, and the old ones are dismissed. */
static void those_that_were_dismissed_make_room(void **state)
{
    struct fixture *x = *state;
    uint64_t cursor = 0;
    for (uint64_t node = NODE; node < NODE + 2 * FEEDER_REPLICAS_MAX; node++) {
        char name[FEED_NAME_MAX];
        snprintf(name, sizeof name, FEED_REMOTE "%016" PRIx64, node);
        int done = 0;
        struct feed_enlist e = {.call = {.done = call_done, .owner = &done}, .consumer = name};
        x->f->store->feed->enlist(x->f->store, &e);
        wait_flag(&done);
        cursor = e.cursor;
        x->done = 0;
        buf_free(&x->fetch.events);
        x->fetch = (struct feeder_fetch){.replica = node,
                                         .node = self(x).node,
                                         .run = self(x).run,
                                         .after = cursor,
                                         .durable = cursor,
                                         .bytes_max = FEEDER_REPLY_MAX,
                                         .done = on_done,
                                         .owner = &x->done};
        feeder_fetch(x->r.feeder, &x->fetch);
        wait_flag(&x->done);
        assert_int_equal(x->fetch.err.code, 0);
        struct feeder_replica all[FEEDER_REPLICAS_MAX];
        assert_int_equal(feeder_look(x->r.feeder, all), 1);
        assert_true(all[0].node == node && all[0].connected);
        done = 0;
        struct feed_reset reset = {.call = {.done = call_done, .owner = &done}, .consumer = name};
        x->f->store->feed->reset(x->f->store, &reset);
        wait_flag(&done);
        assert_int_equal(reset.call.err.code, 0);
    }
}

static void went_back(void **state)
{
    struct fixture *x = *state;
    uint64_t cursor = enlist(x), node = self(x).node;
    assert_int_equal(fetch(x, cursor + 100, cursor, 0)->err.code, ERR_NOTFOUND); /* it knows more than there is */
    int done = 0;
    struct store_call look = {.done = call_done, .owner = &done};
    x->f->store->ops->tick(x->f->store, &look); /* behind the renewal, on the same thread */
    wait_flag(&done);
    assert_true(self(x).node != node);
    assert_int_equal(queue(x).name[0], '\0');
}

static void stretches(void **state)
{
    (void)state;
    struct feed_sent s = {.n = 0};
    uint64_t n, bytes;
    feed_sent_add(&s, &(struct feed_stretch){10, 20, 5, 50});
    feed_sent_add(&s, &(struct feed_stretch){20, 30, 6, 60});
    assert_true(feed_sent_pass(&s, 10, 20, &n, &bytes));
    assert_true(n == 5 && bytes == 50);
    assert_false(feed_sent_pass(&s, 20, 25, &n, &bytes)); /* within one */
    assert_true(feed_sent_pass(&s, 20, 30, &n, &bytes));
    assert_true(n == 6 && bytes == 60 && s.n == 0);
    feed_sent_add(&s, &(struct feed_stretch){30, 40, 1, 1});
    feed_sent_add(&s, &(struct feed_stretch){35, 45, 2, 2}); /* anew from there */
    assert_int_equal(s.n, 1);
    assert_false(feed_sent_pass(&s, 30, 45, &n, &bytes));
    assert_true(feed_sent_pass(&s, 45, 45, &n, &bytes)); /* nothing new */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(answered_at_once_or_when_something_comes, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_durable_there_is_done, setup, teardown),
        cmocka_unit_test_setup_teardown(a_forget_and_what_follows_of_the_user, setup, teardown),
        cmocka_unit_test_setup_teardown(also_after_a_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(it_may_go_back_a_while, setup, teardown),
        cmocka_unit_test_setup_teardown(lost, setup, teardown),
        cmocka_unit_test_setup_teardown(those_that_were_dismissed_make_room, setup, teardown),
        cmocka_unit_test_setup_teardown(went_back, setup, teardown),
        cmocka_unit_test(stretches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
