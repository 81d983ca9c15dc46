/* POST /v1/unseen, /v1/unseen/{user}, /v1/why, GET /v1/users/{user}: questions; GET /v1/seed, for those who ask with
 * hashes. */
#include <inttypes.h>
#include <jansson.h>

#include "base/hash.h"
#include "dedup/pools.h"
#include "http/handlers.h"
#include "http/server.h"
#include "http/submit.h"

void question_add_answer(struct buf *out, const struct request *asked)
{
    buf_addf(out, "\"%s\":", question_forms[asked->form]);
    if (asked->form == FORM_BITMAP) {
        json_add_base64(out, slice_of((const char *)asked->unseen, bitmap_size(asked->n)));
        return;
    }
    struct pool_line_walk walk = {0};
    size_t i = request_next_unseen(asked, 0);
    buf_add(out, "[", 1);
    for (size_t k = 0; k < asked->n_answer; k++, i = request_next_unseen(asked, i + 1)) {
        if (k > 0) {
            buf_add(out, ",", 1);
        }
        if (asked->form == FORM_INDEXES) {
            buf_addf(out, "%zu", i);
        } else {
            json_add_id(out, request_item(asked, i, &walk));
        }
    }
    for (size_t k = 0; k < asked->n_relaxed; k++) {
        if (asked->n_answer + k > 0) {
            buf_add(out, ",", 1);
        }
        if (asked->form == FORM_INDEXES) {
            buf_addf(out, "%zu", asked->relaxed[k].at);
        } else {
            walk = (struct pool_line_walk){0};
            json_add_id(out, request_item(asked, asked->relaxed[k].at, &walk));
        }
    }
    buf_add(out, "]", 1);
    if (asked->relax) {
        buf_addf(out, ",\"relaxed\":%zu", asked->n_relaxed);
    }
}

/* Positions in pools mean nothing without the version. */
static void tell_unseen(struct http_request *rq, const struct request *asked)
{
    char version[POOL_VERSION_TEXT];
    buf_add(&rq->out, "{", 1);
    question_add_answer(&rq->out, asked);
    if (asked->line != NULL && asked->form != FORM_ITEMS) {
        buf_addf(&rq->out, ",\"pool_version\":\"%s\"", pool_version_text(asked->pool_version, version));
    }
    buf_add(&rq->out, "}\n", 2);
}

size_t question_answer_max(enum question_form form, size_t n, size_t id_bytes)
{
    enum { ESCAPED = 6 }; /* bytes of JSON that a byte of text may take */
    enum { OF_ITEM = 16, OF_INDEX = 8 };
    return form == FORM_BITMAP    ? (bitmap_size(n) + 2) / 3 * 4
           : form == FORM_INDEXES ? n * OF_INDEX
                                  : id_bytes * ESCAPED + n * OF_ITEM;
}

bool question_may_answer(struct http_request *rq, size_t most, const char *what, const char *instead)
{
    struct err err;
    if (conn_check_reply(&rq->conn->conn, most, what, instead, &err) < 0) {
        http_refuse(rq, &err, false);
        return false;
    }
    return true;
}

/* What is listed takes some 100 bytes of memory an item, which a bitmap doesn't. */
static bool may_list(struct http_request *rq, const struct request *asked)
{
    size_t n, id_bytes;
    request_pools_answer(&rq->conn->conn, asked, &n, &id_bytes);
    if (asked->form == FORM_BITMAP || n <= ITEMS_MAX) {
        return question_may_answer(rq, question_answer_max(asked->form, n, id_bytes), "the answer",
                                   "ask with a limit, or for a bitmap");
    }
    http_problem(rq, 400, "bad-request",
                 "the answer may list %zu items, and over HTTP at most %d: ask with a limit, or for a bitmap", n,
                 ITEMS_MAX);
    return false;
}

bool question_has_candidates(struct http_request *rq, const struct request *asked)
{
    bool items = asked->n > 0, pools = asked->n_pools > 0;
    if (items == pools) {
        http_problem(rq, 400, "bad-request",
                     items ? "items and pools are both given, expected one of them"
                           : "the field items is missing, expected it or pools");
    }
    return items != pools;
}

enum http_outcome post_unseen(struct http_request *rq)
{
    struct asked asked = {.rq = {.kind = REQUEST_QUESTION}};
    if (!json_read(rq, OF_FILTER, &asked) || !question_has_candidates(rq, &asked.rq) ||
        (asked.rq.n_pools > 0 && !may_list(rq, &asked.rq))) {
        return HTTP_DONE;
    }
    return http_submit(rq, &asked.rq, OP_FILTER, tell_unseen);
}

/* --- hashes --- */

