/* The scalar functions, and how the extension is loaded.
 *
 * NULL in gives NULL out; a wrong type, an id that can't be one, and a blob that can't be read are errors that say why.
 * Those functions that need the folder's hash seed answer the same within one statement, but not in another file: so
 * they are for questions alone, and SQLite refuses them in an index or a stored view (SQLITE_DIRECTONLY). The others
 * depend on the blob alone, and may stand anywhere (SQLITE_INNOCUOUS).
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/hash.h"
#include "extension/extension.h"
#include "filter/filter.h"

SQLITE_EXTENSION_INIT1

enum { ID_MAX = 255, NEEDS_SQLITE = 3040000 };

static const char *type_name(sqlite3_value *value)
{
    switch (sqlite3_value_type(value)) {
    case SQLITE_INTEGER:
        return "an INTEGER";
    case SQLITE_FLOAT:
        return "a REAL";
    case SQLITE_TEXT:
        return "TEXT";
    case SQLITE_BLOB:
        return "a BLOB";
    default:
        return "NULL";
    }
}

int extension_blob(sqlite3_value *value, const char *what, struct slice *out, struct err *err)
{
    if (sqlite3_value_type(value) != SQLITE_BLOB) {
        return err_set(err, ERR_INVALID, "%s is %s, expected a BLOB", what, type_name(value));
    }
    const char *data = sqlite3_value_blob(value);
    *out = slice_of(data, (size_t)sqlite3_value_bytes(value));
    return 0;
}

static int get_id(sqlite3_value *value, const char *what, struct slice *out, struct err *err)
{
    int type = sqlite3_value_type(value);
    if (type != SQLITE_TEXT && type != SQLITE_BLOB) {
        return err_set(err, ERR_INVALID, "the %s is %s, expected TEXT or a BLOB%s", what, type_name(value),
                       type == SQLITE_INTEGER ? ": ids are bytes, so put it in quotes" : "");
    }
    const char *data = sqlite3_value_blob(value);
    *out = slice_of(data, (size_t)sqlite3_value_bytes(value));
    if (out->len == 0 || out->len > ID_MAX) {
        return err_set(err, ERR_INVALID, "the %s has %zu bytes, expected 1 to %d", what, out->len, ID_MAX);
    }
    return 0;
}

static void fail(sqlite3_context *ctx, const char *function, struct err *err)
{
    if (err->code == ERR_NOMEM) {
        sqlite3_result_error_nomem(ctx);
        return;
    }
    err_prefix(err, "%s", function);
    sqlite3_result_error(ctx, err->text, -1);
}

static bool some_null(int n, sqlite3_value **values)
{
    for (int i = 0; i < n; i++) {
        if (sqlite3_value_type(values[i]) == SQLITE_NULL) {
            return true; /* and NULL is the result, unless another one is set */
        }
    }
    return false;
}

/* Its parts without their positions: a blob of some bytes may stand for a hundred times as much memory. */
static int get_filter(sqlite3_value *value, struct filter *out, struct err *err)
{
    struct slice blob;
    int result = extension_blob(value, "the filter", &blob, err);
    return result < 0 ? result : filter_weigh(blob.data, blob.len, out, err);
}

struct looked_for {
    uint64_t hash;
    bool found;
};

static void look_for(void *arg, const struct filter_part *part, uint32_t before, const uint32_t *positions, uint32_t n)
{
    struct looked_for *l = arg;
    struct filter_part run = *part;
    run.positions = (uint32_t *)positions;
    run.n = n;
    run.tails = part->tails != NULL ? part->tails + before : NULL;
    l->found = l->found || filter_part_has(&run, l->hash);
}

static int get_hash(sqlite3_context *ctx, sqlite3_value *value, const char *what, uint64_t *hash, struct err *err)
{
    struct slice id;
    uint64_t seed = 0;
    int result = get_id(value, what, &id, err);
    if (result == 0 &&
        (result = extension_seed(sqlite3_user_data(ctx), sqlite3_context_db_handle(ctx), &seed, err)) == 0) {
        *hash = hash_id(seed, id);
    }
    return result;
}

static void answer_hash(sqlite3_context *ctx, sqlite3_value **values, const char *function, const char *what)
{
    struct err err = {0};
    uint64_t hash = 0;
    if (some_null(1, values)) {
        return;
    }
    if (get_hash(ctx, values[0], what, &hash, &err) < 0) {
        fail(ctx, function, &err);
        return;
    }
    sqlite3_result_int64(ctx, (int64_t)hash);
}

