#include "http/submit.h"

#include <stdlib.h>
#include <string.h>

#include "http/batch.h"
#include "http/server.h"
#include "service/fields.h"

/* The body is gone when a late request goes on, so what the request points to is copied: its ids stand behind it. */
struct http_asked {
    struct request rq;
    struct request *late; /* what goes on instead, once it has arrived */
    http_tell *tell;
    bool arrived, recorded;
    size_t size;
    struct slice ids[];
};

static struct slice keep(char **at, struct slice text)
{
    struct slice kept = {NULL, 0};
    if (text.data != NULL) {
        memcpy(*at, text.data, text.len);
        kept = slice_of(*at, text.len);
        *at += text.len;
    }
    return kept;
}

static const struct slice *keep_all(char **at, struct slice *to, const struct slice *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = keep(at, from[i]);
    }
    return to;
}

static size_t length_of(const struct slice *texts, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        len += texts[i].len;
    }
    return len;
}

static struct http_asked *asked_new(struct http_request *rq, const struct request *asked, http_tell *tell)
{
    const size_t n = asked->hashed ? 1 : asked->n;
    struct request from = *asked;
    const struct slice *text;
    size_t size = sizeof(struct http_asked) + (n + asked->n_pools + asked->n_exclude) * sizeof(struct slice);
    for (size_t i = 0; (text = fields_text(&from, i)) != NULL; i++) {
        size += text->len;
    }
    size += length_of(asked->items, n) + length_of(asked->pools, asked->n_pools) +
            length_of(asked->exclude, asked->n_exclude);
    struct conn *c = &rq->conn->conn;
    struct http_asked *a = conn_has_room(c, BUDGET_REPLY, size) ? malloc(size + 1) : NULL;
    if (a == NULL) {
        return NULL;
    }
    struct slice *pools = a->ids + n, *exclude = pools + asked->n_pools;
    char *at = (char *)(exclude + asked->n_exclude);
    *a = (struct http_asked){.rq = *asked, .tell = tell, .size = size};
    for (size_t i = 0; (text = fields_text(&from, i)) != NULL; i++) {
        *fields_text(&a->rq, i) = keep(&at, *text);
    }
    a->rq.items = keep_all(&at, a->ids, asked->items, n);
    a->rq.pools = keep_all(&at, pools, asked->pools, asked->n_pools);
    a->rq.exclude = asked->n_exclude > 0 ? keep_all(&at, exclude, asked->exclude, asked->n_exclude) : NULL;
    return a;
}

/* --- the answer --- */

/* Whether the answer is there. */
static bool tell(struct http_request *rq, struct request *r, enum request_state state)
{
    struct http_asked *a = rq->asked;
    switch (state) {
    case REQUEST_WAIT:
        return false;
    case REQUEST_LATE:
        a->late = r->late;
        rq->conn->lent = a->size + r->late_size;
        return false;
    case REQUEST_RECORDED:
        a->tell(rq, r);
        a->recorded = true;
        return false;
    case REQUEST_ANSWERED:
        break;
    }
    if (r->err != NULL) {
        http_refuse(rq, r->err, request_is_write(r));
    } else {
        a->tell(rq, r);
    }
    service_answered(&rq->conn->conn, r);
    http_submit_end(rq);
    return true;
}

bool http_submit_go_on(struct http_request *rq)
{
    struct http_asked *a = rq->asked;
    struct conn *c = &rq->conn->conn;
    if (rq->batch != NULL) {
        return http_batch_go_on(rq);
    }
    if (a == NULL || a->recorded || (a->late != NULL && !a->arrived)) {
        return false;
    }
    a->arrived = false;
    struct request *r = a->late != NULL ? a->late : &a->rq;
    return tell(rq, r, a->late != NULL ? service_resume(c, r) : service_submit(c, r));
}

static void on_done(struct conn *c, struct request *late)
{
    (void)late;
    struct http_request *rq = &((struct http_conn *)c)->rq;
    rq->asked->arrived = true;
    if (c->state == CONN_OPEN && http_submit_go_on(rq)) {
        http_conn_answered(rq->conn);
    }
}

enum http_outcome http_submit(struct http_request *rq, const struct request *asked, enum op op, http_tell *how)
{
    struct http_asked *a = rq->asked = asked_new(rq, asked, how);
    if (a == NULL) {
        request_no_memory(rq);
        return HTTP_DONE;
    }
    a->rq.done = on_done;
    a->rq.account = rq->account;
    rq->conn->lent = a->size;
    rq->conn->conn.op = (int)op;
    return http_submit_go_on(rq) ? HTTP_DONE : HTTP_LATER;
}

void http_submit_recorded(struct http_request *rq, const struct err *err)
{
    if (err->code < 0) {
        http_refuse(rq, err, true);
    }
    http_submit_end(rq);
    if (rq->conn->conn.state == CONN_OPEN) {
        http_conn_answered(rq->conn);
    }
}

void http_submit_end(struct http_request *rq)
{
    struct http_asked *a = rq->asked;
    http_batch_end(rq);
    if (a != NULL) {
        service_end(a->late != NULL ? a->late : a->rq.late);
        free(a);
        rq->asked = NULL;
        rq->conn->lent = 0;
    }
}
