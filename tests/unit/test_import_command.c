/* `unseen import` as it is typed: into a folder (what was played is seen, nothing else is), and into a server that this
 * test plays; exit codes, summaries, and what is left undone after an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/calendar.h"
#include "base/hash.h"
#include "base/log.h"
#include "cli/cli.h"
#include "dedup/dedup.h"
#include "resp/parser.h"
#include "store/sqlite/sqlite_store.h"
#include "tests/lib/load_wait.h"

/* By day, when nothing is sealed. */
#define CLOCK "1795176000000" /* 2026-11-20T12:00Z */
static const int64_t now_ms = 1795176000000;
static const int64_t DAY = 24 * 3600 * 1000;

static char folder[] = "/tmp/unseen-import-XXXXXX";
static char file[64], data[64];
static char *out, *errors; /* of the last run */

static int set_up(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    log_set_level(LOG_LEVEL_ERROR); /* as main() does */
    snprintf(file, sizeof(file), "%s/plays", folder);
    snprintf(data, sizeof(data), "%s/data", folder);
    return 0;
}

static void remove_data(void)
{
    static const char *const names[] = {
        "history.db", "history.db-wal", "history.db-shm", "staging.db", "staging.db-wal", "staging.db-shm", "lock"};
    char path[128];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", data, names[i]);
        unlink(path);
    }
    rmdir(data);
}

static int tear_down(void **state)
{
    (void)state;
    free(out);
    free(errors);
    remove_data();
    unlink(file);
    return rmdir(folder);
}

static void put(struct slice text)
{
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text.data, 1, text.len, f), text.len);
    assert_int_equal(fclose(f), 0);
}

static char *take_back(int saved, int fd, FILE *stream)
{
    char *text = calloc(1, 65536);
    fflush(stream);
    assert_true(pread(fd, text, 65535, 0) >= 0);
    assert_true(dup2(saved, fileno(stream)) >= 0);
    close(saved);
    close(fd);
    return text;
}

static int redirect(FILE *stream, int *saved)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/output", folder);
    fflush(stream);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    unlink(path);
    *saved = dup(fileno(stream));
    assert_true(dup2(fd, fileno(stream)) >= 0);
    return fd;
}

/* The arguments behind `unseen import`, ended by NULL. */
static int import(const char *first, ...)
{
    char *argv[32] = {(char *)(uintptr_t) "import"};
    int argc = 1;
    va_list args;
    va_start(args, first);
    for (const char *arg = first; arg != NULL; arg = va_arg(args, const char *)) {
        argv[argc++] = (char *)(uintptr_t)arg;
    }
    va_end(args);
    free(out);
    free(errors);
    int saved_out, saved_err;
    int fd_out = redirect(stdout, &saved_out), fd_err = redirect(stderr, &saved_err);
    int code = cli_import(argc, argv);
    errors = take_back(saved_err, fd_err, stderr);
    out = take_back(saved_out, fd_out, stdout);
    return code;
}

#define FOLDER "--data", data, "--test-clock", CLOCK

static void assert_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        print_error("expected \"%s\" in: %s\n", part, text);
    }
    assert_non_null(strstr(text, part));
}

/* --- into the folder --- */

enum { USERS = 200, ITEMS = 50, ODDS = 3 };

/* Every third item, spread over the months of the window. */
static bool plays(int user, int item)
{
    return (user * 7 + item) % ODDS == 0;
}

static struct buf sample(void)
{
    struct buf b = {0};
    for (int item = 0; item < ITEMS; item++) {
        for (int user = 0; user < USERS; user++) {
            if (plays(user, item)) {
                buf_addf(&b, "%lld\tuser %d\titem %d\n", (long long)(now_ms - (user * item) % 100 * DAY), user, item);
            }
        }
    }
    assert_false(b.failed);
    return b;
}

static struct config cfg;
static struct dedup dedup;
static struct asker *asker;

static void open_folder(void)
{
    struct store *store;
    struct err err;
    config_defaults(&cfg);
    snprintf(cfg.data, sizeof(cfg.data), "%s", data);
    assert_int_equal(sqlite_store_open(&cfg, NULL, &store, &err), 0);
    dedup_init(&dedup, store, &cfg);
    assert_int_equal(asker_open(&dedup, &asker, &err), 0);
}

