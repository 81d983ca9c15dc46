#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/backoff.h"
#include "base/buf.h"
#include "base/calendar.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/glob.h"
#include "base/hash.h"
#include "base/heartbeat.h"
#include "base/hide.h"
#include "base/log.h"
#include "base/unix_time.h"
#include "base/varint.h"
#include "tests/lib/alloc.h"
#include "tests/lib/random.h"

static void test_no_memory(void **state)
{
    (void)state;
    struct buf b = {0};
    struct arena a = {0};
    assert_int_equal(buf_add(&b, "kept", 4), 0);
    char *piece = arena_copy(&a, "kept", 5);
    assert_non_null(piece);
    size_t bytes = a.bytes;

    alloc_fail_after(0);
    int added = buf_add(&b, piece, 5), grown = buf_reserve(&b, 1000), printed = buf_addf(&b, "%1000d", 1);
    void *small = arena_alloc(&a, 8), *large = arena_alloc(&a, 1 << 20);
    struct arena empty = {0};
    void *first = arena_alloc(&empty, 1);
    alloc_fail_after(-1);

    assert_int_equal(added, 0); /* there was room */
    assert_int_equal(grown, ERR_NOMEM);
    assert_int_equal(printed, ERR_NOMEM);
    assert_true(b.failed);
    assert_int_equal(b.len, 9);
    assert_memory_equal(b.data, "keptkept", 9);
    assert_non_null(small);
    assert_null(large);
    assert_null(first);
    assert_int_equal(a.bytes, bytes);
    assert_string_equal(piece, "kept");
    assert_non_null(arena_alloc(&a, 1 << 20));
    buf_free(&b);
    arena_free(&a);
}

