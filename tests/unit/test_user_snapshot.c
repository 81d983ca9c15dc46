/* The forms in which users travel: a snapshot's golden bytes, what a reader refuses, the file around it, and the slots
 * by which users are dealt out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#include "base/hash.h"
#include "base/keyslot.h"
#include "cli/transfer/export_file.h"
#include "store/codec/user_snapshot.h"
#include "tests/lib/sent_list.h"

enum { SEED = 7 };

/* --- slots: as `redis-cli cluster keyslot` gives them --- */

static void test_keyslots(void **state)
{
    static const struct {
        const char *id;
        unsigned slot;
    } known[] = {
        {"123456789", 0x31c3},          {"foo", 12182},     {"bar", 5061},        {"", 0},
        {"{user1000}.following", 3443}, {"user1000", 3443}, {"foo{}{bar}", 8363}, {"foo{{bar}}zap", 4015},
        {"foo{bar}{zap}", 5061},        {"somekey", 11058}, {"foo{", 7673},
    };
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        assert_int_equal(keyslot(slice_str(known[i].id)), known[i].slot);
    }
    assert_int_equal(keyslot_shard(0, 3), 0);
    assert_int_equal(keyslot_shard(5461, 3), 0);
    assert_int_equal(keyslot_shard(5462, 3), 1);
    assert_int_equal(keyslot_shard(16383, 3), 2);
    assert_int_equal(keyslot_shard(16383, KEYSLOTS), 16383);
}

/* --- snapshots --- */

static struct user_snapshot sample(void)
{
    static const struct snapshot_month months[] = {{24321, {"filter1", 7}}, {24322, {"f2", 2}}};
    static const struct store_play plays[] = {{5, 24321}, {UINT64_MAX, 24321}, {1, 24322}};
    static const uint64_t exceptions[] = {2, 300};
    static const int damaged[] = {0, 24320};
    struct slice user = slice_str("u1");
    return (struct user_snapshot){.key = hash_user_key(SEED, user),
                                  .user = user,
                                  .last_month = 24322,
                                  .months = months,
                                  .n_months = 2,
                                  .plays = plays,
                                  .n_plays = 3,
                                  .deliveries = slice_str("\x20sent"), /* as of version 1 */
                                  .exceptions = exceptions,
                                  .n_exceptions = 2,
                                  .damaged = damaged,
                                  .n_damaged = 2};
}

static void test_parcel_round_trip(void **state)
{
    (void)state;
    struct user_snapshot p = sample();
    struct user_snapshot q;
    struct buf bytes = {0};
    struct arena arena = {0};
    assert_int_equal(user_snapshot_encode(&p, &bytes), 0);
    assert_int_equal(user_snapshot_decode(bytes.data, bytes.len, &arena, &q, NULL), 0);
    assert_true(q.key == p.key && slice_eq(q.user, p.user) && q.last_month == p.last_month);
    assert_int_equal(q.n_months, 2);
    assert_int_equal(q.months[1].month, 24322);
    assert_true(slice_eq(q.months[0].blob, p.months[0].blob) && slice_eq(q.months[1].blob, p.months[1].blob));
    assert_int_equal(q.n_plays, 3);
    assert_true(q.plays[1].hash == UINT64_MAX && q.plays[2].month == 24322 && q.plays[2].hash == 1);
    assert_true(slice_eq(q.deliveries, p.deliveries));
    assert_true(q.n_exceptions == 2 && q.exceptions[1] == 300);
    assert_true(q.n_damaged == 2 && q.damaged[0] == 0 && q.damaged[1] == 24320);
    buf_free(&bytes);
    arena_free(&arena);
}

static void seal(struct buf *bytes);

