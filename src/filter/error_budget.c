#include "filter/error_budget.h"

#include <math.h>

/* The parts of error_rate that are kept back: for the coarse part of the current month; and, in each month of a window,
 * for a live part, also one of late plays, and for a fine one of the largest month for which the error is promised
 * (1/4 of error_rate at 2^32, of which tails leave a 254th, and a little where two differ). The month before the
 * current one is live for some days too, but then spends no share of the sealed ones, which is larger. */
static const double COARSE_SHARE = 0.03;
static const double LIVE_SHARE = 0.0025;
static const double FINE_SHARE = 0.0011;

uint32_t error_budget_coarse_max(double error_rate)
{
    return (uint32_t)(COARSE_SHARE * error_rate * (double)(FILTER_LIVE_M >> FILTER_GRAIN));
}

uint32_t error_budget_live_max(double error_rate)
{
    return (uint32_t)(LIVE_SHARE * error_rate * (double)FILTER_LIVE_M);
}

double error_budget_share(double error_rate, int64_t window)
{
    double months = (double)(window > 1 ? window : 1);
    return error_rate * (1 - COARSE_SHARE - (months + 1) * (LIVE_SHARE + FINE_SHARE)) / months;
}

/* By filter_chance(): within one q that falls in a straight line as m grows. */
uint64_t error_budget_range(uint32_t n, bool coarse, double share)
{
    const uint64_t live = coarse ? FILTER_LIVE_M >> FILTER_GRAIN : FILTER_LIVE_M;
    const double all = (double)live;
    double chance = n > 0 ? share / n * all : 0; /* of one position, in parts of the live range */
    double q = floor(chance);
    if (q < 1) {
        return 0;
    }
    if (q >= all) {
        return 1;
    }
    uint64_t m = (uint64_t)ceil((2 * q + 1 - chance) * all / (q * (q + 1)));
    m += n * filter_chance(m, coarse) > share;
    return m < live ? m : 0;
}

static int cut_part(struct filter_part *part, double share)
{
    uint64_t m = error_budget_range(part->n, part->coarse, share);
    m = part->coarse ? filter_short_range(part->n, m) : m;
    return m > 0 && filter_cut(part, m) == 0;
}

/* A coarse part and those beside it become one, which is cut. A giant's would need a range finer than a coarse part can
 * be: their coarse part stays live, and the others, without tails, spend what that leaves. */
int error_budget_seal(struct filter *f, double error_rate, int64_t window, struct arena *arena)
{
    uint64_t items = filter_items(f);
    if (filter_sealed(f) || items == 0 || items > UINT32_MAX) {
        return 0;
    }
    double share = error_budget_share(error_rate, window);
    uint32_t n = (uint32_t)items;
    unsigned coarse = 0;
    while (coarse < f->n_parts && !f->parts[coarse].coarse) {
        coarse++;
    }
    if (coarse < f->n_parts) {
        if (error_budget_range(n, true, share) > 0) {
            int result = filter_unite(f, arena);
            return result < 0 ? result : cut_part(&f->parts[0], share);
        }
        share -= f->parts[coarse].n / (double)f->parts[coarse].m;
        n -= f->parts[coarse].n;
    }
    if (error_budget_range(n, false, share) == 0) {
        return 0;
    }
    int result = filter_drop_tails(f, arena);
    if (result < 0 || f->n_parts != 1U + (coarse < f->n_parts)) {
        return result;
    }
    struct filter_part *rest = &f->parts[f->parts[0].coarse ? 1 : 0];
    return cut_part(rest, share);
}
