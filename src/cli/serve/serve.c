/* Runs the service. This thread starts and stops everything else and handles all signals:
 *
 *   ports open (clients are told -LOADING) -> the store opens, plays are taken -> it recovers, questions are
 *   answered -> a signal -> nothing new is accepted, what was begun is answered -> the store checkpoints and closes
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/log_ring.h"
#include "base/memory_limit.h"
#include "cli/cli.h"
#include "cli/lib/config_json.h"
#include "cli/lib/data_folder.h"
#include "cli/lib/options.h"
#include "cli/lib/versions.h"
#include "cli/serve/serve_beside.h"
#include "cli/serve/serve_config.h"
#include "cli/serve/serve_front.h"
#include "cli/serve/serve_lease.h"
#include "cli/serve/serve_rados.h"
#include "cli/serve/serve_recover.h"
#include "cli/serve/serve_watch.h"
#include "dedup/dedup.h"
#include "dedup/pools.h"
#include "dedup/role.h"
#include "dedup/sessions.h"
#include "front/front.h"
#include "grpc/grpc.h"
#include "http/http.h"
#include "kafka/kafka.h"
#include "legacy/legacy.h"
#include "legacy/mirror.h"
#include "legacy/read_through.h"
#include "registry/lease.h"
#include "registry/registry.h"
#include "replica/clone_mark.h"
#include "replica/replica.h"
#include "replica/second.h"
#include "resp/server.h"
#include "service/account_file.h"
#include "service/health.h"
#include "store/admin.h"
#include "store/bulk.h"
#include "store/factory.h"
#include "store/stats.h"

static const char help[] =
    "Runs the service until SIGTERM or SIGINT; a second one ends it at once.\n\n"
    "Usage: unseen serve [-c FILE] [--data DIR] [--port N] [OPTION ...]\n\n"
    "Options:\n"
    "      --port N           the TCP port (0: any free one); the host stays as configured\n"
    "      --listen HOST:PORT where it listens; none: not on TCP\n"
    "      --unix-socket PATH a Unix socket beside it\n"
    "      --front-only       without a folder: answers questions from what another server keeps\n"
    "                         in the Redis of front_redis, and takes no writes\n"
    "      --new              begin an empty history where the data folder holds none, or serve\n"
    "                         another one than before, although expect_data says otherwise\n\n"
    "Exit code: 0 it was ended; 1 it failed; 2 wrong usage; 78 the configuration is wrong.\n\n"
    "Examples:\n"
    "  unseen serve --data /var/lib/unseen\n"
    "  unseen serve -c /etc/unseen/unseen.conf --port 7989\n"
    "  unseen serve --data ./data --listen none --unix-socket ./unseen.sock\n"
    "  unseen serve --front-only --front-redis 10.0.0.5:6379 --front-max-age 10s\n";

enum { LISTENS_TEXT = CONFIG_ADDRESSES_MAX * SERVER_ADDRESS_TEXT };

static const char unix_prefix[] = "unix:";

static void block_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static void log_start(const struct config *cfg, bool front_only)
{
    struct versions v;
    versions_get(&v);
    log_info("unseen", "version=%s sqlite=%s libuv=%s xxhash=%s zstd=%s %s=%s jansson=%s store=%s data=%s pid=%ld",
             UNSEEN_VERSION, v.sqlite, v.libuv, v.xxhash, v.zstd, v.http_name, v.http, v.jansson,
             front_only ? "front" : store_engines[cfg->store].name,
             front_only || cfg->store != STORE_ENGINE_SQLITE ? "none" : log_quote_str(cfg->data), (long)getpid());
    if (clock_is_test()) {
        log_warn("the clock is a test's", "unix_ms=%" PRId64, clock_wall_ms());
    }
}

/* Old names of options, which still do what they did. */
static void tell_old_names(const struct config *cfg)
{
    struct config defaults;
    config_defaults(&defaults);
    for (size_t i = 0; i < config_options_count; i++) {
        const struct config_option *option = &config_options[i];
        if (option->instead != NULL && config_is_changed(cfg, &defaults, option)) {
            log_warn("an option is set by an old name", "option=%s instead=%s", option->name,
                     log_quote_str(option->instead));
        }
    }
}

/* What the options allow, beside what the process may use: beyond that the kernel ends it, and again at each start. */
static void compare_memory(const struct config *cfg)
{
    const char *from;
    int64_t limit = process_memory_limit("", &from);
    int64_t sum = serve_config_memory(cfg);
    if (limit == 0 || sum <= limit) {
        return;
    }
    log_warn("the options allow more memory than the process may use, set staging_memory = auto or less",
             "limit=%" PRId64 " of=%s sum=%" PRId64 " staging_memory=%" PRId64 " request_memory=%" PRId64
             " history_memory=%" PRId64 " pool_memory=%" PRId64 " session_memory=%" PRId64,
             limit, from, sum, cfg->staging_memory, cfg->request_memory, cfg->history_memory, cfg->pool_memory,
             cfg->session_memory);
}

