/* Runs the service. This thread starts and stops everything else and keeps all signals to itself:
 *
 *   ports open (clients are told -LOADING) -> the store recovers -> questions are answered -> a signal ->
 *   nothing new is accepted, what was begun is answered -> the store checkpoints and closes
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/versions.h"
#include "dedup/dedup.h"
#include "dedup/sessions.h"
#include "http/http.h"
#include "resp/server.h"
#include "store/sqlite/sqlite_store.h"

static const char help[] = "Runs the service until SIGTERM or SIGINT; a second one ends it at once.\n\n"
                           "Usage: unseen serve [-c FILE] [--data DIR] [--port N] [OPTION ...]\n\n"
                           "Options:\n"
                           "      --port N           the TCP port (0: any free one); the host stays as configured\n"
                           "      --listen HOST:PORT where it listens, 'none': not on TCP\n"
                           "      --unix-socket PATH a Unix socket beside it\n\n"
                           "Examples:\n"
                           "  unseen serve --data /var/lib/unseen\n"
                           "  unseen serve -c /etc/unseen/unseen.conf --port 7980\n"
                           "  unseen serve --data ./data --listen none --unix-socket ./unseen.sock\n";

static const char unix_prefix[] = "unix:";

enum {
    FILES_SPARE = 64,      /* listeners, logs, the writers of both files, the reader for HTTP */
    FILES_PER_WORKER = 16, /* a loop and a reader of both files with WAL and shared memory */
    CLIENTS_MIN = 16,
};

/* Puts the port in the place of the one that listen has. */
static int set_port(struct config *cfg, const char *port, struct err *err)
{
    char listen[CONFIG_TEXT];
    const char *colon = strrchr(cfg->listen, ':');
    char *end;
    unsigned long n = strtoul(port, &end, 10);
    if (port[0] < '0' || port[0] > '9' || *end != '\0' || n > 65535) {
        return err_set(err, ERR_INVALID, "--port '%s': expected 0 to 65535", port);
    }
    int host_len = colon != NULL ? (int)(colon - cfg->listen) : 0;
    const char *host = colon != NULL ? cfg->listen : "127.0.0.1";
    int len = snprintf(listen, sizeof listen, "%.*s:%lu", host_len > 0 ? host_len : (int)strlen(host), host, n);
    if (len < 0 || (size_t)len >= sizeof listen) {
        return err_set(err, ERR_INVALID, "listen '%s': too long", cfg->listen);
    }
    return config_set(cfg, "listen", listen, err);
}

/* A connection is a file. Raises the limit to what max_clients needs, or lowers max_clients to what the limit allows
 * and says so. */
static int fit_files(struct config *cfg, struct err *err)
{
    struct rlimit limit;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t workers = cfg->workers > 0 ? cfg->workers : cores;
    rlim_t besides = (rlim_t)(FILES_SPARE + FILES_PER_WORKER * workers);
    besides += strcmp(cfg->http, "none") != 0 ? HTTP_FILES : 0;
    rlim_t need = (rlim_t)cfg->max_clients + besides;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0) {
        return err_set(err, ERR_SYSTEM, "can't read the limit of open files: %s", strerror(errno));
    }
    if (limit.rlim_cur >= need) {
        return 0;
    }
    struct rlimit wanted = {need, limit.rlim_max > need ? limit.rlim_max : need};
    if (setrlimit(RLIMIT_NOFILE, &wanted) == 0) {
        return 0;
    }
    wanted = (struct rlimit){limit.rlim_max, limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &wanted) < 0) {
        wanted = limit;
    }
    if (wanted.rlim_cur < besides + CLIENTS_MIN) {
        return err_set(err, ERR_SYSTEM,
                       "the limit of open files (ulimit -n, LimitNOFILE=) is %llu, and max_clients = %lld needs %llu",
                       (unsigned long long)wanted.rlim_cur, (long long)cfg->max_clients, (unsigned long long)need);
    }
    int64_t fits = (int64_t)(wanted.rlim_cur - besides);
    log_warn("the limit of open files is too low: max_clients lowered", "limit=%llu needed=%llu max_clients=%lld",
             (unsigned long long)wanted.rlim_cur, (unsigned long long)need, (long long)fits);
    cfg->max_clients = fits;
    return 0;
}

static void block_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static void wait_for_signal(const sigset_t *set)
{
    for (;;) {
        int number;
        if (sigwait(set, &number) != 0) {
            continue;
        }
        if (number != SIGHUP) {
            log_info("stopping", "signal=%s", sigabbrev_np(number));
            return;
        }
        log_warn("SIGHUP: the configuration is read at start only", "");
    }
}

static void quit_at_once(int number)
{
    (void)number;
    _exit(EXIT_FAILED);
}

/* While it stops, a second signal ends the process. What was acknowledged is durable at any time. */
static void arm_second_signal(const sigset_t *set)
{
    struct sigaction action = {.sa_handler = quit_at_once};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGHUP, SIG_IGN);
    pthread_sigmask(SIG_UNBLOCK, set, NULL);
}

