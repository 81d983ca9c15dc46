/* How bytes come in. While a connection holds at most CONN_HEAD bytes of an unfinished request, its next bytes are read
 * into the worker's shared buffer, behind a headroom into which those few are copied: so many short requests cost one
 * large read, and the connection keeps a few bytes at most. A larger request is read straight into memory of its own,
 * which doubles as it comes, up to what it announced.
 *
 * How a connection ends. CONN_OPEN -> CONN_FINISHING: nothing more is taken in, what is in out is sent, then our half
 * is shut, and what the peer still sends is thrown away for a moment, since closing with unread bytes would make its
 * kernel throw away our last words. -> CONN_CLOSING: libuv closes the handle and calls back; the memory goes when
 * nobody holds the connection any more. */
#include "net/conn.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/worker.h"

enum {
    KEEP_OUT = 4096,
    ROOM_LEAST = 4096,
    SPARE_MAX = 2 * 1024 * 1024,
    KEEPALIVE_S = 300,
};

static void read_on(struct conn *c);

static size_t unsent(const struct conn *c)
{
    return c->out.len + c->sending.len;
}

static void account(struct conn *c)
{
    size_t held = c->in.cap + c->out.cap + c->sending.cap + c->extra;
    if (held > c->held) {
        budget_take(&c->worker->memory, held - c->held);
    } else if (held < c->held) {
        budget_give(&c->worker->memory, c->held - held);
    }
    c->held = held;
    if (c->overdraft && held <= CONN_READ) { /* the request has been read, and its reply too */
        c->overdraft = false;
        budget_repay(&c->worker->memory);
    }
}

static void free_input(struct conn *c)
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

void conn_hold(struct conn *c)
{
    c->refs++;
}

void conn_release(struct conn *c)
{
    if (--c->refs > 0) {
        return;
    }
    struct worker *w = c->worker;
    c->ops->close(c);
    c->extra = 0;
    free_input(c);
    buf_free(&c->out);
    buf_free(&c->sending);
    account(c);
    w->n_alive--;
    free(c);
}

static void leave_line(struct conn *c)
{
    for (struct conn **at = &c->worker->line; c->in_line && *at != NULL; at = &(*at)->next_in_line) {
        if (*at == c) {
            *at = c->next_in_line;
            return;
        }
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct conn *c = handle->data;
    struct worker *w = c->worker;
    if (c->prev != NULL) {
        c->prev->next = c->next;
    } else {
        w->conns = c->next;
    }
    if (c->next != NULL) {
        c->next->prev = c->prev;
    }
    leave_line(c);
    free_input(c);
    buf_free(&c->out);
    account(c);
    atomic_fetch_sub_explicit(&w->crew->clients, 1, memory_order_relaxed);
    conn_release(c);
}

void conn_abort(struct conn *c)
{
    if (c->state == CONN_CLOSING) {
        return;
    }
    c->state = CONN_CLOSING;
    uv_close(&c->uv.handle, on_closed);
}

void conn_finish(struct conn *c)
{
    if (c->state == CONN_OPEN) {
        c->state = CONN_FINISHING;
        conn_touch(c);
    }
}

void conn_touch(struct conn *c)
{
    if (!c->dirty && c->state != CONN_CLOSING) {
        c->dirty = true;
        c->next_dirty = c->worker->dirty;
        c->worker->dirty = c;
    }
}

static void wait_in_line(struct conn *c, uint64_t ms)
{
    if (c->state == CONN_OPEN && !c->in_line) {
        c->in_line = true;
        c->next_in_line = NULL;
        struct conn **end = &c->worker->line;
        while (*end != NULL) {
            end = &(*end)->next_in_line;
        }
        *end = c;
        worker_serve_line(c->worker, ms);
    }
}

void conn_starve(struct conn *c)
{
    worker_count(c->worker, COUNT_STARVED, 1);
    wait_in_line(c, WORKER_LINE_MS);
}

bool conn_may_run(const struct conn *c)
{
    return c->state == CONN_OPEN && !c->worker->stopping && !c->in_line && unsent(c) <= CONN_UNSENT_MAX;
}

/* How much room a large request should get next: double, but no more than it is known to need. */
static size_t room_wanted(const struct conn *c)
{
    size_t len = c->in.len;
    size_t doubled = len < CONN_READ ? 2 * CONN_READ : 2 * len;
    size_t needed = c->need > len + CONN_HEAD ? c->need : len + CONN_HEAD;
    return needed < doubled ? needed : doubled;
}

static bool make_room(struct conn *c, size_t cap)
{
    if (cap <= c->in.cap) {
        return true;
    }
    if (cap < 2 * c->in.cap) {
        cap = 2 * c->in.cap;
    }
    struct budget_share *memory = &c->worker->memory;
    if (cap > CONN_READ && !c->overdraft && !budget_allows(memory, cap - c->in.cap)) {
        if (!budget_overdraw(memory)) {
            conn_starve(c);
            return false;
        }
        c->overdraft = true;
    }
    if (buf_reserve(&c->in, cap - c->in.len) < 0) {
        conn_abort(c);
        return false;
    }
    c->input.data = c->in.data;
    return true;
}

/* Gives what input() left over a place of its own, and room for what is to come. */
static void keep_rest(struct conn *c)
{
    struct slice rest = c->input;
    if (rest.len == 0) {
        free_input(c);
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
            conn_abort(c);
            return;
        }
    }
    memmove(c->in.data, rest.data, rest.len);
    c->in.len = rest.len;
    c->input = buf_slice(&c->in);
    if (rest.len > CONN_HEAD && c->in.cap - c->in.len < ROOM_LEAST) {
        make_room(c, room_wanted(c));
    }
}

