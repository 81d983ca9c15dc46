#include "http/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_scan.h"
#include "base/text.h"

enum { LIST_TEXT = 160, SHOWN = 100, SHOWN_ARGUMENT = 64, NUMBER_TEXT = 24 };

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
static bool read_ids(struct http_request *rq, const struct field *field, struct json_scan *j, struct asked *asked)
{
    struct slice *items = rq->items + field->room;
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
    *(const struct slice **)field_at(field, asked) = items;
    *(size_t *)field_given(field, asked) = n;
    return true;
}

static bool read_number(struct http_request *rq, const struct field *field, struct json_scan *j, struct asked *asked)
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
        *(int64_t *)field_at(field, asked) = strtoll(text, NULL, 10);
    }
    if (digits.len >= sizeof text || errno != 0) {
        http_problem(rq, 400, "bad-json", "%s is %.*s, a too big integer", field->name,
                     (int)(digits.len < SHOWN ? digits.len : SHOWN), digits.data);
        return false;
    }
    *(bool *)field_given(field, asked) = true;
    return true;
}

static bool set_form(struct http_request *rq, const struct field *field, struct slice text, struct asked *asked)
{
    if (!fields_form(text, false, field_at(field, asked))) {
        http_problem(rq, 400, "bad-request", "%s is \"%.*s\", expected \"items\", \"indexes\" or \"bitmap\"",
                     field->name, (int)(text.len < SHOWN ? text.len : SHOWN), text.data);
        return false;
    }
    return true;
}

static bool read_text(struct http_request *rq, const struct field *field, struct json_scan *j, struct asked *asked)
{
    struct slice text;
    if (!json_scan_next_is(j, '"')) {
        return bad_type(rq, field->name, type_name(j), "a string");
    }
    if (json_scan_string(j, &text) < 0) {
        return no_json(rq, j->err->text);
    }
    if (field->type == FIELD_FORM) {
        return set_form(rq, field, text, asked);
    }
    *(struct slice *)field_at(field, asked) = text;
    return true;
}

static bool read_field(struct http_request *rq, const struct field *field, struct json_scan *j, struct asked *asked)
{
    switch (field->type) {
    case FIELD_IDS:
    case FIELD_TEXTS:
        return read_ids(rq, field, j, asked);
    case FIELD_NUMBER:
        return read_number(rq, field, j, asked);
    case FIELD_FLAG:
        *(bool *)field_at(field, asked) = json_scan_next_is(j, 't');
        return json_scan_word(j, "true") || json_scan_word(j, "false") ||
               bad_type(rq, field->name, type_name(j), "true or false");
    default:
        return read_text(rq, field, j, asked);
    }
}

static const struct field *find(unsigned of, struct slice name)
{
    const struct field *f = request_fields;
    while (f->name != NULL && ((f->http & of) == 0 || !slice_eq(slice_str(f->name), name))) {
        f++;
    }
    return f->name != NULL ? f : NULL;
}

