#include "store/sqlite/staging/staged_row.h"

#include "base/calendar.h"
#include "store/grouped.h"
#include "store/sqlite/db/db.h"

enum {
    MONTH_MAX = UINT16_MAX, /* that an index can hold */
    APART = 16,             /* rows between two steps of fetching what a row's user has */
};

/* Values are looked at themselves: each sqlite3_column_*() checks the statement again, which took a third of the time.
 * That is allowed where SQLite was told to take no mutexes (SQLITE_CONFIG_MULTITHREAD, db/db.c). */
static bool read_bytes(sqlite3_value *value, struct slice *out)
{
    int type = sqlite3_value_type(value);
    if (type != SQLITE_TEXT && type != SQLITE_BLOB) {
        return false;
    }
    const char *data = sqlite3_value_blob(value);
    *out = slice_of(data, (size_t)sqlite3_value_bytes(value));
    return true;
}

static bool read_id(sqlite3_value *value, struct slice *out)
{
    return read_bytes(value, out) && out->len >= 1 && out->len <= HASH_ID_MAX;
}

static int month_of(struct staged_months *known, int64_t at_ms)
{
    if (at_ms < known->from || at_ms >= known->to) {
        known->month = month_of_ms(at_ms);
        known->from = month_start_ms(known->month);
        known->to = month_start_ms(known->month + 1);
    }
    return known->month;
}

/* All but the hashes. */
static const char *read_values(sqlite3_value *const *values, struct staged_months *months, struct staged_row *out)
{
    int64_t kind = sqlite3_value_int64(values[1]);
    const bool grouped = kind == GROUPED_KIND;
    if (kind != STORE_PLAY && kind != STORE_DELIVERY && !grouped) {
        return "it is neither a play nor a delivery";
    }
    if (!read_id(values[2], &out->user)) {
        return "its user has not 1 to 255 bytes";
    }
    out->group = 0;
    if (grouped && (!read_bytes(values[3], &out->item) || !grouped_read(out->item, &out->item, &out->group))) {
        return "its item has no group of 20 characters and 1 to 255 bytes behind it";
    }
    if (!grouped && !read_id(values[3], &out->item)) {
        return "its item has not 1 to 255 bytes";
    }
    out->kind = grouped ? STORE_DELIVERY : (enum store_kind)kind;
    bool is_time = sqlite3_value_type(values[4]) == SQLITE_INTEGER;
    out->at_ms = is_time ? sqlite3_value_int64(values[4]) : 0;
    out->month = is_time ? month_of(months, out->at_ms) : -1;
    return out->month >= 0 && out->month <= MONTH_MAX ? NULL : "its time is in no month";
}

static void get_values(sqlite3_stmt *stmt, sqlite3_value **out)
{
    for (int i = 0; i < STAGED_ROW_VALUES; i++) {
        out[i] = sqlite3_column_value(stmt, i);
    }
}

const char *staged_row_problem(sqlite3_stmt *stmt)
{
    struct staged_row row;
    struct staged_months months = {0};
    sqlite3_value *values[STAGED_ROW_VALUES];
    get_values(stmt, values);
    return read_values(values, &months, &row);
}

const char *staged_row_read(sqlite3_stmt *stmt, uint64_t seed, struct staged_months *months, struct staged_row *out)
{
    sqlite3_value *values[STAGED_ROW_VALUES];
    get_values(stmt, values);
    return staged_row_take(values, seed, months, out);
}

const char *staged_row_take(sqlite3_value *const *values, uint64_t seed, struct staged_months *months,
                            struct staged_row *out)
{
    out->id = (uint64_t)sqlite3_value_int64(values[0]);
    const char *problem = read_values(values, months, out);
    if (problem == NULL) {
        out->key = hash_user_key(seed, out->user);
        out->hash = hash_id(seed, out->item);
    }
    return problem;
}

int staged_row_add(struct staged *index, const struct staged_row *row)
{
    struct staged_user *user = staged_user(index, row->key, row->user);
    if (user == NULL) {
        return ERR_NOMEM;
    }
    const struct store_item item = {row->item, row->hash, row->group};
    return row->kind == STORE_PLAY ? staged_add_play(index, user, row->hash, row->month, row->id)
                                   : staged_add_delivery(index, user, &item, row->at_ms, row->id);
}

int staged_rows_add(struct staged *index, const struct staged_row *rows, size_t n)
{
    int result = 0;
    for (size_t i = 0; i < n + STAGED_STEPS * APART && result == 0; i++) {
        for (size_t step = 0; step < STAGED_STEPS; step++) {
            if (i >= step * APART && i - step * APART < n) {
                staged_prefetch(index, rows[i - step * APART].key, (int)step);
            }
        }
        if (i >= STAGED_STEPS * APART) {
            result = staged_row_add(index, &rows[i - STAGED_STEPS * APART]);
        }
    }
    return result;
}
