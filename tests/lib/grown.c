#include "tests/lib/grown.h"

#include "store/user/plays.h"

int grown_add(struct filter *f, const uint64_t *hashes, uint32_t n, uint32_t flushes, uint32_t coarse_max,
              uint32_t live_max, struct arena *arena)
{
    const struct plays_limits limits = {coarse_max, live_max};
    int result = 0;
    for (uint32_t from = 0, flush = 1; flush <= flushes && result == 0; flush++) {
        uint32_t to = (uint32_t)((uint64_t)n * flush / flushes);
        const struct plays plays = {.hashes = hashes + from, .n = to - from, .stride = sizeof *hashes};
        result = plays_add(f, &plays, &limits, arena);
        from = to;
    }
    return result;
}
