#include "net/mailbox.h"

static struct mail *take_all(struct mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    struct mail *first = box->first;
    box->first = NULL;
    box->end = &box->first;
    pthread_mutex_unlock(&box->lock);
    return first;
}

static void deliver_all(struct mail *mail, void *owner)
{
    while (mail != NULL) {
        struct mail *next = mail->next;
        mail->deliver(mail, owner);
        mail = next;
    }
}

static void on_wake(uv_async_t *wake)
{
    struct mailbox *box = wake->data;
    deliver_all(take_all(box), box->owner);
}

int mailbox_open(struct mailbox *box, uv_loop_t *loop, void *owner, struct err *err)
{
    *box = (struct mailbox){.owner = owner};
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
static bool post(struct mailbox *box, struct mail *mail, bool only_open)
{
    mail->next = NULL;
    pthread_mutex_lock(&box->lock);
    bool taken = box->open || !only_open;
    if (!taken) {
        pthread_mutex_unlock(&box->lock);
        return false;
    }
    bool first = box->first == NULL;
    *box->end = mail;
    box->end = &mail->next;
    if (first && box->open) {
        uv_async_send(&box->wake);
    }
    pthread_mutex_unlock(&box->lock);
    return true;
}

void mailbox_post(struct mailbox *box, struct mail *mail)
{
    post(box, mail, false);
}

bool mailbox_post_if_open(struct mailbox *box, struct mail *mail)
{
    return post(box, mail, true);
}

void mailbox_close(struct mailbox *box)
{
    pthread_mutex_lock(&box->lock);
    bool was_open = box->open;
    box->open = false;
    pthread_mutex_unlock(&box->lock);
    if (was_open) {
        uv_close((uv_handle_t *)&box->wake, NULL);
        mailbox_drain(box);
    }
}

void mailbox_drain(struct mailbox *box)
{
    for (struct mail *mail = take_all(box); mail != NULL; mail = take_all(box)) {
        deliver_all(mail, box->owner);
    }
}

void mailbox_free(struct mailbox *box)
{
    pthread_mutex_destroy(&box->lock);
}
