/* How the store is asked: at once, later, or by a thread that waits. What is made of the store's answer stands in
 * answers.c.
 *
 *   asker_begin() -> load() -> answered: asker_end()
 *                           -> later:    on_loaded() -> wake() -> asker_deliver() -> done() -> asker_end()
 *
 * An asker has a reader for each question that the store is at. A store that answers at once only ever needs one.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "dedup/asker_impl.h"
#include "dedup/pool_match.h"
#include "store/memos.h"

_Static_assert(sizeof(struct asker_load) <= ASKER_LOAD_BYTES, "what a begun question takes");

/* --- lists --- */

static void list_add(struct asker_list *list, struct asker_load *l)
{
    l->next = NULL;
    *list->end = l;
    list->end = &l->next;
}

static struct asker_load *list_take(struct asker_list *list)
{
    struct asker_load *l = list->first;
    if (l != NULL) {
        list->first = l->next;
        list->end = list->first == NULL ? &list->first : list->end;
    }
    return l;
}

static bool list_remove(struct asker_list *list, const struct asker_load *l)
{
    struct asker_load **at = &list->first;
    while (*at != NULL && *at != l) {
        at = &(*at)->next;
    }
    bool found = *at != NULL;
    if (found) {
        *at = l->next;
        list->end = *at == NULL ? at : list->end;
    }
    return found;
}

enum { MONTHS_KEPT = 256 };

/* --- opening and closing --- */

static void leave_cold(const struct asker *a, struct store_reader *reader)
{
    const struct store_ops *ops = a->dedup->store->ops;
    if (a->leaves_cold && ops->reader_leave_cold != NULL) {
        ops->reader_leave_cold(reader);
    }
}

/* NULL: all that there may be are at work (0 in *rc), or another one can't be opened. */
static struct store_reader *take_reader(struct asker *a, int *rc, struct err *err)
{
    *rc = 0;
    if (a->n_idle == 0 && a->n_readers < ASKER_READERS) {
        *rc = a->dedup->store->ops->reader_open(a->dedup->store, &a->readers[a->n_readers], err);
        if (*rc == 0) {
            leave_cold(a, a->readers[a->n_readers]);
            a->idle[a->n_idle++] = a->readers[a->n_readers++];
        }
    }
    return a->n_idle > 0 ? a->idle[--a->n_idle] : NULL;
}

int asker_open(const struct dedup *d, struct asker **asker, struct err *err)
{
    struct asker *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    a->dedup = d;
    a->waiting.end = &a->waiting.first;
    a->answered.end = &a->answered.first;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->came, NULL);
    int rc = view_probe_init(&a->view, err);
    a->sieve = sieve_new();
    a->spare = calloc(1, sizeof *a->spare);
    if (rc == 0 && (a->sieve == NULL || a->spare == NULL)) {
        rc = err_set(err, ERR_NOMEM, "out of memory");
    }
    if (rc == 0) {
        a->idle[0] = take_reader(a, &rc, err);
        a->n_idle = rc == 0;
    }
    if (rc < 0) {
        asker_close(a);
        return rc;
    }
    *asker = a;
    return 0;
}

static void free_list(struct asker_list *list)
{
    for (struct asker_load *l = list_take(list); l != NULL; l = list_take(list)) {
        free(l);
    }
}

/* Closing a reader ends what the store is at, so all of that is among the answered ones then. */
void asker_close(struct asker *a)
{
    if (a == NULL) {
        return;
    }
    for (size_t i = 0; i < a->n_readers; i++) {
        a->dedup->store->ops->reader_close(a->readers[i]);
    }
    free_list(&a->answered);
    free_list(&a->waiting);
    pthread_cond_destroy(&a->came);
    pthread_mutex_destroy(&a->lock);
    view_probe_free(&a->view);
    exposure_memory_free(&a->exposure);
    exposure_groups_free(&a->groups);
    buf_free(&a->sent);
    sieve_free(a->sieve);
    free(a->spare);
    free(a->kept);
    free(a->months);
    free(a);
}

void asker_leave_large(struct asker *a)
{
    sieve_free(a->sieve);
    a->sieve = NULL;
}

void asker_leave_cold(struct asker *a)
{
    struct store_month_info months[MONTHS_KEPT];
    a->leaves_cold = true;
    asker_months(a, months, MONTHS_KEPT, NULL); /* what failed is said when it is asked for */
    for (size_t i = 0; i < a->n_readers; i++) {
        leave_cold(a, a->readers[i]);
    }
}

void asker_on_answers(struct asker *a, void (*wake)(void *arg), void *arg)
{
    a->wake = wake;
    a->wake_arg = arg;
}

/* --- asking --- */

