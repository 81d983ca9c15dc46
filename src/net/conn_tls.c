/* A connection over TLS. Bytes are read into a buffer that the worker's connections share, and decrypted into the place
 * where a plain connection would read to; only half a record gets memory of its own. While memory is short, they are
 * read record by record, each once there is room for what it holds. A small one is lent that room: it is likely to be a
 * whole request, which frees it at once.
 *
 * Handshakes take up to a millisecond each. They stand in a line of their own, which gets a slice of each turn, so that
 * thousands of them hold up no other.
 *
 * Output is encrypted when it is sent, some records at a time; what the kernel does not take of these is left to libuv,
 * and the rest stays as it is.
 *
 *            sealed_in:  [ headroom for half a record | CONN_READ ]
 */
#include <errno.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/conn_impl.h"

enum {
    SEAL_MOST = CONN_READ, /* bytes that are encrypted at a time */
    STEPS = 8,             /* in a row: a record is its head, and its rest */
};

void conn_tls_free(struct conn *c)
{
    tls_free(c->tls);
    c->tls = NULL;
    c->tls_held = 0;
    buf_free(&c->tls_in);
    buf_free(&c->tls_owed);
}

const char *conn_tls_version(const struct conn *c)
{
    return conn_is_shaking(c) || c->tls == NULL ? "" : tls_version(c->tls);
}

/* --- out --- */

/* Sends what is in the worker's buffer. False: the rest is with libuv, or the connection is closing. */
static bool send_sealed(struct conn *c)
{
    struct buf *sealed = &c->worker->sealed;
    uv_buf_t bytes = uv_buf_init(sealed->data, (unsigned)sealed->len);
    if (sealed->failed) {
        conn_log(c, LOG_LEVEL_WARN, "connection closed", "out of memory");
        conn_abort(c);
        return false;
    }
    int n = sealed->len > 0 ? uv_try_write(&c->uv.stream, &bytes, 1) : 0;
    if (n < 0 && n != UV_EAGAIN) {
        conn_abort(c);
        return false;
    }
    size_t sent = n > 0 ? (size_t)n : 0;
    worker_count(c->worker, COUNT_BYTES_OUT, sealed->len);
    if (sent == sealed->len) {
        return true;
    }
    if (buf_add(&c->sending, sealed->data + sent, sealed->len - sent) < 0) {
        conn_log(c, LOG_LEVEL_WARN, "connection closed", "out of memory");
        conn_abort(c);
        return false;
    }
    conn_leave_to_libuv(c, 0);
    return false;
}

/* Encrypts what comes next. */
static void seal(struct conn *c)
{
    struct buf *sealed = &c->worker->sealed;
    sealed->failed = false;
    buf_clear(sealed);
    if (c->tls_owed.len > 0) {
        buf_add(sealed, c->tls_owed.data, c->tls_owed.len);
        buf_free(&c->tls_owed);
    }
    size_t rest = c->out.len - c->sealed, most = SEAL_MOST;
    if (!budget_allows(&c->worker->memory, BUDGET_LARGE, SEAL_MOST)) {
        most = TLS_PLAIN_MAX;
    }
    size_t n = rest < most ? rest : most;
    if (n > 0 && (c->tls == NULL || tls_write(c->tls, c->out.data + c->sealed, n, sealed) < 0)) {
        n = rest; /* it is never read */
    }
    c->sealed += n;
    if (c->state == CONN_FINISHING && c->sealed == c->out.len && c->tls != NULL) {
        tls_end(c->tls, sealed);
    }
}

bool conn_tls_send(struct conn *c)
{
    bool all = true;
    do {
        seal(c);
        if (c->sealed == c->out.len) {
            c->sealed = 0;
            conn_clear_out(c);
        }
        all = send_sealed(c);
    } while (all && c->out.len > 0);
    conn_account(c);
    if (all) {
        conn_read_on(c);
    }
    return all;
}

