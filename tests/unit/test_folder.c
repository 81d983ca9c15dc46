/* The data folder that a first start makes: the name of each new part is durable before anything is put into it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/sqlite/db/folder.h"
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
    int lock = folder_lock(path, &err);
    assert_true(lock >= 0);
    folder_unlock(path, lock);
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
    int lock = folder_lock(base, &err);
    assert_true(lock >= 0);
    folder_unlock(base, lock);
    assert_int_equal(n_synced, 0);
}

static void a_relative_path(void **state)
{
    (void)state;
    char here[512];
    struct err err = {0};
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(base), 0);
    int lock = folder_lock("new/", &err);
    assert_int_equal(chdir(here), 0);
    assert_true(lock >= 0);
    close(lock);
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
    assert_int_equal(folder_lock(path, &err), ERR_IO);
    assert_non_null(strstr(err.text, base));
    assert_int_equal(access(path, F_OK), -1);
    sync_fails = false;
    int lock = folder_lock(path, &err);
    assert_true(lock >= 0);
    folder_unlock(path, lock);
    assert_true(is_synced(base));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_names_of_new_folders_are_durable, setup, teardown),
        cmocka_unit_test_setup_teardown(a_folder_that_is_there_needs_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(a_relative_path, setup, teardown),
        cmocka_unit_test_setup_teardown(a_sync_that_fails, setup, teardown),
    };
    return cmocka_run_group_tests_name("folder", tests, NULL, NULL);
}
