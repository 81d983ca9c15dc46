/* GET and DELETE /v1/users/{user}. The user stands in the path, so it may be any bytes. */
#include <jansson.h>

#include "http/handlers.h"
#include "http/json.h"
#include "http/record.h"

static json_t *month_value(const struct history_month *m)
{
    char name[MONTH_TEXT];
    return json_pack("{s:s, s:I, s:I, s:f, s:b, s:b, s:I}", "month", month_name(m->month, name), "items",
                     (json_int_t)m->items, "bytes", (json_int_t)m->bytes, "error", m->error, "sealed", m->sealed,
                     "in_window", m->in_window, "expires", (json_int_t)m->expires_ms);
}

enum http_outcome get_user(struct http_request *rq)
{
    struct err err = {0};
    struct history h = {0};
    int known = dedup_check_id("user", 0, rq->param, &err);
    if (known == 0) {
        known = asker_history(rq->asker, rq->param, &h, &err);
    }
    if (known < 0) {
        return http_fail(rq, &err);
    }
    if (known == 0) {
        return http_problem(rq, 404, "unknown-user", "nothing is remembered of this user");
    }
    json_t *months = json_array();
    for (size_t i = 0; i < h.n_months; i++) {
        json_append(&months, month_value(&h.months[i]));
    }
    json_t *user = json_object();
    json_set_id(user, "user", rq->param);
    json_object_set_new(user, "months", months);
    json_object_set_new(user, "staged", json_integer((json_int_t)h.staged));
    json_object_set_new(user, "delivered", json_integer((json_int_t)h.delivered));
    json_object_set_new(user, "error", json_real(h.error));
    json_write(&rq->out, user);
    return HTTP_DONE;
}

struct forget_task {
    struct http_task task;
    struct store_forget forget; /* its ids stand behind it */
};

static void answer_forget(struct http_task *task, struct http_request *rq)
{
    const struct store_forget *forget = &((struct forget_task *)task)->forget;
    if (rq != NULL && forget->err.code < 0) {
        http_fail_write(rq, &forget->err);
    } else if (rq != NULL) {
        json_write(&rq->out, json_pack("{s:I}", "forgotten", (json_int_t)forget->answer));
    }
}

static void on_forgotten(struct store_forget *forget)
{
    http_task_done(forget->owner);
}

/* ?item=a&item=b */
static bool read_items(struct http_request *rq, size_t *n)
{
    struct slice name, value;
    size_t at = 0;
    int code;
    *n = 0;
    while ((code = http_argument(rq, &at, &name, &value)) > 0 && slice_eq(name, slice_str("item"))) {
        rq->items[(*n)++] = value; /* a line holds far fewer than ITEMS_MAX */
    }
    if (code < 0) {
        http_problem(rq, 400, "bad-request", "the query holds a %% without two hex digits behind it");
    } else if (code > 0) {
        http_problem(rq, 400, "bad-request", "unknown argument '%.*s', expected item", (int)name.len, name.data);
    }
    return code == 0;
}

enum http_outcome delete_user(struct http_request *rq)
{
    struct err err = {0};
    size_t n;
    if (!read_items(rq, &n)) {
        return HTTP_DONE;
    }
    if (dedup_check_id("user", 0, rq->param, &err) < 0 || dedup_check_items(rq->items, n, &err) < 0) {
        return http_fail(rq, &err);
    }
    size_t size = sizeof(struct forget_task) + dedup_forget_size(rq->param, rq->items, n);
    struct forget_task *t = http_task_new(rq, size, size, answer_forget);
    if (t == NULL) {
        return HTTP_DONE;
    }
    dedup_forget(rq->dedup, &t->forget, t + 1, rq->param, rq->items, n);
    t->forget.done = on_forgotten;
    t->forget.owner = &t->task;
    rq->dedup->store->ops->forget(rq->dedup->store, &t->forget);
    return HTTP_LATER;
}
