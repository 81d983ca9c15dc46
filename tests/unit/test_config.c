/* `test_config sample` prints the sample file, for etc/unseen.conf. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "config/config.h"
#include "net/tls.h"

static char path[] = "/tmp/unseen-test-config-XXXXXX";

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_file(const void *bytes, size_t len)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static struct config defaults(void)
{
    struct config cfg;
    config_defaults(&cfg);
    return cfg;
}

static void test_defaults(void **state)
{
    (void)state;
    struct config cfg = defaults();
    assert_string_equal(cfg.data, "/var/lib/unseen");
    assert_string_equal(cfg.listen, "127.0.0.1:7979");
    assert_string_equal(cfg.unix_socket, "");
    assert_string_equal(cfg.requirepass, "");
    assert_int_equal(cfg.max_clients, 10000);
    assert_int_equal(cfg.workers, 0);
    assert_int_equal(cfg.idle_timeout_ms, 0);
    assert_int_equal(cfg.slots, 6);
    assert_int_equal(cfg.slot_length_ms, 0);
    assert_int_equal(config_slot_length_ms(&cfg), 6 * 3600000);
    assert_int_equal(cfg.retention, 6);
    assert_int_equal(cfg.window, 3);
    assert_true(cfg.error_rate > 0.000999 && cfg.error_rate < 0.001001);
    assert_int_equal(cfg.staging_memory, 256 << 20);
    assert_int_equal(cfg.request_memory, 256 << 20);
    assert_int_equal(cfg.wal_limit, 128 << 20);
    assert_int_equal(cfg.min_free, 256 << 20);
    assert_int_equal(cfg.sweep_from, 0);
    assert_int_equal(cfg.sweep_to, 300);
    assert_string_equal(cfg.timezone, "");
    assert_int_equal(cfg.delivered_max, 100);
    assert_false(cfg.hash_seed_given);
    assert_int_equal(cfg.skewed_time, SKEWED_ERROR);
    assert_int_equal(cfg.on_damage, DAMAGE_ERROR);
    assert_int_equal(cfg.log_level, LOG_LEVEL_INFO);
    assert_int_equal(config_validate(&cfg, NULL), 0);
}

/* What is read is written as in the third column, or as it was given; and what is written is read as the same. */
static const struct {
    const char *name, *value, *written;
} good[] = {
    {"data", "/srv/my data", NULL},
    {"data", "./here", NULL},
    {"listen", "0.0.0.0:1", NULL},
    {"listen", "[::1]:65535", NULL},
    {"listen", "localhost:0", NULL},
    {"listen", "none", NULL},
    {"unix_socket", "/run/unseen/unseen.sock", NULL},
    {"unix_socket", "", NULL},
    {"requirepass", "\"s3cret with spaces\"", CONFIG_MASK},
    {"requirepass", "", NULL},
    {"max_clients", "1", NULL},
    {"max_clients", "1000000", NULL},
    {"max_clients", "007", "7"},
    {"workers", "256", NULL},
    {"idle_timeout", "0", NULL},
    {"idle_timeout", "0s", "0"},
    {"idle_timeout", "30d", NULL},
    {"idle_timeout", "90s", NULL},
    {"idle_timeout", "1500ms", NULL},
    {"idle_timeout", "120 min", "2h"},
    {"slots", "2", NULL},
    {"slots", "64", NULL},
    {"slot_length", "auto", NULL},
    {"slot_length", "1min", NULL},
    {"slot_length", "24h", "1d"},
    {"slot_length", "90min", NULL},
    {"retention", "120", NULL},
    {"window", "0", NULL},
    {"error_rate", "1e-4", "0.0001"},
    {"error_rate", "0.05", NULL},
    {"error_rate", "0.0012345678901234567", "0.0012345678901234567"},
    {"staging_memory", "4MiB", NULL},
    {"staging_memory", "4194305", NULL},
    {"staging_memory", "4194305B", "4194305"},
    {"staging_memory", "5000K", "5000KiB"},
    {"staging_memory", "2048m", "2GiB"},
    {"staging_memory", "1 TiB", "1TiB"},
    {"request_memory", "16M", "16MiB"},
    {"wal_limit", "1G", "1GiB"},
    {"min_free", "0", NULL},
    {"min_free", "16T", "16TiB"},
    {"sweep_window", "22:00-04:00", NULL},
    {"sweep_window", "00:00-24:00", NULL},
    {"sweep_window", "23:59-00:01", NULL},
    {"timezone", "UTC0", NULL},
    {"timezone", "", NULL},
    {"http_hosts", "", NULL},
    {"http_hosts", "unseen.example.org, my_host-1", NULL},
    {"delivered_max", "10000", NULL},
    {"hash_seed", "0123456789abcdef", CONFIG_MASK},
    {"hash_seed", "0xFEDCBA9876543210", CONFIG_MASK},
    {"hash_seed", "", NULL},
    {"skewed_time", "now", NULL},
    {"on_damage", "answer", NULL},
    {"log_format", "logfmt", NULL},
    {"log_format", "json", NULL},
    {"log_level", "error", NULL},
    {"log_level", "debug", NULL},
};

static void test_good_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct config cfg = defaults();
        struct err err = {0};
        char text[CONFIG_TEXT];
        if (config_set(&cfg, good[i].name, good[i].value, &err) < 0) {
            fail_msg("%s", err.text);
        }
        config_text(&cfg, config_find(good[i].name), text, sizeof text);
        assert_string_equal(text, good[i].written != NULL ? good[i].written : good[i].value);
        struct config again = defaults();
        if (strcmp(text, CONFIG_MASK) != 0) {
            assert_int_equal(config_set(&again, good[i].name, text, &err), 0);
            assert_memory_equal(&again, &cfg, sizeof cfg);
        } else {
            assert_true(config_set(&again, good[i].name, text, &err) < 0);
        }
    }
}

