/* The depot that a subcommand reads: of --from, or of the configuration. */
#ifndef UNSEEN_CLI_ARCHIVE_ARCHIVE_DEPOT_H
#define UNSEEN_CLI_ARCHIVE_ARCHIVE_DEPOT_H

#include <stdbool.h>

#include "archive/catalog.h"
#include "config/config.h"

/* Opens it and lists it. from NULL: archive_url. ERR_INVALID: there is none. */
int archive_depot_open(const struct config *cfg, const char *from, struct depot **d, struct catalog *c,
                       struct err *err);

/* 16 hexadecimal digits. */
bool archive_node_read(const char *text, uint64_t *node);

/* --list: the nodes, their rounds, and the moments that can be had back. */
int archive_list(const struct config *cfg, const char *from, bool json, struct err *err);

#endif
