/* A hot backup: what happens between the copy of staging and that of history, and in the middle of either, must be
 * right in the folder that is restored from it; and whatever fails leaves nothing behind and disturbs nobody. The disk
 * holds the backup at the write that a test names, while plays, flushes and forgets go on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/admin.h"
#include "store/ring.h"
#include "store/sqlite/db/db.h"
#include "tests/lib/store_fixture.h"
#include "tests/lib/world_fixture.h"

enum { ID_SIZE = 32, MANY = 80000, DAY_MS = 24 * 3600 * 1000 };
static const int64_t AUGUST_20 = INT64_C(1787227200000);   /* 2026-08-20T12:00Z */
static const int64_t SEPTEMBER_2 = INT64_C(1788314400000); /* 2026-09-02T02:00Z */

struct fixture {
    struct world world;
    char folder[64];
    char copy[96]; /* does not exist before a backup */
    /* the backup */
    struct store_backup backup;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool done;
};

static int setup(void **state)
{
    static struct fixture f;
    log_set_level(LOG_LEVEL_ERROR);
    f = (struct fixture){0};
    pthread_mutex_init(&f.mutex, NULL);
    pthread_cond_init(&f.wake, NULL);
    world_fixture_init(&f.world, "backup", AUGUST_20, f.folder);
    snprintf(f.copy, sizeof f.copy, "%s-copy", f.folder);
    start(&f.world);
    *state = &f;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st, (void)kind, (void)where;
    return remove(path);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    world_fixture_end(&f->world, f->folder);
    nftw(f->copy, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return 0;
}

/* --- plays --- */

static void record(struct world *w, enum store_kind kind, const char *user, const char *item)
{
    struct slice items[] = {slice_str(item)};
    struct world_event event = {
        .kind = kind, .at_ms = clock_wall_ms(), .user = slice_str(user), .items = items, .n = 1};
    world_record(w, &event, 1, NULL, NULL);
}

static void play(struct world *w, const char *user, const char *item)
{
    record(w, STORE_PLAY, user, item);
    wait_all(w);
}

/* As a topic that is read again brings it. */
static void replay(struct world *w, const char *user, const char *item)
{
    struct slice items[] = {slice_str(item)};
    struct world_event event = {.kind = STORE_PLAY,
                                .at_ms = clock_wall_ms() - 1,
                                .user = slice_str(user),
                                .items = items,
                                .n = 1,
                                .stated = true};
    world_record(w, &event, 1, NULL, NULL);
    wait_all(w);
}

static void forget(struct world *w, const char *user, const char *item)
{
    struct slice items[] = {slice_str(item != NULL ? item : "")};
    world_forget(w, slice_str(user), items, item != NULL, NULL, NULL);
}

/* Some 6 MB of history: more than the historian copies before a portion is synced. */
static void play_many(struct world *w)
{
    enum { EVENTS = 1000 };
    static char ids[EVENTS][ID_SIZE];
    static struct slice items[EVENTS];
    static struct world_event events[EVENTS];
    for (uint32_t i = 0; i < MANY; i += EVENTS) {
        for (uint32_t j = 0; j < EVENTS; j++) {
            snprintf(ids[j], ID_SIZE, "many-%" PRIu32, i + j);
            items[j] = slice_str(ids[j]);
            events[j] = (struct world_event){
                .kind = STORE_PLAY, .at_ms = clock_wall_ms(), .user = items[j], .items = &items[j], .n = 1};
        }
        world_record(w, events, EVENTS, NULL, NULL);
    }
    wait_all(w);
}

static bool is_known(struct world *w, const char *user)
{
    struct history history;
    struct err err = {0};
    int known = asker_history(w->asker, slice_str(user), &history, &err);
    assert_true(known >= 0);
    return known > 0;
}

/* --- backups --- */

static void on_done(struct store_backup *backup)
{
    struct fixture *f = backup->owner;
    pthread_mutex_lock(&f->mutex);
    f->done = true;
    pthread_cond_signal(&f->wake);
    pthread_mutex_unlock(&f->mutex);
}

static void begin(struct fixture *f)
{
    f->done = false;
    f->backup = (struct store_backup){.folder = f->copy, .done = on_done, .owner = f};
    f->world.store->admin->backup(f->world.store, &f->backup);
}

static int wait_done(struct fixture *f)
{
    pthread_mutex_lock(&f->mutex);
    while (!f->done) {
        pthread_cond_wait(&f->wake, &f->mutex);
    }
    pthread_mutex_unlock(&f->mutex);
    return f->backup.err.code;
}

static void need_done(struct fixture *f)
{
    if (wait_done(f) < 0) {
        fail_msg("backup: %s", f->backup.err.text);
    }
}

static void need_error(struct fixture *f, int code, const char *words)
{
    assert_int_equal(wait_done(f), code);
    if (strstr(f->backup.err.text, words) == NULL) {
        fail_msg("'%s' does not say '%s'", f->backup.err.text, words);
    }
}

static void need_nothing_left(struct fixture *f)
{
    struct stat st;
    assert_int_equal(stat(f->copy, &st), -1);
}

/* The server's folder is left as a kill leaves it, and the copy takes its place. */
static void restore(struct fixture *f)
{
    struct err err = {0};
    world_crash(&f->world);
    snprintf(f->world.cfg.data, sizeof f->world.cfg.data, "%s", f->copy);
    int problems = world_check(&f->world, &err);
    if (problems != 0) {
        fail_msg("the copy has %d problems %s", problems, err.text);
    }
    start(&f->world);
}

static int hold(unsigned ops, const char *file, uint64_t nth)
{
    return vfs_fault_add(&(struct vfs_rule){.ops = ops, .file = file, .nth = nth, .action = VFS_HOLD});
}

/* Begins a backup that stops after staging was read and before history is. */
static void begin_and_hold_between(struct fixture *f)
{
    hold(VFS_WRITE, "staging.partial", 1);
    begin(f);
    vfs_fault_wait_held();
}

static void release(struct fixture *f)
{
    vfs_fault_release();
    need_done(f);
}

/* Until the stager has passed on what was handed in, a flush last: the historian, which is held, does it next. */
static void wait_passed_on(struct world *w)
{
    for (bool closed = false; !closed;) {
        struct store_ring ring;
        w->store->ring->look(w->store, &ring);
        for (int i = 0; i < ring.n_slots; i++) {
            closed = closed || ring.slots[i].state == SLOT_CLOSED;
        }
        sched_yield();
    }
}

/* --- what the copy holds --- */

static void test_copy(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    play(w, "flushed", "a");
    record(w, STORE_DELIVERY, "flushed", "d");
    flush_world(w);
    play(w, "staged", "b");
    begin(f);
    need_done(f);
    assert_true(f->backup.bytes > 0);
    assert_int_equal(f->backup.problems, 0);
    play(w, "staged", "later");
    restore(f);
    assert_true(is_seen(w, "flushed", "a"));
    assert_true(is_seen(w, "flushed", "d"));
    assert_true(is_seen(w, "staged", "b"));
    assert_false(is_seen(w, "staged", "later"));
    flush_world(w);
    assert_true(is_seen(w, "staged", "b"));
}

/* The files of a copy need nothing beside them: no WAL, no lock. */
static void test_copy_is_two_plain_files(void **state)
{
    struct fixture *f = *state;
    play(&f->world, "u", "a");
    begin(f);
    need_done(f);
    DIR *dir = opendir(f->copy);
    assert_non_null(dir);
    int files = 0;
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (e->d_name[0] != '.') {
            files++;
            assert_true(strcmp(e->d_name, "staging.db") == 0 || strcmp(e->d_name, "history.db") == 0);
        }
    }
    closedir(dir);
    assert_int_equal(files, 2);
}

