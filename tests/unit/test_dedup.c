/* The domain against a store made of arrays: what is hidden, why, and which times and ids are taken. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "dedup/dedup.h"
#include "dedup/tier.h"
#include "store/admin.h"
#include "tests/lib/load_wait.h"

enum { MONTHS = 300, MANY = 300000 };
#define SEED UINT64_C(0x5eed)
#define DAY INT64_C(86400000)

/* Everything is one user's. load() leaves out what lies before first_month, as every store must. */
struct fake {
    struct store store;
    int64_t later, earlier;
    struct slice user;
    struct store_month months[MONTHS];
    size_t n_months;
    struct store_play plays[MANY];
    size_t n_plays;
    struct store_delivery deliveries[MANY];
    size_t n_deliveries;
    uint64_t exceptions[MANY];
    size_t n_exceptions;
    int fail; /* code that load() answers */
    bool large;
    int first_month;
    int readers;
    struct store_month shown_months[MONTHS];
    struct store_play shown_plays[MANY];
};

static struct fake fake;
static struct config cfg;
static struct dedup dedup;
static struct asker *asker;
static struct arena arena;

static int show(struct store_reader *reader, int64_t key, struct slice user, int first_month, struct store_view *view,
                struct err *err)
{
    assert_ptr_equal(reader, &fake);
    assert_int_equal(key, hash_user_key(SEED, user));
    fake.first_month = first_month;
    *view = (struct store_view){0};
    if (fake.fail != 0) {
        return err_set(err, fake.fail, "told to fail");
    }
    if (!slice_eq(user, fake.user)) {
        return 0;
    }
    view->known = true;
    for (size_t i = 0; i < fake.n_months; i++) {
        if (fake.months[i].month >= first_month) {
            fake.shown_months[view->n_months++] = fake.months[i];
        }
    }
    for (size_t i = 0; i < fake.n_plays; i++) {
        if (fake.plays[i].month >= first_month) {
            fake.shown_plays[view->n_plays++] = fake.plays[i];
        }
    }
    view->months = fake.shown_months;
    view->plays = fake.shown_plays;
    view->deliveries = fake.deliveries;
    view->n_deliveries = fake.n_deliveries;
    view->exceptions = fake.exceptions;
    view->n_exceptions = fake.n_exceptions;
    return 0;
}

static int fake_load(struct store_reader *reader, struct store_load *load)
{
    load->err = (struct err){0};
    return fake.large ? err_set(&load->err, ERR_LARGE, "large")
                      : show(reader, load->key, load->user, load->first_month, &load->view, &load->err);
}

/* Staged is what it has; all up to 77 is in memory no more. */
static int fake_recent(struct store_reader *reader, struct store_load *load, uint64_t *left)
{
    load->err = (struct err){0};
    int rc = show(reader, load->key, load->user, load->first_month, &load->view, &load->err);
    load->view.n_months = load->view.n_exceptions = 0;
    *left = 77;
    return rc;
}

static int fake_scan(struct store_reader *reader, int64_t key, struct slice user, int first_month,
                     const struct store_scan *scan, struct store_view *view, struct err *err)
{
    assert_true(fake.large);
    int rc = show(reader, key, user, first_month, view, err);
    for (size_t i = 0; rc == 0 && i < view->n_months; i++) {
        struct store_month *m = &fake.shown_months[i];
        for (unsigned p = 0; p < m->filter.n_parts; p++) {
            struct filter_part *part = &m->filter.parts[p];
            for (uint32_t at = 0; at < part->n && part->positions != NULL; at += 7) {
                uint32_t left = part->n - at;
                scan->see(scan->arg, part, at, part->positions + at, left < 7 ? left : 7);
            }
            part->positions = NULL;
        }
        scan->month(scan->arg, m->month, true);
    }
    return rc;
}

static int fake_reader_open(struct store *s, struct store_reader **reader, struct err *err)
{
    if (fake.fail != 0) {
        return err_set(err, fake.fail, "told to fail");
    }
    fake.readers++;
    *reader = (struct store_reader *)s;
    return 0;
}

