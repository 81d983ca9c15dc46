/* What the asking side calls, and deadlines: see read_through_line.h. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "legacy/legacy.h"
#include "legacy/parse.h"
#include "legacy/read_through_line.h"
#include "store/migration.h"

enum { EARLY_US = 500, KEPT_MAX = 16 * 1024 * 1024 };

/* --- deadlines --- */

/* Its time is over: that counts once against each node that owes an answer. */
static void give_up(struct read_through_port *p, struct read_through_entry *e, int64_t now)
{
    const struct read_through_line *counted = NULL;
    for (size_t i = 0; i < ASKING_PARTS; i++) {
        struct read_through_part *part = &e->parts[i];
        struct read_through_line *line = part->line;
        if (line == NULL) {
            continue;
        }
        part->late = true;
        line->given_up++;
        if (line != counted) {
            breaker_late(&line->breaker, now);
        }
        if (breaker_open(&line->breaker)) {
            read_through_begin_waiting(p->t, &line->waits, "it answers too late");
        }
        counted = line;
    }
}

static void on_deadline(uv_timer_t *timer)
{
    struct read_through_port *p = timer->data;
    int64_t now = clock_real_us();
    struct read_through_entry *e = p->first;
    while (e != NULL && (e->asking.question == NULL || e->deadline_us <= now + EARLY_US)) {
        if (e->asking.question != NULL) {
            give_up(p, e, now);
            read_through_answer(p, e, READ_THROUGH_LATE); /* what is asked meanwhile stands behind */
        }
        e = e->next;
    }
    read_through_set_deadline(p);
}

/* The first that still waits has the earliest deadline (unless legacy_timeout was just made shorter). The loop's
 * milliseconds begin anywhere within ours, so the timer is half of one early or late. */
void read_through_set_deadline(struct read_through_port *p)
{
    const struct read_through_entry *e = p->first;
    while (e != NULL && e->asking.question == NULL) {
        e = e->next;
    }
    if (e == NULL) {
        uv_timer_stop(&p->deadline);
        return;
    }
    int64_t left = e->deadline_us - clock_real_us() - EARLY_US;
    uv_update_time(p->loop);
    uv_timer_start(&p->deadline, on_deadline, left > 0 ? (uint64_t)(left + 999) / 1000 : 0, 0);
}

/* --- asking --- */

bool read_through_wants(struct read_through_port *p, struct slice user)
{
    if (p == NULL || !config_now(p->t->cfg)->legacy_read_through) {
        return false;
    }
    const struct dedup *d = p->t->dedup;
    int64_t key = hash_user_key(d->seed, user);
    if (d->store->migration->of(d->store, key) != MIGRATION_WAITING) {
        return false;
    }
    legacy_first(d->legacy, key, user);
    return true;
}

/* The lines of its parts, all of which take questions; false: one doesn't. */
static bool find_lines(struct read_through_port *p, struct slice user, struct read_through_line *lines[ASKING_PARTS])
{
    const struct config *cfg = p->t->cfg;
    char key[LEGACY_KEY_MAX];
    if (!p->cluster.known && cfg->legacy_at.kind == REDIS_AT_SENTINEL) {
        return false; /* line 0 leads to no Redis */
    }
    for (int i = 0; i < ASKING_PARTS; i++) {
        enum asking_part part = (enum asking_part)i;
        lines[i] = NULL;
        if (part == ASKING_DELIVERED && cfg->legacy_delivered_key[0] == '\0') {
            continue;
        }
        size_t node =
            p->cluster.known ? cluster_route(&p->cluster, asking_key(cfg, part, user, key)) : READ_THROUGH_HOME;
        lines[i] = read_through_line_of(p, node);
        if (lines[i] == NULL || !read_through_line_is_free(lines[i])) {
            return false;
        }
    }
    struct read_through_line *first = lines[ASKING_DELIVERED], *second = lines[ASKING_SCORES];
    int64_t now = clock_real_us();
    if (first != NULL && first != second && !breaker_allows(&first->breaker, now)) {
        return false;
    }
    if (!breaker_allows(&second->breaker, now)) {
        if (first != NULL && first != second) {
            breaker_unknown(&first->breaker);
        }
        return false;
    }
    return true;
}

static void add_entry(struct read_through_port *p, struct read_through_entry *e)
{
    e->link = p->end;
    *p->end = e;
    p->end = &e->next;
    if (!uv_is_active((uv_handle_t *)&p->deadline)) {
        read_through_set_deadline(p);
    }
}

/* What is sent again is remembered, except of a single Redis, and in bounds. */
static void keep(struct read_through_port *p, struct read_through_entry *e, struct slice user,
                 const struct slice *items)
{
    const struct read_through_question *q = e->asking.question;
    size_t bytes = q->n * sizeof *items + user.len;
    if (p->single) {
        return;
    }
    for (size_t i = 0; i < q->n; i++) {
        bytes += items[i].len;
    }
    char *at = p->kept + bytes <= KEPT_MAX ? malloc(bytes) : NULL;
    if (at == NULL) {
        return;
    }
    e->items = (struct slice *)(void *)at;
    at += q->n * sizeof *items;
    for (size_t i = 0; i < q->n; at += items[i++].len) {
        memcpy(at, items[i].data, items[i].len);
        e->items[i] = slice_of(at, items[i].len);
    }
    memcpy(at, user.data, user.len);
    e->user = slice_of(at, user.len);
    e->kept = bytes;
    p->kept += bytes;
}

