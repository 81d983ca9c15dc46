/* Readers of the embedded store that don't wait for the disk (store_ops.reader_leave_cold): what is in memory they
 * answer, and after what isn't they are as good as before. The disk is the test's, and freezes when that says so; two
 * tests have the real one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "store/sqlite/read/reader.h"
#include "store/sqlite/state.h"
#include "tests/lib/store_calls.h"

enum { BATCHES = 4, CACHESTAT = 451 };

static struct store_reader *open_reader(struct store_fixture *f, bool leaves_cold)
{
    struct store_reader *reader;
    struct err err = {0};
    assert_int_equal(f->store->ops->reader_open(f->store, &reader, &err), 0);
    if (leaves_cold) {
        f->store->ops->reader_leave_cold(reader);
    }
    return reader;
}

static void close_reader(struct store_fixture *f, struct store_reader *reader)
{
    f->store->ops->reader_close(reader);
}

/* The code of a load; when it is answered, "a" is seen. */
static int try_load(struct store_fixture *f, struct store_reader *reader, const char *user, struct err *err)
{
    struct store_view view;
    *err = (struct err){0};
    int code = load(f, reader, user, &view, err);
    assert_true(code < 0 || in_view(&view, "a"));
    return code;
}

/* A user of history among thousands of others, so that each has a page that others don't. */
static void make_history(struct store_fixture *f)
{
    play(f, "u", "a");
    play(f, "v", "a");
    fill(f, BATCHES);
    assert_int_equal(flush(f), 0);
}

static void freeze(void)
{
    rule(VFS_READ, "history", 1, true, VFS_COLD);
}

/* --- a disk of the test's --- */

static void test_leaves_cold(void **state)
{
    struct store_fixture *f = *state;
    struct err err;
    f->cfg.history_memory = 0; /* so it is SQLite's own cache that has v */
    make_history(f);
    struct store_reader *reader = open_reader(f, true);
    assert_int_equal(try_load(f, reader, "v", &err), 0);
    freeze();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(try_load(f, reader, "u", &err), ERR_COLD);
        assert_non_null(strstr(err.text, "history.db is not in memory"));
        assert_int_equal(try_load(f, reader, "v", &err), 0); /* SQLite's own cache has it */
        assert_false(reader->db.lost);
    }
    play(f, "v", "b"); /* staging.db is no matter of theirs */
    assert_int_equal(try_load(f, reader, "v", &err), 0);
    vfs_fault_heal();
    assert_int_equal(try_load(f, reader, "u", &err), 0);
    freeze();
    assert_int_equal(try_load(f, reader, "u", &err), 0);
    vfs_fault_heal();
    close_reader(f, reader);
}

struct asked {
    struct store_fixture *f;
    struct store_reader *reader;
    struct err err;
    int code;
};

static void *ask_and_wait(void *arg)
{
    struct asked *a = arg;
    a->code = try_load(a->f, a->reader, "u", &a->err);
    return NULL;
}

/* Who may wait does, and meanwhile the other one is told at once, and answers what it has. */
static void test_beside_one_that_waits(void **state)
{
    struct store_fixture *f = *state;
    struct err err;
    pthread_t thread;
    make_history(f);
    struct store_reader *reader = open_reader(f, true);
    struct asked asked = {.f = f, .reader = open_reader(f, false)};
    assert_int_equal(try_load(f, reader, "v", &err), 0);
    freeze();
    assert_int_equal(pthread_create(&thread, NULL, ask_and_wait, &asked), 0);
    vfs_fault_wait_held();
    assert_int_equal(atomic_load(&((struct sqlite_store *)f->store)->waiting_readers), 1);
    assert_int_equal(try_load(f, reader, "u", &err), ERR_COLD);
    assert_true(reader->now.look_first);
    assert_int_equal(try_load(f, reader, "v", &err), 0);
    vfs_fault_heal();
    pthread_join(thread, NULL);
    assert_int_equal(asked.code, 0);
    assert_int_equal(atomic_load(&((struct sqlite_store *)f->store)->waiting_readers), 0);
    assert_int_equal(try_load(f, reader, "u", &err), 0);
    assert_false(reader->now.look_first);
    close_reader(f, asked.reader);
    close_reader(f, reader);
}

/* Each single read of a question may be the one that is cold: the WAL's, the schema's after it was changed, the
 * table's. */
