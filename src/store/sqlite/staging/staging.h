/* Writing staging.db: the ring's slots, and the thread that is their only writer. See state.h for the threads. */
#ifndef UNSEEN_STORE_SQLITE_STAGING_STAGING_H
#define UNSEEN_STORE_SQLITE_STAGING_STAGING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/guard.h"
#include "base/log.h"
#include "store/memos.h"
#include "store/migration.h"
#include "store/pools.h"
#include "store/positions.h"
#include "store/ring.h"
#include "store/ring_turns.h"
#include "store/saved_sessions.h"
#include "store/sqlite/db/db.h"
#include "store/sqlite/index/staged.h"
#include "store/sqlite/staging/slot_parts.h"
#include "store/store.h"
#include "store/thread_queue.h"
#include "store/tombstones.h"

struct sqlite_store;
struct garbage;

/* How much of what a closed slot's tables had at the start its index has. */
enum slot_reading {
    SLOT_READ,    /* all of it */
    SLOT_READING, /* the recovery reads on, and no other thread looks at the slot */
    SLOT_READ_ON, /* rows up to last_id: they are flushed and deleted, then the recovery reads on */
};

struct slot {
    _Atomic(struct staged *) index; /* NULL: empty. Set and cleared by the stager; see slots_collect_garbage */
    struct store_slot info;         /* under ring_mutex; rows, users and bytes are read from the index */
    enum slot_reading reading;      /* under ring_mutex */
    uint64_t last_id;               /* the stager's: no row of the index has a higher one */
    struct slot_parts parts;        /* the stager's: its tables */
    int64_t opened_ms;              /* under ring_mutex: believed wall time; 0: recovered at start, so unknown */
    unsigned empty_failures;        /* the stager's: times in a row that it could not be emptied ... */
    int64_t empty_retry_mono_ms;    /* ... and when that is tried again */
};

/* The guarded clock, as other threads read it; see struct guard. */
struct clock_published {
    _Atomic int64_t offset, newest, unsure;
    _Atomic bool doubted, unknown;
};

struct stager {
    struct thread_queue queue; /* started and stopped by the thread that opens, recovers and closes the store */
    struct db db;
    struct store_reader *reader; /* for what a forget must know before it erases */
    uint64_t next_id;
    int64_t opened_mono_ms;                  /* when the open slot was opened */
    struct ring_fill fill;                   /* of the open slot */
    unsigned turn_failures;                  /* in a row */
    int64_t turn_retry_mono_ms;              /* not before, unless RING FLUSH asks for it */
    struct store_message *held, **held_last; /* batches and forgets, taken and not yet done */
    _Atomic uint64_t n_held;
    _Atomic bool behind_forget; /* what is held waits for a forget that the historian has */
    uint64_t senders; /* senders under way, at the last commit: those in it and those who waited for the next */
    int64_t commit_us;
    bool patient; /* no client waits for what was handed in last, so it lets other threads go first */
    struct store_message *flush_calls; /* RING FLUSH that waits for the writes before it */
    struct ring_pressure pressure;
    enum ring_memory memory;
    uint64_t slots_freed;
    int64_t ticked_us;
    uint64_t undo_from, undo_to; /* ids of a commit whose outcome is unknown: deleted with the next one; 0: none */
    int undo_slot;
    bool undo_forgets;                     /* a forget was in that commit */
    bool undo_merges;                      /* rows of merges that are under way no more may be in the file */
    struct store_merge *merges;            /* under way, and in the file */
    struct store_message *united, *leaves; /* merges that are back from the historian: to be ended; to forget a user */
    uint64_t merge_id;
    struct garbage *garbage; /* indexes that a reader may still hold */
    struct guard guard;
    struct guard_kept kept_saved; /* as it stands in the file; */
    int64_t kept_retry_mono_ms;   /* after an error: not before */
    struct staged_ids ids;
    bool pool_parts_left;       /* some may be that belong to no pool: after a start, or an error */
    int64_t room_retry_mono_ms; /* after the open slot got no further tables: not before */
    struct log_limit commit_log;
    bool told_disk_low;
};

/* recover.c. At start, before threads: which slots have rows; they are CLOSED and have no index yet. highest: the row
 * id, 0 for none */
int recover_begin(struct sqlite_store *s, uint64_t *highest, struct err *err);
/* Reads them. If the open slot is one of them the stager is not running: it is started once that one is read. Else it
 * runs beside this. The historian is started if it is needed. 0, or an error. */
int recover_all(struct sqlite_store *s, store_progress *progress, void *arg, struct err *err);
void recover_work(struct sqlite_store *s, struct store_message *m); /* WANTS_RECOVERED, on the stager's thread */
void recover_free(struct sqlite_store *s);

