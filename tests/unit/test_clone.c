/* What a clone stands on: marks, the look at a folder, its rate, and how one folder takes another's place. The store is
 * a fake one that knows no more than a node and positions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/replica/clone_copy.h"
#include "cli/replica/clone_folder.h"
#include "replica/clone_mark.h"
#include "store/admin.h"
#include "store/positions.h"
#include "store/stats.h"

enum { LEADER = 0xabc };

static struct fake {
    struct store store;
    struct store_node node;
    struct store_stats stats;
    int n_months;
    int64_t mark; /* 0: none */
} fake;

static void node_get(struct store *s, struct store_node *out)
{
    (void)s;
    *out = fake.node;
}

static int find(struct store *s, struct slice source, int64_t *next)
{
    (void)s;
    static const char name[] = "clone:0000000000000abc";
    bool ours = source.len == sizeof name - 1 && memcmp(source.data, name, source.len) == 0;
    *next = fake.mark;
    return ours && fake.mark != 0;
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

static int setup(void **state)
{
    (void)state;
    static const struct store_ops ops = {.stats = stats, .reader_open = reader_open, .reader_close = reader_close};
    static const struct store_admin_ops admin = {.months = months};
    static const struct store_node_ops node = {.get = node_get};
    static const struct store_positions_ops positions = {.find = find};
    fake = (struct fake){.store = {.ops = &ops, .admin = &admin, .node = &node, .positions = &positions},
                         .node = {.node = 1, .run = 2, .term = 1}};
    return 0;
}

static void test_mark(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(clone_mark_check(&fake.store, "/data", &err), 0);
    fake.node = (struct store_node){.role = NODE_REPLICA, .leader = LEADER, .address = "there:1"};
    assert_int_equal(clone_mark_check(&fake.store, "/data", &err), 0);
    fake.mark = INT64_MIN;
    assert_int_equal(clone_mark_check(&fake.store, "/data", &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "unseen clone there:1 --data /data"));
    fake.mark = CLONE_MARK_ENDED;
    assert_int_equal(clone_mark_check(&fake.store, "/data", &err), 0);
}

static int look(enum clone_found *found)
{
    struct store_node node;
    struct err err;
    return clone_folder_look(&fake.store, "/data", found, &node, &err);
}

static void test_look(void **state)
{
    (void)state;
    enum clone_found found;
    assert_int_equal(look(&found), 0);
    assert_int_equal(found, CLONE_EMPTY);
    fake.n_months = 1;
    assert_int_equal(look(&found), ERR_INVALID);
    fake.n_months = 0;
    fake.stats.staged_rows = 1;
    assert_int_equal(look(&found), ERR_INVALID);
    fake.stats.staged_rows = 0;
    fake.node.role = NODE_FENCED;
    assert_int_equal(look(&found), ERR_INVALID);

    fake.node.role = NODE_REPLICA;
    fake.node.leader = LEADER;
    assert_int_equal(look(&found), 0);
    assert_int_equal(found, CLONE_EMPTY);
    fake.mark = INT64_MIN;
    assert_int_equal(look(&found), 0);
    assert_int_equal(found, CLONE_BEGUN);
    fake.mark = CLONE_MARK_ENDED;
    assert_int_equal(look(&found), 0);
    assert_int_equal(found, CLONE_REPLICA);
    fake.mark = 0;
    fake.n_months = 1;
    assert_int_equal(look(&found), 0);
    assert_int_equal(found, CLONE_REPLICA);
}

static void test_rate(void **state)
{
    (void)state;
    assert_int_equal(clone_rate_read("1048576"), 1048576);
    assert_int_equal(clone_rate_read("20M"), 20 << 20);
    assert_int_equal(clone_rate_read("512KiB"), 512 << 10);
    static const char *const bad[] = {"", "0", "-1", "x", "5X", "5Mi", "5 M", "99999999999999999999", "9999999999G"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(clone_rate_read(bad[i]), 0);
    }
    assert_int_equal(clone_rate_wait_us(1000, 0, 0), 0);
    assert_int_equal(clone_rate_wait_us(1000, 1000, 250000), 750000);
    assert_int_equal(clone_rate_wait_us(1000, 1000, 1250000), 0);
}

static void test_part(void **state)
{
    (void)state;
    assert_int_equal(clone_key_part(INT64_MIN), 0);
    assert_int_equal(clone_key_part(0), 500000);
    assert_true(clone_key_part(INT64_MAX) >= 999999);
}

static void put(const char *folder, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void assert_holds(const char *folder, const char *name, const char *text)
{
    char path[128], found[64] = "";
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(found, sizeof found, f));
    fclose(f);
    assert_string_equal(found, text);
}

static void test_swap(void **state)
{
    (void)state;
    char root[] = "/tmp/unseen-clone-XXXXXX", old[64], made[64];
    struct err err = {0};
    assert_non_null(mkdtemp(root));
    snprintf(old, sizeof old, "%s/data", root);
    snprintf(made, sizeof made, "%s/data.clone", root);
    assert_int_equal(mkdir(old, 0700), 0);
    assert_int_equal(mkdir(made, 0700), 0);
    put(old, "history.db", "old");
    put(old, "staging.db-wal", "old");
    put(old, "accounts", "kept");
    put(old, "lock", "old");
    put(made, "history.db", "new");
    put(made, "lock", "new");

    uint64_t has, room;
    clone_folder_room(old, &has, &room);
    assert_int_equal(has, 6);
    assert_int_equal(clone_folder_swap(old, made, &err), 0);
    assert_holds(old, "history.db", "new");
    assert_holds(old, "accounts", "kept");
    assert_int_equal(access(made, F_OK), -1);

    assert_int_equal(clone_folder_empty(old, &err), 0);
    clone_folder_room(old, &has, &room);
    assert_int_equal(has, 0);
    assert_holds(old, "accounts", "kept");
    assert_int_equal(clone_folder_swap(old, made, &err), ERR_SYSTEM);
    assert_holds(old, "accounts", "kept");
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_mark, setup),
        cmocka_unit_test_setup(test_look, setup),
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_part),
        cmocka_unit_test(test_swap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
