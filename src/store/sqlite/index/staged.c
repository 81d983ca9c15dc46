/* The staged index, writer's side: adding, finding what a forget removes, dropping it. See staged_impl.h for the
 * layout and for why readers need no lock.
 *
 * Dropping only marks rows, so it allocates nothing and can't fail: it happens after their deletion from the file is
 * durable, when nothing can be taken back. Their memory comes back with the slot.
 */
#include "store/sqlite/index/staged.h"

#include <stdlib.h>

#include "base/calendar.h"
#include "base/err.h"
#include "base/prefetch.h"
#include "store/sqlite/index/staged_impl.h"

enum { TABLE_MIN = 8, MONTH_LIMIT = UINT16_MAX };

struct staged *staged_new(uint64_t first_id)
{
    struct staged *s = calloc(1, sizeof(*s));
    if (s != NULL) {
        s->first_id = first_id;
        atomic_store_explicit(&s->bytes, sizeof(*s), memory_order_relaxed);
    }
    return s;
}

void staged_free(struct staged *s)
{
    if (s != NULL) {
        arena_free(&s->arena);
        free(s);
    }
}

bool staged_fits(const struct staged *s, uint64_t id, int month)
{
    return id >= s->first_id && id - s->first_id <= UINT32_MAX && month >= 0 && month <= MONTH_LIMIT;
}

uint64_t staged_rows(const struct staged *s)
{
    return atomic_load_explicit(&s->rows, memory_order_relaxed);
}

uint64_t staged_taken(const struct staged *s)
{
    return atomic_load_explicit(&s->taken, memory_order_relaxed);
}

uint64_t staged_users(const struct staged *s)
{
    return atomic_load_explicit(&s->users, memory_order_relaxed);
}

size_t staged_bytes(const struct staged *s)
{
    return (size_t)atomic_load_explicit(&s->bytes, memory_order_relaxed);
}

/* There is one writer, so a counter needs no locked instruction. */
static void count(_Atomic uint64_t *counter, int64_t by)
{
    uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, now + (uint64_t)by, memory_order_relaxed);
}

static void *take(struct staged *s, size_t size)
{
    void *p = arena_alloc(&s->arena, size);
    atomic_store_explicit(&s->bytes, sizeof(*s) + s->arena.bytes, memory_order_relaxed);
    return p;
}

/* --- adding --- */

static void put(struct table *table, struct staged_user *user)
{
    size_t at = (size_t)user->key & table->mask;
    while (atomic_load_explicit(&table->cells[at], memory_order_relaxed) != NULL) {
        at = (at + 1) & table->mask;
    }
    atomic_store_explicit(&table->cells[at], user, memory_order_release);
}

/* Makes room for one more user at a load of at most 0.7. */
static int grow_table(struct staged *s, struct shard *shard)
{
    struct table *old = atomic_load_explicit(&shard->table, memory_order_relaxed);
    size_t cells = old != NULL ? old->mask + 1 : 0;
    if ((shard->users + 1) * 10 <= cells * 7) {
        return 0;
    }
    size_t more = cells > 0 ? cells * 2 : TABLE_MIN;
    struct table *table = take(s, sizeof(*table) + more * sizeof(table->cells[0]));
    if (table == NULL) {
        return ERR_NOMEM;
    }
    table->mask = more - 1;
    for (size_t i = 0; i < more; i++) {
        atomic_init(&table->cells[i], NULL);
    }
    for (size_t i = 0; i < cells; i++) {
        struct staged_user *user = atomic_load_explicit(&old->cells[i], memory_order_relaxed);
        if (user != NULL) {
            put(table, user);
        }
    }
    atomic_store_explicit(&shard->table, table, memory_order_release);
    return 0;
}

