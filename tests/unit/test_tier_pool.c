/* A second tier that threads ask (dedup/tier_pool.h), over lines of the test's: they answer, are late, fail, or are
 * dead. The loop is the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#include <uv.h>

#include "dedup/tier_pool.h"

enum { CANDIDATES = 11, MANY = 4 * TIER_POOL_QUESTIONS_MAX };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool dead, held, refuses, fails;
    int open, at_it, asked;
} far;

static uv_loop_t loop;
static struct tier_pool *pool;
static struct tier *tier;
static struct tier_port *port;

/* --- the lines --- */

static int open_line(void *owner, void **line, struct err *err)
{
    assert_ptr_equal(owner, &far);
    pthread_mutex_lock(&far.lock);
    int rc = far.dead ? err_set(err, ERR_SYSTEM, "nobody is there") : 0;
    far.open += rc == 0;
    pthread_mutex_unlock(&far.lock);
    *line = &far;
    return rc;
}

static void close_line(void *line)
{
    (void)line;
    pthread_mutex_lock(&far.lock);
    far.open--;
    pthread_mutex_unlock(&far.lock);
}

static int ping(void *line, struct err *err)
{
    (void)line;
    pthread_mutex_lock(&far.lock);
    int rc = far.dead ? err_set(err, ERR_LATE, "it says nothing") : 0;
    pthread_mutex_unlock(&far.lock);
    return rc;
}

static int ask_line(void *line, struct tier_question *q, struct err *err)
{
    (void)line;
    pthread_mutex_lock(&far.lock);
    far.at_it++;
    far.asked++;
    pthread_cond_broadcast(&far.changed);
    while (far.held) {
        pthread_cond_wait(&far.changed, &far.lock);
    }
    far.at_it--;
    int rc = far.fails ? err_set(err, ERR_SYSTEM, "the line broke") : 0;
    q->verdict = far.refuses ? TIER_NOT_WHOLE : TIER_ANSWERED;
    pthread_mutex_unlock(&far.lock);
    if (q->verdict == TIER_NOT_WHOLE) {
        err_set(&q->err, ERR_STALE, "not whole");
    }
    q->to = q->hashes[0];
    q->error = 0.5;
    memset(q->unseen, 0xa5, (q->n + 7) / 8);
    return rc;
}

static const struct tier_line_ops line_ops = {"test", open_line, close_line, ping, ask_line};

static void set(bool *flag, bool on)
{
    pthread_mutex_lock(&far.lock);
    *flag = on;
    pthread_cond_broadcast(&far.changed);
    pthread_mutex_unlock(&far.lock);
}

/* --- questions --- */

struct asked {
    struct tier_question q;
    uint64_t hashes[CANDIDATES];
    uint8_t unseen[(CANDIDATES + 7) / 8];
    bool done;
};

static void on_done(struct tier_question *q)
{
    struct asked *a = (struct asked *)q;
    assert_false(a->done);
    a->done = true;
}

static bool ask(struct asked *a, uint64_t first)
{
    *a = (struct asked){.q = {.done = on_done, .user = slice_str("u"), .n = CANDIDATES}};
    a->hashes[0] = first;
    a->q.hashes = a->hashes;
    a->q.unseen = a->unseen;
    return tier->ops->ask(port, &a->q);
}

static bool is_well(void)
{
    char why[256];
    return tier->ops->is_well(tier, why, sizeof why);
}

static void until_well(bool well)
{
    while (is_well() != well) {
        usleep(1000);
    }
}

static void until_at_it(int n)
{
    pthread_mutex_lock(&far.lock);
    while (far.at_it < n) {
        pthread_cond_wait(&far.changed, &far.lock);
    }
    pthread_mutex_unlock(&far.lock);
}

static void until_done(const struct asked *a)
{
    while (!a->done) {
        uv_run(&loop, UV_RUN_ONCE);
    }
}

