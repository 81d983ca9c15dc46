/* How bytes come in. While a connection holds at most CONN_HEAD bytes of an unfinished request, its next bytes are read
 * into the worker's shared buffer, behind a headroom into which those few are copied: so many short requests cost one
 * large read, and the connection keeps a few bytes at most. A larger request is read straight into memory of its own,
 * which doubles as it comes, up to what it announced. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/conn_impl.h"
#include "net/worker.h"

enum {
    READ_ALWAYS = 4096, /* bytes of an unfinished request, however short memory is */
    ROOM_LEAST = 4096,
    SPARE_MAX = 2 * 1024 * 1024,
};

void conn_free_input(struct conn *c)
{
    struct buf *spare = &c->worker->spare;
    if (c->in.cap > spare->cap && c->in.cap > CONN_READ && c->in.cap <= SPARE_MAX) {
        struct buf old = *spare;
        *spare = c->in;
        buf_clear(spare);
        c->in = old;
    }
    buf_free(&c->in);
    c->input = (struct slice){NULL, 0};
}

/* How much room a large request should get next: double, but no more than it is known to need. */
static size_t room_wanted(const struct conn *c)
{
    size_t len = c->in.len;
    size_t doubled = len < CONN_READ ? 2 * CONN_READ : 2 * len;
    size_t needed = c->need > len + CONN_HEAD ? c->need : len + CONN_HEAD;
    return needed < doubled ? needed : doubled;
}

/* What has been read must be kept somewhere; where malloc() has no place for it, the connection ends. */
static void give_up(struct conn *c)
{
    conn_log(c, LOG_LEVEL_WARN, "connection closed", "no memory for its request");
    conn_abort(c);
}

static bool wants_input(struct conn *c)
{
    return !c->paused && conn_may_run(c);
}

/* Memory is short: the one connection that may go beyond gets what it wants, the others wait. Who could not go on with
 * it anyway does neither. */
static bool may_overdraw(struct conn *c)
{
    if (c->overdraft || !wants_input(c)) {
        return c->overdraft;
    }
    c->overdraft = budget_overdraw(&c->worker->memory);
    if (!c->overdraft) {
        conn_starve(c);
    }
    return c->overdraft;
}

static void make_room(struct conn *c, size_t cap)
{
    if (cap <= c->in.cap) {
        return;
    }
    if (cap < 2 * c->in.cap) {
        cap = 2 * c->in.cap;
    }
    if (cap > CONN_READ && !budget_allows(&c->worker->memory, cap - c->in.cap) && !may_overdraw(c)) {
        return;
    }
    if (buf_reserve(&c->in, cap - c->in.len) < 0) {
        give_up(c);
        return;
    }
    c->input.data = c->in.data;
}

/* Gives what input() left over a place of its own. */
static void keep_rest(struct conn *c)
{
    struct slice rest = c->input;
    if (rest.len == 0) {
        conn_free_input(c);
        return;
    }
    if (c->in.len == 0) {
        struct buf *spare = &c->worker->spare;
        if (rest.len > CONN_HEAD && spare->cap > c->in.cap) {
            struct buf old = c->in;
            c->in = *spare;
            *spare = old;
        }
        if (buf_reserve(&c->in, rest.len) < 0) {
            give_up(c);
            return;
        }
    }
    memmove(c->in.data, rest.data, rest.len);
    c->in.len = rest.len;
    c->input = buf_slice(&c->in);
}

static void settle(struct conn *c, size_t before, int64_t now)
{
    if (c->state != CONN_OPEN) {
        conn_free_input(c);
        conn_account(c);
        return;
    }
    if (c->input.len < before || c->input.len == 0) {
        c->partial_ms = 0;
    }
    keep_rest(c);
    if (c->partial_ms == 0 && c->input.len > 0) {
        c->partial_ms = now;
    }
    conn_end_if_done(c);
    conn_account(c);
    conn_touch(c);
    conn_read_on(c);
}

