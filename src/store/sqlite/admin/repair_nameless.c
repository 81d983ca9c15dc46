/* Plays and deliveries of a key that has no row in users. It can't be told whose they are, and no question finds them:
 * the user's played items are answered as unseen.
 *
 * If kept, they get a row with an empty name. A question and a FORGET look by key, so the user with that key finds
 * them, and the user's next flush restores the name. If dropped, they are gone.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/plural.h"
#include "store/sqlite/admin/repair.h"

enum { TABLES_MAX = 1024, TABLE_TEXT = 32 };

struct tables {
    char names[TABLES_MAX][TABLE_TEXT];
    int months[TABLES_MAX];
    int n;
};

/* Of the months, newest first: what is given a row first has the right last_month. */
static int list_tables(struct db *db, struct tables *out, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_MONTH_TABLES, err);
    int result;
    out->n = 0;
    while ((result = db_step(db, stmt, err)) == 1) {
        if (out->n == TABLES_MAX) {
            sqlite3_reset(stmt);
            return err_set(err, ERR_CORRUPT, "%s: more than %d months", db->path, TABLES_MAX);
        }
        snprintf(out->names[out->n], TABLE_TEXT, "%s", sqlite3_column_text(stmt, 0));
        out->months[out->n++] = sqlite3_column_int(stmt, 1);
    }
    return result;
}

static int run(struct db *db, const char *sql, int *changes, struct err *err)
{
    int result = db_exec(db, sql, err);
    *changes += result == 0 ? sqlite3_changes(db->handle) : 0;
    return result;
}

static int keep(struct db *db, const struct tables *t, int *users, struct err *err)
{
    char sql[256];
    int result = 0;
    for (int i = 0; i < t->n && result == 0; i++) {
        snprintf(sql, sizeof sql,
                 "INSERT INTO users (user_key, user, last_month) SELECT user_key, '', %d FROM %s WHERE user_key NOT IN "
                 "(SELECT user_key FROM users)",
                 t->months[i], t->names[i]);
        result = run(db, sql, users, err);
    }
    if (result == 0 && t->n > 0) { /* until the newest month's sweep, as nothing says when they were sent */
        snprintf(sql, sizeof sql,
                 "INSERT INTO users (user_key, user, last_month) SELECT user_key, '', %d FROM delivered WHERE user_key "
                 "NOT IN (SELECT user_key FROM users)",
                 t->months[0]);
        result = run(db, sql, users, err);
    }
    return result;
}

static int drop(struct db *db, const struct tables *t, int *filters, int *lists, struct err *err)
{
    char sql[128];
    int result = 0;
    for (int i = 0; i < t->n && result == 0; i++) {
        snprintf(sql, sizeof sql, "DELETE FROM %s WHERE user_key NOT IN (SELECT user_key FROM users)", t->names[i]);
        result = run(db, sql, filters, err);
    }
    return result < 0 ? result
                      : run(db, "DELETE FROM delivered WHERE user_key NOT IN (SELECT user_key FROM users)", lists, err);
}

int repair_nameless(struct db *db, enum sqlite_nameless nameless, void (*did)(void *arg, const char *what), void *arg,
                    struct err *err)
{
    struct tables *t = malloc(sizeof *t);
    if (t == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    int users = 0, filters = 0, lists = 0;
    int result = list_tables(db, t, err);
    if (result == 0 && nameless == NAMELESS_KEEP) {
        result = keep(db, t, &users, err);
    }
    if (result == 0) { /* kept, there is nothing left but where no month says how long */
        result = drop(db, t, &filters, &lists, err);
    }
    free(t);
    char text[192];
    if (result == 0 && users > 0) {
        snprintf(text, sizeof text,
                 "%d user%s whose name is lost: kept without it, a user with the key is answered with their plays",
                 users, plural((uint64_t)users));
        did(arg, text);
    }
    if (result == 0 && filters + lists > 0) {
        snprintf(text, sizeof text, "%d month%s and %d list%s of deliveries of users whose name is lost: dropped",
                 filters, plural((uint64_t)filters), lists, plural((uint64_t)lists));
        did(arg, text);
    }
    return result < 0 ? result : (users > 0) + (filters + lists > 0);
}
