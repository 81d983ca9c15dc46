/* A user's deliveries as one thing: what every engine, a snapshot and the front know of them. Pure: no clock, no store.
 *
 * A delivery is an item and a time, in unix ms, and maybe a group, by its hash; twice the same is one. What came within
 * one ms is ordered by a number of the node that took it, `sub`; of twice the same the later stays, then that of the
 * larger group. The group of an item is that of its newest time that has one. Of all that is known of a user, stored
 * and staged, the newest `max` distinct items count, each with its newest DELIVERED_TIMES times. The list ends with the
 * newest time of the last of them: what is older is gone. delivered_unite() makes that of any list, and is the one
 * place that decides it: a question, a flush, a forget, an import, a copy, the front and the nodes of a pool of Ceph
 * put together what they have, in any order and as often as they like, and unite it. So it doesn't matter who has
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

enum {
    DELIVERED_MAX = 10000, /* items that a blob holds at most, and the upper limit of the option delivered_max */
    DELIVERED_TIMES = 15,  /* of an item */
    DELIVERED_SUB_BITS = 20,
};

/* Time and sub as one number. Higher bits of sub don't count: the id of a staged row may be it. Times are those of the
 * years 1970 to 2248; others count as the nearest of them. */
static inline uint64_t delivered_stamp(int64_t at_ms, uint64_t sub)
{
    const uint64_t most = INT64_MAX >> DELIVERED_SUB_BITS; /* so that it fits into a column */
    const uint64_t ms = at_ms < 0 ? 0 : (uint64_t)at_ms < most ? (uint64_t)at_ms : most;
    return ms << DELIVERED_SUB_BITS | (sub & (((uint64_t)1 << DELIVERED_SUB_BITS) - 1));
}

static inline int64_t delivered_ms(uint64_t stamp)
{
    return (int64_t)(stamp >> DELIVERED_SUB_BITS);
}

static inline int64_t delivered_sub(uint64_t stamp)
{
    return (int64_t)(stamp & (((uint64_t)1 << DELIVERED_SUB_BITS) - 1));
}

/* All zero is an empty one. Item bytes are the caller's. */
struct delivered {
    struct store_delivery *list;
    size_t n;
    size_t cap; /* 0: the list is the caller's too; it is copied before it grows */
};
void delivered_free(struct delivered *d);
void delivered_clear(struct delivered *d); /* keeps memory for the next use, but not a giant's */

/* Room for so many in all, so that adding up to there can't fail. 0, or ERR_NOMEM with d as it was. */
int delivered_reserve(struct delivered *d, size_t most);

/* Appends. Returns 0, or ERR_NOMEM with d as it was. */
int delivered_add(struct delivered *d, const struct store_delivery *list, size_t n);

/* Orders the list newest first, and cuts it to what counts, at most DELIVERED_MAX items. Fills in `which` and `nth`;
 * returns how many items there are. In place, no allocation. Items are compared by their bytes; equal items have equal
 * hashes. O(n + k log n), where k of n are visited before max are found; O(n) of a list that is newest first already.
 */
size_t delivered_unite(struct delivered *d, size_t max);
size_t delivered_items(const struct store_delivery *list, size_t n); /* of a united one: how many items */
uint64_t delivered_group(const struct store_delivery *list, size_t n, uint64_t hash); /* the item's; 0: it has none */

/* Whether this very delivery is there, with this group. d: united. */
bool delivered_has(const struct delivered *d, const struct store_delivery *one);

/* What a forget of items takes out. */
struct delivered_unseen {
    const uint64_t *hashes;
    const struct slice *items; /* NULL: only their hashes are known */
    size_t n;
    uint64_t cut; /* what has a lower stamp goes as well; 0: nothing does */
};
/* Takes them out, in place; the list stays united. Returns how many went. */
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
 * more than DELIVERED_MAX items, stamps ascend, `which` and `nth` are not as united, or an item isn't 1..255 bytes. out
 * is as before then. */
int delivered_pack(struct delivered_codec *codec, const struct delivered *d, struct buf *out);

/* The same as a blob of version 1, which 0.1.0 reads: items in their order, without times. */
int delivered_pack_old(struct delivered_codec *codec, const struct delivered *d, struct buf *out);
bool delivered_is_old(struct slice blob); /* by its version */

/* Reads a blob; list and item bytes are allocated in the arena, hashes are those of the seed. At most DELIVERED_MAX
 * items, newest first; what d had is not looked at. Those of version 1, which has no times, get times of the first
 * seconds of 1970, in their order. Returns 0, ERR_NOMEM, or ERR_CORRUPT with what is wrong, and d empty.
 * Every byte is validated; sizes are bounded before anything is allocated. */
int delivered_unpack(struct delivered_codec *codec, const void *blob, size_t len, uint64_t seed, struct arena *arena,
                     struct delivered *d, struct err *err);

#endif
