/* The staged index with a writer, three askers and a walker at once. Users 0..T_USERS-1 play item 0, 1, 2 ... of their
 * own; every fifth is forgotten later. User T_USERS is forgotten whole again and again: what he plays carries the
 * number of his life. Askers read what is promised before they load. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/sqlite/index/staged.h"

enum { NOV = 2026 * 12 + 10, T_USERS = 300, T_PLAYS = 90000, T_LIVES = 200, T_ASKERS = 3 };

static struct staged *shared;
static _Atomic uint32_t added[T_USERS];      /* items 0..added-1 were added */
static _Atomic uint32_t forgetting[T_USERS]; /* item 5k with 5k < forgetting may be gone */
static _Atomic uint32_t forgotten[T_USERS];  /* item 5k with 5k < forgotten is gone */
static _Atomic uint32_t life;
static _Atomic bool writer_done;

static int64_t t_key(uint32_t u)
{
    return (int64_t)((uint64_t)(u / 2) * 0x9e3779b97f4a7c15u); /* two users a key */
}

static struct slice t_name(uint32_t u, char name[16])
{
    return slice_of(name, (size_t)snprintf(name, 16, "u%u", u));
}

static uint64_t t_hash(uint32_t u, uint32_t i)
{
    return (uint64_t)u << 32 | i;
}

/* Some items have one. */
static uint64_t group_of(uint64_t hash)
{
    return hash % 3 == 1 ? ~hash : 0;
}

static void *write_all(void *arg)
{
    (void)arg;
    char name[16];
    struct staged_ids ids = {0};
    uint64_t id = 0;
    for (uint32_t n = 0; n < T_PLAYS; n++) {
        uint32_t u = n % 7 == 0 ? 0 : n * 2654435761u % T_USERS;
        struct slice user = t_name(u, name);
        struct staged_user *handle = staged_user(shared, t_key(u), user);
        uint32_t i = atomic_load(&added[u]);
        int rc = i % 4 == 3 ? staged_add_delivery(shared, handle,
                                                  &(struct store_item){user, t_hash(u, i), group_of(t_hash(u, i))},
                                                  (int64_t)n + 1, id++)
                            : staged_add_play(shared, handle, t_hash(u, i), NOV, id++);
        if (handle == NULL || rc != 0) {
            abort();
        }
        atomic_store(&added[u], i + 1);
        if (i % 50 == 49) {
            uint64_t hashes[10];
            bool seen[10] = {false};
            for (uint32_t k = 0; k < 10; k++) {
                hashes[k] = t_hash(u, i - 49 + 5 * k);
            }
            atomic_store(&forgetting[u], i);
            ids.n = 0;
            if (staged_find_items(shared, t_key(u), user, hashes, 10, INT_MIN, 0, seen, &ids) != 1 || ids.n != 10) {
                abort();
            }
            staged_drop_rows(shared, t_key(u), user, ids.at, ids.n);
            atomic_store(&forgotten[u], i);
        }
        if (n % (T_PLAYS / T_LIVES) == 0) {
            user = t_name(T_USERS, name);
            staged_drop_user(shared, t_key(T_USERS), user);
            uint32_t now = atomic_load(&life) + 1;
            atomic_store(&life, now);
            handle = staged_user(shared, t_key(T_USERS), user);
            for (uint32_t k = 0; k < 20; k++) {
                if (staged_add_play(shared, handle, t_hash(T_USERS, now), NOV, id++) != 0) {
                    abort();
                }
            }
        }
    }
    staged_ids_free(&ids);
    atomic_store(&writer_done, true);
    return NULL;
}

/* Returns what is wrong, or NULL. */
static const char *ask(uint32_t u, struct staged_out *out, uint8_t *there)
{
    char name[16];
    uint32_t must = atomic_load(&added[u]), gone = atomic_load(&forgotten[u]);
    staged_out_clear(out);
    int known = staged_load(shared, t_key(u), t_name(u, name), INT_MIN, out);
    uint32_t going = atomic_load(&forgetting[u]), most = atomic_load(&added[u]) + 1;
    memset(there, 0, most);
    for (size_t k = 0; k < out->n_plays + out->deliveries.n; k++) {
        uint64_t hash = k < out->n_plays ? out->plays[k].hash : out->deliveries.list[k - out->n_plays].hash;
        uint32_t i = (uint32_t)hash;
        if (hash >> 32 != u || i >= most) {
            return "a row of somebody else";
        }
        if (there[i]++ != 0) {
            return "a row twice";
        }
        if (i % 5 == 0 && i < gone) {
            return "a forgotten row";
        }
    }
    for (uint32_t i = 0; i < must; i++) {
        if (there[i] == 0 && !(i % 5 == 0 && i < going)) {
            return "a lost row";
        }
    }
    return (known == 1) == (out->n_plays + out->deliveries.n > 0) ? NULL : "known, or not";
}

