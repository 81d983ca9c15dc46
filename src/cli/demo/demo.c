/* `unseen demo`: makes a history up, imports it, runs `serve` on it as a child, and keeps that one's test clock going,
 * so that it can be moved on by a month from elsewhere, too. What it starts is this same program. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/bench/zipf.h"
#include "cli/cli.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/random.h"
#include "cli/lib/server.h"
#include "store/sqlite/sqlite_store.h"

static const char help[] =
    "Starts a server with a year of made-up history in a folder of its own, and shows ten commands to try.\n\n"
    "Usage: unseen demo [OPTION ...]\n\n"
    "The server listens on free ports of 127.0.0.1, and goes by a clock of its own, which one of the commands moves "
    "on\n"
    "by a month. Ctrl-C ends it and removes the folder, which is made in $TMPDIR, or in /tmp. Options are handed on "
    "to\n"
    "the server; /etc/unseen/unseen.conf is not read.\n\n"
    "Options:\n\n"
    "Examples:\n"
    "  unseen demo\n"
    "  unseen demo --listen 127.0.0.1:7979 --http 127.0.0.1:7980\n";

enum {
    USERS = 200,
    ITEMS = 5000,
    PLAYS = 120 * 1000, /* 50 a user and month, on average */
    DAYS = 365,
    SEED = 42,
    TICK_MS = 1000,
    START_TICKS = 600, /* of 50 ms, that the server may take to start */
    ARGS_MAX = 32 + 2 * CLI_OVERRIDES_MAX,
};

struct demo {
    const struct cli_options *options; /* handed on to what is started */
    char folder[256];
    char data[280], log[280], plays[280], config[280];
    char now[24]; /* unix ms, when the clock begins */
    pid_t server;
    struct client *client;
    char address[CONFIG_TEXT + 16], http[96];
};

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static int make_folder(struct demo *d, struct err *err)
{
    const char *tmp = getenv("TMPDIR");
    tmp = tmp != NULL && tmp[0] == '/' && strlen(tmp) < 200 ? tmp : "/tmp";
    snprintf(d->folder, sizeof d->folder, "%s/unseen-demo-XXXXXX", tmp);
    if (mkdtemp(d->folder) == NULL) {
        int error = errno;
        d->folder[0] = '\0';
        return err_set(err, ERR_SYSTEM, "can't make a folder in %s: %s", tmp, strerror(error));
    }
    snprintf(d->data, sizeof d->data, "%s/data", d->folder);
    snprintf(d->log, sizeof d->log, "%s/log", d->folder);
    snprintf(d->plays, sizeof d->plays, "%s/plays.tsv", d->folder);
    snprintf(d->config, sizeof d->config, "%s/unseen.conf", d->folder);
    return 0;
}

/* Some users play much and most little, and some items are played by nearly all: as anywhere (Zipf). The same on each
 * run, but for when it ends. */
static int write_plays(struct demo *d, struct err *err)
{
    struct random random = {.state = SEED};
    struct zipf users, items;
    int64_t now = clock_wall_ms(), year = (int64_t)DAYS * 24 * 3600 * 1000;
    FILE *f = fopen(d->plays, "we");
    zipf_init(&users, USERS, 0.6);
    zipf_init(&items, ITEMS, 0.8);
    snprintf(d->now, sizeof d->now, "%" PRId64, now);
    for (int i = 0; f != NULL && i < PLAYS; i++) {
        uint64_t user = zipf_next(&users, &random), item = zipf_next(&items, &random);
        int64_t at = now - (int64_t)(random_unit(&random) * (double)year);
        fprintf(f, "%" PRId64 "\tuser:%" PRIu64 "\tvideo:%" PRIu64 "\n", at, user, item);
    }
    FILE *config = fopen(d->config, "we"); /* an empty one, in place of the machine's */
    if (f == NULL || fclose(f) != 0 || config == NULL || fclose(config) != 0) {
        return err_set(err, ERR_IO, "can't write into %s: %s", d->folder, strerror(errno));
    }
    return 0;
}

/* This program with those words, whose last is NULL, on the demo's folder and clock, and with the options that were
 * given. Its output goes to the log. The child ends when this one does. */
