/* What a clone copies, page by page: from a fake node, over a socket, into a fake store. A connection that is lost in
 * the middle leaves a mark, and the next run goes on there. */
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

#include "cli/replica/clone_copy.h"
#include "replica/clone_mark.h"
#include "store/copy.h"

enum { USERS = 20, PAGE_USERS = 3, POSITIONS = 7, PAGE_POSITIONS = 3, TOMBSTONES = 5, PAGE_TOMBSTONES = 2 };

/* --- the node that is copied --- */

static struct node {
    char path[64];
    int listener;
    int pages_left; /* of users, until it hangs up */
    bool backwards; /* it answers nonsense: a page that leads back */
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
    while (after != NULL && from < POSITIONS && (name_position(from, name), strcmp(name, after)) <= 0) {
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

/* --- tests --- */

static int setup(void **state)
{
    (void)state;
    static const struct store_ops ops = {.record = record, .import = import};
    static const struct store_copy_ops copy = {.adopt = adopt};
    fake = (struct fake){.store = {.ops = &ops, .copy = &copy}, .mark = INT64_MIN};
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
    struct other_node from = {.address = "there", .node = 0xabc};
    struct progress progress = {0};
    assert_int_equal(pthread_create(&thread, NULL, run_node, NULL), 0);
    snprintf(address, sizeof address, "unix:%s", node.path);
    assert_int_equal(client_connect(address, NULL, &from.client, err), 0);
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

static void test_users_backwards(void **state)
{
    (void)state;
    struct clone_copy c;
    struct err err = {0};
    node.backwards = true;
    assert_int_equal(run(clone_copy_users, &c, &err), ERR_VERSION);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_users, setup, teardown),
        cmocka_unit_test_setup_teardown(test_users_go_on, setup, teardown),
        cmocka_unit_test_setup_teardown(test_users_backwards, setup, teardown),
        cmocka_unit_test_setup_teardown(test_positions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tombstones, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
