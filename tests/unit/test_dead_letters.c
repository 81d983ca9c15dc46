/* Dead letters: what is written can be read, counts hold over a start, a crash leaves no half line, a full disk nothing
 * of the group, and an import may seal the file while the service writes. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/text.h"
#include "kafka/dead_letters.h"

static char folder[64];
static struct arena arena;

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/unseen-dead-letters-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static const char *file(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static struct buf content(const char *name)
{
    struct buf all = {0};
    char piece[4096];
    FILE *in = fopen(file(name), "r");
    assert_non_null(in);
    for (size_t n; (n = fread(piece, 1, sizeof piece, in)) > 0;) {
        buf_add(&all, piece, n);
    }
    fclose(in);
    buf_add(&all, "", 1);
    return all;
}

static void put(const char *name, const char *text)
{
    FILE *out = fopen(file(name), "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static struct dead_letters *must_open(void)
{
    struct dead_letters *d = NULL;
    struct err err = {0};
    if (dead_letters_open(folder, &d, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return d;
}

static struct dead_letter letter_of(int64_t offset, struct slice value)
{
    return (struct dead_letter){.topic = slice_str("plays"),
                                .partition = 3,
                                .offset = offset,
                                .at_ms = 1700000000000,
                                .reason = slice_str("user is missing"),
                                .value = value};
}

static void add(struct dead_letters *d, int64_t offset)
{
    struct err err = {0};
    const struct dead_letter letter = letter_of(offset, slice_str("{}"));
    if (dead_letters_add(d, &letter, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static void holds(struct dead_letters *d, uint64_t letters)
{
    uint64_t n, bytes;
    dead_letters_look(d, &n, &bytes);
    assert_int_equal(n, letters);
    assert_int_equal(bytes > 0, letters > 0);
}

static void test_a_letter(void **state)
{
    (void)state;
    struct dead_letters *d = must_open();
    struct err err = {0};
    static const char bytes[] = "\0\xff{\"a\":\n}";
    const struct dead_letter letter = {.topic = slice_str("t\"\x01\xff\xc3\xbc"),
                                       .partition = INT32_MAX,
                                       .offset = INT64_MAX,
                                       .reason = slice_str("\\ said"),
                                       .key = {"", 0},
                                       .value = {bytes, sizeof bytes - 1}};
    holds(d, 0);
    assert_int_equal(access(file("dead-letters.jsonl"), F_OK), -1);
    assert_int_equal(dead_letters_sync(d, &err), 0);
    assert_int_equal(dead_letters_add(d, &letter, &err), 0);
    assert_int_equal(dead_letters_sync(d, &err), 0);
    holds(d, 1);
    struct stat st;
    assert_int_equal(stat(file("dead-letters.jsonl"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);

    struct buf all = content("dead-letters.jsonl");
    struct dead_letter back;
    assert_string_equal(all.data, "{\"topic\":\"t\\\"\\u0001?\xc3\xbc\",\"partition\":2147483647,"
                                  "\"offset\":9223372036854775807,\"unix_ms\":0,\"reason\":\"\\\\ said\",\"key\":\"\","
                                  "\"value\":\"AP97ImEiOgp9\"}\n");
    assert_int_equal(dead_letter_read(slice_str(all.data), &arena, &back, &err), 0);
    assert_true(slice_eq(back.value, letter.value));
    assert_true(back.key.data != NULL && back.key.len == 0);
    assert_int_equal(back.offset, INT64_MAX);
    assert_int_equal(back.partition, INT32_MAX);
    assert_true(slice_eq(back.topic, slice_str("t\"\x01?\xc3\xbc")));
    arena_reset(&arena);
    buf_free(&all);
    dead_letters_close(d);
    d = must_open();
    holds(d, 1);
    dead_letters_close(d);
}

static void test_what_is_not_synced(void **state)
{
    (void)state;
    struct err err = {0};
    struct dead_letters *d = must_open();
    add(d, 1);
    assert_int_equal(dead_letters_sync(d, &err), 0);
    add(d, 2);
    dead_letters_close(d); /* its offset did not move, so it comes again */
    d = must_open();
    holds(d, 1);
    dead_letters_close(d);
}

