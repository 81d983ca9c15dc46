#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum { FIRST_CAP = 64 };

int buf_reserve(struct buf *b, size_t more)
{
    if (more <= b->cap - b->len) {
        return 0;
    }
    size_t need;
    if (__builtin_add_overflow(b->len, more, &need)) {
        b->failed = true;
        return ERR_NOMEM;
    }
    size_t cap = b->cap > SIZE_MAX / 2 ? SIZE_MAX : 2 * b->cap;
    if (cap < FIRST_CAP) {
        cap = FIRST_CAP;
    }
    if (cap < need) {
        cap = need;
    }
    char *data = realloc(b->data, cap);
    if (data == NULL) {
        b->failed = true;
        return ERR_NOMEM;
    }
    b->data = data;
    b->cap = cap;
    return 0;
}

int buf_add(struct buf *b, const void *bytes, size_t len)
{
    if (len == 0) {
        return 0;
    }
    int code = buf_reserve(b, len);
    if (code < 0) {
        return code;
    }
    memcpy(b->data + b->len, bytes, len);
    b->len += len;
    return 0;
}

int buf_addf(struct buf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    int code = len < 0 ? ERR_INVALID : buf_reserve(b, (size_t)len + 1);
    if (code == 0) {
        vsnprintf(b->data + b->len, (size_t)len + 1, format, again);
        b->len += (size_t)len;
    }
    va_end(again);
    return code;
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = false;
}

void buf_fit(struct buf *b)
{
    char *data = b->len > 0 && b->cap / 4 * 3 > b->len ? realloc(b->data, b->len) : NULL;
    if (data != NULL) {
        b->data = data;
        b->cap = b->len;
    }
}

void buf_shrink(struct buf *b, size_t keep_at_most)
{
    if (b->len > 0 || b->cap <= keep_at_most) {
        return;
    }
    if (keep_at_most == 0) {
        buf_free(b);
        return;
    }
    char *data = realloc(b->data, keep_at_most);
    if (data != NULL) {
        b->data = data;
        b->cap = keep_at_most;
    }
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){0};
}