static void test_err(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(err_set(&err, ERR_RANGE, "slots is %d", 99), ERR_RANGE);
    assert_int_equal(err.code, ERR_RANGE);
    assert_string_equal(err.text, "slots is 99");
    assert_int_equal(err_prefix(&err, "%s:%d", "a.conf", 7), ERR_RANGE);
    assert_string_equal(err.text, "a.conf:7: slots is 99");
    err_set(&err, ERR_IO, "again: %s", err.text);
    assert_string_equal(err.text, "again: a.conf:7: slots is 99");
    assert_int_equal(err_set(NULL, ERR_FULL, "nobody reads this"), ERR_FULL);

    char longest[1000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    err_set(&err, ERR_IO, "%s", longest);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    err_prefix(&err, "%s", longest);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_string_equal(err.text + sizeof err.text - 3, ": ");
}

/* Others' words are shown on terminals and in lines of INFO, and must do nothing there. */
static void test_what_is_shown_does_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shown;
        bool control;
    } cases[] = {
        {"plain \xe2\x82\xac", "plain \xe2\x82\xac", false},
        {"h:1\r\nrole:master", "h:1\\x0d\\x0arole:master", true},
        {"\x1b]0;owned\x07\x1b[2J", "\\x1b]0;owned\\x07\\x1b[2J", true},
        {"a\x7f", "a\\x7f", true},
        {"\xc2\x9b[2J", "\\xc2\\x9b[2J", true},
        {"\xc2\xa0", "\xc2\xa0", false},
        {"\x9b", "\\x9b", false}, /* no UTF-8, so no control there */
        {"back\\slash", "back\\slash", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[64];
        struct err err = {0};
        assert_string_equal(slice_show(slice_str(cases[i].text), out, sizeof out), cases[i].shown);
        assert_int_equal(slice_has_control(slice_str(cases[i].text)), cases[i].control);
        err_set(&err, ERR_INVALID, "it says: %s", cases[i].text);
        assert_false(slice_has_control(slice_str(err.text)));
        err_prefix(&err, "%s", cases[i].text);
        assert_false(slice_has_control(slice_str(err.text)));
    }
    char out[8]; /* cut between characters, and between the bytes of one that is escaped never */
    assert_string_equal(slice_show(slice_str("abc\x1b[2J"), out, sizeof out), "abc\\x1b");
    assert_string_equal(slice_show(slice_str("abcd\x1b[2J"), out, sizeof out), "abcd");
    assert_string_equal(slice_show(slice_str("abcdef\xe2\x82\xac"), out, sizeof out), "abcdef");
    assert_string_equal(slice_show(slice_of("a\0b", 3), out, sizeof out), "a\\x00b");
    assert_string_equal(slice_show(slice_str("a"), out, 1), "");

    struct err err = {0};
    char longest[2 * sizeof err.text];
    memset(longest, '\x1b', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    err_set(&err, ERR_IO, "%s", longest);
    assert_in_range(strlen(err.text), sizeof err.text - 5, sizeof err.text - 1);
}

static void test_err_names_differ(void **state)
{
    (void)state;
    for (int a = 0; a >= ERR_CONFLICT; a--) {
        assert_string_not_equal(err_name(a), "unknown");
        for (int b = 0; b > a; b--) {
            assert_string_not_equal(err_name(a), err_name(b));
        }
    }
    assert_string_equal(err_name(0), "ok");
    assert_string_equal(err_name(ERR_FULL), "full");
    assert_string_equal(err_name(ERR_CONFLICT - 1), "unknown");
}

static void test_buf(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_int_equal(buf_add(&b, NULL, 0), 0);
    char want[10000];
    for (size_t i = 0; i < sizeof want; i++) {
        want[i] = (char)i;
        assert_int_equal(buf_add(&b, &want[i], 1), 0);
    }
    assert_int_equal(b.len, sizeof want);
    assert_memory_equal(b.data, want, sizeof want);

    assert_int_equal(buf_reserve(&b, SIZE_MAX), ERR_NOMEM);
    assert_true(b.failed);
    assert_int_equal(b.len, sizeof want);
    assert_memory_equal(b.data, want, sizeof want);

    buf_shrink(&b, 100);
    assert_true(b.cap >= sizeof want); /* it isn't empty */
    char *data = b.data;
    buf_clear(&b);
    assert_false(b.failed);
    assert_int_equal(b.len, 0);
    assert_ptr_equal(b.data, data);
    buf_shrink(&b, 100);
    assert_int_equal(b.cap, 100);
    assert_int_equal(buf_addf(&b, "%s=%d", "slot", 3), 0);
    assert_int_equal(buf_addf(&b, "%200d", 5), 0);
    assert_int_equal(b.len, 206);
    assert_memory_equal(b.data, "slot=3", 6);
    assert_true(slice_eq(slice_of("slot=3", 6), slice_of(buf_slice(&b).data, 6)));
    buf_clear(&b);
    buf_shrink(&b, 0);
    assert_null(b.data);
    buf_free(&b);
    buf_free(&b);
}

static void test_arena_limit(void **state)
{
    (void)state;
    struct arena a = {.limit = 200 * 1024};
    assert_non_null(arena_alloc(&a, 100 * 1024));
    assert_null(arena_alloc(&a, 100 * 1024));
    assert_true(a.refused && a.bytes <= a.limit);
    assert_null(arena_alloc(&a, SIZE_MAX / 2));
    assert_true(a.bytes <= a.limit);
    arena_reset(&a);
    assert_false(a.refused);
    assert_non_null(arena_alloc(&a, 90 * 1024));
    a.limit = 0;
    assert_non_null(arena_alloc(&a, 1024 * 1024));
    arena_free(&a);
}

static void test_arena_rewind(void **state)
{
    (void)state;
    struct arena a = {0};
    struct arena_mark empty = arena_mark(&a);
    char *kept = arena_copy(&a, "kept", 4);
    char *giant = arena_alloc(&a, 300000);
    memset(giant, 'g', 300000);
    struct arena_mark mark = arena_mark(&a);
    size_t bytes = a.bytes;
    for (int round = 0; round < 3; round++) {
        char *first = arena_alloc(&a, 16);
        assert_non_null(arena_alloc(&a, 400000));
        for (int i = 0; i < 100; i++) {
            assert_non_null(arena_alloc(&a, 5000));
        }
        assert_true(a.bytes > bytes + 900000);
        arena_rewind(&a, mark);
        assert_int_equal(a.bytes, bytes);
        assert_ptr_equal(arena_alloc(&a, 16), first);
        arena_rewind(&a, mark);
    }
    assert_true(a.most > bytes + 900000);
    assert_memory_equal(kept, "kept", 4);
    assert_int_equal(giant[299999], 'g');
    arena_rewind(&a, empty);
    assert_null(a.block);
    assert_int_equal(a.bytes, 0);
}

static void test_arena(void **state)
{
    (void)state;
    enum { PIECES = 3000 };
    struct arena a = {0};
    char **pieces = calloc(PIECES, sizeof *pieces);
    assert_non_null(pieces);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < PIECES; i++) {
            size_t size = i % 500 == 499 ? 300000 : i % 97;
            pieces[i] = arena_alloc(&a, size);
            assert_non_null(pieces[i]);
            assert_int_equal((uintptr_t)pieces[i] % 8, 0);
            memset(pieces[i], (int)i & 0xff, size);
        }
        for (size_t i = 0; i < PIECES; i++) {
            size_t size = i % 500 == 499 ? 300000 : i % 97;
            for (size_t k = 0; k < size; k++) {
                assert_int_equal((unsigned char)pieces[i][k], i & 0xff);
            }
        }
        assert_true(a.bytes > 6 * 300000);
        arena_reset(&a);
        assert_true(a.bytes >= 300000 && a.bytes < 1100000);
    }
    free(pieces);

    assert_non_null(arena_alloc(&a, 5 << 20));
    arena_reset(&a);
    assert_true(a.bytes < 1100000); /* a giant isn't kept */
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 16));
    assert_string_equal(arena_copy(&a, "abc", 4), "abc");
    assert_non_null(arena_copy(&a, NULL, 0));
    arena_free(&a);
    assert_int_equal(a.bytes, 0);
    arena_free(&a);

    struct arena fixed = {.block_size = 128};
    for (int i = 0; i < 10; i++) {
        assert_non_null(arena_alloc(&fixed, 100));
    }
    assert_true(fixed.bytes < 10 * 200);
    arena_free(&fixed);

    struct arena giant = {.block_size = 2 << 20};
    assert_non_null(arena_alloc(&giant, 1));
    arena_reset(&giant);
    assert_int_equal(giant.bytes, 0);
    assert_non_null(arena_alloc(&giant, 1));
    arena_free(&giant);
}

static void test_varint(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit <= 64; bit++) {
        for (int64_t around = -1; around <= 1; around++) {
            uint64_t want = (bit == 64 ? 0 : UINT64_C(1) << bit) + (uint64_t)around;
            uint8_t bytes[VARINT_MAX + 1];
            size_t n = varint_put(bytes, want);
            assert_in_range(n, 1, VARINT_MAX);
            uint64_t got = ~want;
            assert_int_equal(varint_get(bytes, bytes + n, &got), n);
            assert_true(got == want);
            bytes[n] = 0;
            assert_int_equal(varint_get(bytes, bytes + n + 1, &got), n);
            for (size_t cut = 0; cut < n; cut++) {
                assert_int_equal(varint_get(bytes, bytes + cut, &got), 0);
            }
        }
    }
}

