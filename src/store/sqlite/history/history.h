/* Writing history.db: flush, seal, expiry, forget, import, by the thread that is its only writer. See state.h for the
 * threads. */
#ifndef UNSEEN_STORE_SQLITE_HISTORY_HISTORY_H
#define UNSEEN_STORE_SQLITE_HISTORY_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/log.h"
#include "store/ring.h"
#include "store/sqlite/db/db.h"
#include "store/sqlite/index/staged.h"
#include "store/store.h"
#include "store/thread_queue.h"
#include "store/user/deliveries.h"

struct sqlite_store;
struct bulk;

/* A closed slot's flush, or a bulk load's. The historian's. */
struct key_range {
    int64_t from, to; /* both included */
};
struct ranges {
    struct key_range *at;
    size_t n, cap;
};
struct flush_job {
    struct staged *index; /* what is merged; NULL: no job */
    struct staged_walk walk;
    struct ranges todo; /* to merge in this try, ascending */
    size_t at_todo;
    struct ranges failed; /* in this try, ascending */
    int64_t next_key;     /* of the range under way: keys below it are done, and perhaps users with this one */
    bool older;           /* what is merged is older than all that clients wrote: see store_bulk_ops.begin */
    bool redo_all;        /* the outcome of a commit is unknown: the next try merges everything again */
    bool walking;
    uint64_t losses;        /* historian.losses when the try began */
    unsigned failures;      /* tries that failed, in a row */
    unsigned partial_tries; /* tries in a row that were of failed ranges alone */
    int64_t retry_mono_ms;  /* not before */
    struct err error;       /* the first of this try */
    uint64_t users, plays;
    int64_t started_us;
};

enum { HISTORY_MONTHS_MAX = 256 };

/* A month that has a table, or, while it is being sealed, two (seal.c). */
struct stored_month {
    int month;
    bool sealing;
    int64_t sealed_to; /* while sealing: users up to this key are in the second table */
};

/* The table that holds the user's row, as db_stmt_for() takes it. */
static inline int month_table(const struct stored_month *m, int64_t key)
{
    return m->sealing && key <= m->sealed_to ? m->month | DB_SEALED_TABLE : m->month;
}

/* What one transaction of the historian adds to a month's totals. */
struct month_delta {
    int month;
    int64_t users, plays, bytes;
};

struct historian {
    struct thread_queue queue;
    struct db db;
    struct flush_job jobs[STORE_SLOTS_MAX];
    struct flush_job bulk_job;
    struct store_message *imports, **imports_last; /* merges too, in their order */
    int n_merges;                                  /* among them */
    struct store_message *calls;                   /* flush and tick calls that wait until no slot is busy */
    struct month_delta deltas[HISTORY_MONTHS_MAX];
    int n_deltas;
    struct stored_month months[HISTORY_MONTHS_MAX]; /* valid while months_known */
    int n_months;
    bool months_known;
    struct arena arena; /* of one user's merge */
    struct buf blob;
    struct delivered_codec codec;
    struct delivered deliveries; /* of one user, stored and to be merged */
    uint32_t *positions, *scratch;
    size_t cap_positions;
    bool paused;                 /* history WAL at its limit and a reader keeps it from shrinking */
    int64_t checkpointed_bytes;  /* of the WAL, at the last checkpoint */
    int64_t checkpointed_us;     /* when that ended */
    int64_t checkpoint_bytes;    /* of the WAL, at which the next is due */
    int64_t sweep_retry_mono_ms; /* after an error: not before */
    int64_t seal_retry_mono_ms;  /* the same */
    int seal_failed;             /* a month that could not be sealed: later ones are tried first; INT_MIN: none */
    int revived;                 /* first kept month for which cursors were last checked */
    uint64_t turn_seen;
    int64_t retention_seen;
    uint64_t losses; /* commits and checkpoints that failed */
    struct log_limit reopen_log;
    int64_t met;     /* the highest row id of staging.db that a flush or a forget has brought; see pair.h */
    int64_t settled; /* the highest id of a forget that is carried out or was refused */
    int64_t marked;  /* what history_mark() counted, in the transaction under way; 0: nothing */
};

