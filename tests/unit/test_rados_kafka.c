/* Plays from Kafka into a pool (store/positions.h): who may move a position, what is durable below it, and the consumer
 * (kafka/claim.c) over it, while other nodes take partitions over and the cluster is away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "kafka/start.h"
#include "store/positions.h"
#include "store/rados/layout.h"
#include "store/rados/rados_store.h"
#include "tests/lib/rados_fixture.h"
#include "tests/lib/random.h"
#include "tests/unit/kafka_fixture.h"

#define SOURCE "kafka/test/plays/0"

static void on_claimed(struct store_call *call)
{
    call_done(call);
}

static int claim(struct store *s, const char *source)
{
    const struct slice name = slice_str(source);
    int done = 0;
    struct store_claim c = {.call = {.done = on_claimed, .owner = &done}, .sources = &name, .n = 1};
    s->positions->claim(s, &c);
    wait_flag(&done);
    return c.call.err.code;
}

static int64_t find(struct store *s, const char *source)
{
    int64_t next = -1;
    s->positions->find(s, slice_str(source), &next);
    return next;
}

static int move(struct store_fixture *f, const char *item, int64_t next)
{
    const struct store_position position = {slice_str(SOURCE), next};
    int done = 0;
    struct store_batch batch = {.positions = &position, .n_positions = 1, .done = batch_done, .owner = &done};
    if (item != NULL) {
        add(&batch, STORE_PLAY, START, "u", item);
    }
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    buf_free(&batch.bytes);
    return batch.err.code;
}

/* As the pool has it; -1: none. */
static int64_t in_pool(struct memory_pool *pool)
{
    char value[64];
    uint64_t next;
    int len = memory_pool_value(pool, "positions", SOURCE, value, sizeof value);
    return len > 0 && layout_unhex(slice_of(value, LAYOUT_HEX), &next) ? (int64_t)next : -1;
}

static void who_claimed_last_moves_it(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *a = &c->nodes[0], *b = &c->nodes[1];
    assert_int_equal(claim(a->store, SOURCE), 0);
    assert_int_equal(find(a->store, SOURCE), -1);
    assert_int_equal(move(a, "a", 10), 0);
    assert_int_equal(find(a->store, SOURCE), 10);
    assert_int_equal(claim(b->store, SOURCE), 0);
    assert_int_equal(find(b->store, SOURCE), 10);
    assert_int_equal(move(a, "late", 20), ERR_LOCKED);
    assert_true(seen(b, "u", "late")); /* which is no harm */
    assert_int_equal(in_pool(c->pool), 10);
    assert_int_equal(move(b, "b", 15), 0);
    assert_int_equal(move(b, NULL, 3), 0); /* a log that was made anew */
    assert_int_equal(claim(a->store, SOURCE), 0);
    assert_int_equal(find(a->store, SOURCE), 3);
    assert_int_equal(move(b, NULL, 20), ERR_LOCKED);
    assert_int_equal(move(a, NULL, 4), 0);
    close_node(b);
    open_node(b);
    assert_int_equal(find(b->store, SOURCE), 4);
}

/* A batch that this node read by an earlier claim of its own is void. */
static void an_earlier_claim_of_the_same_node(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    const struct store_position position = {slice_str(SOURCE), 50};
    int done = 0;
    struct store_batch batch = {.positions = &position, .n_positions = 1, .done = batch_done, .owner = &done};
    assert_int_equal(claim(f->store, SOURCE), 0);
    assert_int_equal(move(f, NULL, 10), 0);
    add(&batch, STORE_PLAY, START, "u", "a");
    memory_pool_fault(c->pool, NULL);
    memory_pool_hold(c->pool, MEMORY_POOL_WRITES);
    f->store->ops->record(f->store, &batch); /* its play waits */
    memory_pool_wait_held(c->pool, 1);
    struct slice name = slice_str(SOURCE);
    int claimed = 0;
    struct store_claim again = {.call = {.done = on_claimed, .owner = &claimed}, .sources = &name, .n = 1};
    f->store->positions->claim(f->store, &again);
    memory_pool_wait_held(c->pool, 2); /* and so does the claim, which was first at the positions */
    memory_pool_hold(c->pool, 0);
    wait_flag(&claimed);
    wait_flag(&done);
    buf_free(&batch.bytes);
    assert_int_equal(again.call.err.code, 0);
    assert_int_equal(batch.err.code, ERR_LOCKED);
    assert_int_equal(find(f->store, SOURCE), 10);
    assert_int_equal(in_pool(c->pool), 10);
}

