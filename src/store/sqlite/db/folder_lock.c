/* Both locks are flock()'s: they go with the open file, so no other descriptor of this process can release them. The
 * file's content is only for those who find it locked: "pid 4711" and "address 127.0.0.1:7979", a line each. */
#include "store/sqlite/db/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder_sync.h"
#include "base/log.h"
#include "base/owner.h"
#include "store/sqlite/sqlite_store.h"

static const char lock_name[] = "lock";
enum {
    LOCK_TEXT = 1024,
    FOR_OTHERS = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, /* the folder's owner may have put anything in its place */
};

static int make_part(const char *path, mode_t mode, struct err *err)
{
    if (mkdir(path, mode) < 0) {
        int code = errno == EACCES || errno == EROFS ? ERR_READONLY : errno == ENOSPC ? ERR_FULL : ERR_SYSTEM;
        return errno == EEXIST ? 0 : err_set(err, code, "can't create the data folder %s: %s", path, strerror(errno));
    }
    owner_as_folder(path);
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

static void read_lock(int fd, char out[LOCK_TEXT])
{
    ssize_t n = fd >= 0 ? pread(fd, out, LOCK_TEXT - 1, 0) : 0;
    out[n > 0 ? n : 0] = '\0';
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

/* `fd`, which may be -1: the file `lock`, that says who. */
static int tell_locked(const struct folder_lock *lock, int fd, struct err *err)
{
    char text[LOCK_TEXT], pid[64], address[256];
    read_lock(fd, text);
    field(text, "pid", pid, sizeof pid);
    field(text, "address", address, sizeof address);
    return err_set(err, ERR_LOCKED, "the data folder %s is in use by process %s%s%s", lock->path,
                   pid[0] != '\0' ? pid : "(unknown)", address[0] != '\0' ? ", a server at " : "", address);
}

static int lock_folder(struct folder_lock *lock, struct err *err)
{
    lock->locked = flock(lock->folder, LOCK_EX | LOCK_NB) == 0;
    if (lock->locked || errno != EWOULDBLOCK) {
        return 0; /* any other error: this file system locks no folder */
    }
    int fd = openat(lock->folder, lock_name, O_RDONLY | FOR_OTHERS);
    int result = tell_locked(lock, fd, err);
    if (fd >= 0) {
        close(fd);
    }
    return result;
}

/* Opens and locks the file of that name. Where it can't be written it is locked all the same, since it may be a
 * 0.1.0's; where there is none either, a lock of the folder must do. */
static int lock_file(struct folder_lock *lock, struct err *err)
{
    int fd = openat(lock->folder, lock_name, O_RDWR | O_CREAT | FOR_OTHERS, 0640);
    if (fd < 0) {
        int error = errno;
        if (error == EACCES || error == EROFS || error == EPERM) {
            fd = openat(lock->folder, lock_name, O_RDONLY | FOR_OTHERS);
        }
        if (fd < 0 && errno == ENOENT && lock->locked) {
            return 0;
        }
        if (fd < 0) {
            int code = error == EACCES || error == EROFS ? ERR_READONLY : error == ENOSPC ? ERR_FULL : ERR_SYSTEM;
            return err_set(err, code, "can't open %s/lock: %s", lock->path, strerror(error));
        }
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        int result = errno == EWOULDBLOCK
                         ? tell_locked(lock, fd, err)
                         : err_set(err, ERR_SYSTEM, "can't lock %s/lock: %s", lock->path, strerror(errno));
        close(fd);
        return result;
    }
    lock->file = fd;
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/lock", lock->path) < (int)sizeof path) {
        owner_as_folder(path);
    }
    return 0;
}

static bool writable(const struct folder_lock *lock)
{
    return lock->file >= 0 && (fcntl(lock->file, F_GETFL) & O_ACCMODE) == O_RDWR;
}

static int write_who(struct folder_lock *lock, struct err *err)
{
    char text[LOCK_TEXT];
    const char *address = lock->address;
    int len = snprintf(text, sizeof text, "pid %ld\n%s%s%s", (long)getpid(), address[0] != '\0' ? "address " : "",
                       address, address[0] != '\0' ? "\n" : "");
    if (!writable(lock)) {
        return err_set(err, ERR_READONLY, "%s/lock can't be written", lock->path);
    }
    if (ftruncate(lock->file, 0) < 0 || pwrite(lock->file, text, (size_t)len, 0) != len) {
        return err_set(err, errno == ENOSPC ? ERR_FULL : ERR_IO, "can't write %s/lock: %s", lock->path,
                       strerror(errno));
    }
    return 0;
}

/* What is written in it only helps others; on a disk that is full the lock holds all the same. */
static void say_who(struct folder_lock *lock)
{
    struct err err = {0};
    if (writable(lock) && write_who(lock, &err) < 0) {
        log_warn("lock file not written", "error=%s", log_quote_str(err.text));
    }
}

int folder_lock(const char *folder, struct folder_lock *lock, struct err *err)
{
    *lock = (struct folder_lock){.folder = -1, .file = -1};
    if (snprintf(lock->path, sizeof lock->path, "%s", folder) + (int)sizeof "/lock" > PATH_MAX) {
        return err_set(err, ERR_INVALID, "the path of the data folder is too long: %s", folder);
    }
    int result = make_folder(folder, err);
    if (result < 0) {
        return result;
    }
    lock->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock->folder < 0) {
        int code = errno == EACCES ? ERR_READONLY : ERR_SYSTEM;
        return err_set(err, code, "can't open the data folder %s: %s", folder, strerror(errno));
    }
    pthread_mutex_init(&lock->mutex, NULL);
    if ((result = lock_folder(lock, err)) < 0 || (result = lock_file(lock, err)) < 0) {
        close(lock->folder);
        pthread_mutex_destroy(&lock->mutex);
        return result;
    }
    say_who(lock);
    return 0;
}

