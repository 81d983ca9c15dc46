/* The parts of `unseen replica`. Each returns the exit code. */
#ifndef UNSEEN_CLI_REPLICA_REPLICA_H
#define UNSEEN_CLI_REPLICA_REPLICA_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

/* to: the server's address; NULL: the one that serves the data folder. */
int replica_status(const struct config *cfg, const char *to, const char *user, bool json);

/* Compares all users of two nodes. */
int replica_verify(const struct config *cfg, const char *from, const char *to, const char *user, bool json);

#endif
