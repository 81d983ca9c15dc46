#include "config/replica.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "config/lock.h"

/* What a node announces, its peers connect to, and clients are sent to. */
static int validate_address(const struct config *cfg, struct err *err)
{
    char host[CONFIG_TEXT];
    struct config_address a;
    const char *given = cfg->replica_address;
    if (given[0] != '\0' && !config_is_node(given)) {
        return err_set(err, ERR_INVALID, "replica_address is %s, expected host:port or tls://host:port",
                       log_quote_str(given));
    }
    if (given[0] != '\0') {
        bool tls = strncmp(given, "tls://", 6) == 0, v6;
        given += tls ? 6 : 0;
        v6 = given[0] == '[';
        snprintf(host, sizeof host, "%.*s", (int)(strrchr(given, ':') - given) - 2 * v6, given + v6);
        return config_is_wildcard(host)
                   ? err_set(err, ERR_INVALID,
                             "replica_address is %s, and no node can connect to all addresses: expected a host that "
                             "reaches this node",
                             cfg->replica_address)
               : tls ? config_validate_tls("replica_address", cfg->replica_address, err)
                     : 0;
    }
    bool all = false, one = false; /* it listens on all addresses; on one that others can be told */
    for (const char *at = cfg->listen; config_next_address(&at, &a) > 0;) {
        all = all || config_is_wildcard(a.host);
        one = one || !(config_is_wildcard(a.host) || config_is_loopback(a.host));
    }
    bool paired = cfg->replica_of[0] != '\0' || cfg->replica_failover != FAILOVER_NO || cfg->replica_ack != ACK_LOCAL ||
                  cfg->replica_hedge != 0;
    return paired && all && !one
               ? err_set(err, ERR_INVALID,
                         "listen is %s, and other nodes and clients can't be told to connect to all addresses: set "
                         "address in the section [replica] to the host:port that reaches this node",
                         cfg->listen)
               : 0;
}

int config_validate_replica(const struct config *cfg, struct err *err)
{
    const char *of = cfg->replica_of;
    if (strchr(of, '@') != NULL) { /* what stands before it is not for a log */
        return err_set(err, ERR_INVALID,
                       "replica_of has a name or a password in it, expected host:port or tls://host:port; they go into "
                       "replica_user and replica_password");
    }
    if (of[0] != '\0' && !config_is_node(of)) {
        return err_set(err, ERR_INVALID, "replica_of is %s, expected host:port or tls://host:port", log_quote_str(of));
    }
    int rc = strncmp(of, "tls://", 6) == 0 ? config_validate_tls("replica_of", of, err) : 0;
    if (rc < 0 || (rc = validate_address(cfg, err)) < 0) {
        return rc;
    }
    if (cfg->replica_failover != FAILOVER_NO && !config_has_lock(cfg)) {
        return err_set(err, ERR_INVALID,
                       "replica_failover is %s, but registry_consul is empty, and lock_etcd and lock_kubernetes are, "
                       "too: a node promotes itself only by a lock in one of them",
                       cfg->replica_failover == FAILOVER_LOSSY ? "lossy" : "in-step");
    }
    if (cfg->replica_hedge && cfg->front_at.kind != REDIS_AT_NONE) {
        return err_set(err, ERR_INVALID, "replica_hedge is yes and there is a front, expected one second tier");
    }
    return 0;
}
