#include "store/ring_turns.h"

#include <stddef.h>

enum { QUARTER = 4, AHEAD_SHARE = 8 };

int ring_slot(uint64_t turn, int slots)
{
    return (int)(turn % (uint64_t)slots);
}

/* The first of n turns from `first` on whose slot is empty, or `otherwise`. */
static uint64_t first_empty(uint64_t first, int n, int slots, const bool *empty, uint64_t otherwise)
{
    for (uint64_t turn = first; turn < first + (uint64_t)n; turn++) {
        if (empty[ring_slot(turn, slots)]) {
            return turn;
        }
    }
    return otherwise;
}

uint64_t ring_next(uint64_t turn, int slots, const bool *empty)
{
    return first_empty(turn + 1, slots - 1, slots, empty, turn);
}

uint64_t ring_recover(uint64_t turn, int slots, const bool *empty)
{
    return first_empty(turn, slots, slots, empty, turn);
}

/* A bucket with a hole: rows come in, and an eighth of the limit drains in each RING_FULL_PATIENCE_MS. */
static void look_at_fill(struct ring_fill *fill, const struct ring_open *open)
{
    if (open->bytes < fill->seen || open->elapsed_ms < fill->at_ms) { /* another slot, or it was renewed */
        *fill = (struct ring_fill){0};
    }
    double patiences = (double)(open->elapsed_ms - fill->at_ms) / RING_FULL_PATIENCE_MS;
    double ahead = fill->ahead - patiences * (double)(open->limit / AHEAD_SHARE);
    *fill = (struct ring_fill){.at_ms = open->elapsed_ms,
                               .seen = open->bytes,
                               .ahead = (ahead > 0 ? ahead : 0) + (double)(open->bytes - fill->seen)};
}

enum ring_due ring_due(struct ring_fill *fill, const struct ring_open *open)
{
    look_at_fill(fill, open);
    if (open->elapsed_ms >= open->slot_length_ms) {
        return open->taken > 0 ? RING_TURN : RING_RENEW;
    }
    uint64_t left = open->limit > open->closed ? open->limit - open->closed : 0;
    bool large = open->bytes >= open->limit / QUARTER;
    bool fast = fill->ahead >= (double)(open->limit / AHEAD_SHARE);
    return open->taken > 0 && large && (fast || open->bytes >= left / 2) ? RING_TURN_EARLY : RING_STAY;
}

int64_t ring_retry_delay_ms(unsigned failures)
{
    static const int minutes[] = {0, 1, 2, 4, 5};
    size_t last = sizeof(minutes) / sizeof(minutes[0]) - 1;
    return (int64_t)minutes[failures < last ? failures : last] * 60 * 1000;
}

enum ring_memory ring_memory(struct ring_pressure *p, uint64_t memory, uint64_t limit, uint64_t freed, uint64_t merged,
                             int64_t now_ms)
{
    bool moved = freed != p->freed || merged >= p->merged + limit / QUARTER;
    if (freed != p->freed) {
        p->merged = 0; /* the next slot's begins again */
    } else if (moved) {
        p->merged = merged;
    }
    p->freed = freed;
    if (memory < limit) {
        p->full = false;
        p->merged = merged;
        return RING_ROOM;
    }
    if (!p->full || moved) {
        p->full = true;
        p->since = now_ms;
    }
    return now_ms - p->since >= RING_FULL_PATIENCE_MS ? RING_REFUSE : RING_FULL;
}
