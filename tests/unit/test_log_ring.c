/* A log whose reader stands, comes back, or is gone. Each test is a process of its own, since a ring lasts as long as
 * its process; standard error is a pipe that holds little. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/log_ring.h"

enum { PIPE_BYTES = 4096, MANY = 20 * 1000 };

static int news[2]; /* a byte: what the other process waits for has happened */

static void await_news(void)
{
    char byte;
    if (read(news[0], &byte, 1) != 1) {
        _exit(97);
    }
}

static void tell_news(void)
{
    if (write(news[1], "n", 1) != 1) {
        _exit(97);
    }
}

static void log_many(int from, int n)
{
    for (int i = from; i < from + n; i++) {
        log_info("line", "i=%d filler=0123456789012345678901234567890123456789", i);
    }
}

static void begin(void)
{
    struct err err;
    log_set_level(LOG_LEVEL_INFO);
    if (log_begin(&err) < 0) {
        _exit(99);
    }
}

/* Runs it in a child with a pipe as standard error, and returns its id. */
static pid_t start(void (*run)(void), int *out)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_true(fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES) > 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        alarm(120); /* if the test has ended before it */
        signal(SIGPIPE, SIG_IGN);
        signal(SIGABRT, SIG_DFL); /* cmocka has its own */
        signal(SIGSEGV, SIG_DFL);
        close(ends[0]);
        dup2(ends[1], STDERR_FILENO);
        close(ends[1]);
        begin();
        run();
        exit(0);
    }
    close(ends[1]);
    *out = ends[0];
    return child;
}

static char *read_all(int fd)
{
    size_t len = 0, cap = 1 << 20;
    char *text = malloc(cap + 1);
    assert_non_null(text);
    for (ssize_t n; (n = read(fd, text + len, cap - len)) > 0; len += (size_t)n) {
        assert_true(len + (size_t)n < cap);
    }
    text[len] = '\0';
    close(fd);
    return text;
}

