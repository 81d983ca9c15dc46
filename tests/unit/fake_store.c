#include "fake_store.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "store/admin.h"
#include "store/bulk.h"
#include "store/codec/user_snapshot.h"
#include "store/feed.h"
#include "store/memory/memory_store.h"
#include "store/migration.h"

enum { USERS_MAX = 64, WAITING_MAX = 256, FAULT_NAME = 64 };

/* What is wrong with a user. */
struct fault {
    char name[FAULT_NAME];
    bool damaged, left_out, unreadable, large, cold;
};

struct fake {
    struct store store;
    struct store *inner; /* keeps all that is recorded */
    struct config cfg;   /* of the inner one */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct fault faults[USERS_MAX];
    size_t n_faults;
    bool held, stalled, forgets_stalled, scans_held, all_large;
    int scans_waiting;
    bool frozen, months_cold;
    int frozen_readers;        /* that wait */
    int readers, readers_left; /* that are open; until one fails */
    struct store_message *waiting[WAITING_MAX];
    size_t n_waiting;
    bool loads_held;
    struct store_load *loads[WAITING_MAX];
    size_t n_loads;
    const struct store_reader *answering; /* whose load is being answered */
    struct err failure;
    uint64_t left;
    bool uncovered;
    struct store_play recent; /* of everybody's in memory; hash 0: none */
    struct store_backup_state backups;
    struct store_ring ring;
    uint64_t ticks;
};

struct store_reader {
    struct fake *fake;
    struct store_reader *inner;
    bool leaves_cold;
};

static struct fake *fake_of(struct store *s)
{
    return (struct fake *)s;
}

static struct fault *find_fault(struct fake *f, struct slice name)
{
    for (size_t i = 0; i < f->n_faults; i++) {
        if (slice_eq(slice_str(f->faults[i].name), name)) {
            return &f->faults[i];
        }
    }
    return NULL;
}

static struct fault *make_fault(struct fake *f, const char *name)
{
    struct fault *fault = find_fault(f, slice_str(name));
    if (fault == NULL) {
        assert(f->n_faults < USERS_MAX && strlen(name) < FAULT_NAME);
        fault = &f->faults[f->n_faults++];
        strcpy(fault->name, name);
    }
    return fault;
}

/* --- writes: they fail, or the inner store has them --- */

static void pass_on(struct fake *f, struct store_message *message)
{
    struct store_batch *batch = (struct store_batch *)message;
    struct store_forget *forget = (struct store_forget *)message;
    struct store_merge *merge = (struct store_merge *)message;
    struct store_call *call = (struct store_call *)message;
    pthread_mutex_lock(&f->lock);
    struct err failure = f->failure;
    pthread_mutex_unlock(&f->lock);
    if (message->kind == STORE_CALL) { /* a flush or an import */
        call->err = failure;
        call->done(call);
    } else if (message->kind == STORE_BATCH && failure.code == 0) {
        f->inner->ops->record(f->inner, batch);
    } else if (message->kind == STORE_BATCH) {
        batch->err = failure;
        batch->done(batch);
    } else if (message->kind == STORE_MERGE && failure.code == 0) {
        f->inner->ops->merge(f->inner, merge);
    } else if (message->kind == STORE_MERGE) {
        merge->err = failure;
        merge->done(merge);
    } else if (failure.code == 0) {
        f->inner->ops->forget(f->inner, forget);
    } else {
        forget->err = failure;
        forget->done(forget);
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
        pass_on(f, message);
    }
}

static void fake_record(struct store *s, struct store_batch *batch)
{
    take(s, &batch->message, STORE_BATCH);
}

static void fake_merge(struct store *s, struct store_merge *merge)
{
    take(s, &merge->message, STORE_MERGE);
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
    f->inner->ops->tick(f->inner, call);
}

/* --- questions --- */

static int fake_reader_open(struct store *s, struct store_reader **reader, struct err *err)
{
    struct store_reader *r = calloc(1, sizeof *r);
    assert(r != NULL);
    r->fake = fake_of(s);
    pthread_mutex_lock(&r->fake->lock);
    bool fails = r->fake->readers_left > 0 && --r->fake->readers_left == 0;
    r->fake->readers += !fails;
    pthread_mutex_unlock(&r->fake->lock);
    if (fails) {
        free(r);
        return err_set(err, ERR_IO, "history.db: too many open files");
    }
    *reader = r;
    return r->fake->inner->ops->reader_open(r->fake->inner, &r->inner, err);
}

