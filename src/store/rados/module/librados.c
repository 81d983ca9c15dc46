/* The seam to the cluster, made of librados, as a module (base/module.h).
 *
 * librados calls back on threads of its own, after an operation's answer was taken apart. An operation that doesn't end
 * in time is given up by the client (rados_osd_op_timeout); what was sent may still be carried out. By default librados
 * lets the caller wait when a thousand operations are under way: that may not be, on a loop, so it is switched off; how
 * much is under way is bounded above. When the cluster is full a plain operation waits within librados. FULL_TRY alone
 * passes osd_failsafe_full_ratio, FULL_FORCE alone makes objects meanwhile: what has to be done has both.
 *
 * A frozen OSD resets no connection, so the client is not told which one has taken over. It asks for that itself, but
 * only on behalf of operations that are older than objecter_timeout (10 s): with a shorter limit each would be given up
 * before, and the client would never learn it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/module.h"
#include "store/rados/module/librados_impl.h"

enum { POOL_NAME = 512 };
/* What an operation has at librados, until done() has returned. */
struct operation {
    struct cluster *cluster;
    struct cluster_op *op;
    rados_completion_t completion;
    atomic_bool cancelled;
    /* Of a read: */
    rados_omap_iter_t keys, ranges[CLUSTER_RANGES];
    unsigned char more[CLUSTER_RANGES];
    int codes[CLUSTER_RANGES + 2];
};

static const char *version(void)
{
    static char text[48];
    int major, minor, extra;
    rados_version(&major, &minor, &extra);
    snprintf(text, sizeof text, "%d.%d.%d", major, minor, extra);
    return text;
}

/* --- results --- */

/* A missing object and a missing pool have one code. The client's map says which it is: an operation fails that way
 * only after that knows. */
static bool pool_is_there(const struct cluster *c)
{
    char name[POOL_NAME];
    return rados_pool_reverse_lookup(c->rados, c->pool, name, sizeof name) >= 0;
}

static enum cluster_result result_of(const struct operation *x, int code)
{
    switch (code) {
    case 0:
        return CLUSTER_DONE;
    case -ENOENT:
        return pool_is_there(x->cluster) ? CLUSTER_ABSENT : CLUSTER_NO_POOL;
    case -EEXIST:
        return CLUSTER_EXISTS;
    case -ECANCELED:
        return atomic_load(&x->cancelled) ? CLUSTER_CLOSED : CLUSTER_DIFFERS;
    case -ERANGE:
    case -EOVERFLOW:
        return CLUSTER_DIFFERS;
    case -ETIMEDOUT:
        return CLUSTER_LATE;
    case -ENOSPC:
    case -EDQUOT:
        return CLUSTER_FULL;
    case -ESHUTDOWN: /* blocklisted */
        return CLUSTER_FENCED;
    case -EPERM:
    case -EACCES:
        return CLUSTER_DENIED;
    case -ENOMEM:
        return CLUSTER_NOMEM;
    default:
        return code > 0 ? CLUSTER_DONE : CLUSTER_FAILED;
    }
}

static void end_reading(struct operation *x)
{
    if (x->keys != NULL) {
        rados_omap_get_end(x->keys);
    }
    for (size_t i = 0; i < CLUSTER_RANGES; i++) {
        if (x->ranges[i] != NULL) {
            rados_omap_get_end(x->ranges[i]);
        }
    }
}

static void hand_over(struct cluster_read *r, int range, rados_omap_iter_t iter)
{
    char *key, *value;
    size_t key_len, value_len;
    while (rados_omap_get_next2(iter, &key, &value, &key_len, &value_len) == 0 && key != NULL &&
           cluster_takes(r, (struct slice){key, key_len}, (struct slice){value, value_len})) {
        r->pair(r, range, (struct slice){key, key_len}, (struct slice){value, value_len});
    }
}

static void finish(struct operation *x)
{
    rados_completion_t completion = x->completion;
    struct cluster_op *op = x->op;
    op->done(op);
    free(x);
    rados_aio_release(completion);
}

