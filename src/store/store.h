/* The seam to storage: a struct of functions, and the rules every store keeps.
 *
 * 1. record: a batch is answered after its rows are durable, and visible to every load that starts after
 *    the answer. Batches and forgets take effect in the order in which they were handed in.
 * 2. load: sees every write answered before it began, whatever flushes meanwhile; never waits for a
 *    commit, a flush, a sweep or a checkpoint.
 * 3. No function but those named "blocks" waits for another thread. `done` callbacks run on a thread of
 *    the store: they pass the message on (to a queue) and return.
 * 4. A slot's rows leave staging only when they're durable in history.
 *
 * Nothing above this header knows SQL, files or tables.
 */
#ifndef UNSEEN_STORE_STORE_H
#define UNSEEN_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buckets.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/figure.h"
#include "base/guard.h"
#include "base/slice.h"
#include "config/config.h"
#include "filter/filter.h"

struct store;
struct store_reader;

enum store_kind {
    STORE_PLAY = 1,
    STORE_DELIVERY = 2,
};

/* What waits in the store's queue; the first member of each message. */
enum store_message_kind { STORE_BATCH, STORE_FORGET, STORE_CALL, STORE_INTERNAL };
struct store_message {
    struct store_message *next;
    enum store_message_kind kind;
    int what; /* the store's own */
};

/* Events of many commands, handed in as one. Owned by the store from record() until done(). */
struct store_batch {
    struct store_message message;
    struct buf bytes; /* packed events, see store_batch_add */
    uint32_t rows;    /* items in all events */
    uint32_t events;
    struct err err; /* code 0 once durable; else nothing of the batch is acknowledged */
    void (*done)(struct store_batch *batch);
    void *owner;
};

/* Appends one command's event: n items of one user at one time. Hashes are hash_id() of each item with
 * the store's seed, key that of the user. Ids are 1..255 bytes (the caller has checked them).
 * Returns 0, or ERR_NOMEM with the batch as it was. */
int store_batch_add(struct store_batch *batch, enum store_kind kind, int64_t at_ms, int64_t key, struct slice user,
                    const struct slice *items, const uint64_t *hashes, size_t n);

/* Walks a batch: *at begins at 0. Returns false at the end. items point into the batch. */
struct store_event {
    enum store_kind kind;
    int64_t at_ms;
    int64_t key;
    struct slice user;
    uint32_t n;
    const uint8_t *items; /* read with store_event_item */
};
bool store_batch_next(const struct store_batch *batch, size_t *at, struct store_event *out);
const uint8_t *store_event_item(const uint8_t *items, struct slice *item, uint64_t *hash); /* returns the next */

/* FORGET user [item ...]: n_items == 0 forgets the user. The caller keeps the memory behind the slices until
 * done(). */
struct store_forget {
    struct store_message message;
    int64_t key;
    struct slice user;
    const struct slice *items;
    const uint64_t *hashes;
    size_t n_items;
    int first_month; /* of the window: an item counts as seen when it is seen from here on */
    int64_t answer;  /* user: 1 if known, else 0; items: how many were seen and no longer are */
    uint64_t before; /* the store's own: rows with lower ids are older than the forget */
    struct err err;
    void (*done)(struct store_forget *forget);
    void *owner;
};

struct store_call {
    struct store_message message;
    struct err err;
    void (*done)(struct store_call *call);
    void *owner;
};

/* A user whose plays still stand in another system (src/legacy/), as the store remembers them. */
enum { STORE_RANK_MAX = 100 };

enum store_note {
    MIGRATION_NONE,
    MIGRATION_WAITING,
    MIGRATION_DONE,  /* all is taken over */
    MIGRATION_LEFT,  /* it can't be, because of a problem that is listed */
    MIGRATION_ENDED, /* by FORGET: what the other system has is not wanted */
    MIGRATION_STATES,
};

enum store_notes_kind {
    MIGRATION_ADD,      /* users: noted, unless they are already; those who were forgotten only when `forgotten_too` */
    MIGRATION_MARK,     /* users: become `state`, unless ended */
    MIGRATION_AGAIN,    /* all that are done or left wait again, a part of them at a time, see `more`; problems are
                         * forgotten
                         */
    MIGRATION_PROBLEMS, /* keys of the other system that can't be taken over, and what is wrong with them */
    MIGRATION_PAUSE,    /* remembers `paused` */
};

