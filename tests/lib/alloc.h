/* Allocations of the code under test that fail on demand. Unit tests are linked so that malloc, calloc, realloc and
 * reallocarray of the program come here, and those of libraries don't. */
#ifndef UNSEEN_TESTS_ALLOC_H
#define UNSEEN_TESTS_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

enum alloc_by { ALLOC_MALLOC, ALLOC_CALLOC, ALLOC_REALLOC, ALLOC_REALLOCARRAY };

/* Asked at each allocation of n * size bytes, in its thread: whether it fails. NULL: none does. */
extern bool (*_Atomic alloc_fails)(enum alloc_by by, size_t n, size_t size);

/* For tests of one thread. alloc_failed: whether one has failed since. */
void alloc_fail_after(int n); /* n succeed, then all fail; -1: none fails */
void alloc_fail_at(int n);    /* the n-th from now on fails, and no other */
extern bool alloc_failed;

#endif
