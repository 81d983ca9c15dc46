/* The probe: one question tests its candidates against it. It is built from a user's window and then discarded.
 *
 * Three sets: filter parts (positions, so with the filters' error), exact hashes (staged plays and
 * deliveries) and exceptions (hashes that the filters no longer hide). A candidate is seen when its
 * hash is in the exact set, or when a part has its position and its hash is no exception.
 *
 * One bitmap over the top bits of all of them answers most candidates with one read that stays in the
 * cache; hits are verified exactly against each part's positions through a directory. Owned by one
 * thread and reused, so that a question allocates nothing once it is warm.
 */
#ifndef UNSEEN_FILTER_PROBE_H
#define UNSEEN_FILTER_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "filter/filter.h"

struct probe;

struct probe *probe_new(void); /* NULL: out of memory */
void probe_free(struct probe *p);

/* Its inputs are only referred to, and must live until the last test. */
struct probe_input {
    const struct filter_part *const *parts; /* n_parts pointers */
    size_t n_parts;
    const uint64_t *exact; /* in any order, repeats allowed */
    size_t n_exact;
    const uint64_t *exceptions; /* in any order */
    size_t n_exceptions;
};

/* Replaces what the probe held. Returns 0 or ERR_NOMEM (it then holds nothing). */
int probe_build(struct probe *p, const struct probe_input *in);

/* Tests n hashes; sets bit i of unseen (most significant bit first, as in Redis bitmaps; (n + 7) / 8 bytes,
 * padding 0) when hash i is not seen. Returns how many are unseen. */
size_t probe_test(const struct probe *p, const uint64_t *hashes, size_t n, uint8_t *unseen);

bool probe_seen(const struct probe *p, uint64_t hash);

/* After a giant: if more than keep bytes are held, frees them and empties the probe. Returns the bytes held. */
size_t probe_trim(struct probe *p, size_t keep);

#endif
