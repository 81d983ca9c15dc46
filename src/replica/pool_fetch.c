#include "replica/pool_fetch.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "dedup/dedup.h"
#include "dedup/pool.h"
#include "net/client.h"
#include "store/pools.h"

enum { PART_FIELDS = 3, TRIES_MAX = 100 };

struct part {
    uint64_t version;
    int64_t n;          /* of the whole pool */
    struct slice items; /* the reply's */
};

static int malformed(const struct pool_source *s, const char *what, struct err *err)
{
    return err_set(err, ERR_INVALID, "%s answers REPLICA %s with something else", s->address, what);
}

/* 1; 0: there is no such pool. */
static int ask_part(struct pool_source *s, struct slice name, int64_t from, struct part *out, struct err *err)
{
    char at[24];
    const struct reply *reply;
    snprintf(at, sizeof at, "%" PRId64, from);
    const struct slice words[] = {slice_str("REPLICA"), slice_str("POOL"), name, slice_str(at)};
    int rc = s->ask(s, words, 4, &reply, err);
    if (rc < 0 || reply->kind == REPLY_NULL) {
        return rc;
    }
    const struct reply *i = reply->items;
    if (reply->kind != REPLY_ARRAY || reply->n != PART_FIELDS || i[0].kind != REPLY_TEXT ||
        !pool_version_read(i[0].text, &out->version) || !reply_integer(&i[1], &out->n) || i[2].kind != REPLY_TEXT ||
        out->n < 1 || out->n > POOL_ITEMS_MAX) {
        return malformed(s, "POOL", err);
    }
    out->items = i[2].text;
    return 1;
}

/* -1: it ends within an item, or one is empty. */
static int64_t count(struct slice packed)
{
    int64_t n = 0;
    for (size_t at = 0; at < packed.len; n++) {
        size_t len = (uint8_t)packed.data[at];
        if (len == 0 || len > packed.len - at - 1) {
            return -1;
        }
        at += 1 + len;
    }
    return n;
}

static int append(struct pool_source *s, struct buf *items, struct slice more, struct err *err)
{
    if (s->charge != NULL) {
        s->charge(s, (int64_t)more.len);
    }
    if (buf_add(items, more.data, more.len) < 0) {
        if (s->charge != NULL) {
            s->charge(s, -(int64_t)more.len);
        }
        return err_set(err, ERR_NOMEM, "out of memory for a pool");
    }
    return 0;
}

static void empty(struct pool_source *s, struct buf *items)
{
    if (s->charge != NULL && items->len > 0) {
        s->charge(s, -(int64_t)items->len);
    }
    buf_clear(items);
}

static int check_whole(const struct pool_source *s, const struct pool_fetched *f, struct err *err)
{
    const struct store_pool pool = {.items = buf_slice(&f->items), .n = f->n, .version = f->version};
    return store_pool_problem(&pool) == NULL
               ? 1
               : err_set(err, ERR_INVALID, "%s answers REPLICA POOL with another list than its version says",
                         s->address);
}

/* All of it, of one version. Returns as ask_part(); ERR_BUSY: it changed meanwhile. */
static int fetch(struct pool_source *s, struct slice name, struct pool_fetched *out, struct err *err)
{
    struct part part;
    int64_t have = 0;
    int rc;
    empty(s, &out->items);
    while ((rc = ask_part(s, name, have, &part, err)) == 1) {
        if (have == 0) {
            out->version = part.version;
            out->n = (uint64_t)part.n;
        }
        if (have == 0 && s->has(s, name, part.version)) {
            return 1;
        }
        if (part.version != out->version) {
            return ERR_BUSY;
        }
        int64_t n = count(part.items);
        if (n < 1 || n > part.n - have || (uint64_t)part.n != out->n) {
            return malformed(s, "POOL", err);
        }
        if ((rc = append(s, &out->items, part.items, err)) < 0) {
            return rc;
        }
        have += n;
        if (have == part.n) {
            return check_whole(s, out, err);
        }
    }
    return rc == 0 && have > 0 ? ERR_BUSY : rc;
}

int pool_fetch(struct pool_source *s, struct slice name, struct pool_fetched *out, struct err *err)
{
    for (int i = 0; i < TRIES_MAX; i++) {
        int rc = fetch(s, name, out, err);
        if (rc != ERR_BUSY) {
            return rc;
        }
        if (s->stopping != NULL && s->stopping(s)) {
            return err_set(err, rc, "stopped while a pool was fetched");
        }
    }
    return err_set(err, ERR_BUSY, "the pool %s of %s changed %d times while it was fetched", log_quote(name),
                   s->address, TRIES_MAX);
}

void pool_fetch_free(struct pool_source *s, struct pool_fetched *f)
{
    empty(s, &f->items);
    buf_free(&f->items);
}

/* --- all of them --- */

bool pool_fetch_lists(const struct reply *list, struct slice name)
{
    for (size_t i = 0; i < list->n; i++) {
        if (slice_eq(list->items[i].items[0].text, name)) {
            return true;
        }
    }
    return false;
}

static bool is_list(const struct reply *list)
{
    bool good = list->kind == REPLY_ARRAY;
    for (size_t i = 0; good && i < list->n; i++) {
        const struct reply *row = &list->items[i];
        uint64_t version;
        good = row->kind == REPLY_ARRAY && row->n == 2 && row->items[0].kind == REPLY_TEXT &&
               row->items[1].kind == REPLY_TEXT && pool_version_read(row->items[1].text, &version) &&
               dedup_check_id("pool", 0, row->items[0].text, NULL) == 0;
    }
    return good;
}

int pool_fetch_names(struct pool_source *s,
                     int (*gone)(struct pool_source *s, const struct reply *list, struct buf *names), struct buf *names,
                     struct err *err)
{
    const struct reply *list;
    const struct slice words[] = {slice_str("REPLICA"), slice_str("POOLS")};
    int rc = s->ask(s, words, 2, &list, err);
    if (rc < 0) {
        return rc;
    }
    if (!is_list(list)) {
        return malformed(s, "POOLS", err);
    }
    rc = gone(s, list, names);
    for (size_t i = 0; rc == 0 && i < list->n; i++) { /* behind those that go, and make room */
        const struct reply *row = &list->items[i];
        uint64_t version = 0;
        pool_version_read(row->items[1].text, &version);
        rc = s->has(s, row->items[0].text, version) ? 0 : pool_pack(names, row->items[0].text);
    }
    return rc < 0 ? err_set(err, rc, "out of memory for pools") : 0;
}
