/* Folders that are put together wrongly: each of both files missing, empty, older, newer, of another folder, of another
 * program, under the other's name, cut short; and logs that lie there from before. Whatever is there, the start either
 * answers everything that was acknowledged when those files were written, or refuses by name and changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "store/sqlite/state.h"
#include "tests/lib/rounds.h"
#include "tests/lib/store_calls.h"

/* --- files --- */

static void path_of(char out[PATH_MAX], const char *folder, const char *name)
{
    assert_true(snprintf(out, PATH_MAX, "%s/%s", folder, name) < PATH_MAX);
}

/* Names and contents of all files, as one number; but not of the lock, nor of what SQLite makes to read a log. */
static uint64_t print_of(const char *folder)
{
    uint64_t print = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char path[PATH_MAX];
        char bytes[65536];
        size_t n;
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "lock") == 0 || strstr(entry->d_name, "-shm") != NULL) {
            continue;
        }
        path_of(path, folder, entry->d_name);
        uint64_t file = 0;
        FILE *in = fopen(path, "rb");
        assert_non_null(in);
        while ((n = fread(bytes, 1, sizeof bytes, in)) > 0) {
            file = hash_id(file, slice_of(bytes, n));
        }
        fclose(in);
        print += file != 0 ? hash_id(file, slice_str(entry->d_name)) : 0;
    }
    closedir(dir);
    return print;
}

static void empty_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char path[PATH_MAX];
        if (entry->d_name[0] != '.') {
            path_of(path, folder, entry->d_name);
            assert_int_equal(unlink(path), 0);
        }
    }
    closedir(dir);
}

/* --- the folders that files are taken from --- */

enum source {
    NOW,
    OLDER,
    EARLIEST,
    OTHER,
    OTHER_SEED,
    KILLED,
    MISSING,
    EMPTY,
    GARBAGE,
    FOREIGN,
    SWAPPED,
    CUT,
    SOURCES
};
static const char *const source_names[] = {"now",     "older", "earliest", "other folder", "other seed", "killed",
                                           "missing", "empty", "garbage",  "foreign",      "swapped",    "cut"};

struct fixture {
    struct store_fixture *store;
    char folders[KILLED + 1][CONFIG_TEXT];
    char foreign[CONFIG_TEXT];
};

static void new_folder(char out[CONFIG_TEXT])
{
    snprintf(out, CONFIG_TEXT, "/tmp/unseen-test-pair.XXXXXX");
    assert_non_null(mkdtemp(out));
}

static void take_copy(struct fixture *f, enum source as, const char *from)
{
    static const char *const files[] = {"staging.db", "history.db", "staging.db-wal", "history.db-wal"};
    new_folder(f->folders[as]);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        copy_file(from, files[i], f->folders[as], files[i]);
    }
}

static void use_folder(struct fixture *f, const char *folder, uint64_t seed)
{
    snprintf(f->store->cfg.data, sizeof f->store->cfg.data, "%s", folder);
    f->store->cfg.hash_seed = seed;
    open_store(f->store);
}

static void make_other(struct fixture *f, enum source as, uint64_t seed)
{
    char folder[CONFIG_TEXT];
    struct slice item = slice_str("o");
    uint64_t hash = hash_id(seed, item);
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    new_folder(folder);
    use_folder(f, folder, seed);
    assert_int_equal(store_batch_add(&batch, STORE_PLAY, clock_wall_ms(), STORE_STAMPED,
                                     hash_user_key(seed, slice_str("o")), slice_str("o"), &item, &hash, 1),
                     0);
    f->store->store->ops->record(f->store->store, &batch);
    wait_flag(&done);
    buf_free(&batch.bytes);
    assert_int_equal(flush(f->store), 0);
    close_store(f->store);
    take_copy(f, as, folder);
    remove_folder(folder);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->store = store_fixture_new("pair");
    char first[CONFIG_TEXT];
    snprintf(first, sizeof first, "%s", f->store->cfg.data);
    open_store(f->store);
    play(f->store, "u", "a");
    close_store(f->store);
    take_copy(f, EARLIEST, first); /* nothing was flushed yet */
    open_store(f->store);
    assert_int_equal(flush(f->store), 0);
    deliver(f->store, "u", "b");
    close_store(f->store);
    take_copy(f, OLDER, first);
    open_store(f->store);
    play(f->store, "u", "c");
    assert_int_equal(flush(f->store), 0);
    play(f->store, "u", "d");
    close_store(f->store);
    take_copy(f, NOW, first);
    open_store(f->store);
    play(f->store, "u", "e");
    kill_store(f->store);
    make_other(f, OTHER, SEED);
    make_other(f, OTHER_SEED, SEED + 1);
    /* Killed: both logs hold what their files don't. */
    use_folder(f, first, SEED);
    play(f->store, "u", "f");
    assert_int_equal(flush(f->store), 0);
    take_copy(f, KILLED, first);
    kill_store(f->store);
    new_folder(f->foreign);
    char path[PATH_MAX];
    sqlite3 *db;
    path_of(path, f->foreign, "foreign.db");
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE users (name); INSERT INTO users VALUES ('x')", NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i <= KILLED; i++) {
        remove_folder(f->folders[i]);
    }
    remove_folder(f->foreign);
    store_fixture_free(f->store);
    free(f);
    return 0;
}

