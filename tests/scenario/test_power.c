/* The power fails, or the process is killed, at every step of a workload. Then: no acknowledged play or delivery is
 * unseen, what was forgotten stays forgotten, both files are sound.
 *
 * Each life of the store is a process of its own, forked from this one. It ends itself at the n-th sync or write; a
 * second process opens what is left and judges it by the ledger. UNSEEN_POWER_CUTS says how many cuts are made at
 * random moments (100), UNSEEN_POWER_STRIDE that only every so many'th sync and step is tried (1). Tables of staged
 * rows are small, so that a slot has several.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "ledger.h"
#include "tests/lib/load_wait.h"
#include "tests/lib/part_rows.h"
#include "tests/lib/vfs_fault.h"
#include "tests/lib/vfs_power.h"
#include "tests/lib/world.h"

enum { MONTH_S = 28 * 24 * 3600, FINISHED = 0, WRONG = 1, ID_SIZE = 16, PART_ROWS = 10 };
static const int64_t BEGIN_MS = INT64_C(1795255200000); /* 2026-11-21T10:00Z */

/* How a life ends. */
struct death {
    struct vfs_rule rule;
    bool power;          /* the files are held back as a device does */
    bool lying;          /* syncs do nothing */
    bool drops;          /* after a sync that failed the kernel drops pages that it takes for clean */
    bool armed_at_flush; /* the rule counts from the last operation, a flush */
    bool cut_at_end;     /* the rule is a fault that the store meets once it runs, and lives with; the power fails
                          * when all is done, */
    uint64_t cut_change; /* or at this change of a file */
    uint64_t seed;
};

static void acknowledge(struct world_op *op)
{
    if (op->err.code == 0) {
        *(volatile char *)op->arg = 1;
    }
}

static void die(const char *what, const struct err *err)
{
    fprintf(stderr, "%s: %s\n", what, err->text);
    _exit(WRONG);
}

static struct slice user_id(int user, char out[ID_SIZE])
{
    return slice_of(out, (size_t)snprintf(out, ID_SIZE, "user%d", user));
}

static struct slice item_id(int item, char out[ID_SIZE])
{
    return slice_of(out, (size_t)snprintf(out, ID_SIZE, "item%d", item));
}

/* Hands in operation k. */
static void hand_in(struct world *w, struct ledger *l, int k, const struct ledger_op *op)
{
    static char users[LEDGER_EVENTS][ID_SIZE], items[LEDGER_EVENTS][LEDGER_EVENT_ITEMS][ID_SIZE];
    static struct slice slices[LEDGER_EVENTS][LEDGER_EVENT_ITEMS];
    struct world_event events[LEDGER_EVENTS];
    void *arg = (void *)(uintptr_t)&l->acknowledged[k];
    for (int i = 0; i < op->n_events; i++) {
        const struct ledger_event *e = &op->events[i];
        for (int j = 0; j < e->n; j++) {
            slices[i][j] = item_id(e->items[j], items[i][j]);
        }
        events[i] = (struct world_event){
            .kind = op->kind == LEDGER_DELIVER ? STORE_DELIVERY : STORE_PLAY,
            .at_ms = dedup_stamp(&w->dedup) - (int64_t)e->months_ago * MONTH_S * 1000,
            .user = user_id(e->user, users[i]),
            .items = slices[i],
            .n = (size_t)e->n,
        };
    }
    if (op->kind == LEDGER_FORGET_USER) {
        world_forget(w, events[0].user, NULL, 0, acknowledge, arg);
    } else if (op->kind == LEDGER_FORGET_ITEMS) {
        world_forget(w, events[0].user, events[0].items, events[0].n, acknowledge, arg);
    } else if (op->kind == LEDGER_MERGE || op->kind == LEDGER_MERGE_FORGET) {
        char into[ID_SIZE];
        world_merge(w, events[0].user, user_id(op->events[0].into, into), op->kind == LEDGER_MERGE_FORGET, acknowledge,
                    arg);
    } else {
        world_record(w, events, (size_t)op->n_events, acknowledge, arg);
    }
}

