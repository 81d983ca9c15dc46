/* The disk fails once, or for a while, at each of its operations in turn, while everything is asked of the store that
 * it can do. Every call is answered. Then the disk is well, and without a restart everything is done again and must be
 * good: every command, and every work in the background; and what was acknowledged meanwhile is there.
 *
 * UNSEEN_FAULT_STRIDE=1 tries each operation; otherwise they lie the farther apart the later they come. */
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
#include "store/bulk.h"
#include "store/codec/user_snapshot.h"
#include "store/copy.h"
#include "store/migration.h"
#include "store/ring.h"
#include "store/saved_sessions.h"
#include "store/stats.h"
#include "tests/lib/rounds.h"
#include "tests/lib/whole_folder.h"

static char copy[64]; /* the backup's folder */

static int setup(void **state)
{
    struct store_fixture *f = whole_folder_new("liveness");
    f->cfg.sweep_from = 0;
    f->cfg.sweep_to = 24 * 60; /* by day too */
    snprintf(copy, sizeof copy, "/tmp/unseen-test-liveness-copy.XXXXXX");
    assert_non_null(mkdtemp(copy));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    remove_folder(copy);
    whole_folder_free(*state);
    return 0;
}

/* One round of all that the store can do. Each returns 0 or an error. */
struct round {
    struct store_fixture *f;
    int number;
    struct err err;
    /* what was acknowledged */
    bool played[2], delivered[2], forgotten[2], forgot_item[2], migration_state[2], imported[2], brought[2];
    const char *pool[2]; /* what it holds at least */
};

static const char *user_of(const struct round *r, const char *what)
{
    static char names[8][24];
    static int at;
    char *name = names[at++ % 8];
    snprintf(name, sizeof names[0], "%s-%d", what, r->number);
    return name;
}

static int ask_all(struct round *r)
{
    static const char *const users[] = {"nov0", "oct0", "ex", "slot0"};
    struct store_view view;
    int worst = 0;
    for (size_t i = 0; i < 4; i++) { /* also after an error: the second finds a connection that is lost */
        int rc = load(r->f, r->f->reader, users[i], &view, &r->err);
        worst = rc < worst ? rc : worst;
    }
    return worst;
}

static int play_one(struct round *r)
{
    int rc = record_at(r->f, STORE_PLAY, clock_wall_ms(), user_of(r, "played"), "p");
    r->played[r->number] = rc == 0;
    return rc;
}

static int deliver_one(struct round *r)
{
    int rc = record_at(r->f, STORE_DELIVERY, clock_wall_ms(), user_of(r, "delivered"), "d");
    r->delivered[r->number] = rc == 0;
    return rc;
}

static int forget_user(struct round *r)
{
    int64_t answer = forget(r->f, r->number == 0 ? "nov1" : "nov2", NULL);
    r->forgotten[r->number] = answer >= 0;
    return answer < 0 ? (int)answer : 0;
}

static int forget_item(struct round *r)
{
    int64_t answer = forget(r->f, r->number == 0 ? "nov3" : "nov4", r->number == 0 ? "nov-item3" : "nov-item4");
    r->forgot_item[r->number] = answer >= 0;
    return answer < 0 ? (int)answer : 0;
}

static int list_months(struct round *r)
{
    struct store_month_info out[8];
    int n = r->f->store->admin->months(r->f->reader, out, 8, &r->err);
    return n < 0 ? n : 0;
}

static int flush_ring(struct round *r)
{
    return call(r->f, r->f->store->ring->flush, &r->err);
}

static int change_migration_users(struct round *r, struct store_migration_change users_to_migrate)
{
    int done = 0;
    users_to_migrate.call.done = call_done;
    users_to_migrate.call.owner = &done;
    r->f->store->migration->note(r->f->store, &users_to_migrate);
    wait_flag(&done);
    r->err = users_to_migrate.call.err;
    return r->err.code;
}

static int add_note(struct round *r)
{
    struct slice user = slice_str(user_of(r, "noted"));
    int rc = change_migration_users(r, (struct store_migration_change){.kind = MIGRATION_ADD, .users = &user, .n = 1});
    r->migration_state[r->number] = rc == 0;
    return rc;
}