static void log_ready(const struct dedup *dedup, const struct server *server, int64_t started_us)
{
    struct store_stats stats;
    char address[SERVER_ADDRESS_TEXT];
    dedup->store->ops->stats(dedup->store, &stats);
    for (int i = 0; server_address(server, i, address, sizeof address) >= 0; i++) {
        log_info("listening", "address=%s", log_quote_str(address));
    }
    log_info("ready", "seed=%08" PRIx32 " recovered_rows=%" PRIu64 " recovery_ms=%.1f ms=%.1f",
             hash_seed_fingerprint(dedup->seed), stats.recovered_rows, (double)stats.recovery_us / 1000,
             (double)(clock_figures_us() - started_us) / 1000);
}

/* Of RESP, on TCP, as the option listen has them, with their real ports. */
static const char *resp_addresses(const struct server *server, char out[LISTENS_TEXT])
{
    char address[SERVER_ADDRESS_TEXT];
    size_t len = 0;
    out[0] = '\0';
    for (int i = 0; server_address(server, i, address, sizeof address) >= 0; i++) {
        if (strncmp(address, unix_prefix, sizeof unix_prefix - 1) != 0 && strncmp(address, "http", 4) != 0 &&
            strncmp(address, "grpc", 4) != 0 && len + strlen(address) + 1 < LISTENS_TEXT) {
            len += (size_t)sprintf(out + len, "%s%s", len > 0 ? "," : "", address);
        }
    }
    return out;
}

/* A socket's path is made whole, because a reader of the lock file may stand in another folder. */
static int publish(struct store *store, const struct server *server, struct err *err)
{
    char address[SERVER_ADDRESS_TEXT], whole[PATH_MAX], text[PATH_MAX + sizeof unix_prefix];
    int i = 0;
    while (server_address(server, i, address, sizeof address) >= 0 && strstr(address, "://") != NULL) {
        i++; /* TLS, or HTTP: needs more than an address */
    }
    if (server_address(server, i, address, sizeof address) < 0 &&
        server_address(server, 0, address, sizeof address) < 0) {
        return 0;
    }
    size_t n = sizeof unix_prefix - 1;
    if (strncmp(address, unix_prefix, n) != 0) {
        return store->ops->publish(store, address, err);
    }
    if (realpath(address + n, whole) == NULL) {
        return err_set(err, ERR_SYSTEM, "%s: %s", address, strerror(errno));
    }
    snprintf(text, sizeof text, "%s%s", unix_prefix, whole);
    return store->ops->publish(store, text, err);
}

/* Damage is no reason not to serve: sessions would be gone in minutes. Any other error is: what they hide would be
 * shown, and at the next start they may be read. */
static int start_sessions(struct dedup *dedup, struct err *err)
{
    struct err lost = {0};
    int rc = sessions_new(dedup->cfg, dedup->seed, &dedup->sessions, err);
    if (rc < 0 || (rc = sessions_restore(dedup->sessions, dedup->store, &lost)) == 0) {
        return rc;
    }
    if (rc == ERR_CORRUPT) {
        log_error("sessions not restored", "error=%s", log_quote_str(lost.text));
        return 0;
    }
    sessions_free(dedup->sessions);
    dedup->sessions = NULL; /* or those that were read would replace all that are kept */
    return err_set(err, rc, "the sessions that were kept can't be read: %s", lost.text);
}

static void keep_sessions(const struct dedup *dedup)
{
    struct err err = {0};
    struct sessions_stats stats = {0};
    if (dedup->sessions != NULL && dedup->store->sessions == NULL) {
        sessions_stats(dedup->sessions, &stats);
    }
    if (stats.live > 0) {
        log_warn("scroll sessions end with this node", "store=%s sessions=%" PRIu64, dedup->store->engine, stats.live);
    }
    if (dedup->sessions != NULL && sessions_save(dedup->sessions, dedup->store, &err) < 0) {
        log_error("sessions not kept", "error=%s", log_quote_str(err.text));
    }
}

/* What the registry tells of this server. */
struct told {
    struct server *server;
    const struct dedup *dedup;
};

static void look_at_self(void *arg, struct registry_self *out)
{
    const struct told *told = arg;
    struct health health;
    struct store_node node;
    health_look(server_pool(told->server), &health);
    role_look(told->dedup->role, &node);
    out->well = health.ready;
    snprintf(out->cause, sizeof out->cause, "%s", health.cause);
    out->role = node_role_name(node.role);
}

