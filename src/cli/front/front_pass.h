/* What `unseen front` has the server do in the background: begun, and waited for. */
#ifndef UNSEEN_CLI_FRONT_FRONT_PASS_H
#define UNSEEN_CLI_FRONT_FRONT_PASS_H

#include "cli/lib/server.h"

enum { FRONT_TEXT_MAX = 400 };

/* FRONT STATUS. */
int front_ask(struct client *client, const struct reply **map, struct err *err);

/* "front     " and a text of Redis or of a user, printed so that a terminal takes it. */
void front_print(const char *before, struct slice text);
void front_print_named(const struct reply *map);

/* Returns 0, 1 when users differed (reconcile), or an error. Without waiting 0, once it has begun. */
int front_reconcile_all(struct client *client, bool wait, struct err *err);
int front_rebuild_all(struct client *client, bool wait, struct err *err);

#endif
