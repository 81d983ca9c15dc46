/* What the filter's codec is measured against: gaps split in byte planes, zstd on those where it wins. For one part;
 * only the benchmark uses it. */
#ifndef UNSEEN_BENCH_RIVAL_PLANES_H
#define UNSEEN_BENCH_RIVAL_PLANES_H

#include "filter/filter.h"

struct planes; /* contexts and scratch, kept between calls as a server would */
struct planes *planes_new(uint32_t n_max);
void planes_free(struct planes *p);

/* Returns the blob's length; out has room for planes_bound(n). Exits when anything fails: this is a benchmark. */
size_t planes_encode(struct planes *p, const struct filter_part *part, uint8_t *out);
size_t planes_bound(uint32_t n);

/* Into out->positions, which has room for all of them. */
void planes_decode(struct planes *p, const uint8_t *blob, size_t len, struct filter_part *out);

#endif
