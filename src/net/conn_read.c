/* How bytes come in. While a connection holds at most CONN_HEAD bytes of an unfinished request, its next bytes are read
 * into the worker's shared buffer, behind a headroom into which those few are copied: so many short requests cost one
 * large read, and the connection keeps a few bytes at most. A larger request is read straight into memory of its own,
 * which doubles as it comes, up to what it announced; but for a middling one that has no room to grow, which goes on
 * in the shared buffer.
 *
 * While memory is short, and always before the password was given, bytes are first looked at where the kernel has them
 * (peek()). Whole requests are run from there and then taken out; of half a request nothing is, so it costs no memory
 * here, and the kernel is told how many bytes there must be before another look makes sense. (It can't be for a Unix
 * socket, at which the worker looks now and then.) The protocol notices nothing: its input has moved, once more.
 *
 *                  input:  [ kept in c->in | in_kernel ... ]  as the protocol sees it: one piece, in the shared buffer
 *
 * What happens with bytes that have come, in order: on_alloc() says where to; on_read() adds them to the input, or
 * peek() looks at them; conn_feed() lets the protocol consume what it can; conn_settle() keeps the rest, charges it,
 * sends what was said meanwhile, and reads on.
 *
 * An example: 20 KB of a request of 40 KB come to an idle connection. While there is room for 64 KiB they are read into
 * the shared buffer; the protocol consumes none and sets need to 40 KB; keep_rest() makes a buffer of their own for
 * them, and what follows is read straight into it. While there is no room they are looked at with MSG_PEEK and stay
 * with the kernel, wait_for_rest() asks it to speak up again at 40 KB, and then all of it is looked at, run, and taken
 * out.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/conn_impl.h"
#include "net/worker.h"

enum {
    ROOM_LEAST = 4096,
    LOOK_FIRST = 4096, /* so much is looked at first: who sends many small requests would have them copied each time */
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

bool conn_wants_input(struct conn *c)
{
    return !c->paused && conn_may_go_on(c);
}

static enum budget_use request_use(const struct conn *c, size_t cap)
{
    return budget_use_for(&c->worker->pool->budget, cap > c->need ? cap : c->need);
}

/* Whether a buffer for half a request may become so large. */
static bool may_hold(const struct conn *c, size_t cap)
{
    return conn_has_room(c, request_use(c, cap), cap - c->in.cap);
}