static void test_torn_lines(void **state)
{
    (void)state;
    static const struct {
        const char *found, *wanted;
        int n;
    } cases[] = {
        {"{\"offset\":1}\n{\"offs", "{\"offset\":1}\n", 2},
        {"{\"offs", "", 1},
        {"{\"offset\":1}", "{\"offset\":1}\n", 2},
        {"\n\n", "\n\n", 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        put("dead-letters.jsonl", cases[i].found);
        struct dead_letters *d = must_open();
        add(d, 7);
        assert_int_equal(dead_letters_sync(d, &err), 0);
        struct buf all = content("dead-letters.jsonl");
        assert_memory_equal(all.data, cases[i].wanted, strlen(cases[i].wanted));
        assert_memory_equal(all.data + strlen(cases[i].wanted), "{\"topic\"", 8);
        buf_free(&all);
        holds(d, (uint64_t)cases[i].n);
        dead_letters_close(d);
    }
}

static void test_a_full_disk(void **state)
{
    (void)state;
    struct err err = {0};
    struct rlimit all, few = {0};
    struct dead_letters *d = must_open();
    add(d, 1);
    assert_int_equal(dead_letters_sync(d, &err), 0);
    struct buf before = content("dead-letters.jsonl");
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    few = (struct rlimit){before.len - 1 + 300, all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    add(d, 2);
    add(d, 3);
    const struct dead_letter letter = letter_of(4, slice_str("{}"));
    int code = dead_letters_add(d, &letter, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    assert_int_equal(code, ERR_IO);
    assert_non_null(strstr(err.text, "can't write dead-letters.jsonl: File too large"));
    struct buf after = content("dead-letters.jsonl");
    assert_string_equal(after.data, before.data);
    holds(d, 1);
    add(d, 2);
    assert_int_equal(dead_letters_sync(d, &err), 0);
    holds(d, 2);
    add(d, 3);
    dead_letters_undo(d);
    holds(d, 2);
    assert_int_equal(dead_letters_seal(folder, &err), 0); /* would wait for the lock */
    buf_free(&before);
    buf_free(&after);
    dead_letters_close(d);
}

/* Beyond the bound none is taken, until somebody has made room: that is found without a word. What came before in the
 * same group stays. */
static void test_a_bound(void **state)
{
    (void)state;
    struct err err = {0};
    struct dead_letters *d = must_open();
    const struct dead_letter letter = letter_of(4, slice_str("{}"));
    dead_letters_bound(d, 1); /* one may always stand there */
    add(d, 1);
    assert_int_equal(dead_letters_add(d, &letter, &err), ERR_BUSY);
    assert_int_equal(dead_letters_sync(d, &err), 0);
    holds(d, 1);
    struct buf before = content("dead-letters.jsonl");
    assert_int_equal(dead_letters_seal(folder, &err), 0);
    dead_letters_bound(d, 3 * before.len);
    add(d, 2);
    add(d, 3);
    assert_int_equal(dead_letters_add(d, &letter, &err), ERR_BUSY);
    assert_non_null(strstr(err.text, "dead_letters_max"));
    assert_int_equal(dead_letters_sync(d, &err), 0);
    holds(d, 3);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(dead_letters_add(d, &letter, &err), ERR_BUSY);
        holds(d, 3);
    }
    assert_int_equal(dead_letters_seal(folder, &err), 0); /* would wait for the lock */
    char path[PATH_MAX], to[PATH_MAX];
    uint64_t number;
    assert_int_equal(dead_letters_next(folder, 0, &number, path, &err), 1);
    snprintf(to, sizeof to, "%s/elsewhere", folder);
    assert_int_equal(rename(path, to), 0);
    add(d, 5);
    assert_int_equal(dead_letters_sync(d, &err), 0);
    holds(d, 3);
    dead_letters_bound(d, 4 * before.len);
    add(d, 6);
    dead_letters_bound(d, 0);
    add(d, 7);
    assert_int_equal(dead_letters_sync(d, &err), 0);
    holds(d, 5);
    buf_free(&before);
    dead_letters_close(d);
}

static void test_sealed_while_it_grows(void **state)
{
    (void)state;
    struct err err = {0};
    char path[PATH_MAX];
    uint64_t number;
    assert_int_equal(dead_letters_seal(folder, &err), 0); /* nothing there */
    assert_int_equal(dead_letters_next(folder, 0, &number, path, &err), 0);
    struct dead_letters *d = must_open();
    for (int turn = 1; turn <= 3; turn++) {
        add(d, turn);
        add(d, turn);
        assert_int_equal(dead_letters_sync(d, &err), 0);
        holds(d, (uint64_t)turn * 2);
        assert_int_equal(dead_letters_seal(folder, &err), 0);
        assert_int_equal(access(file("dead-letters.jsonl"), F_OK), -1);
        assert_int_equal(dead_letters_next(folder, (uint64_t)turn - 1, &number, path, &err), 1);
        assert_int_equal(number, turn);
        assert_non_null(strstr(path, ".2.jsonl"));
    }
    assert_int_equal(dead_letters_next(folder, 3, &number, path, &err), 0);
    holds(d, 6);
    assert_int_equal(unlink(file("dead-letters.2.2.jsonl")), 0);
    add(d, 9);
    assert_int_equal(dead_letters_sync(d, &err), 0);
    holds(d, 5);
    dead_letters_close(d);
    d = must_open();
    holds(d, 5);
    dead_letters_close(d);
}

/* A new file may get the number of the one that was taken away: of this file system it does, mostly. */
static void test_taken_away_while_it_grows(void **state)
{
    (void)state;
    struct dead_letters *d = must_open();
    for (int i = 0; i < 10; i++) {
        add(d, i);
        assert_int_equal(dead_letters_sync(d, NULL), 0);
        assert_int_equal(unlink(file(DEAD_LETTERS_FILE)), 0);
    }
    add(d, 10);
    assert_int_equal(dead_letters_sync(d, NULL), 0);
    holds(d, 1);
    dead_letters_close(d);
}

static void test_rotation(void **state)
{
    (void)state;
    struct err err = {0};
    struct dead_letters *d = must_open();
    size_t size = 30 << 20;
    char *large = calloc(1, size);
    assert_non_null(large);
    const struct dead_letter letter = letter_of(1, slice_of(large, size));
    for (int i = 0; i < 3; i++) { /* 40 MiB each */
        assert_int_equal(dead_letters_add(d, &letter, &err), 0);
        assert_int_equal(dead_letters_sync(d, &err), 0);
    }
    assert_int_equal(access(file("dead-letters.1.2.jsonl"), F_OK), 0);
    holds(d, 3);
    free(large);
    dead_letters_close(d);
}

static void test_bad_lines(void **state)
{
    (void)state;
#define GOOD "\"topic\":\"t\",\"partition\":1,\"offset\":2"
    static const struct {
        const char *line, *why; /* NULL: good */
    } cases[] = {
        {"{" GOOD "}", NULL},
        {" {" GOOD ",\"key\":null,\"value\":\"\",\"more\":[1]} ", NULL},
        {"{" GOOD ",\"value\":\"YQ==\"}", NULL},
        {"", "expected \"{\" at byte 1"},
        {"{" GOOD, "expected \",\" or \"}\""},
        {"{" GOOD "}x", "text after the object"},
        {"{" GOOD ",\"offset\":2}", "offset is given twice"},
        {"{\"offset\":2}", "partition is missing"},
        {"{\"partition\":\"2\"}", "partition is no number"},
        {"{\"topic\":2}", "topic is no string"},
        {"{\"partition\":1,\"offset\":2.5}", "offset is no whole number"},
        {"{\"partition\":4294967296,\"offset\":2}", "partition is out of range"},
        {"{\"partition\":1,\"offset\":99999999999999999999}", "offset is no whole number"},
        {"{" GOOD ",\"value\":\"YQ=\"}", "value is not in base64"},
        {"{" GOOD ",\"value\":\"YR==\"}", "value is not in base64"},
        {"{" GOOD ",\"value\":\"YQ==YQ==\"}", "value is not in base64"},
        {"{" GOOD ",\"value\":\"Y===\"}", "value is not in base64"},
        {"{" GOOD ",\"value\":\"YWE \"}", "value is not in base64"},
        {"{" GOOD ",\"value\":7}", "value is no string"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dead_letter letter;
        struct err err = {0};
        int code = dead_letter_read(slice_str(cases[i].line), &arena, &letter, &err);
        if ((code == 0) != (cases[i].why == NULL) || (code < 0 && strstr(err.text, cases[i].why) == NULL)) {
            fail_msg("%s: %d, %s", cases[i].line, code, err.text);
        }
        arena_reset(&arena);
    }
}

static void test_base64(void **state)
{
    (void)state;
    char bytes[64], out[64];
    for (size_t n = 0; n < sizeof bytes; n++) {
        struct buf text = {0};
        size_t len;
        for (size_t i = 0; i < n; i++) {
            bytes[i] = (char)(i * 37 + n);
        }
        base64_add(&text, slice_of(bytes, n));
        assert_true(base64_read(buf_slice(&text), out, &len));
        assert_int_equal(len, n);
        assert_memory_equal(out, bytes, n);
        buf_free(&text);
    }
}

static void test_mended_by_hand(void **state)
{
    (void)state;
    struct dead_letter letter;
    struct err err = {0};
    const char line[] = "{\"partition\":1,\"offset\":2,\"text\":\"{\\\"a\\\":1}\",\"value\":\"YQ==\"}";
    assert_int_equal(dead_letter_read(slice_str(line), &arena, &letter, &err), 0);
    assert_true(slice_eq(letter.value, slice_str("{\"a\":1}")));
    arena_reset(&arena);
}

#define test(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(test_a_letter),
        test(test_what_is_not_synced),
        test(test_torn_lines),
        test(test_a_full_disk),
        test(test_a_bound),
        test(test_sealed_while_it_grows),
        test(test_rotation),
        test(test_bad_lines),
        test(test_base64),
        test(test_mended_by_hand),
        test(test_taken_away_while_it_grows),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(&arena);
    return failed;
}
