/* The memory of all requests and replies, over all workers, kept below request_memory.
 *
 * Whoever is about to hold bytes asks budget_allows() first and takes them when they are there; else it waits in its
 * worker's line (net/line.h). Each worker counts its own bytes exactly and takes them from the shared sum in steps, so
 * that workers don't contend for it.
 *
 * What the bytes are for decides how far the sum may go. Large requests stop first, then all requests, and the replies
 * to those that were read last: so a question of ordinary size has room beside any number of large ones, and what was
 * read can be answered, which frees it. Above all that is room for one request of any size and its reply, the
 * overdraft: whoever holds it may always finish, so that many half-read requests can't block each other for ever.
 * Replies that the kernel seems to take at once may be made up to the limit: what it then leaves has its place there.
 *
 *   0 ........ 1/2 ......... 3/4 ......... shared ............................. limit
 *     large        requests      replies          overdraft: 3 x request_max
 */
#ifndef UNSEEN_NET_BUDGET_H
#define UNSEEN_NET_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { BUDGET_STEP_MAX = 1024 * 1024, BUDGET_STEP_MIN = 16 * 1024 };

/* What bytes are taken for. */
enum budget_use {
    BUDGET_LARGE,   /* a request of more than budget_large() */
    BUDGET_REQUEST, /* any other, what is recorded of it, and the reply to one that holds nothing */
    BUDGET_REPLY,   /* to one that was read into memory */
};

struct budget {
    _Atomic size_t used;
    _Atomic size_t limit, shared;
    _Atomic size_t request_max; /* of one request */
    _Atomic size_t step;
    _Atomic size_t waiting; /* connections, in all lines */
    _Atomic size_t over;    /* held by the overdraft, beside used */
    atomic_bool overdrawn;
};

struct budget_share {
    struct budget *all;
    size_t held;   /* by this worker's connections and batches */
    size_t leased; /* of the shared sum; >= held */
};

static inline size_t budget_load(const _Atomic size_t *value)
{
    return atomic_load_explicit(value, memory_order_relaxed);
}

/* At the start, and whenever the limit changes: what is held above a lower one is given back as it is answered. Whoever
 * asks meanwhile may see the old and the new limits mixed, once. */
static inline void budget_limit(struct budget *b, size_t limit, size_t request_max, size_t n_shares)
{
    size_t one = request_max < limit / 8 ? request_max : limit / 8;
    size_t step = limit / 64 / n_shares;
    step = step > BUDGET_STEP_MAX ? BUDGET_STEP_MAX : step < BUDGET_STEP_MIN ? BUDGET_STEP_MIN : step;
    atomic_store_explicit(&b->limit, limit, memory_order_relaxed);
    atomic_store_explicit(&b->request_max, one, memory_order_relaxed);
    atomic_store_explicit(&b->shared, limit - 3 * one, memory_order_relaxed);
    atomic_store_explicit(&b->step, step, memory_order_relaxed);
}

static inline size_t budget_request_max(const struct budget *b)
{
    return budget_load(&b->request_max);
}

/* A request above this is a large one. */
static inline size_t budget_large(const struct budget *b)
{
    return budget_load(&b->limit) / 32;
}

/* The most that a single reply may take. */
static inline size_t budget_reply_max(const struct budget *b)
{
    return budget_load(&b->shared) / 4;
}

static inline void budget_take(struct budget_share *s, size_t bytes)
{
    s->held += bytes;
    if (s->held > s->leased) {
        size_t step = budget_load(&s->all->step);
        size_t more = (s->held - s->leased + step - 1) / step * step;
        atomic_fetch_add_explicit(&s->all->used, more, memory_order_relaxed);
        s->leased += more;
    }
}

static inline void budget_give(struct budget_share *s, size_t bytes)
{
    s->held -= bytes;
    size_t step = budget_load(&s->all->step);
    if (s->leased - s->held >= 2 * step) {
        size_t less = (s->leased - s->held) / step * step - step;
        atomic_fetch_sub_explicit(&s->all->used, less, memory_order_relaxed);
        s->leased -= less;
    }
}

/* Whether so much more may be held for that. */
static inline bool budget_allows(const struct budget_share *s, enum budget_use use, size_t more)
{
    size_t shared = budget_load(&s->all->shared);
    size_t most = use == BUDGET_REPLY ? shared : use == BUDGET_REQUEST ? shared / 4 * 3 : shared / 2;
    size_t own = s->leased - s->held;
    return budget_load(&s->all->used) + (more > own ? more - own : 0) <= most;
}

static inline size_t budget_used(const struct budget *b)
{
    return budget_load(&b->used) + budget_load(&b->over);
}

/* Whether so much more may be held for a moment, although it is not allowed: it is likely to be gone at once. What the
 * overdraft holds does not count, so that its holder is in nobody's way. */
static inline bool budget_lends(const struct budget *b, size_t more)
{
    return budget_load(&b->used) + more <= budget_load(&b->limit);
}

/* The overdraft, for somebody who has taken so many bytes: they and what is added to them no longer count as shared. */
static inline bool budget_overdraw(struct budget_share *s, size_t held)
{
    if (atomic_load_explicit(&s->all->overdrawn, memory_order_relaxed) || atomic_exchange(&s->all->overdrawn, true)) {
        return false;
    }
    budget_give(s, held);
    atomic_store_explicit(&s->all->over, held, memory_order_relaxed);
    return true;
}

static inline void budget_set_over(struct budget_share *s, size_t held)
{
    atomic_store_explicit(&s->all->over, held, memory_order_relaxed);
}

static inline void budget_repay(struct budget_share *s, size_t held)
{
    budget_take(s, held);
    atomic_store_explicit(&s->all->over, 0, memory_order_relaxed);
    atomic_store(&s->all->overdrawn, false);
}

#endif
