/* All that an object holds of a user, as it was read, and the view of a question made of it. */
#ifndef UNSEEN_STORE_RADOS_GATHERED_H
#define UNSEEN_STORE_RADOS_GATHERED_H

#include "base/arena.h"
#include "store/codec/user_snapshot.h"
#include "store/rados/fetch.h"
#include "store/store.h"
#include "store/user/deliveries.h"

struct gathered_part { /* of a month's filter */
    int month;
    uint16_t part;
    struct slice blob;
};

struct gathered {
    struct arena *arena;
    size_t limit; /* of filters and plays: ERR_LARGE beyond; 0: none */
    size_t weight;

    struct gathered_part *parts; /* ascending by month */
    size_t n_parts, cap_parts;
    struct store_play *plays;
    size_t n_plays, cap_plays;
    struct store_delivery *deliveries; /* newest first, with repeats, in the arena */
    size_t n_deliveries, cap_deliveries;
    uint64_t *exceptions; /* ascending */
    size_t n_exceptions, cap_exceptions;
    int *damaged; /* ascending; 0: the deliveries */
    size_t n_damaged, cap_damaged;
    int64_t forgotten_ms; /* INT64_MIN: never */
    bool keeps_forgotten; /* set by its owner: its items', too, as a snapshot has them */
    struct snapshot_forgotten *forgotten;
    size_t n_forgotten, cap_forgotten;
    int64_t oldest_ms;   /* when the oldest play that is not merged was recorded; INT64_MAX: there is none */
    int last_month;      /* the newest of all; INT_MIN: nothing is there */
    int delivered_month; /* the newest of a delivery */
    struct slice directory;
    bool forgotten_damaged; /* it can't be read when the user was forgotten */
    bool item_damaged;      /* the same of an item, where those are kept */
    struct slice
        strange; /* a key that no node of ours has written; "": there is none. Of the fetch, filled in from it */
};

enum { GATHERED_RANGES = 6 };
/* For a read of a user of any size: filters a few at a time. */
extern const struct fetch_range gathered_ranges[GATHERED_RANGES];

extern const struct fetch_range gathered_filters[1];                       /* these alone */
extern const struct fetch_range gathered_but_filters[GATHERED_RANGES - 1]; /* their directory tells their sizes */

/* Nothing yet; the arena is the caller's, who resets it. */
void gathered_begin(struct gathered *g, struct arena *arena, size_t limit);

/* The last `max` deliveries. As they lie there: a copy in the arena; 0 or ERR_NOMEM. */
int gathered_last(const struct gathered *g, size_t max, struct delivered *out);
/* The same in place, for a view or a snapshot. */
struct delivered gathered_unite(struct gathered *g, size_t max);

/* A key and its value, which are copied. 0, ERR_NOMEM, ERR_LARGE. What is damaged is no error here. Of a play the key
 * says all that counts, so it is one that is old; a delivery counts as a mark of damage. */
int gathered_take(struct gathered *g, const struct layout_key *key, struct slice value, struct err *err);

/* The newest month of all. INT_MIN: nothing is there; INT_MAX: something that is damaged, of any month. */
int gathered_newest(const struct gathered *g);

/* What a question sees. scan: positions are handed over, and filters have none; NULL: they are decoded, into the arena.
 * months before first_kept, and users who have nothing later, are gone. */
struct gathered_question {
    struct rados_store *s;
    struct slice user;
    int first_month;
    const struct store_scan *scan;
};
int gathered_view(struct gathered *g, const struct gathered_question *question, struct store_view *view,
                  struct err *err);

#endif
