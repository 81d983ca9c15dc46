/* `unseen export`: users out of a folder, or a pool of Ceph, into one file, in the order of their keys. The file gets
 * its name only when it is complete and synced. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/folder_sync.h"
#include "base/hash.h"
#include "base/keyslot.h"
#include "base/plural.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/progress.h"
#include "cli/rados/pool_rate.h"
#include "cli/transfer/export_file.h"
#include "store/rados/rados_store.h"
#include "store/sqlite/sqlite_store.h"

static const char help[] =
    "Writes users with all that is remembered of them into one file, for `unseen load`.\n\n"
    "Usage: unseen export [FILE] [--shard PART] [--range PART] [--user USER] [OPTION ...]\n\n"
    "FILE appears, or is replaced, once it is whole. Without it, or with -, the file goes to standard output. It\n"
    "holds the month filters, the last deliveries, what was forgotten item by item, plays that are still staged,\n"
    "which users are noted to come from another Redis, and the folder's seed: keep it as secret as the folder. A\n"
    "server that has the folder goes on meanwhile. Every play acknowledged before the command began is in the\n"
    "file; later ones may be.\n\n"
    "With store = rados they come out of the pool, while its nodes serve it: each user as at one moment, and two\n"
    "users as at two. When users were forgotten is in the file, too.\n\n"
    "Options:\n"
    "      --shard PART       I/N: users of shard I of N (I from 0): slot * N / 16384 rounded down is I; slot is\n"
    "                         what CLUSTER KEYSLOT gives for the user in Redis: CRC16 of the id, or of its {tag}\n"
    "      --range PART       I/N: users whose key is in part I of N (I from 0); parts are nearly equal\n"
    "      --user USER        this user alone\n"
    "      --rate N           of a pool: read at most N users a second (default 2000; 0: no limit)\n"
    "      --json             print the summary as JSON; to standard error when the file goes to standard output\n"
    "      --quiet            print no summary and no progress\n\n"
    "Exit code: 0 whole; 1 failed, or whole except for what was damaged: that is named, and marked in the file;\n"
    "2 wrong usage.\n\n"
    "Examples:\n"
    "  unseen export users.unseen\n"
    "  unseen export --shard 2/4 shard2.unseen --data /var/lib/unseen\n"
    "  unseen export - | ssh other 'cat > users.unseen && unseen load users.unseen'\n";

struct exporting {
    const char *shard_text, *range_text, *user_text, *rate_text;
    uint64_t rate;
    bool json, quiet;
    struct config cfg;
    struct slice user; /* data NULL: all */
    struct export_head head;
    const char *path; /* NULL: standard output */
    char partial[PATH_MAX];
    int fd;
    uint64_t bytes;
    struct export_writer *writer;
    struct export_counts counts;
    struct progress progress;
    uint64_t problems;
};

static int put(void *arg, const void *bytes, size_t len, struct err *err)
{
    struct exporting *x = arg;
    const char *at = bytes;
    while (len > 0) {
        ssize_t n = write(x->fd, at, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return err_set(err, errno == ENOSPC ? ERR_FULL : ERR_IO, "can't write %s: %s",
                           x->path != NULL ? x->partial : "to standard output", strerror(errno));
        }
        at += n;
        len -= (size_t)n;
        x->bytes += (uint64_t)n;
    }
    return 0;
}

static bool wanted(void *arg, struct slice user)
{
    const struct exporting *x = arg;
    if (x->user.data != NULL && !slice_eq(user, x->user)) {
        return false;
    }
    return x->head.shards == 1 || keyslot_shard(keyslot(user), (unsigned)x->head.shards) == x->head.shard;
}

static int begin(void *arg, uint64_t seed, struct err *err)
{
    struct exporting *x = arg;
    x->head.seed = seed;
    return export_writer_new(put, x, &x->head, &x->writer, err);
}

static int take(void *arg, struct slice snapshot, struct err *err)
{
    return export_writer_add(((struct exporting *)arg)->writer, snapshot, err);
}

