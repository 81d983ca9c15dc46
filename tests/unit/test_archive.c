/* Objects of an archive: what is written is read again, and nothing else is read; the listing, and chains in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "archive/catalog.h"
#include "archive/object.h"
#include "archive/round_end.h"
#include "archive/sigv4.h"
#include "base/hash.h"
#include "tests/lib/random.h"

static const struct object_head some_head = {.kind = OBJECT_SHARD,
                                             .flags = OBJECT_LACKS_USERS,
                                             .node = UINT64_C(0xfedcba9876543210),
                                             .run = 7,
                                             .seed = 0xdeadbeef,
                                             .from = 100,
                                             .to = UINT64_MAX - 1,
                                             .covers = UINT64_MAX,
                                             .first_ms = -5,
                                             .last_ms = INT64_MAX,
                                             .round = 3,
                                             .shard = 9,
                                             .key_from = INT64_MIN,
                                             .key_next = INT64_MAX,
                                             .n = 2};

static void make(struct buf *records, struct buf *object)
{
    struct err err;
    assert_int_equal(object_add(records, RECORD_USER, slice_str("first"), slice_str("second")), 0);
    assert_int_equal(object_add(records, RECORD_TEXT, slice_str(""), slice_str("")), 0);
    assert_int_equal(object_seal("it", &some_head, NULL, buf_slice(records), object, &err), 0);
}

static void assert_same(const struct object_head *a, const struct object_head *b)
{
    assert_true(a->kind == b->kind && a->flags == b->flags && a->node == b->node && a->run == b->run);
    assert_true(a->seed == b->seed && a->from == b->from && a->to == b->to && a->covers == b->covers);
    assert_true(a->first_ms == b->first_ms && a->last_ms == b->last_ms && a->round == b->round);
    assert_true(a->shard == b->shard && a->key_from == b->key_from && a->key_next == b->key_next && a->n == b->n);
}

static void test_an_object_is_read_again(void **state)
{
    (void)state;
    struct buf records = {0}, object = {0}, again = {0};
    struct object_head head, looked;
    struct err err;
    enum object_record kind;
    struct slice bytes;
    size_t at = 0;
    make(&records, &object);
    assert_int_equal(object_open("it", buf_slice(&object), NULL, &head, &again, &err), 0);
    assert_same(&head, &some_head);
    assert_int_equal(object_look("it", slice_of(object.data, OBJECT_HEAD_BYTES), &looked, &err), 0);
    assert_same(&looked, &some_head);
    assert_int_equal(object_next(buf_slice(&again), &at, &kind, &bytes, &err), 1);
    assert_int_equal(kind, RECORD_USER);
    assert_true(slice_eq(bytes, slice_str("firstsecond")));
    assert_int_equal(object_next(buf_slice(&again), &at, &kind, &bytes, &err), 1);
    assert_int_equal(kind, RECORD_TEXT);
    assert_int_equal(bytes.len, 0);
    assert_int_equal(object_next(buf_slice(&again), &at, &kind, &bytes, &err), 0);
    buf_free(&records);
    buf_free(&object);
    buf_free(&again);
}

/* Each byte that is changed, and each length that is cut off, is noticed. */
static void test_damage_is_noticed(void **state)
{
    (void)state;
    struct buf records = {0}, object = {0}, again = {0};
    struct object_head head;
    struct err err;
    make(&records, &object);
    for (size_t i = 0; i < object.len; i++) {
        object.data[i] ^= 1;
        int rc = object_open("it", buf_slice(&object), NULL, &head, &again, &err);
        assert_true(rc == ERR_CORRUPT || rc == ERR_VERSION);
        object.data[i] ^= 1;
    }
    for (size_t len = 0; len < object.len; len++) {
        struct buf part = {0}; /* of that length, for the sanitizer */
        assert_int_equal(buf_add(&part, object.data, len), 0);
        assert_int_equal(object_open("it", buf_slice(&part), NULL, &head, &again, &err), ERR_CORRUPT);
        buf_free(&part);
    }
    buf_free(&records);
    buf_free(&object);
    buf_free(&again);
}

