/* What one question asks of a scroll session: the ids that are blocked, and which candidates they hide. */
#ifndef UNSEEN_DEDUP_SESSION_SET_H
#define UNSEEN_DEDUP_SESSION_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"

/* An id in canonical decimal: "7", not "007" or "+7". False for anything else. */
bool session_id(struct slice text, uint32_t *id);

/* The ids of a session, ready to be tested. Belongs to one thread and is reused; all zero is an
 * empty one. */
struct session_set {
    uint32_t *ids; /* ascending */
    size_t n, cap;
    uint64_t *bits; /* of the ids' hashes: most ids that are not there end here */
    size_t cap_bits;
    unsigned shift;
};

/* Takes over ascending ids in two steps, the first of which is short: then build() makes them ready. 0 or ERR_NOMEM. */
int session_set_copy(struct session_set *set, const uint32_t *ids, size_t n);
int session_set_build(struct session_set *set);

bool session_set_has(const struct session_set *set, uint32_t id);
void session_set_free(struct session_set *set);

/* Takes the candidates that are ids of the set out of the unseen ones (as asker_filter() has them). Returns how many of
 * them were unseen. */
size_t session_set_hide(const struct session_set *set, const struct slice *items, size_t n, uint8_t *unseen);

#endif
