/* The account of request_memory by itself: whatever is asked for, in any order, is allowed only below the limit; and
 * whoever has the overdraft, and the administrator, are never shut out by what the others hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "net/budget.h"
#include "tests/lib/random.h"

enum { LIMIT = 16 * 1024 * 1024, REQUEST_MAX = 16 * 1024 * 1024, SHARES = 3, ACTORS = 60, REPLY = 64 * 1024 };

struct world {
    struct budget b;
    struct budget_share share[SHARES];
    struct actor {
        struct budget_share *share;
        size_t held;
    } actors[ACTORS];
    struct actor *holder; /* of the overdraft; NULL: none */
    size_t strangers;     /* what one of them holds */
    uint64_t random;
};

static void begin(struct world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    budget_limit(&w->b, LIMIT, REQUEST_MAX, SHARES);
    for (int i = 0; i < SHARES; i++) {
        w->share[i].all = &w->b;
    }
    for (int i = 0; i < ACTORS; i++) {
        w->actors[i].share = &w->share[i % SHARES];
    }
    w->random = seed;
}

static size_t below(struct world *w, size_t n)
{
    return (size_t)random_below(&w->random, n);
}

static void take(struct actor *a, size_t bytes)
{
    budget_take(a->share, bytes);
    a->held += bytes;
}

static void release(struct world *w, struct actor *a)
{
    if (a == w->holder) {
        budget_repay(a->share, 0);
        w->holder = NULL;
    } else {
        budget_give(a->share, a->held);
    }
    a->held = 0;
}

static bool grow_holder(struct world *w, size_t bytes)
{
    bool allowed = budget_overdraft_allows(&w->b, bytes);
    w->holder->held += allowed ? bytes : 0;
    budget_set_over(&w->b, w->holder->held);
    return allowed;
}

/* One of them does something, as connections do. */
static void act(struct world *w)
{
    struct actor *a = &w->actors[below(w, ACTORS)];
    size_t bytes = 1 + below(w, below(w, 4) == 0 ? 2 * 1024 * 1024 : REPLY), what = below(w, 20);
    if (what == 0) {
        release(w, a);
    } else if (a == w->holder) {
        grow_holder(w, bytes);
    } else if (what < 4 && w->holder == NULL) {
        assert_true(budget_overdraw(a->share, a->held));
        w->holder = a;
    } else if (what < 10 && bytes <= REPLY ? budget_lends(&w->b, bytes, false)
                                           : budget_allows(a->share, (enum budget_use)below(w, 3), bytes)) {
        take(a, bytes);
    }
}

/* They take what they get, and are closed now and then. */
static void act_as_stranger(struct world *w)
{
    size_t before = w->strangers, more = 1 + below(w, REPLY);
    if (below(w, 50) == 0) {
        w->strangers = 0;
    } else if (budget_allows_stranger(&w->b, more)) {
        w->strangers += more;
    }
    budget_set_stranger(&w->b, before, w->strangers);
}

static void nobody_passes_the_limit(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct world w;
        begin(&w, seed);
        for (int i = 0; i < 4000; i++) {
            act(&w);
            act_as_stranger(&w);
            if (budget_used(&w.b) > LIMIT) {
                fail_msg("seed %d: %zu bytes are held after %d steps", (int)seed, budget_used(&w.b), i + 1);
            }
            assert_true(budget_lends(&w.b, REPLY, true));
        }
    }
}

/* However full it is: when those who hold something have it answered, or are closed, and others ask for more all the
 * while. */
