/* What asker.c and answers.c share. */
#ifndef UNSEEN_DEDUP_ASKER_IMPL_H
#define UNSEEN_DEDUP_ASKER_IMPL_H

#include <pthread.h>

#include "dedup/view_probe.h"
#include "filter/sieve.h"

/* A question that was begun. */
struct asker_load {
    struct asker_load *next; /* of those that wait for a reader, or of those that were answered */
    struct asker *asker;
    struct store_reader *reader; /* NULL: it waits for one */
    struct store_load load;
    void (*done)(void *owner);
    void *owner;
    bool dropped;
    char user[ID_MAX];
};

struct asker_list {
    struct asker_load *first, **end;
};

struct asker {
    const struct dedup *dedup;

    struct store_reader *readers[ASKER_READERS]; /* all of them; opened when they are needed */
    struct store_reader *idle[ASKER_READERS];
    size_t n_readers, n_idle;
    struct asker_load *spare; /* of the next question, so that one that is answered at once allocates nothing */
    struct asker_list waiting;

    void (*wake)(void *arg);
    void *wake_arg;
    pthread_mutex_t lock; /* the rest of this part */
    pthread_cond_t came;
    struct asker_list answered;
    bool stopped;

    bool leaves_cold;
    struct store_month_info *kept; /* what asker_months() found last; only where cold ones are left */
    int n_kept, cap_kept;

    /* answers.c's scratch memory. */
    struct view_probe view;
    struct exposure_memory exposure;
    struct buf sent;
    struct exposure_groups groups;
    struct sieve *sieve;          /* NULL: large users are left to others */
    struct history_month *months; /* of the last QUERY_HISTORY */
    size_t months_cap;
};

/* The answer from what the store has loaded. */
int answer_from_view(struct asker *a, const struct store_view *view, struct query *q, struct err *err);

/* The same of a large user, who is read by l's reader as far as l says. */
int answer_large(struct asker *a, struct asker_load *l, struct query *q, struct err *err);

#endif
