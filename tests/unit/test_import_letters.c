/* A file of dead letters that is imported (cli/import/import_letters.h), where each call of the system fails in turn:
 * no letter is lost that was not taken, and the next import goes on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "cli/import/import_letters.h"
#include "kafka/dead_letters.h"
#include "tests/lib/store_fixture.h"

enum { CALLS_MAX = 100, NONE = 0 };

static int calls_left; /* the one that takes it to 0 fails */
static bool has_failed;

static bool fails(int code)
{
    if (calls_left == NONE || --calls_left != 0) {
        return false;
    }
    errno = code;
    has_failed = true;
    return true;
}

#define WRAP(type, name, bad, code, parameters, arguments)                                                             \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters                                                                                      \
    {                                                                                                                  \
        return fails(code) ? (bad) : __real_##name arguments;                                                          \
    }
WRAP(FILE *, fopen, NULL, EIO, (const char *path, const char *mode), (path, mode))
WRAP(FILE *, fdopen, NULL, ENOMEM, (int fd, const char *mode), (fd, mode))
WRAP(int, fflush, EOF, ENOSPC, (FILE * file), (file))
WRAP(size_t, fwrite, 0, ENOSPC, (const void *bytes, size_t size, size_t n, FILE *file), (bytes, size, n, file))
WRAP(ssize_t, getline, -1, EIO, (char **line, size_t *room, FILE *file), (line, room, file))
WRAP(ssize_t, __getdelim, -1, EIO, (char **line, size_t *room, int end, FILE *file), (line, room, end, file))
WRAP(int, fsync, -1, EIO, (int fd), (fd))
WRAP(int, flock, -1, ENOLCK, (int fd, int what), (fd, what))
WRAP(int, fchmod, -1, EPERM, (int fd, mode_t mode), (fd, mode))
WRAP(int, rename, -1, EIO, (const char *from, const char *to), (from, to))

static char folder[64];
static struct message_rules *rules;

static int setup(void **unused)
{
    (void)unused;
    struct config cfg;
    struct err err = {0};
    config_defaults(&cfg);
    snprintf(folder, sizeof folder, "/tmp/unseen-test-letters.XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(message_rules_new(&cfg, &rules, &err), 0);
    calls_left = NONE;
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    calls_left = NONE;
    message_rules_free(rules);
    remove_folder(folder);
    return 0;
}

#define FILE_OF_3 "dead-letters.1.3.jsonl"
#define LETTER(offset, value)                                                                                          \
    "{\"topic\":\"t\",\"partition\":0,\"offset\":" #offset ",\"unix_ms\":1795255200000,\"text\":\"" value "\"}\n"
#define PLAY(item) "{\\\"user\\\":\\\"u\\\",\\\"item\\\":\\\"" item "\\\"}"

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Of three letters: the first can be taken, the second is none, and the third stays. */
static void put_letters(void)
{
    FILE *out = fopen(path_of(FILE_OF_3), "w");
    assert_non_null(out);
    assert_true(fputs(LETTER(1, PLAY("i")) LETTER(2, "no") LETTER(3, PLAY("stays")), out) >= 0);
    assert_int_equal(fclose(out), 0);
}

/* What the folder has: the offsets of the letters, as digits of a number; fails where a file is left over. */
static int letters_left(void)
{
    uint64_t number;
    char path[PATH_MAX], line[512];
    struct err err;
    int left = 0;
    assert_int_equal(access(path_of(FILE_OF_3 ".new"), F_OK), -1);
    if (dead_letters_next(folder, 0, &number, path, &err) == 0) {
        return 0;
    }
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    while (fgets(line, sizeof line, in) != NULL) {
        const char *offset = strstr(line, "\"offset\":");
        assert_non_null(offset);
        assert_non_null(strstr(line, "}\n"));
        left = 10 * left + (offset[9] - '0');
    }
    fclose(in);
    return left;
}

/* As the command does it. */
static int import(struct err *err)
{
    uint64_t number, taken = 0, kept = 0;
    char path[PATH_MAX];
    struct import_letters *l;
    struct message_event event;
    int rc = dead_letters_next(folder, 0, &number, path, err);
    rc = rc < 1 ? rc : import_letters_open(path, true, rules, &l, err);
    if (rc < 0) {
        return rc;
    }
    while ((rc = import_letters_next(l, &event, err)) == 1 || rc == ERR_INVALID) {
        if (rc == 1 && slice_eq(event.items[0], slice_str("stays")) && (rc = import_letters_keep(l, err)) < 0) {
            break;
        }
    }
    rc = rc < 0 ? rc : import_letters_end(l, &taken, &kept, err);
    import_letters_close(l);
    return rc;
}

/* Fails the n-th of everything, for n = 1, 2, 3 ...; before may be what there is, or after. */
static void check_failures(void (*begin)(int nth), void (*end)(void), int least)
{
    for (int nth = 1; nth < CALLS_MAX; nth++) {
        struct err err = {0};
        put_letters();
        has_failed = false;
        begin(nth);
        int rc = import(&err);
        end();
        int left = letters_left();
        if (!has_failed) {
            assert_int_equal(rc, 0);
            assert_int_equal(left, 23);
            assert_true(nth > least);
            return;
        }
        if (rc >= 0 || err.text[0] == '\0') {
            fail_msg("failure %d is answered with %d, %s", nth, rc, err.text);
        }
        assert_true(left == 123 || left == 23);
        assert_int_equal(import(&err), 0); /* once more, and all is well */
        assert_int_equal(letters_left(), 23);
        remove_folder(folder);
        assert_int_equal(mkdir(folder, 0700), 0);
    }
    fail_msg("there are more calls than that");
}

static void begin_calls(int nth)
{
    calls_left = nth;
}

static void end_calls(void)
{
    calls_left = NONE;
}

static void test_each_call_fails(void **state)
{
    (void)state;
    check_failures(begin_calls, end_calls, 12);
}

/* The last letter goes with its file. */
static void test_the_last_one(void **state)
{
    (void)state;
    struct err err = {0};
    FILE *out = fopen(path_of("dead-letters.7.1.jsonl"), "w");
    assert_non_null(out);
    assert_true(fputs(LETTER(1, PLAY("i")), out) >= 0);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(import(&err), 0);
    assert_int_equal(letters_left(), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_call_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_last_one, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
