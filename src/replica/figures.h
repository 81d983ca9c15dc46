/* The figures of a pair of nodes, for metrics, INFO and the page. */
#ifndef UNSEEN_REPLICA_FIGURES_H
#define UNSEEN_REPLICA_FIGURES_H

#include "base/figure.h"
#include "dedup/dedup.h"

/* Any thread; also where this node can have no replicas. NULL: none. */
void replica_figures_each(const struct dedup *d, figure_visit *visit, void *arg);

#endif
