/* The lock of a data folder: one process has it, until it ends, however that ends.
 *
 * What is locked is the folder itself, which has no other name to be removed by, and its file `lock`, which says to
 * those that find it locked who has it, and which 0.1.0 locks alone. A file `lock` that is removed or replaced while
 * the folder is locked is noticed, and put back. On a file system that locks no folders (NFS) the file alone is what
 * keeps others away: there, and where a 0.1.0 was started meanwhile, two processes may have the folder for as long as
 * it takes to notice, and the first one writes no more.
 */
#ifndef UNSEEN_STORE_SQLITE_DB_FOLDER_LOCK_H
#define UNSEEN_STORE_SQLITE_DB_FOLDER_LOCK_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/err.h"

struct folder_lock {
    int folder;            /* the folder, open */
    bool locked;           /* the folder itself, too */
    pthread_mutex_t mutex; /* of what follows */
    int file;              /* `lock`; -1: there is none and none can be made (read-only media, another user's folder) */
    char path[PATH_MAX];
    char address[512]; /* as published; "": none */
};

/* Creates the folder (0750), and takes the lock. 0; ERR_LOCKED, naming the holder; or another error. */
int folder_lock(const char *folder, struct folder_lock *lock, struct err *err);
void folder_unlock(struct folder_lock *lock);

/* Writes pid and address into `lock`. */
int folder_publish(struct folder_lock *lock, const char *address, struct err *err);

/* Looks whether `lock` is still the file that was locked, and puts it back if it isn't. 0: no other process has the
 * folder; ERR_IO: another one has, or nothing keeps others away any more. By any thread. */
int folder_lock_keep(struct folder_lock *lock, struct err *err);

#endif
