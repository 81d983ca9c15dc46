/* Candidates are sorted by the upper half of their hash, of which every part's position is an increasing function, so
 * one order serves all parts: the candidates' positions and the part's ascend together. Positions come in runs that
 * stay in the nearest cache. With far more positions than candidates, most of a run lies between two candidates and is
 * never read: each candidate is searched for in the rest of the run, by halves and without a branch on the outcome.
 *
 * Exact hashes and exceptions go the other way: each is looked up among the candidates, through a directory of the
 * sorted ones' upper bits.
 */
#include "filter/sieve.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum { DIGIT_BITS = 11, DIGITS = 3, DIGIT_VALUES = 1 << DIGIT_BITS, HALF = 32 };

/* What is known of a candidate. */
enum { MARK_MONTH = 1, MARK_FILTER = 2, MARK_EXACT = 4, MARK_EXCEPTED = 8 };

struct sieve {
    const uint64_t *hashes;
    size_t n, cap;
    uint64_t *keys;    /* sorted: the hash's upper half, and below it which candidate it is */
    uint64_t *scratch; /* for sorting */
    uint32_t *starts;  /* of each bucket of keys, and behind the last one */
    uint8_t *marks;    /* in the order of keys */
    unsigned shift;    /* key >> shift is its bucket */
    size_t next;       /* the first key that the part's next run may have */
};

struct sieve *sieve_new(void)
{
    return calloc(1, sizeof(struct sieve));
}

static void release(struct sieve *s)
{
    free(s->keys);
    free(s->scratch);
    free(s->starts);
    free(s->marks);
}

void sieve_free(struct sieve *s)
{
    if (s != NULL) {
        release(s);
        free(s);
    }
}

static unsigned bucket_bits(size_t n)
{
    unsigned bits = 1;
    while (bits < HALF && (size_t)1 << bits < n) {
        bits++;
    }
    return bits;
}

static int reserve(struct sieve *s, size_t n)
{
    if (n <= s->cap && s->cap > 0) {
        return 0;
    }
    size_t cap = n < DIGIT_VALUES ? DIGIT_VALUES : n;
    release(s);
    *s = (struct sieve){
        .cap = cap,
        .keys = malloc(cap * sizeof *s->keys),
        .scratch = malloc(cap * sizeof *s->scratch),
        .starts = malloc((((size_t)1 << bucket_bits(cap)) + 1) * sizeof *s->starts),
        .marks = malloc(cap),
    };
    if (s->keys == NULL || s->scratch == NULL || s->starts == NULL || s->marks == NULL) {
        release(s);
        *s = (struct sieve){0};
        return ERR_NOMEM;
    }
    return 0;
}

/* By the upper half, least significant digit first. */
static void sort_keys(struct sieve *s)
{
    uint32_t starts[DIGITS][DIGIT_VALUES] = {0};
    for (size_t i = 0; i < s->n; i++) {
        for (unsigned d = 0; d < DIGITS; d++) {
            starts[d][s->keys[i] >> (HALF + d * DIGIT_BITS) & (DIGIT_VALUES - 1)]++;
        }
    }
    for (unsigned d = 0; d < DIGITS; d++) {
        uint32_t start = 0;
        for (unsigned value = 0; value < DIGIT_VALUES; value++) {
            uint32_t count = starts[d][value];
            starts[d][value] = start;
            start += count;
        }
        for (size_t i = 0; i < s->n; i++) {
            uint64_t key = s->keys[i];
            s->scratch[starts[d][key >> (HALF + d * DIGIT_BITS) & (DIGIT_VALUES - 1)]++] = key;
        }
        uint64_t *sorted = s->scratch;
        s->scratch = s->keys;
        s->keys = sorted;
    }
}

static void index_keys(struct sieve *s)
{
    const size_t buckets = (size_t)1 << bucket_bits(s->n);
    s->shift = 64 - bucket_bits(s->n);
    size_t i = 0;
    for (size_t bucket = 0; bucket <= buckets; bucket++) {
        while (i < s->n && s->keys[i] >> s->shift < bucket) {
            i++;
        }
        s->starts[bucket] = (uint32_t)i;
    }
}

int sieve_begin(struct sieve *s, const uint64_t *hashes, size_t n)
{
    if (reserve(s, n) < 0) {
        return ERR_NOMEM;
    }
    s->hashes = hashes;
    s->n = n;
    s->next = 0;
    for (size_t i = 0; i < n; i++) {
        s->keys[i] = hashes[i] >> HALF << HALF | i;
    }
    memset(s->marks, 0, n);
    sort_keys(s);
    index_keys(s);
    return 0;
}

void sieve_see(void *sieve, const struct filter_part *part, uint32_t before, const uint32_t *positions, uint32_t n)
{
    struct sieve *s = sieve;
    const uint32_t *at = positions, *end = positions + n;
    size_t i = before == 0 ? 0 : s->next;
    for (; i < s->n; i++) {
        const uint32_t position = filter_part_position(part, s->keys[i]);
        if (position > end[-1]) {
            break; /* a later run's */
        }
        uint32_t left = (uint32_t)(end - at);
        while (left > 1) {
            uint32_t half = left / 2;
            at += at[half - 1] < position ? half : 0;
            left -= half;
        }
        bool has = *at == position &&
                   filter_part_fits(part->tails, before + (uint32_t)(at - positions), s->hashes[(uint32_t)s->keys[i]]);
        s->marks[i] |= (uint8_t)(has ? MARK_MONTH : 0);
    }
    s->next = i;
}

size_t sieve_month(struct sieve *s, bool good)
{
    size_t found = 0;
    for (size_t i = 0; i < s->n; i++) {
        unsigned marks = s->marks[i], month = marks & MARK_MONTH;
        found += month;
        s->marks[i] = (uint8_t)((marks ^ month) | (good ? month * MARK_FILTER : 0));
    }
    return good ? found : 0;
}

/* Marks all candidates with this hash. That they are marked together is used: a second time ends at the first one. */
static void mark(struct sieve *s, uint64_t hash, uint8_t as)
{
    const uint64_t bucket = hash >> s->shift, half = hash >> HALF;
    uint32_t i = s->starts[bucket], left = s->starts[bucket + 1] - i;
    while (left > 0) {
        uint32_t middle = left / 2;
        if (s->keys[i + middle] >> HALF < half) {
            i += middle + 1;
            left -= middle + 1;
        } else {
            left = middle;
        }
    }
    for (; i < s->n && s->keys[i] >> HALF == half; i++) {
        if (s->hashes[(uint32_t)s->keys[i]] == hash) {
            if ((s->marks[i] & as) != 0) {
                return;
            }
            s->marks[i] |= as;
        }
    }
}

void sieve_exact(struct sieve *s, uint64_t hash)
{
    mark(s, hash, MARK_EXACT);
}

void sieve_except(struct sieve *s, uint64_t hash)
{
    mark(s, hash, MARK_EXCEPTED);
}

size_t sieve_end(const struct sieve *s, uint8_t *unseen)
{
    size_t n_unseen = 0;
    memset(unseen, 0, (s->n + 7) / 8);
    for (size_t i = 0; i < s->n; i++) {
        unsigned marks = s->marks[i];
        bool seen = (marks & MARK_EXACT) != 0 || (marks & (MARK_FILTER | MARK_EXCEPTED)) == MARK_FILTER;
        uint32_t candidate = (uint32_t)s->keys[i];
        unseen[candidate / 8] |= (uint8_t)(seen ? 0 : 0x80U >> (candidate % 8));
        n_unseen += !seen;
    }
    return n_unseen;
}
