#include "net/recorder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "net/slowlog.h"
#include "net/worker.h"

/* EVENT_REPLY: for its answer, which may be an error. */
enum { ENTRIES_FIRST = 64, KEEP_ENTRIES = 16 * 1024, EVENT_SLACK = 64, EVENT_REPLY = 384 };

/* One command's part of a batch. */
struct entry {
    struct conn *conn;
    int64_t arrived_us;
    uint32_t n;
    uint32_t bytes;
    enum op op;
};

struct batch {
    struct store_batch store;
    struct loop_message message;
    struct worker *worker;
    struct entry *entries;
    size_t n_entries, cap;
    size_t held; /* told to the budget */
};

static void free_batch(struct batch *b)
{
    if (b != NULL) {
        buf_free(&b->store.bytes);
        free(b->entries);
        free(b);
    }
}

static void account(struct batch *b, size_t held)
{
    if (held > b->held) {
        budget_take(&b->worker->memory, held - b->held);
    } else {
        budget_give(&b->worker->memory, b->held - held);
    }
    b->held = held;
}

static void recycle(struct recorder *r, struct batch *b)
{
    if (r->spare != NULL || b->store.bytes.cap > 2 * RECORDER_BATCH_BYTES || b->cap > KEEP_ENTRIES) {
        free_batch(b);
        return;
    }
    buf_clear(&b->store.bytes);
    b->store.rows = b->store.events = 0;
    b->store.err = (struct err){0};
    b->n_entries = 0;
    r->spare = b;
}

/* Commands that came in one read are noted in one. */
static void measure(struct worker *w, const struct batch *b)
{
    int64_t now = clock_stopwatch_us();
    for (size_t i = 0, end; i < b->n_entries; i = end) {
        const struct entry *e = &b->entries[i];
        for (end = i + 1; end < b->n_entries; end++) {
            if (b->entries[end].arrived_us != e->arrived_us || b->entries[end].op != e->op) {
                break;
            }
        }
        meter_note(&w->meter, e->op, now - e->arrived_us, end - i);
    }
}

static void note_slow(const struct entry *e, const struct store_event *event, int64_t us)
{
    const char *name = op_names[e->op == OP_FILTER_DELIVER ? OP_FILTER : e->op];
    char at[24];
    snprintf(at, sizeof at, "%" PRId64, event->at_ms);
    struct slice head[] = {slice_str(name), event->user, slice_str(at)};
    size_t n_head = e->op == OP_PLAYEDAT ? 3 : 2, total = n_head + event->n;
    const uint8_t *items = event->items;
    struct buf args = {0};
    for (size_t i = 0, more = true; more; i++) {
        struct slice arg;
        uint64_t hash;
        if (i < n_head) {
            arg = head[i];
        } else {
            items = store_event_item(items, &arg, &hash);
        }
        more = slowlog_add_arg(&args, i, total, arg);
    }
    slowlog_note(e->conn, us, &args);
}

/* Of commands that came in one read, which wait for the same commit, the first. */
static void look_for_slow(const struct worker *w, const struct batch *b)
{
    const struct config *live = config_now(w->pool->cfg);
    int64_t now = clock_stopwatch_us();
    struct store_event event;
    size_t at = 0;
    for (size_t i = 0; i < b->n_entries && store_batch_next(&b->store, &at, &event); i++) {
        const struct entry *e = &b->entries[i];
        bool first = i == 0 || e[-1].conn != e->conn || e[-1].arrived_us != e->arrived_us;
        if (first && slowlog_wants(live, now - e->arrived_us) && e->conn->state != CONN_CLOSING) {
            note_slow(e, &event, now - e->arrived_us);
        }
    }
}

static void on_answered(struct loop_message *message, void *owner)
{
    struct batch *b = (struct batch *)((char *)message - offsetof(struct batch, message));
    struct worker *w = owner;
    w->recorder.under_way--;
    account(b, 0);
    if (b->n_entries > 0 && slowlog_wants(config_now(w->pool->cfg), clock_stopwatch_us() - b->entries[0].arrived_us)) {
        look_for_slow(w, b);
    }
    for (size_t i = 0; i < b->n_entries; i++) {
        struct conn *c = b->entries[i].conn;
        if (c->state != CONN_CLOSING) {
            c->ops->recorded(c, b->entries[i].n, b->entries[i].bytes, &b->store.err);
            conn_touch(c);
        }
        conn_release(c);
    }
    measure(w, b);
    recycle(&w->recorder, b);
}

/* On a thread of the store. */
static void on_done(struct store_batch *store)
{
    struct batch *b = store->owner;
    b->message.deliver = on_answered;
    loop_queue_post(&b->worker->queue, &b->message);
}

static struct batch *filling(struct worker *w)
{
    struct recorder *r = &w->recorder;
    if (r->filling == NULL) {
        r->filling = r->spare;
        r->spare = NULL;
    }
    if (r->filling == NULL) {
        r->filling = calloc(1, sizeof *r->filling);
        if (r->filling != NULL) {
            r->filling->worker = w;
            r->filling->store.owner = r->filling;
            r->filling->store.done = on_done;
        }
    }
    return r->filling;
}

static bool room_for_entry(struct batch *b)
{
    if (b->n_entries < b->cap) {
        return true;
    }
    size_t cap = b->cap == 0 ? ENTRIES_FIRST : 2 * b->cap;
    struct entry *entries = realloc(b->entries, cap * sizeof *entries);
    if (entries == NULL) {
        return false;
    }
    b->entries = entries;
    b->cap = cap;
    return true;
}

int worker_record(struct worker *w, struct conn *c, enum store_kind kind, int64_t at_ms, struct slice user,
                  const struct slice *items, const uint64_t *hashes, size_t n, size_t *bytes)
{
    size_t size = EVENT_SLACK + EVENT_REPLY;
    for (size_t i = 0; i < n; i++) {
        size += items[i].len;
    }
    const struct recorder *r = &w->recorder;
    bool idle = r->under_way == 0 && (r->filling == NULL || r->filling->n_entries == 0);
    if (!(c->overdraft && idle) && !budget_allows(&w->memory, BUDGET_REQUEST, size)) {
        conn_starve(c, BUDGET_REQUEST, size);
        return ERR_BUSY;
    }
    struct batch *b = filling(w);
    if (b == NULL || !room_for_entry(b)) {
        return ERR_NOMEM;
    }
    size_t before = b->store.bytes.len;
    int64_t key = hash_user_key(w->dedup->seed, user);
    int code = store_batch_add(&b->store, kind, at_ms, key, user, items, hashes, n);
    if (code < 0) {
        return code;
    }
    conn_hold(c);
    *bytes = b->store.bytes.len - before;
    b->entries[b->n_entries++] = (struct entry){c, c->arrived_us, (uint32_t)n, (uint32_t)*bytes, c->op};
    account(b, b->store.bytes.cap + b->cap * sizeof *b->entries + b->n_entries * EVENT_REPLY);
    if (b->store.bytes.len >= RECORDER_BATCH_BYTES) {
        recorder_submit(w);
    }
    return 0;
}

void recorder_submit(struct worker *w)
{
    struct batch *b = w->recorder.filling;
    if (b != NULL && b->n_entries > 0) {
        w->recorder.filling = NULL;
        w->recorder.under_way++;
        w->dedup->store->ops->record(w->dedup->store, &b->store);
    }
}

void recorder_free(struct worker *w)
{
    free_batch(w->recorder.filling);
    free_batch(w->recorder.spare);
    w->recorder.filling = w->recorder.spare = NULL;
}
