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

static void append(struct worker_relays *all, struct worker_relay *relay)
{
    relay->message.next = NULL;
    if (all->first == NULL) {
        all->first = relay;
    } else {
        all->last->message.next = &relay->message;
    }
    all->last = relay;
}

static struct worker_relay *take_first(struct worker_relays *all)
{
    struct worker_relay *relay = all->first;
    all->first = (struct worker_relay *)relay->message.next;
    return relay;
}

/* Visits go on at once when there are no more turns. */
static void on_turn(struct loop_message *message, void *owner)
{
    struct worker *w = owner;
    struct worker_relays *all = &w->relays;
    all->turns = false;
    while (all->first != NULL && !all->turns) {
        struct worker_relay *relay = take_first(all);
        if (relay->visit(relay, w)) {
            relay->next++;
            send_on(relay);
        } else {
            append(all, relay);
        }
        if (all->first != NULL) {
            message->deliver = on_turn;
            all->turns = loop_queue_post_if_open(&w->queue, message);
        }
    }
}

static void on_arrival(struct loop_message *message, void *owner)
{
    struct worker_relay *relay = (struct worker_relay *)message;
    struct worker *w = owner;
    if (relay->next == w->pool->n) {
        relay->finish(relay, w);
        return;
    }
    append(&w->relays, relay);
    if (!w->relays.turns) {
        on_turn(&w->relays.turn, w);
    }
}

void worker_relay_start(struct worker_relay *relay, struct worker *home)
{
    relay->home = home;
    relay->next = 0;
    relay->message.deliver = on_arrival;
    send_on(relay);
}
