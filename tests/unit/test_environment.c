/* Options in the environment: each has its variable, a slip of a finger is an error, and strangers are left alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "config/config.h"

static char *variables[8];

static void environment(const char *first, const char *second)
{
    variables[0] = (char *)first;
    variables[1] = (char *)second;
    variables[2] = NULL;
    environ = variables;
}

/* What a test's variables point to ends with it. */
static int teardown(void **state)
{
    (void)state;
    environment(NULL, NULL);
    return 0;
}

static void collect(void *arg, const char *problem)
{
    struct buf *all = arg;
    assert_int_equal(buf_addf(all, "%s\n", problem), 0);
}

static void test_every_option_has_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < config_options_count; i++) {
        const struct config_option *option = &config_options[i];
        char name[CONFIG_VARIABLE_TEXT], text[2 * CONFIG_VARIABLE_TEXT + CONFIG_TEXT];
        struct config cfg;
        struct err err = {0};
        config_variable(option, name);
        assert_true(strlen(name) == strlen("UNSEEN_") + strlen(option->name));
        snprintf(text, sizeof text, "%s=%s", name, option->default_text);
        environment(text, NULL);
        config_defaults(&cfg);
        assert_int_equal(config_environment(&cfg, NULL, NULL, &err), 0);
        for (size_t k = 0; k < config_options_count; k++) {
            assert_int_equal(cfg.origin[k], k == i ? ORIGIN_ENVIRONMENT : ORIGIN_DEFAULT);
        }
    }
}

static void test_values(void **state)
{
    (void)state;
    struct config cfg;
    struct err err = {0};
    config_defaults(&cfg);
    environment("UNSEEN_SLOTS=4", "UNSEEN_LEGACY_REDIS=redis:6379");
    assert_int_equal(config_environment(&cfg, NULL, NULL, &err), 0);
    assert_int_equal(cfg.slots, 4);
    assert_string_equal(cfg.legacy_redis, "redis:6379");
    environment("UNSEEN_LEGACY_REDIS=", "UNSEEN_REQUIREPASS=a=b c");
    assert_int_equal(config_environment(&cfg, NULL, NULL, &err), 0);
    assert_int_equal(cfg.slots, 4);
    assert_string_equal(cfg.legacy_redis, "");
    assert_string_equal(cfg.requirepass, "a=b c");
}

static void test_problems(void **state)
{
    (void)state;
    struct config cfg, before;
    struct err err = {0};
    struct buf problems = {0};
    config_defaults(&cfg);
    before = cfg;
    environment("UNSEEN_SLOTS=99", "UNSEEN_RETENTOIN=12");
    variables[2] = (char *)"UNSEEN_REQUIREPAS=hunter2";
    variables[3] = (char *)"UNSEEN_slots=4";
    variables[4] = (char *)"UNSEEN_WINDOW=2";
    variables[5] = (char *)"UNSEEN_HASH_SEED=hunter2";
    variables[6] = NULL;
    assert_int_equal(config_environment(&cfg, collect, &problems, &err), ERR_RANGE);
    assert_int_equal(buf_add(&problems, "", 1), 0);
    assert_string_equal(problems.data,
                        "environment: UNSEEN_SLOTS: slots is \"99\", expected 2 to 64 slots\n"
                        "environment: there is no option for UNSEEN_RETENTOIN; did you mean UNSEEN_RETENTION?\n"
                        "environment: there is no option for UNSEEN_REQUIREPAS; did you mean UNSEEN_REQUIREPASS?\n"
                        "environment: there is no option for UNSEEN_slots; did you mean UNSEEN_SLOTS?\n"
                        "environment: UNSEEN_HASH_SEED: hash_seed is not what was expected: 16 hex digits\n");
    assert_string_equal(err.text, "environment: UNSEEN_SLOTS: slots is \"99\", expected 2 to 64 slots");
    assert_memory_equal(&cfg, &before, sizeof cfg);
    buf_free(&problems);
}

/* What Kubernetes sets beside a service called unseen, what clients of ours read, and what the tests here use. */
static void test_strangers_are_left_alone(void **state)
{
    (void)state;
    static const char *const names[] = {
        "PORT",
        "PORT_7979_TCP",
        "PORT_7979_TCP_ADDR",
        "PORT_7979_TCP_PORT",
        "PORT_7979_TCP_PROTO",
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_RESP",
        "SERVICE_PORT_HTTP",
        "PASSWORD",
        "BUILD",
        "TEST_TRACES",
        "CRASH_CYCLES",
        "POWER_CUTS",
        "POWER_STRIDE",
        "MODEL_STEPS",
        "MODEL_SEEDS",
        "NODE",
        "PROMTOOL",
        "SCREENSHOT",
        "LOG",
        "TEST_LOG",
        "VERSION",
        "HOME",
        "",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[64];
        struct config cfg, before;
        struct err err = {0};
        config_defaults(&cfg);
        before = cfg;
        snprintf(text, sizeof text, "UNSEEN_%s=tcp://10.0.0.1:7979", names[i]);
        environment(text, "UNSEEN");
        if (config_environment(&cfg, NULL, NULL, &err) < 0) {
            fail_msg("%s", err.text);
        }
        assert_memory_equal(&cfg, &before, sizeof cfg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_every_option_has_one, teardown),
        cmocka_unit_test_teardown(test_values, teardown),
        cmocka_unit_test_teardown(test_problems, teardown),
        cmocka_unit_test_teardown(test_strangers_are_left_alone, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
