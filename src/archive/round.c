/* Rounds: all that a folder has, in parts, while it works and events go on.
 *
 * First the place is noted up to which events are archived, and then what is staged is flushed: so history has all
 * events up to there, which is each part's FROM. A part is read from history as it is then, and may know of any event
 * up to its TO, which is the newest one once it is read. A restore that takes a part and then does all events from FROM
 * on, in their order, has the state at any event behind TO, since of each item the last word counts.
 *
 * The first part has tombstones, positions and pools, the others users by their keys; the end is written last. */
#include "archive/archive_impl.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "archive/round_end.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/positions.h"
#include "store/ring.h"

enum { LIST_MAX = 1000, PAGE_BYTES = 256 * 1024, RATE_LOOK_MS = 250, LEAST_BYTES = 64 * 1024 * 1024 };
#define SPREAD_US (INT64_C(24) * 3600 * 1000 * 1000)

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory for a round of the archive");
}

/* Of the keys below it, from 0 to 1. */
static double key_part(int64_t key)
{
    return ((double)key - (double)INT64_MIN) / -2.0 / (double)INT64_MIN;
}

static void show(struct archive *a)
{
    const struct round *r = &a->round;
    bool ends = r->phase == ROUND_NONE;
    pthread_mutex_lock(&a->mutex);
    a->status.round = ends ? 0 : r->number;
    a->status.part = ends ? 0 : r->phase == ROUND_END ? 1 : r->phase == ROUND_USERS ? key_part(r->key) : 0;
    pthread_mutex_unlock(&a->mutex);
}

void archive_round_drop(struct archive *a)
{
    struct buf ends = a->round.ends, object = a->round.part.object;
    buf_clear(&ends);
    buf_free(&object);
    a->round = (struct round){.phase = ROUND_NONE, .ends = ends};
    show(a);
}

/* --- its beginning --- */

static void on_flushed(struct store_call *call)
{
    struct archive *a = call->owner;
    pthread_mutex_lock(&a->mutex);
    a->flushing = false;
    a->flushed = true;
    task_wake(&a->task);
    pthread_mutex_unlock(&a->mutex);
}

static bool is_due(const struct archive *a)
{
    int64_t every_ms = config_now(a->cfg)->archive_rounds_ms;
    uint64_t half = a->base_bytes / 2 > LEAST_BYTES ? a->base_bytes / 2 : LEAST_BYTES;
    return clock_wall_ms() - a->base_ms >= every_ms || a->since_bytes > half;
}

static bool is_wanted(struct archive *a)
{
    pthread_mutex_lock(&a->mutex);
    bool wanted = a->wanted;
    pthread_mutex_unlock(&a->mutex);
    return wanted;
}

static bool lacks_a_round(const struct archive *a)
{
    return a->lacks_to > a->base_from || a->purge_to > a->base_from + 1;
}

/* Users who are imported now wait for the end of that: else each of them would begin a round. */
static bool begins(struct archive *a, bool *spread)
{
    pthread_mutex_lock(&a->mutex);
    bool wanted = a->wanted, flushing = a->flushing; /* an earlier round's, which was dropped */
    pthread_mutex_unlock(&a->mutex);
    if (flushing || a->cursor + 1 < a->key_from) {
        return false;
    }
    bool lacks = lacks_a_round(a);
    *spread = !wanted && !lacks && a->base_ms != 0;
    return wanted || ((a->base_ms == 0 || lacks || is_due(a)) && a->users_in_a_row <= ARCHIVE_USERS_IN_A_ROW);
}

