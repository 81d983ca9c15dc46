/* What a clone copies, page by page: from a fake node, over a socket, into a fake store. A connection that is lost in
 * the middle leaves a mark, and the next run goes on there. Of pools each read and each write fails once. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "cli/replica/clone_copy.h"
#include "dedup/pool.h"
#include "replica/clone_mark.h"
#include "replica/pool_fetch.h"
#include "store/copy.h"
#include "store/pools.h"
#include "tests/lib/alloc.h"

enum { USERS = 20, PAGE_USERS = 3, POSITIONS = 7, PAGE_POSITIONS = 3, TOMBSTONES = 5, PAGE_TOMBSTONES = 2 };

/* --- the node that is copied --- */

static struct node {
    char path[64];
    int listener;
    int pages_left; /* of users, until it hangs up */
    bool backwards; /* it answers nonsense: a page that leads back */
    int replies;    /* of pools, */
    int hang_up_at; /* the last of which is cut off in the middle; 0: none is */
} node;

static bool read_line(FILE *in, char *out, size_t size)
{
    if (fgets(out, (int)size, in) == NULL) {
        return false;
    }
    out[strcspn(out, "\r\n")] = '\0';
    return true;
}

static int read_command(FILE *in, char words[][64])
{
    char line[64];
    if (!read_line(in, line, sizeof line)) {
        return 0;
    }
    int n = atoi(line + 1);
    for (int i = 0; i < n && i < 8; i++) {
        if (!read_line(in, line, sizeof line) || !read_line(in, words[i], 64)) {
            return 0;
        }
    }
    return n;
}

static void bulk(FILE *out, const char *text)
{
    fprintf(out, "$%zu\r\n%s\r\n", strlen(text), text);
}

static int name_position(int i, char out[32])
{
    static const char *const others[] = {"clone:0000000000000abc", "feed:0000000000000001:02", "promoted:at"};
    return snprintf(out, 32, "%s",
                    i < 3    ? others[i]
                    : i == 3 ? "topic/3"
                    : i == 4 ? "topic/4"
                    : i == 5 ? "topic/5"
                             : "topic/6");
}

static void answer_positions(FILE *out, const char *after)
{
    char name[32];
    int from = 0;
    while (after != NULL && !node.backwards && from < POSITIONS &&
           (name_position(from, name), strcmp(name, after)) <= 0) {
        from++;
    }
    int n = POSITIONS - from < PAGE_POSITIONS ? POSITIONS - from : PAGE_POSITIONS;
    fprintf(out, "*%d\r\n", n);
    for (int i = from; i < from + n; i++) {
        name_position(i, name);
        fprintf(out, "*2\r\n");
        bulk(out, name);
        fprintf(out, ":%d\r\n", i);
    }
}

static void answer_tombstones(FILE *out, int after)
{
    after = node.backwards ? 0 : after;
    int n = TOMBSTONES - after < PAGE_TOMBSTONES ? TOMBSTONES - after : PAGE_TOMBSTONES;
    fprintf(out, "*%d\r\n", n);
    for (int i = after + 1; i <= after + n; i++) {
        fprintf(out, "*3\r\n:%d\r\n:-7\r\n:%d\r\n", i, 1000 + i);
    }
}

static void answer_users(FILE *out, int64_t from)
{
    char text[32];
    int first = from < 0 ? 0 : (int)from;
    int n = USERS - first < PAGE_USERS ? USERS - first : PAGE_USERS;
    fprintf(out, "*%d\r\n", 1 + n);
    if (node.backwards && from > 0) {
        fprintf(out, ":0\r\n");
    } else if (first + n < USERS) {
        fprintf(out, ":%d\r\n", first + n);
    } else {
        fprintf(out, "_\r\n");
    }
    for (int i = first; i < first + n; i++) {
        snprintf(text, sizeof text, "u%d", i);
        bulk(out, text);
    }
}

/* Each letter is an item. */
static const struct {
    const char *name, *items;
} pools[] = {{"fresh", "abcde"}, {"long", "kjihgf"}, {"same", "xyz"}};
enum { POOLS = sizeof pools / sizeof *pools, PART_ITEMS = 2 };

