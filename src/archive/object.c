/* The head, little endian: "unseenAR" (8), version (2), kind (1), how it is packed (1: zstd), the id of the key
 * that it is encrypted with (4; 0: it is not), the head's length (4), flags (4), node, run (8 each), the seed's
 * fingerprint (4), shard (4), from, to, covers, first_ms, last_ms, round, key_from, key_next, n (8 each), the records'
 * length (8), that of what stands behind the head (8), the salt (32; 0: it is not encrypted), and the checksum of all
 * before and behind it (8). */
#include "archive/object.h"

#include <endian.h>
#include <string.h>
#include <zstd.h>

#include "base/hash.h"
#include "base/varint.h"

enum {
    FORM = 1,
    PACKED_ZSTD = 1,
    LEVEL = 3,
    CHECKSUM_AT = OBJECT_HEAD_BYTES - 8,
    SALT_AT = CHECKSUM_AT - CIPHER_SALT_BYTES,
    RECORDS_MAX = INT32_MAX,
};

static const char magic[8] = {'u', 'n', 's', 'e', 'e', 'n', 'A', 'R'};

void object_put_number(uint8_t out[8], uint64_t n)
{
    n = htole64(n);
    memcpy(out, &n, sizeof n);
}

uint64_t object_number(const void *at)
{
    uint64_t n;
    memcpy(&n, at, sizeof n);
    return le64toh(n);
}

/* --- records --- */

int object_add(struct buf *records, enum object_record kind, struct slice first, struct slice second)
{
    uint8_t head[1 + VARINT_MAX] = {(uint8_t)kind};
    size_t n = 1 + varint_put(head + 1, first.len + second.len);
    if (buf_reserve(records, n + first.len + second.len) < 0) {
        return ERR_NOMEM;
    }
    buf_add(records, head, n);
    buf_add(records, first.data, first.len);
    buf_add(records, second.data, second.len);
    return 0;
}

int object_next(struct slice records, size_t *at, enum object_record *kind, struct slice *bytes, struct err *err)
{
    const uint8_t *data = (const uint8_t *)records.data, *end = data + records.len;
    uint64_t len = 0;
    if (*at == records.len) {
        return 0;
    }
    uint8_t what = data[*at];
    size_t n = varint_get(data + *at + 1, end, &len);
    if (n == 0 || len > (uint64_t)(end - data) - *at - 1 - n) {
        return err_set(err, ERR_CORRUPT, "a record at byte %zu is cut off", *at);
    }
    if (what == 0 || what >= RECORD_KINDS) {
        return err_set(err, ERR_VERSION, "a record of kind %u is of a newer version than %s", what, UNSEEN_VERSION);
    }
    *kind = (enum object_record)what;
    *bytes = slice_of((const char *)data + *at + 1 + n, (size_t)len);
    *at += 1 + n + (size_t)len;
    return 1;
}

/* --- the head --- */

struct writer {
    uint8_t *at;
};

static void put(struct writer *w, uint64_t n, size_t bytes)
{
    uint8_t all[8];
    object_put_number(all, n);
    memcpy(w->at, all, bytes);
    w->at += bytes;
}

static void write_head(const struct object_head *h, uint64_t plain, uint64_t packed, uint8_t out[OBJECT_HEAD_BYTES])
{
    struct writer w = {out + sizeof magic};
    memset(out, 0, OBJECT_HEAD_BYTES);
    memcpy(out, magic, sizeof magic);
    put(&w, FORM, 2);
    put(&w, (uint64_t)h->kind, 1);
    put(&w, PACKED_ZSTD, 1);
    put(&w, h->key, 4);
    put(&w, OBJECT_HEAD_BYTES, 4);
    put(&w, h->flags, 4);
    put(&w, h->node, 8);
    put(&w, h->run, 8);
    put(&w, h->seed, 4);
    put(&w, h->shard, 4);
    const uint64_t numbers[] = {h->from,
                                h->to,
                                h->covers,
                                (uint64_t)h->first_ms,
                                (uint64_t)h->last_ms,
                                h->round,
                                (uint64_t)h->key_from,
                                (uint64_t)h->key_next,
                                h->n,
                                plain,
                                packed};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        put(&w, numbers[i], 8);
    }
}

static uint64_t take(const uint8_t **at, size_t bytes)
{
    uint8_t all[8] = {0};
    memcpy(all, *at, bytes);
    *at += bytes;
    return object_number(all);
}

struct lengths {
    uint64_t plain, packed;
};

static int read_head(const char *name, struct slice bytes, struct object_head *h, struct lengths *l, struct err *err)
{
    if (bytes.len < OBJECT_HEAD_BYTES || memcmp(bytes.data, magic, sizeof magic) != 0) {
        return err_set(err, ERR_CORRUPT, "%s is no object of an archive, or is cut off", name);
    }
    const uint8_t *at = (const uint8_t *)bytes.data + sizeof magic;
    uint64_t version = take(&at, 2), kind = take(&at, 1), packed = take(&at, 1), key = take(&at, 4);
    uint64_t length = take(&at, 4);
    if (version != FORM || length != OBJECT_HEAD_BYTES || packed != PACKED_ZSTD || (key & 0xff) > CIPHER_AES_GCM ||
        ((key & 0xff) == CIPHER_PLAIN && key != 0) || kind < 1 || kind > OBJECT_END) {
        return err_set(err, ERR_VERSION, "%s is of a newer version than %s", name, UNSEEN_VERSION);
    }
    *h = (struct object_head){.kind = (enum object_kind)kind, .key = (uint32_t)key};
    h->flags = (uint32_t)take(&at, 4);
    h->node = take(&at, 8);
    h->run = take(&at, 8);
    h->seed = (uint32_t)take(&at, 4);
    h->shard = (uint32_t)take(&at, 4);
    h->from = take(&at, 8);
    h->to = take(&at, 8);
    h->covers = take(&at, 8);
    h->first_ms = (int64_t)take(&at, 8);
    h->last_ms = (int64_t)take(&at, 8);
    h->round = take(&at, 8);
    h->key_from = (int64_t)take(&at, 8);
    h->key_next = (int64_t)take(&at, 8);
    h->n = take(&at, 8);
    l->plain = take(&at, 8);
    l->packed = take(&at, 8);
    return 0;
}

