/* The line formats: samples with the transcript they give, wherever the bytes are cut; bad lines with the exact
 * reason; limits. A transcript has a line for each event or malformed record. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/log.h"
#include "cli/import/import_reader.h"

/* Takes what there is. */
static void drain(struct import_reader *r, struct buf *out)
{
    struct import_event event;
    for (;;) {
        switch (import_reader_next(r, &event)) {
        case IMPORT_MORE:
            return;
        case IMPORT_EVENT:
            buf_addf(out, "%llu: %lld %s %s\n", (unsigned long long)r->line, (long long)event.at_ms,
                     log_quote(event.user), log_quote(event.item));
            break;
        case IMPORT_BAD:
            assert_int_equal(r->err.code, ERR_INVALID);
            buf_addf(out, "%llu: %s\n", (unsigned long long)r->line, r->err.text);
            break;
        }
    }
}

static void put(struct import_reader *r, const char *bytes, size_t len, struct buf *out)
{
    while (len > 0) {
        size_t size;
        char *room = import_reader_room(r, &size);
        assert_true(size >= 128 * 1024);
        size = len < size ? len : size;
        memcpy(room, bytes, size);
        import_reader_filled(r, size);
        drain(r, out);
        bytes += size;
        len -= size;
    }
}

static void finish(struct import_reader *r, struct buf *out)
{
    size_t size;
    import_reader_room(r, &size);
    import_reader_filled(r, 0);
    drain(r, out);
    buf_add(out, "", 1);
    assert_false(out->failed);
}

/* The transcript when the bytes come in two pieces (the first of `split` bytes), or one by one (SIZE_MAX). */
static char *transcript(const struct import_rules *rules, struct slice text, size_t split)
{
    struct import_reader r;
    struct buf out = {0};
    assert_int_equal(import_reader_init(&r, rules), 0);
    if (split == SIZE_MAX) {
        for (size_t i = 0; i < text.len; i++) {
            put(&r, text.data + i, 1, &out);
        }
    } else {
        put(&r, text.data, split, &out);
        put(&r, text.data + split, text.len - split, &out);
    }
    finish(&r, &out);
    import_reader_free(&r);
    return out.data;
}

static void expect_by(const struct import_rules *rules, struct slice text, const char *expected)
{
    for (size_t split = 0; split <= text.len; split++) {
        char *got = transcript(rules, text, split);
        if (strcmp(got, expected) != 0) {
            print_error("split at %zu of %s\n", split, log_quote(text));
        }
        assert_string_equal(got, expected);
        free(got);
    }
    char *got = transcript(rules, text, SIZE_MAX);
    assert_string_equal(got, expected);
    free(got);
}

static struct import_rules rules_of(enum import_format format)
{
    struct import_rules rules;
    import_rules_init(&rules);
    rules.format = format;
    return rules;
}

static void expect(enum import_format format, struct slice text, const char *expected)
{
    struct import_rules rules = rules_of(format);
    expect_by(&rules, text, expected);
}

static void expect_escapes(enum import_escapes escapes, struct slice text, const char *expected)
{
    struct import_rules rules = rules_of(IMPORT_TSV);
    rules.escapes = escapes;
    expect_by(&rules, text, expected);
}

#define TEXT(literal) slice_of("" literal, sizeof(literal) - 1)

static void test_tsv(void **state)
{
    (void)state;
    expect(IMPORT_AUTO,
           TEXT("\xef\xbb\xbf"
                "unix_ms\tuser\titem\r\n"
                "1383782400000\tu42\tvideo:7\r\n"
                "\n"
                "\r\n"
                "-5\t\"a\tb\"\n"
                "1383782400001\tu 1,{\tx\0y\n"
                "unix_ms\tuser\titem\n"
                "100000000000\ta\tb"),
           "2: 1383782400000 \"u42\" \"video:7\"\n"
           "5: -5 \"\\\"a\" \"b\\\"\"\n"
           "6: 1383782400001 \"u 1,{\" \"x\\u0000y\"\n"
           "7: unix_ms is \"unix_ms\", expected a whole number of milliseconds since 1970\n"
           "8: 100000000000 \"a\" \"b\"\n");
}

static void test_csv(void **state)
{
    (void)state;
    expect(IMPORT_AUTO,
           TEXT("\"unix_ms\",user,\"item\"\r\n"
                "1383782400000,\"a,b\",c\r\n"
                "\"1383782400001\",\"say \"\"hi\"\"\",\"\"\"\"\n"
                "1383782400002,\"two\nlines\r\n\",\"x\"\r\n"
                "\n"
                "1383782400003,plain,last\r\n"
                "1383782400004,q,\"end\"\r"),
           "2: 1383782400000 \"a,b\" \"c\"\n"
           "3: 1383782400001 \"say \\\"hi\\\"\" \"\\\"\"\n"
           "4: 1383782400002 \"two\\nlines\\r\\n\" \"x\"\n"
           "8: 1383782400003 \"plain\" \"last\"\n"
           "9: 1383782400004 \"q\" \"end\"\n");
}

