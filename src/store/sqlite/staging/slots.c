/* The slots of the ring: the turn, and emptying. All on the stager's thread.
 *
 * A slot is some tables staged_N, staged_N_1 ... (slot_parts.h) and a staged index of the same rows. It is emptied in
 * this order: the historian has merged it and made that durable (state EMPTYING); its rows are deleted up to the last
 * id, table by table, each a transaction of its own, so that writers wait for one at most; then its index is unlinked,
 * whole. A crash in between leaves rows that are merged once more at the next start, which is harmless: merging is a
 * union. A slot of which a start has read only a part goes through the same, and is the recovery's again at the end.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hide.h"
#include "base/log.h"
#include "store/bulk.h"
#include "store/ring.h"
#include "store/sqlite/db/views.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum {
    ROOM_RETRY_MS = 60 * 1000,     /* after the open slot got no further tables */
    STARTING_RETRY_MS = 10 * 1000, /* of a flush that the recovery may wait for */
};

void slots_set_state(struct sqlite_store *s, int slot, enum store_slot_state state)
{
    int64_t wall = clock_wall_ms();
    pthread_mutex_lock(&s->ring_mutex);
    struct store_slot *info = &s->slots[slot].info;
    info->state = state;
    info->since_ms = wall;
    info->retry_ms = 0;
    if (state == SLOT_CLOSED) {
        info->closed_ms = wall;
    } else if (state == SLOT_OPEN || state == SLOT_EMPTY) {
        info->closed_ms = 0;
    }
    if (state != SLOT_FLUSHING) {
        info->error[0] = '\0'; /* while it is tried again the last error stays to be seen */
    }
    pthread_mutex_unlock(&s->ring_mutex);
}

int64_t slots_retry_delay_ms(struct sqlite_store *s, unsigned failures)
{
    int64_t delay = ring_retry_delay_ms(failures);
    return delay > STARTING_RETRY_MS && atomic_load(&s->recovering) ? STARTING_RETRY_MS : delay;
}

int64_t slots_set_stuck(struct sqlite_store *s, int slot, enum store_slot_state state, const char *error,
                        unsigned failures)
{
    int64_t delay = slots_retry_delay_ms(s, failures);
    int64_t wall;
    int64_t mono;
    clock_both_ms(&wall, &mono);
    pthread_mutex_lock(&s->ring_mutex);
    struct store_slot *info = &s->slots[slot].info;
    info->state = state;
    info->since_ms = wall;
    info->retry_ms = wall + delay;
    hide_ids_copy(info->error, sizeof info->error, error);
    pthread_mutex_unlock(&s->ring_mutex);
    return mono + delay;
}

enum store_slot_state slots_state(struct sqlite_store *s, int slot)
{
    pthread_mutex_lock(&s->ring_mutex);
    enum store_slot_state state = s->slots[slot].info.state;
    pthread_mutex_unlock(&s->ring_mutex);
    return state;
}

uint64_t slots_bytes(struct sqlite_store *s)
{
    uint64_t open = 0, closed = 0, claimed = atomic_load_explicit(&s->claimed_bytes, memory_order_relaxed);
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        struct staged *index =
            atomic_load_explicit(&s->slots[i].index, memory_order_acquire); /* perhaps the recovery's */
        if (index != NULL) {
            *(i == s->open ? &open : &closed) += staged_bytes(index);
        }
    }
    return open + (closed > claimed ? closed : claimed);
}

uint64_t slots_closed_bytes(struct sqlite_store *s)
{
    struct store_reader *pin = &s->figures_pin; /* the stager may discard one */
    uint64_t bytes = 0;
    pthread_mutex_lock(&s->ring_mutex);
    int open = s->slots[s->open].info.state == SLOT_OPEN ? s->open : -1;
    pthread_mutex_unlock(&s->ring_mutex);
    pthread_mutex_lock(&s->figures_mutex);
    atomic_fetch_add(&pin->pin, 1);
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        const struct staged *index = i == open ? NULL : atomic_load(&s->slots[i].index);
        bytes += index != NULL ? staged_bytes(index) : 0;
    }
    atomic_fetch_add(&pin->pin, 1);
    pthread_mutex_unlock(&s->figures_mutex);
    return bytes;
}

/* --- indexes that are unlinked but may still be walked by a reader --- */

struct garbage {
    struct garbage *next;
    struct staged *index;
    size_t n_pins;
    struct {
        struct store_reader *reader;
        uint64_t pin;
    } pins[]; /* the readers that were in a load when the index was unlinked */
};

