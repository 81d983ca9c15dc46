/* Accounts: their file, what is remembered of logins, and that each command and each path says what it needs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/siphash.h"
#include "http/http.h"
#include "resp/command.h"
#include "service/account_file.h"
#include "service/account_memo.h"
#include "service/request.h"

#define HASH "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$6foLM1JhGupouWKMU70wxK61Kw9ZnecbACjJwRadqM2"
#define NAME64 "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijkl"

/* --- the keyed hash --- */

/* Of the reference implementation: the key is 00 to 0f, the text is 00 to len - 1. */
static void test_siphash(void **state)
{
    (void)state;
    static const struct {
        size_t len;
        uint64_t a, b;
    } rows[] = {
        {0, UINT64_C(0xe6a825ba047f81a3), UINT64_C(0x930255c71472f66d)},
        {1, UINT64_C(0x44af996bd8c187da), UINT64_C(0x45fc229b11597634)},
    };
    const struct siphash key = {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908)};
    unsigned char text[64];
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (unsigned char)i;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct siphash got = siphash(&key, text, rows[i].len);
        assert_true(got.a == rows[i].a && got.b == rows[i].b);
    }
    for (size_t n = 0; n < sizeof text; n++) { /* each byte counts, and so does the length */
        struct siphash whole = siphash(&key, text, n), longer = siphash(&key, text, n + 1 < sizeof text ? n + 1 : 0);
        assert_true(whole.a != longer.a && whole.b != longer.b);
    }
}

/* --- the file --- */

static int parse(const char *text, size_t len, struct account_set **set, struct err *err)
{
    char *copy = malloc(len + 1);
    assert_non_null(copy);
    memcpy(copy, text, len);
    copy[len] = '\0';
    int code = account_file_parse("FILE", slice_of(copy, len), set, err);
    free(copy);
    return code;
}

static void test_good_files(void **state)
{
    (void)state;
    static const char text[] = "# accounts\n\n  \t\nzoe watch " HASH "\r\n\tbob\task,record  " HASH "  \n" NAME64
                               " ask,record,forget,load,admin,watch " HASH;
    struct account_set *set = NULL;
    struct err err = {0};
    assert_int_equal(parse(text, sizeof text - 1, &set, &err), 0);
    assert_int_equal(set->n, 3);
    const struct account *bob = account_set_find(set, slice_str("bob"));
    assert_non_null(bob);
    assert_int_equal(bob->roles, ROLE_ASK | ROLE_RECORD);
    assert_string_equal(bob->hash, HASH);
    assert_int_equal(account_set_find(set, slice_str(NAME64))->roles, ROLE_ALL);
    assert_int_equal(account_set_find(set, slice_str("zoe"))->roles, ROLE_WATCH);
    assert_null(account_set_find(set, slice_str("bo")));
    assert_null(account_set_find(set, slice_str("bobb")));
    assert_null(account_set_find(set, slice_of("bob\0x", 5)));
    assert_null(account_set_find(set, slice_str("")));
    assert_null(account_set_find(set, slice_str(NAME64 "x")));
    assert_null(account_set_find(NULL, slice_str("bob")));
    assert_true(account_set_equal(set, set));
    assert_false(account_set_equal(set, NULL));
    account_set_free(set);
    assert_int_equal(parse("", 0, &set, &err), 0);
    assert_int_equal(set->n, 0);
    account_set_free(set);
}

static void test_bad_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"bob\n", "FILE:1: expected a name, roles and a hash"},
        {"#\nbob ask\n", "FILE:2: expected a name, roles and a hash"},
        {"bob ask " HASH " x\n", "FILE:1: expected a name, roles and a hash"},
        {"b/b ask " HASH, "FILE:1: \"b/b\" can't be an account's name"},
        {NAME64 "x ask " HASH, "can't be an account's name"},
        {"b\xc3\xa4 ask " HASH, "can't be an account's name"},
        {"default ask " HASH, "FILE:1: the account default is not in the file"},
        {"bob asks " HASH, "FILE:1: there is no role \"asks\", expected some of ask,"},
        {"bob ask, " HASH, "there is no role \"\""},
        {"bob ,ask " HASH, "there is no role \"\""},
        {"bob ASK " HASH, "there is no role \"ASK\""},
        {"bob ask secret", "FILE:1: the hash of bob is none of libcrypt's strong ones"},
        {"bob ask $1$abcdefgh$0123456789012345678901", "is none of libcrypt's strong ones"},
        {"bob ask " HASH "\n\nann ask " HASH "\nbob ask " HASH, "FILE:4: the account bob is given twice"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct account_set *set = NULL;
        struct err err = {0};
        assert_int_equal(parse(rows[i].text, strlen(rows[i].text), &set, &err), ERR_INVALID);
        assert_null(set);
        if (strstr(err.text, rows[i].want) == NULL) {
            fail_msg("%s\nis not: %s", err.text, rows[i].want);
        }
    }
    struct account_set *set = NULL;
    struct err err = {0};
    static const char nul[] = "bob ask " HASH "\n\0";
    assert_int_equal(parse(nul, sizeof nul - 1, &set, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "FILE:2: the line holds a NUL byte"));
}