/* Of the last few deliveries alone. */
static const char *ask_last(uint32_t u, struct staged_out *out)
{
    enum { MOST = 3 };
    char name[16];
    uint32_t gone = atomic_load(&forgotten[u]);
    staged_out_clear(out);
    out->deliveries_max = MOST;
    int rc = staged_load(shared, t_key(u), t_name(u, name), INT_MIN, out);
    out->deliveries_max = 0;
    for (size_t k = 0; k < out->deliveries.n; k++) {
        const struct store_delivery *d = &out->deliveries.list[k];
        if (d->hash >> 32 != u || !slice_eq(d->item, t_name(u, name)) || d->group != group_of(d->hash)) {
            return "a delivery of somebody else";
        }
        if ((uint32_t)d->hash % 5 == 0 && (uint32_t)d->hash < gone) {
            return "a forgotten delivery";
        }
        if (k > 0 && d->stamp >= d[-1].stamp) {
            return "not the newest first";
        }
    }
    return rc < 0 ? "no memory" : out->deliveries.n >= 2 * MOST * DELIVERED_TIMES ? "more than count" : NULL;
}

static void *ask_all(void *arg)
{
    struct staged_out out = {0};
    uint8_t *there = malloc(T_PLAYS + 2);
    const char *wrong = there == NULL ? "no memory" : NULL;
    char name[16];
    uint32_t n = (uint32_t)(uintptr_t)arg;
    do {
        uint32_t u = n % 50 == 0 ? 0 : n * 2246822519u % T_USERS;
        wrong = ask(u, &out, there);
        wrong = wrong == NULL ? ask_last(u, &out) : wrong;
        uint32_t least = atomic_load(&life);
        staged_out_clear(&out);
        int rc = staged_load(shared, t_key(T_USERS), t_name(T_USERS, name), INT_MIN, &out);
        for (size_t k = 0; wrong == NULL && k < out.n_plays; k++) {
            if (out.plays[k].hash < t_hash(T_USERS, least)) {
                wrong = "a play of an earlier life";
            }
        }
        wrong = rc < 0 ? "no memory" : wrong;
        n++;
    } while (wrong == NULL && !atomic_load(&writer_done));
    free(there);
    staged_out_free(&out);
    return (void *)(uintptr_t)wrong;
}

static void *walk_all(void *arg)
{
    (void)arg;
    struct staged_walk walk = {0};
    const char *wrong = NULL;
    bool again;
    do {
        again = !atomic_load(&writer_done);
        int64_t last = INT64_MIN;
        uint64_t sum = 0;
        staged_walk_begin(&walk, shared, INT64_MIN);
        while (staged_walk_next(&walk) == 1) {
            wrong = walk.key < last ? "out of order" : wrong;
            last = walk.key;
            for (size_t k = 1; k < walk.n_plays; k++) {
                wrong = walk.plays[k - 1].id >= walk.plays[k].id ? "ids don't rise" : wrong;
            }
            for (size_t k = 0; k < walk.n_deliveries; k++) {
                wrong = !slice_eq(walk.deliveries[k].item, walk.user) ? "item bytes" : wrong;
            }
            sum += walk.n_plays + walk.n_deliveries;
        }
        wrong = !again && sum != staged_rows(shared) ? "rows missing at the end" : wrong;
    } while (wrong == NULL && again);
    staged_walk_free(&walk);
    return (void *)(uintptr_t)wrong;
}

static void test_threads(void **state)
{
    (void)state;
    shared = staged_new(0);
    assert_non_null(shared);
    pthread_t threads[T_ASKERS + 2];
    assert_int_equal(pthread_create(&threads[0], NULL, walk_all, NULL), 0);
    for (uintptr_t i = 0; i < T_ASKERS; i++) {
        assert_int_equal(pthread_create(&threads[1 + i], NULL, ask_all, (void *)(i * 1000)), 0);
    }
    assert_int_equal(pthread_create(&threads[T_ASKERS + 1], NULL, write_all, NULL), 0);
    const char *wrong = NULL;
    for (int i = 0; i < T_ASKERS + 2; i++) {
        void *result;
        pthread_join(threads[i], &result);
        wrong = result != NULL ? result : wrong;
    }
    if (wrong != NULL) {
        fail_msg("%s", wrong);
    }
    struct staged_out out = {0};
    uint8_t *there = malloc(T_PLAYS + 2);
    for (uint32_t u = 0; u < T_USERS; u++) {
        assert_null(ask(u, &out, there));
    }
    free(there);
    staged_out_free(&out);
    staged_free(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
