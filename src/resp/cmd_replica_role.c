/* REPLICA MEET, PROMOTE, STEPDOWN, MERGE, DISMISS and STATUS: who a node is. What waits for disks and other nodes is
 * carried out by the changer (replica/change.h); the connection waits for it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "dedup/role.h"
#include "net/relay.h"
#include "replica/change.h"
#include "replica/feeder.h"
#include "replica/follower.h"
#include "replica/replica.h"
#include "resp/args.h"
#include "resp/command.h"
#include "resp/deferred.h"

enum { ROLE_TEXT = 24 };

struct role_deferred {
    struct deferred deferred;
    struct change change;
    struct worker_relay relay;
    struct changer *changer;
    char events[]; /* of MERGE */
};

static struct replica *replica_of(struct resp_client *s, enum outcome *refused)
{
    struct replica *r = service_dedup(&s->conn)->replica;
    if (r == NULL || r->changer == NULL) {
        *refused = resp_client_lacks(s, "replicas");
        return NULL;
    }
    return r;
}

static void on_changed(struct change *change)
{
    deferred_done(change->owner);
}

static struct role_deferred *new_deferred(struct resp_client *s, struct replica *r, enum change_kind kind, size_t more,
                                          void (*answer)(struct deferred *deferred, struct resp_client *s))
{
    struct role_deferred *t = deferred_new(sizeof *t + more, s, answer);
    if (t != NULL) {
        t->changer = r->changer;
        t->change.kind = kind;
        t->change.done = on_changed;
        t->change.owner = t;
    }
    return t;
}

static enum outcome start(struct resp_client *s, struct role_deferred *t)
{
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory");
    }
    changer_put(t->changer, &t->change);
    return OUTCOME_LATER;
}

static bool read_node(struct resp_client *s, struct slice arg, uint64_t *node, enum outcome *refused)
{
    if (!change_read_id(arg, node)) {
        *refused =
            resp_client_refuse(s, "ERR a node is 16 lower-case hex digits, got '%.*s'", arg_shown(arg), arg.data);
        return false;
    }
    return true;
}

/* Term, node and address, as MEET and STEPDOWN have them. */
static bool read_other(struct resp_client *s, const struct slice *args, struct change *change, enum outcome *refused)
{
    int64_t term;
    struct err err;
    if (!arg_int(args[2], &term) || term < 1) {
        *refused = resp_client_refuse(s, "ERR a term is a whole number of at least 1, got '%.*s'", arg_shown(args[2]),
                                      args[2].data);
    } else if (!read_node(s, args[3], &change->node, refused)) {
        return false;
    } else if (reach_take(args[4], conn_is_local(&s->conn), change->address, &err) < 0) {
        *refused = resp_client_refuse_err(s, &err);
    } else {
        change->term = (uint64_t)term;
        return true;
    }
    return false;
}

/* --- MEET --- */

static void answer_meet(struct deferred *deferred, struct resp_client *s)
{
    const struct change *change = &((struct role_deferred *)deferred)->change;
    if (change->err.code < 0) {
        resp_client_write_err(s, &change->err);
        return;
    }
    bool leads = change->now.role == NODE_PRIMARY;
    char role[ROLE_TEXT];
    snprintf(role, sizeof role, "%s%s", node_role_name(change->now.role), leads ? "" : CHANGE_UNDER);
    write_array(&s->writer, 3);
    write_int(&s->writer, (int64_t)change->now.term);
    write_hex(&s->writer, leads ? change->now.node : change->now.leader);
    write_str(&s->writer, role);
}

static enum outcome meet(struct resp_client *s, enum change_kind kind, const struct slice *args,
                         void (*done)(struct change *change),
                         void (*answer)(struct deferred *deferred, struct resp_client *s))
{
    enum outcome refused;
    struct change other;
    struct replica *r = replica_of(s, &refused);
    if (r == NULL || !read_other(s, args, &other, &refused)) {
        return refused;
    }
    struct role_deferred *t = new_deferred(s, r, kind, 0, answer);
    if (t != NULL) {
        t->change.term = other.term;
        t->change.node = other.node;
        memcpy(t->change.address, other.address, sizeof other.address);
        t->change.done = done;
    }
    return start(s, t);
}

enum outcome cmd_replica_meet(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    return meet(s, CHANGE_MEET, args, on_changed, answer_meet);
}

/* --- STEPDOWN: met; then each worker hands in what it took before; then all of that is durable --- */

static void answer_stepdown(struct deferred *deferred, struct resp_client *s)
{
    const struct change *change = &((struct role_deferred *)deferred)->change;
    if (change->err.code < 0) {
        resp_client_write_err(s, &change->err);
    } else if (change->now.role == NODE_PRIMARY || change->now.leader != change->node) {
        write_errorf(&s->writer, "ERR this node has met term %" PRIu64 ", which is not that of the one that asks",
                     change->now.term);
    } else {
        write_int(&s->writer, (int64_t)change->last);
    }
}

static struct role_deferred *task_of_relay(struct worker_relay *relay)
{
    return (struct role_deferred *)((char *)relay - offsetof(struct role_deferred, relay));
}

