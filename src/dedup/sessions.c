/* A shard is a hash table of its sessions, chained, and a list of them by last use. Expiry and eviction take sessions
 * from that list's old end, so neither ever scans. The ttl is the same for all, so the order of use is the order of
 * expiry.
 *
 * A session is one piece of memory: links, name, the blob of its ids. It is allocated anew whenever its blob changes
 * its size, so it is never larger than it must be.
 *
 * session_memory bounds all shards together: after whatever made a session grow, the one unused for longest over all
 * shards goes, until the sum fits. Each shard shows the time of its oldest without its lock, so which one that is may
 * be missed by what happens in that moment.
 */
#include "dedup/sessions.h"

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "filter/filter.h"

enum {
    SHARDS = 64,
    BUCKETS_MIN = 16,
    EXPIRE_BESIDE = 4,    /* freed by each use of a shard */
    EXPIRE_A_CALL = 4096, /* freed by sessions_expire() of a shard */
    MALLOC_HEAD = 8,      /* bytes of glibc in front of each piece */
};

struct session_entry {
    struct session_entry *next;          /* of the bucket */
    struct session_entry *newer, *older; /* by last use */
    int64_t used_ms;                     /* monotonic */
    uint32_t blob_len;
    uint8_t name_len;
    char bytes[]; /* the name, the blob */
};

struct shard {
    pthread_mutex_t lock;
    struct session_entry **buckets; /* a power of two of them */
    size_t n_buckets, n;
    struct session_entry *newest, *oldest;
    _Atomic int64_t oldest_ms; /* INT64_MAX: none */
    struct arena arena;        /* of the set being changed */
    struct buf blob;
} __attribute__((aligned(64)));

struct sessions {
    struct shard shards[SHARDS];
    const struct config *cfg;
    uint64_t seed;
    _Atomic uint64_t bytes, live, begun, expired, evicted;
    struct log_limit evicted_log;
};

