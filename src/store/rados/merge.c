/* A merge reads what waits, the directory, and those parts that are to be united; works out the new parts; and writes
 * them under the generation that it read, with a new one. One that comes second finds another generation and drops its
 * work, or finds that too little waits, and leaves it. Plays that come meanwhile touch no generation and stay, so a
 * busy user merges, too.
 *
 * Which parts: those of the month that have less than GROWTH times the plays that come, and so on with the sum, from
 * the smallest. So the parts of a month are like the digits of a number: each play is rewritten a logarithmic number of
 * times, and a giant's largest part once in a long while. A month has the coarse part of its share of error_rate once:
 * only in a part that is the month's only one (filter.h). Parts that were sealed are left alone; what comes late goes
 * beside them.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/rados/merge_impl.h"
#include "store/user/plays.h"

enum {
    GROWTH = 4,
    PARTS_A_MONTH = 12, /* more than these are united whatever their sizes */
};

static struct merge *merge_of(struct update *u)
{
    return (struct merge *)u;
}

static void again(struct update *u)
{
    static const struct slice directory[] = {{"w", 1}};
    static const struct fetch_range waiting[] = {{"d", CLUSTER_PAGE}, {"p", CLUSTER_PAGE}, {"x", CLUSTER_PAGE}};
    struct merge *m = merge_of(u);
    gathered_begin(&m->gathered, &u->arena, 0);
    m->parts = NULL;
    m->n_parts = 0;
    m->state = MERGE_BEGUN;
    m->changed = m->destroyed = m->early = false;
    m->merged = m->too_old = m->removed_keys = m->tombstones = m->sealed = 0;
    u->guard = UPDATE_BY_GENERATION;
    u->fetch.first_page = false;
    u->fetch.keys = directory;
    u->fetch.n_keys = 1;
    u->fetch.ranges = m->night ? gathered_but_filters : waiting;
    u->fetch.n_ranges = m->night ? GATHERED_RANGES - 1 : sizeof waiting / sizeof *waiting;
}

/* --- what is read --- */

int merge_remove_key(struct merge *m, const struct layout_key *key)
{
    m->changed = true;
    return update_remove(&m->update, key);
}

static int64_t first_kept_ms(const struct merge *m)
{
    return m->first_kept == INT_MIN ? INT64_MIN : month_start_ms(m->first_kept);
}

static int take(struct update *u, const struct layout_key *key, struct slice value)
{
    struct merge *m = merge_of(u);
    int64_t ms;
    if (m->night && key->kind == LAYOUT_FORGOTTEN) {
        bool over = layout_ms(value, &ms) == 0 && ms < first_kept_ms(m);
        m->tombstones += !over;
        return over ? merge_remove_key(m, key) : 0;
    }
    return gathered_take(&m->gathered, key, value, &u->err);
}

static int read_directory(struct merge *m)
{
    struct update *u = &m->update;
    struct slice value = m->gathered.directory;
    int n = layout_directory_count(value);
    if (n < 0) {
        return err_set(&u->err, ERR_CORRUPT, "user %s: the directory of the filters is damaged", log_quote(u->user));
    }
    size_t room = (size_t)n + m->gathered.n_plays + 1; /* a part for each month at most */
    m->parts = arena_alloc(&u->arena, room * sizeof *m->parts);
    m->unite = arena_alloc(&u->arena, room * sizeof *m->unite);
    if (m->parts == NULL || m->unite == NULL) {
        return update_nomem(u);
    }
    for (int i = 0; i < n; i++) {
        m->parts[i] = layout_directory_part(value, (size_t)i);
        m->unite[i] = false;
    }
    m->n_parts = (size_t)n;
    return 0;
}

/* Before the first part of a user is written: whether there is one that no directory names, which it may replace. */
static int look_for_filters(struct merge *m)
{
    static const struct fetch_range one[] = {{"m", 1}};
    struct update *u = &m->update;
    u->fetch.n_keys = 0;
    u->fetch.ranges = one;
    u->fetch.n_ranges = 1;
    u->fetch.first_page = true;
    return UPDATE_READ;
}

static int refuse_filters(struct merge *m)
{
    return m->gathered.n_parts == 0
               ? 0
               : err_set(&m->update.err, ERR_CORRUPT, "user %s: there are filters, and no directory",
                         log_quote(m->update.user));
}

/* --- which parts --- */

/* The smallest part of the month that isn't picked and isn't sealed; n_parts: there is none. */
static size_t smallest(const struct merge *m, int month, size_t *left)
{
    size_t found = m->n_parts;
    *left = 0;
    for (size_t i = 0; i < m->n_parts; i++) {
        const struct layout_part *p = &m->parts[i];
        if (p->month == month && !m->unite[i] && !p->sealed) {
            ++*left;
            found = found == m->n_parts || p->items < m->parts[found].items ? i : found;
        }
    }
    return found;
}

