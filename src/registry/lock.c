#include "registry/lock.h"

#include <string.h>

#include "base/log.h"

enum { REPLY_SHOWN = 160 };

static const struct lock_request nothing = {.method = "GET", .type = "application/json"};

static int made(const struct lock_kind *kind, bool good, struct err *err)
{
    return good ? 0 : err_set(err, ERR_NOMEM, "out of memory for a request to %s", kind->name);
}

int lock_request(const struct lock_kind *kind, const struct lease_state *s, const struct lease_self *self,
                 const struct lock_group *group, struct lock_request *out, struct err *err)
{
    *out = nothing;
    return made(kind, kind->request(s, self, group, out), err);
}

int lock_login(const struct lock_kind *kind, const char *user, const char *password, struct lock_request *out,
               struct err *err)
{
    *out = nothing;
    return made(kind, kind->login(user, password, out), err);
}

/* What it says in an error is more than its first bytes. */
static int refused(const char *what, long status, struct slice reply, const json_t *json, struct err *err)
{
    const char *message = json_string_value(json_object_get(json, "message"));
    struct slice shown = message != NULL ? slice_str(message) : reply;
    shown.len = shown.len < REPLY_SHOWN ? shown.len : REPLY_SHOWN;
    return err_set(err, ERR_INVALID, "%s: status %ld: %s", what, status, log_quote(shown));
}

void lock_reply(const struct lock_kind *kind, const struct lease_state *s, long status, struct slice reply,
                struct lease_answer *out, struct err *cause)
{
    json_t *json = json_loadb(reply.data, reply.len, JSON_DECODE_ANY, NULL);
    *out = (struct lease_answer){.said = LEASE_YES};
    if (!kind->take(s, status, json, out)) {
        *out = (struct lease_answer){.said = LEASE_LOST};
        refused(lease_ask_name(s->asked), status, reply, json, cause);
    }
    json_decref(json);
}

int lock_take_login(const struct lock_kind *kind, long status, struct slice reply, char secret[LOCK_SECRET],
                    struct err *err)
{
    json_t *json = json_loadb(reply.data, reply.len, JSON_DECODE_ANY, NULL);
    const char *given = kind->take_login(status, json);
    bool good = given != NULL && strlen(given) < LOCK_SECRET && strcspn(given, "\r\n") == strlen(given);
    int rc = 0;
    if (good) {
        memcpy(secret, given, strlen(given) + 1);
    } else {
        struct slice kept = status == HTTP_OK ? slice_str("no token") : reply;
        rc = refused("login", status, kept, json, err);
    }
    json_decref(json);
    return rc;
}

void lock_cause(const struct lock_kind *kind, const char *cause, char *out, size_t size)
{
    size_t n = 0;
    for (; *cause != '\0' && n + 1 < size; cause++) {
        if (*cause != '@') {
            out[n++] = *cause;
            continue;
        }
        for (const char *name = kind->name; *name != '\0' && n + 1 < size; name++) {
            out[n++] = *name;
        }
    }
    out[n] = '\0';
}
