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
#include <sys/wait.h>
#include <unistd.h>

#include "store/sqlite/db/db.h"
#include "tests/lib/vfs_fault.h"
#include "tests/lib/vfs_power.h"

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

static void refuse_to_write(struct fixture *f)
{
    struct err err = {0};
    assert_int_equal(db_begin(&f->db, &err), ERR_IO);
    assert_non_null(strstr(err.text, "the file was removed or put aside while it is open"));
    assert_int_not_equal(sqlite3_get_autocommit(f->db.handle), 0);
}

/* What is written to a file without a name would be gone with the process. */
static void a_file_that_is_gone_is_not_written(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    char aside[64], command[96];
    int64_t n = 0;
    snprintf(aside, sizeof aside, "%s/aside", f->folder);
    snprintf(command, sizeof command, "cd %s && cp aside copy && mv copy staging.db", f->folder);
    add_row(f);
    assert_int_equal(rename(f->db.path, aside), 0);
    refuse_to_write(f);
    refuse_to_write(f);
    assert_int_equal(db_begin_read(&f->db, &err), 0); /* it still has all */
    assert_int_equal(db_int(&f->db, "SELECT count(*) FROM t", &n, &err), 0);
    assert_int_equal(db_end_read(&f->db, 0, &err), 0);
    assert_int_equal(n, 1);
    assert_int_equal(system(command), 0); /* the same content, and another file */
    refuse_to_write(f);
    assert_int_equal(rename(aside, f->db.path), 0);
    add_row(f);
}

static void a_file_that_is_gone_is_not_made_anew(void **state)
{
    struct fixture *f = *state;
    struct err err = {0};
    char aside[64];
    int64_t n = 0;
    snprintf(aside, sizeof aside, "%s/aside", f->folder);
    add_row(f);
    assert_int_equal(rename(f->db.path, aside), 0);
    f->db.lost = true; /* as after a commit that failed */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(db_begin(&f->db, &err), ERR_IO);
        assert_int_equal(size_of(f->db.path), -1);
    }
    assert_int_equal(rename(aside, f->db.path), 0);
    add_row(f);
    assert_int_equal(db_int(&f->db, "SELECT count(*) FROM t", &n, &err), 0);
    assert_int_equal(n, 2);
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

/* --- a WAL that has lost something --- */

enum { FRAME = 24 + DB_HISTORY_PAGE };

/* Three commits, the last two of them never synced. Returns how many frames each has. */
static int64_t three_commits(struct fixture *f, struct db *db)
{
    struct err err = {0};
    assert_int_equal(db_open(db, f->folder, "history", VFS_FAULT_NAME, DB_WRITE_NORMAL, &err), 0);
    assert_int_equal(db_exec(db, "CREATE TABLE t (id INTEGER PRIMARY KEY, bytes)", &err), 0);
    assert_int_equal(db_checkpoint(db, SQLITE_CHECKPOINT_TRUNCATE, &err), 0);
    int64_t before = 0;
    for (int i = 0; i < 3; i++) {
        before = db->wal_bytes;
        assert_int_equal(db_begin(db, &err), 0);
        assert_int_equal(db_exec(db, "INSERT INTO t (bytes) VALUES (randomblob(3000))", &err), 0);
        assert_int_equal(db_commit(db, &err), 0);
    }
    return (db->wal_bytes - before) / DB_HISTORY_PAGE;
}

/* Zeros in the place of a frame: as the kernel reads a page anew that it could not write. */
static void lose_frame(const struct db *db, int64_t number)
{
    char path[PATH_MAX + 8], zeros[FRAME] = {0};
    snprintf(path, sizeof path, "%s-wal", db->path);
    FILE *wal = fopen(path, "r+");
    assert_non_null(wal);
    assert_int_equal(fseek(wal, 32 + (number - 1) * FRAME, SEEK_SET), 0);
    assert_int_equal(fwrite(zeros, sizeof zeros, 1, wal), 1);
    assert_int_equal(fclose(wal), 0);
}

static int64_t count_rows(struct db *db)
{
    int64_t n = -1;
    struct err err = {0};
    assert_int_equal(db_int(db, "SELECT count(*) FROM t WHERE length(bytes) = 3000", &n, &err), 0);
    return n;
}

