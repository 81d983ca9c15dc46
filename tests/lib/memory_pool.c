#include "tests/lib/memory_pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"

struct pair {
    char *key; /* one allocation with the value */
    size_t key_len;
    char *value;
    size_t value_len;
};

struct object {
    struct object *next;
    char *name;
    uint64_t version;
    struct pair *pairs; /* by key */
    size_t n, cap;
};

struct lock {
    struct lock *next;
    char *object, *cookie;
    int64_t until_ms;
};

struct operation {
    struct operation *next;
    struct cluster *by;
    struct cluster_op *op;
    bool write, cancelled, late;
};

enum { BUCKETS = 4096, KINDS = 5 };

struct memory_pool {
    struct memory_pool *next; /* of all */
    char name[64];
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t thread;
    bool stop, full, removed;
    unsigned held;
    uint64_t random; /* 0: in order */
    struct operation *first, **last;
    struct object *buckets[BUCKETS];
    size_t n_objects;
    uint64_t version, done[KINDS];
    uint64_t connections, fenced; /* made so far; and those up to that one are fenced */
    struct lock *locks;
    bool failing;
    unsigned faults;
    struct memory_pool_fault fault;
    char fault_object[CLUSTER_PAGE];
};

struct cluster {
    struct memory_pool *pool;
    uint64_t number;
};

static pthread_mutex_t all_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct memory_pool *all;

static _Thread_local bool inside;

bool memory_pool_allocates(void)
{
    return inside;
}

static void *sure(void *p)
{
    if (p == NULL) {
        abort();
    }
    return p;
}

/* --- objects --- */

static struct object **object_at(struct memory_pool *p, const char *name)
{
    struct object **at = &p->buckets[hash_checksum(name, strlen(name)) % BUCKETS];
    while (*at != NULL && strcmp((*at)->name, name) != 0) {
        at = &(*at)->next;
    }
    return at;
}

static struct object *object_make(struct memory_pool *p, const char *name)
{
    struct object **at = object_at(p, name);
    if (*at == NULL) {
        *at = sure(calloc(1, sizeof **at));
        (*at)->name = sure(strdup(name));
        p->n_objects++;
    }
    return *at;
}

static void object_clear(struct object *o)
{
    for (size_t i = 0; i < o->n; i++) {
        free(o->pairs[i].key);
    }
    o->n = 0;
}

static void object_drop(struct memory_pool *p, struct object **at)
{
    struct object *o = *at;
    *at = o->next;
    object_clear(o);
    free(o->pairs);
    free(o->name);
    free(o);
    p->n_objects--;
}

static int compare(struct slice a, struct slice b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n > 0 ? memcmp(a.data, b.data, n) : 0;
    return order != 0 ? order : a.len < b.len ? -1 : a.len > b.len;
}

static struct slice key_of_pair(const struct pair *pair)
{
    return slice_of(pair->key, pair->key_len);
}

