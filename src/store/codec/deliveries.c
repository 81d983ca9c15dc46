/* A user's last deliveries as a blob: the column `items` of the table `delivered`. Version 1.
 *
 *   1     format version in the high three bits (1); bit 0: the payload is compressed; the other bits are zero
 *   1..4  only when compressed: length of the payload before compression (varint)
 *   any   payload, as it is or as one zstd frame, up to the checksum
 *   4     checksum: low half of the unseeded XXH3 64 of all bytes before it, little endian
 *
 * The payload: n (varint, at most DELIVERED_MAX); n ids, newest first: the first as it is, each other as its distance
 * from the one before (varints); then n items, each a length byte (1 to 255) and its bytes. Nothing follows.
 *
 * Consecutive ids differ by little and items of one service look alike, so they compress well. Compression is used only
 * where it makes the blob smaller. Hashes aren't stored: they are recomputed with the folder's seed.
 */
#include "store/codec/deliveries.h"

#include <stddef.h>
#include <string.h>

#include <zstd.h>

#include "base/hash.h"
#include "base/varint.h"

enum {
    VERSION_1 = 1 << 5,
    COMPRESSED = 1,
    CHECKSUM = 4,
    LEVEL = 3,
    ITEM_MAX = 255,
    /* The largest payload that a list can have; what a blob claims is held against it before any allocation. */
    PAYLOAD_MAX = VARINT_MAX + DELIVERED_MAX * (VARINT_MAX + 1 + ITEM_MAX),
    /* Ids that are remembered by delivered_last(), at a load of at most a half. */
    CELLS_MAX = 32768,
};

_Static_assert(CELLS_MAX >= 2 * DELIVERED_MAX, "the table of kept items is at most half full");
_Static_assert(DELIVERED_MAX < UINT16_MAX, "a cell holds the number of a kept item");

/* --- the last-100 rule ---
 * What comes newest first, as it nearly always does, is only read. Otherwise a heap with the newest on top gives them
 * up in order; each that isn't kept yet is kept at the end of the array, from behind, where the heap has just shrunk;
 * so nothing needs memory, and the rest is never sorted. */

static bool older(const struct store_delivery *a, const struct store_delivery *b)
{
    return a->id != b->id ? a->id < b->id : a->hash < b->hash;
}

/* What is kept: from `first` on, upwards or, of a heap, downwards. */
struct kept {
    struct store_delivery *first;
    ptrdiff_t step;
    size_t n, most;
    size_t mask;
    uint16_t cells[CELLS_MAX]; /* an open-addressing table by hash: 1 + the number of a kept one */
};

static void kept_begin(struct kept *k, struct store_delivery *first, ptrdiff_t step, size_t most)
{
    k->first = first;
    k->step = step;
    k->n = 0;
    k->most = most < DELIVERED_MAX ? most : DELIVERED_MAX;
    k->mask = 1;
    while (k->mask + 1 < 2 * k->most) {
        k->mask = 2 * k->mask + 1;
    }
    memset(k->cells, 0, (k->mask + 1) * sizeof(k->cells[0]));
}

/* Keeps the next newest, unless a newer one of its item is. */
static inline void keep(struct kept *k, const struct store_delivery *d)
{
    size_t at = (size_t)d->hash & k->mask;
    for (; k->cells[at] != 0; at = (at + 1) & k->mask) {
        const struct store_delivery *kept = k->first + k->step * (k->cells[at] - 1);
        if (kept->hash == d->hash && slice_eq(kept->item, d->item)) {
            return;
        }
    }
    struct store_delivery *to = k->first + k->step * (ptrdiff_t)k->n;
    if (to != d) {
        *to = *d;
    }
    k->cells[at] = (uint16_t)++k->n;
}

static bool comes_newest_first(const struct store_delivery *list, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        if (older(&list[i - 1], &list[i])) {
            return false;
        }
    }
    return true;
}

/* Puts d where it belongs, from place i of a heap of n downwards. */
static void sift(struct store_delivery *heap, size_t n, size_t i, struct store_delivery d)
{
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && older(&heap[child], &heap[child + 1])) {
            child++;
        }
        if (!older(&d, &heap[child])) {
            break;
        }
        heap[i] = heap[child];
    }
    heap[i] = d;
}

/* Into the end of the list. */
static void keep_by_heap(struct kept *k, struct store_delivery *list, size_t n)
{
    for (size_t i = n / 2; i-- > 0;) {
        sift(list, n, i, list[i]);
    }
    while (n > 0 && k->n < k->most) {
        struct store_delivery newest = list[0];
        n--;
        if (n > 0) {
            sift(list, n, 0, list[n]);
        }
        keep(k, &newest);
    }
}

size_t delivered_last(struct store_delivery *list, size_t n, size_t max)
{
    struct kept k;
    size_t most = max < n ? max : n;
    if (comes_newest_first(list, n)) {
        kept_begin(&k, list, 1, most);
        for (size_t i = 0; i < n && k.n < k.most; i++) {
            keep(&k, &list[i]);
        }
        return k.n;
    }
    kept_begin(&k, list + n - 1, -1, most);
    keep_by_heap(&k, list, n);
    for (size_t i = 0, j = n; i + 1 < j; i++) {
        j--;
        struct store_delivery swap = list[i];
        list[i] = list[j];
        list[j] = swap;
    }
    return k.n;
}

