/* FORGET, the stager's half, in the order in which it came among the writes. Forgets of different users that wait one
 * behind the other share a commit, here and with the historian: none of them changes what another one answers.
 *
 * First what the answer says is found out (known? seen?), as a question does; nothing is changed
 * before a refusal. Then the rows are deleted from staging.db under secure_delete, committed with a tombstone
 * (tombstones.c), and only then taken from the indexes; then the forget goes to the historian, which erases history
 * before it merges any row that is newer. A failure in the middle is an error to the caller, who asks again: each step
 * is harmless when repeated. A forget of a user whose last one is still with the historian waits for it, and what came
 * after waits behind it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "filter/sieve.h"
#include "store/migration.h"
#include "store/ring.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/read/reader.h"
#include "store/sqlite/staging/feed.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

static void answer(struct store_forget *forget)
{
    forget->done(forget);
}

/* Another user with the same 64-bit key shares its filters: erasing one would show the other's plays again. */
int stager_check_shared(struct sqlite_store *s, int64_t key, struct slice user, struct err *err)
{
    int shared = reader_shared_key(s->stager.reader, key, user, err);
    for (int i = 0; i < STORE_SLOTS_MAX && shared == 0; i++) {
        const struct staged *index = atomic_load(&s->slots[i].index);
        shared = index != NULL && staged_has_other(index, key, user);
    }
    if (shared > 0) {
        return err_set(err, ERR_SHARED,
                       "user %s can't be forgotten: another user has the same 64-bit key and shares its filters",
                       log_quote(user));
    }
    return shared;
}

static void scan_month(void *sieve, int month, bool good)
{
    (void)month;
    sieve_month(sieve, good);
}

/* What has fallen off the list may be in history still, or in a slot; that depends on what was flushed when. So once an
 * item of a full list goes, what is beyond it goes too, else it would come back here, and not on another node. */
static uint64_t cut_of(const struct sqlite_store *s, const struct store_view *view)
{
    const size_t n = view->n_deliveries;
    return n > 0 && delivered_items(view->deliveries, n) >= (size_t)config_now(s->cfg)->delivered_max
               ? view->deliveries[n - 1].stamp
               : 0;
}

/* A question about the items, each of which counts once, however large the user is. */
static int ask(struct sqlite_store *s, struct store_forget *forget, struct sieve *sieve, uint64_t *hashes,
               uint8_t *unseen)
{
    size_t n = hash_distinct(hashes, forget->n_items);
    if (sieve_begin(sieve, hashes, n) < 0) {
        return err_set(&forget->err, ERR_NOMEM, "out of memory while forgetting");
    }
    struct store_view view;
    const struct store_scan scan = {sieve_see, scan_month, sieve};
    int result =
        reader_scan(s->stager.reader, forget->key, forget->user, forget->first_month, &scan, &view, &forget->err);
    if (result < 0) {
        return result;
    }
    for (size_t i = 0; i < view.n_plays; i++) {
        sieve_exact(sieve, view.plays[i].hash);
    }
    for (size_t i = 0; i < view.n_deliveries; i++) {
        sieve_exact(sieve, view.deliveries[i].hash);
    }
    for (size_t i = 0; i < view.n_exceptions; i++) {
        sieve_except(sieve, view.exceptions[i]);
    }
    forget->cut = forget->n_items > 0 ? cut_of(s, &view) : 0;
    enum store_note note = migration_users_of(&s->base, forget->key);
    bool known = view.known || note == MIGRATION_WAITING || note == MIGRATION_LEFT;
    forget->answer = forget->n_items == 0 ? known : (int64_t)(n - sieve_end(sieve, unseen));
    return 0;
}

static int find_answer(struct sqlite_store *s, struct store_forget *forget)
{
    size_t n = forget->n_items;
    uint64_t *hashes = malloc((n + 1) * sizeof *hashes);
    uint8_t *unseen = malloc(n / 8 + 1);
    struct sieve *sieve = sieve_new();
    int result = ERR_NOMEM;
    if (hashes != NULL && unseen != NULL && sieve != NULL) {
        if (n > 0) {
            memcpy(hashes, forget->hashes, n * sizeof *hashes);
        }
        result = ask(s, forget, sieve, hashes, unseen);
    } else {
        err_set(&forget->err, ERR_NOMEM, "out of memory while forgetting");
    }
    free(hashes);
    free(unseen);
    sieve_free(sieve);
    if (result == ERR_CORRUPT && n == 0) {
        /* What can't be read can still be erased. */
        forget->err = (struct err){0};
        forget->answer = 1;
        result = 0;
    }
    return result;
}

