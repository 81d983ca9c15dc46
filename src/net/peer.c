#include "net/peer.h"

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* Prefixes that are no one's: 0:1::/32 stands for IPv4, and 0:0:0:2 for ::/64, where ::1 is. */
#define PEER_V4 (UINT64_C(1) << 32)
#define PEER_V6_ZERO UINT64_C(2)

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint64_t seed;

static uint64_t of_v4(struct in_addr a)
{
    return PEER_V4 | ntohl(a.s_addr);
}

bool peer_is_local(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    }
    if (address->sa_family != AF_INET6) {
        return true;
    }
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == IN_LOOPBACKNET);
}

uint64_t peer_of(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET) {
        return of_v4(((const struct sockaddr_in *)address)->sin_addr);
    }
    if (address->ss_family != AF_INET6) {
        return PEER_UNIX;
    }
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(v6)) {
        struct in_addr v4;
        memcpy(&v4, &v6->s6_addr[12], sizeof v4);
        return of_v4(v4);
    }
    uint64_t prefix;
    memcpy(&prefix, v6->s6_addr, sizeof prefix);
    return prefix != 0 ? be64toh(prefix) : PEER_V6_ZERO;
}

void peer_text(uint64_t peer, char out[PEER_TEXT])
{
    if (peer == PEER_UNIX) {
        strcpy(out, "unix");
    } else if (peer >> 32 == PEER_V4 >> 32) {
        struct in_addr v4 = {htonl((uint32_t)peer)};
        inet_ntop(AF_INET, &v4, out, PEER_TEXT);
    } else {
        struct in6_addr v6 = {0};
        uint64_t prefix = htobe64(peer == PEER_V6_ZERO ? 0 : peer);
        memcpy(v6.s6_addr, &prefix, sizeof prefix);
        inet_ntop(AF_INET6, &v6, out, PEER_TEXT - 4);
        strcat(out, "/64");
    }
}

static void draw_seed(void)
{
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) < 0) {
        seed = (uint64_t)(uintptr_t)&seed;
    }
}

uint32_t peer_bucket(uint64_t peer, uint32_t n)
{
    pthread_once(&once, draw_seed);
    uint64_t mixed = (peer ^ seed) * UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 32 ^ seed) * UINT64_C(0xd6e8feb86659fd93);
    return (uint32_t)(mixed >> 32) & (n - 1);
}