static int end_of(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* --- what is logged last --- */

static void log_some(void)
{
    log_many(0, 20);
    log_info("last", "");
}

static void log_and_abort(void)
{
    log_some();
    abort();
}

static void log_and_fault(void)
{
    log_some();
    raise(SIGSEGV);
}

static void log_and_fail(void)
{
    log_some();
    log_last("the end");
    _exit(1);
}

static void test_the_last_lines_come_out(void **state)
{
    (void)state;
    static const struct {
        void (*run)(void);
        const char *end;
        int signal, code;
    } rows[] = {
        {log_some, " info last\n", 0, 0},
        {log_and_abort, " info last\n", SIGABRT, 0},
        {log_and_fault, " info last\n", SIGSEGV, 0},
        {log_and_fail, " info last\nunseen: the end\n", 0, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int out;
        pid_t child = start(rows[i].run, &out);
        char *text = read_all(out);
        int status = end_of(child);
        const size_t n = strlen(rows[i].end);
        assert_true(strlen(text) > n);
        assert_string_equal(text + strlen(text) - n, rows[i].end);
        free(text);
        if (rows[i].signal != 0) {
            assert_true(WIFSIGNALED(status));
            assert_int_equal(WTERMSIG(status), rows[i].signal);
        } else {
            assert_true(WIFEXITED(status));
            assert_int_equal(WEXITSTATUS(status), rows[i].code);
        }
    }
}

/* --- a reader that stands --- */

static void log_too_much(void)
{
    struct log_ring_state state;
    log_many(0, MANY); /* returns, though nothing is read */
    log_ring_look(&state);
    if (state.lost == 0 || state.lost >= MANY || state.waiting == 0 || state.waiting > LOG_RING_BYTES) {
        _exit(98);
    }
    tell_news();
    do { /* until the reader has taken all */
        log_ring_flush();
        log_ring_look(&state);
    } while (state.waiting > 0);
}

/* Every line is there, in order and whole, or one of the lost ones; a line says how many those are, in their place,
 * though nothing is logged any more. */
static void test_a_reader_that_comes_back(void **state)
{
    (void)state;
    int out;
    assert_int_equal(pipe(news), 0);
    pid_t child = start(log_too_much, &out);
    await_news();
    char *text = read_all(out), *rest = text;
    assert_int_equal(end_of(child), 0);
    int next = 0, lost = -1;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0';) {
        const char *i = strstr(line, " info line i=");
        if (i != NULL) {
            assert_int_equal(atoi(i + strlen(" info line i=")), next);
            assert_non_null(strstr(line, " filler=0123456789012345678901234567890123456789"));
            next++;
            continue;
        }
        i = strstr(line, " warn lines of the log were lost, nothing took them lines=");
        assert_non_null(i);
        assert_int_equal(lost, -1);
        lost = atoi(strrchr(line, '=') + 1);
        next += lost;
    }
    assert_true(lost > 0);
    assert_int_equal(next, MANY);
    free(text);
    close(news[0]);
    close(news[1]);
}

/* --- nothing that takes the lines --- */

static void log_to_none(void)
{
    struct log_ring_state state;
    close(STDERR_FILENO);
    log_many(0, MANY);
    do {
        log_ring_look(&state); /* also the thread has seen that it can't write */
    } while (state.lost == 0);
    log_last("the end");
}

static void log_to_the_gone(void)
{
    await_news();
    log_many(0, MANY);
}

static void test_a_closed_descriptor(void **state)
{
    (void)state;
    int out;
    pid_t child = start(log_to_none, &out);
    free(read_all(out));
    assert_int_equal(end_of(child), 0);
}

static void test_a_reader_that_is_gone(void **state)
{
    (void)state;
    int out;
    assert_int_equal(pipe(news), 0);
    pid_t child = start(log_to_the_gone, &out);
    close(out);
    tell_news();
    assert_int_equal(end_of(child), 0);
    close(news[0]);
    close(news[1]);
}

/* Another process that shares it has made it non-blocking. */
static void log_without_blocking(void)
{
    fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
    log_many(0, 1000);
    tell_news();
    struct log_ring_state state;
    do {
        log_ring_flush();
        log_ring_look(&state);
    } while (state.waiting > 0);
    if (state.lost > 0) {
        _exit(98);
    }
}

static void test_a_descriptor_that_does_not_block(void **state)
{
    (void)state;
    int out, lines = 0;
    assert_int_equal(pipe(news), 0);
    pid_t child = start(log_without_blocking, &out);
    await_news();
    char *text = read_all(out);
    assert_int_equal(end_of(child), 0);
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) {
        lines++;
    }
    assert_int_equal(lines, 1000);
    free(text);
    close(news[0]);
    close(news[1]);
}

/* A file that may not grow, like a full disk: what could not be written comes once it can. */
static void log_to_a_full_file(void)
{
    struct rlimit limit = {PIPE_BYTES, RLIM_INFINITY};
    struct log_ring_state state;
    FILE *file = tmpfile();
    int fd = file != NULL ? fileno(file) : -1;
    signal(SIGXFSZ, SIG_IGN);
    if (fd < 0 || dup2(fd, STDERR_FILENO) < 0 || setrlimit(RLIMIT_FSIZE, &limit) < 0) {
        _exit(97);
    }
    log_many(0, 1000);
    struct stat st;
    do {
        fstat(fd, &st);
    } while (st.st_size < PIPE_BYTES);
    limit.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_FSIZE, &limit);
    do {
        log_ring_flush();
        log_ring_look(&state);
    } while (state.waiting > 0);
    char line[256];
    int n = 0;
    rewind(file);
    while (fgets(line, sizeof line, file) != NULL) {
        const char *i = strstr(line, " info line i=");
        if (i == NULL || atoi(i + strlen(" info line i=")) != n++) {
            _exit(96);
        }
    }
    _exit(n == 1000 ? 0 : 95);
}

static void test_a_disk_that_is_full(void **state)
{
    (void)state;
    int out;
    pid_t child = start(log_to_a_full_file, &out);
    free(read_all(out));
    assert_int_equal(end_of(child), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_lines_come_out),
        cmocka_unit_test(test_a_reader_that_comes_back),
        cmocka_unit_test(test_a_closed_descriptor),
        cmocka_unit_test(test_a_reader_that_is_gone),
        cmocka_unit_test(test_a_descriptor_that_does_not_block),
        cmocka_unit_test(test_a_disk_that_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
