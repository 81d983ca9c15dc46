/* The memory of all requests and replies, over all workers, kept below request_memory.
 *
 * A connection asks budget_allows() before it makes something, and budget_take()s what it made; where it is not
 * allowed, it waits in its worker's line (net/worker_line.c). Each worker counts its own bytes exactly and takes them
 * from the shared sum in steps, so that workers don't contend for it.
 *
 * A stranger is a connection that has not logged in (conn_is_stranger()). Strangers have a place of their own, which
 * all of them share, over all edges: so nothing that they do takes a byte from who has logged in, and no load of those
 * keeps others from logging in. How they make way for each other: worker_line.c.
 *
 * What the bytes are for decides how far the sum may go. Large requests stop first, then all requests, and the replies
 * to those that were read last: so a question of ordinary size has room beside any number of large ones, and what was
 * read can be answered, which frees it. Replies that the kernel seems to take at once are lent some more, since they
 * are likely to be gone at once; what it then leaves has its place there, and the last bit of it is kept for the Unix
 * socket, which is the administrator's.
 *
 * Above all that is the overdraft, for one request of any size and its reply: the connection that holds it may always
 * finish, so that many half-read requests can't block each other for ever. Should it need more than its place, shared
 * is lowered until it has repaid: no other connection is given any more, those that hold some answer or are closed
 * within seconds, and then there is room. So all that is held never passes the limit, to a step of each worker.
 *
 *   0 ........ 1/2 ......... 3/4 ......... shared ..... lent ..... Unix ................ strangers ...............
 * limit large        requests      replies          1/2          1/4    overdraft: the rest     1/8 of what is left of
 * 3 x request_max      beside 3 x request_max
 *
 * An example: of 256 MiB, a request being 16 MiB at most, 48 MiB are for what is lent, Unix and the overdraft. Of the
 * other 208 strangers have 26, and 182 are shared: large requests stop at 91, all requests at 136. A server that holds
 * 140 MiB of half requests then reads no further half of one; a question of 20 KiB, which came whole, holds nothing,
 * and its reply is lent what the kernel takes at once.
 */
#ifndef UNSEEN_NET_BUDGET_H
#define UNSEEN_NET_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BUDGET_STEP_MAX = 1024 * 1024, BUDGET_STEP_MIN = 16 * 1024 };

/* What bytes are taken for. */
enum budget_use {
    BUDGET_LARGE,   /* a large request, or a large reply to one that holds nothing */
    BUDGET_REQUEST, /* any other of these, and what is recorded of a request */
    BUDGET_REPLY,   /* to one that was read into memory */
};

