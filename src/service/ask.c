/* Questions about a user: the store is asked at once. What stands in the way of that is a source of its own, which
 * makes the request late: a user with very many plays is asked about on the offload thread, and one who is still to be
 * migrated is also asked about in the Redis that they come from, once it is known what is unseen here.
 *
 *   first() -> [offload thread] -> go_on(): [the old Redis] -> go_on(): finish()
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "service/impl.h"

/* What the store says, in memory of the loop or of a late question. */
struct answer {
    int code;
    uint8_t *unseen; /* REQUEST_QUESTION: a bit for each item */
    size_t n_unseen;
    double error;         /* asker_error() */
    struct place *places; /* REQUEST_WHY: behind one that is free; */
    size_t n_places;
    struct history *history; /* REQUEST_HISTORY */
};

struct question {
    struct late late;
    struct offload_job job;
    struct read_through_question read_through;
    bool wants;       /* the old Redis is still to be asked */
    bool was_through; /* it was */
    struct slice user;
    uint64_t *hashes;
    uint8_t *asked, *seen;
    struct answer answer;
    struct history history;
};

/* --- the store --- */

/* Also on the offload thread. */
static void look(struct asker *asker, const struct request *rq, struct slice user, const uint64_t *hashes,
                 struct answer *a, struct err *err)
{
    switch (rq->kind) {
    case REQUEST_QUESTION:
        a->code = asker_filter(asker, user, hashes, rq->n, a->unseen, &a->n_unseen, err);
        a->error = asker_error(asker);
        break;
    case REQUEST_WHY:
        a->code = asker_why(asker, user, hashes[0], a->places + 1, err);
        a->n_places = a->code > 0 ? (size_t)a->code : 0;
        break;
    default:
        a->code = asker_history(asker, user, a->history, err);
        a->history = a->code > 0 ? a->history : NULL;
        break;
    }
}

/* --- late --- */

static void free_question(struct late *late)
{
    struct question *q = (struct question *)late;
    free(q->history.months);
    free(q);
}

static void on_through(struct read_through_question *read_through)
{
    late_arrived(&((struct question *)((char *)read_through - offsetof(struct question, read_through)))->late);
}

static void on_offload(struct loop_message *message, void *owner)
{
    (void)owner;
    late_arrived(&((struct question *)((char *)message - offsetof(struct question, job.message)))->late);
}

/* The months are the asker's until its next question, so they are copied. */
static void keep_months(struct question *q)
{
    struct history *h = &q->history;
    const struct history_month *theirs = h->months;
    h->months = h->n_months > 0 ? malloc(h->n_months * sizeof *h->months) : NULL;
    if (h->months != NULL) {
        memcpy(h->months, theirs, h->n_months * sizeof *theirs);
    } else if (h->n_months > 0) {
        q->answer.code = err_set(&q->late.err, ERR_NOMEM, "out of memory");
    }
}

/* What may be asked of the old Redis: the unseen ones, less those that were un-seen here one by one. */
static void set_asked(struct question *q, struct asker *asker, const uint64_t *hashes)
{
    if (q->late.rq.kind == REQUEST_QUESTION) {
        memcpy(q->asked, q->answer.unseen, bitmap_size(q->late.rq.n));
    } else if (q->late.rq.kind == REQUEST_WHY) {
        q->asked[0] = 0x80;
    }
    asker_exclude(asker, hashes, q->late.rq.n, q->asked);
}

/* On the offload thread. */
static void look_aside(struct offload_job *job, struct asker *asker)
{
    struct question *q = (struct question *)((char *)job - offsetof(struct question, job));
    look(asker, &q->late.rq, q->user, q->hashes, &q->answer, &q->late.err);
    if (q->answer.code >= 0 && q->wants) {
        set_asked(q, asker, q->hashes);
    }
    keep_months(q);
}

/* Where it waits for its turn on the offload thread. */
static bool take_back(struct late *late)
{
    struct question *q = (struct question *)late;
    return offload_take_back(&late->conn->worker->pool->service->offload, &q->job);
}

static enum request_state go_on(struct service_loop *l, struct late *late);

static size_t question_size(const struct request *rq)
{
    size_t places = rq->kind == REQUEST_WHY ? (1 + PLACES_MAX) * sizeof(struct place) : 0;
    return sizeof(struct question) + places + rq->n * sizeof(uint64_t) + 3 * bitmap_size(rq->n) + rq->user.len;
}