/* --- putting a folder together --- */

static void put(struct fixture *f, enum source from, const char *file, const char *other_file)
{
    const char *to = f->store->cfg.data;
    char path[PATH_MAX];
    path_of(path, to, file);
    if (from <= KILLED) {
        char log[32];
        assert_true(copy_file(f->folders[from], file, to, file));
        snprintf(log, sizeof log, "%s-wal", file);
        copy_file(f->folders[from], log, to, log);
    } else if (from == SWAPPED) {
        copy_file(f->folders[NOW], other_file, to, file);
    } else if (from == FOREIGN) {
        copy_file(f->foreign, "foreign.db", to, file);
    } else if (from == CUT) {
        copy_file(f->folders[NOW], file, to, file);
        assert_int_equal(truncate(path, 700), 0);
    } else if (from != MISSING) {
        FILE *out = fopen(path, "wb");
        assert_non_null(out);
        for (int i = 0; from == GARBAGE && i < 1000; i++) {
            fputs("no database, ", out);
        }
        fclose(out);
    }
}

static bool is_nothing(enum source s)
{
    return s == MISSING || s == EMPTY;
}

static bool is_damaged(enum source s)
{
    return s == GARBAGE || s == FOREIGN || s == SWAPPED || s == CUT;
}

/* What the refusal must say; NULL: the folder is good. */
static const char *refusal(enum source staging, enum source history)
{
    if (staging == history && staging <= KILLED) {
        return NULL;
    }
    if (is_nothing(staging) && is_nothing(history)) {
        return NULL; /* a new folder */
    }
    if (is_damaged(staging) || is_damaged(history)) {
        return ".db";
    }
    if (is_nothing(staging)) {
        return "staging.db is missing or empty";
    }
    if (is_nothing(history)) {
        return "history.db is missing or empty";
    }
    bool others = staging == OTHER || staging == OTHER_SEED || history == OTHER || history == OTHER_SEED;
    if (others) {
        return "are of two folders";
    }
    static const int age[] = {[EARLIEST] = 0, [OLDER] = 1, [NOW] = 2, [KILLED] = 3};
    return age[staging] < age[history] ? "staging.db is older" : "history.db is older";
}

static const char *acknowledged(enum source s)
{
    return s == EARLIEST ? "a" : s == OLDER ? "ab" : s == NOW ? "abcd" : s == KILLED ? "abcdef" : "";
}

static void expect_all_seen(struct store_fixture *f, const char *items)
{
    for (char item[2] = {items[0], 0}; item[0] != '\0'; item[0] = *++items) {
        if (!seen(f, "u", item)) {
            fail_msg("%s is unseen", item);
        }
    }
}

static void expect_refusal(struct fixture *f, const char *words)
{
    struct err err = {0};
    uint64_t before = print_of(f->store->cfg.data);
    int result = try_open(f->store, &err);
    if (result == 0) {
        f->store->store->ops->close(f->store->store);
        f->store->store = NULL;
        fail_msg("a start, expected: %s", words);
    }
    f->store->store = NULL;
    if (strstr(err.text, words) == NULL || strlen(err.text) > 300) {
        fail_msg("\"%s\", expected: %s", err.text, words);
    }
    if (before != print_of(f->store->cfg.data)) {
        fail_msg("the refused start has changed the folder: %s", err.text);
    }
}

