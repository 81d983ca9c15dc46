/* CLIENT: who is connected. A connection's line is put together on its own worker's thread, so CLIENT LIST travels from
 * worker to worker. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "net/relay.h"
#include "resp/args.h"
#include "resp/command.h"
#include "resp/task.h"

enum outcome cmd_client_id(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    write_int(&s->writer, (int64_t)s->conn.id);
    return OUTCOME_ANSWERED;
}

enum outcome cmd_client_getname(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    if (s->name[0] == '\0') {
        write_null(&s->writer);
    } else {
        write_str(&s->writer, s->name);
    }
    return OUTCOME_ANSWERED;
}

enum outcome cmd_client_setname(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    if (!client_set_text(s->name, args[2])) {
        return resp_client_refuse(s, CLIENT_NAME_ERROR);
    }
    write_simple(&s->writer, "OK");
    return OUTCOME_ANSWERED;
}

enum outcome cmd_client_setinfo(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    bool name = arg_is(args[2], "lib-name");
    if (!name && !arg_is(args[2], "lib-ver")) {
        return resp_client_refuse(s, "ERR Unrecognized option '%.*s'", arg_shown(args[2]), args[2].data);
    }
    if (!client_set_text(name ? s->lib_name : s->lib_ver, args[3])) {
        return resp_client_refuse(s, "ERR %s cannot contain spaces, newlines or special characters.",
                                  name ? "lib-name" : "lib-ver");
    }
    write_simple(&s->writer, "OK");
    return OUTCOME_ANSWERED;
}

static const char *last_name(const struct resp_client *s, char out[COMMAND_NAME])
{
    if (s->last == NULL) {
        return "NULL";
    }
    for (const struct command *c = command_table; c->name != NULL; c++) {
        for (const struct command *sub = c->subs; sub != NULL && sub->name != NULL; sub++) {
            if (sub == s->last) {
                return command_full_name(c, sub, out);
            }
        }
    }
    return s->last->name;
}

/* As Redis 7.2 writes it, less what there is nothing to say about. */
static void add_line(struct buf *out, const struct resp_client *s, int64_t now)
{
    const struct conn *c = &s->conn;
    char addr[CONN_ADDRESS], laddr[CONN_ADDRESS], command[COMMAND_NAME];
    conn_address(c, false, addr);
    conn_address(c, true, laddr);
    buf_addf(out, "id=%" PRIu64 " addr=%s laddr=%s fd=%d name=%s age=%" PRId64 " idle=%" PRId64, c->id, addr, laddr,
             conn_fd(c), s->name, (now - c->opened_ms) / 1000, (now - c->active_ms) / 1000);
    buf_addf(out, " flags=%s db=0 sub=0 psub=0 ssub=0 multi=%lld watch=0",
             s->in_multi  ? "x"
             : c->is_unix ? "U"
                          : "N",
             s->in_multi ? (long long)s->queued : -1);
    buf_addf(out, " qbuf=%zu qbuf-free=%zu argv-mem=0 multi-mem=%zu", c->input.len, c->in.cap - c->in.len,
             s->queue.cap);
    buf_addf(out, " obl=%zu oll=0 omem=%zu tot-mem=%zu events=r cmd=%s", c->out.len, c->sending.len,
             c->held + sizeof *s, last_name(s, command));
    struct identity who = s->who;
    const struct account *account = account_now(c->worker->pool->service, &who);
    buf_addf(out, " user=%s redir=-1 resp=%d lib-name=%s lib-ver=%s%s%s\n", account != NULL ? account->name : "",
             s->writer.proto, s->lib_name, s->lib_ver, c->secure ? " tls=" : "", c->secure ? conn_tls_version(c) : "");
}

enum outcome cmd_client_info(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    struct buf line = {0};
    add_line(&line, s, clock_mono_ms());
    write_text(&s->writer, buf_slice(&line));
    buf_free(&line);
    return OUTCOME_ANSWERED;
}

enum { LINES_A_TURN = 16 };

struct list_task {
    struct task task;
    struct worker_relay relay;
    struct conn_cursor cursor;
    bool visiting; /* the cursor is that worker's */
    bool too_many;
    struct buf lines;
    size_t most;
    size_t n_ids; /* 0: all */
    uint64_t ids[];
};

