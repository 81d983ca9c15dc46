/* Creates or upgrades a file to this program's schema, each step and its version in one transaction.
 *
 * A file says in its `meta` which version it has, and a hash of the SQL that made it so. A file that a later version
 * wrote, or a build between two releases, is refused by name: ERR_VERSION.
 */
#ifndef UNSEEN_STORE_SQLITE_DB_SCHEMA_H
#define UNSEEN_STORE_SQLITE_DB_SCHEMA_H

#include "store/sqlite/db/db.h"

/* Brings a file from version i to i + 1, i being its place in a list. One that was released is never changed. */
struct schema_step {
    const char *sql;
    int (*then)(struct db *db, struct err *err); /* what SQL alone can't, in the same transaction; or NULL */
};

/* Runs the steps that the file lacks. */
int schema_upgrade(struct db *db, const struct schema_step *steps, int n_steps, struct err *err);

/* Examines the file, runs its own steps, and makes views again that don't fit the tables. */
int schema_staging(struct db *db, struct err *err);
int schema_history(struct db *db, struct err *err);

/* 1 when it is a history.db, or a staging.db, of this program; 0 when it is a new one. ERR_CORRUPT when it is the other
 * file, or its schema has anything that is not ours (own_schema.h); ERR_VERSION. */
int schema_examine(struct db *db, bool history, struct err *err);

/* Whether an older version made the file, which the next start brings up to date. */
int schema_is_older(struct db *db, bool *older, struct err *err);

/* The seed of history.db's hashes: 1; 0 when there is none yet; ERR_CORRUPT when it is no seed. */
int schema_seed(struct db *db, uint64_t *seed, struct err *err);

#endif
