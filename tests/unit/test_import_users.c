/* Users of another store joined while the disk fails at every step, and the order of their deliveries among later ones.
 * What moves where, and by whom it is then seen, is tests/e2e/test_export.py's. */
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
#include "base/hash.h"
#include "store/codec/user_snapshot.h"
#include "store/migration.h"
#include "store/ring.h"
#include "store/user/deliveries.h"
#include "tests/lib/rounds.h"
#include "tests/lib/sent_list.h"
#include "tests/lib/store_calls.h"

enum { USERS = 40, ITEMS = 30 };

static char names[USERS][16];
static struct buf bytes[USERS];
static struct slice snapshots[USERS];

static uint64_t item_hash(int user, int i)
{
    char item[32];
    snprintf(item, sizeof item, "v%d-%d", user, i);
    return hash_id(SEED, slice_str(item));
}

/* Each with plays in two months, staged ones too, and deliveries just before START. */
static void make_parcels(void)
{
    for (int u = 0; u < USERS; u++) {
        struct arena arena = {0};
        struct delivered_codec codec = {0};
        struct filter filter = {0};
        struct buf blob = {0};
        struct buf sent = {0};
        uint32_t positions[ITEMS / 2];
        struct store_play plays[ITEMS / 2];
        struct store_delivery deliveries[] = {SENT(START - 5, hash_id(SEED, slice_str("d2")), slice_str("d2")),
                                              SENT(START - 7, hash_id(SEED, slice_str("d1")), slice_str("d1")),
                                              SENT(START - 9, hash_id(SEED, slice_str("d0")), slice_str("d0"))};
        int month = month_of_ms(START);
        snprintf(names[u], sizeof names[u], "u%d", u);
        for (int i = 0; i < ITEMS / 2; i++) {
            positions[i] = filter_position(item_hash(u, i), FILTER_LIVE_M);
            /* By hash, as they must be. */
            struct store_play play = {item_hash(u, ITEMS / 2 + i), month};
            int at = i;
            for (; at > 0 && plays[at - 1].hash > play.hash; at--) {
                plays[at] = plays[at - 1];
            }
            plays[at] = play;
        }
        uint32_t n = filter_sort(positions, ITEMS / 2, NULL);
        assert_int_equal(filter_add(&filter, positions, n, 4000, &arena), 0);
        assert_int_equal(filter_encode(&filter, &blob), 0);
        assert_int_equal(sent_list_pack(&codec, deliveries, 3, &sent), 0);
        const struct snapshot_month stored = {month - 1, buf_slice(&blob)};
        struct user_snapshot p = {.user = slice_str(names[u]), .last_month = month, .months = &stored, .n_months = 1};
        p.key = hash_user_key(SEED, p.user);
        p.plays = plays;
        p.n_plays = ITEMS / 2;
        p.deliveries = buf_slice(&sent);
        assert_int_equal(user_snapshot_encode(&p, &bytes[u]), 0);
        snapshots[u] = buf_slice(&bytes[u]);
        buf_free(&blob);
        buf_free(&sent);
        arena_free(&arena);
        delivered_codec_free(&codec);
    }
}

static int import(struct store_fixture *f, struct err *err)
{
    int done = 0;
    uint8_t verdicts[USERS] = {0};
    struct store_import import = {.snapshots = snapshots, .n = USERS, .verdicts = verdicts};
    import.call.done = call_done;
    import.call.owner = &done;
    f->store->ops->import(f->store, &import);
    wait_flag(&done);
    *err = import.call.err;
    for (int u = 0; u < USERS && err->code == 0; u++) {
        assert_int_equal(verdicts[u], IMPORT_DONE);
    }
    return err->code;
}

/* How many users are there; each of them whole or not at all. */
static int count_users(struct store_fixture *f)
{
    struct store_reader *reader;
    struct err err = {0};
    int users = 0;
    assert_int_equal(f->store->ops->reader_open(f->store, &reader, &err), 0);
    for (int u = 0; u < USERS; u++) {
        struct store_view view;
        struct slice user = slice_str(names[u]);
        int seen = 0;
        assert_int_equal(store_load_wait(f->store, reader, hash_user_key(SEED, user), user, INT32_MIN, &view, &err), 0);
        for (int i = 0; i < ITEMS; i++) {
            bool has = false;
            for (size_t m = 0; m < view.n_months; m++) {
                has = has || filter_has(&view.months[m].filter, item_hash(u, i));
            }
            seen += has;
        }
        assert_true(seen == 0 || seen == ITEMS);
        assert_int_equal(view.n_deliveries, seen > 0 ? 3 : 0);
        users += seen > 0;
    }
    f->store->ops->reader_close(reader);
    return users;
}