static void test_varint_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
    } bad[] = {
        {"\x80\x00", 2},                                  /* 0 in two bytes */
        {"\xff\x80\x00", 3},                              /* 127 in three */
        {"\x80", 1},                                      /* cut off */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10}, /* 65 bits */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x81\x00", 11} /* eleven bytes */,
        {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 10}, /* 0 in ten */
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t v = 77;
        const uint8_t *at = (const uint8_t *)bad[i].bytes;
        assert_int_equal(varint_get(at, at + bad[i].len, &v), 0);
        assert_int_equal(v, 77);
    }
}

/* Stored files depend on these: a change of any of them is a change of the format. */
static void test_hash(void **state)
{
    (void)state;
    assert_true(hash_id(0, slice_str("")) == UINT64_C(0x2d06800538d394c2));
    assert_true(hash_checksum("", 0) == UINT64_C(0x2d06800538d394c2));
    assert_true(hash_id(1, slice_str("u42")) == UINT64_C(0xd57efb54ba5733f3));
    assert_true(hash_id(1, slice_of("a\0b", 3)) == UINT64_C(0x8ebed4bebe43fbe0));
    assert_true(hash_checksum("a\0b", 3) == UINT64_C(0xd5a06cd078125351));
    assert_true((uint64_t)hash_user_key(1, slice_str("u42")) == hash_id(1, slice_str("u42")));
    assert_int_equal(hash_seed_fingerprint(1), 0xdc8e3e29);
    assert_int_not_equal(hash_seed_fingerprint(2), hash_seed_fingerprint(1));
}

/* What docs/clients.md tells clients to make: each length of id goes another way through XXH3. */
static void test_hash_vectors(void **state)
{
    (void)state;
    static const struct {
        const char *id;
        uint64_t hash;
    } vectors[] = {
        {"a", UINT64_C(0xfcf369f9e7541d1b)},
        {"dQw4w9WgXcQ", UINT64_C(0x3683d8c54409f0ec)},
        {"video:2945340", UINT64_C(0x4ed1d3d4a1dfa9df)},
        {"0123456789abcdef01234567", UINT64_C(0xb652a480f1463e6a)},
        {"video:2945340:with-a-longer-name-of-its-own", UINT64_C(0x75e97bc85ef72d8b)},
    };
    const uint64_t seed = UINT64_C(0x0123456789abcdef);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        assert_true(hash_id(seed, slice_str(vectors[i].id)) == vectors[i].hash);
    }
    char longest[HASH_ID_MAX];
    memset(longest, 'x', sizeof longest);
    assert_true(hash_id(seed, slice_of(longest, sizeof longest)) == UINT64_C(0x630d8d0982ff4532));
    assert_int_equal(hash_seed_fingerprint(seed), 0x07f90ff4);
}

static void test_fingerprint_read(void **state)
{
    (void)state;
    uint32_t out;
    assert_true(hash_fingerprint_read(slice_str("07f90ff4"), &out));
    assert_int_equal(out, 0x07f90ff4);
    assert_true(hash_fingerprint_read(slice_str("ffffffff"), &out));
    assert_int_equal(out, 0xffffffff);
    static const char *const bad[] = {"",         "7f90ff4",  "007f90ff4", "07F90FF4",
                                      "07f90ffg", "0x07f90f", "07f90ff ",  " 7f90ff4"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(hash_fingerprint_read(slice_str(bad[i]), &out));
    }
    assert_false(hash_fingerprint_read(slice_of("07f90ff\0", 8), &out));
}

/* Many at once as one by one, whatever lengths follow each other. */
static void test_hash_many(void **state)
{
    (void)state;
    enum { N = 4000 };
    static char bytes[HASH_ID_MAX + 64];
    static struct slice ids[N];
    static uint64_t hashes[N];
    uint64_t seed = 11;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (char)random_next(&seed);
    }
    size_t len = 1;
    for (size_t i = 0; i < N; i++) {
        len = i <= HASH_ID_MAX ? i : random_below(&seed, 3) > 0 ? len : 1 + random_below(&seed, HASH_ID_MAX);
        len = len == 0 ? 1 : len;
        ids[i] = slice_of(bytes + random_below(&seed, 64), len);
    }
    assert_int_equal(hash_ids(seed, ids, N, hashes), N);
    for (size_t i = 0; i < N; i++) {
        assert_true(hashes[i] == hash_id(seed, ids[i]));
    }
    ids[N - 1].len = HASH_ID_MAX + 1;
    assert_int_equal(hash_ids(seed, ids, N, hashes), N - 1);
    ids[700].len = 0;
    assert_int_equal(hash_ids(seed, ids, N, hashes), 700);
    assert_int_equal(hash_ids(seed, ids, 0, hashes), 0);
}

