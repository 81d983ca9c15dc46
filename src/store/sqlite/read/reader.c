/* What a question reads: first the staged index, then a snapshot of history.
 *
 * This order makes a flush invisible. A slot's index is dropped only after its rows are durable in history, so a play
 * missed in the index is in any snapshot opened later. In the other order a flush in between would hide it. The list of
 * months, and how far each is sealed, is read inside the snapshot, since a sweep may drop one meanwhile. Counters save
 * questions from reading tables that are usually empty (exceptions, quarantine). They are raised before the commit that
 * fills the table, and read after the snapshot is open.
 *
 * What the snapshot has of a user is kept decoded (kept.h), with the version of the file's content. So is the list of
 * months. The version is the first thing that a question reads in its snapshot.
 *
 * A large user is not loaded but scanned. Their size is known before any of their data is read: the staged plays are
 * counted, and the length of a blob is at the head of its row, so that SQLite reads none of its pages for it.
 *
 * A reader never waits for another thread: its connection is read-only and of its own, and the slots' indexes are
 * pinned, not locked. Nor for the disk, if it leaves what is cold (db/read_now.h).
 */
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/ring.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/read/reader.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum {
    LOADS_A_COUNT = 16,
    PLAY_WEIGHT = sizeof(uint64_t), /* bytes that a staged play counts when a user is weighed */
};

int reader_open(struct store *base, struct store_reader **out, struct err *err)
{
    struct sqlite_store *s = sqlite_store(base);
    struct store_reader *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    r->store = s;
    r->now.may_wait = true;
    read_now_begin(&r->now);
    int result = db_open(&r->db, s->folder, "history", s->vfs, DB_READ, err);
    read_now_end();
    if (result < 0) {
        free(r);
        return result;
    }
    pthread_mutex_lock(&s->readers_mutex);
    r->next = s->readers;
    s->readers = r;
    pthread_mutex_unlock(&s->readers_mutex);
    *out = r;
    return 0;
}

void reader_close(struct store_reader *r)
{
    if (r == NULL) {
        return;
    }
    struct sqlite_store *s = r->store;
    pthread_mutex_lock(&s->readers_mutex);
    for (struct store_reader **at = &s->readers; *at != NULL; at = &(*at)->next) {
        if (*at == r) {
            *at = r->next;
            break;
        }
    }
    pthread_mutex_unlock(&s->readers_mutex);
    if (r->keeps) {
        atomic_fetch_sub_explicit(&s->keepers, 1, memory_order_relaxed);
    }
    db_close(&r->db);
    if (r->staging.handle != NULL) {
        db_close(&r->staging);
    }
    staged_out_free(&r->out);
    arena_free(&r->arena);
    kept_free(&r->kept);
    delivered_codec_free(&r->codec);
    free(r->months);
    free(r->exceptions);
    free(r->window);
    free(r);
}

void reader_leave_cold(struct store_reader *r)
{
    r->leaves_cold = true;
    GAUGE(r->store, cold_untold, r->now.unsupported);
}

/* Room for n entries of size bytes. */
static int reserve(void **array, size_t *cap, size_t n, size_t size)
{
    if (n <= *cap) {
        return 0;
    }
    size_t want = *cap * 2 > n ? *cap * 2 : n;
    void *more = realloc(*array, want * size);
    if (more == NULL) {
        return ERR_NOMEM;
    }
    *array = more;
    *cap = want;
    return 0;
}

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while reading a user");
}

static int too_large(struct err *err)
{
    return err_set(err, ERR_LARGE, "the user has more than %d KiB of filters and staged plays", STORE_LARGE / 1024);
}

int reader_begin(struct store_reader *r, struct err *err)
{
    if (r->db.lost) {
        r->window_kept = false;
        kept_cut(&r->kept, 0);
    }
    return db_begin_read(&r->db, err);
}

static int begin(struct store_reader *r, struct err *err)
{
    r->now.may_wait = !r->leaves_cold;
    if (r->leaves_cold) {
        /* While a write waits for the disk, it may be a frozen one, whose queue would fill up. */
        r->now.look_first = atomic_load_explicit(&r->store->waiting_readers, memory_order_relaxed) > 0;
    } else {
        atomic_fetch_add_explicit(&r->store->waiting_readers, 1, memory_order_relaxed);
    }
    read_now_begin(&r->now);
    return reader_begin(r, err);
}

