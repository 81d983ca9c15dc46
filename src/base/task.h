/* A task: a thread that works, waits until a time or a wake-up, and ends when it is told to.
 *
 *     struct task t;                                         beside what it works on, which one mutex guards
 *     task_init(&t, &mutex);
 *     task_start(&t, "mirror", TASK_BEATS, run, owner, err)
 *         run: lock; while (task_wait(&t, until_us)) { look, unlock, work, lock }; unlock
 *     lock; put something down; task_wake(&t); unlock        any thread
 *     task_stop(&t); task_destroy(&t);                       whose it is
 *
 * A wake-up is never lost: one that comes while the task works, or before it runs, ends its next wait at once. Several
 * make one. Whatever the task is to see is put down under the same mutex. No signal is delivered to a task.
 */
#ifndef UNSEEN_BASE_TASK_H
#define UNSEEN_BASE_TASK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/heartbeat.h"

enum task_kind {
    TASK_BEATS,  /* has a heartbeat: beats in its waits, and in between by heartbeat_now(&task->heartbeat) */
    TASK_SILENT, /* has none: what it waits for may take for ever, and a restart is no help then */
};

struct task {
    pthread_mutex_t *mutex;
    struct heartbeat heartbeat;
    /* The rest is task.c's. */
    pthread_cond_t wake;
    _Atomic bool stop;
    bool woken, waits, started; /* under the mutex; started: of whose it is */
    bool idle;                  /* settle.h; under the mutex, as the next, until when by the owned clock */
    int64_t until_us;
    _Atomic int parked; /* a descriptor and 1; 0: it is not */
    struct task *next;
    pthread_t thread;
    const char *name;
    enum task_kind kind;
    void (*run)(void *arg);
    void *arg;
};

void task_init(struct task *t, pthread_mutex_t *mutex);
void task_destroy(struct task *t); /* one that has stopped, or was never started */

/* name: a literal, as `ps -L` shows it, cut at HEARTBEAT_NAME - 1 bytes. ERR_SYSTEM: there is no thread. */
int task_start(struct task *t, const char *name, enum task_kind kind, void (*run)(void *arg), void *arg,
               struct err *err);

/* Asks it to end; task_stop() waits until it has, too. Both without the mutex, as often as one likes, also when it was
 * never started. */
void task_ask_stop(struct task *t);
void task_stop(struct task *t);
bool task_started(const struct task *t); /* and not stopped */
bool task_stops(const struct task *t);   /* any thread, with or without the mutex */

/* Of several that end together. */
void tasks_init(struct task *tasks, int n, pthread_mutex_t *mutex);
void tasks_destroy(struct task *tasks, int n);
void tasks_stop(struct task *tasks, int n);

/* Waits to be woken, and is not yet. Any thread without the mutex; for tests. */
bool task_is_idle(struct task *t);

/* With the mutex. */
void task_wake(struct task *t);
/* Of several that do the same, one that waits, if any does. Lets the mutex go first, so that it is free for who wakes.
 */
void task_unlock_wake_one(struct task *tasks, int n);

/* The task itself, with the mutex, which is free while it waits. Until it is woken, or clock_mono_us() is until_us
 * (INT64_MAX: for ever). False, at once: it is to end. */
bool task_wait(struct task *t, int64_t until_us);
/* The same, but a wake-up is kept for the next task_wait(). */
bool task_rest(struct task *t, int64_t until_us);

/* The same until clock_real_us() is until_us, with a test clock, too: for what has none (clock.h). Pause: as wait, in
 * the midst of work. A task that waits only looks again then; one that rests or pauses has something to do (settle.h).
 */
bool task_wait_real(struct task *t, int64_t until_us);
bool task_pause_real(struct task *t, int64_t until_us);
bool task_rest_real(struct task *t, int64_t until_us);

/* Until task_answer() has set *done: for what is certain to come, such as an answer of the store that lies in the
 * caller's memory. Neither a wake-up, which is kept, nor an end ends it. */
void task_await(struct task *t, const bool *done);
void task_answer(struct task *t, bool *done); /* any thread, with the mutex; it ends no other wait */

/* The task itself, without the mutex: it waits for what may come over this descriptor, or never, until task_unpark():
 * a long poll. */
void task_park(struct task *t, int fd);
void task_unpark(struct task *t);

#endif
