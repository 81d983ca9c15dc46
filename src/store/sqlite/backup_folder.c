/* The folder of a backup. The files have names that nothing opens until the copy is whole. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "store/sqlite/backup.h"
#include "store/sqlite/folder.h"

enum { NAME_ROOM = 32 }; /* for the longest name in it */

static int system_error(struct err *err, const char *what, const char *path)
{
    int code = errno == EACCES || errno == EPERM || errno == EROFS ? ERR_READONLY
               : errno == ENOSPC || errno == EDQUOT                ? ERR_FULL
                                                                   : ERR_SYSTEM;
    return err_set(err, code, "%s %s: %s%s", what, path, strerror(errno),
                   code == ERR_READONLY ? " (the user that Unseen runs as must be allowed to write there)" : "");
}

static int need_empty(const char *path, struct err *err)
{
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return system_error(err, "can't read the folder", path);
    }
    int result = 0;
    for (struct dirent *entry = readdir(dir); entry != NULL && result == 0; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            bool ours = strstr(entry->d_name, ".partial.db") != NULL;
            result = err_set(err, ERR_INVALID, "%s is not empty, it holds %s%s: a backup needs a folder of its own",
                             path, log_quote_str(entry->d_name), ours ? " of a backup that runs or was cut short" : "");
        }
    }
    closedir(dir);
    return result;
}

int backup_folder_take(struct backup_folder *f, const char *path, const char *data, struct err *err)
{
    *f = (struct backup_folder){0};
    if (path[0] != '/') {
        return err_set(err, ERR_INVALID, "the backup's folder is %s, expected a whole path, from / on",
                       log_quote_str(path));
    }
    if (strlen(path) + NAME_ROOM >= sizeof f->path) {
        return err_set(err, ERR_INVALID, "the path of the backup's folder is too long");
    }
    strcpy(f->path, path);
    if (mkdir(path, 0750) == 0) {
        f->created = true;
    } else if (errno != EEXIST) {
        return system_error(err, "can't create the folder", path);
    }
    struct stat here;
    struct stat there;
    int result = 0;
    if (stat(path, &here) < 0 || stat(data, &there) < 0) {
        result = system_error(err, "can't look at the folder", path);
    } else if (!S_ISDIR(here.st_mode)) {
        result = err_set(err, ERR_INVALID, "%s is a file, expected a folder or nothing", path);
    } else if ((result = need_empty(path, err)) == 0 && access(path, W_OK | X_OK) < 0) {
        result = system_error(err, "can't write into the folder", path);
    }
    if (result < 0) {
        if (f->created) {
            rmdir(path);
        }
        return result;
    }
    f->same_disk = here.st_dev == there.st_dev;
    return 0;
}

int backup_folder_room(const struct backup_folder *f, int64_t bytes, int64_t min_free, struct err *err)
{
    int64_t room = folder_free_bytes(f->path);
    int64_t keep = f->same_disk ? min_free : 0;
    if (room < 0 || room - keep >= bytes) {
        return 0;
    }
    return err_set(err, ERR_FULL, "the disk of %s has room for %lld MiB, the copy takes some %lld MiB%s", f->path,
                   (long long)(room >> 20), (long long)((bytes + (1 << 20) - 1) >> 20),
                   f->same_disk ? ", and min_free is to be left, for it is the disk of the data folder" : "");
}

int backup_folder_open(const struct backup_folder *f, const char *name, struct err *err)
{
    char path[PATH_MAX + NAME_ROOM];
    snprintf(path, sizeof path, "%s/%s.db", f->path, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    return fd >= 0 ? fd : system_error(err, "can't open", path);
}

static int sync_folder(const char *path, struct err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return system_error(err, "can't open the folder", path);
    }
    int result = fsync(fd) == 0 ? 0 : err_set(err, ERR_IO, "can't sync the folder %s: %s", path, strerror(errno));
    close(fd);
    return result;
}

/* Makes the folder's own name durable. */
static int sync_parent(const char *path, struct err *err)
{
    char parent[PATH_MAX];
    strcpy(parent, path);
    for (size_t len = strlen(parent); len > 1 && parent[len - 1] == '/'; len--) {
        parent[len - 1] = '\0';
    }
    char *slash = strrchr(parent, '/');
    slash[slash == parent ? 1 : 0] = '\0';
    return sync_folder(parent, err);
}

static int give_name(const struct backup_folder *f, const char *partial, const char *name, bool *given, struct err *err)
{
    char from[PATH_MAX + NAME_ROOM];
    char to[PATH_MAX + NAME_ROOM];
    snprintf(from, sizeof from, "%s/%s.db", f->path, partial);
    snprintf(to, sizeof to, "%s/%s.db", f->path, name);
    if (rename(from, to) < 0) {
        return system_error(err, "can't rename", from);
    }
    *given = true;
    return 0;
}

int backup_folder_complete(struct backup_folder *f, struct err *err)
{
    int result = sync_folder(f->path, err);
    if (result < 0 || (result = give_name(f, STAGING_PARTIAL, "staging", &f->staging_named, err)) < 0 ||
        (result = sync_folder(f->path, err)) < 0 ||
        (result = give_name(f, HISTORY_PARTIAL, "history", &f->history_named, err)) < 0 ||
        (result = sync_folder(f->path, err)) < 0) {
        return result;
    }
    return f->created ? sync_parent(f->path, err) : 0;
}

static void remove_file(const struct backup_folder *f, const char *name, const char *suffix)
{
    char path[PATH_MAX + NAME_ROOM];
    snprintf(path, sizeof path, "%s/%s.db%s", f->path, name, suffix);
    if (unlink(path) < 0 && errno != ENOENT) {
        log_warn("file of a failed backup not removed", "file=%s error=%s", log_quote_str(path),
                 log_quote_str(strerror(errno)));
    }
}

void backup_folder_remove(const struct backup_folder *f)
{
    static const char *const names[] = {HISTORY_PARTIAL, STAGING_PARTIAL};
    static const char *const suffixes[] = {"", "-journal", "-wal", "-shm"};
    if (f->history_named) {
        remove_file(f, "history", "");
    }
    if (f->staging_named) {
        remove_file(f, "staging", "");
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (size_t j = 0; j < sizeof suffixes / sizeof *suffixes; j++) {
            remove_file(f, names[i], suffixes[j]);
        }
    }
    if (f->created && rmdir(f->path) < 0 && errno != ENOENT) {
        log_warn("folder of a failed backup not removed", "folder=%s error=%s", log_quote_str(f->path),
                 log_quote_str(strerror(errno)));
    }
}

uint64_t backup_file_size(const char *folder, const char *name)
{
    char path[PATH_MAX + 32];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}
