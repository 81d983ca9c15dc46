/* How a connection lives: IDLE -> DIALING (a name is looked up, a socket connects) -> GREETING (greeting.h; what was
 * sent meanwhile is already behind it) -> READY. Whatever fails on the way, or later, leads to RESTING, and after a
 * while back to DIALING. One timer serves all states: the patience of DIALING and GREETING, the silence of READY, the
 * delay of RESTING.
 *
 * What libuv works at for one connection (its handle, its requests, the buffer that is being written) is in a piece of
 * memory of its own, the wire. A connection that is given up loses its wire at once; the wire goes when libuv has let
 * go of it.
 */
#include "legacy/link.h"

#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/slice.h"
#include "legacy/greeting.h"
#include "legacy/parse.h"
#include "legacy/redis_reply.h"
#include "legacy/resolve.h"

enum {
    READ_SIZE = 64 * 1024,
    NUMBER_TEXT = 24,
    TEXT_MAX = 200,        /* of what it says is shown */
    IDLE_US = 1000 * 1000, /* a connection that was good for so long may just have been idle for too long */
};

enum link_state { LINK_IDLE, LINK_DIALING, LINK_GREETING, LINK_READY, LINK_RESTING, LINK_CLOSED };

struct wire {
    struct link *link; /* NULL: given up */
    bool has_handle;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    uv_connect_t connect;
    uv_write_t write;
    redisReader *reader;
    struct buf sending;
    char bytes[READ_SIZE];
};

/* A name that is looked up. */
struct look_up {
    uv_poll_t poll; /* first */
    struct resolve *resolve;
};

struct link {
    const struct config *cfg;
    const struct link_ops *ops;
    void *owner;
    uv_loop_t *loop; /* NULL: not opened */
    uv_timer_t timer;
    enum link_state state;
    struct look_up *look_up;
    struct wire *wire;
    struct buf out; /* not with libuv yet */
    size_t due;     /* replies, without the greeting's */
    struct greeting greeting;
    bool failed;      /* the last try; nothing is known against one that has not been tried */
    bool quiet;       /* it ended, which is not worth a word */
    int64_t ready_us; /* since when it is */
    uint64_t delay_ms;
    struct err err; /* why it is down, on its way to down() */
};

