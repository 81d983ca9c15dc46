#include "dedup/exposure.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/err.h"
#include "store/user/deliveries.h"

_Static_assert((int)POLICY_TIMES == DELIVERED_TIMES, "a cap counts what is remembered");

enum { AHEAD_MS = 24 * 3600 * 1000 };

int64_t exposure_age(const struct exposure *e, int64_t at_ms)
{
    at_ms = at_ms > e->later_ms + AHEAD_MS ? 0 : at_ms;
    return at_ms < e->earlier_ms ? e->earlier_ms - at_ms : 0;
}

/* Ascending. Returns how many there are. */
static size_t sort_ages(const struct exposure *e, const int64_t *at_ms, size_t n, int64_t ages[POLICY_TIMES])
{
    n = n < POLICY_TIMES ? n : POLICY_TIMES;
    for (size_t i = 0; i < n; i++) {
        const int64_t age = exposure_age(e, at_ms[i]);
        size_t at = i;
        for (; at > 0 && ages[at - 1] > age; at--) {
            ages[at] = ages[at - 1];
        }
        ages[at] = age;
    }
    return n;
}

bool exposure_hides(const struct exposure *e, const int64_t *at_ms, size_t n, int64_t *until_ms)
{
    const struct policy *p = e->policy != NULL ? e->policy : &policy_plain;
    int64_t ages[POLICY_TIMES], longest = -1;
    n = sort_ages(e, at_ms, n, ages);
    *until_ms = 0;
    for (int64_t i = 0; i < p->n_caps; i++) {
        const struct policy_cap *cap = &p->caps[i];
        if ((size_t)cap->times > n) {
            continue;
        }
        const int64_t age = ages[cap->times - 1];
        if (cap->within_ms == 0) {
            return true;
        }
        if (age < cap->within_ms && cap->within_ms - age > longest) {
            longest = cap->within_ms - age;
        }
    }
    if (longest > 0) {
        *until_ms = e->earlier_ms + longest;
    }
    return longest > 0;
}

bool exposure_hides_item(const struct exposure *e, const struct store_delivery *list, size_t n, uint64_t hash,
                         int64_t *until_ms)
{
    int64_t at_ms[POLICY_TIMES];
    size_t found = 0;
    for (size_t i = 0; i < n && found < POLICY_TIMES; i++) {
        if (list[i].hash == hash) {
            at_ms[found++] = delivered_ms(list[i].stamp);
        }
    }
    *until_ms = 0;
    return found > 0 && exposure_hides(e, at_ms, found, until_ms);
}

int64_t exposure_month_ends(const struct exposure *e, int month)
{
    return month_start_ms(month + e->months + 1);
}

/* --- of a view --- */

enum { KEEP_BYTES = 1024 * 1024 };

/* The times of an item. */
struct exposure_item {
    int64_t at_ms[POLICY_TIMES];
    size_t n;
};

void exposure_memory_free(struct exposure_memory *m)
{
    for (size_t i = 0; i < sizeof m->rooms / sizeof m->rooms[0]; i++) {
        free(m->rooms[i].at);
    }
    *m = (struct exposure_memory){0};
}

/* NULL: there is no memory. What was there is lost; what a giant needed isn't kept for others. */
static void *room_for(struct exposure_room *room, size_t bytes)
{
    if (room->at == NULL || room->bytes < bytes || room->bytes > KEEP_BYTES) {
        free(room->at);
        room->bytes = bytes + bytes / 2 + 64;
        room->at = malloc(room->bytes);
        room->bytes = room->at != NULL ? room->bytes : 0;
    }
    return room->at;
}