static void test_months(void **state)
{
    (void)state;
    char text[MONTH_TEXT];
    int september = month_make(2026, 9);
    assert_string_equal(month_name(september, text), "2026-09");
    assert_string_equal(month_suffix(september, text), "202609");
    assert_int_equal(month_of_ms(0), month_make(1970, 1));
    assert_int_equal(month_of_ms(-1), month_make(1969, 12));
    assert_int_equal(month_of_ms(INT64_C(1709251199999)), month_make(2024, 2)); /* 2024-02-29 23:59:59.999 */
    assert_int_equal(month_of_ms(INT64_C(1709251200000)), month_make(2024, 3));
    assert_true(month_start_ms(month_make(2024, 3)) == INT64_C(1709251200000));
    assert_int_equal(month_of_ms(INT64_C(4107542399999)), month_make(2100, 2)); /* 2100-02-28: no leap year */
    assert_int_equal(month_of_ms(INT64_C(4107542400000)), month_make(2100, 3));
    assert_int_equal(month_of_ms(INT64_MIN), 0);
    assert_int_equal(month_of_ms(INT64_MAX), month_make(9999, 12));
    assert_true(month_start_ms(INT32_MIN) < month_start_ms(-1));
    assert_true(month_start_ms(INT32_MAX) > month_start_ms(month_make(9999, 12)));
    month_name(INT32_MIN, text);
    month_name(INT32_MAX, text);
}

/* libc is the oracle. */
static void test_months_like_libc(void **state)
{
    (void)state;
    for (int month = 0; month <= month_make(9999, 12); month++) {
        struct tm tm = {.tm_year = month / 12 - 1900, .tm_mon = month % 12, .tm_mday = 1};
        int64_t start = (int64_t)timegm(&tm) * 1000;
        if (month_start_ms(month) != start || month_of_ms(start) != month ||
            month_of_ms(start - 1) != (month == 0 ? 0 : month - 1)) {
            fail_msg("month %d begins at %lld", month, (long long)month_start_ms(month));
        }
    }
    for (int64_t day = -719528; day < 200000; day++) {
        int64_t ms = day * 86400000 + (day * 7919 % 86400 + 86400) % 86400 * 1000 + 7;
        time_t seconds = (time_t)((ms - 7) / 1000);
        struct tm tm;
        gmtime_r(&seconds, &tm);
        char got[TIME_TEXT], want[64];
        snprintf(want, sizeof want, "%04d-%02d-%02dT%02d:%02d:%02d.007Z", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
                 tm.tm_hour, tm.tm_min, tm.tm_sec);
        time_text(ms, got);
        if (strcmp(got, want) != 0 || month_of_ms(ms) != month_make(tm.tm_year + 1900, tm.tm_mon + 1)) {
            fail_msg("%s is not %s", got, want);
        }
    }
}

static void test_time_text(void **state)
{
    (void)state;
    char text[TIME_TEXT];
    assert_string_equal(time_text(INT64_C(1795262400123), text), "2026-11-21T12:00:00.123Z");
    assert_string_equal(time_text(-1, text), "1969-12-31T23:59:59.999Z");
    assert_string_equal(time_text(INT64_C(951782400000), text), "2000-02-29T00:00:00.000Z");
    time_text(INT64_MIN, text);
    time_text(INT64_MAX, text);
}

/* Each unit has numbers of its own, and names those of the others. */
static void test_unix_time(void **state)
{
    (void)state;
    static const struct {
        int64_t first, last; /* of those that look like it, after 1973 */
        int64_t value, ms;
    } units[] = {
        [UNIX_S] = {1, INT64_C(99999999999), 1795255200, INT64_C(1795255200000)},
        [UNIX_MS] = {INT64_C(100000000000), INT64_C(99999999999999), INT64_C(1795255200123), INT64_C(1795255200123)},
        [UNIX_US] = {INT64_C(100000000000000), INT64_C(99999999999999999), INT64_C(1795255200123999),
                     INT64_C(1795255200123)},
        [UNIX_NS] = {INT64_C(100000000000000000), INT64_MAX, INT64_C(1795255200123999999), INT64_C(1795255200123)},
    };
    for (int i = UNIX_S; i <= UNIX_NS; i++) {
        for (int j = UNIX_S; j <= UNIX_NS; j++) {
            const char *other = i == j ? NULL : unix_unit_name((enum unix_unit)i);
            assert_ptr_equal(unix_time_looks_like(units[i].first, (enum unix_unit)j), other);
            assert_ptr_equal(unix_time_looks_like(units[i].last, (enum unix_unit)j), other);
            assert_null(unix_time_looks_like(-units[i].last, (enum unix_unit)j));
        }
        assert_true(unix_time_ms(units[i].value, (enum unix_unit)i, 0) == units[i].ms);
    }
    assert_null(unix_time_looks_like(0, UNIX_MS));
    assert_true(unix_time_ms(INT64_MAX, UNIX_S, 0) == INT64_MAX && unix_time_ms(INT64_MIN, UNIX_S, 0) == INT64_MIN);

    static const struct {
        const char *text;
        int64_t ms; /* as seconds; 0: no decimal */
    } decimals[] = {
        {"1795255200.25", INT64_C(1795255200250)},
        {"1795255200.1239", INT64_C(1795255200123)},
        {"-5.5", -5500},
        {"-0.001", -1},
        {"7", 7000},
        {"", 0},
        {"-", 0},
        {".5", 0},
        {"5.", 0},
        {"1.2.3", 0},
        {"1e3", 0},
        {"9223372036854775807", INT64_MAX},
        {"9223372036854775808", 0},
    };
    for (size_t i = 0; i < sizeof decimals / sizeof *decimals; i++) {
        int64_t whole;
        int thousandths;
        bool good = unix_time_decimal(slice_str(decimals[i].text), &whole, &thousandths);
        assert_int_equal(good, decimals[i].ms != 0);
        assert_true(!good || unix_time_ms(whole, UNIX_S, thousandths) == decimals[i].ms);
    }
}

