/* The folder of a backup. Until the copy is complete its files have names that nothing opens.
 *
 * The sender of BACKUP names a folder below one that the operator chose. So the path is walked from there name by name,
 * each opened relative to the one before, and no link is followed. Missing folders are made for the owner alone. The
 * new files are made in the folder that is held open, before SQLite, which knows only paths, opens them. The first sync
 * of the copy checks that SQLite opened these same files.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/folder_sync.h"
#include "base/log.h"
#include "base/owner.h"
#include "store/sqlite/admin/backup.h"
#include "store/sqlite/db/folder.h"

enum { NAME_ROOM = 32 }; /* for the longest name in it */

static int system_error(struct err *err, const char *what, const char *path)
{
    int code = errno == EACCES || errno == EPERM || errno == EROFS ? ERR_READONLY
               : errno == ENOSPC || errno == EDQUOT                ? ERR_FULL
                                                                   : ERR_SYSTEM;
    return err_set(err, code, "%s %s: %s%s", what, path, strerror(errno),
                   code == ERR_READONLY
                       ? " (the user that Unseen runs as must be allowed to write there; under systemd, "
                         "`systemctl edit unseen` must say so: [Service] ReadWritePaths=)"
                       : "");
}

static int need_empty(const struct backup_folder *f, struct err *err)
{
    int fd = openat(f->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        int result = system_error(err, "can't read the folder", f->path);
        if (fd >= 0) {
            close(fd);
        }
        return result;
    }
    int result = 0;
    for (struct dirent *entry = readdir(dir); entry != NULL && result == 0; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            bool ours = strstr(entry->d_name, ".partial.db") != NULL;
            result =
                err_set(err, ERR_INVALID, "%s is not empty, it holds %s%s: a copy needs a folder of its own", f->path,
                        log_quote_str(entry->d_name), ours ? " of a backup that runs or was cut short" : "");
        }
    }
    closedir(dir);
    return result;
}

/* What of the path lies below the root; NULL: it doesn't. */
static const char *below(const char *path, const char *root)
{
    size_t len = strlen(root);
    while (len > 1 && root[len - 1] == '/') {
        len--;
    }
    return strncmp(path, root, len) == 0 && (path[len] == '/' || path[len] == '\0') ? path + len : NULL;
}

/* Opens where the walk begins, and fills in its path. Returns what is left to walk. */
static const char *open_start(struct backup_folder *f, const char *path, const char *root, struct err *err)
{
    const char *rest = path;
    if (root == NULL) {
        /* What is there may be links; what is made is none. */
        char there[PATH_MAX];
        size_t len = strlen(path);
        do {
            snprintf(there, sizeof there, "%.*s", (int)len, path);
            if (realpath(len > 0 ? there : "/", f->path) != NULL) {
                f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                return path + len;
            }
            for (; len > 0 && path[len - 1] == '/'; len--) {
            }
            for (; len > 0 && path[len - 1] != '/'; len--) {
            }
        } while (errno == ENOENT);
        system_error(err, "can't find the folder", there);
        return NULL;
    }
    if (mkdir(root, 0700) < 0 && errno != EEXIST) {
        system_error(err, "can't create backup_root", root);
        return NULL;
    }
    if (realpath(root, f->path) == NULL) {
        system_error(err, "can't find backup_root", root);
        return NULL;
    }
    if (path[0] == '/' && (rest = below(path, root)) == NULL && (rest = below(path, f->path)) == NULL) {
        err_set(err, ERR_INVALID, "%s is outside of backup_root, expected a folder below %s", log_quote_str(path),
                log_quote_str(root));
        return NULL;
    }
    if (rest[strspn(rest, "/.")] == '\0') {
        err_set(err, ERR_INVALID, "%s is backup_root itself, expected a folder below it", log_quote_str(path));
        return NULL;
    }
    f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return rest;
}

