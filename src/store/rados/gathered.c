#include "store/rados/gathered.h"

#include <limits.h>
#include <string.h>

#include "base/calendar.h"
#include "base/log.h"
#include "store/rados/rados.h"
#include "store/tombstones.h"

enum { PLAY_WEIGHT = sizeof(uint64_t), FIRST_OF_A_LIST = 16, FILTERS_A_PAGE = 4 };

const struct fetch_range gathered_ranges[GATHERED_RANGES] = {{"d", CLUSTER_PAGE},   {"f", CLUSTER_PAGE},
                                                             {"m", FILTERS_A_PAGE}, {"p", CLUSTER_PAGE},
                                                             {"q", CLUSTER_PAGE},   {"x", CLUSTER_PAGE}};

const struct fetch_range gathered_filters[1] = {{"m", FILTERS_A_PAGE}};

const struct fetch_range gathered_but_filters[GATHERED_RANGES - 1] = {
    {"d", CLUSTER_PAGE}, {"f", CLUSTER_PAGE}, {"p", CLUSTER_PAGE}, {"q", CLUSTER_PAGE}, {"x", CLUSTER_PAGE}};

void gathered_begin(struct gathered *g, struct arena *arena, size_t limit)
{
    *g = (struct gathered){.arena = arena,
                           .limit = limit,
                           .forgotten_ms = INT64_MIN,
                           .oldest_ms = INT64_MAX,
                           .last_month = INT_MIN,
                           .delivered_month = INT_MIN,
                           .directory = slice_of("", 0),
                           .strange = slice_of("", 0)};
}

/* Room for one more. The old list stays in the arena, half as large. */
static bool grow(struct gathered *g, void *list, size_t n, size_t *cap, size_t size)
{
    void **at = list;
    if (n < *cap) {
        return true;
    }
    size_t more = *cap == 0 ? FIRST_OF_A_LIST : 2 * *cap;
    void *now = arena_alloc(g->arena, more * size);
    if (now != NULL) {
        if (n > 0) {
            memcpy(now, *at, n * size);
        }
        *at = now;
        *cap = more;
    }
    return now != NULL;
}

#define GROW(g, list) grow((g), &(g)->list, (g)->n_##list, &(g)->cap_##list, sizeof *(g)->list)

static int no_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while reading a user");
}

static int weigh(struct gathered *g, size_t bytes, struct err *err)
{
    g->weight += bytes;
    return g->limit > 0 && g->weight > g->limit
               ? err_set(err, ERR_LARGE, "the user has more than %zu KiB of filters and plays", g->limit / 1024)
               : 0;
}

static void note_month(struct gathered *g, int month)
{
    g->last_month = month > g->last_month ? month : g->last_month;
}

static int take_damage(struct gathered *g, int month)
{
    if (g->n_damaged > 0 && g->damaged[g->n_damaged - 1] == month) {
        return 0;
    }
    if (!GROW(g, damaged)) {
        return ERR_NOMEM;
    }
    g->damaged[g->n_damaged++] = month;
    if (month > 0) {
        note_month(g, month);
    }
    return 0;
}

static int take_delivery(struct gathered *g, const struct layout_key *key, struct slice value)
{
    struct layout_delivery d;
    if (layout_delivery_read(value, &d) < 0) {
        return take_damage(g, 0);
    }
    const char *copy = arena_copy(g->arena, d.item.data, d.item.len);
    if (copy == NULL || !GROW(g, deliveries)) {
        return ERR_NOMEM;
    }
    g->deliveries[g->n_deliveries++] = (struct store_delivery){
        .stamp = key->stamp, .hash = key->hash, .item = slice_of(copy, d.item.len), .group = d.group};
    g->delivered_month = d.month > g->delivered_month ? d.month : g->delivered_month;
    note_month(g, d.month);
    return 0;
}

