/* Sealing, where a scenario can't look: the arithmetic of the error, measured over millions of candidates; a kill at
 * every write; questions and forgets beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "filter/error_budget.h"
#include "store/admin.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/state.h"
#include "tests/lib/load_wait.h"
#include "tests/lib/random.h"
#include "tests/lib/rounds.h"
#include "tests/lib/world_fixture.h"

enum { HOUR_MS = 3600 * 1000, ID_SIZE = 32 };
static const int64_t DAY_MS = INT64_C(24) * HOUR_MS;
static const int64_t AUGUST_20 = INT64_C(1787227200000);   /* 2026-08-20T12:00Z */
static const int64_t SEPTEMBER_2 = INT64_C(1788314400000); /* 2026-09-02T02:00Z */

struct fixture {
    struct world world;
    char folder[64];
};

static int setup(void **state)
{
    static struct fixture f;
    world_fixture_init(&f.world, "seal", AUGUST_20, f.folder);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    world_fixture_end(&f->world, f->folder);
    return 0;
}

static void advance_to(struct world *w, int64_t ms)
{
    struct err err = {0};
    while (clock_wall_ms() < ms) {
        int64_t step = ms - clock_wall_ms();
        if (world_advance(w, step < DAY_MS ? step : DAY_MS, &err) < 0) {
            fail_msg("%s", err.text);
        }
    }
}

static struct slice name(char out[ID_SIZE], const char *prefix, uint32_t n)
{
    return slice_of(out, (size_t)snprintf(out, ID_SIZE, "%s%" PRIu32, prefix, n));
}

/* Plays of the items prefix+from .. prefix+to-1. */
static void play(struct world *w, struct slice user, int64_t at_ms, const char *prefix, uint32_t from, uint32_t to)
{
    enum { ITEMS = 1000 };
    static char ids[ITEMS][ID_SIZE];
    static struct slice items[ITEMS];
    while (from < to) {
        size_t n = 0;
        for (; n < ITEMS && from < to; n++, from++) {
            items[n] = name(ids[n], prefix, from);
        }
        struct world_event event = {.kind = STORE_PLAY, .at_ms = at_ms, .user = user, .items = items, .n = n};
        world_record(w, &event, 1, NULL, NULL);
        wait_all(w);
    }
}

/* Users u0 .. u(n-1), two plays each. */
static void play_all(struct world *w, uint32_t n)
{
    char user[ID_SIZE];
    char x[ID_SIZE];
    char y[ID_SIZE];
    for (uint32_t i = 0; i < n; i++) {
        struct slice items[] = {name(x, "x", i), name(y, "y", i)};
        struct world_event event = {
            .kind = STORE_PLAY, .at_ms = clock_wall_ms(), .user = name(user, "u", i), .items = items, .n = 2};
        world_record(w, &event, 1, NULL, NULL);
    }
    wait_all(w);
    flush_world(w);
}

static void need_seen(struct world *w, uint32_t i)
{
    char user[ID_SIZE];
    char item[ID_SIZE];
    assert_true(is_seen_id(w, name(user, "u", i), name(item, "x", i)));
    assert_true(is_seen_id(w, name(user, "u", i), name(item, "y", i)));
}

static struct store_month_info oldest_month(struct world *w)
{
    struct store_month_info months[16];
    struct err err = {0};
    int n = asker_months(w->asker, months, 16, &err);
    assert_true(n > 0);
    return months[n - 1];
}

static void need_sound(struct world *w)
{
    struct err err = {0};
    int problems = world_check(w, &err);
    if (problems != 0) {
        fail_msg("check: %d problems %s", problems, err.text);
    }
}

/* --- the error --- */

