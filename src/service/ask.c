/* Questions about a user: the store is asked. Where the answer is not at hand the request is late: the store may answer
 * later, a user with very many plays, or one who is on the disk only, is asked about on an offload thread, and one who
 * is still to be migrated is also asked about in the Redis that they come from, once it is known what is unseen here.
 *
 *   request_ask() -> [the store] -> [offload lanes] -> go_on(): [the old Redis] -> go_on(): question_finish()
 *
 * lane_for() alone decides who may not be asked about here.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "service/question.h"
#include "service/sending.h"

_Static_assert((int)REQUEST_QUESTION == QUERY_FILTER && (int)REQUEST_WHY == QUERY_WHY &&
                   (int)REQUEST_HISTORY == QUERY_HISTORY && (int)REQUEST_EXPOSURE == QUERY_EXPOSURE,
               "kinds of questions");

/* --- late --- */

static void free_question(struct late *late)
{
    struct question *q = (struct question *)late;
    for (size_t i = 0; i < q->line.n_pools; i++) {
        pool_release((struct pool *)q->line.pools[i]);
    }
    sending_end(late->rq.sending);
    buf_free(&q->sent);
    free(q->history.months);
    free(q);
}

static void on_through(struct read_through_question *read_through)
{
    late_arrived(&((struct question *)((char *)read_through - offsetof(struct question, read_through)))->late);
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
        q->code = err_set(&q->late.err, ERR_NOMEM, "out of memory");
    }
}

/* On an offload thread. */
static void look_aside(struct offload_job *job, struct asker *asker)
{
    struct question *q = (struct question *)((char *)job - offsetof(struct question, job));
    q->code = asker_ask(asker, &q->query, &q->late.err);
    keep_months(q);
}

/* Who is to be asked when an answer has that code. False: it is an answer. */
static bool lane_for(int code, enum offload_lane_name *lane)
{
    *lane = code == ERR_COLD ? OFFLOAD_COLD : OFFLOAD_LARGE;
    return code == ERR_COLD || code == ERR_LARGE;
}

static void on_offload(struct loop_message *message, void *owner);

static void put(struct service_loop *l, struct question *q, enum offload_lane_name lane)
{
    q->job = (struct offload_job){{NULL, on_offload}, l->worker, look_aside, lane};
    q->query.line = NULL; /* which the loop alone looks along */
    q->query.hide = NULL;
    q->query.enough = 0;
    q->code = err_set(&q->late.err, ERR_CLOSED, "the server is stopping"); /* unless the thread asks */
    meter_count(&l->meter, lane == OFFLOAD_COLD ? COUNT_COLD : COUNT_LARGE, 1);
    offload_put(&l->worker->pool->service->offload, &q->job);
}

void question_ask_disk(struct service_loop *l, struct question *q)
{
    put(l, q, OFFLOAD_COLD);
}

static void go_aside(struct service_loop *l, struct question *q, enum offload_lane_name lane)
{
    if (lane == OFFLOAD_LARGE) {
        q->hedge.may = false; /* it takes long here and there */
        question_hedge_drop(l, q);
    }
    if (question_hedge_begin(l, q)) {
        put(l, q, lane);
    }
}

/* The holder of the question is through with it, and a client waits. */
void question_answered(struct service_loop *l, struct question *q)
{
    enum offload_lane_name lane;
    if (lane_for(q->code, &lane)) {
        go_aside(l, q, lane);
    } else if (question_hedge_answered(l, q)) {
        late_arrived(&q->late);
    }
}

/* A large user who is cold as well goes from one lane to the other. */
static void on_offload(struct loop_message *message, void *owner)
{
    struct question *q = (struct question *)((char *)message - offsetof(struct question, job.message));
    struct service_loop *l = ((struct worker *)owner)->service;
    if (q->late.ended || q->late.told) {
        question_hedge_noted(l, q, true);
        late_arrived(&q->late);
    } else {
        question_answered(l, q);
    }
}

