/* Rows of staging.db that can't be read (a damaged kind, an id of 0 or 300 bytes, a time in no month): the start leaves
 * them out and says so each time. Here they are moved into the table set_aside of the same file, as they are. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/sqlite/repair.h"
#include "store/store.h"

static int list_slots(struct db *db, int slots[STORE_SLOTS_MAX], int *n, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_STAGED_TABLES, err);
    int result;
    *n = 0;
    while ((result = db_step(db, stmt, err)) == 1) {
        const char *name = (const char *)sqlite3_column_text(stmt, 0);
        if (*n < STORE_SLOTS_MAX) {
            slots[(*n)++] = atoi(name + strlen("staged_"));
        }
    }
    return result;
}

/* Moves the rows of one slot. Returns how many, or an error. */
static int move_unreadable(struct db *db, int slot, struct err *err)
{
    int result = db_run(db, db_stmt_for(db, SQL_STAGED_SET_ASIDE, slot, err), err);
    if (result < 0) {
        return result;
    }
    int moved = sqlite3_changes(db->handle);
    if (moved > 0) {
        result = db_run(db, db_stmt_for(db, SQL_STAGED_DELETE_UNREADABLE, slot, err), err);
    }
    return result < 0 ? result : moved;
}

int repair_staging(struct db *db, void (*did)(void *arg, const char *what), void *arg, struct err *err)
{
    int slots[STORE_SLOTS_MAX];
    int n = 0;
    int repairs = 0;
    int result = list_slots(db, slots, &n, err);
    for (int i = 0; i < n && result >= 0; i++) {
        int64_t unreadable = 0;
        sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_UNREADABLE, slots[i], err);
        result = db_step(db, stmt, err);
        if (result == 1) {
            unreadable = sqlite3_column_int64(stmt, 0);
            sqlite3_reset(stmt);
        }
        if (result < 0 || unreadable == 0) {
            continue;
        }
        if (repairs == 0 && (result = db_run(db, db_stmt(db, SQL_SET_ASIDE_CREATE, err), err)) < 0) {
            break;
        }
        result = move_unreadable(db, slots[i], err);
        if (result > 0) {
            char text[128];
            snprintf(text, sizeof text, "staging.db: %d row%s of slot %d that can't be read %s lost", result,
                     result == 1 ? "" : "s", slots[i], result == 1 ? "is" : "are");
            did(arg, text);
            repairs++;
        }
    }
    if (result >= 0) {
        result = repair_legacy(db, did, arg, err);
    }
    return result < 0 ? result : repairs + result;
}
