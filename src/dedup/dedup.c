/* The rules of ids and times.
 *
 * The store gives two times, which differ only while the wall clock is doubted (base/guard.h). Whatever a wrong clock
 * says, an item may be hidden for longer, but none that was played may be shown: so a play is stamped with the later
 * one, the window and retention begin at the earlier one.
 */
#include "dedup/dedup.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "base/unix_time.h"

enum { AHEAD_MS = 24 * 3600 * 1000, AMOUNT_TEXT = 48, HINT_TEXT = 80 };

void dedup_init(struct dedup *d, struct store *store, const struct config *cfg)
{
    *d = (struct dedup){.store = store, .cfg = cfg, .seed = store->ops->seed(store)};
}

int dedup_check_id(const char *what, size_t position, struct slice id, struct err *err)
{
    if (id.len >= 1 && id.len <= ID_MAX) {
        return 0;
    }
    char where[32] = "";
    if (position > 0) {
        snprintf(where, sizeof where, " %zu", position);
    }
    if (id.len == 0) {
        return err_set(err, ERR_INVALID, "%s%s is empty: an id has 1 to %d bytes", what, where, ID_MAX);
    }
    return err_set(err, ERR_INVALID, "%s%s has %zu bytes: an id has 1 to %d", what, where, id.len, ID_MAX);
}

static int too_many(size_t n, struct err *err)
{
    return err_set(err, ERR_INVALID, "%zu items are too many: a command takes at most %d", n, ITEMS_MAX);
}

int dedup_check_items(const struct slice *items, size_t n, struct err *err)
{
    if (n > ITEMS_MAX) {
        return too_many(n, err);
    }
    for (size_t i = 0; i < n; i++) {
        if (items[i].len - 1 >= ID_MAX) {
            return dedup_check_id("item", i + 1, items[i], err);
        }
    }
    return 0;
}

int dedup_hash_items(const struct dedup *d, const struct slice *items, size_t n, uint64_t *hashes, struct err *err)
{
    if (n > ITEMS_MAX) {
        return too_many(n, err);
    }
    size_t hashed = hash_ids(d->seed, items, n, hashes);
    return hashed == n ? 0 : dedup_check_id("item", hashed + 1, items[hashed], err);
}

int dedup_hash_groups(const struct dedup *d, const struct slice *groups, size_t n, uint64_t *hashes, struct err *err)
{
    if (n > ITEMS_MAX) {
        return too_many(n, err);
    }
    for (size_t i = 0; i < n; i++) {
        if (groups[i].len > ID_MAX) {
            return err_set(err, ERR_INVALID, "group %zu has %zu bytes: expected at most %d, and \"\" for none", i + 1,
                           groups[i].len, ID_MAX);
        }
        const uint64_t hash = groups[i].len > 0 ? hash_id(d->seed, groups[i]) : 0;
        hashes[i] = hash + (hash == 0 && groups[i].len > 0);
    }
    return 0;
}

size_t dedup_forget_size(struct slice user, const struct slice *items, size_t n)
{
    size_t size = user.len + n * (sizeof(struct slice) + sizeof(uint64_t));
    for (size_t i = 0; i < n; i++) {
        size += items[i].len;
    }
    return size;
}

void dedup_forget(const struct dedup *d, struct store_forget *forget, void *memory, struct slice user,
                  const struct slice *items, size_t n)
{
    struct slice *copies = memory;
    uint64_t *hashes = (uint64_t *)(copies + n);
    char *at = (char *)(hashes + n);
    for (size_t i = 0; i < n; i++) {
        memcpy(at, items[i].data, items[i].len);
        copies[i] = slice_of(at, items[i].len);
        hashes[i] = hash_id(d->seed, copies[i]);
        at += items[i].len;
    }
    memcpy(at, user.data, user.len);
    forget->user = slice_of(at, user.len);
    forget->key = hash_user_key(d->seed, forget->user);
    forget->items = copies;
    forget->hashes = hashes;
    forget->n_items = n;
    forget->first_month = dedup_first_month(d);
}

