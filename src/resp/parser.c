/* RESP, as requests use it: an array of bulk strings,
 *
 *   *2\r\n $4\r\nPING\r\n $2\r\nhi\r\n        (without the blanks)
 *
 * or a line of words, perhaps quoted: what people type into a terminal. Lengths are decimal numbers in their shortest
 * form; each line ends in CR LF, and so does each string. (Redis accepts other bytes in place of CR LF after a string;
 * a stream out of step is better refused.)
 *
 * What can go wrong is found as early as possible: a length over a limit is refused when it is announced, a wrong first
 * byte when it arrives. Announced counts are not trusted either: memory for arguments grows as they arrive. */
#include "resp/parser.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    ARGS_FIRST = 16,
    LEAST_ARG = 6,
    DIGITS_MAX = 18,
    TLS_HANDSHAKE = 0x16,
    CR_LF = '\r' | '\n'
                       << 8,
    SHORT_ARG_ROOM = 5 + 99 + 8, /* an argument whose length has at most two digits, and a word behind its bytes */
};

enum line_result { LINE_MORE = 0, LINE_BAD = -1, LINE_LONG = -2 };

void parser_init(struct parser *p)
{
    *p = (struct parser){.bytes_max = PARSER_BYTES_MAX, .left = -1, .bulk = -1};
}

void parser_free(struct parser *p)
{
    free(p->args);
    buf_free(&p->line);
    p->args = NULL;
    p->args_cap = 0;
}

void parser_next(struct parser *p)
{
    p->n = p->count = p->used = p->need = p->at = 0;
    p->left = p->bulk = -1;
    p->error = NULL;
    p->base = NULL;
    if (p->line.cap > 0) {
        buf_free(&p->line);
    }
}

static enum parse_result bad(struct parser *p, const char *error)
{
    p->error = error;
    return PARSE_BAD;
}

static enum parse_result more(struct parser *p, size_t need)
{
    p->need = need;
    return PARSE_MORE;
}

static size_t bytes_max(const struct parser *p)
{
    return p->guarded && p->bytes_max > PARSER_GUARDED_BYTES ? PARSER_GUARDED_BYTES : p->bytes_max;
}

/* A number and CR LF. Returns the line's length, or LINE_MORE, LINE_BAD, LINE_LONG. */
static inline int number_line(const char *at, const char *end, int64_t *out)
{
    const char *p = at;
    bool negative = p < end && *p == '-';
    p += negative;
    const char *first = p;
    int64_t value = 0;
    while (p < end && *p >= '0' && *p <= '9') {
        if (p - first == DIGITS_MAX) {
            return *first == '0' ? LINE_BAD : LINE_LONG; /* as when the zero came alone */
        }
        value = value * 10 + (*p++ - '0');
    }
    if (p - first > 1 && *first == '0') {
        return LINE_BAD;
    }
    if (p == end) {
        return LINE_MORE;
    }
    if (p == first || *p != '\r' || (end - p > 1 && p[1] != '\n')) {
        return LINE_BAD;
    }
    if (end - p < 2) {
        return LINE_MORE;
    }
    *out = negative ? -value : value;
    return (int)(p + 2 - at);
}

/* Twice as much as is known to be needed, but no more than was announced. */
static size_t args_wanted(const struct parser *p, size_t n)
{
    size_t most = p->left >= 0 ? p->n + (size_t)p->left : PARSER_ARGS_MAX;
    most = most < PARSER_ARGS_MAX ? most : PARSER_ARGS_MAX;
    return 2 * n < most ? 2 * n : most;
}

size_t parser_args_to_come(const struct parser *p, size_t bytes)
{
    size_t more = bytes > p->at ? (bytes - p->at) / LEAST_ARG : 0;
    size_t cap = more > 0 ? args_wanted(p, p->n + more) : 0;
    return (cap > p->args_cap ? cap : p->args_cap) * sizeof *p->args;
}

static bool room_for_arg(struct parser *p)
{
    if (p->n < p->args_cap) {
        return true;
    }
    size_t cap = args_wanted(p, p->n);
    cap = cap > ARGS_FIRST ? cap : ARGS_FIRST;
    struct slice *args = realloc(p->args, cap * sizeof *args);
    if (args == NULL) {
        return false;
    }
    p->args = args;
    p->args_cap = cap;
    return true;
}

static bool keep_arg(struct parser *p, const char *data, size_t len)
{
    p->count++;
    if (p->n == PARSER_ARGS_MAX) {
        return true;
    }
    if (!room_for_arg(p)) {
        return false;
    }
    p->args[p->n++] = slice_of(data, len);
    return true;
}

void parser_moved(struct parser *p, const char *data)
{
    if (p->base == NULL) {
        return; /* an inline command's arguments stand in `line` */
    }
    if (p->base != data) {
        for (size_t i = 0; i < p->n; i++) {
            p->args[i].data = data + (p->args[i].data - p->base);
        }
    }
    p->base = data;
}

