#include "net/loop_queue.h"

static struct loop_message *take_all(struct loop_queue *box)
{
    pthread_mutex_lock(&box->lock);
    struct loop_message *first = box->first;
    box->first = NULL;
    box->end = &box->first;
    pthread_mutex_unlock(&box->lock);
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
    struct loop_queue *box = wake->data;
    deliver_all(take_all(box), box->owner);
}

int loop_queue_open(struct loop_queue *box, uv_loop_t *loop, void *owner, struct err *err)
{
    *box = (struct loop_queue){.owner = owner};
    int code = uv_async_init(loop, &box->wake, on_wake);
    if (code < 0) {
        return err_set(err, ERR_SYSTEM, "can't set up a wake-up for a thread: %s", uv_strerror(code));
    }
    pthread_mutex_init(&box->lock, NULL);
    box->wake.data = box;
    box->end = &box->first;
    box->open = true;
    return 0;
}

/* One wake-up is enough for all that is in the list, so only the first one sends it. It is sent under the lock, so that
 * the loop is not closed in between. */
static bool post(struct loop_queue *box, struct loop_message *message, bool only_open)
{
    message->next = NULL;
    pthread_mutex_lock(&box->lock);
    bool taken = box->open || !only_open;
    if (!taken) {
        pthread_mutex_unlock(&box->lock);
        return false;
    }
    bool first = box->first == NULL;
    *box->end = message;
    box->end = &message->next;
    if (first && box->open) {
        uv_async_send(&box->wake);
    }
    pthread_mutex_unlock(&box->lock);
    return true;
}

void loop_queue_post(struct loop_queue *box, struct loop_message *message)
{
    post(box, message, false);
}

bool loop_queue_post_if_open(struct loop_queue *box, struct loop_message *message)
{
    return post(box, message, true);
}

void loop_queue_close(struct loop_queue *box)
{
    pthread_mutex_lock(&box->lock);
    bool was_open = box->open;
    box->open = false;
    pthread_mutex_unlock(&box->lock);
    if (was_open) {
        uv_close((uv_handle_t *)&box->wake, NULL);
        loop_queue_drain(box);
    }
}

void loop_queue_drain(struct loop_queue *box)
{
    for (struct loop_message *message = take_all(box); message != NULL; message = take_all(box)) {
        deliver_all(message, box->owner);
    }
}

void loop_queue_free(struct loop_queue *box)
{
    pthread_mutex_destroy(&box->lock);
}
