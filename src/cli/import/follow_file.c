#include "cli/import/follow_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/folder_sync.h"
#include "base/hash.h"
#include "base/owner.h"

#define STATE_FORMAT                                                                                                   \
    "unseen-follow 2 dev %" PRIu64 " ino %" PRIu64 " offset %" PRIu64 " line %" PRIu64 " head %016" PRIx64             \
    " of %" PRIu64 "\n"
#define STATE_SCAN                                                                                                     \
    "unseen-follow 2 dev %" SCNu64 " ino %" SCNu64 " offset %" SCNu64 " line %" SCNu64 " head %16" SCNx64              \
    " of %" SCNu64 "%c"

enum { STATE_TEXT = 224 };

static int failed(const char *path, struct err *err)
{
    return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
}

/* --- the state --- */

static int read_state(struct follow_file *f, uint64_t *line, struct err *err)
{
    char text[STATE_TEXT + 1], end = '\0';
    int fd = open(f->state, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? 0 : failed(f->state, err);
    }
    ssize_t n = read(fd, text, STATE_TEXT);
    if (n < 0) {
        int rc = failed(f->state, err);
        close(fd);
        return rc;
    }
    close(fd);
    text[n] = '\0';
    if (sscanf(text, STATE_SCAN, &f->dev, &f->ino, &f->offset, line, &f->head, &f->head_n, &end) != 7 || end != '\n' ||
        *line == 0 || f->head_n > FOLLOW_HEAD || f->head_n > f->offset) {
        return err_set(err, ERR_INVALID, "%s is no state of --follow; name another with --state, or delete it",
                       f->state);
    }
    f->known = true;
    return 0;
}

/* The hash of the first n bytes. 1; 0: it has fewer; ERR_IO. */
static int read_head(int fd, uint64_t n, uint64_t *hash)
{
    char bytes[FOLLOW_HEAD];
    ssize_t got = pread(fd, bytes, (size_t)n, 0);
    if (got < 0) {
        return ERR_IO;
    }
    *hash = hash_id(0, slice_of(bytes, (size_t)got));
    return (uint64_t)got == n;
}

/* The lock ends with the process. Two followers would send everything twice, and each would undo the other's state. */
static int take_lock(struct follow_file *f, struct err *err)
{
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s.lock", f->state);
    f->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (f->lock < 0) {
        return failed(path, err);
    }
    owner_as_folder(path);
    if (flock(f->lock, LOCK_EX | LOCK_NB) == 0) {
        return 0;
    }
    return errno == EWOULDBLOCK ? err_set(err, ERR_BUSY,
                                          "%s: another unseen import --follow has this state; give this one its own "
                                          "file with --state, or end the other",
                                          f->state)
                                : failed(path, err);
}

int follow_file_save(struct follow_file *f, uint64_t offset, uint64_t line, struct err *err)
{
    char text[STATE_TEXT], path[PATH_MAX + 8];
    uint64_t head_n = offset < FOLLOW_HEAD ? offset : FOLLOW_HEAD;
    if (f->head_n != head_n && f->fd >= 0) {
        f->head_n = read_head(f->fd, head_n, &f->head) == 1 ? head_n : 0; /* 0 of none fits every file */
    }
    int len = snprintf(text, sizeof text, STATE_FORMAT, f->dev, f->ino, offset, line, f->head, f->head_n);
    snprintf(path, sizeof path, "%s.tmp", f->state);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        return failed(path, err);
    }
    owner_as_folder(path);
    int rc = write(fd, text, (size_t)len) == len && fsync(fd) == 0 ? 0 : failed(path, err);
    if (close(fd) < 0 && rc == 0) {
        rc = failed(path, err);
    }
    if (rc == 0 && rename(path, f->state) < 0) {
        rc = failed(f->state, err);
    }
    return rc < 0 ? rc : folder_sync_name(f->state, err);
}

/* --- the file --- */

