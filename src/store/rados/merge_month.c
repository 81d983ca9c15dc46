/* One month of a merge: parts united, plays added, sealed, written as a new part. */
#include <limits.h>
#include <string.h>

#include "base/calendar.h"
#include "base/log.h"
#include "filter/error_budget.h"
#include "filter/filter.h"
#include "store/rados/merge_impl.h"
#include "store/user/plays.h"

enum { SEAL_AFTER_MS = 24 * 3600 * 1000 }; /* behind the end of the month, for plays that come late */

bool merge_is_over(const struct merge *m, int month)
{
    int64_t later, earlier;
    guarded_clock_now(&m->update.s->clock, &later, &earlier);
    return m->first_kept != INT_MIN && month_start_ms(month + 1) + SEAL_AFTER_MS < earlier;
}

struct month {
    int month;
    struct plays plays;
    bool seal;
    struct plays_limits limits;
};

/* What the parts that stay leave to the new one. */
static void share_budget(const struct merge *m, struct month *month)
{
    uint32_t live = 0;
    bool alone = true;
    for (size_t i = 0; i < m->n_parts; i++) {
        if (m->parts[i].month == month->month && !m->unite[i]) {
            alone = false;
            live += m->parts[i].sealed ? 0 : m->parts[i].live;
        }
    }
    month->limits = plays_limits(m->update.s->error_rate);
    month->limits.coarse_max = alone ? month->limits.coarse_max : 0;
    month->limits.live_max = live < month->limits.live_max ? month->limits.live_max - live : 0;
}

static int add_plays(struct merge *m, struct filter *filter, const struct month *month)
{
    return month->plays.n == 0 ? 0 : plays_add(filter, &month->plays, &month->limits, &m->update.arena);
}

static struct slice blob_of(const struct merge *m, const struct layout_part *part)
{
    for (size_t i = 0; i < m->gathered.n_parts; i++) {
        const struct gathered_part *p = &m->gathered.parts[i];
        if (p->month == part->month && p->part == part->part) {
            return p->blob;
        }
    }
    return slice_of(NULL, 0);
}

/* A part that can't be read stays as it is, and is told to a question for the month; it holds up nothing else. */
static void leave_alone(struct merge *m, size_t i, const char *why)
{
    char name[MONTH_TEXT];
    m->unite[i] = false;
    log_error("part of a month not merged", "user=%s month=%s error=%s", log_quote(m->update.user),
              month_name(m->parts[i].month, name), log_quote_str(why));
}

static int join_parts(struct merge *m, struct filter *filter, const struct month *month)
{
    struct arena *arena = &m->update.arena;
    int result = 0;
    for (size_t i = 0; i < m->n_parts && result == 0; i++) {
        struct filter other = {0};
        struct err why = {0};
        if (!m->unite[i] || m->parts[i].month != month->month) {
            continue;
        }
        struct slice blob = blob_of(m, &m->parts[i]);
        int code = blob.data == NULL ? err_set(&why, ERR_CORRUPT, "it is not there")
                                     : filter_decode(blob.data, blob.len, arena, &other, &why);
        if (code == ERR_CORRUPT) {
            leave_alone(m, i, why.text);
        } else {
            result = code < 0 ? code : filter_join(filter, &other, month->limits.coarse_max, arena);
        }
    }
    return result;
}

static uint16_t free_number(const struct merge *m, int month)
{
    uint16_t n = 0;
    for (bool taken = true; taken; n = (uint16_t)(n + taken)) {
        taken = false;
        for (size_t i = 0; i < m->n_parts && !taken; i++) {
            taken = m->parts[i].month == month && m->parts[i].part == n;
        }
    }
    return n;
}

