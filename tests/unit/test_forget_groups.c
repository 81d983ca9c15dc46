/* Forgets that wait one behind the other share a commit, in staging and in history: all promises of one alone hold,
 * whatever fails in between. */
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

#include "base/hash.h"
#include "store/sqlite/state.h"
#include "tests/lib/store_calls.h"

enum { USERS = 150 };

/* Of the users, every third has plays in history, every third in staging, and every third was never heard of. */
struct asked {
    char user[16];
    struct store_forget forget;
    int done;
};

static bool has_history(int i)
{
    return i % 3 == 0;
}

static bool is_known(int i)
{
    return i % 3 != 2;
}

static void record_users(struct store_fixture *f)
{
    char user[16];
    for (int staged = 0; staged < 2; staged++) {
        for (int i = 0; i < USERS; i++) {
            snprintf(user, sizeof user, "u%d", i);
            if (is_known(i) && has_history(i) == !staged) {
                play(f, user, "a");
                deliver(f, user, "b");
            }
        }
        play(f, "other", staged ? "staged" : "flushed");
        if (!staged) {
            assert_int_equal(flush(f), 0);
        }
    }
}

static void ask_one(struct store_fixture *f, struct asked *a)
{
    a->forget = (struct store_forget){.key = key_of(a->user),
                                      .user = slice_str(a->user),
                                      .first_month = INT_MIN,
                                      .done = forget_done,
                                      .owner = &a->done};
    f->store->ops->forget(f->store, &a->forget);
}

static void put_all(struct store_fixture *f, struct asked *asked)
{
    memset(asked, 0, USERS * sizeof *asked);
    for (int i = 0; i < USERS; i++) {
        snprintf(asked[i].user, sizeof asked[i].user, "u%d", i);
        ask_one(f, &asked[i]);
    }
}

/* While the stager is held in a commit of somebody else, so that they all wait together. */
static void ask_all(struct store_fixture *f, struct asked *asked)
{
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    add(&batch, STORE_PLAY, START, "plug", "a");
    int plug = vfs_fault_add(&(struct vfs_rule){VFS_SYNC, "staging.db-wal", 1, false, VFS_HOLD});
    f->store->ops->record(f->store, &batch);
    vfs_fault_wait_held();
    put_all(f, asked);
    vfs_fault_release_rule(plug);
    wait_flag(&done);
    buf_free(&batch.bytes);
}

static void wait_all_asked(struct asked *asked)
{
    for (int i = 0; i < USERS; i++) {
        wait_flag(&asked[i].done);
    }
}

static void state_play(struct store_fixture *f, int64_t at, const char *user, const char *item)
{
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    struct slice id = slice_str(item);
    uint64_t hash = hash_id(SEED, id);
    assert_int_equal(
        store_batch_add(&batch, STORE_PLAY, at, STORE_STATED, key_of(user), slice_str(user), &id, &hash, 1), 0);
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    assert_int_equal(batch.err.code, 0);
    buf_free(&batch.bytes);
}

static void check_forgotten(struct store_fixture *f)
{
    char user[16];
    for (int i = 0; i < USERS; i++) {
        snprintf(user, sizeof user, "u%d", i);
        if (known(f, user) || seen(f, user, "a") || seen(f, user, "b")) {
            fail_msg("%s is still known", user);
        }
        state_play(f, START - 1, user, "replayed");
        assert_false(seen(f, user, "replayed"));
    }
    assert_true(seen(f, "other", "flushed"));
    assert_true(seen(f, "other", "staged"));
}

static void check_new_plays_stay(struct store_fixture *f)
{
    char user[16];
    for (int starts = 0; starts < 2; starts++) {
        for (int i = 0; i < USERS; i++) {
            snprintf(user, sizeof user, "u%d", i);
            if (starts == 0) {
                play(f, user, "new");
            } else if (!seen(f, user, "new")) {
                fail_msg("%s lost what was played after the forget", user);
            }
        }
        if (starts == 0) {
            assert_int_equal(flush(f), 0);
            kill_store(f);
            open_store(f);
        }
    }
}

