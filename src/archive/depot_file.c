/* A depot in a folder, of this machine or of another one that is mounted. An object is written under a temporary name,
 * synced, and gets its own name, which is synced, too: so after a kill or a power cut it is there as a whole, or what
 * is left of it has a name that begins with a dot, and is no object. */
#include "archive/depot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder_sync.h"

enum { DEPTH_MAX = 4, READ_BYTES = 1024 * 1024 };

static const char part[] = ".part-";
static const char mark[] = ".unseen-archive"; /* in the root of each depot that was written to */

struct file_depot {
    struct depot depot;
    char root[PATH_MAX];
    char durable[DEPOT_NAME_MAX]; /* the folder whose name, and those above it, were synced last; "": none */
    uint64_t puts;
};

static struct file_depot *file_depot(struct depot *d)
{
    return (struct file_depot *)d;
}

static int failed(struct err *err, const char *what, const char *path)
{
    int code = errno == ENOSPC || errno == EDQUOT ? ERR_FULL : errno == ENOENT ? ERR_NOTFOUND : ERR_SYSTEM;
    return err_set(err, code, "can't %s %s: %s", what, path, strerror(errno));
}

static int path_of(const struct file_depot *f, const char *name, char out[PATH_MAX], struct err *err)
{
    return snprintf(out, PATH_MAX, "%s/%s", f->root, name) < PATH_MAX
               ? 0
               : err_set(err, ERR_INVALID, "the path %s/%s is too long", f->root, name);
}

/* A mount point without its mount is a folder, too, but has no mark. */
static int look_for_mark(const struct file_depot *f, struct err *err)
{
    char path[PATH_MAX];
    int rc = path_of(f, mark, path, err);
    if (rc == 0 && access(path, F_OK) < 0) {
        rc = errno != ENOENT ? failed(err, "find", path)
                             : err_set(err, ERR_NOTFOUND,
                                       "%s is not what was archived to before, which has the file %s: it is not "
                                       "mounted, or was emptied; to begin there all the same, make that file",
                                       f->root, mark);
    }
    return rc;
}

static int make_mark(const struct file_depot *f, struct err *err)
{
    char path[PATH_MAX];
    int rc = path_of(f, mark, path, err);
    int fd = rc < 0 ? -1 : open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
    if (fd < 0) {
        return rc < 0 ? rc : failed(err, "make", path);
    }
    close(fd);
    return folder_sync_name(path, err);
}

/* The folders of an object, below the root, each durable before anything is put into it. One that is there already may
 * be that of an earlier try, which did not get as far as to sync it. */
static int make_folders(struct file_depot *f, const char *name, struct err *err)
{
    char path[PATH_MAX];
    size_t len = (size_t)(strrchr(name, '/') - name);
    if (strlen(f->durable) == len && strncmp(f->durable, name, len) == 0) {
        return 0;
    }
    for (const char *at = strchr(name, '/'); at != NULL; at = strchr(at + 1, '/')) {
        if (snprintf(path, sizeof path, "%s/%.*s", f->root, (int)(at - name), name) >= (int)sizeof path) {
            return err_set(err, ERR_INVALID, "the path %s/%s is too long", f->root, name);
        }
        if (mkdir(path, 0750) < 0 && errno != EEXIST) {
            return failed(err, "make the folder", path);
        }
        int rc = folder_sync_name(path, err);
        if (rc < 0) {
            return rc;
        }
    }
    snprintf(f->durable, sizeof f->durable, "%.*s", (int)len, name);
    return 0;
}

static int write_all(int fd, struct slice bytes)
{
    for (size_t at = 0; at < bytes.len;) {
        ssize_t n = write(fd, bytes.data + at, bytes.len - at);
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        at += n > 0 ? (size_t)n : 0;
    }
    return fsync(fd);
}

