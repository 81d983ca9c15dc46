#include "cli/serve/serve_lease.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "dedup/role.h"
#include "registry/lease.h"
#include "replica/change.h"
#include "replica/follower.h"
#include "replica/replica.h"

static void look(void *arg, struct lease_self *out)
{
    const struct dedup *dedup = arg;
    struct store_node now;
    role_look(dedup->role, &now);
    *out = (struct lease_self){.primary = now.role == NODE_PRIMARY,
                               .named = out->named,
                               .node = now.node,
                               .term = now.term,
                               .address = dedup->replica != NULL ? reach_shown(&dedup->replica->reach) : ""};
    out->alone = dedup->replica == NULL || dedup->replica->changer == NULL || changer_is_alone(dedup->replica->changer);
    if (now.role == NODE_PRIMARY && dedup->replica != NULL && dedup->replica->ack != NULL) {
        struct ack_state ack;
        ack_look(dedup->replica->ack, &ack);
        out->names.seq = ack.common;
    }
    if (now.role == NODE_REPLICA && dedup->replica != NULL && dedup->replica->follower != NULL) {
        struct follower_state f;
        follower_look(dedup->replica->follower, &f);
        out->leader = f.node;
        out->seq = f.applied;
        out->has_named = follower_has(dedup->replica->follower, out->named, &out->named_seq);
        struct err why = {0};
        out->refuses = dedup->store->ops->refusal(dedup->store, &why) < 0;
    }
    if (now.role == NODE_FENCED && out->named == now.node && dedup->store->feed != NULL) {
        out->has_named = true;
        out->named_seq = dedup->store->feed->last(dedup->store);
    }
}

static void hold(void *arg, const char *why)
{
    const struct dedup *dedup = arg;
    role_hold(dedup->role, why);
    if (why == NULL && dedup->replica != NULL && dedup->replica->changer != NULL) {
        changer_heard(dedup->replica->changer);
    }
}

static void until(void *arg, int64_t mono_ms)
{
    const struct dedup *dedup = arg;
    role_hold_at(dedup->role, mono_ms);
}

static void met(void *arg, uint64_t term, uint64_t node, const char *address)
{
    const struct dedup *dedup = arg;
    struct err err = {0};
    char reached[NODE_ADDRESS_TEXT] = "";
    if (dedup->replica != NULL) {
        if (reach_take_shown(&dedup->replica->reach, address, reached, &err) < 0) {
            log_error("Consul names a primary by what is no address", "error=%s", log_quote_str(err.text));
        }
        reach_secure(&dedup->replica->reach, reached, reached);
    }
    if (role_meet(dedup->role, term, node, reached, &err) < 0) {
        log_error("Consul names another primary, and this node can't write that down", "error=%s",
                  log_quote_str(err.text));
    }
}

struct promotion {
    struct change change; /* first */
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool done;
};

static void on_changed(struct change *change)
{
    struct promotion *p = change->owner;
    pthread_mutex_lock(&p->mutex);
    p->done = true;
    pthread_cond_signal(&p->ended);
    pthread_mutex_unlock(&p->mutex);
}

/* As REPLICA PROMOTE FORCE does it: with the lock in hand the old primary may take no writes, and whether something
 * would be missing here was decided before. */
static int promote(void *arg, uint64_t term, struct err *err)
{
    const struct dedup *dedup = arg;
    if (dedup->replica == NULL || dedup->replica->changer == NULL) {
        return role_promote(dedup->role, term - 1, err);
    }
    struct promotion p = {
        .change = {.kind = CHANGE_PROMOTE, .force = true, .above = term - 1, .done = on_changed, .owner = &p},
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .ended = PTHREAD_COND_INITIALIZER};
    changer_put(dedup->replica->changer, &p.change);
    pthread_mutex_lock(&p.mutex);
    while (!p.done) {
        pthread_cond_wait(&p.ended, &p.mutex);
    }
    pthread_mutex_unlock(&p.mutex);
    *err = p.change.err;
    return p.change.err.code;
}

int serve_lease_new(struct dedup *dedup, struct err *err)
{
    const struct lease_hooks hooks = {
        .look = look, .hold = hold, .until = until, .met = met, .promote = promote, .arg = dedup};
    if (dedup->role == NULL && dedup->cfg->replica_failover != FAILOVER_NO) {
        return err_set(err, ERR_INVALID, "replica_failover is given, but this engine of the store knows no roles");
    }
    return lease_new(dedup->cfg, &hooks, &dedup->lease, err);
}

int serve_lease_start(const struct dedup *dedup, struct err *err)
{
    if (dedup->lease == NULL) {
        return 0;
    }
    if (dedup->replica != NULL && dedup->replica->ack != NULL) {
        ack_set_gatekeeper(dedup->replica->ack, lease_record, dedup->lease);
    }
    return lease_start(dedup->lease, err);
}
