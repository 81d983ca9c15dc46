/* A user's deliveries as one thing: what every engine, a snapshot and the front know of them. Pure: no clock, no store.
 *
 * A delivery is an item and an id; a higher id is later. Of all that is known of a user, stored and staged, the `max`
 * distinct items with the highest ids count, each at its highest. delivered_unite() makes that of any list, and is the
 * one place that decides it: a question, a flush, a forget, an import, a copy, the front and the nodes of a pool of
 * Ceph put together what they have, in any order and as often as they like, and unite it. So it doesn't matter who has
 * united what before, or whether a row was merged already:
 *
 *     unite(A + B) = unite(B + A) = unite(unite(A) + B) = unite(unite(A + B) + B)
 */
#ifndef UNSEEN_STORE_USER_DELIVERIES_H
#define UNSEEN_STORE_USER_DELIVERIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "store/store.h"

enum { DELIVERED_MAX = 10000 }; /* the most that a blob holds, and the upper limit of the option delivered_max */

/* All zero is an empty one. Item bytes are somebody else's. */
struct delivered {
    struct store_delivery *list;
    size_t n;
    size_t cap; /* 0: the list is somebody else's too; it is copied before it grows */
};
void delivered_free(struct delivered *d);
void delivered_clear(struct delivered *d); /* keeps memory for the next use, but not a giant's */

/* Room for so many in all, so that adding up to there can't fail. 0, or ERR_NOMEM with d as it was. */
int delivered_reserve(struct delivered *d, size_t most);

/* Appends. Returns 0, or ERR_NOMEM with d as it was. */
int delivered_add(struct delivered *d, const struct store_delivery *list, size_t n);

/* Orders the list newest first, with each item once, at its highest id, and cuts it to max (at most DELIVERED_MAX). In
 * place, no allocation. Items are compared by their bytes; equal items have equal hashes. O(n + k log n), where k of n
 * are visited before max are found; O(n) of a list that is newest first already. */
void delivered_unite(struct delivered *d, size_t max);

/* Whether this very delivery is there. d: united. */
bool delivered_has(const struct delivered *d, const struct store_delivery *one);

/* Gives theirs, united in another store, ids of this one, before both are united: ids of two stores can't be compared,
 * so the k-th newest id there becomes the k-th newest of ours, and after the oldest of ours ever lower ones. That is
 * stable: ranked once more, against the union, each item gets the id that it has, or a lower one, and dropped items are
 * dropped again. */
void delivered_rank(const struct delivered *ours, struct delivered *theirs);

/* What a forget of items takes out. */
struct delivered_unseen {
    const uint64_t *hashes;
    const struct slice *items; /* NULL: nobody knows more of them than their hashes */
    size_t n;
    uint64_t cut; /* lower ids go as well; 0: none */
};
/* Takes them out, in place; the order stays. Returns how many were. */
size_t delivered_unsee(struct delivered *d, const struct delivered_unseen *what);

/* --- as a blob: docs/format.md --- */

/* zstd's memory, reused from call to call. All zero is an empty one; belongs to one thread at a time. */
struct delivered_codec {
    struct ZSTD_CCtx_s *compress;
    struct ZSTD_DCtx_s *decompress;
    struct buf scratch;
};
void delivered_codec_free(struct delivered_codec *codec);

/* Appends the blob of a united list to out. Returns 0; ERR_NOMEM; or ERR_INVALID (a bug of the caller) when there are
 * more than DELIVERED_MAX, ids ascend, or an item isn't 1..255 bytes. out is as before then. */
int delivered_pack(struct delivered_codec *codec, const struct delivered *d, struct buf *out);

/* Reads a blob; list and item bytes are allocated in the arena, hashes are those of the seed. At most DELIVERED_MAX,
 * newest first; what d had is not looked at. Returns 0, ERR_NOMEM, or ERR_CORRUPT with what is wrong, and d empty.
 * Every byte is validated; sizes are bounded before anything is allocated. */
int delivered_unpack(struct delivered_codec *codec, const void *blob, size_t len, uint64_t seed, struct arena *arena,
                     struct delivered *d, struct err *err);

#endif
