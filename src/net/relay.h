/* A message that visits every worker, one after the other, and returns to the one it came from: for what concerns all
 * connections, without a lock. Of several that visit a worker, one has its say in a turn of the loop, in rotation: a
 * turn is no longer for a crowd of them than for one. */
#ifndef UNSEEN_NET_RELAY_H
#define UNSEEN_NET_RELAY_H

#include <stdbool.h>

#include "net/loop_queue.h"

struct worker;

struct worker_relay {
    struct loop_message message;
    struct worker *home;
    int next; /* worker to visit */
    bool (*visit)(struct worker_relay *relay,
                  struct worker *w); /* on w's thread; false: there is more, at its next turn */
    void (*finish)(struct worker_relay *relay, struct worker *w); /* at home; owns the relay from then on */
};

/* Those at a worker. */
struct worker_relays {
    struct worker_relay *first, *last;
    struct loop_message turn; /* in the queue while `turns`: the next one's */
    bool turns;
};

/* On home's thread. */
void worker_relay_start(struct worker_relay *relay, struct worker *home);

#endif