static int file_get(struct depot *d, const char *name, size_t most, struct buf *out, struct err *err)
{
    char path[PATH_MAX];
    int rc = path_of(file_depot(d), name, path, err);
    int fd = rc < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return rc < 0 ? rc : failed(err, "read", path);
    }
    size_t left = most == 0 ? SIZE_MAX : most;
    while (rc == 0 && left > 0) {
        size_t step = left < READ_BYTES ? left : READ_BYTES;
        if (buf_reserve(out, step) < 0) {
            rc = err_set(err, ERR_NOMEM, "out of memory while %s is read", name);
            break;
        }
        ssize_t n = read(fd, out->data + out->len, step);
        if (n == 0) {
            break;
        }
        if (n > 0) {
            out->len += (size_t)n;
            left -= (size_t)n;
        } else if (errno != EINTR) {
            rc = failed(err, "read", path);
        }
    }
    close(fd);
    return rc;
}

/* What stands there was written by an earlier try, whose answer was not heard; or it is another object. */
static int compare(struct depot *d, const char *name, const char *path, struct slice bytes, struct err *err)
{
    struct buf there = {0};
    int rc = file_get(d, name, 0, &there, err);
    if (rc == 0 && !slice_eq(buf_slice(&there), bytes)) {
        rc = err_set(err, ERR_INVALID, "%s is there already, with other bytes", path);
    }
    buf_free(&there);
    return rc < 0 ? rc : folder_sync_name(path, err);
}

static int put(struct depot *d, const char *name, struct slice bytes, struct err *err)
{
    struct file_depot *f = file_depot(d);
    char path[PATH_MAX], temporary[PATH_MAX];
    int rc = look_for_mark(f, err);
    rc = rc < 0 ? rc : make_folders(f, name, err);
    if (rc < 0 || (rc = path_of(f, name, path, err)) < 0) {
        return rc;
    }
    int folder = (int)(strrchr(path, '/') - path);
    if (snprintf(temporary, sizeof temporary, "%.*s/%s%ld-%llu", folder, path, part, (long)getpid(),
                 (unsigned long long)f->puts++) >= (int)sizeof temporary) {
        return err_set(err, ERR_INVALID, "the path %s is too long", path);
    }
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0) {
        return failed(err, "write", temporary);
    }
    bool written = write_all(fd, bytes) == 0;
    written = close(fd) == 0 && written;
    if (!written) {
        rc = failed(err, "write", temporary);
    } else if (link(temporary, path) == 0) { /* not rename(): what is there is never replaced */
        rc = folder_sync_name(path, err);
    } else if (errno == EEXIST) {
        rc = compare(d, name, path, bytes, err);
    } else if (errno == EPERM || errno == EOPNOTSUPP || errno == EMLINK) { /* no links on that file system */
        rc = access(path, F_OK) == 0        ? compare(d, name, path, bytes, err)
             : rename(temporary, path) == 0 ? folder_sync_name(path, err)
                                            : failed(err, "write", path);
    } else {
        rc = failed(err, "write", path);
    }
    unlink(temporary);
    return rc;
}

/* What was unmounted meanwhile has not got it. */
static int file_put(struct depot *d, const char *name, struct slice bytes, struct err *err)
{
    int rc = put(d, name, bytes, err);
    return rc < 0 ? rc : look_for_mark(file_depot(d), err);
}

/* --- lists --- */

struct listing {
    struct file_depot *f;
    depot_each *each;
    void *arg;
};

static int list_folder(const struct listing *l, const char *name, int depth, struct err *err)
{
    char path[PATH_MAX], below[DEPOT_NAME_MAX];
    struct stat st;
    int rc = path_of(l->f, name, path, err);
    if (rc < 0) {
        return rc;
    }
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return errno == ENOENT && name[0] != '\0' ? 0 : failed(err, "read the folder", path);
    }
    errno = 0;
    for (struct dirent *e = readdir(dir); e != NULL && rc == 0; errno = 0, e = readdir(dir)) {
        if (e->d_name[0] == '.' || snprintf(below, sizeof below, "%s%s", name, e->d_name) >= (int)sizeof below) {
            continue;
        }
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            rc = errno == ENOENT ? 0 : failed(err, "look at a file of", path);
        } else if (S_ISREG(st.st_mode)) {
            rc = l->each(l->arg, below, (uint64_t)st.st_size, err);
        } else if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX && strlen(below) + 1 < sizeof below) {
            strcat(below, "/");
            rc = list_folder(l, below, depth + 1, err);
        }
    }
    if (rc == 0 && errno != 0) {
        rc = failed(err, "read the folder", path);
    }
    closedir(dir);
    return rc;
}

