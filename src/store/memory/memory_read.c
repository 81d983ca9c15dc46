/* Questions. What a user has is copied under the lock, into the reader's memory; filters are decoded after it. */
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/log.h"
#include "store/memory/memory.h"

enum { PLAY_WEIGHT = sizeof(uint64_t) }; /* bytes that a play counts when a user is weighed */

struct store_reader {
    struct memory_store *store;
    struct arena arena; /* of the last view */
    size_t under_way;   /* loads that are to be answered later, or just were; of the store's mutex */
};

int memory_reader_open(struct store *base, struct store_reader **reader, struct err *err)
{
    struct store_reader *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    r->store = memory_of(base);
    *reader = r;
    return 0;
}

void memory_reader_close(struct store_reader *reader)
{
    if (reader != NULL) {
        struct memory_store *s = reader->store;
        pthread_mutex_lock(&s->mutex);
        while (reader->under_way > 0) {
            pthread_cond_wait(&s->loaded, &s->mutex);
        }
        pthread_mutex_unlock(&s->mutex);
        arena_free(&reader->arena);
        free(reader);
    }
}

/* --- under the lock --- */

struct copied {
    struct store_view *view;
    struct store_month *months;
    struct slice *blobs; /* of the months */
};

static size_t count_plays(const struct memory_user *u, int first_month)
{
    size_t n = 0;
    for (size_t i = 0; i < u->n_plays; i++) {
        n += u->plays[i].month >= first_month;
    }
    return n;
}

static size_t count_months(const struct memory_user *u, int first_month, size_t *bytes)
{
    size_t n = 0;
    while (n < u->n_months && u->months[n].month >= first_month) {
        *bytes += u->months[n++].len;
    }
    return n;
}

/* The first damaged month that the question needs is an error, or all are left out. */
static int look_at_damage(struct memory_store *s, const struct memory_user *u, int first_month, struct store_view *view,
                          struct err *err)
{
    for (size_t i = 0; i < u->n_damaged; i++) {
        char name[MONTH_TEXT];
        int month = u->damaged[i];
        if (month != 0 && month < first_month) {
            continue;
        }
        view->damaged_months++;
        if (config_now(s->cfg)->on_damage == DAMAGE_ERROR) {
            return err_set(err, ERR_CORRUPT, "user %s: %s can't be read: it came with a mark of damage",
                           log_quote(slice_of(u->name, u->len)), month == 0 ? "deliveries" : month_name(month, name));
        }
    }
    return 0;
}

static int copy_lists(struct store_reader *r, const struct memory_user *u, int first_month, size_t n_plays,
                      struct store_view *view)
{
    const size_t n_deliveries = u->n_deliveries;
    struct store_play *plays = arena_alloc(&r->arena, n_plays * sizeof *plays + 1);
    struct store_delivery *deliveries = arena_alloc(&r->arena, n_deliveries * sizeof *deliveries + 1);
    uint64_t *exceptions = arena_alloc(&r->arena, u->n_exceptions * sizeof *exceptions + 1);
    if (plays == NULL || deliveries == NULL || exceptions == NULL) {
        return ERR_NOMEM;
    }
    view->plays = plays;
    for (size_t i = 0; i < u->n_plays; i++) {
        if (u->plays[i].month >= first_month) {
            plays[view->n_plays++] = u->plays[i];
        }
    }
    view->deliveries = deliveries;
    while (view->n_deliveries < n_deliveries) {
        struct store_delivery d = u->deliveries[view->n_deliveries];
        const char *item = arena_copy(&r->arena, d.item.data, d.item.len);
        if (item == NULL) {
            return ERR_NOMEM;
        }
        d.item = slice_of(item, d.item.len);
        deliveries[view->n_deliveries++] = d;
    }
    struct delivered last = {.list = deliveries, .n = n_deliveries};
    delivered_unite(&last, (size_t)config_now(r->store->cfg)->delivered_max);
    view->n_deliveries = last.n;
    view->exceptions = exceptions;
    view->n_exceptions = u->n_exceptions;
    if (u->n_exceptions > 0) {
        memcpy(exceptions, u->exceptions, u->n_exceptions * sizeof *exceptions);
    }
    return 0;
}

