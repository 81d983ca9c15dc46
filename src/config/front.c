#include "config/front.h"

#include <string.h>

#include "base/log.h"

static const char tls[] = "tls://";

static bool has_tls(const char *address)
{
    return strncmp(address, tls, sizeof tls - 1) == 0;
}

static int validate_redis(const char *redis, struct err *err)
{
    if (strchr(redis, '@') != NULL) { /* what stands before it is not for a log */
        return err_set(err, ERR_INVALID,
                       "front_redis has a name or a password in it, expected host:port or tls://host:port; they go "
                       "into front_user and front_password");
    }
    bool path = strncmp(redis, "unix:/", 6) == 0;
    return path || config_is_node(redis)
               ? 0
               : err_set(err, ERR_INVALID, "front_redis is %s, expected host:port, tls://host:port or unix:/path",
                         log_quote_str(redis));
}

/* "a:26379,b:26379/name" */
static int validate_sentinel(const char *sentinel, struct err *err)
{
    char all[CONFIG_LIST], one[CONFIG_TEXT];
    memcpy(all, sentinel, sizeof all);
    char *name = strrchr(all, '/');
    bool good = name != NULL && name[1] != '\0' && name > all && name[-1] != '/';
    int n = 0, n_tls = 0;
    if (good) {
        *name = '\0';
    }
    for (const char *at = all; good && config_next_redis(&at, one); n++) {
        good = config_is_node(one);
        n_tls += has_tls(one);
    }
    return good && n > 0 && (n_tls == 0 || n_tls == n)
               ? 0
               : err_set(err, ERR_INVALID,
                         "front_sentinel is %s, expected host:port/name, or several addresses before the name, with "
                         "tls:// before all of them or none",
                         log_quote_str(sentinel));
}

int config_validate_front(const struct config *cfg, struct err *err)
{
    const bool redis = cfg->front_redis[0] != '\0', sentinel = cfg->front_sentinel[0] != '\0';
    if (redis && sentinel) {
        return err_set(err, ERR_INVALID, "front_redis and front_sentinel are both given, expected one");
    }
    int rc = redis ? validate_redis(cfg->front_redis, err) : 0;
    if (rc == 0 && sentinel) {
        rc = validate_sentinel(cfg->front_sentinel, err);
    }
    const char *given = redis ? cfg->front_redis : cfg->front_sentinel;
    if (rc == 0 && has_tls(given)) {
        rc = config_validate_tls(redis ? "front_redis" : "front_sentinel", given, err);
    }
    return rc;
}
