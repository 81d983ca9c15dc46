/* Shared by all ports: counters, and whether one of them waits, which is logged once for all. */
#include "legacy/read_through.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hide.h"
#include "base/log.h"
#include "legacy/read_through_impl.h"

static const struct figure figures[READ_THROUGH_COUNTS] = {
    [READ_THROUGH_ASKED] = {"read_through_asked", "read_through_asked_total", FIGURE_COUNTER,
                            "Questions about users not yet migrated that were put to the old Redis too."},
    [READ_THROUGH_ANSWERED] = {"read_through_answered", "read_through_answered_total", FIGURE_COUNTER,
                               "Questions that the old Redis answered in time."},
    [READ_THROUGH_LATE] = {"read_through_late", "read_through_late_total", FIGURE_COUNTER,
                           "Questions answered without the old Redis: it took longer than legacy_timeout."},
    [READ_THROUGH_FAILED] = {"read_through_failed", "read_through_failed_total", FIGURE_COUNTER,
                             "Questions answered without the old Redis: it refused, or the connection was lost."},
    [READ_THROUGH_SKIPPED] = {"read_through_skipped", "read_through_skipped_total", FIGURE_COUNTER,
                              "Questions not put to the old Redis, because it is away or was late too often."},
    [READ_THROUGH_HIDDEN] = {"read_through_hidden", "read_through_hidden_total", FIGURE_COUNTER,
                             "Candidates that are seen only in the old Redis."},
};

const char *read_through_doing_name(enum read_through_doing doing)
{
    static const char *const names[] = {"off", "on", "waiting"};
    return names[doing];
}

const char *read_through_count_name(enum read_through_count count)
{
    return figures[count].info;
}

int read_through_start(const struct dedup *dedup, struct read_through **read_through, struct err *err)
{
    *read_through = NULL;
    if (config_legacy(dedup->cfg)[0] == '\0') {
        return 0;
    }
    struct read_through *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    t->dedup = dedup;
    t->cfg = dedup->cfg;
    pthread_mutex_init(&t->mutex, NULL);
    *read_through = t;
    return 0;
}

void read_through_free(struct read_through *t)
{
    if (t != NULL) {
        pthread_mutex_destroy(&t->mutex);
        free(t);
    }
}

void read_through_count(struct read_through *t, enum read_through_count what, uint64_t n)
{
    atomic_fetch_add_explicit(&t->counts[what], n, memory_order_relaxed);
}

void read_through_begin_waiting(struct read_through *t, bool *waits, const char *cause)
{
    pthread_mutex_lock(&t->mutex);
    bool first = !t->told;
    t->told = true;
    t->waiting += !*waits;
    *waits = true;
    hide_ids_copy(t->cause, sizeof t->cause, cause);
    pthread_mutex_unlock(&t->mutex);
    if (first) {
        log_warn("read-through waits: questions are answered without the old Redis", "cause=%s", log_quote_str(cause));
    }
}

void read_through_end_waiting(struct read_through *t, bool *waits, bool tell)
{
    pthread_mutex_lock(&t->mutex);
    t->waiting -= *waits;
    *waits = false;
    bool last = t->told && t->waiting == 0;
    t->told = t->told && !last;
    pthread_mutex_unlock(&t->mutex);
    if (last && tell) {
        log_info("read-through goes on", "late=%" PRIu64 " failed=%" PRIu64 " skipped=%" PRIu64,
                 atomic_load(&t->counts[READ_THROUGH_LATE]), atomic_load(&t->counts[READ_THROUGH_FAILED]),
                 atomic_load(&t->counts[READ_THROUGH_SKIPPED]));
    }
}

void read_through_stop_waiting(struct read_through *t, bool *waits)
{
    pthread_mutex_lock(&t->mutex);
    t->waiting -= *waits;
    *waits = false;
    pthread_mutex_unlock(&t->mutex);
}

void read_through_status(struct read_through *t, struct read_through_status *out)
{
    *out = (struct read_through_status){0};
    if (t == NULL) {
        return;
    }
    for (int i = 0; i < READ_THROUGH_COUNTS; i++) {
        out->counts[i] = atomic_load_explicit(&t->counts[i], memory_order_relaxed);
    }
    if (!config_now(t->cfg)->legacy_read_through) {
        return;
    }
    pthread_mutex_lock(&t->mutex);
    out->doing = t->waiting > 0 ? READ_THROUGH_WAITING : READ_THROUGH_ON;
    snprintf(out->cause, sizeof out->cause, "%s", t->waiting > 0 ? t->cause : "");
    pthread_mutex_unlock(&t->mutex);
}

void read_through_figures_each(struct read_through *t, figure_visit *visit, void *arg)
{
    static const struct figure up = {"read_through_up", "read_through_up", FIGURE_GAUGE,
                                     "1 unless questions are answered without the old Redis, because it is away or "
                                     "too late."};
    struct read_through_status s;
    read_through_status(t, &s);
    for (int i = 0; i < READ_THROUGH_COUNTS; i++) {
        visit(arg, &figures[i], s.counts[i]);
    }
    visit(arg, &up, s.doing != READ_THROUGH_WAITING);
}
