/* A page is read in one snapshot of history. Users who share a key go together, and so does a page never end between
 * them. */
#include "store/sqlite/admin/copy.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "store/sqlite/admin/export_pack.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum { PAGE_USERS = 256, KEY_USERS = 16 };

struct copied_user {
    int64_t key;
    int last_month;
    struct slice user; /* empty: the name was lost */
};

struct copier {
    struct store_reader *reader;
    struct arena arena;
    struct buf items; /* struct snapshot_forgotten each, of the one user who is asked for */
    struct stored_month months[HISTORY_MONTHS_MAX];
    struct export_packer packer;
};

/* What can't be read is marked in the snapshot; the question for it here is told, too. */
static void on_damage(void *arg, const char *what)
{
    (void)arg;
    log_warn("a copy lacks what can't be read here", "what=%s", log_quote_str(what));
}

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while users are copied");
}

static int read_months(struct copier *c, struct err *err)
{
    struct db *db = &c->reader->db;
    sqlite3_stmt *stmt = db_stmt(db, SQL_MONTHS_WINDOW, err);
    if (stmt != NULL) {
        sqlite3_bind_int(stmt, 1, INT_MIN);
    }
    int result;
    c->packer.n_months = 0;
    while ((result = db_step(db, stmt, err)) == 1) {
        if (c->packer.n_months == HISTORY_MONTHS_MAX) {
            sqlite3_reset(stmt);
            return err_set(err, ERR_CORRUPT, "%s: more than %d months", db->path, HISTORY_MONTHS_MAX);
        }
        month_column(stmt, 1, &c->months[c->packer.n_months++]);
    }
    return result;
}

static int begin(struct copier *c, struct store_reader *reader, struct err *err)
{
    *c = (struct copier){.reader = reader};
    c->packer = (struct export_packer){
        .history = &reader->db, .months = c->months, .seed = reader->store->seed, .damaged = on_damage};
    int result = reader_begin(reader, err);
    if (result < 0) {
        return result;
    }
    result = read_months(c, err);
    return result < 0 ? db_end_read(&reader->db, result, err) : 0;
}

static int end(struct copier *c, int result, struct err *err)
{
    result = db_end_read(&c->reader->db, result, err);
    export_packer_free(&c->packer);
    arena_free(&c->arena);
    buf_free(&c->items);
    return result;
}

/* 1; 0: the user has nothing. */
static int pack(struct copier *c, const struct copied_user *u, struct buf *out, struct err *err)
{
    struct sqlite_store *s = c->reader->store;
    int64_t forgotten = tombstones_user_ms(s->tombstones, u->key);
    c->packer.forgotten_ms = forgotten == INT64_MIN ? 0 : forgotten;
    struct snapshot_forgotten *items = (struct snapshot_forgotten *)(void *)c->items.data;
    c->packer.forgotten = items;
    c->packer.n_forgotten = user_snapshot_later_items(items, c->items.len / sizeof *items, c->packer.forgotten_ms);
    bool waits = migration_users_of(&s->base, u->key) == MIGRATION_WAITING;
    return export_pack(&c->packer, u->key, u->user, u->last_month, true, waits, out, err);
}

/* All users of a key. */
static int list_key(struct copier *c, const struct copied_user *first, struct copied_user out[KEY_USERS], int *n,
                    struct err *err)
{
    struct db *db = &c->reader->db;
    *n = 0;
    if (first->user.len > 0) {
        out[(*n)++] = *first;
    } else {
        char what[96];
        snprintf(what, sizeof what, "user with key %" PRId64 ": has no name, left out", first->key);
        on_damage(NULL, what);
    }
    sqlite3_stmt *stmt = db_stmt(db, SQL_SHARED_USERS, err);
    db_bind_key(stmt, first->key);
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        struct slice user = db_column_bytes(stmt, 0);
        const char *copy = arena_copy(&c->arena, user.data, user.len);
        if (copy == NULL || *n == KEY_USERS) {
            sqlite3_reset(stmt);
            return copy == NULL ? out_of_memory(err)
                                : err_set(err, ERR_SHARED, "more than %d users share a key", KEY_USERS);
        }
        out[(*n)++] = (struct copied_user){first->key, first->last_month, slice_of(copy, user.len)};
    }
    return result;
}

