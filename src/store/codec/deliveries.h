/* The last-100 rule and the blob that stores it.
 *
 * Of a user's stored and staged deliveries together, the `max` distinct items with the highest staging ids count. A
 * question, a flush and a load all compute that with delivered_last().
 */
#ifndef UNSEEN_STORE_CODEC_DELIVERIES_H
#define UNSEEN_STORE_CODEC_DELIVERIES_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "store/store.h"

enum { DELIVERED_MAX = 10000 }; /* the most that a blob holds, and the upper limit of the option delivered_max */

/* Orders the list newest first, with each item once, at its highest id, and cuts it to max (at most DELIVERED_MAX). In
 * place, no allocation. Items are compared by their bytes; equal items have equal hashes. Returns how many are left.
 * O(n + k log n), where k of n are visited before max are found; O(n) of a list that is newest first already. */
size_t delivered_last(struct store_delivery *list, size_t n, size_t max);

/* Deliveries of another store beside ours, each newest first, into all (n_ours + n_theirs of them), of which
 * delivered_last() then makes the union. Staging ids of two stores can't be compared, so both lists are interleaved by
 * rank, newest first: the k-th newest id there becomes the k-th newest id here, and after the oldest here ever lower
 * ones. That is stable: merged once more, each item gets the id that it has, or a lower one, and dropped items are
 * dropped again. */
void delivered_rank(const struct store_delivery *ours, size_t n_ours, const struct store_delivery *theirs,
                    size_t n_theirs, struct store_delivery *all);

/* zstd's memory, reused from call to call. All zero is an empty one; belongs to one thread at a time. */
struct delivered_codec {
    struct ZSTD_CCtx_s *compress;
    struct ZSTD_DCtx_s *decompress;
    struct buf scratch;
};
void delivered_codec_free(struct delivered_codec *codec);

/* Appends the blob of a list, in the form of delivered_last(), to out. Returns 0; ERR_NOMEM; or ERR_INVALID (a bug of
 * the caller) when there are more than DELIVERED_MAX, ids ascend, or an item isn't 1..255 bytes. out is as before
 * then. */
int delivered_encode(struct delivered_codec *codec, const struct store_delivery *list, size_t n, struct buf *out);

/* Decodes a blob; list and item bytes are allocated in the arena, hashes are those of the seed. *n is at most
 * DELIVERED_MAX, newest first. Returns 0, ERR_NOMEM, or ERR_CORRUPT with what is wrong. Every byte is validated; sizes
 * are bounded before anything is allocated. */
int delivered_decode(struct delivered_codec *codec, const void *blob, size_t len, uint64_t seed, struct arena *arena,
                     struct store_delivery **list, size_t *n, struct err *err);

#endif
