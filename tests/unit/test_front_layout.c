/* What stands in the front's Redis: random users written, read and asked; and whatever else may stand there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "front/layout.h"
#include "store/codec/user_compare.h"
#include "tests/lib/alloc.h"
#include "tests/lib/random.h"
#include "tests/lib/sent_list.h"

enum { SEED = 7, MONTH = 2026 * 12 + 10, MOST = 40, REVISION = 1000, SEQ = 2000, COURSES = 300, PLAY_BYTES = 12 };

static struct arena arena;
static struct delivered_codec codec;
static struct buf words, blobs[8];

static int teardown(void **state)
{
    (void)state;
    arena_free(&arena);
    delivered_codec_free(&codec);
    buf_free(&words);
    for (size_t i = 0; i < sizeof blobs / sizeof *blobs; i++) {
        buf_free(&blobs[i]);
    }
    return 0;
}

/* --- replies, made by hand --- */

static struct reply text_of(struct slice text)
{
    return (struct reply){.kind = REPLY_TEXT, .text = text};
}

static struct reply text(const char *bytes)
{
    return text_of(slice_str(bytes));
}

static struct reply array(struct reply *items, size_t n)
{
    return (struct reply){.kind = REPLY_ARRAY, .items = items, .n = n};
}

/* Words with NULL behind them. */
static struct reply hash_of(const char *const *names_and_values)
{
    size_t n = 0;
    while (names_and_values[n] != NULL) {
        n++;
    }
    struct reply *items = arena_alloc(&arena, (n + 1) * sizeof *items);
    assert_non_null(items);
    for (size_t i = 0; i < n; i++) {
        items[i] = text(names_and_values[i]);
    }
    return array(items, n);
}

static struct slice printed(const char *format, uint64_t n)
{
    char out[64];
    int len = snprintf(out, sizeof out, format, n);
    const char *copy = arena_copy(&arena, out, (size_t)len);
    assert_non_null(copy);
    return slice_of(copy, (size_t)len);
}

/* --- a user, by the model --- */

/* Some have one. */
static uint64_t group_of(struct slice item)
{
    const uint64_t hash = hash_id(SEED, item);
    return hash % 3 == 0 ? hash % 100 + 1 : 0;
}

struct model {
    struct user_snapshot snapshot;
    struct snapshot_month months[4];
    uint64_t filtered[4][MOST];
    size_t n_filtered[4];
    struct store_play plays[2 * MOST];
    uint64_t exceptions[MOST];
    struct store_delivery deliveries[2 * MOST]; /* newest first */
    size_t n_deliveries;
    struct reply events[2 * MOST];
    size_t n_events;
};

static struct slice item_of(uint64_t i)
{
    return printed("item%" PRIu64, i);
}

static uint64_t some_hash(uint64_t *random)
{
    return hash_id(SEED, item_of(random_below(random, 100000)));
}

static struct slice month_blob(struct model *m, size_t at, uint64_t *random)
{
    struct filter f = {.n_parts = 0};
    uint32_t positions[MOST];
    size_t n = m->n_filtered[at] = 1 + random_below(random, MOST);
    for (size_t i = 0; i < n; i++) {
        m->filtered[at][i] = some_hash(random);
        positions[i] = filter_position(m->filtered[at][i], FILTER_LIVE_M);
    }
    uint32_t kept = filter_sort(positions, (uint32_t)n, NULL);
    assert_int_equal(filter_add(&f, positions, kept, 20, &arena), 0);
    buf_clear(&blobs[at]);
    assert_int_equal(filter_encode(&f, &blobs[at]), 0);
    return buf_slice(&blobs[at]);
}

static void fill_months(struct model *m, uint64_t *random)
{
    size_t n = random_below(random, 5);
    for (size_t i = 0; i < n; i++) {
        m->months[i] = (struct snapshot_month){MONTH - 3 + (int)i, month_blob(m, i, random)};
    }
    m->snapshot.months = m->months;
    m->snapshot.n_months = n;
}

static void fill_lists(struct model *m, uint64_t *random)
{
    size_t n = random_below(random, MOST);
    for (size_t i = 0; i < n; i++) {
        m->plays[i] = (struct store_play){some_hash(random), MONTH - (int)random_below(random, 3)};
    }
    m->snapshot.plays = m->plays;
    m->snapshot.n_plays = user_snapshot_sort_plays(m->plays, n);
    n = random_below(random, 3) == 0 ? random_below(random, MOST) : 0;
    for (size_t i = 0; i < n; i++) {
        m->exceptions[i] = some_hash(random);
    }
    m->snapshot.exceptions = m->exceptions;
    m->snapshot.n_exceptions = hash_distinct(m->exceptions, n);
    m->n_deliveries = random_below(random, 2) == 0 ? random_below(random, MOST) : 0;
    for (size_t i = 0; i < m->n_deliveries; i++) {
        struct slice item = item_of(random_below(random, 100000));
        m->deliveries[i] =
            (struct store_delivery){.stamp = delivered_stamp(1 + (int64_t)random_below(random, REVISION), 0),
                                    .hash = hash_id(SEED, item),
                                    .item = item,
                                    .group = group_of(item)};
    }
    struct delivered united = {.list = m->deliveries, .n = m->n_deliveries};
    delivered_unite(&united, 100);
    m->n_deliveries = united.n;
    if (m->n_deliveries > 0) {
        buf_clear(&blobs[4]);
        assert_int_equal(sent_list_pack(&codec, m->deliveries, m->n_deliveries, &blobs[4]), 0);
        m->snapshot.deliveries = buf_slice(&blobs[4]);
    }
}

