/* Whether all that a file's schema has is ours. A folder may come from elsewhere, and have been made to harm: a trigger
 * takes back what is recorded, a view in the place of a table never ends, two tables share their pages, a column of
 * another kind compares otherwise. So each object is compared with the one that our own SQL makes: the steps of
 * schema.c, sql/month.sql and sql/slot.sql. Only the schema is read.
 *
 * SQL is compared word by word, so that comments and white space may differ, and a name may stand in quotes, as it does
 * once a table was renamed. Of SQLite's own, what ANALYZE leaves may be there. Views of ours may be missing or differ:
 * only people read them, and views.c makes them again.
 */
#ifndef UNSEEN_STORE_SQLITE_DB_OWN_SCHEMA_H
#define UNSEEN_STORE_SQLITE_DB_OWN_SCHEMA_H

#include "store/sqlite/db/schema.h"

/* Before anything is read from a table: that `meta` is the table which the first step makes, with nothing on it; or
 * that there is none. */
int own_schema_meta(struct db *db, const struct schema_step *steps, struct err *err);

/* Compares all of it with what the first n steps make. ERR_CORRUPT names the first object that is none of ours, is
 * another than ours, or is missing, says what was expected, and how to go on. */
int own_schema_check(struct db *db, bool history, const struct schema_step *steps, int64_t n_steps, struct err *err);

/* Whether a statement that SQLite keeps says the same as the one with which the text `wanted` begins. */
bool own_schema_same(const char *sql, const char *wanted);

#endif
