#include "legacy/migration_batch.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "store/bulk.h"
#include "store/migration.h"

enum {
    LISTS = 3,
    MARK_MAX = 200,           /* users of one transaction: each touches a page of its own */
    HAND_USERS = 8192,        /* handed over at least when so many are gathered ... */
    HAND_US = 1000 * 1000,    /* ... or the first has waited for so long ... */
    HAND_BYTES_MIN = 1 << 20, /* ... or they take a part of staging_memory, within these */
    HAND_BYTES_MAX = 32 << 20,
    HAND_SHARE = 8,
};

enum { MIGRATED, LEFT, OUTCOMES }; /* of a user */

struct list {
    struct arena arena;
    struct slice *users[OUTCOMES];
    size_t n[OUTCOMES], cap[OUTCOMES];
    struct store_problem *problems;
    size_t n_problems, cap_problems;
    int64_t since_us; /* 0: it is empty */
};

/* A change of notes, or several, one after the other. */
struct marking {
    struct store_migration_change users_to_migrate; /* the one under way; first */
    struct store *store;
    struct list *list; /* whose users are marked; NULL: one change is all */
    int outcome;       /* of those that are next, */
    size_t at;         /* and the first of them */
    bool done;         /* guarded by the mutex */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
};

struct migration_batch {
    struct store *store;
    struct heartbeat *heartbeat;
    bool loading;
    struct list lists[LISTS];
    struct list *filling, *merging, *marked;
    struct marking marking;
    uint64_t unlisted;
};

/* --- lists --- */

static void list_clear(struct list *list)
{
    arena_reset(&list->arena);
    list->n[MIGRATED] = list->n[LEFT] = list->n_problems = 0;
    list->since_us = 0;
}

static int grow(void *array, size_t *cap, size_t n, size_t size)
{
    if (n < *cap) {
        return 0;
    }
    size_t more = *cap > 0 ? 2 * *cap : 256;
    void *grown = reallocarray(*(void **)array, more, size);
    if (grown == NULL) {
        return ERR_NOMEM;
    }
    *(void **)array = grown;
    *cap = more;
    return 0;
}

static int add_text(struct list *list, struct slice from, struct slice *to)
{
    char *copy = arena_copy(&list->arena, from.data, from.len);
    *to = slice_of(copy, from.len);
    return copy != NULL ? 0 : ERR_NOMEM;
}

static int add_problem(struct list *list, const char *form, struct slice user, const struct fetch_problem *p)
{
    if (p->what[0] == '\0') {
        return 0;
    }
    char key[LEGACY_KEY_MAX], what[FETCH_WHAT + 64];
    if (p->members > 1) {
        snprintf(what, sizeof what, "%s (and %" PRIu64 " more members)", p->what, p->members - 1);
    } else {
        snprintf(what, sizeof what, "%s", p->what);
    }
    if (grow(&list->problems, &list->cap_problems, list->n_problems, sizeof *list->problems) < 0) {
        return ERR_NOMEM;
    }
    struct store_problem *problem = &list->problems[list->n_problems];
    if (add_text(list, legacy_key_make(form, user, key), &problem->key) < 0 ||
        add_text(list, slice_str(what), &problem->what) < 0) {
        return ERR_NOMEM;
    }
    list->n_problems++;
    return 0;
}

int migration_batch_user(struct migration_batch *g, const struct fetch_user *t, const struct fetch_rules *rules,
                         struct err *err)
{
    struct list *list = g->filling;
    struct slice user = slice_of(t->user, t->user_len);
    int outcome = t->played.whole || t->delivered.whole ? LEFT : MIGRATED;
    if (grow(&list->users[outcome], &list->cap[outcome], list->n[outcome], sizeof *list->users[outcome]) < 0 ||
        add_text(list, user, &list->users[outcome][list->n[outcome]]) < 0 ||
        add_problem(list, rules->played_key, user, &t->played) < 0 ||
        add_problem(list, rules->delivered_key, user, &t->delivered) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory while migrating");
    }
    list->n[outcome]++;
    if (list->since_us == 0) {
        list->since_us = clock_real_us();
    }
    return 0;
}

/* --- marking --- */

/* The next users to be marked. */
static bool next_users(struct marking *m)
{
    static const enum store_note states[OUTCOMES] = {MIGRATION_DONE, MIGRATION_LEFT};
    struct list *list = m->list;
    while (list != NULL && m->outcome < OUTCOMES) {
        size_t left = list->n[m->outcome] - m->at;
        if (left > 0) {
            size_t n = left < MARK_MAX ? left : MARK_MAX;
            m->users_to_migrate.kind = MIGRATION_MARK;
            m->users_to_migrate.state = states[m->outcome];
            m->users_to_migrate.users = list->users[m->outcome] + m->at;
            m->users_to_migrate.n = n;
            m->at += n;
            return true;
        }
        m->outcome++;
        m->at = 0;
    }
    return false;
}

/* On a thread of the store. */
static void on_done(struct store_call *call)
{
    struct marking *m = (struct marking *)call;
    if (call->err.code == 0 && next_users(m)) {
        m->store->migration->note(m->store, &m->users_to_migrate);
        return;
    }
    pthread_mutex_lock(&m->mutex);
    m->done = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->mutex);
}

static void begin_change(struct marking *m)
{
    m->done = false;
    m->store->migration->note(m->store, &m->users_to_migrate);
}

