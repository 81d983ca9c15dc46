#include "http/parser.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "http/parser_library.h"

/* What the library's callbacks know. */
struct parse {
    struct head *head;
    enum head_field field;  /* FIELDS: none that matters */
    char *ends[FIELDS + 1]; /* of the fields, and of the target, where a NUL goes */
};

/* Those that may stand there once: what a second one means is not known. */
static const char *const twice[FIELDS] = {
    [FIELD_HOST] = "Host is given twice",
    [FIELD_AUTHORIZATION] = "Authorization is given twice",
    [FIELD_CONTENT_TYPE] = "Content-Type is given twice",
    [FIELD_CONTENT_LENGTH] = "Content-Length is given twice",
    [FIELD_TRANSFER_ENCODING] = "Transfer-Encoding is given twice",
};

static const char not_chunked[] = "Transfer-Encoding is something else than chunked";

static const char *const field_names[FIELDS] = {
    [FIELD_HOST] = "Host",
    [FIELD_AUTHORIZATION] = "Authorization",
    [FIELD_CONTENT_TYPE] = "Content-Type",
    [FIELD_CONTENT_ENCODING] = "Content-Encoding",
    [FIELD_CONTENT_LENGTH] = "Content-Length",
    [FIELD_TRANSFER_ENCODING] = "Transfer-Encoding",
    [FIELD_EXPECT] = "Expect",
};

size_t head_find(struct slice text, size_t *seen)
{
    size_t from = *seen > 3 ? *seen - 3 : 0;
    const char *end = text.len > from ? memmem(text.data + from, text.len - from, "\r\n\r\n", 4) : NULL;
    *seen = text.len;
    return end != NULL ? (size_t)(end - text.data) + 4 : 0;
}

bool head_may_begin(struct slice text)
{
    enum { METHOD_MAX = 16 };
    for (size_t i = 0; i < text.len && i < METHOD_MAX; i++) {
        if (text.data[i] == ' ') {
            return i > 0;
        }
        if (!isupper((unsigned char)text.data[i]) && text.data[i] != '-') {
            return false;
        }
    }
    return text.len < METHOD_MAX;
}

/* --- the head --- */

static void refuse(struct head *head, unsigned status, const char *error)
{
    if (head->status == 0) {
        head->status = status;
        head->error = error;
    }
}

/* What the libraries overlook. */
static void check_lines(struct head *head, const char *text, size_t len)
{
    const char *end = text + len;
    if (memchr(text, '\0', len) != NULL) {
        refuse(head, 400, "the head holds a NUL");
    }
    for (const char *line = text, *cr; line < end && head->status == 0; line = cr + 2) {
        cr = memchr(line, '\r', (size_t)(end - line));
        if (cr == NULL || cr + 1 == end || cr[1] != '\n' || memchr(line, '\n', (size_t)(cr - line)) != NULL) {
            refuse(head, 400, "a line of the head does not end with CR and LF");
            return;
        }
        const char *colon = memchr(line, ':', (size_t)(cr - line));
        if (*line == ' ' || *line == '\t') {
            refuse(head, 400, "a header is folded over two lines");
        } else if (line > text && colon != NULL && (colon[-1] == ' ' || colon[-1] == '\t')) {
            refuse(head, 400, "a space stands before the colon of a header");
        } else if (line > text && colon != NULL && memchr(line, ' ', (size_t)(colon - line)) != NULL) {
            refuse(head, 400, "a header's name holds a space");
        }
    }
}

static int on_target(library_parser *l, const char *at, size_t len)
{
    struct parse *p = l->data;
    p->head->target = (char *)at;
    p->ends[FIELDS] = (char *)at + len;
    return 0;
}

static int on_field(library_parser *l, const char *at, size_t len)
{
    struct parse *p = l->data;
    for (p->field = 0; p->field < FIELDS; p->field++) {
        const char *name = field_names[p->field];
        if (strlen(name) == len && strncasecmp(name, at, len) == 0) {
            break;
        }
    }
    if (p->field < FIELDS && p->head->fields[p->field] != NULL && twice[p->field] != NULL) {
        refuse(p->head, 400, twice[p->field]);
    }
    return 0;
}

static int on_value(library_parser *l, const char *at, size_t len)
{
    struct parse *p = l->data;
    if (p->field == FIELDS || p->head->fields[p->field] != NULL) {
        return 0;
    }
    while (len > 0 && (at[len - 1] == ' ' || at[len - 1] == '\t')) {
        len--;
    }
    p->head->fields[p->field] = at;
    p->ends[p->field] = (char *)at + len;
    return 0;
}

