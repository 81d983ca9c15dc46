/* The rules of requests, in the words that every edge says. */
#include "base/hash.h"
#include "base/log.h"
#include "base/plural.h"
#include "dedup/role.h"
#include "replica/follower.h"
#include "service/fields.h"
#include "service/impl.h"

const char *const question_forms[QUESTION_FORMS] = {"items", "indexes", "bitmap"};

/* What hashes can't be asked: whatever needs an id. */
static int check_hashes(const struct request *rq, struct err *err)
{
    const size_t bytes = rq->items[0].len;
    if (bytes % HASH_BYTES != 0) {
        return err_set(err, ERR_INVALID, "HASHES has %zu bytes: expected a multiple of %d, the bytes of a hash", bytes,
                       HASH_BYTES);
    }
    if (rq->n < 1 || rq->n > ITEMS_MAX) {
        return err_set(err, ERR_INVALID, "HASHES has %zu hashes: a command takes 1 to %d", rq->n, ITEMS_MAX);
    }
    if (rq->of_node) {
        return 0;
    }
    if (rq->n_pools > 0) {
        return err_set(err, ERR_INVALID, "a question is about hashes or about pools, and not both");
    }
    if (rq->seed.data == NULL) {
        return err_set(err, ERR_INVALID, "HASHES needs SEED, the fingerprint of the seed that they were made with");
    }
    if (rq->form == FORM_ITEMS) {
        return err_set(err, ERR_INVALID,
                       "REPLY ITEMS can't be used with HASHES, which name no ids: expected INDEXES or "
                       "BITMAP");
    }
    if (rq->session.data != NULL) {
        return err_set(err, ERR_INVALID, "SESSION can't be used with HASHES: a session blocks ids");
    }
    if (rq->deliver) {
        return err_set(err, ERR_INVALID, "DELIVER can't be used with HASHES: a delivery is recorded by its id");
    }
    return 0;
}

static int check_groups(const struct request *rq, struct err *err)
{
    const size_t n = rq->hashed || rq->n_pools > 0 ? 0 : rq->n;
    return rq->n_groups == 0 || rq->n_groups == n
               ? 0
               : err_set(err, ERR_INVALID, "%zu group%s for %zu item%s, expected one each, and \"\" for none",
                         rq->n_groups, plural(rq->n_groups), n, plural(n));
}