static struct list_task *task_of_relay(struct worker_relay *relay)
{
    return (struct list_task *)((char *)relay - offsetof(struct list_task, relay));
}

static bool wanted(const struct list_task *t, uint64_t id)
{
    for (size_t i = 0; i < t->n_ids; i++) {
        if (t->ids[i] == id) {
            return true;
        }
    }
    return t->n_ids == 0;
}

static void begin_visit(struct list_task *t, struct worker *w)
{
    if (!t->visiting) {
        t->cursor = (struct conn_cursor){w->conns, w->cursors};
        w->cursors = &t->cursor;
        t->visiting = true;
    }
}

static void end_visit(struct list_task *t, struct worker *w)
{
    struct conn_cursor **at = &w->cursors;
    while (*at != &t->cursor) {
        at = &(*at)->next;
    }
    *at = t->cursor.next;
    t->visiting = false;
}

/* Some connections a turn of the loop, so that thousands of lines hold up nobody, also when several ask for them. */
static bool on_visit(struct worker_relay *relay, struct worker *w)
{
    struct list_task *t = task_of_relay(relay);
    int64_t now = clock_mono_ms();
    begin_visit(t, w);
    for (int i = 0; i < LINES_A_TURN && t->cursor.at != NULL; i++) {
        const struct conn *c = t->cursor.at;
        t->cursor.at = c->next;
        if (c->state == CONN_OPEN && c->ops == &resp_client_ops && wanted(t, c->id)) {
            if (t->lines.len + CLIENT_LINE_MAX > t->most) {
                t->too_many = true;
                t->cursor.at = NULL;
            } else {
                add_line(&t->lines, (const struct resp_client *)c, now);
            }
        }
    }
    if (t->cursor.at != NULL && !t->too_many) {
        return false;
    }
    end_visit(t, w);
    return true;
}

static void on_return(struct worker_relay *relay, struct worker *w)
{
    (void)w;
    struct list_task *t = task_of_relay(relay);
    if (t->task.client->conn.state == CONN_CLOSING) {
        buf_free(&t->lines); /* nobody is there to take them */
    }
    task_end(&t->task);
}

static void answer_list(struct task *task, struct resp_client *s)
{
    struct list_task *t = (struct list_task *)task;
    if (t->too_many) {
        write_errorf(&s->writer,
                     "ERR the list is longer than the %zu bytes that request_memory leaves for a reply: ask by "
                     "CLIENT LIST ID",
                     t->most);
    } else if (t->lines.failed) {
        write_error(&s->writer, "OOM out of memory for the list");
    } else {
        write_text_whole(&s->writer, &t->lines);
    }
    buf_free(&t->lines);
}

enum outcome cmd_client_list(struct resp_client *s, const struct slice *args, size_t n)
{
    size_t n_ids = 0;
    if (n > 3 && arg_is(args[2], "ID")) {
        n_ids = n - 3;
    } else if (n == 4 && arg_is(args[2], "TYPE")) {
        if (arg_is(args[3], "master") || arg_is(args[3], "replica") || arg_is(args[3], "slave") ||
            arg_is(args[3], "pubsub")) {
            write_text(&s->writer, slice_str(""));
            return OUTCOME_ANSWERED;
        }
        if (!arg_is(args[3], "normal")) {
            return resp_client_refuse(s, "ERR Unknown client type '%.*s'", arg_shown(args[3]), args[3].data);
        }
    } else if (n > 2) {
        return resp_client_refuse(s, "ERR syntax error");
    }
    for (size_t i = 0; i < n_ids; i++) {
        int64_t id;
        if (!arg_int(args[3 + i], &id) || id < 1) {
            return resp_client_refuse(s, "ERR Invalid client ID");
        }
    }
    struct list_task *t = task_new(sizeof *t + n_ids * sizeof *t->ids, s, answer_list);
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory for the list");
    }
    t->n_ids = n_ids;
    t->most = s->reply_most;
    buf_reserve(&t->lines, t->most); /* what was charged, and no more */
    for (size_t i = 0; i < n_ids; i++) {
        int64_t id = 0;
        arg_int(args[3 + i], &id);
        t->ids[i] = (uint64_t)id;
    }
    t->relay.visit = on_visit;
    t->relay.finish = on_return;
    worker_relay_start(&t->relay, s->conn.worker);
    return OUTCOME_LATER;
}
