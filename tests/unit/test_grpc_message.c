/* Messages of gRPC: bytes that python3-protobuf made are understood, replies are the bytes that it would make, and what
 * is broken or forbidden is refused by the field's name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/wire.h"
#include "grpc/message.h"

static struct slice items[FIELDS_SLICES];
static struct buf bytes, out;

static int release(void **state)
{
    (void)state;
    buf_free(&bytes);
    buf_free(&out);
    return 0;
}

static struct slice unhex(const char *hex)
{
    buf_clear(&bytes);
    for (; hex[0] != '\0'; hex += 2) {
        unsigned byte;
        assert_int_equal(sscanf(hex, "%2x", &byte), 1);
        buf_add(&bytes, &(char){(char)byte}, 1);
    }
    assert_int_equal(buf_add(&bytes, "", 1), 0); /* a good byte behind the end, that must not be read */
    return slice_of(bytes.data, bytes.len - 1);
}

static const struct method *method_of(const char *name)
{
    const struct method *method = method_find(slice_str(name));
    assert_non_null(method);
    return method;
}

static void add_id(struct buf *text, struct slice id)
{
    for (size_t i = 0; i < id.len; i++) {
        buf_addf(text, id.data[i] >= ' ' && id.data[i] <= '~' ? "%c" : "\\%02x", (unsigned char)id.data[i]);
    }
}

/* A request as a line. */
static const char *describe(const struct message *m, struct buf *text)
{
    const struct request *rq = &m->asked.rq;
    buf_clear(text);
    buf_addf(text, "%s ", op_names[m->op]);
    add_id(text, rq->user);
    for (size_t i = 0; i < m->asked.n_users; i++) {
        buf_addf(text, i > 0 ? "+" : "");
        add_id(text, m->asked.users[i]);
    }
    buf_addf(text, " [");
    for (size_t i = 0; i < (rq->hashed ? 1 : rq->n); i++) {
        buf_addf(text, i > 0 ? "," : "");
        add_id(text, rq->items[i]);
    }
    buf_addf(text, "]");
    if (rq->hashed) {
        buf_addf(text, " hashes=%zu", rq->n);
    }
    if (rq->seed.data != NULL) {
        buf_addf(text, " seed=");
        add_id(text, rq->seed);
    }
    if (rq->kind == REQUEST_QUESTION) {
        buf_addf(text, " %s", question_forms[rq->form]);
    }
    if (rq->has_limit) {
        buf_addf(text, " limit=%lld", (long long)rq->limit);
    }
    if (rq->has_at) {
        buf_addf(text, " at=%lld", (long long)rq->at_ms);
    }
    if (rq->session.data != NULL) {
        buf_addf(text, " session=");
        add_id(text, rq->session);
    }
    for (size_t i = 0; i < rq->n_pools; i++) {
        buf_addf(text, i > 0 ? "," : " pools=[");
        add_id(text, rq->pools[i]);
        buf_addf(text, i + 1 < rq->n_pools ? "" : "]");
    }
    if (rq->n_pools == 0 && m->asked.names[0].len > 0) {
        buf_addf(text, " page of ");
        add_id(text, m->asked.names[0]);
        buf_addf(text, " from=%llu count=%llu", (unsigned long long)m->asked.from, (unsigned long long)m->asked.count);
    }
    if (rq->version.data != NULL) {
        buf_addf(text, " version=");
        add_id(text, rq->version);
    }
    if (m->asked.tag != 0) {
        buf_addf(text, " tag=%llu", (unsigned long long)m->asked.tag);
    }
    buf_addf(text, "%s%s", rq->deliver ? " deliver" : "", m->binary ? " binary" : "");
    buf_add(text, "", 1);
    return text->data;
}

