#include "service/offload.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/background.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/worker.h"

enum { NICE = 10 };

/* NULL: stop. */
static struct offload_job *next_job(struct offload *a)
{
    pthread_mutex_lock(&a->lock);
    while (a->first == NULL && !a->stop) {
        heartbeat_now(&a->heartbeat);
        clock_cond_wait_real(&a->wake, &a->lock, HEARTBEAT_EVERY_MS);
    }
    heartbeat_now(&a->heartbeat);
    struct loop_message *message = a->stop ? NULL : a->first;
    if (message != NULL) {
        a->first = message->next;
        a->end = a->first == NULL ? &a->first : a->end;
    }
    pthread_mutex_unlock(&a->lock);
    return (struct offload_job *)message;
}

static void *offload_main(void *arg)
{
    struct offload *a = arg;
    if (background_enter(NICE, BACKGROUND_SLICE_SHORT_MS) < 0) {
        log_debug("can't lower the priority of the thread for large users", "errno=%d", errno);
    }
    heartbeat_begin(&a->heartbeat, "aside");
    for (struct offload_job *job = next_job(a); job != NULL; job = next_job(a)) {
        job->ask(job, a->asker);
        loop_queue_post(&job->home->queue, &job->message);
    }
    heartbeat_end(&a->heartbeat);
    return NULL;
}

/* Signals are the main thread's business. */
static int start_thread(struct offload *a, struct err *err)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(&a->thread, NULL, offload_main, a);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (code != 0) {
        return err_set(err, ERR_SYSTEM, "can't start the thread for large users: %s", strerror(code));
    }
    return 0;
}

int offload_start(struct offload *a, const struct dedup *dedup, struct err *err)
{
    *a = (struct offload){0};
    a->end = &a->first;
    int code = asker_open(dedup, &a->asker, err);
    if (code < 0) {
        return code;
    }
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->wake, NULL);
    code = start_thread(a, err);
    a->has_thread = code == 0;
    if (code < 0) {
        pthread_cond_destroy(&a->wake);
        pthread_mutex_destroy(&a->lock);
        asker_close(a->asker);
        a->asker = NULL;
    }
    return code;
}

void offload_put(struct offload *a, struct offload_job *job)
{
    job->message.next = NULL;
    pthread_mutex_lock(&a->lock);
    *a->end = &job->message;
    a->end = &job->message.next;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}

bool offload_take_back(struct offload *a, struct offload_job *job)
{
    pthread_mutex_lock(&a->lock);
    struct loop_message **at = &a->first;
    while (*at != NULL && *at != &job->message) {
        at = &(*at)->next;
    }
    bool found = *at != NULL;
    if (found) {
        *at = job->message.next;
        a->end = *at == NULL ? at : a->end;
    }
    pthread_mutex_unlock(&a->lock);
    return found;
}

void offload_stop(struct offload *a)
{
    if (!a->has_thread) {
        return;
    }
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
    asker_stop(a->asker);
    pthread_join(a->thread, NULL);
    a->has_thread = false;
    for (struct loop_message *message = a->first, *next; message != NULL; message = next) {
        next = message->next;
        loop_queue_post(&((struct offload_job *)message)->home->queue, message);
    }
    asker_close(a->asker);
    pthread_cond_destroy(&a->wake);
    pthread_mutex_destroy(&a->lock);
}
