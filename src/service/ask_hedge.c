/* A question between two tiers: the disk here, and another place (dedup/tier.h). When to ask which is hedge.h's; whose
 * answer comes first, and is good, is the question's.
 *
 * An offload thread that has the question goes on with it when the tier's answer was told, and writes what it finds
 * into the question's own query. So the tier's answer has memory of its own, and the question lives until that thread
 * is through (late_tell()).
 */
#include "base/clock.h"
#include "base/hash.h"
#include "service/question.h"
#include "store/feed.h"

static struct hedge *hedge_of(const struct service_loop *l)
{
    return &l->worker->pool->service->hedge;
}

/* --- whose time to ask the tier has not come --- */

static void on_time(uv_timer_t *timer);

static void set_timer(struct service_loop *l)
{
    if (l->hedged == NULL) {
        uv_timer_stop(&l->hedge_timer);
        return;
    }
    int64_t left = l->hedged->hedge.at_us - clock_real_us();
    uv_update_time(&l->worker->loop);
    uv_timer_start(&l->hedge_timer, on_time, left > 0 ? (uint64_t)left / 1000 + 1 : 0, 0);
}

/* They mostly come in order: looked for from behind. */
static void wait_until(struct service_loop *l, struct question *q, int64_t at_us)
{
    struct question_hedge *h = &q->hedge;
    struct question *before = l->hedged != NULL ? l->hedged->hedge.prev : NULL;
    h->at_us = at_us;
    while (before != NULL && before->hedge.at_us > at_us) {
        before = before == l->hedged ? NULL : before->hedge.prev;
    }
    h->next = before != NULL ? before->hedge.next : l->hedged;
    if (before != NULL) {
        before->hedge.next = q;
        h->prev = before;
    } else {
        h->prev = l->hedged != NULL ? l->hedged->hedge.prev : q;
        l->hedged = q;
    }
    (h->next != NULL ? h->next : l->hedged)->hedge.prev = q;
    if (before == NULL) {
        set_timer(l);
    }
}

static void wait_no_more(struct service_loop *l, struct question *q)
{
    struct question_hedge *h = &q->hedge;
    if (h->prev == NULL) {
        return;
    }
    bool first = l->hedged == q;
    (h->next != NULL ? h->next : l->hedged)->hedge.prev = h->prev;
    if (first) {
        l->hedged = h->next;
        set_timer(l);
    } else {
        h->prev->hedge.next = h->next;
    }
    h->next = h->prev = NULL;
}

/* --- the tier --- */

static void on_tier(struct tier_question *tier);

/* False: it can't be asked, or may not. */
static bool ask_tier(struct service_loop *l, struct question *q, bool refused)
{
    struct question_hedge *h = &q->hedge;
    const struct tier_ops *ops = l->tier_ops;
    struct err err = {0};
    char why[sizeof err.text];
    if (l->closing || !ops->is_well(l->dedup->tier, why, sizeof why)) {
        return false;
    }
    if (!hedge_may(hedge_of(l), service_counted(l->worker->pool, COUNT_QUESTIONS), refused)) {
        meter_count(&l->meter, COUNT_HEDGE_REFUSED, 1);
        return false;
    }
    if (asker_recent(l->asker, &h->answer, &h->left, &err) < 0) {
        return false;
    }
    h->tier = (struct tier_question){.done = on_tier,
                                     .user = q->query.user,
                                     .hashes = q->query.hashes,
                                     .n = q->query.n,
                                     .first_month = dedup_first_month(l->dedup),
                                     .unseen = h->tier.unseen};
    h->asked = ops->ask(l->tier, &h->tier);
    meter_count(&l->meter, COUNT_HEDGE_ASKED, h->asked);
    return h->asked;
}

/* While the disk has the question, and the tier can't be asked or has not all of it: it may be otherwise soon. */
static void try_again(struct service_loop *l, struct question *q)
{
    wait_until(l, q, clock_real_us() + HEDGE_AGAIN_US);
}

/* The disk has refused it, so the tier is the last hope. One that is well may have no room for it just now, or not the
 * user's newest state yet; and one that isn't may have been busy for a moment. False: err says why there is none. */
static bool hopes(struct service_loop *l, struct question *q, struct err *err)
{
    struct tier *tier = l->dedup->tier;
    char why[sizeof err->text];
    const bool well = l->tier_ops->is_well(tier, why, sizeof why);
    if (l->closing || q->hedge.tries == HEDGE_TRIES || (!well && !l->tier_ops->was_well(tier))) {
        err_set(err, ERR_BUSY, "%s", well ? "it has no room for more questions" : why);
        return false;
    }
    q->hedge.tries++;
    try_again(l, q);
    return true;
}

static void fail_both(struct question *q);

static void on_time(uv_timer_t *timer)
{
    struct service_loop *l = timer->data;
    int64_t now = clock_real_us();
    while (l->hedged != NULL && l->hedged->hedge.at_us <= now) {
        struct question *q = l->hedged;
        struct question_hedge *h = &q->hedge;
        wait_no_more(l, q);
        if (ask_tier(l, q, h->refused)) {
            continue;
        }
        if (!h->refused) {
            try_again(l, q);
        } else if (!hopes(l, q, &h->tier.err)) {
            fail_both(q);
        }
    }
    set_timer(l);
}

void question_hedge_close(struct service_loop *l)
{
    for (struct question *q = l->hedged; q != NULL;) {
        if (!q->hedge.refused) {
            q = q->hedge.next;
            continue;
        }
        wait_no_more(l, q);
        late_arrived(&q->late);
        q = l->hedged; /* the list may be another one now */
    }
}

