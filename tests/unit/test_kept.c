/* Users whose history is kept decoded: the entries by themselves, and a reader that keeps beside one that doesn't. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "store/sqlite/read/kept.h"
#include "store/sqlite/read/reader.h"
#include "store/sqlite/state.h"
#include "tests/lib/alloc.h"
#include "tests/lib/random.h"
#include "tests/lib/store_calls.h"

/* --- entries --- */

enum { POSITIONS = 100 };

/* Of one user, and the memory behind it. */
struct sample {
    struct kept_user user;
    struct store_month months[2];
    struct store_delivery deliveries[2];
    uint32_t positions[POSITIONS];
    uint8_t tails[POSITIONS];
    uint64_t exceptions[3];
};

static void make(struct sample *s, int64_t key)
{
    *s = (struct sample){.user = {.key = key, .first_month = 5, .version = 1, .blob_bytes = 77},
                         .exceptions = {9, 8, 7}};
    for (uint32_t i = 0; i < POSITIONS; i++) {
        s->positions[i] = i * 10 + (uint32_t)key;
        s->tails[i] = (uint8_t)(i + 1);
    }
    s->months[0] = (struct store_month){.month = 6, .bytes = 40};
    s->months[0].filter.parts[0] = (struct filter_part){.positions = s->positions, .n = POSITIONS, .m = 1 << 20};
    s->months[0].filter.parts[1] =
        (struct filter_part){.positions = s->positions, .n = 7, .m = FILTER_LIVE_M, .fine = true, .tails = s->tails};
    s->months[0].filter.n_parts = 2;
    s->months[1] = (struct store_month){.month = 5, .bytes = 37};
    s->deliveries[0] = (struct store_delivery){.stamp = 2, .hash = 22, .item = slice_str("two")};
    s->deliveries[1] = (struct store_delivery){.stamp = 1, .hash = 11, .item = slice_str("one")};
    s->user.view = (struct store_view){.known = true,
                                       .months = s->months,
                                       .n_months = 2,
                                       .deliveries = s->deliveries,
                                       .n_deliveries = 2,
                                       .exceptions = s->exceptions,
                                       .n_exceptions = 3};
}

static void add_user(struct kept_users *kept, int64_t key, size_t limit)
{
    struct sample s;
    make(&s, key);
    kept_add(kept, &s.user, limit);
    memset(&s, 0xff, sizeof s); /* nothing of it is pointed to */
}

static bool has(struct kept_users *kept, int64_t key)
{
    return kept_find(kept, key, 5, 1) != NULL;
}

static void test_an_entry(void **state)
{
    (void)state;
    struct kept_users kept = {0};
    struct sample s;
    assert_false(has(&kept, 3));
    add_user(&kept, 3, 1 << 20);
    assert_null(kept_find(&kept, 4, 5, 1));
    assert_null(kept_find(&kept, 3, 4, 1));
    assert_null(kept_find(&kept, 3, 5, 2));
    const struct kept_user *u = kept_find(&kept, 3, 5, 1);
    assert_non_null(u);
    make(&s, 3);
    assert_true(u->view.known);
    assert_int_equal(u->blob_bytes, 77);
    assert_int_equal(u->view.n_months, 2);
    assert_int_equal(u->view.months[0].month, 6);
    assert_int_equal(u->view.months[1].month, 5);
    assert_int_equal(u->view.months[1].bytes, 37);
    assert_int_equal(u->view.months[1].filter.n_parts, 0);
    const struct filter_part *parts = u->view.months[0].filter.parts;
    assert_int_equal(parts[0].n, POSITIONS);
    assert_memory_equal(parts[0].positions, s.positions, sizeof s.positions);
    assert_null(parts[0].tails);
    assert_int_equal(parts[1].n, 7);
    assert_memory_equal(parts[1].positions, s.positions, 7 * sizeof s.positions[0]);
    assert_memory_equal(parts[1].tails, s.tails, 7);
    assert_int_equal(u->view.n_deliveries, 2);
    assert_int_equal(u->view.deliveries[0].stamp, 2);
    assert_true(slice_eq(u->view.deliveries[1].item, slice_str("one")));
    assert_int_equal(u->view.n_exceptions, 3);
    assert_memory_equal(u->view.exceptions, s.exceptions, sizeof s.exceptions);

    /* What it is counted as is what it takes: one block and the entry itself. */
    assert_true(u->arena.bytes + sizeof *u <= u->bytes && u->bytes < u->arena.bytes + sizeof *u + 64);
    assert_int_equal(atomic_load(&kept.bytes), u->bytes);

    /* The next one of the same user takes its place. */
    make(&s, 3);
    s.user.version = 2;
    s.user.view.n_exceptions = 0;
    kept_add(&kept, &s.user, 1 << 20);
    assert_null(kept_find(&kept, 3, 5, 1));
    assert_int_equal(kept_find(&kept, 3, 5, 2)->view.n_exceptions, 0);
    assert_int_equal(kept.n, 1);
    kept_free(&kept);
    assert_int_equal(atomic_load(&kept.bytes), 0);
    assert_false(has(&kept, 3));
}

