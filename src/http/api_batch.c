/* POST /v1/unseen:batch: one question about many users (service/batch.h). Its answers come in any order and are told in
 * that of the users; all that they may take is charged before the first is asked. */
#include "http/batch.h"

#include <stdio.h>
#include <stdlib.h>

#include "http/handlers.h"
#include "http/json.h"
#include "http/server.h"
#include "http/submit.h"
#include "service/batch.h"
#include "service/refusal.h"

enum {
    BESIDE_MAX = 64,                    /* of an answer: its braces and names */
    ERROR_MAX = REFUSAL_TEXT * 2 + 256, /* a problem */
};

struct http_batch {
    struct batch *all;
    struct buf text; /* the answers as they came */
    size_t most;     /* that they may take */
    struct {
        size_t at, len;
    } parts[]; /* of each user, in there */
};

/* --- the answers --- */

static void told(struct batch *b, size_t user, const struct request *rq)
{
    struct http_request *r = b->owner;
    struct http_batch *all = r->batch;
    struct buf *out = &all->text;
    size_t at = out->len;
    buf_addf(out, "{\"user\":");
    json_add_text(out, b->users[user]);
    if (rq->err != NULL) {
        buf_addf(out, ",\"error\":");
        http_add_problem(r, rq->err, out);
    } else {
        buf_add(out, ",", 1);
        question_add_answer(out, rq);
    }
    buf_add(out, "}", 1);
    all->parts[user].at = at;
    all->parts[user].len = out->len - at;
}

static enum batch_state room(struct batch *b)
{
    (void)b; /* it was seen to */
    return BATCH_DONE;
}

static void wake(struct batch *b)
{
    struct http_request *rq = b->owner;
    struct conn *c = &rq->conn->conn;
    if (c->state != CONN_OPEN) {
        return;
    }
    if (http_batch_go_on(rq)) {
        http_conn_answered(rq->conn);
    } else {
        conn_charge(c, rq->conn->lent + rq->out.cap);
    }
}

static const struct batch_ops ops = {room, told, wake};

static void write_all(struct http_request *rq)
{
    const struct http_batch *all = rq->batch;
    const struct request *asked = &all->all->rq;
    struct buf *out = &rq->out;
    char version[POOL_VERSION_TEXT];
    buf_add(out, "{", 1);
    if (asked->held != NULL && asked->form != FORM_ITEMS) { /* positions mean nothing without it */
        buf_addf(out, "\"pool_version\":\"%s\",", pool_version_text(asked->pool_version, version));
    }
    buf_addf(out, "\"answers\":[");
    for (size_t i = 0; i < all->all->n_users && !all->text.failed; i++) {
        if (i > 0) {
            buf_add(out, ",", 1);
        }
        buf_add(out, all->text.data + all->parts[i].at, all->parts[i].len);
    }
    buf_add(out, "]}\n", 3);
    out->failed = out->failed || all->text.failed;
}

bool http_batch_go_on(struct http_request *rq)
{
    struct http_batch *all = rq->batch;
    enum batch_state state = batch_go_on(all->all);
    rq->conn->lent = batch_held(all->all) + all->most;
    if (state != BATCH_DONE) {
        return false;
    }
    write_all(rq);
    rq->conn->conn.op = OP_FILTER_MANY;
    batch_answered(all->all);
    http_batch_end(rq);
    return true;
}

void http_batch_end(struct http_request *rq)
{
    struct http_batch *all = rq->batch;
    if (all != NULL) {
        batch_end(all->all);
        buf_free(&all->text);
        free(all);
        rq->batch = NULL;
        rq->conn->lent = 0;
    }
}

/* --- the question --- */

/* 0: more than may be listed, which is told. */
static size_t answers_max(struct http_request *rq, const struct batch *b)
{
    size_t n, id_bytes, user_bytes = 0;
    batch_answer_max(b, &n, &id_bytes);
    if (b->rq.form != FORM_BITMAP && n * b->n_users > ITEMS_MAX) {
        http_problem(
            rq, 400, "bad-request",
            "the answers may list %zu items, and over HTTP at most %d: ask with a limit, for bitmaps, or about "
            "fewer users",
            n * b->n_users, ITEMS_MAX);
        return 0;
    }
    for (size_t i = 0; i < b->n_users; i++) {
        user_bytes += question_answer_max(FORM_ITEMS, 0, b->users[i].len);
    }
    size_t one = question_answer_max(b->rq.form, n, id_bytes);
    return sizeof(struct http_batch) + user_bytes +
           b->n_users *
               (sizeof((struct http_batch *)NULL)->parts[0] + BESIDE_MAX + (one > ERROR_MAX ? one : ERROR_MAX));
}

/* Asks for the memory that answers may take. False: it is told why not. */
static bool begin(struct http_request *rq, struct batch *b)
{
    struct conn *c = &rq->conn->conn;
    size_t most = answers_max(rq, b);
    if (most == 0 ||
        !question_may_answer(rq, most, "the answers", "ask with a limit, for bitmaps, or about fewer users")) {
        return false;
    }
    struct http_batch *all = conn_has_room(c, BUDGET_REPLY, b->bytes + most)
                                 ? calloc(1, sizeof *all + b->n_users * sizeof all->parts[0])
                                 : NULL;
    if (all == NULL) {
        request_no_memory(rq);
        return false;
    }
    all->all = b;
    all->most = most;
    rq->batch = all;
    return true;
}

static enum http_outcome ask(struct http_request *rq, struct request *asked, const struct slice *users, size_t n_users)
{
    struct conn *c = &rq->conn->conn;
    struct batch *b;
    asked->account = rq->account;
    switch (batch_new(c, asked, users, n_users, &ops, rq, &b)) {
    case REQUEST_LATE:
        break;
    case REQUEST_ANSWERED:
        return http_refuse(rq, asked->err, false);
    default:
        request_no_memory(rq);
        return HTTP_DONE;
    }
    if (!begin(rq, b)) {
        batch_end(b);
        return HTTP_DONE;
    }
    c->op = OP_FILTER_MANY;
    return http_batch_go_on(rq) ? HTTP_DONE : HTTP_LATER;
}

enum http_outcome post_unseen_batch(struct http_request *rq)
{
    struct asked asked = {.rq = {.kind = REQUEST_QUESTION}};
    if (!json_read(rq, OF_FILTER_MANY, &asked) || !question_has_candidates(rq, &asked.rq)) {
        return HTTP_DONE;
    }
    return ask(rq, &asked.rq, asked.users, asked.n_users);
}
