#include "dedup/view_probe.h"

#include <stdlib.h>
#include <string.h>

#include "dedup/pool_match.h"

/* Memory that is kept between questions; what a giant user needed above it is given back at once. */
enum { KEEP_BYTES = 4 * 1024 * 1024 };

int view_probe_room(void **array, size_t *cap, size_t n, size_t size)
{
    if (n <= *cap) {
        return 0;
    }
    size_t want = n + n / 2 + 16;
    void *grown = calloc(want, size);
    if (grown == NULL) {
        return ERR_NOMEM;
    }
    free(*array);
    *array = grown;
    *cap = want;
    return 0;
}

static int gather_parts(struct view_probe *v, const struct store_view *view, size_t *n_parts)
{
    size_t n = 0;
    for (size_t i = 0; i < view->n_months; i++) {
        n += view->months[i].filter.n_parts;
    }
    if (view_probe_room((void **)&v->parts, &v->parts_cap, n, sizeof *v->parts) < 0) {
        return ERR_NOMEM;
    }
    n = 0;
    for (size_t i = 0; i < view->n_months; i++) {
        for (unsigned p = 0; p < view->months[i].filter.n_parts; p++) {
            v->parts[n++] = &view->months[i].filter.parts[p];
        }
    }
    *n_parts = n;
    return 0;
}

static int gather_exact(struct view_probe *v, const struct store_view *view, size_t *n_exact)
{
    size_t n = view->n_plays + view->n_deliveries;
    if (view_probe_room((void **)&v->exact, &v->exact_cap, n, sizeof *v->exact) < 0) {
        return ERR_NOMEM;
    }
    n = 0;
    for (size_t i = 0; i < view->n_plays; i++) {
        v->exact[n++] = view->plays[i].hash;
    }
    for (size_t i = 0; i < view->n_deliveries; i++) {
        v->exact[n++] = view->deliveries[i].hash;
    }
    *n_exact = n;
    return 0;
}

double view_error(const struct store_view *view)
{
    double error = 0;
    for (size_t i = 0; i < view->n_months; i++) {
        error += filter_error(&view->months[i].filter);
    }
    return error < 1 ? error : 1;
}

static void trim(struct view_probe *v)
{
    probe_trim(v->probe, KEEP_BYTES);
    if (v->exact_cap * sizeof *v->exact > KEEP_BYTES) {
        free(v->exact);
        v->exact = NULL;
        v->exact_cap = 0;
    }
}

/* --- pools --- */

enum { STEP = 2048, FIRST_STEP = 64 /* where a few are enough */ };

/* The bits before are there; writes up to a byte behind its own. */
static void put_bits(uint8_t *to, size_t at, const uint8_t *bits, size_t n)
{
    unsigned shift = at % 8;
    to += at / 8;
    if (shift == 0) {
        memcpy(to, bits, (n + 7) / 8);
        return;
    }
    for (size_t i = 0; i < (n + 7) / 8; i++) {
        to[i] = (uint8_t)(to[i] | bits[i] >> shift);
        to[i + 1] = (uint8_t)(bits[i] << (8 - shift));
    }
}

static int test_line(const struct probe *probe, struct query *q, struct err *err)
{
    uint8_t bits[STEP / 8];
    size_t at = 0, step = q->enough > 0 ? FIRST_STEP : STEP;
    q->n_unseen = 0;
    for (size_t k = 0; k < q->line->n_pools; k++) {
        const struct pool *pool = q->line->pools[k];
        for (size_t i = 0, n; i < pool->n && (q->enough == 0 || q->n_unseen < q->enough); i += n, at += n) {
            if (at >= q->most) {
                return err_set(err, ERR_LARGE, "%zu items were not enough", at);
            }
            n = pool->n - i < step ? pool->n - i : step;
            size_t unseen = probe_test(probe, pool->hashes + i, n, bits);
            put_bits(q->unseen, at, bits, n);
            q->n_unseen += unseen - (q->hide != NULL ? q->hide(q->hide_arg, at, n, q->unseen) : 0);
            step = 2 * step < STEP ? 2 * step : STEP;
        }
    }
    q->n_tested = at;
    return 0;
}

/* --- a few of a pool --- */

/* Where a few are enough, the first candidates are looked up one by one in what was decoded: some 0.3 us each. To build
 * the probe takes more than that for FEW of them, of a user with thousands of plays. Those that were played or
 * delivered lately cost far less, so they don't count among the FEW: who is asked again and again, with DELIVER, has a
 * pool's first items behind them. */
enum { FEW = 48, FEW_EXACT = 512 };

/* Hashes that were played or delivered lately: open addressing, 0 is a free cell. */
struct recent {
    size_t mask;
    bool has_zero;
    uint64_t cells[2 * FEW_EXACT];
};

