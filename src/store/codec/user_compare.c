#include "store/codec/user_compare.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "filter/compare.h"
#include "store/user/deliveries.h"
#include "store/user/parcel.h"

static const struct user_snapshot no_user;

struct compare {
    const struct user_snapshot *a, *b;
    uint64_t seed;
    char *why;
    struct err *err;
    struct arena arena;
    struct delivered_codec codec;
};

/* The month's filter; empty, when there is none. */
static int find_month(struct compare *c, const struct user_snapshot *p, int month, struct filter *out)
{
    *out = (struct filter){.n_parts = 0};
    for (size_t i = 0; i < p->n_months; i++) {
        if (p->months[i].month == month) {
            return parcel_month(p, i, &c->arena, out, c->err);
        }
    }
    return 0;
}

static bool is_damaged(const struct user_snapshot *p, int month)
{
    for (size_t i = 0; i < p->n_damaged; i++) {
        if (p->damaged[i] == month) {
            return true;
        }
    }
    return false;
}

static int differ(struct compare *c, int month, uint32_t unmatched, uint64_t of, const char *where)
{
    char name[MONTH_TEXT];
    snprintf(c->why, USER_COMPARE_TEXT, "%s: %" PRIu32 " of %" PRIu64 " positions are only %s", month_name(month, name),
             unmatched, of, where);
    return 0;
}

/* An exception of one side holds on the other if no filter has the item there, or it is one there, too. */
static int compare_exceptions(struct compare *c, const struct filter *theirs, const struct user_snapshot *ours,
                              const struct user_snapshot *other, int month, const char *where)
{
    for (size_t i = 0; i < ours->n_exceptions; i++) {
        uint64_t hash = ours->exceptions[i];
        if (filter_has(theirs, hash) && !hash_is_among(other->exceptions, other->n_exceptions, hash)) {
            char name[MONTH_TEXT];
            snprintf(c->why, USER_COMPARE_TEXT, "%s: an item was un-seen only %s", month_name(month, name), where);
            return 0;
        }
    }
    return 1;
}

/* Of a month, or of the deliveries (0): a side that lacks what can't be read has nothing else to show for it. */
static int compare_damage(struct compare *c, int month)
{
    if (is_damaged(c->a, month) == is_damaged(c->b, month)) {
        return 1;
    }
    char name[MONTH_TEXT];
    snprintf(c->why, USER_COMPARE_TEXT, "%s can't be read %s", month == 0 ? "deliveries" : month_name(month, name),
             is_damaged(c->a, month) ? "here" : "there");
    return 0;
}

/* Plays that wait to be merged, of the months from .. last: *n of them. */
static const struct store_play *plays_of(const struct user_snapshot *p, int first, int last, size_t *n)
{
    size_t from = 0, to;
    while (from < p->n_plays && p->plays[from].month < first) {
        from++;
    }
    for (to = from; to < p->n_plays && p->plays[to].month <= last; to++) {
    }
    *n = to - from;
    return p->n_plays > 0 ? p->plays + from : NULL;
}

/* Which positions of ours nothing accounts for: not their filters from that month on, nor our exceptions, nor their
 * plays from that month on. */
static int count_unmatched(struct compare *c, const struct filter *ours, const struct filter *theirs, size_t n_theirs,
                           const struct user_snapshot *p, const struct user_snapshot *other, int month, uint32_t *n)
{
    size_t n_plays, n_except = p->n_exceptions;
    const struct store_play *plays = plays_of(other, month, INT_MAX, &n_plays);
    uint64_t *except = arena_alloc(&c->arena, (n_except + n_plays + 1) * sizeof *except);
    if (except == NULL) {
        return err_set(c->err, ERR_NOMEM, "out of memory while users are compared");
    }
    if (n_except > 0) {
        memcpy(except, p->exceptions, n_except * sizeof *except);
    }
    for (size_t i = 0; i < n_plays; i++) {
        except[n_except++] = plays[i].hash;
    }
    hash_sort(except, n_except);
    *n = filter_unmatched(ours, theirs, n_theirs, except, n_except);
    return 0;
}