static bool put_question(struct read_through_port *p, struct read_through_entry *e,
                         struct read_through_line *lines[ASKING_PARTS], struct slice user, const struct slice *items)
{
    struct read_through_part *parts[ASKING_PARTS];
    size_t n = 0;
    keep(p, e, user, items);
    for (int i = 0; i < ASKING_PARTS; i++) {
        e->parts[i] = (struct read_through_part){.entry = e, .which = (enum asking_part)i};
        if (lines[i] == NULL) {
            continue;
        }
        parts[n++] = &e->parts[i];
        if (i + 1 < ASKING_PARTS && lines[i + 1] == lines[i]) {
            continue;
        }
        if (read_through_send(lines[i], parts, n, user, items)) {
            e->n_parts += n;
        } else {
            e->asking.failed = true;
            breaker_unknown(&lines[i]->breaker);
        }
        n = 0;
    }
    return e->n_parts > 0;
}

bool read_through_ask(struct read_through_port *p, struct read_through_question *q, struct slice user,
                      const struct slice *items)
{
    struct read_through *t = p->t;
    struct read_through_line *lines[ASKING_PARTS];
    struct read_through_entry *e = !p->closed && find_lines(p, user, lines) ? calloc(1, sizeof *e) : NULL;
    if (e == NULL) {
        read_through_count(t, READ_THROUGH_SKIPPED, 1);
        return false;
    }
    e->deadline_us = clock_real_us() + config_now(t->cfg)->legacy_timeout_ms * 1000;
    asking_begin(&e->asking, q, t->dedup, redis_connection_has_zmscore(lines[ASKING_SCORES]->connection));
    if (!put_question(p, e, lines, user, items)) {
        read_through_count(t, READ_THROUGH_SKIPPED, 1);
        read_through_entry_free(p, e);
        return false;
    }
    add_entry(p, e);
    read_through_count(t, READ_THROUGH_ASKED, 1);
    return true;
}

size_t read_through_hide(struct read_through_port *p, struct read_through_question *q, const uint64_t *hashes,
                         uint8_t *unseen)
{
    size_t hidden = asking_hide(q, hashes, unseen);
    if (p != NULL && !q->counted) {
        q->counted = true;
        read_through_count(p->t, READ_THROUGH_HIDDEN, hidden);
    }
    return hidden;
}

/* --- from outside --- */

int read_through_port_new(struct read_through *t, struct read_through_port **port, struct err *err)
{
    *port = NULL;
    struct read_through_port *p = t != NULL ? calloc(1, sizeof *p) : NULL;
    if (p == NULL) {
        return t == NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory");
    }
    p->t = t;
    p->end = &p->first;
    p->single = !legacy_may_be_cluster(t->cfg);
    int rc = read_through_line_new(p, READ_THROUGH_HOME, err);
    if (rc < 0) {
        free(p);
        return rc;
    }
    *port = p;
    return 0;
}

void read_through_port_free(struct read_through_port *p)
{
    for (size_t i = 0; p != NULL && i < CLUSTER_NODES_MAX; i++) {
        if (p->lines[i] != NULL) {
            redis_connection_free(p->lines[i]->connection);
            free(p->lines[i]);
        }
    }
    if (p != NULL) {
        cluster_free(&p->cluster);
        free(p);
    }
}

void read_through_port_open(struct read_through_port *p, uv_loop_t *loop)
{
    if (p != NULL) {
        p->loop = loop;
        uv_timer_init(loop, &p->deadline);
        p->deadline.data = p;
        redis_connection_open(p->lines[READ_THROUGH_HOME]->connection, loop);
        read_through_port_tick(p);
    }
}

void read_through_port_close(struct read_through_port *p)
{
    if (p == NULL || p->loop == NULL || p->closed) {
        return;
    }
    p->closed = true;
    for (size_t i = 0; i < CLUSTER_NODES_MAX; i++) {
        if (p->lines[i] != NULL) {
            redis_connection_close(p->lines[i]->connection);
            read_through_end_waiting(p->t, &p->lines[i]->waits, false);
        }
    }
    for (size_t i = 0; i < CLUSTER_NODES_MAX; i++) {
        if (p->lines[i] != NULL) {
            read_through_end_all(p->lines[i]);
        }
    }
    uv_close((uv_handle_t *)&p->deadline, NULL);
}

static void tick_line(struct read_through_line *line)
{
    struct read_through_port *p = line->p;
    if (line->waits && breaker_open(&line->breaker) && read_through_line_is_free(line) &&
        !breaker_pauses(&line->breaker, clock_real_us())) {
        read_through_stop_waiting(p->t, &line->waits);
    }
    p->cluster.stale = p->cluster.stale || line->waits;
}

void read_through_port_tick(struct read_through_port *p)
{
    if (p == NULL || p->closed) {
        return;
    }
    const bool on = config_now(p->t->cfg)->legacy_read_through != 0;
    if (on) {
        redis_connection_connect(p->lines[READ_THROUGH_HOME]->connection);
    }
    for (size_t i = 0; i == READ_THROUGH_HOME || i < p->cluster.n; i++) {
        if (p->lines[i] != NULL && on) {
            tick_line(p->lines[i]);
        } else if (p->lines[i] != NULL && p->first == NULL && !p->asks_map) {
            read_through_line_shut(p->lines[i]);
        }
    }
    if (on) {
        read_through_sweep(p);
        read_through_ask_map(p);
    }
}
