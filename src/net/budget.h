/* The memory of all requests and replies, over all workers, kept below request_memory.
 *
 * Each worker counts its own bytes exactly and takes them from the shared sum in steps of a MiB, so that the workers
 * don't contend for it. Above a threshold no large buffer of input may grow, and close to the limit a connection may
 * hold but a page of an unfinished request; all but one: a single request may always be read to its end (it holds the
 * overdraft), so that many half-read requests can't block each other for ever.
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
    _Atomic size_t limit, threshold;
    _Atomic size_t request_max; /* of one request, and of the overdraft */
    atomic_bool overdrawn;
};

struct budget_share {
    struct budget *all;
    size_t held;   /* by this worker's connections and batches */
    size_t leased; /* of the shared sum; >= held */
};

/* At the start, and whenever the limit changes: what is held above a lower one is given back as it is answered. Whoever
 * asks meanwhile may see the old and the new limits mixed, once. */
static inline void budget_limit(struct budget *b, size_t limit, size_t request_max)
{
    size_t one = request_max < limit / 8 ? request_max : limit / 8;
    atomic_store_explicit(&b->limit, limit, memory_order_relaxed);
    atomic_store_explicit(&b->request_max, one, memory_order_relaxed);
    atomic_store_explicit(&b->threshold, (limit - 3 * one) / 2, memory_order_relaxed);
}

static inline size_t budget_request_max(const struct budget *b)
{
    return atomic_load_explicit(&b->request_max, memory_order_relaxed);
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
    size_t threshold = atomic_load_explicit(&s->all->threshold, memory_order_relaxed);
    return used + (more > own ? more - own : 0) <= threshold;
}

/* Whether so much more stays below the limit itself. */
static inline bool budget_fits(const struct budget_share *s, size_t more)
{
    size_t limit = atomic_load_explicit(&s->all->limit, memory_order_relaxed);
    return atomic_load_explicit(&s->all->used, memory_order_relaxed) + more <= limit;
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
