/* A ring of slots, each with an object that is being read or was read. The first page is guarded by the directory's
 * head, as a question's is: an object with more than WALK_LARGE bytes of filters is read a few keys at a time, since a
 * page of 1,024 keys of it could be very large. */
#include "store/rados/walk.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"

enum {
    WALK_LARGE = 1 << 20,
    USER_BYTES = 256 << 20, /* of one user: a giant of 30 million plays */
    FEW_KEYS = 8,
    TRIES = 32,
    LIST_PIECES = 64,
    KEPT_BYTES = 256 * 1024, /* of a slot's memory, for the next object */
    SECOND_US = 1000 * 1000,
};

struct place { /* of a pair, in the bytes */
    size_t key, key_len, value, value_len;
};

struct slot {
    struct cluster_read read; /* first */
    struct walk *walk;
    char *object;
    struct buf bytes, places, pairs, after;
    struct slice wanted; /* the generation's key */
    struct cluster_pair below;
    char below_value[LAYOUT_LIMIT];
    char generation[LAYOUT_HEX], first_generation[LAYOUT_HEX];
    size_t generation_len, first_generation_len;
    size_t charged; /* of the walk's bytes */
    unsigned tries;
    bool begun, large, nomem, too_large, odd_key;
    bool done; /* under the walk's mutex */
    struct walked walked;
};

struct walk {
    struct rados_store *s;
    struct walk_options options;
    pthread_mutex_t mutex;
    pthread_cond_t came;
    _Atomic size_t bytes; /* of all slots */
    struct slot slots[WALK_AT_ONCE];
    size_t oldest, n;
    int64_t began_us;
    uint64_t added;
};

/* --- a read, on threads of the cluster --- */

static void on_pair(struct cluster_read *read, int range, struct slice key, struct slice value)
{
    struct slot *slot = (struct slot *)read;
    struct buf *b = &slot->bytes;
    if (range < 0) {
        slot->generation_len = value.len == LAYOUT_HEX ? value.len : 0;
        memcpy(slot->generation, value.data, slot->generation_len);
        return;
    }
    const struct place place = {b->len, key.len, b->len + key.len, value.len};
    slot->too_large = slot->too_large || b->len + key.len + value.len > USER_BYTES;
    if (slot->nomem || slot->too_large) {
        return;
    }
    slot->nomem = buf_add(b, key.data, key.len) < 0 || buf_add(b, value.data, value.len) < 0 ||
                  buf_add(&slot->places, &place, sizeof place) < 0;
    slot->charged += key.len + value.len;
    atomic_fetch_add(&slot->walk->bytes, key.len + value.len);
    buf_clear(&slot->after);
    slot->nomem = slot->nomem || buf_add(&slot->after, key.data, key.len) < 0 || buf_add(&slot->after, "", 1) < 0;
    slot->odd_key = memchr(key.data, 0, key.len) != NULL; /* nothing behind it can be asked for */
}

static void forget_pairs(struct slot *slot)
{
    atomic_fetch_sub(&slot->walk->bytes, slot->charged);
    slot->charged = 0;
    buf_clear(&slot->bytes);
    buf_clear(&slot->places);
    buf_clear(&slot->after);
    slot->nomem = slot->too_large = slot->odd_key = false;
}

static void finish(struct slot *slot)
{
    struct walk *w = slot->walk;
    pthread_mutex_lock(&w->mutex);
    slot->done = true;
    pthread_cond_signal(&w->came);
    pthread_mutex_unlock(&w->mutex);
}

static void on_read(struct cluster_op *op);

static void page(struct slot *slot)
{
    struct cluster_read *r = &slot->read;
    r->op.object = slot->object;
    r->op.done = on_read;
    r->pair = on_pair;
    r->most = layout_most;
    r->keys = &slot->wanted;
    r->n_keys = 1;
    r->below = slot->begun || slot->large ? NULL : &slot->below;
    r->n_ranges = 1;
    r->ranges[0] = (struct cluster_range){
        .prefix = "", .after = slot->begun ? slot->after.data : "", .max = slot->large ? FEW_KEYS : CLUSTER_PAGE};
    slot->generation_len = 0;
    if (slot->walk->s->ops->read(slot->walk->s->cluster, r) < 0) {
        slot->nomem = true;
        finish(slot);
    }
}

static void begin(struct slot *slot)
{
    slot->begun = false;
    forget_pairs(slot);
    page(slot);
}