static void test_the_limit(void **state)
{
    (void)state;
    struct kept_users kept = {0};
    add_user(&kept, 0, 1 << 20);
    const size_t one = atomic_load(&kept.bytes), limit = 10 * one + one / 2;
    for (int64_t key = 1; key < 10; key++) {
        add_user(&kept, key, limit);
    }
    assert_int_equal(kept.n, 10);
    assert_true(has(&kept, 0)); /* so 1 is the one that is unused for longest */
    add_user(&kept, 4096, limit);
    assert_int_equal(kept.n, 10);
    assert_false(has(&kept, 1));
    assert_true(has(&kept, 0)); /* in the same bucket */
    assert_true(has(&kept, 4096));
    assert_true(atomic_load(&kept.bytes) <= limit);

    kept_cut(&kept, 3 * one);
    assert_int_equal(kept.n, 3);
    assert_true(has(&kept, 0) && has(&kept, 4096) && has(&kept, 9));

    /* One that would take too much of it leaves the others, but not an older one of its own. */
    add_user(&kept, 9, 7 * one);
    assert_int_equal(kept.n, 2);
    assert_false(has(&kept, 9));
    add_user(&kept, 10, 0);
    assert_int_equal(kept.n, 0);
    kept_free(&kept);
}

static void test_wanted(void **state)
{
    (void)state;
    struct kept_users kept = {0};
    assert_false(kept_wanted(&kept, 1));
    assert_true(kept_wanted(&kept, 1));
    assert_false(kept_wanted(&kept, 1 + 16384)); /* of others, one with the same lowest bits displaces it */
    assert_false(kept_wanted(&kept, 1));
    assert_true(kept_wanted(&kept, 1));
    kept_free(&kept);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct kept_users kept = {0};
    int failed = 0;
    for (int n = 0;; n++) {
        alloc_fail_at(n);
        alloc_failed = false;
        kept_wanted(&kept, 1);
        add_user(&kept, 1, 1 << 20);
        alloc_fail_after(-1);
        if (!alloc_failed) {
            break;
        }
        failed++;
        assert_true(kept.n == 0 || has(&kept, 1));
        assert_int_equal(atomic_load(&kept.bytes) > 0, kept.n > 0);
        kept_free(&kept);
    }
    assert_true(failed >= 3);
    assert_true(has(&kept, 1));
    kept_free(&kept);
}

/* --- a reader that keeps --- */

static struct store_reader *open_keeper(struct store_fixture *f)
{
    struct store_reader *reader;
    assert_int_equal(f->store->ops->reader_open(f->store, &reader, NULL), 0);
    f->store->ops->reader_leave_cold(reader);
    return reader;
}

static struct store_view look(struct store_fixture *f, struct store_reader *reader, const char *user, int first_month)
{
    struct store_view view;
    struct err err = {0};
    if (store_load_wait(f->store, reader, key_of(user), slice_str(user), first_month, &view, &err) != 0) {
        fail_msg("load: %s", err.text);
    }
    return view;
}

