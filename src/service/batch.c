#include "service/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "service/account.h"
#include "service/fields.h"
#include "service/impl.h"

/* --- the beginning --- */

static struct slice keep(char **at, struct slice text)
{
    struct slice kept = slice_of(*at, text.len);
    if (text.len > 0) {
        memcpy(*at, text.data, text.len);
    }
    *at += text.len;
    return kept;
}

static size_t bytes_of(const struct slice *texts, size_t n)
{
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += texts[i].len;
    }
    return bytes;
}

/* All that does not go by the user. Finds the pools, or hashes the items, in the loop's own memory. */
static int check(struct service_loop *l, struct request *rq, size_t n_users, struct err *err)
{
    const char *of_one = fields_hidden(OF_FILTER_MANY, rq);
    if (of_one != NULL) {
        return err_set(err, ERR_INVALID, "%s is of one user, and many are asked about", of_one);
    }
    int code = account_check(rq->account, account_roles_for(rq), err);
    if (code == 0 && (n_users == 0 || n_users > BATCH_USERS_MAX)) {
        code = err_set(err, ERR_INVALID, "%zu users are given: expected 1 to %d", n_users, BATCH_USERS_MAX);
    }
    code = code == 0 ? request_check_question(rq, err) : code;
    code = code == 0 ? request_is_fresh(l->dedup, rq, err) : code;
    code = code == 0 ? request_find_policy(l->dedup, rq, err) : code;
    return code == 0 ? request_find_candidates(l, rq, err) : code;
}

static void hold_candidates(struct service_loop *l, struct batch *b, const struct request *asked, uint64_t *hashes,
                            uint64_t *grouped, struct slice *items, char **text)
{
    struct request *rq = &b->rq;
    if (asked->line != NULL) {
        b->line = *asked->line;
        for (size_t i = 0; i < b->line.n_pools; i++) {
            pool_hold(b->line.pools[i]);
            b->id_bytes += b->line.pools[i]->id_bytes;
        }
        rq->held = &b->line;
        return;
    }
    memcpy(hashes, l->hashes, asked->n * sizeof *hashes);
    for (size_t i = 0; i < asked->n; i++) {
        items[i] = keep(text, asked->items[i]);
        b->id_bytes += asked->items[i].len;
    }
    rq->items = items;
    rq->known = hashes;
    if (asked->grouped != NULL) {
        memcpy(grouped, asked->grouped, asked->n * sizeof *grouped);
        rq->grouped = grouped;
    }
}

static void on_late(struct conn *c, struct request *late);

enum request_state batch_new(struct conn *c, struct request *asked, const struct slice *users, size_t n_users,
                             const struct batch_ops *ops, void *owner, struct batch **out)
{
    struct service_loop *l = service_of(c);
    struct err err = {0};
    if (check(l, asked, n_users, &err) < 0) {
        return request_fail(l, asked, &err);
    }
    size_t n = asked->line != NULL ? 0 : asked->n, n_grouped = asked->grouped != NULL ? n : 0;
    size_t size = sizeof(struct batch) + (n_users + n) * sizeof(struct slice) +
                  (n + asked->n_exclude + n_grouped) * sizeof(uint64_t) + bytes_of(users, n_users) +
                  bytes_of(asked->items, n);
    if (!conn_has_room(c, BUDGET_REPLY, size)) {
        conn_starve(c, BUDGET_REPLY, size);
        return REQUEST_WAIT;
    }
    struct batch *b = malloc(size);
    if (b == NULL) {
        err_set(&err, ERR_NOMEM, "out of memory for %zu users", n_users);
        return request_fail(l, asked, &err);
    }
    struct slice *own = (struct slice *)(b + 1), *items = own + n_users;
    uint64_t *hashes = (uint64_t *)(items + n);
    uint64_t *excluded = hashes + n;
    uint64_t *grouped = excluded + asked->n_exclude;
    char *text = (char *)(grouped + n_grouped);
    *b = (struct batch){.ops = ops, .owner = owner, .rq = *asked, .users = own, .n_users = n_users, .conn = c};
    b->loop = l;
    b->bytes = size;
    b->rq.done = on_late;
    b->rq.pools = NULL;
    b->rq.version = (struct slice){NULL, 0}; /* it was looked at */
    b->rq.items = b->rq.groups = NULL;
    b->rq.line = NULL;
    if (asked->n_exclude > 0) {
        memcpy(excluded, asked->excluded, asked->n_exclude * sizeof *excluded);
        b->rq.excluded = excluded;
        b->rq.exclude = NULL;
    }
    hold_candidates(l, b, asked, hashes, grouped, items, &text);
    for (size_t i = 0; i < n_users; i++) {
        own[i] = keep(&text, users[i]);
    }
    for (size_t i = 0; i < BATCH_LATE_MAX; i++) {
        b->late[i].batch = b;
    }
    *out = b;
    return REQUEST_LATE;
}

