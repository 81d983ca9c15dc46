#include "legacy/redis_node.h"

#include <arpa/inet.h>
#include <errno.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/heartbeat.h"
#include "legacy/handshake.h"
#include "legacy/parse.h"
#include "legacy/redis.h"
#include "legacy/redis_words.h"
#include "legacy/reply_limits.h"
#include "legacy/resolve.h"
#include "net/patience.h"
#include "net/stream.h"

enum { PORT_TEXT = 8, LOOK_UP_MS = 200 };

struct redis_node {
    struct redis_wait *wait;
    redisContext *context; /* NULL: not connected */
    struct stream stream;  /* its socket */
    struct buf out;
    char address[CONFIG_TEXT];
    struct redis_replies replies;
    struct reply_limits limits;
    struct err broken;       /* what came behind the replies that are still to be read */
    int64_t looked_since_us; /* what there was of what began then was looked at */
};

#define TEXT_OF(number) #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *redis_library_version(void)
{
    return VERSION_TEXT(HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
}

static int lost(struct redis_node *r, struct err *err)
{
    return err_set(err, ERR_SYSTEM, "%s: %s", r->address, r->context->errstr);
}

static int tell_late(const struct redis_node *r, int64_t since_us, int patience_ms, size_t moved, const char *what,
                     struct err *err)
{
    if (moved == 0) {
        return err_set(err, ERR_SYSTEM, "%s: %s for %d s", r->address, what, patience_ms / 1000);
    }
    return patience_lost(r->address, "it sent", "reply", moved, since_us, patience_ms, err);
}

/* Waits until fd is readable or writable, as `events` say, from since_us on for at most patience_ms, and the time of
 * the bytes of a reply that has begun. 0, or an error with `what` in it. However late, what there is is looked at once;
 * after that one who always has something to say is late, too. */
static int await(struct redis_node *r, int fd, short events, int64_t since_us, int patience_ms, size_t moved,
                 const char *what, struct err *err)
{
    for (;;) {
        struct pollfd fds[] = {{.fd = fd, .events = events}, {.fd = r->wait->stop_fd, .events = POLLIN}};
        int n = poll(fds, 2, LOOK_UP_MS);
        if (r->wait->heartbeat != NULL) {
            heartbeat_now(r->wait->heartbeat);
        }
        if (n > 0 && fds[1].revents != 0) {
            return err_set(err, ERR_CLOSED, "%s: interrupted", r->address);
        }
        if (n < 0 && errno != EINTR) {
            return err_set(err, ERR_SYSTEM, "%s: %s", r->address, strerror(errno));
        }
        if ((n <= 0 || r->looked_since_us == since_us) && patience_left_us(since_us, patience_ms, moved) <= 0) {
            return tell_late(r, since_us, patience_ms, moved, what, err);
        }
        if (n > 0) {
            r->looked_since_us = since_us;
            return 0;
        }
    }
}

/* Puts the address in digits in the place of a name. hiredis would look it up too, but that can't be interrupted. */
static int look_up(struct redis_node *r, char host[CONFIG_TEXT], struct err *err)
{
    struct in6_addr digits;
    struct resolve *resolve = NULL;
    if (inet_pton(AF_INET, host, &digits) == 1 || inet_pton(AF_INET6, host, &digits) == 1) {
        return 0;
    }
    if (resolve_begin(host, &resolve, err) < 0) {
        return err_prefix(err, "%s", r->address);
    }
    int rc = await(r, resolve_fd(resolve), POLLIN, clock_real_us(), REDIS_SILENCE_MS, 0,
                   "the look-up of its name has no answer", err);
    if (rc == 0) {
        rc = resolve_answer(resolve, host, err);
    }
    resolve_end(resolve);
    return rc;
}

static int dial(struct redis_node *r, redisContext **context, struct err *err)
{
    char host[CONFIG_TEXT], port[LEGACY_PORT_TEXT];
    bool tcp = legacy_address(r->address, host, port);
    int rc = tcp ? look_up(r, host, err) : 0;
    if (rc == 0) {
        *context = tcp ? redisConnectNonBlock(host, atoi(port)) : redisConnectUnixNonBlock(host);
        rc = *context == NULL ? err_set(err, ERR_NOMEM, "out of memory") : 0;
    }
    return rc;
}

static int finish_dial(struct redis_node *r, struct err *err)
{
    int code = 0;
    socklen_t size = sizeof code;
    int rc = await(r, r->context->fd, POLLOUT, clock_real_us(), REDIS_CONNECT_MS, 0, "can't be reached", err);
    if (rc == 0 && (getsockopt(r->context->fd, SOL_SOCKET, SO_ERROR, &code, &size) < 0 || code != 0)) {
        rc = err_set(err, ERR_SYSTEM, "%s: %s", r->address, strerror(code != 0 ? code : errno));
    }
    return rc;
}

static int secure(struct redis_node *r, const struct config *cfg, struct err *err)
{
    char host[CONFIG_TEXT], port[LEGACY_PORT_TEXT];
    const struct tls_files files = tls_files_to_connect(cfg);
    const char *address = r->address;
    if (!stream_is_tls(&address)) {
        return 0;
    }
    legacy_address(r->address, host, port);
    int64_t since = clock_real_us();
    int rc = stream_secure(&r->stream, &files, host, err);
    while (rc == 0 && (rc = stream_shake(&r->stream, err)) == 0) {
        rc = await(r, r->stream.fd, stream_events(&r->stream), since, REDIS_CONNECT_MS, 0, "no TLS handshake", err);
        if (rc < 0) {
            return rc;
        }
    }
    return rc < 0 ? err_prefix(err, "%s", r->address) : 0;
}

/* Sends it, and reads its reply, which must be no error; of ROLE, that it is a master. */
static int call(struct redis_node *r, const struct slice *words, size_t n, bool role, struct err *err)
{
    struct buf bytes = {0};
    struct redisReply *reply = NULL;
    struct slice text;
    redis_words_all(&bytes, words, n);
    int rc = bytes.failed ? err_set(err, ERR_NOMEM, "%s: out of memory for a command", r->address)
                          : redis_node_send(r, buf_slice(&bytes), err);
    buf_free(&bytes);
    if (rc == 0 && (rc = redis_node_read(r, &reply, err)) == 0 && redis_is_error(reply, &text)) {
        rc = err_set(err, ERR_INVALID, "%s: %.*s", r->address, (int)text.len, text.data);
    }
    if (rc == 0 && role && !handshake_is_master(reply)) {
        rc = err_set(err, ERR_SYSTEM, "%s: %s", r->address, HANDSHAKE_NO_MASTER);
    }
    redis_free(reply);
    return rc;
}

/* A Sentinel has a password of its own, and neither databases nor a role. */
static int greet(struct redis_node *r, const struct config *cfg, bool sentinel, struct err *err)
{
    char number[PORT_TEXT];
    struct slice auth[3];
    size_t n = handshake_auth(config_now(cfg), sentinel, auth);
    int rc = n > 0 ? call(r, auth, n, false, err) : 0;
    if (sentinel) {
        return rc;
    }
    if (rc == 0) {
        /* Also of database 0: whether it lets us in is known then. */
        snprintf(number, sizeof number, "%d", (int)cfg->legacy_at.database);
        const struct slice words[] = {slice_str("SELECT"), slice_str(number)};
        rc = call(r, words, 2, false, err);
    }
    if (rc == 0 && cfg->legacy_at.kind == REDIS_AT_SENTINEL) {
        const struct slice word = slice_str("ROLE");
        rc = call(r, &word, 1, true, err);
    }
    return rc;
}

static int connect_node(struct redis_node *r, const struct config *cfg, bool sentinel, struct err *err)
{
    redisContext *context = NULL;
    int rc = dial(r, &context, err);
    if (rc < 0) {
        return rc;
    }
    redis_replies_to(&r->replies, context->reader);
    r->context = context;
    r->stream.fd = context->fd;
    rc = context->err != 0 ? lost(r, err) : finish_dial(r, err);
    if (rc == 0) {
        rc = secure(r, cfg, err);
    }
    return rc == 0 ? greet(r, cfg, sentinel, err) : rc;
}

int redis_node_open(struct redis_wait *wait, const char *address, const struct config *cfg, bool sentinel,
                    struct redis_node **node, struct err *err)
{
    *node = NULL;
    struct redis_node *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    r->wait = wait;
    r->stream.fd = -1;
    r->limits = (struct reply_limits){.bytes_max = REDIS_REPLY_BYTES_MAX, .elements_max = REDIS_REPLY_ELEMENTS_MAX};
    snprintf(r->address, sizeof r->address, "%s", address);
    int rc = connect_node(r, cfg, sentinel, err);
    if (rc < 0) {
        redis_node_close(r);
        return rc;
    }
    *node = r;
    return 0;
}

void redis_node_close(struct redis_node *r)
{
    if (r == NULL) {
        return;
    }
    if (r->context != NULL) {
        stream_close(&r->stream);
        r->context->fd = -1;
        redisFree(r->context);
    }
    redis_replies_free(&r->replies);
    buf_free(&r->out);
    free(r);
}

int redis_node_send(struct redis_node *r, struct slice bytes, struct err *err)
{
    return buf_add(&r->out, bytes.data, bytes.len) == 0
               ? 0
               : err_set(err, ERR_NOMEM, "%s: out of memory for a command", r->address);
}

int redis_node_flush(struct redis_node *r, struct err *err)
{
    struct iovec all = {r->out.data, r->out.len};
    ssize_t n = r->out.len > 0 ? stream_write(&r->stream, &all, 1) : 0;
    if ((n < 0 || stream_flush(&r->stream) < 0) && errno != EAGAIN && errno != EINTR) {
        return err_set(err, ERR_SYSTEM, "%s: %s", r->address, stream_problem(&r->stream));
    }
    if (n > 0) {
        r->out.len -= (size_t)n;
        memmove(r->out.data, r->out.data + n, r->out.len);
    }
    return 0;
}

/* What has come goes to hiredis, once it is known to be no more than it may be. */
static int read_some(struct redis_node *r, struct err *err)
{
    ssize_t n = stream_read(&r->stream, r->wait->bytes, sizeof r->wait->bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (n <= 0) {
        return err_set(err, ERR_SYSTEM, "%s: %s", r->address,
                       n == 0 ? "it closed the connection" : stream_problem(&r->stream));
    }
    size_t good;
    if (reply_limits_see(&r->limits, r->wait->bytes, (size_t)n, &good, &r->broken) < 0) {
        err_prefix(&r->broken, "%s", r->address);
    }
    return good == 0 || redisReaderFeed(r->context->reader, r->wait->bytes, good) == REDIS_OK
               ? 0
               : err_set(err, ERR_NOMEM, "%s: out of memory for a reply", r->address);
}

int redis_node_take(struct redis_node *r, struct redisReply **reply, struct err *err)
{
    void *got = NULL;
    if (redisGetReplyFromReader(r->context, &got) != REDIS_OK) {
        return lost(r, err);
    }
    *reply = got;
    if (got == NULL && r->broken.code < 0) {
        return err_set(err, r->broken.code, "%s", r->broken.text);
    }
    return got != NULL;
}

int redis_node_wait(struct redis_node *r, int64_t since_us, struct err *err)
{
    int rc = redis_node_flush(r, err);
    if (rc == 0 && !stream_has_read(&r->stream)) {
        short events = (short)(r->out.len > 0 ? POLLIN | POLLOUT : stream_events(&r->stream));
        rc = await(r, r->context->fd, events, since_us, REDIS_SILENCE_MS, reply_limits_come(&r->limits), "no answer",
                   err);
    }
    return rc < 0 ? rc : read_some(r, err);
}

int redis_node_read(struct redis_node *r, struct redisReply **reply, struct err *err)
{
    int64_t since = clock_real_us();
    int rc;
    while ((rc = redis_node_take(r, reply, err)) == 0 && (rc = redis_node_wait(r, since, err)) == 0) {
    }
    return rc < 0 ? rc : 0;
}