/* Deliveries with times are version 5, whatever else there is; without them, what 0.1.0 reads. */
static void test_parcel_times(void **state)
{
    (void)state;
    struct delivered_codec codec = {0};
    struct store_delivery list[] = {SENT(9, 0, slice_str("b")), SENT(5, 0, slice_str("a")), SENT(4, 0, slice_str("b"))};
    struct buf blob = {0};
    assert_int_equal(sent_list_pack(&codec, list, 3, &blob), 0);
    for (int more = 0; more < 4; more++) {
        const struct snapshot_forgotten item = {5, 1795255200001};
        struct user_snapshot p = sample(), q;
        struct buf bytes = {0}, old = {0};
        struct arena arena = {0};
        struct err err = {0};
        struct delivered d;
        p.deliveries = buf_slice(&blob);
        p.migration_state = more == 1;
        p.forgotten_ms = more >= 2 ? 1795255200000 : 0;
        p.forgotten = &item;
        p.n_forgotten = more == 3;
        assert_int_equal(user_snapshot_encode(&p, &bytes), 0);
        assert_int_equal(bytes.data[0], 5);
        assert_int_equal(user_snapshot_decode(bytes.data, bytes.len, &arena, &q, &err), 0);
        assert_true(slice_eq(q.deliveries, p.deliveries) && q.n_forgotten == p.n_forgotten);
        assert_true(q.forgotten_ms == p.forgotten_ms && q.migration_state == p.migration_state);

        struct slice told = buf_slice(&bytes);
        assert_int_equal(user_snapshot_without_times(&told, &old, &err), 0);
        assert_int_equal(told.data[0], 1 + more);
        assert_int_equal(user_snapshot_decode(told.data, told.len, &arena, &q, &err), 0);
        assert_int_equal(q.n_plays, p.n_plays);
        assert_int_equal(delivered_unpack(&codec, q.deliveries.data, q.deliveries.len, 0, &arena, &d, &err), 0);
        assert_true(d.n == 2 && slice_eq(d.list[0].item, slice_str("b")) && slice_eq(d.list[1].item, slice_str("a")));
        struct slice again = told;
        assert_int_equal(user_snapshot_without_times(&again, &old, &err), 0);
        assert_ptr_equal(again.data, told.data); /* it is that already */

        bytes.data[0] = 4; /* a version that could not be */
        seal(&bytes);
        assert_int_equal(user_snapshot_decode(bytes.data, bytes.len, &arena, &q, &err), ERR_CORRUPT);
        buf_free(&bytes);
        buf_free(&old);
        arena_free(&arena);
    }
    buf_free(&blob);
    delivered_codec_free(&codec);
}

static void test_parcel_forgotten(void **state)
{
    (void)state;
    for (int noted = 0; noted < 2; noted++) {
        struct user_snapshot p = sample(), q;
        struct buf bytes = {0};
        struct arena arena = {0};
        p.forgotten_ms = INT64_C(1795255200000);
        p.migration_state = noted != 0;
        assert_int_equal(user_snapshot_encode(&p, &bytes), 0);
        assert_int_equal(bytes.data[0], 3);
        assert_int_equal(user_snapshot_decode(bytes.data, bytes.len, &arena, &q, NULL), 0);
        assert_int_equal(q.forgotten_ms, p.forgotten_ms);
        assert_int_equal(q.migration_state, noted);
        assert_int_equal(user_snapshot_forget(&q, p.forgotten_ms, &arena, NULL), 0);
        assert_int_equal(q.n_months, 2);
        assert_int_equal(user_snapshot_forget(&q, p.forgotten_ms + 1, &arena, NULL), 0);
        assert_int_equal(q.n_months + q.n_plays + q.n_exceptions + q.deliveries.len, 0);
        buf_free(&bytes);
        arena_free(&arena);
    }
}

