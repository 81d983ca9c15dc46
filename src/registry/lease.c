/* The thread goes round: what lease_state.h wants to know is asked, and writes are held or let go as it says. No
 * request lasts beyond the moment when they must be held, and no rest does. */
#include "registry/lease.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/task.h"
#include "config/lock.h"
#include "registry/agent.h"
#include "registry/lock.h"
#include "registry/lock_place.h"

enum {
    CALL_MS = 3000,
    CALL_OF_SEVERAL_MS = 1000, /* two of them may be silent before the lease is over */
    REST_MS = 50,              /* the role, and what is to be recorded, are looked at so often */
};

struct lease {
    const struct config *cfg;
    struct lease_hooks hooks;
    struct lock_place place;
    struct agent *agent;
    struct task task;

    /* The thread's. */
    struct lease_state state;
    struct lease_self self;
    struct buf reply;
    char trouble[LEASE_TEXT]; /* of the last request; "": there was an answer */
    char told[LEASE_TEXT];    /* the cause in the log */
    char line[LEASE_TEXT];    /* the last that was logged */
    bool was_held;

    pthread_mutex_t mutex; /* guards: */
    pthread_cond_t changed;
    bool step_known; /* ack.h has said who is in step, since this node is primary */
    struct lease_names step;
    uint64_t step_version; /* of what was said last, and of what the key was last looked at for */
    uint64_t step_seen;
    bool recorded;
    struct lease_status status;
};

/* --- what is known of this node --- */

static void look(struct lease *l)
{
    struct lease_self *self = &l->self;
    *self = (struct lease_self){.address = "", .named = l->state.value.node};
    l->hooks.look(l->hooks.arg, self);
    lease_look_back(&l->state, self);
    pthread_mutex_lock(&l->mutex);
    const struct lease_value *v = &l->state.value;
    bool was = lease_is_own(&l->state, self) && v->in_step;
    uint64_t seq = self->names.seq;
    l->step_known = l->step_known && self->primary;
    self->in_step = l->step_known ? l->step.n > 0 : was;
    self->names = l->step_known ? l->step : was ? v->names : (struct lease_names){.given = true};
    self->names.seq = l->step_known ? seq : self->names.seq;
    l->step_seen = l->step_version;
    pthread_mutex_unlock(&l->mutex);
}

/* A line of the log. */
static const char *said(struct lease *l, const char *text)
{
    lock_cause(l->place.kind, text, l->line, sizeof l->line);
    return l->line;
}

/* Writes are held or let go, and those who look or wait are told. */
static void publish(struct lease *l)
{
    struct lease_state *s = &l->state;
    int64_t now = clock_mono_ms();
    bool held = lease_may_write(s, now);
    char cause[LEASE_TEXT];
    char why[LEASE_TEXT];
    lock_cause(l->place.kind,
               s->why != NULL             ? s->why
               : held || !l->self.primary ? ""
                                          : "no lock in @",
               why, sizeof why);
    snprintf(cause, sizeof cause, "%.100s%s%.200s", why, l->trouble[0] != '\0' ? ": " : "", l->trouble);
    if (l->hooks.until != NULL && held) {
        l->hooks.until(l->hooks.arg, s->until_ms);
    }
    if (held != l->was_held || (!held && l->self.primary && strcmp(cause, l->told) != 0)) {
        l->hooks.hold(l->hooks.arg, held ? NULL : cause);
    }
    if (held && !l->was_held) {
        log_info(said(l, "the lock in @ is held"), "term=%" PRIu64, s->value.term);
    } else if (!held && l->was_held) {
        log_error(said(l, "the lock in @ ends: no writes are taken"), "cause=%s", log_quote_str(cause));
    } else if (cause[0] != '\0' && strcmp(cause, l->told) != 0) {
        log_warn("failover waits", "cause=%s", log_quote_str(cause));
    }
    snprintf(l->told, sizeof l->told, "%s", cause);

    pthread_mutex_lock(&l->mutex);
    l->status.lost += l->was_held && !held;
    l->status.held = held;
    l->status.left_ms = held ? s->until_ms - now : 0;
    l->status.in_step = s->readable && s->value.in_step;
    l->status.term = s->readable ? s->value.term : 0;
    snprintf(l->status.cause, sizeof l->status.cause, "%s", cause);
    /* What was asked before something else was to be recorded says nothing of that. */
    l->recorded = held && l->step_known && l->step_seen == l->step_version && lease_is_recorded(s, &l->self);
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->mutex);
    l->was_held = held;
}

