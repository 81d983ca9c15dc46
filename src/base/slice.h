/* A run of bytes that another owns: an id, an argument, a line. May hold any byte, NUL too. */
#ifndef UNSEEN_BASE_SLICE_H
#define UNSEEN_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct slice {
    const char *data;
    size_t len;
};

static inline struct slice slice_of(const char *data, size_t len)
{
    return (struct slice){data, len};
}

static inline struct slice slice_str(const char *text)
{
    return (struct slice){text, strlen(text)};
}

static inline bool slice_eq(struct slice a, struct slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* Bytes of the valid UTF-8 character that the text begins with; 0: there is none. */
size_t utf8_len(const char *text, size_t len);

/* How many bytes it is ASCII from its start on. */
size_t ascii_len(struct slice text);

bool slice_is_utf8(struct slice text);

/* Whether the text holds what a terminal obeys, or what ends a line of a protocol: C0, DEL and C1. */
bool slice_has_control(struct slice text);

/* Takes the next character off the text and writes it as it may be shown to people, from wherever it comes: a control,
 * or a byte that is no UTF-8, as \xNN. Returns how many bytes that are. Not of an empty text. */
size_t slice_show_next(struct slice *text, char out[4]);

/* The same of all of it. Cut where `size`, the NUL included, ends. Returns out, which must not be the text. */
const char *slice_show(struct slice text, char *out, size_t size);

/* What is not UTF-8 becomes '?', byte for byte. */
void utf8_clean(char *text);

/* Valid UTF-8 without NUL: such an id is TEXT to SQLite, so that the shell shows it; any other is a BLOB. */
bool slice_is_text(struct slice id);

#endif
