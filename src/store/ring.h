/* The capability `ring`: staged plays go round slots and are flushed into history, and an operator can see how and
 * hurry it. A slot's rows leave it only when they are durable in history. */
#ifndef UNSEEN_STORE_RING_H
#define UNSEEN_STORE_RING_H

#include "store/store.h"

enum { STORE_SLOTS_MAX = 64 };

enum store_slot_state {
    SLOT_EMPTY,
    SLOT_OPEN,
    SLOT_CLOSED,   /* waits for its flush */
    SLOT_FLUSHING, /* the historian merges it */
    SLOT_FAILED,   /* some of it could not be merged; tried again at retry_ms */
    SLOT_EMPTYING, /* merged and durable; its rows are being deleted */
};
const char *store_slot_state_name(enum store_slot_state state); /* "empty", "open", ... */

struct store_slot {
    int slot;
    enum store_slot_state state;
    uint64_t rows;
    uint64_t users;
    uint64_t bytes;    /* of the staged index */
    int64_t since_ms;  /* when it came into this state */
    int64_t closed_ms; /* since when what it holds waits to be flushed; 0: it is open or empty */
    int64_t retry_ms;  /* wall time of the next try, 0: none */
    char error[STORE_ERROR_TEXT];
};

struct store_ring {
    uint64_t turn; /* the persisted counter */
    int open;
    int64_t next_turn_ms; /* wall time */
    int n_slots;
    struct store_slot slots[STORE_SLOTS_MAX];
    uint64_t memory, memory_limit;
    bool busy; /* writes are refused: memory is full, the disk nearly so, or no time is known */
    char busy_cause[STORE_ERROR_TEXT];
    bool clock_doubted;
    char clock_reason[GUARD_REASON];
};

struct store_ring_ops {
    void (*look)(struct store *s, struct store_ring *out);

    /* RING FLUSH: closes the open slot if it has rows, flushes all closed ones; done() when all of them are
     * empty, or with the first error. */
    void (*flush)(struct store *s, struct store_call *call);
};

#endif
