/* The state file of `import --follow` (cli/import/follow_file.h) where each call of the system fails in turn: an error
 * that names the file, and a state that is the old one or the new one, whole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/import/follow_file.h"
#include "tests/lib/store_fixture.h"

enum { CALLS_MAX = 40, NONE = 0 };

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

ssize_t __real_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n)
{
    return fd > 2 && fails(ENOSPC) ? -1 : __real_write(fd, bytes, n);
}

ssize_t __real_read(int fd, void *bytes, size_t n);
ssize_t __wrap_read(int fd, void *bytes, size_t n);
ssize_t __wrap_read(int fd, void *bytes, size_t n)
{
    return fails(EIO) ? -1 : __real_read(fd, bytes, n);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    return fails(EIO) ? -1 : __real_fsync(fd);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    return fails(EIO) ? -1 : __real_rename(from, to);
}

int __real_flock(int fd, int what);
int __wrap_flock(int fd, int what);
int __wrap_flock(int fd, int what)
{
    return fails(ENOLCK) ? -1 : __real_flock(fd, what);
}

static char folder[64], path[96], state[112];

static int setup(void **unused)
{
    (void)unused;
    snprintf(folder, sizeof folder, "/tmp/unseen-test-follow.XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/lines", folder);
    snprintf(state, sizeof state, "%s.follow", path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 1000; i++) {
        fprintf(f, "line %d\n", i);
    }
    assert_int_equal(fclose(f), 0);
    calls_left = NONE;
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    calls_left = NONE;
    remove_folder(folder);
    return 0;
}

/* Opens it and reads on. Where the state leads to. */
static uint64_t where(uint64_t *line)
{
    struct follow_file f;
    struct err err = {0};
    enum follow_news news;
    char bytes[16];
    size_t n;
    assert_int_equal(follow_file_open(&f, path, NULL, line, &err), 0);
    assert_int_equal(follow_file_read(&f, bytes, sizeof bytes, &n, &news, &err), 0);
    assert_int_equal(n, sizeof bytes);
    follow_file_close(&f);
    return f.offset - n;
}

static void test_each_call_of_a_save_fails(void **unused)
{
    (void)unused;
    struct follow_file f;
    struct err err = {0};
    enum follow_news news;
    char bytes[4096];
    size_t n;
    uint64_t line, saved = 1000;
    int failures = 0;
    for (int nth = 1; nth < CALLS_MAX; nth++) {
        assert_int_equal(follow_file_open(&f, path, NULL, &line, &err), 0);
        assert_int_equal(follow_file_read(&f, bytes, sizeof bytes, &n, &news, &err), 0);
        assert_int_equal(follow_file_save(&f, saved, saved / 10, &err), 0);
        calls_left = nth;
        has_failed = false;
        int rc = follow_file_save(&f, saved + 10, saved / 10 + 1, &err);
        calls_left = NONE;
        follow_file_close(&f);
        assert_int_equal(rc < 0, has_failed);
        uint64_t at = where(&line);
        assert_int_equal(line, at / 10);
        if (!has_failed) {
            assert_int_equal(at, saved + 10);
            assert_true(failures >= 3); /* write, fsync, rename, and the folder's sync */
            return;
        }
        failures++;
        assert_int_equal(rc, ERR_IO);
        if (strstr(err.text, folder) == NULL) {
            fail_msg("call %d: %s", nth, err.text);
        }
        assert_true(at == saved || at == saved + 10);
        err = (struct err){0};
    }
    fail_msg("a save has more calls than that");
}

static void test_each_call_of_a_start_fails(void **unused)
{
    (void)unused;
    struct follow_file f;
    struct err err = {0};
    enum follow_news news;
    char bytes[4096];
    size_t n;
    uint64_t line;
    assert_int_equal(follow_file_open(&f, path, NULL, &line, &err), 0);
    assert_int_equal(follow_file_read(&f, bytes, sizeof bytes, &n, &news, &err), 0);
    assert_int_equal(follow_file_save(&f, 2000, 200, &err), 0);
    follow_file_close(&f);
    for (int nth = 1; nth < CALLS_MAX; nth++) {
        calls_left = nth;
        has_failed = false;
        int rc = follow_file_open(&f, path, NULL, &line, &err);
        rc = rc < 0 ? rc : follow_file_read(&f, bytes, sizeof bytes, &n, &news, &err);
        calls_left = NONE;
        follow_file_close(&f);
        assert_int_equal(rc < 0, has_failed);
        assert_int_equal(where(&line), 2000);
        assert_int_equal(line, 200);
        if (!has_failed) {
            assert_true(nth > 3); /* the lock, the state, the file */
            return;
        }
        assert_int_equal(rc, ERR_IO);
        assert_non_null(strstr(err.text, path));
        err = (struct err){0};
    }
    fail_msg("a start has more calls than that");
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_call_of_a_save_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_each_call_of_a_start_fails, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
