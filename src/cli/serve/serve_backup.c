#include "cli/serve/serve_backup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/ring.h"
#include "store/stats.h"

enum {
    MINUTE_MS = 60 * 1000,
    DAY_MS = 24 * 60 * MINUTE_MS,
    RETRY_MIN_MS = 5 * MINUTE_MS,
    RETRY_MAX_MS = 60 * MINUTE_MS,
};

/* --- which are kept --- */

static const char form[] = SERVE_BACKUP_PREFIX "%Y%m%dT%H%M%SZ";

static bool is_ours(const char *name)
{
    struct tm tm = {0};
    const char *end = strptime(name, form, &tm);
    return end != NULL && *end == '\0' && strlen(name) == strlen(SERVE_BACKUP_PREFIX) + strlen("20261122T033000Z");
}

static int ours(const struct dirent *entry)
{
    return is_ours(entry->d_name);
}

static int newest_first(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*b)->d_name, (*a)->d_name);
}

/* What a backup holds, or one that was cut short; whatever else lies there keeps its folder. history.db goes first, so
 * that what is cut short is no folder that starts. */
static void delete_backup(int root, const char *name)
{
    static const char *const files[] = {"history.db", "staging.db", "history.partial.db", "staging.partial.db"};
    int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    for (size_t i = 0; i < sizeof files / sizeof *files && fd >= 0; i++) {
        unlinkat(fd, files[i], 0);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (fd < 0 || unlinkat(root, name, AT_REMOVEDIR) < 0) {
        log_warn("older backup not deleted", "folder=%s error=%s", log_quote_str(name), log_quote_str(strerror(errno)));
    } else {
        log_info("older backup deleted", "folder=%s", log_quote_str(name));
    }
}

static bool is_whole(int root, const char *name)
{
    char path[128];
    struct stat st;
    snprintf(path, sizeof path, "%s/history.db", name);
    return fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void delete_older(const struct serve_backup *b)
{
    int root = open(b->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct dirent **list = NULL;
    int n = root >= 0 ? scandirat(root, ".", &list, ours, newest_first) : -1;
    if (n < 0) {
        log_warn("older backups not looked for", "root=%s error=%s", log_quote_str(b->root),
                 log_quote_str(strerror(errno)));
    }
    int64_t kept = 0, keep = config_now(b->cfg)->backup_keep;
    for (int i = 0; i < n; i++) {
        if (kept < keep && is_whole(root, list[i]->d_name)) {
            kept++;
        } else {
            delete_backup(root, list[i]->d_name);
        }
        free(list[i]);
    }
    free(list);
    if (root >= 0) {
        close(root);
    }
}

/* --- when --- */

static bool is_due(const struct serve_backup *b, int64_t now)
{
    const struct config *live = config_now(b->cfg);
    struct store_clock clock;
    struct store_stats stats;
    if (b->store->admin == NULL || b->store->admin->backup == NULL || clock_mono_ms() < b->retry_ms) {
        return false;
    }
    b->store->ops->clock(b->store, &clock);
    b->store->ops->stats(b->store, &stats);
    int64_t due = config_backup_next_ms(live, (int64_t)stats.backup_ms, now);
    return !clock.doubted && due != 0 && due <= now;
}

static void failed(struct serve_backup *b, const struct err *err)
{
    int64_t delay = RETRY_MIN_MS;
    for (unsigned i = 0; i < b->failures && delay < RETRY_MAX_MS; i++) {
        delay *= 2;
    }
    delay = delay < RETRY_MAX_MS ? delay : RETRY_MAX_MS;
    if (err->code == ERR_BUSY) {
        delay = MINUTE_MS; /* another one is under way */
    } else {
        b->failures++;
        log_error("scheduled backup failed, older ones are kept", "retry_s=%" PRId64 " error=%s", delay / 1000,
                  log_quote_str(err->text));
    }
    b->retry_ms = clock_mono_ms() + delay;
}

static void ended(struct serve_backup *b)
{
    const struct store_backup *request = &b->request;
    b->running = false;
    if (request->err.code == ERR_CLOSED) {
        return;
    }
    if (request->err.code < 0) {
        failed(b, &request->err);
        return;
    }
    b->failures = 0;
    b->retry_ms = 0;
    if (request->problems > 0) {
        log_warn("scheduled backup has problems, older ones are kept", "folder=%s problems=%" PRIu64,
                 log_quote_str(b->folder), request->problems);
    } else {
        delete_older(b);
    }
}

static void on_done(struct store_backup *request)
{
    struct serve_backup *b = request->owner;
    atomic_store(&b->done, true);
}

static void begin(struct serve_backup *b, int64_t now)
{
    struct err err;
    struct tm tm;
    time_t seconds = (time_t)(now / 1000);
    if (config_backup_root(config_now(b->cfg), b->root, sizeof b->root, &err) < 0) {
        failed(b, &err);
        return;
    }
    strftime(b->folder, sizeof b->folder, form, gmtime_r(&seconds, &tm));
    b->request = (struct store_backup){.folder = b->folder, .root = b->root, .done = on_done, .owner = b};
    b->running = true;
    atomic_store(&b->done, false);
    b->store->admin->backup(b->store, &b->request);
}

void serve_backup_look(struct serve_backup *b)
{
    if (b->running && atomic_load(&b->done)) {
        ended(b);
    }
    int64_t now = clock_wall_ms();
    if (!b->running && is_due(b, now)) {
        begin(b, now);
    }
}
