#include "fake_store.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"

enum { USERS_MAX = 64, ROWS_MAX = 512, WAITING_MAX = 256 };

struct fake_row {
    enum store_kind kind;
    uint64_t id, hash;
    int month;
    char item[256];
    size_t len;
    bool stored; /* in a month's filter */
};

struct fake_user {
    char name[256];
    size_t len;
    bool known, damaged, unreadable, large;
    struct fake_row rows[ROWS_MAX];
    size_t n_rows;
};

struct fake {
    struct store store;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct fake_user *users[USERS_MAX];
    size_t n_users;
    bool held, scans_held, all_large;
    int scans_waiting;
    struct store_message *waiting[WAITING_MAX];
    size_t n_waiting;
    struct err failure;
    struct store_backup_state backups;
    struct store_ring ring;
    uint64_t last_id, rows_recorded, ticks;
};

struct store_reader {
    struct fake *fake;
    struct store_play plays[ROWS_MAX];
    struct store_delivery deliveries[ROWS_MAX];
    struct store_month months[ROWS_MAX];
    uint32_t positions[ROWS_MAX];
    char items[ROWS_MAX][256];
};

static struct fake *fake_of(struct store *s)
{
    return (struct fake *)s;
}

static struct fake_user *find_user(struct fake *f, struct slice name, bool make)
{
    for (size_t i = 0; i < f->n_users; i++) {
        if (slice_eq(slice_of(f->users[i]->name, f->users[i]->len), name)) {
            return f->users[i];
        }
    }
    if (!make) {
        return NULL;
    }
    assert(f->n_users < USERS_MAX && name.len < sizeof f->users[0]->name);
    struct fake_user *u = calloc(1, sizeof *u);
    assert(u != NULL);
    memcpy(u->name, name.data, name.len);
    u->len = name.len;
    f->users[f->n_users++] = u;
    return u;
}

static void add_row(struct fake *f, struct fake_user *u, enum store_kind kind, int month, struct slice item,
                    uint64_t hash, bool stored)
{
    for (size_t i = 0; i < u->n_rows; i++) {
        struct fake_row *r = &u->rows[i];
        if (r->kind == kind && r->hash == hash && r->month == month && r->stored == stored) {
            r->id = ++f->last_id;
            return;
        }
    }
    if (u->n_rows == ROWS_MAX) {
        return; /* a test of load, which doesn't ask */
    }
    struct fake_row *r = &u->rows[u->n_rows++];
    *r = (struct fake_row){.kind = kind, .id = ++f->last_id, .hash = hash, .month = month, .stored = stored};
    memcpy(r->item, item.data, item.len);
    r->len = item.len;
    u->known = true;
}

static void apply_batch(struct fake *f, struct store_batch *batch)
{
    struct store_event event;
    size_t at = 0;
    while (store_batch_next(batch, &at, &event)) {
        struct fake_user *u = find_user(f, event.user, true);
        assert(event.key == hash_user_key(FAKE_SEED, event.user));
        const uint8_t *next = event.items;
        for (uint32_t i = 0; i < event.n; i++) {
            struct slice item;
            uint64_t hash;
            next = store_event_item(next, &item, &hash);
            assert(hash == hash_id(FAKE_SEED, item));
            int month = event.kind == STORE_PLAY ? month_of_ms(event.at_ms) : 0;
            add_row(f, u, event.kind, month, item, hash, false);
        }
    }
    f->rows_recorded += batch->rows;
}

static void apply_forget(struct fake *f, struct store_forget *forget)
{
    struct fake_user *u = find_user(f, forget->user, false);
    forget->answer = 0;
    if (u == NULL || !u->known) {
        return;
    }
    if (forget->n_items == 0) {
        u->known = false;
        u->n_rows = 0;
        forget->answer = 1;
        return;
    }
    for (size_t i = 0; i < forget->n_items; i++) {
        size_t kept = 0, before = u->n_rows;
        for (size_t k = 0; k < before; k++) {
            if (u->rows[k].hash != forget->hashes[i]) {
                u->rows[kept++] = u->rows[k];
            }
        }
        u->n_rows = kept;
        forget->answer += kept < before;
    }
}

