#include "store/sqlite/db/pair.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "store/sqlite/db/own_wal.h"
#include "store/sqlite/db/schema.h"
#include "store/sqlite/staging/slot_rows.h"

enum { FOLDER_TEXT = 17 };

/* --- before they are opened --- */

struct look {
    char path[PATH_MAX];
    bool there, log; /* and not empty */
    enum own_wal log_is;
};

static bool not_empty(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_size > 0;
}

static int judge_log(const char *folder, const char *name, enum own_wal log, struct err *err)
{
    switch (log) {
    case OWN_WAL_LEFT_OVER:
        return err_set(err, ERR_CORRUPT,
                       "%s.db-wal in %s is left over from another %s.db: this one was closed and has no log; move "
                       "%s.db-wal and %s.db-shm away",
                       name, folder, name, name, name);
    case OWN_WAL_OTHER:
        return err_set(err, ERR_CORRUPT,
                       "%s.db-wal in %s is the log of another %s.db, or of this one at another time: put its own back, "
                       "or move %s.db-wal and %s.db-shm away and restore both files of a backup",
                       name, folder, name, name, name);
    case OWN_WAL_MISSING:
        return err_set(err, ERR_CORRUPT,
                       "%s/%s.db needs its log %s.db-wal, which is missing, empty or cut short: it holds what was "
                       "recorded last. Put it back, restore both files of a backup, or accept that loss with "
                       "`unseen check --repair`",
                       folder, name, name);
    default:
        return 0;
    }
}

static int look_at(const char *folder, const char *name, struct look *out, struct err *err)
{
    char log[PATH_MAX];
    if (snprintf(out->path, sizeof out->path, "%s/%s.db", folder, name) >= (int)sizeof out->path ||
        snprintf(log, sizeof log, "%s/%s.db-wal", folder, name) >= (int)sizeof log) {
        return err_set(err, ERR_INVALID, "the path of the data folder is too long: %s", folder);
    }
    out->there = not_empty(out->path);
    out->log = not_empty(log);
    if (out->log && !out->there) {
        return err_set(err, ERR_CORRUPT,
                       "%s is missing or empty, but its log %s.db-wal is there: put the file back that belongs to it, "
                       "or restore both files of a backup into an empty folder",
                       out->path, name);
    }
    return own_wal_look(folder, name, &out->log_is, err);
}

enum there { NEITHER, STAGING, HISTORY, BOTH };

/* lost: those without the log that they need, which is an error unless the caller asks. */
static int look(const char *folder, const char *vfs, enum there *there, enum there *lost, struct err *err)
{
    static const char *const names[] = {"staging", "history"};
    static const enum there bits[] = {STAGING, HISTORY};
    unsigned found = NEITHER, missing = NEITHER;
    for (int i = 0; i < 2; i++) {
        struct look l;
        int result = look_at(folder, names[i], &l, err);
        bool accepts = lost != NULL && l.log_is == OWN_WAL_MISSING;
        if (result < 0 || (!accepts && (result = judge_log(folder, names[i], l.log_is, err)) < 0)) {
            return result;
        }
        found |= l.there ? bits[i] : NEITHER;
        missing |= accepts ? bits[i] : NEITHER;
    }
    *there = (enum there)found;
    if (lost != NULL) {
        *lost = (enum there)missing;
    }
    for (int i = 0; i < 2; i++) {
        int result = (found & bits[i]) != 0 ? db_settle(folder, names[i], vfs, err) : 0;
        if (result < 0) {
            return result;
        }
    }
    return 0;
}

/* --- what they say --- */

/* "": there is none. */
static int read_folder(struct db *db, char out[FOLDER_TEXT], struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_META_GET, err);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, "folder", -1, SQLITE_STATIC);
    }
    int result = db_step(db, stmt, err);
    out[0] = '\0';
    if (result == 1) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        snprintf(out, FOLDER_TEXT, "%s", text != NULL ? text : "");
        sqlite3_reset(stmt);
        result = 0;
    }
    return result;
}

static int write_folder(struct db *db, const char *folder, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_META_SET, err);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, "folder", -1, SQLITE_STATIC);
        sqlite3_bind_text(stmt, 2, folder, -1, SQLITE_STATIC);
    }
    return db_run(db, stmt, err);
}

struct pair {
    char staging[FOLDER_TEXT], history[FOLDER_TEXT];
    bool staging_started, history_made;
    int64_t migration_state, flushes; /* by staging.db, of history.db */
    int64_t highest, met;             /* in staging.db, by history.db */
    int64_t staging_starts, history_starts;
};

