/* A connection's states: IDLE -> DIALING (a name is looked up, a socket connects) -> GREETING (handshake.h; what was
 * sent meanwhile is already behind it) -> READY. Any failure leads to RESTING, and after a while back to DIALING. One
 * timer serves all states: the patience of DIALING and GREETING, the silence of READY, the delay of RESTING.
 */
#include "legacy/redis_connection.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/slice.h"
#include "legacy/handshake.h"
#include "legacy/redis_socket.h"

enum {
    TEXT_MAX = 200,        /* of what it says is shown */
    IDLE_US = 1000 * 1000, /* a connection that was good for so long may just have been idle for too long */
};

enum redis_connection_state {
    REDIS_CONNECTION_IDLE,
    REDIS_CONNECTION_DIALING,
    REDIS_CONNECTION_HANDSHAKE,
    REDIS_CONNECTION_READY,
    REDIS_CONNECTION_RESTING,
    REDIS_CONNECTION_CLOSED
};

struct redis_connection {
    const struct config *cfg;
    const struct redis_connection_ops *ops;
    void *owner;
    uv_loop_t *loop; /* NULL: not opened */
    uv_timer_t timer;
    enum redis_connection_state state;
    struct redis_socket *socket;
    char address[CONFIG_TEXT]; /* the socket's */
    unsigned dialed;
    struct buf out; /* not with libuv yet */
    size_t due;     /* replies, without the handshake's */
    struct handshake handshake;
    bool failed;      /* the last try; nothing is known against one that has not been tried */
    bool quiet;       /* it ended, which is not worth a word */
    int64_t ready_us; /* since when it is */
    int64_t delay_ms;
    struct err err; /* why it is down, on its way to down() */
};

