/* Who is there: AUTH, HELLO, ACL. */
#include "resp/args.h"
#include "resp/command.h"

static void on_login(struct account_login *login)
{
    struct resp_client *s = (struct resp_client *)((char *)login - offsetof(struct resp_client, login));
    s->login_told = true;
    resp_client_answered(s);
}

/* Sets *outcome if it returns false. A login that is late leaves its request where it is; it is run again once the
 * login was told. */
static bool authenticate(struct resp_client *s, struct slice user, struct slice password, enum outcome *outcome)
{
    struct account_login *l = &s->login;
    l->done = on_login;
    l->edge = "resp";
    if (!s->login_told && account_login(&s->conn, l, user, password) == ACCOUNT_LATE) {
        *outcome = OUTCOME_LATE;
        return false;
    }
    s->login_told = false;
    if (l->err != NULL) {
        *outcome = resp_client_refuse_err(s, l->err);
        return false;
    }
    s->who = l->who;
    return true;
}

enum outcome cmd_auth(struct resp_client *s, const struct slice *args, size_t n)
{
    if (n > 3) {
        return resp_client_refuse(s, "ERR syntax error");
    }
    enum outcome failed;
    if (n == 2 && !s->login_told && resp_client_config(s)->requirepass[0] == '\0') {
        return resp_client_refuse(s, "ERR AUTH <password> called without any password configured for the default user. "
                                     "Are you sure your configuration is correct?");
    }
    if (!authenticate(s, n == 3 ? args[1] : slice_str("default"), args[n - 1], &failed)) {
        return failed;
    }
    write_simple(&s->writer, "OK");
    return OUTCOME_ANSWERED;
}

enum outcome cmd_acl_whoami(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    write_str(&s->writer, resp_client_account(s)->name);
    return OUTCOME_ANSWERED;
}

static void introduce(struct resp_client *s)
{
    struct writer *w = &s->writer;
    write_map(w, 7);
    write_pair_str(w, "server", "unseen");
    write_pair_str(w, "version", REDIS_VERSION);
    write_pair_int(w, "proto", w->proto);
    write_pair_int(w, "id", (int64_t)s->conn.id);
    write_pair_str(w, "mode", "standalone");
    write_pair_str(w, "role", role_is_master(s) ? "master" : "replica");
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
    if (resp_client_account(s) == NULL) {
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
