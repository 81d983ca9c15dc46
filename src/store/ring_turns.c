#include "store/ring_turns.h"

#include <stddef.h>

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

enum ring_due ring_due(int64_t elapsed_ms, int64_t slot_length_ms, uint64_t taken, uint64_t bytes, uint64_t limit)
{
    if (elapsed_ms >= slot_length_ms) {
        return taken > 0 ? RING_TURN : RING_RENEW;
    }
    return taken > 0 && bytes >= limit / RING_EARLY_SHARE ? RING_TURN_EARLY : RING_STAY;
}

int64_t ring_retry_delay_ms(unsigned failures)
{
    static const int minutes[] = {0, 1, 2, 4, 5};
    size_t last = sizeof(minutes) / sizeof(minutes[0]) - 1;
    return (int64_t)minutes[failures < last ? failures : last] * 60 * 1000;
}

enum ring_memory ring_memory(struct ring_pressure *p, uint64_t memory, uint64_t limit, uint64_t freed, int64_t now_ms)
{
    bool moved = freed != p->freed;
    p->freed = freed;
    if (memory < limit) {
        p->full = false;
        return RING_ROOM;
    }
    if (!p->full || moved) {
        p->full = true;
        p->since = now_ms;
    }
    return now_ms - p->since >= RING_FULL_PATIENCE_MS ? RING_REFUSE : RING_FULL;
}
