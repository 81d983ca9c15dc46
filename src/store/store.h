/* The seam to storage: what every engine keeps (the core, struct store_ops), and what one may have besides (its
 * capabilities, each a struct of functions in a header of its own). docs/store.md tells how to write one.
 *
 * 1. record: a batch is answered after its rows are durable (as durable as the engine is), and visible to every load
 *    that starts after the answer. Batches and forgets take effect in the order in which they were handed in.
 * 2. load: sees every write answered before it began, whatever flushes meanwhile; never waits for a
 *    commit, a flush, a sweep or a checkpoint.
 * 3. No function but those named "blocks" waits for another thread. `done` callbacks run on a thread of
 *    the store: they pass the message on (to a queue) and return.
 *
 * Nothing above this header knows SQL, files or tables.
 */
#ifndef UNSEEN_STORE_STORE_H
#define UNSEEN_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/guard.h"
#include "base/slice.h"
#include "config/config.h"
#include "filter/filter.h"

struct store;
struct store_reader;
struct store_stats; /* store/stats.h */

enum store_kind {
    STORE_PLAY = 1,
    STORE_DELIVERY = 2,
};

/* What waits in the store's queue; the first member of each message. */
enum store_message_kind { STORE_BATCH, STORE_FORGET, STORE_MERGE, STORE_CALL, STORE_INTERNAL };
struct store_message {
    struct store_message *next;
    enum store_message_kind kind;
    int what; /* the store's own */
};

/* How far a source outside was taken (store/positions.h): `next` is the first thing that is not yet. */
struct store_position {
    struct slice source;
    int64_t next;
};

/* Events of many commands, handed in as one. Owned by the store from record() until done(). */
struct store_batch {
    struct store_message message;
    struct buf bytes; /* packed events, see store_batch_add */
    uint32_t rows;    /* items in all events */
    uint32_t events;
    const struct store_position *positions; /* committed with the events, of which there may be none; the caller's until
                                             * done(). Only where the store has the capability */
    size_t n_positions;
    uint32_t offset_ids; /* the store's own: ids that its positions took */
    bool patient;        /* no client waits for this one: threads that others wait for go first */
    uint64_t seq;        /* once durable: of its last event in the feed's order; also when none consumes that */
    struct err err;      /* code 0 once durable; else nothing of the batch is acknowledged */
    void (*done)(struct store_batch *batch);
    void *owner;
};

/* Who said when an event happened. One whose time its writer stated may be a replay: it is dropped when it is not newer
 * than a forget of its user or item. */
enum store_time { STORE_STAMPED, STORE_STATED };

/* Appends one command's event: n items of one user at one time. Hashes are hash_id() of each item with
 * the store's seed, key that of the user. Ids are 1..255 bytes (the caller has checked them). groups: of deliveries,
 * the hash of each one's group, or 0; NULL: none has one. Returns 0, or ERR_NOMEM with the batch as it was. */
int store_batch_add_groups(struct store_batch *batch, enum store_kind kind, int64_t at_ms, enum store_time time,
                           int64_t key, struct slice user, const struct slice *items, const uint64_t *hashes,
                           const uint64_t *groups, size_t n);
static inline int store_batch_add(struct store_batch *batch, enum store_kind kind, int64_t at_ms, enum store_time time,
                                  int64_t key, struct slice user, const struct slice *items, const uint64_t *hashes,
                                  size_t n)
{
    return store_batch_add_groups(batch, kind, at_ms, time, key, user, items, hashes, NULL, n);
}

/* Walks a batch: *at begins at 0. Returns false at the end. items point into the batch. */
struct store_event {
    enum store_kind kind;
    enum store_time time;
    int64_t at_ms;
    int64_t key;
    struct slice user;
    uint32_t n;           /* 0: all of it was dropped */
    bool grouped;         /* some item has a group */
    const uint8_t *items; /* read with store_event_item */
};
struct store_item {
    struct slice id;
    uint64_t hash;
    uint64_t group; /* of a delivery: its hash; 0: none */
};
bool store_batch_next(const struct store_batch *batch, size_t *at, struct store_event *out);
/* Drops items, in place. An event of which none is left stays, since others count the events. Returns how many. */
uint32_t store_batch_drop(struct store_batch *batch,
                          bool (*drops)(void *arg, const struct store_event *event, uint64_t hash), void *arg);
/* The event's item at that place, which begins at event->items. Returns the next. */
const uint8_t *store_event_item(const struct store_event *event, const uint8_t *at, struct store_item *out);

