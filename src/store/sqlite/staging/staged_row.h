/* A row of a staged table, as the statement SQL_STAGED_ALL gives it, on its way into an index. */
#ifndef UNSEEN_STORE_SQLITE_STAGING_STAGED_ROW_H
#define UNSEEN_STORE_SQLITE_STAGING_STAGED_ROW_H

#include <sqlite3.h>

#include "base/hash.h"
#include "store/sqlite/index/staged.h"

struct staged_row {
    uint64_t id, hash; /* hash: the item's */
    enum store_kind kind;
    int64_t key;
    struct slice user, item; /* of the statement, until its next step */
    int month;
};

/* What makes it a row that was never written, in words; NULL: nothing. */
const char *staged_row_problem(sqlite3_stmt *stmt);

/* False: there is a problem with it. */
bool staged_row_read(sqlite3_stmt *stmt, uint64_t seed, struct staged_row *out);

/* Returns 0 or ERR_NOMEM. */
int staged_row_add(struct staged *index, const struct staged_row *row);

/* Rows on their way into one index, some at a time, so that what adding them touches is fetched side by side
 * (staged_prefetch()). Empty when n is 0. */
enum { STAGED_ROWS = 32 };
struct staged_rows {
    size_t n;
    struct staged_row at[STAGED_ROWS];
    char ids[STAGED_ROWS][2 * HASH_ID_MAX];
};

/* Takes a copy of the row, and adds all that are held once there are STAGED_ROWS. Returns 0 or ERR_NOMEM. */
int staged_rows_take(struct staged_rows *rows, struct staged *index, const struct staged_row *row);

/* Adds those that are held, in their order. Returns 0 or ERR_NOMEM. */
int staged_rows_add(struct staged_rows *rows, struct staged *index);

#endif
