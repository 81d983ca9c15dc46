/* Snapshots are collected in batches. A batch for a folder is merged at once. For a server several are under way, so
 * that the next one is there when one is done. */
#include "cli/transfer/load_target.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "cli/lib/data_folder.h"
#include "cli/lib/store_wait.h"
#include "net/client.h"
#include "store/rados/rados_store.h"
#include "store/ring.h"
#include "store/sqlite/sqlite_store.h"

enum {
    BATCH_SNAPSHOTS = 512,
    BATCH_BYTES = 1024 * 1024,
    BATCHES = 4,                    /* under way */
    REQUEST_MAX = 15 * 1024 * 1024, /* the server takes 16 MiB */
    PATIENCE_MS = 10 * 60 * 1000,   /* it may have to wait for its WAL to shrink */
    BUSY_STEP_MS = 100,
    LOADING_STEP_MS = 50,
    LOADING_TRIES = 5 * 60 * 1000 / LOADING_STEP_MS,
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
    struct client *client;
    struct batch batches[BATCHES];
    size_t oldest, n_sent; /* the one being filled comes behind them */
    struct slice words[1 + BATCH_SNAPSHOTS];
    uint8_t verdicts[BATCH_SNAPSHOTS];
    bool ring;          /* the server keeps one, to be flushed before */
    int64_t busy_since; /* the server has refused batches since then (ms); 0: it took the last one */
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

static int wait_for_answer(struct load_target *t, const struct reply **reply, struct err *err)
{
    int rc = client_wait(t->client, PATIENCE_MS, err);
    if (rc == 0) {
        rc = err_set(err, ERR_SYSTEM, "%s says nothing for %d minutes", client_address(t->client), PATIENCE_MS / 60000);
    }
    return rc < 0 ? rc : client_answer(t->client, reply, err);
}

static int call_server(struct load_target *t, const struct slice *words, size_t n, const struct reply **reply,
                       struct err *err)
{
    int rc = client_queue(t->client, words, n, err);
    return rc < 0 ? rc : wait_for_answer(t, reply, err);
}

/* The server's fingerprint, from INFO; and whether it has a ring. */
static int check_seed(struct load_target *t, const char *address, uint64_t seed, struct err *err)
{
    const struct slice words[] = {slice_str("INFO")};
    const struct reply *reply;
    int rc = call_server(t, words, 1, &reply, err);
    for (int i = 0; rc == ERR_LOADING && i < LOADING_TRIES; i++) {
        nanosleep(&(struct timespec){.tv_nsec = LOADING_STEP_MS * 1000 * 1000}, NULL);
        rc = call_server(t, words, 1, &reply, err);
    }
    if (rc < 0) {
        return rc;
    }
    static const char name[] = "seed_fingerprint:", ring[] = "ring_turn:";
    const char *at =
        reply->kind == REPLY_TEXT ? memmem(reply->text.data, reply->text.len, name, sizeof name - 1) : NULL;
    uint32_t theirs = 0;
    char text[9] = "";
    if (at == NULL || (size_t)(reply->text.data + reply->text.len - at) < sizeof name - 1 + 8) {
        return err_set(err, ERR_INVALID, "%s is no Unseen server: INFO has no seed_fingerprint", address);
    }
    t->ring = memmem(reply->text.data, reply->text.len, ring, sizeof ring - 1) != NULL;
    memcpy(text, at + sizeof name - 1, 8);
    if (sscanf(text, "%8" SCNx32, &theirs) != 1 || theirs != hash_seed_fingerprint(seed)) {
        return err_set(err, ERR_SEED,
                       "the server at %s hashes with another seed (fingerprint %08" PRIx32 ", the file's is %08" PRIx32
                       "): without plays its folder can adopt the file's, when it is stopped",
                       address, theirs, hash_seed_fingerprint(seed));
    }
    return 0;
}

static int open_server(struct load_target *t, const struct config *cfg, const char *address, uint64_t seed,
                       struct err *err)
{
    const char *password;
    const struct slice words[] = {slice_str("RING"), slice_str("FLUSH")};
    const struct reply *reply;
    int rc = client_prepare(cfg, &password, err);
    if (rc < 0 || (rc = client_connect(address, password, &t->client, err)) < 0 ||
        (rc = check_seed(t, address, seed, err)) < 0) {
        return rc;
    }
    return t->ring ? call_server(t, words, 2, &reply, err) : 0;
}

int load_target_open(struct config *cfg, const char *to, bool begin_new, uint64_t seed, load_imported *imported,
                     void *arg, struct load_target **target, struct err *err)
{
    struct load_target *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    t->imported = imported;
    t->arg = arg;
    t->words[0] = slice_str("LOAD");
    char address[CONFIG_TEXT + 16] = "";
    int rc = to != NULL                         ? open_server(t, cfg, to, seed, err)
             : cfg->store == STORE_ENGINE_RADOS ? open_pool(t, cfg, seed, err)
                                                : open_folder(t, cfg, begin_new, seed, err);
    if (to == NULL && rc == ERR_LOCKED && sqlite_store_address(cfg->data, address, sizeof address, NULL) == 0 &&
        address[0] != '\0') {
        rc = open_server(t, cfg, address, seed, err);
    }
    if (rc < 0) {
        load_target_close(t);
        return rc;
    }
    *target = t;
    return 0;
}

/* --- batches --- */

static struct batch *filling(struct load_target *t)
{
    return &t->batches[(t->oldest + t->n_sent) % BATCHES];
}

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

static bool is_busy(const struct reply *reply)
{
    return reply->kind == REPLY_ERROR && reply->text.len >= 5 && memcmp(reply->text.data, "BUSY ", 5) == 0;
}

/* The oldest batch, which was refused with *err, once more, behind those under way: as store_wait_import() does. */
static int send_again(struct load_target *t, struct err *err)
{
    int64_t now = clock_real_us() / 1000;
    if (t->busy_since == 0) {
        t->busy_since = now;
    } else if (now - t->busy_since >= PATIENCE_MS) {
        return err->code;
    }
    nanosleep(&(struct timespec){.tv_nsec = BUSY_STEP_MS * 1000 * 1000}, NULL);
    struct batch busy = t->batches[t->oldest];
    for (size_t i = 1; i < t->n_sent; i++) {
        t->batches[(t->oldest + i - 1) % BATCHES] = t->batches[(t->oldest + i) % BATCHES];
    }
    struct batch *last = &t->batches[(t->oldest + t->n_sent - 1) % BATCHES];
    *last = busy;
    list_words(t, last);
    return client_queue(t->client, t->words, 1 + last->n, err);
}

/* Reads the answer to the oldest batch: it is taken, or under way again. */
static int collect(struct load_target *t, struct err *err)
{
    struct batch *b = &t->batches[t->oldest];
    const struct reply *reply = NULL;
    int rc = wait_for_answer(t, &reply, err);
    if (rc < 0) {
        return reply != NULL && is_busy(reply) ? send_again(t, err) : rc;
    }
    t->busy_since = 0;
    bool good = reply->kind == REPLY_ARRAY && reply->n == b->n;
    for (size_t i = 0; good && i < b->n; i++) {
        int64_t verdict;
        good = reply_integer(&reply->items[i], &verdict) && verdict >= 0 && verdict <= UINT8_MAX;
        t->verdicts[i] = good ? (uint8_t)verdict : 0;
    }
    if (!good) {
        return err_set(err, ERR_VERSION, "%s: the server's answer to LOAD can't be read: is it another version?",
                       client_address(t->client));
    }
    t->oldest = (t->oldest + 1) % BATCHES;
    t->n_sent--;
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
    struct batch *b = filling(t);
    if (b->n == 0) {
        return 0;
    }
    list_words(t, b);
    if (t->store != NULL) {
        return import_folder(t, b, err);
    }
    int rc = client_queue(t->client, t->words, 1 + b->n, err);
    if (rc < 0) {
        return rc;
    }
    t->n_sent++;
    while (rc == 0 && t->n_sent == BATCHES) {
        rc = collect(t, err);
    }
    return rc;
}

int load_target_add(struct load_target *t, struct slice snapshot, struct err *err)
{
    struct batch *b = filling(t);
    if (t->client != NULL && snapshot.len > REQUEST_MAX) {
        return err_set(err, ERR_INVALID,
                       "a user has %zu bytes, more than a running server takes: stop it and load into the folder",
                       snapshot.len);
    }
    if (b->n > 0 && (b->n == BATCH_SNAPSHOTS || b->bytes.len + snapshot.len > BATCH_BYTES)) {
        int rc = send_batch(t, err);
        if (rc < 0) {
            return rc;
        }
        b = filling(t);
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
    while (rc == 0 && t->n_sent > 0) {
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
    if (t->client != NULL) {
        client_close(t->client);
    }
    for (size_t i = 0; i < BATCHES; i++) {
        buf_free(&t->batches[i].bytes);
    }
    free(t);
}
