/* The front as the second tier of this node's questions: a script reads a user with meta, and the answer counts if it
 * is this writer's own, and full. */
#include <stdlib.h>

#include "dedup/tier_pool.h"
#include "dedup/view_probe.h"
#include "front/front_impl.h"

/* A connection. */
struct line {
    struct front *f;
    struct front_link *link;
    struct front_question question;
    struct view_probe probe;
};

static void close_line(void *arg)
{
    struct line *line = arg;
    front_link_close(line->link);
    front_question_free(&line->question);
    view_probe_free(&line->probe);
    free(line);
}

static int open_line(void *owner, void **out, struct err *err)
{
    struct line *line = calloc(1, sizeof *line);
    if (line == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the second tier");
    }
    line->f = owner;
    int rc = view_probe_init(&line->probe, err);
    rc = rc < 0 ? rc : front_link_open(line->f->cfg, TIER_POOL_PATIENCE_MS, &line->link, err);
    if (rc < 0) {
        close_line(line);
        return rc;
    }
    *out = line;
    return 0;
}

/* Whether meta is what this node's writer keeps there. */
static int check_writer(struct front *f, const struct front_meta *m, struct err *err)
{
    pthread_mutex_lock(&f->mutex);
    bool ours = f->epoch != 0 && m->epoch == f->epoch && m->node == f->node;
    bool begun = f->epoch != 0;
    pthread_mutex_unlock(&f->mutex);
    return ours ? 0
                : err_set(err, ERR_ABSENT,
                          begun ? "what stands in the front is not this writer's"
                                : "this node does not write the front now");
}

static int read_user(struct line *line, const struct slice *user, struct err *err)
{
    struct front *f = line->f;
    int rc = front_question_read(line->link, f->cfg->front_prefix, user, f->dedup->seed, &line->question, err);
    return rc < 0 ? rc : check_writer(f, &line->question.meta, err);
}

/* Also whether it is full, and has dropped nothing. */
static int ping(void *arg, struct err *err)
{
    struct line *line = arg;
    uint64_t evicted;
    front_link_be_patient(line->link, TIER_POOL_PATIENCE_MS);
    int rc = front_link_check(line->link, &evicted, err);
    return rc < 0 ? rc : read_user(line, NULL, err);
}

static int ask(void *arg, struct tier_question *q, struct err *err)
{
    struct line *line = arg;
    struct front *f = line->f;
    struct store_view view;
    struct query query = {.kind = QUERY_FILTER, .user = q->user, .hashes = q->hashes, .n = q->n, .unseen = q->unseen};
    front_link_be_patient(line->link, TIER_POOL_ASK_MS);
    int rc = read_user(line, &q->user, err);
    if (rc == 0 && line->question.user.revision > f->store->feed->last(f->store)) {
        rc = err_set(err, ERR_CORRUPT, "the front's state of this user lies ahead of all that was recorded");
    }
    rc = rc < 0 ? rc
                : front_question_view(&line->question, f->dedup->seed, q->first_month,
                                      (size_t)config_now(f->cfg)->delivered_max, &view, err);
    rc = rc < 0 ? rc : view_probe_filter(&line->probe, &view, &query, err);
    if (rc == ERR_SYSTEM || rc == ERR_CLOSED || rc == ERR_LOADING || rc == ERR_NOMEM || rc == ERR_INVALID) {
        return rc; /* of the connection, or of that Redis as a whole */
    }
    q->verdict = rc == 0 ? TIER_ANSWERED : TIER_NOT_WHOLE;
    q->to = line->question.meta.to;
    q->error = query.error;
    if (rc < 0) {
        q->err = *err;
    }
    return 0;
}

const struct tier_line_ops front_line_ops = {"front", open_line, close_line, ping, ask};