static void add_event(struct model *m, enum store_kind kind, struct slice item, int month)
{
    uint8_t bytes[FRONT_EVENT_MAX];
    size_t len = kind == STORE_PLAY ? front_play_write(hash_id(SEED, item), month, bytes)
                                    : front_sent_write(&(struct store_item){item, hash_id(SEED, item), group_of(item)},
                                                       month_start_ms(month) + 7, bytes);
    const char *copy = arena_copy(&arena, bytes, len);
    assert_non_null(copy);
    m->events[2 * m->n_events] = text_of(slice_of(copy, len));
    m->events[2 * m->n_events + 1] = text_of(printed("%" PRIu64, SEQ + m->n_events));
    m->n_events++;
}

/* In place: its snapshot points into it. */
static void make_model(struct model *m, uint64_t *random)
{
    struct slice user = slice_str("somebody");
    *m = (struct model){.snapshot = {.key = hash_user_key(SEED, user), .user = user}};
    fill_months(m, random);
    fill_lists(m, random);
}

static void add_events(struct model *m, uint64_t *random)
{
    size_t n = random_below(random, MOST);
    for (size_t i = 0; i < n; i++) {
        struct slice item = item_of(200000 + random_below(random, MOST));
        enum store_kind kind = random_below(random, 2) == 0 ? STORE_PLAY : STORE_DELIVERY;
        add_event(m, kind, item, MONTH - (int)random_below(random, 3));
    }
}

/* As Redis keeps it: r, and the words, which come in any order. */
static struct reply stored(const struct model *m, uint64_t *random)
{
    buf_clear(&words);
    struct err err = {0};
    assert_int_equal(front_state_write(&m->snapshot, &arena, &words, &err), 0);
    size_t n = words.len / sizeof(struct slice);
    const struct slice *list = (const struct slice *)(const void *)words.data;
    assert_int_equal(n % 2, 0);
    struct reply *items = arena_alloc(&arena, (n + 2) * sizeof *items);
    assert_non_null(items);
    size_t at = 0, place = random != NULL ? 2 * random_below(random, n / 2 + 1) : 0;
    for (size_t i = 0; i <= n; i += 2) {
        if (i == place) {
            items[at++] = text("r");
            items[at++] = text_of(printed("%" PRIu64, REVISION));
        }
        if (i < n) {
            items[at++] = text_of(list[i]);
            items[at++] = text_of(list[i + 1]);
        }
    }
    for (size_t i = 2; random != NULL && i < at; i += 2) {
        size_t other = 2 * random_below(random, i / 2 + 1);
        struct reply pair[2] = {items[i], items[i + 1]};
        memcpy(&items[i], &items[other], sizeof pair);
        memcpy(&items[other], pair, sizeof pair);
    }
    return array(items, at);
}