/* Finished months are sealed at any hour, and so at any cut. */
static void seal_by_day(struct world *w)
{
    w->cfg.sweep_from = 0;
    w->cfg.sweep_to = 24 * 60;
    w->cfg.error_rate = 1e-4;
}

/* A life: the operations from where the last one ended, to `until` or to death. */
static void live(struct ledger *l, const char *folder, int until, const struct death *death)
{
    static struct world w;
    struct err err = {0};
    vfs_fault_register();
    log_set_level(LOG_LEVEL_ERROR);
    clock_test_start(l->clock);
    if (death->power) {
        vfs_power_start(death->seed, death->lying);
    }
    if (death->drops) {
        vfs_power_drops();
    }
    if (!death->armed_at_flush && !death->cut_at_end) {
        vfs_fault_add(&death->rule);
    }
    world_init(&w, folder, VFS_FAULT_NAME);
    seal_by_day(&w);
    if (world_start(&w, &err) < 0) {
        die("start", &err);
    }
    if (death->cut_at_end) {
        vfs_fault_add(&death->rule);
    }
    if (death->cut_change > 0) {
        vfs_fault_add(&(struct vfs_rule){.ops = VFS_CHANGE, .file = "", .nth = death->cut_change, .action = VFS_CUT});
    }
    while (l->handed_in < until) {
        struct ledger_op op;
        int k = l->handed_in, rc = 0;
        ledger_op(l, k, &op);
        l->handed_in = k + 1;
        switch (op.kind) {
        case LEDGER_WAIT:
            rc = world_wait(&w, NULL, &err);
            break;
        case LEDGER_ADVANCE:
            l->clock += op.ms;
            rc = world_advance(&w, op.ms, &err);
            break;
        case LEDGER_FLUSH:
            world_flush(&w);
            rc = world_wait(&w, NULL, &err);
            break;
        case LEDGER_RESTART:
            rc = world_wait(&w, NULL, &err);
            world_stop(&w);
            rc = rc < 0 ? rc : world_start(&w, &err);
            break;
        default:
            hand_in(&w, l, k, &op);
        }
        if (rc < 0 && !death->cut_at_end) {
            die("workload", &err);
        }
        if (w.store == NULL && world_start(&w, &err) < 0) {
            die("start after a fault", &err);
        }
    }
    if (world_wait(&w, NULL, &err) < 0 && !death->cut_at_end) {
        die("workload", &err);
    }
    if (death->cut_at_end) {
        /* Time for what failed to be tried again. */
        for (int i = 0; i < 4; i++) {
            l->clock += 10 * 60 * 1000;
            world_advance(&w, 10 * 60 * 1000, &err);
        }
        vfs_power_cut();
        _exit(VFS_EXIT_CODE);
    }
    if (death->armed_at_flush) {
        vfs_fault_add(&death->rule);
        world_flush(&w);
        if (world_wait(&w, NULL, &err) < 0) {
            die("flush", &err);
        }
    }
    world_stop(&w);
    _exit(FINISHED);
}

/* Whether only sealed months have the item: one in ten thousand is hidden so. */
static bool hidden_by_error(const struct world *w, struct slice user, uint64_t hash)
{
    static struct place places[PLACES_MAX];
    struct err err = {0};
    int n = asker_why(w->asker, user, hash, places, &err);
    for (int i = 0; i < n; i++) {
        if (places[i].kind != PLACE_MONTH || places[i].error < 1e-6) {
            return false;
        }
    }
    return n > 0;
}

