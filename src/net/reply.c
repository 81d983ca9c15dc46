#include "net/reply.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct cursor {
    const char *at, *end;
    struct arena *arena;
    struct err *err;
};

static int bad(struct cursor *c, const char *what)
{
    return err_set(c->err, ERR_INVALID, "the server's reply is not RESP: %s", what);
}

/* Takes a line without its CRLF. */
static int take_line(struct cursor *c, struct slice *line)
{
    size_t len = (size_t)(c->end - c->at);
    size_t look = len < REPLY_LINE_MAX ? len : REPLY_LINE_MAX;
    const char *stop = memmem(c->at, look, "\r\n", 2);
    if (stop == NULL) {
        return look == REPLY_LINE_MAX ? bad(c, "a line without an end") : REPLY_MORE;
    }
    *line = slice_of(c->at, (size_t)(stop - c->at));
    c->at = stop + 2;
    return REPLY_DONE;
}

static bool to_integer(struct slice text, int64_t *out)
{
    char digits[24];
    if (text.len == 0 || text.len >= sizeof digits) {
        return false;
    }
    memcpy(digits, text.data, text.len);
    digits[text.len] = '\0';
    char *end;
    errno = 0;
    long long value = strtoll(digits, &end, 10);
    bool first = digits[0] == '-' || (digits[0] >= '0' && digits[0] <= '9');
    *out = value;
    return first && errno == 0 && *end == '\0';
}

static bool to_double(struct slice text, double *out)
{
    char digits[64];
    if (text.len == 0 || text.len >= sizeof digits || text.data[0] == ' ') {
        return false;
    }
    memcpy(digits, text.data, text.len);
    digits[text.len] = '\0';
    char *end;
    *out = strtod(digits, &end);
    return *end == '\0';
}

static int parse(struct cursor *c, int depth, struct reply *out);

/* n bytes and a CRLF. skip: what stands in front of the text of a verbatim string ("txt:"). */
static int parse_bulk(struct cursor *c, int64_t n, size_t skip, struct reply *out)
{
    if (n > REPLY_TEXT_MAX || n < (int64_t)skip) {
        return bad(c, "a text of a wrong length");
    }
    size_t len = (size_t)n;
    if ((size_t)(c->end - c->at) < len + 2) {
        return REPLY_MORE;
    }
    if (memcmp(c->at + len, "\r\n", 2) != 0) {
        return bad(c, "a text longer than it says");
    }
    out->text = slice_of(c->at + skip, len - skip);
    c->at += len + 2;
    return REPLY_DONE;
}

static int parse_items(struct cursor *c, int64_t n, int depth, struct reply *out)
{
    if (n < 0 || n > INT32_MAX) {
        return bad(c, "an array of a wrong length");
    }
    if (depth == REPLY_DEPTH_MAX) {
        return bad(c, "arrays nested too deep");
    }
    out->kind = REPLY_ARRAY;
    /* The shortest item has three bytes: an array that can't be complete yet gets no memory. */
    if (n > (c->end - c->at) / 3) {
        return REPLY_MORE;
    }
    out->n = (size_t)n;
    out->items = arena_alloc(c->arena, out->n * sizeof *out->items + 1);
    if (out->items == NULL) {
        return err_set(c->err, ERR_NOMEM, "out of memory for a reply");
    }
    for (size_t i = 0; i < out->n; i++) {
        int rc = parse(c, depth + 1, &out->items[i]);
        if (rc != REPLY_DONE) {
            return rc;
        }
    }
    return REPLY_DONE;
}

static int parse(struct cursor *c, int depth, struct reply *out)
{
    *out = (struct reply){0};
    struct slice line = {0};
    if (c->at == c->end) {
        return REPLY_MORE;
    }
    char type = *c->at;
    if (strchr("+-:$*_#,(!=%~>", type) == NULL || type == '\0') {
        return bad(c, "an unknown type");
    }
    int rc = take_line(c, &line);
    if (rc != REPLY_DONE) {
        return rc;
    }
    struct slice value = slice_of(line.data + 1, line.len - 1);
    int64_t n = 0;
    if (strchr(":$*!=%~>", type) != NULL && !to_integer(value, &n)) {
        return bad(c, "a number was expected");
    }
    switch (type) {
    case '+':
    case '(':
    case '-':
        out->kind = type == '-' ? REPLY_ERROR : REPLY_TEXT;
        out->text = value;
        return REPLY_DONE;
    case ':':
        out->kind = REPLY_INTEGER;
        out->integer = n;
        out->number = (double)n;
        return REPLY_DONE;
    case ',':
        out->kind = REPLY_DOUBLE;
        return to_double(value, &out->number) ? REPLY_DONE : bad(c, "a number was expected");
    case '#':
        out->kind = REPLY_BOOL;
        out->integer = slice_eq(value, slice_str("t"));
        return out->integer == 1 || slice_eq(value, slice_str("f")) ? REPLY_DONE : bad(c, "#t or #f was expected");
    case '_':
        return REPLY_DONE;
    case '$':
    case '!':
    case '=':
        if (n == -1 && type == '$') {
            return REPLY_DONE;
        }
        out->kind = type == '!' ? REPLY_ERROR : REPLY_TEXT;
        return parse_bulk(c, n, type == '=' ? 4 : 0, out);
    case '%':
        n = n > INT32_MAX ? -1 : 2 * n;
        return parse_items(c, n, depth, out);
    default:
        if (n == -1 && type == '*') {
            return REPLY_DONE;
        }
        out->push = type == '>';
        return parse_items(c, n, depth, out);
    }
}

int reply_parse(const char *data, size_t len, struct arena *arena, struct reply *out, size_t *used, struct err *err)
{
    struct cursor c = {data, data + len, arena, err};
    int rc = parse(&c, 0, out);
    if (rc == REPLY_DONE) {
        *used = (size_t)(c.at - data);
    }
    return rc;
}

const struct reply *reply_field(const struct reply *map, const char *key)
{
    if (map->kind != REPLY_ARRAY) {
        return NULL;
    }
    for (size_t i = 0; i + 1 < map->n; i += 2) {
        if (map->items[i].kind == REPLY_TEXT && slice_eq(map->items[i].text, slice_str(key))) {
            return &map->items[i + 1];
        }
    }
    return NULL;
}

bool reply_number(const struct reply *r, double *out)
{
    if (r == NULL) {
        return false;
    }
    if (r->kind == REPLY_TEXT) {
        return to_double(r->text, out);
    }
    *out = r->number;
    return r->kind == REPLY_INTEGER || r->kind == REPLY_DOUBLE;
}

bool reply_integer(const struct reply *r, int64_t *out)
{
    if (r == NULL) {
        return false;
    }
    if (r->kind == REPLY_TEXT) {
        return to_integer(r->text, out);
    }
    *out = r->integer;
    return r->kind == REPLY_INTEGER || r->kind == REPLY_BOOL;
}