static int put_part(struct merge *m, const struct month *month, const struct filter *filter)
{
    struct update *u = &m->update;
    struct buf blob = {0};
    struct layout_part part = layout_part_of(filter, month->month, free_number(m, month->month));
    int result = filter_encode(filter, &blob) < 0 ? update_nomem(u) : 0;
    if (result == 0) {
        part.bytes = (uint32_t)blob.len;
        result = update_set(u, &(struct layout_key){.kind = LAYOUT_FILTER, .month = part.month, .part = part.part},
                            buf_slice(&blob));
    }
    buf_free(&blob);
    if (result == 0) {
        m->unite[m->n_parts] = false;
        m->parts[m->n_parts++] = part;
        m->changed = true;
        m->sealed += part.sealed;
    }
    return result;
}

/* The parts that went into another. */
static int drop_parts(struct merge *m, int month)
{
    size_t kept = 0;
    int result = 0;
    for (size_t i = 0; i < m->n_parts; i++) {
        const struct layout_part p = m->parts[i];
        if (p.month == month && m->unite[i]) {
            const struct layout_key key = {.kind = LAYOUT_FILTER, .month = p.month, .part = p.part};
            result = result < 0 ? result : merge_remove_key(m, &key);
        } else {
            m->unite[kept] = m->unite[i];
            m->parts[kept++] = p;
        }
    }
    m->n_parts = kept;
    return result;
}

static void unite_none(struct merge *m, int month)
{
    for (size_t i = 0; i < m->n_parts; i++) {
        m->unite[i] = m->unite[i] && m->parts[i].month != month;
    }
}

static int merge_month(struct merge *m, struct month *month)
{
    struct update *u = &m->update;
    struct filter filter = {0};
    share_budget(m, month);
    int result = join_parts(m, &filter, month);
    share_budget(m, month); /* some may stay after all */
    result = result < 0 ? result : add_plays(m, &filter, month);
    if (result == ERR_FULL) { /* they don't go together: the plays become a part of their own */
        unite_none(m, month->month);
        share_budget(m, month);
        filter = (struct filter){0};
        result = add_plays(m, &filter, month);
    }
    if (result == 0 && month->seal) {
        result = error_budget_seal(&filter, u->s->error_rate, config_now(u->s->cfg)->window, &u->arena);
    }
    if (result < 0) {
        return result == ERR_NOMEM ? update_nomem(u)
                                   : err_set(&u->err, result, "user %s: a month can't be merged", log_quote(u->user));
    }
    if (filter_items(&filter) == 0) {
        return 0;
    }
    result = put_part(m, month, &filter);
    return result < 0 ? result : drop_parts(m, month->month);
}

/* Whether the walk has something to do in a month without plays: more than one part to unite, or one to seal that will
 * be. A part that stays live after its month's end is tried once a walk. */
static bool is_picked(const struct merge *m, int month)
{
    for (size_t i = 0; i < m->n_parts; i++) {
        if (m->parts[i].month == month && m->unite[i]) {
            return true;
        }
    }
    return false;
}

int merge_months(struct merge *m)
{
    const struct gathered *g = &m->gathered;
    int result = 0;
    for (size_t at = 0, n; at < g->n_plays && result == 0; at += n) {
        struct month month = {.month = g->plays[at].month, .plays = plays_of_month(g->plays, g->n_plays, at)};
        n = month.plays.n;
        month.seal = m->night && merge_is_over(m, month.month);
        if (month.month < m->first_kept) {
            m->too_old += n;
        } else {
            m->merged += n;
            result = merge_month(m, &month);
        }
    }
    for (size_t i = 0; i < m->n_parts && result == 0; i++) {
        if (m->unite[i]) { /* nothing but to be sealed */
            struct month month = {.month = m->parts[i].month, .seal = true};
            result = merge_month(m, &month);
            i = result == 0 && !is_picked(m, month.month) ? (size_t)-1 : i;
        }
    }
    return result;
}

int merge_drop_months(struct merge *m)
{
    for (size_t i = 0; i < m->n_parts; i++) {
        m->unite[i] = m->parts[i].month < m->first_kept;
    }
    int result = 0;
    for (size_t i = 0; i < m->n_parts && result == 0;) {
        if (m->unite[i]) {
            result = drop_parts(m, m->parts[i].month);
        } else {
            i++;
        }
    }
    return result;
}
