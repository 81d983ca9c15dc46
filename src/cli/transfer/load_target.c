/* Snapshots are collected in batches. A batch for a folder is merged at once. For a server several are under way, so
 * that the next one is there when one is done. */
#include "cli/transfer/load_target.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "cli/lib/data_folder.h"
#include "cli/lib/pipeline.h"
#include "cli/lib/store_wait.h"
#include "store/codec/user_snapshot.h"
#include "store/rados/rados_store.h"
#include "store/ring.h"
#include "store/sqlite/sqlite_store.h"

enum {
    BATCH_SNAPSHOTS = 512,
    BATCH_BYTES = 1024 * 1024,
    BATCHES = 4,                    /* under way */
    REQUEST_MAX = 15 * 1024 * 1024, /* the server takes 16 MiB */
};

struct batch {
    struct buf bytes;
    size_t ends[BATCH_SNAPSHOTS];
    size_t n;
};

struct load_target {
    load_imported *imported;
    void *arg;
    struct store *store; /* or */
    struct pipeline *pipeline;
    struct batch batches[BATCHES];
    size_t filling; /* the one that is not under way */
    struct slice words[1 + BATCH_SNAPSHOTS];
    uint8_t verdicts[BATCH_SNAPSHOTS];
    char address[CONFIG_TEXT + 16]; /* the server's */
    uint64_t seed;                  /* of the file */
    bool ring;                      /* the server keeps one, to be flushed before */
    bool times;                     /* it knows times of deliveries, as none of 0.1.0 does */
    struct buf untimed;
};

/* --- opening --- */

static int open_folder(struct load_target *t, struct config *cfg, bool begin_new, uint64_t seed, struct err *err)
{
    if (cfg->hash_seed_given && cfg->hash_seed != seed) {
        return err_set(err, ERR_SEED, "hash_seed of the configuration is not the seed of the file");
    }
    cfg->hash_seed = seed;
    cfg->hash_seed_given = true;
    int rc = data_folder_open(cfg, "load", begin_new, &t->store, err);
    if (rc == ERR_SEED) {
        return err_set(err, ERR_SEED,
                       "the folder %s has plays hashed with another seed than the file's (fingerprint %08" PRIx32
                       "): only a folder without plays can adopt it",
                       cfg->data, hash_seed_fingerprint(seed));
    }
    if (rc < 0) {
        return rc;
    }
    return store_wait_flush(t->store, err);
}

/* A pool that isn't ready for plays is made so, with the file's seed: a new one adopts it, as a new folder does. Nodes
 * may have the seed of one that is ready, so that one is never given another. */
static int open_pool(struct load_target *t, struct config *cfg, uint64_t seed, struct err *err)
{
    if (cfg->hash_seed_given && cfg->hash_seed != seed) {
        return err_set(err, ERR_SEED, "hash_seed of the configuration is not the seed of the file");
    }
    cfg->hash_seed = seed;
    cfg->hash_seed_given = true;
    const struct rados_store_options loads = {.use = RADOS_LOADS};
    int rc = rados_store_init(cfg, NULL, err);
    rc = rc < 0 ? rc : rados_store_open(cfg, &loads, &t->store, err);
    if (rc == ERR_SEED) {
        return err_set(err, ERR_SEED,
                       "the pool %s was made ready with another seed than the file's (fingerprint %08" PRIx32
                       "): load into a new pool, which adopts it",
                       cfg->rados_pool, hash_seed_fingerprint(seed));
    }
    return rc;
}

/* From INFO: the server's fingerprint, whether it has a ring, and which users it reads. */
static int meet(void *arg, struct client *client, struct err *err)
{
    struct load_target *t = arg;
    const struct slice words[] = {slice_str("INFO")};
    const struct reply *reply;
    int rc = client_call(client, words, 1, &reply, err);
    if (rc < 0) {
        return rc;
    }
    static const char name[] = "seed_fingerprint:", ring[] = "ring_turn:", parcels[] = "\r\nparcel_version:";
    const char *at =
        reply->kind == REPLY_TEXT ? memmem(reply->text.data, reply->text.len, name, sizeof name - 1) : NULL;
    uint32_t theirs = 0;
    char text[9] = "";
    if (at == NULL || (size_t)(reply->text.data + reply->text.len - at) < sizeof name - 1 + 8) {
        return err_set(err, ERR_INVALID, "%s is no Unseen server: INFO has no seed_fingerprint",
                       client_address(client));
    }
    t->ring = memmem(reply->text.data, reply->text.len, ring, sizeof ring - 1) != NULL;
    t->times = memmem(reply->text.data, reply->text.len, parcels, sizeof parcels - 1) != NULL; /* 5 was the first */
    memcpy(text, at + sizeof name - 1, 8);
    if (sscanf(text, "%8" SCNx32, &theirs) != 1 || theirs != hash_seed_fingerprint(t->seed)) {
        return err_set(err, ERR_SEED,
                       "the server at %s hashes with another seed (fingerprint %08" PRIx32 ", the file's is %08" PRIx32
                       "): without plays its folder can adopt the file's, when it is stopped",
                       client_address(client), theirs, hash_seed_fingerprint(t->seed));
    }
    return 0;
}

static int open_server(struct load_target *t, const struct config *cfg, struct progress *progress, struct err *err)
{
    struct pipeline_how how = {
        .address = t->address, .meet = meet, .arg = t, .label = progress != NULL ? "load" : NULL, .progress = progress};
    const struct slice words[] = {slice_str("RING"), slice_str("FLUSH")};
    const struct reply *reply;
    int rc = client_prepare(cfg, &how.password, err);
    if (rc < 0 || (rc = pipeline_open(&how, &t->pipeline, err)) < 0 || !t->ring) {
        return rc;
    }
    return pipeline_call(t->pipeline, words, 2, &reply, err);
}