static void test_range(void **state)
{
    (void)state;
    static const double rates[] = {1e-4, 1e-3, 0.01, 0.05};
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        for (int window = 0; window <= 12; window++) {
            for (uint32_t n = 1; n < 4000000; n += 1 + n / 7) {
                int months = window > 1 ? window : 1;
                double most = error_budget_share(rates[r], window);
                assert_true(fabs(months * most / rates[r] - (0.97 - (months + 1) * 0.0036)) < 1e-12);
                for (int coarse = 0; coarse <= 1; coarse++) {
                    uint64_t m = error_budget_range(n, coarse, most);
                    if (m == 0) {
                        assert_true(n / most > (coarse ? 0.99 * (1 << 27) : 0.99 * (double)FILTER_LIVE_M));
                        continue;
                    }
                    assert_in_range(m, 1, FILTER_LIVE_M - 1);
                    assert_true(n * filter_chance(m, coarse) <= most);
                    /* It is spent, not given away: one less would be too much. */
                    assert_true(m == 1 || n * filter_chance(m - 1, coarse) > most * (1 - 1e-9));
                }
            }
        }
    }
    double share = error_budget_share(1e-3, 3);
    assert_int_equal(error_budget_range(0, false, share), 0);
    assert_int_equal(error_budget_range(1000, false, share), 3139390); /* 1000 * 3 / (0.9556 * 0.001) */
    /* What the promise names can be sealed, in a window of three. */
    assert_true(error_budget_range((uint32_t)(1e-3 / 4 * (double)FILTER_LIVE_M), false, share) > 0);
}

/* A filter as flushes make it of the positions; the tails are of hashes that end in zeros. */
static void fill_parts(struct filter *f, uint32_t *work, uint32_t n, double rate, struct arena *arena)
{
    uint8_t *tails = malloc(n + 1);
    assert_non_null(tails);
    memset(tails, 1, n + 1);
    for (uint32_t from = 0, to; from < n; from = to) {
        to = from + 4000 < n ? from + 4000 : n;
        uint32_t distinct = filter_sort(work + from, to - from, NULL);
        assert_int_equal(filter_add_tails(f, work + from, tails, distinct, error_budget_coarse_max(rate),
                                          error_budget_live_max(rate), arena),
                         0);
    }
    free(tails);
}

/* A user with n plays each month. However many months of the window are sealed, and whether late plays came to each,
 * the sum stays below error_rate; and no play is lost. What is sealed may spend its share to the last: so it is also
 * below for one who has played little and now plays n in a month. */
static void need_bounded(uint32_t n, double rate, int64_t window)
{
    uint32_t *positions = malloc((n + 1) * sizeof *positions);
    uint32_t *work = malloc((n + 1) * sizeof *work);
    struct arena arena = {0};
    struct filter f = {0};
    uint64_t random = n;
    assert_true(positions != NULL && work != NULL);
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = (uint32_t)(random_next(&random) >> 32);
    }
    memcpy(work, positions, n * sizeof *work);
    fill_parts(&f, work, n, rate, &arena);
    const double live = filter_error(&f);
    const double most = (double)window * error_budget_share(rate, window);
    assert_true(most + live <= rate);
    for (unsigned i = 0; i < f.n_parts; i++) {
        struct filter late = {.n_parts = 1, .parts = {f.parts[i]}};
        assert_true(f.parts[i].coarse || filter_error(&late) <= rate * (f.parts[i].fine ? 0.0011 : 0.0025));
    }
    int cut = error_budget_seal(&f, rate, window, &arena);
    const double share = filter_error(&f);
    assert_int_equal(cut, n > 0);
    assert_int_equal(filter_sealed(&f), n > 0);
    if (n > 0 && share > live) {
        assert_true((double)window * share <= most);
        assert_true(((double)window - 1) * share + 2 * live <= rate);
    }
    if (n > 1000 && n < 40e6 * rate) {
        assert_int_equal(f.n_parts, 1);
    }
    if (n > 1000) {
        assert_true(share > 0.9 / (double)window * rate); /* what was promised is spent */
    }
    for (uint32_t i = 0; i < n; i++) {
        assert_true(filter_has(&f, (uint64_t)positions[i] << 32));
    }
    assert_int_equal(error_budget_seal(&f, rate, window, &arena), 0);
    arena_free(&arena);
    free(positions);
    free(work);
}

static void test_parts(void **state)
{
    (void)state;
    static const double rates[] = {1e-4, 1e-3, 0.05};
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        uint32_t most = error_budget_coarse_max(rates[r]);
        for (int64_t window = 1; window <= 12; window += 2 * (int64_t)test_stride()) {
            need_bounded(1, rates[r], window);
            need_bounded(most, rates[r], window);
        }
        need_bounded(most + 1, rates[r], 3);
        need_bounded(2 * most, rates[r], 3);
        need_bounded(most + error_budget_live_max(rates[r]) + 5000, rates[r], 3);
    }
    assert_int_equal(error_budget_coarse_max(1e-3), 4026); /* 0.03 * 0.001 * 2^27 */
    assert_int_equal(error_budget_live_max(1e-3), 10737);  /* 0.0025 * 0.001 * 2^32 */
    need_bounded(30000, 1e-3, 3);
    need_bounded(200000, 1e-3, 3); /* a giant: cut beside a coarse part that stays live */
    need_bounded(1000000 / (uint32_t)test_stride(), 1e-3, 3);
    need_bounded(107000, 1e-4, 3);
    need_bounded(0, 1e-3, 3);
}

