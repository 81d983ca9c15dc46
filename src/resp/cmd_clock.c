/* CLOCK, CLOCK ACCEPT, CLOCK SETBACK: what is believed of the wall clock, and an administrator's decision on it. */
#include "resp/command.h"
#include "resp/deferred.h"

static void write_clock(struct resp_client *s)
{
    struct writer *w = &s->writer;
    struct store *store = service_dedup(&s->conn)->store;
    struct store_clock clock;
    store->ops->clock(store, &clock);
    write_map(w, 6);
    write_pair_str(w, "state", store_clock_state_name(&clock));
    write_pair_int(w, "wall", clock.wall_ms);
    write_pair_int(w, "believed", clock.believed_ms);
    write_pair_int(w, "newest", clock.newest_ms);
    write_pair_int(w, "held", clock.unsure_ms);
    write_pair_str(w, "reason", clock.reason);
}

enum outcome cmd_clock(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    write_clock(s);
    return OUTCOME_ANSWERED;
}

struct change_deferred {
    struct deferred deferred;
    struct store_clock_change change;
};

static void on_changed(struct store_call *call)
{
    deferred_done(call->owner);
}

static void answer_change(struct deferred *deferred, struct resp_client *s)
{
    const struct err *err = &((struct change_deferred *)deferred)->change.call.err;
    if (err->code < 0) {
        resp_client_write_err(s, err);
    } else {
        write_clock(s);
    }
}

static enum outcome change(struct resp_client *s, bool set_back)
{
    struct change_deferred *t = deferred_new(sizeof *t, s, answer_change);
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory");
    }
    t->change = (struct store_clock_change){.call = {.done = on_changed, .owner = &t->deferred}, .set_back = set_back};
    struct store *store = service_dedup(&s->conn)->store;
    store->ops->clock_change(store, &t->change);
    return OUTCOME_LATER;
}

enum outcome cmd_clock_accept(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    return change(s, false);
}

enum outcome cmd_clock_setback(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    return change(s, true);
}