static void run(struct conn *c, int64_t now)
{
    size_t before = c->input.len;
    if (conn_may_run(c)) {
        c->need = 0;
        c->ops->input(c);
    }
    settle(c, before, now);
}

void conn_kick(struct conn *c)
{
    if (c->state == CONN_OPEN) {
        c->paused = false;
        run(c, clock_mono_ms());
    }
}

static bool reads_directly(const struct conn *c)
{
    return c->state == CONN_OPEN && c->input.len > CONN_HEAD;
}

/* How much may be read into the shared buffer. All of it may turn out to be an unfinished request's, and what has been
 * read can't be put back: so it is here that it is decided to keep it. */
static size_t shared_room(struct conn *c)
{
    if (budget_fits(&c->worker->memory, CONN_READ)) {
        return CONN_READ;
    }
    if (c->input.len < READ_ALWAYS) {
        return READ_ALWAYS - c->input.len;
    }
    return may_overdraw(c) ? CONN_READ : 0;
}

static size_t own_room(struct conn *c)
{
    if (c->in.cap - c->in.len < ROOM_LEAST) {
        make_room(c, room_wanted(c));
    }
    return c->in.cap - c->in.len;
}

/* No room: libuv tells on_read() so. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct conn *c = handle->data;
    if (reads_directly(c)) {
        size_t room = own_room(c);
        *buf = uv_buf_init(c->in.data + c->in.len, room < UINT32_MAX ? (unsigned)room : UINT32_MAX);
    } else {
        *buf = uv_buf_init(c->worker->read_buf + CONN_HEAD, (unsigned)shared_room(c));
    }
}

static void stop_reading(struct conn *c)
{
    if (c->reading) {
        c->reading = false;
        uv_read_stop(&c->uv.stream);
    }
}

static void on_end(struct conn *c, ssize_t code)
{
    stop_reading(c);
    if (code != UV_EOF || c->state == CONN_FINISHING) {
        conn_abort(c);
        return;
    }
    c->eof = true;
    settle(c, c->input.len, clock_mono_ms());
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    (void)buf;
    struct conn *c = stream->data;
    if (c->state == CONN_CLOSING) {
        return;
    }
    if (n == 0) {
        conn_account(c); /* it may have got the overdraft for nothing */
        return;
    }
    if (n == UV_ENOBUFS) {
        stop_reading(c);
        return;
    }
    if (n < 0) {
        on_end(c, n);
        return;
    }
    worker_count(c->worker, COUNT_BYTES_IN, (uint64_t)n);
    if (c->state == CONN_FINISHING) {
        return;
    }
    int64_t now = c->active_ms = clock_mono_ms();
    if (c->input.len == 0 || !(c->paused || c->in_line || c->choked)) { /* else a request waits already */
        c->arrived_us = clock_stopwatch_us();
    }
    if (reads_directly(c)) {
        c->in.len += (size_t)n;
        c->input = buf_slice(&c->in);
    } else {
        char *start = c->worker->read_buf + CONN_HEAD - c->input.len;
        if (c->input.len > 0) {
            memcpy(start, c->input.data, c->input.len);
        }
        c->input = slice_of(start, c->input.len + (size_t)n);
        c->in.len = 0;
    }
    if (wants_input(c)) {
        run(c, now);
    } else {
        settle(c, c->input.len, now);
        stop_reading(c);
    }
}

/* Reading is not stopped when nothing is wanted, but when something comes all the same: most peers wait for their
 * answer, and so the kernel need not be told twice a request. */
void conn_read_on(struct conn *c)
{
    bool wanted = !c->eof && (c->state == CONN_FINISHING || wants_input(c));
    if (wanted && !c->reading && c->state != CONN_CLOSING) {
        c->reading = true;
        if (uv_read_start(&c->uv.stream, on_alloc, on_read) < 0) {
            conn_abort(c);
        }
    }
}
