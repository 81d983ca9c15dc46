/* Pools, each of one version. Those that the folder has already, from a clone that was cut short, stay. What changes at
 * the primary meanwhile a replica finds when it connects, by the versions (replica/follower_pools.c). */
#include "base/clock.h"
#include "cli/lib/store_wait.h"
#include "cli/replica/clone_copy.h"
#include "dedup/pool.h"
#include "replica/pool_fetch.h"

struct source {
    struct pool_source of;
    struct clone_copy *copy;
    struct buf here; /* packed names, each with its version's text behind it: of pools in the folder */
};

static int add_here(void *arg, const struct store_pool *pool, struct err *err)
{
    struct source *s = arg;
    char version[POOL_VERSION_TEXT];
    if (pool_pack(&s->here, pool->name) < 0 ||
        pool_pack(&s->here, slice_str(pool_version_text(pool->version, version))) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for pools");
    }
    return 0;
}

/* It comes again. */
static void ignore_bad(void *arg, struct slice name, const char *what)
{
    (void)arg, (void)name, (void)what;
}

static bool next_here(const struct source *s, size_t *at, struct slice *name, struct slice *version)
{
    struct slice *two[] = {name, version};
    if (*at >= s->here.len) {
        return false;
    }
    for (size_t i = 0; i < 2; i++) {
        size_t len = (uint8_t)s->here.data[*at];
        *two[i] = slice_of(s->here.data + *at + 1, len);
        *at += 1 + len;
    }
    return true;
}

static int ask(struct pool_source *s, const struct slice *words, size_t n, const struct reply **reply, struct err *err)
{
    return other_node_call(((struct source *)s)->copy->from, words, n, reply, err);
}

static bool has(struct pool_source *s, struct slice name, uint64_t version)
{
    char text[POOL_VERSION_TEXT];
    struct slice there, has_version, wanted = slice_str(pool_version_text(version, text));
    size_t at = 0;
    while (next_here((struct source *)s, &at, &there, &has_version)) {
        if (slice_eq(there, name)) {
            return slice_eq(has_version, wanted);
        }
    }
    return false;
}

static int list_gone(struct pool_source *s, const struct reply *list, struct buf *names)
{
    struct slice name, version;
    size_t at = 0;
    int rc = 0;
    while (rc == 0 && next_here((struct source *)s, &at, &name, &version)) {
        rc = pool_fetch_lists(list, name) ? 0 : pool_pack(names, name);
    }
    return rc;
}

static int copy_pool(struct source *s, struct slice name, struct err *err)
{
    struct pool_fetched f = {0};
    struct store_pool_change change = {.kind = STORE_POOL_DROP, .pool = {.name = name}};
    int rc = pool_fetch(&s->of, name, &f, err);
    if (rc == 1 && f.items.len > 0) {
        change.kind = STORE_POOL_SET;
        change.pool = (struct store_pool){name, buf_slice(&f.items), f.n, f.version, clock_wall_ms()};
        s->copy->pools++;
        s->copy->bytes += f.items.len;
    }
    if (rc == 0 || (rc == 1 && f.items.len > 0)) {
        rc = store_wait_pool(s->copy->to, &change, err);
    }
    pool_fetch_free(&s->of, &f);
    return rc < 0 ? rc : 0;
}

static int list_here(struct source *s, struct err *err)
{
    struct store *to = s->copy->to;
    struct store_reader *reader;
    int rc = to->ops->reader_open(to, &reader, err);
    if (rc == 0) {
        rc = to->pools->each(reader, add_here, ignore_bad, s, err);
        to->ops->reader_close(reader);
    }
    return rc;
}

int clone_copy_pools(struct clone_copy *c, struct err *err)
{
    struct source s = {{.address = c->from->address, .ask = ask, .has = has}, c, {0}};
    struct buf names = {0};
    if (c->from->protocol < POOL_FETCH_PROTOCOL || c->to->pools == NULL) {
        return 0;
    }
    int rc = list_here(&s, err);
    rc = rc < 0 ? rc : pool_fetch_names(&s.of, list_gone, &names, err);
    for (size_t at = 0; rc == 0 && at < names.len; at += 1 + (size_t)(uint8_t)names.data[at]) {
        rc = copy_pool(&s, slice_of(names.data + at + 1, (uint8_t)names.data[at]), err);
    }
    buf_free(&names);
    buf_free(&s.here);
    return rc;
}
