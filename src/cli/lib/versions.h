/* The libraries that run, as version and the start-up line of serve name them. */
#ifndef UNSEEN_CLI_LIB_VERSIONS_H
#define UNSEEN_CLI_LIB_VERSIONS_H

#include "base/err.h"

enum { VERSIONS_TEXT = 24 };

struct versions {
    const char *sqlite;
    const char *libuv;
    const char *zstd;
    const char *http_name, *http; /* what parses HTTP, "http_parser", and its version */
    const char *jansson;
    const char *libxcrypt;
    const char *hiredis, *nghttp2, *openssl, *libcurl; /* "none": built without */
    char xxhash[VERSIONS_TEXT];
};

void versions_get(struct versions *out);

/* All of them, with those of the modules and the stores there are, as members of the open object. */
struct json;
void versions_json(struct json *j);

#endif
