/* Notes: the users whose plays still stand in another Redis, and what has become of them.
 *
 * On disk they are a table of staging.db that is only appended to, since a table in the order of the users' keys would
 * have a page written for nearly every user of millions. In memory they are a set of keys with id and state, open
 * addressing, in any number of slots: twelve bytes each, at most 6 of 7 of them taken, so 14 to 21 bytes a user while
 * there are notes, and nothing when there are none. Two users with one 64-bit key are one note; the second is refused,
 * and said so: such users share their filters anyway. A key's slot is its share of the key space, so going through the
 * slots is going through the users nearly in the order of history.db's tables.
 *
 * The stager writes the file and the set, readers take a lock that is nearly never contended: who isn't noted while
 * others are costs one look-up, and while nobody is, one load of a counter.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/sqlite/internal.h"

#define PAUSED "legacy_paused" /* in meta */

enum {
    SLOTS_MIN = 1024,
    STATE_BITS = 2,
    NOTED_MAX = (1U << (32 - STATE_BITS)) - 1,
    AGAIN_STEP = 2000,
    WALK_SLOTS = 1 << 16, /* looked at under one lock */
};

/* A slot is free when its place is 0, which no note has, since ids begin at 1. */
struct set {
    int64_t *keys;
    uint32_t *places; /* id << STATE_BITS | state - 1 */
    uint64_t slots;
    uint64_t counts[NOTES]; /* of each state; NOTE_NONE: all */
};

struct notes {
    pthread_rwlock_t lock; /* guards set */
    struct set set;
    _Atomic uint64_t all; /* the set's, without the lock */
    _Atomic uint64_t problems;
    _Atomic bool paused;
    /* the stager's: */
    uint32_t last_id;
    bool stale; /* a commit failed: the file is to be read again before the next change */
};

static enum store_note place_state(uint32_t place)
{
    return (enum store_note)((place & ((1U << STATE_BITS) - 1)) + NOTE_WAITING);
}

static uint32_t make_place(uint32_t id, enum store_note state)
{
    return id << STATE_BITS | (uint32_t)(state - NOTE_WAITING);
}

static uint64_t slot_of(const struct set *set, int64_t key)
{
    uint64_t place = (uint64_t)key ^ UINT64_C(1) << 63; /* in signed order, as SQLite's */
    return (uint64_t)(((unsigned __int128)place * set->slots) >> 64);
}

/* The key's slot, or the free one where it would stand. */
static uint64_t find(const struct set *set, int64_t key)
{
    uint64_t at = slot_of(set, key);
    while (set->places[at] != 0 && set->keys[at] != key) {
        at = at + 1 < set->slots ? at + 1 : 0;
    }
    return at;
}

static void put(struct set *set, int64_t key, uint32_t place)
{
    uint64_t at = find(set, key);
    if (set->places[at] == 0) {
        set->keys[at] = key;
        set->places[at] = place;
        set->counts[place_state(place)]++;
        set->counts[NOTE_NONE]++;
    }
}

static void set_free(struct set *set)
{
    free(set->keys);
    free(set->places);
    *set = (struct set){0};
}

static int set_make(struct set *set, uint64_t slots)
{
    *set = (struct set){.slots = slots};
    set->keys = malloc(slots * sizeof *set->keys);
    set->places = calloc(slots, sizeof *set->places);
    if (set->keys == NULL || set->places == NULL) {
        set_free(set);
        return ERR_NOMEM;
    }
    return 0;
}

static uint64_t slots_for(uint64_t users)
{
    uint64_t slots = users * 7 / 6 + 1;
    return slots > SLOTS_MIN ? slots : SLOTS_MIN;
}

/* Only the stager changes the set, so it reads it without the lock, which it holds for single changes: readers never
 * wait for a commit, nor for a set that grows. */