static void fake_reader_leave_cold(struct store_reader *reader)
{
    reader->leaves_cold = true;
}

/* One that waits, of this reader; NULL: of any. */
static struct store_load *take_load(struct fake *f, const struct store_reader *reader)
{
    struct store_load *load = NULL;
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; load == NULL && i < f->n_loads; i++) {
        if (reader == NULL || f->loads[i]->reader == reader) {
            load = f->loads[i];
            memmove(&f->loads[i], &f->loads[i + 1], (--f->n_loads - i) * sizeof(struct store_load *));
        }
    }
    if (reader == NULL) {
        f->answering = load != NULL ? load->reader : NULL;
        pthread_cond_broadcast(&f->changed);
    }
    while (reader != NULL && f->answering == reader) {
        pthread_cond_wait(&f->changed, &f->lock);
    }
    pthread_mutex_unlock(&f->lock);
    return load;
}

static void fake_reader_close(struct store_reader *reader)
{
    struct store_load *load = take_load(reader->fake, reader);
    if (load != NULL) {
        err_set(&load->err, ERR_CLOSED, "the reader is closed");
        load->done(load);
    }
    pthread_mutex_lock(&reader->fake->lock);
    reader->fake->readers--;
    pthread_mutex_unlock(&reader->fake->lock);
    reader->fake->inner->ops->reader_close(reader->inner);
    free(reader);
}

static int fault_of(const struct store_reader *r, struct slice user, bool scanning, struct err *err)
{
    int code = 0;
    struct fake *f = r->fake;
    pthread_mutex_lock(&f->lock);
    const struct fault *fault = find_fault(f, user);
    if (!scanning && (f->all_large || (fault != NULL && fault->large))) {
        code = err_set(err, ERR_LARGE, "large");
    } else if (fault != NULL && fault->cold && f->frozen && r->leaves_cold) {
        code = err_set(err, ERR_COLD, "history.db is not in memory");
    } else if (fault != NULL && fault->unreadable) {
        code = err_set(err, ERR_IO, "history.db: disk I/O error");
    } else if (fault != NULL && fault->damaged) {
        code = err_set(err, ERR_CORRUPT, "user %.*s, month 2026-10: the filter is damaged", (int)user.len, user.data);
    }
    if (code == 0 && fault != NULL && fault->cold && f->frozen) {
        f->frozen_readers++;
        pthread_cond_broadcast(&f->changed);
        while (f->frozen) {
            pthread_cond_wait(&f->changed, &f->lock);
        }
        f->frozen_readers--;
    }
    pthread_mutex_unlock(&f->lock);
    return code;
}

static int load_now(struct store_reader *r, struct store_load *load)
{
    load->err = (struct err){0};
    int code = fault_of(r, load->user, false, &load->err);
    code = code < 0 ? code : r->fake->inner->ops->load(r->inner, load);
    pthread_mutex_lock(&r->fake->lock);
    const struct fault *fault = find_fault(r->fake, load->user);
    if (code == 0 && fault != NULL && fault->left_out) {
        load->view.n_months = 0;
        load->view.damaged_months = 1;
    }
    pthread_mutex_unlock(&r->fake->lock);
    return code;
}

static int fake_load(struct store_reader *r, struct store_load *load)
{
    struct fake *f = r->fake;
    assert(load->key == hash_user_key(FAKE_SEED, load->user));
    pthread_mutex_lock(&f->lock);
    bool held = f->loads_held;
    if (held) {
        assert(f->n_loads < WAITING_MAX);
        load->reader = r;
        f->loads[f->n_loads++] = load;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
    return held ? STORE_LATER : load_now(r, load);
}

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
    int code = fault_of(r, user, true, err);
    return code < 0 ? code : f->inner->ops->scan(r->inner, key, user, first_month, scan, view, err);
}

/* --- what is made up --- */

static int fake_months(struct store_reader *r, struct store_month_info *out, int max, struct err *err)
{
    if (r->leaves_cold && r->fake->months_cold) {
        return err_set(err, ERR_COLD, "history.db is not in memory");
    }
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
    f->inner->ops->stats(f->inner, out);
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

static int fake_refusal(struct store *s, struct err *err)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    int code = f->ring.busy ? err_set(err, ERR_BUSY, "%s", f->ring.busy_cause) : 0;
    pthread_mutex_unlock(&f->lock);
    return code;
}

