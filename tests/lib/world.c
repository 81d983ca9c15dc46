#include "tests/lib/world.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "store/ring.h"
#include "store/sqlite/sqlite_store.h"
#include "tests/lib/vfs_fault.h"

static void *need(void *memory)
{
    if (!memory) {
        fputs("out of memory\n", stderr);
        abort();
    }
    return memory;
}

void world_init(struct world *w, const char *folder, const char *vfs)
{
    memset(w, 0, sizeof *w);
    config_defaults(&w->cfg);
    snprintf(w->cfg.data, sizeof w->cfg.data, "%s", folder);
    w->cfg.min_free = 0;
    w->cfg.slot_length_ms = INT64_C(3600) * 1000; /* the scenarios advance by hours */
    /* Sealed months hide one item in some thousand: the same ones in every run. */
    w->cfg.hash_seed_given = true;
    w->cfg.hash_seed = UINT64_C(0x5eed5eed5eed5eed);
    snprintf(w->cfg.timezone, sizeof w->cfg.timezone, "UTC");
    calendar_set_zone(w->cfg.timezone);
    w->vfs = vfs;
    w->last = &w->first;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->cond, NULL);
}

int world_start(struct world *w, struct err *err)
{
    const struct sqlite_store_options options = {.vfs = w->vfs, .built_ms = w->built_ms};
    int rc = w->open != NULL ? w->open(w, err) : sqlite_store_open(&w->cfg, &options, &w->store, err);
    if (rc < 0) {
        w->store = NULL;
        return rc;
    }
    dedup_init(&w->dedup, w->store, &w->cfg);
    rc = asker_open(&w->dedup, &w->asker, err);
    if (rc < 0) {
        w->store->ops->close(w->store);
        w->store = NULL;
    }
    return rc;
}

void world_stop(struct world *w)
{
    if (w->store) {
        asker_close(w->asker);
        w->store->ops->close(w->store);
        w->store = NULL;
        world_wait(w, NULL, NULL);
    }
}

void world_crash(struct world *w)
{
    vfs_fault_freeze(true);
    vfs_fault_release();
    world_stop(w);
    vfs_fault_heal();
}

static void finish(struct world_op *op, const struct err *err, int64_t answer)
{
    struct world *w = op->world;
    op->err = *err;
    op->answer = answer;
    if (op->finished) {
        op->finished(op);
    }
    pthread_mutex_lock(&w->mutex);
    op->done = true;
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->mutex);
}

static void batch_done(struct store_batch *batch)
{
    finish(batch->owner, &batch->err, batch->rows);
}

static void forget_done(struct store_forget *forget)
{
    finish(forget->owner, &forget->err, forget->answer);
}

static void call_done(struct store_call *call)
{
    finish(call->owner, &call->err, 0);
}

static struct world_op *new_op(struct world *w, enum world_op_kind kind)
{
    struct world_op *op = need(calloc(1, sizeof *op));
    op->world = w;
    op->kind = kind;
    *w->last = op;
    w->last = &op->next;
    return op;
}

static uint64_t *hash_all(const struct world *w, const struct slice *items, size_t n)
{
    uint64_t *hashes = need(calloc(n + 1, sizeof *hashes));
    for (size_t i = 0; i < n; i++) {
        hashes[i] = hash_id(w->dedup.seed, items[i]);
    }
    return hashes;
}

struct world_op *world_record(struct world *w, const struct world_event *events, size_t n,
                              void (*finished)(struct world_op *op), void *arg)
{
    struct world_op *op = new_op(w, WORLD_RECORD);
    op->finished = finished;
    op->arg = arg;
    for (size_t i = 0; i < n; i++) {
        const struct world_event *e = &events[i];
        uint64_t *hashes = hash_all(w, e->items, e->n);
        if (store_batch_add(&op->batch, e->kind, e->at_ms, e->stated ? STORE_STATED : STORE_STAMPED,
                            hash_user_key(w->dedup.seed, e->user), e->user, e->items, hashes, e->n) < 0) {
            need(NULL);
        }
        free(hashes);
    }
    op->batch.owner = op;
    op->batch.done = batch_done;
    w->store->ops->record(w->store, &op->batch);
    return op;
}

static void merge_done(struct store_merge *merge)
{
    finish(merge->owner, &merge->err, merge->answer);
}

struct world_op *world_merge(struct world *w, struct slice from, struct slice into, bool forgets,
                             void (*finished)(struct world_op *op), void *arg)
{
    struct world_op *op = new_op(w, WORLD_MERGE);
    op->finished = finished;
    op->arg = arg;
    op->ids = need(malloc(from.len + into.len));
    op->merge = (struct store_merge){
        .from_key = hash_user_key(w->dedup.seed, from),
        .into_key = hash_user_key(w->dedup.seed, into),
        .from = slice_of(memcpy(op->ids, from.data, from.len), from.len),
        .into = slice_of(memcpy(op->ids + from.len, into.data, into.len), into.len),
        .forgets = forgets,
        .done = merge_done,
        .owner = op,
    };
    w->store->ops->merge(w->store, &op->merge);
    return op;
}

