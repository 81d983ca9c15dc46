/* The parts of sqlite_repair_folder(). */
#ifndef UNSEEN_STORE_SQLITE_ADMIN_REPAIR_H
#define UNSEEN_STORE_SQLITE_ADMIN_REPAIR_H

#include "base/err.h"
#include "store/sqlite/db/db.h"
#include "store/sqlite/sqlite_store.h"

/* Inside a transaction. Calls did() for each slot that lost rows; returns for how many, or an error. */
int repair_staging(struct db *staging, void (*did)(void *arg, const char *what), void *arg, struct err *err);

/* The same of what it has of users who come from another Redis. */
int repair_legacy(struct db *staging, void (*did)(void *arg, const char *what), void *arg, struct err *err);

/* Of history.db, the same way: plays and deliveries without a row in users. */
int repair_nameless(struct db *history, enum sqlite_nameless nameless, void (*did)(void *arg, const char *what),
                    void *arg, struct err *err);

/* And what else it says about its users. */
int repair_users(struct db *history, void (*did)(void *arg, const char *what), void *arg, struct err *err);

#endif
