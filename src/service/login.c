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

#include <crypt.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/heartbeat.h"
#include "net/logins.h"
#include "net/password.h"
#include "service/account_impl.h"
#include "service/account_memo.h"

/* A login that waits, on the loop that it is told on. */
struct account_pending {
    struct loop_message message;
    struct account_pending *next;
    struct conn *conn;
    struct account_login *login; /* NULL: nobody waits any more */
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

    pthread_t thread;
    struct heartbeat heartbeat;
    bool has_thread;
    struct crypt_data *scratch; /* the thread's */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;
    bool stop;
    struct login_check *first, **end, *at_hand;
    size_t n_checks, n_waiting;
    struct account_memo memo;
};

static const struct err wrong = {.code = ERR_WRONGPASS}, turned_away = {.code = ERR_LOGINS},
                        closed = {.code = ERR_CLOSED}, no_memory = {.code = ERR_NOMEM},
                        crowded = {.code = ERR_BUSY, .text = "too many logins wait to be checked, try again"};

const struct account_set *accounts_now(const struct service *s)
{
    return atomic_load_explicit(&s->accounts->set, memory_order_acquire);
}

/* --- who guesses --- */

static uint64_t guesser_of(const struct accounts *a, uint64_t peer, struct slice name)
{
    struct slice address = {(const char *)&peer, sizeof peer};
    size_t most = name.len < ACCOUNT_NAME_MAX ? name.len : ACCOUNT_NAME_MAX;
    uint64_t guesser = account_memo_hash(&a->memo, slice_of(name.data, most), address).a;
    return peer == PEER_UNIX ? PEER_UNIX : guesser;
}

/* As logins_turn(); has_turn: where one was needed, that is, where it was taken. */
static int64_t take_turn(struct accounts *a, struct attempt *at, int64_t now)
{
    at->has_turn = logins_owes(&a->by_name, at->guesser, now) || logins_owes(&a->by_address, at->peer, now);
    int64_t one = logins_turn(&a->by_name, at->guesser, now);
    int64_t other = one < 0 ? one : logins_turn(&a->by_address, at->peer, now);
    int64_t wait = other < 0 ? other : other > one ? other : one;
    at->due_ms = wait > 0 ? now + wait : 0;
    return wait;
}

static void count_failed(struct accounts *a, const struct attempt *at, const char *edge)
{
    int64_t now = clock_mono_ms();
    logins_failed(&a->by_name, at->guesser, NULL, now);
    logins_failed(&a->by_address, at->peer, edge, now);
}

static void count_good(struct accounts *a, const struct attempt *at)
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
    count_failed(a, at, l->edge);
    return at_hand(l, NULL, NULL, &wrong);
}

static enum account_state succeed(struct accounts *a, struct account_login *l, const struct attempt *at,
                                  const struct account_set *set, const struct account *account)
{
    count_good(a, at);
    return at_hand(l, set, account, NULL);
}

