/* A command that another thread completes: it holds its connection meanwhile, and returns through the queue. */
#ifndef UNSEEN_RESP_TASK_H
#define UNSEEN_RESP_TASK_H

#include <stddef.h>

#include "net/loop_queue.h"
#include "resp/client.h"

/* The first member of the command's own struct. */
struct task {
    struct loop_message message;
    struct resp_client *client;
    struct buf args;                                          /* for the slow log */
    void (*answer)(struct task *task, struct resp_client *s); /* writes the reply; not called without a peer */
    void (*free)(struct task *task);                          /* what it holds beside itself; NULL: nothing */
};

/* size bytes, zeroed but for the task. NULL: out of memory. The command then answers OUTCOME_LATER. */
void *task_new(size_t size, struct resp_client *s, void (*answer)(struct task *task, struct resp_client *s));

/* Any thread. Frees the task once it was answered. */
void task_done(struct task *task);

/* The same on the connection's own thread, from a message that was delivered there. */
void task_end(struct task *task);

#endif