/* Compares every answer with the ledger. Returns how many are wrong. */
static int compare(const struct world *w, const struct ledger *l, const char *when)
{
    int wrong = 0;
    int by_error = 0;
    for (int user = 0; user < LEDGER_USERS; user++) {
        char id[ID_SIZE], item[ID_SIZE];
        uint64_t hashes[LEDGER_ITEMS];
        uint8_t bits[(LEDGER_ITEMS + 7) / 8];
        size_t n_unseen;
        struct err err;
        for (int i = 0; i < LEDGER_ITEMS; i++) {
            hashes[i] = hash_id(w->dedup.seed, item_id(i, item));
        }
        if (asker_filter(w->asker, user_id(user, id), hashes, LEDGER_ITEMS, bits, &n_unseen, &err) < 0) {
            die("question", &err);
        }
        for (int i = 0; i < LEDGER_ITEMS; i++) {
            bool may_be_seen, may_be_unseen, unseen = bits[i / 8] & (0x80 >> i % 8);
            ledger_expect(l, user, i, &may_be_seen, &may_be_unseen);
            if (!unseen && !may_be_seen && by_error < 2 && hidden_by_error(w, user_id(user, id), hashes[i])) {
                by_error++;
            } else if (unseen ? !may_be_unseen : !may_be_seen) {
                fprintf(stderr, "%s: user%d item%d is %s\n", when, user, i,
                        unseen ? "unseen, but its play was acknowledged"
                               : "seen, but it was never played or forgotten");
                wrong++;
            }
        }
    }
    return wrong;
}

static int unsound(const char *folder, const char *name)
{
    char path[600];
    sqlite3 *db;
    sqlite3_stmt *stmt = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const char *result = "can't be read";
    if (sqlite3_open(path, &db) == SQLITE_OK &&
        sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW) {
        result = (const char *)sqlite3_column_text(stmt, 0);
    }
    int bad = strcmp(result, "ok") != 0;
    if (bad) {
        fprintf(stderr, "%s: %s\n", name, result);
    }
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return bad;
}

/* Opens what a life has left, on the system's own VFS, and judges it. */
static void judge(const struct ledger *l, const char *folder)
{
    static struct world w;
    struct err err = {0};
    log_set_level(LOG_LEVEL_ERROR);
    clock_test_start(l->clock);
    world_init(&w, folder, NULL);
    seal_by_day(&w);
    if (world_start(&w, &err) < 0) {
        die("start after the cut", &err);
    }
    int wrong = compare(&w, l, "after the cut");
    world_flush(&w);
    if (world_wait(&w, NULL, &err) < 0) {
        die("flush after the cut", &err);
    }
    wrong += compare(&w, l, "after the cut and a flush");
    int problems = world_check(&w, &err);
    if (problems != 0) {
        fprintf(stderr, "check found %d problems\n", problems);
        wrong++;
    }
    world_stop(&w);
    wrong += unsound(folder, "staging.db") + unsound(folder, "history.db");
    _exit(wrong ? WRONG : FINISHED);
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *given = getenv(name);
    return given ? strtoull(given, NULL, 10) : otherwise;
}

static int ended(pid_t pid)
{
    int status = 0;
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int run_life(struct ledger *l, const char *folder, int until, const struct death *death)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        live(l, folder, until, death);
    }
    return ended(pid);
}

static int run_judge(const struct ledger *l, const char *folder)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        judge(l, folder);
    }
    return ended(pid);
}

/* One folder, lives of `step` operations each, each of which may end in death. Returns how the first one ended;
 * *wrong counts judgements that failed. */
