#include "replica/figures.h"

#include "dedup/role.h"
#include "replica/change.h"
#include "replica/feeder.h"
#include "replica/follower.h"
#include "replica/replica.h"

struct look {
    struct store_node node;
    struct ack_state ack;
    struct follower_state follower;
    uint64_t replicas, connected, lost, behind, behind_ms, clock_apart_ms;
    bool unheard;
    uint64_t durable; /* of the one that is furthest behind */
};

static uint64_t magnitude(int64_t ms)
{
    return (uint64_t)(ms < 0 ? -ms : ms);
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void look_at_replicas(struct feeder *f, struct look *l)
{
    struct feeder_replica all[FEEDER_REPLICAS_MAX];
    int n = feeder_look(f, all);
    l->replicas = (uint64_t)n;
    for (int i = 0; i < n; i++) {
        const struct feeder_replica *p = &all[i];
        l->connected += p->connected;
        l->lost += p->queue.place == FEED_LOST;
        l->behind = most(l->behind, p->queue.events);
        l->behind_ms = most(l->behind_ms, (uint64_t)p->queue.behind_ms);
        l->clock_apart_ms = most(l->clock_apart_ms, magnitude(p->clock_apart_ms));
        l->durable = i == 0 || p->durable < l->durable ? p->durable : l->durable;
    }
}

static void look(const struct dedup *d, struct look *l)
{
    const struct replica *r = d->replica;
    *l = (struct look){.ack = {.mode = ACK_LOCAL}, .follower = {.doing = FOLLOWER_OFF, .age_ms = -1}};
    role_look(d->role, &l->node);
    l->unheard = r != NULL && r->changer != NULL && changer_is_unheard(r->changer);
    if (r != NULL && r->ack != NULL) {
        ack_look(r->ack, &l->ack);
    }
    if (r != NULL && r->feeder != NULL && l->node.role == NODE_PRIMARY) {
        look_at_replicas(r->feeder, l);
    }
    if (r != NULL && r->follower != NULL && l->node.role == NODE_REPLICA) {
        follower_look(r->follower, &l->follower);
        l->clock_apart_ms = magnitude(l->follower.clock_apart_ms);
    }
}

void replica_figures_each(const struct dedup *d, figure_visit *visit, void *arg)
{
    struct look l;
    if (d == NULL) {
        return;
    }
    look(d, &l);
    const struct follower_state *f = &l.follower;
    bool follows = l.node.role == NODE_REPLICA;
    const struct {
        struct figure figure;
        uint64_t value;
    } figures[] = {
        {{"replica_role", "role", FIGURE_GAUGE, "0: a primary; 1: a replica; 2: fenced, since another has taken over."},
         (uint64_t)l.node.role},
        {{"replica_term", "term", FIGURE_GAUGE, "The term of promotions; the highest one holds."}, l.node.term},
        {{"replica_unheard", "replica_unheard", FIGURE_GAUGE,
          "1 while a primary that was started again can't know whether it was replaced: no other node has answered."},
         l.unheard},
        {{"replica_enlisted", "replica_enlisted", FIGURE_GAUGE, "Replicas that this primary keeps events for."},
         l.replicas},
        {{"replica_connected", "replica_connected", FIGURE_GAUGE, "Of these, replicas that fetch."}, l.connected},
        {{"replica_lost", "replica_lost", FIGURE_GAUGE,
          "Replicas that miss events and must be cloned again; on a replica 1 when it is one."},
         follows ? f->doing == FOLLOWER_LOST : l.lost},
        {{"replica_behind", "replica_behind_events", FIGURE_GAUGE,
          "Events that the replica which is furthest behind lacks."},
         follows ? (f->last > f->applied ? f->last - f->applied : 0) : l.behind},
        {{"replica_behind_us", "replica_behind_seconds", FIGURE_US,
          "For how long the oldest of them has waited; on a replica how old its state is."},
         (follows ? (uint64_t)(f->age_ms > 0 ? f->age_ms : 0) : l.behind_ms) * 1000},
        {{"replica_durable", "replica_durable_event", FIGURE_GAUGE,
          "The newest event that is durable on every replica; on a replica, here."},
         follows ? f->applied : l.durable},
        {{"replica_clock_apart_us", "replica_clock_apart_seconds", FIGURE_US,
          "How far the clocks of primary and replica are apart."},
         l.clock_apart_ms * 1000},
        {{"replica_reconnects", "replica_reconnects_total", FIGURE_COUNTER,
          "Times that this replica connected to its primary once more."},
         f->reconnects},
        {{"replica_ack_wanted", "replica_ack_wanted", FIGURE_GAUGE, "1 when writes wait for a replica (replica_ack)."},
         l.ack.mode != ACK_LOCAL && !follows},
        {{"replica_ack_in_step", "replica_ack_in_step", FIGURE_GAUGE,
          "1 while a replica keeps up with what is answered."},
         l.ack.in_step},
        {{"replica_ack_waiting", "replica_ack_waiting", FIGURE_GAUGE, "Writes that wait for a replica."},
         l.ack.waiting},
        {{"replica_ack_alone", "replica_ack_alone_total", FIGURE_COUNTER,
          "Writes that this node alone had when they were answered, although they were to wait."},
         l.ack.alone},
        {{"replica_ack_refused", "replica_ack_refused_total", FIGURE_COUNTER,
          "Writes that were answered with an error because no replica had them."},
         l.ack.refused},
        {{"replica_ack_fell_out", "replica_ack_fell_out_total", FIGURE_COUNTER,
          "Times that primary and replica fell out of step."},
         l.ack.fell_out},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        visit(arg, &figures[i].figure, figures[i].value);
    }
}