struct store_problem {
    struct slice key, what;
    int64_t at_ms; /* when it was noted */
};

/* A change of notes, one transaction. Owned by the store until done(). */
struct store_migration_change {
    struct store_call call; /* first; its error, done(), owner */
    enum store_notes_kind kind;
    const struct slice *users; /* MIGRATION_ADD, MIGRATION_MARK */
    const struct store_problem *problems;
    size_t n; /* of either; a thousand or two at most: writes wait for the transaction */
    enum store_note state;
    bool paused, forgotten_too;
    uint64_t changed;   /* how many users, or new problems */
    uint64_t forgotten; /* MIGRATION_ADD: how many were left as they are because they were forgotten */
    uint64_t more;      /* MIGRATION_AGAIN: where the next call goes on; 0 first, and at the end */
};

/* Where a walk through the waiting users stands. All zero: before the first. */
struct store_migration_walk {
    uint64_t at;
    bool ended;
};

struct store_migration_counts {
    uint64_t all, waiting, done, left, ended; /* users */
    uint64_t problems;                        /* that are listed; at most STORE_PROBLEMS_MAX */
    bool paused;
};

enum { STORE_PROBLEMS_MAX = 10000 };

/* A scroll session as the store keeps it over a restart (dedup/sessions.h). */
struct store_session {
    struct slice name;
    struct slice ids;
    int64_t used_ms; /* wall time of its last use */
};

/* Users that another store with the same seed has packed (store/snapshot.h), to be united with what is here. */
enum store_import_verdict {
    IMPORT_DONE = 1,
    IMPORT_OVER,    /* done; the chance that an item is hidden by error is now beyond error_rate for this user */
    IMPORT_OLD,     /* nothing of it is within the retention */
    IMPORT_CROWDED, /* left as it was: a month would need more than FILTER_PARTS_MAX parts */
};
struct store_import {
    struct store_call call; /* err: then nothing of any of them was done, or it isn't known */
    const struct slice *snapshots;
    size_t n;
    uint8_t *verdicts; /* n of them */
};

/* How the names of folders begin that a schedule makes, and deletes again. */
#define STORE_BACKUP_SCHEDULED "scheduled-"

/* A hot backup into a folder, which the caller names until done(). */
struct store_backup {
    const char *folder; /* absolute, or relative to root; doesn't exist, or is empty */
    const char *root;   /* below which it must be, and no link is followed; NULL: the caller may write anywhere */
    struct err err;
    uint64_t bytes;    /* of the copy */
    uint64_t problems; /* that the check found in it, as they are in the store itself */
    int64_t took_ms;
    void (*done)(struct store_backup *backup);
    void *owner;
};

enum store_backup_phase {
    BACKUP_NONE,      /* none is under way */
    BACKUP_PREPARING, /* the folder is looked at */
    BACKUP_STAGING,   /* what is staged is copied ... */
    BACKUP_HISTORY,   /* ... then history ... */
    BACKUP_FINISHING, /* ... then forgets that came meanwhile are carried out in the copy, and it is synced ... */
    BACKUP_CHECKING,  /* ... and read through */
};
const char *store_backup_phase_name(enum store_backup_phase phase); /* "none", "preparing", ... */

/* A month of one user. */
struct store_month {
    int month;
    struct filter filter;
    uint32_t bytes; /* of the blob */
};

struct store_play {
    uint64_t hash;
    int32_t month;
};

struct store_delivery {
    uint64_t id; /* staging id: higher is later */
    uint64_t hash;
    struct slice item;
};

/* A user as a question sees it. All of it lives in the reader until its next load. */
struct store_view {
    bool known;                       /* something is stored or staged for the user */
    const struct store_month *months; /* newest first; every stored month >= first_month that has a filter */
    size_t n_months;
    const struct store_play *plays; /* staged, months >= first_month, in any order; repeats possible */
    size_t n_plays;
    const struct store_delivery *deliveries; /* the last delivered_max distinct ones, newest first */
    size_t n_deliveries;
    const uint64_t *exceptions; /* hashes un-seen by FORGET user item */
    size_t n_exceptions;
    int damaged_months; /* left out because unreadable (on_damage = answer) */
};

