/* The views over tables that come and go: `plays` over the months, `staged` and `ring` over the slots. Their SQL is
 * made from the tables that are there (sql/statements.sql), in the transaction that creates, renames or drops one; so a
 * reader's snapshot always holds views that fit its tables. */
#ifndef UNSEEN_STORE_SQLITE_DB_VIEWS_H
#define UNSEEN_STORE_SQLITE_DB_VIEWS_H

#include "store/sqlite/db/db.h"

/* Recreates the file's views. Inside a transaction, after the tables have changed. */
int views_make(struct db *db, struct err *err);

/* The same, and fixed ones that are missing or others than ours, in a transaction of its own, if one doesn't fit
 * because another program has changed the file. */
int views_renew(struct db *db, struct err *err);

/* Whether a view of that name is one of them, or a fixed one. */
bool views_is_ours(bool history, const char *name);

/* Drops them, before a table is renamed: SQLite would rewrite a view that reads it. */
int views_drop(struct db *db, struct err *err);

/* Checks each of the file's views, these and the fixed ones, and reports those that are missing, can't be read or don't
 * fit the tables. Returns 0, or an error when the schema itself can't be read. */
int views_check(struct db *db, void (*problem)(void *arg, const char *view, const char *what), void *arg,
                struct err *err);

#endif
