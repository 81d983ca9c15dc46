#include "legacy/redis_socket.h"

#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "legacy/parse.h"
#include "legacy/reply_limits.h"
#include "legacy/resolve.h"
#include "net/stream.h"

enum {
    READ_SIZE = 64 * 1024,
    TEXT_MAX = 200,        /* of what is wrong */
    WORDS_MAX = 64 * 1024, /* bytes of TLS's own that are not sent yet */
};

/* A name that is looked up. */
struct look_up {
    uv_poll_t poll; /* first */
    struct resolve *resolve;
};

struct redis_socket {
    const struct redis_socket_ops *ops;
    void *owner; /* NULL: dropped */
    bool mute;
    uv_loop_t *loop;
    const char *address;
    struct look_up *look_up;
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
    struct reply_limits limits;
    struct buf sending;
    struct tls_files files; /* of TLS: */
    struct tls *tls;
    struct buf sealed; /* what has come and is not decrypted */
    char bytes[READ_SIZE];
};

/* --- what ends it --- */

static void free_socket(struct redis_socket *w)
{
    if (w->reader != NULL) {
        redisReaderFree(w->reader);
    }
    buf_free(&w->sending);
    buf_free(&w->sealed);
    tls_free(w->tls);
    free(w);
}

static void on_closed(uv_handle_t *handle)
{
    free_socket(handle->data);
}

static void on_poll_closed(uv_handle_t *handle)
{
    free(handle);
}

static void drop_look_up(struct redis_socket *w)
{
    struct look_up *up = w->look_up;
    w->look_up = NULL;
    if (up != NULL) {
        uv_close((uv_handle_t *)&up->poll, on_poll_closed);
        resolve_end(up->resolve);
    }
}

void redis_socket_drop(struct redis_socket *w)
{
    if (w == NULL) {
        return;
    }
    drop_look_up(w);
    w->owner = NULL;
    w->mute = true;
    if (w->has_handle) {
        uv_close(&w->uv.handle, on_closed);
    } else {
        free_socket(w);
    }
}

void redis_socket_mute(struct redis_socket *w)
{
    if (w != NULL) {
        w->mute = true;
    }
}

