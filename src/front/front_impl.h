/* What the files of the front share. */
#ifndef UNSEEN_FRONT_FRONT_IMPL_H
#define UNSEEN_FRONT_FRONT_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/log.h"
#include "base/task.h"
#include "dedup/role.h"
#include "dedup/tier_pool.h"
#include "front/front.h"
#include "front/user_question.h"
#include "store/copy.h"
#include "store/ring.h"

enum {
    FRONT_EVENTS_BATCH = 1024, /* of one script */
    FRONT_STATES_BYTES = 256 * 1024,
    FRONT_PATIENCE_MS = 2 * 1000, /* with each reply */
    FRONT_BEAT_MS = 250,          /* between two scripts when there is nothing to send */
    FRONT_CHECK_MS = 1000,        /* between two looks at whether that Redis evicts */
    FRONT_FIRST_DELAY_MS = 100,
    FRONT_LAST_DELAY_MS = 5 * 1000,
    FRONT_SAMPLES_MAX = 16,
    FRONT_SAMPLE_MS = 5 * 1000, /* a user whose events were sent is compared after so long; one each second */
};

struct front_sample {
    int64_t due_ms; /* monotonic */
    struct slice user;
    char bytes[255];
};

/* One user's or several users' states, as arguments of FRONT_STATES. */
struct front_states {
    struct arena arena;    /* of keys, snapshots, numbers */
    struct buf keys, args; /* slices */
    struct buf words;      /* scratch */
    struct buf snapshot;
    size_t n, bytes;
};

struct front {
    const struct dedup *dedup;
    struct store *store;
    const struct config *cfg;
    struct tier_pool *pool;

    pthread_mutex_t mutex; /* guards: */
    bool rebuild;          /* asked for */
    bool begin_again;      /* what stands there is not what was begun, the other thread has found */
    bool reconcile;        /* the same */
    bool filling;          /* what stands there is removed, to be brought in again */
    struct front_status status;
    uint64_t node, epoch; /* as the writer has begun; epoch 0: it has not */
    uint64_t last_epoch;  /* ever */
    bool full;
    int64_t walk;           /* unless full */
    bool flushed, flushing; /* what was staged when the walk began is in history; is on its way there */
    int64_t flush_us;       /* a flush has failed: not again until then */
    bool look_dirty;        /* who is dirty is to be looked up */
    uint64_t evicted;       /* as in meta */
    bool was_full;          /* it was, since the start: to be told when it is not any more */
    struct front_sample samples[FRONT_SAMPLES_MAX];
    int n_samples;

    struct courier courier; /* the writer */

    /* The writer's. */
    struct {
        struct front_link *link;
        struct front_question question; /* meta */
        struct arena arena;
        const struct feed_event *events; /* that are being sent */
        struct buf words;
        uint64_t run;
        int64_t check_us, sample_us;
    } w;

    /* Of the thread that carries states. */
    struct {
        struct task task;
        struct store_reader *reader;
        struct front_link *link;
        uint64_t epoch; /* that it writes for */
        struct front_states out;
        struct front_question question;
        struct buf page, ends, blob;
        struct arena arena;
        int64_t next_us;  /* by front_users_rate */
        int64_t dirty_us; /* none of the dirty ones could be sent just now: until then */
        struct log_limit log;

        /* A pass of the reconciliation. */
        bool flushed, flushing, pruning;
        bool expired; /* what was compared last has months there that are past retention */
        int64_t from;
        char cursor[32]; /* of SCAN */
        uint64_t compared_before, differences_before;
    } s;
};

/* writer.c */
extern const struct courier_ops front_courier_ops;
/* begin.c: connects and takes an epoch. ERR_LOCKED: another writer has it. */
int front_begin(void *front, struct err *err);
/* states.c */
void front_states_main(void *arg);
/* The states' thread, until stopped, or so long: the front's Redis has no test clock. */
void front_rest(struct front *f, int64_t ms);

/* Appends a user's newest state to `out`: 1; 0: not now (they are being forgotten); or an error. Blocks on the disk. */
int front_states_add(struct front *f, struct slice user, struct err *err);
/* Sends what was appended. walk NULL: none is moved. ERR_STALE: another epoch is there. */
int front_states_send(struct front *f, const char *old_walk, const char *new_walk, struct err *err);
/* All that is staged goes to history: 1 once it has, 0 not yet (call again). */
int front_flush(struct front *f, bool *flushed, bool *begun, struct err *err);
/* The names of a page of users, in the order of their keys; they live until the next. */
int front_page(struct front *f, int64_t from, struct store_copy_users *page, struct slice **users, struct err *err);
/* By front_users_rate: n users were worked on. */
void front_pay(struct front *f, size_t n);

/* reconcile.c: one step of the pass under way: 1; 0 it has ended. */
int front_reconcile_step(struct front *f, struct err *err);
/* One user, who is named and sent again if they differ. */
int front_compare_user(struct front *f, struct slice user, struct err *err);

/* tier.c */
extern const struct tier_line_ops front_line_ops;

/* Of users' keys, for SCAN; and whether a reply is that of SCAN. */
struct slice front_pattern(struct front *f, char out[2 * FRONT_KEY_MAX]);
bool front_is_scan(const struct reply *reply);

/* Whether the reply of a script that writes is OK; else ERR_STALE, and what it says. */
int front_verdict(const struct reply *reply, struct err *err);

#endif
