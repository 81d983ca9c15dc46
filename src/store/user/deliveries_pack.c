/* A user's last deliveries as a blob: the column `items` of the table `delivered`. Version 2; 1 is read.
 *
 *   1     format version in the high three bits (2); bit 0: the payload is compressed; bit 1: some item has several
 *         times; bit 2: some delivery has a group; the other bits are zero
 *   1..4  only when compressed: length of the payload before compression (varint)
 *   any   payload, as it is or as one zstd frame, up to the checksum
 *   4     checksum: low half of the unseeded XXH3 64 of all bytes before it, little endian
 *
 * The payload: n, the number of items, at most DELIVERED_MAX, and, with bit 1, m, the number of deliveries (varints;
 * else m is n). Then columns of m numbers (varints), newest first: times, the first as it is, each other as its
 * distance from the one before; subs, as the distance from the one before where that has the same time, else as they
 * are; with bit 1, which item it is: 0 one that wasn't there yet, else how many items ago it came first, 1 for the last
 * new one; with bit 2 its group: 0 none, else its place among the groups, from 1 on. Then, with bit 2, how many groups
 * there are (varint), and each, 8 bytes, little endian. At last n items, each a length byte (1 to 255) and its bytes.
 * Nothing follows.
 *
 * Mostly an item has one time, and those of one question share it and have subs one apart; that and items that look
 * alike compress well. Compression is used only where it makes the blob smaller. Hashes aren't stored: they are
 * recomputed with the folder's seed.
 *
 * Version 1 has the bits 1 and 2 zero, and n ids as one column, newest first: the first as it is, each other as its
 * distance from the one before.
 */
#include "store/user/deliveries.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "base/hash.h"
#include "base/varint.h"

enum {
    VERSION_1 = 1 << 5,
    VERSION_2 = 2 << 5,
    COMPRESSED = 1,
    REPEATED = 2,
    GROUPED = 4,
    CHECKSUM = 4,
    LEVEL = 3,
    ITEM_MAX = 255,
    GROUP_BYTES = 8,
    ENTRIES_MAX = DELIVERED_MAX * DELIVERED_TIMES,
    ENTRY_MAX = 4 * VARINT_MAX + GROUP_BYTES,
    /* The largest payload that a list can have; what a blob claims is held against it before any allocation. */
    PAYLOAD_MAX = 3 * VARINT_MAX + ENTRIES_MAX * ENTRY_MAX + DELIVERED_MAX * (1 + ITEM_MAX),
};

#define SUB_MAX (((uint64_t)1 << DELIVERED_SUB_BITS) - 1)
#define MS_MAX ((uint64_t)INT64_MAX >> DELIVERED_SUB_BITS)

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

static uint64_t sub_of(uint64_t stamp)
{
    return stamp & SUB_MAX;
}

/* As a united list is. *items: how many it has. */
static bool is_united(const struct delivered *d, size_t *items)
{
    *items = 0;
    for (size_t i = 0; i < d->n; i++) {
        const struct store_delivery *one = &d->list[i];
        if (one->item.len < 1 || one->item.len > ITEM_MAX || (i > 0 && one->stamp > d->list[i - 1].stamp) ||
            (one->nth == 0 ? one->which != *items : one->which >= *items) || one->nth >= DELIVERED_TIMES) {
            return false;
        }
        *items += one->nth == 0;
    }
    return *items <= DELIVERED_MAX;
}

static uint8_t *put_times(uint8_t *out, const struct delivered *d)
{
    for (size_t i = 0; i < d->n; i++) {
        const uint64_t ms = (uint64_t)delivered_ms(d->list[i].stamp);
        out += varint_put(out, i > 0 ? (uint64_t)delivered_ms(d->list[i - 1].stamp) - ms : ms);
    }
    for (size_t i = 0; i < d->n; i++) {
        const uint64_t stamp = d->list[i].stamp;
        const bool same = i > 0 && delivered_ms(d->list[i - 1].stamp) == delivered_ms(stamp);
        out += varint_put(out, same ? sub_of(d->list[i - 1].stamp) - sub_of(stamp) : sub_of(stamp));
    }
    return out;
}

