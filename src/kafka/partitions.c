/* Where each partition is read from: ours, when this folder has a position of it. A partition of which it has none may
 * still have been read by it, or by the one that it was copied from: a folder that was restored from a backup of before
 * then, and a replica that was promoted before it knew, have gone back. So the broker keeps a note beside the offset of
 * the group: whose it is (STORE_LINEAGE), and where they began to read. If that is ours, reading begins there again. If
 * not, this folder never held the partition, and the group's offset counts; and without one, what `start` says.
 *
 * Where reading begins is made durable at once, beside the position, and told to the broker: what was asked once isn't
 * asked again, and "latest" of then is not "latest" of now.
 *
 * A broker that has nothing of a partition, and had our offset before, has forgotten it with its topic: the one of that
 * name is another. It is read from its first message, as are those of a group that was deleted, or away for too long.
 *
 * Where librdkafka can't read from is told as a reset, never decided by itself (auto.offset.reset = error):
 * - our offset is before the log's first: what was between is gone. Said loudly; read on from the first.
 * - our offset is behind the log's end: the topic was made again, or its brokers have lost the end of it. Said loudly,
 *   and the log is read from its first offset, since what of it is here isn't known. Plays that are read twice count
 *   once, and what a forget erased stays erased.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
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
        partition_begin_anew(p);
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

void partition_begin_anew(struct partition *p)
{
    p->read = p->handed_in = CLIENT_UNKNOWN;
    p->durable = -1;
    p->begin = 0;
    p->begin_durable = p->found = p->touched = p->lost = p->told = p->unasked = p->added = p->forgotten = false;
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

/* --- the note --- */

#define NOTE_FORMAT "unseen %016" PRIx64 " %" PRId64 " %s"

/* With the cluster's id: a tool that mirrors a group to another cluster may take notes along, and offsets differ
 * there. */
void partition_note(const struct kafka *k, const struct partition *p, char out[CLIENT_NOTE])
{
    snprintf(out, CLIENT_NOTE, NOTE_FORMAT, (uint64_t)k->lineage, p->begin, k->cluster);
}

/* False: it is none, or another folder's. A store that can't say whose it is keeps nothing, and lacks what any has
 * read. */
static bool is_ours(const struct kafka *k, const char *note, int64_t *begin)
{
    uint64_t lineage;
    char again[CLIENT_NOTE];
    if (sscanf(note, "unseen %16" SCNx64 " %" SCNd64, &lineage, begin) != 2 || *begin < 0) {
        return false;
    }
    snprintf(again, sizeof again, NOTE_FORMAT, lineage, *begin, k->cluster);
    return strcmp(again, note) == 0 && (k->lineage == 0 || (uint64_t)k->lineage == lineage);
}

/* --- where to read from --- */

static void begin_at(struct kafka *k, struct partition *p, int64_t begin)
{
    p->begin = p->handed_in = begin;
    p->begin_durable = p->lost = false;
    partition_moved(k, p, begin);
    k->assign = true;
}

static void tell_assigned(const struct partition *p, const char *from)
{
    log_info("a partition of Kafka is assigned", "topic=%s partition=%" PRId32 " from=%s offset=%" PRId64,
             log_quote_str(p->topic), p->number, from, p->read);
}

static void take_committed(struct kafka *k, struct partition *p, const struct client_committed *committed)
{
    int64_t begin;
    p->unasked = false;
    if (p->read >= 0) {
        p->forgotten = committed->offset < 0 && p->read > 0;
        p->lost = p->forgotten;
        k->assign = true;
    } else if (committed->offset < 0) {
        return; /* `start` says it */
    } else if (is_ours(k, committed->note, &begin)) {
        log_warn("this folder has nothing of a partition of Kafka that it had read: it is read again from there",
                 "topic=%s partition=%" PRId32 " offset=%" PRId64 " group=%" PRId64, log_quote_str(p->topic), p->number,
                 begin, committed->offset);
        begin_at(k, p, begin);
    } else {
        begin_at(k, p, committed->offset);
        tell_assigned(p, "group");
    }
}

