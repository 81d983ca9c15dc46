/* What a workload that may die at any moment has done, kept where its death leaves it: in memory shared with the
 * process that judges. Operations follow from a seed, so only their acknowledgements are kept.
 *
 * Who judges knows for each user and item whether it must be seen, must not, or may be either: an operation that was
 * handed in and never acknowledged may have happened or not.
 */
#ifndef UNSEEN_TESTS_LEDGER_H
#define UNSEEN_TESTS_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LEDGER_OPS = 4096, LEDGER_USERS = 24, LEDGER_ITEMS = 40, LEDGER_EVENTS = 6, LEDGER_EVENT_ITEMS = 4 };

enum ledger_kind {
    LEDGER_PLAY,
    LEDGER_DELIVER,
    LEDGER_FORGET_USER,
    LEDGER_FORGET_ITEMS,
    LEDGER_MERGE,        /* of the event's user into another one */
    LEDGER_MERGE_FORGET, /* who is forgotten with it */
    LEDGER_WAIT,
    LEDGER_ADVANCE,
    LEDGER_FLUSH,
    LEDGER_RESTART
};

struct ledger_event {
    int user, n, months_ago;
    int items[LEDGER_EVENT_ITEMS];
    int into; /* of a merge */
};

struct ledger_op {
    enum ledger_kind kind;
    int n_events; /* one for the forgets */
    struct ledger_event events[LEDGER_EVENTS];
    int64_t ms; /* LEDGER_ADVANCE */
};

struct ledger {
    uint64_t seed;
    int handed_in; /* operations 0 .. handed_in-1 */
    int64_t clock; /* the last wall time */
    volatile char acknowledged[LEDGER_OPS];
};

struct ledger *ledger_new(uint64_t seed); /* in shared memory */
void ledger_free(struct ledger *l);

void ledger_op(const struct ledger *l, int number, struct ledger_op *out);

/* What a question may answer of a user and item. */
void ledger_expect(const struct ledger *l, int user, int item, bool *may_be_seen, bool *may_be_unseen);

#endif
