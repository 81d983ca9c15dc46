/* A row of a staged table, as the statement SQL_STAGED_ALL gives it, on its way into an index. */
#ifndef UNSEEN_STORE_SQLITE_STAGED_ROW_H
#define UNSEEN_STORE_SQLITE_STAGED_ROW_H

#include <sqlite3.h>

#include "store/sqlite/staged.h"

struct staged_row {
    uint64_t id, hash; /* hash: the item's */
    enum store_kind kind;
    int64_t key;
    struct slice user, item; /* of the statement, until its next step */
    int month;
};

/* False: nothing that was ever written, so it is damaged; or the index can't hold it. */
bool staged_row_read(sqlite3_stmt *stmt, uint64_t seed, const struct staged *index, struct staged_row *out);

/* Returns 0 or ERR_NOMEM. */
int staged_row_add(struct staged *index, const struct staged_row *row);

#endif
