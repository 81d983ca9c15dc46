/* The header Authorization, of HTTP and of gRPC alike (RFC 7617, RFC 6750). */
#include <strings.h>

#include "service/account_impl.h"

enum {
    TOKEN_MAX = ACCOUNT_NAME_MAX + 1 + ACCOUNT_PASSWORD_MAX, /* name:password */
    BASE64_MAX = (TOKEN_MAX + 2) / 3 * 4,
};

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
static int decode(struct slice text, char out[TOKEN_MAX + 2])
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

enum account_state account_login_header(struct conn *c, struct account_login *l, struct slice authorization)
{
    static const struct err missing = {.code = ERR_NOAUTH};
    struct slice rest;
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
    if (has_scheme(authorization, "Bearer", &rest)) {
        return account_login(c, l, slice_str(account_default.name), rest);
    }
    char text[TOKEN_MAX + 2];
    int n = has_scheme(authorization, "Basic", &rest) ? decode(rest, text) : -1;
    const char *colon = n > 0 ? memchr(text, ':', (size_t)n) : NULL;
    struct slice name = {"", 0}, password = {"", 0}; /* nobody's */
    if (colon != NULL) {
        name = slice_of(text, (size_t)(colon - text));
        password = slice_of(colon + 1, (size_t)(text + n - colon - 1));
    }
    enum account_state state = account_login(c, l, name, password);
    explicit_bzero(text, sizeof text);
    return state;
}
