#include "service/offload.h"

#include <errno.h>
#include <string.h>

#include "base/background.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/worker.h"

enum { NICE = 10 };

struct offload_kind {
    const char *name; /* of each of its threads */
    int threads;
    bool background;  /* they yield to the workers */
    bool leaves_cold; /* they wait for no disk; the others don't beat, since a restart is no help when it hangs */
};

static const struct offload_kind kinds[OFFLOAD_LANES] = {
    [OFFLOAD_LARGE] = {"aside", 1, .background = true, .leaves_cold = true},
    [OFFLOAD_COLD] = {"cold", OFFLOAD_COLD_THREADS, .background = false, .leaves_cold = false},
};

/* NULL: stop. */
static struct offload_job *next_job(struct offload_thread *t)
{
    struct offload_lane *lane = t->lane;
    pthread_mutex_lock(&lane->lock);
    while (lane->first == NULL && task_wait(t->task, INT64_MAX)) {
    }
    heartbeat_now(&t->task->heartbeat); /* also when jobs never end */
    struct loop_message *message = task_stops(t->task) ? NULL : lane->first;
    if (message != NULL) {
        lane->first = message->next;
        lane->end = lane->first == NULL ? &lane->first : lane->end;
    }
    pthread_mutex_unlock(&lane->lock);
    return (struct offload_job *)message;
}

static void offload_main(void *arg)
{
    struct offload_thread *t = arg;
    if (t->lane->kind->background && background_enter(NICE, BACKGROUND_SLICE_SHORT_MS) < 0) {
        log_debug("can't lower the priority of the thread for large users", "errno=%d", errno);
    }
    for (struct offload_job *job = next_job(t); job != NULL; job = next_job(t)) {
        job->ask(job, t->asker);
        loop_queue_post(&job->home->queue, &job->message);
    }
}

static int add_thread(struct offload_lane *lane, const struct dedup *dedup, struct err *err)
{
    struct offload_thread *t = &lane->threads[lane->n];
    t->lane = lane;
    t->task = &lane->tasks[lane->n];
    int code = asker_open(dedup, &t->asker, err);
    if (code < 0) {
        return code;
    }
    if (lane->kind->leaves_cold) {
        asker_leave_cold(t->asker);
    }
    task_init(t->task, &lane->lock);
    code =
        task_start(t->task, lane->kind->name, lane->kind->leaves_cold ? TASK_BEATS : TASK_SILENT, offload_main, t, err);
    if (code < 0) {
        task_destroy(t->task);
        asker_close(t->asker);
    }
    lane->n += code == 0;
    return code;
}

int offload_start(struct offload *a, const struct dedup *dedup, struct err *err)
{
    int code = 0;
    *a = (struct offload){.runs = true};
    for (int i = 0; i < OFFLOAD_LANES; i++) {
        struct offload_lane *lane = &a->lanes[i];
        lane->end = &lane->first;
        lane->kind = &kinds[i];
        pthread_mutex_init(&lane->lock, NULL);
    }
    for (int i = 0; i < OFFLOAD_LANES; i++) {
        while (code == 0 && a->lanes[i].n < kinds[i].threads) {
            code = add_thread(&a->lanes[i], dedup, err);
        }
    }
    if (code < 0) {
        offload_stop(a);
    }
    return code;
}

void offload_put(struct offload *a, struct offload_job *job)
{
    struct offload_lane *lane = &a->lanes[job->lane];
    job->message.next = NULL;
    pthread_mutex_lock(&lane->lock);
    *lane->end = &job->message;
    lane->end = &job->message.next;
    task_unlock_wake_one(lane->tasks, lane->n);
}

bool offload_take_back(struct offload *a, struct offload_job *job)
{
    struct offload_lane *lane = &a->lanes[job->lane];
    pthread_mutex_lock(&lane->lock);
    struct loop_message **at = &lane->first;
    while (*at != NULL && *at != &job->message) {
        at = &(*at)->next;
    }
    bool found = *at != NULL;
    if (found) {
        *at = job->message.next;
        lane->end = *at == NULL ? at : lane->end;
    }
    pthread_mutex_unlock(&lane->lock);
    return found;
}

static void stop_lane(struct offload_lane *lane)
{
    for (int i = 0; i < lane->n; i++) {
        task_ask_stop(&lane->tasks[i]);
        asker_stop(lane->threads[i].asker);
    }
    for (int i = 0; i < lane->n; i++) {
        task_stop(&lane->tasks[i]);
        task_destroy(&lane->tasks[i]);
        asker_close(lane->threads[i].asker);
    }
    for (struct loop_message *message = lane->first, *next; message != NULL; message = next) {
        next = message->next;
        loop_queue_post(&((struct offload_job *)message)->home->queue, message);
    }
    pthread_mutex_destroy(&lane->lock);
}

void offload_stop(struct offload *a)
{
    for (int i = 0; a->runs && i < OFFLOAD_LANES; i++) {
        stop_lane(&a->lanes[i]);
    }
    a->runs = false;
}