static void pick(struct merge *m, int month, size_t plays, size_t *n_wanted)
{
    bool seal = m->night && merge_is_over(m, month);
    uint64_t sum = plays;
    size_t left, i;
    while (*n_wanted < MERGE_KEYS_MAX && (i = smallest(m, month, &left)) < m->n_parts &&
           (seal || left > PARTS_A_MONTH || m->parts[i].items < GROWTH * sum)) {
        m->unite[i] = true;
        sum += m->parts[i].items;
        ++*n_wanted;
    }
}

static int key_of_part(struct merge *m, const struct layout_part *part, struct slice *out)
{
    char text[LAYOUT_KEY];
    const struct layout_key key = {.kind = LAYOUT_FILTER, .month = part->month, .part = part->part};
    size_t len = layout_key_write(&key, text);
    *out = slice_of(arena_copy(&m->update.arena, text, len), len);
    return out->data != NULL ? 0 : update_nomem(&m->update);
}

/* UPDATE_READ; 0: none has to be read. */
static int pick_parts(struct merge *m)
{
    const struct gathered *g = &m->gathered;
    struct update *u = &m->update;
    size_t n = 0;
    int result = 0;
    for (size_t at = 0, more; at < g->n_plays; at += more) {
        more = plays_of_month(g->plays, g->n_plays, at).n;
        if (g->plays[at].month >= m->first_kept) {
            pick(m, g->plays[at].month, more, &n);
        }
    }
    for (size_t i = 0; m->night && i < m->n_parts; i++) {
        if (m->parts[i].month >= m->first_kept && merge_is_over(m, m->parts[i].month)) {
            pick(m, m->parts[i].month, 0, &n);
        }
    }
    u->fetch.n_keys = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < m->n_parts && result == 0; i++) {
        if (m->unite[i]) {
            bytes += m->parts[i].bytes;
            result = key_of_part(m, &m->parts[i], &m->wanted[u->fetch.n_keys++]);
        }
    }
    u->fetch.keys = m->wanted;
    u->fetch.n_ranges = 0;
    result = result < 0 || n == 0 ? result : update_expect(u, bytes);
    return result < 0 ? result : n > 0 ? UPDATE_READ : 0;
}

/* --- the rest --- */

/* An exception of an item that was played since ends here: until now the play itself has hidden the item. */
static int remove_plays(struct merge *m)
{
    const struct gathered *g = &m->gathered;
    int result = 0;
    for (size_t i = 0; i < g->n_plays && result == 0; i++) {
        const struct store_play *p = &g->plays[i];
        result = merge_remove_key(m, &(struct layout_key){.kind = LAYOUT_PLAY, .month = p->month, .hash = p->hash});
        if (result == 0 && hash_is_among(g->exceptions, g->n_exceptions, p->hash)) {
            result = merge_remove_key(m, &(struct layout_key){.kind = LAYOUT_EXCEPTION, .hash = p->hash});
        }
    }
    m->removed_keys += g->n_plays;
    return result;
}

static int remove_deliveries(struct merge *m, bool all)
{
    struct gathered *g = &m->gathered;
    size_t max = (size_t)config_now(m->update.s->cfg)->delivered_max;
    struct delivered last;
    if (gathered_last(g, all ? 0 : max, &last) < 0) {
        return update_nomem(&m->update);
    }
    int result = 0;
    for (size_t i = 0; i < g->n_deliveries && result == 0; i++) {
        const struct store_delivery *d = &g->deliveries[i];
        if (delivered_has(&last, d)) {
            continue;
        }
        m->removed_keys++;
        result = merge_remove_key(m, &(struct layout_key){.kind = LAYOUT_DELIVERY, .stamp = d->stamp, .hash = d->hash});
    }
    return result;
}

/* What only the walk does: marks and exceptions that hide nothing any more, and the object itself. */
static int tidy(struct merge *m, bool gone)
{
    struct gathered *g = &m->gathered;
    struct update *u = &m->update;
    size_t marks = 0;
    int result = 0;
    for (size_t i = 0; i < g->n_damaged && result == 0; i++) {
        int month = g->damaged[i];
        if (gone || (month != 0 && month < m->first_kept)) {
            result = merge_remove_key(m, &(struct layout_key){.kind = LAYOUT_DAMAGED, .month = month});
        } else {
            marks++;
        }
    }
    for (size_t i = 0; i < g->n_exceptions && result == 0 && m->n_parts == 0; i++) {
        result = merge_remove_key(m, &(struct layout_key){.kind = LAYOUT_EXCEPTION, .hash = g->exceptions[i]});
    }
    if (result == 0 && m->first_kept != INT_MIN && m->n_parts == 0 && marks == 0 && m->tombstones == 0 &&
        (gone || g->n_deliveries == 0) && m->merged == 0) {
        u->n_set = u->n_remove = 0;
        u->guard = UPDATE_BY_VERSION; /* a play that came meanwhile keeps it */
        update_destroys(u);
        m->destroyed = true;
    }
    return result;
}

/* The newest month that anything is of; without plays, which were merged. */
static int newest(const struct merge *m)
{
    int month = gathered_newest(&m->gathered);
    for (size_t i = 0; i < m->n_parts; i++) {
        month = m->parts[i].month > month ? m->parts[i].month : month;
    }
    return month;
}

