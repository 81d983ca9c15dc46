/* What the parts of the engine on RADOS share.
 *
 * Threads. A write is begun on the thread that hands it in, and a question on the one that asks; what follows runs
 * where the cluster's answers come (librados has a thread for that). One thread of the store's own does what takes a
 * while: merges, imports and un-seeings are worked out there. What was read of a question becomes its view on the
 * thread that asks. So where the answers come nothing is decoded: keys are copied, and one giant delays the answers of
 * the others by its copies alone. No thread waits for the cluster but that of the nightly walk, and those that scan().
 *
 * Memory. What is read of users is claimed first (quota.h); what is written is charged in writes.c.
 *
 * Order. What changes one user is carried out one after another on each node (writes.c); among nodes the object
 * decides.
 *
 * The end. rados_store_begun() and _ended() count what is under way at the cluster; a close waits until there is
 * nothing, which the cluster's time limit bounds.
 */
#ifndef UNSEEN_STORE_RADOS_RADOS_H
#define UNSEEN_STORE_RADOS_RADOS_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/guarded_clock.h"
#include "store/rados/cluster.h"
#include "store/rados/meta.h"
#include "store/rados/quota.h"
#include "store/rados/rados_store.h"
#include "store/rados/update.h"
#include "store/stats.h"
#include "store/thread_queue.h"
#include "store/user/deliveries.h"

enum {
    RADOS_SHARDS = 16,
    RADOS_SCHEMA = 1,
    RADOS_MERGE_PLAYS = 64,
    /* Of memory: what a page of keys takes at most while it comes, without filters: 1,024 deliveries are the most. */
    RADOS_PAGE_BYTES = 448 * 1024,
    RADOS_QUESTION_BYTES = 512 * 1024, /* a claim for a question: the page, which has filters too, and its copy */
    RADOS_QUESTION_MAX = 2 << 20,      /* what it may grow to; beyond it is a large user's */
    RADOS_LARGE_BYTES = 1 << 20,       /* a claim for what may be large, at first */
};

struct user_writes;
struct merges;
struct night;
struct pool_clock;
struct positions;
struct positions_write;
struct bulk;
struct fullness;

struct writes_shard {
    pthread_mutex_t mutex;
    struct user_writes **buckets;
};

struct rados_store {
    struct store base;
    const struct config *cfg; /* read through config_now() */
    enum rados_store_use use;
    const struct cluster_ops *ops;
    struct cluster *cluster;
    uint64_t seed;
    double error_rate; /* the pool's */
    uint64_t number;   /* of this node's start (meta.h) */
    struct guarded_clock clock;
    struct thread_queue queue;

    struct writes_shard shards[RADOS_SHARDS];
    _Atomic size_t bytes; /* of writes that are under way */
    struct quota small, large;
    _Atomic uint64_t stamp;

    pthread_mutex_t mutex; /* all below */
    pthread_cond_t ended;
    size_t under_way;
    bool closing;
    struct meta meta; /* as it was opened; schema 0: not yet */
    struct err down;  /* why nothing could be written lately: fenced, no pool, not allowed */
    int64_t down_us;  /* when that was seen last, real time */
    bool down_fenced; /* it is over once another client is connected */
    struct store_stats stats;

    struct merges *merges;
    struct night *night;
    struct positions *positions;
    struct pool_clock *pool_clock;
    struct bulk *bulk; /* NULL: no load is under way */
    struct fullness *fullness;
    struct delivered_codec codec; /* the thread's own */
};

static inline struct rados_store *rados_of(struct store *base)
{
    return (struct rados_store *)base;
}

/* --- rados_store.c --- */

enum rados_message { RADOS_CLOCK, RADOS_STEP, RADOS_BATCH, RADOS_FORGET, RADOS_MERGED, RADOS_CALL };

void rados_store_begun(struct rados_store *s);
void rados_store_ended(struct rados_store *s);
void rados_store_post(struct rados_store *s, struct store_message *message, enum rados_message what);
uint64_t rados_store_random(struct rados_store *s);
/* A new one: random, and its last three digits are this node's number, cut. So a reader can tell whether it was
 * this node that changed the user last; a node with the same digits is taken for this one. */
uint64_t rados_store_generation(struct rados_store *s);
bool rados_store_wrote(const struct rados_store *s, struct slice generation);
uint64_t rados_store_stamp(struct rados_store *s); /* of a delivery: later than any before, on this node */
bool rados_store_closing(struct rados_store *s);
/* A tombstone's time as it counts: one that lies a day ahead was written by a wrong clock, and is of now. */
int64_t rados_store_forgotten(struct rados_store *s, int64_t ms);

