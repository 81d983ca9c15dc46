/* The header Authorization, of HTTP and of gRPC alike (RFC 7617, RFC 6750). */
#include <strings.h>

#include "service/account_impl.h"

enum { BASE64_MAX = (AUTHORIZATION_MAX - 2 + 2) / 3 * 4 };

static int digit(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* Returns how many bytes, or -1. */
static int decode(struct slice text, char out[AUTHORIZATION_MAX])
{
    unsigned bits = 0, n = 0;
    int len = 0;
    while (text.len > 0 && text.data[text.len - 1] == '=') {
        text.len--;
    }
    if (text.len > BASE64_MAX || text.len % 4 == 1) {
        return -1;
    }
    for (size_t i = 0; i < text.len; i++) {
        int value = digit(text.data[i]);
        if (value < 0) {
            return -1;
        }
        bits = (bits << 6 | (unsigned)value) & 0xffff;
        n += 6;
        if (n >= 8) {
            n -= 8;
            out[len++] = (char)(bits >> n);
        }
    }
    return len;
}

/* What stands behind the scheme, without blanks before it. */
static bool has_scheme(struct slice header, const char *scheme, struct slice *rest)
{
    size_t n = strlen(scheme);
    if (header.len <= n || strncasecmp(header.data, scheme, n) != 0 || header.data[n] != ' ') {
        return false;
    }
    *rest = slice_of(header.data + n, header.len - n);
    while (rest->len > 0 && rest->data[0] == ' ') {
        *rest = slice_of(rest->data + 1, rest->len - 1);
    }
    return true;
}

void authorization_read(struct slice header, char text[AUTHORIZATION_MAX], struct slice *name, struct slice *password)
{
    struct slice rest;
    *name = *password = (struct slice){"", 0}; /* of no account */
    if (has_scheme(header, "Bearer", &rest)) {
        *name = slice_str(account_default.name);
        *password = rest;
        return;
    }
    int n = has_scheme(header, "Basic", &rest) ? decode(rest, text) : -1;
    const char *colon = n > 0 ? memchr(text, ':', (size_t)n) : NULL;
    if (colon != NULL) {
        *name = slice_of(text, (size_t)(colon - text));
        *password = slice_of(colon + 1, (size_t)(text + n - colon - 1));
    }
}

enum account_state account_login_header(struct conn *c, struct account_login *l, struct slice authorization)
{
    static const struct err missing = {.code = ERR_NOAUTH};
    const struct service *s = c->worker->pool->service;
    l->who = (struct identity){NULL, NULL};
    l->err = NULL;
    if (account_now(s, &l->who) != NULL) {
        return ACCOUNT_AT_HAND; /* nothing is asked for */
    }
    if (authorization.data == NULL) {
        l->err = &missing;
        return ACCOUNT_AT_HAND;
    }
    char text[AUTHORIZATION_MAX] = "";
    struct slice name, password;
    authorization_read(authorization, text, &name, &password);
    enum account_state state = account_login(c, l, name, password);
    explicit_bzero(text, sizeof text);
    return state;
}
