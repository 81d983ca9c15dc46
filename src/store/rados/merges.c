/* When a merge is begun: by a node that sees enough plays, or one that is old; or has recorded enough of them, since
 * some users never ask. What is recorded is counted by a hash of the user in a fixed table, where users may share a
 * place: then one is looked at too early, or later, by the next question or by night. Other nodes record and merge as
 * well: so a merge looks first, and one that finds too little, or that another node is at it, writes nothing. It costs
 * a read.
 *
 * Nodes that all meet a busy user would all merge them at once, and all but one for nothing. Nothing says who is alive,
 * so none is appointed: the node that changed a user last, which the generation tells, goes on merging them. The others
 * stand back by far, since they are needed once, when that node has ended or no longer meets the user:
 *
 *   who asks      merges when far more plays wait than that node would let;
 *   who records   looks after a while, and merges if none has since the look before. If one has, it looks four
 *                 times as rarely.
 *
 * A user without a generation is any node's. A node that finds its own plays alone merges them. Of several each waits
 * for so many plays more as are drawn for user and node, by multiples of the golden ratio: nodes that were started one
 * after another lie as far from each other as they can. So they do where the others stand back.
 *
 * All of this is about chances. Two that merge at once, a node that knows nothing, or one of an older version that
 * merges earlier, cost a merge for nothing, and the guard on the generation drops it (merge.c).
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "store/rados/merge.h"

enum {
    PLACES = 64 * 1024,
    AT_ONCE = 16,
    ENOUGH = RADOS_MERGE_PLAYS,
    SPREAD = 3 * ENOUGH, /* of the plays that are seen, over which nodes are drawn */
    OTHERS = 4 * ENOUGH, /* that others see before they merge */
    LOOK = 2 * ENOUGH,   /* that others record before they look again */
    LOOK_SPREAD = 3 * LOOK / 4,
    FIRST = 4,              /* one node of so many needn't look twice at a user whom none has merged */
    LOOK_MAX = 16 * ENOUGH, /* however often another has merged; and so many waiting ones any node merges */
};

enum whose { OURS, ANY_NODE, THEIRS };

struct merges {
    pthread_mutex_t mutex;
    struct under_way {
        struct rados_store *s;
        int64_t key;
        bool taken;
        bool asked;        /* a question has begun it */
        uint32_t recorded; /* that the place had then */
        uint32_t mark;
        bool found; /* it has read the user: */
        enum whose whose;
        uint32_t plays, found_mark;
    } under_way[AT_ONCE];
    struct place {
        uint32_t tag;
        uint32_t recorded; /* here, since the last look */
        uint32_t look_at;  /* of these */
        uint32_t mark;     /* of the generation as it was found, unless it is ours; 0: ours, or not known */
    } places[PLACES];
};

static uint32_t tag_of(int64_t key)
{
    return (uint32_t)((uint64_t)key >> 32);
}

static struct place *place_of(struct merges *m, int64_t key)
{
    return &m->places[(uint64_t)key % PLACES];
}

/* The user's, or NULL. */
static struct place *known_place(struct merges *m, int64_t key)
{
    struct place *place = place_of(m, key);
    return place->tag == tag_of(key) ? place : NULL;
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

/* --- what speaks for a merge --- */

static enum whose whose(const struct rados_store *s, struct slice generation)
{
    return generation.len == 0 ? ANY_NODE : rados_store_wrote(s, generation) ? OURS : THEIRS;
}

static uint32_t mark_of(enum whose whose, struct slice generation)
{
    return whose == OURS ? 0 : (uint32_t)hash_checksum(generation.data, generation.len) | 1;
}

/* Below `range`: where this node stands among those that might merge the user. */
static uint32_t drawn(const struct rados_store *s, int64_t key, uint32_t range)
{
    uint64_t fraction = ((uint64_t)key + s->number) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)((fraction >> 32) * range >> 32);
}

static uint32_t others_look_at(const struct rados_store *s, int64_t key)
{
    return LOOK + drawn(s, key, LOOK_SPREAD);
}

static bool waits(const struct merges_seen *seen, size_t wanted)
{
    return seen->plays >= wanted || seen->gone >= wanted;
}

static bool is_old(struct rados_store *s, const struct merges_seen *seen)
{
    int64_t later, earlier;
    guarded_clock_now(&s->clock, &later, &earlier);
    return seen->plays > 0 && seen->oldest_ms < earlier - config_slot_length_ms(s->cfg);
}

/* To whom a question has shown it. */
static bool is_shown(struct rados_store *s, int64_t key, const struct merges_seen *seen, enum whose whose)
{
    size_t wanted = whose == OURS       ? ENOUGH
                    : whose == ANY_NODE ? ENOUGH + drawn(s, key, SPREAD)
                                        : OTHERS + drawn(s, key, SPREAD);
    return waits(seen, wanted) || is_old(s, seen);
}

/* To whom has recorded so much that it looks. */
static bool is_found(struct rados_store *s, const struct under_way *u, const struct merges_seen *seen)
{
    bool unchanged = u->whose == OURS || u->mark == u->found_mark;
    bool alone = seen->plays + seen->deliveries <= u->recorded;
    bool first = u->whose == ANY_NODE && (alone || drawn(s, u->key, FIRST) == 0);
    return (waits(seen, ENOUGH) && (unchanged || first)) || waits(seen, LOOK_MAX) || is_old(s, seen);
}

/* --- what is under way --- */

