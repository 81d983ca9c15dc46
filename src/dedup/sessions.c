/* Sessions are dealt to shards with a lock each (session_shard.h).
 *
 * session_memory bounds all shards together: after whatever made a session grow, the one unused for longest over all
 * shards goes, until the sum fits. Each shard shows the time of its oldest without its lock, so which one that is may
 * be missed by what happens in that moment.
 */
#include "dedup/sessions.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "dedup/session_shard.h"
#include "store/saved_sessions.h"

enum {
    SHARDS = 64,
    EXPIRE_A_CALL = 4096, /* freed by sessions_expire() of a shard */
};

struct sessions {
    struct session_shard shards[SHARDS];
    const struct config *cfg;
    uint64_t seed;
    struct session_totals totals;
    _Atomic uint64_t begun, evicted;
    struct log_limit evicted_log;
};

int sessions_new(const struct config *cfg, uint64_t seed, struct sessions **out, struct err *err)
{
    struct sessions *all = aligned_alloc(_Alignof(struct sessions), sizeof *all);
    if (all == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    memset(all, 0, sizeof *all);
    all->cfg = cfg;
    all->seed = seed;
    int rc = 0;
    for (int i = 0; i < SHARDS; i++) {
        rc |= shard_init(&all->shards[i], seed, &all->totals);
    }
    if (rc < 0) {
        sessions_free(all);
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    *out = all;
    return 0;
}

void sessions_free(struct sessions *all)
{
    if (all == NULL) {
        return;
    }
    for (int i = 0; i < SHARDS; i++) {
        shard_free(&all->shards[i]);
    }
    free(all);
}

static struct session_shard *shard_of(struct sessions *all, uint64_t hash)
{
    return &all->shards[hash >> 58];
}

static int64_t ttl_of(const struct sessions *all)
{
    return config_now(all->cfg)->session_ttl_ms;
}

/* --- all shards: the budget --- */

static struct session_shard *oldest_shard(struct sessions *all)
{
    struct session_shard *oldest = &all->shards[0];
    for (int i = 1; i < SHARDS; i++) {
        if (atomic_load_explicit(&all->shards[i].oldest_ms, memory_order_relaxed) <
            atomic_load_explicit(&oldest->oldest_ms, memory_order_relaxed)) {
            oldest = &all->shards[i];
        }
    }
    return oldest;
}

/* Ends a session before its time. */
static void evict(struct sessions *all, struct session_shard *shard)
{
    shard_drop_oldest(shard);
    atomic_fetch_add_explicit(&all->evicted, 1, memory_order_relaxed);
    if (log_again(&all->evicted_log)) {
        log_warn("session memory is full, sessions end early", "session_memory=%lld ended_early=%llu",
                 (long long)config_now(all->cfg)->session_memory, (unsigned long long)atomic_load(&all->evicted));
    }
}

static void keep_budget(struct sessions *all)
{
    uint64_t limit = (uint64_t)config_now(all->cfg)->session_memory;
    bool any = true; /* else the tables alone take that much */
    while (any && atomic_load_explicit(&all->totals.bytes, memory_order_relaxed) > limit) {
        struct session_shard *shard = oldest_shard(all);
        pthread_mutex_lock(&shard->lock);
        any = shard_oldest(shard) != NULL;
        if (shard_oldest_ended(shard, clock_mono_ms(), ttl_of(all))) {
            shard_expire(shard, clock_mono_ms(), ttl_of(all), 1);
        } else if (any) {
            evict(all, shard);
        }
        pthread_mutex_unlock(&shard->lock);
    }
}

/* --- sets of ids --- */

static int out_of_memory(const struct session_ids *ids, struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory for a session of %zu ids", session_ids_count(ids));
}

/* The ids of an entry, or none. */
static int decode(struct session_shard *shard, const struct session_entry *e, struct session_ids *ids, struct err *err)
{
    *ids = (struct session_ids){0};
    return e == NULL ? 0 : session_ids_decode(session_blob(e), &shard->arena, ids, err);
}

static int store_ids(struct session_shard *shard, struct session_entry **place, struct slice name,
                     const struct session_ids *ids, struct err *err)
{
    buf_clear(&shard->blob);
    int rc = session_ids_encode(ids, &shard->blob);
    if (rc == 0) {
        rc = shard_put(shard, place, name, buf_slice(&shard->blob), clock_mono_ms());
    }
    buf_shrink(&shard->blob, 4096);
    return rc < 0 ? out_of_memory(ids, err) : 0;
}

static int64_t block(struct sessions *all, struct session_shard *shard, uint64_t hash, struct slice name,
                     const struct session_ids *ids, struct err *err)
{
    struct session_entry **place = shard_find_live(shard, hash, name, clock_mono_ms(), ttl_of(all));
    struct session_ids old, both;
    if (session_ids_count(ids) == 0) {
        return 0;
    }
    int rc = decode(shard, *place, &old, err);
    if (rc < 0) {
        return rc;
    }
    if (session_ids_union(&old, ids, &shard->arena, &both) < 0) {
        return out_of_memory(ids, err);
    }
    size_t before = session_ids_count(&old), after = session_ids_count(&both);
    if (after > SESSION_IDS_MAX) {
        return err_set(err, ERR_FULL, "a session holds at most %d ids: this one has %zu, and would have %zu",
                       SESSION_IDS_MAX, before, after);
    }
    bool begins = *place == NULL;
    rc = store_ids(shard, place, name, &both, err);
    if (rc < 0) {
        return rc;
    }
    atomic_fetch_add_explicit(&all->begun, begins, memory_order_relaxed);
    return (int64_t)(after - before);
}

static int64_t unblock(struct sessions *all, struct session_shard *shard, uint64_t hash, struct slice name,
                       const struct session_ids *ids, struct err *err)
{
    struct session_entry **place = shard_find_live(shard, hash, name, clock_mono_ms(), ttl_of(all));
    if (*place == NULL) {
        return 0;
    }
    struct session_ids old, left = {0};
    int rc = decode(shard, *place, &old, err);
    if (rc < 0) {
        return rc;
    }
    if (session_ids_count(ids) > 0 && session_ids_minus(&old, ids, &shard->arena, &left) < 0) {
        return out_of_memory(&old, err);
    }
    if (session_ids_count(&left) == 0) {
        shard_drop(shard, place);
    } else if ((rc = store_ids(shard, place, name, &left, err)) < 0) {
        return rc;
    }
    return (int64_t)(session_ids_count(&old) - session_ids_count(&left));
}

typedef int64_t change_fn(struct sessions *all, struct session_shard *shard, uint64_t hash, struct slice name,
                          const struct session_ids *ids, struct err *err);

static int64_t change(struct sessions *all, struct slice name, struct session_ids *ids, change_fn *make,
                      struct err *err)
{
    session_ids_sort(ids);
    uint64_t hash = shard_hash(all->seed, name);
    struct session_shard *shard = shard_of(all, hash);
    pthread_mutex_lock(&shard->lock);
    int64_t changed = make(all, shard, hash, name, ids, err);
    arena_reset(&shard->arena);
    pthread_mutex_unlock(&shard->lock);
    keep_budget(all);
    return changed;
}

int64_t sessions_block(struct sessions *all, struct slice name, struct session_ids *ids, struct err *err)
{
    return change(all, name, ids, block, err);
}

int64_t sessions_unblock(struct sessions *all, struct slice name, struct session_ids *ids, struct err *err)
{
    return change(all, name, ids, unblock, err);
}

int sessions_load(struct sessions *all, struct slice name, struct session_set *set, struct err *err)
{
    uint64_t hash = shard_hash(all->seed, name);
    struct session_shard *shard = shard_of(all, hash);
    int64_t now = clock_mono_ms();
    struct session_ids ids;
    set->n_numbers = set->n_hashes = 0;
    pthread_mutex_lock(&shard->lock);
    struct session_entry *e = *shard_find_live(shard, hash, name, now, ttl_of(all));
    int rc = decode(shard, e, &ids, err);
    if (rc == 0 && (rc = session_set_copy(set, &ids)) == 0 && e != NULL) {
        shard_use(shard, e, now);
    }
    arena_reset(&shard->arena);
    pthread_mutex_unlock(&shard->lock);
    if (rc == 0) {
        rc = session_set_build(set);
    }
    return rc == ERR_NOMEM ? err_set(err, rc, "out of memory for a session's ids") : rc;
}

/* --- time, figures, restarts --- */

void sessions_expire(struct sessions *all, unsigned part, unsigned parts)
{
    int64_t now = clock_mono_ms();
    for (unsigned i = part; i < SHARDS; i += parts) {
        struct session_shard *shard = &all->shards[i];
        int64_t oldest = atomic_load_explicit(&shard->oldest_ms, memory_order_relaxed);
        if (oldest != INT64_MAX && now - oldest >= ttl_of(all)) {
            pthread_mutex_lock(&shard->lock);
            shard_expire(shard, now, ttl_of(all), EXPIRE_A_CALL);
            pthread_mutex_unlock(&shard->lock);
        }
    }
}

void sessions_stats(const struct sessions *all, struct sessions_stats *out)
{
    *out = (struct sessions_stats){
        .live = atomic_load_explicit(&all->totals.live, memory_order_relaxed),
        .bytes = atomic_load_explicit(&all->totals.bytes, memory_order_relaxed),
        .limit = (uint64_t)config_now(all->cfg)->session_memory,
        .begun = atomic_load_explicit(&all->begun, memory_order_relaxed),
        .expired = atomic_load_explicit(&all->totals.expired, memory_order_relaxed),
        .evicted = atomic_load_explicit(&all->evicted, memory_order_relaxed),
    };
}

void sessions_stats_each(const struct sessions *all, figure_visit *visit, void *arg)
{
    struct sessions_stats s;
    sessions_stats(all, &s);
    const struct {
        struct figure figure;
        uint64_t value;
    } figures[] = {
        {{"sessions", "sessions", FIGURE_GAUGE, "Scroll sessions in memory."}, s.live},
        {{"session_memory_used", "session_memory_bytes", FIGURE_GAUGE, "Memory of scroll sessions."}, s.bytes},
        {{"session_memory_limit", "session_memory_limit_bytes", FIGURE_GAUGE, "session_memory."}, s.limit},
        {{"sessions_begun", "sessions_begun_total", FIGURE_COUNTER, "Scroll sessions that began."}, s.begun},
        {{"sessions_expired", "sessions_expired_total", FIGURE_COUNTER, "Scroll sessions that ended unused."},
         s.expired},
        {{"sessions_evicted", "sessions_evicted_total", FIGURE_COUNTER,
          "Scroll sessions that ended early because session_memory was full."},
         s.evicted},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        visit(arg, &figures[i].figure, figures[i].value);
    }
}

/* Goes through all sessions, in each shard from the one unused for longest on. */
struct save {
    struct sessions *all;
    int shard;
    const struct session_entry *at;
    int64_t wall_less_mono;
};

static bool next_saved(void *arg, struct store_session *out)
{
    struct save *save = arg;
    while (save->at == NULL && ++save->shard < SHARDS) {
        save->at = shard_oldest(&save->all->shards[save->shard]);
    }
    const struct session_entry *e = save->at;
    if (e == NULL) {
        return false;
    }
    save->at = (const struct session_entry *)e->use.newer;
    out->name = session_name(e);
    out->ids = session_blob(e);
    out->used_ms = e->used_ms + save->wall_less_mono;
    return true;
}

int sessions_save(struct sessions *all, struct store *store, struct err *err)
{
    if (store->sessions == NULL) {
        return 0; /* they end with the server */
    }
    int64_t wall, mono;
    clock_both_ms(&wall, &mono);
    struct save save = {.all = all, .shard = -1, .wall_less_mono = wall - mono};
    return store->sessions->keep(store, next_saved, &save, err);
}

/* One that was kept. A clock that went back makes it used just now; a damaged one is left out. */
static void take_session(void *arg, const struct store_session *kept)
{
    struct sessions *all = arg;
    int64_t wall, mono;
    clock_both_ms(&wall, &mono);
    int64_t age = wall > kept->used_ms ? wall - kept->used_ms : 0;
    if (age >= ttl_of(all) || kept->name.len - 1 >= UINT8_MAX) {
        return;
    }
    uint64_t hash = shard_hash(all->seed, kept->name);
    struct session_shard *shard = shard_of(all, hash);
    struct session_ids ids;
    struct err err = {0};
    pthread_mutex_lock(&shard->lock);
    int rc = session_ids_decode(kept->ids, &shard->arena, &ids, &err);
    if (rc == 0) {
        rc = shard_put(shard, shard_find(shard, hash, kept->name), kept->name, kept->ids, mono - age);
    }
    arena_reset(&shard->arena);
    pthread_mutex_unlock(&shard->lock);
    if (rc < 0) {
        log_warn("session not restored", "session=%s error=%s", log_quote(kept->name),
                 rc == ERR_NOMEM ? "\"out of memory\"" : log_quote_str(err.text));
    }
    keep_budget(all);
}

int sessions_restore(struct sessions *all, struct store *store, struct err *err)
{
    return store->sessions == NULL ? 0 : store->sessions->take(store, take_session, all, err);
}