/* Who takes all that has come is woken once. */
static void put_answered(struct asker *a, struct asker_load *l)
{
    pthread_mutex_lock(&a->lock);
    bool first = a->answered.first == NULL;
    list_add(&a->answered, l);
    pthread_cond_signal(&a->came);
    pthread_mutex_unlock(&a->lock);
    if (first && a->wake != NULL) {
        a->wake(a->wake_arg);
    }
}

/* On a thread of the store. */
static void on_loaded(struct store_load *load)
{
    struct asker_load *l = load->owner;
    put_answered(l->asker, l);
}

static void release(struct asker *a, struct asker_load *l)
{
    if (l->reader != NULL) {
        if (a->dedup->store->ops->rest != NULL) {
            a->dedup->store->ops->rest(l->reader);
        }
        a->idle[a->n_idle++] = l->reader;
    }
    if (a->spare == NULL) {
        a->spare = l;
    } else {
        free(l);
    }
    while (a->waiting.first != NULL && a->n_idle > 0) {
        struct asker_load *next = list_take(&a->waiting);
        next->reader = a->idle[--a->n_idle];
        if (a->dedup->store->ops->load(next->reader, &next->load) != STORE_LATER) {
            put_answered(a, next); /* done() is never called from within another call */
        }
    }
}

static int first_month(const struct dedup *d, const struct query *q)
{
    return q->kind == QUERY_HISTORY ? INT_MIN : q->first_month > 0 ? q->first_month : dedup_first_month(d);
}

static struct asker_load *load_new(struct asker *a, const struct query *q)
{
    struct asker_load *l = a->spare != NULL ? a->spare : calloc(1, sizeof *l);
    a->spare = NULL;
    if (l != NULL) {
        const struct dedup *d = a->dedup;
        l->asker = a;
        l->reader = NULL;
        l->dropped = false;
        l->done = NULL;
        memcpy(l->user, q->user.data, q->user.len);
        l->load.user = slice_of(l->user, q->user.len);
        l->load.key = hash_user_key(d->seed, q->user);
        l->load.first_month = first_month(d, q);
        l->load.done = on_loaded;
        l->load.owner = l;
    }
    return l;
}