/* The store has answered. */
static void on_load(void *owner)
{
    struct question *q = owner;
    struct service_loop *l = q->late.loop;
    q->code = 0;
    if (question_slice(l, q)) {
        return;
    }
    if (q->code < 0) { /* before it was answered */
        asker_done(l->asker, q->load);
    } else {
        q->code = asker_end(l->asker, q->load, &q->query, &q->late.err);
    }
    q->load = NULL;
    keep_months(q);
    question_answered(l, q);
}

/* Where it waits for the store, or for its turn on an offload thread. */
static bool take_back(struct late *late)
{
    struct question *q = (struct question *)late;
    question_hedge_drop(late->loop, q);
    if (q->hedge.may && !q->hedge.disk) {
        late->cause = "the second tier is late";
        return true;
    }
    if (q->sliced != NULL) {
        late->cause = "its pools are large";
        return false;
    }
    if (q->load != NULL) {
        asker_drop(late->loop->asker, q->load);
        q->load = NULL;
        late->cause = "the store is late";
        return true;
    }
    bool waits = offload_take_back(&late->loop->worker->pool->service->offload, &q->job);
    if (q->job.lane == OFFLOAD_COLD) {
        late->cause = waits ? "other users are before whom the disk is late with" : "the disk is late";
    } else {
        late->cause = waits ? "other users with very many plays are before" : "the user has very many plays";
    }
    return waits;
}

static enum request_state go_on(struct service_loop *l, struct late *late);

/* Of the longest items that could be delivered. */
static size_t deliver_size(const struct request *rq)
{
    size_t size = 0;
    bool few = rq->n <= DELIVER_MAX && rq->line == NULL;
    for (size_t i = 0; i < rq->n && few; i++) {
        size += rq->items[i].len;
    }
    return (few ? size : (size_t)DELIVER_MAX * ID_MAX) + (rq->n_groups > 0 ? DELIVER_MAX * sizeof(uint64_t) : 0);
}

/* The hashes of a single pool stay where they are. */
static size_t copied_hashes(const struct request *rq)
{
    return rq->line != NULL && rq->line->n_pools == 1 ? 0 : rq->n;
}

static size_t copied_groups(const struct request *rq)
{
    return rq->grouped != NULL ? rq->n : 0;
}

static size_t named_items(const struct request *rq, bool wants)
{
    return rq->line != NULL && wants ? rq->n : 0;
}

/* Of what an answer is besides bits. */
static size_t places_size(const struct request *rq)
{
    return rq->kind == REQUEST_WHY        ? (1 + PLACES_MAX) * sizeof(struct place)
           : rq->kind == REQUEST_EXPOSURE ? rq->n * sizeof(struct exposed)
                                          : 0;
}

size_t question_ages_max(const struct service_loop *l)
{
    return (size_t)config_now(l->dedup->cfg)->delivered_max + READ_THROUGH_DELIVERED;
}

/* Of what the caps of groups count, which is made when the user was read. */
static size_t sent_size(const struct service_loop *l, const struct request *rq)
{
    return request_caps_groups(rq) ? (size_t)config_now(l->dedup->cfg)->delivered_max * sizeof(struct exposure_sent)
                                   : 0;
}

/* With what it delivers, which is recorded without asking again. */
static size_t question_size(const struct service_loop *l, const struct request *rq, bool wants)
{
    size_t bitmaps = (l->tier != NULL ? 5U : 3U) + rq->relax;
    size_t places = places_size(rq);
    return sizeof(struct question) + ASKER_LOAD_BYTES + places +
           (rq->relax ? question_ages_max(l) * sizeof(struct exposed_age) : 0) +
           (copied_hashes(rq) + rq->n_exclude + copied_groups(rq)) * sizeof(uint64_t) +
           named_items(rq, wants) * sizeof(struct slice) + bitmaps * bitmap_size(rq->n) + rq->user.len +
           (rq->deliver ? deliver_size(rq) : 0);
}