/* --- what is newer, and spared --- */

/* All that came before is in the feed by now, and nothing comes between until its commit. */
static int gather_spared(struct sqlite_store *s, struct store_forget *forget)
{
    struct store_batch *spared = forget->spared;
    int loading = bulk_brings(s, forget->key, forget->user);
    if (loading < 0) {
        return err_set(&forget->err, loading, "out of memory while forgetting");
    }
    forget->loading = loading > 0;
    if (forget->gather != NULL && forget->gather(forget, &forget->err) < 0) {
        return forget->err.code;
    }
    int verdict = stager_admit(s, spared, 0);
    if (verdict != 0) {
        return err_set(&forget->err, verdict < 0 ? verdict : ERR_BUSY, "%s",
                       verdict < 0 ? spared->err.text : "staging memory is full");
    }
    slots_make_room(s, spared->rows);
    return 0;
}

/* --- a group: forgets of different users, which share a commit --- */

enum {
    GROUP_ROWS = 64 * 1024, /* a group ends with the forget whose rows reach that */
};

struct forgotten {
    struct store_forget *forget;
    size_t ends[STORE_SLOTS_MAX]; /* in the stager's ids: where its rows of slot i end */
    bool migrates;                /* a note of the user's migration ends with it */
    uint64_t spared, spared_end;  /* ids of what it spares */
};

struct forgets {
    size_t n;
    struct forgotten of[STAGER_FORGETS_MAX];
};

/* The rows of one slot, behind those of the slots before it. */
static int find_rows(struct sqlite_store *s, const struct staged *index, const struct store_forget *forget)
{
    struct staged_ids *ids = &s->stager.ids;
    if (forget->n_items == 0) {
        return staged_find_user(index, forget->key, forget->user, ids);
    }
    bool *seen = calloc(forget->n_items, sizeof *seen);
    if (seen == NULL) {
        return ERR_NOMEM;
    }
    int found = staged_find_items(index, forget->key, forget->user, forget->hashes, forget->n_items, INT_MIN,
                                  forget->cut, seen, ids);
    free(seen);
    return found;
}

/* Collects the ids of all rows, behind those of the forgets before it. */
static int find_all(struct sqlite_store *s, struct forgotten *f)
{
    struct store_forget *forget = f->forget;
    size_t before = s->stager.ids.n;
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        const struct staged *index = atomic_load(&s->slots[i].index);
        if (index != NULL && find_rows(s, index, forget) < 0) {
            s->stager.ids.n = before;
            return err_set(&forget->err, ERR_NOMEM, "out of memory while forgetting");
        }
        f->ends[i] = s->stager.ids.n;
    }
    f->migrates = forget->n_items == 0 && migration_users_of(&s->base, forget->key) != MIGRATION_NONE;
    return 0;
}

/* from: where its ids begin. */
static int delete_rows(struct sqlite_store *s, const struct forgotten *f, size_t from, struct err *err)
{
    int result = 0;
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        for (; from < f->ends[i] && result == 0; from++) {
            result = parts_delete_row(&s->stager.db, i, &s->slots[i].parts, s->stager.ids.at[from], err);
        }
    }
    return result;
}

static void drop_rows(struct sqlite_store *s, const struct forgotten *f, size_t from)
{
    const struct store_forget *forget = f->forget;
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        struct staged *index = atomic_load(&s->slots[i].index);
        if (f->ends[i] > from && forget->n_items == 0 && f->spared == f->spared_end) {
            staged_drop_user(index, forget->key, forget->user);
        } else if (f->ends[i] > from) {
            staged_drop_rows(index, forget->key, forget->user, s->stager.ids.at + from, f->ends[i] - from);
        }
        from = f->ends[i];
    }
}

