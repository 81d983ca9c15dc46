/* POST /v1/block, /v1/unblock: scroll sessions (dedup/sessions.h). Ids are strings, as the items of /v1/unseen are. */
#include <jansson.h>

#include "dedup/sessions.h"
#include "http/handlers.h"
#include "http/json.h"

struct change {
    struct slice session;
    struct json_ids ids;
};

/* Into this thread's scratch memory. */
static uint32_t *read_numbers(struct http_request *rq, const struct json_ids *ids)
{
    uint32_t *numbers = (uint32_t *)rq->hashes;
    for (size_t i = 0; i < ids->n; i++) {
        if (!session_id(ids->items[i], &numbers[i])) {
            int shown = (int)(ids->items[i].len < 100 ? ids->items[i].len : 100);
            http_problem(rq, 400, "bad-request",
                         "ids[%zu] is \"%.*s\", expected a whole number from 0 to 4294967295, without sign or leading "
                         "zeros",
                         i, shown, ids->items[i].data);
            return NULL;
        }
    }
    return numbers;
}

static enum http_outcome change(struct http_request *rq, const struct change *c, const char *answer,
                                int64_t (*make)(struct sessions *all, struct slice name, uint32_t *ids, size_t n,
                                                struct err *err))
{
    struct err err = {0};
    if (dedup_check_id("session", 0, c->session, &err) < 0) {
        return http_fail(rq, &err);
    }
    uint32_t *numbers = read_numbers(rq, &c->ids);
    if (numbers == NULL) {
        return HTTP_DONE;
    }
    int64_t changed = make(rq->dedup->sessions, c->session, numbers, c->ids.n, &err);
    if (changed == ERR_FULL) {
        return http_problem(rq, 400, "bad-request", "%s", err.text); /* the session is, not the disk */
    }
    if (changed < 0) {
        return http_fail(rq, &err);
    }
    json_write(&rq->out, json_pack("{s:I}", answer, (json_int_t)changed));
    return HTTP_DONE;
}

enum http_outcome post_block(struct http_request *rq)
{
    struct change c = {0};
    const struct json_field fields[] = {{"session", true, .id = &c.session}, {"ids", true, .ids = &c.ids}, {0}};
    json_t *body = json_read(rq, fields);
    if (body == NULL) {
        return HTTP_DONE;
    }
    enum http_outcome outcome = change(rq, &c, "blocked", sessions_block);
    json_decref(body);
    return outcome;
}

/* Without ids it ends the session. */
enum http_outcome post_unblock(struct http_request *rq)
{
    struct change c = {0};
    const struct json_field fields[] = {{"session", true, .id = &c.session}, {"ids", false, .ids = &c.ids}, {0}};
    json_t *body = json_read(rq, fields);
    if (body == NULL) {
        return HTTP_DONE;
    }
    enum http_outcome outcome = change(rq, &c, "unblocked", sessions_unblock);
    json_decref(body);
    return outcome;
}