/* Whichever is earlier. 0: none. */
void question_set_deadline(const struct service_loop *l, const struct request *rq, struct late *late)
{
    int64_t timeout_ms = config_now(l->dedup->cfg)->question_timeout_ms;
    int64_t ours = timeout_ms > 0 ? clock_real_us() + timeout_ms * 1000 : 0, theirs = rq->deadline_us;
    const bool is_ours = theirs == 0 || (ours != 0 && ours < theirs);
    late->rq.deadline_us = is_ours ? ours : theirs;
    late->limit = is_ours ? "question_timeout" : "its deadline";
}

size_t question_size_max(const struct service_loop *l, const struct request *rq)
{
    return question_size(l, rq, true) + sent_size(l, rq);
}

static const uint64_t *hashes_of(const struct service_loop *l, const struct request *rq)
{
    return rq->known != NULL ? rq->known : l->hashes;
}

struct exposure question_exposure(const struct service_loop *l, const struct request *rq)
{
    struct exposure e = {0};
    if (!policy_is_plain(rq->policy) || rq->kind == REQUEST_EXPOSURE || rq->relax) {
        dedup_exposure(l->dedup, rq->policy, &e);
    }
    return e;
}

/* For one that is not answered at once. NULL: *state says why. */
static struct question *question_new(struct service_loop *l, struct conn *c, struct request *rq, bool wants,
                                     enum request_state *state)
{
    struct question *q = late_new(l, c, rq, question_size(l, rq, wants), sent_size(l, rq), state);
    if (q == NULL) {
        return NULL;
    }
    size_t bits = bitmap_size(rq->n);
    struct place *places = (struct place *)(q + 1);
    struct exposed_age *ages = (struct exposed_age *)(void *)((char *)places + places_size(rq));
    const size_t max_ages = rq->relax ? question_ages_max(l) : 0;
    struct slice *items = (struct slice *)(ages + max_ages);
    uint64_t *hashes = (uint64_t *)(items + named_items(rq, wants));
    uint64_t *excluded = hashes + copied_hashes(rq);
    uint64_t *grouped = excluded + rq->n_exclude;
    uint8_t *unseen = (uint8_t *)(grouped + copied_groups(rq));
    uint8_t *user = unseen + ((l->tier != NULL ? 5U : 3U) + rq->relax) * bits;
    q->late.go_on = go_on;
    q->late.free = free_question;
    q->late.take_back = take_back;
    if (!rq->is_part) { /* else it is the whole that has one */
        question_set_deadline(l, rq, &q->late);
    }
    q->seen = unseen + 2 * bits;
    q->wants = wants;
    q->query = (struct query){.kind = (enum query_kind)rq->kind,
                              .user = slice_of((char *)user, rq->user.len),
                              .hashes = hashes,
                              .n = rq->n,
                              .first_month = rq->first_month,
                              .exposure = question_exposure(l, rq),
                              .unseen = unseen,
                              .open = rq->relax ? user - bits : NULL,
                              .ages = ages,
                              .max_ages = max_ages,
                              .places = places + 1,
                              .history = &q->history,
                              .exposed = (struct exposed *)places,
                              .sent = &q->sent,
                              .elsewhere = wants ? unseen + bits : NULL};
    memcpy(user, rq->user.data, rq->user.len);
    if (rq->n_exclude > 0) {
        memcpy(excluded, rq->excluded, rq->n_exclude * sizeof *excluded);
        q->late.rq.excluded = excluded;
        q->late.rq.exclude = NULL;
    }
    if (rq->grouped != NULL) {
        memcpy(grouped, rq->grouped, rq->n * sizeof *grouped);
        q->late.rq.grouped = grouped;
        q->late.rq.groups = NULL;
    }
    if (rq->line != NULL) {
        question_hold_pools(q, hashes, named_items(rq, wants) > 0 ? items : NULL);
    } else {
        memcpy(hashes, hashes_of(l, rq), rq->n * sizeof *hashes);
    }
    if (l->tier != NULL) {
        question_hedge_init(q, unseen + 3 * bits, unseen + 4 * bits);
    }
    return q;
}

