/* JSON of requests and answers, on jansson. */
#ifndef UNSEEN_HTTP_JSON_H
#define UNSEEN_HTTP_JSON_H

#include <jansson.h>

#include "base/buf.h"

/* Appends the value as text, and lets go of it. NULL (out of memory) makes the buffer a failed one. */
void json_write(struct buf *out, json_t *value);

#endif
