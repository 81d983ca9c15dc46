/* Pools of another node (replica/pool_fetch.h) that answers what it likes: lists cut short, of another size or version
 * than it says, changed in the middle, and no end of it. A pool comes as it was said to be, or not at all. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "dedup/pool.h"
#include "net/reply.h"
#include "replica/pool_fetch.h"
#include "tests/lib/alloc.h"

enum { PARTS_MAX = 4, ENDLESS = 1000 * 1000 };

/* Replies one after the other; the last one, if it is to go on, again and again. "": the connection is lost. */
static struct there {
    struct pool_source of; /* first */
    const char *replies[PARTS_MAX];
    size_t at;
    bool goes_on;
    int asked, stop_after;
    uint64_t here; /* a version that needn't come */
    int64_t charged, most;
    char froms[128]; /* which parts were asked for */
    struct buf text;
    struct arena arena;
    struct reply reply;
} there;

/* A part: "2 abc 3 a,bb" is the version of the list abc, for which each letter is an item; 3 items; and these. */
static void add_part(struct buf *out, const char *said)
{
    char list[32], packed[64];
    char version[POOL_VERSION_TEXT];
    int n, end = 0;
    uint64_t chain = 0;
    assert_int_equal(sscanf(said, "%31s %d %n", list, &n, &end), 2);
    for (const char *at = list; *at != '\0' && *at != '-'; at++) {
        chain = hash_chain(chain, slice_of(at, 1));
    }
    size_t len = 0;
    for (const char *at = said + end; *at != '\0'; at++) {
        packed[len++] = *at == '!' ? 9 : *at == '_' ? 0 : 1; /* longer than what is there; empty */
        if (*at != '_') {
            packed[len++] = *at;
        }
    }
    buf_addf(out, "*3\r\n$16\r\n%s\r\n:%d\r\n$%zu\r\n", pool_version_text(chain, version), n, len);
    buf_add(out, packed, len);
    buf_add(out, "\r\n", 2);
}

static int ask(struct pool_source *s, const struct slice *words, size_t n, const struct reply **reply, struct err *err)
{
    struct there *t = (struct there *)s;
    const char *said = t->replies[t->at];
    size_t used;
    assert_true(t->asked++ < ENDLESS);
    assert_int_equal(n, 4);
    assert_true(slice_eq(words[2], slice_str("hot")));
    if (strlen(t->froms) < sizeof t->froms / 2) {
        snprintf(t->froms + strlen(t->froms), sizeof t->froms / 2, "%.*s ", (int)words[3].len, words[3].data);
    }
    t->at += t->at + 1 < PARTS_MAX && t->replies[t->at + 1] != NULL;
    if (t->goes_on && t->at + 1 < PARTS_MAX && t->replies[t->at + 1] == NULL && said == t->replies[t->at]) {
        t->at = 0;
    }
    buf_clear(&t->text);
    if (said == NULL || said[0] == '\0') {
        return err_set(err, ERR_CLOSED, "the connection was lost");
    }
    if (said[0] == '*' || said[0] == '_' || said[0] == '$' || said[0] == ':') {
        buf_addf(&t->text, "%s", said);
    } else {
        add_part(&t->text, said);
    }
    arena_reset(&t->arena);
    int rc = reply_parse(t->text.data, t->text.len, &t->arena, &t->reply, &used, err);
    *reply = &t->reply;
    return rc < 0 ? rc : rc == REPLY_DONE ? 0 : err_set(err, ERR_CLOSED, "the connection was lost");
}

static bool has(struct pool_source *s, struct slice name, uint64_t version)
{
    assert_true(slice_eq(name, slice_str("hot")));
    return ((struct there *)s)->here == version;
}

static void charge(struct pool_source *s, int64_t bytes)
{
    struct there *t = (struct there *)s;
    t->charged += bytes;
    t->most = t->charged > t->most ? t->charged : t->most;
    assert_true(t->charged >= 0);
}

static bool stopping(struct pool_source *s)
{
    struct there *t = (struct there *)s;
    return t->stop_after > 0 && t->asked >= t->stop_after;
}

static void begin(const char *const replies[PARTS_MAX])
{
    there = (struct there){.of = {"there", NULL, ask, has, charge, stopping}};
    memcpy(there.replies, replies, sizeof there.replies);
}

