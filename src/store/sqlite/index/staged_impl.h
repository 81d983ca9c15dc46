/* The staged index from the inside, for staged.c (the writer) and staged_read.c (the readers).
 *
 *   shard (by the top 8 bits of the key) -> open-addressing table -> user -> chunks of plays and of deliveries
 *
 * Everything lives in one arena, and nothing in it is ever moved or freed, only added to: so there is one writer, and
 * readers need no lock. Whatever a reader may follow is published by a release store after it is complete: a user's
 * cell in the table, a shard's grown table, a user's count of plays, their last chunk of deliveries and its count.
 * Readers load those with acquire. Outgrown tables stay (all of them together are smaller than the present one).
 *
 * A user's plays are a chain of chunks of 2, 4, 8, ... 1024, 1024, ...: adding is O(1), a user with one play pays for
 * two, one with a million nothing extra. Only the first n_plays are looked at, so that the `next` of the last chunk
 * isn't read while it is written. A dropped row is marked dead and stays.
 *
 * Deliveries are a chain of chunks, too, last added first: the newest, as long as times ascend. A chunk has rows from
 * its beginning on and their items' bytes from its end on, so that the last hundred, which each question reads, lie in
 * a few pieces of memory. Behind an item stands its group, if it has one. The first has room for two such items, each
 * other for half as much again as the one before it, up to 1 KiB: most users have few.
 */
#ifndef UNSEEN_STORE_SQLITE_INDEX_STAGED_IMPL_H
#define UNSEEN_STORE_SQLITE_INDEX_STAGED_IMPL_H

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "store/sqlite/index/staged.h"

enum {
    SHARD_BITS = 8,
    SHARDS = 1 << SHARD_BITS,
    CHUNK_MIN = 2,
    CHUNK_MAX = 1024,
    SENT_BYTES_MAX = 1024, /* of a chunk of deliveries */
};

struct play {
    uint64_t hash;
    uint32_t id; /* minus first_id */
    uint16_t month;
    _Atomic uint16_t dead;
};

struct chunk {
    struct chunk *next;
    struct play plays[]; /* chunk_after() of the one before */
};

struct sent {
    uint64_t hash;
    int64_t at_ms;
    uint32_t id;           /* minus first_id */
    _Atomic uint16_t item; /* where it stands in the chunk, a length byte and its bytes; 0: the row is dead */
    bool grouped;          /* then follow 8 bytes of its group */
};

struct sent_chunk {
    struct sent_chunk *before; /* NULL: none */
    _Atomic uint16_t n;        /* rows, dead ones too */
    uint16_t size;             /* bytes, with this head */
    uint16_t items;            /* the writer's: where those of rows begin */
    struct sent rows[];
};

struct staged_user {
    int64_t key;
    struct chunk *first;             /* set before n_plays becomes 1 */
    struct chunk *last;              /* the writer's */
    struct sent_chunk *_Atomic sent; /* the last */
    _Atomic uint32_t n_plays;        /* dead ones too */
    _Atomic uint32_t live;           /* rows of both kinds that aren't dead */
    uint16_t size, used;             /* the writer's: places in last */
    uint8_t len;
    _Atomic bool unordered; /* times of deliveries did not ascend; set before the first such one can be seen */
    char id[];
};

struct table {
    size_t mask;
    struct staged_user *_Atomic cells[]; /* mask + 1 */
};

struct shard {
    struct table *_Atomic table; /* NULL: no user yet */
    size_t users;                /* the writer's */
};

struct staged {
    uint64_t first_id;
    struct arena arena; /* the writer's */
    _Atomic uint64_t rows, taken, users, bytes;
    struct shard shards[SHARDS];
};

/* Shard order is signed key order. */
static inline unsigned shard_of(int64_t key)
{
    return (unsigned)(((uint64_t)key ^ (UINT64_C(1) << 63)) >> (64 - SHARD_BITS));
}

static inline uint32_t chunk_after(uint32_t size)
{
    return size < CHUNK_MAX ? size * 2 : CHUNK_MAX;
}