/* FORGET user [item ...]: n_items == 0 forgets the user. items NULL, though there are some: no more is known of them
 * than their hashes. The caller keeps the memory behind the slices until done().
 *
 * spared: what of it is newer than a forget of another history, plays and deliveries of the user. It is recorded again
 * behind the forget, in the same transaction, so that no reader sees the one without the other. gather(), unless NULL,
 * puts it there, on the writer's thread: all that came before the forget is in the feed by then, users who were being
 * imported too, and what comes behind it waits. It may read, with a reader that no other uses meanwhile, and must
 * not wait for the store's writer. After an error, of it or of the store, nothing is changed. Only where the store has
 * a feed. */
struct store_forget {
    struct store_message message;
    int64_t key;
    struct slice user;
    const struct slice *items;
    const uint64_t *hashes;
    size_t n_items;
    int first_month;   /* of the window: an item counts as seen when it is seen from here on */
    int64_t answer;    /* user: 1 if known, else 0; items: how many were seen and no longer are */
    uint64_t before;   /* the store's own: rows with lower ids are older than the forget; */
    uint64_t cut;      /* items: the user's deliveries of lower stamps are beyond the last delivered_max, and go too; */
    uint64_t id;       /* its place in their sequence; */
    uint64_t seq;      /* once durable, as that of a batch */
    int64_t at_ms;     /* and its time */
    int64_t stated_ms; /* in: when it happened elsewhere, on the node whose feed this is from; 0: now, here */
    struct store_batch *spared; /* NULL: nothing; it has no done() */
    bool loading;               /* to gather(): a bulk load brings the user, and the feed doesn't tell of that yet */
    int (*gather)(struct store_forget *forget, struct err *err);
    struct store_merge *merge; /* the store's own: whose second half it is; NULL: it is a forget of its own */
    struct err err;
    void (*done)(struct store_forget *forget);
    void *owner;
};

/* MERGE from into [FORGET]: what is known of one user becomes known of another one, too: plays, deliveries, un-seen
 * items, marks of damage, as an import unites them. An item is hidden of `into` if it was of either. Forgets of either
 * stay what they are, and drop nothing of it. With `forgets` the first is forgotten in the same step: whatever fails,
 * either both is done or the first is as it was. The caller keeps the memory behind the slices until done(). */
struct store_merge {
    struct store_message message;
    int64_t from_key, into_key;
    struct slice from, into;
    bool forgets;
    int64_t answer; /* 1 if something was known of `from`, else 0 */
    uint64_t seq;   /* once durable, as that of a batch */
    struct err err;
    void (*done)(struct store_merge *merge);
    void *owner;

    /* The store's own. */
    struct store_merge *next;
    uint64_t id;
    bool united;
    struct store_forget leaving;
};

struct store_call {
    struct store_message message;
    struct err err;
    void (*done)(struct store_call *call);
    void *owner;
};

/* Users that another store with the same seed has packed (store/codec/user_snapshot.h), to be united with what is here.
 */
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
    uint32_t *counted; /* the store's own */
    uint64_t seq;      /* once durable, as that of a batch */
};

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

/* An item that was sent, and when: store/user/deliveries.h. */
struct store_delivery {
    uint64_t stamp; /* delivered_stamp(): higher is later */
    uint64_t hash;
    struct slice item;
    uint64_t group; /* its hash; 0: none */
    uint32_t which; /* of a united list: how many other items came before this one's newest, */
    uint32_t nth;   /* and how many newer times of this item; 0: it is the newest */
};

/* A user as a question sees it. All of it lives in the reader until its next load, scan or rest. */
struct store_view {
    bool known;                       /* something is stored or staged for the user */
    const struct store_month *months; /* newest first; every stored month >= first_month that has a filter */
    size_t n_months;
    const struct store_play *plays; /* staged, months >= first_month, in any order; repeats possible */
    size_t n_plays;
    const struct store_delivery *deliveries; /* united: the last delivered_max distinct items, newest first */
    size_t n_deliveries;                     /* of an item all the times that count */
    const uint64_t *exceptions;              /* hashes un-seen by FORGET user item */
    size_t n_exceptions;
    int damaged_months; /* left out because unreadable (on_damage = answer) */
};

/* A question about a user. The store's from load() until it is answered. */
struct store_load {
    struct store_message message;
    struct store_reader *reader; /* the store's own */
    int64_t key;
    struct slice user;
    int first_month;        /* of the window; INT_MIN: everything */
    struct store_view view; /* the answer ... */
    struct err err;         /* ... or why there is none */
    void (*done)(struct store_load *load);
    void *owner;
};

/* What load() returns when it is answered later. */
enum { STORE_LATER = 1 };

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

enum { STORE_ERROR_TEXT = 320 };

