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
    RING_EARLY_SHARE = 4,              /* a slot that holds 1/4 of the memory turns early, see ring_due() */
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
    RING_RENEW,      /* its time is up but it took nothing: it stays, and its time begins anew */
    RING_TURN,       /* its time is up */
    RING_TURN_EARLY, /* it holds its share of the memory */
};

/* elapsed_ms since the slot was opened; taken: rows it ever took, also those forgotten since, because their memory is
 * freed only with the slot. Early at 1 / RING_EARLY_SHARE of the limit: the open slot, one being
 * flushed and one that waits for it fill three quarters, and the last quarter is there for what comes in
 * until the next slot is emptied. */
enum ring_due ring_due(int64_t elapsed_ms, int64_t slot_length_ms, uint64_t taken, uint64_t bytes, uint64_t limit);

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
    int64_t since;  /* when it became full, or when something was last freed while it was */
    uint64_t freed; /* as last seen */
};

/* To be called whenever memory or time may have changed. memory: staged_bytes() of all slots; freed: how many slots
 * were emptied since start, so that a slot freed and filled again between two calls is noticed. */
enum ring_memory ring_memory(struct ring_pressure *p, uint64_t memory, uint64_t limit, uint64_t freed, int64_t now_ms);

#endif
