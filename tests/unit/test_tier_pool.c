/* A second tier that threads ask: answers, refusals and errors come back to the loop, once each; what waits for one
 * that is dead fails at once, and nobody is put to a connection of before, or to a thread that still waits for one;
 * what is dropped is not asked; and all of it is bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <uv.h>

#include "base/hash.h"
#include "dedup/dedup.h"
#include "dedup/tier_pool.h"
#include "tests/lib/alloc.h"

enum { MEMORY = 64 * 1024 * 1024 };

/* The other end. Its asks wait while they are held. */
struct fake {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool opens_fail, pings_fail, asks_fail, refuses, holds;
    int free_pass; /* so many are let go, though they are held */
    int opened, closed, pings, begun, newest;
    int dead;       /* lines up to that one fail */
    char asked[64]; /* the users, in their order */
};

struct line {
    struct fake *f;
    int id;
};

static int open_line(void *owner, void **out, struct err *err)
{
    struct fake *f = owner;
    struct line *line = calloc(1, sizeof *line);
    pthread_mutex_lock(&f->mutex);
    bool fails = f->opens_fail;
    line->f = f;
    line->id = fails ? 0 : ++f->opened;
    pthread_mutex_unlock(&f->mutex);
    if (fails) {
        free(line);
        return err_set(err, ERR_SYSTEM, "nobody there");
    }
    *out = line;
    return 0;
}

static void close_line(void *arg)
{
    struct line *line = arg;
    pthread_mutex_lock(&line->f->mutex);
    line->f->closed++;
    pthread_cond_broadcast(&line->f->changed);
    pthread_mutex_unlock(&line->f->mutex);
    free(line);
}

static int ping(void *arg, struct err *err)
{
    struct fake *f = ((struct line *)arg)->f;
    pthread_mutex_lock(&f->mutex);
    f->pings++;
    bool fails = f->pings_fail;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->mutex);
    return fails ? err_set(err, ERR_SYSTEM, "no word from it") : 0;
}

/* Odd hashes are seen; `to` is that of the first one. */
static int ask_line(void *arg, struct tier_question *q, struct err *err)
{
    struct line *line = arg;
    struct fake *f = line->f;
    pthread_mutex_lock(&f->mutex);
    size_t len = strlen(f->asked);
    if (len < sizeof f->asked - 1) {
        f->asked[len] = q->user.data[0];
    }
    f->newest = line->id;
    f->begun++;
    pthread_cond_broadcast(&f->changed);
    while (f->holds && f->free_pass == 0) {
        pthread_cond_wait(&f->changed, &f->mutex);
    }
    f->free_pass -= f->free_pass > 0;
    bool fails = f->asks_fail || line->id <= f->dead, refuses = f->refuses;
    pthread_mutex_unlock(&f->mutex);
    if (fails) {
        return err_set(err, ERR_SYSTEM, "cut off");
    }
    q->verdict = TIER_ANSWERED;
    if (refuses) {
        q->verdict = TIER_NOT_WHOLE;
        err_set(&q->err, ERR_INVALID, "not now");
        return 0;
    }
    memset(q->unseen, 0, (q->n + 7) / 8);
    for (size_t i = 0; i < q->n; i++) {
        q->unseen[i / 8] |= (uint8_t)(q->hashes[i] % 2 == 0 ? 0x80 >> i % 8 : 0);
    }
    q->to = q->hashes[0];
    q->error = 0.5;
    return 0;
}

static const struct tier_line_ops ops = {"fake", open_line, close_line, ping, ask_line};

struct fixture {
    struct fake fake;
    struct budget budget;
    struct budget_share memory;
    uv_loop_t loop;
    struct tier_pool *pool;
    const struct tier_ops *ops;
    struct tier_port *port;
    int done;
    bool open;
};

struct asked {
    struct tier_question q;
    struct fixture *x;
    int done;
    bool again;
};

static void on_done(struct tier_question *q)
{
    struct asked *a = (struct asked *)q;
    a->done++;
    a->x->done++;
    if (a->again) {
        a->again = false;
        assert_true(a->x->ops->ask(a->x->port, q));
    }
}