static void test_good(void **state)
{
    (void)state;
    static const struct {
        const char *method, *hex, *expected;
    } rows[] = {
        {"Filter", "0a0375343212016112026262120018022003280132067363726f6c6c",
         "filter u42 [a,bb,] items limit=3 session=scroll deliver"},
        {"Filter", "0a017512016120ffffffffffffffffff01", "filter u [a] bitmap limit=-1"},
        {"Filter", "3a02ff00420180420161", "filter \\ff\\00 [\\80,a] bitmap binary"},
        {"Filter", "0a02c3bc1203e4bda01204f09f9880", "filter \\c3\\bc [\\e4\\bd\\a0,\\f0\\9f\\98\\80] bitmap"},
        {"Played", "0a01751201611880d8c1a28c3448ffffffffffffffffff01",
         "playedat u [a] at=1790000000000 tag=18446744073709551615"},
        {"PlayedStream", "0a0175120161", "played u [a]"},
        {"Delivered", "0a0175120161", "delivered u [a]"},
        {"Why", "0a0175120161320173", "why u [a] session=s"},
        {"Why", "0a017542018032017a", "why u [\\80] session=z binary"},
        {"Why", "0a01753200", "why u []"},
        {"History", "0a0175", "history u []"},
        {"History", "", "history  []"},
        {"Forget", "0a01751801", "forget u []"},
        {"Forget", "0a0175120161", "forget u [a]"},
        {"Block", "0a0173120137120139", "block  [7,9] session=s"},
        {"Block", "120137", "block  [7] session="},
        {"Unblock", "0a01731801", "unblock  [] session=s"},
        /* Another order, the last one wins, texts given empty, lengths in a longer form, NUL. */
        {"Filter", "1801120161120162180228013200180012016328000a01780a0175", "filter u [a,b,c] bitmap"},
        {"Filter", "0a003a0175128100611281800062", "filter u [a,b] bitmap"},
        {"Filter", "0a017512036100621200", "filter u [a\\00b,] bitmap"},
        /* Pools instead of items. */
        {"Filter", "0a01754a01684a0163521030303030303030303030303030303031",
         "filter u [] bitmap pools=[h,c] version=0000000000000001"},
        {"PoolSet", "0a0168120161120162", "other  [a,b] pools=[h]"},
        {"PoolAdd", "0a0168420180", "other  [\\80] pools=[h] binary"},
        {"PoolRename", "0a01684a0163", "other  [] pools=[h,c]"},
        {"PoolDrop", "0a0168", "other  [] pools=[h]"},
        /* Many users. What is of one user is read, for the service to refuse. */
        {"FilterMany", "0a0275310a02753218022003120161120162", "filter_many u1+u2 [a,b] items limit=3"},
        {"FilterMany", "0a01754a0168521030303030303030303030303030303031",
         "filter_many u [] bitmap pools=[h] version=0000000000000001"},
        {"FilterMany", "3a01ff3a00420180", "filter_many \\ff+ [\\80] bitmap binary"},
        {"FilterMany", "0a017512016128013201737a0161", "filter_many u [a] bitmap session=s deliver"},
        {"PoolList", "", "other  [] bitmap"},
        {"PoolList", "0a01681001", "other  [] bitmap"},
        {"PoolGet", "0a016810ac0218e807521030303030303030303030303030303031",
         "other  [] bitmap page of h from=300 count=1000 version=0000000000000001"},
        {"PoolGet", "0a016810ffffffffffffffffff01", "other  [] bitmap page of h from=18446744073709551615 count=0"},
        /* Hashes instead of items; how long they must be is for the service to say. */
        {"Filter", "0a01755a106162636465666768696a6b6c6d6e6f70620830376639306666341801",
         "filter u [abcdefghijklmnop] hashes=2 seed=07f90ff4 indexes"},
        {"Filter", "0a01755a03414243", "filter u [ABC] hashes=0 bitmap"},
        {"Filter", "0a01755a0851525354555657585a003a005a086162636465666768", "filter u [abcdefgh] hashes=1 bitmap"},
        {"Filter", "0a01751201615a006200", "filter u [a] bitmap"},
        /* Unknown fields of every type: 20 to 23, and 2^29 - 1. */
        {"Filter", "a00101a9010001020304050607ba01030a0b0cb50100010203faffffff0f000a0175120161", "filter u [a] bitmap"},
        {"Played", "0a01752205070707070712016128013201ff", "played u [a]"},
    };
    struct buf text = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct message m;
        struct err err = {0};
        struct slice message = unhex(rows[i].hex);
        assert_string_equal(message_read(method_of(rows[i].method), message, items, &m, &err) < 0 ? err.text : "", "");
        assert_string_equal(describe(&m, &text), rows[i].expected);
        assert_int_equal(m.bytes, message.len);
    }
    buf_free(&text);
}

#define WRAPPER                                                                                                        \
    "a TripleRequestWrapper (hessian2) is not served: call by the stub that Dubbo's compiler makes of unseen.proto, "  \
    "which sends protobuf"