static void begin_again(struct slot *slot)
{
    if (++slot->tries < TRIES) {
        begin(slot);
    } else {
        err_set(&slot->walked.err, ERR_BUSY, "object %s changes faster than it can be read",
                log_quote_str(slot->object));
        finish(slot);
    }
}

static bool fits(struct slot *slot)
{
    if (!slot->begun) {
        slot->begun = true;
        memcpy(slot->first_generation, slot->generation, slot->generation_len);
        slot->first_generation_len = slot->generation_len;
        return true;
    }
    return slice_eq(slice_of(slot->generation, slot->generation_len),
                    slice_of(slot->first_generation, slot->first_generation_len));
}

static void on_read(struct cluster_op *op)
{
    struct slot *slot = (struct slot *)op;
    if (op->result == CLUSTER_ABSENT && slot->begun) {
        begin_again(slot);
    } else if (op->result == CLUSTER_ABSENT) {
        finish(slot);
    } else if (op->result == CLUSTER_DIFFERS && !slot->large) {
        slot->large = true;
        begin(slot);
    } else if (op->result != CLUSTER_DONE) {
        cluster_error(slot->walk->s, op, "reading the object of", slice_str(slot->object), &slot->walked.err);
        finish(slot);
    } else if (!fits(slot)) {
        begin_again(slot);
    } else if (slot->read.ranges[0].more && !slot->odd_key && !slot->nomem && !slot->too_large) {
        page(slot);
    } else {
        slot->walked.exists = true;
        finish(slot);
    }
}

/* --- handing over --- */

static int by_key(const void *a, const void *b)
{
    struct slice x = ((const struct walk_pair *)a)->key, y = ((const struct walk_pair *)b)->key;
    size_t n = x.len < y.len ? x.len : y.len;
    int order = n > 0 ? memcmp(x.data, y.data, n) : 0;
    return order != 0 ? order : (x.len > y.len) - (x.len < y.len);
}

static int list_pairs(struct slot *slot)
{
    size_t n = slot->places.len / sizeof(struct place);
    buf_clear(&slot->pairs);
    if (buf_reserve(&slot->pairs, n * sizeof(struct walk_pair)) < 0) {
        return ERR_NOMEM;
    }
    struct walk_pair *pairs = (struct walk_pair *)(void *)slot->pairs.data;
    for (size_t i = 0; i < n; i++) {
        struct place p;
        memcpy(&p, slot->places.data + i * sizeof p, sizeof p);
        pairs[i] = (struct walk_pair){slice_of(slot->bytes.data + p.key, p.key_len),
                                      slice_of(slot->bytes.data + p.value, p.value_len)};
    }
    if (n > 1) {
        qsort(pairs, n, sizeof *pairs, by_key);
    }
    slot->walked.pairs = pairs;
    slot->walked.n = n;
    return 0;
}

static void release(struct walk *w, struct slot *slot)
{
    forget_pairs(slot);
    buf_shrink(&slot->bytes, KEPT_BYTES);
    buf_shrink(&slot->places, KEPT_BYTES);
    buf_shrink(&slot->pairs, KEPT_BYTES);
    free(slot->object);
    slot->object = NULL;
    w->oldest = (w->oldest + 1) % WALK_AT_ONCE;
    w->n--;
}

static void wait_for_oldest(struct walk *w)
{
    pthread_mutex_lock(&w->mutex);
    while (!w->slots[w->oldest].done) {
        pthread_cond_wait(&w->came, &w->mutex);
    }
    pthread_mutex_unlock(&w->mutex);
}

static int take_oldest(struct walk *w, struct err *err)
{
    struct slot *slot = &w->slots[w->oldest];
    struct walked *walked = &slot->walked;
    int result = 0;
    wait_for_oldest(w);
    if (slot->nomem || list_pairs(slot) < 0) {
        result = err_set(err, ERR_NOMEM, "out of memory while reading object %s", log_quote_str(slot->object));
    } else if (slot->too_large) {
        err_set(&walked->err, ERR_LARGE, "object %s has more than %d MiB", log_quote_str(slot->object),
                USER_BYTES >> 20);
    } else if (slot->odd_key && slot->read.ranges[0].more) {
        err_set(&walked->err, ERR_CORRUPT, "object %s has a key with a zero byte: what is behind it can't be read",
                log_quote_str(slot->object));
    }
    if (walked->err.code < 0) {
        walked->n = 0;
    }
    result = result < 0 ? result : w->options.each(w->options.arg, walked, err);
    release(w, slot);
    return result;
}

/* --- adding --- */