void conn_tls_dismiss(struct conn *c, struct slice last_word)
{
    struct buf *sealed = &c->worker->sealed;
    buf_clear(sealed);
    if (c->tls != NULL && c->tls_owed.len == 0) {
        tls_write(c->tls, last_word.data, last_word.len, sealed);
        tls_end(c->tls, sealed);
        uv_buf_t bytes = uv_buf_init(sealed->data, (unsigned)sealed->len);
        uv_try_write(&c->uv.stream, &bytes, 1);
    }
}

/* What reading has to say: at once, or behind what is with libuv. */
static void answer(struct conn *c)
{
    struct buf *sealed = &c->worker->sealed;
    if (sealed->len > 0 && c->sending.len == 0) {
        send_sealed(c);
    } else if (sealed->len > 0 && buf_add(&c->tls_owed, sealed->data, sealed->len) < 0) {
        conn_abort(c);
    }
}

/* --- in --- */

static struct log_limit failed_limit;

static void fail(struct conn *c, const char *cause)
{
    bool shaking = c->tls_held == TLS_BUSY_BYTES;
    worker_count(c->worker, COUNT_TLS_FAILED, shaking);
    conn_log(c, log_again(&failed_limit) ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG,
             shaking ? "TLS handshake failed" : "TLS failed", cause);
    conn_finish(c); /* rather than closing: the peer may still read what we think of it */
}

/* The client's first bytes are here. */
static bool begin(struct conn *c)
{
    if (!conn_has_room(c, BUDGET_REQUEST, TLS_BUSY_BYTES)) {
        c->hungry = true;
        conn_starve(c, BUDGET_REQUEST, TLS_BUSY_BYTES);
        return false;
    }
    c->tls = tls_accept(c->worker->pool->tls, c->ops->alpn);
    if (c->tls == NULL) {
        conn_log(c, LOG_LEVEL_WARN, "connection closed", "out of memory");
        conn_abort(c);
        return false;
    }
    c->tls_held = TLS_BUSY_BYTES;
    c->tls_missing = TLS_HEAD;
    conn_account(c);
    return true;
}

/* Where what comes next is to be put, and how much may be read of it. 0: there is no room, and it waits for some. */
static size_t find_room(struct conn *c, struct tls_input *in)
{
    size_t half = c->tls_in.len, most = c->tls_missing;
    in->out = c->worker->read_buf + CONN_READ;
    in->room = CONN_READ;
    if (conn_is_shaking(c)) {
        return most;
    }
    if (conn_reads_directly(c)) {
        in->room = conn_own_room(c);
        in->out = c->in.data + c->in.len;
    } else if (!conn_has_plenty(c)) {
        size_t more = c->input.len + half + most;
        more = more > c->in.cap ? more - c->in.cap : 0;
        if (!conn_has_room(c, BUDGET_REQUEST, more) && !conn_is_lent(c, c->in.cap, more)) {
            conn_starve(c, BUDGET_REQUEST, more);
        }
        in->room = 0;
    }
    c->hungry = c->line != NULL;
    if (c->state != CONN_OPEN || c->line != NULL) {
        return 0;
    }
    size_t fits = in->room > half ? in->room - half : 0; /* else what one record holds more waits in OpenSSL */
    most = fits > most ? fits : most;
    in->room = in->room > 0 ? in->room : CONN_READ;
    return most < CONN_READ ? most : CONN_READ;
}

static void shaken(struct conn *c)
{
    worker_count(c->worker, COUNT_TLS_HANDSHAKES, 1);
    conn_log(c, LOG_LEVEL_DEBUG, "TLS handshake done", tls_version(c->tls));
    c->tls_held = tls_idle_bytes(c->tls);
    conn_account(c);
}

/* What is left in OpenSSL of a record makes no socket readable. */
static void go_on_later(struct conn *c)
{
    if (c->state == CONN_OPEN && c->line == NULL && !conn_is_shaking(c) && tls_pending(c->tls) && conn_wants_input(c)) {
        c->hungry = true;
        worker_wait_turn(c);
    }
}

