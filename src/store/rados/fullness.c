#include "store/rados/fullness.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/rados/rados.h"

enum { SHARDS = 16, PATIENCE_US = 1000 * 1000, PROBE_NAME = 24 };

struct fullness {
    struct rados_store *s;
    _Atomic bool full;
    _Atomic bool probing;
    int64_t looked_us; /* the store's thread's */
    struct shard {
        pthread_mutex_t mutex; /* held while a write is begun, since only then it can be cancelled */
        struct update *oldest, *newest;
    } shards[SHARDS];
    struct cluster_write probe;
    char object[PROBE_NAME];
};

static struct shard *shard_of(const struct update *u)
{
    return &u->s->fullness->shards[(uint64_t)u->key % SHARDS];
}

int fullness_init(struct rados_store *s)
{
    s->fullness = calloc(1, sizeof *s->fullness);
    if (s->fullness == NULL) {
        return ERR_NOMEM;
    }
    s->fullness->s = s;
    for (size_t i = 0; i < SHARDS; i++) {
        pthread_mutex_init(&s->fullness->shards[i].mutex, NULL);
    }
    return 0;
}

void fullness_destroy(struct rados_store *s)
{
    for (size_t i = 0; s->fullness != NULL && i < SHARDS; i++) {
        pthread_mutex_destroy(&s->fullness->shards[i].mutex);
    }
    free(s->fullness);
}

/* --- writes --- */

static void unlink_write(struct shard *shard, struct update *u)
{
    *(u->older != NULL ? &u->older->newer : &shard->oldest) = u->newer;
    *(u->newer != NULL ? &u->newer->older : &shard->newest) = u->older;
}

int fullness_write(struct update *u)
{
    struct shard *shard = shard_of(u);
    u->begun_us = clock_mono_us();
    pthread_mutex_lock(&shard->mutex);
    u->newer = NULL;
    u->older = shard->newest;
    *(u->older != NULL ? &u->older->newer : &shard->oldest) = u;
    shard->newest = u;
    int result = u->s->ops->write(u->s->cluster, &u->write);
    if (result < 0) {
        unlink_write(shard, u);
    }
    pthread_mutex_unlock(&shard->mutex);
    return result;
}

void fullness_written(struct update *u)
{
    struct shard *shard = shard_of(u);
    pthread_mutex_lock(&shard->mutex);
    unlink_write(shard, u);
    pthread_mutex_unlock(&shard->mutex);
    if (u->write.op.result == CLUSTER_CLOSED && atomic_load(&u->s->fullness->full)) {
        u->write.op.result = CLUSTER_FULL;
    }
}

static void give_up_writes(struct fullness *room)
{
    for (size_t i = 0; i < SHARDS; i++) {
        struct shard *shard = &room->shards[i];
        pthread_mutex_lock(&shard->mutex);
        for (struct update *u = shard->oldest; u != NULL; u = u->newer) {
            room->s->ops->cancel(room->s->cluster, &u->write.op);
        }
        pthread_mutex_unlock(&shard->mutex);
    }
}

/* --- the probe --- */

static void end_probe(struct fullness *room)
{
    struct rados_store *s = room->s;
    atomic_store(&room->probing, false);
    rados_store_ended(s);
}

static void on_removed(struct cluster_op *op)
{
    end_probe(op->owner);
}

/* One that is there was left by a node that was killed, and says nothing. */
static void on_probed(struct cluster_op *op)
{
    struct fullness *room = op->owner;
    struct rados_store *s = room->s;
    enum cluster_result result = op->result;
    if (result == CLUSTER_FULL) {
        if (!atomic_exchange(&room->full, true)) {
            log_error("the cluster is full, what needs room is refused", "pool=%s", log_quote_str(s->cfg->rados_pool));
        }
        give_up_writes(room);
    } else if (result == CLUSTER_DONE && atomic_exchange(&room->full, false)) {
        log_info("the cluster has room again", "pool=%s", log_quote_str(s->cfg->rados_pool));
    }
    if (result == CLUSTER_DONE || result == CLUSTER_EXISTS) {
        room->probe = (struct cluster_write){
            .op = {.object = room->object, .done = on_removed, .owner = room}, .destroy = true, .must = true};
        if (s->ops->write(s->cluster, &room->probe) == 0) {
            return;
        }
    }
    end_probe(room);
}

static void probe(struct fullness *room)
{
    struct rados_store *s = room->s;
    snprintf(room->object, sizeof room->object, LAYOUT_FULL "%" PRIx64, s->number);
    room->probe = (struct cluster_write){
        .op = {.object = room->object, .done = on_probed, .owner = room}, .exclusive = true, .attempt = true};
    rados_store_begun(s);
    atomic_store(&room->probing, true);
    if (s->ops->write(s->cluster, &room->probe) < 0) {
        end_probe(room);
    }
}

static bool somebody_waits(struct fullness *room, int64_t now)
{
    bool waits = false;
    for (size_t i = 0; i < SHARDS && !waits; i++) {
        struct shard *shard = &room->shards[i];
        pthread_mutex_lock(&shard->mutex);
        waits = shard->oldest != NULL && now - shard->oldest->begun_us >= PATIENCE_US;
        pthread_mutex_unlock(&shard->mutex);
    }
    return waits;
}

void fullness_look(struct rados_store *s)
{
    struct fullness *room = s->fullness;
    int64_t now = clock_mono_us();
    if (now - room->looked_us < PATIENCE_US || atomic_load(&room->probing)) {
        return;
    }
    room->looked_us = now;
    if ((atomic_load(&room->full) && !rados_store_closing(s)) || somebody_waits(room, now)) {
        probe(room);
    }
}

bool fullness_known(struct rados_store *s)
{
    return atomic_load(&s->fullness->full);
}

int fullness_refusal(struct rados_store *s, struct err *err)
{
    return fullness_known(s) ? err_set(err, ERR_FULL, "RADOS: the cluster, or the pool %s, is full",
                                       log_quote_str(s->cfg->rados_pool))
                             : 0;
}
