/* Etcd, by its JSON gateway: keys and values are in base64, and numbers of 64 bits are strings.
 *
 * Etcd deletes a key at once when the lease that it was written with ends, or is revoked: a lock that is such a key
 * would be free while its holder still counts on it. So no lease holds the lock. It is two keys without one, what is
 * said of it and its holder, and only a transaction writes both that compares the revision of the first, and the
 * second: an etcd that has lost its data gives revisions again, and a late request must not meet one of these. The
 * entries of replicas are written with leases, since nothing is lost when one goes early.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "registry/lock.h"
#include "registry/lock_json.h"

struct keys {
    char key[LOCK_KEY], holder[LOCK_KEY];
};

static json_t *coded(const char *text)
{
    struct buf out = {0};
    json_t *string = NULL;
    if (text != NULL) {
        base64_add(&out, slice_str(text));
        string = out.len > 0 && buf_add(&out, "", 1) == 0 ? json_string(out.data) : NULL;
    }
    buf_free(&out);
    return string;
}

static json_t *coded_json(json_t *value)
{
    char *text = lock_text(value);
    json_t *string = coded(text);
    free(text);
    return string;
}

static json_t *number(uint64_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, n);
    return json_string(text);
}

static json_t *compare(const char *key, const char *target, const char *field, json_t *with)
{
    return json_pack("{s:o, s:s, s:s, s:o}", "key", coded(key), "target", target, "result", "EQUAL", field, with);
}

/* A key that is not there is at revision 0, and at version 0. holder: "": none. */
static char *write_text(const struct lease_state *s, const struct keys *k, const struct lease_value *value,
                        const char *holder)
{
    json_t *same =
        compare(k->holder, s->holder[0] != '\0' ? "VALUE" : "VERSION", s->holder[0] != '\0' ? "value" : "version",
                s->holder[0] != '\0' ? coded(s->holder) : number(0));
    json_t *as_read = compare(k->key, "MOD", "mod_revision", number(s->index));
    json_t *put =
        json_pack("{s:{s:o, s:o}}", "request_put", "key", coded(k->key), "value", coded_json(lock_value(value)));
    json_t *held = holder[0] != '\0'
                       ? json_pack("{s:{s:o, s:o}}", "request_put", "key", coded(k->holder), "value", coded(holder))
                       : json_pack("{s:{s:o}}", "request_delete_range", "key", coded(k->holder));
    if (s->index == 0) { /* whatever is left of it */
        json_decref(same);
        return lock_text(json_pack("{s:[o], s:[o, o]}", "compare", as_read, "success", put, held));
    }
    return lock_text(json_pack("{s:[o, o], s:[o, o]}", "compare", as_read, same, "success", put, held));
}

static bool request(const struct lease_state *s, const struct lease_self *self, const struct lock_group *group,
                    struct lock_request *out)
{
    struct keys k;
    char entry[LOCK_KEY + LEASE_SESSION + 32], last[LOCK_KEY];
    const char *id = s->session != NULL ? s->session->id : "";
    const char *path = "/v3/kv/range";
    snprintf(k.key, sizeof k.key, "unseen/%s/primary", group->name);
    snprintf(k.holder, sizeof k.holder, "unseen/%s/holder", group->name);
    snprintf(entry, sizeof entry, "unseen/%s/replicas/", group->name);
    snprintf(last, sizeof last, "unseen/%s/replicas0", group->name); /* what follows on '/' */
    out->method = "POST";
    switch (s->asked) {
    case LEASE_NEW_ENTRY:
        path = "/v3/lease/grant";
        out->body = lock_text(json_pack("{s:i}", "TTL", LEASE_TTL_MS / 1000));
        break;
    case LEASE_RENEW:
        path = "/v3/lease/keepalive";
        out->body = lock_text(json_pack("{s:s}", "ID", id));
        break;
    case LEASE_END:
        path = "/v3/lease/revoke";
        out->body = lock_text(json_pack("{s:s}", "ID", id));
        break;
    case LEASE_LOCK:
        path = "/v3/kv/txn";
        out->body = write_text(s, &k, &s->wanted, id);
        break;
    case LEASE_RELEASE:
        path = "/v3/kv/txn";
        out->body = write_text(s, &k, &s->value, "");
        break;
    case LEASE_PUBLISH:
        path = "/v3/kv/put";
        snprintf(entry + strlen(entry), sizeof entry - strlen(entry), "%016" PRIx64 "/%s", self->node, id);
        out->body = lock_text(
            json_pack("{s:o, s:o, s:s}", "key", coded(entry), "value", coded_json(lock_entry(s, self)), "lease", id));
        break;
    case LEASE_LIST:
        out->body = lock_text(json_pack("{s:o, s:o}", "key", coded(entry), "range_end", coded(last)));
        break;
    default:
        snprintf(last, sizeof last, "unseen/%s/primary0", group->name); /* both, at one moment */
        out->body = lock_text(json_pack("{s:o, s:o}", "key", coded(k.holder), "range_end", coded(last)));
    }
    snprintf(out->path, sizeof out->path, "%s", path);
    return out->body != NULL;
}