/* What takes in a user's positions while scan() decodes them. All of it is called on the caller's thread. */
struct store_scan {
    filter_see *see;
    /* The month that was seen since the last call is at its end; not good: damaged and left out (on_damage = answer).
     */
    void (*month)(void *arg, int month, bool good);
    void *arg;
};

/* Of a user's filters and staged plays together: half a millisecond's work. */
enum { STORE_LARGE = 128 * 1024 };

enum { STORE_SLOTS_MAX = 64, STORE_ERROR_TEXT = 320 };

enum store_slot_state {
    SLOT_EMPTY,
    SLOT_OPEN,
    SLOT_CLOSED,   /* waits for its flush */
    SLOT_FLUSHING, /* the historian merges it */
    SLOT_FAILED,   /* some of it could not be merged; tried again at retry_ms */
    SLOT_EMPTYING, /* merged and durable; its rows are being deleted */
};
const char *store_slot_state_name(enum store_slot_state state); /* "empty", "open", ... */

struct store_slot {
    int slot;
    enum store_slot_state state;
    uint64_t rows;
    uint64_t users;
    uint64_t bytes;    /* of the staged index */
    int64_t since_ms;  /* when it came into this state */
    int64_t closed_ms; /* since when what it holds waits to be flushed; 0: it is open or empty */
    int64_t retry_ms;  /* wall time of the next try, 0: none */
    char error[STORE_ERROR_TEXT];
};

struct store_ring {
    uint64_t turn; /* the persisted counter */
    int open;
    int64_t next_turn_ms; /* wall time */
    int n_slots;
    struct store_slot slots[STORE_SLOTS_MAX];
    uint64_t memory, memory_limit;
    bool busy; /* writes are refused: memory is full, the disk nearly so, or no time is known */
    char busy_cause[STORE_ERROR_TEXT];
    bool clock_doubted;
    char clock_reason[GUARD_REASON];
};

/* What is believed of the wall clock (base/guard.h). */
struct store_clock {
    int64_t wall_ms, believed_ms, newest_ms;
    int64_t unsure_ms; /* the window begins no later than by this time; 0: by the clock */
    bool known;        /* false: no time is, and writes are refused */
    bool doubted;
    char reason[GUARD_REASON];
};

const char *store_clock_state_name(const struct store_clock *clock); /* "believed", "doubted" or "unknown" */

/* An administrator says that the wall clock is right, though it is doubted; or that a later time was believed wrongly.
 */
struct store_clock_change {
    struct store_call call;
    bool set_back;
};

enum store_month_state { STORE_MONTH_LIVE, STORE_MONTH_SEALING, STORE_MONTH_SEALED, STORE_MONTH_EXPIRING };
const char *store_month_state_name(enum store_month_state state);

struct store_month_info {
    int month;
    enum store_month_state state;
    double progress; /* of the sealing or the sweep, 0..1 */
    uint64_t users;
    uint64_t plays;
    uint64_t bytes; /* of the blobs */
    bool in_window; /* asker_months() sets it: questions look at the month */
};

/* Counters since start, and gauges. One table says what they are called and mean (see store_stats_each). */
struct store_stats {
    uint64_t rows_recorded, commits, commit_errors, busy_refusals, full_refusals;
    uint64_t turns, early_turns;
    uint64_t flushes, flush_errors, users_flushed, plays_flushed, plays_too_old, plays_over_capacity;
    uint64_t rows_swept, months_dropped;
    uint64_t months_sealed, users_sealed;
    uint64_t quarantined;     /* gauge: blobs set aside and not yet accepted */
    uint64_t rows_set_aside;  /* gauge: the same of staged rows */
    uint64_t damaged_answers; /* questions answered without a damaged month */
    uint64_t shared_keys;     /* gauge */
    uint64_t users_forgotten, items_forgotten;
    uint64_t staged_rows, staged_bytes;            /* gauges */
    uint64_t staging_wal_bytes, history_wal_bytes; /* gauges */
    uint64_t wal_pauses;
    uint64_t recovered_rows, recovery_us;
    uint64_t commit_us_last, commit_us_max;
    uint64_t queue_messages;                  /* gauge: waiting for the stager */
    uint64_t flush_users_done, flush_users;   /* gauges, of the flush under way */
    uint64_t flush_us_last;                   /* gauge */
    uint64_t flushed_ms, swept_ms, sealed_ms; /* when each was last found, or brought, to an end without error */
    uint64_t cache_hits, cache_misses;
    uint64_t backups, backup_errors;
    uint64_t backup_ms;                              /* when the last one was whole, also before the start */
    uint64_t backup_problems;                        /* gauge: that its check found */
    uint64_t disk_bytes, disk_free_bytes;            /* gauges */
    uint64_t staging_file_bytes, history_file_bytes; /* gauges */