static void test_memory_by_itself(void **state)
{
    (void)state;
    const int64_t mib = 1024 * 1024;
    static const char *const bad[] = {"Auto", "auto ", "auto(1MiB)", "auto (1MiB", "automatic"};
    struct config cfg = defaults(), again = defaults();
    char text[CONFIG_VALUE_TEXT];
    const struct config_option *option = config_find("staging_memory");
    assert_int_equal(config_auto_memory(150 * mib + 7, 4.0 * (double)mib), 37 * mib);
    assert_int_equal(config_auto_memory(mib, 4.0 * (double)mib), 4 * mib);
    assert_int_equal(config_auto_memory(1 << 20 << 10, 4.0 * (double)mib), 256 * mib);
    assert_int_equal(config_auto_memory(INT64_MAX, 4.0 * (double)mib), 4096 * mib);
    assert_int_equal(config_auto_memory(0, 4.0 * (double)mib), 256 * mib);

    assert_int_equal(config_set(&cfg, "staging_memory", "auto", NULL), 0);
    assert_true(cfg.staging_memory >= 4 * mib && cfg.staging_memory <= 4096 * mib && cfg.staging_memory % mib == 0);
    config_text(&cfg, option, text, sizeof text);
    assert_int_equal(strncmp(text, "auto (", 6), 0);
    assert_string_equal(text + strlen(text) - 2, "B)");
    assert_int_equal(config_set(&again, "staging_memory", text, NULL), 0);
    assert_memory_equal(&again, &cfg, sizeof cfg);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(config_set(&again, "staging_memory", bad[i], NULL), ERR_INVALID);
    }
    assert_memory_equal(&again, &cfg, sizeof cfg);
    assert_int_equal(config_set(&cfg, "staging_memory", "64MiB", NULL), 0);
    config_text(&cfg, option, text, sizeof text);
    assert_string_equal(text, "64MiB");
}

static void test_values_that_are_kept(void **state)
{
    (void)state;
    struct config cfg = defaults();
    assert_int_equal(config_set(&cfg, "hash_seed", "0xFEDCBA9876543210", NULL), 0);
    assert_true(cfg.hash_seed_given && cfg.hash_seed == UINT64_C(0xfedcba9876543210));
    assert_int_equal(config_set(&cfg, "requirepass", "a b", NULL), 0);
    assert_string_equal(cfg.requirepass, "a b");
    assert_int_equal(config_set(&cfg, "sweep_window", "22:30-04:05", NULL), 0);
    assert_int_equal(cfg.sweep_from, 22 * 60 + 30);
    assert_int_equal(cfg.sweep_to, 4 * 60 + 5);
    assert_int_equal(config_set(&cfg, "skewed_time", "now", NULL), 0);
    assert_int_equal(cfg.skewed_time, SKEWED_NOW);
    assert_int_equal(config_set(&cfg, "log_level", "warn", NULL), 0);
    assert_int_equal(cfg.log_level, LOG_LEVEL_WARN);
    assert_int_equal(config_set(&cfg, "idle_timeout", "2min", NULL), 0);
    assert_int_equal(cfg.idle_timeout_ms, 120000);
}

