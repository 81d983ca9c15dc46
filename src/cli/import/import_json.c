/* A recursive descent over one line. The happy path: "{", then keys and values until "}", each wanted value left in the
 * line as a slice. A string is decoded where it stands, which works because an escape is never shorter than the bytes
 * it means. Ignored values are checked as strictly as wanted ones, so that a line that was cut off or joined to another
 * never passes. Their nesting is bounded, and so is the stack.
 */
#include "cli/import/import_json.h"

#include <stdbool.h>
#include <stdint.h>

struct cursor {
    char *begin;
    char *at;
    char *end;
    struct err *err;
};

static const char *const names[3] = {"unix_ms", "user", "item"};

static int bad(const struct cursor *j, const char *what)
{
    return err_set(j->err, ERR_INVALID, "%s at byte %zu", what, (size_t)(j->at - j->begin) + 1);
}

static void skip_space(struct cursor *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\t' || *j->at == '\r' || *j->at == '\n')) {
        j->at++;
    }
}

static bool next_is(const struct cursor *j, char c)
{
    return j->at < j->end && *j->at == c;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The four digits after \u. Returns -1 when they aren't there. */
static int32_t hex4(const char *at, const char *end)
{
    if (end - at < 4) {
        return -1;
    }
    int32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(at[i]);
        if (digit < 0) {
            return -1;
        }
        value = value << 4 | digit;
    }
    return value;
}

static char *put_utf8(char *out, uint32_t code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xc0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *out++ = (char)(0xe0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    } else {
        *out++ = (char)(0xf0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3f));
        *out++ = (char)(0x80 | (code >> 6 & 0x3f));
        *out++ = (char)(0x80 | (code & 0x3f));
    }
    return out;
}

/* at is behind \u; a surrogate pair takes the second \uXXXX too. */
static int unicode_escape(struct cursor *j, char **out)
{
    int32_t code = hex4(j->at, j->end);
    if (code < 0) {
        return bad(j, "expected four hex digits after \\u");
    }
    if (code >= 0xdc00 && code <= 0xdfff) {
        return bad(j, "half of a surrogate pair");
    }
    j->at += 4;
    if (code >= 0xd800 && code <= 0xdbff) {
        int32_t low = j->end - j->at >= 2 && j->at[0] == '\\' && j->at[1] == 'u' ? hex4(j->at + 2, j->end) : -1;
        if (low < 0xdc00 || low > 0xdfff) {
            return bad(j, "half of a surrogate pair");
        }
        j->at += 6;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *out = put_utf8(*out, (uint32_t)code);
    return 0;
}

static int escape(struct cursor *j, char **out)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    if (next_is(j, 'u')) {
        j->at++;
        return unicode_escape(j, out);
    }
    const char *found = j->at < j->end && *j->at != '\0' ? strchr(from, *j->at) : NULL;
    if (found == NULL) {
        return bad(j, "unknown escape");
    }
    *(*out)++ = to[found - from];
    j->at++;
    return 0;
}

/* at is on the opening quote. */
static int string(struct cursor *j, struct slice *text)
{
    char *start = ++j->at;
    while (j->at < j->end && *j->at != '"' && *j->at != '\\' && (unsigned char)*j->at >= 0x20) {
        j->at++;
    }
    char *out = j->at;
    for (;;) {
        if (j->at == j->end) {
            return bad(j, "a string isn't closed");
        }
        char c = *j->at;
        if ((unsigned char)c < 0x20) {
            return bad(j, "a raw control character in a string");
        }
        j->at++;
        if (c == '"') {
            break;
        }
        if (c != '\\') {
            *out++ = c;
            continue;
        }
        int rc = escape(j, &out);
        if (rc != 0) {
            return rc;
        }
    }
    *text = slice_of(start, (size_t)(out - start));
    return 0;
}

static size_t digits(struct cursor *j)
{
    char *start = j->at;
    while (j->at < j->end && *j->at >= '0' && *j->at <= '9') {
        j->at++;
    }
    return (size_t)(j->at - start);
}

static int number(struct cursor *j, struct slice *text, bool *whole)
{
    char *start = j->at;
    *whole = true;
    if (next_is(j, '-')) {
        j->at++;
    }
    bool zero = next_is(j, '0');
    size_t n = digits(j);
    if (n == 0) {
        return bad(j, "expected a value");
    }
    if (zero && n > 1) {
        return bad(j, "a number with a leading zero");
    }
    if (next_is(j, '.')) {
        *whole = false;
        j->at++;
        if (digits(j) == 0) {
            return bad(j, "expected a digit");
        }
    }
    if (next_is(j, 'e') || next_is(j, 'E')) {
        *whole = false;
        j->at++;
        if (next_is(j, '+') || next_is(j, '-')) {
            j->at++;
        }
        if (digits(j) == 0) {
            return bad(j, "expected a digit");
        }
    }
    *text = slice_of(start, (size_t)(j->at - start));
    return 0;
}