static pid_t start(struct demo *d, const char *const *words, struct err *err)
{
    static const char *const common[] = {"--retention", "12", "--window", "12", "--min-free", "0"};
    const char *args[ARGS_MAX] = {"unseen"};
    char names[CLI_OVERRIDES_MAX][64];
    int n = 1;
    while (*words != NULL) {
        args[n++] = *words++;
    }
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        args[n++] = common[i];
    }
    const char *const own[] = {"-c", d->config, "--data", d->data, "--test-clock", d->now};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        args[n++] = own[i];
    }
    for (int i = 0; i < d->options->n_overrides; i++) {
        snprintf(names[i], sizeof names[i], "--%s", d->options->overrides[i].name);
        for (char *c = names[i]; *c != '\0'; c++) {
            *c = *c == '_' ? '-' : *c;
        }
        args[n++] = names[i];
        args[n++] = d->options->overrides[i].value;
    }
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        err_set(err, ERR_SYSTEM, "can't start a process: %s", strerror(errno));
    } else if (pid == 0) {
        int log = open(d->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        setsid(); /* Ctrl-C is for this one, which then ends the server */
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (log >= 0 && dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0 && getppid() == parent) {
            execv("/proc/self/exe", (char *const *)args);
        }
        _exit(EXIT_FAILED);
    }
    return pid;
}

static int failed(const struct demo *d, const char *what, struct err *err)
{
    char line[512] = "", last[512] = "";
    FILE *f = fopen(d->log, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        snprintf(last, sizeof last, "%.*s", (int)strcspn(line, "\n"), line);
    }
    if (f != NULL) {
        fclose(f);
    }
    return err_set(err, ERR_SYSTEM, "%s failed: %.300s", what, last);
}