static int trial(uint64_t seed, int lives, int step, const struct death *death, int *wrong)
{
    char folder[] = "/tmp/unseen-power-XXXXXX";
    assert_non_null(mkdtemp(folder));
    struct ledger *l = ledger_new(seed);
    l->clock = BEGIN_MS;
    int first = -1;
    for (int i = 0; i < lives; i++) {
        struct death mine = *death;
        mine.seed = death->seed + (uint64_t)i;
        int end = run_life(l, folder, (i + 1) * step, &mine);
        first = first < 0 ? end : first;
        if (end != FINISHED && end != VFS_EXIT_CODE) {
            fprintf(stderr, "seed %llu: the workload itself failed: %d\n", (unsigned long long)seed, end);
            *wrong += 1;
            break;
        }
        if (run_judge(l, folder) != FINISHED) {
            fprintf(stderr, "seed %llu, death at %s %llu of life %d\n", (unsigned long long)seed,
                    death->rule.ops == VFS_SYNC ? "sync" : "change", (unsigned long long)death->rule.nth, i + 1);
            *wrong += 1;
            break;
        }
    }
    ledger_free(l);
    world_remove_folder(folder);
    return first;
}

static void cut_at_every_sync(void **state)
{
    (void)state;
    int wrong = 0, cuts = 0;
    const uint64_t stride = from_environment("UNSEEN_POWER_STRIDE", 1);
    struct death death = {.rule = {.ops = VFS_SYNC, .file = "", .nth = 0, .action = VFS_CUT}, .power = true};
    do {
        death.rule.nth += stride;
        death.seed = death.rule.nth * 7919;
        cuts++;
    } while (trial(1, 1, 90, &death, &wrong) == VFS_EXIT_CODE && wrong == 0);
    print_message("%d cuts at syncs\n", cuts - 1);
    assert_int_equal(wrong, 0);
    assert_true((uint64_t)cuts * stride > 20);
}

/* A sync fails once, the store goes on, and some time later the power fails. What the kernel dropped after the failed
 * sync must have been written anew, or never have been acknowledged. */
static void fail_syncs(bool drops)
{
    static const char *const files[] = {"staging.db-wal", "staging.db", "history.db-wal", "history.db"};
    int wrong = 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        for (uint64_t nth = 1; nth <= 12; nth += from_environment("UNSEEN_POWER_STRIDE", 1)) {
            struct death death = {
                .rule = {.ops = VFS_SYNC, .file = files[i], .nth = nth + nth * nth / 6, .action = VFS_EIO},
                .power = true,
                .drops = drops,
                .cut_at_end = true,
                .seed = nth,
            };
            int before = wrong;
            trial(nth, 1, 90, &death, &wrong);
            if (wrong > before) {
                fprintf(stderr, "after sync %llu of %s had failed\n", (unsigned long long)death.rule.nth, files[i]);
            }
        }
    }
    assert_int_equal(wrong, 0);
}

static void cut_after_a_failed_sync(void **state)
{
    (void)state;
    fail_syncs(false);
    fail_syncs(true); /* what was to be synced can't even be read any more */
}

/* The power fails at any moment after the sync that failed: also in the middle of what is done about it. */
static void cut_soon_after_a_failed_sync(void **state)
{
    (void)state;
    static const char *const files[] = {"staging.db-wal", "history.db-wal"};
    int wrong = 0;
    for (uint64_t i = 0; i < 2 * from_environment("UNSEEN_POWER_CUTS", 100); i++) {
        struct death death = {
            .rule = {.ops = VFS_SYNC, .file = files[i % 2], .nth = 1 + i * 7919 % 11, .action = VFS_EIO},
            .power = true,
            .drops = i % 4 >= 2,
            .cut_at_end = true,
            .cut_change = 1 + i * 2654435761U % 700,
            .seed = i,
        };
        trial(i % 20, 1, 90, &death, &wrong);
    }
    assert_int_equal(wrong, 0);
}

static int random_cuts(int n, bool lying)
{
    int wrong = 0;
    for (int i = 0; i < n && (wrong == 0 || lying); i++) {
        struct death death = {
            .rule = {.ops = VFS_CHANGE, .file = "", .nth = 1 + ((uint64_t)i * 2654435761U) % 600, .action = VFS_CUT},
            .power = true,
            .lying = lying,
            .seed = (uint64_t)i,
        };
        trial((uint64_t)i + 100, 3, 60, &death, &wrong);
    }
    return wrong;
}

