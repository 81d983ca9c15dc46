/* Anything as the keys and values of an object in a pool of Ceph: an error, or an answer that leaves out no play. Then
 * the user goes through all that changes one: nothing that was hidden is shown by a merge, and a forget always ends it.
 *
 * An input is a byte that says which object (a user's, meta, a piece of the nightly walk), and pairs: length of the key
 * (1 byte), of the value (2, little endian), key, value. */
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "filter/filter.h"
#include "fuzz.h"
#include "store/rados/layout.h"
#include "store/rados/merge.h"
#include "store/rados/meta.h"
#include "store/rados/night.h"
#include "tests/lib/load_wait.h"
#include "tests/lib/memory_pool.h"

#define START INT64_C(1795255200000)
#define USER "u"
enum { SEED = 7, PAIRS_MAX = 512, MEMORY = 64 << 20 };

static struct config cfg;
static struct memory_pool *pool;
static struct store *store;
static struct store_reader *reader;
static int first_kept;

static struct slice keys[PAIRS_MAX], values[PAIRS_MAX];
static size_t n_pairs;

static void end(void)
{
    store->ops->reader_close(reader);
    store->ops->close(store);
    memory_pool_free(pool);
}

static void begin(void)
{
    struct err err = {0};
    log_set_level((enum log_level) - 1);
    clock_test_start(START);
    calendar_set_zone("UTC");
    config_defaults(&cfg);
    cfg.hash_seed_given = true;
    cfg.hash_seed = SEED;
    cfg.rados_memory = MEMORY;
    snprintf(cfg.rados_pool, sizeof cfg.rados_pool, "fuzz");
    pool = memory_pool_new("fuzz");
    CHECK(rados_store_init(&cfg, &memory_pool_ops, &err) == 1);
    CHECK(rados_store_open(&cfg, &(struct rados_store_options){.ops = &memory_pool_ops}, &store, &err) == 0);
    CHECK(store->ops->reader_open(store, &reader, &err) == 0);
    first_kept = guarded_clock_first_kept(&rados_of(store)->clock);
    CHECK(first_kept > 0);
    CHECK(atexit(end) == 0);
}

static void read_pairs(const uint8_t *data, size_t size)
{
    n_pairs = 0;
    while (size >= 3 && n_pairs < PAIRS_MAX) {
        size_t key = data[0], value = (size_t)data[1] | (size_t)data[2] << 8;
        if (key == 0 || key + value > size - 3) {
            break;
        }
        keys[n_pairs] = slice_of((const char *)data + 3, key);
        values[n_pairs++] = slice_of((const char *)data + 3 + key, value);
        data += 3 + key + value;
        size -= 3 + key + value;
    }
}

/* Of equal keys the last counts. */
static bool is_last(size_t i)
{
    for (size_t j = i + 1; j < n_pairs; j++) {
        if (slice_eq(keys[i], keys[j])) {
            return false;
        }
    }
    return true;
}

static void put_pairs(const char *object)
{
    memory_pool_drop(pool, object);
    for (size_t i = 0; i < n_pairs; i++) {
        memory_pool_put_pairs(pool, object, &(struct cluster_pair){keys[i], values[i]}, 1);
    }
}

/* --- calls --- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;

static void tell(int *flag)
{
    pthread_mutex_lock(&mutex);
    *flag = 1;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&mutex);
}

static void wait_for(int *flag)
{
    pthread_mutex_lock(&mutex);
    while (!*flag) {
        pthread_cond_wait(&wake, &mutex);
    }
    pthread_mutex_unlock(&mutex);
}

static int64_t user_key(void)
{
    return hash_user_key(SEED, slice_str(USER));
}

static int load_user(struct store_view *view)
{
    struct err err = {0};
    int code = store_load_wait(store, reader, user_key(), slice_str(USER), INT_MIN, view, &err);
    CHECK(code == 0 || ((code == ERR_CORRUPT || code == ERR_LARGE) && err.text[0] != '\0'));
    return code;
}

static void on_merged(void *arg, const struct merge_outcome *outcome)
{
    (void)outcome;
    tell(arg);
}

static void merge(bool night)
{
    int done = 0;
    CHECK(merge_start(rados_of(store), user_key(), slice_str(USER), night, on_merged, &done) == 0);
    wait_for(&done);
}

static void on_batch(struct store_batch *batch)
{
    tell(batch->owner);
}

static int record(enum store_time time)
{
    int done = 0;
    struct store_batch batch = {.done = on_batch, .owner = &done};
    struct slice item = slice_str("item");
    uint64_t hash = hash_id(SEED, item);
    CHECK(store_batch_add(&batch, STORE_PLAY, START, time, user_key(), slice_str(USER), &item, &hash, 1) == 0);
    store->ops->record(store, &batch);
    wait_for(&done);
    buf_free(&batch.bytes);
    return batch.err.code;
}

static void on_forgotten(struct store_forget *forget)
{
    tell(forget->owner);
}

static int forget(size_t n_items)
{
    int done = 0;
    struct slice item = slice_str("item");
    uint64_t hash = hash_id(SEED, item);
    struct store_forget f = {.key = user_key(),
                             .user = slice_str(USER),
                             .items = &item,
                             .hashes = &hash,
                             .n_items = n_items,
                             .first_month = INT_MIN,
                             .done = on_forgotten,
                             .owner = &done};
    store->ops->forget(store, &f);
    wait_for(&done);
    return f.err.code;
}

/* --- a user --- */

