/* Relays: each visits every worker until it has no more to say there, and comes home; of a crowd, one a turn of the
 * loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "net/worker.h"

enum { CROWD = 5, STEPS = 4 };

struct relay {
    struct worker_relay relay;
    int steps, finished;
};

static struct worker_pool pool;
static struct worker worker;
static int turn, visited_in, most_in_a_turn, visits;
static struct relay relays[CROWD];

static void on_turn_of_loop(uv_check_t *check)
{
    (void)check;
    turn++;
    visited_in = 0;
}

static bool visit(struct worker_relay *r, struct worker *w)
{
    struct relay *relay = (struct relay *)r;
    assert_ptr_equal(w, &worker);
    if (++visited_in > most_in_a_turn) {
        most_in_a_turn = visited_in;
    }
    visits++;
    return ++relay->steps == STEPS;
}

static void finish(struct worker_relay *r, struct worker *w)
{
    assert_ptr_equal(w, &worker);
    ((struct relay *)r)->finished++;
}

static void set_up(uv_loop_t *loop)
{
    struct err err;
    pool = (struct worker_pool){.workers = &worker, .n = 1};
    worker = (struct worker){.pool = &pool};
    turn = visited_in = most_in_a_turn = visits = 0;
    assert_int_equal(uv_loop_init(loop), 0);
    assert_int_equal(loop_queue_open(&worker.queue, loop, &worker, &err), 0);
    for (int i = 0; i < CROWD; i++) {
        relays[i] = (struct relay){.relay = {.visit = visit, .finish = finish}};
        worker_relay_start(&relays[i].relay, &worker);
    }
}

static void tear_down(uv_loop_t *loop)
{
    loop_queue_close(&worker.queue);
    uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0);
    loop_queue_drain(&worker.queue);
    loop_queue_free(&worker.queue);
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(relays[i].steps, STEPS);
        assert_int_equal(relays[i].finished, 1);
    }
}

static void one_of_a_crowd_has_a_turn(void **state)
{
    (void)state;
    uv_loop_t loop;
    uv_check_t check;
    set_up(&loop);
    uv_check_init(&loop, &check);
    uv_check_start(&check, on_turn_of_loop);
    uv_run(&loop, UV_RUN_NOWAIT);
    while (visits < CROWD * STEPS) {
        int before = visits;
        uv_run(&loop, UV_RUN_ONCE);
        assert_int_equal(visits, before + 1);
        for (int i = 0; i < CROWD; i++) {
            assert_in_range(relays[0].steps - relays[i].steps, 0, 2);
        }
    }
    assert_int_equal(most_in_a_turn, 1);
    uv_run(&loop, UV_RUN_NOWAIT);
    uv_close((uv_handle_t *)&check, NULL);
    tear_down(&loop);
}

static void a_loop_that_ends_lets_them_go_on(void **state)
{
    (void)state;
    uv_loop_t loop;
    set_up(&loop);
    uv_run(&loop, UV_RUN_NOWAIT);
    assert_true(visits < CROWD * STEPS);
    tear_down(&loop);
    assert_int_equal(visits, CROWD * STEPS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_a_crowd_has_a_turn),
        cmocka_unit_test(a_loop_that_ends_lets_them_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
