/* Which candidates a user has not seen, from what a store, or another tier, has of them: all of it in one probe
 * (filter/probe.h). With memory that is kept from question to question; belongs to one thread at a time. */
#ifndef UNSEEN_DEDUP_VIEW_PROBE_H
#define UNSEEN_DEDUP_VIEW_PROBE_H

#include "dedup/dedup.h"
#include "filter/probe.h"

struct view_probe {
    struct probe *probe;
    uint64_t *exact;
    size_t exact_cap;
    const struct filter_part **parts;
    size_t parts_cap;
};

int view_probe_init(struct view_probe *v, struct err *err); /* ERR_NOMEM */
void view_probe_free(struct view_probe *v);

/* Answers a QUERY_FILTER: n_unseen, unseen, error. ERR_NOMEM. */
int view_probe_filter(struct view_probe *v, const struct store_view *view, struct query *q, struct err *err);

/* The chance that a candidate which the user never had is hidden. */
double view_error(const struct store_view *view);

/* Makes *array hold n elements of the given size; what it held may be lost. ERR_NOMEM. */
int view_probe_room(void **array, size_t *cap, size_t n, size_t size);

#endif
