/* Users out of a pool, in the order of their keys: their objects are listed first, in the order of the cluster, then
 * sorted by key, and read in that order. A user whose object is made after the list came by is not in it. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "store/rados/pack.h"
#include "store/rados/user_sort.h"

enum { LIST_SHARE = 10 /* of the progress, in percent */, PERCENT = 100, ARENA_BLOCK = 64 * 1024 };

struct exporting {
    const struct rados_export *of;
    const struct store_export *e;
    struct rados_store *s;
    struct user_sort *sort;
    struct packer packer;
    struct buf bytes;
    uint64_t done;
};

static void show(struct exporting *x, uint64_t done, uint64_t total)
{
    if (x->e->progress != NULL) {
        x->e->progress(x->e->arg, done, total);
    }
}

/* --- who there is --- */

static int on_name(void *arg, const char *object, struct err *err)
{
    struct exporting *x = arg;
    char id[255];
    size_t len;
    if (!layout_user_of(object, id, &len)) {
        return 0; /* not a user: check names it */
    }
    struct slice user = slice_of(id, len);
    int64_t key = hash_user_key(x->s->seed, user);
    bool wanted = key >= x->e->from && key <= x->e->to && x->e->wanted(x->e->arg, user);
    return wanted ? user_sort_add(x->sort, key, user, err) : 0;
}

static void on_piece(void *arg, uint64_t done, uint64_t total)
{
    show(arg, done * LIST_SHARE, total * PERCENT);
}

static int list_users(struct exporting *x, struct err *err)
{
    const struct walk_list list = {.name = on_name, .progress = on_piece, .arg = x};
    if (x->of->only.data != NULL) {
        char name[LAYOUT_NAME];
        layout_user_name(x->of->only, name);
        return on_name(x, name, err);
    }
    return walk_list(x->s, &list, err);
}

/* --- what they have --- */

/* One of whom no snapshot can be made keeps no other from being packed; a cluster that doesn't answer does. */
static int leave_out(struct exporting *x, const struct err *why, struct err *err)
{
    char text[STORE_ERROR_TEXT + 32];
    if (why->code != ERR_CORRUPT && why->code != ERR_LARGE) {
        struct err copy = *why;
        return err_set(err, copy.code, "%s", copy.text);
    }
    snprintf(text, sizeof text, "%s: left out", why->text);
    x->e->damaged(x->e->arg, text);
    return 0;
}

static int on_object(void *arg, const struct walked *w, struct err *err)
{
    struct exporting *x = arg;
    uint64_t total = user_sort_count(x->sort);
    char id[255];
    size_t len = 0;
    x->done++;
    show(x, total * LIST_SHARE + x->done * (PERCENT - LIST_SHARE), total * PERCENT);
    if (w->err.code < 0) {
        return leave_out(x, &w->err, err);
    }
    if (!w->exists || !layout_user_of(w->object, id, &len)) {
        return 0;
    }
    struct slice user = slice_of(id, len);
    buf_clear(&x->bytes);
    int result = pack_user(&x->packer, hash_user_key(x->s->seed, user), user, w, &x->bytes, err);
    return result == 1 ? x->e->snapshot(x->e->arg, buf_slice(&x->bytes), err) : result < 0 ? leave_out(x, err, err) : 0;
}

static int read_users(struct exporting *x, struct err *err)
{
    const struct walk_options options = {.rate = x->of->rate, .each = on_object, .arg = x};
    struct walk *walk;
    struct slice user;
    int64_t key;
    int result = walk_open(x->s, &options, &walk, err);
    if (result < 0) {
        return result;
    }
    user_sort_end(x->sort);
    while (result == 0 && (result = user_sort_next(x->sort, &key, &user, err)) == 1) {
        char name[LAYOUT_NAME];
        layout_user_name(user, name);
        result = walk_add(walk, name, err);
    }
    result = result < 0 ? result : walk_drain(walk, err);
    walk_close(walk);
    return result;
}

int rados_export_pool(const struct config *cfg, const struct rados_export *of, const struct store_export *e,
                      struct err *err)
{
    struct exporting x = {.of = of, .e = e};
    struct store *store;
    int result = rados_store_open(cfg, &(struct rados_store_options){.ops = of->ops, .use = RADOS_ASKS}, &store, err);
    if (result < 0) {
        return result;
    }
    x.s = rados_of(store);
    x.packer = (struct packer){.s = x.s, .damaged = e->damaged, .arg = e->arg};
    x.packer.arena.block_size = ARENA_BLOCK;
    result = user_sort_new(USER_SORT_BYTES, &x.sort, err);
    result = result < 0 ? result : e->begin(e->arg, x.s->seed, err);
    result = result < 0 ? result : list_users(&x, err);
    result = result < 0 ? result : read_users(&x, err);
    user_sort_free(x.sort);
    packer_free(&x.packer);
    buf_free(&x.bytes);
    store->ops->close(store);
    return result;
}
