/* Readers of the embedded store: beside flushes and forgets, of a user who is large, and in the way of the WAL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "filter/sieve.h"
#include "store/bulk.h"
#include "store/ring.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/read/reader.h"
#include "store/sqlite/state.h"
#include "tests/lib/store_calls.h"

struct race {
    struct store_fixture *f;
    _Atomic int acknowledged; /* items i0 .. of user "u" */
    _Atomic bool stop;
    _Atomic int unseen;
    _Atomic int loads;
};

static void *read_all(void *arg)
{
    struct race *race = arg;
    struct store *store = race->f->store;
    struct store_reader *reader;
    struct err err = {0};
    if (store->ops->reader_open(store, &reader, &err) < 0) {
        atomic_fetch_add(&race->unseen, 1);
        return NULL;
    }
    while (!atomic_load(&race->stop)) {
        int n = atomic_load(&race->acknowledged);
        struct store_view view;
        if (load(race->f, reader, "u", &view, &err) < 0) {
            atomic_fetch_add(&race->unseen, 1);
            break;
        }
        for (int i = n > 20 ? n - 20 : 0; i < n; i++) {
            char item[16];
            snprintf(item, sizeof item, "i%d", i);
            if (!in_view(&view, item)) {
                atomic_fetch_add(&race->unseen, 1);
            }
        }
        atomic_fetch_add(&race->loads, 1);
    }
    store->ops->reader_close(reader);
    return NULL;
}

static void test_readers_race(void **state)
{
    struct store_fixture *f = *state;
    struct race race = {.f = f};
    pthread_t threads[2];
    play(f, "u", "first");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, &race), 0);
    }
    for (int i = 0; i < 150; i++) {
        char item[16];
        snprintf(item, sizeof item, "i%d", i);
        play(f, "u", item);
        atomic_store(&race.acknowledged, i + 1);
        if (i % 3 == 0) {
            play(f, "victim", item);
            assert_int_equal(flush(f), 0);
        }
        if (i % 10 == 0) {
            assert_int_equal(forget(f, "victim", NULL), 1);
            assert_false(known(f, "victim"));
        }
    }
    while (atomic_load(&race.loads) < 10 && atomic_load(&race.unseen) == 0) {
        play(f, "u", "more");
    }
    atomic_store(&race.stop, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(atomic_load(&race.unseen), 0);
}

/* --- tests: the months that a reader keeps from question to question --- */

static size_t months_loaded(struct store_fixture *f, int first_month)
{
    struct store_view view;
    struct err err = {0};
    assert_int_equal(store_load_wait(f->store, f->reader, key_of("u"), slice_str("u"), first_month, &view, &err), 0);
    return view.n_months;
}

static void play_in(struct store_fixture *f, int month)
{
    assert_int_equal(record_at(f, STORE_PLAY, month_start_ms(month), "u", "i"), 0);
    assert_int_equal(flush(f), 0);
}

static void test_kept_window(void **state)
{
    struct store_fixture *f = *state;
    const int now = month_of_ms(clock_wall_ms());
    play_in(f, now);
    assert_int_equal(months_loaded(f, INT_MIN), 1);
    play_in(f, now - 1); /* a month is made */
    assert_int_equal(months_loaded(f, INT_MIN), 2);
    assert_int_equal(months_loaded(f, now), 1); /* another window, the same content */
    assert_int_equal(months_loaded(f, now - 1), 2);

    /* A connection that is opened anew begins to count at the same number. */
    f->store->ops->reader_close(f->reader);
    assert_int_equal(f->store->ops->reader_open(f->store, &f->reader, NULL), 0);
    assert_int_equal(months_loaded(f, INT_MIN), 2);
    play_in(f, now - 2);
    f->reader->db.lost = true;
    assert_int_equal(months_loaded(f, INT_MIN), 3);

    /* Tables that are dropped aren't asked for any more. */
    advance(f, month_start_ms(now + 8) + 4 * HOUR_MS - clock_wall_ms());
    assert_int_equal(ask(f, "history", "SELECT count(*) FROM months"), 0);
    play_in(f, now + 8);
    assert_int_equal(months_loaded(f, INT_MIN), 1);
}

/* --- tests: the WAL --- */

static int64_t wal_file_bytes(struct store_fixture *f)
{
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof path, "%s/history.db-wal", f->cfg.data);
    return stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
}

/* A shell that forgot its transaction: flushes pause at the limit and say why, forgets go on, the WAL stays bounded. */
static void test_wal_limit_with_a_shell(void **state)
{
    struct store_fixture *f = *state;
    f->cfg.wal_limit = 4 << 20;
    play(f, "u", "a");
    assert_int_equal(flush(f), 0);
    sqlite3 *shell = open_file(f, "history");
    assert_int_equal(sqlite3_exec(shell, "BEGIN; SELECT count(*) FROM users", NULL, NULL, NULL), SQLITE_OK);
    struct err err = {0};
    int rounds = 0;
    while (call(f, f->store->ring->flush, &err) == 0 && rounds++ < 100) {
        fill(f, 4);
    }
    assert_int_equal(err.code, ERR_BUSY);
    assert_string_equal(err.text,
                        "history.db can't be written: its log is at wal_limit (4 MiB) because a question or a "
                        "backup of this server reads history.db; it ends when that transaction does");
    assert_true(stats(f).wal_pauses > 0);
    assert_true(wal_file_bytes(f) < 6 << 20);
    assert_int_equal(forget(f, "u", NULL), 1);
    assert_false(known(f, "u"));
    play(f, "u", "b");
    sqlite3_close(shell);
    assert_int_equal(flush(f), 0);
    assert_int_equal(stats(f).staged_rows, 0);
    assert_true(seen(f, "u", "b"));
    assert_true(wal_file_bytes(f) < 6 << 20);
}

