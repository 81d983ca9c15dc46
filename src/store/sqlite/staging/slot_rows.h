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

/* The tables staged_N of the file, ascending. ERR_CORRUPT when one is no slot. */
struct slot_tables {
    bool exists[STORE_SLOTS_MAX];
};
int slot_rows_tables(struct db *db, struct slot_tables *out, struct err *err);

/* The highest row id that the file has given, whether its row is there or not; damaged ones don't count. */
int slot_rows_highest(struct db *db, int64_t *out, struct err *err);

/* The lowest row id that is no stray: those up to 2^32 - 1 above it are none either. highest: a row id that was used,
 * those far above it can't have been. 0: the slot has no row, or only stray ones. */
int slot_rows_first(struct db *db, int slot, int64_t highest, int64_t *first, struct err *err);

/* The lowest and the highest row id. 1; 0: it has no row. */
int slot_rows_span(struct db *db, int slot, int64_t *first, int64_t *last, struct err *err);

/* How many stray rows it has. */
int slot_rows_strays(struct db *db, int slot, int64_t highest, int64_t *n, struct err *err);

/* Gives the stray rows of all slots new ids. Inside a transaction. told(): for each. Returns how many, or an error. */
int slot_rows_renumber(struct db *db, int64_t highest, void (*told)(void *arg, int slot, int64_t id, int64_t new_id),
                       void *arg, struct err *err);

/* Appends the ids of the slot's unreadable rows. */
int slot_rows_unreadable(struct db *db, int slot, struct staged_ids *out, struct err *err);

/* Moves them, ascending, into set_aside. Inside a transaction. accepted: so is the
 * loss. */
int slot_rows_set_aside(struct db *db, int slot, const struct staged_ids *rows, bool accepted, struct err *err);

/* Whether the row is still there; a table that was dropped has none. 1, 0 or an error. */
int slot_rows_has(struct db *db, int slot, uint64_t id, struct err *err);

/* How many rows are set aside whose loss is not accepted yet. */
int slot_rows_waiting(struct db *db, int64_t *n, struct err *err);
int slot_rows_accept(struct db *db, struct err *err); /* all of them: returns how many, or an error */

#endif