static int add_problem(struct round *r)
{
    const struct store_problem problem = {.key = slice_str("played:x"), .what = slice_str("a list")};
    return change_migration_users(
        r, (struct store_migration_change){.kind = MIGRATION_PROBLEMS, .problems = &problem, .n = 1});
}

static int read_migration_users(struct round *r)
{
    struct arena arena = {0};
    struct store_migration_walk walk = {0};
    struct slice users[8];
    struct store_problem problems[8];
    int n = r->f->store->migration->read(r->f->reader, &walk, users, 8, &arena, &r->err);
    if (n >= 0) {
        n = r->f->store->migration->problems(r->f->reader, problems, 8, &arena, &r->err);
    }
    arena_free(&arena);
    return n < 0 ? n : 0;
}

/* Reads what waits for the other Redis, and says that it has it. */
static int empty_mirror(struct round *r)
{
    static struct feed_event out[500];
    struct arena arena = {0};
    int n = r->f->store->feed->read(r->f->reader, "mirror", 0, out, 500, &arena, &r->err);
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++) {
        bytes += feed_event_bytes(out[i].user, out[i].item, out[i].group);
    }
    if (n > 0 && r->number == 1) { /* once: what was not deleted is read again */
        r->f->store->feed->done(r->f->store, "mirror", out[n - 1].seq, (uint64_t)n, bytes);
    }
    arena_free(&arena);
    return n < 0 ? n : 0;
}

static int reset_mirror(struct round *r)
{
    int done = 0;
    struct feed_reset reset = {.call = {.done = call_done, .owner = &done}, .consumer = "mirror"};
    r->f->store->feed->reset(r->f->store, &reset);
    wait_flag(&done);
    r->err = reset.call.err;
    return r->err.code;
}

static void ignore_session(void *arg, const struct store_session *kept)
{
    (void)arg;
    (void)kept;
}

static bool no_session(void *arg, struct store_session *out)
{
    (void)arg;
    (void)out;
    return false;
}

static int sessions(struct round *r)
{
    int rc = r->f->store->sessions->take(r->f->store, ignore_session, NULL, &r->err);
    return rc < 0 ? rc : r->f->store->sessions->keep(r->f->store, no_session, NULL, &r->err);
}

/* Set, added to, renamed; another one is set and dropped. */
static int change_pools(struct round *r)
{
    struct store_fixture *f = r->f;
    char set[24], renamed[24];
    snprintf(set, sizeof set, "set-%d", r->number);
    snprintf(renamed, sizeof renamed, "renamed-%d", r->number);
    const struct {
        enum store_pool_kind kind;
        const char *name, *to, *before, *items, *then;
    } steps[] = {
        {STORE_POOL_SET, set, NULL, NULL, "abc", "abc"},       {STORE_POOL_ADD, set, NULL, "abc", "d", "abcd"},
        {STORE_POOL_RENAME, set, renamed, "abcd", NULL, NULL}, {STORE_POOL_SET, "gone", NULL, NULL, "x", NULL},
        {STORE_POOL_DROP, "gone", NULL, NULL, NULL, NULL},
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && rc == 0; i++) {
        rc = change_pool(f, steps[i].kind, steps[i].name, steps[i].to, steps[i].before, steps[i].items, &r->err);
        if (rc == 0 && steps[i].then != NULL) {
            r->pool[r->number] = steps[i].then;
        }
    }
    return rc;
}

static int read_pools(struct round *r)
{
    char pools[POOLS_TEXT];
    int rc = list_pools(r->f, pools, &r->err);
    return rc == 0 && strstr(pools, WHOLE_FOLDER_POOLS) == NULL ? err_set(&r->err, ERR_CORRUPT, "%s", pools) : rc;
}

