#include "store/rados/meta.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/hash.h"
#include "base/log.h"
#include "store/rados/layout.h"
#include "store/rados/rados.h"
#include "store/rados/wait.h"

struct meta_read {
    struct cluster_read read; /* first */
    char schema[16], seed[32], error_rate[40], starts[32], lineage[32];
};

static int failed(const struct cluster_op *op, struct err *err)
{
    switch (op->result) {
    case CLUSTER_LATE:
        return err_set(err, ERR_LATE, "RADOS: no answer within rados_timeout while the pool's meta was asked for");
    case CLUSTER_FULL:
        return err_set(err, ERR_FULL, "RADOS: the cluster, or the pool, is full");
    case CLUSTER_DENIED:
        return err_set(err, ERR_NOPERM, "RADOS: this user may not read and write the pool");
    case CLUSTER_FENCED:
        return err_set(err, ERR_IO, "RADOS: this client is blocklisted by the cluster");
    case CLUSTER_NO_POOL:
        return err_set(err, ERR_NOTFOUND, "RADOS: the pool was removed");
    default:
        return err_set(err, ERR_IO, "RADOS: the pool's meta can't be read or written: %s", strerror(op->code));
    }
}

/* --- reading --- */

static void keep(char *out, size_t size, struct slice value)
{
    size_t n = value.len < size ? value.len : size - 1;
    memcpy(out, value.data, n);
    out[n] = '\0';
}

static void on_pair(struct cluster_read *read, int range, struct slice key, struct slice value)
{
    struct meta_read *m = (struct meta_read *)read;
    (void)range;
    if (slice_eq(key, slice_str("schema"))) {
        keep(m->schema, sizeof m->schema, value);
    } else if (slice_eq(key, slice_str("seed"))) {
        keep(m->seed, sizeof m->seed, value);
    } else if (slice_eq(key, slice_str("error_rate"))) {
        keep(m->error_rate, sizeof m->error_rate, value);
    } else if (slice_eq(key, slice_str("starts"))) {
        keep(m->starts, sizeof m->starts, value);
    } else if (slice_eq(key, slice_str("lineage"))) {
        keep(m->lineage, sizeof m->lineage, value);
    }
}

int meta_read(const struct cluster_ops *ops, struct cluster *cluster, struct meta *out, struct err *err)
{
    struct meta_read m = {.read = {.op = {.object = LAYOUT_META},
                                   .ranges = {{.prefix = "", .after = "", .max = CLUSTER_PAGE}},
                                   .n_ranges = 1,
                                   .pair = on_pair}};
    char *end;
    enum cluster_result result = wait_read(ops, cluster, &m.read);
    if (result == CLUSTER_ABSENT) {
        return 0;
    }
    if (result != CLUSTER_DONE) {
        return failed(&m.read.op, err);
    }
    *out = (struct meta){.schema = atoi(m.schema), .error_rate = strtod(m.error_rate, &end)};
    if (out->schema < 1 || m.error_rate[0] == '\0' || *end != '\0' || !(out->error_rate > 0) ||
        !layout_unhex(slice_str(m.seed), &out->seed) ||
        (m.starts[0] != '\0' && !layout_unhex(slice_str(m.starts), &out->starts)) ||
        (m.lineage[0] != '\0' && !layout_unhex(slice_str(m.lineage), &out->lineage))) {
        return err_set(err, ERR_CORRUPT, "RADOS: the object meta of the pool is damaged");
    }
    return 1;
}

int meta_fits(const struct meta *meta, const struct config *cfg, struct err *err)
{
    if (meta->schema > RADOS_SCHEMA) {
        return err_set(err, ERR_VERSION,
                       "the pool was made by a newer version: its schema is %d, and this one knows %d", meta->schema,
                       RADOS_SCHEMA);
    }
    if (cfg->hash_seed_given && cfg->hash_seed != meta->seed) {
        return err_set(err, ERR_SEED, "hash_seed is not the pool's, whose fingerprint is %08" PRIx32,
                       hash_seed_fingerprint(meta->seed));
    }
    double error_rate = config_now(cfg)->error_rate;
    if (fabs(error_rate - meta->error_rate) > meta->error_rate * 1e-9) {
        return err_set(err, ERR_INVALID, "error_rate is %g, and the pool was made with %g: all nodes have to agree",
                       error_rate, meta->error_rate);
    }
    return 0;
}

/* Never 0. */
static int draw(uint64_t *n, struct err *err)
{
    do {
        if (getrandom(n, sizeof *n, 0) != sizeof *n) {
            return err_set(err, ERR_SYSTEM, "can't draw a number: %s", strerror(errno));
        }
    } while (*n == 0);
    return 0;
}

/* 1: the number is ours; 0: another node took it; or an error. A lineage is drawn unless the pool has one. */
static int take_number(const struct cluster_ops *ops, struct cluster *cluster, struct meta *meta, struct err *err)
{
    char before[LAYOUT_HEX], now[LAYOUT_HEX], lineage[LAYOUT_HEX];
    size_t n_set = meta->lineage == 0 ? 2 : 1;
    if (meta->lineage == 0 && draw(&meta->lineage, err) < 0) {
        return err->code;
    }
    layout_hex(meta->lineage, lineage);
    layout_hex(meta->starts, before);
    layout_hex(meta->starts + 1, now);
    const struct cluster_pair equals = {slice_str("starts"), slice_of(before, meta->starts > 0 ? sizeof before : 0)};
    const struct cluster_pair set[] = {{slice_str("starts"), slice_of(now, sizeof now)},
                                       {slice_str("lineage"), slice_of(lineage, sizeof lineage)}};
    struct cluster_write w = {
        .op = {.object = LAYOUT_META}, .equals = &equals, .n_equals = 1, .set = set, .n_set = n_set, .must = true};
    enum cluster_result result = wait_write(ops, cluster, &w);
    return result == CLUSTER_DONE ? 1 : result == CLUSTER_DIFFERS ? 0 : failed(&w.op, err);
}