static void on_checked(struct loop_message *message, void *owner)
{
    (void)owner;
    struct account_pending *p = (struct account_pending *)message;
    struct account_login *l = p->login;
    struct conn *c = p->conn;
    if (p->err == &wrong) {
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

static void put_last(struct accounts *a, struct login_check *check)
{
    check->next = NULL;
    *a->end = check;
    a->end = &check->next;
    pthread_cond_signal(&a->wake);
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
        put_last(a, check);
        a->n_checks++;
    }
    return check;
}

/* Under the lock. NULL: l->err says why. */
static struct login_check *take_in(struct accounts *a, struct account_login *l, const struct attempt *at)
{
    struct login_check *check = find_check(a, at);
    bool full = check == NULL && (a->n_checks >= LOGIN_CHECKS_MAX || count_checks(a, at->peer) >= LOGIN_CHECKS_ADDRESS);
    if (a->stop) {
        l->err = &closed;
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
        return at_hand(l, NULL, &account_default, is_default ? NULL : &wrong);
    }
    struct attempt at = {.name = name, .password = password, .peer = c->peer};
    at.guesser = guesser_of(a, c->peer, name);
    if (take_turn(a, &at, clock_mono_ms()) < 0) {
        return at_hand(l, NULL, NULL, &turned_away);
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

/* --- on the thread --- */

static const char nobodys_hash[] = "$y$j9T$F5Jx5fExrKuPp53xLKQ..1$6foLM1JhGupouWKMU70wxK61Kw9ZnecbACjJwRadqM2";

static bool hash_is_right(struct accounts *a, const char *hash, const char *password)
{
    const char *made = crypt_rn(password, hash, a->scratch, (int)sizeof *a->scratch);
    size_t n = strlen(hash);
    unsigned char difference = made == NULL || strlen(made) != n;
    for (size_t i = 0; difference == 0 && i < n; i++) {
        difference |= (unsigned char)(made[i] ^ hash[i]);
    }
    explicit_bzero(a->scratch, sizeof *a->scratch);
    return difference == 0;
}

static const struct account *look_at(struct accounts *a, const struct login_check *check, const struct account_set *set)
{
    const char *required = config_now(a->service->pool->cfg)->requirepass;
    if (slice_eq(check->at.name, slice_str(account_default.name)) && required[0] != '\0') {
        return password_right(required, check->at.password) ? &account_default : NULL;
    }
    const struct account *account = account_set_find(set, check->at.name);
    const char *hash = account != NULL             ? account->hash
                       : set != NULL && set->n > 0 ? set->accounts[0].hash
                                                   : nobodys_hash;
    bool right = hash_is_right(a, hash, check->password);
    return right ? account : NULL;
}

/* Tells everybody who waits for it. */
static void answer(struct accounts *a, struct login_check *check, const struct account_set *set,
                   const struct account *account, const struct err *err)
{
    pthread_mutex_lock(&a->lock);
    a->at_hand = NULL;
    a->n_checks--;
    for (const struct account_pending *p = check->waiting; p != NULL; p = p->next) {
        a->n_waiting--;
    }
    pthread_mutex_unlock(&a->lock);
    for (struct account_pending *p = check->waiting, *next; p != NULL; p = next) {
        next = p->next;
        if (err == &wrong) {
            count_failed(a, &check->at, p->edge);
        }
        p->err = err;
        p->who = (struct identity){account, set};
        p->message.deliver = on_checked;
        loop_queue_post(&p->conn->worker->queue, &p->message);
    }
    explicit_bzero(check, sizeof *check);
    free(check);
}

static void run_check(struct accounts *a, struct login_check *check)
{
    const struct account_set *set = accounts_now(a->service);
    pthread_mutex_lock(&a->lock);
    const struct account *account = account_memo_find(&a->memo, check->at.hash);
    pthread_mutex_unlock(&a->lock);
    bool known = account != NULL;
    if (!known) {
        account = look_at(a, check, set);
    }
    if (account == NULL) {
        answer(a, check, NULL, NULL, &wrong);
        return;
    }
    if (!known && account != &account_default) {
        pthread_mutex_lock(&a->lock);
        if (set == accounts_now(a->service)) {
            account_memo_keep(&a->memo, check->at.hash, account);
        }
        pthread_mutex_unlock(&a->lock);
    }
    count_good(a, &check->at);
    answer(a, check, set, account, NULL);
}

/* The first that is due, or NULL; *wait_ms then says for how long. */
static struct login_check *take_due(struct accounts *a, int64_t *wait_ms)
{
    int64_t now = clock_mono_ms();
    *wait_ms = HEARTBEAT_EVERY_MS;
    for (struct login_check **at = &a->first, *check; (check = *at) != NULL; at = &check->next) {
        if (check->at.due_ms > now) {
            *wait_ms = check->at.due_ms - now < *wait_ms ? check->at.due_ms - now : *wait_ms;
            continue;
        }
        *at = check->next;
        a->end = *at == NULL ? at : a->end;
        return check;
    }
    return NULL;
}

static struct login_check *next_check(struct accounts *a)
{
    struct login_check *check = NULL;
    int64_t wait_ms;
    pthread_mutex_lock(&a->lock);
    while (!a->stop && (check = take_due(a, &wait_ms)) == NULL) {
        heartbeat_now(&a->heartbeat);
        clock_cond_wait_real(&a->wake, &a->lock, wait_ms);
    }
    a->at_hand = check;
    pthread_mutex_unlock(&a->lock);
    heartbeat_now(&a->heartbeat);
    return check;
}

/* Whether it must wait for a turn, since others of its address have failed meanwhile. */
static bool must_wait(struct accounts *a, struct login_check *check)
{
    struct attempt at = check->at; /* others read that one */
    int64_t wait = at.has_turn ? 0 : take_turn(a, &at, clock_mono_ms());
    if (wait > 0) {
        pthread_mutex_lock(&a->lock);
        check->at = at;
        a->at_hand = NULL;
        put_last(a, check);
        pthread_mutex_unlock(&a->lock);
    } else if (wait < 0) {
        answer(a, check, NULL, NULL, &turned_away);
    }
    return wait != 0;
}

static void *thread_main(void *arg)
{
    struct accounts *a = arg;
    heartbeat_begin(&a->heartbeat, "logins");
    for (struct login_check *check = next_check(a); check != NULL; check = next_check(a)) {
        if (!must_wait(a, check)) {
            run_check(a, check);
        }
    }
    heartbeat_end(&a->heartbeat);
    return NULL;
}

/* --- its life --- */

/* Signals are the main thread's business. */
static int start_thread(struct accounts *a, struct err *err)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int code = pthread_create(&a->thread, NULL, thread_main, a);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    a->has_thread = code == 0;
    return code == 0 ? 0 : err_set(err, ERR_SYSTEM, "can't start the thread for logins: %s", strerror(code));
}

int accounts_open(struct service *s, struct account_set *set, struct err *err)
{
    struct accounts *a = s->accounts = calloc(1, sizeof *a);
    if (a == NULL || (a->scratch = calloc(1, sizeof *a->scratch)) == NULL) {
        account_set_free(set);
        return err_set(err, ERR_NOMEM, "out of memory for the accounts");
    }
    a->service = s;
    a->end = &a->first;
    a->newest = set;
    logins_init(&a->by_name, LOGIN_FREE);
    logins_init(&a->by_address, LOGIN_FREE_ADDRESS);
    atomic_init(&a->set, set);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->wake, NULL);
    int code = account_memo_init(&a->memo, err);
    return code < 0 ? code : start_thread(a, err);
}

bool accounts_replace(struct service *s, struct account_set *set)
{
    struct accounts *a = s->accounts;
    if (account_set_equal(set, atomic_load(&a->set))) {
        account_set_free(set);
        return false;
    }
    if (set != NULL) {
        set->older = a->newest;
        a->newest = set;
    }
    pthread_mutex_lock(&a->lock);
    atomic_store_explicit(&a->set, set, memory_order_release);
    account_memo_forget(&a->memo);
    pthread_mutex_unlock(&a->lock);
    return true;
}

void accounts_stop(struct service *s)
{
    struct accounts *a = s->accounts;
    if (a == NULL || !a->has_thread) {
        return;
    }
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    a->has_thread = false;
    pthread_mutex_lock(&a->lock); /* the loops still look at what waits */
    struct login_check *check = a->first;
    a->first = NULL;
    a->end = &a->first;
    pthread_mutex_unlock(&a->lock);
    for (struct login_check *next; check != NULL; check = next) {
        next = check->next;
        answer(a, check, NULL, NULL, &closed);
    }
}

void accounts_free(struct service *s)
{
    struct accounts *a = s->accounts;
    if (a == NULL) {
        return;
    }
    for (struct account_set *set = a->newest, *older; set != NULL; set = older) {
        older = set->older;
        account_set_free(set);
    }
    free(a->scratch);
    explicit_bzero(&a->memo, sizeof a->memo);
    free(a);
    s->accounts = NULL;
}
