/* Creates or upgrades a file to this program's schema, each step and its version in one transaction, and makes views
 * anew that don't fit its tables. ERR_VERSION when the file is newer than the program. */
#ifndef UNSEEN_STORE_SQLITE_DB_SCHEMA_H
#define UNSEEN_STORE_SQLITE_DB_SCHEMA_H

#include "store/sqlite/db/db.h"

int schema_staging(struct db *db, struct err *err);
int schema_history(struct db *db, struct err *err);

/* Whether it is a history.db, or a staging.db: ERR_CORRUPT when it is the other one. A new one is either. */
int schema_kind(struct db *db, bool history, struct err *err);

/* What the file has; 0: it is new. */
int schema_version(struct db *db, int64_t *version, struct err *err);

/* The seed of history.db's hashes: 1; 0 when there is none yet; ERR_CORRUPT when it is no seed. */
int schema_seed(struct db *db, uint64_t *seed, struct err *err);

#endif
