/* Reading what is left of a table whose pages are damaged or missing.
 *
 * SQLite ends a scan at the first page that it can't read. So a table is read from both ends; the rest is halved and
 * read from both ends again, until a range of keys has shown nothing for some halvings. Each range that could not be
 * read is reported, so that users who may have had a row there can be marked. */
#ifndef UNSEEN_STORE_SQLITE_ADMIN_SALVAGE_TABLE_H
#define UNSEEN_STORE_SQLITE_ADMIN_SALVAGE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "store/sqlite/db/db.h"

struct salvage_table {
    struct db *from;
    const char *name, *key, *columns;                                  /* columns: the key first */
    int (*row)(void *arg, sqlite3_stmt *row, struct err *err);         /* takes one; ERR_CORRUPT: it is none */
    int (*lost)(void *arg, int64_t from, int64_t to, struct err *err); /* keys, both included */
    void *arg;
    uint64_t rows, refused, stretches; /* read; of them no rows; told as lost */
};

/* Returns 0, or what row() or lost() returned, or ERR_NOMEM. */
int salvage_table(struct salvage_table *t, struct err *err);

#endif
