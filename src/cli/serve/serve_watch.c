/* The watchdog is fed twice in its interval, and only while every loop and writer has a heartbeat. So a stuck thread is
 * first named in the log, then the service manager kills and restarts the service. Nothing acknowledged is lost by
 * that. */
#include "cli/serve/serve_watch.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/log_ring.h"
#include "base/notify.h"
#include "cli/cli.h"
#include "service/health.h"

enum {
    LOOK_MS = 1000,
    LIMIT_MIN_MS = 3 * HEARTBEAT_EVERY_MS, /* a thread that beats each second is not late */
    EXTEND_S = 60,                         /* asked for whenever the recovery has moved on for a second */
};

struct watch {
    struct worker_pool *pool;
    int64_t fed_us;       /* when the watchdog was fed */
    struct health health; /* as it was last told */
    struct err reload;    /* the last one's; code 0: it was good */
};

void serve_watch_start(void)
{
    notify_start();
    int64_t watchdog = notify_watchdog_ms();
    if (watchdog > 0 && watchdog < HEALTH_LIMIT_MS) {
        health_set_limit(watchdog > LIMIT_MIN_MS ? watchdog : LIMIT_MIN_MS);
    }
    notify_send("STATUS=recovering\nEXTEND_TIMEOUT_USEC=%d000000", EXTEND_S);
}

void serve_watch_failed(const char *why)
{
    notify_start();
    notify_send("STATUS=%s", why);
}

void serve_watch_recovery(uint64_t rows, uint64_t of, bool takes)
{
    static int64_t told_us;
    int64_t now = clock_real_us();
    if (now - told_us >= LOOK_MS * 1000) {
        told_us = now;
        notify_send("STATUS=recovering%s: %" PRIu64 " of %" PRIu64 " staged rows read\nEXTEND_TIMEOUT_USEC=%d000000",
                    takes ? ", plays are taken" : "", rows, of, EXTEND_S);
    }
}

static void quit_at_once(int number)
{
    (void)number;
    log_ring_flush();
    _exit(EXIT_FAILED);
}

/* What was acknowledged is durable at any time. */
static void arm_second_signal(const sigset_t *set)
{
    struct sigaction action = {.sa_handler = quit_at_once};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGHUP, SIG_IGN);
    pthread_sigmask(SIG_UNBLOCK, set, NULL);
}

void serve_watch_stopping(int number, const sigset_t *signals)
{
    log_info("stopping", "signal=%s", sigabbrev_np(number));
    notify_send("STOPPING=1\nSTATUS=stopping: what was begun is answered, both files are checkpointed");
    arm_second_signal(signals);
}

static void tell_status(const struct watch *w, const char *before)
{
    const char *state = w->health.ready ? "ready" : w->health.cause;
    bool bad = w->reload.code < 0;
    notify_send("%sSTATUS=%s%s%s", before, state, bad ? "; the configuration was not read again: " : "",
                bad ? w->reload.text : "");
}

static void look(struct watch *w)
{
    struct health now;
    heartbeat_watch(clock_real_us());
    health_look(w->pool, &now);
    bool other = strcmp(now.stuck, w->health.stuck) != 0;
    if (!now.alive && other) {
        log_error("a thread is stuck", "thread=%s s=%" PRId64, now.stuck, now.stuck_ms / 1000);
    } else if (now.alive && !w->health.alive) {
        log_info("no thread is stuck any more", "");
    }
    bool changed = now.alive != w->health.alive || now.ready != w->health.ready || other;
    w->health = now;
    if (changed) {
        tell_status(w, "");
    }
    int64_t us = clock_real_us(), watchdog_ms = notify_watchdog_ms();
    if (now.alive && watchdog_ms > 0 && us - w->fed_us >= watchdog_ms * 500) {
        w->fed_us = us;
        notify_send("WATCHDOG=1");
    }
}

static void reload(struct watch *w, struct serve_config *config, struct server *server)
{
    w->reload = (struct err){0};
    notify_send("RELOADING=1\nMONOTONIC_USEC=%" PRId64, clock_figures_us());
    int changed = serve_config_reload(config, server, &w->reload);
    if (changed > 0) {
        server_reconfigured(server);
    }
    if (changed >= 0) {
        server_reload_tls(server, &w->reload);
    }
    tell_status(w, "READY=1\n");
}

void serve_watch(const sigset_t *signals, struct serve_config *config, struct server *server,
                 struct serve_backup *backup)
{
    struct watch w = {.pool = server_pool(server), .health = {.alive = true, .ready = true}};
    int64_t quarter_ms = notify_watchdog_ms() / 4; /* so that half of it is not missed by much */
    int64_t ms = quarter_ms > 0 && quarter_ms < LOOK_MS ? quarter_ms : LOOK_MS;
    struct timespec wait = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    tell_status(&w, "READY=1\n");
    heartbeat_watch(clock_real_us());
    for (;;) {
        int number = sigtimedwait(signals, NULL, &wait);
        if (number == SIGHUP) {
            reload(&w, config, server);
        } else if (number > 0) {
            serve_watch_stopping(number, signals);
            return;
        }
        look(&w);
        serve_backup_look(backup);
    }
}
