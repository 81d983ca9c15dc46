#include "base/heartbeat.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the list; the beats themselves take no lock */
static struct heartbeat *heartbeats;

/* When heartbeat_watch() was called last (0: not yet), and since when it has been without a gap. */
static _Atomic int64_t watched_us, awake_us;

enum { GAP_US = 3 * HEARTBEAT_EVERY_MS * 1000, NAP_NS = 1000000 };

void heartbeat_begin(struct heartbeat *b, const char *name)
{
    snprintf(b->name, sizeof b->name, "%s", name);
    pthread_setname_np(pthread_self(), b->name); /* HEARTBEAT_NAME is what Linux takes */
    atomic_init(&b->at_us, clock_real_us());
    atomic_init(&b->stall_ms, 0);
    pthread_mutex_lock(&mutex);
    b->next = heartbeats;
    heartbeats = b;
    pthread_mutex_unlock(&mutex);
}

/* In naps, so that another heartbeat_stall() changes how long. */
static void sleep_stalled(struct heartbeat *b)
{
    int64_t began = clock_real_us(), ms = atomic_load(&b->stall_ms);
    do {
        while (clock_real_us() - began < ms * 1000) {
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
            ms = atomic_load(&b->stall_ms);
        }
    } while (!atomic_compare_exchange_strong(&b->stall_ms, &ms, 0)); /* it was told another time just now */
}

void heartbeat_now(struct heartbeat *b)
{
    atomic_store_explicit(&b->at_us, clock_real_us(), memory_order_relaxed);
    if (atomic_load_explicit(&b->stall_ms, memory_order_relaxed) > 0) {
        sleep_stalled(b);
        atomic_store_explicit(&b->at_us, clock_real_us(), memory_order_relaxed);
    }
}

void heartbeat_wait(struct heartbeat *b, pthread_cond_t *cond, pthread_mutex_t *held, int64_t until_us)
{
    int64_t due_us = clock_mono_us() + HEARTBEAT_EVERY_MS * 1000;
    clock_cond_wait_until(cond, held, until_us < due_us ? until_us : due_us);
    heartbeat_now(b);
}

void heartbeat_excuse(struct heartbeat *b)
{
    atomic_store_explicit(&b->at_us, INT64_MAX, memory_order_relaxed);
}

void heartbeat_watch(int64_t now_us)
{
    int64_t before = atomic_load(&watched_us);
    if (before != 0 && now_us - before > GAP_US) {
        atomic_store(&awake_us, now_us); /* first, since others look meanwhile */
    }
    atomic_store(&watched_us, now_us);
}

/* Up to when a thread's silence counts against it: now, or, when it was not watched since a gap, up to that gap. After
 * a SIGCONT other threads may run before the one that watches. */
static int64_t watched_until(void)
{
    int64_t now = clock_real_us(), watched = atomic_load(&watched_us);
    return watched != 0 && now - watched > GAP_US ? watched : now;
}

static int64_t silent_us(int64_t at, int64_t until)
{
    int64_t awake = atomic_load(&awake_us);
    int64_t from = at > awake ? at : awake;
    return from < until ? until - from : 0;
}

void heartbeat_end(struct heartbeat *b)
{
    pthread_mutex_lock(&mutex);
    for (struct heartbeat **at = &heartbeats; *at != NULL; at = &(*at)->next) {
        if (*at == b) {
            *at = b->next;
            break;
        }
    }
    pthread_mutex_unlock(&mutex);
    sleep_stalled(b); /* one who was told that it would be has found it in the list */
}

int64_t heartbeat_oldest_ms(char name[HEARTBEAT_NAME])
{
    int64_t oldest = INT64_MAX;
    if (name != NULL) {
        name[0] = '\0';
    }
    pthread_mutex_lock(&mutex);
    for (const struct heartbeat *b = heartbeats; b != NULL; b = b->next) {
        int64_t at = atomic_load_explicit(&b->at_us, memory_order_relaxed);
        if (at < oldest) {
            oldest = at;
            if (name != NULL) {
                memcpy(name, b->name, HEARTBEAT_NAME);
            }
        }
    }
    pthread_mutex_unlock(&mutex);
    return silent_us(oldest, watched_until()) / 1000;
}

int64_t heartbeat_silent_ms(const struct heartbeat *b)
{
    int64_t at = atomic_load_explicit(&b->at_us, memory_order_relaxed);
    return at != 0 ? silent_us(at, watched_until()) / 1000 : 0;
}

int heartbeat_ages(struct heartbeat_age *out, int max)
{
    int n = 0;
    pthread_mutex_lock(&mutex);
    for (const struct heartbeat *b = heartbeats; b != NULL && n < max; b = b->next, n++) {
        out[n].silent_ms = silent_us(atomic_load_explicit(&b->at_us, memory_order_relaxed), watched_until()) / 1000;
        memcpy(out[n].name, b->name, HEARTBEAT_NAME);
    }
    pthread_mutex_unlock(&mutex);
    return n;
}

bool heartbeat_stall(const char *name, int64_t ms)
{
    bool found = false;
    pthread_mutex_lock(&mutex);
    for (struct heartbeat *b = heartbeats; b != NULL && !found; b = b->next) {
        found = strcmp(b->name, name) == 0;
        if (found) {
            atomic_store_explicit(&b->stall_ms, ms, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&mutex);
    return found;
}