static int note_result(struct operation *x)
{
    int code = rados_aio_get_return_value(x->completion);
    x->op->result = result_of(x, code);
    x->op->code = code < 0 ? -code : 0;
    x->op->version = rados_aio_get_version(x->completion);
    return code;
}

static void on_read(rados_completion_t completion, void *arg)
{
    struct operation *x = arg;
    struct cluster_read *r = (struct cluster_read *)x->op;
    (void)completion;
    note_result(x);
    for (size_t i = 0; i < CLUSTER_RANGES + 2 && r->op.result == CLUSTER_DONE; i++) {
        if (x->codes[i] < 0) {
            r->op.result = CLUSTER_FAILED;
            r->op.code = -x->codes[i];
        }
    }
    if (r->op.result == CLUSTER_DONE) {
        if (x->keys != NULL) {
            hand_over(r, -1, x->keys);
        }
        for (size_t i = 0; i < r->n_ranges && r->op.result == CLUSTER_DONE; i++) {
            r->ranges[i].more = x->more[i] != 0;
            hand_over(r, (int)i, x->ranges[i]);
        }
    }
    end_reading(x);
    finish(x);
}

static void on_written(rados_completion_t completion, void *arg)
{
    struct operation *x = arg;
    (void)completion;
    note_result(x);
    finish(x);
}

/* --- operations --- */

static struct operation *operation_new(struct cluster *c, struct cluster_op *op, rados_callback_t done)
{
    struct operation *x = calloc(1, sizeof *x);
    if (x != NULL && rados_aio_create_completion2(x, done, &x->completion) < 0) {
        free(x);
        x = NULL;
    }
    if (x != NULL) {
        x->cluster = c;
        x->op = op;
        op->own = x;
    }
    return x;
}

static void drop(struct operation *x)
{
    rados_aio_release(x->completion);
    free(x);
}

static int read_keys(struct operation *x, rados_read_op_t op, const struct cluster_read *r)
{
    const char **keys = calloc(r->n_keys, sizeof *keys);
    size_t *lens = calloc(r->n_keys, sizeof *lens);
    int result = keys == NULL || lens == NULL ? ERR_NOMEM : 0;
    for (size_t i = 0; i < r->n_keys && result == 0; i++) {
        keys[i] = r->keys[i].data;
        lens[i] = r->keys[i].len;
    }
    if (result == 0) {
        rados_read_op_omap_get_vals_by_keys2(op, keys, r->n_keys, lens, &x->keys, &x->codes[CLUSTER_RANGES]);
    }
    free((void *)keys);
    free(lens);
    return result;
}

static int read_object(struct cluster *c, struct cluster_read *r)
{
    struct operation *x = operation_new(c, &r->op, on_read);
    rados_read_op_t op = x != NULL ? rados_create_read_op() : NULL;
    if (op == NULL) {
        if (x != NULL) {
            drop(x);
        }
        return ERR_NOMEM;
    }
    if (r->below != NULL) {
        rados_read_op_omap_cmp2(op, r->below->key.data, LIBRADOS_CMPXATTR_OP_LT, r->below->value.data,
                                r->below->key.len, r->below->value.len, &x->codes[CLUSTER_RANGES + 1]);
    }
    int code = r->n_keys > 0 ? read_keys(x, op, r) : 0;
    for (size_t i = 0; i < r->n_ranges && code == 0; i++) {
        const struct cluster_range *range = &r->ranges[i];
        uint32_t max = range->max < CLUSTER_PAGE ? range->max : CLUSTER_PAGE;
        rados_read_op_omap_get_vals2(op, range->after, range->prefix, max, &x->ranges[i], &x->more[i], &x->codes[i]);
    }
    if (code == 0) {
        code = rados_aio_read_op_operate(op, c->io, x->completion, r->op.object, LIBRADOS_OPERATION_NOFLAG) < 0
                   ? ERR_NOMEM
                   : 0;
    }
    rados_release_read_op(op);
    if (code < 0) {
        end_reading(x);
        drop(x);
    }
    return code;
}

