/* The seed that all ids of a folder are hashed with, at start: history.db's own, else the one that is configured, else
 * a random one. It never changes once something was hashed with it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/bulk.h"
#include "store/sqlite/db/pair.h"
#include "store/sqlite/db/schema.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/state.h"

static int write_seed(struct db *db, uint64_t seed, struct err *err)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, seed);
    sqlite3_stmt *stmt = db_stmt(db, SQL_META_SET, err);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, "seed", -1, SQLITE_STATIC);
        sqlite3_bind_text(stmt, 2, text, -1, SQLITE_STATIC);
    }
    return db_run(db, stmt, err);
}

static const char BEGUN[] = "begun";

static int write_begun(struct sqlite_store *s, struct err *err)
{
    return db_meta_set_int(&s->historian.db, BEGUN, clock_wall_ms(), err);
}

static int read_begun(struct sqlite_store *s, struct err *err)
{
    int64_t ms = 0;
    int result = db_meta_time(&s->historian.db, BEGUN, &ms, err);
    atomic_store(&s->counters.begun_ms, ms > 0 ? (uint64_t)ms : 0);
    return result;
}

/* Whether some slot's table has a row. */
static int has_rows(struct db *db, bool *rows, struct err *err)
{
    int result;
    sqlite3_stmt *tables = db_stmt(db, SQL_STAGED_TABLES, err);
    *rows = false;
    while ((result = db_step(db, tables, err)) == 1) {
        char sql[128];
        int64_t any = 0;
        snprintf(sql, sizeof sql, "SELECT EXISTS (SELECT 1 FROM \"%s\")", sqlite3_column_text(tables, 0));
        if ((result = db_int(db, sql, &any, err)) < 0 || any > 0) {
            *rows = any > 0;
            sqlite3_reset(tables);
            break;
        }
    }
    return result < 0 ? result : 0;
}

/* Whether a folder holds anything that was hashed: users in history, or rows or ended notes in staging (which belong to
 * the history they were written beside). */
static int has_plays(struct sqlite_store *s, bool *plays, struct err *err)
{
    int64_t users = 0;
    int64_t high_water = 0;
    int64_t ended = 0;
    bool rows = false;
    int result = db_int(&s->historian.db, "SELECT EXISTS (SELECT 1 FROM users)", &users, err);
    if (result == 0) {
        result = db_meta_count(&s->stager.db, "high_water", &high_water, err);
    }
    if (result == 0) {
        result =
            db_int(&s->stager.db, "SELECT EXISTS (SELECT 1 FROM noted WHERE typeof(user) = 'integer')", &ended, err);
    }
    if (result == 0) {
        result = has_rows(&s->stager.db, &rows, err);
    }
    *plays = users > 0 || high_water > STORE_RANK_MAX || ended > 0 || rows;
    return result;
}

int seed_choose(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->historian.db;
    uint64_t stored = 0;
    bool found = false;
    bool plays = false;
    int result = schema_seed(db, &stored, err);
    found = result == 1;
    if (result < 0 || (result = has_plays(s, &plays, err)) < 0) {
        return result;
    }
    if (!found && plays) {
        return err_set(
            err, ERR_SEED,
            "%s is new, but %s holds plays that belong to another one: put the right history.db back, or move both "
            "files away",
            db->path, s->stager.db.path);
    }
    if (found && (plays || !s->cfg->hash_seed_given)) {
        s->seed = stored;
        if ((result = read_begun(s, err)) < 0) {
            return result;
        }
        if (s->cfg->hash_seed_given && s->cfg->hash_seed != stored) {
            return err_set(err, ERR_SEED,
                           "hash_seed differs from the seed of the plays in %s (fingerprint %08" PRIx32
                           "): remove hash_seed from the configuration, or use another data folder",
                           s->folder, hash_seed_fingerprint(stored));
        }
        return 0;
    }
    s->seed = s->cfg->hash_seed;
    if (!s->cfg->hash_seed_given && getrandom(&s->seed, sizeof s->seed, 0) != sizeof s->seed) {
        return err_set(err, ERR_SYSTEM, "can't draw a seed: %s", strerror(errno));
    }
    if ((result = history_full(s, true, err)) < 0 || (result = history_begin(s, err)) < 0) {
        return result;
    }
    if ((result = write_seed(db, s->seed, err)) < 0 || (result = pair_draw(db, err)) < 0 ||
        (result = found ? 0 : write_begun(s, err)) < 0) {
        history_rollback(s);
        return result;
    }
    result = history_commit(s, err);
    result = result < 0 ? result : history_full(s, false, err);
    result = result < 0 ? result : read_begun(s, err);
    if (result == 0 && !found) { /* a mistyped path, or a disk that isn't mounted, looks the same */
        log_warn("the data folder holds no data: an empty history is begun", "data=%s seed=%08" PRIx32,
                 log_quote_str(s->folder), hash_seed_fingerprint(s->seed));
    }
    return result;
}
