#include "cli/account/account_edit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/folder_sync.h"

static const char head[] = "# Accounts of unseen: name, roles, hash of the password. unseen account changes them.\n";

int account_edit_open(struct account_edit *e, const char *path, struct err *err)
{
    *e = (struct account_edit){.exists = false};
    if (realpath(path, e->path) == NULL) {
        if (errno != ENOENT || snprintf(e->path, sizeof e->path, "%s", path) >= (int)sizeof e->path) {
            return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
        }
        return account_file_parse(path, slice_str(""), &e->set, err);
    }
    e->exists = true;
    if (stat(e->path, &e->as_read) < 0) { /* before its bytes, so that no change goes unseen */
        return err_set(err, ERR_IO, "%s: %s", path, strerror(errno));
    }
    int code = account_file_load(e->path, &e->bytes, err);
    return code < 0 ? code : account_file_parse(e->path, buf_slice(&e->bytes), &e->set, err);
}

void account_edit_close(struct account_edit *e)
{
    account_set_free(e->set);
    buf_free(&e->bytes);
}

static bool is_of(struct slice line, struct slice name)
{
    size_t at = 0;
    while (at < line.len && (line.data[at] == ' ' || line.data[at] == '\t')) {
        at++;
    }
    bool begins = line.len - at > name.len && memcmp(line.data + at, name.data, name.len) == 0;
    return begins && (line.data[at + name.len] == ' ' || line.data[at + name.len] == '\t');
}

static void change(const struct account_edit *e, struct slice name, const char *line, struct buf *out)
{
    const char *at = e->exists ? e->bytes.data : "", *end = at + e->bytes.len;
    bool found = false;
    if (!e->exists) {
        buf_addf(out, "%s", head);
    }
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        struct slice old = slice_of(at, (size_t)((newline != NULL ? newline : end) - at));
        bool own = is_of(old, name);
        if (!own) {
            buf_add(out, old.data, old.len);
            buf_add(out, "\n", 1);
        } else if (line != NULL) {
            buf_addf(out, "%s\n", line);
        }
        found = found || own;
        at += old.len + 1;
    }
    if (!found && line != NULL) {
        buf_addf(out, "%s\n", line);
    }
}

static int fill(const struct account_edit *e, int fd, const struct buf *bytes)
{
    size_t done = 0;
    while (done < bytes->len) {
        ssize_t n = write(fd, bytes->data + done, bytes->len - done);
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    const struct stat *st = &e->as_read;
    if (e->exists && (fchown(fd, st->st_uid, st->st_gid) < 0 || fchmod(fd, st->st_mode & 0777) < 0)) {
        return -1;
    }
    return fsync(fd);
}

static bool is_as_read(const struct account_edit *e)
{
    struct stat now;
    if (stat(e->path, &now) < 0) {
        return !e->exists;
    }
    const struct stat *then = &e->as_read;
    return e->exists && now.st_ino == then->st_ino && now.st_size == then->st_size &&
           now.st_mtim.tv_sec == then->st_mtim.tv_sec && now.st_mtim.tv_nsec == then->st_mtim.tv_nsec;
}

static int replace(const struct account_edit *e, const struct buf *bytes, struct err *err)
{
    char made[PATH_MAX + 8];
    snprintf(made, sizeof made, "%s.new", e->path);
    int fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == EEXIST) {
        return err_set(err, ERR_BUSY, "%s is there: another process is changing the accounts; remove it if none is",
                       made);
    }
    if (fd < 0) {
        return err_set(err, ERR_IO, "%s: %s", made, strerror(errno));
    }
    if (!is_as_read(e)) {
        close(fd);
        unlink(made);
        return err_set(err, ERR_BUSY, "%s was changed meanwhile; nothing was done, try again", e->path);
    }
    int failed = fill(e, fd, bytes) < 0 ? errno : 0;
    if (close(fd) < 0 && failed == 0) {
        failed = errno;
    }
    if (failed == 0 && rename(made, e->path) < 0) {
        failed = errno;
    }
    if (failed != 0) {
        unlink(made);
        return err_set(err, ERR_IO, "%s: %s; nothing was changed", made, strerror(failed));
    }
    return folder_sync_name(e->path, err);
}

int account_edit_put(struct account_edit *e, struct slice name, const char *line, struct err *err)
{
    struct buf bytes = {0};
    struct account_set *set = NULL;
    change(e, name, line, &bytes);
    buf_add(&bytes, "", 1);
    int code = bytes.failed ? err_set(err, ERR_NOMEM, "out of memory") : 0;
    if (code == 0) {
        bytes.len--;
        code = account_file_parse(e->path, buf_slice(&bytes), &set, err);
    }
    if (code == 0) {
        code = replace(e, &bytes, err);
    }
    account_set_free(set);
    buf_free(&bytes);
    return code;
}