static void close_folder(void)
{
    asker_close(asker);
    dedup.store->ops->close(dedup.store);
}

static bool seen(const char *user, const char *item)
{
    uint64_t hash = hash_id(dedup.seed, slice_str(item));
    uint8_t unseen;
    size_t n_unseen;
    struct err err;
    assert_int_equal(asker_filter(asker, slice_str(user), &hash, 1, &unseen, &n_unseen, &err), 0);
    return n_unseen == 0;
}

static void check_folder(void)
{
    int wrong = 0;
    open_folder();
    for (int user = 0; user < USERS; user++) {
        for (int item = 0; item < ITEMS; item++) {
            char user_id[32], item_id[32];
            snprintf(user_id, sizeof(user_id), "user %d", user);
            snprintf(item_id, sizeof(item_id), "item %d", item);
            bool is_seen = seen(user_id, item_id);
            assert_true(is_seen || !plays(user, item));
            wrong += is_seen && !plays(user, item);
        }
    }
    assert_true(wrong <= 2); /* of 6,667 questions with an error of some 1e-7 each */
    close_folder();
}

static void test_folder(void **state)
{
    (void)state;
    struct buf text = sample();
    put(buf_slice(&text));
    buf_free(&text);
    assert_int_equal(import(file, FOLDER, NULL), EXIT_GOOD);
    assert_says(errors, " warn the data folder holds no data: an empty history is begun ");
    assert_says(out, "events                3,333");
    assert_says(out, "users                   200\n");
    assert_says(out, "items                    50\n");
    assert_says(out, "too old                   0   before 2026-05\n");
    assert_says(out, "2026-08");
    check_folder();

    char *first = strdup(strstr(out, "month"));
    assert_int_equal(import(file, "--json", FOLDER, NULL), EXIT_GOOD);
    assert_says(out, "\"events\": 3333,");
    assert_says(out, "\"users\": 200,");
    assert_says(out, "\"problems\": []");
    assert_int_equal(import(file, FOLDER, NULL), EXIT_GOOD);
    assert_string_equal(strstr(out, "month"), first);
    free(first);
    check_folder();
    remove_data();
}

static void test_what_is_counted(void **state)
{
    (void)state;
    put(slice_str("1795132800000\tu\ti\n"
                  "x\n"
                  "1704067200000\tu\told\n"
                  "1795305600000\tu\tahead\n"
                  "1795132800\tu\tseconds\n"
                  "1795132800000\tu\ti\n"
                  "1\n2\n3\n4\n"));
    assert_int_equal(import(file, FOLDER, "--json", NULL), EXIT_GOOD);
    assert_says(out, "\"dry_run\": false,");
    assert_says(out, "\"events\": 2,");
    assert_says(out, "\"users\": 1,");
    assert_says(out, "\"items\": 1,");
    assert_says(out, "\"too_old\": 1,");
    assert_says(out, "\"ahead\": 1,");
    assert_says(out, "\"malformed\": 6,");
    assert_says(out, "\"line\": 2,");
    assert_says(out, "\"line\": 5,");
    assert_says(out, "\"line\": 9,");
    assert_null(strstr(out, "\"line\": 10,"));
    assert_int_equal(import(file, FOLDER, NULL), EXIT_GOOD);
    assert_says(out, "malformed                 6\n");
    assert_says(out, "/plays:5: unix_ms is \"1795132800\", which looks like seconds, expected milliseconds\n");
    assert_says(out, "  ...\n");
    assert_int_equal(import(file, FOLDER, "--quiet", NULL), EXIT_GOOD);
    assert_string_equal(out, "");
    assert_says(errors, "unseen import: 6 malformed or refused, the first at ");
    remove_data();
}

static void test_nothing_is_made(void **state)
{
    (void)state;
    struct stat st;
    put(slice_str("1795132800000\tu\ti\n1795132800000\tu\n"));
    assert_int_equal(import(file, FOLDER, "--dry-run", NULL), EXIT_GOOD);
    assert_says(out, "events                    1   read, none loaded\n");
    assert_int_equal(import(file, FOLDER, "--strict", NULL), EXIT_FAILED);
    assert_says(errors, "/plays:2: expected 3 fields (unix_ms, user, item) separated by tabs, found 2\n");
    assert_string_equal(out, "");
    assert_int_equal(import(file, FOLDER, "--strict", "--dry-run", NULL), EXIT_FAILED);
    assert_int_equal(import("/nowhere/x", FOLDER, "--strict", NULL), EXIT_FAILED);
    assert_int_equal(stat(data, &st), -1);
}

