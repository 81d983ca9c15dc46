/* FRONT STATUS, FRONT RECONCILE, FRONT REBUILD. */
#include "front/front.h"
#include "resp/command.h"
#include "service/account.h"

static const char none[] = "ERR there is no front: set redis in the section [front]";

/* NULL: the command was refused. */
static struct front *front_of(struct resp_client *s, enum outcome *refused)
{
    const struct dedup *d = service_dedup(&s->conn);
    *refused = OUTCOME_ANSWERED;
    if (d->front == NULL) {
        *refused = d->store->feed == NULL ? resp_client_lacks(s, "front") : resp_client_refuse(s, "%s", none);
    }
    return d->front;
}

/* named: whose account may know of which users there are. */
static void write_status(struct writer *w, const struct front_status *f, bool named)
{
    const struct writer_number numbers[] = {
        {"full", f->full},
        {"since", f->courier.since_ms},
        {"epoch", (int64_t)f->epoch},
        {"to", (int64_t)f->courier.to},
        {"waiting", (int64_t)f->courier.queue.events},
        {"waiting_bytes", (int64_t)f->courier.queue.bytes},
        {"limit", (int64_t)f->courier.queue.limit},
        {"behind_ms", f->courier.queue.behind_ms},
        {"lost_since", f->courier.queue.lost_ms},
        {"left_out", (int64_t)f->courier.queue.left_out},
        {"events", (int64_t)f->courier.events},
        {"states", (int64_t)f->states},
        {"bytes", (int64_t)f->courier.bytes},
        {"rebuilds", (int64_t)f->rebuilds},
        {"outages", (int64_t)f->courier.outages},
        {"giants", (int64_t)f->giants},
        {"unread", (int64_t)f->unread},
        {"dirty", (int64_t)f->dirty},
        {"filled", (int64_t)f->filled},
        {"comparing", f->comparing},
        {"compared", (int64_t)f->compared},
        {"differences", (int64_t)f->differences},
        {"reconciled_at", f->reconciled_ms},
    };
    write_map(w, 4 + sizeof numbers / sizeof *numbers);
    write_pair_str(w, "state", courier_doing_name(f->courier.doing));
    write_pair_str(w, "cause", f->courier.cause);
    write_pair_str(w, "redis", f->address);
    write_pair_ints(w, numbers, sizeof numbers / sizeof *numbers);
    write_str(w, "named");
    int n_named = named ? f->n_named : 0;
    write_array(w, (size_t)n_named);
    for (int i = 0; i < n_named; i++) {
        write_str(w, f->named[i]);
    }
}

enum outcome cmd_front(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    enum outcome refused;
    if (front_of(s, &refused) == NULL) {
        return refused;
    }
    struct front_status status;
    front_look(service_dedup(&s->conn), &status);
    write_status(&s->writer, &status, account_sees_users(resp_client_account(s)));
    return OUTCOME_ANSWERED;
}

static enum outcome begin(struct resp_client *s, int (*what)(struct front *f, struct err *err))
{
    struct err err;
    enum outcome refused;
    struct front *f = front_of(s, &refused);
    if (f == NULL) {
        return refused;
    }
    if (what(f, &err) < 0) {
        return resp_client_refuse_err(s, &err);
    }
    write_simple(&s->writer, "OK");
    return OUTCOME_ANSWERED;
}

enum outcome cmd_front_reconcile(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    return begin(s, front_reconcile);
}

enum outcome cmd_front_rebuild(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    return begin(s, front_rebuild);
}