/* --- one step --- */

/* While this node takes writes, it must be able to hold them in time. */
static int64_t at_most(const struct lease *l, int64_t ms)
{
    int64_t left = l->state.until_ms - clock_mono_ms();
    return l->was_held && left < ms ? (left > 0 ? left : 1) : ms;
}

/* One request of HTTP to the server of the lock. */
static int call(struct lease *l, const struct lock_request *made, const char *secret, int64_t ms, long *status,
                struct err *err)
{
    const struct agent_request request = {.url = l->place.urls[l->place.at],
                                          .method = made->method,
                                          .path = made->path,
                                          .type = made->type,
                                          .body = made->body,
                                          .header = l->place.kind->header,
                                          .secret = secret,
                                          .ms = ms};
    return agent_call(l->agent, &request, status, &l->reply, err);
}

static int log_in(struct lease *l, int64_t ms, struct err *err)
{
    struct lock_place *p = &l->place;
    struct lock_request made;
    long status;
    int rc = lock_login(p->kind, l->cfg->lock_user, config_now(l->cfg)->lock_password, &made, err);
    rc = rc < 0 ? rc : call(l, &made, "", ms, &status, err);
    rc = rc < 0 ? rc : lock_take_login(p->kind, status, buf_slice(&l->reply), p->secret, err);
    p->logged_in = rc == 0;
    if (made.body != NULL) {
        explicit_bzero(made.body, strlen(made.body));
    }
    free(made.body);
    return rc;
}

/* Both requests, if there are two, end within ms. */
static void put_question(struct lease *l, int64_t ms, struct lease_answer *answer, struct err *err)
{
    struct lock_place *p = &l->place;
    struct lock_request made = {.body = NULL};
    int64_t until_us = clock_real_us() + ms * 1000;
    long status;
    int rc = lock_place_refresh(p, err);
    if (rc == 0 && lock_place_needs_login(p)) {
        rc = log_in(l, ms, err);
        ms = (until_us - clock_real_us()) / 1000;
    }
    rc = rc < 0 ? rc : lock_request(p->kind, &l->state, &l->self, &p->group, &made, err);
    rc = rc < 0 ? rc : call(l, &made, p->secret, ms > 1 ? ms : 1, &status, err);
    if (rc == 0) {
        lock_reply(p->kind, &l->state, status, buf_slice(&l->reply), answer, err);
    }
    free(made.body);
}

static void ask(struct lease *l, int64_t ms, struct lease_answer *answer)
{
    struct err err = {0};
    *answer = (struct lease_answer){.said = LEASE_LOST};
    put_question(l, ms, answer, &err);
    snprintf(l->trouble, sizeof l->trouble, "%s", answer->said == LEASE_LOST ? err.text : "");
    if (answer->said == LEASE_LOST) {
        lock_place_failed(&l->place);
    }
}

static void promote(struct lease *l, struct lease_answer *answer)
{
    struct err err = {0};
    uint64_t term = l->state.wanted.next;
    log_warn(said(l, "promoting this node: the primary's lock in @ is this node's now"), "term=%" PRIu64, term);
    heartbeat_excuse(&l->task.heartbeat);
    int rc = l->hooks.promote(l->hooks.arg, term, &err);
    heartbeat_now(&l->task.heartbeat);
    *answer = (struct lease_answer){.said = rc == 0 ? LEASE_YES : LEASE_NO};
    snprintf(l->trouble, sizeof l->trouble, "%s", rc == 0 ? "" : err.text);
}

