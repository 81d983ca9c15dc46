#include "registry/lease_wire.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"

enum {
    HTTP_OK = 200,
    HTTP_NOT_FOUND = 404,
    HTTP_CONFLICT = 409,
    REPLY_SHOWN = 120,
    VALUE_MAX = 2048,
    LEASE_MS_MAX = 3600 * 1000
};

/* --- requests --- */

static char *text_of(json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    return text;
}

static json_t *hex_of(uint64_t id)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, id);
    return json_string(text);
}

static char *value_text(const struct lease_value *v)
{
    json_t *value = json_pack("{s:o, s:s, s:I, s:b}", "node", hex_of(v->node), "address", v->address, "term",
                              (json_int_t)v->term, "in_step", v->in_step);
    if (value != NULL && v->lease_ms != 0 &&
        (json_object_set_new(value, "lease_ms", json_integer((json_int_t)v->lease_ms)) < 0 ||
         json_object_set_new(value, "beat", json_integer((json_int_t)v->beat)) < 0)) {
        json_decref(value);
        return NULL;
    }
    json_t *names = v->names.given && value != NULL ? json_array() : NULL;
    for (int i = 0; i < v->names.n && names != NULL; i++) {
        json_array_append_new(names, hex_of(v->names.nodes[i]));
    }
    if (v->names.given && value != NULL &&
        (json_object_set_new(value, "replicas", names) < 0 || json_array_size(names) != (size_t)v->names.n ||
         json_object_set_new(value, "seq", json_integer((json_int_t)v->names.seq)) < 0)) {
        json_decref(value);
        return NULL;
    }
    if (v->heir != 0 && value != NULL &&
        (json_object_set_new(value, "heir", hex_of(v->heir)) < 0 ||
         json_object_set_new(value, "next", json_integer((json_int_t)v->next)) < 0)) {
        json_decref(value);
        return NULL;
    }
    return text_of(value);
}

static char *session_text(const char *name, bool entry)
{
    char ttl[16], delay[16];
    snprintf(ttl, sizeof ttl, "%ds", LEASE_TTL_MS / 1000);
    snprintf(delay, sizeof delay, "%ds", entry ? 0 : LEASE_LOCK_DELAY_MS / 1000);
    return text_of(json_pack("{s:s, s:s, s:s, s:s}", "Name", name, "TTL", ttl, "LockDelay", delay, "Behavior",
                             entry ? "delete" : "release"));
}

/* One transaction: the key is as it was read, and is locked. "cas" with index 0: it isn't there. */
static char *lock_text(const struct lease_state *s, const char *key)
{
    struct buf coded = {0};
    char *value = value_text(&s->wanted), *text = NULL;
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
        text = text_of(s->over ? json_pack("[o, o, o]", as_read, out, lock) : json_pack("[o, o]", as_read, lock));
    }
    buf_free(&coded);
    free(value);
    return text;
}

static char *entry_text(const struct lease_state *s, const struct lease_self *self)
{
    return text_of(json_pack("{s:o, s:o, s:I, s:I, s:s, s:b}", "node", hex_of(self->node), "leader",
                             hex_of(s->unfit ? 0 : self->leader), "seq", (json_int_t)(s->unfit ? 0 : self->seq),
                             "vacancy", (json_int_t)s->vacancy, "address", self->address, "refuses", self->refuses));
}

