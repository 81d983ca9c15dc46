/* The folder as a node, and the feed for other machines: what was enlisted is kept over restarts, and a copied folder
 * doesn't know the other one's runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "store/bulk.h"
#include "store/node.h"
#include "tests/lib/store_calls.h"

static const char replica[] = FEED_REMOTE "00000000000000aa";
static struct arena arena;

static int setup(void **state)
{
    struct store_fixture *f = store_fixture_new("node");
    open_store(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    store_fixture_free(*state);
    arena_free(&arena);
    return 0;
}

static struct store_node node_of(struct store_fixture *f)
{
    struct store_node n;
    f->store->node->get(f->store, &n);
    return n;
}

static uint64_t enlist(struct store_fixture *f)
{
    int done = 0;
    struct feed_enlist e = {.call = {.done = call_done, .owner = &done}, .consumer = replica};
    f->store->feed->enlist(f->store, &e);
    wait_flag(&done);
    assert_int_equal(e.call.err.code, 0);
    return e.cursor;
}

static int read_some(struct store_fixture *f, uint64_t after, struct feed_event out[10])
{
    struct err err = {0};
    arena_reset(&arena);
    int n = f->store->feed->read(f->reader, replica, after, out, 10, &arena, &err);
    assert_true(n >= 0);
    return n;
}

static void a_restart_begins_a_run(void **state)
{
    struct store_fixture *f = *state;
    struct store_node first = node_of(f);
    assert_true(first.node != 0 && first.run != 0);
    assert_int_equal(first.term, 1);
    play(f, "ann", "one");
    uint64_t last = f->store->feed->last(f->store);
    close_store(f);
    open_store(f);
    struct store_node second = node_of(f);
    bool rolled_back;
    assert_true(second.node == first.node && second.run != first.run);
    assert_int_equal(f->store->node->knows(f->store, first.node, first.run, last, &rolled_back), 1);
    assert_int_equal(f->store->node->knows(f->store, first.node, first.run, last + 1, &rolled_back), 0);
    assert_true(rolled_back);
    assert_int_equal(f->store->node->knows(f->store, first.node + 1, first.run, last, &rolled_back), 0);
    assert_false(rolled_back);
}

static void a_term_never_falls(void **state)
{
    struct store_fixture *f = *state;
    int done = 0;
    struct store_node_change c = {.call = {.done = call_done, .owner = &done}, .to = {.term = 7, .leader = 9}};
    c.to.role = NODE_REPLICA;
    strcpy(c.to.address, "there:1");
    f->store->node->set(f->store, &c);
    wait_flag(&done);
    assert_int_equal(c.call.err.code, 0);
    close_store(f);
    open_store(f);
    assert_int_equal(node_of(f).term, 7);
    assert_int_equal(node_of(f).role, NODE_REPLICA);
    assert_string_equal(node_of(f).address, "there:1");
    done = 0;
    c.to.term = 6;
    f->store->node->set(f->store, &c);
    wait_flag(&done);
    assert_int_equal(c.call.err.code, ERR_INVALID);
}

static void an_enlisted_one_misses_nothing(void **state)
{
    struct store_fixture *f = *state;
    struct feed_event e[10];
    play(f, "ann", "before");
    uint64_t cursor = enlist(f);
    play(f, "ann", "one");
    close_store(f);
    open_store(f);
    play(f, "ann", "two"); /* nobody has called listen() */
    assert_int_equal(enlist(f), cursor);
    assert_int_equal(read_some(f, cursor, e), 2);
    uint64_t first = e[0].seq, bytes = feed_event_bytes(e[0].user, e[0].item, e[0].group);
    f->store->feed->done(f->store, replica, first, 1, bytes);
    assert_int_equal(read_some(f, first, e), 1);
    assert_int_equal(read_some(f, cursor, e), 2); /* it may go back */
    struct feed_state s;
    feed_state_of(f->store, replica, &s);
    assert_int_equal(s.events, 1);
    assert_int_equal(s.place, FEED_BEHIND);
}

static void a_bulk_load_tells_of_its_users(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    struct feed_event e[10];
    struct slice user = slice_str("bob");
    uint64_t cursor = enlist(f), seed = f->store->ops->seed(f->store);
    assert_int_equal(f->store->bulk->begin(f->store, false, &err), 0);
    assert_int_equal(f->store->bulk->add(f->store, clock_wall_ms(), hash_user_key(seed, user), user,
                                         hash_id(seed, slice_str("item")), &err),
                     0);
    assert_int_equal(f->store->bulk->end(f->store, &err), 0);
    close_store(f);
    open_store(f);
    assert_int_equal(read_some(f, cursor, e), 1);
    assert_int_equal(e[0].kind, FEED_USER);
    assert_true(slice_eq(e[0].user, user));
}

/* As a rejoin brings it: what was forgotten later stays forgotten. */
static void an_older_forget_ends_no_newer_one(void **state)
{
    struct store_fixture *f = *state;
    struct slice user = slice_str("ann");
    int done = 0;
    play(f, "ann", "one");
    play(f, "ann", "two");
    assert_int_equal(forget(f, "ann", "one"), 1);
    struct store_forget older = {.key = hash_user_key(f->store->ops->seed(f->store), user),
                                 .user = user,
                                 .first_month = INT32_MIN,
                                 .stated_ms = clock_wall_ms() - 1000,
                                 .done = forget_done,
                                 .owner = &done};
    f->store->ops->forget(f->store, &older);
    wait_flag(&done);
    assert_int_equal(older.err.code, 0);
    assert_true(older.seq > 0);
    close_store(f);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM forgets WHERE item_hash <> 0"), 1);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM forgets WHERE item_hash = 0"), 1);
    open_store(f);
    assert_false(known(f, "ann"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_restart_begins_a_run, setup, teardown),
        cmocka_unit_test_setup_teardown(a_term_never_falls, setup, teardown),
        cmocka_unit_test_setup_teardown(a_bulk_load_tells_of_its_users, setup, teardown),
        cmocka_unit_test_setup_teardown(an_enlisted_one_misses_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(an_older_forget_ends_no_newer_one, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
