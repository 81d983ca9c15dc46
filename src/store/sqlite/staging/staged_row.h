/* A row of a staged table, as the statements SQL_STAGED_ALL and SQL_STAGED_RANGE give it, on its way into an index. */
#ifndef UNSEEN_STORE_SQLITE_STAGING_STAGED_ROW_H
#define UNSEEN_STORE_SQLITE_STAGING_STAGED_ROW_H

#include <sqlite3.h>

#include "base/hash.h"
#include "store/sqlite/index/staged.h"

enum { STAGED_ROW_VALUES = 5 };

struct staged_row {
    uint64_t id, hash; /* hash: the item's */
    uint64_t group;    /* of a delivery; 0: none */
    enum store_kind kind;
    int64_t key;
    struct slice user, item; /* of the statement, until its next step */
    int64_t at_ms;
    int month;
};

/* What makes it a row that was never written, in words; NULL: nothing. */
const char *staged_row_problem(sqlite3_stmt *stmt);

/* The month of the row before, which is mostly that of the next. All zero knows none. */
struct staged_months {
    int64_t from, to; /* unix ms, `to` excluded */
    int month;
};

/* Reads each column once. NULL, or staged_row_problem(): then only the id is set. */
const char *staged_row_read(sqlite3_stmt *stmt, uint64_t seed, struct staged_months *months, struct staged_row *out);

/* The same of a row whose values a function was given, in the order of those statements. */
const char *staged_row_take(sqlite3_value *const *values, uint64_t seed, struct staged_months *months,
                            struct staged_row *out);

/* Returns 0 or ERR_NOMEM. */
int staged_row_add(struct staged *index, const struct staged_row *row);

/* Adds them in their order, while what those behind will touch is fetched (staged_prefetch()).
 * Returns 0 or ERR_NOMEM. */
int staged_rows_add(struct staged *index, const struct staged_row *rows, size_t n);

#endif