static void fake_reader_close(struct store_reader *reader)
{
    assert_ptr_equal(reader, &fake);
    fake.readers--;
}

static int fake_months(struct store_reader *reader, struct store_month_info *out, int max, struct err *err)
{
    (void)reader;
    (void)err;
    assert_true(max >= 1);
    out[0] = (struct store_month_info){.month = month_make(2026, 9), .users = 7};
    return 1;
}

static void fake_now(struct store *s, int64_t *later, int64_t *earlier)
{
    (void)s;
    *later = fake.later;
    *earlier = fake.earlier;
}

static int fake_time_known(struct store *s, struct err *err)
{
    (void)s;
    (void)err;
    return 0;
}

static uint64_t fake_seed(struct store *s)
{
    (void)s;
    return SEED;
}

static const struct store_ops fake_ops = {
    .reader_open = fake_reader_open,
    .reader_close = fake_reader_close,
    .load = fake_load,
    .scan = fake_scan,
    .recent = fake_recent,
    .now = fake_now,
    .time_known = fake_time_known,
    .seed = fake_seed,
};

static const struct store_admin_ops admin_ops = {.months = fake_months};

static int64_t day(int year, int month, int d)
{
    return month_start_ms(month_make(year, month)) + (d - 1) * DAY;
}

static int setup(void **state)
{
    (void)state;
    fake = (struct fake){.store = {.engine = "fake", .ops = &fake_ops, .admin = &admin_ops}, .user = slice_str("u1")};
    fake.later = fake.earlier = day(2026, 11, 21);
    cfg = (struct config){.window = 3, .retention = 6, .delivered_max = 100, .skewed_time = SKEWED_ERROR};
    dedup_init(&dedup, &fake.store, &cfg);
    assert_int_equal(asker_open(&dedup, &asker, NULL), 0);
    return 0;
}

/* The same tests with a user who is large. */
static int setup_large(void **state)
{
    setup(state);
    fake.large = true;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    asker_close(asker);
    arena_free(&arena);
    assert_int_equal(fake.readers, 0);
    return 0;
}

static uint64_t item(unsigned i)
{
    char id[16];
    snprintf(id, sizeof id, "i%u", i);
    return hash_id(SEED, slice_str(id));
}

/* Adds a month, newest first, with one part of the items from..to-1; m below 2^32 cuts it. */
static struct store_month *add_month(int month, unsigned from, unsigned to, uint64_t m)
{
    uint32_t *positions = arena_alloc(&arena, (to - from) * sizeof *positions);
    for (unsigned i = from; i < to; i++) {
        positions[i - from] = filter_position(item(i), FILTER_LIVE_M);
    }
    struct store_month *out = &fake.months[fake.n_months++];
    *out = (struct store_month){.month = month, .bytes = 100};
    uint32_t n = filter_sort(positions, to - from, NULL);
    assert_int_equal(filter_add(&out->filter, positions, n, 0, &arena), 0);
    if (m < FILTER_LIVE_M) {
        assert_int_equal(filter_cut(&out->filter.parts[0], m), 0);
    }
    return out;
}

static bool hidden(unsigned i)
{
    uint64_t hash = item(i);
    uint8_t bit = 0xff;
    size_t n = 99;
    assert_int_equal(asker_filter(asker, fake.user, &hash, 1, &bit, &n, NULL), 0);
    assert_int_equal(bit, n == 1 ? 0x80 : 0);
    return n == 0;
}

static int why(unsigned i, struct place *places)
{
    return asker_why(asker, fake.user, item(i), places, NULL);
}

static void test_ids(void **state)
{
    (void)state;
    static char long_id[ID_MAX + 1];
    struct err err;
    assert_int_equal(dedup_check_id("user", 0, slice_str("u"), &err), 0);
    assert_int_equal(dedup_check_id("user", 0, slice_of(long_id, ID_MAX), &err), 0);
    assert_int_equal(dedup_check_id("user", 0, slice_str(""), &err), ERR_INVALID);
    assert_string_equal(err.text, "user is empty: an id has 1 to 255 bytes");
    assert_int_equal(dedup_check_id("item", 3, slice_of(long_id, ID_MAX + 1), &err), ERR_INVALID);
    assert_string_equal(err.text, "item 3 has 256 bytes: an id has 1 to 255");
}

