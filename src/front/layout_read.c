/* What stands in the front's Redis as a reader sees it: every byte is validated before it is believed. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "front/layout.h"

enum { FIELDS_MAX = USER_SNAPSHOT_LISTS_MAX + 8 };

static uint64_t get_little(const char *at, int n)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++) {
        v |= (uint64_t)(uint8_t)at[i] << (8 * i);
    }
    return v;
}

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory for the front");
}

/* --- numbers as text --- */

/* base 10 or 16 (lower case); the whole text. */
static bool read_number(struct slice text, uint64_t base, uint64_t *out)
{
    uint64_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        const char c = text.data[i];
        uint64_t digit = c >= '0' && c <= '9'   ? (uint64_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint64_t)(c - 'a') + 10
                                                : 16;
        if (digit >= base || n > (UINT64_MAX - digit) / base) {
            return false;
        }
        n = n * base + digit;
    }
    *out = n;
    return text.len > 0 && (base != 10 || text.data[0] != '0' || text.len == 1); /* as scripts compare them: as text */
}

static bool read_signed(struct slice text, int64_t *out)
{
    const bool minus = text.len > 0 && text.data[0] == '-';
    uint64_t n;
    if (!read_number(slice_of(text.data + minus, text.len - minus), 10, &n) || n > (uint64_t)INT64_MAX + minus) {
        return false;
    }
    *out = minus ? (int64_t)(0 - n) : (int64_t)n;
    return true;
}

/* Redis keeps scores as doubles, which hold such a number exactly. */
static bool read_seq(struct slice text, uint64_t *out)
{
    return read_number(text, 10, out) && *out < (uint64_t)1 << 53;
}

/* --- meta --- */

#define EPOCH_MAX (((uint64_t)1 << 53) - 1) /* the next one could not be read */

static bool read_flag(struct slice text, bool *out)
{
    *out = slice_eq(text, slice_str("1"));
    return *out || slice_eq(text, slice_str("0"));
}

static bool read_first(struct slice text, int *out)
{
    char month[sizeof "202609"];
    snprintf(month, sizeof month, "%.*s", (int)(text.len < sizeof month ? text.len : sizeof month), text.data);
    return text.len == sizeof month - 1 && (*out = month_parse(month)) > 0;
}

static bool read_most(struct slice text, uint64_t *out)
{
    return read_number(text, 10, out) && *out <= DELIVERED_MAX;
}

static bool read_field(struct front_meta *m, struct slice name, struct slice value)
{
    return slice_eq(name, slice_str("seed"))    ? read_number(value, 16, &m->seed)
           : slice_eq(name, slice_str("node"))  ? read_number(value, 16, &m->node)
           : slice_eq(name, slice_str("run"))   ? read_number(value, 16, &m->run)
           : slice_eq(name, slice_str("epoch")) ? read_seq(value, &m->epoch)
           : slice_eq(name, slice_str("to"))    ? read_seq(value, &m->to)
           : slice_eq(name, slice_str("term"))  ? read_seq(value, &m->term)
           : slice_eq(name, slice_str("full"))  ? read_flag(value, &m->full)
           : slice_eq(name, slice_str("clear")) ? read_flag(value, &m->clearing)
           : slice_eq(name, slice_str("walk"))  ? read_signed(value, &m->walk)
           : slice_eq(name, slice_str("ev"))    ? read_number(value, 10, &m->evicted)
           : slice_eq(name, slice_str("at"))    ? read_signed(value, &m->at_ms)
           : slice_eq(name, slice_str("first")) ? read_first(value, &m->first_month)
           : slice_eq(name, slice_str("most"))  ? read_most(value, &m->delivered)
                                                : true; /* of a later version, of no concern here */
}

static bool is_text(const struct reply *r)
{
    return r->kind == REPLY_TEXT;
}