/* What was sent after the forget stays, and makes the user one of that month. */
static void test_parcel_forgotten_between_deliveries(void **state)
{
    (void)state;
    enum { DECEMBER = 24323 };
    const int64_t sent_ms = INT64_C(1796083200000) + 5000; /* in December 2026 */
    struct store_delivery list[] = {SENT(sent_ms, 1, slice_str("a")), SENT(sent_ms - 1, 2, slice_str("b")),
                                    SENT(sent_ms - 2, 1, slice_str("a"))};
    struct delivered_codec codec = {0};
    struct buf blob = {0};
    struct arena arena = {0};
    struct user_snapshot p = sample(), q;
    struct err err;
    assert_int_equal(sent_list_pack(&codec, list, 3, &blob), 0);
    p.deliveries = buf_slice(&blob);
    p.last_month = DECEMBER;
    for (int64_t ms = sent_ms - 3; ms <= sent_ms; ms++) {
        struct delivered d = {0};
        q = p;
        assert_int_equal(user_snapshot_forget(&q, ms, &arena, &err), 0);
        assert_int_equal(q.n_months + q.n_plays + q.n_exceptions, 0);
        assert_int_equal(q.last_month, ms < sent_ms ? DECEMBER : 0);
        if (q.deliveries.len > 0) {
            assert_int_equal(delivered_unpack(&codec, q.deliveries.data, q.deliveries.len, 0, &arena, &d, &err), 0);
        }
        assert_int_equal(d.n, sent_ms - ms);
        for (size_t i = 0; i < d.n; i++) {
            assert_true(slice_eq(d.list[i].item, list[i].item));
            assert_int_equal(d.list[i].stamp, delivered_stamp(sent_ms - (int64_t)i, 0));
        }
    }
    q = p;
    blob.data[blob.len - 1] ^= 1;
    assert_int_equal(user_snapshot_forget(&q, sent_ms, &arena, &err), ERR_CORRUPT);
    buf_free(&blob);
    arena_free(&arena);
    delivered_codec_free(&codec);
}

static void refuse(struct buf *bytes, size_t at, int value, const char *why)
{
    struct user_snapshot q;
    struct err err = {0};
    struct arena arena = {0};
    char before = bytes->data[at];
    bytes->data[at] = (char)value;
    seal(bytes);
    assert_int_equal(user_snapshot_decode(bytes->data, bytes->len, &arena, &q, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, why));
    bytes->data[at] = before;
    seal(bytes);
    arena_free(&arena);
}

/* Items that were forgotten, of a user who was not, or was before. */
static void test_parcel_forgotten_items(void **state)
{
    static const uint8_t golden[] = {0x04, 0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x01, 0x75,
                                     0x82, 0xbe, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01,
                                     0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x05}; /* docs/format.md has it */
    static const struct snapshot_forgotten one = {5, 5}, two[] = {{5, 7}, {6, 6}};
    (void)state;
    struct user_snapshot p = {.key = 0x0102030405060708, .user = slice_str("u"), .last_month = 24322};
    struct user_snapshot q;
    struct buf bytes = {0};
    struct arena arena = {0};
    p.forgotten = &one;
    p.n_forgotten = 1;
    assert_int_equal(user_snapshot_encode(&p, &bytes), 0);
    assert_int_equal(bytes.len, sizeof golden + 4);
    assert_memory_equal(bytes.data, golden, sizeof golden);
    assert_true(user_snapshot_has_more(buf_slice(&bytes)));
    refuse(&bytes, 20, 5, "an item forgotten before its user");
    refuse(&bytes, 21, 0, "no forgotten items");
    refuse(&bytes, 21, 2, "a broken count of forgotten items");
    refuse(&bytes, 22, 0, "a forgotten item out of order");
    refuse(&bytes, 30, 0, "an item forgotten before its user");

    buf_clear(&bytes);
    p = sample();
    p.forgotten = two;
    p.n_forgotten = 2;
    p.forgotten_ms = 5;
    p.migration_state = true;
    assert_int_equal(user_snapshot_encode(&p, &bytes), 0);
    assert_int_equal(user_snapshot_decode(bytes.data, bytes.len, &arena, &q, NULL), 0);
    assert_true(q.forgotten_ms == 5 && q.migration_state && q.n_plays == 3 && q.n_forgotten == 2);
    assert_true(q.forgotten[0].item == 5 && q.forgotten[0].at_ms == 7);
    assert_true(q.forgotten[1].item == 6 && q.forgotten[1].at_ms == 6);
    struct err err = {0};
    assert_int_equal(user_snapshot_check_forgets(&q, 7 - USER_SNAPSHOT_AHEAD_MS, &err), 0);
    assert_int_equal(user_snapshot_check_forgets(&q, 6 - USER_SNAPSHOT_AHEAD_MS, &err), ERR_RANGE);
    assert_string_equal(err.text, "an item of user \"u1\" was forgotten at a time that lies ahead");
    assert_int_equal(user_snapshot_check_forgets(&q, 4 - USER_SNAPSHOT_AHEAD_MS, &err), ERR_RANGE);
    assert_string_equal(err.text, "user \"u1\" was forgotten at a time that lies ahead");
    refuse(&bytes, bytes.len - 4 - 18, 6, "a forgotten item out of order");

    p.forgotten_ms = 6; /* as its item was */
    assert_int_equal(user_snapshot_encode(&p, &bytes), ERR_INVALID);
    buf_free(&bytes);
    arena_free(&arena);
}

