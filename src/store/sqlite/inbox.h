/* A thread's inbox: a locked list of messages. Senders never wait; the receiver takes the whole list at once. */
#ifndef UNSEEN_STORE_SQLITE_INBOX_H
#define UNSEEN_STORE_SQLITE_INBOX_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/heartbeat.h"
#include "store/store.h"

struct inbox {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    struct store_message *first, **last;
    uint64_t length;
    uint64_t events; /* in the batches */
    uint64_t wanted; /* events without which a batch need not wake the receiver, see inbox_gather() */
    bool urgent;     /* there is something besides batches */
    bool woken;      /* something besides messages is to be looked at */
    bool stop;
    struct heartbeat heartbeat; /* of the thread that waits at it, which begins and ends it */
};

int inbox_init(struct inbox *box);
void inbox_destroy(struct inbox *box);
void inbox_put(struct inbox *box, struct store_message *message);
void inbox_wake(struct inbox *box);
void inbox_stop(struct inbox *box);
uint64_t inbox_length(struct inbox *box);

/* The whole list, oldest first; NULL when empty. Does not wait. */
struct store_message *inbox_take(struct inbox *box);

/* Waits for a message, a wake or a stop; on a running clock at most real_ms. Keeps the heartbeat going. Returns whether
 * to stop.
 */
bool inbox_wait(struct inbox *box, int64_t real_ms);

/* The same on a test's clock too: while something is waited for that another process does. */
bool inbox_wait_real(struct inbox *box, int64_t real_ms);
bool inbox_stopped(struct inbox *box);

/* How many events wait in batches. */
uint64_t inbox_events(struct inbox *box);

/* When only batches are there, waits until they have so many events, or something else comes; at most real_us. */
void inbox_gather(struct inbox *box, uint64_t events, int64_t real_us);

#endif
