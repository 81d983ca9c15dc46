#include "resp/large.h"

#include <stdlib.h>
#include <string.h>

/* A question that went aside, and its answer. The user's id, the hashes, the bitmap or the places stand behind it. */
struct large {
    struct aside_job job;
    struct session *session;
    struct slice user;
    const uint64_t *hashes;
    size_t n;
    int result;
    struct err err;
    uint8_t *unseen;
    size_t n_unseen;
    double error;
    struct place *places;
    struct history history;
};

/* --- on the thread beside --- */

static void ask_filter(struct aside_job *job, struct asker *asker)
{
    struct large *l = (struct large *)job;
    l->result = asker_filter(asker, l->user, l->hashes, l->n, l->unseen, &l->n_unseen, &l->err);
    l->error = asker_error(asker);
}

static void ask_why(struct aside_job *job, struct asker *asker)
{
    struct large *l = (struct large *)job;
    l->result = asker_why(asker, l->user, l->hashes[0], l->places, &l->err);
}

/* The months are the asker's until its next question, so they are copied. */
static void ask_history(struct aside_job *job, struct asker *asker)
{
    struct large *l = (struct large *)job;
    l->result = asker_history(asker, l->user, &l->history, &l->err);
    size_t size = l->history.n_months * sizeof *l->history.months;
    if (l->result > 0 && size > 0) {
        struct history_month *months = malloc(size);
        if (months == NULL) {
            l->result = err_set(&l->err, ERR_NOMEM, "out of memory");
        } else {
            memcpy(months, l->history.months, size);
        }
        l->history.months = months;
    }
}

/* --- on the worker --- */

static void on_back(struct mail *mail, void *owner)
{
    (void)owner;
    struct large *l = (struct large *)mail;
    struct session *s = l->session;
    if (s->conn.state != CONN_CLOSING) {
        session_answered(s);
    }
    conn_release(&s->conn);
}

static size_t bitmap_size(size_t n)
{
    return (n + 7) / 8;
}

/* Always ERR_LARGE, or ERR_NOMEM. */
static int go_aside(struct session *s, void (*ask)(struct aside_job *, struct asker *), struct slice user,
                    const uint64_t *hashes, size_t n, struct err *err)
{
    struct worker *w = s->conn.worker;
    size_t answer = ask == ask_filter ? bitmap_size(n) : ask == ask_why ? PLACES_MAX * sizeof(struct place) : 0;
    size_t size = sizeof(struct large) + n * sizeof *hashes + answer + user.len;
    if (size > CONN_READ && !budget_fits(&w->memory, size)) {
        conn_starve(&s->conn);
        return ERR_LARGE;
    }
    struct large *l = malloc(size);
    if (l == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for a question about %zu items", n);
    }
    uint64_t *copies = (uint64_t *)(l + 1);
    char *rest = (char *)(copies + n);
    *l = (struct large){
        .job = {{NULL, on_back}, w, ask},
        .session = s,
        .user = slice_of(rest + answer, user.len),
        .hashes = copies,
        .n = n,
        .unseen = (uint8_t *)rest,
        .places = (struct place *)rest,
    };
    if (n > 0) {
        memcpy(copies, hashes, n * sizeof *copies);
    }
    memcpy(rest + answer, user.data, user.len);
    conn_hold(&s->conn);
    s->large = l;
    s->lent = size;
    s->waiting = true;
    s->conn.owed = true;
    worker_count(w, COUNT_LARGE, 1);
    aside_put(&w->crew->aside, &l->job);
    return ERR_LARGE;
}

/* The answer that has come for the command that is run once more; else NULL. */
static struct large *answered(const struct session *s, struct err *err)
{
    struct large *l = s->large;
    if (l != NULL) {
        *err = l->err;
    }
    return l;
}

int large_filter(struct session *s, struct slice user, const uint64_t *hashes, size_t n, uint8_t *unseen,
                 size_t *n_unseen, double *error, struct err *err)
{
    const struct large *l = answered(s, err);
    if (l != NULL) {
        memcpy(unseen, l->unseen, l->result == 0 ? bitmap_size(n) : 0);
        *n_unseen = l->n_unseen;
        *error = l->error;
        return l->result;
    }
    struct asker *asker = s->conn.worker->asker;
    int code = asker_filter(asker, user, hashes, n, unseen, n_unseen, err);
    *error = asker_error(asker);
    return code == ERR_LARGE ? go_aside(s, ask_filter, user, hashes, n, err) : code;
}

int large_why(struct session *s, struct slice user, uint64_t hash, struct place places[PLACES_MAX], struct err *err)
{
    const struct large *l = answered(s, err);
    if (l != NULL) {
        memcpy(places, l->places, l->result > 0 ? (size_t)l->result * sizeof *places : 0);
        return l->result;
    }
    int code = asker_why(s->conn.worker->asker, user, hash, places, err);
    return code == ERR_LARGE ? go_aside(s, ask_why, user, &hash, 1, err) : code;
}

int large_history(struct session *s, struct slice user, struct history *out, struct err *err)
{
    const struct large *l = answered(s, err);
    if (l != NULL) {
        *out = l->history;
        return l->result;
    }
    int code = asker_history(s->conn.worker->asker, user, out, err);
    return code == ERR_LARGE ? go_aside(s, ask_history, user, NULL, 0, err) : code;
}

void large_end(struct session *s)
{
    struct large *l = s->large;
    if (l != NULL) {
        if (l->job.ask == ask_history) {
            free(l->history.months);
        }
        free(l);
        s->large = NULL;
        s->conn.owed = false;
    }
}