int load_target_open(struct config *cfg, const char *to, bool begin_new, uint64_t seed, load_imported *imported,
                     void *arg, struct progress *progress, struct load_target **target, struct err *err)
{
    struct load_target *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    t->imported = imported;
    t->arg = arg;
    t->words[0] = slice_str("LOAD");
    t->seed = seed;
    snprintf(t->address, sizeof t->address, "%s", to != NULL ? to : "");
    int rc = to != NULL                         ? open_server(t, cfg, progress, err)
             : cfg->store == STORE_ENGINE_RADOS ? open_pool(t, cfg, seed, err)
                                                : open_folder(t, cfg, begin_new, seed, err);
    if (to == NULL && rc == ERR_LOCKED && sqlite_store_address(cfg->data, t->address, sizeof t->address, NULL) == 0 &&
        t->address[0] != '\0') {
        rc = open_server(t, cfg, progress, err);
    }
    if (rc < 0) {
        load_target_close(t);
        return rc;
    }
    *target = t;
    return 0;
}

/* --- batches --- */

/* The snapshots as words behind LOAD. */
static void list_words(struct load_target *t, const struct batch *b)
{
    size_t from = 0;
    for (size_t i = 0; i < b->n; i++) {
        t->words[1 + i] = slice_of(b->bytes.data + from, b->ends[i] - from);
        from = b->ends[i];
    }
}

static void tell(struct load_target *t, struct batch *b)
{
    list_words(t, b);
    for (size_t i = 0; i < b->n; i++) {
        t->imported(t->arg, t->words[1 + i], t->verdicts[i]);
    }
    buf_clear(&b->bytes);
    buf_shrink(&b->bytes, 2 * BATCH_BYTES);
    b->n = 0;
}

/* Reads the answer to one of the batches. */
static int collect(struct load_target *t, struct err *err)
{
    struct pipeline_note note;
    const struct reply *reply;
    int rc = pipeline_answer(t->pipeline, &note, &reply, err);
    if (rc < 0) {
        return rc;
    }
    struct batch *b = &t->batches[note.n];
    bool good = reply->kind == REPLY_ARRAY && reply->n == b->n;
    for (size_t i = 0; good && i < b->n; i++) {
        int64_t verdict;
        good = reply_integer(&reply->items[i], &verdict) && verdict >= 0 && verdict <= UINT8_MAX;
        t->verdicts[i] = good ? (uint8_t)verdict : 0;
    }
    if (!good) {
        return err_set(err, ERR_VERSION, "%s: the server's answer to LOAD can't be read: is it another version?",
                       pipeline_address(t->pipeline));
    }
    tell(t, b);
    return 0;
}

static int import_folder(struct load_target *t, struct batch *b, struct err *err)
{
    int rc = store_wait_import(t->store, t->words + 1, b->n, t->verdicts, err);
    if (rc == 0) {
        tell(t, b);
    }
    return rc;
}

static int send_batch(struct load_target *t, struct err *err)
{
    struct batch *b = &t->batches[t->filling];
    if (b->n == 0) {
        return 0;
    }
    list_words(t, b);
    if (t->store != NULL) {
        return import_folder(t, b, err);
    }
    int rc = pipeline_send(t->pipeline, t->words, 1 + b->n, &(struct pipeline_note){.n = t->filling}, err);
    while (rc == 0 && pipeline_length(t->pipeline) == BATCHES) {
        rc = collect(t, err);
    }
    for (size_t i = 0; i < BATCHES; i++) { /* one that is under way holds snapshots */
        t->filling = t->batches[i].n == 0 ? i : t->filling;
    }
    return rc;
}

int load_target_add(struct load_target *t, struct slice snapshot, struct err *err)
{
    struct batch *b = &t->batches[t->filling];
    buf_clear(&t->untimed);
    if (t->pipeline != NULL && !t->times && user_snapshot_without_times(&snapshot, &t->untimed, err) < 0) {
        return err->code;
    }
    if (t->pipeline != NULL && snapshot.len > REQUEST_MAX) {
        return err_set(err, ERR_INVALID,
                       "a user has %zu bytes, more than a running server takes: stop it and load into the folder",
                       snapshot.len);
    }
    if (b->n > 0 && (b->n == BATCH_SNAPSHOTS || b->bytes.len + snapshot.len > BATCH_BYTES)) {
        int rc = send_batch(t, err);
        if (rc < 0) {
            return rc;
        }
        b = &t->batches[t->filling];
    }
    if (buf_add(&b->bytes, snapshot.data, snapshot.len) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    b->ends[b->n++] = b->bytes.len;
    return 0;
}

int load_target_end(struct load_target *t, struct err *err)
{
    int rc = send_batch(t, err);
    while (rc == 0 && t->pipeline != NULL && pipeline_length(t->pipeline) > 0) {
        rc = collect(t, err);
    }
    return rc;
}

void load_target_close(struct load_target *t)
{
    if (t == NULL) {
        return;
    }
    if (t->store != NULL) {
        t->store->ops->close(t->store);
    }
    pipeline_close(t->pipeline);
    buf_free(&t->untimed);
    for (size_t i = 0; i < BATCHES; i++) {
        buf_free(&t->batches[i].bytes);
    }
    free(t);
}
