/* Letters are written with one write() each, and synced in groups. The lock is held from a group's first letter to its
 * sync, so an import never seals half a group. A failed write or sync takes the whole group back (the file is cut to
 * what was synced before): the messages will be read again, and no letter stands there twice. */
#include "kafka/dead_letters.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/folder_sync.h"
#include "base/log.h"
#include "base/text.h"
#include "kafka/dead_letters_impl.h"

enum { FULL = 64 * 1024 * 1024, LINE_KEPT = 1024 * 1024 };

struct dead_letters {
    char folder[PATH_MAX];
    int fd;               /* of the growing file while a group is being written, locked; else -1 */
    int64_t size, synced; /* bytes of that file: written, and before the group */
    uint64_t in_group;    /* letters */
    bool made;            /* the group made the file, so its name must become durable */
    uint64_t bound;       /* bytes of all files; 0: none */
    struct buf line;

    pthread_mutex_t mutex;  /* for what follows */
    struct timespec listed; /* the folder's time when it was listed */
    ino_t growing;          /* the file that is counted here; 0: none */
    uint64_t n_growing;     /* its letters */
    uint64_t n, bytes;      /* of all files, when the folder was listed */
};

/* What the folder's files hold; the growing one's letters are counted when it is another file than before. */
static int list(struct dead_letters *d, struct err *err)
{
    DIR *dir = opendir(d->folder);
    if (dir == NULL) {
        return dead_letters_error("list the folder", err);
    }
    int code = 0;
    d->n = d->bytes = 0;
    ino_t growing = 0;
    for (struct dirent *entry = readdir(dir); code == 0 && entry != NULL; entry = readdir(dir)) {
        uint64_t number, n = 0;
        struct stat st;
        bool grows = strcmp(entry->d_name, DEAD_LETTERS_FILE) == 0;
        if ((!grows && !dead_letters_is_sealed(entry->d_name, &number, &n)) ||
            fstatat(dirfd(dir), entry->d_name, &st, 0) < 0) {
            continue;
        }
        if (grows && st.st_ino != d->growing) {
            int fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC);
            code = fd < 0 ? dead_letters_error("open " DEAD_LETTERS_FILE, err)
                          : dead_letters_count(fd, st.st_size, &d->n_growing, err);
            if (fd >= 0) {
                close(fd);
            }
        }
        growing = grows ? st.st_ino : growing;
        d->n += n;
        d->bytes += grows ? 0 : (uint64_t)st.st_size;
        d->size = grows && d->fd < 0 ? st.st_size : d->size;
    }
    closedir(dir);
    d->n_growing = growing != 0 ? d->n_growing : 0;
    d->size = growing != 0 || d->fd >= 0 ? d->size : 0;
    d->growing = growing;
    return code;
}

static int look_again(struct dead_letters *d, struct err *err)
{
    struct stat st;
    if (stat(d->folder, &st) < 0) {
        return dead_letters_error("look at the folder", err);
    }
    if (st.st_mtim.tv_sec == d->listed.tv_sec && st.st_mtim.tv_nsec == d->listed.tv_nsec) {
        return 0;
    }
    d->listed = st.st_mtim;
    return list(d, err);
}