int meta_open(struct rados_store *s, struct err *err)
{
    struct meta meta;
    int taken = 0;
    while (taken == 0) {
        int found = meta_read(s->ops, s->cluster, &meta, err);
        if (found == 0) {
            return err_set(err, ERR_NOTFOUND, "the pool %s holds no store: unseen rados init makes one",
                           log_quote_str(s->cfg->rados_pool));
        }
        int result = found < 0 ? found : meta_fits(&meta, s->cfg, err);
        if (result < 0) {
            return result;
        }
        taken = s->use == RADOS_ASKS ? 1 : take_number(s->ops, s->cluster, &meta, err);
    }
    s->seed = meta.seed;
    s->error_rate = meta.error_rate;
    s->number = meta.starts + 1;
    pthread_mutex_lock(&s->mutex);
    s->meta = meta;
    pthread_mutex_unlock(&s->mutex);
    return taken < 0 ? taken : 0;
}

int meta_still(const struct meta *meta, const struct cluster_ops *ops, struct cluster *cluster, struct err *err)
{
    struct meta now;
    int found = meta_read(ops, cluster, &now, err);
    if (found < 0) {
        return found;
    }
    if (found == 0) {
        return err_set(err, ERR_NOTFOUND, "the pool of that name holds no store: it is another one");
    }
    if (now.seed != meta->seed || now.lineage != meta->lineage) {
        return err_set(err, ERR_SEED, "the pool of that name is another one: what this node knows is not of it");
    }
    return 0;
}

/* --- making --- */

static void look_for_user(void *arg, const char *object)
{
    bool *found = arg;
    *found = *found || strncmp(object, "u.", 2) == 0;
}

/* A pool with users and without meta has lost it: another seed would show all that they have seen. */
static int check_empty(const struct cluster_ops *ops, struct cluster *cluster, struct err *err)
{
    struct cluster_listing *listing;
    bool found = false;
    int result = ops->list(cluster, 0, 1, &listing, err);
    if (result < 0) {
        return result;
    }
    do {
        result = ops->list_next(listing, CLUSTER_PAGE, look_for_user, &found, err);
    } while (result > 0 && !found);
    ops->list_end(listing);
    if (result >= 0 && found) {
        return err_set(err, ERR_CORRUPT,
                       "the pool has users and no object meta: it was lost, and with it the seed of all hashes");
    }
    return result < 0 ? result : 0;
}

static int write_meta(const struct cluster_ops *ops, struct cluster *cluster, const struct meta *meta, struct err *err)
{
    char schema[16], seed[LAYOUT_HEX], error_rate[40], lineage[LAYOUT_HEX];
    snprintf(schema, sizeof schema, "%d", meta->schema);
    snprintf(error_rate, sizeof error_rate, "%.17g", meta->error_rate);
    layout_hex(meta->seed, seed);
    layout_hex(meta->lineage, lineage);
    const struct cluster_pair pairs[] = {{slice_str("schema"), slice_str(schema)},
                                         {slice_str("seed"), slice_of(seed, sizeof seed)},
                                         {slice_str("error_rate"), slice_str(error_rate)},
                                         {slice_str("lineage"), slice_of(lineage, sizeof lineage)}};
    struct cluster_write w = {
        .op = {.object = LAYOUT_META}, .exclusive = true, .set = pairs, .n_set = sizeof pairs / sizeof *pairs};
    enum cluster_result result = wait_write(ops, cluster, &w);
    return result == CLUSTER_DONE ? 1 : result == CLUSTER_EXISTS ? 0 : failed(&w.op, err);
}

static int make(const struct config *cfg, const struct cluster_ops *ops, struct cluster *cluster, struct err *err)
{
    struct meta meta;
    int result = meta_read(ops, cluster, &meta, err);
    if (result == 0 && (result = check_empty(ops, cluster, err)) == 0) {
        meta = (struct meta){.schema = RADOS_SCHEMA, .seed = cfg->hash_seed, .error_rate = config_now(cfg)->error_rate};
        if ((!cfg->hash_seed_given && draw(&meta.seed, err) < 0) || draw(&meta.lineage, err) < 0) {
            return err->code;
        }
        result = write_meta(ops, cluster, &meta, err);
        if (result != 0) {
            return result;
        }
        result = meta_read(ops, cluster, &meta, err); /* another one was faster */
    }
    return result < 0 ? result : meta_fits(&meta, cfg, err);
}

int rados_store_init(const struct config *cfg, const struct cluster_ops *ops, struct err *err)
{
    struct cluster *cluster = NULL;
    int result = rados_cluster_connect(cfg, &ops, &cluster, err);
    if (result == 0) {
        result = make(cfg, ops, cluster, err);
        ops->disconnect(cluster);
    }
    return result;
}
