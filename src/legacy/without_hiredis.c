/* Replaces redis.c, redis_node.c, redis_reply.c and redis_socket.c in a build without hiredis. Most is never reached:
 * legacy_redis is refused, and redis_new() says why.
 */
#include "legacy/redis.h"
#include "legacy/redis_socket.h"

/* --- redis.h --- */

const char *redis_library_version(void)
{
    return "none";
}

int redis_new(struct heartbeat *heartbeat, struct redis **redis, struct err *err)
{
    (void)heartbeat;
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

const void *redis_place(const struct redis *r)
{
    (void)r;
    return NULL;
}

void redis_cluster_figures(const struct redis *r, struct redis_cluster_figures *out)
{
    (void)r;
    *out = (struct redis_cluster_figures){0};
}

bool redis_next_master(const struct redis *r, size_t *node)
{
    (void)r, (void)node;
    return false;
}

const char *redis_master_address(const struct redis *r, size_t node)
{
    (void)r, (void)node;
    return "";
}

int redis_call_master(struct redis *r, size_t node, const struct slice *words, size_t n, struct redisReply **reply,
                      struct err *err)
{
    (void)node;
    return redis_call(r, words, n, reply, err);
}

int redis_layout(struct redis *r, uint64_t *layout, struct err *err)
{
    (void)r, (void)layout;
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

bool redis_integer(const struct redisReply *reply, int64_t *number)
{
    (void)reply, (void)number;
    return false;
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

/* --- redis_socket.h --- */

struct redis_socket *redis_socket_dial(uv_loop_t *loop, const char *address, const struct tls_files *files,
                                       const struct redis_socket_ops *ops, void *owner)
{
    (void)loop, (void)address, (void)files, (void)ops, (void)owner;
    return NULL;
}

void redis_socket_drop(struct redis_socket *w)
{
    (void)w;
}

void redis_socket_send(struct redis_socket *w, struct buf *bytes)
{
    (void)w, (void)bytes;
}

size_t redis_socket_sending(const struct redis_socket *w)
{
    (void)w;
    return 0;
}

void redis_socket_mute(struct redis_socket *w)
{
    (void)w;
}