static void test_header_comes_first(void **state)
{
    (void)state;
    expect(IMPORT_AUTO,
           TEXT("1383782400000,\"a\",b\n"
                "unix_ms,user,item\n"),
           "1: 1383782400000 \"a\" \"b\"\n"
           "2: unix_ms is \"unix_ms\", expected a whole number of milliseconds since 1970\n");
    expect(IMPORT_TSV, TEXT("\n\nunix_ms\tuser\titem\n"), "");
    expect(IMPORT_CSV, TEXT("unix_ms,user,\"item\""), "");
    expect(IMPORT_CSV, TEXT("unix_ms,user,thing\n"),
           "1: unix_ms is \"unix_ms\", expected a whole number of milliseconds since 1970\n");
}

static void test_csv_bad_quotes_cost_one_line(void **state)
{
    (void)state;
    expect(IMPORT_CSV,
           TEXT("1383782400000,\"open,x\n"
                "1383782400001,a,b\n"
                "1383782400002,\"c\",d\n"
                "1383782400003,e\"f,g\n"
                "1383782400004,\"e\"f,g\n"
                "1383782400005,\"e\"\r,g\n"
                "1383782400006,h,i\n"
                "1383782400007,\"j,\n"
                "1383782400008,k,l\n"),
           "1: text after a closing quote\n"
           "2: 1383782400001 \"a\" \"b\"\n"
           "3: 1383782400002 \"c\" \"d\"\n"
           "4: a quote inside a field that doesn't begin with one\n"
           "5: text after a closing quote\n"
           "6: text after a closing quote\n"
           "7: 1383782400006 \"h\" \"i\"\n"
           "8: a quote isn't closed before the end of the input\n"
           "9: 1383782400008 \"k\" \"l\"\n");
}

/* What stands inside quotes is never taken for a record, whatever is wrong with its own. */
static void test_csv_bad_record_is_dropped_whole(void **state)
{
    (void)state;
    expect(IMPORT_CSV,
           TEXT("x,\"u\n"
                "1383782400001,a,b\n"
                "\",c\n"
                "1383782400002,d,e\n"),
           "1: unix_ms is \"x\", expected a whole number of milliseconds since 1970\n"
           "4: 1383782400002 \"d\" \"e\"\n");
}

static void test_ndjson(void **state)
{
    (void)state;
    expect(IMPORT_AUTO,
           TEXT("{\"unix_ms\":1383782400000,\"user\":\"u42\",\"item\":\"video:7\"}\n"
                " { \"item\" : 7 , \"user\" : -42 , \"unix_ms\" : \"1383782400001\" } \r\n"
                "\n"
                "{\"a\":[1,[2.5e-3,{}],{\"b\":null}],\"unix_ms\":1383782400002,\"c\":true,\"user\":\"\\u0041\\n\\\\"
                "\\\"\\/\",\"item\":\"\\u00e4\\u20ac\\ud83d\\ude00\\u0000\",\"d\":\"\\t\"}\n"
                "{\"unix\\u005fms\":1383782400003,\"user\":\"\xc3\xa4\",\"item\":\"{\"}\n"
                "{\"unix_ms\":1383782400004,\"user\":\"\\u007F\\u0080\\u07ff\",\"item\":\"\\u0800\\uFFFF\"}"),
           "1: 1383782400000 \"u42\" \"video:7\"\n"
           "2: 1383782400001 \"-42\" \"7\"\n"
           "4: 1383782400002 \"A\\n\\\\\\\"/\" \"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\\u0000\"\n"
           "5: 1383782400003 \"\xc3\xa4\" \"{\"\n"
           "6: 1383782400004 \"\\u007f\\u0080\xdf\xbf\" \"\xe0\xa0\x80\xef\xbf\xbf\"\n");
}

static void test_format_is_given(void **state)
{
    (void)state;
    expect(IMPORT_TSV, TEXT("1383782400000\ta,b\tc\n"), "1: 1383782400000 \"a,b\" \"c\"\n");
    expect(IMPORT_TSV, TEXT("1383782400000,a,b\n"),
           "1: expected 3 fields (unix_ms, user, item) separated by tabs, found 1\n");
    expect(IMPORT_CSV, TEXT("1383782400000,a\tx,b\n"), "1: 1383782400000 \"a\\tx\" \"b\"\n");
    expect(IMPORT_NDJSON, TEXT("1383782400000,a,b\n"), "1: expected \"{\" at byte 1\n");
}

static void test_no_format_yet(void **state)
{
    (void)state;
    expect(IMPORT_AUTO, TEXT("GIF89a\n1383782400000\ta\tb\n"),
           "1: neither TSV nor CSV nor NDJSON: expected unix_ms, user, item\n"
           "2: 1383782400000 \"a\" \"b\"\n");
    expect(IMPORT_AUTO, TEXT(""), "");
    expect(IMPORT_AUTO, TEXT("\xef\xbb\xbf"), "");
    expect(IMPORT_AUTO, TEXT("\xef\xbb"), "1: neither TSV nor CSV nor NDJSON: expected unix_ms, user, item\n");
    expect(IMPORT_AUTO, TEXT("\r\n\n\r"), "");
}

