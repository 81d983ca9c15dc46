#include "resp/away.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A question that went away, and its answer. What it points to stands behind it. */
struct away {
    struct offload_job job;
    struct read_through_question read_through;
    struct resp_client *session;
    size_t size;
    bool migration_state; /* the user was still to be migrated before anything was looked up; the old Redis is yet to be
                             asked */
    struct slice user;
    uint64_t *hashes;
    size_t n;
    int result;
    struct err err;
    uint8_t *unseen, *asked, *seen; /* a bit for each item */
    size_t n_unseen;
    double error;
    struct place *places;
    struct history history;
};

typedef void ask_fn(struct offload_job *job, struct asker *asker);

static size_t bitmap_size(size_t n)
{
    return (n + 7) / 8;
}

/* --- on the thread beside --- */

static void ask_filter(struct offload_job *job, struct asker *asker)
{
    struct away *a = (struct away *)job;
    a->result = asker_filter(asker, a->user, a->hashes, a->n, a->unseen, &a->n_unseen, &a->err);
    a->error = asker_error(asker);
    if (a->result == 0) {
        memcpy(a->asked, a->unseen, bitmap_size(a->n));
        asker_exclude(asker, a->hashes, a->n, a->asked);
    }
}

static void ask_why(struct offload_job *job, struct asker *asker)
{
    struct away *a = (struct away *)job;
    a->result = asker_why(asker, a->user, a->hashes[0], a->places, &a->err);
    a->asked[0] = 0x80;
    asker_exclude(asker, a->hashes, 1, a->asked);
}

/* The months are the asker's until its next question, so they are copied. */
static void ask_history(struct offload_job *job, struct asker *asker)
{
    struct away *a = (struct away *)job;
    a->result = asker_history(asker, a->user, &a->history, &a->err);
    size_t size = a->history.n_months * sizeof *a->history.months;
    if (a->result > 0 && size > 0) {
        struct history_month *months = malloc(size);
        if (months == NULL) {
            a->result = err_set(&a->err, ERR_NOMEM, "out of memory");
        } else {
            memcpy(months, a->history.months, size);
        }
        a->history.months = months;
    }
}

/* --- on the worker --- */

static void come_back(struct away *a)
{
    struct resp_client *s = a->session;
    if (s->conn.state != CONN_CLOSING) {
        resp_client_answered(s);
    }
    conn_release(&s->conn);
}

static void on_message(struct loop_message *message, void *owner)
{
    (void)owner;
    come_back((struct away *)message);
}

static void on_through(struct read_through_question *q)
{
    come_back((struct away *)((char *)q - offsetof(struct away, read_through)));
}

/* Room for a question about n items and its answer; `more` bytes are on their way too. hashes NULL: they needn't be
 * kept. NULL: there is no room, and *result is what the caller then returns. */
static struct away *prepare(struct resp_client *s, ask_fn *ask, struct slice user, const uint64_t *hashes, size_t n,
                            size_t more, int *result, struct err *err)
{
    struct worker *w = s->conn.worker;
    size_t hashed = hashes != NULL ? n * sizeof *hashes : 0, bits = bitmap_size(n);
    size_t places = ask == ask_why ? PLACES_MAX * sizeof(struct place) : 0;
    size_t size = sizeof(struct away) + places + hashed + 3 * bits + user.len;
    if (!s->conn.overdraft && !budget_allows(&w->memory, BUDGET_REPLY, size + more)) {
        conn_starve(&s->conn, BUDGET_REPLY, size + more);
        *result = AWAY;
        return NULL;
    }
    struct away *a = calloc(1, size);
    if (a == NULL) {
        *result = err_set(err, ERR_NOMEM, "out of memory for a question about %zu items", n);
        return NULL;
    }
    a->job = (struct offload_job){{NULL, on_message}, w, ask};
    a->session = s;
    a->size = size;
    a->n = n;
    a->places = (struct place *)(a + 1);
    a->hashes = (uint64_t *)((char *)(a + 1) + places);
    a->unseen = (uint8_t *)a->hashes + hashed;
    a->asked = a->unseen + bits;
    a->seen = a->asked + bits;
    a->user = slice_of((char *)a->seen + bits, user.len);
    if (hashed > 0) {
        memcpy(a->hashes, hashes, hashed);
    }
    memcpy(a->seen + bits, user.data, user.len);
    return a;
}

/* Always AWAY. */
static int leave(struct resp_client *s, struct away *a, size_t more)
{
    conn_hold(&s->conn);
    s->away = a;
    s->lent = a->size + more;
    s->waiting = true;
    s->conn.owed = true;
    return AWAY;
}

/* AWAY, or ERR_NOMEM. */
static int go_offload(struct resp_client *s, ask_fn *ask, struct slice user, const uint64_t *hashes, size_t n,
                      bool migration_state, struct err *err)
{
    struct worker *w = s->conn.worker;
    int result;
    struct away *a = prepare(s, ask, user, hashes, n, 0, &result, err);
    if (a == NULL) {
        return result;
    }
    a->migration_state = migration_state;
    worker_count(w, COUNT_LARGE, 1);
    offload_put(&w->pool->offload, &a->job);
    return leave(s, a, 0);
}