static int fail_commit(struct db *db)
{
    struct err err = {0};
    int number =
        vfs_fault_add(&(struct vfs_rule){.ops = VFS_SYNC, .file = "history.db-wal", .nth = 1, .action = VFS_EIO});
    assert_int_equal(db_pragma(db, "synchronous", 2, &err), 0);
    assert_int_equal(db_begin(db, &err), 0);
    assert_int_equal(db_exec(db, "INSERT INTO t (bytes) VALUES ('not acknowledged')", &err), 0);
    assert_int_equal(db_commit(db, &err), ERR_IO);
    assert_true(vfs_fault_hits(number) == 1 && db->lost && db->unsure);
    vfs_fault_heal();
    return 0;
}

/* Nothing is lost: all that the index has is written again and synced, before anything else. */
static void frames_are_written_again(void **state)
{
    struct fixture *f = *state;
    struct db db, other;
    struct err err = {0};
    int64_t frames = three_commits(f, &db);
    assert_int_equal(db_open(&other, f->folder, "history", VFS_FAULT_NAME, DB_READ, &err), 0);
    assert_int_equal(count_rows(&other), 3);
    int64_t all = db.wal_bytes / DB_HISTORY_PAGE;
    fail_commit(&db);
    const struct vfs_rule writes = {.ops = VFS_WRITE, .file = "history.db-wal", .action = VFS_COUNT};
    const struct vfs_rule syncs = {.ops = VFS_SYNC, .file = "history.db-wal", .action = VFS_COUNT};
    const struct vfs_rule into_file = {.ops = VFS_WRITE, .file = "history.db", .action = VFS_COUNT};
    int written = vfs_fault_add(&writes), synced = vfs_fault_add(&syncs), both = vfs_fault_add(&into_file);
    assert_int_equal(db_reopen(&db, &err), 0);
    assert_int_equal(vfs_fault_hits(written), all + 1); /* and the header */
    assert_int_equal(vfs_fault_hits(synced), 1);
    assert_int_equal(vfs_fault_hits(both), all + 1); /* nothing was copied */
    assert_true(frames > 1 && count_rows(&db) == 3 && count_rows(&other) == 3);
    db_close(&other);
    db_close(&db);
}