static void test_bad(void **state)
{
    (void)state;
    static const struct {
        const char *method, *hex, *expected;
    } rows[] = {
        /* The encoding. */
        {"Filter", "0a", "user (field 1): the message ends within its length"},
        {"Filter", "0a0261", "user (field 1): is 2 bytes long, and the message ends after 1 of them"},
        {"Filter", "0a0361", "user (field 1): is 3 bytes long, and the message ends after 1 of them"},
        {"Filter", "1203", "items (field 2): is 3 bytes long, and the message ends after 0 of them"},
        {"Filter", "12016112056161", "items (field 2): is 5 bytes long, and the message ends after 2 of them"},
        {"Filter", "12ffffffffffffffffff01",
         "items (field 2): is 18446744073709551615 bytes long, and the message ends after 0 of them"},
        {"Filter", "20ffffffffffffffffff7f", "limit (field 4): its value takes more than 64 bits"},
        {"Filter", "20ffffffffffffffffffff01", "limit (field 4): its value takes more than 64 bits"},
        {"Filter", "20ff", "limit (field 4): the message ends within its value"},
        {"Filter", "80", "the message ends within the number of a field"},
        {"Filter", "ffffffffffffffffffff", "the number of a field takes more than 64 bits"},
        {"Filter", "0001", "a field has number 0, expected 1 to 536870911"},
        {"Filter", "808080801001", "a field has number 536870912, expected 1 to 536870911"},
        {"Filter", "0b0c", "user (field 1): is a group, which proto3 does not have"},
        {"Filter", "a301", "field 20: is a group, which proto3 does not have"},
        {"Filter", "0e", "user (field 1): has wire type 6, which there is not"},
        {"Filter", "09010203", "user (field 1): is 8 bytes long, and the message ends after 3 of them"},
        {"Filter", "ad010102", "field 21: is 4 bytes long, and the message ends after 2 of them"},
        /* Types. */
        {"Filter", "0801", "user (field 1): has wire type 0, expected 2"},
        {"Filter", "1001", "items (field 2): has wire type 0, expected 2"},
        {"Filter", "220101", "limit (field 4): has wire type 2, expected 0"},
        {"Played", "190102030405060708", "at (field 3): has wire type 1, expected 0"},
        /* Texts. */
        {"Filter", "0a01ff", "user is not valid UTF-8: other bytes go into binary_user"},
        {"Filter", "12016112016112028080", "items is not valid UTF-8: other bytes go into binary_items"},
        {"Filter", "1202c3bc1201611201ff", "items is not valid UTF-8: other bytes go into binary_items"},
        {"Filter", "1202c080", "items is not valid UTF-8: other bytes go into binary_items"},
        {"Filter", "1203eda080", "items is not valid UTF-8: other bytes go into binary_items"},
        {"Filter", "1204f4908080", "items is not valid UTF-8: other bytes go into binary_items"},
        {"Filter", "1201c3", "items is not valid UTF-8: other bytes go into binary_items"},
        {"Block", "1201ff", "ids is not valid UTF-8: other bytes go into binary_ids"},
        {"Block", "0a01ff", "session is not valid UTF-8"},
        /* What the fields say. */
        {"Filter", "1803", "reply is 3, expected BITMAP (0), INDEXES (1) or ITEMS (2)"},
        {"Filter", "18ffffffffffffffffff01", "reply is -1, expected BITMAP (0), INDEXES (1) or ITEMS (2)"},
        {"Filter", "0a01613a0162120161", "user and binary_user can't both be given: bytes may be text, too"},
        {"Filter", "120161420162", "items and binary_items can't both be given: bytes may be text, too"},
        {"Filter", "420162120161", "items and binary_items can't both be given: bytes may be text, too"},
        {"Why", "120161420162", "item and binary_item can't both be given: bytes may be text, too"},
        {"Block", "120161420162", "ids and binary_ids can't both be given: bytes may be text, too"},
        {"Filter", "0a0175", "items holds 0 ids, expected 1 to 65536"},
        {"Played", "", "items holds 0 ids, expected 1 to 65536"},
        {"Block", "0a0173", "ids holds 0 ids, expected 1 to 65536"},
        {"Forget", "0a0175", "items and all are not given, expected one of them"},
        {"Forget", "0a01751201611801", "items and all are both given, expected one of them"},
        {"Unblock", "0a0173", "ids and all are not given, expected one of them"},
        {"Delivered", "0a01751201611801", "at is for plays: a delivery counts from now on"},
        {"Filter", "0a01754a01ff", "pools is not valid UTF-8"},
        {"Filter", "0a01755a0861626364656667686201ff", "seed is not valid UTF-8"},
        {"Filter", "0a01751201615a086162636465666768", "HASHES and ITEMS can't both be given"},
        {"Filter", "0a01754201615a086162636465666768", "HASHES and ITEMS can't both be given"},
        {"Filter", "0a01755801", "hashes (field 11): has wire type 0, expected 2"},
        {"PoolSet", "0a0168", "items holds 0 ids, expected 1 to 65536"},
        {"PoolDrop", "0a0168120161", "items are for PoolSet and PoolAdd"},
        {"FilterMany", "0a0175", "items holds 0 ids, expected 1 to 65536"},
        {"FilterMany", "0a01753a0176120161", "users and binary_users can't both be given: bytes may be text, too"},
        {"FilterMany", "0a0175120161420162", "items and binary_items can't both be given: bytes may be text, too"},
        {"FilterMany", "0a01750a01ff", "users is not valid UTF-8: other bytes go into binary_users"},
        {"FilterMany", "0801", "users (field 1): has wire type 0, expected 2"},
        {"FilterMany", "0a0561", "users (field 1): is 5 bytes long, and the message ends after 1 of them"},
        {"FilterMany", "2a0101", "deliver (field 5): has wire type 2, expected 0"},
        {"FilterMany", "3001", "session (field 6): has wire type 0, expected 2"},
        {"PoolList", "0a", "field 1: the message ends within its length"},
        {"PoolGet", "0a01ff", "pool is not valid UTF-8"},
        {"PoolGet", "120161", "from (field 2): has wire type 2, expected 0"},
        {"PoolGet", "5201ff", "pool_version is not valid UTF-8"},
        /* What Dubbo's consumers send without the stub. */
        {"Filter", "0a086865737369616e32120204751a0161", WRAPPER},
        {"Played", "0a086865737369616e321202ff801a0161", WRAPPER},
        {"History", "0a086865737369616e32120204751a0161", WRAPPER},
        {"PoolSet", "0a086865737369616e32120204751a0161", WRAPPER},
        {"FilterMany", "0a086865737369616e32120204751a0161", WRAPPER},
        {"PoolList", "0a086865737369616e32120204751a0161", WRAPPER},
        {"PoolGet", "0a086865737369616e32120204751a0161", WRAPPER},
        {"History", "0a01751a01613001", "field 3: has wire type 2, expected 0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct message m;
        struct err err = {0};
        int code = message_read(method_of(rows[i].method), unhex(rows[i].hex), items, &m, &err);
        assert_string_equal(code < 0 ? err.text : "", rows[i].expected);
        bool absent = strstr(rows[i].expected, "not known") != NULL || strcmp(rows[i].expected, WRAPPER) == 0;
        assert_int_equal(code, absent ? ERR_ABSENT : ERR_INVALID);
    }
}

/* Every length that a text can have, at every place of a message, with and without other characters. */
static void test_lengths(void **state)
{
    (void)state;
    char id[300];
    memset(id, 'x', sizeof id);
    for (size_t len = 0; len < sizeof id; len++) {
        for (int high = 0; high < 2; high++) {
            buf_clear(&bytes);
            wire_put_item(&bytes, 2, slice_str("a"));
            wire_put_item(&bytes, 2, slice_of(id, len));
            wire_put_item(&bytes, 2, high != 0 ? slice_str("\xc3\xbc") : slice_str("b"));
            struct message m;
            struct err err;
            assert_int_equal(message_read(method_of("Filter"), buf_slice(&bytes), items, &m, &err), 0);
            assert_int_equal(m.asked.rq.n, 3);
            assert_true(slice_eq(m.asked.rq.items[1], slice_of(id, len)));
            assert_int_equal(m.asked.rq.items[2].len, 1 + high);
            for (size_t cut = 1; len > 0 && cut < bytes.len; cut++) {
                if (message_read(method_of("Filter"), slice_of(bytes.data, cut), items, &m, &err) == 0) {
                    assert_true(m.asked.rq.n < 3);
                }
            }
        }
    }
}

/* One more than may be: counted, and not written behind the room there is. */
static void test_too_many(void **state)
{
    (void)state;
    static struct slice room[ITEMS_MAX + 1];
    buf_clear(&bytes);
    for (size_t i = 0; i < ITEMS_MAX + 1; i++) {
        wire_put_item(&bytes, 2, slice_str(i % 1000 == 999 ? "" : "a"));
        if (i % 5000 == 0) {
            wire_put_number(&bytes, 14, 1);
        }
    }
    struct message m;
    struct err err;
    assert_int_equal(message_read(method_of("Played"), buf_slice(&bytes), room, &m, &err), 0);
    assert_int_equal(m.asked.rq.n, ITEMS_MAX + 1);
    assert_non_null(room[ITEMS_MAX - 1].data);
    assert_null(room[ITEMS_MAX].data);
}

/* The same of users, who stand behind the items. */
static void test_too_many_users(void **state)
{
    (void)state;
    static struct slice room[FIELDS_SLICES + 1];
    buf_clear(&bytes);
    for (size_t i = 0; i < BATCH_USERS_MAX + 1; i++) {
        wire_put_item(&bytes, 1, slice_str(i % 100 == 99 ? "" : "u"));
    }
    wire_put_item(&bytes, 2, slice_str("a"));
    struct message m;
    struct err err;
    assert_int_equal(message_read(method_of("FilterMany"), buf_slice(&bytes), room, &m, &err), 0);
    assert_int_equal(m.asked.n_users, BATCH_USERS_MAX + 1);
    assert_int_equal(m.asked.rq.n, 1);
    assert_ptr_equal(m.asked.users, room + ITEMS_MAX);
    assert_null(room[1].data);
    assert_non_null(room[ITEMS_MAX + BATCH_USERS_MAX - 1].data);
    assert_null(room[ITEMS_MAX + BATCH_USERS_MAX].data);
}

/* And of what is left out, behind these. */
static void test_too_many_excluded(void **state)
{
    (void)state;
    static struct slice room[FIELDS_SLICES + 1];
    buf_clear(&bytes);
    wire_put_item(&bytes, 2, slice_str("a"));
    for (size_t i = 0; i < EXCLUDE_MAX + 1; i++) {
        wire_put_item(&bytes, 13, slice_str("x"));
    }
    struct message m;
    struct err err;
    assert_int_equal(message_read(method_of("Filter"), buf_slice(&bytes), room, &m, &err), 0);
    assert_int_equal(m.asked.rq.n_exclude, EXCLUDE_MAX + 1);
    assert_ptr_equal(m.asked.rq.exclude, room + ITEMS_MAX + BATCH_USERS_MAX);
    assert_non_null(room[ITEMS_MAX + BATCH_USERS_MAX + EXCLUDE_MAX - 1].data);
    assert_null(room[ITEMS_MAX + BATCH_USERS_MAX + EXCLUDE_MAX].data);
}

static void test_names(void **state)
{
    (void)state;
    static const char *const none[] = {"", "f", "filterx", "FILTER", "\x06ilter", "PlayedstreaM", "Filter ", "/Filter"};
    assert_ptr_equal(method_of("filter"), method_of("Filter"));
    assert_ptr_equal(method_of("playedStream"), method_of("PlayedStream"));
    assert_true(method_of("playedStream")->shape == METHOD_STREAM);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_null(method_find(slice_str(none[i])));
    }
}

