#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "filter/filter.h"
#include "store/memory/memory.h"

enum { BUCKETS_MIN = 1024, BUCKETS_A_TURN = 4096 };

/* --- memory --- */

size_t memory_limit(const struct memory_store *s)
{
    return (size_t)config_now(s->cfg)->staging_memory;
}

void *memory_resize(struct memory_store *s, void *old, size_t old_size, size_t size, bool must)
{
    if (size == 0) {
        free(old);
        s->bytes -= old_size;
        return NULL;
    }
    if (!must && size > old_size && s->bytes - old_size + size > memory_limit(s)) {
        return NULL;
    }
    void *now = realloc(old, size);
    if (now != NULL) {
        s->bytes = s->bytes - old_size + size;
    }
    return now;
}

int memory_full(const struct memory_store *s, struct err *err)
{
    return err_set(err, ERR_BUSY, "the store \"memory\" is full: staging_memory is %zu MiB", memory_limit(s) >> 20);
}

/* --- the table --- */

static struct memory_user **bucket_of(const struct memory_store *s, int64_t key)
{
    return &s->buckets[(uint64_t)key % s->n_buckets];
}

struct memory_user *memory_find(const struct memory_store *s, int64_t key, struct slice name)
{
    struct memory_user *u = s->n_buckets > 0 ? *bucket_of(s, key) : NULL;
    while (u != NULL && !(u->key == key && slice_eq(slice_of(u->name, u->len), name))) {
        u = u->next;
    }
    return u;
}

static bool more_buckets(struct memory_store *s)
{
    struct memory_user **old = s->buckets;
    size_t n_old = s->n_buckets, n = n_old > 0 ? 2 * n_old : BUCKETS_MIN;
    struct memory_user **now = memory_resize(s, NULL, 0, n * sizeof(struct memory_user *), false);
    if (now == NULL) {
        return false;
    }
    memset((void *)now, 0, n * sizeof(struct memory_user *));
    s->buckets = now;
    s->n_buckets = n;
    for (size_t i = 0; i < n_old; i++) {
        for (struct memory_user *u = old[i], *next; u != NULL; u = next) {
            next = u->next;
            u->next = *bucket_of(s, u->key);
            *bucket_of(s, u->key) = u;
        }
    }
    memory_resize(s, (void *)old, n_old * sizeof(struct memory_user *), 0, true);
    return true;
}

struct memory_user *memory_make(struct memory_store *s, int64_t key, struct slice name)
{
    struct memory_user *u = memory_find(s, key, name);
    if (u != NULL || (s->n_users == s->n_buckets && !more_buckets(s))) {
        return u;
    }
    u = memory_resize(s, NULL, 0, sizeof *u + name.len, false);
    if (u != NULL) {
        memset(u, 0, sizeof *u);
        u->key = key;
        u->last_month = INT_MIN;
        u->len = (uint8_t)name.len;
        memcpy(u->name, name.data, name.len);
        u->next = *bucket_of(s, key);
        *bucket_of(s, key) = u;
        s->n_users++;
    }
    return u;
}

void memory_drop(struct memory_store *s, struct memory_user *user)
{
    struct memory_user **at = bucket_of(s, user->key);
    while (*at != user) {
        at = &(*at)->next;
    }
    *at = user->next;
    s->n_users--;
    s->stats.staged_rows -= user->n_plays + user->n_deliveries;
    for (size_t i = 0; i < user->n_deliveries; i++) {
        memory_resize(s, (void *)(uintptr_t)user->deliveries[i].item.data, user->deliveries[i].item.len, 0, true);
    }
    for (size_t i = 0; i < user->n_months; i++) {
        memory_resize(s, user->months[i].blob, user->months[i].len, 0, true);
    }
    memory_resize(s, user->plays, user->cap_plays * sizeof *user->plays, 0, true);
    memory_resize(s, user->deliveries, user->cap_deliveries * sizeof *user->deliveries, 0, true);
    memory_resize(s, user->months, user->n_months * sizeof *user->months, 0, true);
    memory_resize(s, user->exceptions, user->n_exceptions * sizeof *user->exceptions, 0, true);
    memory_resize(s, user->damaged, user->n_damaged * sizeof *user->damaged, 0, true);
    memory_resize(s, user, sizeof *user + user->len, 0, true);
}

/* --- a user --- */

static int by_hash_and_month(const void *a, const void *b)
{
    const struct store_play *x = a, *y = b;
    if (x->hash != y->hash) {
        return x->hash < y->hash ? -1 : 1;
    }
    return x->month < y->month ? -1 : x->month > y->month;
}

/* What is played again in a month is one play. Sorted only when the array is full, which is at least a quarter of it
 * after the last time. */
static void drop_repeats(struct memory_store *s, struct memory_user *u)
{
    size_t kept = 0;
    qsort(u->plays, u->n_plays, sizeof *u->plays, by_hash_and_month);
    for (size_t i = 0; i < u->n_plays; i++) {
        if (kept == 0 || by_hash_and_month(&u->plays[kept - 1], &u->plays[i]) != 0) {
            u->plays[kept++] = u->plays[i];
        }
    }
    s->stats.staged_rows -= u->n_plays - kept;
    u->n_plays = kept;
}

