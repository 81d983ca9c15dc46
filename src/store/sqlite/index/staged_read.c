/* The staged index, readers' side: what a question loads and how the flush walks a slot. Nothing here waits; see
 * staged_impl.h for why that is safe. */
#include <stdlib.h>

#include "base/calendar.h"
#include "base/err.h"
#include "base/prefetch.h"
#include "store/sqlite/index/staged.h"
#include "store/sqlite/index/staged_impl.h"

enum { KEEP_BYTES = 1024 * 1024 }; /* an array above this is given back, as the arena does with its blocks */

int staged_grow(void *array, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap) {
        return 0;
    }
    size_t more = *cap < 16 ? 16 : *cap + *cap / 2;
    more = more < need ? need : more;
    void **at = array;
    void *grown = reallocarray(*at, more, size);
    if (grown == NULL) {
        return ERR_NOMEM;
    }
    *at = grown;
    *cap = more;
    return 0;
}

/* --- questions --- */

static void keep_small(void *array, size_t *cap, size_t size)
{
    void **at = array;
    if (*cap * size > KEEP_BYTES) {
        free(*at);
        *at = NULL;
        *cap = 0;
    }
}

void staged_out_clear(struct staged_out *out)
{
    out->n_plays = 0;
    delivered_clear(&out->deliveries);
    keep_small(&out->plays, &out->cap_plays, sizeof(out->plays[0]));
    arena_reset(&out->items);
}

void staged_out_free(struct staged_out *out)
{
    free(out->plays);
    delivered_free(&out->deliveries);
    arena_free(&out->items);
    *out = (struct staged_out){0};
}

static int load_plays(const struct staged_user *user, int first_month, struct staged_out *out, bool *any)
{
    struct plays_at at = plays_begin(user);
    if (out->plays_max > 0 && out->n_plays + at.left > out->plays_max) {
        return ERR_LARGE;
    }
    int rc = staged_grow(&out->plays, &out->cap_plays, out->n_plays + at.left, sizeof(out->plays[0]));
    for (struct play *play; rc == 0 && (play = plays_next(&at)) != NULL;) {
        if (play_live(play)) {
            *any = true;
            if (play->month >= first_month) {
                out->plays[out->n_plays++] = (struct store_play){play->hash, play->month};
            }
        }
    }
    return rc;
}

uint64_t staged_first_id(const struct staged *s)
{
    return s->first_id;
}

/* Mostly they come newest first, and once as many distinct ones are found as count, the others aren't read. What
 * doesn't count is dropped once there are as many rows again, so that each row is looked at a bounded number of times.
 */
static int load_deliveries(const struct staged *s, const struct staged_user *user, struct staged_out *out, bool *any)
{
    struct delivered *all = &out->deliveries;
    const size_t first = all->n;
    struct sent_at last = sent_begin(user);
    const size_t max = atomic_load_explicit(&user->unordered, memory_order_relaxed) ? 0 : out->deliveries_max;
    size_t full = max;
    const struct sent_chunk *chunk = last.chunk;
    prefetch(chunk, chunk != NULL ? SENT_BYTES_MAX : 0); /* it may be shorter */
    for (struct sent *sent; (sent = sent_next(&last)) != NULL;) {
        struct store_item item;
        if (chunk == last.chunk) {
            chunk = chunk->before; /* which is fetched while this one is read */
            prefetch(chunk, chunk != NULL ? SENT_BYTES_MAX : 0);
        }
        if (!sent_item(&last, &item)) {
            continue;
        }
        *any = true;
        const struct store_delivery delivery = {
            .stamp = sent_stamp(s, sent), .hash = item.hash, .item = item.id, .group = item.group};
        if (delivered_add(all, &delivery, 1) != 0) {
            return ERR_NOMEM;
        }
        if (max > 0 && all->n - first == full) {
            struct delivered here = {.list = all->list + first, .n = full};
            const size_t items = delivered_unite(&here, max);
            all->n = first + here.n;
            if (items == max) {
                break;
            }
            full = here.n + (here.n > max ? here.n : max);
        }
    }
    for (size_t i = first; i < all->n; i++) {
        struct slice *item = &all->list[i].item;
        const char *bytes = arena_copy(&out->items, item->data, item->len);
        if (bytes == NULL) {
            return ERR_NOMEM;
        }
        item->data = bytes;
    }
    return 0;
}

int staged_load(const struct staged *s, int64_t key, struct slice id, int first_month, struct staged_out *out)
{
    const struct staged_user *user = staged_find(s, key, id);
    if (user == NULL) {
        return 0;
    }
    const size_t n_plays = out->n_plays, n_deliveries = out->deliveries.n;
    bool any = false;
    int rc = load_plays(user, first_month, out, &any);
    rc = rc == 0 ? load_deliveries(s, user, out, &any) : rc;
    if (rc != 0) {
        out->n_plays = n_plays;
        out->deliveries.n = n_deliveries;
        return rc;
    }
    return any ? 1 : 0;
}

