/* unseen_delivered(items): the rows of a blob of the table `delivered`, newest first, as a table-valued function:
 *
 *   SELECT user, item FROM deliveries, unseen_delivered(items) WHERE user = 'u1'
 *
 * It depends on its argument alone. A damaged blob ends the statement with an error that says why.
 */
#include <stdlib.h>

#include "base/arena.h"
#include "extension/extension.h"
#include "store/user/deliveries.h"

SQLITE_EXTENSION_INIT3

enum { COLUMN_ITEM, COLUMN_AT, COLUMN_SUB, COLUMN_GROUP, COLUMN_BLOB };

/* Begins with SQLite's own part of it. */
struct cursor {
    sqlite3_vtab_cursor base;
    struct arena arena;
    struct delivered_codec codec;
    struct delivered list;
    size_t at;
};

static int connect_table(sqlite3 *db, void *aux, int argc, const char *const *argv, sqlite3_vtab **out, char **error)
{
    (void)aux;
    (void)argc;
    (void)argv;
    (void)error;
    int rc = sqlite3_declare_vtab(
        db, "CREATE TABLE x (item, at INTEGER, sub INTEGER, group_hash INTEGER, blob BLOB HIDDEN)");
    if (rc != SQLITE_OK || (rc = sqlite3_vtab_config(db, SQLITE_VTAB_INNOCUOUS)) != SQLITE_OK) {
        return rc;
    }
    *out = calloc(1, sizeof **out);
    return *out != NULL ? SQLITE_OK : SQLITE_NOMEM;
}

static int disconnect_table(sqlite3_vtab *table)
{
    free(table);
    return SQLITE_OK;
}

/* The one plan there is: the blob is known before the rows. */
static int best_index(sqlite3_vtab *table, sqlite3_index_info *info)
{
    bool given = false;
    for (int i = 0; i < info->nConstraint; i++) {
        if (info->aConstraint[i].iColumn != COLUMN_BLOB || info->aConstraint[i].op != SQLITE_INDEX_CONSTRAINT_EQ) {
            continue;
        }
        given = true;
        if (info->aConstraint[i].usable) {
            info->aConstraintUsage[i].argvIndex = 1;
            info->aConstraintUsage[i].omit = 1;
            info->estimatedCost = 100;
            info->estimatedRows = 100;
            return SQLITE_OK;
        }
    }
    if (given) {
        return SQLITE_CONSTRAINT; /* in another order of the joined tables it is */
    }
    table->zErrMsg = sqlite3_mprintf("unseen_delivered: expected one argument, the items of a row of delivered");
    return SQLITE_ERROR;
}

static int open_cursor(sqlite3_vtab *table, sqlite3_vtab_cursor **out)
{
    (void)table;
    struct cursor *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return SQLITE_NOMEM;
    }
    *out = &c->base;
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *base)
{
    struct cursor *c = (struct cursor *)base;
    arena_free(&c->arena);
    delivered_codec_free(&c->codec);
    free(c);
    return SQLITE_OK;
}

static int filter_rows(sqlite3_vtab_cursor *base, int plan, const char *plan_text, int n, sqlite3_value **values)
{
    struct cursor *c = (struct cursor *)base;
    struct slice blob;
    struct err err = {0};
    (void)plan;
    (void)plan_text;
    (void)n;
    c->list = (struct delivered){0};
    c->at = 0;
    arena_reset(&c->arena);
    if (sqlite3_value_type(values[0]) == SQLITE_NULL) {
        return SQLITE_OK;
    }
    /* The hashes aren't shown, so any seed will do. */
    if (extension_blob(values[0], "items", &blob, &err) < 0 ||
        delivered_unpack(&c->codec, blob.data, blob.len, 0, &c->arena, &c->list, &err) < 0) {
        if (err.code == ERR_NOMEM) {
            return SQLITE_NOMEM;
        }
        sqlite3_free(base->pVtab->zErrMsg);
        base->pVtab->zErrMsg = sqlite3_mprintf("unseen_delivered: %s", err.text);
        return SQLITE_ERROR;
    }
    return SQLITE_OK;
}

static int next_row(sqlite3_vtab_cursor *base)
{
    ((struct cursor *)base)->at++;
    return SQLITE_OK;
}

static int at_end(sqlite3_vtab_cursor *base)
{
    const struct cursor *c = (const struct cursor *)base;
    return c->at >= c->list.n;
}

static int column(sqlite3_vtab_cursor *base, sqlite3_context *ctx, int which)
{
    const struct cursor *c = (const struct cursor *)base;
    const struct store_delivery *row = &c->list.list[c->at];
    if (which == COLUMN_AT) {
        sqlite3_result_int64(ctx, delivered_ms(row->stamp));
    } else if (which == COLUMN_SUB) {
        sqlite3_result_int64(ctx, delivered_sub(row->stamp));
    } else if (which == COLUMN_GROUP && row->group != 0) {
        sqlite3_result_int64(ctx, (int64_t)row->group);
    } else if (which == COLUMN_ITEM && slice_is_text(row->item)) {
        sqlite3_result_text(ctx, row->item.data, (int)row->item.len, SQLITE_TRANSIENT);
    } else if (which == COLUMN_ITEM) {
        sqlite3_result_blob(ctx, row->item.data, (int)row->item.len, SQLITE_TRANSIENT);
    }
    return SQLITE_OK;
}

static int row_id(sqlite3_vtab_cursor *base, sqlite3_int64 *out)
{
    *out = (sqlite3_int64)((const struct cursor *)base)->at;
    return SQLITE_OK;
}

int extension_add_delivered(sqlite3 *db)
{
    /* Without xCreate it is there by its name alone, and can't be made into a table of a file. */
    static const sqlite3_module module = {
        .xConnect = connect_table,
        .xBestIndex = best_index,
        .xDisconnect = disconnect_table,
        .xOpen = open_cursor,
        .xClose = close_cursor,
        .xFilter = filter_rows,
        .xNext = next_row,
        .xEof = at_end,
        .xColumn = column,
        .xRowid = row_id,
    };
    return sqlite3_create_module_v2(db, "unseen_delivered", &module, NULL, NULL);
}
