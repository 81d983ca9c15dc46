/* The staged users of a folder, for its export: staging is read in one snapshot into an index for each slot. Those are
 * walked side by side, and with them those who are noted, in the order of keys. One thread. */
#ifndef UNSEEN_STORE_SQLITE_ADMIN_EXPORT_STAGING_H
#define UNSEEN_STORE_SQLITE_ADMIN_EXPORT_STAGING_H

#include "store/codec/user_snapshot.h"
#include "store/sqlite/admin/export_migration.h"
#include "store/sqlite/staging/slot_parts.h"
#include "store/sqlite/staging/staged_row.h"
#include "store/sqlite/state.h"

enum {
    EXPORT_NOTED = STORE_SLOTS_MAX, /* the walk of those who are noted, behind those of the slots */
    EXPORT_WALKS,
};

/* All zero but for what its owner sets. */
struct export_staging {
    const struct store_export *e; /* its owner's */

    struct db db; /* its owner opens and closes it */
    uint64_t seed;
    struct staged_months months;
    struct staged *slots[STORE_SLOTS_MAX];
    int slot_numbers[STORE_SLOTS_MAX];
    struct slot_parts *parts[STORE_SLOTS_MAX]; /* their tables */
    int n_slots;
    struct staged_ids ids;
    struct staged_walk walks[EXPORT_WALKS]; /* of EXPORT_NOTED: only key and user */
    bool at_user[EXPORT_WALKS];
    struct export_migration users_to_migrate;
    struct tombstones *tombstones; /* older than all that is packed; */
    int64_t *item_keys;            /* and those of items, by user, the keys apart */
    struct snapshot_forgotten *items;
    size_t n_items;
};

/* Reads the users of e's range that it wants, and begins the walks. 0 or an error. */
int export_staging_read(struct export_staging *x, uint64_t seed, struct err *err);

/* The walk that stands at the lowest key, up to `to`; -1: none. */
int export_staging_lowest(const struct export_staging *x, int64_t to);

/* Moves each walk that stands at the user on. `user` is not valid any more when it was taken from one of them. */
int export_staging_pass(struct export_staging *x, int64_t key, struct slice user, struct err *err);

/* Of the user at whom the walks stand: the month of the newest staged delivery (0: none), and whether the user is
 * noted. */
int export_staging_delivery(const struct export_staging *x, int64_t key, struct slice user);
bool export_staging_noted(const struct export_staging *x, int64_t key, struct slice user);

int64_t export_staging_forgotten(const struct export_staging *x, int64_t key); /* unix ms; 0: never */
/* The user's items that were forgotten later, as a snapshot has them: *n. */
const struct snapshot_forgotten *export_staging_items(const struct export_staging *x, int64_t key, size_t *n);

/* Drops the user's rows that have left staging since it was read: flushed, or forgotten. Returns whether there were
 * any, or an error. */
int export_staging_drop_gone(struct export_staging *x, int64_t key, struct slice user, struct err *err);

void export_staging_free(struct export_staging *x);

#endif
