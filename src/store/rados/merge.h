/* Merging: plays that wait in a user's object become parts of the months' filters. A merge of the nightly walk also
 * seals, and takes out what is past retention. */
#ifndef UNSEEN_STORE_RADOS_MERGE_H
#define UNSEEN_STORE_RADOS_MERGE_H

#include "store/rados/rados.h"

struct merge_outcome {
    struct err err;
    bool lost;   /* with err: another was faster */
    bool absent; /* there is no such object, or there is none any more */
    bool written;
    const struct layout_part *parts; /* as they are now */
    size_t n_parts;
    size_t tombstones;
};

/* done: on a thread of the cluster or the store's; NULL: none waits. ERR_NOMEM: it was not begun. */
int merge_start(struct rados_store *s, int64_t key, struct slice user, bool night,
                void (*done)(void *arg, const struct merge_outcome *outcome), void *arg);

#endif
