#include "store/sqlite/thread_queue.h"

#include "base/clock.h"

int thread_queue_init(struct thread_queue *box)
{
    *box = (struct thread_queue){0};
    box->last = &box->first;
    if (pthread_mutex_init(&box->mutex, NULL) != 0) {
        return ERR_NOMEM;
    }
    if (pthread_cond_init(&box->wake, NULL) != 0) {
        pthread_mutex_destroy(&box->mutex);
        return ERR_NOMEM;
    }
    return 0;
}

void thread_queue_destroy(struct thread_queue *box)
{
    pthread_cond_destroy(&box->wake);
    pthread_mutex_destroy(&box->mutex);
}

void thread_queue_put(struct thread_queue *box, struct store_message *message)
{
    pthread_mutex_lock(&box->mutex);
    message->next = NULL;
    *box->last = message;
    box->last = &message->next;
    box->length++;
    if (message->kind == STORE_BATCH) {
        box->events += ((struct store_batch *)message)->events;
    } else {
        box->urgent = true;
    }
    bool wake = box->urgent || box->events >= box->wanted;
    pthread_mutex_unlock(&box->mutex);
    /* Only now, or the receiver would wake to find the mutex taken, and sleep again. */
    if (wake) {
        pthread_cond_signal(&box->wake);
    }
}

static void raise_flag(struct thread_queue *box, bool *flag)
{
    pthread_mutex_lock(&box->mutex);
    *flag = true;
    pthread_cond_signal(&box->wake);
    pthread_mutex_unlock(&box->mutex);
}

void thread_queue_wake(struct thread_queue *box)
{
    raise_flag(box, &box->woken);
}

void thread_queue_stop(struct thread_queue *box)
{
    raise_flag(box, &box->stop);
}

uint64_t thread_queue_length(struct thread_queue *box)
{
    pthread_mutex_lock(&box->mutex);
    uint64_t length = box->length;
    pthread_mutex_unlock(&box->mutex);
    return length;
}

struct store_message *thread_queue_take(struct thread_queue *box)
{
    pthread_mutex_lock(&box->mutex);
    struct store_message *list = box->first;
    box->first = NULL;
    box->last = &box->first;
    box->length = 0;
    box->events = 0;
    box->urgent = false;
    pthread_mutex_unlock(&box->mutex);
    return list;
}

static bool is_wanted(const struct thread_queue *box)
{
    return box->first != NULL || box->woken || box->stop;
}

/* for_ever: on a test's clock nothing becomes due by itself; but the thread beats, which takes no lock. */
static bool wait_for(struct thread_queue *box, int64_t real_ms, bool for_ever)
{
    int64_t ms = for_ever || real_ms > HEARTBEAT_EVERY_MS ? HEARTBEAT_EVERY_MS : real_ms;
    bool wanted, stop;
    do {
        heartbeat_now(&box->heartbeat);
        pthread_mutex_lock(&box->mutex);
        if (!is_wanted(box)) {
            clock_cond_wait_real(&box->wake, &box->mutex, ms);
        }
        wanted = is_wanted(box);
        stop = box->stop;
        box->woken = false;
        pthread_mutex_unlock(&box->mutex);
    } while (for_ever && !wanted);
    heartbeat_now(&box->heartbeat);
    return stop;
}

bool thread_queue_wait(struct thread_queue *box, int64_t real_ms)
{
    return wait_for(box, real_ms, clock_is_test());
}

bool thread_queue_wait_real(struct thread_queue *box, int64_t real_ms)
{
    return wait_for(box, real_ms, false);
}

bool thread_queue_stopped(struct thread_queue *box)
{
    heartbeat_now(&box->heartbeat);
    pthread_mutex_lock(&box->mutex);
    bool stop = box->stop;
    pthread_mutex_unlock(&box->mutex);
    return stop;
}

uint64_t thread_queue_events(struct thread_queue *box)
{
    pthread_mutex_lock(&box->mutex);
    uint64_t events = box->events;
    pthread_mutex_unlock(&box->mutex);
    return events;
}

void thread_queue_gather(struct thread_queue *box, uint64_t events, int64_t real_us)
{
    int64_t until = clock_stopwatch_us() + real_us;
    pthread_mutex_lock(&box->mutex);
    box->wanted = events;
    while (box->events > 0 && box->events < events && !box->urgent && !box->woken && !box->stop) {
        int64_t left = until - clock_stopwatch_us();
        if (left <= 0) {
            break;
        }
        clock_cond_wait_us(&box->wake, &box->mutex, left);
    }
    box->wanted = 0;
    pthread_mutex_unlock(&box->mutex);
}