static void use_new_folder(struct fixture *f)
{
    empty_folder(f->store->cfg.data);
    f->store->cfg.hash_seed_given = false;
}

static void test_every_pair(void **state)
{
    struct fixture *f = *state;
    for (int s = 0; s < SOURCES; s++) {
        for (int h = 0; h < SOURCES; h++) {
            use_new_folder(f);
            put(f, (enum source)s, "staging.db", "history.db");
            put(f, (enum source)h, "history.db", "staging.db");
            print_message("staging.db %s, history.db %s\n", source_names[s], source_names[h]);
            const char *words = refusal((enum source)s, (enum source)h);
            if (words != NULL) {
                expect_refusal(f, words);
                continue;
            }
            open_store(f->store);
            expect_all_seen(f->store, acknowledged((enum source)s));
            assert_int_equal(flush(f->store), 0);
            if (s <= KILLED && s != OTHER_SEED) {
                play(f->store, "u", "z");
                expect_all_seen(f->store, acknowledged((enum source)s));
            }
            close_store(f->store);
        }
    }
}

/* --- logs from before --- */

static void test_left_logs(void **state)
{
    struct fixture *f = *state;
    static const char *const files[] = {"staging.db", "history.db"};
    static const enum source at[] = {NOW, OLDER, OTHER};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char log[32];
        snprintf(log, sizeof log, "%s-wal", files[i]);
        for (size_t j = 0; j < sizeof at / sizeof *at; j++) {
            use_new_folder(f);
            put(f, at[j], "staging.db", "history.db");
            put(f, at[j], "history.db", "staging.db");
            assert_true(copy_file(f->folders[KILLED], log, f->store->cfg.data, log));
            expect_refusal(f, "is left over from another");
            expect_refusal(f, log);
            expect_problem(f->store, "is left over from another");
        }
        use_new_folder(f); /* the log alone: SQLite itself would delete it */
        put(f, NOW, files[1 - i], NULL);
        assert_true(copy_file(f->folders[KILLED], log, f->store->cfg.data, log));
        expect_refusal(f, "but its log");
    }
}

/* An index of a log that is not there is of no account. */
static void test_left_index(void **state)
{
    struct fixture *f = *state;
    use_new_folder(f);
    put(f, NOW, "staging.db", "history.db");
    put(f, NOW, "history.db", "staging.db");
    copy_file(f->foreign, "foreign.db", f->store->cfg.data, "staging.db-shm");
    copy_file(f->foreign, "foreign.db", f->store->cfg.data, "history.db-shm");
    open_store(f->store);
    expect_all_seen(f->store, "abcd");
    close_store(f->store);
}

/* --- logs that are needed --- */

static void use_killed(struct fixture *f)
{
    use_new_folder(f);
    put(f, KILLED, "staging.db", "history.db");
    put(f, KILLED, "history.db", "staging.db");
}

static void log_path(struct fixture *f, const char *file, char out[PATH_MAX])
{
    char log[32];
    snprintf(log, sizeof log, "%s-wal", file);
    path_of(out, f->store->cfg.data, log);
}

static int64_t bytes_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_size : -1;
}

/* Whatever was there, it is not any more. */
static void other_byte(FILE *file, long at)
{
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_not_equal(byte, EOF);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_not_equal(fputc(byte ^ 0xff, file), EOF);
}