static void test_too_many(void **state)
{
    (void)state;
    struct buf text = {0};
    for (int i = 0; i < ACCOUNTS_MAX; i++) {
        buf_addf(&text, "a%d ask " HASH "\n", i);
    }
    struct account_set *set = NULL;
    struct err err = {0};
    assert_int_equal(parse(text.data, text.len, &set, &err), 0);
    assert_int_equal(set->n, ACCOUNTS_MAX);
    account_set_free(set);
    buf_addf(&text, "one ask " HASH "\n");
    assert_int_equal(parse(text.data, text.len, &set, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "FILE:4097: there are more than 4096 accounts"));
    buf_free(&text);
}

static void test_who_may_read_it(void **state)
{
    (void)state;
    char path[] = "/tmp/unseen-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    static const char text[] = "bob ask " HASH "\n";
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    struct account_set *set = NULL;
    struct err err = {0};
    assert_int_equal(fchmod(fd, 0640), 0);
    assert_int_equal(account_file_read(path, &set, &err), 0);
    account_set_free(set);
    assert_int_equal(fchmod(fd, 0644), 0);
    assert_int_equal(account_file_read(path, &set, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "is open to everybody on this machine (mode 0644), expected 0600 or 0640"));
    close(fd);
    unlink(path);
    assert_int_equal(account_file_read(path, &set, &err), ERR_NOTFOUND);
    assert_non_null(strstr(err.text, "accounts: /tmp/unseen-test-")); /* the option, and what it names */
    assert_int_equal(account_file_read("/tmp", &set, &err), ERR_INVALID);
}

static void test_roles_text(void **state)
{
    (void)state;
    for (unsigned roles = 1; roles <= ROLE_ALL; roles++) {
        char text[ACCOUNT_ROLES_TEXT];
        unsigned again;
        account_roles_write(roles, text);
        assert_int_equal(account_roles_read(slice_str(text), &again, NULL), 0);
        assert_int_equal(again, roles);
    }
}

/* --- what is remembered --- */

static void test_memo(void **state)
{
    (void)state;
    static struct account_memo m;
    static struct account accounts[3 * MEMO_SETS * MEMO_WAYS];
    struct err err = {0};
    assert_int_equal(account_memo_init(&m, &err), 0);
    struct siphash one = account_memo_hash(&m, slice_str("bob"), slice_str("secret"));
    assert_null(account_memo_find(&m, one));
    account_memo_keep(&m, one, &accounts[0]);
    assert_ptr_equal(account_memo_find(&m, one), &accounts[0]);
    assert_null(account_memo_find(&m, account_memo_hash(&m, slice_str("bobs"), slice_str("ecret"))));
    assert_null(account_memo_find(&m, account_memo_hash(&m, slice_str("bob"), slice_str("secreT"))));
    static struct account_memo other;
    assert_int_equal(account_memo_init(&other, &err), 0);
    assert_false(account_memo_same(one, account_memo_hash(&other, slice_str("bob"), slice_str("secret"))));
    size_t known = 0, all = sizeof accounts / sizeof *accounts;
    for (size_t i = 0; i < all; i++) { /* bounded, and what is used stays */
        char name[16];
        snprintf(name, sizeof name, "a%zu", i);
        account_memo_keep(&m, account_memo_hash(&m, slice_str(name), slice_str("p")), &accounts[i]);
        assert_ptr_equal(account_memo_find(&m, one), &accounts[0]);
    }
    for (size_t i = 0; i < all; i++) {
        char name[16];
        snprintf(name, sizeof name, "a%zu", i);
        const struct account *got = account_memo_find(&m, account_memo_hash(&m, slice_str(name), slice_str("p")));
        assert_true(got == NULL || got == &accounts[i]);
        known += got != NULL;
    }
    assert_in_range(known, MEMO_SETS, MEMO_SETS * MEMO_WAYS);
    account_memo_forget(&m);
    assert_null(account_memo_find(&m, one));
}