/* Hashes from `first` on. */
static struct asked *question(struct fixture *x, const char *user, uint64_t first, size_t n)
{
    struct asked *a = calloc(1, sizeof *a);
    uint64_t *hashes = malloc(n * sizeof *hashes);
    for (size_t i = 0; i < n; i++) {
        hashes[i] = first + i;
    }
    a->x = x;
    a->q = (struct tier_question){
        .done = on_done, .user = slice_str(user), .hashes = hashes, .n = n, .unseen = malloc((n + 7) / 8)};
    return a;
}

static void question_free(struct asked *a)
{
    free((void *)a->q.hashes);
    free(a->q.unseen);
    free(a);
}

static bool ask(struct asked *a)
{
    return a->x->ops->ask(a->x->port, &a->q);
}

static void run_until(struct fixture *x, int done)
{
    while (x->done < done) {
        uv_run(&x->loop, UV_RUN_ONCE);
    }
    assert_int_equal(x->done, done);
}

static bool is_well(struct fixture *x)
{
    char why[sizeof((struct err *)0)->text];
    return x->ops->is_well(tier_pool_tier(x->pool), why, sizeof why);
}

static void expect_why(struct fixture *x, const char *words)
{
    char why[sizeof((struct err *)0)->text];
    assert_false(x->ops->is_well(tier_pool_tier(x->pool), why, sizeof why));
    assert_non_null(strstr(why, words));
}

/* One more ping comes when the one before was judged. */
static void wait_judged(struct fixture *x)
{
    pthread_mutex_lock(&x->fake.mutex);
    for (int until = x->fake.pings + 2; x->fake.pings < until;) {
        pthread_cond_wait(&x->fake.changed, &x->fake.mutex);
    }
    pthread_mutex_unlock(&x->fake.mutex);
}

static void set(struct fixture *x, bool *flag, bool value)
{
    pthread_mutex_lock(&x->fake.mutex);
    *flag = value;
    pthread_cond_broadcast(&x->fake.changed);
    pthread_mutex_unlock(&x->fake.mutex);
}

static void wait_begun(struct fixture *x, int begun)
{
    pthread_mutex_lock(&x->fake.mutex);
    while (x->fake.begun < begun) {
        pthread_cond_wait(&x->fake.changed, &x->fake.mutex);
    }
    assert_int_equal(x->fake.begun, begun);
    pthread_mutex_unlock(&x->fake.mutex);
}

static void start(struct fixture *x)
{
    struct err err;
    assert_int_equal(tier_pool_start(&ops, &x->fake, &x->pool, &err), 0);
    struct tier *tier = tier_pool_tier(x->pool);
    x->ops = tier->ops;
    assert_int_equal(x->ops->port_new(tier, &x->port, &err), 0);
    x->ops->port_open(x->port, &x->loop, &x->memory);
    x->open = true;
}

static int setup(void **state)
{
    struct fixture *x = *state = calloc(1, sizeof *x);
    pthread_mutex_init(&x->fake.mutex, NULL);
    pthread_cond_init(&x->fake.changed, NULL);
    budget_limit(&x->budget, MEMORY, MEMORY / 8, 1);
    x->memory.all = &x->budget;
    assert_int_equal(uv_loop_init(&x->loop), 0);
    start(x);
    wait_judged(x);
    assert_true(is_well(x));
    return 0;
}

static void close_port(struct fixture *x)
{
    x->ops->port_close(x->port);
    uv_run(&x->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&x->loop), 0);
    assert_int_equal(x->memory.held, 0);
    x->open = false;
}

static int teardown(void **state)
{
    struct fixture *x = *state;
    if (x->open) {
        close_port(x);
    }
    set(x, &x->fake.holds, false);
    tier_pool_stop(x->pool);
    assert_int_equal(x->fake.opened, x->fake.closed);
    x->ops->port_free(x->port);
    tier_pool_free(x->pool);
    pthread_cond_destroy(&x->fake.changed);
    pthread_mutex_destroy(&x->fake.mutex);
    free(x);
    return 0;
}

