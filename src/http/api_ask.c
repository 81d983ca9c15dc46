/* POST /v1/unseen, /v1/why: questions, answered on this thread. The rules are those of FILTER and WHY. */
#include <jansson.h>

#include "base/hash.h"
#include "http/handlers.h"
#include "http/json.h"
#include "http/record.h"

struct question {
    struct slice user;
    struct slice session; /* data NULL: none */
    struct json_ids ids;
    struct slice reply;
    int64_t limit;
    bool has_limit, deliver;
    enum { FORM_ITEMS, FORM_INDEXES, FORM_BITMAP, FORMS } form;
};

static bool is_unseen(const uint8_t *bits, size_t i)
{
    return (bits[i / 8] & (0x80 >> i % 8)) != 0;
}

static const char *const form_names[FORMS] = {"items", "indexes", "bitmap"};

static int check(struct question *q, struct err *err)
{
    while (q->reply.data != NULL && q->form < FORMS && !slice_eq(q->reply, slice_str(form_names[q->form]))) {
        q->form++;
    }
    if (q->form == FORMS) {
        return err_set(err, ERR_INVALID, "reply is \"%.*s\", expected \"items\", \"indexes\" or \"bitmap\"",
                       (int)(q->reply.len < 100 ? q->reply.len : 100), q->reply.data);
    }
    if (q->has_limit && q->form == FORM_BITMAP) {
        return err_set(err, ERR_INVALID, "limit can't be used with reply \"bitmap\"");
    }
    if (q->has_limit && q->limit < 1) {
        return err_set(err, ERR_INVALID, "limit is %lld, expected at least 1", (long long)q->limit);
    }
    if (q->deliver && !q->has_limit) {
        return err_set(err, ERR_INVALID, "deliver needs limit, of at most %d", DELIVER_MAX);
    }
    if (q->deliver && q->limit > DELIVER_MAX) {
        return err_set(err, ERR_INVALID, "deliver needs a limit of at most %d, got %lld", DELIVER_MAX,
                       (long long)q->limit);
    }
    int code = dedup_check_id("user", 0, q->user, err);
    if (code == 0 && q->session.data != NULL) {
        code = dedup_check_id("session", 0, q->session, err);
    }
    return code;
}

static enum http_outcome answer_bitmap(struct http_request *rq, const struct question *q)
{
    json_t *bits = json_base64(slice_of((const char *)rq->bits, (q->ids.n + 7) / 8));
    json_write(&rq->out, json_pack("{s:o}", form_names[q->form], bits));
    return HTTP_DONE;
}

/* Answers with the first `count` unseen ones, and gathers them at the beginning of items and hashes if they are to be
 * recorded. */
static enum http_outcome answer(struct http_request *rq, const struct question *q, size_t count)
{
    json_t *found = json_array();
    for (size_t i = 0, k = 0; k < count; i++) {
        if (!is_unseen(rq->bits, i)) {
            continue;
        }
        json_append(&found, q->form == FORM_INDEXES ? json_integer((json_int_t)i)
                                                    : json_incref(json_array_get(q->ids.array, i)));
        if (q->deliver) {
            rq->items[k] = rq->items[i];
            rq->hashes[k] = rq->hashes[i];
        }
        k++;
    }
    json_t *object = json_pack("{s:o}", form_names[q->form], found);
    if (q->deliver && count > 0) {
        return http_record(rq, STORE_DELIVERY, dedup_stamp(rq->dedup), q->user, rq->items, rq->hashes, count, object);
    }
    json_write(&rq->out, object);
    return HTTP_DONE;
}

