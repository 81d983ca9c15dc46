/* LEB128 unsigned integers, as the blobs use them. */
#ifndef UNSEEN_BASE_VARINT_H
#define UNSEEN_BASE_VARINT_H

#include <stddef.h>
#include <stdint.h>

enum { VARINT_MAX = 10 };

static inline size_t varint_put(uint8_t *out, uint64_t v)
{
    size_t n = 0;
    while (v >= 0x80) {
        out[n++] = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    out[n++] = (uint8_t)v;
    return n;
}

/* Reads one from at..end. Returns its length, or 0 when it is cut off, too long, or not the shortest form. */
static inline size_t varint_get(const uint8_t *at, const uint8_t *end, uint64_t *v)
{
    uint64_t value = 0;
    for (size_t i = 0; i < VARINT_MAX && at + i < end; i++) {
        uint8_t byte = at[i];
        if (i == 9 && byte > 1) {
            return 0;
        }
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if ((byte & 0x80) == 0) {
            if (i > 0 && byte == 0) {
                return 0;
            }
            *v = value;
            return i + 1;
        }
    }
    return 0;
}

#endif
