/* Loops that look for bits, count them or shift by what they found are built twice where that pays: for every machine,
 * and for those with the instructions that do each of these in one step (BMI 1 and 2, POPCNT: every x86 server since
 * 2013). Both do the same; which one runs is asked at each call, which costs a load.
 *
 *     static inline __attribute__((always_inline)) size_t loop(...) { ... }
 *     BITS_QUICK static size_t quick_loop(...) { return loop(...); }
 *     size_t the_loop(...) { return bits_quick() ? quick_loop(...) : loop(...); }
 *
 * With BITS_PLAIN only the first is used: tests run it on machines that have all of this. */
#ifndef UNSEEN_BASE_BITS_H
#define UNSEEN_BASE_BITS_H

#include <stdbool.h>

#if defined(__x86_64__) && !defined(BITS_PLAIN)
#define BITS_QUICK __attribute__((target("bmi,bmi2,popcnt")))

static inline bool bits_quick(void)
{
    return __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
}
#else
#define BITS_QUICK

static inline bool bits_quick(void)
{
    return false;
}
#endif

#endif
