/* A growable run of bytes. All zero is an empty one. A failed allocation leaves it as it was and sets `failed`, so that
 * a writer may append many times and check once at the end. */
#ifndef UNSEEN_BASE_BUF_H
#define UNSEEN_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

struct buf {
    char *data;
    size_t len;
    size_t cap;
    bool failed;
};

int buf_reserve(struct buf *b, size_t more); /* room for `more` bytes after len; 0 or ERR_NOMEM */
int buf_add(struct buf *b, const void *bytes, size_t len);
int buf_addf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_clear(struct buf *b);                       /* keeps the memory */
void buf_fit(struct buf *b);                         /* frees unused memory, when that is a lot */
void buf_shrink(struct buf *b, size_t keep_at_most); /* frees memory above, when empty */
void buf_free(struct buf *b);

static inline struct slice buf_slice(const struct buf *b)
{
    return (struct slice){b->data, b->len};
}

#endif
