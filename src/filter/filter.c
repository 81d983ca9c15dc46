/* Work on decoded filters: sort, union, add, cut, look up. The blob is codec.c's. */
#include "filter/filter.h"

#include <string.h>

enum {
    INSERTION_MAX = 32, /* below, insertion sort wins */
    RADIX_MIN = 256,    /* below, three histograms cost more than they save */
    DIGIT_BITS = 11,    /* three digits make 33 bits */
    DIGITS = 3,
    DIGIT_VALUES = 1 << DIGIT_BITS,
};

static void insertion_sort(uint32_t *v, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        uint32_t value = v[i], j = i;
        for (; j > 0 && v[j - 1] > value; j--) {
            v[j] = v[j - 1];
        }
        v[j] = value;
    }
}

/* In place: parts the values by their bit, then each half by the next lower one. At most 32 deep, whatever the
 * input. */
static void exchange_sort(uint32_t *v, uint32_t n, unsigned bit)
{
    while (n > INSERTION_MAX) {
        uint32_t zeros = 0, ones = n;
        while (zeros < ones) {
            if ((v[zeros] >> bit & 1) == 0) {
                zeros++;
            } else {
                ones--;
                uint32_t value = v[zeros];
                v[zeros] = v[ones];
                v[ones] = value;
            }
        }
        if (bit == 0) {
            return;
        }
        bit--;
        exchange_sort(v, zeros, bit);
        v += zeros;
        n -= zeros;
    }
    insertion_sort(v, n);
}

/* Least significant digit first. Three passes, so the result is in scratch. */
static void radix_sort(uint32_t *v, uint32_t n, uint32_t *scratch)
{
    uint32_t starts[DIGITS][DIGIT_VALUES] = {0};
    for (uint32_t i = 0; i < n; i++) {
        for (unsigned d = 0; d < DIGITS; d++) {
            starts[d][v[i] >> (d * DIGIT_BITS) & (DIGIT_VALUES - 1)]++;
        }
    }
    uint32_t *from = v, *to = scratch;
    for (unsigned d = 0; d < DIGITS; d++) {
        uint32_t start = 0;
        for (unsigned value = 0; value < DIGIT_VALUES; value++) {
            uint32_t count = starts[d][value];
            starts[d][value] = start;
            start += count;
        }
        for (uint32_t i = 0; i < n; i++) {
            to[starts[d][from[i] >> (d * DIGIT_BITS) & (DIGIT_VALUES - 1)]++] = from[i];
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
}

/* Copies an ascending run without its repeats; out may be the run itself. */
static uint32_t copy_distinct(const uint32_t *sorted, uint32_t n, uint32_t *out)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t value = sorted[i];
        kept -= kept > 0 && out[kept - 1] == value;
        out[kept++] = value;
    }
    return kept;
}

uint32_t filter_sort(uint32_t *positions, uint32_t n, uint32_t *scratch)
{
    if (scratch != NULL && n >= RADIX_MIN) {
        radix_sort(positions, n, scratch);
        return copy_distinct(scratch, n, positions);
    }
    exchange_sort(positions, n, 31);
    return copy_distinct(positions, n, positions);
}

/* No branch depends on the values, so nothing is mispredicted until one run ends. */
uint32_t filter_union(const uint32_t *a, uint32_t na, const uint32_t *b, uint32_t nb, uint32_t *out)
{
    uint32_t i = 0, j = 0, n = 0;
    while (i < na && j < nb) {
        uint32_t x = a[i], y = b[j];
        out[n++] = x < y ? x : y;
        i += x <= y;
        j += y <= x;
    }
    if (i < na) {
        memcpy(out + n, a + i, (na - i) * sizeof *out);
        n += na - i;
    }
    if (j < nb) {
        memcpy(out + n, b + j, (nb - j) * sizeof *out);
        n += nb - j;
    }
    return n;
}

/* The same with tails: two that differ become 0, which fits both items. */
static uint32_t union_tails(const struct filter_part *a, const uint32_t *b, const uint8_t *b_tails, uint32_t nb,
                            uint32_t *out, uint8_t *out_tails)
{
    uint32_t i = 0, j = 0, n = 0;
    while (i < a->n || j < nb) {
        bool from_a = i < a->n && (j == nb || a->positions[i] <= b[j]);
        bool from_b = j < nb && (i == a->n || b[j] <= a->positions[i]);
        uint8_t tail = from_a ? a->tails[i] : b_tails[j];
        out[n] = from_a ? a->positions[i] : b[j];
        out_tails[n++] = from_a && from_b && tail != b_tails[j] ? 0 : tail;
        i += from_a;
        j += from_b;
    }
    return n;
}

