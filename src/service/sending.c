#include "service/sending.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum { SHARDS = 64 };

struct sent_record {
    struct sent_record *next; /* of the user's */
    struct user *user;
    uint64_t ended_at; /* 0: not recorded yet; else questions with lower numbers may have looked before that */
    size_t n, most;
    struct sent_item {
        uint64_t hash, group;
        uint64_t number; /* of the user's taken ones */
    } items[];
};

struct sending {
    struct sending *prev, *next; /* of the user's, in the order of their numbers */
    struct user *user;
    struct sent_record *record; /* NULL: there is no answer yet */
    uint64_t number;
    uint64_t told; /* its rule knows of what was taken up to there */
};

struct cell {
    uint64_t hash;
    bool used;
};

struct user {
    struct user *next; /* of the shard's */
    struct shard *shard;
    int64_t key;
    uint64_t numbers; /* of the last question; the first is 1 */
    uint64_t taken;   /* items, ever */
    struct sending *first, *last;
    struct sent_record *records;
    struct cell *cells; /* all their hashes, by open addressing, at a load of at most a half */
    size_t mask, room;  /* room: that of all records */
    _Atomic size_t n;   /* their hashes */
    uint8_t len;
    char id[];
};

struct shard {
    pthread_mutex_t mutex;
    struct user *users;
};

struct sendings {
    struct shard shards[SHARDS];
};

struct sendings *sendings_new(void)
{
    struct sendings *s = calloc(1, sizeof *s);
    for (size_t i = 0; s != NULL && i < SHARDS; i++) {
        pthread_mutex_init(&s->shards[i].mutex, NULL);
    }
    return s;
}

void sendings_free(struct sendings *s)
{
    for (size_t i = 0; s != NULL && i < SHARDS; i++) {
        pthread_mutex_destroy(&s->shards[i].mutex);
    }
    free(s);
}

/* --- the user's hashes; with the mutex --- */

static struct cell *cell_of(const struct user *u, uint64_t hash)
{
    size_t at = (size_t)hash & u->mask;
    while (u->cells[at].used && u->cells[at].hash != hash) {
        at = (at + 1) & u->mask;
    }
    return &u->cells[at];
}

static void put(struct user *u, uint64_t hash)
{
    *cell_of(u, hash) = (struct cell){hash, true};
    atomic_fetch_add_explicit(&u->n, 1, memory_order_relaxed);
}

/* Of the records that are there. */
static void fill(struct user *u)
{
    atomic_store_explicit(&u->n, 0, memory_order_relaxed);
    memset(u->cells, 0, (u->mask + 1) * sizeof *u->cells);
    for (const struct sent_record *r = u->records; r != NULL; r = r->next) {
        for (size_t i = 0; i < r->n; i++) {
            put(u, r->items[i].hash);
        }
    }
}

static int make_room(struct user *u, size_t more)
{
    size_t size = u->cells != NULL ? u->mask + 1 : 16;
    while (size < 2 * (u->room + more)) {
        size *= 2;
    }
    if (u->cells == NULL || size > u->mask + 1) {
        struct cell *cells = malloc(size * sizeof *cells);
        if (cells == NULL) {
            return ERR_NOMEM;
        }
        free(u->cells);
        u->cells = cells;
        u->mask = size - 1;
        fill(u);
    }
    u->room += more;
    return 0;
}

/* --- users; with the mutex --- */

static struct user *find(const struct shard *s, int64_t key, struct slice id)
{
    struct user *u = s->users;
    while (u != NULL && !(u->key == key && slice_eq(slice_of(u->id, u->len), id))) {
        u = u->next;
    }
    return u;
}

static struct user *make(struct shard *s, int64_t key, struct slice id)
{
    struct user *u = calloc(1, sizeof *u + id.len);
    if (u != NULL) {
        u->shard = s;
        u->key = key;
        u->len = (uint8_t)id.len;
        memcpy(u->id, id.data, id.len);
        u->next = s->users;
        s->users = u;
    }
    return u;
}

/* Takes out what no question has to know any more, the user too. */
static void sweep(struct user *u)
{
    bool gone = false;
    for (struct sent_record **at = &u->records; *at != NULL;) {
        struct sent_record *r = *at;
        if (r->ended_at != 0 && (u->first == NULL || u->first->number >= r->ended_at)) {
            *at = r->next;
            u->room -= r->most;
            free(r);
            gone = true;
        } else {
            at = &r->next;
        }
    }
    if (u->first == NULL && u->records == NULL) {
        struct user **at = &u->shard->users;
        while (*at != u) {
            at = &(*at)->next;
        }
        *at = u->next;
        free(u->cells);
        free(u);
    } else if (gone) {
        fill(u);
    }
}