static void cut_at_random_moments(void **state)
{
    (void)state;
    assert_int_equal(random_cuts((int)from_environment("UNSEEN_POWER_CUTS", 100), false), 0);
}

/* The test sees what it is there for: with syncs that do nothing, plays are lost. */
static void losses_are_noticed_when_syncs_do_nothing(void **state)
{
    (void)state;
    int terminal = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
    assert_true(terminal >= 0 && null >= 0 && dup2(null, STDERR_FILENO) >= 0);
    int wrong = random_cuts(12, true);
    assert_true(dup2(terminal, STDERR_FILENO) >= 0);
    close(terminal);
    close(null);
    assert_true(wrong > 0);
}

static void die_at_every_step_of_a_flush(enum vfs_action how)
{
    int wrong = 0, deaths = 0;
    const uint64_t stride = from_environment("UNSEEN_POWER_STRIDE", 1);
    struct death death = {
        .rule = {.ops = VFS_CHANGE, .file = "", .nth = 0, .action = how},
        .power = how == VFS_CUT,
        .armed_at_flush = true,
    };
    do {
        death.rule.nth += stride;
        death.seed = death.rule.nth * 104729;
        deaths++;
    } while (trial(3, 1, 40, &death, &wrong) == VFS_EXIT_CODE && wrong == 0);
    print_message("%d steps\n", deaths - 1);
    assert_int_equal(wrong, 0);
    assert_true((uint64_t)deaths * stride > 10);
}

static void killed_at_every_step_of_a_flush(void **state)
{
    (void)state;
    die_at_every_step_of_a_flush(VFS_EXIT);
}

static void cut_at_every_step_of_a_flush(void **state)
{
    (void)state;
    die_at_every_step_of_a_flush(VFS_CUT);
}

/* --- one merge, at each of its steps --- */

enum { MERGED = 6, OWN = MERGED, BOTH }; /* items of `from`; of `into`; together */

/* Of `from` the half is in history, and one item was only sent. */
static void begin_merge(struct world *w)
{
    char item[ID_SIZE];
    struct err err = {0};
    for (int i = 0; i <= OWN; i++) {
        struct slice id = item_id(i, item);
        const struct world_event e = {.kind = i == 1 ? STORE_DELIVERY : STORE_PLAY,
                                      .at_ms = dedup_stamp(&w->dedup),
                                      .user = slice_str(i < MERGED ? "from" : "into"),
                                      .items = &id,
                                      .n = 1};
        world_record(w, &e, 1, NULL, NULL);
        if (i == MERGED / 2) {
            world_flush(w);
        }
    }
    if (world_wait(w, NULL, &err) < 0) {
        die("plays", &err);
    }
}

static void live_merge(volatile char *acknowledged, const char *folder, const struct death *death)
{
    static struct world w;
    struct err err = {0};
    vfs_fault_register();
    log_set_level(LOG_LEVEL_ERROR);
    clock_test_start(BEGIN_MS);
    if (death->power) {
        vfs_power_start(death->seed, false);
    }
    world_init(&w, folder, VFS_FAULT_NAME);
    if (world_start(&w, &err) < 0) {
        die("start", &err);
    }
    begin_merge(&w);
    vfs_fault_add(&death->rule);
    world_merge(&w, slice_str("from"), slice_str("into"), true, acknowledge, (void *)(uintptr_t)acknowledged);
    if (world_wait(&w, NULL, &err) < 0) {
        die("merge", &err);
    }
    world_stop(&w);
    _exit(FINISHED);
}

static unsigned seen_of(const struct world *w, const char *user)
{
    uint64_t hashes[BOTH];
    uint8_t bits[1];
    size_t n_unseen;
    char item[ID_SIZE];
    struct err err;
    for (int i = 0; i < BOTH; i++) {
        hashes[i] = hash_id(w->dedup.seed, item_id(i, item));
    }
    if (asker_filter(w->asker, slice_str(user), hashes, BOTH, bits, &n_unseen, &err) < 0) {
        die("question", &err);
    }
    return ~(unsigned)bits[0] >> (8 - BOTH) & ((1U << BOTH) - 1);
}