static void count(struct lease *l, enum lease_said said, bool promoted)
{
    pthread_mutex_lock(&l->mutex);
    l->status.asked++;
    l->status.errors += said == LEASE_LOST;
    l->status.promotions += promoted && said == LEASE_YES;
    pthread_mutex_unlock(&l->mutex);
}

static void step(struct lease *l)
{
    struct lease_state *s = &l->state;
    struct lease_answer answer;
    look(l);
    enum lease_ask what = lease_next(s, &l->self, clock_mono_ms());
    publish(l);
    if (what == LEASE_REST) {
        agent_rest(l->agent, at_most(l, s->wait_ms < REST_MS ? s->wait_ms + 1 : REST_MS));
        return;
    }
    if (what == LEASE_PROMOTE) {
        promote(l, &answer);
    } else {
        ask(l, at_most(l, l->place.n > 1 ? CALL_OF_SEVERAL_MS : CALL_MS) + (what == LEASE_READ ? s->wait_ms : 0),
            &answer);
    }
    count(l, answer.said, what == LEASE_PROMOTE);
    lease_answered(s, &l->self, &answer, clock_mono_ms());
    publish(l);
    if (what == LEASE_READ && l->self.primary && l->hooks.met != NULL && lease_is_overruled(s, &l->self)) {
        l->hooks.met(l->hooks.arg, s->value.term, s->value.node, s->value.address);
    }
}

static enum lease_said ask_last(struct lease *l, enum lease_ask what, struct lease_session *session, int64_t ms)
{
    struct lease_answer answer;
    l->state.asked = what;
    l->state.session = session;
    ask(l, ms, &answer);
    return answer.said;
}

/* So no node has to wait for a session to end. */
static void leave(struct lease *l)
{
    struct lease_state *s = &l->state;
    struct lease_session *sessions[] = {&s->lock, &s->entry};
    int64_t until_us = clock_real_us() + LEASE_STOP_MS * INT64_C(1000);
    bool has_lock = lease_has_lock(s);
    l->hooks.hold(l->hooks.arg, "this node stops");
    agent_resume(l->agent);
    if (has_lock) {
        enum lease_said free =
            ask_last(l, LEASE_RELEASE, &s->lock, at_most(l, l->place.n > 1 ? CALL_OF_SEVERAL_MS : CALL_MS));
        log_info(said(l, free == LEASE_YES ? "the lock in @ is free" : "the lock in @ ends by itself"), "");
    }
    for (int i = l->place.kind->promises.session ? 0 : 1; i < 2; i++) {
        int64_t left = (until_us - clock_real_us()) / 1000;
        if (sessions[i]->id[0] != '\0' && left > 0) {
            ask_last(l, LEASE_END, sessions[i], left);
        }
    }
}

static void lease_main(void *arg)
{
    struct lease *l = arg;
    while (!agent_interrupted(l->agent)) {
        heartbeat_now(&l->task.heartbeat);
        step(l);
    }
    leave(l);
}

/* --- from outside --- */

/* What holds the lock for this process alone, where there are no sessions. */
static int name_itself(struct lease *l, struct err *err)
{
    uint64_t chance;
    char own[LEASE_SESSION];
    if (getrandom(&chance, sizeof chance, 0) != sizeof chance) {
        return err_set(err, ERR_SYSTEM, "no random number for the lock: %s", strerror(errno));
    }
    l->hooks.look(l->hooks.arg, &l->self);
    snprintf(own, sizeof own, "%016" PRIx64 "-%016" PRIx64, l->self.node, chance);
    lease_state_begin(&l->state, (enum config_failover)l->cfg->replica_failover, &l->place.kind->promises, own);
    return 0;
}

