/* What an import reads from: plain, gzip, zstd, pipes; cut at every byte, damaged at every byte. And the progress line.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/buf.h"
#include "cli/import/import_input.h"
#include "cli/lib/progress.h"

static char folder[] = "/tmp/unseen-import-XXXXXX";
static char path[64]; /* of the file that put() wrote last */

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(folder);
}

static void put(const char *name, const void *bytes, size_t len)
{
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* All of the input, in steps. Returns the first error's code. */
static int slurp(const char *from, size_t step, struct buf *out, struct err *err)
{
    struct import_input *in;
    buf_clear(out);
    int rc = import_input_open(from, &in, err);
    if (rc != 0) {
        return rc;
    }
    size_t n;
    do {
        assert_int_equal(buf_reserve(out, step), 0);
        rc = import_input_read(in, out->data + out->len, step, &n, err);
        assert_true(n <= step);
        out->len += n;
        assert_true(import_input_size(in) == 0 || import_input_done(in) <= import_input_size(in));
    } while (rc == 0 && n > 0);
    if (rc == 0) {
        assert_true(import_input_size(in) == 0 || import_input_done(in) == import_input_size(in));
    }
    import_input_close(in);
    return rc;
}

static struct buf gzip(const void *bytes, size_t len)
{
    struct buf out = {0};
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(buf_reserve(&out, deflateBound(&z, len)), 0);
    z.next_in = (Bytef *)(uintptr_t)bytes;
    z.avail_in = (uInt)len;
    z.next_out = (Bytef *)out.data;
    z.avail_out = (uInt)out.cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out.len = z.total_out;
    deflateEnd(&z);
    return out;
}

static struct buf zstd(const void *bytes, size_t len)
{
    struct buf out = {0};
    ZSTD_CCtx *c = ZSTD_createCCtx();
    assert_non_null(c);
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    assert_int_equal(buf_reserve(&out, ZSTD_compressBound(len)), 0);
    out.len = ZSTD_compress2(c, out.data, out.cap, bytes, len);
    assert_false(ZSTD_isError(out.len));
    ZSTD_freeCCtx(c);
    return out;
}

static struct buf (*const packers[])(const void *, size_t) = {gzip, zstd};
static const char *const endings[] = {"f.gz", "f.zst"};

static void expect(const char *from, const struct buf *expected)
{
    static const size_t steps[] = {1, 7, 4096, 300000};
    struct buf got = {0};
    struct err err;
    for (size_t i = expected->len > 100000 ? 2 : 0; i < 4; i++) {
        assert_int_equal(slurp(from, steps[i], &got, &err), 0);
        assert_int_equal(got.len, expected->len);
        assert_true(slice_eq(buf_slice(&got), buf_slice(expected)));
    }
    buf_free(&got);
}

/* Lines that compress, more than one fill of every buffer. */
static struct buf sample(int lines)
{
    struct buf b = {0};
    unsigned x = 1;
    for (int i = 0; i < lines; i++) {
        x = x * 1664525 + 1013904223;
        buf_addf(&b, "%lld\tu%u\ti%u\n", 1383782400000LL + i, x >> 20, x >> 8 & 0xffff);
    }
    assert_false(b.failed);
    return b;
}

static void test_round_trips(void **state)
{
    (void)state;
    for (int lines = 0; lines <= 100000; lines = lines * 10 + (lines == 0)) {
        struct buf plain = sample(lines);
        put("f", plain.data == NULL ? "" : plain.data, plain.len);
        expect(path, &plain);
        unlink(path);
        for (int i = 0; i < 2; i++) {
            struct buf packed = packers[i](plain.data, plain.len);
            put("no-ending", packed.data, packed.len);
            expect(path, &plain);
            unlink(path);
            buf_free(&packed);
        }
        buf_free(&plain);
    }
}

static void test_parts_follow_each_other(void **state)
{
    (void)state;
    struct buf plain = sample(60000);
    struct buf twice = {0};
    buf_add(&twice, plain.data, plain.len);
    buf_add(&twice, plain.data, plain.len);
    for (int i = 0; i < 2; i++) {
        struct buf packed = packers[i](plain.data, plain.len);
        struct buf empty = packers[i]("", 0);
        struct buf all = {0};
        buf_add(&all, empty.data, empty.len);
        buf_add(&all, packed.data, packed.len);
        buf_add(&all, empty.data, empty.len);
        buf_add(&all, packed.data, packed.len);
        put(endings[i], all.data, all.len);
        expect(path, &twice);

        /* What isn't another part is damage. */
        struct buf got = {0};
        struct err err;
        buf_add(&all, "1383782400000\ta\tb\n", 18);
        put(endings[i], all.data, all.len);
        assert_int_equal(slurp(path, 4096, &got, &err), ERR_CORRUPT);
        assert_non_null(strstr(err.text, "data is damaged near byte "));
        unlink(path);
        buf_free(&got);
        buf_free(&packed);
        buf_free(&empty);
        buf_free(&all);
    }
    /* A zstd frame that says nothing, as pzstd writes at the beginning. */
    static const char skippable[] = "\x50\x2a\x4d\x18\x04\x00\x00\x00"
                                    "abcd";
    struct buf packed = zstd(plain.data, plain.len);
    struct buf all = {0};
    buf_add(&all, skippable, sizeof(skippable) - 1);
    buf_add(&all, packed.data, packed.len);
    put("f", all.data, all.len);
    expect(path, &plain);
    unlink(path);
    buf_free(&packed);
    buf_free(&all);
    buf_free(&twice);
    buf_free(&plain);
}

static void test_cut_anywhere(void **state)
{
    (void)state;
    struct buf plain = sample(20);
    struct buf got = {0};
    for (int i = 0; i < 2; i++) {
        struct buf packed = packers[i](plain.data, plain.len);
        for (size_t cut = 0; cut < packed.len; cut++) {
            struct err err;
            char expected[256];
            put(endings[i], packed.data, cut);
            assert_int_equal(slurp(path, 4096, &got, &err), ERR_CORRUPT);
            snprintf(expected, sizeof(expected), "%s: cut off at byte %zu, in the middle of its compressed data", path,
                     cut);
            assert_string_equal(err.text, expected);
            assert_true(got.len <= plain.len && memcmp(got.data, plain.data, got.len) == 0);
        }
        unlink(path);
        buf_free(&packed);
    }
    buf_free(&got);
    buf_free(&plain);
}

/* Every bit turned: an error, or (in fields without meaning) the same bytes; never other ones. */
static void test_damage_anywhere(void **state)
{
    (void)state;
    struct buf plain = sample(20);
    struct buf got = {0};
    for (int i = 0; i < 2; i++) {
        struct buf packed = packers[i](plain.data, plain.len);
        int errors = 0;
        for (size_t bit = 32; bit < packed.len * 8; bit++) {
            struct err err;
            packed.data[bit / 8] = (char)(packed.data[bit / 8] ^ 1 << bit % 8);
            put(endings[i], packed.data, packed.len);
            packed.data[bit / 8] = (char)(packed.data[bit / 8] ^ 1 << bit % 8);
            int rc = slurp(path, 4096, &got, &err);
            errors += rc != 0;
            assert_true(rc == ERR_CORRUPT || (rc == 0 && slice_eq(buf_slice(&got), buf_slice(&plain))));
        }
        assert_true(errors > (int)(packed.len - 20) * 8);
        unlink(path);
        buf_free(&packed);
    }
    buf_free(&got);
    buf_free(&plain);
}

static void test_pipe(void **state)
{
    (void)state;
    struct buf plain = sample(100);
    struct buf packed[3] = {plain, gzip(plain.data, plain.len), zstd(plain.data, plain.len)};
    for (int i = 0; i < 3; i++) {
        int fds[2];
        char name[32];
        struct import_input *in;
        struct err err;
        struct buf got = {0};
        assert_int_equal(pipe(fds), 0);
        assert_int_equal(write(fds[1], packed[i].data, packed[i].len), packed[i].len);
        close(fds[1]);
        snprintf(name, sizeof(name), "/dev/fd/%d", fds[0]);
        assert_int_equal(import_input_open(name, &in, &err), 0);
        assert_false(import_input_regular(in));
        assert_int_equal(import_input_size(in), 0);
        import_input_close(in);
        assert_int_equal(slurp(name, 100, &got, &err), 0);
        assert_true(slice_eq(buf_slice(&got), buf_slice(&plain)));
        close(fds[0]);
        buf_free(&got);
        if (i > 0) {
            buf_free(&packed[i]);
        }
    }
    buf_free(&plain);
}

static void test_standard_input(void **state)
{
    (void)state;
    struct import_input *in;
    struct err err;
    int saved = dup(STDIN_FILENO);
    put("f", "abc", 3);
    assert_int_equal(close(STDIN_FILENO), 0);
    assert_int_equal(open(path, O_RDONLY), STDIN_FILENO);
    assert_int_equal(import_input_open("-", &in, &err), 0);
    assert_string_equal(import_input_name(in), "stdin");
    assert_false(import_input_regular(in)); /* it may stand anywhere, and can't be opened again */
    char out[8];
    size_t n;
    assert_int_equal(import_input_read(in, out, sizeof(out), &n, &err), 0);
    assert_int_equal(n, 3);
    import_input_close(in);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), 0); /* left open */
    dup2(saved, STDIN_FILENO);
    close(saved);
    unlink(path);
}

