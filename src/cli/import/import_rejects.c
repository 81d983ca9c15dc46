#include "cli/import/import_rejects.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/folder_sync.h"

struct import_rejects {
    const char *path;
    int fd;
    uint64_t max, n, n_synced;
    struct buf waiting; /* not written yet */
    bool over;          /* there were more than max */
};

static int failed(const char *path, struct err *err)
{
    return err_set(err, ERR_IO, "--rejects %s: %s", path, strerror(errno));
}

int import_rejects_open(const char *path, bool append, uint64_t max, struct import_rejects **rejects, struct err *err)
{
    struct stat st;
    struct import_rejects *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    *r = (struct import_rejects){.path = path, .max = max};
    int rc = 0;
    r->fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (r->fd < 0 || fstat(r->fd, &st) < 0) {
        rc = failed(path, err);
    } else if (!append && S_ISREG(st.st_mode) && st.st_size > 0) {
        rc = err_set(err, ERR_IO, "--rejects %s: the file has something in it; name another, or remove it", path);
    } else if (S_ISREG(st.st_mode)) {
        rc = folder_sync_name(path, err);
    }
    if (rc < 0) {
        import_rejects_close(r);
        return rc;
    }
    *rejects = r;
    return 0;
}

void import_rejects_close(struct import_rejects *r)
{
    if (r != NULL) {
        if (r->fd >= 0) {
            close(r->fd);
        }
        buf_free(&r->waiting);
        free(r);
    }
}

bool import_rejects_is(const struct import_rejects *r, const char *path)
{
    struct stat own, other;
    return fstat(r->fd, &own) == 0 && S_ISREG(own.st_mode) && stat(path, &other) == 0 && own.st_dev == other.st_dev &&
           own.st_ino == other.st_ino;
}

void import_rejects_add(struct import_rejects *r, const char *file, uint64_t line, const char *why, struct slice raw)
{
    if (r->n == r->max) {
        r->over = true;
        return;
    }
    r->n++;
    buf_addf(&r->waiting, "%s:%" PRIu64 "\t%s\t", file, line, why);
    buf_add(&r->waiting, raw.data, raw.len);
    buf_add(&r->waiting, "\n", 1);
}

int import_rejects_good(struct import_rejects *r, struct err *err)
{
    if (r->waiting.failed) {
        return err_set(err, ERR_NOMEM, "--rejects %s: out of memory", r->path);
    }
    return r->over ? err_set(err, ERR_INVALID, "more than %" PRIu64 " lines were refused (--max-rejects): see %s",
                             r->max, r->path)
                   : 0;
}

int import_rejects_sync(struct import_rejects *r, struct err *err)
{
    if (r->n == r->n_synced) {
        return 0;
    }
    for (size_t at = 0; at < r->waiting.len;) {
        ssize_t n = write(r->fd, r->waiting.data + at, r->waiting.len - at);
        if (n < 0 && errno != EINTR) {
            return failed(r->path, err);
        }
        at += n > 0 ? (size_t)n : 0;
    }
    buf_clear(&r->waiting);
    r->n_synced = r->n;
    return fsync(r->fd) == 0 || errno == EINVAL ? 0 : failed(r->path, err); /* EINVAL: a pipe or device */
}

void import_rejects_drop(struct import_rejects *r)
{
    r->n = r->n_synced;
    r->over = false;
    buf_clear(&r->waiting);
}
