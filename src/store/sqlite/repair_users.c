/* What history.db says about its users beside their plays: their newest months are raised to what their plays say, and
 * what nobody looks at, nor the sweep would ever find, is deleted. Plays and deliveries without a row in users stay:
 * nobody can say whose they are, so questions don't find them, but with the user's next flushed play they do again. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "store/sqlite/repair.h"

static const struct {
    const char *what, *sql;
} removals[] = {
    {"exceptions of users who are not in users",
     "DELETE FROM exceptions WHERE user_key NOT IN (SELECT user_key FROM users)"},
    {"shared keys of users who share none",
     "DELETE FROM shared_keys AS s WHERE NOT EXISTS "
     "(SELECT 1 FROM users u WHERE u.user_key = s.user_key AND u.user IS NOT s.user)"},
};

/* A sentence for n changes, none for 0. */
static int tell(void (*did)(void *arg, const char *what), void *arg, int n, const char *what, const char *then)
{
    char text[160];
    snprintf(text, sizeof text, "%d %s: %s", n, what, then);
    if (n > 0) {
        did(arg, text);
    }
    return n > 0;
}

static int raise_newest(struct db *db, const char *table, int month, struct err *err)
{
    char sql[256];
    snprintf(sql, sizeof sql,
             "UPDATE users SET last_month = %d WHERE last_month < %d AND EXISTS "
             "(SELECT 1 FROM %s p WHERE p.user_key = users.user_key)",
             month, month, table);
    int result = db_exec(db, sql, err);
    return result < 0 ? result : sqlite3_changes(db->handle);
}

static int repair_newest(struct db *db, void (*did)(void *arg, const char *what), void *arg, struct err *err)
{
    static const char sql[] =
        "SELECT m.month, s.name FROM sqlite_schema s JOIN months m ON s.type = 'table' AND s.name "
        "IN (printf('plays_%04d%02d', m.month / 12, m.month % 12 + 1), "
        "printf('sealed_%04d%02d', m.month / 12, m.month % 12 + 1))";
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(db->handle, sql, -1, &stmt, NULL) != SQLITE_OK) {
        return db_error(db, err, sql);
    }
    int repairs = 0;
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        char name[MONTH_TEXT], then[64];
        int month = sqlite3_column_int(stmt, 0);
        snprintf(then, sizeof then, "their newest month is set to %s", month_name(month, name));
        result = raise_newest(db, (const char *)sqlite3_column_text(stmt, 1), month, err);
        if (result < 0) {
            break;
        }
        repairs += tell(did, arg, result, "users", then);
    }
    sqlite3_finalize(stmt);
    return result < 0 ? result : repairs;
}

int repair_users(struct db *db, void (*did)(void *arg, const char *what), void *arg, struct err *err)
{
    int repairs = repair_newest(db, did, arg, err);
    for (size_t i = 0; i < sizeof removals / sizeof *removals && repairs >= 0; i++) {
        int result = db_exec(db, removals[i].sql, err);
        if (result < 0) {
            return result;
        }
        repairs += tell(did, arg, sqlite3_changes(db->handle), removals[i].what, "deleted");
    }
    return repairs;
}
