/* MERGE, the historian's half: one user's months, deliveries, un-seen items and marks of damage become another one's,
 * too. The first is packed as a copy of them would be, from history and from what is staged, and imported as the second
 * (import_user.c). So it is a union, which may be repeated, and what it has to do with forgets, limits and expiry is an
 * import's.
 *
 * What is staged is read where it is: the historian alone moves it into history, and is here; and the stager writes
 * nothing of the user meanwhile. */
#include "base/calendar.h"
#include "base/log.h"
#include "store/sqlite/admin/export_pack.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/state.h"

static void on_damage(void *arg, const char *what)
{
    (void)arg;
    log_warn("what can't be read is marked in the user that it is merged into", "what=%s", log_quote_str(what));
}

/* By the users row, whose month only rises, and by deliveries alone. */
static int newest_month(struct sqlite_store *s, const struct store_merge *merge, struct staged *const *slots,
                        int n_slots, int *month, struct err *err)
{
    struct staged_out *out = &s->historian_pin.out;
    struct db *db = &s->historian.db;
    sqlite3_stmt *stmt = db_stmt(db, SQL_USER_GET, err);
    db_bind_key(stmt, merge->from_key);
    int result = db_step(db, stmt, err);
    if (result == 1) {
        *month = sqlite3_column_int(stmt, 1);
        sqlite3_reset(stmt);
        result = 0;
    }
    staged_out_clear(out);
    out->deliveries_max = DELIVERED_MAX;
    for (int i = 0; i < n_slots && result == 0; i++) {
        result = staged_load(slots[i], merge->from_key, merge->from, INT_MAX, out) < 0 ? ERR_NOMEM : 0;
    }
    for (size_t i = 0; i < out->deliveries.n && result == 0; i++) {
        int of = month_of_ms(delivered_ms(out->deliveries.list[i].stamp));
        *month = of > *month ? of : *month;
    }
    return result == ERR_NOMEM ? err_set(err, ERR_NOMEM, "out of memory while merging users") : result;
}

static int pack(struct sqlite_store *s, const struct store_merge *merge, struct staged *const *slots, int n_slots,
                struct buf *out, struct err *err)
{
    struct historian *h = &s->historian;
    struct export_packer packer = {
        .history = &h->db, .slots = slots, .n_slots = n_slots, .seed = s->seed, .damaged = on_damage};
    int month = 0, result = month_list(s, err);
    packer.months = h->months;
    packer.n_months = h->n_months;
    if (result == 0 && (result = newest_month(s, merge, slots, n_slots, &month, err)) == 0) {
        result = export_pack(&packer, merge->from_key, merge->from, month, true, false, out, err);
    }
    export_packer_free(&packer);
    return result;
}

int merge_users_staged(struct sqlite_store *s, struct store_merge *merge, struct staged *const *slots, int n_slots)
{
    struct buf snapshot = {0};
    struct err *err = &merge->err;
    int result = history_begin(s, err);
    if (result < 0) {
        return result;
    }
    if ((result = pack(s, merge, slots, n_slots, &snapshot, err)) > 0) {
        merge->answer = 1;
        result = import_user_as(s, buf_slice(&snapshot), merge->into_key, merge->into, err);
    }
    buf_free(&snapshot);
    if (result < 0) {
        history_rollback(s);
        return result;
    }
    merge->united = merge->answer > 0;
    return history_commit(s, err);
}

/* Indexes that it reads are not freed meanwhile: it is pinned as a reader is. */
int merge_users(struct sqlite_store *s, struct store_merge *merge)
{
    struct staged *slots[STORE_SLOTS_MAX];
    int n = 0;
    atomic_fetch_add(&s->historian_pin.pin, 1);
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        struct staged *index = atomic_load(&s->slots[i].index);
        if (index != NULL) {
            slots[n++] = index;
        }
    }
    int result = merge_users_staged(s, merge, slots, n);
    atomic_fetch_add(&s->historian_pin.pin, 1);
    return result;
}