static int copy_key(struct copier *c, const struct copied_user *first, struct store_copy_users *page, struct buf *out,
                    struct err *err)
{
    struct copied_user users[KEY_USERS];
    int n, result = list_key(c, first, users, &n, err);
    for (int i = 0; i < n && result >= 0; i++) {
        result = pack(c, &users[i], out, err);
        if (result == 1) {
            size_t at = out->len;
            page->n++;
            result = buf_add(&page->ends, &at, sizeof at) < 0 ? out_of_memory(err) : 0;
        }
    }
    return result;
}

static int list_users(struct copier *c, int64_t from, struct copied_user out[PAGE_USERS], int *n, struct err *err)
{
    struct db *db = &c->reader->db;
    sqlite3_stmt *stmt = db_stmt(db, SQL_USERS_FROM, err);
    db_bind_key(stmt, from);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 2, INT64_MAX);
        sqlite3_bind_int(stmt, 3, PAGE_USERS);
    }
    int result;
    for (*n = 0; (result = db_step(db, stmt, err)) == 1;) {
        struct slice user = db_column_bytes(stmt, 1);
        const char *copy = arena_copy(&c->arena, user.data, user.len);
        if (copy == NULL) {
            sqlite3_reset(stmt);
            return out_of_memory(err);
        }
        out[(*n)++] =
            (struct copied_user){sqlite3_column_int64(stmt, 0), sqlite3_column_int(stmt, 2), slice_of(copy, user.len)};
    }
    return result;
}

static int copy_page(struct copier *c, struct store_copy_users *page, struct buf *out, size_t bytes, struct err *err)
{
    struct copied_user users[PAGE_USERS];
    int n, i = 0, result = list_users(c, page->from, users, &n, err);
    size_t begin_len = out->len;
    if (result < 0 || n == 0) {
        page->ended = true;
        return result;
    }
    while (i < n && result == 0 && (i == 0 || out->len - begin_len < bytes)) {
        result = copy_key(c, &users[i++], page, out, err);
    }
    page->ended = (i == n && n < PAGE_USERS) || users[i - 1].key == INT64_MAX;
    page->next = page->ended ? INT64_MAX : users[i - 1].key + 1;
    return result;
}

static int copy_users(struct store_reader *reader, struct store_copy_users *page, struct buf *out, size_t bytes,
                      struct err *err)
{
    struct copier c;
    page->n = 0;
    buf_clear(&page->ends);
    int result = begin(&c, reader, err);
    return result < 0 ? result : end(&c, copy_page(&c, page, out, bytes, err), err);
}

/* Of those who share a key, the one with that name. */
static int copy_one(struct copier *c, struct slice user, struct buf *out, struct err *err)
{
    struct db *db = &c->reader->db;
    struct copied_user users[KEY_USERS], first = {.key = hash_user_key(c->reader->store->seed, user)};
    sqlite3_stmt *stmt = db_stmt(db, SQL_USERS_FROM, err);
    db_bind_key(stmt, first.key);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 2, first.key);
        sqlite3_bind_int(stmt, 3, 1);
    }
    int n = 0, result = db_step(db, stmt, err);
    if (result != 1) {
        return result;
    }
    struct slice name = db_column_bytes(stmt, 1);
    const char *copy = arena_copy(&c->arena, name.data, name.len);
    first.user = slice_of(copy, name.len);
    first.last_month = sqlite3_column_int(stmt, 2);
    sqlite3_reset(stmt);
    result = copy == NULL ? out_of_memory(err) : list_key(c, &first, users, &n, err);
    for (int i = 0; i < n && result >= 0; i++) {
        if (slice_eq(users[i].user, user)) {
            return pack(c, &users[i], out, err);
        }
    }
    return result;
}

/* --- what staging.db has besides --- */

static int open_staging(struct store_reader *r, struct err *err)
{
    if (r->staging.handle != NULL) {
        return db_begin_read(&r->staging, err);
    }
    int result = db_open(&r->staging, r->store->folder, "staging", r->store->vfs, DB_READ, err);
    return result < 0 ? result : db_begin_read(&r->staging, err);
}

static int by_item(const void *a, const void *b)
{
    const struct snapshot_forgotten *x = a, *y = b;
    return (x->item > y->item) - (x->item < y->item);
}

