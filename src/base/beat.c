#include "base/beat.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the list; the beats themselves take no lock */
static struct beat *beats;

void beat_begin(struct beat *b, const char *name)
{
    snprintf(b->name, sizeof b->name, "%s", name);
    pthread_setname_np(pthread_self(), b->name); /* BEAT_NAME is what Linux takes */
    atomic_init(&b->at_us, clock_stopwatch_us());
    atomic_init(&b->stall_ms, 0);
    pthread_mutex_lock(&mutex);
    b->next = beats;
    beats = b;
    pthread_mutex_unlock(&mutex);
}

void beat_now(struct beat *b)
{
    atomic_store_explicit(&b->at_us, clock_stopwatch_us(), memory_order_relaxed);
    int64_t stall = atomic_load_explicit(&b->stall_ms, memory_order_relaxed);
    if (stall > 0) {
        struct timespec t = {.tv_sec = (time_t)(stall / 1000), .tv_nsec = (long)(stall % 1000) * 1000000};
        nanosleep(&t, NULL);
        atomic_store_explicit(&b->stall_ms, 0, memory_order_relaxed);
        atomic_store_explicit(&b->at_us, clock_stopwatch_us(), memory_order_relaxed);
    }
}

void beat_excuse(struct beat *b)
{
    atomic_store_explicit(&b->at_us, INT64_MAX, memory_order_relaxed);
}

void beat_end(struct beat *b)
{
    pthread_mutex_lock(&mutex);
    for (struct beat **at = &beats; *at != NULL; at = &(*at)->next) {
        if (*at == b) {
            *at = b->next;
            break;
        }
    }
    pthread_mutex_unlock(&mutex);
}

int64_t beat_oldest_ms(char name[BEAT_NAME])
{
    int64_t oldest = INT64_MAX;
    if (name != NULL) {
        name[0] = '\0';
    }
    pthread_mutex_lock(&mutex);
    for (const struct beat *b = beats; b != NULL; b = b->next) {
        int64_t at = atomic_load_explicit(&b->at_us, memory_order_relaxed);
        if (at < oldest) {
            oldest = at;
            if (name != NULL) {
                memcpy(name, b->name, BEAT_NAME);
            }
        }
    }
    pthread_mutex_unlock(&mutex);
    int64_t now = clock_stopwatch_us();
    return oldest < now ? (now - oldest) / 1000 : 0;
}

int beat_ages(struct beat_age *out, int max)
{
    int n = 0;
    pthread_mutex_lock(&mutex);
    for (const struct beat *b = beats; b != NULL && n < max; b = b->next, n++) {
        int64_t silent = clock_stopwatch_us() - atomic_load_explicit(&b->at_us, memory_order_relaxed);
        out[n].silent_ms = silent > 0 ? silent / 1000 : 0;
        memcpy(out[n].name, b->name, BEAT_NAME);
    }
    pthread_mutex_unlock(&mutex);
    return n;
}

bool beat_stall(const char *name, int64_t ms)
{
    bool found = false;
    pthread_mutex_lock(&mutex);
    for (struct beat *b = beats; b != NULL && !found; b = b->next) {
        found = strcmp(b->name, name) == 0;
        if (found) {
            atomic_store_explicit(&b->stall_ms, ms, memory_order_relaxed);
        }
    }
    pthread_mutex_unlock(&mutex);
    return found;
}
