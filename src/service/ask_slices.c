/* A question about pools that a store has answered late: what it takes to look at its candidates. A few wanted ones are
 * looked for in order, and what a user has seen is looked up in the pools while these are few, as where a store answers
 * at once. Else each candidate is tested, SLICE of them at a time, and the loop's other connections have their turn in
 * between: the store's reader keeps what it has loaded until the last slice. */
#include "service/question.h"

/* Some 50 us. Whole bytes of a bitmap. */
enum { SLICE = 16 * 1024 };

static void go_on(struct service_loop *l, struct question *q);

static void end(struct service_loop *l, struct question *q)
{
    asker_done(l->asker, q->sliced);
    q->sliced = NULL;
    question_answered(l, q);
}

static void on_turn(struct loop_message *message, void *owner)
{
    struct question *q = (struct question *)((char *)message - offsetof(struct question, turn));
    struct service_loop *l = ((struct worker *)owner)->service;
    if (l->asker == NULL) { /* the loop has ended, and all that was loaded with it */
        asker_load_free(q->sliced);
        q->sliced = NULL;
        late_arrived(&q->late);
    } else if (q->late.ended || q->late.told) {
        asker_done(l->asker, q->sliced);
        q->sliced = NULL;
        question_hedge_noted(l, q, true);
        late_arrived(&q->late);
    } else {
        go_on(l, q);
    }
}

static void go_on(struct service_loop *l, struct question *q)
{
    struct query part = q->query;
    part.n = q->query.n - q->at < SLICE ? q->query.n - q->at : SLICE;
    part.hashes = q->query.hashes + q->at;
    part.unseen = q->query.unseen + q->at / 8;
    part.open = q->query.open != NULL ? q->query.open + q->at / 8 : NULL;
    q->code = asker_part(l->asker, q->sliced, &part, &q->late.err);
    q->query.error = part.error;
    q->query.damaged = part.damaged;
    q->query.n_unseen += part.n_unseen;
    q->query.n_ages = part.n_ages;
    q->at += part.n;
    if (q->code < 0 || q->at == q->query.n) {
        end(l, q);
        return;
    }
    q->turn.deliver = on_turn;
    loop_queue_post(&l->worker->queue, &q->turn);
}

/* Its bits are looked at as they are found. */
static int look_in_order(struct service_loop *l, struct question *q)
{
    q->order = (struct question_line){l, &q->late.rq};
    int code = question_line_up(l, &q->late.rq, &q->query, &q->order, &q->late.err);
    q->query.most = 2 * SLICE;
    return code;
}

bool question_slice(struct service_loop *l, struct question *q)
{
    struct request *rq = &q->late.rq;
    if (rq->line == NULL || q->query.kind != QUERY_FILTER || q->wants || l->tier != NULL || !asker_is_good(q->load)) {
        return false;
    }
    if (rq->has_limit && rq->session.data == NULL) { /* whose bytes the edge has, until it resumes */
        q->code = look_in_order(l, q);
        return false;
    }
    if (asker_matches(q->load, rq->line)) {
        q->query.line = rq->line;
        return false;
    }
    if (rq->n <= SLICE) {
        return false;
    }
    q->sliced = q->load;
    q->load = NULL;
    q->at = 0;
    q->query.n_unseen = 0;
    go_on(l, q);
    return true;
}