static struct front_user read_well(const struct reply *state, const struct reply *events)
{
    struct front_user u;
    struct err err = {0};
    int rc = front_user_read(state, events, &arena, &u, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    return u;
}

/* --- round trips --- */

static bool has_play(const struct store_view *v, uint64_t hash, int month)
{
    for (size_t i = 0; i < v->n_plays; i++) {
        if (v->plays[i].hash == hash && v->plays[i].month == month) {
            return true;
        }
    }
    return false;
}

static void check_months(const struct model *m, const struct store_view *v, int first_month)
{
    size_t at = v->n_months;
    for (size_t i = 0; i < m->snapshot.n_months; i++) {
        if (m->months[i].month < first_month) {
            continue;
        }
        assert_true(at > 0); /* newest first */
        at--;
        assert_int_equal(v->months[at].month, m->months[i].month);
        assert_int_equal(v->months[at].bytes, m->months[i].blob.len);
        for (size_t j = 0; j < m->n_filtered[i]; j++) {
            assert_true(filter_has(&v->months[at].filter, m->filtered[i][j]));
        }
    }
    assert_int_equal(at, 0);
}

static void check_plays(const struct model *m, const struct store_view *v, int first_month)
{
    size_t n = 0;
    for (size_t i = 0; i < m->snapshot.n_plays; i++) {
        bool shown = m->plays[i].month >= first_month;
        assert_int_equal(has_play(v, m->plays[i].hash, m->plays[i].month), shown);
        n += shown;
    }
    for (size_t i = 0; i < m->n_events; i++) {
        const uint8_t *member = (const uint8_t *)m->events[2 * i].text.data;
        if (member[0] == STORE_PLAY) {
            uint64_t hash;
            memcpy(&hash, member + 1, sizeof hash); /* tests run on little endian machines */
            int month = member[9] | member[10] << 8;
            assert_int_equal(has_play(v, hash, month), month >= first_month);
            n += month >= first_month;
        }
    }
    assert_int_equal(v->n_plays, n);
}

/* What delivered_unite() makes of both. */
static void check_deliveries(const struct model *m, const struct store_view *v, size_t max)
{
    struct store_delivery all[2 * MOST];
    size_t n = m->n_deliveries;
    memcpy(all, m->deliveries, n * sizeof *all);
    for (size_t i = 0; i < m->n_events; i++) {
        struct slice member = m->events[2 * i].text;
        if (member.data[0] == FRONT_SENT || member.data[0] == FRONT_GROUPED) {
            const size_t head = member.data[0] == FRONT_GROUPED ? FRONT_GROUPED_BYTES : FRONT_SENT_BYTES;
            struct slice item = slice_of(member.data + head, member.len - head);
            int64_t at_ms = 0;
            memcpy(&at_ms, member.data + 9, 8);
            all[n++] = (struct store_delivery){.stamp = delivered_stamp(at_ms, SEQ + i),
                                               .hash = hash_id(SEED, item),
                                               .item = item,
                                               .group = group_of(item)};
        }
    }
    struct delivered united = {.list = all, .n = n};
    delivered_unite(&united, max);
    n = united.n;
    assert_int_equal(v->n_deliveries, n);
    for (size_t i = 0; i < n; i++) {
        assert_true(v->deliveries[i].hash == all[i].hash && slice_eq(v->deliveries[i].item, all[i].item));
        assert_int_equal(v->deliveries[i].group, all[i].group);
        assert_true(i == 0 || v->deliveries[i].stamp <= v->deliveries[i - 1].stamp);
    }
}

static void test_round_trips(void **state)
{
    (void)state;
    uint64_t random = 1;
    for (int course = 0; course < COURSES; course++) {
        struct model m;
        make_model(&m, &random);
        add_events(&m, &random);
        struct reply state_of = stored(&m, &random), events = array(m.events, 2 * m.n_events);
        struct front_user u = read_well(&state_of, &events);
        bool empty = m.snapshot.n_months + m.snapshot.n_plays + m.snapshot.n_exceptions + m.n_deliveries == 0;
        assert_int_equal(u.verdict, FRONT_WHOLE);
        assert_int_equal(u.revision, REVISION);
        assert_int_equal(u.tombstone, empty);
        assert_int_equal(u.known, !empty || m.n_events > 0);
        int first_month = MONTH - 3 + (int)random_below(&random, 5);
        size_t max = random_below(&random, 2) == 0 ? 100 : 5;
        struct store_view v;
        struct err err = {0};
        assert_int_equal(front_user_view(&u, SEED, first_month, max, &codec, &arena, &v, &err), 0);
        assert_int_equal(v.known, u.known);
        check_months(&m, &v, first_month);
        check_plays(&m, &v, first_month);
        check_deliveries(&m, &v, max);
        assert_int_equal(v.n_exceptions, m.snapshot.n_exceptions);
        for (size_t i = 0; i < v.n_exceptions; i++) {
            assert_true(v.exceptions[i] == m.exceptions[i]);
        }
        arena_reset(&arena);
    }
}

/* Without events a snapshot is what was written; with them, the plays and deliveries too. */
static void test_snapshots(void **state)
{
    (void)state;
    uint64_t random = 2;
    for (int course = 0; course < COURSES; course++) {
        struct model m;
        make_model(&m, &random);
        if (course % 2 == 1) {
            add_events(&m, &random);
        }
        struct reply state_of = stored(&m, &random), events = array(m.events, 2 * m.n_events);
        struct front_user u = read_well(&state_of, &events);
        struct user_snapshot back;
        struct buf bytes = {0};
        struct err err = {0};
        char why[USER_COMPARE_TEXT] = "";
        assert_int_equal(front_user_snapshot(&u, m.snapshot.user, SEED, 100, &codec, &arena, &blobs[5], &back, &err),
                         0);
        assert_true(back.key == m.snapshot.key && slice_eq(back.user, m.snapshot.user));
        assert_int_equal(user_snapshot_encode(&back, &bytes), 0); /* lists are in the form that is promised */
        if (m.n_events == 0) {
            assert_int_equal(back.n_plays, m.snapshot.n_plays);
            int same = user_compare(&back, &m.snapshot, SEED, why, &err);
            assert_string_equal(why, "");
            assert_int_equal(same, 1);
        } else {
            struct store_view v;
            assert_int_equal(front_user_view(&u, SEED, 0, 100, &codec, &arena, &v, &err), 0);
            assert_int_equal(back.n_exceptions, v.n_exceptions);
            for (size_t i = 0; i < back.n_plays; i++) {
                assert_true(has_play(&v, back.plays[i].hash, back.plays[i].month));
            }
        }
        buf_free(&bytes);
        arena_reset(&arena);
    }
}

/* Too large, or damaged: that alone. */
static void test_what_is_not_written(void **state)
{
    (void)state;
    static char large[FRONT_USER_MAX + 1];
    static const int damaged[] = {MONTH};
    struct front_user u;
    for (int i = 0; i < 4; i++) {
        struct model m = {.snapshot = {.user = slice_str("u")}};
        m.months[0] = (struct snapshot_month){MONTH, slice_of(large, FRONT_USER_MAX + (i == 1 || i == 2))};
        m.snapshot.months = m.months;
        m.snapshot.n_months = 1;
        m.snapshot.damaged = damaged;
        m.snapshot.n_damaged = i >= 2;
        struct reply state_of = stored(&m, NULL), events = array(NULL, 0);
        u = read_well(&state_of, &events);
        assert_int_equal(u.verdict, i == 0 ? FRONT_WHOLE : i == 1 ? FRONT_GIANT : FRONT_DAMAGED);
        assert_int_equal(u.n_months, i == 0);
        assert_int_equal(state_of.n, 4);
        assert_true(u.known && !u.tombstone);
    }
}

static void test_verdicts(void **state)
{
    (void)state;
    static const struct {
        const char *fields[9];
        enum front_verdict verdict;
        bool known, tombstone;
    } cases[] = {
        {{NULL}, FRONT_WHOLE, false, false},
        {{"r", "9", NULL}, FRONT_WHOLE, false, true},
        {{"r", "9", "s", "9", NULL}, FRONT_WHOLE, true, false},
        {{"r", "9", "s", "8", NULL}, FRONT_WHOLE, true, false},
        {{"r", "9", "s", "10", NULL}, FRONT_STALE, true, false},
        {{"s", "10", NULL}, FRONT_STALE, true, false},
        {{"r", "9", "g", "1", NULL}, FRONT_GIANT, true, false},
        {{"r", "9", "b", "1", NULL}, FRONT_DAMAGED, true, false},
        {{"r", "9007199254740991", "x", "12345678", NULL}, FRONT_WHOLE, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reply hash = hash_of(cases[i].fields), events = array(NULL, 0);
        struct front_user u = read_well(&hash, &events);
        assert_int_equal(u.verdict, cases[i].verdict);
        if (cases[i].verdict == FRONT_WHOLE && strcmp(cases[i].fields[0] != NULL ? cases[i].fields[0] : "", "r") == 0 &&
            cases[i].fields[2] != NULL && strcmp(cases[i].fields[2], "s") == 0) {
            continue; /* an outrun s says nothing of the user: known or not is both right */
        }
        assert_int_equal(u.known, cases[i].known);
        assert_int_equal(u.tombstone, cases[i].tombstone);
    }
    struct model m = {.n_events = 0};
    add_event(&m, STORE_PLAY, slice_str("a"), MONTH);
    struct reply events = array(m.events, 2), none = array(NULL, 0),
                 tombstone = hash_of((const char *[]){"r", "5", NULL});
    assert_true(read_well(&none, &events).known);
    assert_true(read_well(&tombstone, &events).known);
}

/* --- keys, events, meta --- */

static void test_keys(void **state)
{
    (void)state;
    char out[FRONT_KEY_MAX], prefix[65], id[255];
    memset(prefix, 'p', 64);
    prefix[64] = '\0';
    memset(id, 0, sizeof id);
    assert_int_equal(front_key_state(prefix, slice_of(id, sizeof id), out).len, FRONT_KEY_MAX);
    assert_int_equal(front_key_events(prefix, slice_of(id, sizeof id), out).len, FRONT_KEY_MAX);
    assert_true(slice_eq(front_key_meta("u:", out), slice_str("u:meta")));
    assert_true(slice_eq(front_key_dirty("u:", out), slice_str("u:d")));
    assert_true(slice_eq(front_key_state("u:", slice_str("x"), out), slice_str("u:w:x")));
    assert_true(slice_eq(front_key_events("u:", slice_str("x"), out), slice_str("u:t:x")));
}

static void test_event_bytes(void **state)
{
    (void)state;
    static const uint8_t play[] = {1, 8, 7, 6, 5, 4, 3, 2, 1, 0xf2, 0x5e, 0, 0};
    uint8_t out[FRONT_EVENT_MAX];
    static const uint8_t sent[] = {9,    8,    7,    6, 5, 4, 3,   2,   1,   0x88, 0x77,
                                   0x66, 0x55, 0x44, 3, 0, 0, 'i', 't', 'e', 'm'};
    assert_int_equal(front_play_write(0x0102030405060708, 0x5ef2, out), sizeof play);
    assert_memory_equal(out, play, sizeof play);
    struct store_item item = {slice_str("item"), 0x0102030405060708, 0};
    assert_int_equal(front_sent_write(&item, 0x34455667788, out), sizeof sent);
    assert_memory_equal(out, sent, sizeof sent);
    static const uint8_t grouped[] = {10, 8, 7, 6, 5, 4, 3, 2, 1, 0x88, 0x77, 0x66, 0x55, 0x44, 3,
                                      0,  0, 9, 0, 0, 0, 0, 0, 0, 0,    'i',  't',  'e',  'm'};
    item.group = 9;
    assert_int_equal(front_sent_write(&item, 0x34455667788, out), sizeof grouped);
    assert_memory_equal(out, grouped, sizeof grouped);
}

#define SOUND_META                                                                                                     \
    "v", "1", "seed", "0123456789abcdef", "node", "ffffffffffffffff", "run", "0000000000000003", "epoch", "4", "to",   \
        "9007199254740991"

static void test_meta(void **state)
{
    (void)state;
    struct front_meta m;
    struct err err = {0};
    struct reply hash = hash_of((const char *[]){SOUND_META, "full", "1", "at", "1795255200000", "walk", "-5", NULL});
    assert_int_equal(front_meta_read(&hash, &m, &err), 0);
    assert_true(m.present && m.full && !m.clearing);
    assert_true(m.seed == 0x0123456789abcdef && m.node == UINT64_MAX && m.run == 3 && m.epoch == 4);
    assert_true(m.to == 9007199254740991 && m.at_ms == INT64_C(1795255200000) && m.walk == -5);

    hash = hash_of((const char *[]){SOUND_META, "full", "0", "clear", "1", "walk", "-9223372036854775808", NULL});
    assert_int_equal(front_meta_read(&hash, &m, &err), 0);
    assert_true(m.present && !m.full && m.clearing && m.walk == INT64_MIN);

    hash = hash_of((const char *[]){SOUND_META, "full", "0", "walk", "9223372036854775807", "later", "x", NULL});
    assert_int_equal(front_meta_read(&hash, &m, &err), 0);
    assert_true(m.present && m.walk == INT64_MAX);

    hash = array(NULL, 0);
    assert_int_equal(front_meta_read(&hash, &m, &err), 0);
    assert_true(!m.present && m.node == 0 && m.epoch == 0 && m.to == 0 && !m.full);
}

static void refuse_meta(struct reply hash, int code)
{
    struct front_meta m;
    struct err err = {0};
    int rc = front_meta_read(&hash, &m, &err);
    if (rc != code) {
        for (size_t i = 0; i < hash.n; i++) {
            print_error("%.*s ", (int)hash.items[i].text.len, hash.items[i].text.data);
        }
    }
    assert_int_equal(rc, code);
    assert_int_equal(err.code, code);
    assert_true(err.text[0] != '\0');
    assert_true(!m.present && !m.full);
}

static void test_meta_that_is_none(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"seed", ""},
        {"seed", "g"},
        {"seed", "-1"},
        {"seed", " 1"},
        {"seed", "0x12"},
        {"seed", "\t12"},
        {"seed", "\n-12"},
        {"seed", "123456789abcdef01"},
        {"node", "zz"},
        {"run", "1 "},
        {"epoch", "-1"},
        {"epoch", "+1"},
        {"epoch", "1e3"},
        {"epoch", "9007199254740992"},
        {"epoch", "99999999999999999999"},
        {"epoch", "4.0"},
        {"to", ""},
        {"to", "x"},
        {"to", "18446744073709551616"},
        {"to", "\v7"},
        {"full", "2"},
        {"full", "yes"},
        {"full", ""},
        {"clear", "-"},
        {"walk", "-"},
        {"walk", "--5"},
        {"walk", "9223372036854775808"},
        {"walk", "-9223372036854775809"},
        {"walk", "- 5"},
        {"at", "now"},
        {"at", "-\t5"},
        {"v", "one"},
        {"v", "0"},
        {"v", "-1"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        refuse_meta(hash_of((const char *[]){SOUND_META, wrong[i][0], wrong[i][1], NULL}), ERR_CORRUPT);
    }
    refuse_meta(hash_of((const char *[]){SOUND_META, "v", "3", NULL}), ERR_VERSION);
    refuse_meta(hash_of((const char *[]){"v", "1", NULL}), ERR_CORRUPT);
    refuse_meta(hash_of((const char *[]){"node", "1", "epoch", "1", NULL}), ERR_CORRUPT); /* no v */
    refuse_meta(hash_of((const char *[]){SOUND_META, "odd", NULL}), ERR_CORRUPT);
    refuse_meta(text("OK"), ERR_CORRUPT);
    refuse_meta((struct reply){.kind = REPLY_NULL}, ERR_CORRUPT);
    refuse_meta((struct reply){.kind = REPLY_ERROR, .text = slice_str("WRONGTYPE")}, ERR_CORRUPT);
    for (enum reply_kind kind = REPLY_NULL; kind <= REPLY_ARRAY; kind++) {
        for (size_t at = 0; kind != REPLY_TEXT && at < 4; at++) {
            struct reply hash = hash_of((const char *[]){SOUND_META, NULL});
            hash.items[at] = (struct reply){.kind = kind, .integer = 1};
            refuse_meta(hash, ERR_CORRUPT);
        }
    }
    struct reply hash = hash_of((const char *[]){SOUND_META, "to", "x", NULL});
    hash.items[hash.n - 1].text = slice_of("5\0", 2);
    refuse_meta(hash, ERR_CORRUPT);
}

/* --- users that are none --- */

static void refuse_user(struct reply state, struct reply events)
{
    struct front_user u;
    struct err err = {0};
    int rc = front_user_read(&state, &events, &arena, &u, &err);
    if (rc != ERR_CORRUPT) {
        for (size_t i = 0; i < state.n; i++) {
            print_error("%.*s ", (int)state.items[i].text.len, state.items[i].text.data);
        }
        for (size_t i = 0; i < events.n; i++) {
            print_error("(%zu bytes) %.*s ", events.items[i].text.len, (int)events.items[i].text.len,
                        events.items[i].text.data);
        }
    }
    assert_int_equal(rc, ERR_CORRUPT);
    assert_int_equal(err.code, ERR_CORRUPT);
    assert_true(err.text[0] != '\0');
}

static void test_states_that_are_none(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"r", ""},
        {"r", "-1"},
        {"r", "x"},
        {"r", "9007199254740992"},
        {"r", "1.5"},
        {"r", "\t1"},
        {"r", "0x5"},
        {"s", "x"},
        {"s", ""},
        {"g", "2"},
        {"b", "no"},
        {"p", "12345678901"},
        {"p", "1234567890123"},
        {"p", "12345678\1\1\1\1"},
        {"p", "12345678\xff\xff\xff\xff"},
        {"x", "1234567"},
        {"x", "123456789"},
        {"m", "f"},
        {"m2026", "f"},
        {"m202613", "f"},
        {"m202600", "f"},
        {"m2026-1", "f"},
        {"m20261", "f"},
        {"m2026111", "f"},
        {"mabcdef", "f"},
        {"m 20261", "f"},
        {"m-20261", "f"},
        {"m999912", "f"},
        {"", "f"},
        {"y", "f"},
        {"rr", "1"},
        {"later", "1"},
        {"M202611", "f"},
    };
    struct reply none = array(NULL, 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        bool revision = strcmp(wrong[i][0], "r") == 0;
        refuse_user(revision ? hash_of((const char *[]){wrong[i][0], wrong[i][1], NULL})
                             : hash_of((const char *[]){"r", "5", wrong[i][0], wrong[i][1], NULL}),
                    none);
    }
    refuse_user(hash_of((const char *[]){"m202611", "f", NULL}), none); /* no r */
    refuse_user(hash_of((const char *[]){"r", "0", NULL}), none);
    refuse_user(hash_of((const char *[]){"r", "5", "m202611", NULL}), none);
    refuse_user(text("OK"), none);
    refuse_user((struct reply){.kind = REPLY_NULL}, none);
    refuse_user((struct reply){.kind = REPLY_ERROR, .text = slice_str("WRONGTYPE")}, none);
    for (enum reply_kind kind = REPLY_NULL; kind <= REPLY_ARRAY; kind++) {
        for (size_t at = 0; kind != REPLY_TEXT && at < 2; at++) {
            struct reply hash = hash_of((const char *[]){"r", "5", NULL});
            hash.items[at] = (struct reply){.kind = kind, .integer = 5};
            refuse_user(hash, none);
        }
    }
}

