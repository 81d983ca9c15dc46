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

/* Of new files. bench/NOTES.md has what other sizes gave, for both. A file keeps the
 * size that it was made with. */
enum { DB_HISTORY_PAGE = 2048, DB_STAGING_PAGE = 1024 };

/* As many as SQLite can number. By default Debian's stops at a quarter of them: at 2.2 TB of history.db, 1.1 or 4.4 TB
 * of staging.db, by its page size, with "database or disk is full". */
#define DB_PAGES_MAX 4294967294

/* Added to a month: its second table, sealed_YYYYMM, see seal.c. */
enum { DB_SEALED_TABLE = 1 << 20 };

/* The tables of a slot: its n-th further one, staged_SLOT_n, is slot + n * DB_SLOT_PART. */
enum { DB_SLOT_PART = 64 };

struct db_variant;
struct folder_lock;

struct db {
    sqlite3 *handle;
    char path[PATH_MAX];
    const char *name; /* "staging", "history": for errors */
    const char *vfs;
    struct folder_lock *lock; /* kept at each db_begin(); NULL: the one that opened it keeps it */
    enum db_mode mode;
    int64_t page_size;
    int64_t wal_bytes;    /* as of the last commit or checkpoint of this connection */
    int64_t wal_room;     /* the known length of the WAL's file, see db_extend_wal() */
    bool lost;            /* the outcome of a commit is unknown: reopen before the next one */
    bool unsure;          /* an fsync failed: content of the WAL may be lost, see db_wal.c */
    sqlite3_backup *copy; /* of this file, under way (backup_copy.c); it ends with the connection */
    sqlite3_stmt *fixed[SQL_STATEMENTS];
    struct db_variant **variants;
    int n_variants;
};

/* Opens folder/name.db. A writer creates it, and secures its WAL. ERR_CORRUPT when it is not a database, or another
 * program's. */
int db_open(struct db *db, const char *folder, const char *name, const char *vfs, enum db_mode mode, struct err *err);
/* Of a connection to a file that may have been made to harm, before it reads: no trigger of it fires, no view can be
 * read, and its schema calls no function that has effects. db_open() does that. */
int db_distrust(struct db *db, struct err *err);
void db_close(struct db *db); /* a log stays as it is */

/* Makes it a plain file without a log, and says so in its header. All content is already in the file. 1: another
 * process has it open, so it stays as it is. */
int db_leave_wal(struct db *db, struct err *err);

/* Completes a switch to or from a log that a process left half done. A read-only connection can't do that. */
int db_settle(const char *folder, const char *name, const char *vfs, struct err *err);

/* Closes and opens again, after a failed commit or fsync. */
int db_reopen(struct db *db, struct err *err);

/* db_wal.c: makes everything durable that the WAL's index has as committed, even after a failed fsync. Frames that the
 * disk has lost are dropped. For a writer that was just opened. ERR_BUSY while a reader is in the way. */
int db_renew_wal(struct db *db, struct err *err);

/* 1: a commit would be the first one in the WAL. 0: there are some, or there is no WAL, or an error. */
int db_wal_empty(struct db *db, struct err *err);

int db_exec(struct db *db, const char *sql, struct err *err);

/* Reads one integer. */
int db_int(struct db *db, const char *sql, int64_t *out, struct err *err);

/* Sets a pragma and reads it back: SQLite ignores what it doesn't know. */
int db_pragma(struct db *db, const char *pragma, int64_t value, struct err *err);

/* The statement, reset, with no bindings left from an earlier use that would matter (all are bound again by the
 * caller). NULL on error. variant is a month or a slot's table. Of so many variants, those used last, statements are
 * kept. */
enum { DB_VARIANTS = 128 };
sqlite3_stmt *db_stmt(struct db *db, enum sql_statement which, struct err *err);
sqlite3_stmt *db_stmt_for(struct db *db, enum sql_statement which, int variant, struct err *err);

/* Expands {plays}, {month} and {slot}. */
void db_expand(const char *sql, int variant, char *out, size_t out_size);

/* Frees the statements of a month's or slot's table that is gone; of all. */
void db_drop_variant(struct db *db, int variant);
void db_drop_statements(struct db *db);

/* One step: 1 a row, 0 done (and reset), or an error (and reset). */
int db_step(struct db *db, sqlite3_stmt *stmt, struct err *err);

/* Steps a statement without rows to its end: 0 or an error. */
int db_run(struct db *db, sqlite3_stmt *stmt, struct err *err);

/* Maps SQLite's current error. `what` says what was tried. */
int db_error(struct db *db, struct err *err, const char *what);

/* Binds a user's key as the first parameter. For a statement that could not be prepared (NULL), db_step() returns the
 * error. */
void db_bind_key(sqlite3_stmt *stmt, int64_t key);

/* An id is TEXT if it is valid UTF-8 without NUL, else BLOB. The bytes must live until the statement is reset. */
void db_bind_id(sqlite3_stmt *stmt, int index, struct slice id);
struct slice db_column_bytes(sqlite3_stmt *stmt, int column);

/* Transactions. A failed commit rolls back and marks the connection lost; db_begin() then opens it again first: all
 * statements from before are gone. */
/* BEGIN IMMEDIATE. ERR_IO: also when the file is not there, or another process has the folder too. */
int db_begin(struct db *db, struct err *err);
/* Whether it waits a moment for the lock of another connection, as it does when the file was just opened. */
void db_wait_for_locks(struct db *db, bool wait);
int db_begin_read(struct db *db, struct err *err); /* BEGIN: the first read takes the snapshot */
int db_commit(struct db *db, struct err *err);
/* Ends what db_begin_read() began: returns the reading's own result, or, if that was good, the error of its end. A
 * reader may use statements only between the two: outside, the connection may be lost. */
int db_end_read(struct db *db, int result, struct err *err);
void db_rollback(struct db *db);

/* Moves the WAL's pages into the file, once that says which log it needs (own_wal.h). SQLITE_CHECKPOINT_PASSIVE does
 * what it can beside readers; _RESTART and _TRUNCATE wait a moment for readers to end, so that the WAL restarts. 0:
 * everything was moved (and, except with PASSIVE, the WAL restarts), 1: a reader was in the way, or an error, after
 * which the connection is lost. */
int db_checkpoint(struct db *db, int mode, struct err *err);

/* Keeps the WAL's file longer than its content: when less than half of `step` is left, appends that many zeros, which
 * no reader takes for a frame. A commit then overwrites existing blocks, and its fsync is one round trip to the disk.
 * An fsync that moves the end of the file also writes the inode, and takes nearly twice as long. */
int db_extend_wal(struct db *db, int64_t step, struct err *err);

/* A whole number of the table meta; fallback: it has none of that name. The file may be crafted: what isn't from least
 * to most is ERR_CORRUPT, and the text names it. */
int db_meta_int(struct db *db, const char *name, int64_t fallback, int64_t least, int64_t most, int64_t *out,
                struct err *err);
/* The same of what is counted upwards, from 0, or a time of a clock that may be wrong; and of a time that is shown, up
 * to the year 9999. 0: there is none. Sums with them can't overflow. */
int db_meta_count(struct db *db, const char *name, int64_t *out, struct err *err);
int db_meta_time(struct db *db, const char *name, int64_t *out, struct err *err);
int db_meta_set_int(struct db *db, const char *name, int64_t value, struct err *err);
int db_meta_raise(struct db *db, const char *name, int64_t value, struct err *err); /* unless it is as high */

#endif
