/* A folder is never refused for what a power cut or a kill has made of it: at every step of a first start, a forget, a
 * flush, a backup, a close, a start with fewer slots, and then at some step of the start after that. What was
 * acknowledged is seen.
 *
 * Each life is a process of its own, as in test_power.c. UNSEEN_POWER_STRIDE: only every so many'th step is tried
 * (3), UNSEEN_POWER_CUTS: ten times as many as there are cuts of each kind at a change of mode (100); at least one is.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/admin.h"
#include "tests/lib/load_wait.h"
#include "tests/lib/vfs_fault.h"
#include "tests/lib/vfs_power.h"
#include "tests/lib/world.h"

enum { FINISHED = 0, WRONG = 1, USERS = 4, PLAYS = 40, ID_SIZE = 16, FEWER_SLOTS = 3 };
static const int64_t BEGIN_MS = INT64_C(1795255200000); /* 2026-11-21T10:00Z */

/* Shared with the lives. */
struct migration_state {
    int played;        /* plays that were handed in so far */
    bool acked[PLAYS]; /* and acknowledged */
    bool forgotten;    /* the forget of user 0 was handed in: what he played before may be gone */
    int before_forget;
};

static struct migration_state *migration_state;

static void die(const char *what, const struct err *err)
{
    fprintf(stderr, "%s: %s\n", what, err->text);
    _exit(WRONG);
}

static struct slice id_of(const char *word, int n, char out[ID_SIZE])
{
    return slice_of(out, (size_t)snprintf(out, ID_SIZE, "%s%d", word, n));
}

static void acknowledge(struct world_op *op)
{
    if (op->err.code == 0) {
        *(volatile bool *)op->arg = true;
    }
}

static void settle(struct world *w)
{
    struct err err = {0};
    if (world_wait(w, NULL, &err) < 0) {
        die("workload", &err);
    }
}

static void play(struct world *w, int n)
{
    for (int i = 0; i < n && migration_state->played < PLAYS; i++) {
        char user[ID_SIZE], item[ID_SIZE];
        int k = migration_state->played++;
        struct slice items = id_of("item", k, item);
        const struct world_event event = {.kind = STORE_PLAY,
                                          .at_ms = dedup_stamp(&w->dedup),
                                          .user = id_of("user", k % USERS, user),
                                          .items = &items,
                                          .n = 1};
        world_record(w, &event, 1, acknowledge, &migration_state->acked[k]);
        settle(w);
    }
}

static void flush(struct world *w)
{
    world_flush(w);
    settle(w);
}

static void forget(struct world *w)
{
    char user[ID_SIZE];
    migration_state->before_forget = migration_state->played;
    migration_state->forgotten = true;
    world_forget(w, id_of("user", 0, user), NULL, 0, NULL, NULL);
    settle(w);
}

static void backup_done(struct store_backup *request)
{
    sem_post(request->owner);
}

static void back_up(struct world *w, const char *folder)
{
    char to[64];
    sem_t ended;
    sem_init(&ended, 0, 0);
    snprintf(to, sizeof to, "%s-backup", folder);
    struct store_backup request = {.folder = to, .done = backup_done, .owner = &ended};
    w->store->admin->backup(w->store, &request);
    sem_wait(&ended);
    sem_destroy(&ended);
}

static void start(struct world *w, const char *when)
{
    struct err err = {0};
    if (world_start(w, &err) < 0) {
        die(when, &err);
    }
}

static void quiet(void)
{
    log_set_level(LOG_LEVEL_ERROR);
    clock_test_start(BEGIN_MS);
}

/* In the second of two lives there are fewer slots than there were. */
static void live(const char *folder, const struct vfs_rule *death, uint64_t seed, bool second)
{
    static struct world w;
    quiet();
    vfs_fault_register();
    if (death->action == VFS_CUT) {
        vfs_power_start(seed, false);
    }
    vfs_fault_add(death);
    world_init(&w, folder, VFS_FAULT_NAME);
    w.cfg.slots = second ? FEWER_SLOTS : w.cfg.slots;
    start(&w, second ? "start after a cut" : "first start");
    play(&w, USERS);
    flush(&w);
    play(&w, USERS);
    forget(&w);
    if (death->action == VFS_EXIT && !second) {
        back_up(&w, folder);
    }
    play(&w, 2);
    world_stop(&w);
    start(&w, "start after a stop");
    play(&w, 2);
    world_stop(&w);
    _exit(FINISHED);
}

