#include "config/replica.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* A name may be resolved to another machine at any time, so it is only looked at as text. */
static bool is_host_port(const char *text)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL || colon == text) {
        return false;
    }
    size_t len = (size_t)(colon - text), digits = strspn(colon + 1, "0123456789");
    bool v6 = text[0] == '[' && text[len - 1] == ']' && len > 4;
    for (size_t i = v6 ? 1 : 0; i < len - v6; i++) {
        if (!isalnum((unsigned char)text[i]) && strchr(v6 ? ":.%" : ".-_", text[i]) == NULL) {
            return false;
        }
    }
    long port = digits >= 1 && digits <= 5 && colon[1 + digits] == '\0' ? strtol(colon + 1, NULL, 10) : 0;
    return port >= 1 && port <= 65535;
}

int config_validate_replica(const struct config *cfg, struct err *err)
{
    static const char tls[] = "tls://";
    const char *of = cfg->replica_of;
    if (strchr(of, '@') != NULL) { /* what stands before it is not for a log */
        return err_set(err, ERR_INVALID,
                       "replica_of has a name or a password in it, expected host:port or tls://host:port; they go into "
                       "replica_user and replica_password");
    }
    if (of[0] != '\0' && !is_host_port(strncmp(of, tls, sizeof tls - 1) == 0 ? of + sizeof tls - 1 : of)) {
        return err_set(err, ERR_INVALID, "replica_of is %s, expected host:port or tls://host:port", log_quote_str(of));
    }
    if (cfg->replica_address[0] != '\0' && !is_host_port(cfg->replica_address)) {
        return err_set(err, ERR_INVALID, "replica_address is %s, expected host:port",
                       log_quote_str(cfg->replica_address));
    }
    if (cfg->replica_failover != FAILOVER_NO && cfg->registry_consul[0] == '\0') {
        return err_set(err, ERR_INVALID,
                       "replica_failover is %s, but registry_consul is empty: a node promotes itself only by a lock in "
                       "Consul",
                       cfg->replica_failover == FAILOVER_LOSSY ? "lossy" : "in-step");
    }
    return 0;
}