int front_meta_read(const struct reply *hash, struct front_meta *out, struct err *err)
{
    uint64_t version = 0;
    bool has_to = false, has_full = false, has_walk = false;
    *out = (struct front_meta){.present = false};
    if (is_text(hash)) { /* what Redis or the script said instead */
        return err_set(err, ERR_CORRUPT, "the front's meta: %.*s", (int)(hash->text.len < 200 ? hash->text.len : 200),
                       hash->text.data);
    }
    if (hash->kind != REPLY_ARRAY || hash->n % 2 != 0) {
        return err_set(err, ERR_CORRUPT, "the front's meta is no hash");
    }
    if (hash->n == 0) {
        return 0;
    }
    for (size_t i = 0; i < hash->n; i += 2) {
        const struct reply *name = &hash->items[i], *value = &hash->items[i + 1];
        bool good = is_text(name) && is_text(value);
        if (good && slice_eq(name->text, slice_str("v"))) {
            good = read_number(value->text, 10, &version);
        } else if (good) {
            good = read_field(out, name->text, value->text);
            has_to = has_to || slice_eq(name->text, slice_str("to"));
            has_full = has_full || slice_eq(name->text, slice_str("full"));
            has_walk = has_walk || slice_eq(name->text, slice_str("walk"));
        }
        if (!good) {
            *out = (struct front_meta){.present = false};
            return err_set(err, ERR_CORRUPT, "the front's meta: field %zu can't be read", i / 2 + 1);
        }
    }
    if (version < 1 || version > FRONT_LAYOUT) {
        *out = (struct front_meta){.present = false};
        return err_set(err, version > FRONT_LAYOUT ? ERR_VERSION : ERR_CORRUPT,
                       "what stands in the front has layout %" PRIu64 ", this version reads %d", version, FRONT_LAYOUT);
    }
    if (out->node == 0 || out->epoch == 0 || out->epoch >= EPOCH_MAX || !has_to || !has_full ||
        (!out->full && !has_walk)) {
        *out = (struct front_meta){.present = false};
        return err_set(err, ERR_CORRUPT, "the front's meta lacks node, epoch, to, full, or how far it is filled");
    }
    out->present = true;
    return 0;
}

/* --- a user --- */

static bool month_good(uint64_t month)
{
    return month <= USER_SNAPSHOT_MONTH_MAX;
}

struct state_reading {
    struct front_user *user;
    struct snapshot_month *months;
    size_t n_fields;
    bool giant, damaged;
};

/* "m202611" */
static bool read_month(struct state_reading *s, struct slice name, struct slice blob)
{
    char text[MONTH_TEXT];
    if (name.len != 7 || s->user->n_months == USER_SNAPSHOT_LISTS_MAX) {
        return false;
    }
    snprintf(text, sizeof text, "%.4s-%.2s", name.data + 1, name.data + 5);
    int month = month_parse(text);
    if (month < 0 || !month_good((uint64_t)month)) {
        return false;
    }
    s->months[s->user->n_months++] = (struct snapshot_month){month, blob};
    return true;
}

static bool read_plays(struct state_reading *s, struct slice value)
{
    bool good = value.len % FRONT_PLAY_BYTES == 0;
    for (size_t at = 0; at < value.len && good; at += FRONT_PLAY_BYTES) {
        good = month_good(get_little(value.data + at + FRONT_HASH_BYTES, 4));
    }
    s->user->plays = value;
    return good;
}

static bool read_state_field(struct state_reading *s, struct slice name, struct slice value)
{
    struct front_user *u = s->user;
    if (name.len == 0) {
        return false;
    }
    if (name.data[0] == 'm') {
        return read_month(s, name, value);
    }
    switch (name.len == 1 ? name.data[0] : '\0') {
    case 'r':
        return read_seq(value, &u->revision);
    case 's':
        return read_seq(value, &u->stale);
    case 'g':
        return read_flag(value, &s->giant);
    case 'b':
        return read_flag(value, &s->damaged);
    case 'p':
        return read_plays(s, value);
    case 'd':
        u->deliveries = value;
        return true;
    case 'x':
        u->exceptions = value;
        return value.len % FRONT_HASH_BYTES == 0;
    default:
        return false; /* something that this version doesn't know may be needed to answer */
    }
}