struct staged_user *staged_user(struct staged *s, int64_t key, struct slice id)
{
    struct staged_user *user = staged_find(s, key, id);
    if (user != NULL) {
        return user;
    }
    struct shard *shard = &s->shards[shard_of(key)];
    if (grow_table(s, shard) != 0) {
        return NULL;
    }
    user = take(s, offsetof(struct staged_user, id) + id.len);
    if (user == NULL) {
        return NULL;
    }
    memset(user, 0, offsetof(struct staged_user, id));
    user->key = key;
    user->len = (uint8_t)id.len;
    memcpy(user->id, id.data, id.len);
    put(atomic_load_explicit(&shard->table, memory_order_relaxed), user);
    shard->users++;
    return user;
}

bool staged_is(const struct staged_user *entry, int64_t key, struct slice id)
{
    return user_is(entry, key, id);
}

static struct staged_user *user_in(const struct table *table, size_t at)
{
    return atomic_load_explicit(&table->cells[at & table->mask], memory_order_relaxed);
}

static void prefetch_user(const struct staged_user *user)
{
    if (user != NULL) {
        prefetch(user, 2 * CACHE_LINE);
    }
}

/* Each step is where the next one's address stands: the user's cell, the user, their last chunk. A cell may hold
 * another user, who came first: then the next cell's is fetched. */
void staged_prefetch(const struct staged *s, int64_t key, int step)
{
    const struct table *table = atomic_load_explicit(&s->shards[shard_of(key)].table, memory_order_relaxed);
    if (table == NULL) {
        return;
    }
    size_t at = (size_t)key & table->mask;
    if (step == 0) {
        __builtin_prefetch(&table->cells[at]);
        return;
    }
    struct staged_user *user = user_in(table, at);
    if (step == 1) {
        prefetch_user(user);
    } else if (user != NULL && user->key != key) {
        prefetch_user(user_in(table, at + 1));
    } else if (user != NULL && user->last != NULL) {
        __builtin_prefetch(&user->last->plays[user->used]);
    }
}

static void row_added(struct staged *s, struct staged_user *user)
{
    uint32_t live = atomic_load_explicit(&user->live, memory_order_relaxed);
    atomic_store_explicit(&user->live, live + 1, memory_order_relaxed);
    count(&s->users, live == 0 ? 1 : 0);
    count(&s->rows, 1);
    count(&s->taken, 1);
}

int staged_add_play(struct staged *s, struct staged_user *user, uint64_t hash, int month, uint64_t id)
{
    if (!staged_fits(s, id, month)) {
        return ERR_RANGE;
    }
    uint32_t n = atomic_load_explicit(&user->n_plays, memory_order_relaxed);
    if (user->used == user->size) {
        uint32_t size = n > 0 ? chunk_after(user->size) : CHUNK_MIN;
        struct chunk *chunk = take(s, sizeof(*chunk) + size * sizeof(chunk->plays[0]));
        if (chunk == NULL) {
            return ERR_NOMEM;
        }
        chunk->next = NULL;
        if (n > 0) {
            user->last->next = chunk;
        } else {
            user->first = chunk;
        }
        user->last = chunk;
        user->size = (uint16_t)size;
        user->used = 0;
    }
    struct play *play = &user->last->plays[user->used++];
    play->hash = hash;
    play->id = (uint32_t)(id - s->first_id);
    play->month = (uint16_t)month;
    atomic_init(&play->dead, 0);
    atomic_store_explicit(&user->n_plays, n + 1, memory_order_release);
    row_added(s, user);
    return 0;
}

/* The chunk that has room for one more delivery with so many bytes of its item and group; a new one isn't the user's
 * yet. */
static struct sent_chunk *sent_room(struct staged *s, struct sent_chunk *last, size_t bytes)
{
    const size_t row = sizeof(struct sent) + bytes;
    if (last != NULL) {
        size_t n = atomic_load_explicit(&last->n, memory_order_relaxed);
        if (sizeof(*last) + n * sizeof(last->rows[0]) + row <= last->items) {
            return last;
        }
    }
    size_t size = last != NULL ? last->size + (size_t)last->size / 2 : sizeof(*last) + 2 * row;
    size = size < SENT_BYTES_MAX ? size : SENT_BYTES_MAX;
    size = size > sizeof(*last) + row ? size : sizeof(*last) + row;
    size = (size + 7) / 8 * 8; /* as the arena does */
    struct sent_chunk *chunk = take(s, size);
    if (chunk != NULL) {
        chunk->before = last;
        atomic_init(&chunk->n, 0);
        chunk->size = chunk->items = (uint16_t)size;
    }
    return chunk;
}

