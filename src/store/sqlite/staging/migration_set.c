#include "store/sqlite/staging/migration_set.h"

#include <stdlib.h>

#include "base/err.h"

enum {
    SLOTS_MIN = 1024,
    WALK_SLOTS = 1 << 16, /* looked at in one go */
};

static uint32_t make_place(uint32_t id, enum store_note state)
{
    return id << MIGRATION_STATE_BITS | (uint32_t)(state - MIGRATION_WAITING);
}

static enum store_note place_state(uint32_t place)
{
    return (enum store_note)((place & ((1U << MIGRATION_STATE_BITS) - 1)) + MIGRATION_WAITING);
}

static uint64_t slot_of(const struct migration_set *set, int64_t key)
{
    uint64_t place = (uint64_t)key ^ UINT64_C(1) << 63; /* in signed order, as SQLite's */
    return (uint64_t)(((unsigned __int128)place * set->slots) >> 64);
}

/* The key's slot, or the free one where it would stand. */
static uint64_t find(const struct migration_set *set, int64_t key)
{
    uint64_t at = slot_of(set, key);
    while (set->places[at] != 0 && set->keys[at] != key) {
        at = at + 1 < set->slots ? at + 1 : 0;
    }
    return at;
}

static void put(struct migration_set *set, int64_t key, uint32_t place)
{
    uint64_t at = find(set, key);
    if (set->places[at] == 0) {
        set->keys[at] = key;
        set->places[at] = place;
        set->counts[place_state(place)]++;
        set->counts[MIGRATION_NONE]++;
    }
}

void migration_set_free(struct migration_set *set)
{
    free(set->keys);
    free(set->places);
    *set = (struct migration_set){0};
}

static int make(struct migration_set *set, uint64_t slots)
{
    *set = (struct migration_set){.slots = slots};
    set->keys = malloc(slots * sizeof *set->keys);
    set->places = calloc(slots, sizeof *set->places);
    if (set->keys == NULL || set->places == NULL) {
        migration_set_free(set);
        return ERR_NOMEM;
    }
    return 0;
}

static uint64_t slots_for(uint64_t users)
{
    uint64_t slots = users * 7 / 6 + 1;
    return slots > SLOTS_MIN ? slots : SLOTS_MIN;
}

int migration_set_make(struct migration_set *set, uint64_t users)
{
    return make(set, slots_for(users));
}

int migration_set_grow(const struct migration_set *set, uint64_t more, struct migration_set *grown)
{
    uint64_t need = slots_for(set->counts[MIGRATION_NONE] + more);
    if (need <= set->slots) {
        return 0;
    }
    uint64_t slots = set->slots * 3 / 2;
    if (make(grown, slots > need ? slots : need) < 0) {
        return ERR_NOMEM;
    }
    for (uint64_t i = 0; i < set->slots; i++) {
        if (set->places[i] != 0) {
            put(grown, set->keys[i], set->places[i]);
        }
    }
    return 1;
}

bool migration_set_find(const struct migration_set *set, int64_t key, uint64_t *at)
{
    *at = set->slots > 0 ? find(set, key) : 0;
    return set->slots > 0 && set->places[*at] != 0;
}

enum store_note migration_set_state(const struct migration_set *set, uint64_t at)
{
    return set->places[at] != 0 ? place_state(set->places[at]) : MIGRATION_NONE;
}

uint32_t migration_set_id(const struct migration_set *set, uint64_t at)
{
    return set->places[at] >> MIGRATION_STATE_BITS;
}

void migration_set_change(struct migration_set *set, uint64_t at, enum store_note state)
{
    set->counts[place_state(set->places[at])]--;
    set->counts[state]++;
    set->places[at] = make_place(migration_set_id(set, at), state);
}

void migration_set_put(struct migration_set *set, int64_t key, uint32_t id, enum store_note state)
{
    put(set, key, make_place(id, state));
}

void migration_set_put_later(struct migration_set *set, struct note_some *some, int64_t key, uint32_t id,
                             enum store_note state)
{
    some->keys[some->n] = key;
    some->places[some->n++] = make_place(id, state);
    if (some->n == sizeof some->keys / sizeof *some->keys) {
        migration_set_put_some(set, some);
    }
}

void migration_set_put_some(struct migration_set *set, struct note_some *some)
{
    for (size_t i = 0; i < some->n; i++) {
        uint64_t slot = slot_of(set, some->keys[i]);
        __builtin_prefetch(&set->keys[slot]);
        __builtin_prefetch(&set->places[slot]);
    }
    for (size_t i = 0; i < some->n; i++) {
        put(set, some->keys[i], some->places[i]);
    }
    some->n = 0;
}

/* The place is kept as a share of all slots, so that it stays where it is when the set grows. */
int migration_set_waiting(const struct migration_set *set, struct store_migration_walk *walk, uint32_t *ids, int max)
{
    int found = 0;
    uint64_t slots = set->slots;
    uint64_t at = (uint64_t)(((unsigned __int128)walk->at * slots) >> 64);
    uint64_t end = slots - at < WALK_SLOTS ? slots : at + WALK_SLOTS;
    for (; at < end && found < max; at++) {
        if (migration_set_state(set, at) == MIGRATION_WAITING) {
            ids[found++] = migration_set_id(set, at);
        }
    }
    walk->ended = at >= slots;
    walk->at = walk->ended ? 0 : (uint64_t)((((unsigned __int128)at << 64) + slots - 1) / slots);
    return found;
}