static int by_month(const void *a, const void *b)
{
    const struct snapshot_month *x = a, *y = b;
    return (x->month > y->month) - (x->month < y->month);
}

static enum store_kind kind_of(const struct reply *member)
{
    return (uint8_t)member->text.data[0] == STORE_PLAY ? STORE_PLAY : STORE_DELIVERY;
}

/* Of a delivery: where its item begins. */
static size_t item_at(const struct reply *member)
{
    const int kind = (uint8_t)member->text.data[0];
    return kind == FRONT_GROUPED ? FRONT_GROUPED_BYTES : kind == FRONT_SENT ? FRONT_SENT_BYTES : FRONT_EVENT_BYTES;
}

static bool has_time(const struct reply *member)
{
    return item_at(member) != FRONT_EVENT_BYTES;
}

static uint64_t group_of(const struct reply *member)
{
    return (uint8_t)member->text.data[0] == FRONT_GROUPED ? get_little(member->text.data + FRONT_SENT_BYTES, 8) : 0;
}

static bool member_good(const struct reply *member)
{
    const size_t len = member->text.len;
    if (len < FRONT_EVENT_BYTES) {
        return false;
    }
    const int kind = (uint8_t)member->text.data[0];
    const bool sent = len > item_at(member) && len - item_at(member) <= 255;
    return has_time(member)
               ? sent && (kind == FRONT_SENT || group_of(member) != 0)
               : month_good(get_little(member->text.data + 1 + FRONT_HASH_BYTES, 4)) &&
                     ((kind == STORE_PLAY && len == FRONT_EVENT_BYTES) || (kind == STORE_DELIVERY && sent));
}

/* What layout 1 knows of it is the month. */
static int64_t sent_ms(const struct reply *member)
{
    const char *at = member->text.data + 1 + FRONT_HASH_BYTES;
    return has_time(member) ? (int64_t)get_little(at, 8) : month_start_ms((int)get_little(at, 4));
}

static bool events_good(const struct reply *events)
{
    bool good = events->kind == REPLY_ARRAY && events->n % 2 == 0;
    uint64_t before = 0;
    for (size_t i = 0; good && i < events->n; i += 2) {
        const struct reply *member = &events->items[i], *score = &events->items[i + 1];
        uint64_t seq;
        good = is_text(member) && is_text(score) && read_seq(score->text, &seq) && seq >= before && member_good(member);
        before = good ? seq : 0;
    }
    return good;
}

int front_user_read(const struct reply *state, const struct reply *events, struct arena *arena, struct front_user *out,
                    struct err *err)
{
    struct state_reading s = {.user = out};
    *out = (struct front_user){.verdict = FRONT_WHOLE};
    if (is_text(state) || is_text(events)) { /* what Redis or the script said instead */
        const struct slice said = is_text(state) ? state->text : events->text;
        return err_set(err, ERR_CORRUPT, "a user in the front: %.*s", (int)(said.len < 200 ? said.len : 200),
                       said.data);
    }
    if (state->kind != REPLY_ARRAY || state->n % 2 != 0 || state->n > 2 * FIELDS_MAX) {
        return err_set(err, ERR_CORRUPT, "a state in the front is no hash of at most %d fields", FIELDS_MAX);
    }
    s.months = arena_alloc(arena, (state->n / 2 + 1) * sizeof *s.months);
    if (s.months == NULL) {
        return out_of_memory(err);
    }
    for (size_t i = 0; i < state->n; i += 2) {
        const struct reply *name = &state->items[i], *value = &state->items[i + 1];
        if (!is_text(name) || !is_text(value) || !read_state_field(&s, name->text, value->text)) {
            return err_set(err, ERR_CORRUPT, "a state in the front: field %zu can't be read", i / 2 + 1);
        }
    }
    if (state->n > 0 && out->revision == 0 && out->stale == 0) {
        return err_set(err, ERR_CORRUPT, "a state in the front has no revision");
    }
    if (events->kind == REPLY_INTEGER) { /* so many that they were not read */
        s.giant = true;
    } else if (!events_good(events)) {
        return err_set(err, ERR_CORRUPT, "an event in the front can't be read");
    }
    qsort(s.months, out->n_months, sizeof *s.months, by_month);
    out->months = s.months;
    out->events = events->items;
    out->n_events = events->kind == REPLY_ARRAY ? events->n / 2 : 0;
    out->tombstone = state->n == 2 && out->revision > 0;
    out->known = (state->n > 0 && !out->tombstone) || out->n_events > 0;
    out->verdict = s.giant                      ? FRONT_GIANT
                   : s.damaged                  ? FRONT_DAMAGED
                   : out->revision < out->stale ? FRONT_STALE
                                                : FRONT_WHOLE;
    return 0;
}