static bool is_hidden(const struct store_view *view, uint64_t hash)
{
    bool hidden = false;
    for (size_t i = 0; i < view->n_plays && !hidden; i++) {
        hidden = view->plays[i].hash == hash;
    }
    bool excepted = hash_is_among(view->exceptions, view->n_exceptions, hash);
    for (size_t i = 0; i < view->n_months && !hidden && !excepted; i++) {
        hidden = filter_has(&view->months[i].filter, hash);
    }
    return hidden;
}

/* Every play that is there is hidden; every filter is whole and in the view. */
static void check_view(const struct store_view *view, bool merged)
{
    struct arena arena = {0};
    uint64_t items = 0, found = 0;
    for (size_t i = 0; i < n_pairs; i++) {
        const struct layout_key key = layout_key_read(keys[i]);
        struct filter filter;
        if (!is_last(i) || key.month < first_kept) {
            continue;
        }
        CHECK(key.kind != LAYOUT_PLAY || is_hidden(view, key.hash));
        if (key.kind == LAYOUT_FILTER && !merged) {
            CHECK(filter_decode(values[i].data, values[i].len, &arena, &filter, NULL) == 0);
            items += filter_items(&filter);
        }
    }
    for (size_t i = 0; i < view->n_months; i++) {
        found += filter_items(&view->months[i].filter);
    }
    CHECK(merged || items == found);
    arena_free(&arena);
}

static void see_nothing(void *arg, const struct filter_part *part, uint32_t before, const uint32_t *positions,
                        uint32_t n)
{
    (void)arg, (void)part, (void)before, (void)positions, (void)n;
}

static void no_month(void *arg, int month, bool good)
{
    (void)arg, (void)month, (void)good;
}

static void try_user(void)
{
    const struct store_scan scan = {.see = see_nothing, .month = no_month};
    struct store_view view;
    struct err err = {0};
    put_pairs("u." USER);
    int code = load_user(&view);
    if (code == 0) {
        check_view(&view, false);
    }
    /* By prefixes, so a foreign key may be out of sight. */
    int scanned = store->ops->scan(reader, user_key(), slice_str(USER), INT_MIN, &scan, &view, &err);
    CHECK(scanned == 0 || (scanned == ERR_CORRUPT && err.text[0] != '\0'));
    CHECK(scanned == 0 || code != 0);
    cfg.on_damage = DAMAGE_ANSWER;
    CHECK(load_user(&view) != ERR_CORRUPT);
    cfg.on_damage = DAMAGE_ERROR;
    for (int night = 0; night <= 1; night++) {
        merge(night != 0);
        if (code == 0) {
            CHECK(load_user(&view) == 0);
            check_view(&view, true);
        }
    }
    int stated = record(STORE_STATED);
    CHECK(stated == 0 || stated == ERR_CORRUPT);
    CHECK(record(STORE_STAMPED) == 0);
    if (load_user(&view) == 0) {
        CHECK(is_hidden(&view, hash_id(SEED, slice_str("item"))));
    }
    int unseen = forget(1);
    CHECK(unseen == 0 || unseen == ERR_CORRUPT);
    if (unseen == 0 && load_user(&view) == 0) {
        CHECK(!is_hidden(&view, hash_id(SEED, slice_str("item"))));
    }
    CHECK(forget(0) == 0);
    CHECK(load_user(&view) == 0 && !view.known);
    CHECK(memory_pool_count(pool, "u." USER, "") == 2);
    store->ops->rest(reader);
}

/* --- other objects --- */

static void try_meta(void)
{
    const struct cluster_options to = {.pool = "meta"};
    struct memory_pool *other = memory_pool_new("meta"), *ours = pool;
    struct cluster *cluster;
    struct meta meta;
    struct err err = {0};
    pool = other;
    put_pairs(LAYOUT_META);
    pool = ours;
    CHECK(memory_pool_ops.connect(&to, &cluster, &err) == 0);
    int found = meta_read(&memory_pool_ops, cluster, &meta, &err);
    CHECK((found == 0 && n_pairs == 0) || found == 1 || (found == ERR_CORRUPT && err.text[0] != '\0'));
    CHECK(found != 1 || (meta.schema >= 1 && meta.error_rate > 0));
    if (found == 1) {
        meta_fits(&meta, &cfg, &err);
    }
    memory_pool_ops.disconnect(cluster);
    memory_pool_free(other);
}

static void try_night(void)
{
    struct night_piece piece;
    struct err err = {0};
    put_pairs("night.0");
    CHECK(night_piece_read(rados_of(store), 0, &piece, &err) == 0);
    CHECK(piece.n_months <= NIGHT_MONTHS && piece.day >= -1);
    for (size_t i = 1; i < piece.n_months; i++) {
        CHECK(piece.months[i].month > piece.months[i - 1].month);
    }
    night_piece_free(&piece);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (store == NULL) {
        begin();
    }
    if (size == 0) {
        return 0;
    }
    read_pairs(data + 1, size - 1);
    switch (data[0] % 3) {
    case 0:
        try_user();
        break;
    case 1:
        try_meta();
        break;
    default:
        try_night();
    }
    return 0;
}
