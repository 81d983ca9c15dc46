#include "dedup/session_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

bool session_id(struct slice text, uint32_t *id)
{
    /* Ten digits fit 64 bits. Most candidates of other kinds end at their first byte. */
    if (text.len - 1 >= 10 || (unsigned char)(text.data[0] - '0') > 9 || (text.data[0] == '0' && text.len > 1)) {
        return false;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < text.len; i++) {
        unsigned digit = (unsigned char)(text.data[i] - '0');
        if (digit > 9) {
            return false;
        }
        value = value * 10 + digit;
    }
    *id = (uint32_t)value;
    return value <= UINT32_MAX;
}

int session_set_copy(struct session_set *set, const uint32_t *ids, size_t n)
{
    set->n = 0;
    if (n > set->cap) {
        uint32_t *more = realloc(set->ids, n * sizeof *more);
        if (more == NULL) {
            return ERR_NOMEM;
        }
        set->ids = more;
        set->cap = n;
    }
    if (n > 0) {
        memcpy(set->ids, ids, n * sizeof *ids);
    }
    set->n = n;
    return 0;
}

static uint32_t spread(const struct session_set *set, uint32_t id)
{
    return (id * UINT32_C(2654435769)) >> set->shift; /* Knuth's multiplicative hash: 2^32 / the golden ratio */
}

/* 16 to 32 bits an id, so that one in some 20 of the ids that aren't there is looked for. */
int session_set_build(struct session_set *set)
{
    if (set->n == 0) {
        return 0;
    }
    unsigned log = 9;
    while ((UINT64_C(1) << log) < 16 * (uint64_t)set->n) {
        log++;
    }
    size_t words = (size_t)1 << (log - 6);
    if (words > set->cap_bits) {
        free(set->bits);
        set->cap_bits = 0;
        set->bits = malloc(words * sizeof *set->bits);
        if (set->bits == NULL) {
            return ERR_NOMEM;
        }
        set->cap_bits = words;
    }
    memset(set->bits, 0, words * sizeof *set->bits);
    set->shift = 32 - log;
    for (size_t i = 0; i < set->n; i++) {
        uint32_t bit = spread(set, set->ids[i]);
        set->bits[bit / 64] |= UINT64_C(1) << (bit % 64);
    }
    return 0;
}

bool session_set_has(const struct session_set *set, uint32_t id)
{
    if (set->n == 0) {
        return false;
    }
    uint32_t bit = spread(set, id);
    if ((set->bits[bit / 64] >> (bit % 64) & 1) == 0) {
        return false;
    }
    size_t from = 0, to = set->n;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (set->ids[middle] < id) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from < set->n && set->ids[from] == id;
}

void session_set_free(struct session_set *set)
{
    free(set->ids);
    free(set->bits);
    *set = (struct session_set){0};
}

size_t session_set_hide(const struct session_set *set, const struct slice *items, size_t n, uint8_t *unseen)
{
    size_t hidden = 0;
    for (size_t i = 0; set->n > 0 && i < n; i++) {
        uint32_t id;
        uint8_t bit = (uint8_t)(0x80 >> i % 8);
        if ((unseen[i / 8] & bit) != 0 && session_id(items[i], &id) && session_set_has(set, id)) {
            unseen[i / 8] = (uint8_t)(unseen[i / 8] & ~bit);
            hidden++;
        }
    }
    return hidden;
}
