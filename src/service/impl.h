/* What the files of this folder share: the kinds of requests, and those that are late. */
#ifndef UNSEEN_SERVICE_IMPL_H
#define UNSEEN_SERVICE_IMPL_H

#include "service/request.h"
#include "service/service.h"

/* check.c: all rules that need nothing but the request. Items are hashed, and so checked, by the code that needs
 * that. */
int request_check(const struct request *rq, struct err *err);
/* Those of a question that don't go by its user. */
int request_check_question(const struct request *rq, struct err *err);

/* The same: ERR_REPLICA when it changes what is remembered of a user, and that is another node's to do. Scroll sessions
 * are each node's own. */
int request_may_write(const struct dedup *d, const struct request *rq, struct err *err);

/* The same: ERR_STALE when it is a question, and this a replica that is older than replica_max_age. */
int request_is_fresh(const struct dedup *d, const struct request *rq, struct err *err);

/* The same: which policy holds of a question; its own from then on. ERR_INVALID: there is none of that name. */
int request_find_policy(const struct dedup *d, struct request *rq, struct err *err);

/* The same: that the other users whom its policy looks at have ids. */
int request_check_also(const struct request *rq, struct err *err);

/* Whether its policy minds no delivery, so that what another answer is about to send may be answered as well. */
static inline bool request_sends_again(const struct request *rq)
{
    return rq->policy != NULL && rq->policy->n_caps == 0;
}

/* Whether its policy counts items of groups. */
static inline bool request_caps_groups(const struct request *rq)
{
    return rq->policy != NULL && rq->policy->n_group_caps > 0 && rq->grouped != NULL;
}

/* A late request: the first member of what its kind keeps.
 *
 * A source has it from late_leave() until late_arrived(). The client may be gone before that (service_end()), or the
 * deadline may pass: then the request is taken back from its source, or, where that is at it, what it keeps lives on
 * until it arrives, and no client is told. */
struct late {
    struct request rq;
    struct conn *conn; /* held while it is waited for */
    struct service_loop *loop;
    struct err err;
    struct late *next, *prev; /* of the loop, by their deadlines; prev of the first is the last */
    bool away;                /* a source has it */
    bool told;                /* the edge was, while a source still had it */
    bool overdue;             /* the deadline has passed, which was told */
    bool ended;               /* it is not wanted any more */
    enum request_state (*go_on)(struct service_loop *l, struct late *late);
    void (*free)(struct late *late);
    bool (*take_back)(struct late *late); /* from its source; false: that is at it. NULL: it always is */
    const char *limit, *cause;            /* of what is overdue: what has passed; why, as take_back() found it */
};

/* Memory of so many bytes for a late request, zeroed but for the request, whose items stay the edge's. beside: what its
 * parts will take, one after the other, which is asked for now. NULL: there is none; then *state says what to answer.
 */
void *late_new(struct service_loop *l, struct conn *c, struct request *rq, size_t size, size_t beside,
               enum request_state *state);

/* A source has it, and the edge is told when it has arrived. Returns REQUEST_LATE. */
enum request_state late_leave(struct late *late, struct request *rq);

/* On the loop: the source is through with it. */
void late_arrived(struct late *late);

/* On the loop: there is an answer, though a source may still be at it. */
void late_tell(struct late *late);

/* As service_end(). Why it was not there yet, if it was late. */
const char *late_end(struct request *rq);

/* The outcome: an error, in memory that lasts as long as the request. */
enum request_state request_fail(struct service_loop *l, struct request *rq, const struct err *err);

enum request_state request_ask(struct service_loop *l, struct conn *c, struct request *rq); /* ask.c */
/* ask_also.c: the same about all users whom its policy looks at, once its candidates are known. */
struct also_answer {
    uint64_t hidden[POLICY_ALSO]; /* by each of them, and by none before */
    double error;                 /* the largest of one user's */
};
enum request_state request_ask_also(struct service_loop *l, struct conn *c, struct request *rq);
/* forget.c: merges, too */
enum request_state request_forget(struct service_loop *l, struct conn *c, struct request *rq);

enum request_state request_change_pool(struct service_loop *l, struct conn *c, struct request *rq); /* pool_change.c */

/* ask_pools.c: finds the question's pools: rq->line, n and pool_version. ERR_POOL, ERR_POOL_VERSION, ERR_INVALID,
 * ERR_RANGE. */
int request_find_pools(struct service_loop *l, struct request *rq, struct err *err);
/* ask.c: those, or the items' hashes, in l->hashes; and those of what it excludes, in l->excluded. */
int request_find_candidates(struct service_loop *l, struct request *rq, struct err *err);
/* What must be hidden of unseen items beside what the user has seen: repeats, what it excludes, if blocks what
 * l->blocked has, and what other questions are about to send. Returns how many it hid. */
size_t request_hide(struct service_loop *l, const struct request *rq, const uint64_t *hashes, bool blocks, size_t from,
                    size_t n, uint8_t *unseen);

/* Records items for the user; rq->n_answer of them are counted. Asks for memory unless the caller has. */
struct recorded;
enum request_state request_record(struct service_loop *l, struct conn *c, struct request *rq, const struct recorded *r,
                                  bool has_memory);

/* Hashes the groups of its items, if it has any: rq->grouped, in the loop's own memory. */
int request_hash_groups(struct service_loop *l, const struct dedup *d, struct request *rq, struct err *err);

#endif
