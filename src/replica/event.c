#include "replica/event.h"

#include "base/hash.h"
#include "base/varint.h"

enum { FIXED_MAX = 5 * VARINT_MAX };

static uint64_t zigzag(int64_t v)
{
    return (uint64_t)v << 1 ^ (uint64_t)(v >> 63);
}

static int64_t unzigzag(uint64_t v)
{
    return (int64_t)(v >> 1 ^ (0 - (v & 1)));
}

static bool has_item(enum feed_kind kind)
{
    return kind == FEED_PLAY || kind == FEED_DELIVERY || kind == FEED_UNSEE || kind == FEED_UNSEE_HASH ||
           kind == FEED_GROUPED;
}

/* --- writing --- */

/* Differences wrap: whatever the times are, they come out again. */
int event_write(struct event_state *state, const struct feed_event *event, struct buf *out)
{
    uint8_t head[FIXED_MAX], length[VARINT_MAX], item_len[VARINT_MAX];
    const uint64_t group = htole64(event->group);
    const size_t n_group = event->group != 0 ? sizeof group : 0;
    bool same = state->seq != 0 && slice_eq(state->user, event->user);
    struct slice user = same ? slice_of("", 0) : event->user;
    size_t n = varint_put(head, event->seq - state->seq);
    n += varint_put(head + n, zigzag((int64_t)((uint64_t)event->at_ms - (uint64_t)state->at_ms)));
    n += varint_put(head + n, zigzag((int64_t)((uint64_t)event->recorded_ms - (uint64_t)event->at_ms)));
    n += varint_put(head + n, user.len);
    size_t n_item = has_item(event->kind) ? varint_put(item_len, event->item.len) : 0;
    size_t body = n + user.len + n_item + (n_item > 0 ? event->item.len : 0) + n_group;
    size_t n_length = varint_put(length, body);
    if (buf_reserve(out, 1 + n_length + body) < 0) {
        return ERR_NOMEM;
    }
    uint8_t kind = (uint8_t)(n_group > 0 ? FEED_GROUPED : event->kind);
    buf_add(out, &kind, 1);
    buf_add(out, length, n_length);
    buf_add(out, head, n);
    buf_add(out, user.data, user.len);
    if (n_item > 0) {
        buf_add(out, item_len, n_item);
        buf_add(out, event->item.data, event->item.len);
    }
    buf_add(out, &group, n_group);
    *state = (struct event_state){event->seq, event->at_ms, event->user};
    return 0;
}

/* --- reading --- */

struct cursor {
    const uint8_t *at, *end;
    bool bad;
};

static uint64_t take_number(struct cursor *c)
{
    uint64_t v = 0;
    size_t n = c->bad ? 0 : varint_get(c->at, c->end, &v);
    c->bad = n == 0;
    c->at += n;
    return v;
}

static struct slice take_text(struct cursor *c)
{
    uint64_t len = take_number(c);
    if (c->bad || len > (size_t)(c->end - c->at)) {
        c->bad = true;
        return slice_of("", 0);
    }
    struct slice text = slice_of((const char *)c->at, (size_t)len);
    c->at += len;
    return text;
}

static uint64_t take_group(struct cursor *c)
{
    uint64_t group = 0;
    c->bad = c->bad || (size_t)(c->end - c->at) < sizeof group;
    if (!c->bad) {
        memcpy(&group, c->at, sizeof group);
        c->at += sizeof group;
    }
    return le64toh(group);
}

static int corrupt(size_t at, const char *what, struct err *err)
{
    return err_set(err, ERR_CORRUPT, "events of a feed: at byte %zu: %s", at, what);
}

int event_read(struct event_state *state, struct slice bytes, size_t *at, struct feed_event *out, struct err *err)
{
    const uint8_t *data = (const uint8_t *)bytes.data;
    if (*at == bytes.len) {
        return 0;
    }
    struct cursor c = {data + *at + 1, data + bytes.len, false};
    uint8_t kind = data[*at];
    uint64_t length = take_number(&c);
    if (c.bad || length > (size_t)(c.end - c.at)) {
        return corrupt(*at, "it is cut off", err);
    }
    if (kind == 0 || kind >= FEED_KINDS) {
        return err_set(err, ERR_VERSION, "events of a feed: kind %u is of a newer version than %s", kind,
                       UNSEEN_VERSION);
    }
    c.end = c.at + length;
    uint64_t distance = take_number(&c);
    int64_t at_ms = (int64_t)((uint64_t)state->at_ms + (uint64_t)unzigzag(take_number(&c)));
    int64_t recorded_ms = (int64_t)((uint64_t)at_ms + (uint64_t)unzigzag(take_number(&c)));
    struct slice user = take_text(&c);
    struct slice item = has_item(kind) ? take_text(&c) : slice_of("", 0);
    const uint64_t group = kind == FEED_GROUPED ? take_group(&c) : 0;
    user = user.len == 0 ? state->user : user;
    if (c.bad || c.at != c.end) {
        return corrupt(*at, "its length is wrong", err);
    }
    if (distance == 0 || distance > UINT64_MAX - state->seq) {
        return corrupt(*at, "its seq does not rise", err);
    }
    bool sized = kind == FEED_OFFSET ? user.len > 0 : user.len > 0 && user.len <= HASH_ID_MAX;
    if (!sized || (has_item(kind) && (item.len == 0 || item.len > HASH_ID_MAX))) {
        return corrupt(*at, "an id has no length, or too great a one", err);
    }
    if (kind == FEED_UNSEE_HASH && item.len != FEED_HASH_BYTES) {
        return corrupt(*at, "a hash doesn't have 8 bytes", err);
    }
    if (kind == FEED_GROUPED && group == 0) {
        return corrupt(*at, "its group is none", err);
    }
    const enum feed_kind is = kind == FEED_GROUPED ? FEED_DELIVERY : (enum feed_kind)kind;
    *out = (struct feed_event){state->seq + distance, is, user, item, at_ms, recorded_ms, group};
    *state = (struct event_state){out->seq, at_ms, user};
    *at = (size_t)(c.end - data);
    return 1;
}
