/* The items that a user's two sides have un-seen, and which of these stay so when the sides become one. Pure.
 *
 * A play hides an item; so does a filter that has it, unless the item is an exception there. Of two sides together an
 * item is hidden if either hides it. So an exception ends where the other side hides the item, and stays where that
 * knows nothing of it, or has un-seen it as well. Months past retention are not handed in: they hide nothing.
 *
 * One side (here) is added to and goes on; the other (there) is a snapshot, whose plays become plays here. A snapshot
 * may be crafted: nothing takes longer than the lists are long, times a logarithm. Filters are handed in one by one, so
 * that a giant's need not be in memory together.
 */
#ifndef UNSEEN_STORE_USER_EXCEPTIONS_H
#define UNSEEN_STORE_USER_EXCEPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "filter/filter.h"
#include "store/store.h"

struct exceptions {
    const uint64_t *here, *there; /* ascending */
    size_t n_here, n_there;
    bool *ends;  /* of each one here; false at first */
    bool *comes; /* of each one there: it becomes one here; false if it is one already */
};

/* The lists are the caller's, the rest is the arena's. 0 or ERR_NOMEM. */
int exceptions_begin(struct exceptions *x, const uint64_t *here, size_t n_here, const uint64_t *there, size_t n_there,
                     struct arena *arena);

/* Plays of either side, those of months from first_kept on. One here ends none of here: it hides the item itself, and
 * ends the exception when it is merged. */
void exceptions_played(struct exceptions *x, const struct store_play *plays, size_t n, int first_kept, bool there);

/* A filter; here NULL: one that can't be read, and may have had anything. */
void exceptions_shown_there(struct exceptions *x, const struct filter *filter);
void exceptions_shown_here(struct exceptions *x, const struct filter *filter);

#endif
