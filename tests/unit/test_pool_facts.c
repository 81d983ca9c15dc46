/* What is read off the monitor's answers, and what is said of it. The answers are a real cluster's, cut to what counts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "cli/rados/pool_facts.h"

#define POOL(more)                                                                                                     \
    "{\"pool_name\":\"unseen\",\"type\":1,\"crush_rule\":0,\"tier_of\":-1,\"tiers\":[],\"pg_num\":128," more "}"
#define SOUND "\"size\":3,\"min_size\":2,\"flags_names\":\"hashpspool\",\"application_metadata\":{\"unseen\":{}}"
#define OSD(n, up, in) "{\"osd\":" #n ",\"up\":" #up ",\"in\":" #in "}"
#define DUMP(pool, osds)                                                                                               \
    "{\"flags\":\"sortbitwise\",\"pools\":[{\"pool_name\":\"other\"}," pool "],\"osds\":[" osds "]}"
#define FOUR OSD(0, 1, 1) "," OSD(1, 1, 1) "," OSD(2, 1, 1) "," OSD(3, 1, 1)
#define HOST(id, osd) "{\"id\":" #id ",\"type_name\":\"host\",\"items\":[{\"id\":" #osd "}]}"
#define CRUSH(type)                                                                                                    \
    "{\"rules\":[{\"rule_id\":0,\"rule_name\":\"replicated_rule\",\"steps\":[{\"op\":\"take\",\"item\":-1},"           \
    "{\"op\":\"chooseleaf_firstn\",\"num\":0,\"type\":\"" type "\"},{\"op\":\"emit\"}]}],"                             \
    "\"buckets\":[{\"id\":-1,\"type_name\":\"root\",\"items\":[{\"id\":-2},{\"id\":-3},{\"id\":-4},{\"id\":-5}]}"      \
    "," HOST(-2, 0) "," HOST(-3, 1) "," HOST(-4, 2) "," HOST(-5, 3) "]}"

struct said {
    char text[4096];
};

static void say(void *arg, const char *advice)
{
    struct said *s = arg;
    size_t len = strlen(s->text);
    snprintf(s->text + len, sizeof s->text - len, "%s\n", advice);
}

static struct pool_facts facts_of(const char *dump, const char *crush)
{
    struct pool_facts facts;
    struct err err = {0};
    int rc = pool_facts_read("unseen", slice_str(dump), slice_str(crush), &facts, &err);
    if (rc < 0) {
        fail_msg("%s", err.text);
    }
    return facts;
}

/* Exactly one thing is said, with these words. */
static void expect_advice(const struct pool_facts *facts, const char *words)
{
    struct said s = {0};
    struct err err;
    assert_int_equal(pool_advise("unseen", facts, say, &s, &err), 1);
    if (strstr(s.text, words) == NULL) {
        fail_msg("expected \"%s\", got \"%s\"", words, s.text);
    }
}

static void facts_are_read(void **state)
{
    (void)state;
    struct pool_facts f =
        facts_of(DUMP(POOL(SOUND), OSD(0, 1, 1) "," OSD(1, 0, 1) "," OSD(2, 1, 0) "," OSD(3, 1, 1)), CRUSH("host"));
    assert_true(f.replicated && f.tagged && !f.full && !f.nearfull && !f.capped && !f.tiered);
    assert_int_equal(f.size, 3);
    assert_int_equal(f.min_size, 2);
    assert_int_equal(f.groups, 128);
    assert_string_equal(f.rule, "replicated_rule");
    assert_string_equal(f.domain, "host");
    assert_string_equal(f.application, "");
    assert_int_equal(f.domains, 3); /* the host of the OSD that is out has nothing to give */
    assert_int_equal(f.up, 3);
    assert_int_equal(f.in, 3);
}

static void osds_are_counted_as_domains(void **state)
{
    (void)state;
    struct pool_facts f = facts_of(DUMP(POOL(SOUND), FOUR), CRUSH("osd"));
    assert_int_equal(f.domains, 4);
    expect_advice(&f, "tells OSDs apart, not hosts");
}

static void a_sound_pool_needs_no_advice(void **state)
{
    (void)state;
    struct pool_facts f = facts_of(DUMP(POOL(SOUND), FOUR), CRUSH("host"));
    struct said s = {0};
    struct err err;
    assert_int_equal(pool_advise("unseen", &f, say, &s, &err), 0);
    assert_string_equal(s.text, "");
}

