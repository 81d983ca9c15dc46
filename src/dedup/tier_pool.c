#include "dedup/tier_pool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/task.h"

/* A question in memory of its own, since the asker may not wait for the thread that has it. Until it is freed it
 * counts in its loop's share of request_memory; a loop that ends gives that back before. */
struct tier_job {
    struct tier_job *next, *next_of_port;
    struct tier_port *port;      /* NULL: its loop has ended */
    struct tier_question *asked; /* whose it is; NULL: told, or not wanted any more */
    struct tier_question q;      /* the thread's while that has it */
    bool answered;
    bool lost; /* a thread has it, and the tier has died since */
};

struct tier_thread {
    struct tier_pool *pool;
    struct task *task;
    void *line;      /* NULL: not connected */
    unsigned deaths; /* of the tier, as it was connected */
    struct tier_job *job;
};

struct tier_pool {
    struct tier tier;
    struct tier_ops tier_ops;
    const struct tier_line_ops *ops;
    void *owner;
    pthread_mutex_t mutex;         /* guards the rest, and all jobs */
    struct tier_job *first, **end; /* that wait for a thread */
    size_t n, bytes;               /* of all that are not freed */
    bool well, told;
    int64_t well_us; /* when it was last */
    unsigned deaths; /* so often it was found dead: what was connected before may be as dead, and not know */
    struct err why;
    struct tier_thread keeper, threads[TIER_POOL_THREADS];
    struct task tasks[1 + TIER_POOL_THREADS]; /* the keeper's first */
};

struct tier_port {
    struct tier_pool *pool;
    struct budget_share *memory;
    uv_async_t async;
    struct tier_job *jobs; /* all of it, the newest first */
};

static size_t size_of(size_t n)
{
    return sizeof(struct tier_job) + 255 + n * sizeof(uint64_t) + (n + 7) / 8;
}

static void free_job(struct tier_pool *p, struct tier_job *job)
{
    p->n--;
    p->bytes -= size_of(job->q.n);
    free(job);
}

/* --- threads, with the mutex where not said otherwise --- */

static void finish(struct tier_pool *p, struct tier_job *job)
{
    job->answered = true;
    if (job->port != NULL) {
        uv_async_send(&job->port->async);
    } else {
        free_job(p, job);
    }
}

static struct tier_job *take(struct tier_pool *p)
{
    struct tier_job *job = p->first;
    if (job != NULL) {
        p->first = job->next;
        p->end = p->first == NULL ? &p->first : p->end;
    }
    return job;
}

/* False: a thread has it, or had. */
static bool leave_queue(struct tier_pool *p, const struct tier_job *job)
{
    struct tier_job **at = &p->first;
    while (*at != NULL && *at != job) {
        at = &(*at)->next;
    }
    if (*at == NULL) {
        return false;
    }
    *at = job->next;
    p->end = *at == NULL ? at : p->end;
    return true;
}

static void fail_all(struct tier_pool *p)
{
    for (struct tier_job *job = take(p); job != NULL; job = take(p)) {
        job->q.verdict = TIER_FAILED;
        job->q.err = p->why;
        finish(p, job);
    }
    for (int i = 0; i < TIER_POOL_THREADS; i++) {
        struct tier_job *job = p->threads[i].job;
        if (job != NULL) {
            job->lost = true;
        }
        if (job != NULL && job->port != NULL) {
            uv_async_send(&job->port->async);
        }
    }
}

/* err NULL: it is well. */
static void judge(struct tier_pool *p, const struct err *err)
{
    bool was = p->well;
    p->well = err == NULL;
    p->why = err != NULL ? *err : (struct err){0};
    p->well_us = p->well ? clock_real_us() : p->well_us;
    if (p->well && !was) {
        log_info("the second tier is there", "tier=%s", p->ops->name);
        p->told = false;
    } else if (!p->well && !p->told) {
        log_warn("the second tier is not there", "tier=%s error=%s", p->ops->name, log_quote_str(p->why.text));
        p->told = true;
    }
    if (!p->well) {
        p->deaths++;
        fail_all(p);
    }
}

static void hang_up(struct tier_thread *t)
{
    if (t->line != NULL) {
        t->pool->ops->close(t->line);
        t->line = NULL;
    }
}

/* Without the mutex. q NULL: a ping. A connection that has lain idle may have been closed by a tier that is well: a
 * question is put there once more, over a new one. */
static int use(struct tier_thread *t, struct tier_question *q, struct err *err)
{
    const struct tier_line_ops *ops = t->pool->ops;
    const bool was_open = t->line != NULL;
    const int64_t until_us = clock_real_us() + TIER_POOL_PATIENCE_MS * 1000;
    int rc = was_open ? 0 : ops->open(t->pool->owner, &t->line, err);
    if (rc == 0) {
        rc = q != NULL ? ops->ask(t->line, q, err) : ops->ping(t->line, err);
    }
    if (rc < 0) {
        hang_up(t);
    }
    return rc < 0 && q != NULL && was_open && clock_real_us() < until_us ? use(t, q, err) : rc;
}

