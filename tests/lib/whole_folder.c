#include "tests/lib/whole_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "store/admin.h"
#include "store/feed.h"
#include "store/migration.h"
#include "store/ring.h"
#include "store/saved_sessions.h"
#include "store/stats.h"

enum {
    USERS = 10,
    SLOTS = 6,
    APRIL = 2026 * 12 + 3,
    OCTOBER = 2026 * 12 + 9,
    NOVEMBER = 2026 * 12 + 10,
    MIRRORED_MAX = 500
};

static char offload[64]; /* the folder as it was made */
static int64_t made_ms;
static int mirrored; /* how many events wait for the other Redis */

static const char *const files[] = {"staging.db", "staging.db-wal", "history.db", "history.db-wal"};

/* --- making it --- */

static void copy_files(const char *from, const char *to)
{
    char command[512];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(command, sizeof command, "cp %s/%s %s/", from, files[i], to);
        assert_int_equal(system(command), 0);
    }
}

static void play_in(struct store_fixture *f, int month, const char *prefix)
{
    char user[16], item[16];
    for (int i = 0; i < USERS; i++) {
        snprintf(user, sizeof user, "%s%d", prefix, i);
        snprintf(item, sizeof item, "%s-item%d", prefix, i);
        assert_int_equal(record_at(f, STORE_PLAY, month_start_ms(month) + DAY_MS, user, item), 0);
    }
}

static void note(struct store_fixture *f, struct store_migration_change users_to_migrate)
{
    int done = 0;
    users_to_migrate.call.done = call_done;
    users_to_migrate.call.owner = &done;
    f->store->migration->note(f->store, &users_to_migrate);
    wait_flag(&done);
    assert_int_equal(users_to_migrate.call.err.code, 0);
}

static void make_notes(struct store_fixture *f)
{
    const struct slice users[] = {slice_str("waits"), slice_str("done"), slice_str("left"), slice_str("ended")};
    const struct store_problem problem = {.key = slice_str("played:left"), .what = slice_str("it is a list")};
    note(f, (struct store_migration_change){.kind = MIGRATION_ADD, .users = users, .n = 4});
    note(f,
         (struct store_migration_change){.kind = MIGRATION_MARK, .users = users + 1, .n = 1, .state = MIGRATION_DONE});
    note(f,
         (struct store_migration_change){.kind = MIGRATION_MARK, .users = users + 2, .n = 1, .state = MIGRATION_LEFT});
    note(f, (struct store_migration_change){.kind = MIGRATION_PROBLEMS, .problems = &problem, .n = 1});
    note(f, (struct store_migration_change){.kind = MIGRATION_PAUSE, .paused = true});
    assert_int_equal(forget(f, "ended", NULL), 1);
}

static const struct store_session sessions[] = {
    {{"s1", 2}, {"one", 3}, START - 1000},
    {{"s2", 2}, {"two", 3}, START},
};

static bool next_session(void *arg, struct store_session *out)
{
    int *at = arg;
    if (*at == 2) {
        return false;
    }
    *out = sessions[(*at)++];
    return true;
}

static int keep_sessions(struct store_fixture *f, struct err *err)
{
    int at = 0;
    return f->store->sessions->keep(f->store, next_session, &at, err);
}

static int64_t query(struct store_fixture *f, const char *format, int64_t key)
{
    char sql[256];
    snprintf(sql, sizeof sql, format, (long long)key);
    damage(f, "history", sql);
    return key;
}