/* And ends here: returns the reading's own result. began: begin()'s. */
static int end(struct store_reader *r, int began, int result, struct err *err)
{
    result = began < 0 ? began : db_end_read(&r->db, result, err);
    read_now_end();
    if (!r->leaves_cold) {
        atomic_fetch_sub_explicit(&r->store->waiting_readers, 1, memory_order_relaxed);
        if (r->db.handle != NULL) {
            sqlite3_db_release_memory(r->db.handle); /* such readers are many, and beside a disk a cache saves little */
        }
    }
    if (r->now.missed) {
        return err_set(err, ERR_COLD, "%s is not in memory as far as is needed", r->db.path);
    }
    if (result == ERR_CORRUPT && r->now.failed) {
        const struct err damage = err != NULL ? *err : (struct err){0};
        return err_set(err, ERR_IO, "the disk can't be read: %s", damage.text);
    }
    return result;
}

/* While the caller pins them: those that have an index, the newest first, so that a user's deliveries are gathered in
 * order. Returns how many. */
static int find_slots(struct sqlite_store *s, const struct staged **slots)
{
    int n = 0;
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        const struct staged *index = atomic_load(&s->slots[i].index);
        if (index == NULL) {
            continue;
        }
        int at = n++;
        for (; at > 0 && staged_first_id(slots[at - 1]) < staged_first_id(index); at--) {
            slots[at] = slots[at - 1];
        }
        slots[at] = index;
    }
    return n;
}

int reader_staged(struct store_reader *r, int64_t key, struct slice user, int first_month, struct err *err)
{
    struct sqlite_store *s = r->store;
    int known = 0;
    r->out.deliveries_max = (size_t)config_now(s->cfg)->delivered_max;
    atomic_fetch_add(&r->pin, 1);
    const struct staged *slots[STORE_SLOTS_MAX];
    const int n = find_slots(s, slots);
    for (int i = 0; i < n && known >= 0; i++) {
        int found = staged_load(slots[i], key, user, first_month, &r->out);
        known = found < 0 ? found : known | found;
    }
    atomic_fetch_add(&r->pin, 1);
    return known == ERR_NOMEM ? out_of_memory(err) : known < 0 ? too_large(err) : known;
}

/* Of the file's content in this snapshot, which begins here: SQLite's data version, by which it decides whether the
 * pages of its cache are still good. It counts each commit of any connection, and so each user who is merged, imported
 * or forgotten, and each table that a flush, a sealing or a sweep makes, renames or drops. */
static int read_version(struct store_reader *r, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(&r->db, SQL_DATA_VERSION, err);
    int result = db_step(&r->db, stmt, err);
    if (result == 1) {
        r->version = (unsigned)sqlite3_column_int64(stmt, 0);
        sqlite3_reset(stmt);
        return 0;
    }
    return result < 0 ? result : err_set(err, ERR_SYSTEM, "this SQLite tells no data version");
}

/* The months of the window that have a table in this snapshot, newest first. They are kept from question to question,
 * for as long as the file's content is the same. */
static int load_window(struct store_reader *r, int first_month, struct err *err)
{
    if (r->window_kept && r->version == r->window_version && first_month == r->window_first) {
        return 0;
    }
    r->window_kept = false;
    r->n_window = 0;
    sqlite3_stmt *stmt = db_stmt(&r->db, SQL_MONTHS_WINDOW, err);
    if (stmt != NULL) {
        sqlite3_bind_int(stmt, 1, first_month);
    }
    int result;
    while ((result = db_step(&r->db, stmt, err)) == 1) {
        if (reserve((void **)&r->window, &r->cap_window, r->n_window + 1, sizeof *r->window) < 0) {
            sqlite3_reset(stmt);
            return out_of_memory(err);
        }
        month_column(stmt, 1, &r->window[r->n_window++]);
    }
    r->window_kept = result == 0;
    r->window_version = r->version;
    r->window_first = first_month;
    return result;
}

/* Each user and month is told to the log once, not at each question. The places are few: others may displace one, and
 * then it is told again. */
static bool first_told(struct sqlite_store *s, struct slice user, int month)
{
    uint64_t mark = hash_id((uint64_t)month, user) | 1;
    _Atomic uint64_t *place = &s->damage_logged[mark / 2 % (sizeof s->damage_logged / sizeof s->damage_logged[0])];
    return atomic_exchange_explicit(place, mark, memory_order_relaxed) != mark;
}

