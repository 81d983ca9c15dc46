#include "dedup/session_ids.h"

#include <endian.h>
#include <string.h>

#include "base/hash.h"
#include "base/varint.h"
#include "dedup/dedup.h"
#include "filter/filter.h"

enum { HASHES_MARK = 0xff, CHECKSUM_BYTES = 4 };

bool session_number(struct slice text, uint32_t *number)
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
    *number = (uint32_t)value;
    return value <= UINT32_MAX;
}

/* Numbers fill scratch from its beginning, hashes from its end: together they never need more than an entry each. */
int session_ids_read(uint64_t seed, const struct slice *texts, size_t n, uint64_t *scratch, struct session_ids *out,
                     struct err *err)
{
    *out = (struct session_ids){.numbers = (uint32_t *)scratch, .hashes = scratch + n};
    for (size_t i = 0; i < n; i++) {
        int rc = dedup_check_id("id", i + 1, texts[i], err);
        if (rc < 0) {
            return rc;
        }
        if (session_number(texts[i], &out->numbers[out->n_numbers])) {
            out->n_numbers++;
        } else {
            *--out->hashes = hash_id(seed, texts[i]);
            out->n_hashes++;
        }
    }
    return 0;
}

static size_t drop_repeats(uint64_t *hashes, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || hashes[i] != hashes[kept - 1]) {
            hashes[kept++] = hashes[i];
        }
    }
    return kept;
}

void session_ids_sort(struct session_ids *ids)
{
    ids->n_numbers = filter_sort(ids->numbers, (uint32_t)ids->n_numbers, NULL);
    if (ids->n_hashes > 0) {
        hash_sort(ids->hashes, ids->n_hashes);
        ids->n_hashes = drop_repeats(ids->hashes, ids->n_hashes);
    }
}

/* Room for so many of each. */
static int allocate(struct arena *arena, size_t n_numbers, size_t n_hashes, struct session_ids *out)
{
    *out = (struct session_ids){0};
    if (n_hashes > 0 && (out->hashes = arena_alloc(arena, n_hashes * sizeof *out->hashes)) == NULL) {
        return ERR_NOMEM;
    }
    if (n_numbers > 0 && (out->numbers = arena_alloc(arena, n_numbers * sizeof *out->numbers)) == NULL) {
        return ERR_NOMEM;
    }
    return 0;
}

int session_ids_union(const struct session_ids *a, const struct session_ids *b, struct arena *arena,
                      struct session_ids *out)
{
    int rc = allocate(arena, a->n_numbers + b->n_numbers, a->n_hashes + b->n_hashes, out);
    if (rc < 0) {
        return rc;
    }
    out->n_numbers = filter_union(a->numbers, (uint32_t)a->n_numbers, b->numbers, (uint32_t)b->n_numbers, out->numbers);
    for (size_t i = 0, k = 0; i < a->n_hashes || k < b->n_hashes;) {
        bool first = k == b->n_hashes || (i < a->n_hashes && a->hashes[i] <= b->hashes[k]);
        out->hashes[out->n_hashes++] = first ? a->hashes[i++] : b->hashes[k++];
    }
    out->n_hashes = drop_repeats(out->hashes, out->n_hashes);
    return 0;
}

int session_ids_minus(const struct session_ids *a, const struct session_ids *b, struct arena *arena,
                      struct session_ids *out)
{
    int rc = allocate(arena, a->n_numbers, a->n_hashes, out);
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0, k = 0; i < a->n_numbers; i++) {
        while (k < b->n_numbers && b->numbers[k] < a->numbers[i]) {
            k++;
        }
        if (k == b->n_numbers || b->numbers[k] != a->numbers[i]) {
            out->numbers[out->n_numbers++] = a->numbers[i];
        }
    }
    for (size_t i = 0; i < a->n_hashes; i++) {
        if (!hash_is_among(b->hashes, b->n_hashes, a->hashes[i])) {
            out->hashes[out->n_hashes++] = a->hashes[i];
        }
    }
    return 0;
}