/* Not later: llhttp forgets it when it is through. */
static int on_end(library_parser *l)
{
    struct parse *p = l->data;
    p->head->keep_alive = library_keeps_alive(l);
    return 0;
}

static bool is_chunked(const struct head *head)
{
    const char *encoding = head->fields[FIELD_TRANSFER_ENCODING];
    return encoding != NULL && strcasecmp(encoding, "chunked") == 0;
}

/* Where a body ends must be beyond doubt, also for a proxy in front. Else nothing behind it can be understood. */
static void check_framing(struct head *head)
{
    const char *encoding = head->fields[FIELD_TRANSFER_ENCODING];
    if (encoding != NULL && !is_chunked(head)) {
        refuse(head, 501, not_chunked);
    } else if (encoding != NULL && head->fields[FIELD_CONTENT_LENGTH] != NULL) {
        refuse(head, 400, "both Content-Length and Transfer-Encoding are given, expected one");
    } else if (encoding != NULL && head->old) {
        refuse(head, 400, "Transfer-Encoding is given, which HTTP/1.0 does not know");
    } else if (head->fields[FIELD_HOST] == NULL && !head->old) {
        refuse(head, 400, "the header Host is missing");
    }
    head->chunked = encoding != NULL;
}

static void set_length(struct head *head)
{
    const char *text = head->fields[FIELD_CONTENT_LENGTH];
    for (const char *at = text; at != NULL && *at != '\0'; at++) {
        if (!isdigit((unsigned char)*at)) {
            refuse(head, 400, "Content-Length is no number");
            return;
        }
        head->length = head->length < UINT64_MAX / 20 ? head->length * 10 + (uint64_t)(*at - '0') : UINT64_MAX;
    }
    if (text != NULL && *text == '\0') {
        refuse(head, 400, "Content-Length is no number");
    }
}

/* Whether the library has stopped in the middle of a number, which it can't hold. */
static bool is_long_length(int error, const char *text, size_t at, size_t len)
{
    return error == HPE_INVALID_CONTENT_LENGTH && at < len && isdigit((unsigned char)text[at]) && at > 0 &&
           isdigit((unsigned char)text[at - 1]);
}

static void check_result(struct head *head, const library_parser *l, int error)
{
    if (error == HPE_INVALID_METHOD) {
        refuse(head, 501, "the method is none that is known");
    } else if (error == HPE_INVALID_VERSION ||
               (error == HPE_OK && (l->http_major != 1 || (l->http_minor != 1 && l->http_minor != 0)))) {
        refuse(head, 505, "the version of HTTP is neither 1.1 nor 1.0");
    } else if ((error == HPE_INVALID_TRANSFER_ENCODING && head->fields[FIELD_CONTENT_LENGTH] == NULL) ||
               (error != HPE_OK && head->fields[FIELD_TRANSFER_ENCODING] != NULL && !is_chunked(head))) {
        refuse(head, 501, not_chunked);
    } else if (error != HPE_OK || head->target == NULL) {
        refuse(head, 400, library_error(l));
    }
}

