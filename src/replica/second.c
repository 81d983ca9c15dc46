#include "replica/second.h"

#include <endian.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "dedup/role.h"
#include "dedup/tier_pool.h"
#include "net/client.h"
#include "net/tls.h"
#include "replica/feeder.h"
#include "replica/replica.h"

enum { NUMBER_TEXT = 24, PLAIN_WORDS = 5 };

struct second {
    struct replica *r;
    struct tier_pool *pool;
    pthread_mutex_t mutex;
    char address[NODE_ADDRESS_TEXT]; /* of the one that is asked; "": none was chosen yet */
    bool answers;                    /* it did, when the keeper asked last */
};

/* A connection. */
struct line {
    struct second *s;
    struct client *client;
    struct buf hashes;
    bool plain; /* an older version answers there, by its own window */
    char address[NODE_ADDRESS_TEXT];
};

/* Those that can be asked, and which of them is `address`: -1: none. */
static int look(const struct second *s, const char *address, struct feeder_replica out[FEEDER_REPLICAS_MAX], int *at,
                struct err *err)
{
    struct feeder_replica all[FEEDER_REPLICAS_MAX];
    int n = feeder_look(s->r->feeder, all), there = 0;
    *at = -1;
    if (!role_is_primary(s->r->dedup->role)) {
        return err_set(err, ERR_ABSENT, "this node is a replica itself");
    }
    for (int i = 0; i < n; i++) {
        if (all[i].connected && all[i].address[0] != '\0') {
            *at = strcmp(all[i].address, address) == 0 ? there : *at;
            out[there++] = all[i];
        }
    }
    return there > 0 ? there : err_set(err, ERR_ABSENT, "no replica is connected");
}

/* Whom to ask: all threads the same one, so that the keeper's word holds for all. It stays while it is connected to the
 * feeder; else it is the one that has most durable. */
static int choose(struct second *s, char address[NODE_ADDRESS_TEXT], struct err *err)
{
    struct feeder_replica all[FEEDER_REPLICAS_MAX];
    int at;
    pthread_mutex_lock(&s->mutex);
    int n = look(s, s->address, all, &at, err);
    for (int i = 0, keep = at; i < n && keep < 0; i++) {
        at = at < 0 || all[i].durable > all[at].durable ? i : at;
    }
    if (n > 0) {
        s->answers = s->answers && strcmp(s->address, all[at].address) == 0;
        memcpy(s->address, all[at].address, sizeof s->address);
        memcpy(address, s->address, sizeof s->address);
    }
    pthread_mutex_unlock(&s->mutex);
    return n < 0 ? n : 0;
}

/* That one doesn't answer: the next one is tried. The feeder takes a dead one for connected for some seconds. */
static void give_up(struct second *s, const char *address)
{
    struct feeder_replica all[FEEDER_REPLICAS_MAX];
    struct err err;
    int at;
    pthread_mutex_lock(&s->mutex);
    int n = strcmp(s->address, address) == 0 ? look(s, address, all, &at, &err) : 0;
    if (n > 0 && at >= 0) {
        memcpy(s->address, all[(at + 1) % n].address, sizeof s->address);
    }
    s->answers = false;
    pthread_mutex_unlock(&s->mutex);
}

static bool answers(struct second *s)
{
    pthread_mutex_lock(&s->mutex);
    bool well = s->answers;
    pthread_mutex_unlock(&s->mutex);
    return well;
}

static void note_answer(struct second *s, const char *address)
{
    pthread_mutex_lock(&s->mutex);
    s->answers = strcmp(s->address, address) == 0;
    pthread_mutex_unlock(&s->mutex);
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
    char address[NODE_ADDRESS_TEXT];
    int rc = choose(s, address, err);
    struct line *line = rc == 0 ? calloc(1, sizeof *line) : NULL;
    if (rc == 0 && line == NULL) {
        rc = err_set(err, ERR_NOMEM, "out of memory for the second tier");
    }
    if (rc < 0) {
        return rc;
    }
    line->s = s;
    memcpy(line->address, address, sizeof line->address);
    rc = reach_connect(&s->r->reach, address, TIER_POOL_PATIENCE_MS, CLIENT_ANSWER_MAX, &line->client, err);
    if (rc < 0) {
        if (!answers(s)) { /* else the keeper has a connection, and its word counts */
            give_up(s, address);
        }
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
    if (rc == 0 && strcmp(address, line->address) != 0) {
        rc = err_set(err, ERR_ABSENT, "%s is connected no more", line->address);
    }
    if (rc < 0) {
        return rc;
    }
    client_be_patient(line->client, TIER_POOL_PATIENCE_MS);
    rc = client_call(line->client, &word, 1, &reply, err);
    if (rc < 0) {
        give_up(line->s, line->address);
        return rc;
    }
    note_answer(line->s, line->address);
    return 0;
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

/* 0.1.0 takes no month and no term. */
static bool is_older(const struct reply *reply)
{
    static const char said[] = "ERR wrong number of arguments";
    return reply->kind == REPLY_ERROR && reply->text.len >= sizeof said - 1 &&
           memcmp(reply->text.data, said, sizeof said - 1) == 0;
}

static int ask(void *arg, struct tier_question *q, struct err *err)
{
    struct line *line = arg;
    if (put_hashes(line, q, err) < 0) {
        return err->code;
    }
    /* Whose events are counted is looked up each time: a folder that went back becomes another node as it runs, and
     * what a replica has of the old one is no answer to it. */
    struct store_node now;
    char node[NODE_TEXT], month[MONTH_TEXT], term[NUMBER_TEXT];
    role_look(line->s->r->dedup->role, &now);
    snprintf(node, sizeof node, "%016" PRIx64, now.node);
    snprintf(term, sizeof term, "%" PRIu64, now.term);
    const struct slice words[] = {slice_str("REPLICA"),
                                  slice_str("ASK"),
                                  slice_str(node),
                                  q->user,
                                  slice_of((const char *)line->hashes.data, line->hashes.len),
                                  slice_str(month_name(q->first_month, month)),
                                  slice_str(term)};
    const struct reply *reply;
    client_be_patient(line->client, TIER_POOL_ASK_MS);
    int rc = client_queue(line->client, words, line->plain ? PLAIN_WORDS : sizeof words / sizeof *words, err);
    if (rc == 0) {
        rc = client_read(line->client, &reply, err);
    }
    if (rc < 0) {
        return rc;
    }
    if (!line->plain && is_older(reply)) {
        line->plain = true;
        return ask(line, q, err);
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
    pthread_mutex_init(&s->mutex, NULL);
    int rc = tier_pool_start(&line_ops, s, &s->pool, err);
    if (rc < 0) {
        pthread_mutex_destroy(&s->mutex);
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
        pthread_mutex_destroy(&s->mutex);
        free(s);
    }
}