static size_t count_unasked(const struct kafka *k)
{
    size_t n = 0;
    for (size_t i = 0; i < k->n_partitions; i++) {
        n += k->partitions[i].unasked;
    }
    return n;
}

static int ask_group(struct kafka *k, char *text)
{
    size_t n = count_unasked(k), at = 0;
    if (n == 0) {
        return 0;
    }
    struct client_position *list = calloc(n, sizeof *list);
    struct client_committed *committed = calloc(n, sizeof *committed);
    int rc = list != NULL && committed != NULL ? 0 : -1;
    snprintf(text, CLIENT_TEXT, "out of memory");
    for (size_t i = 0; rc == 0 && i < k->n_partitions; i++) {
        const struct partition *p = &k->partitions[i];
        if (p->unasked) {
            list[at++] = (struct client_position){.topic = p->topic, .partition = p->number};
        }
    }
    if (rc == 0) {
        heartbeat_excuse(&k->heartbeat);
        rc = k->ops->committed(k->client, list, n, committed, ASK_MS, text);
    }
    at = 0;
    for (size_t i = 0; rc == 0 && i < k->n_partitions; i++) {
        if (k->partitions[i].unasked) {
            take_committed(k, &k->partitions[i], &committed[at++]);
        }
    }
    free(list);
    free(committed);
    return rc;
}

/* Under the cluster's id, since another cluster may have a topic of that name. */
static void name_source(struct kafka *k, struct partition *p)
{
    snprintf(p->source, sizeof p->source, "kafka/%s/%s/%" PRId32, k->cluster, p->topic, p->number);
    snprintf(p->origin, sizeof p->origin, "kafka-begin/%s/%s/%" PRId32, k->cluster, p->topic, p->number);
}

static void find_source(struct kafka *k, struct partition *p)
{
    const struct store_positions_ops *positions = k->store->positions;
    int64_t next;
    if (positions->find(k->store, slice_str(p->source), &next) == 1) {
        p->read = p->handed_in = p->durable = next;
        p->begin_durable = positions->find(k->store, slice_str(p->origin), &p->begin) == 1;
        tell_assigned(p, "store");
    }
    p->found = true;
    p->lost = p->unasked = p->read < 0 || k->group_durable;
    k->next_resolve_us = p->lost ? 0 : k->next_resolve_us;
}

/* A partition of a topic of which others were read before. "latest" is not meant of it: what it has came since then. */
static bool is_added(const struct kafka *k, const struct partition *p)
{
    bool others = false;
    for (size_t i = 0; i < k->n_partitions && p->durable < 0; i++) {
        others = others || (k->partitions[i].durable >= 0 && strcmp(k->partitions[i].topic, p->topic) == 0);
    }
    return others;
}

static void name_group(struct kafka *k)
{
    snprintf(k->group_source, sizeof k->group_source, "kafka-group/%s", k->cluster);
    k->group_hash = (int64_t)hash_id(0, slice_str(k->cfg->kafka_group));
}

static void find_group(struct kafka *k)
{
    int64_t known;
    k->group_durable =
        k->store->positions->find(k->store, slice_str(k->group_source), &known) == 1 && known == k->group_hash;
}

/* False: what the store has of them isn't known yet. */
static bool find_sources(struct kafka *k)
{
    if (k->n_partitions == 0 || k->partitions[0].found) {
        return true; /* of this assignment all are */
    }
    name_group(k);
    for (size_t i = 0; i < k->n_partitions; i++) {
        name_source(k, &k->partitions[i]);
    }
    if (!claim_partitions(k)) {
        return false;
    }
    find_group(k);
    for (size_t i = 0; i < k->n_partitions; i++) {
        find_source(k, &k->partitions[i]);
    }
    for (size_t i = 0; i < k->n_partitions; i++) {
        k->partitions[i].added = is_added(k, &k->partitions[i]);
    }
    return true;
}

/* The broker hears at once of what is durable here: its tools show it, and it may be another folder's that stands
 * there. */