static int import_one(struct round *r)
{
    int done = 0;
    uint8_t verdict = 0;
    struct buf bytes = {0};
    const struct store_play play = {hash_id(SEED, slice_str("j")), month_of_ms(START)};
    const struct snapshot_forgotten forgotten = {hash_id(SEED, slice_str("f")), START};
    struct user_snapshot p = {.user = slice_str(user_of(r, "joined")),
                              .last_month = month_of_ms(START),
                              .plays = &play,
                              .n_plays = 1,
                              .forgotten = &forgotten,
                              .n_forgotten = 1};
    p.key = hash_user_key(SEED, p.user);
    assert_int_equal(user_snapshot_encode(&p, &bytes), 0);
    struct slice snapshot = buf_slice(&bytes);
    struct store_import import = {.snapshots = &snapshot, .n = 1, .verdicts = &verdict};
    import.call.done = call_done;
    import.call.owner = &done;
    r->f->store->ops->import(r->f->store, &import);
    wait_flag(&done);
    buf_free(&bytes);
    r->err = import.call.err;
    r->imported[r->number] = r->err.code == 0 && verdict == IMPORT_DONE;
    return r->err.code;
}

/* As the migration does, beside the service. */
static int bring_in(struct round *r)
{
    const struct store_bulk_ops *bulk = r->f->store->bulk;
    struct store *s = r->f->store;
    const char *user = user_of(r, "brought");
    int rc = bulk->begin(s, true, &r->err);
    if (rc == 0) {
        rc = bulk->add(s, START, key_of(user), slice_str(user), hash_id(SEED, slice_str("b")), &r->err);
        rc = rc < 0 ? rc : bulk->turn(s, &r->err);
        rc = rc < 0 ? rc : bulk->turn(s, &r->err);
        struct err end = {0};
        int ended = bulk->end(s, &end);
        r->err = rc < 0 ? r->err : end;
        rc = rc < 0 ? rc : ended;
    }
    r->brought[r->number] = rc == 0;
    return rc;
}

static void backup_done(struct store_backup *backup)
{
    call_done(&(struct store_call){.owner = backup->owner});
}

static int back_up(struct round *r)
{
    int done = 0;
    remove_folder(copy);
    struct store_backup backup = {.folder = copy, .done = backup_done, .owner = &done};
    r->f->store->admin->backup(r->f->store, &backup);
    wait_flag(&done);
    r->err = backup.err;
    return r->err.code;
}

/* How many items of the user a copy says were forgotten; or an error. */
static int copy_of(struct round *r, const char *user)
{
    struct arena arena = {0};
    struct buf bytes = {0};
    struct user_snapshot p = {0};
    int rc = r->f->store->copy->user(r->f->reader, slice_str(user), &bytes, &r->err);
    rc = rc == 1 ? user_snapshot_decode(bytes.data, bytes.len, &arena, &p, &r->err) : rc;
    int n = rc < 0 ? rc : (int)p.n_forgotten;
    buf_free(&bytes);
    arena_free(&arena);
    return n;
}

static int copy_user(struct round *r)
{
    int n = copy_of(r, r->number == 0 ? "nov3" : "nov4");
    return n < 0 ? n : 0;
}

static int new_reader(struct round *r)
{
    struct store_reader *reader;
    struct store_view view;
    int rc = r->f->store->ops->reader_open(r->f->store, &reader, &r->err);
    if (rc == 0) {
        rc = load(r->f, reader, "nov0", &view, &r->err);
        r->f->store->ops->reader_close(reader);
    }
    return rc;
}

/* Half an hour, in which what failed is tried again: flushes, emptying, sweep, sealing. */
static int pass_time(struct round *r)
{
    for (int i = 0; i < 3; i++) {
        clock_test_advance(10 * 60 * 1000);
        call(r->f, r->f->store->ops->tick, NULL);
    }
    return 0;
}

static const struct {
    const char *name;
    int (*work)(struct round *r);
} works[] = {
    {"questions", ask_all},
    {"PLAYED", play_one},
    {"DELIVERED", deliver_one},
    {"FORGET user", forget_user},
    {"FORGET user item", forget_item},
    {"MONTHS", list_months},
    {"notes", add_note},
    {"problems", add_problem},
    {"reading notes", read_migration_users},
    {"reading the mirror's queue", empty_mirror},
    {"LOAD", import_one},
    {"migration", bring_in},
    {"time", pass_time},
    {"RING FLUSH", flush_ring},
    {"BACKUP", back_up},
    {"the mirror's reset", reset_mirror},
    {"sessions", sessions},
    {"pools", change_pools},
    {"reading pools", read_pools},
    {"copying a user", copy_user},
    {"a new reader", new_reader},
};