/* Either nothing was done, or both: never is one forgotten whose plays are not the other one's. */
static int judge_users(const struct world *w, bool acknowledged, const char *when)
{
    const unsigned all = (1U << BOTH) - 1, own = 1, from = seen_of(w, "from"), into = seen_of(w, "into");
    bool done = from == 0 && into == all, undone = from == all - own && into == own;
    if (done || (undone && !acknowledged)) {
        return 0;
    }
    fprintf(stderr, "%s: of from %x is seen, of into %x%s\n", when, from, into, acknowledged ? ", acknowledged" : "");
    return 1;
}

static void judge_merge(bool acknowledged, const char *folder)
{
    static struct world w;
    struct err err = {0};
    log_set_level(LOG_LEVEL_ERROR);
    clock_test_start(BEGIN_MS);
    world_init(&w, folder, NULL);
    if (world_start(&w, &err) < 0) {
        die("start after the death", &err);
    }
    int wrong = judge_users(&w, acknowledged, "after the death");
    world_flush(&w);
    if (world_wait(&w, NULL, &err) < 0) {
        die("flush after the death", &err);
    }
    wrong += judge_users(&w, acknowledged, "after the death and a flush");
    wrong += world_check(&w, &err) != 0;
    world_stop(&w);
    wrong += unsound(folder, "staging.db") + unsound(folder, "history.db");
    _exit(wrong ? WRONG : FINISHED);
}

static int merge_trial(const struct death *death, int *wrong)
{
    char folder[] = "/tmp/unseen-power-XXXXXX";
    assert_non_null(mkdtemp(folder));
    struct ledger *l = ledger_new(1);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        live_merge(l->acknowledged, folder, death);
    }
    int end = ended(pid);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        judge_merge(l->acknowledged[0] != 0, folder);
    }
    bool good = (end == FINISHED || end == VFS_EXIT_CODE) && ended(pid) == FINISHED;
    *wrong += !good;
    ledger_free(l);
    world_remove_folder(folder);
    return end;
}

static void die_at_every_step_of_a_merge(enum vfs_action how)
{
    int wrong = 0;
    struct death death = {.rule = {.ops = VFS_CHANGE, .file = "", .nth = 0, .action = how}, .power = how == VFS_CUT};
    do {
        death.rule.nth++;
        death.seed = death.rule.nth * 104729;
    } while (merge_trial(&death, &wrong) == VFS_EXIT_CODE && wrong == 0);
    print_message("%llu steps\n", (unsigned long long)death.rule.nth - 1);
    assert_int_equal(wrong, 0);
    assert_true(death.rule.nth > 15);
}

static void killed_at_every_step_of_a_merge(void **state)
{
    (void)state;
    die_at_every_step_of_a_merge(VFS_EXIT);
}

static void cut_at_every_step_of_a_merge(void **state)
{
    (void)state;
    die_at_every_step_of_a_merge(VFS_CUT);
}

int main(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    atomic_store(&part_rows, PART_ROWS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_at_every_sync),
        cmocka_unit_test(cut_at_random_moments),
        cmocka_unit_test(cut_after_a_failed_sync),
        cmocka_unit_test(cut_soon_after_a_failed_sync),
        cmocka_unit_test(losses_are_noticed_when_syncs_do_nothing),
        cmocka_unit_test(killed_at_every_step_of_a_flush),
        cmocka_unit_test(cut_at_every_step_of_a_flush),
        cmocka_unit_test(killed_at_every_step_of_a_merge),
        cmocka_unit_test(cut_at_every_step_of_a_merge),
    };
    return cmocka_run_group_tests_name("power", tests, NULL, NULL);
}