static void dial(struct link *l);
static void fail(struct link *l, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- the wire --- */

static void free_wire(struct wire *w)
{
    if (w->reader != NULL) {
        redisReaderFree(w->reader);
    }
    buf_free(&w->sending);
    free(w);
}

static void on_closed(uv_handle_t *handle)
{
    free_wire(handle->data);
}

static void on_poll_closed(uv_handle_t *handle)
{
    free(handle);
}

static void drop_look_up(struct link *l)
{
    struct look_up *up = l->look_up;
    l->look_up = NULL;
    if (up != NULL) {
        uv_close((uv_handle_t *)&up->poll, on_poll_closed);
        resolve_end(up->resolve);
    }
}

static void drop_wire(struct link *l)
{
    struct wire *w = l->wire;
    drop_look_up(l);
    l->wire = NULL;
    if (w == NULL) {
        return;
    }
    w->link = NULL;
    if (w->has_handle) {
        uv_close(&w->uv.handle, on_closed);
    } else {
        free_wire(w);
    }
}

/* --- what ends a connection --- */

static void on_delay(uv_timer_t *timer)
{
    dial(timer->data);
}

/* Called by the loop alone, so that nobody is told from within his own call. */
static void rest(struct link *l)
{
    drop_wire(l);
    buf_free(&l->out);
    bool quiet = l->quiet;
    l->due = 0;
    l->quiet = false;
    l->failed = !quiet;
    l->state = LINK_RESTING;
    l->delay_ms = l->delay_ms == 0 ? LINK_FIRST_DELAY_MS : 2 * l->delay_ms;
    l->delay_ms = l->delay_ms < LINK_LAST_DELAY_MS ? l->delay_ms : LINK_LAST_DELAY_MS;
    uv_timer_start(&l->timer, on_delay, quiet ? 0 : l->delay_ms, 0);
    if (!quiet) {
        l->ops->down(l->owner, &l->err);
    }
}

static void on_failed(uv_timer_t *timer)
{
    rest(timer->data);
}

/* Notes what is wrong; the loop does the rest. */
static void fail(struct link *l, const char *format, ...)
{
    char text[TEXT_MAX + 1];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (l->err.code == 0) {
        err_set(&l->err, ERR_SYSTEM, "%s: %s", l->cfg->legacy_redis, text);
        uv_timer_start(&l->timer, on_failed, 0, 0);
    }
}

void link_proved(struct link *l)
{
    l->delay_ms = 0;
}

void link_fail(struct link *l, struct slice why)
{
    fail(l, "%.*s", (int)(why.len < TEXT_MAX ? why.len : TEXT_MAX), why.data);
}

static void on_no_connection(uv_timer_t *timer)
{
    fail(timer->data, "can't be reached for %d s", LINK_CONNECT_MS / 1000);
}

static void on_silence(uv_timer_t *timer)
{
    struct link *l = timer->data;
    fail(l, "no answer for %d s", (l->state == LINK_READY ? LINK_SILENCE_MS : LINK_CONNECT_MS) / 1000);
}

/* --- out --- */

static void flush(struct link *l);

static void on_written(uv_write_t *request, int status)
{
    struct wire *w = request->data;
    buf_free(&w->sending);
    if (w->link == NULL) {
        return;
    }
    if (status < 0) {
        fail(w->link, "%s", uv_strerror(status));
    } else {
        flush(w->link);
    }
}

static void flush(struct link *l)
{
    struct wire *w = l->wire;
    if ((l->state != LINK_GREETING && l->state != LINK_READY) || w->sending.len > 0 || l->out.len == 0) {
        return;
    }
    buf_free(&w->sending);
    w->sending = l->out;
    l->out = (struct buf){0};
    uv_buf_t bytes = uv_buf_init(w->sending.data, (unsigned)w->sending.len);
    w->write.data = w;
    int code = uv_write(&w->write, &w->uv.stream, &bytes, 1, on_written);
    if (code < 0) {
        fail(l, "%s", uv_strerror(code));
    }
}

void link_add_count(struct buf *out, size_t n)
{
    buf_addf(out, "*%zu\r\n", n);
}

void link_add_word(struct buf *out, struct slice word)
{
    char head[NUMBER_TEXT];
    size_t at = sizeof head, len = word.len;
    head[--at] = '\n';
    head[--at] = '\r';
    do {
        head[--at] = (char)('0' + len % 10);
        len /= 10;
    } while (len > 0);
    head[--at] = '$';
    if (buf_reserve(out, sizeof head - at + word.len + 2) == 0) {
        buf_add(out, head + at, sizeof head - at);
        buf_add(out, word.data, word.len);
        buf_add(out, "\r\n", 2);
    }
}

int link_send(struct link *l, struct buf *bytes, size_t replies)
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
    if (l->due == 0 && l->state == LINK_READY && l->err.code == 0) {
        uv_timer_start(&l->timer, on_silence, LINK_SILENCE_MS, 0);
    }
    l->due += replies;
    flush(l);
    return 0;
}

/* --- in --- */

static void greeted(struct link *l, const struct redisReply *reply)
{
    struct slice why;
    switch (greeting_reply(&l->greeting, reply, &why)) {
    case GREETING_MORE:
        break;
    case GREETING_REFUSED:
        link_fail(l, why);
        break;
    case GREETING_LET_IN:
        l->state = LINK_READY;
        l->ready_us = clock_stopwatch_us();
        l->failed = false;
        l->ops->up(l->owner);
        break;
    }
}