/* What can't be read twice is read once, so what comes before the bad line is loaded. */
static void test_strict_pipe(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        char name[32];
        int fds[2];
        assert_int_equal(pipe(fds), 0);
        const char *text = bad ? "1795132800000\tu\ti\nx\n" : "1795132800000\tu\ti\n";
        assert_int_equal(write(fds[1], text, strlen(text)), strlen(text));
        close(fds[1]);
        snprintf(name, sizeof(name), "/dev/fd/%d", fds[0]);
        assert_int_equal(import(name, FOLDER, "--strict", NULL), bad ? EXIT_FAILED : EXIT_GOOD);
        if (bad) {
            assert_says(errors,
                        ":2: expected 3 fields (unix_ms, user, item) separated by tabs, found 1 (stopped there; ");
        } else {
            assert_says(out, "events                    1\n");
        }
        close(fds[0]);
        open_folder();
        assert_true(seen("u", "i"));
        close_folder();
        remove_data();
    }
}

static void test_errors(void **state)
{
    (void)state;
    put(slice_str("a\nb\n"));
    assert_int_equal(import(file, FOLDER, NULL), EXIT_FAILED);
    assert_says(errors, "nothing was loaded: 2 malformed");
    assert_int_equal(import(file, "/nowhere/x", FOLDER, NULL), EXIT_FAILED);
    assert_string_equal(errors, "unseen: /nowhere/x: No such file or directory\n");
    put(slice_str(""));
    assert_int_equal(import(file, FOLDER, NULL), EXIT_FAILED);
    assert_says(errors, "nothing was loaded: no line in the input");
    put(slice_str("1704067200000\tu\told\n1795305600000\tu\tahead\nx\n"));
    assert_int_equal(import(file, FOLDER, NULL), EXIT_FAILED);
    assert_says(errors, "nothing was loaded: 1 too old, 1 ahead, 1 malformed");
    assert_int_equal(import(file, FOLDER, "--dry-run", NULL), EXIT_FAILED);
    assert_says(errors, "nothing would be loaded: 1 too old");

    /* A stream that breaks off after some of its lines. */
    static const char cut[] = "\x28\xb5\x2f\xfd\x00\x58\x90\x00\x00"
                              "1795132800000\tu\ti\n"
                              "\x01\x02";
    put(slice_of(cut, sizeof(cut) - 1));
    assert_int_equal(import(file, FOLDER, NULL), EXIT_FAILED);
    assert_says(errors, "/plays: cut off at byte 29, in the middle of its compressed data");
    assert_says(errors, "(stopped there; repeating the import is harmless)");
    remove_data();

    assert_int_equal(import(NULL), EXIT_USAGE);
    assert_int_equal(import("-", "-", FOLDER, NULL), EXIT_USAGE);
    assert_int_equal(import(file, "--format", "xml", FOLDER, NULL), EXIT_USAGE);
    assert_says(errors, "--format 'xml': expected tsv, csv or ndjson");
    assert_int_equal(import(file, "--formats", "csv", FOLDER, NULL), EXIT_USAGE);
    assert_int_equal(import("--help", NULL), EXIT_GOOD);
    assert_says(out, "Examples:\n");
}

static void test_served_folder(void **state)
{
    (void)state;
    struct err err;
    put(slice_str("1795132800000\tu\ti\n"));
    open_folder();
    assert_int_equal(import(file, FOLDER, NULL), EXIT_FAILED);
    assert_says(errors, "is in use by process");
    assert_int_equal(dedup.store->ops->publish(dedup.store, "unix:/run/u.sock", &err), 0);
    assert_int_equal(import(file, FOLDER, NULL), EXIT_FAILED);
    assert_says(errors, "import with --to unix:/run/u.sock\n");
    close_folder();
    remove_data();
}

/* What a file of rejects has; it is removed. */
static char *take_rejects(const char *path)
{
    char *text = calloc(1, 4096);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, text, 4095) >= 0);
    close(fd);
    unlink(path);
    return text;
}

