#include "cli/serve/serve_config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "http/http.h"
#include "resp/server.h"
#include "service/account_file.h"
#include "service/offload.h"

enum {
    /* listeners, logs, the writers of both files, the reader for HTTP, those that may wait for the disk */
    FILES_SPARE = 64 + ROOM_SPARE + 3 * OFFLOAD_COLD_THREADS,
    FILES_PER_WORKER = 16, /* a loop and a reader of both files with WAL and shared memory */
    CLIENTS_MIN = 16,
};

int serve_config_port(const char *port, struct err *err)
{
    size_t digits = port != NULL ? strspn(port, "0123456789") : 0;
    return port == NULL || (digits > 0 && port[digits] == '\0' && strtoul(port, NULL, 10) <= 65535)
               ? 0
               : err_set(err, ERR_INVALID, "--port '%s': expected 0 to 65535", port);
}

/* Replaces the port of listen; the host stays. */
static int set_port(struct config *cfg, const char *port, struct err *err)
{
    char listen[CONFIG_LIST];
    size_t first = strcspn(cfg->listen, ", \t"); /* of several addresses */
    const char *colon = memrchr(cfg->listen, ':', first);
    int host_len = colon != NULL ? (int)(colon - cfg->listen) : 0;
    const char *host = colon != NULL ? cfg->listen : "127.0.0.1";
    int len = snprintf(listen, sizeof listen, "%.*s:%s%s", host_len > 0 ? host_len : (int)strlen(host), host, port,
                       cfg->listen + first);
    if (len < 0 || (size_t)len >= sizeof listen) {
        return err_set(err, ERR_INVALID, "listen '%s': too long", cfg->listen);
    }
    return config_set(cfg, "listen", listen, err);
}

int serve_config_read(const struct cli_options *options, const char *port, config_problem_fn *each, void *arg,
                      struct config *cfg, struct account_set **accounts, struct err *err)
{
    *accounts = NULL;
    int rc = cli_options_build(options, cfg, each, arg, err);
    if (rc == 0 && port != NULL) {
        rc = set_port(cfg, port, err);
    }
    if (rc == 0) {
        rc = config_read_passwords(cfg, err);
    }
    if (rc == 0) {
        rc = config_validate(cfg, err);
    }
    return rc == 0 && cfg->accounts[0] != '\0' ? account_file_read(cfg->accounts, accounts, err) : rc;
}

/* Besides those of clients. */
static rlim_t other_files(const struct config *cfg)
{
    int64_t workers = cfg->workers > 0 ? cfg->workers : sysconf(_SC_NPROCESSORS_ONLN);
    rlim_t files = (rlim_t)(FILES_SPARE + FILES_PER_WORKER * workers);
    return files + (strcmp(cfg->http, "none") != 0 ? HTTP_FILES : 0);
}

uint64_t serve_config_files(const struct config *cfg)
{
    return (uint64_t)cfg->max_clients + other_files(cfg);
}

int64_t serve_config_memory(const struct config *cfg)
{
    return cfg->staging_memory + cfg->request_memory + cfg->history_memory + cfg->pool_memory + cfg->session_memory;
}

int serve_config_fit(struct serve_config *c, struct err *err)
{
    struct config *cfg = &c->cfg;
    c->configured = *cfg;
    struct rlimit limit;
    rlim_t besides = other_files(cfg), need = (rlim_t)serve_config_files(cfg);
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

/* --- while it runs --- */

static void log_problem(void *arg, const char *problem)
{
    ++*(int *)arg;
    log_error("configuration is wrong", "error=%s", log_quote_str(problem));
}

static void log_change(void *arg, const struct config_option *option, const char *before, const char *after)
{
    int *need_restart = arg;
    if (option->change == CHANGE_LIVE) {
        log_info("option changed", "name=%s from=%s to=%s", option->name, log_quote_str(before), log_quote_str(after));
        return;
    }
    ++*need_restart;
    log_warn(option->change == CHANGE_FIXED ? "option not changed: it belongs to the folder"
                                            : "option not changed: it needs a restart",
             "name=%s runs_with=%s file=%s", option->name, log_quote_str(before), log_quote_str(after));
}

/* All at once or nothing. There is no moment at which neither the old nor the new password is asked for: a first file
 * of accounts holds before the options do, any other behind them. */
static int apply(struct serve_config *c, struct server *server, const struct config *read, struct account_set *accounts,
                 int *need_restart, struct err *err)
{
    bool first = config_now(&c->cfg)->accounts[0] == '\0' && accounts != NULL;
    if (first) {
        server_replace_accounts(server, accounts);
    }
    const struct policies *policies = &config_now(&c->cfg)->policies;
    int changed = config_change(&c->cfg, &c->configured, read, log_change, need_restart, err);
    if (changed > 0 && !policies_same(policies, &read->policies)) {
        log_info("policies read again", "policies=%zu", read->policies.n);
    }
    if (changed < 0 && first) {
        server_replace_accounts(server, NULL);
    } else if (changed < 0) {
        account_set_free(accounts);
    } else if (first || server_replace_accounts(server, accounts)) {
        log_info("accounts read again", "file=%s", log_quote_str(read->accounts));
    }
    return changed;
}

int serve_config_reload(struct serve_config *c, struct server *server, struct err *err)
{
    const char *path = c->options.config_path != NULL ? c->options.config_path : "";
    struct config read;
    struct account_set *accounts;
    int need_restart = 0, told = 0;
    int changed = serve_config_read(&c->options, c->port, log_problem, &told, &read, &accounts, err);
    if (changed < 0 && told == 0) {
        log_problem(&told, err->text);
    }
    if (changed == 0) {
        /* A change of the level itself is told, whichever of both would tell it. */
        if (read.log_level > config_now(&c->cfg)->log_level) {
            log_set_level((enum log_level)read.log_level);
        }
        changed = apply(c, server, &read, accounts, &need_restart, err);
        if (changed < 0) {
            err_prefix(err, "until a restart");
            log_problem(&told, err->text);
        }
    }
    if (changed < 0) {
        log_error("configuration not read again, nothing was changed", "file=%s", log_quote_str(path));
    } else {
        log_info("configuration read again", "file=%s changed=%d need_restart=%d", log_quote_str(path), changed,
                 need_restart);
    }
    log_set_level((enum log_level)config_now(&c->cfg)->log_level);
    log_set_format((enum log_format)config_now(&c->cfg)->log_format);
    return changed;
}
