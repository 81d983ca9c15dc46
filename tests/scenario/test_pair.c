/* A primary and its replica, when the power fails on either side or on both, and when the primary is killed between any
 * two steps of what it does: plays, flushes, forgets over two files, and users that are brought in.
 *
 * Each life is a process of its own with both stores. One of them, or both, lies on the disk that forgets
 * (tests/lib/vfs_power.h) or is killed at its n-th change; the other then ends as by kill -9. A second process opens
 * what is left and judges: the replica has nothing that the primary hasn't; what the replica had confirmed is there
 * without the primary; and once the rest is followed both are the same, and as a ledger says.
 *
 * UNSEEN_PAIR_CUTS says how many changes at most are tried of each kind, evenly (25; 0: each of them).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/log.h"
#include "dedup/role.h"
#include "replica/clone_mark.h"
#include "replica/event.h"
#include "replica/follower_impl.h"
#include "store/copy.h"
#include "store/positions.h"
#include "tests/lib/store_calls.h"
#include "tests/lib/vfs_power.h"

enum {
    WRONG = 1,
    RUNS_MAX = 8,
    OPS = 44,
    USERS = 4,
    ITEMS = 12,
    READ_EVENTS = 64,
    SNAPSHOT_MAX = 4096,
    CUTS = 25,
    ITEM_TEXT = 16
};
static const char *const users[USERS] = {"ann", "bob", "moved", "gone"};

enum side { PRIMARY = 1, REPLICA = 2, BOTH = 3 };
enum word { NEVER_SAID, MAY_BE, SEEN, UNSEEN };

/* What outlives a life: shared memory. */
struct ledger {
    volatile int next_op;
    volatile uint8_t words[USERS][ITEMS];     /* what was answered by the primary, enum word */
    volatile uint8_t confirmed[USERS][ITEMS]; /* and what the replica had, too */
    volatile int n_runs;
    volatile uint64_t node, runs[RUNS_MAX];
    char snapshot[SNAPSHOT_MAX]; /* of the user who is brought in */
    volatile size_t snapshot_len;
    volatile bool importing;   /* it was begun, and not answered */
    volatile uint64_t changes; /* of a file, in a life that ended well */
};

struct death {
    enum side side;
    enum vfs_action action; /* VFS_CUT or VFS_EXIT */
    uint64_t nth;           /* change of a file of that side; 0: it lives on */
    uint64_t seed;
};

struct pair {
    struct store_fixture primary, replica;
    struct dedup dedup;
    struct replica r;
    struct follower follower;
    struct ledger *l;
    char consumer[FEED_NAME_MAX];
};

static void die(const char *what, const struct err *err)
{
    fprintf(stderr, "%s: %s\n", what, err != NULL ? err->text : "");
    fflush(NULL);
    _exit(WRONG);
}

static const char *item_of(int item, char out[ITEM_TEXT])
{
    snprintf(out, ITEM_TEXT, "i%d", item);
    return out;
}

/* --- the two stores --- */

static void open_one(struct store_fixture *f, const char *folder, const char *vfs)
{
    struct err err = {0};
    config_defaults(&f->cfg);
    snprintf(f->cfg.data, sizeof f->cfg.data, "%s", folder);
    f->cfg.min_free = 0;
    f->cfg.hash_seed_given = true;
    f->cfg.hash_seed = SEED;
    if (sqlite_store_open(&f->cfg, &(struct sqlite_store_options){.vfs = vfs}, &f->store, &err) < 0 ||
        f->store->ops->reader_open(f->store, &f->reader, &err) < 0) {
        die("open", &err);
    }
}

static struct store_node node_of(struct store_fixture *f)
{
    struct store_node node;
    f->store->node->get(f->store, &node);
    return node;
}

