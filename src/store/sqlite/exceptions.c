#include "store/sqlite/exceptions.h"

#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int exceptions_read(struct db *history, int64_t key, struct arena *arena, uint64_t **list, size_t *n, struct err *err)
{
    size_t cap = 0;
    *list = NULL;
    *n = 0;
    sqlite3_stmt *stmt = db_stmt(history, SQL_EXCEPTIONS_GET, err);
    db_bind_key(stmt, key);
    int result;
    while ((result = db_step(history, stmt, err)) == 1) {
        if (*n == cap) {
            cap = cap > 0 ? 2 * cap : 16;
            uint64_t *more = arena_alloc(arena, cap * sizeof *more);
            if (more == NULL) {
                sqlite3_reset(stmt);
                return err_set(err, ERR_NOMEM, "out of memory for the items that were forgotten");
            }
            if (*n > 0) {
                memcpy(more, *list, *n * sizeof *more);
            }
            *list = more;
        }
        (*list)[(*n)++] = (uint64_t)sqlite3_column_int64(stmt, 0);
    }
    if (*n > 1) {
        qsort(*list, *n, sizeof **list, by_value);
    }
    return result;
}

bool exceptions_has(const uint64_t *list, size_t n, uint64_t hash)
{
    size_t from = 0;
    size_t to = n;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (list[middle] < hash) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from < n && list[from] == hash;
}
