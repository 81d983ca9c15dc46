/* A question whose policy looks at other users, too (config/policy.h, `also`): one part after the other, each a
 * question of its own about one of them, by the same candidates and the same policy. Seen is what one of them says.
 * What goes by the question as a whole, such as its session and its limit, is done in the end.
 *
 * A part that is late makes the whole late: whoever asked is told whenever a part has arrived, and goes on with it, so
 * that the request's bytes are there. The whole has the deadline, and the memory of one part. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "service/question.h"
#include "service/sending.h"

struct also {
    struct late late;
    size_t next;          /* whom to ask about: 0: the user, then those of the policy, in order */
    struct request *part; /* not NULL: it is late, or has arrived */
    struct query sum;     /* of those before */
    struct buf sent;      /* of the user: what the caps of groups count */
    struct also_answer answer;
    int64_t deadline_us;
    char users[POLICY_ALSO][ID_MAX];
    struct pool_line line; /* of pools, which are held */
};

static void free_also(struct late *late)
{
    struct also *a = (struct also *)late;
    service_end(a->part);
    for (size_t i = 0; i < a->line.n_pools; i++) {
        pool_release((struct pool *)a->line.pools[i]);
    }
    sending_end(late->rq.sending);
    buf_free(&a->sent);
    free(a);
}

static bool take_back(struct late *late)
{
    struct also *a = (struct also *)late;
    late->cause = late_end(a->part);
    a->part = NULL;
    return true;
}

/* --- one of them --- */

static struct slice user_of(struct also *a, const struct request *rq, size_t i)
{
    return i == 0 ? rq->user
                  : slice_of(a->users[i - 1], policy_also_user(rq->policy, i - 1, rq->user, a->users[i - 1]));
}

/* Whoever asked goes on with the whole. */
static void on_part(struct conn *c, struct request *part)
{
    (void)c;
    struct also *a = part->owner;
    late_arrived(&a->late);
}

/* It goes by the user alone. */
static struct request part_of(struct also *a, const struct request *rq)
{
    return (struct request){.kind = rq->kind,
                            .account = rq->account,
                            .user = user_of(a, rq, a->next),
                            .items = rq->items,
                            .n = rq->n,
                            .line = rq->line,
                            .policy = rq->policy,
                            .known = a->sum.hashes,
                            .n_groups = rq->n_groups,
                            .grouped = a->late.rq.grouped,
                            .sent_to = a->next == 0 ? &a->sent : NULL,
                            .hashed = rq->hashed,
                            .first_month = rq->first_month,
                            .is_part = true,
                            .done = on_part,
                            .owner = a};
}

/* Where any of them isn't a mistake, none is; for as long as one hides. */
static void add_places(struct also *a, const struct request *part)
{
    struct query *sum = &a->sum;
    if (a->next == 0) {
        memcpy(sum->places, part->places, part->n_places * sizeof *sum->places);
        sum->n_places = part->n_places;
        return;
    }
    struct place also = {.kind = PLACE_ALSO, .user = part->user, .error = 1};
    bool always = false;
    for (size_t i = 0; i < part->n_places; i++) {
        const struct place *p = &part->places[i];
        always = always || p->until_ms == 0;
        also.error = p->error < also.error ? p->error : also.error;
        also.until_ms = p->until_ms > also.until_ms ? p->until_ms : also.until_ms;
    }
    also.until_ms = always ? 0 : also.until_ms;
    if (part->n_places > 0) {
        sum->places[sum->n_places++] = also;
    }
}

static void add_bits(struct also *a, const struct request *part)
{
    struct query *sum = &a->sum;
    if (a->next == 0) {
        memcpy(sum->unseen, part->unseen, bitmap_size(part->n));
        sum->n_unseen = part->n_unseen;
    } else {
        const size_t before = sum->n_unseen;
        sum->n_unseen = tier_unite(sum->unseen, part->unseen, part->n);
        a->answer.hidden[a->next - 1] = before - sum->n_unseen;
    }
    a->answer.error = part->error > a->answer.error ? part->error : a->answer.error;
    sum->error = sum->error + part->error < 1 ? sum->error + part->error : 1;
}