/* The furthest, of all runs that the primary has had. */
static struct feed_cursor cursor_of(struct pair *p)
{
    struct feed_cursor c = {.node = p->l->node};
    for (int i = 0; i < p->l->n_runs; i++) {
        char name[CLONE_MARK_TEXT];
        int64_t next;
        if (p->replica.store->positions->find(p->replica.store, slice_str(clone_feed_name(c.node, p->l->runs[i], name)),
                                              &next) == 1 &&
            (c.run == 0 || (uint64_t)next >= c.seq)) {
            c.run = p->l->runs[i];
            c.seq = (uint64_t)next;
        }
    }
    return c;
}

static void enlist(struct pair *p)
{
    int done = 0;
    struct err err = {0};
    struct feed_enlist e = {.call = {.done = call_done, .owner = &done}, .consumer = p->consumer};
    p->primary.store->feed->enlist(p->primary.store, &e);
    wait_flag(&done);
    p->follower.cursor = cursor_of(p);
    if (e.call.err.code < 0) {
        die("enlist", &e.call.err);
    }
    if (p->follower.cursor.run == 0) {
        p->follower.cursor = (struct feed_cursor){p->l->node, 0, e.cursor};
        if (follower_apply(&p->follower, node_of(&p->primary).run, e.cursor, 0, &err) < 0) {
            die("the first position", &err);
        }
    }
}

static void open_pair(struct pair *p, const char *folder, const char *primary_vfs, const char *replica_vfs)
{
    char path[64];
    snprintf(path, sizeof path, "%s/primary", folder);
    open_one(&p->primary, path, primary_vfs);
    snprintf(path, sizeof path, "%s/replica", folder);
    open_one(&p->replica, path, replica_vfs);
    dedup_init(&p->dedup, p->replica.store, &p->replica.cfg);
    p->r = (struct replica){.dedup = &p->dedup, .store = p->replica.store, .cfg = &p->replica.cfg};
    reach_init(&p->r.reach, &p->replica.cfg, "", p->replica.cfg.replica_of);
    p->follower.r = &p->r;
    pthread_mutex_init(&p->follower.mutex, NULL);
    pthread_cond_init(&p->follower.more, NULL);
    task_init(&p->follower.task, &p->follower.mutex);
    snprintf(p->follower.address, sizeof p->follower.address, "the primary");
    snprintf(p->consumer, sizeof p->consumer, FEED_REMOTE "%016" PRIx64, node_of(&p->replica).node);
    p->l->node = node_of(&p->primary).node;
    p->l->runs[p->l->n_runs] = node_of(&p->primary).run;
    p->l->n_runs++;
    enlist(p);
}

static void close_pair(struct pair *p)
{
    close_store(&p->replica);
    close_store(&p->primary);
}

/* --- following, by the follower's own code --- */

/* As REPLICA USER answers: what is staged is flushed before. */
static void bring_user(struct pair *p, struct slice user)
{
    struct buf bytes = {0};
    struct err err = {0};
    uint8_t verdict;
    int done = 0;
    flush(&p->primary);
    int rc = p->primary.store->copy->user(p->primary.reader, user, &bytes, &err);
    if (rc < 0) {
        die("a user's copy", &err);
    }
    struct slice snapshot = buf_slice(&bytes);
    struct store_import import = {.call = {.done = call_done, .owner = &done}, &snapshot, 1, &verdict, 0};
    if (rc == 1) {
        p->replica.store->ops->import(p->replica.store, &import);
        wait_flag(&done);
    }
    if (import.call.err.code < 0) {
        die("a user's import", &import.call.err);
    }
    buf_free(&bytes);
}

static void apply(struct pair *p, const struct feed_event *events, int n, uint64_t to)
{
    struct event_state state = {0};
    struct err err = {0};
    buf_clear(&p->follower.events);
    for (int i = 0; i < n; i++) {
        if (event_write(&state, &events[i], &p->follower.events) < 0) {
            die("no memory", NULL);
        }
    }
    if (follower_apply(&p->follower, node_of(&p->primary).run, to, n, &err) < 0) {
        die("apply", &err);
    }
}