static int setup(void **state)
{
    struct store_fixture *f = store_fixture_new("join");
    make_parcels();
    open_store(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    store_fixture_free(*state);
    for (int u = 0; u < USERS; u++) {
        buf_free(&bytes[u]);
    }
    return 0;
}

/* The n-th change fails, for every n: an error, and each user whole or not there; or an answer that a kill right behind
 * it doesn't take back. */
static void joins_while_the_disk_fails(void **state)
{
    static const enum vfs_action actions[] = {VFS_EIO, VFS_FULL};
    struct store_fixture *f = *state;
    int failed = 0;
    bool answered = false;
    for (uint64_t n = 1; !answered; n += test_stride()) {
        struct err err = {0};
        int rule = vfs_fault_add(
            &(struct vfs_rule){.ops = VFS_WRITE | VFS_SYNC, .file = "", .nth = n, .action = actions[failed % 2]});
        int rc = import(f, &err);
        answered = vfs_fault_hits(rule) < n;
        vfs_fault_heal();
        if (rc < 0) {
            assert_true(rc == ERR_IO || rc == ERR_FULL);
            failed++;
        }
        kill_store(f);
        open_store(f);
        int users = count_users(f);
        assert_true(users == 0 || users == USERS);
        assert_true(rc < 0 || users == USERS);
    }
    assert_true(failed > (test_stride() == 1 ? 2 : 0));
    struct err err = {0};
    assert_int_equal(import(f, &err), 0);
    assert_int_equal(count_users(f), USERS);
}

/* The last deliveries, newest first, are these, which stand behind each other with a space between. */
static void check_last(struct store_fixture *f, const char *expected)
{
    struct slice user = slice_str(names[0]);
    struct store_reader *reader;
    struct store_view view;
    struct err err = {0};
    char text[256] = "";
    size_t len = 0;
    assert_int_equal(f->store->ops->reader_open(f->store, &reader, &err), 0);
    assert_int_equal(store_load_wait(f->store, reader, hash_user_key(SEED, user), user, INT32_MIN, &view, &err), 0);
    assert_in_range(delivered_items(view.deliveries, view.n_deliveries), 1, f->cfg.delivered_max);
    for (size_t i = 0; i < view.n_deliveries; i++) {
        if (view.deliveries[i].nth > 0) {
            continue;
        }
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%.*s", i > 0 ? " " : "",
                                (int)view.deliveries[i].item.len, view.deliveries[i].item.data);
    }
    assert_string_equal(text, expected);
    f->store->ops->reader_close(reader);
}

/* All at one time, before and after a restart. What is staged may be as many as count, by itself, and then not any
 * more.
 */
static void what_is_sent_later_is_newer(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    f->cfg.delivered_max = 4;
    assert_int_equal(import(f, &err), 0);
    kill_store(f);
    open_store(f);
    deliver(f, names[0], "later");
    check_last(f, "later d2 d1 d0");
    for (int i = 0; i < 4; i++) {
        deliver(f, names[0], i % 2 == 0 ? "later" : "d1");
    }
    check_last(f, "d1 later d2 d0"); /* rows enough, but of two items */
    deliver(f, names[0], "e");
    check_last(f, "e d1 later d2");
    deliver(f, names[0], "f");
    check_last(f, "f e d1 later");
    deliver(f, names[0], "d1");
    check_last(f, "d1 f e later");
    deliver(f, names[0], "g");
    check_last(f, "g d1 f e");
    assert_int_equal(forget(f, names[0], "f"), 1);
    assert_int_equal(forget(f, names[0], "later"), 0); /* it has fallen off, as "d2" has, which stays off */
    check_last(f, "g d1 e");
    kill_store(f);
    open_store(f);
    check_last(f, "g d1 e");
}