/* --- as a question sees it --- */

static size_t count_plays(const struct front_user *u)
{
    size_t n = u->plays.len / FRONT_PLAY_BYTES;
    for (size_t i = 0; i < u->n_events; i++) {
        n += kind_of(&u->events[2 * i]) == STORE_PLAY;
    }
    return n;
}

/* Staged ones of the state, then events. */
static int read_all_plays(const struct front_user *u, int first_month, struct arena *arena, struct store_play **out,
                          size_t *n, struct err *err)
{
    struct store_play *list = arena_alloc(arena, (count_plays(u) + 1) * sizeof *list);
    *n = 0;
    *out = list;
    if (list == NULL) {
        return out_of_memory(err);
    }
    for (size_t at = 0; at < u->plays.len; at += FRONT_PLAY_BYTES) {
        int month = (int)get_little(u->plays.data + at + FRONT_HASH_BYTES, 4);
        if (month >= first_month) {
            list[(*n)++] = (struct store_play){get_little(u->plays.data + at, FRONT_HASH_BYTES), month};
        }
    }
    for (size_t i = 0; i < u->n_events; i++) {
        const char *member = u->events[2 * i].text.data;
        int month = (int)get_little(member + 1 + FRONT_HASH_BYTES, 4);
        if (kind_of(&u->events[2 * i]) == STORE_PLAY && month >= first_month) {
            list[(*n)++] = (struct store_play){get_little(member + 1, FRONT_HASH_BYTES), month};
        }
    }
    return 0;
}

/* The state's, with those of events; in the arena. */
static int read_all_deliveries(const struct front_user *u, uint64_t seed, size_t max, struct delivered_codec *codec,
                               struct arena *arena, struct delivered *out, struct err *err)
{
    struct delivered stored = {0};
    if (u->deliveries.len > 0) {
        int rc = delivered_unpack(codec, u->deliveries.data, u->deliveries.len, seed, arena, &stored, err);
        if (rc < 0) {
            return rc;
        }
    }
    *out = (struct delivered){.list = arena_alloc(arena, (stored.n + u->n_events + 1) * sizeof *out->list)};
    if (out->list == NULL) {
        return out_of_memory(err);
    }
    if (stored.n > 0) {
        memcpy(out->list, stored.list, stored.n * sizeof *out->list);
    }
    out->n = stored.n;
    for (size_t i = 0; i < u->n_events; i++) {
        const struct reply *member = &u->events[2 * i];
        if (kind_of(member) == STORE_DELIVERY) {
            struct slice item = slice_of(member->text.data + item_at(member), member->text.len - item_at(member));
            const char *copy = arena_copy(arena, item.data, item.len);
            uint64_t seq = 0;
            if (copy == NULL) {
                return out_of_memory(err);
            }
            read_seq(u->events[2 * i + 1].text, &seq);
            out->list[out->n++] = (struct store_delivery){.stamp = delivered_stamp(sent_ms(member), seq),
                                                          .hash = get_little(member->text.data + 1, FRONT_HASH_BYTES),
                                                          .item = slice_of(copy, item.len),
                                                          .group = group_of(member)};
        }
    }
    delivered_unite(out, max);
    return 0;
}

