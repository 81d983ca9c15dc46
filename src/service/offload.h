/* Runs slow questions on a thread of their own, at a lower priority, one after the other, so that they don't hold up a
 * worker's other connections. The answer comes back through the queue of the worker that asked.
 */
#ifndef UNSEEN_SERVICE_OFFLOAD_H
#define UNSEEN_SERVICE_OFFLOAD_H

#include <pthread.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/heartbeat.h"
#include "dedup/dedup.h"
#include "net/loop_queue.h"

struct worker;

/* The first member of the question's own struct. The asking side fills all of it, and holds its connection until the
 * message is delivered. */
struct offload_job {
    struct loop_message message; /* at home, once it was asked; or unasked, when the service stops */
    struct worker *home;
    void (*ask)(struct offload_job *job, struct asker *asker); /* on the thread */
};

struct offload {
    pthread_t thread;
    struct heartbeat heartbeat;
    bool has_thread, stop;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct loop_message *first, **end; /* jobs, by their message */
    struct asker *asker;
};

/* Blocks while files are opened. */
int offload_start(struct offload *a, const struct dedup *dedup, struct err *err);

/* Any thread, between start and stop. */
void offload_put(struct offload *a, struct offload_job *job);

/* The same: takes a job back that has not begun. False: it has. */
bool offload_take_back(struct offload *a, struct offload_job *job);

/* Once nobody puts any more. Ends what is being asked, sends the rest back, and waits for the thread. Also without a
 * start. */
void offload_stop(struct offload *a);

#endif