static void check_same(const struct store_view *a, const struct store_view *b)
{
    assert_int_equal(a->known, b->known);
    assert_int_equal(a->damaged_months, b->damaged_months);
    assert_int_equal(a->n_months, b->n_months);
    for (size_t i = 0; i < a->n_months; i++) {
        const struct filter *x = &a->months[i].filter, *y = &b->months[i].filter;
        assert_int_equal(a->months[i].month, b->months[i].month);
        assert_int_equal(a->months[i].bytes, b->months[i].bytes);
        assert_int_equal(x->n_parts, y->n_parts);
        for (unsigned p = 0; p < x->n_parts; p++) {
            assert_int_equal(x->parts[p].n, y->parts[p].n);
            assert_int_equal(x->parts[p].m, y->parts[p].m);
            assert_int_equal(x->parts[p].coarse, y->parts[p].coarse);
            assert_int_equal(x->parts[p].fine, y->parts[p].fine);
            assert_int_equal(x->parts[p].n_open, y->parts[p].n_open);
            assert_memory_equal(x->parts[p].positions, y->parts[p].positions, x->parts[p].n * sizeof(uint32_t));
        }
    }
    assert_int_equal(a->n_plays, b->n_plays);
    for (size_t i = 0; i < a->n_plays; i++) {
        assert_int_equal(a->plays[i].hash, b->plays[i].hash);
    }
    assert_int_equal(a->n_deliveries, b->n_deliveries);
    for (size_t i = 0; i < a->n_deliveries; i++) {
        assert_int_equal(a->deliveries[i].stamp, b->deliveries[i].stamp);
        assert_int_equal(a->deliveries[i].hash, b->deliveries[i].hash);
        assert_true(slice_eq(a->deliveries[i].item, b->deliveries[i].item));
    }
    assert_int_equal(a->n_exceptions, b->n_exceptions);
    if (a->n_exceptions > 0) {
        assert_memory_equal(a->exceptions, b->exceptions, a->n_exceptions * sizeof *a->exceptions);
    }
}

enum { USERS = 6, ITEMS = 40, STEPS = 1500, CHECKS = 4 };

/* Whatever happens between two questions, both readers say the same. */
static void test_beside_one_that_keeps_nothing(void **state)
{
    struct store_fixture *f = *state;
    struct store_reader *keeper = open_keeper(f);
    uint64_t random = 4711;
    unsigned found = 0;
    for (int step = 0; step < STEPS; step++) {
        const int now = month_of_ms(clock_wall_ms());
        const int months[] = {INT_MIN, now - 1, now};
        char user[8], item[8];
        snprintf(user, sizeof user, "u%d", (int)random_below(&random, USERS));
        snprintf(item, sizeof item, "i%d", (int)random_below(&random, ITEMS));
        switch (random_below(&random, 40)) {
        case 0:
            assert_int_equal(flush(f), 0);
            break;
        case 1:
            assert_true(forget(f, user, NULL) >= 0);
            break;
        case 2:
            assert_true(forget(f, user, item) >= 0);
            break;
        case 3:
            advance(f, (int64_t)random_below(&random, 4) * 24 * 3600 * 1000);
            break;
        case 4:
            keeper->db.lost = random_below(&random, 4) == 0;
            break;
        case 5:
            f->cfg.history_memory = (int64_t)random_below(&random, 3) * 64 * 1024;
            break;
        case 6:
        case 7:
            deliver(f, user, item);
            break;
        case 8:
        case 9:
            play(f, user, item);
            break;
        default: /* most of the time nothing does */
            break;
        }
        for (int check = 0; check < CHECKS; check++) {
            snprintf(user, sizeof user, "u%d", (int)random_below(&random, USERS));
            const int first = months[random_below(&random, 10) < 8 ? 1 : random_below(&random, 3)];
            const unsigned before = keeper->kept_found;
            struct store_view a = look(f, keeper, user, first), b = look(f, f->reader, user, first);
            found += keeper->kept_found != before;
            check_same(&a, &b);
            assert_true(atomic_load(&keeper->kept.bytes) <= (size_t)f->cfg.history_memory);
        }
    }
    assert_true(found > STEPS / 2); /* of CHECKS x STEPS questions */
    f->store->ops->reader_close(keeper);
}

/* A connection that is opened anew begins to count versions at the same number. */
static void test_another_connection(void **state)
{
    struct store_fixture *f = *state;
    play(f, "u", "a");
    assert_int_equal(flush(f), 0);
    struct store_reader *keeper = open_keeper(f);
    for (int i = 0; i < 3; i++) {
        look(f, keeper, "u", INT_MIN);
    }
    assert_int_equal(keeper->kept_found, 1);
    const unsigned version = keeper->version;
    play(f, "u", "b");
    assert_int_equal(flush(f), 0);
    keeper->db.lost = true;
    struct store_view view = look(f, keeper, "u", INT_MIN);
    assert_int_equal(keeper->version, version);
    assert_true(in_view(&view, "b"));
    f->store->ops->reader_close(keeper);
}

/* Each read fails once, of a new connection and of one that keeps users: once the disk is healed, the answers are those
 * of a reader that keeps none, and users are kept again. */