static void keep(void *arg)
{
    struct tier_thread *t = arg;
    struct tier_pool *p = t->pool;
    int64_t delay_ms = 0;
    pthread_mutex_lock(&p->mutex);
    while (!task_stops(t->task)) {
        struct err err = {0};
        pthread_mutex_unlock(&p->mutex);
        int rc = use(t, NULL, &err);
        pthread_mutex_lock(&p->mutex);
        judge(p, rc < 0 ? &err : NULL);
        delay_ms = rc < 0 ? backoff_next(delay_ms, TIER_POOL_FIRST_DELAY_MS, TIER_POOL_LAST_DELAY_MS) : 0;
        task_wait_real(t->task, clock_real_us() + (rc < 0 ? delay_ms : TIER_POOL_PING_MS) * 1000);
    }
    pthread_mutex_unlock(&p->mutex);
    hang_up(t);
}

static void answer(void *arg)
{
    struct tier_thread *t = arg;
    struct tier_pool *p = t->pool;
    pthread_mutex_lock(&p->mutex);
    while (!task_stops(t->task)) {
        struct tier_job *job = t->job = take(p);
        if (job == NULL) {
            task_wait(t->task, INT64_MAX);
            continue;
        }
        struct err err = {0};
        bool outlived = t->deaths != p->deaths;
        t->deaths = p->deaths;
        pthread_mutex_unlock(&p->mutex);
        if (outlived) {
            hang_up(t);
        }
        int rc = use(t, &job->q, &err);
        pthread_mutex_lock(&p->mutex);
        t->job = NULL;
        if (rc < 0) {
            job->q.verdict = TIER_FAILED;
            job->q.err = err;
        }
        finish(p, job);
    }
    pthread_mutex_unlock(&p->mutex);
    hang_up(t);
}

/* --- ports --- */

/* With the mutex: takes the job out of its port's list. */
static void leave_port(struct tier_job *job)
{
    struct tier_job **at = &job->port->jobs;
    while (*at != job) {
        at = &(*at)->next_of_port;
    }
    *at = job->next_of_port;
    budget_give(job->port->memory, size_of(job->q.n));
    job->port = NULL;
}

/* With the mutex, which is left meanwhile, since the asker may ask again. lost: it is not answered, that's why. */
static void tell(struct tier_pool *p, struct tier_job *job, const struct err *lost)
{
    struct tier_question *q = job->asked;
    job->asked = NULL; /* from here on one that isn't answered may be gone */
    pthread_mutex_unlock(&p->mutex);
    if (q != NULL) {
        q->way = NULL;
        q->verdict = lost != NULL ? TIER_FAILED : job->q.verdict;
        q->err = lost != NULL ? *lost : job->q.err;
        if (lost == NULL) {
            q->error = job->q.error;
            q->to = job->q.to;
            memcpy(q->unseen, job->q.unseen, (q->n + 7) / 8);
        }
        q->done(q);
    }
    pthread_mutex_lock(&p->mutex);
}

static void end_job(struct tier_pool *p, struct tier_job *job)
{
    leave_port(job);
    tell(p, job, NULL);
    free_job(p, job);
}

static void on_async(uv_async_t *async)
{
    struct tier_port *port = async->data;
    struct tier_pool *p = port->pool;
    pthread_mutex_lock(&p->mutex);
    for (struct tier_job *job = port->jobs; job != NULL;) {
        if (job->answered) {
            end_job(p, job);
            job = port->jobs; /* the list may be another one now */
        } else if (job->lost && job->asked != NULL) {
            struct err why = p->why; /* it stays until its thread is through */
            tell(p, job, &why);
            job = port->jobs;
        } else {
            job = job->next_of_port;
        }
    }
    pthread_mutex_unlock(&p->mutex);
}

static struct tier_pool *pool_of(struct tier *tier)
{
    return (struct tier_pool *)tier;
}

static int port_new(struct tier *tier, struct tier_port **port, struct err *err)
{
    *port = calloc(1, sizeof **port);
    if (*port == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the second tier");
    }
    (*port)->pool = pool_of(tier);
    return 0;
}

static void port_free(struct tier_port *port)
{
    free(port);
}

static void port_open(struct tier_port *port, struct uv_loop_s *loop, struct budget_share *memory)
{
    port->memory = memory;
    uv_async_init(loop, &port->async, on_async);
    port->async.data = port;
}

static void port_close(struct tier_port *port)
{
    struct tier_pool *p = port->pool;
    struct err closed = {0};
    err_set(&closed, ERR_CLOSED, "the server is stopping");
    pthread_mutex_lock(&p->mutex);
    for (struct tier_job *job = port->jobs; job != NULL; job = port->jobs) {
        if (job->answered) {
            end_job(p, job);
            continue;
        }
        const bool ours = leave_queue(p, job);
        leave_port(job);
        tell(p, job, &closed);
        if (ours) { /* else its thread frees it, or has */
            free_job(p, job);
        }
    }
    pthread_mutex_unlock(&p->mutex);
    uv_close((uv_handle_t *)&port->async, NULL);
}

