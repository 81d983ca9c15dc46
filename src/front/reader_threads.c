/* The threads of a store that answers from the front: those that read users, and the keeper, which looks at meta and at
 * whether Redis is there. While it isn't, questions are refused at once: each would wait for a dead connection. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "front/reader_impl.h"

enum {
    FIRST_DELAY_MS = 100,
    LAST_DELAY_MS = 1000,
    STILL_MS = 2000, /* `at` has not moved: with Sentinels, another Redis may be the master by now */
};

void front_load_free(struct front_load *f)
{
    if (f != NULL) {
        front_question_free(&f->question);
        free(f);
    }
}

/* --- what may be answered --- */

int front_reader_fresh(const struct front_store *s, const struct front_meta *meta, struct err *err)
{
    int64_t most_ms = config_now(s->cfg)->front_max_age_ms, age_ms = clock_wall_ms() - meta->at_ms;
    return most_ms == 0 || age_ms <= most_ms
               ? 0
               : err_set(err, ERR_STALE,
                         "what stands in the front is %.1f s old, more than front_max_age allows (%.1f s)",
                         (double)age_ms / 1000, (double)most_ms / 1000);
}

/* In a question's words: what is true of all users is no error of this one, and another server may be asked. */
static int tell_stale(struct err *err)
{
    if (err->code == ERR_CORRUPT || err->code == ERR_VERSION || err->code == ERR_NOMEM) {
        return err->code;
    }
    if (err->code != ERR_ABSENT) {
        err_prefix(err, "the front can't be read");
    }
    return err->code = ERR_STALE;
}

/* --- a user --- */

static void hang_up(struct front_thread *t)
{
    front_link_close(t->link);
    t->link = NULL;
}

/* Whether the connection is still good after that. */
static bool link_is_good(int rc)
{
    return rc == 0 || rc == ERR_ABSENT || rc == ERR_CORRUPT || rc == ERR_VERSION;
}

/* A connection that has lain idle may be dead, and its Redis well: that is found out with the next one. */
static int read_user(struct front_thread *t, struct front_load *f, struct err *err)
{
    const struct front_store *s = t->store;
    const struct slice user = slice_of(f->user, f->user_len);
    for (;;) {
        const bool opened = t->link == NULL;
        const int64_t began_us = clock_real_us();
        *err = (struct err){0};
        int rc = opened ? front_link_open(s->cfg, FRONT_PATIENCE_MS, &t->link, err) : 0;
        if (rc == 0) {
            rc = front_question_read(t->link, s->cfg->front_prefix, &user, s->seed, &f->question, err);
        }
        if (link_is_good(rc) && t->link != NULL) {
            return rc;
        }
        hang_up(t);
        if (opened || clock_real_us() - began_us > FRONT_PATIENCE_MS * 1000 / 2) {
            return rc;
        }
    }
}

/* In the frame of the node that writes: its window, by its clock. */
static void view_user(const struct front_store *s, struct front_load *f, struct err *err)
{
    const struct front_meta *meta = &f->question.meta;
    const bool framed = meta->first_month != 0 && f->first_month != INT_MIN;
    size_t most = meta->delivered != 0 ? (size_t)meta->delivered : (size_t)config_now(s->cfg)->delivered_max;
    int rc =
        front_question_view(&f->question, s->seed, framed ? meta->first_month : f->first_month, most, &f->view, err);
    if (rc == ERR_LARGE) {
        char text[sizeof err->text];
        memcpy(text, err->text, sizeof text);
        err_set(err, ERR_ABSENT, "%s: ask a node that has a folder", text);
    }
}

/* Without the mutex. */
static void ask(struct front_thread *t, struct front_load *f, struct err *err)
{
    const struct front_store *s = t->store;
    int rc = read_user(t, f, err);
    if (rc < 0) {
        rc = tell_stale(err);
    } else {
        rc = front_reader_fresh(s, &f->question.meta, err);
    }
    if (rc == 0) {
        view_user(s, f, err);
    }
}

/* --- the queue, with the mutex --- */

static struct front_load *take(struct front_store *s)
{
    struct front_load *f = s->first;
    if (f != NULL) {
        s->first = f->next;
        s->end = s->first == NULL ? &s->first : s->end;
    }
    return f;
}

bool front_reader_leave(struct front_store *s, const struct front_load *f)
{
    struct front_load **at = &s->first;
    while (*at != NULL && *at != f) {
        at = &(*at)->next;
    }
    if (*at == NULL) {
        return false;
    }
    *at = f->next;
    s->end = *at == NULL ? at : s->end;
    return true;
}

