#include "net/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

void address_text(const struct sockaddr *a, char out[ADDRESS_TEXT])
{
    char ip[INET6_ADDRSTRLEN];
    out[0] = '\0';
    if (a->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
        snprintf(out, ADDRESS_TEXT, "[%s]:%d", inet_ntop(AF_INET6, &v6->sin6_addr, ip, sizeof ip),
                 ntohs(v6->sin6_port));
    } else if (a->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
        snprintf(out, ADDRESS_TEXT, "%s:%d", inet_ntop(AF_INET, &v4->sin_addr, ip, sizeof ip), ntohs(v4->sin_port));
    }
}