/* --- what is needed --- */

static bool is_role(unsigned role)
{
    bool in_table = role == ROLE_ANYBODY || role == ROLE_ACCOUNT || role == ROLE_REQUEST;
    return in_table || (role != 0 && (role & ~(unsigned)ROLE_ALL) == 0);
}

static void test_every_command_has_a_role(void **state)
{
    (void)state;
    for (const struct command *cmd = command_table; cmd->name != NULL; cmd++) {
        if (!is_role(cmd->role)) {
            fail_msg("the command %s has no role: say in resp/table.c what it needs", cmd->name);
        }
        for (const struct command *sub = cmd->subs; sub != NULL && sub->name != NULL; sub++) {
            if (!is_role(sub->role)) {
                fail_msg("the command %s %s has no role: say in resp/table.c what it needs", cmd->name, sub->name);
            }
        }
    }
    for (const struct http_route *row = http_routes; row->method != NULL; row++) {
        if (!is_role(row->role)) {
            fail_msg("%s %s has no role: say in http/routes.c what it needs", row->method, row->path);
        }
    }
    for (enum request_kind kind = 0; kind < REQUEST_KINDS; kind++) {
        const struct request rq = {.kind = kind};
        if (account_roles_for(&rq) == 0) {
            fail_msg("requests of kind %d have no role: say in service/account.c what they need", (int)kind);
        }
    }
}

static void test_what_requests_need(void **state)
{
    (void)state;
    static const struct {
        enum request_kind kind;
        bool deliver;
        unsigned roles;
    } rows[] = {
        {REQUEST_QUESTION, false, ROLE_ASK},  {REQUEST_QUESTION, true, ROLE_ASK | ROLE_RECORD},
        {REQUEST_WHY, false, ROLE_ASK},       {REQUEST_HISTORY, false, ROLE_ASK},
        {REQUEST_PLAY, false, ROLE_RECORD},   {REQUEST_DELIVERY, false, ROLE_RECORD},
        {REQUEST_FORGET, false, ROLE_FORGET}, {REQUEST_BLOCK, false, ROLE_ASK},
        {REQUEST_UNBLOCK, false, ROLE_ASK},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct request rq = {.kind = rows[i].kind, .deliver = rows[i].deliver};
        assert_int_equal(account_roles_for(&rq), rows[i].roles);
        for (unsigned roles = 0; roles <= ROLE_ALL; roles++) {
            const struct account account = {.name = "bob", .roles = roles};
            bool all = (roles & rows[i].roles) == rows[i].roles;
            assert_int_equal(account_check(&account, rows[i].roles, NULL), all ? 0 : ERR_NOPERM);
        }
    }
}

static void test_check(void **state)
{
    (void)state;
    const struct account bob = {.name = "bob", .roles = ROLE_ASK};
    struct err err = {0};
    assert_int_equal(account_check(NULL, ROLE_ANYBODY, &err), 0);
    assert_int_equal(account_check(&bob, ROLE_ACCOUNT, &err), 0);
    assert_int_equal(account_check(&bob, ROLE_REQUEST, &err), 0);
    assert_int_equal(account_check(NULL, ROLE_ACCOUNT, &err), ERR_NOAUTH);
    assert_int_equal(account_check(NULL, ROLE_REQUEST, &err), ERR_NOAUTH);
    assert_int_equal(account_check(NULL, ROLE_ASK, &err), ERR_NOAUTH);
    assert_int_equal(account_check(&bob, ROLE_ASK | ROLE_RECORD, &err), ERR_NOPERM);
    assert_string_equal(err.text, "User bob has no permissions to do this: it needs the role record");
    const struct account all = {.name = "all", .roles = ROLE_ALL};
    assert_int_equal(account_check(&all, 0, &err), ERR_NOPERM); /* a row that forgot to say */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_siphash),
        cmocka_unit_test(test_good_files),
        cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_who_may_read_it),
        cmocka_unit_test(test_roles_text),
        cmocka_unit_test(test_memo),
        cmocka_unit_test(test_every_command_has_a_role),
        cmocka_unit_test(test_what_requests_need),
        cmocka_unit_test(test_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
