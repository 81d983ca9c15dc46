#include "store/thread_queue.h"

#include "base/clock.h"

int thread_queue_init(struct thread_queue *queue)
{
    *queue = (struct thread_queue){0};
    queue->last = &queue->first;
    if (pthread_mutex_init(&queue->mutex, NULL) != 0) {
        return ERR_NOMEM;
    }
    if (pthread_cond_init(&queue->wake, NULL) != 0) {
        pthread_mutex_destroy(&queue->mutex);
        return ERR_NOMEM;
    }
    return 0;
}

void thread_queue_destroy(struct thread_queue *queue)
{
    pthread_cond_destroy(&queue->wake);
    pthread_mutex_destroy(&queue->mutex);
}

void thread_queue_put(struct thread_queue *queue, struct store_message *message)
{
    pthread_mutex_lock(&queue->mutex);
    message->next = NULL;
    *queue->last = message;
    queue->last = &message->next;
    queue->length++;
    if (message->kind == STORE_BATCH) {
        queue->events += ((struct store_batch *)message)->events;
    } else {
        queue->urgent = true;
    }
    bool wake = queue->urgent || queue->events >= queue->wanted;
    pthread_mutex_unlock(&queue->mutex);
    /* Only now, or the receiver would wake to find the mutex taken, and sleep again. */
    if (wake) {
        pthread_cond_signal(&queue->wake);
    }
}

static void raise_flag(struct thread_queue *queue, bool *flag)
{
    pthread_mutex_lock(&queue->mutex);
    *flag = true;
    pthread_cond_signal(&queue->wake);
    pthread_mutex_unlock(&queue->mutex);
}

void thread_queue_wake(struct thread_queue *queue)
{
    raise_flag(queue, &queue->woken);
}

void thread_queue_stop(struct thread_queue *queue)
{
    raise_flag(queue, &queue->stop);
}

uint64_t thread_queue_length(struct thread_queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    uint64_t length = queue->length;
    pthread_mutex_unlock(&queue->mutex);
    return length;
}

struct store_message *thread_queue_take(struct thread_queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    struct store_message *list = queue->first;
    queue->first = NULL;
    queue->last = &queue->first;
    queue->length = 0;
    queue->events = 0;
    queue->urgent = false;
    pthread_mutex_unlock(&queue->mutex);
    return list;
}

static bool is_wanted(const struct thread_queue *queue)
{
    return queue->first != NULL || queue->woken || queue->stop;
}

static void begin_wait(struct thread_queue *queue)
{
    heartbeat_now(&queue->heartbeat);
    pthread_mutex_lock(&queue->mutex);
}

/* Returns whether the thread is to stop. */
static bool end_wait(struct thread_queue *queue, bool *wanted)
{
    bool stop = queue->stop;
    *wanted = is_wanted(queue);
    queue->woken = false;
    pthread_mutex_unlock(&queue->mutex);
    heartbeat_now(&queue->heartbeat);
    return stop;
}

/* for_ever: on a test's clock nothing becomes due by itself; but the thread beats, which takes no lock. */
static bool wait_for(struct thread_queue *queue, int64_t real_ms, bool for_ever)
{
    int64_t ms = for_ever || real_ms > HEARTBEAT_EVERY_MS ? HEARTBEAT_EVERY_MS : real_ms;
    bool wanted, stop;
    do {
        begin_wait(queue);
        if (!is_wanted(queue)) {
            clock_cond_wait_real(&queue->wake, &queue->mutex, ms);
        }
        stop = end_wait(queue, &wanted);
    } while (for_ever && !wanted);
    return stop;
}

bool thread_queue_wait(struct thread_queue *queue, int64_t real_ms)
{
    return wait_for(queue, real_ms, clock_is_test());
}

bool thread_queue_wait_real(struct thread_queue *queue, int64_t real_ms)
{
    return wait_for(queue, real_ms, false);
}

bool thread_queue_wait_until(struct thread_queue *queue, int64_t mono_us)
{
    int64_t beat_us = clock_mono_us() + HEARTBEAT_EVERY_MS * 1000;
    bool wanted;
    begin_wait(queue);
    if (!is_wanted(queue)) {
        clock_cond_wait_until(&queue->wake, &queue->mutex, mono_us < beat_us ? mono_us : beat_us);
    }
    return end_wait(queue, &wanted);
}

bool thread_queue_stopped(struct thread_queue *queue)
{
    heartbeat_now(&queue->heartbeat);
    pthread_mutex_lock(&queue->mutex);
    bool stop = queue->stop;
    pthread_mutex_unlock(&queue->mutex);
    return stop;
}

uint64_t thread_queue_events(struct thread_queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    uint64_t events = queue->events;
    pthread_mutex_unlock(&queue->mutex);
    return events;
}

void thread_queue_gather(struct thread_queue *queue, uint64_t events, int64_t real_us)
{
    int64_t until = clock_real_us() + real_us;
    pthread_mutex_lock(&queue->mutex);
    queue->wanted = events;
    while (queue->events > 0 && queue->events < events && !queue->urgent && !queue->woken && !queue->stop) {
        int64_t left = until - clock_real_us();
        if (left <= 0) {
            break;
        }
        clock_cond_wait_real_us(&queue->wake, &queue->mutex, left);
    }
    queue->wanted = 0;
    pthread_mutex_unlock(&queue->mutex);
}
