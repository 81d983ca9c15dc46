/* A port lists its questions in the order in which they were sent, which is that of the replies. A question whose time
 * is over leaves its entry in the list: the entry stays, without a question, until its replies have arrived, which are
 * discarded.
 *
 * A failure is counted, and the question is answered with the replies so far. A reply that refuses one key (WRONGTYPE)
 * fails only its question. Any other error concerns all questions: the connection is dropped.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "legacy/asking.h"
#include "legacy/breaker.h"
#include "legacy/legacy.h"
#include "legacy/parse.h"
#include "legacy/read_through.h"
#include "legacy/read_through_impl.h"
#include "legacy/redis_connection.h"
#include "legacy/redis_reply.h"
#include "store/migration.h"

enum { EARLY_US = 500 };

/* A question on its way. */
struct entry {
    struct entry *next;
    int64_t deadline_us;
    struct asking asking;
};

struct read_through_port {
    struct read_through *t;
    struct redis_connection *connection;
    uv_timer_t deadline;
    uv_loop_t *loop; /* NULL: not open */
    bool closed;
    struct breaker breaker;
    struct entry *first, **end;
    size_t given_up; /* of the list */
    bool waits;      /* counted in t->waiting */
};

/* --- the list --- */

static void set_deadline(struct read_through_port *p);

/* The asking side goes on, and may ask again, here and now: the port is in order before. */
static void answer(struct read_through_port *p, struct entry *e, enum read_through_count how)
{
    struct read_through_question *q = e->asking.question;
    e->asking.question = NULL;
    if (how == READ_THROUGH_LATE) {
        p->given_up++;
    }
    read_through_count(p->t, how, 1);
    q->done(q);
}

static void unlink_first(struct read_through_port *p)
{
    struct entry *e = p->first;
    p->first = e->next;
    if (p->first == NULL) {
        p->end = &p->first;
    }
}

/* All of its replies have come. */
static void end_first(struct read_through_port *p)
{
    struct entry *e = p->first;
    unlink_first(p);
    if (e->asking.question == NULL) {
        p->given_up--;
    } else if (e->asking.failed) {
        breaker_unknown(&p->breaker);
        answer(p, e, READ_THROUGH_FAILED);
    } else {
        redis_connection_proved(p->connection);
        if (breaker_good(&p->breaker)) {
            read_through_end_waiting(p->t, &p->waits, true);
        }
        answer(p, e, READ_THROUGH_ANSWERED);
    }
    free(e);
}

/* No reply will come any more. */
static void end_all(struct read_through_port *p)
{
    struct entry *all = p->first;
    p->first = NULL;
    p->end = &p->first;
    p->given_up = 0;
    breaker_unknown(&p->breaker);
    while (all != NULL) {
        struct entry *e = all;
        all = e->next;
        if (e->asking.question != NULL) {
            answer(p, e, READ_THROUGH_FAILED);
        }
        free(e);
    }
}

static void on_deadline(uv_timer_t *timer)
{
    struct read_through_port *p = timer->data;
    int64_t now = clock_stopwatch_us();
    struct entry *e = p->first;
    while (e != NULL && (e->asking.question == NULL || e->deadline_us <= now + EARLY_US)) {
        struct entry *next = e->next; /* what is asked meanwhile stands behind */
        if (e->asking.question != NULL) {
            breaker_late(&p->breaker, now);
            if (breaker_open(&p->breaker)) {
                read_through_begin_waiting(p->t, &p->waits, "it answers too late");
            }
            answer(p, e, READ_THROUGH_LATE);
            next = e->next;
        }
        e = next;
    }
    set_deadline(p);
}

/* The first that still waits has the earliest deadline (unless legacy_timeout was just made shorter). The loop's
 * milliseconds begin anywhere within ours, so the timer is half of one early or late. */
static void set_deadline(struct read_through_port *p)
{
    const struct entry *e = p->first;
    while (e != NULL && e->asking.question == NULL) {
        e = e->next;
    }
    if (e == NULL) {
        uv_timer_stop(&p->deadline);
        return;
    }
    int64_t left = e->deadline_us - clock_stopwatch_us() - EARLY_US;
    uv_update_time(p->loop);
    uv_timer_start(&p->deadline, on_deadline, left > 0 ? (uint64_t)(left + 999) / 1000 : 0, 0);
}

/* --- replies --- */