/* Asks the old Redis, once, about what is not seen here. False: there is nothing to ask, or it can't be asked. It has a
 * timeout of its own, and what is known here is an answer: no deadline passes meanwhile. */
static bool ask_through(struct service_loop *l, struct question *q, const struct slice *items)
{
    const uint8_t *asked = q->query.elsewhere;
    size_t n = q->query.n, i = 0;
    if (!q->wants || q->code < 0) {
        return false;
    }
    while (i < bitmap_size(n) && asked[i] == 0) {
        i++;
    }
    if (i == bitmap_size(n)) {
        return false;
    }
    q->wants = false;
    q->late.rq.deadline_us = 0;
    q->read_through = (struct read_through_question){
        .done = on_through, .exposure = &q->query.exposure, .n = n, .asked = asked, .seen = q->seen};
    items = q->items != NULL ? q->items : items;
    q->was_through = read_through_ask(l->read_through, &q->read_through, q->query.user, items);
    return q->was_through;
}

/* --- the end --- */

/* What was played there is not open; what was sent is, and has an age. */
static void unite_open(struct question *q)
{
    struct query *a = &q->query;
    const struct read_through_question *there = &q->read_through;
    for (size_t i = 0; i < bitmap_size(a->n); i++) {
        a->open[i] = (uint8_t)(a->open[i] & ~q->seen[i]);
    }
    for (size_t i = 0; i < there->n_delivered && a->n_ages < a->max_ages; i++) {
        a->ages[a->n_ages++] =
            (struct exposed_age){there->delivered[i], exposure_age(&a->exposure, there->delivered_ms[i])};
    }
}

/* Takes out what the old Redis has. */
static void unite(struct service_loop *l, struct question *q)
{
    struct query *a = &q->query;
    if (!q->was_through || q->code < 0) {
        return;
    }
    if (a->open != NULL) {
        unite_open(q);
    }
    if (a->kind == QUERY_FILTER) {
        a->n_unseen -= read_through_hide(l->read_through, &q->read_through, a->hashes, a->unseen);
        return;
    }
    uint8_t unseen = 0x80;
    if (a->n_places < PLACES_MAX && read_through_hide(NULL, &q->read_through, a->hashes, &unseen) > 0) {
        a->places[a->n_places++] = (struct place){.kind = PLACE_LEGACY};
    }
}

static void count(struct service_loop *l, const struct request *rq, const struct query *a)
{
    struct meter *m = &l->meter;
    meter_count(m, COUNT_QUESTIONS, 1);
    meter_count(m, COUNT_CANDIDATES, rq->n);
    meter_count(m, COUNT_UNSEEN, rq->n_unseen);
    meter_count(m, COUNT_FALSE_HITS, dedup_false_hits(a->error, rq->n));
    meter_count(m, COUNT_OVER_ERROR_RATE,
                dedup_over_error_rate(l->dedup, rq->also != NULL ? rq->also->error : a->error));
    if (!policy_is_plain(rq->policy)) {
        const struct policy_answer answer = {rq->policy, dedup_stamp(l->dedup), rq->n, rq->n - rq->n_unseen,
                                             rq->also != NULL ? rq->also->hidden : NULL};
        policy_meter_note(&l->worker->pool->service->policies, &config_now(l->dedup->cfg)->policies, &answer);
    }
}

static bool has_hash(const uint64_t *hashes, size_t n, uint64_t hash)
{
    size_t i = 0;
    while (i < n && hashes[i] != hash) {
        i++;
    }
    return i < n;
}

/* The caps of groups of a policy, applied to an answer. */
struct group_rule {
    struct service_loop *l;
    const struct exposure *exposure;
};

static int note_sent(void *arg, uint64_t hash, uint64_t group)
{
    return exposure_groups_take(&((const struct group_rule *)arg)->l->groups, group, hash);
}

static bool hides_group(void *arg, uint64_t group)
{
    const struct group_rule *rule = arg;
    int64_t until_ms;
    return exposure_groups_hide(&rule->l->groups, rule->exposure, group, &until_ms);
}

