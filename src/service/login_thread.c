/* The thread that checks passwords; how, login.c tells. */
#include <crypt.h>
#include <stdlib.h>

#include "base/clock.h"
#include "net/password.h"
#include "service/account_impl.h"
#include "service/login.h"

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
        if (err == &login_wrong) {
            login_count_failed(a, &check->at, p->edge);
        }
        p->err = err;
        p->who = (struct identity){account, set};
        p->message.deliver = login_checked;
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
        answer(a, check, NULL, NULL, &login_wrong);
        return;
    }
    if (!known && account != &account_default) {
        pthread_mutex_lock(&a->lock);
        if (set == accounts_now(a->service)) {
            account_memo_keep(&a->memo, check->at.hash, account);
        }
        pthread_mutex_unlock(&a->lock);
    }
    login_count_good(a, &check->at);
    answer(a, check, set, account, NULL);
}

/* The first that is due, or NULL; *until_us then says when the next one is. */
static struct login_check *take_due(struct accounts *a, int64_t *until_us)
{
    int64_t now = clock_mono_ms();
    *until_us = INT64_MAX;
    for (struct login_check **at = &a->first, *check; (check = *at) != NULL; at = &check->next) {
        if (check->at.due_ms > now) {
            *until_us = check->at.due_ms * 1000 < *until_us ? check->at.due_ms * 1000 : *until_us;
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
    int64_t until_us;
    pthread_mutex_lock(&a->lock);
    while (!task_stops(&a->task) && (check = take_due(a, &until_us)) == NULL) {
        task_wait(&a->task, until_us);
    }
    a->at_hand = check;
    pthread_mutex_unlock(&a->lock);
    heartbeat_now(&a->task.heartbeat);
    return check;
}

/* Whether it must wait for a turn, since others of its address have failed meanwhile. */
static bool must_wait(struct accounts *a, struct login_check *check)
{
    struct attempt at = check->at; /* others read that one */
    int64_t wait = at.has_turn ? 0 : login_take_turn(a, &at, clock_mono_ms());
    if (wait > 0) {
        pthread_mutex_lock(&a->lock);
        check->at = at;
        a->at_hand = NULL;
        login_put_last(a, check);
        pthread_mutex_unlock(&a->lock);
    } else if (wait < 0) {
        answer(a, check, NULL, NULL, &login_turned_away);
    }
    return wait != 0;
}

static void run(void *arg)
{
    struct accounts *a = arg;
    for (struct login_check *check = next_check(a); check != NULL; check = next_check(a)) {
        if (!must_wait(a, check)) {
            run_check(a, check);
        }
    }
}

/* --- its life --- */

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
    task_init(&a->task, &a->lock);
    int code = account_memo_init(&a->memo, err);
    return code < 0 ? code : task_start(&a->task, "logins", TASK_BEATS, run, a, err);
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
    if (a == NULL || a->scratch == NULL) {
        return;
    }
    task_stop(&a->task);
    pthread_mutex_lock(&a->lock); /* the loops still look at what waits */
    struct login_check *check = a->first;
    a->first = NULL;
    a->end = &a->first;
    pthread_mutex_unlock(&a->lock);
    for (struct login_check *next; check != NULL; check = next) {
        next = check->next;
        answer(a, check, NULL, NULL, &login_closed);
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