/* Nobody knows whether it was moved: told as an error, and the same once more is well, either way. */
static void an_unknown_outcome(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    assert_int_equal(claim(f->store, SOURCE), 0);
    for (int64_t i = 1; i <= 4; i++) {
        memory_pool_fault(c->pool, &(struct memory_pool_fault){.kinds = MEMORY_POOL_WRITES,
                                                               .object = "positions",
                                                               .nth = 1,
                                                               .result = i < 3 ? CLUSTER_LATE : CLUSTER_FENCED,
                                                               .carried_out = i % 2 == 0});
        assert_true(move(f, "a", i) < 0);
        assert_int_equal(find(f->store, SOURCE), i == 1 ? -1 : i - 1);
        RADOS_UNTIL(move(f, "a", i) == 0);
        assert_int_equal(find(f->store, SOURCE), i);
        assert_int_equal(in_pool(c->pool), i);
    }
}

/* It moves only once every play is there. */
static void a_play_that_fails(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    assert_int_equal(claim(f->store, SOURCE), 0);
    assert_int_equal(move(f, NULL, 5), 0);
    fault(c, MEMORY_POOL_WRITES, "u.u", CLUSTER_LATE);
    assert_int_equal(move(f, "a", 6), ERR_LATE);
    assert_int_equal(find(f->store, SOURCE), 5);
    assert_int_equal(in_pool(c->pool), 5);
    assert_int_equal(move(f, "a", 6), 0);
}

/* A pool that was put back under a running node: it finds that out, and what is there now counts. */
static void a_pool_that_went_back(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    char before[64];
    assert_int_equal(claim(f->store, SOURCE), 0);
    assert_int_equal(move(f, NULL, 50), 0);
    int len = memory_pool_value(c->pool, "positions", SOURCE, before, sizeof before);
    assert_int_equal(move(f, NULL, 100), 0);
    memory_pool_put(c->pool, "positions", SOURCE, slice_of(before, (size_t)len));
    assert_int_equal(move(f, NULL, 150), ERR_LOCKED);
    assert_int_equal(claim(f->store, SOURCE), 0);
    assert_int_equal(find(f->store, SOURCE), 50);
    assert_int_equal(move(f, NULL, 60), 0);
    memory_pool_put(c->pool, "positions", SOURCE, slice_str("nonsense"));
    assert_int_equal(claim(f->store, SOURCE), ERR_CORRUPT);
}

/* What a store that was made anew says it is, nobody else says. */
static void a_lineage(void **state)
{
    struct cluster_of_nodes *c = *state;
    int64_t one = find(c->nodes[0].store, STORE_LINEAGE);
    assert_true(one != -1 && one != 0);
    assert_int_equal(find(c->nodes[1].store, STORE_LINEAGE), one);
    struct memory_pool *other = memory_pool_new("other");
    struct store_fixture f = c->nodes[0];
    struct err err = {0};
    snprintf(f.cfg.rados_pool, sizeof f.cfg.rados_pool, "other");
    assert_int_equal(rados_store_init(&f.cfg, &memory_pool_ops, &err), 1);
    open_node(&f);
    assert_int_not_equal(find(f.store, STORE_LINEAGE), one);
    close_node(&f);
    memory_pool_free(other);
}

/* --- a large batch --- */

/* Of many users: only so many operations are under way, and all become durable. When the cluster is away it fails as
 * soon as one of them does, not one round after another. */