static int begin_groups(struct service_loop *l, const struct query *a)
{
    return exposure_groups_begin(&l->groups, (const struct exposure_sent *)(const void *)a->sent->data,
                                 a->sent->len / sizeof(struct exposure_sent));
}

/* The last test, in the order asked: with LIMIT what the answer holds already counts as sent. */
static int hide_groups(struct service_loop *l, const struct request *rq, struct query *a, struct err *err)
{
    const struct group_rule rule = {l, &a->exposure};
    size_t taken = 0;
    int rc = begin_groups(l, a);
    for (size_t i = 0; i < rq->n && rc == 0; i++) {
        if ((a->unseen[i / 8] & (0x80 >> i % 8)) == 0) {
            continue;
        }
        if (hides_group((void *)&rule, rq->grouped[i])) {
            bitmap_clear(a->unseen, i);
            a->n_unseen--;
        } else if (rq->has_limit && taken++ < (size_t)rq->limit) {
            rc = note_sent((void *)&rule, a->hashes[i], rq->grouped[i]);
        }
    }
    return rc < 0 ? err_set(err, rc, "out of memory for groups") : 0;
}

/* Behind n items that were chosen: each once, whatever else is about to send it. */
static size_t take_relaxed(struct service_loop *l, struct request *rq, const struct query *a, struct slice *items,
                           uint64_t *groups, uint64_t *chosen, size_t n)
{
    size_t all = n;
    question_relax(l, rq, a, chosen, &all);
    for (size_t i = 0; i < rq->n_relaxed; i++) {
        struct pool_line_walk walk = {0};
        const size_t at = rq->relaxed[i].at;
        items[n + i] = request_item(rq, at, &walk);
        groups[n + i] = rq->grouped != NULL ? rq->grouped[at] : 0;
        sending_take(rq->sending, chosen[n + i], groups[n + i], NULL);
    }
    return all;
}

/* Takes the first of what is unseen, and records it as delivered. Its memory was asked for before the question was.
 * What another answer of this moment has taken is hidden, unless the policy never minds what was sent. */
static enum request_state deliver(struct service_loop *l, struct conn *c, struct request *rq, const struct query *a)
{
    struct slice items[DELIVER_MAX];
    uint64_t chosen[DELIVER_MAX], groups[DELIVER_MAX];
    struct err err = {0};
    if (request_may_write(l->dedup, rq, &err) < 0) { /* no more, since it was asked */
        return request_fail(l, rq, &err);
    }
    const size_t most = rq->relax ? (size_t)rq->limit : rq->n_answer;
    if (sending_answer(rq->sending, most) < 0) {
        err_set(&err, ERR_NOMEM, "out of memory for %zu items", most);
        return request_fail(l, rq, &err);
    }
    struct pool_line_walk walk = {0};
    const bool again = request_sends_again(rq), by_group = request_caps_groups(rq);
    struct group_rule caps = {l, &a->exposure};
    const struct sending_rule rule = {note_sent, hides_group, &caps};
    bool failed = by_group && begin_groups(l, a) < 0;
    size_t n = 0;
    for (size_t i = request_next_unseen(rq, 0); n < rq->n_answer && i < rq->n && !failed;
         i = request_next_unseen(rq, i + 1)) {
        uint64_t hash = rq->line != NULL ? pool_line_hash(rq->line, i) : a->hashes[i];
        const uint64_t group = rq->grouped != NULL ? rq->grouped[i] : 0;
        const enum sending_taken taken = sending_take(rq->sending, hash, group, by_group ? &rule : NULL);
        failed = taken == SENDING_FAILS;
        if (taken == SENDING_TAKES || (taken == SENDING_HELD && again && !has_hash(chosen, n, hash))) {
            items[n] = request_item(rq, i, &walk);
            groups[n] = group;
            chosen[n++] = hash;
        } else {
            bitmap_clear(a->unseen, i);
            rq->n_unseen--;
        }
    }
    rq->n_answer = n;
    if (rq->relax && !failed) {
        n = take_relaxed(l, rq, a, items, groups, chosen, n);
    }
    rq->sent = sending_record(rq->sending);
    rq->sending = NULL;
    if (failed) {
        sent_recorded(rq->sent, false);
        err_set(&err, ERR_NOMEM, "out of memory for groups");
        return request_fail(l, rq, &err);
    }
    if (n == 0) {
        return REQUEST_ANSWERED;
    }
    c->op = OP_FILTER_DELIVER;
    const struct recorded r = {.kind = STORE_DELIVERY,
                               .at_ms = dedup_stamp(l->dedup),
                               .time = STORE_STAMPED,
                               .user = rq->user,
                               .items = items,
                               .hashes = chosen,
                               .groups = rq->grouped != NULL ? groups : NULL,
                               .n = n,
                               .sent = rq->sent};
    enum request_state state = request_record(l, c, rq, &r, true);
    if (state != REQUEST_RECORDED) {
        sent_recorded(rq->sent, false);
    }
    return state;
}

