/* The rules of requests, in the words that every edge says. */
#include "dedup/role.h"
#include "replica/follower.h"
#include "service/impl.h"

const char *const question_forms[QUESTION_FORMS] = {"items", "indexes", "bitmap"};

int request_check_question(const struct request *rq, struct err *err)
{
    if (rq->has_limit && rq->limit < 1) {
        return err_set(err, ERR_INVALID, "LIMIT must be a whole number of at least 1, got '%lld'",
                       (long long)rq->limit);
    }
    if (rq->has_limit && rq->form == FORM_BITMAP) {
        return err_set(err, ERR_INVALID, "LIMIT can't be used with REPLY BITMAP");
    }
    if (rq->deliver && !rq->has_limit) {
        return err_set(err, ERR_INVALID, "DELIVER needs LIMIT of at most %d", DELIVER_MAX);
    }
    if (rq->deliver && rq->limit > DELIVER_MAX) {
        return err_set(err, ERR_INVALID, "DELIVER needs LIMIT of at most %d, got %lld", DELIVER_MAX,
                       (long long)rq->limit);
    }
    if (rq->n_pools > POOLS_OF_A_QUESTION) {
        return err_set(err, ERR_INVALID, "%zu pools are too many: a question takes at most %d", rq->n_pools,
                       POOLS_OF_A_QUESTION);
    }
    if (rq->n_pools > 0 && rq->n > 0) {
        return err_set(err, ERR_INVALID, "a question is about items or about pools, and not both");
    }
    if (rq->n_pools == 0 && rq->version.data != NULL) {
        return err_set(err, ERR_INVALID, "VERSION is of pools, and none is named");
    }
    return 0;
}

static bool is_of_pool(const struct request *rq)
{
    return rq->kind >= REQUEST_POOL_SET;
}

int request_check(const struct request *rq, struct err *err)
{
    bool is_session = rq->kind == REQUEST_BLOCK || rq->kind == REQUEST_UNBLOCK;
    int code = rq->kind == REQUEST_QUESTION ? request_check_question(rq, err) : 0;
    if (code == 0 && !is_session && !is_of_pool(rq)) {
        code = dedup_check_id("user", 0, rq->user, err);
    }
    if (code == 0 && (is_session || rq->session.data != NULL)) {
        code = dedup_check_id("session", 0, rq->session, err);
    }
    if (code == 0 && is_session && rq->n > ITEMS_MAX) {
        code = err_set(err, ERR_INVALID, "%zu ids are too many: a command takes at most %d", rq->n, ITEMS_MAX);
    }
    return code;
}

int request_is_fresh(const struct dedup *d, const struct request *rq, struct err *err)
{
    bool asks =
        rq->kind != REQUEST_PLAY && rq->kind != REQUEST_DELIVERY && rq->kind != REQUEST_FORGET && !is_of_pool(rq);
    return asks && d->replica != NULL && !role_is_primary(d->role)
               ? follower_fresh(d->replica->follower, config_now(d->cfg), err)
               : 0;
}

int request_may_write(const struct dedup *d, const struct request *rq, struct err *err)
{
    bool writes = rq->deliver || rq->kind == REQUEST_PLAY || rq->kind == REQUEST_DELIVERY ||
                  rq->kind == REQUEST_FORGET || is_of_pool(rq);
    return writes ? role_may_write(d->role, err) : 0;
}
