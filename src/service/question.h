/* What ask.c and ask_hedge.c share: a question that is not answered at once. */
#ifndef UNSEEN_SERVICE_QUESTION_H
#define UNSEEN_SERVICE_QUESTION_H

#include "dedup/tier.h"
#include "service/impl.h"

/* Its second tier (ask_hedge.c). What a thread may be writing to at the same time is kept apart from it. */
struct question_hedge {
    bool may;     /* it is one that a second tier can answer */
    bool asked;   /* the tier has it */
    bool disk;    /* the disk has it: the store, or an offload thread */
    bool refused; /* the disk has answered, with an error, or without what is damaged: the tier may know better */
    bool won;     /* the tier's answer is the question's */
    int tries;    /* since it was refused: the tier may have it soon; ... */
    int failures; /* ... as often it failed while it was asked */
    int64_t began_us, after_us;
    struct question *next, *prev; /* of the loop's that wait to be put to the tier; prev of the first is the last;
                                   * NULL: it doesn't wait */
    int64_t at_us;                /* until then */
    uint64_t left;                /* the newest event that memory here did not have any more */
    struct tier_question tier;
    struct query answer; /* of memory here, then with the tier's */
};

/* What a query looks at pools by, in order; it ends when nothing hides enough of them. It lives as long as the query.
 */
struct question_line {
    struct service_loop *l;
    const struct request *rq;
};

struct question {
    struct late late;
    struct query query; /* asks with copies of what another thread needs */
    int code;           /* of its answer */
    struct history history;
    struct buf sent;           /* what its policy's caps of groups count */
    struct asker_load *load;   /* the store is to answer; NULL: no */
    struct asker_load *sliced; /* it has, and its candidates are looked at in slices (ask_slices.c), up to `at` */
    size_t at;
    struct loop_message turn;
    struct offload_job job;
    struct read_through_question read_through;
    bool wants;       /* the old Redis is still to be asked, about query.elsewhere */
    bool was_through; /* it was */
    uint8_t *seen;
    struct pool_line line; /* of pools, which are held */
    struct question_line order;
    const struct slice *items; /* their items, where the old Redis is to be asked; else NULL */
    struct question_hedge hedge;
};

/* ask.c: its deadline, in late->rq, and what it is called: the request's own, or that of question_timeout. */
void question_set_deadline(const struct service_loop *l, const struct request *rq, struct late *late);
/* As many deliveries of a user hide at most, by the configuration in force. */
size_t question_ages_max(const struct service_loop *l);
/* What it takes at most: memory for one that is not answered at once. */
size_t question_size_max(const struct service_loop *l, const struct request *rq);
/* A question whose candidates are known: rq->line, or rq->known, or the loop's hashes. */
enum request_state question_ask(struct service_loop *l, struct conn *c, struct request *rq);
/* It is with the old Redis, whose answer is waited for no longer than legacy_timeout, whatever the deadline. */
bool question_is_through(const struct request *late);
/* ask_also.c: with RELAX, behind rq->n_answer: of the candidates that are open and not unseen those who come first, up
 * to the limit, and of a group no more than its caps allow of the answer. chosen: what is answered already, each item
 * of which is answered once, and what is added; NULL: that doesn't matter. */
void question_relax(struct service_loop *l, struct request *rq, const struct query *a, uint64_t *chosen,
                    size_t *n_chosen);

/* The end: a was answered with that code; err says why not. Before its places there is room for one more. */
enum request_state question_finish(struct service_loop *l, struct conn *c, struct request *rq, struct query *a,
                                   int code, struct err *err);

/* ask.c: the holder of the question is through with it, and a client waits. */
void question_answered(struct service_loop *l, struct question *q);

struct exposure question_exposure(const struct service_loop *l, const struct request *rq); /* of its policy, now */

/* ask_slices.c: the store has answered, later. True: it goes on in slices, and question_answered() follows. False: it
 * is to be asked for the answer, asker_end(), unless q->code says that this failed already. */
bool question_slice(struct service_loop *l, struct question *q);

/* ask_pools.c. Whether it is about more candidates of pools than a worker should look at by itself. */
bool question_is_long(const struct request *rq);
/* Or about more than the old Redis can be asked about, or about hashes: ERR_RANGE. */
int question_may_want(const struct request *rq, struct err *err);
/* Of a question that is answered on its loop, now. */
int question_line_up(struct service_loop *l, const struct request *rq, struct query *a, struct question_line *line,
                     struct err *err);
/* One that is answered later holds its pools (q->late.rq.line becomes its own), and looks at all of them. hashes: room
 * for those of several pools; items: NULL, or room for all, which are named. */
void question_hold_pools(struct question *q, uint64_t *hashes, struct slice *items);

/* Once the query is there. The bits are the question's. */
void question_hedge_init(struct question *q, uint8_t *bits, uint8_t *tier_bits);

/* Where the disk is to be asked. False: the tier has it, and the disk is not to be asked. */
bool question_hedge_begin(struct service_loop *l, struct question *q);

/* Whether an answer of the disk's, with that code, is one that the tier may have better. */
bool question_hedge_wants(int code, const struct query *answer);

/* The disk has answered, as q->code says. False: the tier is at it, and its answer is to be waited for. */
bool question_hedge_answered(struct service_loop *l, struct question *q);

/* The same of one whose client is gone: it counts for the next ones. */
void question_hedge_noted(struct service_loop *l, struct question *q, bool told);

/* The tier's answer is not wanted any more. */
void question_hedge_drop(struct service_loop *l, struct question *q);

/* The loop ends: what waits for the tier alone. */
void question_hedge_close(struct service_loop *l);

/* ask.c: the disk is to be asked after all. */
void question_ask_disk(struct service_loop *l, struct question *q);

#endif
