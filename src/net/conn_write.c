/* How replies go out: as much as the kernel takes at the end of each turn; the rest is libuv's, and what is said
 * meanwhile gathers in a second buffer. */
#include "base/clock.h"
#include "base/log.h"
#include "net/conn_impl.h"
#include "net/worker.h"

enum { KEEP_OUT = 4096 };

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
        c->arrived_us = clock_stopwatch_us(); /* until now it was the peer that took its time */
        conn_wait(c, 0);
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

void conn_flush(struct conn *c)
{
    if (c->state == CONN_CLOSING || c->sending.len > 0) {
        return;
    }
    if (c->out.failed) {
        conn_log(c, LOG_LEVEL_WARN, "connection closed", "out of memory");
        conn_abort(c);
        return;
    }
    if (c->out.len > 0) {
        uv_buf_t bytes = uv_buf_init(c->out.data, (unsigned)c->out.len);
        int n = uv_try_write(&c->uv.stream, &bytes, 1);
        if (n < 0 && n != UV_EAGAIN) {
            conn_abort(c);
            return;
        }
        size_t sent = n > 0 ? (size_t)n : 0;
        worker_count(c->worker, COUNT_BYTES_OUT, c->out.len);
        if (sent < c->out.len) {
            c->sending = c->out;
            c->out = (struct buf){0};
            bytes = uv_buf_init(c->sending.data + sent, (unsigned)(c->sending.len - sent));
            c->write.data = c;
            c->stuck_bytes = c->sending.len - sent;
            c->stuck_ms = clock_mono_ms();
            if (uv_write(&c->write, &c->uv.stream, &bytes, 1, on_written) < 0) {
                conn_abort(c);
            }
            conn_account(c);
            return;
        }
        buf_clear(&c->out);
        if (c->out.cap > KEEP_OUT) {
            buf_free(&c->out);
        }
        conn_account(c);
    }
    all_sent(c);
}
