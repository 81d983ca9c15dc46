/* Reads RESP2 and RESP3 replies, for subcommands that ask a running server. Pure: bytes in, a tree out. */
#ifndef UNSEEN_NET_REPLY_H
#define UNSEEN_NET_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/slice.h"

enum reply_kind {
    REPLY_NULL,
    REPLY_TEXT, /* simple, bulk, verbatim, big number */
    REPLY_ERROR,
    REPLY_INTEGER,
    REPLY_DOUBLE,
    REPLY_BOOL,
    REPLY_ARRAY, /* set and push too; a map is its keys and values in turn */
};

struct reply {
    enum reply_kind kind;
    bool push;
    struct slice text; /* points into the bytes that were read */
    int64_t integer;   /* also 0 or 1 of a bool */
    double number;     /* REPLY_DOUBLE; also that of an integer */
    size_t n;
    struct reply *items; /* from the arena */
};

enum { REPLY_MORE = 0, REPLY_DONE = 1 };
enum { REPLY_DEPTH_MAX = 8, REPLY_LINE_MAX = 64 * 1024, REPLY_TEXT_MAX = 512 * 1024 * 1024 };

/* Reads one reply from the beginning of data. REPLY_DONE: *used bytes of it were the reply. REPLY_MORE: it isn't
 * complete; call again with more behind the same bytes (and the arena reset). Or ERR_INVALID, ERR_NOMEM. */
int reply_parse(const char *data, size_t len, struct arena *arena, struct reply *out, size_t *used, struct err *err);

/* The value of a key of a map, or of its RESP2 form, a flat array. NULL when there is none. */
const struct reply *reply_field(const struct reply *map, const char *key);

/* A number in any form: integer, double, or their text, as in RESP2. False when it isn't one. */
bool reply_number(const struct reply *r, double *out);
bool reply_integer(const struct reply *r, int64_t *out);

#endif
