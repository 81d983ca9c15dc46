/* The configuration of a server: as it was given, as the machine allows it, and read again while it runs. */
#ifndef UNSEEN_CLI_SERVE_SERVE_CONFIG_H
#define UNSEEN_CLI_SERVE_SERVE_CONFIG_H

#include "base/err.h"
#include "cli/lib/options.h"
#include "config/config.h"

struct serve_config {
    struct cli_options options;
    const char *port;         /* --port, or NULL */
    struct config cfg;        /* what the server goes by, read with config_now(); outlives its threads */
    struct config configured; /* the same as it was given, before it was fitted to the machine */
};

/* Puts the port in the place of the one that listen has; NULL: leaves it. */
int serve_config_port(struct config *cfg, const char *port, struct err *err);

/* A connection is a file. Raises the limit to what max_clients needs, or lowers max_clients to what the limit allows
 * and says so. */
int serve_config_fit(struct serve_config *c, struct err *err);

/* Reads the file once more, lays environment and command line of the start over it, and puts in force what may change
 * while the server runs; says in the log what changed and what needs a restart. Anything wrong changes nothing: the log
 * says what and in which line, and the result is the first error. Else how many options changed. */
int serve_config_reload(struct serve_config *c, struct err *err);

#endif