static void test_a_record_of_a_newer_version(void **state)
{
    (void)state;
    const char newer[] = {RECORD_KINDS, 1, 'x'}, cut[] = {RECORD_TEXT, 2, 'x'};
    enum object_record kind;
    struct slice bytes;
    struct err err;
    size_t at = 0;
    assert_int_equal(object_next(slice_of(newer, sizeof newer), &at, &kind, &bytes, &err), ERR_VERSION);
    assert_int_equal(object_next(slice_of(cut, sizeof cut), &at, &kind, &bytes, &err), ERR_CORRUPT);
}

/* --- encryption --- */

#ifdef WITH_OPENSSL

static void make_keys(struct cipher_keys *keys, uint8_t now, uint8_t old)
{
    uint8_t bytes[CIPHER_KEY_BYTES];
    struct err err;
    *keys = (struct cipher_keys){.old_is_plain = false};
    memset(bytes, now, sizeof bytes);
    assert_int_equal(now != 0 ? cipher_key_make(bytes, &keys->now, &err) : 0, 0);
    memset(bytes, old, sizeof bytes);
    assert_int_equal(old != 0 ? cipher_key_make(bytes, &keys->old, &err) : 0, 0);
}

/* Made by another program: HKDF and AESGCM of Python's cryptography. */
static void test_a_known_answer(void **state)
{
    (void)state;
    static const char plain[] = "some bytes", sealed_hex[] = "97f8e3134b9c9a570d7ff3df42ec0ed90d984da95ec0ffbe7e61";
    uint8_t bytes[CIPHER_KEY_BYTES], salt[CIPHER_SALT_BYTES], sealed[sizeof plain - 1 + CIPHER_TAG_BYTES],
        again[sizeof plain] = {0};
    char hex[2 * sizeof sealed + 1];
    struct cipher_key key;
    struct err err;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)i;
        salt[i] = (uint8_t)(i + sizeof bytes);
    }
    assert_int_equal(cipher_key_make(bytes, &key, &err), 0);
    assert_int_equal(key.id, 0x8a184500 | CIPHER_AES_GCM);
    const struct cipher_object o = {&key, salt, slice_str("N/seg/x"), slice_str("head")};
    memcpy(sealed, plain, sizeof plain - 1);
    assert_int_equal(cipher_seal(&o, sealed, sizeof plain - 1, &err), 0);
    for (size_t i = 0; i < sizeof sealed; i++) {
        snprintf(hex + 2 * i, 3, "%02x", sealed[i]);
    }
    assert_string_equal(hex, sealed_hex);
    assert_int_equal(cipher_open(&o, slice_of((const char *)sealed, sizeof sealed), again, &err), 0);
    assert_string_equal(again, plain);
    assert_int_equal(cipher_open(&o, slice_of((const char *)sealed, CIPHER_TAG_BYTES - 1), again, &err), ERR_CORRUPT);
}

/* Puts the right checksum into an object that was changed, as who changes it on purpose does. */
static void sum_again(struct buf *object)
{
    uint8_t both[16];
    object_put_number(both, hash_checksum(object->data, OBJECT_HEAD_BYTES - 8));
    object_put_number(both + 8, hash_checksum(object->data + OBJECT_HEAD_BYTES, object->len - OBJECT_HEAD_BYTES));
    object_put_number((uint8_t *)object->data + OBJECT_HEAD_BYTES - 8, hash_checksum(both, sizeof both));
}

static int reopen(const char *name, const struct buf *object, const struct cipher_keys *keys)
{
    struct object_head head;
    struct buf records = {0};
    struct err err;
    int rc = object_open(name, buf_slice(object), keys, &head, &records, &err);
    buf_free(&records);
    return rc;
}

