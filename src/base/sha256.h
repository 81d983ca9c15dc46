/* SHA-256 (FIPS 180-4), and HMAC with it (RFC 2104): for signatures that others check. Pure. */
#ifndef UNSEEN_BASE_SHA256_H
#define UNSEEN_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

enum { SHA256_BYTES = 32, SHA256_TEXT = 65 };

void sha256(struct slice bytes, uint8_t out[SHA256_BYTES]);
void hmac_sha256(struct slice key, struct slice bytes, uint8_t out[SHA256_BYTES]);
const char *sha256_text(const uint8_t digest[SHA256_BYTES], char out[SHA256_TEXT]); /* 64 hex digits */

#endif