/* As what is unseen; but what is being sent stays open. */
static void hide_open(struct service_loop *l, struct request *rq, struct query *a)
{
    struct sending *sending = rq->sending;
    rq->sending = NULL;
    request_hide(l, rq, a->hashes, rq->session.data != NULL, 0, rq->n, a->open);
    rq->sending = sending;
}

bool question_is_through(const struct request *late)
{
    return ((const struct question *)late)->was_through;
}

enum request_state question_finish(struct service_loop *l, struct conn *c, struct request *rq, struct query *a,
                                   int code, struct err *err)
{
    bool blocks = rq->session.data != NULL && rq->kind != REQUEST_HISTORY, hidden = a->hide != NULL;
    if (code >= 0 && blocks && !hidden) {
        code = sessions_load(l->dedup->sessions, rq->session, &l->blocked, err);
    }
    if (code < 0) {
        return request_fail(l, rq, err);
    }
    if (rq->kind == REQUEST_HISTORY) {
        rq->history = a->known ? a->history : NULL;
        return REQUEST_ANSWERED;
    }
    if (rq->kind == REQUEST_EXPOSURE) {
        rq->exposed = a->exposed;
        return REQUEST_ANSWERED;
    }
    if (rq->kind == REQUEST_WHY) {
        bool blocked = blocks && session_set_has(&l->blocked, rq->items[0], a->hashes[0]);
        a->places[-1] = (struct place){.kind = PLACE_BLOCKED};
        rq->places = a->places - blocked;
        rq->n_places = a->n_places + blocked;
        return REQUEST_ANSWERED;
    }
    if (!hidden) {
        a->n_unseen -= request_hide(l, rq, a->hashes, blocks, 0, rq->n, a->unseen);
    }
    if (request_caps_groups(rq) && rq->sent_to != NULL) {
        if (buf_add(rq->sent_to, a->sent->data, a->sent->len) < 0) {
            err_set(err, ERR_NOMEM, "out of memory for groups");
            return request_fail(l, rq, err);
        }
    } else if (request_caps_groups(rq) && hide_groups(l, rq, a, err) < 0) {
        return request_fail(l, rq, err);
    }
    rq->n = a->line != NULL ? a->n_tested : rq->n;
    rq->unseen = a->unseen;
    rq->error = a->error;
    rq->n_unseen = rq->n_answer = a->n_unseen;
    if (rq->is_part) {
        rq->open = a->open;
        rq->ages = a->ages;
        rq->n_ages = a->n_ages;
        rq->groups_sent = request_caps_groups(rq) ? a->sent : NULL;
        return REQUEST_ANSWERED;
    }
    if (rq->has_limit && (uint64_t)rq->limit < rq->n_unseen) {
        rq->n_answer = (size_t)rq->limit;
    }
    count(l, rq, a);
    if (rq->relax) {
        hide_open(l, rq, a);
    }
    if (rq->deliver && (rq->n_answer > 0 || rq->relax)) {
        return deliver(l, c, rq, a);
    }
    if (rq->relax) {
        question_relax(l, rq, a, NULL, NULL);
    }
    return REQUEST_ANSWERED;
}

