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
#include "store/user/deliveries.h"

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
};

/* --- packing --- */

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

int delivered_pack(struct delivered_codec *codec, const struct delivered *d, struct buf *out)
{
    int rc = put_payload(&codec->scratch, d->list, d->n);
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

/* --- unpacking --- */

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

int delivered_unpack(struct delivered_codec *codec, const void *blob, size_t len, uint64_t seed, struct arena *arena,
                     struct delivered *d, struct err *err)
{
    const uint8_t *at = NULL;
    size_t payload_len = 0;
    uint64_t count = 0;
    *d = (struct delivered){0};
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
        d->list = out;
        d->n = (size_t)count;
    }
    return rc;
}