#define LONG_64 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static const struct {
    const char *name, *value;
    int code;
    const char *text; /* NULL: only that the name is in it */
} bad[] = {
    {"data", "", ERR_RANGE, "data is empty"},
    {"data", LONG_64 LONG_64 LONG_64 LONG_64, ERR_RANGE, "data is 256 bytes long, expected at most 255"},
    {"data", "\"/srv\"", ERR_INVALID, "data is \"\\\"/srv\\\"\", expected a value without quotes"},
    {"data", "/srv\n", ERR_INVALID, "data holds a control character (byte 5)"},
    {"listen", "", ERR_INVALID, NULL},
    {"listen", "7979", ERR_INVALID,
     "listen is \"7979\", expected an IP address and a port such as 127.0.0.1:7979, [::1]:7979 or tls://10.0.0.7:7979, "
     "more of them, or none"},
    {"listen", "127.0.0.1", ERR_INVALID, NULL},
    {"listen", "127.0.0.1:", ERR_INVALID, NULL},
    {"listen", "127.0.0.1:65536", ERR_INVALID, NULL},
    {"listen", "127.0.0.1:99999999999999999999999", ERR_INVALID, NULL},
    {"listen", "127.0.0.1:79x", ERR_INVALID, NULL},
    {"listen", "127.0.0.256:7979", ERR_INVALID, NULL},
    {"listen", "::1:7979", ERR_INVALID, NULL},
    {"listen", "[::1:7979", ERR_INVALID, NULL},
    {"listen", "[:7979", ERR_INVALID, NULL},
    {"listen", "[]:7979", ERR_INVALID, NULL},
    {"listen", "[127.0.0.1]:7979", ERR_INVALID, NULL},
    {"listen", "example.org:7979", ERR_INVALID, NULL},
    {"listen", LONG_64 LONG_64 ":7979", ERR_INVALID, NULL},
    {"unix_socket", LONG_64 LONG_64, ERR_RANGE, "unix_socket is 128 bytes long, expected at most 107"},
    {"requirepass", LONG_64 LONG_64 LONG_64 LONG_64, ERR_RANGE, "requirepass is 256 bytes long, expected at most 255"},
    {"max_clients", "0", ERR_RANGE, "max_clients is \"0\", expected 1 to 1000000 connections"},
    {"workers", "-1", ERR_RANGE, "workers is \"-1\", expected 0 to 256 threads"},
    {"slots", "1", ERR_RANGE, "slots is \"1\", expected 2 to 64 slots"},
    {"slots", "65", ERR_RANGE, NULL},
    {"slots", "many", ERR_INVALID, "slots is \"many\", expected a whole number, 2 to 64 slots"},
    {"slots", "6.5", ERR_INVALID, NULL},
    {"slots", "", ERR_INVALID, NULL},
    {"slots", "-", ERR_INVALID, NULL},
    {"slots", "6 ", ERR_INVALID, NULL},
    {"slots", "18446744073709551622", ERR_RANGE, NULL}, /* 2^64 + 6 */
    {"slots", "-18446744073709551622", ERR_RANGE, NULL},
    {"idle_timeout", "31d", ERR_RANGE, "idle_timeout is \"31d\", expected 0 to 30d"},
    {"idle_timeout", "5", ERR_INVALID,
     "idle_timeout is \"5\", expected a time with its unit (ms, s, min, h, d), 0 to 30d"},
    {"idle_timeout", "5m", ERR_INVALID, NULL},
    {"idle_timeout", "1h30min", ERR_INVALID, NULL},
    {"idle_timeout", "-1s", ERR_INVALID, NULL},
    {"slot_length", "59s", ERR_RANGE, "slot_length is \"59s\", expected auto, or 1min to 1d"},
    {"slot_length", "0", ERR_RANGE, NULL},
    {"slot_length", "25h", ERR_RANGE, NULL},
    {"slot_length", "213503982335d", ERR_RANGE, NULL}, /* just above 2^64 ms */
    {"retention", "121", ERR_RANGE, "retention is \"121\", expected 1 to 120 months"},
    {"window", "121", ERR_RANGE, NULL},
    {"error_rate", "0.00009", ERR_RANGE, "error_rate is \"0.00009\", expected 0.0001 to 0.05"},
    {"error_rate", "0.051", ERR_RANGE, NULL},
    {"error_rate", "0,001", ERR_INVALID, "error_rate is \"0,001\", expected a number, 0.0001 to 0.05"},
    {"error_rate", "nan", ERR_INVALID, NULL},
    {"error_rate", "", ERR_INVALID, NULL},
    {"staging_memory", "4194303", ERR_RANGE, "staging_memory is \"4194303\", expected auto, or 4MiB to 1TiB"},
    {"staging_memory", "2TiB", ERR_RANGE, NULL},
    {"staging_memory", "256MB", ERR_INVALID,
     "staging_memory is \"256MB\", expected a size such as 256MiB, auto, or 4MiB to 1TiB"},
    {"staging_memory", "16777216TiB", ERR_RANGE, NULL}, /* 2^64 */
    {"staging_memory", "MiB", ERR_INVALID, NULL},
    {"request_memory", "1MiB", ERR_RANGE, NULL},
    {"wal_limit", "1MiB", ERR_RANGE, NULL},
    {"min_free", "17TiB", ERR_RANGE, NULL},
    {"sweep_window", "03:00-03:00", ERR_RANGE,
     "sweep_window is \"03:00-03:00\", expected two different times (00:00-24:00 is the whole day)"},
    {"sweep_window", "3:00-5:00", ERR_INVALID, NULL},
    {"sweep_window", "00:00-24:01", ERR_INVALID, NULL},
    {"sweep_window", "24:00-05:00", ERR_INVALID, NULL},
    {"sweep_window", "00:60-05:00", ERR_INVALID, NULL},
    {"sweep_window", "00:00", ERR_INVALID, NULL},
    {"sweep_window", "00:00-05:00 ", ERR_INVALID, NULL},
    {"sweep_window", "", ERR_INVALID, NULL},
    {"timezone", "Europe/Berln", ERR_INVALID, NULL},
    {"http_hosts", "https://unseen.example.org", ERR_INVALID, NULL},
    {"http_hosts", "unseen, unseen.example.org:443", ERR_INVALID, NULL},
    {"delivered_max", "0", ERR_RANGE, NULL},
    {"delivered_max", "10001", ERR_RANGE, NULL},
    {"hash_seed", "0123456789abcde", ERR_INVALID, "hash_seed is not what was expected: 16 hex digits"},
    {"hash_seed", "0123456789abcdef0", ERR_INVALID, NULL},
    {"hash_seed", "0x0123456789abcdeg", ERR_INVALID, NULL},
    {"skewed_time", "NOW", ERR_INVALID, "skewed_time is \"NOW\", expected error or now"},
    {"on_damage", "", ERR_INVALID, NULL},
    {"log_level", "verbose", ERR_INVALID, "log_level is \"verbose\", expected error, warn, info or debug"},
    {"slot", "6", ERR_NOTFOUND, "there is no option \"slot\"; did you mean slots?"},
    {"Sweep-Window", "", ERR_NOTFOUND, "there is no option \"Sweep-Window\"; did you mean sweep_window?"},
    {"requirepas", "secret", ERR_NOTFOUND, "there is no option \"requirepas\"; did you mean requirepass?"},
    {"maxmemory", "1GiB", ERR_NOTFOUND, "there is no option \"maxmemory\""},
    {"", "", ERR_NOTFOUND, NULL},
    {LONG_64 LONG_64, "", ERR_NOTFOUND, NULL},
};

static void test_bad_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct config cfg = defaults(), before = cfg;
        struct err err = {0};
        int code = config_set(&cfg, bad[i].name, bad[i].value, &err);
        if (code != bad[i].code || err.code != code || strstr(err.text, bad[i].name) == NULL) {
            fail_msg("%s = %s: %d, %s", bad[i].name, bad[i].value, code, err.text);
        }
        if (bad[i].text != NULL) {
            assert_string_equal(err.text, bad[i].text);
        }
        assert_memory_equal(&cfg, &before, sizeof cfg);
    }
}

/* The table: every default is what config_text gives back, so it is within its range and in the shortest form. */
static void test_table(void **state)
{
    (void)state;
    struct config cfg = defaults();
    for (size_t i = 0; i < config_options_count; i++) {
        const struct config_option *option = &config_options[i];
        char text[CONFIG_TEXT];
        config_text(&cfg, option, text, sizeof text);
        assert_string_equal(text, option->default_text);
        assert_ptr_equal(config_find(option->name), option);
        assert_true(strlen(option->help) > 20 && option->help[strlen(option->help) - 1] == '.');
    }
    assert_null(config_find("nothing"));
}

