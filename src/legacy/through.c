/* A port's questions stand in a list in the order in which they were sent, which is that of the replies. A question
 * that gets all of its replies, or whose time is over, leaves the list's entry behind: the entry stays, without a
 * question, until its replies have come, and they are thrown away.
 *
 * What goes wrong is counted, and the question is answered with what has come until then. A reply that refuses one key
 * (WRONGTYPE) fails its question alone. Any other error meets all questions alike: the connection is given up.
 */
#include "legacy/through.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "legacy/asking.h"
#include "legacy/breaker.h"
#include "legacy/legacy.h"
#include "legacy/link.h"
#include "legacy/parse.h"
#include "legacy/redis_reply.h"

enum { EARLY_US = 500 };

struct through {
    const struct dedup *dedup;
    const struct config *cfg;
    _Atomic uint64_t counts[THROUGH_COUNTS];
    pthread_mutex_t mutex; /* guards: */
    int waiting;           /* ports */
    bool told;             /* the log says that it waits; it says once that it goes on */
    char cause[320];       /* of the port that began to wait last */
};

/* A question on its way. */
struct entry {
    struct entry *next;
    int64_t deadline_us;
    struct asking asking;
};

struct through_port {
    struct through *t;
    struct link *link;
    uv_timer_t deadline;
    uv_loop_t *loop; /* NULL: not open */
    bool closed;
    struct breaker breaker;
    struct entry *first, **end;
    size_t given_up; /* of the list */
    bool waits;      /* counted in t->waiting */
};

static const struct figure figures[THROUGH_COUNTS] = {
    [THROUGH_ASKED] = {"read_through_asked", "read_through_asked_total", FIGURE_COUNTER,
                       "Questions about users not yet migrated that were put to the old Redis too."},
    [THROUGH_ANSWERED] = {"read_through_answered", "read_through_answered_total", FIGURE_COUNTER,
                          "Those among them that it answered in time."},
    [THROUGH_LATE] = {"read_through_late", "read_through_late_total", FIGURE_COUNTER,
                      "Those that it didn't within legacy_timeout, and that were answered without it."},
    [THROUGH_FAILED] = {"read_through_failed", "read_through_failed_total", FIGURE_COUNTER,
                        "Those that it refused, or that were lost with the connection, and answered without it."},
    [THROUGH_SKIPPED] = {"read_through_skipped", "read_through_skipped_total", FIGURE_COUNTER,
                         "Questions that were not put to it because it is away, or was late too often."},
    [THROUGH_HIDDEN] = {"read_through_hidden", "read_through_hidden_total", FIGURE_COUNTER,
                        "Candidates that are seen only there."},
};

const char *through_doing_name(enum through_doing doing)
{
    static const char *const names[] = {"off", "on", "waiting"};
    return names[doing];
}

const char *through_count_name(enum through_count count)
{
    return figures[count].info;
}

static void count(struct through *t, enum through_count what, uint64_t n)
{
    atomic_fetch_add_explicit(&t->counts[what], n, memory_order_relaxed);
}

/* --- what is said about it: once for all workers --- */

static void begin_waiting(struct through_port *p, const char *cause)
{
    struct through *t = p->t;
    pthread_mutex_lock(&t->mutex);
    bool first = !t->told;
    t->told = true;
    t->waiting += !p->waits;
    p->waits = true;
    snprintf(t->cause, sizeof t->cause, "%s", cause);
    pthread_mutex_unlock(&t->mutex);
    if (first) {
        log_warn("read-through waits: questions are answered without the old Redis", "cause=%s", log_quote_str(cause));
    }
}

static void end_waiting(struct through_port *p, bool tell)
{
    struct through *t = p->t;
    pthread_mutex_lock(&t->mutex);
    t->waiting -= p->waits;
    p->waits = false;
    bool last = t->told && t->waiting == 0;
    t->told = t->told && !last;
    pthread_mutex_unlock(&t->mutex);
    if (last && tell) {
        log_info("read-through goes on", "late=%" PRIu64 " failed=%" PRIu64 " skipped=%" PRIu64,
                 atomic_load(&t->counts[THROUGH_LATE]), atomic_load(&t->counts[THROUGH_FAILED]),
                 atomic_load(&t->counts[THROUGH_SKIPPED]));
    }
}

/* The next question is put to the old Redis. Whether it will be answered nobody knows, so the log doesn't say that it
 * goes on. */