static bool hand_in(struct worker_relay *relay, struct worker *w)
{
    (void)relay;
    if (w->service->dedup != NULL) {
        recorder_submit(w->service);
    }
    return true;
}

static void look_last(struct worker_relay *relay, struct worker *w)
{
    (void)w;
    struct role_deferred *t = task_of_relay(relay);
    t->change.kind = CHANGE_LAST;
    t->change.done = on_changed;
    changer_put(t->changer, &t->change);
}

static void visit_all(struct loop_message *message, void *owner)
{
    worker_relay_start((struct worker_relay *)message, owner);
}

/* On the changer's thread. */
static void on_met(struct change *change)
{
    struct role_deferred *t = change->owner;
    if (change->err.code < 0 || change->now.role == NODE_PRIMARY) {
        deferred_done(&t->deferred);
        return;
    }
    t->relay.visit = hand_in;
    t->relay.finish = look_last;
    t->relay.message.deliver = visit_all;
    loop_queue_post(&t->deferred.client->conn.worker->queue, &t->relay.message);
}

enum outcome cmd_replica_stepdown(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    return meet(s, CHANGE_STEPDOWN, args, on_met, answer_stepdown);
}

/* --- DISMISS --- */

static void answer_dismiss(struct deferred *deferred, struct resp_client *s)
{
    const struct change *change = &((struct role_deferred *)deferred)->change;
    if (change->err.code < 0) {
        resp_client_write_err(s, &change->err);
    } else {
        write_simple(&s->writer, "OK");
    }
}

enum outcome cmd_replica_dismiss(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    enum outcome refused;
    uint64_t node = 0;
    struct replica *r = replica_of(s, &refused);
    bool is_address = memchr(args[2].data, ':', args[2].len) != NULL && args[2].len < NODE_ADDRESS_TEXT;
    if (r == NULL || (!is_address && !read_node(s, args[2], &node, &refused))) {
        return refused;
    }
    struct role_deferred *t = new_deferred(s, r, CHANGE_DISMISS, 0, answer_dismiss);
    if (t != NULL) {
        t->change.node = node;
        memcpy(t->change.address, args[2].data, is_address ? args[2].len : 0);
    }
    return start(s, t);
}

/* --- PROMOTE --- */

static void answer_promote(struct deferred *deferred, struct resp_client *s)
{
    const struct change *change = &((struct role_deferred *)deferred)->change;
    struct writer *w = &s->writer;
    if (change->err.code < 0) {
        resp_client_write_err(s, &change->err);
        return;
    }
    write_map(w, 5);
    write_pair_int(w, "term", (int64_t)change->now.term);
    write_pair_str(w, "was", change->was);
    write_pair_int(w, "waited_ms", change->waited_ms);
    write_pair_int(w, "lossless", change->lossless);
    write_pair_str(w, "note", change->how);
}

enum outcome cmd_replica_promote(struct resp_client *s, const struct slice *args, size_t n)
{
    enum outcome refused;
    bool force = n == 3 && arg_is(args[2], "force");
    if (n > 3 || (n == 3 && !force)) {
        return resp_client_refuse(s, "ERR REPLICA PROMOTE takes nothing or FORCE, got '%.*s'", arg_shown(args[2]),
                                  args[2].data);
    }
    struct replica *r = replica_of(s, &refused);
    if (r == NULL) {
        return refused;
    }
    struct role_deferred *t = new_deferred(s, r, CHANGE_PROMOTE, 0, answer_promote);
    if (t != NULL) {
        t->change.force = force;
    }
    return start(s, t);
}

/* --- MERGE --- */

static void answer_merge(struct deferred *deferred, struct resp_client *s)
{
    const struct change *change = &((struct role_deferred *)deferred)->change;
    if (change->err.code == ERR_NOTFOUND) {
        write_errorf(&s->writer, "LOST %s", change->err.text);
    } else if (change->err.code < 0) {
        resp_client_write_err(s, &change->err);
    } else {
        write_int(&s->writer, (int64_t)change->left);
    }
}

enum outcome cmd_replica_merge(struct resp_client *s, const struct slice *args, size_t n)
{
    enum outcome refused;
    uint64_t node, run;
    int64_t to;
    bool forgets = false, force = false;
    for (size_t i = 6; i < n; i++) {
        if (!arg_is(args[i], "forgets") && !arg_is(args[i], "force")) {
            return resp_client_refuse(s, "ERR behind the events REPLICA MERGE takes FORGETS and FORCE, got '%.*s'",
                                      arg_shown(args[i]), args[i].data);
        }
        forgets = forgets || arg_is(args[i], "forgets");
        force = force || arg_is(args[i], "force");
    }
    if (!change_read_id(args[2], &node) || !change_read_id(args[3], &run) || !arg_int(args[4], &to) || to < 0) {
        return resp_client_refuse(s, "ERR REPLICA MERGE takes a node and a run, 16 lower-case hex digits each, the "
                                     "number of the last event, and the events");
    }
    struct replica *r = replica_of(s, &refused);
    if (r == NULL) {
        return refused;
    }
    struct role_deferred *t = new_deferred(s, r, CHANGE_MERGE, args[5].len, answer_merge);
    if (t != NULL) {
        t->change.node = node;
        t->change.run = run;
        t->change.to = (uint64_t)to;
        t->change.forgets = forgets;
        t->change.force = force;
        memcpy(t->events, args[5].data, args[5].len);
        t->change.events = slice_of(t->events, args[5].len);
    }
    return start(s, t);
}