static enum parse_result array_head(struct parser *p, const char *data, size_t len)
{
    int64_t count = 0;
    int line = number_line(data + 1, data + len, &count);
    if (line == LINE_MORE) {
        return more(p, len + 1);
    }
    if (line == LINE_LONG) {
        return bad(p, "ERR Protocol error: too big mbulk count string");
    }
    if (line == LINE_BAD || count > PARSER_COUNT_MAX) {
        return bad(p, "ERR Protocol error: invalid multibulk length");
    }
    if (p->guarded && count > PARSER_GUARDED_ARGS) {
        return bad(p, "ERR Protocol error: unauthenticated multibulk length");
    }
    p->at = 1 + (size_t)line;
    p->left = count > 0 ? count : 0;
    return PARSE_DONE;
}

static uint64_t load_word(const char *from)
{
    uint64_t word;
    memcpy(&word, from, sizeof word);
    return le64toh(word);
}

/* Takes arguments as nearly all are: whole, well formed, below 100 bytes, with room to keep them. Stops at the first
 * that is anything else, and near the end of what has come; array_args() sees to that one. A large request is tens of
 * thousands of these, often all of one length: the word behind an argument holds its CR LF and the next one's head,
 * and while that is the head at hand there is nothing to parse. */
static void short_args(struct parser *p, const char *data, size_t len)
{
    size_t limit = len < bytes_max(p) ? len : bytes_max(p);
    size_t at = p->at;
    size_t n = p->n;
    size_t most = p->args_cap < PARSER_ARGS_MAX ? p->args_cap : PARSER_ARGS_MAX;
    if ((uint64_t)p->left < most - n) {
        most = n + (size_t)p->left;
    }
    struct slice *const args = p->args;
    bool good = true;
    while (good && n < most && at + SHORT_ARG_ROOM <= limit) {
        const uint64_t word = load_word(data + at);
        const unsigned tens = (unsigned)(word >> 8 & 0xff) - '0', ones = (unsigned)(word >> 16 & 0xff) - '0';
        const bool two = ones <= 9;
        const size_t bulk = two ? 10 * tens + ones : tens;
        const unsigned head = two ? 5 : 4;
        if ((word & 0xff) != '$' || tens > 9 || (two && tens == 0) || (word >> 8 * (head - 2) & 0xffff) != CR_LF) {
            break;
        }
        const uint64_t mask = UINT64_MAX >> (64 - 8 * (2 + head)), again = (word << 16 | CR_LF) & mask;
        uint64_t behind;
        do {
            const char *body = data + at + head;
            behind = load_word(body + bulk);
            good = (behind & 0xffff) == CR_LF;
            if (!good) {
                break;
            }
            args[n++] = slice_of(body, bulk);
            at += head + bulk + 2;
        } while ((behind & mask) == again && n < most && at + SHORT_ARG_ROOM <= limit);
    }
    p->left -= (int64_t)(n - p->n);
    p->count += n - p->n;
    p->n = n;
    p->at = at;
}

static enum parse_result array_args(struct parser *p, const char *data, size_t len)
{
    const char *end = data + len;
    while (p->left > 0) {
        if (p->bulk < 0) {
            short_args(p, data, len);
            if (p->left == 0) {
                break;
            }
        }
        const char *at = data + p->at;
        if (p->bulk < 0) {
            if (at == end) {
                break;
            }
            if (*at != '$') {
                snprintf(p->text, sizeof p->text, "ERR Protocol error: expected '$', got '%c'", *at);
                return bad(p, p->text);
            }
            int64_t bulk = 0;
            int line = number_line(at + 1, end, &bulk);
            if (line == LINE_MORE) {
                break;
            }
            if (line == LINE_LONG) {
                return bad(p, "ERR Protocol error: too big bulk count string");
            }
            if (line == LINE_BAD || bulk < 0 || bulk > (int64_t)p->bytes_max) {
                return bad(p, "ERR Protocol error: invalid bulk length");
            }
            if (p->guarded && bulk > PARSER_GUARDED_BYTES) {
                return bad(p, "ERR Protocol error: unauthenticated bulk length");
            }
            p->at += 1 + (size_t)line;
            at += 1 + line;
            if (p->at + (size_t)bulk + 2 > bytes_max(p)) {
                return bad(p, "ERR Protocol error: too big request");
            }
            p->bulk = bulk;
        }
        if (end - at < p->bulk + 2) {
            if (end - at > p->bulk && at[p->bulk] != '\r') {
                return bad(p, "ERR Protocol error: expected CR LF behind an argument");
            }
            break;
        }
        if (at[p->bulk] != '\r' || at[p->bulk + 1] != '\n') {
            return bad(p, "ERR Protocol error: expected CR LF behind an argument");
        }
        if (!keep_arg(p, at, (size_t)p->bulk)) {
            return bad(p, "OOM out of memory while reading a request");
        }
        p->at += (size_t)p->bulk + 2;
        p->bulk = -1;
        p->left--;
    }
    if (p->left == 0) {
        p->used = p->at;
        return PARSE_DONE;
    }
    size_t least = p->at + (p->bulk < 0 ? 0 : (size_t)p->bulk + 2);
    least += (size_t)(p->left - (p->bulk >= 0)) * LEAST_ARG;
    if (least > bytes_max(p)) {
        return bad(p, "ERR Protocol error: too big request");
    }
    return more(p, least > len ? least : len + 1);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    char low = (char)(c | 0x20);
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0';
}

