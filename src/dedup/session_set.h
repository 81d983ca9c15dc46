/* What one question asks of a scroll session: the ids that are blocked, and which candidates they hide. */
#ifndef UNSEEN_DEDUP_SESSION_SET_H
#define UNSEEN_DEDUP_SESSION_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "dedup/session_ids.h"

/* The ids of a session, ready to be tested. Belongs to one thread and is reused; all zero is an
 * empty one. */
struct session_set {
    uint32_t *numbers; /* both ascending, in one piece of memory: `hashes` */
    uint64_t *hashes;
    size_t n_numbers, n_hashes;
    size_t cap;     /* bytes of that piece */
    uint64_t *bits; /* of numbers and hashes: most ids that are not there end here */
    size_t cap_bits;
    unsigned shift;
};

/* Takes over ascending ids in two steps, the first of which is short: then build() makes them ready. 0 or ERR_NOMEM. */
int session_set_copy(struct session_set *set, const struct session_ids *ids);
int session_set_build(struct session_set *set);

/* Whether the item is blocked; hash is its own (hash_id() with the sessions' seed). */
bool session_set_has(const struct session_set *set, struct slice item, uint64_t hash);
bool session_set_has_number(const struct session_set *set, uint32_t number);
void session_set_free(struct session_set *set);

/* Takes the candidates that are ids of the set out of the unseen ones (as QUERY_FILTER has them). Returns how many of
 * them were unseen. */
size_t session_set_hide(const struct session_set *set, const struct slice *items, const uint64_t *hashes, size_t n,
                        uint8_t *unseen);

#endif