/* Their later months are read only when they are needed, which is seldom. theirs: of the month. */
static int unmatched(struct compare *c, const struct filter *ours, const struct filter *theirs,
                     const struct user_snapshot *p, const struct user_snapshot *other, int month, uint32_t *n)
{
    int rc = count_unmatched(c, ours, theirs, 1, p, other, month, n);
    if (rc < 0 || *n == 0) {
        return rc;
    }
    struct filter *from_here = arena_alloc(&c->arena, (other->n_months + 1) * sizeof *from_here);
    if (from_here == NULL) {
        return err_set(c->err, ERR_NOMEM, "out of memory while users are compared");
    }
    size_t n_from = 0;
    from_here[n_from++] = *theirs;
    for (size_t i = 0; i < other->n_months; i++) {
        if (other->months[i].month > month &&
            (rc = parcel_month(other, i, &c->arena, &from_here[n_from++], c->err)) < 0) {
            return rc;
        }
    }
    return count_unmatched(c, ours, from_here, n_from, p, other, month, n);
}

static bool has_play(const struct store_play *plays, size_t n, uint64_t hash)
{
    size_t from = 0;
    while (from < n) {
        size_t middle = from + (n - from) / 2;
        if (plays[middle].hash == hash) {
            return true;
        }
        from = plays[middle].hash < hash ? middle + 1 : from;
        n = plays[middle].hash < hash ? n : middle;
    }
    return false;
}

/* Each of our plays is one of theirs, or in their filter and no exception of theirs. */
static int compare_plays(struct compare *c, const struct user_snapshot *ours, const struct user_snapshot *other,
                         const struct filter *theirs, int month, const char *where)
{
    size_t n, n_theirs;
    const struct store_play *plays = plays_of(ours, month, month, &n), *list = plays_of(other, month, month, &n_theirs);
    for (size_t i = 0; i < n; i++) {
        uint64_t hash = plays[i].hash;
        if (!has_play(list, n_theirs, hash) &&
            (!filter_has(theirs, hash) || hash_is_among(other->exceptions, other->n_exceptions, hash))) {
            char name[MONTH_TEXT];
            snprintf(c->why, USER_COMPARE_TEXT, "%s: a play is only %s", month_name(month, name), where);
            return 0;
        }
    }
    return 1;
}

static int compare_month(struct compare *c, int month)
{
    struct filter a, b;
    uint32_t n;
    arena_reset(&c->arena);
    if (compare_damage(c, month) == 0) {
        return 0;
    }
    int rc = find_month(c, c->a, month, &a);
    if (rc < 0 || (rc = find_month(c, c->b, month, &b)) < 0) {
        return rc;
    }
    if ((rc = unmatched(c, &a, &b, c->a, c->b, month, &n)) < 0 || n > 0) {
        return rc < 0 ? rc : differ(c, month, n, filter_items(&a), "here");
    }
    if ((rc = unmatched(c, &b, &a, c->b, c->a, month, &n)) < 0 || n > 0) {
        return rc < 0 ? rc : differ(c, month, n, filter_items(&b), "there");
    }
    rc = compare_plays(c, c->a, c->b, &b, month, "here");
    if (rc != 1 || (rc = compare_plays(c, c->b, c->a, &a, month, "there")) != 1) {
        return rc;
    }
    rc = compare_exceptions(c, &b, c->a, c->b, month, "here");
    return rc == 1 ? compare_exceptions(c, &a, c->b, c->a, month, "there") : rc;
}

static int compare_months_of_plays(struct compare *c, const struct user_snapshot *p)
{
    int rc = 1;
    for (size_t i = 0; i < p->n_plays && rc == 1; i++) {
        if (i == 0 || p->plays[i].month != p->plays[i - 1].month) {
            rc = compare_month(c, p->plays[i].month);
        }
    }
    return rc;
}

