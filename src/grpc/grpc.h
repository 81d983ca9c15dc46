/* gRPC, for services in any language: one more protocol on the connections of src/net (conn.h), on the same workers as
 * RESP. What it asks and answers is said in proto/unseen/v1/unseen.proto; what an operation does, in the service.
 *
 *   grpc_open()      binds; the server takes the listener, see resp/server.h
 *   ...
 *   server_free()
 *   grpc_free()
 */
#ifndef UNSEEN_GRPC_GRPC_H
#define UNSEEN_GRPC_GRPC_H

#include "base/err.h"
#include "config/config.h"

struct grpc;
struct listener;

/* Binds cfg->grpc; "none": *grpc is NULL, which both functions below take. cfg outlives it. Returns 0, ERR_INVALID,
 * ERR_SYSTEM (can't be bound), ERR_NOMEM. */
int grpc_open(const struct config *cfg, struct grpc **grpc, struct err *err);

/* For server_start(), which closes it; NULL: there is none. */
const struct listener *grpc_listener(const struct grpc *grpc);

void grpc_free(struct grpc *grpc); /* after server_free() */

/* nghttp2's; "none": built without, and there is no gRPC. */
const char *grpc_library_version(void);

#endif
