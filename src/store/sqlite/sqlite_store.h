/* The embedded store: two SQLite files in one folder, a stager thread and a historian thread. */
#ifndef UNSEEN_STORE_SQLITE_STORE_H
#define UNSEEN_STORE_SQLITE_STORE_H

#include <stdbool.h>

#include "store/export.h"
#include "store/store.h"

/* All of it may be NULL. */
struct sqlite_store_options {
    const char *vfs;  /* the sqlite3_vfs to use instead of the system's; tests pass one that fails or loses writes */
    int64_t built_ms; /* at a first start no clock before it is believed; 0: clock_built_ms() */
};

/* The version of the SQLite that runs, such as "3.40.1". */
const char *sqlite_store_library_version(void);

/* Takes the folder's lock (creating the folder), opens or upgrades both files, and starts the stager, so that batches
 * are taken; if no slot is empty they wait until one is read. ops->recover() must follow. cfg must outlive the store.
 * Returns 0, or ERR_LOCKED, ERR_VERSION, ERR_CORRUPT, ERR_SEED, ERR_READONLY, ERR_IO ... with one sentence that says
 * what and where. */
int sqlite_store_begin(const struct config *cfg, const struct sqlite_store_options *options, struct store **store,
                       struct err *err);

/* Both. */
int sqlite_store_open(const struct config *cfg, const struct sqlite_store_options *options, struct store **store,
                      struct err *err);

/* Whether the folder has anything of a database, be it only a log. */
bool sqlite_store_holds_data(const char *folder);

/* Reads what publish() wrote from a folder whose lock is held: "" when none is written yet. ERR_NOTFOUND without a lock
 * file. */
int sqlite_store_address(const char *folder, char *out, size_t out_size, struct err *err);

/* Checks both files of a folder completely: SQLite's own check, every blob, keys, totals, orphans, and what is in
 * quarantine. Calls found() with a sentence for each problem, and progress() from time to time (it may be NULL).
 * served: another process has the lock, so the files are only read, as they are; else it takes the lock meanwhile:
 * ERR_LOCKED when it can't. ERR_NOTFOUND when a file is missing; nothing is created. Returns the number of problems, or
 * an error. Blocks. */
int sqlite_check_folder(const char *folder, bool served, void (*found)(void *arg, const char *problem),
                        void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, struct err *err);

/* What to do with plays and deliveries whose row in users is lost, so that it can't be told whose they are. */
enum sqlite_nameless {
    NAMELESS_KEEP, /* a row without a name: the user with that key gets answers from them, and the name comes back */
    NAMELESS_DROP,
};

/* Accepts the loss of whatever can't be read in either file, so that its users are answered without it. Calls did()
 * with a sentence for each thing that is lost or mended, and progress() as above. Takes the folder's lock meanwhile:
 * ERR_LOCKED when a server runs. Returns how many things, or an error, after which nothing is changed. Blocks. */
int sqlite_repair_folder(const char *folder, enum sqlite_nameless nameless, void (*did)(void *arg, const char *what),
                         void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, struct err *err);

/* What repairs have given up, so that it can be asked for elsewhere: a user's month (month 0: their deliveries), or
 * the user's name (SQLITE_LOSS_NAME). Read with the folder's lock; ERR_LOCKED when a server runs, ERR_FULL when there
 * is more than SQLITE_LOSSES_MAX of it. */
enum { SQLITE_LOSS_NAME = -1, SQLITE_LOSSES_MAX = 1000 * 1000 };
struct sqlite_loss {
    int64_t key; /* of the user */
    int month;
};
struct sqlite_losses {
    struct sqlite_loss *list; /* by key, each once */
    size_t n, cap;
    uint64_t seed; /* of the folder; 0: none yet */
};
int sqlite_losses_list(const char *folder, struct sqlite_losses *out, struct err *err);
/* These are no losses any more: their bytes leave `quarantine`. All or none. */
int sqlite_losses_mended(const char *folder, const struct sqlite_losses *mended, struct err *err);
int sqlite_losses_add(struct sqlite_losses *l, struct sqlite_loss loss, struct err *err);
void sqlite_losses_free(struct sqlite_losses *l);

/* Saves what can be read of a damaged folder, whose files may be cut short, overwritten in part or missing, into
 * another one, which is new or empty. The damaged one is only read; its lock is taken meanwhile. did(): a sentence for
 * each loss. Users who may have lost plays are marked in the new folder's quarantine, so that their questions get an
 * error until `unseen check --repair` accepts it. Returns how many losses were told, or an error, after which there is
 * no new folder. Blocks. */
struct sqlite_salvage {
    const char *folder, *target; /* target: a whole path */
    const uint64_t *seed;        /* for a history.db whose own can't be read; NULL: not given */
    void (*did)(void *arg, const char *what);
    void (*progress)(void *arg, uint64_t done, uint64_t total); /* rows; total 0: not known */
    void *arg;
};
int sqlite_salvage_folder(const struct sqlite_salvage *order, struct err *err);

/* Packs users (store/codec/user_snapshot.h) out of a folder, in the order of their keys: those whose key is from .. to
 * and that wanted() takes. A server may have the folder: its files are only read, staging first, then history in short
 * snapshots, so that its WAL can shrink. Plays flushed meanwhile are packed twice, which is harmless for a union.
 * Without a server the folder's lock is taken. Each blob is checked; a damaged one is left out, marked in the snapshot
 * and reported to damaged(). */
/* Returns 0; what begin() or snapshot() returned; ERR_NOTFOUND when a file is missing (nothing is created);
 * ERR_CORRUPT, ERR_IO, ERR_NOMEM. Blocks. */
int sqlite_export_folder(const char *folder, const struct store_export *e, struct err *err);

#endif
