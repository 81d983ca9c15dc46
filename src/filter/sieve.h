/* The sieve: one question's sorted candidates, against which a user's positions are compared as they are decoded. Its
 * answers are exactly the probe's. It is for users with far more positions than there are candidates: its memory
 * depends on the candidates alone, and nothing is built from positions.
 *
 * Order of calls: begin; any number of see, month, exact, except; end. Owned by one thread and reused.
 */
#ifndef UNSEEN_FILTER_SIEVE_H
#define UNSEEN_FILTER_SIEVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "filter/filter.h"

struct sieve;

struct sieve *sieve_new(void); /* NULL: out of memory */
void sieve_free(struct sieve *s);

/* n < 2^32 hashes, repeats allowed; they are referred to until sieve_end(). Returns 0 or ERR_NOMEM. */
int sieve_begin(struct sieve *s, const uint64_t *hashes, size_t n);

/* A filter_see (arg is the sieve): a run of a part's positions. */
void sieve_see(void *sieve, const struct filter_part *part, uint32_t before, const uint32_t *positions, uint32_t n);

/* Ends the month of the runs since the last call. good: they count; else they are dropped. Returns how many candidates
 * the month has. */
size_t sieve_month(struct sieve *s, bool good);

void sieve_exact(struct sieve *s, uint64_t hash);  /* a staged play or a delivery: seen */
void sieve_except(struct sieve *s, uint64_t hash); /* an exception: the positions don't count */

/* Sets bit i of unseen as probe_test() does, and returns how many are unseen. */
size_t sieve_end(const struct sieve *s, uint8_t *unseen);

#endif