static int take_play(struct gathered *g, const struct layout_key *key, struct slice value)
{
    int64_t ms = 0;
    layout_ms(value, &ms); /* one that can't be read is as good as old */
    if (!GROW(g, plays)) {
        return ERR_NOMEM;
    }
    g->plays[g->n_plays++] = (struct store_play){key->hash, key->month};
    g->oldest_ms = ms < g->oldest_ms ? ms : g->oldest_ms;
    note_month(g, key->month);
    return 0;
}

static int take_part(struct gathered *g, const struct layout_key *key, struct slice value)
{
    const char *copy = arena_copy(g->arena, value.data, value.len);
    if (copy == NULL || !GROW(g, parts)) {
        return ERR_NOMEM;
    }
    g->parts[g->n_parts++] = (struct gathered_part){key->month, key->part, slice_of(copy, value.len)};
    note_month(g, key->month);
    return 0;
}

/* Its parts are there, or have been. */
static int take_directory(struct gathered *g, struct slice value)
{
    g->directory = slice_of(arena_copy(g->arena, value.data, value.len), value.len);
    if (g->directory.data == NULL) {
        g->directory = slice_of("", 0);
        return ERR_NOMEM;
    }
    int n = layout_directory_count(g->directory);
    for (int i = 0; i < n; i++) {
        note_month(g, layout_directory_part(g->directory, (size_t)i).month);
    }
    return 0;
}

static int take_forgotten(struct gathered *g, const struct layout_key *key, struct slice value)
{
    const uint64_t item = tombstone_item(key->hash);
    int64_t ms = 0;
    if (key->item && !g->keeps_forgotten) {
        return 0;
    }
    if (!key->item) {
        g->forgotten_damaged = g->forgotten_damaged || layout_ms(value, &g->forgotten_ms) < 0;
        return 0;
    }
    if (layout_ms(value, &ms) < 0) {
        g->item_damaged = true;
        return 0;
    }
    if (g->n_forgotten > 0 && g->forgotten[g->n_forgotten - 1].item == item) { /* those of 0 and 1 */
        return 0;
    }
    if (!GROW(g, forgotten)) {
        return ERR_NOMEM;
    }
    g->forgotten[g->n_forgotten++] = (struct snapshot_forgotten){item, ms};
    return 0;
}

static int take(struct gathered *g, const struct layout_key *key, struct slice value)
{
    switch (key->kind) {
    case LAYOUT_DELIVERY:
        return take_delivery(g, key, value);
    case LAYOUT_PLAY:
        return take_play(g, key, value);
    case LAYOUT_FILTER:
        return take_part(g, key, value);
    case LAYOUT_FORGOTTEN:
        return take_forgotten(g, key, value);
    case LAYOUT_DAMAGED:
        return take_damage(g, key->month);
    case LAYOUT_EXCEPTION:
        if (!GROW(g, exceptions)) {
            return ERR_NOMEM;
        }
        g->exceptions[g->n_exceptions++] = key->hash;
        return 0;
    case LAYOUT_DIRECTORY:
        return take_directory(g, value);
    case LAYOUT_GENERATION:
    case LAYOUT_OTHER:
        break;
    }
    return 0;
}

int gathered_take(struct gathered *g, const struct layout_key *key, struct slice value, struct err *err)
{
    size_t bytes = key->kind == LAYOUT_FILTER ? value.len : key->kind == LAYOUT_PLAY ? PLAY_WEIGHT : 0;
    int result = weigh(g, bytes, err);
    return result < 0 ? result : take(g, key, value) < 0 ? no_memory(err) : 0;
}

int gathered_newest(const struct gathered *g)
{
    bool damaged = g->n_damaged > 0 || g->strange.len > 0 || layout_directory_count(g->directory) < 0;
    return g->last_month == INT_MIN && damaged ? INT_MAX : g->last_month;
}

/* --- a view --- */

struct making {
    struct gathered *g;
    const struct gathered_question *q;
    struct store_view *view;
    struct store_month *months;
    bool leave_out; /* on_damage = answer */
    int first;      /* month that counts */
    struct err *err;
};

