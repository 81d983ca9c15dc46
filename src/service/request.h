/* A request, as every edge asks it: of whom, about what, with which options; and what came of it. All rules of an
 * operation stand behind service_submit(): ids, times, limits, which rules exclude each other, what is counted, what a
 * scroll session hides, and which error is said in which words (refusal.h).
 *
 * Nothing is asked twice. Who answers a question is not the edge's to know: the store, at once or later; for a user
 * with very many plays, or one who is on the disk only, a thread beside the workers (offload.h); and for one who is
 * still to be migrated also the Redis that they come from (legacy/read_through.h), once it is known what is unseen
 * here. While one of those is at it, the request is REQUEST_LATE: the edge keeps `late`, and the request's bytes where
 * they are; done() tells it to go on with service_resume(), as often as that says REQUEST_LATE again. A connection may
 * have any number of late requests.
 */
#ifndef UNSEEN_SERVICE_REQUEST_H
#define UNSEEN_SERVICE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "dedup/dedup.h"
#include "net/conn.h"

enum request_kind {
    REQUEST_QUESTION, /* which of the items are unseen? */
    REQUEST_WHY,      /* where is the one item seen? */
    REQUEST_HISTORY,  /* what is remembered of the user? */
    REQUEST_EXPOSURE, /* how often was each of the items sent, and how long ago? */
    REQUEST_PLAY,     /* from here on, writes: the items were played, now or at a time */
    REQUEST_DELIVERY, /* were sent to the user */
    REQUEST_FORGET,   /* un-sees the items; none: all of the user */
    REQUEST_MERGE,    /* what is known of the user becomes known of `into`, too */
    REQUEST_BLOCK,    /* the items are hidden in the session */
    REQUEST_UNBLOCK,  /* are not; none: the session ends */
    REQUEST_POOL_SET, /* the items become the pool's, in place of what it had */
    REQUEST_POOL_ADD, /* come behind those that it has */
    REQUEST_POOL_DROP,
    REQUEST_POOL_RENAME, /* the first of the pools gets the name of the second */
    REQUEST_KINDS,
};

/* How a question is to be answered. */
enum question_form { FORM_ITEMS, FORM_INDEXES, FORM_BITMAP, QUESTION_FORMS };
extern const char *const question_forms[QUESTION_FORMS]; /* "items", "indexes", "bitmap" */

enum request_state {
    REQUEST_ANSWERED, /* the outcome is in the request: err, or what its kind says; good until the next request */
    REQUEST_RECORDED, /* so it is, and may be told once conn_ops.recorded() says that it is durable */
    REQUEST_LATE,     /* `late` will go on; it holds `late_size` bytes, which the edge has charged to its connection */
    REQUEST_WAIT,     /* nothing was done: memory is short, and the connection waits in line; again when it is kicked */
};

/* A candidate that is answered by RELAX. */
struct relaxed {
    int64_t age_ms; /* of the newest delivery that hides it; -1: it is being sent */
    size_t at;      /* its place among the candidates */
};

struct account;
struct also_answer;
struct pool_line;
struct pool_line_walk;

struct request {
    /* What is asked. */
    enum request_kind kind;
    enum question_form form;
    const struct account *account; /* who asks, by account_now(); NULL: not logged in */
    struct slice user;
    struct slice into;         /* of a merge */
    struct slice session;      /* data NULL: none */
    const struct slice *items; /* candidates, items, or a session's ids */
    size_t n;
    const struct slice *groups; /* of each item its group, or "" for none; of a question and a delivery */
    size_t n_groups;            /* 0, or as many as items */
    const uint64_t *grouped;    /* the service's own: their hashes, 0 for none; NULL: no item has one */
    const struct slice *pools;  /* names: of a question, instead of items; of a change, the pool's own */
    size_t n_pools;
    const struct slice *exclude; /* of a question: items that are not to be answered, whatever the user has seen */
    size_t n_exclude;
    const uint64_t *excluded; /* the service's own: their hashes, ascending */
    struct slice policy_name; /* data NULL: none, so that POLICY_DEFAULT holds, if there is one */
    const struct policy
        *policy;          /* the service's own: what holds, by the configuration as it was asked; NULL: not yet */
    struct slice version; /* that the pools must have, as answers say it; data NULL: any */
    const struct pool_line *held; /* of a batch (batch.h), instead of the names: n_pools of them; NULL: none */
    const uint64_t *known;        /* and its items' hashes; NULL: they are to be made */
    bool hashed;       /* a question: items is one, with n hash_id()s of 8 bytes each, little endian, and nothing else;
                        * of a client's, whose ids they are only it knows ... */
    struct slice seed; /* ... this is the fingerprint of the seed that it has, as INFO shows it; data NULL: not said */
    bool is_part;      /* the service's own: of a question about several users, about one of them (ask_also.c) */
    struct buf
        *sent_to; /* the same: NULL, or the part is about the user: what its policy counts of groups goes there */
    const struct also_answer *also; /* the same: what came of its parts; NULL: there were none */
    bool of_node;                   /* another node asks, of the same seed, and it asks the old Redis by itself */
    int first_month;                /* of its window, by its clock; 0: by the window and the clock here */
    int64_t at_ms;                  /* of plays, unix; with has_at */
    int64_t limit;                  /* at most so many items are answered; with has_limit */
    bool has_at, has_limit, deliver;
    bool forget;         /* of a merge: the user is forgotten in the same step */
    bool relax;          /* with has_limit: where fewer are unseen, what deliveries alone hide follows */
    int64_t deadline_us; /* clock_real_us(): a question that is not answered by then is refused, as it is
                          * question_timeout after it was submitted; 0: none of its own */
    /* That late one may go on; on the loop, not from within a call. The peer may be gone. */
    void (*done)(struct conn *c, struct request *late);
    void *owner; /* its maker finds itself by this */

