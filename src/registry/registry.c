/* The thread goes round: what is not registered is registered, and what is has its check updated (or is looked for,
 * when the agent asks the server itself). A round follows when PASS_MS have passed, or the server's health has changed.
 *
 * What can go wrong. The agent is away or refuses: the round is tried again after delays that grow to LAST_DELAY_MS;
 * said in the log when it begins and when it ends. The agent was restarted without its state, or an operator
 * deregistered the service: it doesn't know the check (404), and all is registered again. The server dies: its TTL runs
 * out, and Consul drops the entries later. At a stop nothing waits for an answer that was asked for before: it is
 * interrupted, and then all that may be registered is deregistered within REGISTRY_STOP_MS.
 */
#include "registry/registry.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/task.h"
#include "registry/agent.h"
#include "registry/consul.h"

enum {
    SERVICES_MAX = 64,
    PASS_MS = CONSUL_TTL_S * 1000 / 3,
    LOOK_MS = 1000, /* at the server's health */
    CALL_MS = 3000,
    FIRST_DELAY_MS = 250,
    LAST_DELAY_MS = 10 * 1000,
    HTTP_OK = 200,
    HTTP_NOT_FOUND = 404,
    REPLY_SHOWN = 120,
    PATH_TEXT = CONSUL_ID + 64,
};

struct entry {
    struct consul_service service;
    bool tried;      /* it may be registered, */
    bool registered; /* and it is */
};

struct registry {
    const struct config *cfg;
    registry_look_fn *look;
    struct registry_self self; /* as it was looked at last */
    void *arg;
    struct agent *agent;
    struct task task;
    uint32_t seed_fingerprint;

    /* The thread's. */
    struct entry entries[SERVICES_MAX];
    int n;
    bool right_datacenter; /* it was asked for */
    struct buf reply;
    int64_t delay_ms;

    pthread_mutex_t mutex; /* guards: */
    struct registry_status status;
};

const char *registry_doing_name(enum registry_doing doing)
{
    static const char *const names[] = {"off", "waiting", "registered"};
    return names[doing];
}

/* --- requests --- */

/* 0, or an error; *known, if not NULL: whether the agent knew of what the path names, else that is an error too. */
static int ask(struct registry *r, const char *method, const char *path, const char *body, int64_t ms, bool *known,
               struct err *err)
{
    long status;
    const struct agent_request request = {.url = r->cfg->registry_consul,
                                          .method = method,
                                          .type = "application/json",
                                          .path = path,
                                          .body = body,
                                          .header = "X-Consul-Token: ",
                                          .secret = config_now(r->cfg)->registry_token,
                                          .ms = ms};
    int rc = agent_call(r->agent, &request, &status, &r->reply, err);
    if (rc < 0) {
        return rc;
    }
    if (known != NULL) {
        *known = status != HTTP_NOT_FOUND;
    }
    if (status == HTTP_OK || (known != NULL && !*known)) {
        return 0;
    }
    struct slice said = buf_slice(&r->reply);
    said.len = said.len < REPLY_SHOWN ? said.len : REPLY_SHOWN;
    return err_set(err, ERR_INVALID, "%s: %s %.*s: status %ld: %s", r->cfg->registry_consul, method,
                   (int)strcspn(path, "?"), path, status, log_quote(said));
}

static int check_datacenter(struct registry *r, struct err *err)
{
    if (r->cfg->registry_datacenter[0] == '\0' || r->right_datacenter) {
        return 0;
    }
    int rc = ask(r, "GET", "/v1/agent/self", NULL, CALL_MS, NULL, err);
    if (rc < 0) {
        return rc;
    }
    json_t *self = json_loadb(r->reply.data, r->reply.len, 0, NULL);
    const char *name = "";
    json_unpack(self, "{s:{s:s}}", "Config", "Datacenter", &name);
    r->right_datacenter = strcmp(name, r->cfg->registry_datacenter) == 0;
    if (!r->right_datacenter) {
        rc = err_set(err, ERR_INVALID, "%s: the agent belongs to the datacenter %s, expected %s",
                     r->cfg->registry_consul, log_quote_str(name), r->cfg->registry_datacenter);
    }
    json_decref(self);
    return rc;
}

static void count(struct registry *r, bool registered)
{
    uint64_t n = 0;
    for (int i = 0; i < r->n; i++) {
        n += r->entries[i].registered;
    }
    pthread_mutex_lock(&r->mutex);
    r->status.services = n;
    r->status.registrations += registered;
    pthread_mutex_unlock(&r->mutex);
}