static void test_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int n;
        struct config_address a[3];
    } cases[] = {
        {"localhost:79", 1, {{"127.0.0.1", 79, false}}},
        {"[fe80::1]:7979", 1, {{"fe80::1", 7979, false}}},
        {"127.0.0.1:7979, tls://[::]:7443", 2, {{"127.0.0.1", 7979, false}, {"::", 7443, true}}},
        {" tls://10.0.0.7:1 tls://localhost:2,[::1]:3 ",
         3,
         {{"10.0.0.7", 1, true}, {"127.0.0.1", 2, true}, {"::1", 3, false}}},
        {"none", 0, {{"", 0, false}}},
        {"", 0, {{"", 0, false}}},
        {"127.0.0.1:1, none", -1, {{"127.0.0.1", 1, false}}},
        {"tls://", -1, {{"", 0, false}}},
        {"tls:127.0.0.1:1", -1, {{"", 0, false}}},
        {"https://127.0.0.1:1", -1, {{"", 0, false}}},
        {"[::1:3", -1, {{"", 0, false}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *at = cases[i].text;
        struct config_address a;
        int n = 0, code;
        while ((code = config_next_address(&at, &a)) > 0) {
            assert_string_equal(a.host, cases[i].a[n].host);
            assert_int_equal(a.port, cases[i].a[n].port);
            assert_int_equal(a.tls, cases[i].a[n].tls);
            n++;
        }
        assert_int_equal(code == 0 ? n : code, cases[i].n < 0 ? ERR_INVALID : cases[i].n);
    }
}

/* The longest names that there are, and as many as clusters have. */
static void test_long_hosts(void **state)
{
    static const char *const lists[] = {"legacy_redis", "kafka_brokers"}, *const ones[] = {"replica_of",
                                                                                           "replica_address"};
    char host[254], list[CONFIG_LIST] = "", one[CONFIG_TEXT], longer[CONFIG_TEXT + 16];
    (void)state;
    memset(host, 'h', sizeof host - 1);
    host[63] = host[127] = host[191] = '.';
    host[253] = '\0';
    for (size_t len = 0, n = 0; len + 260 < sizeof list; n++) {
        len += (size_t)snprintf(list + len, sizeof list - len, "%s%s:9092", n > 0 ? "," : "", host);
    }
    for (size_t i = 0; i < 2; i++) {
        struct config cfg = defaults();
        struct err err;
        assert_int_equal(config_set(&cfg, "kafka_topics", "plays", &err), 0);
        if (config_set(&cfg, lists[i], list, &err) < 0 || config_validate(&cfg, &err) < 0) {
            fail_msg("%s", err.text);
        }
        snprintf(one, sizeof one, "%s%s:65535", i == 0 ? "tls://" : "", host);
        assert_int_equal(config_set(&cfg, ones[i], one, &err), 0);
    }
    struct config cfg = defaults();
    memset(longer, 'h', sizeof longer); /* cut at CONFIG_TEXT it would be another port */
    memcpy(longer + CONFIG_TEXT - 3, ":6379", sizeof ":6379");
    assert_int_equal(config_set(&cfg, "legacy_redis", longer, NULL), 0);
    assert_int_equal(config_validate(&cfg, NULL), ERR_INVALID);
}

static void test_sweep_window(void **state)
{
    (void)state;
    static const struct {
        const char *window;
        int minute;
        bool inside;
    } cases[] = {
        {"01:00-05:00", 59, false},  {"01:00-05:00", 60, true},    {"01:00-05:00", 299, true},
        {"01:00-05:00", 300, false}, {"22:00-04:00", 1319, false}, {"22:00-04:00", 1320, true},
        {"22:00-04:00", 1439, true}, {"22:00-04:00", 0, true},     {"22:00-04:00", 239, true},
        {"22:00-04:00", 240, false}, {"00:00-24:00", 0, true},     {"00:00-24:00", 1439, true},
        {"22:00-00:00", 1439, true}, {"22:00-00:00", 0, false},
    };
    assert_int_equal(calendar_set_zone("UTC0"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config cfg = defaults();
        assert_int_equal(config_set(&cfg, "sweep_window", cases[i].window, NULL), 0);
        assert_int_equal(config_in_sweep_window(&cfg, cases[i].minute * INT64_C(60000)), cases[i].inside);
    }
}

static void collect(void *arg, const char *problem)
{
    buf_addf(arg, "%s\n", problem);
}

static void test_good_file(void **state)
{
    (void)state;
    static const char text[] = "\xef\xbb\xbf# a comment = 1\r\n"
                               "slots = 4   ; and why\r\n"
                               "\r\n"
                               "[unseen]\r\n"
                               "  retention=12\r\n"
                               "\twindow : 5\n"
                               "; slots = 99\n"
                               "#   " LONG_64 LONG_64 LONG_64 LONG_64 "\n"
                               "unix_socket =\n"
                               "listen = [::1]:7000\n"
                               "requirepass = a;b#c=d:e";
    write_file(text, sizeof text - 1);
    struct config cfg = defaults();
    struct err err = {0};
    struct buf problems = {0};
    if (config_load(&cfg, path, collect, &problems, &err) < 0) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(problems.len, 0);
    assert_int_equal(cfg.slots, 4);
    assert_int_equal(cfg.retention, 12);
    assert_int_equal(cfg.window, 5);
    assert_string_equal(cfg.listen, "[::1]:7000");
    assert_string_equal(cfg.requirepass, "a;b#c=d:e");
    assert_int_equal(cfg.delivered_max, 100);
    write_file("", 0);
    assert_int_equal(config_load(&cfg, path, NULL, NULL, &err), 0);
    assert_int_equal(cfg.slots, 4);
}

static void test_bad_file(void **state)
{
    (void)state;
    static const char text[] = "mirror = yes\n"
                               "slots = 99\n"
                               "slot = 6\n"
                               "nothing\n"
                               "[unseen]\n"
                               "  window = 2\n"
                               "  window = 3\n"
                               "[server]\n"
                               "[unseen\n"
                               "requirepass = hunter2 ;x\n"
                               "workers = 1\0\n"
                               "data = /" LONG_64 LONG_64 LONG_64 "\n"
                               "= 5\n"
                               "min_free = 1 # more\n"
                               "[legacy]\n"
                               "redos = x\n"
                               "legacy_score = h\n"
                               "slots = 9\n"
                               "[unseen]\n"
                               "played_key = x\n"
                               "last";
    static const char *const wanted[] = {
        "1: mirror belongs in [legacy]; here it stands before any section",
        "2: slots is \"99\", expected 2 to 64 slots",
        "3: there is no option \"slot\"; did you mean slots?",
        "4: expected name = value",
        "7: window is given twice, first in line 6",
        ("8: there is no section \"[server]\", only [unseen], [archive], [front], [kafka], [legacy], [lock], "
         "[registry], [replica] and [policy NAME]"),
        "9: expected ] at the end of the section's name",
        "10: requirepass can't hold a space before a semicolon: a comment begins there",
        "11: the line holds a NUL byte",
        "12: the line is 200 bytes long, expected at most 197",
        "13: there is no option \"\"",
        "14: min_free is \"1 # more\", expected a size such as 256MiB, 0 to 16TiB",
        "16: there is no option \"legacy_redos\"; did you mean legacy_redis?",
        "17: legacy_score is \"h\", expected ms or s",
        "18: slots belongs in [unseen]; here it stands in [legacy], which begins in line 15",
        "20: played_key belongs in [legacy]; here it stands in [unseen], which begins in line 19",
        "21: expected name = value",
    };
    write_file(text, sizeof text - 1);
    struct buf want = {0}, problems = {0};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        assert_int_equal(buf_addf(&want, "%s:%s\n", path, wanted[i]), 0);
    }
    struct config cfg = defaults(), before = cfg;
    struct err err = {0};
    assert_int_equal(config_load(&cfg, path, collect, &problems, &err), ERR_NOTFOUND);
    assert_int_equal(buf_add(&problems, "", 1), 0);
    assert_int_equal(buf_add(&want, "", 1), 0);
    assert_string_equal(problems.data, want.data);
    assert_non_null(strstr(err.text, wanted[0]));
    assert_memory_equal(&cfg, &before, sizeof cfg);
    assert_null(strstr(problems.data, "hunter2"));
    buf_free(&problems);
    buf_free(&want);
}

static void test_no_file(void **state)
{
    (void)state;
    struct config cfg = defaults();
    struct err err = {0};
    assert_int_equal(config_load(&cfg, "/nonexistent/unseen.conf", NULL, NULL, &err), ERR_NOTFOUND);
    assert_string_equal(err.text, "/nonexistent/unseen.conf: No such file or directory");
    struct buf problems = {0};
    assert_int_equal(config_load(&cfg, "/tmp", collect, &problems, &err), ERR_IO);
    assert_string_equal(err.text, "/tmp: Is a directory");
    assert_memory_equal(problems.data, "/tmp: Is a directory\n", problems.len);
    buf_free(&problems);
}

static void test_validate(void **state)
{
    (void)state;
    static const struct {
        const char *listen, *unix_socket, *login; /* an option and its value */
        int retention, window;
        int code;
        const char *word;
    } cases[] = {
        {"127.0.0.1:7979", "", "", 6, 6, 0, ""},
        {"127.0.0.1:7979", "", "", 6, 7, ERR_INVALID, "retention keeps only 6"},
        {"127.8.8.8:7979", "", "", 6, 3, 0, ""},
        {"[::1]:7979", "", "", 6, 3, 0, ""},
        {"[::ffff:127.0.0.1]:7979", "", "", 6, 3, 0, ""},
        {"localhost:7979", "", "", 6, 3, 0, ""},
        {"0.0.0.0:7979", "", "", 6, 3, ERR_INVALID,
         "set requirepass, requirepass_file or accounts, or listen on 127.0.0.1:7979"},
        {"[::]:7979", "", "", 6, 3, ERR_INVALID, "set requirepass"},
        {"[::ffff:10.0.0.1]:7979", "", "", 6, 3, ERR_INVALID, "set requirepass"},
        {"0.0.0.0:7979", "", "requirepass=secret", 6, 3, 0, ""},
        {"0.0.0.0:7979", "", "requirepass_file=/not/read/yet", 6, 3, 0, ""},
        {"0.0.0.0:7979", "", "accounts=/not/read/yet", 6, 3, 0, ""},
        {"none", "", "", 6, 3, ERR_INVALID, "unix_socket is empty"},
        {"none", "/run/x.sock", "", 6, 3, 0, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config cfg = defaults();
        struct err err = {0};
        assert_int_equal(config_set(&cfg, "listen", cases[i].listen, NULL), 0);
        assert_int_equal(config_set(&cfg, "unix_socket", cases[i].unix_socket, NULL), 0);
        const char *value = strchr(cases[i].login, '=');
        if (value != NULL) {
            char name[32];
            snprintf(name, sizeof name, "%.*s", (int)(value - cases[i].login), cases[i].login);
            assert_int_equal(config_set(&cfg, name, value + 1, NULL), 0);
        }
        cfg.retention = cases[i].retention;
        cfg.window = cases[i].window;
        assert_int_equal(config_validate(&cfg, &err), cases[i].code);
        assert_non_null(strstr(err.text, cases[i].word));
    }
}

static void test_the_old_redis(void **state)
{
    (void)state;
    static const struct {
        const char *address;
        bool good;
    } cases[] = {
        {"redis.example:6379", true},
        {"10.0.0.5:1", true},
        {"[::1]:65535", true},
        {"/run/redis/s", true},
        {"unix:/run/redis/s", true},
        {"redis.example", false},
        {"10.0.0.5", false},
        {":6379", false},
        {"redis:", false},
        {"redis:abc", false},
        {"redis:0", false},
        {"redis:65536", false},
        {"redis:063790", false},
        {"redis:-5", false},
        {"redis:6379x", false},
        {"a:7000,b:7000, c:7000", true},
        {"a:7000,b", false},
        {"a:7000,/run/s", false},
        {"tls://a:7000,tls://[::1]:7000", true},
        {"::1:6379", false},
        {"[]:6379", false},
        {"re dis:6379", false},
        {"run/redis/s:1", false},
        {"unix:", false},
        {"unix:redis:6379", false},
        {"/1234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456",
         true},
        {"/12345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567",
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct config cfg;
        struct err err = {0};
        config_defaults(&cfg);
        assert_int_equal(config_set(&cfg, "legacy_redis", cases[i].address, NULL), 0);
        config_validate(&cfg, &err);
        if ((strstr(err.text, "expected host:port") == NULL) != cases[i].good) {
            fail_msg("%s: %s", cases[i].address, err.text);
        }
    }
    struct config cfg;
    struct err err = {0};
    config_defaults(&cfg);
    static const char *const wrong[][4] = {
        {"tls://a:1,b:1", "auto", "0", "before all of its addresses"},
        {"a:1,b:1", "no", "0", "expected one address"},
        {"a:1", "yes", "3", "a cluster has only 0"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        config_set(&cfg, "legacy_redis", wrong[i][0], NULL);
        config_set(&cfg, "legacy_cluster", wrong[i][1], NULL);
        config_set(&cfg, "legacy_database", wrong[i][2], NULL);
        assert_int_equal(config_validate(&cfg, &err), ERR_INVALID);
        assert_non_null(strstr(err.text, wrong[i][3]));
    }
    static const struct {
        const char *text;
        bool good;
    } sentinels[] = {
        {"a:26379/name", true},
        {"a:26379,b:26379/name", true},
        {"tls://a:26379,tls://b:26379/name", true},
        {"a:26379", false},
        {"a:26379/", false},
        {"/name", false},
        {"tls://a:26379", false},
        {"tls://a:26379,b:26379/name", false},
        {"a/name", false},
    };
    for (size_t i = 0; i < sizeof sentinels / sizeof sentinels[0]; i++) {
        config_defaults(&cfg);
        config_set(&cfg, "legacy_sentinel", sentinels[i].text, NULL);
        int code = config_validate(&cfg, &err);
        bool has_tls = strcmp(tls_library_version(), "none") != 0;
        if (sentinels[i].good && !has_tls && strncmp(sentinels[i].text, "tls://", 6) == 0) {
            assert_int_equal(code, ERR_INVALID);
            assert_non_null(strstr(err.text, "built without OpenSSL"));
        } else if ((code == 0) != sentinels[i].good) {
            fail_msg("%s: %s", sentinels[i].text, err.text);
        }
    }
    config_set(&cfg, "legacy_sentinel", "a:26379/name", NULL);
    config_set(&cfg, "legacy_redis", "a:6379", NULL);
    assert_int_equal(config_validate(&cfg, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "legacy_redis and legacy_sentinel are both given"));
    config_defaults(&cfg);
    assert_int_equal(config_set(&cfg, "legacy_delivered_key", "played:{user}", NULL), 0);
    assert_int_equal(config_validate(&cfg, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "both \"played:{user}\""));
    assert_int_equal(config_set(&cfg, "legacy_delivered_key", "delivered", NULL), 0);
    assert_int_equal(config_validate(&cfg, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "legacy_delivered_key is \"delivered\""));
}

static char *sample(size_t *len)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, len);
    assert_non_null(out);
    assert_int_equal(config_write_sample(out), 0);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void test_sample_is_committed(void **state)
{
    (void)state;
    size_t len;
    char *text = sample(&len);
    FILE *file = fopen(SRCDIR "/etc/unseen.conf", "r");
    assert_non_null(file);
    char *committed = calloc(1, len + 2);
    assert_non_null(committed);
    size_t got = fread(committed, 1, len + 1, file);
    fclose(file);
    if (got != len || memcmp(committed, text, len) != 0) {
        fail_msg("etc/unseen.conf is out of date: tests/unit/test_config sample > etc/unseen.conf");
    }
    free(committed);
    free(text);
}

static void test_sample_loads(void **state)
{
    (void)state;
    size_t len;
    char *text = sample(&len);
    struct config cfg = defaults(), before = cfg;
    struct err err = {0};
    write_file(text, len);
    assert_int_equal(config_load(&cfg, path, NULL, NULL, &err), 0);
    assert_memory_equal(&cfg, &before, sizeof cfg);

    size_t options = 0;
    for (char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        assert_true(strcspn(line, "\n") <= 110);
        if (line[0] == '#' && line[1] != ' ') {
            line[0] = ' ';
            options++;
        }
    }
    assert_int_equal(options, config_options_count);
    write_file(text, len);
    cfg.slots = 64; /* proves that the file is read */
    if (config_load(&cfg, path, NULL, NULL, &err) < 0) {
        fail_msg("%s", err.text);
    }
    for (size_t i = 0; i < config_options_count; i++) {
        assert_true(cfg.origin[i] > 1); /* each stands in its line */
        cfg.origin[i] = ORIGIN_DEFAULT;
    }
    assert_memory_equal(&cfg, &before, sizeof cfg);
    free(text);
}

static void test_sample_says_when_it_fails(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    if (full == NULL) {
        skip();
    }
    assert_int_equal(config_write_sample(full), ERR_IO);
    fclose(full);
}

/* --- changes while it runs --- */

struct changes {
    char text[1024];
};

static void note_change(void *arg, const struct config_option *option, const char *before, const char *after)
{
    struct changes *c = arg;
    size_t len = strlen(c->text);
    snprintf(c->text + len, sizeof c->text - len, "%s%s: %s -> %s", len > 0 ? "; " : "", option->name, before, after);
}

static void set(struct config *cfg, const char *name, const char *value)
{
    struct err err;
    assert_int_equal(config_set(cfg, name, value, &err), 0);
}

static void test_change(void **state)
{
    (void)state;
    struct config cfg, configured, read;
    struct changes changes = {""};
    struct err err;
    config_defaults(&cfg);
    set(&cfg, "requirepass", "a long secret");
    configured = cfg;
    cfg.max_clients = 77; /* as the machine allows it */
    assert_ptr_equal(config_now(&cfg), &cfg);

    read = configured;
    assert_int_equal(config_change(&cfg, &configured, &read, note_change, &changes, &err), 0);
    assert_string_equal(changes.text, "");
    assert_ptr_equal(config_now(&cfg), &cfg);

    set(&read, "retention", "12");
    set(&read, "sweep_window", "22:00-04:00");
    set(&read, "requirepass", "short");
    set(&read, "slots", "9");
    set(&read, "hash_seed", "0123456789abcdef");
    assert_int_equal(config_change(&cfg, &configured, &read, note_change, &changes, &err), 3);
    assert_string_equal(changes.text, "requirepass: ******** -> ********; slots: 6 -> 9; retention: 6 -> 12; "
                                      "sweep_window: 00:00-05:00 -> 22:00-04:00; hash_seed:  -> ********");
    const struct config *first = config_now(&cfg);
    assert_int_equal(first->retention, 12);
    assert_int_equal(first->sweep_from, 22 * 60);
    assert_int_equal(first->sweep_to, 4 * 60);
    assert_string_equal(first->requirepass, "short");
    assert_int_equal(first->slots, 6);
    assert_false(first->hash_seed_given);
    assert_int_equal(first->max_clients, 77);
    assert_int_equal(cfg.retention, 6);

    /* What needs a restart is told again, what has been changed isn't; and who reads the first one still can. */
    changes.text[0] = '\0';
    read.error_rate = 0.01;
    assert_int_equal(config_change(&cfg, &configured, &read, note_change, &changes, &err), 1);
    assert_string_equal(changes.text, "slots: 6 -> 9; error_rate: 0.001 -> 0.01; hash_seed:  -> ********");
    assert_true(config_now(&cfg) != first);
    assert_int_equal(first->retention, 12);
    assert_int_equal(config_now(&cfg)->retention, 12);
    config_forget_changes(&cfg);
    assert_ptr_equal(config_now(&cfg), &cfg);
    config_forget_changes(&cfg);
}

/* The file is good as a whole, but until a restart the server listens where it did. */
static void test_change_that_only_a_restart_makes_good(void **state)
{
    (void)state;
    struct config cfg, read;
    struct changes changes = {""};
    struct err err;
    config_defaults(&cfg);
    set(&cfg, "listen", "0.0.0.0:7979");
    set(&cfg, "requirepass", "secret");
    config_defaults(&read);
    set(&read, "retention", "12");
    assert_int_equal(config_validate(&read, &err), 0);
    assert_int_equal(config_change(&cfg, &cfg, &read, note_change, &changes, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "requirepass"));
    assert_string_equal(changes.text, "");
    assert_ptr_equal(config_now(&cfg), &cfg);
}

static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *problem; /* NULL: good */
    } cases[] = {
        {"replica_of", "host:7979", NULL},
        {"replica_of", "tls://host-1.example:7979", NULL},
        {"replica_of", "[::1]:7979", NULL},
        {"replica_of", "tls://[fe80::1]:1", NULL},
        {"replica_of", "host", "replica_of is \"host\", expected host:port or tls://host:port"},
        {"replica_of", "host:0", "expected host:port"},
        {"replica_of", "host:65536", "expected host:port"},
        {"replica_of", "http://host:1", "expected host:port"},
        {"replica_of", "a:1,b:1", "expected host:port"},
        {"replica_of", "me:secret@host:1", "they go into replica_user and replica_password"},
        {"replica_address", "host:7979", NULL},
        {"replica_address", "tls://host:7979", NULL},
        {"replica_address", "http://host:7979", "is \"http://host:7979\", expected host:port or tls://host:port"},
        {"replica_address", "a host:7979", "is \"a host:7979\", expected host:port"},
        {"replica_address", "0.0.0.0:7979", "no node can connect to all addresses"},
        {"replica_address", "tls://[::]:7979", "no node can connect to all addresses"},
        {"replica_address", "0:7979", "no node can connect to all addresses"},
        {"replica_address", "[::ffff:0.0.0.0]:7979", "no node can connect to all addresses"},
        {"replica_failover", "no", NULL},
        {"replica_failover", "in-step", "replica_failover is in-step, but registry_consul is empty"},
        {"replica_failover", "lossy", "replica_failover is lossy, but registry_consul is empty"},
        {"replica_ack", "replica-strict", NULL},
        {"front_redis", "host:6379", NULL},
        {"front_redis", "[::1]:6379", NULL},
        {"front_redis", "unix:/run/redis.sock", NULL},
        {"front_redis", "host", "front_redis is \"host\", expected host:port, redis://host:port/database, sentinel://"},
        {"front_redis", "/run/redis.sock", NULL},
        {"front_redis", "a:1,b:1", "expected one address"},
        {"front_redis", "cluster://a", "a cluster can't be the front"},
        {"front_redis", "rediss://me:secret@host", "they go into front_user and front_password"},
        {"front_redis", "me:secret@host:1", "they go into front_user and front_password"},
        {"front_sentinel", "a:26379,b:26379/name", NULL},
        {"front_sentinel", "a:26379", "expected host:port/name"},
        {"front_sentinel", "/name", "expected host:port/name"},
        {"front_sentinel", "a:26379/", "expected host:port/name"},
        {"front_sentinel", "tls://a:1,b:1/name", "tls:// before all of its addresses or none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config cfg;
        struct err err = {0};
        config_defaults(&cfg);
        assert_int_equal(config_set(&cfg, cases[i].name, cases[i].value, NULL), 0);
        int code = config_validate(&cfg, &err);
        if (code != (cases[i].problem == NULL ? 0 : ERR_INVALID) ||
            (cases[i].problem != NULL && strstr(err.text, cases[i].problem) == NULL)) {
            fail_msg("%s: %s", cases[i].value, err.text);
        }
        assert_null(strstr(err.text, "secret"));
    }
}

/* Where a Redis is, as a URL and as before there were any. */
static void test_where_a_redis_is(void **state)
{
    (void)state;
    static const struct {
        const char *redis, *sentinel;
        enum redis_at_kind kind;
        const char *nodes, *master;
        int64_t database;
    } places[] = {
        {"", "", REDIS_AT_NONE, "", "", 0},
        {"redis://host", "", REDIS_AT_ANY, "host:6379", "", 0},
        {"redis://host:1/", "", REDIS_AT_ANY, "host:1", "", 0},
        {"redis://[::1]/3", "", REDIS_AT_ANY, "[::1]:6379", "", 3},
        {"redis://[::1]:7/65535", "", REDIS_AT_ANY, "[::1]:7", "", 65535},
        {"rediss://host:1/2", "", REDIS_AT_ANY, "tls://host:1", "", 2},
        {"sentinel://a,b:7/name", "", REDIS_AT_SENTINEL, "a:26379,b:7", "name", 0},
        {"sentinels://a/name/4", "", REDIS_AT_SENTINEL, "tls://a:26379", "name", 4},
        {"cluster://a:1,b", "", REDIS_AT_CLUSTER, "a:1,b:6379", "", 0},
        {"clusters://a", "", REDIS_AT_CLUSTER, "tls://a:6379", "", 0},
        {"unix:/run/r@s", "", REDIS_AT_ANY, "unix:/run/r@s", "", 0},
        {"a:1, b:2", "", REDIS_AT_ANY, "a:1, b:2", "", 0},
        {"", "a:1,b:2/name", REDIS_AT_SENTINEL, "a:1,b:2", "name", 0},
    };
    static const char *const wrong[][2] = {
        {"redis://", "expected host:port, redis://"},
        {"redis:///2", "expected host:port, redis://"},
        {"redis://a,b", "expected one address"},
        {"redis://host/x", "the number of a database"},
        {"redis://host/65536", "the number of a database"},
        {"redis://host/1/2", "the number of a database"},
        {"redis://host:0", "expected host:port, redis://"},
        {"redis://host/unix:/s", "the number of a database"},
        {"redis://me:secret@host", "it, expected host:port; they go into legacy_user and legacy_password"},
        {"sentinel://a", "the name of the master"},
        {"sentinel://a/", "the name of the master"},
        {"sentinel:///name", "expected host:port/name"},
        {"sentinel://a/name/x", "the number of a database"},
        {"cluster://a/1", "a cluster has only 0"},
        {"http://host", "expected host:port, redis://"},
        {"redis:host", "expected host:port, redis://"},
    };
    const bool has_tls = strcmp(tls_library_version(), "none") != 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct config cfg;
        struct err err = {0};
        config_defaults(&cfg);
        set(&cfg, "legacy_redis", places[i].redis);
        set(&cfg, "legacy_sentinel", places[i].sentinel);
        if (!has_tls && strstr(places[i].nodes, "tls://") != NULL) {
            assert_int_equal(config_validate(&cfg, &err), ERR_INVALID);
            continue;
        }
        if (config_validate(&cfg, &err) < 0) {
            fail_msg("%s: %s", places[i].redis, err.text);
        }
        assert_int_equal(cfg.legacy_at.kind, places[i].kind);
        assert_string_equal(cfg.legacy_at.nodes, places[i].nodes);
        assert_string_equal(cfg.legacy_at.master, places[i].master);
        assert_int_equal(cfg.legacy_at.database, places[i].database);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct config cfg;
        struct err err = {0};
        config_defaults(&cfg);
        set(&cfg, "legacy_redis", wrong[i][0]);
        if (config_validate(&cfg, &err) != ERR_INVALID || strstr(err.text, wrong[i][1]) == NULL ||
            strstr(err.text, "secret") != NULL) {
            fail_msg("%s: %s", wrong[i][0], err.text);
        }
    }
    static const char *const beside[][3] = {
        {"redis://a", "legacy_sentinel", "a:1/name"},
        {"redis://a", "legacy_cluster", "no"},
        {"redis://a/2", "legacy_database", "3"},
        {"cluster://a", "legacy_database", "3"},
    };
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        struct config cfg;
        struct err err = {0};
        config_defaults(&cfg);
        set(&cfg, "legacy_redis", beside[i][0]);
        set(&cfg, beside[i][1], beside[i][2]);
        assert_int_equal(config_validate(&cfg, &err), ERR_INVALID);
    }
}

