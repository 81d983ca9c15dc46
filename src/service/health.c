#include "service/health.h"

#include <inttypes.h>
#include <stdio.h>

#include "service/service.h"

static int64_t limit_ms = HEALTH_LIMIT_MS;

void health_set_limit(int64_t ms)
{
    limit_ms = ms;
}

static bool is_refusing(struct store *store, struct health *out)
{
    struct err cause = {0};
    struct store_clock clock;
    bool refusing = store->ops->refusal(store, &cause) < 0;
    if (refusing) {
        out->code = ERR_BUSY;
        snprintf(out->cause, sizeof out->cause, "writes are refused: %s", cause.text);
    }
    store->ops->clock(store, &clock);
    snprintf(out->clock, sizeof out->clock, "%s", clock.doubted ? clock.reason : "");
    return refusing;
}

void health_look(struct worker_pool *pool, struct health *out)
{
    *out = (struct health){.alive = true};
    char name[HEARTBEAT_NAME];
    int64_t silent = heartbeat_oldest_ms(name);
    const struct dedup *dedup = atomic_load_explicit(&pool->service->dedup, memory_order_acquire);
    if (silent > limit_ms) {
        out->alive = false;
        out->stuck_ms = silent;
        snprintf(out->stuck, sizeof out->stuck, "%s", name);
        snprintf(out->cause, sizeof out->cause, "%s has been stuck for %" PRId64 " s", name, silent / 1000);
    } else if (dedup == NULL) {
        out->code = ERR_LOADING;
        snprintf(out->cause, sizeof out->cause, "recovering: what was staged is being read");
    } else {
        out->ready = !is_refusing(dedup->store, out);
    }
}
