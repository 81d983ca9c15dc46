/* The parts of a hot backup: the copy of one file, its folder, and the backup under way. */
#ifndef UNSEEN_STORE_SQLITE_ADMIN_BACKUP_H
#define UNSEEN_STORE_SQLITE_ADMIN_BACKUP_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "store/admin.h"
#include "store/sqlite/db/db.h"
#include "store/store.h"

struct sqlite_store;

/* The files' names, without ".db", until the copy is complete. */
#define STAGING_PARTIAL "staging.partial"
#define HISTORY_PARTIAL "history.partial"

/* --- backup_copy.c: one file, page by page. Each function on the thread of the source's connection --- */

struct copy {
    struct db *source;
    sqlite3 *to;
    char path[PATH_MAX];
    int64_t page_size;
    int64_t done, total; /* bytes; the total moves with the source */
    unsigned restarts;   /* times that it had to begin again */
};

/* Fills folder/name.db, which is there and empty. */
int copy_begin(struct copy *c, struct db *source, const char *folder, const char *name, const char *vfs,
               struct err *err);

/* Copies for about that long, or that many bytes. 1: there is more, 0: the copy equals the source, or an error. */
int copy_step(struct copy *c, int64_t us, int64_t bytes, struct err *err);

/* Closes it, whole or not. All zero is fine. */
void copy_end(struct copy *c);

/* --- backup_folder.c --- */

struct backup_folder {
    char path[PATH_MAX];
    int fd;              /* -1: not open */
    size_t created_from; /* where in path the first newly made folder begins; 0: none was made */
    bool files;          /* some were made */
    bool same_disk;      /* as the data folder */
    bool staging_named, history_named;
};

/* Makes the folder and those above it, or takes an empty one that is writable. It must be below root, where no link is
 * followed, and path may be relative to root. NULL: the caller may write anywhere. ERR_INVALID, ERR_READONLY, ERR_FULL,
 * ERR_SYSTEM. */
int backup_folder_take(struct backup_folder *f, const char *path, const char *root, const char *data, struct err *err);
void backup_folder_leave(struct backup_folder *f); /* lets go of it */

/* ERR_FULL when `bytes` don't fit, or, on the data folder's own disk, would leave less than min_free. */
int backup_folder_room(const struct backup_folder *f, int64_t bytes, int64_t min_free, struct err *err);

/* Opens a file of it for fsync. ERR_IO: its path leads elsewhere by now. */
int backup_folder_open(const struct backup_folder *f, const char *name, struct err *err);

/* Gives the files their names, staging.db first, so that an interrupted copy is not a folder that starts. Durable when
 * it returns. */
int backup_folder_complete(struct backup_folder *f, struct err *err);

/* Removes what was made, and lets go of it. */
void backup_folder_remove(struct backup_folder *f);

uint64_t backup_file_size(const char *folder, const char *name); /* 0: there is none */

/* --- backup_mend.c: makes copies from two moments consistent --- */

/* A forget, kept until the copies are made. */
int backup_note_forget(struct buf *forgotten, const struct store_forget *forget);

/* In the copy of staging.db: deletes the rows of the forgets and raises the highest row id. */
int backup_mend_staging(const char *folder, const char *vfs, const struct buf *forgotten, uint64_t seed,
                        uint64_t high_water, struct err *err);

/* Makes the copy one plain file, readable without writing beside it. */
int backup_close_wal(const char *folder, const char *name, const char *vfs, struct err *err);

/* --- the backup: backup.c starts and ends it, backup_make.c, on its thread, makes the copy --- */

struct backup {
    struct sqlite_store *s;
    struct store_backup *request;
    pthread_t thread;
    struct backup_folder folder;
    struct copy copy; /* the thread's; while history is copied, the historian's */
    int fd;           /* of the file being copied, for its fsync; -1: not open yet */
    int64_t began_us;
    uint64_t n_problems;

    _Atomic bool cancelled;
    _Atomic int64_t copied, synced; /* bytes of the file being copied */

    /* under store.backup_mutex */
    pthread_cond_t wake; /* the thread's */
    enum store_backup_phase phase;
    uint64_t done, total;
    int64_t before; /* bytes of the files copied before this one */
    bool noting;    /* forgets are noted */
    struct buf forgotten;
    bool handed_over; /* the historian may copy */
    bool ended;       /* the thread is at its end */
    int result;       /* of the historian's part: 1 while it copies */
    struct err err;
};

/* Makes both copies in the folder, which the caller has taken. After an error the caller removes what is left. */
int backup_make(struct backup *b, struct err *err);

/* --- for the other rooms --- */

void backup_start(struct store *base, struct store_backup *request);
void backup_state(struct store *base, struct store_backup_state *out);
void backup_stop(struct store *base);
/* When the last backup was complete, across restarts: read at the start, written by the stager after a new one. */
int backup_time_load(struct sqlite_store *s, struct err *err);
void backup_time_save(struct sqlite_store *s);
void backup_join(struct sqlite_store *s); /* waits for its thread to end */
/* The historian's: copies some pages of history, for a few milliseconds. Returns whether there is more to do at
 * once. */
bool backup_step(struct sqlite_store *s);
/* The historian's: it has carried out a forget. */
void backup_forgot(struct sqlite_store *s, const struct store_forget *forget);

#endif
