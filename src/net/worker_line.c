/* Who waits for memory, or for the next turn, and when they go on.
 *
 * Strangers have memory of their own, and a line of their own, in the order of coming: none of those who have logged in
 * waits behind them, or is closed for them. Each may hold some for CONN_PATIENCE_STRANGE_MS, whatever it does
 * meanwhile. A connection that has held it for longer is closed while others wait, in the order in which they began; a
 * crowd that takes handshakes or calls and does no more keeps the next ones out for so long, and no longer.
 *
 * Each line is served for WORKER_SLICE_US a turn of the loop, however many stand in it: those who ask more than that
 * are many or never content, and who comes with a single question is answered between two slices. */
#include "base/clock.h"
#include "net/conn_impl.h"
#include "net/worker.h"

enum { STRANGERS_PART = 8 }; /* of what is theirs: so much makes way at a time, since that may be enough */

static void start_serving(struct worker *w);
static void start_turning(struct worker *w);

static bool waits_for_memory(const struct conn *c)
{
    const struct worker *w = c->worker;
    return c->line >= &w->lines[0] && c->line <= &w->lines[BUDGET_REPLY];
}

void worker_stop_waiting(struct conn *c)
{
    if (waits_for_memory(c) || c->line == &c->worker->strangers) {
        worker_leave_line(c);
    }
}

void worker_leave_line(struct conn *c)
{
    const struct worker *w = c->worker;
    if (c->line == &w->strangers) {
        atomic_fetch_sub_explicit(&w->pool->budget.strangers_waiting, 1, memory_order_relaxed);
    } else if (waits_for_memory(c)) {
        atomic_fetch_sub_explicit(&w->pool->budget.waiting, 1, memory_order_relaxed);
    }
    line_leave(c);
}

void worker_wait(struct conn *c, enum budget_use use, size_t more)
{
    struct worker *w = c->worker;
    bool stranger = conn_is_stranger(c) && !c->overdraft;
    struct budget *b = &w->pool->budget;
    atomic_fetch_add_explicit(stranger ? &b->strangers_waiting : &b->waiting, 1, memory_order_relaxed);
    line_join(stranger ? &w->strangers : &w->lines[use], c, more, c->overdraft);
    start_serving(w);
}

static void wait_in(struct line *line, struct conn *c)
{
    if (c->state == CONN_OPEN && c->line == NULL) {
        line_join(line, c, 0, false);
        start_turning(c->worker);
    }
}

void worker_wait_turn(struct conn *c)
{
    wait_in(&c->worker->next_turn, c);
}

void worker_wait_handshake(struct conn *c)
{
    wait_in(&c->worker->handshakes, c);
}

void worker_wait_rest(struct conn *c)
{
    line_join(&c->worker->halves, c, CONN_READ, false);
    start_serving(c->worker);
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
    const struct conn *c = NULL, *end = line->last;
    int64_t until = clock_real_us() + WORKER_SLICE_US;
    for (int i = 0; line->first != NULL && conn_has_room(line->first, use, line->first->wants); i++) {
        if (i == WORKER_LINE_BATCH || clock_real_us() > until) {
            start_turning(w);
            return;
        }
        c = line->first;
        serve(line->first);
        if (c == end || c == line->first) {
            return; /* those behind have just joined; or it has the overdraft, and waits for what it has recorded */
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

static void serve_strangers(struct worker *w)
{
    const struct conn *at = NULL, *end = w->strangers.last;
    int64_t until = clock_real_us() + WORKER_SLICE_US;
    for (struct conn *c; at != end && (c = w->strangers.first) != NULL; at = c) {
        if (!conn_has_room(c, BUDGET_REQUEST, c->wants)) {
            return;
        }
        if (clock_real_us() > until) {
            start_turning(w);
            return;
        }
        serve(c);
    }
}

void worker_make_way(struct worker *w)
{
    const struct budget *b = &w->pool->budget;
    int64_t now = clock_mono_ms();
    size_t gone = 0, most = budget_load(&b->strangers_waiting) > 0 ? budget_strangers_max(b) / STRANGERS_PART : 0;
    for (struct conn *c = w->strange_first, *next; c != NULL && gone < most; c = next) {
        next = c->next_strange;
        gone += conn_make_way_for_strangers(c, now) ? c->held : 0;
    }
}

static bool any_waits_for_memory(const struct worker *w)
{
    return w->lines[BUDGET_REPLY].first != NULL || w->lines[BUDGET_REQUEST].first != NULL ||
           w->lines[BUDGET_LARGE].first != NULL;
}

bool worker_is_busy(const struct worker *w)
{
    return w->next_turn.first != NULL || any_waits_for_memory(w);
}

void worker_serve_lines(struct worker *w)
{
    serve_strangers(w);
    if (any_waits_for_memory(w)) {
        serve_line(w, BUDGET_REPLY);
        serve_line(w, BUDGET_REQUEST);
        serve_line(w, BUDGET_LARGE);
        offer_overdraft(w);
    }
}

/* Each is looked at, but for a slice of time at most. */
static void serve_halves(struct worker *w)
{
    bool fits = budget_allows(&w->memory, BUDGET_REQUEST, CONN_READ);
    const struct conn *at = NULL, *end = w->halves.last;
    int64_t until = clock_real_us() + WORKER_SLICE_US;
    while (at != end && clock_real_us() <= until) {
        struct conn *c = w->halves.first;
        at = c;
        worker_leave_line(c);
        if (fits || conn_has_more(c)) {
            conn_kick(c);
        } else {
            worker_wait_rest(c);
        }
    }
}

/* Those who wait for memory are served at the end of each turn (end_turn()); the timer sees to it that there is one
 * when another worker has given some back. */
static void on_serving(uv_timer_t *timer)
{
    struct worker *w = timer->data;
    serve_halves(w);
    worker_make_way(w);
    if (any_waits_for_memory(w) || w->halves.first != NULL || w->strangers.first != NULL) {
        start_serving(w);
    }
}

static void start_serving(struct worker *w)
{
    if (!w->stopped && !uv_is_active((uv_handle_t *)&w->serving)) {
        uv_timer_start(&w->serving, on_serving, WORKER_LINE_MS, 0);
    }
}

static void serve_turn(struct line *line)
{
    const struct conn *c = NULL, *end = line->last;
    int64_t until = clock_real_us() + WORKER_SLICE_US;
    while (c != end && (c == NULL || clock_real_us() <= until)) {
        c = line->first;
        serve(line->first);
    }
}

static void on_turning(uv_idle_t *idle)
{
    struct worker *w = idle->data;
    serve_turn(&w->next_turn);
    serve_turn(&w->handshakes);
    if (w->next_turn.first == NULL && w->handshakes.first == NULL) {
        uv_idle_stop(idle);
    }
}

/* Not by a timer of 0 ms: libuv runs one that its own callback has started again before it looks at any socket. */
static void start_turning(struct worker *w)
{
    if (!w->stopped) {
        uv_idle_start(&w->turning, on_turning);
    }
}
