/* A connection's life: bytes in, the work of its calls, bytes out. */
#include <stdlib.h>

#include "base/clock.h"
#include "grpc/server.h"
#include "net/stray.h"

enum {
    FEED = 16 * 1024, /* bytes between two looks at the work */
    PULL = 64 * 1024, /* of replies at a time */
    PENDING_FIRST = 16,
    UNCHARGED = 4 * 1024, /* bytes of open calls beside an idle session: who only listens is in no one's way. Of a
                             stranger all is charged, or ten thousand would hold much of what is charged to none */
    SESSION = 12 * 1024,  /* bytes of a session that has just begun, about */
};

/* --- work --- */

void grpc_work_add(struct call *call)
{
    struct grpc_conn *s = call->conn;
    if (call->at_work) {
        return;
    }
    call->at_work = true;
    call->behind = NULL;
    if (s->work_last != NULL) {
        s->work_last->behind = call;
    } else {
        s->work_first = call;
    }
    s->work_last = call;
}

void grpc_work_first(struct call *call)
{
    struct grpc_conn *s = call->conn;
    if (call->at_work || s->work_first == NULL) {
        grpc_work_add(call);
        return;
    }
    call->at_work = true;
    call->behind = s->work_first;
    s->work_first = call;
}

static void work_done(struct grpc_conn *s)
{
    struct call *call = s->work_first;
    s->work_first = call->behind;
    s->work_last = s->work_first != NULL ? s->work_last : NULL;
    call->at_work = false;
    call_settle(call);
}

/* False: the connection must wait. */
static bool work(struct grpc_conn *s)
{
    while (s->work_first != NULL) {
        if (!conn_may_run(&s->conn) || !call_work(s->work_first)) {
            return false;
        }
        work_done(s);
    }
    return true;
}

/* As much as one reply may have. More of them, unread, would leave the other clients nothing; and a connection that
 * waits for memory is not read, so that its peer could not even open the windows for what it has. A stranger has the
 * same, of what strangers share. */
static size_t others_owed_max(const struct grpc_conn *s)
{
    const struct budget *b = &s->conn.worker->pool->budget;
    return conn_is_stranger(&s->conn) ? budget_strangers_max(b) / 4 : budget_reply_max(b);
}

bool grpc_is_full(const struct call *call)
{
    struct grpc_conn *s = call->conn;
    bool full = s->owed - call->owed > others_owed_max(s);
    s->full = s->full || full;
    return full;
}

/* Some of it has gone. */
static void go_on_with_blocked(struct grpc_conn *s)
{
    s->full = false;
    for (struct call *call = s->calls; call != NULL; call = call->next) {
        if (call->blocked) {
            grpc_work_add(call);
        }
    }
    worker_wait_turn(&s->conn);
}

void grpc_charge(struct grpc_conn *s)
{
    if (s->full && s->owed <= others_owed_max(s)) {
        go_on_with_blocked(s);
    }
    size_t all = s->held + s->pending_cap * sizeof *s->pending + s->session_bytes;
    size_t less = conn_is_stranger(&s->conn) ? 0 : s->session_least + UNCHARGED;
    conn_charge(&s->conn, all > less ? all - less : 0);
    s->conn.owed = s->calls != NULL;
}

/* --- what is recorded --- */

bool grpc_pending_room(struct grpc_conn *s)
{
    if (s->n_pending < s->pending_cap) {
        return true;
    }
    size_t cap = s->pending_cap == 0 ? PENDING_FIRST : 2 * s->pending_cap;
    struct pending *ring = malloc(cap * sizeof *ring);
    if (ring == NULL) {
        return false;
    }
    for (size_t i = 0; i < s->n_pending; i++) {
        ring[i] = s->pending[(s->pending_at + i) % s->pending_cap];
    }
    free(s->pending);
    s->pending = ring;
    s->pending_at = 0;
    s->pending_cap = cap;
    return true;
}

void grpc_pending_add(struct call *call, uint64_t tag, int64_t count)
{
    struct grpc_conn *s = call->conn;
    s->pending[(s->pending_at + s->n_pending++) % s->pending_cap] = (struct pending){call, tag, count};
}

static void on_recorded(struct conn *c, uint32_t n, size_t bytes, const struct err *err)
{
    (void)n;
    struct grpc_conn *s = grpc_conn_of(c);
    struct pending p = s->pending[s->pending_at];
    s->pending_at = (s->pending_at + 1) % s->pending_cap;
    if (--s->n_pending == 0) {
        free(s->pending);
        s->pending = NULL;
        s->pending_at = s->pending_cap = 0;
    }
    call_recorded(p.call, &p, bytes, err);
    call_settle(p.call);
    grpc_charge(s);
    if (s->work_first != NULL && s->work_first->at_work) {
        conn_kick(c);
    }
}

/* --- the connection --- */

static void on_open(struct conn *c)
{
    (void)c; /* a session is made for who says something */
}