/* More months than there can be, as many fields: refused before anything is taken for them. */
static void test_too_many_fields(void **state)
{
    (void)state;
    static struct reply items[2 * 100000];
    for (size_t i = 0; i < sizeof items / sizeof *items; i += 2) {
        items[i] = text("m202611");
        items[i + 1] = text("f");
    }
    size_t before = arena.bytes;
    refuse_user(array(items, sizeof items / sizeof *items), array(NULL, 0));
    assert_true(arena.bytes - before < 1 << 20);
    items[0] = text("r");
    items[1] = text("5");
    refuse_user(array(items, 2 + 2 * (USER_SNAPSHOT_LISTS_MAX + 1)), array(NULL, 0));
}

static void test_events_that_are_none(void **state)
{
    (void)state;
    struct reply known = hash_of((const char *[]){"r", "5", NULL}), none = array(NULL, 0);
    char member[FRONT_EVENT_MAX + 1];
    uint8_t sound[FRONT_EVENT_MAX];
    memset(member, 0, sizeof member);
    struct reply pair[4] = {text_of(slice_of(member, 13)), text("7")};
    struct reply events = array(pair, 2);
    for (int kind = 0; kind < 256; kind++) {
        for (size_t len = 0; len <= sizeof member; len++) {
            member[0] = (char)kind;
            pair[0].text.len = len;
            bool good = (kind == STORE_PLAY && len == 13) || (kind == STORE_DELIVERY && len > 13 && len <= 13 + 255) ||
                        (kind == FRONT_SENT && len > 17 && len <= 17 + 255);
            struct front_user u;
            struct err err = {0};
            assert_int_equal(front_user_read(&known, &events, &arena, &u, &err), good ? 0 : ERR_CORRUPT);
        }
        arena_reset(&arena);
    }
    known = hash_of((const char *[]){"r", "5", NULL});
    size_t len = front_play_write(5, USER_SNAPSHOT_MONTH_MAX + 1, sound);
    pair[0] = text_of(slice_of((char *)sound, len));
    refuse_user(known, events); /* no such month */
    front_play_write(5, -1, sound);
    refuse_user(known, events);
    front_play_write(5, MONTH, sound);
    read_well(&known, &events);
    static const char *const scores[] = {"",
                                         "-1",
                                         "x",
                                         "1.5",
                                         "inf",
                                         "-inf",
                                         "nan",
                                         "9007199254740992",
                                         "1e3",
                                         " 7",
                                         "\t7",
                                         "0x7",
                                         "7 ",
                                         "+7",
                                         "99999999999999999999999999"};
    for (size_t i = 0; i < sizeof scores / sizeof *scores; i++) {
        pair[1] = text(scores[i]);
        refuse_user(known, events);
    }
    pair[1] = text("8");
    pair[2] = pair[0];
    pair[3] = text("7"); /* descending */
    refuse_user(known, array(pair, 4));
    pair[3] = text("8");
    struct reply two = array(pair, 4);
    read_well(&known, &two);
    refuse_user(known, array(pair, 1));
    refuse_user(known, array(pair, 3));
    for (enum reply_kind kind = REPLY_NULL; kind <= REPLY_ARRAY; kind++) {
        for (size_t at = 0; kind != REPLY_TEXT && at < 2; at++) {
            struct reply other[2] = {pair[0], pair[1]};
            other[at] = (struct reply){.kind = kind, .integer = 7, .number = 7};
            if (kind == REPLY_DOUBLE && at == 1) {
                continue; /* RESP3's form of a score may be taken */
            }
            refuse_user(known, array(other, 2));
        }
    }
    refuse_user(known, text("OK"));
    refuse_user(known, (struct reply){.kind = REPLY_NULL});
    refuse_user(known, (struct reply){.kind = REPLY_ERROR, .text = slice_str("WRONGTYPE")});
    read_well(&known, &none);
}

