/* A client that the cluster has blocklisted: what was under way says so, another one connects, and nothing is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "store/rados/layout.h"
#include "store/rados/rados_store.h"
#include "tests/lib/rados_fixture.h"

enum { IN_FLIGHT = 40 };

struct flying {
    struct store_batch batch;
    int done;
};

static void hand_in(struct store_fixture *f, struct flying *p, const char *user)
{
    *p = (struct flying){.batch = {.done = batch_done, .owner = &p->done}};
    add(&p->batch, STORE_PLAY, START, user, "b");
    f->store->ops->record(f->store, &p->batch);
}

/* All of it ends at once, by name; what was acknowledged is there, and the same node goes on. */
static void another_one_connects(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    static struct flying plays[IN_FLIGHT];
    char text[STORE_ERROR_TEXT], user[16];
    struct err err = {0};
    play(f, "u", "a");
    for (int round = 0; round < 3; round++) {
        memory_pool_hold(c->pool, MEMORY_POOL_WRITES);
        for (int i = 0; i < IN_FLIGHT; i++) {
            snprintf(user, sizeof user, "r%d.%d", round, i);
            hand_in(f, &plays[i], user);
        }
        memory_pool_wait_held(c->pool, IN_FLIGHT);
        memory_pool_fence(c->pool);
        for (int i = 0; i < IN_FLIGHT; i++) {
            wait_flag(&plays[i].done);
            assert_int_equal(plays[i].batch.err.code, ERR_IO);
            assert_non_null(strstr(plays[i].batch.err.text, "blocklisted"));
            assert_non_null(strstr(plays[i].batch.err.text, "send it again"));
            buf_free(&plays[i].batch.bytes);
        }
        memory_pool_hold(c->pool, 0);
        RADOS_IN_TIME(record_code(f, "u", "b", text, sizeof text) == 0);
        RADOS_IN_TIME(f->store->ops->refusal(f->store, &err) ==
                      0); /* the hook runs once operations go to the new one */
        RADOS_IN_TIME(stats(f).reconnects == (uint64_t)round + 1);
        assert_true(seen(f, "u", "a") && seen(f, "u", "b"));
    }
    assert_int_equal(stats(f).staged_bytes, 0);
    RADOS_IN_TIME(stats(f).queue_messages == 0);
}

/* Questions too, and a forget; the walk and its list of objects go on with the new client. */
static void everything_goes_on(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    struct store_view view;
    struct err err = {0};
    play(f, "u", "a");
    memory_pool_fence(c->pool);
    assert_int_equal(load(f, f->reader, "u", &view, &err), ERR_IO);
    assert_non_null(strstr(err.text, "blocklisted"));
    RADOS_IN_TIME(load(f, f->reader, "u", &view, &err) == 0);
    assert_true(in_view(&view, "a"));
    RADOS_IN_TIME(stats(f).reconnects == 1);
    assert_int_equal(forget(f, "u", NULL), 1);
    assert_int_equal(rados_store_walk(f->store, &err), 0);
    assert_false(known(f, "u"));
}

/* A pool of that name that has another seed is another pool: nothing is asked of it, and nothing written. */
static void another_pool_is_none(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    char seed[LAYOUT_HEX + 1], text[STORE_ERROR_TEXT];
    play(f, "u", "a");
    assert_int_equal(memory_pool_value(c->pool, LAYOUT_META, "seed", seed, sizeof seed), LAYOUT_HEX);
    memory_pool_put(c->pool, LAYOUT_META, "seed", slice_str("0123456789abcdef"));
    memory_pool_fence(c->pool);
    uint64_t before = memory_pool_operations(c->pool, MEMORY_POOL_READS);
    assert_int_equal(record_code(f, "u", "b", text, sizeof text), ERR_IO);
    RADOS_IN_TIME(memory_pool_operations(c->pool, MEMORY_POOL_READS) > before + 1); /* tried twice */
    assert_int_equal(record_code(f, "u", "b", text, sizeof text), ERR_IO);
    assert_int_equal(stats(f).reconnects, 0);
    memory_pool_put(c->pool, LAYOUT_META, "seed", slice_of(seed, LAYOUT_HEX));
    RADOS_IN_TIME(record_code(f, "u", "b", text, sizeof text) == 0);
    assert_true(seen(f, "u", "a"));
}

/* A new client is judged by meta: until that can be read the old one stays, and it is tried again. */
static void a_judgement_that_fails(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    char text[STORE_ERROR_TEXT];
    play(f, "u", "a");
    log_from_here();
    fault(c, MEMORY_POOL_READS, LAYOUT_META, CLUSTER_LATE);
    memory_pool_fence(c->pool);
    assert_int_equal(record_code(f, "u", "b", text, sizeof text), ERR_IO);
    RADOS_IN_TIME(record_code(f, "u", "b", text, sizeof text) == 0);
    assert_true(logged("can't connect to RADOS again"));
    RADOS_IN_TIME(stats(f).reconnects == 1);
    assert_true(stats(f).rados_errors > 0);
    assert_true(seen(f, "u", "a") && seen(f, "u", "b"));
}

/* A node that is closed while its client is fenced ends. */
static void a_fenced_node_closes(void **state)
{
    struct cluster_of_nodes *c = *state;
    struct store_fixture *f = &c->nodes[0];
    static struct flying p;
    memory_pool_hold(c->pool, MEMORY_POOL_WRITES | MEMORY_POOL_READS);
    hand_in(f, &p, "u");
    memory_pool_wait_held(c->pool, 1);
    memory_pool_fence(c->pool);
    wait_flag(&p.done);
    buf_free(&p.batch.bytes);
    memory_pool_hold(c->pool, 0);
    close_node(f);
    open_node(f);
    play(f, "u", "a");
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        RADOS_TEST(another_one_connects),   RADOS_TEST(everything_goes_on),   RADOS_TEST(another_pool_is_none),
        RADOS_TEST(a_judgement_that_fails), RADOS_TEST(a_fenced_node_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
