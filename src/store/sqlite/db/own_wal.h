/* Whether the log beside a file is the file's own.
 *
 * A file that is in use has acknowledged commits in its log alone. SQLite takes any log that is there, and none for an
 * empty one. So the file's header says which log it needs, in `user_version`, which SQLite keeps and leaves to us: a
 * mark made from the salts of the log (wal_form.h), which change each time the log begins again at its start. 0: it
 * needs none.
 *
 *   at a start      0 until the log is durable and holds the mark; then a checkpoint brings that into the file
 *   a checkpoint    is preceded by a commit with the mark of this log. It begins again only when all of it is in the
 *                   file: so the log that belongs to a file is the one whose mark the file has, or the next one
 *   after each      a commit has 0: what brings the whole log into the file, such as a shell that is closed after
 *                   a crash, leaves a file that needs none
 *   at a clean end  the same, by ourselves; then the log goes, then the header says so
 *
 * Wherever a process is killed, or power fails, one of these holds. A file without its log, with that of another file,
 * or with that of another time, is refused by pair.c. Files of 0.1.0, and those that were closed, have 0.
 */
#ifndef UNSEEN_STORE_SQLITE_DB_OWN_WAL_H
#define UNSEEN_STORE_SQLITE_DB_OWN_WAL_H

#include "store/sqlite/db/db.h"

enum own_wal {
    OWN_WAL_GOOD,      /* also: none, and none is needed; or there is no file */
    OWN_WAL_LEFT_OVER, /* the file was closed without one */
    OWN_WAL_MISSING,   /* or empty, cut short, damaged at its begin */
    OWN_WAL_OTHER,     /* of another file, or another time */
};

/* Before the file is opened, which would apply a log or delete it. Nothing is changed. */
int own_wal_look(const char *folder, const char *name, enum own_wal *out, struct err *err);

/* Of a writer that was just opened, before it writes. SQLite gives an empty log new salts when another connection is
 * the first to write after an error: so the first commit says which file it goes on from. */
int own_wal_link(struct db *db, struct err *err);

/* Of a writer, outside a transaction. Has the log hold its mark. 1: another program holds the write lock. */
int own_wal_mark(struct db *db, struct err *err);

/* At a start: has the file know the mark, before anything is acknowledged. */
int own_wal_begin(struct db *db, struct err *err);

/* Of a file that is about to get a log: drops a mark that came with a copy, such as one by VACUUM INTO. */
int own_wal_enter(struct db *db, struct err *err);

/* The file will need no log, once all of the log is in it. */
int own_wal_clear(struct db *db, struct err *err);

#endif
