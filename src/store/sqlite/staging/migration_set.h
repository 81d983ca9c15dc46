/* The noted users in memory: a set of keys with id and state, open addressing, in any number of slots: twelve bytes
 * each, at most 6 of 7 of them taken, so 14 to 21 bytes a user, and nothing when there are none. A key's slot is its
 * share of the key space, so going through the slots is going through the users nearly in the order of history.db's
 * tables.
 *
 * It knows of no threads: who may read and change it says migration_users.c.
 */
#ifndef UNSEEN_STORE_SQLITE_STAGING_MIGRATION_SET_H
#define UNSEEN_STORE_SQLITE_STAGING_MIGRATION_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "store/migration.h"
#include "store/store.h"

enum { MIGRATION_STATE_BITS = 2, MIGRATION_ID_MAX = (1U << (32 - MIGRATION_STATE_BITS)) - 1 };

/* All zero is an empty one. A slot is free when its place is 0, which no note has, since ids begin at 1. */
struct migration_set {
    int64_t *keys;
    uint32_t *places; /* id << MIGRATION_STATE_BITS | state - 1 */
    uint64_t slots;
    uint64_t counts[MIGRATION_STATES]; /* of each state; MIGRATION_NONE: all */
};

/* Room for so many users. ERR_NOMEM. */
int migration_set_make(struct migration_set *set, uint64_t users);
void migration_set_free(struct migration_set *set);

/* When there isn't room for so many more: *grown becomes a larger copy. 1, 0: there is, or ERR_NOMEM. */
int migration_set_grow(const struct migration_set *set, uint64_t more, struct migration_set *grown);

/* Whether the user is noted; then *at is their slot, until the next one is put. */
bool migration_set_find(const struct migration_set *set, int64_t key, uint64_t *at);

/* Of a slot. MIGRATION_NONE: it is free. */
enum store_note migration_set_state(const struct migration_set *set, uint64_t at);
uint32_t migration_set_id(const struct migration_set *set, uint64_t at);
void migration_set_change(struct migration_set *set, uint64_t at, enum store_note state);

/* There has to be room. The first one with a key stays. */
void migration_set_put(struct migration_set *set, int64_t key, uint32_t id, enum store_note state);

/* Of millions, nearly each one's slot has to be fetched from memory: so it is done for some at a time. */
struct note_some {
    int64_t keys[64];
    uint32_t places[64];
    size_t n;
};
void migration_set_put_later(struct migration_set *set, struct note_some *some, int64_t key, uint32_t id,
                             enum store_note state);
void migration_set_put_some(struct migration_set *set, struct note_some *some);

/* The ids of waiting users in some of the slots from the walk's place on; returns how many. */
int migration_set_waiting(const struct migration_set *set, struct store_migration_walk *walk, uint32_t *ids, int max);

#endif
