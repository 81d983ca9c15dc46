/* Groups of events on their way to the store, each with the positions that it reaches. */
#include <stdio.h>
#include <stdlib.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/hide.h"
#include "kafka/consumer.h"

enum { FIRST_DELAY_MS = 100, LAST_DELAY_MS = 2000 };

static void on_done(struct store_batch *batch)
{
    struct group *g = batch->owner;
    struct kafka *k = g->kafka;
    pthread_mutex_lock(&k->mutex);
    atomic_store(&g->doing, GROUP_DONE);
    pthread_cond_broadcast(&k->answered);
    pthread_mutex_unlock(&k->mutex);
}

void group_init(struct kafka *k, struct group *g)
{
    g->kafka = k;
    g->batch.done = on_done;
    g->batch.owner = g;
}

void group_free(struct group *g)
{
    buf_free(&g->batch.bytes);
    arena_free(&g->arena);
    free(g->positions);
    free(g->offsets);
    free(g->of);
}

static void clear(struct group *g)
{
    if (g->batch.bytes.cap > 4 * GROUP_BYTES) {
        buf_free(&g->batch.bytes);
    }
    buf_clear(&g->batch.bytes);
    g->batch.rows = g->batch.events = 0;
    g->batch.n_positions = g->n = 0;
    g->batch.err = (struct err){0};
    g->counts = (struct counts){0};
    g->begun_us = 0;
    atomic_store(&g->doing, GROUP_FILLING);
}

bool group_is_full(const struct group *g)
{
    size_t fits = (size_t)config_now(g->kafka->cfg)->staging_memory / STAGING_SHARE; /* with all that the store adds */
    return g->batch.bytes.len >= (fits < GROUP_BYTES ? fits : GROUP_BYTES);
}

/* --- when something is in the way --- */

void kafka_pause(struct kafka *k, const char *cause)
{
    char text[CLIENT_TEXT];
    bool first = k->delay_ms == 0;
    k->delay_ms = backoff_next(k->delay_ms, FIRST_DELAY_MS, LAST_DELAY_MS);
    k->try_again_us = clock_mono_us() + k->delay_ms * 1000;
    pthread_mutex_lock(&k->mutex);
    hide_ids_copy(k->cause, sizeof k->cause, cause);
    pthread_mutex_unlock(&k->mutex);
    if (first) {
        log_warn("reading from Kafka pauses", "cause=%s", log_quote_str(cause));
    }
    if (!k->paused && k->ops->pause(k->client, true, text) < 0) {
        kafka_note_error(k, text);
    }
    k->paused = true;
}

void kafka_resume(struct kafka *k)
{
    char text[CLIENT_TEXT];
    if (k->paused && k->ops->pause(k->client, false, text) < 0) {
        kafka_note_error(k, text);
    }
    k->assign = k->assign || (k->paused && k->n_partitions > 0); /* what came meanwhile was dropped */
    k->paused = false;
}

/* --- in --- */

static bool room_for_positions(struct group *g, size_t n)
{
    if (n <= g->cap) {
        return true;
    }
    struct store_position *positions = realloc(g->positions, (2 * n + 1) * sizeof *positions);
    g->positions = positions != NULL ? positions : g->positions;
    struct client_position *offsets = realloc(g->offsets, n * sizeof *offsets);
    g->offsets = offsets != NULL ? offsets : g->offsets;
    struct group_position *of = realloc(g->of, n * sizeof *of);
    g->of = of != NULL ? of : g->of;
    if (positions == NULL || offsets == NULL || of == NULL) {
        return false;
    }
    g->cap = n;
    return true;
}

static int note_position(struct kafka *k, struct group *g, const struct partition *p)
{
    char note[CLIENT_NOTE];
    partition_note(k, p, note);
    const char *source = arena_copy(&g->arena, p->source, strlen(p->source));
    const char *topic = arena_copy(&g->arena, p->topic, strlen(p->topic) + 1);
    const char *copy = arena_copy(&g->arena, note, strlen(note) + 1);
    if (source == NULL || topic == NULL || copy == NULL) {
        return ERR_NOMEM;
    }
    g->positions[g->n] = (struct store_position){slice_of(source, strlen(p->source)), p->read};
    g->offsets[g->n] = (struct client_position){topic, p->number, p->read, copy};
    g->n++;
    return 0;
}

