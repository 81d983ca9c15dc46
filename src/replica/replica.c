#include "replica/replica.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "dedup/role.h"
#include "replica/change.h"
#include "replica/feeder.h"
#include "replica/follower.h"
#include "replica/pages.h"
#include "replica/second.h"

static int start(struct replica *r, struct err *err)
{
    struct store_node now;
    r->ack = ack_new(r->cfg);
    if (r->ack == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    ack_set_role(r->ack, r->dedup->role);
    int rc = ack_start(r->ack, err);
    if (rc < 0 || (rc = feeder_start(r, &r->feeder, err)) < 0 || (rc = changer_new(r, &r->changer, err)) < 0 ||
        (rc = pages_start(r, &r->pages, err)) < 0 ||
        (r->cfg->replica_hedge && (rc = second_start(r, &r->second, err)) < 0)) {
        return rc;
    }
    role_look(r->dedup->role, &now);
    rc = now.role == NODE_REPLICA ? follower_start(r, &r->follower, err) : 0;
    return rc < 0 ? rc : changer_start(r->changer, err);
}

int replica_start(const struct dedup *dedup, const char *listens, struct replica **replica, struct err *err)
{
    struct store *store = dedup->store;
    *replica = NULL;
    if (store->feed == NULL || store->node == NULL || store->positions == NULL || store->copy == NULL) {
        return dedup->cfg->replica_of[0] == '\0' ? 0 : store_lacks(store, "feed, so it can't follow another", err);
    }
    struct replica *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    r->dedup = dedup;
    r->store = store;
    r->cfg = dedup->cfg;
    struct store_node now;
    role_look(dedup->role, &now);
    reach_init(&r->reach, r->cfg, listens, now.address);
    const char *protocol = clock_is_test() ? getenv("UNSEEN_TEST_PROTOCOL") : NULL;
    r->protocol = protocol != NULL ? atoi(protocol) : REPLICA_PROTOCOL;
    int rc = start(r, err);
    if (rc < 0) {
        replica_stop(r);
        replica_free(r);
        return rc;
    }
    *replica = r;
    return 0;
}

void replica_stop(struct replica *r)
{
    if (r != NULL) {
        second_stop(r->second);
        changer_stop(r->changer);
        follower_stop(r->follower);
        feeder_stop(r->feeder);
        pages_stop(r->pages);
        if (r->ack != NULL) {
            ack_stop(r->ack);
        }
    }
}

void replica_free(struct replica *r)
{
    if (r != NULL) {
        second_free(r->second);
        changer_free(r->changer);
        follower_free(r->follower);
        feeder_free(r->feeder);
        pages_free(r->pages);
        ack_free(r->ack);
        free(r);
    }
}
