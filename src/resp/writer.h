/* Replies. One writer for both protocol versions: what RESP2 lacks is written as its clients expect it (a map as a flat
 * array, a double as a string, a null as a null string). Appends to a buffer whose `failed` the sender checks once.
 */
#ifndef UNSEEN_RESP_WRITER_H
#define UNSEEN_RESP_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/slice.h"

struct writer {
    struct buf *out;
    int proto; /* 2 or 3 */
};

void write_simple(struct writer *w, const char *text);

/* text begins with the error's name: "ERR ...". Line ends and other strange bytes in it become blanks. */
void write_error(struct writer *w, const char *text);
void write_errorf(struct writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

void write_int(struct writer *w, int64_t value);
void write_double(struct writer *w, double value);
void write_null(struct writer *w);
void write_bulk(struct writer *w, struct slice text);
void write_str(struct writer *w, const char *text);
void write_text(struct writer *w, struct slice text); /* many lines for people: RESP3's verbatim string */

/* The same for a text that may be large, whose memory becomes the reply's. */
void write_text_whole(struct writer *w, struct buf *text);

/* Heads; n elements (pairs, for a map) follow. */
void write_array(struct writer *w, size_t n);
void write_map(struct writer *w, size_t n);
void write_set(struct writer *w, size_t n);

void write_hex(struct writer *w, uint64_t id); /* 16 digits; empty for 0 */

/* A pair of a map. */
void write_pair_int(struct writer *w, const char *name, int64_t value);
void write_pair_double(struct writer *w, const char *name, double value);
void write_pair_str(struct writer *w, const char *name, const char *text);
void write_pair_bulk(struct writer *w, const char *name, struct slice text);
void write_pair_hex(struct writer *w, const char *name, uint64_t id);

struct writer_number {
    const char *name;
    int64_t value;
};
void write_pair_ints(struct writer *w, const struct writer_number *list, size_t n);

/* Writes n in decimal, returns how many bytes; out has room for 20. */
size_t write_digits(char *out, uint64_t n);

#endif