static void tell_broker(struct kafka *k)
{
    char text[CLIENT_TEXT], note[CLIENT_NOTE];
    for (size_t i = 0; i < k->n_partitions; i++) {
        struct partition *p = &k->partitions[i];
        if (p->durable < 0 || p->lost || p->told) {
            continue;
        }
        partition_note(k, p, note);
        const struct client_position position = {p->topic, p->number, p->durable, note};
        if (k->ops->store(k->client, &position, 1, text) < 0) {
            kafka_note_error(k, text);
        }
        p->told = true;
    }
}

void partitions_assign(struct kafka *k)
{
    int64_t now_us = clock_mono_us();
    if (!k->assign || now_us < k->next_assign_us ||
        (k->cluster[0] == '\0' && !k->ops->cluster(k->client, k->cluster, sizeof k->cluster)) || !find_sources(k)) {
        return;
    }
    char text[CLIENT_TEXT];
    size_t n = 0;
    struct client_position *list = calloc(k->n_partitions + 1, sizeof *list);
    partitions_resolve(k);
    for (size_t i = 0; list != NULL && i < k->n_partitions; i++) {
        struct partition *p = &k->partitions[i];
        if (!p->lost) {
            list[n++] = (struct client_position){.topic = p->topic, .partition = p->number, .offset = p->read};
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
        tell_broker(k);
    }
    free(list);
}

void partition_reset(struct kafka *k, struct partition *p)
{
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

/* What `start` says. "latest" was not meant of a log that is another one now, nor of a partition that was added: all
 * that these have came since then. */
static int find_start(struct kafka *k, const struct partition *p, bool all, int64_t first, int64_t end, int64_t *next,
                      char *text)
{
    int64_t start = config_kafka_start(k->cfg);
    if (start == CONFIG_START_EARLIEST || start == CONFIG_START_LATEST) {
        *next = start == CONFIG_START_LATEST && !all ? end : first;
        return 0;
    }
    return k->ops->at_time(k->client, p->topic, p->number, start, ASK_MS, next, text);
}

static int resolve(struct kafka *k, struct partition *p, char *text)
{
    int64_t first, end, next;
    if (k->ops->range(k->client, p->topic, p->number, ASK_MS, &first, &end, text) < 0) {
        return -1;
    }
    bool another = p->forgotten || p->read > end;
    if ((another || p->read < 0) && find_start(k, p, another || p->added, first, end, &next, text) < 0) {
        return -1;
    }
    if (p->read < 0) {
        begin_at(k, p, next);
        tell_assigned(p, "start");
        return 0;
    }
    if (another) {
        tell(p,
             p->forgotten
                 ? "the broker has forgotten our offset, as of a topic made again, which is read from its beginning"
                 : "a log of Kafka ends before our offset and is read again from its beginning",
             p->read, first, end);
        p->forgotten = false;
        begin_at(k, p, next); /* where we began was another log */
        return 0;
    }
    next = p->read < first ? first : p->read;
    if (p->read < first && p->read > 0) { /* 0 asks for all that there is */
        tell(p, "messages of Kafka were deleted before they were read", p->read, first, end);
    }
    partition_moved(k, p, next);
    p->handed_in = next;
    p->lost = false;
    k->assign = true;
    return 0;
}

void partitions_resolve(struct kafka *k)
{
    int64_t now_us = clock_mono_us();
    if (now_us < k->next_resolve_us) {
        return;
    }
    k->next_resolve_us = now_us + AGAIN_US;
    char text[CLIENT_TEXT];
    if (ask_group(k, text) < 0) {
        kafka_note_error(k, text);
    }
    for (size_t i = 0; i < k->n_partitions && !atomic_load(&k->stop); i++) {
        struct partition *p = &k->partitions[i];
        if (p->lost && !p->unasked) {
            heartbeat_excuse(&k->heartbeat);
            if (resolve(k, p, text) < 0) {
                kafka_note_error(k, text);
                break; /* polled in between, or the member is thrown out */
            }
        }
    }
    heartbeat_now(&k->heartbeat);
}