/* Cut off behind the last that counts, and no other when joined once more. */
static void deliveries_are_united_by_time(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    f->cfg.delivered_max = 6;
    for (int i = 0; i < 5; i++) {
        char name[8];
        snprintf(name, sizeof name, "own%d", i);
        deliver(f, names[0], name);
    }
    assert_int_equal(flush(f), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(import(f, &err), 0);
        check_last(f, "own4 own3 own2 own1 own0 d2");
    }
}

static int by_hash(const void *a, const void *b)
{
    uint64_t x = ((const struct store_play *)a)->hash, y = ((const struct store_play *)b)->hash;
    return (x > y) - (x < y);
}

/* Many plays that were staged there take no more of the error than a flush of them would. */
static void staged_plays_of_a_giant(void **state)
{
    enum { GIANT = 30000 };
    struct store_fixture *f = *state;
    static struct store_play plays[GIANT];
    struct buf packed = {0};
    uint64_t items = 0;
    struct user_snapshot p = {
        .user = slice_str("giant"), .last_month = month_of_ms(START), .plays = plays, .n_plays = GIANT};
    p.key = hash_user_key(SEED, p.user);
    for (int i = 0; i < GIANT; i++) {
        plays[i] = (struct store_play){item_hash(-1, i), p.last_month};
    }
    qsort(plays, GIANT, sizeof *plays, by_hash);
    assert_int_equal(user_snapshot_encode(&p, &packed), 0);
    struct slice snapshot = buf_slice(&packed);
    for (int again = 0; again <= 1; again++) {
        int done = 0;
        uint8_t verdict = 0;
        struct store_import import = {.snapshots = &snapshot, .n = 1, .verdicts = &verdict};
        import.call.done = call_done;
        import.call.owner = &done;
        f->store->ops->import(f->store, &import);
        wait_flag(&done);
        assert_int_equal(import.call.err.code, 0);
        assert_int_equal(verdict, IMPORT_DONE);

        struct store_reader *reader;
        struct store_view view;
        struct err err = {0};
        assert_int_equal(f->store->ops->reader_open(f->store, &reader, &err), 0);
        assert_int_equal(store_load_wait(f->store, reader, p.key, p.user, INT32_MIN, &view, &err), 0);
        assert_int_equal(view.n_months, 1);
        const struct filter *filter = &view.months[0].filter;
        for (int i = 0; i < GIANT; i++) {
            assert_true(filter_has(filter, plays[i].hash));
        }
        assert_true(filter_error(filter) < 0.0011 * f->cfg.error_rate);
        assert_true(items == 0 || filter_items(filter) == items);
        items = filter_items(filter);
        f->store->ops->reader_close(reader);
    }
    buf_free(&packed);
}

/* One bad snapshot among good ones: nothing of any of them. */
static void refuses_all_for_one_that_is_bad(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    struct slice good = snapshots[USERS - 1];
    snapshots[USERS - 1].len--;
    assert_int_equal(import(f, &err), ERR_CORRUPT);
    assert_int_equal(count_users(f), 0);
    snapshots[USERS - 1] = good;
    assert_int_equal(import(f, &err), 0);
    assert_int_equal(count_users(f), USERS);
}

/* Who comes from another Redis is not joined without his note, by which the rest of him is found: also when memory is
 * short for a moment. */
static void a_note_comes_along(void **state)
{
    enum { PLAYS = 10000 };
    struct store_fixture *f = *state;
    static struct store_play plays[PLAYS];
    struct buf packed = {0};
    struct user_snapshot p = {
        .user = slice_str("noted"), .last_month = month_of_ms(START), .plays = plays, .n_plays = PLAYS};
    p.key = hash_user_key(SEED, p.user);
    p.migration_state = true;
    for (int i = 0; i < PLAYS; i++) {
        plays[i] = (struct store_play){item_hash(-2, i), p.last_month};
    }
    qsort(plays, PLAYS, sizeof *plays, by_hash);
    assert_int_equal(user_snapshot_encode(&p, &packed), 0);
    struct err err = {0};
    assert_int_equal(import(f, &err), 0);
    snapshots[0] = buf_slice(&packed);
    bool failed = true;
    for (int n = 1; failed; n++) {
        atomic_store(&large_left, n);
        int result = import(f, &err);
        failed = atomic_exchange(&large_left, 0) <= 0;
        assert_true(result == 0 || (failed && result == ERR_NOMEM));
        assert_true(result < 0 || f->store->migration->of(f->store, p.key) == MIGRATION_WAITING);
    }
    buf_free(&packed);
}