/* Takes effect under the lock; done() comes after it. */
static void answer(struct fake *f, struct store_message *message)
{
    struct store_batch *batch = (struct store_batch *)message;
    struct store_forget *forget = (struct store_forget *)message;
    struct store_call *call = (struct store_call *)message;
    pthread_mutex_lock(&f->lock);
    struct err failure = f->failure;
    if (message->kind == STORE_BATCH && failure.code == 0) {
        apply_batch(f, batch);
    } else if (message->kind == STORE_FORGET && failure.code == 0) {
        apply_forget(f, forget);
    }
    pthread_mutex_unlock(&f->lock);
    if (message->kind == STORE_BATCH) {
        batch->err = failure;
        batch->done(batch);
    } else if (message->kind == STORE_FORGET) {
        forget->err = failure;
        forget->done(forget);
    } else {
        call->err = failure;
        call->done(call);
    }
}

static void take(struct store *s, struct store_message *message, enum store_message_kind kind)
{
    struct fake *f = fake_of(s);
    message->kind = kind;
    pthread_mutex_lock(&f->lock);
    bool held = f->held;
    if (held) {
        assert(f->n_waiting < WAITING_MAX);
        f->waiting[f->n_waiting++] = message;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
    if (!held) {
        answer(f, message);
    }
}

static void fake_record(struct store *s, struct store_batch *batch)
{
    take(s, &batch->message, STORE_BATCH);
}

static void fake_forget(struct store *s, struct store_forget *forget)
{
    take(s, &forget->message, STORE_FORGET);
}

static void fake_flush(struct store *s, struct store_call *call)
{
    take(s, &call->message, STORE_CALL);
}

static void fake_tick(struct store *s, struct store_call *call)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    f->ticks++;
    pthread_mutex_unlock(&f->lock);
    call->err = (struct err){0};
    call->done(call);
}

static int fake_reader_open(struct store *s, struct store_reader **reader, struct err *err)
{
    struct store_reader *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    r->fake = fake_of(s);
    *reader = r;
    return 0;
}

static void fake_reader_close(struct store_reader *reader)
{
    free(reader);
}

static int newest_first(const void *a, const void *b)
{
    const struct store_delivery *x = a, *y = b;
    return x->id < y->id ? 1 : x->id > y->id ? -1 : 0;
}

static int by_position(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x > y ? 1 : x < y ? -1 : 0;
}

/* Months newest first; each filter's positions lie one behind the other in r->positions. */
static void view_months(struct store_reader *r, const struct fake_user *u, int first_month, struct store_view *view)
{
    int below = INT32_MAX;
    size_t used = 0;
    for (;;) {
        int month = -1;
        for (size_t i = 0; i < u->n_rows; i++) {
            if (u->rows[i].stored && u->rows[i].month < below && u->rows[i].month > month) {
                month = u->rows[i].month;
            }
        }
        if (month < 0 || month < first_month) {
            break;
        }
        struct store_month *m = &r->months[view->n_months++];
        *m = (struct store_month){.month = month, .bytes = 77};
        m->filter.n_parts = 1;
        m->filter.parts[0] = (struct filter_part){.positions = r->positions + used, .m = FILTER_LIVE_M};
        for (size_t i = 0; i < u->n_rows; i++) {
            if (u->rows[i].stored && u->rows[i].month == month) {
                r->positions[used++] = filter_position(u->rows[i].hash, FILTER_LIVE_M);
                m->filter.parts[0].n++;
            }
        }
        qsort(m->filter.parts[0].positions, m->filter.parts[0].n, sizeof(uint32_t), by_position);
        below = month;
    }
    view->months = r->months;
}

static int read_user(struct store_reader *r, int64_t key, struct slice user, int first_month, bool scanning,
                     struct store_view *view, struct err *err)
{
    struct fake *f = r->fake;
    int code = 0;
    assert(key == hash_user_key(FAKE_SEED, user));
    *view = (struct store_view){.plays = r->plays, .deliveries = r->deliveries};
    pthread_mutex_lock(&f->lock);
    const struct fake_user *u = find_user(f, user, false);
    if (!scanning && (f->all_large || (u != NULL && u->large))) {
        code = err_set(err, ERR_LARGE, "large");
    } else if (u != NULL && u->unreadable) {
        code = err_set(err, ERR_IO, "history.db: disk I/O error");
    } else if (u != NULL && u->damaged) {
        code = err_set(err, ERR_CORRUPT, "user %.*s, month 2026-10: the filter is damaged", (int)user.len, user.data);
    } else if (u != NULL && u->known) {
        view->known = true;
        for (size_t i = 0; i < u->n_rows; i++) {
            const struct fake_row *row = &u->rows[i];
            if (row->kind == STORE_DELIVERY) {
                memcpy(r->items[view->n_deliveries], row->item, row->len);
                struct slice item = slice_of(r->items[view->n_deliveries], row->len);
                r->deliveries[view->n_deliveries++] = (struct store_delivery){row->id, row->hash, item};
            } else if (!row->stored && row->month >= first_month) {
                r->plays[view->n_plays++] = (struct store_play){row->hash, row->month};
            }
        }
        qsort(r->deliveries, view->n_deliveries, sizeof *r->deliveries, newest_first);
        view_months(r, u, first_month, view);
    }
    pthread_mutex_unlock(&f->lock);
    return code;
}

