/* The messages of grpc.health.v1.Health: who probes asks whether a service is served. */
#ifndef UNSEEN_GRPC_HEALTH_H
#define UNSEEN_GRPC_HEALTH_H

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

#define HEALTH_SERVICE "grpc.health.v1.Health"

/* As in health.proto. */
enum health_status { HEALTH_SERVING = 1, HEALTH_NOT_SERVING = 2, HEALTH_SERVICE_UNKNOWN = 3 };

/* Who a node is, as services that only such a node serves. */
enum health_role { HEALTH_ANY, HEALTH_PRIMARY, HEALTH_REPLICA };

/* 0: it asks about the server ("") or one of its services; *role: about "primary" or "replica". ERR_NOTFOUND: about
 * another; for Check that is a status, for Watch an answer, HEALTH_SERVICE_UNKNOWN. ERR_INVALID: the message is broken.
 */
int health_read(struct slice request, enum health_role *role, struct err *err);

enum { HEALTH_REPLY_MAX = 2 };
void health_write(enum health_status status, struct buf *out);

#endif