/* Keeps the half record that is left. */
static bool keep_half(struct conn *c, const struct tls_input *in)
{
    size_t half = in->len - in->used;
    c->tls_missing = in->missing > 0 ? in->missing : TLS_HEAD;
    c->in_kernel = half;
    if (half == 0) {
        buf_free(&c->tls_in);
    } else if (buf_add(&c->tls_in, in->bytes + in->used, half) < 0) {
        conn_log(c, LOG_LEVEL_WARN, "connection closed", "no memory for its request");
        conn_abort(c);
    }
    return c->state == CONN_OPEN;
}

/* n bytes were read behind the half record. */
static void take_records(struct conn *c, struct tls_input *in, size_t n)
{
    bool was_shaking = conn_is_shaking(c);
    struct buf *sealed = &c->worker->sealed;
    char *at = c->worker->sealed_in + TLS_RECORD_MAX;
    int64_t now = clock_mono_ms();
    in->len = c->tls_in.len + n;
    in->bytes = at - c->tls_in.len;
    if (c->tls_in.len > 0) {
        memcpy(at - c->tls_in.len, c->tls_in.data, c->tls_in.len);
        buf_clear(&c->tls_in);
    }
    sealed->failed = false;
    buf_clear(sealed);
    enum tls_state state = tls_read(c->tls, in, sealed);
    worker_count(c->worker, COUNT_BYTES_IN, n);
    c->active_ms = n > 0 ? now : c->active_ms;
    answer(c);
    if (c->state != CONN_OPEN) {
        return;
    }
    if (state == TLS_BROKEN) {
        fail(c, tls_cause(c->tls));
        return;
    }
    if (was_shaking && state != TLS_SHAKING) {
        shaken(c);
    }
    if (!keep_half(c, in)) {
        return;
    }
    if (state == TLS_ENDED) {
        conn_stop_reading(c);
        c->eof = true;
        c->in_kernel = 0;
    }
    if (in->made > 0) {
        c->arrived_us = conn_is_fresh(c) ? clock_figures_us() : c->arrived_us;
        conn_add_input(c, in->out, in->made);
        conn_run(c, now);
        go_on_later(c);
    } else {
        conn_settle(c, c->input.len + c->in_kernel, now);
    }
}

/* True: there may be more, and nothing was run. */
static bool read_some(struct conn *c)
{
    struct tls_input in = {.bytes = NULL};
    if (!conn_wants_input(c) || c->tls_owed.len > 0 || (c->tls == NULL && !begin(c))) {
        conn_stop_reading(c);
        return false;
    }
    size_t most = find_room(c, &in);
    if (most == 0) {
        conn_stop_reading(c);
        return false;
    }
    bool pending = !conn_is_shaking(c) && tls_pending(c->tls);
    ssize_t n = pending ? 0 : recv(conn_fd(c), c->worker->sealed_in + TLS_RECORD_MAX, most, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return false;
    }
    if (n <= 0 && !pending) {
        conn_end_input(c, n == 0 ? UV_EOF : UV_ECONNRESET);
        return false;
    }
    take_records(c, &in, (size_t)n);
    return (size_t)n == most && in.made == 0 && c->state == CONN_OPEN && !c->eof;
}

static void read_records(struct conn *c)
{
    for (int i = 0; i < STEPS && read_some(c); i++) {
    }
}

void conn_tls_readable(struct conn *c)
{
    if (conn_is_shaking(c) && conn_wants_input(c)) {
        conn_stop_reading(c);
        c->hungry = true;
        worker_wait_handshake(c);
    } else {
        read_records(c);
    }
}

void conn_tls_kick(struct conn *c)
{
    if (c->hungry) {
        c->hungry = false;
        read_records(c);
        conn_account(c); /* it may have got the overdraft for nothing */
        conn_read_on(c);
    } else {
        conn_run(c, clock_mono_ms());
        go_on_later(c);
    }
}
