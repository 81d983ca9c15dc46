/* A store without a folder, which answers from what another node's writer keeps in the front's Redis: serve
 * --front-only. Reads only: what would write is refused with ERR_READONLY, and there are no capabilities besides.
 *
 * A question is answered later, by one of FRONT_READER_THREADS threads with a connection each. It is refused with
 * ERR_STALE when Redis can't be reached, when what stands there isn't full, has another seed, or is older than
 * front_max_age (with the age), and while a user's state is on its way; with ERR_CORRUPT when parts of a user could not
 * be read; and with ERR_ABSENT when a user is too large for the front: an ERR_LARGE would be asked again, by scan(),
 * which finds no more. While Redis is away, questions are refused at once.
 *
 * Another thread looks at meta each FRONT_LOOK_MS. window, retention and delivered_max are this server's own, and are
 * to be the primary's. Time is the wall clock's, unguarded: nothing expires here.
 */
#ifndef UNSEEN_FRONT_READER_STORE_H
#define UNSEEN_FRONT_READER_STORE_H

#include "base/figure.h"
#include "store/store.h"

enum {
    FRONT_READER_THREADS = 4,
    FRONT_LOOK_MS = 250,
    FRONT_PATIENCE_MS = 1000, /* with Redis: for a connection, or a reply */
};

/* What writes are refused with. */
#define FRONT_NO_WRITES "this server answers from a front and takes no writes; send them to the primary"

/* Waits until the Redis is there and has a meta, for its seed: at most FRONT_OPEN_MS; then ERR_SYSTEM, ERR_ABSENT,
 * ERR_INVALID say what is wrong. ERR_SEED: hash_seed is given, and is another. */
enum { FRONT_OPEN_MS = 10 * 1000 };
int front_store_open(const struct config *cfg, struct store **store, struct err *err);

/* What is known of what stands there: its place, and how old that is. Any thread, from memory. */
struct front_store_state {
    bool reached, full;
    uint64_t node, epoch, to;
    int64_t age_ms;  /* -1: not known */
    char cause[320]; /* why questions are refused now; "": they are answered */
};
void front_store_look(struct store *s, struct front_store_state *out);

bool front_store_is(const struct store *s); /* whether s is such a store */

/* Figures of such a store; of another one there are none. */
void front_store_figures_each(struct store *s, figure_visit *visit, void *arg);

#endif
