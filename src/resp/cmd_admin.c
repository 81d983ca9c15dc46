/* RING, RING FLUSH, DEBUG ADVANCE, DEBUG JUMP, DEBUG SETTLE, DEBUG STALL. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/heartbeat.h"
#include "base/settle.h"
#include "net/relay.h"
#include "resp/args.h"
#include "resp/command.h"
#include "resp/deferred.h"
#include "store/ring.h"

/* Ten years: enough for any test, and far from where sums overflow. */
#define CLOCK_STEP_MAX (INT64_C(3660) * 24 * 3600 * 1000)

static void write_ring(struct resp_client *s)
{
    struct writer *w = &s->writer;
    struct store *store = service_dedup(&s->conn)->store;
    struct store_ring ring;
    store->ring->look(store, &ring);
    write_array(w, (size_t)ring.n_slots);
    for (int i = 0; i < ring.n_slots; i++) {
        const struct store_slot *slot = &ring.slots[i];
        write_map(w, 9);
        write_pair_int(w, "slot", slot->slot);
        write_pair_str(w, "state", store_slot_state_name(slot->state));
        write_pair_int(w, "rows", (int64_t)slot->rows);
        write_pair_int(w, "users", (int64_t)slot->users);
        write_pair_int(w, "memory", (int64_t)slot->bytes);
        write_pair_int(w, "since", slot->since_ms);
        write_pair_int(w, "retry", slot->retry_ms);
        write_pair_str(w, "last_error", slot->error);
        write_pair_str(w, "clock", ring.clock_doubted ? ring.clock_reason : "steady");
    }
}

enum outcome cmd_ring(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    if (service_dedup(&s->conn)->store->ring == NULL) {
        return resp_client_lacks(s, "ring");
    }
    write_ring(s);
    return OUTCOME_ANSWERED;
}

/* A call to the store, and for DEBUG a visit to all workers behind it. */
struct call_deferred {
    struct deferred deferred;
    struct store_call call;
    struct worker_relay relay;
};

static void on_called(struct store_call *call)
{
    deferred_done(call->owner);
}

static void answer_flush(struct deferred *deferred, struct resp_client *s)
{
    const struct err *err = &((struct call_deferred *)deferred)->call.err;
    if (err->code < 0) {
        resp_client_write_err(s, err);
    } else {
        write_ring(s);
    }
}

enum outcome cmd_ring_flush(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    struct store *store = service_dedup(&s->conn)->store;
    if (store->ring == NULL) {
        return resp_client_lacks(s, "ring");
    }
    struct call_deferred *t = deferred_new(sizeof *t, s, answer_flush);
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory");
    }
    t->call.done = on_called;
    t->call.owner = &t->deferred;
    store->ring->flush(store, &t->call);
    return OUTCOME_LATER;
}

/* The clock moved: the store does what became due, then each worker looks at its timeouts, then the answer. */

static struct call_deferred *task_of_relay(struct worker_relay *relay)
{
    return (struct call_deferred *)((char *)relay - offsetof(struct call_deferred, relay));
}

static void answer_clock(struct deferred *deferred, struct resp_client *s)
{
    const struct err *err = &((struct call_deferred *)deferred)->call.err;
    if (err->code < 0) {
        resp_client_write_err(s, err);
    } else {
        write_simple(&s->writer, "OK");
    }
}

static bool on_visit(struct worker_relay *relay, struct worker *w)
{
    (void)relay;
    if (!w->stopped) {
        worker_tick(w);
    }
    return true;
}

static void on_return(struct worker_relay *relay, struct worker *w)
{
    (void)w;
    deferred_end(&task_of_relay(relay)->deferred);
}

static void on_ticked_message(struct loop_message *message, void *owner)
{
    worker_relay_start((struct worker_relay *)message, owner);
}

/* On a thread of the store. */
static void on_ticked(struct store_call *call)
{
    struct call_deferred *t = (struct call_deferred *)call->owner;
    t->relay.message.deliver = on_ticked_message;
    loop_queue_post(&t->deferred.client->conn.worker->queue, &t->relay.message);
}

