/* PLAYED, PLAYEDAT, DELIVERED, FORGET. Everything about a command is checked before anything of it is recorded. */
#include "resp/args.h"
#include "resp/command.h"
#include "resp/task.h"

/* args[first...] are the items. */
static enum outcome record(struct resp_client *s, enum store_kind kind, int64_t at_ms, const struct slice *args,
                           size_t first, size_t n)
{
    enum outcome refused;
    const uint64_t *hashes = args_hash(s, args + first, n - first, &refused);
    if (hashes == NULL) {
        return refused;
    }
    enum outcome outcome = resp_client_record(s, kind, at_ms, args[1], args + first, hashes, n - first);
    if (outcome == OUTCOME_RECORDED) {
        worker_count(s->conn.worker, kind == STORE_PLAY ? COUNT_PLAYS : COUNT_DELIVERIES, n - first);
    }
    return outcome;
}

static enum outcome record_now(struct resp_client *s, enum store_kind kind, const struct slice *args, size_t n)
{
    enum outcome refused;
    if (!args_check_user(s, args[1], &refused)) {
        return refused;
    }
    return record(s, kind, dedup_stamp(s->conn.worker->dedup), args, 2, n);
}

enum outcome cmd_played(struct resp_client *s, const struct slice *args, size_t n)
{
    return record_now(s, STORE_PLAY, args, n);
}

enum outcome cmd_delivered(struct resp_client *s, const struct slice *args, size_t n)
{
    return record_now(s, STORE_DELIVERY, args, n);
}

enum outcome cmd_playedat(struct resp_client *s, const struct slice *args, size_t n)
{
    enum outcome refused;
    if (!args_check_user(s, args[1], &refused)) {
        return refused;
    }
    int64_t given, at;
    if (!arg_int(args[2], &given)) {
        return resp_client_refuse(s, "ERR unix_ms must be a whole number of milliseconds since 1970, got '%.*s'",
                                  arg_shown(args[2]), args[2].data);
    }
    struct err err = {0};
    bool skewed = false;
    int code = dedup_event_time(s->conn.worker->dedup, given, &at, &skewed, &err);
    if (code < 0) {
        worker_count(s->conn.worker, COUNT_TIMES_REFUSED, code == ERR_RANGE);
        return resp_client_refuse(s, "%s %s", code == ERR_BUSY ? "BUSY" : "ERR", err.text);
    }
    enum outcome outcome = record(s, STORE_PLAY, at, args, 3, n);
    if (outcome == OUTCOME_RECORDED && skewed) {
        worker_count(s->conn.worker, COUNT_SKEWED, 1);
    }
    return outcome;
}

/* The store works on it while the input moves on, so the ids are copied behind the task. */
struct forget_task {
    struct task task;
    struct store_forget forget;
};

static void on_forgotten(struct store_forget *forget)
{
    task_done(forget->owner);
}

static void answer_forget(struct task *task, struct resp_client *s)
{
    const struct store_forget *forget = &((struct forget_task *)task)->forget;
    if (forget->err.code < 0) {
        resp_client_write_err(s, &forget->err);
    } else {
        write_int(&s->writer, forget->answer);
    }
}

enum outcome cmd_forget(struct resp_client *s, const struct slice *args, size_t n)
{
    enum outcome refused;
    if (!args_check_user(s, args[1], &refused) || !args_check_items(s, args + 2, n - 2, &refused)) {
        return refused;
    }
    struct worker *w = s->conn.worker;
    size_t size = sizeof(struct forget_task) + dedup_forget_size(args[1], args + 2, n - 2);
    struct forget_task *t = task_new(size, s, answer_forget);
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory for %zu items", n - 2);
    }
    dedup_forget(w->dedup, &t->forget, t + 1, args[1], args + 2, n - 2);
    t->forget.done = on_forgotten;
    t->forget.owner = &t->task;
    w->dedup->store->ops->forget(w->dedup->store, &t->forget);
    return OUTCOME_LATER;
}
