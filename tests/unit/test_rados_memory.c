/* Memory of the engine on RADOS: claimed before it is made, within rados_memory, however many ask at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "store/rados/rados.h"
#include "tests/lib/pool_fixture.h"

enum { MIB = 1 << 20 };

/* --- a quota --- */

static int granted;

static void on_granted(struct quota_claim *claim)
{
    assert_true(claim->bytes > 0);
    granted++;
}

static void first_come_first_served(void **state)
{
    struct config cfg = {.rados_memory = 400};
    struct quota q;
    struct quota_claim a = {0}, b = {0}, c = {0}, d = {0};
    (void)state;
    granted = 0;
    quota_init(&q, &cfg, QUOTA_SMALL);
    assert_int_equal(quota_limit(&q), 100);
    assert_true(quota_take(&q, &a, 60, on_granted));
    assert_false(quota_take(&q, &b, 1000, on_granted)); /* all of it, once it is there */
    assert_false(quota_take(&q, &c, 10, on_granted));   /* there is room, but b was first */
    assert_false(quota_take(&q, &d, 10, on_granted));
    assert_int_equal(quota_state(&q).waits, 3);
    quota_give(&a);
    assert_int_equal(granted, 1);
    assert_int_equal(b.bytes, 100);
    quota_give(&b);
    assert_int_equal(granted, 3);
    quota_give(&b); /* once is enough */
    assert_int_equal(quota_state(&q).used, 20);
    quota_give(&c);
    quota_give(&d);
    assert_int_equal(quota_state(&q).used, 0);
    assert_int_equal(quota_state(&q).most, 100);
    quota_destroy(&q);
}

static void an_arena_grows_while_there_is_room(void **state)
{
    struct config cfg = {.rados_memory = 4 * MIB};
    struct quota q;
    struct quota_claim a = {0}, b = {0};
    struct arena arena = {.block_size = 1024};
    (void)state;
    quota_init(&q, &cfg, QUOTA_SMALL);
    assert_true(quota_take(&q, &a, 256 * 1024, on_granted));
    quota_arena(&a, &arena, 128 * 1024);
    while (arena_alloc(&arena, 1000) != NULL) {
        assert_true(arena.bytes + 128 * 1024 <= a.bytes);
    }
    assert_true(arena.refused && a.bytes <= MIB && arena.bytes > MIB * 3 / 4);
    assert_true(quota_may_help(&a, &arena) == (a.bytes < MIB));
    arena_free(&arena);
    quota_give(&a);

    /* What is expected is there twice: where it is read, and where it is kept. */
    arena = (struct arena){.block_size = 1024};
    assert_true(quota_take(&q, &a, 256 * 1024, on_granted));
    assert_true(quota_take(&q, &b, 512 * 1024, on_granted));
    quota_arena(&a, &arena, 1024);
    assert_true(quota_expect(&a, &arena, 128 * 1024));
    assert_int_equal(a.bytes, 256 * 1024);
    assert_int_equal(arena.limit, 128 * 1024);
    assert_false(quota_expect(&a, &arena, 512 * 1024));
    assert_true(arena.refused && quota_may_help(&a, &arena));
    assert_true(a.wanted >= MIB);
    quota_give(&b);
    assert_true(quota_expect(&a, &arena, 512 * 1024));
    assert_int_equal(a.bytes, MIB);
    assert_false(quota_expect(&a, &arena, MIB));
    assert_false(quota_may_help(&a, &arena)); /* it has all there is */
    quota_give(&a);
    quota_destroy(&q);
}

/* --- questions --- */

struct question {
    struct store_load load;
    int done;
};

static void question_done(struct store_load *load)
{
    struct store_call raise = {.owner = load->owner};
    call_done(&raise);
}

static void ask_for(struct store_fixture *f, struct store_reader *reader, struct question *q, const char *user)
{
    *q = (struct question){.load = {.key = key_of(user),
                                    .user = slice_str(user),
                                    .first_month = INT_MIN,
                                    .done = question_done,
                                    .owner = &q->done}};
    assert_int_equal(f->store->ops->load(reader, &q->load), STORE_LATER);
}