static struct filter_part *find_live(struct filter *f, bool coarse, bool fine)
{
    for (unsigned i = 0; i < f->n_parts; i++) {
        struct filter_part *part = &f->parts[i];
        if (part->coarse == coarse && part->fine == fine && filter_part_live(part)) {
            return part;
        }
    }
    return NULL;
}

/* Takes out what the part holds. Returns how many are left, in place. tails may be NULL: not known. */
static uint32_t drop_held(const struct filter_part *part, uint32_t *positions, uint8_t *tails, uint32_t n)
{
    uint32_t kept = 0, at = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t here = filter_part_position(part, (uint64_t)positions[i] << 32);
        while (at < part->n && part->positions[at] < here) {
            at++;
        }
        bool held = at < part->n && part->positions[at] == here &&
                    (part->tails == NULL || part->tails[at] == 0 || (tails != NULL && part->tails[at] == tails[i]));
        if (!held) {
            if (tails != NULL) {
                tails[kept] = tails[i];
            }
            positions[kept++] = positions[i];
        }
    }
    return kept;
}

/* The same for positions of a live coarse part, and another coarse part. */
static uint32_t drop_coarse_held(const struct filter_part *part, uint32_t *positions, uint32_t n)
{
    uint32_t kept = 0, at = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t here = filter_part_position(part, (uint64_t)positions[i] << (32 + FILTER_GRAIN));
        while (at < part->n && part->positions[at] < here) {
            at++;
        }
        if (at == part->n || part->positions[at] != here) {
            positions[kept++] = positions[i];
        }
    }
    return kept;
}

/* Ascending positions at 2^32 become coarse ones, in out, which may be the run itself. */
static uint32_t make_coarse(const uint32_t *positions, uint32_t n, uint32_t *out)
{
    for (uint32_t i = 0; i < n; i++) {
        out[i] = positions[i] >> FILTER_GRAIN;
    }
    return copy_distinct(out, n, out);
}

/* Into the part, or into a new one of range m. */
static int add_to(struct filter *f, struct filter_part *part, uint64_t m, bool coarse, const uint32_t *positions,
                  uint32_t n, struct arena *arena)
{
    if (part == NULL && f->n_parts == FILTER_PARTS_MAX) {
        return ERR_FULL;
    }
    size_t room = (size_t)n + (part == NULL ? 0 : part->n);
    uint32_t *merged = arena_alloc(arena, room * sizeof *merged);
    if (merged == NULL) {
        return ERR_NOMEM;
    }
    if (part == NULL) {
        part = &f->parts[f->n_parts++];
        *part = (struct filter_part){.m = m, .coarse = coarse};
    }
    part->n = filter_union(part->positions, part->n, positions, n, merged);
    part->positions = merged;
    return filter_part_dense(part) ? ERR_FULL : 0;
}

static int add_to_fine(struct filter *f, const uint32_t *positions, const uint8_t *tails, uint32_t n,
                       struct arena *arena)
{
    struct filter_part *part = find_live(f, false, true);
    if (part == NULL && f->n_parts == FILTER_PARTS_MAX) {
        return ERR_FULL;
    }
    size_t room = (size_t)n + (part == NULL ? 0 : part->n);
    uint32_t *merged = arena_alloc(arena, room * sizeof *merged);
    uint8_t *merged_tails = arena_alloc(arena, room);
    if (merged == NULL || merged_tails == NULL) {
        return ERR_NOMEM;
    }
    if (part == NULL) {
        part = &f->parts[f->n_parts++];
        *part = (struct filter_part){.m = FILTER_LIVE_M, .fine = true};
    }
    part->n = union_tails(part, positions, tails, n, merged, merged_tails);
    part->positions = merged;
    part->tails = merged_tails;
    part->n_open = 0;
    for (uint32_t i = 0; i < part->n; i++) {
        part->n_open += merged_tails[i] == 0;
    }
    return 0;
}

