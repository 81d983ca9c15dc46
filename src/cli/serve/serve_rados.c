#include "cli/serve/serve_rados.h"

static bool is_given(const struct config *cfg, const char *name)
{
    return cfg->origin[config_find(name) - config_options] != ORIGIN_DEFAULT;
}

int serve_rados_check(const struct config *cfg, struct err *err)
{
    static const char ring[] = "there is no ring and no file: plays wait in the pool, and the pool's size is the limit";
    static const char replicas[] = "the pool keeps replicas, and any number of nodes serve it";
    static const char sources[] = "import into a data folder first; unseen export and unseen load move it here";
    const struct {
        bool set;
        const char *name, *instead;
    } options[] = {
        {is_given(cfg, "slots"), "slots", ring},
        {is_given(cfg, "wal_limit"), "wal_limit", ring},
        {is_given(cfg, "min_free"), "min_free", ring},
        {cfg->backup_at >= 0, "backup_at", "there is no folder to copy: the pool keeps replicas"},
        {cfg->replica_of[0] != '\0', "replica_of", replicas},
        {cfg->replica_hedge != 0, "replica_hedge", replicas},
        {cfg->replica_ack != ACK_LOCAL, "replica_ack", "each write is answered by all replicas of the pool"},
        {cfg->replica_failover != FAILOVER_NO, "replica_failover", replicas},
        {cfg->front_redis[0] != '\0', "front_redis", replicas},
        {cfg->front_sentinel[0] != '\0', "front_sentinel", replicas},
        {cfg->legacy_redis[0] != '\0', "legacy_redis", sources},
        {cfg->legacy_sentinel[0] != '\0', "legacy_sentinel", sources},
        {cfg->legacy_mirror != 0, "legacy_mirror", "there is no feed of what was recorded"},
    };
    if (cfg->store != STORE_ENGINE_RADOS) {
        return 0;
    }
    if (cfg->rados_pool[0] == '\0') {
        return err_set(err, ERR_INVALID, "store = rados needs rados_pool: the pool that holds the users");
    }
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (options[i].set) {
            return err_set(err, ERR_INVALID, "%s doesn't go with store = rados: %s", options[i].name,
                           options[i].instead);
        }
    }
    if (cfg->kafka_brokers[0] != '\0' && cfg->kafka_dead_letters[0] == '\0') {
        return err_set(
            err, ERR_INVALID,
            "kafka_brokers with store = rados needs kafka_dead_letters: a folder of this node for messages that "
            "can't be read");
    }
    return 0;
}