static int compare_months(struct compare *c)
{
    int rc = 1;
    for (size_t i = 0; i < c->a->n_months && rc == 1; i++) {
        rc = compare_month(c, c->a->months[i].month);
    }
    for (size_t i = 0; i < c->b->n_months && rc == 1; i++) {
        rc = compare_month(c, c->b->months[i].month);
    }
    rc = rc == 1 ? compare_months_of_plays(c, c->a) : rc;
    rc = rc == 1 ? compare_months_of_plays(c, c->b) : rc;
    for (size_t i = 0; i < c->a->n_damaged && rc == 1; i++) {
        rc = compare_damage(c, c->a->damaged[i]);
    }
    for (size_t i = 0; i < c->b->n_damaged && rc == 1; i++) {
        rc = compare_damage(c, c->b->damaged[i]);
    }
    return rc;
}

static int read_deliveries(struct compare *c, const struct user_snapshot *p, struct delivered *out)
{
    *out = (struct delivered){0};
    return p->deliveries.len == 0
               ? 0
               : delivered_unpack(&c->codec, p->deliveries.data, p->deliveries.len, c->seed, &c->arena, out, c->err);
}

/* Newest times alone, in place: which items, in which order, each with its group. */
static void keep_newest(struct delivered *d)
{
    size_t n = 0;
    for (size_t i = 0; i < d->n; i++) {
        struct store_delivery *newest = &d->list[d->list[i].which];
        if (d->list[i].nth == 0) {
            *newest = d->list[i];
            n++;
        } else if (newest->group == 0) {
            newest->group = d->list[i].group;
        }
    }
    d->n = n;
}

/* Those from `from` on that were sent within one ms. */
static size_t run_of(const struct delivered *d, size_t from)
{
    size_t n = 1;
    while (from + n < d->n && delivered_ms(d->list[from + n].stamp) == delivered_ms(d->list[from].stamp)) {
        n++;
    }
    return n;
}

static bool has_item(const struct store_delivery *list, size_t n, const struct store_delivery *one)
{
    for (size_t i = 0; i < n; i++) {
        if (slice_eq(list[i].item, one->item)) {
            return list[i].group == one->group;
        }
    }
    return false;
}

/* Whether both have the same items of one ms from there on: *n of them. Their order is each node's own. */
static bool same_ms(const struct delivered *a, const struct delivered *b, size_t from, size_t *n)
{
    *n = run_of(a, from);
    bool same = run_of(b, from) == *n && delivered_ms(a->list[from].stamp) == delivered_ms(b->list[from].stamp);
    for (size_t i = 0; i < *n && same; i++) {
        same = has_item(&b->list[from], *n, &a->list[from + i]);
    }
    return same;
}

/* One side may have been told no times, nor groups: then its order counts. */
static int compare_deliveries(struct compare *c)
{
    struct delivered a, b;
    arena_reset(&c->arena);
    int rc = read_deliveries(c, c->a, &a);
    if (rc < 0 || (rc = read_deliveries(c, c->b, &b)) < 0) {
        return rc;
    }
    keep_newest(&a);
    keep_newest(&b);
    if (a.n != b.n) {
        snprintf(c->why, USER_COMPARE_TEXT, "%zu deliveries here, %zu there", a.n, b.n);
        return 0;
    }
    const bool old = delivered_is_old(c->a->deliveries) || delivered_is_old(c->b->deliveries);
    for (size_t i = 0, n; i < a.n; i += n) {
        n = 1;
        const bool same = slice_eq(a.list[i].item, b.list[i].item);
        if (!same && !same_ms(&a, &b, i, &n)) {
            snprintf(c->why, USER_COMPARE_TEXT, "delivery %zu of %zu is another", i + 1, a.n);
            return 0;
        }
        if (same && !old && a.list[i].group != b.list[i].group) {
            snprintf(c->why, USER_COMPARE_TEXT, "delivery %zu of %zu is of another group", i + 1, a.n);
            return 0;
        }
    }
    return 1;
}

int user_compare(const struct user_snapshot *a, const struct user_snapshot *b, uint64_t seed,
                 char why[USER_COMPARE_TEXT], struct err *err)
{
    struct compare c = {
        .a = a != NULL ? a : &no_user, .b = b != NULL ? b : &no_user, .seed = seed, .why = why, .err = err};
    why[0] = '\0';
    int rc = compare_months(&c);
    rc = rc == 1 ? compare_deliveries(&c) : rc;
    arena_free(&c.arena);
    delivered_codec_free(&c.codec);
    return rc;
}
