#include "service/recorder.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "replica/replica.h"
#include "service/sending.h"
#include "service/service.h"
#include "service/slowlog.h"

/* EVENT_REPLY: for its answer, which may be an error. */
enum { ENTRIES_FIRST = 64, KEEP_ENTRIES = 16 * 1024, EVENT_SLACK = 64, EVENT_REPLY = 384 };

/* One command's part of a batch. */
struct entry {
    struct conn *conn;
    int64_t arrived_us;
    uint32_t n;
    uint32_t bytes;
    enum op op;
    struct sent_record *sent;
};

struct batch {
    struct store_batch store;
    struct loop_message message;
    struct batch *next; /* of those under way */
    bool told;          /* everybody has an answer, and the store has not */
    bool answered;      /* the store has, and a write in it waits for an earlier batch */
    int64_t key;        /* of the last event's user */
    struct service_loop *loop;
    struct entry *entries;
    size_t n_entries, cap;
    size_t held;                   /* told to the budget */
    const struct replica *replica; /* whose acknowledgement it waits for; NULL: there is none, or not yet */
    struct ack_wait ack;
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
        budget_take(&b->loop->worker->memory, held - b->held);
    } else {
        budget_give(&b->loop->worker->memory, b->held - held);
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
    b->told = b->answered = false;
    r->spare = b;
}

/* Commands that came in one read are noted in one. */
static void measure(struct service_loop *l, const struct batch *b, enum meter_end how)
{
    int64_t now = clock_figures_us();
    for (size_t i = 0, end; i < b->n_entries; i = end) {
        const struct entry *e = &b->entries[i];
        for (end = i + 1; end < b->n_entries; end++) {
            if (b->entries[end].arrived_us != e->arrived_us || b->entries[end].op != e->op) {
                break;
            }
        }
        meter_note(&l->meter, e->op, now - e->arrived_us, end - i, how);
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
        struct store_item item;
        if (i < n_head) {
            item.id = head[i];
        } else {
            items = store_event_item(event, items, &item);
        }
        more = slowlog_add_arg(&args, i, total, item.id);
    }
    slowlog_note(e->conn, us, &args);
}

/* Of commands that came in one read, which wait for the same commit, the first. */
static void look_for_slow(const struct batch *b)
{
    int64_t now = clock_figures_us();
    struct store_event event;
    size_t at = 0;
    for (size_t i = 0; i < b->n_entries && store_batch_next(&b->store, &at, &event); i++) {
        const struct entry *e = &b->entries[i];
        bool first = i == 0 || e[-1].conn != e->conn || e[-1].arrived_us != e->arrived_us;
        if (first && slowlog_wants(e->conn, now - e->arrived_us) && e->conn->state != CONN_CLOSING) {
            note_slow(e, &event, now - e->arrived_us);
        }
    }
}

/* Once. */
static void tell(struct batch *b, const struct err *err)
{
    for (size_t i = 0; i < b->n_entries; i++) {
        struct conn *c = b->entries[i].conn;
        sent_recorded(b->entries[i].sent, err->code >= 0);
        if (c->state != CONN_CLOSING) {
            c->ops->recorded(c, b->entries[i].n, b->entries[i].bytes, err);
            conn_touch(c);
        }
        conn_release(c);
    }
    measure(b->loop, b, err->code < 0 ? METER_FAILED : METER_DONE);
    b->told = true;
}

static void remove_from(struct recorder *r, const struct batch *b)
{
    struct batch **at = &r->first;
    while (*at != b) {
        at = &(*at)->next;
    }
    *at = b->next;
    r->end = *at == NULL ? at : r->end;
    r->under_way--;
}

static void finish(struct batch *b)
{
    struct service_loop *l = b->loop;
    remove_from(&l->recorder, b);
    account(b, 0);
    if (!b->told) {
        if (b->n_entries > 0 && slowlog_wants(b->entries[0].conn, clock_figures_us() - b->entries[0].arrived_us)) {
            look_for_slow(b);
        }
        tell(b, &b->store.err);
    }
    recycle(&l->recorder, b);
}

static bool share_a_conn(const struct batch *a, const struct batch *b)
{
    for (size_t i = 0; i < a->n_entries; i++) {
        for (size_t j = 0; j < b->n_entries; j++) {
            if (a->entries[i].conn == b->entries[j].conn) {
                return true;
            }
        }
    }
    return false;
}

/* Each connection is told in the order of its writes, in which an engine across a network need not answer. */
static bool has_to_wait(const struct recorder *r, const struct batch *b)
{
    for (const struct batch *before = r->first; before != b; before = before->next) {
        if (!before->told && !b->told && share_a_conn(before, b)) {
            return true;
        }
    }
    return false;
}

