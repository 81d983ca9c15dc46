/* Two files that belong together. Each file relies on the content of the other, so a folder assembled from others would
 * silently lose acknowledged writes. So each notes in its `meta` what it knows of the other:
 *
 *   folder      drawn at the first start, the same in both files (and in all copies of the folder)
 *   starts      each start counts itself in staging.db, then in history.db: so the copies of one file from before a
 *               start don't go with the other one from after it
 *   flushes     history.db counts what it made durable; staging.db notes how far that was when it last wrote, since its
 *               rows are deleted in reliance on it. A history.db that has counted less is an older copy.
 *   high_water  the highest row id that staging.db has given; history.db notes the highest one that it has met, in a
 *               flush or a FORGET. A staging.db that knows only lower ones is an older copy; ids would be given twice,
 *               new deliveries rank below old ones, and rows of forgotten users come back.
 *
 * A folder that contradicts itself is refused before anything in it is changed, and the error says what to do.
 */
#ifndef UNSEEN_STORE_SQLITE_DB_PAIR_H
#define UNSEEN_STORE_SQLITE_DB_PAIR_H

#include <stdbool.h>

#include "store/sqlite/db/db.h"

/* Checks the files before either is opened for writing, since that would create a missing one, and apply or delete
 * another file's log. 0: they belong together, or there are none yet. ERR_CORRUPT: they don't, and nothing is
 * changed. */
int pair_examine(const char *folder, const char *vfs, struct err *err);

/* Only whether both are there, and no log that belongs to another file. */
int pair_look(const char *folder, const char *vfs, struct err *err);

/* Which files have lost the log that they need (own_wal.h). */
struct pair_lost {
    bool staging_log, history_log;
};

/* The same for `unseen check --repair`, which takes a folder without staging.db, or without logs, too. */
int pair_examine_loss(const char *folder, struct pair_lost *lost, struct err *err);

/* At a start: counts it, and gives both files one `folder` if they have none yet. Outside a transaction. */
int pair_begin(struct db *staging, struct db *history, struct err *err);

/* `unseen check --repair`: accepts an older file, or a new staging.db; did() is told what is lost. Inside a transaction
 * of staging.db. Returns how many losses were told, or an error: files of two folders stay refused. */
int pair_accept(struct db *staging, struct db *history, void (*did)(void *arg, const char *what), void *arg,
                struct err *err);

/* What both files call the folder, as a number; never 0. After pair_begin(). */
int pair_folder(struct db *staging, int64_t *id, struct err *err);

/* Draws a `folder` for a new history.db, inside the transaction that gives it its seed. */
int pair_draw(struct db *history, struct err *err);

#endif
