/* The state of the embedded store, which its rooms share. Only files of this folder include it.
 *
 * Threads:
 *
 *   the stager     staging/: the only writer of staging.db
 *   the historian  history/: the only writer of history.db
 *   recovery       at a start: reads what was staged (staging/recover.c) while the stager takes batches; the historian
 *                  begins behind that, or as soon as not all of it fits into memory
 *   a backup's     admin/backup*.c: a thread for as long as it runs, which reads staging.db and owns the copy; the
 *                  historian's connection copies history.db
 *   any other      read/, and the functions of store_ops, which leave a message and return
 *
 * Each of the two threads has one queue and takes its whole list at once. What concerns the ring needs no messages: a
 * slot's state says who acts next, and the thread that changes it wakes the other:
 *
 *   stager     EMPTY -> OPEN -> CLOSED                      EMPTYING -> EMPTY
 *   historian                    CLOSED | FAILED -> FLUSHING -> EMPTYING | FAILED
 *
 * But a CLOSED slot whose rows are still being read is the recovery's alone (slot.reading). One of which only a part is
 * read goes the same way, and at its end back to the recovery: EMPTYING -> CLOSED.
 *
 * Locks: a queue's mutex guards its list; ring_mutex guards slots[].info, the turn and what RING shows; backup_mutex
 * what a backup's thread shares with others; bulk_mutex how a bulk load's merge ended. None is held while another is
 * taken, or during I/O.
 */
#ifndef UNSEEN_STORE_SQLITE_STATE_H
#define UNSEEN_STORE_SQLITE_STATE_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/buckets.h"
#include "config/config.h"
#include "store/admin.h"
#include "store/ring.h"
#include "store/sqlite/db/folder.h"
#include "store/sqlite/db/folder_lock.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/read/reader.h"
#include "store/sqlite/sqlite_store.h"
#include "store/sqlite/staging/staging.h"
#include "store/store.h"

struct bulk;
struct migration_users;
struct feed;
struct node;
struct position_set;
struct tombstones;
struct backup;
struct recovery;

/* What a STORE_CALL or STORE_INTERNAL message wants (message.what). */
enum store_wants {
    WANTS_FLUSH,     /* RING FLUSH */
    WANTS_MERGED,    /* a STORE_MERGE, back from the historian */
    WANTS_ROOM,      /* RING FLUSH whose turn waits for an empty slot */
    WANTS_TICK,      /* the test clock moved */
    WANTS_MERGE,     /* a bulk load's next index */
    WANTS_SESSIONS,  /* to be kept, or given back */
    WANTS_IMPORT,    /* users of another store */
    WANTS_MIGRATION, /* a change of notes */
    WANTS_FEED,      /* a consumer of the feed reset */
    WANTS_ENLIST,    /* a remote one */
    WANTS_USERS,     /* events of users who were imported */
    WANTS_LOADED,    /* or loaded in bulk */
    WANTS_NODE,      /* role and term */
    WANTS_ADOPT,     /* tombstones of another folder */
    WANTS_NEW_NODE,  /* to be another node */
    WANTS_CLOCK,     /* an administrator says what time it is */
    WANTS_POOL,      /* a pool changes */
    WANTS_MEMO,      /* a small value to be kept */
    WANTS_RECOVERED, /* what is read at a start has rows to be set aside, or all of it is read */
};

enum { FORGET_COUNTERS = 4096 };

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
    X(tombstones)                                                                                                      \
    X(forgotten_dropped)                                                                                               \
    X(staging_wal_bytes)                                                                                               \
    X(history_wal_bytes)                                                                                               \
    X(wal_pauses)                                                                                                      \
    X(backups)                                                                                                         \
    X(backup_errors)                                                                                                   \
    X(backup_problems)                                                                                                 \
    X(begun_ms)                                                                                                        \
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
    X(cache_misses)                                                                                                    \
    X(kept_found)                                                                                                      \
    X(cold_untold)