static int begin(struct archive *a, bool spread, struct err *err)
{
    struct round *r = &a->round;
    archive_round_drop(a);
    if (is_wanted(a)) {
        int rc = archive_mark(a, ARCHIVE_PURGE, a->cursor + 1, err);
        if (rc < 0) {
            return rc;
        }
        a->purge_to = a->cursor + 1;
    }
    pthread_mutex_lock(&a->mutex);
    a->wanted = a->flushed = false;
    a->flushing = true;
    pthread_mutex_unlock(&a->mutex);
    r->phase = ROUND_FLUSHING;
    uint64_t second = (uint64_t)clock_wall_ms() / 1000; /* a listing may come late: no number is used twice */
    r->number = second > a->last_round && second <= UINT32_MAX ? (uint32_t)second : a->last_round + 1;
    a->last_round = r->number;
    r->spread = spread;
    r->from = r->to = a->cursor; /* where a segment ends: all before it may go once the round has ended */
    r->key = INT64_MIN;
    r->begun_us = clock_mono_us();
    r->begun_real_us = clock_real_us();
    log_info("a round of the archive begins", "round=%" PRIu32 " from=%" PRIu64 " spread=%d", r->number, r->from,
             spread);
    a->flush = (struct store_call){.done = on_flushed, .owner = a};
    a->store->ring->flush(a->store, &a->flush);
    return 0;
}

/* 1: history has all up to `from`. */
static int look_at_flush(struct archive *a, struct err *err)
{
    pthread_mutex_lock(&a->mutex);
    bool flushed = a->flushed;
    pthread_mutex_unlock(&a->mutex);
    if (flushed && a->flush.err.code < 0) {
        *err = a->flush.err;
        archive_round_drop(a);
        return err->code;
    }
    return flushed;
}

/* --- its parts --- */

/* Makes one of a->records. */
static int make_part(struct archive *a, int64_t key_next, uint64_t users, struct err *err)
{
    struct round *r = &a->round;
    uint64_t to = a->store->feed->last(a->store);
    r->part.head = (struct object_head){.kind = OBJECT_SHARD,
                                        .from = r->from,
                                        .to = to,
                                        .covers = to,
                                        .first_ms = clock_wall_ms(),
                                        .last_ms = clock_wall_ms(),
                                        .round = r->number,
                                        .shard = r->shard,
                                        .key_from = r->key,
                                        .key_next = key_next,
                                        .n = users};
    const struct catalog_shard s = {a->self.node, r->number, r->shard, r->from, to, 0};
    catalog_shard_name(&s, r->part.name);
    return archive_seal(a, &r->part, err);
}

void archive_round_pass(struct round *r, const struct object_head *h, uint64_t bytes)
{
    r->to = h->to;
    r->shard++;
    r->bytes += bytes;
    r->phase = r->phase == ROUND_HEAD ? ROUND_USERS : h->key_next == INT64_MAX ? ROUND_END : ROUND_USERS;
    r->key = h->key_next;
}

/* What was made is there: the next one begins behind it. */
static int pass_part(struct archive *a, struct err *err)
{
    struct round *r = &a->round;
    const struct object_head *h = &r->part.head;
    const struct round_shard line = {r->shard, h->from, h->to, r->part.object.len,
                                     object_checksum(buf_slice(&r->part.object))};
    if (round_end_shard(&r->ends, &line) < 0) {
        return out_of_memory(err);
    }
    archive_round_pass(r, h, line.bytes);
    r->sent += line.bytes;
    pthread_mutex_lock(&a->mutex);
    a->status.shards++;
    a->status.shard_bytes += line.bytes;
    pthread_mutex_unlock(&a->mutex);
    return 0;
}

static int add_tombstones(struct archive *a, struct err *err)
{
    struct tombstone list[LIST_MAX], last;
    int n = LIST_MAX;
    for (bool first = true; n == LIST_MAX; first = false) {
        n = a->store->copy->tombstones(a->reader, first ? NULL : &last, list, LIST_MAX, err);
        buf_clear(&a->page);
        for (int i = 0; i < n; i++) {
            uint8_t row[24];
            object_put_number(row, (uint64_t)list[i].key);
            object_put_number(row + 8, list[i].item);
            object_put_number(row + 16, (uint64_t)list[i].at_ms);
            buf_add(&a->page, row, sizeof row);
        }
        if (n > 0) {
            last = list[n - 1];
            if (a->page.failed ||
                object_add(&a->records, RECORD_TOMBSTONES, buf_slice(&a->page), slice_of("", 0)) < 0) {
                return out_of_memory(err);
            }
        }
        heartbeat_now(&a->task.heartbeat);
    }
    return n < 0 ? n : 0;
}

