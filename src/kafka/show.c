#include "kafka/show.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "kafka/consumer.h"

enum { EVERY_US = 500 * 1000 };

/* Over the last seconds: each look counts for half. */
static double rate_of(double before, uint64_t n, int64_t us)
{
    double now = us > 0 ? (double)n * 1e6 / (double)us : 0;
    double rate = before / 2 + now / 2;
    return rate < 0.01 ? 0 : rate;
}

static void show_partition(struct kafka *k, struct partition *p, int64_t us)
{
    char text[CLIENT_TEXT];
    int64_t first, end = -1;
    if (k->ops->range(k->client, p->topic, p->number, 0, &first, &end, text) < 0) {
        end = -1;
    }
    struct kafka_partition *s = &p->shown;
    pthread_mutex_lock(&k->mutex);
    s->next = p->durable;
    s->end = end < 0 || end > p->durable ? end : p->durable; /* it is told some time after the messages are */
    s->lag = s->end < 0 || p->durable < 0 ? -1 : s->end - p->durable;
    s->lag_ms = s->lag <= 0 || p->durable_at_ms == 0 ? 0 : clock_wall_ms() - p->durable_at_ms;
    s->lag_ms = s->lag_ms < 0 ? 0 : s->lag_ms;
    s->rate = rate_of(s->rate, p->messages - p->messages_before, us);
    p->messages_before = p->messages;
    snprintf(s->error, sizeof s->error, "%s", p->error);
    pthread_mutex_unlock(&k->mutex);
}

static enum kafka_doing doing(const struct kafka *k)
{
    return !k->connected          ? KAFKA_CONNECTING
           : k->delay_ms != 0     ? KAFKA_PAUSED
           : k->n_partitions == 0 ? KAFKA_WAITING
                                  : KAFKA_READING;
}

static void sum_up(struct kafka *k, int64_t us)
{
    struct kafka_state *s = &k->shown;
    pthread_mutex_lock(&k->mutex);
    s->n_partitions = k->n_partitions;
    s->lag = k->n_partitions > 0 ? 0 : -1;
    s->lag_ms = 0;
    for (size_t i = 0; i < k->n_partitions; i++) {
        const struct kafka_partition *p = &k->partitions[i].shown;
        s->lag = p->lag < 0 || s->lag < 0 ? -1 : s->lag + p->lag;
        s->lag_ms = p->lag_ms > s->lag_ms ? p->lag_ms : s->lag_ms;
    }
    s->lag_ms = s->lag < 0 ? -1 : s->lag_ms;
    s->rate = rate_of(s->rate, s->messages - k->messages_before, us);
    k->messages_before = s->messages;
    s->doing = doing(k);
    bool tells = s->doing == KAFKA_PAUSED || s->doing == KAFKA_CONNECTING;
    snprintf(s->cause, sizeof s->cause, "%s", tells ? k->cause : "");
    pthread_mutex_unlock(&k->mutex);
}

void kafka_show(struct kafka *k)
{
    int64_t now_us = clock_figures_us();
    if (now_us < k->next_look_us) {
        return;
    }
    int64_t us = now_us - k->next_look_us + EVERY_US;
    for (size_t i = 0; i < k->n_partitions; i++) {
        show_partition(k, &k->partitions[i], us);
    }
    sum_up(k, us);
    k->next_look_us = now_us + EVERY_US;
}

static int by_lag(const void *a, const void *b)
{
    const struct kafka_partition *const *x = a, *const *y = b;
    return ((*x)->lag < (*y)->lag) - ((*x)->lag > (*y)->lag);
}

static int by_address(const void *a, const void *b)
{
    const struct kafka_partition *const *x = a, *const *y = b;
    return (*x > *y) - (*x < *y); /* the order of the array */
}

static size_t copy(const struct kafka *k, struct kafka_partition *out, size_t max)
{
    size_t n = k->n_partitions < max ? k->n_partitions : max;
    const struct kafka_partition **all = n < k->n_partitions ? calloc(k->n_partitions, sizeof *all) : NULL;
    if (all != NULL) {
        for (size_t i = 0; i < k->n_partitions; i++) {
            all[i] = &k->partitions[i].shown;
        }
        qsort(all, k->n_partitions, sizeof *all, by_lag);
        qsort(all, n, sizeof *all, by_address);
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = all != NULL ? *all[i] : k->partitions[i].shown;
    }
    free(all);
    return n;
}

size_t kafka_look(struct kafka *k, struct kafka_state *state, struct kafka_partition *partitions, size_t max)
{
    *state = (struct kafka_state){.lag = -1, .lag_ms = -1};
    if (k == NULL) {
        return 0;
    }
    pthread_mutex_lock(&k->mutex);
    *state = k->shown;
    size_t n = copy(k, partitions, max);
    pthread_mutex_unlock(&k->mutex);
    if (k->letters != NULL) {
        dead_letters_look(k->letters, &state->dead_letters, &state->dead_letter_bytes);
    }
    return n;
}