static void stop_waiting(struct through_port *p)
{
    pthread_mutex_lock(&p->t->mutex);
    p->t->waiting -= p->waits;
    p->waits = false;
    pthread_mutex_unlock(&p->t->mutex);
}

void through_status(struct through *t, struct through_status *out)
{
    *out = (struct through_status){0};
    if (t == NULL) {
        return;
    }
    for (int i = 0; i < THROUGH_COUNTS; i++) {
        out->counts[i] = atomic_load_explicit(&t->counts[i], memory_order_relaxed);
    }
    if (!config_now(t->cfg)->legacy_read_through) {
        return;
    }
    pthread_mutex_lock(&t->mutex);
    out->doing = t->waiting > 0 ? THROUGH_WAITING : THROUGH_ON;
    snprintf(out->cause, sizeof out->cause, "%s", t->waiting > 0 ? t->cause : "");
    pthread_mutex_unlock(&t->mutex);
}

void through_figures_each(struct through *t, figure_visit *visit, void *arg)
{
    static const struct figure up = {"read_through_up", "read_through_up", FIGURE_GAUGE,
                                     "1 unless questions are answered without the old Redis, because it is away or "
                                     "too late."};
    struct through_status s;
    through_status(t, &s);
    for (int i = 0; i < THROUGH_COUNTS; i++) {
        visit(arg, &figures[i], s.counts[i]);
    }
    visit(arg, &up, s.doing != THROUGH_WAITING);
}

/* --- the list --- */

static void set_deadline(struct through_port *p);

/* The asking side goes on, and may ask again, here and now: the port is in order before. */
static void answer(struct through_port *p, struct entry *e, enum through_count how)
{
    struct through_question *q = e->asking.question;
    e->asking.question = NULL;
    if (how == THROUGH_LATE) {
        p->given_up++;
    }
    count(p->t, how, 1);
    q->done(q);
}

static void unlink_first(struct through_port *p)
{
    struct entry *e = p->first;
    p->first = e->next;
    if (p->first == NULL) {
        p->end = &p->first;
    }
}

/* All of its replies have come. */
static void end_first(struct through_port *p)
{
    struct entry *e = p->first;
    unlink_first(p);
    if (e->asking.question == NULL) {
        p->given_up--;
    } else if (e->asking.failed) {
        breaker_unknown(&p->breaker);
        answer(p, e, THROUGH_FAILED);
    } else {
        link_proved(p->link);
        if (breaker_good(&p->breaker)) {
            end_waiting(p, true);
        }
        answer(p, e, THROUGH_ANSWERED);
    }
    free(e);
}

/* No reply will come any more. */
static void end_all(struct through_port *p)
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
            answer(p, e, THROUGH_FAILED);
        }
        free(e);
    }
}

static void on_deadline(uv_timer_t *timer)
{
    struct through_port *p = timer->data;
    int64_t now = clock_stopwatch_us();
    struct entry *e = p->first;
    while (e != NULL && (e->asking.question == NULL || e->deadline_us <= now + EARLY_US)) {
        struct entry *next = e->next; /* what is asked meanwhile stands behind */
        if (e->asking.question != NULL) {
            breaker_late(&p->breaker, now);
            if (breaker_open(&p->breaker)) {
                begin_waiting(p, "it answers too late");
            }
            answer(p, e, THROUGH_LATE);
            next = e->next;
        }
        e = next;
    }
    set_deadline(p);
}

/* The first that still waits has the earliest deadline (unless legacy_timeout was just made shorter). The loop's
 * milliseconds begin anywhere within ours, so the timer is half of one early or late. */
static void set_deadline(struct through_port *p)
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
    struct through_port *p = owner;
    struct slice text;
    if (redis_is_error(reply, &text) && !legacy_refuses_key(text)) {
        link_fail(p->link, text);
    }
    if (asking_reply(&p->first->asking, reply)) {
        end_first(p);
        set_deadline(p);
    }
}

static void on_up(void *owner)
{
    struct through_port *p = owner;
    p->breaker = (struct breaker){0};
    end_waiting(p, true);
}

static void on_down(void *owner, const struct err *err)
{
    struct through_port *p = owner;
    begin_waiting(p, err->text);
    end_all(p);
    set_deadline(p);
}

/* --- asking --- */

bool through_wants(struct through_port *p, struct slice user)
{
    if (p == NULL || !config_now(p->t->cfg)->legacy_read_through) {
        return false;
    }
    const struct dedup *d = p->t->dedup;
    int64_t key = hash_user_key(d->seed, user);
    if (d->store->ops->noted(d->store, key) != NOTE_WAITING) {
        return false;
    }
    legacy_first(d->legacy, key, user);
    return true;
}