static bool take_holder(const json_t *kv, struct lease_answer *out)
{
    const char *text = json_string_value(json_object_get(kv, "value"));
    char id[LEASE_SESSION * 2];
    size_t n;
    if (text == NULL || strlen(text) >= sizeof id || !base64_read(slice_str(text), id, &n)) {
        return false;
    }
    id[n] = '\0';
    return lock_take_id(id, out->session);
}

/* The holder's key, if it is held, stands before the other. */
static bool take_keys(const json_t *kvs, struct lease_answer *out)
{
    size_t n = json_array_size(kvs);
    const json_t *last = n > 0 ? json_array_get(kvs, n - 1) : NULL;
    const char *name = json_string_value(json_object_get(last, "key"));
    char key[LOCK_KEY];
    size_t len = 0;
    bool given = name != NULL && strlen(name) < sizeof key && base64_read(slice_str(name), key, &len);
    if (n == 0 || !given || len < 8 || memcmp(key + len - 8, "/primary", 8) != 0) {
        return n <= 1; /* a holder of nothing */
    }
    json_t *content = lock_content(json_string_value(json_object_get(last, "value")));
    out->readable = lock_take_value(content, &out->value);
    json_decref(content);
    return n <= 2 && (n == 1 || take_holder(json_array_get(kvs, 0), out)) &&
           lock_take_number(json_object_get(last, "mod_revision"), &out->index) && out->index > 0;
}

/* Of a write, and as the new revision of what it wrote. */
static bool take_revision(const json_t *reply, struct lease_answer *out)
{
    const json_t *header = json_object_get(reply, "header");
    return lock_take_number(json_object_get(header, "revision"), &out->index) && out->index > 0;
}

static bool take(const struct lease_state *s, long status, const json_t *reply, struct lease_answer *out)
{
    const json_t *kvs = json_object_get(reply, "kvs"), *header = json_object_get(reply, "header");
    uint64_t n;
    /* Of a lease: it is not there. */
    const bool gone = status == HTTP_NOT_FOUND && json_is_object(reply);
    switch (s->asked) {
    case LEASE_NEW_ENTRY:
        return status == HTTP_OK && lock_take_id(json_string_value(json_object_get(reply, "ID")), out->session);
    case LEASE_RENEW: /* one that has ended has no TTL left */
        reply = json_object_get(reply, "result");
        out->said = lock_take_number(json_object_get(reply, "TTL"), &n) && n > 0 ? LEASE_YES : LEASE_NO;
        return status == HTTP_OK && json_is_object(reply);
    case LEASE_END:
        return status == HTTP_OK || gone;
    case LEASE_LOCK:
    case LEASE_RELEASE:
        out->said = json_is_true(json_object_get(reply, "succeeded")) ? LEASE_YES : LEASE_NO;
        return status == HTTP_OK && json_is_object(header) && (out->said == LEASE_NO || take_revision(reply, out));
    case LEASE_PUBLISH:
        out->said = gone ? LEASE_NO : LEASE_YES;
        return gone || (status == HTTP_OK && json_is_object(header));
    case LEASE_LIST:
        return status == HTTP_OK && json_is_object(header) && lock_take_rivals(kvs, "value", out);
    default:
        return status == HTTP_OK && json_is_object(header) && take_keys(kvs, out);
    }
}

static bool login(const char *user, const char *password, struct lock_request *out)
{
    out->method = "POST";
    snprintf(out->path, sizeof out->path, "/v3/auth/authenticate");
    out->body = lock_text(json_pack("{s:s, s:s}", "name", user, "password", password));
    return out->body != NULL;
}

static const char *take_login(long status, const json_t *reply)
{
    return status == HTTP_OK ? json_string_value(json_object_get(reply, "token")) : NULL;
}

const struct lock_kind lock_etcd = {
    .name = "etcd",
    .id = "etcd",
    .header = "Authorization: ",
    .promises = {.session = false, .expires = true, .poll_ms = 250},
    .request = request,
    .take = take,
    .login = login,
    .take_login = take_login,
};
