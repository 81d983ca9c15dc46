#include "tests/lib/store_calls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"

int setup_store(void **state)
{
    struct store_fixture *f = store_fixture_new("store");
    open_store(f);
    *state = f;
    return 0;
}

int teardown_store(void **state)
{
    store_fixture_free(*state);
    return 0;
}

void begin_tests(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    log_set_level(getenv("UNSEEN_TEST_LOG") != NULL ? LOG_LEVEL_DEBUG : (enum log_level) - 1);
}

/* --- one call each --- */

int64_t key_of(const char *user)
{
    return hash_user_key(SEED, slice_str(user));
}

void add(struct store_batch *batch, enum store_kind kind, int64_t at, const char *user, const char *item)
{
    struct slice id = slice_str(item);
    uint64_t hash = hash_id(SEED, id);
    assert_int_equal(store_batch_add(batch, kind, at, STORE_STAMPED, key_of(user), slice_str(user), &id, &hash, 1), 0);
}

int record_at(struct store_fixture *f, enum store_kind kind, int64_t at, const char *user, const char *item)
{
    int done = 0;
    struct store_batch batch = {.done = batch_done, .owner = &done};
    add(&batch, kind, at, user, item);
    f->store->ops->record(f->store, &batch);
    wait_flag(&done);
    buf_free(&batch.bytes);
    return batch.err.code;
}

void play(struct store_fixture *f, const char *user, const char *item)
{
    assert_int_equal(record_at(f, STORE_PLAY, clock_wall_ms(), user, item), 0);
}

void deliver(struct store_fixture *f, const char *user, const char *item)
{
    assert_int_equal(record_at(f, STORE_DELIVERY, clock_wall_ms(), user, item), 0);
}

int call(struct store_fixture *f, void (*op)(struct store *, struct store_call *), struct err *err)
{
    int done = 0;
    struct store_call c = {.done = call_done, .owner = &done};
    op(f->store, &c);
    wait_flag(&done);
    if (err != NULL) {
        *err = c.err;
    }
    return c.err.code;
}

int flush(struct store_fixture *f)
{
    return call(f, f->store->ring->flush, NULL);
}

void advance(struct store_fixture *f, int64_t ms)
{
    clock_test_advance(ms);
    assert_int_equal(call(f, f->store->ops->tick, NULL), 0);
}

int64_t forget(struct store_fixture *f, const char *user, const char *item)
{
    int done = 0;
    struct slice id = slice_str(item != NULL ? item : "");
    uint64_t hash = hash_id(SEED, id);
    struct store_forget fg = {.key = key_of(user),
                              .user = slice_str(user),
                              .items = &id,
                              .hashes = &hash,
                              .n_items = item != NULL,
                              .first_month = INT_MIN,
                              .done = forget_done,
                              .owner = &done};
    f->store->ops->forget(f->store, &fg);
    wait_flag(&done);
    return fg.err.code < 0 ? fg.err.code : fg.answer;
}

int64_t merge_into(struct store_fixture *f, const char *from, const char *into, bool forgets, struct err *err)
{
    int done = 0;
    struct store_merge m = {.from_key = key_of(from),
                            .into_key = key_of(into),
                            .from = slice_str(from),
                            .into = slice_str(into),
                            .forgets = forgets,
                            .done = merge_done,
                            .owner = &done};
    f->store->ops->merge(f->store, &m);
    wait_flag(&done);
    if (err != NULL) {
        *err = m.err;
    }
    return m.err.code < 0 ? m.err.code : m.answer;
}

int load(struct store_fixture *f, struct store_reader *reader, const char *user, struct store_view *view,
         struct err *err)
{
    return store_load_wait(f->store, reader, key_of(user), slice_str(user), INT_MIN, view, err);
}

static uint64_t pack_pool(const char *items, struct buf *packed)
{
    uint64_t version = 0;
    for (; items != NULL && *items != '\0'; items++) {
        const char one[2] = {1, *items};
        assert_int_equal(buf_add(packed, one, sizeof one), 0);
        version = hash_chain(version, slice_of(items, 1));
    }
    return version;
}

int change_pool(struct store_fixture *f, enum store_pool_kind kind, const char *name, const char *to,
                const char *before, const char *items, struct err *err)
{
    int done = 0;
    struct buf packed = {0}, was = {0}, all = {0};
    struct store_pool_change c = {.call = {.done = call_done, .owner = &done},
                                  .kind = kind,
                                  .pool = {.name = slice_str(name), .changed_ms = clock_wall_ms()},
                                  .to = slice_str(to != NULL ? to : "")};
    char whole[64];
    snprintf(whole, sizeof whole, "%s%s", kind == STORE_POOL_SET || before == NULL ? "" : before,
             items != NULL ? items : "");
    c.before = pack_pool(before, &was);
    pack_pool(items, &packed);
    c.pool.version = pack_pool(whole, &all);
    c.pool.n = strlen(whole);
    c.pool.items = buf_slice(&packed);
    f->store->pools->change(f->store, &c);
    wait_flag(&done);
    buf_free(&packed);
    buf_free(&was);
    buf_free(&all);
    *err = c.call.err;
    return err->code;
}

