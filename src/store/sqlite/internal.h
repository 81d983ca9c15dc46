/* What the parts of the embedded store share. Only files of this folder include it.
 *
 * Threads:
 *
 *   the stager     stager.c (the thread), stager_commit.c, stager_limits.c, stager_forget.c, slots.c (turn,
 *                  emptying), recover.c, notes.c, mirror.c, kept.c, time.c;
 *                  the only writer of staging.db
 *   the historian  historian.c (the thread), history.c (its connection), flush.c, merge.c, month.c,
 *                  seal.c, sweep.c, erase.c, join.c, join_*.c;
 *                  the only writer of history.db
 *   a backup's     backup.c and backup_*.c: a thread for as long as it runs, which reads staging.db and owns the
 *                  copy; the historian's connection copies history.db
 *   any other      reader.c, reader_staging.c, and the functions of store_ops, which leave a message and return
 *
 * Each of the two threads has one queue and takes its whole list at once. What concerns the ring needs no messages: a
 * slot's state says who acts next, and whoever changes it wakes the other thread:
 *
 *   stager     EMPTY -> OPEN -> CLOSED                      EMPTYING -> EMPTY
 *   historian                    CLOSED | FAILED -> FLUSHING -> EMPTYING | FAILED
 *
 * Locks: an queue's mutex guards its list; ring_mutex guards slots[].info, the turn and what RING shows; backup_mutex
 * what a backup's thread shares with others; bulk_mutex how a bulk load's merge ended. None is held while another is
 * taken, or during I/O.
 */
#ifndef UNSEEN_STORE_SQLITE_INTERNAL_H
#define UNSEEN_STORE_SQLITE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/guard.h"
#include "base/log.h"
#include "store/codec/deliveries.h"
#include "store/ring.h"
#include "store/sqlite/db/db.h"
#include "store/sqlite/index/staged.h"
#include "store/sqlite/sqlite_store.h"
#include "store/sqlite/thread_queue.h"
#include "store/store.h"

struct sqlite_store;
struct bulk;
struct migration_users;
struct mirror_queue;
struct garbage;
struct backup;

/* What a STORE_CALL or STORE_INTERNAL message wants (message.what). */
enum store_wants {
    WANTS_FLUSH,     /* RING FLUSH */
    WANTS_ROOM,      /* RING FLUSH whose turn waits for an empty slot */
    WANTS_TICK,      /* the test clock moved */
    WANTS_MERGE,     /* a bulk load's next index */
    WANTS_SESSIONS,  /* to be kept, or given back */
    WANTS_IMPORT,    /* users of another store */
    WANTS_MIGRATION, /* a change of notes */
    WANTS_MIRROR,    /* the mirror reset */
    WANTS_CLOCK,     /* an administrator says what time it is */
};

struct slot {
    _Atomic(struct staged *) index; /* NULL: empty. Set and cleared by the stager; see slots_collect_garbage */
    struct store_slot info;         /* under ring_mutex; rows, users and bytes are read from the index */
    uint64_t last_id;               /* the stager's: no row of the table has a higher one */
    bool exists;                    /* the stager's: the table is there */
    int64_t opened_ms;              /* under ring_mutex: believed wall time; 0: recovered at start, so unknown */
    unsigned empty_failures;        /* the stager's: times in a row that it could not be emptied ... */
    int64_t empty_retry_mono_ms;    /* ... and when that is tried again */
};

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
    bool older;           /* what is merged is older than all that clients wrote: see store_ops.bulk_begin */
    bool redo_all;        /* the outcome of a commit is unknown: the next try merges everything again */
    bool walking;
    uint64_t losses;       /* historian.losses when the try began */
    unsigned failures;     /* tries that failed, in a row */
    unsigned narrowed;     /* tries in a row that were of failed ranges alone */
    int64_t retry_mono_ms; /* not before */
    struct err error;      /* the first of this try */
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
    pthread_t thread;
    struct thread_queue queue;
    struct db db;
    struct flush_job jobs[STORE_SLOTS_MAX];
    struct flush_job bulk_job;
    struct store_message *imports, **imports_last;
    struct store_message *calls; /* flush and tick calls that wait for the slots to come to rest */
    struct month_delta deltas[HISTORY_MONTHS_MAX];
    int n_deltas;
    struct stored_month months[HISTORY_MONTHS_MAX]; /* valid while months_known */
    int n_months;
    bool months_known;
    struct arena arena; /* of one user's merge */
    struct buf blob;
    struct delivered_codec codec;
    struct staged_out deliveries;
    uint32_t *positions, *scratch;
    size_t cap_positions;
    bool paused;                 /* history WAL at its limit and a reader keeps it from shrinking */
    int64_t checkpointed_bytes;  /* of the WAL, at the last checkpoint */
    int64_t checkpointed_us;     /* when that ended */
    int64_t checkpoint_bytes;    /* of the WAL, at which the next is due */
    int64_t sweep_retry_mono_ms; /* after an error: not before */
    int64_t seal_retry_mono_ms;  /* the same */
    int seal_failed;             /* the month that could not be sealed: later ones first; INT_MIN: none */
    int revived;                 /* first kept month for which cursors were last looked over */
    uint64_t turn_seen;
    int64_t retention_seen;
    uint64_t losses; /* commits and checkpoints that failed */
    struct log_limit reopen_log;
    int64_t met;    /* the highest row id of staging.db that a flush or a forget has brought; see pair.h */
    int64_t marked; /* what history_mark() counted, in the transaction under way; 0: nothing */
};

