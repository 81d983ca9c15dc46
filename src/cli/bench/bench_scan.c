#include "cli/bench/bench_scan.h"

enum { DIGITS_MAX = 18, COUNT_MAX = 1 << 30 };

/* The number behind a type byte. Returns the offset of the byte that ends it. */
static size_t read_number(const char *data, size_t at, size_t len, int64_t *out)
{
    bool negative = at < len && data[at] == '-';
    int64_t value = 0;
    at += negative;
    size_t first = at;
    while (at < len && at - first < DIGITS_MAX && data[at] >= '0' && data[at] <= '9') {
        value = value * 10 + (data[at++] - '0');
    }
    *out = negative ? -value : value;
    return at;
}

/* Where the line at `at` ends, behind its newline; 0: not there yet. */
static size_t line_end(const char *data, size_t at, size_t len)
{
    const char *newline = memchr(data + at, '\n', len - at);
    return newline == NULL ? 0 : (size_t)(newline - data) + 1;
}

/* How a type of reply goes on. */
enum form { FORM_LINE, FORM_NUMBER, FORM_STRING, FORM_VALUES, FORM_PAIRS, FORM_BAD };

static enum form form_of(char type)
{
    switch (type) {
    case '$':
    case '=':
    case '!':
        return FORM_STRING;
    case '*':
    case '~':
    case '>':
        return FORM_VALUES;
    case ':':
        return FORM_NUMBER;
    case '%':
        return FORM_PAIRS;
    case '+':
    case '-':
    case ',':
    case '#':
    case '_':
    case '(':
        return FORM_LINE;
    default:
        return FORM_BAD;
    }
}

/* One line, and what it announces. */
static int scan_line(struct bench_scan *s, const char *data, size_t len)
{
    enum form form = form_of(data[s->at]);
    if (form == FORM_BAD) {
        return BENCH_SCAN_BAD;
    }
    if (form == FORM_LINE) {
        size_t end = line_end(data, s->at, len);
        s->at = end > 0 ? end : s->at;
        return end > 0 ? BENCH_SCAN_DONE : BENCH_SCAN_MORE;
    }
    int64_t number;
    size_t at = read_number(data, s->at + 1, len, &number);
    if (len - at < 2) {
        return BENCH_SCAN_MORE;
    }
    if (data[at] != '\r' || data[at + 1] != '\n' || (form != FORM_NUMBER && number > COUNT_MAX)) {
        return BENCH_SCAN_BAD;
    }
    s->at = at + 2;
    if (number > 0) {
        s->left += form == FORM_VALUES ? number : form == FORM_PAIRS ? 2 * number : 0;
    }
    if (form == FORM_STRING && number >= 0) {
        s->skip = (size_t)number + 2;
    }
    return BENCH_SCAN_DONE;
}

int bench_scan(struct bench_scan *s, const char *data, size_t len)
{
    if (!s->begun) {
        s->begun = true;
        s->left = 1;
    }
    for (;;) {
        size_t skip = s->skip < len - s->at ? s->skip : len - s->at;
        s->at += skip;
        s->skip -= skip;
        if (s->skip == 0 && s->left == 0) {
            return BENCH_SCAN_DONE;
        }
        if (s->at == len) {
            return BENCH_SCAN_MORE;
        }
        int result = scan_line(s, data, len);
        if (result != BENCH_SCAN_DONE) {
            return result;
        }
        s->left--;
    }
}

char bench_line(struct slice reply, size_t *at, int64_t *number, struct slice *text)
{
    *number = 0;
    *text = (struct slice){NULL, 0};
    if (*at >= reply.len) {
        return '\0';
    }
    char type = reply.data[*at];
    size_t begin = *at + 1;
    read_number(reply.data, begin, reply.len, number);
    size_t end = line_end(reply.data, *at, reply.len);
    if (form_of(type) == FORM_STRING && *number >= 0) {
        *text = slice_of(reply.data + end, (size_t)*number);
        end += (size_t)*number + 2;
    } else if (end >= begin + 2) {
        *text = slice_of(reply.data + begin, end - 2 - begin);
    }
    *at = end;
    return type;
}