static void test_no_such_input(void **state)
{
    (void)state;
    struct buf got = {0};
    struct err err;
    assert_int_equal(slurp("/nowhere/f.tsv", 100, &got, &err), ERR_NOTFOUND);
    assert_string_equal(err.text, "/nowhere/f.tsv: No such file or directory");
    assert_int_equal(slurp("/tmp", 100, &got, &err), ERR_IO);
    assert_string_equal(err.text, "/tmp: read at byte 0: Is a directory");
    buf_free(&got);
}

static void test_name_does_not_decide(void **state)
{
    (void)state;
    struct buf plain = sample(3);
    put("f.gz", plain.data, plain.len);
    expect(path, &plain);

    struct import_input *in;
    struct err err;
    char out[8];
    size_t n;
    assert_int_equal(import_input_open(path, &in, &err), 0);
    assert_true(import_input_regular(in));
    assert_int_equal(import_input_size(in), plain.len);
    assert_int_equal(import_input_read(in, out, sizeof(out), &n, &err), 0);
    assert_int_equal(import_input_done(in), n);
    import_input_close(in);
    unlink(path);
    buf_free(&plain);
}

static void check_line(size_t width, uint64_t done, uint64_t total, int64_t elapsed_us, const char *expected)
{
    char line[200];
    progress_line(line, sizeof(line), width, "import", done, total, elapsed_us, "12 events");
    assert_string_equal(line, expected);
}