void batch_answer_max(const struct batch *b, size_t *n, size_t *id_bytes)
{
    *n = b->rq.n;
    *id_bytes = b->id_bytes;
    if (b->rq.has_limit && (uint64_t)b->rq.limit < *n) {
        *n = (size_t)b->rq.limit;
        *id_bytes = pool_ids_max(*n, *id_bytes);
    }
}

/* --- the users --- */

static void on_late(struct conn *c, struct request *late)
{
    (void)c;
    struct batch_late *slot = late->owner;
    slot->arrived = true;
    slot->batch->ops->wake(slot->batch);
}

static struct batch_late *free_slot(struct batch *b)
{
    struct batch_late *slot = b->late;
    while (slot->late != NULL) {
        slot++;
    }
    return slot;
}

static struct batch_late *arrived_slot(struct batch *b)
{
    for (size_t i = 0; b->n_late > 0 && i < BATCH_LATE_MAX; i++) {
        if (b->late[i].late != NULL && b->late[i].arrived) {
            return &b->late[i];
        }
    }
    return NULL;
}

static void tell(struct batch *b, size_t user, const struct request *rq)
{
    b->ops->told(b, user, rq);
    service_end(rq->late);
}

/* The next one. REQUEST_WAIT: nothing was done. */
static enum request_state ask_next(struct batch *b)
{
    struct batch_late *slot = free_slot(b);
    struct request rq = b->rq;
    rq.user = b->users[b->next];
    rq.owner = slot;
    rq.n = b->rq.held != NULL ? 0 : b->rq.n;
    rq.n_pools = b->rq.held != NULL ? b->line.n_pools : 0;
    enum request_state state = service_submit(b->conn, &rq);
    if (state == REQUEST_LATE) {
        *slot = (struct batch_late){.batch = b, .late = rq.late, .user = b->next};
        b->n_late++;
        b->late_bytes += rq.late_size;
    } else if (state == REQUEST_ANSWERED) {
        tell(b, b->next, &rq);
    }
    b->next += state != REQUEST_WAIT;
    return state;
}

static enum request_state resume(struct batch *b, struct batch_late *slot)
{
    struct request *late = slot->late;
    size_t size = late->late_size;
    slot->arrived = false;
    enum request_state state = service_resume(b->conn, late);
    if (state == REQUEST_WAIT) {
        slot->arrived = true;
    } else if (state == REQUEST_ANSWERED) {
        slot->late = NULL;
        b->n_late--;
        b->late_bytes -= size;
        tell(b, slot->user, late);
    }
    return state;
}

static void on_turn(struct loop_message *message, void *owner)
{
    (void)owner;
    struct batch *b = (struct batch *)((char *)message - offsetof(struct batch, turn));
    b->queued = false;
    if (b->ended) {
        free(b);
    } else {
        b->ops->wake(b);
    }
}

static void let_others(struct batch *b)
{
    if (!b->queued) {
        b->queued = true;
        b->turn.deliver = on_turn;
        loop_queue_post(&b->loop->worker->queue, &b->turn);
    }
}

enum batch_state batch_go_on(struct batch *b)
{
    const int64_t until = clock_work_us() + BATCH_TURN_US;
    for (;;) {
        struct batch_late *slot = arrived_slot(b);
        if (slot == NULL && b->next == b->n_users) {
            return b->n_late == 0 ? BATCH_DONE : BATCH_LATER;
        }
        if (slot == NULL && b->n_late == BATCH_LATE_MAX) {
            return BATCH_LATER;
        }
        enum batch_state room = b->ops->room(b);
        if (room != BATCH_DONE) {
            return room;
        }
        if ((slot != NULL ? resume(b, slot) : ask_next(b)) == REQUEST_WAIT) {
            return BATCH_WAIT;
        }
        if (clock_work_us() >= until) {
            let_others(b);
            return BATCH_LATER;
        }
    }
}

/* --- the end --- */

void batch_answered(const struct batch *b)
{
    char users[32];
    struct request rq = b->rq;
    rq.user = slice_of(users, (size_t)snprintf(users, sizeof users, "%zu users", b->n_users));
    rq.line = b->rq.held;
    service_answered(b->conn, &rq);
}

void batch_end(struct batch *b)
{
    if (b == NULL) {
        return;
    }
    for (size_t i = 0; i < BATCH_LATE_MAX; i++) {
        service_end(b->late[i].late);
    }
    for (size_t i = 0; i < b->line.n_pools; i++) {
        pool_release((struct pool *)b->line.pools[i]);
    }
    b->ended = true;
    if (!b->queued) {
        free(b);
    }
}
