/* The parts of `unseen replica`. Each returns the exit code. */
#ifndef UNSEEN_CLI_REPLICA_REPLICA_H
#define UNSEEN_CLI_REPLICA_REPLICA_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

/* server: its address; NULL: the one that serves the data folder. */
int replica_status(const struct config *cfg, const char *server, const char *user, bool json);

#endif
