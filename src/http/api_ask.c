/* POST /v1/unseen, /v1/unseen/{user}, /v1/why, GET /v1/users/{user}: questions; GET /v1/seed, for those who ask with
 * hashes. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

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
    buf_add(out, "]", 1);
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

bool question_read_form(struct http_request *rq, struct slice reply, enum question_form *form)
{
    for (*form = FORM_ITEMS; *form < QUESTION_FORMS; (*form)++) {
        if (reply.data == NULL || slice_eq(reply, slice_str(question_forms[*form]))) {
            return true;
        }
    }
    http_problem(rq, 400, "bad-request", "reply is \"%.*s\", expected \"items\", \"indexes\" or \"bitmap\"",
                 (int)(reply.len < 100 ? reply.len : 100), reply.data);
    return false;
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

/* Of items or of pools, whose lists share one place. */
bool question_take_candidates(struct http_request *rq, struct request *asked, const struct json_ids *items,
                              bool has_items, const struct json_ids *pools, bool has_pools)
{
    if (has_items == has_pools) {
        http_problem(rq, 400, "bad-request",
                     has_items ? "items and pools are both given, expected one of them"
                               : "the field items is missing, expected it or pools");
        return false;
    }
    asked->items = items->items;
    asked->n = items->n;
    asked->pools = pools->items;
    asked->n_pools = pools->n;
    return true;
}

enum http_outcome post_unseen(struct http_request *rq)
{
    struct request asked = {.kind = REQUEST_QUESTION};
    struct slice reply = {0};
    struct json_ids ids = {0}, pools = {0};
    bool has_items = false, has_pools = false;
    const struct json_field fields[] = {
        {"user", true, .id = &asked.user},
        {"items", false, .ids = &ids, .given = &has_items},
        {"pools", false, .ids = &pools, .given = &has_pools},
        {"pool_version", false, .id = &asked.version},
        {"session", false, .id = &asked.session},
        {"reply", false, .id = &reply},
        {"limit", false, .number = &asked.limit, .given = &asked.has_limit},
        {"deliver", false, .flag = &asked.deliver},
        {0},
    };
    if (!json_read(rq, fields)) {
        return HTTP_DONE;
    }
    enum http_outcome outcome = HTTP_DONE;
    if (question_read_form(rq, reply, &asked.form) &&
        question_take_candidates(rq, &asked, &ids, has_items, &pools, has_pools) &&
        (!has_pools || may_list(rq, &asked))) {
        outcome = http_submit(rq, &asked, OP_FILTER, tell_unseen);
    }
    return outcome;
}

/* --- hashes --- */

/* As limit of the body of a question: the service says what is wrong with it. */
static bool read_limit(struct http_request *rq, struct slice value, struct request *asked)
{
    char text[24] = "", *end = text;
    if (value.len > 0 && value.len < sizeof text) {
        memcpy(text, value.data, value.len);
        errno = 0;
        asked->limit = strtoll(text, &end, 10);
    }
    asked->has_limit = end != text && *end == '\0' && errno == 0;
    if (!asked->has_limit) {
        http_problem(rq, 400, "bad-request", "limit is '%.*s', expected a whole number",
                     (int)(value.len < 64 ? value.len : 64), value.data);
    }
    return asked->has_limit;
}

static bool read_flag(struct http_request *rq, struct slice value, bool *flag)
{
    *flag = slice_eq(value, slice_str("true"));
    if (!*flag && !slice_eq(value, slice_str("false"))) {
        http_problem(rq, 400, "bad-request", "deliver is '%.*s', expected true or false",
                     (int)(value.len < 64 ? value.len : 64), value.data);
        return false;
    }
    return true;
}

/* ?seed=1a2b3c4d&reply=indexes&limit=10. A session and deliver are read as well, for the service to refuse. */
static bool read_hash_options(struct http_request *rq, struct request *asked)
{
    struct slice name, value;
    size_t at = 0;
    bool good = true;
    int code = 0;
    while (good && (code = http_argument(rq, &at, &name, &value)) > 0) {
        if (slice_eq(name, slice_str("seed"))) {
            asked->seed = value;
        } else if (slice_eq(name, slice_str("reply"))) {
            good = question_read_form(rq, value, &asked->form);
        } else if (slice_eq(name, slice_str("limit"))) {
            good = read_limit(rq, value, asked);
        } else if (slice_eq(name, slice_str("session"))) {
            asked->session = value;
        } else if (slice_eq(name, slice_str("deliver"))) {
            good = read_flag(rq, value, &asked->deliver);
        } else {
            http_problem(rq, 400, "bad-request", "unknown argument '%.*s', expected seed, reply and limit",
                         (int)(name.len < 64 ? name.len : 64), name.data);
            good = false;
        }
    }
    if (code < 0) {
        http_problem(rq, 400, "bad-request", "the query holds a %% without two hex digits behind it");
    }
    return good && code == 0;
}

/* The user stands in the path, so it may be any bytes; the body is the hashes. */
enum http_outcome post_hashes(struct http_request *rq)
{
    struct request asked = {.kind = REQUEST_QUESTION,
                            .form = FORM_BITMAP,
                            .user = rq->param,
                            .hashed = true,
                            .items = &rq->body,
                            .n = rq->body.len / HASH_BYTES};
    return read_hash_options(rq, &asked) ? http_submit(rq, &asked, OP_FILTER, tell_unseen) : HTTP_DONE;
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
        char month[MONTH_TEXT];
        json_append(&places, json_pack("{s:s, s:f}", "place", place_name(&asked->places[i], month), "error",
                                       asked->places[i].error));
    }
    json_write(&rq->out, json_pack("{s:o, s:o, s:b, s:o}", "user", json_from_id(asked->user), "item",
                                   json_from_id(asked->items[0]), "seen", asked->n_places > 0, "places", places));
}

enum http_outcome post_why(struct http_request *rq)
{
    struct slice item = {0};
    struct request asked = {.kind = REQUEST_WHY, .items = &item, .n = 1};
    const struct json_field fields[] = {
        {"user", true, .id = &asked.user}, {"item", true, .id = &item}, {"session", false, .id = &asked.session}, {0}};
    if (!json_read(rq, fields)) {
        return HTTP_DONE;
    }
    enum http_outcome outcome = http_submit(rq, &asked, OP_WHY, tell_why);
    return outcome;
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