/* More than one user may take: refused before it is taken, and nothing of it stays. A blob that is far smaller than
 * what it stands for is none. */
static void refuse_bomb(struct store_fixture *f, uint32_t step, int expected, const char *words)
{
    enum { BOMB = 6 * 1000 * 1000 };
    uint32_t *positions = malloc(BOMB * sizeof *positions);
    struct filter filter = {.n_parts = 1, .parts = {{.positions = positions, .n = BOMB, .m = FILTER_LIVE_M}}};
    struct buf blob = {0}, packed = {0};
    assert_non_null(positions);
    for (uint32_t i = 0; i < BOMB; i++) {
        positions[i] = i * step;
    }
    assert_int_equal(filter_encode(&filter, &blob), 0);
    const struct snapshot_month stored = {month_of_ms(START), buf_slice(&blob)};
    struct user_snapshot p = {.user = slice_str("bomb"), .last_month = stored.month, .months = &stored, .n_months = 1};
    p.key = hash_user_key(SEED, p.user);
    assert_int_equal(user_snapshot_encode(&p, &packed), 0);
    struct slice good = snapshots[USERS - 1];
    struct err err = {0};
    snapshots[USERS - 1] = buf_slice(&packed);
    f->cfg.staging_memory = 4 << 20;
    atomic_store(&largest_malloc, 0);
    assert_int_equal(import(f, &err), expected);
    assert_non_null(strstr(err.text, words));
    assert_true(atomic_load(&largest_malloc) < 4 << 20);
    assert_int_equal(count_users(f), 0);
    snapshots[USERS - 1] = good;
    assert_int_equal(import(f, &err), 0);
    assert_int_equal(count_users(f), USERS);
    buf_free(&blob);
    buf_free(&packed);
    free(positions);
}

static void a_giant(void **state)
{
    refuse_bomb(*state, 700, ERR_RANGE, "more than 16 MiB to be joined; such users need a larger staging_memory");
}

/* Months are taken apart one at a time: what all hold together is more than may be taken. */
static void many_months(void **state)
{
    enum { MONTHS = 7, EACH = 700 * 1000 };
    struct store_fixture *f = *state;
    uint32_t *positions = malloc(EACH * sizeof *positions);
    struct filter filter = {.n_parts = 1, .parts = {{.positions = positions, .n = EACH, .m = FILTER_LIVE_M}}};
    struct buf blob = {0}, packed = {0};
    struct snapshot_month stored[MONTHS];
    assert_non_null(positions);
    for (uint32_t i = 0; i < EACH; i++) {
        positions[i] = i * 6000;
    }
    assert_int_equal(filter_encode(&filter, &blob), 0);
    for (int i = 0; i < MONTHS; i++) {
        stored[i] = (struct snapshot_month){month_of_ms(START) - MONTHS + 1 + i, buf_slice(&blob)};
    }
    struct user_snapshot p = {
        .user = slice_str("months"), .last_month = month_of_ms(START), .months = stored, .n_months = MONTHS};
    p.key = hash_user_key(SEED, p.user);
    assert_int_equal(user_snapshot_encode(&p, &packed), 0);
    struct slice good = snapshots[USERS - 1];
    struct err err = {0};
    snapshots[USERS - 1] = buf_slice(&packed);
    f->cfg.staging_memory = 4 << 20;
    assert_int_equal(import(f, &err), 0);
    assert_int_equal(count_users(f), USERS - 1); /* it has another's place */
    snapshots[USERS - 1] = good;
    buf_free(&blob);
    buf_free(&packed);
    free(positions);
}

static void a_bomb(void **state)
{
    refuse_bomb(*state, 1, ERR_CORRUPT, "more positions than the bytes can hold");
}

static struct slice pack(struct user_snapshot *p, struct buf *out)
{
    p->key = hash_user_key(SEED, p->user);
    assert_int_equal(user_snapshot_encode(p, out), 0);
    return buf_slice(out);
}