static int fake_recent(struct store_reader *reader, struct store_load *load, uint64_t *left)
{
    struct fake *f = reader->fake;
    pthread_mutex_lock(&f->lock);
    *left = f->left;
    load->err = (struct err){0};
    load->view = (struct store_view){.known = true, .plays = &f->recent, .n_plays = f->recent.hash != 0};
    pthread_mutex_unlock(&f->lock);
    return 0;
}

static bool fake_covers(struct store *s, int64_t key, uint64_t to)
{
    struct fake *f = fake_of(s);
    (void)key, (void)to;
    pthread_mutex_lock(&f->lock);
    bool covers = !f->uncovered;
    pthread_mutex_unlock(&f->lock);
    return covers;
}

static int fake_feed_states(struct store *s, struct feed_state out[FEED_CONSUMERS_MAX])
{
    (void)s, (void)out;
    return 0;
}

static const struct store_feed_ops feed_ops = {.covers = fake_covers, .states = fake_feed_states};

void fake_store_left(struct store *s, uint64_t left, bool covered, const char *recent)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    f->left = left;
    f->uncovered = !covered;
    f->recent.hash = recent != NULL ? hash_id(FAKE_SEED, slice_str(recent)) : 0;
    f->store.feed = &feed_ops;
    pthread_mutex_unlock(&f->lock);
}

static int fake_stalled(struct store *s, struct err *err)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    int code = f->stalled ? err_set(err, ERR_LATE, "the fake disk is late") : 0;
    pthread_mutex_unlock(&f->lock);
    return code;
}

static int fake_forgets_stalled(struct store *s, struct err *err)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    int code = f->forgets_stalled ? err_set(err, ERR_LATE, "the fake history is late") : 0;
    pthread_mutex_unlock(&f->lock);
    return code;
}

static void fake_clock(struct store *s, struct store_clock *out)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    *out = (struct store_clock){.wall_ms = clock_wall_ms(), .known = true, .doubted = f->ring.clock_doubted};
    snprintf(out->reason, sizeof out->reason, "%s", f->ring.clock_reason);
    pthread_mutex_unlock(&f->lock);
}

static const struct store_ops fake_ops = {
    .record = fake_record,
    .forget = fake_forget,
    .merge = fake_merge,
    .tick = fake_tick,
    .reader_open = fake_reader_open,
    .reader_close = fake_reader_close,
    .reader_leave_cold = fake_reader_leave_cold,
    .load = fake_load,
    .scan = fake_scan,
    .recent = fake_recent,
    .stats = fake_stats,
    .now = fake_now,
    .time_known = fake_time_known,
    .refusal = fake_refusal,
    .stalled = fake_stalled,
    .forgets_stalled = fake_forgets_stalled,
    .clock = fake_clock,
    .seed = fake_seed,
    .import = fake_import,
};

static const struct store_ring_ops ring_ops = {.look = fake_ring, .flush = fake_flush};
static const struct store_admin_ops admin_ops = {
    .months = fake_months, .backup = fake_backup, .backup_state = fake_backup_state, .backup_stop = fake_stop};
static const struct store_bulk_ops bulk_ops = {.stop = fake_stop};
static const struct store_migration_ops migration_ops = {.state = fake_notes_state};

struct store *fake_store_new(void)
{
    struct fake *f = calloc(1, sizeof *f);
    assert(f != NULL);
    f->store = (struct store){
        .engine = "fake",
        .ops = &fake_ops,
        .ring = &ring_ops,
        .admin = &admin_ops,
        .bulk = &bulk_ops,
        .migration = &migration_ops,
    };
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    config_defaults(&f->cfg);
    f->cfg.hash_seed_given = true;
    f->cfg.hash_seed = FAKE_SEED;
    int code = memory_store_open(&f->cfg, NULL, &f->inner, NULL);
    assert(code == 0);
    (void)code;
    return &f->store;
}

void fake_store_free(struct store *s)
{
    struct fake *f = fake_of(s);
    f->inner->ops->close(f->inner);
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

void fake_store_stall(struct store *s, bool stalled)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    f->stalled = stalled;
    pthread_mutex_unlock(&f->lock);
}

void fake_store_stall_forgets(struct store *s, bool stalled)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    f->forgets_stalled = stalled;
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