int follow_file_open(struct follow_file *f, const char *path, const char *state, uint64_t *line, struct err *err)
{
    *f = (struct follow_file){.path = path, .fd = -1, .lock = -1};
    *line = 1;
    int len = snprintf(f->state, sizeof f->state, "%s%s", state != NULL ? state : path, state != NULL ? "" : ".follow");
    if (len < 0 || (size_t)len >= sizeof f->state) {
        return err_set(err, ERR_RANGE, "%s: the path is too long", path);
    }
    int rc = take_lock(f, err);
    return rc < 0 ? rc : read_state(f, line, err);
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

void follow_file_close(struct follow_file *f)
{
    close_fd(&f->fd);
    close_fd(&f->lock);
}

static bool is_it(const struct follow_file *f, const struct stat *st)
{
    return (uint64_t)st->st_dev == f->dev && (uint64_t)st->st_ino == f->ino;
}

/* Whether it begins as the state says. */
static bool begins_alike(const struct follow_file *f, int fd)
{
    uint64_t hash = 0;
    return f->head_n == 0 || (read_head(fd, f->head_n, &hash) == 1 && hash == f->head);
}

/* The file that the state names, under the name that it has now; -1: it is gone. */
static int find_renamed(const struct follow_file *f)
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", f->path);
    DIR *folder = opendir(dirname(copy));
    int fd = -1;
    for (struct dirent *entry; folder != NULL && fd < 0 && (entry = readdir(folder)) != NULL;) {
        struct stat st;
        if (fstatat(dirfd(folder), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            is_it(f, &st) && (uint64_t)st.st_size >= f->offset) {
            fd = openat(dirfd(folder), entry->d_name, O_RDONLY | O_CLOEXEC);
            if (fd >= 0 && !begins_alike(f, fd)) {
                close_fd(&fd);
            }
        }
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return fd;
}

/* 0, also while it is not there. *begins: what the state says of it no longer holds. */
static int look_for_it(struct follow_file *f, bool *begins, struct err *err)
{
    struct stat st;
    int fd = f->known ? find_renamed(f) : -1;
    if (fd < 0) {
        if (f->known) {
            fprintf(stderr,
                    "import: the file of which %s says how far it was read is gone; %s is read from its beginning\n",
                    f->state, f->path);
        }
        *begins = f->known;
        f->offset = 0;
        f->head_n = 0;
        fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe that took the name is told, not waited for */
    }
    f->known = false;
    if (fd < 0 && errno != ENOENT) {
        return failed(f->path, err);
    }
    if (fd < 0) {
        if (!f->missing) {
            fprintf(stderr, "import: %s is not there yet\n", f->path);
        }
        f->missing = true;
        return 0;
    }
    int rc = fstat(fd, &st) < 0 ? failed(f->path, err) : 0;
    if (rc == 0 && !S_ISREG(st.st_mode)) {
        rc = err_set(err, ERR_INVALID, "%s: %s, and --follow reads a file, a pipe or standard input", f->path,
                     S_ISDIR(st.st_mode) ? "a folder" : "a device");
    }
    if (rc == 0 && lseek(fd, (off_t)f->offset, SEEK_SET) < 0) {
        rc = failed(f->path, err);
    }
    if (rc < 0) {
        close(fd);
        return rc;
    }
    f->missing = false;
    f->fd = fd;
    f->dev = (uint64_t)st.st_dev;
    f->ino = (uint64_t)st.st_ino;
    return 0;
}

/* Whether it can be read on as it grows: plain bytes of a regular file. Asked once its first bytes are there. */
static int judge(struct follow_file *f, struct err *err)
{
    unsigned char head[4] = {0};
    ssize_t n = pread(f->fd, head, sizeof head, 0);
    if (n < 0) {
        return failed(f->path, err);
    }
    const char *packed = n >= 2 && head[0] == 0x1f && head[1] == 0x8b                   ? "gzip"
                         : n >= 4 && memcmp(head, "\x28\xb5\x2f\xfd", sizeof head) == 0 ? "zstd"
                                                                                        : NULL;
    if (packed != NULL) {
        return err_set(err, ERR_INVALID,
                       "%s: packed with %s, and --follow reads plain lines as they are written: import it without "
                       "--follow",
                       f->path, packed);
    }
    f->judged = n >= 4;
    return 0;
}

static int read_some(struct follow_file *f, char *out, size_t size, size_t *n, struct err *err)
{
    ssize_t got;
    do {
        got = read(f->fd, out, size);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return failed(f->path, err);
    }
    *n = (size_t)got;
    f->offset += (uint64_t)got;
    return got > 0 && !f->judged ? judge(f, err) : 0;
}

int follow_file_read(struct follow_file *f, char *out, size_t size, size_t *n, enum follow_news *news, struct err *err)
{
    struct stat own, named;
    bool begins = false;
    *n = 0;
    *news = FOLLOW_BYTES;
    int rc = f->fd < 0 ? look_for_it(f, &begins, err) : 0;
    if (rc == 0 && begins) {
        *news = FOLLOW_BEGINS;
        return 0;
    }
    if (rc < 0 || f->fd < 0) {
        return rc;
    }
    if (fstat(f->fd, &own) == 0 && (uint64_t)own.st_size < f->offset) {
        fprintf(stderr, "import: %s was cut, and is read from its beginning\n", f->path);
        f->offset = 0;
        f->head_n = 0;
        f->judged = false;
        *news = FOLLOW_BEGINS;
        return lseek(f->fd, 0, SEEK_SET) < 0 ? failed(f->path, err) : 0;
    }
    /* Looked up before the read: what stood in the old file when the new one had its name is read. */
    bool other = stat(f->path, &named) == 0 && !is_it(f, &named);
    rc = read_some(f, out, size, n, err);
    if (rc == 0 && *n == 0 && other) {
        *news = FOLLOW_ENDED;
    }
    return rc;
}

void follow_file_next(struct follow_file *f)
{
    close_fd(&f->fd);
    f->offset = 0;
    f->head_n = 0;
    f->judged = false;
}