/* Enters a folder by its name, and makes it when it is missing. */
static int enter(struct backup_folder *f, const char *name, struct err *err)
{
    size_t len = strcmp(f->path, "/") == 0 ? 0 : strlen(f->path);
    if (len + 1 + strlen(name) + NAME_ROOM >= sizeof f->path) {
        return err_set(err, ERR_INVALID, "the path of the backup's folder is too long");
    }
    f->path[len] = '/';
    strcpy(f->path + len + 1, name);
    bool made = mkdirat(f->fd, name, 0700) == 0;
    if (!made && errno != EEXIST) {
        return system_error(err, "can't create the folder", f->path);
    }
    if (made) {
        owner_as_folder(f->path);
    }
    f->created_from = made && f->created_from == 0 ? len + 1 : f->created_from;
    int fd = openat(f->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        struct stat st;
        bool link = fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
        return link               ? err_set(err, ERR_INVALID, "%s is a link, which a backup does not follow", f->path)
               : errno == ENOTDIR ? err_set(err, ERR_INVALID, "%s is a file, expected a folder or nothing", f->path)
                                  : system_error(err, "can't enter the folder", f->path);
    }
    close(f->fd);
    f->fd = fd;
    return 0;
}

static int walk(struct backup_folder *f, const char *path, const char *root, struct err *err)
{
    char names[PATH_MAX];
    const char *rest = open_start(f, path, root, err);
    if (rest == NULL) {
        return err->code;
    }
    if (f->fd < 0) {
        return errno == ENOTDIR ? err_set(err, ERR_INVALID, "%s is a file, expected a folder or nothing", f->path)
                                : system_error(err, "can't enter the folder", f->path);
    }
    if (snprintf(names, sizeof names, "%s", rest) >= (int)sizeof names) {
        return err_set(err, ERR_INVALID, "the path of the backup's folder is too long");
    }
    char *next = names;
    int result = 0;
    for (char *name = strsep(&next, "/"); name != NULL && result == 0; name = strsep(&next, "/")) {
        if (name[0] == '\0' || strcmp(name, ".") == 0) {
            continue;
        }
        if (strcmp(name, "..") == 0 && root != NULL) {
            return err_set(err, ERR_INVALID, "%s leads out of a folder by .., expected a folder below %s",
                           log_quote_str(path), log_quote_str(root));
        }
        result = enter(f, name, err);
    }
    return result;
}

/* Removes the folders that were made, if they are empty. */
static void remove_created(const struct backup_folder *f)
{
    char path[PATH_MAX];
    strcpy(path, f->path);
    for (size_t len = strlen(path); f->created_from > 0 && len >= f->created_from;
         len = (size_t)(strrchr(path, '/') - path)) {
        path[len] = '\0';
        if (rmdir(path) < 0 && errno != ENOENT) {
            log_warn("folder of a failed backup not removed", "folder=%s error=%s", log_quote_str(path),
                     log_quote_str(strerror(errno)));
            return;
        }
    }
}

static int create_file(const struct backup_folder *f, const char *name, struct err *err)
{
    char path[PATH_MAX + NAME_ROOM];
    snprintf(path, sizeof path, "%s/%s.db", f->path, name);
    int fd = openat(f->fd, strrchr(path, '/') + 1, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return system_error(err, "can't write into the folder", f->path);
    }
    close(fd);
    owner_as_folder(path);
    return 0;
}

int backup_folder_take(struct backup_folder *f, const char *path, const char *root, const char *data, struct err *err)
{
    *f = (struct backup_folder){.fd = -1};
    if (path[0] != '/' && root == NULL) {
        return err_set(err, ERR_INVALID, "the backup's folder is %s, expected a whole path, from / on",
                       log_quote_str(path));
    }
    struct stat here;
    struct stat there;
    int result = walk(f, path, root, err);
    if (result == 0 && (result = need_empty(f, err)) == 0 && (fstat(f->fd, &here) < 0 || stat(data, &there) < 0)) {
        result = system_error(err, "can't look at the folder", f->path);
    }
    if (result == 0 && (result = create_file(f, STAGING_PARTIAL, err)) == 0) {
        f->files = true;
        result = create_file(f, HISTORY_PARTIAL, err);
    }
    if (result < 0) {
        backup_folder_remove(f);
        return result;
    }
    f->same_disk = here.st_dev == there.st_dev;
    return 0;
}