/* Unlinks a slot's index. It is freed once every reader that was walking indexes at that time has ended that walk. */
static void discard_index(struct sqlite_store *s, struct slot *slot)
{
    store_raise_left(s, slot->last_id); /* before: a reader that finds no index finds this */
    struct staged *index = atomic_exchange(&slot->index, NULL);
    if (index == NULL) {
        return;
    }
    pthread_mutex_lock(&s->readers_mutex);
    size_t n = 0;
    for (struct store_reader *r = s->readers; r != NULL; r = r->next) {
        n++;
    }
    struct garbage *g = malloc(sizeof *g + n * sizeof g->pins[0]);
    if (g != NULL) {
        g->index = index;
        g->n_pins = 0;
        for (struct store_reader *r = s->readers; r != NULL; r = r->next) {
            uint64_t pin = atomic_load(&r->pin);
            if (pin & 1) {
                g->pins[g->n_pins].reader = r;
                g->pins[g->n_pins++].pin = pin;
            }
        }
        g->next = s->stager.garbage;
        s->stager.garbage = g;
    }
    pthread_mutex_unlock(&s->readers_mutex);
    if (g == NULL) {
        log_error("out of memory", "effect=\"a flushed slot's index stays in memory\"");
    }
}

static bool still_pinned(struct sqlite_store *s, struct store_reader *reader, uint64_t pin)
{
    for (struct store_reader *r = s->readers; r != NULL; r = r->next) {
        if (r == reader) {
            return atomic_load(&r->pin) == pin;
        }
    }
    return false; /* closed meanwhile */
}

void slots_collect_garbage(struct sqlite_store *s, bool all)
{
    struct garbage **at = &s->stager.garbage;
    while (*at != NULL) {
        struct garbage *g = *at;
        bool pinned = false;
        pthread_mutex_lock(&s->readers_mutex);
        for (size_t i = 0; i < g->n_pins && !pinned; i++) {
            pinned = still_pinned(s, g->pins[i].reader, g->pins[i].pin);
        }
        pthread_mutex_unlock(&s->readers_mutex);
        if (pinned && !all) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        staged_free(g->index);
        free(g);
    }
}

/* --- the open slot: at start and at a turn --- */

static void start_slot(struct sqlite_store *s, int n, struct staged *index)
{
    struct slot *slot = &s->slots[n];
    int64_t now = store_believed(s);
    pthread_mutex_lock(&s->ring_mutex);
    slot->opened_ms = now;
    pthread_mutex_unlock(&s->ring_mutex);
    slot->last_id = s->stager.next_id - 1;
    atomic_store(&slot->index, index);
}

static void announce_open(struct sqlite_store *s, int n, uint64_t turn)
{
    s->stager.opened_mono_ms = clock_mono_ms();
    s->stager.fill = (struct ring_fill){0};
    slots_set_state(s, n, SLOT_OPEN);
    pthread_mutex_lock(&s->ring_mutex);
    s->turn = turn;
    s->open = n;
    s->next_turn_ms = clock_wall_ms() + config_slot_length_ms(s->cfg);
    pthread_mutex_unlock(&s->ring_mutex);
}

/* What must survive with the turn: the counter and the highest id used so far. */
static int save_turn(struct sqlite_store *s, uint64_t turn, struct err *err)
{
    struct db *db = &s->stager.db;
    int result = db_begin(db, err);
    if (result < 0) {
        return result;
    }
    if ((result = stager_undo(s, err)) < 0 || (result = db_meta_set_int(db, "turn", (int64_t)turn, err)) < 0 ||
        (result = db_meta_set_int(db, "high_water", (int64_t)s->stager.next_id - 1, err)) < 0) {
        db_rollback(db);
        stager_undo_ended(s, false);
        return result;
    }
    result = db_commit(db, err);
    stager_undo_ended(s, result == 0);
    return result;
}

void slots_try_commit(struct sqlite_store *s)
{
    struct err err = {0};
    if (s->commit_failed.code == 0) {
        return;
    }
    db_wait_for_locks(&s->stager.db, false); /* it is tried again soon, and writes wait for it */
    save_turn(s, s->turn, &err);
    db_wait_for_locks(&s->stager.db, true);
    stager_note_commit(s, &err);
}

static void empty_slots(struct sqlite_store *s, bool empty[STORE_SLOTS_MAX])
{
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        empty[i] = slots_state(s, i) == SLOT_EMPTY;
    }
}

