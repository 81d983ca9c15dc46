/* SipHash-2-4 with 128 bits (Jean-Philippe Aumasson and Daniel J. Bernstein): a fast keyed hash. One who does not know
 * the key can neither foresee a hash nor make two texts share one, unlike XXH3 (hash.h). */
#ifndef UNSEEN_BASE_SIPHASH_H
#define UNSEEN_BASE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct siphash {
    uint64_t a, b;
};

struct siphash siphash(const struct siphash *key, const void *bytes, size_t len);

#endif
