/* Questions that deliver, of drawn users, in drawn orders, against a model: what one answer has taken no other takes,
 * until no question can have missed that it was recorded. And on several threads at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/err.h"
#include "service/sending.h"
#include "tests/lib/rounds.h"

static bool takes(struct sending *q, uint64_t hash)
{
    return sending_take(q, hash, 0, NULL) == SENDING_TAKES;
}

static void an_item_is_taken_once(void **state)
{
    (void)state;
    struct sendings *s = sendings_new();
    struct sending *a = sending_begin(s, 1, slice_str("ann")), *b = sending_begin(s, 1, slice_str("ann")),
                   *other = sending_begin(s, 1, slice_str("bob")); /* of the same key */
    assert_false(sending_any(a));
    assert_int_equal(sending_answer(a, 2), 0);
    assert_int_equal(sending_answer(b, 2), 0);
    assert_int_equal(sending_answer(other, 1), 0);
    assert_true(takes(a, 7));
    assert_false(takes(b, 7));
    assert_true(takes(b, 8));
    assert_true(sending_holds(a, 8) && sending_holds(b, 7) && !sending_holds(a, 9));
    assert_true(takes(other, 7));
    sent_recorded(sending_record(other), true);
    sent_recorded(sending_record(a), true);
    sent_recorded(sending_record(b), true);
    a = sending_begin(s, 1, slice_str("ann")); /* it finds them in the store */
    assert_false(sending_any(a));
    sending_end(a);
    sendings_free(s);
}

/* One that has looked at the user before the record was durable. */
static void until_the_older_ones_have_ended(void **state)
{
    (void)state;
    struct sendings *s = sendings_new();
    struct sending *old = sending_begin(s, 1, slice_str("ann")), *a = sending_begin(s, 1, slice_str("ann"));
    assert_int_equal(sending_answer(a, 1), 0);
    assert_true(takes(a, 7));
    sent_recorded(sending_record(a), true);
    struct sending *younger = sending_begin(s, 1, slice_str("ann"));
    assert_true(sending_holds(old, 7) && sending_holds(younger, 7)); /* which may, and need not be */
    sending_end(old);
    assert_false(sending_any(younger));
    sending_end(younger);
    sendings_free(s);
}

static void what_failed_may_be_sent(void **state)
{
    (void)state;
    struct sendings *s = sendings_new();
    struct sending *a = sending_begin(s, 1, slice_str("ann")), *b = sending_begin(s, 1, slice_str("ann"));
    assert_int_equal(sending_answer(a, 3), 0);
    assert_true(takes(a, 7) && takes(a, 8));
    struct sent_record *record = sending_record(a);
    assert_true(sending_holds(b, 7) && sending_holds(b, 8));
    sent_recorded(record, false);
    assert_false(sending_any(b));
    assert_int_equal(sending_answer(b, 1), 0);
    assert_null(sending_record(b)); /* nothing was taken */
    sendings_free(s);
}

/* --- drawn --- */

enum { QUESTIONS = 12, ITEMS = 24, STEPS = 4000 };

/* stored: since which moment; 0: not. A question that began later sees it. */
static void any_order(void **state)
{
    (void)state;
    unsigned seed = 1;
    for (int round = 0; round < test_rounds(40); round++) {
        struct sendings *s = sendings_new();
        struct {
            struct sending *q;
            struct sent_record *record;
            int began, items[ITEMS], n;
        } of[QUESTIONS] = {{0}};
        int stored[ITEMS] = {0}, taken[ITEMS] = {0};
        for (int now = 1; now < STEPS; now++) {
            int i = rand_r(&seed) % QUESTIONS;
            if (of[i].record != NULL) { /* its record ends */
                bool good = rand_r(&seed) % 4 != 0;
                for (int k = 0; k < of[i].n; k++) {
                    taken[of[i].items[k]] = 0;
                    stored[of[i].items[k]] = good ? now : 0;
                }
                sent_recorded(of[i].record, good);
                of[i].record = NULL;
            } else if (of[i].q == NULL) {
                of[i].q = sending_begin(s, 5, slice_str("ann"));
                of[i].began = now;
            } else if (rand_r(&seed) % 3 == 0) { /* it fails */
                sending_end(of[i].q);
                of[i].q = NULL;
            } else { /* or is answered, by what it saw when it began */
                int most = 1 + rand_r(&seed) % 4;
                of[i].n = 0;
                assert_int_equal(sending_answer(of[i].q, (size_t)most), 0);
                for (int item = 0; item < ITEMS && of[i].n < most; item++) {
                    bool sees = stored[item] != 0 && stored[item] < of[i].began;
                    if (!sees && takes(of[i].q, (uint64_t)item * 16)) {
                        assert_int_equal(taken[item], 0);
                        assert_int_equal(stored[item], 0);
                        taken[item] = 1;
                        of[i].items[of[i].n++] = item;
                    }
                }
                of[i].record = sending_record(of[i].q);
                assert_true((of[i].record != NULL) == (of[i].n > 0));
                of[i].q = NULL;
            }
        }
        for (int i = 0; i < QUESTIONS; i++) {
            sending_end(of[i].q);
            sent_recorded(of[i].record, true);
        }
        sendings_free(s);
    }
}