static void list_pool(void *arg, struct slice name, const char *what)
{
    char *out = arg;
    size_t len = strlen(out);
    snprintf(out + len, POOLS_TEXT - len, "%s%.*s=%s", len > 0 ? " " : "", (int)name.len, name.data, what);
}

static int list_good(void *arg, const struct store_pool *pool, struct err *err)
{
    char items[64] = "";
    (void)err;
    for (size_t at = 0; at + 1 < pool->items.len && at / 2 < sizeof items - 1; at += 2) {
        items[at / 2] = pool->items.data[at + 1];
    }
    list_pool(arg, pool->name, items);
    return 0;
}

static void list_bad(void *arg, struct slice name, const char *what)
{
    (void)what;
    list_pool(arg, name, "?");
}

int list_pools(struct store_fixture *f, char out[POOLS_TEXT], struct err *err)
{
    out[0] = '\0';
    return f->store->pools->each(f->reader, list_good, list_bad, out, err);
}

bool in_view(const struct store_view *view, const char *item)
{
    uint64_t hash = hash_id(SEED, slice_str(item));
    for (size_t i = 0; i < view->n_plays; i++) {
        if (view->plays[i].hash == hash) {
            return true;
        }
    }
    for (size_t i = 0; i < view->n_deliveries; i++) {
        if (view->deliveries[i].hash == hash) {
            return true;
        }
    }
    bool exception = false;
    for (size_t i = 0; i < view->n_exceptions; i++) {
        exception = exception || view->exceptions[i] == hash;
    }
    for (size_t i = 0; i < view->n_months && !exception; i++) {
        if (filter_has(&view->months[i].filter, hash)) {
            return true;
        }
    }
    return false;
}

bool seen(struct store_fixture *f, const char *user, const char *item)
{
    struct store_view view;
    struct err err = {0};
    if (load(f, f->reader, user, &view, &err) < 0) {
        fail_msg("load: %s", err.text);
    }
    return in_view(&view, item);
}

bool known(struct store_fixture *f, const char *user)
{
    struct store_view view;
    struct err err = {0};
    assert_int_equal(load(f, f->reader, user, &view, &err), 0);
    return view.known;
}

struct store_stats stats(struct store_fixture *f)
{
    struct store_stats out;
    f->store->ops->stats(f->store, &out);
    return out;
}

enum store_slot_state slot_state(struct store_fixture *f, int slot)
{
    struct store_ring ring;
    f->store->ring->look(f->store, &ring);
    for (int i = 0; i < ring.n_slots; i++) {
        if (ring.slots[i].slot == slot) {
            return ring.slots[i].state;
        }
    }
    return SLOT_EMPTY;
}

void rule(unsigned ops, const char *file, uint64_t nth, bool sticky, enum vfs_action action)
{
    assert_true(vfs_fault_add(
                    &(struct vfs_rule){.ops = ops, .file = file, .nth = nth, .sticky = sticky, .action = action}) >= 0);
}

void fill(struct store_fixture *f, int batches)
{
    for (int b = 0; b < batches; b++) {
        int done = 0;
        struct store_batch batch = {.done = batch_done, .owner = &done};
        for (int i = 0; i < 1000; i++) {
            char user[32];
            char item[16];
            snprintf(user, sizeof user, "user%d-%d", b, i);
            snprintf(item, sizeof item, b == 0 ? "a" : "%d", rand()); /* so that each fill changes the filters */
            add(&batch, STORE_PLAY, clock_wall_ms(), user, item);
        }
        f->store->ops->record(f->store, &batch);
        wait_flag(&done);
        assert_int_equal(batch.err.code, 0);
        buf_free(&batch.bytes);
    }
}

/* --- the files --- */

sqlite3 *open_file(struct store_fixture *f, const char *name)
{
    char path[PATH_MAX];
    sqlite3 *db = NULL;
    snprintf(path, sizeof path, "%s/%s.db", f->cfg.data, name);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    sqlite3_busy_timeout(db, 2000);
    return db;
}

int64_t ask(struct store_fixture *f, const char *name, const char *sql)
{
    sqlite3 *db = open_file(f, name);
    sqlite3_stmt *stmt = NULL;
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL); /* a log is left as it is */
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return n;
}

void damage(struct store_fixture *f, const char *name, const char *sql)
{
    sqlite3 *db = open_file(f, name);
    char *message = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK) {
        fail_msg("%s: %s", sql, message);
    }
    sqlite3_close(db);
}

/* --- the check --- */

static char problems[16][1024];
static int n_problems;

void found(void *arg, const char *problem)
{
    (void)arg;
    if (n_problems < 16) {
        snprintf(problems[n_problems++], sizeof problems[0], "%s", problem);
    }
}

void expect_problem(struct store_fixture *f, const char *words)
{
    struct err err = {0};
    n_problems = 0;
    int n = sqlite_check_folder(f->cfg.data, false, found, NULL, NULL, &err);
    if (n < 0) {
        fail_msg("check: %s", err.text);
    }
    if (words == NULL) {
        if (n > 0) {
            fail_msg("check found: %s", problems[0]);
        }
        return;
    }
    for (int i = 0; i < n_problems; i++) {
        if (strstr(problems[i], words) != NULL) {
            return;
        }
    }
    fail_msg("nothing about \"%s\" among %d problems: %s", words, n, n > 0 ? problems[0] : "");
}