/* The peer has sent all it wants to. What it asked for is still answered. */
static void end_if_done(struct conn *c)
{
    if (c->eof && c->state == CONN_OPEN && c->refs == 1 && !c->paused && !c->in_line && !c->choked) {
        conn_finish(c);
    }
}

static void settle(struct conn *c, size_t before, int64_t now)
{
    if (c->state != CONN_OPEN) {
        free_input(c);
        account(c);
        return;
    }
    if (c->input.len < before || c->input.len == 0) {
        c->partial_ms = 0;
    }
    if (unsent(c) > CONN_UNSENT_MAX) {
        c->choked = true;
    }
    keep_rest(c);
    if (c->partial_ms == 0 && c->input.len > 0) {
        c->partial_ms = now;
    }
    end_if_done(c);
    account(c);
    conn_touch(c);
    read_on(c);
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

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct conn *c = handle->data;
    if (reads_directly(c)) {
        size_t room = c->in.cap - c->in.len;
        *buf = uv_buf_init(c->in.data + c->in.len, room < UINT32_MAX ? (unsigned)room : UINT32_MAX);
    } else {
        *buf = uv_buf_init(c->worker->read_buf + CONN_HEAD, CONN_READ);
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
    if (n == 0 || c->state == CONN_CLOSING) {
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
    if (c->paused || !conn_may_run(c)) {
        settle(c, c->input.len, now);
        stop_reading(c);
    } else {
        run(c, now);
    }
}

/* Reading is not stopped when nothing is wanted, but when something comes all the same: most peers wait for their
 * answer, and so the kernel need not be told twice a request. */
static void read_on(struct conn *c)
{
    bool wanted = !c->eof && (c->state == CONN_FINISHING || (!c->paused && conn_may_run(c)));
    if (wanted && !c->reading && c->state != CONN_CLOSING) {
        c->reading = true;
        if (uv_read_start(&c->uv.stream, on_alloc, on_read) < 0) {
            conn_abort(c);
        }
    }
}

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
        read_on(c);
    }
}

static void all_sent(struct conn *c)
{
    if (c->state == CONN_FINISHING) {
        say_goodbye(c);
    } else if (c->choked) {
        c->choked = false;
        wait_in_line(c, 0);
    } else {
        end_if_done(c);
    }
}

static void on_written(uv_write_t *request, int status)
{
    struct conn *c = request->data;
    buf_free(&c->sending);
    account(c);
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
        log_warn("connection closed", "id=%llu cause=\"out of memory\"", (unsigned long long)c->id);
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
            account(c);
            return;
        }
        buf_clear(&c->out);
        if (c->out.cap > KEEP_OUT) {
            buf_free(&c->out);
        }
        account(c);
    }
    all_sent(c);
}

static void give_up(struct conn *c, const char *cause)
{
    worker_count(c->worker, COUNT_TIMEOUTS, 1);
    log_info("connection timed out", "id=%llu cause=\"%s\"", (unsigned long long)c->id, cause);
    conn_abort(c);
}

