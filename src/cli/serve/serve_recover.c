/* The store recovers on a thread of its own, and this one waits for it and for signals, whichever comes first. At a
 * signal the store is told so at its next word of progress, which comes with every few hundred rows. If it has no next
 * word, since its disk doesn't answer, the second signal still ends the process. SIGHUP waits until the server is
 * ready.
 */
#include "cli/serve/serve_recover.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cli/serve/serve_front.h"
#include "cli/serve/serve_watch.h"
#include "dedup/role.h"
#include "front/front.h"
#include "store/factory.h"

struct recovering {
    struct server *server;
    struct store *store;
    bool takes;        /* plays */
    _Atomic bool stop; /* a signal came */
    int ended_fd;      /* readable once the thread has ended */
    int rc;
    struct err err;
};

static bool on_progress(void *arg, uint64_t rows, uint64_t of)
{
    const struct recovering *r = arg;
    server_recovering(r->server, rows, of);
    serve_watch_recovery(rows, of, r->takes);
    return !atomic_load(&r->stop);
}

static void *recover_main(void *arg)
{
    struct recovering *r = arg;
    r->rc = store_recover(r->store, on_progress, r, &r->err);
    eventfd_write(r->ended_fd, 1);
    return NULL;
}

static void wait_for_end(struct recovering *r, int signals_fd, const sigset_t *signals)
{
    struct pollfd fds[] = {{.fd = r->ended_fd, .events = POLLIN}, {.fd = signals_fd, .events = POLLIN}};
    int n;
    do {
        struct signalfd_siginfo info;
        n = poll(fds, 2, -1);
        if (n > 0 && fds[1].revents != 0 && read(signals_fd, &info, sizeof info) == (ssize_t)sizeof info) {
            fds[1].fd = -1;
            serve_watch_stopping((int)info.ssi_signo, signals);
            atomic_store(&r->stop, true);
        }
    } while (n > 0 ? fds[0].revents == 0 : errno == EINTR);
}

static int run(struct recovering *r, int signals_fd, const sigset_t *signals, struct err *err)
{
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, recover_main, r);
    if (rc != 0) {
        return err_set(err, ERR_SYSTEM, "can't start a thread: %s", strerror(rc));
    }
    wait_for_end(r, signals_fd, signals);
    pthread_join(thread, NULL);
    if (atomic_load(&r->stop) && (r->rc == 0 || r->rc == ERR_CLOSED)) {
        return 1;
    }
    if (r->rc < 0) {
        *err = r->err;
    }
    return r->rc;
}

static int recover(struct recovering *r, const sigset_t *signals, struct err *err)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    int rc = ERR_SYSTEM, signals_fd = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
    r->ended_fd = eventfd(0, EFD_CLOEXEC);
    if (signals_fd >= 0 && r->ended_fd >= 0) {
        rc = run(r, signals_fd, signals, err);
    } else {
        err_set(err, ERR_SYSTEM, "can't wait for signals: %s", strerror(errno));
    }
    if (signals_fd >= 0) {
        close(signals_fd);
    }
    if (r->ended_fd >= 0) {
        close(r->ended_fd);
    }
    return rc;
}

/* Whether nothing but the store has a say in whether a play is taken. A replica takes none, one whose writes wait for a
 * replica has none yet that could answer, and whoever needs a lock for writing does not have it yet. The mirror and the
 * front would miss it, since they listen to the feed only once the store has recovered. */
static bool takes_early(const struct config *cfg)
{
    bool alone =
        cfg->replica_of[0] == '\0' && cfg->replica_failover == FAILOVER_NO && config_now(cfg)->replica_ack == ACK_LOCAL;
    bool heard = cfg->legacy_mirror != 0 || front_is_wanted(cfg);
    return alone && !heard;
}

int serve_recover(const struct serve_config *config, struct server *server, struct dedup *dedup, struct dedup *early,
                  const sigset_t *signals, struct err *err)
{
    bool recovers = dedup->store->ops->recover != NULL;
    struct recovering r = {.server = server, .store = dedup->store, .takes = recovers && takes_early(&config->cfg)};
    int rc = 0;
    if (r.takes && (rc = role_new(&config->cfg, dedup->store, &dedup->role, err)) == 0) {
        *early = *dedup;
        rc = server_record(server, early, err);
    }
    if (rc == 0 && recovers) {
        rc = recover(&r, signals, err);
    }
    if (rc == 0 && !r.takes) {
        rc =
            config->front_only ? serve_front_role(dedup, err) : role_new(&config->cfg, dedup->store, &dedup->role, err);
    }
    return rc;
}
