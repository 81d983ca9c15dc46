/* Which names a request may ask for. A web page can give a name of its own any address, this machine's loopback too,
 * and a browser here then asks us in that name, past every firewall (DNS rebinding). Addresses can't be given away so.
 */
#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "http/server.h"

enum { HOST_TEXT = 256 };

static bool is_address(const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    size_t len = strlen(host);
    char inner[HOST_TEXT];
    if (host[0] != '[') {
        return inet_pton(AF_INET, host, address) == 1;
    }
    if (host[len - 1] != ']') {
        return false;
    }
    memcpy(inner, host + 1, len - 2);
    inner[len - 2] = '\0';
    return inet_pton(AF_INET6, inner, address) == 1;
}

static bool is_listed(const char *host, const char *list)
{
    static const char split[] = ", \t";
    size_t len = strlen(host);
    for (const char *at = list + strspn(list, split); *at != '\0'; at += strspn(at, split)) {
        size_t n = strcspn(at, split);
        if (n == len && strncasecmp(at, host, n) == 0) {
            return true;
        }
        at += n;
    }
    return false;
}

bool host_is_ours(const char *header, const char *extra)
{
    char host[HOST_TEXT];
    const char *end = header[0] == '[' ? strchr(header, ']') : NULL;
    size_t len = end != NULL ? (size_t)(end + 1 - header) : strcspn(header, ":");
    if (len == 0 || len >= sizeof host || (header[len] != '\0' && header[len] != ':')) {
        return false;
    }
    memcpy(host, header, len);
    len -= len > 1 && host[len - 1] == '.'; /* the root of all names */
    host[len] = '\0';
    return strcasecmp(host, "localhost") == 0 || is_address(host) || is_listed(host, extra);
}