/* The user stands in the path, so it may be any bytes; the body is the hashes. */
enum http_outcome post_hashes(struct http_request *rq)
{
    struct asked asked = {.rq = {.kind = REQUEST_QUESTION,
                                 .form = FORM_BITMAP,
                                 .user = rq->param,
                                 .hashed = true,
                                 .items = &rq->body,
                                 .n = rq->body.len / HASH_BYTES}};
    return json_read_query(rq, OF_HASHES, &asked) ? http_submit(rq, &asked.rq, OP_FILTER, tell_unseen) : HTTP_DONE;
}

enum http_outcome get_seed(struct http_request *rq)
{
    char seed[24], fingerprint[16];
    snprintf(seed, sizeof seed, "%016" PRIx64, rq->dedup->seed);
    snprintf(fingerprint, sizeof fingerprint, "%08" PRIx32, hash_seed_fingerprint(rq->dedup->seed));
    json_write(&rq->out, json_pack("{s:s, s:s, s:s}", "hash", HASH_NAME, "seed", seed, "fingerprint", fingerprint));
    return HTTP_DONE;
}

/* --- one item, and one user --- */

static void tell_why(struct http_request *rq, const struct request *asked)
{
    json_t *places = json_array();
    for (size_t i = 0; i < asked->n_places; i++) {
        char name[PLACE_TEXT];
        json_t *place = json_pack("{s:o, s:f}", "place", json_from_id(place_name(&asked->places[i], name)), "error",
                                  asked->places[i].error);
        if (!policy_is_plain(asked->policy)) {
            const int64_t until_ms = asked->places[i].until_ms;
            json_object_set_new(place, "until", until_ms > 0 ? json_integer((json_int_t)until_ms) : json_null());
        }
        json_append(&places, place);
    }
    json_write(&rq->out, json_pack("{s:o, s:o, s:b, s:o}", "user", json_from_id(asked->user), "item",
                                   json_from_id(asked->items[0]), "seen", asked->n_places > 0, "places", places));
}

enum http_outcome post_why(struct http_request *rq)
{
    struct asked asked = {.rq = {.kind = REQUEST_WHY, .items = &asked.item, .n = 1}};
    return json_read(rq, OF_WHY, &asked) ? http_submit(rq, &asked.rq, OP_WHY, tell_why) : HTTP_DONE;
}

static void tell_exposure(struct http_request *rq, const struct request *asked)
{
    json_t *items = json_array();
    for (size_t i = 0; i < asked->n; i++) {
        const struct exposed *item = &asked->exposed[i];
        json_append(&items, item->times == 0 ? json_null()
                                             : json_pack("{s:i, s:I}", "count", (int)item->times, "seconds",
                                                         (json_int_t)(item->age_ms / 1000)));
    }
    json_write(&rq->out, json_pack("{s:o}", "exposure", items));
}

enum http_outcome post_exposure(struct http_request *rq)
{
    struct asked asked = {.rq = {.kind = REQUEST_EXPOSURE}};
    return json_read(rq, OF_EXPOSURE, &asked) ? http_submit(rq, &asked.rq, OP_EXPOSURE, tell_exposure) : HTTP_DONE;
}

static json_t *tell_month(const struct history_month *m)
{
    char name[MONTH_TEXT];
    return json_pack("{s:s, s:I, s:I, s:f, s:b, s:b, s:I}", "month", month_name(m->month, name), "items",
                     (json_int_t)m->items, "bytes", (json_int_t)m->bytes, "error", m->error, "sealed", m->sealed,
                     "in_window", m->in_window, "expires", (json_int_t)m->expires_ms);
}

static void tell_history(struct http_request *rq, const struct request *asked)
{
    const struct history *h = asked->history;
    if (h == NULL) {
        http_nothing(rq, "unknown-user", "nothing is remembered of this user");
        return;
    }
    json_t *months = json_array();
    for (size_t i = 0; i < h->n_months; i++) {
        json_append(&months, tell_month(&h->months[i]));
    }
    json_t *user = json_object();
    json_set_id(user, "user", asked->user);
    json_object_set_new(user, "months", months);
    json_object_set_new(user, "staged", json_integer((json_int_t)h->staged));
    json_object_set_new(user, "delivered", json_integer((json_int_t)h->delivered));
    json_object_set_new(user, "error", json_real(h->error));
    json_write(&rq->out, user);
}

/* The user stands in the path, so it may be any bytes. */
enum http_outcome get_user(struct http_request *rq)
{
    const struct request asked = {.kind = REQUEST_HISTORY, .user = rq->param};
    return http_submit(rq, &asked, OP_HISTORY, tell_history);
}
