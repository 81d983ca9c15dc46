/* CLIENT: who is connected. A connection's line is put together on its own worker's thread, so CLIENT LIST travels from
 * worker to worker. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "net/relay.h"
#include "resp/args.h"
#include "resp/command.h"
#include "resp/deferred.h"

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

/* A visit to all connections, for CLIENT LIST and CLIENT KILL. */
struct walk {
    struct deferred deferred;
    struct worker_relay relay;
    struct conn_cursor cursor;
    bool visiting;                                                   /* the cursor is that worker's */
    bool (*see)(struct walk *w, struct resp_client *s, int64_t now); /* false: no more are to be seen */
};

enum { SEEN_A_TURN = 16 };

static struct walk *walk_of_relay(struct worker_relay *relay)
{
    return (struct walk *)((char *)relay - offsetof(struct walk, relay));
}

static void begin_visit(struct walk *t, struct worker *w)
{
    if (!t->visiting) {
        t->cursor = (struct conn_cursor){w->conns, w->cursors};
        w->cursors = &t->cursor;
        t->visiting = true;
    }
}

static void end_visit(struct walk *t, struct worker *w)
{
    struct conn_cursor **at = &w->cursors;
    while (*at != &t->cursor) {
        at = &(*at)->next;
    }
    *at = t->cursor.next;
    t->visiting = false;
}

/* Some connections a turn of the loop, so that thousands of them hold up no other, also when several ask. */
static bool on_visit(struct worker_relay *relay, struct worker *w)
{
    struct walk *t = walk_of_relay(relay);
    int64_t now = clock_mono_ms();
    bool more = true;
    begin_visit(t, w);
    for (int i = 0; i < SEEN_A_TURN && more && t->cursor.at != NULL; i++) {
        struct conn *c = t->cursor.at;
        t->cursor.at = c->next;
        more = c->state != CONN_OPEN || c->ops != &resp_client_ops || t->see(t, (struct resp_client *)c, now);
    }
    if (more && t->cursor.at != NULL) {
        return false;
    }
    end_visit(t, w);
    return true;
}

static void on_return(struct worker_relay *relay, struct worker *w)
{
    (void)w;
    deferred_end(&walk_of_relay(relay)->deferred);
}

static void walk(struct walk *t, struct resp_client *s)
{
    t->relay.visit = on_visit;
    t->relay.finish = on_return;
    worker_relay_start(&t->relay, s->conn.worker);
}

struct list_deferred {
    struct walk walk;
    bool too_many;
    struct buf lines;
    size_t most;
    size_t n_ids; /* 0: all */
    uint64_t ids[];
};

static bool wanted(const struct list_deferred *t, uint64_t id)
{
    for (size_t i = 0; i < t->n_ids; i++) {
        if (t->ids[i] == id) {
            return true;
        }
    }
    return t->n_ids == 0;
}

static bool list_one(struct walk *w, struct resp_client *s, int64_t now)
{
    struct list_deferred *t = (struct list_deferred *)w;
    t->too_many = t->too_many || (wanted(t, s->conn.id) && t->lines.len + CLIENT_LINE_MAX > t->most);
    if (!t->too_many && wanted(t, s->conn.id)) {
        add_line(&t->lines, s, now);
    }
    return !t->too_many;
}

static void answer_list(struct deferred *deferred, struct resp_client *s)
{
    struct list_deferred *t = (struct list_deferred *)deferred;
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
}

static void free_list(struct deferred *deferred)
{
    buf_free(&((struct list_deferred *)deferred)->lines);
}

static bool is_client_type(struct slice text, bool *normal)
{
    *normal = arg_is(text, "normal");
    return *normal || arg_is(text, "master") || arg_is(text, "replica") || arg_is(text, "slave") ||
           arg_is(text, "pubsub");
}

static enum outcome unknown_type(struct resp_client *s, struct slice text)
{
    return resp_client_refuse(s, "ERR Unknown client type '%.*s'", arg_shown(text), text.data);
}

