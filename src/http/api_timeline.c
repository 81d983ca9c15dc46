/* GET /v1/timeline: the last hour of rates and latencies. The HTTP thread notes a mark each second, of which the time
 * line keeps one each step; what asks notes one first, so that an answer is up to date by any clock. */
#include <jansson.h>

#include "base/clock.h"
#include "http/handlers.h"
#include "http/json.h"
#include "http/server.h"
#include "store/stats.h"

static void add_ops(const struct worker_pool *pool, const enum op *ops, size_t n, struct bucket_sums *to)
{
    for (int w = 0; w < pool->n_all; w++) {
        for (size_t i = 0; i < n; i++) {
            buckets_add(to, &pool->workers[w].service->meter.ops[ops[i]]);
        }
    }
}

void http_timeline_look(const struct worker *w, struct timeline_mark *out)
{
    const struct worker_pool *pool = w->pool;
    static const enum op asks[] = {OP_UNSEEN, OP_SEEN, OP_FILTER};
    static const enum op records[] = {OP_PLAYED, OP_PLAYEDAT, OP_DELIVERED, OP_FILTER_DELIVER};
    *out = (struct timeline_mark){
        .mono_ms = clock_mono_ms(),
        .questions = service_counted(pool, COUNT_QUESTIONS),
        .candidates = service_counted(pool, COUNT_CANDIDATES),
        .unseen = service_counted(pool, COUNT_UNSEEN),
        .writes = service_counted(pool, COUNT_PLAYS) + service_counted(pool, COUNT_DELIVERIES),
        .errors = worker_pool_counter(pool, COUNT_ERRORS),
    };
    add_ops(pool, asks, sizeof asks / sizeof *asks, &out->asked);
    add_ops(pool, records, sizeof records / sizeof *records, &out->recorded);
    const struct dedup *dedup = w->service->dedup;
    if (dedup != NULL) {
        struct store_stats stats;
        dedup->store->ops->stats(dedup->store, &stats);
        out->data_bytes =
            stats.staging_file_bytes + stats.history_file_bytes + stats.staging_wal_bytes + stats.history_wal_bytes;
    }
    timeline_note(&http_of(w)->timeline, out);
}

void http_timeline_tick(struct worker *w)
{
    struct timeline_mark mark;
    http_timeline_look(w, &mark);
}

static json_t *ms_or_null(double us)
{
    return us < 0 ? json_null() : json_real(us / 1000);
}

json_t *timeline_point_json(const struct timeline_point *p)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o}", "seconds", p->seconds, "questions", p->questions,
                     "writes", p->writes, "errors", p->errors, "hidden",
                     p->hidden < 0 ? json_null() : json_real(p->hidden), "question_p50_ms", ms_or_null(p->asked.p50_us),
                     "question_p99_ms", ms_or_null(p->asked.p99_us), "write_p50_ms", ms_or_null(p->recorded.p50_us),
                     "write_p99_ms", ms_or_null(p->recorded.p99_us));
}

enum http_outcome get_timeline(struct http_request *rq)
{
    const struct timeline *t = &rq->http->timeline;
    struct timeline_mark now;
    http_timeline_look(rq->conn->conn.worker, &now);
    int64_t wall = clock_wall_ms();
    json_t *points = json_array();
    for (size_t i = 1; i < t->n; i++) {
        const struct timeline_mark *mark = timeline_mark(t, i);
        if (now.mono_ms - mark->mono_ms < TIMELINE_MS) {
            struct timeline_point point = timeline_between(timeline_mark(t, i - 1), mark);
            json_t *value = timeline_point_json(&point);
            json_object_set_new(value, "at", json_integer((json_int_t)(wall - (now.mono_ms - mark->mono_ms))));
            json_append(&points, value);
        }
    }
    json_write(&rq->out, json_pack("{s:I, s:i, s:o}", "now", (json_int_t)wall, "step_ms", (int)TIMELINE_STEP_MS,
                                   "points", points));
    return HTTP_DONE;
}