/* What psql, mysql and ClickHouse print and read. The first two lines are PostgreSQL 15's, byte for byte. */
static void test_escapes(void **state)
{
    (void)state;
    expect_escapes(IMPORT_ESCAPES_PSQL,
                   TEXT("1383782400000\tu1\tC:\\\\media\\\\new\n"
                        "1383782400001\t\\N\tanonymous\n"
                        "1383782400002\tu1\t\\N\n"
                        "1383782400003\tu1\ttwo\\tcolumns\\nand\\rall\\b\\f\\v\n"
                        "1383782400004\tu1\t\\101\\x42\\x4g\\7\\'\\m\\\\N\n"
                        "1383782400005\tu1\tcut\\x\n"
                        "\\N\tu1\tx\n"
                        "1383782400006\tNULL\t\\\\.\n"
                        "\\.\n"),
                   "1: 1383782400000 \"u1\" \"C:\\\\media\\\\new\"\n"
                   "2: user (column 2) is NULL\n"
                   "3: item (column 3) is NULL\n"
                   "4: 1383782400003 \"u1\" \"two\\tcolumns\\nand\\rall\\u0008\\u000c\\u000b\"\n"
                   "5: 1383782400004 \"u1\" \"AB\\u0004g\\u0007'm\\\\N\"\n"
                   "6: item (column 3) has an escape that is cut off\n"
                   "7: unix_ms (column 1) is NULL\n"
                   "8: 1383782400006 \"NULL\" \"\\\\.\"\n");
    expect_escapes(IMPORT_ESCAPES_MYSQL,
                   TEXT("at\tuser\titem\n"
                        "1383782400000\tu1\tC:\\\\media\\\\new\n"
                        "1383782400001\tNULL\ta\n"
                        "1383782400002\t\\N\ta\n"
                        "1383782400003\tu1\ta\\0b\\Zc\\td\\ne\\x41\n"
                        "1383782400004\tu\\\t1\tone\\\nline\n"
                        "1383782400005\tu1\tends\\\\\n"
                        "1383782400006\tu1\tlast\\"),
                   "2: 1383782400000 \"u1\" \"C:\\\\media\\\\new\"\n"
                   "3: user (column 2) is NULL\n"
                   "4: user (column 2) is NULL\n"
                   "5: 1383782400003 \"u1\" \"a\\u0000b\\u001ac\\td\\nex41\"\n"
                   "6: 1383782400004 \"u\\t1\" \"one\\nline\"\n"
                   "8: 1383782400005 \"u1\" \"ends\\\\\"\n"
                   "9: item (column 3) has an escape that is cut off\n");
    expect_escapes(IMPORT_ESCAPES_CLICKHOUSE,
                   TEXT("1383782400000\tu1\tit\\'s \\\\new\\t\\n\\0\\b\\f\\r\n"
                        "1383782400001\t\\N\ta\n"
                        "1383782400002\tNULL\t100\\%\\x41\\a\\e\\N.\n"
                        "1383782400003\tu1\t\\x4\n"
                        "1383782400004\tu1\ta\\=b\\/\\`\\\"\\\x7f\n"),
                   "1: 1383782400000 \"u1\" \"it's \\\\new\\t\\n\\u0000\\u0008\\u000c\\r\"\n"
                   "2: user (column 2) is NULL\n"
                   "3: 1383782400002 \"NULL\" \"100\\\\%A\\u0007\\u001b.\"\n"
                   "4: item (column 3) has an escape that is cut off\n"
                   "5: 1383782400004 \"u1\" \"a=b/`\\\"\\\\\\u007f\"\n");
    expect_escapes(IMPORT_ESCAPES_NONE, TEXT("1383782400000\t\\N\tC:\\new\n1383782400001\tNULL\ta\\\n"),
                   "1: 1383782400000 \"\\\\N\" \"C:\\\\new\"\n"
                   "2: 1383782400001 \"NULL\" \"a\\\\\"\n");
}

/* MariaDB 10.11's, byte for byte, of one table with varbinary columns:
 *   mariadb -BN -e 'select * from p'
 *   select * from p into outfile '/tmp/p.tsv'
 * The last but two items are a backslash and an N, and the word NULL; the last one is no value. */
