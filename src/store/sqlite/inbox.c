#include "store/sqlite/inbox.h"

#include "base/clock.h"

int inbox_init(struct inbox *box)
{
    *box = (struct inbox){0};
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

void inbox_destroy(struct inbox *box)
{
    pthread_cond_destroy(&box->wake);
    pthread_mutex_destroy(&box->mutex);
}

void inbox_put(struct inbox *box, struct store_message *message)
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

static void raise_flag(struct inbox *box, bool *flag)
{
    pthread_mutex_lock(&box->mutex);
    *flag = true;
    pthread_cond_signal(&box->wake);
    pthread_mutex_unlock(&box->mutex);
}

void inbox_wake(struct inbox *box)
{
    raise_flag(box, &box->woken);
}

void inbox_stop(struct inbox *box)
{
    raise_flag(box, &box->stop);
}

uint64_t inbox_length(struct inbox *box)
{
    pthread_mutex_lock(&box->mutex);
    uint64_t length = box->length;
    pthread_mutex_unlock(&box->mutex);
    return length;
}

struct store_message *inbox_take(struct inbox *box)
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

static bool is_wanted(const struct inbox *box)
{
    return box->first != NULL || box->woken || box->stop;
}

/* for_ever: on a test's clock nothing becomes due by itself; but the thread beats, which takes no lock. */
static bool wait_for(struct inbox *box, int64_t real_ms, bool for_ever)
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

bool inbox_wait(struct inbox *box, int64_t real_ms)
{
    return wait_for(box, real_ms, clock_is_test());
}

bool inbox_wait_real(struct inbox *box, int64_t real_ms)
{
    return wait_for(box, real_ms, false);
}

bool inbox_stopped(struct inbox *box)
{
    heartbeat_now(&box->heartbeat);
    pthread_mutex_lock(&box->mutex);
    bool stop = box->stop;
    pthread_mutex_unlock(&box->mutex);
    return stop;
}

uint64_t inbox_events(struct inbox *box)
{
    pthread_mutex_lock(&box->mutex);
    uint64_t events = box->events;
    pthread_mutex_unlock(&box->mutex);
    return events;
}

void inbox_gather(struct inbox *box, uint64_t events, int64_t real_us)
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
