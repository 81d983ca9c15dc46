/* Questions: load the user's window, put all of it into one probe, test.
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
#include "dedup/dedup.h"

#include <limits.h>
#include <stdlib.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "filter/probe.h"
#include "filter/sieve.h"
#include "store/admin.h"

/* Memory that an asker keeps between questions; what a giant user needed above it is given back at once. */
enum { KEEP_BYTES = 4 * 1024 * 1024 };

struct asker {
    const struct dedup *dedup;
    struct store_reader *reader;
    struct probe *probe;
    struct sieve *sieve; /* NULL: large users are left to others */
    uint64_t *exact;
    size_t exact_cap;
    const struct filter_part **parts;
    size_t parts_cap;
    struct history_month *months; /* of the last asker_history() */
    size_t months_cap;
    double error;               /* of the last asker_filter() */
    const uint64_t *exceptions; /* of the last question */
    size_t n_exceptions;
};

int asker_open(const struct dedup *d, struct asker **asker, struct err *err)
{
    struct asker *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    a->dedup = d;
    a->probe = probe_new();
    a->sieve = sieve_new();
    if (a->probe == NULL || a->sieve == NULL) {
        asker_close(a);
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    int rc = d->store->ops->reader_open(d->store, &a->reader, err);
    if (rc < 0) {
        asker_close(a);
        return rc;
    }
    *asker = a;
    return 0;
}

void asker_close(struct asker *a)
{
    if (a == NULL) {
        return;
    }
    if (a->reader != NULL) {
        a->dedup->store->ops->reader_close(a->reader);
    }
    probe_free(a->probe);
    sieve_free(a->sieve);
    free(a->exact);
    free((void *)a->parts);
    free(a->months);
    free(a);
}

void asker_leave_large(struct asker *a)
{
    sieve_free(a->sieve);
    a->sieve = NULL;
}

/* Makes *array hold n elements of the given size; what it held may be lost. */
static int room_for(void **array, size_t *cap, size_t n, size_t size)
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

/* They are the reader's until its next question. */
static void keep_exceptions(struct asker *a, const struct store_view *view, int rc)
{
    a->exceptions = rc == 0 ? view->exceptions : NULL;
    a->n_exceptions = rc == 0 ? view->n_exceptions : 0;
}

static int load(struct asker *a, struct slice user, int first_month, struct store_view *view, struct err *err)
{
    const struct dedup *d = a->dedup;
    int rc = store_load_wait(d->store, a->reader, hash_user_key(d->seed, user), user, first_month, view, err);
    keep_exceptions(a, view, rc);
    return rc;
}

static int scan(struct asker *a, struct slice user, int first_month, const struct store_scan *scan,
                struct store_view *view, struct err *err)
{
    const struct dedup *d = a->dedup;
    int rc = d->store->ops->scan(a->reader, hash_user_key(d->seed, user), user, first_month, scan, view, err);
    keep_exceptions(a, view, rc);
    return rc;
}

static int gather_parts(struct asker *a, const struct store_view *view, size_t *n_parts)
{
    size_t n = 0;
    for (size_t i = 0; i < view->n_months; i++) {
        n += view->months[i].filter.n_parts;
    }
    if (room_for((void **)&a->parts, &a->parts_cap, n, sizeof *a->parts) < 0) {
        return ERR_NOMEM;
    }
    n = 0;
    for (size_t i = 0; i < view->n_months; i++) {
        for (unsigned p = 0; p < view->months[i].filter.n_parts; p++) {
            a->parts[n++] = &view->months[i].filter.parts[p];
        }
    }
    *n_parts = n;
    return 0;
}

static int gather_exact(struct asker *a, const struct store_view *view, size_t *n_exact)
{
    size_t n = view->n_plays + view->n_deliveries;
    if (room_for((void **)&a->exact, &a->exact_cap, n, sizeof *a->exact) < 0) {
        return ERR_NOMEM;
    }
    n = 0;
    for (size_t i = 0; i < view->n_plays; i++) {
        a->exact[n++] = view->plays[i].hash;
    }
    for (size_t i = 0; i < view->n_deliveries; i++) {
        a->exact[n++] = view->deliveries[i].hash;
    }
    *n_exact = n;
    return 0;
}

static double window_error(const struct store_view *view)
{
    double error = 0;
    for (size_t i = 0; i < view->n_months; i++) {
        error += filter_error(&view->months[i].filter);
    }
    return error < 1 ? error : 1;
}

double asker_error(const struct asker *a)
{
    return a->error;
}

static void trim(struct asker *a)
{
    probe_trim(a->probe, KEEP_BYTES);
    if (a->exact_cap * sizeof *a->exact > KEEP_BYTES) {
        free(a->exact);
        a->exact = NULL;
        a->exact_cap = 0;
    }
}

static void sift_month(void *sieve, int month, bool good)
{
    (void)month;
    sieve_month(sieve, good);
}

static int filter_large(struct asker *a, struct slice user, const uint64_t *hashes, size_t n, uint8_t *unseen,
                        size_t *n_unseen, struct err *err)
{
    if (sieve_begin(a->sieve, hashes, n) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for a question about %zu items", n);
    }
    struct store_view view;
    const struct store_scan sifting = {sieve_see, sift_month, a->sieve};
    int rc = scan(a, user, dedup_first_month(a->dedup), &sifting, &view, err);
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < view.n_plays; i++) {
        sieve_exact(a->sieve, view.plays[i].hash);
    }
    for (size_t i = 0; i < view.n_deliveries; i++) {
        sieve_exact(a->sieve, view.deliveries[i].hash);
    }
    for (size_t i = 0; i < view.n_exceptions; i++) {
        sieve_except(a->sieve, view.exceptions[i]);
    }
    *n_unseen = sieve_end(a->sieve, unseen);
    a->error = window_error(&view);
    return 0;
}

