/* The lock is flock() on DIR/lock, so it ends with the process, however that ends. The file's content is only for those
 * who find it locked: "pid 4711" and "address 127.0.0.1:7979", a line each. */
#include "store/sqlite/db/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/folder_sync.h"
#include "base/log.h"
#include "store/sqlite/sqlite_store.h"

enum { LOCK_TEXT = 1024 };

static int lock_path(const char *folder, char out[PATH_MAX], struct err *err)
{
    if (snprintf(out, PATH_MAX, "%s/lock", folder) >= PATH_MAX) {
        return err_set(err, ERR_INVALID, "the path of the data folder is too long: %s", folder);
    }
    return 0;
}

static int make_part(const char *path, mode_t mode, struct err *err)
{
    if (mkdir(path, mode) < 0) {
        int code = errno == EACCES || errno == EROFS ? ERR_READONLY : errno == ENOSPC ? ERR_FULL : ERR_SYSTEM;
        return errno == EEXIST ? 0 : err_set(err, code, "can't create the data folder %s: %s", path, strerror(errno));
    }
    int result = folder_sync_name(path, err);
    if (result < 0) {
        rmdir(path); /* or the next start would take its name for durable */
    }
    return result;
}

/* mkdir -p, for the last part with mode 0750, durable. What is put into the last one SQLite makes durable. */
static int make_folder(const char *folder, struct err *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", folder);
    for (char *p = path + 1;; p++) {
        if (*p != '/' && *p != '\0') {
            continue;
        }
        char end = *p;
        *p = '\0';
        int result = make_part(path, end == '\0' ? 0750 : 0755, err);
        if (result < 0) {
            return result;
        }
        *p = end;
        if (end == '\0') {
            break;
        }
    }
    struct stat st;
    if (stat(folder, &st) < 0 || !S_ISDIR(st.st_mode)) {
        return err_set(err, ERR_INVALID, "the data folder %s is not a folder", folder);
    }
    return 0;
}

static ssize_t read_lock(int fd, char out[LOCK_TEXT])
{
    ssize_t n = pread(fd, out, LOCK_TEXT - 1, 0);
    out[n > 0 ? n : 0] = '\0';
    return n;
}

/* The rest of the line that begins with the word; "" when there is none. */
static void field(const char *text, const char *word, char *out, size_t out_size)
{
    out[0] = '\0';
    size_t len = strlen(word);
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *end = strchrnul(line, '\n');
        if (strncmp(line, word, len) == 0 && line[len] == ' ') {
            snprintf(out, out_size, "%.*s", (int)(end - line - (ptrdiff_t)len - 1), line + len + 1);
            return;
        }
        line = *end == '\0' ? NULL : end + 1;
    }
}

int folder_lock(const char *folder, struct err *err)
{
    char path[PATH_MAX];
    int result = lock_path(folder, path, err);
    if (result < 0 || (result = make_folder(folder, err)) < 0) {
        return result;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    if (fd < 0) {
        int code = errno == EACCES || errno == EROFS ? ERR_READONLY : errno == ENOSPC ? ERR_FULL : ERR_SYSTEM;
        return err_set(err, code, "can't open %s: %s", path, strerror(errno));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno == EWOULDBLOCK) {
            char text[LOCK_TEXT];
            char pid[64];
            char address[256];
            read_lock(fd, text);
            field(text, "pid", pid, sizeof pid);
            field(text, "address", address, sizeof address);
            result = err_set(err, ERR_LOCKED, "the data folder %s is in use by process %s%s%s", folder,
                             pid[0] != '\0' ? pid : "(unknown)", address[0] != '\0' ? ", a server at " : "", address);
        } else {
            result = err_set(err, ERR_SYSTEM, "can't lock %s: %s", path, strerror(errno));
        }
        close(fd);
        return result;
    }
    /* What is written in it only helps others; on a disk that is full the lock holds all the same. */
    if (folder_publish(folder, fd, "", err) < 0 && err != NULL) {
        log_warn("lock file not written", "error=%s", log_quote_str(err->text));
    }
    return fd;
}

void folder_unlock(const char *folder, int lock_fd)
{
    /* The file stays: removing it would let two processes lock two files of one name. An empty one names nobody. */
    if (ftruncate(lock_fd, 0) < 0) {
        log_debug("lock file not emptied", "folder=%s", log_quote_str(folder));
    }
    close(lock_fd);
}

int folder_publish(const char *folder, int lock_fd, const char *address, struct err *err)
{
    char text[LOCK_TEXT];
    int len = snprintf(text, sizeof text, "pid %ld\n%s%s%s", (long)getpid(), address[0] != '\0' ? "address " : "",
                       address, address[0] != '\0' ? "\n" : "");
    if (len >= (int)sizeof text) {
        return err_set(err, ERR_INVALID, "the server's address is too long: %s", address);
    }
    if (ftruncate(lock_fd, 0) < 0 || pwrite(lock_fd, text, (size_t)len, 0) != len) {
        return err_set(err, errno == ENOSPC ? ERR_FULL : ERR_IO, "can't write %s/lock: %s", folder, strerror(errno));
    }
    return 0;
}

int sqlite_store_address(const char *folder, char *out, size_t out_size, struct err *err)
{
    char path[PATH_MAX];
    int result = lock_path(folder, path, err);
    if (result < 0) {
        return result;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return err_set(err, errno == ENOENT ? ERR_NOTFOUND : ERR_SYSTEM, "can't open %s: %s", path, strerror(errno));
    }
    char text[LOCK_TEXT];
    read_lock(fd, text);
    close(fd);
    field(text, "address", out, out_size);
    return 0;
}

int folder_need(const char *folder, const char *name, struct err *err)
{
    char path[PATH_MAX];
    struct stat st;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path || stat(path, &st) < 0) {
        return err_set(err, ERR_NOTFOUND, "there is no %s in %s", name, folder);
    }
    return 0;
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
