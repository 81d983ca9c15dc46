/* A port's questions stand in a list in the order in which they were sent, which is that of the replies: first
 * ZREVRANGE's, then ZMSCORE's, each about some hundred candidates, or, from a Redis that has no ZMSCORE, ZSCORE's, each
 * about one. A question that gets all of its replies, or whose time is over, leaves the list's entry behind: the entry
 * stays, without a question, until its replies have come, and they are thrown away.
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

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "legacy/breaker.h"
#include "legacy/legacy.h"
#include "legacy/link.h"
#include "legacy/parse.h"
#include "legacy/redis.h"

enum { CHUNK = 500, EARLY_US = 500, TABLE = 256 };

struct through {
    const struct dedup *dedup;
    const struct config *cfg;
    struct store *store;
    _Atomic uint64_t counts[THROUGH_COUNTS];
    pthread_mutex_t mutex; /* guards: */
    int waiting;           /* ports */
    char cause[320];       /* of the one that began to wait last */
};

/* A question on its way. */
struct asking {
    struct asking *next;
    struct through_question *question; /* NULL: answered, late */
    struct legacy_times plays, deliveries;
    int64_t deadline_us;
    size_t n;       /* replies that are due */
    size_t left;    /* candidates without one */
    size_t at;      /* the next of these */
    size_t chunk;   /* candidates of a reply */
    bool delivered; /* the next reply is that of ZREVRANGE */
    bool single;    /* ZSCORE's */
    bool failed;
};

