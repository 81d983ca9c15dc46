/* Accepts the loss of rows of the slots that can't be read, and of those that a start has set aside. They stay in the
 * table set_aside of staging.db, as they were found. A row with only its id damaged is not lost: it gets another
 * one. */
#include <stdio.h>

#include "store/ring.h"
#include "store/sqlite/admin/repair.h"
#include "store/sqlite/staging/pool_rows.h"
#include "store/sqlite/staging/slot_rows.h"

struct told {
    void (*did)(void *arg, const char *what);
    void *arg;
    int repairs;
};

static void tell(struct told *t, int rows, const char *one, const char *many)
{
    char text[192];
    if (rows > 0) {
        snprintf(text, sizeof text, "staging.db: %d %s", rows, rows == 1 ? one : many);
        t->did(t->arg, text);
        t->repairs++;
    }
}

/* Of a table: how many, or an error. */
static int lose_in(struct db *db, int table, struct err *err)
{
    struct staged_ids rows = {0};
    int result = slot_rows_unreadable(db, table, &rows, err);
    if (result == 0) {
        result = slot_rows_set_aside(db, table, &rows, true, err);
    }
    staged_ids_free(&rows);
    return result;
}

static int lose_unreadable(struct db *db, const struct slot_tables *tables, int slot, struct told *t, struct err *err)
{
    int lost = 0, result = 0;
    char one[96], many[96];
    for (int part = -1; result >= 0 && (part = slot_tables_next(tables, slot, part)) >= 0;) {
        result = lose_in(db, slot_table(slot, part), err);
        lost += result > 0 ? result : 0;
    }
    snprintf(one, sizeof one, "row of slot %d that can't be read is lost", slot);
    snprintf(many, sizeof many, "rows of slot %d that can't be read are lost", slot);
    tell(t, result < 0 ? 0 : lost, one, many);
    return result < 0 ? result : 0;
}

static void renumbered(void *arg, int slot, int64_t id, int64_t new_id)
{
    (void)arg;
    (void)slot;
    (void)id;
    (void)new_id;
}

static int renumber(struct db *db, struct told *t, struct err *err)
{
    int64_t highest = 0;
    int result = db_meta_count(db, "high_water", &highest, err);
    if (result == 0) {
        result = slot_rows_renumber(db, highest, renumbered, NULL, err);
    }
    tell(t, result, "row had an id that can't be, it has another one now",
         "rows had ids that can't be, they have others now");
    return result;
}

int repair_staging(struct db *db, void (*did)(void *arg, const char *what), void *arg, struct err *err)
{
    struct told t = {did, arg, 0};
    struct slot_tables tables;
    int result = slot_rows_tables(db, &tables, err);
    if (result == 0 && (result = renumber(db, &t, err)) >= 0) {
        result = slot_rows_accept(db, err);
        tell(&t, result, "row that was set aside before is lost", "rows that were set aside before are lost");
    }
    for (int i = 0; i < STORE_SLOTS_MAX && result >= 0; i++) {
        result = lose_unreadable(db, &tables, i, &t, err);
    }
    if (result >= 0) {
        result = repair_legacy(db, did, arg, err);
    }
    int pools = result < 0 ? result : pool_rows_repair(db, did, arg, err);
    return pools < 0 ? pools : t.repairs + result + pools;
}