/* In the index before the commit, so that no question misses it. */
static int write_spared(struct sqlite_store *s, struct forgotten *f, struct err *err)
{
    struct store_batch *spared = f->forget->spared;
    f->spared = f->spared_end = s->stager.next_id;
    if (spared == NULL) {
        return 0;
    }
    int result = stager_write_batch(s, spared, &s->stager.next_id, err);
    if (result == 0 && (result = stager_index_batch(s, spared, &f->spared_end)) < 0) {
        *err = spared->err;
    }
    return result;
}

/* Nothing came of it. */
static void drop_spared(struct sqlite_store *s, const struct forgets *g)
{
    struct staged *index = atomic_load(&s->slots[s->open].index);
    for (size_t i = 0; i < g->n; i++) {
        const struct forgotten *f = &g->of[i];
        if (f->spared < f->spared_end) {
            staged_drop_from(index, f->forget->key, f->forget->user, f->spared);
        }
    }
}

/* The end of its merge, whose event comes before its own; its ids of the sequence, its rows, its tombstone, its event,
 * the end of its note, what it spares. */
static int write_one(struct sqlite_store *s, struct forgotten *f, size_t from, struct err *err)
{
    struct store_forget *forget = f->forget;
    int result = forget->merge != NULL ? merge_write_end(s, forget->merge, err) : 0;
    uint64_t fed = feed_forget_ids(s, forget);
    forget->id = forget->before = s->stager.next_id;
    s->stager.next_id += fed > 0 ? fed : 1;
    forget->seq = s->stager.next_id - 1;
    if (result == 0) {
        result = delete_rows(s, f, from, err);
    }
    if (result == 0) {
        result = forgets_write(s, forget, err);
    }
    if (result == 0 && fed > 0) {
        result = feed_add_forget(s, forget, forget->id, err);
    }
    if (result == 0 && f->migrates) {
        result = migration_users_end(s, forget->key, err);
    }
    return result == 0 ? write_spared(s, f, err) : result;
}

/* Where the ids of the i-th begin. */
static size_t begin_of(const struct forgets *g, size_t i)
{
    return i == 0 ? 0 : g->of[i - 1].ends[STORE_SLOTS_MAX - 1];
}

/* Inside a transaction. The high-water mark goes with it, so that the ids of deleted rows are never used again. Rows
 * that a failed commit may have left are deleted too: they could be the users'. */
static int write_all(struct sqlite_store *s, struct forgets *g, struct err *err)
{
    int result = stager_undo(s, err);
    for (size_t i = 0; i < g->n && result == 0; i++) {
        result = write_one(s, &g->of[i], begin_of(g, i), err);
    }
    if (result == 0) {
        result = db_meta_set_int(&s->stager.db, "high_water", (int64_t)s->stager.next_id - 1, err);
    }
    return result == 0 ? feed_before_commit(s, err) : result;
}

/* Deletes the rows from the file, durably, then from memory. */
static int forget_rows(struct sqlite_store *s, struct forgets *g, struct err *err)
{
    struct db *db = &s->stager.db;
    uint64_t from = s->stager.next_id;
    size_t tombstones = 0;
    for (size_t i = 0; i < g->n; i++) {
        tombstones += g->of[i].forget->n_items == 0 ? 1 : g->of[i].forget->n_items;
    }
    int result = forgets_reserve(s, tombstones, err);
    if (result < 0 || (result = db_begin(db, err)) < 0) {
        return result;
    }
    result = write_all(s, g, err);
    if (result == 0) {
        result = db_commit(db, err);
    } else {
        db_rollback(db);
    }
    if (result < 0) {
        drop_spared(s, g);
        feed_failed(s);
        stager_undo_later(s, from, s->stager.next_id);
        s->stager.undo_forgets = true;
        return result;
    }
    s->stager.undo_from = 0;
    for (size_t i = 0; i < g->n; i++) {
        if (g->of[i].spared < g->of[i].spared_end) {
            s->slots[s->open].last_id = g->of[i].spared_end - 1;
        }
    }
    for (size_t i = 0; i < g->n; i++) {
        forgets_written(s, g->of[i].forget);
        feed_forgot(s, g->of[i].forget);
        if (g->of[i].forget->merge != NULL) {
            merge_written(s, g->of[i].forget->merge);
        }
    }
    feed_committed(s, s->stager.next_id - 1);
    for (size_t i = 0; i < g->n; i++) {
        const struct forgotten *f = &g->of[i];
        if (f->migrates) {
            /* Before the historian has the forget: what it merges later is passed over. */
            migration_users_ended(s, f->forget->key);
        }
        drop_rows(s, f, begin_of(g, i));
    }
    return 0;
}