static void questions_are_answered(void **state)
{
    struct fixture *x = *state;
    struct asked *a[10];
    for (int i = 0; i < 10; i++) {
        a[i] = question(x, "u", (uint64_t)i + 1, (size_t)(9 + i * 1000));
        assert_true(ask(a[i]));
    }
    run_until(x, 10);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(a[i]->q.verdict, TIER_ANSWERED);
        assert_int_equal(a[i]->q.to, i + 1);
        assert_true(a[i]->q.error == 0.5);
        assert_int_equal(a[i]->q.unseen[0], i % 2 == 0 ? 0x55 : 0xaa);
        assert_int_equal(a[i]->q.unseen[1] & 0x80, i % 2 == 0 ? 0 : 0x80);
        assert_null(a[i]->q.way);
        assert_int_equal(a[i]->done, 1);
        question_free(a[i]);
    }
}

static void many_more_than_it_takes_at_a_time(void **state)
{
    struct fixture *x = *state;
    enum { MANY = 4 * TIER_POOL_QUESTIONS_MAX };
    struct asked *a[MANY];
    for (int i = 0; i < MANY; i++) {
        a[i] = question(x, "u", (uint64_t)i, 11);
        while (!ask(a[i])) {
            uv_run(&x->loop, UV_RUN_ONCE);
        }
    }
    run_until(x, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(a[i]->q.verdict, TIER_ANSWERED);
        assert_int_equal(a[i]->q.to, i);
        question_free(a[i]);
    }
}

static void one_may_be_asked_again_from_its_answer(void **state)
{
    struct fixture *x = *state;
    struct asked *a = question(x, "u", 3, 1);
    a->again = true;
    assert_true(ask(a));
    run_until(x, 2);
    assert_int_equal(a->done, 2);
    question_free(a);
}

static void a_refusal_keeps_the_line_and_an_error_ends_it(void **state)
{
    struct fixture *x = *state;
    struct asked *a = question(x, "u", 1, 1);
    set(x, &x->fake.refuses, true);
    assert_true(ask(a));
    run_until(x, 1);
    assert_int_equal(a->q.verdict, TIER_NOT_WHOLE);
    assert_string_equal(a->q.err.text, "not now");
    assert_int_equal(x->fake.closed, 0);
    set(x, &x->fake.asks_fail, true);
    assert_true(ask(a));
    run_until(x, 2);
    assert_int_equal(a->q.verdict, TIER_FAILED);
    assert_string_equal(a->q.err.text, "cut off");
    assert_in_range(x->fake.closed, 1, 2); /* one that is new isn't tried again */
    assert_true(is_well(x));               /* the keeper says whether it is */
    set(x, &x->fake.asks_fail, false);
    set(x, &x->fake.refuses, false);
    assert_true(ask(a));
    run_until(x, 3);
    assert_int_equal(a->q.verdict, TIER_ANSWERED);
    question_free(a);
}

/* As when the other side closes what has been idle for long. */
static void lines_that_have_died_cost_no_question(void **state)
{
    struct fixture *x = *state;
    struct asked *a[TIER_POOL_THREADS];
    set(x, &x->fake.holds, true);
    for (int i = 0; i < TIER_POOL_THREADS; i++) {
        a[i] = question(x, "u", 1, 1);
        assert_true(ask(a[i]));
    }
    wait_begun(x, TIER_POOL_THREADS);
    set(x, &x->fake.holds, false);
    run_until(x, TIER_POOL_THREADS);
    pthread_mutex_lock(&x->fake.mutex);
    x->fake.dead = x->fake.opened;
    pthread_mutex_unlock(&x->fake.mutex);
    for (int i = 0; i < TIER_POOL_THREADS; i++) {
        assert_true(ask(a[i]));
        run_until(x, TIER_POOL_THREADS + i + 1);
        assert_int_equal(a[i]->q.verdict, TIER_ANSWERED);
    }
    for (int i = 0; i < TIER_POOL_THREADS; i++) {
        question_free(a[i]);
    }
}

