/* What each policy hid, by its name, since the server started and today (UTC). Any thread. */
#ifndef UNSEEN_SERVICE_POLICY_METER_H
#define UNSEEN_SERVICE_POLICY_METER_H

#include <pthread.h>
#include <stdint.h>

#include "config/policy.h"

struct policy_count {
    char name[POLICY_NAME]; /* "": it is free */
    uint64_t questions, candidates;
    uint64_t hidden; /* of these, by whatever rule of the question */
    uint64_t hidden_today;
    uint64_t also[POLICY_ALSO]; /* of the hidden ones: what each of these users added */
    int64_t day;                /* since 1970: which is today's */
};

/* A name that is gone from the configuration keeps its counts until another one needs the room. */
struct policy_meter {
    pthread_mutex_t mutex;
    struct policy_count counts[2 * POLICIES_MAX];
};

void policy_meter_init(struct policy_meter *m);
void policy_meter_destroy(struct policy_meter *m);

/* A question that was answered. */
struct policy_answer {
    const struct policy *policy;
    int64_t at_ms;
    uint64_t candidates, hidden;
    const uint64_t *also; /* what each of its policy's other users hid; NULL: there are none */
};

/* all: those of the configuration in force. */
void policy_meter_note(struct policy_meter *m, const struct policies *all, const struct policy_answer *answer);

/* The counts of a policy, as of that time. */
void policy_meter_look(struct policy_meter *m, const struct policy *p, int64_t at_ms, struct policy_count *out);

#endif