struct stager {
    pthread_t thread;
    struct thread_queue queue;
    struct db db;
    struct store_reader *reader; /* for what a forget must know before it erases */
    uint64_t next_id;
    int64_t opened_mono_ms;                  /* when the open slot was opened */
    unsigned turn_failures;                  /* in a row */
    int64_t turn_retry_mono_ms;              /* not before, unless RING FLUSH asks for it */
    struct store_message *held, **held_last; /* batches and forgets, taken and not yet done */
    _Atomic uint64_t n_held;
    uint64_t crowd; /* senders under way, at the last commit: those in it and those who waited for the next */
    int64_t commit_us;
    struct store_message *flush_calls; /* RING FLUSH that waits for the writes before it */
    struct ring_pressure pressure;
    enum ring_memory memory;
    uint64_t slots_freed;
    int64_t ticked_us;
    uint64_t undo_from, undo_to; /* ids of a commit whose outcome is unknown: deleted with the next one; 0: none */
    int undo_slot;
    struct garbage *garbage; /* indexes that a reader may still hold */
    struct guard guard;
    struct guard_kept kept_saved; /* as it stands in the file; */
    int64_t kept_retry_mono_ms;   /* after an error: not before */
    struct staged_ids ids;
    struct log_limit commit_log;
};

enum { FORGET_COUNTERS = 256 };

/* A reader announces that it walks the slots' indexes, so that none is freed under it: `pin` is odd meanwhile. */
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
    struct stored_month *window;
    size_t n_window, cap_window;
    int window_first;              /* the month that it begins with, */
    unsigned window_version;       /* the file's data version it was read at, */
    bool window_kept;              /* and whether it is still to be used */
    const struct store_scan *scan; /* of the load under way; NULL: positions are kept, */
    int64_t room;                  /* and so many bytes of blobs may still be read */
};

#define STORE_COUNTERS(X)                                                                                              \
    X(rows_recorded)                                                                                                   \
    X(commits)                                                                                                         \
    X(commit_errors)                                                                                                   \
    X(busy_refusals)                                                                                                   \
    X(full_refusals)                                                                                                   \
    X(turns)                                                                                                           \
    X(early_turns)                                                                                                     \
    X(flushes)                                                                                                         \
    X(flush_errors)                                                                                                    \
    X(users_flushed)                                                                                                   \
    X(plays_flushed)                                                                                                   \
    X(plays_too_old)                                                                                                   \
    X(plays_over_capacity)                                                                                             \
    X(rows_swept)                                                                                                      \
    X(months_dropped)                                                                                                  \
    X(months_sealed)                                                                                                   \
    X(users_sealed)                                                                                                    \
    X(quarantined)                                                                                                     \
    X(rows_set_aside)                                                                                                  \
    X(damaged_answers)                                                                                                 \
    X(shared_keys)                                                                                                     \
    X(users_forgotten)                                                                                                 \
    X(items_forgotten)                                                                                                 \
    X(staging_wal_bytes)                                                                                               \
    X(history_wal_bytes)                                                                                               \
    X(wal_pauses)                                                                                                      \
    X(backups)                                                                                                         \
    X(backup_errors)                                                                                                   \
    X(backup_problems)                                                                                                 \
    X(backup_ms)                                                                                                       \
    X(recovered_rows)                                                                                                  \
    X(recovery_us)                                                                                                     \
    X(commit_us_last)                                                                                                  \
    X(commit_us_max)                                                                                                   \
    X(flush_users_done)                                                                                                \
    X(flush_users)                                                                                                     \
    X(flush_us_last)                                                                                                   \
    X(flushed_ms)                                                                                                      \
    X(swept_ms)                                                                                                        \
    X(sealed_ms)                                                                                                       \
    X(cache_hits)                                                                                                      \
    X(cache_misses)