static void test_escapes_of_mariadb(void **state)
{
    (void)state;
    static const char *const ids[] = {
        "\"plain\" \"video:1\"",        "\"tab\" \"a\\tb\"",
        "\"newline\" \"a\\nb\"",        "\"return\" \"a\\rb\"",
        "\"backslash\" \"C:\\\\new\"",  "\"twice\" \"\\\\\\\\n\"",
        "\"zero\" \"a\\u0000b\"",       "\"ctrl-z\" \"a\\u001ab\"",
        "\"backspace\" \"a\\u0008b\"",  "\"quotes\" \"'\\\"\"",
        "\"bytes\" \"\\\\xff\\\\x80\"", "\"N\" \"\\\\N\"",
    };
    char batch[2048] = "", outfile[2048] = "";
    for (int i = 0; i < 14; i++) {
        char *to = batch + strlen(batch), *into = outfile + strlen(outfile);
        int line = i + 1, next = i < 3 ? i + 1 : i + 2; /* an escaped newline begins a line */
        if (i < 12) {
            sprintf(to, "%d: 1795000000000 %s\n", line, ids[i]);
            sprintf(into, "%d: 1795000000000 %s\n", next, ids[i]);
        } else {
            sprintf(to, "%d: item (column 3) is NULL\n", line);
            sprintf(into, "%d: item (column 3) is NULL\n", next);
        }
    }
    expect_escapes(IMPORT_ESCAPES_MYSQL,
                   TEXT("1795000000000\tplain\tvideo:1\n"
                        "1795000000000\ttab\ta\\tb\n"
                        "1795000000000\tnewline\ta\\nb\n"
                        "1795000000000\treturn\ta\rb\n"
                        "1795000000000\tbackslash\tC:\\\\new\n"
                        "1795000000000\ttwice\t\\\\\\\\n\n"
                        "1795000000000\tzero\ta\\0b\n"
                        "1795000000000\tctrl-z\ta\x1a"
                        "b\n"
                        "1795000000000\tbackspace\ta\x08"
                        "b\n"
                        "1795000000000\tquotes\t'\"\n"
                        "1795000000000\tbytes\t\xff\x80\n"
                        "1795000000000\tN\t\\\\N\n"
                        "1795000000000\tword\tNULL\n"
                        "1795000000000\tnull\tNULL\n"),
                   batch);
    expect_escapes(IMPORT_ESCAPES_MYSQL,
                   TEXT("1795000000000\tplain\tvideo:1\n"
                        "1795000000000\ttab\ta\\\tb\n"
                        "1795000000000\tnewline\ta\\\n"
                        "b\n"
                        "1795000000000\treturn\ta\rb\n"
                        "1795000000000\tbackslash\tC:\\\\new\n"
                        "1795000000000\ttwice\t\\\\\\\\n\n"
                        "1795000000000\tzero\ta\\0b\n"
                        "1795000000000\tctrl-z\ta\x1a"
                        "b\n"
                        "1795000000000\tbackspace\ta\x08"
                        "b\n"
                        "1795000000000\tquotes\t'\"\n"
                        "1795000000000\tbytes\t\xff\x80\n"
                        "1795000000000\tN\t\\\\N\n"
                        "1795000000000\tword\tNULL\n"
                        "1795000000000\tnull\t\\N\n"),
                   outfile);
}

/* Nothing in a file tells C:\new, written as it is, from a C: and a newline. */
static void test_escapes_without_a_word(void **state)
{
    (void)state;
    static const char ask[] =
        ": say with --escapes psql, mysql or clickhouse who wrote it, or with --escapes none that it "
        "stands for itself\n";
    char expected[1024];
    snprintf(expected, sizeof expected,
             "1: 1383782400000 \"u1\" \"a\"\n2: item (column 3) holds a backslash%s3: user (column 2) is NULL\n"
             "4: user (column 2) is the word NULL%s5: user (column 2) holds a backslash%s",
             ask, ask, ask);
    expect(IMPORT_AUTO,
           TEXT("1383782400000\tu1\ta\n1383782400000\tu1\tC:\\\\new\n1383782400000\t\\N\ta\n1383782400000\tNULL\ta\n"
                "1383782400000\tu\\1\ta\n"),
           expected);
    /* RFC 4180 has no escapes; ClickHouse's CSV has a NULL. */
    expect(
        IMPORT_CSV,
        TEXT("1383782400000,u\\1,C:\\new\n1383782400000,\\N,a\n1383782400000,\"\\N\",\"a\"\n1383782400000,\"u\",\\N\n"),
        "1: 1383782400000 \"u\\\\1\" \"C:\\\\new\"\n"
        "2: user (column 2) is NULL\n"
        "3: 1383782400000 \"\\\\N\" \"a\"\n"
        "4: item (column 3) is NULL\n");
}

