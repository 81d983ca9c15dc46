/* Packs one user of a folder as a user snapshot: their rows of history, read in the transaction that the owner has
 * open, and their staged rows. Months that can't be read are left out, reported, and marked. One thread. */
#ifndef UNSEEN_STORE_SQLITE_ADMIN_EXPORT_PACK_H
#define UNSEEN_STORE_SQLITE_ADMIN_EXPORT_PACK_H

#include "store/codec/user_snapshot.h"
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
    int64_t forgotten_ms; /* of the user in hand; 0: never */
    const struct snapshot_forgotten *forgotten;
    size_t n_forgotten; /* of the user's items */
    void (*damaged)(void *arg, const char *what);
    void *arg;

    struct arena arena;
    struct delivered_codec codec;
    struct staged_out staged;
};
void export_packer_free(struct export_packer *x);

/* Appends the snapshot. last_month: the newest that is known so far. stored: history has rows under the key. noted: the
 * user is noted, and not taken over yet. Returns 1; 0 when the user has nothing; or an error. */
int export_pack(struct export_packer *x, int64_t key, struct slice user, int last_month, bool stored,
                bool migration_state, struct buf *out, struct err *err);

#endif
