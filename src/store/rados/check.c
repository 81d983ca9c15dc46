/* A pool read through: its list of objects, and each of them as it comes. Names are no more than a page of the list in
 * memory, objects as many as walk.h has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "store/rados/check_user.h"
#include "store/rados/night.h"

struct whole {
    struct checking checking; /* first */
    struct walk *walk;
    bool meta;
};

/* "night.7"; -1: another. */
static int night_of(const char *object)
{
    char name[NIGHT_NAME];
    for (int i = 0; i < NIGHT_PIECES && strncmp(object, "night.", strlen("night.")) == 0; i++) {
        night_piece_name((size_t)i, name);
        if (strcmp(object, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Values of positions are looked at by the node that claims one; what a node left to see whether there is room holds
 * none. */
static bool is_of_nodes(const char *object)
{
    return strcmp(object, LAYOUT_POSITIONS) == 0 || strncmp(object, LAYOUT_FULL, strlen(LAYOUT_FULL)) == 0;
}

static int on_object(void *arg, const struct walked *w, struct err *err)
{
    struct whole *x = arg;
    struct checking *c = &x->checking;
    char id[255];
    size_t len;
    int night = night_of(w->object);
    if (w->err.code == ERR_CORRUPT || w->err.code == ERR_LARGE || w->err.code == ERR_BUSY) {
        check_problem(c, "%s", w->err.text);
        return 0;
    }
    if (w->err.code < 0) {
        return err_set(err, w->err.code, "%s", w->err.text);
    }
    if (!w->exists) {
        return 0;
    }
    c->out->objects++;
    if (layout_user_of(w->object, id, &len)) {
        return check_user(c, slice_of(id, len), w, err);
    }
    if (strcmp(w->object, LAYOUT_META) == 0) {
        x->meta = true;
        check_meta(c, w);
    } else if (night >= 0) {
        check_night(c, (size_t)night, w);
    } else if (!is_of_nodes(w->object)) {
        check_problem(c, "object %s: Unseen didn't write it", log_quote_str(w->object));
    }
    return 0;
}

static int on_name(void *arg, const char *object, struct err *err)
{
    return walk_add(((struct whole *)arg)->walk, object, err);
}

static void on_piece(void *arg, uint64_t done, uint64_t total)
{
    const struct rados_check *order = ((struct whole *)arg)->checking.order;
    if (order->progress != NULL) {
        order->progress(order->arg, done, total);
    }
}

int rados_check_pool(const struct config *cfg, const struct rados_check *order, struct rados_checked *out,
                     struct err *err)
{
    struct whole x = {.checking = {.order = order, .out = out}};
    const struct walk_options options = {.rate = order->rate, .each = on_object, .arg = &x};
    const struct walk_list list = {.name = on_name, .progress = on_piece, .arg = &x};
    struct store *store;
    int64_t earlier;
    *out = (struct rados_checked){0};
    int result =
        rados_store_open(cfg, &(struct rados_store_options){.ops = order->ops, .use = RADOS_ASKS}, &store, err);
    if (result < 0) {
        return result;
    }
    x.checking.s = rados_of(store);
    guarded_clock_now(&x.checking.s->clock, &x.checking.later, &earlier);
    result = walk_open(x.checking.s, &options, &x.walk, err);
    result = result < 0 ? result : walk_list(x.checking.s, &list, err);
    result = result < 0 ? result : walk_drain(x.walk, err);
    walk_close(x.walk);
    if (result == 0 && !x.meta) {
        check_problem(&x.checking, "object meta: it was not among the objects that the pool lists");
    }
    buf_free(&x.checking.parts);
    store->ops->close(store);
    return result;
}