static void a_large_batch(void **state)
{
    enum { N = 3000, AT_ONCE = 256 };
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    for (int round = 0; round < 2; round++) {
        int done = 0;
        struct store_batch batch = {.done = batch_done, .owner = &done};
        for (int i = 0; i < N; i++) {
            char user[16];
            snprintf(user, sizeof user, "l%d.%d", round, i);
            add(&batch, STORE_PLAY, START, user, "a");
        }
        memory_pool_hold(c->pool, MEMORY_POOL_WRITES);
        f->store->ops->record(f->store, &batch);
        memory_pool_wait_held(c->pool, AT_ONCE);
        assert_true(stats(f).queue_messages <= AT_ONCE + 1);
        if (round == 1) {
            memory_pool_late(c->pool);
        }
        if (round == 0) {
            memory_pool_hold(c->pool, 0);
        }
        wait_flag(&done);
        assert_int_equal(batch.err.code, round == 0 ? 0 : ERR_LATE);
        memory_pool_hold(c->pool, 0);
        buf_free(&batch.bytes);
        assert_int_equal(stats(f).staged_bytes, 0);
    }
    assert_true(seen(f, "l0.0", "a") && seen(f, "l0.2999", "a"));
}

/* --- a ledger of one partition --- */

enum { LOG = 400, READERS = 3, STEPS = 120 };

struct reader {
    bool claims; /* thinks that the partition is its own */
    int64_t next, handed_in;
    struct store_batch batch;
    struct store_position position;
    int done;
    bool under_way;
};

static void hand_in(struct store_fixture *f, struct reader *r, int64_t n)
{
    r->done = 0;
    r->handed_in = r->next + n > LOG ? LOG : r->next + n;
    r->position = (struct store_position){slice_str(SOURCE), r->handed_in};
    r->batch = (struct store_batch){.positions = &r->position, .n_positions = 1, .done = batch_done, .owner = &r->done};
    for (int64_t i = r->next; i < r->handed_in; i++) {
        char user[16], item[16];
        snprintf(user, sizeof user, "p%d", (int)(i % 5));
        snprintf(item, sizeof item, "i%d", (int)i);
        const struct slice id = slice_str(item);
        const uint64_t hash = hash_id(f->store->ops->seed(f->store), id);
        assert_int_equal(
            store_batch_add(&r->batch, STORE_PLAY, START, STORE_STATED, key_of(user), slice_str(user), &id, &hash, 1),
            0);
    }
    f->store->ops->record(f->store, &r->batch);
    r->under_way = true;
}

/* What fails is read again, from there, or by whoever claims next. */
static void settle(struct reader *r)
{
    if (r->under_way) {
        wait_flag(&r->done);
        r->next = r->batch.err.code == 0 ? r->handed_in : r->next;
        r->claims = r->claims && r->batch.err.code != ERR_LOCKED;
        buf_free(&r->batch.bytes);
        r->under_way = false;
    }
}

/* All below the position is there, and it never goes back. */
static int64_t check_ledger(struct cluster_of_nodes *c, int64_t before, uint64_t seed)
{
    int64_t now = in_pool(c->pool);
    if (now < before) {
        fail_msg("course %llu: from %lld back to %lld", (unsigned long long)seed, (long long)before, (long long)now);
    }
    for (int64_t i = before > 0 ? before : 0; i < now; i++) {
        char user[16], item[16];
        snprintf(user, sizeof user, "p%d", (int)(i % 5));
        snprintf(item, sizeof item, "i%d", (int)i);
        if (!seen(&c->nodes[i % NODES], user, item)) {
            fail_msg("course %llu: %s is not there, below %lld", (unsigned long long)seed, item, (long long)now);
        }
    }
    return now;
}

static void draw_fault(struct cluster_of_nodes *c, uint64_t *random)
{
    static const char *const objects[] = {"positions", "u.", ""};
    static const enum cluster_result results[] = {CLUSTER_LATE, CLUSTER_FAILED, CLUSTER_FENCED};
    memory_pool_fault(c->pool, &(struct memory_pool_fault){.kinds = 1 + (unsigned)(random_next(random) % 3),
                                                           .object = objects[random_next(random) % 3],
                                                           .nth = 1 + (unsigned)(random_next(random) % 4),
                                                           .result = results[random_next(random) % 3],
                                                           .carried_out = random_next(random) % 2 == 0});
}