int staged_add_delivery(struct staged *s, struct staged_user *user, const struct store_item *item, int64_t at_ms,
                        uint64_t id)
{
    const bool grouped = item->group != 0;
    const size_t len = 1 + item->id.len + (grouped ? sizeof item->group : 0);
    if (!staged_fits(s, id, month_of_ms(at_ms))) {
        return ERR_RANGE;
    }
    struct sent_at last = sent_begin(user);
    struct sent_chunk *chunk = sent_room(s, last.chunk, len);
    if (chunk == NULL) {
        return ERR_NOMEM;
    }
    const size_t n = atomic_load_explicit(&chunk->n, memory_order_relaxed);
    struct sent *sent = &chunk->rows[n];
    chunk->items = (uint16_t)(chunk->items - len);
    sent->hash = item->hash;
    sent->grouped = grouped;
    sent->at_ms = at_ms;
    sent->id = (uint32_t)(id - s->first_id);
    atomic_init(&sent->item, chunk->items);
    uint8_t *bytes = (uint8_t *)chunk + chunk->items;
    bytes[0] = (uint8_t)item->id.len;
    memcpy(bytes + 1, item->id.data, item->id.len);
    if (grouped) {
        memcpy(bytes + 1 + item->id.len, &item->group, sizeof item->group);
    }
    const struct sent *before = sent_next(&last);
    if (before != NULL && sent_stamp(s, before) > sent_stamp(s, sent)) {
        atomic_store_explicit(&user->unordered, true, memory_order_relaxed);
    }
    atomic_store_explicit(&chunk->n, (uint16_t)(n + 1), memory_order_release);
    if (n == 0) {
        atomic_store_explicit(&user->sent, chunk, memory_order_release);
    }
    row_added(s, user);
    return 0;
}

/* --- forgetting --- */

void staged_ids_free(struct staged_ids *ids)
{
    free(ids->at);
    *ids = (struct staged_ids){0};
}

