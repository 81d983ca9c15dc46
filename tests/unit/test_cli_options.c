/* Arguments of subcommands: options, words, configuration by name, and what wrong ones are told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/lib/options.h"

enum { ARGS = 16, OUTPUT = 4096 };

static bool json;
static const char *port;
static const struct cli_flag flags[] = {{"json", &json, NULL}, {"port", NULL, &port}, {NULL, NULL, NULL}};
static struct cli_options options;
static int exit_code;
static char said[OUTPUT]; /* on standard error */

/* Runs f with standard error going to `said`. */
static bool read_args(const struct cli_syntax *syntax, char **argv)
{
    int argc = 0;
    while (argv[argc] != NULL) {
        argc++;
    }
    json = false;
    port = NULL;
    exit_code = -1;
    FILE *file = tmpfile();
    assert_non_null(file);
    int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    bool go_on = cli_options_read(syntax, argc, argv, &options, &exit_code);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = '\0';
    fclose(file);
    return go_on;
}

#define READ(syntax, ...) read_args(syntax, (char *[]){"user", __VA_ARGS__, NULL})

static const struct cli_syntax user = {"user", "help\n", "USER", 1, 1, flags, false};
static const struct cli_syntax any = {"import", "help\n", "FILE", 1, -1, flags, false};
static const struct cli_syntax plain = {"version", "help\n", "no argument", 0, 0, flags, true};

static void test_words_and_flags(void **state)
{
    (void)state;
    assert_true(READ(&user, "u42"));
    assert_int_equal(options.n_words, 1);
    assert_string_equal(options.words[0], "u42");
    assert_false(json);
    assert_true(READ(&user, "--json", "u42", "--port", "80"));
    assert_true(json);
    assert_string_equal(port, "80");
    assert_true(READ(&user, "u42", "--port=80", "--json"));
    assert_string_equal(options.words[0], "u42");
    assert_string_equal(port, "80");
    assert_true(READ(&any, "-", "--json", "a", "--", "--json", "-x", "--"));
    assert_int_equal(options.n_words, 5);
    assert_string_equal(options.words[0], "-");
    assert_string_equal(options.words[1], "a");
    assert_string_equal(options.words[2], "--json");
    assert_string_equal(options.words[3], "-x");
    assert_string_equal(options.words[4], "--");
    assert_true(READ(&any, "--", "--help"));
    assert_string_equal(options.words[0], "--help");
}

static void assert_misuse(bool go_on, const char *want)
{
    assert_false(go_on);
    assert_int_equal(exit_code, EXIT_USAGE);
    assert_string_equal(said, want);
}

static void test_misuse(void **state)
{
    (void)state;
    assert_misuse(READ(&user, "--jsn", "u"), "unseen user: unknown option '--jsn': did you mean --json?\n");
    assert_misuse(READ(&user, "u", "--retentoin=3"),
                  "unseen user: unknown option '--retentoin=3': did you mean --retention?\n");
    assert_misuse(READ(&user, "u", "--request_memory", "3"),
                  "unseen user: unknown option '--request_memory': did you mean --request-memory?\n");
    assert_misuse(READ(&user, "u", "--xyzzy"), "unseen user: unknown option '--xyzzy': see unseen help user\n");
    assert_misuse(READ(&user, "u", "-x"), "unseen user: unknown option '-x': see unseen help user\n");
    assert_misuse(READ(&user, "u", "--=3"), "unseen user: unknown option '--=3': see unseen help user\n");
    assert_misuse(READ(&user, "u", "--json=1"), "unseen user: --json takes no value\n");
    assert_misuse(READ(&user, "u", "--data"), "unseen user: --data needs a value\n");
    assert_misuse(READ(&user, "u", "-c"), "unseen user: -c needs a value\n");
    assert_misuse(READ(&user, "--json"), "unseen user: expected USER, got 0 arguments: see unseen help user\n");
    assert_misuse(READ(&user, "u", "v"), "unseen user: expected USER, got 2 arguments: see unseen help user\n");
    assert_misuse(READ(&plain, "u"), "unseen version: takes no argument such as 'u'\n");
    assert_misuse(READ(&plain, "--data", "x"), "unseen version: unknown option '--data': see unseen help version\n");
    assert_misuse(READ(&user, "u", "--test-clock", "-5"),
                  "unseen user: --test-clock '-5': expected unix milliseconds\n");
    assert_misuse(READ(&user, "u", "--test-clock", "12x"),
                  "unseen user: --test-clock '12x': expected unix milliseconds\n");
    assert_false(READ(&user, "u", "--retention", "0"));
    assert_int_equal(exit_code, EXIT_USAGE);
    assert_non_null(strstr(said, "retention"));
    char long_name[200] = "--";
    memset(long_name + 2, 'x', sizeof long_name - 3);
    assert_false(READ(&user, "u", long_name));
    assert_int_equal(exit_code, EXIT_USAGE);
}

static void test_too_many_options(void **state)
{
    (void)state;
    char *args[2 + 2 * (CLI_OVERRIDES_MAX + 1) + 1] = {"user", "u"};
    for (int i = 0; i <= CLI_OVERRIDES_MAX; i++) {
        args[2 + 2 * i] = "--slots";
        args[3 + 2 * i] = "6";
    }
    assert_misuse(read_args(&user, args), "unseen user: more than 64 options\n");
}

/* Defaults, then the file, then the command line. */
static void test_configuration_order(void **state)
{
    (void)state;
    char path[] = "/tmp/unseen-options-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char text[] = "retention = 9\nslots = 8\n";
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    struct config cfg;
    struct err err;
    assert_true(READ(&user, "u", "--slots", "7", "--request-memory=512MiB", "-c", path, "--data", "d"));
    assert_int_equal(cli_options_config(&options, &cfg, &err), 0);
    assert_int_equal(cfg.retention, 9);
    assert_int_equal(cfg.slots, 7);
    assert_int_equal(cfg.window, 3);
    assert_int_equal(cfg.request_memory, INT64_C(512) << 20);
    assert_string_equal(cfg.data, "d");
    /* What no option sees alone: the window is wider than retention. */
    assert_true(READ(&user, "u", "--config", path, "--window", "10"));
    assert_true(cli_options_config(&options, &cfg, &err) < 0);
    assert_false(READ(&user, "u", "-c", path, "--timezone", "Mars/Olympus"));
    assert_int_equal(exit_code, EXIT_USAGE);
    assert_non_null(strstr(said, "Mars/Olympus"));
    unlink(path);
    assert_true(READ(&user, "u", "-c", path));
    assert_int_equal(cli_options_config(&options, &cfg, &err), ERR_NOTFOUND);
    assert_non_null(strstr(err.text, path));
}

static void test_nearer(void **state)
{
    (void)state;
    assert_null(cli_nearer("xyz", "serve", NULL));
    assert_string_equal(cli_nearer("srve", "serve", NULL), "serve");
    assert_string_equal(cli_nearer("check", "check-config", "check"), "check");
    assert_string_equal(cli_nearer("month", "months", "why"), "months");
    assert_null(cli_nearer("a-very-long-word-that-is-longer-than-any-name-of-an-option-could-ever-be", "serve", NULL));
}

static void test_clock_starts_at_once(void **state)
{
    (void)state;
    assert_true(READ(&user, "u", "--test-clock", "1795219200000"));
    assert_true(clock_is_test());
    assert_int_equal(clock_wall_ms(), 1795219200000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words_and_flags),  cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_too_many_options), cmocka_unit_test(test_configuration_order),
        cmocka_unit_test(test_nearer),           cmocka_unit_test(test_clock_starts_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