static int copy_months(struct store_reader *r, const struct memory_user *u, size_t n, struct copied *out)
{
    out->months = arena_alloc(&r->arena, n * sizeof *out->months + 1);
    out->blobs = arena_alloc(&r->arena, n * sizeof *out->blobs + 1);
    if (out->months == NULL || out->blobs == NULL) {
        return ERR_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        const struct memory_month *m = &u->months[i];
        const char *blob = arena_copy(&r->arena, m->blob, m->len);
        if (blob == NULL) {
            return ERR_NOMEM;
        }
        out->months[i] = (struct store_month){.month = m->month, .bytes = m->len};
        out->blobs[i] = slice_of(blob, m->len);
    }
    out->view->months = out->months;
    out->view->n_months = n;
    return 0;
}

static int copy_user(struct store_reader *r, const struct memory_user *u, int first_month, bool scanning,
                     struct copied *out, struct err *err)
{
    size_t bytes = 0;
    size_t n_months = count_months(u, first_month, &bytes);
    size_t n_plays = count_plays(u, first_month);
    if (!scanning && bytes + n_plays * PLAY_WEIGHT > STORE_LARGE) {
        return err_set(err, ERR_LARGE, "the user has more than %d KiB of filters and plays", STORE_LARGE / 1024);
    }
    out->view->known = u->known;
    int result = look_at_damage(r->store, u, first_month, out->view, err);
    if (result == 0 &&
        (copy_lists(r, u, first_month, n_plays, out->view) < 0 || copy_months(r, u, n_months, out) < 0)) {
        result = err_set(err, ERR_NOMEM, "out of memory while reading a user");
    }
    return result;
}

/* --- after it --- */

static int decode_months(struct store_reader *r, const struct store_scan *scan, struct copied *c, struct err *err)
{
    int result = 0;
    for (size_t i = 0; i < c->view->n_months && result == 0; i++) {
        struct filter *filter = &c->months[i].filter;
        struct slice blob = c->blobs[i];
        if (scan == NULL) {
            result = filter_decode(blob.data, blob.len, &r->arena, filter, err);
        } else {
            result = filter_scan(blob.data, blob.len, scan->see, scan->arg, filter, err);
            scan->month(scan->arg, c->months[i].month, result == 0);
        }
    }
    return result;
}

static int read_user(struct store_reader *r, int64_t key, struct slice user, int first_month,
                     const struct store_scan *scan, struct store_view *view, struct err *err)
{
    struct memory_store *s = r->store;
    struct copied copied = {.view = view};
    *view = (struct store_view){0};
    arena_reset(&r->arena);
    pthread_mutex_lock(&s->mutex);
    const struct memory_user *u = memory_find(s, key, user);
    int result = u == NULL ? 0 : copy_user(r, u, first_month, scan != NULL, &copied, err);
    s->stats.damaged_answers += result == 0 && view->damaged_months > 0;
    pthread_mutex_unlock(&s->mutex);
    return result < 0 ? result : decode_months(r, scan, &copied, err);
}

int memory_scan(struct store_reader *reader, int64_t key, struct slice user, int first_month,
                const struct store_scan *scan, struct store_view *view, struct err *err)
{
    return read_user(reader, key, user, first_month, scan, view, err);
}

static int load(struct store_reader *r, struct store_load *l)
{
    l->err = (struct err){0};
    return read_user(r, l->key, l->user, l->first_month, NULL, &l->view, &l->err);
}

static void count_load(struct store_reader *r, int n)
{
    pthread_mutex_lock(&r->store->mutex);
    r->under_way += (size_t)n;
    pthread_cond_broadcast(&r->store->loaded);
    pthread_mutex_unlock(&r->store->mutex);
}

int memory_load(struct store_reader *reader, struct store_load *l)
{
    if (!reader->store->later) {
        return load(reader, l);
    }
    l->message.kind = STORE_INTERNAL;
    l->reader = reader;
    count_load(reader, 1);
    thread_queue_put(&reader->store->queue, &l->message);
    return STORE_LATER;
}

void memory_load_now(struct store_load *l)
{
    struct store_reader *reader = l->reader;
    load(reader, l);
    l->done(l);
    count_load(reader, -1);
}