static void test_parcel_golden(void **state)
{
    /* docs/format.md has it. */
    static const uint8_t golden[] = {0x01, 0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x01, 0x75, 0x82, 0xbe,
                                     0x01, 0x00, 0x01, 0x82, 0xbe, 0x01, 0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                     0x00, 0x00, 0x01, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
    static const struct store_play play = {5, 24322};
    static const uint64_t exception = 9;
    (void)state;
    struct user_snapshot p = {.key = 0x0102030405060708, .user = slice_str("u"), .last_month = 24322};
    struct buf bytes = {0};
    p.plays = &play;
    p.n_plays = 1;
    p.exceptions = &exception;
    p.n_exceptions = 1;
    assert_int_equal(user_snapshot_encode(&p, &bytes), 0);
    assert_int_equal(bytes.len, sizeof golden + 4);
    assert_memory_equal(bytes.data, golden, sizeof golden);
    uint32_t sum = (uint32_t)hash_checksum(golden, sizeof golden);
    for (int i = 0; i < 4; i++) {
        assert_int_equal((uint8_t)bytes.data[sizeof golden + (size_t)i], sum >> (8 * i) & 0xff);
    }
    buf_free(&bytes);
}

/* Who is noted, with or without anything else; others have version 1 as ever. */
static void test_parcel_noted(void **state)
{
    static const uint8_t golden[] = {0x02, 0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01,
                                     0x01, 0x75, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01}; /* docs/format.md has it */
    (void)state;
    struct user_snapshot p = {.key = 0x0102030405060708, .user = slice_str("u"), .migration_state = true};
    struct user_snapshot q;
    struct err err = {0};
    struct buf bytes = {0};
    struct arena arena = {0};
    assert_int_equal(user_snapshot_encode(&p, &bytes), 0);
    assert_int_equal(bytes.len, sizeof golden + 4);
    assert_memory_equal(bytes.data, golden, sizeof golden);
    assert_int_equal(user_snapshot_decode(bytes.data, bytes.len, &arena, &q, NULL), 0);
    assert_true(q.migration_state && q.key == p.key && q.n_plays == 0);
    for (int mark = 0; mark < 4; mark += 2) { /* whoever isn't noted has no mark */
        bytes.data[sizeof golden - 1] = (char)mark;
        seal(&bytes);
        assert_int_equal(user_snapshot_decode(bytes.data, bytes.len, &arena, &q, &err), ERR_CORRUPT);
        assert_non_null(strstr(err.text, "a broken mark of a note"));
    }
    bytes.data[sizeof golden - 1] = 1;
    bytes.data[0] = 1;
    seal(&bytes);
    assert_int_equal(user_snapshot_decode(bytes.data, bytes.len, &arena, &q, &err), ERR_CORRUPT);
    bytes.data[0] = 6;
    seal(&bytes);
    assert_int_equal(user_snapshot_decode(bytes.data, bytes.len, &arena, &q, &err), ERR_VERSION);
    assert_string_equal(err.text, "parcel of a user: version 6, this program reads 1 to 5");

    buf_clear(&bytes);
    p = sample();
    p.migration_state = true;
    assert_int_equal(user_snapshot_encode(&p, &bytes), 0);
    assert_true(user_snapshot_has_more(buf_slice(&bytes)));
    assert_int_equal(user_snapshot_decode(bytes.data, bytes.len, &arena, &q, NULL), 0);
    assert_true(q.migration_state && q.n_damaged == 2 && q.n_plays == 3);
    buf_clear(&bytes);
    p.migration_state = false;
    assert_int_equal(user_snapshot_encode(&p, &bytes), 0);
    assert_false(user_snapshot_has_more(buf_slice(&bytes)));
    assert_int_equal(user_snapshot_decode(bytes.data, bytes.len, &arena, &q, NULL), 0);
    assert_false(q.migration_state);
    buf_free(&bytes);
    arena_free(&arena);
}

static void seal(struct buf *bytes)
{
    uint64_t sum = hash_checksum(bytes->data, bytes->len - 4);
    for (int i = 0; i < 4; i++) {
        bytes->data[bytes->len - 4 + (size_t)i] = (char)(sum >> (8 * i));
    }
}

/* Each byte changed, with a checksum that is right: refused, or read as something sound. Cut off anywhere: refused. */
static void test_parcel_refuses(void **state)
{
    static const struct snapshot_forgotten items[] = {{5, 7}, {6, INT64_C(1795255200000)}};
    (void)state;
    struct user_snapshot p = sample();
    p.forgotten = items;
    p.n_forgotten = 2;
    struct buf bytes = {0};
    struct arena arena = {0};
    assert_int_equal(user_snapshot_encode(&p, &bytes), 0);
    for (size_t len = 0; len < bytes.len; len++) {
        struct user_snapshot q;
        struct err err = {0};
        assert_int_equal(user_snapshot_decode(bytes.data, len, &arena, &q, &err), ERR_CORRUPT);
    }
    for (size_t i = 0; i + 4 < bytes.len; i++) {
        for (int flip = 1; flip < 256; flip += 7) {
            struct user_snapshot q;
            struct err err = {0};
            struct buf again = {0};
            bytes.data[i] = (char)(bytes.data[i] ^ flip);
            assert_int_not_equal(user_snapshot_decode(bytes.data, bytes.len, &arena, &q, &err), 0);
            seal(&bytes);
            int rc = user_snapshot_decode(bytes.data, bytes.len, &arena, &q, &err);
            assert_true(rc == 0 || rc == ERR_CORRUPT || (rc == ERR_VERSION && i == 0));
            if (rc == 0) {
                assert_int_equal(user_snapshot_encode(&q, &again), 0);
                assert_int_equal(again.len, bytes.len);
                assert_memory_equal(again.data, bytes.data, bytes.len);
            }
            bytes.data[i] = (char)(bytes.data[i] ^ flip);
            seal(&bytes);
            buf_free(&again);
            arena_reset(&arena);
        }
    }
    static const int disorder[] = {5, 5};
    p.damaged = disorder;
    size_t before = bytes.len;
    assert_int_equal(user_snapshot_encode(&p, &bytes), ERR_INVALID);
    assert_int_equal(bytes.len, before);
    buf_free(&bytes);
    arena_free(&arena);
}

/* --- the file --- */

static int put(void *arg, const void *bytes, size_t len, struct err *err)
{
    (void)err;
    return buf_add(arg, bytes, len);
}

struct input {
    const char *at;
    size_t left;
};

static int get(void *arg, void *bytes, size_t size, size_t *n, struct err *err)
{
    struct input *in = arg;
    (void)err;
    *n = size < in->left ? size : in->left;
    *n = *n > 1000 ? 1000 : *n; /* as a pipe gives it */
    memcpy(bytes, in->at, *n);
    in->at += *n;
    in->left -= *n;
    return 0;
}

static const struct export_head a_head = {.program = "0.1.0",
                                          .seed = SEED,
                                          .created_ms = 1795255200000,
                                          .retention = 6,
                                          .window = 3,
                                          .delivered_max = 100,
                                          .error_rate = 0.001,
                                          .shards = 1,
                                          .ranges = 1};

static int by_key(const void *a, const void *b)
{
    int64_t x = ((const struct user_snapshot *)a)->key;
    int64_t y = ((const struct user_snapshot *)b)->key;
    return (x > y) - (x < y);
}

enum { USERS = 500 };

static void make_file(struct buf *file, int last_month)
{
    static char names[USERS][8];
    static char blob[9000];
    static struct snapshot_month month;
    static struct user_snapshot snapshots[USERS];
    struct export_writer *w;
    struct export_counts counts;
    for (size_t i = 0; i < sizeof blob; i++) {
        blob[i] = (char)(i * i >> 3);
    }
    month = (struct snapshot_month){24322, {blob, sizeof blob}};
    for (int i = 0; i < USERS; i++) {
        snprintf(names[i], sizeof names[i], "u%d", i);
        snapshots[i] = sample();
        snapshots[i].user = slice_str(names[i]);
        snapshots[i].key = hash_user_key(SEED, snapshots[i].user);
        snapshots[i].months = &month;
        snapshots[i].n_months = 1;
        snapshots[i].last_month = last_month;
    }
    qsort(snapshots, USERS, sizeof snapshots[0], by_key);
    assert_int_equal(export_writer_new(put, file, &a_head, &w, NULL), 0);
    for (int i = 0; i < USERS; i++) {
        struct buf bytes = {0};
        assert_int_equal(user_snapshot_encode(&snapshots[i], &bytes), 0);
        assert_int_equal(export_writer_add(w, buf_slice(&bytes), NULL), 0);
        buf_free(&bytes);
    }
    assert_int_equal(export_writer_end(w, &counts, NULL), 0);
    assert_int_equal(counts.users, USERS);
    export_writer_free(w);
}

/* Reads it to its end: 0 or what refused it; *users: how many came before. */
static int read_file(const char *bytes, size_t len, uint64_t *users, struct err *err)
{
    struct input in = {bytes, len};
    struct export_reader *r;
    struct export_head head;
    struct export_counts counts = {0};
    struct slice snapshot;
    *users = 0;
    int rc = export_reader_new(get, &in, &head, &r, err);
    if (rc < 0) {
        return rc;
    }
    assert_true(head.seed == SEED && head.created_ms == a_head.created_ms && head.ranges == 1 && head.window == 3);
    assert_string_equal(head.program, "0.1.0");
    while ((rc = export_reader_next(r, &snapshot, &counts, err)) == 1) {
        ++*users;
    }
    assert_true(rc < 0 || (counts.users == *users && counts.months == *users && counts.plays == 3 * *users));
    export_reader_free(r);
    return rc;
}

static void test_file(void **state)
{
    (void)state;
    struct buf file = {0};
    uint64_t users;
    struct err err = {0};
    make_file(&file, 24322);
    assert_int_equal(read_file(file.data, file.len, &users, &err), 0);
    assert_int_equal(users, USERS);
    for (size_t len = 0; len < file.len; len += len < 200 || len + 200 > file.len ? 1 : 997) {
        err = (struct err){0};
        assert_int_equal(read_file(file.data, len, &users, &err), len < 8 ? ERR_INVALID : ERR_CORRUPT);
        assert_true(err.code < 0 && err.text[0] != '\0');
    }
    for (size_t i = 0; i < file.len; i += i < 200 || i + 200 > file.len ? 1 : 991) {
        file.data[i] = (char)(file.data[i] ^ 0x10);
        int rc = read_file(file.data, file.len, &users, &err);
        assert_true(rc == ERR_CORRUPT || (rc == ERR_INVALID && i < 8));
        file.data[i] = (char)(file.data[i] ^ 0x10);
    }
    buf_add(&file, "x", 1);
    assert_int_equal(read_file(file.data, file.len, &users, &err), ERR_CORRUPT);
    buf_free(&file);
}

enum { BLOCKS_MAX = 16 };

/* Where each block begins, and where the last one ends. */
static size_t find_blocks(const struct buf *file, size_t *at)
{
    size_t n = 0;
    for (size_t next = 8; next < file->len; n++) {
        assert_true(n < BLOCKS_MAX);
        at[n] = next;
        uint32_t stored;
        memcpy(&stored, file->data + next + 1, 4);
        next += 1 + 4 + 4 + stored + 8;
    }
    at[n] = file->len;
    return n;
}

/* Each block is as it was written, but one is missing, stands twice or elsewhere, or belongs to another file; and cuts
 * and flips at each block. */
static void test_file_blocks(void **state)
{
    (void)state;
    struct buf file = {0};
    size_t at[BLOCKS_MAX + 1];
    uint64_t users;
    make_file(&file, 24322);
    size_t n = find_blocks(&file, at);
    assert_true(n >= 6);    /* a head, some of users, an end */
    struct buf later = {0}; /* of the same users */
    size_t later_at[BLOCKS_MAX + 1];
    make_file(&later, 24323);
    assert_int_equal(find_blocks(&later, later_at), n);
    for (size_t i = 0; i <= n; i++) {
        for (size_t len = at[i] - 1; len <= at[i] + 1 && len < file.len; len++) {
            assert_int_equal(read_file(file.data, len, &users, NULL), len < 8 ? ERR_INVALID : ERR_CORRUPT);
        }
    }
    for (size_t i = 0; i < n; i++) {
        size_t len = at[i + 1] - at[i];
        for (size_t j = 0; j <= n; j++) { /* block i is missing (j == i), or stands once more, before block j */
            struct buf other = {0};
            buf_add(&other, file.data, j == i ? at[i] : at[j]);
            if (j != i) {
                buf_add(&other, file.data + at[i], len);
            }
            size_t rest = j == i ? at[i + 1] : at[j];
            buf_add(&other, file.data + rest, file.len - rest);
            assert_int_equal(read_file(other.data, other.len, &users, NULL), ERR_CORRUPT);
            buf_free(&other);
        }
        if (i > 0 && i + 1 < n) { /* it is the other file's */
            struct buf other = {0};
            buf_add(&other, file.data, at[i]);
            buf_add(&other, later.data + later_at[i], later_at[i + 1] - later_at[i]);
            buf_add(&other, file.data + at[i + 1], file.len - at[i + 1]);
            assert_int_equal(read_file(other.data, other.len, &users, NULL), ERR_CORRUPT);
            buf_free(&other);
        }
        static const size_t places = 4; /* what it is, its length, its content, its checksum */
        for (size_t k = 0; k < places; k++) {
            size_t byte = k < 2 ? at[i] + k : k == 2 ? at[i] + len / 2 : at[i + 1] - 1;
            file.data[byte] = (char)(file.data[byte] ^ 1);
            assert_int_equal(read_file(file.data, file.len, &users, NULL), ERR_CORRUPT);
            file.data[byte] = (char)(file.data[byte] ^ 1);
        }
    }
    assert_int_equal(read_file(file.data, file.len, &users, NULL), 0);
    buf_free(&file);
    buf_free(&later);
}

static void put_number(struct buf *out, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        buf_add(out, &(char){(char)(v >> (8 * i))}, 1);
    }
}

