#include "http/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_scan.h"
#include "base/text.h"

enum { LIST_TEXT = 160, SHOWN = 100, NUMBER_TEXT = 24 };

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

void json_add_base64(struct buf *out, struct slice bytes)
{
    buf_add(out, "\"", 1);
    base64_add(out, bytes);
    buf_add(out, "\"", 1);
}

void json_add_id(struct buf *out, struct slice id)
{
    if (slice_is_utf8(id)) {
        json_add_text(out, id);
        return;
    }
    buf_addf(out, "{\"base64\":");
    json_add_base64(out, id);
    buf_add(out, "}", 1);
}

void json_add_named_id(struct buf *out, const char *name, struct slice id)
{
    if (slice_is_utf8(id)) {
        buf_addf(out, "\"%s\":", name);
        json_add_text(out, id);
    } else {
        buf_addf(out, "\"%s_base64\":", name);
        json_add_base64(out, id);
    }
}

json_t *json_from_id(struct slice id)
{
    return json_stringn(id.data, id.len);
}

static json_t *base64_of(struct slice bytes)
{
    struct buf text = {0};
    base64_add(&text, bytes);
    json_t *value = text.failed ? NULL : json_stringn(text.len > 0 ? text.data : "", text.len);
    buf_free(&text);
    return value;
}

void json_set_id(json_t *object, const char *name, struct slice id)
{
    json_t *value = json_from_id(id);
    char other[LIST_TEXT];
    snprintf(other, sizeof other, "%s_base64", name);
    json_object_set_new(object, value != NULL ? name : other, value != NULL ? value : base64_of(id));
}

/* --- reading --- */

