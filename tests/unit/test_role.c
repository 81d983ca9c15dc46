/* Who a node is: what the folder says against the configuration, terms, and what becomes durable when. The store is a
 * fake one that knows no more than a node. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "dedup/role.h"
#include "store/admin.h"
#include "store/stats.h"

static struct fake {
    struct store store;
    struct store_node node;
    struct store_stats stats;
    int n_months;
    int fails;         /* of a set(): its error */
    bool wrote_at_set; /* whether writes were taken while it was not durable yet */
    struct role *role;
    int heard;
    enum node_role heard_role;
} fake;

static void node_get(struct store *s, struct store_node *out)
{
    (void)s;
    *out = fake.node;
}

static void node_set(struct store *s, struct store_node_change *change)
{
    (void)s;
    struct err err;
    fake.wrote_at_set = fake.role != NULL && role_may_write(fake.role, &err) == 0;
    if (fake.fails != 0) {
        err_set(&change->call.err, fake.fails, "the disk failed");
    } else {
        fake.node = change->to;
    }
    change->call.done(&change->call);
}

static void stats(struct store *s, struct store_stats *out)
{
    (void)s;
    *out = fake.stats;
}

static int reader_open(struct store *s, struct store_reader **reader, struct err *err)
{
    (void)err;
    *reader = (struct store_reader *)s;
    return 0;
}

static void reader_close(struct store_reader *reader)
{
    (void)reader;
}

static int months(struct store_reader *reader, struct store_month_info *out, int max, struct err *err)
{
    (void)reader;
    (void)out;
    (void)err;
    return fake.n_months < max ? fake.n_months : max;
}

static const struct store_ops ops = {.stats = stats, .reader_open = reader_open, .reader_close = reader_close};
static const struct store_admin_ops admin_ops = {.months = months};
static const struct store_node_ops node_ops = {.get = node_get, .set = node_set};

static struct config cfg;

static int setup(void **state)
{
    (void)state;
    fake = (struct fake){
        .store = {.engine = "fake", .ops = &ops, .admin = &admin_ops, .node = &node_ops},
        .node = {.node = 50, .run = 1, .role = NODE_PRIMARY, .term = 3},
    };
    memset(&cfg, 0, sizeof cfg);
    strcpy(cfg.data, "/d");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    role_free(fake.role);
    fake.role = NULL;
    return 0;
}

static int start(const char *replica_of, struct err *err)
{
    *err = (struct err){0};
    role_free(fake.role);
    strcpy(cfg.replica_of, replica_of);
    return role_new(&cfg, &fake.store, &fake.role, err);
}

static enum node_role now(void)
{
    struct store_node node;
    role_look(fake.role, &node);
    assert_int_equal(node.role == NODE_PRIMARY, role_is_primary(fake.role));
    return node.role;
}

static void assert_says(const struct err *err, int code, const char *part)
{
    assert_int_equal(err->code, code);
    if (strstr(err->text, part) == NULL) {
        fail_msg("\"%s\" doesn't say \"%s\"", err->text, part);
    }
}

static void assert_refused(const char *part)
{
    struct err err = {0};
    assert_int_equal(role_may_write(fake.role, &err), ERR_REPLICA);
    assert_says(&err, ERR_REPLICA, part);
}

static void folder_against_configuration(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(start("", &err), 0);
    assert_int_equal(now(), NODE_PRIMARY);
    assert_int_equal(role_may_write(fake.role, &err), 0);

    assert_int_equal(start("h:1", &err), ERR_INVALID);
    assert_says(&err, ERR_INVALID, "run unseen clone h:1 --data /d first");
    for (int i = 0; i < 3; i++) { /* each of these alone makes it a folder that is not empty */
        setup(NULL);
        fake.n_months = i == 0;
        fake.stats.staged_rows = i == 1;
        fake.stats.tombstones = i == 2;
        assert_int_equal(start("h:1", &err), ERR_INVALID);
        assert_says(&err, ERR_INVALID, "run unseen rejoin, or unseen clone into an empty folder");
    }
    fake.node.promoted = true;
    assert_int_equal(start("h:1", &err), 0);
    assert_int_equal(now(), NODE_PRIMARY);

    fake.node = (struct store_node){.node = 50, .run = 1, .role = NODE_REPLICA, .term = 3, .leader = 7};
    assert_int_equal(start("", &err), ERR_INVALID);
    assert_says(&err, ERR_INVALID, "unseen promote");
    assert_int_equal(start("tls://h:1", &err), 0);
    assert_int_equal(now(), NODE_REPLICA);
    assert_refused("You can't write against a read only replica: h:1 takes writes");
    strcpy(fake.node.address, "told:2"); /* what the primary says of itself comes first */
    assert_int_equal(start("h:1", &err), 0);
    assert_refused("You can't write against a read only replica: told:2 takes writes");

    fake.node.role = NODE_FENCED;
    assert_int_equal(start("", &err), 0);
    assert_refused("unseen rejoin");
}

static void no_node_no_roles(void **state)
{
    (void)state;
    struct err err = {0};
    fake.store.node = NULL;
    assert_int_equal(start("", &err), 0);
    assert_null(fake.role);
    assert_true(role_is_primary(NULL));
    assert_int_equal(role_may_write(NULL, &err), 0);
    assert_int_equal(start("h:1", &err), ERR_INVALID);
    assert_says(&err, ERR_INVALID, "the store \"fake\" can be no replica");
}