/* If it may not, the connection waits for that; unless it could not go on with it anyway. */
static bool make_room(struct conn *c, size_t cap)
{
    if (cap <= c->in.cap) {
        return true;
    }
    if (cap < 2 * c->in.cap) {
        cap = 2 * c->in.cap;
    }
    if (!may_hold(c, cap)) {
        if (conn_wants_input(c)) {
            conn_starve(c, request_use(c, cap), cap - c->in.cap);
        }
        return false;
    }
    if (buf_reserve(&c->in, cap - c->in.len) < 0) {
        give_up(c);
        return false;
    }
    if (c->input.len > 0) {
        c->input.data = c->in.data;
    }
    return true;
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

static bool has_own_room(const struct conn *c)
{
    return c->in.cap - c->in.len >= ROOM_LEAST;
}

/* A middling request that has no room to grow goes on in the shared buffer. */
static bool is_cut_short(const struct conn *c)
{
    return c->input.len <= CONN_READ && c->need <= CONN_READ && !has_own_room(c) && !may_hold(c, room_wanted(c));
}

bool conn_reads_directly(const struct conn *c)
{
    return c->input.len > CONN_HEAD && c->state == CONN_OPEN && !is_cut_short(c);
}

size_t conn_own_room(struct conn *c)
{
    if (!has_own_room(c)) {
        make_room(c, room_wanted(c));
    }
    return c->in.cap - c->in.len;
}

void conn_settle(struct conn *c, size_t before, int64_t now)
{
    if (c->state != CONN_OPEN) {
        conn_free_input(c);
        conn_account(c);
        return;
    }
    size_t left = c->input.len + c->in_kernel;
    if (!c->midway && (left < before || left == 0)) {
        c->partial_ms = 0;
    }
    keep_rest(c);
    if (c->partial_ms == 0 && (left > 0 || c->midway)) {
        c->partial_ms = now;
    }
    if (c->overdraft && conn_reads_directly(c) && conn_wants_input(c)) {
        conn_own_room(c); /* now, or the overdraft goes to another */
    }
    conn_end_if_done(c);
    conn_account(c);
    if (c->strange && !conn_is_stranger(c)) {
        conn_starve(c, BUDGET_REPLY, 0); /* it has logged in, and waits for a place beside those who have */
    }
    if (c->out.len > 0 && !budget_allows(&c->worker->memory, BUDGET_REQUEST, 0)) {
        conn_flush(c); /* not at the end of the turn: many small replies would be much by then */
    } else {
        conn_touch(c);
    }
    conn_read_on(c);
}

void conn_feed(struct conn *c)
{
    if (conn_may_go_on(c)) {
        c->need = c->granted = 0;
        c->quota = worker_is_busy(c->worker) ? CONN_QUOTA_SHORT : CONN_QUOTA;
        c->ops->input(c);
    }
}

void conn_run(struct conn *c, int64_t now)
{
    size_t before = c->input.len + c->in_kernel;
    conn_feed(c);
    conn_settle(c, before, now);
}

/* --- input that stays with the kernel --- */

static void set_low_water(struct conn *c, size_t bytes)
{
    int low = (int)bytes;
    if (c->low_water != low && setsockopt(conn_fd(c), SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low) == 0) {
        c->low_water = low;
    }
}

/* Takes out of the kernel what has been looked at. */
static bool take(struct conn *c, char *to, size_t n)
{
    while (n > 0) {
        ssize_t taken = recv(conn_fd(c), to, n, MSG_DONTWAIT);
        if (taken <= 0) {
            conn_abort(c);
            return false;
        }
        n -= (size_t)taken;
        to += taken;
    }
    return true;
}

bool conn_has_ended(const struct conn *c, bool half)
{
    struct pollfd p = {.fd = conn_fd(c), .events = half ? POLLRDHUP : 0};
    return poll(&p, 1, 0) > 0 && (p.revents & (p.events | POLLHUP | POLLERR)) != 0;
}

bool conn_has_more(const struct conn *c)
{
    int bytes = 0;
    return ioctl(conn_fd(c), FIONREAD, &bytes) < 0 || (size_t)bytes > c->in_kernel || conn_has_ended(c, true);
}

/* Half a request is with the kernel: waits there for the rest, or gets memory. grown: some of it has just come. */
static void wait_for_rest(struct conn *c, bool grown)
{
    size_t have = c->input.len + c->in_kernel;
    if (!grown && conn_has_ended(c, true)) {
        conn_end_input(c, UV_EOF);
        return;
    }
    size_t missing = c->need > have && !conn_is_stranger(c) ? c->need - have : 1;
    bool small = have + missing <= CONN_READ;
    bool fits = budget_allows(&c->worker->memory, BUDGET_REQUEST, CONN_READ);
    if (grown && c->is_unix && !fits) {
        worker_wait_rest(c); /* such a socket knows no mark */
        return;
    }
    if (grown && !c->is_unix && (small ? conn_is_stranger(c) || !fits : c->in_kernel < CONN_READ / 2)) {
        set_low_water(c, small || c->in_kernel + missing < CONN_READ / 2 ? c->in_kernel + missing : CONN_READ / 2);
        return;
    }
    size_t cap = small ? have : room_wanted(c);
    cap = cap > have ? cap : have;
    if (make_room(c, cap) && take(c, c->in.data + c->in.len, c->in_kernel)) {
        c->in.len += c->in_kernel;
        c->input = buf_slice(&c->in);
        c->in_kernel = 0;
        set_low_water(c, 1);
    }
}

static void look(struct conn *c, size_t most)
{
    char *at = c->worker->read_buf + CONN_READ;
    ssize_t n = recv(conn_fd(c), at, most, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0) {
        conn_end_input(c, n == 0 ? UV_EOF : UV_ECONNRESET);
        return;
    }
    int64_t now = clock_mono_ms();
    size_t kept = c->input.len;
    bool grown = (size_t)n > c->in_kernel;
    if (grown) {
        worker_count(c->worker, COUNT_BYTES_IN, (size_t)n - c->in_kernel);
        c->active_ms = now;
        c->arrived_us = kept + c->in_kernel == 0 ? clock_figures_us() : c->arrived_us;
    }
    if (kept > 0) {
        memcpy(at - kept, c->input.data, kept);
    }
    c->input = slice_of(at - kept, kept + (size_t)n);
    c->in.len = 0;
    c->looking = true;
    conn_feed(c);
    c->looking = false;
    size_t consumed = kept + (size_t)n - c->input.len, taken = consumed > kept ? consumed - kept : 0;
    c->in_kernel = (size_t)n - taken;
    c->input.len -= c->in_kernel;
    if (c->state == CONN_CLOSING || !take(c, at, taken)) {
        return;
    }
    bool half = c->state == CONN_OPEN && c->in_kernel > 0 && !c->paused && conn_wants_input(c);
    if (half) {
        keep_rest(c);
        if ((size_t)n == most && most < CONN_READ) {
            look(c, CONN_READ);
            return;
        }
        wait_for_rest(c, grown || consumed > 0);
    } else {
        set_low_water(c, 1);
    }
    conn_settle(c, kept + (size_t)n, now);
}

static void peek(struct conn *c)
{
    look(c, c->need > 0 ? CONN_READ : LOOK_FIRST);
}

void conn_kick(struct conn *c)
{
    if (c->state == CONN_OPEN) {
        c->paused = false;
        if (c->secure) {
            conn_tls_kick(c);
        } else if (c->in_kernel > 0) {
            peek(c);
        } else {
            conn_run(c, clock_mono_ms());
        }
    }
}

void conn_wake(struct conn *c)
{
    worker_stop_waiting(c);
    conn_kick(c);
}

/* Whether the shared buffer may be filled. All of it may turn out to be an unfinished request's, and what has been read
 * can't be put back: so it is here that it is decided to keep it. Else it is looked at first. */
bool conn_has_plenty(const struct conn *c)
{
    return c->state != CONN_OPEN ||
           (conn_has_room(c, BUDGET_REQUEST, CONN_READ) && (c->overdraft || !conn_is_stranger(c)));
}

/* No room: libuv tells on_read() so. */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct conn *c = handle->data;
    if (c->secure && c->state == CONN_OPEN) {
        *buf = uv_buf_init(NULL, 0);
    } else if (conn_reads_directly(c)) {
        size_t room = conn_own_room(c);
        *buf = uv_buf_init(c->in.data + c->in.len, room < UINT32_MAX ? (unsigned)room : UINT32_MAX);
    } else {
        *buf = uv_buf_init(c->worker->read_buf + CONN_READ, conn_has_plenty(c) ? CONN_READ : 0);
    }
}

