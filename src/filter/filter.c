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

static struct filter_part *find_live(struct filter *f, bool coarse)
{
    for (unsigned i = 0; i < f->n_parts; i++) {
        if (f->parts[i].coarse == coarse && filter_part_live(&f->parts[i])) {
            return &f->parts[i];
        }
    }
    return NULL;
}

/* Takes out what the part holds. Returns how many are left, in place. */
static uint32_t drop_held(const struct filter_part *part, uint32_t *positions, uint32_t n)
{
    uint32_t kept = 0, at = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t here = filter_part_position(part, (uint64_t)positions[i] << 32);
        while (at < part->n && part->positions[at] < here) {
            at++;
        }
        if (at == part->n || part->positions[at] != here) {
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
    return 0;
}

int filter_add(struct filter *f, uint32_t *positions, uint32_t n, uint32_t coarse_max, struct arena *arena)
{
    struct filter_part *coarse = find_live(f, true), *fine = find_live(f, false);
    bool sealed = filter_sealed(f);
    for (unsigned i = 0; i < f->n_parts; i++) {
        /* The union with the part that they go to leaves out the rest. */
        if (f->n_parts > 1 || sealed) {
            n = drop_held(&f->parts[i], positions, n);
        }
    }
    if (n == 0) {
        return 0;
    }
    bool to_coarse = !sealed && (coarse != NULL ? coarse->n <= coarse_max && n <= coarse_max - coarse->n
                                                : f->n_parts == 0 && n <= coarse_max);
    if (!to_coarse) {
        if (coarse != NULL && f->n_parts == 1) {
            n = drop_held(coarse, positions, n);
        }
        return n == 0 ? 0 : add_to(f, fine, FILTER_LIVE_M, false, positions, n, arena);
    }
    n = make_coarse(positions, n, positions);
    return add_to(f, coarse, FILTER_LIVE_M >> FILTER_GRAIN, true, positions, n, arena);
}

/* A part that was cut, or is coarse: into the one of the same range, where the same item has the same position, or
 * beside all others. */
static int join_part(struct filter *f, const struct filter_part *from, uint32_t *positions, struct arena *arena)
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
    for (int fine = 0; fine <= 1; fine++) {
        for (unsigned i = 0; i < other->n_parts; i++) {
            const struct filter_part *part = &other->parts[i];
            if ((part->m == FILTER_LIVE_M) != (fine != 0)) {
                continue;
            }
            uint32_t *copy = arena_copy(arena, part->positions, part->n * sizeof *copy);
            if (copy == NULL) {
                return ERR_NOMEM;
            }
            int result = fine != 0 ? filter_add(f, copy, part->n, coarse_max, arena) : join_part(f, part, copy, arena);
            if (result < 0) {
                return result;
            }
        }
    }
    return 0;
}

int filter_unite(struct filter *f, struct arena *arena)
{
    struct filter_part *coarse = find_live(f, true);
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
    return 0;
}

static bool part_has(const struct filter_part *part, uint32_t position)
{
    uint32_t from = 0, to = part->n;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (part->positions[middle] < position) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from < part->n && part->positions[from] == position;
}

bool filter_has(const struct filter *f, uint64_t hash)
{
    for (unsigned i = 0; i < f->n_parts; i++) {
        if (part_has(&f->parts[i], filter_part_position(&f->parts[i], hash))) {
            return true;
        }
    }
    return false;
}

uint64_t filter_items(const struct filter *f)
{
    uint64_t items = 0;
    for (unsigned i = 0; i < f->n_parts; i++) {
        items += f->parts[i].n;
    }
    return items;
}

/* The 27 bits of a coarse part fall unevenly into an m that isn't far below 2^27: with q = 2^27 / m rounded down, some
 * positions stand for q of them, the others for q + 1. An item is found where its own 27 bits lie, so the larger ones
 * count twice: they are hit more often, and taken more often. For random items the chance a position is the sum of the
 * squares of their shares, which is ((2q + 1) 2^27 - q (q + 1) m) / 2^54; 1/m where m divides 2^27. */
double filter_chance(uint64_t m, bool coarse)
{
    if (!coarse) {
        return 1 / (double)m;
    }
    const double all = (double)(FILTER_LIVE_M >> FILTER_GRAIN);
    const double q = (double)((FILTER_LIVE_M >> FILTER_GRAIN) / m);
    return ((2 * q + 1) * all - q * (q + 1) * (double)m) / (all * all);
}

double filter_error(const struct filter *f)
{
    double error = 0;
    for (unsigned i = 0; i < f->n_parts; i++) {
        error += f->parts[i].n * filter_chance(f->parts[i].m, f->parts[i].coarse);
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