/* Each byte that is changed, each length that is cut off, another name, also where the checksum was made anew. */
static void test_encrypted_objects(void **state)
{
    (void)state;
    struct cipher_keys keys;
    struct buf records = {0}, object = {0}, second = {0}, again = {0};
    struct object_head head;
    struct err err;
    make_keys(&keys, 1, 0);
    assert_int_equal(object_add(&records, RECORD_TEXT, slice_str("not to be seen"), slice_str("")), 0);
    assert_int_equal(object_seal("it", &some_head, &keys, buf_slice(&records), &object, &err), 0);
    assert_int_equal(object_seal("it", &some_head, &keys, buf_slice(&records), &second, &err), 0);
    assert_false(slice_eq(buf_slice(&object), buf_slice(&second))); /* each has a salt of its own */
    assert_null(memmem(object.data, object.len, "not to", 6));
    assert_int_equal(object_open("it", buf_slice(&object), &keys, &head, &again, &err), 0);
    assert_same(&head, &some_head);
    assert_int_equal(head.key, keys.now.id);
    assert_true(slice_eq(buf_slice(&again), buf_slice(&records)));
    assert_int_equal(reopen("another", &object, &keys), ERR_CORRUPT);
    for (size_t i = 0; i < object.len; i++) {
        object.data[i] ^= 1;
        assert_true(reopen("it", &object, &keys) < 0);
        sum_again(&object);
        int rc = reopen("it", &object, &keys);
        assert_true(i / 8 == OBJECT_HEAD_BYTES / 8 - 1 ? rc == 0 : rc < 0); /* the checksum itself */
        object.data[i] ^= 1;
        sum_again(&object);
    }
    for (size_t len = OBJECT_HEAD_BYTES; len < object.len; len++) {
        struct buf part = {0};
        assert_int_equal(buf_add(&part, object.data, len), 0);
        object_put_number((uint8_t *)part.data + OBJECT_HEAD_BYTES - 48,
                          len - OBJECT_HEAD_BYTES); /* how much follows */
        sum_again(&part);
        assert_int_equal(reopen("it", &part, &keys), ERR_CORRUPT);
        buf_free(&part);
    }
    buf_free(&records);
    buf_free(&object);
    buf_free(&second);
    buf_free(&again);
}

/* A segment of some size: bytes that are drawn change, at drawn places, also where the checksum was made again. Nothing
 * of it is handed out then, and the error names the object. */
static void test_encrypted_segments_at_random(void **state)
{
    (void)state;
    struct cipher_keys keys;
    struct buf records = {0}, object = {0}, again = {0};
    struct object_head head = some_head;
    struct err err;
    uint64_t random = 36;
    uint8_t event[100];
    make_keys(&keys, 1, 2);
    head.kind = OBJECT_SEGMENT;
    for (int i = 0; i < 300; i++) {
        for (size_t k = 0; k < sizeof event; k++) {
            event[k] = (uint8_t)random_next(&random);
        }
        assert_int_equal(
            object_add(&records, RECORD_EVENTS, slice_of((const char *)event, sizeof event), slice_of("", 0)), 0);
    }
    assert_int_equal(object_seal("a/segment", &head, &keys, buf_slice(&records), &object, &err), 0);
    for (int i = 0; i < 4000; i++) {
        size_t at = random_next(&random) % object.len;
        uint8_t flip = (uint8_t)(1 + random_next(&random) % 255);
        bool sums = at / 8 != OBJECT_HEAD_BYTES / 8 - 1 && i % 2 != 0;
        uint8_t sum[8];
        memcpy(sum, object.data + OBJECT_HEAD_BYTES - 8, sizeof sum);
        object.data[at] = (char)((uint8_t)object.data[at] ^ flip);
        if (sums) {
            sum_again(&object);
        }
        buf_clear(&again);
        err = (struct err){0};
        int rc = object_open("a/segment", buf_slice(&object), &keys, &head, &again, &err);
        assert_true(rc == ERR_CORRUPT || rc == ERR_VERSION || rc == ERR_KEY);
        assert_non_null(strstr(err.text, "a/segment"));
        assert_int_equal(again.len, 0);
        object.data[at] = (char)((uint8_t)object.data[at] ^ flip);
        memcpy(object.data + OBJECT_HEAD_BYTES - 8, sum, sizeof sum);
    }
    assert_int_equal(object_open("a/segment", buf_slice(&object), &keys, &head, &again, &err), 0);
    assert_true(slice_eq(buf_slice(&again), buf_slice(&records)));
    buf_free(&records);
    buf_free(&object);
    buf_free(&again);
}