void front_reader_tell(struct front_store *s, struct front_load *f, const struct err *err)
{
    struct store_load *l = f->asked;
    if (l == NULL) {
        front_load_free(f);
        return;
    }
    struct store_reader *reader = l->reader;
    f->asked = NULL;
    l->err = *err;
    l->view = err->code == 0 ? f->view : (struct store_view){.known = false};
    reader->telling++;
    pthread_mutex_unlock(&s->mutex);
    l->done(l);
    pthread_mutex_lock(&s->mutex);
    reader->telling--;
    pthread_cond_broadcast(&s->told);
}

static void fail_all(struct front_store *s, const struct err *why)
{
    for (struct front_load *f = take(s); f != NULL; f = take(s)) {
        front_reader_tell(s, f, why);
    }
}

static void refuse(struct front_store *s, struct store_message *m)
{
    struct err err = {0};
    err_set(&err, ERR_READONLY, FRONT_NO_WRITES);
    pthread_mutex_unlock(&s->mutex);
    if (m->kind == STORE_BATCH) {
        struct store_batch *batch = (struct store_batch *)m;
        batch->err = err;
        batch->done(batch);
    } else if (m->kind == STORE_FORGET) {
        struct store_forget *forget = (struct store_forget *)m;
        forget->err = err;
        forget->done(forget);
    } else if (m->kind == STORE_MERGE) {
        struct store_merge *merge = (struct store_merge *)m;
        merge->err = err;
        merge->done(merge);
    } else {
        struct store_call *call = (struct store_call *)m;
        call->err = m->what != 0 ? err : (struct err){0};
        call->done(call);
    }
    pthread_mutex_lock(&s->mutex);
}

static bool refuse_one(struct front_store *s)
{
    struct store_message *m = s->refused;
    if (m != NULL) {
        s->refused = m->next;
        s->last = m->next == NULL ? &s->refused : s->last;
        refuse(s, m);
    }
    return m != NULL;
}

static void answer_one(struct front_thread *t, struct front_load *f)
{
    struct front_store *s = t->store;
    struct err err = {0};
    const bool outlived = t->losses != s->losses;
    t->losses = s->losses;
    f->at_work = true;
    pthread_mutex_unlock(&s->mutex);
    if (outlived) {
        hang_up(t);
    }
    ask(t, f, &err);
    pthread_mutex_lock(&s->mutex);
    f->at_work = false;
    front_reader_tell(s, f, &err);
}

static void answer(void *arg)
{
    struct front_thread *t = arg;
    struct front_store *s = t->store;
    pthread_mutex_lock(&s->mutex);
    while (!task_stops(t->task)) {
        struct front_load *f = refuse_one(s) ? NULL : take(s);
        if (f != NULL) {
            answer_one(t, f);
        } else if (s->refused == NULL && s->first == NULL) {
            task_wait(t->task, INT64_MAX);
        }
    }
    pthread_mutex_unlock(&s->mutex);
    hang_up(t);
}

/* --- the keeper --- */

struct look {
    struct front_question question;
    struct err why; /* what stands there may not be answered from; code 0: it may */
};

/* Without the mutex. 0: Redis answers. */
static int look_there(struct front_thread *t, struct look *look, struct err *err)
{
    const struct front_store *s = t->store;
    int rc = t->link == NULL ? front_link_open(s->cfg, FRONT_PATIENCE_MS, &t->link, err) : 0;
    if (rc == 0) {
        uint64_t evicted; /* which is asked with meta, too */
        rc = front_link_check(t->link, &evicted, err);
    }
    look->why = (struct err){0};
    if (rc == 0) {
        rc = front_question_read(t->link, s->cfg->front_prefix, NULL, s->seed, &look->question, &look->why);
        if (rc < 0 && link_is_good(rc)) {
            tell_stale(&look->why);
            rc = 0;
        } else if (rc < 0) {
            *err = look->why;
        }
    }
    if (rc < 0) {
        hang_up(t);
    }
    return rc;
}

static void lose(struct front_store *s, const struct err *err)
{
    if (s->reached) {
        log_warn("the front's Redis is lost, questions are refused", "error=%s", log_quote_str(err->text));
    }
    s->reached = false;
    s->why = *err;
    tell_stale(&s->why);
    s->losses++;
    const struct err why = s->why;
    fail_all(s, &why);
}

static void take_look(struct front_store *s, const struct look *look)
{
    const struct front_meta *meta = &look->question.meta;
    if (!s->reached) {
        log_info("the front's Redis is there", "");
    }
    if (look->why.code != 0 && strcmp(look->why.text, s->why.text) != 0) {
        log_warn("the front can't be answered from", "cause=%s", log_quote_str(look->why.text));
    } else if (look->why.code == 0 && s->reached && s->why.code != 0) {
        log_info("the front can be answered from again", "to=%" PRIu64, meta->to);
    }
    if (s->meta.present && meta->present && (meta->node != s->meta.node || meta->epoch != s->meta.epoch)) {
        log_info("another writer keeps the front", "node=%016" PRIx64 " epoch=%" PRIu64, meta->node, meta->epoch);
    }
    s->reached = true;
    s->why = look->why;
    s->meta = *meta;
}

