#include "store/rados/bulk.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 64, ITEMS_A_BATCH = 4096, SHARE = 2 /* of staging_memory; the rest is for what is under way */ };

struct entry {
    int64_t key, at_ms;
    uint64_t hash;
    size_t user; /* in the names */
    uint8_t len;
};

struct bulk {
    struct rados_store *s;
    struct buf entries, names;
    pthread_mutex_t mutex; /* all below */
    pthread_cond_t fewer;
    size_t under_way;
    bool stopped;
    struct err err; /* the first */
};

struct handed {               /* a batch under way */
    struct store_batch batch; /* first */
    struct bulk *bulk;
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while plays are loaded");
}

/* --- handing over --- */

static void on_done(struct store_batch *batch)
{
    struct handed *h = (struct handed *)batch;
    struct bulk *b = h->bulk;
    pthread_mutex_lock(&b->mutex);
    b->err = b->err.code == 0 ? batch->err : b->err;
    b->under_way--;
    pthread_cond_signal(&b->fewer);
    pthread_mutex_unlock(&b->mutex);
    buf_free(&batch->bytes);
    free(h);
}

/* Until at most so many are under way. The first error of all so far, which keeps anything more from being begun. */
static int wait_for(struct bulk *b, size_t at_most, struct err *err)
{
    pthread_mutex_lock(&b->mutex);
    while (b->under_way > at_most) {
        pthread_cond_wait(&b->fewer, &b->mutex);
    }
    int result = b->err.code < 0 ? err_set(err, b->err.code, "%s", b->err.text)
                 : b->stopped    ? err_set(err, ERR_CLOSED, "the load was stopped")
                                 : 0;
    pthread_mutex_unlock(&b->mutex);
    return result;
}

static const struct entry *entry_at(const struct bulk *b, size_t i)
{
    return (const struct entry *)(const void *)b->entries.data + i;
}

static struct slice user_of(const struct bulk *b, const struct entry *e)
{
    return slice_of(b->names.data + e->user, e->len);
}

static int by_user_and_time(const void *x, const void *y, void *arg)
{
    const struct bulk *b = arg;
    const struct entry *m = x, *n = y;
    if (m->key != n->key) {
        return m->key < n->key ? -1 : 1;
    }
    struct slice u = user_of(b, m), v = user_of(b, n);
    int order = u.len != v.len ? (u.len < v.len ? -1 : 1) : memcmp(u.data, v.data, u.len);
    return order != 0 ? order : (m->at_ms > n->at_ms) - (m->at_ms < n->at_ms);
}

/* Items of one user at one time, from `at` on, at most so many. A pool keeps nothing of a play's item but its hash, so
 * that any id will do where the batch has one. */
static int add_event(struct bulk *b, struct store_batch *batch, size_t at, size_t most, size_t *n)
{
    struct slice items[ITEMS_A_BATCH];
    uint64_t hashes[ITEMS_A_BATCH];
    const struct entry *first = entry_at(b, at);
    size_t total = b->entries.len / sizeof *first;
    for (*n = 0; *n < most && at + *n < total; ++*n) {
        const struct entry *e = entry_at(b, at + *n);
        if (e->key != first->key || e->at_ms != first->at_ms || !slice_eq(user_of(b, e), user_of(b, first))) {
            break;
        }
        items[*n] = slice_str("-");
        hashes[*n] = e->hash;
    }
    return store_batch_add(batch, STORE_PLAY, first->at_ms, STORE_STATED, first->key, user_of(b, first), items, hashes,
                           *n);
}

/* What one user has from `at` on, as far as a batch goes. *next: where the next one begins. */
static int hand_user(struct bulk *b, size_t at, size_t *next, struct err *err)
{
    struct handed *h = calloc(1, sizeof *h);
    size_t total = b->entries.len / sizeof(struct entry), n = 0, taken = 0;
    int result = h != NULL ? 0 : ERR_NOMEM;
    const struct slice user = user_of(b, entry_at(b, at));
    while (result == 0 && at + taken < total && taken < ITEMS_A_BATCH &&
           slice_eq(user_of(b, entry_at(b, at + taken)), user)) {
        result = add_event(b, &h->batch, at + taken, ITEMS_A_BATCH - taken, &n);
        taken += n;
    }
    if (result < 0) {
        if (h != NULL) {
            buf_free(&h->batch.bytes);
        }
        free(h);
        return no_memory(err);
    }
    h->bulk = b;
    h->batch.patient = true;
    h->batch.done = on_done;
    pthread_mutex_lock(&b->mutex);
    b->under_way++;
    pthread_mutex_unlock(&b->mutex);
    b->s->base.ops->record(&b->s->base, &h->batch);
    *next = at + taken;
    return 0;
}