struct measured {
    uint64_t asked, hidden;
};

/* Random hashes are items that nobody played. */
static void measure(struct world *w, struct slice user, size_t candidates, uint64_t *random, struct measured *out)
{
    enum { MOST = 65536 };
    static uint64_t hashes[MOST];
    static uint8_t bits[MOST / 8];
    struct err err = {0};
    *out = (struct measured){0};
    while (out->asked < candidates) {
        for (size_t i = 0; i < MOST; i++) {
            hashes[i] = random_next(random);
        }
        size_t unseen = 0;
        assert_int_equal(asker_filter(w->asker, user, hashes, MOST, bits, &unseen, &err), 0);
        out->asked += MOST;
        out->hidden += MOST - unseen;
    }
}

/* Users of every size with the same number of plays in four months; then with late plays in second parts. */
static void test_error(void **state)
{
    static const uint32_t sizes[] = {1, 2, 7, 100, 1000, 10000, 100000};
    enum { MONTHS = 4 };
    const int users = (int)(sizeof sizes / sizeof *sizes) - (test_stride() > 1); /* the last has most of all plays */
    const size_t candidates = 1000000 / test_stride();
    struct fixture *f = *state;
    struct world *w = &f->world;
    struct err err = {0};
    char user[ID_SIZE];
    char item[ID_SIZE];
    uint64_t random = 1;
    start(w);
    advance_to(w, SEPTEMBER_2 - 12 * HOUR_MS);
    for (int u = 0; u < users; u++) {
        for (int m = 0; m < MONTHS; m++) {
            char prefix[ID_SIZE];
            snprintf(prefix, sizeof prefix, "m%d-", m);
            play(w, name(user, "u", (uint32_t)u), clock_wall_ms() - m * 30 * DAY_MS, prefix, 0, sizes[u] / 3);
        }
    }
    flush_world(w); /* so that the months of larger users have a coarse part and one beside it */
    for (int u = 0; u < users; u++) {
        for (int m = 0; m < MONTHS; m++) {
            char prefix[ID_SIZE];
            snprintf(prefix, sizeof prefix, "m%d-", m);
            play(w, name(user, "u", (uint32_t)u), clock_wall_ms() - m * 30 * DAY_MS, prefix, sizes[u] / 3, sizes[u]);
        }
    }
    flush_world(w);
    advance_to(w, SEPTEMBER_2 + HOUR_MS);
    assert_int_equal(oldest_month(w).state, STORE_MONTH_SEALED);
    uint64_t asked = 0;
    for (int late = 0; late < 2; late++) {
        for (int u = 0; u < users; u++) {
            struct slice id = name(user, "u", (uint32_t)u);
            struct history h;
            assert_int_equal(asker_history(w->asker, id, &h, &err), 1);
            assert_int_equal(h.n_months, MONTHS);
            assert_true(h.error <= w->cfg.error_rate);
            for (size_t m = 0; m < h.n_months; m++) {
                assert_int_equal(h.months[m].sealed, m > 0);
                /* A short blob's range is one of few. */
                const double least = sizes[u] > FILTER_FEW ? 0.9 : 0.7;
                assert_true(m == 0 || h.months[m].error > least * 0.97 / 3 * w->cfg.error_rate);
            }
            double stated = h.error;
            struct measured got;
            measure(w, id, candidates, &random, &got);
            asked += got.asked;
            double expected = stated * (double)got.asked;
            double off = fabs((double)got.hidden - expected);
            if (off > 5 * sqrt(expected) + 5) {
                fail_msg("%" PRIu32 " plays: %" PRIu64 " of %" PRIu64 " hidden, expected %.1f", sizes[u], got.hidden,
                         got.asked, expected);
            }
            for (uint32_t i = 0; i < sizes[u]; i += 1 + i / 8) {
                for (int m = 0; m < MONTHS; m++) {
                    snprintf(item, sizeof item, "m%d-%" PRIu32, m, i);
                    assert_true(is_seen_id(w, id, slice_str(item)));
                }
            }
            assert_true(late == 0 || is_seen_id(w, id, slice_str("late0")));
            if (late == 0) {
                play(w, id, clock_wall_ms() - 33 * DAY_MS, "late", 0, sizes[u] / 10 + 1);
            }
        }
        flush_world(w);
    }
    assert_true(asked >= 2 * (size_t)users * candidates);
    need_sound(w);
}