static void test_rejects(void **state)
{
    (void)state;
    char path[64], expected[1024];
    snprintf(path, sizeof path, "%s/rejects", folder);
    put(slice_str("1795132800000,\"u\",i\nx,\"two\nlines\",i\n1704067200000,u,old\n1795305600000,u,ahead\nlast,u\n"));
    for (int dry = 0; dry < 2; dry++) {
        assert_int_equal(import(file, FOLDER, "--rejects", path, dry ? "--dry-run" : NULL, NULL), EXIT_GOOD);
        char *got = take_rejects(path);
        snprintf(expected, sizeof expected,
                 "%s:2\tunix_ms is \"x\", expected a whole number of milliseconds since 1970\tx,\"two\nlines\",i\n"
                 "%s:4\tpast retention: before 2026-05\t1704067200000,u,old\n"
                 "%s:5\tahead: after 2026-11-21\t1795305600000,u,ahead\n"
                 "%s:6\texpected 3 fields (unix_ms, user, item) separated by commas, found 2\tlast,u\n",
                 file, file, file, file);
        assert_string_equal(got, expected);
        free(got);
    }
    remove_data();

    /* At one too many it stops; what came before is loaded, and what was refused is in the file. */
    put(slice_str("1795132800000\tu\ti\nx\ny\nz\n"));
    assert_int_equal(import(file, FOLDER, "--rejects", path, "--max-rejects", "2", NULL), EXIT_FAILED);
    assert_says(errors, "more than 2 lines were refused (--max-rejects): see ");
    open_folder();
    assert_true(seen("u", "i"));
    close_folder();
    assert_int_equal(import(file, FOLDER, "--rejects", path, NULL), EXIT_FAILED);
    assert_says(errors, "the file has something in it; name another, or remove it");
    char *got = take_rejects(path);
    assert_non_null(strstr(got, ":3\t"));
    assert_null(strstr(got, ":4\t"));
    free(got);
    assert_int_equal(import(file, FOLDER, "--rejects", "/nowhere/x", NULL), EXIT_FAILED);
    assert_says(errors, "--rejects /nowhere/x: No such file or directory");
    assert_int_equal(import(file, FOLDER, "--rejects", path, "--strict", NULL), EXIT_USAGE);
    assert_int_equal(import(file, FOLDER, "--max-rejects", "5", NULL), EXIT_USAGE);
    assert_int_equal(import(file, FOLDER, "--rejects", path, "--max-rejects", "5x", NULL), EXIT_USAGE);
    remove_data();
}

