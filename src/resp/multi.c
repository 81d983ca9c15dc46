/* MULTI, EXEC, DISCARD as plain batching: isolation would mean nothing, since a play commutes with everything but the
 * next question of the same connection. The queue holds the requests' bytes, in their canonical form. */
#include "resp/command.h"

void resp_client_end_multi(struct resp_client *s)
{
    s->in_multi = s->multi_failed = s->replaying = s->conn.owed = false;
    s->queued = 0;
    s->queue_at = 0;
    buf_free(&s->queue);
}

enum outcome cmd_multi(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    if (s->in_multi) {
        return resp_client_refuse(s, "ERR MULTI calls can not be nested");
    }
    s->in_multi = true;
    write_simple(&s->writer, "OK");
    return OUTCOME_ANSWERED;
}

enum outcome cmd_discard(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    if (!s->in_multi) {
        return resp_client_refuse(s, "ERR DISCARD without MULTI");
    }
    resp_client_end_multi(s);
    write_simple(&s->writer, "OK");
    return OUTCOME_ANSWERED;
}

enum outcome cmd_exec(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    if (!s->in_multi) {
        return resp_client_refuse(s, "ERR EXEC without MULTI");
    }
    if (s->multi_failed) {
        resp_client_end_multi(s);
        return resp_client_refuse(s, "EXECABORT Transaction discarded because of previous errors.");
    }
    write_array(&s->writer, s->queued);
    if (s->queued == 0) {
        resp_client_end_multi(s);
    } else {
        s->in_multi = false;
        s->replaying = s->conn.owed = true;
    }
    return OUTCOME_ANSWERED;
}

enum outcome multi_queue(struct resp_client *s, const struct slice *args, size_t n)
{
    size_t size = 16;
    for (size_t i = 0; i < n; i++) {
        size += args[i].len + 16;
    }
    size_t more = s->queue.len + size > s->queue.cap ? size + s->queue.cap : 0;
    if (s->queue.len + size > s->parser.bytes_max) {
        s->multi_failed = true;
        return resp_client_refuse(s, "ERR the transaction is larger than %zu bytes", s->parser.bytes_max);
    }
    if (more > 0 && (!budget_allows(&s->conn.worker->memory, BUDGET_LARGE, more) || buf_reserve(&s->queue, size) < 0)) {
        s->queue.failed = false;
        s->multi_failed = true;
        return resp_client_refuse(s, "OOM no memory for the transaction");
    }
    struct writer queue = {&s->queue, 2};
    write_array(&queue, n);
    for (size_t i = 0; i < n; i++) {
        write_bulk(&queue, args[i]);
    }
    s->queued++;
    write_simple(&s->writer, "QUEUED");
    return OUTCOME_ANSWERED;
}