int asker_begin(struct asker *a, struct query *q, struct asker_load **load, struct err *err)
{
    struct asker_load *l = q->user.len <= ID_MAX ? load_new(a, q) : NULL;
    if (q->user.len > ID_MAX) {
        return dedup_check_id("user", 0, q->user, err);
    }
    if (l == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    int rc;
    l->reader = take_reader(a, &rc, err);
    if (rc < 0) {
        release(a, l);
        return rc;
    }
    if (l->reader == NULL) {
        list_add(&a->waiting, l);
    } else if (a->dedup->store->ops->load(l->reader, &l->load) != STORE_LATER) {
        return asker_end(a, l, q, err);
    }
    *load = l;
    return STORE_LATER;
}

void asker_on_done(struct asker_load *l, void (*done)(void *owner), void *owner)
{
    l->done = done;
    l->owner = owner;
}

int asker_end(struct asker *a, struct asker_load *l, struct query *q, struct err *err)
{
    const struct store_ops *ops = a->dedup->store->ops;
    int rc = l->load.err.code;
    if (rc == 0 && ops->view != NULL) {
        rc = ops->view(l->reader, &l->load);
    }
    if (rc == 0) {
        rc = answer_from_view(a, &l->load.view, q, err);
    } else if (rc == ERR_LARGE && a->sieve != NULL) {
        rc = answer_large(a, l, q, err);
    } else {
        err_set(err, rc, "%s", l->load.err.text);
    }
    release(a, l);
    return rc;
}

bool asker_is_good(const struct asker_load *l)
{
    return l->load.err.code == 0;
}

bool asker_matches(const struct asker_load *l, const struct pool_line *line)
{
    return pool_match_pays(line, &l->load.view);
}

int asker_part(struct asker *a, struct asker_load *l, struct query *q, struct err *err)
{
    return answer_from_view(a, &l->load.view, q, err);
}

void asker_done(struct asker *a, struct asker_load *l)
{
    release(a, l);
}

void asker_load_free(struct asker_load *l)
{
    free(l);
}

void asker_drop(struct asker *a, struct asker_load *l)
{
    if (list_remove(&a->waiting, l)) {
        release(a, l);
    } else {
        l->dropped = true;
    }
}

void asker_deliver(struct asker *a)
{
    pthread_mutex_lock(&a->lock);
    struct asker_list all = a->answered;
    a->answered = (struct asker_list){NULL, &a->answered.first};
    pthread_mutex_unlock(&a->lock);
    for (struct asker_load *l = all.first, *next; l != NULL; l = next) {
        next = l->next;
        if (l->dropped) {
            release(a, l);
        } else {
            l->done(l->owner);
        }
    }
}

int asker_recent(struct asker *a, struct query *q, uint64_t *left, struct err *err)
{
    const struct store *store = a->dedup->store;
    if (store->ops->recent == NULL) {
        return store_lacks(store, "users in memory", err);
    }
    int rc;
    struct store_reader *reader = take_reader(a, &rc, err);
    if (reader == NULL) {
        return rc < 0 ? rc : err_set(err, ERR_BUSY, "the store has %d questions already", ASKER_READERS);
    }
    struct store_load load = {
        .key = hash_user_key(a->dedup->seed, q->user), .user = q->user, .first_month = first_month(a->dedup, q)};
    rc = store->ops->recent(reader, &load, left);
    rc = rc < 0 ? err_set(err, rc, "%s", load.err.text) : answer_from_view(a, &load.view, q, err);
    a->idle[a->n_idle++] = reader;
    return rc;
}

/* --- asking, and waiting --- */

/* False: it was stopped before. */
static bool wait_for(struct asker *a, struct asker_load *l)
{
    pthread_mutex_lock(&a->lock);
    while (a->answered.first == NULL && !a->stopped) {
        pthread_cond_wait(&a->came, &a->lock);
    }
    bool came = list_remove(&a->answered, l);
    pthread_mutex_unlock(&a->lock);
    return came;
}

int asker_ask(struct asker *a, struct query *q, struct err *err)
{
    struct asker_load *l;
    int rc = asker_begin(a, q, &l, err);
    if (rc != STORE_LATER) {
        return rc;
    }
    if (!wait_for(a, l)) {
        asker_drop(a, l);
        return err_set(err, ERR_CLOSED, "it was stopped before the store had answered");
    }
    return asker_end(a, l, q, err);
}

void asker_stop(struct asker *a)
{
    pthread_mutex_lock(&a->lock);
    a->stopped = true;
    pthread_cond_signal(&a->came);
    pthread_mutex_unlock(&a->lock);
}

int asker_why(struct asker *a, struct slice user, uint64_t hash, struct place places[PLACES_MAX], struct err *err)
{
    struct query q = {.kind = QUERY_WHY, .user = user, .hashes = &hash, .n = 1, .places = places};
    int rc = asker_ask(a, &q, err);
    return rc == 0 ? (int)q.n_places : rc;
}

int asker_history(struct asker *a, struct slice user, struct history *out, struct err *err)
{
    struct query q = {.kind = QUERY_HISTORY, .user = user, .history = out};
    int rc = asker_ask(a, &q, err);
    return rc == 0 ? q.known : rc;
}

/* Keeps what was found, or, when that is cold, takes what was kept. */
static int keep_months(struct asker *a, struct store_month_info *out, int max, int n, struct err *err)
{
    if (n == ERR_COLD && a->kept != NULL) {
        err_set(err, 0, "%s", "");
        n = a->n_kept < max ? a->n_kept : max;
        memcpy(out, a->kept, (size_t)n * sizeof *out);
    } else if (n == ERR_COLD) {
        n = err_set(err, ERR_BUSY, "the list of months is being read from the disk: ask again");
    } else if (n >= 0 && a->leaves_cold) {
        struct store_month_info *kept = n < a->cap_kept ? a->kept : realloc(a->kept, (size_t)(n + 1) * sizeof *kept);
        if (kept != NULL) {
            a->kept = kept;
            a->cap_kept = n < a->cap_kept ? a->cap_kept : n + 1;
            a->n_kept = n;
            memcpy(kept, out, (size_t)n * sizeof *kept);
        }
    }
    return n;
}

int asker_memo(struct asker *a, const char *name, struct buf *value, struct err *err)
{
    const struct store *store = a->dedup->store;
    int n = 0;
    if (store->memos == NULL) {
        return 0;
    }
    struct store_reader *reader = take_reader(a, &n, err);
    if (reader == NULL) {
        return n < 0 ? n : err_set(err, ERR_BUSY, "the store has %d questions already", ASKER_READERS);
    }
    int result = store->memos->read(reader, name, value, err);
    a->idle[a->n_idle++] = reader;
    return result;
}

int asker_months(struct asker *a, struct store_month_info *out, int max, struct err *err)
{
    int first = dedup_first_month(a->dedup), n;
    const struct store *store = a->dedup->store;
    if (store->admin == NULL) {
        return store_lacks(store, "months", err);
    }
    struct store_reader *reader = take_reader(a, &n, err);
    if (reader == NULL) {
        return n < 0 ? n : err_set(err, ERR_BUSY, "the store has %d questions already", ASKER_READERS);
    }
    n = keep_months(a, out, max, store->admin->months(reader, out, max, err), err);
    a->idle[a->n_idle++] = reader;
    for (int i = 0; i < n; i++) {
        out[i].in_window = out[i].month >= first;
    }
    return n;
}
