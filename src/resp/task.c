#include "resp/task.h"

#include <stdlib.h>

void *task_new(size_t size, struct session *s, void (*answer)(struct task *task, struct session *s))
{
    struct task *task = calloc(1, size);
    if (task != NULL) {
        task->session = s;
        task->answer = answer;
        conn_hold(&s->conn);
    }
    return task;
}

void task_end(struct task *task)
{
    struct session *s = task->session;
    if (s->conn.state != CONN_CLOSING) {
        size_t before = s->conn.out.len;
        task->answer(task, s);
        session_measure(s, before);
        session_answered(s);
    }
    conn_release(&s->conn);
    free(task);
}

static void on_mail(struct mail *mail, void *owner)
{
    (void)owner;
    task_end((struct task *)mail);
}

void task_done(struct task *task)
{
    task->mail.deliver = on_mail;
    mailbox_post(&task->session->conn.worker->mailbox, &task->mail);
}