/* --- replies --- */

static void expect(const struct message *m, const char *hex)
{
    buf_clear(&out);
    message_write(m, &out);
    assert_false(out.failed);
    struct slice want = unhex(hex);
    assert_int_equal(out.len, want.len);
    assert_memory_equal(out.data, want.data, want.len);
    assert_true(out.len <= message_reply_max(m));
}

static void test_filter_replies(void **state)
{
    (void)state;
    struct slice asked[] = {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}, {"f", 1}, {"g", 1}, {"h", 1}, {"", 0}};
    struct message m = {.asked.rq = {.kind = REQUEST_QUESTION, .items = asked, .n = 9}, .bytes = 27};
    m.asked.rq.unseen = (const uint8_t *)"\xa0\x80";
    m.asked.rq.n_unseen = m.asked.rq.n_answer = 3;
    m.asked.rq.form = FORM_BITMAP;
    expect(&m, "0a02a080");
    m.asked.rq.form = FORM_INDEXES;
    expect(&m, "1203000208");
    m.asked.rq.form = FORM_ITEMS;
    expect(&m, "1a01611a01631a00");
    m.binary = true;
    m.asked.rq.n_answer = 1;
    asked[0] = slice_of("\x80", 1);
    expect(&m, "220180");
    m.asked.rq.n_answer = 0;
    expect(&m, "");
    m.asked.rq.form = FORM_INDEXES;
    expect(&m, "");
}

