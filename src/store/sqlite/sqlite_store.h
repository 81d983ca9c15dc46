/* The embedded store: two SQLite files in one folder, a stager thread and a historian thread. */
#ifndef UNSEEN_STORE_SQLITE_STORE_H
#define UNSEEN_STORE_SQLITE_STORE_H

#include "store/store.h"

/* The sqlite3_vfs to use; NULL is the system's. Tests pass one that fails or loses writes. */
struct sqlite_store_options {
    const char *vfs;
};

/* Takes the folder's lock (creating the folder), opens or upgrades both files, recovers what is staged, starts the
 * threads. cfg must outlive the store. Returns 0, or ERR_LOCKED, ERR_VERSION, ERR_CORRUPT, ERR_SEED,
 * ERR_READONLY, ERR_IO ... with one sentence that says what and where. */
int sqlite_store_open(const struct config *cfg, const struct sqlite_store_options *options, struct store **store,
                      struct err *err);

/* Writes into the lock file how the running server is reached ("127.0.0.1:7979", "unix:/run/x.sock"), for
 * commands that find the folder locked. */
int sqlite_store_publish(struct store *store, const char *address, struct err *err);

/* Reads that address from a folder whose lock is held: "" when none is written yet. ERR_NOTFOUND without a lock
 * file. */
int sqlite_store_address(const char *folder, char *out, size_t out_size, struct err *err);

#endif
