/* The blob: a month filter on disk (docs/format.md has the same layout with examples). Here it is read; codec_write.c
 * writes it.
 *
 * Framed (versions 1 to 3):
 *
 *   1 byte    format version in the high three bits (3 if any part is fine, else 2 if any is coarse, else 1), number of
 *             parts in the low five
 *   parts     one behind the other:
 *     1 byte    bit 7: live, m = 2^32, or 2^27 when coarse; bit 6: coarse; bit 5: fine; bits 4..0: k, 0 .. 31
 *     varint    n, 1 .. 2^32 - 1
 *     varint    m - 1, only when not live
 *     n bytes   tails, only when fine
 *     bits      n gaps in Golomb-Rice code, padded with zero bits to a byte
 *   4 bytes   low half of hash_checksum() over everything before, little endian
 *
 * Short, for one coarse part of up to 15 positions; its range follows from n, and k from both (codec_impl.h):
 *
 *   1 byte    bit 7: short; bits 6..4: 0: live, m = 2^27, else m = n x 2^(8 + them); bits 3..0: n, 1 .. 15
 *   bits      n gaps, as above
 *   1 byte    short_check() of everything before
 *
 * The gaps between random positions are noise with an exponential distribution. For that, Rice's code is within 0.1 bit
 * of the optimum, and a general compressor only adds work. The first gap is the first position, each other one the
 * distance to the position before, less one. A gap's low k bits are in a run of n x k bits. Its high bits, that many
 * zeros and a one, are in a unary run after it, which ends with the n-th one. (Bits fill a byte from the least
 * significant one up.) With two runs each can be read a word at a time. The i-th one of the unary run is at bit i +
 * (sum of the high parts so far), so a position needs one count of trailing zeros, one shift and a sum of low parts,
 * without a loop over zeros. k is the best for the data, found by trying: cost over k is convex.
 *
 * Positions ascend by construction. A decoder must refuse a last position that isn't below m, runs that leave the blob,
 * padding that isn't zero, numbers out of range and leftover bytes. The checksum finds damage; the rest guards against
 * crafted bytes, or those of a bug.
 */
#include "base/bits.h"
#include "base/varint.h"
#include "filter/codec_impl.h"

enum { FEW = 32 /* positions, below which low parts aren't read in place */ };

/* What is being decoded, of `len` bytes. end is where the checksum begins, zeros_end where zeros behind it end, if any.
 * Positions go to the arena, or by runs to see(). */
struct source {
    const uint8_t *start, *at, *end, *zeros_end;
    size_t len;
    struct err *err;
    struct arena *arena;
    filter_see *see;
    void *see_arg;
};

static int corrupt(struct source *src, const char *what)
{
    return err_set(src->err, ERR_CORRUPT, "month filter of %zu bytes, at byte %zu: %s", src->len,
                   (size_t)(src->at - src->start), what);
}

static bool get_number(struct source *src, uint64_t *v)
{
    size_t len = varint_get(src->at, src->end, v);
    src->at += len;
    return len > 0;
}

/* Where the reading of a part's two runs of bits stands. */
struct gaps {
    const uint8_t *bits, *lows;
    unsigned k;
    size_t byte, limit; /* of the unary run: where word was read, and where it must have ended */
    bool cut_off;       /* limit is the blob's end, not the range's */
    uint64_t word;      /* ones that are still to be read */
    uint64_t base;      /* of a gap without low bits that ends at the word's bit 0; wraps below zero, and back */
    uint64_t low_at;
    uint64_t position, last_at;           /* the last one that was read, and the bit where its gap ends */
    uint8_t copy[FEW * K_MAX / 8 + WORD]; /* the low parts of a few */
};