static void test_columns(void **state)
{
    (void)state;
    struct import_rules rules = rules_of(IMPORT_AUTO);
    struct err err;
    assert_int_equal(import_columns_parse("user,-,item,-,time", &rules.columns, &err), 0);
    expect_by(&rules,
              TEXT("user_id,plan,video,\"n\\\",watched\n"
                   "u1,\\N,\"i,1\",x,1383782400000\n"
                   "u1,free,i2,x,soon\n"
                   "u1,free,i2,1383782400000\n"
                   "u1,\"\\N\",\\N,\"x\",1383782400000\n"),
              "2: 1383782400000 \"u1\" \"i,1\"\n"
              "3: unix_ms is \"soon\", expected a whole number of milliseconds since 1970\n"
              "4: expected 5 fields (user,-,item,-,time) separated by commas, found 4\n"
              "5: item (column 3) is NULL\n");
    rules.format = IMPORT_TSV;
    expect_by(&rules, TEXT("u1\tC:\\x\ti\t\\N\t1383782400000\n"), "1: 1383782400000 \"u1\" \"i\"\n");
    rules.format = IMPORT_AUTO;
    expect_by(&rules, TEXT("{\"unix_ms\":1383782400000,\"user\":\"u\",\"item\":\"i\"}\n"),
              "1: a line of NDJSON, which names its fields, and --columns is for TSV and CSV\n");
    static const char *const wrong[][2] = {
        {"", "'' is none of time, user, item and -"},
        {"time,user", "item is missing"},
        {"time,user,item,", "'' is none of time, user, item and -"},
        {"time,user,item,user", "user is named twice"},
        {"time, user,item", "' user' is none of time, user, item and -"},
        {"-", "time is missing"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(import_columns_parse(wrong[i][0], &rules.columns, &err), ERR_INVALID);
        assert_string_equal(err.text, wrong[i][1]);
    }
    char many[2 * IMPORT_COLUMNS_MAX + 32] = "time,user,item";
    while (strlen(many) < 14 + 2 * (IMPORT_COLUMNS_MAX - 3)) {
        strcat(many, ",-");
    }
    assert_int_equal(import_columns_parse(many, &rules.columns, &err), 0);
    assert_int_equal(import_columns_parse(strcat(many, ",-"), &rules.columns, &err), ERR_INVALID);
}

static void test_time_units(void **state)
{
    (void)state;
    static const struct {
        enum unix_unit unit;
        const char *name, *good, *other, *reason;
    } units[] = {
        {UNIX_S, "unix_s", "1383782400", "1383782400000", "which looks like milliseconds, expected seconds"},
        {UNIX_S, "unix_s", "1383782400.0009", "soon", "expected a number of seconds since 1970"},
        {UNIX_MS, "unix_ms", "1383782400000", "1383782400000000",
         "which looks like microseconds, expected milliseconds"},
        {UNIX_US, "unix_us", "1383782400000999", "1383782400000",
         "which looks like milliseconds, expected microseconds"},
        {UNIX_US, "unix_us", "1383782400000999", "1.5", "expected a whole number of microseconds since 1970"},
        {UNIX_NS, "unix_ns", "1383782400000999999", "1383782400", "which looks like seconds, expected nanoseconds"},
    };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        struct import_rules rules = rules_of(IMPORT_AUTO);
        char text[256], expected[256];
        rules.unit = units[i].unit;
        snprintf(text, sizeof text, "%s,user,item\n%s,u,i\n%s,u,i\n", units[i].name, units[i].good, units[i].other);
        snprintf(expected, sizeof expected, "2: 1383782400000 \"u\" \"i\"\n3: %s is \"%s\", %s\n", units[i].name,
                 units[i].other, units[i].reason);
        expect_by(&rules, slice_str(text), expected);
        snprintf(text, sizeof text, "{\"%s\":%s,\"user\":\"u\",\"item\":\"i\"}", units[i].name, units[i].good);
        expect_by(&rules, slice_str(text), "1: 1383782400000 \"u\" \"i\"\n");
    }
}

/* The bytes of each record, as they came, whatever decoding did to them. */
static void test_raw(void **state)
{
    (void)state;
    static const char text[] = "1383782400000,\"a \"\"b\"\"\",c\n\n1,\"two\nlines\",c\r\n1383782400000,x,y";
    static const char *const raw[] = {"1383782400000,\"a \"\"b\"\"\",c", "1,\"two\nlines\",c\r", "1383782400000,x,y"};
    struct import_rules rules = rules_of(IMPORT_CSV);
    struct import_reader r;
    struct import_event event;
    size_t room, n = 0;
    rules.keep = true;
    assert_int_equal(import_reader_init(&r, &rules), 0);
    memcpy(import_reader_room(&r, &room), text, sizeof text - 1);
    import_reader_filled(&r, sizeof text - 1);
    for (int pass = 0; pass < 2; pass++) {
        while (import_reader_next(&r, &event) != IMPORT_MORE) {
            assert_true(n < 3 && slice_eq(r.raw, slice_str(raw[n])));
            n++;
        }
        import_reader_room(&r, &room);
        import_reader_filled(&r, 0);
    }
    assert_int_equal(n, 3);
    import_reader_free(&r);
}

static const struct {
    const char *line, *reason;
} bad_tsv[] = {
    {"1383782400000\ta", "expected 3 fields (unix_ms, user, item) separated by tabs, found 2"},
    {"1383782400000\ta\tb\t4", "expected 3 fields (unix_ms, user, item) separated by tabs, found 4"},
    {"1383782400000\t\tb", "user is empty"},
    {"1383782400000\ta\t", "item is empty"},
    {"\ta\tb", "unix_ms is empty"},
    {"-\ta\tb", "unix_ms is \"-\", expected a whole number of milliseconds since 1970"},
    {"+1383782400000\ta\tb", "unix_ms is \"+1383782400000\", expected a whole number of milliseconds since 1970"},
    {" 1383782400000\ta\tb", "unix_ms is \" 1383782400000\", expected a whole number of milliseconds since 1970"},
    {"1383782400000.5\ta\tb", "unix_ms is \"1383782400000.5\", expected a whole number of milliseconds since 1970"},
    {"2013-11-07T00:00:00Z\ta\tb",
     "unix_ms is \"2013-11-07T00:00:00Z\", expected a whole number of milliseconds since 1970"},
    {"1383782400\ta\tb", "unix_ms is \"1383782400\", which looks like seconds, expected milliseconds"},
    {"1\ta\tb", "unix_ms is \"1\", which looks like seconds, expected milliseconds"},
    {"99999999999\ta\tb", "unix_ms is \"99999999999\", which looks like seconds, expected milliseconds"},
    {"1383782400000000\ta\tb", "unix_ms is \"1383782400000000\", which looks like microseconds, expected milliseconds"},
    {"1383782400000000000\ta\tb",
     "unix_ms is \"1383782400000000000\", which looks like nanoseconds, expected milliseconds"},
    {"184467440737095516161\ta\tb", "unix_ms is \"184467440737095516161\", out of range"},
    {"9223372036854775808\ta\tb", "unix_ms is \"9223372036854775808\", out of range"},
    {"99999999999999999999999999999999999999999999\ta\tb",
     "unix_ms is \"9999999999999999999999999999999999999999\", out of range"},
};