struct store_counters {
#define X(name) _Atomic uint64_t name;
    STORE_COUNTERS(X)
#undef X
};

#define GAUGE(s, counter, n) atomic_store_explicit(&(s)->counters.counter, (uint64_t)(n), memory_order_relaxed)
#define COUNT(s, counter, n) atomic_fetch_add_explicit(&(s)->counters.counter, (uint64_t)(n), memory_order_relaxed)

/* The guarded clock, as other threads read it; see struct guard. */
struct clock_published {
    _Atomic int64_t offset, newest, unsure;
    _Atomic bool doubted, unknown;
};

struct sqlite_store {
    struct store base;
    const struct config *cfg; /* live options are read through config_now() */
    char folder[PATH_MAX];
    const char *vfs;
    void (*progress)(void *arg, uint64_t rows); /* of the recovery; NULL: nobody asks */
    void *progress_arg;
    int lock_fd;
    uint64_t seed;

    pthread_mutex_t ring_mutex;
    struct slot slots[STORE_SLOTS_MAX];
    uint64_t turn;
    int open;
    bool busy;
    char busy_cause[STORE_ERROR_TEXT];
    char clock_reason[GUARD_REASON];
    int64_t next_turn_ms;

    struct clock_published clock;

    _Atomic bool disk_low;           /* less than min_free is left */
    _Atomic bool loading;            /* a bulk load is under way */
    _Atomic bool wal_full;           /* the history WAL is at its limit and a reader keeps it from shrinking */
    _Atomic int64_t flushes_durable; /* what history.db has counted so far, see pair.h */
    _Atomic uint64_t exceptions;     /* 0 only if a snapshot taken later has no row in `exceptions` */

    pthread_mutex_t readers_mutex;
    struct store_reader *readers;
    pthread_mutex_t figures_mutex; /* RING and INFO walk the indexes like a question, through a pin of their own */
    struct store_reader figures_pin;

    _Atomic uint32_t forgets[FORGET_COUNTERS]; /* with the historian, by the key's low bits */
    _Atomic uint64_t damage_logged[64];        /* users and months whose damage was logged, see reader.c */

    struct store_counters counters;
    struct buckets commit_us, commit_rows; /* noted by the stager */
    struct stager stager;
    struct historian historian;
    struct bulk *bulk;
    pthread_mutex_t bulk_mutex; /* guards whether it is merged, and: */
    bool bulk_stopped;
    pthread_cond_t bulk_wake; /* of who waits for it */
    struct migration_users *users_to_migrate;
    struct mirror_queue *mirror;

    pthread_mutex_t backup_mutex; /* guards these: */
    struct backup *backup;        /* under way, or the last one, whose thread is not joined yet */
    bool backup_stopped;
    uint64_t backup_saved_ms; /* the stager's: what it has written down */
    struct store_backup_state backup_last;
};

static inline struct sqlite_store *sqlite_store(struct store *s)
{
    return (struct sqlite_store *)s;
}

/* reader.c */
int reader_open(struct store *base, struct store_reader **reader, struct err *err);
void reader_close(struct store_reader *reader);
int reader_load(struct store_reader *reader, int64_t key, struct slice user, int first_month, struct store_view *view,
                struct err *err);
int reader_scan(struct store_reader *reader, int64_t key, struct slice user, int first_month,
                const struct store_scan *scan, struct store_view *view, struct err *err);
int reader_months(struct store_reader *reader, struct store_month_info *out, int max, struct err *err);
/* Whether the history knows another user with this key. 1, 0 or an error. */
int reader_shared_key(struct store_reader *reader, int64_t key, struct slice user, struct err *err);

/* reader_staging.c: by the reader's second connection */
int reader_migration(struct store_reader *reader, struct store_migration_walk *walk, struct slice *users, int max,
                     struct arena *arena, struct err *err);
int reader_problems(struct store_reader *reader, struct store_problem *out, int max, struct arena *arena,
                    struct err *err);