static void so_many_questions_at_a_time(void **state)
{
    struct fixture *x = *state;
    struct asked *a[TIER_POOL_QUESTIONS_MAX + 1];
    set(x, &x->fake.holds, true);
    for (int i = 0; i <= TIER_POOL_QUESTIONS_MAX; i++) {
        a[i] = question(x, "u", 1, 1);
        assert_int_equal(ask(a[i]), i < TIER_POOL_QUESTIONS_MAX);
    }
    wait_begun(x, TIER_POOL_THREADS);
    const size_t all = x->memory.held;
    x->ops->drop(x->port, &a[0]->q); /* a thread has it: it takes room until that is through */
    assert_int_equal(x->memory.held, all);
    assert_false(ask(a[TIER_POOL_QUESTIONS_MAX]));
    x->ops->drop(x->port, &a[TIER_POOL_QUESTIONS_MAX - 1]->q); /* whose room is free at once */
    assert_int_equal(x->memory.held, all / TIER_POOL_QUESTIONS_MAX * (TIER_POOL_QUESTIONS_MAX - 1));
    assert_true(ask(a[TIER_POOL_QUESTIONS_MAX]));
    set(x, &x->fake.holds, false);
    run_until(x, TIER_POOL_QUESTIONS_MAX - 1);
    assert_int_equal(a[0]->done, 0);
    assert_int_equal(a[TIER_POOL_QUESTIONS_MAX - 1]->done, 0);
    for (int i = 0; i <= TIER_POOL_QUESTIONS_MAX; i++) {
        question_free(a[i]);
    }
}

static void so_many_bytes_at_a_time(void **state)
{
    struct fixture *x = *state;
    enum { N = TIER_POOL_BYTES_MAX / (ITEMS_MAX * 8) };
    struct asked *a[N];
    set(x, &x->fake.holds, true);
    for (int i = 0; i < N; i++) {
        a[i] = question(x, "u", 1, ITEMS_MAX);
        assert_int_equal(ask(a[i]), i < N - 1); /* with what each takes beside its hashes */
    }
    set(x, &x->fake.holds, false);
    run_until(x, N - 1);
    assert_true(ask(a[N - 1]));
    run_until(x, N);
    for (int i = 0; i < N; i++) {
        question_free(a[i]);
    }
}

/* A copy counts in request_memory from before it is made until it is freed. */
static void what_it_copies_is_charged(void **state)
{
    struct fixture *x = *state;
    enum { HASHES = ITEMS_MAX * 8 };
    struct asked *first = question(x, "u", 1, ITEMS_MAX), *second = question(x, "u", 1, ITEMS_MAX);
    set(x, &x->fake.holds, true);
    assert_true(ask(first));
    const size_t one = x->memory.held, others = budget_shared(&x->budget) - one - one / 2;
    assert_in_range(one, HASHES, HASHES + HASHES / 4);
    budget_take(&x->memory, others);
    assert_false(ask(second));
    budget_give(&x->memory, others);
    assert_true(ask(second));
    assert_int_equal(x->memory.held, 2 * one);
    set(x, &x->fake.holds, false);
    run_until(x, 2);
    assert_int_equal(x->memory.held, 0);
    question_free(first);
    question_free(second);
}

static void none_is_asked_before_it_is_reached(void **state)
{
    struct fixture *x = *state;
    struct asked *a = question(x, "u", 1, 1);
    close_port(x);
    tier_pool_stop(x->pool);
    x->ops->port_free(x->port);
    tier_pool_free(x->pool);
    x->fake.opens_fail = true;
    assert_int_equal(uv_loop_init(&x->loop), 0);
    start(x);
    assert_false(ask(a));
    set(x, &x->fake.opens_fail, false);
    wait_judged(x);
    assert_true(is_well(x));
    assert_true(ask(a));
    run_until(x, 1);
    question_free(a);
}

/* Four in the hands of threads, and three behind them. */
enum { UNDER_WAY = TIER_POOL_THREADS + 3 };
static void put_under_way(struct fixture *x, struct asked **a)
{
    set(x, &x->fake.holds, true);
    for (int i = 0; i < UNDER_WAY; i++) {
        a[i] = question(x, i < TIER_POOL_THREADS ? "held" : "waiting", 1, 1);
        assert_true(ask(a[i]));
    }
    wait_begun(x, TIER_POOL_THREADS);
}