/* What takes nights, brought about in the closed files: both cursors stand in the middle of the keys. */
static void half_way(struct store_fixture *f)
{
    damage(
        f, "history",
        "DELETE FROM plays_202604 WHERE user_key <= 0; DELETE FROM users WHERE user_key <= 0 AND last_month <= 24315;"
        "UPDATE months SET swept_to = 0 WHERE month = 24315;"
        "CREATE TABLE sealed_202610 (user_key INTEGER PRIMARY KEY, counted INTEGER, filter BLOB NOT NULL, "
        "items INTEGER AS (coalesce(counted, instr('123456789ABCDEF', substr(hex(substr(filter, 1, 1)), 2)))) VIRTUAL);"
        "INSERT INTO sealed_202610 (user_key, counted, filter) "
        "SELECT user_key, counted, filter FROM plays_202610 WHERE user_key <= 0;"
        "DELETE FROM plays_202610 WHERE user_key <= 0; UPDATE months SET sealed_to = 0 WHERE month = 24321");
    query(f, "UPDATE plays_202611 SET filter = substr(filter, 1, 1) WHERE user_key = %lld", key_of("bad"));
    query(f, "INSERT INTO shared_keys (user_key, user) VALUES (%lld, 'other')", key_of("twin"));
}

static void fill_slots(struct store_fixture *f)
{
    char user[16], item[16];
    rule(VFS_WRITE, "history", 1, true, VFS_EIO); /* nothing is flushed */
    for (int i = 0; i < SLOTS; i++) {
        snprintf(user, sizeof user, "slot%d", i);
        snprintf(item, sizeof item, "row%d", i);
        play(f, user, item);
        advance(f, config_slot_length_ms(&f->cfg));
    }
    vfs_fault_heal();
}

static void make_pools(struct store_fixture *f)
{
    struct err err = {0};
    assert_int_equal(change_pool(f, STORE_POOL_SET, "hot", NULL, NULL, "xyz", &err), 0);
    assert_int_equal(change_pool(f, STORE_POOL_SET, "hot", NULL, "xyz", "abc", &err), 0);
    assert_int_equal(change_pool(f, STORE_POOL_ADD, "hot", NULL, "abc", "de", &err), 0);
    assert_int_equal(change_pool(f, STORE_POOL_SET, "new", NULL, NULL, "k", &err), 0);
    assert_int_equal(change_pool(f, STORE_POOL_RENAME, "new", "cold", "k", NULL, &err), 0);
}

static void make(struct store_fixture *f)
{
    int64_t retention = f->cfg.retention;
    assert_int_equal(f->cfg.slots, SLOTS);
    f->cfg.retention = 12;
    open_store(f);
    play_in(f, APRIL, "apr");
    play_in(f, OCTOBER, "oct");
    play_in(f, NOVEMBER, "nov");
    play(f, "bad", "x");
    play(f, "ex", "kept");
    play(f, "ex", "again");
    play(f, "twin", "t");
    deliver(f, "sent", "d1");
    deliver(f, "sent", "d2");
    assert_int_equal(flush(f), 0);
    assert_int_equal(forget(f, "ex", "kept"), 1);
    assert_int_equal(forget(f, "ex", "again"), 1);
    make_notes(f);
    make_pools(f);
    close_store(f);
    half_way(f);
    f->cfg.retention = retention;
    open_store(f);
    play(f, "bad", "y");
    assert_int_equal(flush(f), 0); /* sets the damaged blob aside */
    fill_slots(f);
    play(f, "ex", "again");
    deliver(f, "sent", "d3");
    struct err err = {0};
    assert_int_equal(keep_sessions(f, &err), 0);
    struct feed_state mirror;
    feed_state_of(f->store, "mirror", &mirror);
    mirrored = (int)mirror.events;
    struct store_ring ring;
    f->store->ring->look(f->store, &ring);
    for (int i = 0; i < SLOTS; i++) {
        assert_true(ring.slots[i].rows > 0);
    }
    kill_store(f);
    made_ms = clock_wall_ms();
}

struct store_fixture *whole_folder_new(const char *name)
{
    struct store_fixture *f = store_fixture_new(name);
    f->cfg.legacy_mirror = 1;
    make(f);
    snprintf(offload, sizeof offload, "/tmp/unseen-test-%s-aside.XXXXXX", name);
    assert_non_null(mkdtemp(offload));
    copy_files(f->cfg.data, offload);
    return f;
}