/* --- questions --- */

struct sending *sending_begin(struct sendings *s, int64_t key, struct slice user)
{
    struct shard *shard = &s->shards[(uint64_t)key % SHARDS];
    struct sending *q = calloc(1, sizeof *q);
    if (q == NULL) {
        return NULL;
    }
    pthread_mutex_lock(&shard->mutex);
    struct user *u = find(shard, key, user);
    u = u != NULL ? u : make(shard, key, user);
    if (u != NULL) {
        q->user = u;
        q->number = ++u->numbers;
        q->prev = u->last;
        *(u->last != NULL ? &u->last->next : &u->first) = q;
        u->last = q;
    }
    pthread_mutex_unlock(&shard->mutex);
    if (u == NULL) {
        free(q);
    }
    return u == NULL ? NULL : q;
}

bool sending_any(const struct sending *q)
{
    return q != NULL && atomic_load_explicit(&q->user->n, memory_order_relaxed) > 0;
}

bool sending_holds(const struct sending *q, uint64_t hash)
{
    if (!sending_any(q)) {
        return false;
    }
    struct shard *shard = q->user->shard;
    pthread_mutex_lock(&shard->mutex);
    bool holds = q->user->cells != NULL && cell_of(q->user, hash)->used;
    pthread_mutex_unlock(&shard->mutex);
    return holds;
}

int sending_answer(struct sending *q, size_t most)
{
    struct user *u = q->user;
    struct sent_record *r = malloc(sizeof *r + most * sizeof *r->items);
    if (r == NULL) {
        return ERR_NOMEM;
    }
    *r = (struct sent_record){.user = u, .most = most};
    pthread_mutex_lock(&u->shard->mutex);
    int rc = make_room(u, most);
    if (rc == 0) {
        r->next = u->records;
        u->records = q->record = r;
    }
    pthread_mutex_unlock(&u->shard->mutex);
    if (rc < 0) {
        free(r);
    }
    return rc;
}

/* What was taken since the last time. With the mutex. */
static int tell(struct sending *q, const struct sending_rule *rule)
{
    int rc = 0;
    for (const struct sent_record *r = q->user->records; r != NULL && q->told < q->user->taken && rc == 0;
         r = r->next) {
        for (size_t i = 0; i < r->n && rc == 0; i++) {
            rc = r->items[i].number > q->told ? rule->sent(rule->arg, r->items[i].hash, r->items[i].group) : 0;
        }
    }
    q->told = rc == 0 ? q->user->taken : q->told;
    return rc;
}

static enum sending_taken take(struct sending *q, uint64_t hash, uint64_t group, const struct sending_rule *rule)
{
    struct user *u = q->user;
    struct sent_record *r = q->record;
    if (rule != NULL && tell(q, rule) < 0) {
        return SENDING_FAILS;
    }
    if (rule != NULL && rule->hides(rule->arg, group)) {
        return SENDING_HIDDEN;
    }
    if (cell_of(u, hash)->used) {
        return SENDING_HELD;
    }
    r->items[r->n++] = (struct sent_item){hash, group, ++u->taken};
    put(u, hash);
    return SENDING_TAKES;
}

enum sending_taken sending_take(struct sending *q, uint64_t hash, uint64_t group, const struct sending_rule *rule)
{
    pthread_mutex_lock(&q->user->shard->mutex);
    const enum sending_taken taken = take(q, hash, group, rule);
    pthread_mutex_unlock(&q->user->shard->mutex);
    return taken;
}

/* --- ends --- */

/* With the mutex. */
static void end(struct sending *q)
{
    struct user *u = q->user;
    *(q->prev != NULL ? &q->prev->next : &u->first) = q->next;
    *(q->next != NULL ? &q->next->prev : &u->last) = q->prev;
    free(q);
    sweep(u);
}

struct sent_record *sending_record(struct sending *q)
{
    struct sent_record *r = q->record;
    pthread_mutex_t *mutex = &q->user->shard->mutex;
    pthread_mutex_lock(mutex);
    if (r != NULL && r->n == 0) {
        r->ended_at = 1; /* no question is older */
        r = NULL;
    }
    end(q);
    pthread_mutex_unlock(mutex);
    return r;
}

void sending_end(struct sending *q)
{
    if (q != NULL) {
        sent_recorded(sending_record(q), false);
    }
}

void sent_recorded(struct sent_record *r, bool good)
{
    if (r == NULL) {
        return;
    }
    struct user *u = r->user;
    pthread_mutex_t *mutex = &u->shard->mutex;
    pthread_mutex_lock(mutex);
    r->ended_at = good ? u->numbers + 1 : 1;
    sweep(u);
    pthread_mutex_unlock(mutex);
}