static void on_reply(void *owner, const struct redisReply *reply)
{
    struct read_through_port *p = owner;
    struct slice text;
    if (redis_is_error(reply, &text) && !legacy_refuses_key(text)) {
        redis_connection_fail(p->connection, text);
    }
    if (asking_reply(&p->first->asking, reply)) {
        end_first(p);
        set_deadline(p);
    }
}

static void on_up(void *owner)
{
    struct read_through_port *p = owner;
    p->breaker = (struct breaker){0};
    read_through_end_waiting(p->t, &p->waits, true);
}

static void on_down(void *owner, const struct err *err)
{
    struct read_through_port *p = owner;
    read_through_begin_waiting(p->t, &p->waits, err->text);
    end_all(p);
    set_deadline(p);
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

/* Whether the port's connection may be bothered with a question. */
static bool is_free(const struct read_through_port *p)
{
    return !p->closed && redis_connection_takes(p->connection) && (!breaker_open(&p->breaker) || p->given_up == 0);
}

static bool may_ask(struct read_through_port *p)
{
    redis_connection_connect(p->connection);
    return is_free(p) && breaker_allows(&p->breaker, clock_stopwatch_us());
}

static bool put_question(struct read_through_port *p, const struct asking *a, struct slice user,
                         const struct slice *items)
{
    struct buf out = {0};
    asking_words(a, user, items, &out);
    if (out.failed || redis_connection_send(p->connection, &out, a->n) < 0) {
        buf_free(&out);
        return false;
    }
    return true;
}

bool read_through_ask(struct read_through_port *p, struct read_through_question *q, struct slice user,
                      const struct slice *items)
{
    struct read_through *t = p->t;
    struct entry *e = may_ask(p) ? calloc(1, sizeof *e) : NULL;
    if (e == NULL) {
        read_through_count(t, READ_THROUGH_SKIPPED, 1);
        return false;
    }
    e->deadline_us = clock_stopwatch_us() + config_now(t->cfg)->legacy_timeout_ms * 1000;
    asking_begin(&e->asking, q, t->dedup, redis_connection_has_zmscore(p->connection));
    if (!put_question(p, &e->asking, user, items)) {
        breaker_unknown(&p->breaker);
        read_through_count(t, READ_THROUGH_SKIPPED, 1);
        free(e);
        return false;
    }
    *p->end = e;
    p->end = &e->next;
    read_through_count(t, READ_THROUGH_ASKED, 1);
    if (!uv_is_active((uv_handle_t *)&p->deadline)) {
        set_deadline(p);
    }
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
    static const struct redis_connection_ops ops = {on_up, on_reply, on_down};
    *port = NULL;
    struct read_through_port *p = t != NULL ? calloc(1, sizeof *p) : NULL;
    if (p == NULL) {
        return t == NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory");
    }
    p->t = t;
    p->end = &p->first;
    int rc = redis_connection_new(t->cfg, &ops, p, &p->connection, err);
    if (rc < 0) {
        free(p);
        return rc;
    }
    *port = p;
    return 0;
}

void read_through_port_free(struct read_through_port *p)
{
    if (p != NULL) {
        redis_connection_free(p->connection);
        free(p);
    }
}

void read_through_port_open(struct read_through_port *p, uv_loop_t *loop)
{
    if (p != NULL) {
        p->loop = loop;
        uv_timer_init(loop, &p->deadline);
        p->deadline.data = p;
        redis_connection_open(p->connection, loop);
        read_through_port_tick(p);
    }
}

void read_through_port_close(struct read_through_port *p)
{
    if (p != NULL && p->loop != NULL && !p->closed) {
        p->closed = true;
        redis_connection_close(p->connection);
        read_through_end_waiting(p->t, &p->waits, false);
        end_all(p);
        uv_close((uv_handle_t *)&p->deadline, NULL);
    }
}

void read_through_port_tick(struct read_through_port *p)
{
    if (p == NULL || p->closed) {
        return;
    }
    if (config_now(p->t->cfg)->legacy_read_through) {
        redis_connection_connect(p->connection);
        if (p->waits && breaker_open(&p->breaker) && is_free(p) && !breaker_pauses(&p->breaker, clock_stopwatch_us())) {
            read_through_stop_waiting(p->t, &p->waits);
        }
    } else if (p->first == NULL) {
        redis_connection_shut(p->connection);
        read_through_end_waiting(p->t, &p->waits, false);
        p->breaker = (struct breaker){0};
    }
}
