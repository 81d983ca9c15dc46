/* Pools as rows of staging.db: reading them, for a start, a check and a repair. */
#ifndef UNSEEN_STORE_SQLITE_STAGING_POOL_ROWS_H
#define UNSEEN_STORE_SQLITE_STAGING_POOL_ROWS_H

#include "store/pools.h"
#include "store/sqlite/db/db.h"

enum { POOL_ROWS_PARTS = 1 << 20 /* of a pool, at most: ids of pool_parts are place * this + part */ };

/* Hands over all pools by their names, their items in memory until the next; one whose rows don't make what its version
 * says goes to bad(). Either may end the walk by an error. Within a snapshot of the caller's. */
struct pool_rows_walk {
    int (*each)(void *arg, const struct store_pool *pool, struct err *err);
    int (*bad)(void *arg, struct slice name, const char *what, struct err *err);
    void *arg;
};
int pool_rows_each(struct db *db, const struct pool_rows_walk *walk, struct err *err);

/* Takes out those that are damaged. Returns how many. Inside a transaction. */
int pool_rows_repair(struct db *db, void (*did)(void *arg, const char *what), void *arg, struct err *err);

#endif
