/* GET /v1/timeline: the last hour of rates and latencies, ?span=day or ?span=month. The HTTP thread notes a mark each
 * second, of which the time line keeps one each step; what asks notes one first, so that an answer is up to date by any
 * clock. A day and a month are kept in the store each time that a point of them has ended, and read once it is there.
 */
#include <jansson.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/handlers.h"
#include "http/json.h"
#include "http/server.h"
#include "store/memos.h"
#include "store/stats.h"

static void add_ops(const struct worker_pool *pool, const enum op *ops, size_t n, struct bucket_sums *to)
{
    for (int w = 0; w < pool->n_all; w++) {
        for (size_t i = 0; i < n; i++) {
            buckets_add(to, &pool->workers[w].service->meter.ops[ops[i]]);
        }
    }
}

static const char *const span_names[] = {"span_day", "span_month"};

/* What can't be read is tried again, each second, and until then neither grows nor is kept: so no error of the disk
 * costs what it has. What isn't a span begins again: it is a picture. */
static void spans_restore(struct http *h, struct asker *asker)
{
    struct span *spans[] = {&h->spans.day, &h->spans.month};
    static const size_t most[] = {SPAN_DAY_POINTS, SPAN_MONTH_POINTS};
    struct buf text = {0};
    struct err err = {0};
    int rc = 0;
    for (int i = 0; i < 2 && rc >= 0; i++) {
        buf_clear(&text);
        rc = asker_memo(asker, span_names[i], &text, &err);
        if (rc >= 0 && !span_read(spans[i], most[i], buf_slice(&text))) {
            log_warn("a span of the page is damaged, and begins again", "span=%s", span_names[i]);
        }
    }
    buf_free(&text);
    if (rc < 0 && !h->kept.told) {
        log_warn("spans of the page are not read", "error=%s", log_quote_str(err.text));
    }
    h->kept.told = rc < 0;
    h->kept.read = rc >= 0;
}

/* On a thread of the store. */
static void span_kept(struct store_call *call)
{
    struct http *h = call->owner;
    if (call->err.code < 0) {
        atomic_store(&h->kept.failed, true);
    }
    atomic_fetch_sub(&h->kept.under_way, 1); /* last: its memory is the HTTP thread's again */
}

/* One of both that is still under way is the last point's: the next one's has it, too. */
static void spans_keep(struct http *h, struct store *store)
{
    const struct span *spans[] = {&h->spans.day, &h->spans.month};
    if (store->memos == NULL || atomic_load(&h->kept.under_way) > 0) {
        return;
    }
    bool failed = atomic_exchange(&h->kept.failed, false);
    if (failed && !h->kept.told) {
        log_warn("spans of the page are not kept", "error=%s", log_quote_str(h->kept.memos[0].call.err.text));
    }
    h->kept.told = failed;
    atomic_store(&h->kept.under_way, 2);
    for (int i = 0; i < 2; i++) {
        struct store_memo *memo = &h->kept.memos[i];
        buf_clear(&h->kept.texts[i]);
        span_write(spans[i], &h->kept.texts[i]);
        *memo = (struct store_memo){
            .call = {.done = span_kept, .owner = h}, .name = span_names[i], .value = buf_slice(&h->kept.texts[i])};
        if (h->kept.texts[i].failed) {
            h->kept.texts[i].failed = false;
            memo->call.err.code = ERR_NOMEM;
            span_kept(&memo->call);
        } else {
            store->memos->keep(store, memo);
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
        out->data_bytes = stats.staging_file_bytes + stats.history_file_bytes; /* logs come and go */
    }
    struct http *h = http_of(w);
    timeline_note(&h->timeline, out);
    if (dedup != NULL && !h->kept.read) {
        spans_restore(h, w->service->asker);
    }
    if (h->kept.read && spans_note(&h->spans, out, clock_wall_ms())) {
        spans_keep(h, dedup->store);
    }
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

static json_t *hour_points(const struct timeline *t, const struct timeline_mark *now, int64_t wall)
{
    json_t *points = json_array();
    for (size_t i = 1; i < t->n; i++) {
        const struct timeline_mark *mark = timeline_mark(t, i);
        if (now->mono_ms - mark->mono_ms < TIMELINE_MS) {
            struct timeline_point point = timeline_between(timeline_mark(t, i - 1), mark);
            json_t *value = timeline_point_json(&point);
            json_object_set_new(value, "at", json_integer((json_int_t)(wall - (now->mono_ms - mark->mono_ms))));
            json_append(&points, value);
        }
    }
    return points;
}

static json_t *p99(uint64_t us)
{
    return ms_or_null(us > 0 ? (double)us : -1);
}

static json_t *span_points(const struct span *span, int64_t wall, int64_t span_ms)
{
    json_t *points = json_array();
    for (size_t i = 0; i < span->n; i++) {
        const struct span_point *p = &span->points[i];
        double per = p->ms > 0 ? 1000 / (double)p->ms : 0;
        if (p->at_ms > wall || wall - p->at_ms >= span_ms) {
            continue;
        }
        json_append(&points,
                    json_pack("{s:I, s:f, s:f, s:f, s:f, s:o, s:n, s:o, s:n, s:o}", "at", (json_int_t)p->at_ms,
                              "seconds", (double)p->ms / 1000, "questions", (double)p->questions * per, "writes",
                              (double)p->writes * per, "errors", (double)p->errors * per, "hidden",
                              p->candidates > 0 ? json_real((double)p->hidden / (double)p->candidates) : json_null(),
                              "question_p50_ms", "question_p99_ms", p99(p->question_p99_us), "write_p50_ms",
                              "write_p99_ms", p99(p->write_p99_us)));
    }
    return points;
}

/* ?span=hour, day or month. False: it is answered. */
static bool read_span(struct http_request *rq, struct slice *span)
{
    struct slice name, value;
    size_t at = 0;
    int rc;
    while ((rc = http_argument(rq, &at, &name, &value)) > 0) {
        if (!slice_eq(name, slice_str("span")) ||
            (!slice_eq(value, slice_str("hour")) && !slice_eq(value, slice_str("day")) &&
             !slice_eq(value, slice_str("month")))) {
            http_problem(rq, 400, "bad-request", "expected span=hour, span=day or span=month");
            return false;
        }
        *span = value;
    }
    if (rc < 0) {
        http_problem(rq, 400, "bad-request", "the query holds a %% without two hex digits behind it");
    }
    return rc == 0;
}

enum http_outcome get_timeline(struct http_request *rq)
{
    struct slice span = slice_str("hour");
    struct timeline_mark now;
    if (!read_span(rq, &span)) {
        return HTTP_DONE;
    }
    http_timeline_look(rq->conn->conn.worker, &now);
    const struct spans *spans = &rq->http->spans;
    int64_t wall = clock_wall_ms(), step = TIMELINE_STEP_MS;
    json_t *points;
    if (slice_eq(span, slice_str("day"))) {
        step = SPAN_DAY_STEP_MS;
        points = span_points(&spans->day, wall, SPAN_DAY_MS);
    } else if (slice_eq(span, slice_str("month"))) {
        step = SPAN_MONTH_STEP_MS;
        points = span_points(&spans->month, wall, (int64_t)SPAN_MONTH_STEP_MS * SPAN_MONTH_POINTS);
    } else {
        points = hour_points(&rq->http->timeline, &now, wall);
    }
    json_write(&rq->out,
               json_pack("{s:I, s:I, s:o}", "now", (json_int_t)wall, "step_ms", (json_int_t)step, "points", points));
    return HTTP_DONE;
}
