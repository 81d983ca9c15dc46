/* What the main thread does while the server runs: takes signals, looks after its health, and tells the service
 * manager.
 */
#ifndef UNSEEN_CLI_SERVE_SERVE_WATCH_H
#define UNSEEN_CLI_SERVE_SERVE_WATCH_H

#include <signal.h>
#include <stdint.h>

#include "cli/serve/serve_backup.h"
#include "cli/serve/serve_config.h"
#include "resp/server.h"

/* Before the threads start: finds the service manager, and sets the patience of health to its watchdog's. */
void serve_watch_start(void);

/* It can't start, or ends for an error: tells the service manager why. */
void serve_watch_failed(const char *why);

/* While the store recovers: asks for more time as long as it moves on. takes: plays are taken meanwhile. */
void serve_watch_recovery(uint64_t rows, uint64_t of, bool takes);

/* At SIGTERM or SIGINT: says so. From here on a second one ends the process. */
void serve_watch_stopping(int number, const sigset_t *signals);

/* The server is ready. Returns at SIGTERM or SIGINT, behind serve_watch_stopping(). SIGHUP reads the configuration
 * again. Meanwhile backups are made by their schedule. */
void serve_watch(const sigset_t *signals, struct serve_config *config, struct server *server,
                 struct serve_backup *backup);

#endif