/* Waiting for the inner store, in its order. */

static void on_inner(struct store_call *call)
{
    struct fake *f = call->owner;
    pthread_mutex_lock(&f->lock);
    call->owner = NULL;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static void wait_inner(struct fake *f, const struct store_call *call)
{
    pthread_mutex_lock(&f->lock);
    while (call->owner != NULL) {
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
        pass_on(f, waiting[i]);
    }
    struct store_call behind = {.done = on_inner, .owner = f};
    f->inner->ops->tick(f->inner, &behind);
    wait_inner(f, &behind);
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
    make_fault(f, user)->damaged = true;
    pthread_mutex_unlock(&f->lock);
}

void fake_store_leave_out(struct store *s, const char *user)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    make_fault(f, user)->left_out = true;
    pthread_mutex_unlock(&f->lock);
}

void fake_store_unreadable(struct store *s, const char *user)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    make_fault(f, user)->unreadable = true;
    pthread_mutex_unlock(&f->lock);
}

void fake_store_freeze(struct store *s, const char *user)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    make_fault(f, user)->cold = true;
    f->frozen = true;
    pthread_mutex_unlock(&f->lock);
}

void fake_store_wait_frozen(struct store *s, int n)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    while (f->frozen_readers < n) {
        pthread_cond_wait(&f->changed, &f->lock);
    }
    pthread_mutex_unlock(&f->lock);
}

void fake_store_thaw(struct store *s)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    f->frozen = f->months_cold = false;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

void fake_store_cool_months(struct store *s)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    f->months_cold = true;
    pthread_mutex_unlock(&f->lock);
}

void fake_store_fail_reader(struct store *s, int nth)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    f->readers_left = nth;
    pthread_mutex_unlock(&f->lock);
}

int fake_store_readers(struct store *s)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    int n = f->readers;
    pthread_mutex_unlock(&f->lock);
    return n;
}

void fake_store_enlarge(struct store *s, const char *user)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    if (user == NULL) {
        f->all_large = true;
    } else {
        make_fault(f, user)->large = true;
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

bool fake_store_scan_waits(struct store *s)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    bool waits = f->scans_waiting > 0;
    pthread_mutex_unlock(&f->lock);
    return waits;
}

void fake_store_release_scans(struct store *s)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    f->scans_held = false;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

void fake_store_hold_loads(struct store *s)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    f->loads_held = true;
    pthread_mutex_unlock(&f->lock);
}

void fake_store_wait_loads(struct store *s, size_t n)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    while (f->n_loads < n) {
        pthread_cond_wait(&f->changed, &f->lock);
    }
    pthread_mutex_unlock(&f->lock);
}

void fake_store_release_loads(struct store *s)
{
    struct fake *f = fake_of(s);
    pthread_mutex_lock(&f->lock);
    f->loads_held = false;
    pthread_mutex_unlock(&f->lock);
    for (struct store_load *load = take_load(f, NULL); load != NULL; load = take_load(f, NULL)) {
        load_now(load->reader, load);
        load->done(load);
    }
}

void fake_store_add_month(struct store *s, const char *user, int month, const char *item)
{
    struct fake *f = fake_of(s);
    struct arena arena = {0};
    struct buf blob = {0}, bytes = {0};
    struct filter filter = {0};
    uint32_t position = filter_position(hash_id(FAKE_SEED, slice_str(item)), FILTER_LIVE_M);
    int code = filter_add(&filter, &position, 1, 0, &arena);
    code = code < 0 ? code : filter_encode(&filter, &blob);
    const struct snapshot_month stored = {month, buf_slice(&blob)};
    const struct user_snapshot p = {.key = hash_user_key(FAKE_SEED, slice_str(user)),
                                    .user = slice_str(user),
                                    .last_month = month,
                                    .months = &stored,
                                    .n_months = 1};
    code = code < 0 ? code : user_snapshot_encode(&p, &bytes);
    assert(code == 0);
    struct slice snapshot = buf_slice(&bytes);
    uint8_t verdict = 0;
    struct store_import import = {
        .call = {.done = on_inner, .owner = f}, .snapshots = &snapshot, .n = 1, .verdicts = &verdict};
    f->inner->ops->import(f->inner, &import);
    wait_inner(f, &import.call);
    assert(verdict == IMPORT_DONE);
    buf_free(&blob);
    buf_free(&bytes);
    arena_free(&arena);
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
