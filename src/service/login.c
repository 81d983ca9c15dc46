/* How a login is checked.
 *
 * An address that has failed often has to wait for its turn first (net/logins.h), whatever it says. Then the password
 * of `default` is compared at once, and one that was right before is remembered. What is left is hashed by a thread of
 * its own, one after the other: its list is in the order of coming, and one that must wait for its turn has a time
 * before which it is not looked at. What fails while others of its address wait makes those wait for a turn, too, so
 * that many at once gain nothing; for the same reason nothing is remembered for an address of which many wait.
 *
 * Equal logins of one address that wait are one check. So a crowd of clients that comes back costs one.
 *
 * Who guesses is an address and a name. So a client with an old password slows only itself, and an account of one's own
 * doesn't help to guess another's. Beyond that an address has a bound for all names, which ends with any right
 * password.
 *
 * An unknown name is hashed as well, and then refused, since the time would tell which names there are.
 */
#include "service/login.h"

#include <stdlib.h>

#include "base/clock.h"
#include "net/password.h"
#include "service/account_impl.h"

const struct err login_wrong = {.code = ERR_WRONGPASS}, login_turned_away = {.code = ERR_LOGINS},
                 login_closed = {.code = ERR_CLOSED};
static const struct err no_memory = {.code = ERR_NOMEM},
                        crowded = {.code = ERR_BUSY, .text = "too many logins wait to be checked, try again"};

/* --- who guesses --- */

static uint64_t guesser_of(const struct accounts *a, uint64_t peer, struct slice name)
{
    struct slice address = {(const char *)&peer, sizeof peer};
    size_t most = name.len < ACCOUNT_NAME_MAX ? name.len : ACCOUNT_NAME_MAX;
    uint64_t guesser = account_memo_hash(&a->memo, slice_of(name.data, most), address).a;
    return peer == PEER_UNIX ? PEER_UNIX : guesser;
}

int64_t login_take_turn(struct accounts *a, struct attempt *at, int64_t now)
{
    at->has_turn = logins_owes(&a->by_name, at->guesser, now) || logins_owes(&a->by_address, at->peer, now);
    int64_t one = logins_turn(&a->by_name, at->guesser, now);
    int64_t other = one < 0 ? one : logins_turn(&a->by_address, at->peer, now);
    int64_t wait = other < 0 ? other : other > one ? other : one;
    at->due_ms = wait > 0 ? now + wait : 0;
    return wait;
}

void login_count_failed(struct accounts *a, const struct attempt *at, const char *edge)
{
    int64_t now = clock_mono_ms();
    logins_failed(&a->by_name, at->guesser, NULL, now);
    logins_failed(&a->by_address, at->peer, edge, now);
}

void login_count_good(struct accounts *a, const struct attempt *at)
{
    logins_good(&a->by_name, at->guesser);
    logins_good(&a->by_address, at->peer);
}

/* --- on a loop --- */

static enum account_state at_hand(struct account_login *l, const struct account_set *set, const struct account *account,
                                  const struct err *err)
{
    l->err = err;
    l->who = err == NULL ? (struct identity){account, set} : (struct identity){NULL, NULL};
    return ACCOUNT_AT_HAND;
}

static enum account_state fail(struct accounts *a, struct account_login *l, struct conn *c, const struct attempt *at)
{
    worker_count(c->worker, COUNT_FAILED_LOGINS, 1);
    login_count_failed(a, at, l->edge);
    return at_hand(l, NULL, NULL, &login_wrong);
}

static enum account_state succeed(struct accounts *a, struct account_login *l, const struct attempt *at,
                                  const struct account_set *set, const struct account *account)
{
    login_count_good(a, at);
    return at_hand(l, set, account, NULL);
}

void login_checked(struct loop_message *message, void *owner)
{
    (void)owner;
    struct account_pending *p = (struct account_pending *)message;
    struct account_login *l = p->login;
    struct conn *c = p->conn;
    if (p->err == &login_wrong) {
        worker_count(c->worker, COUNT_FAILED_LOGINS, 1);
    }
    if (l != NULL) {
        l->pending = NULL;
        l->err = p->err;
        l->who = p->who;
        l->done(l);
    }
    conn_release(c);
    free(p);
}

void account_cancel(struct account_login *l)
{
    if (l->pending != NULL) {
        l->pending->login = NULL;
        l->pending = NULL;
    }
}

static size_t count_checks(const struct accounts *a, uint64_t peer)
{
    size_t n = 0;
    for (const struct login_check *check = a->first; check != NULL; check = check->next) {
        n += check->at.peer == peer;
    }
    return n;
}

