#include "filter/compare.h"

struct range {
    uint64_t from, to; /* top 32 bits of a hash */
};

/* The smallest that is not below the quotient. */
static uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* p = (h * m) >> 32, of an h without its lowest bits in a coarse part. */
static struct range range_of(const struct filter_part *part, uint32_t p)
{
    struct range r = {ceil_div((uint64_t)p << 32, part->m), ceil_div(((uint64_t)p + 1) << 32, part->m) - 1};
    uint64_t grain = part->coarse ? (UINT64_C(1) << FILTER_GRAIN) - 1 : 0;
    r.from &= ~grain;
    r.to = (r.to | grain) & UINT32_MAX;
    return r;
}

/* Whether some position of the part stands for anything in the range. */
static bool meets(const struct filter_part *part, const struct range *r)
{
    uint64_t mask = filter_part_mask(part) >> 32;
    uint32_t first = (uint32_t)(((r->from & mask) * part->m) >> 32),
             last = (uint32_t)(((r->to & mask) * part->m) >> 32);
    uint32_t low = 0, high = part->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (part->positions[middle] < first) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < part->n && part->positions[low] <= last;
}

static bool is_excepted(const struct range *r, const uint64_t *except, size_t n)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (except[middle] >> 32 < r->from) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < n && except[low] >> 32 <= r->to;
}

static bool is_matched(const struct filter *b, const struct range *r)
{
    bool met = false;
    for (unsigned j = 0; j < b->n_parts && !met; j++) {
        met = meets(&b->parts[j], r);
    }
    return met;
}

uint32_t filter_unmatched(const struct filter *a, const struct filter *b, size_t n_b, const uint64_t *except,
                          size_t n_except)
{
    uint32_t unmatched = 0;
    for (unsigned k = 0; k < a->n_parts; k++) {
        for (uint32_t i = 0; i < a->parts[k].n; i++) {
            struct range r = range_of(&a->parts[k], a->parts[k].positions[i]);
            bool met = false;
            for (size_t j = 0; j < n_b && !met; j++) {
                met = is_matched(&b[j], &r);
            }
            unmatched += !met && !is_excepted(&r, except, n_except);
        }
    }
    return unmatched;
}