/* All that was added; it is durable afterwards. */
static int hand_over(struct bulk *b, struct err *err)
{
    size_t n = b->entries.len / sizeof(struct entry), at = 0;
    int result = wait_for(b, 0, err);
    if (n > 1) {
        qsort_r(b->entries.data, n, sizeof(struct entry), by_user_and_time, b);
    }
    while (result == 0 && at < n) {
        result = hand_user(b, at, &at, err);
        result = result < 0 ? result : wait_for(b, AT_ONCE - 1, err);
    }
    struct err last;
    int end = wait_for(b, 0, &last);
    buf_clear(&b->entries);
    buf_clear(&b->names);
    return result < 0 ? result : end < 0 ? err_set(err, end, "%s", last.text) : 0;
}

/* --- the capability --- */

static int begin(struct store *base, bool serving, struct err *err)
{
    struct rados_store *s = rados_of(base);
    if (serving) {
        return store_lacks(base, "users who are still to come from another Redis", err);
    }
    int result = guarded_clock_known(&s->clock, err);
    if (result < 0) {
        return result;
    }
    struct bulk *b = s->bulk == NULL ? calloc(1, sizeof *b) : NULL;
    if (b == NULL) {
        return s->bulk == NULL ? no_memory(err) : err_set(err, ERR_BUSY, "a load is under way");
    }
    b->s = s;
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->fewer, NULL);
    s->bulk = b;
    return 0;
}

static size_t bytes(struct store *base)
{
    const struct bulk *b = rados_of(base)->bulk;
    return b->entries.len + b->names.len;
}

static int add(struct store *base, int64_t at_ms, int64_t key, struct slice user, uint64_t item_hash, struct err *err)
{
    struct rados_store *s = rados_of(base);
    struct bulk *b = s->bulk;
    size_t limit = (size_t)config_now(s->cfg)->staging_memory / SHARE;
    if (bytes(base) + sizeof(struct entry) + user.len > limit && b->entries.len > 0) {
        int result = hand_over(b, err);
        if (result < 0) {
            return result;
        }
    }
    const struct entry e = {key, at_ms, item_hash, b->names.len, (uint8_t)user.len};
    if (buf_add(&b->names, user.data, user.len) < 0 || buf_add(&b->entries, &e, sizeof e) < 0) {
        return no_memory(err);
    }
    return 0;
}

static int deliver(struct store *base, int64_t at_ms, int64_t key, struct slice user, struct slice item,
                   uint64_t item_hash, uint64_t rank, struct err *err)
{
    (void)at_ms, (void)key, (void)user, (void)item, (void)item_hash, (void)rank;
    return store_lacks(base, "deliveries that have a rank", err);
}

static int turn(struct store *base, struct err *err)
{
    return hand_over(rados_of(base)->bulk, err);
}

static int end(struct store *base, struct err *err)
{
    struct rados_store *s = rados_of(base);
    struct err ignored;
    int result = hand_over(s->bulk, err != NULL ? err : &ignored);
    bulk_free(s);
    return result;
}

static void stop(struct store *base)
{
    struct bulk *b = rados_of(base)->bulk;
    if (b != NULL) {
        pthread_mutex_lock(&b->mutex);
        b->stopped = true;
        pthread_mutex_unlock(&b->mutex);
    }
}

static int room(struct store *base, struct err *err)
{
    return base->ops->refusal(base, err);
}

void bulk_free(struct rados_store *s)
{
    struct bulk *b = s->bulk;
    if (b != NULL) {
        buf_free(&b->entries);
        buf_free(&b->names);
        pthread_cond_destroy(&b->fewer);
        pthread_mutex_destroy(&b->mutex);
        free(b);
        s->bulk = NULL;
    }
}

const struct store_bulk_ops rados_bulk_ops = {
    .begin = begin,
    .add = add,
    .deliver = deliver,
    .bytes = bytes,
    .turn = turn,
    .end = end,
    .stop = stop,
    .room = room,
};