int memory_promise_plays(struct memory_store *s, struct memory_user *u, size_t n)
{
    if (u->n_plays + u->promised + n > u->cap_plays) {
        if (u->n_plays > 0) {
            drop_repeats(s, u);
        }
        size_t want = u->n_plays + u->promised + n;
        if (want > u->cap_plays / 4 * 3) {
            size_t cap = want + want / 2 + 4;
            struct store_play *now = memory_resize(s, u->plays, u->cap_plays * sizeof *now, cap * sizeof *now, false);
            if (now == NULL) {
                return ERR_NOMEM;
            }
            u->plays = now;
            u->cap_plays = cap;
        }
    }
    u->promised += n;
    return 0;
}

bool memory_excepted(const struct memory_user *u, uint64_t hash)
{
    for (size_t i = 0; i < u->n_exceptions; i++) {
        if (u->exceptions[i] == hash) {
            return true;
        }
    }
    return false;
}

static void end_exception(struct memory_store *s, struct memory_user *u, uint64_t hash)
{
    for (size_t i = 0; i < u->n_exceptions; i++) {
        if (u->exceptions[i] == hash) {
            size_t size = u->n_exceptions * sizeof *u->exceptions;
            u->exceptions[i] = u->exceptions[--u->n_exceptions];
            uint64_t *now = memory_resize(s, u->exceptions, size, size - sizeof *now, true);
            u->exceptions = now != NULL || u->n_exceptions == 0 ? now : u->exceptions;
            return;
        }
    }
}

void memory_add_play(struct memory_store *s, struct memory_user *u, uint64_t hash, int month)
{
    u->plays[u->n_plays++] = (struct store_play){hash, month};
    u->promised--;
    u->known = true;
    u->last_month = month > u->last_month ? month : u->last_month;
    s->stats.staged_rows++;
    end_exception(s, u, hash);
}

void memory_drop_delivery(struct memory_store *s, struct memory_user *u, size_t i)
{
    struct store_delivery *d = &u->deliveries[i];
    memory_resize(s, (void *)(uintptr_t)d->item.data, d->item.len, 0, true);
    memmove(d, d + 1, (u->n_deliveries - i - 1) * sizeof *d);
    u->n_deliveries--;
    s->stats.staged_rows--;
}

struct seeing {
    uint64_t hash;
    bool found;
};

static void see(void *arg, const struct filter_part *part, uint32_t before, const uint32_t *positions, uint32_t n)
{
    struct seeing *seeing = arg;
    uint32_t wanted = filter_part_position(part, seeing->hash);
    for (uint32_t i = 0; i < n; i++) {
        seeing->found =
            seeing->found || (positions[i] == wanted && filter_part_fits(part->tails, before + i, seeing->hash));
    }
}

bool memory_filtered(const struct memory_user *u, uint64_t hash, int first_month)
{
    struct seeing seeing = {.hash = hash};
    for (size_t i = 0; i < u->n_months && !seeing.found; i++) {
        struct filter filter;
        if (u->months[i].month >= first_month) {
            filter_scan(u->months[i].blob, u->months[i].len, see, &seeing, &filter, NULL);
        }
    }
    return seeing.found;
}

/* --- the end of things --- */

static void expire_user(struct memory_store *s, struct memory_user *u, int first_kept)
{
    size_t kept = 0, months = 0;
    if (u->last_month < first_kept) {
        s->stats.rows_swept += u->n_plays + u->n_deliveries;
        memory_drop(s, u);
        return;
    }
    for (size_t i = 0; i < u->n_plays; i++) {
        if (u->plays[i].month >= first_kept) {
            u->plays[kept++] = u->plays[i];
        }
    }
    s->stats.rows_swept += u->n_plays - kept;
    s->stats.staged_rows -= u->n_plays - kept;
    u->n_plays = kept;
    while (months < u->n_months && u->months[months].month >= first_kept) {
        months++;
    }
    for (size_t i = months; i < u->n_months; i++) {
        memory_resize(s, u->months[i].blob, u->months[i].len, 0, true);
    }
    if (months < u->n_months) {
        struct memory_month *now = memory_resize(s, u->months, u->n_months * sizeof *now, months * sizeof *now, true);
        u->months = now != NULL || months == 0 ? now : u->months;
        u->n_months = months;
    }
}

void memory_expire(struct memory_store *s)
{
    int first_kept = memory_first_kept(s);
    bool more = first_kept != INT_MIN;
    for (size_t i = 0; more;) {
        pthread_mutex_lock(&s->mutex);
        for (int turn = 0; turn < BUCKETS_A_TURN && i < s->n_buckets; turn++, i++) {
            for (struct memory_user *u = s->buckets[i], *next; u != NULL; u = next) {
                next = u->next;
                expire_user(s, u, first_kept);
            }
        }
        more = i < s->n_buckets;
        pthread_mutex_unlock(&s->mutex);
        heartbeat_now(&s->queue.task.heartbeat);
    }
}

void memory_free_all(struct memory_store *s)
{
    for (size_t i = 0; i < s->n_buckets; i++) {
        while (s->buckets[i] != NULL) {
            memory_drop(s, s->buckets[i]);
        }
    }
    memory_resize(s, (void *)s->buckets, s->n_buckets * sizeof(struct memory_user *), 0, true);
}