/* Asks the old Redis, once, about what of a->asked there is. The items take about as much on their way there as in the
 * request. False: there is nothing to ask, or it can't be asked. */
static bool go_through(struct resp_client *s, struct away *a, const struct slice *items)
{
    size_t i = 0;
    while (i < bitmap_size(a->n) && a->asked[i] == 0) {
        i++;
    }
    if (!a->migration_state || a->result < 0 || i == bitmap_size(a->n)) {
        return false;
    }
    a->migration_state = false;
    a->read_through = (struct read_through_question){.done = on_through, .n = a->n, .asked = a->asked, .seen = a->seen};
    if (!read_through_ask(s->conn.worker->read_through, &a->read_through, a->user, items)) {
        return false;
    }
    leave(s, a, s->parser.used);
    return true;
}

/* The same when the worker has answered itself. Returns AWAY; or that answer, and a is gone. */
static int follow_up(struct resp_client *s, struct away *a, const struct slice *items, const uint64_t *hashes)
{
    a->migration_state = true;
    asker_exclude(s->conn.worker->asker, hashes, a->n, a->asked);
    if (go_through(s, a, items)) {
        return AWAY;
    }
    int result = a->result;
    free(a);
    return result;
}

int away_filter(struct resp_client *s, struct slice user, const struct slice *items, const uint64_t *hashes, size_t n,
                uint8_t *unseen, size_t *n_unseen, double *error, struct err *err)
{
    struct worker *w = s->conn.worker;
    struct away *a = s->away;
    if (a == NULL) {
        bool migration_state = read_through_wants(w->read_through, user); /* before anything is looked up */
        int code = asker_filter(w->asker, user, hashes, n, unseen, n_unseen, err);
        *error = asker_error(w->asker);
        if (code == ERR_LARGE) {
            return go_offload(s, ask_filter, user, hashes, n, migration_state, err);
        }
        if (code < 0 || !migration_state || *n_unseen == 0 ||
            (a = prepare(s, ask_filter, user, NULL, n, s->parser.used, &code, err)) == NULL) {
            return code;
        }
        a->n_unseen = *n_unseen;
        a->error = *error;
        memcpy(a->unseen, unseen, bitmap_size(n));
        memcpy(a->asked, unseen, bitmap_size(n));
        return follow_up(s, a, items, hashes);
    }
    if (go_through(s, a, items)) {
        return AWAY;
    }
    *err = a->err;
    *error = a->error;
    *n_unseen = a->n_unseen;
    if (a->result == 0) {
        memcpy(unseen, a->unseen, bitmap_size(n));
        *n_unseen -= read_through_hide(w->read_through, &a->read_through, hashes, unseen);
    }
    return a->result;
}

int away_why(struct resp_client *s, struct slice user, struct slice item, uint64_t hash,
             struct place places[PLACES_MAX], struct err *err)
{
    struct worker *w = s->conn.worker;
    struct away *a = s->away;
    if (a == NULL) {
        bool migration_state = read_through_wants(w->read_through, user);
        int code = asker_why(w->asker, user, hash, places, err);
        if (code == ERR_LARGE) {
            return go_offload(s, ask_why, user, &hash, 1, migration_state, err);
        }
        int found = code;
        if (code < 0 || !migration_state ||
            (a = prepare(s, ask_why, user, NULL, 1, s->parser.used, &code, err)) == NULL) {
            return code;
        }
        a->result = found;
        memcpy(a->places, places, (size_t)found * sizeof *places);
        a->asked[0] = 0x80;
        return follow_up(s, a, &item, &hash);
    }
    if (go_through(s, a, &item)) {
        return AWAY;
    }
    *err = a->err;
    int found = a->result;
    memcpy(places, a->places, found > 0 ? (size_t)found * sizeof *places : 0);
    uint8_t unseen = 0x80;
    if (found >= 0 && found < PLACES_MAX && read_through_hide(NULL, &a->read_through, &hash, &unseen) > 0) {
        places[found++] = (struct place){.kind = PLACE_LEGACY};
    }
    return found;
}

int away_history(struct resp_client *s, struct slice user, struct history *out, struct err *err)
{
    struct away *a = s->away;
    if (a == NULL) {
        int code = asker_history(s->conn.worker->asker, user, out, err);
        return code == ERR_LARGE ? go_offload(s, ask_history, user, NULL, 0, false, err) : code;
    }
    *err = a->err;
    *out = a->history;
    return a->result;
}

void away_end(struct resp_client *s)
{
    struct away *a = s->away;
    if (a != NULL) {
        if (a->job.ask == ask_history) {
            free(a->history.months);
        }
        free(a);
        s->away = NULL;
        s->conn.owed = false;
    }
}
