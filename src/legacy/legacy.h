/* Coming from another Redis: users whose plays and deliveries are in sorted sets there are noted in the store. A thread
 * of its own reads them, hands their data to the store, and marks them once that is durable. The service never waits
 * for it.
 *
 *   server_start() -> the store recovers -> legacy_start() -> server_attach() ... server_stop() -> legacy_stop() -> the
 *   store closes
 */
#ifndef UNSEEN_LEGACY_LEGACY_H
#define UNSEEN_LEGACY_LEGACY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/figure.h"
#include "dedup/dedup.h"
#include "store/migration.h"

struct legacy;

/* *legacy is NULL when no Redis is configured; all functions below take that but legacy_state() and
 * legacy_problems(). dedup outlives it. */
int legacy_start(const struct dedup *dedup, struct legacy **legacy, struct err *err);
void legacy_stop(struct legacy *l); /* ends the thread; users not marked yet are read again after the next start */
void legacy_free(struct legacy *l); /* when no question comes any more */

/* Something has changed: notes, or whether it is paused. Any thread. */
void legacy_wake(struct legacy *l);

/* There is a question about the user, who is then read before others, unless there are too many such. Any thread,
 * often. */
void legacy_first(struct legacy *l, int64_t key, struct slice user);

enum legacy_doing {
    LEGACY_IDLE,    /* no user waits */
    LEGACY_READING, /* at it */
    LEGACY_PAUSED,  /* by a command */
    LEGACY_WAITING, /* for what `cause` says; tries again by itself, and counts as reading only once a user is durable
                     */
    LEGACY_OFF,     /* no Redis is configured */
};
const char *legacy_doing_name(enum legacy_doing doing); /* "idle", "reading" ... */

struct legacy_state {
    enum legacy_doing doing;
    char cause[256];
    bool needs_room;          /* it waits for room on the disk of this machine */
    int64_t waiting_since_ms; /* wall time; 0: it isn't waiting */
    struct store_migration_counts users_to_migrate;
    /* since start: */
    uint64_t users, plays, deliveries, bytes;
    uint64_t too_old;    /* plays and deliveries that were left for their age */
    uint64_t skipped;    /* members that could not be taken */
    uint64_t unlisted;   /* keys with problems beyond those that are listed */
    double users_second; /* over the last seconds; 0 unless reading */
    uint64_t masters;    /* of a cluster that it reads from; 0: a single Redis, or not known yet */
    uint64_t moved;      /* commands that a node sent elsewhere for good, since the slot is another's, */
    uint64_t asks;       /* or once, since it is on the move */
};
void legacy_state(struct legacy *l, struct legacy_state *out);  /* any thread */
uint64_t legacy_seconds_left(const struct legacy_state *state); /* about; 0: not known */

/* The same also where no Redis is configured, but users may be noted. Any thread. */
void legacy_look(const struct dedup *dedup, struct legacy_state *out);
void legacy_figures_each(const struct legacy_state *state, figure_visit *visit, void *arg);

/* The newest problems, in the arena. Returns how many, or an error. Any thread; reads the disk. */
int legacy_problems(struct legacy *l, struct store_problem *out, int max, struct arena *arena, struct err *err);

#endif