void backup_folder_leave(struct backup_folder *f)
{
    if (f->fd >= 0) {
        close(f->fd);
        f->fd = -1;
    }
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
    struct stat here;
    struct stat there;
    snprintf(path, sizeof path, "%s/%s.db", f->path, name);
    int fd = openat(f->fd, strrchr(path, '/') + 1, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return system_error(err, "can't open", path);
    }
    if (fstat(fd, &here) < 0 || lstat(path, &there) < 0 || here.st_dev != there.st_dev || here.st_ino != there.st_ino) {
        close(fd);
        return err_set(err, ERR_IO, "%s is another file than the one that was made: the folder was moved", path);
    }
    return fd;
}

/* Makes the names of the folders that were made durable. */
static int sync_created(const struct backup_folder *f, struct err *err)
{
    char path[PATH_MAX];
    int result = 0;
    strcpy(path, f->path);
    for (size_t len = strlen(path); f->created_from > 0 && len >= f->created_from && result == 0;) {
        len = (size_t)(strrchr(path, '/') - path);
        path[len] = '\0';
        result = folder_sync(len > 0 ? path : "/", err);
    }
    return result;
}

static int sync_itself(const struct backup_folder *f, struct err *err)
{
    return fsync(f->fd) == 0 ? 0 : err_set(err, ERR_IO, "can't sync the folder %s: %s", f->path, strerror(errno));
}

static int give_name(const struct backup_folder *f, const char *partial, const char *name, bool *given, struct err *err)
{
    char from[NAME_ROOM];
    char to[NAME_ROOM];
    snprintf(from, sizeof from, "%s.db", partial);
    snprintf(to, sizeof to, "%s.db", name);
    if (renameat(f->fd, from, f->fd, to) < 0) {
        return system_error(err, "can't rename a file in", f->path);
    }
    *given = true;
    return 0;
}

int backup_folder_complete(struct backup_folder *f, struct err *err)
{
    int result = sync_itself(f, err);
    if (result < 0 || (result = give_name(f, STAGING_PARTIAL, "staging", &f->staging_named, err)) < 0 ||
        (result = sync_itself(f, err)) < 0 ||
        (result = give_name(f, HISTORY_PARTIAL, "history", &f->history_named, err)) < 0 ||
        (result = sync_itself(f, err)) < 0) {
        return result;
    }
    return sync_created(f, err);
}

static void remove_file(const struct backup_folder *f, const char *name, const char *suffix)
{
    char path[NAME_ROOM];
    snprintf(path, sizeof path, "%s.db%s", name, suffix);
    if (unlinkat(f->fd, path, 0) < 0 && errno != ENOENT) {
        log_warn("file of a failed backup not removed", "file=%s error=%s", log_quote_str(path),
                 log_quote_str(strerror(errno)));
    }
}

void backup_folder_remove(struct backup_folder *f)
{
    static const char *const names[] = {HISTORY_PARTIAL, STAGING_PARTIAL};
    static const char *const suffixes[] = {"", "-journal", "-wal", "-shm"};
    if (f->history_named) {
        remove_file(f, "history", "");
    }
    if (f->staging_named) {
        remove_file(f, "staging", "");
    }
    for (size_t i = 0; i < sizeof names / sizeof *names && f->files; i++) {
        for (size_t j = 0; j < sizeof suffixes / sizeof *suffixes; j++) {
            remove_file(f, names[i], suffixes[j]);
        }
    }
    backup_folder_leave(f);
    remove_created(f);
}

uint64_t backup_file_size(const char *folder, const char *name)
{
    char path[PATH_MAX + 32];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}
