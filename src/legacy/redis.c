#include "legacy/redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "legacy/cluster.h"
#include "legacy/parse.h"
#include "legacy/redis_node.h"
#include "legacy/redis_words.h"

/* Of a cluster: a command whose reply the caller has not read. */
struct command {
    struct command *next;     /* in the caller's order, or spare */
    struct command *behind;   /* in the order of its node's replies */
    struct redisReply *reply; /* NULL: not there yet */
    struct buf bytes;         /* kept, since it may be sent elsewhere */
    size_t node;              /* where it was sent last */
    unsigned hops;
    bool asking; /* the reply of ASKING comes first */
};

struct line {
    struct redis_node *node;       /* NULL: not connected */
    struct command *first, **last; /* whose replies are due */
};

struct redis {
    const struct config *cfg; /* NULL: not connected */
    struct redis_wait wait;
    struct cluster cluster;
    struct line lines[CLUSTER_NODES_MAX]; /* by the map's numbers; 0: all there is of a single Redis */
    struct command *first, **last;        /* the caller's */
    struct command *spare;
    struct command refresh; /* CLUSTER SLOTS, which no caller waits for */
    bool refreshing;
    unsigned seed; /* which address is tried first */
    const void *place;
};

int redis_new(struct heartbeat *heartbeat, struct redis **redis, struct err *err)
{
    struct redis *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    r->wait.heartbeat = heartbeat;
    r->last = &r->first;
    r->wait.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (r->wait.stop_fd < 0) {
        free(r);
        return err_set(err, ERR_SYSTEM, "can't make an eventfd");
    }
    *redis = r;
    return 0;
}

void redis_interrupt(struct redis *r)
{
    eventfd_write(r->wait.stop_fd, 1);
}

bool redis_connected(const struct redis *r)
{
    return r->cfg != NULL;
}

/* --- commands --- */

static struct command *command_new(struct redis *r)
{
    struct command *c = r->spare;
    if (c == NULL) {
        return calloc(1, sizeof *c);
    }
    r->spare = c->next;
    struct buf bytes = c->bytes;
    buf_clear(&bytes);
    *c = (struct command){.bytes = bytes};
    return c;
}

static void command_end(struct redis *r, struct command *c)
{
    redis_free(c->reply);
    c->reply = NULL;
    c->next = r->spare;
    r->spare = c;
}

static void free_commands(struct command *c)
{
    while (c != NULL) {
        struct command *next = c->next;
        buf_free(&c->bytes);
        free(c);
        c = next;
    }
}

void redis_disconnect(struct redis *r)
{
    for (struct command *c; (c = r->first) != NULL;) {
        r->first = c->next;
        command_end(r, c);
    }
    r->last = &r->first;
    r->refreshing = false;
    for (size_t i = 0; i < r->cluster.n; i++) {
        redis_node_close(r->lines[i].node);
        r->lines[i] = (struct line){0};
    }
    uint64_t moved = r->cluster.moved, asks = r->cluster.asks;
    cluster_free(&r->cluster);
    r->cluster.moved = moved;
    r->cluster.asks = asks;
    r->cfg = NULL;
    r->place = NULL;
}

void redis_close(struct redis *r)
{
    if (r != NULL) {
        redis_disconnect(r);
        free_commands(r->spare);
        buf_free(&r->refresh.bytes);
        close(r->wait.stop_fd);
        free(r);
    }
}

/* --- nodes --- */

/* Then node 0 is one, and no Redis. */
static bool by_sentinel(const struct redis *r)
{
    return r->cfg->legacy_at.kind == REDIS_AT_SENTINEL;
}

static int line_of(struct redis *r, size_t node, struct line **line, struct err *err)
{
    *line = &r->lines[node];
    if ((*line)->node != NULL) {
        return 0;
    }
    (*line)->first = NULL;
    (*line)->last = &(*line)->first;
    return redis_node_open(&r->wait, r->cluster.nodes[node], r->cfg, node == 0 && by_sentinel(r), &(*line)->node, err);
}

static int put(struct redis *r, struct command *c, size_t node, bool asking, struct err *err)
{
    static const struct slice word = {"*1\r\n$6\r\nASKING\r\n", 16};
    struct line *line;
    int rc = line_of(r, node, &line, err);
    if (rc == 0 && asking) {
        rc = redis_node_send(line->node, word, err);
    }
    if (rc == 0) {
        rc = redis_node_send(line->node, buf_slice(&c->bytes), err);
    }
    if (rc == 0) {
        c->node = node;
        c->asking = asking;
        c->behind = NULL;
        *line->last = c;
        line->last = &c->behind;
    }
    return rc;
}

/* Asks for the map behind what was asked before, when that is due. */
static int refresh(struct redis *r, size_t node, struct err *err)
{
    struct slice words[CLUSTER_WORDS];
    if (r->refreshing || !cluster_refresh(&r->cluster, clock_real_us())) {
        return 0;
    }
    buf_clear(&r->refresh.bytes);
    redis_words_all(&r->refresh.bytes, words, cluster_words(r->cfg, words));
    r->refreshing = true;
    return put(r, &r->refresh, node, false, err);
}

