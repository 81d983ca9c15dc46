#include "base/settle.h"

#include <poll.h>
#include <string.h>

#include "base/clock.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the list; before that of a task, which is only tried */
static struct task *tasks;
static _Atomic uint64_t acts;

void settle_enter(struct task *t)
{
    if (clock_is_test()) {
        pthread_mutex_lock(&mutex);
        t->next = tasks;
        tasks = t;
        pthread_mutex_unlock(&mutex);
    }
}

void settle_leave(struct task *t)
{
    if (clock_is_test()) {
        pthread_mutex_lock(&mutex);
        struct task **at = &tasks;
        while (*at != NULL && *at != t) {
            at = &(*at)->next;
        }
        *at = *at == NULL ? NULL : t->next;
        pthread_mutex_unlock(&mutex);
        settle_count();
    }
}

void settle_count(void)
{
    if (clock_is_test()) {
        atomic_fetch_add(&acts, 1);
    }
}

/* What comes over loopback is there as soon as it was sent. */
static bool is_parked(const struct task *t)
{
    struct pollfd p = {.fd = atomic_load(&t->parked) - 1, .events = POLLIN};
    return p.fd >= 0 && poll(&p, 1, 0) == 0;
}

/* A mutex that another thread has may be the task's at work. */
static bool is_idle(struct task *t, int64_t now_us, int64_t *due_us)
{
    bool idle = is_parked(t);
    if (!idle && pthread_mutex_trylock(t->mutex) == 0) {
        idle = t->idle && !task_stops(t) && !(t->waits && t->woken) && now_us < t->until_us;
        *due_us = idle && t->until_us < *due_us ? t->until_us : *due_us;
        pthread_mutex_unlock(t->mutex);
    }
    return idle;
}

int settle_look(struct settle *out, struct buf *busy)
{
    const int64_t now_us = clock_mono_us();
    int rc = 0;
    *out = (struct settle){.due_us = INT64_MAX};
    buf_clear(busy);
    pthread_mutex_lock(&mutex);
    for (struct task *t = tasks; t != NULL && rc == 0; t = t->next) {
        if (!is_idle(t, now_us, &out->due_us)) {
            rc = busy->len > 0 ? buf_add(busy, " ", 1) : 0;
            rc = rc < 0 ? rc : buf_add(busy, t->name, strlen(t->name));
        }
    }
    pthread_mutex_unlock(&mutex);
    out->acts = atomic_load(&acts); /* after all looks: what goes on meanwhile is in it, or in the next one's */
    return rc;
}