static void test_month_parse(void **state)
{
    (void)state;
    assert_int_equal(month_parse("2026-09"), month_make(2026, 9));
    assert_int_equal(month_parse("202612"), month_make(2026, 12));
    assert_int_equal(month_parse("0000-01"), 0);
    static const char *const bad[] = {"",        "2",       "2026",     "2026-",   "2026-1",  "2026-13",
                                      "2026-00", "202600",  "2026-011", "2026/01", "-026-01", " 202601",
                                      "2026-1 ", "2026--1", "20 6-01",  "2026-0x", "20260101"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(month_parse(bad[i]), -1);
    }
}

/* Since local midnight, as far as no clock is changed. */
static int local_minutes(int64_t unix_ms)
{
    int64_t since = unix_ms - calendar_passed_ms(unix_ms, 0);
    return (int)(since / 60000);
}

/* From the first minute to the last that the window is open, on the days when the clocks change. */
static void test_clock_changes(void **state)
{
    static const struct {
        int from, to;    /* the window */
        int64_t opens;   /* hours and minutes in UTC, of 2026-03-29 */
        int spring;      /* its minutes */
        int64_t reopens; /* of 2026-10-25 */
        int autumn;
    } rows[] = {
        {60, 300, 0, 180, -60, 300},       /* 01:00-05:00 */
        {120, 180, 60, 60, 0, 120},        /* 02:00-03:00 is left out, or comes twice */
        {135, 165, 75, 30, 15, 30},        /* 02:15-02:45, the first one alone */
        {150, 210, 90, 60, 30, 120},       /* 02:30-03:30 */
        {180, 240, 60, 60, 120, 60},       /* 03:00-04:00 */
        {1320, 120, -180, 240, -240, 240}, /* 22:00-02:00 */
    };
    const int64_t minute = 60000, spring = INT64_C(1774742400000), autumn = INT64_C(1792886400000);
    (void)state;
    assert_int_equal(calendar_set_zone("CET-1CEST,M3.5.0,M10.5.0/3"), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t opens = spring + rows[i].opens * minute, again = autumn + rows[i].reopens * minute;
        for (int m = -60; m < 600; m++) {
            bool open = m >= 0 && m < rows[i].spring, reopen = m >= 0 && m < rows[i].autumn;
            if (calendar_is_between(opens + m * minute, rows[i].from, rows[i].to) != open ||
                calendar_is_between(again + m * minute, rows[i].from, rows[i].to) != reopen) {
                fail_msg("row %zu, minute %d", i, m);
            }
        }
    }
}

static void test_zone(void **state)
{
    (void)state;
    int64_t summer = INT64_C(1784635200000); /* 2026-07-21T12:00Z */
    int64_t winter = INT64_C(1795262400000); /* 2026-11-21T12:00Z */
    assert_int_equal(calendar_set_zone("UTC0"), 0);
    assert_int_equal(local_minutes(winter), 720);
    assert_int_equal(local_minutes(winter - 1), 719);
    assert_int_equal(local_minutes(-1), 1439);
    assert_int_equal(calendar_set_zone("CET-1CEST,M3.5.0,M10.5.0/3"), 0);
    assert_int_equal(local_minutes(winter), 13 * 60);
    assert_int_equal(local_minutes(summer), 14 * 60);
    assert_int_equal(calendar_set_zone("<+0330>-3:30"), 0);
    assert_int_equal(local_minutes(winter), 15 * 60 + 30);
    static const char *const bad[] = {"Europe/Berln",
                                      "XYZ",
                                      "../zoneinfo/UTC",
                                      "../../etc/passwd",
                                      "/etc/passwd",
                                      "Europe",
                                      "<+03>",
                                      "<+>3",
                                      "<+0330-3:30",
                                      "CET+",
                                      "CET-1 foo",
                                      "AB1",
                                      " "};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(calendar_set_zone(bad[i]), ERR_NOTFOUND);
    }
    assert_int_equal(local_minutes(winter), 15 * 60 + 30); /* a refused zone changes nothing */
    assert_int_equal(calendar_set_zone(NULL), 0);
    assert_true(calendar_passed_ms(INT64_MAX, 7) < INT64_MAX);
    assert_true(calendar_passed_ms(INT64_MIN, 7) < 0);
    assert_true(calendar_is_between(INT64_MAX, 0, 1440) && calendar_is_between(INT64_MIN, 0, 1440));
    if (access("/usr/share/zoneinfo/Asia/Kolkata", R_OK) == 0) {
        assert_int_equal(calendar_set_zone("Asia/Kolkata"), 0);
        assert_int_equal(local_minutes(winter), 17 * 60 + 30);
    }
}

static void hidden(const char *text, const char *expected)
{
    char bytes[512];
    hide_ids_copy(bytes, sizeof bytes, text);
    assert_string_equal(bytes, expected);
}

