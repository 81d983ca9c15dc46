/* How much of a long loop a test runs. Random courses and cases that are tried one by one run whole in an ordinary
 * build. Under a sanitizer each takes several times as long, and what it looks for is in the code more than in the
 * numbers: there the first of SANITIZED_PART are run, or, of cases that differ in where they are, each
 * SANITIZED_PART-th. The thread sanitizer takes longest, and one case of a kind shows it which threads meet: it gets
 * the smallest part. UNSEEN_TEST_WHOLE=1 runs all of them anyway, as scripts/test --all does. */
#ifndef UNSEEN_TESTS_ROUNDS_H
#define UNSEEN_TESTS_ROUNDS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ADDRESS_SANITIZER 1
#elif defined(__SANITIZE_THREAD__)
#define UNDER_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define UNDER_ADDRESS_SANITIZER 1
#elif __has_feature(thread_sanitizer)
#define UNDER_THREAD_SANITIZER 1
#endif
#endif
#ifdef UNDER_THREAD_SANITIZER
enum { SANITIZED_PART = 18 };
#else
enum { SANITIZED_PART = 6 };
#endif
#if defined(UNDER_ADDRESS_SANITIZER) || defined(UNDER_THREAD_SANITIZER)
#define UNDER_SANITIZER 1
#else
#define UNDER_SANITIZER 0
#endif

/* Every so many'th case is tried. */
static inline uint64_t test_stride(void)
{
    const char *whole = getenv("UNSEEN_TEST_WHOLE");
    return UNDER_SANITIZER && (whole == NULL || strcmp(whole, "1") != 0) ? SANITIZED_PART : 1;
}

/* Of n, at least one. */
static inline int test_rounds(int n)
{
    int rounds = n / (int)test_stride();
    return rounds > 0 ? rounds : 1;
}

#endif
