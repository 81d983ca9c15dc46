#include "tests/lib/alloc.h"

#include <stdatomic.h>

bool (*_Atomic alloc_fails)(enum alloc_by by, size_t n, size_t size);
bool alloc_failed;

static int left; /* before one fails */
static bool only_one;

static bool count_down(enum alloc_by by, size_t n, size_t size)
{
    (void)by;
    (void)n;
    (void)size;
    if (left > 0) {
        left--;
        return false;
    }
    if (only_one) {
        atomic_store(&alloc_fails, NULL);
    }
    alloc_failed = true;
    return true;
}

static void begin(int n, bool one)
{
    left = n;
    only_one = one;
    alloc_failed = false;
    atomic_store(&alloc_fails, count_down);
}

void alloc_fail_after(int n)
{
    if (n >= 0) {
        begin(n, false);
    } else {
        atomic_store(&alloc_fails, NULL);
    }
}

void alloc_fail_at(int n)
{
    begin(n - 1, true);
}

static bool fails(enum alloc_by by, size_t n, size_t size)
{
    bool (*ask)(enum alloc_by, size_t, size_t) = atomic_load(&alloc_fails);
    return ask != NULL && ask(by, n, size);
}

/* --- linked with --wrap --- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_reallocarray(void *old, size_t n, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_reallocarray(void *old, size_t n, size_t size);

void *__wrap_malloc(size_t size)
{
    return fails(ALLOC_MALLOC, 1, size) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails(ALLOC_CALLOC, n, size) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails(ALLOC_REALLOC, 1, size) ? NULL : __real_realloc(old, size);
}

void *__wrap_reallocarray(void *old, size_t n, size_t size)
{
    return fails(ALLOC_REALLOCARRAY, n, size) ? NULL : __real_reallocarray(old, n, size);
}