static void test_copy_of_nothing(void **state)
{
    struct fixture *f = *state;
    begin(f);
    need_done(f);
    restore(f);
    play(&f->world, "u", "a");
    assert_true(is_seen(&f->world, "u", "a"));
}

static void test_flush_between(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    play(w, "u", "a");
    begin_and_hold_between(f);
    play(w, "u", "b");
    flush_world(w); /* staging's copy has a, which is deleted from staging now */
    release(f);
    restore(f);
    assert_true(is_seen(w, "u", "a"));
    assert_true(is_seen(w, "u", "b"));
    flush_world(w);
    struct store_month_info months[4];
    struct err err = {0};
    assert_int_equal(asker_months(w->asker, months, 4, &err), 1);
    assert_int_equal(months[0].plays, 2); /* merged twice, counted once */
}

static void test_forget_between(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    play(w, "gone", "flushed");
    flush_world(w);
    play(w, "gone", "staged");
    play(w, "other", "staged");
    play(w, "item", "a");
    play(w, "item", "b");
    begin_and_hold_between(f);
    forget(w, "gone", NULL);
    forget(w, "item", "a");
    wait_all(w);
    release(f);
    restore(f);
    assert_false(is_known(w, "gone"));
    flush_world(w);
    assert_false(is_known(w, "gone"));
    assert_true(is_seen(w, "other", "staged"));
    assert_false(is_seen(w, "item", "a"));
    assert_true(is_seen(w, "item", "b"));
    replay(w, "gone", "flushed"); /* the forgets' tombstones are in the copy, too */
    replay(w, "item", "a");
    replay(w, "item", "c");
    assert_false(is_known(w, "gone"));
    assert_false(is_seen(w, "item", "a"));
    assert_true(is_seen(w, "item", "c"));
}

