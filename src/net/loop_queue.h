/* Messages to the thread that runs a loop: a locked list and one wake-up.
 *
 * Any thread posts; the owner's thread takes the whole list at once and delivers each message in the order of posting.
 * No thread waits for another: the lock is held for a few instructions.
 */
#ifndef UNSEEN_NET_LOOP_QUEUE_H
#define UNSEEN_NET_LOOP_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <uv.h>

#include "base/err.h"

/* Stands inside the message; the receiver owns that from then on. */
struct loop_message {
    struct loop_message *next;
    void (*deliver)(struct loop_message *message, void *owner);
};

struct loop_queue {
    pthread_mutex_t lock;
    struct loop_message *first;
    struct loop_message **end;
    bool open; /* there is a loop to wake */
    uv_async_t wake;
    void *owner;
};

/* owner is handed to each deliver(). Before the loop runs. */
int loop_queue_open(struct loop_queue *queue, uv_loop_t *loop, void *owner, struct err *err);

/* Any thread. */
void loop_queue_post(struct loop_queue *queue, struct loop_message *message);

/* The same, but false, and the message is still the caller's, when the queue was closed. */
bool loop_queue_post_if_open(struct loop_queue *queue, struct loop_message *message);

/* On the loop's thread. Delivers what is there; messages that come later are kept for loop_queue_drain(). */
void loop_queue_close(struct loop_queue *queue);

/* Delivers what is there, by the thread that is alone with the queue once the queue's own has ended. */
void loop_queue_drain(struct loop_queue *queue);

void loop_queue_free(struct loop_queue *queue);

#endif
