/* A task's queue: a locked list of messages. Senders never wait; the receiver takes the whole list at once. The task is
 * started with task_start(&queue->task, ...), and ends with task_stop(&queue->task). */
#ifndef UNSEEN_STORE_THREAD_QUEUE_H
#define UNSEEN_STORE_THREAD_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/task.h"
#include "store/store.h"

struct thread_queue {
    struct task task; /* the receiver */
    pthread_mutex_t mutex;
    struct store_message *first, **last;
    uint64_t length;
    uint64_t events; /* in the batches */
    uint64_t wanted; /* with fewer events than these a batch need not wake the receiver, see thread_queue_gather() */
    bool urgent;     /* there is something besides batches */
};

void thread_queue_init(struct thread_queue *queue);
void thread_queue_destroy(struct thread_queue *queue);
void thread_queue_put(struct thread_queue *queue, struct store_message *message);
void thread_queue_wake(struct thread_queue *queue); /* something besides messages needs a look */
uint64_t thread_queue_length(struct thread_queue *queue);

/* The whole list, oldest first; NULL when empty. Does not wait. */
struct store_message *thread_queue_take(struct thread_queue *queue);

/* Waits for a message, a wake or a stop; on a running clock at most ms. Returns whether to stop. */
bool thread_queue_wait(struct thread_queue *queue, int64_t ms);

/* The same until clock_mono_us() is mono_us, or earlier: an advance wakes it. */
bool thread_queue_wait_until(struct thread_queue *queue, int64_t mono_us);

/* Waits for real time with a test clock, too: for another process. */
bool thread_queue_wait_real(struct thread_queue *queue, int64_t real_ms);
bool thread_queue_stopped(struct thread_queue *queue);

/* How many events wait in batches. */
uint64_t thread_queue_events(struct thread_queue *queue);

/* If there are only batches, waits until they have that many events, or something else arrives; at most real_us. */
void thread_queue_gather(struct thread_queue *queue, uint64_t events, int64_t real_us);

#endif