static uint64_t version_of(const char *items)
{
    uint64_t version = 0;
    for (; *items != '\0'; items++) {
        version = hash_chain(version, slice_of(items, 1));
    }
    return version;
}

static void answer_pools(FILE *out)
{
    char version[POOL_VERSION_TEXT];
    fprintf(out, "*%d\r\n", POOLS);
    for (int i = 0; i < POOLS; i++) {
        fprintf(out, "*2\r\n");
        bulk(out, pools[i].name);
        bulk(out, pool_version_text(version_of(pools[i].items), version));
    }
}

static void answer_pool(FILE *out, const char *name, size_t from)
{
    char version[POOL_VERSION_TEXT];
    for (int i = 0; i < POOLS; i++) {
        if (strcmp(pools[i].name, name) == 0) {
            size_t all = strlen(pools[i].items), n = all - from < PART_ITEMS ? all - from : PART_ITEMS;
            fprintf(out, "*3\r\n");
            bulk(out, pool_version_text(version_of(pools[i].items), version));
            fprintf(out, ":%zu\r\n$%zu\r\n", all, 2 * n);
            for (size_t k = from; k < from + n; k++) {
                fprintf(out, "\1%c", pools[i].items[k]);
            }
            fprintf(out, "\r\n");
            return;
        }
    }
    fprintf(out, "_\r\n");
}

/* False: it is cut off. */
static bool answer_of_pools(FILE *out, char words[][64])
{
    char *text = NULL;
    size_t len = 0;
    FILE *whole = open_memstream(&text, &len);
    if (strcmp(words[1], "POOLS") == 0) {
        answer_pools(whole);
    } else {
        answer_pool(whole, words[2], (size_t)atoi(words[3]));
    }
    fclose(whole);
    bool cut = ++node.replies == node.hang_up_at;
    fwrite(text, 1, cut ? len / 2 : len, out);
    free(text);
    return !cut;
}

static void serve(int fd)
{
    FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
    static char words[8][64];
    for (int n; (n = read_command(in, words)) > 0;) {
        if (strcmp(words[0], "HELLO") == 0) {
            fprintf(out, "%%0\r\n");
        } else if (strcmp(words[1], "POSITIONS") == 0) {
            answer_positions(out, n == 4 ? words[3] : NULL);
        } else if (strcmp(words[1], "TOMBSTONES") == 0) {
            answer_tombstones(out, n == 5 ? atoi(words[2]) : 0);
        } else if (strncmp(words[1], "POOL", 4) == 0) {
            if (!answer_of_pools(out, words)) {
                break;
            }
        } else if (node.pages_left-- > 0) {
            answer_users(out, strtoll(words[2], NULL, 10));
        } else {
            break;
        }
        fflush(out);
    }
    fclose(in);
    fclose(out);
}

static void *run_node(void *arg)
{
    (void)arg;
    int fd = accept(node.listener, NULL, NULL);
    if (fd >= 0) {
        serve(fd);
    }
    return NULL;
}

/* --- the store that it comes into --- */

static struct fake {
    struct store store;
    int imported[USERS]; /* how often */
    int64_t positions[POSITIONS];
    int n_positions, n_tombstones, busy;
    int64_t mark;
} fake;

static void record(struct store *s, struct store_batch *batch)
{
    (void)s;
    for (size_t i = 0; i < batch->n_positions; i++) {
        const struct store_position *p = &batch->positions[i];
        if (p->source.data[0] == 'c') {
            fake.mark = p->next;
        } else {
            fake.positions[fake.n_positions++ % POSITIONS] = p->next;
        }
    }
    batch->done(batch);
}

static void import(struct store *s, struct store_import *import)
{
    (void)s;
    if (fake.busy > 0) {
        fake.busy--;
        err_set(&import->call.err, ERR_BUSY, "busy");
    }
    for (size_t i = 0; i < import->n && import->call.err.code == 0; i++) {
        struct slice user = import->snapshots[i];
        size_t number = 0;
        for (size_t j = 1; j < user.len; j++) {
            number = 10 * number + (size_t)(user.data[j] - '0');
        }
        fake.imported[number]++;
        import->verdicts[i] = IMPORT_DONE;
    }
    import->call.done(&import->call);
}