static void replace(struct notes *n, struct set *by)
{
    struct set old = n->set;
    pthread_rwlock_wrlock(&n->lock);
    n->set = *by;
    pthread_rwlock_unlock(&n->lock);
    atomic_store_explicit(&n->all, by->counts[NOTE_NONE], memory_order_release);
    set_free(&old);
}

static int reserve(struct notes *n, uint64_t more)
{
    uint64_t need = slots_for(n->set.counts[NOTE_NONE] + more);
    if (need <= n->set.slots) {
        return 0;
    }
    struct set grown;
    uint64_t slots = n->set.slots * 3 / 2;
    if (set_make(&grown, slots > need ? slots : need) < 0) {
        return ERR_NOMEM;
    }
    for (uint64_t i = 0; i < n->set.slots; i++) {
        if (n->set.places[i] != 0) {
            put(&grown, n->set.keys[i], n->set.places[i]);
        }
    }
    replace(n, &grown);
    return 0;
}

static void add(struct notes *n, int64_t key, uint32_t id)
{
    pthread_rwlock_wrlock(&n->lock);
    put(&n->set, key, make_place(id, NOTE_WAITING));
    pthread_rwlock_unlock(&n->lock);
    atomic_store_explicit(&n->all, n->set.counts[NOTE_NONE], memory_order_release);
}

static void change(struct notes *n, uint64_t at, enum store_note state)
{
    struct set *set = &n->set;
    pthread_rwlock_wrlock(&n->lock);
    set->counts[place_state(set->places[at])]--;
    set->counts[state]++;
    set->places[at] = make_place(set->places[at] >> STATE_BITS, state);
    pthread_rwlock_unlock(&n->lock);
}

/* --- at start and end --- */

static int64_t key_of(struct sqlite_store *s, sqlite3_stmt *stmt)
{
    return sqlite3_column_type(stmt, 1) == SQLITE_INTEGER ? sqlite3_column_int64(stmt, 1)
                                                          : hash_user_key(s->seed, db_column_bytes(stmt, 1));
}

/* Of millions, nearly each one's slot has to be fetched from memory: so it is done for some at a time. */
struct some {
    int64_t keys[64];
    uint32_t places[64];
    size_t n;
};

static void put_some(struct set *set, struct some *some)
{
    for (size_t i = 0; i < some->n; i++) {
        uint64_t slot = slot_of(set, some->keys[i]);
        __builtin_prefetch(&set->keys[slot]);
        __builtin_prefetch(&set->places[slot]);
    }
    for (size_t i = 0; i < some->n; i++) {
        put(set, some->keys[i], some->places[i]);
    }
    some->n = 0;
}

static int read_all(struct sqlite_store *s, struct set *set, struct err *err)
{
    struct notes *n = s->notes;
    struct some some = {.n = 0};
    struct db *db = &s->stager.db;
    int result;
    sqlite3_stmt *stmt = db_stmt(db, SQL_NOTED_ALL, err);
    while ((result = db_step(db, stmt, err)) == 1) {
        int64_t id = sqlite3_column_int64(stmt, 0);
        int64_t state = sqlite3_column_int64(stmt, 2);
        if (id < 1 || id > NOTED_MAX || state < 0 || state >= NOTES - NOTE_WAITING) {
            log_error("a note can't be read", "id=%" PRId64 " state=%" PRId64, id, state);
            continue;
        }
        some.keys[some.n] = key_of(s, stmt);
        some.places[some.n++] = make_place((uint32_t)id, (enum store_note)(state + NOTE_WAITING));
        if (some.n == sizeof some.keys / sizeof *some.keys) {
            put_some(set, &some);
        }
        n->last_id = (uint32_t)id;
    }
    put_some(set, &some);
    return result;
}

