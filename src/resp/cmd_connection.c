/* Commands about the connection itself: who is there, and which protocol it speaks. */
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "net/password.h"
#include "resp/args.h"
#include "resp/command.h"

enum outcome cmd_ping(struct resp_client *s, const struct slice *args, size_t n)
{
    if (n > 2) {
        return resp_client_refuse(s, "ERR wrong number of arguments for 'ping' command");
    }
    if (n == 2) {
        write_bulk(&s->writer, args[1]);
    } else {
        write_simple(&s->writer, "PONG");
    }
    return OUTCOME_ANSWERED;
}

enum outcome cmd_echo(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    write_bulk(&s->writer, args[1]);
    return OUTCOME_ANSWERED;
}

enum outcome cmd_quit(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    write_simple(&s->writer, "OK");
    conn_finish(&s->conn);
    return OUTCOME_ANSWERED;
}

enum outcome cmd_reset(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    resp_client_end_multi(s);
    s->writer.proto = 2;
    s->name[0] = '\0';
    s->conn.trusted = false;
    write_simple(&s->writer, "RESET");
    return OUTCOME_ANSWERED;
}

enum outcome cmd_select(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)n;
    int64_t index;
    if (!arg_int(args[1], &index)) {
        return resp_client_refuse(s, "ERR value is not an integer or out of range");
    }
    if (index != 0) {
        return resp_client_refuse(s, "ERR DB index is out of range");
    }
    write_simple(&s->writer, "OK");
    return OUTCOME_ANSWERED;
}

/* Whether its turn to say a password has come, see net/logins.h. Until then the request stays, and is run again when
 * the time is over; its connection takes nothing else meanwhile. If not, *instead is what becomes of the request. */
static bool may_login(struct resp_client *s, enum outcome *instead)
{
    struct conn *c = &s->conn;
    int64_t now = clock_mono_ms();
    *instead = OUTCOME_AGAIN;
    if (c->wake_ms == 0) {
        int64_t wait = logins_turn(&c->worker->pool->logins, c->peer, now);
        if (wait < 0) {
            *instead =
                resp_client_refuse(s, "WRONGPASS too many failed logins from your address, try again in %d seconds",
                                   LOGINS_WAIT_MS / 1000);
            return false;
        }
        c->wake_ms = wait > 0 ? now + wait : 0;
    }
    if (c->wake_ms > now) {
        return false;
    }
    c->wake_ms = 0;
    return true;
}

/* Sets *outcome if it returns false. */
static bool authenticate(struct resp_client *s, struct slice user, struct slice password, enum outcome *outcome)
{
    const char *want = resp_client_config(s)->requirepass;
    struct worker *w = s->conn.worker;
    if (want[0] != '\0' && !may_login(s, outcome)) {
        return false;
    }
    bool right = want[0] == '\0' || password_right(want, password);
    if (slice_eq(user, slice_str("default")) && right) {
        s->conn.trusted = true;
        logins_good(&w->pool->logins, s->conn.peer);
        return true;
    }
    if (want[0] != '\0') {
        worker_count(w, COUNT_FAILED_LOGINS, 1);
        logins_failed(&w->pool->logins, s->conn.peer, "resp", clock_mono_ms());
    }
    *outcome = resp_client_refuse(s, "WRONGPASS invalid username-password pair or user is disabled.");
    return false;
}

enum outcome cmd_auth(struct resp_client *s, const struct slice *args, size_t n)
{
    if (n > 3) {
        return resp_client_refuse(s, "ERR syntax error");
    }
    enum outcome failed;
    if (n == 2 && resp_client_config(s)->requirepass[0] == '\0') {
        return resp_client_refuse(s, "ERR AUTH <password> called without any password configured for the default user. "
                                     "Are you sure your configuration is correct?");
    }
    if (!authenticate(s, n == 3 ? args[1] : slice_str("default"), args[n - 1], &failed)) {
        return failed;
    }
    write_simple(&s->writer, "OK");
    return OUTCOME_ANSWERED;
}

static void introduce(struct resp_client *s)
{
    struct writer *w = &s->writer;
    write_map(w, 7);
    write_str(w, "server");
    write_str(w, "unseen");
    write_str(w, "version");
    write_str(w, UNSEEN_VERSION);
    write_str(w, "proto");
    write_int(w, w->proto);
    write_str(w, "id");
    write_int(w, (int64_t)s->conn.id);
    write_str(w, "mode");
    write_str(w, "standalone");
    write_str(w, "role");
    write_str(w, "master");
    write_str(w, "modules");
    write_array(w, 0);
}

/* Nothing of it holds unless all of it is right. */
enum outcome cmd_hello(struct resp_client *s, const struct slice *args, size_t n)
{
    int64_t version = s->writer.proto;
    if (n > 1 && !arg_int(args[1], &version)) {
        return resp_client_refuse(s, "ERR Protocol version is not an integer or out of range");
    }
    if (version < 2 || version > 3) {
        return resp_client_refuse(s, "NOPROTO unsupported protocol version");
    }
    const struct slice *user = NULL, *password = NULL, *name = NULL;
    for (size_t i = 2; i < n; i++) {
        if (arg_is(args[i], "AUTH") && i + 2 < n) {
            if (user != NULL) {
                return args_refuse_twice(s, "AUTH");
            }
            user = &args[i + 1];
            password = &args[i + 2];
            i += 2;
        } else if (arg_is(args[i], "SETNAME") && i + 1 < n) {
            if (name != NULL) {
                return args_refuse_twice(s, "SETNAME");
            }
            name = &args[++i];
        } else {
            return resp_client_refuse(s, "ERR Syntax error in HELLO option '%.*s'", arg_shown(args[i]), args[i].data);
        }
    }
    char name_text[CLIENT_NAME_MAX];
    if (name != NULL && !client_set_text(name_text, *name)) {
        return resp_client_refuse(s, CLIENT_NAME_ERROR);
    }
    enum outcome failed;
    if (user != NULL && !authenticate(s, *user, *password, &failed)) {
        return failed;
    }
    if (!resp_client_trusted(s)) {
        return resp_client_refuse(s,
                                  "NOAUTH HELLO must be called with the client already authenticated, otherwise the "
                                  "HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and "
                                  "select the RESP protocol version at the same time");
    }
    if (name != NULL) {
        client_set_text(s->name, *name);
    }
    s->writer.proto = (int)version;
    introduce(s);
    return OUTCOME_ANSWERED;
}
