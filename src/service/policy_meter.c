#include "service/policy_meter.h"

#include <string.h>

enum { ROOM = 2 * POLICIES_MAX };
#define DAY_MS (INT64_C(24) * 3600 * 1000)

void policy_meter_init(struct policy_meter *m)
{
    memset(m->counts, 0, sizeof m->counts);
    pthread_mutex_init(&m->mutex, NULL);
}

void policy_meter_destroy(struct policy_meter *m)
{
    pthread_mutex_destroy(&m->mutex);
}

static struct policy_count *find(struct policy_meter *m, const char *name)
{
    for (size_t i = 0; i < ROOM; i++) {
        if (strcmp(m->counts[i].name, name) == 0) {
            return &m->counts[i];
        }
    }
    return NULL;
}

/* A free one, or that of a name which is gone; the question's may be gone, too. */
static struct policy_count *make(struct policy_meter *m, const struct policies *all, const char *name)
{
    struct policy_count *c = find(m, "");
    for (size_t i = 0; i < ROOM && c == NULL; i++) {
        c = policy_find(all, slice_str(m->counts[i].name)) == NULL ? &m->counts[i] : NULL;
    }
    if (c != NULL) {
        *c = (struct policy_count){0};
        memcpy(c->name, name, sizeof c->name);
    }
    return c;
}

static void turn_day(struct policy_count *c, int64_t at_ms)
{
    const int64_t day = at_ms / DAY_MS;
    if (c->day != day) {
        c->day = day;
        c->hidden_today = 0;
    }
}

void policy_meter_note(struct policy_meter *m, const struct policies *all, const struct policy_answer *answer)
{
    const struct policy *p = answer->policy;
    pthread_mutex_lock(&m->mutex);
    struct policy_count *c = find(m, p->name);
    c = c != NULL ? c : make(m, all, p->name);
    if (c != NULL) {
        turn_day(c, answer->at_ms);
        c->questions++;
        c->candidates += answer->candidates;
        c->hidden += answer->hidden;
        c->hidden_today += answer->hidden;
        for (size_t i = 0; answer->also != NULL && i < p->n_also; i++) {
            c->also[i] += answer->also[i];
        }
    }
    pthread_mutex_unlock(&m->mutex);
}

void policy_meter_look(struct policy_meter *m, const struct policy *p, int64_t at_ms, struct policy_count *out)
{
    pthread_mutex_lock(&m->mutex);
    const struct policy_count *c = find(m, p->name);
    *out = c != NULL ? *c : (struct policy_count){0};
    pthread_mutex_unlock(&m->mutex);
    turn_day(out, at_ms);
}
