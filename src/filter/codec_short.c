/* The short form of a blob: for which parts there is one, and its check. */
#include "filter/codec_impl.h"

/* What bits 6..4 of the head say of a range; -1: nothing. */
static int range_code(uint32_t n, uint64_t m)
{
    if (m == range_of(true)) {
        return 0;
    }
    for (int code = 1; code <= SHORT_RANGE_MASK; code++) {
        if (m == (uint64_t)n << (SHORT_RANGE_BASE + code)) {
            return code;
        }
    }
    return -1;
}

uint8_t short_head(const struct filter_part *part)
{
    if (!part->coarse || part->n == 0 || part->n > FILTER_FEW) {
        return 0;
    }
    const int code = range_code(part->n, part->m);
    return code < 0 ? 0 : (uint8_t)(SHORT_FLAG | code << SHORT_RANGE_SHIFT | (int)part->n);
}

uint64_t filter_short_range(uint32_t n, uint64_t m)
{
    if (n == 0 || n > FILTER_FEW || m == 0) {
        return m;
    }
    for (int code = 1; code <= SHORT_RANGE_MASK; code++) {
        const uint64_t range = (uint64_t)n << (SHORT_RANGE_BASE + code);
        if (range >= m) {
            return range;
        }
    }
    return m;
}

/* x^8 is x^2 + x + 1 here. Squared, that is x^16 = x^4 + x^2 + 1, then x^32 = x^8 + x^4 + 1 and x^64 = x^16 + x^8 + 1:
 * what stands from x^at on goes three times to places below. */
static inline uint64_t fold(uint64_t v, unsigned at)
{
    const uint64_t high = v >> at;
    return (v & ((UINT64_C(1) << at) - 1)) ^ high ^ high << (at / 8) ^ high << (at / 4);
}

uint8_t short_check(const uint8_t *bytes, size_t len)
{
    size_t at = (len - 1) / WORD * WORD;
    uint64_t v = load_word(bytes + at);
    while (at > 0) {
        at -= WORD;
        v = fold(v, 32); /* below x^40, so that x^64 times it has room */
        v = load_word(bytes + at) ^ v ^ v << 8 ^ v << 16;
    }
    v = fold(fold(fold(v, 32), 16), 16); /* below x^16 */
    return (uint8_t)fold(fold(fold(v << 8, 16), 8), 8);
}