int filter_add_tails(struct filter *f, uint32_t *positions, uint8_t *tails, uint32_t n, uint32_t coarse_max,
                     uint32_t live_max, struct arena *arena)
{
    struct filter_part *coarse = find_live(f, true, false), *live = find_live(f, false, false);
    bool sealed = filter_sealed(f);
    for (unsigned i = 0; i < f->n_parts; i++) {
        /* The union with the part that they go to leaves out the rest. */
        if (f->n_parts > 1 || sealed) {
            n = drop_held(&f->parts[i], positions, tails, n);
        }
    }
    if (n == 0) {
        return 0;
    }
    bool to_coarse = !sealed && (coarse != NULL ? coarse->n <= coarse_max && n <= coarse_max - coarse->n
                                                : f->n_parts == 0 && n <= coarse_max);
    if (to_coarse) {
        n = make_coarse(positions, n, positions);
        return add_to(f, coarse, FILTER_LIVE_M >> FILTER_GRAIN, true, positions, n, arena);
    }
    uint32_t live_n = live != NULL ? live->n : 0;
    bool to_fine = tails != NULL && (live_n > live_max || n > live_max - live_n);
    if (f->n_parts == 1 && (coarse != NULL || (live != NULL && to_fine))) {
        n = drop_held(&f->parts[0], positions, tails, n);
    }
    if (n == 0) {
        return 0;
    }
    return to_fine ? add_to_fine(f, positions, tails, n, arena)
                   : add_to(f, live, FILTER_LIVE_M, false, positions, n, arena);
}

int filter_add(struct filter *f, uint32_t *positions, uint32_t n, uint32_t coarse_max, struct arena *arena)
{
    return filter_add_tails(f, positions, NULL, n, coarse_max, UINT32_MAX, arena);
}

/* The first time the last item of a position leaves its tail there, the second time each other one finds it. */
void filter_set_tail(const uint32_t *positions, uint8_t *tails, uint32_t n, uint64_t hash, bool again)
{
    const uint32_t position = filter_position(hash, FILTER_LIVE_M);
    const uint8_t tail = filter_tail(hash);
    uint32_t from = 0, to = n;
    while (to - from > 1) {
        uint32_t middle = from + (to - from) / 2;
        if (positions[middle] <= position) {
            from = middle;
        } else {
            to = middle;
        }
    }
    tails[from] = again && tails[from] != tail ? 0 : tail;
}

/* A part that was cut, or is coarse: into the one of the same range, where the same item has the same position, or
 * beside all others. */
static int import_part(struct filter *f, const struct filter_part *from, uint32_t *positions, struct arena *arena)
{
    struct filter_part *same = NULL;
    uint32_t n = from->n;
    for (unsigned i = 0; i < f->n_parts; i++) {
        struct filter_part *part = &f->parts[i];
        if (part->m == from->m && part->coarse == from->coarse) {
            same = part;
        } else if (part->coarse && from->coarse && filter_part_live(from)) {
            /* All that is known of an item decides where it is in that part, too. */
            n = drop_coarse_held(part, positions, n);
        }
    }
    return n == 0 ? 0 : add_to(f, same, from->m, from->coarse, positions, n, arena);
}

int filter_join(struct filter *f, const struct filter *other, uint32_t coarse_max, struct arena *arena)
{
    if (f->n_parts == 0) {
        *f = *other;
        return 0;
    }
    /* What can't be moved between parts first: then live positions that are among it need no room. */
    enum { FIXED, LIVE, FINE, KINDS };
    for (int kind = FIXED; kind < KINDS; kind++) {
        for (unsigned i = 0; i < other->n_parts; i++) {
            const struct filter_part *part = &other->parts[i];
            if (kind != (part->fine ? FINE : part->m == FILTER_LIVE_M ? LIVE : FIXED)) {
                continue;
            }
            uint32_t *copy = arena_copy(arena, part->positions, part->n * sizeof *copy);
            uint8_t *tails = part->fine ? arena_copy(arena, part->tails, part->n) : NULL;
            if (copy == NULL || (part->fine && tails == NULL)) {
                return ERR_NOMEM;
            }
            int result = kind == FIXED ? import_part(f, part, copy, arena)
                                       : filter_add_tails(f, copy, tails, part->n, coarse_max, 0, arena);
            if (result < 0) {
                return result;
            }
        }
    }
    return 0;
}

int filter_drop_tails(struct filter *f, struct arena *arena)
{
    struct filter_part *fine = find_live(f, false, true), *live = find_live(f, false, false);
    if (fine == NULL) {
        return 0;
    }
    if (live != NULL) {
        uint32_t *merged = arena_alloc(arena, ((size_t)live->n + fine->n) * sizeof *merged);
        if (merged == NULL) {
            return ERR_NOMEM;
        }
        live->n = filter_union(live->positions, live->n, fine->positions, fine->n, merged);
        live->positions = merged;
        *fine = f->parts[--f->n_parts];
        return 0;
    }
    *fine = (struct filter_part){.positions = fine->positions, .n = fine->n, .m = fine->m};
    return 0;
}