/* --- STATUS --- */

static void write_replica(struct writer *w, const struct feeder_replica *p)
{
    write_map(w, 12);
    write_pair_hex(w, "node", p->node);
    write_pair_str(w, "address", p->address);
    write_pair_int(w, "connected", p->connected);
    write_pair_int(w, "seen", p->seen_ms);
    write_pair_int(w, "clock_apart_ms", p->clock_apart_ms);
    write_pair_int(w, "read", (int64_t)p->read);
    write_pair_int(w, "durable", (int64_t)p->durable);
    write_pair_str(w, "state", feed_place_name(p->queue.place));
    write_pair_int(w, "events", (int64_t)p->queue.events);
    write_pair_int(w, "bytes", (int64_t)p->queue.bytes);
    write_pair_int(w, "behind_ms", p->queue.behind_ms);
    write_pair_int(w, "lost_since", p->queue.lost_ms);
}

static void write_follower(struct writer *w, const struct follower_state *f)
{
    write_map(w, 12);
    write_pair_str(w, "state", follower_doing_name(f->doing));
    write_pair_str(w, "primary", f->primary);
    write_pair_hex(w, "node", f->node);
    write_pair_hex(w, "run", f->run);
    write_pair_int(w, "applied", (int64_t)f->applied);
    write_pair_int(w, "last", (int64_t)f->last);
    write_pair_int(w, "age_ms", f->age_ms);
    write_pair_int(w, "clock_apart_ms", f->clock_apart_ms);
    write_pair_int(w, "events", (int64_t)f->events);
    write_pair_int(w, "users", (int64_t)f->users);
    write_pair_int(w, "reconnects", (int64_t)f->reconnects);
    write_pair_str(w, "problem", f->problem);
}

enum outcome cmd_replica_status(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    enum outcome refused;
    const struct replica *r = replica_of(s, &refused);
    if (r == NULL) {
        return refused;
    }
    struct store_node node;
    struct ack_state ack = {.mode = ACK_LOCAL};
    struct change_parting part;
    struct feeder_replica replicas[FEEDER_REPLICAS_MAX];
    struct follower_state follower;
    struct err why = {0};
    struct writer *w = &s->writer;
    role_look(r->dedup->role, &node);
    role_may_write(r->dedup->role, &why);
    if (r->ack != NULL) {
        ack_look(r->ack, &ack);
    }
    change_parting(r->store, &part);
    /* A replica keeps what it has for others, too, but they follow the primary. */
    int n_replicas = r->feeder != NULL && node.role != NODE_REPLICA ? feeder_look(r->feeder, replicas) : 0;
    write_map(w, 25);
    write_pair_str(w, "role", node_role_name(node.role));
    write_pair_hex(w, "node", node.node);
    write_pair_hex(w, "run", node.run);
    write_pair_int(w, "term", (int64_t)node.term);
    write_pair_hex(w, "leader", node.leader);
    write_pair_str(w, "leader_address", node.address);
    write_pair_str(w, "address", reach_shown(&r->reach));
    write_pair_int(w, "last", (int64_t)r->store->feed->last(r->store));
    write_pair_int(w, "now", clock_wall_ms());
    write_pair_str(w, "writes_refused", why.text);
    write_pair_int(w, "unheard", changer_is_unheard(r->changer));
    write_pair_int(w, "promoted", node.promoted);
    write_pair_hex(w, "promoted_from", part.node);
    write_pair_hex(w, "promoted_from_run", part.run);
    write_pair_int(w, "common_seq", (int64_t)part.common_seq);
    write_pair_int(w, "promoted_at_seq", (int64_t)part.promoted_at_seq);
    write_pair_str(w, "ack", ack_mode_name(ack.mode));
    write_pair_int(w, "in_step", ack.in_step);
    write_pair_int(w, "in_step_since", ack.since_ms);
    write_pair_int(w, "ack_waiting", (int64_t)ack.waiting);
    write_pair_int(w, "ack_alone", (int64_t)ack.alone);
    write_pair_int(w, "ack_refused", (int64_t)ack.refused);
    write_pair_int(w, "fell_out", (int64_t)ack.fell_out);
    write_str(w, "replicas");
    write_array(w, (size_t)n_replicas);
    for (int i = 0; i < n_replicas; i++) {
        write_replica(w, &replicas[i]);
    }
    write_str(w, "follower");
    if (r->follower == NULL || node.role == NODE_PRIMARY) {
        write_map(w, 0);
    } else {
        follower_look(r->follower, &follower);
        write_follower(w, &follower);
    }
    return OUTCOME_ANSWERED;
}