static uint32_t checksum(const void *bytes, size_t len)
{
    return htole32((uint32_t)hash_checksum(bytes, len));
}

static int encode_hashes(const struct session_ids *ids, struct buf *out)
{
    size_t start = out->len;
    uint8_t head[1 + VARINT_MAX] = {HASHES_MARK};
    int rc = buf_add(out, head, 1 + varint_put(head + 1, ids->n_hashes));
    for (size_t i = 0; rc == 0 && i < ids->n_hashes; i++) {
        uint64_t hash = htole64(ids->hashes[i]);
        rc = buf_add(out, &hash, sizeof hash);
    }
    if (rc < 0) {
        return rc;
    }
    uint32_t sum = checksum(out->data + start, out->len - start);
    return buf_add(out, &sum, sizeof sum);
}

int session_ids_encode(const struct session_ids *ids, struct buf *out)
{
    int rc = ids->n_hashes > 0 ? encode_hashes(ids, out) : 0;
    if (rc < 0 || ids->n_numbers == 0) {
        return rc;
    }
    struct filter filter = {.n_parts = 1,
                            .parts[0] = {.positions = ids->numbers, .n = (uint32_t)ids->n_numbers, .m = FILTER_LIVE_M}};
    return filter_encode(&filter, out);
}

/* Returns how many bytes of the blob they take, or an error. */
static int64_t decode_hashes(struct slice blob, struct arena *arena, struct session_ids *out, struct err *err)
{
    const uint8_t *at = (const uint8_t *)blob.data, *end = at + blob.len;
    uint64_t n;
    size_t head = varint_get(at + 1, end, &n);
    if (head == 0 || n == 0 || n > SESSION_IDS_MAX || blob.len - 1 - head < n * sizeof *out->hashes + CHECKSUM_BYTES) {
        return err_set(err, ERR_CORRUPT, "hashes of a session: cut off, or more than %d of them", SESSION_IDS_MAX);
    }
    size_t len = 1 + head + n * sizeof *out->hashes;
    uint32_t sum = checksum(at, len);
    if (memcmp(&sum, at + len, CHECKSUM_BYTES) != 0) {
        return err_set(err, ERR_CORRUPT, "hashes of a session: the checksum is wrong");
    }
    if (allocate(arena, 0, n, out) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for a session's ids");
    }
    at += 1 + head;
    for (; out->n_hashes < n; out->n_hashes++, at += sizeof *out->hashes) {
        uint64_t hash;
        memcpy(&hash, at, sizeof hash);
        out->hashes[out->n_hashes] = le64toh(hash);
        if (out->n_hashes > 0 && out->hashes[out->n_hashes] <= out->hashes[out->n_hashes - 1]) {
            return err_set(err, ERR_CORRUPT, "hashes of a session: they don't ascend");
        }
    }
    return (int64_t)len + CHECKSUM_BYTES;
}

int session_ids_decode(struct slice blob, struct arena *arena, struct session_ids *out, struct err *err)
{
    *out = (struct session_ids){0};
    if (blob.len > 0 && (uint8_t)blob.data[0] == HASHES_MARK) {
        int64_t used = decode_hashes(blob, arena, out, err);
        if (used < 0) {
            return (int)used;
        }
        if ((size_t)used == blob.len) {
            return 0;
        }
        blob = slice_of(blob.data + used, blob.len - (size_t)used);
    }
    struct filter filter;
    int rc = filter_decode(blob.data, blob.len, arena, &filter, err);
    if (rc < 0) {
        return rc;
    }
    const struct filter_part *part = &filter.parts[0];
    if (filter.n_parts != 1 || part->m != FILTER_LIVE_M || part->coarse || part->fine ||
        part->n + out->n_hashes > SESSION_IDS_MAX) {
        return err_set(err, ERR_CORRUPT, "it is no set of ids");
    }
    out->numbers = part->positions;
    out->n_numbers = part->n;
    return 0;
}
