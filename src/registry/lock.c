#include "registry/lock.h"

#include <string.h>

#include "base/log.h"

enum { REPLY_SHOWN = 120 };

int lock_request(const struct lock_kind *kind, const struct lease_state *s, const struct lease_self *self,
                 const char *name, struct lock_request *out, struct err *err)
{
    *out = (struct lock_request){.method = "GET"};
    return kind->request(s, self, name, out) ? 0
                                             : err_set(err, ERR_NOMEM, "out of memory for a request to %s", kind->name);
}

void lock_reply(const struct lock_kind *kind, const struct lease_state *s, long status, struct slice reply,
                struct lease_answer *out, struct err *cause)
{
    json_t *json = json_loadb(reply.data, reply.len, JSON_DECODE_ANY, NULL);
    *out = (struct lease_answer){.said = LEASE_YES};
    if (!kind->take(s, status, json, out)) {
        struct slice shown = {reply.data, reply.len < REPLY_SHOWN ? reply.len : REPLY_SHOWN};
        *out = (struct lease_answer){.said = LEASE_LOST};
        err_set(cause, ERR_INVALID, "%s: status %ld: %s", lease_ask_name(s->asked), status, log_quote(shown));
    }
    json_decref(json);
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
