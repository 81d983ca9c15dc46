/* The backups that the server makes by itself: one a day at backup_at, in folders of its own below backup_root, of
 * which the newest backup_keep stay. All of it on the thread that watches over the server.
 *
 * It is due when none was whole since the last time that backup_at passed: so a time that was missed is made up for,
 * and the first backup is made as soon as backup_at is set. It waits while the clock is not believed. One that fails is
 * tried again after minutes, then after up to an hour; the older ones stay, also when the check of a new one finds
 * problems.
 */
#ifndef UNSEEN_CLI_SERVE_SERVE_BACKUP_H
#define UNSEEN_CLI_SERVE_SERVE_BACKUP_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "store/store.h"

/* How the folders are called that it makes, and deletes: this and a time. BACKUP makes none of such a name. */
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