/* All of the largest question, whose list has a length of three bytes. */
static void test_large_reply(void **state)
{
    (void)state;
    static uint8_t all[ITEMS_MAX / 8];
    memset(all, 0xff, sizeof all);
    struct message m = {
        .asked.rq = {.kind = REQUEST_QUESTION, .n = ITEMS_MAX, .n_answer = ITEMS_MAX, .form = FORM_INDEXES}};
    m.asked.rq.unseen = all;
    buf_clear(&out);
    message_write(&m, &out);
    assert_false(out.failed);
    assert_true(out.len <= message_reply_max(&m));
    size_t list = 128 + (16384 - 128) * 2 + (ITEMS_MAX - 16384) * 3;
    assert_int_equal(out.len, 1 + 3 + list);
    struct wire w = wire_of(buf_slice(&out));
    struct wire_field f;
    struct err err;
    assert_int_equal(wire_next(&w, &f, &err), 1);
    assert_int_equal(f.bytes.len, list);
    assert_memory_equal(f.bytes.data + list - 3, "\xff\xff\x03", 3);
}

static void test_other_replies(void **state)
{
    (void)state;
    struct message m = {.asked.rq = {.kind = REQUEST_PLAY, .count = 2}, .asked.tag = UINT64_MAX};
    expect(&m, "080210ffffffffffffffffff01");
    m = (struct message){.asked.rq = {.kind = REQUEST_UNBLOCK, .count = 300}};
    expect(&m, "08ac02");
    m.asked.rq.count = 0;
    expect(&m, "");
    const struct place places[] = {{.kind = PLACE_STAGED},
                                   {.kind = PLACE_MONTH, .month = 2026 * 12 + 8, .error = 0.25}};
    char name[PLACE_TEXT];
    assert_true(slice_eq(place_name(&places[1], name), slice_str("2026-09")));
    m = (struct message){.asked.rq = {.kind = REQUEST_WHY, .places = places, .n_places = 2}};
    expect(&m, "080112080a0673746167656412120a07323032362d303911000000000000d03f");
    m.asked.rq.n_places = 0;
    expect(&m, "");
    struct history_month of = {2026 * 12 + 10, 300, 1000, 0.5, true, true, 1790000000000};
    struct history history = {.n_months = 1, .months = &of, .staged = 1, .delivered = 2, .error = 0.5};
    m = (struct message){.asked.rq = {.kind = REQUEST_HISTORY, .history = &history}};
    expect(&m, "0a230a07323032362d313110ac0218e80721000000000000e03f280130013880d8c1a28c341001180221000000000000e03f");
}