static void adopt(struct store *s, struct store_adopt *adopt)
{
    (void)s;
    for (size_t i = 0; i < adopt->n; i++) {
        fake.n_tombstones++;
        assert_int_equal(adopt->list[i].key, fake.n_tombstones);
        assert_int_equal((int64_t)adopt->list[i].item, -7);
        assert_int_equal(adopt->list[i].at_ms, 1000 + fake.n_tombstones);
    }
    adopt->call.done(&adopt->call);
}

/* --- its pools --- */

enum { KEPT_MAX = 5 };

static struct {
    struct {
        char name[16], items[16];
        bool there, spoilt; /* spoilt: it can't be read */
    } list[KEPT_MAX];
    int changes, fail_at, reads, opened;
    bool fail_open, fail_read;
} kept;

static int find_kept(struct slice name)
{
    int free_place = -1;
    for (int i = 0; i < KEPT_MAX; i++) {
        if (kept.list[i].there && slice_eq(name, slice_str(kept.list[i].name))) {
            return i;
        }
        free_place = !kept.list[i].there ? i : free_place;
    }
    assert_true(free_place >= 0);
    return free_place;
}

static void keep(const char *name, const char *items)
{
    int i = find_kept(slice_str(name));
    kept.list[i].there = true;
    snprintf(kept.list[i].name, sizeof kept.list[i].name, "%s", name);
    snprintf(kept.list[i].items, sizeof kept.list[i].items, "%s", items);
}

static void change_pool(struct store *s, struct store_pool_change *change)
{
    (void)s;
    const struct store_pool *pool = &change->pool;
    char name[16], items[16] = "";
    snprintf(name, sizeof name, "%.*s", (int)pool->name.len, pool->name.data);
    change->call.err = (struct err){0};
    if (++kept.changes == kept.fail_at) {
        err_set(&change->call.err, ERR_IO, "the disk failed");
    } else if (change->kind == STORE_POOL_DROP) {
        kept.list[find_kept(pool->name)].there = false;
    } else {
        assert_int_equal(change->kind, STORE_POOL_SET);
        for (size_t i = 0; i < pool->items.len; i += 2) {
            assert_int_equal(pool->items.data[i], 1);
            items[i / 2] = pool->items.data[i + 1];
        }
        assert_int_equal(pool->n, strlen(items));
        assert_true(pool->version == version_of(items));
        keep(name, items);
        kept.list[find_kept(pool->name)].spoilt = false;
    }
    change->call.done(&change->call);
}

static int each_pool(struct store_reader *reader,
                     int (*each)(void *arg, const struct store_pool *pool, struct err *err),
                     void (*bad)(void *arg, struct slice name, const char *what), void *arg, struct err *err)
{
    int rc = 0;
    (void)reader;
    kept.reads++;
    for (int i = 0; i < KEPT_MAX && rc == 0; i++) {
        struct slice name = slice_str(kept.list[i].name);
        if (kept.list[i].there && kept.list[i].spoilt) {
            bad(arg, name, "damaged");
        } else if (kept.list[i].there) {
            const struct store_pool pool = {.name = name, .version = version_of(kept.list[i].items)};
            rc = each(arg, &pool, err);
        }
    }
    return rc < 0 ? rc : kept.fail_read ? err_set(err, ERR_IO, "the disk can't be read") : 0;
}

static int open_reader(struct store *s, struct store_reader **reader, struct err *err)
{
    (void)s;
    kept.opened += !kept.fail_open;
    *reader = (struct store_reader *)(void *)&kept;
    return kept.fail_open ? err_set(err, ERR_IO, "no file could be opened") : 0;
}

static void close_reader(struct store_reader *reader)
{
    (void)reader;
    kept.opened--;
}

/* What an earlier clone has left: one that is the same, one of another version, one that can't be read, and one that is
 * gone there. */
static void begin_pools(void)
{
    memset(&kept, 0, sizeof kept);
    keep("same", "xyz");
    keep("long", "old");
    keep("fresh", "?");
    kept.list[find_kept(slice_str("fresh"))].spoilt = true;
    keep("gone", "g");
    node.replies = node.hang_up_at = 0;
}

