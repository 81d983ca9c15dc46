/* What Consul's agent is told of a server, as JSON. What the agent makes of it is in tests/e2e/test_registry.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/consul.h"

static struct config defaults(void)
{
    struct config cfg;
    config_defaults(&cfg);
    return cfg;
}

static json_t *parsed(char *text)
{
    assert_non_null(text);
    json_t *value = json_loads(text, 0, NULL);
    free(text);
    assert_non_null(value);
    return value;
}

static void expect_place(const char *address, enum consul_edge edge, bool tls, const char *host, int port)
{
    struct config cfg = defaults();
    struct consul_service s;
    assert_true(consul_service_at(&cfg, address, &s));
    assert_int_equal(s.edge, edge);
    assert_int_equal(s.tls, tls);
    assert_string_equal(s.host, host);
    assert_int_equal(s.port, port);
}

static void addresses_are_taken_apart(void **state)
{
    (void)state;
    struct config cfg = defaults();
    struct consul_service s;
    expect_place("127.0.0.1:7979", CONSUL_RESP, false, "127.0.0.1", 7979);
    expect_place("tls://[::1]:7", CONSUL_RESP, true, "::1", 7);
    expect_place("https://host:65535", CONSUL_HTTP, true, "host", 65535);
    expect_place("grpc://[fe80::1]:7981", CONSUL_GRPC, false, "fe80::1", 7981);
    expect_place("grpcs://h:1", CONSUL_GRPC, true, "h", 1);
    assert_false(consul_service_at(&cfg, "unix:/run/x:1.sock", &s));
    assert_false(consul_service_at(&cfg, "nothing", &s));
}

static void an_address_of_its_own_is_told(void **state)
{
    (void)state;
    struct config cfg = defaults();
    struct consul_service s;
    snprintf(cfg.registry_address, sizeof cfg.registry_address, "fd00::7");
    assert_true(consul_service_at(&cfg, "grpcs://0.0.0.0:7981", &s));
    consul_name(&cfg, &s, CONSUL_DUBBO_TRIPLE);
    assert_string_equal(s.id, "unseen-dubbo-fd00::7-7981");
    json_t *told = parsed(consul_registration(&cfg, &s, NULL, 7, "primary"));
    assert_string_equal(json_string_value(json_object_get(told, "Address")), "fd00::7");
    assert_string_equal(json_string_value(json_object_get(told, "Name")), CONSUL_DUBBO);
    json_t *meta = json_object_get(told, "Meta");
    const char *url = json_string_value(json_object_get(meta, "url"));
    assert_memory_equal(url, "tri://[fd00::7]:7981/", 21);
    assert_non_null(strstr(url, "&ssl-enabled=true"));
    assert_string_equal(json_string_value(json_object_get(meta, "seed")), "00000007");
    json_decref(told);
}

static void tags_and_checks(void **state)
{
    (void)state;
    struct config cfg = defaults();
    struct consul_service s, grpc;
    snprintf(cfg.registry_tags, sizeof cfg.registry_tags, "eu-1 \"quoted\"");
    assert_true(consul_service_at(&cfg, "127.0.0.1:7979", &s));
    assert_true(consul_service_at(&cfg, "grpcs://[::1]:7981", &grpc));
    json_t *told = parsed(consul_registration(&cfg, &s, NULL, 0, "replica"));
    assert_int_equal(json_array_size(json_object_get(told, "Tags")), 3);
    assert_string_equal(json_string_value(json_array_get(json_object_get(told, "Tags"), 2)), "replica");
    assert_string_equal(json_string_value(json_object_get(json_object_get(told, "Meta"), "role")), "replica");
    assert_string_equal(json_string_value(json_object_get(json_object_get(told, "Check"), "TTL")), "15s");
    json_decref(told);
    told = parsed(consul_registration(&cfg, &s, &grpc, 0, "primary"));
    json_t *check = json_object_get(told, "Check");
    assert_string_equal(json_string_value(json_object_get(check, "GRPC")), "[::1]:7981");
    assert_true(json_is_true(json_object_get(check, "GRPCUseTLS")));
    assert_null(json_object_get(check, "TTL"));
    json_decref(told);
}

/* A cause that can't be said as it is must not keep the agent from hearing of the server. */
static void a_cause_of_any_bytes(void **state)
{
    (void)state;
    char all[256];
    for (int i = 0; i < 255; i++) {
        all[i] = (char)(i + 1);
    }
    all[255] = '\0';
    const char *const causes[] = {"", "the disk of /data/\xff\xfe is full", "cut within a character: \xe2\x82",
                                  "\"quotes\" and \\", all};
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++) {
        json_t *told = parsed(consul_check_update(false, causes[i]));
        assert_string_equal(json_string_value(json_object_get(told, "Status")), "critical");
        assert_int_equal(json_string_length(json_object_get(told, "Output")), strlen(causes[i]));
        json_decref(told);
    }
    json_t *told = parsed(consul_check_update(true, "not said"));
    assert_string_equal(json_string_value(json_object_get(told, "Status")), "passing");
    assert_string_equal(json_string_value(json_object_get(told, "Output")), "ready");
    json_decref(told);
}

#ifdef WITH_CURL
static void tags_are_utf8(void **state)
{
    (void)state;
    struct config cfg = defaults();
    struct err err = {0};
    snprintf(cfg.registry_consul, sizeof cfg.registry_consul, "http://127.0.0.1:8500");
    assert_int_equal(config_validate(&cfg, &err), 0);
    snprintf(cfg.registry_tags, sizeof cfg.registry_tags, "eu\xff");
    assert_int_equal(config_validate(&cfg, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "registry_tags"));
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_taken_apart),
        cmocka_unit_test(an_address_of_its_own_is_told),
        cmocka_unit_test(tags_and_checks),
        cmocka_unit_test(a_cause_of_any_bytes),
#ifdef WITH_CURL
        cmocka_unit_test(tags_are_utf8),
#endif
    };
    return cmocka_run_group_tests_name("consul", tests, NULL, NULL);
}
