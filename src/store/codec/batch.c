/* Packed events. One event:
 *
 *   u8 kind, +128 of a stated time | i64 at | i64 key | u8 user length | u32 n | user | n x (u64 hash | u8 length |
 * item)
 *
 * in the machine's byte order: a batch never leaves the process. */
#include "store/store.h"

#include <string.h>

enum { EVENT_HEAD = 1 + 8 + 8 + 1 + 4, ITEM_HEAD = 8 + 1, STATED = 0x80 };

static uint8_t *put(uint8_t *at, const void *bytes, size_t len)
{
    memcpy(at, bytes, len);
    return at + len;
}

int store_batch_add(struct store_batch *batch, enum store_kind kind, int64_t at_ms, enum store_time time, int64_t key,
                    struct slice user, const struct slice *items, const uint64_t *hashes, size_t n)
{
    size_t size = EVENT_HEAD + user.len;
    for (size_t i = 0; i < n; i++) {
        size += ITEM_HEAD + items[i].len;
    }
    if (buf_reserve(&batch->bytes, size) < 0) {
        batch->bytes.failed = false;
        return ERR_NOMEM;
    }
    uint8_t *at = (uint8_t *)batch->bytes.data + batch->bytes.len;
    uint32_t n32 = (uint32_t)n;
    *at++ = (uint8_t)(kind | (time == STORE_STATED ? STATED : 0));
    at = put(at, &at_ms, sizeof at_ms);
    at = put(at, &key, sizeof key);
    *at++ = (uint8_t)user.len;
    at = put(at, &n32, sizeof n32);
    at = put(at, user.data, user.len);
    for (size_t i = 0; i < n; i++) {
        at = put(at, &hashes[i], sizeof hashes[i]);
        *at++ = (uint8_t)items[i].len;
        at = put(at, items[i].data, items[i].len);
    }
    batch->bytes.len += size;
    batch->rows += n32;
    batch->events++;
    return 0;
}

bool store_batch_next(const struct store_batch *batch, size_t *at, struct store_event *out)
{
    if (*at >= batch->bytes.len) {
        return false;
    }
    const uint8_t *p = (const uint8_t *)batch->bytes.data + *at;
    out->kind = (enum store_kind)(*p & ~STATED);
    out->time = (*p++ & STATED) != 0 ? STORE_STATED : STORE_STAMPED;
    memcpy(&out->at_ms, p, sizeof out->at_ms);
    p += sizeof out->at_ms;
    memcpy(&out->key, p, sizeof out->key);
    p += sizeof out->key;
    out->user.len = *p++;
    memcpy(&out->n, p, sizeof out->n);
    p += sizeof out->n;
    out->user.data = (const char *)p;
    p += out->user.len;
    out->items = p;
    for (uint32_t i = 0; i < out->n; i++) {
        p += ITEM_HEAD + p[8];
    }
    *at = (size_t)(p - (const uint8_t *)batch->bytes.data);
    return true;
}

const uint8_t *store_event_item(const uint8_t *items, struct slice *item, uint64_t *hash)
{
    memcpy(hash, items, sizeof *hash);
    item->len = items[8];
    item->data = (const char *)items + ITEM_HEAD;
    return items + ITEM_HEAD + item->len;
}