/* An fsync of a disk that others keep busy may take seconds. */
enum { STORE_STALLED_MS = 10 * 1000 };

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

/* Told now and then while what was staged is read, or its flush is waited for: how many rows were, and of how many at
 * most. False: it must end. */
typedef bool store_progress(void *arg, uint64_t rows, uint64_t of);

/* Any thread may call any function, but a reader belongs to one thread at a time. */
struct store_ops {
    /* Reads what the last run had staged. The opener of the store calls it once; it blocks as long as that takes. The
     * store takes batches before and meanwhile, durably and in their order, though it may answer none before it has
     * read a part: until it has returned 0, record() and the functions from now() to publish() may be called, stats(),
     * ring->look() and node->get() too, and nothing else, since no other answer would be whole. progress may be NULL:
     * then a flush that fails ends it, with ERR_IO. After an error (ERR_IO, ERR_CORRUPT, ERR_NOMEM, ERR_SYSTEM;
     * ERR_CLOSED: progress has said so) only close() may follow, once nothing is handed in any more. NULL: an engine
     * that has it all once it is open. */
    int (*recover)(struct store *s, store_progress *progress, void *arg, struct err *err);

    /* Takes the batch; batch->done() once durable or failed. err.code: ERR_BUSY, ERR_FULL, ERR_IO, ERR_READONLY,
     * ERR_NOMEM, ERR_CLOSED; ERR_LATE: no answer within the engine's own limit, so it may be durable, or become so. */
    void (*record)(struct store *s, struct store_batch *batch);

    /* In order with record(). Answers once the erasure is durable. ERR_SHARED when another user has the key. */
    void (*forget)(struct store *s, struct store_forget *forget);

    /* In order with record() and forget(). Answers once it is durable, and seen by every load that starts after; after
     * an error nothing is changed, or, ERR_IO, it isn't known. ERR_INVALID: both are one user; ERR_CONFLICT: one of
     * them is still to be migrated, or a month would need more than FILTER_PARTS_MAX parts; ERR_SHARED, as of a forget;
     * ERR_BUSY, ERR_FULL, ERR_IO, ERR_NOMEM, ERR_CLOSED. Where two users can't be changed in one step (by_user), each
     * is, `into` before `from`: after an error it is repeated. */
    void (*merge)(struct store *s, struct store_merge *merge);

    /* The test clock moved: done() after everything that became due (turn, flush, retry, expiry) was done. */
    void (*tick)(struct store *s, struct store_call *call);

    /* Blocks while the reader's files are opened; but loops open readers in between when answers come later, so an
     * engine that answers later only makes memory here. */
    int (*reader_open)(struct store *s, struct store_reader **reader, struct err *err);

    /* A load that is under way is answered before, with ERR_CLOSED if need be: no done() is called, or still running,
     * once it has returned. Blocks as long as that takes, which must not depend on a network. */
    void (*reader_close)(struct store_reader *reader);

    /* For a reader of a thread that may not wait for a disk: from now on what is not in memory is answered ERR_COLD,
     * and another reader is to be asked. Not for good: what the disk was asked for meanwhile is in memory. NULL: no
     * reader of the engine waits for a disk in its caller's thread, or scan() alone does. */
    void (*reader_leave_cold)(struct store_reader *reader);

    /* A user's window. Answered at once: returns 0 or the error's code, and done() is not called. Or STORE_LATER:
     * done() is called on a thread of the store, once, however long it takes. A reader has one load at a time; for
     * several under way open several readers. ERR_LARGE when there are more than STORE_LARGE bytes of filters
     * and staged plays, found out before they are read; ERR_CORRUPT naming user and month when a needed blob is
     * unreadable and on_damage = error; ERR_NOMEM, ERR_IO. */
    int (*load)(struct store_reader *reader, struct store_load *load);

    /* On the asker's thread, for each load that was answered with code 0: makes what takes time of an answer, its view,
     * there, and not where the store's answers come. Returns err.code, as load() would. NULL: the view is there with
     * the answer. */
    int (*view)(struct store_reader *reader, struct store_load *load);

    /* The view of the last load or scan isn't looked at any more: what the reader holds for it is given back. NULL, or
     * not called: it is kept until the next load. */
    void (*rest)(struct store_reader *reader);

    /* The same for a user of any size, whose positions are not kept but handed over as they are decoded: the filters
     * of the view have positions = NULL. What was handed over means nothing when it fails. Blocks while it reads: only
     * threads that may wait call it. */
    int (*scan)(struct store_reader *reader, int64_t key, struct slice user, int first_month,
                const struct store_scan *scan, struct store_view *view, struct err *err);

