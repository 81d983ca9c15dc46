/* One user of another store while they are merged with the data here (import_user.c). Everything is computed in memory
 * first, in the historian's arena, and then written, inside its transaction (import_write.c). */
#ifndef UNSEEN_STORE_SQLITE_HISTORY_IMPORT_WORK_H
#define UNSEEN_STORE_SQLITE_HISTORY_IMPORT_WORK_H

#include "store/codec/user_snapshot.h"
#include "store/sqlite/state.h"
#include "store/user/exceptions.h"

struct imported_month {
    int month, table;
    struct slice blob;
    int64_t items, more_items, more_bytes;
    bool is_new;
};

struct import_work {
    struct sqlite_store *s;
    struct user_snapshot snapshot;
    struct staged_walk user; /* only key and user */
    int first_kept, newest;
    struct exceptions exceptions;
    struct imported_month *months;
    size_t n_months;
    int crowded; /* IMPORT_CROWDED: the month */
    struct err *err;
};

/* Writes the computed user, inside the historian's transaction. 0 or an error. */
int import_write(struct import_work *w);
static inline int import_no_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while joining users");
}

/* Reads a filter of ours without changing it, and without its positions when keep = false. Returns 0, also when there
 * is none; ERR_CORRUPT when it can't be read, without a text in err; or an error. */
int import_read_month(struct import_work *w, const struct stored_month *month, bool keep, struct filter *out);

/* import_exceptions.c: which end, and which come; then that is written. */
int import_plan_exceptions(struct import_work *w);
int import_write_exceptions(struct import_work *w);

#endif