/* All that the primary has, durably. */
static void follow(struct pair *p)
{
    struct feed_event events[READ_EVENTS];
    struct arena arena = {0};
    struct err err = {0};
    int n;
    for (;;) {
        uint64_t before = p->follower.cursor.seq;
        n = p->primary.store->feed->read(p->primary.reader, p->consumer, before, events, READ_EVENTS, &arena, &err);
        if (n <= 0) {
            break;
        }
        int from = 0;
        for (int i = 0; i < n; i++) {
            if (events[i].kind == FEED_USER) { /* what comes before is durable by then, and no position is moved */
                if (i > from) {
                    apply(p, events + from, i - from, events[i - 1].seq);
                }
                bring_user(p, events[i].user);
                apply(p, NULL, 0, events[i].seq);
                from = i + 1;
            }
        }
        if (n > from) {
            apply(p, events + from, n - from, events[n - 1].seq);
        }
        p->primary.store->feed->done(p->primary.store, p->consumer, p->follower.cursor.seq, 0, 0);
        arena_reset(&arena);
    }
    if (n < 0) {
        die("the feed", &err);
    }
    arena_free(&arena);
}

/* --- the workload --- */

static void say(struct ledger *l, int user, int item, enum word word)
{
    l->words[user][item] = (uint8_t)word;
}

static void confirm(struct ledger *l)
{
    for (int i = 0; i < USERS * ITEMS; i++) {
        l->confirmed[i / ITEMS][i % ITEMS] = l->words[i / ITEMS][i % ITEMS];
    }
}

/* Until it is answered it may be either. */
static void doubt(struct ledger *l, int user, int item, enum word word)
{
    for (int i = item < 0 ? 0 : item; i < (item < 0 ? ITEMS : item + 1); i++) {
        bool known = l->words[user][i] == word || (word == UNSEEN && l->words[user][i] == NEVER_SAID);
        l->words[user][i] = known ? l->words[user][i] : MAY_BE;
        l->confirmed[user][i] = known ? l->confirmed[user][i] : MAY_BE;
    }
}

static void play_some(struct pair *p, int k, enum store_kind kind)
{
    char id[ITEM_TEXT];
    for (int n = 0; n < 3; n++) {
        int user = (k + n) % USERS, item = (k * 5 + n) % ITEMS;
        doubt(p->l, user, item, SEEN);
        if (record_at(&p->primary, kind, clock_wall_ms(), users[user], item_of(item, id)) < 0) {
            die("a play", NULL);
        }
        say(p->l, user, item, SEEN);
    }
}

static void forget_some(struct pair *p, int user, int item)
{
    char id[ITEM_TEXT];
    doubt(p->l, user, item, UNSEEN);
    if (forget(&p->primary, users[user], item < 0 ? NULL : item_of(item, id)) < 0) {
        die("a forget", NULL);
    }
    for (int i = 0; i < ITEMS; i++) {
        if (item < 0 || item == i) {
            say(p->l, user, i, UNSEEN);
        }
    }
}

/* Another folder's user: as this one was at the beginning. */
static void import_some(struct pair *p)
{
    struct slice snapshot = slice_of(p->l->snapshot, p->l->snapshot_len);
    uint8_t verdict;
    int done = 0;
    struct store_import import = {.call = {.done = call_done, .owner = &done}, &snapshot, 1, &verdict, 0};
    for (int i = 0; i < 3; i++) {
        doubt(p->l, 2, i, SEEN);
    }
    p->l->importing = true;
    p->primary.store->ops->import(p->primary.store, &import);
    wait_flag(&done);
    if (import.call.err.code < 0) {
        die("an import", &import.call.err);
    }
    p->l->importing = false;
    for (int i = 0; i < 3; i++) {
        say(p->l, 2, i, SEEN);
    }
}

static void work(struct pair *p, int k)
{
    switch (k % 11) {
    case 3:
        forget_some(p, k % 2, -1); /* "moved" is not: what is brought in of them would be older than that */
        break;
    case 5:
        forget_some(p, (k + 1) % USERS, (k * 7) % ITEMS);
        break;
    case 6:
        flush(k % 2 == 0 ? &p->primary : &p->replica);
        break;
    case 7:
        forget_some(p, 2, k % 3);
        break;
    case 8:
        import_some(p);
        break;
    case 9:
        forget_some(p, 3, -1); /* who is forgotten to the end */
        break;
    default:
        play_some(p, k, k % 2 == 0 ? STORE_PLAY : STORE_DELIVERY);
    }
}