static int fake_load(struct store_reader *r, int64_t key, struct slice user, int first_month, struct store_view *view,
                     struct err *err)
{
    return read_user(r, key, user, first_month, false, view, err);
}

/* In runs of two. */
static int fake_scan(struct store_reader *r, int64_t key, struct slice user, int first_month,
                     const struct store_scan *scan, struct store_view *view, struct err *err)
{
    struct fake *f = r->fake;
    pthread_mutex_lock(&f->lock);
    f->scans_waiting++;
    pthread_cond_broadcast(&f->changed);
    while (f->scans_held) {
        pthread_cond_wait(&f->changed, &f->lock);
    }
    f->scans_waiting--;
    pthread_mutex_unlock(&f->lock);
    int code = read_user(r, key, user, first_month, true, view, err);
    for (size_t i = 0; code == 0 && i < view->n_months; i++) {
        struct filter_part *part = &r->months[i].filter.parts[0];
        for (uint32_t at = 0; at < part->n; at += 2) {
            scan->see(scan->arg, part, at, part->positions + at, part->n - at < 2 ? 1 : 2);
        }
        part->positions = NULL;
        scan->month(scan->arg, view->months[i].month, true);
    }
    return code;
}

static int fake_months(struct store_reader *r, struct store_month_info *out, int max, struct err *err)
{
    (void)r;
    (void)err;
    static const struct store_month_info months[] = {
        {.month = 2026 * 12 + 10, .state = STORE_MONTH_LIVE, .users = 3, .plays = 40, .bytes = 500},
        {.month = 2026 * 12 + 3, .state = STORE_MONTH_EXPIRING, .progress = 0.25, .users = 2, .plays = 9, .bytes = 80},
    };
    assert(max >= 2);
    memcpy(out, months, sizeof months);
    return 2;
}

static void fake_ring(struct store *s, struct store_ring *out)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    *out = f->ring;
    pthread_mutex_unlock(&f->lock);
}

static void fake_stats(struct store *s, struct store_stats *out)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    *out = (struct store_stats){.rows_recorded = f->rows_recorded};
    pthread_mutex_unlock(&f->lock);
}

static void fake_now(struct store *s, int64_t *later, int64_t *earlier)
{
    (void)s;
    *later = *earlier = clock_wall_ms();
}

static int fake_time_known(struct store *s, struct err *err)
{
    (void)s;
    (void)err;
    return 0;
}

static uint64_t fake_seed(struct store *s)
{
    (void)s;
    return FAKE_SEED;
}

/* Answers at once, from the folder's name. */
static void fake_backup(struct store *s, struct store_backup *backup)
{
    struct fake *f = fake_of(s);
    backup->err = (struct err){0};
    backup->bytes = 4096;
    backup->took_ms = 7;
    backup->problems = 0;
    if (strcmp(backup->folder, "/full") == 0) {
        err_set(&backup->err, ERR_FULL, "the disk of /full has room for 1 MiB, the copy takes some 9 MiB");
    } else if (strcmp(backup->folder, "/busy") == 0) {
        err_set(&backup->err, ERR_BUSY, "a backup to /other is under way");
    }
    pthread_mutex_lock(&f->lock);
    f->backups.last_ms = 1795255200000;
    f->backups.last_code = backup->err.code;
    snprintf(f->backups.last_folder, sizeof f->backups.last_folder, "%s", backup->folder);
    pthread_mutex_unlock(&f->lock);
    backup->done(backup);
}

static void fake_backup_state(struct store *s, struct store_backup_state *out)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    *out = f->backups;
    pthread_mutex_unlock(&f->lock);
}

static void fake_stop(struct store *s)
{
    (void)s;
}

