/* The server's scheduled backups: one a day at backup_at, in its own folders below backup_root, of which the newest
 * backup_keep stay. All on the main thread.
 *
 * A backup is due if none was completed since backup_at last passed. So a missed one is made later, and the first one
 * as soon as backup_at is set. It waits while the clock is doubted. A failed one is tried again after minutes, then
 * after up to an hour. Older ones stay meanwhile, also when the check of a new one finds problems.
 */
#ifndef UNSEEN_CLI_SERVE_SERVE_BACKUP_H
#define UNSEEN_CLI_SERVE_SERVE_BACKUP_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "store/admin.h"
#include "store/store.h"

/* Its folders, which it also deletes, are named by this and a time. BACKUP makes none of such a name. */
#define SERVE_BACKUP_PREFIX STORE_BACKUP_SCHEDULED

/* All zero but for store and cfg. It must outlive the store. */
struct serve_backup {
    struct store *store;
    const struct config *cfg;
    struct store_backup request;
    char root[PATH_MAX], folder[64];
    bool running;
    atomic_bool done; /* set by the store's thread; then request has the result */
    unsigned failures;
    int64_t retry_ms; /* by the monotonic clock: not before */
};

/* Now and then. */
void serve_backup_look(struct serve_backup *b);

#endif
