#include "store/user/plays.h"

#include <stddef.h>

#include "filter/error_budget.h"

struct plays plays_of_month(const struct store_play *list, size_t n, size_t at)
{
    size_t end = at;
    while (end < n && list[end].month == list[at].month) {
        end++;
    }
    return (struct plays){.hashes = end > at ? &list[at].hash : NULL, .n = end - at, .stride = sizeof *list};
}

struct plays_limits plays_limits(double error_rate)
{
    return (struct plays_limits){error_budget_coarse_max(error_rate), error_budget_live_max(error_rate)};
}

static uint64_t hash_at(const struct plays *plays, size_t i)
{
    return *(const uint64_t *)(const void *)((const char *)plays->hashes + i * plays->stride);
}

int plays_add(struct filter *f, const struct plays *plays, const struct plays_limits *limits, struct arena *arena)
{
    uint32_t *positions =
        plays->positions != NULL ? plays->positions : arena_alloc(arena, plays->n * sizeof *positions + 1);
    if (positions == NULL) {
        return ERR_NOMEM;
    }
    for (size_t i = 0; i < plays->n; i++) {
        positions[i] = filter_position(hash_at(plays, i), FILTER_LIVE_M);
    }
    uint32_t n = filter_sort(positions, (uint32_t)plays->n, plays->scratch);
    if (filter_items(f) + n <= limits->live_max) { /* no tails are wanted */
        return filter_add(f, positions, n, limits->coarse_max, arena);
    }
    uint8_t *tails = arena_alloc(arena, n + 1);
    if (tails == NULL) {
        return ERR_NOMEM;
    }
    for (int again = 0; again <= 1; again++) {
        for (size_t i = 0; i < plays->n; i++) {
            filter_set_tail(positions, tails, n, hash_at(plays, i), again != 0);
        }
    }
    return filter_add_tails(f, positions, tails, n, limits->coarse_max, limits->live_max, arena);
}
