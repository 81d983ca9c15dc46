/* Whether the stager may take more: memory for the indexes, room on the disk, and years that can be stored. */
#include <inttypes.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/sqlite/db/folder.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

/* Again at each look: what holds the slots up changes meanwhile. */
static void refuse(struct sqlite_store *s, uint64_t limit)
{
    char block[STORE_ERROR_TEXT / 4 * 3];
    blocked_describe(s, block, sizeof block);
    pthread_mutex_lock(&s->ring_mutex);
    s->busy = true;
    snprintf(s->busy_cause, sizeof s->busy_cause,
             "staging memory (%" PRIu64 " MiB) is full and nothing was freed for %d s: %s", limit >> 20,
             RING_FULL_PATIENCE_MS / 1000, block);
    pthread_mutex_unlock(&s->ring_mutex);
}

void stager_look_at_memory(struct sqlite_store *s, bool tell_anew)
{
    struct stager *st = &s->stager;
    uint64_t limit = (uint64_t)config_now(s->cfg)->staging_memory;
    enum ring_memory before = st->memory;
    uint64_t freed = st->slots_freed + atomic_load_explicit(&s->read_quarters, memory_order_relaxed);
    st->memory = ring_memory(&st->pressure, slots_bytes(s), limit, freed,
                             atomic_load_explicit(&s->merged_bytes, memory_order_relaxed), clock_mono_ms());
    if (st->memory == RING_REFUSE && (tell_anew || before != RING_REFUSE)) {
        refuse(s, limit);
    }
    if (st->memory == before) {
        return;
    }
    if (st->memory != RING_REFUSE) {
        pthread_mutex_lock(&s->ring_mutex);
        s->busy = false;
        s->busy_cause[0] = '\0';
        pthread_mutex_unlock(&s->ring_mutex);
    }
    if (st->memory == RING_ROOM) {
        log_info("staging memory has room again", "limit=%" PRIu64, limit);
        return;
    }
    char block[STORE_ERROR_TEXT / 4 * 3];
    blocked_describe(s, block, sizeof block);
    log_warn(st->memory == RING_FULL ? "staging memory is full, writes wait"
                                     : "staging memory is full, writes are refused",
             "limit=%" PRIu64 " cause=%s", limit, log_quote_str(block));
}

bool stager_disk_is_low(struct sqlite_store *s)
{
    int64_t free_bytes = atomic_load(&s->disk_free);
    return free_bytes >= 0 && free_bytes < config_now(s->cfg)->min_free;
}

int stager_disk_room(struct sqlite_store *s, struct err *err)
{
    if (!stager_disk_is_low(s)) {
        return 0;
    }
    return err_set(err, ERR_FULL, "less than min_free (%" PRId64 " MiB) is left on the disk of %s",
                   config_now(s->cfg)->min_free >> 20, s->folder);
}

void stager_look_at_disk(struct sqlite_store *s)
{
    int64_t free_bytes = folder_free_bytes(s->folder);
    atomic_store(&s->disk_free, free_bytes);
    bool low = stager_disk_is_low(s);
    if (low != s->stager.told_disk_low) {
        s->stager.told_disk_low = low;
        if (low) {
            log_error("disk nearly full, plays are refused", "free=%" PRId64 " min_free=%" PRId64, free_bytes,
                      config_now(s->cfg)->min_free);
        } else {
            log_info("disk has room again", "free=%" PRId64, free_bytes);
        }
    }
}

/* Whether the open slot's index can hold the batch's rows: asked before the commit. */
static int check_fits(struct sqlite_store *s, struct store_batch *batch, uint64_t id)
{
    struct staged *index = atomic_load_explicit(&s->slots[s->open].index, memory_order_relaxed);
    struct store_event event;
    size_t at = 0;
    while (store_batch_next(batch, &at, &event)) {
        if (!staged_fits(index, id + batch->rows, month_of_ms(event.at_ms))) {
            return err_set(&batch->err, ERR_RANGE, "time %" PRId64 " is outside the years that can be stored",
                           event.at_ms);
        }
    }
    return 0;
}

int stager_admit(struct sqlite_store *s, struct store_batch *batch, uint64_t rows_before)
{
    if (batch->events == 0) { /* positions: they take no memory, and next to no room */
        return position_set_admit(s->positions, batch);
    }
    if (stager_disk_room(s, &batch->err) < 0) {
        COUNT(s, full_refusals, 1);
        return batch->err.code;
    }
    if (store_time_known(&s->base, &batch->err) < 0) {
        COUNT(s, busy_refusals, 1);
        return batch->err.code;
    }
    if (s->stager.memory == RING_REFUSE) {
        COUNT(s, busy_refusals, 1);
        return err_set(&batch->err, ERR_BUSY, "%s", s->busy_cause);
    }
    if (s->stager.memory == RING_FULL) {
        return 1;
    }
    int result = check_fits(s, batch, s->stager.next_id + rows_before);
    if (result == 0 && (result = position_set_admit(s->positions, batch)) == 0) {
        COUNT(s, forgotten_dropped, tombstones_drop(s->tombstones, batch));
    }
    return result;
}
