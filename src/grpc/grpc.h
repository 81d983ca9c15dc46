/* gRPC, for services in any language: one more protocol on the connections of src/net (conn.h), on the same workers as
 * RESP. What it asks and answers is said in proto/unseen/v1/unseen.proto; what an operation does, in the service.
 *
 *   grpc_open()      binds; the server takes the listeners, see resp/server.h
 *   ...
 *   server_free()
 *   grpc_free()
 */
#ifndef UNSEEN_GRPC_GRPC_H
#define UNSEEN_GRPC_GRPC_H

#include "base/err.h"
#include "config/config.h"

struct grpc;
struct listeners;

/* Binds cfg->grpc; "none": *grpc is NULL, which grpc_free() takes. What is bound is added to listeners, for
 * server_start(), also when this fails. cfg outlives it. Returns 0, ERR_INVALID, ERR_SYSTEM (can't be bound),
 * ERR_NOMEM. */
int grpc_open(const struct config *cfg, struct listeners *listeners, struct grpc **grpc, struct err *err);

void grpc_free(struct grpc *grpc); /* after server_free() */

/* nghttp2's; "none": built without, and there is no gRPC. */
const char *grpc_library_version(void);

#endif
