#include "base/task.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/settle.h"

void task_init(struct task *t, pthread_mutex_t *mutex)
{
    *t = (struct task){.mutex = mutex};
    pthread_cond_init(&t->wake, NULL);
}

void task_destroy(struct task *t)
{
    pthread_cond_destroy(&t->wake);
}

static void *task_main(void *arg)
{
    struct task *t = arg;
    if (t->kind == TASK_BEATS) {
        heartbeat_begin(&t->heartbeat, t->name);
    } else {
        char name[HEARTBEAT_NAME];
        snprintf(name, sizeof name, "%s", t->name);
        pthread_setname_np(pthread_self(), name);
    }
    t->run(t->arg);
    if (t->kind == TASK_BEATS) {
        heartbeat_end(&t->heartbeat);
    }
    settle_leave(t);
    return NULL;
}

int task_start(struct task *t, const char *name, enum task_kind kind, void (*run)(void *arg), void *arg,
               struct err *err)
{
    sigset_t every, old;
    t->name = name;
    t->kind = kind;
    t->run = run;
    t->arg = arg;
    settle_enter(t);
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &old);
    int code = pthread_create(&t->thread, NULL, task_main, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    t->started = code == 0;
    if (code != 0) {
        settle_leave(t);
    }
    return code == 0 ? 0 : err_set(err, ERR_SYSTEM, "can't start the thread \"%s\": %s", name, strerror(code));
}

void task_ask_stop(struct task *t)
{
    pthread_mutex_lock(t->mutex);
    atomic_store(&t->stop, true);
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(t->mutex);
}

void task_stop(struct task *t)
{
    task_ask_stop(t);
    if (t->started) {
        pthread_join(t->thread, NULL);
        t->started = false;
    }
}

bool task_started(const struct task *t)
{
    return t->started;
}

bool task_stops(const struct task *t)
{
    return atomic_load(&t->stop);
}

bool task_is_idle(struct task *t)
{
    pthread_mutex_lock(t->mutex);
    bool idle = t->waits && !t->woken;
    pthread_mutex_unlock(t->mutex);
    return idle;
}

void task_wake(struct task *t)
{
    t->woken = true;
    pthread_cond_signal(&t->wake);
}

void tasks_init(struct task *tasks, int n, pthread_mutex_t *mutex)
{
    for (int i = 0; i < n; i++) {
        task_init(&tasks[i], mutex);
    }
}

void tasks_destroy(struct task *tasks, int n)
{
    for (int i = 0; i < n; i++) {
        task_destroy(&tasks[i]);
    }
}

void tasks_stop(struct task *tasks, int n)
{
    for (int i = 0; i < n; i++) {
        task_ask_stop(&tasks[i]);
    }
    for (int i = 0; i < n; i++) {
        task_stop(&tasks[i]);
    }
}

void task_unlock_wake_one(struct task *tasks, int n)
{
    struct task *t = NULL;
    for (int i = 0; i < n && t == NULL; i++) {
        t = tasks[i].waits && !tasks[i].woken ? &tasks[i] : NULL;
    }
    if (t != NULL) {
        t->woken = true;
    }
    pthread_mutex_unlock(tasks[0].mutex);
    if (t != NULL) {
        pthread_cond_signal(&t->wake);
    }
}

/* Without the mutex: a test may have it stuck here (heartbeat_stall()). */
static void beat(struct task *t)
{
    if (t->kind == TASK_BEATS) {
        pthread_mutex_unlock(t->mutex);
        heartbeat_now(&t->heartbeat);
        pthread_mutex_lock(t->mutex);
    }
}

/* Once, not for longer than until the next beat. */
static void sleep_until(struct task *t, int64_t until_us, int64_t now_us, bool real)
{
    const int64_t beat_us = t->kind == TASK_BEATS ? now_us + HEARTBEAT_EVERY_MS * 1000 : INT64_MAX;
    const int64_t next_us = until_us < beat_us ? until_us : beat_us;
    if (next_us == INT64_MAX) {
        pthread_cond_wait(&t->wake, t->mutex);
    } else if (real) {
        clock_cond_wait_real_us(&t->wake, t->mutex, next_us - now_us);
    } else {
        clock_cond_wait_until(&t->wake, t->mutex, next_us);
    }
    beat(t);
}

enum wait { WAIT, REST, WAIT_REAL, PAUSE_REAL, REST_REAL };

/* Until it is told to stop, woken (if it may), or the clock is until_us. */
static bool wait_until(struct task *t, int64_t until_us, enum wait wait)
{
    const bool real = wait >= WAIT_REAL, wakes = wait != REST && wait != REST_REAL;
    int64_t (*const now)(void) = real ? clock_real_us : clock_mono_us;
    int64_t at_us;
    t->waits = wakes; /* from before the mutex is free on */
    t->idle = wait <= WAIT_REAL;
    t->until_us = real ? INT64_MAX : until_us;
    beat(t);
    while (!task_stops(t) && !(wakes && t->woken) && (at_us = now()) < until_us) {
        sleep_until(t, until_us, at_us, real);
    }
    if (!real || (wakes && t->woken)) {
        settle_count();
    }
    t->waits = t->idle = false;
    t->woken = t->woken && !wakes;
    return !task_stops(t);
}

bool task_wait(struct task *t, int64_t until_us)
{
    return wait_until(t, until_us, WAIT);
}

bool task_rest(struct task *t, int64_t until_us)
{
    return wait_until(t, until_us, REST);
}

bool task_wait_real(struct task *t, int64_t until_us)
{
    return wait_until(t, until_us, WAIT_REAL);
}

bool task_pause_real(struct task *t, int64_t until_us)
{
    return wait_until(t, until_us, PAUSE_REAL);
}

bool task_rest_real(struct task *t, int64_t until_us)
{
    return wait_until(t, until_us, REST_REAL);
}

void task_await(struct task *t, const bool *done)
{
    while (!*done) {
        sleep_until(t, INT64_MAX, clock_mono_us(), false);
    }
}

void task_answer(struct task *t, bool *done)
{
    *done = true;
    pthread_cond_signal(&t->wake);
}

void task_park(struct task *t, int fd)
{
    atomic_store(&t->parked, fd + 1);
}

void task_unpark(struct task *t)
{
    settle_count(); /* before it is seen that it has gone on */
    atomic_store(&t->parked, 0);
}