int staged_ids_add(struct staged_ids *ids, uint64_t id)
{
    int rc = staged_grow(&ids->at, &ids->cap, ids->n + 1, sizeof(ids->at[0]));
    if (rc == 0) {
        ids->at[ids->n++] = id;
    }
    return rc;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Ends a find that appended what stands behind `before`. */
static int found(struct staged_ids *ids, size_t before, int rc)
{
    if (rc != 0) {
        ids->n = before;
        return rc;
    }
    if (ids->n == before) {
        return 0;
    }
    qsort(ids->at + before, ids->n - before, sizeof(ids->at[0]), by_number);
    return 1;
}

int staged_find_user(const struct staged *s, int64_t key, struct slice id, struct staged_ids *ids)
{
    const struct staged_user *user = staged_find(s, key, id);
    if (user == NULL) {
        return 0;
    }
    size_t before = ids->n;
    int rc = 0;
    struct plays_at at = plays_begin(user);
    for (struct play *play; rc == 0 && (play = plays_next(&at)) != NULL;) {
        if (play_live(play)) {
            rc = staged_ids_add(ids, s->first_id + play->id);
        }
    }
    struct sent_at last = sent_begin(user);
    for (struct sent *sent; rc == 0 && (sent = sent_next(&last)) != NULL;) {
        if (sent_live(sent)) {
            rc = staged_ids_add(ids, s->first_id + sent->id);
        }
    }
    return found(ids, before, rc);
}

/* A hash that is asked for, and which one it is: sorted, so that many are found in a giant's plays in time. */
struct wanted {
    uint64_t hash;
    size_t i;
};

static int by_hash(const void *a, const void *b)
{
    const struct wanted *x = a;
    const struct wanted *y = b;
    return (x->hash > y->hash) - (x->hash < y->hash);
}

/* Whether the hash is wanted; if the row makes it count as seen, it's marked wherever it was asked for. */
static bool is_wanted(const struct wanted *wanted, size_t n, uint64_t hash, bool counts, bool *seen)
{
    size_t low = 0;
    for (size_t high = n; low < high;) {
        size_t mid = low + (high - low) / 2;
        if (wanted[mid].hash < hash) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    bool is = low < n && wanted[low].hash == hash;
    for (; counts && low < n && wanted[low].hash == hash; low++) {
        seen[wanted[low].i] = true;
    }
    return is;
}

int staged_find_items(const struct staged *s, int64_t key, struct slice id, const uint64_t *hashes, size_t n,
                      int first_month, uint64_t cut, bool *seen, struct staged_ids *ids)
{
    const struct staged_user *user = staged_find(s, key, id);
    if (user == NULL || n == 0) {
        return 0;
    }
    struct wanted *wanted = malloc(n * sizeof(*wanted));
    if (wanted == NULL) {
        return ERR_NOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        wanted[i] = (struct wanted){hashes[i], i};
    }
    qsort(wanted, n, sizeof(*wanted), by_hash);
    size_t before = ids->n;
    int rc = 0;
    struct plays_at at = plays_begin(user);
    for (struct play *play; rc == 0 && (play = plays_next(&at)) != NULL;) {
        if (play_live(play) && is_wanted(wanted, n, play->hash, play->month >= first_month, seen)) {
            rc = staged_ids_add(ids, s->first_id + play->id);
        }
    }
    struct sent_at last = sent_begin(user);
    for (struct sent *sent; rc == 0 && (sent = sent_next(&last)) != NULL;) {
        uint64_t row = s->first_id + sent->id;
        if (sent_live(sent) && (is_wanted(wanted, n, sent->hash, true, seen) || sent_stamp(s, sent) < cut)) {
            rc = staged_ids_add(ids, row);
        }
    }
    free(wanted);
    return found(ids, before, rc);
}

static void row_dropped(struct staged *s, struct staged_user *user)
{
    uint32_t live = atomic_load_explicit(&user->live, memory_order_relaxed);
    atomic_store_explicit(&user->live, live - 1, memory_order_relaxed);
    count(&s->users, live == 1 ? -1 : 0);
    count(&s->rows, -1);
}

/* ids NULL: all of them. */
static bool is_dropped(uint64_t row, const uint64_t *ids, size_t n, uint64_t from)
{
    return ids == NULL ? row >= from : bsearch(&row, ids, n, sizeof(row), by_number) != NULL;
}

/* ids NULL: all from that one on. */
static void drop(struct staged *s, int64_t key, struct slice id, const uint64_t *ids, size_t n, uint64_t from)
{
    struct staged_user *user = staged_find(s, key, id);
    if (user == NULL) {
        return;
    }
    struct plays_at at = plays_begin(user);
    for (struct play *play; (play = plays_next(&at)) != NULL;) {
        uint64_t row = s->first_id + play->id;
        if (play_live(play) && is_dropped(row, ids, n, from)) {
            atomic_store_explicit(&play->dead, 1, memory_order_relaxed);
            row_dropped(s, user);
        }
    }
    struct sent_at last = sent_begin(user);
    for (struct sent *sent; (sent = sent_next(&last)) != NULL;) {
        uint64_t row = s->first_id + sent->id;
        if (sent_live(sent) && is_dropped(row, ids, n, from)) {
            atomic_store_explicit(&sent->item, 0, memory_order_relaxed);
            row_dropped(s, user);
        }
    }
}

void staged_drop_user(struct staged *s, int64_t key, struct slice id)
{
    drop(s, key, id, NULL, 0, 0);
}

void staged_drop_from(struct staged *s, int64_t key, struct slice id, uint64_t from)
{
    drop(s, key, id, NULL, 0, from);
}

void staged_drop_rows(struct staged *s, int64_t key, struct slice id, const uint64_t *ids, size_t n)
{
    if (n > 0) {
        drop(s, key, id, ids, n, 0);
    }
}
