#include "legacy/redis_reply.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>

#include "base/arena.h"

enum { READ_BUFFER_KEPT = 1 << 20 };

/* A reply with all that belongs to it. */
struct whole {
    redisReply reply; /* the outermost; first */
    struct arena arena;
    size_t bytes;
    struct redis_replies *of;
};

/* --- as hiredis reads them --- */

static struct whole *whole_new(struct redis_replies *r)
{
    struct whole *w = r->spare;
    r->spare = NULL;
    if (w == NULL && (w = calloc(1, sizeof *w)) != NULL) {
        w->of = r;
    }
    return w;
}

static void whole_free(void *reply)
{
    struct whole *w = reply;
    if (w->of->spare != NULL) {
        arena_free(&w->arena);
        free(w);
        return;
    }
    arena_reset(&w->arena);
    w->reply = (redisReply){0};
    w->bytes = 0;
    w->of->spare = w;
}

/* The reply, or an element of one, with room for `more` bytes behind it. */
static redisReply *element_new(const redisReadTask *task, size_t more)
{
    enum { FRAME = 8 }; /* about what the protocol puts around an element */
    struct redis_replies *r = task->privdata;
    redisReply *reply;
    if (task->parent == NULL) {
        r->growing = whole_new(r);
        reply = r->growing != NULL ? &r->growing->reply : NULL;
        if (reply != NULL && more > 0 && (reply->str = arena_alloc(&r->growing->arena, more)) == NULL) {
            whole_free(r->growing);
            reply = NULL;
        }
    } else {
        redisReply *parent = task->parent->obj;
        reply = arena_alloc(&r->growing->arena, sizeof *reply + more);
        if (reply != NULL) {
            *reply = (redisReply){.str = (char *)(reply + 1)};
            parent->element[task->idx] = reply;
        }
    }
    if (reply != NULL) {
        reply->type = task->type;
        r->growing->bytes += FRAME + more;
    }
    return reply;
}

static void *string_new(const redisReadTask *task, char *text, size_t len)
{
    redisReply *reply = element_new(task, len);
    if (reply != NULL && len > 0) {
        memcpy(reply->str, text, len);
        reply->len = len;
    }
    return reply;
}

static void *integer_new(const redisReadTask *task, long long value)
{
    redisReply *reply = element_new(task, 0);
    if (reply != NULL) {
        reply->integer = value;
    }
    return reply;
}

static void *nil_new(const redisReadTask *task)
{
    return element_new(task, 0);
}

static void *array(const redisReadTask *task, size_t n)
{
    redisReply *reply = n <= SIZE_MAX / sizeof reply ? element_new(task, 0) : NULL;
    if (reply == NULL) {
        return NULL;
    }
    struct whole *w = ((struct redis_replies *)task->privdata)->growing;
    reply->element = arena_alloc(&w->arena, n * sizeof reply);
    if (reply->element == NULL) {
        if (task->parent == NULL) {
            whole_free(w);
        }
        return NULL;
    }
    reply->elements = n;
    return reply;
}

#if HIREDIS_MAJOR >= 1
static void *array_new(const redisReadTask *task, size_t n)
{
    return array(task, n);
}

static void *double_new(const redisReadTask *task, double value, char *text, size_t len)
{
    (void)value;
    return string_new(task, text, len);
}

static void *bool_new(const redisReadTask *task, int value)
{
    return integer_new(task, value);
}
#else
static void *array_new(const redisReadTask *task, int n)
{
    return array(task, (size_t)n);
}
#endif

static redisReplyObjectFunctions functions = {
    .createString = string_new,
    .createArray = array_new,
    .createInteger = integer_new,
#if HIREDIS_MAJOR >= 1
    .createDouble = double_new,
    .createBool = bool_new,
#endif
    .createNil = nil_new,
    .freeObject = whole_free,
};

void redis_replies_to(struct redis_replies *r, struct redisReader *reader)
{
    reader->fn = &functions;
    reader->privdata = r;
    reader->maxbuf = READ_BUFFER_KEPT;
}

void redis_replies_free(struct redis_replies *r)
{
    if (r->spare != NULL) {
        arena_free(&r->spare->arena);
        free(r->spare);
    }
}

/* --- looking at them --- */

void redis_free(struct redisReply *reply)
{
    if (reply != NULL) {
        whole_free(reply);
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

bool redis_integer(const struct redisReply *reply, int64_t *number)
{
    *number = reply->integer;
    return reply->type == REDIS_REPLY_INTEGER;
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
    return ((const struct whole *)reply)->bytes;
}
