/* REPLICA POOLS and POOL: what a replica asks of pools. An event of the feed may come there before its change is seen
 * here: so these are answered behind all changes that were begun. */
#include <string.h>

#include "dedup/pools.h"
#include "resp/args.h"
#include "resp/command.h"
#include "resp/deferred.h"

enum { ITEMS_BYTES = 512 * 1024 };

struct pool_deferred {
    struct deferred deferred;
    struct pool_change change;
    char name[ID_MAX];
    size_t from;
};

static void on_seen(struct pool_change *change)
{
    deferred_done(change->owner);
}

static enum outcome start(struct resp_client *s, struct slice name, size_t from,
                          void (*answer)(struct deferred *deferred, struct resp_client *s))
{
    struct pools *pools = service_dedup(&s->conn)->pools;
    if (pools == NULL) {
        return resp_client_lacks(s, "pools");
    }
    struct pool_deferred *t = deferred_new(sizeof *t, s, answer);
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory");
    }
    memcpy(t->name, name.data, name.len);
    t->from = from;
    t->change =
        (struct pool_change){.kind = POOL_NOTHING, .name = slice_of(t->name, name.len), .done = on_seen, .owner = t};
    pools_change(pools, &t->change);
    return OUTCOME_LATER;
}

/* NULL: it has failed, and that was written. */
static const struct pool_table *look(const struct pool_deferred *t, struct resp_client *s)
{
    if (t->change.err.code < 0) {
        resp_client_write_err(s, &t->change.err);
        return NULL;
    }
    return service_pools(service_of(&s->conn));
}

static void answer_pools(struct deferred *deferred, struct resp_client *s)
{
    const struct pool_table *table = look((struct pool_deferred *)deferred, s);
    char version[POOL_VERSION_TEXT];
    if (table != NULL) {
        write_array(&s->writer, table->n);
    }
    for (size_t i = 0; table != NULL && i < table->n; i++) {
        write_array(&s->writer, 2);
        write_bulk(&s->writer, table->list[i]->name);
        write_str(&s->writer, pool_version_text(table->list[i]->version, version));
    }
}

static void answer_pool(struct deferred *deferred, struct resp_client *s)
{
    const struct pool_deferred *t = (struct pool_deferred *)deferred;
    const struct pool_table *table = look(t, s);
    if (table == NULL) {
        return;
    }
    const struct pool *pool = pool_table_find(table, t->change.name);
    if (pool == NULL) {
        write_null(&s->writer);
        return;
    }
    char version[POOL_VERSION_TEXT];
    struct slice items;
    pool_packed(pool, t->from, ITEMS_BYTES, &items);
    write_array(&s->writer, 3);
    write_str(&s->writer, pool_version_text(pool->version, version));
    write_int(&s->writer, (int64_t)pool->n);
    write_bulk(&s->writer, items);
}

enum outcome cmd_replica_pools(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args, (void)n;
    return start(s, slice_of("", 0), 0, answer_pools);
}

enum outcome cmd_replica_pool(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    int64_t from;
    struct err err;
    if (dedup_check_id("pool", 0, args[2], &err) < 0) {
        return resp_client_refuse_err(s, &err);
    }
    if (!arg_int(args[3], &from) || from < 0) {
        return resp_client_refuse(s, "ERR from is a whole number of at least 0, got '%.*s'", arg_shown(args[3]),
                                  args[3].data);
    }
    return start(s, args[2], (size_t)from, answer_pool);
}