/* Where the hash stands, or would stand. */
static size_t recent_find(const struct recent *r, uint64_t hash)
{
    size_t at = hash & r->mask;
    while (r->cells[at] != 0 && r->cells[at] != hash) {
        at = (at + 1) & r->mask;
    }
    return at;
}

static void recent_add(struct recent *r, uint64_t hash)
{
    r->cells[recent_find(r, hash)] = hash;
    r->has_zero |= hash == 0;
}

/* At most FEW_EXACT of them. */
static void recent_fill(struct recent *r, const struct store_view *view)
{
    r->mask = 1;
    while (r->mask + 1 < 2 * (view->n_plays + view->n_deliveries)) {
        r->mask = 2 * r->mask + 1;
    }
    r->has_zero = false;
    memset(r->cells, 0, (r->mask + 1) * sizeof *r->cells);
    for (size_t i = 0; i < view->n_plays; i++) {
        recent_add(r, view->plays[i].hash);
    }
    for (size_t i = 0; i < view->n_deliveries; i++) {
        recent_add(r, view->deliveries[i].hash);
    }
}

static bool is_recent(const struct recent *r, uint64_t hash)
{
    return hash == 0 ? r->has_zero : r->cells[recent_find(r, hash)] == hash;
}

static bool is_filtered(const struct store_view *view, uint64_t hash)
{
    for (size_t i = 0; i < view->n_exceptions; i++) {
        if (view->exceptions[i] == hash) {
            return false;
        }
    }
    for (size_t i = 0; i < view->n_months; i++) {
        if (filter_has(&view->months[i].filter, hash)) {
            return true;
        }
    }
    return false;
}

/* Whether that was enough. */
static bool test_few(const struct store_view *view, struct query *q)
{
    const size_t n_recent = view->n_plays + view->n_deliveries;
    if (q->line == NULL || q->enough == 0 || q->enough > FEW / 2 || n_recent + view->n_exceptions > FEW_EXACT) {
        return false;
    }
    size_t n = q->line->n < FEW + n_recent ? q->line->n : FEW + n_recent;
    size_t k = 0, looked_up = 0;
    struct recent lately;
    recent_fill(&lately, view);
    memset(q->unseen, 0, (n + 7) / 8);
    q->n_unseen = q->n_tested = 0;
    for (size_t i = 0; i < n && q->n_unseen < q->enough && looked_up < FEW; i++) {
        k = pool_line_at(q->line, i, k);
        const uint64_t hash = q->line->pools[k]->hashes[i - pool_line_begin(q->line, k)];
        const bool recent = is_recent(&lately, hash);
        looked_up += !recent;
        if (!recent && !is_filtered(view, hash)) {
            q->unseen[i / 8] = (uint8_t)(q->unseen[i / 8] | 0x80 >> i % 8);
            q->n_unseen += 1 - (q->hide != NULL ? q->hide(q->hide_arg, i, 1, q->unseen) : 0);
        }
        q->n_tested = i + 1;
    }
    return q->n_unseen >= q->enough || q->n_tested == q->line->n;
}

/* Whether a line of pools was answered without a probe. */
static bool answer_line(const struct store_view *view, struct query *q)
{
    if (test_few(view, q)) {
        return true;
    }
    if (q->line == NULL || q->enough > 0 || !pool_match_pays(q->line, view)) {
        return false;
    }
    q->n_unseen = pool_match(q->line, view, q->unseen);
    q->n_unseen -= q->hide != NULL ? q->hide(q->hide_arg, 0, q->line->n, q->unseen) : 0;
    q->n_tested = q->line->n;
    return true;
}

int view_probe_filter(struct view_probe *v, const struct store_view *view, struct query *q, struct err *err)
{
    struct probe_input in = {.exceptions = view->exceptions, .n_exceptions = view->n_exceptions};
    q->error = view_error(view);
    if (answer_line(view, q)) {
        return 0;
    }
    int rc = gather_parts(v, view, &in.n_parts);
    if (rc == 0) {
        rc = gather_exact(v, view, &in.n_exact);
    }
    if (rc == 0) {
        in.parts = v->parts;
        in.exact = v->exact;
        rc = probe_build(v->probe, &in);
    }
    if (rc < 0) {
        err_set(err, rc, "out of memory for a question about %zu items", q->n);
    } else if (q->line != NULL) {
        rc = test_line(v->probe, q, err);
    } else {
        q->n_unseen = probe_test(v->probe, q->hashes, q->n, q->unseen);
    }
    trim(v);
    return rc;
}

int view_probe_init(struct view_probe *v, struct err *err)
{
    *v = (struct view_probe){.probe = probe_new()};
    return v->probe != NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory for questions");
}

void view_probe_free(struct view_probe *v)
{
    probe_free(v->probe);
    free(v->exact);
    free((void *)v->parts);
}
