#include "config/replica.h"

#include <string.h>

#include "base/log.h"

int config_validate_replica(const struct config *cfg, struct err *err)
{
    static const char tls[] = "tls://";
    const char *of = cfg->replica_of;
    if (strchr(of, '@') != NULL) { /* what stands before it is not for a log */
        return err_set(err, ERR_INVALID,
                       "replica_of has a name or a password in it, expected host:port or tls://host:port; they go into "
                       "replica_user and replica_password");
    }
    if (of[0] != '\0' && !config_is_host_port(strncmp(of, tls, sizeof tls - 1) == 0 ? of + sizeof tls - 1 : of)) {
        return err_set(err, ERR_INVALID, "replica_of is %s, expected host:port or tls://host:port", log_quote_str(of));
    }
    if (cfg->replica_address[0] != '\0' && !config_is_host_port(cfg->replica_address)) {
        return err_set(err, ERR_INVALID, "replica_address is %s, expected host:port",
                       log_quote_str(cfg->replica_address));
    }
    if (cfg->replica_failover != FAILOVER_NO && cfg->registry_consul[0] == '\0') {
        return err_set(err, ERR_INVALID,
                       "replica_failover is %s, but registry_consul is empty: a node promotes itself only by a lock in "
                       "Consul",
                       cfg->replica_failover == FAILOVER_LOSSY ? "lossy" : "in-step");
    }
    if (cfg->replica_hedge && (cfg->front_redis[0] != '\0' || cfg->front_sentinel[0] != '\0')) {
        return err_set(err, ERR_INVALID, "replica_hedge is yes and there is a front, expected one second tier");
    }
    return 0;
}
