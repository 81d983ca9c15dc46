/* From what the store has of a user to the answer of a question: put all of it into one probe, test.
 *
 * Seen is what one of these says, and every function here must agree on it:
 *   - a staged play of a month in the window, or a remembered delivery: by the exact 64-bit hash;
 *   - a part of a month's filter, unless the hash is one of the user's exceptions.
 *
 * The store loads the staged plays before it opens its snapshot of history, so a play that is flushed meanwhile is in
 * one of both, or in both; a union hides it either way.
 *
 * A large user's positions outnumber any candidates, so nothing is built from them: they are led past the candidates as
 * they are decoded (filter/sieve.h), in memory that goes by the candidates.
 */
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "dedup/asker_impl.h"
#include "dedup/pools.h"
#include "store/user/deliveries.h"

struct why;

static bool has_hash(const uint64_t *hashes, size_t n, uint64_t hash)
{
    for (size_t i = 0; i < n; i++) {
        if (hashes[i] == hash) {
            return true;
        }
    }
    return false;
}

/* --- which are unseen? --- */

static int end_sieve(struct asker *a, const struct store_view *view, struct query *q)
{
    for (size_t i = 0; i < view->n_plays; i++) {
        sieve_exact(a->sieve, view->plays[i].hash);
    }
    for (size_t i = 0; i < view->n_deliveries; i++) {
        sieve_exact(a->sieve, view->deliveries[i].hash);
    }
    for (size_t i = 0; i < view->n_exceptions; i++) {
        sieve_except(a->sieve, view->exceptions[i]);
    }
    q->n_unseen = sieve_end(a->sieve, q->unseen);
    q->error = view_error(view);
    return 0;
}

/* Takes those out of unseen which are among n sorted hashes: from its bit `at` on, of more candidates. */
static size_t take_out(uint8_t *unseen, size_t at, const uint64_t *candidates, size_t more, const uint64_t *hashes,
                       size_t n)
{
    size_t taken = 0;
    for (size_t i = 0; i < more; i++) {
        uint8_t *byte = &unseen[(at + i) / 8];
        const uint8_t bit = (uint8_t)(0x80 >> (at + i) % 8);
        if ((*byte & bit) != 0 && hash_is_among(hashes, n, candidates[i])) {
            *byte = (uint8_t)(*byte & ~bit);
            taken++;
        }
    }
    return taken;
}

/* Without deliveries, and then with them. */
static int filter_open(struct asker *a, const struct store_view *hides, const struct why *why, struct query *q,
                       struct err *err)
{
    struct store_view plays = *hides;
    plays.n_deliveries = 0;
    int rc = why != NULL ? end_sieve(a, &plays, q) : view_probe_filter(&a->view, &plays, q, err);
    if (rc < 0 ||
        view_probe_room((void **)&a->view.exact, &a->view.exact_cap, hides->n_deliveries, sizeof *a->view.exact) < 0) {
        return rc < 0 ? rc : err_set(err, ERR_NOMEM, "out of memory for what was sent");
    }
    memcpy(q->open, q->unseen, (q->n + 7) / 8);
    q->n_ages = exposure_ages(&q->exposure, hides, q->ages, q->max_ages);
    uint64_t *hashes = a->view.exact;
    for (size_t i = 0; i < q->n_ages; i++) {
        hashes[i] = q->ages[i].hash;
    }
    hash_sort(hashes, q->n_ages);
    if (q->line == NULL) {
        q->n_unseen -= take_out(q->unseen, 0, q->hashes, q->n, hashes, q->n_ages);
        return 0;
    }
    size_t at = 0;
    for (size_t k = 0; k < q->line->n_pools; at += q->line->pools[k++]->n) {
        q->n_unseen -= take_out(q->unseen, at, q->line->pools[k]->hashes, q->line->pools[k]->n, hashes, q->n_ages);
    }
    return 0;
}

/* --- where is it seen? --- */

/* A large user's months that hide; which have the item of QUERY_WHY. */
struct why {
    struct sieve *sieve;
    const struct exposure *exposure;
    int n;
    int months[PLACES_MAX];
};

static void why_see(void *arg, const struct filter_part *part, uint32_t before, const uint32_t *positions, uint32_t n)
{
    sieve_see(((struct why *)arg)->sieve, part, before, positions, n);
}

static void why_month(void *arg, int month, bool good)
{
    struct why *why = arg;
    good = good && exposure_has_month(why->exposure, month);
    if (sieve_month(why->sieve, good) > 0 && why->n < PLACES_MAX) {
        why->months[why->n++] = month;
    }
}

static bool has_month(const struct why *why, int month)
{
    for (int i = 0; i < why->n; i++) {
        if (why->months[i] == month) {
            return true;
        }
    }
    return false;
}