/* Both lists as librados takes them; it copies them. */
static int add_pairs(rados_write_op_t op, const struct cluster_write *w)
{
    size_t most = w->n_set > w->n_remove ? w->n_set : w->n_remove;
    const char **texts = calloc(2 * most + 1, sizeof *texts);
    size_t *lens = calloc(2 * most + 1, sizeof *lens);
    int result = texts == NULL || lens == NULL ? ERR_NOMEM : 0;
    if (result == 0 && w->n_set > 0) {
        for (size_t i = 0; i < w->n_set; i++) {
            texts[i] = w->set[i].key.data;
            lens[i] = w->set[i].key.len;
            texts[most + i] = w->set[i].value.data;
            lens[most + i] = w->set[i].value.len;
        }
        rados_write_op_omap_set2(op, texts, texts + most, lens, lens + most, w->n_set);
    }
    if (result == 0 && w->n_remove > 0) {
        for (size_t i = 0; i < w->n_remove; i++) {
            texts[i] = w->remove[i].data;
            lens[i] = w->remove[i].len;
        }
        rados_write_op_omap_rm_keys2(op, texts, lens, w->n_remove);
    }
    free((void *)texts);
    free(lens);
    return result;
}

static int build(rados_write_op_t op, const struct cluster_write *w, struct operation *x)
{
    if (w->exclusive) {
        rados_write_op_create(op, LIBRADOS_CREATE_EXCLUSIVE, NULL);
    }
    if (w->version != 0) {
        rados_write_op_assert_version(op, w->version);
    }
    for (size_t i = 0; i < w->n_equals; i++) {
        const struct cluster_pair *pair = &w->equals[i];
        rados_write_op_omap_cmp2(op, pair->key.data, LIBRADOS_CMPXATTR_OP_EQ, pair->value.data, pair->key.len,
                                 pair->value.len, &x->codes[0]);
    }
    if (w->destroy) {
        rados_write_op_remove(op);
        return 0;
    }
    if (w->clear) {
        rados_write_op_omap_clear(op);
    }
    return add_pairs(op, w);
}

static int write_object(struct cluster *c, struct cluster_write *w)
{
    struct operation *x = operation_new(c, &w->op, on_written);
    rados_write_op_t op = x != NULL ? rados_create_write_op() : NULL;
    if (op == NULL) {
        if (x != NULL) {
            drop(x);
        }
        return ERR_NOMEM;
    }
    int flags = w->must || w->destroy ? LIBRADOS_OPERATION_FULL_FORCE | LIBRADOS_OPERATION_FULL_TRY
                : w->attempt          ? LIBRADOS_OPERATION_FULL_TRY
                                      : LIBRADOS_OPERATION_NOFLAG;
    int code = build(op, w, x);
    if (code == 0) {
        code = rados_aio_write_op_operate(op, c->io, x->completion, w->op.object, NULL, flags) < 0 ? ERR_NOMEM : 0;
    }
    rados_release_write_op(op);
    if (code < 0) {
        drop(x);
    }
    return code;
}

static void cancel(struct cluster *c, struct cluster_op *op)
{
    struct operation *x = op->own;
    atomic_store(&x->cancelled, true);
    rados_aio_cancel(c->io, x->completion);
}

/* --- the connection --- */

static int set(rados_t rados, const char *option, const char *value, struct err *err)
{
    int code = rados_conf_set(rados, option, value);
    return code < 0 ? err_set(err, ERR_SYSTEM, "librados doesn't take %s = %s: %s", option, value, strerror(-code)) : 0;
}

/* What the configuration's file may say otherwise. */
static int set_defaults(rados_t rados, struct err *err)
{
    static const char *const defaults[][2] = {{"log_file", ""}, {"admin_socket", ""}};
    int result = 0;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults && result == 0; i++) {
        result = set(rados, defaults[i][0], defaults[i][1], err);
    }
    return result;
}

