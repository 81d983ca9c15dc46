#include "cli/lib/data_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/folder_sync.h"
#include "base/hash.h"
#include "base/log.h"
#include "cli/lib/options.h"
#include "store/factory.h"
#include "store/sqlite/sqlite_store.h"
#include "store/stats.h"

/* What a history is known by. */
struct known {
    uint32_t seed; /* the fingerprint */
    uint64_t begun_ms;
};

struct mark {
    bool exists, names_history;
    char folder[PATH_MAX];
    struct known history;
};

enum { MARK_MAX = PATH_MAX + 64 };
#define KNOWN "seed=%08" PRIx32 " begun=%" PRIu64

static bool has_mark(const struct config *cfg)
{
    return cfg->store == STORE_ENGINE_SQLITE && cfg->expect_data[0] == '/';
}

static int parse_mark(const char *path, char *text, struct mark *m, struct err *err)
{
    char again[64];
    size_t len = strcspn(text, "\n");
    char *second = text + len + (text[len] == '\n');
    text[len] = '\0';
    m->exists = true;
    if (len < sizeof m->folder && (len == 0 || text[0] == '/')) {
        memcpy(m->folder, text, len + 1);
        if (second[0] == '\0') {
            return 0;
        }
        if (sscanf(second, "seed=%8" SCNx32 " begun=%19" SCNu64, &m->history.seed, &m->history.begun_ms) == 2 &&
            snprintf(again, sizeof again, KNOWN "\n", m->history.seed, m->history.begun_ms) > 0 &&
            strcmp(again, second) == 0) {
            m->names_history = true;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID,
                   "expect_data: %s is no mark of Unseen, expected the path of a folder, then seed=FINGERPRINT "
                   "begun=UNIX_MS: name another file, or delete this one",
                   path);
}

/* A mark that isn't there is none. */
static int read_mark(const char *path, struct mark *m, struct err *err)
{
    char text[MARK_MAX];
    *m = (struct mark){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        return 0;
    }
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (n < 0) {
        return err_set(err, ERR_SYSTEM, "expect_data: can't read %s: %s", path, strerror(error));
    }
    text[n] = '\0';
    return parse_mark(path, text, m, err);
}

int data_folder_check(const struct config *cfg, const char *command, bool begin_new, struct err *err)
{
    struct mark mark;
    if (cfg->store != STORE_ENGINE_SQLITE || begin_new || strcmp(cfg->expect_data, "no") == 0 ||
        sqlite_store_holds_data(cfg->data)) {
        return 0;
    }
    if (!has_mark(cfg)) {
        return err_set(err, ERR_NOTFOUND,
                       "the data folder %s holds no data, and expect_data is yes: is its path right, and its disk "
                       "mounted? To begin an empty history there, run once unseen %s --new",
                       cfg->data, command);
    }
    int rc = read_mark(cfg->expect_data, &mark, err);
    return rc < 0 || !mark.exists
               ? rc
               : err_set(err, ERR_NOTFOUND,
                         "the data folder %s holds no data, but this service had some in %s, as %s says: is the "
                         "path right, and its disk mounted? To begin an empty history, run once unseen %s --new, or "
                         "delete that file",
                         cfg->data, mark.folder, cfg->expect_data, command);
}

int data_folder_open(const struct config *cfg, const char *command, bool begin_new, struct store **store,
                     struct err *err)
{
    int rc = cli_options_has_folder(cfg, err);
    if (rc < 0 || (rc = data_folder_check(cfg, command, begin_new, err)) < 0) {
        return rc;
    }
    log_set_level(LOG_LEVEL_WARN); /* that a history is begun is told by the store */
    rc = store_open(cfg, store, err);
    log_set_level(LOG_LEVEL_ERROR);
    return rc;
}

static int cant_write(const char *path, struct err *err)
{
    int code = errno == EACCES || errno == EROFS ? ERR_READONLY : errno == ENOSPC ? ERR_FULL : ERR_SYSTEM;
    return err_set(err, code, "expect_data: can't write %s: %s", path, strerror(errno));
}

static int write_mark(const struct config *cfg, const struct known *history, struct err *err)
{
    char made[CONFIG_TEXT + 8];
    snprintf(made, sizeof made, "%s.new", cfg->expect_data);
    int fd = open(made, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0640);
    if (fd < 0) {
        return cant_write(made, err);
    }
    bool good = dprintf(fd, "%s\n" KNOWN "\n", cfg->data, history->seed, history->begun_ms) > 0 && fsync(fd) == 0;
    int rc = good ? 0 : cant_write(made, err);
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

int data_folder_mark(const struct config *cfg, bool begin_new, struct store *store, struct err *err)
{
    struct mark mark;
    struct store_stats stats;
    if (!has_mark(cfg)) {
        return 0;
    }
    int rc = read_mark(cfg->expect_data, &mark, err);
    if (rc < 0) {
        return rc;
    }
    store->ops->stats(store, &stats);
    const struct known here = {hash_seed_fingerprint(store->ops->seed(store)), stats.begun_ms};
    bool seed = mark.history.seed == here.seed, begun = mark.history.begun_ms == here.begun_ms;
    if (mark.names_history && seed && begun && strcmp(mark.folder, cfg->data) == 0) {
        return 0;
    }
    if (mark.names_history && !begin_new && !seed && (!begun || here.begun_ms == 0)) {
        return err_set(err, ERR_SEED,
                       "the data folder %s holds another history (seed %08" PRIx32
                       ") than this service had in %s (seed %08" PRIx32
                       "), as %s says: is the right disk mounted? To serve this one, run once unseen serve --new, or "
                       "delete that file",
                       cfg->data, here.seed, mark.folder, mark.history.seed, cfg->expect_data);
    }
    return write_mark(cfg, &here, err);
}