static const struct {
    const char *line, *reason;
} bad_json[] = {
    {"{\"unix_ms\":1383782400000,\"user\":\"a\"}", "item is missing"},
    {"{\"unix_ms\":1383782400000,\"item\":\"a\"}", "user is missing"},
    {"{}", "unix_ms is missing"},
    {"{\"unix_ms\":1383782400000,\"user\":\"a\",\"item\":\"\"}", "item is empty"},
    {"{\"user\":\"a\",\"user\":\"b\"}", "user is given twice"},
    {"{\"user\":1.0}", "user is neither a string nor a whole number"},
    {"{\"user\":1e3}", "user is neither a string nor a whole number"},
    {"{\"item\":null}", "item is neither a string nor a whole number"},
    {"{\"item\":[1]}", "item is neither a string nor a whole number"},
    {"{\"unix_ms\":true}", "unix_ms is neither a string nor a whole number"},
    {"{\"unix_ms\":1.5e12,\"user\":1,\"item\":2}",
     "unix_ms is \"1.5e12\", expected a whole number of milliseconds since 1970"},
    {"{\"unix_ms\":1383782400,\"user\":1,\"item\":2}",
     "unix_ms is \"1383782400\", which looks like seconds, expected milliseconds"},
    {"{\"user\":01}", "a number with a leading zero at byte 11"},
    {"{\"user\":-}", "expected a value at byte 10"},
    {"{\"user\":1.}", "expected a digit at byte 11"},
    {"{\"user\":1e+}", "expected a digit at byte 12"},
    {"{\"a\":nul}", "expected a value at byte 6"},
    {"{\"a\":}", "expected a value at byte 6"},
    {"{\"a\"}", "expected \":\" at byte 5"},
    {"{\"a\" 1}", "expected \":\" at byte 6"},
    {"{a:1}", "expected a key at byte 2"},
    {"{,}", "expected a key at byte 2"},
    {"{\"a\":1,}", "expected a key at byte 8"},
    {"{\"a\":1 \"b\":2}", "expected \",\" or \"}\" at byte 8"},
    {"{\"a\":1", "expected \",\" or \"}\" at byte 7"},
    {"{\"a\":[1 2]}", "expected \",\" or \"]\" at byte 9"},
    {"{\"a\":[1,]}", "expected a value at byte 9"},
    {"{\"a\":{\"b\":1,}}", "expected a key at byte 13"},
    {"{\"a\":{\"b\":1", "expected \",\" or \"}\" at byte 12"},
    {"{\"a\":1}{", "text after the object at byte 8"},
    {"{\"user\":\"a", "a string isn't closed at byte 11"},
    {"{\"user\":\"a\tb\"}", "a raw control character in a string at byte 11"},
    {"{\"user\":\"\\x41\"}", "unknown escape at byte 11"},
    {"{\"user\":\"\\", "unknown escape at byte 11"},
    {"{\"user\":\"\\u12g4\"}", "expected four hex digits after \\u at byte 12"},
    {"{\"user\":\"\\u12", "expected four hex digits after \\u at byte 12"},
    {"{\"user\":\"\\ud83d\"}", "half of a surrogate pair at byte 16"},
    {"{\"user\":\"\\ud83d\\n\"}", "half of a surrogate pair at byte 16"},
    {"{\"user\":\"\\ud83d\\u0041\"}", "half of a surrogate pair at byte 16"},
    {"{\"user\":\"\\ud83d\\ue000\"}", "half of a surrogate pair at byte 16"},
    {"{\"user\":\"\\udc00\"}", "half of a surrogate pair at byte 12"},
    {"{\"user\":\"\\udfff\"}", "half of a surrogate pair at byte 12"},
    {"[1]", "expected \"{\" at byte 1"},
};

/* A good line follows each, so that the reader is seen to go on. */
static void test_bad_lines(void **state)
{
    (void)state;
    char text[512], expected[512];
    for (size_t i = 0; i < sizeof(bad_tsv) / sizeof(bad_tsv[0]); i++) {
        snprintf(text, sizeof(text), "%s\n1383782400000\ta\tb\n", bad_tsv[i].line);
        snprintf(expected, sizeof(expected), "1: %s\n2: 1383782400000 \"a\" \"b\"\n", bad_tsv[i].reason);
        expect(IMPORT_TSV, slice_str(text), expected);
    }
    for (size_t i = 0; i < sizeof(bad_json) / sizeof(bad_json[0]); i++) {
        snprintf(text, sizeof(text), "%s\n{\"unix_ms\":1383782400000,\"user\":1,\"item\":2}\n", bad_json[i].line);
        snprintf(expected, sizeof(expected), "1: %s\n2: 1383782400000 \"1\" \"2\"\n", bad_json[i].reason);
        expect(IMPORT_NDJSON, slice_str(text), expected);
    }
}

