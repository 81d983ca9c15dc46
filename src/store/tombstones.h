/* Tombstones of forgets in memory, for engines: what was forgotten, and when. An event whose time its writer stated
 * (STORE_STATED) may be a replay: a file imported again, a topic read again. It is dropped when it is not newer than
 * the forget of its user or item, so that a replay undoes none. An event that the server stamped is never dropped.
 *
 * They are kept for `retention`: what is older than that is refused for its age. Users are known by their keys alone,
 * since a forget erases ids for good. An entry takes 32 bytes, of which up to five eighths are kept free: 43 to 85
 * bytes a forget. Any thread may call any function; those that change it are the writer's.
 */
#ifndef UNSEEN_STORE_TOMBSTONES_H
#define UNSEEN_STORE_TOMBSTONES_H

#include "store/store.h"

struct tombstones;

/* item: its hash, or TOMBSTONE_USER for all of the user. id: the engine's own. */
enum { TOMBSTONE_USER = 0 };
struct tombstone {
    int64_t key;
    uint64_t item;
    int64_t at_ms;
    uint64_t id;
};

struct tombstones *tombstones_new(void);
void tombstones_free(struct tombstones *t);

/* How an item's hash stands in a tombstone: never as TOMBSTONE_USER. */
static inline uint64_t tombstone_item(uint64_t hash)
{
    return hash != TOMBSTONE_USER ? hash : 1;
}

/* As they are listed for another node, page by page. */
static inline bool tombstone_is_behind(const struct tombstone *t, const struct tombstone *last)
{
    return t->key > last->key || (t->key == last->key && (int64_t)t->item > (int64_t)last->item);
}

/* Makes room for n more, so that tombstones_put() can't fail. ERR_NOMEM. */
int tombstones_reserve(struct tombstones *t, size_t n);

/* Adds one, or raises time and id of the one that is there. A user's ends those of the user's items. */
void tombstones_put(struct tombstones *t, const struct tombstone *tombstone);

/* None is later than that: the clock had been ahead when they were made. */
void tombstones_until(struct tombstones *t, int64_t ms);

/* When the user was last forgotten, or the item was, if that is later. INT64_MIN: never. */
int64_t tombstones_user_ms(struct tombstones *t, int64_t key);
int64_t tombstones_item_ms(struct tombstones *t, int64_t key, uint64_t hash);

/* Drops those events of the batch, in place; one of which nothing is left has n = 0. Returns how many items. */
uint64_t tombstones_drop(struct tombstones *t, struct store_batch *batch);

/* Those before that time. Returns how many. */
size_t tombstones_expire(struct tombstones *t, int64_t before_ms);
bool tombstones_expired(struct tombstones *t, int64_t before_ms); /* whether there may be any */

/* The i-th in no special order, on the writer's thread. False: there is none. */
bool tombstones_at(struct tombstones *t, size_t *i, struct tombstone *out);

size_t tombstones_count(struct tombstones *t);

#endif
