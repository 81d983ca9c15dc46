#include "legacy/cluster.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "legacy/parse.h"
#include "legacy/redis_reply.h"
#include "net/stream.h"

void cluster_free(struct cluster *c)
{
    free(c->nodes);
    *c = (struct cluster){0};
}

int cluster_node(struct cluster *c, const char *address, struct err *err)
{
    for (size_t i = 0; i < c->n; i++) {
        if (strcmp(c->nodes[i], address) == 0) {
            return (int)i;
        }
    }
    if (c->n == CLUSTER_NODES_MAX) {
        return err_set(err, ERR_SYSTEM, "%s: a cluster of more than %d nodes", address, CLUSTER_NODES_MAX);
    }
    if (c->n == c->cap) {
        size_t cap = c->cap > 0 ? 2 * c->cap : 8;
        void *grown = reallocarray(c->nodes, cap, sizeof *c->nodes);
        if (grown == NULL) {
            return err_set(err, ERR_NOMEM, "out of memory for the cluster's nodes");
        }
        c->nodes = grown;
        c->cap = cap;
    }
    snprintf(c->nodes[c->n], sizeof *c->nodes, "%s", address);
    return (int)c->n++;
}

size_t cluster_route(const struct cluster *c, struct slice key)
{
    unsigned node = c->known ? c->slots[keyslot(key)] : 0;
    return node > 0 ? node - 1 : 0;
}

bool cluster_serves(const struct cluster *c, size_t node)
{
    for (size_t i = 0; c->known && i < KEYSLOTS; i++) {
        if (c->slots[i] == node + 1) {
            return true;
        }
    }
    return !c->known && node == 0;
}

size_t cluster_masters(const struct cluster *c)
{
    size_t sum = 0;
    for (size_t i = 0; i < c->n; i++) {
        sum += cluster_serves(c, i);
    }
    return sum;
}

static bool is_host(struct slice host)
{
    for (size_t i = 0; i < host.len; i++) {
        if (!isalnum((unsigned char)host.data[i]) &&
            (host.data[i] == '\0' || strchr(".-_:%[]", host.data[i]) == NULL)) {
            return false;
        }
    }
    return host.len > 0 && host.len <= 253; /* the longest name that DNS has */
}

/* An address with the scheme of the one that was asked, and its host if none, or only "?", is given. False: it is none;
 * never is it the path of a socket. */
static bool make_address(char out[CONFIG_TEXT], struct slice host, int64_t port, const char *asked)
{
    char same[CONFIG_TEXT], ignored[CONFIG_TEXT], digits[LEGACY_PORT_TEXT];
    const char *tls = asked;
    bool is_tls = stream_is_tls(&tls);
    if (host.len == 0 || slice_eq(host, slice_str("?"))) {
        legacy_address(asked, same, digits);
        host = slice_str(same);
    }
    if (!is_host(host) || port < 1 || port > 65535) {
        return false;
    }
    bool v6 = memchr(host.data, ':', host.len) != NULL && host.data[0] != '[';
    int len = snprintf(out, CONFIG_TEXT, "%s%s%.*s%s:%d", is_tls ? "tls://" : "", v6 ? "[" : "", (int)host.len,
                       host.data, v6 ? "]" : "", (int)port);
    return len < CONFIG_TEXT && legacy_address(out, ignored, digits);
}

/* One range: its first and last slot, its master, its replicas. */
static int take_range(struct cluster *c, const struct redisReply *range, const char *asked, uint16_t slots[KEYSLOTS],
                      struct err *err)
{
    int64_t first, last, port;
    struct slice host;
    char address[CONFIG_TEXT];
    const struct redisReply *master = redis_count(range) >= 3 ? redis_item(range, 2) : NULL;
    if (master == NULL || redis_count(master) < 2 || !redis_integer(redis_item(range, 0), &first) ||
        !redis_integer(redis_item(range, 1), &last) || !redis_integer(redis_item(master, 1), &port) || first < 0 ||
        first > last || last >= KEYSLOTS) {
        return err_set(err, ERR_SYSTEM, "%s: the answer to CLUSTER SLOTS is no list of ranges with their masters",
                       asked);
    }
    if (!redis_text(redis_item(master, 0), &host)) {
        host = slice_of("", 0);
    }
    if (!make_address(address, host, port, asked)) {
        return err_set(err, ERR_SYSTEM, "%s: CLUSTER SLOTS names a master without an address, or without a port",
                       asked);
    }
    int node = cluster_node(c, address, err);
    for (int64_t i = first; node >= 0 && i <= last; i++) {
        slots[i] = (uint16_t)(node + 1);
    }
    return node < 0 ? node : 0;
}

