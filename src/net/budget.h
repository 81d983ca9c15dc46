/* The memory of all requests and replies, over all workers, kept below request_memory.
 *
 * Each worker counts its own bytes exactly and takes them from the shared sum in steps of a MiB, so that the workers
 * don't contend for it. Above a threshold no large buffer of input may grow, but one: a single request may always be
 * read to its end (it holds the overdraft), so that many half-read requests can't block each other for ever.
 *
 * The threshold leaves room for what follows from the input: replies and batches are about as large as their requests,
 * and the overdraft's buffer doubles as it grows. So limit = 2 x threshold + 3 x request_max.
 */
#ifndef UNSEEN_NET_BUDGET_H
#define UNSEEN_NET_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { BUDGET_STEP = 1024 * 1024 };

struct budget {
    _Atomic size_t used;
    size_t limit, threshold;
    size_t request_max; /* of one request, and of the overdraft */
    atomic_bool overdrawn;
};

struct budget_share {
    struct budget *all;
    size_t held;   /* by this worker's connections and batches */
    size_t leased; /* of the shared sum; >= held */
};

static inline void budget_init(struct budget *b, size_t limit, size_t request_max)
{
    b->limit = limit;
    b->request_max = request_max < limit / 8 ? request_max : limit / 8;
    b->threshold = (limit - 3 * b->request_max) / 2;
}

static inline void budget_take(struct budget_share *s, size_t bytes)
{
    s->held += bytes;
    if (s->held > s->leased) {
        size_t more = (s->held - s->leased + BUDGET_STEP - 1) / BUDGET_STEP * BUDGET_STEP;
        atomic_fetch_add_explicit(&s->all->used, more, memory_order_relaxed);
        s->leased += more;
    }
}

static inline void budget_give(struct budget_share *s, size_t bytes)
{
    s->held -= bytes;
    if (s->leased - s->held >= 2 * (size_t)BUDGET_STEP) {
        size_t less = (s->leased - s->held) / BUDGET_STEP * BUDGET_STEP - BUDGET_STEP;
        atomic_fetch_sub_explicit(&s->all->used, less, memory_order_relaxed);
        s->leased -= less;
    }
}

/* Whether so much more may be held. */
static inline bool budget_allows(const struct budget_share *s, size_t more)
{
    size_t used = atomic_load_explicit(&s->all->used, memory_order_relaxed);
    size_t own = s->leased - s->held;
    return used + (more > own ? more - own : 0) <= s->all->threshold;
}

/* Whether so much more stays below the limit itself. */
static inline bool budget_fits(const struct budget_share *s, size_t more)
{
    return atomic_load_explicit(&s->all->used, memory_order_relaxed) + more <= s->all->limit;
}

static inline bool budget_overdraw(struct budget_share *s)
{
    return !atomic_exchange(&s->all->overdrawn, true);
}

static inline void budget_repay(struct budget_share *s)
{
    atomic_store(&s->all->overdrawn, false);
}

#endif
