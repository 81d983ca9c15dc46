/* Runs questions that would hold up a worker's other connections on threads of their own. The answer comes back through
 * the queue of the worker that asked. There are two lanes, since there are two reasons:
 *
 *   OFFLOAD_LARGE  takes long: one thread, at a lower priority, one question after the other. It waits for no disk, so
 *                  what it finds to be cold (ERR_COLD) goes on to the other lane.
 *   OFFLOAD_COLD   waits for the disk: OFFLOAD_COLD_THREADS threads. One that a frozen disk holds stays there alone;
 *                  once all are held, the next ones wait in line, each in memory that was charged, until their
 * deadline.
 *
 * No thread waits for a lane: the one that put a question there may ask elsewhere meanwhile.
 */
#ifndef UNSEEN_SERVICE_OFFLOAD_H
#define UNSEEN_SERVICE_OFFLOAD_H

#include <pthread.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/task.h"
#include "dedup/dedup.h"
#include "net/loop_queue.h"

struct worker;

enum offload_lane_name { OFFLOAD_LARGE, OFFLOAD_COLD, OFFLOAD_LANES };

/* As many questions are before the disk at a time. docs/performance.md measures it. */
enum { OFFLOAD_COLD_THREADS = 16 };

/* The first member of the question's own struct. The asking side fills all of it, and holds its connection until the
 * message is delivered. */
struct offload_job {
    struct loop_message message; /* at home, once it was asked; or unasked, when the service stops */
    struct worker *home;
    void (*ask)(struct offload_job *job, struct asker *asker); /* on the thread */
    enum offload_lane_name lane;
};

struct offload_thread {
    struct offload_lane *lane;
    struct task *task;
    struct asker *asker;
};

struct offload_lane {
    pthread_mutex_t lock;
    struct loop_message *first, **end; /* jobs, by their message */
    struct offload_thread threads[OFFLOAD_COLD_THREADS];
    struct task tasks[OFFLOAD_COLD_THREADS];
    int n; /* that run */
    const struct offload_kind *kind;
};

struct offload {
    struct offload_lane lanes[OFFLOAD_LANES];
    bool runs;
};

/* Blocks while files are opened. After an error nothing runs. */
int offload_start(struct offload *a, const struct dedup *dedup, struct err *err);

/* Any thread, between start and stop. */
void offload_put(struct offload *a, struct offload_job *job);

/* The same: takes a job back that has not begun. False: it has. */
bool offload_take_back(struct offload *a, struct offload_job *job);

/* Once no question is put any more. Ends what is being asked, sends the rest back, and waits for the threads: as long
 * as the disk holds one. Also without a start. */
void offload_stop(struct offload *a);

#endif