/* Of the first pair whose key is not below. */
static size_t lower_bound(const struct object *o, struct slice key)
{
    size_t low = 0, high = o->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compare(key_of_pair(&o->pairs[middle]), key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static const struct pair *find(const struct object *o, struct slice key)
{
    size_t at = lower_bound(o, key);
    return at < o->n && compare(key_of_pair(&o->pairs[at]), key) == 0 ? &o->pairs[at] : NULL;
}

static struct slice value_of(const struct object *o, struct slice key)
{
    const struct pair *pair = find(o, key);
    return pair != NULL ? slice_of(pair->value, pair->value_len) : slice_of("", 0);
}

static struct pair make_pair(const struct cluster_pair *from)
{
    struct pair pair = {.key_len = from->key.len, .value_len = from->value.len};
    pair.key = sure(malloc(from->key.len + from->value.len + 1));
    pair.value = pair.key + from->key.len;
    memcpy(pair.key, from->key.data, from->key.len);
    if (from->value.len > 0) {
        memcpy(pair.value, from->value.data, from->value.len);
    }
    return pair;
}

static int by_key_and_place(const void *a, const void *b)
{
    const struct cluster_pair *const *x = a, *const *y = b;
    int order = compare((*x)->key, (*y)->key);
    return order != 0 ? order : *x < *y ? -1 : *x > *y;
}

/* Both lists are walked once, whatever their sizes. */
static void object_set(struct object *o, const struct cluster_pair *set, size_t n)
{
    const struct cluster_pair **sorted = sure(calloc(n + 1, sizeof *sorted));
    struct pair *merged = sure(calloc(o->n + n + 1, sizeof *merged));
    size_t at = 0, to = 0;
    for (size_t i = 0; i < n; i++) {
        sorted[i] = &set[i];
    }
    qsort(sorted, n, sizeof *sorted, by_key_and_place);
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && compare(sorted[i]->key, sorted[i + 1]->key) == 0) {
            continue;
        }
        while (at < o->n && compare(key_of_pair(&o->pairs[at]), sorted[i]->key) < 0) {
            merged[to++] = o->pairs[at++];
        }
        if (at < o->n && compare(key_of_pair(&o->pairs[at]), sorted[i]->key) == 0) {
            free(o->pairs[at++].key);
        }
        merged[to++] = make_pair(sorted[i]);
    }
    while (at < o->n) {
        merged[to++] = o->pairs[at++];
    }
    free(o->pairs);
    free(sorted);
    o->pairs = merged;
    o->n = to;
}

static void object_remove(struct object *o, const struct slice *keys, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = lower_bound(o, keys[i]);
        if (at < o->n && o->pairs[at].key != NULL && compare(key_of_pair(&o->pairs[at]), keys[i]) == 0) {
            o->pairs[at].value_len = SIZE_MAX; /* goes below, so that the order stays meanwhile */
        }
    }
    for (size_t i = 0; i < o->n; i++) {
        if (o->pairs[i].value_len == SIZE_MAX) {
            free(o->pairs[i].key);
        } else {
            o->pairs[kept++] = o->pairs[i];
        }
    }
    o->n = kept;
}

/* --- operations --- */

static enum cluster_result carry_out_write(struct memory_pool *p, struct cluster_write *w)
{
    struct object **at = object_at(p, w->op.object);
    if (w->exclusive && *at != NULL) {
        return CLUSTER_EXISTS;
    }
    if (*at == NULL && (w->version != 0 || w->n_equals > 0 || w->clear || w->destroy)) {
        return CLUSTER_ABSENT;
    }
    bool holds = w->version == 0 || (*at)->version == w->version;
    for (size_t i = 0; holds && i < w->n_equals; i++) {
        holds = slice_eq(value_of(*at, w->equals[i].key), w->equals[i].value);
    }
    if (!holds) {
        return CLUSTER_DIFFERS;
    }
    if (p->full && w->attempt && *at == NULL) {
        return CLUSTER_FULL;
    }
    w->op.version = ++p->version;
    if (w->destroy) {
        object_drop(p, at);
        return CLUSTER_DONE;
    }
    struct object *o = object_make(p, w->op.object);
    if (w->clear) {
        object_clear(o);
    }
    object_set(o, w->set, w->n_set);
    object_remove(o, w->remove, w->n_remove);
    o->version = p->version;
    return CLUSTER_DONE;
}

static void tell(struct cluster_read *r, int range, const struct pair *pair)
{
    struct slice key = key_of_pair(pair), value = slice_of(pair->value, pair->value_len);
    inside = false;
    if (r->op.result == CLUSTER_DONE && cluster_takes(r, key, value)) {
        r->pair(r, range, key, value);
    }
    inside = true;
}