int lease_new(const struct config *cfg, const struct lease_hooks *hooks, struct lease **lease, struct err *err)
{
    *lease = NULL;
    if (cfg->replica_failover == FAILOVER_NO || !config_has_lock(cfg)) {
        return 0;
    }
    struct lease *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for failover");
    }
    l->cfg = cfg;
    l->hooks = *hooks;
    l->status.on = true;
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->changed, NULL);
    task_init(&l->task, &l->mutex);
    int rc = lock_place_init(cfg, &l->place, err);
    rc = rc < 0 ? rc : name_itself(l, err);
    rc = rc < 0 ? rc : agent_new(&l->place.tls, &l->task.heartbeat, &l->agent, err);
    if (rc < 0) {
        lease_free(l);
        return rc;
    }
    l->status.by = l->place.kind->id;
    lock_cause(l->place.kind, l->state.why, l->told, sizeof l->told); /* nothing to tell of yet */
    l->hooks.hold(l->hooks.arg, l->told);
    *lease = l;
    return 0;
}

int lease_start(struct lease *l, struct err *err)
{
    return l == NULL ? 0 : task_start(&l->task, "lease", TASK_BEATS, lease_main, l, err);
}

void lease_stop(struct lease *l)
{
    if (l != NULL) {
        task_ask_stop(&l->task);
        pthread_mutex_lock(&l->mutex);
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->mutex);
        agent_interrupt(l->agent);
        task_stop(&l->task);
    }
}

void lease_free(struct lease *l)
{
    if (l != NULL) {
        agent_free(l->agent);
        explicit_bzero(l->place.secret, sizeof l->place.secret);
        buf_free(&l->reply);
        task_destroy(&l->task);
        pthread_cond_destroy(&l->changed);
        pthread_mutex_destroy(&l->mutex);
        free(l);
    }
}

bool lease_record(void *lease, const uint64_t *nodes, int n)
{
    struct lease *l = lease;
    int64_t until_us = clock_real_us() + LEASE_ALONE_MS * INT64_C(1000);
    pthread_mutex_lock(&l->mutex);
    l->step_known = true;
    l->step = (struct lease_names){.given = true, .n = n < LEASE_RIVALS_MAX ? n : LEASE_RIVALS_MAX};
    for (int i = 0; i < l->step.n; i++) {
        l->step.nodes[i] = nodes[i];
    }
    l->step_version++;
    l->recorded = false;
    int64_t left_us;
    while (!l->recorded && !task_stops(&l->task) && (left_us = until_us - clock_real_us()) > 0) {
        clock_cond_wait_real_us(&l->changed, &l->mutex, left_us);
    }
    bool recorded = l->recorded;
    pthread_mutex_unlock(&l->mutex);
    return recorded;
}

void lease_look(struct lease *l, struct lease_status *out)
{
    *out = (struct lease_status){.on = false};
    if (l != NULL) {
        pthread_mutex_lock(&l->mutex);
        *out = l->status;
        pthread_mutex_unlock(&l->mutex);
    }
}

void lease_figures_each(struct lease *l, figure_visit *visit, void *arg)
{
    struct lease_status s;
    if (l == NULL) {
        return;
    }
    lease_look(l, &s);
    const struct {
        struct figure figure;
        uint64_t value;
    } figures[] = {
        {{"failover_lock", "failover_lock", FIGURE_GAUGE, "1 while this node holds the primary's lock."}, s.held},
        {{"failover_in_step", "failover_in_step", FIGURE_GAUGE,
          "1 while the lock says that a replica has all that was acknowledged."},
         s.in_step},
        {{"failover_lost", "failover_lost_total", FIGURE_COUNTER,
          "Times that writes were held since the lock could not be renewed."},
         s.lost},
        {{"failover_promotions", "failover_promotions_total", FIGURE_COUNTER,
          "Times that this node has promoted itself."},
         s.promotions},
        {{"failover_errors", "failover_errors_total", FIGURE_COUNTER,
          "Requests for failover that the lock's server has not answered."},
         s.errors},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        visit(arg, &figures[i].figure, figures[i].value);
    }
}
