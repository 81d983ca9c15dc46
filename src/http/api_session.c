/* POST /v1/block, /v1/unblock: scroll sessions (dedup/sessions.h). Ids are strings, as the items of /v1/unseen are. */
#include <jansson.h>

#include "dedup/sessions.h"
#include "http/handlers.h"
#include "http/json.h"

struct change {
    struct slice session;
    struct json_ids ids;
};

typedef int64_t change_fn(struct sessions *all, struct slice name, struct session_ids *ids, struct err *err);

static enum http_outcome change(struct http_request *rq, const struct change *c, const char *answer, change_fn *make)
{
    struct err err = {0};
    struct session_ids ids;
    if (dedup_check_id("session", 0, c->session, &err) < 0 ||
        session_ids_read(rq->dedup->seed, c->ids.items, c->ids.n, rq->hashes, &ids, &err) < 0) {
        return http_fail(rq, &err);
    }
    int64_t changed = make(rq->dedup->sessions, c->session, &ids, &err);
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
