#include "legacy/redis.h"

#ifdef WITH_HIREDIS

#include <errno.h>
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WORDS_MAX = 16, PORT_TEXT = 8 };

struct redis {
    redisContext *context;
    char address[CONFIG_TEXT];
};

static int lost(struct redis *r, struct err *err)
{
    const redisContext *c = r->context;
    bool silent = c->err == REDIS_ERR_IO && (errno == EAGAIN || errno == EWOULDBLOCK);
    return silent ? err_set(err, ERR_SYSTEM, "%s: no answer for %d s", r->address, REDIS_SILENCE_MS / 1000)
                  : err_set(err, ERR_SYSTEM, "%s: %s", r->address, c->errstr);
}

static struct timeval span(int ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
}

static redisContext *dial(const char *address)
{
    const char *colon = strrchr(address, ':');
    if (strncmp(address, "unix:", 5) == 0) {
        return redisConnectUnixWithTimeout(address + 5, span(REDIS_CONNECT_MS));
    }
    if (address[0] == '/' || colon == NULL) {
        return redisConnectUnixWithTimeout(address, span(REDIS_CONNECT_MS));
    }
    char host[CONFIG_TEXT];
    int len = (int)(colon - address);
    bool v6 = len > 1 && address[0] == '[' && address[len - 1] == ']';
    snprintf(host, sizeof host, "%.*s", v6 ? len - 2 : len, v6 ? address + 1 : address);
    return redisConnectWithTimeout(host, atoi(colon + 1), span(REDIS_CONNECT_MS));
}

static int greet(struct redis *r, const struct config *cfg, struct err *err)
{
    char number[PORT_TEXT];
    int rc = 0;
    if (cfg->legacy_password[0] != '\0') {
        struct redisReply *reply = NULL;
        const struct slice words[] = {slice_str("AUTH"), slice_str(cfg->legacy_password)};
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

int redis_open(const struct config *cfg, struct redis **redis, struct err *err)
{
    struct redis *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    snprintf(r->address, sizeof r->address, "%s", cfg->legacy_redis);
    r->context = dial(r->address);
    int rc = r->context == NULL ? err_set(err, ERR_NOMEM, "out of memory") : r->context->err != 0 ? lost(r, err) : 0;
    if (rc == 0 && redisSetTimeout(r->context, span(REDIS_SILENCE_MS)) != REDIS_OK) {
        rc = lost(r, err);
    }
    if (rc == 0) {
        rc = greet(r, cfg, err);
    }
    if (rc < 0) {
        redis_close(r);
        return rc;
    }
    *redis = r;
    return 0;
}

void redis_close(struct redis *r)
{
    if (r != NULL) {
        if (r->context != NULL) {
            redisFree(r->context);
        }
        free(r);
    }
}

void redis_interrupt(struct redis *r)
{
    shutdown(r->context->fd, SHUT_RDWR);
}

int redis_send(struct redis *r, const struct slice *words, size_t n, struct err *err)
{
    const char *argv[WORDS_MAX];
    size_t lens[WORDS_MAX];
    for (size_t i = 0; i < n; i++) {
        argv[i] = words[i].data;
        lens[i] = words[i].len;
    }
    return redisAppendCommandArgv(r->context, (int)n, argv, lens) == REDIS_OK ? 0 : lost(r, err);
}

int redis_read(struct redis *r, struct redisReply **reply, struct err *err)
{
    void *got = NULL;
    if (redisGetReply(r->context, &got) != REDIS_OK || got == NULL) {
        return lost(r, err);
    }
    *reply = got;
    return 0;
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

void redis_free(struct redisReply *reply)
{
    if (reply != NULL) {
        freeReplyObject(reply);
    }
}

bool redis_is_error(const struct redisReply *reply, struct slice *text)
{
    *text = slice_of(reply->str, (size_t)reply->len);
    return reply->type == REDIS_REPLY_ERROR;
}

size_t redis_count(const struct redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY ? reply->elements : 0;
}

const struct redisReply *redis_item(const struct redisReply *reply, size_t i)
{
    return reply->element[i];
}

bool redis_text(const struct redisReply *reply, struct slice *text)
{
    if (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_STATUS) {
        return false;
    }
    *text = slice_of(reply->str, (size_t)reply->len);
    return true;
}

size_t redis_bytes(const struct redisReply *reply)
{
    size_t sum = 8 + (size_t)(reply->str != NULL ? reply->len : 0);
    for (size_t i = 0; i < redis_count(reply); i++) {
        sum += redis_bytes(reply->element[i]);
    }
    return sum;
}

#else /* the rest is never reached: redis_open() gives nothing to do it with */

int redis_open(const struct config *cfg, struct redis **redis, struct err *err)
{
    (void)cfg;
    *redis = NULL;
    return err_set(err, ERR_INVALID, "this unseen was built without hiredis and can't talk to another Redis");
}

void redis_close(struct redis *r)
{
    (void)r;
}

void redis_interrupt(struct redis *r)
{
    (void)r;
}

int redis_send(struct redis *r, const struct slice *words, size_t n, struct err *err)
{
    (void)r, (void)words, (void)n;
    return err_set(err, ERR_CLOSED, "no connection");
}

int redis_read(struct redis *r, struct redisReply **reply, struct err *err)
{
    (void)r, (void)reply;
    return err_set(err, ERR_CLOSED, "no connection");
}

int redis_call(struct redis *r, const struct slice *words, size_t n, struct redisReply **reply, struct err *err)
{
    (void)r, (void)words, (void)n, (void)reply;
    return err_set(err, ERR_CLOSED, "no connection");
}

void redis_free(struct redisReply *reply)
{
    (void)reply;
}

bool redis_is_error(const struct redisReply *reply, struct slice *text)
{
    (void)reply, (void)text;
    return false;
}

size_t redis_count(const struct redisReply *reply)
{
    (void)reply;
    return 0;
}

const struct redisReply *redis_item(const struct redisReply *reply, size_t i)
{
    (void)reply, (void)i;
    return NULL;
}

bool redis_text(const struct redisReply *reply, struct slice *text)
{
    (void)reply, (void)text;
    return false;
}

size_t redis_bytes(const struct redisReply *reply)
{
    (void)reply;
    return 0;
}

#endif
