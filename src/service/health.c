#include "service/health.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "dedup/role.h"
#include "dedup/tier.h"
#include "front/reader_store.h"
#include "service/service.h"

static int64_t limit_ms = HEALTH_LIMIT_MS;

void health_set_limit(int64_t ms)
{
    limit_ms = ms;
}

static bool is_of_the_disk(const char *thread)
{
    return strcmp(thread, "stager") == 0 || strcmp(thread, "historian") == 0;
}

/* The most silent thread that counts. */
static int64_t find_silent(bool excuse_disk, char name[HEARTBEAT_NAME])
{
    struct heartbeat_age ages[HEALTH_THREADS_MAX];
    int n = heartbeat_ages(ages, HEALTH_THREADS_MAX);
    int64_t oldest = 0;
    name[0] = '\0';
    for (int i = 0; i < n; i++) {
        if (ages[i].silent_ms >= oldest && !(excuse_disk && is_of_the_disk(ages[i].name))) {
            oldest = ages[i].silent_ms;
            memcpy(name, ages[i].name, HEARTBEAT_NAME);
        }
    }
    return oldest;
}

/* What is not well, and yet answers: files, and which of the two tiers; on a primary. Returns whether the second one
 * is well. */
static bool look_at_tiers(struct worker_pool *pool, const struct dedup *dedup, struct health *out)
{
    struct err why = {0};
    if (dedup != NULL && dedup->store->ops->missing != NULL && dedup->store->ops->missing(dedup->store, &why) < 0) {
        snprintf(out->degraded, sizeof out->degraded, "%s", why.text);
    }
    if (dedup == NULL || dedup->tier == NULL || !role_is_primary(dedup->role)) {
        return false;
    }
    bool well = dedup->tier->ops->is_well(dedup->tier, why.text, sizeof why.text);
    const char *name = dedup->tier->ops->name;
    if (out->degraded[0] != '\0') {
        return well;
    }
    if (!well) {
        snprintf(out->degraded, sizeof out->degraded, "there is no second tier (%s): %s", name, why.text);
    } else if (dedup->store->ops->stalled != NULL && dedup->store->ops->stalled(dedup->store, &why) < 0) {
        snprintf(out->degraded, sizeof out->degraded, "%s: questions are answered by the second tier (%s)", why.text,
                 name);
    } else if (dedup->store->ops->forgets_stalled != NULL &&
               dedup->store->ops->forgets_stalled(dedup->store, &why) < 0) {
        snprintf(out->degraded, sizeof out->degraded, "%s: forgets are refused, questions are answered", why.text);
    } else if (hedge_disk_is_down(&pool->service->hedge, clock_real_us())) {
        snprintf(out->degraded, sizeof out->degraded,
                 "the disk is late, or can't be read: questions that memory does not answer go to the second tier (%s) "
                 "first",
                 name);
    }
    return well;
}

static bool is_refusing(struct store *store, struct health *out)
{
    struct err cause = {0};
    struct store_clock clock;
    bool refusing = store->ops->refusal(store, &cause) < 0 ||
                    (store->ops->stalled != NULL && store->ops->stalled(store, &cause) < 0);
    if (refusing) {
        out->code = ERR_BUSY;
        snprintf(out->cause, sizeof out->cause, "writes are refused: %s", cause.text);
    }
    store->ops->clock(store, &clock);
    snprintf(out->clock, sizeof out->clock, "%s", clock.doubted ? clock.reason : "");
    return refusing;
}

static bool is_out_of_date(struct store *store, struct health *out)
{
    struct front_store_state state;
    if (!front_store_is(store)) {
        return false;
    }
    front_store_look(store, &state);
    if (state.cause[0] != '\0') {
        out->code = ERR_STALE;
        snprintf(out->cause, sizeof out->cause, "questions are refused: %s", state.cause);
    }
    return state.cause[0] != '\0';
}

void health_look(struct worker_pool *pool, struct health *out)
{
    *out = (struct health){.alive = true};
    char name[HEARTBEAT_NAME];
    const struct dedup *dedup = atomic_load_explicit(&pool->service->dedup, memory_order_acquire);
    bool second = look_at_tiers(pool, dedup, out);
    int64_t silent = find_silent(second, name);
    if (silent > limit_ms) {
        out->alive = false;
        out->stuck_ms = silent;
        snprintf(out->stuck, sizeof out->stuck, "%s", name);
        snprintf(out->cause, sizeof out->cause, "%s has been stuck for %" PRId64 " s", name, silent / 1000);
    } else if (dedup == NULL) {
        out->code = ERR_LOADING;
        snprintf(out->cause, sizeof out->cause, "recovering: %.0f %% of what was staged is read%s",
                 100 * service_recovered(pool->service),
                 atomic_load(&pool->service->records) ? "; plays and deliveries are taken" : "");
    } else {
        out->ready = !is_refusing(dedup->store, out) && !is_out_of_date(dedup->store, out);
    }
}
