/* POOL: lists of candidates that the server holds (dedup/pools.h). */
#include "dedup/pools.h"
#include "resp/args.h"
#include "resp/command.h"

enum { GET_ITEMS = 1000 };

/* --- changes --- */

void write_pool(const struct resp_client *s, struct writer *w, const struct request *rq)
{
    char version[POOL_VERSION_TEXT];
    (void)s;
    write_array(w, 2);
    write_int(w, rq->count);
    write_str(w, pool_version_text(rq->pool_version, version));
}

/* --- what there is --- */

/* Its first five pairs of a map. */
static void write_about(struct writer *w, const struct pool *pool)
{
    char version[POOL_VERSION_TEXT];
    write_pair_bulk(w, "name", pool->name);
    write_pair_int(w, "items", (int64_t)pool->n);
    write_pair_str(w, "version", pool_version_text(pool->version, version));
    write_pair_int(w, "bytes", (int64_t)pool->bytes);
    write_pair_int(w, "changed", pool->changed_ms);
}

enum outcome cmd_pool_list(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args, (void)n;
    const struct pool_table *table = service_pools(service_of(&s->conn));
    size_t count = table != NULL ? table->n : 0;
    write_array(&s->writer, count);
    for (size_t i = 0; i < count; i++) {
        write_map(&s->writer, 5);
        write_about(&s->writer, table->list[i]);
    }
    return OUTCOME_ANSWERED;
}

static bool read_place(struct resp_client *s, const char *what, struct slice arg, int64_t least, int64_t most,
                       int64_t *out, enum outcome *refused)
{
    bool good = arg_int(arg, out) && *out >= least && *out <= most;
    if (!good) {
        *refused = resp_client_refuse(s, "ERR %s is a whole number from %lld to %lld, got '%.*s'", what,
                                      (long long)least, (long long)most, arg_shown(arg), arg.data);
    }
    return good;
}

/* POOL GET name [from [count]] */
enum outcome cmd_pool_get(struct resp_client *s, const struct slice *args, size_t n)
{
    int64_t from = 0, count = GET_ITEMS;
    enum outcome refused;
    if (n > 5) {
        return resp_client_refuse(s, "ERR expected POOL GET name [from [count]]");
    }
    if ((n > 3 && !read_place(s, "from", args[3], 0, POOL_ITEMS_MAX, &from, &refused)) ||
        (n > 4 && !read_place(s, "count", args[4], 1, ITEMS_MAX, &count, &refused))) {
        return refused;
    }
    const struct pool_table *table = service_pools(service_of(&s->conn));
    const struct pool *pool = table != NULL ? pool_table_find(table, args[2]) : NULL;
    if (pool == NULL) {
        write_null(&s->writer);
        return OUTCOME_ANSWERED;
    }
    size_t end = (size_t)from + (size_t)count < pool->n ? (size_t)from + (size_t)count : pool->n;
    size_t first = (size_t)from < end ? (size_t)from : end;
    size_t most = s->reply_most + (end - first) * 8 + pool_ids_max(end - first, pool->id_bytes);
    struct err err;
    if (conn_check_reply(&s->conn, most, "the page", "ask for fewer items", &err) < 0) {
        return resp_client_refuse_err(s, &err);
    }
    if (!conn_may_reply(&s->conn, most)) {
        return OUTCOME_AGAIN;
    }
    struct pool_walk walk = {0};
    write_map(&s->writer, 7);
    write_about(&s->writer, pool);
    write_pair_int(&s->writer, "from", (int64_t)first);
    write_str(&s->writer, "ids");
    write_array(&s->writer, end - first);
    for (size_t i = first; i < end; i++) {
        write_bulk(&s->writer, pool_item(pool, i, &walk));
    }
    return OUTCOME_ANSWERED;
}