/* Which objects are read with which keys. */
static void test_which_key(void **state)
{
    (void)state;
    struct buf records = {0}, plain = {0}, first = {0}, second = {0};
    struct cipher_keys one, two, both, back, none = {.old_is_plain = false}, plain_too;
    struct err err;
    make_keys(&one, 1, 0);
    make_keys(&two, 2, 0);
    make_keys(&both, 2, 1);
    make_keys(&back, 0, 1); /* what is written now is not encrypted */
    make_keys(&plain_too, 1, 0);
    plain_too.old_is_plain = true;
    assert_int_equal(object_add(&records, RECORD_TEXT, slice_str("x"), slice_str("")), 0);
    assert_int_equal(object_seal("it", &some_head, &none, buf_slice(&records), &plain, &err), 0);
    assert_int_equal(object_seal("it", &some_head, &one, buf_slice(&records), &first, &err), 0);
    assert_int_equal(object_seal("it", &some_head, &both, buf_slice(&records), &second, &err), 0);
    const struct {
        const struct cipher_keys *keys;
        int plain, first, second;
    } rows[] = {{NULL, 0, ERR_KEY, ERR_KEY}, {&none, 0, ERR_KEY, ERR_KEY}, {&one, ERR_KEY, 0, ERR_KEY},
                {&two, ERR_KEY, ERR_KEY, 0}, {&both, ERR_KEY, 0, 0},       {&back, 0, 0, ERR_KEY},
                {&plain_too, 0, 0, ERR_KEY}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(reopen("it", &plain, rows[i].keys), rows[i].plain);
        assert_int_equal(reopen("it", &first, rows[i].keys), rows[i].first);
        assert_int_equal(reopen("it", &second, rows[i].keys), rows[i].second);
    }
    buf_free(&records);
    buf_free(&plain);
    buf_free(&first);
    buf_free(&second);
}