/* The k-th newest distinct id of the list, or one below all of them. */
struct ranks {
    const struct store_delivery *list;
    size_t n, at;
    uint64_t id; /* of the rank at hand */
};

static void next_rank(struct ranks *r)
{
    while (r->at < r->n && r->list[r->at].id == r->id) {
        r->at++;
    }
    if (r->at < r->n) {
        r->id = r->list[r->at].id;
    } else if (r->id > 0) {
        r->id--;
    }
}

void delivered_rank(const struct store_delivery *ours, size_t n_ours, const struct store_delivery *theirs,
                    size_t n_theirs, struct store_delivery *all)
{
    struct ranks ranks = {ours, n_ours, 0, n_ours > 0 ? ours[0].id : n_theirs};
    if (n_ours > 0) {
        memcpy(all, ours, n_ours * sizeof *all);
    }
    for (size_t i = 0; i < n_theirs; i++) {
        if (i > 0 && theirs[i].id != theirs[i - 1].id) {
            next_rank(&ranks);
        }
        all[n_ours + i] = theirs[i];
        all[n_ours + i].id = ranks.id;
    }
}

/* --- encoding --- */

void delivered_codec_free(struct delivered_codec *codec)
{
    ZSTD_freeCCtx(codec->compress);
    ZSTD_freeDCtx(codec->decompress);
    buf_free(&codec->scratch);
    *codec = (struct delivered_codec){0};
}

static uint32_t checksum_of(const void *bytes, size_t len)
{
    return (uint32_t)hash_checksum(bytes, len);
}

/* Writes the list's payload into the scratch. */
static int put_payload(struct buf *scratch, const struct store_delivery *list, size_t n)
{
    if (n > DELIVERED_MAX) {
        return ERR_INVALID;
    }
    size_t most = VARINT_MAX;
    for (size_t i = 0; i < n; i++) {
        if (list[i].item.len < 1 || list[i].item.len > ITEM_MAX || (i > 0 && list[i].id > list[i - 1].id)) {
            return ERR_INVALID;
        }
        most += VARINT_MAX + 1 + list[i].item.len;
    }
    buf_clear(scratch);
    int rc = buf_reserve(scratch, most);
    if (rc != 0) {
        return rc;
    }
    uint8_t *out = (uint8_t *)scratch->data;
    out += varint_put(out, n);
    for (size_t i = 0; i < n; i++) {
        out += varint_put(out, i > 0 ? list[i - 1].id - list[i].id : list[i].id);
    }
    for (size_t i = 0; i < n; i++) {
        *out++ = (uint8_t)list[i].item.len;
        memcpy(out, list[i].item.data, list[i].item.len);
        out += list[i].item.len;
    }
    scratch->len = (size_t)(out - (uint8_t *)scratch->data);
    return 0;
}

/* Compresses the scratch to `to`. Returns its length, or 0 when there was no memory for it. */
static size_t compress(struct delivered_codec *codec, uint8_t *to, size_t room)
{
    if (codec->compress == NULL) {
        codec->compress = ZSTD_createCCtx();
        if (codec->compress == NULL) {
            return 0;
        }
        /* The payload's length is in the blob already. */
        ZSTD_CCtx_setParameter(codec->compress, ZSTD_c_contentSizeFlag, 0);
        ZSTD_CCtx_setParameter(codec->compress, ZSTD_c_compressionLevel, LEVEL);
    }
    size_t len = ZSTD_compress2(codec->compress, to, room, codec->scratch.data, codec->scratch.len);
    return ZSTD_isError(len) ? 0 : len;
}

int delivered_encode(struct delivered_codec *codec, const struct store_delivery *list, size_t n, struct buf *out)
{
    int rc = put_payload(&codec->scratch, list, n);
    if (rc != 0) {
        return rc;
    }
    size_t payload = codec->scratch.len;
    size_t bound = ZSTD_compressBound(payload);
    rc = buf_reserve(out, 1 + VARINT_MAX + bound + CHECKSUM);
    if (rc != 0) {
        return rc;
    }
    uint8_t *blob = (uint8_t *)out->data + out->len;
    blob[0] = VERSION_1 | COMPRESSED;
    size_t at = 1 + varint_put(blob + 1, payload);
    size_t compressed = compress(codec, blob + at, bound);
    if (compressed == 0) {
        return ERR_NOMEM;
    }
    if (at + compressed < 1 + payload) {
        at += compressed;
    } else {
        blob[0] = VERSION_1;
        memcpy(blob + 1, codec->scratch.data, payload);
        at = 1 + payload;
    }
    uint32_t sum = checksum_of(blob, at);
    for (int i = 0; i < CHECKSUM; i++) {
        blob[at++] = (uint8_t)(sum >> (8 * i));
    }
    out->len += at;
    return 0;
}

