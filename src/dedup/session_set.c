#include "dedup/session_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"

int session_set_copy(struct session_set *set, const struct session_ids *ids)
{
    size_t hashes = ids->n_hashes * sizeof *set->hashes, numbers = ids->n_numbers * sizeof *set->numbers;
    set->n_numbers = set->n_hashes = 0;
    if (hashes + numbers > set->cap) {
        uint64_t *more = realloc(set->hashes, hashes + numbers);
        if (more == NULL) {
            return ERR_NOMEM;
        }
        set->hashes = more;
        set->cap = hashes + numbers;
    }
    if (hashes > 0) {
        memcpy(set->hashes, ids->hashes, hashes);
    }
    if (numbers > 0) {
        set->numbers = (uint32_t *)(set->hashes + ids->n_hashes);
        memcpy(set->numbers, ids->numbers, numbers);
    }
    set->n_numbers = ids->n_numbers;
    set->n_hashes = ids->n_hashes;
    return 0;
}

static uint32_t spread(const struct session_set *set, uint32_t number)
{
    return (number * UINT32_C(2654435769)) >> set->shift; /* Knuth's multiplicative hash: 2^32 / the golden ratio */
}

/* 16 to 32 bits an id, so that one in some 20 of the ids that aren't there is looked for. */
int session_set_build(struct session_set *set)
{
    size_t n = set->n_numbers + set->n_hashes;
    if (n == 0) {
        return 0;
    }
    unsigned log = 9;
    while ((UINT64_C(1) << log) < 16 * (uint64_t)n) {
        log++;
    }
    size_t words = (size_t)1 << (log - 6);
    if (words > set->cap_bits) {
        free(set->bits);
        set->cap_bits = 0;
        set->bits = malloc(words * sizeof *set->bits);
        if (set->bits == NULL) {
            set->n_numbers = set->n_hashes = 0;
            return ERR_NOMEM;
        }
        set->cap_bits = words;
    }
    memset(set->bits, 0, words * sizeof *set->bits);
    set->shift = 32 - log;
    for (size_t i = 0; i < set->n_numbers; i++) {
        uint32_t bit = spread(set, set->numbers[i]);
        set->bits[bit / 64] |= UINT64_C(1) << (bit % 64);
    }
    for (size_t i = 0; i < set->n_hashes; i++) {
        uint32_t bit = spread(set, (uint32_t)set->hashes[i]);
        set->bits[bit / 64] |= UINT64_C(1) << (bit % 64);
    }
    return 0;
}

static bool may_have(const struct session_set *set, uint32_t number)
{
    uint32_t bit = spread(set, number);
    return (set->bits[bit / 64] >> (bit % 64) & 1) != 0;
}

bool session_set_has_number(const struct session_set *set, uint32_t number)
{
    if (set->n_numbers == 0 || !may_have(set, number)) {
        return false;
    }
    size_t from = 0, to = set->n_numbers;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (set->numbers[middle] < number) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from < set->n_numbers && set->numbers[from] == number;
}

bool session_set_has(const struct session_set *set, struct slice item, uint64_t hash)
{
    uint32_t number;
    if (session_number(item, &number)) {
        return session_set_has_number(set, number);
    }
    return set->n_hashes > 0 && may_have(set, (uint32_t)hash) && hash_is_among(set->hashes, set->n_hashes, hash);
}

void session_set_free(struct session_set *set)
{
    free(set->hashes);
    free(set->bits);
    *set = (struct session_set){0};
}

size_t session_set_hide(const struct session_set *set, const struct slice *items, const uint64_t *hashes, size_t n,
                        uint8_t *unseen)
{
    size_t hidden = 0;
    for (size_t i = 0; set->n_numbers + set->n_hashes > 0 && i < n; i++) {
        uint8_t bit = (uint8_t)(0x80 >> i % 8);
        if ((unseen[i / 8] & bit) != 0 && session_set_has(set, items[i], hashes[i])) {
            unseen[i / 8] = (uint8_t)(unseen[i / 8] & ~bit);
            hidden++;
        }
    }
    return hidden;
}