/* The runs are at src->at; the caller has seen that n x k + n bits are there. */
static void gaps_begin(const struct source *src, const struct filter_part *part, unsigned k, struct gaps *g)
{
    const size_t size = (size_t)(src->end - src->at);
    const uint64_t unary_at = (uint64_t)part->n * k;
    /* More unary bits than this would lead past m. The bound also keeps the shift below from overflowing. */
    const uint64_t unary_most = unary_at + part->n + ((part->m - 1) >> k);
    g->bits = g->lows = src->at;
    g->k = k;
    g->cut_off = size < unary_most / 8 + 1;
    g->limit = g->cut_off ? size : (size_t)(unary_most / 8 + 1);

    /* The low parts are read in whole words. Those of n = 32 or more end at least as far before the blob's end as a
     * word needs, since n unary bits and the checksum lie behind them; fewer are copied to where there is room, unless
     * there is some here. */
    if (part->n < FEW && src->zeros_end == src->end) {
        memset(g->copy, 0, sizeof g->copy);
        memcpy(g->copy, g->bits, (size_t)(unary_at + 7) / 8);
        g->lows = g->copy;
    }
    g->byte = (size_t)(unary_at / 8);
    g->word = load_guarded(g->bits + g->byte, src->zeros_end) & (UINT64_MAX << (unary_at & 7));
    g->base = (g->byte * 8 - unary_at) << k;
    g->low_at = g->position = g->last_at = 0;
}

/* Reads the next n positions, of those that are left. */
static inline __attribute__((always_inline)) int read_gaps(struct source *src, struct gaps *g, uint32_t *positions,
                                                           uint32_t n)
{
    const uint8_t *bits = g->bits, *lows = g->lows;
    const unsigned k = g->k;
    const uint64_t mask = (UINT64_C(1) << k) - 1, word_step = (uint64_t)(WORD * 8) << k;
    uint64_t word = g->word, base = g->base, low_at = g->low_at;
    size_t byte = g->byte;
    uint32_t i = 0;
    for (;;) {
        while (word != 0) {
            base += load_word(lows + (low_at >> 3)) >> (low_at & 7) & mask;
            low_at += k;
            const unsigned end = (unsigned)__builtin_ctzll(word);
            const uint64_t position = base + ((uint64_t)end << k);
            positions[i] = (uint32_t)position;
            word &= word - 1;
            base -= mask; /* the next gap is one more, and its one a bit further on */
            if (++i == n) {
                g->word = word;
                g->base = base;
                g->low_at = low_at;
                g->byte = byte;
                g->position = position;
                g->last_at = byte * 8 + end;
                return 0;
            }
        }
        byte += WORD;
        base += word_step;
        if (byte >= g->limit) {
            return corrupt(src, g->cut_off ? "the gaps are cut off" : "a position is not below m");
        }
        word = load_guarded(bits + byte, src->zeros_end);
    }
}

BITS_QUICK static int quick_gaps(struct source *src, struct gaps *g, uint32_t *positions, uint32_t n)
{
    return read_gaps(src, g, positions, n);
}

static int gaps_read(struct source *src, struct gaps *g, uint32_t *positions, uint32_t n)
{
    return n > FEW && bits_quick() ? quick_gaps(src, g, positions, n) : read_gaps(src, g, positions, n);
}

/* Behind the last position: whether all of it was right. */
static int gaps_end(struct source *src, const struct filter_part *part, const struct gaps *g)
{
    if (g->position >= part->m) {
        return corrupt(src, "a position is not below m");
    }
    if (g->bits[g->last_at / 8] >> (g->last_at & 7) != 1) {
        return corrupt(src, "the padding behind the gaps is not zero");
    }
    src->at += g->last_at / 8 + 1;
    return 0;
}

static int get_gaps(struct source *src, struct filter_part *part, unsigned k)
{
    struct gaps g;
    gaps_begin(src, part, k, &g);
    if (src->see == NULL) {
        int rc = gaps_read(src, &g, part->positions, part->n);
        return rc == 0 ? gaps_end(src, part, &g) : rc;
    }
    uint32_t run[FILTER_RUN];
    for (uint32_t done = 0; done < part->n;) {
        uint32_t n = part->n - done < FILTER_RUN ? part->n - done : FILTER_RUN;
        int rc = gaps_read(src, &g, run, n);
        if (rc < 0) {
            return rc;
        }
        src->see(src->see_arg, part, done, run, n);
        done += n;
    }
    return gaps_end(src, part, &g);
}