enum { WORKS = sizeof works / sizeof *works };

/* What the background should have done by now. */
static const char *look_at_background(struct round *r)
{
    struct store_month_info out[8];
    struct store_stats now = stats(r->f);
    int n = r->f->store->admin->months(r->f->reader, out, 8, &r->err);
    if (n < 3 || now.staged_rows != 0) {
        return n < 3 ? "months are missing" : "rows are still staged";
    }
    for (int i = 0; i < n; i++) {
        if (out[i].month == month_of_ms(START) - 1 && out[i].state != STORE_MONTH_SEALED) {
            return "October is not sealed";
        }
        if (out[i].month == month_of_ms(START) - 7 && out[i].progress <= 0.6) {
            return "April is not swept as far as it should be";
        }
    }
    struct feed_state mirror;
    feed_state_of(r->f->store, "mirror", &mirror);
    return ask(r->f, "staging", "SELECT count(*) FROM feed") > (int64_t)mirror.events ? "the mirror isn't emptied"
                                                                                      : NULL;
}

static const char *look_at_pools(struct round *r)
{
    char pools[POOLS_TEXT], wanted[2][48];
    if (list_pools(r->f, pools, &r->err) < 0) {
        return "pools can't be read";
    }
    for (int i = 0; i < 2; i++) { /* by the one name or the other */
        snprintf(wanted[0], sizeof wanted[0], "set-%d=%s", i, r->pool[i] != NULL ? r->pool[i] : "");
        snprintf(wanted[1], sizeof wanted[1], "renamed-%d=%s", i, r->pool[i] != NULL ? r->pool[i] : "");
        if (r->pool[i] != NULL && strstr(pools, wanted[0]) == NULL && strstr(pools, wanted[1]) == NULL) {
            err_set(&r->err, ERR_CORRUPT, "%s", pools);
            return "a pool is gone";
        }
    }
    return strchr(pools, '?') != NULL ? "a pool is damaged" : NULL;
}

static const char *look_at_answers(struct round *r)
{
    struct store_fixture *f = r->f;
    const char *bad = look_at_pools(r);
    if (bad != NULL) {
        return bad;
    }
    for (r->number = 0; r->number < 2; r->number++) {
        if (r->played[r->number] && !seen(f, user_of(r, "played"), "p")) {
            return "a play is unseen";
        }
        if (r->delivered[r->number] && !seen(f, user_of(r, "delivered"), "d")) {
            return "a delivery is unseen";
        }
        if (r->imported[r->number] && !seen(f, user_of(r, "joined"), "j")) {
            return "a joined play is unseen";
        }
        if (r->imported[r->number] && copy_of(r, user_of(r, "joined")) != 1) {
            return "when a joined user's item was forgotten is not known";
        }
        if (r->forgot_item[r->number] && copy_of(r, r->number == 0 ? "nov3" : "nov4") != 1) {
            return "when an item was forgotten is not known";
        }
        if (r->brought[r->number] && !seen(f, user_of(r, "brought"), "b")) {
            return "a play that was brought in is unseen";
        }
        if (r->migration_state[r->number] &&
            f->store->migration->of(f->store, key_of(user_of(r, "noted"))) != MIGRATION_WAITING) {
            return "a note is gone";
        }
    }
    if ((r->forgotten[0] && known(f, "nov1")) || (r->forgotten[1] && known(f, "nov2"))) {
        return "a forgotten user is known";
    }
    if ((r->forgot_item[0] && seen(f, "nov3", "nov-item3")) || (r->forgot_item[1] && seen(f, "nov4", "nov-item4"))) {
        return "a forgotten item is seen";
    }
    return seen(f, "nov5", "nov-item5") && seen(f, "ex", "again") && !seen(f, "ex", "kept") ? NULL : "answers changed";
}

