/* The request parser: bytes in, pointers out, three answers. Knows RESP arrays and inline commands, no sockets.
 *
 * It is fed all bytes of a request so far, again each time they grow, and remembers how far it got, so that nothing is
 * scanned twice. Arguments are slices of the caller's bytes: when these have moved between two feeds (the buffer grew),
 * the slices move along. After PARSE_DONE the caller drops `used` bytes and calls parser_next().
 */
#ifndef UNSEEN_RESP_PARSER_H
#define UNSEEN_RESP_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"

enum {
    PARSER_ARGS_MAX = 65536 + 16,        /* kept; more are counted and skipped, so that the command can say so */
    PARSER_COUNT_MAX = 1024 * 1024,      /* announced; more is a protocol error */
    PARSER_BYTES_MAX = 16 * 1024 * 1024, /* of one request */
    PARSER_INLINE_MAX = 64 * 1024,
    PARSER_GUARDED_ARGS = 10, /* before authentication */
    PARSER_GUARDED_BYTES = 16 * 1024,
};

enum parse_result {
    PARSE_DONE, /* args, n, count and used are set; n may be 0: an empty line or array, to be skipped */
    PARSE_MORE, /* at least `need` bytes of the request are needed */
    PARSE_BAD,  /* error says why; nothing after it can be understood */
};

struct parser {
    struct slice *args;
    size_t n;     /* kept */
    size_t count; /* sent */
    size_t used;
    size_t need;
    const char *error; /* "ERR Protocol error: ..." */

    size_t bytes_max; /* of a request; set by parser_init(), may be lowered */
    bool guarded;     /* the small limits apply; set by the caller, who knows about passwords */

    size_t args_cap;
    const char *base; /* where the bytes were at the last feed */
    size_t at;        /* parsed so far */
    int64_t left;     /* arguments to come; -1: the first line is still to come */
    int64_t bulk;     /* announced length of the argument at hand; -1: its first line is to come */
    char text[48];    /* an error that quotes what came */
    struct buf line;  /* the unquoted arguments of an inline command */
};

void parser_init(struct parser *p);
void parser_free(struct parser *p);

enum parse_result parser_feed(struct parser *p, const char *data, size_t len);

/* Forgets the request at hand and expects the next. Keeps the memory for arguments. */
void parser_next(struct parser *p);

/* After PARSE_DONE: the request's bytes have moved to data. */
void parser_moved(struct parser *p, const char *data);

/* How large the memory for arguments may get while the request's bytes grow to that many. */
size_t parser_args_to_come(const struct parser *p, size_t bytes);
static inline size_t parser_args_bytes(const struct parser *p, size_t bytes)
{
    return p->left <= 0 ? p->args_cap * sizeof *p->args : parser_args_to_come(p, bytes);
}

/* Whether nothing of a request has been parsed. */
static inline bool parser_fresh(const struct parser *p)
{
    return p->at == 0;
}

#endif