static bool add_position(void *arg, const struct store_position *p)
{
    struct archive *a = arg;
    uint8_t next[8];
    object_put_number(next, (uint64_t)p->next);
    a->records.failed =
        object_add(&a->records, RECORD_POSITION, slice_of((const char *)next, sizeof next), p->source) < 0 ||
        a->records.failed;
    return !a->records.failed;
}

static int make_head(struct archive *a, struct err *err)
{
    buf_clear(&a->records);
    int rc = add_tombstones(a, err);
    rc = rc < 0 ? rc : copy_positions_each(a->store, a->reader, slice_of("", 0), add_position, a, err);
    rc = rc < 0 ? rc : archive_add_pools(a, &a->records, err);
    return rc < 0 ? rc : make_part(a, INT64_MIN, 0, err);
}

static int make_users(struct archive *a, struct err *err)
{
    struct store_copy_users page = {.from = a->round.key, .next = a->round.key};
    uint64_t users = 0;
    buf_clear(&a->records);
    int rc = 0;
    size_t part_bytes = archive_part_bytes(), page_bytes = part_bytes < PAGE_BYTES ? part_bytes : PAGE_BYTES;
    while (rc == 0 && !page.ended && a->records.len < part_bytes) {
        page.from = page.next;
        buf_clear(&a->page);
        heartbeat_excuse(&a->task.heartbeat); /* a disk that is slow */
        rc = a->store->copy->users(a->reader, &page, &a->page, page_bytes, err);
        heartbeat_now(&a->task.heartbeat);
        for (size_t i = 0, from = 0, end; rc >= 0 && i < page.n; i++, from = end) {
            memcpy(&end, page.ends.data + i * sizeof end, sizeof end);
            if (object_add(&a->records, RECORD_USER, slice_of(a->page.data + from, end - from), slice_of("", 0)) < 0) {
                rc = out_of_memory(err);
            }
        }
        rc = rc < 0 ? rc : 0;
        users += page.n;
    }
    buf_free(&page.ends);
    buf_shrink(&a->page, 4 * PAGE_BYTES);
    return rc < 0 ? rc : make_part(a, page.ended ? INT64_MAX : page.next, users, err);
}

/* --- its end --- */

struct origin {
    uint64_t node, seq;
};

static bool find_origin(void *arg, const struct store_position *p)
{
    struct origin *o = arg;
    char text[NODE_TEXT];
    size_t n = strlen(ARCHIVE_FROM);
    snprintf(text, sizeof text, "%.*s", (int)(p->source.len - n), p->source.data + n);
    if (sscanf(text, "%16" SCNx64, &o->node) == 1) {
        o->seq = (uint64_t)p->next;
    }
    return true;
}

static int make_end(struct archive *a, struct err *err)
{
    struct round *r = &a->round;
    const struct config *live = config_now(a->cfg);
    struct origin origin = {0};
    struct round_end end = {.seed = a->dedup->seed,
                            .term = a->self.term,
                            .window = live->window,
                            .retention = live->retention,
                            .delivered_max = live->delivered_max,
                            .error_rate = live->error_rate,
                            .ended_ms = clock_wall_ms()};
    snprintf(end.program, sizeof end.program, "%s", UNSEEN_VERSION);
    int rc = copy_positions_each(a->store, a->reader, slice_str(ARCHIVE_FROM), find_origin, &origin, err);
    if (rc < 0) {
        return rc;
    }
    end.from_node = origin.node;
    end.from_seq = origin.seq;
    buf_clear(&a->page);
    buf_clear(&a->records);
    if (round_end_write(&end, &r->ends, &a->page) < 0 ||
        object_add(&a->records, RECORD_TEXT, buf_slice(&a->page), slice_of("", 0)) < 0) {
        return out_of_memory(err);
    }
    r->part.head = (struct object_head){.kind = OBJECT_END,
                                        .from = r->from,
                                        .to = r->to,
                                        .covers = r->to,
                                        .first_ms = end.ended_ms,
                                        .last_ms = end.ended_ms,
                                        .round = r->number,
                                        .shard = r->shard};
    catalog_end_name(a->self.node, r->number, r->part.name);
    return archive_seal(a, &r->part, err);
}

