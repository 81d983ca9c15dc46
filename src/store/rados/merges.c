/* When a merge is begun: by whoever sees enough plays, or one that is old; or has recorded enough of them, since some
 * users never ask. What is recorded is counted by a hash of the user in a fixed table, where users may share a place:
 * then one is looked at too early, or later, by the next question or by night. Other nodes record and merge as well: so
 * a merge that reads too little writes nothing, and the count goes on from what it has found. It costs a read.
 *
 * Nodes that all see a busy user would all merge them at once, and all but one for nothing. So whoever changed a user
 * last goes first, which the generation tells: the others wait for half as many plays more, which come only if that
 * node has ended, or doesn't meet the user any more. Who goes first of a user without a generation is drawn.
 */
#include <stdlib.h>
#include <string.h>

#include "store/rados/merge.h"

enum { PLACES = 64 * 1024, AT_ONCE = 16, LEAD = RADOS_MERGE_PLAYS / 2, KEYS_MAX = INT32_MAX };

struct merges {
    pthread_mutex_t mutex;
    size_t n;
    struct under_way {
        struct merges *all;
        int64_t key;
        bool taken;
    } under_way[AT_ONCE];
    struct place {
        uint32_t tag;
        uint32_t keys : 31;
        uint32_t theirs : 1; /* another node merges the user */
    } places[PLACES];
};

static uint32_t tag_of(int64_t key)
{
    return (uint32_t)((uint64_t)key >> 32);
}

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

static void leave_place(struct under_way *place, const struct merge_outcome *outcome)
{
    struct merges *m = place->all;
    size_t at = (uint64_t)place->key % PLACES;
    pthread_mutex_lock(&m->mutex);
    place->taken = false;
    if (outcome != NULL && m->places[at].tag == tag_of(place->key)) {
        m->places[at].theirs = outcome->lost || (outcome->theirs && !outcome->written);
        if (m->places[at].keys < outcome->waiting) {
            m->places[at].keys = (uint32_t)outcome->waiting & KEYS_MAX;
        }
    }
    pthread_mutex_unlock(&m->mutex);
}

static void on_done(void *arg, const struct merge_outcome *outcome)
{
    leave_place(arg, outcome);
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
        leave_place(place, NULL);
    }
}

void merges_recorded(struct rados_store *s, int64_t key, struct slice user, size_t n)
{
    struct merges *m = s->merges;
    uint32_t tag = tag_of(key);
    size_t at = (uint64_t)key % PLACES;
    bool enough = false;
    pthread_mutex_lock(&m->mutex);
    struct place *place = &m->places[at];
    if (place->tag != tag) {
        *place = (struct place){.tag = tag};
    }
    size_t keys = place->keys + n;
    enough = keys >= (place->theirs ? 2 * RADOS_MERGE_PLAYS : RADOS_MERGE_PLAYS);
    place->keys = enough ? 0 : (uint32_t)keys & KEYS_MAX;
    pthread_mutex_unlock(&m->mutex);
    if (enough) {
        begin(s, key, user);
    }
}

static bool is_enough(struct rados_store *s, const struct merges_seen *seen, size_t lead)
{
    int64_t later, earlier;
    size_t last = (size_t)config_now(s->cfg)->delivered_max, wanted = RADOS_MERGE_PLAYS + lead;
    guarded_clock_now(&s->clock, &later, &earlier);
    return seen->plays >= wanted || seen->deliveries >= last + wanted ||
           (seen->plays > 0 && seen->oldest_ms < earlier - config_slot_length_ms(s->cfg));
}

bool merges_enough(struct rados_store *s, const struct merges_seen *seen)
{
    bool theirs = seen->generation.len > 0 && !rados_store_wrote(s, seen->generation);
    return is_enough(s, seen, theirs ? LEAD : 0);
}

void merges_saw(struct rados_store *s, int64_t key, struct slice user, const struct merges_seen *seen)
{
    if (s->use == RADOS_ASKS) {
        return;
    }
    size_t drawn = (((uint64_t)key ^ s->number) * UINT64_C(0x9e3779b97f4a7c15) >> 32) % (LEAD + 1);
    if (merges_enough(s, seen) && (seen->generation.len > 0 || is_enough(s, seen, drawn))) {
        begin(s, key, user);
    }
}
