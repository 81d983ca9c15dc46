/* A server without a folder: serve --front-only. */
#ifndef UNSEEN_CLI_SERVE_SERVE_FRONT_H
#define UNSEEN_CLI_SERVE_SERVE_FRONT_H

#include "config/config.h"
#include "dedup/dedup.h"

/* ERR_INVALID: there is no Redis to answer from, or an option is set that needs a folder; the text names it. */
int serve_front_check(const struct config *cfg, struct err *err);

/* In place of store_open() and role_new(); blocks while it waits for the Redis (front/reader_store.h). */
int serve_front_open(const struct config *cfg, struct store **store, struct err *err);
int serve_front_role(struct dedup *dedup, struct err *err);

#endif
