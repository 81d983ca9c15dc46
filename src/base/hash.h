/* The one place where ids are hashed: seeded XXH3 64 (xxHash, Yann Collet).
 *
 * The seed is a folder's own (drawn at its first start), so that a client can't craft ids that
 * collide. A user's key is the hash's bits as a signed number, because that is how SQLite orders a
 * rowid. Candidates are hashed once per question: the same 64 bits test the staged plays exactly and
 * give, by their top 32, the position in every month filter.
 */
#ifndef UNSEEN_BASE_HASH_H
#define UNSEEN_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

uint64_t hash_id(uint64_t seed, struct slice id);

/* The same for n ids, in half the time for each. Stops at the first that is empty or longer than HASH_ID_MAX; returns
 * how many were hashed. */
enum { HASH_ID_MAX = 255 };
size_t hash_ids(uint64_t seed, const struct slice *ids, size_t n, uint64_t *hashes);

void hash_sort(uint64_t *hashes, size_t n);       /* ascending; NULL is fine when there are none */
size_t hash_distinct(uint64_t *hashes, size_t n); /* sorts, removes repeats, returns how many are left */
bool hash_is_among(const uint64_t *sorted, size_t n, uint64_t hash);
size_t hash_place(const uint64_t *sorted, size_t n, uint64_t hash); /* where it is; n: nowhere */

static inline int64_t hash_user_key(uint64_t seed, struct slice user)
{
    return (int64_t)hash_id(seed, user);
}

/* The next link of a chain over ids: it tells lists apart by their content and order, however they were put together,
 * and means the same in every folder. A chain begins with 0. */
uint64_t hash_chain(uint64_t before, struct slice id);

/* 32 bits that tell seeds apart without giving one away; for INFO and the start-up line. */
uint32_t hash_seed_fingerprint(uint64_t seed);
bool hash_fingerprint_read(struct slice text, uint32_t *out); /* 8 lower-case hex digits */

#define HASH_NAME "xxh3-64" /* for clients that hash by themselves: XXH3 64 of the id's bytes, with the seed */
enum { HASH_BYTES = 8 };    /* of one on the wire, little endian */

/* Checksum of stored bytes (XXH3 64, unseeded: it must not change with the folder). */
uint64_t hash_checksum(const void *bytes, size_t len);

#endif
