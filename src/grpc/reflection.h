/* gRPC's server reflection, v1 and v1alpha, whose messages are the same: tools such as grpcurl ask by it for the .proto
 * files of a server. Answered from one set of descriptors, which protoc makes at build time (gen/descriptors.h). */
#ifndef UNSEEN_GRPC_REFLECTION_H
#define UNSEEN_GRPC_REFLECTION_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

#define REFLECTION_SERVICE "grpc.reflection.v1.ServerReflection"
#define REFLECTION_SERVICE_ALPHA "grpc.reflection.v1alpha.ServerReflection"

/* Appends the answer to one ServerReflectionRequest; what is not found is an answer, too. 0, or ERR_INVALID: the
 * message is broken. */
int reflection_answer(struct slice request, struct buf *out, struct err *err);

/* At most so many bytes it appends. */
size_t reflection_reply_max(struct slice request);

/* Whether it is the full name of a service of this server. */
bool reflection_serves(struct slice service);

#endif
