#include "http/json.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

enum { JSON_BYTES_MAX = 64 * 1024 * 1024, LIST_TEXT = 160 };

static size_t used;
static bool exhausted;

static void *limited_malloc(size_t size)
{
    if (used + size > JSON_BYTES_MAX) {
        exhausted = true;
        return NULL;
    }
    void *piece = malloc(size);
    used += piece != NULL ? malloc_usable_size(piece) : 0;
    return piece;
}

static void limited_free(void *piece)
{
    used -= piece != NULL ? malloc_usable_size(piece) : 0;
    free(piece);
}

void json_limit_memory(void)
{
    json_set_alloc_funcs(limited_malloc, limited_free);
}

static int append(const char *bytes, size_t len, void *out)
{
    return buf_add(out, bytes, len) < 0 ? -1 : 0;
}

void json_write(struct buf *out, json_t *value)
{
    if (value == NULL || json_dump_callback(value, append, out, JSON_COMPACT | JSON_ENCODE_ANY) < 0 ||
        buf_add(out, "\n", 1) < 0) {
        out->failed = true;
    }
    json_decref(value);
}

void json_append(json_t **list, json_t *value)
{
    if (json_array_append_new(*list, value) < 0) {
        json_decref(*list);
        *list = NULL;
    }
}

void json_add_text(struct buf *out, struct slice text)
{
    size_t plain = 0; /* what needs no escape goes at once */
    buf_add(out, "\"", 1);
    for (size_t i = 0; i < text.len; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        if (byte >= 0x20 && byte != '"' && byte != '\\') {
            continue;
        }
        buf_add(out, text.data + plain, i - plain);
        if (byte < 0x20) {
            buf_addf(out, "\\u%04x", byte);
        } else {
            buf_addf(out, "\\%c", byte);
        }
        plain = i + 1;
    }
    buf_add(out, text.data + plain, text.len - plain);
    buf_add(out, "\"", 1);
}

json_t *json_from_id(struct slice id)
{
    return json_stringn(id.data, id.len);
}

json_t *json_base64(struct slice bytes)
{
    struct buf text = {0};
    base64_add(&text, bytes);
    json_t *value = text.failed ? NULL : json_stringn(text.len > 0 ? text.data : "", text.len);
    buf_free(&text);
    return value;
}

json_t *json_from_item(struct slice id)
{
    json_t *text = json_from_id(id);
    return text != NULL ? text : json_pack("{s:o}", "base64", json_base64(id));
}

void json_set_id(json_t *object, const char *name, struct slice id)
{
    json_t *value = json_from_id(id);
    char other[LIST_TEXT];
    snprintf(other, sizeof other, "%s_base64", name);
    json_object_set_new(object, value != NULL ? name : other, value != NULL ? value : json_base64(id));
}

/* --- reading --- */

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object",
        [JSON_ARRAY] = "an array",
        [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number",
        [JSON_REAL] = "a number with a fraction or exponent",
        [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",
        [JSON_NULL] = "null",
    };
    return names[json_typeof(value)];
}

/* "user, items and at" */
static const char *list(const struct json_field *fields, char out[LIST_TEXT])
{
    size_t len = 0;
    out[0] = '\0';
    for (const struct json_field *f = fields; f->name != NULL && !f->unlisted && len < LIST_TEXT; f++) {
        const char *between = f == fields ? "" : f[1].name == NULL || f[1].unlisted ? " and " : ", ";
        len += (size_t)snprintf(out + len, LIST_TEXT - len, "%s%s", between, f->name);
    }
    return out;
}

static bool bad_type(struct http_request *rq, const char *where, const json_t *value, const char *expected)
{
    http_problem(rq, 400, "bad-request", "%s is %s, expected %s", where, type_name(value), expected);
    return false;
}

static bool read_ids(struct http_request *rq, const struct json_field *field, json_t *value)
{
    const char *name = field->name;
    struct slice *items = rq->items + field->place;
    size_t most = field->most > 0 ? field->most : ITEMS_MAX;
    size_t n = json_array_size(value);
    if (!json_is_array(value)) {
        return bad_type(rq, name, value, "an array of strings");
    }
    if (n == 0 || n > most) {
        http_problem(rq, 400, "bad-request", "%s holds %zu ids, expected 1 to %zu", name, n, most);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(value, i);
        if (!json_is_string(id)) {
            char where[64];
            snprintf(where, sizeof where, "%s[%zu]", name, i);
            return bad_type(rq, where, id, "a string");
        }
        items[i] = slice_of(json_string_value(id), json_string_length(id));
    }
    *field->ids = (struct json_ids){value, items, n};
    return true;
}

static bool read_field(struct http_request *rq, const struct json_field *field, json_t *value)
{
    if (field->given != NULL) {
        *field->given = true;
    }
    if (field->ids != NULL) {
        return read_ids(rq, field, value);
    }
    if (field->id != NULL) {
        *field->id = slice_of(json_string_value(value), json_string_length(value));
        return json_is_string(value) || bad_type(rq, field->name, value, "a string");
    }
    if (field->number != NULL) {
        *field->number = json_integer_value(value);
        return json_is_integer(value) || bad_type(rq, field->name, value, "a whole number");
    }
    *field->flag = json_is_true(value);
    return json_is_boolean(value) || bad_type(rq, field->name, value, "true or false");
}

static bool read_fields(struct http_request *rq, const struct json_field *fields, json_t *object)
{
    char names[LIST_TEXT];
    const char *key;
    json_t *value;
    if (!json_is_object(object)) {
        http_problem(rq, 400, "bad-request", "the body is %s, expected an object with %s", type_name(object),
                     list(fields, names));
        return false;
    }
    json_object_foreach(object, key, value)
    {
        const struct json_field *field = fields;
        while (field->name != NULL && strcmp(field->name, key) != 0) {
            field++;
        }
        if (field->name == NULL) {
            http_problem(rq, 400, "bad-request", "unknown field \"%.100s\", expected %s", key, list(fields, names));
            return false;
        }
        if (!read_field(rq, field, value)) {
            return false;
        }
    }
    for (const struct json_field *f = fields; f->name != NULL; f++) {
        if (f->needed && json_object_get(object, f->name) == NULL) {
            http_problem(rq, 400, "bad-request", "the field %s is missing, expected %s", f->name, list(fields, names));
            return false;
        }
    }
    return true;
}

json_t *json_read(struct http_request *rq, const struct json_field *fields)
{
    json_error_t error;
    exhausted = false;
    json_t *object = json_loadb(rq->body.data != NULL ? rq->body.data : "", rq->body.len,
                                JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (object == NULL && exhausted) {
        http_problem(rq, 413, "too-large", "reading the body would take more than %d bytes of memory", JSON_BYTES_MAX);
        return NULL;
    }
    if (object == NULL) {
        http_problem(rq, 400, "bad-json", "the body is no JSON: line %d, column %d: %s", error.line, error.column,
                     error.text);
        return NULL;
    }
    if (!read_fields(rq, fields, object)) {
        json_decref(object);
        return NULL;
    }
    return object;
}
