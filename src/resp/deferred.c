#include "resp/deferred.h"

#include <stdlib.h>

#include "service/slowlog.h"

void *deferred_new(size_t size, struct resp_client *s, void (*answer)(struct deferred *deferred, struct resp_client *s))
{
    struct deferred *deferred = calloc(1, size);
    if (deferred != NULL) {
        deferred->client = s;
        deferred->answer = answer;
        conn_hold(&s->conn);
        resp_client_keep_args(s, &deferred->args);
    }
    return deferred;
}

void deferred_end(struct deferred *deferred)
{
    struct resp_client *s = deferred->client;
    if (s->conn.state != CONN_CLOSING) {
        size_t before = s->conn.out.len;
        deferred->answer(deferred, s);
        int64_t us = resp_client_measure(s, before);
        if (slowlog_wants(&s->conn, us)) {
            slowlog_note(&s->conn, us, &deferred->args);
        }
        resp_client_answered(s);
    }
    conn_release(&s->conn);
    buf_free(&deferred->args);
    if (deferred->free != NULL) {
        deferred->free(deferred);
    }
    free(deferred);
}

static void on_message(struct loop_message *message, void *owner)
{
    (void)owner;
    deferred_end((struct deferred *)message);
}

void deferred_done(struct deferred *deferred)
{
    deferred->message.deliver = on_message;
    loop_queue_post(&deferred->client->conn.worker->queue, &deferred->message);
}
