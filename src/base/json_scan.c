#include "base/json_scan.h"

static int bad_in_line(const struct json_scan *j, const char *what)
{
    const char *to = j->at + (j->at < j->end);
    size_t line = 1, column = 0;
    for (const char *at = j->begin; at < to; at++) {
        bool ends = *at == '\n' && at < j->at, begins = ((unsigned char)*at & 0xc0) != 0x80;
        line += ends;
        column = ends ? 0 : column + begins;
    }
    return err_set(j->err, ERR_INVALID, "line %zu, column %zu: %s", line, column, what);
}

int json_scan_bad(const struct json_scan *j, const char *what)
{
    if (j->lines) {
        return bad_in_line(j, what);
    }
    return err_set(j->err, ERR_INVALID, "%s at byte %zu", what, (size_t)(j->at - j->begin) + 1);
}

void json_scan_skip_space(struct json_scan *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\t' || *j->at == '\r' || *j->at == '\n')) {
        j->at++;
    }
}

bool json_scan_next_is(const struct json_scan *j, char c)
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
static int unicode_escape(struct json_scan *j, char **out)
{
    int32_t code = hex4(j->at, j->end);
    if (code < 0) {
        return json_scan_bad(j, "expected four hex digits after \\u");
    }
    if (code >= 0xdc00 && code <= 0xdfff) {
        return json_scan_bad(j, "half of a surrogate pair");
    }
    j->at += 4;
    if (code >= 0xd800 && code <= 0xdbff) {
        int32_t low = j->end - j->at >= 2 && j->at[0] == '\\' && j->at[1] == 'u' ? hex4(j->at + 2, j->end) : -1;
        if (low < 0xdc00 || low > 0xdfff) {
            return json_scan_bad(j, "half of a surrogate pair");
        }
        j->at += 6;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *out = put_utf8(*out, (uint32_t)code);
    return 0;
}

static int escape(struct json_scan *j, char **out)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    if (json_scan_next_is(j, 'u')) {
        j->at++;
        return unicode_escape(j, out);
    }
    const char *found = j->at < j->end && *j->at != '\0' ? strchr(from, *j->at) : NULL;
    if (found == NULL) {
        return json_scan_bad(j, "unknown escape");
    }
    *(*out)++ = to[found - from];
    j->at++;
    return 0;
}

/* Where the decoded text goes, from at on: over the text itself, or into memory of the arena that the whole string
 * would fit. An escape is never shorter than the bytes it means. */
static int begin_decoding(struct json_scan *j, const char **start, char **out)
{
    size_t before = (size_t)(j->at - *start), len = before;
    *out = (char *)j->at;
    if (j->arena == NULL) {
        return 0;
    }
    for (; *start + len < j->end && (*start)[len] != '"'; len++) {
        len += (*start)[len] == '\\';
    }
    char *copy = arena_alloc(j->arena, len + 1);
    if (copy == NULL) {
        return err_set(j->err, ERR_NOMEM, "out of memory");
    }
    memcpy(copy, *start, before);
    *start = copy;
    *out = copy + before;
    return 0;
}

/* The same as json_scan_string() from the first escape on. */
static int rest_of_string(struct json_scan *j, const char *start, struct slice *text)
{
    char nothing[4], *out = nothing;
    int rc = text != NULL ? begin_decoding(j, &start, &out) : 0;
    while (rc == 0 && j->at < j->end && *j->at != '"') {
        char c = *j->at;
        if ((unsigned char)c < 0x20) {
            return json_scan_bad(j, "a raw control character in a string");
        }
        j->at++;
        if (c == '\\') {
            rc = escape(j, &out);
        } else {
            *out++ = c;
        }
        out = text == NULL ? nothing : out;
    }
    if (rc == 0 && j->at == j->end) {
        return json_scan_bad(j, "a string isn't closed");
    }
    j->at += rc == 0;
    if (rc == 0 && text != NULL) {
        *text = slice_of(start, (size_t)(out - start));
    }
    return rc;
}

