/* Signatures of requests to S3 (AWS Signature Version 4). Pure. */
#ifndef UNSEEN_ARCHIVE_SIGV4_H
#define UNSEEN_ARCHIVE_SIGV4_H

#include <stdint.h>

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/sha256.h"

enum { SIGV4_DATE_TEXT = 17 };

struct sigv4 {
    const char *method, *host;
    const char *path;    /* percent-encoded, with its first slash */
    const char *query;   /* percent-encoded, its names in order; "": none */
    const char *range;   /* the header's value; NULL: none */
    const char *token;   /* of a session; "": none */
    const char *payload; /* the body's SHA-256, as text */
    const char *region, *key, *secret;
    int64_t at_ms;
};

/* When, as x-amz-date has it: "20130524T000000Z". */
const char *sigv4_date(int64_t at_ms, char out[SIGV4_DATE_TEXT]);

/* Appends the value of the header Authorization. The request has to have the headers Host, Range if there is one,
 * X-Amz-Content-Sha256, X-Amz-Date and, with a token, X-Amz-Security-Token. ERR_NOMEM. */
int sigv4_sign(const struct sigv4 *r, struct buf *out);

/* Appends it percent-encoded but for letters, digits, - . _ ~ and, where slashes may stay, those. */
int sigv4_encode(struct slice text, bool slashes, struct buf *out);

#endif