static void a_course(struct cluster_of_nodes *c, uint64_t seed)
{
    struct reader readers[READERS] = {0};
    uint64_t random = seed * 2654435761U + 1;
    int64_t position = -1;
    memory_pool_shuffle(c->pool, random | 1);
    for (int step = 0; step < STEPS; step++) {
        int n = (int)(random_next(&random) % READERS);
        struct reader *r = &readers[n];
        struct store_fixture *f = &c->nodes[n];
        switch (random_next(&random) % 8) {
        case 0:
        case 1: /* a rebalance: those before do not notice, and have batches under way */
            if (!r->under_way || random_next(&random) % 2 == 0) {
                settle(r);
                r->claims = claim(f->store, SOURCE) == 0;
                r->next = r->claims && find(f->store, SOURCE) > 0 ? find(f->store, SOURCE) : 0;
            }
            break;
        case 2:
            draw_fault(c, &random);
            break;
        case 3: /* a node is started again */
            settle(r);
            *r = (struct reader){0};
            close_node(f);
            memory_pool_fault(c->pool, NULL);
            open_node(f);
            break;
        default:
            settle(r);
            if (r->claims && r->next < LOG) {
                hand_in(f, r, 1 + (int64_t)(random_next(&random) % 20));
            }
        }
        if (step % 8 == 7) {
            for (int i = 0; i < READERS; i++) {
                settle(&readers[i]);
            }
            memory_pool_fault(c->pool, NULL);
        }
    }
    for (int i = 0; i < READERS; i++) {
        settle(&readers[i]);
    }
    memory_pool_fault(c->pool, NULL);
    memory_pool_shuffle(c->pool, 0);
    position = check_ledger(c, position, seed);
    struct store_fixture *last = &c->nodes[seed % NODES];
    struct reader *r = &readers[seed % NODES];
    RADOS_UNTIL(claim(last->store, SOURCE) == 0);
    *r = (struct reader){.claims = true, .next = position > 0 ? position : 0};
    while (r->next < LOG) {
        hand_in(last, r, 100);
        settle(r);
        usleep(r->batch.err.code < 0 ? 1000 : 0);
    }
    check_ledger(c, -1, seed);
    assert_int_equal(in_pool(c->pool), LOG);
    assert_int_equal(move(last, NULL, 0), 0); /* for the next course */
}

static void the_ledger_of_a_partition(void **state)
{
    struct cluster_of_nodes *c = *state;
    const char *wanted = getenv("UNSEEN_COURSES_RADOS");
    uint64_t courses = wanted != NULL ? strtoull(wanted, NULL, 10) : 12;
    for (uint64_t seed = 1; seed <= courses; seed++) {
        a_course(c, seed);
    }
}

/* --- the consumer --- */

static struct memory_pool *pool;

static int open_pool(struct world *w, struct err *err)
{
    return rados_store_open(&w->cfg, &(struct rados_store_options){.ops = &memory_pool_ops}, &w->store, err);
}

static int consumer_setup(void **state)
{
    struct err err = {0};
    (void)state;
    world_fixture_init(&world, "kafka", START, folder);
    pool = memory_pool_new("kafka");
    snprintf(world.cfg.rados_pool, sizeof world.cfg.rados_pool, "kafka");
    if (rados_store_init(&world.cfg, &memory_pool_ops, &err) < 0) {
        fail_msg("%s", err.text);
    }
    world.open = open_pool;
    start(&world);
    return 0;
}

static int consumer_teardown(void **state)
{
    (void)state;
    memory_pool_hold(pool, 0);
    memory_pool_fault(pool, NULL);
    finish();
    fake_kafka_reset();
    world_fixture_end(&world, folder);
    world.open = NULL;
    memory_pool_free(pool);
    return 0;
}

static void plays_into_a_pool(void **state)
{
    (void)state;
    begin(40);
    UNTIL(client.stored == 40 && s.plays == 30);
    assert_int_equal(position(), 40);
    assert_int_equal(in_pool(pool), 40);
    check_has(10, 40);
    finish();
    begin(60);
    UNTIL(client.stored == 60);
    assert_int_equal(client.assigned_at, 40);
    check_has(10, 60);
}

