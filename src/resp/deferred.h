/* A command that another thread completes: it holds its connection meanwhile, and returns through the queue. */
#ifndef UNSEEN_RESP_DEFERRED_H
#define UNSEEN_RESP_DEFERRED_H

#include <stddef.h>

#include "net/loop_queue.h"
#include "resp/client.h"

/* The first member of the command's own struct. */
struct deferred {
    struct loop_message message;
    struct resp_client *client;
    struct buf args;                                                  /* for the slow log */
    void (*answer)(struct deferred *deferred, struct resp_client *s); /* writes the reply; not called without a peer */
    void (*free)(struct deferred *deferred);                          /* what it holds beside itself; NULL: nothing */
};

/* size bytes, zeroed but for the deferred. NULL: out of memory. The command then answers OUTCOME_LATER. */
void *deferred_new(size_t size, struct resp_client *s,
                   void (*answer)(struct deferred *deferred, struct resp_client *s));

/* Any thread. Frees the deferred once it was answered. */
void deferred_done(struct deferred *deferred);

/* The same on the connection's own thread, from a message that was delivered there. */
void deferred_end(struct deferred *deferred);

#endif