static void test_each_read_fails(void **state)
{
    struct store_fixture *f = *state;
    struct store_view view;
    struct err err = {0};
    int failed = 0;
    for (int kept_before = 0; kept_before <= 3; kept_before += 3) {
        for (uint64_t nth = 1;; nth++) {
            struct store_reader *keeper = open_keeper(f);
            char item[16];
            for (int i = 0; i < kept_before; i++) {
                look(f, keeper, "u", INT_MIN);
            }
            snprintf(item, sizeof item, "i%d.%d", kept_before, (int)nth);
            play(f, "u", item);
            assert_int_equal(flush(f), 0); /* so what it has of the file is old */
            rule(VFS_READ, "history", nth, false, VFS_EIO);
            int code = load(f, keeper, "u", &view, &err);
            vfs_fault_heal();
            assert_true(code < 0 || in_view(&view, item));
            for (int i = 0; i < 3; i++) {
                struct store_view a = look(f, keeper, "u", INT_MIN), b = look(f, f->reader, "u", INT_MIN);
                check_same(&a, &b);
                assert_true(in_view(&a, item));
            }
            assert_true(keeper->kept_found > 0);
            f->store->ops->reader_close(keeper);
            if (code == 0) {
                break;
            }
            failed++;
        }
    }
    assert_true(failed >= 4);
}

static void test_figures(void **state)
{
    struct store_fixture *f = *state;
    struct store_reader *keeper = open_keeper(f);
    play(f, "u", "a");
    assert_int_equal(flush(f), 0);
    for (int i = 0; i < 2; i++) {
        look(f, keeper, "u", INT_MIN);
        assert_int_equal(stats(f).kept_bytes > 0, i == 1);
    }
    for (int i = 0; i < 14; i++) {
        look(f, keeper, "u", INT_MIN);
    }
    assert_int_equal(stats(f).kept_found, 14);

    /* Those share the memory who have met somebody to keep, and what is over goes at the next question. */
    const size_t one = stats(f).kept_bytes;
    struct store_reader *other = open_keeper(f);
    f->cfg.history_memory = (int64_t)one;
    look(f, other, "nobody", INT_MIN);
    look(f, keeper, "u", INT_MIN);
    assert_int_equal(stats(f).kept_bytes, one);
    look(f, other, "u", INT_MIN);
    look(f, keeper, "u", INT_MIN);
    assert_int_equal(stats(f).kept_bytes, 0);
    f->cfg.history_memory = (int64_t)(16 * one);
    look(f, keeper, "u", INT_MIN);
    assert_int_equal(stats(f).kept_bytes, one);
    f->cfg.history_memory = 0;
    look(f, keeper, "u", INT_MIN);
    assert_int_equal(stats(f).kept_bytes, 0);
    f->store->ops->reader_close(other);
    f->cfg.history_memory = (int64_t)(8 * one);
    look(f, keeper, "u", INT_MIN);
    assert_int_equal(stats(f).kept_bytes, one);
    f->store->ops->reader_close(keeper);
    assert_int_equal(stats(f).kept_bytes, 0);
}

/* Damage is told at each question, and a user without history isn't worth an entry. */
static void test_not_kept(void **state)
{
    struct store_fixture *f = *state;
    play(f, "u", "a");
    assert_int_equal(flush(f), 0);
    close_store(f);
    char sql[128], month[MONTH_TEXT];
    snprintf(sql, sizeof sql, "UPDATE plays_%s SET filter = x'00'", month_suffix(month_of_ms(START), month));
    damage(f, "history", sql);
    f->cfg.on_damage = DAMAGE_ANSWER;
    open_store(f);
    struct store_reader *keeper = open_keeper(f);
    play(f, "staged", "a");
    for (int i = 0; i < 4; i++) {
        assert_int_equal(look(f, keeper, "u", INT_MIN).damaged_months, 1);
        assert_true(look(f, keeper, "staged", INT_MIN).known);
        assert_false(look(f, keeper, "nobody", INT_MIN).known);
        assert_int_equal(stats(f).kept_bytes, 0);
    }
    f->store->ops->reader_close(keeper);
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_entry),
        cmocka_unit_test(test_the_limit),
        cmocka_unit_test(test_wanted),
        cmocka_unit_test(test_no_memory),
        TEST(test_beside_one_that_keeps_nothing),
        TEST(test_another_connection),
        TEST(test_each_read_fails),
        TEST(test_figures),
        TEST(test_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