/* What is behind the last whole commit is gone, for all connections; the file is sound, and takes new commits. */
static void a_lost_frame_ends_the_wal(void **state)
{
    struct fixture *f = *state;
    struct db db, other;
    struct err err = {0};
    int64_t frames = three_commits(f, &db);
    int64_t all = db.wal_bytes / DB_HISTORY_PAGE;
    assert_int_equal(db_open(&other, f->folder, "history", VFS_FAULT_NAME, DB_READ, &err), 0);
    assert_int_equal(count_rows(&other), 3);
    fail_commit(&db);
    lose_frame(&db, all - frames + 2); /* the second one of the third commit */
    assert_int_equal(db_begin_read(&other, &err), 0);
    assert_int_equal(db_exec(&other, "SELECT 1 FROM t", &err), 0);
    assert_int_equal(db_reopen(&db, &err), ERR_BUSY); /* a snapshot may be in the lost part */
    assert_int_equal(db_end_read(&other, 0, &err), 0);
    assert_int_equal(db_reopen(&db, &err), 0);
    assert_true(count_rows(&db) == 2 && count_rows(&other) == 2);
    assert_int_equal(db_begin(&db, &err), 0);
    assert_int_equal(db_exec(&db, "INSERT INTO t (bytes) VALUES (randomblob(3000))", &err), 0);
    assert_int_equal(db_commit(&db, &err), 0);
    assert_int_equal(db_checkpoint(&db, SQLITE_CHECKPOINT_RESTART, &err), 0);
    int64_t problems = -1;
    assert_int_equal(
        db_int(&db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'", &problems, &err), 0);
    assert_true(problems == 0 && count_rows(&db) == 3 && count_rows(&other) == 3);
    db_close(&other);
    db_close(&db);
}

/* What fails on the way is tried again, whole. */
static void making_sure_fails(void **state)
{
    struct fixture *f = *state;
    static const unsigned ops[] = {VFS_READ, VFS_WRITE, VFS_SYNC, VFS_OPEN};
    struct db db, other;
    struct err err = {0};
    three_commits(f, &db);
    assert_int_equal(db_open(&other, f->folder, "history", VFS_FAULT_NAME, DB_READ, &err), 0);
    assert_int_equal(count_rows(&other), 3);
    fail_commit(&db);
    int failed = 0;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        bool met = true;
        for (uint64_t nth = 1; met; nth++) {
            db.unsure = true;
            int number =
                vfs_fault_add(&(struct vfs_rule){.ops = ops[i], .file = "history.db", .nth = nth, .action = VFS_EIO});
            int result = db_reopen(&db, &err);
            met = vfs_fault_hits(number) >= nth;
            vfs_fault_heal();
            assert_true(met || result == 0);
            assert_true(result == 0 || (db.lost && db.unsure));
            failed += result < 0;
            assert_int_equal(db_reopen(&db, &err), 0);
            assert_int_equal(count_rows(&db), 3);
        }
    }
    assert_true(failed > 20);
    db_close(&other);
    db_close(&db);
}

/* It ends by a rollback journal, of which a cut may leave any part: so its number of pages is written once they are
 * synced, also where commits are not. */
static void leaving_the_wal_survives_a_cut(void **state)
{
    struct fixture *f = *state;
    struct db db;
    struct err err = {0};
    three_commits(f, &db);
    const struct vfs_rule syncs = {.ops = VFS_SYNC, .file = "history.db-journal", .action = VFS_COUNT};
    int synced = vfs_fault_add(&syncs);
    assert_int_equal(db_leave_wal(&db, &err), 0);
    assert_int_equal(vfs_fault_hits(synced), 2);
    db_close(&db);
}

/* What fails at the end is left to the next start: the last connection would go on with what nobody has made sure of.
 */
static void leaving_the_wal_fails(void **state)
{
    struct fixture *f = *state;
    struct db db;
    struct err err = {0};
    three_commits(f, &db);
    vfs_fault_add(&(struct vfs_rule){.ops = VFS_SYNC, .file = "history.db", .nth = 2, .action = VFS_EIO});
    assert_int_equal(db_leave_wal(&db, &err), ERR_IO); /* the WAL was synced, and copied, and the file was not */
    const struct vfs_rule writes = {.ops = VFS_CHANGE, .file = "history.db", .action = VFS_COUNT};
    int written = vfs_fault_add(&writes);
    db_close(&db);
    assert_int_equal(vfs_fault_hits(written), 0);
    vfs_fault_heal();
    assert_int_equal(db_open(&db, f->folder, "history", VFS_FAULT_NAME, DB_WRITE_NORMAL, &err), 0);
    assert_int_equal(count_rows(&db), 3);
    db_close(&db);
}

/* Who reads a file that was closed keeps it from becoming one with a log: the start says so. */
static void a_reader_keeps_a_closed_file(void **state)
{
    struct fixture *f = *state;
    struct db db;
    struct err err = {0};
    sqlite3 *shell;
    char path[64];
    snprintf(path, sizeof path, "%s/history.db", f->folder);
    three_commits(f, &db);
    assert_int_equal(db_leave_wal(&db, &err), 0);
    db_close(&db);
    assert_int_equal(sqlite3_open_v2(path, &shell, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(shell, "BEGIN; SELECT * FROM t", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(db_open(&db, f->folder, "history", VFS_FAULT_NAME, DB_WRITE_NORMAL, &err), ERR_BUSY);
    assert_non_null(strstr(err.text, "another program reads it"));
    sqlite3_close(shell);
    assert_int_equal(db_open(&db, f->folder, "history", VFS_FAULT_NAME, DB_WRITE_NORMAL, &err), 0);
    assert_int_equal(count_rows(&db), 3);
    db_close(&db);
}

/* The journal of a change of mode is gone for good when the change is done: one that came back after a cut would take
 * the mode back, and a log that is there by then would look like another file's. */
static void a_change_of_mode_stays(void **state)
{
    struct fixture *f = *state;
    struct db db;
    struct err err = {0};
    char journal[64];
    snprintf(journal, sizeof journal, "%s/history.db-journal", f->folder);
    three_commits(f, &db);
    assert_int_equal(db_leave_wal(&db, &err), 0);
    db_close(&db);
    for (uint64_t seed = 1; seed <= 16; seed++) {
        pid_t pid = fork();
        if (pid == 0) {
            vfs_power_start(seed, false);
            int result = db_open(&db, f->folder, "history", VFS_FAULT_NAME, DB_WRITE_NORMAL, &err);
            result = result == 0 && seed % 2 == 0 ? db_leave_wal(&db, &err) : result;
            vfs_power_cut();
            _exit(result == 0 ? VFS_EXIT_CODE : 1);
        }
        int status = 0;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == VFS_EXIT_CODE);
        assert_int_equal(size_of(journal), -1);
        assert_int_equal(db_open(&db, f->folder, "history", VFS_FAULT_NAME, DB_WRITE_NORMAL, &err), 0);
        assert_int_equal(count_rows(&db), 3);
        assert_int_equal(db_leave_wal(&db, &err), 0);
        db_close(&db);
    }
}

static int64_t first_byte(const char *folder)
{
    struct db db;
    struct err err = {0};
    int64_t value = -1;
    assert_int_equal(db_open(&db, folder, "history", NULL, DB_WRITE_NORMAL, &err), 0);
    assert_int_equal(db_int(&db, "SELECT unicode(bytes) FROM t WHERE id = 1", &value, &err), 0);
    db_close(&db);
    return value;
}

/* A checkpoint that a reader cuts short copies without syncing the file. When the next one's fsync fails, the kernel
 * takes those pages, too, for written. */
static void run_short_checkpoint(const char *folder)
{
    struct db db, other;
    struct err err = {0};
    vfs_power_start(1, false);
    assert_int_equal(db_open(&db, folder, "history", VFS_FAULT_NAME, DB_WRITE_NORMAL, &err), 0);
    assert_int_equal(db_open(&other, folder, "history", VFS_FAULT_NAME, DB_READ, &err), 0);
    assert_int_equal(db_pragma(&db, "synchronous", 2, &err), 0);
    static const char *const first[] = {"CREATE TABLE t (id INTEGER PRIMARY KEY, bytes)",
                                        "INSERT INTO t VALUES (1, 'A' || hex(randomblob(900)))",
                                        "INSERT INTO t VALUES (2, 'A' || hex(randomblob(900)))"};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        assert_int_equal(db_exec(&db, first[i], &err), 0);
    }
    assert_int_equal(db_checkpoint(&db, SQLITE_CHECKPOINT_RESTART, &err), 0);
    assert_int_equal(db_exec(&db, "UPDATE t SET bytes = 'B' || substr(bytes, 2) WHERE id = 1", &err), 0);
    assert_int_equal(db_begin_read(&other, &err), 0);
    assert_int_equal(db_exec(&other, "SELECT 1 FROM t", &err), 0);
    assert_int_equal(db_exec(&db, "UPDATE t SET bytes = 'B' || substr(bytes, 2) WHERE id = 2", &err), 0);
    assert_int_equal(db_checkpoint(&db, SQLITE_CHECKPOINT_PASSIVE, &err), 1);
    assert_int_equal(db_end_read(&other, 0, &err), 0);
    vfs_fault_add(&(struct vfs_rule){.ops = VFS_SYNC, .file = "history.db", .nth = 2, .action = VFS_EIO});
    assert_int_equal(db_checkpoint(&db, SQLITE_CHECKPOINT_RESTART, &err), ERR_IO);
    vfs_fault_heal();
    assert_int_equal(db_begin(&db, &err), 0);
    assert_int_equal(db_commit(&db, &err), 0);
    assert_int_equal(db_checkpoint(&db, SQLITE_CHECKPOINT_RESTART, &err), 0);
    assert_int_equal(db_exec(&db, "INSERT INTO t VALUES (3, 'C')", &err), 0); /* into the WAL's beginning */
    vfs_power_cut();
    _exit(VFS_EXIT_CODE);
}

static void what_a_short_checkpoint_copied_is_copied_again(void **state)
{
    char folder[] = "/tmp/unseen-db-short-XXXXXX", command[64];
    (void)state;
    assert_non_null(mkdtemp(folder));
    pid_t pid = fork();
    if (pid == 0) {
        run_short_checkpoint(folder);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == VFS_EXIT_CODE);
    assert_int_equal(first_byte(folder), 'B');
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_commit_of_one_play_is_small, setup, teardown),
        cmocka_unit_test_setup_teardown(the_file_may_grow, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_is_gone_is_not_written, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_is_gone_is_not_made_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(commits_do_not_move_the_end_of_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(zeros_are_no_frames, setup, teardown),
        cmocka_unit_test_setup_teardown(a_disk_that_refuses_costs_nothing_but_the_gain, setup, teardown),
        cmocka_unit_test_setup_teardown(frames_are_written_again, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lost_frame_ends_the_wal, setup, teardown),
        cmocka_unit_test_setup_teardown(making_sure_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(leaving_the_wal_survives_a_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(leaving_the_wal_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(a_change_of_mode_stays, setup, teardown),
        cmocka_unit_test_setup_teardown(a_reader_keeps_a_closed_file, setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_short_checkpoint_copied_is_copied_again, setup, teardown),
    };
    return cmocka_run_group_tests_name("db", tests, NULL, NULL);
}