/* --- interruptions --- */

/* The process is killed at the first write of the sealing, at the eighth, and so on, and goes on each time. */
static void test_kills(void **state)
{
    enum { USERS = 5000, STEP = 7 }; /* ten transactions of a sealing */
    struct fixture *f = *state;
    struct world *w = &f->world;
    struct err err = {0};
    start(w);
    play_all(w, USERS);
    world_stop(w);
    clock_test_advance(SEPTEMBER_2 - clock_wall_ms());
    int between = 0;
    bool sealed = false;
    for (uint64_t nth = 1; !sealed; nth += test_stride() > 1 ? 2 * STEP : STEP) {
        vfs_fault_add(
            &(struct vfs_rule){.ops = VFS_CHANGE, .file = "history", .nth = nth, .sticky = true, .action = VFS_EIO});
        if (world_start(w, &err) == 0) {
            world_advance(w, 0, &err);
            world_crash(w);
        }
        vfs_fault_heal();
        err = (struct err){0};
        w->cfg.sweep_to = w->cfg.sweep_from + 1; /* a look, in which nothing is sealed */
        start(w);
        enum store_month_state at = oldest_month(w).state;
        between += at == STORE_MONTH_SEALING;
        sealed = at == STORE_MONTH_SEALED;
        assert_int_equal(oldest_month(w).users, USERS);
        need_sound(w);
        for (uint32_t i = 0; i < USERS; i += 1 + (sealed ? 0 : (uint32_t)nth % 13)) {
            need_seen(w, i);
        }
        world_stop(w);
        w->cfg.sweep_to = 5 * 60;
        assert_true(nth < 2000);
    }
    assert_true(between > 3);
}

/* The window of the night closes in the middle: it goes on in the next one. */
static void test_nights(void **state)
{
    enum { USERS = 2500 };
    struct fixture *f = *state;
    struct world *w = &f->world;
    start(w);
    play_all(w, USERS);
    advance_to(w, SEPTEMBER_2 - 4 * HOUR_MS);
    int64_t night = SEPTEMBER_2;
    int nights = 0;
    while (oldest_month(w).state != STORE_MONTH_SEALED) {
        advance_to(w, night - 3 * HOUR_MS);
        if (nights++ < 2) {
            /* The historian is held in the middle of a step until it is day. */
            vfs_fault_add(&(struct vfs_rule){.ops = VFS_WRITE, .file = "history", .nth = 2, .action = VFS_HOLD});
            clock_test_advance(4 * HOUR_MS);
            world_tick(w);
            vfs_fault_wait_held();
            clock_test_advance(5 * HOUR_MS);
            vfs_fault_heal();
            wait_all(w);
            struct store_month_info m = oldest_month(w);
            assert_int_equal(m.state, STORE_MONTH_SEALING);
            assert_true(m.progress > 0 && m.progress < 1);
        } else {
            advance_to(w, night);
        }
        need_sound(w);
        night += DAY_MS;
    }
    assert_int_equal(nights, 3);
    for (uint32_t i = 0; i < USERS; i++) {
        need_seen(w, i);
    }
}

/* --- beside questions --- */

enum { ASKED_USERS = 4000, FORGOTTEN_USERS = 200 };

struct questions {
    struct world *world;
    _Atomic bool end;
    _Atomic int failures;
    _Atomic uint64_t asked;
    uint64_t random;
};

static void *ask(void *arg)
{
    struct questions *q = arg;
    struct asker *asker;
    struct err err = {0};
    if (asker_open(&q->world->dedup, &asker, &err) < 0) {
        atomic_fetch_add(&q->failures, 1);
        return NULL;
    }
    while (!atomic_load(&q->end)) {
        char user[ID_SIZE];
        char item[ID_SIZE];
        uint32_t u = FORGOTTEN_USERS + (uint32_t)random_below(&q->random, ASKED_USERS - FORGOTTEN_USERS);
        uint64_t hash = hash_id(q->world->dedup.seed, name(item, u % 2 == 0 ? "x" : "y", u));
        uint8_t bits;
        size_t unseen;
        if (asker_filter(asker, name(user, "u", u), &hash, 1, &bits, &unseen, &err) < 0 || unseen != 0) {
            fprintf(stderr, "u%" PRIu32 ": %s\n", u, err.code < 0 ? err.text : "a played item is unseen");
            atomic_fetch_add(&q->failures, 1);
        }
        atomic_fetch_add(&q->asked, 1);
    }
    asker_close(asker);
    return NULL;
}