/* writer.c */
int historian_start(struct sqlite_store *s, struct err *err);
void historian_stop(struct sqlite_store *s);

/* txn.c: transactions of the historian's connection. A commit writes the months' totals too. */
int history_begin(struct sqlite_store *s, struct err *err);
int history_commit(struct sqlite_store *s, struct err *err);
void history_rollback(struct sqlite_store *s);
/* Reads the gauges that are row counts from the file: at the start, and when they may have fallen. */
int history_recount(struct sqlite_store *s, struct err *err);
void history_recount_lower(struct sqlite_store *s);
int history_reopen(struct sqlite_store *s, struct err *err);          /* if the connection was lost */
int history_full(struct sqlite_store *s, bool full, struct err *err); /* synchronous=FULL, or back to NORMAL */
/* Inside a transaction under synchronous=FULL: counts it, and notes the highest row id of staging.db so far
 * (pair.h). */
int history_mark(struct sqlite_store *s, struct err *err);
void history_met(struct sqlite_store *s, uint64_t row_id);
/* Forgets up to this id are carried out, or were refused: what is marked from now on says so (staging/tombstones.c). */
void history_settle(struct sqlite_store *s, uint64_t forget);
/* One small commit under synchronous=FULL: everything committed before is durable when it returns. */
int history_barrier(struct sqlite_store *s, struct err *err);
/* Whether background work may write. Checkpoints a WAL that has grown; false while it can't shrink. */
bool history_may_write(struct sqlite_store *s);

/* month.c: month tables and their totals, inside the historian's transaction */
int month_ensure(struct sqlite_store *s, int month, struct err *err);
int month_list(struct sqlite_store *s, struct err *err); /* fills historian.months */
int month_drop(struct sqlite_store *s, int month, struct err *err);
/* The entry of a month with a table, or NULL. Valid until the list is rebuilt. */
const struct stored_month *month_find(struct sqlite_store *s, int month);
/* Fills *out from a row of months_window or months_all. */
void month_column(sqlite3_stmt *stmt, int sealed_to_column, struct stored_month *out);
int month_seal_begin(struct sqlite_store *s, int month, struct err *err); /* gives it a second table, still empty */
int month_seal_cursor(struct sqlite_store *s, int month, int64_t sealed_to, struct err *err);
int month_seal_end(struct sqlite_store *s, int month,
                   struct err *err); /* the second table, now whole, becomes the first */
int month_count(struct sqlite_store *s, int month, int64_t users, int64_t plays, int64_t bytes, struct err *err);
int month_write_counts(struct sqlite_store *s, struct err *err);

/* flush.c. A job is begun once a try; each step is at most one transaction. 1: more to do, 0: merged and durable, or
 * the try's first error: then flush_begin() and try again later. */
void flush_begin(struct sqlite_store *s, struct flush_job *job, struct staged *index);
int flush_step(struct sqlite_store *s, struct flush_job *job);
void flush_free(struct flush_job *job);

/* merge.c: merges the walk's current user, inside a transaction. Plays and deliveries of months before first_kept are
 * dropped and counted. older: they end no exception. */
int merge_user(struct sqlite_store *s, const struct staged_walk *walk, int first_kept, bool older, struct err *err);

/* Of it, for the user of the walk. The user's filter of a month, into *filter; bytes: of its blob, -1 when there is
 * none. One that can't be read is set aside and counts as empty. */
int merge_read_filter(struct sqlite_store *s, const struct staged_walk *walk, int month, int table,
                      struct filter *filter, int64_t *bytes, struct err *err);
/* The number of items by the row, even if its filter can't be read. */
int merge_stored_items(struct sqlite_store *s, int64_t key, int table, int64_t *items, struct err *err);
/* Marks a month, or the deliveries (0), as damaged; blob: what could not be read. */
int merge_quarantine(struct sqlite_store *s, const struct staged_walk *walk, int month, struct slice blob,
                     const char *reason, struct err *err);
