/* The ring's arithmetic: which slot is open, when it turns and to where, when a failed flush is tried again, and when
 * writes are refused. Pure: no I/O, no clock; times are milliseconds of the monotonic clock.
 *
 * The turn is a persisted counter that only rises; turn mod slots is the open slot. It moves only onto an empty slot:
 * occupied ones on the way are skipped, and when none of the ring is empty the open one stays open. Slots at or above
 * `slots` (it was lowered, and they still hold rows) are outside the ring: flushed, never opened.
 */
#ifndef UNSEEN_STORE_RING_TURNS_H
#define UNSEEN_STORE_RING_TURNS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RING_FULL_PATIENCE_MS = 60 * 1000, /* memory full and nothing freed for this long: writes are refused */
};

int ring_slot(uint64_t turn, int slots);

/* The turn after this one: the first in turn + 1 .. turn + slots - 1 whose slot is empty, or the same turn when none
 * is. empty[i] tells it of slot i, for `slots` slots. */
uint64_t ring_next(uint64_t turn, int slots, const bool *empty);

/* The turn to open at start: the first in turn .. turn + slots - 1 whose slot is empty; when none is, the persisted
 * turn, whose slot is opened with the rows it has. */
uint64_t ring_recover(uint64_t turn, int slots, const bool *empty);

/* What is to be done with the open slot. */
enum ring_due {
    RING_STAY,
    RING_RENEW,      /* its time is up but it took nothing: it stays, and its time begins again */
    RING_TURN,       /* its time is up */
    RING_TURN_EARLY, /* it holds its share of the memory */
};

/* The open slot, as it is. */
struct ring_open {
    int64_t elapsed_ms, slot_length_ms; /* since it was opened, or renewed */
    uint64_t taken;  /* rows it ever took, also those forgotten since: their memory is freed only with the slot */
    uint64_t bytes;  /* its own */
    uint64_t closed; /* those of all other slots */
    uint64_t limit;
};

/* How fast the open slot fills. All zero is a new slot's. */
struct ring_fill {
    int64_t at_ms; /* the last look, in the slot's elapsed_ms */
    uint64_t seen; /* its bytes then */
    double ahead;  /* of these, what came in faster than 1/8 of the limit a RING_FULL_PATIENCE_MS */
};

/* To be called whenever rows or time may have been added.
 *
 * The larger a slot, the less its flush writes for a play. But once memory is full, a write waits until the slot being
 * flushed is emptied. So the share at which a slot turns early depends on what may come:
 *
 * - half of what the other slots leave of the limit, and never less than a quarter of the limit: a slot gets smaller
 *   while others wait for their flush;
 * - from a quarter of the limit on, once 1/8 of the limit has come in `ahead`. A slot that takes less than 60 s for its
 *   quarter turns there, one that takes 120 s or longer for its half does so at the half, and those between them
 *   between. So the slots of one who writes faster than such a flush ends are small, and the waits short. */
enum ring_due ring_due(struct ring_fill *fill, const struct ring_open *open);

/* How long to wait after the n-th failure of a flush in a row: 1, 2, 4, 5, 5 ... minutes; 0 for none. */
int64_t ring_retry_delay_ms(unsigned failures);

enum ring_memory {
    RING_ROOM,
    RING_FULL,   /* take no more writes for now: senders are slowed down */
    RING_REFUSE, /* full, and nothing was freed for RING_FULL_PATIENCE_MS */
};

/* Watches the staging memory. All zero is a new one. */
struct ring_pressure {
    bool full;
    int64_t since;   /* when it became full, or when something last moved while it was */
    uint64_t freed;  /* as last seen */
    uint64_t merged; /* as it was when something last moved */
};

/* To be called whenever memory or time may have changed. memory: staged_bytes() of all slots; freed: how many slots
 * were emptied since start, so that a slot freed and filled again between two calls is noticed; merged: bytes of the
 * slot under flush that are in history. A quarter of the limit merged counts as a slot freed, since the slot may be a
 * half: what decides over refusal is whether a quarter takes longer than the patience, whatever the slot's size. Merged
 * again after a failure it doesn't count again. */
enum ring_memory ring_memory(struct ring_pressure *p, uint64_t memory, uint64_t limit, uint64_t freed, uint64_t merged,
                             int64_t now_ms);

#endif