/* Questions and forgets from the first row moved to the last, over the rename; by readers that knew the old table. */
static void test_questions(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    start(w);
    play_all(w, ASKED_USERS);
    advance_to(w, SEPTEMBER_2 - 4 * HOUR_MS);
    need_seen(w, FORGOTTEN_USERS);
    struct questions q[2] = {{.world = w, .random = 1}, {.world = w, .random = 2}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, ask, &q[i]), 0);
    }
    while (atomic_load(&q[0].asked) < 50) {
        sched_yield();
    }
    clock_test_advance(4 * HOUR_MS);
    world_tick(w);
    char user[ID_SIZE];
    for (uint32_t i = 0; i < FORGOTTEN_USERS; i++) {
        world_forget(w, name(user, "u", i), NULL, 0, NULL, NULL);
    }
    wait_all(w);
    advance_to(w, SEPTEMBER_2 + 10 * 60 * 1000);
    assert_int_equal(oldest_month(w).state, STORE_MONTH_SEALED);
    uint64_t then = atomic_load(&q[0].asked);
    while (atomic_load(&q[0].asked) < then + 50) {
        sched_yield();
    }
    for (int i = 0; i < 2; i++) {
        atomic_store(&q[i].end, true);
        pthread_join(threads[i], NULL);
        assert_int_equal(atomic_load(&q[i].failures), 0);
    }
    struct history h;
    struct err err = {0};
    for (uint32_t i = 0; i < FORGOTTEN_USERS; i++) {
        assert_int_equal(asker_history(w->asker, name(user, "u", i), &h, &err), 0);
    }
    for (uint32_t i = FORGOTTEN_USERS; i < ASKED_USERS; i++) {
        need_seen(w, i);
    }
    assert_int_equal(oldest_month(w).users, ASKED_USERS - FORGOTTEN_USERS);
    need_sound(w);
}

/* --- page sizes --- */

static int64_t page_size(const char *folder, const char *name)
{
    struct db db;
    struct err err = {0};
    int64_t size = 0;
    assert_int_equal(db_open(&db, folder, name, NULL, DB_READ, &err), 0);
    assert_int_equal(db_int(&db, "PRAGMA page_size", &size, &err), 0);
    db_close(&db);
    return size;
}

static void make_empty(const char *folder, const char *name, int64_t page_size)
{
    char path[128];
    char sql[64];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/%s.db", folder, name);
    snprintf(sql, sizeof sql, "PRAGMA page_size = %" PRId64 "; VACUUM", page_size);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

/* New files have pages of the sizes that suit their rows; those that are there keep their own, and take plays and the
 * sealing. */
static void test_page_sizes(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    static const int64_t sizes[] = {0, 512, 4096, 65536};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        clock_test_start(AUGUST_20);
        if (sizes[i] > 0) {
            world_remove_folder(f->folder);
            assert_int_equal(mkdir(f->folder, 0700), 0);
            make_empty(f->folder, "history", sizes[i]);
            make_empty(f->folder, "staging", sizes[i]);
        }
        start(w);
        play_all(w, 700);
        play(w, slice_str("heavy"), clock_wall_ms(), "h", 0, 3000);
        flush_world(w);
        for (int sealed = 0; sealed < 2; sealed++) {
            assert_int_equal(oldest_month(w).state, sealed ? STORE_MONTH_SEALED : STORE_MONTH_LIVE);
            need_seen(w, 0);
            need_seen(w, 699);
            assert_true(is_seen(w, "heavy", "h2999"));
            need_sound(w);
            advance_to(w, SEPTEMBER_2 + HOUR_MS);
        }
        world_stop(w);
        assert_int_equal(page_size(f->folder, "history"), sizes[i] > 0 ? sizes[i] : DB_HISTORY_PAGE);
        assert_int_equal(page_size(f->folder, "staging"), sizes[i] > 0 ? sizes[i] : DB_STAGING_PAGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_range),
        cmocka_unit_test(test_parts),
        cmocka_unit_test_setup_teardown(test_error, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kills, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nights, setup, teardown),
        cmocka_unit_test_setup_teardown(test_questions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_page_sizes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