/* An item of a full list: what had fallen off it, whose rows are in the copy too, stays off. */
static void test_forget_of_a_delivery_between(void **state)
{
    static const char *const items[] = {"a", "b", "c", "d"};
    struct fixture *f = *state;
    struct world *w = &f->world;
    w->cfg.delivered_max = 3;
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        record(w, STORE_DELIVERY, "u", items[i]);
        wait_all(w);
    }
    begin_and_hold_between(f);
    forget(w, "u", "d");
    wait_all(w);
    release(f);
    restore(f);
    for (int flushed = 0; flushed <= 1; flushed++) {
        assert_false(is_seen(w, "u", "a"));
        assert_true(is_seen(w, "u", "b"));
        assert_true(is_seen(w, "u", "c"));
        assert_false(is_seen(w, "u", "d"));
        flush_world(w);
    }
}

/* Of an item of which only the hash is known: its staged rows can't be found in the copy, so there is none. */
static void test_forget_by_hash_between(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    struct slice user = slice_str("item");
    uint64_t seed = w->store->ops->seed(w->store), hash = hash_id(seed, slice_str("a"));
    int done = 0;
    play(w, "item", "a");
    wait_all(w);
    begin_and_hold_between(f);
    struct store_forget by_hash = {.key = hash_user_key(seed, user),
                                   .user = user,
                                   .hashes = &hash,
                                   .n_items = 1,
                                   .first_month = INT32_MIN,
                                   .done = forget_done,
                                   .owner = &done};
    w->store->ops->forget(w->store, &by_hash);
    wait_flag(&done);
    assert_int_equal(by_hash.err.code, 0);
    assert_int_equal(by_hash.answer, 1);
    assert_false(is_seen(w, "item", "a"));
    vfs_fault_release();
    need_error(f, ERR_BUSY, "begin the backup once more");
    need_nothing_left(f);
    vfs_fault_heal();
    begin(f);
    need_done(f);
    restore(f);
    assert_false(is_seen(w, "item", "a"));
}

/* As above, but the rows had been flushed and deleted before the forget: the stager finds none any more. */
static void test_flush_then_forget_between(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    play(w, "gone", "a");
    play(w, "item", "a");
    begin_and_hold_between(f);
    flush_world(w);
    forget(w, "gone", NULL);
    forget(w, "item", "a");
    wait_all(w);
    release(f);
    restore(f);
    flush_world(w);
    assert_false(is_known(w, "gone"));
    assert_false(is_seen(w, "item", "a"));
}

/* A forget that came before staging is read, and a play after it that came before, too: the play stays. */
static void test_play_after_the_forget(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    play(w, "u", "old");
    hold(VFS_OPEN, "staging.db", 1);
    begin(f);
    vfs_fault_wait_held();
    forget(w, "u", NULL);
    wait_all(w);
    play(w, "u", "new");
    release(f);
    restore(f);
    assert_false(is_seen(w, "u", "old"));
    assert_true(is_seen(w, "u", "new"));
}

/* Row ids of the restored folder go on above those that its deliveries have. */
static void test_deliveries_between(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    char item[ID_SIZE];
    begin_and_hold_between(f);
    for (int i = 0; i < 150; i++) {
        snprintf(item, sizeof item, "d%d", i);
        record(w, STORE_DELIVERY, "u", item);
    }
    wait_all(w);
    flush_world(w);
    release(f);
    restore(f);
    record(w, STORE_DELIVERY, "u", "newest");
    wait_all(w);
    assert_true(is_seen(w, "u", "newest"));
    flush_world(w);
    assert_true(is_seen(w, "u", "newest"));
    assert_true(is_seen(w, "u", "d149"));
    assert_false(is_seen(w, "u", "d50")); /* the last 100 */
}