static uint8_t *put_which(uint8_t *out, const struct delivered *d)
{
    size_t items = 0;
    for (size_t i = 0; i < d->n; i++) {
        const struct store_delivery *one = &d->list[i];
        out += varint_put(out, one->nth == 0 ? 0 : items - one->which);
        items += one->nth == 0;
    }
    return out;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* ERR_NOMEM */
static int put_groups(uint8_t **out, const struct delivered *d)
{
    size_t n = 0;
    uint64_t *groups = malloc(d->n * sizeof *groups);
    if (groups == NULL) {
        return ERR_NOMEM;
    }
    for (size_t i = 0; i < d->n; i++) {
        groups[n] = d->list[i].group;
        n += d->list[i].group != 0;
    }
    n = hash_distinct(groups, n);
    for (size_t i = 0; i < d->n; i++) {
        const uint64_t *found = bsearch(&d->list[i].group, groups, n, sizeof *groups, by_value);
        *out += varint_put(*out, found != NULL ? (uint64_t)(found - groups) + 1 : 0);
    }
    *out += varint_put(*out, n);
    for (size_t i = 0; i < n; i++) {
        for (int b = 0; b < GROUP_BYTES; b++) {
            *(*out)++ = (uint8_t)(groups[i] >> (8 * b));
        }
    }
    free(groups);
    return 0;
}

static uint8_t *put_items(uint8_t *out, const struct delivered *d)
{
    for (size_t i = 0; i < d->n; i++) {
        const struct slice item = d->list[i].item;
        if (d->list[i].nth == 0) {
            *out++ = (uint8_t)item.len;
            memcpy(out, item.data, item.len);
            out += item.len;
        }
    }
    return out;
}

/* Room in the scratch, which is emptied, for the list's payload in either version. ERR_INVALID: it is not united. */
static int begin_payload(struct buf *scratch, const struct delivered *d, size_t *items)
{
    size_t most = 3 * VARINT_MAX;
    if (!is_united(d, items)) {
        return ERR_INVALID;
    }
    for (size_t i = 0; i < d->n; i++) {
        most += ENTRY_MAX + (d->list[i].nth == 0 ? 1 + d->list[i].item.len : 0);
    }
    buf_clear(scratch);
    return buf_reserve(scratch, most);
}

/* Writes the list's payload into the scratch. *form: the blob's first byte. */
static int put_payload(struct buf *scratch, const struct delivered *d, uint8_t *form)
{
    size_t items;
    int rc = begin_payload(scratch, d, &items);
    if (rc != 0) {
        return rc;
    }
    bool grouped = false;
    for (size_t i = 0; i < d->n; i++) {
        grouped = grouped || d->list[i].group != 0;
    }
    uint8_t *out = (uint8_t *)scratch->data;
    *form = (uint8_t)(VERSION_2 | (d->n > items ? REPEATED : 0) | (grouped ? GROUPED : 0));
    out += varint_put(out, items);
    if (d->n > items) {
        out += varint_put(out, d->n);
    }
    out = put_times(out, d);
    out = d->n > items ? put_which(out, d) : out;
    rc = grouped ? put_groups(&out, d) : 0;
    if (rc == 0) {
        out = put_items(out, d);
        scratch->len = (size_t)(out - (uint8_t *)scratch->data);
    }
    return rc;
}

/* The same in version 1. An id says no more than the order. */
static int put_old_payload(struct buf *scratch, const struct delivered *d, uint8_t *form)
{
    size_t items;
    int rc = begin_payload(scratch, d, &items);
    if (rc != 0) {
        return rc;
    }
    uint8_t *out = (uint8_t *)scratch->data;
    *form = VERSION_1;
    out += varint_put(out, items);
    for (size_t i = 0; i < items; i++) {
        out += varint_put(out, i == 0 ? items : 1);
    }
    out = put_items(out, d);
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

/* The scratch as a blob of that form, behind out. */
static int put_blob(struct delivered_codec *codec, uint8_t form, struct buf *out)
{
    size_t payload = codec->scratch.len;
    size_t bound = ZSTD_compressBound(payload);
    int rc = buf_reserve(out, 1 + VARINT_MAX + bound + CHECKSUM);
    if (rc != 0) {
        return rc;
    }
    uint8_t *blob = (uint8_t *)out->data + out->len;
    blob[0] = form | COMPRESSED;
    size_t at = 1 + varint_put(blob + 1, payload);
    size_t compressed = compress(codec, blob + at, bound);
    if (compressed == 0) {
        return ERR_NOMEM;
    }
    if (at + compressed < 1 + payload) {
        at += compressed;
    } else {
        blob[0] = form;
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

int delivered_pack(struct delivered_codec *codec, const struct delivered *d, struct buf *out)
{
    uint8_t form;
    int rc = put_payload(&codec->scratch, d, &form);
    return rc != 0 ? rc : put_blob(codec, form, out);
}

int delivered_pack_old(struct delivered_codec *codec, const struct delivered *d, struct buf *out)
{
    uint8_t form;
    int rc = put_old_payload(&codec->scratch, d, &form);
    return rc != 0 ? rc : put_blob(codec, form, out);
}

bool delivered_is_old(struct slice blob)
{
    return blob.len > 0 && ((uint8_t)blob.data[0] & ~COMPRESSED) == VERSION_1;
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
    if ((blob[0] & ~COMPRESSED) != VERSION_1 && (blob[0] & ~(COMPRESSED | REPEATED | GROUPED)) != VERSION_2) {
        return err_set(err, ERR_CORRUPT, "deliveries begin with byte 0x%02x, which isn't version 1 or 2", blob[0]);
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

/* What is left to be read, and the list that it becomes. */
struct reading {
    const uint8_t *at, *end;
    struct store_delivery *list;
    size_t n, items;
    struct err *err;
};

static inline bool get_number(struct reading *r, uint64_t most, uint64_t *out)
{
    if (r->at < r->end && *r->at < 0x80) { /* as nearly all are */
        *out = *r->at++;
        return *out <= most;
    }
    size_t used = varint_get(r->at, r->end, out);
    r->at += used;
    return used > 0 && *out <= most;
}

static int broken(const struct reading *r, size_t i, const char *what)
{
    return err_set(r->err, ERR_CORRUPT, "delivery %zu of %zu has a broken %s", i + 1, r->n, what);
}

/* A higher id was sent later; when is not known, but long ago: so the newest has the last of DELIVERED_MAX ms of 1970,
 * and each lower id one ms less. */
static int get_ids(struct reading *r)
{
    uint64_t id = 0, v, ms = DELIVERED_MAX;
    for (size_t i = 0; i < r->n; i++) {
        if (!get_number(r, i > 0 ? id : UINT64_MAX, &v)) {
            return broken(r, i, "id");
        }
        id = i > 0 ? id - v : v;
        ms -= i > 0 && v > 0;
        r->list[i] = (struct store_delivery){.stamp = delivered_stamp((int64_t)ms, 0)};
    }
    return 0;
}

static int get_times(struct reading *r)
{
    uint64_t ms = 0, sub = 0, v;
    for (size_t i = 0; i < r->n; i++) {
        if (!get_number(r, i > 0 ? ms : MS_MAX, &v)) {
            return broken(r, i, "time");
        }
        ms = i > 0 ? ms - v : v;
        r->list[i] = (struct store_delivery){.stamp = delivered_stamp((int64_t)ms, 0)};
    }
    for (size_t i = 0; i < r->n; i++) {
        struct store_delivery *d = &r->list[i];
        const bool same = i > 0 && delivered_ms(d[-1].stamp) == delivered_ms(d->stamp);
        if (!get_number(r, same ? sub : SUB_MAX, &v)) {
            return broken(r, i, "sub");
        }
        sub = same ? sub - v : v;
        d->stamp |= sub;
    }
    return 0;
}

/* last: of each item the place of its oldest so far. */
static int get_which(struct reading *r, bool repeated, uint32_t *last)
{
    uint32_t items = 0;
    for (size_t i = 0; i < r->n; i++) {
        struct store_delivery *d = &r->list[i];
        uint64_t back = 0;
        if (repeated && !get_number(r, items, &back)) {
            return broken(r, i, "item");
        }
        if (back == 0) {
            d->which = items;
            if (items++ == r->items) {
                return broken(r, i, "item");
            }
        } else {
            const struct store_delivery *newer = &r->list[last[items - back]];
            d->which = newer->which;
            d->nth = newer->nth + 1;
            if (d->nth == DELIVERED_TIMES || delivered_ms(newer->stamp) == delivered_ms(d->stamp)) {
                return broken(r, i, "item");
            }
        }
        last[d->which] = (uint32_t)i;
    }
    return items == r->items ? 0 : broken(r, r->n - 1, "item");
}

static int get_groups(struct reading *r)
{
    uint64_t n;
    for (size_t i = 0; i < r->n; i++) {
        if (!get_number(r, r->n, &r->list[i].group)) {
            return broken(r, i, "group");
        }
    }
    if (!get_number(r, r->n, &n) || n * GROUP_BYTES > (size_t)(r->end - r->at)) {
        return err_set(r->err, ERR_CORRUPT, "deliveries have a broken number of groups");
    }
    for (size_t i = 0; i < r->n; i++) {
        const uint64_t place = r->list[i].group;
        uint64_t group = 0;
        for (int b = 0; b < GROUP_BYTES && place > 0 && place <= n; b++) {
            group |= (uint64_t)r->at[(place - 1) * GROUP_BYTES + (unsigned)b] << (8 * b);
        }
        if (place > n || (place > 0 && group == 0)) {
            return broken(r, i, "group");
        }
        r->list[i].group = group;
    }
    r->at += n * GROUP_BYTES;
    return 0;
}

/* items: room for each, by `which`. */
static int get_items(struct reading *r, uint64_t seed, struct store_delivery **items)
{
    for (size_t i = 0; i < r->n; i++) {
        struct store_delivery *d = &r->list[i];
        if (d->nth > 0) {
            d->item = items[d->which]->item;
            d->hash = items[d->which]->hash;
            continue;
        }
        size_t len = r->at < r->end ? *r->at++ : 0;
        if (len < 1 || len > (size_t)(r->end - r->at)) {
            return err_set(r->err, ERR_CORRUPT, "delivery %zu of %zu is cut off or empty", i + 1, r->n);
        }
        d->item = slice_of((const char *)r->at, len);
        d->hash = hash_id(seed, d->item);
        items[d->which] = d;
        r->at += len;
    }
    return r->at == r->end ? 0
                           : err_set(r->err, ERR_CORRUPT, "%zu bytes behind the last of %zu deliveries",
                                     (size_t)(r->end - r->at), r->n);
}

/* How many there are. Each has at least a byte of each column, and an item its length and a byte. */
static int get_counts(struct reading *r, bool old, bool repeated)
{
    uint64_t items, n;
    const size_t columns = old ? 1 : 2;
    bool good = get_number(r, DELIVERED_MAX, &items);
    n = items;
    good = good && (!repeated || (get_number(r, items * DELIVERED_TIMES, &n) && n > items));
    if (!good || n * (columns + repeated) + 2 * items > (size_t)(r->end - r->at)) {
        return err_set(r->err, ERR_CORRUPT, "deliveries have a broken count");
    }
    r->items = (size_t)items;
    r->n = (size_t)n;
    return 0;
}

int delivered_unpack(struct delivered_codec *codec, const void *blob, size_t len, uint64_t seed, struct arena *arena,
                     struct delivered *d, struct err *err)
{
    struct reading r = {.err = err};
    size_t payload_len = 0;
    *d = (struct delivered){0};
    int rc = get_payload(codec, blob, len, arena, &r.at, &payload_len, err);
    if (rc != 0) {
        return rc;
    }
    const uint8_t form = *(const uint8_t *)blob;
    const bool old = (form & ~COMPRESSED) == VERSION_1, repeated = (form & REPEATED) != 0;
    r.end = r.at + payload_len;
    if ((rc = get_counts(&r, old, repeated)) != 0) {
        return rc;
    }
    void *of_items = arena_alloc(arena, r.items * sizeof(struct store_delivery *)); /* a number each, then an item's */
    r.list = arena_alloc(arena, r.n * sizeof *r.list);
    if (r.list == NULL || of_items == NULL) {
        return err_set(err, ERR_NOMEM, "no memory for %zu deliveries", r.n);
    }
    rc = old ? get_ids(&r) : get_times(&r);
    rc = rc == 0 ? get_which(&r, repeated, of_items) : rc;
    rc = rc == 0 && (form & GROUPED) != 0 ? get_groups(&r) : rc;
    rc = rc == 0 ? get_items(&r, seed, of_items) : rc;
    if (rc == 0) {
        *d = (struct delivered){.list = r.list, .n = r.n};
    }
    return rc;
}
