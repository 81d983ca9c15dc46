/* Bounds what a reply of the old Redis may cost, from its bytes before hiredis sees them: hiredis believes every
 * length, takes memory for an array as soon as its size is announced, and keeps a string's bytes until the last one has
 * come.
 *
 * A refused reply ends the connection. Pure; one for each connection, all zero at first except the two limits.
 */
#ifndef UNSEEN_LEGACY_REPLY_LIMITS_H
#define UNSEEN_LEGACY_REPLY_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { REPLY_DEPTH_MAX = 4, REPLY_HEAD_MAX = 24, REPLY_LINE_MAX = 64 * 1024 };

struct reply_limits {
    size_t bytes_max;    /* of a reply with all that belongs to it */
    size_t elements_max; /* of all its arrays together, as announced */

    /* The reply under way. */
    size_t bytes, elements;
    unsigned depth;
    size_t left[REPLY_DEPTH_MAX]; /* elements to come, of each array that is open */
    size_t skip;                  /* bytes of a string, and its end of line, to come */
    size_t line;                  /* bytes of the line so far */
    char head[REPLY_HEAD_MAX];    /* its first ones */
    char last;                    /* its last one */
};

/* Checks the next bytes. ERR_LARGE: a reply is too large; ERR_SYSTEM: it is not a reply of RESP2. The text says what
 * arrived and what was expected. good: how many bytes may be read: all, or those before the bad reply. */
int reply_limits_see(struct reply_limits *l, const char *bytes, size_t n, size_t *good, struct err *err);

/* Bytes that have come of the reply under way. */
static inline size_t reply_limits_come(const struct reply_limits *l)
{
    return l->bytes - l->skip;
}

#endif
