#include "replica/second.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dedup/role.h"
#include "dedup/tier_pool.h"
#include "net/client.h"
#include "net/tls.h"
#include "replica/feeder.h"
#include "replica/replica.h"

struct second {
    struct replica *r;
    struct tier_pool *pool;
};

/* A connection. */
struct line {
    struct second *s;
    struct client *client;
    struct buf hashes;
    char address[NODE_ADDRESS_TEXT];
    char node[NODE_TEXT]; /* this one, whose events are counted */
};

/* Whom to ask. */
static int choose(const struct second *s, char address[NODE_ADDRESS_TEXT], struct err *err)
{
    struct feeder_replica all[FEEDER_REPLICAS_MAX];
    int n = feeder_look(s->r->feeder, all), best = -1;
    if (!role_is_primary(s->r->dedup->role)) {
        return err_set(err, ERR_ABSENT, "this node is a replica itself");
    }
    for (int i = 0; i < n; i++) {
        if (all[i].connected && all[i].address[0] != '\0' && (best < 0 || all[i].durable > all[best].durable)) {
            best = i;
        }
    }
    if (best < 0) {
        return err_set(err, ERR_ABSENT, "no replica is connected");
    }
    memcpy(address, all[best].address, NODE_ADDRESS_TEXT);
    return 0;
}

static void close_line(void *arg)
{
    struct line *line = arg;
    client_close(line->client);
    buf_free(&line->hashes);
    free(line);
}

static int open_line(void *owner, void **out, struct err *err)
{
    struct second *s = owner;
    const struct config *live = config_now(s->r->cfg);
    const struct client_how how = {live->replica_user, live->replica_password, tls_files_to_connect(live),
                                   TIER_POOL_PATIENCE_MS};
    struct store_node now;
    char address[NODE_ADDRESS_TEXT];
    int rc = choose(s, address, err);
    struct line *line = rc == 0 ? calloc(1, sizeof *line) : NULL;
    if (rc == 0 && line == NULL) {
        rc = err_set(err, ERR_NOMEM, "out of memory for the second tier");
    }
    if (rc < 0) {
        return rc;
    }
    role_look(s->r->dedup->role, &now);
    line->s = s;
    memcpy(line->address, address, sizeof line->address);
    snprintf(line->node, sizeof line->node, "%016" PRIx64, now.node);
    rc = client_connect_as(address, &how, &line->client, err);
    if (rc < 0) {
        free(line);
        return rc;
    }
    *out = line;
    return 0;
}

/* Also whether it is still the one to ask. */
static int ping(void *arg, struct err *err)
{
    struct line *line = arg;
    const struct slice word = slice_str("PING");
    const struct reply *reply;
    char address[NODE_ADDRESS_TEXT];
    int rc = choose(line->s, address, err);
    if (rc < 0) {
        return rc;
    }
    client_be_patient(line->client, TIER_POOL_PATIENCE_MS);
    return client_call(line->client, &word, 1, &reply, err);
}

static bool read_answer(const struct reply *reply, struct tier_question *q)
{
    int64_t to;
    bool good = reply->kind == REPLY_ARRAY && reply->n == 3 && reply_integer(&reply->items[0], &to) && to > 0 &&
                reply_number(&reply->items[1], &q->error) && reply->items[2].kind == REPLY_TEXT &&
                reply->items[2].text.len == (q->n + 7) / 8;
    if (good) {
        q->to = (uint64_t)to;
        memcpy(q->unseen, reply->items[2].text.data, reply->items[2].text.len);
    }
    return good;
}

static int put_hashes(struct line *line, const struct tier_question *q, struct err *err)
{
    buf_clear(&line->hashes);
    if (buf_reserve(&line->hashes, q->n * sizeof *q->hashes) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for the second tier");
    }
    for (size_t i = 0; i < q->n; i++) {
        uint64_t little = htole64(q->hashes[i]);
        buf_add(&line->hashes, &little, sizeof little);
    }
    return 0;
}

static int ask(void *arg, struct tier_question *q, struct err *err)
{
    struct line *line = arg;
    if (put_hashes(line, q, err) < 0) {
        return err->code;
    }
    const struct slice words[] = {slice_str("REPLICA"), slice_str("ASK"), slice_str(line->node), q->user,
                                  slice_of((const char *)line->hashes.data, line->hashes.len)};
    const struct reply *reply;
    client_be_patient(line->client, TIER_POOL_ASK_MS);
    int rc = client_queue(line->client, words, sizeof words / sizeof *words, err);
    if (rc == 0) {
        rc = client_read(line->client, &reply, err);
    }
    if (rc < 0) {
        return rc;
    }
    q->verdict = TIER_ANSWERED;
    if (reply->kind == REPLY_ERROR) {
        q->verdict = TIER_NOT_WHOLE;
        err_set(&q->err, ERR_INVALID, "%s: %.*s", line->address, (int)(reply->text.len < 200 ? reply->text.len : 200),
                reply->text.data);
    } else if (!read_answer(reply, q)) {
        return err_set(err, ERR_INVALID, "%s answers REPLICA ASK with something else", line->address);
    }
    return 0;
}

static const struct tier_line_ops line_ops = {"replica", open_line, close_line, ping, ask};

int second_start(struct replica *r, struct second **second, struct err *err)
{
    struct second *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the second tier");
    }
    s->r = r;
    int rc = tier_pool_start(&line_ops, s, &s->pool, err);
    if (rc < 0) {
        free(s);
        return rc;
    }
    *second = s;
    return 0;
}

struct tier *second_tier(struct second *s)
{
    return s != NULL ? tier_pool_tier(s->pool) : NULL;
}

void second_stop(struct second *s)
{
    if (s != NULL) {
        tier_pool_stop(s->pool);
    }
}

void second_free(struct second *s)
{
    if (s != NULL) {
        tier_pool_free(s->pool);
        free(s);
    }
}