static void test_hidden_ids(void **state)
{
    (void)state;
    hidden("two users share one key user=\"a \\\"b key=x\" key=-7 of=\"user=x\" item=plain error=\"late\" user=\"cut",
           "two users share one key user=- key=- of=\"user=-\" item=- error=\"late\" user=-");
    hidden("key of user user= item=", "key of user user= item=");
    hidden("user \"a\\\\\": too many parts", "user -: too many parts");
    hidden("an item of user \"\" was", "an item of user - was");
    hidden("RADOS: object \"u.a\": a value, while reading user \"a\"",
           "RADOS: object -: a value, while reading user -");
    hidden("time is \"u42\", expected seconds", "time is -, expected seconds");
    hidden("the users \"a\", superuser \"a\", user_key \"a\", user a",
           "the users \"a\", superuser \"a\", user_key \"a\", user a");
    hidden("user \"cut o", "user -");
    const char *ids[] = {"u42", "a\"b", "a\\", "\\\"", "\" user=x error=\"", "\n\xff"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        char text[2000], expected[2000];
        snprintf(text, sizeof text, "user %s: bad", log_quote_str(ids[i]));
        hidden(text, "user -: bad");
        snprintf(text, sizeof text, "flush failed error=%s ms=1", log_quote_str(strdupa(text)));
        hidden(text, "flush failed error=\"user -: bad\" ms=1");
        snprintf(text, sizeof text, "x problem=%s", log_quote_str(strdupa(text)));
        snprintf(expected, sizeof expected, "x problem=%s", log_quote_str("flush failed error=\"user -: bad\" ms=1"));
        hidden(text, expected);
    }
}

static void test_quote(void **state)
{
    (void)state;
    assert_string_equal(log_quote_str("plain text"), "\"plain text\"");
    assert_string_equal(log_quote_str(""), "\"\"");
    assert_string_equal(log_quote_str(NULL), "\"\"");
    assert_string_equal(log_quote(slice_of("a\"\\\0\n\x7f\xff", 7)), "\"a\\\"\\\\\\u0000\\n\\u007f\\\\xff\"");
    char bytes[201];
    memset(bytes, 1, sizeof bytes);
    const char *exact = log_quote(slice_of(bytes, 200));
    const char *cut = log_quote(slice_of(bytes, 201));
    assert_int_equal(strlen(exact), 2 + 6 * 200);
    assert_int_equal(strlen(cut), 2 + 6 * 200 + 3);
    assert_string_equal(cut + 1 + 6 * 200, "...\"");

    const char *eight[8];
    char name[2] = "a";
    for (int i = 0; i < 8; i++) {
        name[0] = (char)('a' + i);
        eight[i] = log_quote_str(name);
    }
    for (int i = 0; i < 8; i++) {
        assert_int_equal(eight[i][1], 'a' + i);
    }
}

/* What a process that calls talk() writes to standard error, with $JOURNAL_STREAM right, wrong or unset. */
enum journal { JOURNAL_NONE, JOURNAL_OTHER, JOURNAL_OURS, JOURNAL_BESIDE, JOURNAL_STRANGE };
static void capture(void (*talk)(void), enum journal journal, char *out, size_t size)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct stat st;
        char stream[64] = "1:1";
        if (journal == JOURNAL_STRANGE) {
            strcpy(stream, "yes");
        } else if (journal != JOURNAL_OTHER && fstat(ends[1], &st) == 0) {
            snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)st.st_dev,
                     (unsigned long long)st.st_ino + (journal == JOURNAL_BESIDE));
        }
        if (journal == JOURNAL_NONE) {
            unsetenv("JOURNAL_STREAM");
        } else {
            setenv("JOURNAL_STREAM", stream, 1);
        }
        dup2(ends[1], STDERR_FILENO);
        clock_test_start(INT64_C(1795262400123));
        talk();
        _exit(0);
    }
    close(ends[1]);
    size_t len = 0;
    ssize_t n;
    while ((n = read(ends[0], out + len, size - 1 - len)) > 0) {
        len += (size_t)n;
    }
    out[len] = '\0';
    close(ends[0]);
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
}

static void talk_levels(void)
{
    log_info("flush done", "slot=%d user=%s", 2, log_quote_str("u 42"));
    log_error("no fields", "");
    log_debug("not shown", "x=%d", 1);
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("shown", "x=%s", "a\nb");
    log_set_level(LOG_LEVEL_ERROR);
    log_warn("not shown", "");
}

static void talk_long(void)
{
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    log_info("long", "text=%s", text);
    log_info(text, "text=%s", text);
}

/* Around the longest line that fits: "2026-11-21T12:00:00.123Z info m t=x", and room for ",\"cut\":true}". */
static void talk_around_limit(void)
{
    char text[LOG_LINE];
    memset(text, 'x', sizeof text);
    for (size_t n = LOG_LINE - 49; n <= LOG_LINE - 46; n++) {
        log_info("m", "t=%.*s", (int)n, text);
    }
}

/* The real time that must pass isn't waited for: only that one of many is let through. */
static void test_log_again(void **state)
{
    (void)state;
    struct log_limit limit = {0};
    struct log_limit other = {0};
    assert_true(log_again(&limit));
    assert_false(log_again(&limit));
    assert_true(log_again(&other));
    limit.quiet_until_us = 1; /* long ago */
    assert_true(log_again(&limit));
}

static void test_log_recent(void **state)
{
    (void)state;
    struct log_recent recent[LOG_RECENT + 1];
    clock_test_start(INT64_C(1795255200000));
    int to = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
    assert_true(to >= 0 && null >= 0 && dup2(null, STDERR_FILENO) >= 0);
    for (int i = 0; i < LOG_RECENT + 5; i++) {
        log_warn("something", "n=%d", i);
        log_info("not kept", "");
        clock_test_advance(1);
    }
    log_error("last", "");
    assert_true(dup2(to, STDERR_FILENO) >= 0);
    close(to);
    close(null);
    assert_int_equal(log_recent(recent, LOG_RECENT + 1), LOG_RECENT);
    assert_string_equal(recent[0].text, "last");
    assert_int_equal(recent[0].level, LOG_LEVEL_ERROR);
    assert_int_equal(recent[0].at_ms, INT64_C(1795255200000) + LOG_RECENT + 5);
    assert_string_equal(recent[1].text, "something n=36");
    assert_string_equal(recent[LOG_RECENT - 1].text, "something n=6");
    assert_int_equal(log_recent(recent, 2), 2);
}