static void unseen_key(sqlite3_context *ctx, int n, sqlite3_value **values)
{
    (void)n;
    answer_hash(ctx, values, "unseen_key", "user");
}

static void unseen_hash(sqlite3_context *ctx, int n, sqlite3_value **values)
{
    (void)n;
    answer_hash(ctx, values, "unseen_hash", "item");
}

static void unseen_has(sqlite3_context *ctx, int n, sqlite3_value **values)
{
    struct err err = {0};
    struct filter filter;
    struct looked_for item = {0};
    struct slice blob;
    if (some_null(n, values)) {
        return;
    }
    if (get_hash(ctx, values[1], "item", &item.hash, &err) < 0 ||
        extension_blob(values[0], "the filter", &blob, &err) < 0 ||
        filter_scan(blob.data, blob.len, look_for, &item, &filter, &err) < 0) {
        fail(ctx, "unseen_has", &err);
        return;
    }
    sqlite3_result_int(ctx, item.found);
}

static void unseen_count(sqlite3_context *ctx, int n, sqlite3_value **values)
{
    struct err err = {0};
    struct filter filter;
    if (some_null(n, values)) {
        return;
    }
    if (get_filter(values[0], &filter, &err) < 0) {
        fail(ctx, "unseen_count", &err);
        return;
    }
    sqlite3_result_int64(ctx, (int64_t)filter_items(&filter));
}

static void unseen_error(sqlite3_context *ctx, int n, sqlite3_value **values)
{
    struct err err = {0};
    struct filter filter;
    if (some_null(n, values)) {
        return;
    }
    if (get_filter(values[0], &filter, &err) < 0) {
        fail(ctx, "unseen_error", &err);
        return;
    }
    sqlite3_result_double(ctx, filter_error(&filter));
}

/* NULL when the filter can be read, else why not: a report must not end at the first damaged row. */
static void unseen_damage(sqlite3_context *ctx, int n, sqlite3_value **values)
{
    struct err err = {0};
    struct filter filter;
    if (some_null(n, values)) {
        return;
    }
    int result = get_filter(values[0], &filter, &err);
    if (result == ERR_CORRUPT) {
        sqlite3_result_text(ctx, err.text, -1, SQLITE_TRANSIENT);
    } else if (result < 0) {
        fail(ctx, "unseen_damage", &err);
    }
}

/* --- loading --- */

static void release(void *arg)
{
    struct extension *x = arg;
    if (--x->users == 0) {
        buf_free(&x->seed_of);
        buf_free(&x->files);
        free(x);
    }
}

static int add_functions(sqlite3 *db, struct extension *x)
{
    enum { SEEDED = SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY, PURE = SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS };
    static const struct {
        const char *name;
        int arguments;
        int flags;
        void (*run)(sqlite3_context *, int, sqlite3_value **);
    } functions[] = {
        {"unseen_key", 1, SEEDED, unseen_key},   {"unseen_hash", 1, SEEDED, unseen_hash},
        {"unseen_has", 2, SEEDED, unseen_has},   {"unseen_count", 1, PURE, unseen_count},
        {"unseen_error", 1, PURE, unseen_error}, {"unseen_damage", 1, PURE, unseen_damage},
    };
    int rc = SQLITE_OK;
    for (size_t i = 0; i < sizeof functions / sizeof *functions && rc == SQLITE_OK; i++) {
        x->users++; /* SQLite calls release() for it, even when it refuses the function */
        rc = sqlite3_create_function_v2(db, functions[i].name, functions[i].arguments, SQLITE_UTF8 | functions[i].flags,
                                        x, functions[i].run, NULL, NULL, release);
    }
    return rc;
}

int sqlite3_unseen_init(sqlite3 *db, char **error, const sqlite3_api_routines *api)
{
    SQLITE_EXTENSION_INIT2(api);
    (void)api;
    if (sqlite3_libversion_number() < NEEDS_SQLITE) {
        *error = sqlite3_mprintf("unseen needs SQLite 3.40 or newer, this is %s", sqlite3_libversion());
        return SQLITE_ERROR;
    }
    struct extension *x = calloc(1, sizeof *x);
    if (x == NULL) {
        return SQLITE_NOMEM;
    }
    x->users = 1; /* this call */
    int rc = add_functions(db, x);
    release(x);
    return rc == SQLITE_OK ? extension_add_delivered(db) : rc;
}