static void read_range(const struct object *o, struct cluster_read *r, int i)
{
    struct cluster_range *range = &r->ranges[i];
    struct slice prefix = slice_str(range->prefix), after = slice_str(range->after);
    uint32_t max = range->max < CLUSTER_PAGE ? range->max : CLUSTER_PAGE, n = 0;
    size_t at = lower_bound(o, prefix);
    while (after.len > 0 && at < o->n && compare(key_of_pair(&o->pairs[at]), after) <= 0) {
        at = lower_bound(o, after);
        at += at < o->n && compare(key_of_pair(&o->pairs[at]), after) == 0;
    }
    range->more = false;
    for (; at < o->n; at++) {
        const struct pair *pair = &o->pairs[at];
        if (pair->key_len < prefix.len || memcmp(pair->key, prefix.data, prefix.len) != 0) {
            break;
        }
        if (n++ == max) {
            range->more = true;
            break;
        }
        tell(r, i, pair);
    }
}

static enum cluster_result carry_out_read(struct memory_pool *p, struct cluster_read *r)
{
    const struct object *o = *object_at(p, r->op.object);
    if (o == NULL) {
        return CLUSTER_ABSENT;
    }
    if (r->below != NULL && compare(value_of(o, r->below->key), r->below->value) >= 0) {
        return CLUSTER_DIFFERS;
    }
    r->op.version = o->version;
    r->op.result = CLUSTER_DONE;
    for (size_t i = 0; i < r->n_keys; i++) {
        const struct pair *pair = find(o, r->keys[i]);
        if (pair != NULL) {
            tell(r, -1, pair);
        }
    }
    for (size_t i = 0; i < r->n_ranges; i++) {
        read_range(o, r, (int)i);
    }
    return r->op.result;
}

static bool fails(struct memory_pool *p, unsigned kind, const char *object)
{
    struct memory_pool_fault *f = &p->fault;
    if (!p->failing || !(f->kinds & kind) || strncmp(object, p->fault_object, strlen(p->fault_object)) != 0) {
        return false;
    }
    if (f->nth > 1) {
        f->nth--;
        return false;
    }
    p->failing = f->every;
    p->faults++;
    return true;
}

static void count(struct memory_pool *p, unsigned kind)
{
    size_t i = 0;
    while (kind >> i != 1) {
        i++;
    }
    p->done[i]++;
}

static enum cluster_result carry_out(struct memory_pool *p, struct operation *x)
{
    if (x->cancelled) {
        return CLUSTER_CLOSED;
    }
    if (x->by->number <= p->fenced) {
        return CLUSTER_FENCED;
    }
    if (p->removed) {
        return CLUSTER_NO_POOL;
    }
    if (x->late) {
        return CLUSTER_LATE;
    }
    unsigned kind = x->write ? MEMORY_POOL_WRITES : MEMORY_POOL_READS;
    bool failing = fails(p, kind, x->op->object);
    if (failing && !(x->write && p->fault.carried_out)) {
        return p->fault.result;
    }
    enum cluster_result result =
        x->write ? carry_out_write(p, (struct cluster_write *)x->op) : carry_out_read(p, (struct cluster_read *)x->op);
    count(p, kind);
    return failing ? p->fault.result : result;
}

static uint64_t draw(struct memory_pool *p)
{
    p->random ^= p->random << 13;
    p->random ^= p->random >> 7;
    p->random ^= p->random << 17;
    return p->random;
}

/* Held ones wait. A write waits for those that its connection began before on the object. */
static bool may_go(struct memory_pool *p, const struct operation *x)
{
    if (x->cancelled || x->late || p->removed || x->by->number <= p->fenced) {
        return true;
    }
    const struct cluster_write *w = x->write ? (const struct cluster_write *)x->op : NULL;
    if (w != NULL && p->full && !w->must && !w->destroy && !w->attempt) {
        return false;
    }
    if (p->held & (x->write ? MEMORY_POOL_WRITES : MEMORY_POOL_READS)) {
        return false;
    }
    for (const struct operation *y = p->first; x->write && y != x; y = y->next) {
        if (y->write && y->by == x->by && strcmp(y->op->object, x->op->object) == 0) {
            return false;
        }
    }
    return true;
}