static void who_has_the_overdraft_ends(void **state)
{
    (void)state;
    enum { NEEDS = LIMIT / 4 * 3, STEP = 256 * 1024 };
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct world w;
        begin(&w, seed);
        for (int i = 0; i < 4000 || w.holder == NULL; i++) {
            act(&w);
        }
        struct actor *holder = w.holder;
        for (int closed = 0; holder->held < NEEDS; closed++) {
            while (holder->held < NEEDS && grow_holder(&w, STEP)) {
            }
            assert_true(budget_used(&w.b) <= LIMIT);
            assert_true(closed < ACTORS);
            struct actor *a = &w.actors[closed % ACTORS];
            if (holder->held < NEEDS && a != holder) {
                release(&w, a);
                for (int i = 0; i < ACTORS; i++) {
                    struct actor *other = &w.actors[i];
                    if (other != holder && budget_allows(other->share, BUDGET_REPLY, REPLY)) {
                        take(other, REPLY);
                    }
                }
            }
        }
        release(&w, holder);
        for (int i = 0; i < ACTORS; i++) {
            release(&w, &w.actors[i]);
        }
        assert_true(budget_allows(&w.share[0], BUDGET_REPLY, LIMIT / 2));
    }
}

/* Nobody else holds anything, and it asks for more again and again, as a connection with many calls of gRPC does. */
static void who_has_the_overdraft_passes_no_limit_alone(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 1);
    w.holder = &w.actors[0];
    assert_true(budget_overdraw(w.holder->share, 0));
    for (int i = 0; i < 1000; i++) {
        grow_holder(&w, 2 * REPLY);
    }
    assert_in_range(budget_used(&w.b), LIMIT / 4 * 3, LIMIT);
    assert_false(grow_holder(&w, 2 * REPLY));
    assert_false(grow_holder(&w, SIZE_MAX / 2));
    w.holder->held /= 2; /* some of it was read */
    budget_set_over(&w.b, w.holder->held);
    assert_true(grow_holder(&w, 2 * REPLY));
}

/* What it needed once is the others' again while it holds less and waits for little. */
static void what_the_overdraft_needs_no_more_is_shared(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 1);
    struct actor *other = &w.actors[1];
    take(other, LIMIT / 16 * 7);
    w.holder = &w.actors[0];
    assert_true(budget_overdraw(w.holder->share, 0));
    while (grow_holder(&w, 2 * REPLY)) {
    }
    assert_false(budget_allows(other->share, BUDGET_REPLY, REPLY));
    w.holder->held = REPLY;
    budget_set_over(&w.b, w.holder->held);
    budget_look_at_overdraft(&w.b, LIMIT / 8);
    assert_true(grow_holder(&w, LIMIT / 8));
    assert_true(budget_allows(other->share, BUDGET_REPLY, REPLY));
    budget_look_at_overdraft(&w.b, LIMIT / 4 * 3); /* it waits for much: nobody else gets any */
    assert_false(budget_allows(other->share, BUDGET_REPLY, REPLY));
    budget_look_at_overdraft(&w.b, 0);
    assert_true(budget_allows(other->share, BUDGET_REPLY, REPLY));
}

/* Whatever the others hold, strangers get what is theirs, and no more; and the other way round. */
static void strangers_have_a_place_of_their_own(void **state)
{
    (void)state;
    struct world w;
    begin(&w, 1);
    struct actor *other = &w.actors[1];
    while (budget_allows(other->share, BUDGET_REPLY, REPLY)) {
        take(other, REPLY);
    }
    while (budget_allows_stranger(&w.b, REPLY)) {
        budget_set_stranger(&w.b, w.strangers, w.strangers + REPLY);
        w.strangers += REPLY;
    }
    assert_in_range(w.strangers, LIMIT / 16, LIMIT / 10);
    assert_false(budget_allows(other->share, BUDGET_REPLY, REPLY));
    release(&w, other);
    assert_true(budget_allows(other->share, BUDGET_REPLY, LIMIT / 2));
    assert_true(budget_allows(other->share, BUDGET_LARGE, LIMIT / 4));
    assert_false(budget_allows_stranger(&w.b, REPLY));
    take(other, LIMIT / 2);
    budget_set_stranger(&w.b, w.strangers, 0);
    assert_true(budget_allows_stranger(&w.b, LIMIT / 16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_has_the_overdraft_passes_no_limit_alone),
        cmocka_unit_test(what_the_overdraft_needs_no_more_is_shared),
        cmocka_unit_test(nobody_passes_the_limit),
        cmocka_unit_test(who_has_the_overdraft_ends),
        cmocka_unit_test(strangers_have_a_place_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