int filter_unite(struct filter *f, struct arena *arena)
{
    struct filter_part *coarse = find_live(f, true, false);
    if (coarse == NULL || filter_sealed(f)) {
        return ERR_INVALID;
    }
    for (unsigned i = 0; i < f->n_parts; i++) {
        struct filter_part *part = &f->parts[i];
        if (part == coarse) {
            continue;
        }
        uint32_t n = part->coarse ? part->n : make_coarse(part->positions, part->n, part->positions);
        uint32_t *merged = arena_alloc(arena, ((size_t)n + coarse->n) * sizeof *merged);
        if (merged == NULL) {
            return ERR_NOMEM;
        }
        coarse->n = filter_union(coarse->positions, coarse->n, part->positions, n, merged);
        coarse->positions = merged;
    }
    f->parts[0] = *coarse;
    f->n_parts = 1;
    return 0;
}

int filter_cut(struct filter_part *part, uint64_t m)
{
    if (!filter_part_live(part) || m == 0 || m >= part->m) {
        return ERR_INVALID;
    }
    const unsigned shift = part->coarse ? 32 - FILTER_GRAIN : 32;
    for (uint32_t i = 0; i < part->n; i++) {
        part->positions[i] = (uint32_t)((part->positions[i] * m) >> shift);
    }
    part->n = copy_distinct(part->positions, part->n, part->positions);
    part->m = m;
    part->fine = false;
    part->tails = NULL;
    part->n_open = 0;
    return 0;
}

bool filter_part_has(const struct filter_part *part, uint64_t hash)
{
    /* A binary search without a branch on what it finds: half of those would be mispredicted. */
    const uint32_t position = filter_part_position(part, hash);
    const uint32_t *at = part->positions;
    for (uint32_t n = part->n, half; n > 1; n -= half) {
        half = n / 2;
        at += half & -(uint32_t)(at[half - 1] < position);
    }
    return part->n > 0 && *at == position && filter_part_fits(part->tails, (uint32_t)(at - part->positions), hash);
}

bool filter_has(const struct filter *f, uint64_t hash)
{
    for (unsigned i = 0; i < f->n_parts; i++) {
        if (filter_part_has(&f->parts[i], hash)) {
            return true;
        }
    }
    return false;
}

uint64_t filter_items(const struct filter *f)
{
    uint64_t items = 0;
    for (unsigned i = 0; i < f->n_parts; i++) {
        items += (uint64_t)f->parts[i].n + f->parts[i].n_open;
    }
    return items;
}

/* The 32 bits of h, 27 in a coarse part, fall unevenly into an m that isn't far below 2^32: with q = 2^32 / m rounded
 * down, some positions stand for q of their values, the others for q + 1. An item is found where its own bits lie, so
 * the larger ones count twice: they are hit more often, and taken more often. For random items the chance a position is
 * the sum of the squares of their shares, which is ((2q + 1) 2^32 - q (q + 1) m) / 2^64; 1/m where m divides 2^32. */
double filter_chance(uint64_t m, bool coarse)
{
    const uint64_t values = coarse ? FILTER_LIVE_M >> FILTER_GRAIN : FILTER_LIVE_M;
    const double all = (double)values;
    const double q = (double)(values / m);
    return ((2 * q + 1) * all - q * (q + 1) * (double)m) / (all * all);
}

/* Of the 256 values of a tail's bits, 0 counts as 1: two items have the same one with (254 + 2 x 2) / 256^2. */
static double part_error(const struct filter_part *part)
{
    double fitting = part->fine ? part->n_open + (part->n - part->n_open) * (258.0 / 65536) : part->n;
    return fitting * filter_chance(part->m, part->coarse);
}

double filter_error(const struct filter *f)
{
    double error = 0;
    for (unsigned i = 0; i < f->n_parts; i++) {
        error += part_error(&f->parts[i]);
    }
    return error < 1 ? error : 1;
}

bool filter_sealed(const struct filter *f)
{
    for (unsigned i = 0; i < f->n_parts; i++) {
        if (!filter_part_live(&f->parts[i])) {
            return true;
        }
    }
    return false;
}
