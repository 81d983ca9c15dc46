/* Random numbers for load and samples: splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
 * generators", 2014). The same state gives the same numbers on every machine. Not for secrets. */
#ifndef UNSEEN_CLI_LIB_RANDOM_H
#define UNSEEN_CLI_LIB_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state;
};

/* The generator's last step alone: a one-to-one mixing of 64 bits. */
static inline uint64_t random_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t random_next(struct random *r)
{
    r->state += UINT64_C(0x9e3779b97f4a7c15);
    return random_mix(r->state);
}

/* From 0 up to, and without, limit. */
static inline uint64_t random_below(struct random *r, uint64_t limit)
{
    return (uint64_t)(((unsigned __int128)random_next(r) * limit) >> 64);
}

/* From 0 up to, and without, 1. */
static inline double random_unit(struct random *r)
{
    return (double)(random_next(r) >> 11) * 0x1p-53;
}

#endif