static struct tier_job *job_new(struct tier_port *port, struct tier_question *q)
{
    struct tier_job *job = calloc(1, size_of(q->n));
    if (job != NULL) {
        uint64_t *hashes = (uint64_t *)(job + 1);
        uint8_t *unseen = (uint8_t *)(hashes + q->n);
        char *user = (char *)(unseen + (q->n + 7) / 8);
        memcpy(hashes, q->hashes, q->n * sizeof *hashes);
        memcpy(user, q->user.data, q->user.len);
        job->q = (struct tier_question){.user = slice_of(user, q->user.len),
                                        .hashes = hashes,
                                        .n = q->n,
                                        .first_month = q->first_month,
                                        .unseen = unseen};
        job->asked = q;
        job->port = port;
    }
    return job;
}

/* Behind a death all threads may still wait for what is lost, while the tier is well again. */
static bool has_thread(const struct tier_pool *p)
{
    for (int i = 0; i < TIER_POOL_THREADS; i++) {
        if (p->threads[i].job == NULL || !p->threads[i].job->lost) {
            return true;
        }
    }
    return false;
}

static bool ask(struct tier_port *port, struct tier_question *q)
{
    struct tier_pool *p = port->pool;
    pthread_mutex_lock(&p->mutex);
    bool room = p->well && !task_stops(&p->tasks[0]) && p->n < TIER_POOL_QUESTIONS_MAX &&
                p->bytes + size_of(q->n) <= TIER_POOL_BYTES_MAX && has_thread(p) &&
                budget_allows(port->memory, BUDGET_REPLY, size_of(q->n));
    struct tier_job *job = room ? job_new(port, q) : NULL;
    if (job != NULL) {
        p->n++;
        p->bytes += size_of(q->n);
        budget_take(port->memory, size_of(q->n));
        q->way = job;
        job->next_of_port = port->jobs;
        port->jobs = job;
        *p->end = job;
        p->end = &job->next;
        task_unlock_wake_one(p->tasks + 1, TIER_POOL_THREADS);
    } else {
        pthread_mutex_unlock(&p->mutex);
    }
    return job != NULL;
}

static void drop(struct tier_port *port, struct tier_question *q)
{
    struct tier_pool *p = port->pool;
    struct tier_job *job = q->way;
    q->way = NULL;
    pthread_mutex_lock(&p->mutex);
    job->asked = NULL;
    if (leave_queue(p, job)) {
        leave_port(job);
        free_job(p, job);
    }
    pthread_mutex_unlock(&p->mutex);
}

static bool is_well(struct tier *tier, char *why, size_t size)
{
    struct tier_pool *p = pool_of(tier);
    pthread_mutex_lock(&p->mutex);
    bool well = p->well;
    snprintf(why, size, "%s", p->why.text);
    pthread_mutex_unlock(&p->mutex);
    return well;
}

static bool was_well(struct tier *tier)
{
    struct tier_pool *p = pool_of(tier);
    pthread_mutex_lock(&p->mutex);
    bool was = !p->well && clock_real_us() - p->well_us < TIER_POOL_BLINK_MS * 1000;
    pthread_mutex_unlock(&p->mutex);
    return was;
}

/* --- start and end --- */

int tier_pool_start(const struct tier_line_ops *ops, void *owner, struct tier_pool **pool, struct err *err)
{
    struct tier_pool *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the second tier");
    }
    p->tier_ops =
        (struct tier_ops){ops->name, port_new, port_free, port_open, port_close, ask, drop, is_well, was_well};
    p->tier.ops = &p->tier_ops;
    p->ops = ops;
    p->owner = owner;
    p->end = &p->first;
    err_set(&p->why, ERR_SYSTEM, "it has not been reached yet");
    pthread_mutex_init(&p->mutex, NULL);
    tasks_init(p->tasks, 1 + TIER_POOL_THREADS, &p->mutex);
    p->keeper = (struct tier_thread){.pool = p, .task = &p->tasks[0]};
    for (int i = 0; i < TIER_POOL_THREADS; i++) {
        p->threads[i] = (struct tier_thread){.pool = p, .task = &p->tasks[1 + i]};
    }
    int rc = task_start(p->keeper.task, "tier-keeper", TASK_SILENT, keep, &p->keeper, err);
    for (int i = 0; i < TIER_POOL_THREADS && rc == 0; i++) {
        rc = task_start(p->threads[i].task, "tier-reader", TASK_SILENT, answer, &p->threads[i], err);
    }
    if (rc < 0) {
        tier_pool_stop(p);
        tier_pool_free(p);
        return rc;
    }
    *pool = p;
    return 0;
}

struct tier *tier_pool_tier(struct tier_pool *pool)
{
    return &pool->tier;
}

void tier_pool_stop(struct tier_pool *p)
{
    if (p == NULL) {
        return;
    }
    tasks_stop(p->tasks, 1 + TIER_POOL_THREADS);
    for (struct tier_job *job = take(p); job != NULL; job = take(p)) {
        free_job(p, job);
    }
}

void tier_pool_free(struct tier_pool *p)
{
    if (p != NULL) {
        tasks_destroy(p->tasks, 1 + TIER_POOL_THREADS);
        pthread_mutex_destroy(&p->mutex);
        free(p);
    }
}