static int register_server(const struct dedup *dedup, const struct server *server, struct err *err)
{
    char address[SERVER_ADDRESS_TEXT];
    for (int i = 0; server_address(server, i, address, sizeof address) >= 0; i++) {
        registry_add(dedup->registry, address);
    }
    return registry_start(dedup->registry, hash_seed_fingerprint(dedup->seed), err);
}

/* The unit's sandbox forbids as much as a folder's mode or a disk that was mounted to be read. */
static int tell_who_may_write(int rc, const char *folder, struct err *err)
{
    struct err why = *err;
    return rc != ERR_READONLY ? rc
                              : err_set(err, rc,
                                        "%s (the user that Unseen runs as must be allowed to write to %s; under "
                                        "systemd, `systemctl edit unseen` must say so: [Service] ReadWritePaths=%s)",
                                        why.text, folder, folder);
}

struct opening {
    const struct serve_config *config;
    const sigset_t *signals;
    struct store *store;
};

static int open_store(void *arg, struct err *err)
{
    struct opening *o = arg;
    const struct config *cfg = &o->config->cfg;
    if (o->config->front_only) {
        return serve_front_open(cfg, &o->store, err);
    }
    int rc = data_folder_check(cfg, "serve", o->config->begin_new, err);
    if (rc < 0 || (rc = store_begin(cfg, &o->store, err)) < 0) {
        return tell_who_may_write(rc, cfg->data, err);
    }
    if ((rc = clone_mark_check(o->store, cfg->data, err)) < 0 ||
        (rc = data_folder_mark(cfg, o->config->begin_new, o->store, err)) < 0) {
        o->store->ops->close(o->store);
    }
    return rc;
}

/* Nothing was acknowledged yet, so nothing is to be ended in order; and what opens may hang wherever it is. */
static void told_while_opening(void *arg, int number)
{
    const struct opening *o = arg;
    serve_watch_stopping(number, o->signals);
    log_info("stopped", "");
    log_ring_flush();
    _exit(EXIT_GOOD);
}

/* From the open ports to the signal. dedup->store is set once it is open. */
static int run(struct serve_config *config, struct server *server, struct dedup *dedup, struct dedup *early,
               const sigset_t *signals, struct err *err)
{
    const struct config *cfg = &config->cfg;
    struct opening opening = {config, signals, NULL};
    struct told told = {server, dedup};
    char listens[LISTENS_TEXT];
    int64_t started_us = clock_figures_us();
    int rc = serve_beside(&(struct beside){open_store, told_while_opening, &opening}, err);
    if (rc < 0) {
        return rc;
    }
    struct store *store = opening.store;
    log_start(cfg, config->front_only); /* not before: a server that can't start says why in one line */
    compare_memory(cfg);
    tell_old_names(cfg);
    dedup_init(dedup, store, cfg);
    rc = serve_recover(config, server, dedup, early, signals, err);
    if (rc == 1) {
        return 0;
    }
    if (rc == 0) {
        rc = start_sessions(dedup, err);
    }
    if (rc == 0) {
        rc = pools_start(dedup, &dedup->pools, err);
    }
    if (rc == 0) {
        rc = replica_start(dedup, resp_addresses(server, listens), &dedup->replica, err);
    }
    if (rc == 0 && dedup->replica != NULL) {
        dedup->tier = second_tier(dedup->replica->second);
    }
    if (rc == 0 && !config->front_only && (rc = front_start(dedup, &dedup->front, err)) == 0 && dedup->front != NULL) {
        dedup->tier = front_tier(dedup->front);
    }
    if (rc == 0 && !config->front_only) {
        rc = archive_start(dedup, &dedup->archive, err);
    }
    if (rc == 0) {
        rc = legacy_start(dedup, &dedup->legacy, err);
    }
    if (rc == 0) {
        rc = read_through_start(dedup, &dedup->read_through, err);
    }
    if (rc == 0) {
        rc = mirror_start(cfg, store, dedup->role, &dedup->mirror, err);
    }
    if (rc == 0) {
        rc = kafka_start(dedup, &dedup->kafka, err);
    }
    if (rc == 0) {
        rc = registry_new(cfg, look_at_self, &told, &dedup->registry, err);
    }
    if (rc == 0) {
        rc = serve_lease_new(dedup, err);
    }
    if (rc == 0) {
        rc = server_attach(server, dedup, err);
    }
    if (rc == 0) {
        rc = publish(store, server, err);
    }
    if (rc == 0) {
        rc = register_server(dedup, server, err);
    }
    if (rc == 0) {
        rc = serve_lease_start(dedup, err);
    }
    if (rc == 0) {
        log_ready(dedup, server, started_us);
        static struct serve_backup backup; /* the store may still answer it */
        backup = (struct serve_backup){.store = store, .cfg = cfg};
        serve_watch(signals, config, server, &backup);
    }
    registry_stop(dedup->registry); /* so that no more clients are sent here */
    return rc;
}

