/* The store recovers on a thread of its own, and this one waits for it and for signals, whichever comes first. At a
 * signal the store is told so at its next word of progress, which comes with every few hundred rows. If it has no next
 * word, since its disk doesn't answer, the second signal still ends the process. SIGHUP waits until the server is
 * ready.
 */
#include "cli/serve/serve_recover.h"

#include <stdatomic.h>

#include "cli/serve/serve_beside.h"
#include "cli/serve/serve_front.h"
#include "cli/serve/serve_watch.h"
#include "dedup/role.h"
#include "front/front.h"
#include "store/factory.h"
#include "store/ring.h"

struct recovering {
    struct server *server;
    struct store *store;
    const sigset_t *signals;
    bool takes;        /* plays */
    _Atomic bool stop; /* a signal came */
};

static bool on_progress(void *arg, uint64_t rows, uint64_t of)
{
    const struct recovering *r = arg;
    server_recovering(r->server, rows, of);
    serve_watch_recovery(rows, of, r->takes);
    return !atomic_load(&r->stop);
}

static int recover(void *arg, struct err *err)
{
    struct recovering *r = arg;
    return store_recover(r->store, on_progress, r, err);
}

static void told(void *arg, int number)
{
    struct recovering *r = arg;
    serve_watch_stopping(number, r->signals);
    atomic_store(&r->stop, true);
}

static int recover_beside(struct recovering *r, struct err *err)
{
    int rc = serve_beside(&(struct beside){recover, told, r}, err);
    return atomic_load(&r->stop) && (rc == 0 || rc == ERR_CLOSED) ? 1 : rc;
}

/* Whether nothing but the store has a say in whether a play is taken. A replica takes none, one whose writes wait for a
 * replica has none yet that could answer, and what needs a lock for writing does not have it yet. The mirror and the
 * front would miss it, since they listen to the feed only once the store has recovered. */
static bool takes_early(const struct config *cfg)
{
    bool alone =
        cfg->replica_of[0] == '\0' && cfg->replica_failover == FAILOVER_NO && config_now(cfg)->replica_ack == ACK_LOCAL;
    bool heard = cfg->legacy_mirror != 0 || front_is_wanted(cfg);
    return alone && !heard;
}

/* One whose open slot is still to be read could not answer before that is. */
static bool store_takes(struct store *store)
{
    struct store_ring ring;
    if (store->ring == NULL) {
        return true;
    }
    store->ring->look(store, &ring);
    return ring.slots[ring.open].state == SLOT_OPEN;
}

int serve_recover(const struct serve_config *config, struct server *server, struct dedup *dedup, struct dedup *early,
                  const sigset_t *signals, struct err *err)
{
    bool recovers = dedup->store->ops->recover != NULL;
    struct recovering r = {.server = server,
                           .store = dedup->store,
                           .signals = signals,
                           .takes = recovers && takes_early(&config->cfg) && store_takes(dedup->store)};
    int rc = 0;
    if (r.takes && (rc = role_new(&config->cfg, dedup->store, &dedup->role, err)) == 0) {
        *early = *dedup;
        rc = server_record(server, early, err);
    }
    if (rc == 0 && recovers) {
        rc = recover_beside(&r, err);
    }
    if (rc == 0 && !r.takes) {
        rc =
            config->front_only ? serve_front_role(dedup, err) : role_new(&config->cfg, dedup->store, &dedup->role, err);
    }
    return rc;
}