static void test_they_share_commits(void **state)
{
    struct store_fixture *f = *state;
    static struct asked asked[USERS];
    record_users(f);
    int staging = vfs_fault_add(&(struct vfs_rule){VFS_SYNC, "staging.db-wal", 1, true, VFS_COUNT});
    int history = vfs_fault_add(&(struct vfs_rule){VFS_SYNC, "history.db-wal", 1, true, VFS_COUNT});
    ask_all(f, asked);
    wait_all_asked(asked);
    for (int i = 0; i < USERS; i++) {
        assert_int_equal(asked[i].forget.err.code, 0);
        assert_int_equal(asked[i].forget.answer, is_known(i));
    }
    assert_true(vfs_fault_hits(staging) < USERS / 5);
    assert_true(vfs_fault_hits(history) < USERS / 5);
    assert_int_equal(stats(f).tombstones, USERS);
    check_forgotten(f);
    kill_store(f);
    open_store(f);
    check_forgotten(f);
    check_new_plays_stay(f);
}

/* Later ones see what earlier ones did, also in the middle of a group; a play in between stays. */
static void test_order(void **state)
{
    struct store_fixture *f = *state;
    struct store_forget forgets[4];
    int done[5] = {0}, held = 0;
    struct store_batch plug = {.done = batch_done, .owner = &held}, between = {.done = batch_done, .owner = &done[4]};
    struct slice item = slice_str("a");
    uint64_t hash = hash_id(SEED, item);
    play(f, "u", "a");
    play(f, "v", "a");
    add(&plug, STORE_PLAY, START, "plug", "a");
    rule(VFS_SYNC, "staging.db-wal", 1, false, VFS_HOLD);
    f->store->ops->record(f->store, &plug);
    vfs_fault_wait_held();
    static const char *const users[] = {"u", "v", "u", "v"};
    for (int i = 0; i < 4; i++) { /* u, v's item, u again; a play of v; v */
        if (i == 3) {
            add(&between, STORE_PLAY, START, "v", "later");
            f->store->ops->record(f->store, &between);
        }
        forgets[i] = (struct store_forget){.key = key_of(users[i]),
                                           .user = slice_str(users[i]),
                                           .items = i == 1 ? &item : NULL,
                                           .hashes = &hash,
                                           .n_items = i == 1,
                                           .first_month = INT_MIN,
                                           .done = forget_done,
                                           .owner = &done[i]};
        f->store->ops->forget(f->store, &forgets[i]);
    }
    vfs_fault_release();
    static const int64_t answers[] = {1, 1, 0, 1};
    for (int i = 0; i < 4; i++) {
        wait_flag(&done[i]);
        assert_int_equal(forgets[i].err.code, 0);
        assert_int_equal(forgets[i].answer, answers[i]);
    }
    wait_flag(&done[4]);
    wait_flag(&held);
    assert_false(known(f, "u"));
    assert_false(known(f, "v"));
    buf_free(&plug.bytes);
    buf_free(&between.bytes);
}

/* Copies what the disk has now, as if the machine stopped, and goes on from that. first: the folder as it was. */
static void copy_files(struct store_fixture *f, char copy[64])
{
    static const char *const files[] = {"history.db", "history.db-wal", "staging.db", "staging.db-wal"};
    snprintf(copy, 64, "/tmp/unseen-test-forgets.XXXXXX");
    assert_non_null(mkdtemp(copy));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        copy_file(f->cfg.data, files[i], copy, files[i]);
    }
}

/* The folder that is left behind is removed. */
static void go_on_from(struct store_fixture *f, const char *copy)
{
    char first[CONFIG_TEXT];
    snprintf(first, sizeof first, "%s", f->cfg.data);
    close_store(f);
    remove_folder(first);
    snprintf(f->cfg.data, sizeof f->cfg.data, "%s", copy);
    open_store(f);
}

/* Staging has a group and history has nothing of it: the next start carries out all of it. What waits behind the group
 * was never begun, and is as it was. */
static void test_killed_between_files(void **state)
{
    struct store_fixture *f = *state;
    static struct asked asked[USERS];
    char copy[64], user[16];
    record_users(f);
    rule(VFS_WRITE, "history.db-wal", 1, false, VFS_HOLD);
    ask_all(f, asked);
    vfs_fault_wait_held();
    copy_files(f, copy);
    vfs_fault_release();
    wait_all_asked(asked);
    go_on_from(f, copy);
    int erased = 0;
    for (int i = 0; i < USERS; i++) {
        snprintf(user, sizeof user, "u%d", i);
        bool forgotten = is_known(i) && !known(f, user);
        erased += forgotten;
        assert_int_equal(seen(f, user, "a"), is_known(i) && !forgotten);
    }
    assert_true(erased >= 10);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM forgets"), stats(f).tombstones);
    assert_true(seen(f, "other", "flushed"));
    assert_true(seen(f, "other", "staged"));
    check_new_plays_stay(f);
}