void conn_tick(struct conn *c, int64_t now)
{
    if (c->state == CONN_FINISHING && c->shut && --c->linger <= 0) {
        conn_abort(c);
    }
    if (c->state == CONN_CLOSING) {
        return;
    }
    if (c->sending.len > 0) {
        size_t left = uv_stream_get_write_queue_size(&c->uv.stream);
        if (left != c->stuck_bytes) {
            c->stuck_bytes = left;
            c->stuck_ms = now;
        } else if (now - c->stuck_ms >= CONN_PATIENCE_MS) {
            give_up(c, "replies are not read");
        }
        return;
    }
    if (c->state != CONN_OPEN || c->refs > 1) {
        return;
    }
    int64_t idle_max = c->worker->crew->cfg->idle_timeout_ms;
    if (c->in_line || c->paused) {
        c->partial_ms = c->input.len > 0 ? now : 0;
    } else if (c->partial_ms != 0 && now - c->partial_ms >= CONN_PATIENCE_MS) {
        give_up(c, "half a request");
    } else if (!c->trusted && now - c->opened_ms >= CONN_PATIENCE_MS) {
        give_up(c, "no password");
    } else if (idle_max > 0 && now - c->active_ms >= idle_max) {
        give_up(c, "idle");
    }
}

void conn_drain(struct conn *c)
{
    if (c->refs == 1) {
        conn_finish(c);
    }
}

static int take_socket(struct conn *c, int fd)
{
    if (c->is_unix) {
        return uv_pipe_open(&c->uv.pipe, fd);
    }
    int code = uv_tcp_open(&c->uv.tcp, fd);
    if (code == 0) {
        uv_tcp_nodelay(&c->uv.tcp, 1);
        uv_tcp_keepalive(&c->uv.tcp, 1, KEEPALIVE_S);
    }
    return code;
}

void conn_open(struct worker *w, const struct conn_ops *ops, int fd, bool is_unix)
{
    struct conn *c = calloc(1, ops->size);
    if (c == NULL) {
        close(fd);
        atomic_fetch_sub_explicit(&w->crew->clients, 1, memory_order_relaxed);
        return;
    }
    c->worker = w;
    c->ops = ops;
    c->refs = 1;
    c->is_unix = is_unix;
    c->id = atomic_fetch_add_explicit(&w->crew->last_id, 1, memory_order_relaxed) + 1;
    c->opened_ms = c->active_ms = clock_mono_ms();
    if (is_unix) {
        uv_pipe_init(&w->loop, &c->uv.pipe, 0);
    } else {
        uv_tcp_init(&w->loop, &c->uv.tcp);
    }
    c->uv.handle.data = c;
    c->next = w->conns;
    if (w->conns != NULL) {
        w->conns->prev = c;
    }
    w->conns = c;
    w->n_alive++;
    worker_count(w, COUNT_CONNECTIONS, 1);
    ops->open(c);
    if (take_socket(c, fd) < 0) {
        close(fd);
        conn_abort(c);
        return;
    }
    read_on(c);
}

int conn_fd(const struct conn *c)
{
    uv_os_fd_t fd = -1;
    return uv_fileno(&c->uv.handle, &fd) == 0 ? fd : -1;
}

void conn_address(const struct conn *c, bool local, char out[CONN_ADDRESS])
{
    struct sockaddr_storage a;
    int len = sizeof a;
    out[0] = '\0';
    if (c->is_unix) {
        /* The peer's end has no name, so both are called after ours, as Redis does. */
        char path[CONN_ADDRESS - 3];
        size_t size = sizeof path;
        if (uv_pipe_getsockname(&c->uv.pipe, path, &size) == 0) {
            snprintf(out, CONN_ADDRESS, "%.*s:0", (int)size, path);
        }
        return;
    }
    int code = local ? uv_tcp_getsockname(&c->uv.tcp, (struct sockaddr *)&a, &len)
                     : uv_tcp_getpeername(&c->uv.tcp, (struct sockaddr *)&a, &len);
    char ip[64];
    if (code < 0 || uv_ip_name((struct sockaddr *)&a, ip, sizeof ip) < 0) {
        return;
    }
    if (a.ss_family == AF_INET6) {
        snprintf(out, CONN_ADDRESS, "[%s]:%d", ip, ntohs(((struct sockaddr_in6 *)&a)->sin6_port));
    } else {
        snprintf(out, CONN_ADDRESS, "%s:%d", ip, ntohs(((struct sockaddr_in *)&a)->sin_port));
    }
}