static enum outcome after_clock(struct resp_client *s)
{
    struct call_deferred *t = deferred_new(sizeof *t, s, answer_clock);
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory");
    }
    t->relay.visit = on_visit;
    t->relay.finish = on_return;
    t->call.done = on_ticked;
    t->call.owner = t;
    const struct dedup *dedup = service_dedup(&s->conn);
    if (dedup != NULL) {
        dedup->store->ops->tick(dedup->store, &t->call);
    } else {
        on_ticked(&t->call);
    }
    return OUTCOME_LATER;
}

static bool read_ms(struct resp_client *s, struct slice arg, int64_t least, int64_t *ms, enum outcome *refused)
{
    if (arg_int(arg, ms) && *ms >= least && *ms <= CLOCK_STEP_MAX) {
        return true;
    }
    *refused = resp_client_refuse(s, "ERR ms must be a whole number of milliseconds from %lld to %lld, got '%.*s'",
                                  (long long)least, (long long)CLOCK_STEP_MAX, arg_shown(arg), arg.data);
    return false;
}

enum outcome cmd_debug_advance(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    int64_t ms;
    enum outcome refused;
    if (!read_ms(s, args[2], 0, &ms, &refused)) {
        return refused;
    }
    clock_test_advance(ms);
    return after_clock(s);
}

enum outcome cmd_debug_jump(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    int64_t ms;
    enum outcome refused;
    if (!read_ms(s, args[2], -8 * CLOCK_STEP_MAX, &ms, &refused)) {
        return refused;
    }
    clock_test_jump(ms);
    return after_clock(s);
}

/* --- whether anything is left to do ---
 *
 * What lay in a socket, or in a worker's queue, when the command came is read once all workers have been visited; and
 * what these have told each other then, once they have been again. The commands that ask this are not counted. */

enum { SETTLE_VISITS = 2 };

struct settle_deferred {
    struct deferred deferred;
    struct worker_relay relay;
    int visits;
};

static _Atomic uint64_t settle_commands;

static void answer_settle(struct deferred *deferred, struct resp_client *s)
{
    (void)deferred;
    struct writer *w = &s->writer;
    struct settle now;
    struct buf busy = {0};
    if (settle_look(&now, &busy) < 0) {
        resp_client_refuse(s, "OOM out of memory");
    } else {
        const uint64_t commands = worker_pool_counter(s->conn.worker->pool, COUNT_COMMANDS);
        write_array(w, 3);
        write_int(w, (int64_t)(now.acts + commands - atomic_load(&settle_commands)));
        write_bulk(w, busy.len > 0 ? buf_slice(&busy) : slice_str("idle"));
        write_int(w, now.due_us == INT64_MAX ? -1 : (now.due_us - clock_mono_us() + 999) / 1000);
    }
    buf_free(&busy);
}

static bool on_settle_visit(struct worker_relay *relay, struct worker *w)
{
    (void)relay;
    (void)w;
    return true;
}

static void on_settle_return(struct worker_relay *relay, struct worker *w)
{
    struct settle_deferred *t = (struct settle_deferred *)((char *)relay - offsetof(struct settle_deferred, relay));
    if (--t->visits > 0) {
        worker_relay_start(relay, w);
    } else {
        deferred_end(&t->deferred);
    }
}

enum outcome cmd_debug_settle(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    struct settle_deferred *t = deferred_new(sizeof *t, s, answer_settle);
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory");
    }
    atomic_fetch_add(&settle_commands, 1);
    t->visits = SETTLE_VISITS;
    t->relay.visit = on_settle_visit;
    t->relay.finish = on_settle_return;
    worker_relay_start(&t->relay, s->conn.worker);
    return OUTCOME_LATER;
}

enum outcome cmd_debug_stall(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    int64_t ms;
    enum outcome refused;
    char name[HEARTBEAT_NAME] = "";
    if (!read_ms(s, args[3], 0, &ms, &refused)) {
        return refused;
    }
    if (args[2].len < sizeof name) {
        memcpy(name, args[2].data, args[2].len);
    }
    if (!heartbeat_stall(name, ms)) {
        return resp_client_refuse(s, "ERR there is no thread '%.*s'", arg_shown(args[2]), args[2].data);
    }
    write_simple(&s->writer, "OK");
    return OUTCOME_ANSWERED;
}
