/* The names of one figure of the server, in INFO and in the metrics. It is described once, in a table of these beside
 * its counter. */
#ifndef UNSEEN_BASE_FIGURE_H
#define UNSEEN_BASE_FIGURE_H

#include <stdint.h>

enum figure_kind {
    FIGURE_COUNTER, /* only rises, from 0 at start */
    FIGURE_GAUGE,
    FIGURE_US,        /* a gauge of microseconds; metrics show seconds */
    FIGURE_TIME,      /* wall time in ms, 0: never; metrics show seconds */
    FIGURE_MILLIONTH, /* a counter of millionths */
};

struct figure {
    const char *info;
    const char *metric; /* after "unseen_"; NULL: the metrics have it in another form */
    enum figure_kind kind;
    const char *help; /* a sentence */
};

typedef void figure_visit(void *arg, const struct figure *figure, uint64_t value);

#endif
