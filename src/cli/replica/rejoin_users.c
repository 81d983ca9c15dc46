/* Users as a whole, by LOAD, which unites them with what is there. A forget of a user there since is heeded by LOAD
 * itself, and so is one that is known here. Of items LOAD knows nothing: what was un-seen there since, and is seen
 * here, would be seen again. So it is un-seen in the snapshot, too, unless it is surely newer: in a month behind the
 * forget. A filter doesn't know more. */
#include <stdlib.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "cli/replica/rejoin_impl.h"
#include "replica/replica.h"
#include "store/codec/user_snapshot.h"
#include "store/user/deliveries.h"

enum { PAGE_BYTES = 1024 * 1024, LOAD_MAX = 15 * 1024 * 1024 /* the server takes 16 MiB */ };

static int no_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory for a user");
}

/* --- what was un-seen there --- */

struct unseeing {
    struct rejoining *r;
    struct user_snapshot p;
    struct arena arena;
    struct delivered_codec codec;
    uint64_t *exceptions;
    size_t n_exceptions;
    struct buf deliveries, snapshot;
};

/* Whether it is known here as well, as it was then or later. */
static int is_known_here(struct rejoining *r, const struct tombstone *theirs, struct err *err)
{
    const uint64_t items[] = {TOMBSTONE_USER, theirs->item};
    for (size_t i = 0; i < sizeof items / sizeof *items; i++) {
        const struct tombstone before = {.key = theirs->key, .item = items[i] - 1};
        struct tombstone ours;
        int n = r->store->copy->tombstones(r->reader, &before, &ours, 1, err);
        if (n < 0) {
            return n;
        }
        if (n == 1 && ours.key == theirs->key && ours.item == items[i] && ours.at_ms >= theirs->at_ms) {
            return 1;
        }
    }
    return 0;
}

/* Whether the user has it in a month that began later. */
static int is_newer(struct unseeing *u, const struct tombstone *theirs, struct err *err)
{
    int month = month_of_ms(theirs->at_ms), result = 0;
    for (size_t i = 0; i < u->p.n_months && result == 0; i++) {
        struct filter filter;
        struct arena_mark mark = arena_mark(&u->arena);
        struct err why = {0};
        const struct snapshot_month *m = &u->p.months[i];
        if (m->month > month) {
            int rc = filter_decode(m->blob.data, m->blob.len, &u->arena, &filter, &why);
            result = rc == 0 ? filter_has(&filter, theirs->item) : rc == ERR_NOMEM ? no_memory(err) : 0;
        }
        arena_rewind(&u->arena, mark);
    }
    return result;
}

static int drop_deliveries(struct unseeing *u, const uint64_t *gone, size_t n_gone, struct err *err)
{
    const struct delivered_unseen unseen = {.hashes = gone, .n = n_gone};
    struct delivered theirs;
    if (u->p.deliveries.len == 0) {
        return 0;
    }
    uint64_t seed = u->r->store->ops->seed(u->r->store);
    int rc = delivered_unpack(&u->codec, u->p.deliveries.data, u->p.deliveries.len, seed, &u->arena, &theirs, err);
    if (rc < 0) {
        return err_prefix(err, "the deliveries of a user");
    }
    if (delivered_unsee(&theirs, &unseen) == 0) {
        return 0;
    }
    buf_clear(&u->deliveries);
    if (theirs.n > 0 && delivered_pack(&u->codec, &theirs, &u->deliveries) < 0) {
        return no_memory(err);
    }
    u->p.deliveries = theirs.n > 0 ? buf_slice(&u->deliveries) : slice_of(NULL, 0);
    return 0;
}

/* Their tombstones of the user's items that count: into gone, ascending. */
static int find_gone(struct unseeing *u, const struct tombstone *list, size_t n, uint64_t *gone, size_t *n_gone,
                     struct err *err)
{
    int rc = 0;
    *n_gone = 0;
    for (size_t i = 0; i < n && rc >= 0; i++) {
        if (list[i].item == TOMBSTONE_USER || (rc = is_known_here(u->r, &list[i], err)) != 0 ||
            (rc = is_newer(u, &list[i], err)) != 0) {
            continue;
        }
        gone[(*n_gone)++] = list[i].item;
    }
    *n_gone = hash_distinct(gone, *n_gone);
    return rc < 0 ? rc : 0;
}