static struct operation *take(struct memory_pool *p)
{
    struct operation **picked = NULL;
    uint64_t n = 0;
    for (struct operation **at = &p->first; *at != NULL; at = &(*at)->next) {
        if (may_go(p, *at) && (picked == NULL || (p->random != 0 && draw(p) % (n + 1) == 0))) {
            picked = at;
        }
        n++;
        if (picked != NULL && p->random == 0) {
            break;
        }
        if (n == 64) {
            break; /* so that a long queue is no square of work */
        }
    }
    if (picked == NULL) {
        return NULL;
    }
    struct operation *x = *picked;
    *picked = x->next;
    if (p->last == &x->next) {
        p->last = picked;
    }
    return x;
}

static void *run(void *arg)
{
    struct memory_pool *p = arg;
    pthread_mutex_lock(&p->mutex);
    while (!p->stop) {
        struct operation *x = take(p);
        if (x == NULL) {
            pthread_cond_wait(&p->changed, &p->mutex);
            continue;
        }
        inside = true;
        x->op->result = carry_out(p, x);
        inside = false;
        x->op->code = x->op->result == CLUSTER_FAILED ? EIO : 0;
        x->op->own = NULL;
        pthread_mutex_unlock(&p->mutex);
        x->op->done(x->op);
        free(x);
        pthread_mutex_lock(&p->mutex);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

static void begin(struct cluster *c, struct cluster_op *op, bool write)
{
    struct memory_pool *p = c->pool;
    inside = true;
    struct operation *x = sure(calloc(1, sizeof *x));
    inside = false;
    *x = (struct operation){.by = c, .op = op, .write = write};
    op->own = x;
    pthread_mutex_lock(&p->mutex);
    *p->last = x;
    p->last = &x->next;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

static int pool_read(struct cluster *c, struct cluster_read *r)
{
    begin(c, &r->op, false);
    return 0;
}

static int pool_write(struct cluster *c, struct cluster_write *w)
{
    begin(c, &w->op, true);
    return 0;
}

static void pool_cancel(struct cluster *c, struct cluster_op *op)
{
    struct memory_pool *p = c->pool;
    pthread_mutex_lock(&p->mutex);
    struct operation *x = op->own;
    if (x != NULL) {
        x->cancelled = true;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->mutex);
}

static int pool_command(struct cluster *c, const char *json, char **text, size_t *len, struct err *err)
{
    (void)c, (void)text, (void)len;
    return err_set(err, ERR_IO, "no monitor knows \"%s\"", json);
}

/* --- locks --- */

/* Of what blocks and fails. */
static int failed(const struct memory_pool *p, const char *what, struct err *err)
{
    bool late = p->fault.result == CLUSTER_LATE;
    return err_set(err, late ? ERR_LATE : ERR_IO, "RADOS: can't %s: %s", what, strerror(late ? ETIMEDOUT : EIO));
}

static struct lock *lock_of(struct memory_pool *p, const char *object)
{
    struct lock *l = p->locks;
    while (l != NULL && strcmp(l->object, object) != 0) {
        l = l->next;
    }
    if (l == NULL) {
        l = sure(calloc(1, sizeof *l));
        *l = (struct lock){.next = p->locks, .object = sure(strdup(object)), .cookie = sure(strdup(""))};
        p->locks = l;
        object_make(p, object);
    }
    return l;
}

static int take_lock(struct memory_pool *p, const char *object, const char *cookie, int seconds)
{
    struct lock *l = lock_of(p, object);
    count(p, MEMORY_POOL_LOCKS);
    if (strcmp(l->cookie, cookie) != 0 && l->until_ms > clock_mono_ms()) {
        return 0;
    }
    free(l->cookie);
    l->cookie = sure(strdup(cookie));
    l->until_ms = clock_mono_ms() + seconds * INT64_C(1000);
    return 1;
}

static int pool_lock(struct cluster *c, const char *object, const char *cookie, int seconds, struct err *err)
{
    struct memory_pool *p = c->pool;
    int result = 0;
    inside = true;
    pthread_mutex_lock(&p->mutex);
    bool failing = fails(p, MEMORY_POOL_LOCKS, object);
    if (!failing || p->fault.carried_out) {
        result = take_lock(p, object, cookie, seconds);
    }
    if (failing) {
        result = p->fault.result == CLUSTER_DIFFERS ? 0 : failed(p, "take a lock", err);
    }
    pthread_mutex_unlock(&p->mutex);
    inside = false;
    return result;
}

static int pool_unlock(struct cluster *c, const char *object, const char *cookie, struct err *err)
{
    struct memory_pool *p = c->pool;
    pthread_mutex_lock(&p->mutex);
    bool failing = fails(p, MEMORY_POOL_UNLOCKS, object);
    for (struct lock *l = p->locks; l != NULL && (!failing || p->fault.carried_out); l = l->next) {
        if (strcmp(l->object, object) == 0 && strcmp(l->cookie, cookie) == 0) {
            l->until_ms = 0;
        }
    }
    count(p, MEMORY_POOL_UNLOCKS);
    int result = failing ? failed(p, "release a lock", err) : 0;
    pthread_mutex_unlock(&p->mutex);
    return result;
}

/* --- the list --- */

struct cluster_listing {
    struct memory_pool *pool;
    char **names;
    size_t n, at;
};

static bool list_fails(struct memory_pool *p, struct err *err)
{
    pthread_mutex_lock(&p->mutex);
    bool failing = fails(p, MEMORY_POOL_LISTS, "");
    if (failing) {
        failed(p, "list objects", err);
    } else {
        count(p, MEMORY_POOL_LISTS);
    }
    pthread_mutex_unlock(&p->mutex);
    return failing;
}

static int pool_list(struct cluster *c, size_t i, size_t n, struct cluster_listing **listing, struct err *err)
{
    struct memory_pool *p = c->pool;
    if (list_fails(p, err)) {
        return err->code;
    }
    inside = true;
    struct cluster_listing *l = sure(calloc(1, sizeof *l));
    l->pool = p;
    pthread_mutex_lock(&p->mutex);
    l->names = sure(calloc(p->n_objects + 1, sizeof *l->names));
    for (size_t b = 0; b < BUCKETS; b++) {
        for (const struct object *o = p->buckets[b]; o != NULL; o = o->next) {
            if (hash_checksum(o->name, strlen(o->name)) % n == i) {
                l->names[l->n++] = sure(strdup(o->name));
            }
        }
    }
    pthread_mutex_unlock(&p->mutex);
    inside = false;
    *listing = l;
    return 0;
}

static int pool_list_next(struct cluster_listing *l, size_t max, void (*name)(void *arg, const char *object), void *arg,
                          struct err *err)
{
    if (list_fails(l->pool, err)) {
        return err->code;
    }
    for (size_t n = 0; n < max && l->at < l->n; n++) {
        name(arg, l->names[l->at++]);
    }
    return l->at < l->n;
}

static void pool_list_end(struct cluster_listing *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->names[i]);
    }
    free(l->names);
    free(l);
}

#define CHANGE(p, what)                                                                                                \
    do {                                                                                                               \
        pthread_mutex_lock(&(p)->mutex);                                                                               \
        what;                                                                                                          \
        pthread_cond_broadcast(&(p)->changed);                                                                         \
        pthread_mutex_unlock(&(p)->mutex);                                                                             \
    } while (0)

/* --- connections --- */

static const char *pool_version(void)
{
    return "in memory";
}

static int pool_connect(const struct cluster_options *options, struct cluster **cluster, struct err *err)
{
    pthread_mutex_lock(&all_mutex);
    struct memory_pool *p = all;
    while (p != NULL && strcmp(p->name, options->pool) != 0) {
        p = p->next;
    }
    pthread_mutex_unlock(&all_mutex);
    if (p == NULL) {
        return err_set(err, ERR_NOTFOUND, "there is no pool \"%s\"", options->pool);
    }
    *cluster = sure(calloc(1, sizeof **cluster));
    (*cluster)->pool = p;
    CHANGE(p, (*cluster)->number = ++p->connections);
    return 0;
}

static void pool_address(struct cluster *c, char *out, size_t size)
{
    snprintf(out, size, "memory/%llu", (unsigned long long)c->number);
}

static void pool_disconnect(struct cluster *c)
{
    free(c);
}

const struct cluster_ops memory_pool_ops = {
    .version = pool_version,
    .connect = pool_connect,
    .address = pool_address,
    .disconnect = pool_disconnect,
    .read = pool_read,
    .write = pool_write,
    .cancel = pool_cancel,
    .command = pool_command,
    .lock = pool_lock,
    .unlock = pool_unlock,
    .list = pool_list,
    .list_next = pool_list_next,
    .list_end = pool_list_end,
};

/* --- for tests --- */

struct memory_pool *memory_pool_new(const char *name)
{
    struct memory_pool *p = sure(calloc(1, sizeof *p));
    snprintf(p->name, sizeof p->name, "%s", name);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->last = &p->first;
    if (pthread_create(&p->thread, NULL, run, p) != 0) {
        abort();
    }
    pthread_mutex_lock(&all_mutex);
    p->next = all;
    all = p;
    pthread_mutex_unlock(&all_mutex);
    return p;
}

void memory_pool_free(struct memory_pool *p)
{
    pthread_mutex_lock(&all_mutex);
    struct memory_pool **at = &all;
    while (*at != p) {
        at = &(*at)->next;
    }
    *at = p->next;
    pthread_mutex_unlock(&all_mutex);
    pthread_mutex_lock(&p->mutex);
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    pthread_join(p->thread, NULL);
    for (size_t i = 0; i < BUCKETS; i++) {
        while (p->buckets[i] != NULL) {
            object_drop(p, &p->buckets[i]);
        }
    }
    for (struct lock *l = p->locks, *next; l != NULL; l = next) {
        next = l->next;
        free(l->object);
        free(l->cookie);
        free(l);
    }
    pthread_mutex_destroy(&p->mutex);
    pthread_cond_destroy(&p->changed);
    free(p);
}

void memory_pool_shuffle(struct memory_pool *p, uint64_t seed)
{
    CHANGE(p, p->random = seed);
}

void memory_pool_fault(struct memory_pool *p, const struct memory_pool_fault *fault)
{
    pthread_mutex_lock(&p->mutex);
    p->failing = fault != NULL;
    if (fault != NULL) {
        p->fault = *fault;
        snprintf(p->fault_object, sizeof p->fault_object, "%s", fault->object);
    }
    pthread_mutex_unlock(&p->mutex);
}

unsigned memory_pool_faults(struct memory_pool *p)
{
    pthread_mutex_lock(&p->mutex);
    unsigned n = p->faults;
    pthread_mutex_unlock(&p->mutex);
    return n;
}

void memory_pool_hold(struct memory_pool *p, unsigned kinds)
{
    CHANGE(p, p->held = kinds);
}

static unsigned waiting(const struct memory_pool *p)
{
    unsigned n = 0;
    for (const struct operation *x = p->first; x != NULL; x = x->next) {
        n += (p->held & (x->write ? MEMORY_POOL_WRITES : MEMORY_POOL_READS)) != 0;
    }
    return n;
}

void memory_pool_wait_held(struct memory_pool *p, unsigned n)
{
    pthread_mutex_lock(&p->mutex);
    while (waiting(p) < n) {
        pthread_cond_wait(&p->changed, &p->mutex);
    }
    pthread_mutex_unlock(&p->mutex);
}

unsigned memory_pool_held(struct memory_pool *p)
{
    pthread_mutex_lock(&p->mutex);
    unsigned n = waiting(p);
    pthread_mutex_unlock(&p->mutex);
    return n;
}

void memory_pool_late(struct memory_pool *p)
{
    pthread_mutex_lock(&p->mutex);
    for (struct operation *x = p->first; x != NULL; x = x->next) {
        x->late = (p->held & (x->write ? MEMORY_POOL_WRITES : MEMORY_POOL_READS)) != 0;
    }
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
}

void memory_pool_full(struct memory_pool *p, bool full)
{
    CHANGE(p, p->full = full);
}

void memory_pool_fence(struct memory_pool *p)
{
    CHANGE(p, p->fenced = p->connections);
}

void memory_pool_remove(struct memory_pool *p)
{
    CHANGE(p, p->removed = true);
}

int memory_pool_value(struct memory_pool *p, const char *object, const char *key, char *out, size_t size)
{
    int len = -1;
    pthread_mutex_lock(&p->mutex);
    const struct object *o = *object_at(p, object);
    const struct pair *pair = o != NULL ? find(o, slice_str(key)) : NULL;
    if (pair != NULL) {
        size_t n = pair->value_len < size ? pair->value_len : size - 1;
        memcpy(out, pair->value, n);
        out[n] = '\0';
        len = (int)pair->value_len;
    }
    pthread_mutex_unlock(&p->mutex);
    return len;
}

int memory_pool_count(struct memory_pool *p, const char *object, const char *prefix)
{
    int n = -1;
    pthread_mutex_lock(&p->mutex);
    const struct object *o = *object_at(p, object);
    if (o != NULL) {
        n = 0;
        for (size_t i = 0; i < o->n; i++) {
            n += o->pairs[i].key_len >= strlen(prefix) && memcmp(o->pairs[i].key, prefix, strlen(prefix)) == 0;
        }
    }
    pthread_mutex_unlock(&p->mutex);
    return n;
}

size_t memory_pool_objects(struct memory_pool *p)
{
    pthread_mutex_lock(&p->mutex);
    size_t n = p->n_objects;
    pthread_mutex_unlock(&p->mutex);
    return n;
}

void memory_pool_put_pairs(struct memory_pool *p, const char *object, const struct cluster_pair *pairs, size_t n)
{
    pthread_mutex_lock(&p->mutex);
    struct object *o = object_make(p, object);
    object_set(o, pairs, n);
    o->version = ++p->version;
    pthread_mutex_unlock(&p->mutex);
}

void memory_pool_put(struct memory_pool *p, const char *object, const char *key, struct slice value)
{
    memory_pool_put_pairs(p, object, &(struct cluster_pair){slice_str(key), value}, 1);
}

void memory_pool_take(struct memory_pool *p, const char *object, const char *key)
{
    const struct slice name = slice_str(key);
    pthread_mutex_lock(&p->mutex);
    struct object *o = *object_at(p, object);
    if (o != NULL) {
        object_remove(o, &name, 1);
        o->version = ++p->version;
    }
    pthread_mutex_unlock(&p->mutex);
}

void memory_pool_drop(struct memory_pool *p, const char *object)
{
    pthread_mutex_lock(&p->mutex);
    struct object **at = object_at(p, object);
    if (*at != NULL) {
        object_drop(p, at);
    }
    pthread_mutex_unlock(&p->mutex);
}

uint64_t memory_pool_operations(struct memory_pool *p, unsigned kinds)
{
    pthread_mutex_lock(&p->mutex);
    uint64_t n = 0;
    for (size_t i = 0; i < KINDS; i++) {
        n += kinds >> i & 1 ? p->done[i] : 0;
    }
    pthread_mutex_unlock(&p->mutex);
    return n;
}
