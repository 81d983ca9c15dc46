/* Answers a question in little memory and without unpredictable branches.
 *
 * Everything lies in one block of memory, sized before it is filled: the bitmap, the tables of exact hashes and of
 * exceptions, and for each part a directory of buckets. Only a larger question than any before allocates.
 *
 * The bitmap cuts the range of a hash's upper half into 2^12 .. 2^23 cells, about 16 for each entry, and marks the
 * cells in which something is. A position of a part that was cut stands for a range of hashes, and each cell that the
 * range touches is marked: a missing mark would be a false negative, a superfluous one costs a look at the part.
 *
 * A directory says for each bucket, which is the upper bits of a position, where the part's positions of that bucket
 * begin. There are one or two positions in a bucket, so the next four decide, compared at once; it does no harm if some
 * belong to other buckets. Only if all four are below, in a crowded bucket, the search goes on.
 *
 * Candidates are tested in blocks, and each part in turn shortens the list of those that are not decided, without a
 * branch on the outcome: a mispredicted one would cost as much as the test.
 */
#include "filter/probe.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum {
    CELLS_PER_ENTRY = 16,
    CELL_BITS_MIN = 12,
    CELL_BITS_MAX = 23,
    TOGETHER = 4, /* positions compared at once */
    STEPS = 8,    /* so many of those, one behind the other, before it is searched */
    AHEAD = 4,    /* starts written at once; a power of 2 */
    BLOCK = 2048, /* candidates tested at once; a multiple of 8 */
};

/* Open addressing on the hash's low bits, at most half full. 0 marks a free slot. */
struct table {
    uint64_t *slots;
    size_t mask;
    size_t n; /* hashes put in, 0 too */
    bool has_zero;
};

struct probe_part {
    const uint32_t *positions;      /* at least TOGETHER */
    const uint32_t *starts;         /* of each bucket, at most n - TOGETHER */
    uint64_t m, mask;               /* hash & mask is what counts */
    uint32_t last;                  /* where the last TOGETHER positions begin */
    unsigned shift;                 /* position >> shift is its bucket */
    uint32_t few[TOGETHER];         /* the positions of a part with fewer, filled up with its last */
    const struct filter_part *fine; /* the part itself, when it has tails to look at; else NULL */
};

struct probe {
    void *memory;
    size_t capacity;
    const uint64_t *cells;
    unsigned cell_shift; /* hash >> cell_shift is its cell */
    struct table exact, exceptions;
    struct probe_part *parts;
    size_t n_parts;
};

/* What an empty probe points to, so that a test needs no special case. */
static uint64_t nothing[1];

static void probe_clear(struct probe *p)
{
    p->cells = nothing;
    p->cell_shift = 64 - 6;
    p->exact = p->exceptions = (struct table){.slots = nothing};
    p->parts = NULL;
    p->n_parts = 0;
}

struct probe *probe_new(void)
{
    struct probe *p = calloc(1, sizeof *p);
    if (p != NULL) {
        probe_clear(p);
    }
    return p;
}

void probe_free(struct probe *p)
{
    if (p != NULL) {
        free(p->memory);
        free(p);
    }
}

size_t probe_trim(struct probe *p, size_t keep)
{
    if (p->capacity > keep) {
        free(p->memory);
        p->memory = NULL;
        p->capacity = 0;
        probe_clear(p);
    }
    return sizeof *p + p->capacity;
}

static int probe_reserve(struct probe *p, size_t need)
{
    if (need <= p->capacity) {
        return 0;
    }
    size_t more = p->capacity + p->capacity / 2;
    free(p->memory);
    p->capacity = need > more ? need : more;
    p->memory = malloc(p->capacity);
    if (p->memory == NULL) {
        p->capacity = 0;
        return ERR_NOMEM;
    }
    return 0;
}

static unsigned cell_bits(uint64_t entries)
{
    unsigned bits = CELL_BITS_MIN;
    while (bits < CELL_BITS_MAX && UINT64_C(1) << bits < entries * CELLS_PER_ENTRY) {
        bits++;
    }
    return bits;
}

static size_t table_slots(size_t n)
{
    size_t slots = 1;
    while (slots < 2 * n) {
        slots *= 2;
    }
    return slots;
}