static int wait_change(struct migration_batch *g, struct err *err)
{
    struct marking *m = &g->marking;
    heartbeat_excuse(g->heartbeat);
    pthread_mutex_lock(&m->mutex);
    while (!m->done) {
        pthread_cond_wait(&m->wake, &m->mutex);
    }
    pthread_mutex_unlock(&m->mutex);
    heartbeat_now(g->heartbeat);
    const struct err *result = &m->users_to_migrate.call.err;
    return result->code < 0 ? err_set(err, result->code, "%s", result->text) : 0;
}

/* Before their users are marked, so that none is lost by a crash in between. */
static int list_problems(struct migration_batch *g, const struct list *list, struct err *err)
{
    struct marking *m = &g->marking;
    int rc = 0;
    m->list = NULL;
    for (size_t at = 0; at < list->n_problems && rc == 0; at += MARK_MAX) {
        struct store_migration_counts after;
        m->users_to_migrate.kind = MIGRATION_PROBLEMS;
        m->users_to_migrate.problems = list->problems + at;
        m->users_to_migrate.n = list->n_problems - at < MARK_MAX ? list->n_problems - at : MARK_MAX;
        begin_change(m);
        rc = wait_change(g, err);
        g->store->migration->state(g->store, &after);
        g->unlisted += after.problems >= STORE_PROBLEMS_MAX ? m->users_to_migrate.n - m->users_to_migrate.changed : 0;
    }
    return rc;
}

/* The marking under way has to have ended. */
static int begin_marking(struct migration_batch *g, struct list *list, struct err *err)
{
    struct marking *m = &g->marking;
    int rc = list_problems(g, list, err);
    if (rc < 0) {
        return rc;
    }
    m->list = list;
    m->outcome = 0;
    m->at = 0;
    if (next_users(m)) {
        begin_change(m);
    }
    return 0;
}

/* --- the load --- */

int migration_batch_begin(struct migration_batch *g, struct err *err)
{
    if (g->loading) {
        return 0;
    }
    int rc = g->store->bulk->begin(g->store, true, err);
    g->loading = rc == 0;
    return rc;
}

size_t migration_batch_users(const struct migration_batch *g)
{
    return g->filling->n[MIGRATED] + g->filling->n[LEFT];
}

bool migration_batch_due(const struct migration_batch *g, int64_t staging_memory)
{
    const struct list *list = g->filling;
    int64_t limit = staging_memory / HAND_SHARE;
    limit = limit < HAND_BYTES_MIN ? HAND_BYTES_MIN : limit > HAND_BYTES_MAX ? HAND_BYTES_MAX : limit;
    return (int64_t)g->store->bulk->bytes(g->store) >= limit || migration_batch_users(g) >= HAND_USERS ||
           (list->since_us != 0 && clock_real_us() - list->since_us >= HAND_US);
}

int migration_batch_turn(struct migration_batch *g, struct err *err)
{
    heartbeat_excuse(g->heartbeat); /* the historian merges */
    int rc = g->store->bulk->turn(g->store, err);
    heartbeat_now(g->heartbeat);
    if (rc == 0) {
        rc = wait_change(g, err);
    }
    if (rc < 0) {
        return rc;
    }
    struct list *empty = g->marked;
    list_clear(empty);
    g->marked = g->merging;
    g->merging = g->filling;
    g->filling = empty;
    return begin_marking(g, g->marked, err);
}

int migration_batch_drain(struct migration_batch *g, struct err *err)
{
    int rc = 0;
    while (rc == 0 && (g->filling->since_us != 0 || g->merging->since_us != 0)) {
        rc = migration_batch_turn(g, err);
    }
    return rc == 0 ? wait_change(g, err) : rc;
}

void migration_batch_stop(struct migration_batch *g)
{
    wait_change(g, NULL);
}

void migration_batch_end(struct migration_batch *g)
{
    migration_batch_stop(g);
    if (g->loading) {
        heartbeat_excuse(g->heartbeat);
        g->store->bulk->end(g->store, NULL);
        heartbeat_now(g->heartbeat);
        g->loading = false;
    }
    for (int i = 0; i < LISTS; i++) {
        list_clear(&g->lists[i]);
    }
    g->marking.users_to_migrate.call.err = (struct err){0};
}

uint64_t migration_batch_unlisted(const struct migration_batch *g)
{
    return g->unlisted;
}

int migration_batch_new(struct store *store, struct heartbeat *heartbeat, struct migration_batch **batch,
                        struct err *err)
{
    struct migration_batch *g = calloc(1, sizeof *g);
    if (g == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the migration");
    }
    g->store = store;
    g->heartbeat = heartbeat;
    g->filling = &g->lists[0];
    g->merging = &g->lists[1];
    g->marked = &g->lists[2];
    g->marking.store = store;
    g->marking.done = true;
    g->marking.users_to_migrate.call.done = on_done;
    pthread_mutex_init(&g->marking.mutex, NULL);
    pthread_cond_init(&g->marking.wake, NULL);
    *batch = g;
    return 0;
}

void migration_batch_free(struct migration_batch *g)
{
    if (g == NULL) {
        return;
    }
    for (int i = 0; i < LISTS; i++) {
        arena_free(&g->lists[i].arena);
        free(g->lists[i].users[MIGRATED]);
        free(g->lists[i].users[LEFT]);
        free(g->lists[i].problems);
    }
    pthread_cond_destroy(&g->marking.wake);
    pthread_mutex_destroy(&g->marking.mutex);
    free(g);
}
