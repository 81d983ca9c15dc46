#include "store/rados/quota.h"

/* An arena grows by an eighth at least, so that it doesn't ask for each block. */
enum { GROW_SHIFT = 3 };

void quota_init(struct quota *r, const struct config *cfg, size_t shares)
{
    *r = (struct quota){.cfg = cfg, .shares = shares, .last = &r->first};
    pthread_mutex_init(&r->mutex, NULL);
}

void quota_destroy(struct quota *r)
{
    pthread_mutex_destroy(&r->mutex);
}

size_t quota_limit(const struct quota *r)
{
    return (size_t)config_now(r->cfg)->rados_memory / QUOTA_SHARES * r->shares;
}

struct quota_state quota_state(const struct quota *r)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)&r->mutex;
    pthread_mutex_lock(mutex);
    struct quota_state now = r->now;
    pthread_mutex_unlock(mutex);
    return now;
}

static void add(struct quota *r, struct quota_claim *claim, size_t bytes)
{
    claim->bytes += bytes;
    r->now.used += bytes;
    r->now.most = r->now.used > r->now.most ? r->now.used : r->now.most;
}

/* What is alone gets the whole room, if it wants more: so it comes to its turn, whatever it wants. */
static bool fits(const struct quota *r, size_t bytes)
{
    size_t limit = quota_limit(r);
    return r->now.used == 0 || (r->now.used <= limit && bytes <= limit - r->now.used);
}

static void hold(struct quota *r, struct quota_claim *claim, size_t bytes)
{
    size_t limit = quota_limit(r);
    add(r, claim, bytes < limit ? bytes : limit);
}

bool quota_take(struct quota *r, struct quota_claim *claim, size_t bytes, void (*granted)(struct quota_claim *claim))
{
    *claim = (struct quota_claim){.quota = r, .wanted = bytes, .granted = granted};
    pthread_mutex_lock(&r->mutex);
    bool now = r->first == NULL && fits(r, bytes);
    if (now) {
        hold(r, claim, bytes);
    } else {
        r->now.waits++;
        *r->last = claim;
        r->last = &claim->next;
    }
    pthread_mutex_unlock(&r->mutex);
    return now;
}

/* Tells those for whom there is room now. What they do then may give room back in turn. */
void quota_give(struct quota_claim *claim)
{
    struct quota *r = claim->quota;
    struct quota_claim *ready = NULL, **end = &ready;
    if (r == NULL || claim->bytes == 0) {
        return;
    }
    pthread_mutex_lock(&r->mutex);
    r->now.used -= claim->bytes;
    claim->bytes = 0;
    while (r->first != NULL && fits(r, r->first->wanted)) {
        struct quota_claim *c = r->first;
        r->first = c->next;
        r->last = r->first == NULL ? &r->first : r->last;
        hold(r, c, c->wanted);
        c->next = NULL;
        *end = c;
        end = &c->next;
    }
    pthread_mutex_unlock(&r->mutex);
    while (ready != NULL) {
        struct quota_claim *c = ready;
        ready = c->next;
        c->granted(c);
    }
}

static bool take_more(struct quota_claim *claim, size_t bytes)
{
    struct quota *r = claim->quota;
    size_t limit = quota_limit(r);
    pthread_mutex_lock(&r->mutex);
    bool there = r->now.used <= limit && bytes <= limit - r->now.used;
    if (there) {
        add(r, claim, bytes);
    }
    pthread_mutex_unlock(&r->mutex);
    return there;
}

/* Twice as much as it has, so that it doesn't come too often. */
static void want(struct quota_claim *claim, size_t bytes)
{
    claim->wanted = claim->bytes + (bytes > claim->bytes ? bytes : claim->bytes);
}

static bool grow(struct arena *arena, size_t bytes)
{
    struct quota_claim *claim = arena->owner;
    size_t step = claim->bytes >> GROW_SHIFT, more = bytes > step ? bytes : step;
    if (!take_more(claim, more)) {
        more = bytes;
        if (!take_more(claim, more)) {
            want(claim, bytes);
            return false;
        }
    }
    arena->limit += more;
    return true;
}

void quota_arena(struct quota_claim *claim, struct arena *arena, size_t flight)
{
    claim->flight = flight < claim->bytes ? flight : claim->bytes - 1; /* an arena without a limit has none at all */
    arena->limit = claim->bytes - claim->flight;
    arena->more = grow;
    arena->owner = claim;
}

bool quota_expect(struct quota_claim *claim, struct arena *arena, size_t bytes)
{
    size_t flight = bytes > claim->flight ? bytes : claim->flight, all = flight + arena->bytes + bytes;
    if (all > claim->bytes && !take_more(claim, all - claim->bytes)) {
        want(claim, all - claim->bytes);
        arena->refused = true;
        return false;
    }
    claim->flight = flight;
    arena->limit = claim->bytes - flight;
    return true;
}

bool quota_may_help(const struct quota_claim *claim, const struct arena *arena)
{
    return claim->quota != NULL && arena->refused && claim->bytes < quota_limit(claim->quota);
}
