/* Memory for what is read of users, below a limit, and claimed before it is made. A read that wants some takes a claim;
 * while there is no room it waits in line, first come, first served, and holds nothing meanwhile. One that turns out to
 * need more than it has asked for gets that if it is there at once; else it gives up all that it has, and comes again
 * with a larger claim. So no holder of room ever waits for room, and those who wait get it as the others end.
 *
 * There are two rooms, shares of rados_memory: one for what is small and quick, questions above all, and one for what
 * may be large. So a giant that waits for half of the memory holds up no question.
 */
#ifndef UNSEEN_STORE_RADOS_QUOTA_H
#define UNSEEN_STORE_RADOS_QUOTA_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "config/config.h"

/* A quarter for what is small. */
enum { QUOTA_SMALL = 1, QUOTA_LARGE = 3, QUOTA_SHARES = 4 };

struct quota_claim;

struct quota_state {
    size_t used, most;
    uint64_t waits; /* claims that had to */
};

struct quota {
    const struct config *cfg;
    size_t shares;
    pthread_mutex_t mutex; /* the rest */
    struct quota_state now;
    struct quota_claim *first, **last;
};

/* All zero: none. It belongs to one thread at a time. */
struct quota_claim {
    struct quota *quota;
    size_t bytes;  /* that it holds; 0: none */
    size_t flight; /* of these, what isn't the arena's: the cluster's library has it while it reads */
    size_t wanted; /* that would have been enough when the arena was last refused */
    void (*granted)(struct quota_claim *claim);
    struct quota_claim *next;
};

void quota_init(struct quota *r, const struct config *cfg, size_t shares);
void quota_destroy(struct quota *r);
size_t quota_limit(const struct quota *r);
struct quota_state quota_state(const struct quota *r);

/* True: it has them, or the whole room if that is less. False: granted() is called once it has, on the thread of
 * the one that has given room back. */
bool quota_take(struct quota *r, struct quota_claim *claim, size_t bytes, void (*granted)(struct quota_claim *claim));
void quota_give(struct quota_claim *claim); /* all of it; also without any */

/* Puts the arena, which is empty, below the claim: all but `flight` of it. When it grows beyond, it takes more room, if
 * there is some at once; else it is refused, and claim->wanted says what to come with again. */
void quota_arena(struct quota_claim *claim, struct arena *arena, size_t flight);

/* So many bytes are to be read, and copied into the arena. False: there is no room; as if the arena was refused. */
bool quota_expect(struct quota_claim *claim, struct arena *arena, size_t bytes);

/* After a refusal: whether a larger claim helps. False: it had the whole room. */
bool quota_may_help(const struct quota_claim *claim, const struct arena *arena);

#endif