void whole_folder_free(struct store_fixture *f)
{
    remove_folder(offload);
    store_fixture_free(f);
}

void whole_folder_restore(struct store_fixture *f)
{
    remove_folder(f->cfg.data);
    assert_int_equal(mkdir(f->cfg.data, 0700), 0);
    copy_files(offload, f->cfg.data);
    clock_test_start(made_ms);
}

/* --- what must be answered --- */

static char text[512];

static const char *wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}

static const char *expect_seen(struct store_fixture *f, const char *user, const char *item, bool want)
{
    struct store_view view;
    struct err err = {0};
    if (load(f, f->reader, user, &view, &err) < 0) {
        return wrong("%s: %s", user, err.text);
    }
    return in_view(&view, item) == want ? NULL : wrong("%s %s is %s", user, item, want ? "unseen" : "seen");
}

static const char *check_plays(struct store_fixture *f)
{
    static const char *const months[] = {"apr", "oct", "nov"};
    char user[16], item[16];
    const char *bad = NULL;
    for (int i = 0; i < 3 * USERS && bad == NULL; i++) {
        snprintf(user, sizeof user, "%s%d", months[i / USERS], i % USERS);
        snprintf(item, sizeof item, "%s-item%d", months[i / USERS], i % USERS);
        bool swept = i / USERS == 0 && key_of(user) <= 0;
        bad = expect_seen(f, user, item, !swept);
        bad = bad != NULL ? bad : expect_seen(f, user, "never", false);
    }
    for (int i = 0; i < SLOTS && bad == NULL; i++) {
        snprintf(user, sizeof user, "slot%d", i);
        snprintf(item, sizeof item, "row%d", i);
        bad = expect_seen(f, user, item, true);
    }
    if (bad == NULL && (bad = expect_seen(f, "ex", "kept", false)) == NULL) {
        bad = expect_seen(f, "ex", "again", true);
    }
    return bad;
}

static const char *check_damage(struct store_fixture *f)
{
    struct store_view view;
    struct err err = {0};
    int rc = load(f, f->reader, "bad", &view, &err);
    if (rc != ERR_CORRUPT || strstr(err.text, "set aside") == NULL) {
        return wrong("the damaged user: %d %s", rc, err.text);
    }
    int64_t shared = forget(f, "twin", NULL);
    if (shared != ERR_SHARED) {
        return wrong("forget of a user with a twin: %lld", (long long)shared);
    }
    struct store_stats now = stats(f);
    return now.quarantined == 1 && now.shared_keys == 1 ? NULL : wrong("quarantined=%d", (int)now.quarantined);
}

static const char *check_deliveries(struct store_fixture *f)
{
    static const char *const items[] = {"d3", "d2", "d1"};
    struct store_view view;
    struct err err = {0};
    if (load(f, f->reader, "sent", &view, &err) < 0) {
        return wrong("sent: %s", err.text);
    }
    for (size_t i = 0; i < 3; i++) {
        if (view.n_deliveries != 3 || !slice_eq(view.deliveries[i].item, slice_str(items[i]))) {
            return wrong("delivery %zu of %zu", i, view.n_deliveries);
        }
    }
    return NULL;
}

static const char *check_months(struct store_fixture *f)
{
    static const int months[] = {NOVEMBER, OCTOBER, APRIL};
    static const enum store_month_state states[] = {STORE_MONTH_LIVE, STORE_MONTH_SEALING, STORE_MONTH_EXPIRING};
    struct store_month_info out[8];
    struct err err = {0};
    int n = f->store->admin->months(f->reader, out, 8, &err);
    if (n != 3) {
        return wrong("%d months: %s", n, err.text);
    }
    for (int i = 0; i < 3; i++) {
        if (out[i].month != months[i] || out[i].state != states[i]) {
            return wrong("month %d is %d in state %d", i, out[i].month, out[i].state);
        }
    }
    struct store_ring ring;
    f->store->ring->look(f->store, &ring);
    return ring.clock_doubted ? wrong("clock doubted: %s", ring.clock_reason) : NULL;
}