int reader_mirror(struct store_reader *reader, uint64_t after, struct store_mirrored *out, int max, struct arena *arena,
                  struct err *err);

/* recover.c: at start, before threads. highest: the row id, 0 for none */
int recover_slots(struct sqlite_store *s, uint64_t *highest, struct err *err);

/* slots.c: on the stager's thread */
int slots_recover(struct sqlite_store *s, struct err *err); /* at start, before threads */
void slots_set_state(struct sqlite_store *s, int slot, enum store_slot_state state);
/* FAILED, or EMPTYING and stuck: with the error, until it is tried again after a delay that grows with the failures.
 * Returns the monotonic time of that. */
int64_t slots_set_stuck(struct sqlite_store *s, int slot, enum store_slot_state state, const char *error,
                        unsigned failures);
enum store_slot_state slots_state(struct sqlite_store *s, int slot);
int slots_turn(struct sqlite_store *s, bool early, struct err *err); /* 1 turned, 0 no slot is free */
bool slots_empty_step(struct sqlite_store *s); /* deletes a chunk of a flushed slot; whether something happened */
/* Lets the stuck ones be emptied again: those whose time has come, or all. */
void slots_retry_emptying(struct sqlite_store *s, bool all);
void slots_drop(struct sqlite_store *s, int slot); /* an empty one outside the ring: its table */
void slots_collect_garbage(struct sqlite_store *s, bool all);
uint64_t slots_bytes(struct sqlite_store *s);

/* stager.c */
int stager_start(struct sqlite_store *s, struct err *err);
void stager_stop(struct sqlite_store *s); /* ends the thread */
void stager_free(struct sqlite_store *s); /* answers what is left; the historian has stopped too */

/* stager_commit.c: commits the batches first .. end (excluded) and answers them */
void stager_commit(struct sqlite_store *s, struct store_message *first, struct store_message *end);
void stager_gather(struct stager *st); /* before: waits a moment for those who were answered last */
/* Inside a transaction: deletes what a commit of unknown outcome may have left in the open slot, and in the mirror. */
int stager_undo(struct sqlite_store *s, struct err *err);
/* Inside a transaction: what history.db has made durable, since rows are deleted in reliance on it (pair.h). */
int stager_note_flushes(struct sqlite_store *s, struct err *err);
void stager_note_end(struct sqlite_store *s);                   /* the same, once both threads have ended */
void stager_undo_ended(struct sqlite_store *s, bool committed); /* that transaction, when it wrote no rows itself */
/* The next transaction deletes the rows with ids from .. end (excluded), which may be in the file. */
void stager_undo_later(struct sqlite_store *s, uint64_t from, uint64_t end);

/* stager_limits.c. Whether the batch may be written now, behind so many rows of its group. 0: yes, 1: it must wait, or
 * an error that refuses it. */
int stager_admit(struct sqlite_store *s, struct store_batch *batch, uint64_t rows_before);
/* tell_anew: what holds things up is looked at again, if writes are refused. */
void stager_look_at_memory(struct sqlite_store *s, bool tell_anew);
void stager_look_at_disk(struct sqlite_store *s);
/* ERR_FULL when the disk has less than min_free. Any thread. */
int stager_disk_room(struct sqlite_store *s, struct err *err);

/* blocked.c: why no slot gets free, in words. Any thread. */
void blocked_describe(struct sqlite_store *s, char *out, size_t size);
void blocked_by_reader(struct sqlite_store *s, char *out, size_t size); /* when the history WAL can't shrink */

/* stager_forget.c */
void stager_forget(struct sqlite_store *s, struct store_forget *forget);
/* Whether an earlier forget of the user (or of one who shares a counter with him) is still with the historian: its
 * effect must be seen by the next one's answer. */
bool stager_forget_waits(struct sqlite_store *s, const struct store_forget *forget);
/* The historian has carried it out, or failed to. */
void stager_forget_ended(struct sqlite_store *s, int64_t key);

/* historian.c */
int historian_start(struct sqlite_store *s, struct err *err);
void historian_stop(struct sqlite_store *s);