/* historian.deliveries, which has what comes, is united with what is stored, and written. */
int merge_unite_deliveries(struct sqlite_store *s, const struct staged_walk *walk, struct err *err);
int merge_write_deliveries(struct sqlite_store *s, int64_t key, const struct delivered *all, struct err *err);
/* The users row; last_month only rises. */
int merge_users_row(struct sqlite_store *s, const struct staged_walk *walk, int newest_month, struct err *err);

/* import.c. While one user is merged into another, and not forgotten yet (store.leaving), none is done. */
void import_begin(struct store *base, struct store_import *import);
void import_pass(struct sqlite_store *s, struct store_message *m);       /* the stager's: on to the historian */
void import_take(struct sqlite_store *s, struct store_message *m);       /* the historian's: from its queue */
bool import_step(struct sqlite_store *s);                                /* whether something was done */
void import_refuse(struct sqlite_store *s, const struct err *err);       /* all that wait */
void import_answer(struct sqlite_store *s, struct store_import *import); /* any thread, of one that was passed on */
/* import_user.c: one user, inside a transaction. Returns a verdict, or an error. */
int import_user(struct sqlite_store *s, struct slice bytes, struct err *err);
/* The same as another user than whom it was packed as; forgets of that one drop nothing. ERR_CONFLICT, naming user and
 * month: it is crowded. */
int import_user_as(struct sqlite_store *s, struct slice bytes, int64_t key, struct slice user, struct err *err);

/* merge_users.c: the historian's part of MERGE, in a transaction of its own, not durable yet: what is known of `from`,
 * and what is staged, in the open slots or in these, becomes known of `into`. 0, also where nothing is known; or an
 * error, with nothing changed. */
int merge_users(struct sqlite_store *s, struct store_merge *merge);
int merge_users_staged(struct sqlite_store *s, struct store_merge *merge, struct staged *const *slots, int n_slots);

/* expire.c: 1 did something, 0 nothing is due */
int sweep_step(struct sqlite_store *s, struct err *err);
/* Oldest month that is kept; INT_MIN while the clock is doubted. */
int sweep_first_kept(struct sqlite_store *s);
/* Logs how much is past retention and will be swept. */
void sweep_announce(struct sqlite_store *s);

/* seed.c: at start, before threads: s->seed, written to a new history.db. ERR_SEED: it isn't that of the plays. */
int seed_choose(struct sqlite_store *s, struct err *err);

/* seal.c: 1 did something, 0 nothing is due */
int seal_step(struct sqlite_store *s, struct err *err);

/* forget.c: the second half of a list of forgets, durable before they are answered: all in one transaction, or, when
 * that fails, each in its own. */
void forgets_history(struct sqlite_store *s, struct store_forget *first);
/* One alone, without an answer; at start, of items only their hashes are known. */
int forget_erase(struct sqlite_store *s, struct store_forget *forget);

/* bulk.c */
int bulk_begin(struct store *base, bool serving, struct err *err);
int bulk_add(struct store *base, int64_t at_ms, int64_t key, struct slice user, uint64_t item_hash, struct err *err);
int bulk_deliver(struct store *base, int64_t at_ms, int64_t key, struct slice user, struct slice item,
                 uint64_t item_hash, uint64_t rank, struct err *err);
size_t bulk_bytes(struct store *base);
int bulk_turn(struct store *base, struct err *err);
int bulk_end(struct store *base, struct err *err);
bool bulk_serving(const struct bulk *bulk);
void bulk_drop(struct sqlite_store *s); /* a load that was not ended, once the historian has stopped */
struct staged *bulk_index(struct bulk *bulk);
void bulk_merged(struct sqlite_store *s, const struct err *err); /* the historian has merged it, or failed */
/* The stager's: 1: the user is among those whom a load brings, and the feed doesn't tell of it yet; 0; ERR_NOMEM. */
int bulk_brings(struct sqlite_store *s, int64_t key, struct slice user);
void bulk_stop(struct store *base);

#endif
