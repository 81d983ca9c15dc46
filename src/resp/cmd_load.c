/* LOAD: users of another store, as `unseen load` sends them; the connection waits until they are durable. */
#include <string.h>

#include "legacy/legacy.h"
#include "replica/replica.h"
#include "resp/command.h"
#include "resp/deferred.h"

struct load_deferred {
    struct deferred deferred;
    struct store_import import;
    struct legacy *legacy; /* who is noted by it is read there */
    struct ack *ack;       /* NULL: no replica is waited for */
    struct ack_wait wait;
    struct slice snapshots[]; /* behind them the verdicts, then the snapshots' bytes */
};

static void on_acknowledged(struct ack_wait *wait)
{
    struct load_deferred *t = wait->owner;
    deferred_done(&t->deferred);
}

static void on_done(struct store_call *call)
{
    struct load_deferred *t = call->owner;
    legacy_wake(t->legacy);
    if (call->err.code < 0 || t->ack == NULL) {
        deferred_done(&t->deferred);
        return;
    }
    t->wait = (struct ack_wait){.seq = t->import.seq, .err = &call->err, .done = on_acknowledged, .owner = t};
    ack_wait(t->ack, &t->wait);
}

static void answer_load(struct deferred *deferred, struct resp_client *s)
{
    const struct load_deferred *t = (struct load_deferred *)deferred;
    if (t->import.call.err.code < 0) {
        resp_client_write_err(s, &t->import.call.err);
        return;
    }
    write_array(&s->writer, t->import.n);
    for (size_t i = 0; i < t->import.n; i++) {
        write_int(&s->writer, t->import.verdicts[i]);
    }
}

enum outcome cmd_load(struct resp_client *s, const struct slice *args, size_t n)
{
    n--;
    args++;
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += args[i].len;
    }
    struct load_deferred *t = deferred_new(sizeof *t + n * (sizeof t->snapshots[0] + 1) + bytes, s, answer_load);
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory for %zu bytes of users", bytes);
    }
    uint8_t *verdicts = (uint8_t *)&t->snapshots[n];
    char *to = (char *)verdicts + n;
    for (size_t i = 0; i < n; i++) {
        memcpy(to, args[i].data, args[i].len);
        t->snapshots[i] = slice_of(to, args[i].len);
        to += args[i].len;
    }
    t->import = (struct store_import){.snapshots = t->snapshots, .n = n, .verdicts = verdicts};
    t->import.call.done = on_done;
    t->import.call.owner = t;
    const struct dedup *dedup = service_dedup(&s->conn);
    t->legacy = dedup->legacy;
    t->ack = dedup->replica != NULL ? dedup->replica->ack : NULL;
    dedup->store->ops->import(dedup->store, &t->import);
    return OUTCOME_LATER;
}