static void each_weakness_is_named(void **state)
{
    static const struct {
        const char *pool, *words;
    } rows[] = {
        {"\"size\":1,\"min_size\":1", "size is 1"},
        {"\"size\":3,\"min_size\":1", "min_size is 1"},
        {"\"size\":3,\"min_size\":3", "min_size is 3, as size is"},
        {"\"size\":3,\"min_size\":2,\"flags_names\":\"hashpspool,nearfull\"", "nearly full"},
        {"\"size\":3,\"min_size\":2,\"flags_names\":\"full,nearfull\"", "it is full"},
        {"\"size\":3,\"min_size\":2,\"quota_max_bytes\":1000", "quota"},
        {"\"size\":3,\"min_size\":2,\"read_tier\":4,\"tiers\":[4]", "cache tier"},
        {"\"size\":3,\"min_size\":2,\"application_metadata\":{\"rbd\":{}}", "belongs to rbd, too"},
        {"\"size\":4,\"min_size\":2", "as many hosts as replicas"},
        {"\"size\":5,\"min_size\":2", "finds 4 hosts"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char dump[2048];
        snprintf(dump, sizeof dump,
                 "{\"flags\":\"\",\"pools\":[{\"pool_name\":\"unseen\",\"type\":1,\"crush_rule\":0,\"pg_num\":128,"
                 "\"tier_of\":-1,%s}],\"osds\":[%s]}",
                 rows[i].pool, FOUR);
        struct pool_facts f = facts_of(dump, CRUSH("host"));
        expect_advice(&f, rows[i].words);
    }
}

static void few_groups_and_dead_osds_are_named(void **state)
{
    (void)state;
    struct pool_facts f = facts_of(DUMP(POOL(SOUND), FOUR), CRUSH("host"));
    f.groups = 8;
    expect_advice(&f, "8 placement groups on 4 OSDs");
    f = facts_of(DUMP(POOL(SOUND), OSD(0, 0, 1) "," OSD(1, 1, 1) "," OSD(2, 1, 1) "," OSD(3, 1, 1)), CRUSH("host"));
    expect_advice(&f, "3 of 4 OSDs run");
    f = facts_of(DUMP(POOL(SOUND), FOUR), "{}");
    expect_advice(&f, "rule of CRUSH was not found");
}

static void an_erasure_coded_pool_is_refused(void **state)
{
    (void)state;
    struct pool_facts f = facts_of(DUMP(POOL(SOUND), FOUR), CRUSH("host"));
    struct said s = {0};
    struct err err;
    f.replicated = false;
    assert_int_equal(pool_advise("unseen", &f, say, &s, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "erasure-coded"));
}

static void odd_answers_are_errors(void **state)
{
    static const char *const bad[] = {"", "{", "null", "[1, 2", "\xff"};
    (void)state;
    struct pool_facts f;
    struct err err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(pool_facts_read("unseen", slice_str(bad[i]), slice_str("{}"), &f, &err), ERR_INVALID);
        assert_int_equal(pool_facts_read("unseen", slice_str(DUMP(POOL(SOUND), FOUR)), slice_str(bad[i]), &f, &err),
                         ERR_INVALID);
    }
    assert_int_equal(pool_facts_read("unseen", slice_str("{}"), slice_str("{}"), &f, &err), ERR_NOTFOUND);
    assert_int_equal(pool_facts_read("unseen", slice_str("{\"pools\":{\"a\":1}}"), slice_str("[]"), &f, &err),
                     ERR_NOTFOUND);
    assert_int_equal(pool_facts_read("absent", slice_str(DUMP(POOL(SOUND), FOUR)), slice_str("{}"), &f, &err),
                     ERR_NOTFOUND);
}

/* A map that bites its own tail ends, too. */
static void a_circle_in_the_map_ends(void **state)
{
    (void)state;
    struct pool_facts f =
        facts_of(DUMP(POOL(SOUND), FOUR),
                 "{\"rules\":[{\"rule_id\":0,\"rule_name\":\"r\",\"steps\":[{\"op\":\"take\",\"item\":-1},{\"op\":"
                 "\"choose_firstn\","
                 "\"type\":\"host\"}]}],\"buckets\":[{\"id\":-1,\"type_name\":\"root\",\"items\":[{\"id\":-1}]}]}");
    assert_int_equal(f.domains, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_are_read),
        cmocka_unit_test(osds_are_counted_as_domains),
        cmocka_unit_test(a_sound_pool_needs_no_advice),
        cmocka_unit_test(each_weakness_is_named),
        cmocka_unit_test(few_groups_and_dead_osds_are_named),
        cmocka_unit_test(an_erasure_coded_pool_is_refused),
        cmocka_unit_test(odd_answers_are_errors),
        cmocka_unit_test(a_circle_in_the_map_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