/* The user who is brought in later, and how they look then. */
static void prepare(struct pair *p)
{
    struct buf bytes = {0};
    struct err err = {0};
    char id[ITEM_TEXT];
    for (int i = 0; i < 3; i++) {
        play(&p->primary, users[2], item_of(i, id));
    }
    flush(&p->primary);
    if (p->primary.store->copy->user(p->primary.reader, slice_str(users[2]), &bytes, &err) != 1 ||
        bytes.len > SNAPSHOT_MAX) {
        die("the user who is brought in", &err);
    }
    memcpy(p->l->snapshot, bytes.data, bytes.len);
    p->l->snapshot_len = bytes.len;
    buf_free(&bytes);
    follow(p);
    for (int i = 0; i < 3; i++) {
        say(p->l, 2, i, SEEN);
    }
    confirm(p->l);
}

/* --- lives --- */

static void quiet(void)
{
    log_set_level((enum log_level) - 1);
    clock_test_start(START);
    calendar_set_zone("UTC");
}

static void live(struct ledger *l, const char *folder, const struct death *death)
{
    static struct pair p;
    p.l = l;
    quiet();
    vfs_fault_register();
    if (death->action == VFS_CUT && death->nth > 0) {
        vfs_power_start(death->seed, false);
    }
    open_pair(&p, folder, death->side & PRIMARY ? VFS_FAULT_NAME : NULL, death->side & REPLICA ? VFS_FAULT_NAME : NULL);
    if (l->next_op == 0) {
        prepare(&p);
    }
    struct vfs_rule dies = {.ops = VFS_CHANGE, .file = "", .nth = death->nth, .action = death->action};
    int counting = death->nth > 0 ? vfs_fault_add(&dies) : -1;
    while (l->next_op < OPS) {
        int k = l->next_op;
        l->next_op = k + 1;
        work(&p, k);
        if (k % 3 != 0) { /* now and then it is behind */
            follow(&p);
            confirm(l);
        }
    }
    close_pair(&p);
    if (counting >= 0) {
        l->changes = vfs_fault_hits(counting);
    }
    _exit(0);
}

static int compare(struct store_fixture *f, volatile uint8_t words[USERS][ITEMS], const char *when)
{
    int wrong = 0;
    char id[ITEM_TEXT];
    for (int i = 0; i < USERS * ITEMS; i++) {
        int user = i / ITEMS, item = i % ITEMS;
        enum word word = words[user][item];
        bool is = seen(f, users[user], item_of(item, id));
        if (is ? word == UNSEEN || word == NEVER_SAID : word == SEEN) {
            fprintf(stderr, "%s: %s %s is %s\n", when, users[user], id, is ? "seen" : "unseen");
            wrong++;
        }
    }
    return wrong;
}

static int differ(struct pair *p, const char *when)
{
    int wrong = 0;
    char id[ITEM_TEXT];
    for (int i = 0; i < USERS * ITEMS; i++) {
        const char *user = users[i / ITEMS];
        bool here = seen(&p->primary, user, item_of(i % ITEMS, id)), there = seen(&p->replica, user, id);
        if (here != there) {
            fprintf(stderr, "%s: %s %s is %s on the primary alone\n", when, user, id, here ? "seen" : "unseen");
            wrong++;
        }
    }
    return wrong;
}