struct slice place_name(const struct place *place, char out[PLACE_TEXT])
{
    static const char also[] = "also:";
    const size_t len = sizeof also - 1;
    switch (place->kind) {
    case PLACE_BLOCKED:
        return slice_str("blocked");
    case PLACE_STAGED:
        return slice_str("staged");
    case PLACE_DELIVERED:
        return slice_str("delivered");
    case PLACE_ITEM:
        return slice_str("item");
    case PLACE_GROUP:
        return slice_str("group");
    case PLACE_LEGACY:
        return slice_str("legacy");
    case PLACE_ALSO:
        memcpy(out, also, len);
        memcpy(out + len, place->user.data, place->user.len);
        return slice_of(out, len + place->user.len);
    case PLACE_MONTH:
        break;
    }
    return slice_str(month_name(place->month, out));
}

/* why: of a large user; NULL: the view has the filters. */
static void find_places(const struct store_view *view, const struct why *why, struct query *q)
{
    uint64_t hash = q->hashes[0];
    struct place *places = q->places;
    size_t n = 0;
    /* However often an item is staged, it's one place: that of its newest month. */
    for (size_t i = 0; i < view->n_plays; i++) {
        if (view->plays[i].hash == hash && (n == 0 || view->plays[i].month > places[0].month)) {
            places[0] = (struct place){.kind = PLACE_STAGED, .month = view->plays[i].month};
            n = 1;
        }
    }
    for (size_t i = 0; i < view->n_deliveries; i++) {
        if (view->deliveries[i].hash == hash) {
            places[n++] = (struct place){.kind = PLACE_DELIVERED};
            break;
        }
    }
    bool excepted = has_hash(view->exceptions, view->n_exceptions, hash);
    for (size_t i = 0; i < view->n_months && n < PLACES_MAX && !excepted; i++) {
        const struct store_month *m = &view->months[i];
        if (why != NULL ? has_month(why, m->month) : filter_has(&m->filter, hash)) {
            places[n++] = (struct place){.kind = PLACE_MONTH, .month = m->month, .error = filter_error(&m->filter)};
        }
    }
    q->n_places = n;
}

/* --- what is remembered? --- */