/* The least that makes no more buckets than there are positions. */
static unsigned bucket_shift(const struct filter_part *part)
{
    const int range_zeros = __builtin_clzll((part->m - 1) | 1), n_zeros = __builtin_clzll(part->n);
    const unsigned shift = n_zeros > range_zeros ? (unsigned)(n_zeros - range_zeros) : 0;
    return (part->m - 1) >> shift >= part->n ? shift + 1 : shift;
}

/* Room for where the part's buckets begin. */
static size_t bucket_starts(const struct filter_part *part)
{
    return (size_t)((part->m - 1) >> bucket_shift(part)) + 1 + AHEAD;
}

static void table_fill(struct table *t, const uint64_t *hashes, size_t n)
{
    t->mask = table_slots(n) - 1;
    t->n = n;
    t->has_zero = false;
    for (size_t i = 0; i < n; i++) {
        uint64_t hash = hashes[i];
        if (hash == 0) {
            t->has_zero = true;
            continue;
        }
        size_t slot = (size_t)hash & t->mask;
        while (t->slots[slot] != 0 && t->slots[slot] != hash) {
            slot = (slot + 1) & t->mask;
        }
        t->slots[slot] = hash;
    }
}

static bool table_has(const struct table *t, uint64_t hash)
{
    if (hash == 0) {
        return t->has_zero;
    }
    size_t slot = (size_t)hash & t->mask;
    while (t->slots[slot] != 0 && t->slots[slot] != hash) {
        slot = (slot + 1) & t->mask;
    }
    return t->slots[slot] == hash;
}

static void mark_cell(uint64_t *cells, uint64_t cell)
{
    cells[cell / 64] |= UINT64_C(1) << (cell % 64);
}

static void mark_cells(uint64_t *cells, uint64_t first, uint64_t last)
{
    uint64_t from = UINT64_MAX << (first % 64), to = UINT64_MAX >> (63 - last % 64);
    if (first / 64 == last / 64) {
        cells[first / 64] |= from & to;
        return;
    }
    cells[first / 64] |= from;
    for (uint64_t word = first / 64 + 1; word < last / 64; word++) {
        cells[word] = UINT64_MAX;
    }
    cells[last / 64] |= to;
}

/* Position p of a range of m stands for the hashes from p/m up to, and without, (p + 1)/m of the whole range, so it
 * touches the cells from p/m x cells to (p + 1)/m x cells; of a coarse part, also those behind that differ only in bits
 * that don't count. 1/m is taken in fixed point, rounded down for the first and up for the last, so that rounding can
 * only mark a cell too many. A live part's positions are the hashes' own upper bits. */
struct marker {
    uint64_t *cells;
    uint64_t inverse, width, last_cell;
    unsigned shift;
};

static struct marker marker_of(uint64_t *cells, unsigned bits, const struct filter_part *part)
{
    const unsigned grain = part->coarse ? FILTER_GRAIN : 0;
    if (filter_part_live(part)) {
        return (struct marker){.cells = cells, .shift = 32 - grain - bits};
    }
    const uint64_t inverse = (UINT64_C(1) << 63) / part->m;
    return (struct marker){.cells = cells,
                           .inverse = inverse,
                           .width = inverse + 1 + (((UINT64_C(1) << grain) - 1) << 31),
                           .last_cell = (UINT64_C(1) << bits) - 1,
                           .shift = 63 - bits};
}

static inline void mark(const struct marker *to, bool live, uint64_t position)
{
    if (live) {
        mark_cell(to->cells, position >> to->shift);
        return;
    }
    const uint64_t at = position * to->inverse, first = at >> to->shift,
                   last = (at + position + to->width) >> to->shift;
    if (__builtin_expect(first == last, 1)) {
        mark_cell(to->cells, first);
    } else {
        mark_cells(to->cells, first, last < to->last_cell ? last : to->last_cell);
    }
}

/* Writes down where each bucket begins. Behind a position's bucket the next ones begin with the next position, until
 * that says otherwise: so many are written ahead at once that a loop is hardly ever needed. */
static inline void index_positions(const struct filter_part *part, unsigned shift, bool live, const struct marker *to,
                                   uint32_t *starts)
{
    typedef uint32_t some __attribute__((vector_size(AHEAD * sizeof(uint32_t))));
    const uint32_t *positions = part->positions, n = part->n;
    size_t written = AHEAD - 1;
    some next = {0};
    memcpy(starts, &next, sizeof next);
    for (uint32_t i = 0; i < n; i++) {
        const size_t bucket = (size_t)((uint64_t)positions[i] >> shift);
        if (__builtin_expect(bucket > written, 0)) {
            for (size_t k = written + 1; k <= bucket; k++) {
                starts[k] = i;
            }
        }
        next += 1;
        memcpy(starts + bucket + 1, &next, sizeof next);
        written = bucket + AHEAD;
        mark(to, live, positions[i]);
    }
}