/* They stay where they are while the part is scanned. */
static int get_tails(struct source *src, struct filter_part *part)
{
    part->n_open = 0;
    part->tails = NULL;
    if (!part->fine) {
        return 0;
    }
    for (uint32_t i = 0; i < part->n; i++) {
        part->n_open += src->at[i] == 0;
    }
    part->tails = src->see != NULL ? (uint8_t *)src->at : arena_copy(src->arena, src->at, part->n);
    src->at += part->n;
    return part->tails != NULL ? 0 : err_set(src->err, ERR_NOMEM, "out of memory for %u tails", part->n);
}

/* How many bits the positions and tails take at least. Hashes are noise: a large part's positions can't be written in
 * fewer than log2(m / n) + 1.44 bits each, but with a chance of (2 / e)^n for the 0.44 that is left out here. What
 * claims to do with fewer was made to be many times its bytes in memory. */
static uint64_t least_bits(const struct filter_part *part, unsigned k)
{
    uint64_t each = k + 1;
    if (part->n > FILTER_ANY_N) {
        uint64_t noise = 64 - (uint64_t)__builtin_clzll(part->m / part->n | 1);
        each = each > noise ? each : noise;
    }
    return part->n * (each + (part->fine ? 8 : 0));
}

/* Its n, m, and whether it is coarse or fine, are known. (Small blobs are read a tenth faster with this inline.) */
static inline __attribute__((always_inline)) int get_positions(struct source *src, struct filter_part *part, unsigned k)
{
    const uint8_t *begin = src->at;
    const uint64_t least = least_bits(part, k);
    part->positions = NULL;
    if (filter_part_dense(part) || least > (uint64_t)(src->end - begin) * 8) {
        return corrupt(src, "more positions than the bytes can hold");
    }
    if (src->see == NULL) {
        part->positions = arena_alloc(src->arena, (size_t)part->n * sizeof *part->positions);
        if (part->positions == NULL) {
            return err_set(src->err, ERR_NOMEM, "out of memory for a month filter of %u positions", part->n);
        }
    }
    int rc = get_tails(src, part);
    rc = rc == 0 ? get_gaps(src, part, k) : rc;
    if (src->see != NULL) {
        part->tails = NULL;
    }
    /* It may have counted on the bytes of those behind it. */
    return rc == 0 && least > (uint64_t)(src->at - begin) * 8 ? corrupt(src, "more positions than noise allows") : rc;
}

static int get_part(struct source *src, unsigned version, struct filter_part *part)
{
    if (src->at == src->end) {
        return corrupt(src, "a part is missing");
    }
    uint8_t head = *src->at;
    const unsigned flags =
        LIVE_FLAG | (version >= BLOB_VERSION_COARSE ? COARSE_FLAG : 0) | (version >= BLOB_VERSION_FINE ? FINE_FLAG : 0);
    const unsigned finest = head & (LIVE_FLAG | COARSE_FLAG | FINE_FLAG);
    if ((head & ~(flags | K_MASK)) != 0 || ((head & FINE_FLAG) != 0 && finest != (LIVE_FLAG | FINE_FLAG))) {
        return corrupt(src, "unknown flags of a part");
    }
    src->at++;

    part->coarse = (head & COARSE_FLAG) != 0;
    part->fine = (head & FINE_FLAG) != 0;
    uint64_t n, m_less_1 = range_of(part->coarse) - 1;
    if (!get_number(src, &n) || n == 0 || n > UINT32_MAX) {
        return corrupt(src, "the number of positions is not in 1 .. 2^32 - 1");
    }
    if ((head & LIVE_FLAG) == 0 && (!get_number(src, &m_less_1) || m_less_1 >= range_of(part->coarse) - 1)) {
        return corrupt(src, part->coarse ? "the range of a coarse sealed part is not in 1 .. 2^27 - 1"
                                         : "the range of a sealed part is not in 1 .. 2^32 - 1");
    }
    unsigned k = head & K_MASK;
    part->n = (uint32_t)n;
    part->m = m_less_1 + 1;
    return get_positions(src, part, k);
}
/* Not inline, for its array. */
static __attribute__((noinline)) int get_short(struct source *src, struct filter_part *part)
{
    uint8_t padded[SHORT_MOST + WORD] = {0}; /* without the check; so that whole words can be read */
    if (src->len > SHORT_MOST) {
        return err_set(src->err, ERR_CORRUPT, "month filter of %zu bytes in the short form: at most %d are expected",
                       src->len, SHORT_MOST);
    }
    const uint8_t stored = *src->end;
    memcpy(padded, src->start, src->len - SHORT_CHECK_BYTES);
    src->start = src->at = padded;
    src->end = padded + src->len - SHORT_CHECK_BYTES;
    src->zeros_end = padded + sizeof padded;
    const uint8_t head = *src->at, computed = short_check(padded, src->len - SHORT_CHECK_BYTES);
    if (stored != computed) {
        return err_set(src->err, ERR_CORRUPT, "month filter of %zu bytes: its check is %02x, the bytes give %02x",
                       src->len, stored, computed);
    }
    if (short_n(head) == 0) {
        return corrupt(src, "the number of positions is not in 1 .. 15");
    }
    src->at++;
    part->coarse = true;
    part->fine = false;
    part->n = short_n(head);
    part->m = short_m(head);
    int rc = get_positions(src, part, short_k(head));
    return rc == 0 && src->at != src->end ? corrupt(src, "bytes left over behind the gaps") : rc;
}