/* Reads the set from the file: at start, and when a commit's outcome is unknown. On an error the old one stays. */
static int load(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    int64_t rows = 0, problems = 0, paused = 0;
    int result = db_int(db, "SELECT count(*) FROM noted", &rows, err);
    if (result < 0 || (result = db_int(db, "SELECT count(*) FROM legacy_problems", &problems, err)) < 0 ||
        (result = db_meta_int(db, PAUSED, 0, &paused, err)) < 0) {
        return result;
    }
    struct set set = {0};
    if (rows > 0) {
        if (set_make(&set, slots_for((uint64_t)rows)) < 0) {
            return err_set(err, ERR_NOMEM, "out of memory for %" PRId64 " noted users", rows);
        }
        if ((result = read_all(s, &set, err)) < 0) {
            set_free(&set);
            return result;
        }
    }
    replace(s->notes, &set);
    atomic_store(&s->notes->problems, (uint64_t)problems);
    atomic_store(&s->notes->paused, paused != 0);
    s->notes->stale = false;
    return 0;
}

int notes_open(struct sqlite_store *s, struct err *err)
{
    s->notes = calloc(1, sizeof *s->notes);
    if (s->notes == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    pthread_rwlock_init(&s->notes->lock, NULL);
    return load(s, err);
}

void notes_close(struct sqlite_store *s)
{
    if (s->notes != NULL) {
        pthread_rwlock_destroy(&s->notes->lock);
        set_free(&s->notes->set);
        free(s->notes);
        s->notes = NULL;
    }
}

/* --- any thread --- */

enum store_note notes_of(struct store *base, int64_t key)
{
    struct notes *n = sqlite_store(base)->notes;
    if (atomic_load_explicit(&n->all, memory_order_acquire) == 0) {
        return NOTE_NONE;
    }
    enum store_note state = NOTE_NONE;
    pthread_rwlock_rdlock(&n->lock);
    if (n->set.slots > 0) {
        uint32_t place = n->set.places[find(&n->set, key)];
        state = place != 0 ? place_state(place) : NOTE_NONE;
    }
    pthread_rwlock_unlock(&n->lock);
    return state;
}

void notes_state(struct store *base, struct store_notes_state *out)
{
    struct notes *n = sqlite_store(base)->notes;
    pthread_rwlock_rdlock(&n->lock);
    const uint64_t *counts = n->set.counts;
    *out = (struct store_notes_state){.all = counts[NOTE_NONE],
                                      .waiting = counts[NOTE_WAITING],
                                      .done = counts[NOTE_DONE],
                                      .left = counts[NOTE_LEFT],
                                      .ended = counts[NOTE_ENDED]};
    pthread_rwlock_unlock(&n->lock);
    out->problems = atomic_load(&n->problems);
    out->paused = atomic_load(&n->paused);
}

void notes_write(struct store *base, struct store_notes *notes)
{
    notes->call.err = (struct err){0};
    notes->changed = notes->forgotten = 0;
    notes->call.message.kind = STORE_CALL;
    notes->call.message.what = WANTS_NOTES;
    inbox_put(&sqlite_store(base)->stager.inbox, &notes->call.message);
}

/* --- the stager's --- */

/* What was erased must not come back by a list that is older than that: only an explicit wish notes him again. */
static int add_forgotten(struct sqlite_store *s, struct store_notes *notes, uint64_t at, size_t i)
{
    struct notes *n = s->notes;
    if (!notes->forgotten_too) {
        notes->forgotten++;
        return 0;
    }
    sqlite3_stmt *stmt = db_stmt(&s->stager.db, SQL_NOTED_REVIVE, &notes->call.err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)(n->set.places[at] >> STATE_BITS));
        db_bind_id(stmt, 2, notes->users[i]);
    }
    int result = db_run(&s->stager.db, stmt, &notes->call.err);
    if (result == 0) {
        change(n, at, NOTE_WAITING);
        notes->changed++;
    }
    return result;
}

/* The set takes the change at once, so that a repeat within the same list is seen; when the commit then fails, it is
 * read from the file again. */