/* Whether it came so far. */
static bool live_through(struct store_fixture *f, const struct vfs_rule *fault, int *wrong)
{
    struct round r = {.f = f};
    const char *bad = NULL;
    whole_folder_restore(f);
    open_store(f);
    int number = vfs_fault_add(fault);
    for (size_t i = 0; i < WORKS; i++) {
        r.err = (struct err){0};
        works[i].work(&r); /* may fail, but ends */
    }
    bool met = vfs_fault_hits(number) >= fault->nth;
    vfs_fault_heal();
    pass_time(&r);
    r.number = 1;
    for (size_t i = 0; i < WORKS && bad == NULL; i++) {
        size_t at = (i + fault->nth) % WORKS; /* none has to be the first, which makes the others good again */
        r.err = (struct err){0};
        bad = works[at].work(&r) < 0 ? works[at].name : NULL;
    }
    if (bad == NULL && flush_ring(&r) < 0) {
        bad = "RING FLUSH at the end";
    }
    pass_time(&r);
    if (bad == NULL && (bad = look_at_background(&r)) == NULL) {
        bad = look_at_answers(&r);
    }
    if (bad != NULL) {
        print_error("op %u, number %llu of %s%s: %s: %s\n", fault->ops, (unsigned long long)fault->nth, fault->file,
                    fault->sticky ? " and all later ones" : "", bad, r.err.text);
        ++*wrong;
    }
    close_store(f);
    return met;
}

static void live(struct store_fixture *f, unsigned ops, bool sticky)
{
    static const char *const files[] = {"history.db", "staging.db"};
    const char *given = getenv("UNSEEN_FAULT_STRIDE");
    uint64_t stride = given != NULL ? strtoull(given, NULL, 10) : 0;
    int wrong = 0, trials = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct vfs_rule fault = {.ops = ops, .file = files[i], .sticky = sticky, .action = VFS_EIO};
        do {
            fault.nth += stride > 0 ? stride : 1 + fault.nth * test_stride() / 6;
            trials++;
        } while (live_through(f, &fault, &wrong));
    }
    print_message("%d faults\n", trials);
    assert_int_equal(wrong, 0);
}

static void after_a_read(void **state)
{
    live(*state, VFS_READ, false);
}

static void after_many_reads(void **state)
{
    live(*state, VFS_READ, true);
}

static void after_a_write(void **state)
{
    live(*state, VFS_WRITE, false);
}

static void after_many_changes(void **state)
{
    live(*state, VFS_CHANGE, true);
}

static void after_a_sync(void **state)
{
    live(*state, VFS_SYNC, false);
}

static void after_opens(void **state)
{
    live(*state, VFS_OPEN, true);
}

static void after_everything(void **state)
{
    live(*state, VFS_READ | VFS_OPEN | VFS_CHANGE, true);
}

/* Without being asked for anything: questions read the same WAL. */
static void a_lost_history_is_opened_at_once(void **state)
{
    struct store_fixture *f = *state;
    f->cfg.sweep_to = 1; /* neither sweep nor sealing opens it */
    whole_folder_restore(f);
    open_store(f);
    assert_int_equal(flush(f), 0);
    play(f, "u", "a");
    int opens = vfs_fault_add(&(struct vfs_rule){.ops = VFS_OPEN, .file = "history.db", .nth = 1, .action = VFS_COUNT});
    int syncs =
        vfs_fault_add(&(struct vfs_rule){.ops = VFS_SYNC, .file = "history.db-wal", .nth = 1, .action = VFS_EIO});
    assert_true(flush(f) < 0 || vfs_fault_hits(syncs) > 0); /* a checkpoint may have met it first */
    assert_true(vfs_fault_hits(opens) > 0);
    close_store(f);
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
#define LIVE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        LIVE(after_a_read), LIVE(after_many_reads), LIVE(after_a_write),    LIVE(after_many_changes),
        LIVE(after_a_sync), LIVE(after_opens),      LIVE(after_everything), LIVE(a_lost_history_is_opened_at_once),
    };
    return cmocka_run_group_tests_name("liveness", tests, NULL, NULL);
}
