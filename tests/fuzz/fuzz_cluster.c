/* What the nodes of a Redis Cluster say: any bytes, as the answer to CLUSTER SLOTS, then as a refusal. Whatever is
 * taken names only addresses of TCP, and slots only nodes that are known. */
#include <hiredis/hiredis.h>
#include <string.h>

#include "fuzz.h"
#include "legacy/cluster.h"
#include "legacy/parse.h"
#include "legacy/redis_reply.h"

static void check_map(const struct cluster *c)
{
    char host[CONFIG_TEXT], port[LEGACY_PORT_TEXT];
    for (size_t i = 0; i < c->n; i++) {
        CHECK(legacy_address(c->nodes[i], host, port) && host[0] != '\0' && port[0] != '0');
    }
    for (size_t i = 0; i < KEYSLOTS; i++) {
        CHECK(c->slots[i] <= c->n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct config cfg = {.legacy_at = {.kind = REDIS_AT_ANY, .nodes = "tls://home:1"}};
    struct cluster c = {0};
    struct err err = {0};
    size_t node = 0;
    void *reply = NULL;
    redisReader *reader = redisReaderCreate();
    CHECK(reader != NULL && cluster_node(&c, cfg.legacy_at.nodes, &err) == 0);
    if (redisReaderFeed(reader, (const char *)data, size) == REDIS_OK &&
        redisReaderGetReply(reader, &reply) == REDIS_OK && reply != NULL) {
        int rc = cluster_take(&c, &cfg, reply, c.nodes[0], &err);
        CHECK(rc < 0 ? err.text[0] != '\0' && !c.known : c.known == (rc == 1));
        freeReplyObject(reply);
    }
    redisReaderFree(reader);
    check_map(&c);
    c.known = true;
    enum cluster_verdict verdict = cluster_verdict(&c, slice_of((const char *)data, size), c.nodes[0], &node);
    CHECK(verdict == CLUSTER_STAYS || node < c.n);
    check_map(&c);
    cluster_free(&c);
    return 0;
}
