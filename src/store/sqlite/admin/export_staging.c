#include "store/sqlite/admin/export_staging.h"

#include <inttypes.h>
#include <stdlib.h>

#include "store/sqlite/staging/slot_rows.h"
#include "store/sqlite/staging/staged_row.h"

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while exporting");
}

/* A row whose id can't be is taken all the same, as the slot's oldest. */
static int stage_row(struct export_staging *x, struct staged *index, int64_t first, sqlite3_stmt *stmt, struct err *err)
{
    struct staged_row row;
    if (staged_row_read(stmt, x->seed, &x->months, &row) != NULL) {
        char what[128];
        snprintf(what, sizeof what, "staging.db: row %lld can't be read, left out",
                 (long long)sqlite3_column_int64(stmt, 0));
        x->e->damaged(x->e->arg, what);
        return 0;
    }
    if (row.key < x->e->from || row.key > x->e->to || !x->e->wanted(x->e->arg, row.user)) {
        return 0;
    }
    if (!staged_fits(index, row.id, row.month)) {
        row.id = (uint64_t)first;
    }
    return staged_row_add(index, &row) < 0 ? out_of_memory(err) : 0;
}

static int read_table(struct export_staging *x, int table, struct staged *index, int64_t first, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt_for(&x->db, SQL_STAGED_ALL, table, err);
    int result;
    while ((result = db_step(&x->db, stmt, err)) == 1) {
        if ((result = stage_row(x, index, first, stmt, err)) < 0) {
            sqlite3_reset(stmt);
            break;
        }
    }
    return result;
}

/* A table's rows, and which ids they have. */
static int read_part(struct export_staging *x, int slot, int part, struct slot_parts *parts, struct staged *index,
                     int64_t first, struct err *err)
{
    int64_t lowest, highest;
    int table = slot_table(slot, part);
    int result = slot_rows_span(&x->db, table, &lowest, &highest, err);
    if (result != 1) {
        return result;
    }
    parts_found(parts, part, (uint64_t)lowest, (uint64_t)highest);
    return read_table(x, table, index, first, err);
}

static int read_slot(struct export_staging *x, const struct slot_tables *tables, int slot, int64_t highest,
                     struct err *err)
{
    int64_t first = 0;
    int result = slot_rows_first(&x->db, tables, slot, highest, &first, err);
    if (result < 0) {
        return result;
    }
    struct staged *index = staged_new((uint64_t)first);
    struct slot_parts *parts = calloc(1, sizeof *parts);
    if (index == NULL || parts == NULL) {
        staged_free(index);
        free(parts);
        return out_of_memory(err);
    }
    x->slot_numbers[x->n_slots] = slot;
    x->parts[x->n_slots] = parts;
    x->slots[x->n_slots++] = index;
    for (int part = -1; result == 0 && (part = slot_tables_next(tables, slot, part)) >= 0;) {
        result = read_part(x, slot, part, parts, index, first, err);
    }
    return result;
}

static void tell_set_aside(struct export_staging *x)
{
    int64_t waiting = 0;
    if (slot_rows_waiting(&x->db, &waiting, NULL) == 0 && waiting > 0) {
        char what[128];
        snprintf(what, sizeof what, "staging.db: %" PRId64 " rows that can't be read were set aside", waiting);
        x->e->damaged(x->e->arg, what);
    }
}

static int by_key_and_item(const void *a, const void *b)
{
    const struct tombstone *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : (x->item > y->item) - (x->item < y->item);
}

static int list_items(struct export_staging *x, struct err *err)
{
    struct tombstone t, *list = malloc(tombstones_count(x->tombstones) * sizeof *list + 1);
    size_t n = 0;
    for (size_t i = 0; list != NULL && tombstones_at(x->tombstones, &i, &t);) {
        if (t.item != TOMBSTONE_USER && t.at_ms > 0 && t.key >= x->e->from && t.key <= x->e->to) {
            list[n++] = t;
        }
    }
    x->item_keys = malloc(n * sizeof *x->item_keys + 1);
    x->items = malloc(n * sizeof *x->items + 1);
    if (list == NULL || x->item_keys == NULL || x->items == NULL) {
        free(list);
        return out_of_memory(err);
    }
    qsort(list, n, sizeof *list, by_key_and_item);
    for (size_t i = 0; i < n; i++) {
        x->item_keys[i] = list[i].key;
        x->items[i] = (struct snapshot_forgotten){list[i].item, list[i].at_ms};
    }
    x->n_items = n;
    free(list);
    return 0;
}

static int read_tombstones(struct export_staging *x, struct err *err)
{
    x->tombstones = tombstones_new();
    int result = x->tombstones == NULL ? out_of_memory(err) : forgets_read(x->tombstones, &x->db, err);
    return result < 0 ? result : list_items(x, err);
}

int64_t export_staging_forgotten(const struct export_staging *x, int64_t key)
{
    int64_t at_ms = tombstones_user_ms(x->tombstones, key);
    return at_ms > 0 ? at_ms : 0;
}