static void test_seal_between(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    struct err err = {0};
    play_many(w);
    play(w, "u", "a");
    begin_and_hold_between(f);
    flush_world(w);
    while (clock_wall_ms() < SEPTEMBER_2) {
        int64_t left = SEPTEMBER_2 - clock_wall_ms();
        assert_int_equal(world_advance(w, left < DAY_MS ? left : DAY_MS, &err), 0);
    }
    struct store_month_info months[4];
    assert_int_equal(asker_months(w->asker, months, 4, &err), 1);
    assert_int_equal(months[0].state, STORE_MONTH_SEALED);
    uint64_t plays = months[0].plays;
    release(f);
    restore(f);
    flush_world(w);
    assert_true(is_seen(w, "u", "a"));
    assert_true(is_seen(w, "many-0", "many-0"));
    assert_int_equal(asker_months(w->asker, months, 4, &err), 1);
    assert_int_equal(months[0].state, STORE_MONTH_SEALED);
    assert_int_equal(months[0].plays, plays); /* what the sealed parts hold takes no second room */
}

/* --- in the middle of history --- */

/* The historian stops in its first step of copying, which is a part of the file. What is handed in meanwhile is done
 * before the next. */
static void test_in_the_middle(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    play_many(w);
    play(w, "gone", "a");
    play(w, "item", "a");
    flush_world(w);
    play(w, "u", "staged");
    play(w, "gone", "staged");
    int writes = vfs_fault_add(&(struct vfs_rule){.ops = VFS_WRITE, .file = "history.partial.db", .nth = 1});
    hold(VFS_WRITE, "history.partial.db", 8);
    begin(f);
    vfs_fault_wait_held();
    forget(w, "gone", NULL);
    forget(w, "item", "a");
    world_flush(w);
    wait_passed_on(w);
    vfs_fault_release();
    wait_all(w);
    play(w, "u", "later");
    need_done(f);
    struct stat st;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/history.db", f->copy);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size > 3 << 20);
    /* Each page once, and those that changed meanwhile once more: it did not begin anew. */
    uint64_t pages = (uint64_t)st.st_size / DB_HISTORY_PAGE;
    assert_in_range(vfs_fault_hits(writes), pages, pages * 5 / 4);
    restore(f);
    flush_world(w);
    assert_false(is_known(w, "gone"));
    assert_false(is_seen(w, "item", "a"));
    assert_true(is_seen(w, "u", "staged"));
    for (uint32_t i = 0; i < MANY; i += 97) {
        char id[ID_SIZE];
        snprintf(id, sizeof id, "many-%" PRIu32, i);
        assert_true(is_seen(w, id, id));
    }
}

/* A commit of history that fails takes the copy with it, and nothing else. */
static void test_history_fails_in_the_middle(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    play_many(w);
    flush_world(w);
    play(w, "u", "a");
    hold(VFS_WRITE, "history.partial.db", 8);
    begin(f);
    vfs_fault_wait_held();
    vfs_fault_add(&(struct vfs_rule){.ops = VFS_WRITE, .file = "history.db-wal", .nth = 1, .action = VFS_EIO});
    world_flush(w);
    wait_passed_on(w);
    vfs_fault_release();
    world_wait(w, NULL, NULL); /* the flush fails, or was tried again */
    need_error(f, ERR_IO, "history.db: a write to the file failed during the copy");
    need_nothing_left(f);
    flush_world(w);
    assert_true(is_seen(w, "u", "a"));
    begin(f);
    need_done(f);
    restore(f);
    assert_true(is_seen(w, "u", "a"));
}

/* --- what fails --- */

static void test_copy_cannot_be_written(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    static const char *const files[] = {"staging.partial", "history.partial"};
    static const struct {
        enum vfs_action action;
        int code;
    } kinds[] = {{VFS_EIO, ERR_IO}, {VFS_FULL, ERR_FULL}};
    play_many(w);
    flush_world(w);
    play(w, "u", "a");
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < 2; k++) {
            for (uint64_t nth = 1; nth < 1500; nth = 1 + nth * 11) {
                struct vfs_rule rule = {.ops = VFS_WRITE, .file = files[i], .nth = nth, .action = kinds[k].action};
                int number = vfs_fault_add(&rule);
                begin(f);
                int code = wait_done(f);
                if (vfs_fault_hits(number) >= nth) {
                    assert_int_equal(code, kinds[k].code);
                    assert_non_null(strstr(f->backup.err.text, files[i]));
                    need_nothing_left(f);
                } else {
                    assert_int_equal(code, 0); /* so few writes there are */
                    world_remove_folder(f->copy);
                }
                vfs_fault_heal();
                play(w, "u", "still");
            }
        }
    }
    flush_world(w);
    begin(f);
    need_done(f);
    restore(f);
    assert_true(is_seen(w, "u", "still"));
}