static void test_event_time_limits(void **state)
{
    (void)state;
    int64_t at;
    bool skewed;
    struct err err;
    int64_t oldest = day(2026, 5, 1);
    assert_int_equal(dedup_event_time(&dedup, oldest, &at, &skewed, &err), 0);
    assert_int_equal(at, oldest);
    assert_false(skewed);
    assert_int_equal(dedup_event_time(&dedup, oldest - 1, &at, &skewed, &err), ERR_RANGE);
    assert_string_equal(err.text,
                        "event time 1777593599999 is past retention, by 1 ms: plays are kept from 2026-05 on");

    assert_int_equal(dedup_event_time(&dedup, fake.later + DAY, &at, &skewed, &err), 0);
    assert_int_equal(at, fake.later + DAY);
    assert_int_equal(dedup_event_time(&dedup, fake.later + DAY + 1, &at, &skewed, &err), ERR_RANGE);
    assert_string_equal(err.text,
                        "event time 1795305600001 is 24 hours ahead of the server's clock: at most 1 day is taken");
}

static void test_event_time_absurd(void **state)
{
    (void)state;
    int64_t at;
    bool skewed;
    struct err err;
    assert_int_equal(dedup_event_time(&dedup, fake.later / 1000, &at, &skewed, &err), ERR_RANGE);
    assert_non_null(strstr(err.text, "past retention, by 20553 days"));
    assert_non_null(strstr(err.text, "it looks like seconds"));
    assert_int_equal(dedup_event_time(&dedup, fake.later * 1000, &at, &skewed, &err), ERR_RANGE);
    assert_non_null(strstr(err.text, "ahead of the server's clock: at most 1 day is taken; it looks like microseconds, "
                                     "and milliseconds were expected"));
    assert_int_equal(dedup_event_time(&dedup, fake.later * 1000000, &at, &skewed, &err), ERR_RANGE);
    assert_non_null(strstr(err.text, "it looks like nanoseconds, and milliseconds were expected"));
    assert_int_equal(dedup_event_time(&dedup, 0, &at, &skewed, &err), ERR_RANGE);
    assert_null(strstr(err.text, "seconds"));
    assert_int_equal(dedup_event_time(&dedup, INT64_MIN, &at, &skewed, &err), ERR_RANGE);
    assert_non_null(strstr(err.text, "past retention"));
    assert_int_equal(dedup_event_time(&dedup, INT64_MAX, &at, &skewed, &err), ERR_RANGE);
    assert_non_null(strstr(err.text, "ahead"));
    /* A clock that stands in 1970 meets times that are right: far ahead of it, and not seconds. */
    fake.later = fake.earlier = day(1970, 1, 1);
    assert_int_equal(dedup_event_time(&dedup, day(2026, 11, 21), &at, &skewed, &err), ERR_RANGE);
    assert_null(strstr(err.text, "seconds"));
}

static void test_event_time_taken_as_now(void **state)
{
    (void)state;
    int64_t at = 0;
    bool skewed = true;
    cfg.skewed_time = SKEWED_NOW;
    assert_int_equal(dedup_event_time(&dedup, 5, &at, &skewed, NULL), 0);
    assert_true(skewed);
    assert_int_equal(at, fake.later);
    assert_int_equal(dedup_event_time(&dedup, fake.later - 1, &at, &skewed, NULL), 0);
    assert_false(skewed);
    assert_int_equal(at, fake.later - 1);
}

/* While the clock is doubted, the window and retention begin at the earlier time and plays get the later. */
static void test_doubted_clock(void **state)
{
    (void)state;
    int64_t at;
    bool skewed;
    fake.later = day(2031, 3, 1);
    fake.earlier = day(2026, 11, 21);
    assert_int_equal(dedup_stamp(&dedup), fake.later);
    assert_int_equal(dedup_first_month(&dedup), month_make(2026, 8));
    assert_int_equal(dedup_event_time(&dedup, day(2026, 5, 1), &at, &skewed, NULL), 0);
    assert_int_equal(dedup_event_time(&dedup, fake.later + DAY, &at, &skewed, NULL), 0);
    cfg.skewed_time = SKEWED_NOW;
    assert_int_equal(dedup_event_time(&dedup, 0, &at, &skewed, NULL), 0);
    assert_int_equal(at, fake.later);
}

