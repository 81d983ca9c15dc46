/* Pools, as the primary has them now. An event only says that one has changed; what it is is asked for, and the answer
 * may be newer than the event: then that comes, too, and finds it there already. Whatever else lets a replica's pools
 * differ (it was the primary before, it was cloned) is found when it connects, by their versions. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "dedup/pools.h"
#include "replica/follower_impl.h"

enum { PROTOCOL_POOLS = 3, POOL_FIELDS = 3 };

static void on_changed(struct pool_change *change)
{
    follower_tell(change->owner);
}

/* Until it is durable. What passes is tried again. */
static int make(struct follower *f, const struct pool_change *how, struct err *err)
{
    struct pool_change change;
    int64_t delay_ms = 0;
    do {
        change = *how;
        change.replicated = true;
        change.done = on_changed;
        change.owner = f;
        pools_change(f->r->dedup->pools, &change);
        follower_await(f);
    } while (change.err.code < 0 && follower_again(f, "a pool", &change.err, &delay_ms));
    return change.err.code < 0 ? err_set(err, change.err.code, "%s", change.err.text) : 0;
}

static bool has_version(struct follower *f, struct slice name, uint64_t version)
{
    const struct pool_table *table = pools_take(f->r->dedup->pools);
    const struct pool *pool = pool_table_find(table, name);
    bool has = pool != NULL && pool->version == version;
    pools_let_go(table);
    return has;
}

static int malformed(const struct follower *f, const char *what, struct err *err)
{
    return err_set(err, ERR_INVALID, "%s answers REPLICA %s with something else", f->address, what);
}

static int ask(struct follower *f, struct client *client, const struct slice *words, size_t n,
               const struct reply **reply, struct err *err)
{
    int rc = client_queue(client, words, n, err);
    if (rc < 0 || (rc = follower_reply(f, client, FOLLOWER_SILENCE_MS, reply, err)) < 0) {
        return rc;
    }
    return (*reply)->kind == REPLY_ERROR
               ? err_set(err, ERR_SYSTEM, "%s: %.*s", f->address, (int)(*reply)->text.len, (*reply)->text.data)
               : 0;
}

struct part {
    uint64_t version;
    int64_t n;          /* of the whole pool */
    struct slice items; /* the reply's */
};

/* 1; 0: there is no such pool. */
static int ask_part(struct follower *f, struct client *client, struct slice name, uint64_t from, struct part *out,
                    struct err *err)
{
    char at[24];
    const struct reply *reply;
    snprintf(at, sizeof at, "%" PRIu64, from);
    const struct slice words[] = {slice_str("REPLICA"), slice_str("POOL"), name, slice_str(at)};
    int rc = ask(f, client, words, 4, &reply, err);
    if (rc < 0 || reply->kind == REPLY_NULL) {
        return rc;
    }
    const struct reply *i = reply->items;
    if (reply->kind != REPLY_ARRAY || reply->n != POOL_FIELDS || i[0].kind != REPLY_TEXT ||
        !pool_version_read(i[0].text, &out->version) || !reply_integer(&i[1], &out->n) || i[2].kind != REPLY_TEXT) {
        return malformed(f, "POOL", err);
    }
    out->items = i[2].text;
    return 1;
}

static int64_t count(struct slice packed)
{
    int64_t n = 0;
    for (size_t at = 0; at < packed.len; at += 1 + (size_t)(uint8_t)packed.data[at]) {
        n++;
    }
    return n;
}

/* All of it, of one version. Returns as ask_part(); ERR_BUSY: it changed meanwhile. */
static int ask_pool(struct follower *f, struct client *client, struct slice name, struct buf *items, struct part *part,
                    struct err *err)
{
    int64_t have = 0;
    uint64_t version = 0;
    int rc;
    buf_clear(items);
    while ((rc = ask_part(f, client, name, (uint64_t)have, part, err)) == 1) {
        if (have == 0 && has_version(f, name, part->version)) {
            return 1;
        }
        version = have == 0 ? part->version : version;
        if (part->version != version) {
            return ERR_BUSY;
        }
        if (buf_add(items, part->items.data, part->items.len) < 0) {
            return err_set(err, ERR_NOMEM, "out of memory for a pool");
        }
        int64_t n = count(part->items);
        have += n;
        if (have >= part->n) {
            return 1;
        }
        if (n == 0) {
            return malformed(f, "POOL", err);
        }
        heartbeat_now(&f->heartbeat);
    }
    return rc == 0 && have > 0 ? ERR_BUSY : rc;
}

int follower_take_pool(struct follower *f, struct client *client, struct slice name, struct err *err)
{
    struct buf items = {0};
    struct part part;
    int rc;
    do {
        rc = ask_pool(f, client, name, &items, &part, err);
    } while (rc == ERR_BUSY && !follower_stopping(f));
    if (rc == 0) {
        const struct pool_change drop = {.kind = POOL_DROP, .name = name};
        rc = make(f, &drop, err);
    } else if (rc == 1 && items.len > 0) {
        const struct pool_change set = {.kind = POOL_SET, .name = name, .items = buf_slice(&items)};
        rc = make(f, &set, err);
    }
    buf_free(&items);
    return rc < 0 ? rc : 0;
}

/* --- all of them --- */

static bool is_listed(const struct reply *list, struct slice name)
{
    for (size_t i = 0; i < list->n; i++) {
        if (slice_eq(list->items[i].items[0].text, name)) {
            return true;
        }
    }
    return false;
}

/* Names of those that differ, packed: asking about them ends the reply that they stand in. */
static int list_different(struct follower *f, const struct reply *list, struct buf *names, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < list->n; i++) {
        const struct reply *row = &list->items[i];
        if (row->kind != REPLY_ARRAY || row->n != 2 || row->items[0].kind != REPLY_TEXT ||
            row->items[1].kind != REPLY_TEXT || dedup_check_id("pool", 0, row->items[0].text, NULL) < 0) {
            return malformed(f, "POOLS", err);
        }
    }
    const struct pool_table *table = pools_take(f->r->dedup->pools);
    for (size_t i = 0; i < table->n && rc == 0; i++) {
        rc = is_listed(list, table->list[i]->name) ? 0 : pool_pack(names, table->list[i]->name);
    }
    pools_let_go(table);
    for (size_t i = 0; i < list->n && rc == 0; i++) { /* behind those that go, and make room */
        const struct reply *row = &list->items[i];
        uint64_t version;
        if (!pool_version_read(row->items[1].text, &version)) {
            return malformed(f, "POOLS", err);
        }
        rc = has_version(f, row->items[0].text, version) ? 0 : pool_pack(names, row->items[0].text);
    }
    return rc < 0 ? err_set(err, rc, "out of memory for pools") : 0;
}

int follower_compare_pools(struct follower *f, int64_t protocol, struct err *err)
{
    struct buf names = {0};
    const struct reply *list;
    const struct slice words[] = {slice_str("REPLICA"), slice_str("POOLS")};
    if (protocol < PROTOCOL_POOLS || f->r->dedup->pools == NULL) {
        return 0; /* it has none; or nobody asks about any here */
    }
    int rc = ask(f, f->client, words, 2, &list, err);
    if (rc == 0) {
        rc = list->kind == REPLY_ARRAY ? list_different(f, list, &names, err) : malformed(f, "POOLS", err);
    }
    for (size_t at = 0; rc == 0 && at < names.len; at += 1 + (size_t)(uint8_t)names.data[at]) {
        rc = follower_take_pool(f, f->client, slice_of(names.data + at + 1, (uint8_t)names.data[at]), err);
    }
    buf_free(&names);
    return rc;
}