static void test_each_read(void **state)
{
    struct store_fixture *f = *state;
    struct err err;
    int cold = 0;
    make_history(f);
    for (uint64_t nth = 1;; nth++) {
        struct store_reader *reader = open_reader(f, true);
        char item[16];
        snprintf(item, sizeof item, "i%d", (int)nth);
        play(f, "u", item);
        assert_int_equal(flush(f), 0); /* so what it has cached is old */
        rule(VFS_READ, "history", nth, false, VFS_COLD);
        int code = try_load(f, reader, "u", &err);
        vfs_fault_heal();
        if (code == 0) {
            close_reader(f, reader);
            break;
        }
        cold++;
        assert_int_equal(code, ERR_COLD);
        assert_false(reader->db.lost);
        assert_int_equal(try_load(f, reader, "u", &err), 0);
        close_reader(f, reader);
    }
    assert_true(cold >= 3);
}

/* A disk that fails is not one that is late. */
static void test_failing_disk(void **state)
{
    struct store_fixture *f = *state;
    struct err err;
    make_history(f);
    struct store_reader *reader = open_reader(f, true);
    rule(VFS_READ, "history", 1, true, VFS_EIO);
    assert_int_equal(try_load(f, reader, "u", &err), ERR_IO);
    vfs_fault_heal();
    assert_int_equal(try_load(f, reader, "u", &err), 0);
    close_reader(f, reader);
}

/* The list of months, and a scan, which a thread for large users makes. */
static void test_other_reads(void **state)
{
    struct store_fixture *f = *state;
    struct err err = {0};
    struct store_month_info months[4];
    struct store_view view;
    const struct store_scan scan = {0};
    make_history(f);
    struct store_reader *reader = open_reader(f, true);
    freeze();
    assert_int_equal(f->store->admin->months(reader, months, 4, &err), ERR_COLD);
    assert_int_equal(f->store->ops->scan(reader, key_of("u"), slice_str("u"), INT_MIN, &scan, &view, &err), ERR_COLD);
    vfs_fault_heal();
    assert_int_equal(f->store->admin->months(reader, months, 4, &err), 1);
    close_reader(f, reader);
}

/* --- the machine's --- */

/* How many pages of the file are in memory, or on their way there. -1: the kernel can't tell. */
static int64_t cached(const char *path)
{
    const uint64_t whole[2] = {0, 0};
    uint64_t pages[5] = {0};
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    long told = syscall(CACHESTAT, fd, whole, pages, 0);
    close(fd);
    return told < 0 ? -1 : (int64_t)pages[0];
}

/* The WAL is closed into the file, which leaves memory. */
static struct store_reader *evict(struct store_fixture *f, char path[PATH_MAX], struct store_reader **waits)
{
    make_history(f);
    close_store(f);
    open_store(f);
    struct store_reader *reader = open_reader(f, true);
    *waits = open_reader(f, false);
    snprintf(path, PATH_MAX, "%s/history.db", f->cfg.data);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fsync(fd), 0);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    /* Closing another descriptor of the file ends this process's locks on it; nobody else has it open here. */
    close(fd);
    if (reader->now.unsupported || cached(path) > 0) {
        close_reader(f, *waits);
        close_reader(f, reader);
        skip(); /* a tmpfs */
    }
    return reader;
}

static void test_page_cache(void **state)
{
    struct store_fixture *f = *state;
    struct err err;
    char path[PATH_MAX];
    struct store_reader *waits, *reader = evict(f, path, &waits);
    /* The read that the kernel begins may have ended when it looks whether it has: one in 20 here. Then once more. */
    for (int i = 0; i < 10 && try_load(f, reader, "u", &err) == 0; i++) {
        close_reader(f, waits);
        close_reader(f, reader);
        reader = evict(f, path, &waits);
    }
    assert_int_equal(err.code, ERR_COLD);
    assert_false(reader->db.lost);
    assert_int_equal(try_load(f, waits, "u", &err), 0);
    assert_int_equal(try_load(f, reader, "u", &err), 0);
    close_reader(f, waits);
    close_reader(f, reader);
}

/* While somebody waits, no read of the disk is begun: its queue may be full. */
static void test_looks_first(void **state)
{
    struct store_fixture *f = *state;
    struct err err;
    char path[PATH_MAX];
    struct store_reader *waits, *reader = evict(f, path, &waits);
    _Atomic int *waiting = &((struct sqlite_store *)f->store)->waiting_readers;
    atomic_fetch_add(waiting, 1);
    assert_int_equal(try_load(f, reader, "u", &err), ERR_COLD);
    atomic_fetch_sub(waiting, 1);
    assert_in_range(cached(path) + 1, 0, 1);
    close_reader(f, waits);
    close_reader(f, reader);
}

int main(int argc, char **argv)
{
    begin_tests(argc, argv);
    const struct CMUnitTest tests[] = {
        TEST(test_leaves_cold),  TEST(test_beside_one_that_waits), TEST(test_each_read),
        TEST(test_failing_disk), TEST(test_other_reads),           TEST(test_page_cache),
        TEST(test_looks_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