/* Blobs are read by their decoders: any byte that is changed is noticed, and so is any end that is cut off. */
static void test_corrupt_blobs(void **state)
{
    (void)state;
    uint64_t random = 3;
    struct model m;
    make_model(&m, &random);
    while (m.snapshot.n_months == 0 || m.n_deliveries == 0) {
        make_model(&m, &random);
    }
    for (int what = 0; what < 2; what++) {
        struct slice blob = what == 0 ? m.months[0].blob : m.snapshot.deliveries;
        char *bytes = arena_alloc(&arena, blob.len + 1);
        assert_non_null(bytes);
        for (size_t at = 0; at < 2 * blob.len; at++) {
            struct arena_mark mark = arena_mark(&arena);
            struct store_view v;
            struct user_snapshot s;
            struct err err = {0};
            memcpy(bytes, blob.data, blob.len);
            bytes[at % blob.len] ^= (char)(1 + random_below(&random, 255));
            struct slice bad = at < blob.len ? slice_of(bytes, blob.len) : slice_of(blob.data, at - blob.len);
            struct front_user u = {.known = true, .revision = 1, .months = m.months, .n_months = m.snapshot.n_months};
            struct snapshot_month month = {MONTH, bad};
            if (what == 0) {
                u.months = &month;
                u.n_months = 1;
            } else if (bad.len == 0) {
                continue; /* as good as none */
            } else {
                u.deliveries = bad;
            }
            assert_int_equal(front_user_view(&u, SEED, 0, 100, &codec, &arena, &v, &err), ERR_CORRUPT);
            assert_true(err.code == ERR_CORRUPT && err.text[0] != '\0');
            if (what == 1) {
                int rc = front_user_snapshot(&u, slice_str("u"), SEED, 100, &codec, &arena, &blobs[5], &s, &err);
                assert_int_equal(rc, ERR_CORRUPT);
            }
            arena_rewind(&arena, mark);
        }
    }
    /* A month before the window is nobody's concern. */
    struct snapshot_month month = {MONTH - 1, slice_str("rubbish")};
    struct front_user u = {.known = true, .revision = 1, .months = &month, .n_months = 1};
    struct store_view v;
    struct err err = {0};
    assert_int_equal(front_user_view(&u, SEED, MONTH, 100, &codec, &arena, &v, &err), 0);
    assert_int_equal(v.n_months, 0);
}

