#include "net/tour.h"

#include "net/worker.h"

/* A worker that has stopped has no connections: there is nothing to visit. Home can't have stopped, since the
 * connection that waits there for the tour is held. If it was given up, its mail is drained at the end. */
static void send_on(struct tour *tour)
{
    struct crew *crew = tour->home->crew;
    for (; tour->next < crew->n; tour->next++) {
        if (mailbox_post_if_open(&crew->workers[tour->next].mailbox, &tour->mail)) {
            return; /* it is that worker's now */
        }
    }
    mailbox_post(&tour->home->mailbox, &tour->mail);
}

static void on_arrival(struct mail *mail, void *owner)
{
    struct tour *tour = (struct tour *)mail;
    struct worker *w = owner;
    if (tour->next == w->crew->n) {
        tour->finish(tour, w);
        return;
    }
    while (!tour->visit(tour, w)) {
        if (mailbox_post_if_open(&w->mailbox, &tour->mail)) {
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
    tour->mail.deliver = on_arrival;
    send_on(tour);
}