    /* Not in the table: how long the commits of writes took, and how many rows each had. */
    struct bucket_sums commit_us, commit_rows;
};
void store_stats_each(const struct store_stats *stats, figure_visit *visit, void *arg);

/* The backup under way, and the last one that ended since start. */
struct store_backup_state {
    enum store_backup_phase phase;
    uint64_t done, total; /* bytes; while checking, rows */
    int64_t last_ms;      /* when it ended, wall time; 0: none has */
    int64_t last_took_ms;
    uint64_t last_bytes, last_problems;
    int last_code; /* 0, or why it failed */
    char last_error[STORE_ERROR_TEXT];
    char last_folder[STORE_ERROR_TEXT];
};

/* Any thread may call any function, but a reader belongs to one thread at a time. */
struct store_ops {
    /* Takes the batch; batch->done() once durable or failed. err.code: ERR_BUSY, ERR_FULL, ERR_IO, ERR_READONLY,
     * ERR_NOMEM, ERR_CLOSED. */
    void (*record)(struct store *s, struct store_batch *batch);

    /* In order with record(). Answers once the erasure is durable. ERR_SHARED when another user has the key. */
    void (*forget)(struct store *s, struct store_forget *forget);

    /* RING FLUSH: closes the open slot if it has rows, flushes all closed ones; done() when all of them are
     * empty, or with the first error. */
    void (*flush)(struct store *s, struct store_call *call);

    /* The test clock moved: done() after everything that became due (turn, flush, retry, sweep) was done. */
    void (*tick)(struct store *s, struct store_call *call);

    /* Blocks while the reader's files are opened. */
    int (*reader_open)(struct store *s, struct store_reader **reader, struct err *err);
    void (*reader_close)(struct store_reader *reader);

    /* A user's window from first_month on (INT_MIN: everything). Returns 0; ERR_LARGE when there are more than
     * STORE_LARGE bytes of filters and staged plays, found out before they are read; ERR_CORRUPT naming user and month
     * when a needed blob is unreadable and on_damage = error; ERR_NOMEM, ERR_IO. */
    int (*load)(struct store_reader *reader, int64_t key, struct slice user, int first_month, struct store_view *view,
                struct err *err);

    /* The same for a user of any size, whose positions are not kept but handed over as they are decoded: the filters
     * of the view have positions = NULL. What was handed over means nothing when it fails. */
    int (*scan)(struct store_reader *reader, int64_t key, struct slice user, int first_month,
                const struct store_scan *scan, struct store_view *view, struct err *err);

    /* Unites users with what is here: call.done() once that is durable, and seen by every load that starts after.
     * Each user is joined as a whole or not at all, and importing the same once more changes nothing. What was staged
     * there counts as played here, in its month. Deliveries: interleaves both lists, newest first. A mark of damage
     * goes along. In order with record() and forget() as far as those were answered. The caller keeps the snapshots
     * until then. ERR_CORRUPT; ERR_SEED: packed with another seed; ERR_VERSION; ERR_RANGE: a month that lies ahead;
     * ERR_FULL; ERR_IO; ERR_NOMEM; ERR_CLOSED. */
    void (*import)(struct store *s, struct store_import *import);

    /* The stored months, newest first; at most max. Returns how many, or an error. */
    int (*months)(struct store_reader *reader, struct store_month_info *out, int max, struct err *err);

    void (*ring)(struct store *s, struct store_ring *out);
    void (*stats)(struct store *s, struct store_stats *out);

    /* Time by the guarded clock (base/guard.h): later = for stamping a play, earlier = for the window's beginning.
     * Equal unless the clock is doubted, or was set. */
    void (*now)(struct store *s, int64_t *later, int64_t *earlier);

    /* 0; or ERR_BUSY: no time is known yet, because this is a first start with a clock that says a time before the
     * program was built. Batches, bulk loads and joins are refused the same way. */
    int (*time_known)(struct store *s, struct err *err);
    void (*clock)(struct store *s, struct store_clock *out);

