/* Messages of gRPC and bodies of HTTP that come compressed. Replies are never compressed: a bitmap has nothing to
 * spare, and the time would be the loop's. */
#ifndef UNSEEN_BASE_GZIP_H
#define UNSEEN_BASE_GZIP_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

/* Inflates a whole message, of one member or several (RFC 1952), perhaps with zeros behind them, into out, which is
 * empty, and never holds more than most bytes. may_hold() is asked before out grows, with the bytes it will hold from
 * then on. Returns 0; ERR_INVALID: it is no gzip, or broken; ERR_LARGE: it would be more than most; ERR_BUSY:
 * may_hold() said no; ERR_NOMEM. After an error out is freed, and one that was busy may be begun again. */
int gzip_inflate(struct slice message, size_t most, bool (*may_hold)(void *arg, size_t bytes), void *arg,
                 struct buf *out, struct err *err);

#endif
