/* How a user lies in a pool: names, keys and values, there and back, and what is none of ours. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "store/rados/layout.h"

static void a_name_comes_back(struct slice user, const char *want)
{
    char name[LAYOUT_NAME], back[255];
    size_t len = 0;
    layout_user_name(user, name);
    if (want != NULL) {
        assert_string_equal(name, want);
    }
    assert_true(strlen(name) < LAYOUT_NAME);
    assert_true(layout_user_of(name, back, &len));
    assert_true(slice_eq(slice_of(back, len), user));
}

static void names(void **state)
{
    (void)state;
    char all[256];
    a_name_comes_back(slice_str("user-1_A"), "u.user-1_A");
    a_name_comes_back(slice_of("\0", 1), "u.%00");
    a_name_comes_back(slice_str("a.b/c%41 \xc3\xa4"), "u.a%2Eb%2Fc%2541%20%C3%A4");
    for (int i = 0; i < 256; i++) {
        all[i] = (char)i;
        a_name_comes_back(slice_of(&all[i], 1), NULL);
    }
    a_name_comes_back(slice_of(all + 1, 255), NULL);
    memset(all, 0xff, sizeof all);
    a_name_comes_back(slice_of(all, 255), NULL);
}

static void names_of_others(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",      "meta",  "night.3", "u.",    "u",    "u.a.b", "u.%",    "u.%4",
                                        "u.%41", "u.%zz", "u.%c3",   "u.a b", "u.%2", "v.a",   "u.\xc3", "u.%2e"};
    char back[255], longer[2 + 256 + 1] = "u.";
    size_t len;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(layout_user_of(wrong[i], back, &len));
    }
    memset(longer + 2, 'a', 256);
    assert_false(layout_user_of(longer, back, &len));
    longer[2 + 255] = '\0';
    assert_true(layout_user_of(longer, back, &len));
}

static void a_key_comes_back(struct layout_key key, const char *want)
{
    char text[LAYOUT_KEY];
    size_t len = layout_key_write(&key, text);
    assert_string_equal(text, want);
    assert_int_equal(len, strlen(want));
    struct layout_key back = layout_key_read(slice_of(text, len));
    assert_int_equal(back.kind, key.kind);
    assert_int_equal(back.month, key.month);
    assert_int_equal(back.part, key.part);
    assert_int_equal(back.item, key.item);
    assert_true(back.hash == key.hash && back.stamp == key.stamp);
}

static void keys(void **state)
{
    (void)state;
    int month = month_make(2026, 9);
    a_key_comes_back((struct layout_key){.kind = LAYOUT_DELIVERY, .stamp = 1, .hash = 0xabc},
                     "dfffffffffffffffe0000000000000abc");
    a_key_comes_back((struct layout_key){.kind = LAYOUT_FORGOTTEN}, "f");
    a_key_comes_back((struct layout_key){.kind = LAYOUT_FORGOTTEN, .item = true, .hash = UINT64_MAX},
                     "fffffffffffffffff");
    a_key_comes_back((struct layout_key){.kind = LAYOUT_GENERATION}, "g");
    a_key_comes_back((struct layout_key){.kind = LAYOUT_FILTER, .month = month, .part = 0x1f}, "m202609.001f");
    a_key_comes_back((struct layout_key){.kind = LAYOUT_PLAY, .month = month, .hash = 15}, "p202609000000000000000f");
    a_key_comes_back((struct layout_key){.kind = LAYOUT_DAMAGED}, "q000000");
    a_key_comes_back((struct layout_key){.kind = LAYOUT_DAMAGED, .month = month}, "q202609");
    a_key_comes_back((struct layout_key){.kind = LAYOUT_DIRECTORY}, "w");
    a_key_comes_back((struct layout_key){.kind = LAYOUT_EXCEPTION, .hash = 0}, "x0000000000000000");
}

static void keys_of_others(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        "a",
                                        "g1",
                                        "w0",
                                        "f0",
                                        "x",
                                        "x000000000000000g",
                                        "m202609",
                                        "m202613.0000",
                                        "m202609.001",
                                        "m202609.00011",
                                        "m20260a.0001",
                                        "m202609-0001",
                                        "q20260",
                                        "p202609000000000000000F",
                                        "p20260900000000000000",
                                        "d00"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(layout_key_read(slice_str(wrong[i])).kind, LAYOUT_OTHER);
    }
}

static void values(void **state)
{
    (void)state;
    char bytes[LAYOUT_DELIVERY_VALUE];
    int64_t ms = 0;
    struct layout_delivery d, film = {0, month_make(2026, 11), slice_str("film")};
    size_t len = layout_delivery_write(&film, bytes);
    assert_int_equal(len, 10);
    assert_memory_equal(bytes, "202611film", 10);
    assert_int_equal(layout_delivery_read(slice_of(bytes, len), &d), 0);
    assert_true(d.month == film.month && slice_eq(d.item, film.item) && d.group == 0);
    assert_int_equal(layout_delivery_read(slice_of(bytes, 6), &d), ERR_CORRUPT);
    assert_int_equal(layout_delivery_read(slice_str("20261xfilm"), &d), ERR_CORRUPT);
    film.group = 0xab;
    len = layout_delivery_write(&film, bytes);
    assert_true(slice_eq(slice_of(bytes, len), slice_str("g00000000000000ab202611film")));
    assert_int_equal(layout_delivery_read(slice_of(bytes, len), &d), 0);
    assert_true(d.month == film.month && slice_eq(d.item, film.item) && d.group == 0xab);
    static const char *const wrong[] = {"g", "g00000000000000ab", "g00000000000000ab202611",
                                        "g000000000000000x202611film", "g0000000000000000202611film"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(layout_delivery_read(slice_str(wrong[i]), &d), ERR_CORRUPT);
    }
    assert_int_equal(layout_ms(slice_str("00000000000000ff"), &ms), 0);
    assert_int_equal(ms, 255);
    assert_int_equal(layout_ms(slice_str("ffffffffffffffff"), &ms), ERR_CORRUPT);
    assert_int_equal(layout_ms(slice_str("ff"), &ms), ERR_CORRUPT);
}

static void the_directory(void **state)
{
    (void)state;
    const struct layout_part parts[] = {{month_make(2026, 9), 3, 1000, 700, 5, true, false},
                                        {month_make(2026, 10), UINT16_MAX, 70000, 123456, UINT32_MAX, false, true}};
    struct buf value = {0};
    char limit[LAYOUT_LIMIT];
    assert_int_equal(layout_directory_write(parts, 2, &value), 0);
    assert_int_equal(layout_directory_count(buf_slice(&value)), 2);
    for (size_t i = 0; i < 2; i++) {
        struct layout_part back = layout_directory_part(buf_slice(&value), i);
        assert_int_equal(back.month, parts[i].month);
        assert_int_equal(back.part, parts[i].part);
        assert_int_equal(back.bytes, parts[i].bytes);
        assert_int_equal(back.items, parts[i].items);
        assert_int_equal(back.live, parts[i].live);
        assert_int_equal(back.coarse, parts[i].coarse);
        assert_int_equal(back.sealed, parts[i].sealed);
    }
    layout_directory_limit(71000, limit); /* as much as there is: not refused */
    assert_true(memcmp(value.data, limit, sizeof limit) < 0);
    layout_directory_limit(70999, limit);
    assert_true(memcmp(value.data, limit, sizeof limit) >= 0);
    assert_int_equal(layout_directory_count(slice_of("", 0)), 0);
    assert_int_equal(layout_directory_count(slice_of(value.data, value.len - 1)), ERR_CORRUPT);
    value.data[0] = 'x';
    assert_int_equal(layout_directory_count(buf_slice(&value)), ERR_CORRUPT);
    buf_free(&value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),          cmocka_unit_test(names_of_others), cmocka_unit_test(keys),
        cmocka_unit_test(keys_of_others), cmocka_unit_test(values),          cmocka_unit_test(the_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