static void on_answered(struct loop_message *message, void *owner)
{
    (void)owner;
    struct batch *b = (struct batch *)((char *)message - offsetof(struct batch, message));
    struct recorder *r = &b->loop->recorder;
    b->answered = true;
    while (b != NULL) {
        if (b->answered && !has_to_wait(r, b)) {
            finish(b);
            b = r->first; /* who waited for it */
        } else {
            b = b->next;
        }
    }
}

void recorder_look(struct service_loop *l)
{
    struct recorder *r = &l->recorder;
    const struct store *store = l->recording != NULL ? l->recording->store : NULL;
    struct err cause = {0}, err = {0};
    r->stalled.code = 0;
    if (store == NULL || store->ops->stalled == NULL || store->ops->stalled((struct store *)store, &cause) == 0) {
        return;
    }
    err_set(&r->stalled, ERR_BUSY, "%s: writes are refused", cause.text);
    err_set(&err, ERR_LATE, "%s: whether this write will be durable is unknown, send it again later", cause.text);
    for (struct batch *b = r->first; b != NULL; b = b->next) {
        if (!b->told) {
            tell(b, &err);
        }
    }
}

static void post(struct batch *b)
{
    b->message.deliver = on_answered;
    loop_queue_post(&b->loop->worker->queue, &b->message);
}

static void on_acknowledged(struct ack_wait *ack)
{
    post(ack->owner);
}

/* On a thread of the store. */
static void on_done(struct store_batch *store)
{
    struct batch *b = store->owner;
    if (store->err.code < 0 || b->replica == NULL) {
        post(b);
        return;
    }
    b->ack = (struct ack_wait){.seq = store->seq, .err = &store->err, .done = on_acknowledged, .owner = b};
    ack_wait(b->replica->ack, &b->ack);
}

static struct batch *filling(struct service_loop *l)
{
    struct recorder *r = &l->recorder;
    if (r->filling == NULL) {
        r->filling = r->spare;
        r->spare = NULL;
    }
    if (r->filling == NULL) {
        r->filling = calloc(1, sizeof *r->filling);
        if (r->filling != NULL) {
            r->filling->loop = l;
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

bool recorder_has_room(struct service_loop *l, struct conn *c, size_t item_bytes)
{
    const struct recorder *r = &l->recorder;
    size_t size = EVENT_SLACK + EVENT_REPLY + item_bytes;
    bool idle = r->under_way == 0 && (r->filling == NULL || r->filling->n_entries == 0);
    if (budget_allows(&l->worker->memory, BUDGET_REQUEST, size) ||
        (c->overdraft && idle && conn_has_room(c, BUDGET_REQUEST, size))) {
        return true;
    }
    conn_starve(c, BUDGET_REQUEST, size);
    return false;
}

static size_t items_size(const struct recorded *r)
{
    size_t size = r->groups != NULL ? r->n * sizeof *r->groups : 0;
    for (size_t i = 0; i < r->n; i++) {
        size += r->items[i].len;
    }
    return size;
}

int recorder_add(struct service_loop *l, struct conn *c, const struct recorded *r, bool has_room, size_t *bytes)
{
    if (!has_room && !recorder_has_room(l, c, items_size(r))) {
        return ERR_BUSY;
    }
    int64_t key = hash_user_key(l->recording->seed, r->user);
    const struct batch *open = l->recorder.filling;
    if (l->recording->store->by_user && open != NULL && open->n_entries > 0 && open->key != key) {
        recorder_submit(l); /* so that no user waits for another one's */
    }
    struct batch *b = filling(l);
    if (b == NULL || !room_for_entry(b)) {
        return ERR_NOMEM;
    }
    size_t before = b->store.bytes.len;
    int code = store_batch_add_groups(&b->store, r->kind, r->at_ms, r->time, key, r->user, r->items, r->hashes,
                                      r->groups, r->n);
    if (code < 0) {
        return code;
    }
    conn_hold(c);
    b->key = key;
    *bytes = b->store.bytes.len - before;
    b->entries[b->n_entries++] =
        (struct entry){c, c->arrived_us, (uint32_t)r->n, (uint32_t)*bytes, (enum op)c->op, r->sent};
    account(b, b->store.bytes.cap + b->cap * sizeof *b->entries + b->n_entries * EVENT_REPLY);
    if (b->store.bytes.len >= RECORDER_BATCH_BYTES) {
        recorder_submit(l);
    }
    return 0;
}

void recorder_submit(struct service_loop *l)
{
    struct batch *b = l->recorder.filling;
    if (b != NULL && b->n_entries > 0) {
        struct recorder *r = &l->recorder;
        r->filling = NULL;
        b->next = NULL;
        *(r->first == NULL ? &r->first : r->end) = b;
        r->end = &b->next;
        r->under_way++;
        b->replica = l->recording->replica;
        l->recording->store->ops->record(l->recording->store, &b->store);
    }
}

void recorder_free(struct recorder *r)
{
    free_batch(r->filling);
    free_batch(r->spare);
    r->filling = r->spare = NULL;
}
