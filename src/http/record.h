/* Writes on their way to the store. */
#ifndef UNSEEN_HTTP_RECORD_H
#define UNSEEN_HTTP_RECORD_H

#include <jansson.h>

#include "http/http.h"

/* Hands n items to the store and answers, once they are durable, with `answer`, which is let go of in any case. */
enum http_outcome http_record(struct http_request *rq, enum store_kind kind, int64_t at_ms, struct slice user,
                              const struct slice *items, const uint64_t *hashes, size_t n, json_t *answer);

/* For a write that failed: an outcome that isn't known is not recorded, as far as anyone may rely on it. */
enum http_outcome http_fail_write(struct http_request *rq, const struct err *err);

#endif