void folder_unlock(struct folder_lock *lock)
{
    /* The file stays: removing it would let two processes lock two files of one name. An empty one names no process. */
    if (lock->file >= 0) {
        if (ftruncate(lock->file, 0) < 0) {
            log_debug("lock file not emptied", "folder=%s", log_quote_str(lock->path));
        }
        close(lock->file);
    }
    close(lock->folder);
    pthread_mutex_destroy(&lock->mutex);
}

int folder_publish(struct folder_lock *lock, const char *address, struct err *err)
{
    if (strlen(address) >= sizeof lock->address) {
        return err_set(err, ERR_INVALID, "the server's address is too long: %s", address);
    }
    pthread_mutex_lock(&lock->mutex);
    strcpy(lock->address, address);
    int result = write_who(lock, err);
    pthread_mutex_unlock(&lock->mutex);
    return result;
}

static bool is_there(const struct folder_lock *lock)
{
    struct stat ours, named;
    return fstat(lock->file, &ours) == 0 && fstatat(lock->folder, lock_name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

static int put_back(struct folder_lock *lock, struct err *err)
{
    struct err why = {0};
    int old = lock->file;
    int result = lock_file(lock, &why);
    if (result < 0) {
        return result != ERR_LOCKED && lock->locked
                   ? 0 /* the lock of the folder holds; the file is tried again */
                   : err_set(err, ERR_IO, "since its lock file was removed, %s: nothing is written, end one of both",
                             why.text);
    }
    if (lock->file == old) {
        return 0; /* none can be made */
    }
    close(old);
    log_warn("the lock file was removed or replaced while its folder is in use: it is put back", "folder=%s",
             log_quote_str(lock->path));
    say_who(lock);
    return 0;
}

int folder_lock_keep(struct folder_lock *lock, struct err *err)
{
    pthread_mutex_lock(&lock->mutex);
    int result = lock->file < 0 || is_there(lock) ? 0 : put_back(lock, err);
    pthread_mutex_unlock(&lock->mutex);
    return result;
}

int sqlite_store_address(const char *folder, char *out, size_t out_size, struct err *err)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/lock", folder) >= PATH_MAX) {
        return err_set(err, ERR_INVALID, "the path of the data folder is too long: %s", folder);
    }
    int fd = open(path, O_RDONLY | FOR_OTHERS);
    if (fd < 0) {
        return err_set(err, errno == ENOENT ? ERR_NOTFOUND : ERR_SYSTEM, "can't open %s: %s", path, strerror(errno));
    }
    char text[LOCK_TEXT];
    read_lock(fd, text);
    close(fd);
    field(text, "address", out, out_size);
    return 0;
}