/* Of the value that begins there. */
static const char *type_name(const struct json_scan *j)
{
    struct json_scan number = *j;
    struct slice text;
    bool whole = true;
    switch (*j->at) {
    case '{':
        return "an object";
    case '[':
        return "an array";
    case '"':
        return "a string";
    case 't':
        return "true";
    case 'f':
        return "false";
    case 'n':
        return "null";
    default:
        json_scan_number(&number, &text, &whole);
        return whole ? "a number" : "a number with a fraction or exponent";
    }
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

static bool no_json(struct http_request *rq, const char *why)
{
    http_problem(rq, 400, "bad-json", "the body is no JSON: %s", why);
    return false;
}

static bool bad_type(struct http_request *rq, const char *where, const char *type, const char *expected)
{
    http_problem(rq, 400, "bad-request", "%s is %s, expected %s", where, type, expected);
    return false;
}

/* Takes the comma behind an element, if there is one. */
static void next_element(struct json_scan *j)
{
    json_scan_skip_space(j);
    if (json_scan_next_is(j, ',')) {
        j->at++;
        json_scan_skip_space(j);
    }
}

/* All are counted, also those that there is no place for, and the first that is no string is named. */
static bool read_ids(struct http_request *rq, const struct json_field *field, struct json_scan *j)
{
    struct slice *items = rq->items + field->place;
    size_t most = field->most > 0 ? field->most : ITEMS_MAX, n = 0, wrong_at = 0;
    const char *wrong = NULL;
    if (!json_scan_next_is(j, '[')) {
        return bad_type(rq, field->name, type_name(j), "an array of strings");
    }
    j->at++;
    json_scan_skip_space(j);
    for (; !json_scan_next_is(j, ']'); n++) {
        bool is_string = json_scan_next_is(j, '"');
        if (!is_string && wrong == NULL) {
            wrong = type_name(j);
            wrong_at = n;
        }
        if ((is_string ? json_scan_string(j, n < most ? &items[n] : NULL) : json_scan_ignore(j, 0)) < 0) {
            return no_json(rq, j->err->text);
        }
        next_element(j);
    }
    j->at++;
    if (n == 0 || n > most) {
        http_problem(rq, 400, "bad-request", "%s holds %zu ids, expected 1 to %zu", field->name, n, most);
        return false;
    }
    if (wrong != NULL) {
        char where[LIST_TEXT];
        snprintf(where, sizeof where, "%s[%zu]", field->name, wrong_at);
        return bad_type(rq, where, wrong, "a string");
    }
    *field->ids = (struct json_ids){items, n};
    return true;
}

static bool read_number(struct http_request *rq, const struct json_field *field, struct json_scan *j)
{
    struct json_scan begin = *j;
    char text[NUMBER_TEXT] = "";
    struct slice digits;
    bool whole = false;
    if (json_scan_number(j, &digits, &whole) < 0 || !whole) {
        return bad_type(rq, field->name, type_name(&begin), "a whole number");
    }
    errno = 0;
    if (digits.len < sizeof text) {
        memcpy(text, digits.data, digits.len);
        *field->number = strtoll(text, NULL, 10);
    }
    if (digits.len >= sizeof text || errno != 0) {
        http_problem(rq, 400, "bad-json", "%s is %.*s, a too big integer", field->name,
                     (int)(digits.len < SHOWN ? digits.len : SHOWN), digits.data);
        return false;
    }
    return true;
}

static bool read_field(struct http_request *rq, const struct json_field *field, struct json_scan *j)
{
    if (field->given != NULL) {
        *field->given = true;
    }
    if (field->ids != NULL) {
        return read_ids(rq, field, j);
    }
    if (field->number != NULL) {
        return read_number(rq, field, j);
    }
    if (field->id != NULL) {
        if (!json_scan_next_is(j, '"')) {
            return bad_type(rq, field->name, type_name(j), "a string");
        }
        return json_scan_string(j, field->id) == 0 || no_json(rq, j->err->text);
    }
    *field->flag = json_scan_next_is(j, 't');
    return json_scan_word(j, "true") || json_scan_word(j, "false") ||
           bad_type(rq, field->name, type_name(j), "true or false");
}

/* at is on the brace; the body was checked. */
static bool read_fields(struct http_request *rq, const struct json_field *fields, struct json_scan *j)
{
    char names[LIST_TEXT];
    unsigned given = 0; /* bits of fields */
    j->at++;
    json_scan_skip_space(j);
    while (!json_scan_next_is(j, '}')) {
        struct slice key;
        unsigned i = 0;
        if (json_scan_key(j, &key) < 0) {
            return no_json(rq, j->err->text);
        }
        while (fields[i].name != NULL && !slice_eq(slice_str(fields[i].name), key)) {
            i++;
        }
        if (fields[i].name == NULL) {
            http_problem(rq, 400, "bad-request", "unknown field \"%.*s\", expected %s",
                         (int)(key.len < SHOWN ? key.len : SHOWN), key.data, list(fields, names));
            return false;
        }
        if ((given & 1u << i) != 0) {
            http_problem(rq, 400, "bad-json", "the field %s is given twice, a duplicate", fields[i].name);
            return false;
        }
        given |= 1u << i;
        if (!read_field(rq, &fields[i], j)) {
            return false;
        }
        next_element(j);
    }
    for (unsigned i = 0; fields[i].name != NULL; i++) {
        if (fields[i].needed && (given & 1u << i) == 0) {
            http_problem(rq, 400, "bad-request", "the field %s is missing, expected %s", fields[i].name,
                         list(fields, names));
            return false;
        }
    }
    return true;
}

/* Whether all of it is JSON: that is said before anything of what it holds. at goes back to the value. */
static int check(struct json_scan *j)
{
    for (size_t n = 1; j->at < j->end && n > 0; j->at += n) {
        n = utf8_len(j->at, (size_t)(j->end - j->at));
        if (n == 0) {
            char what[LIST_TEXT];
            snprintf(what, sizeof what, "the byte 0x%02x is no UTF-8", (unsigned char)*j->at);
            return json_scan_bad(j, what);
        }
    }
    j->at = j->begin;
    json_scan_skip_space(j);
    const char *value = j->at;
    int rc = json_scan_ignore(j, 0);
    json_scan_skip_space(j);
    if (rc == 0 && j->at < j->end) {
        return json_scan_bad(j, "end of file expected");
    }
    j->at = value;
    return rc;
}

bool json_read(struct http_request *rq, const struct json_field *fields)
{
    char names[LIST_TEXT];
    struct err err = {0};
    const char *body = rq->body.data != NULL ? rq->body.data : "";
    struct json_scan j = {.begin = body, .at = body, .end = body + rq->body.len, .err = &err, .lines = true};
    if (check(&j) < 0) {
        return no_json(rq, err.text);
    }
    if (!json_scan_next_is(&j, '{')) {
        http_problem(rq, 400, "bad-request", "the body is %s, expected an object with %s", type_name(&j),
                     list(fields, names));
        return false;
    }
    return read_fields(rq, fields, &j);
}