/* For a user to be migrated, or a large one. NULL: *state says why. Holds copies of what another thread needs. */
static struct question *question_new(struct service_loop *l, struct conn *c, struct request *rq, bool wants,
                                     enum request_state *state)
{
    struct question *q = late_new(l, c, rq, question_size(rq), state);
    if (q == NULL) {
        return NULL;
    }
    size_t bits = bitmap_size(rq->n);
    q->late.go_on = go_on;
    q->late.free = free_question;
    q->late.take_back = take_back;
    q->answer.places = (struct place *)(q + 1);
    q->hashes = (uint64_t *)(q->answer.places + (rq->kind == REQUEST_WHY ? 1 + PLACES_MAX : 0));
    q->answer.unseen = (uint8_t *)(q->hashes + rq->n);
    q->asked = q->answer.unseen + bits;
    q->seen = q->asked + bits;
    q->answer.history = &q->history;
    q->user = slice_of((char *)q->seen + bits, rq->user.len);
    memcpy(q->seen + bits, rq->user.data, rq->user.len);
    memcpy(q->hashes, l->hashes, rq->n * sizeof *q->hashes);
    q->wants = wants;
    return q;
}

/* Asks the old Redis, once, about what of q->asked there is. False: there is nothing to ask, or it can't be asked. */
static bool ask_through(struct service_loop *l, struct question *q, const struct slice *items)
{
    size_t n = q->late.rq.n, i = 0;
    while (i < bitmap_size(n) && q->asked[i] == 0) {
        i++;
    }
    if (!q->wants || q->answer.code < 0 || i == bitmap_size(n)) {
        return false;
    }
    q->wants = false;
    q->read_through = (struct read_through_question){.done = on_through, .n = n, .asked = q->asked, .seen = q->seen};
    q->was_through = read_through_ask(l->read_through, &q->read_through, q->user, items);
    return q->was_through;
}

/* --- the end --- */

/* Takes out what the old Redis has. */
static void unite(struct service_loop *l, struct question *q)
{
    struct answer *a = &q->answer;
    if (!q->was_through || a->code < 0) {
        return;
    }
    if (q->late.rq.kind == REQUEST_QUESTION) {
        a->n_unseen -= read_through_hide(l->read_through, &q->read_through, q->hashes, a->unseen);
        return;
    }
    uint8_t unseen = 0x80;
    if (a->n_places < PLACES_MAX && read_through_hide(NULL, &q->read_through, q->hashes, &unseen) > 0) {
        a->places[1 + a->n_places++] = (struct place){.kind = PLACE_LEGACY};
    }
}

static void count(struct service_loop *l, const struct request *rq, const struct answer *a)
{
    struct meter *m = &l->meter;
    meter_count(m, COUNT_QUESTIONS, 1);
    meter_count(m, COUNT_CANDIDATES, rq->n);
    meter_count(m, COUNT_UNSEEN, rq->n_unseen);
    meter_count(m, COUNT_FALSE_HITS, dedup_false_hits(a->error, rq->n));
    meter_count(m, COUNT_OVER_ERROR_RATE, dedup_over_error_rate(l->dedup, a->error));
}

/* Records what is answered as delivered. Its memory was asked for before the question was. */
static enum request_state deliver(struct service_loop *l, struct conn *c, struct request *rq, const uint64_t *hashes)
{
    struct slice items[DELIVER_MAX];
    uint64_t chosen[DELIVER_MAX];
    size_t i = request_next_unseen(rq, 0);
    for (size_t k = 0; k < rq->n_answer; k++, i = request_next_unseen(rq, i + 1)) {
        items[k] = rq->items[i];
        chosen[k] = hashes[i];
    }
    c->op = OP_FILTER_DELIVER;
    return request_record(l, c, rq, STORE_DELIVERY, dedup_stamp(l->dedup), items, chosen, rq->n_answer, true);
}

