/* The test clock is a monotonic time and an offset to it, so that a reader of both clocks gets a consistent pair while
 * another thread advances them. */
#include "base/clock.h"

#include <stdatomic.h>
#include <time.h>

#include "built.h"

enum { TEST_MONO_START = 1000 * 1000 };

static atomic_bool is_test;
static _Atomic int64_t test_mono;
static _Atomic int64_t test_offset;
static _Atomic int64_t test_passed_ns;

static int64_t read_ms(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t clock_wall_ms(void)
{
    if (atomic_load(&is_test)) {
        return atomic_load(&test_offset) + atomic_load(&test_mono);
    }
    return read_ms(CLOCK_REALTIME);
}

int64_t clock_mono_ms(void)
{
    if (atomic_load(&is_test)) {
        return atomic_load(&test_mono);
    }
    return read_ms(CLOCK_BOOTTIME);
}

int64_t clock_built_ms(void)
{
    return atomic_load(&is_test) ? 0 : BUILT_S * 1000;
}

void clock_both_ms(int64_t *wall, int64_t *mono)
{
    *mono = clock_mono_ms();
    *wall = atomic_load(&is_test) ? *mono + atomic_load(&test_offset) : clock_wall_ms();
}

int64_t clock_stopwatch_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + atomic_load_explicit(&test_passed_ns, memory_order_relaxed);
}

int64_t clock_stopwatch_us(void)
{
    return clock_stopwatch_ns() / 1000;
}

void clock_test_start(int64_t unix_ms)
{
    atomic_store(&test_mono, TEST_MONO_START);
    atomic_store(&test_offset, unix_ms - TEST_MONO_START);
    atomic_store(&is_test, true);
}

bool clock_is_test(void)
{
    return atomic_load(&is_test);
}

void clock_test_advance(int64_t ms)
{
    atomic_fetch_add(&test_mono, ms);
}

void clock_test_jump(int64_t ms)
{
    atomic_fetch_add(&test_offset, ms);
}

void clock_test_pass(int64_t ms)
{
    atomic_fetch_add(&test_passed_ns, ms * 1000000);
}

void clock_cond_wait_real(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t real_ms)
{
    clock_cond_wait_us(cond, mutex, real_ms * 1000);
}

void clock_cond_wait_us(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t real_us)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t us = real_us < 0 ? 0 : real_us;
    until.tv_sec += (time_t)(us / 1000000);
    until.tv_nsec += (long)(us % 1000000) * 1000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_clockwait(cond, mutex, CLOCK_MONOTONIC, &until);
}
