/* Health's and reflection's messages, against the bytes that python3-protobuf makes of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/wire.h"
#include "grpc/health.h"
#include "grpc/reflection.h"

static struct buf asked, out;

static int release(void **state)
{
    (void)state;
    buf_free(&asked);
    buf_free(&out);
    return 0;
}

static struct slice ask(unsigned number, const char *text)
{
    buf_clear(&asked);
    wire_put_item(&asked, number, slice_str(text));
    return buf_slice(&asked);
}

static void test_health(void **state)
{
    enum health_role role;
    (void)state;
    struct err err = {0};
    static const char *const known[] = {"", "unseen.v1.Unseen", HEALTH_SERVICE, REFLECTION_SERVICE,
                                        REFLECTION_SERVICE_ALPHA};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_int_equal(health_read(ask(1, known[i]), &role, &err), 0);
    }
    assert_int_equal(role, HEALTH_ANY);
    assert_int_equal(health_read(ask(1, "primary"), &role, &err), 0);
    assert_int_equal(role, HEALTH_PRIMARY);
    assert_int_equal(health_read(ask(1, "replica"), &role, &err), 0);
    assert_int_equal(role, HEALTH_REPLICA);
    assert_int_equal(health_read(slice_of("", 0), &role, &err), 0);
    assert_int_equal(health_read(ask(2, "x"), &role, &err), 0);
    static const char *const unknown[] = {
        "unseen.v1.Unsee", "unseen.v1.Unseen.", "unseen.v1", "unseen.v1.", "Unseen", "."};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        assert_int_equal(health_read(ask(1, unknown[i]), &role, &err), ERR_NOTFOUND);
    }
    assert_int_equal(health_read(ask(1, "nobody"), &role, &err), ERR_NOTFOUND);
    assert_string_equal(err.text, "no service 'nobody' here");
    assert_int_equal(health_read(ask(1, "\xff"), &role, &err), ERR_INVALID);
    assert_int_equal(health_read(slice_of("\x08\x01", 2), &role, &err), ERR_INVALID);
    assert_int_equal(health_read(slice_of("\x0a\x05", 2), &role, &err), ERR_INVALID);
    buf_clear(&out);
    health_write(HEALTH_NOT_SERVING, &out);
    assert_int_equal(out.len, HEALTH_REPLY_MAX);
    assert_memory_equal(out.data, "\x08\x02", 2);
}

/* The field of the answer with that number, and within it the first of number `within`. */
static struct slice answer(struct slice request, uint32_t number, uint32_t within)
{
    struct err err = {0};
    buf_clear(&out);
    assert_int_equal(reflection_answer(request, &out, &err), 0);
    assert_false(out.failed);
    assert_true(out.len <= reflection_reply_max(request));
    struct wire w = wire_of(buf_slice(&out));
    struct wire_field f;
    bool echoed = false;
    while (wire_next(&w, &f, &err) > 0) {
        echoed = echoed || (f.number == 2 && slice_eq(f.bytes, request));
        if (f.number == number) {
            assert_true(echoed);
            struct wire inner = wire_of(f.bytes);
            while (wire_next(&inner, &f, &err) > 0) {
                if (f.number == within) {
                    return f.type == WIRE_BYTES ? f.bytes : slice_of((const char *)&"\0\1\2\3\4\5\6"[f.value % 7], 1);
                }
            }
        }
    }
    return (struct slice){NULL, 0};
}

static struct slice file_name(struct slice file)
{
    struct wire w = wire_of(file);
    struct wire_field f;
    struct err err;
    assert_int_equal(wire_next(&w, &f, &err), 1);
    assert_int_equal(f.number, 1);
    return f.bytes;
}

static void test_symbols(void **state)
{
    (void)state;
    static const char own[] = "unseen/v1/unseen.proto";
    static const struct {
        const char *symbol, *file; /* NULL: not found */
    } rows[] = {
        {"unseen.v1.Unseen", own},
        {"unseen.v1.Unseen.Filter", own},
        {"unseen.v1.FilterRequest", own},
        {"unseen.v1.FilterRequest.Reply", own},
        {"unseen.v1.FilterRequest.items", own},
        {"unseen.v1.HistoryReply.Month", own},
        {"unseen.v1.HistoryReply.Month.expires", own},
        {"grpc.health.v1.Health", "grpc/health/v1/health.proto"},
        {REFLECTION_SERVICE, "grpc/reflection/v1/reflection.proto"},
        {REFLECTION_SERVICE_ALPHA, "grpc/reflection/v1alpha/reflection.proto"},
        {"unseen.v1", NULL},
        {"unseen.v1/FilterRequest", NULL},
        {"unseen.v1.", NULL},
        {"unseen.v1.Month", NULL},
        {"unseen.v1.HistoryReply.", NULL},
        {"unseen.v1.HistoryReply.Month.expires.x", NULL},
        {"FilterRequest", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct slice file = answer(ask(4, rows[i].symbol), 4, 1);
        assert_int_equal(file.data != NULL, rows[i].file != NULL);
        if (rows[i].file != NULL) {
            assert_true(slice_eq(file_name(file), slice_str(rows[i].file)));
            assert_true(slice_eq(file_name(answer(ask(3, rows[i].file), 4, 1)), slice_str(rows[i].file)));
        } else {
            assert_int_equal(answer(ask(4, rows[i].symbol), 7, 1).data[0], 5);
        }
    }
    assert_true(slice_eq(answer(ask(3, "unseen.proto"), 7, 2), slice_str("no such file")));
    assert_true(slice_eq(answer(ask(6, "unseen.v1.FilterRequest"), 7, 2), slice_str("nothing is extended here")));
}

static void test_services(void **state)
{
    (void)state;
    static const char *const names[] = {"unseen.v1.Unseen", HEALTH_SERVICE, REFLECTION_SERVICE,
                                        REFLECTION_SERVICE_ALPHA};
    struct buf expected = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t service = wire_begin(&expected, 1);
        wire_put_item(&expected, 1, slice_str(names[i]));
        wire_end(&expected, service);
    }
    struct slice first = answer(ask(7, ""), 6, 1);
    assert_true(slice_eq(slice_of(first.data - 2, expected.len), buf_slice(&expected)));
    buf_free(&expected);
}

static void test_broken(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(reflection_answer(slice_of("\x1a\x05", 2), &out, &err), ERR_INVALID);
    assert_int_equal(reflection_answer(slice_of("\x18\x05", 2), &out, &err), ERR_INVALID);
    assert_int_equal(reflection_answer(ask(4, "\xff"), &out, &err), ERR_INVALID);
    assert_int_equal(answer(slice_of("", 0), 7, 1).data[0], 3);
    assert_int_equal(answer(ask(9, "later"), 7, 1).data[0], 3);
    buf_clear(&asked);
    wire_put_item(&asked, 1, slice_str("host"));
    wire_put_item(&asked, 7, slice_str("*"));
    assert_true(answer(buf_slice(&asked), 6, 1).len > 0);
    assert_memory_equal(out.data, "\x0a\4host", 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_health),
        cmocka_unit_test(test_symbols),
        cmocka_unit_test(test_services),
        cmocka_unit_test(test_broken),
    };
    return cmocka_run_group_tests(tests, NULL, release);
}
