/* Unary calls over plain HTTP/2, as Connect's clients and those of Dubbo's Triple make them: the body of the request is
 * one message without gRPC's prefix (content-type application/proto), that of the answer another, or, with an HTTP
 * status that says so, an error in JSON. Pure functions; the life of such a call is that of any other (call.h).
 *
 *   https://connectrpc.com/docs/protocol
 */
#ifndef UNSEEN_GRPC_UNARY_H
#define UNSEEN_GRPC_UNARY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"
#include "service/refusal.h"

/* Milliseconds in up to ten digits (connect-timeout-ms, triple-timeout-ms, tri-service-timeout), in microseconds. 0, or
 * ERR_INVALID. */
int unary_timeout(struct slice text, int64_t *us);

/* The HTTP status that stands for gRPC's; 200 for GRPC_OK. */
unsigned unary_http_status(enum grpc_status status);

/* Appends {"code":"invalid_argument","status":3,"message":"..."}: Connect's clients look at the code, Dubbo's in
 * JavaScript at the status. text: UTF-8. */
void unary_write_error(enum grpc_status status, const char *text, struct buf *out);

#endif
