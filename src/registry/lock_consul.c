/* Consul's agent: sessions, and transactions of its keys. The key is locked by a session, which its server ends after
 * the TTL; then the key stays, free, for the lock delay. docs/registries.md has what its documentation promises. */

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "registry/lock.h"
#include "registry/lock_json.h"

/* --- requests --- */

static char *session_text(const char *name, bool entry)
{
    char ttl[16], delay[16];
    snprintf(ttl, sizeof ttl, "%ds", LEASE_TTL_MS / 1000);
    snprintf(delay, sizeof delay, "%ds", entry ? 0 : LEASE_LOCK_DELAY_MS / 1000);
    return lock_text(json_pack("{s:s, s:s, s:s, s:s}", "Name", name, "TTL", ttl, "LockDelay", delay, "Behavior",
                               entry ? "delete" : "release"));
}

/* One transaction: the key is as it was read, and is locked. "cas" with index 0: it isn't there. */
static char *txn_text(const struct lease_state *s, const char *key)
{
    struct buf coded = {0};
    char *value = lock_text(lock_value(&s->wanted)), *text = NULL;
    if (value != NULL) {
        base64_add(&coded, (struct slice){value, strlen(value)});
        buf_add(&coded, "", 1);
    }
    if (coded.len > 1) {
        json_t *lock = json_pack("{s:{s:s, s:s, s:s, s:s}}", "KV", "Verb", "lock", "Key", key, "Value", coded.data,
                                 "Session", s->session->id);
        json_t *as_read = s->index != 0 ? json_pack("{s:{s:s, s:s, s:I}}", "KV", "Verb", "check-index", "Key", key,
                                                    "Index", (json_int_t)s->index)
                                        : json_pack("{s:{s:s, s:s, s:s, s:i}}", "KV", "Verb", "cas", "Key", key,
                                                    "Value", coded.data, "Index", 0);
        json_t *out = s->over ? json_pack("{s:{s:s, s:s}}", "KV", "Verb", "delete", "Key", key) : NULL;
        text = lock_text(s->over ? json_pack("[o, o, o]", as_read, out, lock) : json_pack("[o, o]", as_read, lock));
    }
    buf_free(&coded);
    free(value);
    return text;
}

static bool request(const struct lease_state *s, const struct lease_self *self, const struct lock_group *group,
                    struct lock_request *out)
{
    char key[LOCK_KEY], title[LOCK_KEY];
    const char *name = group->name;
    const char *id = s->session != NULL ? s->session->id : "";
    bool has_body = true;
    snprintf(key, sizeof key, "unseen/%s/primary", name);
    snprintf(title, sizeof title, "unseen %s %016" PRIx64, name, self->node);
    out->method = "PUT";
    switch (s->asked) {
    case LEASE_NEW_SESSION:
    case LEASE_NEW_ENTRY:
        snprintf(out->path, sizeof out->path, "/v1/session/create");
        out->body = session_text(title, s->asked == LEASE_NEW_ENTRY);
        break;
    case LEASE_LOCK:
        snprintf(out->path, sizeof out->path, "/v1/txn");
        out->body = txn_text(s, key);
        break;
    case LEASE_PUBLISH:
        /* A key of this session's own: that of the process before this one may still be locked. */
        snprintf(out->path, sizeof out->path, "/v1/kv/unseen/%s/replicas/%016" PRIx64 "/%s?acquire=%s", name,
                 self->node, id, id);
        out->body = lock_text(lock_entry(s, self));
        break;
    case LEASE_RENEW:
        snprintf(out->path, sizeof out->path, "/v1/session/renew/%s", id);
        has_body = false;
        break;
    case LEASE_END:
        snprintf(out->path, sizeof out->path, "/v1/session/destroy/%s", id);
        has_body = false;
        break;
    case LEASE_RELEASE:
        snprintf(out->path, sizeof out->path, "/v1/kv/%s?release=%s", key, id);
        out->body = lock_text(lock_value(&s->value));
        break;
    case LEASE_LIST:
        out->method = "GET";
        snprintf(out->path, sizeof out->path, "/v1/kv/unseen/%s/replicas/?recurse=true&consistent=true", name);
        has_body = false;
        break;
    default:
        out->method = "GET";
        has_body = false;
        if (s->wait_ms > 0) {
            snprintf(out->path, sizeof out->path, "/v1/kv/%s?consistent=true&index=%" PRIu64 "&wait=%" PRId64 "ms", key,
                     s->index, s->wait_ms);
        } else {
            snprintf(out->path, sizeof out->path, "/v1/kv/%s?consistent=true", key);
        }
    }
    return !has_body || out->body != NULL;
}

/* --- answers --- */

static bool take_key(const json_t *pair, struct lease_answer *out)
{
    const char *session = json_string_value(json_object_get(pair, "Session"));
    json_int_t index = json_integer_value(json_object_get(pair, "ModifyIndex"));
    if (index < 1 || (session != NULL && session[0] != '\0' && !lock_take_id(session, out->session))) {
        return false;
    }
    out->index = (uint64_t)index;
    json_t *content = lock_content(json_string_value(json_object_get(pair, "Value")));
    out->readable = lock_take_value(content, &out->value);
    json_decref(content);
    return true;
}

static bool take(const struct lease_state *s, long status, const json_t *reply, struct lease_answer *out)
{
    const json_t *last;
    json_int_t index;
    switch (s->asked) {
    case LEASE_NEW_SESSION:
    case LEASE_NEW_ENTRY:
        return status == HTTP_OK && lock_take_id(json_string_value(json_object_get(reply, "ID")), out->session);
    case LEASE_RENEW:
        out->said = status == HTTP_NOT_FOUND ? LEASE_NO : LEASE_YES;
        return status == HTTP_OK || status == HTTP_NOT_FOUND;
    case LEASE_END:
        return status == HTTP_OK;
    case LEASE_LOCK:
        out->said = status == HTTP_CONFLICT ? LEASE_NO : LEASE_YES;
        last = json_object_get(reply, "Results"); /* one of each operation but a delete */
        last = json_array_get(last, json_array_size(last) > 0 ? json_array_size(last) - 1 : 0);
        index = json_integer_value(json_object_get(json_object_get(last, "KV"), "ModifyIndex"));
        out->index = index > 0 ? (uint64_t)index : 0;
        return status == HTTP_CONFLICT || (status == HTTP_OK && index > 0);
    case LEASE_RELEASE:
    case LEASE_PUBLISH:
        out->said = json_is_true(reply) ? LEASE_YES : LEASE_NO;
        return status == HTTP_OK && json_is_boolean(reply);
    case LEASE_LIST:
        return status == HTTP_NOT_FOUND ||
               (status == HTTP_OK && json_is_array(reply) && lock_take_rivals(reply, "Value", out));
    default:
        return status == HTTP_NOT_FOUND || (status == HTTP_OK && take_key(json_array_get(reply, 0), out));
    }
}

const struct lock_kind lock_consul = {
    .name = "Consul",
    .id = "consul",
    .header = "X-Consul-Token: ",
    .promises = {.session = true, .expires = true},
    .request = request,
    .take = take,
};