static int keep_plays(const struct exposure *e, const struct store_view *view, struct exposure_memory *m,
                      struct store_view *out)
{
    struct store_play *plays = room_for(&m->rooms[0], view->n_plays * sizeof *plays);
    if (plays == NULL) {
        return ERR_NOMEM;
    }
    out->plays = plays;
    out->n_plays = 0;
    for (size_t i = 0; i < view->n_plays; i++) {
        if (view->plays[i].month >= e->first_month) {
            plays[out->n_plays++] = view->plays[i];
        }
    }
    while (out->n_months > 0 && out->months[out->n_months - 1].month < e->first_month) { /* the newest come first */
        out->n_months--;
    }
    return 0;
}

static int keep_deliveries(const struct exposure *e, const struct store_view *view, struct exposure_memory *m,
                           struct store_view *out)
{
    const size_t n_items = delivered_items(view->deliveries, view->n_deliveries);
    struct store_delivery *list = room_for(&m->rooms[1], n_items * sizeof *list);
    struct exposure_item *items = room_for(&m->rooms[2], n_items * sizeof *items);
    if (list == NULL || items == NULL) {
        return ERR_NOMEM;
    }
    for (size_t i = 0; i < view->n_deliveries; i++) {
        const struct store_delivery *one = &view->deliveries[i];
        struct exposure_item *item = &items[one->which];
        if (one->nth == 0) {
            list[one->which] = *one;
            item->n = 0;
        }
        item->at_ms[item->n++] = delivered_ms(one->stamp);
    }
    out->deliveries = list;
    out->n_deliveries = 0;
    for (size_t i = 0; i < n_items; i++) {
        int64_t until_ms;
        if (exposure_hides(e, items[i].at_ms, items[i].n, &until_ms)) {
            list[out->n_deliveries++] = list[i];
        }
    }
    return 0;
}

static bool hides_what_is_remembered(const struct policy *p)
{
    return p->n_caps == 1 && p->caps[0].times == 1 && p->caps[0].within_ms == 0;
}

int exposure_view(const struct exposure *e, const struct store_view *view, struct exposure_memory *m,
                  struct store_view *out)
{
    int rc = 0;
    *out = *view;
    if (policy_is_plain(e->policy)) {
        return 0;
    }
    if (e->policy->plays != POLICY_PLAYS_WINDOW) {
        rc = keep_plays(e, view, m, out);
    }
    if (rc == 0 && e->policy->n_caps == 0) {
        out->n_deliveries = 0;
    } else if (rc == 0 && !hides_what_is_remembered(e->policy)) {
        rc = keep_deliveries(e, view, m, out);
    }
    return rc;
}

/* The items in a table by their hash, 1 + the number of each, so that a list is read once. */
int exposure_tell(const struct exposure *e, const struct store_view *view, struct exposure_memory *m,
                  const uint64_t *hashes, size_t n, struct exposed *out)
{
    size_t mask = 1;
    while (mask + 1 < 2 * n) {
        mask = 2 * mask + 1;
    }
    uint32_t *cells = room_for(&m->rooms[0], (mask + 1) * sizeof *cells);
    if (cells == NULL) {
        return ERR_NOMEM;
    }
    memset(cells, 0, (mask + 1) * sizeof *cells);
    for (size_t i = 0; i < n; i++) {
        size_t at = (size_t)hashes[i] & mask;
        while (cells[at] != 0) {
            at = (at + 1) & mask;
        }
        cells[at] = (uint32_t)i + 1;
        out[i] = (struct exposed){.times = 0};
    }
    for (size_t k = 0; k < view->n_deliveries; k++) {
        const struct store_delivery *one = &view->deliveries[k];
        const int64_t age_ms = exposure_age(e, delivered_ms(one->stamp));
        for (size_t at = (size_t)one->hash & mask; cells[at] != 0; at = (at + 1) & mask) {
            struct exposed *item = &out[cells[at] - 1];
            if (hashes[cells[at] - 1] == one->hash) {
                item->age_ms = item->times == 0 || age_ms < item->age_ms ? age_ms : item->age_ms;
                item->times++;
            }
        }
    }
    return 0;
}
