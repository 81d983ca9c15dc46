/* Repairs what history.db has about users beside their plays. Their newest months are raised to those of their plays,
 * and rows that neither a question nor the sweep would ever find are deleted. Plays and deliveries without a row in
 * users are in repair_nameless.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "store/sqlite/admin/repair.h"

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
    sqlite3_stmt *stmt = db_stmt(db, SQL_MONTH_TABLES, err);
    int repairs = 0;
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        char name[MONTH_TEXT], then[64];
        int month = sqlite3_column_int(stmt, 1);
        snprintf(then, sizeof then, "their newest month is set to %s", month_name(month, name));
        result = raise_newest(db, (const char *)sqlite3_column_text(stmt, 0), month, err);
        if (result < 0) {
            sqlite3_reset(stmt);
            break;
        }
        repairs += tell(did, arg, result, "users", then);
    }
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