static void end(void)
{
    buf_free(&there.text);
    arena_free(&there.arena);
}

static uint64_t version_of(const char *list)
{
    uint64_t chain = 0;
    for (; *list != '\0'; list++) {
        chain = hash_chain(chain, slice_of(list, 1));
    }
    return chain;
}

static void test_it_comes_whole(void **state)
{
    (void)state;
    static const struct {
        const char *replies[PARTS_MAX], *list, *froms;
    } rows[] = {
        {{"abc 3 abc"}, "abc", "0 "},
        {{"abc 3 a", "abc 3 b", "abc 3 c"}, "abc", "0 1 2 "},
        {{"abcd 4 ab", "abcd 4 cd"}, "abcd", "0 2 "},
        /* Changed, and dropped and made again, in between. */
        {{"abc 3 a", "xy 2 y", "xy 2 xy"}, "xy", "0 1 0 "},
        {{"abc 3 ab", "_\r\n", "abc 3 abc"}, "abc", "0 2 0 "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pool_fetched f = {0};
        struct err err = {0};
        begin(rows[i].replies);
        assert_int_equal(pool_fetch(&there.of, slice_str("hot"), &f, &err), 1);
        size_t n = strlen(rows[i].list);
        assert_int_equal(f.n, n);
        assert_true(f.version == version_of(rows[i].list));
        assert_int_equal(f.items.len, 2 * n);
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(f.items.data[2 * k + 1], rows[i].list[k]);
        }
        assert_string_equal(there.froms, rows[i].froms);
        assert_int_equal(there.charged, 2 * n);
        pool_fetch_free(&there.of, &f);
        assert_int_equal(there.charged, 0);
        end();
    }
}

static void test_it_need_not_come(void **state)
{
    (void)state;
    struct pool_fetched f = {0};
    struct err err = {0};
    begin((const char *const[PARTS_MAX]){"abc 3 a"});
    there.here = version_of("abc");
    assert_int_equal(pool_fetch(&there.of, slice_str("hot"), &f, &err), 1);
    assert_int_equal(f.items.len, 0);
    end();
    begin((const char *const[PARTS_MAX]){"_\r\n"});
    assert_int_equal(pool_fetch(&there.of, slice_str("hot"), &f, &err), 0);
    assert_int_equal(f.items.len, 0);
    pool_fetch_free(&there.of, &f);
    end();
}

#define ELSE "there answers REPLICA POOL with something else"

