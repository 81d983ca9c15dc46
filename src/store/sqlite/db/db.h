/* One connection to one SQLite file: opening with every pragma read back, statements prepared once, errors mapped.
 *
 * A statement is named by the enum made from sql/statements.sql. One that names a month or a slot in braces is prepared
 * once for each variant. Functions return 0 or an ERR_* code, with the file and SQLite's words in err. A connection
 * belongs to one thread at a time.
 */
#ifndef UNSEEN_STORE_SQLITE_DB_DB_H
#define UNSEEN_STORE_SQLITE_DB_DB_H

#include <limits.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "sql.h"

enum db_mode {
    DB_READ,
    DB_WRITE_NORMAL, /* synchronous=NORMAL: a commit is durable after the next FULL one */
    DB_WRITE_FULL,   /* synchronous=FULL: a commit is durable when it returns */
};

enum { DB_APPLICATION_ID = 0x556e736e }; /* "Unsn", in both files' headers */

/* Of new files; docs/performance.md has what others give history.db, and docs/scale.md staging.db. A file keeps the
 * size that it was made with. */
enum { DB_HISTORY_PAGE = 2048, DB_STAGING_PAGE = 1024 };

/* As many as SQLite can number. By default Debian's stops at a quarter of them: at 2.2 TB of history.db, 1.1 or 4.4 TB
 * of staging.db, by its page size, with "database or disk is full". */
#define DB_PAGES_MAX 4294967294

/* Added to a month: its second table, sealed_YYYYMM, see seal.c. */
enum { DB_SEALED_TABLE = 1 << 20 };

struct db_variant;

struct db {
    sqlite3 *handle;
    char path[PATH_MAX];
    const char *name; /* "staging", "history": for errors */
    const char *vfs;
    enum db_mode mode;
    int64_t page_size;
    int64_t wal_bytes;    /* as the last commit or checkpoint of this connection left it */
    int64_t wal_room;     /* so far the WAL's file is known to reach, see db_extend_wal() */
    bool lost;            /* the outcome of a commit is unknown: reopen before the next one */
    bool unsure;          /* an fsync failed: what the WAL has may be lost, see db_wal.c */
    sqlite3_backup *copy; /* of this file, under way (backup_copy.c); it ends with the connection */
    sqlite3_stmt *fixed[SQL_STATEMENTS];
    struct db_variant **variants;
    int n_variants;
};

/* Opens folder/name.db. A writer creates it, and makes sure of its WAL. ERR_CORRUPT when it is no database, or another
 * program's. */
int db_open(struct db *db, const char *folder, const char *name, const char *vfs, enum db_mode mode, struct err *err);
void db_close(struct db *db);

/* Makes it one plain file, whose header says that no log belongs to it. Everything is in the file before. 1: somebody
 * else has it open, so it stays as it is. */
int db_leave_wal(struct db *db, struct err *err);

/* Ends what a process was cut short in while it made the file one with a log, or one without: a connection that only
 * reads can't. */
int db_settle(const char *folder, const char *name, const char *vfs, struct err *err);

/* Closes and opens again, after a failed commit or fsync. */
int db_reopen(struct db *db, struct err *err);

/* db_wal.c: makes durable what the WAL's index says is committed, whatever fsync failed before. What the disk has lost
 * of it is no longer there afterwards. A writer that has just been opened. ERR_BUSY while a reader is in the way. */
int db_renew_wal(struct db *db, struct err *err);

int db_exec(struct db *db, const char *sql, struct err *err);

/* Reads one integer. */
int db_int(struct db *db, const char *sql, int64_t *out, struct err *err);

/* Sets a pragma and reads it back: SQLite ignores what it doesn't know. */
int db_pragma(struct db *db, const char *pragma, int64_t value, struct err *err);

/* The statement, reset, with no bindings left from an earlier use that would matter (all are bound anew by the caller).
 * NULL on error. variant is a month or a slot. */
sqlite3_stmt *db_stmt(struct db *db, enum sql_statement which, struct err *err);
sqlite3_stmt *db_stmt_for(struct db *db, enum sql_statement which, int variant, struct err *err);

/* Expands {plays}, {month} and {slot}. */
void db_expand(const char *sql, int variant, char *out, size_t out_size);

/* Frees the statements of a month or slot whose table is gone; of all. */
void db_drop_variant(struct db *db, int variant);
void db_drop_statements(struct db *db);

/* Steps: 1 a row, 0 done (and reset), or an error (and reset). */
int db_step(struct db *db, sqlite3_stmt *stmt, struct err *err);

/* Steps a statement without rows to its end: 0 or an error. */
int db_run(struct db *db, sqlite3_stmt *stmt, struct err *err);

/* Maps SQLite's current error. what says what was tried. */
int db_error(struct db *db, struct err *err, const char *what);

/* Binds a user's key as the first parameter. A statement that could not be prepared (NULL) is left to db_step(). */
void db_bind_key(sqlite3_stmt *stmt, int64_t key);

/* An id is TEXT if it is valid UTF-8 without NUL, else BLOB. The bytes must live until the statement is reset. */
void db_bind_id(sqlite3_stmt *stmt, int index, struct slice id);
struct slice db_column_bytes(sqlite3_stmt *stmt, int column);

/* Transactions. A failed commit rolls back and marks the connection lost; db_begin() then opens it again first: all
 * statements from before are gone. */
int db_begin(struct db *db, struct err *err);      /* BEGIN IMMEDIATE */
int db_begin_read(struct db *db, struct err *err); /* BEGIN: the first read takes the snapshot */
int db_commit(struct db *db, struct err *err);
/* Ends what db_begin_read() began: returns the result of the reading, or, if that was good, the error of its end. Only
 * between the two may a reader use a statement: one that is prepared outside meets a connection that is lost. */
int db_end_read(struct db *db, int result, struct err *err);
void db_rollback(struct db *db);

/* Moves the WAL's pages into the file. SQLITE_CHECKPOINT_PASSIVE does what it can beside readers; _RESTART and
 * _TRUNCATE wait a moment for readers to end, so that the WAL begins anew. 0: everything was moved (and, but for
 * PASSIVE, the WAL begins anew), 1: a reader was in the way, or an error, after which the connection is lost. */
int db_checkpoint(struct db *db, int mode, struct err *err);

/* Keeps the WAL's file ahead of what is written to it: when less than half of step is left, appends so many zeros,
 * which no reader takes for a frame. A commit then overwrites blocks that are there: its fsync is one round to the
 * disk, while one that moves the file's end has to write down the inode too, and takes nearly twice as long. */
int db_extend_wal(struct db *db, int64_t step, struct err *err);

int db_meta_int(struct db *db, const char *name, int64_t fallback, int64_t *out, struct err *err);
int db_meta_set_int(struct db *db, const char *name, int64_t value, struct err *err);
int db_meta_raise(struct db *db, const char *name, int64_t value, struct err *err); /* unless it is as high */

#endif