/* RFC 3986's host and port: an address in brackets, or a name; no user. */
static void check_host(struct head *head, const char *host)
{
    static const char name[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~%!$&'()*+,;=";
    static const char address[] = "0123456789abcdefABCDEF:.vV%-_~";
    if (host == NULL) {
        return;
    }
    const char *at = host;
    if (*at == '[') {
        at += 1 + strspn(at + 1, address);
        at = *at == ']' ? at + 1 : "[";
    } else {
        at += strspn(at, name);
    }
    at += *at == ':' ? 1 + strspn(at + 1, "0123456789") : 0;
    if (*at != '\0') {
        refuse(head, 400, "the host is neither a name nor an address, with or without a port");
    }
}

/* The host moves to where the scheme was, so that there is room for its end, and for the slash that may be missing. */
static void take_target(struct head *head)
{
    char *host = head->target;
    if (head->status != 0 || *host == '/') {
        return;
    }
    if (strcmp(host, "*") == 0 && strcmp(head->method, "OPTIONS") == 0) {
        return;
    }
    size_t scheme = strncasecmp(host, "http://", 7) == 0 ? 7 : strncasecmp(host, "https://", 8) == 0 ? 8 : 0;
    size_t len = strcspn(host + scheme, "/?#");
    if (scheme == 0 || len == 0 || host[scheme] == ':') {
        refuse(head, 400, "the target is neither a path nor an http URL");
        return;
    }
    memmove(host, host + scheme, len);
    head->target = host + scheme + len - 1;
    if (head->target[1] == '/') {
        head->target++;
    } else {
        *head->target = '/';
    }
    host[len] = '\0';
    head->fields[FIELD_HOST] = host;
    check_host(head, host);
}

void head_parse(struct head *head, char *text, size_t len)
{
    static const library_settings settings = {
        .on_url = on_target, .on_header_field = on_field, .on_header_value = on_value, .on_headers_complete = on_end};
    *head = (struct head){.method = ""};
    struct parse p = {.head = head, .field = FIELDS};
    check_lines(head, text, len);
    if (head->status != 0) {
        return;
    }
    library_parser l;
    size_t at;
    int error = library_execute(&l, &p, &settings, text, len, &at);
    if (is_long_length(error, text, at, len)) {
        refuse(head, 413, "Content-Length is beyond all bounds");
    }
    for (int i = 0; i <= FIELDS; i++) {
        if (p.ends[i] != NULL) {
            *p.ends[i] = '\0';
        }
    }
    check_result(head, &l, error);
    head->method = library_method(&l);
    head->old = l.http_minor == 0;
    set_length(head);
    check_framing(head);
    check_host(head, head->fields[FIELD_HOST]);
    take_target(head);
}

/* --- chunks --- */

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

static enum chunk_state at_size(struct chunks *k, char c)
{
    if (hex(c) >= 0) {
        k->left = k->left << 4 | (unsigned)hex(c);
        return ++k->digits < 15 ? CHUNK_SIZE : CHUNK_LARGE;
    }
    return k->digits == 0          ? CHUNK_BAD
           : c == '\r'             ? CHUNK_SIZE_LF
           : c == ' ' || c == '\t' ? CHUNK_SPACE
           : c == ';'              ? CHUNK_EXTENSION
                                   : CHUNK_BAD;
}

/* The state behind one byte that is not body. */
static enum chunk_state next(struct chunks *k, char c, size_t body_max)
{
    switch (k->state) {
    case CHUNK_SIZE:
        return at_size(k, c);
    case CHUNK_SPACE:
        return c == ' ' || c == '\t' ? CHUNK_SPACE : c == ';' ? CHUNK_EXTENSION : CHUNK_BAD;
    case CHUNK_EXTENSION:
        return c == '\r' ? CHUNK_SIZE_LF : c == '\n' ? CHUNK_BAD : CHUNK_EXTENSION;
    case CHUNK_SIZE_LF:
        return c != '\n'                      ? CHUNK_BAD
               : k->left == 0                 ? CHUNK_TRAILER
               : k->left > body_max - k->body ? CHUNK_LARGE
                                              : CHUNK_DATA;
    case CHUNK_CR:
        return c == '\r' ? CHUNK_LF : CHUNK_BAD;
    case CHUNK_LF:
        k->digits = 0;
        return c == '\n' ? CHUNK_SIZE : CHUNK_BAD;
    case CHUNK_TRAILER:
        return c == '\r' ? CHUNK_END_LF : c == '\n' || c == ' ' || c == '\t' ? CHUNK_BAD : CHUNK_TRAILER_REST;
    case CHUNK_TRAILER_REST:
        return c == '\r' ? CHUNK_TRAILER_LF : c == '\n' ? CHUNK_BAD : CHUNK_TRAILER_REST;
    case CHUNK_TRAILER_LF:
        return c == '\n' ? CHUNK_TRAILER : CHUNK_BAD;
    case CHUNK_END_LF:
        return c == '\n' ? CHUNK_DONE : CHUNK_BAD;
    default:
        return k->state;
    }
}

size_t chunks_scan(struct chunks *k, const char *bytes, size_t len, size_t body_max, char *to)
{
    size_t at = 0;
    while (at < len && k->state < CHUNK_DONE) {
        if (k->state != CHUNK_DATA) {
            k->state = next(k, bytes[at++], body_max);
            k->state = ++k->beside > CHUNKS_MAX && k->state < CHUNK_DONE ? CHUNK_LARGE : k->state;
            continue;
        }
        size_t n = k->left < len - at ? (size_t)k->left : len - at;
        if (to != NULL) {
            memmove(to + k->body, bytes + at, n);
        }
        k->body += n;
        k->left -= n;
        at += n;
        k->state = k->left == 0 ? CHUNK_CR : CHUNK_DATA;
    }
    return at;
}