static int tell_damage(struct making *m, int month)
{
    char name[MONTH_TEXT];
    m->view->damaged_months++;
    return m->leave_out ? 0
                        : err_set(m->err, ERR_CORRUPT, "user %s: %s can't be read", log_quote(m->q->user),
                                  month == 0 ? "deliveries" : month_name(month, name));
}

static int look_at_marks(struct making *m)
{
    int result = 0;
    for (size_t i = 0; i < m->g->n_damaged && result == 0; i++) {
        int month = m->g->damaged[i];
        if (month == 0 || month >= m->first) {
            result = tell_damage(m, month);
        }
    }
    return result;
}

static const struct gathered_part *find_part(const struct gathered *g, const struct layout_part *wanted)
{
    size_t low = 0, high = g->n_parts;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct gathered_part *p = &g->parts[middle];
        if (p->month < wanted->month || (p->month == wanted->month && p->part < wanted->part)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < g->n_parts && g->parts[low].month == wanted->month && g->parts[low].part == wanted->part
               ? &g->parts[low]
               : NULL;
}

/* What is no damage of a month: filters that are not listed, and keys of another program. Either may stand where
 * something was. */
static int look_at_keys(struct making *m)
{
    const struct gathered *g = m->g;
    int n = layout_directory_count(g->directory);
    if (n >= 0 && (n > 0 || g->n_parts == 0) && g->strange.len == 0) {
        return 0;
    }
    m->view->damaged_months++;
    if (m->leave_out) {
        return 0;
    }
    return g->strange.len > 0 ? err_set(m->err, ERR_CORRUPT, "user %s: there is a key that Unseen didn't write: %s",
                                        log_quote(m->q->user), log_quote(g->strange))
                              : err_set(m->err, ERR_CORRUPT, "user %s: the directory of the filters can't be read",
                                        log_quote(m->q->user));
}

/* Each part that the directory has must be there. */
static int look_for_parts(struct making *m)
{
    const struct gathered *g = m->g;
    int n = layout_directory_count(g->directory), result = 0;
    for (int i = 0; i < n && result == 0; i++) {
        const struct layout_part wanted = layout_directory_part(g->directory, (size_t)i);
        const struct gathered_part *found = find_part(g, &wanted);
        if (wanted.month >= m->first && (found == NULL || found->blob.len != wanted.bytes)) {
            result = tell_damage(m, wanted.month);
        }
    }
    return result;
}

/* Parts of one month become one filter, as long as they have room in it. */
static void unite(struct making *m, int month, const struct filter *filter, uint32_t bytes)
{
    struct store_month *last = m->view->n_months > 0 ? &m->months[m->view->n_months - 1] : NULL;
    if (last != NULL && last->month == month && last->filter.n_parts + filter->n_parts <= FILTER_PARTS_MAX) {
        memcpy(&last->filter.parts[last->filter.n_parts], filter->parts, filter->n_parts * sizeof *filter->parts);
        last->filter.n_parts += filter->n_parts;
        last->bytes += bytes;
    } else {
        m->months[m->view->n_months++] = (struct store_month){.month = month, .filter = *filter, .bytes = bytes};
    }
}

/* 0: it is in the view, or handed over; ERR_CORRUPT, with nothing of it taken; ERR_NOMEM. A scan hands over as it
 * reads, so what is to be left out is looked at before. */
static int read_part(struct making *m, const struct gathered_part *part)
{
    const struct store_scan *scan = m->q->scan;
    struct slice blob = part->blob;
    struct filter filter = {0};
    struct err err;
    int result = scan != NULL && m->leave_out ? filter_weigh(blob.data, blob.len, &filter, &err) : 0;
    if (result == 0) {
        result = scan == NULL ? filter_decode(blob.data, blob.len, m->g->arena, &filter, &err)
                              : filter_scan(blob.data, blob.len, scan->see, scan->arg, &filter, &err);
    }
    if (result == 0) {
        unite(m, part->month, &filter, (uint32_t)blob.len);
    }
    return result;
}

/* Those of the month that ends before `end`. Of a damaged month that is left out the other parts count. */
static int read_month(struct making *m, size_t begin, size_t end)
{
    const struct store_scan *scan = m->q->scan;
    int month = m->g->parts[begin].month, result = 0;
    bool good = true;
    for (size_t i = begin; i < end && result != ERR_NOMEM && (good || m->leave_out); i++) {
        result = read_part(m, &m->g->parts[i]);
        good = good && result == 0;
    }
    if (scan != NULL) {
        scan->month(scan->arg, month, good || m->leave_out);
    }
    if (result == ERR_NOMEM) {
        return no_memory(m->err);
    }
    return good ? 0 : tell_damage(m, month);
}

static int read_months(struct making *m)
{
    const struct gathered *g = m->g;
    m->months = arena_alloc(g->arena, g->n_parts * sizeof *m->months + 1);
    if (m->months == NULL) {
        return no_memory(m->err);
    }
    m->view->months = m->months;
    int result = 0;
    for (size_t end = g->n_parts, begin; end > 0 && result == 0 && g->parts[end - 1].month >= m->first; end = begin) {
        begin = end - 1;
        while (begin > 0 && g->parts[begin - 1].month == g->parts[end - 1].month) {
            begin--;
        }
        result = read_month(m, begin, end);
    }
    return result;
}

int gathered_last(const struct gathered *g, size_t max, struct delivered *out)
{
    *out = (struct delivered){.list = arena_alloc(g->arena, g->n_deliveries * sizeof *out->list + 1)};
    if (out->list == NULL) {
        return ERR_NOMEM;
    }
    if (g->n_deliveries > 0) {
        memcpy(out->list, g->deliveries, g->n_deliveries * sizeof *out->list);
    }
    out->n = g->n_deliveries;
    delivered_unite(out, max);
    return 0;
}

struct delivered gathered_unite(struct gathered *g, size_t max)
{
    struct delivered last = {.list = g->deliveries, .n = g->n_deliveries};
    delivered_unite(&last, max);
    return last;
}

static void show_lists(struct making *m)
{
    struct gathered *g = m->g;
    struct store_view *view = m->view;
    for (size_t i = 0; i < g->n_plays; i++) {
        if (g->plays[i].month >= m->first) {
            g->plays[view->n_plays++] = g->plays[i];
        }
    }
    view->plays = g->plays;
    const struct delivered last = gathered_unite(g, (size_t)config_now(m->q->s->cfg)->delivered_max);
    view->deliveries = last.list;
    view->n_deliveries = last.n;
    view->exceptions = g->exceptions;
    view->n_exceptions = g->n_exceptions;
}

int gathered_view(struct gathered *g, const struct gathered_question *question, struct store_view *view,
                  struct err *err)
{
    struct rados_store *s = question->s;
    int first_kept = guarded_clock_first_kept(&s->clock);
    struct making m = {.g = g,
                       .q = question,
                       .view = view,
                       .leave_out = config_now(s->cfg)->on_damage == DAMAGE_ANSWER,
                       .first = question->first_month > first_kept ? question->first_month : first_kept,
                       .err = err};
    *view = (struct store_view){0};
    if (gathered_newest(g) == INT_MIN || gathered_newest(g) < first_kept) {
        return 0;
    }
    view->known = true;
    int result = look_at_marks(&m);
    result = result < 0 ? result : look_at_keys(&m);
    result = result < 0 ? result : look_for_parts(&m);
    result = result < 0 ? result : read_months(&m);
    if (result == 0) {
        show_lists(&m);
        if (view->damaged_months > 0) {
            RADOS_COUNT(s, damaged_answers, 1);
        }
    }
    return result;
}