static void write_key(const char *path, size_t len, mode_t mode)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (size_t i = 0; i < len; i++) {
        fputc((int)i, f);
    }
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void test_files_of_keys(void **state)
{
    (void)state;
    char folder[] = "/tmp/unseen-keys-XXXXXX", path[64];
    static struct config cfg;
    struct cipher_keys keys;
    struct err err;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/key", folder);
    snprintf(cfg.archive_key_file, sizeof cfg.archive_key_file, "%s", path);
    const struct {
        size_t len;
        mode_t mode;
        int rc;
        const char *says;
    } rows[] = {{32, 0600, 0, ""},
                {32, 0440, 0, ""},
                {32, 0644, ERR_INVALID, "chmod 600"},
                {32, 0660, ERR_INVALID, "chmod 600"},
                {0, 0600, ERR_INVALID, "has 0 bytes, expected 32"},
                {31, 0600, ERR_INVALID, "has 31 bytes, expected 32"},
                {64, 0600, ERR_INVALID, "has at least 33 bytes, expected 32"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_key(path, rows[i].len, rows[i].mode);
        assert_int_equal(cipher_keys_read(&cfg, &keys, &err), rows[i].rc);
        assert_int_equal(keys.now.id != CIPHER_PLAIN, rows[i].rc == 0);
        assert_true(rows[i].rc == 0 || strstr(err.text, rows[i].says) != NULL);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(cipher_keys_read(&cfg, &keys, &err), ERR_SYSTEM);
    assert_non_null(strstr(err.text, "archive_key_file"));
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(cipher_keys_read(&cfg, &keys, &err), ERR_INVALID);
    assert_int_equal(rmdir(path), 0);
    write_key(path, 32, 0600);
    snprintf(cfg.archive_old_key_file, sizeof cfg.archive_old_key_file, "%s/none", folder);
    assert_int_equal(cipher_keys_read(&cfg, &keys, &err), ERR_SYSTEM);
    assert_non_null(strstr(err.text, "archive_old_key_file"));
    assert_int_equal(keys.now.id, CIPHER_PLAIN);
    snprintf(cfg.archive_old_key_file, sizeof cfg.archive_old_key_file, "none");
    assert_int_equal(cipher_keys_read(&cfg, &keys, &err), 0);
    assert_true(keys.old_is_plain);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}
#endif

/* --- the listing --- */

struct listed {
    struct depot depot;
    const char *const *names;
};

static int list(struct depot *d, const char *folder, depot_each *each, void *arg, struct err *err)
{
    (void)folder;
    int rc = 0;
    for (const char *const *name = ((struct listed *)d)->names; *name != NULL && rc == 0; name++) {
        rc = each(arg, *name, 10, err);
    }
    return rc;
}

static const struct depot_ops list_ops = {.list = list};

#define NODE "00000000000000aa"

static void test_a_listing(void **state)
{
    (void)state;
    static const char *const names[] = {
        NODE "/seg/0000000000000002-0000000000000014-000000000000001e",
        NODE "/seg/0000000000000001-0000000000000000-000000000000000a",
        NODE "/seg/0000000000000001-000000000000000a-0000000000000014",
        NODE "/seg/0000000000000002-000000000000000a-0000000000000016", /* of a start that began again */
        NODE "/seg/0000000000000002-0000000000000028-0000000000000032", /* behind a gap */
        NODE "/seg/0000000000000002-0000000000000028",                  /* no name */
        NODE "/seg/0000000000000002-0000000000000028-0000000000000028",
        NODE "/base/00000001/00000001-0000000000000005-0000000000000009",
        NODE "/base/00000001/00000000-0000000000000005-0000000000000007",
        NODE "/base/00000001/end",
        NODE "/base/00000002/00000000-000000000000000f-0000000000000010",
        NODE "/base/00000003/end",
        "00000000000000bb/seg/0000000000000001-0000000000000014-00000000000000ff",
        "other",
        NULL,
    };
    struct listed d = {{.ops = &list_ops}, names};
    struct catalog c = {0};
    struct err err;
    size_t n;
    char name[DEPOT_NAME_MAX];
    assert_int_equal(catalog_read(&d.depot, 0, &c, &err), 0);
    assert_int_equal(c.n_segments, 6);
    assert_int_equal(c.n_shards, 3);
    assert_int_equal(c.n_rounds, 3);
    assert_true(c.rounds[0].ended && !c.rounds[1].ended && c.rounds[2].ended);
    assert_int_equal(c.rounds[0].shards, 2);
    assert_int_equal(c.rounds[0].from, 5);
    assert_int_equal(c.rounds[0].to, 9);
    assert_int_equal(c.rounds[2].shards, 0);
    assert_int_equal(catalog_reach(&c, 0xaa, 0), 0x1e);
    assert_int_equal(catalog_reach(&c, 0xaa, 0xf), 0x1e);
    assert_int_equal(catalog_reach(&c, 0xaa, 0x28), 0x32);
    assert_int_equal(catalog_reach(&c, 0xaa, 0x20), 0x20);
    assert_int_equal(catalog_reach(&c, 0xbb, 0x14), 0xff);
    assert_int_equal(catalog_reach(&c, 0xcc, 0x14), 0x14);
    const struct catalog_shard *shards = catalog_shards(&c, 0xaa, 1, &n);
    assert_int_equal(n, 2);
    assert_string_equal(catalog_shard_name(&shards[1], name), names[7]);
    assert_string_equal(catalog_segment_name(&c.segments[0], name), names[1]);
    assert_string_equal(catalog_end_name(0xaa, 3, name), names[11]);
    assert_null(catalog_beside(&c, 0xaa));
    assert_null(catalog_beside(&c, 0xbb));
    catalog_free(&c);
}

#define SEGMENT(run, from, to) NODE "/seg/000000000000000" #run "-000000000000000" #from "-000000000000000" #to

/* Which runs begin where: one after the other, or side by side. */
static void test_two_copies(void **state)
{
    (void)state;
    static const struct {
        const char *names[8];
        bool beside;
    } rows[] = {
        {{SEGMENT(1, 0, 2), SEGMENT(1, 2, 4), SEGMENT(2, 4, 6), SEGMENT(2, 6, 8)}, false},
        /* The last of a run that was killed, which is written again: shorter, as long, longer. */
        {{SEGMENT(1, 0, 2), SEGMENT(1, 2, 5), SEGMENT(2, 2, 4), SEGMENT(2, 4, 6)}, false},
        {{SEGMENT(1, 0, 2), SEGMENT(1, 2, 5), SEGMENT(2, 2, 5), SEGMENT(3, 2, 5), SEGMENT(3, 5, 6)}, false},
        {{SEGMENT(2, 2, 4), SEGMENT(1, 2, 5), SEGMENT(1, 0, 2), SEGMENT(2, 4, 5)}, false},
        {{SEGMENT(1, 0, 2), SEGMENT(2, 2, 4), SEGMENT(3, 2, 4), SEGMENT(2, 4, 5), SEGMENT(3, 4, 5), SEGMENT(2, 5, 7)},
         true},
        {{SEGMENT(1, 0, 2), SEGMENT(1, 2, 4), SEGMENT(2, 3, 5), SEGMENT(1, 4, 6)}, true},
        {{SEGMENT(2, 2, 5), SEGMENT(3, 2, 3), SEGMENT(3, 3, 4), SEGMENT(3, 4, 8), SEGMENT(2, 5, 7)}, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct listed d = {{.ops = &list_ops}, rows[i].names};
        struct catalog c = {0};
        struct err err;
        assert_int_equal(catalog_read(&d.depot, 0, &c, &err), 0);
        assert_int_equal(catalog_beside(&c, 0xaa) != NULL, rows[i].beside);
        catalog_free(&c);
    }
}

/* --- an end --- */

static void test_an_end_is_read_again(void **state)
{
    (void)state;
    struct round_end end = {.program = "0.2.0",
                            .seed = 5,
                            .term = 2,
                            .window = 3,
                            .retention = 12,
                            .delivered_max = 100,
                            .error_rate = 0.001,
                            .from_node = 0xaa,
                            .from_seq = 77,
                            .ended_ms = 1000};
    struct round_end again = {0}, bad = {0};
    const struct round_shard shard = {4, 5, 6, 7, 8};
    struct buf lines = {0}, text = {0};
    struct err err;
    assert_int_equal(round_end_shard(&lines, &shard), 0);
    assert_int_equal(round_end_write(&end, &lines, &text), 0);
    assert_int_equal(buf_add(&text, "newer word\n", 11), 0);
    assert_int_equal(round_end_read("it", buf_slice(&text), &again, &err), 0);
    assert_string_equal(again.program, end.program);
    assert_int_equal(again.seed, end.seed);
    assert_int_equal(again.term, 2);
    assert_int_equal(again.retention, 12);
    assert_true(again.error_rate == end.error_rate);
    assert_int_equal(again.from_node, 0xaa);
    assert_int_equal(again.from_seq, 77);
    assert_int_equal(again.shards.len, sizeof shard);
    const struct round_shard *read = (const struct round_shard *)(const void *)again.shards.data;
    assert_true(read->shard == 4 && read->from == 5 && read->to == 6 && read->bytes == 7 && read->checksum == 8);
    assert_int_equal(round_end_read("it", slice_of(text.data, text.len - 1), &bad, &err), ERR_CORRUPT);
    round_end_free(&again);
    round_end_free(&bad);
    buf_free(&lines);
    buf_free(&text);
}

/* --- a folder --- */

static int count(void *arg, const char *name, uint64_t bytes, struct err *err)
{
    (void)name, (void)err;
    *(uint64_t *)arg += bytes;
    return 0;
}

static void test_a_folder(void **state)
{
    (void)state;
    char folder[] = "/tmp/unseen-depot-XXXXXX", url[64];
    struct depot *d;
    struct depot_order order = {.url = url, .make = true};
    struct err err;
    struct buf out = {0};
    uint64_t bytes = 0;
    assert_non_null(mkdtemp(folder));
    snprintf(url, sizeof url, "file://%s/deep/below", folder);
    assert_int_equal(depot_open(&order, &d, &err), ERR_NOTFOUND); /* as of a disk that is not mounted */
    snprintf(url, sizeof url, "file://%s/archive", folder);
    order.make = false;
    assert_int_equal(depot_open(&order, &d, &err), ERR_NOTFOUND);
    order.writes = order.make = true;
    assert_int_equal(depot_open(&order, &d, &err), 0);
    order.make = false;
    assert_int_equal(d->ops->put(d, "a/b/c", slice_str("bytes"), &err), 0);
    assert_int_equal(d->ops->put(d, "a/b/c", slice_str("bytes"), &err), 0); /* whose answer was lost */
    assert_int_equal(d->ops->put(d, "a/b/c", slice_str("other"), &err), ERR_INVALID);
    assert_int_equal(d->ops->get(d, "a/b/c", 0, &out, &err), 0);
    assert_true(slice_eq(buf_slice(&out), slice_str("bytes")));
    buf_clear(&out);
    assert_int_equal(d->ops->get(d, "a/b/c", 2, &out, &err), 0);
    assert_true(slice_eq(buf_slice(&out), slice_str("by")));
    assert_int_equal(d->ops->get(d, "a/b/none", 2, &out, &err), ERR_NOTFOUND);
    assert_int_equal(d->ops->list(d, "", count, &bytes, &err), 0);
    assert_int_equal(bytes, 5);
    assert_int_equal(d->ops->list(d, "none/", count, &bytes, &err), 0);
    assert_int_equal(d->ops->remove(d, "a/b/c", &err), 0);
    assert_int_equal(d->ops->remove(d, "a/b/c", &err), 0);
    /* What is not mounted: the folder is there, its mark is not. */
    struct depot *other = NULL;
    char gone[96];
    snprintf(gone, sizeof gone, "%s/.unseen-archive", url + 7);
    assert_int_equal(unlink(gone), 0);
    assert_int_equal(d->ops->put(d, "a/b/c", slice_str("bytes"), &err), ERR_NOTFOUND);
    assert_int_equal(depot_open(&order, &other, &err), ERR_NOTFOUND);
    order.writes = false; /* who reads needs none, as of a copy */
    assert_int_equal(depot_open(&order, &other, &err), 0);
    depot_close(other);
    depot_close(d);
    buf_free(&out);
    assert_int_equal(rmdir(url + 7), 0); /* the folders of the object went along */
    assert_int_equal(rmdir(folder), 0);
}

/* The first example of AWS's own documents, and of FIPS 180-4 and RFC 4231. */
static void test_a_signature(void **state)
{
    (void)state;
    uint8_t digest[SHA256_BYTES];
    char text[SHA256_TEXT];
    struct buf out = {0}, encoded = {0};
    sha256(slice_str("abc"), digest);
    assert_string_equal(sha256_text(digest, text), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    hmac_sha256(slice_str("Jefe"), slice_str("what do ya want for nothing?"), digest);
    assert_string_equal(sha256_text(digest, text), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    sha256(slice_of("", 0), digest);
    const struct sigv4 r = {.method = "GET",
                            .host = "examplebucket.s3.amazonaws.com",
                            .path = "/test.txt",
                            .query = "",
                            .range = "bytes=0-9",
                            .token = "",
                            .payload = sha256_text(digest, text),
                            .region = "us-east-1",
                            .key = "AKIAIOSFODNN7EXAMPLE",
                            .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                            .at_ms = INT64_C(1369353600000)};
    assert_int_equal(sigv4_sign(&r, &out), 0);
    assert_int_equal(buf_add(&out, "", 1), 0);
    assert_string_equal(out.data, "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
                                  "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
                                  "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    assert_int_equal(sigv4_encode(slice_str("a/b c~"), true, &encoded), 0);
    assert_true(slice_eq(buf_slice(&encoded), slice_str("a/b%20c~")));
    buf_free(&out);
    buf_free(&encoded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_object_is_read_again),
        cmocka_unit_test(test_damage_is_noticed),
        cmocka_unit_test(test_a_record_of_a_newer_version),
#ifdef WITH_OPENSSL
        cmocka_unit_test(test_a_known_answer),
        cmocka_unit_test(test_encrypted_objects),
        cmocka_unit_test(test_encrypted_segments_at_random),
        cmocka_unit_test(test_which_key),
        cmocka_unit_test(test_files_of_keys),
#endif
        cmocka_unit_test(test_a_listing),
        cmocka_unit_test(test_two_copies),
        cmocka_unit_test(test_an_end_is_read_again),
        cmocka_unit_test(test_a_folder),
        cmocka_unit_test(test_a_signature),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