static inline bool user_is(const struct staged_user *user, int64_t key, struct slice id)
{
    return user->key == key && user->len == id.len && memcmp(user->id, id.data, id.len) == 0;
}

/* The users of a shard with this key, one after the other, NULL at the end. *at begins at key & mask. */
static inline struct staged_user *table_next(struct table *table, int64_t key, size_t *at)
{
    for (;;) {
        struct staged_user *user = atomic_load_explicit(&table->cells[*at], memory_order_acquire);
        *at = (*at + 1) & table->mask;
        if (user == NULL || user->key == key) {
            return user;
        }
    }
}

static inline struct staged_user *staged_find(const struct staged *s, int64_t key, struct slice id)
{
    struct table *table = atomic_load_explicit(&s->shards[shard_of(key)].table, memory_order_acquire);
    if (table == NULL) {
        return NULL;
    }
    size_t at = (size_t)key & table->mask;
    struct staged_user *user;
    do {
        user = table_next(table, key, &at);
    } while (user != NULL && !user_is(user, key, id));
    return user;
}

/* Walks the plays that a user has at the beginning of the walk, dead ones too. */
struct plays_at {
    struct chunk *chunk;
    uint32_t size, i, left;
};

static inline struct plays_at plays_begin(const struct staged_user *user)
{
    uint32_t n = atomic_load_explicit(&user->n_plays, memory_order_acquire);
    return (struct plays_at){n > 0 ? user->first : NULL, CHUNK_MIN, 0, n};
}

static inline struct play *plays_next(struct plays_at *at)
{
    if (at->left == 0) {
        return NULL;
    }
    if (at->i == at->size) {
        at->chunk = at->chunk->next;
        at->size = chunk_after(at->size);
        at->i = 0;
    }
    at->left--;
    return &at->chunk->plays[at->i++];
}

static inline bool play_live(struct play *play)
{
    return atomic_load_explicit(&play->dead, memory_order_relaxed) == 0;
}

/* Walks the deliveries that a user has at the beginning of the walk, last added first, dead ones too. */
struct sent_at {
    struct sent_chunk *chunk;
    size_t left;
};

static inline struct sent_at sent_begin(const struct staged_user *user)
{
    struct sent_chunk *chunk = atomic_load_explicit(&user->sent, memory_order_acquire);
    return (struct sent_at){chunk, chunk != NULL ? atomic_load_explicit(&chunk->n, memory_order_acquire) : 0};
}

static inline struct sent *sent_next(struct sent_at *at)
{
    if (at->left == 0) {
        at->chunk = at->chunk != NULL ? at->chunk->before : NULL;
        if (at->chunk == NULL) {
            return NULL;
        }
        at->left = atomic_load_explicit(&at->chunk->n, memory_order_relaxed);
    }
    return &at->chunk->rows[--at->left];
}

static inline uint64_t sent_stamp(const struct staged *s, const struct sent *sent)
{
    return delivered_stamp(sent->at_ms, s->first_id + sent->id);
}

static inline bool sent_live(const struct sent *sent)
{
    return atomic_load_explicit(&sent->item, memory_order_relaxed) != 0;
}

/* The item and group of the row that the walk is at; false: it is dead. */
static inline bool sent_item(const struct sent_at *at, struct store_item *out)
{
    const struct sent *row = &at->chunk->rows[at->left];
    const uint16_t where = atomic_load_explicit(&row->item, memory_order_relaxed);
    const uint8_t *bytes = (const uint8_t *)at->chunk + where;
    if (where == 0) {
        return false;
    }
    *out = (struct store_item){slice_of((const char *)bytes + 1, bytes[0]), row->hash, 0};
    if (row->grouped) {
        memcpy(&out->group, bytes + 1 + bytes[0], sizeof out->group);
    }
    return true;
}

/* Makes room for `need` entries in a growable array. Returns 0, or ERR_NOMEM with the array as it was. */
int staged_grow(void *array, size_t *cap, size_t need, size_t size);

#endif