static int unsee(struct unseeing *u, struct slice *snapshot, struct err *err)
{
    const struct tombstone *list = (const struct tombstone *)(const void *)u->r->theirs.of_key.data;
    size_t n = u->r->theirs.of_key.len / sizeof *list, n_gone;
    uint64_t *gone = arena_alloc(&u->arena, (n + u->p.n_exceptions) * 2 * sizeof *gone + 1);
    if (gone == NULL) {
        return no_memory(err);
    }
    int rc = find_gone(u, list, n, gone, &n_gone, err);
    if (rc < 0 || n_gone == 0 || (rc = drop_deliveries(u, gone, n_gone, err)) < 0) {
        return rc;
    }
    uint64_t *all = gone + n_gone;
    memcpy(all, gone, n_gone * sizeof *all);
    if (u->p.n_exceptions > 0) {
        memcpy(all + n_gone, u->p.exceptions, u->p.n_exceptions * sizeof *all);
    }
    u->p.exceptions = all;
    u->p.n_exceptions = hash_distinct(all, n_gone + u->p.n_exceptions);
    u->r->unseen += n_gone;
    buf_clear(&u->snapshot);
    if (user_snapshot_encode(&u->p, &u->snapshot) < 0) {
        return no_memory(err);
    }
    *snapshot = buf_slice(&u->snapshot);
    return 0;
}

/* --- sending --- */

static int load(struct rejoining *r, struct slice snapshot, struct err *err)
{
    struct buf old = {0};
    int rc = r->to.protocol < REPLICA_TIMES ? user_snapshot_without_times(&snapshot, &old, err) : 0;
    const struct slice words[] = {slice_str("LOAD"), snapshot};
    const struct reply *reply;
    int64_t verdict;
    if (rc == 0 && snapshot.len > LOAD_MAX) {
        rc = err_set(err, ERR_LARGE,
                     "a user has %zu bytes, more than a running server takes: export the folder with unseen export, "
                     "and load that into the stopped one",
                     snapshot.len);
    }
    rc = rc < 0 ? rc : other_node_call(&r->to, words, 2, &reply, err);
    buf_free(&old);
    if (rc < 0) {
        return rc;
    }
    if (reply->kind != REPLY_ARRAY || reply->n != 1 || !reply_integer(&reply->items[0], &verdict) ||
        verdict == IMPORT_CROWDED) {
        return err_set(err, ERR_INVALID, "%s could not take over a user by LOAD", r->address);
    }
    r->users++;
    r->dropped += verdict == IMPORT_OLD;
    return 0;
}

static int send_user(struct unseeing *u, struct slice snapshot, struct err *err)
{
    arena_reset(&u->arena);
    int rc = user_snapshot_decode(snapshot.data, snapshot.len, &u->arena, &u->p, err);
    rc = rc < 0 ? rc : rejoin_theirs_of(u->r, u->p.key, err);
    rc = rc < 0 || u->r->theirs.of_key.len == 0 ? rc : unsee(u, &snapshot, err);
    return rc < 0 ? rc : load(u->r, snapshot, err);
}

static void end(struct unseeing *u)
{
    arena_free(&u->arena);
    delivered_codec_free(&u->codec);
    buf_free(&u->deliveries);
    buf_free(&u->snapshot);
}

int rejoin_send_users(struct rejoining *r, struct err *err)
{
    struct store_copy_users page = {.from = INT64_MIN};
    struct unseeing u = {.r = r};
    struct buf bytes = {0};
    int rc = 0;
    rejoin_theirs_begin(r);
    while (rc == 0 && !page.ended) {
        buf_clear(&bytes);
        buf_clear(&page.ends);
        page.n = 0;
        rc = r->store->copy->users(r->reader, &page, &bytes, PAGE_BYTES, err);
        const size_t *ends = (const size_t *)(const void *)page.ends.data;
        for (size_t i = 0, from = 0; rc == 0 && i < page.n; from = ends[i++]) {
            rc = send_user(&u, slice_of(bytes.data + from, ends[i] - from), err);
        }
        page.from = page.next;
    }
    buf_free(&bytes);
    buf_free(&page.ends);
    end(&u);
    return rc < 0 ? rc : 0;
}

static int by_key(const void *a, const void *b)
{
    const struct rejoin_load *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

int rejoin_send_loads(struct rejoining *r, struct err *err)
{
    struct rejoin_load *list = (struct rejoin_load *)(void *)r->loads.data;
    size_t n = r->loads.len / sizeof *list;
    struct unseeing u = {.r = r};
    struct buf bytes = {0};
    int rc = 0;
    rejoin_theirs_begin(r);
    if (n > 0) {
        qsort(list, n, sizeof *list, by_key);
    }
    for (size_t i = 0; i < n && rc >= 0; i++) {
        if (i > 0 && slice_eq(list[i].user, list[i - 1].user)) {
            continue; /* as a whole once */
        }
        buf_clear(&bytes);
        rc = r->store->copy->user(r->reader, list[i].user, &bytes, err);
        rc = rc == 1 ? send_user(&u, buf_slice(&bytes), err) : rc;
    }
    buf_free(&bytes);
    end(&u);
    return rc < 0 ? rc : 0;
}