/* What is newer stays so, whether it is flushed or not. */
static void what_was_sent_before_a_long_list(void **state)
{
    enum { LONG = 300 };
    struct store_fixture *f = *state;
    struct store_delivery list[LONG];
    char items[LONG][8];
    struct delivered_codec codec = {0};
    struct buf blob = {0}, packed = {0};
    struct user_snapshot p = {.user = slice_str(names[0]), .last_month = month_of_ms(START)};
    struct err err = {0};
    for (int i = 0; i < LONG; i++) {
        snprintf(items[i], sizeof items[i], "x%d", i);
        list[i] = (struct store_delivery){.stamp = delivered_stamp(9000 - i, 0), .item = slice_str(items[i])};
    }
    assert_int_equal(sent_list_pack(&codec, list, LONG, &blob), 0);
    p.key = hash_user_key(SEED, p.user);
    p.deliveries = buf_slice(&blob);
    struct slice good = snapshots[0];
    snapshots[0] = pack(&p, &packed);
    f->cfg.delivered_max = 4;
    deliver(f, names[0], "a");
    deliver(f, names[0], "b");
    deliver(f, names[0], "c");
    deliver(f, names[0], "d");
    check_last(f, "d c b a");
    assert_int_equal(import(f, &err), 0);
    check_last(f, "d c b a");
    assert_int_equal(flush(f), 0);
    check_last(f, "d c b a");
    f->cfg.delivered_max = 6;
    assert_int_equal(import(f, &err), 0);
    check_last(f, "d c b a x0 x1");
    snapshots[0] = good;
    buf_free(&packed);
    buf_free(&blob);
    delivered_codec_free(&codec);
}

static int64_t count_exceptions(struct store_fixture *f)
{
    struct store_view view;
    struct err err = {0};
    struct slice user = slice_str("many");
    struct store_reader *reader = NULL;
    assert_int_equal(f->store->ops->reader_open(f->store, &reader, &err), 0);
    assert_int_equal(store_load_wait(f->store, reader, hash_user_key(SEED, user), user, INT_MAX, &view, &err), 0);
    int64_t n = (int64_t)view.n_exceptions;
    f->store->ops->reader_close(reader);
    return n;
}

/* Every second item of many was forgotten, every third one played again since, in two months. Were each compared with
 * each, that would be 160 billion times. */
static void many_exceptions(void **state)
{
    enum { MANY = 400000 };
    struct store_fixture *f = *state;
    uint64_t *exceptions = malloc(MANY * sizeof *exceptions);
    struct store_play *plays = malloc(MANY * sizeof *plays);
    struct buf first = {0}, second = {0};
    struct err err = {0};
    assert_true(exceptions != NULL && plays != NULL);
    int month = month_of_ms(START);
    for (uint64_t i = 0; i < MANY; i++) {
        exceptions[i] = (2 * i) << 40;
        plays[i] = (struct store_play){(3 * (i % (MANY / 2))) << 40, i < MANY / 2 ? month - 1 : month};
    }
    struct user_snapshot p = {.user = slice_str("many"), .last_month = month};
    p.exceptions = exceptions;
    p.n_exceptions = MANY;
    struct slice good[2] = {snapshots[0], snapshots[1]};
    snapshots[0] = pack(&p, &first);
    p.plays = plays;
    p.n_plays = MANY;
    snapshots[1] = pack(&p, &second);
    f->cfg.staging_memory = 256 << 20;
    assert_int_equal(import(f, &err), 0);
    /* The first has brought all; of them those that were played again have ended, which are multiples of 6. */
    assert_int_equal(count_exceptions(f), MANY - MANY / 4);
    snapshots[0] = good[0];
    snapshots[1] = good[1];
    buf_free(&first);
    buf_free(&second);
    free(exceptions);
    free(plays);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(joins_while_the_disk_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_sent_later_is_newer, setup, teardown),
        cmocka_unit_test_setup_teardown(what_was_sent_before_a_long_list, setup, teardown),
        cmocka_unit_test_setup_teardown(deliveries_are_united_by_time, setup, teardown),
        cmocka_unit_test_setup_teardown(staged_plays_of_a_giant, setup, teardown),
        cmocka_unit_test_setup_teardown(a_note_comes_along, setup, teardown),
        cmocka_unit_test_setup_teardown(many_exceptions, setup, teardown),
        cmocka_unit_test_setup_teardown(a_giant, setup, teardown),
        cmocka_unit_test_setup_teardown(many_months, setup, teardown),
        cmocka_unit_test_setup_teardown(a_bomb, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_all_for_one_that_is_bad, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