static const char *check_notes(struct store_fixture *f)
{
    static const char *const users[] = {"waits", "done", "left", "ended", "nobody"};
    static const enum store_note want[] = {MIGRATION_WAITING, MIGRATION_DONE, MIGRATION_LEFT, MIGRATION_ENDED,
                                           MIGRATION_NONE};
    for (int i = 0; i < 5; i++) {
        enum store_note note = f->store->migration->of(f->store, key_of(users[i]));
        if (note != want[i]) {
            return wrong("note of %s: %d", users[i], note);
        }
    }
    struct store_migration_counts now;
    f->store->migration->state(f->store, &now);
    if (now.all != 4 || now.waiting != 1 || now.problems != 1 || !now.paused) {
        return wrong("notes: %d, problems: %d, paused: %d", (int)now.all, (int)now.problems, now.paused);
    }
    struct arena arena = {0};
    struct err err = {0};
    struct store_migration_walk walk = {0};
    struct slice waiting[4];
    struct store_problem problems[4];
    int n = f->store->migration->read(f->reader, &walk, waiting, 4, &arena, &err);
    bool good = n == 1 && slice_eq(waiting[0], slice_str("waits"));
    n = f->store->migration->problems(f->reader, problems, 4, &arena, &err);
    good = good && n == 1 && slice_eq(problems[0].key, slice_str("played:left"));
    arena_free(&arena);
    return good ? NULL : wrong("the notes' tables: %s", err.text);
}

static const char *check_mirror(struct store_fixture *f)
{
    static struct feed_event out[MIRRORED_MAX];
    struct arena arena = {0};
    struct err err = {0};
    int n = f->store->feed->read(f->reader, "mirror", 0, out, MIRRORED_MAX, &arena, &err);
    bool last = n > 0 && slice_eq(out[n - 1].user, slice_str("sent")) && slice_eq(out[n - 1].item, slice_str("d3"));
    arena_free(&arena);
    struct feed_state state;
    feed_state_of(f->store, "mirror", &state);
    if (n != mirrored || !last || state.events != (uint64_t)n || state.lost_ms != 0 || state.left_out != 0) {
        return wrong("%d events wait, of %d, the state says %d: %s", n, mirrored, (int)state.events, err.text);
    }
    return NULL;
}

static void take_session(void *arg, const struct store_session *kept)
{
    int *n = arg;
    if (*n < 2 && slice_eq(kept->name, sessions[*n].name) && slice_eq(kept->ids, sessions[*n].ids) &&
        kept->used_ms == sessions[*n].used_ms) {
        ++*n;
    } else {
        *n = INT_MIN;
    }
}

static const char *check_pools(struct store_fixture *f)
{
    char pools[POOLS_TEXT];
    struct err err = {0};
    if (list_pools(f, pools, &err) < 0) {
        return wrong("pools: %s", err.text);
    }
    return strstr(pools, WHOLE_FOLDER_POOLS) != NULL ? NULL : wrong("pools: %s", pools);
}

static const char *check_sessions(struct store_fixture *f)
{
    struct err err = {0};
    int n = 0;
    if (f->store->sessions->take(f->store, take_session, &n, &err) < 0 || n != 2) {
        return wrong("%d sessions: %s", n, err.text);
    }
    return keep_sessions(f, &err) < 0 ? wrong("sessions not kept: %s", err.text) : NULL;
}

const char *whole_folder_wrong(struct store_fixture *f, bool with_sessions)
{
    static const char *(*const checks[])(struct store_fixture * f) = {
        check_plays, check_damage, check_deliveries, check_months, check_notes, check_mirror, check_pools,
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        const char *bad = checks[i](f);
        if (bad != NULL) {
            return bad;
        }
    }
    return with_sessions ? check_sessions(f) : NULL;
}