/* The i-th object is begun no earlier than the rate has it. */
static void keep_rate(struct walk *w)
{
    uint64_t rate = w->options.rate;
    if (rate == 0) {
        return;
    }
    int64_t due_us =
        w->began_us + (int64_t)(w->added / rate) * SECOND_US + (int64_t)(w->added % rate * SECOND_US / rate);
    int64_t left = due_us - clock_real_us();
    if (left < -SECOND_US) { /* the cluster was slower than that: nothing is caught up on */
        w->began_us -= left;
    }
    if (left > 0) {
        nanosleep(&(struct timespec){.tv_sec = left / SECOND_US, .tv_nsec = left % SECOND_US * 1000}, NULL);
    }
    w->added++;
}

int walk_add(struct walk *w, const char *object, struct err *err)
{
    int result = 0;
    while (result == 0 && (w->n == WALK_AT_ONCE || (w->n > 0 && atomic_load(&w->bytes) > WALK_BYTES))) {
        result = take_oldest(w, err);
    }
    if (result < 0) {
        return result;
    }
    keep_rate(w);
    struct slot *slot = &w->slots[(w->oldest + w->n) % WALK_AT_ONCE];
    slot->object = strdup(object);
    if (slot->object == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory while reading %s", log_quote_str(object));
    }
    slot->walked = (struct walked){.object = slot->object};
    slot->tries = 0;
    slot->large = slot->done = false;
    w->n++;
    begin(slot);
    return 0;
}

int walk_drain(struct walk *w, struct err *err)
{
    int result = 0;
    while (result == 0 && w->n > 0) {
        result = take_oldest(w, err);
    }
    return result;
}

int walk_open(struct rados_store *s, const struct walk_options *options, struct walk **walk, struct err *err)
{
    struct walk *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    w->s = s;
    w->options = *options;
    w->began_us = clock_real_us();
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->came, NULL);
    for (size_t i = 0; i < WALK_AT_ONCE; i++) {
        struct slot *slot = &w->slots[i];
        slot->walk = w;
        slot->wanted = slice_str("g");
        layout_directory_limit(WALK_LARGE, slot->below_value);
        slot->below = (struct cluster_pair){slice_str("w"), slice_of(slot->below_value, LAYOUT_LIMIT)};
    }
    *walk = w;
    return 0;
}

void walk_close(struct walk *w)
{
    if (w == NULL) {
        return;
    }
    while (w->n > 0) {
        wait_for_oldest(w);
        release(w, &w->slots[w->oldest]);
    }
    for (size_t i = 0; i < WALK_AT_ONCE; i++) {
        buf_free(&w->slots[i].bytes);
        buf_free(&w->slots[i].places);
        buf_free(&w->slots[i].pairs);
        buf_free(&w->slots[i].after);
    }
    pthread_cond_destroy(&w->came);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

/* --- the list --- */

struct names {
    char *list[WALK_NAMES];
    size_t n;
    bool nomem;
};

static void on_name(void *arg, const char *object)
{
    struct names *names = arg;
    char *copy = names->n < WALK_NAMES ? strdup(object) : NULL;
    names->nomem = names->nomem || copy == NULL;
    if (copy != NULL) {
        names->list[names->n++] = copy;
    }
}

static int tell_names(const struct walk_list *list, struct names *names, struct err *err)
{
    int result = names->nomem ? err_set(err, ERR_NOMEM, "out of memory while listing objects") : 0;
    for (size_t i = 0; i < names->n; i++) {
        result = result < 0 ? result : list->name(list->arg, names->list[i], err);
        free(names->list[i]);
    }
    names->n = 0;
    return result;
}

static int list_piece(struct rados_store *s, size_t i, const struct walk_list *list, struct err *err)
{
    struct cluster_listing *listing;
    struct names names = {.n = 0};
    int result = s->ops->list(s->cluster, i, LIST_PIECES, &listing, err), more = 1;
    if (result < 0) {
        return result;
    }
    while (result == 0 && more > 0) {
        more = s->ops->list_next(listing, WALK_NAMES, on_name, &names, err);
        result = tell_names(list, &names, more < 0 ? &(struct err){0} : err);
    }
    s->ops->list_end(listing);
    return more < 0 ? more : result;
}

int walk_list(struct rados_store *s, const struct walk_list *list, struct err *err)
{
    int result = 0;
    for (size_t i = 0; i < LIST_PIECES && result == 0; i++) {
        result = list_piece(s, i, list, err);
        if (result == 0) {
            list->progress(list->arg, i + 1, LIST_PIECES);
        }
    }
    return result;
}
