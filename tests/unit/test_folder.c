/* The data folder that a first start makes: the name of each new part is durable before anything is put into it; who
 * has it, and whose it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/owner.h"
#include "store/sqlite/db/folder_lock.h"
#include "store/sqlite/sqlite_store.h"
#include "tests/lib/store_fixture.h"

static ino_t synced[16];
static int n_synced;
static bool sync_fails;

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    struct stat st;
    if (sync_fails) {
        errno = EIO;
        return -1;
    }
    if (n_synced < 16 && fstat(fd, &st) == 0) {
        synced[n_synced++] = st.st_ino;
    }
    return __real_fsync(fd);
}

/* As on a file system that locks files alone. */
static bool no_folder_locks;

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);

int __wrap_flock(int fd, int operation)
{
    struct stat st;
    if (no_folder_locks && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        errno = EBADF;
        return -1;
    }
    return __real_flock(fd, operation);
}

static bool is_synced(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    for (int i = 0; i < n_synced; i++) {
        if (synced[i] == st.st_ino) {
            return true;
        }
    }
    return false;
}

static char base[] = "/tmp/unseen-test-folder.XXXXXX";

static int setup(void **state)
{
    (void)state;
    strcpy(base + strlen(base) - 6, "XXXXXX");
    n_synced = 0;
    sync_fails = false;
    no_folder_locks = false;
    return mkdtemp(base) != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    remove_folder(base);
    return 0;
}

static void the_names_of_new_folders_are_durable(void **state)
{
    (void)state;
    char path[128];
    struct err err = {0};
    snprintf(path, sizeof path, "%s/a/b/c", base);
    struct folder_lock lock;
    assert_int_equal(folder_lock(path, &lock, &err), 0);
    folder_unlock(&lock);
    assert_true(is_synced(base));
    snprintf(path, sizeof path, "%s/a", base);
    assert_true(is_synced(path));
    snprintf(path, sizeof path, "%s/a/b", base);
    assert_true(is_synced(path));
}

static void a_folder_that_is_there_needs_nothing(void **state)
{
    (void)state;
    struct err err = {0};
    struct folder_lock lock;
    assert_int_equal(folder_lock(base, &lock, &err), 0);
    folder_unlock(&lock);
    assert_int_equal(n_synced, 0);
}

static void a_relative_path(void **state)
{
    (void)state;
    char here[512];
    struct err err = {0};
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(base), 0);
    struct folder_lock lock;
    assert_int_equal(folder_lock("new/", &lock, &err), 0);
    assert_int_equal(chdir(here), 0);
    folder_unlock(&lock);
    assert_true(is_synced(base));
}

/* Nothing is left that the next start would take for durable. */
static void a_sync_that_fails(void **state)
{
    (void)state;
    char path[128];
    struct err err = {0};
    sync_fails = true;
    snprintf(path, sizeof path, "%s/data", base);
    struct folder_lock lock;
    assert_int_equal(folder_lock(path, &lock, &err), ERR_IO);
    assert_non_null(strstr(err.text, base));
    assert_int_equal(access(path, F_OK), -1);
    sync_fails = false;
    assert_int_equal(folder_lock(path, &lock, &err), 0);
    folder_unlock(&lock);
    assert_true(is_synced(base));
}

static void remove_lock(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/lock", base);
    assert_int_equal(unlink(path), 0);
}

static void assert_in_use(const char *who)
{
    struct folder_lock second;
    struct err err = {0};
    assert_int_equal(folder_lock(base, &second, &err), ERR_LOCKED);
    assert_non_null(strstr(err.text, base));
    assert_non_null(strstr(err.text, who));
}

static void the_lock_outlives_its_file(void **state)
{
    (void)state;
    struct folder_lock lock;
    struct err err = {0};
    char address[64];
    assert_int_equal(folder_lock(base, &lock, &err), 0);
    assert_int_equal(folder_publish(&lock, "127.0.0.1:7979", &err), 0);
    assert_in_use("a server at 127.0.0.1:7979");
    remove_lock();
    assert_in_use("process (unknown)");
    assert_int_equal(sqlite_store_address(base, address, sizeof address, &err), ERR_NOTFOUND);
    assert_int_equal(folder_lock_keep(&lock, &err), 0);
    assert_int_equal(sqlite_store_address(base, address, sizeof address, &err), 0);
    assert_string_equal(address, "127.0.0.1:7979");
    assert_in_use("a server at 127.0.0.1:7979");
    folder_unlock(&lock);
    assert_int_equal(folder_lock(base, &lock, &err), 0);
    folder_unlock(&lock);
}

