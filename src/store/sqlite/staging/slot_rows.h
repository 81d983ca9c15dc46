/* Rows of the slots' tables that are not as they were written: damage, since Unseen writes no such row. Each stands for
 * something that was acknowledged, so none is ever deleted, and none takes others with it.
 *
 *   unreadable  its kind, an id or its time is nothing that was ever recorded (staged_row_problem()). It is moved into
 *               the table `set_aside` of the same file, as it is, and stays marked until the loss is accepted.
 *   stray       all of it can be read, but no other row of its slot stands near its row id. An index holds 2^32 ids, so
 *               one stray row would push out all others. It gets a new row id behind all that are known.
 */
#ifndef UNSEEN_STORE_SQLITE_STAGING_SLOT_ROWS_H
#define UNSEEN_STORE_SQLITE_STAGING_SLOT_ROWS_H

#include <stdbool.h>

#include "store/ring.h"
#include "store/sqlite/db/db.h"
#include "store/sqlite/index/staged.h"
#include "store/store.h"

/* The tables of a slot: staged_N, staged_N_1, staged_N_2 ..., its parts (slot_parts.h). */
enum { SLOT_PARTS_MAX = 256 };

/* One of them, as db_stmt_for() wants it. */
static inline int slot_table(int slot, int part)
{
    return slot + part * DB_SLOT_PART;
}

/* Which one is named "staged_3" or "staged_3_17". -1: that is the name of none. */
int slot_table_named(const char *name);
_Static_assert((int)DB_SLOT_PART == (int)STORE_SLOTS_MAX, "a table's number says its slot and its part");

/* Those that the file has. */
struct slot_tables {
    uint64_t has[STORE_SLOTS_MAX][SLOT_PARTS_MAX / 64];
};
int slot_rows_tables(struct db *db, struct slot_tables *out, struct err *err); /* ERR_CORRUPT: one is no slot's */

/* The slot's part behind this one (-1: the first) that is there; -1: there is none. */
int slot_tables_next(const struct slot_tables *tables, int slot, int part);
static inline bool slot_tables_any(const struct slot_tables *tables, int slot)
{
    return slot_tables_next(tables, slot, -1) >= 0;
}

/* The highest row id that the file has given, whether its row is there or not; damaged ones don't count. */
int slot_rows_highest(struct db *db, int64_t *out, struct err *err);

/* The lowest row id that is no stray: those up to 2^32 - 1 above it are none either. highest: a row id that was used,
 * those far above it can't have been. 0: the slot has no row, or only stray ones. */
int slot_rows_first(struct db *db, const struct slot_tables *tables, int slot, int64_t highest, int64_t *first,
                    struct err *err);

/* The lowest and the highest row id of a table. 1; 0: it has no row. */
int slot_rows_span(struct db *db, int table, int64_t *first, int64_t *last, struct err *err);

/* How many stray rows the slot has. */
int slot_rows_strays(struct db *db, const struct slot_tables *tables, int slot, int64_t highest, int64_t *n,
                     struct err *err);

/* Gives the stray rows of all slots new ids; each stays in its table. Inside a transaction. told(): for each. Returns
 * how many, or an error. */
int slot_rows_renumber(struct db *db, int64_t highest, void (*told)(void *arg, int slot, int64_t id, int64_t new_id),
                       void *arg, struct err *err);

/* Appends the ids of a table's unreadable rows, ascending. */
int slot_rows_unreadable(struct db *db, int table, struct staged_ids *out, struct err *err);

/* Moves those of the rows that the table has into set_aside. Inside a transaction. accepted: so is the loss. Returns
 * how many, or an error. */
int slot_rows_set_aside(struct db *db, int table, const struct staged_ids *rows, bool accepted, struct err *err);

/* Whether the row is still in the table; one that was dropped has none. 1, 0 or an error. */
int slot_rows_has(struct db *db, int table, uint64_t id, struct err *err);

/* How many rows are set aside whose loss is not accepted yet. */
int slot_rows_waiting(struct db *db, int64_t *n, struct err *err);
int slot_rows_accept(struct db *db, struct err *err); /* all of them: returns how many, or an error */

#endif