#define RADOS_COUNT(s, counter, n)                                                                                     \
    do {                                                                                                               \
        pthread_mutex_lock(&(s)->mutex);                                                                               \
        (s)->stats.counter += (uint64_t)(n);                                                                           \
        pthread_mutex_unlock(&(s)->mutex);                                                                             \
    } while (0)

/* Puts a failed operation into words; notes what keeps all others from working, too. doing: "reading", "writing". */
int cluster_error(struct rados_store *s, const struct cluster_op *op, const char *doing, struct slice user,
                  struct err *err);
int cluster_error_of(struct rados_store *s, const struct cluster_op *op, const char *doing, const char *what,
                     struct err *err);

/* --- update.c --- */

void update_step(struct update *u); /* on the store's thread */

/* --- writes.c --- */

/* A user's place in the order of what this node writes for them. start() is called when it is its turn. */
struct writes_turn {
    struct writes_turn *next;
    void (*start)(struct writes_turn *turn); /* NULL: an event, carried out with those behind it */
};

int writes_init(struct rados_store *s);
void writes_destroy(struct rados_store *s);
void writes_record(struct store *base, struct store_batch *batch);
/* ERR_NOMEM: it wasn't taken. start() may be called from within. */
int writes_take_turn(struct rados_store *s, int64_t key, struct slice user, struct writes_turn *turn);
void writes_end_turn(struct rados_store *s, int64_t key, struct slice user);
int writes_refusal(struct rados_store *s, struct err *err);

/* --- pool_clock.c --- */

/* Starts the clock by what the pool has of it. Blocks. */
int pool_clock_open(struct rados_store *s, int64_t built_ms, struct err *err);
void pool_clock_free(struct rados_store *s);
/* On the store's thread: now and then, and when the test's clock moved. */
void pool_clock_look(struct rados_store *s);
void pool_clock_change(struct rados_store *s, struct store_clock_change *change); /* done() once it is kept */

/* --- positions.c --- */

extern const struct store_positions_ops rados_positions_ops;

/* Reads what is there; blocks. */
int rados_positions_open(struct rados_store *s, struct err *err);
void rados_positions_free(struct rados_store *s);

/* Of a batch that is being taken in: what it moves, as its sources are claimed now. ERR_INVALID, ERR_RANGE, ERR_NOMEM,
 * in batch->err. */
int rados_positions_admit(struct rados_store *s, struct store_batch *batch, struct positions_write **write);
/* Once its events are recorded: moves them, then done() with an error or none, and the write is no more. */
void rados_positions_write(struct positions_write *write, void (*done)(void *owner, const struct err *err),
                           void *owner);
void rados_positions_drop(struct positions_write *write); /* instead; NULL is fine */

/* --- forget.c --- */

void rados_forget(struct store *base, struct store_forget *forget);

/* --- question.c --- */

int rados_reader_open(struct store *base, struct store_reader **reader, struct err *err);
void rados_reader_close(struct store_reader *reader);
struct rados_store *rados_reader_store(struct store_reader *reader);
int rados_load(struct store_reader *reader, struct store_load *load);
int rados_view(struct store_reader *reader, struct store_load *load);
void rados_rest(struct store_reader *reader);
int rados_scan(struct store_reader *reader, int64_t key, struct slice user, int first_month,
               const struct store_scan *scan, struct store_view *view, struct err *err);

/* --- merge.c --- */

int merges_init(struct rados_store *s);
void merges_destroy(struct rados_store *s);
/* What was read of a user. */
struct merges_seen {
    size_t plays, deliveries;
    size_t gone;             /* of the deliveries, those that count no more */
    int64_t oldest_ms;       /* when the oldest play was recorded; INT64_MAX: there is none */
    struct slice generation; /* "": the user has none */
};

/* Plays and deliveries of the user were recorded here, so many; or seen. Begins a merge when there are enough. */
void merges_recorded(struct rados_store *s, int64_t key, struct slice user, size_t n);
void merges_saw(struct rados_store *s, int64_t key, struct slice user, const struct merges_seen *seen);
/* Whether what a merge of the user has read is worth going on. */
bool merges_enough(struct rados_store *s, int64_t key, const struct merges_seen *seen);

/* --- import.c --- */

void rados_import(struct store *base, struct store_import *import);
/* Each as the `into` of a merge, NULL: as who they are. ERR_CONFLICT then, where a month is crowded. */
void rados_import_as(struct rados_store *s, struct store_import *import, const struct store_merge *as);

/* --- merge_users.c --- */

void rados_merge(struct store *base, struct store_merge *merge);

/* --- meta.c --- */

int meta_open(struct rados_store *s, struct err *err);

#endif
