/* Pools, as the primary has them now. An event only says that one has changed; what it is is asked for, and the answer
 * may be newer than the event: then that comes, too, and finds it there already. Whatever else lets a replica's pools
 * differ (it was the primary before, it was cloned) is found when it connects, by their versions. */
#include "dedup/pools.h"
#include "replica/follower_impl.h"
#include "replica/pool_fetch.h"

/* Asked on one of its connections. */
struct source {
    struct pool_source of;
    struct follower *follower;
    struct client *client;
};

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

static int ask(struct follower *f, struct client *client, const struct slice *words, size_t n,
               const struct reply **reply, struct err *err)
{
    int rc = client_queue(client, words, n, err);
    if (rc < 0 || (rc = client_read(client, reply, err)) < 0) {
        return rc;
    }
    return (*reply)->kind == REPLY_ERROR
               ? err_set(err, ERR_SYSTEM, "%s: %.*s", f->address, (int)(*reply)->text.len, (*reply)->text.data)
               : 0;
}

static int ask_of(struct pool_source *s, const struct slice *words, size_t n, const struct reply **reply,
                  struct err *err)
{
    const struct source *source = (struct source *)s;
    heartbeat_now(&source->follower->task.heartbeat);
    return ask(source->follower, source->client, words, n, reply, err);
}

static bool has_of(struct pool_source *s, struct slice name, uint64_t version)
{
    return has_version(((struct source *)s)->follower, name, version);
}

static void charge_of(struct pool_source *s, int64_t bytes)
{
    pools_charge(((struct source *)s)->follower->r->dedup->pools, bytes);
}

static bool stopping_of(struct pool_source *s)
{
    return follower_stopping(((struct source *)s)->follower);
}

static struct source source_of(struct follower *f, struct client *client)
{
    return (struct source){{f->address, NULL, ask_of, has_of, charge_of, stopping_of}, f, client};
}

int follower_take_pool(struct follower *f, struct client *client, struct slice name, struct err *err)
{
    struct source source = source_of(f, client);
    struct pool_fetched fetched = {0};
    int rc = pool_fetch(&source.of, name, &fetched, err);
    if (rc == 0) {
        const struct pool_change drop = {.kind = POOL_DROP, .name = name};
        rc = make(f, &drop, err);
    } else if (rc == 1 && fetched.items.len > 0) {
        const struct pool_change set = {.kind = POOL_SET, .name = name, .items = buf_slice(&fetched.items)};
        rc = make(f, &set, err);
    }
    pool_fetch_free(&source.of, &fetched);
    return rc < 0 ? rc : 0;
}

/* --- all of them --- */

static int list_gone(struct pool_source *s, const struct reply *list, struct buf *names)
{
    int rc = 0;
    const struct pool_table *table = pools_take(((struct source *)s)->follower->r->dedup->pools);
    for (size_t i = 0; i < table->n && rc == 0; i++) {
        rc = pool_fetch_lists(list, table->list[i]->name) ? 0 : pool_pack(names, table->list[i]->name);
    }
    pools_let_go(table);
    return rc;
}

int follower_compare_pools(struct follower *f, int64_t protocol, struct err *err)
{
    struct buf names = {0};
    if (protocol < POOL_FETCH_PROTOCOL || f->r->dedup->pools == NULL) {
        return 0; /* it has none; or none is asked about here */
    }
    struct source source = source_of(f, f->client);
    int rc = pool_fetch_names(&source.of, list_gone, &names, err);
    for (size_t at = 0; rc == 0 && at < names.len; at += 1 + (size_t)(uint8_t)names.data[at]) {
        rc = follower_take_pool(f, f->client, slice_of(names.data + at + 1, (uint8_t)names.data[at]), err);
    }
    buf_free(&names);
    return rc;
}