/* Whether there is a session, or may be one. */
static bool begin(struct grpc_conn *s)
{
    struct conn *c = &s->conn;
    if (s->session != NULL) {
        return true;
    }
    if (c->input.len == 0) {
        return false;
    }
    if (!conn_has_room(c, BUDGET_REQUEST, SESSION)) {
        conn_starve(c, BUDGET_REQUEST, SESSION);
        return false;
    }
    if (h2_open(s) < 0) {
        conn_abort(c);
        return false;
    }
    worker_count(c->worker, COUNT_GRPC_CONNECTIONS, 1);
    return true;
}

static void on_input(struct conn *c)
{
    struct grpc_conn *s = grpc_conn_of(c);
    if (s->session == NULL && stray_is_resp(c->input)) {
        stray_send_on(c, "gRPC");
        return;
    }
    if (!begin(s)) {
        return;
    }
    while (work(s) && c->input.len > 0) {
        size_t n = c->input.len < FEED ? c->input.len : FEED;
        if (!conn_has_room(c, BUDGET_REQUEST, n) && !conn_is_lent(c, s->held, n)) {
            conn_starve(c, BUDGET_REQUEST, n);
            break;
        }
        h2_feed(s, slice_of(c->input.data, n));
        conn_consume(c, n);
    }
    grpc_charge(s);
}

static bool on_output(struct conn *c)
{
    struct grpc_conn *s = grpc_conn_of(c);
    if (s->session == NULL) {
        return false;
    }
    bool more = h2_pull(s, PULL);
    if (!more && (s->broken || !(nghttp2_session_want_read(s->session) || nghttp2_session_want_write(s->session)))) {
        conn_finish(c);
    }
    grpc_charge(s);
    return more;
}

static void look_at_pings(struct grpc_conn *s, int64_t now)
{
    if (s->ping_ms == 0) {
        s->pings = 0;
    }
    if (now - s->conn.active_ms < GRPC_PING_MS) {
        s->ping_ms = 0; /* what came says the same */
    } else if (s->ping_ms == 0 || now - s->ping_ms >= GRPC_PING_MS) {
        if (s->pings++ == GRPC_PING_STRIKES) {
            worker_count(s->conn.worker, COUNT_TIMEOUTS, 1);
            conn_log(&s->conn, LOG_LEVEL_INFO, "connection timed out", "pings are not answered");
            conn_abort(&s->conn);
            return;
        }
        s->ping_ms = now;
        h2_ping(s);
    }
}

/* By its calls, since pings go to and fro. */
static bool is_idle(const struct grpc_conn *s, int64_t now)
{
    int64_t timeout = config_now(grpc_of(&s->conn)->cfg)->idle_timeout_ms;
    return timeout > 0 && s->calls == NULL && now - s->called_ms >= timeout;
}

static void on_tick(struct conn *c, int64_t now)
{
    struct grpc_conn *s = grpc_conn_of(c);
    if (s->session == NULL) {
        return;
    }
    for (struct call *call = s->calls, *next; call != NULL; call = next) {
        next = call->next;
        call_tick(call, now);
        call_settle(call);
    }
    if (is_idle(s, now)) {
        worker_count(c->worker, COUNT_TIMEOUTS, 1);
        conn_log(c, LOG_LEVEL_INFO, "connection timed out", "idle");
        h2_goaway(s);
        conn_finish(c);
        return;
    }
    if (s->coming == 0) {
        h2_window(s, GRPC_WINDOW);
    }
    look_at_pings(s, now);
    grpc_charge(s);
}

static void on_drain(struct conn *c)
{
    struct grpc_conn *s = grpc_conn_of(c);
    if (s->session != NULL && !s->draining) {
        s->draining = true;
        h2_goaway(s);
    }
    for (struct call *call = s->calls, *next; call != NULL; call = next) {
        next = call->next;
        call_drain(call);
        call_settle(call);
    }
    grpc_charge(s);
}

static void on_gone(struct conn *c)
{
    for (struct call *call = grpc_conn_of(c)->calls; call != NULL; call = call->next) {
        call_drop_late(call);
    }
}

static void on_close(struct conn *c)
{
    struct grpc_conn *s = grpc_conn_of(c);
    if (s->session != NULL) {
        h2_close(s);
        worker_count(c->worker, COUNT_GRPC_CONNECTIONS, (uint64_t)-1);
    }
    while (s->calls != NULL) {
        call_free(s->calls);
    }
    free(s->pending);
}

const struct conn_ops grpc_conn_ops = {
    .size = sizeof(struct grpc_conn),
    .edge = "grpc",
    .answers_anybody = true,
    .alpn = "h2",
    .full = "",
    .full_here = "",
    .made_room = "",
    .open = on_open,
    .input = on_input,
    .recorded = on_recorded,
    .gone = on_gone,
    .close = on_close,
    .output = on_output,
    .tick = on_tick,
    .drain = on_drain,
};