static int add_users(struct sqlite_store *s, struct store_notes *notes)
{
    struct notes *n = s->notes;
    struct db *db = &s->stager.db;
    if (reserve(n, notes->n) < 0) {
        return err_set(&notes->call.err, ERR_NOMEM, "out of memory for %zu notes", notes->n);
    }
    for (size_t i = 0; i < notes->n; i++) {
        int64_t key = hash_user_key(s->seed, notes->users[i]);
        uint64_t at = find(&n->set, key);
        if (n->set.places[at] != 0) {
            int result = place_state(n->set.places[at]) == NOTE_ENDED ? add_forgotten(s, notes, at, i) : 0;
            if (result < 0) {
                return result;
            }
            continue;
        }
        if (n->last_id == NOTED_MAX) {
            return err_set(&notes->call.err, ERR_FULL, "no more than %u users can be noted", NOTED_MAX);
        }
        sqlite3_stmt *stmt = db_stmt(db, SQL_NOTED_INSERT, &notes->call.err);
        if (stmt != NULL) {
            sqlite3_bind_int64(stmt, 1, (int64_t)n->last_id + 1);
            db_bind_id(stmt, 2, notes->users[i]);
        }
        int result = db_run(db, stmt, &notes->call.err);
        if (result < 0) {
            return result;
        }
        add(n, key, ++n->last_id);
        notes->changed++;
    }
    return 0;
}

static int write_state(struct sqlite_store *s, uint64_t at, enum store_note state, struct err *err)
{
    struct notes *n = s->notes;
    sqlite3_stmt *stmt = db_stmt(&s->stager.db, SQL_NOTED_MARK, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)(n->set.places[at] >> STATE_BITS));
        sqlite3_bind_int64(stmt, 2, state - NOTE_WAITING);
    }
    int result = db_run(&s->stager.db, stmt, err);
    if (result == 0) {
        change(n, at, state);
    }
    return result;
}

/* An ended one stays so. */
static int mark_users(struct sqlite_store *s, struct store_notes *notes)
{
    struct set *set = &s->notes->set;
    int result = 0;
    for (size_t i = 0; i < notes->n && result == 0 && set->slots > 0; i++) {
        uint64_t at = find(set, hash_user_key(s->seed, notes->users[i]));
        if (set->places[at] != 0 && place_state(set->places[at]) != NOTE_ENDED &&
            place_state(set->places[at]) != notes->state) {
            result = write_state(s, at, notes->state, &notes->call.err);
            notes->changed++;
        }
    }
    return result;
}

/* A part of the set's slots a call. */
static int begin_again(struct sqlite_store *s, struct store_notes *notes)
{
    struct set *set = &s->notes->set;
    struct db *db = &s->stager.db;
    int result = 0;
    uint64_t at = notes->more;
    if (at == 0) {
        result = db_run(db, db_stmt(db, SQL_NOTED_PROBLEMS_DELETE, &notes->call.err), &notes->call.err);
        atomic_store(&s->notes->problems, 0);
    }
    for (; at < set->slots && notes->changed < AGAIN_STEP && result == 0; at++) {
        enum store_note state = set->places[at] != 0 ? place_state(set->places[at]) : NOTE_NONE;
        if (state == NOTE_DONE || state == NOTE_LEFT) {
            result = write_state(s, at, NOTE_WAITING, &notes->call.err);
            notes->changed++;
        }
    }
    notes->more = at < set->slots ? at : 0;
    return result;
}

static int write_problem(struct db *db, enum sql_statement sql, const struct store_problem *p, struct err *err)
{
    sqlite3_stmt *stmt = db_stmt(db, sql, err);
    if (stmt != NULL) {
        db_bind_id(stmt, 1, p->key);
        sqlite3_bind_text(stmt, 2, p->what.data, (int)p->what.len, SQLITE_STATIC);
        sqlite3_bind_int64(stmt, 3, clock_wall_ms());
    }
    return db_run(db, stmt, err);
}