static enum http_outcome ask(struct http_request *rq, struct question *q)
{
    struct err err = {0};
    size_t n_unseen = 0;
    if (check(q, &err) < 0 || dedup_hash_items(rq->dedup, q->ids.items, q->ids.n, rq->hashes, &err) < 0) {
        return http_fail(rq, &err);
    }
    if (asker_filter(rq->asker, q->user, rq->hashes, q->ids.n, rq->bits, &n_unseen, &err) < 0) {
        return http_fail(rq, &err);
    }
    if (q->session.data != NULL) {
        if (sessions_load(rq->dedup->sessions, q->session, rq->blocked, &err) < 0) {
            return http_fail(rq, &err);
        }
        n_unseen -= session_set_hide(rq->blocked, q->ids.items, rq->hashes, q->ids.n, rq->bits);
    }
    http_count(rq, COUNT_QUESTIONS, 1);
    http_count(rq, COUNT_CANDIDATES, q->ids.n);
    http_count(rq, COUNT_UNSEEN, n_unseen);
    http_count(rq, COUNT_FALSE_HITS, dedup_false_hits(asker_error(rq->asker), q->ids.n));
    http_count(rq, COUNT_OVER_ERROR_RATE, dedup_over_error_rate(rq->dedup, asker_error(rq->asker)));
    if (q->form == FORM_BITMAP) {
        return answer_bitmap(rq, q);
    }
    return answer(rq, q, q->has_limit && (size_t)q->limit < n_unseen ? (size_t)q->limit : n_unseen);
}

enum http_outcome post_unseen(struct http_request *rq)
{
    struct question q = {0};
    const struct json_field fields[] = {
        {"user", true, .id = &q.user},
        {"items", true, .ids = &q.ids},
        {"session", false, .id = &q.session},
        {"reply", false, .id = &q.reply},
        {"limit", false, .number = &q.limit, .given = &q.has_limit},
        {"deliver", false, .flag = &q.deliver},
        {0},
    };
    json_t *body = json_read(rq, fields);
    if (body == NULL) {
        return HTTP_DONE;
    }
    enum http_outcome outcome = ask(rq, &q);
    json_decref(body);
    return outcome;
}

/* Whether the session blocks the item: 1, 0 or an error. */
static int is_blocked(struct http_request *rq, struct slice session, struct slice item, struct err *err)
{
    int code = dedup_check_id("session", 0, session, err);
    if (code == 0) {
        code = sessions_load(rq->dedup->sessions, session, rq->blocked, err);
    }
    return code < 0 ? code : session_set_has(rq->blocked, item, hash_id(rq->dedup->seed, item));
}

static enum http_outcome explain(struct http_request *rq, struct slice user, struct slice item, struct slice session)
{
    struct err err = {0};
    struct place places[1 + PLACES_MAX] = {{.kind = PLACE_BLOCKED}};
    int found = dedup_check_id("user", 0, user, &err);
    if (found == 0) {
        found = dedup_check_id("item", 0, item, &err);
    }
    int blocked = found == 0 && session.data != NULL ? is_blocked(rq, session, item, &err) : found;
    if (blocked >= 0) {
        found = asker_why(rq->asker, user, hash_id(rq->dedup->seed, item), places + blocked, &err);
    }
    if (blocked < 0 || found < 0) {
        return http_fail(rq, &err);
    }
    found += blocked;
    json_t *list = json_array();
    for (int i = 0; i < found; i++) {
        char month[MONTH_TEXT];
        json_append(&list, json_pack("{s:s, s:f}", "place", place_name(&places[i], month), "error", places[i].error));
    }
    json_write(&rq->out, json_pack("{s:o, s:o, s:b, s:o}", "user", json_from_id(user), "item", json_from_id(item),
                                   "seen", found > 0, "places", list));
    return HTTP_DONE;
}

enum http_outcome post_why(struct http_request *rq)
{
    struct slice user = {0}, item = {0}, session = {0};
    const struct json_field fields[] = {
        {"user", true, .id = &user}, {"item", true, .id = &item}, {"session", false, .id = &session}, {0}};
    json_t *body = json_read(rq, fields);
    if (body == NULL) {
        return HTTP_DONE;
    }
    enum http_outcome outcome = explain(rq, user, item, session);
    json_decref(body);
    return outcome;
}
