#include "dedup/view_probe.h"

#include <stdlib.h>

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

int view_probe_filter(struct view_probe *v, const struct store_view *view, struct query *q, struct err *err)
{
    struct probe_input in = {.exceptions = view->exceptions, .n_exceptions = view->n_exceptions};
    int rc = gather_parts(v, view, &in.n_parts);
    if (rc == 0) {
        rc = gather_exact(v, view, &in.n_exact);
    }
    if (rc == 0) {
        in.parts = v->parts;
        in.exact = v->exact;
        rc = probe_build(v->probe, &in);
    }
    if (rc == 0) {
        q->n_unseen = probe_test(v->probe, q->hashes, q->n, q->unseen);
        q->error = view_error(view);
    } else {
        err_set(err, rc, "out of memory for a question about %zu items", q->n);
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