/* --- connecting --- */

/* The answer decides whether it is a cluster. */
static int look_for_cluster(struct redis *r, struct err *err)
{
    const char *address = r->cluster.nodes[0];
    if (!legacy_may_be_cluster(r->cfg) && !by_sentinel(r)) {
        return 0;
    }
    struct slice words[CLUSTER_WORDS], text;
    struct redisReply *reply = NULL;
    struct buf bytes = {0};
    redis_words_all(&bytes, words, cluster_words(r->cfg, words));
    int rc = redis_node_send(r->lines[0].node, buf_slice(&bytes), err);
    buf_free(&bytes);
    if (rc == 0) {
        rc = redis_node_read(r->lines[0].node, &reply, err);
    }
    if (rc == 0) {
        rc = cluster_take(&r->cluster, r->cfg, reply, address, err);
    }
    if (rc == 0 && r->cfg->legacy_at.kind == REDIS_AT_CLUSTER) {
        bool refused = redis_is_error(reply, &text);
        rc = err_set(err, ERR_INVALID, "%s: legacy_cluster is yes, and CLUSTER SLOTS there says: %.*s", address,
                     refused ? (int)text.len : 8, refused ? text.data : "no slots");
    }
    redis_free(reply);
    if (rc == 1 && by_sentinel(r)) { /* if that is no master, the next Sentinel may know better */
        struct line *line;
        rc = line_of(r, cluster_route(&r->cluster, slice_str("")), &line, err);
    }
    return rc < 0 ? rc : 0;
}

static int connect_to(struct redis *r, const char *address, struct err *err)
{
    struct line *line;
    int rc = cluster_node(&r->cluster, address, err);
    if (rc >= 0) {
        rc = line_of(r, (size_t)rc, &line, err);
    }
    return rc < 0 ? rc : look_for_cluster(r, err);
}

int redis_connect(struct redis *r, const struct config *cfg, struct err *err)
{
    char address[CONFIG_TEXT];
    int rc = 0;
    for (unsigned tries = legacy_seeds(cfg); tries > 0; tries--, r->seed++) {
        legacy_seed(cfg, r->seed, address);
        r->cfg = cfg;
        if ((rc = connect_to(r, address, err)) == 0) {
            return 0;
        }
        redis_disconnect(r);
        if (rc == ERR_CLOSED) {
            break;
        }
    }
    return rc;
}

/* --- to and fro --- */

int redis_send(struct redis *r, const struct slice *words, size_t n, struct err *err)
{
    struct command *c = command_new(r);
    if (c != NULL) {
        redis_words_all(&c->bytes, words, n);
    }
    if (c == NULL || c->bytes.failed) {
        free_commands(c);
        return err_set(err, ERR_NOMEM, "out of memory for a command");
    }
    if (!r->cluster.known) {
        int rc = redis_node_send(r->lines[0].node, buf_slice(&c->bytes), err);
        command_end(r, c);
        return rc;
    }
    c->next = NULL;
    *r->last = c;
    r->last = &c->next;
    size_t node = cluster_route(&r->cluster, words[1]);
    int rc = put(r, c, node, false, err);
    return rc == 0 ? refresh(r, node, err) : rc;
}

/* Where the node's next reply belongs; or it says to ask elsewhere. */
static int take_reply(struct redis *r, size_t node, struct redisReply *reply, struct err *err)
{
    struct line *line = &r->lines[node];
    struct command *c = line->first;
    struct slice text;
    size_t other = 0;
    if (c == NULL) {
        redis_free(reply);
        return err_set(err, ERR_SYSTEM, "%s: it says something without being asked", r->cluster.nodes[node]);
    }
    if (c->asking) {
        c->asking = false;
        redis_free(reply);
        return 0;
    }
    if ((line->first = c->behind) == NULL) {
        line->last = &line->first;
    }
    if (c == &r->refresh) {
        int rc = cluster_take(&r->cluster, r->cfg, reply, r->cluster.nodes[node], err);
        redis_free(reply);
        r->refreshing = false;
        return rc < 0 ? rc : 0;
    }
    enum cluster_verdict verdict = redis_is_error(reply, &text)
                                       ? cluster_verdict(&r->cluster, text, r->cluster.nodes[node], &other)
                                       : CLUSTER_STAYS;
    if (verdict == CLUSTER_STAYS) {
        c->reply = reply;
        return 0;
    }
    int rc = c->hops++ < CLUSTER_HOPS_MAX ? put(r, c, other, verdict == CLUSTER_ASK, err)
                                          : err_set(err, ERR_SYSTEM, "%s: sent from node to node: %.*s",
                                                    r->cluster.nodes[node], (int)text.len, text.data);
    redis_free(reply);
    return rc == 0 && verdict == CLUSTER_MOVED ? refresh(r, other, err) : rc;
}