/* Also marks the part's cells. */
static void part_index(struct probe_part *out, const struct filter_part *part, uint64_t *cells, unsigned bits,
                       uint32_t *starts)
{
    const uint32_t *positions = part->positions, n = part->n;
    const unsigned shift = bucket_shift(part);
    const size_t n_buckets = (size_t)((part->m - 1) >> shift) + 1;
    const struct marker to = marker_of(cells, bits, part);
    if (filter_part_live(part)) {
        index_positions(part, shift, true, &to, starts);
    } else {
        index_positions(part, shift, false, &to, starts);
    }
    *out = (struct probe_part){
        .positions = positions,
        .starts = starts,
        .m = part->m,
        .mask = filter_part_mask(part),
        .shift = shift,
        .fine = part->fine ? part : NULL,
    };
    if (n < TOGETHER) {
        for (uint32_t i = 0; i < TOGETHER; i++) {
            out->few[i] = positions[i < n ? i : n - 1];
        }
        out->positions = out->few;
        memset(starts, 0, n_buckets * sizeof *starts);
        return;
    }
    out->last = n - TOGETHER;
    for (size_t k = (size_t)((uint64_t)positions[out->last] >> shift) + 1; k < n_buckets; k++) {
        starts[k] = out->last;
    }
}

int probe_build(struct probe *p, const struct probe_input *in)
{
    uint64_t entries = in->n_exact;
    size_t n_parts = 0, n_starts = 0;
    for (size_t i = 0; i < in->n_parts; i++) {
        if (in->parts[i]->n > 0) {
            entries += in->parts[i]->n;
            n_starts += bucket_starts(in->parts[i]);
            n_parts++;
        }
    }
    const unsigned bits = cell_bits(entries);
    const size_t words = (size_t)1 << (bits - 6);
    const size_t exact = table_slots(in->n_exact), exceptions = table_slots(in->n_exceptions);
    const size_t zeroed = (words + exact + exceptions) * sizeof(uint64_t);
    const size_t need = zeroed + n_parts * sizeof(struct probe_part) + n_starts * sizeof(uint32_t);

    probe_clear(p);
    if (probe_reserve(p, need) != 0) {
        return ERR_NOMEM;
    }
    memset(p->memory, 0, zeroed);
    uint64_t *cells = p->memory;
    p->cells = cells;
    p->cell_shift = 64 - bits;
    p->exact.slots = cells + words;
    p->exceptions.slots = p->exact.slots + exact;
    p->parts = (struct probe_part *)(p->exceptions.slots + exceptions);
    p->n_parts = n_parts;
    uint32_t *starts = (uint32_t *)(p->parts + n_parts);

    table_fill(&p->exact, in->exact, in->n_exact);
    for (size_t i = 0; i < in->n_exact; i++) {
        mark_cell(cells, in->exact[i] >> p->cell_shift);
    }
    table_fill(&p->exceptions, in->exceptions, in->n_exceptions);
    struct probe_part *part = p->parts;
    for (size_t i = 0; i < in->n_parts; i++) {
        if (in->parts[i]->n > 0) {
            part_index(part++, in->parts[i], cells, bits, starts);
            starts += bucket_starts(in->parts[i]);
        }
    }
    return 0;
}

static bool search(const uint32_t *positions, uint32_t n, uint32_t position)
{
    uint32_t from = 0;
    while (n > 0) {
        uint32_t half = n / 2;
        if (positions[from + half] < position) {
            from += half + 1;
            n -= half + 1;
        } else if (positions[from + half] == position) {
            return true;
        } else {
            n = half;
        }
    }
    return false;
}

/* One comparison of a vector, which every 64-bit machine has; the compiler makes do where there is none. */
static inline bool any_of_four(const uint32_t *at, uint32_t position)
{
    typedef uint32_t four __attribute__((vector_size(16)));
    typedef uint64_t two __attribute__((vector_size(16)));
    four there;
    memcpy(&there, at, sizeof there);
    two equal = (two)(there == position);
    return (equal[0] | equal[1]) != 0;
}

/* The four positions at `at` are all below: those of the bucket that follow. Nearly always the next four decide; only
 * where a cluster stands, which chance doesn't make, it is searched. */
