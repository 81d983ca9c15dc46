/* The ids of a scroll session, as numbers and hashes: an id that is a whole number below 2^32 in its shortest decimal
 * form is that number, exactly; any other is its 64-bit hash, seeded as all others (base/hash.h). So 7 is not 007, and
 * of two ids that are no such numbers one is taken for the other with a chance of 2^-64.
 *
 * As bytes: numbers alone are a filter of one part at m = 2^32 (filter/filter.h), which 300 of 10,000 fill with some
 * 255 bytes. Where there are hashes, this comes before the filter, which is left out when there is no number:
 *
 *   1 byte    0xff, with which no filter begins
 *   varint    n, 1 .. SESSION_IDS_MAX
 *   8n bytes  hashes, ascending, little endian
 *   4 bytes   low half of hash_checksum() over all before, little endian
 */
#ifndef UNSEEN_DEDUP_SESSION_IDS_H
#define UNSEEN_DEDUP_SESSION_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/slice.h"

enum { SESSION_IDS_MAX = 65536 }; /* of one session */

struct session_ids {
    uint32_t *numbers;
    uint64_t *hashes;
    size_t n_numbers, n_hashes;
};

static inline size_t session_ids_count(const struct session_ids *ids)
{
    return ids->n_numbers + ids->n_hashes;
}

/* An id in canonical decimal, below 2^32: "7", not "007" or "+7". False for anything else. */
bool session_number(struct slice text, uint32_t *number);

/* Reads n ids, in any order, into scratch, which has room for n entries. Returns 0, or ERR_INVALID for one that is
 * empty or longer than 255 bytes. */
int session_ids_read(uint64_t seed, const struct slice *texts, size_t n, uint64_t *scratch, struct session_ids *out,
                     struct err *err);

/* Makes both ascending, without repeats, as all of the following need and give them. */
void session_ids_sort(struct session_ids *ids);

/* What is in a or in b; what is in a and not in b. In the arena; 0 or ERR_NOMEM. */
int session_ids_union(const struct session_ids *a, const struct session_ids *b, struct arena *arena,
                      struct session_ids *out);
int session_ids_minus(const struct session_ids *a, const struct session_ids *b, struct arena *arena,
                      struct session_ids *out);

/* Bytes and back. Decoding gives ERR_CORRUPT for all that encoding doesn't make, and ERR_NOMEM. */
int session_ids_encode(const struct session_ids *ids, struct buf *out);
int session_ids_decode(struct slice blob, struct arena *arena, struct session_ids *out, struct err *err);

#endif