static void dial(struct redis_connection *l);
static void fail(struct redis_connection *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- what ends a connection --- */

static void drop_socket(struct redis_connection *l)
{
    redis_socket_drop(l->socket);
    l->socket = NULL;
}

static void on_delay(uv_timer_t *timer)
{
    dial(timer->data);
}

/* Called by the loop alone, so that no caller is told from within its own call. */
static void rest(struct redis_connection *l)
{
    drop_socket(l);
    buf_free(&l->out);
    bool quiet = l->quiet;
    l->due = 0;
    l->quiet = false;
    l->failed = !quiet;
    l->state = REDIS_CONNECTION_RESTING;
    l->delay_ms = backoff_next(l->delay_ms, REDIS_CONNECTION_FIRST_DELAY_MS, REDIS_CONNECTION_LAST_DELAY_MS);
    uv_timer_start(&l->timer, on_delay, quiet ? 0 : (uint64_t)l->delay_ms, 0);
    if (!quiet) {
        l->ops->down(l->owner, &l->err);
    }
}

static void on_failed(uv_timer_t *timer)
{
    rest(timer->data);
}

/* Notes what is wrong; the loop does the rest. */
static void fail(struct redis_connection *l, const char *format, ...)
{
    char text[TEXT_MAX + 1];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (l->err.code == 0) {
        err_set(&l->err, ERR_SYSTEM, "%s: %s", l->address, text);
        redis_socket_mute(l->socket);
        uv_timer_start(&l->timer, on_failed, 0, 0);
    }
}

void redis_connection_proved(struct redis_connection *l)
{
    l->delay_ms = 0;
}

void redis_connection_fail(struct redis_connection *l, struct slice why)
{
    fail(l, "%.*s", (int)(why.len < TEXT_MAX ? why.len : TEXT_MAX), why.data);
}

static void on_no_connection(uv_timer_t *timer)
{
    fail(timer->data, "can't be reached for %d s", REDIS_CONNECTION_CONNECT_MS / 1000);
}

static void on_silence(uv_timer_t *timer)
{
    struct redis_connection *l = timer->data;
    fail(l, "no answer for %d s",
         (l->state == REDIS_CONNECTION_READY ? REDIS_CONNECTION_SILENCE_MS : REDIS_CONNECTION_CONNECT_MS) / 1000);
}

/* --- out --- */

static void flush(struct redis_connection *l)
{
    if ((l->state == REDIS_CONNECTION_HANDSHAKE || l->state == REDIS_CONNECTION_READY) &&
        redis_socket_sending(l->socket) == 0 && l->out.len > 0) {
        redis_socket_send(l->socket, &l->out);
    }
}

int redis_connection_send(struct redis_connection *l, struct buf *bytes, size_t replies)
{
    if (l->out.len == 0) {
        buf_free(&l->out);
        l->out = *bytes;
        *bytes = (struct buf){0};
    } else {
        int code = buf_add(&l->out, bytes->data, bytes->len);
        l->out.failed = false;
        buf_free(bytes);
        if (code < 0) {
            return code;
        }
    }
    if (l->due == 0 && l->state == REDIS_CONNECTION_READY && l->err.code == 0) {
        uv_timer_start(&l->timer, on_silence, REDIS_CONNECTION_SILENCE_MS, 0);
    }
    l->due += replies;
    flush(l);
    return 0;
}

/* --- in --- */

static void greeted(struct redis_connection *l, const struct redisReply *reply)
{
    struct slice why;
    switch (handshake_reply(&l->handshake, reply, &why)) {
    case HANDSHAKE_MORE:
        break;
    case HANDSHAKE_SLOTS:
        l->ops->slots(l->owner, reply);
        break;
    case HANDSHAKE_REFUSED:
        redis_connection_fail(l, why);
        break;
    case HANDSHAKE_MASTER:
        l->ops->slots(l->owner, reply);
        __attribute__((fallthrough));
    case HANDSHAKE_LET_IN:
        l->state = REDIS_CONNECTION_READY;
        l->ready_us = clock_real_us();
        l->failed = false;
        l->ops->up(l->owner);
        break;
    }
}

static void fetch_user_reply(struct redis_connection *l, const struct redisReply *reply)
{
    if (l->state == REDIS_CONNECTION_HANDSHAKE) {
        greeted(l, reply);
    } else if (l->due == 0) {
        fail(l, "it says something without being asked");
        return;
    } else {
        l->due--;
        l->ops->reply(l->owner, reply);
    }
    if (l->state == REDIS_CONNECTION_READY && l->err.code == 0) {
        if (l->due > 0) {
            uv_timer_start(&l->timer, on_silence, REDIS_CONNECTION_SILENCE_MS, 0);
        } else {
            uv_timer_stop(&l->timer);
        }
    }
}

/* --- connecting --- */

static void greet(struct redis_connection *l)
{
    struct buf out = {0};
    handshake_begin(&l->handshake, l->cfg, l->ops->slots != NULL, &out);
    buf_add(&out, l->out.data, l->out.len);
    buf_free(&l->out);
    if (out.failed) {
        buf_free(&out);
        fail(l, "out of memory");
        return;
    }
    l->out = out;
    l->state = REDIS_CONNECTION_HANDSHAKE;
    uv_timer_start(&l->timer, on_silence, REDIS_CONNECTION_CONNECT_MS, 0);
    flush(l);
}

static void on_connected(void *owner)
{
    greet(owner);
}

static void on_written(void *owner)
{
    flush(owner);
}

static void on_reply(void *owner, const struct redisReply *reply)
{
    fetch_user_reply(owner, reply);
}

static void on_ended(void *owner, const char *why)
{
    struct redis_connection *l = owner;
    l->quiet = l->state == REDIS_CONNECTION_READY && l->due == 0 && clock_real_us() - l->ready_us >= IDLE_US;
    fail(l, "%s", why);
}

static void on_socket_failed(void *owner, const char *why)
{
    fail(owner, "%s", why);
}

static void dial(struct redis_connection *l)
{
    static const struct redis_socket_ops ops = {on_connected, on_written, on_reply, on_ended, on_socket_failed};
    l->state = REDIS_CONNECTION_DIALING;
    l->err = (struct err){0};
    l->handshake = (struct handshake){0};
    uv_timer_start(&l->timer, on_no_connection, REDIS_CONNECTION_CONNECT_MS, 0);
    l->ops->address(l->owner, l->dialed++, l->address);
    const struct tls_files files = tls_files_to_connect(l->cfg);
    l->socket = redis_socket_dial(l->loop, l->address, &files, &ops, l);
    if (l->socket == NULL) {
        fail(l, "out of memory");
    }
}

int redis_connection_new(const struct config *cfg, const struct redis_connection_ops *ops, void *owner,
                         struct redis_connection **connection, struct err *err)
{
    struct redis_connection *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    l->cfg = cfg;
    l->ops = ops;
    l->owner = owner;
    *connection = l;
    return 0;
}

void redis_connection_free(struct redis_connection *l)
{
    if (l != NULL) {
        buf_free(&l->out);
        free(l);
    }
}

void redis_connection_open(struct redis_connection *l, uv_loop_t *loop)
{
    l->loop = loop;
    uv_timer_init(loop, &l->timer);
    l->timer.data = l;
}

void redis_connection_connect(struct redis_connection *l)
{
    if (l->state == REDIS_CONNECTION_IDLE) {
        dial(l);
    }
}

void redis_connection_shut(struct redis_connection *l)
{
    if (l->state != REDIS_CONNECTION_CLOSED) {
        drop_socket(l);
        buf_free(&l->out);
        uv_timer_stop(&l->timer);
        l->state = REDIS_CONNECTION_IDLE;
        l->due = 0;
        l->delay_ms = 0;
        l->failed = false;
        l->err = (struct err){0};
    }
}

void redis_connection_close(struct redis_connection *l)
{
    if (l->loop != NULL && l->state != REDIS_CONNECTION_CLOSED) {
        redis_connection_shut(l);
        l->state = REDIS_CONNECTION_CLOSED;
        uv_close((uv_handle_t *)&l->timer, NULL);
    }
}

const char *redis_connection_address(const struct redis_connection *l)
{
    return l->address;
}

bool redis_connection_takes(const struct redis_connection *l)
{
    bool hopeful = l->state == REDIS_CONNECTION_READY ||
                   (l->state != REDIS_CONNECTION_IDLE && l->state != REDIS_CONNECTION_CLOSED && !l->failed);
    return hopeful && l->err.code == 0 && l->out.len + redis_socket_sending(l->socket) <= REDIS_CONNECTION_UNSENT_MAX;
}

bool redis_connection_has_zmscore(const struct redis_connection *l)
{
    return !l->handshake.no_zmscore;
}
