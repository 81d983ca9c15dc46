/* Fetches memory into the processor's cache that is read soon, all lines at once, where each would be waited for by
 * itself. The bytes need not be there: what isn't is passed over. */
#ifndef UNSEEN_BASE_PREFETCH_H
#define UNSEEN_BASE_PREFETCH_H

#include <stddef.h>
#include <stdint.h>

enum { CACHE_LINE = 64 };

static inline void prefetch(const void *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += CACHE_LINE) {
        __builtin_prefetch((const void *)((uintptr_t)at + i));
    }
}

#endif
