/* Who waits for memory, or for the next turn, and when they go on. */
#include "net/worker.h"

static void start_serving(struct worker *w, uint64_t ms);

void worker_leave_line(struct conn *c)
{
    if (c->line != NULL && c->line != &c->worker->next_turn) {
        atomic_fetch_sub_explicit(&c->worker->crew->budget.waiting, 1, memory_order_relaxed);
    }
    line_leave(c);
}

void worker_wait(struct conn *c, enum budget_use use, size_t more)
{
    struct worker *w = c->worker;
    atomic_fetch_add_explicit(&w->crew->budget.waiting, 1, memory_order_relaxed);
    line_join(&w->lines[use], c, more);
    start_serving(w, WORKER_LINE_MS);
}

void worker_wait_turn(struct conn *c)
{
    if (c->state == CONN_OPEN && c->line == NULL) {
        line_join(&c->worker->next_turn, c, 0);
        start_serving(c->worker, 0);
    }
}

static void serve(struct conn *c)
{
    worker_leave_line(c);
    conn_kick(c);
}

/* Those in front for whom there is room, as many as fit in a turn. */
static void serve_line(struct worker *w, enum budget_use use)
{
    struct line *line = &w->lines[use];
    const struct conn *end = line->last;
    for (int i = 0; i < WORKER_LINE_BATCH && line->first != NULL; i++) {
        struct conn *c = line->first;
        if (!budget_allows(&w->memory, use, c->wants)) {
            return;
        }
        serve(c);
        if (c == end) {
            return; /* those behind have just joined */
        }
    }
}

/* There is no room for any of them, and perhaps because of what they hold themselves: one goes beyond. */
static void offer_overdraft(struct worker *w)
{
    for (int i = 0; i <= BUDGET_REPLY; i++) {
        struct conn *c = w->lines[w->overdraft_turn].first;
        w->overdraft_turn = (w->overdraft_turn + 1) % (BUDGET_REPLY + 1);
        if (c != NULL) {
            if (budget_overdraw(&w->memory, c->held)) {
                c->overdraft = true;
                serve(c);
            }
            return;
        }
    }
}

static bool anybody_waits(const struct worker *w)
{
    return w->lines[BUDGET_REPLY].first != NULL || w->lines[BUDGET_REQUEST].first != NULL ||
           w->lines[BUDGET_LARGE].first != NULL;
}

void worker_serve_lines(struct worker *w)
{
    if (anybody_waits(w)) {
        serve_line(w, BUDGET_REPLY);
        serve_line(w, BUDGET_REQUEST);
        serve_line(w, BUDGET_LARGE);
        offer_overdraft(w);
    }
}

/* Those who wait for memory are served at the end of each turn (end_turn()); the timer sees to it that there is one
 * when another worker has given some back. */
static void on_serve(uv_timer_t *timer)
{
    struct worker *w = timer->data;
    for (const struct conn *c = NULL, *end = w->next_turn.last; c != end;) {
        c = w->next_turn.first;
        serve(w->next_turn.first);
    }
    if (w->next_turn.first != NULL) {
        start_serving(w, 0);
    } else if (anybody_waits(w)) {
        start_serving(w, WORKER_LINE_MS);
    }
}

static void start_serving(struct worker *w, uint64_t ms)
{
    if (!w->stopped && (!uv_is_active((uv_handle_t *)&w->serving) || uv_timer_get_due_in(&w->serving) > ms)) {
        uv_timer_start(&w->serving, on_serve, ms, 0);
    }
}
