#include "net/loop_queue.h"

static struct loop_message *take_all(struct loop_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    struct loop_message *first = queue->first;
    queue->first = NULL;
    queue->end = &queue->first;
    pthread_mutex_unlock(&queue->lock);
    return first;
}

static void deliver_all(struct loop_message *message, void *owner)
{
    while (message != NULL) {
        struct loop_message *next = message->next;
        message->deliver(message, owner);
        message = next;
    }
}

static void on_wake(uv_async_t *wake)
{
    struct loop_queue *queue = wake->data;
    deliver_all(take_all(queue), queue->owner);
}

int loop_queue_open(struct loop_queue *queue, uv_loop_t *loop, void *owner, struct err *err)
{
    *queue = (struct loop_queue){.owner = owner};
    int code = uv_async_init(loop, &queue->wake, on_wake);
    if (code < 0) {
        return err_set(err, ERR_SYSTEM, "can't set up a wake-up for a thread: %s", uv_strerror(code));
    }
    pthread_mutex_init(&queue->lock, NULL);
    queue->wake.data = queue;
    queue->end = &queue->first;
    queue->open = true;
    return 0;
}

/* One wake-up is enough for all that is in the list, so only the first one sends it. It is sent under the lock, so that
 * the loop is not closed in between. */
static bool post(struct loop_queue *queue, struct loop_message *message, bool only_open)
{
    message->next = NULL;
    pthread_mutex_lock(&queue->lock);
    bool taken = queue->open || !only_open;
    if (!taken) {
        pthread_mutex_unlock(&queue->lock);
        return false;
    }
    bool first = queue->first == NULL;
    *queue->end = message;
    queue->end = &message->next;
    if (first && queue->open) {
        uv_async_send(&queue->wake);
    }
    pthread_mutex_unlock(&queue->lock);
    return true;
}

void loop_queue_post(struct loop_queue *queue, struct loop_message *message)
{
    post(queue, message, false);
}

bool loop_queue_post_if_open(struct loop_queue *queue, struct loop_message *message)
{
    return post(queue, message, true);
}

void loop_queue_close(struct loop_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    bool was_open = queue->open;
    queue->open = false;
    pthread_mutex_unlock(&queue->lock);
    if (was_open) {
        uv_close((uv_handle_t *)&queue->wake, NULL);
        loop_queue_drain(queue);
    }
}

void loop_queue_drain(struct loop_queue *queue)
{
    for (struct loop_message *message = take_all(queue); message != NULL; message = take_all(queue)) {
        deliver_all(message, queue->owner);
    }
}

void loop_queue_free(struct loop_queue *queue)
{
    pthread_mutex_destroy(&queue->lock);
}