static void take_reply(struct link *l, const struct redisReply *reply)
{
    if (l->state == LINK_GREETING) {
        greeted(l, reply);
    } else if (l->due == 0) {
        fail(l, "it says something without being asked");
        return;
    } else {
        l->due--;
        l->ops->reply(l->owner, reply);
    }
    if (l->state == LINK_READY && l->err.code == 0) {
        if (l->due > 0) {
            uv_timer_start(&l->timer, on_silence, LINK_SILENCE_MS, 0);
        } else {
            uv_timer_stop(&l->timer);
        }
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct wire *w = handle->data;
    *buf = uv_buf_init(w->bytes, sizeof w->bytes);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    (void)buf;
    struct wire *w = stream->data;
    struct link *l = w->link;
    if (n == 0 || l == NULL || l->err.code < 0) {
        return;
    }
    if (n < 0) {
        uv_read_stop(stream);
        l->quiet = l->state == LINK_READY && l->due == 0 && clock_stopwatch_us() - l->ready_us >= IDLE_US;
        fail(l, "%s", n == UV_EOF ? "it closed the connection" : uv_strerror((int)n));
        return;
    }
    bool good = redisReaderFeed(w->reader, w->bytes, (size_t)n) == REDIS_OK;
    while (good && w->link != NULL && l->err.code == 0) {
        void *reply = NULL;
        good = redisReaderGetReply(w->reader, &reply) == REDIS_OK;
        if (!good || reply == NULL) {
            break;
        }
        take_reply(l, reply);
        freeReplyObject(reply);
    }
    if (w->link != NULL && !good) {
        fail(l, "%s", w->reader->errstr);
    } else if (w->link != NULL && w->reader->len > LINK_REPLY_MAX) {
        fail(l, "a reply is larger than %d MiB", LINK_REPLY_MAX >> 20);
    }
}

/* --- connecting --- */

static void greet(struct link *l)
{
    struct buf out = {0};
    greeting_begin(&l->greeting, l->cfg, &out);
    buf_add(&out, l->out.data, l->out.len);
    buf_free(&l->out);
    if (out.failed) {
        buf_free(&out);
        fail(l, "out of memory");
        return;
    }
    l->out = out;
    l->state = LINK_GREETING;
    uv_timer_start(&l->timer, on_silence, LINK_CONNECT_MS, 0);
    flush(l);
}

static void on_connected(uv_connect_t *request, int status)
{
    struct wire *w = request->data;
    struct link *l = w->link;
    if (l == NULL || l->err.code < 0) {
        return;
    }
    if (status == 0) {
        status = uv_read_start(&w->uv.stream, on_alloc, on_read);
    }
    if (status < 0) {
        fail(l, "%s", uv_strerror(status));
    } else {
        greet(l);
    }
}

static struct wire *new_wire(struct link *l)
{
    struct wire *w = calloc(1, sizeof *w);
    if (w == NULL || (w->reader = redisReaderCreate()) == NULL) {
        free(w);
        fail(l, "out of memory");
        return NULL;
    }
    w->link = l;
    w->connect.data = w;
    w->uv.handle.data = w;
    l->wire = w;
    return w;
}

/* In digits. */
static void connect_tcp(struct link *l, const char *host)
{
    char name[CONFIG_TEXT], port[LEGACY_PORT_TEXT];
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    legacy_address(l->cfg->legacy_redis, name, port);
    bool is_v4 = uv_ip4_addr(host, atoi(port), &v4) == 0;
    int code = is_v4 ? 0 : uv_ip6_addr(host, atoi(port), &v6);
    struct wire *w = new_wire(l);
    if (w == NULL) {
        return;
    }
    if (code == 0 && (code = uv_tcp_init(l->loop, &w->uv.tcp)) == 0) {
        w->has_handle = true;
        uv_tcp_nodelay(&w->uv.tcp, 1);
        const struct sockaddr *address = is_v4 ? (const struct sockaddr *)&v4 : (const struct sockaddr *)&v6;
        code = uv_tcp_connect(&w->connect, &w->uv.tcp, address, on_connected);
    }
    if (code < 0) {
        fail(l, "%s", uv_strerror(code));
    }
}

static void connect_unix(struct link *l, const char *path)
{
    struct wire *w = new_wire(l);
    if (w == NULL) {
        return;
    }
    int code = uv_pipe_init(l->loop, &w->uv.pipe, 0);
    if (code == 0) {
        w->has_handle = true;
        uv_pipe_connect(&w->connect, &w->uv.pipe, path, on_connected);
    } else {
        fail(l, "%s", uv_strerror(code));
    }
}

static void on_looked_up(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    struct link *l = poll->data;
    char host[RESOLVE_TEXT];
    struct err err;
    int code = resolve_answer(l->look_up->resolve, host, &err);
    drop_look_up(l);
    if (l->err.code < 0) {
        return;
    }
    if (code < 0) {
        fail(l, "%s", err.text);
    } else {
        connect_tcp(l, host);
    }
}

static void look_up(struct link *l, const char *host)
{
    struct err err;
    struct look_up *up = calloc(1, sizeof *up);
    if (up == NULL || resolve_begin(host, &up->resolve, &err) < 0) {
        fail(l, "%s", up == NULL ? "out of memory" : err.text);
        free(up);
        return;
    }
    int code = uv_poll_init(l->loop, &up->poll, resolve_fd(up->resolve));
    if (code < 0) {
        resolve_end(up->resolve);
        free(up);
        fail(l, "%s", uv_strerror(code));
        return;
    }
    l->look_up = up;
    up->poll.data = l;
    uv_poll_start(&up->poll, UV_READABLE, on_looked_up);
}

static void dial(struct link *l)
{
    char host[CONFIG_TEXT], port[LEGACY_PORT_TEXT];
    struct in6_addr digits;
    l->state = LINK_DIALING;
    l->err = (struct err){0};
    l->greeting = (struct greeting){0};
    uv_timer_start(&l->timer, on_no_connection, LINK_CONNECT_MS, 0);
    if (!legacy_address(l->cfg->legacy_redis, host, port)) {
        connect_unix(l, host);
    } else if (uv_inet_pton(AF_INET, host, &digits) == 0 || uv_inet_pton(AF_INET6, host, &digits) == 0) {
        connect_tcp(l, host);
    } else {
        look_up(l, host);
    }
}

int link_new(const struct config *cfg, const struct link_ops *ops, void *owner, struct link **link, struct err *err)
{
    struct link *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    l->cfg = cfg;
    l->ops = ops;
    l->owner = owner;
    *link = l;
    return 0;
}

void link_free(struct link *l)
{
    if (l != NULL) {
        buf_free(&l->out);
        free(l);
    }
}

void link_open(struct link *l, uv_loop_t *loop)
{
    l->loop = loop;
    uv_timer_init(loop, &l->timer);
    l->timer.data = l;
}

void link_connect(struct link *l)
{
    if (l->state == LINK_IDLE) {
        dial(l);
    }
}

void link_shut(struct link *l)
{
    if (l->state != LINK_CLOSED) {
        drop_wire(l);
        buf_free(&l->out);
        uv_timer_stop(&l->timer);
        l->state = LINK_IDLE;
        l->due = 0;
        l->delay_ms = 0;
        l->failed = false;
        l->err = (struct err){0};
    }
}

void link_close(struct link *l)
{
    if (l->loop != NULL && l->state != LINK_CLOSED) {
        link_shut(l);
        l->state = LINK_CLOSED;
        uv_close((uv_handle_t *)&l->timer, NULL);
    }
}

bool link_takes(const struct link *l)
{
    bool hopeful = l->state == LINK_READY || (l->state != LINK_IDLE && l->state != LINK_CLOSED && !l->failed);
    size_t sending = l->wire != NULL ? l->wire->sending.len : 0;
    return hopeful && l->err.code == 0 && l->out.len + sending <= LINK_UNSENT_MAX;
}

bool link_has_zmscore(const struct link *l)
{
    return !l->greeting.no_zmscore;
}
