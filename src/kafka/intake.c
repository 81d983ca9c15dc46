/* A message becomes an event of the group that is being filled, a dead letter, or a number in a counter. */
#include <stdio.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/hide.h"
#include "kafka/consumer.h"

static int add_letter(struct kafka *k, struct partition *p, const struct client_message *m, const char *reason,
                      struct err *err)
{
    struct dead_letter letter = {
        .topic = m->topic,
        .partition = m->partition,
        .offset = m->offset,
        .at_ms = m->at_ms,
        .reason = slice_str(reason),
        .key = m->key,
        .value = m->value,
    };
    if (k->letters == NULL) {
        log_warn("a message of Kafka can't be read, and a store in memory keeps no dead letters", "reason=%s",
                 log_quote_str(reason));
    } else {
        dead_letters_bound(k->letters, (uint64_t)config_now(k->cfg)->kafka_dead_letters_max);
        if (dead_letters_add(k->letters, &letter, err) < 0) {
            return err_prefix(err, "a dead letter can't be kept");
        }
    }
    k->filling->letters = true;
    k->filling->counts.dead++;
    p->dead++;
    snprintf(p->error, sizeof p->error, "offset %lld: %.200s", (long long)m->offset, reason);
    hide_ids(p->error);
    return 0;
}

static int add_event(struct kafka *k, const struct message_event *event, int64_t at_ms, struct err *err)
{
    struct group *g = k->filling;
    int rc = dedup_hash_items(k->dedup, event->items, event->n, k->hashes, err);
    if (rc < 0) {
        return rc;
    }
    int64_t key = hash_user_key(k->dedup->seed, event->user);
    rc = store_batch_add(&g->batch, event->kind, at_ms, STORE_STATED, key, event->user, event->items, k->hashes,
                         event->n);
    if (rc < 0) {
        return err_set(err, rc, "out of memory");
    }
    if (event->kind == STORE_PLAY) {
        g->counts.plays += event->n;
    } else {
        g->counts.deliveries += event->n;
    }
    return 0;
}

/* A message without any time was played when it is read. */
static int take_event(struct kafka *k, const struct message_event *event, const struct client_message *m,
                      struct err *err)
{
    int64_t given = event->has_at ? event->at_ms : m->at_ms, at = given;
    if (!event->has_at && m->at_ms == 0) {
        given = dedup_stamp(k->dedup);
    }
    bool skewed;
    int rc = dedup_event_time(k->dedup, given, &at, &skewed, err);
    if (rc == ERR_BUSY) {
        return rc;
    }
    if ((rc < 0 || skewed) && dedup_past_retention(k->dedup, given)) {
        k->filling->counts.too_old++; /* also with skewed_time = now: a topic read again is no news */
        return 0;
    }
    return rc < 0 ? rc : add_event(k, event, at, err);
}

bool intake(struct kafka *k, struct partition *p, const struct client_message *m)
{
    struct err err = {0};
    struct message_event event;
    struct group *g = k->filling;
    arena_reset(&k->arena);
    int rc = kafka_message_read(k->rules, &(struct message){m->key, m->value}, &k->arena, &event, &err);
    if (rc == 0) {
        g->counts.nulls++;
    } else if (rc > 0) {
        rc = take_event(k, &event, m, &err);
    }
    if (rc == ERR_INVALID || rc == ERR_RANGE) {
        char reason[sizeof err.text];
        snprintf(reason, sizeof reason, "%s", err.text);
        rc = add_letter(k, p, m, reason, &err);
        if (rc == ERR_BUSY) {
            group_hand_in(k); /* what came before can become durable, and be brought in */
        } else if (rc < 0) {
            group_take_back(k);
        }
    }
    if (rc < 0) {
        kafka_pause(k, err.text);
        return false;
    }
    if (g->begun_us == 0) {
        g->begun_us = clock_mono_us();
    }
    g->counts.messages++;
    p->taken++;
    p->at_ms = m->at_ms;
    partition_moved(k, p, m->offset + 1);
    return true;
}
