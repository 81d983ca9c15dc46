/* A start over a folder with everything in it, while the disk fails once, at each of its operations in turn: it either
 * fails with an error, or all answers are as they must be, then, after a flush, and after the next start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/rounds.h"
#include "tests/lib/whole_folder.h"

static int setup(void **state)
{
    *state = whole_folder_new("start");
    return 0;
}

static int teardown(void **state)
{
    whole_folder_free(*state);
    return 0;
}

static const char *answers(struct store_fixture *f)
{
    const char *bad = whole_folder_wrong(f, true);
    if (bad == NULL && flush(f) < 0) {
        bad = "the flush failed";
    }
    return bad != NULL ? bad : whole_folder_wrong(f, true);
}

/* Without a fault: the folder is what the test takes it for. */
static void a_start_on_a_good_disk(void **state)
{
    struct store_fixture *f = *state;
    for (int again = 0; again < 2; again++) {
        whole_folder_restore(f);
        for (int start = 0; start < 3; start++) {
            open_store(f);
            const char *bad = answers(f);
            if (bad != NULL) {
                fail_msg("start %d: %s", start, bad);
            }
            (again == 0 ? close_store : kill_store)(f);
        }
    }
}

/* One start with the n-th operation failing. Whether it came so far. */
static bool start_with_fault(struct store_fixture *f, const struct vfs_rule *fault, int *failed, int *wrong)
{
    struct err err = {0};
    const char *bad = NULL;
    whole_folder_restore(f);
    int number = vfs_fault_add(fault);
    int rc = try_open(f, &err);
    if (rc == 0 && (rc = f->store->ops->reader_open(f->store, &f->reader, &err)) < 0) {
        f->store->ops->close(f->store);
    }
    char pools[POOLS_TEXT] = "";
    if (rc == 0 && (rc = list_pools(f, pools, &err)) < 0) { /* as a server does that starts */
        f->store->ops->reader_close(f->reader);
        f->store->ops->close(f->store);
    }
    if (rc == 0 && strcmp(pools, WHOLE_FOLDER_POOLS) != 0) {
        print_error("pools: %s\n", pools);
        bad = "a fault was taken for pools that are damaged or gone";
    }
    if (rc < 0) {
        f->store = NULL;
        ++*failed;
        bad = err.code == 0 || err.text[0] == '\0' ? "a start failed without an error" : NULL;
    }
    bool met = vfs_fault_hits(number) >= fault->nth;
    vfs_fault_heal();
    for (int start = 0; start < 2 && bad == NULL; start++) {
        if (f->store == NULL) {
            open_store(f);
        }
        bad = answers(f);
        close_store(f);
    }
    if (bad != NULL) {
        print_error("%s %llu of %s%s: the start %s, and then: %s\n",
                    fault->ops == VFS_READ    ? "read"
                    : fault->ops == VFS_WRITE ? "write"
                    : fault->ops == VFS_SYNC  ? "sync"
                    : fault->ops == VFS_OPEN  ? "open"
                                              : "truncation or removal",
                    (unsigned long long)fault->nth, fault->file, fault->sticky ? " and all later ones" : "",
                    rc < 0 ? err.text : "succeeded", bad);
        ++*wrong;
        if (f->store != NULL) {
            close_store(f);
        }
    }
    return met;
}

/* Where all later operations fail, too, one start is much like the next: each third. */
static void starts_with_faults(struct store_fixture *f, unsigned ops, bool sticky)
{
    static const char *const files[] = {"history.db", "staging.db"};
    int wrong = 0, failed = 0, starts = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct vfs_rule fault = {.ops = ops, .file = files[i], .nth = 0, .sticky = sticky, .action = VFS_EIO};
        do {
            fault.nth += fault.nth == 0 ? 1 : sticky ? 3 * test_stride() : test_stride();
            starts++;
        } while (start_with_fault(f, &fault, &failed, &wrong));
    }
    print_message("%d starts, %d of them failed\n", starts, failed);
    assert_int_equal(wrong, 0);
    assert_true(failed > 0);
}

static void a_read_fails(void **state)
{
    starts_with_faults(*state, VFS_READ, false);
}

static void reads_fail_from_there_on(void **state)
{
    starts_with_faults(*state, VFS_READ, true);
}

static void a_write_fails(void **state)
{
    starts_with_faults(*state, VFS_WRITE, false);
}

static void a_sync_fails(void **state)
{
    starts_with_faults(*state, VFS_SYNC, false);
}

static void an_open_fails(void **state)
{
    starts_with_faults(*state, VFS_OPEN, false);
}

/* More slots are made, or rows found outside the ring. */
static void a_change_fails_while_the_ring_changes(void **state)
{
    struct store_fixture *f = *state;
    static const int slots[] = {8, 3};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        f->cfg.slots = slots[i];
        starts_with_faults(f, VFS_WRITE | VFS_SYNC, false);
    }
}

/* Plays that are staged alone belong to the folder's seed: no read that fails lets another take its place. */
static void a_seed_is_not_replaced(void **state)
{
    struct store_fixture *f = *state;
    bool met;
    struct vfs_rule fault = {.ops = VFS_READ, .file = "staging.db", .nth = 0, .action = VFS_EIO};
    play(f, "u", "a");
    kill_store(f);
    f->cfg.hash_seed = SEED + 1;
    do {
        struct err err = {0};
        fault.nth++;
        int number = vfs_fault_add(&fault);
        assert_true(try_open(f, &err) < 0);
        met = vfs_fault_hits(number) >= fault.nth;
        vfs_fault_heal();
        f->store = NULL;
    } while (met);
    assert_true(fault.nth > 5);
    f->cfg.hash_seed = SEED;
    open_store(f);
    assert_true(seen(f, "u", "a"));
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_start_on_a_good_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(a_read_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(reads_fail_from_there_on, setup, teardown),
        cmocka_unit_test_setup_teardown(a_write_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(a_sync_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(an_open_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(a_change_fails_while_the_ring_changes, setup, teardown),
        TEST(a_seed_is_not_replaced),
    };
    return cmocka_run_group_tests_name("start", tests, NULL, NULL);
}
