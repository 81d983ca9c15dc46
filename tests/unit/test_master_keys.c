/* Whether a master of the old Redis has come back without its data: by how many keys it had, and has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "legacy/master_keys.h"

/* "a:1=1000 b:1=0" */
static struct master_keys of(const char *text)
{
    struct master_keys m = {0};
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *at = strtok(copy, " "); at != NULL; at = strtok(NULL, " ")) {
        char *equals = strchr(at, '=');
        *equals = '\0';
        assert_int_equal(master_keys_add(&m, at, strtoull(equals + 1, NULL, 10), NULL), 0);
    }
    return m;
}

static void test_judge(void **state)
{
    (void)state;
    static const struct {
        const char *before, *now, *lost; /* "": all is well */
    } cases[] = {
        {"", "a:1=1000", ""},
        {"a:1=1000", "a:1=1000", ""},
        {"a:1=1000", "a:1=500", ""},
        {"a:1=1000", "a:1=499", "a:1 has 499 keys, and had 1000"},
        {"a:1=1000", "a:1=0", "a:1 has 0 keys"},
        {"a:1=99", "a:1=0", ""},
        {"a:1=1000 b:1=1000 c:1=1000", "a:1=1000 b:1=0 c:1=1001", "b:1 has 0 keys, and had 1000"},
        {"a:1=1000 b:1=1000 c:1=1000", "a:1=2000 b:1=0 c:1=1000", ""},    /* its slots have moved */
        {"a:1=1000 b:1=1000 c:1=1000", "a:1=1000 d:1=1000 c:1=1000", ""}, /* its replica has taken over */
        {"a:1=1000 b:1=1000 c:1=1000", "c:1=990 b:1=1500 a:1=400", ""},   /* some have moved, a few are gone */
        {"a:1=1000 b:1=50 c:1=1000", "a:1=1000 b:1=0 c:1=1000", ""},      /* too few to say */
        {"a:1=1000", "b:1=10", "b:1 has 10 keys, and had 1000"},          /* a replica that never had them */
        {"a:1=1000", "b:1=900", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct master_keys before = of(cases[i].before), now = of(cases[i].now);
        struct err err = {0};
        int rc = master_keys_judge(&before, &now, &err);
        if ((rc == ERR_BUSY) != (cases[i].lost[0] != '\0') || strstr(err.text, cases[i].lost) == NULL) {
            fail_msg("%s, then %s: %d %s", cases[i].before, cases[i].now, rc, err.text);
        }
        master_keys_free(&before);
        master_keys_free(&now);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_judge)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