static void test_log(void **state)
{
    (void)state;
    static const char plain[] = "2026-11-21T12:00:00.123Z info flush done slot=2 user=\"u 42\"\n"
                                "2026-11-21T12:00:00.123Z error no fields\n"
                                "2026-11-21T12:00:00.123Z debug shown x=a?b\n";
    char out[5 * LOG_LINE];
    capture(talk_levels, JOURNAL_NONE, out, sizeof out);
    assert_string_equal(out, plain);
    for (enum journal other = JOURNAL_OTHER; other <= JOURNAL_STRANGE; other++) {
        if (other != JOURNAL_OURS) {
            capture(talk_levels, other, out, sizeof out);
            assert_string_equal(out, plain);
        }
    }
    capture(talk_levels, JOURNAL_OURS, out, sizeof out);
    assert_string_equal(out, "<6>flush done slot=2 user=\"u 42\"\n<3>no fields\n<7>shown x=a?b\n");
    capture(talk_long, JOURNAL_NONE, out, sizeof out);
    const char *line = strchr(out, '\n') + 1;
    assert_memory_equal(out + 24, " info long cut=true\n2026", 24);
    assert_memory_equal(line + 24, " info xxx", 9);
    assert_string_equal(line + 24 + 6 + 320, " cut=true\n");

    capture(talk_around_limit, JOURNAL_NONE, out, sizeof out);
    line = out;
    for (size_t i = 0; i < 4; i++) {
        size_t len = strcspn(line, "\n");
        assert_int_equal(len, i < 2 ? LOG_LINE - 15 + i : strlen("2026-11-21T12:00:00.123Z info m cut=true"));
        assert_memory_equal(line + len - 3, i < 2 ? "xxx" : "rue", 3);
        line += len + 1;
    }
    assert_string_equal(line, "");
}

static void *advance(void *arg)
{
    (void)arg;
    for (int i = 0; i < 10000; i++) {
        clock_test_advance(1000);
    }
    return NULL;
}

static void test_clock(void **state)
{
    (void)state;
    int64_t wall, mono;
    assert_false(clock_is_test());
    clock_both_ms(&wall, &mono);
    assert_true(wall > month_start_ms(month_make(2020, 1)));
    assert_true(clock_mono_ms() >= mono);
    int64_t watch = clock_real_us();
    assert_true(clock_real_us() >= watch);

    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    clock_cond_wait_real(&cond, &mutex, 1); /* nobody signals: it must come back */
    clock_cond_wait_real(&cond, &mutex, -5);
    pthread_mutex_unlock(&mutex);

    clock_test_start(1000000);
    assert_true(clock_is_test());
    assert_int_equal(clock_wall_ms(), 1000000);
    mono = clock_mono_ms();
    clock_test_jump(-400000);
    assert_int_equal(clock_wall_ms(), 600000);
    assert_int_equal(clock_mono_ms(), mono);

    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, advance, NULL), 0);
    int64_t offset = 600000 - mono;
    do {
        clock_both_ms(&wall, &mono);
        assert_int_equal(wall - mono, offset);
    } while (wall < 600000 + 10000 * 1000);
    pthread_join(thread, NULL);
    assert_int_equal(clock_wall_ms(), 600000 + 10000 * 1000);
}

static void test_backoff(void **state)
{
    (void)state;
    static const int64_t delays[] = {100, 200, 400, 800, 1600, 2000, 2000, 2000};
    int64_t delay = 0;
    for (size_t i = 0; i < sizeof delays / sizeof *delays; i++) {
        delay = backoff_next(delay, 100, 2000);
        assert_int_equal(delay, delays[i]);
    }
    assert_int_equal(backoff_next(1000, 100, 2000), 2000);
    assert_int_equal(backoff_next(1000, 100, 2001), 2000);
    assert_int_equal(backoff_next(5000, 100, 2000), 2000); /* one that was longer once */
    assert_int_equal(backoff_next(INT64_MAX - 1, 1, INT64_MAX), INT64_MAX);
    assert_int_equal(backoff_next(0, 7, 7), 7);
}

static void *wake_first(void *arg)
{
    assert_true(heartbeat_stall("first", 0));
    return arg;
}