/* Whether the port's connection may be bothered with a question. */
static bool is_free(const struct through_port *p)
{
    return !p->closed && link_takes(p->link) && (!breaker_open(&p->breaker) || p->given_up == 0);
}

static bool may_ask(struct through_port *p)
{
    link_connect(p->link);
    return is_free(p) && breaker_allows(&p->breaker, clock_stopwatch_us());
}

static bool put_question(struct through_port *p, const struct asking *a, struct slice user, const struct slice *items)
{
    struct buf out = {0};
    asking_words(a, user, items, &out);
    if (out.failed || link_send(p->link, &out, a->n) < 0) {
        buf_free(&out);
        return false;
    }
    return true;
}

bool through_ask(struct through_port *p, struct through_question *q, struct slice user, const struct slice *items)
{
    struct through *t = p->t;
    struct entry *e = may_ask(p) ? calloc(1, sizeof *e) : NULL;
    if (e == NULL) {
        count(t, THROUGH_SKIPPED, 1);
        return false;
    }
    e->deadline_us = clock_stopwatch_us() + config_now(t->cfg)->legacy_timeout_ms * 1000;
    asking_begin(&e->asking, q, t->dedup, link_has_zmscore(p->link));
    if (!put_question(p, &e->asking, user, items)) {
        breaker_unknown(&p->breaker);
        count(t, THROUGH_SKIPPED, 1);
        free(e);
        return false;
    }
    *p->end = e;
    p->end = &e->next;
    count(t, THROUGH_ASKED, 1);
    if (!uv_is_active((uv_handle_t *)&p->deadline)) {
        set_deadline(p);
    }
    return true;
}

size_t through_hide(struct through_port *p, struct through_question *q, const uint64_t *hashes, uint8_t *unseen)
{
    size_t hidden = asking_hide(q, hashes, unseen);
    if (p != NULL && !q->counted) {
        q->counted = true;
        count(p->t, THROUGH_HIDDEN, hidden);
    }
    return hidden;
}

/* --- from outside --- */

int through_start(const struct dedup *dedup, struct through **through, struct err *err)
{
    *through = NULL;
    if (dedup->cfg->legacy_redis[0] == '\0') {
        return 0;
    }
    struct through *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    t->dedup = dedup;
    t->cfg = dedup->cfg;
    pthread_mutex_init(&t->mutex, NULL);
    *through = t;
    return 0;
}

void through_free(struct through *t)
{
    if (t != NULL) {
        pthread_mutex_destroy(&t->mutex);
        free(t);
    }
}

int through_port_new(struct through *t, struct through_port **port, struct err *err)
{
    static const struct link_ops ops = {on_up, on_reply, on_down};
    *port = NULL;
    struct through_port *p = t != NULL ? calloc(1, sizeof *p) : NULL;
    if (p == NULL) {
        return t == NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory");
    }
    p->t = t;
    p->end = &p->first;
    int rc = link_new(t->cfg, &ops, p, &p->link, err);
    if (rc < 0) {
        free(p);
        return rc;
    }
    *port = p;
    return 0;
}

void through_port_free(struct through_port *p)
{
    if (p != NULL) {
        link_free(p->link);
        free(p);
    }
}

void through_port_open(struct through_port *p, uv_loop_t *loop)
{
    if (p != NULL) {
        p->loop = loop;
        uv_timer_init(loop, &p->deadline);
        p->deadline.data = p;
        link_open(p->link, loop);
        through_port_tick(p);
    }
}

void through_port_close(struct through_port *p)
{
    if (p != NULL && p->loop != NULL && !p->closed) {
        p->closed = true;
        link_close(p->link);
        end_waiting(p, false);
        end_all(p);
        uv_close((uv_handle_t *)&p->deadline, NULL);
    }
}

void through_port_tick(struct through_port *p)
{
    if (p == NULL || p->closed) {
        return;
    }
    if (config_now(p->t->cfg)->legacy_read_through) {
        link_connect(p->link);
        if (p->waits && breaker_open(&p->breaker) && is_free(p) && !breaker_pauses(&p->breaker, clock_stopwatch_us())) {
            stop_waiting(p);
        }
    } else if (p->first == NULL) {
        link_shut(p->link);
        end_waiting(p, false);
        p->breaker = (struct breaker){0};
    }
}
