/* What scenarios and crash tests stand on: a real store in a folder of its own, the domain above it, the test's clock,
 * and operations handed in one by one, waited for or not.
 *
 * All of it belongs to one thread; only the store's threads finish operations. Time stands still but for
 * world_advance() and world_jump().
 */
#ifndef UNSEEN_TESTS_WORLD_H
#define UNSEEN_TESTS_WORLD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "dedup/dedup.h"
#include "store/store.h"

enum world_op_kind { WORLD_RECORD, WORLD_FORGET, WORLD_MERGE, WORLD_CALL };

struct world_op {
    struct world_op *next;
    struct world *world;
    enum world_op_kind kind;
    union {
        struct store_batch batch;
        struct store_forget forget;
        struct store_merge merge;
        struct store_call call;
        struct store_clock_change change;
    };
    void (*finished)(struct world_op *op); /* on the store's thread, before anyone sees `done`; may be NULL */
    void *arg;
    bool done;
    struct err err;
    int64_t answer; /* rows, or what forget answers */
    char *ids;      /* behind the slices of a forget */
    struct slice *items;
    uint64_t *hashes;
};

struct world {
    struct config cfg;
    const char *vfs;
    int (*open)(struct world *w, struct err *err); /* its store; NULL: the embedded one */
    int64_t built_ms;                              /* a first start believes no clock before it; 0: any */
    struct store *store;                           /* NULL while stopped */
    struct dedup dedup;
    struct asker *asker;
    struct world_op *first, **last; /* not yet waited for, oldest first */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
};

struct world_event {
    enum store_kind kind;
    int64_t at_ms;
    struct slice user;
    const struct slice *items;
    size_t n;
    bool stated; /* its time: maybe a replay */
};

void world_init(struct world *w, const char *folder, const char *vfs);
int world_start(struct world *w, struct err *err);
void world_stop(struct world *w);  /* as SIGTERM does */
void world_crash(struct world *w); /* as kill -9 does: the files stay as they are now. Waits for nothing. */

/* Each hands an operation in, and returns it. */
struct world_op *world_record(struct world *w, const struct world_event *events, size_t n,
                              void (*finished)(struct world_op *op), void *arg);
struct world_op *world_forget(struct world *w, struct slice user, const struct slice *items, size_t n,
                              void (*finished)(struct world_op *op), void *arg);
struct world_op *world_merge(struct world *w, struct slice from, struct slice into, bool forgets,
                             void (*finished)(struct world_op *op), void *arg);
struct world_op *world_flush(struct world *w);
struct world_op *world_tick(struct world *w);

/* An administrator's word on the clock. */
int world_clock(struct world *w, bool set_back, struct err *err);

/* Waits for all that was handed in. Returns 0, or the first error. *answer (may be NULL) is that of the last one. */
int world_wait(struct world *w, int64_t *answer, struct err *err);

/* Moves the clocks and waits for what became due. */
int world_advance(struct world *w, int64_t ms, struct err *err);
int world_jump(struct world *w, int64_t ms, struct err *err);

/* Reads both files through; prints each problem. Returns how many, or an error. */
int world_check(const struct world *w, struct err *err);

/* Removes a folder with its files (no folders in it). */
void world_remove_folder(const char *folder);

#endif