int json_scan_string(struct json_scan *j, struct slice *text)
{
    const char *start = ++j->at;
    while (j->at < j->end && *j->at != '"' && *j->at != '\\' && (unsigned char)*j->at >= 0x20) {
        j->at++;
    }
    if (j->at == j->end || *j->at != '"') {
        return rest_of_string(j, start, text);
    }
    if (text != NULL) {
        *text = slice_of(start, (size_t)(j->at - start));
    }
    j->at++;
    return 0;
}

static size_t digits(struct json_scan *j)
{
    const char *start = j->at;
    while (j->at < j->end && *j->at >= '0' && *j->at <= '9') {
        j->at++;
    }
    return (size_t)(j->at - start);
}

int json_scan_number(struct json_scan *j, struct slice *text, bool *whole)
{
    const char *start = j->at;
    *whole = true;
    if (json_scan_next_is(j, '-')) {
        j->at++;
    }
    bool zero = json_scan_next_is(j, '0');
    size_t n = digits(j);
    if (n == 0) {
        return json_scan_bad(j, "expected a value");
    }
    if (zero && n > 1) {
        return json_scan_bad(j, "a number with a leading zero");
    }
    if (json_scan_next_is(j, '.')) {
        *whole = false;
        j->at++;
        if (digits(j) == 0) {
            return json_scan_bad(j, "expected a digit");
        }
    }
    if (json_scan_next_is(j, 'e') || json_scan_next_is(j, 'E')) {
        *whole = false;
        j->at++;
        if (json_scan_next_is(j, '+') || json_scan_next_is(j, '-')) {
            j->at++;
        }
        if (digits(j) == 0) {
            return json_scan_bad(j, "expected a digit");
        }
    }
    *text = slice_of(start, (size_t)(j->at - start));
    return 0;
}

bool json_scan_word(struct json_scan *j, const char *text)
{
    size_t len = strlen(text);
    if ((size_t)(j->end - j->at) < len || memcmp(j->at, text, len) != 0) {
        return false;
    }
    j->at += len;
    return true;
}

/* A key and its colon. */
int json_scan_key(struct json_scan *j, struct slice *name)
{
    if (!json_scan_next_is(j, '"')) {
        return json_scan_bad(j, "expected a key");
    }
    int rc = json_scan_string(j, name);
    if (rc != 0) {
        return rc;
    }
    json_scan_skip_space(j);
    if (!json_scan_next_is(j, ':')) {
        return json_scan_bad(j, "expected \":\"");
    }
    j->at++;
    json_scan_skip_space(j);
    return 0;
}

/* Checks a value that is not wanted. */
int json_scan_ignore(struct json_scan *j, int depth)
{
    struct slice text;
    bool whole;
    if (json_scan_next_is(j, '"')) {
        return json_scan_string(j, NULL);
    }
    if (!json_scan_next_is(j, '{') && !json_scan_next_is(j, '[')) {
        return json_scan_word(j, "true") || json_scan_word(j, "false") || json_scan_word(j, "null")
                   ? 0
                   : json_scan_number(j, &text, &whole);
    }
    if (depth == JSON_SCAN_DEPTH) {
        return json_scan_bad(j, "nested too deeply");
    }
    bool object = *j->at == '{';
    char close = object ? '}' : ']';
    j->at++;
    json_scan_skip_space(j);
    if (json_scan_next_is(j, close)) {
        j->at++;
        return 0;
    }
    for (;;) {
        json_scan_skip_space(j);
        int rc = object ? json_scan_key(j, NULL) : 0;
        if (rc == 0) {
            rc = json_scan_ignore(j, depth + 1);
        }
        if (rc != 0) {
            return rc;
        }
        json_scan_skip_space(j);
        if (json_scan_next_is(j, close)) {
            j->at++;
            return 0;
        }
        if (!json_scan_next_is(j, ',')) {
            return json_scan_bad(j, object ? "expected \",\" or \"}\"" : "expected \",\" or \"]\"");
        }
        j->at++;
    }
}