void dedup_merge(const struct dedup *d, struct store_merge *merge, void *memory, struct slice from, struct slice into)
{
    char *at = memory;
    memcpy(at, from.data, from.len);
    memcpy(at + from.len, into.data, into.len);
    merge->from = slice_of(at, from.len);
    merge->into = slice_of(at + from.len, into.len);
    merge->from_key = hash_user_key(d->seed, merge->from);
    merge->into_key = hash_user_key(d->seed, merge->into);
}

int64_t dedup_stamp(const struct dedup *d)
{
    int64_t later, earlier;
    d->store->ops->now(d->store, &later, &earlier);
    return later;
}

int dedup_first_month(const struct dedup *d)
{
    int64_t later, earlier;
    d->store->ops->now(d->store, &later, &earlier);
    return month_of_ms(earlier) - (int)config_now(d->cfg)->window;
}

void dedup_exposure(const struct dedup *d, const struct policy *p, struct exposure *out)
{
    *out = (struct exposure){.policy = p, .months = (int)config_now(d->cfg)->window};
    d->store->ops->now(d->store, &out->later_ms, &out->earlier_ms);
    if (p != NULL && p->plays != POLICY_PLAYS_WINDOW) {
        out->months = p->plays == POLICY_PLAYS_OFF ? 0 : (int)p->plays;
    }
    out->first_month = p != NULL && p->plays == POLICY_PLAYS_OFF ? INT_MAX : month_of_ms(out->earlier_ms) - out->months;
}

/* "12.5 days", "3 ms": how far a time lies outside. A double, because the difference may not fit 64 bits. */
static const char *amount_text(double ms, char out[AMOUNT_TEXT])
{
    static const struct {
        double ms;
        const char *name;
    } units[] = {{86400e3, "days"}, {3600e3, "hours"}, {60e3, "minutes"}, {1e3, "seconds"}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (ms >= 2 * units[i].ms) {
            snprintf(out, AMOUNT_TEXT, "%.0f %s", floor(ms / units[i].ms), units[i].name);
            return out;
        }
    }
    snprintf(out, AMOUNT_TEXT, "%.0f ms", ms);
    return out;
}

static int oldest_month_kept(const struct dedup *d, int64_t earlier)
{
    return month_of_ms(earlier) - (int)config_now(d->cfg)->retention;
}

bool dedup_past_retention(const struct dedup *d, int64_t at_ms)
{
    int64_t later, earlier;
    d->store->ops->now(d->store, &later, &earlier);
    return at_ms < month_start_ms(oldest_month_kept(d, earlier)) && unix_time_looks_like(at_ms, UNIX_MS) == NULL;
}

int dedup_event_time(const struct dedup *d, int64_t given_ms, int64_t *at, bool *skewed, struct err *err)
{
    const struct config *live = config_now(d->cfg);
    int64_t later, earlier;
    d->store->ops->now(d->store, &later, &earlier);
    int known = d->store->ops->time_known(d->store, err);
    if (known < 0) {
        return known; /* the event may well be good */
    }
    int oldest_month = oldest_month_kept(d, earlier);
    int64_t oldest = month_start_ms(oldest_month);

    *skewed = given_ms < oldest || given_ms > later + AHEAD_MS;
    if (!*skewed) {
        *at = given_ms;
        return 0;
    }
    if (live->skewed_time == SKEWED_NOW) {
        *at = later;
        return 0;
    }
    char amount[AMOUNT_TEXT], month[MONTH_TEXT], hint[HINT_TEXT] = "";
    const char *other = unix_time_looks_like(given_ms, UNIX_MS);
    if (other != NULL) {
        snprintf(hint, sizeof hint, "; it looks like %s, and milliseconds were expected", other);
    }
    if (given_ms < oldest) {
        amount_text((double)oldest - (double)given_ms, amount);
        return err_set(err, ERR_RANGE, "event time %" PRId64 " is past retention, by %s: plays are kept from %s on%s",
                       given_ms, amount, month_name(oldest_month, month), hint);
    }
    amount_text((double)given_ms - (double)later, amount);
    return err_set(err, ERR_RANGE, "event time %" PRId64 " is %s ahead of the server's clock: at most 1 day is taken%s",
                   given_ms, amount, hint);
}
