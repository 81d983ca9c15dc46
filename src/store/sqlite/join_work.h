/* One user of another store while he is joined: worked out by join_user.c, written by join_write.c. */
#ifndef UNSEEN_STORE_SQLITE_JOIN_WORK_H
#define UNSEEN_STORE_SQLITE_JOIN_WORK_H

#include "store/parcel.h"
#include "store/sqlite/internal.h"

struct joined_month {
    int month, table;
    struct slice blob;
    int64_t items, more_items, more_bytes;
    bool is_new;
};

struct join_work {
    struct sqlite_store *s;
    struct parcel parcel;
    struct staged_walk user; /* only key and user */
    int first_kept, newest;
    struct filter *theirs; /* one a month of the parcel */
    uint64_t *exceptions;  /* ours */
    size_t n_exceptions;
    bool *ours_end;  /* one an exception of ours: it ends */
    bool *take_over; /* one an exception of theirs */
    struct joined_month *months;
    size_t n_months;
    struct store_delivery *deliveries;
    size_t n_deliveries;
    struct err *err;
};

/* Writes what was worked out, inside the historian's transaction. 0 or an error. */
int join_write(struct join_work *w);

#endif