static int file_list(struct depot *d, const char *folder, depot_each *each, void *arg, struct err *err)
{
    const struct listing l = {file_depot(d), each, arg};
    return list_folder(&l, folder, 0, err);
}

/* An empty folder goes along, up to the root. */
static int file_remove(struct depot *d, const char *name, struct err *err)
{
    char path[PATH_MAX];
    struct file_depot *f = file_depot(d);
    int rc = path_of(f, name, path, err);
    if (rc < 0) {
        return rc;
    }
    if (unlink(path) < 0 && errno != ENOENT) {
        return failed(err, "delete", path);
    }
    size_t root = strlen(f->root);
    for (char *end = strrchr(path, '/'); end != NULL && (size_t)(end - path) > root; end = strrchr(path, '/')) {
        *end = '\0';
        if (rmdir(path) < 0) {
            break;
        }
        f->durable[0] = '\0'; /* it may be that one, or one above it */
    }
    return 0;
}

static void file_tidy(struct depot *d, const char *folder)
{
    char path[PATH_MAX], below[DEPOT_NAME_MAX];
    struct err ignored;
    DIR *dir = path_of(file_depot(d), folder, path, &ignored) == 0 ? opendir(path) : NULL;
    for (struct dirent *e = dir != NULL ? readdir(dir) : NULL; e != NULL; e = readdir(dir)) {
        struct stat st;
        if (strncmp(e->d_name, part, sizeof part - 1) == 0) {
            unlinkat(dirfd(dir), e->d_name, 0);
        } else if (e->d_name[0] != '.' && fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                   S_ISDIR(st.st_mode) &&
                   snprintf(below, sizeof below, "%s%s/", folder, e->d_name) < (int)sizeof below) {
            file_tidy(d, below);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static int file_versions(struct depot *d, struct err *err)
{
    (void)d, (void)err;
    return DEPOT_VERSIONS_NONE;
}

static void file_close(struct depot *d)
{
    free(d);
}

static const struct depot_ops file_ops = {file_put,  file_get,      file_list, file_remove,
                                          file_tidy, file_versions, file_close};

int depot_file_open(const struct depot_order *order, struct depot **d, struct err *err)
{
    const char *folder = order->url + strlen(DEPOT_FILE);
    struct stat st;
    struct file_depot *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    f->depot.ops = &file_ops;
    int rc = 0;
    if (snprintf(f->root, sizeof f->root, "%s", folder) >= (int)sizeof f->root) {
        rc = err_set(err, ERR_INVALID, "the path %s is too long", folder);
    }
    for (size_t len = strlen(f->root); len > 1 && f->root[len - 1] == '/'; len--) {
        f->root[len - 1] = '\0';
    }
    if (rc == 0 && order->make && (mkdir(f->root, 0750) == 0 || errno == EEXIST)) {
        rc = folder_sync_name(f->root, err);
    }
    if (rc == 0 && stat(f->root, &st) < 0) {
        rc = failed(err, "find the folder", f->root);
    } else if (rc == 0 && !S_ISDIR(st.st_mode)) {
        rc = err_set(err, ERR_INVALID, "%s is no folder", f->root);
    }
    if (rc == 0 && order->writes) {
        rc = order->make ? make_mark(f, err) : look_for_mark(f, err);
    }
    if (rc < 0) {
        free(f);
        return rc;
    }
    *d = &f->depot;
    return 0;
}