static void log_start(const struct config *cfg)
{
    struct versions v;
    versions_get(&v);
    log_info("unseen", "version=%s sqlite=%s libuv=%s xxhash=%s zstd=%s libmicrohttpd=%s jansson=%s data=%s pid=%ld",
             UNSEEN_VERSION, v.sqlite, v.libuv, v.xxhash, v.zstd, v.microhttpd, v.jansson, log_quote_str(cfg->data),
             (long)getpid());
    if (clock_is_test()) {
        log_warn("the clock is a test's", "unix_ms=%" PRId64, clock_wall_ms());
    }
}

static void log_ready(const struct dedup *dedup, const struct server *server, const struct http *http,
                      int64_t started_us)
{
    struct store_stats stats;
    char address[SERVER_ADDRESS_TEXT];
    dedup->store->ops->stats(dedup->store, &stats);
    for (int i = 0; server_address(server, i, address, sizeof address) >= 0; i++) {
        log_info("listening", "address=%s", log_quote_str(address));
    }
    if (http_address(http) != NULL) {
        log_info("listening", "address=%s", log_quote_str(http_address(http)));
    }
    log_info("ready", "seed=%08" PRIx32 " recovered_rows=%" PRIu64 " recovery_ms=%.1f ms=%.1f",
             hash_seed_fingerprint(dedup->seed), stats.recovered_rows, (double)stats.recovery_us / 1000,
             (double)(clock_stopwatch_us() - started_us) / 1000);
}

/* A socket's path is made whole, because whoever reads the lock file may stand in another folder. */
static int publish(struct store *store, const struct server *server, struct err *err)
{
    char address[SERVER_ADDRESS_TEXT], whole[PATH_MAX], text[PATH_MAX + sizeof unix_prefix];
    if (server_address(server, 0, address, sizeof address) < 0) {
        return 0;
    }
    size_t n = sizeof unix_prefix - 1;
    if (strncmp(address, unix_prefix, n) != 0) {
        return sqlite_store_publish(store, address, err);
    }
    if (realpath(address + n, whole) == NULL) {
        return err_set(err, ERR_SYSTEM, "%s: %s", address, strerror(errno));
    }
    snprintf(text, sizeof text, "%s%s", unix_prefix, whole);
    return sqlite_store_publish(store, text, err);
}

/* Sessions that can't be read back are no reason not to serve: they would be gone in minutes. */
static int start_sessions(struct dedup *dedup, struct err *err)
{
    int rc = sessions_new(dedup->cfg, dedup->seed, &dedup->sessions, err);
    struct err lost = {0};
    if (rc == 0 && sessions_restore(dedup->sessions, dedup->store, &lost) < 0) {
        log_error("sessions not restored", "error=%s", log_quote_str(lost.text));
    }
    return rc;
}

static void keep_sessions(const struct dedup *dedup)
{
    struct err err = {0};
    if (dedup->sessions != NULL && sessions_save(dedup->sessions, dedup->store, &err) < 0) {
        log_error("sessions not kept", "error=%s", log_quote_str(err.text));
    }
}

/* From the open ports to the signal. dedup->store is set once it is open. */
static int run(struct config *cfg, struct server *server, struct http *http, struct dedup *dedup,
               const sigset_t *signals, struct err *err)
{
    struct store *store;
    int64_t started_us = clock_stopwatch_us();
    int rc = sqlite_store_open(cfg, NULL, &store, err);
    if (rc < 0) {
        return rc;
    }
    log_start(cfg); /* not before: whoever can't start says why in one line */
    dedup_init(dedup, store, cfg);
    rc = start_sessions(dedup, err);
    if (rc == 0) {
        rc = server_attach(server, dedup, err);
    }
    if (rc == 0) {
        rc = http_attach(http, dedup, err);
    }
    if (rc == 0) {
        rc = publish(store, server, err);
    }
    if (rc == 0) {
        log_ready(dedup, server, http, started_us);
        wait_for_signal(signals);
        arm_second_signal(signals);
    }
    return rc;
}

static int serve(struct config *cfg, struct err *err)
{
    sigset_t signals;
    struct server *server;
    struct http *http;
    struct dedup dedup = {0}; /* outlives every thread */

    block_signals(&signals);
    int rc = fit_files(cfg, err);
    if (rc < 0) {
        return rc;
    }
    rc = server_start(cfg, &server, err);
    if (rc < 0) {
        return rc;
    }
    rc = http_start(cfg, server_crew(server), &http, err);
    if (rc == 0) {
        rc = run(cfg, server, http, &dedup, &signals, err);
    }
    http_stop(http);
    server_stop(server);
    if (dedup.store != NULL) {
        keep_sessions(&dedup);
        dedup.store->ops->close(dedup.store);
    }
    http_free(http);
    server_free(server);
    sessions_free(dedup.sessions);
    if (rc == 0) {
        log_info("stopped", "");
    }
    return rc;
}

int cli_serve(int argc, char **argv)
{
    const char *port = NULL;
    const struct cli_flag flags[] = {{"port", NULL, &port}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"serve", help, "no argument", 0, 0, flags, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    static struct config cfg; /* outlives every thread */
    struct err err;
    if (cli_options_config(&options, &cfg, &err) < 0) {
        return cli_fail(&err);
    }
    if (port != NULL && set_port(&cfg, port, &err) < 0) {
        return cli_misuse("serve", "%s", err.text);
    }
    log_set_level((enum log_level)cfg.log_level);
    return serve(&cfg, &err) < 0 ? cli_fail(&err) : EXIT_GOOD;
}
