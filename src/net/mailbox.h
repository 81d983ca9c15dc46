/* Messages to the thread that runs a loop: a locked list and one wake-up.
 *
 * Any thread posts; the owner's thread takes the whole list at once and delivers each message in the order of posting.
 * Nobody ever waits for anybody: the lock is held for a few instructions.
 */
#ifndef UNSEEN_NET_MAILBOX_H
#define UNSEEN_NET_MAILBOX_H

#include <pthread.h>
#include <stdbool.h>
#include <uv.h>

#include "base/err.h"

/* Stands inside the message; whoever it is delivered to owns that from then on. */
struct mail {
    struct mail *next;
    void (*deliver)(struct mail *mail, void *owner);
};

struct mailbox {
    pthread_mutex_t lock;
    struct mail *first;
    struct mail **end;
    bool open; /* there is a loop to wake */
    uv_async_t wake;
    void *owner;
};

/* owner is handed to each deliver(). Before the loop runs. */
int mailbox_open(struct mailbox *box, uv_loop_t *loop, void *owner, struct err *err);

/* Any thread. */
void mailbox_post(struct mailbox *box, struct mail *mail);

/* The same, but false, and the message is still the caller's, when the mailbox was closed. */
bool mailbox_post_if_open(struct mailbox *box, struct mail *mail);

/* On the loop's thread. Delivers what is there; mail that comes later is kept for mailbox_drain(). */
void mailbox_close(struct mailbox *box);

/* Delivers what is there, by whoever is alone with the mailbox once its thread has ended. */
void mailbox_drain(struct mailbox *box);

void mailbox_free(struct mailbox *box);

#endif