static bool cluster_has(const struct probe_part *part, const uint32_t *at, uint32_t position)
{
    const uint32_t *const last = part->positions + part->last;
    for (int step = 0; at < last && at[TOGETHER - 1] < position; step++) {
        if (step == STEPS) {
            return search(at, (uint32_t)(last - at) + TOGETHER, position);
        }
        at = last - at > TOGETHER ? at + TOGETHER : last;
    }
    return any_of_four(at, position);
}

static inline bool part_has(const struct probe_part *part, uint64_t hash)
{
    uint32_t position = filter_position(hash & part->mask, part->m);
    const uint32_t *at = part->positions + part->starts[(uint64_t)position >> part->shift];
    if (__builtin_expect(at[TOGETHER - 1] < position, 0)) {
        return cluster_has(part, at, position);
    }
    return any_of_four(at, position);
}

/* A candidate that isn't decided: the half of its hash that counts in parts, and below it its place in the block. */
static inline uint64_t open_entry(uint64_t hash, size_t i)
{
    return (hash & UINT64_MAX << 32) | i;
}

static inline size_t entry_place(uint64_t entry)
{
    return (size_t)(entry & UINT32_MAX);
}

/* Which of up to BLOCK candidates may be seen, by the bitmap; the others are marked unseen. */
static size_t test_cells(const struct probe *p, const uint64_t *hashes, size_t n, uint8_t *unseen, uint64_t *open)
{
    const uint64_t *const cells = p->cells;
    const unsigned shift = p->cell_shift;
    size_t n_open = 0;
    for (size_t i = 0; i < n;) {
        unsigned byte = 0;
        size_t stop = i + 8 < n ? i + 8 : n;
        unsigned padding = (unsigned)(i + 8 - stop);
        for (; i < stop; i++) {
            uint64_t cell = hashes[i] >> shift;
            unsigned marked = cells[cell / 64] >> (cell % 64) & 1;
            byte = byte << 1 | marked;
            open[n_open] = open_entry(hashes[i], i);
            n_open += marked;
        }
        *unseen++ = (uint8_t)(~byte << padding);
    }
    return n_open;
}

static void mark_unseen(uint8_t *unseen, size_t i)
{
    unseen[i / 8] |= (uint8_t)(0x80U >> (i % 8));
}

static size_t test_block(const struct probe *p, const uint64_t *hashes, size_t n, uint8_t *unseen)
{
    uint64_t open[BLOCK]; /* candidates that aren't decided */
    size_t n_open = test_cells(p, hashes, n, unseen, open), n_unseen = n - n_open;

    if (p->exceptions.n > 0) { /* what the parts say doesn't count */
        size_t kept = 0;
        for (size_t i = 0; i < n_open; i++) {
            size_t place = entry_place(open[i]);
            if (!table_has(&p->exceptions, hashes[place])) {
                open[kept++] = open[i];
            } else if (!table_has(&p->exact, hashes[place])) {
                mark_unseen(unseen, place);
                n_unseen++;
            }
        }
        n_open = kept;
    }
    for (size_t part = 0; part < p->n_parts && n_open > 0; part++) {
        const struct probe_part local = p->parts[part];
        size_t kept = 0;
        for (size_t i = 0; local.fine != NULL && i < n_open; i++) {
            open[kept] = open[i];
            kept += !filter_part_has(local.fine, hashes[entry_place(open[i])]);
        }
        for (size_t i = 0; local.fine == NULL && i < n_open; i++) {
            const uint64_t entry = open[i];
            open[kept] = entry;
            kept += !part_has(&local, entry);
        }
        n_open = kept;
    }
    for (size_t i = 0; i < n_open; i++) {
        size_t place = entry_place(open[i]);
        if (!table_has(&p->exact, hashes[place])) {
            mark_unseen(unseen, place);
            n_unseen++;
        }
    }
    return n_unseen;
}

size_t probe_test(const struct probe *p, const uint64_t *hashes, size_t n, uint8_t *unseen)
{
    size_t n_unseen = 0;
    for (size_t done = 0; done < n; done += BLOCK) {
        n_unseen += test_block(p, hashes + done, n - done < BLOCK ? n - done : BLOCK, unseen + done / 8);
    }
    return n_unseen;
}

bool probe_seen(const struct probe *p, uint64_t hash)
{
    uint8_t unseen;
    return probe_test(p, &hash, 1, &unseen) == 0;
}