struct budget {
    _Atomic size_t used;
    _Atomic size_t limit;
    _Atomic size_t shared;      /* lowered while the overdraft needs more than its place */
    _Atomic size_t request_max; /* of one request */
    _Atomic size_t step;
    _Atomic size_t waiting; /* connections, in all lines */
    _Atomic size_t over;    /* held by the overdraft, beside used */
    atomic_bool overdrawn;
    _Atomic size_t strangers;         /* held by them, beside used */
    _Atomic size_t strangers_waiting; /* for some of theirs */
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

/* The most that all strangers hold together. */
static inline size_t budget_strangers_max(const struct budget *b)
{
    return (budget_load(&b->limit) - 3 * budget_load(&b->request_max)) / 8;
}

/* What is shared while the overdraft keeps to its place; what is lent beside it; and what of that only the Unix socket
 * gets. */
static inline size_t budget_shared(const struct budget *b)
{
    return budget_load(&b->limit) - 3 * budget_load(&b->request_max) - budget_strangers_max(b);
}

static inline size_t budget_lent_max(const struct budget *b)
{
    return budget_load(&b->request_max) / 2;
}

static inline size_t budget_kept(const struct budget *b)
{
    return budget_load(&b->request_max) / 4;
}

/* At the start, and whenever the limit changes: what is held above a lower one is given back as it is answered. A
 * reader may meanwhile see the old and the new limits mixed, once. */
static inline void budget_limit(struct budget *b, size_t limit, size_t request_max, size_t n_shares)
{
    size_t one = request_max < limit / 8 ? request_max : limit / 8;
    size_t step = limit / 64 / n_shares;
    step = step > BUDGET_STEP_MAX ? BUDGET_STEP_MAX : step < BUDGET_STEP_MIN ? BUDGET_STEP_MIN : step;
    atomic_store_explicit(&b->limit, limit, memory_order_relaxed);
    atomic_store_explicit(&b->request_max, one, memory_order_relaxed);
    atomic_store_explicit(&b->shared, budget_shared(b), memory_order_relaxed);
    atomic_store_explicit(&b->step, step, memory_order_relaxed);
}

static inline size_t budget_request_max(const struct budget *b)
{
    return budget_load(&b->request_max);
}

/* What bytes of a request are taken for, or of a reply to one that holds nothing. */
static inline enum budget_use budget_use_for(const struct budget *b, size_t bytes)
{
    return bytes > budget_load(&b->limit) / 32 ? BUDGET_LARGE : BUDGET_REQUEST;
}

/* The most that a single reply may take. */
static inline size_t budget_reply_max(const struct budget *b)
{
    return budget_shared(b) / 4;
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

/* All that is held. */
static inline size_t budget_used(const struct budget *b)
{
    return budget_load(&b->used) + budget_load(&b->over) + budget_load(&b->strangers);
}

static inline bool budget_allows_stranger(const struct budget *b, size_t more)
{
    return budget_load(&b->strangers) + more <= budget_strangers_max(b);
}

/* A stranger that held `before` holds `now`. */
static inline void budget_set_stranger(struct budget *b, size_t before, size_t now)
{
    atomic_fetch_add_explicit(&b->strangers, now - before, memory_order_relaxed);
}

/* Whether so much more may be held for a moment, although it is not allowed. */
static inline bool budget_lends(const struct budget *b, size_t more, bool is_unix)
{
    size_t most = budget_load(&b->shared) + budget_lent_max(b);
    size_t used = budget_load(&b->used) + more;
    return used <= most ||
           (is_unix && used + budget_load(&b->over) + budget_strangers_max(b) <= budget_load(&b->limit));
}

/* What of the limit is left beside so much of the overdraft. */
static inline size_t budget_beside(const struct budget *b, size_t over)
{
    size_t beside = budget_lent_max(b) + budget_kept(b) + budget_strangers_max(b) + over;
    size_t limit = budget_load(&b->limit);
    return beside < limit ? limit - beside : 0;
}

/* The overdraft holds so much, or will: if that is more than its place, shared makes way. */
static inline void budget_make_place(struct budget *b, size_t over)
{
    size_t left = budget_beside(b, over);
    if (left < budget_load(&b->shared)) {
        atomic_store_explicit(&b->shared, left, memory_order_relaxed);
    }
}

/* Whether so much more would be more than there is: it may have many requests at once, and some of them must end
 * first. */
static inline bool budget_overdraft_is_full(const struct budget *b, size_t more)
{
    size_t over = budget_load(&b->over), most = budget_beside(b, 0);
    return over > most || more > most - over;
}

/* Whether the holder of the overdraft may hold so much more; else no other may until it does. */
static inline bool budget_overdraft_allows(struct budget *b, size_t more)
{
    if (budget_overdraft_is_full(b, more)) {
        return false;
    }
    budget_make_place(b, budget_load(&b->over) + more);
    return budget_load(&b->used) <= budget_load(&b->shared) + budget_lent_max(b);
}

static inline void budget_set_over(struct budget *b, size_t held)
{
    atomic_store_explicit(&b->over, held, memory_order_relaxed);
    budget_make_place(b, held);
}

/* The holder of the overdraft was allowed nothing that it doesn't hold by now, and waits for so much more: what it
 * needed before is shared again. */
static inline void budget_look_at_overdraft(struct budget *b, size_t wants)
{
    size_t over = budget_load(&b->over), most = budget_shared(b);
    size_t left = wants < SIZE_MAX - over ? budget_beside(b, over + wants) : 0;
    atomic_store_explicit(&b->shared, left < most ? left : most, memory_order_relaxed);
}

/* The overdraft, for a holder that has taken so many bytes: they and what is added to them no longer count as
 * shared. */
static inline bool budget_overdraw(struct budget_share *s, size_t held)
{
    if (atomic_load_explicit(&s->all->overdrawn, memory_order_relaxed) || atomic_exchange(&s->all->overdrawn, true)) {
        return false;
    }
    budget_set_over(s->all, held);
    budget_give(s, held);
    return true;
}

static inline void budget_repay(struct budget_share *s, size_t held)
{
    struct budget *b = s->all;
    budget_take(s, held);
    atomic_store_explicit(&b->over, 0, memory_order_relaxed);
    atomic_store_explicit(&b->shared, budget_shared(b), memory_order_relaxed);
    atomic_store(&b->overdrawn, false);
}

#endif