int request_check_question(const struct request *rq, struct err *err)
{
    if (fields_check(rq, err) < 0) {
        return err->code;
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
    if (rq->relax && !rq->has_limit) {
        return err_set(err, ERR_INVALID, "RELAX needs LIMIT");
    }
    if (rq->n_exclude > EXCLUDE_MAX) {
        return err_set(err, ERR_INVALID, "%zu items of EXCLUDE are too many: a question takes at most %d",
                       rq->n_exclude, EXCLUDE_MAX);
    }
    if (rq->n_pools > POOLS_OF_A_QUESTION) {
        return err_set(err, ERR_INVALID, "%zu pools are too many: a question takes at most %d", rq->n_pools,
                       POOLS_OF_A_QUESTION);
    }
    if (rq->n_pools == 0 && rq->version.data != NULL) {
        return err_set(err, ERR_INVALID, "VERSION is of pools, and none is named");
    }
    if (rq->seed.data != NULL && !rq->hashed) {
        return err_set(err, ERR_INVALID, "SEED is of HASHES, and none are given");
    }
    if (rq->hashed) {
        const int code = check_hashes(rq, err);
        return code == 0 ? check_groups(rq, err) : code;
    }
    if (rq->n_pools > 0 && rq->n > 0) {
        return err_set(err, ERR_INVALID, "a question is about items or about pools, and not both");
    }
    return check_groups(rq, err);
}

static bool is_of_pool(const struct request *rq)
{
    return rq->kind >= REQUEST_POOL_SET;
}

/* What the store does in a step of its own. */
static bool changes_users(const struct request *rq)
{
    return rq->kind == REQUEST_FORGET || rq->kind == REQUEST_MERGE;
}

static int check_merge(const struct request *rq, struct err *err)
{
    int code = dedup_check_id("into", 0, rq->into, err);
    return code == 0 && slice_eq(rq->user, rq->into)
               ? err_set(err, ERR_INVALID, "%s can't be merged into itself", log_quote(rq->user))
               : code;
}

int request_check(const struct request *rq, struct err *err)
{
    bool is_session = rq->kind == REQUEST_BLOCK || rq->kind == REQUEST_UNBLOCK;
    int code = rq->kind == REQUEST_QUESTION   ? request_check_question(rq, err)
               : rq->kind == REQUEST_DELIVERY ? check_groups(rq, err)
                                              : 0;
    if (code == 0 && !is_session && !is_of_pool(rq)) {
        code = dedup_check_id("user", 0, rq->user, err);
    }
    if (code == 0 && rq->kind == REQUEST_MERGE) {
        code = check_merge(rq, err);
    }
    if (code == 0 && (is_session || rq->session.data != NULL)) {
        code = dedup_check_id("session", 0, rq->session, err);
    }
    if (code == 0 && rq->kind == REQUEST_EXPOSURE && rq->n > EXPOSURE_MAX) {
        code = err_set(err, ERR_INVALID, "%zu items are too many: EXPOSURE takes at most %d", rq->n, EXPOSURE_MAX);
    }
    if (code == 0 && is_session && rq->n > ITEMS_MAX) {
        code = err_set(err, ERR_INVALID, "%zu ids are too many: a command takes at most %d", rq->n, ITEMS_MAX);
    }
    return code;
}

int request_is_fresh(const struct dedup *d, const struct request *rq, struct err *err)
{
    bool asks = rq->kind != REQUEST_PLAY && rq->kind != REQUEST_DELIVERY && !changes_users(rq) && !is_of_pool(rq);
    return asks && d->replica != NULL && !role_is_primary(d->role)
               ? follower_fresh(d->replica->follower, config_now(d->cfg), err)
               : 0;
}

/* What another node asks goes by that one's policies. */
int request_find_policy(const struct dedup *d, struct request *rq, struct err *err)
{
    if (rq->policy != NULL || (rq->kind != REQUEST_QUESTION && rq->kind != REQUEST_WHY)) {
        return 0;
    }
    const struct policies *all = &config_now(d->cfg)->policies;
    const bool named = rq->policy_name.data != NULL;
    rq->policy = rq->of_node ? NULL : policy_find(all, named ? rq->policy_name : slice_str(POLICY_DEFAULT));
    if (rq->policy == NULL && named) {
        return err_set(err, ERR_INVALID, "there is no policy \"%.*s\"",
                       (int)(rq->policy_name.len < POLICY_NAME ? rq->policy_name.len : POLICY_NAME),
                       rq->policy_name.data);
    }
    rq->policy = rq->policy != NULL ? rq->policy : &policy_plain;
    return rq->policy->n_group_caps == 0 || rq->kind == REQUEST_WHY || rq->n_groups > 0
               ? 0
               : err_set(err, ERR_INVALID, "policy \"%s\" caps groups: expected PAIRS", rq->policy->name);
}

int request_check_also(const struct request *rq, struct err *err)
{
    char id[ID_MAX];
    for (size_t i = 0; rq->policy != NULL && i < rq->policy->n_also; i++) {
        const size_t len = policy_also_user(rq->policy, i, rq->user, id);
        if (len > ID_MAX) {
            const struct slice name = policy_also(rq->policy, i);
            return err_set(err, ERR_INVALID, "also %.*s of policy \"%s\" is a user of %zu bytes: an id has 1 to %d",
                           (int)name.len, name.data, rq->policy->name, len, ID_MAX);
        }
    }
    return 0;
}

int request_may_write(const struct dedup *d, const struct request *rq, struct err *err)
{
    bool writes =
        rq->deliver || rq->kind == REQUEST_PLAY || rq->kind == REQUEST_DELIVERY || changes_users(rq) || is_of_pool(rq);
    return writes ? role_may_write(d->role, err) : 0;
}