static enum request_state finish(struct service_loop *l, struct conn *c, struct request *rq, struct answer *a,
                                 const uint64_t *hashes, struct err *err)
{
    bool blocks = rq->session.data != NULL && rq->kind != REQUEST_HISTORY;
    if (a->code >= 0 && blocks) {
        int code = sessions_load(l->dedup->sessions, rq->session, &l->blocked, err);
        a->code = code < 0 ? code : a->code;
    }
    if (a->code < 0) {
        return request_fail(l, rq, err);
    }
    rq->history = a->history;
    if (rq->kind == REQUEST_WHY) {
        bool blocked = blocks && session_set_has(&l->blocked, rq->items[0], hashes[0]);
        a->places[0] = (struct place){.kind = PLACE_BLOCKED};
        rq->places = a->places + !blocked;
        rq->n_places = a->n_places + blocked;
    }
    if (rq->kind != REQUEST_QUESTION) {
        return REQUEST_ANSWERED;
    }
    if (blocks) {
        a->n_unseen -= session_set_hide(&l->blocked, rq->items, hashes, rq->n, a->unseen);
    }
    rq->unseen = a->unseen;
    rq->n_unseen = rq->n_answer = a->n_unseen;
    if (rq->has_limit && (uint64_t)rq->limit < rq->n_unseen) {
        rq->n_answer = (size_t)rq->limit;
    }
    count(l, rq, a);
    return rq->deliver && rq->n_answer > 0 ? deliver(l, c, rq, hashes) : REQUEST_ANSWERED;
}

static enum request_state go_on(struct service_loop *l, struct late *late)
{
    struct question *q = (struct question *)late;
    struct request *rq = &late->rq;
    if (late->overdue) {
        q->answer.code = err_set(&late->err, ERR_LATE,
                                 "not answered within question_timeout: other users with very many plays are before");
    }
    if (ask_through(l, q, rq->items)) {
        return late_leave(late, rq, rq->late_size);
    }
    unite(l, q);
    return finish(l, late->conn, rq, &q->answer, q->hashes, &late->err);
}

/* --- the beginning --- */

/* What is delivered takes memory, which is asked for before anything is: about the longest items that could be. */
static bool may_deliver(struct service_loop *l, struct conn *c, const struct request *rq)
{
    size_t size = 0;
    for (size_t i = 0; i < rq->n && rq->n <= DELIVER_MAX; i++) {
        size += rq->items[i].len;
    }
    return recorder_has_room(l, c, rq->n <= DELIVER_MAX ? size : (size_t)DELIVER_MAX * ID_MAX);
}

/* The offload thread asks. */
static enum request_state go_aside(struct service_loop *l, struct request *rq, struct question *q)
{
    q->job = (struct offload_job){{NULL, on_offload}, l->worker, look_aside};
    q->answer.code = err_set(&q->late.err, ERR_CLOSED, "the server is stopping"); /* unless it does */
    meter_count(&l->meter, COUNT_LARGE, 1);
    late_leave(&q->late, rq, question_size(rq));
    offload_put(&l->worker->pool->service->offload, &q->job);
    return REQUEST_LATE;
}

enum request_state request_ask(struct service_loop *l, struct conn *c, struct request *rq)
{
    struct err err = {0};
    if (dedup_hash_items(l->dedup, rq->items, rq->n, l->hashes, &err) < 0) {
        return request_fail(l, rq, &err);
    }
    if (rq->deliver && !may_deliver(l, c, rq)) {
        return REQUEST_WAIT;
    }
    int64_t timeout_ms = config_now(l->dedup->cfg)->question_timeout_ms, own_us = c->arrived_us + timeout_ms * 1000;
    if (timeout_ms > 0 && (rq->deadline_us == 0 || own_us < rq->deadline_us)) {
        rq->deadline_us = own_us;
    }
    enum request_state state;
    struct question *q = NULL;
    bool wants =
        rq->kind != REQUEST_HISTORY && read_through_wants(l->read_through, rq->user); /* before anything is looked up */
    if (wants && (q = question_new(l, c, rq, true, &state)) == NULL) {
        return state;
    }
    struct answer own = {.unseen = l->bits, .places = l->places, .history = &l->history};
    struct answer *a = q != NULL ? &q->answer : &own;
    look(l->asker, rq, rq->user, l->hashes, a, &err);
    if (a->code == ERR_LARGE) {
        q = q != NULL ? q : question_new(l, c, rq, false, &state);
        return q != NULL ? go_aside(l, rq, q) : state;
    }
    if (q != NULL) {
        rq->late = &q->late.rq;
        set_asked(q, l->asker, l->hashes);
        if (ask_through(l, q, rq->items)) {
            return late_leave(&q->late, rq, question_size(rq));
        }
    }
    return finish(l, c, rq, a, l->hashes, &err);
}