static void test_id_length(void **state)
{
    (void)state;
    char text[1024], id[257];
    memset(id, 'x', 256);
    id[256] = '\0';
    snprintf(text, sizeof(text), "1383782400000\t%.255s\t%.256s\n", id, id);
    expect(IMPORT_TSV, slice_str(text), "1: item is 256 bytes long, at most 255 are allowed\n");
    snprintf(text, sizeof(text), "1383782400000,\"%.256s\",%.255s\n", id, id);
    expect(IMPORT_CSV, slice_str(text), "1: user is 256 bytes long, at most 255 are allowed\n");

    /* The limit holds for what an id means, not for how it is written. */
    struct buf json = {0}, csv = {0}, shown = {0};
    for (int i = 0; i < 255; i++) {
        buf_addf(&json, "\\u0061");
        buf_addf(&csv, "\"\"");
        buf_addf(&shown, i < 200 ? "a" : i == 200 ? "..." : "");
    }
    struct buf line = {0}, expected = {0};
    buf_addf(&line, "{\"unix_ms\":1383782400000,\"user\":\"%.*s\",\"item\":1}", (int)json.len, json.data);
    buf_addf(&expected, "1: 1383782400000 \"%.*s\" \"1\"\n", (int)shown.len, shown.data);
    buf_add(&expected, "", 1);
    expect(IMPORT_NDJSON, buf_slice(&line), expected.data);
    buf_clear(&line);
    buf_addf(&line, "1383782400000,\"%.*s\"\"\",1", (int)csv.len, csv.data);
    expect(IMPORT_CSV, buf_slice(&line), "1: user is 256 bytes long, at most 255 are allowed\n");
    buf_free(&json);
    buf_free(&csv);
    buf_free(&shown);
    buf_free(&line);
    buf_free(&expected);
}

/* The interesting splits only: these texts are long. */
static void expect_long(enum import_format format, struct slice text, const char *expected)
{
    static const size_t around[] = {0, IMPORT_LINE_MAX, 2 * IMPORT_LINE_MAX};
    struct import_rules rules = rules_of(format);
    for (size_t i = 0; i < 3; i++) {
        for (size_t j = 0; j < 64; j++) {
            size_t split = around[i] + j < 32 ? 0 : around[i] + j - 32;
            char *got = transcript(&rules, text, split < text.len ? split : text.len);
            assert_string_equal(got, expected);
            free(got);
        }
    }
    char *got = transcript(&rules, text, SIZE_MAX);
    assert_string_equal(got, expected);
    free(got);
}

/* "1383782400000<separator>u<separator>", then x's up to `len` bytes, a newline and one good line. */
static struct buf long_line(const char *format, size_t len)
{
    struct buf b = {0};
    buf_addf(&b, "%s", format);
    assert_int_equal(buf_reserve(&b, len), 0);
    memset(b.data + b.len, 'x', len - b.len);
    b.len = len;
    return b;
}

static void test_line_length(void **state)
{
    (void)state;
    for (int over = 0; over < 2; over++) {
        struct buf b = long_line("1383782400000\tu\t", IMPORT_LINE_MAX + (size_t)over);
        buf_addf(&b, "\n1383782400001\ta\tb\n");
        expect_long(IMPORT_AUTO, buf_slice(&b),
                    over ? "1: the line is longer than 65536 bytes\n"
                           "2: 1383782400001 \"a\" \"b\"\n"
                         : "1: item is 65520 bytes long, at most 255 are allowed\n"
                           "2: 1383782400001 \"a\" \"b\"\n");
        buf_free(&b);
    }
    /* Longer than the reader's memory, and never ended. */
    struct buf b = long_line("1383782400000\tu\t", 700 * 1024);
    expect_long(IMPORT_AUTO, buf_slice(&b), "1: the line is longer than 65536 bytes\n");
    buf_free(&b);
}

static void test_csv_record_length(void **state)
{
    (void)state;
    for (int over = 0; over < 2; over++) {
        struct buf b = long_line("1383782400000,\"\n", IMPORT_LINE_MAX - 3 + (size_t)over);
        buf_addf(&b, "\",i\n1383782400001,a,b");
        expect_long(IMPORT_AUTO, buf_slice(&b),
                    over ? "1: a quote isn't closed within 65536 bytes\n"
                           "2: a quote inside a field that doesn't begin with one\n"
                           "3: 1383782400001 \"a\" \"b\"\n"
                         : "1: user is 65518 bytes long, at most 255 are allowed\n"
                           "3: 1383782400001 \"a\" \"b\"\n");
        buf_free(&b);
    }
    /* A record that would end with the input, one byte too late. */
    struct buf b = long_line("1383782400000,u,\"\n", IMPORT_LINE_MAX);
    buf_addf(&b, "\"");
    expect_long(IMPORT_AUTO, buf_slice(&b),
                "1: a quote isn't closed within 65536 bytes\n"
                "2: a quote inside a field that doesn't begin with one\n");
    buf_free(&b);
}