static int import(struct demo *d, struct err *err)
{
    const char *const words[] = {"import", d->plays, NULL};
    int status;
    pid_t pid = start(d, words, err);
    if (pid < 0) {
        return ERR_SYSTEM;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status == 0 ? 0 : failed(d, "the import", err);
}

/* Waits for a tick. 0; ERR_CLOSED: it was asked to end; ERR_SYSTEM: the server has ended. */
static int wait_tick(struct demo *d, const sigset_t *signals, int ms, struct err *err)
{
    struct timespec tick = {ms / 1000, ms % 1000 * 1000000L};
    int signal = sigtimedwait(signals, NULL, &tick);
    if (signal == SIGCHLD && waitpid(d->server, NULL, WNOHANG) == d->server) {
        d->server = 0;
        return failed(d, "the server", err);
    }
    return signal > 0 && signal != SIGCHLD ? err_set(err, ERR_CLOSED, "asked to end") : 0;
}

/* Where HTTP is, as the server says. */
static void find_http(struct demo *d)
{
    const struct slice words[] = {slice_str("INFO"), slice_str("server")};
    const struct reply *reply;
    struct err err;
    const char prefix[] = "http://";
    if (client_call(d->client, words, 2, &reply, &err) < 0 || reply->kind != REPLY_TEXT) {
        return;
    }
    const char *at = memmem(reply->text.data, reply->text.len, prefix, strlen(prefix));
    if (at != NULL) {
        snprintf(d->http, sizeof d->http, "%.*s", (int)strcspn(at, "\r\n"), at);
    }
}

static int serve(struct demo *d, const sigset_t *signals, struct err *err)
{
    const char *const words[] = {"serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "none", NULL};
    d->server = start(d, words, err);
    int rc = d->server > 0 ? 0 : ERR_SYSTEM;
    for (int tick = 0; rc == 0 && tick < START_TICKS; tick++) {
        struct err ignored;
        if (sqlite_store_address(d->data, d->address, sizeof d->address, &ignored) == 0 && d->address[0] != '\0' &&
            client_connect(d->address, NULL, &d->client, &ignored) == 0) {
            find_http(d);
            return 0;
        }
        rc = wait_tick(d, signals, 50, err);
    }
    return rc < 0 ? rc : err_set(err, ERR_LATE, "the server does not start; its log: %s", d->log);
}

static void print_tour(const struct demo *d)
{
    char plays[OUTPUT_TEXT];
    const char *port = strrchr(d->address, ':') + 1;
    printf("A year of %s plays of %d users is served on %s, by a clock of its own.\n"
           "The page: %s/\n\n"
           "To paste into another terminal (redis-cli is in the package redis-tools):\n\n",
           count_text(PLAYS, plays), USERS, d->address, d->http);
    printf("# Which of these has user:7 not seen yet?\n"
           "redis-cli -p %s UNSEEN user:7 video:1 video:2 video:3 video:4711 video:new\n",
           port);
    printf("# Why is one of them hidden?\n"
           "redis-cli -p %s WHY user:7 video:1\n",
           port);
    printf("# The first three that are unseen, and remember that they were sent: again, and it is three others\n"
           "redis-cli -p %s FILTER user:7 LIMIT 3 DELIVER ITEMS video:1 new:1 new:2 new:3 new:4 new:5 new:6\n",
           port);
    printf("# A play, durable when it answers\n"
           "redis-cli -p %s PLAYED user:7 video:4711\n",
           port);
    printf("# The same over HTTP\n"
           "curl -s --json '{\"user\": \"user:7\", \"items\": [\"video:4711\", \"video:4712\"]}' %s/v1/unseen\n",
           d->http);
    printf("# What is remembered of a user\n"
           "unseen user user:7 --to %s\n",
           d->address);
    printf("# The months on the disk\n"
           "unseen months --to %s\n",
           d->address);
    printf("# The files, in the sqlite3 shell\n"
           "sqlite3 -readonly -box %s/history.db 'SELECT * FROM month_report'\n",
           d->data);
    printf("# A month later: plays older than the window hide nothing any more\n"
           "redis-cli -p %s DEBUG ADVANCE 2678400000\n",
           port);
    printf("# Every trace of a user goes, before it answers\n"
           "redis-cli -p %s FORGET user:7\n\n",
           port);
    printf("Ctrl-C ends it, and removes %s\n", d->folder);
    fflush(stdout);
}

/* Until a signal, or the end of the server: its clock goes on with the real one. */
static int keep_going(struct demo *d, const sigset_t *signals, struct err *err)
{
    const struct slice words[] = {slice_str("DEBUG"), slice_str("ADVANCE"), slice_str("1000")};
    const struct reply *reply;
    struct err ignored;
    int rc;
    while ((rc = wait_tick(d, signals, TICK_MS, err)) == 0) {
        client_call(d->client, words, 3, &reply, &ignored); /* of what it misses, its end tells */
    }
    return rc;
}

static void end(struct demo *d)
{
    client_close(d->client);
    if (d->server > 0) {
        kill(d->server, SIGTERM);
        while (waitpid(d->server, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    if (d->folder[0] != '\0') {
        nftw(d->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
}

int cli_demo(int argc, char **argv)
{
    const struct cli_syntax syntax = {"demo", help, "no argument", 0, 0, NULL, false};
    struct cli_options options;
    int exit_code;
    if (!cli_options_read(&syntax, argc, argv, &options, &exit_code)) {
        return exit_code;
    }
    struct demo d = {.options = &options};
    struct err err;
    for (int i = 0; i < options.n_overrides; i++) {
        if (strcmp(options.overrides[i].name, "data") == 0) {
            return cli_misuse("demo", "--data: it has a folder of its own, which it removes");
        }
    }
    if (options.config_path != NULL && strcmp(options.config_path, CLI_CONFIG_PATH) != 0) {
        return cli_misuse("demo", "-c: it goes by its own settings; options may follow one by one");
    }
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    int rc = make_folder(&d, &err);
    rc = rc < 0 ? rc : write_plays(&d, &err);
    rc = rc < 0 ? rc : import(&d, &err);
    rc = rc < 0 ? rc : serve(&d, &signals, &err);
    if (rc == 0) {
        print_tour(&d);
        rc = keep_going(&d, &signals, &err);
    }
    end(&d);
    return rc == 0 || rc == ERR_CLOSED ? EXIT_GOOD : cli_fail(&err);
}
