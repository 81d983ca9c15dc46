#include "tests/lib/grown.h"

#include <stdlib.h>

#include "base/err.h"

/* One flush. positions and tails have room for n. */
static int add(struct filter *f, const uint64_t *hashes, uint32_t n, uint32_t *positions, uint8_t *tails,
               uint32_t coarse_max, uint32_t live_max, struct arena *arena)
{
    for (uint32_t i = 0; i < n; i++) {
        positions[i] = filter_position(hashes[i], FILTER_LIVE_M);
    }
    uint32_t distinct = filter_sort(positions, n, NULL);
    for (int again = 0; again <= 1; again++) {
        for (uint32_t i = 0; i < n; i++) {
            filter_set_tail(positions, tails, distinct, hashes[i], again != 0);
        }
    }
    return filter_add_tails(f, positions, tails, distinct, coarse_max, live_max, arena);
}

int grown_add(struct filter *f, const uint64_t *hashes, uint32_t n, uint32_t flushes, uint32_t coarse_max,
              uint32_t live_max, struct arena *arena)
{
    uint32_t *positions = malloc((n / flushes + 1) * sizeof *positions);
    uint8_t *tails = malloc(n / flushes + 1);
    int result = positions != NULL && tails != NULL ? 0 : ERR_NOMEM;
    for (uint32_t from = 0, flush = 1; flush <= flushes && result == 0; flush++) {
        uint32_t to = (uint32_t)((uint64_t)n * flush / flushes);
        result = add(f, hashes + from, to - from, positions, tails, coarse_max, live_max, arena);
        from = to;
    }
    free(positions);
    free(tails);
    return result;
}
