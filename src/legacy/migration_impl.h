/* The parts of the migration: its thread (migration.c), and its interface (legacy.c). */
#ifndef UNSEEN_LEGACY_MIGRATION_IMPL_H
#define UNSEEN_LEGACY_MIGRATION_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/task.h"
#include "legacy/fetch_user.h"
#include "legacy/legacy.h"
#include "legacy/master_keys.h"
#include "legacy/migration_batch.h"
#include "legacy/migration_state.h"
#include "legacy/priority_users.h"
#include "legacy/rate_limiter.h"
#include "legacy/retry.h"
#include "store/migration.h"

enum {
    UNDER_WAY = 128, /* users at a time */
    PAGE = 512,      /* notes read at a time */
};

struct legacy {
    const struct dedup *dedup;
    const struct config *cfg;
    struct store *store;
    struct task task;
    pthread_mutex_t mutex;        /* guards these, but not the task's own below: */
    struct redis *redis;          /* set and cleared under it, used by the thread without */
    pthread_mutex_t reader_mutex; /* guards this: */
    struct store_reader *problems_reader;
    struct priority_users first;
    struct migration_state state;

    /* the task's own */
    struct store_reader *reader;
    struct fetch_rules rules;
    struct fetch_user takes[UNDER_WAY];
    uint16_t queue[UNDER_WAY], spare[UNDER_WAY]; /* under way, in the order of their commands; not under way */
    size_t queue_at, n_queue, n_spare;
    struct arena arena;      /* of the page */
    struct slice page[PAGE]; /* users */
    int n_page, at_page;
    struct store_migration_walk walk;
    struct migration_batch *batch;
    struct rate_limiter users, bytes;
    struct retry retry;
    bool lost_told;             /* that one of them lost its data */
    struct master_keys masters; /* as they were when they were last connected to */
    uint64_t settled;           /* users who were migrated or left when it failed last */
};

/* The task's. */
void migration_main(void *arg);

/* Ends the connection, and drops the users under way. Called by the thread, and once before it begins. */
void migration_disconnect(struct legacy *l);

#endif