/* A group that history refuses is carried out one by one. When the machine stops in the middle of that, no commit has
 * said yet of those behind that they are done. */
static void test_killed_between_single_ones(void **state)
{
    struct store_fixture *f = *state;
    static struct asked asked[USERS];
    char copy[64], user[16];
    struct asked plug = {.user = "plug"};
    record_users(f);
    play(f, "plug", "a");
    int held = vfs_fault_add(&(struct vfs_rule){VFS_SYNC, "history.db-wal", 1, false, VFS_HOLD});
    ask_one(f, &plug);
    vfs_fault_wait_held(); /* the historian, so that a group waits for it */
    put_all(f, asked);
    while (thread_queue_length(&((struct sqlite_store *)f->store)->historian.queue) < 10) {
        usleep(1000);
    }
    rule(VFS_WRITE, "history.db-wal", 1, false, VFS_EIO);
    rule(VFS_SYNC, "history.db-wal", 3, false, VFS_HOLD);
    vfs_fault_release_rule(held);
    wait_flag(&plug.done);
    vfs_fault_wait_held();
    int answered = 0;
    for (int i = 0; i < USERS; i++) {
        answered += is_raised(&asked[i].done);
    }
    copy_files(f, copy);
    vfs_fault_release();
    wait_all_asked(asked);
    for (int i = 0; i < USERS; i++) {
        assert_int_equal(asked[i].forget.err.code, 0);
    }
    check_forgotten(f);
    go_on_from(f, copy);
    assert_true(answered < 10);
    for (int i = 0; i < 10; i++) { /* all of the first group */
        snprintf(user, sizeof user, "u%d", i);
        assert_false(known(f, user));
        assert_false(seen(f, user, "a"));
    }
    check_new_plays_stay(f);
}

/* A group's commit in staging fails: all of it is told, nothing is forgotten, and asking again forgets. */
static void test_staging_fails(void **state)
{
    struct store_fixture *f = *state;
    static struct asked asked[USERS];
    char user[16];
    record_users(f);
    rule(VFS_SYNC, "staging.db-wal", 2, false, VFS_EIO);
    ask_all(f, asked);
    wait_all_asked(asked);
    int failed = 0;
    for (int i = 0; i < USERS; i++) {
        snprintf(user, sizeof user, "u%d", i);
        bool refused = asked[i].forget.err.code < 0;
        failed += refused;
        assert_int_equal(known(f, user), refused && is_known(i));
        assert_int_equal(seen(f, user, "a"), refused && is_known(i));
        if (refused) {
            state_play(f, START - 1, user, "replayed"); /* no tombstone stands */
            assert_true(seen(f, user, "replayed"));
        }
    }
    assert_true(failed >= 10 && failed <= 64);
    assert_int_equal(stats(f).tombstones, USERS - failed);
    assert_int_equal(ask(f, "staging", "SELECT count(*) FROM forgets"), USERS - failed);
    ask_all(f, asked);
    wait_all_asked(asked);
    check_forgotten(f);
    kill_store(f);
    open_store(f);
    check_forgotten(f);
    check_new_plays_stay(f);
}

/* History takes nothing: each is told, and nothing that is played then is erased by a later start. */
static void test_history_fails(void **state)
{
    struct store_fixture *f = *state;
    static struct asked asked[USERS];
    record_users(f);
    rule(VFS_WRITE, "history.db-wal", 1, true, VFS_FULL);
    ask_all(f, asked);
    wait_all_asked(asked);
    for (int i = 0; i < USERS; i++) {
        assert_int_equal(asked[i].forget.err.code < 0, is_known(i));
    }
    vfs_fault_heal();
    check_new_plays_stay(f);
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(test_they_share_commits),         TEST(test_order),         TEST(test_killed_between_files),
        TEST(test_killed_between_single_ones), TEST(test_staging_fails), TEST(test_history_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
