/* A connection: how far its file may grow, what a commit writes, and the WAL's file kept ahead of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../scenario/vfs_fault.h"
#include "store/sqlite/db.h"

enum { STEP = 1 << 20, ROW = 1000, PLAY = 60 };

struct fixture {
    char folder[32], wal[64];
    struct db db;
    int64_t rows;
};

static int setup(void **state)
{
    static struct fixture f;
    f = (struct fixture){.folder = "/tmp/unseen-db-XXXXXX"};
    assert_int_equal(vfs_fault_register(), 0);
    assert_non_null(mkdtemp(f.folder));
    snprintf(f.wal, sizeof f.wal, "%s/staging.db-wal", f.folder);
    struct err err = {0};
    assert_int_equal(db_open(&f.db, f.folder, "staging", VFS_FAULT_NAME, DB_WRITE_FULL, &err), 0);
    assert_int_equal(db_exec(&f.db, "CREATE TABLE t (id INTEGER PRIMARY KEY, bytes)", &err), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    vfs_fault_heal();
    db_close(&f->db);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", f->folder);
    return system(command);
}

static int64_t size_of(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (int64_t)info.st_size : -1;
}

static void add_row_of(struct fixture *f, int bytes)
{
    char sql[96];
    struct err err = {0};
    snprintf(sql, sizeof sql, "INSERT INTO t (bytes) VALUES (randomblob(%d))", bytes);
    assert_int_equal(db_begin(&f->db, &err), 0);
    assert_int_equal(db_exec(&f->db, sql, &err), 0);
    assert_int_equal(db_commit(&f->db, &err), 0);
    f->rows++;
}

static void add_row(struct fixture *f)
{
    add_row_of(f, ROW);
}

/* A file may grow as far as SQLite can number its pages. */
static void the_file_may_grow(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    struct db history;
    int64_t most = 0;
    assert_int_equal(db_int(&f->db, "PRAGMA max_page_count", &most, &err), 0);
    assert_int_equal(most, 4294967294);
    assert_int_equal(db_open(&history, f->folder, "history", NULL, DB_WRITE_NORMAL, &err), 0);
    assert_int_equal(db_int(&history, "PRAGMA max_page_count", &most, &err), 0);
    assert_int_equal(most, 4294967294);
    db_close(&history);
}

static int64_t rows_in(const char *folder)
{
    struct db db;
    struct err err = {0};
    int64_t n = -1;
    assert_int_equal(db_open(&db, folder, "staging", NULL, DB_WRITE_FULL, &err), 0);
    assert_int_equal(db_int(&db, "SELECT count(*) FROM t", &n, &err), 0);
    db_close(&db);
    return n;
}

/* Half a block of a file system at most, and rarely more than two pages: a play that is recorded alone costs the device
 * little more than the block it must write. */
static void a_commit_of_one_play_is_small(void **state)
{
    struct fixture *f = *state;
    int large = 0;
    for (int i = 0; i < 200; i++) {
        int64_t before = f->db.wal_bytes;
        add_row_of(f, PLAY);
        assert_true(f->db.wal_bytes - before <= 4096);
        large += f->db.wal_bytes - before > 2048;
    }
    assert_true(large < 20);
}

static void commits_do_not_move_the_end_of_the_file(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    int moved = 0;
    while (f->db.wal_bytes < 3 * STEP) {
        assert_int_equal(db_extend_wal(&f->db, STEP, &err), 0);
        int64_t size = size_of(f->wal);
        assert_true(size > f->db.wal_bytes + STEP / 2 - 1);
        assert_true(size < f->db.wal_bytes + 2 * STEP);
        add_row(f);
        moved += size_of(f->wal) != size;
    }
    assert_int_equal(moved, 0);
    assert_true(f->rows > 100);
}

/* As a kill leaves it: the zeros behind the last frame end the WAL, as its own end would. */
static void zeros_are_no_frames(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    for (int i = 0; i < 50; i++) {
        add_row(f);
        assert_int_equal(db_extend_wal(&f->db, STEP, &err), 0);
    }
    char copy[] = "/tmp/unseen-db-XXXXXX";
    assert_non_null(mkdtemp(copy));
    char command[160];
    snprintf(command, sizeof command, "cp %s/staging.db %s/staging.db-wal %s", f->folder, f->folder, copy);
    assert_int_equal(system(command), 0);
    assert_int_equal(rows_in(copy), f->rows);
    snprintf(command, sizeof command, "rm -r %s", copy);
    assert_int_equal(system(command), 0);
}

/* Commits go on, and the WAL grows by itself; it isn't tried at each of them. */
static void a_disk_that_refuses_costs_nothing_but_the_gain(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    add_row(f);
    int rule =
        vfs_fault_add(&(struct vfs_rule){.ops = VFS_WRITE, .file = "staging.db-wal", .nth = 1, .action = VFS_FULL});
    assert_int_equal(db_extend_wal(&f->db, STEP, &err), ERR_FULL);
    assert_non_null(strstr(err.text, "extending the WAL"));
    assert_int_equal(vfs_fault_hits(rule), 1);
    assert_int_equal(db_extend_wal(&f->db, STEP, &err), 0);
    assert_int_equal(vfs_fault_hits(rule), 1);
    add_row(f);
    assert_true(size_of(f->wal) < STEP);
    int64_t n = 0;
    assert_int_equal(db_int(&f->db, "SELECT count(*) FROM t", &n, &err), 0);
    assert_int_equal(n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_commit_of_one_play_is_small, setup, teardown),
        cmocka_unit_test_setup_teardown(the_file_may_grow, setup, teardown),
        cmocka_unit_test_setup_teardown(commits_do_not_move_the_end_of_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(zeros_are_no_frames, setup, teardown),
        cmocka_unit_test_setup_teardown(a_disk_that_refuses_costs_nothing_but_the_gain, setup, teardown),
    };
    return cmocka_run_group_tests_name("db", tests, NULL, NULL);
}