/* Beats are of real time, also under a test's clock. */
static void test_beat(void **state)
{
    (void)state;
    static struct heartbeat first, second;
    char name[HEARTBEAT_NAME];
    assert_int_equal(heartbeat_oldest_ms(name), 0);
    assert_string_equal(name, "");
    assert_false(heartbeat_stall("first", 1));

    heartbeat_begin(&first, "first");
    heartbeat_begin(&second, "a name that is too long");
    char thread[HEARTBEAT_NAME] = "";
    assert_int_equal(pthread_getname_np(pthread_self(), thread, sizeof thread), 0);
    assert_string_equal(thread, "a name that is ");
    atomic_store(&first.at_us, clock_real_us() - 5000000);
    atomic_store(&second.at_us, clock_real_us() - 9000000);
    int64_t ms = heartbeat_oldest_ms(name);
    assert_true(ms >= 9000 && ms < 60000);
    assert_string_equal(name, "a name that is ");
    heartbeat_now(&second);
    ms = heartbeat_oldest_ms(name);
    assert_true(ms >= 5000 && ms < 60000);
    assert_string_equal(name, "first");

    struct heartbeat_age ages[3];
    heartbeat_excuse(&first);
    assert_true(heartbeat_oldest_ms(name) < 5000);
    assert_string_equal(name, "a name that is ");
    assert_int_equal(heartbeat_ages(ages, 3), 2);
    assert_int_equal(ages[0].silent_ms + ages[1].silent_ms, heartbeat_oldest_ms(NULL));
    atomic_store(&second.at_us, clock_real_us());
    heartbeat_excuse(&second);
    assert_int_equal(heartbeat_oldest_ms(name), 0);
    assert_string_equal(name, "");

    int64_t before = clock_real_us();
    assert_true(heartbeat_stall("first", 20));
    heartbeat_now(&first);
    assert_true(clock_real_us() - before >= 20000);
    pthread_t waker;
    assert_true(heartbeat_stall("first", 3600 * 1000));
    assert_int_equal(pthread_create(&waker, NULL, wake_first, NULL), 0);
    heartbeat_now(&first);
    assert_int_equal(pthread_join(waker, NULL), 0);
    assert_true(heartbeat_stall("first", 60000));
    assert_true(heartbeat_stall("first", 0));
    heartbeat_now(&first);
    assert_true(heartbeat_stall("first", 20));
    before = clock_real_us();
    heartbeat_end(&first);
    assert_true(clock_real_us() - before >= 20000);
    assert_false(heartbeat_stall("first", 1));
    heartbeat_end(&second);
    assert_int_equal(heartbeat_oldest_ms(NULL), 0);
}

/* What a process that stood still missed is no silence of its threads; what comes behind it is. */
static void test_beat_watched(void **state)
{
    (void)state;
    static struct heartbeat b;
    heartbeat_begin(&b, "b");
    int64_t now = clock_real_us();
    heartbeat_watch(now - 60 * 1000000); /* then it was stopped */
    atomic_store(&b.at_us, now - 61 * 1000000);
    assert_in_range(heartbeat_oldest_ms(NULL), 1000, 1000); /* asked before the one who watches runs again */
    heartbeat_watch(now);
    assert_true(heartbeat_oldest_ms(NULL) < (clock_real_us() - now) / 1000 + 2);
    atomic_store(&b.at_us, now - 5 * 1000000);
    assert_true(heartbeat_oldest_ms(NULL) < (clock_real_us() - now) / 1000 + 2);
    heartbeat_watch(0);
    heartbeat_end(&b);
}

static bool fits(const char *pattern, const char *text)
{
    return glob_fits(slice_str(pattern), slice_str(text));
}

static void test_glob(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"", ""},
        {"*", ""},
        {"*", "abc"},
        {"a?c", "abc"},
        {"A*C", "abbbc"},
        {"*b*", "abc"},
        {"a[b-d]e", "aCe"},
        {"a[d-b]e", "ace"},
        {"a[^b-d]e", "axe"},
        {"a[xyz]", "ay"},
        {"\\*a", "*a"},
        {"[\\]]", "]"},
        {"[ab", "b"},
        {"**a**", "bab"},
        {"a*b*c", "abxbbc"},
        {"*a*a*a*b", "aaaab"},
        {"*_*_*", "a_b_c"},
        {"a\\", "a\\"},
    };
    static const char *const bad[][2] = {
        {"", "a"},     {"a", ""},     {"?", ""},      {"a?c", "abbc"}, {"a[b-d]e", "aee"}, {"a[^b-d]e", "ace"},
        {"*b", "abc"}, {"b*", "abc"}, {"\\*a", "ba"}, {"[]", "a"},     {"*a*a*b", "aaaa"}, {"a*b*c", "acb"},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        if (!fits(good[i][0], good[i][1])) {
            fail_msg("%s does not fit %s", good[i][0], good[i][1]);
        }
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (fits(bad[i][0], bad[i][1])) {
            fail_msg("%s fits %s", bad[i][0], bad[i][1]);
        }
    }
    /* What backtracks into every star would take 10^30 steps here. */
    char hostile[101], text[201];
    for (int i = 0; i < 50; i++) {
        memcpy(hostile + 2 * i, "*a", 2);
    }
    hostile[99] = 'b';
    hostile[100] = '\0';
    memset(text, 'a', sizeof text - 1);
    text[200] = '\0';
    assert_false(fits(hostile, text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_err),
        cmocka_unit_test(test_what_is_shown_does_nothing),
        cmocka_unit_test(test_err_names_differ),
        cmocka_unit_test(test_buf),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_arena_limit),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_arena_rewind),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_varint),
        cmocka_unit_test(test_varint_refuses),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_hash_vectors),
        cmocka_unit_test(test_fingerprint_read),
        cmocka_unit_test(test_hash_many),
        cmocka_unit_test(test_months),
        cmocka_unit_test(test_months_like_libc),
        cmocka_unit_test(test_time_text),
        cmocka_unit_test(test_unix_time),
        cmocka_unit_test(test_month_parse),
        cmocka_unit_test(test_clock_changes),
        cmocka_unit_test(test_zone),
        cmocka_unit_test(test_hidden_ids),
        cmocka_unit_test(test_quote),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_log_again),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_backoff),
        cmocka_unit_test(test_beat),
        cmocka_unit_test(test_beat_watched),
        cmocka_unit_test(test_glob),
        cmocka_unit_test(test_log_recent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