static int tell_history(struct asker *a, const struct store_view *view, struct query *q, struct err *err)
{
    int retention = (int)config_now(a->dedup->cfg)->retention, first = dedup_first_month(a->dedup);
    struct history *out = q->history;
    q->known = view->known;
    if (view_probe_room((void **)&a->months, &a->months_cap, view->n_months, sizeof *a->months) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    *out = (struct history){.n_months = view->n_months,
                            .months = a->months,
                            .staged = view->n_plays,
                            .delivered = delivered_items(view->deliveries, view->n_deliveries)};
    for (size_t i = 0; i < view->n_months; i++) {
        const struct store_month *m = &view->months[i];
        struct history_month *h = &a->months[i];
        *h = (struct history_month){
            .month = m->month,
            .items = filter_items(&m->filter),
            .bytes = m->bytes,
            .error = filter_error(&m->filter),
            .sealed = filter_sealed(&m->filter),
            .in_window = m->month >= first,
            .expires_ms = month_start_ms(m->month + retention + 1),
        };
        if (h->in_window) {
            out->error += h->error;
        }
    }
    if (out->error > 1) {
        out->error = 1;
    }
    return 0;
}

/* --- all of them --- */

static void set_elsewhere(struct asker *a, const struct store_view *view, struct query *q)
{
    if (q->kind == QUERY_FILTER) {
        memcpy(q->elsewhere, q->unseen, (q->n + 7) / 8);
    } else {
        q->elsewhere[0] = 0x80;
    }
    size_t n = view->n_exceptions;
    bool sorted = n > 0 && view_probe_room((void **)&a->view.exact, &a->view.exact_cap, n, sizeof *a->view.exact) == 0;
    if (sorted) {
        memcpy(a->view.exact, view->exceptions, n * sizeof *a->view.exact);
        hash_sort(a->view.exact, n);
    }
    for (size_t i = 0; i < q->n && n > 0; i++) {
        if (sorted ? hash_is_among(a->view.exact, n, q->hashes[i]) : has_hash(view->exceptions, n, q->hashes[i])) {
            q->elsewhere[i / 8] &= (uint8_t) ~(0x80 >> i % 8);
        }
    }
}

/* all: before the policy took away what doesn't hide. */
static void tell_until(const struct store_view *all, struct query *q)
{
    const struct exposure *e = &q->exposure;
    for (size_t i = 0; i < q->n_places && !policy_is_plain(e->policy); i++) {
        struct place *p = &q->places[i];
        if (p->kind == PLACE_DELIVERED) {
            p->kind = PLACE_ITEM;
            exposure_hides_item(e, all->deliveries, all->n_deliveries, q->hashes[0], &p->until_ms);
        } else {
            p->until_ms = exposure_month_ends(e, p->month);
        }
    }
}

/* What of the view the policy's caps of groups count. */
static int tell_sent(const struct store_view *all, struct query *q, struct buf *out, struct err *err)
{
    if (q->exposure.policy == NULL || q->exposure.policy->n_group_caps == 0) {
        return 0;
    }
    buf_clear(out);
    const int rc = exposure_groups_of(&q->exposure, all, out);
    return rc < 0 ? err_set(err, rc, "out of memory for groups") : 0;
}

/* Behind the other places, whether or not there are any. */
static int tell_group(struct asker *a, const struct store_view *all, struct query *q, struct err *err)
{
    const uint64_t group = delivered_group(all->deliveries, all->n_deliveries, q->hashes[0]);
    if (policy_is_plain(q->exposure.policy) || q->exposure.policy->n_group_caps == 0 || group == 0) {
        return 0;
    }
    int rc = tell_sent(all, q, &a->sent, err);
    if (rc == 0 && exposure_groups_begin(&a->groups, (const struct exposure_sent *)(const void *)a->sent.data,
                                         a->sent.len / sizeof(struct exposure_sent)) < 0) {
        rc = err_set(err, ERR_NOMEM, "out of memory for groups");
    }
    struct place place = {.kind = PLACE_GROUP};
    if (rc == 0 && q->n_places < PLACES_MAX && exposure_groups_hide(&a->groups, &q->exposure, group, &place.until_ms)) {
        q->places[q->n_places++] = place;
    }
    return rc;
}

/* why: of a large user, whom the sieve has seen; NULL: the view has the filters. */
static int answer(struct asker *a, const struct store_view *all, const struct why *why, struct query *q,
                  struct err *err)
{
    struct store_view hides;
    const struct store_view *view = q->kind == QUERY_HISTORY ? all : &hides;
    int rc = exposure_view(&q->exposure, all, &a->exposure, &hides);
    if (rc < 0) {
        return err_set(err, rc, "out of memory for a policy");
    }
    q->damaged = view->damaged_months > 0;
    switch (q->kind) {
    case QUERY_FILTER:
        rc = q->open != NULL ? filter_open(a, view, why, q, err)
             : why != NULL   ? end_sieve(a, view, q)
                             : view_probe_filter(&a->view, view, q, err);
        rc = rc == 0 && q->sent != NULL ? tell_sent(all, q, q->sent, err) : rc;
        break;
    case QUERY_WHY:
        find_places(view, why, q);
        tell_until(all, q);
        rc = tell_group(a, all, q, err);
        break;
    case QUERY_HISTORY:
        rc = tell_history(a, view, q, err);
        break;
    case QUERY_EXPOSURE:
        rc = exposure_tell(&q->exposure, all, &a->exposure, q->hashes, q->n, q->exposed);
        rc = rc < 0 ? err_set(err, rc, "out of memory for %zu items", q->n) : 0;
        break;
    }
    if (rc == 0 && q->elsewhere != NULL) {
        set_elsewhere(a, view, q);
    }
    return rc;
}

int answer_from_view(struct asker *a, const struct store_view *view, struct query *q, struct err *err)
{
    return answer(a, view, NULL, q, err);
}

static void sift_month(void *arg, int month, bool good)
{
    struct why *why = arg;
    sieve_month(why->sieve, good && exposure_has_month(why->exposure, month));
}

static void see_nothing(void *arg, const struct filter_part *part, uint32_t before, const uint32_t *positions,
                        uint32_t n)
{
    (void)arg, (void)part, (void)before, (void)positions, (void)n;
}

static void pass_month(void *arg, int month, bool good)
{
    (void)arg, (void)month, (void)good;
}

int answer_large(struct asker *a, struct asker_load *l, struct query *q, struct err *err)
{
    struct why why = {.sieve = a->sieve, .exposure = &q->exposure};
    const struct store_scan scans[] = {
        [QUERY_FILTER] = {why_see, sift_month, &why},
        [QUERY_WHY] = {why_see, why_month, &why},
        [QUERY_HISTORY] = {see_nothing, pass_month, NULL},
        [QUERY_EXPOSURE] = {see_nothing, pass_month, NULL},
    };
    const struct store_load *load = &l->load;
    struct store_view view;
    if (scans[q->kind].arg != NULL && sieve_begin(a->sieve, q->hashes, q->n) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for a question about %zu items", q->n);
    }
    int rc =
        a->dedup->store->ops->scan(l->reader, load->key, load->user, load->first_month, &scans[q->kind], &view, err);
    return rc < 0 ? rc : answer(a, &view, &why, q, err);
}
