#include "store/rados/fetch.h"

#include <string.h>

#include "base/log.h"
#include "store/rados/rados.h"

void fetch_init(struct fetch *f)
{
    pthread_mutex_init(&f->mutex, NULL);
}

void fetch_destroy(struct fetch *f)
{
    pthread_mutex_destroy(&f->mutex);
}

static void end(struct fetch *f)
{
    struct rados_store *s = f->s;
    f->done(f);
    rados_store_ended(s);
}

/* --- a page --- */

/* No node of ours has written it. Takers don't see it. */
static void note_strange(struct fetch *f, struct slice key)
{
    if (f->strange_len == 0 && key.len > 0) {
        f->strange_len = key.len < sizeof f->strange ? key.len : sizeof f->strange;
        memcpy(f->strange, key.data, f->strange_len);
    }
}

static void on_pair(struct cluster_read *read, int range, struct slice key, struct slice value)
{
    struct fetch *f = (struct fetch *)read;
    struct layout_key k = layout_key_read(key);
    if (k.kind == LAYOUT_GENERATION) {
        f->odd = f->odd || value.len != LAYOUT_HEX;
        f->generation_len = value.len == LAYOUT_HEX ? value.len : 0;
        memcpy(f->generation_bytes, value.data, f->generation_len);
    }
    bool passable = key.len < LAYOUT_KEY && memchr(key.data, 0, key.len) == NULL;
    if (range >= 0 && passable) {
        size_t of = f->range_of[range];
        memcpy(f->after[of], key.data, key.len);
        f->after[of][key.len] = '\0';
    }
    if (range >= 0) {
        f->stuck[f->range_of[range]] = !passable;
    }
    if (k.kind == LAYOUT_OTHER) {
        note_strange(f, key);
    } else if (k.kind != LAYOUT_GENERATION && f->failed == 0) {
        f->failed = f->take(f, &k, value);
    }
}

static void on_read(struct cluster_op *op);

/* The ranges that have more, or all of them at the beginning. ERR_CLOSED, ERR_NOMEM. */
static int read_page(struct fetch *f)
{
    struct cluster_read *r = &f->read;
    static const struct slice generation = {"g", 1};
    r->op.object = f->object;
    r->op.done = on_read;
    r->pair = on_pair;
    r->most = f->first_page ? NULL : layout_most; /* of what is only looked at nothing is kept */
    r->below = f->begun ? NULL : f->below;
    f->wanted[0] = generation;
    for (size_t i = 0; i < f->n_keys && !f->begun; i++) {
        f->wanted[i + 1] = f->keys[i];
    }
    r->keys = f->wanted;
    r->n_keys = f->begun ? 1 : 1 + f->n_keys;
    size_t n = 0, before = r->n_ranges;
    for (size_t i = 0; i < (f->begun ? before : f->n_ranges); i++) {
        size_t of = f->begun ? f->range_of[i] : i;
        if (!f->begun) {
            f->after[of][0] = '\0';
        } else if (!r->ranges[i].more) {
            continue;
        }
        f->range_of[n] = of;
        f->stuck[of] = true;
        r->ranges[n++] =
            (struct cluster_range){.prefix = f->ranges[of].prefix, .after = f->after[of], .max = f->ranges[of].page};
    }
    r->n_ranges = n;
    f->generation_len = 0;
    pthread_mutex_lock(&f->mutex);
    int result = f->cancelled ? ERR_CLOSED : f->s->ops->read(f->s->cluster, r);
    f->reading = result == 0;
    pthread_mutex_unlock(&f->mutex);
    return result;
}

static bool has_more(const struct fetch *f)
{
    bool more = false;
    for (size_t i = 0; i < f->read.n_ranges; i++) {
        more = more || f->read.ranges[i].more;
    }
    return more && !f->first_page;
}

/* Whether it can't be read on: the last key of a page is none of ours, and can't be named as a place. */
static bool is_stuck(const struct fetch *f)
{
    bool stuck = false;
    for (size_t i = 0; i < f->read.n_ranges; i++) {
        stuck = stuck || (f->read.ranges[i].more && f->stuck[f->range_of[i]]);
    }
    return stuck;
}

/* Whether the page is of the state of those before it. */
static bool fits(struct fetch *f)
{
    if (!f->begun) {
        f->begun = true;
        memcpy(f->first_generation, f->generation_bytes, f->generation_len);
        f->generation = slice_of(f->first_generation, f->generation_len);
        f->version = f->read.op.version;
        f->exists = true;
        return true;
    }
    return slice_eq(f->generation, slice_of(f->generation_bytes, f->generation_len)) &&
           ((!f->one_version && !f->odd) || f->version == f->read.op.version);
}

static void page(struct fetch *f)
{
    int result = read_page(f);
    if (result < 0) {
        err_set(&f->err, result, result == ERR_NOMEM ? "out of memory while reading a user" : "the store is closing");
        end(f);
    }
}

static void begin_again(struct fetch *f)
{
    if (++f->tries >= FETCH_TRIES) {
        err_set(&f->err, ERR_BUSY, "user %s changes faster than it can be read", log_quote(f->user));
        end(f);
        return;
    }
    f->begun = f->exists = f->odd = false;
    f->strange_len = 0;
    f->failed = 0;
    f->err = (struct err){0};
    f->again(f);
    page(f);
}

static void on_read(struct cluster_op *op)
{
    struct fetch *f = (struct fetch *)op;
    pthread_mutex_lock(&f->mutex);
    f->reading = false;
    pthread_mutex_unlock(&f->mutex);
    if (op->result == CLUSTER_ABSENT) {
        if (f->begun) {
            begin_again(f);
        } else {
            end(f);
        }
    } else if (op->result == CLUSTER_DIFFERS && !f->begun && f->below != NULL) {
        err_set(&f->err, ERR_LARGE, "the user has more than %d KiB of filters and plays", STORE_LARGE / 1024);
        end(f);
    } else if (op->result != CLUSTER_DONE) {
        cluster_error(f->s, op, "reading", f->user, &f->err);
        end(f);
    } else if (!fits(f)) {
        begin_again(f);
    } else if (f->failed < 0) {
        end(f);
    } else if (has_more(f) && is_stuck(f)) {
        err_set(&f->err, ERR_CORRUPT, "user %s: there is a key that Unseen didn't write: %s", log_quote(f->user),
                log_quote(slice_of(f->strange, f->strange_len)));
        end(f);
    } else if (has_more(f)) {
        page(f);
    } else {
        end(f);
    }
}

void fetch_start(struct fetch *f)
{
    f->err = (struct err){0};
    f->begun = f->exists = f->odd = false;
    f->strange_len = 0;
    f->generation = slice_of("", 0);
    f->version = 0;
    f->tries = 0;
    f->failed = 0;
    f->again(f);
    rados_store_begun(f->s);
    page(f);
}

void fetch_cancel(struct fetch *f)
{
    pthread_mutex_lock(&f->mutex);
    f->cancelled = true;
    if (f->reading) {
        f->s->ops->cancel(f->s->cluster, &f->read.op);
    }
    pthread_mutex_unlock(&f->mutex);
}
