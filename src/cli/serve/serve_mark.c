/* The mark is one line, the path of the folder that was served last: it is there for the error that names it. */
#include "cli/serve/serve_mark.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/folder_sync.h"
#include "store/sqlite/sqlite_store.h"

static bool is_path(const struct config *cfg)
{
    return cfg->expect_data[0] == '/';
}

/* 1: there is one; 0: none; or an error. */
static int read_mark(const char *path, char out[PATH_MAX], struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        return 0;
    }
    ssize_t n = fd >= 0 ? read(fd, out, PATH_MAX - 1) : -1;
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (n < 0) {
        return err_set(err, ERR_SYSTEM, "expect_data: can't read %s: %s", path, strerror(error));
    }
    out[n] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return 1;
}

int serve_mark_check(const struct config *cfg, bool begin_new, struct err *err)
{
    char served[PATH_MAX];
    if (cfg->store != STORE_ENGINE_SQLITE || begin_new || strcmp(cfg->expect_data, "no") == 0 ||
        sqlite_store_holds_data(cfg->data)) {
        return 0;
    }
    if (!is_path(cfg)) {
        return err_set(err, ERR_NOTFOUND,
                       "the data folder %s holds no data, and expect_data is yes: is its path right, and its disk "
                       "mounted? To begin an empty history there, start once with unseen serve --new",
                       cfg->data);
    }
    int rc = read_mark(cfg->expect_data, served, err);
    return rc <= 0
               ? rc
               : err_set(err, ERR_NOTFOUND,
                         "the data folder %s holds no data, but this service had some in %s, as %s says: is the "
                         "path right, and its disk mounted? To begin an empty history, start once with unseen serve "
                         "--new, or delete %s",
                         cfg->data, served, cfg->expect_data, cfg->expect_data);
}

static int cant_write(const char *path, struct err *err)
{
    int code = errno == EACCES || errno == EROFS ? ERR_READONLY : errno == ENOSPC ? ERR_FULL : ERR_SYSTEM;
    return err_set(err, code, "expect_data: can't write %s: %s", path, strerror(errno));
}

int serve_mark_leave(const struct config *cfg, struct err *err)
{
    char served[PATH_MAX] = "", made[CONFIG_TEXT + 8];
    if (cfg->store != STORE_ENGINE_SQLITE || !is_path(cfg)) {
        return 0;
    }
    int rc = read_mark(cfg->expect_data, served, err);
    if (rc < 0 || (rc == 1 && strcmp(served, cfg->data) == 0)) {
        return rc < 0 ? rc : 0;
    }
    snprintf(made, sizeof made, "%s.new", cfg->expect_data);
    int fd = open(made, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0640);
    if (fd < 0) {
        return cant_write(made, err);
    }
    rc = dprintf(fd, "%s\n", cfg->data) > 0 && fsync(fd) == 0 ? 0 : cant_write(made, err);
    close(fd);
    if (rc == 0 && rename(made, cfg->expect_data) < 0) {
        rc = cant_write(cfg->expect_data, err);
    }
    if (rc < 0) {
        unlink(made);
        return rc;
    }
    return folder_sync_name(cfg->expect_data, err);
}
