#include "store/sqlite/read/exceptions.h"

#include <string.h>

#include "base/hash.h"

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
    hash_sort(*list, *n);
    return result;
}
