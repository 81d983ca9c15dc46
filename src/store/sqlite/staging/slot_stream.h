/* The rows of a slot's tables on their way into an index, at start: read, checked and hashed, in batches, table by
 * table and in each in the order of their ids. A large slot is read by threads, each with a connection of its own,
 * while the caller adds what they have read: reading a row takes as long as adding it. A small one is read in the
 * caller's thread.
 *
 * What is ahead of the caller is bounded: SLOT_READERS x SLOT_AHEAD batches of 300 KiB, if all ids have 255 bytes.
 */
#ifndef UNSEEN_STORE_SQLITE_STAGING_SLOT_STREAM_H
#define UNSEEN_STORE_SQLITE_STAGING_SLOT_STREAM_H

#include "store/sqlite/db/db.h"
#include "store/sqlite/staging/slot_rows.h"
#include "store/sqlite/staging/staged_row.h"

enum {
    SLOT_BATCH = 512,
    SLOT_AHEAD = 8,            /* batches of each thread */
    SLOT_READERS = 4,          /* threads at most */
    SLOT_THREADED = 64 * 1024, /* ids from the first to the last row: then it's worth threads */
};

/* The caller may change a batch, which is theirs until the next call. */
struct slot_batch {
    size_t n;
    struct staged_row at[SLOT_BATCH]; /* with a problem only the id is set */
    const char *problem[SLOT_BATCH];  /* what makes it a row that was never written; NULL: nothing */

    int table; /* that they are of, as it was handed in: 0, 1 ... */

    /* the stream's own */
    int64_t range;
    bool range_ends;
    size_t bytes;
    char ids[SLOT_BATCH * 2 * HASH_ID_MAX];
};

struct slot_stream;

/* Rows of a table (slot_table()): those with ids first .. last. */
struct slot_table_rows {
    int table;
    int64_t first, last;
};

/* Of those rows, of 1 to SLOT_PARTS_MAX tables, read through db, or like it: it must have no transaction under way that
 * the others could not see. Returns 0, ERR_NOMEM or ERR_SYSTEM. */
int slot_stream_open(struct db *db, const char *folder, uint64_t seed, const struct slot_table_rows *tables, int n,
                     struct slot_stream **out, struct err *err);

/* 1: a batch, perhaps without rows; 0: there are no more; or the first error, in the order of the rows. */
int slot_stream_next(struct slot_stream *stream, struct slot_batch **batch, struct err *err);

/* Ends the threads. NULL is allowed. */
void slot_stream_close(struct slot_stream *stream);

#endif