/* As the migration does: the second turn waits until the first is merged. */
struct turns {
    struct store_fixture *f;
    struct err err;
    _Atomic bool ended;
};

static void *take_turns(void *arg)
{
    struct turns *t = arg;
    struct store *s = t->f->store;
    int result = s->bulk->begin(s, true, &t->err);
    while (result == 0) {
        result = s->bulk->add(s, START, key_of("b"), slice_str("b"), 1, &t->err);
        result = result == 0 ? s->bulk->turn(s, &t->err) : result;
    }
    struct err end = {0};
    s->bulk->end(s, &end);
    atomic_store(&t->ended, true);
    return NULL;
}

/* A load beside the service waits for the historian, which waits for a reader: the end of the store waits for neither.
 */
static void test_stop_during_a_pause(void **state)
{
    struct store_fixture *f = *state;
    f->cfg.wal_limit = 4 << 20;
    play(f, "u", "a");
    assert_int_equal(flush(f), 0);
    sqlite3 *shell = open_file(f, "history");
    assert_int_equal(sqlite3_exec(shell, "BEGIN; SELECT count(*) FROM users", NULL, NULL, NULL), SQLITE_OK);
    while (call(f, f->store->ring->flush, NULL) == 0) {
        fill(f, 4);
    }
    struct turns turns = {.f = f};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, take_turns, &turns), 0);
    advance(f, 1000);
    assert_false(atomic_load(&turns.ended));
    f->store->bulk->stop(f->store);
    pthread_join(thread, NULL);
    assert_int_equal(turns.err.code, ERR_CLOSED);
    close_store(f);
    sqlite3_close(shell);
    open_store(f);
    assert_int_equal(flush(f), 0);
    assert_true(seen(f, "u", "a"));
}

static void test_wal_limit_with_readers(void **state)
{
    struct store_fixture *f = *state;
    f->cfg.wal_limit = 4 << 20;
    struct race race = {.f = f};
    pthread_t threads[2];
    play(f, "u", "i0");
    atomic_store(&race.acknowledged, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, &race), 0);
    }
    for (int i = 0; i < 30; i++) {
        fill(f, 2);
        assert_int_equal(flush(f), 0);
    }
    atomic_store(&race.stop, true);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(atomic_load(&race.unseen), 0);
    assert_true(wal_file_bytes(f) < 6 << 20);
}

/* --- tests: a user who is large --- */

enum { LARGE_STAGED = STORE_LARGE / 8 + 1, LARGE_STORED = 80000 };

static uint64_t large_item(int i, char text[16])
{
    snprintf(text, 16, "i%d", i);
    return hash_id(SEED, slice_str(text));
}

static void play_many(struct store_fixture *f, const char *user, int from, int to)
{
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    for (int i = from; i < to; i++) {
        char text[16];
        uint64_t hash = large_item(i, text);
        struct slice id = slice_str(text);
        assert_int_equal(store_batch_add(&batch, STORE_PLAY, clock_wall_ms(), STORE_STAMPED, key_of(user),
                                         slice_str(user), &id, &hash, 1),
                         0);
    }
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    assert_int_equal(batch.err.code, 0);
    buf_free(&batch.bytes);
}

struct seen_positions {
    uint64_t n;
    uint32_t last;
    bool ascending;
    int good, bad;
    struct sieve *sieve;
};

static void see_positions(void *arg, const struct filter_part *part, uint32_t before, const uint32_t *positions,
                          uint32_t n)
{
    struct seen_positions *seen = arg;
    assert_true(filter_part_live(part) && n > 0 && n <= FILTER_RUN);
    seen->ascending &= before == 0 || positions[0] > seen->last;
    seen->last = positions[n - 1];
    seen->n += n;
    sieve_see(seen->sieve, part, before, positions, n);
}

static void see_month(void *arg, int month, bool good)
{
    struct seen_positions *seen = arg;
    assert_int_equal(month, month_make(2026, 11));
    good ? seen->good++ : seen->bad++;
    sieve_month(seen->sieve, good);
}