enum outcome cmd_client_list(struct resp_client *s, const struct slice *args, size_t n)
{
    size_t n_ids = 0;
    bool normal;
    if (n > 3 && arg_is(args[2], "ID")) {
        n_ids = n - 3;
    } else if (n == 4 && arg_is(args[2], "TYPE")) {
        if (!is_client_type(args[3], &normal)) {
            return unknown_type(s, args[3]);
        }
        if (!normal) {
            write_text(&s->writer, slice_str(""));
            return OUTCOME_ANSWERED;
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
    struct list_deferred *t = deferred_new(sizeof *t + n_ids * sizeof *t->ids, s, answer_list);
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory for the list");
    }
    t->walk.deferred.free = free_list;
    t->walk.see = list_one;
    t->n_ids = n_ids;
    t->most = s->reply_most;
    buf_reserve(&t->lines, t->most); /* what was charged, and no more */
    for (size_t i = 0; i < n_ids; i++) {
        int64_t id = 0;
        arg_int(args[3 + i], &id);
        t->ids[i] = (uint64_t)id;
    }
    walk(&t->walk, s);
    return OUTCOME_LATER;
}

/* All that is said of the connections to be closed must hold for one. */
struct kill_deferred {
    struct walk walk;
    bool old;  /* CLIENT KILL address: OK, or an error where there is none */
    bool none; /* of another type than all of ours */
    bool spares_self;
    bool self;   /* it is among them, and ends once it is answered */
    uint64_t id; /* 0: any */
    int64_t age_s;
    char addr[CONN_ADDRESS], laddr[CONN_ADDRESS]; /* "": any */
    char user[ACCOUNT_NAME_MAX + 1];
    int64_t killed;
};

static bool is_address(const struct conn *c, bool local, const char *text)
{
    char address[CONN_ADDRESS];
    conn_address(c, local, address);
    return text[0] == '\0' || strcmp(address, text) == 0;
}

static bool kill_one(struct walk *w, struct resp_client *s, int64_t now)
{
    struct kill_deferred *t = (struct kill_deferred *)w;
    struct conn *c = &s->conn;
    bool self = s == t->walk.deferred.client;
    struct identity who = s->who;
    const struct account *account = account_now(c->worker->pool->service, &who);
    if ((self && t->spares_self) || (t->id != 0 && c->id != t->id) || (now - c->opened_ms) / 1000 < t->age_s ||
        (t->user[0] != '\0' && (account == NULL || strcmp(account->name, t->user) != 0)) ||
        !is_address(c, false, t->addr) || !is_address(c, true, t->laddr)) {
        return true;
    }
    t->killed++;
    t->self = t->self || self;
    if (!self) {
        conn_abort(c);
    }
    return true;
}

static void answer_kill(struct deferred *deferred, struct resp_client *s)
{
    const struct kill_deferred *t = (const struct kill_deferred *)deferred;
    if (!t->old) {
        write_int(&s->writer, t->killed);
    } else if (t->killed > 0) {
        write_simple(&s->writer, "OK");
    } else {
        write_error(&s->writer, "ERR No such client");
    }
    if (t->self) {
        conn_finish(&s->conn);
    }
}

/* Copies an argument that is compared as text. What no address or account can be fits none. */
static void keep_text(char *out, size_t size, struct slice arg)
{
    bool good = arg.len > 0 && arg.len < size && memchr(arg.data, '\0', arg.len) == NULL;
    snprintf(out, size, "%.*s", good ? (int)arg.len : 1, good ? arg.data : "?");
}

/* "ID 7 SKIPME no ...", pairs. Sets *refused if it returns false. */
static bool read_kill(struct resp_client *s, const struct slice *args, size_t n, struct kill_deferred *t,
                      enum outcome *refused)
{
    *refused = OUTCOME_ANSWERED;
    for (size_t i = 0; i + 1 < n; i += 2) {
        const struct slice name = args[i], value = args[i + 1];
        int64_t number = 0;
        bool normal, yes = arg_is(value, "yes");
        if (arg_is(name, "ID")) {
            if (!arg_int(value, &number) || number < 1) {
                *refused = resp_client_refuse(s, "ERR client-id should be greater than 0");
                return false;
            }
            t->id = (uint64_t)number;
        } else if (arg_is(name, "MAXAGE")) {
            if (!arg_int(value, &number) || number < 1) {
                *refused = resp_client_refuse(s, "ERR maxage should be greater than 0");
                return false;
            }
            t->age_s = number;
        } else if (arg_is(name, "TYPE")) {
            if (!is_client_type(value, &normal)) {
                *refused = unknown_type(s, value);
                return false;
            }
            t->none = t->none || !normal;
        } else if (arg_is(name, "ADDR")) {
            keep_text(t->addr, sizeof t->addr, value);
        } else if (arg_is(name, "LADDR")) {
            keep_text(t->laddr, sizeof t->laddr, value);
        } else if (arg_is(name, "USER")) {
            if (!account_is_known(s->conn.worker->pool->service, value)) {
                *refused = resp_client_refuse(s, "ERR No such user '%.*s'", arg_shown(value), value.data);
                return false;
            }
            keep_text(t->user, sizeof t->user, value);
        } else if (arg_is(name, "SKIPME") && (yes || arg_is(value, "no"))) {
            t->spares_self = yes;
        } else {
            *refused = resp_client_refuse(s, "ERR syntax error");
            return false;
        }
    }
    return true;
}

/* CLIENT KILL address, or CLIENT KILL ID id|ADDR address|LADDR address|USER account|TYPE type|MAXAGE s|SKIPME yes|no,
 * several of which may be given. */
enum outcome cmd_client_kill(struct resp_client *s, const struct slice *args, size_t n)
{
    enum outcome refused;
    struct kill_deferred kill = {.spares_self = true};
    if (n == 3) {
        kill.old = true;
        kill.spares_self = false;
        keep_text(kill.addr, sizeof kill.addr, args[2]);
    } else if (n % 2 != 0) {
        return resp_client_refuse(s, "ERR syntax error");
    } else if (!read_kill(s, args + 2, n - 2, &kill, &refused)) {
        return refused;
    }
    if (kill.none) {
        write_int(&s->writer, 0);
        return OUTCOME_ANSWERED;
    }
    struct kill_deferred *t = deferred_new(sizeof *t, s, answer_kill);
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory");
    }
    kill.walk = t->walk;
    *t = kill;
    t->walk.see = kill_one;
    walk(&t->walk, s);
    return OUTCOME_LATER;
}