/* month 0: the deliveries. */
static int damaged(struct store_reader *r, struct store_view *view, struct slice user, int month, const char *reason,
                   struct err *err)
{
    char name[MONTH_TEXT];
    const char *what = month == 0 ? "deliveries" : month_name(month, name);
    if (first_told(r->store, user, month)) {
        log_error("damaged", "user=%s of=%s error=%s", log_quote(user), what, log_quote_str(reason));
    }
    if (config_now(r->store->cfg)->on_damage == DAMAGE_ANSWER) {
        view->damaged_months++;
        return 0;
    }
    return err_set(err, ERR_CORRUPT, "user %s: %s can't be read: %s", log_quote(user), what, reason);
}

/* Decodes a blob into *m, or hands it to the scan. */
static int read_filter(struct store_reader *r, struct slice blob, struct store_month *m, struct err *why)
{
    m->bytes = (uint32_t)blob.len;
    if (r->scan == NULL) {
        return filter_decode(blob.data, blob.len, &r->arena, &m->filter, why);
    }
    int result = filter_scan(blob.data, blob.len, r->scan->see, r->scan->arg, &m->filter, why);
    r->scan->month(r->scan->arg, m->month, result == 0);
    return result;
}

static int load_month(struct store_reader *r, int64_t key, struct slice user, const struct stored_month *in,
                      struct store_view *view, struct err *err)
{
    int month = in->month;
    sqlite3_stmt *stmt = db_stmt_for(&r->db, SQL_PLAY_READ, month_table(in, key), err);
    db_bind_key(stmt, key);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 2, r->scan == NULL ? r->room : INT64_MAX);
    }
    int result = db_step(&r->db, stmt, err);
    if (result == ERR_CORRUPT && err != NULL) {
        /* A damaged page, not a damaged blob. */
        char reason[sizeof err->text];
        snprintf(reason, sizeof reason, "%s", err->text);
        return damaged(r, view, user, month, reason, err);
    }
    if (result != 1) {
        return result;
    }
    if (r->scan == NULL && sqlite3_column_type(stmt, 0) == SQLITE_NULL) {
        sqlite3_reset(stmt);
        return too_large(err);
    }
    if (reserve((void **)&r->months, &r->cap_months, view->n_months + 1, sizeof *r->months) < 0) {
        sqlite3_reset(stmt);
        return out_of_memory(err);
    }
    struct store_month *m = &r->months[view->n_months];
    struct slice blob = db_column_bytes(stmt, 0);
    struct err why = {0};
    m->month = month;
    r->room -= (int64_t)blob.len;
    result = read_filter(r, blob, m, &why);
    sqlite3_reset(stmt);
    if (result == 0) {
        view->n_months++;
        return 0;
    }
    if (result == ERR_NOMEM) {
        return out_of_memory(err);
    }
    return damaged(r, view, user, month, why.text, err);
}

static int load_delivered(struct store_reader *r, int64_t key, struct slice user, struct store_view *view,
                          struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(&r->db, SQL_DELIVERED_GET, err);
    db_bind_key(stmt, key);
    int result = db_step(&r->db, stmt, err);
    if (result != 1) {
        return result;
    }
    struct slice blob = db_column_bytes(stmt, 0);
    struct delivered stored;
    struct err why = {0};
    result = delivered_unpack(&r->codec, blob.data, blob.len, r->store->seed, &r->arena, &stored, &why);
    sqlite3_reset(stmt);
    if (result == 0) {
        view->deliveries = stored.list;
        view->n_deliveries = stored.n;
        return 0;
    }
    return result == ERR_NOMEM ? out_of_memory(err) : damaged(r, view, user, 0, why.text, err);
}

static int load_exceptions(struct store_reader *r, int64_t key, struct store_view *view, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(&r->db, SQL_EXCEPTIONS_GET, err);
    db_bind_key(stmt, key);
    int result;
    while ((result = db_step(&r->db, stmt, err)) == 1) {
        if (reserve((void **)&r->exceptions, &r->cap_exceptions, view->n_exceptions + 1, sizeof *r->exceptions) < 0) {
            sqlite3_reset(stmt);
            return out_of_memory(err);
        }
        r->exceptions[view->n_exceptions++] = (uint64_t)sqlite3_column_int64(stmt, 0);
    }
    return result;
}

