#include "fake_tier.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum { QUESTIONS_MAX = 64, SEEN_MAX = 8 };

struct tier_port {
    struct fake_tier *t;
    uv_async_t async;
};

struct fake_tier {
    struct tier tier;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct tier_question *questions[QUESTIONS_MAX];
    int n, asked, turned_away;
    bool refuses, full, blinks, answers;
    enum tier_verdict verdict;
    uint64_t to, seen[SEEN_MAX];
    size_t n_seen;
    struct tier_port *port; /* the one worker's; that of HTTP's has no questions */
};

static struct fake_tier *fake_of(struct tier *t)
{
    return (struct fake_tier *)t;
}

static void answer(struct fake_tier *t, struct tier_question *q)
{
    memset(q->unseen, 0xff, (q->n + 7) / 8);
    for (size_t i = 0; i < q->n; i++) {
        for (size_t k = 0; k < t->n_seen; k++) {
            if (q->hashes[i] == t->seen[k]) {
                q->unseen[i / 8] &= (uint8_t) ~(0x80 >> i % 8);
            }
        }
    }
    q->verdict = t->verdict;
    q->to = t->to;
    if (q->verdict != TIER_ANSWERED) {
        err_set(&q->err, ERR_SYSTEM, "told to say no");
    }
}

/* Without the lock, since a question may be asked again from within. */
static void answer_all(struct fake_tier *t)
{
    struct tier_question *all[QUESTIONS_MAX];
    pthread_mutex_lock(&t->lock);
    int n = t->answers ? t->n : 0;
    memcpy(all, t->questions, (size_t)n * sizeof *all);
    t->n -= n;
    t->answers = false;
    for (int i = 0; i < n; i++) {
        answer(t, all[i]);
    }
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < n; i++) {
        all[i]->done(all[i]);
    }
}

static void on_async(uv_async_t *async)
{
    answer_all(((struct tier_port *)async->data)->t);
}

static int port_new(struct tier *tier, struct tier_port **port, struct err *err)
{
    (void)err;
    *port = calloc(1, sizeof **port);
    (*port)->t = fake_of(tier);
    return 0;
}

static void port_free(struct tier_port *port)
{
    free(port);
}

static void port_open(struct tier_port *port, struct uv_loop_s *loop, struct budget_share *memory)
{
    (void)memory;
    uv_async_init(loop, &port->async, on_async);
    port->async.data = port;
    pthread_mutex_lock(&port->t->lock);
    if (port->t->port == NULL) {
        port->t->port = port;
    }
    pthread_mutex_unlock(&port->t->lock);
}

static void port_close(struct tier_port *port)
{
    struct fake_tier *t = port->t;
    uv_close((uv_handle_t *)&port->async, NULL);
    if (t->port == port) {
        pthread_mutex_lock(&t->lock);
        t->answers = true;
        t->verdict = TIER_FAILED;
        t->port = NULL;
        pthread_mutex_unlock(&t->lock);
        answer_all(t);
    }
}

static bool ask(struct tier_port *port, struct tier_question *q)
{
    struct fake_tier *t = port->t;
    pthread_mutex_lock(&t->lock);
    t->port = port;
    bool takes = !t->refuses && !t->full && t->n < QUESTIONS_MAX;
    if (takes) {
        t->questions[t->n++] = q;
        t->asked++;
    }
    t->turned_away += !takes;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return takes;
}

static void drop(struct tier_port *port, struct tier_question *q)
{
    struct fake_tier *t = port->t;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < t->n; i++) {
        if (t->questions[i] == q) {
            memmove(&t->questions[i], &t->questions[i + 1], (size_t)(t->n - i - 1) * sizeof *t->questions);
            t->n--;
        }
    }
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static bool is_well(struct tier *tier, char *why, size_t size)
{
    struct fake_tier *t = fake_of(tier);
    snprintf(why, size, "told not to be");
    pthread_mutex_lock(&t->lock);
    bool well = !t->refuses;
    pthread_mutex_unlock(&t->lock);
    return well;
}

static bool was_well(struct tier *tier)
{
    struct fake_tier *t = fake_of(tier);
    pthread_mutex_lock(&t->lock);
    bool was = t->refuses && t->blinks;
    pthread_mutex_unlock(&t->lock);
    return was;
}

static const struct tier_ops ops = {"fake", port_new, port_free, port_open, port_close, ask, drop, is_well, was_well};

struct tier *fake_tier_new(void)
{
    struct fake_tier *t = calloc(1, sizeof *t);
    t->tier.ops = &ops;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    return &t->tier;
}

void fake_tier_free(struct tier *tier)
{
    struct fake_tier *t = fake_of(tier);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

void fake_tier_take(struct tier *tier, bool takes)
{
    struct fake_tier *t = fake_of(tier);
    pthread_mutex_lock(&t->lock);
    t->refuses = !takes;
    pthread_mutex_unlock(&t->lock);
}

void fake_tier_blink(struct tier *tier, bool blinks)
{
    struct fake_tier *t = fake_of(tier);
    pthread_mutex_lock(&t->lock);
    t->refuses = t->blinks = blinks;
    pthread_mutex_unlock(&t->lock);
}

void fake_tier_fill(struct tier *tier, bool full)
{
    struct fake_tier *t = fake_of(tier);
    pthread_mutex_lock(&t->lock);
    t->full = full;
    pthread_mutex_unlock(&t->lock);
}

void fake_tier_wait(struct tier *tier, int n)
{
    struct fake_tier *t = fake_of(tier);
    pthread_mutex_lock(&t->lock);
    while (t->n != n) {
        pthread_cond_wait(&t->changed, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
}

void fake_tier_wait_turned_away(struct tier *tier, int n)
{
    struct fake_tier *t = fake_of(tier);
    pthread_mutex_lock(&t->lock);
    while (t->turned_away < n) {
        pthread_cond_wait(&t->changed, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
}

int fake_tier_asked(struct tier *tier)
{
    struct fake_tier *t = fake_of(tier);
    pthread_mutex_lock(&t->lock);
    int asked = t->asked;
    pthread_mutex_unlock(&t->lock);
    return asked;
}

int fake_tier_has(struct tier *tier)
{
    struct fake_tier *t = fake_of(tier);
    pthread_mutex_lock(&t->lock);
    int n = t->n;
    pthread_mutex_unlock(&t->lock);
    return n;
}

void fake_tier_answer(struct tier *tier, enum tier_verdict verdict, uint64_t to, const uint64_t *seen, size_t n_seen)
{
    struct fake_tier *t = fake_of(tier);
    pthread_mutex_lock(&t->lock);
    t->verdict = verdict;
    t->to = to;
    t->n_seen = n_seen;
    if (n_seen > 0) {
        memcpy(t->seen, seen, n_seen * sizeof *seen);
    }
    t->answers = true;
    uv_async_send(&t->port->async);
    while (t->answers) {
        pthread_cond_wait(&t->changed, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
}