static void fail(struct redis_socket *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void fail(struct redis_socket *w, const char *format, ...)
{
    char text[TEXT_MAX + 1];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    w->mute = true;
    w->ops->failed(w->owner, text);
}

/* --- out --- */

static void on_written(uv_write_t *request, int status)
{
    struct redis_socket *w = request->data;
    buf_free(&w->sending);
    if (w->mute) {
        return;
    }
    if (status < 0) {
        fail(w, "%s", uv_strerror(status));
    } else {
        w->ops->written(w->owner);
    }
}

void redis_socket_send(struct redis_socket *w, struct buf *bytes)
{
    buf_free(&w->sending);
    if (w->tls != NULL) {
        bool good = tls_write(w->tls, bytes->data, bytes->len, &w->sending) == 0;
        buf_free(bytes);
        if (!good) {
            fail(w, "TLS: %s", tls_cause(w->tls));
            return;
        }
    } else {
        w->sending = *bytes;
        *bytes = (struct buf){0};
    }
    uv_buf_t out = uv_buf_init(w->sending.data, (unsigned)w->sending.len);
    w->write.data = w;
    int code = uv_write(&w->write, &w->uv.stream, &out, 1, on_written);
    if (code < 0) {
        fail(w, "%s", uv_strerror(code));
    }
}

size_t redis_socket_sending(const struct redis_socket *w)
{
    return w != NULL ? w->sending.len : 0;
}

/* --- in --- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct redis_socket *w = handle->data;
    *buf = uv_buf_init(w->bytes, sizeof w->bytes);
}

/* So many bytes are there. */
static void take(struct redis_socket *w, size_t n)
{
    struct err broken = {0};
    size_t fine;
    reply_limits_see(&w->limits, w->bytes, n, &fine, &broken);
    bool good = fine == 0 || redisReaderFeed(w->reader, w->bytes, fine) == REDIS_OK;
    while (good && !w->mute) {
        void *reply = NULL;
        good = redisReaderGetReply(w->reader, &reply) == REDIS_OK;
        if (!good || reply == NULL) {
            break;
        }
        w->ops->reply(w->owner, reply);
        freeReplyObject(reply);
    }
    if (!w->mute && !good) {
        fail(w, "%s", w->reader->errstr);
    } else if (!w->mute && broken.code < 0) {
        fail(w, "%s", broken.text);
    }
}

/* What TLS has to say by itself, behind what is being written. */
struct word {
    uv_write_t write; /* first */
    struct buf bytes;
};

static void free_word(struct word *word)
{
    buf_free(&word->bytes);
    free(word);
}

/* A connection that can't be written to is seen where its requests are, or its end is read. */
static void on_word_written(uv_write_t *request, int status)
{
    (void)status;
    free_word((struct word *)request);
}

static void send_word(struct redis_socket *w, struct buf *bytes)
{
    if (bytes->len == 0) {
        return;
    }
    bool unread = uv_stream_get_write_queue_size(&w->uv.stream) > w->sending.len + WORDS_MAX;
    struct word *word = unread ? NULL : calloc(1, sizeof *word);
    if (word == NULL) {
        buf_free(bytes);
        fail(w, "%s", unread ? "TLS: it does not read what it asks for" : "out of memory for TLS");
        return;
    }
    word->bytes = *bytes;
    *bytes = (struct buf){0};
    uv_buf_t out = uv_buf_init(word->bytes.data, (unsigned)word->bytes.len);
    int code = uv_write(&word->write, &w->uv.stream, &out, 1, on_word_written);
    if (code < 0) {
        free_word(word);
        fail(w, "%s", uv_strerror(code));
    }
}

/* Decrypts what has come into the bytes. */
static void take_sealed(struct redis_socket *w)
{
    bool more = true;
    while (more && !w->mute) {
        struct buf word = {0};
        struct tls_input in = {.bytes = w->sealed.data, .len = w->sealed.len, .out = w->bytes, .room = sizeof w->bytes};
        enum tls_state before = tls_state(w->tls), state = tls_read(w->tls, &in, &word);
        w->sealed.len -= in.used;
        if (w->sealed.len > 0 && in.used > 0) {
            memmove(w->sealed.data, w->sealed.data + in.used, w->sealed.len);
        }
        send_word(w, &word);
        more = in.made > 0 || (before == TLS_SHAKING && state == TLS_OPEN);
        if (w->mute) {
            return;
        }
        if (state == TLS_BROKEN) {
            fail(w, "TLS: %s", tls_cause(w->tls));
        } else if (before == TLS_SHAKING && state == TLS_OPEN) {
            w->ops->connected(w->owner);
        } else if (in.made > 0) {
            take(w, in.made);
        }
    }
}

static void begin_tls(struct redis_socket *w)
{
    char host[CONFIG_TEXT], port[LEGACY_PORT_TEXT];
    struct err err;
    legacy_address(w->address, host, port);
    if (stream_begin_tls(&w->files, host, &w->tls, &err) < 0) {
        fail(w, "%s", err.text);
    } else {
        take_sealed(w);
    }
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    (void)buf;
    struct redis_socket *w = stream->data;
    if (n == 0 || w->mute) {
        return;
    }
    if (n < 0) {
        uv_read_stop(stream);
        w->mute = true;
        w->ops->ended(w->owner, n == UV_EOF ? "it closed the connection" : uv_strerror((int)n));
        return;
    }
    if (w->tls == NULL) {
        take(w, (size_t)n);
    } else if (buf_add(&w->sealed, w->bytes, (size_t)n) < 0) {
        fail(w, "out of memory for a reply");
    } else {
        take_sealed(w);
    }
}

/* --- connecting --- */

static void on_connected(uv_connect_t *request, int status)
{
    struct redis_socket *w = request->data;
    if (w->mute) {
        return;
    }
    if (status == 0) {
        status = uv_read_start(&w->uv.stream, on_alloc, on_read);
    }
    const char *address = w->address;
    if (status < 0) {
        fail(w, "%s", uv_strerror(status));
    } else if (stream_is_tls(&address)) {
        begin_tls(w);
    } else {
        w->ops->connected(w->owner);
    }
}

/* In digits. */
static void connect_tcp(struct redis_socket *w, const char *host)
{
    char name[CONFIG_TEXT], port[LEGACY_PORT_TEXT];
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    legacy_address(w->address, name, port);
    bool is_v4 = uv_ip4_addr(host, atoi(port), &v4) == 0;
    int code = is_v4 ? 0 : uv_ip6_addr(host, atoi(port), &v6);
    if (code == 0 && (code = uv_tcp_init(w->loop, &w->uv.tcp)) == 0) {
        w->has_handle = true;
        uv_tcp_nodelay(&w->uv.tcp, 1);
        const struct sockaddr *address = is_v4 ? (const struct sockaddr *)&v4 : (const struct sockaddr *)&v6;
        code = uv_tcp_connect(&w->connect, &w->uv.tcp, address, on_connected);
    }
    if (code < 0) {
        fail(w, "%s", uv_strerror(code));
    }
}

static void connect_unix(struct redis_socket *w, const char *path)
{
    int code = uv_pipe_init(w->loop, &w->uv.pipe, 0);
    if (code == 0) {
        w->has_handle = true;
        uv_pipe_connect(&w->connect, &w->uv.pipe, path, on_connected);
    } else {
        fail(w, "%s", uv_strerror(code));
    }
}

static void on_looked_up(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    struct redis_socket *w = poll->data;
    char host[RESOLVE_TEXT];
    struct err err;
    int code = resolve_answer(w->look_up->resolve, host, &err);
    drop_look_up(w);
    if (w->mute) {
        return;
    }
    if (code < 0) {
        fail(w, "%s", err.text);
    } else {
        connect_tcp(w, host);
    }
}

static void look_up(struct redis_socket *w, const char *host)
{
    struct err err;
    struct look_up *up = calloc(1, sizeof *up);
    if (up == NULL || resolve_begin(host, &up->resolve, &err) < 0) {
        fail(w, "%s", up == NULL ? "out of memory" : err.text);
        free(up);
        return;
    }
    int code = uv_poll_init(w->loop, &up->poll, resolve_fd(up->resolve));
    if (code < 0) {
        resolve_end(up->resolve);
        free(up);
        fail(w, "%s", uv_strerror(code));
        return;
    }
    w->look_up = up;
    up->poll.data = w;
    uv_poll_start(&up->poll, UV_READABLE, on_looked_up);
}

struct redis_socket *redis_socket_dial(uv_loop_t *loop, const char *address, const struct tls_files *files,
                                       const struct redis_socket_ops *ops, void *owner)
{
    char host[CONFIG_TEXT], port[LEGACY_PORT_TEXT];
    struct in6_addr digits;
    struct redis_socket *w = calloc(1, sizeof *w);
    if (w == NULL || (w->reader = redisReaderCreate()) == NULL) {
        free(w);
        return NULL;
    }
    w->ops = ops;
    w->owner = owner;
    w->loop = loop;
    w->address = address;
    w->files = *files;
    w->limits = (struct reply_limits){.bytes_max = REDIS_SOCKET_REPLY_BYTES_MAX,
                                      .elements_max = REDIS_SOCKET_REPLY_ELEMENTS_MAX};
    w->connect.data = w;
    w->uv.handle.data = w;
    if (!legacy_address(address, host, port)) {
        connect_unix(w, host);
    } else if (uv_inet_pton(AF_INET, host, &digits) == 0 || uv_inet_pton(AF_INET6, host, &digits) == 0) {
        connect_tcp(w, host);
    } else {
        look_up(w, host);
    }
    return w;
}