/* As many pages are under way as memory was claimed for; the others wait, and nobody is forgotten. */
static void questions_wait_for_room(void **state)
{
    enum { N = 200, AT_ONCE = 4 * MIB / RADOS_QUESTION_BYTES };
    static struct question questions[N];
    struct store_fixture *f = *state;
    struct store_reader *readers[N];
    struct err err = {0};
    f->cfg.rados_memory = 16 * MIB;
    play(f, "u", "a");
    memory_pool_hold(one_pool, MEMORY_POOL_READS);
    for (int i = 0; i < N; i++) {
        assert_int_equal(f->store->ops->reader_open(f->store, &readers[i], &err), 0);
        ask_for(f, readers[i], &questions[i], "u");
    }
    memory_pool_wait_held(one_pool, AT_ONCE);
    assert_int_equal(memory_pool_held(one_pool), AT_ONCE);
    assert_int_equal(stats(f).user_bytes, 4 * MIB);
    assert_int_equal(stats(f).user_waits, N - AT_ONCE);
    f->store->ops->reader_close(readers[N - 1]); /* one that waits is left, too */
    assert_true(is_raised(&questions[N - 1].done));
    assert_int_equal(questions[N - 1].load.err.code, ERR_CLOSED);
    memory_pool_hold(one_pool, 0);
    for (int i = 0; i < N - 1; i++) {
        wait_flag(&questions[i].done);
        assert_int_equal(store_load_view(f->store, readers[i], &questions[i].load), 0);
        assert_true(in_view(&questions[i].load.view, "a"));
        f->store->ops->rest(readers[i]); /* now others come to their turn */
    }
    for (int i = 0; i < N - 1; i++) {
        f->store->ops->reader_close(readers[i]);
    }
    f->store->ops->rest(f->reader);
    while (stats(f).queue_messages > 0) { /* the one that was left */
        call(f, f->store->ops->tick, NULL);
    }
    assert_int_equal(stats(f).user_bytes, 0);
}

/* A giant that nobody has to read: the directory says so. */
static void giants_are_refused_before_they_are_read(void **state)
{
    enum { N = 64 };
    static struct question questions[N];
    struct store_fixture *f = *state;
    struct store_reader *readers[N];
    struct err err = {0};
    f->cfg.rados_memory = 16 * MIB;
    put_part("u.giant", month_of_ms(START), 0, 400 * 1000);
    for (int i = 0; i < N; i++) {
        assert_int_equal(f->store->ops->reader_open(f->store, &readers[i], &err), 0);
        ask_for(f, readers[i], &questions[i], "giant");
    }
    for (int i = 0; i < N; i++) {
        wait_flag(&questions[i].done);
        assert_int_equal(questions[i].load.err.code, ERR_LARGE);
        f->store->ops->reader_close(readers[i]);
    }
    f->store->ops->rest(f->reader);
    assert_int_equal(stats(f).user_bytes, 0);
}

static void see_nothing(void *arg, const struct filter_part *part, uint32_t before, const uint32_t *positions,
                        uint32_t n)
{
    (void)part, (void)before, (void)positions;
    *(uint64_t *)arg += n;
}

static void no_month(void *arg, int month, bool good)
{
    (void)arg, (void)month;
    assert_true(good);
}

struct scanning {
    struct store_fixture *f;
    pthread_t thread;
    uint64_t seen;
    int code;
    struct err err;
};

static void *scan_giant(void *arg)
{
    struct scanning *s = arg;
    struct store_reader *reader;
    struct store_view view;
    const struct store_scan scan = {.see = see_nothing, .month = no_month, .arg = &s->seen};
    s->code = s->f->store->ops->reader_open(s->f->store, &reader, &s->err);
    if (s->code == 0) {
        s->code = s->f->store->ops->scan(reader, key_of("giant"), slice_str("giant"), INT_MIN, &scan, &view, &s->err);
        s->f->store->ops->reader_close(reader);
    }
    return NULL;
}

/* Many giants at once, and merges beside them: each waits until it has memory, and all end. */
static void giants_take_turns(void **state)
{
    enum { N = 8 };
    struct scanning scans[N];
    struct store_fixture *f = *state;
    f->cfg.rados_memory = 16 * MIB;
    size_t bytes = 0;
    for (uint16_t i = 0; i < 4; i++) {
        bytes += put_part("u.giant", month_of_ms(START), i, 500 * 1000);
    }
    assert_true(2 * bytes > 4 * MIB && 2 * bytes < 12 * MIB);
    for (int i = 0; i < N; i++) {
        scans[i] = (struct scanning){.f = f};
        assert_int_equal(pthread_create(&scans[i].thread, NULL, scan_giant, &scans[i]), 0);
    }
    for (int i = 0; i < 100; i++) {
        char user[16];
        snprintf(user, sizeof user, "m%d", i);
        play(f, user, "a");
    }
    walk_pool(f);
    for (int i = 0; i < N; i++) {
        pthread_join(scans[i].thread, NULL);
        assert_int_equal(scans[i].code, 0);
        assert_true(scans[i].seen > 1900 * 1000);
    }
    const struct quota *large = &((struct rados_store *)f->store)->large;
    assert_true(quota_state(large).most <= 12 * MIB);
    assert_true(stats(f).user_waits > 0);
    f->store->ops->rest(f->reader);
    assert_int_equal(stats(f).user_bytes, 0);
}