/* --- decoding --- */

/* Finds the payload; a compressed one is decompressed into the arena, another one copied there. */
static int get_payload(struct delivered_codec *codec, const uint8_t *blob, size_t len, struct arena *arena,
                       const uint8_t **payload, size_t *payload_len, struct err *err)
{
    if (len < 1 + 1 + CHECKSUM) {
        return err_set(err, ERR_CORRUPT, "deliveries of %zu bytes, fewer than any can have", len);
    }
    len -= CHECKSUM;
    uint32_t sum = 0;
    for (int i = 0; i < CHECKSUM; i++) {
        sum |= (uint32_t)blob[len + (size_t)i] << (8 * i);
    }
    if (sum != checksum_of(blob, len)) {
        return err_set(err, ERR_CORRUPT, "deliveries have a wrong checksum");
    }
    if ((blob[0] & ~COMPRESSED) != VERSION_1) {
        return err_set(err, ERR_CORRUPT, "deliveries begin with byte 0x%02x, which isn't version 1", blob[0]);
    }
    const uint8_t *from = blob + 1;
    size_t from_len = len - 1;
    uint64_t size = from_len;
    if ((blob[0] & COMPRESSED) != 0) {
        size_t used = varint_get(from, blob + len, &size);
        if (used == 0) {
            return err_set(err, ERR_CORRUPT, "deliveries have a broken length at byte 1");
        }
        from += used;
        from_len -= used;
    }
    if (size < 1 || size > PAYLOAD_MAX) {
        return err_set(err, ERR_CORRUPT, "deliveries of %llu bytes, expected 1 to %d", (unsigned long long)size,
                       PAYLOAD_MAX);
    }
    uint8_t *to = arena_alloc(arena, (size_t)size);
    if (to == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %llu bytes of deliveries", (unsigned long long)size);
    }
    if ((blob[0] & COMPRESSED) == 0) {
        memcpy(to, from, from_len);
    } else {
        if (codec->decompress == NULL && (codec->decompress = ZSTD_createDCtx()) == NULL) {
            return err_set(err, ERR_NOMEM, "no memory to decompress deliveries");
        }
        /* One frame and nothing behind it, which decompresses to exactly what was claimed. */
        if (ZSTD_findFrameCompressedSize(from, from_len) != from_len ||
            ZSTD_decompressDCtx(codec->decompress, to, (size_t)size, from, from_len) != size) {
            return err_set(err, ERR_CORRUPT, "deliveries don't decompress to %llu bytes", (unsigned long long)size);
        }
    }
    *payload = to;
    *payload_len = (size_t)size;
    return 0;
}

static int get_ids(const uint8_t **at, const uint8_t *end, struct store_delivery *list, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t v = 0;
        size_t used = varint_get(*at, end, &v);
        if (used == 0 || (i > 0 && v > list[i - 1].id)) {
            return err_set(err, ERR_CORRUPT, "delivery %zu of %zu has a broken id", i + 1, n);
        }
        list[i].id = i > 0 ? list[i - 1].id - v : v;
        *at += used;
    }
    return 0;
}

static int get_items(const uint8_t *at, const uint8_t *end, uint64_t seed, struct store_delivery *list, size_t n,
                     struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        size_t len = at < end ? *at++ : 0;
        if (len < 1 || len > (size_t)(end - at)) {
            return err_set(err, ERR_CORRUPT, "delivery %zu of %zu is cut off or empty", i + 1, n);
        }
        list[i].item = slice_of((const char *)at, len);
        list[i].hash = hash_id(seed, list[i].item);
        at += len;
    }
    if (at != end) {
        return err_set(err, ERR_CORRUPT, "%zu bytes behind the last of %zu deliveries", (size_t)(end - at), n);
    }
    return 0;
}

int delivered_decode(struct delivered_codec *codec, const void *blob, size_t len, uint64_t seed, struct arena *arena,
                     struct store_delivery **list, size_t *n, struct err *err)
{
    const uint8_t *at = NULL;
    size_t payload_len = 0;
    uint64_t count = 0;
    *list = NULL;
    *n = 0;
    int rc = get_payload(codec, blob, len, arena, &at, &payload_len, err);
    if (rc != 0) {
        return rc;
    }
    const uint8_t *end = at + payload_len;
    size_t used = varint_get(at, end, &count);
    at += used;
    /* A delivery has at least a byte of id, its length and a byte. */
    if (used == 0 || count > DELIVERED_MAX || count > (size_t)(end - at) / 3) {
        return err_set(err, ERR_CORRUPT, "deliveries have a broken count");
    }
    struct store_delivery *out = arena_alloc(arena, (size_t)count * sizeof(*out));
    if (out == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %llu deliveries", (unsigned long long)count);
    }
    rc = get_ids(&at, end, out, (size_t)count, err);
    if (rc == 0) {
        rc = get_items(at, end, seed, out, (size_t)count, err);
    }
    if (rc == 0) {
        *list = out;
        *n = (size_t)count;
    }
    return rc;
}