/* While one node is waited for, the others have work too. */
static int flush_others(struct redis *r, size_t node, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < r->cluster.n && rc == 0; i++) {
        if (i != node && r->lines[i].node != NULL) {
            rc = redis_node_flush(r->lines[i].node, err);
        }
    }
    return rc;
}

static int read_one(struct redis *r, size_t node, struct err *err)
{
    struct redisReply *reply = NULL;
    struct redis_node *from = r->lines[node].node;
    int64_t since = clock_real_us();
    int rc;
    while ((rc = redis_node_take(from, &reply, err)) == 0) {
        if ((rc = flush_others(r, node, err)) < 0 || (rc = redis_node_wait(from, since, err)) < 0) {
            break;
        }
    }
    return rc < 0 ? rc : take_reply(r, node, reply, err);
}

int redis_read(struct redis *r, struct redisReply **reply, struct err *err)
{
    if (!r->cluster.known) {
        return redis_node_read(r->lines[0].node, reply, err);
    }
    struct command *c = r->first;
    int rc = 0;
    while (rc == 0 && c->reply == NULL) {
        rc = read_one(r, c->node, err);
    }
    if (rc < 0) {
        return rc;
    }
    if ((r->first = c->next) == NULL) {
        r->last = &r->first;
    }
    *reply = c->reply;
    c->reply = NULL;
    r->place = r->lines[c->node].node;
    command_end(r, c);
    return 0;
}

static int fail_on_error(const char *address, struct redisReply **reply, struct err *err)
{
    struct slice text;
    if (!redis_is_error(*reply, &text)) {
        return 0;
    }
    int rc = err_set(err, ERR_INVALID, "%s: %.*s", address, (int)text.len, text.data);
    redis_free(*reply);
    *reply = NULL;
    return rc;
}

/* --- all masters --- */

const void *redis_place(const struct redis *r)
{
    return r->place;
}

void redis_cluster_figures(const struct redis *r, struct redis_cluster_figures *out)
{
    *out = (struct redis_cluster_figures){r->cluster.known ? cluster_masters(&r->cluster) : 0, r->cluster.moved,
                                          r->cluster.asks};
}

bool redis_next_master(const struct redis *r, size_t *node)
{
    while (*node < r->cluster.n && !cluster_serves(&r->cluster, *node)) {
        ++*node;
    }
    return *node < r->cluster.n;
}

const char *redis_master_address(const struct redis *r, size_t node)
{
    return r->cluster.nodes[node];
}

int redis_call_master(struct redis *r, size_t node, const struct slice *words, size_t n, struct redisReply **reply,
                      struct err *err)
{
    struct buf bytes = {0};
    struct line *line = NULL;
    redis_words_all(&bytes, words, n);
    int rc = bytes.failed ? err_set(err, ERR_NOMEM, "out of memory for a command") : line_of(r, node, &line, err);
    if (rc == 0) {
        rc = redis_node_send(line->node, buf_slice(&bytes), err);
    }
    buf_free(&bytes);
    if (rc == 0) {
        rc = redis_node_read(line->node, reply, err);
    }
    return rc == 0 ? fail_on_error(r->cluster.nodes[node], reply, err) : rc;
}

/* Whether a master takes part in a slot's move, by what it says of itself. */
static int is_moving(struct redis *r, size_t node, bool *moving, struct err *err)
{
    const struct slice words[] = {slice_str("CLUSTER"), slice_str("NODES")};
    struct redisReply *reply = NULL;
    struct slice text;
    int rc = redis_call_master(r, node, words, 2, &reply, err);
    if (rc == 0 && redis_text(reply, &text)) {
        *moving = *moving || memmem(text.data, text.len, "->-", 3) != NULL || memmem(text.data, text.len, "-<-", 3);
    }
    redis_free(reply);
    return rc;
}

int redis_layout(struct redis *r, uint64_t *layout, struct err *err)
{
    const struct slice words[] = {slice_str("CLUSTER"), slice_str("SLOTS")};
    struct redisReply *reply = NULL;
    bool moving = false;
    *layout = 0;
    if (!r->cluster.known || by_sentinel(r)) {
        return 0;
    }
    int rc = redis_call_master(r, 0, words, 2, &reply, err);
    if (rc == 0) {
        rc = cluster_take(&r->cluster, r->cfg, reply, r->cluster.nodes[0], err);
    }
    redis_free(reply);
    for (size_t node = 0; rc >= 0 && redis_next_master(r, &node); node++) {
        rc = is_moving(r, node, &moving, err);
    }
    if (rc >= 0 && moving) {
        rc = err_set(err, ERR_BUSY, "%s: slots are on the move", config_legacy(r->cfg));
    }
    *layout = hash_id(0, slice_of((const char *)r->cluster.slots, sizeof r->cluster.slots));
    return rc < 0 ? rc : 0;
}

int redis_call(struct redis *r, const struct slice *words, size_t n, struct redisReply **reply, struct err *err)
{
    int rc = redis_send(r, words, n, err);
    if (rc == 0) {
        rc = redis_read(r, reply, err);
    }
    return rc == 0 ? fail_on_error(config_legacy(r->cfg), reply, err) : rc;
}
