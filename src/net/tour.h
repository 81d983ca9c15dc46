/* A message that visits every worker, one after the other, and returns to the one it came from: for what concerns all
 * connections, without a lock. */
#ifndef UNSEEN_NET_TOUR_H
#define UNSEEN_NET_TOUR_H

#include <stdbool.h>

#include "net/loop_queue.h"

struct worker;

struct tour {
    struct loop_message message;
    struct worker *home;
    int next;                                            /* worker to visit */
    bool (*visit)(struct tour *tour, struct worker *w);  /* on w's thread; false: there is more, at its next turn */
    void (*finish)(struct tour *tour, struct worker *w); /* at home; owns the tour from then on */
};

/* On home's thread. */
void tour_start(struct tour *tour, struct worker *home);

#endif
