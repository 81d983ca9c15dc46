/* Reading: what a question needs of both files and of the staged index, on any thread, each with a reader of its own.
 */
#ifndef UNSEEN_STORE_SQLITE_READ_READER_H
#define UNSEEN_STORE_SQLITE_READ_READER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "store/admin.h"
#include "store/feed.h"
#include "store/migration.h"
#include "store/pools.h"
#include "store/sqlite/db/db.h"
#include "store/sqlite/db/read_now.h"
#include "store/sqlite/index/staged.h"
#include "store/sqlite/read/kept.h"
#include "store/store.h"
#include "store/user/deliveries.h"

struct sqlite_store;
struct stored_month;

/* While a reader walks the slots' indexes its `pin` is odd, so that none is freed under it. */
struct store_reader {
    struct sqlite_store *store;
    struct store_reader *next; /* in store->readers */
    _Atomic uint64_t pin;
    unsigned loads;
    struct db db;
    struct db staging; /* opened when it is needed first, see reader_staging.c */
    struct staged_out out;
    struct arena arena;
    struct delivered_codec codec;
    struct store_month *months;
    size_t cap_months;
    uint64_t *exceptions;
    size_t cap_exceptions;
    unsigned version; /* of the file's content in the snapshot that is read */
    struct stored_month *window;
    size_t n_window, cap_window;
    int window_first;              /* the month that it begins with, */
    unsigned window_version;       /* the version it was read at, */
    bool window_kept;              /* and whether it is still to be used */
    struct kept_users kept;        /* of a reader that leaves what is cold, */
    bool keeps;                    /* and has met one that may be kept */
    unsigned kept_found;           /* so often, since that was counted */
    const struct store_scan *scan; /* of the load under way; NULL: positions are kept, */
    int64_t room;                  /* and so many bytes of blobs may still be read */
    bool leaves_cold;              /* reader_leave_cold() */
    struct read_now now;
};

/* reader.c */
int reader_open(struct store *base, struct store_reader **reader, struct err *err);
void reader_close(struct store_reader *reader);
void reader_leave_cold(struct store_reader *reader);
int reader_load(struct store_reader *reader, struct store_load *question);
int reader_scan(struct store_reader *reader, int64_t key, struct slice user, int first_month,
                const struct store_scan *scan, struct store_view *view, struct err *err);
int reader_months(struct store_reader *reader, struct store_month_info *out, int max, struct err *err);
/* Whether the history knows another user with this key. 1, 0 or an error. */
int reader_shared_key(struct store_reader *reader, int64_t key, struct slice user, struct err *err);

/* Every read of history begins here, because a connection that was lost is opened again, and then counts its versions
 * again. db_end_read() ends it. */
int reader_begin(struct store_reader *r, struct err *err);

/* Into r->out: 1 when the user has rows in some slot. Of deliveries there may be more than the last delivered_max: cut
 * them to r->out.deliveries_max, which is set here, since the option may change meanwhile. */
int reader_staged(struct store_reader *r, int64_t key, struct slice user, int first_month, struct err *err);

/* reader_recent.c */
int reader_recent(struct store_reader *reader, struct store_load *load, uint64_t *left);

/* reader_staging.c: by the reader's second connection */
int reader_migration(struct store_reader *reader, struct store_migration_walk *walk, struct slice *users, int max,
                     struct arena *arena, struct err *err);
int reader_problems(struct store_reader *reader, struct store_problem *out, int max, struct arena *arena,
                    struct err *err);
int reader_feed_mark(struct store_reader *reader, struct slice prefix, int64_t most, uint64_t *seq, struct err *err);
/* store/memos.h */
int reader_memo(struct store_reader *reader, const char *name, struct buf *value, struct err *err);

int reader_pools(struct store_reader *reader, int (*each)(void *arg, const struct store_pool *pool, struct err *err),
                 void (*bad)(void *arg, struct slice name, const char *what), void *arg, struct err *err);
int reader_feed(struct store_reader *reader, const char *consumer, uint64_t after, struct feed_event *out, int max,
                struct arena *arena, struct err *err);

#endif
