/* Stands in for the follower until it is here. */
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