/* --- threads --- */

enum { THREADS = 4, PER_THREAD = 3000, USERS = 3 };

struct shared {
    struct sendings *s;
    atomic_int sent[USERS][THREADS * PER_THREAD];
};

static void *hammer(void *arg)
{
    static const char *const users[USERS] = {"ann", "bob", "carol"};
    struct shared *x = arg;
    unsigned seed = (unsigned)(uintptr_t)&seed;
    for (int i = 0; i < test_rounds(PER_THREAD); i++) {
        int u = rand_r(&seed) % USERS;
        struct sending *q = sending_begin(x->s, u * 64, slice_str(users[u]));
        assert_int_equal(sending_answer(q, 2), 0);
        int item[2], n = 0;
        for (int k = 0; k < THREADS * PER_THREAD && n < 2; k++) {
            if (atomic_load(&x->sent[u][k]) == 0 && takes(q, (uint64_t)k * 1000003)) {
                item[n++] = k;
            }
        }
        struct sent_record *record = sending_record(q);
        for (int k = 0; k < n; k++) {
            assert_int_equal(atomic_fetch_add(&x->sent[u][item[k]], 1), 0); /* as the store has it, before the answer */
        }
        sent_recorded(record, true);
    }
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    struct shared *x = calloc(1, sizeof *x);
    pthread_t t[THREADS];
    x->s = sendings_new();
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, hammer, x), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(t[i], NULL);
    }
    sendings_free(x->s);
    free(x);
}

/* At most two of a group. */
struct twice {
    size_t told, of[4];
    bool fails;
};

static int told(void *arg, uint64_t hash, uint64_t group)
{
    struct twice *t = arg;
    (void)hash;
    t->told++;
    t->of[group]++;
    return t->fails ? ERR_NOMEM : 0;
}

static bool hides(void *arg, uint64_t group)
{
    return ((const struct twice *)arg)->of[group] >= 2;
}

/* A rule is told of each item once, whoever has taken it, and of what was taken before it began. */
static void by_a_rule(void **state)
{
    (void)state;
    struct sendings *s = sendings_new();
    struct sending *a = sending_begin(s, 1, slice_str("ann")), *b = sending_begin(s, 1, slice_str("ann"));
    struct twice of_a = {.told = 0}, of_b = {.told = 0};
    const struct sending_rule rule_a = {told, hides, &of_a}, rule_b = {told, hides, &of_b};
    assert_int_equal(sending_answer(a, 9), 0);
    assert_int_equal(sending_answer(b, 9), 0);
    assert_int_equal(sending_take(a, 10, 1, &rule_a), SENDING_TAKES);
    assert_int_equal(sending_take(b, 11, 1, &rule_b), SENDING_TAKES);
    assert_int_equal(sending_take(a, 12, 1, &rule_a), SENDING_HIDDEN);
    assert_int_equal(sending_take(b, 13, 1, &rule_b), SENDING_HIDDEN);
    assert_int_equal(sending_take(b, 10, 2, &rule_b), SENDING_HELD);
    assert_int_equal(sending_take(a, 14, 2, &rule_a), SENDING_TAKES);
    assert_int_equal(sending_take(a, 15, 3, &rule_a), SENDING_TAKES);
    assert_true(of_a.told == 3 && of_b.told == 2);
    of_b.fails = true;
    assert_int_equal(sending_take(b, 16, 3, &rule_b), SENDING_FAILS);
    assert_false(sending_holds(a, 16));
    sent_recorded(sending_record(a), true);
    sent_recorded(sending_record(b), false);
    sendings_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_item_is_taken_once),
        cmocka_unit_test(until_the_older_ones_have_ended),
        cmocka_unit_test(what_failed_may_be_sent),
        cmocka_unit_test(any_order),
        cmocka_unit_test(threads),
        cmocka_unit_test(by_a_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
