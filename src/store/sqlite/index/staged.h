/* The staged index of one slot: every play and delivery whose row is in the slot's table, by user.
 *
 * It is filled after a commit and before its answer, rebuilt at start, and read by questions, by the flush and by
 * forgets, so that the file is read only at start. It is freed as a whole, with its slot: pointers handed out (users,
 * item bytes) stay valid until staged_free().
 *
 * Threads. One writer at a time (the stager; at start and in a bulk load the thread that fills it) calls the functions
 * under "writer". All others may be called from any thread at any time between staged_new() and staged_free(); they
 * take no lock, so a question, the flush and the writer never wait for each other. A load sees every row that was added
 * before it began, and any part of a drop under way.
 *
 * Row ids ascend, as the table assigns them, and mostly the times of a user's deliveries do. Months are those of
 * month_of_ms().
 */
#ifndef UNSEEN_STORE_SQLITE_INDEX_STAGED_H
#define UNSEEN_STORE_SQLITE_INDEX_STAGED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/slice.h"
#include "store/store.h"
#include "store/user/deliveries.h"

struct staged;
struct staged_user;

/* For a slot whose rows have ids from first_id on. NULL: out of memory. */
struct staged *staged_new(uint64_t first_id);

/* The caller makes sure that no thread uses it any more. NULL is allowed. */
void staged_free(struct staged *s);

/* Whether a row of this id and month can be held: ids first_id .. first_id + 2^32 - 1, months of the years 0 to 5460.
 * Adding others is ERR_RANGE; ask before the commit. */
bool staged_fits(const struct staged *s, uint64_t id, int month);

/* Any thread, without a lock. Bytes are all allocated ones; they don't shrink when users or items are dropped. */
uint64_t staged_rows(const struct staged *s);
uint64_t staged_users(const struct staged *s); /* with at least one row */
size_t staged_bytes(const struct staged *s);
uint64_t staged_taken(const struct staged *s); /* rows ever added, dropped ones too */

/* --- writer: adding --- */

/* The entry of a user (1..255 bytes), to add one or many rows to; an entry without rows counts as no user. NULL: out of
 * memory. */
struct staged_user *staged_user(struct staged *s, int64_t key, struct slice user);

/* Whether the entry is that user's. */
bool staged_is(const struct staged_user *entry, int64_t key, struct slice user);

/* Prefetches the memory that adding a row to this user will touch, in steps, 0 to STAGED_STEPS - 1. Each looks at what
 * the one before has fetched, so others' steps should lie between two of them. Changes nothing. */
enum { STAGED_STEPS = 3 };
void staged_prefetch(const struct staged *s, int64_t key, int step);

/* Return 0, ERR_NOMEM or ERR_RANGE; then nothing was added. The item's bytes (1..255) are copied. */
int staged_add_play(struct staged *s, struct staged_user *user, uint64_t hash, int month, uint64_t id);
int staged_add_delivery(struct staged *s, struct staged_user *user, const struct store_item *item, int64_t at_ms,
                        uint64_t id);

/* --- writer: forgetting ---
 * In two steps, so that rows vanish from memory only after their deletion from the file is durable: find collects the
 * row ids and changes nothing, drop removes and can't fail. Rows added in between are dropped by staged_drop_user()
 * only. */

/* A growable list of row ids. All zero is an empty one. */
struct staged_ids {
    uint64_t *at;
    size_t n, cap;
};
void staged_ids_free(struct staged_ids *ids);
int staged_ids_add(struct staged_ids *ids, uint64_t id); /* 0 or ERR_NOMEM */

/* Appends the ids of all rows of the user. Returns 1, 0 when the user has none, or ERR_NOMEM (ids as before). */
int staged_find_user(const struct staged *s, int64_t key, struct slice user, struct staged_ids *ids);

/* Appends, in ascending order, the ids of the user's rows with one of n hashes, and of deliveries with a stamp below
 * cut. Sets
 * seen[i] when hash i has a delivery, or a play with month >= first_month; never clears it. Returns how many ids as 1
 * (some) or 0 (none), or ERR_NOMEM (ids as before; seen may be partly set). */
int staged_find_items(const struct staged *s, int64_t key, struct slice user, const uint64_t *hashes, size_t n,
                      int first_month, uint64_t cut, bool *seen, struct staged_ids *ids);

void staged_drop_user(struct staged *s, int64_t key, struct slice user);
void staged_drop_from(struct staged *s, int64_t key, struct slice user, uint64_t from); /* rows from that id on */

/* ids: ascending, as one call of staged_find_items() appended them. */
void staged_drop_rows(struct staged *s, int64_t key, struct slice user, const uint64_t *ids, size_t n);

/* --- any thread: questions --- */

/* A user's rows, gathered from any number of slots (and deliveries also from history). All zero is an empty one; owned
 * by one thread and reused. */
struct staged_out {
    struct store_play *plays;
    size_t n_plays, cap_plays;
    struct delivered deliveries;
    struct arena items; /* the bytes of deliveries that came from slots */
    size_t plays_max, deliveries_max;
};
void staged_out_clear(struct staged_out *out); /* keeps memory for the next use, but not a giant's */
void staged_out_free(struct staged_out *out);

/* For who loads from several: mostly, the newer slot's ids are higher. */
uint64_t staged_first_id(const struct staged *s);

/* Appends the user's plays with month >= first_month, and their deliveries: at least the last out->deliveries_max
 * distinct items of this slot (0: all), with the times that count; all of them where the user's times did not ascend in
 * this slot. A delivery's sub is its row's id. Item bytes are copied.
 * Returns 1 when the user has any row here, of whatever month, 0 when not, ERR_NOMEM, or ERR_LARGE when out might come
 * to hold more than out->plays_max plays (0: any number). */
int staged_load(const struct staged *s, int64_t key, struct slice user, int first_month, struct staged_out *out);

/* Whether another user with the same key has rows here. */
bool staged_has_other(const struct staged *s, int64_t key, struct slice user);

/* --- any thread: the flush ---
 * Visits the users with rows in ascending signed key order; two users with one key come one after the other. A user
 * who is forgotten during the walk, before the visit, is not visited; users added during it may be missed: the slot is
 * closed. Each visit copies the rows that are there then. */

struct staged_play {
    uint64_t hash;
    uint64_t id;
    int month;
};

struct staged_delivery {
    uint64_t hash;
    uint64_t stamp;
    uint64_t group; /* 0: none */
    int month;
    struct slice item; /* in the slot's memory: good until staged_free() */
};

struct staged_walk {
    /* the user visited; good until the next step, key and user until staged_free() */
    int64_t key;
    struct slice user;
    struct staged_play *plays; /* ascending ids */
    size_t n_plays, cap_plays;
    struct staged_delivery *deliveries; /* the last added first */
    size_t n_deliveries, cap_deliveries;

    /* the walk's own */
    const struct staged *slot;
    int64_t from;
    unsigned shard; /* the next to be taken */
    struct staged_user **users;
    size_t at, n_users, cap_users;
};

/* Begins before the first user with key >= from (INT64_MIN: all). The walk is all zero or was begun before: then it
 * keeps its memory. */
void staged_walk_begin(struct staged_walk *walk, const struct staged *s, int64_t from);
int staged_walk_next(struct staged_walk *walk); /* 1: at a user; 0: at the end; ERR_NOMEM: may be called again */
void staged_walk_free(struct staged_walk *walk);

#endif