static void judge(struct ledger *l, const char *folder)
{
    static struct pair p;
    struct err err = {0};
    bool rolled_back = false;
    p.l = l;
    quiet();
    vfs_fault_register();
    open_pair(&p, folder, NULL, NULL);
    struct feed_cursor c = p.follower.cursor;
    int wrong = 0;
    if (p.primary.store->node->knows(p.primary.store, c.node, c.run, c.seq, &rolled_back) != 1) {
        fprintf(stderr, "the replica has %" PRIu64 " of a run, and the primary has not\n", c.seq);
        wrong++;
    }
    wrong += compare(&p.replica, l->confirmed, "the replica alone");
    wrong += compare(&p.primary, l->words, "the primary");
    if (l->importing) { /* what was not answered is repeated by whoever brings it: till then the feed may not tell */
        import_some(&p);
    }
    follow(&p);
    wrong += differ(&p, "having followed");
    wrong += compare(&p.replica, l->words, "the replica, having followed");
    flush(&p.primary);
    flush(&p.replica);
    wrong += differ(&p, "flushed");
    close_pair(&p);
    for (int i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", folder, i == 0 ? "primary" : "replica");
        if (sqlite_check_folder(path, false, found, NULL, NULL, &err) != 0) {
            fprintf(stderr, "check of the %s: %s\n", i == 0 ? "primary" : "replica", err.text);
            wrong++;
        }
    }
    fflush(NULL);
    _exit(wrong > 0 ? WRONG : 0);
}

static int ended(pid_t pid)
{
    int status = 0;
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* One death, then a judgement, then a life to the end of the workload, and another judgement. 0, or how many changes
 * the first life made if it lived on. */
static uint64_t trial(const struct death *death)
{
    char folder[] = "/tmp/unseen-pair-XXXXXX";
    assert_non_null(mkdtemp(folder));
    struct ledger *l = mmap(NULL, sizeof *l, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(l != MAP_FAILED);
    for (int i = 0; i < 2; i++) {
        struct death mine = *death;
        mine.nth = i == 0 ? death->nth : 0;
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            live(l, folder, &mine);
        }
        int how = ended(pid);
        pid = how == 0 || (i == 0 && how == VFS_EXIT_CODE) ? fork() : -1;
        if (pid == 0) {
            judge(l, folder);
        }
        if (pid < 0 || ended(pid) != 0) {
            fail_msg("side %d, action %d, change %" PRIu64 ", seed %" PRIu64
                     ", life %d, which ended with %d: see above",
                     death->side, death->action, death->nth, death->seed, i, how);
        }
    }
    uint64_t changes = l->changes;
    munmap(l, sizeof *l);
    remove_folder(folder);
    return changes;
}

static void at_each_change(enum side side, enum vfs_action action)
{
    const char *given = getenv("UNSEEN_PAIR_CUTS");
    uint64_t cuts = given != NULL ? strtoull(given, NULL, 10) : CUTS;
    /* None dies at the first: it tells how many changes a whole life makes. */
    struct death death = {.side = side, .action = action, .nth = UINT64_MAX, .seed = 1};
    uint64_t n = trial(&death), step = cuts == 0 || n < cuts ? 1 : n / cuts;
    assert_int_not_equal(n, 0);
    for (death.nth = 1; death.nth <= n; death.nth += step) {
        death.seed = death.nth;
        trial(&death);
    }
    print_message("%" PRIu64 " changes of a file in a life, every %" PRIu64 ". of them tried\n", n, step);
}

static void the_primarys_power_fails(void **state)
{
    (void)state;
    at_each_change(PRIMARY, VFS_CUT);
}

static void the_replicas_power_fails(void **state)
{
    (void)state;
    at_each_change(REPLICA, VFS_CUT);
}

static void the_power_of_both_fails(void **state)
{
    (void)state;
    at_each_change(BOTH, VFS_CUT);
}

static void the_primary_is_killed(void **state)
{
    (void)state;
    at_each_change(PRIMARY, VFS_EXIT);
}

static void the_replica_is_killed(void **state)
{
    (void)state;
    at_each_change(REPLICA, VFS_EXIT);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_primarys_power_fails), cmocka_unit_test(the_replicas_power_fails),
        cmocka_unit_test(the_power_of_both_fails),  cmocka_unit_test(the_primary_is_killed),
        cmocka_unit_test(the_replica_is_killed),
    };
    begin_tests(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