static void test_each_source_hides(void **state)
{
    (void)state;
    fake.plays[fake.n_plays++] = (struct store_play){item(1), month_make(2026, 11)};
    fake.deliveries[fake.n_deliveries++] = (struct store_delivery){.stamp = 9, .hash = item(2)};
    add_month(month_make(2026, 11), 10, 20, FILTER_LIVE_M);
    struct store_month *sealed = add_month(month_make(2026, 9), 20, 30, 1 << 20);
    uint32_t late = filter_position(item(30), FILTER_LIVE_M);
    assert_int_equal(filter_add(&sealed->filter, &late, 1, 0, &arena), 0);
    assert_int_equal(sealed->filter.n_parts, 2);

    uint64_t hashes[40];
    uint8_t unseen[5];
    size_t n_unseen;
    for (unsigned i = 0; i < 40; i++) {
        hashes[i] = item(i);
    }
    assert_int_equal(asker_filter(asker, fake.user, hashes, 39, unseen, &n_unseen, NULL), 0);
    for (unsigned i = 0; i < 39; i++) {
        bool want = !(i == 1 || i == 2 || (i >= 10 && i <= 30));
        assert_int_equal((unseen[i / 8] >> (7 - i % 8)) & 1, want);
    }
    assert_int_equal(n_unseen, 39 - 23);
    assert_int_equal(unseen[4] & 1, 0);
}

static void test_unknown_user_and_no_candidates(void **state)
{
    (void)state;
    add_month(month_make(2026, 11), 0, 10, FILTER_LIVE_M);
    uint64_t hash = item(1);
    uint8_t unseen = 0;
    size_t n_unseen = 0;
    assert_int_equal(asker_filter(asker, slice_str("u2"), &hash, 1, &unseen, &n_unseen, NULL), 0);
    assert_int_equal(n_unseen, 1);
    assert_int_equal(unseen, 0x80);
    assert_int_equal(asker_filter(asker, fake.user, NULL, 0, &unseen, &n_unseen, NULL), 0);
    assert_int_equal(n_unseen, 0);
    struct place places[PLACES_MAX];
    assert_int_equal(asker_why(asker, slice_str("u2"), hash, places, NULL), 0);
}

static void test_window_edges(void **state)
{
    (void)state;
    add_month(month_make(2026, 12), 1, 2, FILTER_LIVE_M); /* tomorrow's time on a month's last day */
    add_month(month_make(2026, 8), 2, 3, FILTER_LIVE_M);
    add_month(month_make(2026, 7), 3, 4, FILTER_LIVE_M);
    fake.plays[fake.n_plays++] = (struct store_play){item(4), month_make(2026, 8)};
    fake.plays[fake.n_plays++] = (struct store_play){item(5), month_make(2026, 7)};
    assert_true(hidden(1));
    assert_true(hidden(2));
    assert_false(hidden(3));
    assert_true(hidden(4));
    assert_false(hidden(5));
    assert_int_equal(fake.first_month, month_make(2026, 8));
    fake.later = fake.earlier = day(2026, 12, 1); /* the month's end needs no new asker */
    assert_false(hidden(2));
    cfg.window = 5;
    assert_true(hidden(3));
}

/* An exception takes back what filters say, and nothing else. */
static void test_exceptions(void **state)
{
    (void)state;
    struct place places[PLACES_MAX];
    add_month(month_make(2026, 11), 0, 10, FILTER_LIVE_M);
    add_month(month_make(2026, 10), 0, 10, 1 << 24);
    fake.exceptions[fake.n_exceptions++] = item(3);
    assert_false(hidden(3));
    assert_int_equal(why(3, places), 0);
    assert_true(hidden(4));
    fake.plays[fake.n_plays++] = (struct store_play){item(3), month_make(2026, 11)};
    assert_true(hidden(3));
    assert_int_equal(why(3, places), 1);
    assert_int_equal(places[0].kind, PLACE_STAGED);
}

