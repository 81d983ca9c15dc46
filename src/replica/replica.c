#include "replica/replica.h"

#include <stdlib.h>

#include "replica/change.h"
#include "store/feed.h"

int replica_start(const struct dedup *dedup, struct replica **replica, struct err *err)
{
    *replica = NULL;
    if (dedup->store->feed == NULL || dedup->store->node == NULL) {
        return 0; /* role_new() has refused replica_of */
    }
    struct replica *r = *replica = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for replicas");
    }
    r->dedup = dedup;
    r->store = dedup->store;
    r->cfg = dedup->cfg;
    return changer_start(r, &r->changer, err);
}

void replica_stop(struct replica *r)
{
    if (r != NULL) {
        changer_stop(r->changer);
    }
}

void replica_free(struct replica *r)
{
    if (r != NULL) {
        changer_free(r->changer);
        free(r);
    }
}