static int take_slots(struct cluster *c, const struct redisReply *reply, const char *asked, uint16_t slots[KEYSLOTS],
                      struct err *err)
{
    struct slice text;
    if (redis_is_error(reply, &text) || redis_count(reply) == 0) {
        return 0;
    }
    int rc = 0;
    for (size_t i = 0; i < redis_count(reply) && rc == 0; i++) {
        rc = take_range(c, redis_item(reply, i), asked, slots, err);
    }
    return rc < 0 ? rc : 1;
}

/* A Sentinel's answer: the master's host and port. */
static int take_master(struct cluster *c, const char *name, const struct redisReply *reply, const char *asked,
                       uint16_t slots[KEYSLOTS], struct err *err)
{
    char address[CONFIG_TEXT], digits[LEGACY_PORT_TEXT];
    struct slice host, port;
    if (redis_is_error(reply, &host)) {
        return err_set(err, ERR_INVALID, "%s: %.*s", asked, (int)host.len, host.data);
    }
    if (redis_count(reply) != 2 || !redis_text(redis_item(reply, 0), &host) ||
        !redis_text(redis_item(reply, 1), &port)) {
        return err_set(err, ERR_SYSTEM, "%s: this Sentinel knows no master called %s", asked, name);
    }
    snprintf(digits, sizeof digits, "%.*s", (int)(port.len < sizeof digits ? port.len : 0), port.data);
    if (!make_address(address, host, strtol(digits, NULL, 10), asked)) {
        return err_set(err, ERR_SYSTEM, "%s: this Sentinel gives no address of the master called %s", asked, name);
    }
    int node = cluster_node(c, address, err);
    for (size_t i = 0; node >= 0 && i < KEYSLOTS; i++) {
        slots[i] = (uint16_t)(node + 1);
    }
    return node < 0 ? node : 1;
}

size_t cluster_words(const struct config *cfg, struct slice words[CLUSTER_WORDS])
{
    bool sentinel = cfg->legacy_at.kind == REDIS_AT_SENTINEL;
    words[0] = slice_str(sentinel ? "SENTINEL" : "CLUSTER");
    words[1] = slice_str(sentinel ? "GET-MASTER-ADDR-BY-NAME" : "SLOTS");
    words[2] = sentinel ? slice_str(cfg->legacy_at.master) : slice_str("");
    return sentinel ? 3 : 2;
}

int cluster_take(struct cluster *c, const struct config *cfg, const struct redisReply *reply, const char *asked,
                 struct err *err)
{
    uint16_t slots[KEYSLOTS] = {0};
    char at[CONFIG_TEXT]; /* `asked` may be one of c->nodes, which move as they grow */
    snprintf(at, sizeof at, "%s", asked);
    int rc = cfg->legacy_at.kind == REDIS_AT_SENTINEL ? take_master(c, cfg->legacy_at.master, reply, at, slots, err)
                                                      : take_slots(c, reply, at, slots, err);
    if (rc == 1) {
        memcpy(c->slots, slots, sizeof slots);
        c->known = true;
        c->stale = false;
    }
    return rc;
}

bool cluster_refresh(struct cluster *c, int64_t now_us)
{
    if (!c->stale || (c->asked_us != 0 && now_us - c->asked_us < CLUSTER_REFRESH_US)) {
        return false;
    }
    c->asked_us = now_us;
    return true;
}

/* "MOVED 3999 127.0.0.1:6381". */
enum cluster_verdict cluster_verdict(struct cluster *c, struct slice error, const char *asked, size_t *node)
{
    char text[CONFIG_TEXT], host[CONFIG_TEXT], address[CONFIG_TEXT];
    unsigned slot;
    int at = 0;
    snprintf(text, sizeof text, "%.*s", (int)(error.len < sizeof text ? error.len : 0), error.data);
    bool moved = strncmp(text, "MOVED ", 6) == 0;
    if (!c->known || (!moved && strncmp(text, "ASK ", 4) != 0) ||
        sscanf(text + (moved ? 6 : 4), "%5u %n", &slot, &at) != 1 || at == 0 || slot >= KEYSLOTS) {
        return CLUSTER_STAYS;
    }
    snprintf(host, sizeof host, "%s", text + (moved ? 6 : 4) + at);
    char *colon = strrchr(host, ':');
    long port = colon != NULL ? strtol(colon + 1, NULL, 10) : 0;
    struct err err;
    if (colon == NULL || !make_address(address, slice_of(host, (size_t)(colon - host)), port, asked)) {
        return CLUSTER_STAYS;
    }
    int found = cluster_node(c, address, &err);
    if (found < 0) {
        return CLUSTER_STAYS;
    }
    *node = (size_t)found;
    if (!moved) {
        c->asks++;
        return CLUSTER_ASK;
    }
    c->slots[slot] = (uint16_t)(found + 1);
    c->stale = true;
    c->moved++;
    return CLUSTER_MOVED;
}