/* One that takes more than there is for one: an error, at once, that names the option. */
static void too_large_a_giant_is_an_error(void **state)
{
    struct store_fixture *f = *state;
    struct scanning scan = {.f = f};
    f->cfg.rados_memory = 16 * MIB;
    for (uint16_t i = 0; i < 8; i++) {
        put_part("u.giant", month_of_ms(START), i, 1000 * 1000);
    }
    scan_giant(&scan);
    assert_int_equal(scan.code, ERR_NOMEM);
    assert_non_null(strstr(scan.err.text, "rados_memory"));
    assert_int_equal(forget(f, "giant", "a"), ERR_NOMEM); /* as an un-seeing, which reads all of it */
    f->cfg.rados_memory = 256 * MIB;
    scan_giant(&scan);
    assert_int_equal(scan.code, 0);
    assert_int_equal(forget(f, "giant", "a"), 0);
    assert_int_equal(forget(f, "giant", NULL), 1);
    assert_false(known(f, "giant"));
}

/* --- changes --- */

/* A merge that turns out to need more than it has claimed begins again with more. */
static void a_merge_comes_again_with_more(void **state)
{
    enum { N = 20 * 1000 };
    struct store_fixture *f = *state;
    struct store_batch batch = {0};
    int done = 0;
    f->cfg.rados_memory = 32 * MIB;
    memory_pool_hold(one_pool, MEMORY_POOL_READS); /* nobody merges meanwhile */
    batch.done = batch_done;
    batch.owner = &done;
    for (int i = 0; i < N; i++) {
        char item[200];
        snprintf(item, sizeof item, "%0190d", i);
        add(&batch, STORE_DELIVERY, START, "u", item);
    }
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    assert_int_equal(batch.err.code, 0);
    buf_free(&batch.bytes);
    memory_pool_hold(one_pool, 0);
    while (memory_pool_count(one_pool, "u.u", "d") > f->cfg.delivered_max) {
        walk_pool(f); /* one that the deliveries have begun may be faster */
    }
    const struct quota_state large = quota_state(&((struct rados_store *)f->store)->large);
    assert_true(large.most > 4 * MIB && large.most <= 24 * MIB);
    assert_int_equal(memory_pool_count(one_pool, "u.u", "d"), f->cfg.delivered_max);
}

/* Tombstones that a play of a stated time has to read are charged like it. */
static void many_tombstones_are_charged(void **state)
{
    enum { N = 30 * 1000 };
    struct store_fixture *f = *state;
    struct slice id = slice_str("a");
    uint64_t hash = hash_id(SEED, id);
    static char keys[N][LAYOUT_KEY];
    static struct cluster_pair pairs[N];
    for (uint64_t i = 0; i < N; i++) {
        layout_key_write(&(struct layout_key){.kind = LAYOUT_FORGOTTEN, .item = true, .hash = (N - i) << 30}, keys[i]);
        pairs[i] = (struct cluster_pair){slice_str(keys[i]), slice_str("0000000000000001")};
    }
    memory_pool_put_pairs(one_pool, "u.u", pairs, N);
    for (int pass = 0; pass < 2; pass++) {
        int done = 0;
        struct store_batch batch = {.done = batch_done, .owner = &done};
        f->cfg.staging_memory = pass == 0 ? 640 * 1024 : 16 * MIB;
        assert_int_equal(
            store_batch_add(&batch, STORE_PLAY, START, STORE_STATED, key_of("u"), slice_str("u"), &id, &hash, 1), 0);
        f->store->ops->record(f->store, &batch);
        wait_flag(&done);
        assert_int_equal(batch.err.code, pass == 0 ? ERR_BUSY : 0);
        buf_free(&batch.bytes);
        while (stats(f).staged_bytes > 0) { /* given back behind the answer */
            call(f, f->store->ops->tick, NULL);
        }
    }
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_come_first_served),
        cmocka_unit_test(an_arena_grows_while_there_is_room),
        POOL_TEST(questions_wait_for_room),
        POOL_TEST(giants_are_refused_before_they_are_read),
        POOL_TEST(giants_take_turns),
        POOL_TEST(too_large_a_giant_is_an_error),
        POOL_TEST(a_merge_comes_again_with_more),
        POOL_TEST(many_tombstones_are_charged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