/* history.c: transactions of the historian's connection. A commit writes the months' totals too. */
int history_begin(struct sqlite_store *s, struct err *err);
int history_commit(struct sqlite_store *s, struct err *err);
void history_rollback(struct sqlite_store *s);
/* The gauges that are row counts, as the file has them: at start; and when they may have fallen. */
int history_recount(struct sqlite_store *s, struct err *err);
void history_recount_lower(struct sqlite_store *s);
int history_reopen(struct sqlite_store *s, struct err *err);          /* if the connection was lost */
int history_full(struct sqlite_store *s, bool full, struct err *err); /* synchronous=FULL, or back to NORMAL */
/* Inside a transaction under synchronous=FULL: counts it, and notes the rows of staging.db that were met (pair.h). */
int history_mark(struct sqlite_store *s, struct err *err);
void history_met(struct sqlite_store *s, uint64_t row_id);
/* One small commit under synchronous=FULL: everything committed before is durable when it returns. */
int history_barrier(struct sqlite_store *s, struct err *err);
/* Whether background work may write: checkpoints a WAL that has grown, and is false while it can't shrink. */
bool history_may_write(struct sqlite_store *s);

/* month.c: month tables and their totals, inside the historian's transaction */
int month_ensure(struct sqlite_store *s, int month, struct err *err);
int month_list(struct sqlite_store *s, struct err *err); /* fills historian.months */
int month_drop(struct sqlite_store *s, int month, struct err *err);
/* The entry of a month that has a table; NULL: it has none. Good until the list is made anew. */
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

/* merge.c: the user that a walk stands at, inside a transaction. Plays and deliveries of months before first_kept are
 * dropped and counted. older: they end no exception. */
int merge_user(struct sqlite_store *s, const struct staged_walk *walk, int first_kept, bool older, struct err *err);

/* Of it, for the user of the walk. The user's filter of a month, into *filter; bytes: of its blob, -1 when there is
 * none. One that can't be read is set aside and counts as empty. */
int merge_read_filter(struct sqlite_store *s, const struct staged_walk *walk, int month, int table,
                      struct filter *filter, int64_t *bytes, struct err *err);
/* What a row says that its filter has, also if that can't be read. */
int merge_stored_items(struct sqlite_store *s, int64_t key, int table, int64_t *items, struct err *err);
/* Marks a month, or the deliveries (0), as damaged; blob: what could not be read. */
int merge_quarantine(struct sqlite_store *s, const struct staged_walk *walk, int month, struct slice blob,
                     const char *reason, struct err *err);
/* The users row; last_month only rises. */
int merge_users_row(struct sqlite_store *s, const struct staged_walk *walk, int newest_month, struct err *err);

/* join.c */
void import_begin(struct store *base, struct store_import *import);
void import_pass(struct sqlite_store *s, struct store_message *m); /* the stager's: on to the historian */
void import_take(struct sqlite_store *s, struct store_message *m); /* the historian's: from its queue */
bool import_step(struct sqlite_store *s);                          /* whether something was done */
void import_refuse(struct sqlite_store *s, const struct err *err); /* all that wait */
/* import_user.c: one user, inside a transaction. Returns a verdict, or an error. */
int import_user(struct sqlite_store *s, struct slice bytes, struct err *err);

/* sweep.c: 1 did something, 0 nothing is due */
int sweep_step(struct sqlite_store *s, struct err *err);
/* Oldest month that is kept; INT_MIN while the clock is doubted. */
int sweep_first_kept(struct sqlite_store *s);
/* Says in the log how much is past retention and will be swept. */
void sweep_announce(struct sqlite_store *s);

/* seal.c: 1 did something, 0 nothing is due */
int seal_step(struct sqlite_store *s, struct err *err);
/* What a sealed month may spend; all of a window together spend what is left of error_rate by the live parts. */
double seal_share(double error_rate, int64_t window);
/* The range to which n positions of a finished month are cut to spend it; 0: they stay live. */
uint64_t seal_range(uint32_t n, bool coarse, double share);
/* How many positions the coarse part of a user's month takes at most. */
uint32_t seal_coarse_max(double error_rate);
/* And a part at 2^32 before a fine one is begun. */
uint32_t seal_live_max(double error_rate);
/* Cuts a finished month's filter. 1; 0: it stays as it is; or ERR_NOMEM. */
int seal_filter(struct filter *f, double error_rate, int64_t window, struct arena *arena);

/* erase.c: a forget's second half, durable before it is answered */
void forget_history(struct sqlite_store *s, struct store_forget *forget);

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
void bulk_stop(struct store *base);

