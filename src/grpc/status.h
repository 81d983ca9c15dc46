/* What gRPC writes into headers: texts, and times. Pure functions. */
#ifndef UNSEEN_GRPC_STATUS_H
#define UNSEEN_GRPC_STATUS_H

#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"

/* Appends UTF-8 as grpc-message has it: all but visible ASCII and '%' are written as %XX. */
void status_message(const char *text, struct buf *out);

/* "100m" -> 100,000 µs. Returns 0, or ERR_INVALID: it is no grpc-timeout. One of more than a year is a year. */
int status_timeout(struct slice text, int64_t *us);

#endif