/* Any reply whatever: never a crash, and what is accepted can be asked. */
static void test_any_reply(void **state)
{
    (void)state;
    static const char *const names[] = {"r", "s", "g", "b", "p", "d", "x", "m202611", "m202610", "m", "", "v", "z"};
    static const char *const values[] = {
        "1", "0", "", "9007199254740991", "x", "123456789012", "12345678\1\0\0\0", "12345678"};
    uint64_t random = 4;
    for (int course = 0; course < 20000; course++) {
        struct reply items[12], members[8];
        size_t n = random_below(&random, 13), n_members = random_below(&random, 9);
        for (size_t i = 0; i < n; i++) {
            items[i] = i % 2 == 0 ? text(names[random_below(&random, sizeof names / sizeof *names)])
                                  : text(values[random_below(&random, sizeof values / sizeof *values)]);
            items[i].kind = random_below(&random, 30) == 0 ? (enum reply_kind)random_below(&random, 7) : items[i].kind;
        }
        for (size_t i = 0; i < n_members; i++) {
            members[i] =
                i % 2 == 1
                    ? text_of(printed("%" PRIu64, random_below(&random, 5)))
                    : text_of(slice_of("\1\0\0\0\0\0\0\0\0\7\0\0\0item", random_below(&random, 2) == 0 ? 13 : 17));
        }
        struct reply state_of = array(items, n), events = array(members, n_members);
        struct front_user u;
        struct front_meta meta;
        struct store_view v;
        struct user_snapshot s;
        struct err err = {0};
        int rc = front_user_read(&state_of, &events, &arena, &u, &err);
        assert_true(rc == 0 || rc == ERR_CORRUPT);
        if (rc == 0) {
            rc = front_user_view(&u, SEED, 0, 100, &codec, &arena, &v, &err);
            assert_true(rc == 0 || rc == ERR_CORRUPT);
            rc = front_user_snapshot(&u, slice_str("u"), SEED, 100, &codec, &arena, &blobs[5], &s, &err);
            assert_true(rc == 0 || rc == ERR_CORRUPT);
        }
        front_meta_read(&state_of, &meta, &err);
        arena_reset(&arena);
    }
}

