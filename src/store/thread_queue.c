#include "store/thread_queue.h"

#include "base/clock.h"

void thread_queue_init(struct thread_queue *queue)
{
    *queue = (struct thread_queue){0};
    queue->last = &queue->first;
    pthread_mutex_init(&queue->mutex, NULL);
    task_init(&queue->task, &queue->mutex);
}

void thread_queue_destroy(struct thread_queue *queue)
{
    task_destroy(&queue->task);
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
    if (queue->urgent || queue->events >= queue->wanted) {
        task_unlock_wake_one(&queue->task, 1);
    } else {
        pthread_mutex_unlock(&queue->mutex);
    }
}

void thread_queue_wake(struct thread_queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    task_wake(&queue->task);
    pthread_mutex_unlock(&queue->mutex);
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

/* Only while there is nothing to take. Returns whether to stop. */
static bool wait_until(struct thread_queue *queue, int64_t until_us, bool (*wait)(struct task *t, int64_t until_us))
{
    heartbeat_now(&queue->task.heartbeat);
    pthread_mutex_lock(&queue->mutex);
    wait(&queue->task, queue->first == NULL ? until_us : INT64_MIN);
    pthread_mutex_unlock(&queue->mutex);
    return task_stops(&queue->task);
}

bool thread_queue_wait(struct thread_queue *queue, int64_t ms)
{
    /* On a test's clock nothing becomes due by itself. */
    return thread_queue_wait_until(queue, clock_is_test() ? INT64_MAX : clock_mono_us() + ms * 1000);
}

bool thread_queue_wait_until(struct thread_queue *queue, int64_t mono_us)
{
    return wait_until(queue, mono_us, task_wait);
}

bool thread_queue_wait_real(struct thread_queue *queue, int64_t real_ms)
{
    return wait_until(queue, clock_real_us() + real_ms * 1000, task_pause_real);
}

bool thread_queue_stopped(struct thread_queue *queue)
{
    heartbeat_now(&queue->task.heartbeat);
    return task_stops(&queue->task);
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
    pthread_mutex_lock(&queue->mutex);
    if (queue->events > 0 && queue->events < events && !queue->urgent) {
        queue->wanted = events;
        task_pause_real(&queue->task, clock_real_us() + real_us);
        queue->wanted = 0;
    }
    pthread_mutex_unlock(&queue->mutex);
}