int slots_begin(struct sqlite_store *s, struct err *err)
{
    struct db *db = &s->stager.db;
    int64_t turn = 0;
    int64_t high_water = 0;
    uint64_t highest;
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        s->slots[i].info.slot = i;
        slots_set_state(s, i, SLOT_EMPTY);
    }
    int result = recover_begin(s, &highest, err);
    if (result < 0 || (result = db_meta_count(db, "turn", &turn, err)) < 0 ||
        (result = db_meta_count(db, "high_water", &high_water, err)) < 0) {
        return result;
    }
    highest = highest > (uint64_t)high_water ? highest : (uint64_t)high_water;
    /* Below are the ids of what bulk_deliver brings. */
    s->stager.next_id = (highest > STORE_RANK_MAX ? highest : STORE_RANK_MAX) + 1;

    bool empty[STORE_SLOTS_MAX];
    empty_slots(s, empty);
    uint64_t open = ring_recover((uint64_t)turn, (int)s->cfg->slots, empty);
    int n = ring_slot(open, (int)s->cfg->slots);
    if ((result = save_turn(s, open, err)) < 0) {
        return result;
    }
    if (!empty[n]) { /* it is read first */
        s->turn = open;
        s->open = n;
        return 0;
    }
    struct staged *index = staged_new(s->stager.next_id);
    if (index == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    start_slot(s, n, index);
    announce_open(s, n, open);
    return 0;
}

/* --- with the recovery --- */

static void set_reading(struct sqlite_store *s, int slot, enum slot_reading reading)
{
    pthread_mutex_lock(&s->ring_mutex);
    s->slots[slot].reading = reading;
    pthread_mutex_unlock(&s->ring_mutex);
}

/* Emptied as far as it was read. */
static void give_back(struct sqlite_store *s, int slot)
{
    struct store_slot *info = &s->slots[slot].info;
    int64_t wall = clock_wall_ms();
    s->slots[slot].parts.emptied = s->slots[slot].parts.at;
    pthread_mutex_lock(&s->ring_mutex);
    info->state = SLOT_CLOSED;
    info->since_ms = wall;
    s->slots[slot].reading = SLOT_READING;
    pthread_cond_signal(&s->came_back);
    pthread_mutex_unlock(&s->ring_mutex);
}

enum slot_reading slots_reading(struct sqlite_store *s, int slot)
{
    pthread_mutex_lock(&s->ring_mutex);
    enum slot_reading reading = s->slots[slot].reading;
    pthread_mutex_unlock(&s->ring_mutex);
    return reading;
}

void slots_hand_over(struct sqlite_store *s, int slot, enum slot_reading reading)
{
    set_reading(s, slot, reading);
    if (reading == SLOT_READ_ON) { /* others wait until the historian looks for them */
        thread_queue_wake(&s->historian.queue);
    }
}

void slots_open_read(struct sqlite_store *s)
{
    announce_open(s, s->open, s->turn);
    set_reading(s, s->open, SLOT_READ);
}

