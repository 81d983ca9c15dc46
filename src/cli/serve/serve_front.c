#include "cli/serve/serve_front.h"

#include <stddef.h>

#include "dedup/role.h"
#include "front/reader_store.h"

int serve_front_check(const struct config *cfg, struct err *err)
{
    const struct {
        bool set;
        const char *name;
    } options[] = {
        {cfg->store != STORE_ENGINE_SQLITE, "store"},
        {cfg->replica_of[0] != '\0', "replica_of"},
        {cfg->replica_hedge != 0, "replica_hedge"},
        {cfg->replica_ack != ACK_LOCAL, "replica_ack"},
        {cfg->replica_failover != FAILOVER_NO, "replica_failover"},
        {cfg->legacy_redis[0] != '\0', "legacy_redis"},
        {cfg->legacy_sentinel[0] != '\0', "legacy_sentinel"},
        {cfg->legacy_mirror != 0, "legacy_mirror"},
        {cfg->kafka_brokers[0] != '\0', "kafka_brokers"},
        {cfg->backup_at >= 0, "backup_at"},
    };
    if (cfg->front_at.kind == REDIS_AT_NONE) {
        return err_set(err, ERR_INVALID, "--front-only needs front_redis: the Redis that is to be answered from");
    }
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (options[i].set) {
            return err_set(err, ERR_INVALID,
                           "--front-only has no folder and takes no writes, but %s is set, which needs them: take it "
                           "out of the configuration of this server",
                           options[i].name);
        }
    }
    return 0;
}

int serve_front_open(const struct config *cfg, struct store **store, struct err *err)
{
    return front_store_open(cfg, store, err);
}

int serve_front_role(struct dedup *dedup, struct err *err)
{
    return role_new_reader(FRONT_NO_WRITES, &dedup->role, err);
}