/* CLIENT NO-EVICT on|off, CLIENT NO-TOUCH on|off: no client is evicted for its memory, and questions touch nothing. */
enum outcome cmd_client_switch(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    if (!arg_is(args[2], "on") && !arg_is(args[2], "off")) {
        return resp_client_refuse(s, "ERR syntax error");
    }
    write_simple(&s->writer, "OK");
    return OUTCOME_ANSWERED;
}

/* CLIENT GETREDIR: nothing is tracked for the connection. */
enum outcome cmd_client_getredir(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    write_int(&s->writer, -1);
    return OUTCOME_ANSWERED;
}

/* CLIENT REPLY on|off|skip: who would read no answers is told, or takes those for answers to what comes next. */
enum outcome cmd_client_reply(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    if (arg_is(args[2], "on")) {
        write_simple(&s->writer, "OK");
        return OUTCOME_ANSWERED;
    }
    return resp_client_refuse(s, arg_is(args[2], "off") || arg_is(args[2], "skip")
                                     ? "ERR CLIENT REPLY OFF and SKIP are not supported: every command is answered"
                                     : "ERR syntax error");
}

enum outcome cmd_client_tracking(struct resp_client *s, const struct slice *args, size_t n)
{
    if (arg_is(args[2], "off") && n == 3) {
        write_simple(&s->writer, "OK");
        return OUTCOME_ANSWERED;
    }
    return resp_client_refuse(s, arg_is(args[2], "on")
                                     ? "ERR CLIENT TRACKING is not supported: turn client-side caching off, no client "
                                       "is told when an answer changes"
                                     : "ERR syntax error");
}

/* As of a Redis in which the connection tracks nothing. */
enum outcome cmd_client_caching(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    return resp_client_refuse(s, "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN "
                                 "or OPTOUT mode enabled");
}

enum outcome cmd_client_pause(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    return resp_client_refuse(s, "ERR CLIENT PAUSE is not supported: no client is held up");
}