/* slots.c: on the stager's thread */
int slots_begin(struct sqlite_store *s, struct err *err); /* at start, before threads */
void slots_set_state(struct sqlite_store *s, int slot, enum store_slot_state state);
/* FAILED, or EMPTYING and stuck: with the error, until it is tried again after a delay that grows with the failures,
 * and is short as long as the store recovers. Returns the monotonic time of that. */
int64_t slots_set_stuck(struct sqlite_store *s, int slot, enum store_slot_state state, const char *error,
                        unsigned failures);
int64_t slots_retry_delay_ms(struct sqlite_store *s, unsigned failures);
enum store_slot_state slots_state(struct sqlite_store *s, int slot);
int slots_turn(struct sqlite_store *s, bool early, struct err *err); /* 1 turned, 0 no slot is free */
bool slots_empty_step(struct sqlite_store *s); /* empties a part of a flushed slot; whether something happened */
/* The recovery's, on its thread, of a slot that is SLOT_READING. Gives it to the historian. */
void slots_hand_over(struct sqlite_store *s, int slot, enum slot_reading reading);
enum slot_reading slots_reading(struct sqlite_store *s, int slot);
void slots_open_read(struct sqlite_store *s);        /* the open one, at its end: it takes rows from then on */
uint64_t slots_closed_bytes(struct sqlite_store *s); /* of memory, all but the open one's */
/* Before a commit of so many rows: tables for them in the open slot. Without them it has larger parts. */
void slots_make_room(struct sqlite_store *s, uint64_t rows);
/* Lets the stuck ones be emptied again: those whose time has come, or all. */
void slots_retry_emptying(struct sqlite_store *s, bool all);
void slots_drop(struct sqlite_store *s, int slot); /* an empty one outside the ring: its tables */
/* After a commit that failed: whether one succeeds now, while no client writes. */
void slots_try_commit(struct sqlite_store *s);
void slots_collect_garbage(struct sqlite_store *s, bool all);
uint64_t slots_bytes(struct sqlite_store *s); /* of memory; with what the recovery claims; the stager's */

/* writer.c */
int stager_start(struct sqlite_store *s, struct err *err);
void stager_checkpoint_when_long(struct sqlite_store *s); /* the stager's, or of who does its work before it runs */
void stager_stop(struct sqlite_store *s);                 /* ends the thread */
void stager_free(struct sqlite_store *s);                 /* answers what is left; the historian has stopped too */

/* group_commit.c: commits the batches first .. end (excluded) and answers them */
void stager_commit(struct sqlite_store *s, struct store_message *first, struct store_message *end);
/* How a commit ended. What may fail the next one, too, is why writes are refused, until one succeeds. */
/* Of a batch without positions: its rows and events inside the transaction; then in the open slot's index, up to the
 * first that fails. *id is the next one's. */
int stager_write_batch(struct sqlite_store *s, struct store_batch *batch, uint64_t *id, struct err *err);
int stager_index_batch(struct sqlite_store *s, struct store_batch *batch, uint64_t *id);
void stager_note_commit(struct sqlite_store *s, const struct err *err);
void stager_gather(struct stager *st); /* before: waits a moment for those who were answered last */
/* Inside a transaction: deletes what a commit of unknown outcome may have left in the open slot, in the feed, and among
 * the positions. */
int stager_undo(struct sqlite_store *s, struct err *err);
/* Inside a transaction: what history.db has made durable, since rows are deleted in reliance on it (pair.h). */
int stager_note_flushes(struct sqlite_store *s, struct err *err);
void stager_note_end(struct sqlite_store *s);                   /* the same, once both threads have ended */
void stager_undo_ended(struct sqlite_store *s, bool committed); /* that transaction, when it wrote no rows itself */
/* The next transaction deletes the rows with ids from .. end (excluded), which may be in the file. */
void stager_undo_later(struct sqlite_store *s, uint64_t from, uint64_t end);

/* admission.c. Whether the batch may be written now, behind so many rows of its group. 0: yes, 1: it must wait, or
 * an error that refuses it. One of positions alone needs neither memory nor min_free: a node that takes no plays may
 * still change its role. */
int stager_admit(struct sqlite_store *s, struct store_batch *batch, uint64_t rows_before);
/* tell_anew: what holds things up is looked at again, if writes are refused. */
void stager_look_at_memory(struct sqlite_store *s, bool tell_anew);
void stager_look_at_disk(struct sqlite_store *s);
/* Whether the disk had less than min_free when it was looked at; min_free itself holds as soon as it is changed. Any
 * thread; and ERR_FULL then. */
bool stager_disk_is_low(struct sqlite_store *s);
int stager_disk_room(struct sqlite_store *s, struct err *err);

/* blocked.c: why no slot gets free, in words. Any thread. */
void blocked_describe(struct sqlite_store *s, char *out, size_t size);
void blocked_by_reader(struct sqlite_store *s, char *out, size_t size); /* when the history WAL can't shrink */

