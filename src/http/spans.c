#include "http/spans.h"

#include <inttypes.h>
#include <string.h>

/* In whole microseconds, at least one where anything took place; below 0 nothing did. */
static uint64_t p99_us(double us)
{
    return us > 1 ? (uint64_t)us : us >= 0;
}

static struct span_point point_between(const struct timeline_mark *from, const struct timeline_mark *to,
                                       int64_t wall_ms)
{
    struct timeline_point rates = timeline_between(from, to);
    uint64_t candidates = to->candidates - from->candidates, unseen = to->unseen - from->unseen;
    return (struct span_point){
        .at_ms = wall_ms,
        .ms = (uint64_t)(to->mono_ms - from->mono_ms),
        .questions = to->questions - from->questions,
        .writes = to->writes - from->writes,
        .errors = to->errors - from->errors,
        .candidates = candidates,
        .hidden = candidates > unseen ? candidates - unseen : 0,
        .question_p99_us = p99_us(rates.asked.p99_us),
        .write_p99_us = p99_us(rates.recorded.p99_us),
    };
}

static void push(struct span *span, size_t most, const struct span_point *point)
{
    if (span->n == most) {
        memmove(span->points, span->points + 1, (most - 1) * sizeof *span->points);
        span->n--;
    }
    span->points[span->n++] = *point;
}

/* Of the same hour: the end of an hour belongs to it. */
static bool same_hour(int64_t a_ms, int64_t b_ms)
{
    return (a_ms - 1) / SPAN_MONTH_STEP_MS == (b_ms - 1) / SPAN_MONTH_STEP_MS;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void unite(struct span_point *to, const struct span_point *with)
{
    to->at_ms = with->at_ms;
    to->ms += with->ms;
    to->questions += with->questions;
    to->writes += with->writes;
    to->errors += with->errors;
    to->candidates += with->candidates;
    to->hidden += with->hidden;
    to->question_p99_us = larger(to->question_p99_us, with->question_p99_us);
    to->write_p99_us = larger(to->write_p99_us, with->write_p99_us);
}

bool spans_note(struct spans *spans, const struct timeline_mark *now, int64_t wall_ms)
{
    if (!spans->begun) {
        spans->begun = true;
        spans->from = *now;
        return false;
    }
    if (now->mono_ms - spans->from.mono_ms < SPAN_DAY_STEP_MS) {
        return false;
    }
    struct span_point point = point_between(&spans->from, now, wall_ms);
    struct span *month = &spans->month;
    push(&spans->day, SPAN_DAY_POINTS, &point);
    if (month->n > 0 && same_hour(month->points[month->n - 1].at_ms, wall_ms)) {
        unite(&month->points[month->n - 1], &point);
    } else {
        push(month, SPAN_MONTH_POINTS, &point);
    }
    spans->from = *now;
    return true;
}

void span_write(const struct span *span, struct buf *to)
{
    for (size_t i = 0; i < span->n; i++) {
        const struct span_point *p = &span->points[i];
        buf_addf(to,
                 "%" PRId64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                 ",%" PRIu64 "\n",
                 p->at_ms, p->ms, p->questions, p->writes, p->errors, p->candidates, p->hidden, p->question_p99_us,
                 p->write_p99_us);
    }
}

/* A number up to the byte that ends it; *at goes behind that. */
static bool read_number(struct slice text, size_t *at, char end, uint64_t *out)
{
    uint64_t value = 0;
    size_t i = *at;
    for (; i < text.len && text.data[i] >= '0' && text.data[i] <= '9'; i++) {
        if (value > (INT64_MAX - 9) / 10) {
            return false;
        }
        value = value * 10 + (uint64_t)(text.data[i] - '0');
    }
    if (i == *at || i == text.len || text.data[i] != end) {
        return false;
    }
    *out = value;
    *at = i + 1;
    return true;
}

bool span_read(struct span *span, size_t most, struct slice text)
{
    span->n = 0;
    for (size_t at = 0; at < text.len;) {
        struct span_point p;
        uint64_t wall = 0;
        uint64_t *const fields[] = {&wall,         &p.ms,     &p.questions,       &p.writes,      &p.errors,
                                    &p.candidates, &p.hidden, &p.question_p99_us, &p.write_p99_us};
        enum { FIELDS = sizeof fields / sizeof *fields };
        bool good = span->n < most;
        for (size_t i = 0; i < FIELDS && good; i++) {
            good = read_number(text, &at, i + 1 < FIELDS ? ',' : '\n', fields[i]);
        }
        if (!good) {
            span->n = 0;
            return false;
        }
        p.at_ms = (int64_t)wall;
        span->points[span->n++] = p;
    }
    return true;
}

struct span_today spans_today(const struct spans *spans, const struct timeline_mark *now, int64_t wall_ms)
{
    struct span_today today = {0};
    int64_t midnight_ms = wall_ms - wall_ms % SPAN_DAY_MS;
    if (spans->begun) {
        struct span_point rest = point_between(&spans->from, now, wall_ms);
        today = (struct span_today){rest.questions, rest.candidates, rest.hidden};
    }
    for (size_t i = 0; i < spans->day.n; i++) {
        const struct span_point *p = &spans->day.points[i];
        if (p->at_ms > midnight_ms && p->at_ms <= wall_ms) {
            today.questions += p->questions;
            today.candidates += p->candidates;
            today.hidden += p->hidden;
        }
    }
    return today;
}
