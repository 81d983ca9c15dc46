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
#include "dedup/pools.h"
#include "service/meter.h"
#include "service/request.h"

#define GRPC_SERVICE "unseen.v1.Unseen"

struct message {
    struct request rq;
    uint64_t tag;
    enum op op;   /* what it is measured as */
    bool binary;  /* the items stand in the bytes field, and are answered there */
    size_t bytes; /* of the message */
    struct slice pools[POOLS_OF_A_QUESTION];
    struct slice hashes;           /* to which the request's items point */
    size_t pool_items, pool_bytes; /* what an answer from pools may take: request_pools_answer(), set by the caller */
};

struct field;

struct method {
    const char *name; /* "Filter" */
    enum request_kind kind;
    enum op op;
    bool is_stream;             /* PlayedStream: requests and replies without end, in order */
    const struct field *fields; /* of its request; message.c's own */
};

/* Of "Filter" or "filter", as Dubbo's clients say it. NULL: there is none. */
const struct method *method_find(struct slice name);

/* Reads a request. items: room for ITEMS_MAX; of more ids than that only the number is kept (m->rq.n), for the service
 * to refuse. Returns 0, or with a text that names the field: ERR_INVALID, or ERR_ABSENT for what only a newer server
 * knows, and for what Dubbo sends without a stub. m->tag is set then, if it was read before the error. */
int message_read(const struct method *method, struct slice bytes, struct slice *items, struct message *m,
                 struct err *err);

/* At most so many bytes message_write() appends, by the request alone. */
size_t message_reply_max(const struct message *m);

/* Appends the reply to a request that succeeded. History of nobody (rq.history is NULL) has none: that is NOT_FOUND. */
void message_write(const struct message *m, struct buf *out);

/* Appends the RecordReply that refuses one request of a stream: code is a status of gRPC; text is UTF-8 here, whatever
 * bytes it quotes. */
void message_write_refused(uint64_t tag, int code, const char *text, struct buf *out);

#endif