/* What it may not: no call of ours waits without end, be it for the cluster or for who reads standard error. */
static int set_limits(rados_t rados, int64_t timeout_ms, struct err *err)
{
    char seconds[24];
    snprintf(seconds, sizeof seconds, "%" PRId64, (timeout_ms + 999) / 1000);
    const char *const limits[][2] = {
        {"rados_osd_op_timeout", seconds},   {"rados_mon_op_timeout", seconds}, {"client_mount_timeout", seconds},
        {"objecter_timeout", "1"},           {"objecter_tick_interval", "1"},   {"objecter_inflight_ops", "0"},
        {"objecter_inflight_op_bytes", "0"}, {"log_to_stderr", "false"},        {"err_to_stderr", "false"}};
    int result = 0;
    for (size_t i = 0; i < sizeof limits / sizeof *limits && result == 0; i++) {
        result = set(rados, limits[i][0], limits[i][1], err);
    }
    return result;
}

static int configure(rados_t rados, const struct cluster_options *o, struct err *err)
{
    int result = set_defaults(rados, err);
    if (result == 0) {
        int code = rados_conf_read_file(rados, o->conf[0] != '\0' ? o->conf : NULL);
        if (code < 0) {
            return err_set(err, code == -ENOENT ? ERR_NOTFOUND : ERR_SYSTEM, "rados_conf: can't read %s: %s",
                           o->conf[0] != '\0' ? o->conf : "Ceph's configuration", strerror(-code));
        }
        result = set_limits(rados, o->timeout_ms, err);
    }
    return result;
}

static int reach(rados_t rados, const struct cluster_options *o, struct err *err)
{
    int code = rados_connect(rados);
    switch (code) {
    case 0:
        return 0;
    case -ETIMEDOUT:
        return err_set(err, ERR_LATE, "RADOS: no monitor answered within %" PRId64 " ms (rados_timeout)",
                       o->timeout_ms);
    case -EPERM:
    case -EACCES:
        return err_set(err, ERR_NOPERM, "RADOS: the cluster doesn't let %s in", o->user);
    case -ENOENT:
        return err_set(err, ERR_NOTFOUND, "RADOS: there is no key for %s, or no monitor is known", o->user);
    default:
        return err_set(err, ERR_SYSTEM, "RADOS: can't connect as %s: %s", o->user, strerror(-code));
    }
}

static void address(struct cluster *c, char *out, size_t size)
{
    char *addresses = NULL;
    bool known = rados_getaddrs(c->rados, &addresses) == 0 && addresses != NULL;
    snprintf(out, size, "%s", known ? addresses : "");
    free(addresses);
}

static void disconnect(struct cluster *c)
{
    if (c->io != NULL) {
        rados_ioctx_destroy(c->io);
    }
    rados_shutdown(c->rados);
    free(c);
}

static int open_pool(struct cluster *c, const struct cluster_options *o, struct err *err)
{
    int code = rados_ioctx_create(c->rados, o->pool, &c->io);
    if (code < 0) {
        c->io = NULL;
        return code == -ENOENT ? err_set(err, ERR_NOTFOUND, "RADOS: there is no pool \"%s\"", o->pool)
                               : librados_failed(err, code, "open the pool");
    }
    c->pool = rados_ioctx_get_id(c->io);
    return 0;
}

static int connect_cluster(const struct cluster_options *o, struct cluster **cluster, struct err *err)
{
    struct cluster *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    int code = rados_create2(&c->rados, "ceph", o->user, 0);
    if (code < 0) {
        free(c);
        return err_set(err, ERR_SYSTEM, "RADOS: can't begin as %s: %s", o->user, strerror(-code));
    }
    int result = configure(c->rados, o, err);
    result = result < 0 ? result : reach(c->rados, o, err);
    result = result < 0 ? result : open_pool(c, o, err);
    if (result < 0) {
        disconnect(c);
        return result;
    }
    *cluster = c;
    return 0;
}

static const struct cluster_ops ops = {
    .version = version,
    .connect = connect_cluster,
    .address = address,
    .disconnect = disconnect,
    .read = read_object,
    .write = write_object,
    .cancel = cancel,
    .command = librados_command,
    .lock = librados_lock,
    .unlock = librados_unlock,
    .list = librados_list,
    .list_next = librados_list_next,
    .list_end = librados_list_end,
};

__attribute__((visibility("default"))) extern const struct module unseen_module;
const struct module unseen_module = {UNSEEN_VERSION, &ops};
