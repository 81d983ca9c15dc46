/* What of HTTP/1 has a form: the head of a request, and the chunks of its body.
 *
 * The head is taken apart by the library that the distribution has, llhttp or http_parser, once all of it is there.
 * Both overlook some of what proxies read in another way; that is refused before they see it, so that no proxy in front
 * can mean another request than we do: a CR or LF alone, a folded line, a space before a colon, what may stand there
 * once and is there twice.
 */
#ifndef UNSEEN_HTTP_PARSER_H
#define UNSEEN_HTTP_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

enum { HEAD_MAX = 32 * 1024, CHUNKS_MAX = 4 * 1024 * 1024 /* bytes beside a body: sizes, extensions, trailers */ };

enum head_field {
    FIELD_HOST,
    FIELD_AUTHORIZATION,
    FIELD_CONTENT_TYPE,
    FIELD_CONTENT_ENCODING,
    FIELD_CONTENT_LENGTH,
    FIELD_TRANSFER_ENCODING,
    FIELD_EXPECT,
    FIELDS,
};

struct head {
    const char *method;
    char *target; /* a path with its query, or "*" of OPTIONS; the text's, like the fields. Of "http://host/path", which
                   * a client that is told of a proxy sends, it is the path, and the host stands in place of the
                   * header's */
    const char *fields[FIELDS];
    bool keep_alive;
    bool old;     /* HTTP/1.0 */
    bool chunked; /* the body; else it has */
    uint64_t length;

    unsigned status; /* 0: it is good; else why not: */
    const char *error;
};

/* How many bytes the head has that the text begins with, with its empty line; 0: more must come. *seen, 0 at first, is
 * how many bytes were looked at before. */
size_t head_find(struct slice text, size_t *seen);

/* Whether a head may begin so, as far as its method can be seen. */
bool head_may_begin(struct slice text);

/* Takes apart the head of so many bytes, which is changed. */
void head_parse(struct head *head, char *text, size_t len);

/* What comes next. */
enum chunk_state {
    CHUNK_SIZE,  /* its first digit, or another */
    CHUNK_SPACE, /* before an extension */
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_CR,
    CHUNK_LF,
    CHUNK_TRAILER, /* at the beginning of a line behind the last chunk */
    CHUNK_TRAILER_REST,
    CHUNK_TRAILER_LF,
    CHUNK_END_LF,
    CHUNK_DONE,
    CHUNK_BAD,
    CHUNK_LARGE,
};

/* A body in chunks, looked at as it comes. Zeroed at first. */
struct chunks {
    enum chunk_state state;
    unsigned digits;
    uint64_t left; /* of the chunk */
    size_t body;   /* bytes of the body */
    size_t beside; /* bytes of the rest */
};

/* Looks at more bytes, and copies what is body to `to` unless that is NULL; it may be the bytes themselves, or before
 * them. Returns how many there were, up to the end. A body of more than body_max is CHUNK_LARGE. */
size_t chunks_scan(struct chunks *k, const char *bytes, size_t len, size_t body_max, char *to);

#endif