/* Each key once. Beyond so many, new ones are no longer listed; whoever found them counts them. */
static int add_problems(struct sqlite_store *s, struct store_notes *notes)
{
    struct db *db = &s->stager.db;
    struct err *err = &notes->call.err;
    int result = 0;
    for (size_t i = 0; i < notes->n && result == 0; i++) {
        bool is_new = false;
        if (atomic_load(&s->notes->problems) < STORE_PROBLEMS_MAX) {
            result = write_problem(db, SQL_NOTED_PROBLEM_NEW, &notes->problems[i], err);
            is_new = result == 0 && sqlite3_changes(db->handle) > 0;
        }
        if (is_new) {
            atomic_fetch_add(&s->notes->problems, 1);
            notes->changed++;
        } else if (result == 0) {
            result = write_problem(db, SQL_NOTED_PROBLEM_AGAIN, &notes->problems[i], err);
        }
    }
    return result;
}

static int set_paused(struct sqlite_store *s, struct store_notes *notes)
{
    int result = db_meta_set_int(&s->stager.db, PAUSED, notes->paused, &notes->call.err);
    if (result == 0) {
        atomic_store(&s->notes->paused, notes->paused);
    }
    return result;
}

static int refresh(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    int result = db->lost ? db_reopen(db, err) : 0;
    return result < 0 ? result : load(s, err);
}

static void carry_out(struct sqlite_store *s, struct store_notes *notes)
{
    static int (*const work[])(struct sqlite_store * s, struct store_notes * notes) = {
        [NOTES_ADD] = add_users,         [NOTES_MARK] = mark_users,  [NOTES_AGAIN] = begin_again,
        [NOTES_PROBLEMS] = add_problems, [NOTES_PAUSE] = set_paused,
    };
    struct db *db = &s->stager.db;
    struct err *err = &notes->call.err;
    int result = s->notes->stale ? refresh(s, err) : 0;
    if (result == 0 && (result = db_begin(db, err)) == 0) {
        if ((result = work[notes->kind](s, notes)) == 0) {
            result = db_commit(db, err);
        } else {
            db_rollback(db);
        }
        if (result < 0) {
            struct err again = {0};
            s->notes->stale = true;
            if (refresh(s, &again) < 0) {
                log_error("notes not read again", "error=%s", log_quote_str(again.text));
            }
        }
    }
}

void notes_work(struct sqlite_store *s, struct store_message *m)
{
    struct store_notes *notes = (struct store_notes *)m;
    carry_out(s, notes);
    notes->call.done(&notes->call);
}

int notes_add(struct sqlite_store *s, const struct slice *users, size_t n, struct err *err)
{
    struct store_notes notes = {.kind = NOTES_ADD, .users = users, .n = n};
    carry_out(s, &notes);
    return notes.call.err.code < 0 ? err_set(err, notes.call.err.code, "%s", notes.call.err.text) : 0;
}

int notes_end(struct sqlite_store *s, int64_t key, struct err *err)
{
    const struct set *set = &s->notes->set;
    if (set->slots == 0 || set->places[find(set, key)] == 0) {
        return 0;
    }
    sqlite3_stmt *stmt = db_stmt(&s->stager.db, SQL_NOTED_END, err);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, (int64_t)(set->places[find(set, key)] >> STATE_BITS));
        sqlite3_bind_int64(stmt, 2, key);
    }
    return db_run(&s->stager.db, stmt, err);
}

void notes_ended(struct sqlite_store *s, int64_t key)
{
    struct set *set = &s->notes->set;
    uint64_t at = set->slots > 0 ? find(set, key) : 0;
    if (set->slots > 0 && set->places[at] != 0) {
        change(s->notes, at, NOTE_ENDED);
    }
}

/* --- readers --- */

static struct db *staging_of(struct store_reader *r, struct err *err)
{
    struct sqlite_store *s = r->store;
    if (r->staging.handle == NULL && db_open(&r->staging, s->folder, "staging", s->vfs, DB_READ, err) < 0) {
        return NULL;
    }
    return &r->staging;
}