static int forget_staged(struct sqlite_store *s, struct forgets *g, struct err *err)
{
    struct db *db = &s->stager.db;
    int result = db->lost ? db_reopen(db, err) : 0;
    if (result == 0) {
        result = db_pragma(db, "secure_delete", 1, err);
    }
    if (result == 0) {
        result = forget_rows(s, g, err);
    }
    stager_note_commit(s, err);
    struct err off = {0};
    if (db->handle != NULL && !db->lost && db_pragma(db, "secure_delete", 0, &off) < 0) {
        log_warn("secure_delete stays on", "error=%s", log_quote_str(off.text));
    }
    return result;
}

static _Atomic uint32_t *counter_of(struct sqlite_store *s, int64_t key)
{
    return &s->forgets[(uint64_t)key % FORGET_COUNTERS];
}

bool stager_forget_is_under_way(struct sqlite_store *s, int64_t key)
{
    return atomic_load(counter_of(s, key)) > 0;
}

void stager_forget_begun(struct sqlite_store *s, int64_t key)
{
    atomic_fetch_add(counter_of(s, key), 1);
}

void stager_forget_ended(struct sqlite_store *s, int64_t key)
{
    atomic_fetch_sub(counter_of(s, key), 1);
    thread_queue_wake(&s->stager.queue);
}

static void refuse(struct sqlite_store *s, struct store_forget *forget)
{
    if (forget->spared == NULL && forget->merge == NULL) { /* else its caller tells */
        log_warn("forget failed", "error=%s", log_quote_str(forget->err.text));
    }
    atomic_fetch_sub(counter_of(s, forget->key), 1);
    answer(forget);
}

/* The historian finds all of the group in its queue, so that history's part shares a commit, too. */
static void commit(struct sqlite_store *s, struct forgets *g)
{
    struct err err = {0};
    int result = g->n == 0 ? 0 : forget_staged(s, g, &err);
    struct store_message *first = NULL, **last = &first;
    for (size_t i = 0; i < g->n; i++) {
        struct store_forget *forget = g->of[i].forget;
        if (result < 0) {
            forget->err = err;
            refuse(s, forget);
        } else {
            *last = &forget->message;
            last = &forget->message.next;
        }
    }
    *last = NULL;
    for (struct store_message *m = first, *next; m != NULL; m = next) {
        next = m->next;
        thread_queue_put(&s->historian.queue, m);
    }
    g->n = 0;
    s->stager.ids.n = 0;
}

void stager_forgets(struct sqlite_store *s, struct store_message *first)
{
    struct forgets g = {.n = 0};
    s->stager.ids.n = 0;
    for (struct store_message *m = first, *next; m != NULL; m = next) {
        next = m->next;
        struct forgotten *f = &g.of[g.n];
        struct store_forget *forget = (struct store_forget *)m;
        size_t before = s->stager.ids.n;
        *f = (struct forgotten){.forget = forget};
        int64_t earlier;
        heartbeat_now(&s->stager.queue.task.heartbeat);
        forget->err = (struct err){0};
        forget->cut = 0;
        store_now(&s->base, &forget->at_ms, &earlier);
        forget->at_ms = forget->stated_ms != 0 ? forget->stated_ms : forget->at_ms;
        if (stager_check_shared(s, forget->key, forget->user, &forget->err) < 0 || find_answer(s, forget) < 0 ||
            find_all(s, f) < 0 || (forget->spared != NULL && gather_spared(s, forget) < 0)) {
            s->stager.ids.n = before;
            refuse(s, forget);
        } else if (++g.n == STAGER_FORGETS_MAX || s->stager.ids.n >= GROUP_ROWS) {
            commit(s, &g);
        }
    }
    commit(s, &g);
}