/* 0.1.0 locks nothing but the file. */
static void take_as_the_first_release(int *fd)
{
    char path[128];
    snprintf(path, sizeof path, "%s/lock", base);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    assert_true(*fd >= 0);
    assert_int_equal(flock(*fd, LOCK_EX | LOCK_NB), 0);
    assert_true(write(*fd, "pid 77\n", 7) == 7);
}

static void a_folder_that_the_first_release_has(void **state)
{
    (void)state;
    int fd;
    take_as_the_first_release(&fd);
    assert_in_use("process 77");
    close(fd);
}

static void a_second_process_is_noticed(void **state)
{
    (void)state;
    struct folder_lock lock;
    struct err err = {0};
    int fd;
    for (int i = 0; i < 2; i++) {
        no_folder_locks = i == 1;
        assert_int_equal(folder_lock(base, &lock, &err), 0);
        remove_lock();
        take_as_the_first_release(&fd);
        assert_int_equal(folder_lock_keep(&lock, &err), ERR_IO);
        assert_non_null(strstr(err.text, "process 77"));
        assert_int_equal(folder_lock_keep(&lock, &err), ERR_IO);
        close(fd);
        assert_int_equal(folder_lock_keep(&lock, &err), 0);
        assert_in_use("is in use");
        folder_unlock(&lock);
    }
}

/* A link in place of the file leads to a file of another's. */
static void a_lock_that_is_a_link(void **state)
{
    (void)state;
    struct folder_lock lock;
    struct err err = {0};
    struct stat st;
    char path[128], target[128];
    snprintf(path, sizeof path, "%s/lock", base);
    snprintf(target, sizeof target, "%s/other", base);
    int fd = open(target, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0 && write(fd, "kept", 4) == 4);
    close(fd);
    assert_int_equal(symlink(target, path), 0);
    assert_true(folder_lock(base, &lock, &err) < 0);
    assert_non_null(strstr(err.text, path));
    assert_true(stat(target, &st) == 0 && st.st_size == 4);
}

static uid_t owner(const char *name)
{
    char path[128];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", base, name);
    assert_int_equal(lstat(path, &st), 0);
    return st.st_uid;
}

/* What root makes in the folder of another user is that user's. */
static void a_folder_of_another_user(void **state)
{
    (void)state;
    enum { OTHER = 54321 };
    struct folder_lock lock;
    struct err err = {0};
    char path[128], named[128];
    if (geteuid() != 0) {
        skip();
    }
    assert_int_equal(chown(base, OTHER, OTHER), 0);
    assert_int_equal(folder_lock(base, &lock, &err), 0);
    folder_unlock(&lock);
    assert_int_equal(owner("lock"), OTHER);
    snprintf(path, sizeof path, "%s/below/data", base);
    assert_int_equal(folder_lock(path, &lock, &err), 0);
    folder_unlock(&lock);
    assert_int_equal(owner("below"), OTHER);
    assert_int_equal(owner("below/data"), OTHER);
    assert_int_equal(owner("below/data/lock"), OTHER);

    /* But never a file that has a second name, or that a link leads to. */
    char outside[] = "/tmp/unseen-test-outside.XXXXXX";
    int fd = mkstemp(outside);
    assert_true(fd >= 0);
    snprintf(path, sizeof path, "%s/hard", base);
    snprintf(named, sizeof named, "%s/soft", base);
    assert_int_equal(link(outside, path), 0);
    assert_int_equal(symlink(outside, named), 0);
    owner_as_folder(path);
    owner_as_folder(named);
    assert_int_equal(owner("hard"), 0);
    assert_int_equal(owner("soft"), 0);
    close(fd);
    unlink(outside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_names_of_new_folders_are_durable, setup, teardown),
        cmocka_unit_test_setup_teardown(a_folder_that_is_there_needs_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_relative_path, setup, teardown),
        cmocka_unit_test_setup_teardown(a_sync_that_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(the_lock_outlives_its_file, setup, teardown),
        cmocka_unit_test_setup_teardown(a_folder_that_the_first_release_has, setup, teardown),
        cmocka_unit_test_setup_teardown(a_second_process_is_noticed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lock_that_is_a_link, setup, teardown),
        cmocka_unit_test_setup_teardown(a_folder_of_another_user, setup, teardown),
    };
    return cmocka_run_group_tests_name("folder", tests, NULL, NULL);
}