static int read_exceptions(const struct front_user *u, struct arena *arena, uint64_t **out, size_t *n, struct err *err)
{
    *n = u->exceptions.len / FRONT_HASH_BYTES;
    *out = arena_alloc(arena, (*n + 1) * FRONT_HASH_BYTES);
    if (*out == NULL) {
        return out_of_memory(err);
    }
    for (size_t i = 0; i < *n; i++) {
        (*out)[i] = get_little(u->exceptions.data + i * FRONT_HASH_BYTES, FRONT_HASH_BYTES);
    }
    return 0;
}

int front_user_view(const struct front_user *u, uint64_t seed, int first_month, size_t delivered_max,
                    struct delivered_codec *codec, struct arena *arena, struct store_view *view, struct err *err)
{
    struct store_play *plays;
    struct delivered deliveries;
    uint64_t *exceptions;
    struct store_month *months = arena_alloc(arena, (u->n_months + 1) * sizeof *months);
    *view = (struct store_view){.known = u->known, .months = months};
    if (months == NULL) {
        return out_of_memory(err);
    }
    for (size_t i = u->n_months; i > 0 && u->months[i - 1].month >= first_month; i--) {
        const struct snapshot_month *m = &u->months[i - 1];
        struct store_month *into = &months[view->n_months++];
        *into = (struct store_month){.month = m->month, .bytes = (uint32_t)m->blob.len};
        int rc = filter_decode(m->blob.data, m->blob.len, arena, &into->filter, err);
        if (rc < 0) {
            char name[MONTH_TEXT];
            return err_prefix(err, "the front's %s", month_name(m->month, name));
        }
    }
    int rc = read_all_plays(u, first_month, arena, &plays, &view->n_plays, err);
    if (rc == 0) {
        rc = read_all_deliveries(u, seed, delivered_max, codec, arena, &deliveries, err);
    }
    if (rc == 0) {
        rc = read_exceptions(u, arena, &exceptions, &view->n_exceptions, err);
    }
    if (rc == 0) {
        view->plays = plays;
        view->deliveries = deliveries.list;
        view->n_deliveries = deliveries.n;
        view->exceptions = exceptions;
    }
    return rc;
}

/* --- as a snapshot --- */

int front_user_snapshot(const struct front_user *u, struct slice user, uint64_t seed, size_t delivered_max,
                        struct delivered_codec *codec, struct arena *arena, struct buf *blob, struct user_snapshot *out,
                        struct err *err)
{
    struct store_play *plays;
    struct delivered deliveries;
    uint64_t *exceptions;
    *out = (struct user_snapshot){
        .key = hash_user_key(seed, user), .user = user, .months = u->months, .n_months = u->n_months};
    int rc = read_all_plays(u, INT32_MIN, arena, &plays, &out->n_plays, err);
    if (rc == 0) {
        rc = read_exceptions(u, arena, &exceptions, &out->n_exceptions, err);
    }
    if (rc == 0) {
        rc = read_all_deliveries(u, seed, delivered_max, codec, arena, &deliveries, err);
    }
    if (rc == 0 && deliveries.n > 0) {
        buf_clear(blob);
        rc = delivered_pack(codec, &deliveries, blob) < 0 ? out_of_memory(err) : 0;
        out->deliveries = buf_slice(blob);
    }
    if (rc == 0) {
        out->n_plays = user_snapshot_sort_plays(plays, out->n_plays);
        hash_sort(exceptions, out->n_exceptions);
        out->plays = plays;
        out->exceptions = exceptions;
    }
    return rc;
}