/* Whom a gRPC check asks. */
static const struct consul_service *asked(const struct registry *r)
{
    for (int i = 0; i < r->n && r->cfg->registry_check == REGISTRY_CHECK_GRPC; i++) {
        if (r->entries[i].service.edge == CONSUL_GRPC) {
            return &r->entries[i].service;
        }
    }
    return NULL;
}

static int enter(struct registry *r, struct entry *e, struct err *err)
{
    int rc = check_datacenter(r, err);
    if (rc < 0) {
        return rc;
    }
    char *body = consul_registration(r->cfg, &e->service, asked(r), r->seed_fingerprint, r->self.role);
    if (body == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for a request to Consul");
    }
    e->tried = true;
    rc = ask(r, "PUT", "/v1/agent/service/register?replace-existing-checks=true", body, CALL_MS, NULL, err);
    free(body);
    if (rc == 0) {
        e->registered = true;
        count(r, true);
        log_info("registered", "service=%s", log_quote_str(e->service.id));
    }
    return rc;
}

/* Tells how the server is, or sees whether the agent still knows of it. */
static int refresh(struct registry *r, struct entry *e, const char *update, struct err *err)
{
    char path[PATH_TEXT];
    bool known = true;
    int rc;
    if (r->cfg->registry_check == REGISTRY_CHECK_TTL) {
        snprintf(path, sizeof path, "/v1/agent/check/update/service:%s", e->service.id);
        rc = ask(r, "PUT", path, update, CALL_MS, &known, err);
    } else {
        snprintf(path, sizeof path, "/v1/agent/service/%s", e->service.id);
        rc = ask(r, "GET", path, NULL, CALL_MS, &known, err);
    }
    if (rc == 0 && !known) {
        e->registered = false;
        r->right_datacenter = false;
        count(r, false);
        rc = err_set(err, ERR_ABSENT, "%s: the agent no longer knows %s", r->cfg->registry_consul, e->service.id);
    }
    return rc;
}

static int keep(struct registry *r, struct entry *e, const char *update, struct err *err)
{
    int rc = e->registered ? refresh(r, e, update, err) : ERR_ABSENT;
    if (rc == ERR_ABSENT) {
        rc = enter(r, e, err);
        rc = rc < 0 ? rc : refresh(r, e, update, err);
    }
    return rc;
}

/* A role is part of the entry, which then is made again. */
static void look_at_self(struct registry *r)
{
    const char *role = r->self.role;
    r->look(r->arg, &r->self);
    for (int i = 0; i < r->n && role != NULL && strcmp(role, r->self.role) != 0; i++) {
        r->entries[i].registered = false;
    }
}

static int keep_all(struct registry *r, struct err *err)
{
    char *update = consul_check_update(r->self.well, r->self.cause);
    int rc = update != NULL ? 0 : err_set(err, ERR_NOMEM, "out of memory for a request to Consul");
    for (int i = 0; rc == 0 && i < r->n; i++) {
        rc = keep(r, &r->entries[i], update, err);
    }
    free(update);
    return rc;
}

/* --- the thread --- */

static void tell(struct registry *r, const struct err *err)
{
    bool good = err->code == 0;
    pthread_mutex_lock(&r->mutex);
    bool changed = (r->status.doing == REGISTRY_REGISTERED) != good || (!good && r->status.errors == 0);
    r->status.doing = good ? REGISTRY_REGISTERED : REGISTRY_WAITING;
    r->status.errors += !good;
    snprintf(r->status.cause, sizeof r->status.cause, "%s", good ? "" : err->text);
    pthread_mutex_unlock(&r->mutex);
    if (changed && good) {
        log_info("the registry knows this server", "services=%d", r->n);
    } else if (changed) {
        log_warn("the registry is tried again", "cause=%s", log_quote_str(err->text));
    }
}

/* Until the next round is due. */
static void rest(struct registry *r)
{
    struct registry_self now;
    for (int ms = 0; ms < PASS_MS && !agent_interrupted(r->agent); ms += LOOK_MS) {
        agent_rest(r->agent, LOOK_MS);
        r->look(r->arg, &now);
        if (now.well != r->self.well || strcmp(now.role, r->self.role) != 0) {
            return;
        }
    }
}

