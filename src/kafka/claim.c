/* A store that several nodes write (store/positions.h) is told which partitions this node reads, before it reads them;
 * the answer is where to read on. It is asked in the background, and polled meanwhile, so that a store which is slow or
 * away costs no membership. One claim at a time is under way; one that was overtaken by another assignment is made
 * again. Where another node claims what is read here, the next group fails: then this begins again, too, with a claim,
 * and where the broker has dealt the partitions to the other one that is noticed by then. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kafka/consumer.h"

enum { AGAIN_US = 1000 * 1000 };

static void on_claimed(struct store_call *call)
{
    struct kafka *k = call->owner;
    pthread_mutex_lock(&k->mutex);
    atomic_store(&k->claim.doing, CLAIM_DONE);
    pthread_cond_broadcast(&k->answered);
    pthread_mutex_unlock(&k->mutex);
}

static bool keep_name(struct claim *c, struct slice *out, const char *name)
{
    *out = slice_of(arena_copy(&c->arena, name, strlen(name)), strlen(name));
    return out->data != NULL;
}

/* Copies, since the partitions may be taken away meanwhile. */
static bool name_all(struct kafka *k, struct claim *c)
{
    arena_reset(&c->arena);
    struct slice *names = arena_alloc(&c->arena, (2 * k->n_partitions + 1) * sizeof *names);
    bool good = names != NULL;
    size_t n = 0;
    for (size_t i = 0; i < k->n_partitions && good; i++) {
        good = keep_name(c, &names[n], k->partitions[i].source) && keep_name(c, &names[n + 1], k->partitions[i].origin);
        n += 2;
    }
    good = good && keep_name(c, &names[n], k->group_source);
    c->ask = (struct store_claim){.call = {.done = on_claimed, .owner = k},
                                  .sources = names,
                                  .n = n,
                                  .looked_at = names == NULL ? NULL : names + n,
                                  .n_looked_at = 1};
    return good;
}

static void begin(struct kafka *k, struct claim *c)
{
    if (!name_all(k, c)) {
        kafka_note_error(k, "out of memory for a claim of partitions");
        c->next_us = clock_mono_us() + AGAIN_US;
        return;
    }
    c->generation = k->generation;
    atomic_store(&c->doing, CLAIM_UNDER_WAY);
    k->store->positions->claim(k->store, &c->ask);
}

bool claim_partitions(struct kafka *k)
{
    struct claim *c = &k->claim;
    if (k->store->positions->claim == NULL || c->held == k->generation) {
        return true;
    }
    if (atomic_load(&c->doing) == CLAIM_DONE) {
        atomic_store(&c->doing, CLAIM_NONE);
        if (c->generation == k->generation && c->ask.call.err.code == 0) {
            c->held = k->generation;
            return true;
        }
        if (c->ask.call.err.code < 0) {
            kafka_note_error(k, c->ask.call.err.text);
            c->next_us = clock_mono_us() + AGAIN_US;
        }
    }
    if (atomic_load(&c->doing) == CLAIM_NONE && clock_mono_us() >= c->next_us) {
        begin(k, c);
    }
    return false;
}

void claim_lost(struct kafka *k)
{
    k->claim.held = 0;
    k->claim.next_us = k->try_again_us; /* or two that both think it theirs would do nothing else */
    k->generation++;
    k->group_durable = false;
    for (size_t i = 0; i < k->n_partitions; i++) {
        partition_begin_anew(&k->partitions[i]);
    }
    k->touched = false;
    k->assign = true;
}
