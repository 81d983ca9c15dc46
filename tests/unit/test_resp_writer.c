/* Each reply type, in both protocol versions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "resp/writer.h"

static struct buf out;

static struct writer writer_of(int proto)
{
    buf_clear(&out);
    return (struct writer){&out, proto};
}

static void expect(const char *want)
{
    assert_false(out.failed);
    assert_int_equal(out.len, strlen(want));
    assert_memory_equal(out.data, want, out.len);
}

static int release(void **state)
{
    (void)state;
    buf_free(&out);
    return 0;
}

static void same_in_both(void **state)
{
    (void)state;
    for (int proto = 2; proto <= 3; proto++) {
        struct writer w = writer_of(proto);
        write_simple(&w, "OK");
        expect("+OK\r\n");
        w = writer_of(proto);
        write_bulk(&w, slice_of("a\0\r\n", 4));
        write_bulk(&w, slice_of(NULL, 0));
        write_str(&w, "hi");
        assert_int_equal(out.len, 10 + 6 + 8);
        assert_memory_equal(out.data, "$4\r\na\0\r\n\r\n$0\r\n\r\n$2\r\nhi\r\n", out.len);
        w = writer_of(proto);
        write_array(&w, 0);
        write_array(&w, 10000);
        expect("*0\r\n*10000\r\n");
        w = writer_of(proto);
        write_int(&w, 0);
        write_int(&w, 1795260460152);
        write_int(&w, INT64_MAX);
        write_int(&w, -1);
        write_int(&w, INT64_MIN);
        expect(":0\r\n:1795260460152\r\n:9223372036854775807\r\n:-1\r\n:-9223372036854775808\r\n");
    }
}

static void errors_are_one_line(void **state)
{
    (void)state;
    struct writer w = writer_of(2);
    write_errorf(&w, "ERR unknown option '%s'", "a\r\n+OK\r\n\x01\x7f");
    expect("-ERR unknown option 'a  +OK    '\r\n");
    w = writer_of(2);
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    write_error(&w, text);
    assert_int_equal(out.len, 1 + 1024 + 2);
}

static void resp2(void **state)
{
    (void)state;
    struct writer w = writer_of(2);
    write_null(&w);
    write_map(&w, 3);
    write_set(&w, 2);
    write_double(&w, 0.25);
    write_text(&w, slice_str("a\nb"));
    expect("$-1\r\n*6\r\n*2\r\n$4\r\n0.25\r\n$3\r\na\nb\r\n");
}

static void resp3(void **state)
{
    (void)state;
    struct writer w = writer_of(3);
    write_null(&w);
    write_map(&w, 3);
    write_set(&w, 2);
    write_double(&w, 0.25);
    write_text(&w, slice_str("a\nb"));
    expect("_\r\n%3\r\n~2\r\n,0.25\r\n=7\r\ntxt:a\nb\r\n");
}

/* As short as it can be, and exact. */
static void doubles(void **state)
{
    (void)state;
    struct writer w = writer_of(3);
    write_double(&w, 0);
    write_double(&w, 1);
    write_double(&w, 5.8207660913467407e-07);
    write_double(&w, 0.1);
    write_double(&w, 1.0 / 3);
    expect(",0\r\n,1\r\n,5.820766091346741e-07\r\n,0.1\r\n,0.3333333333333333\r\n");
}

/* A node that isn't known is an empty text. */
static void pairs(void **state)
{
    (void)state;
    struct writer w = writer_of(3);
    write_pair_int(&w, "i", -1);
    write_pair_double(&w, "d", 0.25);
    write_pair_str(&w, "s", "x");
    write_pair_bulk(&w, "b", slice_of("y\nz", 3));
    write_pair_ints(&w, (const struct writer_number[]){{"j", 1}, {"k", 2}}, 2);
    expect("$1\r\ni\r\n:-1\r\n$1\r\nd\r\n,0.25\r\n$1\r\ns\r\n$1\r\nx\r\n$1\r\nb\r\n$3\r\ny\nz\r\n"
           "$1\r\nj\r\n:1\r\n$1\r\nk\r\n:2\r\n");
    w = writer_of(2);
    write_pair_hex(&w, "n", 0);
    write_pair_hex(&w, "n", UINT64_C(0xabcdef));
    expect("$1\r\nn\r\n$0\r\n\r\n$1\r\nn\r\n$16\r\n0000000000abcdef\r\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_in_both), cmocka_unit_test(errors_are_one_line),
        cmocka_unit_test(resp2),        cmocka_unit_test(resp3),
        cmocka_unit_test(doubles),      cmocka_unit_test(pairs),
    };
    return cmocka_run_group_tests(tests, NULL, release);
}