/* Asks about twice as many items as were played, of which the first half must be seen. */
static int scan_large(struct store_fixture *f, struct store_view *view, struct seen_positions *seen, size_t *n_unseen,
                      struct err *err)
{
    static uint64_t hashes[2 * LARGE_STORED];
    static uint8_t unseen[2 * LARGE_STORED / 8];
    char text[16];
    for (int i = 0; i < 2 * LARGE_STORED; i++) {
        hashes[i] = large_item(i, text);
    }
    *seen = (struct seen_positions){.ascending = true, .sieve = sieve_new()};
    assert_non_null(seen->sieve);
    assert_int_equal(sieve_begin(seen->sieve, hashes, 2 * LARGE_STORED), 0);
    const struct store_scan scan = {see_positions, see_month, seen};
    int code = f->store->ops->scan(f->reader, key_of("giant"), slice_str("giant"), INT_MIN, &scan, view, err);
    for (size_t i = 0; code == 0 && i < view->n_plays; i++) {
        sieve_exact(seen->sieve, view->plays[i].hash);
    }
    *n_unseen = sieve_end(seen->sieve, unseen);
    for (int i = 0; code == 0 && seen->bad == 0 && i < LARGE_STORED; i++) {
        assert_int_equal(unseen[i / 8] & (0x80 >> i % 8), 0);
    }
    sieve_free(seen->sieve);
    return code;
}

/* A large user is not loaded, wherever his plays are, but scanned, and then nothing of him is missing. */
static void test_large(void **state)
{
    struct store_fixture *f = *state;
    struct store_view view;
    struct seen_positions seen;
    struct err err = {0};
    size_t n_unseen;
    play_many(f, "giant", 0, LARGE_STAGED - 1);
    assert_int_equal(load(f, f->reader, "giant", &view, &err), 0);
    assert_int_equal(view.n_plays, LARGE_STAGED - 1);
    play_many(f, "giant", LARGE_STAGED - 1, LARGE_STORED);
    assert_int_equal(load(f, f->reader, "giant", &view, &err), ERR_LARGE);
    assert_int_equal(scan_large(f, &view, &seen, &n_unseen, &err), 0);
    assert_int_equal(view.n_plays, LARGE_STORED);
    assert_int_equal(n_unseen, LARGE_STORED);

    assert_int_equal(flush(f), 0);
    play_many(f, "giant", 0, 5);
    assert_int_equal(load(f, f->reader, "giant", &view, &err), ERR_LARGE);
    assert_int_equal(scan_large(f, &view, &seen, &n_unseen, &err), 0);
    assert_int_equal(view.n_plays, 5);
    assert_int_equal(view.n_months, 1);
    assert_int_equal(view.months[0].filter.n_parts, 1);
    assert_null(view.months[0].filter.parts[0].positions);
    assert_int_equal(view.months[0].filter.parts[0].n, seen.n);
    assert_true(seen.ascending && seen.n <= LARGE_STORED && seen.n > LARGE_STORED - 10);
    assert_true(seen.good == 1 && seen.bad == 0);
    assert_true(n_unseen <= LARGE_STORED && n_unseen > LARGE_STORED - 20);
    play(f, "small", "a");
    assert_int_equal(load(f, f->reader, "small", &view, &err), 0);

    assert_int_equal(forget(f, "giant", "i9"), 1);
    assert_int_equal(forget(f, "giant", "i9"), 0);
    assert_int_equal(forget(f, "giant", "no such"), 0);

    close_store(f);
    damage(f, "history",
           "UPDATE plays_202611 SET filter = zeroblob(200000) WHERE user_key = "
           "(SELECT user_key FROM users WHERE user = 'giant')");
    open_store(f);
    assert_int_equal(load(f, f->reader, "giant", &view, &err), ERR_LARGE);
    assert_int_equal(scan_large(f, &view, &seen, &n_unseen, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "2026-11"));
    f->cfg.on_damage = DAMAGE_ANSWER;
    assert_int_equal(scan_large(f, &view, &seen, &n_unseen, &err), 0);
    assert_true(seen.good == 0 && seen.bad == 1 && view.damaged_months == 1);
    assert_int_equal(forget(f, "giant", NULL), 1);
    assert_int_equal(load(f, f->reader, "giant", &view, &err), 0);
    assert_false(view.known);
}

/* Nor is one answered who has become large by staged plays since their filters were kept. */
static void test_large_since_kept(void **state)
{
    struct store_fixture *f = *state;
    struct store_view view;
    struct err err = {0};
    struct store_reader *keeper;
    assert_int_equal(f->store->ops->reader_open(f->store, &keeper, &err), 0);
    f->store->ops->reader_leave_cold(keeper);
    play(f, "u", "a");
    assert_int_equal(flush(f), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(load(f, keeper, "u", &view, &err), 0);
    }
    assert_int_equal(keeper->kept_found, 1);
    play_many(f, "u", 0, LARGE_STAGED - 1); /* just not large by themselves */
    assert_int_equal(load(f, f->reader, "u", &view, &err), ERR_LARGE);
    assert_int_equal(load(f, keeper, "u", &view, &err), ERR_LARGE);
    assert_int_equal(keeper->kept_found, 2);
    f->store->ops->reader_close(keeper);
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(test_large),
        TEST(test_large_since_kept),
        TEST(test_readers_race),
        TEST(test_kept_window),
        TEST(test_wal_limit_with_a_shell),
        TEST(test_wal_limit_with_readers),
        TEST(test_stop_during_a_pause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