static enum request_state go_on(struct service_loop *l, struct late *late)
{
    struct question *q = (struct question *)late;
    struct request *rq = &late->rq;
    bool incomplete = q->hedge.refused && q->code >= 0; /* better than none */
    if (late->overdue && !incomplete) {
        struct err err = {0};
        err_set(&err, ERR_LATE, "not answered within %s: %s", late->limit, late->cause);
        return request_fail(l, rq, &err);
    }
    if (q->hedge.won) {
        struct err err = {0}; /* late->err may be an offload thread's still */
        return question_finish(l, late->conn, rq, &q->hedge.answer, 0, &err);
    }
    if (ask_through(l, q, rq->items)) {
        return late_leave(late, rq);
    }
    unite(l, q);
    return question_finish(l, late->conn, rq, &q->query, q->code, &late->err);
}

/* --- the beginning --- */

/* What is delivered takes memory, which is asked for before anything is. */
static bool may_deliver(struct service_loop *l, struct conn *c, const struct request *rq)
{
    return recorder_has_room(l, c, deliver_size(rq));
}

/* The store answers later (load), or an offload lane is to. q NULL: it was not made before. */
static enum request_state leave(struct service_loop *l, struct conn *c, struct request *rq, struct question *q,
                                struct asker_load *load, enum offload_lane_name lane)
{
    enum request_state state = REQUEST_LATE;
    q = q != NULL ? q : question_new(l, c, rq, false, &state);
    if (q == NULL) {
        if (load != NULL) {
            asker_drop(l->asker, load);
        }
        return state;
    }
    q->load = load;
    state = late_leave(&q->late, rq);
    if (load != NULL) {
        asker_on_done(load, on_load, q);
        question_hedge_begin(l, q);
        q->hedge.disk = true; /* it is at it already */
    } else {
        go_aside(l, q, lane);
    }
    return state;
}

/* They may stand anywhere in the request's bytes. */
static int take_hashes(struct service_loop *l, const struct request *rq, struct err *err)
{
    uint32_t wanted, own = hash_seed_fingerprint(l->dedup->seed);
    if (!rq->of_node && !hash_fingerprint_read(rq->seed, &wanted)) {
        return err_set(err, ERR_INVALID, "SEED is 8 lower-case hex digits, got '%.*s'",
                       (int)(rq->seed.len < 64 ? rq->seed.len : 64), rq->seed.data);
    }
    if (!rq->of_node && wanted != own) {
        return err_set(err, ERR_SEED, "the hashes were made with the seed %08" PRIx32 ", and here it is %08" PRIx32,
                       wanted, own);
    }
    memcpy(l->hashes, rq->items[0].data, rq->n * HASH_BYTES);
    for (size_t i = 0; i < rq->n; i++) {
        l->hashes[i] = le64toh(l->hashes[i]);
    }
    return 0;
}

static int hash_items(struct service_loop *l, const struct request *rq, struct err *err)
{
    if (rq->hashed) {
        return take_hashes(l, rq, err);
    }
    return dedup_hash_items(l->dedup, rq->items, rq->n, l->hashes, err);
}

/* Once a request: of what a batch, or a late question, has kept, only the hashes are left. */
static int hash_excluded(struct service_loop *l, struct request *rq, struct err *err)
{
    if (rq->exclude == NULL) {
        return 0;
    }
    if (dedup_hash_items(l->dedup, rq->exclude, rq->n_exclude, l->excluded, err) < 0) {
        err_prefix(err, "EXCLUDE");
        return err->code;
    }
    hash_sort(l->excluded, rq->n_exclude);
    rq->excluded = l->excluded;
    return 0;
}

int request_find_candidates(struct service_loop *l, struct request *rq, struct err *err)
{
    int code = rq->n_pools > 0 ? request_find_pools(l, rq, err) : hash_items(l, rq, err);
    code = code < 0 ? code : hash_excluded(l, rq, err);
    return code < 0 ? code : request_hash_groups(l, l->dedup, rq, err);
}

