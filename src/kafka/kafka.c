/* The thread of Kafka, from its start to its end; what each part does stands in consumer.h. */
#include "kafka/kafka.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/module.h"
#include "dedup/role.h"
#include "kafka/consumer.h"
#include "kafka/show.h"
#include "kafka/start.h"

enum {
    BURST = 256,         /* messages between two looks at everything else */
    IDLE_POLL_MS = 100,  /* nothing is under way */
    BUSY_POLL_MS = 2,    /* the store has a group, which poll() does not tell of */
    FILL_US = 50 * 1000, /* after that a group is handed in, though messages keep coming */
    STALL_MS = 500,      /* of the store with everything full; then reading pauses */
    HANDOVER_MS = 5000,  /* a rebalance waits so long for what was handed in */
    CLOSE_MS = 5000,     /* for the brokers, when the group is left */
    GONE_MS = 1000,      /* when none answers anyway */
    END_MS = 20 * 1000,  /* for the thread, whatever a library does */
    REACH_MS = 500,
    REACH_US = 2000 * 1000,
    REOPEN_US = 10 * 1000 * 1000,
};

void kafka_note_error(struct kafka *k, const char *text)
{
    pthread_mutex_lock(&k->mutex);
    k->shown.errors++;
    k->shown.error_ms = clock_wall_ms();
    snprintf(k->shown.error, sizeof k->shown.error, "%s", text);
    pthread_mutex_unlock(&k->mutex);
    if (log_again(&k->limit)) {
        log_warn("Kafka reports an error", "error=%s", log_quote_str(text));
    }
}

/* --- what the client tells --- */

static void on_assigned(void *owner, const struct client_position *partitions, size_t n)
{
    struct kafka *k = owner;
    pthread_mutex_lock(&k->mutex);
    k->shown.rebalances++;
    pthread_mutex_unlock(&k->mutex);
    if (partitions_set(k, partitions, n) < 0) {
        kafka_note_error(k, "out of memory for an assignment");
        k->fatal = true;
    }
}

/* What was handed in is waited for, so that who has the partitions next need not read it again; the rest is theirs. */
static void on_revoked(void *owner)
{
    struct kafka *k = owner;
    group_drop(k);
    if (!atomic_load(&k->stop)) {
        group_wait(k, HANDOVER_MS);
        group_look(k);
        group_drop(k); /* it may have failed */
    }
    log_info("partitions of Kafka are given back", "partitions=%zu", k->n_partitions);
    kafka_resume(k); /* or a partition that comes back would stay paused */
    k->delay_ms = 0;
    partitions_clear(k);
}

static void on_committed(void *owner)
{
    struct kafka *k = owner;
    if (!k->group_known && k->n_partitions > 0 && k->partitions[0].read >= 0) {
        k->group_known = true;
        partition_moved(k, &k->partitions[0], k->partitions[0].read); /* so that the folder knows soon */
    }
}

static void on_error(void *owner, const char *text, bool all_down, bool fatal)
{
    struct kafka *k = owner;
    kafka_note_error(k, text);
    if (all_down || !k->connected) {
        pthread_mutex_lock(&k->mutex);
        snprintf(k->cause, sizeof k->cause, "%s", text);
        pthread_mutex_unlock(&k->mutex);
    }
    k->connected = k->connected && !all_down;
    k->fatal = k->fatal || fatal;
}

static void on_log(void *owner, int level, const char *text)
{
    (void)owner;
    log_write(level <= 2 ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG, "librdkafka", "text=%s", log_quote_str(text));
}

/* --- the thread --- */

static void on_message(struct kafka *k, const struct client_message *m)
{
    struct partition *p = partition_find(k, m->topic, m->partition);
    k->connected = true;
    /* Paused: it comes again. Lower than `read`: it was taken. Else of an assignment that is over. */
    if (p != NULL && !k->paused && !k->assign && !p->lost && m->offset >= p->read) {
        intake(k, p, m);
    }
}

static void on_event(struct kafka *k, enum client_event event, const struct client_message *m)
{
    struct partition *p = m->topic.len == 0 ? NULL : partition_find(k, m->topic, m->partition);
    if (event == CLIENT_END) {
        k->connected = true;
        if (p != NULL && !k->paused && !k->assign && !p->lost && m->offset > p->read) {
            partition_moved(k, p, m->offset); /* what lies between is no message: the marks of transactions */
        }
        return;
    }
    kafka_note_error(k, m->text);
    if (p != NULL) {
        snprintf(p->error, sizeof p->error, "%s", m->text);
    }
    if (event == CLIENT_RESET && p != NULL && !p->lost) {
        partition_reset(k, p);
    }
}

static int poll_ms(const struct kafka *k, int polled)
{
    if (k->with_store != NULL) {
        return polled > 0 ? 0 : BUSY_POLL_MS;
    }
    return k->paused || (polled == 0 && !k->touched) ? IDLE_POLL_MS : 0;
}

static void poll_some(struct kafka *k)
{
    bool more = true; /* paused, with a full group: it is polled for the membership's sake, and nothing is taken */
    for (int i = 0; more && i < BURST && (k->paused || !group_is_full(k->filling)); i++) {
        struct client_message m;
        enum client_event event = k->ops->poll(k->client, poll_ms(k, i), &m);
        more = event != CLIENT_NOTHING;
        if (event == CLIENT_MESSAGE) {
            on_message(k, &m);
        } else if (more) {
            on_event(k, event, &m);
        }
        if (more) {
            k->ops->done(k->client, &m);
        }
        more = more && !k->paused;
    }
    const struct group *g = k->filling;
    if (!more || g->batch.bytes.len >= GROUP_GOOD || clock_mono_us() - g->begun_us > FILL_US) {
        group_hand_in(k);
    }
}

