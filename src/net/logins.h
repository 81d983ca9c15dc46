/* Failed logins, by address: a client that guesses passwords is made to wait.
 *
 * So many wrong passwords in a row cost nothing (`free`). From then on an address has one turn in LOGINS_TURN_MS,
 * however many connections it opens, and whether its next password is right or wrong: before the turn it isn't looked
 * at, since the time would tell. Who would wait for longer than LOGINS_WAIT_MS is refused at once. A right password
 * ends it, and so does some quiet. The waiting itself is the caller's: nothing is kept here but one small row an
 * address, in a table of fixed size, where a row in need takes the place of the one with the fewest failures.
 *
 * An address may be any number that stands for who guesses what; the caller has one table for each kind of number.
 *
 * Unix sockets never wait, so that an administrator gets in whatever goes on outside.
 */
#ifndef UNSEEN_NET_LOGINS_H
#define UNSEEN_NET_LOGINS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "net/peer.h"

enum {
    LOGINS_TURN_MS = 1000,
    LOGINS_WAIT_MS = 10 * 1000,
    LOGINS_FORGET_MS = 10 * 60 * 1000,
    LOGINS_SETS = 512,
    LOGINS_WAYS = 8,
};

struct login_row {
    uint64_t peer;   /* PEER_UNIX: a free row */
    int64_t turn_ms; /* when the next turn is free */
    int64_t last_ms; /* of the last failure */
    uint32_t failed; /* in a row */
};

struct logins {
    uint32_t free;
    pthread_mutex_t lock;
    struct log_limit limit;
    uint64_t unlogged; /* failures since the last line in the log */
    struct login_row rows[LOGINS_SETS][LOGINS_WAYS];
};

void logins_init(struct logins *l, uint32_t free);

/* Takes a turn. Returns in how many ms the password may be looked at (0: now), or -1: too many wait already. Times are
 * clock_mono_ms(). Any thread, like the others. */
int64_t logins_turn(struct logins *l, uint64_t peer, int64_t now_ms);

/* Whether the next one needs a turn. */
bool logins_owes(struct logins *l, uint64_t peer, int64_t now_ms);

/* A password was wrong. edge: "resp", "http": it is also logged, rate-limited; NULL: it is not. */
void logins_failed(struct logins *l, uint64_t peer, const char *edge, int64_t now_ms);
void logins_good(struct logins *l, uint64_t peer);

#endif
