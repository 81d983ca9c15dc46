/* The store of serve --front-only, as the seam has it; what is done on its threads stands in reader_threads.c. */
#include "front/reader_store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hide.h"
#include "front/reader_impl.h"
#include "store/stats.h"

/* --- readers --- */

static int reader_open(struct store *base, struct store_reader **reader, struct err *err)
{
    struct store_reader *r = calloc(1, sizeof *r);
    if (r != NULL && (r->load = calloc(1, sizeof *r->load)) == NULL) {
        free(r);
        r = NULL;
    }
    if (r == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    r->store = front_store_of(base);
    *reader = r;
    return 0;
}

/* A thread that is at the load frees it, whenever Redis lets it. */
static void reader_close(struct store_reader *r)
{
    if (r == NULL) {
        return;
    }
    struct front_store *s = r->store;
    struct front_load *f = r->load;
    struct err closed = {0};
    err_set(&closed, ERR_CLOSED, "the server is stopping");
    pthread_mutex_lock(&s->mutex);
    const bool ours = !f->at_work;
    if (f->asked != NULL) {
        front_reader_leave(s, f);
        front_reader_tell(s, f, &closed);
    }
    while (r->telling > 0) {
        pthread_cond_wait(&s->told, &s->mutex);
    }
    pthread_mutex_unlock(&s->mutex);
    if (ours) {
        front_load_free(f);
    }
    free(r);
}

static int load(struct store_reader *r, struct store_load *l)
{
    struct front_store *s = r->store;
    struct front_load *f = r->load;
    l->err = (struct err){0};
    l->view = (struct store_view){.known = false};
    l->reader = r;
    pthread_mutex_lock(&s->mutex);
    int rc = STORE_LATER;
    if (task_stops(&s->tasks[0])) {
        rc = err_set(&l->err, ERR_CLOSED, "the server is stopping");
    } else if (!s->reached) {
        rc = err_set(&l->err, s->why.code, "%s", s->why.text);
    } else {
        memcpy(f->user, l->user.data, l->user.len);
        f->user_len = l->user.len;
        f->first_month = l->first_month;
        f->asked = l;
        f->next = NULL;
        *s->end = f;
        s->end = &f->next;
    }
    task_unlock_wake_one(s->tasks + 1, rc == STORE_LATER ? FRONT_READER_THREADS : 0);
    return rc;
}

/* load() says of no user that they are to be scanned. */
static int scan(struct store_reader *r, int64_t key, struct slice user, int first_month, const struct store_scan *how,
                struct store_view *view, struct err *err)
{
    (void)r, (void)key, (void)user, (void)first_month, (void)how;
    *view = (struct store_view){.known = false};
    return err_set(err, ERR_ABSENT, "the front holds no users of more than %d KiB: ask a node that has a folder",
                   FRONT_USER_MAX / 1024);
}

/* --- what is not done here --- */

static void put(struct store *base, struct store_message *m, enum store_message_kind kind, int refused)
{
    struct front_store *s = front_store_of(base);
    m->kind = kind;
    m->what = refused;
    m->next = NULL;
    pthread_mutex_lock(&s->mutex);
    *s->last = m;
    s->last = &m->next;
    task_unlock_wake_one(s->tasks + 1, FRONT_READER_THREADS);
}

static void store_record(struct store *base, struct store_batch *batch)
{
    put(base, &batch->message, STORE_BATCH, 1);
}

static void store_forget(struct store *base, struct store_forget *forget)
{
    put(base, &forget->message, STORE_FORGET, 1);
}

static void store_merge(struct store *base, struct store_merge *merge)
{
    put(base, &merge->message, STORE_MERGE, 1);
}

static void store_import(struct store *base, struct store_import *import)
{
    put(base, &import->call.message, STORE_CALL, 1);
}

static void store_clock_change(struct store *base, struct store_clock_change *change)
{
    put(base, &change->call.message, STORE_CALL, 1);
}

static void store_tick(struct store *base, struct store_call *call)
{
    put(base, &call->message, STORE_CALL, 0);
}

/* As of a replica: it is the role that refuses writes (dedup/role.h), and that is no trouble. */
static int store_refusal(struct store *base, struct err *err)
{
    (void)base, (void)err;
    return 0;
}

static int store_publish(struct store *base, const char *address, struct err *err)
{
    (void)base, (void)address, (void)err;
    return 0; /* no other process can open it */
}

static void store_stats(struct store *base, struct store_stats *out)
{
    (void)base;
    *out = (struct store_stats){0};
}

/* --- time --- */

static void store_now(struct store *base, int64_t *later, int64_t *earlier)
{
    (void)base;
    *later = *earlier = clock_wall_ms();
}

static int store_time_known(struct store *base, struct err *err)
{
    (void)base, (void)err;
    return 0;
}

static void store_clock(struct store *base, struct store_clock *out)
{
    (void)base;
    const int64_t now = clock_wall_ms();
    *out = (struct store_clock){.wall_ms = now, .believed_ms = now, .newest_ms = now, .known = true};
}

/* --- the store --- */

static uint64_t store_seed(struct store *base)
{
    return front_store_of(base)->seed;
}

static void free_store(struct front_store *s)
{
    tasks_destroy(s->tasks, 1 + FRONT_READER_THREADS);
    pthread_cond_destroy(&s->told);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

static void store_close(struct store *base)
{
    struct front_store *s = front_store_of(base);
    front_reader_stop(s);
    free_store(s);
}

static const struct store_ops front_ops = {
    .record = store_record,
    .forget = store_forget,
    .merge = store_merge,
    .tick = store_tick,
    .reader_open = reader_open,
    .reader_close = reader_close,
    .load = load,
    .scan = scan,
    .import = store_import,
    .stats = store_stats,
    .now = store_now,
    .time_known = store_time_known,
    .refusal = store_refusal,
    .clock = store_clock,
    .clock_change = store_clock_change,
    .seed = store_seed,
    .publish = store_publish,
    .close = store_close,
};

int front_store_open(const struct config *cfg, struct store **store, struct err *err)
{
    struct front_store *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    s->base = (struct store){.engine = "front", .ops = &front_ops};
    s->cfg = cfg;
    s->end = &s->first;
    s->last = &s->refused;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->told, NULL);
    tasks_init(s->tasks, 1 + FRONT_READER_THREADS, &s->mutex);
    int rc = front_reader_first(s, err);
    if (rc == 0) {
        rc = front_reader_start(s, err);
    }
    if (rc < 0) {
        store_close(&s->base);
        return rc;
    }
    *store = &s->base;
    return 0;
}

bool front_store_is(const struct store *s)
{
    return s->ops == &front_ops;
}

void front_store_look(struct store *base, struct front_store_state *out)
{
    struct front_store *s = front_store_of(base);
    struct err why = {0};
    pthread_mutex_lock(&s->mutex);
    const struct front_meta meta = s->meta;
    *out = (struct front_store_state){.reached = s->reached,
                                      .full = s->reached && meta.present && meta.full,
                                      .node = meta.node,
                                      .epoch = meta.epoch,
                                      .to = meta.to,
                                      .age_ms = -1};
    hide_ids_copy(out->cause, sizeof out->cause, s->why.text);
    pthread_mutex_unlock(&s->mutex);
    if (meta.present) {
        const int64_t age_ms = clock_wall_ms() - meta.at_ms;
        out->age_ms = age_ms > 0 ? age_ms : 0;
    }
    if (out->cause[0] == '\0' && front_reader_fresh(s, &meta, &why) < 0) {
        snprintf(out->cause, sizeof out->cause, "%s", why.text);
    }
}