/* The head of a file, and a block of users that is sound but for its being zeros. whole: with the frame that it
 * announces, and the right checksum. Returns where it begins. */
static size_t make_bomb(struct buf *file, size_t plain, bool whole)
{
    size_t at[BLOCKS_MAX + 1];
    struct buf block = {0};
    make_file(file, 24322);
    find_blocks(file, at);
    char *zeros = calloc(plain, 1), *frame = malloc(ZSTD_compressBound(plain));
    assert_true(zeros != NULL && frame != NULL);
    size_t stored = ZSTD_compress(frame, ZSTD_compressBound(plain), zeros, plain, 3);
    assert_false(ZSTD_isError(stored));
    buf_add(&block, file->data + at[1] - 8, 8);
    buf_add(&block, "U", 1);
    put_number(&block, stored, 4);
    put_number(&block, plain, 4);
    buf_add(&block, frame, whole ? stored : 0);
    if (whole) {
        put_number(&block, hash_checksum(block.data, block.len), 8);
    }
    file->len = at[1];
    buf_add(file, block.data + 8, block.len - 8);
    assert_false(file->failed);
    buf_free(&block);
    free(zeros);
    free(frame);
    return at[1];
}

/* Few bytes that announce many are refused by their head, before the rest of the block is read or anything made. */
static void test_file_bomb(void **state)
{
    (void)state;
    for (int whole = 0; whole <= 1; whole++) {
        struct buf file = {0};
        struct err err = {0};
        uint64_t users;
        char words[80];
        size_t at = make_bomb(&file, 64 << 20, whole != 0);
        assert_int_equal(read_file(file.data, file.len, &users, &err), ERR_CORRUPT);
        snprintf(words, sizeof words, "the block at byte %zu announces 67108864 bytes from ", at);
        assert_non_null(strstr(err.text, words));
        assert_non_null(strstr(err.text, "expected at most 1048586"));
        buf_free(&file);
    }
}