static int lost(const struct world *w)
{
    int wrong = 0;
    for (int k = 0; k < migration_state->played; k++) {
        char user[ID_SIZE], item[ID_SIZE];
        uint64_t hash = hash_id(w->dedup.seed, id_of("item", k, item));
        uint8_t bits[1];
        size_t n_unseen;
        struct err err = {0};
        if (asker_filter(w->asker, id_of("user", k % USERS, user), &hash, 1, bits, &n_unseen, &err) < 0) {
            die("question", &err);
        }
        bool may_be_gone = migration_state->forgotten && k % USERS == 0 && k < migration_state->before_forget;
        if (n_unseen > 0 && migration_state->acked[k] && !may_be_gone) {
            fprintf(stderr, "item%d is unseen, but its play was acknowledged\n", k);
            wrong++;
        }
    }
    return wrong;
}

static void judge(const char *folder)
{
    static struct world w;
    struct err err = {0};
    quiet();
    world_init(&w, folder, NULL);
    start(&w, "start, to judge");
    int wrong = lost(&w);
    flush(&w);
    wrong += lost(&w);
    if (world_check(&w, &err) != 0) {
        wrong++;
    }
    world_stop(&w);
    _exit(wrong ? WRONG : FINISHED);
}

static int ended(pid_t pid)
{
    int status = 0;
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int run_life(const char *folder, const struct vfs_rule *death, uint64_t seed, bool second)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        live(folder, death, seed, second);
    }
    return ended(pid);
}

static int run_judge(const char *folder)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        judge(folder);
    }
    return ended(pid);
}

static void remove_backup(const char *folder)
{
    char path[64];
    snprintf(path, sizeof path, "%s-backup", folder);
    if (access(path, F_OK) == 0) {
        world_remove_folder(path);
    }
}

/* A life that ends as it is said, another one that ends at a step of its own, and the judgement. Returns how the first
 * one ended. */
static int trial(const struct vfs_rule *death, uint64_t seed, int *wrong)
{
    char folder[] = "/tmp/unseen-restart-XXXXXX";
    assert_non_null(mkdtemp(folder));
    memset(migration_state, 0, sizeof *migration_state);
    int first = run_life(folder, death, seed, false);
    const struct vfs_rule next = {
        .ops = VFS_CHANGE, .file = "", .nth = 1 + seed * 2654435761U % 120, .action = death->action};
    int second = first != WRONG ? run_life(folder, &next, seed + 1, true) : WRONG;
    if (first == WRONG || (second != VFS_EXIT_CODE && second != FINISHED) || run_judge(folder) != FINISHED) {
        fprintf(stderr, "%s at step %llu of \"%s\", then at step %llu, seed %llu: %d, %d\n",
                death->action == VFS_CUT ? "cut" : "killed", (unsigned long long)death->nth, death->file,
                (unsigned long long)next.nth, (unsigned long long)seed, first, second);
        *wrong += 1;
    }
    remove_backup(folder);
    world_remove_folder(folder);
    return first;
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *given = getenv(name);
    return given != NULL ? strtoull(given, NULL, 10) : otherwise;
}

static void at_every_step(enum vfs_action how)
{
    const uint64_t stride = from_environment("UNSEEN_POWER_STRIDE", 3);
    struct vfs_rule death = {.ops = VFS_CHANGE, .file = "", .nth = 1, .action = how};
    int wrong = 0;
    while (trial(&death, death.nth * 104729 + from_environment("UNSEEN_POWER_SEED", 0), &wrong) == VFS_EXIT_CODE &&
           wrong < 10) {
        death.nth += stride;
    }
    print_message("%llu steps\n", (unsigned long long)death.nth);
    assert_int_equal(wrong, 0);
    assert_true(death.nth > 100);
}

static void cut_at_every_step(void **state)
{
    (void)state;
    at_every_step(VFS_CUT);
}

static void killed_at_every_step(void **state)
{
    (void)state;
    at_every_step(VFS_EXIT);
}

/* A file enters and leaves WAL mode by a rollback journal, which a cut may leave in any shape. */
static void cut_while_a_file_changes_its_mode(void **state)
{
    (void)state;
    static const char *const files[] = {"history.db-journal", "staging.db-journal"};
    const uint64_t cuts = from_environment("UNSEEN_POWER_CUTS", 100) / 10, n = cuts > 0 ? cuts : 1;
    int wrong = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct vfs_rule death = {.ops = VFS_SYNC, .file = files[i], .nth = 1, .action = VFS_CUT};
        bool met = true;
        for (; met && wrong == 0; death.nth++) {
            for (uint64_t seed = 0; seed < n && met; seed++) {
                met = trial(&death, seed, &wrong) == VFS_EXIT_CODE;
            }
        }
        assert_true(death.nth > 6);
    }
    assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    migration_state = mmap(NULL, sizeof *migration_state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (migration_state == MAP_FAILED) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_at_every_step),
        cmocka_unit_test(killed_at_every_step),
        cmocka_unit_test(cut_while_a_file_changes_its_mode),
    };
    return cmocka_run_group_tests_name("restart", tests, NULL, NULL);
}
