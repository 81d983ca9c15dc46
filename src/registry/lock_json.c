#include "registry/lock_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/slice.h"
#include "base/text.h"

enum { VALUE_MAX = 2048, LEASE_MS_MAX = 3600 * 1000 };

char *lock_text(json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    return text;
}

json_t *lock_hex(uint64_t id)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, id);
    return json_string(text);
}

json_t *lock_value(const struct lease_value *v)
{
    json_t *value = json_pack("{s:o, s:s, s:I, s:b}", "node", lock_hex(v->node), "address", v->address, "term",
                              (json_int_t)v->term, "in_step", v->in_step);
    if (value != NULL && v->lease_ms != 0 &&
        (json_object_set_new(value, "lease_ms", json_integer((json_int_t)v->lease_ms)) < 0 ||
         json_object_set_new(value, "beat", json_integer((json_int_t)v->beat)) < 0)) {
        json_decref(value);
        return NULL;
    }
    json_t *names = v->names.given && value != NULL ? json_array() : NULL;
    for (int i = 0; i < v->names.n && names != NULL; i++) {
        json_array_append_new(names, lock_hex(v->names.nodes[i]));
    }
    if (v->names.given && value != NULL &&
        (json_object_set_new(value, "replicas", names) < 0 || json_array_size(names) != (size_t)v->names.n ||
         json_object_set_new(value, "seq", json_integer((json_int_t)v->names.seq)) < 0)) {
        json_decref(value);
        return NULL;
    }
    if (v->heir != 0 && value != NULL &&
        (json_object_set_new(value, "heir", lock_hex(v->heir)) < 0 ||
         json_object_set_new(value, "next", json_integer((json_int_t)v->next)) < 0)) {
        json_decref(value);
        return NULL;
    }
    return value;
}

json_t *lock_entry(const struct lease_state *s, const struct lease_self *self)
{
    return json_pack("{s:o, s:o, s:I, s:I, s:s, s:b}", "node", lock_hex(self->node), "leader",
                     lock_hex(s->unfit ? 0 : self->leader), "seq", (json_int_t)(s->unfit ? 0 : self->seq), "vacancy",
                     (json_int_t)s->vacancy, "address", self->address, "refuses", self->refuses);
}

bool lock_take_id(const char *id, char out[LEASE_SESSION])
{
    size_t n = id != NULL ? strlen(id) : 0;
    if (n == 0 || n >= LEASE_SESSION || strspn(id, "0123456789abcdefABCDEF-") != n) {
        return false;
    }
    memcpy(out, id, n + 1);
    return true;
}

json_t *lock_content(const char *coded)
{
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

/* None: of an older version. What can't be read names none. */
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

bool lock_take_value(const json_t *content, struct lease_value *out)
{
    const char *node, *address;
    json_int_t term;
    int in_step;
    if (json_unpack((json_t *)(uintptr_t)content, "{s:s, s:s, s:I, s:b}", "node", &node, "address", &address, "term",
                    &term, "in_step", &in_step) < 0 ||
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

void lock_take_entry(const json_t *content, struct lease_rival *out)
{
    const char *node, *leader;
    json_int_t seq, vacancy;
    *out = (struct lease_rival){0};
    if (json_unpack((json_t *)(uintptr_t)content, "{s:s, s:s, s:I, s:I}", "node", &node, "leader", &leader, "seq", &seq,
                    "vacancy", &vacancy) < 0 ||
        !take_hex(node, &out->node) || !take_hex(leader, &out->leader) || seq < 0 || vacancy < 0) {
        *out = (struct lease_rival){0};
        return;
    }
    out->seq = (uint64_t)seq;
    out->vacancy = (uint64_t)vacancy;
    out->refuses = json_is_true(json_object_get(content, "refuses"));
}

bool lock_take_rivals(const json_t *rows, const char *name, struct lease_answer *out)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        if (out->n == LEASE_RIVALS_MAX) {
            return false;
        }
        json_t *content = lock_content(json_string_value(json_object_get(row, name)));
        lock_take_entry(content, &out->rivals[out->n++]);
        json_decref(content);
    }
    return true;
}

bool lock_take_number(const json_t *value, uint64_t *out)
{
    const char *text = json_string_value(value);
    json_int_t n = json_integer_value(value);
    *out = n > 0 ? (uint64_t)n : 0;
    return text != NULL ? count_read(text, INT64_MAX, out) : json_is_integer(value) && n >= 0;
}
