#include "store/sqlite/staging/staged_row.h"

#include <string.h>

#include "base/calendar.h"
#include "store/sqlite/db/db.h"

enum { MONTH_MAX = UINT16_MAX /* that an index can hold */ };

static bool is_id(sqlite3_stmt *stmt, int column)
{
    int type = sqlite3_column_type(stmt, column);
    int len = sqlite3_column_bytes(stmt, column);
    return (type == SQLITE_TEXT || type == SQLITE_BLOB) && len >= 1 && len <= HASH_ID_MAX;
}

const char *staged_row_problem(sqlite3_stmt *stmt)
{
    int64_t kind = sqlite3_column_int64(stmt, 1);
    int month = month_of_ms(sqlite3_column_int64(stmt, 4));
    if (kind != STORE_PLAY && kind != STORE_DELIVERY) {
        return "it is neither a play nor a delivery";
    }
    if (!is_id(stmt, 2)) {
        return "its user has not 1 to 255 bytes";
    }
    if (!is_id(stmt, 3)) {
        return "its item has not 1 to 255 bytes";
    }
    bool has_time = sqlite3_column_type(stmt, 4) == SQLITE_INTEGER && month >= 0 && month <= MONTH_MAX;
    return has_time ? NULL : "its time is in no month";
}

bool staged_row_read(sqlite3_stmt *stmt, uint64_t seed, struct staged_row *out)
{
    if (staged_row_problem(stmt) != NULL) {
        return false;
    }
    struct slice user = db_column_bytes(stmt, 2);
    struct slice item = db_column_bytes(stmt, 3);
    *out = (struct staged_row){.id = (uint64_t)sqlite3_column_int64(stmt, 0),
                               .hash = hash_id(seed, item),
                               .kind = (enum store_kind)sqlite3_column_int(stmt, 1),
                               .key = hash_user_key(seed, user),
                               .user = user,
                               .item = item,
                               .month = month_of_ms(sqlite3_column_int64(stmt, 4))};
    return true;
}

int staged_row_add(struct staged *index, const struct staged_row *row)
{
    struct staged_user *user = staged_user(index, row->key, row->user);
    if (user == NULL) {
        return ERR_NOMEM;
    }
    return row->kind == STORE_PLAY ? staged_add_play(index, user, row->hash, row->month, row->id)
                                   : staged_add_delivery(index, user, row->item, row->hash, row->month, row->id);
}

int staged_rows_take(struct staged_rows *rows, struct staged *index, const struct staged_row *row)
{
    char *ids = rows->ids[rows->n];
    struct staged_row *held = &rows->at[rows->n++];
    *held = *row;
    held->user.data = memcpy(ids, row->user.data, row->user.len);
    held->item.data = memcpy(ids + row->user.len, row->item.data, row->item.len);
    return rows->n == STAGED_ROWS ? staged_rows_add(rows, index) : 0;
}

int staged_rows_add(struct staged_rows *rows, struct staged *index)
{
    int64_t keys[STAGED_ROWS];
    for (size_t i = 0; i < rows->n; i++) {
        keys[i] = rows->at[i].key;
    }
    staged_prefetch(index, keys, rows->n);
    int result = 0;
    for (size_t i = 0; i < rows->n && result == 0; i++) {
        result = staged_row_add(index, &rows->at[i]);
    }
    rows->n = 0;
    return result;
}
