/* The parts of change.h: the thread (change.c), what an old primary does last (step_down.c), and what it brings back
 * (merge.c). */
#ifndef UNSEEN_REPLICA_CHANGE_IMPL_H
#define UNSEEN_REPLICA_CHANGE_IMPL_H

#include <pthread.h>

#include "replica/change.h"
#include "store/store.h"

/* For the changer's thread, which may wait for the store. */
struct change_wait {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool done;
};
#define CHANGE_WAIT_INIT                                                                                               \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false                                                     \
    }
void change_wait(struct change_wait *w);
void change_tell(struct change_wait *w);      /* any thread */
void change_on_call(struct store_call *call); /* done() of a call whose owner is the change_wait */

/* Blocks until it is durable. */
int change_record(struct store *store, struct store_batch *batch, struct err *err);

/* Where the feed here ends, with all that was taken before in it, durably: ch->last. Blocks. */
int change_look_last(struct replica *r, struct change *ch, struct err *err);

/* Records the events here, each once. */
int change_merge(struct replica *r, struct change *ch, struct err *err);

#endif
