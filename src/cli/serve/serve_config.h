/* The configuration of a server: as it was given, as the machine allows it, and read again while it runs. */
#ifndef UNSEEN_CLI_SERVE_SERVE_CONFIG_H
#define UNSEEN_CLI_SERVE_SERVE_CONFIG_H

#include "base/err.h"
#include "cli/lib/options.h"
#include "config/config.h"

struct account_set;
struct server;

struct serve_config {
    struct cli_options options;
    const char *port;         /* --port, or NULL */
    bool front_only;          /* --front-only */
    bool begin_new;           /* --new */
    struct config cfg;        /* the configuration that the server uses, read with config_now(); outlives its threads */
    struct config configured; /* the same as it was given, before it was fitted to the machine */
};

/* Whether --port is a port: 0, or ERR_INVALID. NULL, as it was not given, is good. */
int serve_config_port(const char *port, struct err *err);

/* The configuration as a server runs with it, in the one order that is right: defaults, file, environment, command
 * line,
 * --port (NULL: none), then the passwords that stand in files, then what concerns several options, then the file of
 * accounts, which is tried. At the start, at a reload, and for check-config. *accounts is the caller's; NULL: there is
 * no file. Problems of file and environment go to each() as cli_options_build() has it; the first error is the result,
 * and `cfg` is then of no use. */
int serve_config_read(const struct cli_options *options, const char *port, config_problem_fn *each, void *arg,
                      struct config *cfg, struct account_set **accounts, struct err *err);

/* How many open files a server of this configuration needs, and how much memory its options allow. */
uint64_t serve_config_files(const struct config *cfg);
int64_t serve_config_memory(const struct config *cfg);

/* Raises the limit of open files to what max_clients needs, or lowers max_clients to what the limit allows and logs
 * that. */
int serve_config_fit(struct serve_config *c, struct err *err);

/* Reads the file again, with the environment and the command line of the start over it, and the accounts, and applies
 * options that may change while the server runs. Logs what changed and what needs a restart. A mistake changes nothing:
 * it is logged with its line, and the result is the first error. Otherwise returns how many options changed. */
int serve_config_reload(struct serve_config *c, struct server *server, struct err *err);

#endif
