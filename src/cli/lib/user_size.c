#include "cli/lib/user_size.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/hash.h"
#include "filter/error_budget.h"
#include "filter/filter.h"
#include "store/user/plays.h"

enum {
    FLUSHES = 30,       /* of a month: later plays of a large one go into another part than the first */
    POSITIONS = 100000, /* of all months that are made: enough for the average to be good to a hundredth */
    MONTHS_LEAST = 2,
};

struct room {
    uint64_t *hashes;
    struct arena arena;
    struct buf blob;
    uint64_t next; /* play */
};

static int add_flush(struct room *r, struct filter *f, uint32_t n, double error_rate)
{
    const struct plays plays = {.hashes = r->hashes, .n = n, .stride = sizeof *r->hashes};
    const struct plays_limits limits = plays_limits(error_rate);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t play = r->next++;
        r->hashes[i] = hash_id(0, (struct slice){(const char *)&play, sizeof play});
    }
    return plays_add(f, &plays, &limits, &r->arena);
}

static int weigh(struct room *r, const struct filter *f, double *bytes)
{
    buf_clear(&r->blob);
    int rc = filter_encode(f, &r->blob);
    *bytes += (double)r->blob.len;
    return rc;
}

static int make_month(struct room *r, uint32_t plays, double error_rate, int64_t window, double *live, double *sealed)
{
    struct filter f = {0};
    int rc = 0;
    arena_reset(&r->arena);
    for (uint32_t flush = 0; flush < FLUSHES && rc == 0; flush++) {
        uint32_t from = (uint32_t)((uint64_t)plays * flush / FLUSHES);
        uint32_t to = (uint32_t)((uint64_t)plays * (flush + 1) / FLUSHES);
        rc = to > from ? add_flush(r, &f, to - from, error_rate) : 0;
    }
    rc = rc < 0 ? rc : weigh(r, &f, live);
    rc = rc < 0 ? rc : error_budget_seal(&f, error_rate, window, &r->arena);
    return rc < 0 ? rc : weigh(r, &f, sealed);
}

int user_size(uint32_t plays, double error_rate, int64_t window, double *live, double *sealed, struct err *err)
{
    struct room r = {.hashes = malloc((plays / FLUSHES + 1) * sizeof *r.hashes)};
    uint32_t months = POSITIONS / plays < MONTHS_LEAST ? MONTHS_LEAST : POSITIONS / plays;
    int rc = r.hashes != NULL ? 0 : ERR_NOMEM;
    *live = *sealed = 0;
    for (uint32_t i = 0; i < months && rc == 0; i++) {
        rc = make_month(&r, plays, error_rate, window, live, sealed);
    }
    *live /= months;
    *sealed /= months;
    free(r.hashes);
    arena_free(&r.arena);
    buf_free(&r.blob);
    return rc < 0 ? err_set(err, rc, "out of memory") : 0;
}