static void what_waits_for_a_dead_one_fails(void **state)
{
    struct fixture *x = *state;
    struct asked *a[UNDER_WAY], *late = question(x, "late", 1, 1);
    put_under_way(x, a);
    set(x, &x->fake.pings_fail, true);
    const size_t all = x->memory.held;
    run_until(x, UNDER_WAY);                                               /* though no thread is through */
    assert_int_equal(x->memory.held, all / UNDER_WAY * TIER_POOL_THREADS); /* whose copies those are */
    expect_why(x, "no word from it");
    assert_false(ask(late));
    for (int i = 0; i < UNDER_WAY; i++) {
        assert_int_equal(a[i]->q.verdict, TIER_FAILED);
        assert_string_equal(a[i]->q.err.text, "no word from it");
        assert_null(a[i]->q.way);
        question_free(a[i]);
    }
    set(x, &x->fake.pings_fail, false);
    while (!is_well(x)) {
        wait_judged(x);
    }
    assert_false(ask(late)); /* no thread is there for it */
    pthread_mutex_lock(&x->fake.mutex);
    x->fake.free_pass = 1;
    int closed = x->fake.closed;
    pthread_cond_broadcast(&x->fake.changed);
    pthread_mutex_unlock(&x->fake.mutex);
    while (!ask(late)) {
        uv_run(&x->loop, UV_RUN_NOWAIT);
    }
    wait_begun(x, TIER_POOL_THREADS + 1);
    assert_int_equal(x->fake.closed, closed + 1); /* over a line of its own, since that of before may be dead */
    assert_int_equal(x->fake.newest, x->fake.opened);
    set(x, &x->fake.holds, false);
    run_until(x, UNDER_WAY + 1);
    assert_int_equal(late->q.verdict, TIER_ANSWERED);
    assert_string_equal(x->fake.asked, "hhhhl");
    question_free(late);
}

static void what_is_dropped_is_not_asked(void **state)
{
    struct fixture *x = *state;
    struct asked *a[UNDER_WAY];
    put_under_way(x, a);
    for (int i = 1; i < UNDER_WAY; i++) {
        x->ops->drop(x->port, &a[i]->q);
        question_free(a[i]); /* its own side may go now */
    }
    struct asked *last = question(x, "last", 2, 1);
    assert_true(ask(last));
    set(x, &x->fake.holds, false);
    run_until(x, 2);
    assert_int_equal(a[0]->done, 1);
    assert_int_equal(last->done, 1);
    assert_string_equal(x->fake.asked, "hhhhl");
    question_free(a[0]);
    question_free(last);
}

static void all_is_told_when_the_loop_ends(void **state)
{
    struct fixture *x = *state;
    struct asked *a[UNDER_WAY];
    put_under_way(x, a);
    x->ops->drop(x->port, &a[0]->q);
    x->ops->drop(x->port, &a[UNDER_WAY - 1]->q);
    close_port(x);
    assert_int_equal(x->done, UNDER_WAY - 2);
    for (int i = 0; i < UNDER_WAY; i++) {
        bool dropped = i == 0 || i == UNDER_WAY - 1;
        assert_int_equal(a[i]->done, dropped ? 0 : 1);
        assert_true(dropped || (a[i]->q.verdict == TIER_FAILED && a[i]->q.err.code == ERR_CLOSED));
        question_free(a[i]);
    }
    assert_string_equal(x->fake.asked, "hhhh");
}

static void without_memory_none_is_taken(void **state)
{
    struct fixture *x = *state;
    struct asked *a = question(x, "u", 1, 1);
    struct err err;
    struct tier_pool *pool;
    struct tier_port *port;
    alloc_fail_at(1);
    assert_false(ask(a));
    alloc_fail_at(1);
    assert_int_equal(x->ops->port_new(tier_pool_tier(x->pool), &port, &err), ERR_NOMEM);
    alloc_fail_at(1);
    assert_int_equal(tier_pool_start(&ops, &x->fake, &pool, &err), ERR_NOMEM);
    assert_true(ask(a));
    run_until(x, 1);
    question_free(a);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(questions_are_answered),
        TEST(many_more_than_it_takes_at_a_time),
        TEST(one_may_be_asked_again_from_its_answer),
        TEST(a_refusal_keeps_the_line_and_an_error_ends_it),
        TEST(lines_that_have_died_cost_no_question),
        TEST(so_many_questions_at_a_time),
        TEST(so_many_bytes_at_a_time),
        TEST(what_it_copies_is_charged),
        TEST(none_is_asked_before_it_is_reached),
        TEST(what_waits_for_a_dead_one_fails),
        TEST(what_is_dropped_is_not_asked),
        TEST(all_is_told_when_the_loop_ends),
        TEST(without_memory_none_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
