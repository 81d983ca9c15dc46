/* Compressed messages: what is inflated is what was deflated, never more than may be, and memory is asked for first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "base/gzip.h"
#include "tests/lib/alloc.h"
#include "tests/lib/random.h"

enum { MOST = 100000 };

static unsigned char packed[2 * MOST];
static char plain[MOST + 1];

/* windowBits: 15 + 16 is gzip, 15 zlib, -15 raw. */
static struct slice deflated(size_t len, int window_bits)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)plain;
    z.avail_in = (unsigned)len;
    z.next_out = packed;
    z.avail_out = sizeof packed;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return slice_of((const char *)packed, z.total_out);
}

struct memory {
    size_t most, asked;
    const struct buf *out;
};

static bool may_hold(void *arg, size_t bytes)
{
    struct memory *m = arg;
    assert_true(m->out->cap < bytes); /* before it is made */
    m->asked = bytes;
    return bytes <= m->most;
}

static int inflated(struct slice message, size_t memory, struct buf *out, struct err *err)
{
    struct memory m = {.most = memory, .out = out};
    *out = (struct buf){0};
    *err = (struct err){0};
    int code = gzip_inflate(message, MOST, may_hold, &m, out, err);
    assert_true(out->cap <= MOST && out->cap <= memory && (code < 0 || out->cap == m.asked));
    assert_true(code == 0 || (out->data == NULL && err->text[0] != '\0' && err->code == code));
    return code;
}

static void fill(bool random)
{
    uint64_t state = 1;
    for (size_t i = 0; i < sizeof plain; i++) {
        plain[i] = random ? (char)random_next(&state) : 'a';
    }
}

static void test_good(void **state)
{
    (void)state;
    static const size_t lens[] = {0, 1, 255, 256, 257, 1000, 5000, 65536, MOST - 1, MOST};
    for (int random = 0; random < 2; random++) {
        fill(random != 0);
        for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
            struct buf out;
            struct err err;
            assert_int_equal(inflated(deflated(lens[i], 15 + 16), SIZE_MAX, &out, &err), 0);
            assert_int_equal(out.len, lens[i]);
            assert_true(lens[i] == 0 || memcmp(out.data, plain, lens[i]) == 0);
            buf_free(&out);
        }
    }
}

/* As gzip's own files may be, and as concatenated ones are. */
static void test_members(void **state)
{
    (void)state;
    static char joined[3 * sizeof packed];
    struct buf out;
    struct err err;
    fill(true);
    for (size_t zeros = 0; zeros < 3; zeros++) {
        size_t len = 0;
        for (int i = 0; i < 3; i++) {
            struct slice one = deflated((size_t)i * 1000, 15 + 16);
            memcpy(joined + len, one.data, one.len);
            len += one.len;
            memset(joined + len, 0, zeros);
            len += zeros;
        }
        assert_int_equal(inflated(slice_of(joined, len), SIZE_MAX, &out, &err), 0);
        assert_int_equal(out.len, 3000);
        assert_memory_equal(out.data, plain, 1000);
        assert_memory_equal(out.data + 1000, plain, 2000);
        buf_free(&out);
        assert_int_equal(inflated(slice_of(joined, len - zeros - 1), SIZE_MAX, &out, &err), ERR_INVALID);
        joined[len] = 'x';
        assert_int_equal(inflated(slice_of(joined, len + 1), SIZE_MAX, &out, &err), ERR_INVALID);
        assert_string_equal(err.text, "it can't be inflated: 1 bytes stand behind its end");
        joined[len] = '\x1f';
        assert_int_equal(inflated(slice_of(joined, len + 1), SIZE_MAX, &out, &err), ERR_INVALID);
    }
    struct slice half = deflated(MOST / 2 + 1, 15 + 16);
    memcpy(joined, half.data, half.len);
    memcpy(joined + half.len, half.data, half.len);
    assert_int_equal(inflated(slice_of(joined, 2 * half.len), SIZE_MAX, &out, &err), ERR_LARGE);
}

static void test_too_large(void **state)
{
    (void)state;
    struct buf out;
    struct err err;
    for (int random = 0; random < 2; random++) {
        fill(random != 0);
        assert_int_equal(inflated(deflated(MOST + 1, 15 + 16), SIZE_MAX, &out, &err), ERR_LARGE);
        assert_string_equal(err.text, "it inflates to more than 100000 bytes");
    }
}

static void test_broken(void **state)
{
    (void)state;
    struct buf out;
    struct err err;
    fill(false);
    struct slice good = deflated(3000, 15 + 16);
    for (size_t cut = 0; cut < good.len; cut++) {
        assert_int_equal(inflated(slice_of(good.data, cut), SIZE_MAX, &out, &err), ERR_INVALID);
        assert_string_equal(err.text, "it can't be inflated: it is cut off");
    }
    packed[good.len] = 'x';
    assert_int_equal(inflated(slice_of(good.data, good.len + 1), SIZE_MAX, &out, &err), ERR_INVALID);
    assert_string_equal(err.text, "it can't be inflated: 1 bytes stand behind its end");
    packed[good.len - 5] ^= 1; /* the checksum */
    assert_int_equal(inflated(good, SIZE_MAX, &out, &err), ERR_INVALID);
    assert_string_equal(err.text, "it can't be inflated: incorrect data check");
    assert_int_equal(inflated(deflated(3000, 15), SIZE_MAX, &out, &err), ERR_INVALID);
    assert_string_equal(err.text, "it can't be inflated: incorrect header check");
    assert_int_equal(inflated(deflated(3000, -15), SIZE_MAX, &out, &err), ERR_INVALID);
}

/* Each growth refused in turn, and each allocation failed. */
static void test_memory(void **state)
{
    (void)state;
    struct buf out;
    struct err err;
    fill(false);
    struct slice good = deflated(MOST, 15 + 16);
    int busy = 0;
    for (size_t memory = 100; memory < MOST; memory *= 2) {
        assert_int_equal(inflated(good, memory, &out, &err), ERR_BUSY);
        busy++;
    }
    assert_int_equal(busy, 10);
    for (int n = 1;; n++) {
        alloc_fail_at(n);
        int code = inflated(good, SIZE_MAX, &out, &err);
        bool failed = alloc_failed;
        alloc_fail_after(-1);
        assert_int_equal(code, failed ? ERR_NOMEM : 0);
        buf_free(&out);
        if (!failed) {
            assert_true(n > 5);
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),   cmocka_unit_test(test_members), cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_broken), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
