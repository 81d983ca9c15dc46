/* From an open store to one that answers questions: it reads what was staged, while plays are taken and signals heard.
 */
#ifndef UNSEEN_CLI_SERVE_SERVE_RECOVER_H
#define UNSEEN_CLI_SERVE_SERVE_RECOVER_H

#include <signal.h>

#include "cli/serve/serve_config.h"
#include "dedup/dedup.h"
#include "resp/server.h"

/* Blocks until the store has recovered, and sets dedup->role. early: what plays are recorded with meanwhile; it
 * outlives the server's threads. Returns 0; 1: SIGTERM or SIGINT came, and all that may follow is the stop; or an
 * error. */
int serve_recover(const struct serve_config *config, struct server *server, struct dedup *dedup, struct dedup *early,
                  const sigset_t *signals, struct err *err);

#endif