bool staged_has_other(const struct staged *s, int64_t key, struct slice id)
{
    struct table *table = atomic_load_explicit(&s->shards[shard_of(key)].table, memory_order_acquire);
    if (table == NULL) {
        return false;
    }
    size_t at = (size_t)key & table->mask;
    for (struct staged_user *user; (user = table_next(table, key, &at)) != NULL;) {
        if (!user_is(user, key, id) && atomic_load_explicit(&user->live, memory_order_relaxed) > 0) {
            return true;
        }
    }
    return false;
}

/* --- the flush --- */

void staged_walk_begin(struct staged_walk *walk, const struct staged *s, int64_t from)
{
    walk->slot = s;
    walk->from = from;
    walk->shard = shard_of(from);
    walk->at = 0;
    walk->n_users = 0;
    walk->n_plays = 0;
    walk->n_deliveries = 0;
}

static int by_key(const void *a, const void *b)
{
    const struct staged_user *x = *(struct staged_user *const *)a;
    const struct staged_user *y = *(struct staged_user *const *)b;
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    int order = memcmp(x->id, y->id, x->len < y->len ? x->len : y->len);
    return order != 0 ? order : x->len - y->len;
}

/* Takes the next shard's users, in order. */
static int next_shard(struct staged_walk *walk)
{
    struct table *table = atomic_load_explicit(&walk->slot->shards[walk->shard].table, memory_order_acquire);
    walk->at = 0;
    walk->n_users = 0;
    for (size_t i = 0; table != NULL && i <= table->mask; i++) {
        struct staged_user *user = atomic_load_explicit(&table->cells[i], memory_order_acquire);
        if (user == NULL || user->key < walk->from) {
            continue;
        }
        if (staged_grow(&walk->users, &walk->cap_users, walk->n_users + 1, sizeof(walk->users[0])) != 0) {
            walk->n_users = 0;
            return ERR_NOMEM;
        }
        walk->users[walk->n_users++] = user;
    }
    if (walk->n_users > 0) {
        qsort(walk->users, walk->n_users, sizeof(walk->users[0]), by_key);
    }
    walk->shard++;
    return 0;
}

static int visit(struct staged_walk *walk, const struct staged_user *user)
{
    uint64_t first_id = walk->slot->first_id;
    walk->key = user->key;
    walk->user = slice_of(user->id, user->len);
    walk->n_plays = 0;
    walk->n_deliveries = 0;
    struct plays_at at = plays_begin(user);
    int rc = staged_grow(&walk->plays, &walk->cap_plays, at.left, sizeof(walk->plays[0]));
    for (struct play *play; rc == 0 && (play = plays_next(&at)) != NULL;) {
        if (play_live(play)) {
            walk->plays[walk->n_plays++] = (struct staged_play){play->hash, first_id + play->id, play->month};
        }
    }
    int month = 0;
    int64_t from = 0, to = 0; /* of that month: most share one */
    struct sent_at last = sent_begin(user);
    for (struct sent *sent; rc == 0 && (sent = sent_next(&last)) != NULL;) {
        struct store_item item;
        if (!sent_item(&last, &item)) {
            continue;
        }
        if (sent->at_ms < from || sent->at_ms >= to) {
            month = month_of_ms(sent->at_ms);
            from = month_start_ms(month);
            to = month_start_ms(month + 1);
        }
        rc = staged_grow(&walk->deliveries, &walk->cap_deliveries, walk->n_deliveries + 1, sizeof(walk->deliveries[0]));
        if (rc == 0) {
            walk->deliveries[walk->n_deliveries++] =
                (struct staged_delivery){item.hash, sent_stamp(walk->slot, sent), item.group, month, item.id};
        }
    }
    return rc;
}

int staged_walk_next(struct staged_walk *walk)
{
    for (;;) {
        while (walk->at < walk->n_users) {
            int rc = visit(walk, walk->users[walk->at]);
            if (rc != 0) {
                return rc;
            }
            walk->at++;
            if (walk->n_plays + walk->n_deliveries > 0) {
                return 1;
            }
        }
        if (walk->shard == SHARDS) {
            return 0;
        }
        int rc = next_shard(walk);
        if (rc != 0) {
            return rc;
        }
    }
}

void staged_walk_free(struct staged_walk *walk)
{
    free(walk->users);
    free(walk->plays);
    free(walk->deliveries);
    *walk = (struct staged_walk){0};
}
