/* The section [kafka]: brokers, topics and start, and librdkafka's properties, which are handed through. */
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

static char path[] = "/tmp/unseen-config-kafka-XXXXXX";

static struct config defaults(void)
{
    struct config cfg;
    config_defaults(&cfg);
    return cfg;
}

static void set(struct config *cfg, const char *name, const char *value)
{
    struct err err = {0};
    if (config_set(cfg, name, value, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static const char *text_of(const struct config *cfg, const char *name)
{
    static char text[CONFIG_VALUE_TEXT];
    config_text(cfg, config_find(name), text, sizeof text);
    return text;
}

static const char *value_of(const struct config *cfg, const char *name)
{
    static struct config_property p;
    const char *at = cfg->kafka_properties;
    while (config_next_property(&at, &p)) {
        if (strcmp(p.name, name) == 0) {
            return p.value;
        }
    }
    return NULL;
}

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void collect(void *arg, const char *problem)
{
    assert_int_equal(buf_addf(arg, "%s\n", strrchr(problem, '/') != NULL ? strchr(problem, ':') + 1 : problem), 0);
}

static void test_properties(void **state)
{
    (void)state;
    struct config cfg = defaults();
    assert_string_equal(text_of(&cfg, "kafka_properties"), "");
    set(&cfg, "kafka_security.protocol", "sasl_ssl");
    set(&cfg, "kafka_sasl.password", "hun;ter2");
    set(&cfg, "kafka_rdkafka.fetch.min.bytes", "7");
    set(&cfg, "kafka_rdkafka.ssl.key.password", "k");
    assert_string_equal(text_of(&cfg, "kafka_properties"),
                        "security.protocol=sasl_ssl; sasl.password=********; rdkafka.fetch.min.bytes=7; "
                        "ssl.key.password=********");
    assert_string_equal(value_of(&cfg, "sasl.password"), "hun;ter2");
    assert_string_equal(value_of(&cfg, "fetch.min.bytes"), "7");
    assert_null(value_of(&cfg, "fetch"));

    /* Setting all of them adds to what is there, and one again replaces it. */
    set(&cfg, "kafka_properties", " security.protocol = ssl ;rdkafka.debug=cgrp,topic;\nsasl.username=a=b");
    assert_string_equal(value_of(&cfg, "security.protocol"), "ssl");
    assert_string_equal(value_of(&cfg, "debug"), "cgrp,topic");
    assert_string_equal(value_of(&cfg, "sasl.username"), "a=b");
    assert_string_equal(value_of(&cfg, "fetch.min.bytes"), "7");
    set(&cfg, "kafka_rdkafka.debug", "");
    assert_null(value_of(&cfg, "debug"));
}

static void test_bad_properties(void **state)
{
    (void)state;
    static char longest[CONFIG_TEXT_MAX + 2];
    memset(longest, 'x', CONFIG_TEXT_MAX + 1);
    static const struct {
        const char *name, *value;
        int code;
        const char *text;
    } cases[] = {
        {"kafka_fetch.min.bytes", "1", ERR_NOTFOUND, "there is no option \"fetch.min.bytes\" in [kafka]"},
        {"kafka_rdkafka.", "1", ERR_INVALID, "expected a name"},
        {"kafka_sasl.Password", "1", ERR_INVALID, "expected a name"},
        {"kafka_rdkafka.group.id", "x", ERR_INVALID, "can't be set: group says that"},
        {"kafka_rdkafka.bootstrap.servers", "x", ERR_INVALID, "brokers says that"},
        {"kafka_rdkafka.metadata.broker.list", "x", ERR_INVALID, "brokers says that"},
        {"kafka_rdkafka.auto.offset.reset", "x", ERR_INVALID, "start says that"},
        {"kafka_rdkafka.enable.auto.offset.store", "true", ERR_INVALID, "when its plays are durable"},
        {"kafka_rdkafka.enable.auto.commit", "true", ERR_INVALID, "when their plays are durable"},
        {"kafka_rdkafka.partition.assignment.strategy", "x", ERR_INVALID, "by range"},
        {"kafka_rdkafka.enable.partition.eof", "x", ERR_INVALID, "where a log ends"},
        {"kafka_rdkafka.plugin.library.paths", "x", ERR_INVALID, "load code"},
        {"kafka_sasl.password", CONFIG_MASK, ERR_INVALID, "stands for a hidden one"},
        {"kafka_sasl.password", "a\nb", ERR_INVALID, "control character (byte 2)"},
        {"kafka_sasl.username", longest, ERR_RANGE, "is 256 bytes long, expected at most 255"},
        {"kafka_properties", "ssl.ca.location=/x; secret", ERR_INVALID, "a part without ="},
        {"kafka_properties", "ssl.ca.location=/x; rdkafka.group.id=y", ERR_INVALID,
         "kafka_rdkafka.group.id can't be set"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config cfg = defaults(), before = cfg;
        struct err err = {0};
        int code = config_set(&cfg, cases[i].name, cases[i].value, &err);
        if (code != cases[i].code || strstr(err.text, cases[i].text) == NULL || strstr(err.text, "secret") != NULL) {
            fail_msg("%s = %s: %d, %s", cases[i].name, cases[i].value, code, err.text);
        }
        assert_string_equal(cfg.kafka_properties, before.kafka_properties);
    }
}

static void test_properties_are_bounded(void **state)
{
    (void)state;
    struct config cfg = defaults();
    struct err err = {0};
    char name[32], value[CONFIG_TEXT_MAX + 1], text[CONFIG_VALUE_TEXT];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    int code = 0, n = 0;
    while (code == 0) {
        snprintf(name, sizeof name, "kafka_rdkafka.n%d", n++);
        code = config_set(&cfg, name, value, &err);
    }
    assert_int_equal(code, ERR_RANGE);
    assert_non_null(strstr(err.text, "together are longer than 2047 bytes"));
    assert_int_equal(n, 8);
    config_text(&cfg, config_find("kafka_properties"), text, sizeof text);
    assert_int_equal(strlen(text), strlen(cfg.kafka_properties) + 7 * (sizeof "rdkafka." - 1) + 6 - 1);
}

static void test_file(void **state)
{
    (void)state;
    struct config cfg = defaults();
    struct err err = {0};
    struct buf problems = {0};
    write_file("[kafka]\nbrokers = a:9092, b\ntopics = plays\nsecurity.protocol = ssl\n"
               "rdkafka.client.id = x\n[unseen]\nslots = 4\n");
    if (config_load(&cfg, path, collect, &problems, &err) < 0) {
        fail_msg("%s", err.text);
    }
    assert_string_equal(cfg.kafka_brokers, "a:9092, b");
    assert_string_equal(cfg.kafka_properties, "security.protocol=ssl\nclient.id=x\n");
    assert_int_equal(cfg.origin[config_find("kafka_properties") - config_options], 5);
    assert_int_equal(config_validate(&cfg, &err), 0);

    write_file("security.protocol = ssl\n[kafka]\nsasl.password = hunter ;2\nssl.ca.location = /x\n"
               "rdkafka.ssl.ca.location = /y\nrdkafka.group.id = z\nslots = 3\nlegacy_score = s\nbrokrs = x\n[legacy]\n"
               "rdkafka.a = b\nfetch.wait = 3\nbrokers = x\n");
    assert_int_equal(config_load(&cfg, path, collect, &problems, &err), ERR_NOTFOUND);
    assert_int_equal(buf_add(&problems, "", 1), 0);
    assert_string_equal(problems.data,
                        "1: security.protocol belongs in [kafka]; here it stands before any section\n"
                        "3: kafka_sasl.password can't hold a space before a semicolon: a comment begins there\n"
                        "5: kafka_rdkafka.ssl.ca.location is given twice\n"
                        "6: kafka_rdkafka.group.id can't be set: group says that\n"
                        "7: slots belongs in [unseen]; here it stands in [kafka], which begins in line 2\n"
                        "8: legacy_score belongs in [legacy]; here it stands in [kafka], which begins in line 2\n"
                        "9: there is no option \"kafka_brokrs\"; did you mean kafka_brokers?\n"
                        "11: rdkafka.a belongs in [kafka]; here it stands in [legacy], which begins in line 10\n"
                        "12: there is no option \"legacy_fetch.wait\"\n"
                        "13: brokers belongs in [kafka]; here it stands in [legacy], which begins in line 10\n");
    buf_free(&problems);
}

static void test_password_file(void **state)
{
    (void)state;
    struct config cfg = defaults();
    struct err err = {0};
    write_file("hush\n");
    set(&cfg, "kafka_password_file", path);
    assert_int_equal(config_read_passwords(&cfg, &err), 0);
    assert_string_equal(value_of(&cfg, "sasl.password"), "hush");
    assert_string_equal(text_of(&cfg, "kafka_properties"), "sasl.password=********");

    cfg = defaults();
    set(&cfg, "kafka_sasl.password", "x");
    set(&cfg, "kafka_password_file", path);
    assert_int_equal(config_read_passwords(&cfg, &err), ERR_INVALID);
    assert_string_equal(err.text, "kafka_sasl.password and kafka_password_file are both given, expected one");
}

static void test_validate(void **state)
{
    (void)state;
    static const struct {
        const char *brokers, *topics, *start, *text; /* text NULL: good */
    } cases[] = {
        {"", "", "earliest", NULL},
        {"a", "t", "latest", NULL},
        {"a:1,b:65535 [::1]:9 [::1]", "t, u.v_w-x", "1700000000000", NULL},
        {"", "", "soon", "kafka_start is \"soon\", expected earliest, latest or unix time"},
        {"", "", "-2", "kafka_start is"},
        {"a:1", "", "latest", "kafka_topics is empty"},
        {"a:1", " , ", "latest", "kafka_topics is empty"},
        {"a:1", "t,u/v", "latest", "kafka_topics has \"u/v\""},
        {"a:0", "t", "latest", "kafka_brokers has \"a:0\""},
        {"a:65536", "t", "latest", "kafka_brokers has"},
        {"a:x", "t", "latest", "kafka_brokers has"},
        {"::1:9", "t", "latest", "kafka_brokers has"},
        {"ssl://a:1", "t", "latest", "kafka_brokers has"},
        {":1", "t", "latest", "kafka_brokers has"},
        {",", "t", "latest", "kafka_brokers is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config cfg = defaults();
        struct err err = {0};
        set(&cfg, "kafka_brokers", cases[i].brokers);
        set(&cfg, "kafka_topics", cases[i].topics);
        set(&cfg, "kafka_start", cases[i].start);
        int code = config_validate(&cfg, &err);
        if ((code == 0) != (cases[i].text == NULL) || (code < 0 && strstr(err.text, cases[i].text) == NULL)) {
            fail_msg("%zu: %d, %s", i, code, err.text);
        }
    }
    struct config cfg = defaults();
    assert_int_equal(config_kafka_start(&cfg), CONFIG_START_EARLIEST);
    set(&cfg, "kafka_start", "latest");
    assert_int_equal(config_kafka_start(&cfg), CONFIG_START_LATEST);
    set(&cfg, "kafka_start", "1700000000000");
    assert_int_equal(config_kafka_start(&cfg), 1700000000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_properties),    cmocka_unit_test(test_bad_properties),
        cmocka_unit_test(test_file),          cmocka_unit_test(test_properties_are_bounded),
        cmocka_unit_test(test_password_file), cmocka_unit_test(test_validate),
    };
    int fd = mkstemp(path);
    if (fd < 0) {
        return 1;
    }
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