static void test_progress_line(void **state)
{
    (void)state;
    check_line(48, 0, 200, 0, "import [>                      ]   0%  12 events");
    check_line(48, 100, 200, 0, "import [===========>           ]  50%  12 events");
    check_line(48, 200, 200, 9000000, "import [=======================] 100%  12 events");
    check_line(48, 300, 200, 0, "import [=======================] 100%  12 events");
    check_line(60, 50, 200, 30000000, "import [======>                 ]  25%  12 events  1:30 left");
    check_line(100, 1, 2, 0, "import [====================>                   ]  50%  12 events");
    check_line(30, 1, 2, 0, "import  50%  12 events");
    check_line(10, 1, 2, 0, "import  50");
    check_line(80, 5, 0, 0, "import  12 events");
    check_line(10, 5, 0, 0, "import  12");

    char small[12];
    progress_line(small, sizeof(small), 80, "import", 1, 2, 0, "12 events");
    assert_string_equal(small, "import  50%");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),   cmocka_unit_test(test_parts_follow_each_other),
        cmocka_unit_test(test_cut_anywhere),  cmocka_unit_test(test_damage_anywhere),
        cmocka_unit_test(test_pipe),          cmocka_unit_test(test_standard_input),
        cmocka_unit_test(test_no_such_input), cmocka_unit_test(test_name_does_not_decide),
        cmocka_unit_test(test_progress_line),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
