/* Numbers for property tests: splitmix64 (Steele, Lea, Flood 2014). The same seed gives the same numbers on every
 * machine, so that a failure can be repeated. */
#ifndef UNSEEN_TESTS_RANDOM_H
#define UNSEEN_TESTS_RANDOM_H

#include <stdint.h>

static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t random_below(uint64_t *state, uint64_t limit)
{
    return random_next(state) % limit;
}

#endif