static void add_to(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static void take_from(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_sub_explicit(counter, n, memory_order_relaxed);
}

static struct slice name_of(const struct session_entry *e)
{
    return slice_of(e->bytes, e->name_len);
}

static size_t weight(void *allocated)
{
    return malloc_usable_size(allocated) + MALLOC_HEAD;
}

int sessions_new(const struct config *cfg, uint64_t seed, struct sessions **out, struct err *err)
{
    struct sessions *all = aligned_alloc(_Alignof(struct sessions), sizeof *all);
    if (all == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    memset(all, 0, sizeof *all);
    all->cfg = cfg;
    all->seed = seed;
    for (int i = 0; i < SHARDS; i++) {
        struct shard *shard = &all->shards[i];
        pthread_mutex_init(&shard->lock, NULL);
        atomic_store(&shard->oldest_ms, INT64_MAX);
        shard->arena.block_size = 4096;
        shard->buckets = calloc(BUCKETS_MIN, sizeof(struct session_entry *));
        if (shard->buckets == NULL) {
            sessions_free(all);
            return err_set(err, ERR_NOMEM, "out of memory");
        }
        shard->n_buckets = BUCKETS_MIN;
        add_to(&all->bytes, weight(shard->buckets));
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
        struct shard *shard = &all->shards[i];
        for (struct session_entry *e = shard->newest, *older; e != NULL; e = older) {
            older = e->older;
            free(e);
        }
        free(shard->buckets);
        arena_free(&shard->arena);
        buf_free(&shard->blob);
        pthread_mutex_destroy(&shard->lock);
    }
    free(all);
}

bool session_id(struct slice text, uint32_t *id)
{
    /* Ten digits fit 64 bits. Most candidates of other kinds end at their first byte. */
    if (text.len - 1 >= 10 || (unsigned char)(text.data[0] - '0') > 9 || (text.data[0] == '0' && text.len > 1)) {
        return false;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < text.len; i++) {
        unsigned digit = (unsigned char)(text.data[i] - '0');
        if (digit > 9) {
            return false;
        }
        value = value * 10 + digit;
    }
    *id = (uint32_t)value;
    return value <= UINT32_MAX;
}

/* --- a shard's table and list, under its lock --- */

static uint64_t hash_name(const struct sessions *all, struct slice name)
{
    return hash_id(all->seed, name);
}

static struct shard *shard_of(struct sessions *all, uint64_t hash)
{
    return &all->shards[hash >> 58];
}

static struct session_entry **bucket_of(const struct shard *shard, uint64_t hash)
{
    return &shard->buckets[hash & (shard->n_buckets - 1)];
}

static struct session_entry **find(const struct shard *shard, uint64_t hash, struct slice name)
{
    struct session_entry **at = bucket_of(shard, hash);
    while (*at != NULL && !slice_eq(name_of(*at), name)) {
        at = &(*at)->next;
    }
    return at;
}

static void show_oldest(struct shard *shard)
{
    int64_t ms = shard->oldest != NULL ? shard->oldest->used_ms : INT64_MAX;
    atomic_store_explicit(&shard->oldest_ms, ms, memory_order_relaxed);
}

static void unlink_use(struct shard *shard, struct session_entry *e)
{
    *(e->newer != NULL ? &e->newer->older : &shard->newest) = e->older;
    *(e->older != NULL ? &e->older->newer : &shard->oldest) = e->newer;
}

static void link_newest(struct shard *shard, struct session_entry *e)
{
    e->newer = NULL;
    e->older = shard->newest;
    *(e->older != NULL ? &e->older->newer : &shard->oldest) = e;
    shard->newest = e;
}

static void use(struct shard *shard, struct session_entry *e, int64_t now)
{
    unlink_use(shard, e);
    e->used_ms = now;
    link_newest(shard, e);
    show_oldest(shard);
}

/* at: where the table points to it. */
static void drop(struct sessions *all, struct shard *shard, struct session_entry **at)
{
    struct session_entry *e = *at;
    *at = e->next;
    unlink_use(shard, e);
    show_oldest(shard);
    shard->n--;
    take_from(&all->bytes, weight(e));
    take_from(&all->live, 1);
    free(e);
}

static void drop_oldest(struct sessions *all, struct shard *shard)
{
    struct slice name = name_of(shard->oldest);
    drop(all, shard, find(shard, hash_name(all, name), name));
}

static bool has_ended(const struct sessions *all, const struct session_entry *e, int64_t now)
{
    return now - e->used_ms >= config_now(all->cfg)->session_ttl_ms;
}

static void expire(struct sessions *all, struct shard *shard, int64_t now, int most)
{
    int n = 0;
    while (n < most && shard->oldest != NULL && has_ended(all, shard->oldest, now)) {
        drop_oldest(all, shard);
        n++;
    }
    add_to(&all->expired, (uint64_t)n);
}

/* The session's place in the table; *place is NULL when there is none, or it has ended. */
static struct session_entry **find_live(struct sessions *all, struct shard *shard, uint64_t hash, struct slice name,
                                        int64_t now)
{
    expire(all, shard, now, EXPIRE_BESIDE);
    struct session_entry **place = find(shard, hash, name);
    if (*place != NULL && has_ended(all, *place, now)) {
        drop(all, shard, place);
        add_to(&all->expired, 1);
        place = find(shard, hash, name);
    }
    return place;
}

/* Keeps about one session a bucket. When there is no memory for it, chains get longer. */
static void grow_table(struct sessions *all, struct shard *shard)
{
    size_t n = 2 * shard->n_buckets;
    struct session_entry **buckets = calloc(n, sizeof(struct session_entry *));
    if (buckets == NULL) {
        return;
    }
    struct session_entry **old = shard->buckets;
    add_to(&all->bytes, weight(buckets));
    take_from(&all->bytes, weight(old));
    shard->buckets = buckets;
    shard->n_buckets = n;
    for (struct session_entry *e = shard->newest; e != NULL; e = e->older) {
        struct session_entry **at = bucket_of(shard, hash_name(all, name_of(e)));
        e->next = *at;
        *at = e;
    }
    free(old);
}

/* Puts a set in the place of what `place` holds, if anything. */
static int put(struct sessions *all, struct shard *shard, struct session_entry **place, struct slice name,
               struct slice blob, int64_t now)
{
    struct session_entry *old = *place;
    struct session_entry *e = old;
    if (old == NULL || old->blob_len != blob.len) {
        e = malloc(sizeof *e + name.len + blob.len);
        if (e == NULL) {
            return ERR_NOMEM;
        }
        e->next = old != NULL ? old->next : NULL;
        e->blob_len = (uint32_t)blob.len;
        e->name_len = (uint8_t)name.len;
        memcpy(e->bytes, name.data, name.len);
        add_to(&all->bytes, weight(e));
        *place = e;
        if (old != NULL) {
            unlink_use(shard, old);
            take_from(&all->bytes, weight(old));
            free(old);
        } else {
            shard->n++;
            add_to(&all->live, 1);
        }
        link_newest(shard, e);
    }
    memcpy(e->bytes + e->name_len, blob.data, blob.len);
    use(shard, e, now);
    if (shard->n > shard->n_buckets) {
        grow_table(all, shard);
    }
    return 0;
}

/* --- all shards: the budget --- */

static struct shard *oldest_shard(struct sessions *all)
{
    struct shard *oldest = &all->shards[0];
    for (int i = 1; i < SHARDS; i++) {
        if (atomic_load_explicit(&all->shards[i].oldest_ms, memory_order_relaxed) <
            atomic_load_explicit(&oldest->oldest_ms, memory_order_relaxed)) {
            oldest = &all->shards[i];
        }
    }
    return oldest;
}

/* Ends a session before its time. */
static void evict(struct sessions *all, struct shard *shard)
{
    drop_oldest(all, shard);
    add_to(&all->evicted, 1);
    if (log_again(&all->evicted_log)) {
        log_warn("session memory is full, sessions end early", "session_memory=%lld ended_early=%llu",
                 (long long)config_now(all->cfg)->session_memory, (unsigned long long)atomic_load(&all->evicted));
    }
}

static void keep_budget(struct sessions *all)
{
    uint64_t limit = (uint64_t)config_now(all->cfg)->session_memory;
    bool any = true; /* else the tables alone take that much */
    while (any && atomic_load_explicit(&all->bytes, memory_order_relaxed) > limit) {
        struct shard *shard = oldest_shard(all);
        pthread_mutex_lock(&shard->lock);
        any = shard->oldest != NULL;
        if (any && has_ended(all, shard->oldest, clock_mono_ms())) {
            expire(all, shard, clock_mono_ms(), 1);
        } else if (any) {
            evict(all, shard);
        }
        pthread_mutex_unlock(&shard->lock);
    }
}

/* --- sets of ids --- */

/* The ids of an entry, or none, as a filter of one part. */
static int decode(struct shard *shard, const struct session_entry *e, struct filter_part *part, struct err *err)
{
    *part = (struct filter_part){.m = FILTER_LIVE_M};
    if (e == NULL) {
        return 0;
    }
    struct filter filter;
    int rc = filter_decode(e->bytes + e->name_len, e->blob_len, &shard->arena, &filter, err);
    if (rc == 0 && filter.n_parts > 0) {
        *part = filter.parts[0];
    }
    return rc;
}

static int store_ids(struct sessions *all, struct shard *shard, struct session_entry **place, struct slice name,
                     const uint32_t *ids, uint32_t n, struct err *err)
{
    struct filter filter = {.n_parts = 1, .parts[0] = {.positions = (uint32_t *)ids, .n = n, .m = FILTER_LIVE_M}};
    buf_clear(&shard->blob);
    int rc = filter_encode(&filter, &shard->blob);
    if (rc == 0) {
        rc = put(all, shard, place, name, buf_slice(&shard->blob), clock_mono_ms());
    }
    buf_shrink(&shard->blob, 4096);
    return rc < 0 ? err_set(err, rc, "out of memory for a session of %u ids", n) : 0;
}

static int64_t block(struct sessions *all, struct shard *shard, uint64_t hash, struct slice name, uint32_t *ids,
                     uint32_t n, struct err *err)
{
    struct session_entry **place = find_live(all, shard, hash, name, clock_mono_ms());
    struct filter_part old;
    int rc = decode(shard, *place, &old, err);
    if (rc < 0) {
        return rc;
    }
    uint32_t *both = arena_alloc(&shard->arena, ((size_t)old.n + n) * sizeof *both);
    if (both == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for a session of %u ids", old.n + n);
    }
    uint32_t sum = filter_union(old.positions, old.n, ids, n, both);
    if (sum > SESSION_IDS_MAX) {
        return err_set(err, ERR_FULL, "a session holds at most %d ids: this one has %u, and would have %u",
                       SESSION_IDS_MAX, old.n, sum);
    }
    bool begins = *place == NULL;
    rc = store_ids(all, shard, place, name, both, sum, err);
    if (rc < 0) {
        return rc;
    }
    add_to(&all->begun, begins);
    return sum - old.n;
}

int64_t sessions_block(struct sessions *all, struct slice name, uint32_t *ids, size_t n, struct err *err)
{
    uint32_t distinct = filter_sort(ids, (uint32_t)n, NULL);
    uint64_t hash = hash_name(all, name);
    struct shard *shard = shard_of(all, hash);
    pthread_mutex_lock(&shard->lock);
    int64_t added = block(all, shard, hash, name, ids, distinct, err);
    arena_reset(&shard->arena);
    pthread_mutex_unlock(&shard->lock);
    keep_budget(all);
    return added;
}

static int64_t unblock(struct sessions *all, struct shard *shard, uint64_t hash, struct slice name, const uint32_t *ids,
                       uint32_t n, struct err *err)
{
    struct session_entry **place = find_live(all, shard, hash, name, clock_mono_ms());
    if (*place == NULL) {
        return 0;
    }
    struct filter_part old;
    int rc = decode(shard, *place, &old, err);
    if (rc < 0) {
        return rc;
    }
    if (n == 0) {
        drop(all, shard, place);
        return old.n;
    }
    uint32_t left = 0;
    for (uint32_t i = 0, k = 0; i < old.n; i++) {
        while (k < n && ids[k] < old.positions[i]) {
            k++;
        }
        if (k == n || ids[k] != old.positions[i]) {
            old.positions[left++] = old.positions[i];
        }
    }
    if (left == 0) {
        drop(all, shard, place);
    } else if ((rc = store_ids(all, shard, place, name, old.positions, left, err)) < 0) {
        return rc;
    }
    return old.n - left;
}

int64_t sessions_unblock(struct sessions *all, struct slice name, uint32_t *ids, size_t n, struct err *err)
{
    uint32_t distinct = filter_sort(ids, (uint32_t)n, NULL);
    uint64_t hash = hash_name(all, name);
    struct shard *shard = shard_of(all, hash);
    pthread_mutex_lock(&shard->lock);
    int64_t gone = unblock(all, shard, hash, name, ids, distinct, err);
    arena_reset(&shard->arena);
    pthread_mutex_unlock(&shard->lock);
    return gone;
}

/* --- a question's set --- */

static int room_for(struct session_set *set, size_t n)
{
    if (n <= set->cap) {
        return 0;
    }
    uint32_t *ids = realloc(set->ids, n * sizeof *ids);
    if (ids == NULL) {
        return ERR_NOMEM;
    }
    set->ids = ids;
    set->cap = n;
    return 0;
}

static uint32_t spread(const struct session_set *set, uint32_t id)
{
    return (id * UINT32_C(2654435769)) >> set->shift; /* Knuth's multiplicative hash: 2^32 / the golden ratio */
}

/* 16 to 32 bits an id, so that one in some 20 of the ids that aren't there is looked for. */
static int build_bits(struct session_set *set)
{
    unsigned log = 9;
    while ((UINT64_C(1) << log) < 16 * (uint64_t)set->n) {
        log++;
    }
    size_t words = (size_t)1 << (log - 6);
    if (words > set->cap_bits) {
        free(set->bits);
        set->cap_bits = 0;
        set->bits = malloc(words * sizeof *set->bits);
        if (set->bits == NULL) {
            return ERR_NOMEM;
        }
        set->cap_bits = words;
    }
    memset(set->bits, 0, words * sizeof *set->bits);
    set->shift = 32 - log;
    for (size_t i = 0; i < set->n; i++) {
        uint32_t bit = spread(set, set->ids[i]);
        set->bits[bit / 64] |= UINT64_C(1) << (bit % 64);
    }
    return 0;
}

int sessions_load(struct sessions *all, struct slice name, struct session_set *set, struct err *err)
{
    uint64_t hash = hash_name(all, name);
    struct shard *shard = shard_of(all, hash);
    int64_t now = clock_mono_ms();
    struct filter_part part;
    set->n = 0;
    pthread_mutex_lock(&shard->lock);
    struct session_entry *e = *find_live(all, shard, hash, name, now);
    int rc = decode(shard, e, &part, err);
    if (rc == 0 && (rc = room_for(set, part.n)) == 0 && part.n > 0) {
        memcpy(set->ids, part.positions, part.n * sizeof *set->ids);
        set->n = part.n;
        use(shard, e, now);
    }
    arena_reset(&shard->arena);
    pthread_mutex_unlock(&shard->lock);
    if (rc == 0 && set->n > 0) {
        rc = build_bits(set);
    }
    return rc == ERR_NOMEM ? err_set(err, rc, "out of memory for a session's ids") : rc;
}

bool session_set_has(const struct session_set *set, uint32_t id)
{
    if (set->n == 0) {
        return false;
    }
    uint32_t bit = spread(set, id);
    if ((set->bits[bit / 64] >> (bit % 64) & 1) == 0) {
        return false;
    }
    size_t from = 0, to = set->n;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (set->ids[middle] < id) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from < set->n && set->ids[from] == id;
}

void session_set_free(struct session_set *set)
{
    free(set->ids);
    free(set->bits);
    *set = (struct session_set){0};
}

size_t session_set_hide(const struct session_set *set, const struct slice *items, size_t n, uint8_t *unseen)
{
    size_t hidden = 0;
    for (size_t i = 0; set->n > 0 && i < n; i++) {
        uint32_t id;
        uint8_t bit = (uint8_t)(0x80 >> i % 8);
        if ((unseen[i / 8] & bit) != 0 && session_id(items[i], &id) && session_set_has(set, id)) {
            unseen[i / 8] = (uint8_t)(unseen[i / 8] & ~bit);
            hidden++;
        }
    }
    return hidden;
}

/* --- time, figures, restarts --- */

void sessions_expire(struct sessions *all, unsigned part, unsigned parts)
{
    int64_t now = clock_mono_ms();
    for (unsigned i = part; i < SHARDS; i += parts) {
        struct shard *shard = &all->shards[i];
        int64_t oldest = atomic_load_explicit(&shard->oldest_ms, memory_order_relaxed);
        if (oldest != INT64_MAX && now - oldest >= config_now(all->cfg)->session_ttl_ms) {
            pthread_mutex_lock(&shard->lock);
            expire(all, shard, now, EXPIRE_A_CALL);
            pthread_mutex_unlock(&shard->lock);
        }
    }
}

void sessions_stats(const struct sessions *all, struct sessions_stats *out)
{
    *out = (struct sessions_stats){
        .live = atomic_load_explicit(&all->live, memory_order_relaxed),
        .bytes = atomic_load_explicit(&all->bytes, memory_order_relaxed),
        .limit = (uint64_t)config_now(all->cfg)->session_memory,
        .begun = atomic_load_explicit(&all->begun, memory_order_relaxed),
        .expired = atomic_load_explicit(&all->expired, memory_order_relaxed),
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
        save->at = save->all->shards[save->shard].oldest;
    }
    const struct session_entry *e = save->at;
    if (e == NULL) {
        return false;
    }
    save->at = e->newer;
    out->name = name_of(e);
    out->ids = slice_of(e->bytes + e->name_len, e->blob_len);
    out->used_ms = e->used_ms + save->wall_less_mono;
    return true;
}

int sessions_save(struct sessions *all, struct store *store, struct err *err)
{
    int64_t wall, mono;
    clock_both_ms(&wall, &mono);
    struct save save = {.all = all, .shard = -1, .wall_less_mono = wall - mono};
    return store->ops->keep_sessions(store, next_saved, &save, err);
}

/* One that was kept. A clock that went back makes it used just now; a damaged one is left out. */
static void take_session(void *arg, const struct store_session *kept)
{
    struct sessions *all = arg;
    int64_t wall, mono;
    clock_both_ms(&wall, &mono);
    int64_t age = wall > kept->used_ms ? wall - kept->used_ms : 0;
    if (age >= config_now(all->cfg)->session_ttl_ms || kept->name.len - 1 >= UINT8_MAX) {
        return;
    }
    uint64_t hash = hash_name(all, kept->name);
    struct shard *shard = shard_of(all, hash);
    struct filter filter;
    struct err err = {0};
    pthread_mutex_lock(&shard->lock);
    int rc = filter_decode(kept->ids.data, kept->ids.len, &shard->arena, &filter, &err);
    if (rc == 0 && (filter.n_parts != 1 || filter.parts[0].m != FILTER_LIVE_M || filter.parts[0].n > SESSION_IDS_MAX)) {
        rc = err_set(&err, ERR_CORRUPT, "it is no set of ids");
    }
    if (rc == 0) {
        rc = put(all, shard, find(shard, hash, kept->name), kept->name, kept->ids, mono - age);
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
    return store->ops->take_sessions(store, take_session, all, err);
}
