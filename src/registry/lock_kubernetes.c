/* Kubernetes' Lease (coordination.k8s.io/v1). The lock is one Lease, unseen-NAME: its holder is holderIdentity, its
 * index the resourceVersion, and what the key holds is an annotation. A PUT with another resourceVersion than the
 * object's is refused (409), a POST of one that is there, too. Replicas have a Lease of their own each, which they
 * alone write, by server-side apply: it is made if it is not there. Nothing there ends by itself.
 *
 * renewTime and leaseDurationSeconds are written for people and tools, and not read: an observer counts from when it
 * first saw the resourceVersion, by its own clock, as client-go's leader election does.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "registry/lock.h"
#include "registry/lock_json.h"

#define API "coordination.k8s.io/v1"
#define LEASES "/apis/" API "/namespaces/%s/leases"
#define VALUE "unseen/value" /* the annotation */
#define GROUP "unseen/group" /* labels */
#define PART "unseen/part"

enum { DURATION_S = (LEASE_MS + LEASE_MARGIN_MS + 999) / 1000 };

static json_t *micro_time(int64_t wall_ms)
{
    char text[TIME_TEXT], micro[TIME_TEXT + 4];
    time_text(wall_ms, text);
    snprintf(micro, sizeof micro, "%.*s000Z", (int)strcspn(text, "Z"), text); /* to the microsecond, or it is refused */
    return json_string(micro);
}

/* holder: "": none. value: the reference is taken. s: it must be as that has read it; NULL: whatever it is. */
static char *lease_text(const struct lock_group *group, const char *title, const char *part, const char *holder,
                        const struct lease_state *s, json_t *value)
{
    char *text = lock_text(value), number[24];
    json_t *spec = json_pack("{s:i, s:o}", "leaseDurationSeconds", DURATION_S, "renewTime", micro_time(group->wall_ms));
    json_t *meta = json_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:s}}", "name", title, "namespace", group->space, "labels",
                             GROUP, group->name, PART, part, "annotations", VALUE, text != NULL ? text : "");
    bool good = text != NULL && spec != NULL && meta != NULL;
    if (good && holder[0] != '\0') {
        good = json_object_set_new(spec, "holderIdentity", json_string(holder)) == 0;
    }
    if (good && s != NULL && s->index != 0) {
        snprintf(number, sizeof number, "%" PRIu64, s->index);
        good = json_object_set_new(meta, "resourceVersion", json_string(number)) == 0 &&
               json_object_set_new(meta, "uid", json_string(s->mark)) == 0;
    }
    free(text);
    if (!good) {
        json_decref(spec);
        json_decref(meta);
        return NULL;
    }
    return lock_text(
        json_pack("{s:s, s:s, s:o, s:o}", "apiVersion", API, "kind", "Lease", "metadata", meta, "spec", spec));
}

static bool request(const struct lease_state *s, const struct lease_self *self, const struct lock_group *group,
                    struct lock_request *out)
{
    char all[LOCK_KEY + 64], title[LOCK_KEY], entry[LOCK_KEY + 24];
    const char *id = s->session != NULL ? s->session->id : "";
    bool has_body = true;
    snprintf(all, sizeof all, LEASES, group->space);
    snprintf(title, sizeof title, "unseen-%s", group->name);
    snprintf(entry, sizeof entry, "%s-%016" PRIx64, title, self->node);
    switch (s->asked) {
    case LEASE_LOCK:
        out->method = s->index == 0 ? "POST" : "PUT";
        snprintf(out->path, sizeof out->path, "%s%s%s", all, s->index == 0 ? "" : "/", s->index == 0 ? "" : title);
        out->body = lease_text(group, title, "lock", id, s, lock_value(&s->wanted));
        break;
    case LEASE_RELEASE:
        out->method = "PUT";
        snprintf(out->path, sizeof out->path, "%s/%s", all, title);
        out->body = lease_text(group, title, "lock", "", s, lock_value(&s->value));
        break;
    case LEASE_PUBLISH:
        out->method = "PATCH";
        out->type = "application/apply-patch+yaml"; /* which JSON is, too */
        snprintf(out->path, sizeof out->path, "%s/%s?fieldManager=unseen&force=true", all, entry);
        out->body = lease_text(group, entry, "replica", id, NULL, lock_entry(s, self));
        break;
    case LEASE_LIST:
        has_body = false;
        snprintf(out->path, sizeof out->path, "%s?labelSelector=unseen%%2Fgroup%%3D%s%%2Cunseen%%2Fpart%%3Dreplica",
                 all, group->name);
        break;
    case LEASE_END:
        out->method = "DELETE";
        has_body = false;
        snprintf(out->path, sizeof out->path, "%s/%s", all, entry);
        break;
    default:
        has_body = false;
        snprintf(out->path, sizeof out->path, "%s/%s", all, title);
    }
    return !has_body || out->body != NULL;
}