/* Once the view is there. */
static int filter_view(struct asker *a, const struct store_view *view, const uint64_t *hashes, size_t n,
                       uint8_t *unseen, size_t *n_unseen, struct err *err)
{
    struct probe_input in = {.exceptions = view->exceptions, .n_exceptions = view->n_exceptions};
    int rc = gather_parts(a, view, &in.n_parts);
    if (rc == 0) {
        rc = gather_exact(a, view, &in.n_exact);
    }
    if (rc == 0) {
        in.parts = a->parts;
        in.exact = a->exact;
        rc = probe_build(a->probe, &in);
    }
    if (rc == 0) {
        *n_unseen = probe_test(a->probe, hashes, n, unseen);
        a->error = window_error(view);
    } else {
        err_set(err, rc, "out of memory for a question about %zu items", n);
    }
    trim(a);
    return rc;
}

int asker_filter(struct asker *a, struct slice user, const uint64_t *hashes, size_t n, uint8_t *unseen,
                 size_t *n_unseen, struct err *err)
{
    struct store_view view;
    int rc = load(a, user, dedup_first_month(a->dedup), &view, err);
    if (rc == ERR_LARGE && a->sieve != NULL) {
        return filter_large(a, user, hashes, n, unseen, n_unseen, err);
    }
    return rc < 0 ? rc : filter_view(a, &view, hashes, n, unseen, n_unseen, err);
}

static void on_loaded(struct store_load *load)
{
    struct filter_question *q = load->owner;
    q->done(q);
}

int asker_filter_begin(struct asker *a, struct filter_question *q)
{
    const struct dedup *d = a->dedup;
    q->load = (struct store_load){.key = hash_user_key(d->seed, q->user),
                                  .user = q->user,
                                  .first_month = dedup_first_month(d),
                                  .done = on_loaded,
                                  .owner = q};
    int rc = d->store->ops->load(a->reader, &q->load);
    return rc == STORE_LATER ? rc : asker_filter_end(a, q);
}

int asker_filter_end(struct asker *a, struct filter_question *q)
{
    int rc = q->load.err.code;
    keep_exceptions(a, &q->load.view, rc);
    if (rc == ERR_LARGE && a->sieve != NULL) {
        return filter_large(a, q->user, q->hashes, q->n, q->unseen, &q->n_unseen, &q->err);
    }
    if (rc < 0) {
        q->err = q->load.err;
        return rc;
    }
    return filter_view(a, &q->load.view, q->hashes, q->n, q->unseen, &q->n_unseen, &q->err);
}

static bool has_hash(const uint64_t *hashes, size_t n, uint64_t hash)
{
    for (size_t i = 0; i < n; i++) {
        if (hashes[i] == hash) {
            return true;
        }
    }
    return false;
}

