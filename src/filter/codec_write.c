/* Writing a blob. See codec.c for the layout. */
#include "base/varint.h"
#include "filter/codec_impl.h"

enum { PART_HEADER_MAX = 1 + 5 + 5 };

/* Bits of the unary run: one a gap, and the gap's high part. */
static uint64_t unary_bits(const struct filter_part *part, unsigned k)
{
    uint64_t bits = part->n + (uint64_t)(part->positions[0] >> k);
    for (uint32_t i = 1; i < part->n; i++) {
        bits += (part->positions[i] - part->positions[i - 1] - 1) >> k;
    }
    return bits;
}

static uint64_t code_bits(const struct filter_part *part, unsigned k)
{
    return (uint64_t)part->n * k + unary_bits(part, k);
}

/* The k with the shortest code. Each step up saves half of the high parts and costs n bits, so the cost has one
 * valley; the mean gap tells where it is, give or take one. */
static unsigned best_k(const struct filter_part *part, uint64_t *bits)
{
    uint64_t mean = part->positions[part->n - 1] / part->n;
    unsigned k = mean == 0 ? 0 : (unsigned)(31 - __builtin_clz((unsigned)mean));
    uint64_t best = code_bits(part, k), other;
    while (k < K_MAX && (other = code_bits(part, k + 1)) < best) {
        best = other;
        k++;
    }
    while (k > 0 && (other = code_bits(part, k - 1)) < best) {
        best = other;
        k--;
    }
    *bits = best;
    return k;
}

static bool part_valid(const struct filter_part *part)
{
    if (part->m == 0 || part->m > range_of(part->coarse) || part->positions[part->n - 1] >= part->m) {
        return false;
    }
    if (part->fine && (part->m != FILTER_LIVE_M || part->tails == NULL)) {
        return false;
    }
    bool ascending = true;
    for (uint32_t i = 1; i < part->n; i++) {
        ascending &= part->positions[i - 1] < part->positions[i];
    }
    return ascending;
}

/* Writes both runs to zeroed bytes; up to a word behind them is written with zeros. */
static void put_gaps(uint8_t *out, const struct filter_part *part, unsigned k)
{
    const uint32_t mask = (UINT32_C(1) << k) - 1;
    uint8_t *low_at = out;
    uint64_t low = 0;
    unsigned filled = 0;
    uint32_t next = 0; /* the position at which the gap begins */
    for (uint32_t i = 0; i < part->n; i++) {
        uint64_t bits = (part->positions[i] - next) & mask;
        next = part->positions[i] + 1;
        low |= bits << filled;
        filled += k;
        if (filled >= 64) {
            store_word(low_at, low);
            low_at += WORD;
            filled -= 64;
            low = bits >> (k - filled);
        }
    }
    store_word(low_at, low);

    uint64_t one_at = (uint64_t)part->n * k;
    next = 0;
    for (uint32_t i = 0; i < part->n; i++) {
        one_at += (part->positions[i] - next) >> k;
        next = part->positions[i] + 1;
        out[one_at >> 3] |= (uint8_t)(1U << (one_at & 7));
        one_at++;
    }
}

static int encode_short(const struct filter_part *part, uint8_t head, struct buf *out)
{
    const unsigned k = short_k(head);
    const size_t bytes = (size_t)((code_bits(part, k) + 7) / 8);
    if (buf_reserve(out, 1 + bytes + WORD + SHORT_CHECK_BYTES) != 0) {
        return ERR_NOMEM;
    }
    uint8_t *start = (uint8_t *)out->data + out->len;
    memset(start, 0, 1 + bytes + WORD);
    start[0] = head;
    put_gaps(start + 1, part, k);
    start[1 + bytes] = short_check(start, 1 + bytes);
    out->len += 1 + bytes + SHORT_CHECK_BYTES;
    return 0;
}

int filter_encode(const struct filter *f, struct buf *out)
{
    unsigned k[FILTER_PARTS_MAX] = {0};
    size_t bytes[FILTER_PARTS_MAX] = {0};
    size_t most = 1 + CHECKSUM_BYTES + WORD;
    unsigned n_parts = 0, last = 0;
    bool coarse = false, fine = false;

    if (f->n_parts > FILTER_PARTS_MAX) {
        return ERR_INVALID;
    }
    for (unsigned i = 0; i < f->n_parts; i++) {
        if (f->parts[i].n == 0) {
            continue;
        }
        if (!part_valid(&f->parts[i])) {
            return ERR_INVALID;
        }
        coarse = coarse || f->parts[i].coarse;
        fine = fine || f->parts[i].fine;
        n_parts++;
        last = i;
    }
    const uint8_t head = n_parts == 1 ? short_head(&f->parts[last]) : 0;
    if (head != 0) {
        return encode_short(&f->parts[last], head, out);
    }
    for (unsigned i = 0; i < f->n_parts; i++) {
        if (f->parts[i].n > 0) {
            uint64_t bits;
            k[i] = best_k(&f->parts[i], &bits);
            bytes[i] = (size_t)((bits + 7) / 8);
            most += PART_HEADER_MAX + bytes[i] + (f->parts[i].fine ? f->parts[i].n : 0);
        }
    }
    if (buf_reserve(out, most) != 0) {
        return ERR_NOMEM;
    }

    uint8_t *start = (uint8_t *)out->data + out->len, *at = start;
    memset(start, 0, most);
    unsigned version = fine ? BLOB_VERSION_FINE : coarse ? BLOB_VERSION_COARSE : BLOB_VERSION;
    *at++ = (uint8_t)(version << VERSION_SHIFT | n_parts);
    for (unsigned i = 0; i < f->n_parts; i++) {
        const struct filter_part *part = &f->parts[i];
        if (part->n == 0) {
            continue;
        }
        unsigned live = filter_part_live(part) ? LIVE_FLAG : 0;
        *at++ = (uint8_t)(live | (part->coarse ? COARSE_FLAG : 0) | (part->fine ? FINE_FLAG : 0) | k[i]);
        at += varint_put(at, part->n);
        if (!filter_part_live(part)) {
            at += varint_put(at, part->m - 1);
        }
        if (part->fine) {
            memcpy(at, part->tails, part->n);
            at += part->n;
        }
        put_gaps(at, part, k[i]);
        at += bytes[i];
    }
    uint32_t sum = htole32(checksum(start, (size_t)(at - start)));
    memcpy(at, &sum, CHECKSUM_BYTES);
    out->len += (size_t)(at - start) + CHECKSUM_BYTES;
    return 0;
}