static void expect_pools(void)
{
    int n = 0;
    for (int i = 0; i < POOLS; i++) {
        int at = find_kept(slice_str(pools[i].name));
        assert_true(kept.list[at].there && !kept.list[at].spoilt);
        assert_string_equal(kept.list[at].items, pools[i].items);
    }
    for (int i = 0; i < KEPT_MAX; i++) {
        n += kept.list[i].there;
    }
    assert_int_equal(n, POOLS);
    assert_int_equal(kept.opened, 0);
}

/* --- tests --- */

static int setup(void **state)
{
    (void)state;
    static const struct store_ops ops = {
        .record = record, .import = import, .reader_open = open_reader, .reader_close = close_reader};
    static const struct store_copy_ops copy = {.adopt = adopt};
    static const struct store_pools_ops pools_ops = {change_pool, each_pool};
    fake = (struct fake){.store = {.ops = &ops, .copy = &copy, .pools = &pools_ops}, .mark = INT64_MIN};
    node = (struct node){.pages_left = 1000};
    snprintf(node.path, sizeof node.path, "/tmp/unseen-clone-copy-%d", (int)getpid());
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", node.path);
    unlink(node.path);
    node.listener = socket(AF_UNIX, SOCK_STREAM, 0);
    return bind(node.listener, (const struct sockaddr *)&address, sizeof address) == 0 && listen(node.listener, 4) == 0
               ? 0
               : -1;
}

static int teardown(void **state)
{
    (void)state;
    close(node.listener);
    unlink(node.path);
    return 0;
}

/* One run of a clone's part, on a connection of its own. */
static int run(int (*part)(struct clone_copy *c, struct err *err), struct clone_copy *c, struct err *err)
{
    pthread_t thread;
    char address[80];
    struct other_node from = {.address = "there", .node = 0xabc, .protocol = POOL_FETCH_PROTOCOL};
    struct progress progress = {0};
    assert_int_equal(pthread_create(&thread, NULL, run_node, NULL), 0);
    snprintf(address, sizeof address, "unix:%s", node.path);
    const struct pipeline_how how = {.address = address, .effort = PIPELINE_REPEATS};
    assert_int_equal(pipeline_open(&how, &from.pipeline, err), 0);
    *c = (struct clone_copy){.from = &from, .to = &fake.store, .mark = fake.mark, .progress = &progress};
    int rc = part(c, err);
    other_node_close(&from);
    pthread_join(thread, NULL);
    return rc;
}

static void test_users(void **state)
{
    (void)state;
    struct clone_copy c;
    struct err err = {0};
    fake.busy = 1;
    assert_int_equal(run(clone_copy_users, &c, &err), 0);
    for (int i = 0; i < USERS; i++) {
        assert_int_equal(fake.imported[i], 1);
    }
    assert_int_equal(c.users, USERS);
}

static void test_users_go_on(void **state)
{
    (void)state;
    struct clone_copy c;
    struct err err = {0};
    for (int i = 0; i < 2; i++) {
        node.pages_left = 3;
        assert_int_equal(run(clone_copy_users, &c, &err), ERR_CLOSED);
    }
    assert_true(fake.mark > 0);
    node.pages_left = 1000;
    assert_int_equal(run(clone_copy_users, &c, &err), 0);
    assert_true(c.users < USERS);
    for (int i = 0; i < USERS; i++) {
        assert_true(fake.imported[i] >= 1);
    }
}

static void test_pages_that_lead_back(void **state)
{
    (void)state;
    int (*const copies[])(struct clone_copy *, struct err *) = {clone_copy_users, clone_copy_positions,
                                                                clone_copy_tombstones};
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        struct clone_copy c;
        struct err err = {0};
        node.backwards = true;
        assert_int_equal(run(copies[i], &c, &err), ERR_VERSION);
    }
}

static void test_positions(void **state)
{
    (void)state;
    struct clone_copy c;
    struct err err = {0};
    assert_int_equal(run(clone_copy_positions, &c, &err), 0);
    assert_int_equal(fake.n_positions, 4); /* how that node came with others stays there */
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fake.positions[i], 3 + i);
    }
    assert_int_equal(fake.mark, INT64_MIN);
}

static void test_tombstones(void **state)
{
    (void)state;
    struct clone_copy c;
    struct err err = {0};
    assert_int_equal(run(clone_copy_tombstones, &c, &err), 0);
    assert_int_equal(fake.n_tombstones, TOMBSTONES);
}