/* Lines of which it is not known what they mean are no success, whatever else was loaded. */
static void test_escapes(void **state)
{
    (void)state;
    put(slice_str("1795132800000\tu\ta\n1795132800000\tu\tC:\\\\new\n"));
    assert_int_equal(import(file, FOLDER, NULL), EXIT_FAILED);
    assert_says(out, "events                    1\n");
    assert_says(errors,
                "import: 1 line was not loaded, since nothing says what a backslash or the word NULL means there");
    assert_int_equal(import(file, FOLDER, "--escapes", "psql", NULL), EXIT_GOOD);
    open_folder();
    assert_true(seen("u", "a") && seen("u", "C:\\new") && !seen("u", "C:\\\\new"));
    close_folder();
    static const char *const wrong[][4] = {
        {"--escapes", "postgres"},
        {"--escapes", "psql", "--format", "csv"},
        {"--escapes", "mysql", "--format", "ndjson"},
        {"--columns", "user,item"},
        {"--columns", "time,user,item", "--format", "ndjson"},
        {"--time-unit", "min"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(import(file, FOLDER, wrong[i][0], wrong[i][1], wrong[i][2], wrong[i][3], NULL), EXIT_USAGE);
        assert_int_equal(import("--dead-letters", wrong[i][0], wrong[i][1], NULL), EXIT_USAGE);
    }
    remove_data();
}

/* --- into a server --- */

static struct server {
    int listener;
    char address[32];
    bool loaded;   /* from the second PING on */
    bool stranger; /* knows no retention */
    pthread_t thread;
    struct buf log; /* a line for each command */
    int commands;   /* PLAYEDAT */
    int infos, busy;
    size_t words; /* of the longest */
} server;

static void answer(int fd, const char *format, ...)
{
    char text[128];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (send(fd, text, (size_t)len, MSG_NOSIGNAL) != len) {
        abort();
    }
}

/* Returns false to hang up. */
static bool serve_command(int fd, const struct parser *p)
{
    for (size_t i = 0; i < p->n; i++) {
        buf_addf(&server.log, "%.*s%s", (int)p->args[i].len, p->args[i].data, i + 1 < p->n ? " " : "\n");
    }
    if (slice_eq(p->args[0], slice_str("HELLO"))) {
        answer(fd, "%%1\r\n+server\r\n+unseen\r\n");
    } else if (slice_eq(p->args[0], slice_str("PING"))) {
        answer(fd, server.loaded ? "+PONG\r\n" : "-LOADING Redis is loading the dataset in memory\r\n");
        server.loaded = true;
    } else if (slice_eq(p->args[0], slice_str("CONFIG"))) {
        answer(fd, server.stranger ? "%%0\r\n" : "%%1\r\n$9\r\nretention\r\n$1\r\n2\r\n");
    } else if (slice_eq(p->args[0], slice_str("INFO"))) {
        answer(fd, server.infos++ == 0 ? "$20\r\nforgotten_dropped:41\r\n" : "$20\r\nforgotten_dropped:43\r\n");
    } else if (slice_eq(p->args[1], slice_str("refused"))) {
        answer(fd, "-ERR not this one\r\n");
    } else if (slice_eq(p->args[1], slice_str("busy"))) {
        answer(fd, server.busy++ == 0 ? "-BUSY no slot is free\r\n" : ":1\r\n");
    } else if (slice_eq(p->args[1], slice_str("full"))) {
        answer(fd, "-MISCONF the disk is full\r\n");
    } else {
        answer(fd, ":%zu\r\n", p->n - 3);
    }
    server.commands += slice_eq(p->args[0], slice_str("PLAYEDAT"));
    server.words = p->n > server.words ? p->n : server.words;
    return true;
}

static void *serve(void *arg)
{
    (void)arg;
    int fd = accept(server.listener, NULL, NULL);
    struct parser p;
    struct buf in = {0};
    parser_init(&p);
    for (bool go_on = true; go_on;) {
        if (buf_reserve(&in, 65536) < 0) {
            abort();
        }
        ssize_t n = recv(fd, in.data + in.len, 65536, 0);
        if (n <= 0) {
            break;
        }
        in.len += (size_t)n;
        while (go_on && in.len > 0 && parser_feed(&p, in.data, in.len) == PARSE_DONE) {
            go_on = serve_command(fd, &p);
            in.len -= p.used;
            memmove(in.data, in.data + p.used, in.len);
            parser_next(&p);
        }
    }
    parser_free(&p);
    buf_free(&in);
    close(fd);
    return NULL;
}

static void start_server(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    server = (struct server){.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(bind(server.listener, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(server.listener, 1), 0);
    assert_int_equal(getsockname(server.listener, (struct sockaddr *)&address, &len), 0);
    snprintf(server.address, sizeof(server.address), "127.0.0.1:%d", ntohs(address.sin_port));
    assert_int_equal(pthread_create(&server.thread, NULL, serve, NULL), 0);
}

/* The log, as text; the test frees it. */
static char *stop_server(void)
{
    assert_int_equal(pthread_join(server.thread, NULL), 0);
    close(server.listener);
    assert_int_equal(buf_add(&server.log, "", 1), 0);
    return server.log.data;
}

#define SERVER "--to", server.address, "--test-clock", CLOCK

static void test_commands_are_grouped(void **state)
{
    (void)state;
    put(slice_str("1795132800000,a,1\n"
                  "1795132800000,a,2\n"
                  "1795132800000,b,\"3\n\"\n"
                  "1788220799999,b,4\n" /* before the server's retention, not the configuration's */
                  "1788220800000,b,4\n"
                  "1795132800000,a,5\n"
                  "1795132800000,a,5\n"
                  "1795132800001,a,6\n"));
    start_server();
    setenv("UNSEEN_PASSWORD", "secret", 1);
    assert_int_equal(import(file, SERVER, "--json", NULL), EXIT_GOOD);
    unsetenv("UNSEEN_PASSWORD");
    char *log = stop_server();
    assert_string_equal(log, "HELLO 3 AUTH default secret\n"
                             "PING\n"
                             "PING\n"
                             "CONFIG GET retention\n"
                             "INFO stats\n"
                             "PLAYEDAT a 1795132800000 1 2\n"
                             "PLAYEDAT b 1795132800000 3\n\n"
                             "PLAYEDAT b 1788220800000 4\n"
                             "PLAYEDAT a 1795132800000 5 5\n"
                             "PLAYEDAT a 1795132800001 6\n"
                             "INFO stats\n");
    assert_says(out, "\"events\": 5,"); /* by the server two are older than a forget */
    assert_says(out, "\"forgotten\": 2,");
    assert_says(out, "\"too_old\": 1,");
    free(log);
}

/* More commands than may be on the way at once, more items than a command takes, more bytes than the reader holds. */
static void test_many_commands(void **state)
{
    (void)state;
    enum { SINGLES = 20000, ITEMS_OF_ONE = 1300, REFUSED = 1000 };
    struct buf b = {0}, expected = {0};
    for (int i = 0; i < SINGLES; i++) {
        char user[16];
        snprintf(user, sizeof(user), i == REFUSED ? "refused" : "u%d", i);
        buf_addf(&b, CLOCK "\t%s\tx\n", user);
        buf_addf(&expected, "PLAYEDAT %s " CLOCK " x\n", user);
    }
    for (int i = 0; i < ITEMS_OF_ONE; i++) {
        buf_addf(&b, CLOCK "\tu\t%d\n", i);
    }
    put(buf_slice(&b));
    start_server();
    assert_int_equal(import(file, SERVER, "--json", NULL), EXIT_FAILED);
    char *log = stop_server();
    char *singles = strstr(log, "PLAYEDAT");
    assert_non_null(singles);
    assert_true(strncmp(singles, expected.data, expected.len) == 0);
    assert_in_range(server.commands, SINGLES + 3, SINGLES + 5); /* a group ends where the reader's bytes do */
    assert_int_equal(server.words, 3 + 512);
    assert_says(out, "\"events\": 21297,");
    assert_says(out, "\"refused\": 1,");
    assert_says(out, "\"line\": 1001,"); /* REFUSED counts from 0 */
    free(log);
    buf_free(&b);
    buf_free(&expected);
}

static void test_server_refuses(void **state)
{
    (void)state;
    put(slice_str("1795132800000\ta\t1\n"
                  "1795132800000\trefused\t1\n"
                  "1795132800000\trefused\t2\n"
                  "1795132800000\tb\t2\n"));
    start_server();
    assert_int_equal(import(file, SERVER, NULL), EXIT_FAILED);
    free(stop_server());
    assert_says(out, "forgotten                 2   not newer than a FORGET of the user or item\n");
    assert_says(out, "refused                   2   by the server\n");
    assert_says(out, "/plays:2: ERR not this one\n");
    assert_says(errors, "unseen: import: the server refused 2 events\n");
    assert_int_equal(server.commands, 3);
}

static void test_server_fails(void **state)
{
    (void)state;
    put(slice_str("1795132800000\ta\t1\n1795132800000\ta\t2\n1795132800000\tbusy\t1\n"));
    start_server();
    assert_int_equal(import(file, SERVER, NULL), EXIT_GOOD);
    free(stop_server());
    assert_says(errors, ": the server answered: BUSY no slot is free; trying again\n");
    assert_says(errors, " answers again\n");

    put(slice_str("1795132800000\ta\t1\n1795132800000\tfull\t1\n"));
    start_server();
    assert_int_equal(import(file, SERVER, NULL), EXIT_FAILED);
    free(stop_server());
    assert_says(errors, ": the server answered: MISCONF the disk is full (stopped there; repeating the import is "
                        "harmless)\n");
    assert_string_equal(out, "");

    start_server();
    server.stranger = true;
    assert_int_equal(import(file, SERVER, NULL), EXIT_FAILED);
    free(stop_server());
    assert_says(errors, " is no Unseen server: CONFIG GET retention gave no number\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_what_is_counted),
        cmocka_unit_test(test_nothing_is_made),
        cmocka_unit_test(test_strict_pipe),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_rejects),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_served_folder),
        cmocka_unit_test(test_commands_are_grouped),
        cmocka_unit_test(test_many_commands),
        cmocka_unit_test(test_server_refuses),
        cmocka_unit_test(test_server_fails),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
