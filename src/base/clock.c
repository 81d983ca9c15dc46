/* The test clock is a monotonic time and an offset to it, so that a reader of both clocks gets a consistent pair while
 * another thread advances them.
 *
 * A thread that waits for it stands in a list, from before its last look at the clock until after its wait. Who
 * advances the clock signals each of them with the mutex of that one: either the thread sees the new time, or it waits
 * already. Meanwhile `told` keeps that thread from leaving, since its mutex may go with it. A thread has its own mutex
 * when it takes the list's, but not when it waits for its leave; who advances has never both. */
#include "base/clock.h"

#include <stdatomic.h>
#include <time.h>

#include "built.h"

enum {
    TEST_MONO_START = 1000 * 1000,
    TEST_WAIT_MS = 1000, /* real: HEARTBEAT_EVERY_MS */
};

static atomic_bool is_test;
static _Atomic int64_t test_mono;
static _Atomic int64_t test_offset;
static _Atomic int64_t test_passed_ns;
static _Thread_local int64_t test_looks; /* at the work clock */

struct waiter {
    pthread_cond_t *cond;
    pthread_mutex_t *mutex;
    bool told; /* it is being signalled */
    struct waiter *next;
};
static pthread_mutex_t waiters_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t waiters_told = PTHREAD_COND_INITIALIZER;
static struct waiter *waiters;

static int64_t read_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t read_ms(clockid_t id)
{
    return read_ns(id) / 1000000;
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

int64_t clock_mono_us(void)
{
    if (atomic_load(&is_test)) {
        return atomic_load(&test_mono) * 1000;
    }
    return read_ns(CLOCK_BOOTTIME) / 1000;
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

int64_t clock_figures_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

int64_t clock_figures_us(void)
{
    return clock_figures_ns() / 1000;
}

int64_t clock_work_us(void)
{
    return atomic_load_explicit(&is_test, memory_order_relaxed) ? ++test_looks : clock_figures_us();
}

int64_t clock_real_us(void)
{
    return (read_ns(CLOCK_MONOTONIC) + atomic_load_explicit(&test_passed_ns, memory_order_relaxed)) / 1000;
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

/* Who is told stays in the list, and who comes meanwhile stands before it, and has seen the new time. */
static void wake_waiters(void)
{
    pthread_mutex_lock(&waiters_mutex);
    for (struct waiter *w = waiters; w != NULL; w = w->next) {
        if (w->told) { /* by another one who advances: it looks at the clock after that */
            continue;
        }
        w->told = true;
        pthread_mutex_unlock(&waiters_mutex);
        pthread_mutex_lock(w->mutex);
        pthread_cond_broadcast(w->cond);
        pthread_mutex_unlock(w->mutex);
        pthread_mutex_lock(&waiters_mutex);
        w->told = false;
        pthread_cond_broadcast(&waiters_told);
    }
    pthread_mutex_unlock(&waiters_mutex);
}

void clock_test_advance(int64_t ms)
{
    atomic_fetch_add(&test_mono, ms);
    wake_waiters();
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
    clock_cond_wait_real_us(cond, mutex, real_ms * 1000);
}

void clock_cond_wait_real_us(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t real_us)
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

static void leave(struct waiter *w)
{
    pthread_mutex_lock(&waiters_mutex);
    while (w->told) {
        pthread_cond_wait(&waiters_told, &waiters_mutex);
    }
    struct waiter **at = &waiters;
    while (*at != w) {
        at = &(*at)->next;
    }
    *at = w->next;
    pthread_mutex_unlock(&waiters_mutex);
}

static void wait_for_test(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t mono_us)
{
    struct waiter w = {.cond = cond, .mutex = mutex};
    pthread_mutex_lock(&waiters_mutex);
    w.next = waiters;
    waiters = &w;
    pthread_mutex_unlock(&waiters_mutex);
    if (clock_mono_us() < mono_us) {
        clock_cond_wait_real(cond, mutex, TEST_WAIT_MS);
    }
    pthread_mutex_unlock(mutex);
    leave(&w);
    pthread_mutex_lock(mutex);
}

void clock_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t mono_us)
{
    if (atomic_load(&is_test)) {
        wait_for_test(cond, mutex, mono_us);
    } else {
        clock_cond_wait_real_us(cond, mutex, mono_us - clock_mono_us());
    }
}
