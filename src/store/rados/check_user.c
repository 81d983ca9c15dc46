#include "store/rados/check_user.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/rados/night.h"

enum {
    DAY_MS = 24 * 3600 * 1000,
    PROBLEM_TEXT = 1024,
    MARK_TEXT = 128,         /* of a month's figures in a mark */
    DELIVERIES_WAIT = 4096,  /* a merge comes after 64 */
    WAITS_DAYS = 2 * NIGHTS, /* the walk comes by within half of that */
};

void check_problem(struct checking *c, const char *format, ...)
{
    char text[PROBLEM_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->order->found(c->order->arg, text);
}

/* --- a user --- */

struct look {
    struct checking *c;
    struct slice user;
    bool generation, rewritten; /* it has one; it has something that is only written with one */
    struct slice directory;
    bool has_directory;
    size_t n_parts, n_deliveries, n_plays;
    uint64_t items;
    int64_t oldest_ms;
    bool forgotten, any; /* there is a tombstone; anything else */
};

static void say(struct look *k, struct slice key, const char *what)
{
    check_problem(k->c, "user %s: key %s: %s", log_quote(k->user), log_quote(key), what);
}

static bool lies_ahead(const struct look *k, int month)
{
    return month > month_of_ms(k->c->later + DAY_MS);
}

static void look_at_month(struct look *k, struct slice key, int month)
{
    if (month <= 0) {
        say(k, key, "no month");
    } else if (lies_ahead(k, month)) {
        say(k, key, "a month that lies ahead");
    }
}

static void look_at_delivery(struct look *k, struct slice key, const struct layout_key *parsed, struct slice value)
{
    struct layout_delivery d;
    k->n_deliveries++;
    if (layout_delivery_read(value, &d) < 0) {
        say(k, key, "the value is no month and item");
        return;
    }
    look_at_month(k, key, d.month);
    if (hash_id(k->c->s->seed, d.item) != parsed->hash) {
        say(k, key, "the hash is not the item's: of another seed, or damaged");
    }
}

static void look_at_play(struct look *k, struct slice key, int month, struct slice value)
{
    int64_t ms;
    k->n_plays++;
    look_at_month(k, key, month);
    if (layout_ms(value, &ms) < 0) {
        say(k, key, "the value is no time");
    } else if (ms < k->oldest_ms) {
        k->oldest_ms = ms;
    }
}

static void look_at_tombstone(struct look *k, struct slice key, struct slice value)
{
    int64_t ms;
    if (layout_ms(value, &ms) < 0) {
        say(k, key, "the value is no time: plays of a stated time are refused");
    } else if (ms > k->c->later + DAY_MS) {
        say(k, key, "a time that lies ahead");
    }
}

/* What the blob says of itself goes to the list that the directory is compared with. */
static int look_at_filter(struct look *k, struct slice key, const struct layout_key *parsed, struct slice value)
{
    struct filter filter;
    struct err why = {0};
    struct layout_part part = {.month = parsed->month, .part = parsed->part};
    look_at_month(k, key, parsed->month);
    int result = filter_weigh(value.data, value.len, &filter, &why);
    if (result == ERR_NOMEM) {
        return result;
    }
    if (result < 0) {
        say(k, key, why.text);
    } else {
        part = layout_part_of(&filter, parsed->month, parsed->part);
        k->items += part.items;
    }
    part.bytes = (uint32_t)value.len;
    k->n_parts++;
    return buf_add(&k->c->parts, &part, sizeof part);
}

static bool is_among(const char *kinds, enum layout_kind kind)
{
    return kind != LAYOUT_OTHER && strchr(kinds, (int)kind) != NULL;
}

static int look_at_key(struct look *k, const struct walk_pair *pair)
{
    struct layout_key parsed = layout_key_read(pair->key);
    uint64_t n;
    k->forgotten = k->forgotten || parsed.kind == LAYOUT_FORGOTTEN;
    k->any = k->any || is_among("dmpqx", parsed.kind);
    k->rewritten = k->rewritten || is_among("fmqwx", parsed.kind);
    switch (parsed.kind) {
    case LAYOUT_DELIVERY:
        look_at_delivery(k, pair->key, &parsed, pair->value);
        break;
    case LAYOUT_FORGOTTEN:
        look_at_tombstone(k, pair->key, pair->value);
        break;
    case LAYOUT_GENERATION:
        k->generation = true;
        if (!layout_unhex(pair->value, &n)) {
            say(k, pair->key, "the value is no generation");
        }
        break;
    case LAYOUT_FILTER:
        return look_at_filter(k, pair->key, &parsed, pair->value);
    case LAYOUT_PLAY:
        look_at_play(k, pair->key, parsed.month, pair->value);
        break;
    case LAYOUT_DAMAGED: {
        char name[MONTH_TEXT];
        check_problem(k->c, "user %s: %s marked as damaged: their questions fail, or leave it out (on_damage)",
                      log_quote(k->user), parsed.month == 0 ? "deliveries" : month_name(parsed.month, name));
        break;
    }
    case LAYOUT_DIRECTORY:
        k->has_directory = true;
        k->directory = pair->value;
        break;
    case LAYOUT_EXCEPTION:
        if (pair->value.len > 0) {
            say(k, pair->key, "there is a value");
        }
        break;
    case LAYOUT_OTHER:
        say(k, pair->key, "Unseen didn't write it");
        break;
    }
    return 0;
}

static bool is_same(const struct layout_part *a, const struct layout_part *b)
{
    return a->bytes == b->bytes && a->items == b->items && a->live == b->live && a->coarse == b->coarse &&
           a->sealed == b->sealed;
}

static void say_part(struct look *k, const struct layout_part *p, const char *what)
{
    char name[MONTH_TEXT];
    check_problem(k->c, "user %s: %s, part %04x: %s", log_quote(k->user), month_name(p->month, name), p->part, what);
}

/* What a merge unites is chosen by the directory alone; what it doesn't know is only ever read. */
static void look_at_directory(struct look *k)
{
    const struct layout_part *parts = (const struct layout_part *)(const void *)k->c->parts.data;
    int n = k->has_directory ? layout_directory_count(k->directory) : 0;
    if (n < 0) {
        check_problem(k->c, "user %s: the directory of the filters is damaged", log_quote(k->user));
        return;
    }
    for (size_t i = 0; i < k->n_parts; i++) {
        bool listed = false;
        for (int j = 0; j < n && !listed; j++) {
            struct layout_part want = layout_directory_part(k->directory, (size_t)j);
            listed = want.month == parts[i].month && want.part == parts[i].part;
            if (listed && !is_same(&want, &parts[i])) {
                say_part(k, &parts[i], "it is not what the directory says of it");
            }
        }
        if (!listed) {
            say_part(k, &parts[i], "the directory doesn't know it");
        }
    }
    for (int j = 0; j < n; j++) {
        struct layout_part want = layout_directory_part(k->directory, (size_t)j);
        bool there = false;
        for (size_t i = 0; i < k->n_parts && !there; i++) {
            there = want.month == parts[i].month && want.part == parts[i].part;
        }
        if (!there) {
            say_part(k, &want, "the directory knows it, and it is missing");
        }
    }
}

static void look_at_whole(struct look *k, const struct walked *object)
{
    look_at_directory(k);
    if (k->rewritten && !k->generation) {
        check_problem(k->c, "user %s: there is no generation", log_quote(k->user));
    }
    if (k->n_plays > 0 && k->oldest_ms > 0 && k->c->later - k->oldest_ms > WAITS_DAYS * (int64_t)DAY_MS) {
        check_problem(k->c, "user %s: a play has waited for %" PRId64 " days to be merged", log_quote(k->user),
                      (k->c->later - k->oldest_ms) / DAY_MS);
    }
    size_t count = (size_t)config_now(k->c->s->cfg)->delivered_max;
    if (k->n_deliveries > count * DELIVERED_TIMES + DELIVERIES_WAIT) {
        check_problem(k->c, "user %s: %zu deliveries, of which %zu count: no merge has removed the others",
                      log_quote(k->user), k->n_deliveries, count);
    }
    if (object->n == 0) {
        check_problem(k->c, "user %s: the object is empty", log_quote(k->user));
    }
}

int check_user(struct checking *c, struct slice user, const struct walked *object, struct err *err)
{
    struct look k = {.c = c, .user = user, .oldest_ms = INT64_MAX};
    int result = 0;
    buf_clear(&c->parts);
    for (size_t i = 0; i < object->n && result == 0; i++) {
        result = look_at_key(&k, &object->pairs[i]);
    }
    if (result < 0) {
        return err_set(err, ERR_NOMEM, "out of memory while checking user %s", log_quote(user));
    }
    look_at_whole(&k, object);
    c->out->users += k.any;
    c->out->forgotten += k.forgotten && !k.any;
    c->out->plays += k.items;
    c->out->waiting += k.n_plays;
    return 0;
}

/* --- what isn't a user's --- */

/* What of meta has to be sound, the store that was opened has seen. */
void check_meta(struct checking *c, const struct walked *object)
{
    static const char *const known[] = {"schema", "seed", "error_rate", "starts", "lineage", "clock"};
    for (size_t i = 0; i < object->n; i++) {
        bool found = false;
        for (size_t j = 0; j < sizeof known / sizeof *known; j++) {
            found = found || slice_eq(object->pairs[i].key, slice_str(known[j]));
        }
        if (!found) {
            check_problem(c, "object meta: key %s: Unseen didn't write it", log_quote(object->pairs[i].key));
        }
    }
}

static bool is_month_mark(struct slice key, struct slice value)
{
    char name[LAYOUT_MONTH + 1], text[MARK_TEXT], end;
    uint64_t n[4];
    if (key.len != LAYOUT_MONTH || value.len >= sizeof text) {
        return false;
    }
    memcpy(name, key.data, LAYOUT_MONTH);
    name[LAYOUT_MONTH] = '\0';
    memcpy(text, value.data, value.len);
    text[value.len] = '\0';
    return month_parse(name) > 0 &&
           sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 "%c", &n[0], &n[1], &n[2], &n[3], &end) == 4;
}

/* An object without marks is one that a node has locked and not walked yet. */
void check_night(struct checking *c, size_t i, const struct walked *object)
{
    int64_t today = c->later / DAY_MS;
    for (size_t j = 0; j < object->n; j++) {
        struct slice key = object->pairs[j].key, value = object->pairs[j].value;
        uint64_t n;
        bool done = slice_eq(key, slice_str("done"));
        bool good = done || slice_eq(key, slice_str("forgotten")) ? layout_unhex(value, &n) : is_month_mark(key, value);
        if (!good) {
            check_problem(c, "object night.%zu: key %s: Unseen didn't write it", i, log_quote(key));
        } else if (done && (int64_t)n > today + 1) {
            check_problem(c, "object night.%zu: the nightly walk came by on a day that lies ahead", i);
        } else if (done && today - (int64_t)n > WAITS_DAYS) {
            check_problem(
                c,
                "object night.%zu: the nightly walk hasn't come by for %" PRId64
                " days: nothing is sealed, and nothing past retention goes; a node has to run in sweep_window",
                i, today - (int64_t)n);
        }
    }
}