/* The months of a large user that have the item. */
struct why {
    struct sieve *sieve;
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
    if (sieve_month(why->sieve, good) > 0 && why->n < PLACES_MAX) {
        why->months[why->n++] = month;
    }
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

static bool has_month(const struct why *why, int month)
{
    for (int i = 0; i < why->n; i++) {
        if (why->months[i] == month) {
            return true;
        }
    }
    return false;
}

const char *place_name(const struct place *place, char month[MONTH_TEXT])
{
    switch (place->kind) {
    case PLACE_BLOCKED:
        return "blocked";
    case PLACE_STAGED:
        return "staged";
    case PLACE_DELIVERED:
        return "delivered";
    case PLACE_LEGACY:
        return "legacy";
    case PLACE_MONTH:
        break;
    }
    return month_name(place->month, month);
}

int asker_why(struct asker *a, struct slice user, uint64_t hash, struct place places[PLACES_MAX], struct err *err)
{
    struct store_view view;
    struct why why = {.sieve = a->sieve};
    int rc = load(a, user, dedup_first_month(a->dedup), &view, err);
    bool large = rc == ERR_LARGE && a->sieve != NULL;
    if (large) {
        const struct store_scan asking = {why_see, why_month, &why};
        rc = sieve_begin(a->sieve, &hash, 1) < 0 ? err_set(err, ERR_NOMEM, "out of memory")
                                                 : scan(a, user, dedup_first_month(a->dedup), &asking, &view, err);
    }
    if (rc < 0) {
        return rc;
    }
    int n = 0;
    /* However often an item is staged, it's one place: that of its newest month. */
    for (size_t i = 0; i < view.n_plays; i++) {
        if (view.plays[i].hash == hash && (n == 0 || view.plays[i].month > places[0].month)) {
            places[0] = (struct place){.kind = PLACE_STAGED, .month = view.plays[i].month};
            n = 1;
        }
    }
    for (size_t i = 0; i < view.n_deliveries; i++) {
        if (view.deliveries[i].hash == hash) {
            places[n++] = (struct place){.kind = PLACE_DELIVERED};
            break;
        }
    }
    if (has_hash(view.exceptions, view.n_exceptions, hash)) {
        return n;
    }
    for (size_t i = 0; i < view.n_months && n < PLACES_MAX; i++) {
        const struct store_month *m = &view.months[i];
        if (large ? has_month(&why, m->month) : filter_has(&m->filter, hash)) {
            places[n++] = (struct place){.kind = PLACE_MONTH, .month = m->month, .error = filter_error(&m->filter)};
        }
    }
    return n;
}

void asker_exclude(struct asker *a, const uint64_t *hashes, size_t n, uint8_t *bits)
{
    if (a->n_exceptions == 0) {
        return;
    }
    bool sorted = room_for((void **)&a->exact, &a->exact_cap, a->n_exceptions, sizeof *a->exact) == 0;
    if (sorted) {
        memcpy(a->exact, a->exceptions, a->n_exceptions * sizeof *a->exact);
        hash_sort(a->exact, a->n_exceptions);
    }
    for (size_t i = 0; i < n; i++) {
        if (sorted ? hash_is_among(a->exact, a->n_exceptions, hashes[i])
                   : has_hash(a->exceptions, a->n_exceptions, hashes[i])) {
            bits[i / 8] &= (uint8_t) ~(0x80 >> i % 8);
        }
    }
}

int asker_history(struct asker *a, struct slice user, struct history *out, struct err *err)
{
    struct store_view view;
    int retention = (int)config_now(a->dedup->cfg)->retention;
    int first = dedup_first_month(a->dedup);
    int rc = load(a, user, INT_MIN, &view, err);
    if (rc == ERR_LARGE && a->sieve != NULL) {
        rc = scan(a, user, INT_MIN, &(const struct store_scan){see_nothing, pass_month, NULL}, &view, err);
    }
    if (rc < 0) {
        return rc;
    }
    if (!view.known) {
        return 0;
    }
    if (room_for((void **)&a->months, &a->months_cap, view.n_months, sizeof *a->months) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    *out = (struct history){
        .n_months = view.n_months, .months = a->months, .staged = view.n_plays, .delivered = view.n_deliveries};
    for (size_t i = 0; i < view.n_months; i++) {
        const struct store_month *m = &view.months[i];
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
    return 1;
}

int asker_months(struct asker *a, struct store_month_info *out, int max, struct err *err)
{
    int first = dedup_first_month(a->dedup);
    const struct store *store = a->dedup->store;
    int n = store->admin != NULL ? store->admin->months(a->reader, out, max, err) : store_lacks(store, "months", err);
    for (int i = 0; i < n; i++) {
        out[i].in_window = out[i].month >= first;
    }
    return n;
}
