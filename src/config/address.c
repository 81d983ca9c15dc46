/* Addresses are numeric, so that reading one asks no name server and means the same each time. */
#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

#include "config/config.h"

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

int config_address(const char *text, char host[CONFIG_HOST_TEXT], int *port)
{
    const char *colon = strrchr(text, ':');
    int number = colon != NULL ? read_port(colon + 1) : -1;
    if (number < 0) {
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
    char given[CONFIG_HOST_TEXT];
    memcpy(given, text, len);
    given[len] = '\0';
    if (!v6 && strcmp(given, "localhost") == 0) {
        strcpy(given, "127.0.0.1");
    }
    unsigned char address[sizeof(struct in6_addr)];
    if (inet_pton(v6 ? AF_INET6 : AF_INET, given, address) != 1) {
        return ERR_INVALID;
    }
    strcpy(host, given);
    *port = number;
    return 0;
}

bool config_is_loopback(const char *host)
{
    struct in6_addr v6;
    if (inet_pton(AF_INET6, host, &v6) == 1) {
        return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
    }
    return strncmp(host, "127.", 4) == 0;
}