struct store_counters {
#define X(name) _Atomic uint64_t name;
    STORE_COUNTERS(X)
#undef X
};

#define GAUGE(s, counter, n) atomic_store_explicit(&(s)->counters.counter, (uint64_t)(n), memory_order_relaxed)
#define COUNT(s, counter, n) atomic_fetch_add_explicit(&(s)->counters.counter, (uint64_t)(n), memory_order_relaxed)

struct sqlite_store {
    struct store base;
    const struct config *cfg; /* live options are read through config_now() */
    char folder[PATH_MAX];
    struct folder_file staging_file, history_file;
    const char *vfs;
    struct folder_lock lock;
    uint64_t seed;

    pthread_mutex_t ring_mutex;
    struct slot slots[STORE_SLOTS_MAX];
    uint64_t turn;
    int open;
    bool busy;
    char busy_cause[STORE_ERROR_TEXT];
    struct err commit_failed; /* code 0: the last commit succeeded; the stager alone changes it, stager_note_commit() */
    char clock_reason[GUARD_REASON];
    int64_t next_turn_ms;

    struct clock_published clock;

    _Atomic int64_t disk_free;       /* bytes, when it was looked at last; -1: not known */
    _Atomic bool loading;            /* a bulk load is under way */
    _Atomic bool recovering;         /* rows of the last run are not read yet */
    _Atomic uint64_t claimed_bytes;  /* of memory that closed slots may come to take with those, about */
    _Atomic uint64_t read_quarters;  /* of staging_memory, about: as many times as that was read */
    _Atomic bool wal_full;           /* the history WAL is at its limit and a reader keeps it from shrinking */
    _Atomic uint64_t merged_bytes;   /* of the index of the slot being flushed, or flushed last: what is merged */
    _Atomic int64_t flushes_durable; /* what history.db has counted so far, see pair.h */
    _Atomic uint64_t left;           /* ids up to it may be in memory no more; raised before they leave */
    _Atomic uint64_t exceptions;     /* 0 only if a snapshot taken later has no row in `exceptions` */

    pthread_mutex_t readers_mutex;
    struct store_reader *readers;
    _Atomic int waiting_readers;   /* that are in a read which may wait for the disk */
    _Atomic int keepers;           /* readers that keep users (read/kept.h), and share history_memory */
    pthread_mutex_t figures_mutex; /* RING and INFO walk the indexes like a question, through a pin of their own */
    struct store_reader figures_pin;
    struct store_reader historian_pin; /* of what is staged alone: it has no connection */

    _Atomic uint32_t forgets[FORGET_COUNTERS]; /* with the historian, by the key's low bits; users of merges too */
    _Atomic int leaving; /* users who are merged into another one, durably, and not forgotten yet */
    _Atomic uint32_t imports[FORGET_COUNTERS]; /* users between the stager and their event in the feed, likewise */
    _Atomic uint64_t damage_logged[64];        /* users and months whose damage was logged, see reader.c */

    struct store_counters counters;
    struct buckets commit_us, commit_rows; /* noted by the stager */
    struct stager stager;
    struct historian historian;
    struct bulk *bulk;
    pthread_mutex_t bulk_mutex; /* guards whether it is merged, and: */
    bool bulk_stopped;
    struct staged *bulk_brings; /* what it merges, until the feed tells of that */
    pthread_cond_t bulk_wake;   /* of who waits for it */
    struct migration_users *users_to_migrate;
    struct feed *feed;
    struct node *node;
    struct position_set *positions;
    struct tombstones *tombstones;
    struct recovery *recovery; /* NULL: it has ended */
    pthread_cond_t came_back;  /* with ring_mutex: a slot is the recovery's again */

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

/* The stager's. */
static inline void store_raise_left(struct sqlite_store *s, uint64_t id)
{
    if (id > atomic_load(&s->left)) {
        atomic_store(&s->left, id);
    }
}

#endif