static int load_quarantine(struct store_reader *r, int64_t key, struct slice user, int first_month,
                           struct store_view *view, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(&r->db, SQL_QUARANTINE_GET, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, key);
        sqlite3_bind_int(stmt, 2, first_month);
    }
    int result = db_step(&r->db, stmt, err);
    if (result == 1) {
        int month = sqlite3_column_int(stmt, 0);
        sqlite3_reset(stmt);
        result = damaged(r, view, user, month, "its blob was damaged and set aside", err);
    }
    return result;
}

static int read_history(struct store_reader *r, int64_t key, struct slice user, int first_month,
                        struct store_view *view, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(&r->db, SQL_USER_GET, err);
    db_bind_key(stmt, key);
    int result = db_step(&r->db, stmt, err);
    if (result != 1) {
        /* Every merge upserts the users row. Without one there is nothing, unless an item was un-seen of a user who is
         * still to be taken over from another system. */
        bool excepted = result == 0 && atomic_load(&r->store->exceptions) > 0 &&
                        migration_users_of(&r->store->base, key) != MIGRATION_NONE;
        return excepted ? load_exceptions(r, key, view, err) : result;
    }
    sqlite3_reset(stmt);
    view->known = true;
    result = load_window(r, first_month, err);
    for (size_t i = 0; i < r->n_window && result == 0; i++) {
        result = load_month(r, key, user, &r->window[i], view, err);
    }
    if (result == 0) {
        result = load_delivered(r, key, user, view, err);
    }
    if (result == 0 && atomic_load(&r->store->exceptions) > 0) {
        result = load_exceptions(r, key, view, err);
    }
    if (result == 0 && atomic_load(&r->store->counters.quarantined) > 0) {
        result = load_quarantine(r, key, user, first_month, view, err);
    }
    return result;
}

/* This reader's share of the memory for users who are kept; 0: it keeps none. */
static size_t keep_limit(const struct store_reader *r)
{
    const int readers = atomic_load_explicit(&r->store->keepers, memory_order_relaxed) + (r->keeps ? 0 : 1);
    return r->leaves_cold ? (size_t)(config_now(r->store->cfg)->history_memory / readers) : 0;
}

/* From the first user on who may be kept, a reader has a share: one that has met large users alone has none. */
static bool is_worth_keeping(struct store_reader *r, int64_t key)
{
    if (!r->keeps) {
        r->keeps = true;
        atomic_fetch_add_explicit(&r->store->keepers, 1, memory_order_relaxed);
    }
    return kept_wanted(&r->kept, key);
}

/* Everything history has of the user, inside the snapshot: read, or as it was kept. */
static int load_history(struct store_reader *r, int64_t key, struct slice user, int first_month,
                        struct store_view *view, struct err *err)
{
    const size_t limit = r->scan == NULL ? keep_limit(r) : 0;
    int result = read_version(r, err);
    if (r->scan == NULL && result == 0) {
        kept_cut(&r->kept, limit);
        const struct kept_user *kept = kept_find(&r->kept, key, first_month, r->version);
        if (kept != NULL) {
            r->kept_found++;
            *view = kept->view;
            return kept->blob_bytes <= r->room ? 0 : too_large(err);
        }
    }
    const int64_t room = r->room;
    result = result == 0 ? read_history(r, key, user, first_month, view, err) : result;
    view->months = r->months;
    view->exceptions = r->exceptions;
    if (limit > 0 && result == 0 && view->known && view->damaged_months == 0 && is_worth_keeping(r, key)) {
        kept_add(&r->kept,
                 &(struct kept_user){.key = key,
                                     .first_month = first_month,
                                     .version = r->version,
                                     .blob_bytes = room - r->room,
                                     .view = *view},
                 limit);
    }
    return result;
}

/* Now and then, since asking SQLite and counting for all readers costs more than a page does. */
static void count_pages(struct store_reader *r)
{
    int hits = 0;
    int misses = 0;
    int highest;
    if (++r->loads % LOADS_A_COUNT != 0 || r->db.handle == NULL) {
        return;
    }
    COUNT(r->store, kept_found, r->kept_found);
    r->kept_found = 0;
    sqlite3_db_status(r->db.handle, SQLITE_DBSTATUS_CACHE_HIT, &hits, &highest, 1);
    sqlite3_db_status(r->db.handle, SQLITE_DBSTATUS_CACHE_MISS, &misses, &highest, 1);
    COUNT(r->store, cache_hits, hits);
    COUNT(r->store, cache_misses, misses);
}