static void test_why_order_and_error(void **state)
{
    (void)state;
    struct place p[PLACES_MAX];
    add_month(month_make(2026, 11), 0, 10, FILTER_LIVE_M);
    struct store_month *sealed = add_month(month_make(2026, 9), 0, 10, 1 << 20);
    uint32_t late = filter_position(item(77), FILTER_LIVE_M);
    assert_int_equal(filter_add(&sealed->filter, &late, 1, 0, &arena), 0);
    fake.deliveries[fake.n_deliveries++] = (struct store_delivery){.stamp = 9, .hash = item(5)};
    fake.plays[fake.n_plays++] = (struct store_play){item(5), month_make(2026, 9)};
    fake.plays[fake.n_plays++] = (struct store_play){item(5), month_make(2026, 11)};
    fake.plays[fake.n_plays++] = (struct store_play){item(5), month_make(2026, 10)};
    assert_int_equal(why(5, p), 4);
    assert_int_equal(p[0].kind, PLACE_STAGED);
    assert_int_equal(p[0].month, month_make(2026, 11));
    assert_true(p[0].error <= 0);
    assert_int_equal(p[1].kind, PLACE_DELIVERED);
    assert_int_equal(p[2].kind, PLACE_MONTH);
    assert_int_equal(p[2].month, month_make(2026, 11));
    assert_true(fabs(p[2].error - 10.0 / 4294967296.0) < 1e-15);
    assert_int_equal(p[3].month, month_make(2026, 9));
    assert_true(fabs(p[3].error - (10.0 / 1048576.0 + 1.0 / 4294967296.0)) < 1e-15);
    assert_int_equal(why(11, p), 0);
}

/* The same answer from both, over many users and items, with filters small enough to err. */
static void test_why_agrees_with_filter(void **state)
{
    (void)state;
    struct place places[PLACES_MAX];
    unsigned n_hidden = 0;
    srand(7);
    for (int round = 0; round < 40; round++) {
        fake.n_months = fake.n_plays = fake.n_deliveries = fake.n_exceptions = 0;
        for (int m = 0; m < 5; m++) {
            unsigned from = (unsigned)rand() % 300;
            uint64_t cut = m < 2 ? FILTER_LIVE_M : (uint64_t)(256 + rand() % 4096);
            add_month(month_make(2026, 11) - m, from, from + 1 + (unsigned)rand() % 40, cut);
        }
        for (int i = 0; i < 20; i++) {
            fake.plays[fake.n_plays++] = (struct store_play){item((unsigned)rand() % 300), month_make(2026, 11)};
            fake.deliveries[fake.n_deliveries++] = (struct store_delivery){.hash = item((unsigned)rand() % 300)};
            fake.exceptions[fake.n_exceptions++] = item((unsigned)rand() % 300);
        }
        for (unsigned i = 0; i < 300; i++) {
            bool is = hidden(i);
            n_hidden += is;
            assert_int_equal(why(i, places) > 0, is);
        }
    }
    assert_in_range(n_hidden, 2000, 10000);
}

static void test_why_is_bounded(void **state)
{
    (void)state;
    struct place places[PLACES_MAX];
    for (int m = 0; m < MONTHS; m++) {
        add_month(month_make(2060, 12) - m, 0, 2, FILTER_LIVE_M);
    }
    assert_int_equal(why(1, places), PLACES_MAX);
    assert_int_equal(places[PLACES_MAX - 1].month, month_make(2060, 12) - PLACES_MAX + 1);
}