static int copy(struct arena *arena, struct slice from, struct slice *to, struct err *err)
{
    char *bytes = arena_copy(arena, from.data, from.len);
    if (bytes == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    *to = slice_of(bytes, from.len);
    return 0;
}

/* The ids of waiting users in some of the slots from the walk's place on. The place is kept as a share of all slots, so
 * that it stays where it is when the set grows. */
static int find_waiting(struct notes *n, struct store_notes_walk *walk, uint32_t *ids, int max)
{
    int found = 0;
    pthread_rwlock_rdlock(&n->lock);
    const struct set *set = &n->set;
    uint64_t slots = set->slots;
    uint64_t at = (uint64_t)(((unsigned __int128)walk->at * slots) >> 64);
    uint64_t end = slots - at < WALK_SLOTS ? slots : at + WALK_SLOTS;
    for (; at < end && found < max; at++) {
        uint32_t place = set->places[at];
        if (place != 0 && place_state(place) == NOTE_WAITING) {
            ids[found++] = place >> STATE_BITS;
        }
    }
    walk->ended = at >= slots;
    walk->at = walk->ended ? 0 : (uint64_t)((((unsigned __int128)at << 64) + slots - 1) / slots);
    pthread_rwlock_unlock(&n->lock);
    return found;
}

/* Who they are. One whose note isn't durable yet is left out: he is in the next walk. */
static int read_users(struct db *db, const uint32_t *ids, int n, struct slice *users, struct arena *arena,
                      struct err *err)
{
    int found = 0, result = 0;
    for (int i = 0; i < n && result >= 0; i++) {
        sqlite3_stmt *stmt = db_stmt(db, SQL_NOTED_WAITING, err);
        if (stmt != NULL) {
            sqlite3_bind_int64(stmt, 1, ids[i]);
        }
        if ((result = db_step(db, stmt, err)) == 1) {
            result = copy(arena, db_column_bytes(stmt, 0), &users[found++], err);
            sqlite3_reset(stmt);
        }
    }
    return result < 0 ? result : found;
}

int notes_read(struct store_reader *r, struct store_notes_walk *walk, struct slice *users, int max, struct arena *arena,
               struct err *err)
{
    struct db *db = staging_of(r, err);
    if (db == NULL) {
        return err->code;
    }
    uint32_t *ids = arena_alloc(arena, (size_t)max * sizeof *ids);
    if (ids == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    int found = 0;
    while (found == 0 && !walk->ended) {
        int n = find_waiting(r->store->notes, walk, ids, max);
        int result = n > 0 ? db_begin_read(db, err) : 0;
        if (n == 0 || result < 0) {
            found = result;
            continue;
        }
        found = read_users(db, ids, n, users, arena, err);
        struct err ended = {0};
        if (db_commit(db, &ended) < 0 && found >= 0) {
            found = err_set(err, ended.code, "%s", ended.text);
        }
    }
    return found;
}

int notes_problems(struct store_reader *r, struct store_problem *out, int max, struct arena *arena, struct err *err)
{
    struct db *db = staging_of(r, err);
    if (db == NULL) {
        return err->code;
    }
    sqlite3_stmt *stmt = db_stmt(db, SQL_NOTED_PROBLEMS, err);
    if (stmt != NULL) {
        sqlite3_bind_int(stmt, 1, max);
    }
    int n = 0, result;
    while ((result = db_step(db, stmt, err)) == 1) {
        struct store_problem *p = &out[n++];
        p->at_ms = sqlite3_column_int64(stmt, 2);
        if ((result = copy(arena, db_column_bytes(stmt, 0), &p->key, err)) < 0 ||
            (result = copy(arena, db_column_bytes(stmt, 1), &p->what, err)) < 0) {
            sqlite3_reset(stmt);
            break;
        }
    }
    return result < 0 ? result : n;
}
