#include "store/sqlite/db/folder.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "store/sqlite/sqlite_store.h"

int folder_need(const char *folder, const char *name, struct err *err)
{
    char path[PATH_MAX];
    struct stat st;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path || stat(path, &st) < 0) {
        return err_set(err, ERR_NOTFOUND, "there is no %s in %s", name, folder);
    }
    return 0;
}

bool sqlite_store_holds_data(const char *folder)
{
    static const char *const names[] = {"history.db", "staging.db", "history.db-wal", "staging.db-wal"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (folder_file_bytes(folder, names[i]) > 0) {
            return true;
        }
    }
    return false;
}

int folder_note(const char *folder, const char *name, struct folder_file *file, struct err *err)
{
    char path[PATH_MAX];
    struct stat st;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path || stat(path, &st) < 0) {
        return err_set(err, ERR_IO, "%s/%s: %s", folder, name, strerror(errno));
    }
    *file = (struct folder_file){st.st_dev, st.st_ino};
    return 0;
}

int folder_tell_gone(const char *path, struct err *err)
{
    return err_set(err, ERR_IO,
                   "%s: the file was removed or put aside while it is open, or another one is in its place: nothing is "
                   "written until it is back",
                   path);
}

int folder_has(const char *folder, const char *name, const struct folder_file *file, struct err *err)
{
    struct folder_file now;
    if (folder_note(folder, name, &now, err) == 0 && now.device == file->device && now.inode == file->inode) {
        return 0;
    }
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return folder_tell_gone(path, err);
}

int64_t folder_free_bytes(const char *folder)
{
    struct statvfs st;
    if (statvfs(folder, &st) < 0) {
        return -1;
    }
    return (int64_t)st.f_bavail * (int64_t)st.f_frsize;
}

uint64_t folder_disk_bytes(const char *folder)
{
    struct statvfs st;
    return statvfs(folder, &st) == 0 ? (uint64_t)st.f_blocks * (uint64_t)st.f_frsize : 0;
}

uint64_t folder_file_bytes(const char *folder, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path || stat(path, &st) < 0) {
        return 0;
    }
    return (uint64_t)st.st_size;
}