void conn_stop_reading(struct conn *c)
{
    if (c->reading) {
        c->reading = false;
        uv_read_stop(&c->uv.stream);
    }
}

void conn_end_input(struct conn *c, ssize_t code)
{
    conn_stop_reading(c);
    if (code != UV_EOF || c->shut) {
        conn_abort(c);
        return;
    }
    c->eof = true;
    if (c->state == CONN_FINISHING) {
        conn_touch(c); /* what was said before leaves first */
        return;
    }
    conn_settle(c, c->input.len + c->in_kernel, clock_mono_ms());
}

bool conn_add_input(struct conn *c, const char *at, size_t n)
{
    char *shared = c->worker->read_buf + CONN_READ;
    bool direct = at != shared;
    if (direct) {
        c->in.len += n;
        c->input = buf_slice(&c->in);
    } else {
        char *start = shared - c->input.len;
        if (c->input.len > 0) {
            memcpy(start, c->input.data, c->input.len);
        }
        c->input = slice_of(start, c->input.len + n);
        c->in.len = 0;
    }
    return direct;
}

/* Else a request waits already, and came before. */
bool conn_is_fresh(const struct conn *c)
{
    return c->input.len == 0 || !(c->paused || c->line != NULL || c->choked);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct conn *c = stream->data;
    if (c->state == CONN_CLOSING) {
        return;
    }
    if (n == 0) {
        conn_account(c); /* it may have got the overdraft for nothing */
        return;
    }
    if (n == UV_ENOBUFS) {
        if (c->secure) {
            conn_tls_readable(c);
        } else if (conn_wants_input(c)) {
            peek(c);
        } else {
            conn_stop_reading(c);
        }
        return;
    }
    if (n < 0) {
        conn_end_input(c, n);
        return;
    }
    worker_count(c->worker, COUNT_BYTES_IN, (uint64_t)n);
    if (c->state == CONN_FINISHING) {
        return;
    }
    int64_t now = c->active_ms = clock_mono_ms();
    c->in_kernel = 0;
    if (c->low_water > 1) {
        set_low_water(c, 1);
    }
    if (conn_is_fresh(c)) {
        c->arrived_us = clock_figures_us();
    }
    bool direct = conn_add_input(c, buf->base, (size_t)n);
    bool more = n == CONN_READ && !direct, wanted = conn_wants_input(c);
    if (wanted) {
        conn_run(c, now);
    } else {
        conn_settle(c, c->input.len, now);
    }
    if (more) {
        worker_wait_turn(c); /* libuv would read on and on */
    }
    if (!wanted || c->line != NULL) {
        conn_stop_reading(c);
    }
}

/* Reading is not stopped when nothing is wanted, but when something comes all the same: most peers wait for their
 * answer, and so the kernel need not be told twice a request. */
void conn_read_on(struct conn *c)
{
    if (c->reading || c->eof || c->state == CONN_CLOSING) {
        return;
    }
    if (c->state == CONN_FINISHING || conn_wants_input(c)) {
        c->reading = true;
        if (uv_read_start(&c->uv.stream, on_alloc, on_read) < 0) {
            conn_abort(c);
        }
    }
}
