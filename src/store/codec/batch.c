/* Packed events. One event:
 *
 *   u8 kind, +128 of a stated time, +64 of one with groups | i64 at | i64 key | u8 user length | u32 n | user |
 *   n x (u64 hash | u64 group, if it has them | u8 length | item)
 *
 * in the machine's byte order: a batch never leaves the process. */
#include "store/store.h"

#include <string.h>

enum { EVENT_HEAD = 1 + 8 + 8 + 1 + 4, HASH = 8, GROUP = 8, COUNT_AT = 1 + 8 + 8 + 1, STATED = 0x80, GROUPED = 0x40 };

static uint8_t *put(uint8_t *at, const void *bytes, size_t len)
{
    memcpy(at, bytes, len);
    return at + len;
}

static size_t item_head(bool grouped)
{
    return HASH + (grouped ? GROUP : 0) + 1;
}

int store_batch_add_groups(struct store_batch *batch, enum store_kind kind, int64_t at_ms, enum store_time time,
                           int64_t key, struct slice user, const struct slice *items, const uint64_t *hashes,
                           const uint64_t *groups, size_t n)
{
    bool grouped = false;
    for (size_t i = 0; i < n && groups != NULL && kind == STORE_DELIVERY; i++) {
        grouped = grouped || groups[i] != 0;
    }
    size_t size = EVENT_HEAD + user.len;
    for (size_t i = 0; i < n; i++) {
        size += item_head(grouped) + items[i].len;
    }
    if (buf_reserve(&batch->bytes, size) < 0) {
        batch->bytes.failed = false;
        return ERR_NOMEM;
    }
    uint8_t *at = (uint8_t *)batch->bytes.data + batch->bytes.len;
    uint32_t n32 = (uint32_t)n;
    *at++ = (uint8_t)(kind | (time == STORE_STATED ? STATED : 0) | (grouped ? GROUPED : 0));
    at = put(at, &at_ms, sizeof at_ms);
    at = put(at, &key, sizeof key);
    *at++ = (uint8_t)user.len;
    at = put(at, &n32, sizeof n32);
    at = put(at, user.data, user.len);
    for (size_t i = 0; i < n; i++) {
        at = put(at, &hashes[i], sizeof hashes[i]);
        at = grouped ? put(at, &groups[i], sizeof groups[i]) : at;
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
    out->kind = (enum store_kind)(*p & ~(STATED | GROUPED));
    out->grouped = (*p & GROUPED) != 0;
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
    const size_t head = item_head(out->grouped);
    for (uint32_t i = 0; i < out->n; i++) {
        p += head + p[head - 1];
    }
    *at = (size_t)(p - (const uint8_t *)batch->bytes.data);
    return true;
}

const uint8_t *store_event_item(const struct store_event *event, const uint8_t *at, struct store_item *out)
{
    const size_t head = item_head(event->grouped);
    memcpy(&out->hash, at, HASH);
    out->group = 0;
    if (event->grouped) {
        memcpy(&out->group, at + HASH, GROUP);
    }
    out->id = slice_of((const char *)at + head, at[head - 1]);
    return at + head + out->id.len;
}

uint32_t store_batch_drop(struct store_batch *batch,
                          bool (*drops)(void *arg, const struct store_event *event, uint64_t hash), void *arg)
{
    uint8_t *base = (uint8_t *)batch->bytes.data;
    struct store_event event;
    size_t to = 0;
    uint32_t dropped = 0;
    for (size_t at = 0, from = 0; store_batch_next(batch, &at, &event); from = at) {
        uint8_t *head = base + to;
        uint32_t kept = 0;
        size_t head_len = (size_t)(event.items - base) - from;
        const uint8_t *next = event.items;
        memmove(head, base + from, head_len);
        event.user.data = (const char *)head + EVENT_HEAD;
        to += head_len;
        for (uint32_t i = 0; i < event.n; i++) {
            struct store_item item;
            const uint8_t *p = next;
            next = store_event_item(&event, p, &item);
            if (!drops(arg, &event, item.hash)) {
                size_t len = (size_t)(next - p);
                memmove(base + to, p, len);
                to += len;
                kept++;
            }
        }
        memcpy(head + COUNT_AT, &kept, sizeof kept);
        dropped += event.n - kept;
    }
    batch->bytes.len = to;
    batch->rows -= dropped;
    return dropped;
}
