#include "store/sqlite/staged_row.h"

#include <string.h>

#include "base/calendar.h"
#include "store/sqlite/db.h"

bool staged_row_read(sqlite3_stmt *stmt, uint64_t seed, const struct staged *index, struct staged_row *out)
{
    int kind = sqlite3_column_int(stmt, 1);
    struct slice user = db_column_bytes(stmt, 2);
    struct slice item = db_column_bytes(stmt, 3);
    int month = month_of_ms(sqlite3_column_int64(stmt, 4));
    uint64_t id = (uint64_t)sqlite3_column_int64(stmt, 0);
    if ((kind != STORE_PLAY && kind != STORE_DELIVERY) || user.len == 0 || user.len > HASH_ID_MAX || item.len == 0 ||
        item.len > HASH_ID_MAX || !staged_fits(index, id, month)) {
        return false;
    }
    *out = (struct staged_row){.id = id,
                               .hash = hash_id(seed, item),
                               .kind = (enum store_kind)kind,
                               .key = hash_user_key(seed, user),
                               .user = user,
                               .item = item,
                               .month = month};
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