/* One character of a double-quoted word, unescaped. Returns how many bytes it took. */
static size_t unescape(const char *at, const char *end, char *out)
{
    static const char from[] = "nrtba", to[] = "\n\r\t\b\a";
    *out = *at;
    if (*at != '\\' || end - at < 2) {
        return 1;
    }
    if (at[1] == 'x' && end - at >= 4 && hex_digit(at[2]) >= 0 && hex_digit(at[3]) >= 0) {
        *out = (char)(hex_digit(at[2]) * 16 + hex_digit(at[3]));
        return 4;
    }
    const char *known = memchr(from, at[1], sizeof from - 1);
    *out = known != NULL ? to[known - from] : at[1];
    return 2;
}

/* Appends one word to p->line, which has room for the whole request line. Returns the end of the word, or NULL when a
 * quote is not closed, or closed in the middle of a word. */
static const char *inline_word(struct parser *p, const char *at, const char *end)
{
    char quote = 0;
    while (at < end) {
        char c = *at;
        if (quote == 0) {
            if (is_blank(c)) {
                return at;
            }
            at++;
            if (c == '"' || c == '\'') {
                quote = c;
                continue;
            }
        } else if (c == quote) {
            at++;
            return at == end || is_blank(*at) ? at : NULL;
        } else if (quote == '"') {
            at += unescape(at, end, &c);
        } else if (c == '\\' && end - at > 1 && at[1] == '\'') {
            c = '\'';
            at += 2;
        } else {
            at++;
        }
        p->line.data[p->line.len++] = c;
    }
    return quote == 0 ? at : NULL;
}

static bool same_word(struct slice a, const char *word)
{
    return a.len == strlen(word) && strncasecmp(a.data, word, a.len) == 0;
}

/* What is no text can't be the first byte of an inline command. A handshake of TLS begins with 0x16. */
static const char *foreign(unsigned char first)
{
    if (first == TLS_HANDSHAKE) {
        return "ERR Protocol error: this port speaks the Redis protocol, not TLS";
    }
    bool text = (first >= ' ' && first < 0x7f) || (first >= '\t' && first <= '\r');
    return text ? NULL : "ERR Protocol error: what came is not RESP";
}

/* A browser, or a page that makes a browser post commands here. */
static bool looks_like_http(const struct parser *p)
{
    const struct slice last = p->args[p->n - 1];
    return same_word(p->args[0], "POST") || same_word(p->args[0], "Host:") ||
           (p->n > 1 && last.len >= 7 && memcmp(last.data, "HTTP/", 5) == 0);
}

static enum parse_result inline_request(struct parser *p, const char *data, size_t len)
{
    const char *stranger = foreign((unsigned char)data[0]);
    if (stranger != NULL) {
        return bad(p, stranger);
    }
    const char *newline = memchr(data + p->at, '\n', len - p->at);
    size_t line_len = newline == NULL ? len : (size_t)(newline - data);
    if (line_len > PARSER_INLINE_MAX || line_len > bytes_max(p)) {
        return bad(p, "ERR Protocol error: too big inline request");
    }
    if (newline == NULL) {
        p->at = len;
        return more(p, len + 1);
    }
    const char *end = newline > data && newline[-1] == '\r' ? newline - 1 : newline;
    if (buf_reserve(&p->line, line_len + 1) < 0) {
        return bad(p, "OOM out of memory while reading a request");
    }
    for (const char *at = data; at < end;) {
        if (is_blank(*at)) {
            at++;
            continue;
        }
        size_t start = p->line.len;
        at = inline_word(p, at, end);
        if (at == NULL) {
            return bad(p, "ERR Protocol error: unbalanced quotes in request");
        }
        if (p->guarded && p->n == PARSER_GUARDED_ARGS) {
            return bad(p, "ERR Protocol error: unauthenticated multibulk length");
        }
        if (!keep_arg(p, p->line.data + start, p->line.len - start)) {
            return bad(p, "OOM out of memory while reading a request");
        }
    }
    if (p->n > 0 && looks_like_http(p)) {
        return bad(p, "ERR Protocol error: this port speaks the Redis protocol, not HTTP");
    }
    p->at = p->used = line_len + 1;
    return PARSE_DONE;
}

enum parse_result parser_feed(struct parser *p, const char *data, size_t len)
{
    if (p->error != NULL) {
        return PARSE_BAD;
    }
    if (len == 0) {
        return more(p, 1);
    }
    if (p->left < 0 && data[0] != '*') {
        return inline_request(p, data, len);
    }
    parser_moved(p, data);
    p->base = data;
    if (p->left < 0) {
        enum parse_result head = array_head(p, data, len);
        if (head != PARSE_DONE) {
            return head;
        }
    }
    return array_args(p, data, len);
}
