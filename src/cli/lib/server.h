/* What subcommands share that do nothing but ask a running server: finding it, and reading the maps that it answers. */
#ifndef UNSEEN_CLI_LIB_SERVER_H
#define UNSEEN_CLI_LIB_SERVER_H

#include <stdint.h>

#include "cli/lib/output.h"
#include "cli/lib/pipeline.h"
#include "net/client.h"

/* Where the server is asked: as the lock file of the data folder says, "" when it says nothing yet; with store = rados,
 * as the configuration of a node on this machine does. */
int server_address_of(const struct config *cfg, char *out, size_t size, struct err *err);

/* Connects to the server at an address of client_connect(), or, with NULL, to the one that serves the data folder, or
 * to the node of this configuration. ERR_NOTFOUND: there is none. */
int server_connect(const struct config *cfg, const char *to, struct client **client, struct err *err);
/* user: the account; NULL: that of $UNSEEN_USER, if it names one. */
int server_connect_user(const struct config *cfg, const char *to, const char *user, struct client **client,
                        struct err *err);

/* The same, as a pipeline of that effort, whose label tells that the server is busy. The address lives until the next
 * call. */
int server_pipeline(const struct config *cfg, const char *to, const char *label, struct pipeline **pipeline,
                    struct err *err);

/* One command, whose answer is a map with that field, or, of no field, the text. ERR_VERSION: another answer, as of a
 * server that is none of ours. */
int server_ask_map(struct client *client, const struct slice *words, size_t n, const char *field,
                   const struct reply **map, struct err *err);
/* The same with a list of such maps. */
int server_ask_list(struct client *client, const struct slice *words, size_t n, const char *field,
                    const struct reply **list, struct err *err);
int server_ask_text(struct client *client, const struct slice *words, size_t n, const char *text, struct err *err);

/* For answers that are told apart by other means. */
int server_something_else(const char *address, const char *command, const char *expected, struct err *err);

/* Fields of a map. One that isn't there is 0, or "". */
int64_t reply_signed(const struct reply *map, const char *name);
uint64_t reply_count(const struct reply *map, const char *name);
void reply_copy(const struct reply *map, const char *name, char *out, size_t size);

/* The map's texts and numbers as members of the open object. */
void reply_json(struct json *j, const struct reply *map);

#endif