static void test_one_at_a_time(void **state)
{
    struct fixture *f = *state;
    struct store_backup second = {.folder = "/tmp/unseen-test-backup-second", .done = on_done, .owner = f};
    begin_and_hold_between(f);
    struct store_backup_state now;
    f->world.store->admin->backup_state(f->world.store, &now);
    assert_int_equal(now.phase, BACKUP_STAGING);
    f->world.store->admin->backup(f->world.store, &second);
    assert_int_equal(second.err.code, ERR_BUSY);
    assert_non_null(strstr(second.err.text, f->copy));
    f->done = false;
    release(f);
    f->world.store->admin->backup_state(f->world.store, &now);
    assert_int_equal(now.phase, BACKUP_NONE);
    assert_int_equal(now.last_code, 0);
    assert_int_equal(now.last_bytes, f->backup.bytes);
    assert_int_equal(now.last_ms, clock_wall_ms());
}

static void test_given_up(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    play_many(w);
    flush_world(w);
    static const char *const files[] = {"staging.partial", "history.partial"};
    for (size_t i = 0; i < 2; i++) {
        hold(VFS_WRITE, files[i], 3);
        begin(f);
        vfs_fault_wait_held();
        w->store->admin->backup_stop(w->store);
        vfs_fault_heal();
        need_error(f, ERR_CLOSED, "closing");
        need_nothing_left(f);
        begin(f);
        need_error(f, ERR_CLOSED, "closing");
        world_stop(w);
        start(w);
    }
    begin(f); /* and with nothing held back: close waits for no backup */
    world_stop(w);
    assert_true(wait_done(f) == 0 || f->backup.err.code == ERR_CLOSED);
    start(w);
}

static void test_folders(void **state)
{
    struct fixture *f = *state;
    struct store_backup *b = &f->backup;
    char path[PATH_MAX];
    static const struct {
        const char *folder, *words;
        int code;
    } bad[] = {
        {"relative", "expected a whole path", ERR_INVALID},
        {"/dev/null", "is a file", ERR_INVALID},
        {"/dev/null/to/go", "can't find the folder", ERR_SYSTEM},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        f->done = false;
        *b = (struct store_backup){.folder = bad[i].folder, .done = on_done, .owner = f};
        f->world.store->admin->backup(f->world.store, b);
        need_error(f, bad[i].code, bad[i].words);
    }
    /* Not empty: nothing in it is touched, not even what looks like ours. */
    assert_int_equal(mkdir(f->copy, 0700), 0);
    snprintf(path, sizeof path, "%s/history.partial.db", f->copy);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    begin(f);
    need_error(f, ERR_INVALID, "is not empty, it holds \"history.partial.db\"");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(unlink(path), 0);
    if (geteuid() != 0) {
        assert_int_equal(chmod(f->copy, 0500), 0);
        begin(f);
        need_error(f, ERR_READONLY, "must be allowed to write there");
        assert_int_equal(chmod(f->copy, 0700), 0);
    }
    begin(f); /* empty is fine */
    need_done(f);
}

static void ask_below(struct fixture *f, const char *root, const char *folder)
{
    f->done = false;
    f->backup = (struct store_backup){.folder = folder, .root = root, .done = on_done, .owner = f};
    f->world.store->admin->backup(f->world.store, &f->backup);
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 07777;
}

