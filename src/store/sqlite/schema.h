/* Creates or upgrades a file to this program's schema, each step and its version in one transaction. ERR_VERSION when
 * the file is newer than the program. */
#ifndef UNSEEN_STORE_SQLITE_SCHEMA_H
#define UNSEEN_STORE_SQLITE_SCHEMA_H

#include "store/sqlite/db.h"

int schema_staging(struct db *db, struct err *err);
int schema_history(struct db *db, struct err *err);

/* The seed of history.db's hashes: 1; 0 when there is none yet; ERR_CORRUPT when it is no seed. */
int schema_seed(struct db *db, uint64_t *seed, struct err *err);

#endif
