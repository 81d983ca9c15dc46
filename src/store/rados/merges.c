/* When a merge is begun: by whoever sees enough plays, or one that is old; or has recorded enough of them, since some
 * users never ask. What is recorded is counted by a hash of the user in a fixed table, where users may share a place:
 * then one is looked at too early, or later, by the next question or by night. A merge too many costs a read. */
#include <stdlib.h>
#include <string.h>

#include "store/rados/merge.h"

enum { PLACES = 64 * 1024, AT_ONCE = 16 };

struct merges {
    pthread_mutex_t mutex;
    size_t n;
    struct under_way {
        struct merges *all;
        int64_t key;
        bool taken;
    } under_way[AT_ONCE];
    struct {
        uint32_t tag;
        uint32_t keys;
    } places[PLACES];
};

int merges_init(struct rados_store *s)
{
    s->merges = calloc(1, sizeof *s->merges);
    if (s->merges == NULL) {
        return ERR_NOMEM;
    }
    pthread_mutex_init(&s->merges->mutex, NULL);
    return 0;
}

void merges_destroy(struct rados_store *s)
{
    if (s->merges != NULL) {
        pthread_mutex_destroy(&s->merges->mutex);
        free(s->merges);
    }
}

static void on_done(void *arg, const struct merge_outcome *outcome)
{
    struct under_way *place = arg;
    (void)outcome;
    pthread_mutex_lock(&place->all->mutex);
    place->taken = false;
    pthread_mutex_unlock(&place->all->mutex);
}

/* NULL: one of the user is under way, or too many are. */
static struct under_way *take_place(struct merges *m, int64_t key)
{
    struct under_way *found = NULL;
    pthread_mutex_lock(&m->mutex);
    for (size_t i = 0; i < AT_ONCE; i++) {
        struct under_way *place = &m->under_way[i];
        if (place->taken && place->key == key) {
            found = NULL;
            break;
        }
        found = place->taken ? found : place;
    }
    if (found != NULL) {
        *found = (struct under_way){m, key, true};
    }
    pthread_mutex_unlock(&m->mutex);
    return found;
}

static void begin(struct rados_store *s, int64_t key, struct slice user)
{
    struct under_way *place = rados_store_closing(s) ? NULL : take_place(s->merges, key);
    if (place != NULL && merge_start(s, key, user, false, on_done, place) < 0) {
        on_done(place, NULL);
    }
}

void merges_recorded(struct rados_store *s, int64_t key, struct slice user, size_t n)
{
    struct merges *m = s->merges;
    uint32_t tag = (uint32_t)((uint64_t)key >> 32);
    size_t at = (uint64_t)key % PLACES;
    bool enough = false;
    pthread_mutex_lock(&m->mutex);
    if (m->places[at].tag != tag) {
        m->places[at].tag = tag;
        m->places[at].keys = 0;
    }
    m->places[at].keys += (uint32_t)n;
    if (m->places[at].keys >= RADOS_MERGE_PLAYS) {
        m->places[at].keys = 0;
        enough = true;
    }
    pthread_mutex_unlock(&m->mutex);
    if (enough) {
        begin(s, key, user);
    }
}

void merges_saw(struct rados_store *s, int64_t key, struct slice user, size_t plays, size_t deliveries,
                int64_t oldest_ms)
{
    int64_t later, earlier;
    if (s->use == RADOS_ASKS) {
        return;
    }
    size_t last = (size_t)config_now(s->cfg)->delivered_max;
    guarded_clock_now(&s->clock, &later, &earlier);
    if (plays >= RADOS_MERGE_PLAYS || deliveries >= last + RADOS_MERGE_PLAYS ||
        (plays > 0 && oldest_ms < earlier - s->cfg->slot_length_ms)) {
        begin(s, key, user);
    }
}