struct through_port {
    struct through *t;
    struct link *link;
    uv_timer_t deadline;
    uv_loop_t *loop; /* NULL: not open */
    bool closed;
    struct breaker breaker;
    struct asking *first, **end;
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
    bool first = !p->waits && t->waiting++ == 0;
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
    bool last = p->waits && --t->waiting == 0;
    p->waits = false;
    pthread_mutex_unlock(&t->mutex);
    if (last && tell) {
        log_info("read-through goes on", "late=%" PRIu64 " failed=%" PRIu64 " skipped=%" PRIu64,
                 atomic_load(&t->counts[THROUGH_LATE]), atomic_load(&t->counts[THROUGH_FAILED]),
                 atomic_load(&t->counts[THROUGH_SKIPPED]));
    }
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
static void answer(struct through_port *p, struct asking *a, enum through_count how)
{
    struct through_question *q = a->question;
    a->question = NULL;
    if (how == THROUGH_LATE) {
        p->given_up++;
    }
    count(p->t, how, 1);
    q->done(q);
}

static void unlink_first(struct through_port *p)
{
    struct asking *a = p->first;
    p->first = a->next;
    if (p->first == NULL) {
        p->end = &p->first;
    }
}

/* All of its replies have come. */
static void end_first(struct through_port *p)
{
    struct asking *a = p->first;
    unlink_first(p);
    if (a->question == NULL) {
        p->given_up--;
    } else if (a->failed) {
        breaker_unknown(&p->breaker);
        answer(p, a, THROUGH_FAILED);
    } else {
        link_proved(p->link);
        if (breaker_good(&p->breaker)) {
            end_waiting(p, true);
        }
        answer(p, a, THROUGH_ANSWERED);
    }
    free(a);
}

/* No reply will come any more. */
static void end_all(struct through_port *p)
{
    struct asking *all = p->first;
    p->first = NULL;
    p->end = &p->first;
    p->given_up = 0;
    breaker_unknown(&p->breaker);
    while (all != NULL) {
        struct asking *a = all;
        all = a->next;
        if (a->question != NULL) {
            answer(p, a, THROUGH_FAILED);
        }
        free(a);
    }
}

static void on_deadline(uv_timer_t *timer)
{
    struct through_port *p = timer->data;
    int64_t now = clock_stopwatch_us();
    struct asking *a = p->first;
    while (a != NULL && (a->question == NULL || a->deadline_us <= now + EARLY_US)) {
        struct asking *next = a->next; /* what is asked meanwhile stands behind */
        if (a->question != NULL) {
            if (breaker_late(&p->breaker, now)) {
                begin_waiting(p, "it answers too late");
            }
            answer(p, a, THROUGH_LATE);
            next = a->next;
        }
        a = next;
    }
    set_deadline(p);
}

/* The first that still waits has the earliest deadline (unless legacy_timeout was just made shorter). The loop's
 * milliseconds begin anywhere within ours, so the timer is half of one early or late. */
static void set_deadline(struct through_port *p)
{
    const struct asking *a = p->first;
    while (a != NULL && a->question == NULL) {
        a = a->next;
    }
    if (a == NULL) {
        uv_timer_stop(&p->deadline);
        return;
    }
    int64_t left = a->deadline_us - clock_stopwatch_us() - EARLY_US;
    uv_update_time(p->loop);
    uv_timer_start(&p->deadline, on_deadline, left > 0 ? (uint64_t)(left + 999) / 1000 : 0, 0);
}

/* --- replies --- */

static bool is_set(const uint8_t *bits, size_t i)
{
    return (bits[i / 8] & (0x80 >> i % 8)) != 0;
}

static size_t next_asked(const struct through_question *q, size_t i)
{
    while (i < q->n && !is_set(q->asked, i)) {
        i += i % 8 == 0 && q->asked[i / 8] == 0 ? 8 : 1;
    }
    return i < q->n ? i : q->n;
}

static void take_score(struct asking *a, const struct redisReply *reply)
{
    struct through_question *q = a->question;
    struct slice score;
    int64_t at_ms;
    char why[LEGACY_WHY];
    if (redis_text(reply, &score) && legacy_time_parse(&a->plays, score, &at_ms, why) == LEGACY_TIME_GOOD) {
        q->seen[a->at / 8] |= (uint8_t)(0x80 >> a->at % 8);
    }
    a->at = next_asked(q, a->at + 1);
}

static void take_scores(struct asking *a, const struct redisReply *reply)
{
    size_t n = a->left < a->chunk ? a->left : a->chunk;
    a->left -= n;
    if (a->question == NULL) {
        return;
    }
    if (a->single) {
        take_score(a, reply);
    } else if (redis_count(reply) == n) {
        for (size_t i = 0; i < n; i++) {
            take_score(a, redis_item(reply, i));
        }
    } else {
        a->failed = true;
    }
}

/* Members and scores in turn, newest first. */
static void take_delivered(struct through_port *p, struct asking *a, const struct redisReply *reply)
{
    struct through_question *q = a->question;
    for (size_t i = 0; q != NULL && i + 1 < redis_count(reply) && q->n_delivered < THROUGH_DELIVERED; i += 2) {
        struct slice member, score;
        int64_t at_ms;
        char why[LEGACY_WHY];
        if (redis_text(redis_item(reply, i), &member) && redis_text(redis_item(reply, i + 1), &score) &&
            legacy_time_parse(&a->deliveries, score, &at_ms, why) == LEGACY_TIME_GOOD) {
            q->delivered[q->n_delivered++] = hash_id(p->t->dedup->seed, member);
        }
    }
}

static void on_reply(void *owner, const struct redisReply *reply)
{
    struct through_port *p = owner;
    struct asking *a = p->first;
    struct slice text;
    bool delivered = a->delivered, bad = redis_is_error(reply, &text);
    a->delivered = false;
    a->n--;
    if (bad && !legacy_refuses_key(text)) {
        link_fail(p->link, text);
    }
    a->failed = a->failed || bad;
    if (delivered) {
        take_delivered(p, a, reply);
    } else {
        take_scores(a, reply);
    }
    if (a->n == 0) {
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

static size_t count_bits(const uint8_t *bits, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < (n + 7) / 8; i++) {
        sum += (size_t)__builtin_popcount(bits[i]);
    }
    return sum;
}

static void add_scores(const struct through_port *p, struct buf *out, const struct asking *a, struct slice user,
                       const struct slice *items)
{
    const struct through_question *q = a->question;
    char key_text[LEGACY_KEY_MAX];
    struct slice key = legacy_key_make(p->t->cfg->legacy_played_key, user, key_text);
    size_t left = a->left, i = next_asked(q, 0);
    while (left > 0) {
        size_t n = left < a->chunk ? left : a->chunk;
        link_add_count(out, 2 + n);
        link_add_word(out, slice_str(a->single ? "ZSCORE" : "ZMSCORE"));
        link_add_word(out, key);
        for (left -= n; n > 0; n--, i = next_asked(q, i + 1)) {
            link_add_word(out, items[i]);
        }
    }
}

static void add_delivered(const struct through_port *p, struct buf *out, struct slice user)
{
    char key[LEGACY_KEY_MAX], last[24];
    int64_t most = config_now(p->t->cfg)->delivered_max;
    snprintf(last, sizeof last, "%" PRId64, (most < THROUGH_DELIVERED ? most : THROUGH_DELIVERED) - 1);
    link_add_count(out, 5);
    link_add_word(out, slice_str("ZREVRANGE"));
    link_add_word(out, legacy_key_make(p->t->cfg->legacy_delivered_key, user, key));
    link_add_word(out, slice_str("0"));
    link_add_word(out, slice_str(last));
    link_add_word(out, slice_str("WITHSCORES"));
}

static void set_times(const struct through *t, const struct config *live, struct asking *a)
{
    int64_t later, earlier;
    t->store->ops->now(t->store, &later, &earlier);
    legacy_times_now(live, later, earlier, &a->plays, &a->deliveries);
    int64_t window = month_start_ms(month_of_ms(earlier) - (int)live->window);
    a->plays.oldest_ms = a->plays.oldest_ms > window ? a->plays.oldest_ms : window;
}

/* Whether the port's connection may be bothered with a question. */
static bool may_ask(struct through_port *p)
{
    link_connect(p->link);
    if (p->closed || !link_takes(p->link) || (breaker_open(&p->breaker) && p->given_up > 0)) {
        return false;
    }
    return breaker_allows(&p->breaker, clock_stopwatch_us());
}

static bool put_question(struct through_port *p, struct asking *a, struct slice user, const struct slice *items)
{
    struct buf out = {0};
    if (a->delivered) {
        add_delivered(p, &out, user);
    }
    add_scores(p, &out, a, user, items);
    if (out.failed || link_send(p->link, &out, a->n) < 0) {
        buf_free(&out);
        return false;
    }
    return true;
}

bool through_ask(struct through_port *p, struct through_question *q, struct slice user, const struct slice *items)
{
    struct through *t = p->t;
    struct asking *a = may_ask(p) ? calloc(1, sizeof *a) : NULL;
    if (a == NULL) {
        count(t, THROUGH_SKIPPED, 1);
        return false;
    }
    const struct config *live = config_now(t->cfg);
    a->question = q;
    a->single = !link_has_zmscore(p->link);
    a->chunk = a->single ? 1 : CHUNK;
    a->left = count_bits(q->asked, q->n);
    a->at = next_asked(q, 0);
    a->delivered = t->cfg->legacy_delivered_key[0] != '\0';
    a->n = (a->left + a->chunk - 1) / a->chunk + a->delivered;
    a->deadline_us = clock_stopwatch_us() + live->legacy_timeout_ms * 1000;
    set_times(t, live, a);
    q->n_delivered = 0;
    if (!put_question(p, a, user, items)) {
        breaker_unknown(&p->breaker);
        count(t, THROUGH_SKIPPED, 1);
        free(a);
        return false;
    }
    *p->end = a;
    p->end = &a->next;
    count(t, THROUGH_ASKED, 1);
    if (!uv_is_active((uv_handle_t *)&p->deadline)) {
        set_deadline(p);
    }
    return true;
}

/* The few deliveries in a small table by their hash, since there may be thousands of candidates. */
static void fill_table(const struct through_question *q, uint64_t table[TABLE])
{
    memset(table, 0, TABLE * sizeof *table);
    for (size_t i = 0; i < q->n_delivered; i++) {
        size_t at = q->delivered[i] % TABLE;
        while (table[at] != 0) {
            at = (at + 1) % TABLE;
        }
        table[at] = q->delivered[i];
    }
}

static bool in_table(const uint64_t table[TABLE], uint64_t hash)
{
    size_t at = hash % TABLE;
    while (table[at] != 0 && table[at] != hash) {
        at = (at + 1) % TABLE;
    }
    return table[at] != 0;
}

size_t through_hide(struct through_port *p, struct through_question *q, const uint64_t *hashes, uint8_t *unseen)
{
    uint64_t table[TABLE];
    size_t hidden = 0;
    fill_table(q, table);
    for (size_t i = next_asked(q, 0); i < q->n; i = next_asked(q, i + 1)) {
        if (is_set(unseen, i) && (is_set(q->seen, i) || (q->n_delivered > 0 && in_table(table, hashes[i])))) {
            unseen[i / 8] &= (uint8_t) ~(0x80 >> i % 8);
            hidden++;
        }
    }
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
    t->store = dedup->store;
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
    } else if (p->first == NULL) {
        link_shut(p->link);
        end_waiting(p, false);
        p->breaker = (struct breaker){0};
    }
}
