/* The tables of a slot. Its rows stand in staged_N, and from some id on in staged_N_1, staged_N_2 and so on: in parts,
 * each of about as many rows. So a flushed slot is emptied part by part, each by one DELETE without a condition, which
 * puts its pages on the list of free ones as they are. A page from which rows are deleted one by one is written to the
 * WAL and to the file, 100 bytes and more for a row; and to free all rows at once would keep plays waiting for seconds.
 *
 * The tables stay, empty, for the next time: making or dropping one changes the schema, and with it the views, and
 * every statement is prepared again. They are made when a slot comes to hold more than it ever did, some ahead.
 *
 * A part holds the ids of a range; which one, is known from the part's first id. It ends where it spans
 * parts_rows() ids: mostly as many rows, since forgets and the feed use ids too. So the parts of a slot ascend. Only
 * another program, or a row that got a new id (slot_rows.h), can make two of them overlap; then a row is looked
 * for in all of them.
 *
 * What can go wrong. A table that can't be made is no error: rows go on in the slot's last part, as they do behind
 * SLOT_PARTS_MAX. What of a part spans more than SLOT_PART_MOST ids is deleted row by row, in chunks; an older folder's
 * slot, all in one table, is. A crash at any time leaves some parts empty and others not, in whatever order.
 */
#ifndef UNSEEN_STORE_SQLITE_STAGING_SLOT_PARTS_H
#define UNSEEN_STORE_SQLITE_STAGING_SLOT_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "store/sqlite/db/db.h"
#include "store/sqlite/staging/slot_rows.h"

enum {
    SLOT_PART_LEAST = 16 * 1024, /* ids of a part: emptied in 1 ms ... */
    SLOT_PART_MOST = 128 * 1024, /* ... and in 8, where staging_memory is so large that it takes fewer, larger ones */
    SLOT_EMPTY_CHUNK = 2048,     /* rows deleted one by one in one transaction: plays wait for it */
};

struct slot_parts {
    int n;                          /* tables, 0 .. n - 1; 0: none */
    int at;                         /* the last one with rows, into which the next go, unless it is full */
    int emptied;                    /* those below hold nothing any more */
    bool overlap;                   /* a row may be in another part than its id says */
    uint64_t last;                  /* at start: the highest id found so far */
    uint64_t read;                  /* at start: ids of `at` up to it are read, others not yet; 0: all are */
    uint64_t first[SLOT_PARTS_MAX]; /* the lowest id of those up to `at`; 0: it has none */
};

/* How many ids a part has, so that half of staging_memory fits into SLOT_PARTS_MAX of them. */
uint64_t parts_rows(int64_t staging_memory);

/* The part for the row with this id, which is higher than all before. */
int parts_take(struct slot_parts *p, uint64_t id, uint64_t rows_a_part);

/* How many tables the slot should have to take so many more rows from this id on, some ahead; p->n: it has enough. */
int parts_wanted(const struct slot_parts *p, uint64_t id, uint64_t rows, uint64_t rows_a_part);

/* At start: the ids that a part has, for those that have some, in their order. */
void parts_found(struct slot_parts *p, int part, uint64_t first, uint64_t last);

/* The slot is empty: it begins again. */
void parts_reset(struct slot_parts *p);

/* The part that has the row, if no parts overlap. */
int parts_of(const struct slot_parts *p, uint64_t id);

/* --- the slot's tables in a file; what changes them is done inside a transaction --- */

/* Makes the tables from .. to (excluded) that are missing. The views are the caller's. */
int parts_make(struct db *db, int slot, int from, int to, struct err *err);

/* Whether a row is there; a table that was dropped has none. 1, 0 or an error. */
int parts_have_row(struct db *db, int slot, const struct slot_parts *p, uint64_t id, struct err *err);

/* Deletes a row; that it isn't there is no error. */
int parts_delete_row(struct db *db, int slot, const struct slot_parts *p, uint64_t id, struct err *err);

/* Deletes the rows with ids from .. to. */
int parts_delete_range(struct db *db, int slot, const struct slot_parts *p, uint64_t from, uint64_t to,
                       struct err *err);

/* Deletes a part's rows, or a chunk of them, but none behind last_id. 1: there may be more up to that, 0: there is
 * none. */
int parts_empty(struct db *db, int slot, int part, uint64_t last_id, struct err *err);

#endif
