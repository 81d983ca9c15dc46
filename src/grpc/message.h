/* The messages of proto/unseen/v1/unseen.proto: from protobuf's bytes to a request of the service (service/request.h),
 * and from its outcome to bytes. Pure functions; no connection, no allocation but of what is appended to a buffer.
 *
 * Requests are scanned in place: ids point into the message, which must stay until the request was answered. Who has to
 * put a request aside (REQUEST_LATE, REQUEST_WAIT) keeps the message's bytes and reads them once more when it goes on,
 * rather than 16 bytes an item.
 *
 * What is checked here is only what protobuf and the .proto file say: wire types, lengths, UTF-8, which fields exclude
 * each other, that a list which must not be empty is not. What ids, times and options may be is service_submit()'s.
 */
#ifndef UNSEEN_GRPC_MESSAGE_H
#define UNSEEN_GRPC_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"
#include "service/fields.h"
#include "service/meter.h"

#define GRPC_SERVICE "unseen.v1.Unseen"

struct message {
    struct asked asked;
    enum op op;                    /* what it is measured as */
    bool binary;                   /* the items stand in the bytes field, and are answered there */
    size_t bytes;                  /* of the message */
    size_t pool_items, pool_bytes; /* what an answer from pools may take: request_pools_answer(), set by the caller */
};

enum method_shape {
    METHOD_UNARY,
    METHOD_STREAM,    /* PlayedStream: requests and replies without end, in order */
    METHOD_MANY,      /* FilterMany: a request, and a reply for each user */
    METHOD_POOL_LIST, /* what there is: no request of the service. A question as far as rights go */
    METHOD_POOL_GET,
};

struct method {
    const char *name; /* "Filter" */
    enum request_kind kind;
    enum op op;
    enum method_shape shape;
    unsigned of; /* whose fields its request has: service/fields.h */
};

/* Of "Filter" or "filter", as Dubbo's clients say it. NULL: there is none. */
const struct method *method_find(struct slice name);

/* Reads a request. items: room for FIELDS_SLICES; of more ids than that only the number is kept (m->asked.rq.n), for
 * the service to refuse. Returns 0, or with a text that names the field: ERR_INVALID, or ERR_ABSENT for what only a
 * newer server knows, and for what Dubbo sends without a stub. m->asked.tag is set then, if it was read before the
 * error. */
int message_read(const struct method *method, struct slice bytes, struct slice *items, struct message *m,
                 struct err *err);

/* At most so many bytes message_write() appends, by the request alone. */
size_t message_reply_max(const struct message *m);

/* Appends the reply to a request that succeeded. A user who is unknown (rq.history is NULL) has none: that is
 * NOT_FOUND. */
void message_write(const struct message *m, struct buf *out);

/* The same of FilterMany, where m is a question of one user: their answer, or rq.err by its code and text, which is
 * UTF-8. What it takes beside the answer, or as an error, is MESSAGE_MANY_MAX at most. */
enum { MESSAGE_MANY_MAX = 1024 };
void message_write_many(const struct message *m, size_t user, int code, const char *text, struct buf *out);

/* Appends a PoolListReply, and a page of a pool as a PoolGetReply; and the most that these take. */
void message_write_pools(const struct pool_table *table, struct buf *out);
size_t message_pools_max(const struct pool_table *table);
void message_write_page(const struct pool *pool, size_t from, size_t count, struct buf *out);
size_t message_page_max(const struct pool *pool, size_t count);

/* Appends the RecordReply that refuses one request of a stream: code is a status of gRPC; text is UTF-8 here, whatever
 * bytes it quotes. */
void message_write_refused(uint64_t tag, int code, const char *text, struct buf *out);

#endif