static void expect_many(const struct message *m, size_t user, int code, const char *text, const char *hex)
{
    buf_clear(&out);
    message_write_many(m, user, code, text, &out);
    assert_false(out.failed);
    struct slice want = unhex(hex);
    assert_int_equal(out.len, want.len);
    assert_memory_equal(out.data, want.data, want.len);
}

static void test_replies_of_many(void **state)
{
    (void)state;
    const struct err refused = {0};
    struct message m = {.asked.rq = {.kind = REQUEST_QUESTION, .n = 9, .form = FORM_BITMAP}};
    m.asked.rq.unseen = (const uint8_t *)"\xa0\x80";
    m.asked.rq.n_unseen = m.asked.rq.n_answer = 3;
    expect_many(&m, 0, 0, NULL, "12040a02a080");
    m.asked.rq.form = FORM_INDEXES;
    expect_many(&m, 300, 0, NULL, "08ac0212051203000208");
    m.asked.rq.n_answer = 0;
    expect_many(&m, 1, 0, NULL, "08011200"); /* a reply that says nothing, and no error */
    m.asked.rq.err = &refused;
    expect_many(&m, 999, 3, "no", "08e707180322026e6f");
}

static void test_refused(void **state)
{
    (void)state;
    buf_clear(&out);
    message_write_refused(7, 3, "item 2 is empty \xff", &out);
    struct slice want = unhex("1007180322116974656d203220697320656d707479203f");
    assert_int_equal(out.len, want.len);
    assert_memory_equal(out.data, want.data, want.len);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_too_many),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_filter_replies),
        cmocka_unit_test(test_large_reply),
        cmocka_unit_test(test_other_replies),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_too_many_users),
        cmocka_unit_test(test_too_many_excluded),
        cmocka_unit_test(test_replies_of_many),
    };
    return cmocka_run_group_tests(tests, NULL, release);
}