/* Where they began, and that the broker has our offsets: until that is durable. */
static int note_begins(struct kafka *k, struct group *g)
{
    size_t n = g->n;
    for (size_t i = 0; i < g->n; i++) {
        const struct partition *p = g->of[i].partition;
        if (!p->begin_durable) {
            size_t len = strlen(p->origin);
            const char *origin = arena_copy(&g->arena, p->origin, len);
            if (origin == NULL) {
                return ERR_NOMEM;
            }
            g->positions[n++] = (struct store_position){slice_of(origin, len), p->begin};
            g->of[i].begin = p->begin;
        }
    }
    g->group = k->group_known && !k->group_durable;
    if (g->group) {
        const char *source = arena_copy(&g->arena, k->group_source, strlen(k->group_source));
        if (source == NULL) {
            return ERR_NOMEM;
        }
        g->positions[n++] = (struct store_position){slice_of(source, strlen(k->group_source)), k->group_hash};
    }
    g->batch.positions = g->positions;
    g->batch.n_positions = n;
    return 0;
}

/* Copies of the names, since the partitions may be taken away meanwhile. */
static int note_positions(struct kafka *k, struct group *g)
{
    arena_reset(&g->arena);
    g->n = 0;
    for (size_t i = 0; i < k->n_partitions; i++) {
        struct partition *p = &k->partitions[i];
        if (!p->touched) {
            continue;
        }
        if (!room_for_positions(g, g->n + 1 > g->cap ? 2 * g->n + 16 : g->n + 1)) {
            return ERR_NOMEM;
        }
        g->of[g->n] = (struct group_position){p, p->at_ms, -1, p->taken, p->dead};
        if (note_position(k, g, p) < 0) {
            return ERR_NOMEM;
        }
    }
    return note_begins(k, g);
}

static int sync_letters(struct kafka *k, struct group *g, struct err *err)
{
    if (g->letters && k->letters != NULL && dead_letters_sync(k->letters, err) < 0) {
        return err_prefix(err, "dead letters can't be kept");
    }
    g->letters = false;
    return 0;
}

static void record(struct kafka *k, struct group *g)
{
    g->batch.err = (struct err){0};
    atomic_store(&g->doing, GROUP_HANDED_IN);
    k->store->ops->record(k->store, &g->batch);
}

/* Or an import of dead letters would wait for their lock. */
static void drop_letters(struct kafka *k)
{
    k->filling->letters = false;
    if (k->letters != NULL) {
        dead_letters_undo(k->letters);
    }
}

/* Letters that failed took the whole group's with them, so all of it is read again: an offset may not pass a message
 * that is neither with the store nor a letter. */
void group_take_back(struct kafka *k)
{
    k->touched = false;
    for (size_t i = 0; i < k->n_partitions; i++) {
        struct partition *p = &k->partitions[i];
        if (p->touched) {
            p->read = p->handed_in;
            p->taken = p->taken_handed_in;
            p->dead = p->dead_handed_in;
            p->touched = p->read >= 0; /* where "latest" was may not be durable yet */
            k->touched = k->touched || p->touched;
        }
    }
    drop_letters(k);
    clear(k->filling);
}

void group_hand_in(struct kafka *k)
{
    struct group *g = k->filling;
    struct err err = {0};
    if (!k->touched || k->with_store != NULL || k->paused) {
        return;
    }
    if (sync_letters(k, g, &err) < 0) {
        group_take_back(k);
        kafka_pause(k, err.text);
        return;
    }
    if (note_positions(k, g) < 0) {
        kafka_pause(k, "out of memory");
        return;
    }
    for (size_t i = 0; i < g->n; i++) {
        struct partition *p = g->of[i].partition;
        p->touched = false;
        p->handed_in = p->read;
        p->taken_handed_in = p->taken;
        p->dead_handed_in = p->dead;
    }
    k->touched = false;
    g->generation = k->generation;
    k->with_store = g;
    k->filling = g == &k->groups[0] ? &k->groups[1] : &k->groups[0];
    record(k, g);
}

