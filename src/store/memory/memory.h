/* What the parts of the memory store share. */
#ifndef UNSEEN_STORE_MEMORY_MEMORY_H
#define UNSEEN_STORE_MEMORY_MEMORY_H

#include <pthread.h>

#include "store/guarded_clock.h"
#include "store/memory/memory_store.h"
#include "store/positions.h"
#include "store/stats.h"
#include "store/thread_queue.h"
#include "store/tombstones.h"
#include "store/user/deliveries.h"

/* A month's filter that was imported, as its blob. */
struct memory_month {
    int month;
    uint32_t len;
    uint8_t *blob;
};

struct memory_user {
    struct memory_user *next; /* in its bucket */
    int64_t key;
    bool known;
    int last_month; /* the newest of a play or delivery */

    struct store_play *plays; /* in any order; repeats go when the array is full */
    size_t n_plays, cap_plays;
    size_t promised; /* plays of the batch at hand that have room and are not there yet */

    struct store_delivery *deliveries; /* united; each item is an allocation of its own */
    size_t n_deliveries, cap_deliveries;
    size_t promised_deliveries;

    struct memory_month *months; /* newest first */
    size_t n_months;
    uint64_t *exceptions;
    size_t n_exceptions;
    int *damaged; /* months that came with a mark of damage; 0: the deliveries */
    size_t n_damaged;

    uint8_t len;
    char name[];
};

struct memory_store {
    struct store base;
    const struct config *cfg; /* read through config_now() */
    uint64_t seed;
    bool later;
    struct thread_queue queue;
    struct position_set *positions;
    struct tombstones *tombstones;

    struct guarded_clock clock;

    pthread_cond_t loaded;
    pthread_mutex_t mutex; /* all below */
    struct memory_user **buckets;
    size_t n_buckets, n_users;
    uint64_t subs; /* deliveries, from the first on */
    size_t bytes;
    struct store_stats stats;

    /* The thread's own, for imports. */
    struct arena arena;
    struct delivered_codec codec;
    struct delivered united; /* of one user */
    int64_t expired_mono_ms;
};

static inline struct memory_store *memory_of(struct store *base)
{
    return (struct memory_store *)base;
}

/* --- memory_clock.c: the guarded clock; nothing is kept over a restart --- */

void memory_now(struct store *base, int64_t *later, int64_t *earlier);
int memory_time_known(struct store *base, struct err *err);
void memory_clock(struct store *base, struct store_clock *out);
int memory_clock_work(struct memory_store *s, struct store_clock_change *change);
int memory_first_kept(struct memory_store *s); /* the oldest month within the retention; INT_MIN while in doubt */

/* --- memory_users.c: what is kept; the mutex is held --- */

/* realloc() that is counted. NULL: out of memory, or beyond staging_memory unless it must be. What is freed is resized
 * to 0. */
void *memory_resize(struct memory_store *s, void *old, size_t old_size, size_t size, bool must);
size_t memory_limit(const struct memory_store *s);
int memory_full(const struct memory_store *s, struct err *err); /* ERR_BUSY, and why */

struct memory_user *memory_find(const struct memory_store *s, int64_t key, struct slice name);
struct memory_user *memory_make(struct memory_store *s, int64_t key, struct slice name); /* or finds; NULL: no memory */
void memory_drop(struct memory_store *s, struct memory_user *user);

/* Room for so many more plays; they are promised until memory_add_play(). */
int memory_promise_plays(struct memory_store *s, struct memory_user *u, size_t n);
void memory_add_play(struct memory_store *s, struct memory_user *u, uint64_t hash, int month);
void memory_drop_delivery(struct memory_store *s, struct memory_user *u, size_t i);
bool memory_filtered(const struct memory_user *u, uint64_t hash, int first_month);
bool memory_excepted(const struct memory_user *u, uint64_t hash);

void memory_expire(struct memory_store *s);   /* locks by itself */
void memory_free_all(struct memory_store *s); /* at the end */

/* --- memory_write.c: batches and forgets; each locks by itself --- */

void memory_record(struct memory_store *s, struct store_batch *batch);
void memory_forget(struct memory_store *s, struct store_forget *forget);

/* --- memory_import.c: locks by itself --- */

void memory_import(struct memory_store *s, struct store_import *import);
/* A snapshot as another user than whom it was packed as; forgets of that one drop nothing. The verdict, or an error:
 * ERR_CONFLICT where a month is crowded. */
int memory_import_as(struct memory_store *s, struct slice bytes, int64_t key, struct slice user, struct err *err);

/* --- memory_merge.c: the same --- */

void memory_merge(struct memory_store *s, struct store_merge *merge);

/* --- memory_read.c --- */

int memory_reader_open(struct store *base, struct store_reader **reader, struct err *err);
void memory_reader_close(struct store_reader *reader);
int memory_load(struct store_reader *reader, struct store_load *load);
void memory_load_now(struct store_load *load); /* one that was put off, on the store's thread */
int memory_scan(struct store_reader *reader, int64_t key, struct slice user, int first_month,
                const struct store_scan *scan, struct store_view *view, struct err *err);

#endif
