/* The flush: merging a closed slot, or a bulk load's index, into history.
 *
 * In key order, in transactions of some users each, so that SQLite's pages are visited in order and forgets get their
 * turn in between. Then the barrier: one small commit under synchronous=FULL makes all of it durable. Only after that
 * may the slot's rows be deleted (slots.c does it).
 *
 * A transaction that fails is rolled back and its range of keys noted; the others go on. The slot is then FAILED, and
 * only the noted ranges are tried again. But if any commit or fsync failed since the first try began, it isn't known
 * what will be durable, and everything is merged again.
 */
#include <limits.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/migration.h"
#include "store/sqlite/history/history.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

enum {
    STEP_USERS = 128,    /* users of one transaction at most ... */
    STEP_US = 20 * 1000, /* ... or when it has taken this long */
    STEP_PLAYS = 50000,  /* ... or has merged so many plays */
    RETRY_USERS = 16,    /* users of one transaction when a range is tried again: the good among them get through ... */
    LAST_USERS = 1,      /* ... at the latest when it is tried a third time */
};

static int ranges_add(struct ranges *r, int64_t from, int64_t to)
{
    if (r->n == r->cap) {
        size_t cap = r->cap > 0 ? 2 * r->cap : 16;
        struct key_range *more = realloc(r->at, cap * sizeof *more);
        if (more == NULL) {
            return ERR_NOMEM;
        }
        r->at = more;
        r->cap = cap;
    }
    r->at[r->n++] = (struct key_range){from, to};
    return 0;
}

void flush_begin(struct sqlite_store *s, struct flush_job *job, struct staged *index)
{
    /* What an earlier try has merged counts only if nothing was lost since, in this try or between both. */
    bool whole = job->index != index || job->redo_all || job->failed.n == 0 || job->losses != s->historian.losses;
    if (job->index != index) {
        job->failures = 0;
    }
    job->partial_tries = whole ? 0 : job->partial_tries + 1;
    job->index = index;
    job->redo_all = false;
    job->losses = s->historian.losses;
    job->walking = false;
    job->at_todo = 0;
    job->todo.n = 0;
    if (!whole) {
        struct ranges again = job->failed;
        job->failed = job->todo;
        job->todo = again;
    } else if (ranges_add(&job->todo, INT64_MIN, INT64_MAX) < 0) {
        job->redo_all = true;
    }
    job->failed.n = 0;
    job->error = (struct err){0};
    job->users = 0;
    job->plays = 0;
    job->started_us = clock_figures_us();
}

void flush_free(struct flush_job *job)
{
    staged_walk_free(&job->walk);
    free(job->todo.at);
    free(job->failed.at);
    *job = (struct flush_job){0};
}

static void note_failure(struct flush_job *job, int64_t from, int64_t to, const struct err *err, bool unknown)
{
    if (job->error.code == 0) {
        job->error = *err;
    }
    if (unknown || ranges_add(&job->failed, from, to) < 0) {
        job->redo_all = true;
    }
}

struct step {
    uint64_t users, plays;
    int64_t from, to; /* keys visited */
    bool range_ended;
};

/* Merges users of the range under way until the step is large enough. Inside a transaction. */
static int merge_some(struct sqlite_store *s, struct flush_job *job, struct step *step, struct err *err)
{
    int64_t started = clock_work_us();
    int64_t end = job->todo.at[job->at_todo].to;
    int first_kept = sweep_first_kept(s);
    uint64_t most = job->partial_tries == 0 ? STEP_USERS : job->partial_tries == 1 ? RETRY_USERS : LAST_USERS;
    int result = 0;
    while (result == 0 && step->users < most && step->plays < STEP_PLAYS &&
           (step->users % 16 != 0 || clock_work_us() - started < STEP_US)) {
        int next = staged_walk_next(&job->walk);
        if (next < 0) {
            /* Where the next user is isn't known, so the rest of the range waits. */
            step->range_ended = true;
            return err_set(err, next, "out of memory while flushing");
        }
        if (next == 0 || job->walk.key > end) {
            step->range_ended = true;
            return 0;
        }
        if (job->older && migration_users_of(&s->base, job->walk.key) == MIGRATION_ENDED) {
            continue; /* forgotten since: the erase comes later than the note's end, or has been */
        }
        /* The second of two users with one key may begin a step that the first has ended. */
        step->from = job->walk.key < step->from ? job->walk.key : step->from;
        step->to = job->walk.key;
        step->users++;
        step->plays += job->walk.n_plays;
        result = merge_user(s, &job->walk, first_kept, job->older, err);
    }
    return result;
}

/* One transaction. */
static void merge_step(struct sqlite_store *s, struct flush_job *job)
{
    const struct key_range *range = &job->todo.at[job->at_todo];
    if (!job->walking) {
        staged_walk_begin(&job->walk, job->index, range->from);
        job->walking = true;
        job->next_key = range->from;
    }
    struct step step = {.from = job->next_key, .to = job->next_key};
    struct err err = {0};
    bool unknown = false;
    int result = history_begin(s, &err);
    if (result == 0) {
        result = merge_some(s, job, &step, &err);
        if (result == 0) {
            result = history_commit(s, &err);
            unknown = result < 0;
        } else {
            history_rollback(s);
        }
    } else {
        step.to = range->to; /* nothing can be written at all: this range waits as a whole */
        step.range_ended = true;
    }
    if (result < 0) {
        note_failure(job, step.from, step.range_ended ? range->to : step.to, &err, unknown);
    } else {
        job->users += step.users;
        job->plays += step.plays;
    }
    /* A step may have ended between two users with one key: that key is done only when the next one is seen. */
    job->next_key = result == 0 || step.to == INT64_MAX ? step.to : step.to + 1;
    if (step.range_ended || (result < 0 && step.to == INT64_MAX)) {
        job->walking = false;
        job->at_todo++;
    } else if (result < 0) {
        job->walking = false; /* the walk may stand in the middle of the step: begin behind it */
        job->todo.at[job->at_todo].from = job->next_key;
    }
}

int flush_step(struct sqlite_store *s, struct flush_job *job)
{
    if (job->at_todo < job->todo.n) {
        merge_step(s, job);
        return 1;
    }
    if (job->losses != s->historian.losses) {
        struct err err = {0};
        err_set(&err, ERR_IO, "a commit failed during the flush");
        note_failure(job, INT64_MIN, INT64_MAX, &err, true);
    }
    if (job->failed.n == 0 && !job->redo_all) {
        struct err err = {0};
        if (history_barrier(s, &err) < 0) {
            note_failure(job, INT64_MIN, INT64_MAX, &err, true);
        }
    }
    COUNT(s, users_flushed, job->users);
    COUNT(s, plays_flushed, job->plays);
    if (job->failed.n > 0 || job->redo_all) {
        job->failures++;
        COUNT(s, flush_errors, 1);
        return job->error.code < 0 ? job->error.code : err_set(&job->error, ERR_NOMEM, "out of memory while flushing");
    }
    job->failures = 0;
    COUNT(s, flushes, 1);
    return 0;
}