/* --- no memory --- */

static void test_no_memory(void **state)
{
    (void)state;
    uint64_t random = 5;
    struct model m;
    make_model(&m, &random);
    while (m.snapshot.n_months == 0 || m.n_deliveries == 0 || m.snapshot.n_plays == 0) {
        make_model(&m, &random);
    }
    add_event(&m, STORE_PLAY, slice_str("a"), MONTH);
    add_event(&m, STORE_DELIVERY, slice_str("b"), MONTH);
    struct reply state_of = stored(&m, NULL), events = array(m.events, 2 * m.n_events);
    bool well = false;
    for (int n = 0; !well; n++) {
        struct arena own = {.block_size = 64};
        struct buf out = {0};
        struct front_user u;
        struct store_view v;
        struct user_snapshot s;
        struct err err = {0};
        alloc_fail_after(n);
        int rc = front_state_write(&m.snapshot, &own, &out, &err);
        rc = rc == 0 ? front_user_read(&state_of, &events, &own, &u, &err) : rc;
        rc = rc == 0 ? front_user_view(&u, SEED, 0, 100, &codec, &own, &v, &err) : rc;
        buf_free(&out);
        rc = rc == 0 ? front_user_snapshot(&u, slice_str("u"), SEED, 100, &codec, &own, &out, &s, &err) : rc;
        alloc_fail_after(-1);
        assert_int_equal(rc, alloc_failed ? ERR_NOMEM : 0);
        well = rc == 0;
        buf_free(&out);
        arena_free(&own);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_round_trips, teardown),
        cmocka_unit_test_teardown(test_snapshots, teardown),
        cmocka_unit_test_teardown(test_what_is_not_written, teardown),
        cmocka_unit_test_teardown(test_verdicts, teardown),
        cmocka_unit_test_teardown(test_keys, teardown),
        cmocka_unit_test_teardown(test_event_bytes, teardown),
        cmocka_unit_test_teardown(test_meta, teardown),
        cmocka_unit_test_teardown(test_meta_that_is_none, teardown),
        cmocka_unit_test_teardown(test_states_that_are_none, teardown),
        cmocka_unit_test_teardown(test_too_many_fields, teardown),
        cmocka_unit_test_teardown(test_events_that_are_none, teardown),
        cmocka_unit_test_teardown(test_corrupt_blobs, teardown),
        cmocka_unit_test_teardown(test_any_reply, teardown),
        cmocka_unit_test_teardown(test_no_memory, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
