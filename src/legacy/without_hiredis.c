/* What stands in the place of redis.c, redis_reply.c and link.c where hiredis is not there. Most is never reached:
 * redis_new() and link_new() give nothing to do it with.
 */
#include "legacy/link.h"
#include "legacy/redis.h"

/* --- redis.h --- */

const char *redis_library_version(void)
{
    return "none";
}

int redis_new(struct beat *beat, struct redis **redis, struct err *err)
{
    (void)beat;
    *redis = NULL;
    return err_set(err, ERR_INVALID, "this unseen was built without hiredis and can't talk to another Redis");
}

int redis_connect(struct redis *r, const struct config *cfg, struct err *err)
{
    (void)r, (void)cfg;
    return err_set(err, ERR_CLOSED, "no connection");
}

void redis_disconnect(struct redis *r)
{
    (void)r;
}

bool redis_connected(const struct redis *r)
{
    (void)r;
    return false;
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

/* --- link.h --- */

int link_new(const struct config *cfg, const struct link_ops *ops, void *owner, struct link **link, struct err *err)
{
    (void)cfg, (void)ops, (void)owner, (void)link;
    return err_set(err, ERR_INVALID, "this unseen was built without hiredis");
}

void link_free(struct link *l)
{
    (void)l;
}

void link_open(struct link *l, uv_loop_t *loop)
{
    (void)l, (void)loop;
}

void link_connect(struct link *l)
{
    (void)l;
}

void link_shut(struct link *l)
{
    (void)l;
}

void link_close(struct link *l)
{
    (void)l;
}

void link_proved(struct link *l)
{
    (void)l;
}

void link_fail(struct link *l, struct slice why)
{
    (void)l, (void)why;
}

bool link_takes(const struct link *l)
{
    (void)l;
    return false;
}

bool link_has_zmscore(const struct link *l)
{
    (void)l;
    return false;
}

int link_send(struct link *l, struct buf *bytes, size_t replies)
{
    (void)l, (void)bytes, (void)replies;
    return ERR_NOMEM;
}

void link_add_count(struct buf *out, size_t n)
{
    (void)out, (void)n;
}

void link_add_word(struct buf *out, struct slice word)
{
    (void)out, (void)word;
}