static enum request_state fail(struct service_loop *l, struct also *a, struct request *rq, const struct request *part)
{
    struct err err = *part->err;
    if (a->next > 0) {
        char which[sizeof "also " + POLICY_ALSO_TEXT];
        const struct slice name = policy_also(rq->policy, a->next - 1);
        snprintf(which, sizeof which, "also %.*s", (int)name.len, name.data);
        err_prefix(&err, "%s", which);
    }
    return request_fail(l, rq, &err);
}

/* --- all of them --- */

static enum request_state run(struct service_loop *l, struct also *a, struct request *rq)
{
    for (; a->part != NULL || a->next <= rq->policy->n_also; a->next++) {
        struct request own, *part = a->part;
        enum request_state state;
        if (part != NULL) {
            part->items = rq->items;
            state = service_resume(a->late.conn, part);
        } else {
            own = part_of(a, rq);
            part = &own;
            state = question_ask(l, a->late.conn, part);
        }
        a->part = part->late; /* it ends with the whole, or below */
        if (state == REQUEST_LATE) {
            a->late.rq.deadline_us = question_is_through(a->part) ? 0 : a->deadline_us;
            return late_leave(&a->late, rq);
        }
        if (part->err != NULL) {
            return fail(l, a, rq, part);
        }
        if (rq->kind == REQUEST_WHY) {
            add_places(a, part);
        } else {
            add_bits(a, part);
        }
        service_end(a->part);
        a->part = NULL;
    }
    struct err none = {0};
    rq->also = &a->answer;
    return question_finish(l, a->late.conn, rq, &a->sum, 0, &none);
}

static enum request_state go_on(struct service_loop *l, struct late *late)
{
    if (late->overdue) {
        struct err err = {0};
        err_set(&err, ERR_LATE, "not answered within %s: %s", late->limit, late->cause);
        return request_fail(l, &late->rq, &err);
    }
    return run(l, (struct also *)late, &late->rq);
}

enum request_state request_ask_also(struct service_loop *l, struct conn *c, struct request *rq)
{
    const size_t n_hashes = rq->line == NULL ? rq->n : 0, n_groups = rq->grouped != NULL ? n_hashes : 0;
    const size_t n_places = rq->kind == REQUEST_WHY ? 1 + PLACES_MAX + POLICY_ALSO : 0;
    enum request_state state;
    struct also *a = late_new(l, c, rq,
                              sizeof *a + n_places * sizeof(struct place) +
                                  (n_hashes + rq->n_exclude + n_groups) * sizeof(uint64_t) + bitmap_size(rq->n),
                              question_size_max(l, rq), &state);
    if (a == NULL) {
        return state;
    }
    struct place *places = (struct place *)(a + 1);
    uint64_t *hashes = (uint64_t *)(places + n_places), *excluded = hashes + n_hashes;
    uint64_t *grouped = excluded + rq->n_exclude;
    a->late.go_on = go_on;
    a->late.free = free_also;
    a->late.take_back = take_back;
    question_set_deadline(l, rq, &a->late);
    a->deadline_us = a->late.rq.deadline_us;
    a->sum = (struct query){.kind = (enum query_kind)rq->kind,
                            .hashes = n_hashes > 0 ? hashes : NULL,
                            .n = rq->n,
                            .exposure = question_exposure(l, rq),
                            .sent = &a->sent,
                            .unseen = (uint8_t *)(grouped + n_groups),
                            .places = places + 1};
    if (n_hashes > 0) {
        memcpy(hashes, rq->known != NULL ? rq->known : l->hashes, n_hashes * sizeof *hashes);
    }
    if (rq->n_exclude > 0) {
        memcpy(excluded, rq->excluded, rq->n_exclude * sizeof *excluded);
        rq->excluded = a->late.rq.excluded = excluded;
        a->late.rq.exclude = NULL;
    }
    if (n_groups > 0) {
        memcpy(grouped, rq->grouped, n_groups * sizeof *grouped);
        rq->grouped = a->late.rq.grouped = grouped;
        a->late.rq.groups = NULL;
    }
    if (rq->line != NULL) {
        a->line = *rq->line;
        for (size_t i = 0; i < a->line.n_pools; i++) {
            pool_hold(a->line.pools[i]);
        }
        rq->line = a->late.rq.line = &a->line;
        a->late.rq.pools = NULL;
    }
    rq->late = &a->late.rq;
    return run(l, a, rq);
}