static int setup(void **state)
{
    (void)state;
    struct err err = {0};
    memset(&far, 0, sizeof far);
    pthread_mutex_init(&far.lock, NULL);
    pthread_cond_init(&far.changed, NULL);
    uv_loop_init(&loop);
    assert_int_equal(tier_pool_start(&line_ops, &far, &pool, &err), 0);
    tier = tier_pool_tier(pool);
    assert_int_equal(tier->ops->port_new(tier, &port, &err), 0);
    tier->ops->port_open(port, &loop);
    until_well(true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (port != NULL) {
        tier->ops->port_close(port);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    tier_pool_stop(pool);
    tier->ops->port_free(port);
    tier_pool_free(pool);
    assert_int_equal(far.open, 0);
    return 0;
}

/* --- tests --- */

static void test_answers(void **state)
{
    (void)state;
    static struct asked all[MANY];
    int taken = 0;
    for (int i = 0; i < MANY; i++) {
        struct asked *a = &all[i];
        while (!ask(a, (uint64_t)i)) { /* as many as it takes at a time */
            uv_run(&loop, UV_RUN_ONCE);
        }
        taken++;
    }
    for (int i = 0; i < taken; i++) {
        until_done(&all[i]);
        assert_int_equal(all[i].q.verdict, TIER_ANSWERED);
        assert_int_equal(all[i].q.to, i);
        assert_int_equal(all[i].unseen[1], 0xa5);
    }
}

static void test_bounds(void **state)
{
    (void)state;
    static struct asked all[TIER_POOL_QUESTIONS_MAX + 1];
    set(&far.held, true);
    for (int i = 0; i < TIER_POOL_QUESTIONS_MAX; i++) {
        assert_true(ask(&all[i], 1));
    }
    assert_false(ask(&all[TIER_POOL_QUESTIONS_MAX], 1));
    tier->ops->drop(port, &all[0].q); /* a thread has it: it takes room until that is through */
    assert_false(ask(&all[TIER_POOL_QUESTIONS_MAX], 1));
    set(&far.held, false);
    for (int i = 1; i < TIER_POOL_QUESTIONS_MAX; i++) {
        until_done(&all[i]);
    }
    while (!ask(&all[TIER_POOL_QUESTIONS_MAX], 1)) {
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    until_done(&all[TIER_POOL_QUESTIONS_MAX]);
    assert_false(all[0].done);
}

static void test_not_whole_and_a_broken_line(void **state)
{
    (void)state;
    struct asked a;
    set(&far.refuses, true);
    assert_true(ask(&a, 1));
    until_done(&a);
    assert_int_equal(a.q.verdict, TIER_NOT_WHOLE);
    assert_string_equal(a.q.err.text, "not whole");
    set(&far.fails, true);
    assert_true(ask(&a, 1));
    until_done(&a);
    assert_int_equal(a.q.verdict, TIER_FAILED);
    assert_string_equal(a.q.err.text, "the line broke");
    assert_true(is_well()); /* the keeper says so */
    set(&far.fails, false);
    set(&far.refuses, false);
    assert_true(ask(&a, 1)); /* over a new one */
    until_done(&a);
    assert_int_equal(a.q.verdict, TIER_ANSWERED);
}

/* What threads have and what waits for them fails at once, though the threads are held; and it comes back by itself. */
static void test_dead(void **state)
{
    (void)state;
    struct asked all[TIER_POOL_THREADS + 2], more;
    set(&far.held, true);
    for (int i = 0; i < TIER_POOL_THREADS + 2; i++) {
        assert_true(ask(&all[i], 1));
    }
    until_at_it(TIER_POOL_THREADS);
    set(&far.dead, true);
    for (int i = 0; i < TIER_POOL_THREADS + 2; i++) {
        until_done(&all[i]);
        assert_int_equal(all[i].q.verdict, TIER_FAILED);
        assert_string_equal(all[i].q.err.text, "it says nothing");
    }
    assert_false(ask(&more, 1));
    set(&far.dead, false);
    until_well(true);
    set(&far.held, false);
    assert_true(ask(&more, 7));
    until_done(&more);
    assert_int_equal(more.q.to, 7);
}

static void test_closed_with_questions_under_way(void **state)
{
    (void)state;
    static struct asked all[TIER_POOL_THREADS + 2];
    set(&far.held, true);
    for (int i = 0; i < TIER_POOL_THREADS + 2; i++) {
        assert_true(ask(&all[i], 1));
    }
    until_at_it(TIER_POOL_THREADS);
    tier->ops->drop(port, &all[1].q);
    tier->ops->port_close(port);
    for (int i = 0; i < TIER_POOL_THREADS + 2; i++) {
        assert_int_equal(all[i].done, i != 1);
        assert_true(i == 1 || all[i].q.err.code == ERR_CLOSED);
    }
    set(&far.held, false);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    tier_pool_stop(pool);
    tier->ops->port_free(port);
    tier_pool_free(pool);
    assert_int_equal(far.open, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_answers),
        TEST(test_bounds),
        TEST(test_not_whole_and_a_broken_line),
        TEST(test_dead),
        cmocka_unit_test_setup(test_closed_with_questions_under_way, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