/* What it would not read it doesn't write. */
static void test_file_writes_no_bomb(void **state)
{
    (void)state;
    const size_t size = 4 << 20;
    char *zeros = calloc(size, 1);
    struct buf file = {0}, bytes = {0};
    struct err err = {0};
    struct export_writer *w;
    struct export_counts counts;
    assert_non_null(zeros);
    const struct snapshot_month month = {24322, slice_of(zeros, size)};
    const struct user_snapshot p = {.user = slice_str("u"), .last_month = 24322, .months = &month, .n_months = 1};
    assert_int_equal(user_snapshot_encode(&p, &bytes), 0);
    assert_int_equal(export_writer_new(put, &file, &a_head, &w, NULL), 0);
    assert_int_equal(export_writer_add(w, buf_slice(&bytes), NULL), 0);
    assert_int_equal(export_writer_end(w, &counts, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "which no real one does"));
    export_writer_free(w);
    buf_free(&file);
    buf_free(&bytes);
    free(zeros);
}

/* The first bytes are for ever. */
static void test_file_golden(void **state)
{
    static const uint8_t golden[] = {'U', 'N', 'S', 'E', 'E', 'N',  'E',  'X',  'H',  38,   0, 0, 0, 38,
                                     0,   0,   0,   1,   5,   '0',  '.',  '1',  '.',  '0',  7, 0, 0, 0,
                                     0,   0,   0,   0,   0,   0xab, 0x8d, 0xfe, 0xa1, 0x01, 0, 0};
    (void)state;
    struct buf file = {0};
    make_file(&file, 24322);
    assert_memory_equal(file.data, golden, 32);
    static const uint8_t numbers[] = {6, 3, 100, 0, 1, 0, 1};
    assert_memory_equal(file.data + 17 + 7 + 24, numbers, sizeof numbers);
    /* A newer version is told from damage. */
    struct buf newer = {0};
    char sum[8] = {0};
    uint64_t users;
    struct err err = {0};
    file.data[17] = 2;
    buf_add(&newer, sum, 8);
    buf_add(&newer, file.data + 8, 9 + 38);
    uint64_t checksum = hash_checksum(newer.data, newer.len);
    for (int i = 0; i < 8; i++) {
        file.data[17 + 38 + i] = (char)(checksum >> (8 * i));
    }
    assert_int_equal(read_file(file.data, file.len, &users, &err), ERR_VERSION);
    assert_non_null(strstr(err.text, "version 2"));
    buf_free(&newer);
    buf_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keyslots),
        cmocka_unit_test(test_parcel_round_trip),
        cmocka_unit_test(test_parcel_noted),
        cmocka_unit_test(test_parcel_times),
        cmocka_unit_test(test_parcel_forgotten),
        cmocka_unit_test(test_parcel_forgotten_between_deliveries),
        cmocka_unit_test(test_parcel_forgotten_items),
        cmocka_unit_test(test_parcel_golden),
        cmocka_unit_test(test_parcel_refuses),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_file_golden),
        cmocka_unit_test(test_file_blocks),
        cmocka_unit_test(test_file_bomb),
        cmocka_unit_test(test_file_writes_no_bomb),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