/* Whoever may ask for a backup writes below the root, into what is new, and follows no connection out of it. */
static void test_root(void **state)
{
    struct fixture *f = *state;
    const char *root = f->copy;
    char path[PATH_MAX], out[PATH_MAX];
    static const struct {
        const char *folder, *words;
    } bad[] = {
        {"..", "is backup_root itself"},
        {".", "is backup_root itself"},
        {"a/../../etc", "leads out of a folder by .."},
        {"/", "is outside of backup_root"},
        {"/etc/cron.d", "is outside of backup_root"},
        {"link/b", "is a link"},
        {"link", "is a link"},
        {"file", "is a file"},
        {"file/b", "is a file"},
    };
    play(&f->world, "u", "a");
    ask_below(f, root, "a/b"); /* the root and what is above the folder are made */
    need_done(f);
    assert_int_equal(mode_of(root), 0700);
    snprintf(path, sizeof path, "%s/a", root);
    assert_int_equal(mode_of(path), 0700);
    snprintf(path, sizeof path, "%s/a/b", root);
    assert_int_equal(mode_of(path), 0700);
    snprintf(path, sizeof path, "%s/a/b/staging.db", root);
    assert_int_equal(mode_of(path), 0600);
    snprintf(path, sizeof path, "%s/a/b/history.db", root);
    assert_int_equal(mode_of(path), 0600);

    snprintf(out, sizeof out, "%s-out", root);
    assert_int_equal(mkdir(out, 0700), 0);
    snprintf(path, sizeof path, "%s/link", root);
    assert_int_equal(symlink(out, path), 0);
    snprintf(path, sizeof path, "%s/file", root);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ask_below(f, root, bad[i].folder);
        need_error(f, ERR_INVALID, bad[i].words);
    }
    snprintf(path, sizeof path, "%s-outside", root); /* begins with the root's name, and is not in it */
    ask_below(f, root, path);
    need_error(f, ERR_INVALID, "is outside of backup_root");
    assert_int_equal(rmdir(out), 0); /* still empty */

    snprintf(path, sizeof path, "%s/whole/path", root);
    ask_below(f, root, path);
    need_done(f);
    /* Of one that fails nothing is left, of the folders above it neither. */
    f->world.cfg.min_free = INT64_MAX / 2;
    ask_below(f, root, "new/and/failed");
    need_error(f, ERR_FULL, "min_free");
    f->world.cfg.min_free = 0;
    snprintf(path, sizeof path, "%s/new", root);
    assert_int_equal(access(path, F_OK), -1);
}

/* The folder is moved away while the copy is made, and another stands in its place: nothing is taken for good. */
static void test_folder_is_moved(void **state)
{
    struct fixture *f = *state;
    char moved[128], file[160];
    play(&f->world, "u", "a");
    hold(VFS_WRITE, "staging.partial", 1);
    ask_below(f, "/tmp", f->copy);
    vfs_fault_wait_held();
    snprintf(moved, sizeof moved, "%s-moved", f->copy);
    assert_int_equal(rename(f->copy, moved), 0);
    assert_int_equal(mkdir(f->copy, 0700), 0);
    vfs_fault_release();
    need_error(f, ERR_IO, "the folder was moved");
    snprintf(file, sizeof file, "%s/staging.partial.db", moved);
    assert_int_equal(access(file, F_OK), -1);
    rmdir(moved);
}

static void test_too_little_room(void **state)
{
    struct fixture *f = *state;
    play(&f->world, "u", "a");
    f->world.cfg.min_free = INT64_MAX / 2;
    int writes = vfs_fault_add(&(struct vfs_rule){.ops = VFS_WRITE, .file = "staging.partial", .nth = 1});
    begin(f);
    need_error(f, ERR_FULL, "min_free is to be left");
    assert_int_equal(vfs_fault_hits(writes), 0); /* told beforehand */
    need_nothing_left(f);
    f->world.cfg.min_free = 0;
}

/* What is damaged in the store is damaged in the copy, which is no reason to have none. */
static void test_damage_is_copied(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->world;
    char path[PATH_MAX];
    play(w, "bad", "a");
    play(w, "good", "a");
    flush_world(w);
    world_stop(w);
    snprintf(path, sizeof path, "%s/history.db", f->folder);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "UPDATE plays_202608 SET filter = x'00' WHERE user_key = (SELECT user_key FROM users "
                                  "WHERE user = 'bad')",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    start(w);
    begin(f);
    need_done(f);
    assert_int_equal(f->backup.problems, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy_is_two_plain_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy_of_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flush_between, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forget_between, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forget_of_a_delivery_between, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forget_by_hash_between, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flush_then_forget_between, setup, teardown),
        cmocka_unit_test_setup_teardown(test_play_after_the_forget, setup, teardown),
        cmocka_unit_test_setup_teardown(test_deliveries_between, setup, teardown),
        cmocka_unit_test_setup_teardown(test_seal_between, setup, teardown),
        cmocka_unit_test_setup_teardown(test_in_the_middle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_history_fails_in_the_middle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_copy_cannot_be_written, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_at_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(test_given_up, setup, teardown),
        cmocka_unit_test_setup_teardown(test_folders, setup, teardown),
        cmocka_unit_test_setup_teardown(test_root, setup, teardown),
        cmocka_unit_test_setup_teardown(test_folder_is_moved, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_little_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage_is_copied, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