int dead_letters_open(const char *folder, struct dead_letters **letters, struct err *err)
{
    struct dead_letters *d = calloc(1, sizeof *d);
    if (d == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    snprintf(d->folder, sizeof d->folder, "%s", folder);
    d->fd = -1;
    pthread_mutex_init(&d->mutex, NULL);
    int code = look_again(d, err);
    if (code < 0) {
        dead_letters_close(d);
        return code;
    }
    *letters = d;
    return 0;
}

/* Ends the group; good: what was written stays. */
static void end_group(struct dead_letters *d, bool good)
{
    if (!good && ftruncate(d->fd, d->synced) < 0) { /* whole letters will be there twice, which harms nothing */
        log_warn("dead letters: can't take back what was not synced", "error=%s", log_quote_str(strerror(errno)));
    }
    close(d->fd);
    pthread_mutex_lock(&d->mutex);
    d->fd = -1;
    d->n_growing += good ? d->in_group : 0;
    d->size = good ? d->size : d->synced;
    pthread_mutex_unlock(&d->mutex);
    d->in_group = 0;
}

void dead_letters_undo(struct dead_letters *d)
{
    if (d->fd >= 0) {
        end_group(d, false);
    }
}

void dead_letters_close(struct dead_letters *d)
{
    if (d != NULL) {
        dead_letters_undo(d);
        buf_free(&d->line);
        pthread_mutex_destroy(&d->mutex);
        free(d);
    }
}

static int begin_group(struct dead_letters *d, struct err *err)
{
    int fd = -1;
    int64_t size = 0;
    uint64_t n = 0;
    struct stat st;
    int code = dead_letters_lock(d->folder, true, &fd, &size, err);
    if (code == 0 && size >= FULL) {
        code = dead_letters_count(fd, size, &n, err);
        code = code < 0 ? code : dead_letters_rename(d->folder, n, err);
        close(fd);
        fd = -1;
        code = code < 0 ? code : dead_letters_lock(d->folder, true, &fd, &size, err);
    }
    if (code == 0 && fstat(fd, &st) < 0) {
        code = dead_letters_error("look at " DEAD_LETTERS_FILE, err);
    }
    if (code < 0) {
        if (fd >= 0) {
            close(fd);
        }
        return code;
    }
    pthread_mutex_lock(&d->mutex);
    if (st.st_ino != d->growing || size == 0) { /* a new one, maybe with the number of one that was taken away */
        code = dead_letters_count(fd, size, &d->n_growing, err);
    }
    d->growing = st.st_ino;
    d->made = size == 0;
    d->listed = size == 0 ? (struct timespec){0} : d->listed; /* a new file: others may have been renamed just now */
    d->fd = fd;
    d->size = d->synced = size;
    pthread_mutex_unlock(&d->mutex);
    if (code < 0) {
        end_group(d, true);
    }
    return code;
}

static void add_string(struct buf *out, const char *name, struct slice text)
{
    buf_addf(out, "\"%s\":\"", name);
    for (size_t i = 0, len; i < text.len; i += len) {
        unsigned char c = (unsigned char)text.data[i];
        len = utf8_len(text.data + i, text.len - i);
        if (len == 0) {
            len = 1;
            buf_add(out, "?", 1);
        } else if (c < 0x20 || c == 0x7f) {
            buf_addf(out, "\\u%04x", c);
        } else {
            buf_addf(out, "%s%.*s", c == '"' || c == '\\' ? "\\" : "", (int)len, text.data + i);
        }
    }
    buf_addf(out, "\",");
}

static void add_bytes(struct buf *out, const char *name, struct slice bytes, const char *end)
{
    if (bytes.data == NULL) {
        buf_addf(out, "\"%s\":null%s", name, end);
        return;
    }
    buf_addf(out, "\"%s\":\"", name);
    base64_add(out, bytes);
    buf_addf(out, "\"%s", end);
}

static int make_line(struct dead_letters *d, const struct dead_letter *letter, struct err *err)
{
    struct buf *line = &d->line;
    buf_clear(line);
    line->failed = false;
    buf_addf(line, "{");
    add_string(line, "topic", letter->topic);
    buf_addf(line, "\"partition\":%" PRId32 ",\"offset\":%" PRId64 ",\"unix_ms\":%" PRId64 ",", letter->partition,
             letter->offset, letter->at_ms);
    add_string(line, "reason", letter->reason);
    add_bytes(line, "key", letter->key, ",");
    add_bytes(line, "value", letter->value, "}\n");
    return line->failed ? err_set(err, ERR_NOMEM, "dead letters: out of memory") : 0;
}

/* Others may have taken files away, and that is only known once the folder was looked at. */
static int check_room(struct dead_letters *d, struct err *err)
{
    pthread_mutex_lock(&d->mutex);
    bool stale = d->in_group == 0 || d->bytes + (uint64_t)d->size + d->line.len > d->bound;
    int code = d->bound != 0 && stale ? look_again(d, err) : 0;
    uint64_t bytes = d->bytes + (uint64_t)d->size;
    if (code == 0 && d->bound != 0 && bytes > 0 && bytes + d->line.len > d->bound) {
        code = err_set(err, ERR_BUSY,
                       "those of %s have %" PRIu64 " bytes, this one has %zu, and dead_letters_max is %" PRIu64
                       ": bring them in with unseen import --dead-letters, or take them away",
                       d->folder, bytes, d->line.len, d->bound);
    }
    pthread_mutex_unlock(&d->mutex);
    return code;
}

static int write_line(struct dead_letters *d, struct err *err)
{
    const struct buf *line = &d->line;
    for (size_t at = 0; at < line->len;) {
        ssize_t n = write(d->fd, line->data + at, line->len - at);
        if (n < 0 && errno != EINTR) {
            return dead_letters_error("write " DEAD_LETTERS_FILE, err);
        }
        at += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

void dead_letters_bound(struct dead_letters *d, uint64_t bytes)
{
    d->bound = bytes;
}

int dead_letters_add(struct dead_letters *d, const struct dead_letter *letter, struct err *err)
{
    int code = d->fd < 0 ? begin_group(d, err) : 0;
    if (code < 0) {
        return code;
    }
    if ((code = make_line(d, letter, err)) < 0 || (code = check_room(d, err)) < 0 || (code = write_line(d, err)) < 0) {
        if (code != ERR_BUSY || d->in_group == 0) {
            end_group(d, false);
        }
        return code;
    }
    pthread_mutex_lock(&d->mutex);
    d->size += (int64_t)d->line.len;
    pthread_mutex_unlock(&d->mutex);
    d->in_group++;
    buf_clear(&d->line);
    buf_shrink(&d->line, LINE_KEPT);
    return 0;
}

int dead_letters_sync(struct dead_letters *d, struct err *err)
{
    if (d->fd < 0) {
        return 0;
    }
    int code = fdatasync(d->fd) < 0 ? dead_letters_error("sync " DEAD_LETTERS_FILE, err) : 0;
    code = code == 0 && d->made ? folder_sync(d->folder, err) : code;
    end_group(d, code == 0);
    return code;
}

void dead_letters_look(struct dead_letters *d, uint64_t *n, uint64_t *bytes)
{
    pthread_mutex_lock(&d->mutex);
    look_again(d, NULL); /* what was known before is shown */
    *n = d->n + d->n_growing;
    *bytes = d->bytes + (uint64_t)d->size;
    pthread_mutex_unlock(&d->mutex);
}