/* A file whose making was cut short says nothing. */
static int read_staging(struct db *staging, struct pair *p, struct err *err)
{
    int64_t turn = -1;
    int result = schema_examine(staging, false, err);
    if (result <= 0) {
        return result;
    }
    if ((result = read_folder(staging, p->staging, err)) < 0 ||
        (result = db_meta_int(staging, "turn", -1, 0, INT64_MAX / 2, &turn, err)) < 0 ||
        (result = db_meta_count(staging, "starts", &p->staging_starts, err)) < 0 ||
        (result = db_meta_count(staging, "flushes", &p->migration_state, err)) < 0) {
        return result;
    }
    p->staging_started = turn >= 0; /* the first start writes it last */
    return slot_rows_highest(staging, &p->highest, err);
}

static int read_history(struct db *history, struct pair *p, struct err *err)
{
    int result = schema_examine(history, true, err);
    if (result <= 0) {
        return result;
    }
    p->history_made = true;
    result = read_folder(history, p->history, err);
    if (result < 0 || (result = db_meta_count(history, "starts", &p->history_starts, err)) < 0 ||
        (result = db_meta_count(history, "flushes", &p->flushes, err)) < 0) {
        return result;
    }
    int64_t forgets = 0;
    if ((result = db_meta_count(history, "high_water", &p->met, err)) < 0 ||
        (result = db_meta_count(history, "forgets", &forgets, err)) < 0) {
        return result;
    }
    p->met = forgets > p->met ? forgets : p->met; /* ids of one sequence */
    return 0;
}

/* A new staging.db beside a history.db that has seen none yet: the first start was cut short. */
static bool is_first_start(const struct pair *p)
{
    return p->staging[0] == '\0' && !p->staging_started && p->met == 0 && p->flushes == 0;
}

static bool staging_is_older(const struct pair *p)
{
    return p->highest < p->met || p->staging_starts < p->history_starts;
}

/* A start writes staging.db first. */
static bool history_is_older(const struct pair *p)
{
    return p->flushes < p->migration_state || p->staging_starts > p->history_starts + 1;
}

static bool is_other_folder(const struct pair *p)
{
    if (p->staging[0] == '\0' || p->history[0] == '\0') {
        /* What was salvaged has none in either. */
        return p->history[0] != '\0' && !is_first_start(p);
    }
    return strcmp(p->staging, p->history) != 0 || (staging_is_older(p) && history_is_older(p)); /* went on apart */
}

static int judge(const char *folder, const struct pair *p, struct err *err)
{
    if (!p->history_made) {
        return p->staging_started
                   ? err_set(
                         err, ERR_CORRUPT,
                         "%s/history.db is missing or empty: it holds all plays but the newest. Put it back, restore "
                         "both files of a backup, or save what staging.db has with `unseen check --salvage NEWFOLDER`",
                         folder)
                   : 0;
    }
    if (is_other_folder(p)) {
        return err_set(
            err, ERR_CORRUPT,
            "staging.db and history.db in %s are of two folders: put back the one that belongs to the other, "
            "or restore both files of one backup",
            folder);
    }
    if (staging_is_older(p) || history_is_older(p)) {
        bool staging = staging_is_older(p);
        return err_set(err, ERR_CORRUPT,
                       "%s/%s.db is older than %s.db beside it: put the newest one back, restore both files of one "
                       "backup, or accept what is missing with `unseen check --repair`",
                       folder, staging ? "staging" : "history", staging ? "history" : "staging");
    }
    return 0;
}

static int examine_one(const char *folder, const char *name, const char *vfs,
                       int (*read)(struct db *db, struct pair *p, struct err *err), struct pair *p, struct err *err)
{
    struct db db;
    int result = db_open(&db, folder, name, vfs, DB_READ, err);
    if (result == 0) {
        result = read(&db, p, err);
        db_close(&db);
    }
    return result;
}

static int staging_missing(const char *folder, struct err *err)
{
    return err_set(err, ERR_CORRUPT,
                   "%s/staging.db is missing or empty: it holds what was recorded since the last flush. Put it back, "
                   "restore both files of a backup, or accept that loss with `unseen check --repair`",
                   folder);
}

int pair_examine(const char *folder, const char *vfs, struct err *err)
{
    enum there there;
    struct pair p = {0};
    int result = look(folder, vfs, &there, NULL, err);
    if (result == 0 && (there & STAGING) != 0) {
        result = examine_one(folder, "staging", vfs, read_staging, &p, err);
    }
    if (result == 0 && (there & HISTORY) != 0) {
        result = examine_one(folder, "history", vfs, read_history, &p, err);
    }
    if (result == 0 && there == HISTORY) { /* staging.db is made first */
        result = staging_missing(folder, err);
    }
    return result < 0 ? result : judge(folder, &p, err);
}