    /* Unites users with what is here: call.done() once that is durable, and seen by every load that starts after.
     * Each user is joined as a whole or not at all, and importing the same once more changes nothing. What was staged
     * there counts as played here, in its month. Deliveries: interleaves both lists, newest first. A mark of damage
     * goes along. In order with record() and forget() as far as those were answered. The caller keeps the snapshots
     * until then. ERR_CORRUPT; ERR_SEED: packed with another seed; ERR_VERSION; ERR_RANGE: a month that lies ahead;
     * ERR_ABSENT: the user is still to be migrated, and the engine has no such capability; ERR_BUSY, as for a batch;
     * ERR_FULL; ERR_IO; ERR_NOMEM; ERR_CLOSED. */
    void (*import)(struct store *s, struct store_import *import);

    /* What is in memory of a user, and no disk is needed for: a view of staged plays and deliveries, without months.
     * *left: the newest event in the feed's order that is not in memory any more, or never was: flushed, imported, or
     * of an earlier run. It is found out after the view. Answers at once, on any reader, also while that has a load
     * under way elsewhere. 0, ERR_LARGE, ERR_NOMEM. NULL: the engine has no such memory. */
    int (*recent)(struct store_reader *reader, struct store_load *load, uint64_t *left);

    void (*stats)(struct store *s, struct store_stats *out);

    /* Time by the guarded clock (base/guard.h): later = for stamping a play, earlier = for the window's beginning.
     * Equal unless the clock is doubted, or was set. */
    void (*now)(struct store *s, int64_t *later, int64_t *earlier);

    /* 0; or ERR_BUSY: no time is known yet, because this is a first start with a clock that says a time before the
     * program was built. Batches, bulk loads and joins are refused the same way. */
    int (*time_known)(struct store *s, struct err *err);

    /* 0; or ERR_BUSY, ERR_FULL, ERR_IO, ERR_READONLY, ERR_CORRUPT, and why writes are refused now: no time, no memory,
     * no room, no file, or that the last commit failed, until one succeeds. */
    int (*refusal)(struct store *s, struct err *err);
    /* 0; or ERR_LATE: what was handed in has been before the disk for STORE_STALLED_MS, and it can't be told when it
     * will be answered. Real time counts, also with a test clock. From memory. NULL: no write of the engine waits for a
     * disk.
     */
    int (*stalled)(struct store *s, struct err *err);
    /* The same of forgets alone, which may wait for more of the disk than other writes do. NULL: they don't. */
    int (*forgets_stalled)(struct store *s, struct err *err);
    /* 0; or ERR_IO: which of the engine's files was removed or put aside while it is open, or that another process
     * has them too. Nothing is written then; what it has can still be read. NULL: an engine without files. */
    int (*missing)(struct store *s, struct err *err);
    void (*clock)(struct store *s, struct store_clock *out);

    /* done() once it is durable; ERR_INVALID when there is nothing to change, or not that way. */
    void (*clock_change)(struct store *s, struct store_clock_change *change);

    uint64_t (*seed)(struct store *s);

    /* Writes down how the running server is reached ("127.0.0.1:7979", "unix:/run/x.sock"), for commands that find the
     * store taken by it; an engine that no other process can open does nothing. */
    int (*publish)(struct store *s, const char *address, struct err *err);

    /* Stops taking writes, ends what was begun, closes. Blocks. Readers are closed before. */
    void (*close)(struct store *s);
};

struct store_feed_ops;

struct store {
    const char *engine; /* its name: "sqlite" */
    const struct store_ops *ops;
    const struct store_feed_ops *feed; /* store/feed.h; NULL: the engine keeps none */
    bool by_user; /* batches are answered in any order, each by what its users are on: best of one user each */

    /* NULL: the engine has none of it. */
    const struct store_ring_ops *ring;           /* store/ring.h */
    const struct store_admin_ops *admin;         /* store/admin.h */
    const struct store_bulk_ops *bulk;           /* store/bulk.h */
    const struct store_migration_ops *migration; /* store/migration.h */
    const struct store_sessions_ops *sessions;   /* store/saved_sessions.h */
    const struct store_positions_ops *positions; /* store/positions.h */
    const struct store_node_ops *node;           /* store/node.h */
    const struct store_copy_ops *copy;           /* store/copy.h */
    const struct store_pools_ops *pools;         /* store/pools.h */
    const struct store_memos_ops *memos;         /* store/memos.h */
};

/* What a command answers whose capability is NULL: ERR_ABSENT, `the store "memory" keeps no ring`. what: "ring". */
int store_lacks(const struct store *s, const char *what, struct err *err);

#endif
