/* The engine on RADOS: nodes that share a pool, what the cluster's errors become, and who wins when two rewrite a user.
 * What every engine keeps is in test_store_conformance.c. */
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
#include "base/clock.h"
#include "base/hash.h"
#include "store/admin.h"
#include "store/rados/layout.h"
#include "store/rados/night.h"
#include "store/rados/rados_store.h"
#include "tests/lib/rados_fixture.h"
#include "tests/lib/random.h"

static void walk(struct store_fixture *f)
{
    struct err err = {0};
    if (rados_store_walk(f->store, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

/* --- meta --- */

static void a_pool_is_made_once(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct config other = c->first->cfg;
    struct store *store;
    struct err err = {0};
    assert_int_equal(rados_store_init(&other, &memory_pool_ops, &err), 0); /* there already, and it fits */
    other.hash_seed++;
    assert_int_equal(rados_store_init(&other, &memory_pool_ops, &err), ERR_SEED);
    assert_int_equal(rados_store_open(&other, &(struct rados_store_options){.ops = &memory_pool_ops}, &store, &err),
                     ERR_SEED);
    other = c->first->cfg;
    other.error_rate *= 2;
    assert_int_equal(rados_store_open(&other, &(struct rados_store_options){.ops = &memory_pool_ops}, &store, &err),
                     ERR_INVALID);
    assert_non_null(strstr(err.text, "error_rate"));
    other = c->first->cfg;
    memory_pool_put(c->pool, "meta", "schema", slice_str("2"));
    assert_int_equal(rados_store_open(&other, &(struct rados_store_options){.ops = &memory_pool_ops}, &store, &err),
                     ERR_VERSION);
    memory_pool_put(c->pool, "meta", "schema", slice_str("1"));
    memory_pool_put(c->pool, "meta", "seed", slice_str("none"));
    assert_int_equal(rados_store_open(&other, &(struct rados_store_options){.ops = &memory_pool_ops}, &store, &err),
                     ERR_CORRUPT);
    snprintf(other.rados_pool, sizeof other.rados_pool, "elsewhere");
    assert_int_equal(rados_store_open(&other, &(struct rados_store_options){.ops = &memory_pool_ops}, &store, &err),
                     ERR_NOTFOUND);
}

static void two_make_it_at_once(void **state)
{
    (void)state;
    struct store_fixture *f = store_fixture_new("rados");
    struct memory_pool *pool = memory_pool_new("once");
    struct store *store;
    struct err err = {0};
    snprintf(f->cfg.rados_pool, sizeof f->cfg.rados_pool, "once");
    assert_int_equal(rados_store_open(&f->cfg, &(struct rados_store_options){.ops = &memory_pool_ops}, &store, &err),
                     ERR_NOTFOUND);
    assert_non_null(strstr(err.text, "unseen rados init"));
    /* The other one is faster: its meta is there, and ours isn't written. */
    memory_pool_fault(
        pool,
        &(struct memory_pool_fault){
            .kinds = MEMORY_POOL_WRITES, .object = "meta", .nth = 1, .result = CLUSTER_EXISTS, .carried_out = true});
    assert_int_equal(rados_store_init(&f->cfg, &memory_pool_ops, &err), 0);
    memory_pool_free(pool);
    /* Users without meta are no new pool. */
    pool = memory_pool_new("once");
    memory_pool_put(pool, "u.somebody", "g", slice_str("0000000000000000"));
    assert_int_equal(rados_store_init(&f->cfg, &memory_pool_ops, &err), ERR_CORRUPT);
    memory_pool_free(pool);
    store_fixture_free(f);
}

/* --- nodes --- */

static void every_node_sees_it_at_once(void **state)
{
    struct cluster_of_nodes *c = *state;
    for (int i = 0; i < 30; i++) {
        char item[16];
        snprintf(item, sizeof item, "i%d", i);
        play(&c->nodes[i % NODES], "u", item);
        for (int n = 0; n < NODES; n++) {
            assert_true(seen(&c->nodes[n], "u", item));
        }
    }
    assert_int_equal(forget(&c->nodes[1], "u", "i3"), 1);
    assert_false(seen(&c->nodes[0], "u", "i3"));
    assert_int_equal(forget(&c->nodes[2], "u", NULL), 1);
    assert_false(known(&c->nodes[0], "u"));
}

static void enough_plays_are_merged(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    for (int i = 0; i < 64; i++) {
        char item[16];
        snprintf(item, sizeof item, "i%d", i);
        play(f, "u", item); /* nobody asks */
    }
    while (memory_pool_count(c->pool, "u.u", "m") == 0) {
        call(f, f->store->ops->tick, NULL);
    }
    assert_int_equal(memory_pool_count(c->pool, "u.u", "m202611."), 1);
    assert_int_equal(memory_pool_count(c->pool, "u.u", "p"), 0);
    assert_int_equal(memory_pool_count(c->pool, "u.u", "w"), 1);
    assert_true(seen(f, "u", "i0") && seen(f, "u", "i63"));
    assert_false(seen(f, "u", "i64"));
    assert_int_equal(stats(f).flushes, 1);

    play(f, "v", "old"); /* one that is old, and a question */
    clock_test_advance(2 * HOUR_MS);
    assert_true(seen(&c->nodes[1], "v", "old"));
    while (memory_pool_count(c->pool, "u.v", "m") == 0) {
        call(f, f->store->ops->tick, NULL);
    }
    assert_int_equal(memory_pool_count(c->pool, "u.v", "p"), 0);
    assert_true(seen(f, "v", "old"));
}

static void wait_idle(struct store_fixture *f)
{
    while (stats(f).queue_messages > 0) {
        call(f, f->store->ops->tick, NULL);
    }
}

/* slot_length = auto is six hours, and not none. */
static void a_play_of_a_moment_ago_waits(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    f->cfg.slot_length_ms = 0;
    play(f, "u", "new");
    assert_true(seen(f, "u", "new"));
    wait_idle(f);
    assert_int_equal(stats(f).flushes, 0);
    assert_int_equal(memory_pool_count(c->pool, "u.u", "p"), 1);
    clock_test_advance(5 * HOUR_MS);
    assert_true(seen(f, "u", "new"));
    wait_idle(f);
    assert_int_equal(stats(f).flushes, 0);
    clock_test_advance(2 * HOUR_MS);
    assert_true(seen(f, "u", "new"));
    wait_idle(f);
    assert_int_equal(stats(f).flushes, 1);
    assert_int_equal(memory_pool_count(c->pool, "u.u", "p"), 0);
}

static void play_some(struct store_fixture *f, const char *user, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        char item[16];
        snprintf(item, sizeof item, "i%d", i);
        play(f, user, item);
        wait_idle(f);
    }
}

/* In turn, until so many were played. */
static void play_in_turn(struct store_fixture *nodes, int n_nodes, const char *user, int first, int n)
{
    for (int i = 0; i < n; i++) {
        play_some(&nodes[i % n_nodes], user, first + i, 1);
    }
}

/* Each node counts what it has recorded. Once another has merged that, there is nothing to be rewritten: it is seen in
 * the read. */
static void what_another_node_has_merged_is_not_merged_again(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *a = &c->nodes[0], *b = &c->nodes[1];
    play_some(b, "u", 0, 64);
    assert_int_equal(stats(b).flushes, 1);
    play_some(a, "u", 100, 64);
    assert_int_equal(stats(a).flushes, 0);
    assert_int_equal(stats(a).merges_early, 1);
    assert_int_equal(memory_pool_count(c->pool, "u.u", "p"), 64);
    play_some(b, "u", 200, 64);
    assert_int_equal(stats(b).flushes, 2);
    assert_int_equal(stats(b).plays_flushed, 64 + 128);
    assert_int_equal(memory_pool_count(c->pool, "u.u", "p"), 0);
    assert_true(seen(a, "u", "i0") && seen(a, "u", "i163") && seen(a, "u", "i263") && seen(b, "u", "i100"));
}

/* Whoever changed a user last goes on, and the others look more and more rarely whether it does. */
static void others_leave_a_user_to_whoever_merges_them(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *a = &c->nodes[0];
    play_some(a, "u", 0, 64);
    assert_int_equal(stats(a).flushes, 1);
    play_in_turn(c->nodes, NODES, "u", 64, 1200 * NODES);
    assert_int_equal(stats(a).flushes, 1 + 1200 / 64);
    assert_int_equal(stats(a).merges_early, 0);
    for (int i = 1; i < NODES; i++) {
        assert_int_equal(stats(&c->nodes[i]).flushes, 0);
        assert_int_equal(stats(&c->nodes[i]).merges_early, 3);
        assert_int_equal(stats(&c->nodes[i]).merges_lost, 0);
    }
}

/* Nobody says that it ended: one of those that look finds that nobody has merged since, and takes over. */
static void a_node_that_ends_is_followed_by_one(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *others = &c->nodes[1];
    play_some(&c->nodes[0], "u", 0, 64);
    close_node(&c->nodes[0]);
    play_in_turn(others, 2, "u", 64, 2 * 128);
    assert_int_equal(stats(&others[0]).flushes + stats(&others[1]).flushes, 0);
    play_in_turn(others, 2, "u", 64 + 2 * 128, 2 * 256);
    uint64_t first = stats(&others[0]).flushes, second = stats(&others[1]).flushes;
    assert_true((first == 0) != (second == 0));
    assert_true(first + second >= 2);
    assert_true(memory_pool_count(c->pool, "u.u", "p") < 2 * 64 + 2);
    assert_true(seen(&others[0], "u", "i0") && seen(&others[1], "u", "i500"));
}

/* All nodes are asked about a user all the time: one of them merges. When it ends, another does. */
static void one_node_merges_a_busy_user(void **state)
{
    struct cluster_of_nodes *c = *state;
    int n_nodes = NODES, most = 0;
    struct store_fixture *nodes = c->nodes;
    for (int ended = 0; ended < 2; ended++) {
        uint64_t flushes = 0, early = 0, lost = 0;
        for (int i = 0; i < 1500; i++) {
            char item[16];
            snprintf(item, sizeof item, "i%d.%d", ended, i);
            play(&nodes[i % n_nodes], "u", item);
            wait_idle(&nodes[i % n_nodes]);
            for (int n = 0; n < n_nodes; n++) {
                struct store_fixture *asked = &nodes[(i / n_nodes + n) % n_nodes]; /* each is the first now and then */
                assert_true(seen(asked, "u", item));
                wait_idle(asked);
            }
        }
        for (int n = 0; n < n_nodes; n++) {
            struct store_stats now = stats(&nodes[n]);
            most = now.flushes > stats(&nodes[most]).flushes ? n : most;
            flushes += now.flushes;
            early += now.merges_early;
            lost += now.merges_lost;
        }
        assert_true(flushes >= 12);
        assert_int_equal(stats(&nodes[most]).flushes, flushes);
        assert_int_equal(early, 0);
        assert_int_equal(lost, 0);
        if (ended == 0) {
            close_node(&nodes[most]);
            struct store_fixture left = nodes[NODES - 1];
            nodes[NODES - 1] = nodes[most];
            nodes[most] = left;
            n_nodes--;
            most = 0;
        }
    }
}

/* Plays that wait when a question to this node begins a merge of a user whom nobody has merged. */
static int merges_alone_at(struct cluster_of_nodes *c, int node, const char *user, const char *object)
{
    uint64_t before = stats(&c->nodes[node]).flushes;
    char key[LAYOUT_KEY], value[LAYOUT_HEX];
    int n = 0;
    layout_hex((uint64_t)START, value);
    while (stats(&c->nodes[node]).flushes == before) {
        for (int i = 0; i < 4; i++, n++) {
            const struct layout_key play = {.kind = LAYOUT_PLAY, .month = month_of_ms(START), .hash = (uint64_t)n};
            layout_key_write(&play, key);
            memory_pool_put(c->pool, object, key, slice_of(value, sizeof value));
        }
        assert_true(n < 1024);
        assert_true(known(&c->nodes[node], user));
        wait_idle(&c->nodes[node]);
    }
    memory_pool_drop(c->pool, object);
    return n;
}

/* So that the second finds that the first has merged, however long that took. */
static void nodes_come_to_a_new_user_one_after_another(void **state)
{
    struct cluster_of_nodes *c = *state;
    for (int u = 0; u < 8; u++) {
        char user[16], object[24];
        int at[NODES], first = 0;
        snprintf(user, sizeof user, "u%d", u);
        snprintf(object, sizeof object, "u.u%d", u);
        for (int n = 0; n < NODES; n++) {
            at[n] = merges_alone_at(c, n, user, object);
            assert_in_range(at[n], 64, 256);
            first = at[n] < at[first] ? n : first;
        }
        for (int n = 0; n < NODES; n++) {
            assert_true(n == first || at[n] - at[first] >= 40);
        }
    }
}

/* An exception ends with the merge of a later play, and not before: meanwhile the play hides the item. */
static void an_exception_ends_by_a_merge(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    play(f, "u", "a");
    play(f, "u", "b");
    walk(f);
    assert_int_equal(forget(f, "u", "a"), 1);
    assert_int_equal(memory_pool_count(c->pool, "u.u", "x"), 1);
    play(f, "u", "a");
    assert_true(seen(f, "u", "a"));
    assert_int_equal(memory_pool_count(c->pool, "u.u", "x"), 1);
    assert_int_equal(forget(f, "u", "a"), 1); /* with both there */
    assert_false(seen(f, "u", "a"));
    play(f, "u", "a");
    walk(f);
    assert_int_equal(memory_pool_count(c->pool, "u.u", "x"), 0);
    assert_true(seen(f, "u", "a") && seen(f, "u", "b"));
}

/* 10,000 plays, 64 at a time: a logarithmic number of parts, and none of them is rewritten each time. */
static void parts_grow_like_digits(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    for (int i = 0; i < 10000; i += 100) {
        int done = 0;
        struct store_batch batch = {.done = batch_done, .owner = &done};
        for (int j = i; j < i + 100; j++) {
            char item[16];
            snprintf(item, sizeof item, "%d", j);
            add(&batch, STORE_PLAY, START, "u", item);
        }
        f->store->ops->record(f->store, &batch);
        wait_flag(&done);
        buf_free(&batch.bytes);
        while (memory_pool_count(c->pool, "u.u", "p") > 0) {
            call(f, f->store->ops->tick, NULL);
            known(f, "u");
        }
    }
    int parts = memory_pool_count(c->pool, "u.u", "m");
    assert_true(parts >= 1 && parts <= 6);
    for (int i = 0; i < 10000; i += 371) {
        char item[16];
        snprintf(item, sizeof item, "%d", i);
        assert_true(seen(f, "u", item));
    }
    struct store_view view;
    struct err err = {0};
    assert_int_equal(load(f, f->reader, "u", &view, &err), 0);
    assert_int_equal(view.n_months, 1);
    assert_int_equal(filter_items(&view.months[0].filter), 10000);
    assert_true(filter_error(&view.months[0].filter) < f->cfg.error_rate);
}

/* --- two that rewrite a user --- */

struct handed {
    struct store_forget forget;
    int done;
};

static void hand_in_forget(struct store_fixture *f, struct handed *h, const char *user)
{
    *h = (struct handed){.forget = {.key = key_of(user),
                                    .user = slice_str(user),
                                    .first_month = INT_MIN,
                                    .done = forget_done,
                                    .owner = &h->done}};
    f->store->ops->forget(f->store, &h->forget);
}

/* A merge and a forget that have both read, and whose writes wait: whichever is carried out first, nothing comes back.
 */
static void a_merge_and_a_forget(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *a = &c->nodes[0], *b = &c->nodes[1];
    uint64_t lost = 0, won = 0;
    for (uint64_t round = 1; round <= 12; round++) {
        static struct handed h;
        char user[16], object[20];
        snprintf(user, sizeof user, "r%d", (int)round);
        snprintf(object, sizeof object, "u.%s", user);
        play_some(a, user, 0, 64); /* so that a goes on with them */
        for (int i = 100; i < 196; i++) {
            char item[16];
            snprintf(item, sizeof item, "i%d", i);
            play(&c->nodes[1 + i % 2], user, item); /* neither has recorded enough of them */
        }
        uint64_t lost_before = stats(a).merges_lost, won_before = stats(a).flushes;
        memory_pool_shuffle(c->pool, round * 77);
        memory_pool_hold(c->pool, MEMORY_POOL_WRITES);
        assert_true(known(a, user));
        memory_pool_wait_held(c->pool, 1);
        hand_in_forget(b, &h, user);
        memory_pool_wait_held(c->pool, 2);
        memory_pool_hold(c->pool, 0);
        wait_flag(&h.done);
        assert_int_equal(h.forget.err.code, 0);
        assert_int_equal(h.forget.answer, 1);
        memory_pool_shuffle(c->pool, 0);
        while (stats(a).merges_lost == lost_before && stats(a).flushes == won_before) {
            call(a, a->store->ops->tick, NULL);
        }
        lost += stats(a).merges_lost - lost_before;
        won += stats(a).flushes - won_before;
        assert_false(known(a, user));
        assert_false(known(b, user));
        assert_int_equal(memory_pool_count(c->pool, object, ""), 2); /* g and f */
    }
    assert_true(lost > 0 && won > 0);
}

/* Each of many courses: what each node does is drawn, and so is the order in which the pool carries it out. A ledger
 * knows what was acknowledged. */
enum { USERS = 3, ITEMS = 12 };

struct pending_play {
    struct store_batch batch;
    int user, item, done;
};

static void check_all(struct cluster_of_nodes *c, bool ledger[USERS][ITEMS], uint64_t seed)
{
    static const char *const users[] = {"u0", "u1", "u2"};
    for (int n = 0; n < NODES; n++) {
        for (int u = 0; u < USERS; u++) {
            struct store_view view;
            struct err err = {0};
            if (load(&c->nodes[n], c->nodes[n].reader, users[u], &view, &err) < 0) {
                fail_msg("course %llu: %s", (unsigned long long)seed, err.text);
            }
            for (int i = 0; i < ITEMS; i++) {
                char item[16];
                snprintf(item, sizeof item, "i%d", i);
                if (in_view(&view, item) != ledger[u][i]) {
                    fail_msg("course %llu: node %d, %s, %s", (unsigned long long)seed, n, users[u], item);
                }
            }
        }
    }
}

static void one_course(struct cluster_of_nodes *c, uint64_t seed)
{
    static const char *const users[] = {"u0", "u1", "u2"};
    static struct pending_play plays[16];
    bool ledger[USERS][ITEMS] = {{false}};
    uint64_t random = seed * 2654435761U + 1;
    for (int u = 0; u < USERS; u++) {
        forget(&c->nodes[0], users[u], NULL);
    }
    memory_pool_shuffle(c->pool, random | 1);
    for (int step = 0; step < 30; step++) {
        int n = (int)(random_next(&random) % NODES), u = (int)(random_next(&random) % USERS);
        int i = (int)(random_next(&random) % ITEMS);
        struct store_fixture *f = &c->nodes[n];
        char item[16];
        snprintf(item, sizeof item, "i%d", i);
        switch (random_next(&random) % 8) {
        case 0:
            assert_int_equal(forget(f, users[u], item), ledger[u][i]);
            ledger[u][i] = false;
            break;
        case 1:
            if (random_next(&random) % 3 == 0) {
                forget(f, users[u], NULL);
                memset(ledger[u], 0, sizeof ledger[u]);
            }
            break;
        case 2: /* old plays: whoever asks merges them, while others go on */
            clock_test_advance(2 * HOUR_MS);
            known(f, users[u]);
            break;
        case 3:
            deliver(f, users[u], item);
            ledger[u][i] = true;
            /* five count; so the ledger would have to: it is un-seen again at once */
            forget(&c->nodes[(n + 1) % NODES], users[u], item);
            ledger[u][i] = false;
            break;
        default: { /* a burst on all nodes at once, with merges among it */
            int burst = 1 + (int)(random_next(&random) % 8);
            for (int k = 0; k < burst; k++) {
                struct pending_play *p = &plays[k];
                *p = (struct pending_play){.user = (int)(random_next(&random) % USERS),
                                           .item = (int)(random_next(&random) % ITEMS)};
                p->batch = (struct store_batch){.done = batch_done, .owner = &p->done};
                snprintf(item, sizeof item, "i%d", p->item);
                add(&p->batch, STORE_PLAY, clock_wall_ms(), users[p->user], item);
                struct store_fixture *by = &c->nodes[random_next(&random) % NODES];
                by->store->ops->record(by->store, &p->batch);
            }
            known(f, users[u]);
            for (int k = 0; k < burst; k++) {
                wait_flag(&plays[k].done);
                assert_int_equal(plays[k].batch.err.code, 0);
                ledger[plays[k].user][plays[k].item] = true;
                buf_free(&plays[k].batch.bytes);
            }
        }
        }
        check_all(c, ledger, seed);
    }
    walk(&c->nodes[seed % NODES]);
    check_all(c, ledger, seed);
    memory_pool_shuffle(c->pool, 0);
}

static void the_ledger_holds(void **state)
{
    struct cluster_of_nodes *c = *state;
    const char *wanted = getenv("UNSEEN_COURSES_RADOS");
    uint64_t courses = wanted != NULL ? strtoull(wanted, NULL, 10) : 60;
    for (uint64_t seed = 1; seed <= courses; seed++) {
        one_course(c, seed);
    }
    assert_true(stats(&c->nodes[0]).flushes > 0);
}

/* --- what the cluster answers --- */

static void errors_by_name(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    static const struct {
        enum cluster_result result;
        int code;
        const char *words;
    } cases[] = {
        {CLUSTER_LATE, ERR_LATE, "rados_timeout"}, {CLUSTER_FENCED, ERR_IO, "blocklisted"},
        {CLUSTER_DENIED, ERR_IO, "not allowed"},   {CLUSTER_NO_POOL, ERR_IO, "was removed"},
        {CLUSTER_NOMEM, ERR_NOMEM, "memory"},      {CLUSTER_FAILED, ERR_IO, "RADOS"},
    };
    char text[STORE_ERROR_TEXT];
    struct store_view view;
    struct err err = {0};
    play(f, "u", "a");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fault(c, MEMORY_POOL_WRITES, "u.u", cases[i].result);
        assert_int_equal(record_code(f, "u", "b", text, sizeof text), cases[i].code);
        assert_non_null(strstr(text, cases[i].words));
        fault(c, MEMORY_POOL_READS, "u.u", cases[i].result);
        assert_int_equal(load(f, f->reader, "u", &view, &err), cases[i].code);
        assert_non_null(strstr(err.text, cases[i].words));
        fault(c, MEMORY_POOL_READS, "u.u", cases[i].result);
        assert_int_equal(forget(f, "u", NULL), cases[i].code);
        fault(c, MEMORY_POOL_WRITES, "u.u", cases[i].result);
        assert_int_equal(forget(f, "u", "a"), cases[i].code);
        assert_true(seen(f, "u", "a"));
        assert_false(seen(f, "u", "b"));
    }
    assert_true(f->store->ops->refusal(f->store, &err) < 0); /* until it was well for a while */
}

/* An object that isn't there is a user without plays; a pool that isn't there is nobody. */
static void a_pool_that_is_gone_shows_nothing(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    struct store_view view;
    struct err err = {0};
    play(f, "u", "a");
    memory_pool_remove(c->pool);
    assert_int_equal(load(f, f->reader, "u", &view, &err), ERR_IO);
    assert_int_equal(load(f, f->reader, "stranger", &view, &err), ERR_IO);
}

static void a_full_cluster_takes_forgets(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    char text[STORE_ERROR_TEXT];
    struct err err = {0};
    play(f, "u", "a");
    play(f, "v", "a");
    memory_pool_full(c->pool, true);
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    add(&batch, STORE_PLAY, START, "u", "b");
    f->store->ops->record(f->store, &batch);
    RADOS_IN_TIME(is_raised(&done)); /* given up, once it is known */
    assert_int_equal(batch.err.code, ERR_FULL);
    buf_free(&batch.bytes);
    assert_int_equal(f->store->ops->refusal(f->store, &err), ERR_FULL);
    assert_int_equal(stats(f).rados_full, 1);
    assert_int_equal(record_code(f, "u", "c", text, sizeof text), ERR_FULL); /* at once */
    assert_int_equal(stats(f).full_refusals, 1);
    assert_int_equal(memory_pool_count(c->pool, "u.u", "p"), 1);
    assert_true(seen(f, "u", "a"));
    assert_int_equal(forget(f, "u", "a"), 1);
    assert_int_equal(forget(f, "v", NULL), 1);
    assert_false(known(f, "v"));
    memory_pool_full(c->pool, false);
    while (f->store->ops->refusal(f->store, &err) < 0) { /* looks each second */
        clock_test_advance(100);
        call(f, f->store->ops->tick, NULL);
    }
    assert_int_equal(stats(f).rados_full, 0);
    play(f, "u", "b");
    assert_true(seen(f, "u", "b"));
    assert_int_equal(memory_pool_count(c->pool, "full.1", ""), -1);
}

/* One that timed out here, and was carried out: an error, and the play is there, which is no harm. */
static void late_writes_are_unions(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    char text[STORE_ERROR_TEXT];
    memory_pool_fault(
        c->pool,
        &(struct memory_pool_fault){
            .kinds = MEMORY_POOL_WRITES, .object = "u.u", .nth = 1, .result = CLUSTER_LATE, .carried_out = true});
    assert_int_equal(record_code(f, "u", "a", text, sizeof text), ERR_LATE);
    assert_true(seen(f, "u", "a"));
    assert_int_equal(record_code(f, "u", "a", text, sizeof text), 0);
    assert_int_equal(memory_pool_count(c->pool, "u.u", "p"), 1);
}

struct question {
    struct store_load load;
    int done;
};

static void question_done(struct store_load *load)
{
    struct store_call raise = {.owner = load->owner};
    call_done(&raise);
}

/* A frozen OSD: a reader is closed, and the server stops, before it answers. */
static void a_stop_doesnt_wait_for_questions(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    static struct question q;
    struct store_reader *reader;
    struct err err = {0};
    play(f, "u", "a");
    assert_int_equal(f->store->ops->reader_open(f->store, &reader, &err), 0);
    memory_pool_hold(c->pool, MEMORY_POOL_READS);
    q = (struct question){.load = {.key = key_of("u"),
                                   .user = slice_str("u"),
                                   .first_month = INT_MIN,
                                   .done = question_done,
                                   .owner = &q.done}};
    assert_int_equal(f->store->ops->load(reader, &q.load), STORE_LATER);
    memory_pool_wait_held(c->pool, 1);
    f->store->ops->reader_close(reader);
    assert_true(is_raised(&q.done));
    assert_int_equal(q.load.err.code, ERR_CLOSED);
    close_node(f);
    memory_pool_hold(c->pool, 0);
    open_node(f);
    assert_true(seen(f, "u", "a"));
}

/* What waits for one user is bounded, and doesn't hold up another one. */
static void what_waits_is_bounded(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    enum { N = 50 };
    static struct pending_play plays[N];
    struct err err = {0};
    int refused = 0;
    f->cfg.staging_memory = 256 * 1024;
    memory_pool_hold(c->pool, MEMORY_POOL_WRITES);
    for (int i = 0; i < N; i++) {
        char item[16];
        snprintf(item, sizeof item, "i%d", i);
        plays[i] = (struct pending_play){.batch = {.done = batch_done, .owner = &plays[i].done}};
        add(&plays[i].batch, STORE_PLAY, START, "u", item);
        f->store->ops->record(f->store, &plays[i].batch);
    }
    assert_int_equal(f->store->ops->refusal(f->store, &err), 0); /* a little is left, for a smaller one */
    uint64_t before = memory_pool_operations(c->pool, MEMORY_POOL_WRITES);
    memory_pool_hold(c->pool, 0);
    for (int i = 0; i < N; i++) {
        wait_flag(&plays[i].done);
        assert_true(plays[i].batch.err.code == 0 || plays[i].batch.err.code == ERR_BUSY);
        refused += plays[i].batch.err.code == ERR_BUSY;
        buf_free(&plays[i].batch.bytes);
    }
    assert_true(refused > 0 && refused < N);
    assert_int_equal(memory_pool_operations(c->pool, MEMORY_POOL_WRITES) - before, 2); /* the first, and all others */
    assert_int_equal(stats(f).staged_bytes, 0);
}

/* --- nights --- */

static void a_month_is_sealed_and_goes(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    struct store_month_info months[8];
    struct err err = {0};
    for (int i = 0; i < 200; i++) {
        char item[16];
        snprintf(item, sizeof item, "i%d", i);
        play(f, "u", item);
    }
    play(f, "v", "a");
    assert_int_equal(forget(f, "gone", NULL), 0);
    assert_int_equal(memory_pool_count(c->pool, "u.gone", ""), 2);
    walk(f);
    assert_int_equal(memory_pool_count(c->pool, "u.v", "p"), 0);
    assert_int_equal(f->store->admin->months(f->reader, months, 8, &err), 1);
    assert_int_equal(months[0].month, month_of_ms(START));
    assert_int_equal(months[0].users, 2);
    assert_int_equal(months[0].plays, 201);
    assert_int_equal(months[0].state, STORE_MONTH_LIVE);
    clock_test_advance(14 * (int64_t)DAY_MS);
    walk(&c->nodes[1]);
    assert_int_equal(c->nodes[1].store->admin->months(c->nodes[1].reader, months, 8, &err), 1);
    assert_int_equal(months[0].state, STORE_MONTH_SEALED);
    assert_true(seen(f, "u", "i17") && seen(f, "v", "a"));
    play(f, "v", "late");
    record_at(f, STORE_PLAY, START, "v", "very late");
    walk(f);
    assert_true(seen(f, "v", "a") && seen(f, "v", "late") && seen(f, "v", "very late"));
    clock_test_advance(month_start_ms(month_of_ms(START) + 7) - clock_wall_ms());
    walk(f);
    assert_int_equal(memory_pool_count(c->pool, "u.u", ""), -1); /* with nothing left, the object goes */
    assert_int_equal(memory_pool_count(c->pool, "u.gone", ""), -1);
    assert_int_equal(memory_pool_count(c->pool, "u.v", "m"), 1);
    assert_true(seen(f, "v", "late"));
    assert_false(seen(f, "v", "a"));
}

/* Nodes share what is due: each piece is walked once in a night, whoever takes it, and all within four weeks. */
static void nights_are_shared(void **state)
{
    struct cluster_of_nodes *c = *state;
    play(&c->nodes[0], "u", "a");
    clock_test_advance(DAY_MS - clock_wall_ms() % DAY_MS); /* midnight */
    assert_int_equal(calendar_set_zone("UTC"), 0);
    for (int night = 0; night < NIGHTS; night++) {
        for (int n = 0; n < NODES; n++) {
            call(&c->nodes[n], c->nodes[n].store->ops->tick, NULL);
        }
        clock_test_advance(DAY_MS);
    }
    int walked = 0;
    for (int i = 0; i < NIGHT_PIECES; i++) {
        char name[NIGHT_NAME];
        night_piece_name((size_t)i, name);
        walked += memory_pool_count(c->pool, name, "done") == 1;
    }
    assert_int_equal(walked, NIGHT_PIECES);
    assert_int_equal(memory_pool_count(c->pool, "u.u", "m"), 1);
    assert_true(seen(&c->nodes[0], "u", "a"));
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        RADOS_TEST(a_pool_is_made_once),
        cmocka_unit_test(two_make_it_at_once),
        RADOS_TEST(every_node_sees_it_at_once),
        RADOS_TEST(enough_plays_are_merged),
        RADOS_TEST(a_play_of_a_moment_ago_waits),
        RADOS_TEST(what_another_node_has_merged_is_not_merged_again),
        RADOS_TEST(others_leave_a_user_to_whoever_merges_them),
        RADOS_TEST(a_node_that_ends_is_followed_by_one),
        RADOS_TEST(one_node_merges_a_busy_user),
        RADOS_TEST(nodes_come_to_a_new_user_one_after_another),
        RADOS_TEST(an_exception_ends_by_a_merge),
        RADOS_TEST(parts_grow_like_digits),
        RADOS_TEST(a_merge_and_a_forget),
        RADOS_TEST(the_ledger_holds),
        RADOS_TEST(errors_by_name),
        RADOS_TEST(a_pool_that_is_gone_shows_nothing),
        RADOS_TEST(a_full_cluster_takes_forgets),
        RADOS_TEST(late_writes_are_unions),
        RADOS_TEST(a_stop_doesnt_wait_for_questions),
        RADOS_TEST(what_waits_is_bounded),
        RADOS_TEST(a_month_is_sealed_and_goes),
        RADOS_TEST(nights_are_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
