/* Stands in for the feeder, the follower, acknowledgements and events until they are here: no node has a replica. Each
 * of them takes its functions out of this file. */
#include "replica/event.h"
#include "replica/feeder.h"
#include "replica/follower.h"
#include "replica/replica.h"

void follower_stop(struct follower *f)
{
    (void)f;
}

void follower_look(const struct follower *f, struct follower_state *out)
{
    (void)f;
    *out = (struct follower_state){.doing = FOLLOWER_OFF, .age_ms = -1};
}

int follower_wait(struct follower *f, uint64_t seq, int64_t ms, struct err *err)
{
    (void)f;
    (void)seq;
    (void)ms;
    return err_set(err, ERR_LATE, "this node follows nobody");
}

const char *follower_doing_name(enum follower_doing doing)
{
    static const char *const names[FOLLOWER_DOINGS] = {"connecting", "catching up", "in step",
                                                       "lost",       "refused",     "off"};
    return names[doing];
}

int feeder_look(struct feeder *f, struct feeder_replica out[FEEDER_REPLICAS_MAX])
{
    (void)f;
    (void)out;
    return 0;
}

void ack_look(struct ack *a, struct ack_state *out)
{
    (void)a;
    *out = (struct ack_state){.mode = ACK_LOCAL};
}

void ack_set_gatekeeper(struct ack *a, bool (*may_go_alone)(void *arg), void (*in_step_again)(void *arg), void *arg)
{
    (void)a;
    (void)may_go_alone;
    (void)in_step_again;
    (void)arg;
}

int event_read(struct event_state *state, struct slice bytes, size_t *at, struct feed_event *out, struct err *err)
{
    (void)state;
    (void)bytes;
    (void)at;
    (void)out;
    return err_set(err, ERR_ABSENT, "this unseen reads no events");
}