/* The library does not tell that a broker is there again when there is nothing to read. */
static void look_for_brokers(struct kafka *k)
{
    char text[CLIENT_TEXT];
    int64_t now_us = clock_mono_us();
    if (!k->connected && now_us >= k->next_reach_us) {
        k->connected = k->ops->reach(k->client, REACH_MS, text) == 0;
        k->next_reach_us = now_us + REACH_US;
    }
}

static void turn(struct kafka *k)
{
    heartbeat_now(&k->heartbeat);
    group_look(k);
    look_for_brokers(k);
    partitions_resolve(k);
    partitions_assign(k);
    if (group_is_full(k->filling) && !k->paused) {
        group_hand_in(k);
        if (group_is_full(k->filling) && !k->paused) {
            group_wait(k, STALL_MS);
            if (atomic_load(&k->with_store->doing) == GROUP_HANDED_IN) {
                kafka_pause(k, "the store has not committed yet what was read before");
            }
        }
    } else {
        poll_some(k);
    }
    kafka_show(k);
}

/* Another node takes the writes, and so reads the topics. */
static bool rests(struct kafka *k)
{
    struct err err;
    bool rests = role_may_write(k->dedup->role, &err) < 0;
    if (rests) {
        pthread_mutex_lock(&k->mutex);
        snprintf(k->cause, sizeof k->cause, "%.*s", KAFKA_TEXT - 1, err.text);
        pthread_mutex_unlock(&k->mutex);
        k->connected = false;
    }
    return rests;
}

/* A client with a fatal error, such as a member that another one has replaced, is of no more use. One that rests gives
 * its partitions to others. */
static void open_anew(struct kafka *k)
{
    struct err err = {0};
    bool rested = !k->fatal;
    on_revoked(k);
    k->ops->close(k->client, k->connected ? CLOSE_MS : GONE_MS);
    k->client = NULL;
    int64_t again_us = rested ? 0 : clock_mono_us() + REOPEN_US;
    while (!atomic_load(&k->stop) && k->client == NULL) {
        heartbeat_now(&k->heartbeat);
        bool waits = rests(k);
        kafka_show(k);
        pthread_mutex_lock(&k->mutex);
        clock_cond_wait_real(&k->answered, &k->mutex, IDLE_POLL_MS);
        pthread_mutex_unlock(&k->mutex);
        if (!waits && clock_mono_us() >= again_us && kafka_open_client(k, &err) < 0) {
            kafka_note_error(k, err.text);
            again_us = clock_mono_us() + REOPEN_US;
        }
    }
    k->fatal = false;
}

static const struct client_hooks hooks = {on_assigned, on_revoked, on_committed, on_error, on_log};

static void *kafka_main(void *arg)
{
    struct kafka *k = arg;
    heartbeat_begin(&k->heartbeat, "kafka");
    while (!atomic_load(&k->stop)) {
        if (k->fatal || rests(k)) {
            open_anew(k);
        } else {
            turn(k);
        }
    }
    group_drop(k);
    group_wait(k, HANDOVER_MS);
    heartbeat_end(&k->heartbeat); /* what follows waits for brokers, and a restart would not shorten it */
    if (k->client != NULL) {
        group_look(k);
        k->ops->close(k->client, k->connected ? CLOSE_MS : GONE_MS);
    }
    pthread_mutex_lock(&k->mutex);
    k->ended = true;
    pthread_cond_broadcast(&k->answered);
    pthread_mutex_unlock(&k->mutex);
    return NULL;
}

/* --- from outside --- */

int kafka_start_with(const struct client_ops *ops, const struct dedup *dedup, struct kafka **kafka, struct err *err)
{
    int rc = kafka_new(ops, dedup, &hooks, kafka, err);
    if (rc < 0) {
        return rc;
    }
    struct kafka *k = *kafka;
    if (pthread_create(&k->thread, NULL, kafka_main, k) != 0) {
        k->ops->close(k->client, 0);
        kafka_free(k);
        *kafka = NULL;
        return err_set(err, ERR_SYSTEM, "can't start the thread of Kafka");
    }
    k->started = true;
    return 0;
}

int kafka_start(const struct dedup *dedup, struct kafka **kafka, struct err *err)
{
    const void *ops;
    *kafka = NULL;
    if (dedup->cfg->kafka_brokers[0] == '\0') {
        return 0;
    }
    int rc = module_open(dedup->cfg->modules, "kafka", "unseen-kafka", &ops, err);
    return rc < 0 ? rc : kafka_start_with(ops, dedup, kafka, err);
}

void kafka_stop(struct kafka *k)
{
    if (k == NULL || !k->started) {
        return;
    }
    int64_t until_us = clock_real_us() + END_MS * 1000;
    atomic_store(&k->stop, true);
    pthread_mutex_lock(&k->mutex);
    pthread_cond_broadcast(&k->answered);
    while (!k->ended && clock_real_us() < until_us) {
        clock_cond_wait_real(&k->answered, &k->mutex, IDLE_POLL_MS);
    }
    bool ended = k->ended;
    pthread_mutex_unlock(&k->mutex);
    if (ended) {
        pthread_join(k->thread, NULL);
        k->started = false;
    } else {
        log_error("Kafka does not end, and is left behind", "waited_ms=%d", END_MS);
    }
}