    /* What came of it. */
    const struct err *err; /* NULL: it was done; see refusal_of() */
    int64_t count;         /* items recorded, forgotten, blocked or unblocked; users forgotten or merged */
    size_t bytes;          /* REQUEST_RECORDED: what the recorder holds of it */
    double error;          /* of a question: the chance that an item which the user never had is hidden */
    const uint8_t *unseen; /* a bit for each item, most significant first */
    size_t n_unseen;
    size_t n_answer;               /* of these the first so many are the answer; ... */
    const struct relaxed *relaxed; /* ... then come these, with relax */
    size_t n_relaxed;
    const uint8_t *open; /* of a part: what query.open says, ... */
    const struct exposed_age *ages;
    size_t n_ages;
    const struct buf *groups_sent; /* query.sent, where a policy caps groups */
    const struct pool_line *line;  /* not NULL: the items stand in pools. n is how many were looked at */
    uint64_t pool_version;         /* of a question's pools, and of the pool that was changed */
    const struct place *places;
    size_t n_places;
    const struct history *history; /* NULL: nothing is remembered */
    const struct exposed *exposed; /* of each item */

    /* The service's own, of one that delivers: while its answer is looked for, and while that is recorded (sending.h).
     */
    struct sending *sending;
    struct sent_record *sent;

    struct request *late; /* not NULL: to be ended (service_end()) once the outcome was told */
    size_t late_size;
};

/* On the connection's own thread, as all of these. While the store recovers whatever is no play and no delivery is
 * ERR_LOADING, and those may be, too (service_record()). */
enum request_state service_submit(struct conn *c, struct request *rq);

/* The same request goes on, with rq == late; rq->user, session and items point to the same bytes again, wherever these
 * are now. */
enum request_state service_resume(struct conn *c, struct request *rq);

/* The edge has told rq->err, and will not submit it again: counts it. */
void service_refused(struct conn *c, const struct request *rq);

/* The edge tells what came of it, REQUEST_ANSWERED: counts that if it is an error, measures it as c->op since
 * c->arrived_us, and notes it where that was slow. (What is recorded, the recorder measures.) */
void service_answered(struct conn *c, const struct request *rq);

/* Ends a late request: its outcome was told, or no client waits for it any more, and then done() is not called. A
 * question that waits for its turn loses that; what is being done goes on. NULL: nothing. */
void service_end(struct request *late);

/* Whether it is to record something: what failed of it was not recorded, rather than not answered (refusal.h). */
static inline bool request_is_write(const struct request *rq)
{
    return rq->kind >= REQUEST_PLAY; /* pools too */
}

/* The i-th candidate of a question that was answered; a walk begins zeroed (dedup/pools.h). */
struct slice request_item(const struct request *rq, size_t i, struct pool_line_walk *walk);

/* What the answer to a question about pools takes at most: of how many items it may be, and the length of their ids.
 * Before it is submitted, since it sees to it that the pools are those of now. Zero where it will be refused. Of a late
 * one it goes by the pools that it holds. */
void request_pools_answer(struct conn *c, const struct request *rq, size_t *n, size_t *id_bytes);

/* Whether so many pools have the version that is asked for; data NULL: any. 0, ERR_INVALID, ERR_POOL_VERSION. */
int pool_version_check(struct slice asked, uint64_t version, size_t n_pools, struct err *err);

/* Whether item i is unseen; and the first that is from i on, n when there is none. */
static inline bool request_is_unseen(const struct request *rq, size_t i)
{
    return (rq->unseen[i / 8] & (0x80 >> i % 8)) != 0;
}
static inline size_t request_next_unseen(const struct request *rq, size_t i)
{
    while (i < rq->n && !request_is_unseen(rq, i)) {
        i += i % 8 == 0 && rq->unseen[i / 8] == 0 ? 8 : 1;
    }
    return i < rq->n ? i : rq->n;
}

static inline size_t bitmap_size(size_t n)
{
    return (n + 7) / 8;
}
static inline void bitmap_clear(uint8_t *bits, size_t i)
{
    bits[i / 8] = (uint8_t)(bits[i / 8] & ~(0x80 >> i % 8));
}

#endif