static void test_json_depth(void **state)
{
    (void)state;
    for (int over = 0; over < 2; over++) {
        struct buf b = {0};
        int depth = 32 + over;
        buf_addf(&b, "{\"a\":");
        for (int i = 0; i < depth; i++) {
            buf_addf(&b, i % 2 == 0 ? "[" : "{\"k\":");
        }
        buf_addf(&b, "1");
        for (int i = depth - 1; i >= 0; i--) {
            buf_addf(&b, i % 2 == 0 ? "]" : "}");
        }
        buf_addf(&b, ",\"unix_ms\":1383782400000,\"user\":1,\"item\":2}");
        expect(IMPORT_NDJSON, buf_slice(&b),
               over ? "1: nested too deeply at byte 102\n" : "1: 1383782400000 \"1\" \"2\"\n");
        buf_free(&b);
    }
}

/* More than one fill of the reader's memory, in each format, in pieces of odd sizes. */
static void test_many(void **state)
{
    (void)state;
    static const char *const formats[] = {"%lld\tu%d\ti%d\n", "%lld,\"u%d\",i%d\r\n",
                                          "{\"item\":\"i%3$d\",\"user\":\"u%2$d\",\"unix_ms\":%1$lld}\n"};
    enum { MANY = 30000 };
    struct import_rules rules = rules_of(IMPORT_AUTO);
    for (size_t f = 0; f < 3; f++) {
        struct buf b = {0};
        for (int i = 0; i < MANY; i++) {
            char line[96];
            int n = snprintf(line, sizeof(line),
                             f == 0   ? formats[0]
                             : f == 1 ? formats[1]
                                      : formats[2],
                             1383782400000LL + i, i % 977, i);
            buf_add(&b, line, (size_t)n);
        }
        struct import_reader r;
        assert_int_equal(import_reader_init(&r, &rules), 0);
        int count = 0;
        size_t used = 0;
        for (size_t step = 1;; step = step * 7 % 50021) {
            size_t size;
            char *room = import_reader_room(&r, &size);
            size = step < size ? step : size;
            size = size < b.len - used ? size : b.len - used;
            memcpy(room, b.data + used, size);
            used += size;
            import_reader_filled(&r, size);
            struct import_event event;
            enum import_answer answer;
            while ((answer = import_reader_next(&r, &event)) != IMPORT_MORE) {
                char user[16], item[16];
                snprintf(user, sizeof(user), "u%d", count % 977);
                snprintf(item, sizeof(item), "i%d", count);
                assert_int_equal(answer, IMPORT_EVENT);
                assert_true(slice_eq(event.user, slice_str(user)));
                assert_true(slice_eq(event.item, slice_str(item)));
                assert_true(event.at_ms == 1383782400000LL + count);
                count++;
                assert_int_equal(r.line, count);
            }
            if (size == 0) {
                break;
            }
        }
        assert_int_equal(count, MANY);
        import_reader_free(&r);
        buf_free(&b);
    }
}

static void test_restart(void **state)
{
    (void)state;
    struct import_reader r;
    struct buf out = {0};
    struct import_rules rules = rules_of(IMPORT_AUTO);
    assert_int_equal(import_reader_init(&r, &rules), 0);
    put(&r, "1383782400000,a,b\nx", 19, &out);
    import_reader_restart(&r);
    put(&r, "unix_ms\tuser\titem\n1383782400000\ta\tb", 35, &out);
    finish(&r, &out);
    assert_string_equal(out.data, "1: 1383782400000 \"a\" \"b\"\n2: 1383782400000 \"a\" \"b\"\n");
    import_reader_free(&r);
    buf_free(&out);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const names[] = {"auto", "tsv", "csv", "ndjson"};
    static const enum import_format all[] = {IMPORT_AUTO, IMPORT_TSV, IMPORT_CSV, IMPORT_NDJSON};
    enum import_format format;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(import_format_parse(names[i], &format), 0);
        assert_int_equal(format, all[i]);
    }
    assert_int_equal(import_format_parse("xml", &format), ERR_NOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tsv),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_header_comes_first),
        cmocka_unit_test(test_csv_bad_quotes_cost_one_line),
        cmocka_unit_test(test_csv_bad_record_is_dropped_whole),
        cmocka_unit_test(test_ndjson),
        cmocka_unit_test(test_format_is_given),
        cmocka_unit_test(test_no_format_yet),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_escapes_of_mariadb),
        cmocka_unit_test(test_escapes_without_a_word),
        cmocka_unit_test(test_columns),
        cmocka_unit_test(test_time_units),
        cmocka_unit_test(test_raw),
        cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_id_length),
        cmocka_unit_test(test_line_length),
        cmocka_unit_test(test_csv_record_length),
        cmocka_unit_test(test_json_depth),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
