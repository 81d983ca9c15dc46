#include "cli/rados/pool_facts.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

enum {
    TYPE_REPLICATED = 1, /* of a pool, as Ceph counts */
    DEPTH_MAX = 32,      /* of a CRUSH map: root, region, data center, row, rack, host, OSD ... */
};

static int64_t number_of(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

static void copy_text(const json_t *text, char out[POOL_NAME])
{
    const char *found = json_string_value(text);
    snprintf(out, POOL_NAME, "%s", found != NULL ? found : "");
}

/* The element whose field is that number; NULL: none. */
static const json_t *find(const json_t *array, const char *field, int64_t number)
{
    size_t i;
    json_t *element;
    json_array_foreach(array, i, element)
    {
        if (json_is_integer(json_object_get(element, field)) && number_of(element, field) == number) {
            return element;
        }
    }
    return NULL;
}

static const json_t *find_pool(const json_t *dump, const char *pool)
{
    size_t i;
    json_t *element;
    json_array_foreach(json_object_get(dump, "pools"), i, element)
    {
        const char *name = json_string_value(json_object_get(element, "pool_name"));
        if (name != NULL && strcmp(name, pool) == 0) {
            return element;
        }
    }
    return NULL;
}

/* Whether a list of names split by commas has this one. */
static bool has_flag(const char *flags, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = flags; at != NULL && (at = strstr(at, name)) != NULL; at += len) {
        if ((at == flags || at[-1] == ',') && (at[len] == '\0' || at[len] == ',')) {
            return true;
        }
    }
    return false;
}

static void read_pool(const json_t *pool, struct pool_facts *out)
{
    const char *flags = json_string_value(json_object_get(pool, "flags_names"));
    out->replicated = number_of(pool, "type") == TYPE_REPLICATED;
    out->size = number_of(pool, "size");
    out->min_size = number_of(pool, "min_size");
    out->groups = number_of(pool, "pg_num");
    out->full = has_flag(flags, "full");
    out->nearfull = has_flag(flags, "nearfull");
    out->capped = number_of(pool, "quota_max_bytes") != 0 || number_of(pool, "quota_max_objects") != 0;
    out->tiered = json_array_size(json_object_get(pool, "tiers")) > 0 || number_of(pool, "tier_of") >= 0;
    const char *name;
    json_t *ignored;
    json_object_foreach(json_object_get(pool, "application_metadata"), name, ignored)
    {
        if (strcmp(name, "unseen") == 0) {
            out->tagged = true;
        } else if (out->application[0] == '\0') {
            snprintf(out->application, sizeof out->application, "%s", name);
        }
    }
}

static void read_osds(const json_t *dump, struct pool_facts *out)
{
    size_t i;
    json_t *osd;
    json_array_foreach(json_object_get(dump, "osds"), i, osd)
    {
        out->up += number_of(osd, "up") != 0;
        out->in += number_of(osd, "in") != 0;
    }
    const char *flags = json_string_value(json_object_get(dump, "flags"));
    out->full |= has_flag(flags, "full");
    out->nearfull |= has_flag(flags, "nearfull");
}

/* A walk down the CRUSH map. */
struct walk {
    const json_t *osds, *buckets;
    const char *type;
    int64_t found; /* things of that type with an OSD that is in */
};

/* Whether an OSD that is in lies at or below the item. */
static bool walk_item(struct walk *w, int64_t id, int depth)
{
    if (depth == 0) {
        return false;
    }
    if (id >= 0) {
        bool in = number_of(find(w->osds, "osd", id), "in") != 0;
        w->found += in && strcmp(w->type, "osd") == 0;
        return in;
    }
    const json_t *bucket = find(w->buckets, "id", id);
    const char *type = json_string_value(json_object_get(bucket, "type_name"));
    bool in = false;
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(bucket, "items"), i, item)
    {
        in |= walk_item(w, number_of(item, "id"), depth - 1);
    }
    w->found += in && type != NULL && strcmp(w->type, type) == 0;
    return in;
}

/* The last choice of the rule is what tells replicas apart in the end. */
static void read_rule(const json_t *dump, const json_t *crush, int64_t number, struct pool_facts *out)
{
    const json_t *rule = find(json_object_get(crush, "rules"), "rule_id", number);
    copy_text(json_object_get(rule, "rule_name"), out->rule);
    int64_t root = 0;
    size_t i;
    json_t *step;
    json_array_foreach(json_object_get(rule, "steps"), i, step)
    {
        const char *op = json_string_value(json_object_get(step, "op"));
        if (op != NULL && strcmp(op, "take") == 0) {
            root = number_of(step, "item");
        } else if (op != NULL && strncmp(op, "choose", strlen("choose")) == 0) {
            copy_text(json_object_get(step, "type"), out->domain);
        }
    }
    struct walk w = {json_object_get(dump, "osds"), json_object_get(crush, "buckets"), out->domain, 0};
    walk_item(&w, root, DEPTH_MAX);
    out->domains = w.found;
}

static int load(struct slice text, const char *what, json_t **out, struct err *err)
{
    json_error_t why;
    *out = json_loadb(text.data != NULL ? text.data : "", text.len, 0, &why);
    if (*out != NULL) {
        return 0;
    }
    return json_error_code(&why) == json_error_out_of_memory
               ? err_set(err, ERR_NOMEM, "no memory for the monitor's answer to \"%s\"", what)
               : err_set(err, ERR_INVALID, "the monitor's answer to \"%s\" is no JSON: %s", what, why.text);
}

int pool_facts_read(const char *pool, struct slice osd_dump, struct slice crush_dump, struct pool_facts *out,
                    struct err *err)
{
    json_t *dump = NULL, *crush = NULL;
    *out = (struct pool_facts){0};
    int rc = load(osd_dump, "osd dump", &dump, err);
    if (rc == 0) {
        rc = load(crush_dump, "osd crush dump", &crush, err);
    }
    if (rc == 0) {
        const json_t *found = find_pool(dump, pool);
        if (found == NULL) {
            rc = err_set(err, ERR_NOTFOUND, "there is no pool \"%s\": ceph osd pool create %s makes it", pool, pool);
        } else {
            read_pool(found, out);
            read_osds(dump, out);
            read_rule(dump, crush, number_of(found, "crush_rule"), out);
        }
    }
    json_decref(dump);
    json_decref(crush);
    return rc;
}