const struct snapshot_forgotten *export_staging_items(const struct export_staging *x, int64_t key, size_t *n)
{
    size_t from = 0, end = x->n_items;
    while (from < end) {
        size_t middle = from + (end - from) / 2;
        from = x->item_keys[middle] < key ? middle + 1 : from;
        end = x->item_keys[middle] < key ? end : middle;
    }
    for (*n = 0; from + *n < x->n_items && x->item_keys[from + *n] == key; ++*n) {
    }
    return x->items + from;
}

static int read_staging(struct export_staging *x, struct err *err)
{
    struct slot_tables tables;
    int64_t highest = 0;
    int result = db_begin_read(&x->db, err);
    if (result < 0) {
        return result;
    }
    if ((result = slot_rows_tables(&x->db, &tables, err)) == 0) {
        result = db_meta_count(&x->db, "high_water", &highest, err);
    }
    if (result == 0) {
        result = read_tombstones(x, err);
    }
    for (int i = 0; i < STORE_SLOTS_MAX && result == 0; i++) {
        result = slot_tables_any(&tables, i) ? read_slot(x, &tables, i, highest, err) : 0;
    }
    if (result == 0) {
        tell_set_aside(x);
    }
    if (result == 0) {
        result = export_migration_read(&x->users_to_migrate, &x->db, x->e, x->seed, err);
    }
    return db_end_read(&x->db, result, err);
}

static int next_staged(struct export_staging *x, int i, struct err *err)
{
    if (i == EXPORT_NOTED) {
        int found = export_migration_next(&x->users_to_migrate, &x->db, &x->walks[i].key, &x->walks[i].user, err);
        x->at_user[i] = found == 1;
        return found < 0 ? found : 0;
    }
    int next = staged_walk_next(&x->walks[i]);
    x->at_user[i] = next == 1;
    return next < 0 ? out_of_memory(err) : 0;
}

int export_staging_read(struct export_staging *x, uint64_t seed, struct err *err)
{
    x->seed = seed;
    int result = read_staging(x, err);
    for (int i = 0; i < x->n_slots && result == 0; i++) {
        staged_walk_begin(&x->walks[i], x->slots[i], x->e->from);
        result = next_staged(x, i, err);
    }
    return result < 0 ? result : next_staged(x, EXPORT_NOTED, err);
}

int export_staging_lowest(const struct export_staging *x, int64_t to)
{
    int lowest = -1;
    for (int i = 0; i < EXPORT_WALKS; i++) {
        if (x->at_user[i] && x->walks[i].key <= to && (lowest < 0 || x->walks[i].key < x->walks[lowest].key)) {
            lowest = i;
        }
    }
    return lowest;
}

static bool stands_at(const struct export_staging *x, int i, int64_t key, struct slice user)
{
    return x->at_user[i] && x->walks[i].key == key && slice_eq(x->walks[i].user, user);
}

int export_staging_pass(struct export_staging *x, int64_t key, struct slice user, struct err *err)
{
    int result = 0;
    for (int i = 0; i < EXPORT_WALKS && result == 0; i++) { /* EXPORT_NOTED last: `user` may be its */
        result = stands_at(x, i, key, user) ? next_staged(x, i, err) : 0;
    }
    return result;
}

int export_staging_delivery(const struct export_staging *x, int64_t key, struct slice user)
{
    int newest = 0;
    for (int i = 0; i < x->n_slots; i++) {
        const struct staged_walk *walk = &x->walks[i];
        bool here = stands_at(x, i, key, user);
        for (size_t j = 0; here && j < walk->n_deliveries; j++) {
            newest = walk->deliveries[j].month > newest ? walk->deliveries[j].month : newest;
        }
    }
    return newest;
}

bool export_staging_noted(const struct export_staging *x, int64_t key, struct slice user)
{
    return stands_at(x, EXPORT_NOTED, key, user);
}

int export_staging_drop_gone(struct export_staging *x, int64_t key, struct slice user, struct err *err)
{
    bool any = false;
    for (int i = 0; i < x->n_slots; i++) {
        x->ids.n = 0;
        if (staged_find_user(x->slots[i], key, user, &x->ids) < 0) {
            return out_of_memory(err);
        }
        size_t gone = 0; /* they are gathered at the front, in order */
        for (size_t j = 0; j < x->ids.n; j++) {
            int has = parts_have_row(&x->db, x->slot_numbers[i], x->parts[i], x->ids.at[j], err);
            if (has < 0) {
                return has;
            }
            if (has == 0) {
                x->ids.at[gone++] = x->ids.at[j];
            }
        }
        staged_drop_rows(x->slots[i], key, user, x->ids.at, gone);
        any = any || gone > 0;
    }
    return any;
}

void export_staging_free(struct export_staging *x)
{
    for (int i = 0; i < x->n_slots; i++) {
        staged_walk_free(&x->walks[i]);
        staged_free(x->slots[i]);
        free(x->parts[i]);
    }
    staged_ids_free(&x->ids);
    tombstones_free(x->tombstones);
    free(x->item_keys);
    free(x->items);
    export_migration_free(&x->users_to_migrate);
}