/* A file that was in use, and whose log is gone, empty, cut short, or damaged at its begin, in part or altogether. */
static void test_lost_logs(void **state)
{
    struct fixture *f = *state;
    static const char *const files[] = {"staging.db", "history.db"};
    char path[PATH_MAX];
    for (unsigned which = 1; which <= 3; which++) {
        for (int how = 0; how < 5; how++) {
            use_killed(f);
            for (unsigned i = 0; i < 2; i++) {
                log_path(f, files[i], path);
                FILE *log = (which >> i & 1) == 0 ? NULL : fopen(path, "r+");
                if (log == NULL) {
                    continue;
                }
                if (how == 0) {
                    assert_int_equal(unlink(path), 0);
                } else if (how == 1) {
                    assert_int_equal(truncate(path, 0), 0);
                } else if (how == 2) {
                    assert_int_equal(truncate(path, 20), 0);
                } else {
                    other_byte(log, how == 3 ? 0 : 18);
                }
                assert_int_equal(fclose(log), 0);
            }
            expect_refusal(f, "needs its log");
            expect_refusal(f, (which & 1) != 0 ? "staging.db-wal" : "history.db-wal");
            expect_problem(f->store, "needs its log");
        }
    }
}

/* Logs of other files, and of the same file at another time, which SQLite would take. */
static void test_logs_of_others(void **state)
{
    struct fixture *f = *state;
    char log[PATH_MAX], aside[CONFIG_TEXT];
    new_folder(aside);
    use_killed(f);
    open_store(f->store); /* goes on in the logs that are there */
    assert_int_equal(flush(f->store), 0);
    play(f->store, "u", "g");
    copy_file(f->store->cfg.data, "staging.db-wal", aside, "staging.db-wal");
    for (int i = 0; i < 3; i++) { /* begins again and again */
        close_store(f->store);
        open_store(f->store);
        play(f->store, "u", "h");
    }
    kill_store(f->store);
    assert_true(copy_file(aside, "staging.db-wal", f->store->cfg.data, "staging.db-wal"));
    expect_refusal(f, "is the log of another staging.db");
    expect_problem(f->store, "is the log of another staging.db");

    use_killed(f); /* under the other's name */
    log_path(f, "staging.db", log);
    assert_true(copy_file(f->store->cfg.data, "history.db-wal", f->store->cfg.data, "staging.db-wal"));
    expect_refusal(f, "is the log of another staging.db");
    remove_folder(aside);
}

/* The file of before a checkpoint, with the log of after it: what was between them is in neither. */
static void test_copied_one_by_one(void **state)
{
    struct fixture *f = *state;
    static const char *const files[] = {"staging.db", "staging.db-wal", "history.db-wal"};
    char aside[CONFIG_TEXT];
    new_folder(aside);
    use_killed(f);
    open_store(f->store);
    copy_file(f->store->cfg.data, "history.db", aside, "history.db");
    for (int i = 0; i < 3; i++) { /* a close is a checkpoint */
        play(f->store, "u", "g");
        assert_int_equal(flush(f->store), 0);
        close_store(f->store);
        open_store(f->store);
    }
    play(f->store, "u", "h");
    assert_int_equal(flush(f->store), 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        assert_true(copy_file(f->store->cfg.data, files[i], aside, files[i]));
    }
    kill_store(f->store);
    char first[CONFIG_TEXT];
    snprintf(first, sizeof first, "%s", f->store->cfg.data);
    snprintf(f->store->cfg.data, sizeof f->store->cfg.data, "%s", aside);
    expect_refusal(f, "history.db-wal in");
    snprintf(f->store->cfg.data, sizeof f->store->cfg.data, "%s", first);
    open_store(f->store);
    expect_all_seen(f->store, "abcdefgh");
    close_store(f->store);
    remove_folder(aside);
}