/* notes.c */
int migration_users_open(struct sqlite_store *s, struct err *err); /* at start, before threads */
void migration_users_close(struct sqlite_store *s);
void migration_users_write(struct store *base, struct store_migration_change *users_to_migrate);
enum store_note migration_users_of(struct store *base, int64_t key);
void migration_users_state(struct store *base, struct store_migration_counts *out);
int migration_users_waiting(struct sqlite_store *s, struct store_migration_walk *walk, uint32_t *ids,
                            int max);                                       /* any thread */
void migration_users_work(struct sqlite_store *s, struct store_message *m); /* on the stager's thread */
/* There too: users are noted, durably, unless they are already. */
int migration_users_add(struct sqlite_store *s, const struct slice *users, size_t n, struct err *err);
/* The end of a forgotten user's note, if there is one: inside the transaction, and once that is durable. */
int migration_users_end(struct sqlite_store *s, int64_t key, struct err *err);
void migration_users_ended(struct sqlite_store *s, int64_t key);

/* mirror.c. The seam's: */
void mirror_listen(struct store *base, void (*wake)(void *arg), void *arg);
void mirror_done(struct store *base, uint64_t id, uint64_t n, uint64_t bytes);
void mirror_reset(struct store *base, struct store_call *call);
void mirror_state(struct store *base, struct store_mirror_state *out);
uint64_t mirror_last_id(const struct sqlite_store *s);    /* of what may be read; any thread */
int mirror_open(struct sqlite_store *s, struct err *err); /* at start, once staging is recovered, before threads */
void mirror_close(struct sqlite_store *s);                /* after them */
/* The stager's, inside its transaction: an event whose rows have ids from `id` on, and a forget. */
int mirror_add(struct sqlite_store *s, const struct store_event *event, uint64_t id, struct err *err);
int mirror_add_forget(struct sqlite_store *s, const struct store_forget *forget, uint64_t id, struct err *err);
uint64_t mirror_forget_ids(const struct sqlite_store *s, const struct store_forget *forget); /* how many it takes */
/* The end of the transaction's rows, before the commit: writes down what was left out, and deletes some of what was
 * repeated. */
int mirror_before_commit(struct sqlite_store *s, struct err *err);
void mirror_committed(struct sqlite_store *s, uint64_t last_id); /* all up to last_id is durable and answered */
void mirror_failed(struct sqlite_store *s);
int mirror_undo(struct sqlite_store *s, uint64_t from, uint64_t to, struct err *err);
void mirror_work(struct sqlite_store *s, struct store_message *m);
/* Deletes a chunk of what was repeated, in a transaction of its own: when there is a whole one, or, all = true, any.
 * Whether something happened. */
bool mirror_empty_step(struct sqlite_store *s, bool all);

/* kept.c: sessions over a restart */
int kept_put(struct store *base, bool (*next)(void *arg, struct store_session *out), void *arg, struct err *err);
int kept_take(struct store *base, void (*each)(void *arg, const struct store_session *kept), void *arg,
              struct err *err);
void kept_work(struct sqlite_store *s, struct store_message *m); /* on the stager's thread */

/* backup.c */
void backup_start(struct store *base, struct store_backup *request);
void backup_state(struct store *base, struct store_backup_state *out);
void backup_stop(struct store *base);
/* When the last one was whole, over a restart: read at the start; written by the stager, when it is new. */
int backup_time_load(struct sqlite_store *s, struct err *err);
void backup_time_save(struct sqlite_store *s);
void backup_join(struct sqlite_store *s); /* waits for its thread to end */
/* The historian's: copies some pages of history, for a few milliseconds. Whether there is more to do at once. */
bool backup_step(struct sqlite_store *s);
/* The historian's: it has carried out a forget. */
void backup_forgot(struct sqlite_store *s, const struct store_forget *forget);

/* time.c. Any thread: */
void store_now(struct store *base, int64_t *later, int64_t *earlier);
int store_time_known(struct store *base, struct err *err);
void store_clock(struct store *base, struct store_clock *out);
void time_change(struct store *base, struct store_clock_change *change);
bool store_clock_doubted(struct sqlite_store *s);
int64_t store_believed(struct sqlite_store *s); /* the time, for what no play depends on: nights, slots, sealing */
/* The stager's: */
int time_start(struct sqlite_store *s, int64_t built_ms, struct err *err); /* before threads */
void time_look(struct sqlite_store *s);
void time_work(struct sqlite_store *s, struct store_message *m);
int time_persist(struct sqlite_store *s, struct err *err); /* what a restart must know */

#endif
