/* Where a Redis is: what the sections [front] and [legacy] say of it, read in one place for all that connect to it.
 *
 *     redis://host:6379/2                 one Redis, of it the database 2; host:6379 alone says the same
 *     sentinel://a:26379,b:26379/name/2   the master that these Sentinels know by that name
 *     cluster://a:6379,b:6379             a Redis Cluster; any of its nodes that answers tells of the others
 *     unix:/path                          a Unix socket
 *
 * rediss://, sentinels:// and clusters:// are the same over TLS. A port may be left out: 6379, of a Sentinel 26379.
 * Names and passwords have options of their own. Earlier names of the same stay: sentinel ("a:26379/name"), cluster,
 * database, and lists of host:port or tls://host:port in redis.
 */
#ifndef UNSEEN_CONFIG_REDIS_AT_H
#define UNSEEN_CONFIG_REDIS_AT_H

#include "config/config.h"

/* What the options of a section say. */
struct redis_at_options {
    const char *section; /* "front": its options are front_redis, front_sentinel, ... */
    const char *redis, *sentinel;
    enum config_cluster cluster; /* CLUSTER_NO where there can't be one */
    bool takes_clusters;
    int64_t database;
};

/* ERR_INVALID: names the option, what it is and what was expected; of one that holds a password it shows nothing. */
int redis_at_read(const struct redis_at_options *options, struct redis_at *out, struct err *err);

#endif
