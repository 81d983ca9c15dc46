#include "service/hedge.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "dedup/dedup.h"
#include "dedup/role.h"
#include "dedup/tier.h"

void hedge_init(struct hedge *h)
{
    memset(h, 0, sizeof *h);
    pthread_mutex_init(&h->mutex, NULL);
    h->tokens = HEDGE_BURST;
}

void hedge_free(struct hedge *h)
{
    pthread_mutex_destroy(&h->mutex);
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t measure(const struct hedge *h)
{
    int64_t sorted[HEDGE_TIMES];
    unsigned n = h->n_times < HEDGE_TIMES ? h->n_times : HEDGE_TIMES;
    memcpy(sorted, h->times, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, ascending);
    return sorted[(n * 99 - 1) / 100];
}

/* Before anything was measured it is as long as it may be. */
static int64_t after(const struct hedge *h, int64_t hedge_after_ms)
{
    int64_t us = h->n_times > 0 ? 3 * h->p99 : HEDGE_AFTER_MOST_US;
    us = us < HEDGE_AFTER_LEAST_US ? HEDGE_AFTER_LEAST_US : us;
    us = us > HEDGE_AFTER_MOST_US ? HEDGE_AFTER_MOST_US : us;
    return hedge_after_ms > 0 ? hedge_after_ms * 1000 : us;
}

static void lapse(struct hedge *h, int64_t now_us)
{
    if (h->down && now_us - h->late_us >= HEDGE_LAPSE_US) {
        h->down = false;
        h->late = HEDGE_LATE_MAX - 1; /* one more will do */
    }
}

void hedge_begin(struct hedge *h, int64_t now_us, int64_t hedge_after_ms, struct hedge_plan *out)
{
    pthread_mutex_lock(&h->mutex);
    lapse(h, now_us);
    *out = (struct hedge_plan){.first = h->down, .disk = true, .after_us = after(h, hedge_after_ms)};
    if (h->down) {
        out->disk = now_us >= h->trial_us;
        h->trial_us = out->disk ? now_us + HEDGE_TRIAL_US : h->trial_us;
    }
    pthread_mutex_unlock(&h->mutex);
}

bool hedge_may(struct hedge *h, uint64_t questions, bool refused)
{
    pthread_mutex_lock(&h->mutex);
    if (questions > h->questions) {
        h->tokens += (double)(questions - h->questions) / HEDGE_BUDGET;
        h->tokens = h->tokens < HEDGE_BURST ? h->tokens : HEDGE_BURST;
        h->questions = questions;
    }
    bool may = refused || h->down || h->tokens >= 1;
    if (may && !refused && !h->down) {
        h->tokens--;
    }
    pthread_mutex_unlock(&h->mutex);
    return may;
}

/* One that was late counts as long as it may take: else a disk that gets slower would be given ever more time. */
static void note(struct hedge *h, int64_t us)
{
    h->times[h->n_times % HEDGE_TIMES] = us < HEDGE_AFTER_MOST_US ? us : HEDGE_AFTER_MOST_US;
    if (++h->n_times >= 2 * HEDGE_TIMES) {
        h->n_times -= HEDGE_TIMES;
    }
    if (h->n_times % 8 == 1 || h->n_times < 8) {
        h->p99 = measure(h);
    }
}

static void be_late(struct hedge *h, int64_t now_us)
{
    h->late_us = now_us;
    if (h->late < HEDGE_LATE_MAX && ++h->late == HEDGE_LATE_MAX) {
        h->down = true;
        h->trial_us = now_us + HEDGE_TRIAL_US;
    }
}

void hedge_disk_late(struct hedge *h, int64_t now_us)
{
    pthread_mutex_lock(&h->mutex);
    be_late(h, now_us);
    pthread_mutex_unlock(&h->mutex);
}

void hedge_disk_answered(struct hedge *h, int64_t now_us, int64_t took_us, int64_t after_us, bool told)
{
    pthread_mutex_lock(&h->mutex);
    note(h, took_us);
    if (took_us <= after_us) {
        h->late = 0;
        h->down = false;
    } else if (!told) {
        be_late(h, now_us);
    }
    pthread_mutex_unlock(&h->mutex);
}

bool hedge_disk_is_down(struct hedge *h, int64_t now_us)
{
    pthread_mutex_lock(&h->mutex);
    lapse(h, now_us);
    bool down = h->down;
    pthread_mutex_unlock(&h->mutex);
    return down;
}

void hedge_figures_each(struct hedge *h, const struct dedup *dedup, figure_visit *visit, void *arg)
{
    static const struct figure down = {
        "hedge_disk_down", "hedge_disk_down", FIGURE_GAUGE,
        "1 while the disk is late, or can't be read, so that the second tier is asked first."};
    static const struct figure wanted = {"second_tier_wanted", "second_tier_wanted", FIGURE_GAUGE,
                                         "1 on a primary where a second tier is configured (replica_hedge)."};
    static const struct figure well = {"second_tier_up", "second_tier_up", FIGURE_GAUGE,
                                       "1 while the second tier can be asked."};
    char why[sizeof((struct err *)0)->text];
    struct tier *tier = dedup->tier;
    visit(arg, &wanted, tier != NULL && role_is_primary(dedup->role));
    visit(arg, &well, tier != NULL && tier->ops->is_well(tier, why, sizeof why));
    visit(arg, &down, hedge_disk_is_down(h, clock_real_us()));
}
