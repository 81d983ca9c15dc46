/* Inside reader_store.h: the store, its readers, and the threads that answer them.
 *
 * A load belongs to its reader until a thread takes it. The thread works on the load's own memory, without the mutex;
 * so a reader may be closed meanwhile: the asker is told so, and the load is the thread's to free.
 */
#ifndef UNSEEN_FRONT_READER_IMPL_H
#define UNSEEN_FRONT_READER_IMPL_H

#include <pthread.h>
#include <stdbool.h>

#include "base/task.h"
#include "front/reader_store.h"
#include "front/user_question.h"

enum { FRONT_USER_ID_MAX = 255 };

struct front_load {
    struct front_load *next;
    struct store_load *asked; /* NULL: no question waits for it */
    bool at_work;             /* a thread has it */
    size_t user_len;
    char user[FRONT_USER_ID_MAX];
    int first_month;
    struct front_question question; /* what the view is in */
    struct store_view view;
};

struct store_reader {
    struct front_store *store;
    struct front_load *load;
    size_t telling; /* done() of so many loads is running; of the store's mutex */
};

struct front_thread {
    struct front_store *store;
    struct task *task;
    struct front_link *link; /* NULL: to be opened */
    uint64_t losses;         /* of the store, when it was opened */
};

struct front_store {
    struct store base;
    const struct config *cfg;
    uint64_t seed;

    pthread_mutex_t mutex;                 /* all below but the threads' own */
    pthread_cond_t told;                   /* a done() has returned */
    struct front_load *first, **end;       /* that wait */
    struct store_message *refused, **last; /* writes that wait to be refused */
    struct front_thread keeper, threads[FRONT_READER_THREADS];
    struct task tasks[1 + FRONT_READER_THREADS]; /* the keeper's first */

    /* As the keeper saw it last. */
    bool reached;
    struct err why; /* not reached: why; or else why nothing may be answered; code 0: nothing is wrong but maybe age */
    struct front_meta meta;
    uint64_t losses; /* times that Redis was lost, or another one took its place: connections of before are no good */
};

static inline struct front_store *front_store_of(struct store *s)
{
    return (struct front_store *)s;
}

/* Waits for Redis and its meta, and knows the seed then: see front_store_open(). */
int front_reader_first(struct front_store *s, struct err *err);

int front_reader_start(struct front_store *s, struct err *err); /* what has begun ends with front_reader_stop() */
void front_reader_stop(struct front_store *s);

/* With the mutex: takes a load out of the queue; false: it isn't there. */
bool front_reader_leave(struct front_store *s, const struct front_load *f);

/* With the mutex, which is left meanwhile: answers the asker, or frees a load that has no asker any more. */
void front_reader_tell(struct front_store *s, struct front_load *f, const struct err *err);

/* Whether what stands there as of meta is young enough: 0, ERR_STALE. */
int front_reader_fresh(const struct front_store *s, const struct front_meta *meta, struct err *err);

void front_load_free(struct front_load *f); /* NULL is fine */

#endif