static int get_framed(struct source *src, struct filter *out)
{
    struct err *err = src->err;
    unsigned version = *src->at >> VERSION_SHIFT, n_parts = *src->at & PARTS_MASK;
    if (version < BLOB_VERSION || version > BLOB_VERSION_FINE) {
        return err_set(err, ERR_CORRUPT, "month filter of format version %u: this program reads versions %d to %d",
                       version, BLOB_VERSION, BLOB_VERSION_FINE);
    }
    uint32_t stored;
    memcpy(&stored, src->end, sizeof stored);
    stored = le32toh(stored);
    uint32_t computed = checksum(src->start, src->len - CHECKSUM_BYTES);
    if (stored != computed) {
        return err_set(err, ERR_CORRUPT, "month filter of %zu bytes: its checksum is %08x, the bytes give %08x",
                       src->len, stored, computed);
    }
    if (n_parts > FILTER_PARTS_MAX) {
        return corrupt(src, "more than 16 parts");
    }
    src->at++;
    for (unsigned i = 0; i < n_parts; i++) {
        int rc = get_part(src, version, &out->parts[i]);
        if (rc != 0) {
            return rc;
        }
    }
    if (src->at != src->end) {
        return corrupt(src, "bytes left over behind the last part");
    }
    out->n_parts = n_parts;
    return 0;
}

static int get_parts(const void *blob, size_t len, struct source src, struct filter *out)
{
    const bool is_short = len > 0 && (*(const uint8_t *)blob & SHORT_FLAG) != 0;
    const size_t least = is_short ? SHORT_LEAST : 1 + CHECKSUM_BYTES;
    out->n_parts = 0;
    if (len < least) {
        return err_set(src.err, ERR_CORRUPT, "month filter of %zu bytes: at least %zu are expected", len, least);
    }
    src.start = src.at = blob;
    src.len = len;
    src.end = src.zeros_end = src.start + len - (is_short ? SHORT_CHECK_BYTES : CHECKSUM_BYTES);
    if (!is_short) {
        return get_framed(&src, out);
    }
    int rc = get_short(&src, &out->parts[0]);
    out->n_parts = rc == 0;
    return rc;
}

int filter_decode(const void *blob, size_t len, struct arena *arena, struct filter *out, struct err *err)
{
    return get_parts(blob, len, (struct source){.err = err, .arena = arena}, out);
}

int filter_scan(const void *blob, size_t len, filter_see *see, void *arg, struct filter *out, struct err *err)
{
    return get_parts(blob, len, (struct source){.err = err, .see = see, .see_arg = arg}, out);
}

static void see_nothing(void *arg, const struct filter_part *part, uint32_t before, const uint32_t *positions,
                        uint32_t n)
{
    (void)arg, (void)part, (void)before, (void)positions, (void)n;
}

int filter_weigh(const void *blob, size_t len, struct filter *out, struct err *err)
{
    return filter_scan(blob, len, see_nothing, NULL, out, err);
}