/* at is on the brace; the body was checked. */
static bool read_fields(struct http_request *rq, unsigned of, struct json_scan *j, struct asked *asked)
{
    char names[FIELDS_TEXT];
    uint64_t given = 0; /* bits of rows */
    j->at++;
    json_scan_skip_space(j);
    while (!json_scan_next_is(j, '}')) {
        struct slice key;
        if (json_scan_key(j, &key) < 0) {
            return no_json(rq, j->err->text);
        }
        const struct field *field = find(of, key);
        if (field == NULL) {
            http_problem(rq, 400, "bad-request", "unknown field \"%.*s\", expected %s",
                         (int)(key.len < SHOWN ? key.len : SHOWN), key.data, fields_expected(of, names));
            return false;
        }
        uint64_t bit = (uint64_t)1 << (field - request_fields);
        if ((given & bit) != 0) {
            http_problem(rq, 400, "bad-json", "the field %s is given twice, a duplicate", field->name);
            return false;
        }
        given |= bit;
        if (!read_field(rq, field, j, asked)) {
            return false;
        }
        next_element(j);
    }
    for (const struct field *f = request_fields; f->name != NULL; f++) {
        if ((f->http & f->needed & of) != 0 && (given & (uint64_t)1 << (f - request_fields)) == 0) {
            http_problem(rq, 400, "bad-request", "the field %s is missing, expected %s", f->name,
                         fields_expected(of, names));
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

bool json_read(struct http_request *rq, unsigned of, struct asked *asked)
{
    char names[FIELDS_TEXT];
    struct err err = {0};
    const char *body = rq->body.data != NULL ? rq->body.data : "";
    struct json_scan j = {.begin = body, .at = body, .end = body + rq->body.len, .err = &err, .lines = true};
    if (check(&j) < 0) {
        return no_json(rq, err.text);
    }
    if (!json_scan_next_is(&j, '{')) {
        http_problem(rq, 400, "bad-request", "the body is %s, expected an object with %s", type_name(&j),
                     fields_expected(of, names));
        return false;
    }
    return read_fields(rq, of, &j, asked);
}

/* --- the query --- */

/* Where a row has no limits, the service says what is wrong with it. */
static bool argument_number(struct http_request *rq, const struct field *field, struct slice value, struct asked *asked)
{
    char text[NUMBER_TEXT] = "", range[FIELDS_TEXT] = "", *end = text;
    int64_t number = 0;
    if (value.len > 0 && value.len < sizeof text) {
        memcpy(text, value.data, value.len);
        errno = 0;
        number = strtoll(text, &end, 10);
    }
    bool good = end != text && *end == '\0' && errno == 0;
    if (field->most > 0) {
        good = good && number >= field->least && number <= (int64_t)field->most;
        snprintf(range, sizeof range, " from %" PRId64 " to %zu", field->least, field->most);
    }
    if (!good) {
        http_problem(rq, 400, "bad-request", "%s is '%.*s', expected a whole number%s", field->name,
                     (int)(value.len < SHOWN_ARGUMENT ? value.len : SHOWN_ARGUMENT), value.data, range);
    }
    field_set_number(field, asked, number, good);
    return good;
}

static bool read_argument(struct http_request *rq, const struct field *field, struct slice value, struct asked *asked)
{
    switch (field->type) {
    case FIELD_NUMBER:
        return argument_number(rq, field, value, asked);
    case FIELD_FORM:
        return set_form(rq, field, value, asked);
    case FIELD_IDS: /* a line holds far fewer than ITEMS_MAX */
        rq->items[(*(size_t *)field_given(field, asked))++] = value;
        *(const struct slice **)field_at(field, asked) = rq->items;
        return true;
    case FIELD_FLAG:
        *(bool *)field_at(field, asked) = slice_eq(value, slice_str("true"));
        if (!slice_eq(value, slice_str("true")) && !slice_eq(value, slice_str("false"))) {
            http_problem(rq, 400, "bad-request", "%s is '%.*s', expected true or false", field->name,
                         (int)(value.len < SHOWN_ARGUMENT ? value.len : SHOWN_ARGUMENT), value.data);
            return false;
        }
        return true;
    default:
        *(struct slice *)field_at(field, asked) = value;
        return true;
    }
}

bool json_read_query(struct http_request *rq, unsigned of, struct asked *asked)
{
    struct slice name, value;
    char names[FIELDS_TEXT];
    size_t at = 0;
    int code;
    while ((code = http_argument(rq, &at, &name, &value)) > 0) {
        const struct field *field = find(of, name);
        if (field == NULL) {
            http_problem(rq, 400, "bad-request", "unknown argument '%.*s', expected %s",
                         (int)(name.len < SHOWN_ARGUMENT ? name.len : SHOWN_ARGUMENT), name.data,
                         fields_expected(of, names));
        }
        if (field == NULL || !read_argument(rq, field, value, asked)) {
            return false;
        }
    }
    if (code < 0) {
        http_problem(rq, 400, "bad-request", "the query holds a %% without two hex digits behind it");
    }
    return code == 0;
}