static void leave_all(struct registry *r)
{
    int64_t until_us = clock_real_us() + REGISTRY_STOP_MS * INT64_C(1000);
    agent_resume(r->agent);
    for (int i = 0; i < r->n; i++) {
        struct entry *e = &r->entries[i];
        struct err err = {0};
        char path[PATH_TEXT];
        bool known;
        int64_t left = (until_us - clock_real_us()) / 1000;
        snprintf(path, sizeof path, "/v1/agent/service/deregister/%s", e->service.id);
        if (!e->tried) {
            continue;
        }
        e->registered = false;
        if (ask(r, "PUT", path, NULL, left > 0 ? left : 0, &known, &err) < 0) {
            log_warn("not deregistered", "service=%s error=%s", log_quote_str(e->service.id), log_quote_str(err.text));
        } else {
            log_info("deregistered", "service=%s", log_quote_str(e->service.id));
        }
    }
    count(r, false);
}

static void registry_main(void *arg)
{
    struct registry *r = arg;
    while (!agent_interrupted(r->agent)) {
        struct err err = {0};
        look_at_self(r);
        heartbeat_now(&r->task.heartbeat);
        int rc = keep_all(r, &err);
        if (agent_interrupted(r->agent)) {
            break;
        }
        tell(r, &err);
        if (rc == 0) {
            r->delay_ms = 0;
            rest(r);
        } else {
            r->delay_ms = backoff_next(r->delay_ms, FIRST_DELAY_MS, LAST_DELAY_MS);
            agent_rest(r->agent, r->delay_ms);
        }
    }
    leave_all(r);
}

/* --- from outside --- */

int registry_new(const struct config *cfg, registry_look_fn *look, void *arg, struct registry **registry,
                 struct err *err)
{
    *registry = NULL;
    if (cfg->registry_consul[0] == '\0') {
        return 0;
    }
    struct registry *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the registry");
    }
    r->cfg = cfg;
    r->look = look;
    r->arg = arg;
    r->status.doing = REGISTRY_WAITING;
    snprintf(r->status.cause, sizeof r->status.cause, "not asked yet");
    pthread_mutex_init(&r->mutex, NULL);
    task_init(&r->task, &r->mutex);
    const struct agent_tls tls = {.ca = cfg->tls_ca, .cert = "", .key = ""};
    int rc = agent_new(&tls, &r->task.heartbeat, &r->agent, err);
    if (rc < 0) {
        registry_free(r);
        return rc;
    }
    *registry = r;
    return 0;
}

void registry_add(struct registry *r, const char *address)
{
    struct consul_service s;
    if (r == NULL || r->n + 2 > SERVICES_MAX || !consul_service_at(r->cfg, address, &s)) {
        return;
    }
    r->entries[r->n++].service = s;
    if (s.edge == CONSUL_GRPC) {
        consul_name(r->cfg, &s, CONSUL_DUBBO_TRIPLE);
        r->entries[r->n++].service = s;
    }
}

int registry_start(struct registry *r, uint32_t seed_fingerprint, struct err *err)
{
    if (r == NULL) {
        return 0;
    }
    r->seed_fingerprint = seed_fingerprint;
    return task_start(&r->task, "registry", TASK_BEATS, registry_main, r, err);
}

void registry_stop(struct registry *r)
{
    if (r != NULL) {
        agent_interrupt(r->agent);
        task_stop(&r->task);
    }
}

void registry_free(struct registry *r)
{
    if (r == NULL) {
        return;
    }
    agent_free(r->agent);
    buf_free(&r->reply);
    task_destroy(&r->task);
    pthread_mutex_destroy(&r->mutex);
    free(r);
}

void registry_look(struct registry *r, struct registry_status *out)
{
    *out = (struct registry_status){.doing = REGISTRY_OFF};
    if (r != NULL) {
        pthread_mutex_lock(&r->mutex);
        *out = r->status;
        pthread_mutex_unlock(&r->mutex);
    }
}

void registry_figures_each(struct registry *r, figure_visit *visit, void *arg)
{
    struct registry_status s;
    if (r == NULL) {
        return;
    }
    registry_look(r, &s);
    const struct {
        struct figure figure;
        uint64_t value;
    } figures[] = {
        {{"registry_registered", "registry_registered", FIGURE_GAUGE,
          "1 while Consul knows this server; 0 while it waits for Consul."},
         s.doing == REGISTRY_REGISTERED},
        {{"registry_services", "registry_services", FIGURE_GAUGE, "Services that are registered now."}, s.services},
        {{"registry_registrations", "registry_registrations_total", FIGURE_COUNTER,
          "Services that were registered, those that the agent had lost once more."},
         s.registrations},
        {{"registry_errors", "registry_errors_total", FIGURE_COUNTER,
          "Times that Consul's agent could not be asked, or refused."},
         s.errors},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        visit(arg, &figures[i].figure, figures[i].value);
    }
}
