#include "legacy/read_through_line.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "legacy/parse.h"
#include "legacy/redis_reply.h"
#include "legacy/redis_words.h"

/* --- lines --- */

static const struct redis_connection_ops home_ops, node_ops;

/* Addresses come in turn: those of the configuration, and those that the cluster told. */
static void address_of(void *owner, unsigned n, char out[CONFIG_TEXT])
{
    const struct read_through_line *line = owner;
    const struct read_through_port *p = line->p;
    unsigned seeds = legacy_seeds(p->t->cfg),
             told = p->cluster.n > 0 && p->t->cfg->legacy_at.kind != REDIS_AT_SENTINEL ? (unsigned)p->cluster.n - 1 : 0;
    if (line->node != READ_THROUGH_HOME) {
        snprintf(out, CONFIG_TEXT, "%s", p->cluster.nodes[line->node]);
    } else if (n % (seeds + told) < seeds) {
        legacy_seed(p->t->cfg, n % (seeds + told), out);
    } else {
        snprintf(out, CONFIG_TEXT, "%s", p->cluster.nodes[1 + n % (seeds + told) - seeds]);
    }
}

int read_through_line_new(struct read_through_port *p, size_t node, struct err *err)
{
    struct read_through_line *line = calloc(1, sizeof *line);
    if (line == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    line->p = p;
    line->node = node;
    line->end = &line->first;
    int rc = redis_connection_new(p->t->cfg, node == READ_THROUGH_HOME ? &home_ops : &node_ops, line, &line->connection,
                                  err);
    if (rc < 0) {
        free(line);
        return rc;
    }
    p->lines[node] = line;
    return 0;
}

struct read_through_line *read_through_line_of(struct read_through_port *p, size_t node)
{
    struct err err;
    if (p->lines[node] == NULL) {
        if (read_through_line_new(p, node, &err) < 0) {
            return NULL;
        }
        redis_connection_open(p->lines[node]->connection, p->loop);
    }
    redis_connection_connect(p->lines[node]->connection);
    return p->lines[node];
}

bool read_through_line_is_free(const struct read_through_line *line)
{
    return !line->p->closed && redis_connection_takes(line->connection) &&
           (!breaker_open(&line->breaker) || line->given_up == 0);
}

void read_through_line_shut(struct read_through_line *line)
{
    redis_connection_shut(line->connection);
    read_through_end_waiting(line->p->t, &line->waits, false);
    line->breaker = (struct breaker){0};
}

static void append(struct read_through_line *line, struct read_through_part *part)
{
    part->next = NULL;
    *line->end = part;
    line->end = &part->next;
}

/* --- the map --- */

void read_through_sweep(struct read_through_port *p)
{
    for (size_t i = READ_THROUGH_HOME + 1; p->cluster.known && i < p->cluster.n; i++) {
        if (p->lines[i] != NULL && p->lines[i]->first == NULL && !cluster_serves(&p->cluster, i)) {
            read_through_line_shut(p->lines[i]);
        }
    }
}

static void on_slots(void *owner, const struct redisReply *reply)
{
    struct read_through_port *p = ((struct read_through_line *)owner)->p;
    struct err err;
    if (p->cluster.n == 0 && cluster_node(&p->cluster, "", &err) < 0) {
        return; /* line 0 is no node of the map */
    }
    if (cluster_take(&p->cluster, p->t->cfg, reply, redis_connection_address(p->lines[READ_THROUGH_HOME]->connection),
                     &err) < 0) {
        p->cluster.stale = true;
        read_through_begin_waiting(p->t, &p->lines[READ_THROUGH_HOME]->waits, err.text);
    }
    read_through_sweep(p);
}

void read_through_ask_map(struct read_through_port *p)
{
    struct slice words[CLUSTER_WORDS];
    struct read_through_line *home = p->lines[READ_THROUGH_HOME];
    struct buf out = {0};
    const bool sentinel = p->t->cfg->legacy_at.kind == REDIS_AT_SENTINEL;
    if (p->asks_map || (!p->cluster.known && !sentinel) || !redis_connection_takes(home->connection) ||
        !cluster_refresh(&p->cluster, clock_real_us())) {
        return;
    }
    redis_words_all(&out, words, cluster_words(p->t->cfg, words));
    if (out.failed || redis_connection_send(home->connection, &out, 1) < 0) {
        buf_free(&out);
        return;
    }
    p->asks_map = true;
    p->map.due = 1;
    append(home, &p->map);
}

/* --- questions --- */

void read_through_answer(struct read_through_port *p, struct read_through_entry *e, enum read_through_count how)
{
    struct read_through_question *q = e->asking.question;
    e->asking.question = NULL;
    read_through_count(p->t, how, 1);
    q->done(q);
}

void read_through_entry_free(struct read_through_port *p, struct read_through_entry *e)
{
    p->kept -= e->kept;
    free(e->items);
    free(e);
}

/* Ends the question with its last part. */
static void end_part(struct read_through_port *p, struct read_through_entry *e)
{
    if (--e->n_parts > 0) {
        return;
    }
    *e->link = e->next;
    if (e->next != NULL) {
        e->next->link = e->link;
    } else {
        p->end = e->link;
    }
    if (e->asking.question != NULL) {
        read_through_answer(p, e, e->asking.failed ? READ_THROUGH_FAILED : READ_THROUGH_ANSWERED);
    }
    read_through_entry_free(p, e);
}

bool read_through_send(struct read_through_line *line, struct read_through_part **parts, size_t n, struct slice user,
                       const struct slice *items)
{
    struct buf out = {0};
    size_t due = 0;
    for (size_t i = 0; i < n; i++) {
        const struct asking *a = &parts[i]->entry->asking;
        parts[i]->due = asking_commands(a, parts[i]->which) * (parts[i]->once ? 2 : 1);
        due += parts[i]->due;
        asking_words(a, parts[i]->which, user, items, parts[i]->once, &out);
    }
    if (out.failed || redis_connection_send(line->connection, &out, due) < 0) {
        buf_free(&out);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        parts[i]->line = line;
        append(line, parts[i]);
    }
    return true;
}

/* To where the node said. */
static bool send_again(struct read_through_port *p, struct read_through_part *part)
{
    struct read_through_entry *e = part->entry;
    if (e->asking.question == NULL || e->items == NULL || part->hops++ == CLUSTER_HOPS_MAX) {
        return false;
    }
    struct read_through_line *line = read_through_line_of(p, part->other);
    if (line == NULL || !read_through_line_is_free(line) || breaker_open(&line->breaker)) {
        return false;
    }
    part->once = part->skip = part->verdict == CLUSTER_ASK;
    part->verdict = CLUSTER_STAYS;
    asking_again(&e->asking, part->which);
    return read_through_send(line, &part, 1, e->user, e->items);
}

/* All of its replies have come. */
static void end_replies(struct read_through_line *line, struct read_through_part *part)
{
    struct read_through_port *p = line->p;
    struct read_through_entry *e = part->entry;
    if (part->late) {
        line->given_up--;
    } else if (part->verdict == CLUSTER_STAYS && e->asking.failed) {
        breaker_unknown(&line->breaker);
    } else {
        redis_connection_proved(line->connection);
        if (breaker_good(&line->breaker)) {
            read_through_end_waiting(p->t, &line->waits, true);
        }
    }
    if (part->verdict != CLUSTER_STAYS && send_again(p, part)) {
        return;
    }
    e->asking.failed = e->asking.failed || part->verdict != CLUSTER_STAYS;
    end_part(p, e);
}

void read_through_end_all(struct read_through_line *line)
{
    struct read_through_port *p = line->p;
    struct read_through_part *all = line->first;
    line->first = NULL;
    line->end = &line->first;
    line->given_up = 0;
    breaker_unknown(&line->breaker);
    while (all != NULL) {
        struct read_through_part *part = all;
        all = part->next;
        if (part == &p->map) {
            p->asks_map = false;
            continue;
        }
        part->line = NULL;
        part->entry->asking.failed = true;
        end_part(p, part->entry);
    }
}

/* --- replies --- */

static void take_reply(struct read_through_line *line, struct read_through_part *part, const struct redisReply *reply)
{
    struct read_through_port *p = line->p;
    struct slice text;
    if (redis_is_error(reply, &text)) {
        enum cluster_verdict verdict =
            cluster_verdict(&p->cluster, text, redis_connection_address(line->connection), &part->other);
        part->verdict = verdict != CLUSTER_STAYS ? verdict : part->verdict;
        if (verdict == CLUSTER_STAYS && !legacy_refuses_key(text)) {
            redis_connection_fail(line->connection, text);
        }
    }
    if (part->verdict == CLUSTER_STAYS) {
        asking_reply(&part->entry->asking, part->which, reply);
    }
}

static void on_reply(void *owner, const struct redisReply *reply)
{
    struct read_through_line *line = owner;
    struct read_through_port *p = line->p;
    struct read_through_part *part = line->first;
    const bool skipped = part->once && part->skip;
    part->skip = !part->skip;
    if (part == &p->map) {
        on_slots(line, reply);
        p->asks_map = false;
    } else if (!skipped) {
        take_reply(line, part, reply);
    }
    if (--part->due > 0) {
        return;
    }
    line->first = part->next;
    if (line->first == NULL) {
        line->end = &line->first;
    }
    if (part != &p->map) {
        part->line = NULL;
        end_replies(line, part);
        read_through_set_deadline(p);
        read_through_ask_map(p);
    }
}

static void on_up(void *owner)
{
    struct read_through_line *line = owner;
    line->breaker = (struct breaker){0};
    if (line->node == READ_THROUGH_HOME) {
        line->p->single = !line->p->cluster.known;
        if (line->p->single && line->p->t->cfg->legacy_at.kind == REDIS_AT_SENTINEL) {
            return; /* a Sentinel that knows no master */
        }
    }
    read_through_end_waiting(line->p->t, &line->waits, true);
}

/* A cluster's questions don't need line 0; and another node may have taken over the slots of this one. */
static void on_down(void *owner, const struct err *err)
{
    struct read_through_line *line = owner;
    struct read_through_port *p = line->p;
    if (line->node != READ_THROUGH_HOME || !p->cluster.known) {
        read_through_begin_waiting(p->t, &line->waits, err->text);
    }
    p->cluster.stale = true;
    read_through_end_all(line);
    read_through_set_deadline(p);
    read_through_ask_map(p);
}

static const struct redis_connection_ops home_ops = {address_of, on_slots, on_up, on_reply, on_down};
static const struct redis_connection_ops node_ops = {address_of, NULL, on_up, on_reply, on_down};