static void pass_end(struct archive *a)
{
    struct round *r = &a->round;
    log_info("a round of the archive has ended", "round=%" PRIu32 " parts=%" PRIu32 " bytes=%" PRIu64 " to=%" PRIu64,
             r->number, r->shard, r->bytes, r->to);
    a->base_from = r->from;
    a->base_to = r->to;
    a->base_bytes = r->bytes;
    a->base_ms = r->part.head.last_ms;
    a->since_bytes = 0;
    pthread_mutex_lock(&a->mutex);
    a->status.rounds++;
    pthread_mutex_unlock(&a->mutex);
    archive_round_drop(a);
}

/* What was asked for is given up once nothing needs it: the round has ended, and all that its parts know is there. */
bool archive_purges(const struct archive *a)
{
    return a->purge_to != 0 && a->base_ms != 0 && a->base_from + 1 >= a->purge_to;
}

int archive_purge(struct archive *a, struct err *err)
{
    int rc = a->cursor >= a->base_to ? archive_sweep(a, true, err) : 0;
    if (rc < 0 || a->cursor < a->base_to) {
        return rc;
    }
    rc = archive_mark(a, ARCHIVE_PURGE, 0, err);
    a->purge_to = rc == 0 ? 0 : a->purge_to;
    return rc;
}

/* --- its pace --- */

/* When the next part is due by the clock; a round that is not spread goes on at once, within archive_rate. */
static int64_t due_us(const struct archive *a)
{
    const struct round *r = &a->round;
    return r->spread ? r->begun_us + (int64_t)(key_part(r->key) * (double)SPREAD_US) : 0;
}

void archive_round_go_on(struct archive *a)
{
    struct round *r = &a->round;
    r->spread = !lacks_a_round(a) && a->base_ms != 0;
    r->begun_us = clock_mono_us() - (int64_t)(key_part(r->key) * (double)SPREAD_US);
    r->begun_real_us = clock_real_us();
    show(a);
}

/* True: the rate allows no more now, and a short rest is over. */
static bool held_back(struct archive *a)
{
    const struct round *r = &a->round;
    double rate = (double)config_now(a->cfg)->archive_rate;
    int64_t ahead_us = rate > 0 ? (int64_t)((double)r->sent / rate * 1e6) - (clock_real_us() - r->begun_real_us) : 0;
    if (ahead_us <= 0) {
        return false;
    }
    ahead_us = ahead_us < RATE_LOOK_MS * 1000 ? ahead_us : RATE_LOOK_MS * 1000;
    pthread_mutex_lock(&a->mutex);
    task_rest_real(&a->task, clock_real_us() + ahead_us);
    pthread_mutex_unlock(&a->mutex);
    return true;
}

int archive_round(struct archive *a, int64_t *next_us, struct err *err)
{
    struct round *r = &a->round;
    bool spread;
    int rc = 0;
    /* One that lacks users is of no use, and one that began before it was asked for gives up too little. */
    if ((r->phase == ROUND_NONE || a->lacks_to > r->from || is_wanted(a)) && begins(a, &spread)) {
        rc = begin(a, spread, err);
    }
    if (r->phase == ROUND_NONE || rc < 0) {
        return rc;
    }
    if (r->phase == ROUND_FLUSHING) {
        rc = look_at_flush(a, err);
        r->phase = rc == 1 ? ROUND_HEAD : r->phase;
        if (rc != 1) {
            show(a);
            return rc; /* the answer wakes the thread */
        }
    }
    bool due = r->phase != ROUND_USERS || (clock_mono_us() >= due_us(a) && !held_back(a));
    if (!r->part.waits && due) {
        rc = r->phase == ROUND_HEAD    ? make_head(a, err)
             : r->phase == ROUND_USERS ? make_users(a, err)
                                       : make_end(a, err);
    }
    if (rc == 0 && r->part.waits && (rc = archive_put(a, &r->part, err)) == 0) {
        if (r->phase == ROUND_END) {
            pass_end(a);
        } else {
            rc = pass_part(a, err);
        }
    }
    if (rc == ERR_INVALID) { /* an earlier try's part, which differs, lies there */
        archive_round_drop(a);
    }
    show(a);
    *next_us = r->phase == ROUND_NONE ? INT64_MAX : r->phase == ROUND_USERS ? due_us(a) : 0;
    return rc;
}