/* It comes to know it by the next group, claims again, and goes on from what the other one has done meanwhile. */
static void another_node_takes_it_over(void **state)
{
    (void)state;
    struct store_fixture other = {.cfg = world.cfg};
    begin(40);
    UNTIL(client.stored == 40);
    open_node(&other);
    assert_int_equal(claim(other.store, SOURCE), 0);
    assert_int_equal(find(other.store, SOURCE), 40);
    assert_int_equal(move(&other, "other", 45), 0);
    LOCKED(client.end = 60);
    UNTIL(client.stored == 60 && s.doing == KAFKA_READING);
    assert_int_equal(in_pool(pool), 60);
    check_has(45, 60);
    assert_int_equal(move(&other, "other", 46), ERR_LOCKED);
    close_node(&other);
}

/* While the cluster is away, what was read is bounded, the partitions pause, and the member stays. */
static void the_cluster_is_away(void **state)
{
    (void)state;
    world.cfg.staging_memory = 4 << 20;
    memory_pool_hold(pool, MEMORY_POOL_WRITES);
    begin(1000);
    memory_pool_wait_held(pool, 1);
    memory_pool_late(pool); /* the claim: it is made again */
    UNTIL(memory_pool_held(pool) == 1);
    memory_pool_hold(pool, 0);
    UNTIL(client.stored == 1000);
    memory_pool_hold(pool, MEMORY_POOL_WRITES);
    LOCKED(client.end = 30000);
    UNTIL(s.doing == KAFKA_PAUSED);
    int polls;
    LOCKED(polls = client.polls_paused);
    UNTIL(client.polls_paused > polls + 3);
    struct store_stats now;
    world.store->ops->stats(world.store, &now);
    assert_true(now.staged_bytes <= 4 << 20);
    int64_t before = in_pool(pool);
    memory_pool_wait_held(pool, 1);
    memory_pool_late(pool); /* the group fails, and is handed in again */
    UNTIL(s.doing == KAFKA_PAUSED && s.cause[0] != '\0');
    assert_int_equal(in_pool(pool), before);
    memory_pool_hold(pool, 0);
    UNTIL(client.stored == 30000 && s.doing == KAFKA_READING);
    assert_int_equal(in_pool(pool), 30000);
    check_has(10, 30000);
}

/* A forget stays, also when all is read again into a pool that has lost its positions. */
static void a_forget_stays(void **state)
{
    (void)state;
    begin(20);
    UNTIL(client.stored == 20);
    world_forget(&world, slice_str("u"), NULL, 0, NULL, NULL);
    wait_all(&world);
    assert_false(has(15));
    finish();
    memory_pool_put(pool, "positions", SOURCE, slice_str("----------------00000000000000000000000000000000"));
    memory_pool_put(pool, "positions", "kafka-begin/test/plays/0",
                    slice_str("----------------00000000000000000000000000000000"));
    begin(25);
    UNTIL(client.stored == 25);
    assert_int_equal(client.assigned_at, 10); /* by the note, which is the pool's */
    for (int64_t i = 10; i < 25; i++) {
        assert_false(has(i)); /* all were written before the forget */
    }
}

#define CONSUMER_TEST(name) cmocka_unit_test_setup_teardown(name, consumer_setup, consumer_teardown)

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        RADOS_TEST(who_claimed_last_moves_it),
        RADOS_TEST(an_earlier_claim_of_the_same_node),
        RADOS_TEST(an_unknown_outcome),
        RADOS_TEST(a_play_that_fails),
        RADOS_TEST(a_pool_that_went_back),
        RADOS_TEST(a_lineage),
        RADOS_TEST(a_large_batch),
        RADOS_TEST(the_ledger_of_a_partition),
        CONSUMER_TEST(plays_into_a_pool),
        CONSUMER_TEST(another_node_takes_it_over),
        CONSUMER_TEST(the_cluster_is_away),
        CONSUMER_TEST(a_forget_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
