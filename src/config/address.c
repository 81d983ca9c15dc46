/* Addresses are numeric, so that reading one asks no name server and means the same each time. */
#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "config/config.h"

static const char tls[] = "tls://";

/* The whole text as a port, or -1. */
static int read_port(const char *text)
{
    int port = 0;
    for (const char *at = text; *at != '\0'; at++) {
        if (!isdigit((unsigned char)*at)) {
            return -1;
        }
        port = port * 10 + (*at - '0');
        if (port > 65535) {
            return -1;
        }
    }
    return text[0] == '\0' ? -1 : port;
}

static int read_address(const char *text, struct config_address *out)
{
    const char *colon = strrchr(text, ':');
    out->port = colon != NULL ? read_port(colon + 1) : -1;
    if (out->port < 0) {
        return ERR_INVALID;
    }
    bool v6 = text[0] == '[';
    size_t len = (size_t)(colon - text);
    if (v6) {
        if (len < 2 || text[len - 1] != ']') {
            return ERR_INVALID;
        }
        text++;
        len -= 2;
    }
    if (len >= CONFIG_HOST_TEXT) {
        return ERR_INVALID;
    }
    memcpy(out->host, text, len);
    out->host[len] = '\0';
    if (!v6 && strcmp(out->host, "localhost") == 0) {
        strcpy(out->host, "127.0.0.1");
    }
    unsigned char address[sizeof(struct in6_addr)];
    return inet_pton(v6 ? AF_INET6 : AF_INET, out->host, address) == 1 ? 0 : ERR_INVALID;
}

static bool next_word(const char **at, char out[CONFIG_TEXT])
{
    static const char between[] = ", \t";
    const char *start = *at + strspn(*at, between);
    size_t len = strcspn(start, between);
    *at = start + len;
    snprintf(out, CONFIG_TEXT, "%.*s", len < CONFIG_TEXT ? (int)len : 0, start); /* cut, it could mean another */
    return len > 0;
}

bool config_next_redis(const char **at, char out[CONFIG_TEXT])
{
    bool path = (*at)[0] == '/' || strncmp(*at, "unix:", 5) == 0;
    if (!path) {
        return next_word(at, out);
    }
    snprintf(out, CONFIG_TEXT, "%s", *at);
    *at += strlen(*at);
    return true; /* what follows it is empty */
}

bool config_is_port(const char *text)
{
    uint64_t port;
    return strlen(text) <= 5 && count_read(text, 65535, &port) && port >= 1;
}

/* A name may be resolved to another machine at any time, so it is only looked at as text. */
bool config_is_host_port(const char *text)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text) {
        return false;
    }
    size_t len = (size_t)(colon - text);
    bool v6 = text[0] == '[' && text[len - 1] == ']' && len > 3;
    for (size_t i = v6 ? 1 : 0; i < len - v6; i++) {
        if (!isalnum((unsigned char)text[i]) && strchr(v6 ? ":.%" : ".-_", text[i]) == NULL) {
            return false;
        }
    }
    return config_is_port(colon + 1);
}

bool config_is_node(const char *text)
{
    return config_is_host_port(strncmp(text, tls, sizeof tls - 1) == 0 ? text + sizeof tls - 1 : text);
}

const char *config_legacy(const struct config *cfg)
{
    return cfg->legacy_sentinel[0] != '\0' ? cfg->legacy_sentinel : cfg->legacy_redis;
}

int config_next_address(const char **at, struct config_address *out)
{
    char one[CONFIG_TEXT];
    if (strcmp(*at, "none") == 0 || !next_word(at, one)) {
        return 0;
    }
    out->tls = strncmp(one, tls, sizeof tls - 1) == 0;
    return read_address(one + (out->tls ? sizeof tls - 1 : 0), out) < 0 ? ERR_INVALID : 1;
}

bool config_is_loopback(const char *host)
{
    struct in6_addr v6;
    if (inet_pton(AF_INET6, host, &v6) == 1) {
        return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
    }
    return strncmp(host, "127.", 4) == 0;
}

bool config_is_wildcard(const char *host)
{
    struct in6_addr v6;
    struct in_addr v4;
    if (inet_pton(AF_INET6, host, &v6) == 1) {
        return IN6_IS_ADDR_UNSPECIFIED(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && memcmp(&v6.s6_addr[12], "\0\0\0", 4) == 0);
    }
    return inet_aton(host, &v4) != 0 && v4.s_addr == INADDR_ANY;
}
