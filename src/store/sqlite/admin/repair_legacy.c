/* What staging.db has of users who come from another Redis: notes, problems and the feed; and of other sources. To read
 * a user or a source once more is harmless, so a note of which only the state is unclear waits again. An event that
 * can't be read is lost, and so are the feed's consumers from then on. */
#include <stdio.h>

#include "base/clock.h"
#include "base/plural.h"
#include "store/sqlite/admin/repair.h"
#include "store/sqlite/db/schema.h"

struct step {
    enum sql_statement sql; /* ?1: the time */
    const char *what;       /* %d%s: rows, and its plural */
};

static int run(struct db *db, enum sql_statement sql, int64_t parameter, int *rows, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, sql, err);
    if (stmt != NULL && sqlite3_bind_parameter_count(stmt) > 0) {
        sqlite3_bind_int64(stmt, 1, parameter);
    }
    int result = db_run(db, stmt, err);
    *rows = result == 0 ? sqlite3_changes(db->handle) : 0;
    return result;
}

int repair_legacy(struct db *db, void (*did)(void *arg, const char *what), void *arg, struct err *err)
{
    static const struct step steps[] = {
        {SQL_REPAIR_NOTE_STATES, "staging.db: %d note%s of a state that can't be read, to be read again"},
        {SQL_REPAIR_NOTES, "staging.db: %d note%s that can't be read, lost: note these users again"},
        {SQL_REPAIR_NOTE_TWICE, "staging.db: %d user%s noted more than once, to be read again"},
        {SQL_REPAIR_NOTE_REPEATS, "staging.db: %d repeated note%s removed"},
        {SQL_REPAIR_LEGACY_PROBLEMS, "staging.db: %d row%s of legacy_problems that can't be read, removed"},
        {SQL_REPAIR_LEGACY_PAUSED, "staging.db: the migration is not paused (%d value%s of meta)"},
        {SQL_REPAIR_FEED_LOST, "staging.db: %d consumer%s of the feed lost from now on"},
        {SQL_REPAIR_FEED, "staging.db: %d event%s of the feed that can't be read, lost"},
        {SQL_REPAIR_FEED_CONSUMERS, "staging.db: %d consumer%s of the feed set again, and lost from now on"},
        {SQL_REPAIR_FEED_NAMES, "staging.db: %d consumer%s of the feed without a name removed"},
        {SQL_REPAIR_FEED_MIRROR, "staging.db: the feed's events are the mirror's, which is lost (%d consumer%s)"},
        {SQL_REPAIR_POSITIONS, "staging.db: %d position%s that can't be read, read again from the source's beginning"},
        {SQL_REPAIR_TOMBSTONES, "staging.db: %d row%s of forgets that can't be read, removed"},
        {SQL_REPAIR_MERGES, "staging.db: %d row%s of merges that can't be read, removed"},
        {SQL_REPAIR_SOURCES, "staging.db: %d position%s of a source that can't be read, removed"},
    };
    int repairs = 0;
    int result = 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && result == 0; i++) {
        int rows = 0;
        result = run(db, steps[i].sql, clock_wall_ms(), &rows, err);
        if (result == 0 && rows > 0) {
            char text[160];
            snprintf(text, sizeof text, steps[i].what, rows, plural((uint64_t)rows));
            did(arg, text);
            repairs++;
        }
    }
    return result < 0 ? result : repairs;
}
