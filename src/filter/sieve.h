/* The sieve: one question's candidates, sorted, past which a user's positions are led as they are decoded. It answers
 * exactly what the probe answers, and is for users whose positions outnumber the candidates by far: memory goes by the
 * candidates alone, and nothing is built from positions.
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

/* The month that the runs since the last call belong to is at its end. good: they count; else they are forgotten.
 * Returns how many candidates the month has. */
size_t sieve_month(struct sieve *s, bool good);

void sieve_exact(struct sieve *s, uint64_t hash);  /* a staged play or a delivery: seen */
void sieve_except(struct sieve *s, uint64_t hash); /* an exception: what positions say doesn't count */

/* Sets bit i of unseen as probe_test() does, and returns how many are unseen. */
size_t sieve_end(const struct sieve *s, uint8_t *unseen);

#endif
