/* FORGET, the stager's half, in the order in which it came among the writes.
 *
 * First what the answer says is found out (known? seen?), by the same load that a question does; nothing is changed
 * before a refusal. Then the rows are deleted from staging.db under secure_delete, committed, and only then taken from
 * the indexes; then the forget goes to the historian, which erases history before it merges any row that is newer. A
 * failure in the middle is an error to the caller, who asks again: each step is harmless when repeated.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "filter/probe.h"
#include "store/sqlite/internal.h"

static void answer(struct store_forget *forget)
{
    forget->done(forget);
}

/* Another user with the same 64-bit key shares its filters: erasing one would show the other's plays again. */
static int check_shared(struct sqlite_store *s, struct store_forget *forget)
{
    int shared = reader_shared_key(s->stager.reader, forget->key, forget->user, &forget->err);
    for (int i = 0; i < STORE_SLOTS_MAX && shared == 0; i++) {
        const struct staged *index = atomic_load(&s->slots[i].index);
        shared = index != NULL && staged_has_other(index, forget->key, forget->user);
    }
    if (shared > 0) {
        return err_set(&forget->err, ERR_SHARED,
                       "user %s can't be forgotten: another user has the same 64-bit key and shares its filters",
                       log_quote(forget->user));
    }
    return shared;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts hashes and removes repeats: an item given twice counts once. Returns how many are left. */
static size_t distinct(uint64_t *hashes, size_t n)
{
    qsort(hashes, n, sizeof *hashes, by_value);
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        if (left == 0 || hashes[left - 1] != hashes[i]) {
            hashes[left++] = hashes[i];
        }
    }
    return left;
}

/* How many distinct items of the forget are seen in the view. */
static int count_seen(const struct store_view *view, const struct store_forget *forget, int64_t *seen)
{
    size_t n_exact = view->n_plays + view->n_deliveries;
    size_t n_parts = 0;
    for (size_t i = 0; i < view->n_months; i++) {
        n_parts += view->months[i].filter.n_parts;
    }
    uint64_t *hashes = malloc((forget->n_items + n_exact) * sizeof *hashes);
    const struct filter_part **parts = malloc((n_parts + 1) * sizeof *parts);
    uint8_t *unseen = malloc((forget->n_items + 7) / 8);
    struct probe *probe = probe_new();
    int result = ERR_NOMEM;
    if (hashes != NULL && parts != NULL && unseen != NULL && probe != NULL) {
        uint64_t *exact = hashes + forget->n_items;
        memcpy(hashes, forget->hashes, forget->n_items * sizeof *hashes);
        for (size_t i = 0; i < view->n_plays; i++) {
            exact[i] = view->plays[i].hash;
        }
        for (size_t i = 0; i < view->n_deliveries; i++) {
            exact[view->n_plays + i] = view->deliveries[i].hash;
        }
        n_parts = 0;
        for (size_t i = 0; i < view->n_months; i++) {
            for (unsigned p = 0; p < view->months[i].filter.n_parts; p++) {
                parts[n_parts++] = &view->months[i].filter.parts[p];
            }
        }
        result = probe_build(probe, &(struct probe_input){.parts = parts,
                                                          .n_parts = n_parts,
                                                          .exact = exact,
                                                          .n_exact = n_exact,
                                                          .exceptions = view->exceptions,
                                                          .n_exceptions = view->n_exceptions});
        if (result == 0) {
            size_t n = distinct(hashes, forget->n_items);
            *seen = (int64_t)(n - probe_test(probe, hashes, n, unseen));
        }
    }
    free(hashes);
    free(parts);
    free(unseen);
    probe_free(probe);
    return result;
}

static int find_answer(struct sqlite_store *s, struct store_forget *forget)
{
    struct store_view view;
    int result = reader_load(s->stager.reader, forget->key, forget->user, forget->first_month, &view, &forget->err);
    if (result == ERR_CORRUPT && forget->n_items == 0) {
        /* What can't be read can still be erased. */
        forget->err = (struct err){0};
        forget->answer = 1;
        return 0;
    }
    if (result < 0) {
        return result;
    }
    if (forget->n_items == 0) {
        forget->answer = view.known;
        return 0;
    }
    if (count_seen(&view, forget, &forget->answer) < 0) {
        return err_set(&forget->err, ERR_NOMEM, "out of memory while forgetting");
    }
    return 0;
}

static int find_rows(struct sqlite_store *s, const struct staged *index, const struct store_forget *forget)
{
    struct staged_ids *ids = &s->stager.ids;
    ids->n = 0;
    if (forget->n_items == 0) {
        return staged_find_user(index, forget->key, forget->user, ids);
    }
    bool *seen = calloc(forget->n_items, sizeof *seen);
    if (seen == NULL) {
        return ERR_NOMEM;
    }
    int found =
        staged_find_items(index, forget->key, forget->user, forget->hashes, forget->n_items, INT_MIN, seen, ids);
    free(seen);
    return found;
}

/* Deletes the rows of one slot from the file, durably, then from memory. */
static int erase_slot(struct sqlite_store *s, int n, struct store_forget *forget)
{
    const struct staged_ids *ids = &s->stager.ids;
    struct db *db = &s->stager.db;
    struct staged *index = atomic_load(&s->slots[n].index);
    int found = find_rows(s, index, forget);
    if (found <= 0) {
        return found < 0 ? err_set(&forget->err, found, "out of memory while forgetting") : 0;
    }
    int result = db_begin(db, &forget->err);
    if (result < 0) {
        return result;
    }
    sqlite3_stmt *stmt = db_stmt_for(db, SQL_STAGED_DELETE_ONE, n, &forget->err);
    for (size_t i = 0; i < ids->n && result == 0; i++) {
        if (stmt != NULL) {
            sqlite3_bind_int64(stmt, 1, (int64_t)ids->at[i]);
        }
        result = db_run(db, stmt, &forget->err);
    }
    if (result < 0) {
        db_rollback(db);
        return result;
    }
    if ((result = db_commit(db, &forget->err)) < 0) {
        return result;
    }
    if (forget->n_items == 0) {
        staged_drop_user(index, forget->key, forget->user);
    } else {
        staged_drop_rows(index, forget->key, forget->user, ids->at, ids->n);
    }
    return 0;
}

static int erase_staged(struct sqlite_store *s, struct store_forget *forget)
{
    struct db *db = &s->stager.db;
    if (db->lost) {
        int result = db_reopen(db, &forget->err);
        if (result < 0) {
            return result;
        }
    }
    int result = db_pragma(db, "secure_delete", 1, &forget->err);
    for (int i = 0; i < STORE_SLOTS_MAX && result == 0; i++) {
        if (atomic_load(&s->slots[i].index) != NULL) {
            result = erase_slot(s, i, forget);
        }
    }
    struct err off = {0};
    if (db->handle != NULL && !db->lost && db_pragma(db, "secure_delete", 0, &off) < 0) {
        log_warn("secure_delete stays on", "error=%s", log_quote_str(off.text));
    }
    return result;
}

void stager_forget(struct sqlite_store *s, struct store_forget *forget)
{
    forget->err = (struct err){0};
    if (check_shared(s, forget) < 0 || find_answer(s, forget) < 0 || erase_staged(s, forget) < 0) {
        log_warn("forget failed", "error=%s", log_quote_str(forget->err.text));
        answer(forget);
        return;
    }
    forget->message.kind = STORE_FORGET;
    inbox_put(&s->historian.inbox, &forget->message);
}
