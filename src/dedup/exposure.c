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

/* ages: ascending. */
static bool caps_hide(const struct exposure *e, const struct policy_cap *caps, int64_t n_caps, const int64_t *ages,
                      size_t n, int64_t *until_ms)
{
    int64_t longest = -1;
    *until_ms = 0;
    for (int64_t i = 0; i < n_caps; i++) {
        const struct policy_cap *cap = &caps[i];
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

bool exposure_hides(const struct exposure *e, const int64_t *at_ms, size_t n, int64_t *until_ms)
{
    const struct policy *p = e->policy != NULL ? e->policy : &policy_plain;
    int64_t ages[POLICY_TIMES];
    n = sort_ages(e, at_ms, n, ages);
    return caps_hide(e, p->caps, p->n_caps, ages, n, until_ms);
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

/* --- groups --- */

/* The entries of a group are a chain, the newest first. */
struct exposure_group_entry {
    struct exposure_sent of;
    uint32_t older; /* 1 + its place; 0: none is */
};

static int by_age(const void *a, const void *b)
{
    const struct exposure_sent *x = a, *y = b;
    return (x->age_ms > y->age_ms) - (x->age_ms < y->age_ms);
}

/* Beyond it nothing counts. */
static int64_t longest_within(const struct policy *p)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < p->n_group_caps; i++) {
        if (p->group_caps[i].within_ms == 0) {
            return INT64_MAX;
        }
        longest = p->group_caps[i].within_ms > longest ? p->group_caps[i].within_ms : longest;
    }
    return longest;
}

int exposure_groups_of(const struct exposure *e, const struct store_view *view, struct buf *out)
{
    const size_t n_items = delivered_items(view->deliveries, view->n_deliveries), before = out->len;
    const int64_t longest = longest_within(e->policy);
    if (n_items == 0) {
        return 0; /* there may be no memory at all to point at */
    }
    if (buf_reserve(out, n_items * sizeof(struct exposure_sent)) < 0) {
        out->failed = false;
        return ERR_NOMEM;
    }
    struct exposure_sent *all = (struct exposure_sent *)(void *)(out->data + before);
    for (size_t i = 0; i < view->n_deliveries; i++) {
        const struct store_delivery *one = &view->deliveries[i];
        struct exposure_sent *item = &all[one->which];
        if (one->nth == 0) {
            *item = (struct exposure_sent){one->group, one->hash, exposure_age(e, delivered_ms(one->stamp))};
        } else if (item->group == 0) {
            item->group = one->group;
        }
    }
    size_t n = 0;
    bool ascend = true;
    for (size_t i = 0; i < n_items; i++) {
        if (all[i].group != 0 && all[i].age_ms < longest) {
            ascend = ascend && (n == 0 || all[n - 1].age_ms <= all[i].age_ms);
            all[n++] = all[i];
        }
    }
    if (!ascend) { /* a time that lies ahead is long ago */
        qsort(all, n, sizeof *all, by_age);
    }
    out->len = before + n * sizeof *all;
    return 0;
}

void exposure_groups_free(struct exposure_groups *g)
{
    free(g->entries);
    free(g->cells);
    *g = (struct exposure_groups){0};
}

static uint32_t *group_cell(const struct exposure_groups *g, uint64_t group)
{
    size_t at = (size_t)group & g->mask;
    while (g->cells[at] != 0 && g->entries[g->cells[at] - 1].of.group != group) {
        at = (at + 1) & g->mask;
    }
    return &g->cells[at];
}

/* Of entries that are there, in their order: the newest of each group. */
static void fill_cells(struct exposure_groups *g)
{
    memset(g->cells, 0, (g->mask + 1) * sizeof *g->cells);
    for (size_t i = 0; i < g->n; i++) {
        uint32_t *cell = group_cell(g, g->entries[i].of.group);
        g->entries[i].older = *cell;
        *cell = (uint32_t)i + 1;
    }
}

/* Room for so many entries, at a load of at most a half; chains stay. */
static int make_room(struct exposure_groups *g, size_t n)
{
    if (n <= g->room) {
        return 0;
    }
    size_t room = g->room < 8 ? 8 : g->room;
    while (room < n) {
        room *= 2;
    }
    uint32_t *cells = calloc(2 * room, sizeof *cells), *old = g->cells;
    struct exposure_group_entry *entries = cells != NULL ? realloc(g->entries, room * sizeof *entries) : NULL;
    if (entries == NULL) {
        free(cells);
        return ERR_NOMEM;
    }
    const size_t n_old = old != NULL ? g->mask + 1 : 0;
    g->entries = entries;
    g->room = room;
    g->cells = cells;
    g->mask = 2 * room - 1;
    for (size_t i = 0; i < n_old && g->n > 0; i++) {
        if (old[i] != 0) {
            *group_cell(g, entries[old[i] - 1].of.group) = old[i];
        }
    }
    free(old);
    return 0;
}

int exposure_groups_begin(struct exposure_groups *g, const struct exposure_sent *sent, size_t n)
{
    g->n = 0;
    if (make_room(g, n + 1) < 0) {
        return ERR_NOMEM;
    }
    for (size_t i = n; i-- > 0;) {
        g->entries[g->n++] = (struct exposure_group_entry){sent[i], 0};
    }
    fill_cells(g);
    return 0;
}

bool exposure_groups_hide(const struct exposure_groups *g, const struct exposure *e, uint64_t group, int64_t *until_ms)
{
    int64_t ages[POLICY_TIMES];
    size_t n = 0;
    *until_ms = 0;
    for (uint32_t at = group != 0 ? *group_cell(g, group) : 0; at != 0 && n < POLICY_TIMES;
         at = g->entries[at - 1].older) {
        ages[n++] = g->entries[at - 1].of.age_ms;
    }
    return n > 0 && caps_hide(e, e->policy->group_caps, e->policy->n_group_caps, ages, n, until_ms);
}

int exposure_groups_take(struct exposure_groups *g, uint64_t group, uint64_t hash)
{
    if (group == 0) {
        return 0;
    }
    for (uint32_t *at = group_cell(g, group); *at != 0; at = &g->entries[*at - 1].older) {
        struct exposure_group_entry *one = &g->entries[*at - 1];
        if (one->of.hash == hash) { /* becomes the newest; its cell may be empty for a moment */
            const uint32_t it = *at;
            *at = one->older;
            uint32_t *cell = group_cell(g, group);
            one->of.age_ms = 0;
            one->older = *cell;
            *cell = it;
            return 0;
        }
    }
    if (make_room(g, g->n + 1) < 0) {
        return ERR_NOMEM;
    }
    uint32_t *cell = group_cell(g, group);
    g->entries[g->n] = (struct exposure_group_entry){{group, hash, 0}, *cell};
    *cell = (uint32_t)++g->n;
    return 0;
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

size_t exposure_ages(const struct exposure *e, const struct store_view *hides, struct exposed_age *out, size_t most)
{
    size_t n = 0;
    for (size_t i = 0; i < hides->n_deliveries && n < most; i++) {
        const struct store_delivery *one = &hides->deliveries[i];
        if (one->nth == 0) { /* the newest */
            out[n++] = (struct exposed_age){one->hash, exposure_age(e, delivered_ms(one->stamp))};
        }
    }
    return n;
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
