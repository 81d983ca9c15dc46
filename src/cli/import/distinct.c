#include "cli/import/distinct.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum { FIRST_SIZE = 1024 };

/* Puts a hash that is not 0 into a table that has room. Returns whether it's new. */
static bool put(uint64_t *slots, size_t size, uint64_t hash)
{
    size_t i = hash & (size - 1);
    while (slots[i] != 0) {
        if (slots[i] == hash) {
            return false;
        }
        i = (i + 1) & (size - 1);
    }
    slots[i] = hash;
    return true;
}

static int grow(struct distinct *d)
{
    size_t size = d->size == 0 ? FIRST_SIZE : d->size * 2;
    uint64_t *slots = calloc(size, sizeof(*slots));
    if (slots == NULL) {
        return ERR_NOMEM;
    }
    for (size_t i = 0; i < d->size; i++) {
        if (d->slots[i] != 0) {
            put(slots, size, d->slots[i]);
        }
    }
    free(d->slots);
    d->slots = slots;
    d->size = size;
    return 0;
}

int distinct_add(struct distinct *d, uint64_t hash)
{
    if (hash == 0) {
        d->zero = true;
        return 0;
    }
    if (d->used >= d->size / 4 * 3 && grow(d) < 0) {
        return ERR_NOMEM;
    }
    d->used += put(d->slots, d->size, hash);
    return 0;
}

uint64_t distinct_count(const struct distinct *d)
{
    return d->used + d->zero;
}

void distinct_free(struct distinct *d)
{
    free(d->slots);
    memset(d, 0, sizeof(*d));
}
