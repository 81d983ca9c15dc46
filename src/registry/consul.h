/* What Consul is told of a server, as JSON for its agent. Pure. */
#ifndef UNSEEN_REGISTRY_CONSUL_H
#define UNSEEN_REGISTRY_CONSUL_H

#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"

/* What Dubbo's consumers look for: an interface's name. */
#define CONSUL_DUBBO "unseen.v1.Unseen"

enum {
    CONSUL_TTL_S = 15,    /* so long after the last word of a server it counts as gone, */
    CONSUL_GONE_MIN = 10, /* and so many minutes later its entry goes, too */
    CONSUL_HOST = CONFIG_TEXT + 2,
    CONSUL_ID = 2 * CONFIG_TEXT + 64,
};

enum consul_edge { CONSUL_RESP, CONSUL_HTTP, CONSUL_GRPC, CONSUL_DUBBO_TRIPLE };

struct consul_service {
    enum consul_edge edge;
    bool tls;
    char host[CONSUL_HOST]; /* as clients are told, an IPv6 address without brackets */
    int port;
    char id[CONSUL_ID]; /* the same after a restart */
};

/* Takes apart where a server listens, "grpc://127.0.0.1:7981" (net/listener.h). False: a Unix socket. */
bool consul_service_at(const struct config *cfg, const char *address, struct consul_service *out);

/* The same place as another service: Dubbo's, beside gRPC. Sets edge and id. */
void consul_name(const struct config *cfg, struct consul_service *s, enum consul_edge edge);

/* The body of PUT /v1/agent/service/register; the caller frees it. grpc: whom a gRPC check asks; NULL: a TTL check.
 * role: also a tag.
 * NULL: out of memory. */
char *consul_registration(const struct config *cfg, const struct consul_service *s, const struct consul_service *grpc,
                          uint32_t seed_fingerprint, const char *role);

/* The body of PUT /v1/agent/check/update/...; the same. */
char *consul_check_update(bool well, const char *cause);

#endif
