#include "legacy/reply_limits.h"

#include <ctype.h>
#include <string.h>

/* Counts bytes of the reply, which come or are announced. */
static int charge(struct reply_limits *l, size_t n, struct err *err)
{
    if (n > l->bytes_max || l->bytes > l->bytes_max - n) {
        return err_set(err, ERR_LARGE, "a reply has more than %zu bytes, expected at most so many", l->bytes_max);
    }
    l->bytes += n;
    return 0;
}

/* An element is whole; with the last one of an array that is, too. */
static void end_element(struct reply_limits *l)
{
    while (l->depth > 0 && --l->left[l->depth - 1] == 0) {
        l->depth--;
    }
    if (l->depth == 0) {
        l->bytes = l->elements = 0;
    }
}

static int begin_array(struct reply_limits *l, size_t n, struct err *err)
{
    if (n > l->elements_max || l->elements > l->elements_max - n) {
        return err_set(err, ERR_LARGE, "a reply announces %zu elements, expected at most %zu in all", n,
                       l->elements_max);
    }
    if (n == 0) {
        end_element(l);
        return 0;
    }
    if (l->depth == REPLY_DEPTH_MAX) {
        return err_set(err, ERR_LARGE, "a reply nests arrays deeper than the %d levels expected", REPLY_DEPTH_MAX);
    }
    l->elements += n;
    l->left[l->depth++] = n;
    return 0;
}

static int begin_string(struct reply_limits *l, size_t n, struct err *err)
{
    if (n > l->bytes_max) {
        return err_set(err, ERR_LARGE, "a reply announces a string of %zu bytes, expected at most %zu", n,
                       l->bytes_max);
    }
    l->skip = n + 2;
    return charge(l, l->skip, err);
}

static int bad_length(const struct reply_limits *l, struct err *err)
{
    int n = l->line < REPLY_HEAD_MAX ? (int)l->line : REPLY_HEAD_MAX;
    while (n > 1 && !isprint((unsigned char)l->head[n - 1])) {
        n--;
    }
    return err_set(err, ERR_SYSTEM, "a reply begins with \"%.*s\", expected %c and a length", n, l->head, l->head[0]);
}

/* The line's number: a length, or -1 for nil. Anything else is refused here,
 * since hiredis might take it for another number. */
static int read_length(const struct reply_limits *l, bool *nil, size_t *length, struct err *err)
{
    const size_t end = l->line - 2; /* of the digits */
    *nil = end == 3 && l->head[1] == '-' && l->head[2] == '1';
    *length = 0;
    if (*nil) {
        return 0;
    }
    if (end < 2 || end > 1 + 18) {
        return bad_length(l, err);
    }
    for (size_t i = 1; i < end; i++) {
        if (l->head[i] < '0' || l->head[i] > '9') {
            return bad_length(l, err);
        }
        *length = *length * 10 + (size_t)(l->head[i] - '0');
    }
    return 0;
}

static int end_line(struct reply_limits *l, struct err *err)
{
    const char type = l->head[0];
    bool nil = true;
    size_t length = 0;
    int result = type == '$' || type == '*' ? read_length(l, &nil, &length, err) : 0;
    l->line = 0;
    l->last = '\0';
    if (result < 0) {
        return result;
    }
    if (nil) {
        end_element(l);
        return 0;
    }
    return type == '$' ? begin_string(l, length, err) : begin_array(l, length, err);
}

/* Takes bytes of a line, up to its end if that is among them. Returns how many, or an error. */
static int see_line(struct reply_limits *l, const char *bytes, size_t n, size_t *used, struct err *err)
{
    if (l->line == 0 && memchr("+-:$*", bytes[0], 5) == NULL) {
        return err_set(err, ERR_SYSTEM, "a reply begins with byte 0x%02x, expected one of +-:$*",
                       (unsigned char)bytes[0]);
    }
    const char *newline = memchr(bytes, '\n', n);
    const size_t len = newline != NULL ? (size_t)(newline - bytes) + 1 : n;
    const char before = len > 1 ? bytes[len - 2] : l->last;
    const char type = l->line == 0 ? bytes[0] : l->head[0];
    if (l->line < REPLY_HEAD_MAX) {
        size_t room = REPLY_HEAD_MAX - l->line;
        memcpy(l->head + l->line, bytes, len < room ? len : room);
    }
    l->line += len;
    l->last = bytes[len - 1];
    *used = len;
    if (l->line > (type == '$' || type == '*' ? (size_t)REPLY_HEAD_MAX : (size_t)REPLY_LINE_MAX)) {
        return type == '$' || type == '*'
                   ? bad_length(l, err)
                   : err_set(err, ERR_LARGE, "a reply has a line of more than the %d bytes expected", REPLY_LINE_MAX);
    }
    int result = charge(l, len, err);
    return result == 0 && newline != NULL && before == '\r' ? end_line(l, err) : result;
}

int reply_limits_see(struct reply_limits *l, const char *bytes, size_t n, size_t *good, struct err *err)
{
    size_t used = 0;
    for (*good = 0; *good < n; *good += used) {
        if (l->skip > 0) {
            used = n - *good < l->skip ? n - *good : l->skip;
            l->skip -= used;
            if (l->skip == 0) {
                end_element(l);
            }
        } else {
            int result = see_line(l, bytes + *good, n - *good, &used, err);
            if (result < 0) {
                return result;
            }
        }
    }
    return 0;
}
