#include "resp/task.h"

#include <stdlib.h>

#include "service/slowlog.h"

void *task_new(size_t size, struct resp_client *s, void (*answer)(struct task *task, struct resp_client *s))
{
    struct task *task = calloc(1, size);
    if (task != NULL) {
        task->client = s;
        task->answer = answer;
        conn_hold(&s->conn);
        resp_client_keep_args(s, &task->args);
    }
    return task;
}

void task_end(struct task *task)
{
    struct resp_client *s = task->client;
    if (s->conn.state != CONN_CLOSING) {
        size_t before = s->conn.out.len;
        task->answer(task, s);
        int64_t us = resp_client_measure(s, before);
        if (slowlog_wants(&s->conn, us)) {
            slowlog_note(&s->conn, us, &task->args);
        }
        resp_client_answered(s);
    }
    conn_release(&s->conn);
    buf_free(&task->args);
    if (task->free != NULL) {
        task->free(task);
    }
    free(task);
}

static void on_message(struct loop_message *message, void *owner)
{
    (void)owner;
    task_end((struct task *)message);
}

void task_done(struct task *task)
{
    task->message.deliver = on_message;
    loop_queue_post(&task->client->conn.worker->queue, &task->message);
}