int lease_request(const struct lease_state *s, const struct lease_self *self, const char *name,
                  struct lease_request *out, struct err *err)
{
    char key[LEASE_KEY], title[LEASE_KEY];
    const char *id = s->session != NULL ? s->session->id : "";
    bool has_body = true;
    snprintf(key, sizeof key, "unseen/%s/primary", name);
    snprintf(title, sizeof title, "unseen %s %016" PRIx64, name, self->node);
    *out = (struct lease_request){.method = "PUT"};
    switch (s->asked) {
    case LEASE_NEW_SESSION:
    case LEASE_NEW_ENTRY:
        snprintf(out->path, sizeof out->path, "/v1/session/create");
        out->body = session_text(title, s->asked == LEASE_NEW_ENTRY);
        break;
    case LEASE_LOCK:
        snprintf(out->path, sizeof out->path, "/v1/txn");
        out->body = lock_text(s, key);
        break;
    case LEASE_PUBLISH:
        /* A key of this session's own: that of the process before this one may still be locked. */
        snprintf(out->path, sizeof out->path, "/v1/kv/unseen/%s/replicas/%016" PRIx64 "/%s?acquire=%s", name,
                 self->node, id, id);
        out->body = entry_text(s, self);
        break;
    case LEASE_RENEW:
        snprintf(out->path, sizeof out->path, "/v1/session/renew/%s", id);
        has_body = false;
        break;
    case LEASE_RELEASE:
        snprintf(out->path, sizeof out->path, "/v1/kv/%s?release=%s", key, id);
        out->body = value_text(&s->value);
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
    return has_body && out->body == NULL ? err_set(err, ERR_NOMEM, "out of memory for a request to Consul") : 0;
}

/* --- answers --- */

/* It becomes part of paths. */
static bool take_id(const char *id, char out[LEASE_SESSION])
{
    size_t n = id != NULL ? strlen(id) : 0;
    if (n == 0 || n >= LEASE_SESSION || strspn(id, "0123456789abcdefABCDEF-") != n) {
        return false;
    }
    memcpy(out, id, n + 1);
    return true;
}

/* What a key holds: JSON in base64. NULL: something else. */
static json_t *content_of(const json_t *pair)
{
    const char *coded = json_string_value(json_object_get(pair, "Value"));
    char text[VALUE_MAX];
    size_t n = 0;
    if (coded == NULL || strlen(coded) > sizeof text || !base64_read((struct slice){coded, strlen(coded)}, text, &n)) {
        return NULL;
    }
    return json_loadb(text, n, 0, NULL);
}

static bool take_hex(const char *text, uint64_t *out)
{
    return strlen(text) == 16 && hex_read(text, 16, out);
}

/* None: of an older version. What can't be read names nobody. */
static void take_names(const json_t *content, struct lease_names *out)
{
    const json_t *names = json_object_get(content, "replicas"), *name;
    json_int_t seq = json_integer_value(json_object_get(content, "seq"));
    size_t i;
    *out = (struct lease_names){.given = names != NULL, .seq = seq > 0 ? (uint64_t)seq : 0};
    json_array_foreach(names, i, name)
    {
        const char *text = json_string_value(name);
        if (out->n < LEASE_RIVALS_MAX && text != NULL && take_hex(text, &out->nodes[out->n])) {
            out->n++;
        }
    }
}

/* An heir that can't be read is not passed over: what the key says is no primary's alone then. */
static bool take_heir(const json_t *content, struct lease_value *out)
{
    const json_t *heir = json_object_get(content, "heir");
    json_int_t next = json_integer_value(json_object_get(content, "next"));
    if (heir == NULL) {
        return true;
    }
    const char *text = json_string_value(heir);
    out->next = next > 0 ? (uint64_t)next : 0;
    return text != NULL && take_hex(text, &out->heir) && out->heir != 0 && out->next > out->term;
}

static bool take_value(json_t *content, struct lease_value *out)
{
    const char *node, *address;
    json_int_t term;
    int in_step;
    if (json_unpack(content, "{s:s, s:s, s:I, s:b}", "node", &node, "address", &address, "term", &term, "in_step",
                    &in_step) < 0 ||
        !take_hex(node, &out->node) || term < 1 || strlen(address) >= sizeof out->address) {
        return false;
    }
    out->term = (uint64_t)term;
    out->in_step = in_step != 0;
    snprintf(out->address, sizeof out->address, "%s", address);
    json_int_t lease_ms = json_integer_value(json_object_get(content, "lease_ms"));
    json_int_t beat = json_integer_value(json_object_get(content, "beat"));
    out->beat = beat > 0 ? (uint64_t)beat : 0;
    /* Without a beat it is of a version whose renewals didn't show. */
    out->lease_ms = out->beat != 0 && lease_ms > 0 && lease_ms < LEASE_MS_MAX ? (uint64_t)lease_ms : 0;
    take_names(content, &out->names);
    return take_heir(content, out);
}

static bool take_key(const json_t *pair, struct lease_answer *out)
{
    const char *session = json_string_value(json_object_get(pair, "Session"));
    json_int_t index = json_integer_value(json_object_get(pair, "ModifyIndex"));
    if (index < 1 || (session != NULL && session[0] != '\0' && !take_id(session, out->session))) {
        return false;
    }
    out->index = (uint64_t)index;
    json_t *content = content_of(pair);
    out->readable = take_value(content, &out->value);
    json_decref(content);
    return true;
}

/* An entry that can't be read counts as one that has not been published for this vacancy. */
static bool take_rivals(const json_t *pairs, struct lease_answer *out)
{
    size_t i;
    json_t *pair;
    json_array_foreach(pairs, i, pair)
    {
        struct lease_rival *r = &out->rivals[out->n];
        const char *node, *leader;
        json_int_t seq, vacancy;
        if (out->n == LEASE_RIVALS_MAX) {
            return false;
        }
        json_t *content = content_of(pair);
        *r = (struct lease_rival){0};
        if (json_unpack(content, "{s:s, s:s, s:I, s:I}", "node", &node, "leader", &leader, "seq", &seq, "vacancy",
                        &vacancy) < 0 ||
            !take_hex(node, &r->node) || !take_hex(leader, &r->leader) || seq < 0 || vacancy < 0) {
            *r = (struct lease_rival){0};
        } else {
            r->seq = (uint64_t)seq;
            r->vacancy = (uint64_t)vacancy;
            r->refuses = json_is_true(json_object_get(content, "refuses"));
        }
        out->n++;
        json_decref(content);
    }
    return true;
}

static bool take(const struct lease_state *s, long status, const json_t *reply, struct lease_answer *out)
{
    const json_t *last;
    json_int_t index;
    switch (s->asked) {
    case LEASE_NEW_SESSION:
    case LEASE_NEW_ENTRY:
        return status == HTTP_OK && take_id(json_string_value(json_object_get(reply, "ID")), out->session);
    case LEASE_RENEW:
        out->said = status == HTTP_NOT_FOUND ? LEASE_NO : LEASE_YES;
        return status == HTTP_OK || status == HTTP_NOT_FOUND;
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
        return status == HTTP_NOT_FOUND || (status == HTTP_OK && json_is_array(reply) && take_rivals(reply, out));
    default:
        return status == HTTP_NOT_FOUND || (status == HTTP_OK && take_key(json_array_get(reply, 0), out));
    }
}

void lease_reply(const struct lease_state *s, long status, struct slice reply, struct lease_answer *out,
                 struct err *cause)
{
    json_t *json = json_loadb(reply.data, reply.len, JSON_DECODE_ANY, NULL);
    *out = (struct lease_answer){.said = LEASE_YES};
    if (!take(s, status, json, out)) {
        struct slice shown = {reply.data, reply.len < REPLY_SHOWN ? reply.len : REPLY_SHOWN};
        *out = (struct lease_answer){.said = LEASE_LOST};
        err_set(cause, ERR_INVALID, "%s: status %ld: %s", lease_ask_name(s->asked), status, log_quote(shown));
    }
    json_decref(json);
}