struct world_op *world_forget(struct world *w, struct slice user, const struct slice *items, size_t n,
                              void (*finished)(struct world_op *op), void *arg)
{
    struct world_op *op = new_op(w, WORLD_FORGET);
    op->finished = finished;
    op->arg = arg;
    size_t bytes = user.len;
    for (size_t i = 0; i < n; i++) {
        bytes += items[i].len;
    }
    char *at = op->ids = need(malloc(bytes + 1));
    op->items = need(calloc(n + 1, sizeof *op->items));
    for (size_t i = 0; i < n; i++) {
        op->items[i] = slice_of(memcpy(at, items[i].data, items[i].len), items[i].len);
        at += items[i].len;
    }
    op->hashes = hash_all(w, items, n);
    op->forget = (struct store_forget){
        .key = hash_user_key(w->dedup.seed, user),
        .user = slice_of(memcpy(at, user.data, user.len), user.len),
        .items = op->items,
        .hashes = op->hashes,
        .n_items = n,
        .first_month = dedup_first_month(&w->dedup),
        .done = forget_done,
        .owner = op,
    };
    w->store->ops->forget(w->store, &op->forget);
    return op;
}

struct world_op *world_flush(struct world *w)
{
    struct world_op *op = new_op(w, WORLD_CALL);
    op->call = (struct store_call){.done = call_done, .owner = op};
    w->store->ring->flush(w->store, &op->call);
    return op;
}

struct world_op *world_tick(struct world *w)
{
    struct world_op *op = new_op(w, WORLD_CALL);
    op->call = (struct store_call){.done = call_done, .owner = op};
    w->store->ops->tick(w->store, &op->call);
    return op;
}

int world_wait(struct world *w, int64_t *answer, struct err *err)
{
    struct err first = {0};
    int64_t last = 0;
    while (w->first) {
        struct world_op *op = w->first;
        pthread_mutex_lock(&w->mutex);
        while (!op->done) {
            pthread_cond_wait(&w->cond, &w->mutex);
        }
        pthread_mutex_unlock(&w->mutex);
        if (op->err.code < 0 && first.code == 0) {
            first = op->err;
        }
        last = op->answer;
        w->first = op->next;
        if (op->kind == WORLD_RECORD) {
            buf_free(&op->batch.bytes);
        }
        free(op->ids);
        free(op->items);
        free(op->hashes);
        free(op);
    }
    w->last = &w->first;
    if (answer) {
        *answer = last;
    }
    return first.code < 0 ? err_set(err, first.code, "%s", first.text) : 0;
}

/* One call alone: what was handed in before may well wait for the time to pass. */
static int alone(struct world *w, void (*start)(struct world *w, bool flag), bool flag, struct err *err)
{
    if (!w->store) {
        return 0;
    }
    struct world_op *first = w->first, **last = w->last;
    w->first = NULL;
    w->last = &w->first;
    start(w, flag);
    int rc = world_wait(w, NULL, err);
    if (first) {
        w->first = first;
        w->last = last;
    }
    return rc;
}

static void start_tick(struct world *w, bool flag)
{
    (void)flag;
    world_tick(w);
}

static int tick(struct world *w, struct err *err)
{
    return alone(w, start_tick, false, err);
}

static void start_change(struct world *w, bool set_back)
{
    struct world_op *op = new_op(w, WORLD_CALL);
    op->change = (struct store_clock_change){.call = {.done = call_done, .owner = op}, .set_back = set_back};
    w->store->ops->clock_change(w->store, &op->change);
}

int world_clock(struct world *w, bool set_back, struct err *err)
{
    return alone(w, start_change, set_back, err);
}

int world_advance(struct world *w, int64_t ms, struct err *err)
{
    clock_test_advance(ms);
    return tick(w, err);
}

int world_jump(struct world *w, int64_t ms, struct err *err)
{
    clock_test_jump(ms);
    return tick(w, err);
}

static void print_problem(void *arg, const char *problem)
{
    (void)arg;
    fprintf(stderr, "check: %s\n", problem);
}

int world_check(const struct world *w, struct err *err)
{
    return sqlite_check_folder(w->cfg.data, w->store != NULL, print_problem, NULL, NULL, err);
}

void world_remove_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    char path[1024];
    while (dir && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            unlink(path);
        }
    }
    if (dir) {
        closedir(dir);
    }
    rmdir(folder);
}