static void higher_term_fences(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(start("", &err), 0);
    assert_int_equal(role_meet(fake.role, 2, 99, "b:1", &err), 0);
    assert_int_equal(role_meet(fake.role, 3, 49, "b:1", &err), 0); /* the same term, a lower node */
    assert_int_equal(now(), NODE_PRIMARY);
    assert_int_equal(role_meet(fake.role, 4, 1, "b:1", &err), 1);
    assert_false(fake.wrote_at_set); /* at once, not only once it is durable */
    assert_int_equal(now(), NODE_FENCED);
    assert_int_equal(fake.node.role, NODE_FENCED);
    assert_int_equal(fake.node.term, 4);
    assert_int_equal(fake.node.leader, 1);
    assert_refused("b:1 has taken over in term 4");
    assert_int_equal(role_meet(fake.role, 4, 1, "c:1", &err), 0); /* it has moved */
    assert_string_equal(fake.node.address, "c:1");
    assert_int_equal(role_meet(fake.role, 4, 2, "d:1", &err), 1); /* two of one term: the higher node */
    assert_int_equal(fake.node.leader, 2);
}

static void same_term_higher_node_wins(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(start("", &err), 0);
    assert_int_equal(role_meet(fake.role, 3, 51, "b:1", &err), 1);
    assert_int_equal(now(), NODE_FENCED);
}

/* Another takes writes by now, whatever the disk says. */
static void fenced_although_not_durable(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(start("", &err), 0);
    fake.fails = ERR_IO;
    assert_int_equal(role_meet(fake.role, 9, 1, "b:1", &err), ERR_IO);
    assert_refused("b:1 has taken over in term 9");
    assert_int_equal(fake.node.role, NODE_PRIMARY);
}

static void heard(void *arg, enum node_role role)
{
    (void)arg;
    fake.heard++;
    fake.heard_role = role;
}

static void promotes_and_follows(void **state)
{
    (void)state;
    struct err err;
    fake.node = (struct store_node){.node = 50, .run = 1, .role = NODE_REPLICA, .term = 3, .leader = 7, .address = "a"};
    assert_int_equal(start("h:1", &err), 0);
    assert_int_equal(role_listen(fake.role, heard, NULL), 0);
    fake.fails = ERR_FULL;
    assert_int_equal(role_promote(fake.role, 0, &err), ERR_FULL);
    assert_refused("a takes writes");
    assert_int_equal(fake.heard, 0);
    fake.fails = 0;
    assert_int_equal(role_promote(fake.role, 7, &err), 0);
    assert_false(fake.wrote_at_set); /* not before it is durable */
    assert_int_equal(role_may_write(fake.role, &err), 0);
    assert_int_equal(fake.node.term, 8);
    assert_true(fake.node.promoted);
    assert_int_equal(fake.heard, 1);
    assert_int_equal(fake.heard_role, NODE_PRIMARY);
    assert_int_equal(role_follow(fake.role, 7, 9, "x:1", &err), ERR_INVALID);
    assert_int_equal(role_follow(fake.role, 8, 9, "x:1", &err), 0);
    assert_int_equal(fake.heard_role, NODE_REPLICA);
    assert_refused("x:1 takes writes");
    assert_int_equal(role_meet(fake.role, 10, 11, "y:1", &err), 1);
    assert_int_equal(now(), NODE_REPLICA); /* it goes on as a replica, of the new one */
    assert_refused("y:1 takes writes");
}

static void held(void **state)
{
    (void)state;
    struct err err;
    assert_int_equal(start("", &err), 0);
    role_hold(fake.role, "the lease has ended");
    assert_refused("the lease has ended");
    assert_true(role_is_primary(fake.role));
    role_hold(fake.role, NULL);
    assert_int_equal(role_may_write(fake.role, &err), 0);
    role_hold_at(fake.role, clock_mono_ms() + 60 * 60 * 1000);
    assert_int_equal(role_may_write(fake.role, &err), 0);
    role_hold_at(fake.role, clock_mono_ms());
    assert_refused("this node's lock has ended");
    role_hold_at(fake.role, 0);
    assert_int_equal(role_may_write(fake.role, &err), 0);
}

static void a_folder_that_becomes_another_node(void **state)
{
    (void)state;
    struct err err;
    struct store_node node;
    assert_int_equal(start("", &err), 0);
    fake.node.node = 51; /* as by renew(): nobody tells the role */
    fake.node.run = 2;
    role_look(fake.role, &node);
    assert_true(node.node == 51 && node.run == 2 && node.term == 3);
    assert_int_equal(role_meet(fake.role, 3, 50, "b:1", &err), 0); /* the lower one now */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(folder_against_configuration, setup, teardown),
        cmocka_unit_test_setup_teardown(no_node_no_roles, setup, teardown),
        cmocka_unit_test_setup_teardown(higher_term_fences, setup, teardown),
        cmocka_unit_test_setup_teardown(same_term_higher_node_wins, setup, teardown),
        cmocka_unit_test_setup_teardown(fenced_although_not_durable, setup, teardown),
        cmocka_unit_test_setup_teardown(promotes_and_follows, setup, teardown),
        cmocka_unit_test_setup_teardown(held, setup, teardown),
        cmocka_unit_test_setup_teardown(a_folder_that_becomes_another_node, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