int slots_turn(struct sqlite_store *s, bool early, struct err *err)
{
    bool empty[STORE_SLOTS_MAX];
    empty_slots(s, empty);
    uint64_t turn = ring_next(s->turn, (int)s->cfg->slots, empty);
    if (turn == s->turn) {
        return 0;
    }
    int closed = s->open;
    int n = ring_slot(turn, (int)s->cfg->slots);
    struct staged *index = staged_new(s->stager.next_id);
    if (index == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    int result = save_turn(s, turn, err);
    if (result < 0) {
        staged_free(index);
        return result;
    }
    start_slot(s, n, index);
    announce_open(s, n, turn);
    slots_set_state(s, closed, SLOT_CLOSED);
    s->stager.turn_failures = 0;
    s->stager.turn_retry_mono_ms = 0;
    COUNT(s, turns, 1);
    COUNT(s, early_turns, early);
    log_info("turn", "turn=%" PRIu64 " open=%d closed=%d rows=%" PRIu64 " early=%s", turn, n, closed,
             staged_rows(atomic_load(&s->slots[closed].index)), early ? "yes" : "no");
    thread_queue_wake(&s->historian.queue);
    return 1;
}

/* --- room --- */

static int make_tables(struct sqlite_store *s, int wanted, struct err *err)
{
    struct db *db = &s->stager.db;
    int result = db_begin(db, err);
    if (result < 0) {
        return result;
    }
    if ((result = parts_make(db, s->open, s->slots[s->open].parts.n, wanted, err)) < 0 ||
        (result = views_make(db, err)) < 0) {
        db_rollback(db);
        return result;
    }
    return db_commit(db, err);
}

void slots_make_room(struct sqlite_store *s, uint64_t rows)
{
    struct stager *st = &s->stager;
    struct slot_parts *parts = &s->slots[s->open].parts;
    uint64_t rows_a_part = parts_rows(config_now(s->cfg)->staging_memory);
    int wanted = parts_wanted(parts, st->next_id, rows, rows_a_part);
    /* Rows of a commit of unknown outcome are deleted by the next one: it must be the one that records. */
    if (wanted == parts->n || st->undo_from != 0 || clock_mono_ms() < st->room_retry_mono_ms) {
        return;
    }
    struct err err = {0};
    if (make_tables(s, wanted, &err) == 0) {
        parts->n = wanted;
    } else {
        st->room_retry_mono_ms = clock_mono_ms() + ROOM_RETRY_MS;
        log_warn("no further tables made for the open slot", "slot=%d tables=%d wanted=%d error=%s", s->open, parts->n,
                 wanted, log_quote_str(err.text));
    }
}

/* --- emptying --- */

/* Of the last part perhaps not all is merged. */
static uint64_t last_merged(const struct slot *slot)
{
    const struct slot_parts *parts = &slot->parts;
    return parts->emptied == parts->at && parts->read > 0 ? parts->read : slot->last_id;
}

/* Of the slot's next part, in a transaction. 1: there is more, 0: the tables hold nothing up to last_id. */
static int empty_part(struct sqlite_store *s, int n, struct err *err)
{
    struct slot *slot = &s->slots[n];
    struct slot_parts *parts = &slot->parts;
    struct db *db = &s->stager.db;
    int result = db_begin(db, err);
    if (result < 0) {
        return result;
    }
    result = stager_note_flushes(s, err);
    int more = result < 0 ? result : parts_empty(db, n, parts->emptied, last_merged(slot), err);
    if (more < 0) {
        db_rollback(db);
        return more;
    }
    if ((result = db_commit(db, err)) < 0) {
        return result;
    }
    parts->emptied += more == 0;
    return parts->emptied <= parts->at;
}

static int drop_tables(struct sqlite_store *s, int n, struct err *err)
{
    struct db *db = &s->stager.db;
    int result = 0;
    for (int part = 0; part < s->slots[n].parts.n && result == 0; part++) {
        char sql[64];
        db_drop_variant(db, slot_table(n, part));
        db_expand(sql_statements[SQL_STAGED_DROP], slot_table(n, part), sql, sizeof sql);
        result = db_exec(db, sql, err);
    }
    return result < 0 ? result : views_make(db, err);
}

void slots_drop(struct sqlite_store *s, int n)
{
    struct err err = {0};
    struct db *db = &s->stager.db;
    int result = db_begin(db, &err);
    if (result == 0) {
        if ((result = drop_tables(s, n, &err)) < 0) {
            db_rollback(db);
        } else {
            result = db_commit(db, &err);
        }
    }
    if (result < 0) {
        log_warn("empty slot not dropped", "slot=%d error=%s", n, log_quote_str(err.text));
        return;
    }
    s->slots[n].parts.n = 0;
    log_info("slot outside the ring dropped", "slot=%d", n);
}

static void empty_slot(struct sqlite_store *s, int n)
{
    struct slot *slot = &s->slots[n];
    struct err err = {0};
    int more = empty_part(s, n, &err);
    if (more < 0) {
        /* The rows stay; what they hold is durable in history. */
        slot->empty_failures++;
        slot->empty_retry_mono_ms = slots_set_stuck(s, n, SLOT_EMPTYING, err.text, slot->empty_failures);
        log_error("slot not emptied", "slot=%d failures=%u retry_s=%" PRId64 " error=%s", n, slot->empty_failures,
                  slots_retry_delay_ms(s, slot->empty_failures) / 1000, log_quote_str(err.text));
        return;
    }
    slot->empty_failures = 0;
    if (more > 0) {
        return;
    }
    discard_index(s, slot);
    slots_collect_garbage(s, false);
    s->stager.slots_freed++;
    if (slots_reading(s, n) == SLOT_READ_ON) {
        give_back(s, n);
        return;
    }
    parts_reset(&slot->parts);
    if (n >= s->cfg->slots) {
        slots_drop(s, n);
    }
    slots_set_state(s, n, SLOT_EMPTY);
}

bool slots_empty_step(struct sqlite_store *s)
{
    int next = -1;
    pthread_mutex_lock(&s->ring_mutex);
    for (int i = 0; i < STORE_SLOTS_MAX && next < 0; i++) {
        const struct store_slot *info = &s->slots[i].info;
        next = info->state == SLOT_EMPTYING && info->error[0] == '\0' ? i : -1;
    }
    pthread_mutex_unlock(&s->ring_mutex);
    if (next >= 0) {
        empty_slot(s, next);
    }
    return next >= 0;
}

void slots_retry_emptying(struct sqlite_store *s, bool all)
{
    int64_t now = clock_mono_ms();
    for (int i = 0; i < STORE_SLOTS_MAX; i++) {
        const struct slot *slot = &s->slots[i];
        if (slot->empty_failures > 0 && (all || now >= slot->empty_retry_mono_ms)) {
            slots_set_state(s, i, SLOT_EMPTYING);
        }
    }
}