static void stop_long_work(struct store *store)
{
    if (store->admin != NULL) {
        store->admin->backup_stop(store); /* or its client would be waited for */
    }
    if (store->bulk != NULL) {
        store->bulk->stop(store); /* or the migration, for as long as a reader holds history's WAL */
    }
}

static int serve(struct serve_config *config, struct err *err)
{
    const struct config *cfg = &config->cfg;
    sigset_t signals;
    struct server *server;
    struct http *http;
    struct grpc *grpc = NULL;
    struct listeners beside = {.n = 0};
    struct dedup dedup = {0}, early = {0}; /* outlive every thread */

    block_signals(&signals);
    int rc = log_begin(err);
    if (rc < 0) {
        return rc;
    }
    serve_watch_start();
    rc = serve_config_fit(config, err);
    if (rc < 0) {
        return rc;
    }
    rc = http_open(cfg, &beside, &http, err);
    if (rc < 0) {
        listeners_free(&beside);
        return rc;
    }
    rc = grpc_open(cfg, &beside, &grpc, err);
    if (rc == 0) {
        rc = server_start(cfg, &beside, &server, err);
    } else {
        listeners_free(&beside);
    }
    if (rc < 0) {
        grpc_free(grpc);
        http_free(http);
        return rc;
    }
    rc = run(config, server, &dedup, &early, &signals, err);
    if (dedup.store != NULL) {
        stop_long_work(dedup.store);
    }
    server_stop(server);
    lease_stop(dedup.lease); /* nothing is written here any more: another one may at once */
    front_stop(dedup.front);
    archive_stop(dedup.archive);
    replica_stop(dedup.replica);
    pools_stop(dedup.pools);
    legacy_stop(dedup.legacy);
    mirror_stop(dedup.mirror);
    kafka_stop(dedup.kafka);
    if (dedup.store != NULL) {
        keep_sessions(&dedup);
        dedup.store->ops->close(dedup.store);
    }
    server_free(server);
    grpc_free(grpc);
    http_free(http);
    registry_free(dedup.registry);
    lease_free(dedup.lease);
    read_through_free(dedup.read_through);
    mirror_free(dedup.mirror);
    kafka_free(dedup.kafka);
    sessions_free(dedup.sessions);
    pools_free(dedup.pools);
    legacy_free(dedup.legacy);
    front_free(dedup.front);
    archive_free(dedup.archive);
    replica_free(dedup.replica);
    role_free(dedup.role);
    if (rc == 0) {
        log_info("stopped", "");
    }
    return rc;
}

/* As cli_fail(), behind what was logged; a reader that stands can't keep the process from its end. */
static int fail(const struct err *err)
{
    serve_watch_failed(err->text);
    log_last(err->text);
    return EXIT_FAILED;
}

int cli_serve(int argc, char **argv)
{
    const char *port = NULL;
    bool front_only = false, begin_new = false;
    const struct cli_flag flags[] = {
        {"port", NULL, &port}, {"front-only", &front_only, NULL}, {"new", &begin_new, NULL}, {NULL, NULL, NULL}};
    const struct cli_syntax syntax = {"serve", help, "no argument", 0, 0, flags, false};
    static struct serve_config config; /* outlives every thread */
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &config.options, &exit_code)) {
        return exit_code;
    }
    struct err err;
    struct account_set *accounts;
    if (serve_config_port(port, &err) < 0) {
        return cli_misuse("serve", "%s", err.text);
    }
    int rc = serve_config_read(&config.options, port, NULL, NULL, &config.cfg, &accounts, &err);
    account_set_free(accounts); /* server_start() keeps its own */
    if (rc == 0) {
        rc = cli_options_zone(&config.cfg, &err);
    }
    log_set_level((enum log_level)config.cfg.log_level);
    log_set_format((enum log_format)config.cfg.log_format);
    config.port = port;
    config.front_only = front_only;
    config.begin_new = begin_new;
    if (rc == 0 && front_only) {
        rc = serve_front_check(&config.cfg, &err);
    }
    if (rc == 0) {
        rc = serve_rados_check(&config.cfg, &err);
    }
    if (rc < 0) {
        (void)fail(&err);
        return EXIT_CONFIG;
    }
    exit_code = serve(&config, &err) < 0 ? fail(&err) : EXIT_GOOD;
    config_forget_changes(&config.cfg);
    return exit_code;
}
