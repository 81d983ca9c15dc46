/* Accounts: who asks, and what they may do. All edges decide by this file; an edge only reads a name and a password out
 * of its bytes, and keeps the `struct identity` that they earn.
 *
 * An account has a name, roles and a password's hash, and stands in the file that the option `accounts` names
 * (account_file.h). The account `default` is not in it: it has every role, and its password is requirepass. Where there
 * is neither a file nor requirepass, no client has to log in, and all are `default`.
 *
 *   a connection (RESP)                         a request at a time, many at once (HTTP, gRPC)
 *   ------------------------------------------  ----------------------------------------------
 *   struct identity lives with the connection   struct identity lives with the request
 *   account_login() where AUTH comes            account_login_header() where its headers are there
 *   account_now() before each command           account_now() once, then
 *   account_check() by the command's roles      account_check() by the route's roles
 *   service_submit() with rq->account           service_submit() with rq->account
 *
 * A login is at hand when it is remembered, or wrong in a way that costs nothing to see; that takes well under a
 * microsecond. Else a thread of its own checks the hash, which takes some 20 ms, and done() tells it: the loops never
 * wait. Failed logins are slowed by address (net/logins.h), counted and logged in here, on behalf of every edge.
 *
 * An account that a reload removes, or gives another password, is gone from open connections at once, and roles change
 * at once too: account_now() looks it up again.
 */
#ifndef UNSEEN_SERVICE_ACCOUNT_H
#define UNSEEN_SERVICE_ACCOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"

struct account_set;
struct account_pending;
struct conn;
struct request;
struct service;

enum {
    ACCOUNT_NAME_MAX = 64,      /* bytes: letters, digits, '_', '-', '.', '@' */
    ACCOUNT_PASSWORD_MAX = 255, /* bytes */
};

/* What an account may do; also what a command or a path needs. */
enum account_role {
    ROLE_ASK = 1 << 0,    /* questions, why, history, and scroll sessions */
    ROLE_RECORD = 1 << 1, /* plays and deliveries */
    ROLE_FORGET = 1 << 2,
    ROLE_LOAD = 1 << 3,  /* users of an export, and pools */
    ROLE_ADMIN = 1 << 4, /* what runs, stops or moves the server and its store, which reads all of it */
    ROLE_WATCH = 1 << 5, /* how the server is: metrics, status, INFO, months; no user's id */
    ROLE_ALL = (1 << 6) - 1,

    /* In the tables of the edges alone, instead of those: */
    ROLE_ANYBODY = 1 << 6, /* also who has not logged in */
    ROLE_ACCOUNT = 1 << 7, /* any account */
    ROLE_REQUEST = 1 << 8, /* what service_submit() finds that its request needs */
};

struct account_role_name {
    unsigned role;
    const char *name;
};
extern const struct account_role_name account_roles[]; /* in the order of their bits; ends with a row of NULL */

struct account {
    char name[ACCOUNT_NAME_MAX + 1];
    unsigned roles; /* of enum account_role, ROLE_ALL at most */
    char *hash;     /* NULL: of `default` */
};

/* Who a client is, as far as it has said. Zeroed: they have not. To be copied as you like; good until the service
 * has stopped. */
struct identity {
    const struct account *account;
    const struct account_set *set;
};

/* Who that is now. NULL: none; it must log in. A client that speaks while nothing is asked for becomes `default`, and
 * stays so when a password is set later. Any thread. */
const struct account *account_now(const struct service *s, struct identity *who);

/* Whether a client can be that account now. Any thread. */
bool account_is_known(const struct service *s, struct slice name);

/* Whether the account (NULL: not logged in) may do what needs these roles, all of them. Returns 0, ERR_NOAUTH or
 * ERR_NOPERM; edges tell them by service/refusal.h. */
int account_check(const struct account *account, unsigned roles, struct err *err);

/* Whether the account may know of which users there are. To others what the server tells of itself names none. */
bool account_sees_users(const struct account *account);

/* What a request needs. */
unsigned account_roles_for(const struct request *rq);

/* A login under way: a part of the edge's own connection or call, zeroed before its first use. */
struct account_login {
    /* The edge sets these. */
    void (*done)(struct account_login *l); /* on the connection's loop, not from within account_login() */
    const char *edge;                      /* "resp", "http", "grpc"; a constant */

    /* What came of it: */
    struct identity who;
    const struct err *err; /* NULL: it was right. Else, a constant: ERR_WRONGPASS, ERR_LOGINS (too many failed from this
                            * address), ERR_NOAUTH (no credentials), ERR_BUSY (too many wait to be checked), ERR_CLOSED
                            * (the service stops), ERR_NOMEM */

    struct account_pending *pending; /* not NULL: it is under way */
};

enum account_state {
    ACCOUNT_AT_HAND, /* what came of it is in the struct */
    ACCOUNT_LATE,    /* done() follows once, even when the peer has gone; the connection is held until then */
};

/* On the connection's loop. name and password are copied where need be. One at a time for each struct account_login. */
enum account_state account_login(struct conn *c, struct account_login *l, struct slice name, struct slice password);

/* The same by a header `authorization`: "Basic " and name:password in base64, or "Bearer " and the password of
 * `default`. data NULL: there is none; that is ERR_NOAUTH, unless no login is asked for. */
enum account_state account_login_header(struct conn *c, struct account_login *l, struct slice authorization);

/* On the connection's loop: its client is gone, and done() does not follow. Does nothing when it is not
 * under way. */
void account_cancel(struct account_login *l);

#endif