static int load(struct store_reader *r, int64_t key, struct slice user, int first_month, const struct store_scan *scan,
                struct store_view *view, struct err *err)
{
    memset(view, 0, sizeof *view);
    staged_out_clear(&r->out);
    arena_reset(&r->arena);
    r->scan = scan;
    r->out.plays_max = scan == NULL ? STORE_LARGE / PLAY_WEIGHT : 0;

    int known = reader_staged(r, key, user, first_month, err);
    if (known < 0) {
        return known;
    }
    r->room = STORE_LARGE - (int64_t)r->out.n_plays * PLAY_WEIGHT;

    int result = begin(r, err);
    result = end(r, result, result < 0 ? result : load_history(r, key, user, first_month, view, err), err);
    count_pages(r);
    if (result < 0) {
        return result;
    }
    view->known = view->known || known > 0;
    if (delivered_add(&r->out.deliveries, view->deliveries, view->n_deliveries) < 0) {
        return out_of_memory(err);
    }
    if (view->damaged_months > 0) {
        COUNT(r->store, damaged_answers, 1);
    }
    delivered_unite(&r->out.deliveries, r->out.deliveries_max);
    view->plays = r->out.plays;
    view->n_plays = r->out.n_plays;
    view->deliveries = r->out.deliveries.list;
    view->n_deliveries = r->out.deliveries.n;
    return 0;
}

int reader_load(struct store_reader *r, struct store_load *question)
{
    question->err = (struct err){0};
    return load(r, question->key, question->user, question->first_month, NULL, &question->view, &question->err);
}

int reader_scan(struct store_reader *r, int64_t key, struct slice user, int first_month, const struct store_scan *scan,
                struct store_view *view, struct err *err)
{
    return load(r, key, user, first_month, scan, view, err);
}

static int find_other(struct db *db, int64_t key, struct slice user, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_SHARED_GET, err);
    db_bind_key(stmt, key);
    int result = db_step(db, stmt, err);
    if (result != 0) {
        if (result == 1) {
            sqlite3_reset(stmt);
        }
        return result;
    }
    stmt = db_stmt(db, SQL_USER_GET, err);
    db_bind_key(stmt, key);
    result = db_step(db, stmt, err);
    if (result == 1) {
        struct slice name = db_column_bytes(stmt, 0);
        result = name.len > 0 && !slice_eq(name, user); /* one without a name is the user who is asked about */
        sqlite3_reset(stmt);
    }
    return result;
}

int reader_shared_key(struct store_reader *r, int64_t key, struct slice user, struct err *err)
{
    int result = begin(r, err);
    return end(r, result, result < 0 ? result : find_other(&r->db, key, user, err), err);
}

/* A cursor of the sweep or the sealing as a share of the key space. */
static double key_share(int64_t key)
{
    return (double)((uint64_t)key + (UINT64_C(1) << 63)) / 18446744073709551616.0;
}

static int list_months(struct db *db, struct store_month_info *out, int max, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, SQL_MONTHS_ALL, err);
    int n = 0;
    int result;
    while ((result = db_step(db, stmt, err)) == 1) {
        if (n == max) {
            sqlite3_reset(stmt);
            break;
        }
        struct store_month_info *m = &out[n++];
        *m = (struct store_month_info){0};
        m->month = sqlite3_column_int(stmt, 0);
        m->state = sqlite3_column_int(stmt, 1) != 0 ? STORE_MONTH_SEALED : STORE_MONTH_LIVE;
        m->users = (uint64_t)sqlite3_column_int64(stmt, 2);
        m->plays = (uint64_t)sqlite3_column_int64(stmt, 3);
        m->bytes = (uint64_t)sqlite3_column_int64(stmt, 4);
        m->progress = 0;
        if (sqlite3_column_type(stmt, 5) != SQLITE_NULL) {
            m->state = STORE_MONTH_EXPIRING;
            m->progress = key_share(sqlite3_column_int64(stmt, 5));
        } else if (sqlite3_column_type(stmt, 6) != SQLITE_NULL) {
            m->state = STORE_MONTH_SEALING;
            m->progress = key_share(sqlite3_column_int64(stmt, 6));
        }
    }
    return result < 0 ? result : n;
}

int reader_months(struct store_reader *r, struct store_month_info *out, int max, struct err *err)
{
    int result = begin(r, err);
    return end(r, result, result < 0 ? result : list_months(&r->db, out, max, err), err);
}