static int list_items(struct db *db, int64_t key, struct buf *out, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_TOMBSTONES_OF_ITEMS, err);
    db_bind_key(stmt, key);
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        const struct snapshot_forgotten f = {(uint64_t)sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1)};
        if (buf_add(out, &f, sizeof f) < 0) {
            sqlite3_reset(stmt);
            return out_of_memory(err);
        }
    }
    if (out->len > sizeof(struct snapshot_forgotten)) {
        qsort(out->data, out->len / sizeof(struct snapshot_forgotten), sizeof(struct snapshot_forgotten), by_item);
    }
    return result;
}

static int read_items(struct copier *c, int64_t key, struct err *err)
{
    struct store_reader *r = c->reader;
    if (tombstones_count(r->store->tombstones) == 0) {
        return 0;
    }
    int result = open_staging(r, err);
    return result < 0 ? result : db_end_read(&r->staging, list_items(&r->staging, key, &c->items, err), err);
}

int copy_user(struct store_reader *reader, struct slice user, struct buf *out, struct err *err)
{
    struct copier c;
    int result = begin(&c, reader, err);
    if (result < 0) {
        return result;
    }
    result = read_items(&c, hash_user_key(reader->store->seed, user), err);
    result = result < 0 ? result : copy_one(&c, user, out, err);
    int ended = end(&c, result < 0 ? result : 0, err);
    return ended < 0 ? ended : result;
}

static int list_tombstones(struct db *db, const struct tombstone *after, struct tombstone *out, int max,
                           struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_TOMBSTONES_PAGE, err);
    db_bind_key(stmt, after != NULL ? after->key : INT64_MIN);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 2, after != NULL ? (int64_t)after->item : INT64_MIN);
        sqlite3_bind_int(stmt, 3, after != NULL ? 1 : 0);
        sqlite3_bind_int(stmt, 4, max);
    }
    int n = 0, result;
    while ((result = db_step(db, stmt, err)) == 1) {
        out[n++] = (struct tombstone){sqlite3_column_int64(stmt, 0), (uint64_t)sqlite3_column_int64(stmt, 1),
                                      sqlite3_column_int64(stmt, 2), (uint64_t)sqlite3_column_int64(stmt, 3)};
    }
    return result < 0 ? result : n;
}

static int copy_tombstones(struct store_reader *r, const struct tombstone *after, struct tombstone *out, int max,
                           struct err *err)
{
    int result = open_staging(r, err);
    return result < 0 ? result : db_end_read(&r->staging, list_tombstones(&r->staging, after, out, max, err), err);
}

static int list_positions(struct db *db, const struct slice *after, struct store_position *out, int max,
                          struct arena *arena, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_POSITIONS_PAGE, err);
    if (stmt != NULL) {
        if (after != NULL) {
            db_bind_id(stmt, 1, *after);
        } else {
            sqlite3_bind_null(stmt, 1);
        }
        sqlite3_bind_int(stmt, 2, max);
    }
    int n = 0, result;
    while ((result = db_step(db, stmt, err)) == 1) {
        struct slice source = db_column_bytes(stmt, 0);
        const char *copy = arena_copy(arena, source.data, source.len);
        if (copy == NULL) {
            sqlite3_reset(stmt);
            return out_of_memory(err);
        }
        out[n++] = (struct store_position){slice_of(copy, source.len), sqlite3_column_int64(stmt, 1)};
    }
    return result < 0 ? result : n;
}

static int copy_positions(struct store_reader *r, const struct slice *after, struct store_position *out, int max,
                          struct arena *arena, struct err *err)
{
    int result = open_staging(r, err);
    return result < 0 ? result
                      : db_end_read(&r->staging, list_positions(&r->staging, after, out, max, arena, err), err);
}

static void put_adopt(struct store *base, struct store_adopt *adopt)
{
    adopt->call.err = (struct err){0};
    adopt->call.message.kind = STORE_CALL;
    adopt->call.message.what = WANTS_ADOPT;
    thread_queue_put(&sqlite_store(base)->stager.queue, &adopt->call.message);
}

void copy_adopt(struct sqlite_store *s, struct store_message *m)
{
    struct store_adopt *adopt = (struct store_adopt *)m;
    forgets_adopt(s, adopt->list, adopt->n, &adopt->call.err);
    adopt->call.done(&adopt->call);
}

const struct store_copy_ops sqlite_copy_ops = {
    .users = copy_users,
    .user = copy_user,
    .whole = copy_whole,
    .tombstones = copy_tombstones,
    .positions = copy_positions,
    .adopt = put_adopt,
};