/* The checksum stands in the head: it is that of all else. */
static uint64_t sum(const uint8_t *head, const void *body, size_t len)
{
    uint8_t both[16];
    object_put_number(both, hash_checksum(head, CHECKSUM_AT));
    object_put_number(both + 8, hash_checksum(body, len));
    return hash_checksum(both, sizeof both);
}

uint64_t object_checksum(struct slice bytes)
{
    return object_number(bytes.data + CHECKSUM_AT);
}

int object_seal(const char *name, const struct object_head *head, const struct cipher_keys *keys, struct slice records,
                struct buf *out, struct err *err)
{
    const struct cipher_key *key = keys != NULL && keys->now.id != CIPHER_PLAIN ? &keys->now : NULL;
    struct object_head mine = *head;
    size_t begin = out->len, bound = ZSTD_compressBound(records.len), tag = key != NULL ? CIPHER_TAG_BYTES : 0;
    if (records.len > RECORDS_MAX || buf_reserve(out, OBJECT_HEAD_BYTES + bound + tag) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for an object of %zu bytes", records.len);
    }
    uint8_t *to = (uint8_t *)out->data + begin, *body = to + OBJECT_HEAD_BYTES;
    size_t packed = ZSTD_compress(body, bound, records.len > 0 ? records.data : "", records.len, LEVEL);
    if (ZSTD_isError(packed)) {
        return err_set(err, ERR_NOMEM, "an object can't be packed: %s", ZSTD_getErrorName(packed));
    }
    mine.key = key != NULL ? key->id : CIPHER_PLAIN;
    write_head(&mine, records.len, packed + tag, to);
    if (key != NULL) {
        const struct cipher_object o = {key, to + SALT_AT, slice_str(name), slice_of((const char *)to, CHECKSUM_AT)};
        int rc = cipher_salt(to + SALT_AT, err);
        rc = rc < 0 ? rc : cipher_seal(&o, body, packed, err);
        if (rc < 0) {
            return rc;
        }
    }
    object_put_number(to + CHECKSUM_AT, sum(to, body, packed + tag));
    out->len = begin + OBJECT_HEAD_BYTES + packed + tag;
    return 0;
}

int object_look(const char *name, struct slice bytes, struct object_head *head, struct err *err)
{
    struct lengths l;
    return read_head(name, bytes, head, &l, err);
}

static int unpack(const char *name, struct slice packed, size_t plain, struct buf *records, struct err *err)
{
    if (buf_reserve(records, plain + 1) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for %s", name);
    }
    size_t n = ZSTD_decompress(records->data + records->len, plain, packed.data, packed.len);
    if (ZSTD_isError(n) || n != plain) {
        return err_set(err, ERR_CORRUPT, "%s can't be unpacked", name);
    }
    records->len += n;
    return 0;
}

static int decrypt(const char *name, struct slice bytes, const struct cipher_key *key, struct buf *out, struct err *err)
{
    const struct slice sealed = slice_of(bytes.data + OBJECT_HEAD_BYTES, bytes.len - OBJECT_HEAD_BYTES);
    const struct cipher_object o = {key, (const uint8_t *)bytes.data + SALT_AT, slice_str(name),
                                    slice_of(bytes.data, CHECKSUM_AT)};
    if (buf_reserve(out, sealed.len) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for %s", name);
    }
    int rc = cipher_open(&o, sealed, (uint8_t *)out->data, err);
    out->len = rc == 0 ? sealed.len - CIPHER_TAG_BYTES : 0;
    return rc;
}

int object_open(const char *name, struct slice bytes, const struct cipher_keys *keys, struct object_head *head,
                struct buf *records, struct err *err)
{
    struct lengths l;
    const struct cipher_key *key;
    int rc = read_head(name, bytes, head, &l, err);
    if (rc < 0) {
        return rc;
    }
    const uint8_t *data = (const uint8_t *)bytes.data;
    if (l.packed != bytes.len - OBJECT_HEAD_BYTES || l.plain > RECORDS_MAX ||
        sum(data, data + OBJECT_HEAD_BYTES, (size_t)l.packed) != object_checksum(bytes)) {
        return err_set(err, ERR_CORRUPT, "%s is damaged: its checksum is not that of its bytes", name);
    }
    if ((rc = cipher_find(keys, name, head->key, &key, err)) < 0) {
        return rc;
    }
    struct buf packed = {0};
    rc = key != NULL ? decrypt(name, bytes, key, &packed, err) : 0;
    struct slice frame = key != NULL ? buf_slice(&packed) : slice_of(bytes.data + OBJECT_HEAD_BYTES, (size_t)l.packed);
    rc = rc < 0 ? rc : unpack(name, frame, (size_t)l.plain, records, err);
    buf_free(&packed);
    return rc;
}