/* The former master may be cut off, and not know that it is none any more: the Sentinels are asked again. */
static void find_master_again(struct front_thread *t, int64_t *since_us, int64_t *at_ms, const struct look *look)
{
    const int64_t now_us = clock_real_us();
    if (t->store->cfg->front_at.kind != REDIS_AT_SENTINEL || look->question.meta.at_ms != *at_ms || *since_us == 0) {
        *at_ms = look->question.meta.at_ms;
        *since_us = now_us;
    } else if (now_us - *since_us > STILL_MS * 1000) {
        *since_us = now_us;
        struct err err = {0};
        struct front_link *link;
        if (front_link_open(t->store->cfg, FRONT_PATIENCE_MS, &link, &err) == 0) {
            const bool other = strcmp(front_link_address(link), front_link_address(t->link)) != 0;
            hang_up(t);
            t->link = link;
            pthread_mutex_lock(&t->store->mutex);
            t->store->losses += other;
            pthread_mutex_unlock(&t->store->mutex);
        }
    }
}

static void keep(void *arg)
{
    struct front_thread *t = arg;
    struct front_store *s = t->store;
    struct look look = {.why = {0}};
    int64_t delay_ms = 0, still_since_us = 0, at_ms = 0;
    pthread_mutex_lock(&s->mutex);
    while (!task_stops(t->task)) {
        struct err err = {0};
        pthread_mutex_unlock(&s->mutex);
        int rc = look_there(t, &look, &err);
        if (rc == 0) {
            find_master_again(t, &still_since_us, &at_ms, &look);
        }
        pthread_mutex_lock(&s->mutex);
        if (rc < 0) {
            lose(s, &err);
        } else {
            take_look(s, &look);
        }
        delay_ms = rc < 0 ? backoff_next(delay_ms, FIRST_DELAY_MS, LAST_DELAY_MS) : 0;
        task_rest_real(t->task, clock_real_us() + (rc < 0 ? delay_ms : FRONT_LOOK_MS) * 1000);
    }
    pthread_mutex_unlock(&s->mutex);
    hang_up(t);
    front_question_free(&look.question);
}

/* --- start and end --- */

/* Another seed than the one that is configured is no seed of ours. */
static int take_seed(struct front_store *s, const struct front_meta *meta, struct err *err)
{
    if (s->cfg->hash_seed_given && s->cfg->hash_seed != meta->seed) {
        return err_set(err, ERR_SEED, "hash_seed is not that of what stands in the front");
    }
    s->seed = meta->seed;
    return 0;
}

int front_reader_first(struct front_store *s, struct err *err)
{
    const int64_t until_us = clock_real_us() + FRONT_OPEN_MS * (int64_t)1000;
    struct look look = {.why = {0}};
    int rc;
    s->keeper.store = s;
    for (;;) {
        *err = (struct err){0};
        rc = look_there(&s->keeper, &look, err);
        if (rc == 0 && !look.question.meta.present) {
            rc = err_set(err, look.why.code == ERR_STALE ? ERR_ABSENT : look.why.code, "%s", look.why.text);
        }
        if (rc == 0 || rc == ERR_INVALID || rc == ERR_VERSION || clock_real_us() >= until_us) {
            break;
        }
        pthread_mutex_lock(&s->mutex);
        task_rest_real(&s->tasks[0], clock_real_us() + FRONT_LOOK_MS * 1000);
        pthread_mutex_unlock(&s->mutex);
    }
    rc = rc == 0 ? take_seed(s, &look.question.meta, err) : rc;
    if (rc == 0) {
        s->reached = true;
        take_look(s, &look);
    }
    front_question_free(&look.question);
    return rc;
}

int front_reader_start(struct front_store *s, struct err *err)
{
    s->keeper.task = &s->tasks[0];
    int rc = task_start(s->keeper.task, "front-keeper", TASK_SILENT, keep, &s->keeper, err);
    for (int i = 0; i < FRONT_READER_THREADS && rc == 0; i++) {
        s->threads[i] = (struct front_thread){.store = s, .task = &s->tasks[1 + i]};
        rc = task_start(s->threads[i].task, "front-reader", TASK_SILENT, answer, &s->threads[i], err);
    }
    return rc;
}

void front_reader_stop(struct front_store *s)
{
    struct err closed = {0};
    err_set(&closed, ERR_CLOSED, "the server is stopping");
    tasks_stop(s->tasks, 1 + FRONT_READER_THREADS);
    hang_up(&s->keeper);
    pthread_mutex_lock(&s->mutex);
    fail_all(s, &closed);
    while (refuse_one(s)) {
    }
    pthread_mutex_unlock(&s->mutex);
}