static int put_directory(struct merge *m)
{
    struct update *u = &m->update;
    struct buf value = {0};
    int result = layout_directory_write(m->parts, m->n_parts, &value) < 0 ? update_nomem(u) : 0;
    result = result < 0 ? result : update_set(u, &(struct layout_key){.kind = LAYOUT_DIRECTORY}, buf_slice(&value));
    buf_free(&value);
    return result < 0 ? result : update_generation(u);
}

static int plan(struct update *u)
{
    struct merge *m = merge_of(u);
    if (!update_existed(u)) {
        return UPDATE_NOTHING;
    }
    if (m->state == MERGE_BEGUN) {
        const struct gathered *g = &m->gathered;
        struct delivered last;
        if (gathered_last(g, (size_t)config_now(u->s->cfg)->delivered_max, &last) < 0) {
            return update_nomem(u);
        }
        const struct merges_seen seen = {g->n_plays, g->n_deliveries, g->n_deliveries - last.n, g->oldest_ms,
                                         u->expected.value};
        m->early = !m->night && !merges_enough(u->s, u->key, &seen);
        if (m->early) {
            return UPDATE_NOTHING;
        }
        int result = read_directory(m);
        m->state = MERGE_LISTED;
        if (result == 0 && m->n_parts == 0 && m->gathered.n_plays > 0) {
            return look_for_filters(m);
        }
        if (result < 0) {
            return result;
        }
    }
    if (m->state == MERGE_LISTED) {
        m->state = MERGE_READ;
        int result = m->n_parts == 0 ? refuse_filters(m) : pick_parts(m);
        if (result != 0) {
            return result;
        }
    }
    bool gone = newest(m) < m->first_kept;
    int result = merge_months(m);
    result = result < 0 ? result : merge_drop_months(m);
    result = result < 0 ? result : remove_plays(m);
    result = result < 0 ? result : remove_deliveries(m, m->night && gone);
    if (result == 0 && m->n_parts > LAYOUT_PARTS_MAX) {
        result = err_set(&u->err, ERR_FULL, "user %s: too many parts of filters", log_quote(u->user));
    }
    if (result == 0 && m->night) {
        result = tidy(m, gone);
    }
    if (result == 0 && m->changed && !m->destroyed) {
        result = put_directory(m);
    }
    return result < 0 ? result : m->changed || m->destroyed ? UPDATE_WRITE : UPDATE_NOTHING;
}

/* --- one merge, from its beginning to its end --- */

static void count(struct merge *m)
{
    struct rados_store *s = m->update.s;
    pthread_mutex_lock(&s->mutex);
    if (m->update.lost) {
        s->stats.merges_lost++;
    } else if (m->update.err.code < 0) {
        s->stats.flush_errors++;
    } else if (m->early) {
        s->stats.merges_early++;
    } else if (m->update.written) {
        s->stats.flushes++;
        s->stats.users_flushed++;
        s->stats.plays_flushed += m->merged;
        s->stats.plays_too_old += m->too_old;
        s->stats.users_sealed += m->sealed > 0;
        s->stats.staged_rows -= m->removed_keys < s->stats.staged_rows ? m->removed_keys : s->stats.staged_rows;
    }
    pthread_mutex_unlock(&s->mutex);
}

static void on_done(struct update *u)
{
    struct merge *m = merge_of(u);
    static struct log_limit limit;
    const struct merge_outcome outcome = {.err = u->err,
                                          .lost = u->lost,
                                          .absent = !update_existed(u) || (m->destroyed && u->written),
                                          .written = u->written,
                                          .parts = m->parts,
                                          .n_parts = m->n_parts,
                                          .tombstones = m->tombstones};
    count(m);
    if (u->err.code < 0 && !u->lost && log_again(&limit)) {
        log_warn("merge failed", "error=%s", log_quote_str(u->err.text));
    }
    if (m->done != NULL) {
        m->done(m->arg, &outcome);
    }
    update_destroy(u);
    free(m);
}

int merge_start(struct rados_store *s, int64_t key, struct slice user, bool night,
                void (*done)(void *arg, const struct merge_outcome *outcome), void *arg)
{
    struct merge *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return ERR_NOMEM;
    }
    m->night = night;
    m->done = done;
    m->arg = arg;
    m->first_kept = guarded_clock_first_kept(&s->clock);
    m->len = (uint8_t)user.len;
    memcpy(m->user, user.data, user.len);
    update_init(&m->update, s, key, slice_of(m->user, m->len));
    m->update.heavy = true;
    m->update.quota = &s->large;
    m->update.quota_bytes = RADOS_LARGE_BYTES;
    m->update.tries_max = night ? 0 : 1; /* a faster node has done it, but doesn't seal */
    m->update.must = night;
    m->update.again = again;
    m->update.take = take;
    m->update.plan = plan;
    m->update.done = on_done;
    update_start(&m->update);
    return 0;
}