/* Whether it knows all that memory here does not. */
static bool covers(const struct service_loop *l, const struct question *q)
{
    struct store *store = l->dedup->store;
    uint64_t to = q->hedge.tier.to;
    return to >= q->hedge.left && store->feed != NULL && store->feed->covers != NULL &&
           store->feed->covers(store, hash_user_key(l->dedup->seed, q->query.user), to);
}

static void win(struct service_loop *l, struct question *q)
{
    struct question_hedge *h = &q->hedge;
    h->answer.n_unseen = tier_unite(h->answer.unseen, h->tier.unseen, h->answer.n);
    h->answer.error = h->tier.error;
    h->won = true;
    meter_count(&l->meter, COUNT_HEDGE_WON, 1);
    if (h->disk) {
        hedge_disk_late(hedge_of(l), clock_real_us());
        late_tell(&q->late);
    } else {
        late_arrived(&q->late);
    }
}

/* The tier was the last hope of a question that the disk can't answer, or not whole. */
static void fail_both(struct question *q)
{
    struct err disk = q->late.err;
    if (q->code < 0) {
        err_set(&q->late.err, disk.code, "%s; and the second tier can't answer: %s", disk.text, q->hedge.tier.err.text);
    }
    late_arrived(&q->late);
}

static void on_tier(struct tier_question *tier)
{
    struct question *q = (struct question *)((char *)tier - offsetof(struct question, hedge.tier));
    struct service_loop *l = q->late.loop;
    struct question_hedge *h = &q->hedge;
    h->asked = false;
    if (tier->verdict == TIER_ANSWERED && covers(l, q)) {
        win(l, q);
        return;
    }
    if (tier->verdict == TIER_ANSWERED) {
        err_set(&tier->err, ERR_STALE, "it doesn't have all that was recorded");
    }
    meter_count(&l->meter, tier->verdict == TIER_FAILED ? COUNT_HEDGE_FAILED : COUNT_HEDGE_NOT_WHOLE, 1);
    if (h->refused) {
        struct err none = {0};
        bool soon = tier->verdict == TIER_FAILED ? h->failures++ < HEDGE_FAILURES : tier->err.code == ERR_STALE;
        if (!soon || !hopes(l, q, &none)) {
            fail_both(q);
        }
    } else if (!h->disk && l->closing) {
        q->code = err_set(&q->late.err, ERR_CLOSED, "the server is stopping");
        late_arrived(&q->late);
    } else {
        if (!h->disk) {
            h->disk = true;
            question_ask_disk(l, q);
        }
        if (!l->closing) {
            try_again(l, q);
        }
    }
}

/* --- the question's --- */

void question_hedge_init(struct question *q, uint8_t *bits, uint8_t *tier_bits)
{
    struct question_hedge *h = &q->hedge;
    h->may = q->query.kind == QUERY_FILTER && !q->wants && q->query.n <= ITEMS_MAX &&
             policy_is_plain(q->query.exposure.policy) && q->query.open == NULL;
    h->tier.unseen = tier_bits;
    h->answer = (struct query){
        .kind = QUERY_FILTER, .user = q->query.user, .hashes = q->query.hashes, .n = q->query.n, .unseen = bits};
}

bool question_hedge_begin(struct service_loop *l, struct question *q)
{
    struct question_hedge *h = &q->hedge;
    struct hedge_plan plan;
    h->disk = true;
    if (!h->may) {
        return true;
    }
    h->began_us = clock_real_us();
    hedge_begin(hedge_of(l), h->began_us, config_now(l->dedup->cfg)->hedge_after_ms, &plan);
    h->after_us = plan.after_us;
    if (!plan.first) {
        wait_until(l, q, h->began_us + h->after_us);
    } else if (ask_tier(l, q, false)) {
        h->disk = plan.disk;
    } else {
        try_again(l, q);
    }
    return h->disk;
}

void question_hedge_noted(struct service_loop *l, struct question *q, bool told)
{
    struct question_hedge *h = &q->hedge;
    int64_t now = clock_real_us();
    h->disk = false;
    if (h->may && q->code == ERR_IO) {
        hedge_disk_late(hedge_of(l), now);
    } else if (h->may && h->began_us != 0 && (q->code >= 0 || q->code == ERR_CORRUPT)) {
        hedge_disk_answered(hedge_of(l), now, now - h->began_us, h->after_us, told);
    }
}

bool question_hedge_wants(int code, const struct query *answer)
{
    return code == ERR_CORRUPT || code == ERR_IO || (code >= 0 && answer->damaged);
}

bool question_hedge_answered(struct service_loop *l, struct question *q)
{
    struct question_hedge *h = &q->hedge;
    question_hedge_noted(l, q, false);
    struct err none = {0};
    wait_no_more(l, q);
    if (h->may && question_hedge_wants(q->code, &q->query)) {
        h->refused = true;
        return !h->asked && !ask_tier(l, q, true) && !hopes(l, q, &none);
    }
    meter_count(&l->meter, COUNT_HEDGE_WASTED, h->asked);
    question_hedge_drop(l, q);
    return true;
}

void question_hedge_drop(struct service_loop *l, struct question *q)
{
    wait_no_more(l, q);
    if (q->hedge.asked) {
        l->tier_ops->drop(l->tier, &q->hedge.tier);
        q->hedge.asked = false;
    }
}
