#include "net/tour.h"

#include "net/worker.h"

static void on_arrival(struct mail *mail, void *owner)
{
    struct tour *tour = (struct tour *)mail;
    struct worker *w = owner;
    struct crew *crew = w->crew;
    if (tour->next == crew->n) {
        tour->finish(tour, w);
        return;
    }
    tour->visit(tour, w);
    tour->next++;
    struct worker *to = tour->next < crew->n ? &crew->workers[tour->next] : tour->home;
    mailbox_post(&to->mailbox, &tour->mail);
}

void tour_start(struct tour *tour, struct worker *home)
{
    tour->home = home;
    tour->next = 0;
    tour->mail.deliver = on_arrival;
    mailbox_post(&home->crew->workers[0].mailbox, &tour->mail);
}
