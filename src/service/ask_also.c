/* A question whose policy looks at other users, too (config/policy.h, `also`), or one with RELAX: one part after the
 * other, each a question of its own about one of the users, by the same candidates and the same policy. Seen is what
 * one of them says. What goes by the question as a whole, such as its session and its limit, is done in the end.
 *
 * A part that is late makes the whole late: the asker is told whenever a part has arrived, and goes on with it, so
 * that the request's bytes are there. The whole has the deadline, and the memory of one part. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "service/question.h"
#include "service/sending.h"

enum { SENT_MAX = 1000 /* items of pools that others are about to send, and that may be relaxed */ };

struct also {
    struct late late;
    size_t next;          /* whom to ask about: 0: the user, then those of the policy, in order */
    struct request *part; /* not NULL: it is late, or has arrived */
    struct query sum;     /* of those before */
    struct buf sent;      /* of the user: what the caps of groups count; */
    struct buf others;    /* with RELAX, the same of the others */
    struct also_answer answer;
    int64_t deadline_us;
    struct relaxed *relaxed; /* room for max_relaxed */
    size_t max_relaxed;
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
    buf_free(&a->others);
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

/* The asker goes on with the whole. */
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
                            .relax = rq->relax,
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

/* Open is what no user's plays hide; an age counts for all. */
static void add_open(struct also *a, const struct request *part)
{
    struct query *sum = &a->sum;
    for (size_t i = 0; i < bitmap_size(part->n); i++) {
        sum->open[i] = a->next == 0 ? part->open[i] : (uint8_t)(sum->open[i] & part->open[i]);
    }
    for (size_t i = 0; i < part->n_ages && sum->n_ages < sum->max_ages; i++) {
        sum->ages[sum->n_ages++] = part->ages[i];
    }
    if (a->next > 0 && part->groups_sent != NULL) { /* without them their groups count as being sent */
        buf_add(&a->others, part->groups_sent->data, part->groups_sent->len);
    }
}

static void add_bits(struct also *a, const struct request *rq, const struct request *part)
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
    if (rq->relax) {
        add_open(a, part);
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

/* --- what is relaxed --- */

static int by_hash(const void *a, const void *b)
{
    const struct exposed_age *x = a, *y = b;
    return x->hash != y->hash ? (x->hash < y->hash ? -1 : 1) : (x->age_ms > y->age_ms) - (x->age_ms < y->age_ms);
}

static int by_age(const void *a, const void *b)
{
    const struct relaxed *x = a, *y = b;
    return x->age_ms != y->age_ms ? (x->age_ms > y->age_ms ? -1 : 1) : (x->at > y->at) - (x->at < y->at);
}

/* Of the newest delivery. -1: there is none. ages: sorted by hash. */
static int64_t age_of(const struct exposed_age *ages, size_t n, uint64_t hash)
{
    size_t from = 0, to = n;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (ages[middle].hash < hash) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from < n && ages[from].hash == hash ? ages[from].age_ms : -1;
}

static int by_group(const void *a, const void *b)
{
    const struct exposure_sent *x = a, *y = b;
    return x->group != y->group ? (x->group < y->group ? -1 : 1) : (x->age_ms > y->age_ms) - (x->age_ms < y->age_ms);
}

static struct exposure_sent *entries_of(const struct buf *sent, size_t *n)
{
    *n = sent->len / sizeof(struct exposure_sent);
    return (struct exposure_sent *)(void *)sent->data;
}

static void sort_groups(struct buf *sent)
{
    size_t n;
    struct exposure_sent *list = entries_of(sent, &n);
    if (n > 0) {
        qsort(list, n, sizeof *list, by_group);
    }
}

/* Of the group's newest delivery, as sorted. -1: there is none. */
static int64_t age_of_group(const struct buf *sent, uint64_t group)
{
    size_t from = 0, n;
    const struct exposure_sent *list = entries_of(sent, &n);
    for (size_t to = n; from < to;) {
        const size_t middle = from + (to - from) / 2;
        if (list[middle].group < group) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from < n && list[from].group == group ? list[from].age_ms : -1;
}

/* In the order in which they are answered: an item's own age counts, and where its group alone hides it, that of the
 * group. Returns how many there are. */
static size_t line_up(struct also *a, const struct request *rq, const struct query *q)
{
    size_t n = 0;
    sort_groups(&a->sent);
    sort_groups(&a->others);
    qsort(q->ages, q->n_ages, sizeof *q->ages, by_hash);
    for (size_t i = 0; i < rq->n && n < a->max_relaxed; i++) {
        if ((q->open[i / 8] & ~q->unseen[i / 8] & 0x80 >> i % 8) == 0) {
            continue;
        }
        const uint64_t hash = rq->line != NULL ? pool_line_hash(rq->line, i) : q->hashes[i];
        int64_t age_ms = sending_holds(rq->sending, hash) ? -1 : age_of(q->ages, q->n_ages, hash);
        if (age_ms < 0 && rq->grouped != NULL && !sending_holds(rq->sending, hash)) {
            const int64_t own = age_of_group(&a->sent, rq->grouped[i]),
                          other = age_of_group(&a->others, rq->grouped[i]);
            age_ms = own < 0 || (other >= 0 && other < own) ? other : own;
        }
        a->relaxed[n++] = (struct relaxed){age_ms, i};
    }
    qsort(a->relaxed, n, sizeof *a->relaxed, by_age);
    return n;
}

static bool is_chosen(const uint64_t *chosen, size_t n, uint64_t hash)
{
    size_t i = 0;
    while (i < n && chosen[i] != hash) {
        i++;
    }
    return i < n;
}

/* What the answer holds already, of each group. */
static int count_answered(struct service_loop *l, const struct request *rq, const struct query *q)
{
    int rc = exposure_groups_begin(&l->groups, NULL, 0);
    size_t i = request_next_unseen(rq, 0);
    for (size_t k = 0; k < rq->n_answer && rc == 0; k++, i = request_next_unseen(rq, i + 1)) {
        rc = exposure_groups_take(&l->groups, rq->grouped[i], q->hashes[i]);
    }
    return rc;
}

void question_relax(struct service_loop *l, struct request *rq, const struct query *q, uint64_t *chosen,
                    size_t *n_chosen)
{
    struct also *a = (struct also *)rq->late;
    const size_t missing = (size_t)rq->limit - rq->n_answer;
    const bool by_group = request_caps_groups(rq);
    const size_t n = missing > 0 && (!by_group || count_answered(l, rq, q) == 0) ? line_up(a, rq, q) : 0;
    size_t kept = 0;
    for (size_t i = 0; i < n && kept < missing; i++) {
        const size_t at = a->relaxed[i].at;
        const uint64_t hash = rq->line != NULL ? pool_line_hash(rq->line, at) : q->hashes[at];
        int64_t until_ms;
        if ((chosen != NULL && is_chosen(chosen, *n_chosen, hash)) ||
            (by_group && (exposure_groups_hide(&l->groups, &q->exposure, rq->grouped[at], &until_ms) ||
                          exposure_groups_take(&l->groups, rq->grouped[at], hash) < 0))) {
            continue;
        }
        if (chosen != NULL) {
            chosen[(*n_chosen)++] = hash;
        }
        a->relaxed[kept++] = a->relaxed[i];
    }
    rq->relaxed = a->relaxed;
    rq->n_relaxed = kept;
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
            add_bits(a, rq, part);
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
    const size_t n_users = 1 + rq->policy->n_also;
    const size_t n_ages = rq->relax ? n_users * question_ages_max(l) : 0, most = n_ages + SENT_MAX;
    const size_t n_relaxed = !rq->relax ? 0 : rq->line == NULL || rq->n < most ? rq->n : most;
    enum request_state state;
    struct also *a =
        late_new(l, c, rq,
                 sizeof *a + n_places * sizeof(struct place) + n_ages * sizeof(struct exposed_age) +
                     n_relaxed * sizeof(struct relaxed) + (n_hashes + rq->n_exclude + n_groups) * sizeof(uint64_t) +
                     (1 + rq->relax) * bitmap_size(rq->n),
                 question_size_max(l, rq), &state);
    if (a == NULL) {
        return state;
    }
    struct place *places = (struct place *)(a + 1);
    struct exposed_age *ages = (struct exposed_age *)(places + n_places);
    a->relaxed = (struct relaxed *)(ages + n_ages);
    a->max_relaxed = n_relaxed;
    uint64_t *hashes = (uint64_t *)(a->relaxed + n_relaxed), *excluded = hashes + n_hashes;
    uint64_t *grouped = excluded + rq->n_exclude;
    uint8_t *bits = (uint8_t *)(grouped + n_groups);
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
                            .unseen = bits,
                            .open = rq->relax ? bits + bitmap_size(rq->n) : NULL,
                            .ages = ages,
                            .max_ages = n_ages,
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