/* Of the same kind, about the same candidates; a failed one is no matter. */
static void copy_answer(struct query *to, const struct query *from)
{
    to->n_unseen = from->n_unseen;
    to->error = from->error;
    to->damaged = from->damaged;
    memcpy(to->unseen, from->unseen, bitmap_size(from->line != NULL ? from->n_tested : from->n));
}

enum request_state question_ask(struct service_loop *l, struct conn *c, struct request *rq)
{
    struct err err = {0};
    enum request_state state;
    struct question *q = NULL;
    bool wants = rq->kind != REQUEST_HISTORY && rq->kind != REQUEST_EXPOSURE && !rq->of_node &&
                 read_through_wants(l->read_through, rq->user); /* before anything is looked up */
    if (wants && question_may_want(rq, &err) < 0) {
        return request_fail(l, rq, &err);
    }
    if (wants && (q = question_new(l, c, rq, true, &state)) == NULL) {
        return state;
    }
    if (question_is_long(rq) && !rq->has_limit) {
        return leave(l, c, rq, q, NULL, OFFLOAD_LARGE);
    }
    struct query own = {.kind = (enum query_kind)rq->kind,
                        .user = rq->user,
                        .hashes = hashes_of(l, rq),
                        .n = rq->n,
                        .first_month = rq->first_month,
                        .exposure = question_exposure(l, rq),
                        .unseen = l->bits,
                        .open = rq->relax ? l->open : NULL,
                        .ages = l->ages,
                        .max_ages = AGES_MAX,
                        .places = l->places + 1,
                        .history = &l->history,
                        .exposed = l->exposed,
                        .sent = &l->sent};
    struct query *a = q != NULL ? &q->query : &own;
    struct asker_load *load = NULL;
    struct question_line line;
    int code = q == NULL && rq->line != NULL ? question_line_up(l, rq, a, &line, &err) : 0;
    if (code < 0) {
        return request_fail(l, rq, &err);
    }
    code = asker_begin(l->asker, a, &load, &err);
    enum offload_lane_name lane;
    if (lane_for(code, &lane) || code == STORE_LATER) {
        return leave(l, c, rq, q, load, lane);
    }
    if (q == NULL && l->tier != NULL && rq->kind == REQUEST_QUESTION && question_hedge_wants(code, a)) {
        if ((q = question_new(l, c, rq, false, &state)) == NULL) {
            return state;
        }
        q->late.err = err;
        q->code = code;
        copy_answer(&q->query, a);
        if (!question_hedge_answered(l, q)) {
            return late_leave(&q->late, rq);
        }
    }
    if (q != NULL) {
        rq->late = &q->late.rq;
        q->code = code;
        if (ask_through(l, q, rq->items)) {
            return late_leave(&q->late, rq);
        }
    }
    return question_finish(l, c, rq, a, code, &err);
}

enum request_state request_ask(struct service_loop *l, struct conn *c, struct request *rq)
{
    struct err err = {0};
    if (rq->known == NULL && request_find_candidates(l, rq, &err) < 0) {
        return request_fail(l, rq, &err);
    }
    if (rq->deliver && !may_deliver(l, c, rq)) {
        return REQUEST_WAIT;
    }
    if (rq->deliver) {
        rq->sending =
            sending_begin(l->worker->pool->service->sendings, hash_user_key(l->dedup->seed, rq->user), rq->user);
        if (rq->sending == NULL) {
            err_set(&err, ERR_NOMEM, "out of memory for a question");
            return request_fail(l, rq, &err);
        }
    }
    const bool also = rq->relax || (!policy_is_plain(rq->policy) && rq->policy->n_also > 0);
    enum request_state state = also ? request_ask_also(l, c, rq) : question_ask(l, c, rq);
    sending_end(rq->sending); /* unless it is late, or what was taken is recorded */
    rq->sending = NULL;
    return state;
}
