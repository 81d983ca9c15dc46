/* POST /v1/played, /v1/delivered. A request is one batch; the stager gathers what comes at the same time into one
 * commit. Everything about it is checked before anything of it is recorded. */
#include <jansson.h>

#include "base/hash.h"
#include "http/handlers.h"
#include "http/json.h"
#include "http/record.h"

struct record_task {
    struct http_task task;
    struct store_batch batch;
    json_t *answer;
};

enum http_outcome http_fail_write(struct http_request *rq, const struct err *err)
{
    if (err->code == ERR_IO || err->code == ERR_READONLY) {
        return http_problem(rq, 500, "not-recorded", "not recorded: %s", err->text);
    }
    return http_fail(rq, err);
}

static void answer_record(struct http_task *task, struct http_request *rq)
{
    struct record_task *t = (struct record_task *)task;
    if (rq != NULL && t->batch.err.code < 0) {
        http_fail_write(rq, &t->batch.err);
    } else if (rq != NULL) {
        json_write(&rq->out, json_incref(t->answer));
    }
    json_decref(t->answer);
    buf_free(&t->batch.bytes);
}

static void on_recorded(struct store_batch *batch)
{
    http_task_done(batch->owner);
}

enum http_outcome http_record(struct http_request *rq, enum store_kind kind, int64_t at_ms, struct slice user,
                              const struct slice *items, const uint64_t *hashes, size_t n, json_t *answer)
{
    size_t held = sizeof(struct record_task);
    for (size_t i = 0; i < n; i++) {
        held += 2 * items[i].len;
    }
    struct record_task *t = http_task_new(rq, sizeof *t, held, answer_record);
    if (t == NULL) {
        json_decref(answer);
        return HTTP_DONE;
    }
    t->answer = answer;
    t->batch.done = on_recorded;
    t->batch.owner = &t->task;
    if (answer == NULL ||
        store_batch_add(&t->batch, kind, at_ms, hash_user_key(rq->dedup->seed, user), user, items, hashes, n) < 0) {
        err_set(&t->batch.err, ERR_NOMEM, "out of memory for %zu items", n);
        http_task_done(&t->task);
        return HTTP_LATER;
    }
    http_count(rq, kind == STORE_PLAY ? COUNT_PLAYS : COUNT_DELIVERIES, n);
    rq->dedup->store->ops->record(rq->dedup->store, &t->batch);
    return HTTP_LATER;
}

static enum http_outcome record(struct http_request *rq, enum store_kind kind)
{
    struct slice user = {0};
    struct json_ids ids = {0};
    int64_t given = 0, at;
    bool has_at = false, skewed = false;
    struct err err = {0};
    const struct json_field fields[] = {
        {"user", true, .id = &user},
        {"items", true, .ids = &ids},
        {kind == STORE_PLAY ? "at" : NULL, false, .number = &given, .given = &has_at},
        {0},
    };
    json_t *body = json_read(rq, fields);
    if (body == NULL) {
        return HTTP_DONE;
    }
    int code = dedup_check_id("user", 0, user, &err);
    if (code == 0 && has_at) {
        code = dedup_event_time(rq->dedup, given, &at, &skewed, &err);
        http_count(rq, COUNT_TIMES_REFUSED, code == ERR_RANGE);
    } else {
        at = dedup_stamp(rq->dedup);
    }
    if (code == 0) {
        code = dedup_hash_items(rq->dedup, ids.items, ids.n, rq->hashes, &err);
    }
    enum http_outcome outcome;
    if (code < 0) {
        outcome = http_fail(rq, &err);
    } else {
        http_count(rq, COUNT_SKEWED, skewed);
        outcome = http_record(rq, kind, at, user, ids.items, rq->hashes, ids.n,
                              json_pack("{s:I}", "recorded", (json_int_t)ids.n));
    }
    json_decref(body);
    return outcome;
}

enum http_outcome post_played(struct http_request *rq)
{
    return record(rq, STORE_PLAY);
}

enum http_outcome post_delivered(struct http_request *rq)
{
    return record(rq, STORE_DELIVERY);
}