/* Nothing was written, since too little waits, or others are at it. */
static void stand_back(const struct rados_store *s, const struct under_way *u, struct place *place)
{
    place->mark = u->found_mark;
    if (u->whose == THEIRS && place->look_at >= LOOK) {
        place->look_at = 4 * place->look_at < LOOK_MAX ? 4 * place->look_at : LOOK_MAX;
    } else if (u->whose == THEIRS) {
        place->look_at = others_look_at(s, u->key);
    } else if (u->whose == ANY_NODE && u->plays >= ENOUGH) {
        place->look_at = 1 + drawn(s, u->key, LOOK);
    } else {
        place->recorded = u->plays > place->recorded ? u->plays : place->recorded;
        place->look_at = ENOUGH;
        place->mark = 0;
    }
}

static void leave(struct under_way *u, const struct merge_outcome *outcome)
{
    struct rados_store *s = u->s;
    struct merges *m = s->merges;
    pthread_mutex_lock(&m->mutex);
    struct place *place = known_place(m, u->key);
    u->taken = false;
    if (place == NULL || outcome == NULL) {
        /* nothing is known */
    } else if (outcome->lost) {
        place->mark = 0;
        place->look_at = others_look_at(s, u->key);
    } else if (outcome->written) {
        place->mark = 0;
        place->look_at = ENOUGH;
    } else if (u->found) {
        stand_back(s, u, place);
    }
    pthread_mutex_unlock(&m->mutex);
}

static void on_done(void *arg, const struct merge_outcome *outcome)
{
    leave(arg, outcome);
}

/* NULL: one of the user is under way, or too many are. */
static struct under_way *take(struct rados_store *s, int64_t key, bool asked)
{
    struct merges *m = s->merges;
    struct under_way *found = NULL;
    pthread_mutex_lock(&m->mutex);
    struct place *place = known_place(m, key);
    for (size_t i = 0; i < AT_ONCE; i++) {
        struct under_way *u = &m->under_way[i];
        if (u->taken && u->key == key) {
            found = NULL;
            break;
        }
        found = u->taken ? found : u;
    }
    if (found != NULL) {
        *found = (struct under_way){.s = s, .key = key, .taken = true, .asked = asked};
        if (place != NULL) {
            found->recorded = place->recorded;
            found->mark = place->mark;
        }
    }
    if (place != NULL && (found != NULL || !asked)) {
        place->recorded = 0; /* also if it can't be begun now: the next ones count */
    }
    pthread_mutex_unlock(&m->mutex);
    return found;
}

static void begin(struct rados_store *s, int64_t key, struct slice user, bool asked)
{
    struct under_way *u = rados_store_closing(s) ? NULL : take(s, key, asked);
    if (u != NULL && merge_start(s, key, user, false, on_done, u) < 0) {
        leave(u, NULL);
    }
}

/* --- what is told here --- */

void merges_recorded(struct rados_store *s, int64_t key, struct slice user, size_t n)
{
    struct merges *m = s->merges;
    pthread_mutex_lock(&m->mutex);
    struct place *place = place_of(m, key);
    if (place->tag != tag_of(key)) {
        *place = (struct place){.tag = tag_of(key)};
    }
    place->recorded = n < UINT32_MAX - place->recorded ? place->recorded + (uint32_t)n : UINT32_MAX;
    place->look_at = place->look_at > 0 ? place->look_at : ENOUGH;
    bool enough = place->recorded >= place->look_at;
    pthread_mutex_unlock(&m->mutex);
    if (enough) {
        begin(s, key, user, false);
    }
}

bool merges_enough(struct rados_store *s, int64_t key, const struct merges_seen *seen)
{
    struct merges *m = s->merges;
    enum whose of = whose(s, seen->generation);
    bool enough = is_shown(s, key, seen, of);
    pthread_mutex_lock(&m->mutex);
    for (size_t i = 0; i < AT_ONCE; i++) {
        struct under_way *u = &m->under_way[i];
        if (u->taken && u->key == key) {
            u->found = true;
            u->whose = of;
            u->plays = seen->plays < UINT32_MAX ? (uint32_t)seen->plays : UINT32_MAX;
            u->found_mark = mark_of(of, seen->generation);
            enough = u->asked ? enough : is_found(s, u, seen);
        }
    }
    pthread_mutex_unlock(&m->mutex);
    return enough;
}

/* What is counted goes on from there. */
static void correct(struct rados_store *s, int64_t key, const struct merges_seen *seen, enum whose whose)
{
    struct merges *m = s->merges;
    uint32_t mark = mark_of(whose, seen->generation);
    pthread_mutex_lock(&m->mutex);
    struct place *place = known_place(m, key);
    if (place != NULL && whose == OURS) {
        place->recorded = seen->plays < ENOUGH ? (uint32_t)seen->plays : place->recorded; /* more: it is begun anyway */
        place->look_at = ENOUGH;
        place->mark = 0;
    } else if (place != NULL && whose == THEIRS && place->mark != mark) {
        uint32_t look_at = others_look_at(s, key);
        place->recorded = 0;
        place->look_at = place->look_at > look_at ? place->look_at : look_at;
        place->mark = mark;
    }
    pthread_mutex_unlock(&m->mutex);
}

void merges_saw(struct rados_store *s, int64_t key, struct slice user, const struct merges_seen *seen)
{
    enum whose of = whose(s, seen->generation);
    if (s->use == RADOS_ASKS) {
        return;
    }
    correct(s, key, seen, of);
    if (is_shown(s, key, seen, of)) {
        begin(s, key, user, true);
    }
}
