#include "front/layout.h"

#include <stdio.h>
#include <string.h>

#include "base/calendar.h"

static void put_little(uint8_t *out, uint64_t v, int n)
{
    for (int i = 0; i < n; i++) {
        out[i] = (uint8_t)(v >> (8 * i));
    }
}

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory for the front");
}

/* --- keys --- */

static struct slice key_of(const char *prefix, const char *kind, struct slice user, char out[FRONT_KEY_MAX])
{
    size_t prefix_len = strlen(prefix), kind_len = strlen(kind);
    memcpy(out, prefix, prefix_len);
    memcpy(out + prefix_len, kind, kind_len);
    memcpy(out + prefix_len + kind_len, user.data, user.len);
    return slice_of(out, prefix_len + kind_len + user.len);
}

struct slice front_key_meta(const char *prefix, char out[FRONT_KEY_MAX])
{
    return key_of(prefix, "meta", slice_str(""), out);
}

struct slice front_key_dirty(const char *prefix, char out[FRONT_KEY_MAX])
{
    return key_of(prefix, "d", slice_str(""), out);
}

struct slice front_key_state(const char *prefix, struct slice user, char out[FRONT_KEY_MAX])
{
    return key_of(prefix, "w:", user, out);
}

struct slice front_key_events(const char *prefix, struct slice user, char out[FRONT_KEY_MAX])
{
    return key_of(prefix, "t:", user, out);
}

/* --- writing --- */

size_t front_play_write(uint64_t hash, int month, uint8_t out[FRONT_EVENT_MAX])
{
    out[0] = STORE_PLAY;
    put_little(out + 1, hash, FRONT_HASH_BYTES);
    put_little(out + 1 + FRONT_HASH_BYTES, (uint64_t)month, 4);
    return FRONT_EVENT_BYTES;
}

size_t front_sent_write(const struct store_item *item, int64_t at_ms, uint8_t out[FRONT_EVENT_MAX])
{
    const bool grouped = item->group != 0;
    const size_t head = grouped ? FRONT_GROUPED_BYTES : FRONT_SENT_BYTES;
    out[0] = grouped ? FRONT_GROUPED : FRONT_SENT;
    put_little(out + 1, item->hash, FRONT_HASH_BYTES);
    put_little(out + 1 + FRONT_HASH_BYTES, (uint64_t)at_ms, 8);
    if (grouped) {
        put_little(out + FRONT_SENT_BYTES, item->group, 8);
    }
    memcpy(out + head, item->id.data, item->id.len);
    return head + item->id.len;
}

static int add_word(struct buf *words, struct slice name, struct slice value, struct err *err)
{
    buf_add(words, &name, sizeof name);
    return buf_add(words, &value, sizeof value) < 0 ? out_of_memory(err) : 0;
}

/* n records of so many bytes each, as one value. */
static int add_list(struct arena *arena, struct buf *words, const char *name, size_t n, size_t size, uint8_t **at,
                    struct err *err)
{
    *at = arena_alloc(arena, n * size);
    return *at == NULL ? out_of_memory(err) : add_word(words, slice_str(name), slice_of((char *)*at, n * size), err);
}

size_t front_user_bytes(const struct user_snapshot *p)
{
    size_t bytes = p->deliveries.len + p->n_exceptions * FRONT_HASH_BYTES + p->n_plays * FRONT_PLAY_BYTES;
    for (size_t i = 0; i < p->n_months; i++) {
        bytes += p->months[i].blob.len;
    }
    return bytes;
}

static int write_months(const struct user_snapshot *p, struct arena *arena, struct buf *words, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < p->n_months && rc == 0; i++) {
        char *name = arena_alloc(arena, FRONT_FIELD_TEXT), suffix[MONTH_TEXT];
        if (name == NULL) {
            return out_of_memory(err);
        }
        snprintf(name, FRONT_FIELD_TEXT, "m%s", month_suffix(p->months[i].month, suffix));
        rc = add_word(words, slice_str(name), p->months[i].blob, err);
    }
    return rc;
}

int front_state_write(const struct user_snapshot *p, struct arena *arena, struct buf *words, struct err *err)
{
    uint8_t *at;
    if (p->n_damaged > 0 || front_user_bytes(p) > FRONT_USER_MAX) {
        return add_word(words, slice_str(p->n_damaged > 0 ? "b" : "g"), slice_str("1"), err);
    }
    int rc = write_months(p, arena, words, err);
    if (rc == 0 && p->n_plays > 0 && (rc = add_list(arena, words, "p", p->n_plays, FRONT_PLAY_BYTES, &at, err)) == 0) {
        for (size_t i = 0; i < p->n_plays; i++, at += FRONT_PLAY_BYTES) {
            put_little(at, p->plays[i].hash, FRONT_HASH_BYTES);
            put_little(at + FRONT_HASH_BYTES, (uint64_t)p->plays[i].month, 4);
        }
    }
    if (rc == 0 && p->deliveries.len > 0) {
        rc = add_word(words, slice_str("d"), p->deliveries, err);
    }
    if (rc == 0 && p->n_exceptions > 0 &&
        (rc = add_list(arena, words, "x", p->n_exceptions, FRONT_HASH_BYTES, &at, err)) == 0) {
        for (size_t i = 0; i < p->n_exceptions; i++, at += FRONT_HASH_BYTES) {
            put_little(at, p->exceptions[i], FRONT_HASH_BYTES);
        }
    }
    return rc;
}
