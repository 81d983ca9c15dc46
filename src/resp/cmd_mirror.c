/* LEGACY MIRROR, LEGACY MIRROR RESET. */
#include "legacy/mirror.h"
#include "resp/args.h"
#include "resp/command.h"
#include "resp/deferred.h"

struct reset_deferred {
    struct deferred deferred;
    struct feed_reset reset;
};

static void on_reset(struct store_call *call)
{
    deferred_done(call->owner);
}

static void answer_reset(struct deferred *deferred, struct resp_client *s)
{
    const struct err *err = &((struct reset_deferred *)deferred)->reset.call.err;
    if (err->code < 0) {
        resp_client_write_err(s, err);
    } else {
        write_simple(&s->writer, "OK");
    }
}

static enum outcome reset(struct resp_client *s)
{
    struct store *store = service_dedup(&s->conn)->store;
    if (store->feed == NULL) {
        return resp_client_refuse(s, "ERR this store keeps no feed, so it has no mirror");
    }
    struct reset_deferred *t = deferred_new(sizeof *t, s, answer_reset);
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory");
    }
    t->reset = (struct feed_reset){.call = {.done = on_reset, .owner = &t->deferred}, .consumer = MIRROR_CONSUMER};
    store->feed->reset(store, &t->reset);
    return OUTCOME_LATER;
}

enum outcome cmd_legacy_mirror(struct resp_client *s, const struct slice *args, size_t n)
{
    const struct dedup *dedup = service_dedup(&s->conn);
    if (dedup->store->feed == NULL) {
        return resp_client_lacks(s, "mirror");
    }
    if (n == 3 && arg_is(args[2], "reset")) {
        return reset(s);
    }
    if (n > 2) {
        return resp_client_refuse(s, "ERR LEGACY MIRROR takes nothing or RESET, got '%.*s'", arg_shown(args[2]),
                                  args[2].data);
    }
    struct mirror_status all;
    mirror_look(dedup, &all);
    const struct courier_status status = all.courier;
    struct writer *w = &s->writer;
    const struct writer_number numbers[] = {
        {"waiting_since", status.since_ms},     {"waiting", (int64_t)status.queue.events},
        {"bytes", (int64_t)status.queue.bytes}, {"limit", (int64_t)status.queue.limit},
        {"broken_since", status.queue.lost_ms}, {"left_out", (int64_t)status.queue.left_out},
        {"sent", (int64_t)status.events},       {"skipped", (int64_t)all.skipped},
        {"outages", (int64_t)status.outages},   {"behind_ms", status.queue.behind_ms},
    };
    write_map(w, 3 + sizeof numbers / sizeof *numbers);
    write_pair_str(w, "state", courier_doing_name(status.doing));
    write_pair_str(w, "cause", status.cause);
    write_pair_ints(w, numbers, sizeof numbers / sizeof *numbers);
    write_pair_str(w, "last_problem", all.problem);
    return OUTCOME_ANSWERED;
}