static json_t *annotation(const json_t *lease)
{
    const json_t *meta = json_object_get(lease, "metadata");
    const char *text = json_string_value(json_object_get(json_object_get(meta, "annotations"), VALUE));
    return text != NULL ? json_loads(text, 0, NULL) : NULL;
}

static bool take_version(const json_t *lease, struct lease_answer *out)
{
    const json_t *meta = json_object_get(lease, "metadata");
    const char *uid = json_string_value(json_object_get(meta, "uid"));
    bool good = uid != NULL && strlen(uid) < sizeof out->mark;
    snprintf(out->mark, sizeof out->mark, "%s", good ? uid : "");
    return good && lock_take_number(json_object_get(meta, "resourceVersion"), &out->index) && out->index > 0;
}

static bool take_key(const json_t *lease, struct lease_answer *out)
{
    json_t *content = annotation(lease);
    const char *holder = json_string_value(json_object_get(json_object_get(lease, "spec"), "holderIdentity"));
    bool held = holder != NULL && holder[0] != '\0';
    out->readable = (!held || lock_take_id(holder, out->session)) && lock_take_value(content, &out->value);
    json_decref(content);
    return take_version(lease, out);
}

/* Replicas that are no more leave theirs: first those of this vacancy, then as many others as there is room for. */
static bool take_rivals(const struct lease_state *s, const json_t *leases, struct lease_answer *out)
{
    for (int others = 0; others < 2; others++) {
        size_t i;
        json_t *lease;
        json_array_foreach(leases, i, lease)
        {
            struct lease_rival r;
            json_t *content = annotation(lease);
            lock_take_entry(content, &r);
            json_decref(content);
            lock_take_number(json_object_get(json_object_get(lease, "metadata"), "resourceVersion"), &r.index);
            if ((r.vacancy != s->vacancy) != (others != 0)) {
                continue;
            }
            if (out->n == LEASE_RIVALS_MAX) {
                return others != 0;
            }
            out->rivals[out->n++] = r;
        }
    }
    return true;
}

static bool take(const struct lease_state *s, long status, const json_t *reply, struct lease_answer *out)
{
    const bool good = (status == HTTP_OK || status == HTTP_CREATED) && json_is_object(reply);
    const json_t *items = json_object_get(reply, "items");
    switch (s->asked) {
    case LEASE_LOCK: /* a PUT of what is gone by now: 404; a POST into a namespace that isn't there: the same */
    case LEASE_RELEASE:
        if (status == HTTP_CONFLICT || (status == HTTP_NOT_FOUND && s->index != 0)) {
            out->said = LEASE_NO;
            return true;
        }
        return good && take_version(reply, out);
    case LEASE_PUBLISH:
        return good;
    case LEASE_LIST:
        return good && json_is_array(items) && take_rivals(s, items, out);
    case LEASE_END:
        return good || status == HTTP_NOT_FOUND;
    default:
        return status == HTTP_NOT_FOUND ? json_is_object(reply) : good && take_key(reply, out);
    }
}

const struct lock_kind lock_kubernetes = {
    .name = "Kubernetes",
    .id = "kubernetes",
    .header = "Authorization: Bearer ",
    .promises = {.session = false, .expires = false, .poll_ms = 1000},
    .request = request,
    .take = take,
};
