#include "net/relay.h"

#include "net/worker.h"

/* A worker that has stopped has no connections: there is nothing to visit. Home can't have stopped, since the
 * connection that waits there for the relay is held. If it was given up, its message is drained at the end. */
static void send_on(struct worker_relay *relay)
{
    struct worker_pool *pool = relay->home->pool;
    for (; relay->next < pool->n; relay->next++) {
        if (loop_queue_post_if_open(&pool->workers[relay->next].queue, &relay->message)) {
            return; /* it is that worker's now */
        }
    }
    loop_queue_post(&relay->home->queue, &relay->message);
}

static void on_arrival(struct loop_message *message, void *owner)
{
    struct worker_relay *relay = (struct worker_relay *)message;
    struct worker *w = owner;
    if (relay->next == w->pool->n) {
        relay->finish(relay, w);
        return;
    }
    while (!relay->visit(relay, w)) {
        if (loop_queue_post_if_open(&w->queue, &relay->message)) {
            return;
        }
    }
    relay->next++;
    send_on(relay);
}

void worker_relay_start(struct worker_relay *relay, struct worker *home)
{
    relay->home = home;
    relay->next = 0;
    relay->message.deliver = on_arrival;
    send_on(relay);
}