/* A user snapshot is the name of its verdict. */
static void fake_import(struct store *s, struct store_import *import)
{
    static const char *const verdicts[] = {
        [IMPORT_DONE] = "done", [IMPORT_OVER] = "over", [IMPORT_OLD] = "old", [IMPORT_CROWDED] = "crowded"};
    for (size_t i = 0; i < import->n; i++) {
        import->verdicts[i] = 0;
        for (uint8_t v = IMPORT_DONE; v <= IMPORT_CROWDED; v++) {
            if (slice_eq(import->snapshots[i], slice_str(verdicts[v]))) {
                import->verdicts[i] = v;
            }
        }
        if (import->verdicts[i] == 0) {
            err_set(&import->call.err, ERR_CORRUPT, "the parcel of a user is damaged");
            import->call.done(&import->call);
            return;
        }
    }
    take(s, &import->call.message, STORE_CALL);
}

static void fake_notes_state(struct store *s, struct store_migration_counts *out)
{
    (void)s;
    *out = (struct store_migration_counts){0};
}

static const struct store_ops fake_ops = {
    .record = fake_record,
    .forget = fake_forget,
    .flush = fake_flush,
    .tick = fake_tick,
    .reader_open = fake_reader_open,
    .reader_close = fake_reader_close,
    .load = fake_load,
    .scan = fake_scan,
    .months = fake_months,
    .ring = fake_ring,
    .stats = fake_stats,
    .now = fake_now,
    .time_known = fake_time_known,
    .seed = fake_seed,
    .import = fake_import,
    .backup = fake_backup,
    .backup_state = fake_backup_state,
    .backup_stop = fake_stop,
    .bulk_stop = fake_stop,
    .migration_users_state = fake_notes_state,
};

struct store *fake_store_new(void)
{
    struct fake *f = calloc(1, sizeof *f);
    assert(f != NULL);
    f->store.ops = &fake_ops;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    return &f->store;
}

void fake_store_free(struct store *s)
{
    struct fake *f = fake_of(s);
    for (size_t i = 0; i < f->n_users; i++) {
        free(f->users[i]);
    }
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void fake_store_hold(struct store *s)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    f->held = true;
    pthread_mutex_unlock(&f->lock);
}

void fake_store_wait(struct store *s, size_t n)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    while (f->n_waiting < n) {
        pthread_cond_wait(&f->changed, &f->lock);
    }
    pthread_mutex_unlock(&f->lock);
}

void fake_store_release(struct store *s)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    struct store_message *waiting[WAITING_MAX];
    size_t n = f->n_waiting;
    memcpy(waiting, f->waiting, n * sizeof *waiting);
    f->n_waiting = 0;
    f->held = false;
    pthread_mutex_unlock(&f->lock);
    for (size_t i = 0; i < n; i++) {
        answer(f, waiting[i]);
    }
}

void fake_store_fail(struct store *s, int code, const char *text)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    f->failure = (struct err){0};
    if (code < 0) {
        err_set(&f->failure, code, "%s", text);
    }
    pthread_mutex_unlock(&f->lock);
}

void fake_store_damage(struct store *s, const char *user)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    find_user(f, slice_str(user), true)->damaged = true;
    pthread_mutex_unlock(&f->lock);
}

void fake_store_unreadable(struct store *s, const char *user)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    find_user(f, slice_str(user), true)->unreadable = true;
    pthread_mutex_unlock(&f->lock);
}

void fake_store_enlarge(struct store *s, const char *user)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    if (user == NULL) {
        f->all_large = true;
    } else {
        find_user(f, slice_str(user), true)->large = true;
    }
    pthread_mutex_unlock(&f->lock);
}

void fake_store_hold_scans(struct store *s)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    f->scans_held = true;
    pthread_mutex_unlock(&f->lock);
}

void fake_store_wait_scan(struct store *s)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    while (f->scans_waiting == 0) {
        pthread_cond_wait(&f->changed, &f->lock);
    }
    pthread_mutex_unlock(&f->lock);
}

void fake_store_release_scans(struct store *s)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    f->scans_held = false;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

void fake_store_add_month(struct store *s, const char *user, int month, const char *item)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    struct slice text = slice_str(item);
    add_row(f, find_user(f, slice_str(user), true), STORE_PLAY, month, text, hash_id(FAKE_SEED, text), true);
    pthread_mutex_unlock(&f->lock);
}

void fake_store_set_ring(struct store *s, const struct store_ring *ring)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    f->ring = *ring;
    pthread_mutex_unlock(&f->lock);
}

uint64_t fake_store_ticks(struct store *s)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    uint64_t ticks = f->ticks;
    pthread_mutex_unlock(&f->lock);
    return ticks;
}