static void test_history(void **state)
{
    (void)state;
    struct history h;
    assert_int_equal(asker_history(asker, slice_str("u2"), &h, NULL), 0);

    add_month(month_make(2026, 11), 0, 10, FILTER_LIVE_M);
    add_month(month_make(2026, 8), 0, 20, 1 << 20);
    add_month(month_make(2026, 7), 0, 30, 1 << 10);
    fake.plays[fake.n_plays++] = (struct store_play){item(1), month_make(2026, 5)};
    fake.plays[fake.n_plays++] = (struct store_play){item(2), month_make(2026, 11)};
    fake.deliveries[fake.n_deliveries++] = (struct store_delivery){.hash = item(3)};
    assert_int_equal(asker_history(asker, fake.user, &h, NULL), 1);
    assert_int_equal(fake.first_month, INT_MIN);
    assert_int_equal(h.n_months, 3);
    assert_int_equal(h.staged, 2);
    assert_int_equal(h.delivered, 1);
    assert_int_equal(h.months[0].month, month_make(2026, 11));
    assert_int_equal(h.months[0].items, 10);
    assert_int_equal(h.months[0].bytes, 100);
    assert_false(h.months[0].sealed);
    assert_true(h.months[0].in_window);
    assert_true(h.months[1].sealed);
    assert_true(h.months[1].in_window);
    assert_false(h.months[2].in_window);
    /* Kept from September to February, swept in March. */
    assert_int_equal(h.months[1].expires_ms, day(2027, 3, 1));
    assert_true(h.months[2].error > 0.02);
    assert_true(fabs(h.error - h.months[0].error - h.months[1].error) < 1e-15);
}

/* Four months at error_rate/4 x 2^32 plays use up the budget, and no more. */
static void test_history_states_the_error_at_capacity(void **state)
{
    (void)state;
    struct history h;
    for (int m = 0; m < 4; m++) {
        fake.months[fake.n_months++] = (struct store_month){
            .month = month_make(2026, 11) - m, .filter = {.n_parts = 1, .parts = {{.n = 1073741, .m = FILTER_LIVE_M}}}};
    }
    assert_int_equal(asker_history(asker, fake.user, &h, NULL), 1);
    assert_true(h.error <= 0.001);
    assert_true(h.error > 0.000999);
    fake.months[0].filter.parts[0].n *= 2;
    assert_int_equal(asker_history(asker, fake.user, &h, NULL), 1);
    assert_true(h.error > 0.00124);
}

static void test_errors_pass_through(void **state)
{
    (void)state;
    uint64_t hash = item(1);
    uint8_t unseen;
    size_t n;
    struct err err;
    struct history h;
    struct place places[PLACES_MAX];
    fake.fail = ERR_CORRUPT;
    assert_int_equal(asker_filter(asker, fake.user, &hash, 1, &unseen, &n, &err), ERR_CORRUPT);
    assert_string_equal(err.text, "told to fail");
    assert_int_equal(asker_why(asker, fake.user, hash, places, &err), ERR_CORRUPT);
    assert_int_equal(asker_history(asker, fake.user, &h, &err), ERR_CORRUPT);
    struct asker *other = NULL;
    assert_int_equal(asker_open(&dedup, &other, &err), ERR_CORRUPT);
    assert_null(other);
}

/* The same asker serves users of any size, one after the other: it gives memory back after one that needs more than it
 * keeps (4 MiB). */
static void test_giant_then_small(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MANY; i++) {
        fake.plays[i] = (struct store_play){item(i), month_make(2026, 11)};
        fake.deliveries[i] = (struct store_delivery){.hash = item(MANY + i)};
    }
    fake.n_plays = fake.n_deliveries = MANY;
    add_month(month_make(2026, 11), 2 * MANY, 4 * MANY, FILTER_LIVE_M);
    for (int round = 0; round < 2; round++) {
        assert_true(hidden(MANY - 1));
        assert_true(hidden(2 * MANY - 1));
        assert_true(hidden(4 * MANY - 1));
        assert_false(hidden(4 * MANY));
    }
    fake.n_plays = 1;
    fake.n_deliveries = fake.n_months = 0;
    assert_true(hidden(0));
    assert_false(hidden(1));
    assert_false(hidden(MANY));
    assert_false(hidden(3 * MANY));
}