static void test_lies(void **state)
{
    (void)state;
    static const struct {
        const char *replies[PARTS_MAX];
        int code;
        const char *says;
    } rows[] = {
        /* Not what a part is. */
        {{"*0\r\n"}, ERR_INVALID, ELSE},
        {{":3\r\n"}, ERR_INVALID, ELSE},
        {{"$3\r\nabc\r\n"}, ERR_INVALID, ELSE},
        {{"*2\r\n$16\r\n0123456789abcdef\r\n:1\r\n"}, ERR_INVALID, ELSE},
        {{"*3\r\n:1\r\n:1\r\n$2\r\n\1a\r\n"}, ERR_INVALID, ELSE},
        {{"*3\r\n$16\r\n0123456789abcdeg\r\n:1\r\n$2\r\n\1a\r\n"}, ERR_INVALID, ELSE},
        {{"*3\r\n$15\r\n0123456789abcde\r\n:1\r\n$2\r\n\1a\r\n"}, ERR_INVALID, ELSE},
        {{"*3\r\n$16\r\n0123456789abcdef\r\n$1\r\nx\r\n$2\r\n\1a\r\n"}, ERR_INVALID, ELSE},
        {{"*3\r\n$16\r\n0123456789abcdef\r\n:1\r\n*0\r\n"}, ERR_INVALID, ELSE},
        {{"*3\r\n$16\r\n0123456789abcdef\r\n:1\r\n_\r\n"}, ERR_INVALID, ELSE},
        /* A size that none can have, or that isn't that of what comes. */
        {{"abc 0 abc"}, ERR_INVALID, ELSE},
        {{"abc -1 abc"}, ERR_INVALID, ELSE},
        {{"abc 1000001 abc"}, ERR_INVALID, ELSE},
        {{"abc 2 abc"}, ERR_INVALID, ELSE},
        {{"abc 3 ab", "abc 3 cc"}, ERR_INVALID, ELSE},
        {{"abc 3 a", "abc 2 b"}, ERR_INVALID, ELSE},
        {{"abc 2 a", "abc 3 b", "abc 3 c"}, ERR_INVALID, ELSE},
        /* Items that are none; nothing, though more is to come. */
        {{"abc 3 _bc"}, ERR_INVALID, ELSE},
        {{"abc 3 ab!"}, ERR_INVALID, ELSE},
        {{"abc 3 "}, ERR_INVALID, ELSE},
        {{"abc 3 ab", "abc 3 "}, ERR_INVALID, ELSE},
        /* Another list than the version says. */
        {{"abc 3 abx"}, ERR_INVALID, "there answers REPLICA POOL with another list than its version says"},
        {{"abc 3 acb"}, ERR_INVALID, "there answers REPLICA POOL with another list than its version says"},
        {{"abc 3 ab", "abc 3 b"}, ERR_INVALID, "there answers REPLICA POOL with another list than its version says"},
        /* Cut off. */
        {{""}, ERR_CLOSED, "the connection was lost"},
        {{"abc 3 a", ""}, ERR_CLOSED, "the connection was lost"},
        {{"abc 3 a", "*3\r\n$16\r\n0123456789abcdef\r\n:3\r\n$40\r\n\1b"}, ERR_CLOSED, "the connection was lost"},
        {{"abc 3 a", "xyz 3 x", "xyz 3 x", "*3\r\n$16\r\n"}, ERR_CLOSED, "the connection was lost"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pool_fetched f = {0};
        struct err err = {0};
        begin(rows[i].replies);
        int rc = pool_fetch(&there.of, slice_str("hot"), &f, &err);
        if (rc != rows[i].code || strcmp(err.text, rows[i].says) != 0) {
            fail_msg("row %zu: %d, %s", i, rc, err.text);
        }
        assert_true(there.most < 100);
        pool_fetch_free(&there.of, &f);
        assert_int_equal(there.charged, 0);
        end();
    }
}

/* One that is never the same twice is given up, whatever way it changes. */
static void test_no_end_of_changes(void **state)
{
    (void)state;
    static const char *const endless[][PARTS_MAX] = {{"abc 3 a", "xyz 3 y"}, {"abc 3 a", "_\r\n"}};
    for (size_t i = 0; i < 2; i++) {
        struct pool_fetched f = {0};
        struct err err = {0};
        begin(endless[i]);
        there.goes_on = true;
        assert_int_equal(pool_fetch(&there.of, slice_str("hot"), &f, &err), ERR_BUSY);
        assert_string_equal(err.text, "the pool \"hot\" of there changed 100 times while it was fetched");
        assert_int_equal(there.asked, 200);
        pool_fetch_free(&there.of, &f);
        end();

        begin(endless[i]);
        there.goes_on = true;
        there.stop_after = 7;
        assert_int_equal(pool_fetch(&there.of, slice_str("hot"), &f, &err), ERR_BUSY);
        assert_string_equal(err.text, "stopped while a pool was fetched");
        assert_int_equal(there.asked, 8);
        pool_fetch_free(&there.of, &f);
        assert_int_equal(there.charged, 0);
        end();
    }
}

static void test_without_memory(void **state)
{
    (void)state;
    bool failed = true;
    for (int n = 1; failed; n++) {
        struct pool_fetched f = {0};
        struct err err = {0};
        begin((const char *const[PARTS_MAX]){"abc 3 a", "abc 3 bc"});
        buf_reserve(&there.text, 512);
        alloc_fail_at(n);
        int rc = pool_fetch(&there.of, slice_str("hot"), &f, &err);
        failed = alloc_failed;
        alloc_fail_after(-1);
        assert_int_equal(rc, failed ? ERR_NOMEM : 1);
        pool_fetch_free(&there.of, &f);
        assert_int_equal(there.charged, 0);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_comes_whole),    cmocka_unit_test(test_it_need_not_come), cmocka_unit_test(test_lies),
        cmocka_unit_test(test_no_end_of_changes), cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
