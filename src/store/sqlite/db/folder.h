/* What is in a data folder, and on its disk. */
#ifndef UNSEEN_STORE_SQLITE_DB_FOLDER_H
#define UNSEEN_STORE_SQLITE_DB_FOLDER_H

#include <stdint.h>

#include <sys/types.h>

#include "base/err.h"

/* ERR_NOTFOUND, naming both, when the folder has no such file. */
int folder_need(const char *folder, const char *name, struct err *err);

/* Which file a name stands for, and whether it is still that one: 0, or ERR_IO. */
struct folder_file {
    dev_t device;
    ino_t inode;
};
int folder_note(const char *folder, const char *name, struct folder_file *file, struct err *err);
int folder_has(const char *folder, const char *name, const struct folder_file *file, struct err *err);
int folder_tell_gone(const char *path, struct err *err);

/* Room for more on the folder's device, -1 when unknown. */
int64_t folder_free_bytes(const char *folder);

/* The size of its disk, and of a file in it; 0 when that can't be found out. */
uint64_t folder_disk_bytes(const char *folder);
uint64_t folder_file_bytes(const char *folder, const char *name);

#endif