static bool word(struct cursor *j, const char *text)
{
    size_t len = strlen(text);
    if ((size_t)(j->end - j->at) < len || memcmp(j->at, text, len) != 0) {
        return false;
    }
    j->at += len;
    return true;
}

/* A key and its colon. */
static int key(struct cursor *j, struct slice *name)
{
    if (!next_is(j, '"')) {
        return bad(j, "expected a key");
    }
    int rc = string(j, name);
    if (rc != 0) {
        return rc;
    }
    skip_space(j);
    if (!next_is(j, ':')) {
        return bad(j, "expected \":\"");
    }
    j->at++;
    skip_space(j);
    return 0;
}

/* Checks a value that nobody wants. */
static int ignore_value(struct cursor *j, int depth)
{
    struct slice text;
    bool whole;
    if (next_is(j, '"')) {
        return string(j, &text);
    }
    if (!next_is(j, '{') && !next_is(j, '[')) {
        return word(j, "true") || word(j, "false") || word(j, "null") ? 0 : number(j, &text, &whole);
    }
    if (depth == IMPORT_JSON_DEPTH) {
        return bad(j, "nested too deeply");
    }
    bool object = *j->at == '{';
    char close = object ? '}' : ']';
    j->at++;
    skip_space(j);
    if (next_is(j, close)) {
        j->at++;
        return 0;
    }
    for (;;) {
        skip_space(j);
        int rc = object ? key(j, &text) : 0;
        if (rc == 0) {
            rc = ignore_value(j, depth + 1);
        }
        if (rc != 0) {
            return rc;
        }
        skip_space(j);
        if (next_is(j, close)) {
            j->at++;
            return 0;
        }
        if (!next_is(j, ',')) {
            return bad(j, object ? "expected \",\" or \"}\"" : "expected \",\" or \"]\"");
        }
        j->at++;
    }
}

/* A value that is wanted: a string or a number. An id must be whole, since 7 and 7.0 would be two ids. */
static int wanted_value(struct cursor *j, int which, struct slice *text)
{
    if (text->data != NULL) {
        return err_set(j->err, ERR_INVALID, "%s is given twice", names[which]);
    }
    if (next_is(j, '"')) {
        return string(j, text);
    }
    bool whole = false;
    if (next_is(j, '-') || (j->at < j->end && *j->at >= '0' && *j->at <= '9')) {
        int rc = number(j, text, &whole);
        if (rc != 0 || whole || which == 0) {
            return rc;
        }
    }
    return err_set(j->err, ERR_INVALID, "%s is neither a string nor a whole number", names[which]);
}

static int member(struct cursor *j, struct slice fields[3])
{
    struct slice name;
    int rc = key(j, &name);
    if (rc != 0) {
        return rc;
    }
    for (int i = 0; i < 3; i++) {
        if (slice_eq(name, slice_str(names[i]))) {
            return wanted_value(j, i, &fields[i]);
        }
    }
    return ignore_value(j, 0);
}

int import_json_parse(char *line, size_t len, struct slice fields[3], struct err *err)
{
    struct cursor j = {line, line, line + len, err};
    memset(fields, 0, 3 * sizeof(*fields));
    skip_space(&j);
    if (!next_is(&j, '{')) {
        return bad(&j, "expected \"{\"");
    }
    j.at++;
    skip_space(&j);
    while (!next_is(&j, '}')) {
        int rc = member(&j, fields);
        if (rc != 0) {
            return rc;
        }
        skip_space(&j);
        if (next_is(&j, ',')) {
            j.at++;
            skip_space(&j);
            if (next_is(&j, '}')) {
                return bad(&j, "expected a key");
            }
        } else if (!next_is(&j, '}')) {
            return bad(&j, "expected \",\" or \"}\"");
        }
    }
    j.at++;
    skip_space(&j);
    if (j.at != j.end) {
        return bad(&j, "text after the object");
    }
    for (int i = 0; i < 3; i++) {
        if (fields[i].data == NULL) {
            return err_set(err, ERR_INVALID, "%s is missing", names[i]);
        }
    }
    return 0;
}