static void damaged(void *arg, const char *what)
{
    struct exporting *x = arg;
    progress_end(&x->progress);
    fprintf(stderr, "unseen export: %s\n", what);
    x->problems++;
}

static void show(void *arg, uint64_t done, uint64_t total)
{
    struct exporting *x = arg;
    char size[OUTPUT_TEXT];
    progress_show(&x->progress, done, total, "%s", size_text(x->bytes, size));
}

static int open_file(struct exporting *x, struct err *err)
{
    if (x->path == NULL) {
        x->fd = STDOUT_FILENO;
        return 0;
    }
    if (snprintf(x->partial, sizeof x->partial, "%s.partial", x->path) >= (int)sizeof x->partial) {
        return err_set(err, ERR_INVALID, "the path is too long");
    }
    struct stat st;
    if (stat(x->path, &st) == 0 && !S_ISREG(st.st_mode)) {
        return err_set(err, ERR_INVALID, "%s is there and is no plain file; with - the file goes to standard output",
                       x->path);
    }
    x->fd = open(x->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    return x->fd >= 0 ? 0 : err_set(err, ERR_SYSTEM, "can't create %s: %s", x->partial, strerror(errno));
}

static int close_file(struct exporting *x, int rc, struct err *err)
{
    if (x->path == NULL) {
        return rc;
    }
    if (rc == 0 && fsync(x->fd) < 0) {
        rc = err_set(err, ERR_IO, "can't sync %s: %s", x->partial, strerror(errno));
    }
    if (close(x->fd) < 0 && rc == 0) {
        rc = err_set(err, ERR_IO, "can't write %s: %s", x->partial, strerror(errno));
    }
    if (rc == 0 && rename(x->partial, x->path) < 0) {
        rc = err_set(err, ERR_SYSTEM, "can't rename %s to %s: %s", x->partial, x->path, strerror(errno));
    }
    if (rc < 0) {
        unlink(x->partial);
        return rc;
    }
    return folder_sync_name(x->path, err);
}

static int64_t range_begin(uint64_t i, uint64_t n)
{
    unsigned __int128 at = ((unsigned __int128)i << 64) / n;
    return (int64_t)((uint64_t)at ^ (UINT64_C(1) << 63));
}

static int read_users(struct exporting *x, struct err *err)
{
    int64_t from = range_begin(x->head.range, x->head.ranges), to = INT64_MAX;
    if (x->head.range + 1 < x->head.ranges) {
        to = range_begin(x->head.range + 1, x->head.ranges) - 1;
    }
    const struct store_export e = {
        .from = from,
        .to = to,
        .wanted = wanted,
        .begin = begin,
        .snapshot = take,
        .damaged = damaged,
        .progress = show,
        .arg = x,
    };
    if (x->cfg.store == STORE_ENGINE_RADOS) {
        return rados_export_pool(&x->cfg, &(struct rados_export){.rate = x->rate, .only = x->user}, &e, err);
    }
    int rc = cli_options_has_folder(&x->cfg, err);
    return rc < 0 ? rc : sqlite_export_folder(x->cfg.data, &e, err);
}

static int run(struct exporting *x, struct err *err)
{
    snprintf(x->head.program, sizeof x->head.program, "%s", UNSEEN_VERSION);
    x->head.created_ms = clock_wall_ms();
    x->head.retention = (uint64_t)x->cfg.retention;
    x->head.window = (uint64_t)x->cfg.window;
    x->head.delivered_max = (uint64_t)x->cfg.delivered_max;
    x->head.error_rate = x->cfg.error_rate;
    int rc = open_file(x, err);
    if (rc < 0) {
        return rc;
    }
    progress_begin(&x->progress, "export", x->quiet || x->json);
    rc = read_users(x, err);
    if (rc == 0) {
        rc = export_writer_end(x->writer, &x->counts, err);
    }
    progress_end(&x->progress);
    export_writer_free(x->writer);
    return close_file(x, rc, err);
}

static void print_summary(const struct exporting *x)
{
    const struct export_counts *c = &x->counts;
    FILE *out = x->path != NULL ? stdout : stderr;
    char users[OUTPUT_TEXT];
    char plays[OUTPUT_TEXT];
    char size[OUTPUT_TEXT];
    if (x->json) {
        struct json j = {.out = out};
        json_open(&j, NULL, '{');
        export_counts_json(&j, c);
        json_number(&j, "bytes", (int64_t)x->bytes);
        json_close(&j, '}');
    } else if (!x->quiet) {
        fprintf(out, "%s user%s, %s staged play%s, %s\n", count_text(c->users, users), plural(c->users),
                count_text(c->plays, plays), plural(c->plays), size_text(x->bytes, size));
        if (c->migration_state > 0) {
            fprintf(out, "%s of them are noted only, or in part: the rest of theirs still stands in the old Redis\n",
                    count_text(c->migration_state, users));
        }
    }
}

/* "2/4". */
static bool read_part(const char *text, uint64_t most, uint64_t *part, uint64_t *parts)
{
    char end;
    *part = 0;
    *parts = 1;
    if (text == NULL) {
        return true;
    }
    return text[0] >= '0' && text[0] <= '9' && sscanf(text, "%5" SCNu64 "/%5" SCNu64 "%c", part, parts, &end) == 2 &&
           *parts >= 1 && *parts <= most && *part < *parts;
}

int cli_export(int argc, char **argv)
{
    struct exporting x = {.fd = -1};
    const struct cli_flag flags[] = {
        {"shard", NULL, &x.shard_text},
        {"range", NULL, &x.range_text},
        {"user", NULL, &x.user_text},
        {"rate", NULL, &x.rate_text},
        {"json", &x.json, NULL},
        {"quiet", &x.quiet, NULL},
        {NULL, NULL, NULL},
    };
    const struct cli_syntax syntax = {"export", help, "at most one FILE", 0, 1, flags, false};
    struct cli_options options;
    struct err err;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    if (!read_part(x.shard_text, KEYSLOTS, &x.head.shard, &x.head.shards)) {
        return cli_misuse("export", "--shard '%s': expected I/N, N from 1 to %d and I from 0 to N - 1", x.shard_text,
                          KEYSLOTS);
    }
    if (!read_part(x.range_text, KEYSLOTS, &x.head.range, &x.head.ranges)) {
        return cli_misuse("export", "--range '%s': expected I/N, N from 1 to %d and I from 0 to N - 1", x.range_text,
                          KEYSLOTS);
    }
    if (x.user_text != NULL) {
        x.user = slice_str(x.user_text);
        if (x.user.len < 1 || x.user.len > 255) {
            return cli_misuse("export", "--user: a user has 1 to 255 bytes, got %zu", x.user.len);
        }
    }
    if (!pool_rate_read(x.rate_text, &x.rate)) {
        return cli_misuse("export", "--rate '%s': expected a number of users a second, at most %d", x.rate_text,
                          POOL_RATE_MAX);
    }
    if (options.n_words == 1 && strcmp(options.words[0], "-") != 0) {
        x.path = options.words[0];
    }
    if (x.path == NULL && isatty(STDOUT_FILENO)) {
        return cli_misuse("export", "a terminal can't show the file: give a FILE, or redirect");
    }
    if (cli_options_config(&options, &x.cfg, &err) < 0) {
        return cli_fail(&err);
    }
    if (x.rate_text != NULL && x.cfg.store != STORE_ENGINE_RADOS) {
        return cli_misuse("export", "--rate goes with store = rados");
    }
    if (run(&x, &err) < 0) {
        return cli_fail(&err);
    }
    print_summary(&x);
    if (x.problems > 0) {
        err_set(&err, ERR_CORRUPT, "the file is whole but for %llu thing%s that can't be read, marked in it",
                (unsigned long long)x.problems, plural(x.problems));
        return cli_fail(&err);
    }
    return EXIT_GOOD;
}