/* --- out --- */

static void count(struct kafka *k, const struct group *g)
{
    bool here = g->generation == k->generation;
    int64_t now_ms = clock_wall_ms();
    pthread_mutex_lock(&k->mutex);
    struct kafka_state *s = &k->shown;
    s->messages += g->counts.messages;
    s->plays += g->counts.plays;
    s->deliveries += g->counts.deliveries;
    s->nulls += g->counts.nulls;
    s->too_old += g->counts.too_old;
    s->dead += g->counts.dead;
    for (size_t i = 0; here && i < g->n; i++) {
        struct partition *p = g->of[i].partition;
        p->begin_durable = p->begin_durable || g->of[i].begin == p->begin;
        p->told = true;
        p->durable = p->shown.next = g->positions[i].next;
        p->durable_at_ms = g->of[i].at_ms != 0 ? g->of[i].at_ms : now_ms;
        p->messages = p->shown.messages = g->of[i].messages;
        p->shown.dead = g->of[i].dead;
    }
    pthread_mutex_unlock(&k->mutex);
}

static void on_durable(struct kafka *k, struct group *g)
{
    char text[CLIENT_TEXT];
    count(k, g);
    k->group_durable = k->group_durable || g->group;
    if (g->generation == k->generation && g->n > 0 && k->ops->store(k->client, g->offsets, g->n, text) < 0) {
        kafka_note_error(k, text);
    }
    clear(g);
    k->with_store = NULL;
    if (k->delay_ms != 0) {
        log_info("reading from Kafka goes on", "");
    }
    k->delay_ms = 0;
    kafka_resume(k);
}

/* The outcome of a failed batch is unknown, so the same is handed in again: twice is once. */
static void on_failed(struct kafka *k, struct group *g)
{
    if (g->generation != k->generation || g->batch.err.code == ERR_CLOSED) {
        clear(g); /* is read again by who has the partitions */
        k->with_store = NULL;
        return;
    }
    if (g->batch.err.code == ERR_LOCKED) {
        kafka_pause(k, g->batch.err.text);
        clear(g);
        k->with_store = NULL;
        drop_letters(k);
        clear(k->filling);
        claim_lost(k);
        return;
    }
    atomic_store(&g->doing, GROUP_FAILED);
    kafka_pause(k, g->batch.err.text);
}

void group_look(struct kafka *k)
{
    struct group *g = k->with_store;
    if (g != NULL && atomic_load(&g->doing) == GROUP_DONE) {
        if (g->batch.err.code == 0) {
            on_durable(k, g);
        } else {
            on_failed(k, g);
        }
        return;
    }
    if (!k->paused || clock_mono_us() < k->try_again_us) {
        return;
    }
    if (g == NULL) {
        kafka_resume(k); /* on trial: delay_ms stays until something is durable */
    } else if (atomic_load(&g->doing) == GROUP_FAILED) {
        record(k, g);
    }
}

void group_wait(struct kafka *k, int64_t ms)
{
    int64_t until_us = clock_real_us() + ms * 1000;
    pthread_mutex_lock(&k->mutex);
    while ((k->with_store != NULL && atomic_load(&k->with_store->doing) == GROUP_HANDED_IN) ||
           atomic_load(&k->claim.doing) == CLAIM_UNDER_WAY) {
        int64_t left_ms = (until_us - clock_real_us()) / 1000;
        if (left_ms <= 0) {
            break;
        }
        clock_cond_wait_real(&k->answered, &k->mutex,
                             left_ms < HEARTBEAT_EVERY_MS / 2 ? left_ms : HEARTBEAT_EVERY_MS / 2);
        heartbeat_now(&k->heartbeat);
    }
    pthread_mutex_unlock(&k->mutex);
}

void group_drop(struct kafka *k)
{
    for (size_t i = 0; i < k->n_partitions; i++) {
        k->partitions[i].touched = false;
    }
    k->touched = false;
    drop_letters(k);
    clear(k->filling);
    if (k->with_store != NULL && atomic_load(&k->with_store->doing) == GROUP_FAILED) {
        clear(k->with_store);
        k->with_store = NULL;
    }
}