/* forget.c. A list of forgets, each of which was begun: none of them waits. */
enum { STAGER_FORGETS_MAX = 64 }; /* of one commit */
void stager_forgets(struct sqlite_store *s, struct store_message *first);
void stager_forget_begun(struct sqlite_store *s, int64_t key);
/* Whether an earlier forget of the user (or of one who shares a counter with them) was begun and has not ended: its
 * effect must be seen by the next one's answer. */
bool stager_forget_is_under_way(struct sqlite_store *s, int64_t key);
/* 0; ERR_SHARED: another user has the same key, as far as is known. */
int stager_check_shared(struct sqlite_store *s, int64_t key, struct slice user, struct err *err);
/* The historian has carried it out, or failed to. */
void stager_forget_ended(struct sqlite_store *s, int64_t key);

/* merge_users.c: MERGE. A list of merges, of each of whose users stager_forget_begun() was called. */
void stager_merges(struct sqlite_store *s, struct store_message *first);
void merge_take(struct sqlite_store *s, struct store_merge *merge); /* from the historian: united, or refused */
void merges_end(struct sqlite_store *s);                            /* all of these */
/* Whether an event of the batch is of a user who is being merged into another one, and comes behind that. */
bool merges_hold(const struct sqlite_store *s, const struct store_batch *batch);
/* Inside the transaction of its forget; and once that is durable. */
int merge_write_end(struct sqlite_store *s, struct store_merge *merge, struct err *err);
void merge_written(struct sqlite_store *s, struct store_merge *merge);
int merges_undo(struct sqlite_store *s, struct err *err); /* in stager_undo() */
int merges_open(struct sqlite_store *s, struct err *err); /* at start, with the tombstones: carries out what is open */
/* The historian's: it is done there, and durable unless barrier is an error; or it never will be. */
void merge_united(struct sqlite_store *s, struct store_merge *merge, const struct err *barrier);
/* Once the stager has ended: one that it had begun. */
void merge_refuse(struct sqlite_store *s, struct store_merge *merge, const struct err *err);

/* history/import.c: whether an import of the user (or of one who shares a counter with them) is with the historian, or
 * has come from there, and is not in the feed yet. A forget that spares what is newer waits for it. */
bool stager_import_is_under_way(struct sqlite_store *s, int64_t key);

/* migration_users.c */
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

/* session_snapshot.c: sessions over a restart */
int kept_put(struct store *base, bool (*next)(void *arg, struct store_session *out), void *arg, struct err *err);
int kept_take(struct store *base, void (*each)(void *arg, const struct store_session *kept), void *arg,
              struct err *err);
void kept_work(struct sqlite_store *s, struct store_message *m); /* on the stager's thread */

/* positions.c (store/positions.h) */
extern const struct store_positions_ops sqlite_positions_ops;
int positions_open(struct sqlite_store *s, struct err *err); /* at start, before threads */
void positions_close(struct sqlite_store *s);
/* The stager's, inside its transaction: a batch's own; and all that are durable, in place of what a commit of unknown
 * outcome may have left. */
int positions_write(struct sqlite_store *s, const struct store_batch *batch, struct err *err);
int positions_undo(struct sqlite_store *s, struct err *err);

/* pools.c (store/pools.h) */
extern const struct store_pools_ops sqlite_pools_ops;

/* memos.c (store/memos.h) */
extern const struct store_memos_ops sqlite_memos_ops;
void memo_work(struct sqlite_store *s, struct store_message *m);
void pool_work(struct sqlite_store *s, struct store_message *m); /* on the stager's thread */

/* tombstones.c (store/tombstones.h). At start, once both files are open and before threads: what was forgotten; forgets
 * that history lacks are carried out. */
int forgets_open(struct sqlite_store *s, struct err *err);
int forgets_read(struct tombstones *t, struct db *db, struct err *err); /* all of a file's */
void forgets_close(struct sqlite_store *s);
/* The stager's: room in memory for so many tombstones; inside the forgets' transaction; and once that is durable. */
int forgets_reserve(struct sqlite_store *s, size_t n, struct err *err);
int forgets_write(struct sqlite_store *s, struct store_forget *forget, struct err *err);
void forgets_written(struct sqlite_store *s, const struct store_forget *forget);
/* There too: the tombstones of snapshots become ours, durably. Nothing is erased by them. */
int forgets_adopt(struct sqlite_store *s, const struct tombstone *list, size_t n, struct err *err);
int forgets_until(struct sqlite_store *s, int64_t ms, struct err *err); /* none is later; the clock was set back */
int forgets_undo(struct sqlite_store *s, uint64_t from,
                 struct err *err);           /* those with ids from there on: not in memory */
void forgets_expire(struct sqlite_store *s); /* in sweep_window, what is past retention */

/* clock.c. Any thread: */
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
