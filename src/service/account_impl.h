/* What the files about accounts share. */
#ifndef UNSEEN_SERVICE_ACCOUNT_IMPL_H
#define UNSEEN_SERVICE_ACCOUNT_IMPL_H

#include <pthread.h>

#include "base/task.h"
#include "net/logins.h"
#include "service/account_file.h"
#include "service/account_memo.h"
#include "service/service.h"

struct crypt_data;

/* A login that waits, on the loop that it is told on. */
struct account_pending {
    struct loop_message message;
    struct account_pending *next;
    struct conn *conn;
    struct account_login *login; /* NULL: no client waits any more */
    const char *edge;
    struct identity who;
    const struct err *err;
};

/* Who says what. */
struct attempt {
    struct slice name, password;
    struct siphash hash; /* of both */
    uint64_t peer, guesser;
    int64_t due_ms; /* not to be looked at before; 0: now */
    bool has_turn;
};

struct login_check {
    struct login_check *next;
    struct account_pending *waiting;
    struct attempt at; /* its texts are these: */
    char name[ACCOUNT_NAME_MAX + 1], password[ACCOUNT_PASSWORD_MAX + 1];
};

struct accounts {
    struct service *service;
    struct logins by_address, by_name;
    _Atomic(struct account_set *) set;
    struct account_set *newest; /* of all that there were */

    struct task task;
    struct crypt_data *scratch; /* the thread's */

    pthread_mutex_t lock; /* of what follows */
    struct login_check *first, **end, *at_hand;
    size_t n_checks, n_waiting;
    struct account_memo memo;
};

extern const struct account account_default;

/* authorization.c: whose name and password the header holds, in the header or in text; both empty: none. */
enum { AUTHORIZATION_MAX = ACCOUNT_NAME_MAX + 1 + ACCOUNT_PASSWORD_MAX + 2 };
void authorization_read(struct slice header, char text[AUTHORIZATION_MAX], struct slice *name, struct slice *password);

/* The set in force; NULL: no file. */
static inline const struct account_set *accounts_now(const struct service *s)
{
    return atomic_load_explicit(&s->accounts->set, memory_order_acquire);
}

/* login.c, for login_thread.c. */
extern const struct err login_wrong, login_turned_away, login_closed;

/* Who guesses has a turn: as logins_turn(); has_turn: where one was needed, that is, where it was taken. */
int64_t login_take_turn(struct accounts *a, struct attempt *at, int64_t now_ms);
void login_count_failed(struct accounts *a, const struct attempt *at, const char *edge);
void login_count_good(struct accounts *a, const struct attempt *at);

void login_put_last(struct accounts *a, struct login_check *check); /* under the lock */

/* deliver() of struct account_pending. */
void login_checked(struct loop_message *message, void *owner);

#endif
