/* Where each partition is read from. Ours, when this folder has a position of it; else what the group has committed at
 * the broker; else what `start` says.
 *
 * Where librdkafka can't read from is told as a reset, never decided by itself (auto.offset.reset = error):
 * - nothing was committed: `start` is made an offset, which becomes durable at once, so that the next start does not
 * ask again. "latest" of then is not "latest" of now.
 * - our offset is before the log's first: what was between is gone. Said loudly; read on from the first.
 * - our offset is behind the log's end: the topic was made anew, or its brokers have lost the end of it. Said loudly,
 *   and the log is read from its first offset, since nobody knows what of it is here. Plays that are read twice count
 *   once, and what a forget erased stays erased.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "kafka/consumer.h"

enum { ASK_MS = 2000, AGAIN_US = 1000 * 1000 };

static int order(const void *a, const void *b)
{
    const struct partition *x = a, *y = b;
    int by_topic = strcmp(x->topic, y->topic);
    return by_topic != 0 ? by_topic : (x->number > y->number) - (x->number < y->number);
}

int partitions_set(struct kafka *k, const struct client_position *list, size_t n)
{
    struct partition *partitions = calloc(n + 1, sizeof *partitions);
    if (partitions == NULL) {
        return ERR_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        struct partition *p = &partitions[i];
        snprintf(p->topic, sizeof p->topic, "%s", list[i].topic);
        p->number = list[i].partition;
        p->read = p->handed_in = CLIENT_COMMITTED;
        p->durable = -1;
        p->shown.next = p->shown.end = p->shown.lag = -1;
        snprintf(p->shown.topic, sizeof p->shown.topic, "%s", list[i].topic);
        p->shown.partition = p->number;
    }
    qsort(partitions, n, sizeof *partitions, order);
    partitions_clear(k);
    pthread_mutex_lock(&k->mutex);
    free(k->partitions);
    k->partitions = partitions;
    k->n_partitions = n;
    pthread_mutex_unlock(&k->mutex);
    k->assign = true;
    return 0;
}

void partitions_clear(struct kafka *k)
{
    pthread_mutex_lock(&k->mutex);
    k->n_partitions = 0;
    pthread_mutex_unlock(&k->mutex);
    k->last = 0;
    k->generation++;
    k->assign = k->touched = false;
}

struct partition *partition_find(struct kafka *k, struct slice topic, int32_t number)
{
    if (k->last < k->n_partitions) {
        struct partition *p = &k->partitions[k->last];
        if (p->number == number && slice_eq(slice_str(p->topic), topic)) {
            return p;
        }
    }
    struct partition wanted = {.number = number};
    snprintf(wanted.topic, sizeof wanted.topic, "%.*s", (int)topic.len, topic.data);
    struct partition *p =
        k->n_partitions == 0 ? NULL : bsearch(&wanted, k->partitions, k->n_partitions, sizeof wanted, order);
    if (p != NULL) {
        k->last = (size_t)(p - k->partitions);
    }
    return p;
}

void partition_moved(struct kafka *k, struct partition *p, int64_t next)
{
    p->read = next;
    p->touched = k->touched = true;
}

/* Under the cluster's id, since another cluster may have a topic of that name. */
static void name_source(struct kafka *k, struct partition *p)
{
    snprintf(p->source, sizeof p->source, "kafka/%s/%s/%" PRId32, k->cluster, p->topic, p->number);
    int64_t next;
    if (k->store->positions->find(k->store, slice_str(p->source), &next) == 1) {
        p->read = p->handed_in = p->durable = next;
    }
    log_info("a partition of Kafka is assigned", "topic=%s partition=%" PRId32 " from=%s offset=%" PRId64,
             log_quote_str(p->topic), p->number, p->durable >= 0 ? "folder" : "group", p->durable);
}

void partitions_assign(struct kafka *k)
{
    int64_t now_us = clock_stopwatch_us();
    if (!k->assign || now_us < k->next_assign_us ||
        (k->cluster[0] == '\0' && !k->ops->cluster(k->client, k->cluster, sizeof k->cluster))) {
        return;
    }
    char text[CLIENT_TEXT];
    size_t n = 0;
    struct client_position *list = calloc(k->n_partitions + 1, sizeof *list);
    for (size_t i = 0; list != NULL && i < k->n_partitions; i++) {
        struct partition *p = &k->partitions[i];
        if (p->source[0] == '\0') {
            name_source(k, p);
        }
        if (!p->lost) {
            list[n++] = (struct client_position){p->topic, p->number, p->read};
        }
    }
    if (list == NULL || k->ops->assign(k->client, list, n, text) < 0) {
        kafka_note_error(k, list == NULL ? "out of memory" : text);
        k->next_assign_us = now_us + AGAIN_US;
    } else {
        k->assign = false;
        k->connected = true;
        if (k->paused && k->ops->pause(k->client, true, text) < 0) {
            kafka_note_error(k, text);
        }
    }
    free(list);
}

void partition_reset(struct kafka *k, struct partition *p, int64_t offset)
{
    if (p->read < 0 && offset >= 0) {
        p->read = offset; /* what the group had committed */
    }
    p->lost = true;
    k->next_resolve_us = 0;
}

static void tell(struct partition *p, const char *what, int64_t at, int64_t first, int64_t end)
{
    log_error(what, "topic=%s partition=%" PRId32 " offset=%" PRId64 " first=%" PRId64 " end=%" PRId64,
              log_quote_str(p->topic), p->number, at, first, end);
    snprintf(p->error, sizeof p->error, "%s: offset %" PRId64 ", the log has %" PRId64 " to %" PRId64, what, at, first,
             end);
}

static int resolve(struct kafka *k, struct partition *p, char *text)
{
    int64_t first, end, next, start = config_kafka_start(k->cfg);
    if (k->ops->range(k->client, p->topic, p->number, ASK_MS, &first, &end, text) < 0) {
        return -1;
    }
    if (p->read > end) {
        tell(p, "a log of Kafka ends before our offset and is read again from its beginning", p->read, first, end);
        next = first;
    } else if (p->read >= 0) {
        next = p->read < first ? first : p->read;
        if (p->read < first && p->read > 0) { /* 0 asks for all that there is */
            tell(p, "messages of Kafka were deleted before they were read", p->read, first, end);
        }
    } else if (start == CONFIG_START_EARLIEST) {
        next = first;
    } else if (start == CONFIG_START_LATEST) {
        next = end;
    } else if (k->ops->at_time(k->client, p->topic, p->number, start, ASK_MS, &next, text) < 0) {
        return -1;
    }
    partition_moved(k, p, next);
    p->handed_in = next;
    p->lost = false;
    k->assign = true;
    return 0;
}

void partitions_resolve(struct kafka *k)
{
    int64_t now_us = clock_stopwatch_us();
    if (now_us < k->next_resolve_us) {
        return;
    }
    k->next_resolve_us = now_us + AGAIN_US;
    for (size_t i = 0; i < k->n_partitions && !atomic_load(&k->stop); i++) {
        struct partition *p = &k->partitions[i];
        char text[CLIENT_TEXT];
        if (p->lost) {
            heartbeat_excuse(&k->heartbeat);
            if (resolve(k, p, text) < 0) {
                kafka_note_error(k, text);
                break; /* polled in between, or the member is thrown out */
            }
        }
    }
    heartbeat_now(&k->heartbeat);
}