/* A node that is one of several must have an address that the others can be told. */
static void test_a_wildcard_among_others(void **state)
{
    (void)state;
    static const struct {
        const char *listen, *name, *value, *address;
        bool good;
    } cases[] = {
        {"0.0.0.0:7979", "replica_ack", "local", "", true}, /* alone */
        {"0.0.0.0:7979", "replica_ack", "replica", "", false},
        {"[::]:7979", "replica_ack", "replica-strict", "", false},
        {"[::ffff:0.0.0.0]:7979", "replica_of", "host:1", "", false},
        {"tls://0.0.0.0:7979", "replica_hedge", "yes", "", false},
        {"127.0.0.1:1,0.0.0.0:7979", "replica_of", "host:1", "", false},
        {"0.0.0.0:7979,10.0.0.7:7980", "replica_of", "host:1", "", true},
        {"0.0.0.0:7979", "replica_of", "host:1", "node-a:7979", true},
        {"127.0.0.1:7979", "replica_of", "127.0.0.1:1", "", true},
        {"none", "replica_of", "host:1", "", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config cfg;
        struct err err = {0};
        config_defaults(&cfg);
        set(&cfg, "requirepass", "secret");
        set(&cfg, "tls_cert", "/cert.pem");
        set(&cfg, "unix_socket", "/run/s");
        set(&cfg, "listen", cases[i].listen);
        set(&cfg, cases[i].name, cases[i].value);
        set(&cfg, "replica_address", cases[i].address);
        assert_int_equal(config_validate(&cfg, &err), cases[i].good ? 0 : ERR_INVALID);
        assert_true(cases[i].good || strstr(err.text, "set address in the section [replica]") != NULL);
    }
}

static void test_one_second_tier(void **state)
{
    (void)state;
    struct config cfg;
    struct err err = {0};
    config_defaults(&cfg);
    assert_int_equal(config_set(&cfg, "front_redis", "host:1", NULL), 0);
    assert_int_equal(config_set(&cfg, "replica_hedge", "yes", NULL), 0);
    assert_int_equal(config_validate(&cfg, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "expected one second tier"));
    assert_int_equal(config_set(&cfg, "replica_hedge", "no", NULL), 0);
    assert_int_equal(config_set(&cfg, "front_sentinel", "host:1/name", NULL), 0);
    assert_int_equal(config_validate(&cfg, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "front_redis and front_sentinel are both given"));
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "sample") == 0) {
        return config_write_sample(stdout) < 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_where_a_redis_is),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_good_values),
        cmocka_unit_test(test_memory_by_itself),
        cmocka_unit_test(test_values_that_are_kept),
        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_long_hosts),
        cmocka_unit_test(test_sweep_window),
        cmocka_unit_test(test_good_file),
        cmocka_unit_test(test_bad_file),
        cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_validate),
        cmocka_unit_test(test_the_old_redis),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_a_wildcard_among_others),
        cmocka_unit_test(test_one_second_tier),
        cmocka_unit_test(test_sample_is_committed),
        cmocka_unit_test(test_sample_loads),
        cmocka_unit_test(test_sample_says_when_it_fails),
        cmocka_unit_test(test_change),
        cmocka_unit_test(test_change_that_only_a_restart_makes_good),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
