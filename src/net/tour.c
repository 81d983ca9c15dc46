#include "net/tour.h"

#include "net/worker.h"

/* A worker that has stopped has no connections: there is nothing to visit. Home can't have stopped, since the
 * connection that waits there for the tour is held. If it was given up, its message is drained at the end. */
static void send_on(struct tour *tour)
{
    struct worker_pool *pool = tour->home->pool;
    for (; tour->next < pool->n; tour->next++) {
        if (loop_queue_post_if_open(&pool->workers[tour->next].queue, &tour->message)) {
            return; /* it is that worker's now */
        }
    }
    loop_queue_post(&tour->home->queue, &tour->message);
}

static void on_arrival(struct loop_message *message, void *owner)
{
    struct tour *tour = (struct tour *)message;
    struct worker *w = owner;
    if (tour->next == w->pool->n) {
        tour->finish(tour, w);
        return;
    }
    while (!tour->visit(tour, w)) {
        if (loop_queue_post_if_open(&w->queue, &tour->message)) {
            return;
        }
    }
    tour->next++;
    send_on(tour);
}

void tour_start(struct tour *tour, struct worker *home)
{
    tour->home = home;
    tour->next = 0;
    tour->message.deliver = on_arrival;
    send_on(tour);
}