/* What the shell makes of a served folder is whole by itself. */
static void test_copies_by_the_shell(void **state)
{
    struct fixture *f = *state;
    static const char *const files[] = {"staging.db", "history.db"};
    for (int vacuum = 0; vacuum <= 1; vacuum++) {
        char copy[CONFIG_TEXT];
        new_folder(copy);
        use_killed(f);
        open_store(f->store);
        for (size_t i = 0; i < 2; i++) {
            char from[PATH_MAX], to[PATH_MAX], sql[PATH_MAX + 32];
            sqlite3 *db, *target;
            path_of(from, f->store->cfg.data, files[i]);
            path_of(to, copy, files[i]);
            assert_int_equal(sqlite3_open_v2(from, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
            if (vacuum) {
                snprintf(sql, sizeof sql, "VACUUM INTO '%s'", to);
                assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
            } else {
                assert_int_equal(sqlite3_open(to, &target), SQLITE_OK);
                sqlite3_backup *b = sqlite3_backup_init(target, "main", db, "main");
                assert_non_null(b);
                assert_int_equal(sqlite3_backup_step(b, -1), SQLITE_DONE);
                assert_int_equal(sqlite3_backup_finish(b), SQLITE_OK);
                sqlite3_close(target);
            }
            sqlite3_close(db);
        }
        close_store(f->store);
        char first[CONFIG_TEXT];
        snprintf(first, sizeof first, "%s", f->store->cfg.data);
        snprintf(f->store->cfg.data, sizeof f->store->cfg.data, "%s", copy);
        open_store(f->store);
        kill_store(f->store); /* a mark that came with the copy is not taken for one of this start */
        open_store(f->store);
        expect_all_seen(f->store, "abcdef");
        close_store(f->store);
        snprintf(f->store->cfg.data, sizeof f->store->cfg.data, "%s", first);
        remove_folder(copy);
    }
}

/* A shell that may write, opened after a crash, brings the log into the file, and removes it. */
static void test_shell_after_a_crash(void **state)
{
    struct fixture *f = *state;
    static const char *const files[] = {"staging.db", "history.db"};
    use_killed(f);
    for (size_t i = 0; i < 2; i++) {
        char path[PATH_MAX];
        sqlite3 *db;
        path_of(path, f->store->cfg.data, files[i]);
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, "SELECT count(*) FROM meta", NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(db);
        log_path(f, files[i], path);
        assert_int_equal(bytes_of(path), -1);
    }
    open_store(f->store);
    expect_all_seen(f->store, "abcdef");
    close_store(f->store);
}

/* --- the way on --- */

static int told;
static char last_told[320];

static void did(void *arg, const char *what)
{
    (void)arg;
    told++;
    snprintf(last_told, sizeof last_told, "%s", what);
}

static void repair(struct fixture *f, const char *words)
{
    struct err err = {0};
    told = 0;
    int result = sqlite_repair_folder(f->store->cfg.data, NAMELESS_KEEP, did, NULL, NULL, &err);
    if (result != 1 || told != 1 || strstr(last_told, words) == NULL) {
        fail_msg("%d repairs, %s: %s", result, last_told, err.text);
    }
    expect_problem(f->store, NULL);
}

static void test_repair_lost_staging(void **state)
{
    struct fixture *f = *state;
    for (int empty = 0; empty <= 1; empty++) {
        use_new_folder(f);
        put(f, NOW, "history.db", "staging.db");
        put(f, empty ? EMPTY : MISSING, "staging.db", "history.db");
        repair(f, "staging.db was missing");
        open_store(f->store);
        expect_all_seen(f->store, "abc");
        /* Ids go on: what is sent now ranks above what was sent. */
        f->store->cfg.delivered_max = 1;
        deliver(f->store, "u", "y");
        assert_int_equal(flush(f->store), 0);
        assert_true(seen(f->store, "u", "y"));
        assert_false(seen(f->store, "u", "b"));
        close_store(f->store);
        f->store->cfg.delivered_max = 100;
    }
}

static void test_repair_older_files(void **state)
{
    struct fixture *f = *state;
    use_new_folder(f);
    put(f, NOW, "history.db", "staging.db");
    put(f, OLDER, "staging.db", "history.db");
    repair(f, "staging.db is older");
    open_store(f->store);
    expect_all_seen(f->store, "abc");
    f->store->cfg.delivered_max = 1;
    deliver(f->store, "u", "y");
    assert_int_equal(flush(f->store), 0);
    assert_true(seen(f->store, "u", "y"));
    close_store(f->store);
    f->store->cfg.delivered_max = 100;

    use_new_folder(f);
    put(f, OLDER, "history.db", "staging.db");
    put(f, NOW, "staging.db", "history.db");
    repair(f, "history.db is older");
    open_store(f->store);
    expect_all_seen(f->store, "ad");
    close_store(f->store);
}

/* Accepted once, and for good: what is lost is told, all else is answered. */
static void test_repair_lost_logs(void **state)
{
    struct fixture *f = *state;
    char path[PATH_MAX];
    for (unsigned which = 1; which <= 3; which++) {
        struct err err = {0};
        use_killed(f);
        for (unsigned i = 0; i < 2; i++) {
            log_path(f, i == 0 ? "staging.db" : "history.db", path);
            assert_true((which >> i & 1) == 0 || unlink(path) == 0);
        }
        told = 0;
        if (sqlite_repair_folder(f->store->cfg.data, NAMELESS_KEEP, did, NULL, NULL, &err) < 1 || told < 1) {
            fail_msg("%d told: %s", told, err.text);
        }
        expect_problem(f->store, NULL);
        told = 0;
        assert_int_equal(sqlite_repair_folder(f->store->cfg.data, NAMELESS_KEEP, did, NULL, NULL, &err), 0);
        assert_int_equal(told, 0);
        open_store(f->store);
        expect_all_seen(f->store, "abc"); /* `d` was moved from one log into the other */
        play(f->store, "u", "y");
        kill_store(f->store);
        open_store(f->store);
        expect_all_seen(f->store, "y");
        close_store(f->store);
    }
}

/* A repair that fails accepts nothing. */
static void test_repair_of_lost_logs_fails(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    char path[PATH_MAX];
    sqlite3 *db;
    use_killed(f);
    log_path(f, "staging.db", path);
    assert_int_equal(unlink(path), 0);
    path_of(path, f->store->cfg.data, "history.db");
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite_repair_folder(f->store->cfg.data, NAMELESS_KEEP, did, NULL, NULL, &err), ERR_BUSY);
    sqlite3_close(db);
    expect_refusal(f, "needs its log");
    log_path(f, "staging.db", path);
    assert_int_equal(bytes_of(path), -1);
}

static void test_repair_refuses(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    use_new_folder(f);
    put(f, NOW, "history.db", "staging.db");
    put(f, OTHER, "staging.db", "history.db");
    assert_int_equal(sqlite_repair_folder(f->store->cfg.data, NAMELESS_KEEP, did, NULL, NULL, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "two folders"));
    expect_refusal(f, "two folders");
    use_new_folder(f);
    put(f, NOW, "staging.db", "history.db");
    assert_int_equal(sqlite_repair_folder(f->store->cfg.data, NAMELESS_KEEP, did, NULL, NULL, &err), ERR_NOTFOUND);
    expect_refusal(f, "history.db is missing");
}

/* A FORGET is met too: an older staging.db would bring the user back. */
static void test_forgotten_since(void **state)
{
    struct fixture *f = *state;
    use_new_folder(f);
    put(f, EARLIEST, "staging.db", "history.db");
    put(f, EARLIEST, "history.db", "staging.db");
    open_store(f->store);
    assert_int_equal(forget(f->store, "u", NULL), 1);
    close_store(f->store);
    put(f, EARLIEST, "staging.db", "history.db");
    expect_refusal(f, "staging.db is older");
}

/* The first start is cut short at each change of either file: the next one goes on. */
static void test_first_start_cut_short(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    static const char *const files[] = {"staging", "history"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        bool whole = false;
        for (uint64_t nth = 1; !whole; nth += test_stride()) {
            use_new_folder(f);
            rule(VFS_CHANGE | VFS_OPEN, files[i], nth, true, VFS_EIO);
            vfs_fault_freeze(false);
            whole = try_open(f->store, &err) == 0;
            if (whole) {
                vfs_fault_freeze(true);
                f->store->store->ops->close(f->store->store);
            }
            f->store->store = NULL;
            vfs_fault_heal();
            open_store(f->store);
            play(f->store, "u", "a");
            expect_all_seen(f->store, "a");
            close_store(f->store);
            assert_true(nth < 500);
        }
        assert_true(whole);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        CASE(test_every_pair),
        CASE(test_left_logs),
        CASE(test_left_index),
        CASE(test_repair_lost_staging),
        CASE(test_shell_after_a_crash),
        CASE(test_lost_logs),
        CASE(test_logs_of_others),
        CASE(test_copied_one_by_one),
        CASE(test_copies_by_the_shell),
        CASE(test_repair_lost_logs),
        CASE(test_repair_of_lost_logs_fails),
        CASE(test_repair_older_files),
        CASE(test_repair_refuses),
        CASE(test_forgotten_since),
        CASE(test_first_start_cut_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
