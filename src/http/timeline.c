#include "http/timeline.h"

const struct timeline_mark *timeline_mark(const struct timeline *t, size_t i)
{
    enum { ALL = TIMELINE_POINTS + 1 };
    return &t->marks[(t->next + ALL - t->n + i) % ALL];
}

void timeline_note(struct timeline *t, const struct timeline_mark *mark)
{
    if (t->n > 0 && mark->mono_ms - timeline_mark(t, t->n - 1)->mono_ms < TIMELINE_STEP_MS) {
        return;
    }
    t->marks[t->next] = *mark;
    t->next = (t->next + 1) % (TIMELINE_POINTS + 1);
    t->n += t->n < TIMELINE_POINTS + 1;
}

const struct timeline_mark *timeline_recent(const struct timeline *t, int64_t now_mono_ms)
{
    for (size_t i = t->n; i > 0; i--) {
        const struct timeline_mark *mark = timeline_mark(t, i - 1);
        if (i == 1 || now_mono_ms - mark->mono_ms >= TIMELINE_RECENT_MS) {
            return mark;
        }
    }
    return NULL;
}

const struct timeline_mark *timeline_data(const struct timeline *t, int64_t now_mono_ms)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct timeline_mark *mark = timeline_mark(t, i);
        if (mark->data_bytes > 0 && now_mono_ms - mark->mono_ms <= TIMELINE_MS) {
            return mark;
        }
    }
    return NULL;
}

static struct timeline_times times_between(const struct bucket_sums *from, const struct bucket_sums *to)
{
    struct bucket_sums sums = {0};
    for (unsigned i = 0; i <= BUCKETS; i++) {
        sums.counts[i] = to->counts[i] - from->counts[i];
    }
    if (buckets_count(&sums) == 0) {
        return (struct timeline_times){-1, -1};
    }
    return (struct timeline_times){buckets_quantile(&sums, &buckets_us, 0.5),
                                   buckets_quantile(&sums, &buckets_us, 0.99)};
}

struct timeline_point timeline_between(const struct timeline_mark *from, const struct timeline_mark *to)
{
    double seconds = (double)(to->mono_ms - from->mono_ms) / 1000;
    double per = seconds > 0 ? 1 / seconds : 0;
    uint64_t candidates = to->candidates - from->candidates;
    uint64_t unseen = to->unseen - from->unseen;
    return (struct timeline_point){
        .seconds = seconds,
        .questions = (double)(to->questions - from->questions) * per,
        .writes = (double)(to->writes - from->writes) * per,
        .errors = (double)(to->errors - from->errors) * per,
        .hidden = candidates > 0 ? 1 - (double)unseen / (double)candidates : -1,
        .asked = times_between(&from->asked, &to->asked),
        .recorded = times_between(&from->recorded, &to->recorded),
    };
}