static void test_pools(void **state)
{
    (void)state;
    struct clone_copy c;
    struct err err = {0};
    begin_pools();
    assert_int_equal(run(clone_copy_pools, &c, &err), 0);
    expect_pools();
    assert_int_equal(c.pools, 2);
    assert_int_equal(c.bytes, 2 * (5 + 6));
    assert_int_equal(kept.changes, 3);                    /* one of them drops what is gone there */
    assert_int_equal(run(clone_copy_pools, &c, &err), 0); /* again is once */
    expect_pools();
    assert_int_equal(c.pools, 0);
    assert_int_equal(kept.changes, 3);
}

/* The clone ends with the error; the next run finishes what it began. */
static void expect_it_goes_on(const char *what, int code)
{
    struct clone_copy c;
    struct err err = {0};
    int rc = run(clone_copy_pools, &c, &err);
    if (rc != code || err.code != code || err.text[0] == '\0') {
        fail_msg("%s: %d, %s", what, rc, err.text);
    }
    assert_int_equal(kept.opened, 0);
    kept.fail_open = kept.fail_read = false;
    kept.fail_at = node.hang_up_at = 0;
    err = (struct err){0};
    assert_int_equal(run(clone_copy_pools, &c, &err), 0);
    expect_pools();
}

static void test_pools_where_each_reply_is_cut_off(void **state)
{
    (void)state;
    struct clone_copy c;
    struct err err = {0};
    begin_pools();
    assert_int_equal(run(clone_copy_pools, &c, &err), 0);
    const int replies = node.replies;
    assert_int_equal(replies, 1 + 1 + 3 + 3); /* the list, one that is gone, and parts */
    for (int i = 1; i <= replies; i++) {
        begin_pools();
        node.hang_up_at = i;
        expect_it_goes_on("a reply cut off", ERR_CLOSED);
    }
}

static void test_pools_where_the_store_fails(void **state)
{
    (void)state;
    for (int i = 1; i <= 3; i++) {
        begin_pools();
        kept.fail_at = i;
        expect_it_goes_on("a change", ERR_IO);
    }
    begin_pools();
    kept.fail_open = true;
    expect_it_goes_on("the reader", ERR_IO);
    begin_pools();
    kept.fail_read = true;
    expect_it_goes_on("its pools", ERR_IO);
}

/* The node's thread must have what it wants: only the clone's allocations are counted. */
static _Atomic int allocations, fails_at;
static pthread_t clones_thread;

static bool fails_once(enum alloc_by by, size_t n, size_t size)
{
    (void)by, (void)n, (void)size;
    return pthread_equal(pthread_self(), clones_thread) && ++allocations == fails_at;
}

static int copy_without_memory(struct clone_copy *c, struct err *err)
{
    allocations = 0;
    alloc_fails = fails_once;
    int rc = clone_copy_pools(c, err);
    alloc_fails = NULL;
    return rc;
}

static void test_pools_without_memory(void **state)
{
    (void)state;
    struct clone_copy c;
    clones_thread = pthread_self();
    for (fails_at = 1;; fails_at++) {
        struct err err = {0};
        begin_pools();
        int rc = run(copy_without_memory, &c, &err);
        if (allocations < fails_at) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_int_equal(rc, ERR_NOMEM);
        assert_int_equal(kept.opened, 0);
        assert_int_equal(run(clone_copy_pools, &c, &err), 0);
        expect_pools();
    }
    assert_true(fails_at > 5);
}

/* Who knows no pools, or has no place for them. */
static void test_pools_are_left_out(void **state)
{
    (void)state;
    struct clone_copy c;
    struct err err = {0};
    begin_pools();
    fake.store.pools = NULL;
    assert_int_equal(run(clone_copy_pools, &c, &err), 0);
    assert_int_equal(node.replies + kept.reads + kept.changes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_users, setup, teardown),
        cmocka_unit_test_setup_teardown(test_users_go_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pages_that_lead_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_positions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tombstones, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pools, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pools_where_each_reply_is_cut_off, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pools_where_the_store_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pools_without_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pools_are_left_out, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
