/* How replies go out: as much as the kernel takes at the end of each turn; the rest is libuv's, and what is said
 * meanwhile gathers in a second buffer. */
#include "base/clock.h"
#include "base/log.h"
#include "net/conn_impl.h"
#include "net/worker.h"

static void on_shut(uv_shutdown_t *request, int status)
{
    struct conn *c = request->data;
    if (status < 0) {
        conn_abort(c);
    }
}

static void say_goodbye(struct conn *c)
{
    if (c->eof || c->worker->stopping) {
        conn_abort(c);
        return;
    }
    if (!c->shut) {
        c->shut = true;
        c->linger = CONN_LINGER_TICKS;
        c->shutdown.data = c;
        if (uv_shutdown(&c->shutdown, &c->uv.stream, on_shut) < 0) {
            conn_abort(c);
            return;
        }
        conn_read_on(c);
    }
}

static void all_sent(struct conn *c)
{
    if (c->state == CONN_FINISHING) {
        say_goodbye(c);
    } else if (c->choked) {
        c->choked = false;
        c->arrived_us = clock_figures_us(); /* until now it was the peer that took its time */
        worker_wait_turn(c);
    } else {
        conn_end_if_done(c);
    }
}

static void on_written(uv_write_t *request, int status)
{
    struct conn *c = request->data;
    buf_free(&c->sending);
    conn_account(c);
    if (status < 0) {
        conn_abort(c);
        return;
    }
    conn_flush(c);
}

void conn_leave_to_libuv(struct conn *c, size_t sent)
{
    c->unread = c->stuck_bytes = c->sending.len - sent;
    c->unread_ms = c->stuck_ms = clock_mono_ms();
    uv_buf_t bytes = uv_buf_init(c->sending.data + sent, (unsigned)c->unread);
    c->write.data = c;
    if (uv_write(&c->write, &c->uv.stream, &bytes, 1, on_written) < 0) {
        conn_abort(c);
    }
}

void conn_clear_out(struct conn *c)
{
    buf_clear(&c->out);
    if (c->out.cap > CONN_KEEP_OUT || !budget_allows(&c->worker->memory, BUDGET_LARGE, 0)) {
        buf_free(&c->out);
    }
}

bool conn_send(struct conn *c)
{
    if (c->state == CONN_CLOSING || c->sending.len > 0) {
        conn_account(c);
        return false;
    }
    if (c->out.failed) {
        conn_log(c, LOG_LEVEL_WARN, "connection closed", "out of memory");
        conn_abort(c);
        return false;
    }
    c->granted = 0;
    if (c->secure) {
        return conn_tls_send(c);
    }
    if (c->out.len == 0) {
        return true;
    }
    uv_buf_t bytes = uv_buf_init(c->out.data, (unsigned)c->out.len);
    int n = uv_try_write(&c->uv.stream, &bytes, 1);
    if (n < 0 && n != UV_EAGAIN) {
        conn_abort(c);
        return false;
    }
    size_t sent = n > 0 ? (size_t)n : 0;
    worker_count(c->worker, COUNT_BYTES_OUT, c->out.len);
    if (sent < c->out.len) {
        c->sending = c->out;
        c->out = (struct buf){0};
        buf_fit(&c->sending);
        conn_leave_to_libuv(c, sent);
    } else {
        conn_clear_out(c);
    }
    conn_account(c);
    return c->sending.len == 0;
}

void conn_flush(struct conn *c)
{
    bool more;
    do {
        more = c->ops->output != NULL && c->state != CONN_CLOSING && c->sending.len == 0 && c->ops->output(c);
        if (!conn_send(c)) {
            return;
        }
    } while (more);
    all_sent(c);
}
