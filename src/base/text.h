/* Values as text, the same on every edge. */
#ifndef UNSEEN_BASE_TEXT_H
#define UNSEEN_BASE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"

/* The shortest decimal that reads back as the same value. */
enum { DOUBLE_TEXT = 32 };
const char *double_text(double value, char out[DOUBLE_TEXT]);

/* A whole decimal number of digits alone, at most `most`. */
bool count_read(const char *text, uint64_t most, uint64_t *n);

/* So many hex digits, lower case. */
bool hex_read(const char *at, size_t digits, uint64_t *n);

/* Appends RFC 4648 base64, with padding. */
void base64_add(struct buf *out, struct slice bytes);

/* Reads it back, strictly: into out, which has room for 3 bytes for each 4 of the text. */
bool base64_read(struct slice text, char *out, size_t *len);

#endif
