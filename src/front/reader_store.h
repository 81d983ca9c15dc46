/* A store without a folder, which answers from what another node's writer keeps in the front's Redis: serve
 * --front-only. Reads only: what would write is refused with ERR_READONLY, and there are no capabilities besides.
 *
 * A question is answered later, by one of FRONT_READER_THREADS threads with a connection each. It is refused when what
 * stands there isn't full (ERR_STALE), or is older than front_max_age (ERR_STALE, with the age), when Redis can't be
 * reached (ERR_IO), and of a user whom the front can't answer for (ERR_LARGE: too large for it; ERR_STALE: their state
 * is on its way; ERR_CORRUPT: parts could not be read).
 */
#ifndef UNSEEN_FRONT_READER_STORE_H
#define UNSEEN_FRONT_READER_STORE_H

#include "base/figure.h"
#include "store/store.h"

enum { FRONT_READER_THREADS = 4 };

/* Waits until the Redis is there and has a meta, for its seed: at most FRONT_OPEN_MS; then ERR_SYSTEM, ERR_ABSENT,
 * ERR_INVALID say what is wrong. ERR_SEED: hash_seed is given, and is another. */
enum { FRONT_OPEN_MS = 10 * 1000 };
int front_store_open(const struct config *cfg, struct store **store, struct err *err);

/* What is known of what stands there: its place, and how old that is. Any thread, from memory. */
struct front_store_state {
    bool reached, full;
    uint64_t node, epoch, to;
    int64_t age_ms; /* -1: not known */
    char cause[320];
};
void front_store_look(struct store *s, struct front_store_state *out);

#endif