int pair_look(const char *folder, const char *vfs, struct err *err)
{
    enum there there;
    struct pair p = {.staging_started = true};
    int result = look(folder, vfs, &there, NULL, err);
    if (result < 0 || there == BOTH) {
        return result;
    }
    return there == HISTORY ? staging_missing(folder, err) : judge(folder, &p, err);
}

int pair_examine_loss(const char *folder, struct pair_lost *lost, struct err *err)
{
    const char *const vfs = NULL;
    enum there there, logs = NEITHER;
    int result = look(folder, vfs, &there, &logs, err);
    *lost = (struct pair_lost){.staging_log = (logs & STAGING) != 0, .history_log = (logs & HISTORY) != 0};
    if (result < 0 || there == BOTH || there == HISTORY) {
        return result;
    }
    return err_set(
        err, ERR_NOTFOUND,
        "there is no history.db in %s: restore a backup, or save what staging.db has with `unseen check --salvage "
        "NEWFOLDER`",
        folder);
}

/* --- joining them --- */

static int draw(char out[FOLDER_TEXT], struct err *err)
{
    uint64_t id;
    if (getrandom(&id, sizeof id, 0) != sizeof id) {
        return err_set(err, ERR_SYSTEM, "can't draw the folder's mark: %s", strerror(errno));
    }
    snprintf(out, FOLDER_TEXT, "%016" PRIx64, id);
    return 0;
}

int pair_draw(struct db *history, struct err *err)
{
    char folder[FOLDER_TEXT];
    int result = read_folder(history, folder, err);
    if (result < 0 || folder[0] != '\0' || (result = draw(folder, err)) < 0) {
        return result;
    }
    return write_folder(history, folder, err);
}

static int write_marks(struct db *db, const char *folder, int64_t starts, struct err *err)
{
    int result = db_begin(db, err);
    if (result < 0) {
        return result;
    }
    if ((result = write_folder(db, folder, err)) < 0 || (result = db_meta_set_int(db, "starts", starts, err)) < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

int pair_begin(struct db *staging, struct db *history, struct err *err)
{
    char folder[FOLDER_TEXT];
    int64_t starts = 0;
    int result = read_folder(history, folder, err);
    if (result == 0 && folder[0] == '\0' && (result = read_folder(staging, folder, err)) == 0 && folder[0] == '\0') {
        result = draw(folder, err);
    }
    if (result < 0 || (result = db_meta_count(history, "starts", &starts, err)) < 0 ||
        (result = write_marks(staging, folder, starts + 1, err)) < 0) {
        return result;
    }
    result = write_marks(history, folder, starts + 1, err);
    return result < 0 || (result = own_wal_begin(staging, err)) < 0 ? result : own_wal_begin(history, err);
}

int pair_folder(struct db *staging, int64_t *id, struct err *err)
{
    char folder[FOLDER_TEXT];
    int result = read_folder(staging, folder, err);
    *id = (int64_t)strtoull(folder, NULL, 16);
    *id = *id != 0 ? *id : 1;
    return result;
}

int pair_accept(struct db *staging, struct db *history, void (*did)(void *arg, const char *what), void *arg,
                struct err *err)
{
    struct pair p = {0};
    int told = 0;
    int result = read_staging(staging, &p, err);
    if (result < 0 || (result = read_history(history, &p, err)) < 0) {
        return result;
    }
    if (p.staging[0] == '\0' && !p.staging_started && p.history[0] != '\0' && !is_first_start(&p)) {
        did(arg, "staging.db was missing: what was recorded after the last flush is lost");
        told++;
        result = write_folder(staging, p.history, err);
    } else if (is_other_folder(&p)) {
        return judge("the folder", &p, err);
    } else if (staging_is_older(&p)) {
        did(arg, "staging.db is older than history.db: what was recorded after it and not flushed is lost; users who "
                 "were forgotten since may have plays again: forget them once more");
        told++;
    } else if (history_is_older(&p)) {
        did(arg, "history.db is older than staging.db: what was flushed after it is lost");
        told++;
    }
    if (result < 0 || told == 0) {
        return result;
    }
    if ((result = db_meta_raise(staging, "high_water", p.met, err)) < 0 ||
        (result = db_meta_set_int(staging, "flushes", p.flushes, err)) < 0) {
        return result;
    }
    result = db_meta_set_int(staging, "starts", p.history_starts, err);
    return result < 0 ? result : told;
}
