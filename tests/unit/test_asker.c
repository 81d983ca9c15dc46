/* How a store is asked (dedup/asker.c): at once, later, by a loop that has many questions under way, and by threads
 * that wait. What the answers are is test_dedup.c's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "dedup/dedup.h"
#include "fake_store.h"
#include "store/memory/memory_store.h"
#include "tests/lib/store_fixture.h"

enum { MANY = 3 * ASKER_READERS, PLAYS = 20000, THREADS = 3, ROUNDS = 200 };

/* --- a store whose users have played: "u3" has "i3" --- */

struct setting {
    struct store *store;
    struct config cfg;
    struct dedup dedup;
    struct asker *asker;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int woken;
};

static void on_recorded(struct store_batch *batch)
{
    struct setting *s = batch->owner;
    pthread_mutex_lock(&s->lock);
    batch->owner = NULL;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void record(struct setting *s, struct store_batch *batch)
{
    batch->done = on_recorded;
    batch->owner = s;
    s->store->ops->record(s->store, batch);
    pthread_mutex_lock(&s->lock);
    while (batch->owner != NULL) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    assert_int_equal(batch->err.code, 0);
    buf_free(&batch->bytes);
}

static uint64_t hash_of(const char *prefix, int i, char id[16])
{
    snprintf(id, 16, "%s%d", prefix, i);
    return hash_id(FAKE_SEED, slice_str(id));
}

static void add(struct store_batch *batch, int user, int item)
{
    char name[16], id[16];
    uint64_t hash = hash_of("i", item, id);
    struct slice text = slice_str(id);
    hash_of("u", user, name);
    assert_int_equal(store_batch_add(batch, STORE_PLAY, START, STORE_STAMPED, hash_user_key(FAKE_SEED, slice_str(name)),
                                     slice_str(name), &text, &hash, 1),
                     0);
}

static void on_wake(void *arg)
{
    struct setting *s = arg;
    pthread_mutex_lock(&s->lock);
    s->woken++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void begin(struct setting *s, struct store *store)
{
    clock_test_start(START);
    *s = (struct setting){.store = store};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    config_defaults(&s->cfg);
    s->cfg.hash_seed_given = true;
    s->cfg.hash_seed = FAKE_SEED;
}

static void open_asker(struct setting *s)
{
    struct err err = {0};
    struct store_batch batch = {0};
    for (int i = 0; i < MANY; i++) {
        add(&batch, i, i);
    }
    for (int i = 0; i < PLAYS; i++) { /* a large one */
        add(&batch, MANY, i);
    }
    record(s, &batch);
    dedup_init(&s->dedup, s->store, &s->cfg);
    assert_int_equal(asker_open(&s->dedup, &s->asker, &err), 0);
}

static void begin_fake(struct setting *s)
{
    begin(s, fake_store_new());
    open_asker(s);
    asker_on_answers(s->asker, on_wake, s);
}

static void begin_memory(struct setting *s, bool later)
{
    struct err err = {0};
    begin(s, NULL);
    assert_int_equal(memory_store_open(&s->cfg, &(struct memory_store_options){.later = later}, &s->store, &err), 0);
    open_asker(s);
}

static void end(struct setting *s)
{
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
}

/* --- one question of each kind --- */

struct ask {
    struct setting *setting;
    struct query q;
    char user[16];
    uint64_t hashes[2]; /* of what the user has played, and of what not */
    uint8_t unseen, elsewhere;
    struct place places[PLACES_MAX];
    struct history history;
    struct exposed exposed;
    struct asker_load *load;
    struct err err;
    int rc;
    bool done;
};

static void ask_about(struct ask *a, struct setting *s, enum query_kind kind, int user)
{
    char id[16];
    *a = (struct ask){.setting = s};
    a->hashes[0] = hash_of("i", user % MANY, id);
    a->hashes[1] = hash_of("x", user, id);
    hash_of("u", user, a->user);
    a->q = (struct query){.kind = kind,
                          .user = slice_str(a->user),
                          .hashes = a->hashes,
                          .n = kind == QUERY_FILTER ? 2 : kind != QUERY_HISTORY,
                          .unseen = &a->unseen,
                          .places = a->places,
                          .history = &a->history,
                          .exposed = &a->exposed,
                          .elsewhere = kind >= QUERY_HISTORY ? NULL : &a->elsewhere};
}

static void expect(const struct ask *a, uint64_t plays)
{
    assert_int_equal(a->rc, 0);
    switch (a->q.kind) {
    case QUERY_FILTER:
        assert_int_equal(a->unseen, 0x40);
        assert_int_equal(a->elsewhere, 0x40);
        assert_int_equal(a->q.n_unseen, 1);
        break;
    case QUERY_WHY:
        assert_int_equal(a->q.n_places, 1);
        assert_int_equal(a->places[0].kind, PLACE_STAGED);
        assert_int_equal(a->elsewhere, 0x80);
        break;
    case QUERY_HISTORY:
        assert_true(a->q.known);
        assert_int_equal(a->history.staged, plays);
        break;
    case QUERY_EXPOSURE:
        assert_int_equal(a->exposed.times, 0); /* it was played */
        break;
    }
}

/* Everybody, known or not, small or large; waiting for the answer when it comes later. */
static void ask_all(bool later)
{
    struct setting s;
    begin_memory(&s, later);
    for (int kind = QUERY_FILTER; kind <= QUERY_EXPOSURE; kind++) {
        static const int users[] = {0, MANY, 1};
        for (size_t i = 0; i < 3; i++) {
            struct ask a;
            ask_about(&a, &s, (enum query_kind)kind, users[i]);
            a.rc = asker_ask(s.asker, &a.q, &a.err);
            expect(&a, users[i] == MANY ? PLAYS : 1);
        }
        struct ask nobody;
        ask_about(&nobody, &s, (enum query_kind)kind, MANY + 1);
        assert_int_equal(asker_ask(s.asker, &nobody.q, &nobody.err), 0);
        assert_int_equal(nobody.q.n_unseen, kind == QUERY_FILTER ? 2 : 0);
        assert_int_equal(nobody.q.n_places, 0);
        assert_false(nobody.q.known);
    }
    asker_leave_large(s.asker);
    struct ask a;
    ask_about(&a, &s, QUERY_FILTER, MANY);
    assert_int_equal(asker_ask(s.asker, &a.q, &a.err), ERR_LARGE);
    assert_true(strlen(a.err.text) > 0);
    char id[ID_MAX + 1] = "";
    a.q.user = slice_of(id, sizeof id);
    assert_int_equal(asker_ask(s.asker, &a.q, &a.err), ERR_INVALID);
    asker_close(s.asker);
    s.store->ops->close(s.store);
    end(&s);
}

static void test_at_once(void **state)
{
    (void)state;
    ask_all(false);
}

static void test_waiting(void **state)
{
    (void)state;
    ask_all(true);
}

/* --- many under way --- */

static void on_done(void *owner)
{
    struct ask *a = owner;
    assert_false(a->done);
    a->done = true;
    a->rc = asker_end(a->setting->asker, a->load, &a->q, &a->err);
}

static void begin_many(struct setting *s, struct ask *asks)
{
    fake_store_hold_loads(s->store);
    for (int i = 0; i < MANY; i++) {
        ask_about(&asks[i], s, (enum query_kind)(i % 3), i);
        assert_int_equal(asker_begin(s->asker, &asks[i].q, &asks[i].load, &asks[i].err), STORE_LATER);
        asker_on_done(asks[i].load, on_done, &asks[i]);
    }
}

/* The store has so many at a time; the others follow. One wake-up is enough for all that have come. */
static void test_many_under_way(void **state)
{
    (void)state;
    struct setting s;
    static struct ask asks[MANY];
    begin_fake(&s);
    begin_many(&s, asks);
    fake_store_wait_loads(s.store, ASKER_READERS);
    assert_int_equal(s.woken, 0);
    fake_store_release_loads(s.store);
    assert_int_equal(s.woken, 1);
    assert_false(asks[0].done);
    asker_deliver(s.asker); /* begins those that waited, which are answered at once, and told by the next one */
    assert_true(asks[ASKER_READERS - 1].done);
    assert_false(asks[ASKER_READERS].done);
    assert_int_equal(s.woken, 2);
    asker_deliver(s.asker);
    assert_int_equal(s.woken, 3);
    asker_deliver(s.asker);
    for (int i = 0; i < MANY; i++) {
        assert_true(asks[i].done);
        expect(&asks[i], 1);
    }
    asker_deliver(s.asker);
    asker_close(s.asker);
    fake_store_free(s.store);
    end(&s);
}

/* What is dropped is never told, wherever it is; its place goes to the next. */
static void test_drop(void **state)
{
    (void)state;
    struct setting s;
    static struct ask asks[MANY];
    begin_fake(&s);
    begin_many(&s, asks);
    for (int i = 1; i < MANY; i += 2) {
        asker_drop(s.asker, asks[i].load);
    }
    fake_store_release_loads(s.store);
    asker_drop(s.asker, asks[0].load); /* its answer is there */
    for (int round = 0; round < MANY / ASKER_READERS; round++) {
        asker_deliver(s.asker);
    }
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(asks[i].done, i > 0 && i % 2 == 0);
        if (asks[i].done) {
            expect(&asks[i], 1);
        }
    }
    struct ask again;
    ask_about(&again, &s, QUERY_FILTER, 1);
    again.rc = asker_begin(s.asker, &again.q, &again.load, &again.err);
    expect(&again, 1);
    asker_close(s.asker);
    fake_store_free(s.store);
    end(&s);
}

/* A dead store: the end ends what is under way. */
static void test_close(void **state)
{
    (void)state;
    struct setting s;
    static struct ask asks[MANY];
    begin_fake(&s);
    begin_many(&s, asks);
    asker_drop(s.asker, asks[0].load);
    asker_drop(s.asker, asks[MANY - 1].load);
    asker_close(s.asker);
    for (int i = 0; i < MANY; i++) {
        assert_false(asks[i].done);
    }
    fake_store_free(s.store);
    end(&s);
}

static void test_errors(void **state)
{
    (void)state;
    struct setting s;
    struct ask a;
    begin_fake(&s);
    fake_store_damage(s.store, "u1");
    fake_store_hold_loads(s.store);
    ask_about(&a, &s, QUERY_FILTER, 1);
    assert_int_equal(asker_begin(s.asker, &a.q, &a.load, &a.err), STORE_LATER);
    asker_on_done(a.load, on_done, &a);
    fake_store_release_loads(s.store);
    asker_deliver(s.asker);
    assert_int_equal(a.rc, ERR_CORRUPT);
    assert_string_equal(a.err.text, "user u1, month 2026-10: the filter is damaged");
    asker_close(s.asker);
    fake_store_free(s.store);
    end(&s);
}

/* --- threads --- */

static void *stop_asker(void *arg)
{
    struct setting *s = arg;
    fake_store_wait_loads(s->store, 1);
    asker_stop(s->asker);
    return NULL;
}

/* A thread that waits for a dead store. */
static void test_stop(void **state)
{
    (void)state;
    struct setting s;
    struct ask a;
    pthread_t thread;
    begin_fake(&s);
    fake_store_hold_loads(s.store);
    assert_int_equal(pthread_create(&thread, NULL, stop_asker, &s), 0);
    ask_about(&a, &s, QUERY_FILTER, 1);
    assert_int_equal(asker_ask(s.asker, &a.q, &a.err), ERR_CLOSED);
    pthread_join(thread, NULL);
    assert_int_equal(asker_ask(s.asker, &a.q, &a.err), ERR_CLOSED);
    asker_close(s.asker);
    fake_store_free(s.store);
    end(&s);
}

/* A loop of its own: some questions are under way at any time, some are dropped. */
static void *loop(void *arg)
{
    struct setting own = *(struct setting *)arg, *s = &own;
    struct err err = {0};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (asker_open(&s->dedup, &s->asker, &err) < 0) {
        return (void *)"open";
    }
    asker_on_answers(s->asker, on_wake, s);
    const char *problem = NULL;
    struct ask *asks = calloc(MANY, sizeof *asks);
    for (int round = 0; round < ROUNDS && problem == NULL; round++) {
        int n = 1 + round % MANY, told = 0;
        for (int i = 0; i < n; i++) {
            ask_about(&asks[i], s, (enum query_kind)(i % 3), i);
            if (asker_begin(s->asker, &asks[i].q, &asks[i].load, &asks[i].err) != STORE_LATER) {
                problem = "begin";
                break;
            }
            asker_on_done(asks[i].load, on_done, &asks[i]);
            if (i % 5 == 4) {
                asker_drop(s->asker, asks[i].load);
                told++;
            }
        }
        while (problem == NULL && told < n) {
            pthread_mutex_lock(&s->lock);
            while (s->woken == 0) {
                pthread_cond_wait(&s->changed, &s->lock);
            }
            s->woken = 0;
            pthread_mutex_unlock(&s->lock);
            asker_deliver(s->asker);
            for (told = 0; told < n && (asks[told].done || told % 5 == 4); told++) {
                problem = asks[told].done && asks[told].rc != 0 ? asks[told].err.text : problem;
            }
        }
    }
    asker_close(s->asker);
    free(asks);
    end(s);
    return (void *)problem;
}

static void test_loops(void **state)
{
    (void)state;
    struct setting s;
    pthread_t threads[THREADS];
    begin_memory(&s, true);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, loop, &s), 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct store_batch batch = {0};
        struct ask a;
        add(&batch, MANY + 2, round % MANY);
        record(&s, &batch);
        ask_about(&a, &s, QUERY_FILTER, MANY + 2);
        char id[16];
        a.hashes[0] = hash_of("i", round % MANY, id);
        a.rc = asker_ask(s.asker, &a.q, &a.err);
        expect(&a, 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *problem;
        pthread_join(threads[i], &problem);
        assert_null(problem);
    }
    asker_close(s.asker);
    s.store->ops->close(s.store);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_once), cmocka_unit_test(test_waiting), cmocka_unit_test(test_many_under_way),
        cmocka_unit_test(test_drop),    cmocka_unit_test(test_close),   cmocka_unit_test(test_errors),
        cmocka_unit_test(test_stop),    cmocka_unit_test(test_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