/* An asker that leaves large users to others says so, and answers about all others. */
static void test_large_users_left(void **state)
{
    (void)state;
    struct err err;
    uint8_t unseen;
    size_t n;
    struct place places[PLACES_MAX];
    struct history h;
    uint64_t hash = item(1);
    add_month(month_make(2026, 11), 0, 10, FILTER_LIVE_M);
    asker_leave_large(asker);
    assert_int_equal(asker_filter(asker, fake.user, &hash, 1, &unseen, &n, &err), ERR_LARGE);
    assert_int_equal(asker_why(asker, fake.user, hash, places, &err), ERR_LARGE);
    assert_int_equal(asker_history(asker, fake.user, &h, &err), ERR_LARGE);
    fake.large = false;
    assert_true(hidden(1));
    assert_int_equal(why(1, places), 1);
}

static void test_months(void **state)
{
    (void)state;
    struct store_month_info out[2];
    assert_int_equal(asker_months(asker, out, 2, NULL), 1);
    assert_int_equal(out[0].users, 7);
}

static void test_recent_and_a_second_tier(void **state)
{
    (void)state;
    fake.plays[fake.n_plays++] = (struct store_play){item(1), month_make(2026, 11)};
    fake.deliveries[fake.n_deliveries++] = (struct store_delivery){.stamp = 9, .hash = item(2)};
    add_month(month_make(2026, 11), 10, 20, FILTER_LIVE_M);
    uint64_t hashes[11], left = 0;
    uint8_t unseen[2] = {0}, tier[2] = {0xef, 0xff}; /* it has 3, and bits behind the last one are anything */
    struct err err = {0};
    for (unsigned i = 0; i < 11; i++) {
        hashes[i] = item(i);
    }
    struct query q = {.kind = QUERY_FILTER, .user = fake.user, .hashes = hashes, .n = 11, .unseen = unseen};
    assert_int_equal(asker_recent(asker, &q, &left, &err), 0);
    assert_int_equal(left, 77);
    assert_int_equal(q.n_unseen, 9); /* no month, so 10 is not known */
    assert_int_equal(unseen[0], 0x9f);
    assert_int_equal(unseen[1], 0xe0);
    assert_int_equal(tier_unite(unseen, tier, 11), 8);
    assert_int_equal(unseen[0], 0x8f);
    assert_int_equal(unseen[1], 0xe0);
    fake.fail = ERR_NOMEM;
    assert_int_equal(asker_recent(asker, &q, &left, &err), ERR_NOMEM);
    assert_string_equal(err.text, "told to fail");
    assert_int_equal(tier_unite(unseen, tier, 0), 0);
}

static void test_no_memory_of_its_own(void **state)
{
    (void)state;
    const struct store_ops *ops = fake.store.ops;
    struct store_ops without = *ops;
    struct query q = {.kind = QUERY_FILTER, .user = fake.user};
    struct err err = {0};
    uint64_t left;
    without.recent = NULL;
    fake.store.ops = &without;
    assert_int_equal(asker_recent(asker, &q, &left, &err), ERR_ABSENT);
    fake.store.ops = ops;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define LARGE(name) cmocka_unit_test_setup_teardown(name, setup_large, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_ids),
        TEST(test_event_time_limits),
        TEST(test_event_time_absurd),
        TEST(test_event_time_taken_as_now),
        TEST(test_doubted_clock),
        TEST(test_each_source_hides),
        TEST(test_unknown_user_and_no_candidates),
        TEST(test_window_edges),
        TEST(test_exceptions),
        TEST(test_why_order_and_error),
        TEST(test_why_agrees_with_filter),
        TEST(test_why_is_bounded),
        TEST(test_history),
        TEST(test_history_states_the_error_at_capacity),
        TEST(test_errors_pass_through),
        TEST(test_giant_then_small),
        TEST(test_months),
        TEST(test_recent_and_a_second_tier),
        TEST(test_no_memory_of_its_own),
        LARGE(test_each_source_hides),
        LARGE(test_unknown_user_and_no_candidates),
        LARGE(test_window_edges),
        LARGE(test_exceptions),
        LARGE(test_why_order_and_error),
        LARGE(test_why_agrees_with_filter),
        LARGE(test_why_is_bounded),
        LARGE(test_history),
        LARGE(test_history_states_the_error_at_capacity),
        LARGE(test_errors_pass_through),
        LARGE(test_giant_then_small),
        LARGE(test_large_users_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
