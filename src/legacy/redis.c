#include "legacy/redis.h"

#include <arpa/inet.h>
#include <errno.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/heartbeat.h"
#include "legacy/parse.h"
#include "legacy/reply_limits.h"
#include "legacy/resolve.h"
#include "net/stream.h"

enum { WORDS_MAX = 16, PORT_TEXT = 8, LOOK_UP_MS = 200, READ_SIZE = 64 * 1024 };

struct redis {
    redisContext *context; /* NULL: not connected */
    struct stream stream;  /* its socket */
    struct buf out;
    char address[CONFIG_TEXT];
    struct heartbeat *heartbeat;
    struct redis_replies replies;
    struct reply_limits limits;
    struct err broken;     /* what came behind the replies that are still to be read */
    pthread_mutex_t mutex; /* guards the change of context, and: */
    bool interrupted;
    char bytes[READ_SIZE]; /* the thread's own */
};

#define TEXT_OF(number) #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *redis_library_version(void)
{
    return VERSION_TEXT(HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
}

static int lost(struct redis *r, struct err *err)
{
    return err_set(err, ERR_SYSTEM, "%s: %s", r->address, r->context->errstr);
}

static bool is_interrupted(struct redis *r)
{
    pthread_mutex_lock(&r->mutex);
    bool interrupted = r->interrupted;
    pthread_mutex_unlock(&r->mutex);
    return interrupted;
}

/* Waits until fd is readable or writable, as `events` say, from since_us on for at most patience_ms. 0, or an error
 * with `what` in it. */
static int await(struct redis *r, int fd, short events, int64_t since_us, int patience_ms, const char *what,
                 struct err *err)
{
    for (;;) {
        struct pollfd poll_fd = {.fd = fd, .events = events};
        int n = poll(&poll_fd, 1, LOOK_UP_MS);
        if (r->heartbeat != NULL) {
            heartbeat_now(r->heartbeat);
        }
        if (is_interrupted(r)) {
            return err_set(err, ERR_CLOSED, "%s: interrupted", r->address);
        }
        if (n > 0) {
            return 0;
        }
        if (n < 0 && errno != EINTR) {
            return err_set(err, ERR_SYSTEM, "%s: %s", r->address, strerror(errno));
        }
        if (clock_stopwatch_us() - since_us >= (int64_t)patience_ms * 1000) {
            return err_set(err, ERR_SYSTEM, "%s: %s for %d s", r->address, what, patience_ms / 1000);
        }
    }
}

/* Puts the address in digits in the place of a name. hiredis would look it up too, but nobody could interrupt it. */
static int look_up(struct redis *r, char host[CONFIG_TEXT], struct err *err)
{
    struct in6_addr digits;
    struct resolve *resolve = NULL;
    if (inet_pton(AF_INET, host, &digits) == 1 || inet_pton(AF_INET6, host, &digits) == 1) {
        return 0;
    }
    if (resolve_begin(host, &resolve, err) < 0) {
        return err_prefix(err, "%s", r->address);
    }
    int rc = await(r, resolve_fd(resolve), POLLIN, clock_stopwatch_us(), REDIS_SILENCE_MS,
                   "the look-up of its name has no answer", err);
    if (rc == 0) {
        rc = resolve_answer(resolve, host, err);
    }
    resolve_end(resolve);
    return rc;
}

static int dial(struct redis *r, redisContext **context, struct err *err)
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

static int finish_dial(struct redis *r, struct err *err)
{
    int code = 0;
    socklen_t size = sizeof code;
    int rc = await(r, r->context->fd, POLLOUT, clock_stopwatch_us(), REDIS_CONNECT_MS, "can't be reached", err);
    if (rc == 0 && (getsockopt(r->context->fd, SOL_SOCKET, SO_ERROR, &code, &size) < 0 || code != 0)) {
        rc = err_set(err, ERR_SYSTEM, "%s: %s", r->address, strerror(code != 0 ? code : errno));
    }
    return rc;
}

static int secure(struct redis *r, const struct config *cfg, struct err *err)
{
    char host[CONFIG_TEXT], port[LEGACY_PORT_TEXT];
    const struct tls_files files = tls_files_to_connect(cfg);
    const char *address = r->address;
    if (!stream_is_tls(&address)) {
        return 0;
    }
    legacy_address(r->address, host, port);
    int64_t since = clock_stopwatch_us();
    int rc = stream_secure(&r->stream, &files, host, err);
    while (rc == 0 && (rc = stream_shake(&r->stream, err)) == 0) {
        rc = await(r, r->stream.fd, stream_events(&r->stream), since, REDIS_CONNECT_MS, "no TLS handshake", err);
        if (rc < 0) {
            return rc;
        }
    }
    return rc < 0 ? err_prefix(err, "%s", r->address) : 0;
}

static int greet(struct redis *r, const struct config *cfg, struct err *err)
{
    char number[PORT_TEXT];
    const char *password = config_now(cfg)->legacy_password;
    int rc = 0;
    if (password[0] != '\0') {
        struct redisReply *reply = NULL;
        const struct slice words[] = {slice_str("AUTH"), slice_str(password)};
        rc = redis_call(r, words, 2, &reply, err);
        redis_free(reply);
    }
    if (rc == 0) {
        /* Also of database 0: whether it lets us in is known then. */
        struct redisReply *reply = NULL;
        snprintf(number, sizeof number, "%d", (int)cfg->legacy_database);
        const struct slice words[] = {slice_str("SELECT"), slice_str(number)};
        rc = redis_call(r, words, 2, &reply, err);
        redis_free(reply);
    }
    return rc;
}

int redis_new(struct heartbeat *heartbeat, struct redis **redis, struct err *err)
{
    struct redis *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    r->heartbeat = heartbeat;
    r->stream.fd = -1;
    pthread_mutex_init(&r->mutex, NULL);
    *redis = r;
    return 0;
}

int redis_connect(struct redis *r, const struct config *cfg, struct err *err)
{
    snprintf(r->address, sizeof r->address, "%s", cfg->legacy_redis);
    redisContext *context = NULL;
    int rc = dial(r, &context, err);
    if (rc < 0) {
        return rc;
    }
    redis_replies_to(&r->replies, context->reader);
    r->broken = (struct err){0};
    r->limits = (struct reply_limits){.bytes_max = REDIS_REPLY_BYTES_MAX, .elements_max = REDIS_REPLY_ELEMENTS_MAX};
    pthread_mutex_lock(&r->mutex);
    r->context = context;
    r->stream.fd = context->fd;
    pthread_mutex_unlock(&r->mutex);
    buf_clear(&r->out);
    rc = context->err != 0 ? lost(r, err) : finish_dial(r, err);
    if (rc == 0) {
        rc = secure(r, cfg, err);
    }
    if (rc == 0) {
        rc = greet(r, cfg, err);
    }
    if (rc < 0) {
        redis_disconnect(r);
    }
    return rc;
}

void redis_disconnect(struct redis *r)
{
    pthread_mutex_lock(&r->mutex);
    redisContext *context = r->context;
    r->context = NULL;
    pthread_mutex_unlock(&r->mutex);
    if (context != NULL) {
        stream_close(&r->stream);
        context->fd = -1;
        redisFree(context);
    }
}

bool redis_connected(const struct redis *r)
{
    return r->context != NULL;
}

void redis_close(struct redis *r)
{
    if (r != NULL) {
        redis_disconnect(r);
        redis_replies_free(&r->replies);
        buf_free(&r->out);
        pthread_mutex_destroy(&r->mutex);
        free(r);
    }
}

void redis_interrupt(struct redis *r)
{
    pthread_mutex_lock(&r->mutex);
    r->interrupted = true;
    if (r->context != NULL && r->context->fd >= 0) {
        shutdown(r->context->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&r->mutex);
}

int redis_send(struct redis *r, const struct slice *words, size_t n, struct err *err)
{
    const char *argv[WORDS_MAX];
    size_t lens[WORDS_MAX];
    for (size_t i = 0; i < n; i++) {
        argv[i] = words[i].data;
        lens[i] = words[i].len;
    }
    char *command = NULL;
    int len = redisFormatCommandArgv(&command, (int)n, argv, lens);
    bool good = len >= 0 && buf_add(&r->out, command, (size_t)len) == 0;
    redisFreeCommand(command);
    return good ? 0 : err_set(err, ERR_NOMEM, "%s: out of memory for a command", r->address);
}

/* Sends what it can. */
static int write_some(struct redis *r, struct err *err)
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
static int read_some(struct redis *r, struct err *err)
{
    ssize_t n = stream_read(&r->stream, r->bytes, sizeof r->bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (n <= 0) {
        return err_set(err, ERR_SYSTEM, "%s: %s", r->address,
                       n == 0 ? "it closed the connection" : stream_problem(&r->stream));
    }
    size_t good;
    if (reply_limits_see(&r->limits, r->bytes, (size_t)n, &good, &r->broken) < 0) {
        err_prefix(&r->broken, "%s", r->address);
    }
    return good == 0 || redisReaderFeed(r->context->reader, r->bytes, good) == REDIS_OK
               ? 0
               : err_set(err, ERR_NOMEM, "%s: out of memory for a reply", r->address);
}

int redis_read(struct redis *r, struct redisReply **reply, struct err *err)
{
    redisContext *c = r->context;
    void *got = NULL;
    int64_t since = clock_stopwatch_us();
    for (;;) {
        if (redisGetReplyFromReader(c, &got) != REDIS_OK) {
            return lost(r, err);
        }
        if (got != NULL) {
            *reply = got;
            return 0;
        }
        if (r->broken.code < 0) {
            return err_set(err, r->broken.code, "%s", r->broken.text);
        }
        int rc = write_some(r, err);
        if (rc == 0 && !stream_has_read(&r->stream)) {
            short events = (short)(r->out.len > 0 ? POLLIN | POLLOUT : stream_events(&r->stream));
            rc = await(r, c->fd, events, since, REDIS_SILENCE_MS, "no answer", err);
        }
        if (rc < 0) {
            return rc;
        }
        if ((rc = read_some(r, err)) < 0) {
            return rc;
        }
    }
}

int redis_call(struct redis *r, const struct slice *words, size_t n, struct redisReply **reply, struct err *err)
{
    int rc = redis_send(r, words, n, err);
    if (rc == 0) {
        rc = redis_read(r, reply, err);
    }
    struct slice text;
    if (rc == 0 && redis_is_error(*reply, &text)) {
        rc = err_set(err, ERR_INVALID, "%s: %.*s", r->address, (int)text.len, text.data);
        redis_free(*reply);
        *reply = NULL;
    }
    return rc;
}
