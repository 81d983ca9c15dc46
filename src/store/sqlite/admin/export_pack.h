/* One user of a folder as a snapshot: what history has under the key, in the snapshot that its owner has open, and what
 * was staged. Months that can't be read are left out, told, and marked in the snapshot. One thread. */
#ifndef UNSEEN_STORE_SQLITE_ADMIN_EXPORT_PACK_H
#define UNSEEN_STORE_SQLITE_ADMIN_EXPORT_PACK_H

#include "store/sqlite/state.h"

/* All zero but for what its owner sets. */
struct export_packer {
    /* its owner's */
    struct db *history;
    const struct stored_month *months; /* of the snapshot, newest first */
    int n_months;
    struct staged *const *slots;
    int n_slots;
    uint64_t seed;
    void (*damaged)(void *arg, const char *what);
    void *arg;

    struct arena arena;
    struct delivered_codec codec;
    struct staged_out staged;
};
void export_packer_free(struct export_packer *x);

/* Appends the snapshot. last_month: the newest that is known so far. stored: history has rows under the key. noted: the
 * user is, and not taken over yet. Returns 1; 0 when there is nothing of the user; or an error. */
int export_pack(struct export_packer *x, int64_t key, struct slice user, int last_month, bool stored,
                bool migration_state, struct buf *out, struct err *err);

#endif