    /* done() once it is durable; ERR_INVALID when there is nothing to change, or not that way. */
    void (*clock_change)(struct store *s, struct store_clock_change *change);

    uint64_t (*seed)(struct store *s);

    /* Copies the store, while it works, into a folder; done() once the copy is whole, synced and checked, or with
     * the error that ended it, when nothing of it is left. The copy holds every write answered before the call, and
     * nothing of a forget answered before the copy of history ended; of later ones any part. One at a time: ERR_BUSY.
     * ERR_INVALID, ERR_READONLY, ERR_FULL (not enough room, told before anything is copied; or in the middle), ERR_IO,
     * ERR_CORRUPT (the copy can't be read through), ERR_CLOSED. */
    void (*backup)(struct store *s, struct store_backup *backup);
    void (*backup_state)(struct store *s, struct store_backup_state *out);

    /* Before the end: the backup under way is given up and answered, soon; none begins any more. */
    void (*backup_stop)(struct store *s);

    /* Whether the disk has room for more: 0, or ERR_FULL. Any thread, often. */
    int (*room)(struct store *s, struct err *err);

    /* Bulk load: events go to memory and from there, sorted by user, into history. One at a time, called by one thread;
     * each blocks. What was added is durable when bulk_end returns 0; an error ends the load (nothing is lost by
     * repeating it: a load is a union).
     *
     * serving = false is for the process that owns the folder and serves nobody: all of staging_memory is used, and
     * what was added is handed over whenever that is full. serving = true is for what is brought in beside the
     * service, older than anything that clients write meanwhile: it ends no exception, and passes over users whose note
     * was ended. It is handed over by bulk_turn alone: that waits until what was handed over before is durable, and
     * then hands over what was added since. */
    int (*bulk_begin)(struct store *s, bool serving, struct err *err);
    int (*bulk_add)(struct store *s, int64_t at_ms, int64_t key, struct slice user, uint64_t item_hash,
                    struct err *err);
    /* rank: 1 is the oldest; at most STORE_RANK_MAX. Below the id of everything that is delivered here. */
    int (*bulk_deliver)(struct store *s, int64_t at_ms, int64_t key, struct slice user, struct slice item,
                        uint64_t item_hash, uint64_t rank, struct err *err);
    size_t (*bulk_bytes)(struct store *s); /* added and not handed over */
    int (*bulk_turn)(struct store *s, struct err *err);
    int (*bulk_end)(struct store *s, struct err *err);

    /* Before the end, any thread: whoever waits for a load's merge, which a reader may hold up, gets ERR_CLOSED. */
    void (*bulk_stop)(struct store *s);

    /* Notes (above). note: durable when done() is called. noted: any thread, by key; a user who was forgotten stays
     * MIGRATION_ENDED. migration_users_read: the next waiting ones, up to max, their ids in the arena; returns how
     * many, none only at the end. They come about in the order in which history keeps its users, so that those who are
     * taken over together touch few of its pages; who is noted meanwhile may be missed, and isn't in the next walk.
     * migration_users_problems: the newest; returns how many. */
    void (*note)(struct store *s, struct store_migration_change *users_to_migrate);
    enum store_note (*migration_state)(struct store *s, int64_t key);
    void (*migration_users_state)(struct store *s, struct store_migration_counts *out);
    int (*migration_users_read)(struct store_reader *reader, struct store_migration_walk *walk, struct slice *users,
                                int max, struct arena *arena, struct err *err);
    int (*migration_users_problems)(struct store_reader *reader, struct store_problem *out, int max,
                                    struct arena *arena, struct err *err);

    /* Sessions over a restart. keep: replaces what is kept by what next() gives until it returns false; take: gives all
     * that is kept to each(), and forgets it, so that a crash brings no old state back. Each blocks, is one
     * transaction, and calls back on a thread of the store. */
    int (*keep_sessions)(struct store *s, bool (*next)(void *arg, struct store_session *out), void *arg,
                         struct err *err);
    int (*take_sessions)(struct store *s, void (*each)(void *arg, const struct store_session *kept), void *arg,
                         struct err *err);

    /* Stops taking writes, ends what was begun, checkpoints, closes. Blocks. Readers are closed before. */
    void (*close)(struct store *s);
};

struct store_feed_ops;

struct store {
    const struct store_ops *ops;
    const struct store_feed_ops *feed; /* store/feed.h; NULL: the engine keeps none */
};

#endif