static bool is_same(const struct login_check *check, const struct attempt *at)
{
    return check->at.peer == at->peer && !check->at.has_turn && account_memo_same(check->at.hash, at->hash);
}

/* One that needs no turn; also the one that is being hashed. */
static struct login_check *find_check(const struct accounts *a, const struct attempt *at)
{
    if (at->has_turn) {
        return NULL;
    }
    if (a->at_hand != NULL && is_same(a->at_hand, at)) {
        return a->at_hand;
    }
    struct login_check *check = a->first;
    while (check != NULL && !is_same(check, at)) {
        check = check->next;
    }
    return check;
}

void login_put_last(struct accounts *a, struct login_check *check)
{
    check->next = NULL;
    *a->end = check;
    a->end = &check->next;
    task_wake(&a->task);
}

static struct login_check *add_check(struct accounts *a, const struct attempt *at)
{
    struct login_check *check = calloc(1, sizeof *check);
    if (check != NULL) {
        check->at = *at;
        memcpy(check->name, at->name.data, at->name.len);
        memcpy(check->password, at->password.data, at->password.len);
        check->at.name.data = check->name;
        check->at.password.data = check->password;
        login_put_last(a, check);
        a->n_checks++;
    }
    return check;
}

/* Under the lock. NULL: l->err says why. */
static struct login_check *take_in(struct accounts *a, struct account_login *l, const struct attempt *at)
{
    struct login_check *check = find_check(a, at);
    bool full = check == NULL && (a->n_checks >= LOGIN_CHECKS_MAX || count_checks(a, at->peer) >= LOGIN_CHECKS_ADDRESS);
    if (task_stops(&a->task)) {
        l->err = &login_closed;
        return NULL;
    }
    if (full || a->n_waiting >= LOGIN_WAITING_MAX) {
        l->err = &crowded;
        return NULL;
    }
    if (check == NULL && (check = add_check(a, at)) == NULL) {
        l->err = &no_memory;
    }
    return check;
}

static enum account_state wait_for(struct accounts *a, struct conn *c, struct account_login *l,
                                   const struct attempt *at)
{
    struct account_pending *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return at_hand(l, NULL, NULL, &no_memory);
    }
    const struct account_set *set = accounts_now(a->service);
    pthread_mutex_lock(&a->lock);
    bool look = at->due_ms == 0 && count_checks(a, at->peer) < LOGIN_FREE;
    const struct account *known = look ? account_memo_find(&a->memo, at->hash) : NULL;
    struct login_check *check = known == NULL ? take_in(a, l, at) : NULL;
    if (check != NULL) {
        *p = (struct account_pending){.conn = c, .login = l, .edge = l->edge, .next = check->waiting};
        check->waiting = p;
        a->n_waiting++;
        l->pending = p;
        conn_hold(c);
    }
    pthread_mutex_unlock(&a->lock);
    if (check != NULL) {
        return ACCOUNT_LATE;
    }
    free(p);
    return known != NULL ? succeed(a, l, at, set, known) : at_hand(l, NULL, NULL, l->err);
}

/* No account has such a name, or such a password; a NUL would end it early for libcrypt. */
static bool is_hopeless(struct slice name, struct slice password)
{
    return name.len > ACCOUNT_NAME_MAX || password.len > ACCOUNT_PASSWORD_MAX ||
           memchr(password.data, '\0', password.len) != NULL;
}

enum account_state account_login(struct conn *c, struct account_login *l, struct slice name, struct slice password)
{
    struct accounts *a = c->worker->pool->service->accounts;
    const struct account_set *set = accounts_now(a->service);
    const char *required = config_now(c->worker->pool->cfg)->requirepass;
    bool is_default = slice_eq(name, slice_str(account_default.name));
    if (set == NULL && required[0] == '\0') {
        return at_hand(l, NULL, &account_default, is_default ? NULL : &login_wrong);
    }
    struct attempt at = {.name = name, .password = password, .peer = c->peer};
    at.guesser = guesser_of(a, c->peer, name);
    if (login_take_turn(a, &at, clock_mono_ms()) < 0) {
        return at_hand(l, NULL, NULL, &login_turned_away);
    }
    if (is_hopeless(name, password)) {
        return fail(a, l, c, &at);
    }
    if (at.due_ms == 0 && is_default && required[0] != '\0') {
        return password_right(required, password) ? succeed(a, l, &at, set, &account_default) : fail(a, l, c, &at);
    }
    at.hash = account_memo_hash(&a->memo, name, password);
    return wait_for(a, c, l, &at);
}
