/* LEGACY: users who come from another Redis (src/legacy/). The store changes notes; the connection waits for it. A long
 * list of users is noted in several transactions, one after the other. */
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "legacy/legacy.h"
#include "legacy/mirror.h"
#include "legacy/read_through.h"
#include "resp/args.h"
#include "resp/command.h"
#include "resp/deferred.h"
#include "service/offload.h"
#include "store/migration.h"

enum { MIGRATION_STEP = 1000, PROBLEMS_DEFAULT = 100, PROBLEMS_MOST = 1000 };

struct legacy_deferred {
    struct deferred deferred;
    struct store_migration_change users_to_migrate;
    struct store *store;
    struct legacy *legacy;
    const struct slice *users;
    size_t n_users, at;
    uint64_t changed, forgotten;
    bool plain; /* answers OK */
};

static struct legacy *legacy_of(struct resp_client *s, enum outcome *refused)
{
    struct legacy *legacy = service_dedup(&s->conn)->legacy;
    if (legacy == NULL) {
        *refused =
            resp_client_refuse(s, "ERR no Redis to come from is configured: set redis in the section [legacy], in an "
                                  "unseen that was built with hiredis");
    }
    return legacy;
}

static void answer(struct deferred *deferred, struct resp_client *s)
{
    struct legacy_deferred *t = (struct legacy_deferred *)deferred;
    if (t->users_to_migrate.call.err.code < 0) {
        resp_client_write_err(s, &t->users_to_migrate.call.err);
    } else if (t->plain) {
        write_simple(&s->writer, "OK");
    } else if (t->users_to_migrate.kind == MIGRATION_ADD) {
        write_map(&s->writer, 2);
        write_pair_int(&s->writer, "noted", (int64_t)t->changed);
        write_pair_int(&s->writer, "forgotten", (int64_t)t->forgotten);
    } else {
        write_int(&s->writer, (int64_t)t->changed);
    }
}

static void next(struct legacy_deferred *t);

/* On a thread of the store. */
static void on_done(struct store_call *call)
{
    struct legacy_deferred *t = call->owner;
    t->changed += t->users_to_migrate.changed;
    t->forgotten += t->users_to_migrate.forgotten;
    bool more = t->users_to_migrate.kind == MIGRATION_AGAIN ? t->users_to_migrate.more > 0 : t->at < t->n_users;
    if (call->err.code == 0 && more) {
        next(t);
        return;
    }
    legacy_wake(t->legacy);
    deferred_done(&t->deferred);
}

static void next(struct legacy_deferred *t)
{
    if (t->users_to_migrate.kind == MIGRATION_ADD) {
        t->users_to_migrate.users = t->users + t->at;
        t->users_to_migrate.n = t->n_users - t->at < MIGRATION_STEP ? t->n_users - t->at : MIGRATION_STEP;
        t->at += t->users_to_migrate.n;
    }
    t->store->migration->note(t->store, &t->users_to_migrate);
}

static struct legacy_deferred *new_deferred(struct resp_client *s, struct legacy *legacy, enum store_notes_kind kind,
                                            size_t more)
{
    struct legacy_deferred *t = deferred_new(sizeof *t + more, s, answer);
    if (t != NULL) {
        t->store = service_dedup(&s->conn)->store;
        t->legacy = legacy;
        t->users_to_migrate.kind = kind;
        t->users_to_migrate.call.done = on_done;
        t->users_to_migrate.call.owner = t;
    }
    return t;
}

static enum outcome start(struct resp_client *s, struct legacy_deferred *t)
{
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory");
    }
    next(t);
    return OUTCOME_LATER;
}

static enum outcome note(struct resp_client *s, const struct slice *args, size_t n, bool forgotten_too)
{
    enum outcome refused;
    struct legacy *legacy = legacy_of(s, &refused);
    if (legacy == NULL) {
        return refused;
    }
    const struct slice *users = args + 2;
    size_t n_users = n - 2, bytes = 0;
    for (size_t i = 0; i < n_users; i++) {
        struct err err;
        if (dedup_check_id("user", i + 1, users[i], &err) < 0) {
            return resp_client_refuse(s, "ERR %s", err.text);
        }
        bytes += users[i].len;
    }
    struct legacy_deferred *t = new_deferred(s, legacy, MIGRATION_ADD, n_users * sizeof *users + bytes);
    if (t != NULL) {
        struct slice *copies = (struct slice *)(t + 1);
        char *at = (char *)(copies + n_users);
        for (size_t i = 0; i < n_users; i++) {
            memcpy(at, users[i].data, users[i].len);
            copies[i] = slice_of(at, users[i].len);
            at += users[i].len;
        }
        t->users = copies;
        t->n_users = n_users;
        t->users_to_migrate.forgotten_too = forgotten_too;
    }
    return start(s, t);
}

enum outcome cmd_legacy_note(struct resp_client *s, const struct slice *args, size_t n)
{
    return note(s, args, n, false);
}

enum outcome cmd_legacy_renote(struct resp_client *s, const struct slice *args, size_t n)
{
    return note(s, args, n, true);
}

enum outcome cmd_legacy_again(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    enum outcome refused;
    struct legacy *legacy = legacy_of(s, &refused);
    return legacy == NULL ? refused : start(s, new_deferred(s, legacy, MIGRATION_AGAIN, 0));
}

static enum outcome pause_or_resume(struct resp_client *s, bool pause)
{
    enum outcome refused;
    struct legacy *legacy = legacy_of(s, &refused);
    if (legacy == NULL) {
        return refused;
    }
    struct legacy_deferred *t = new_deferred(s, legacy, MIGRATION_PAUSE, 0);
    if (t != NULL) {
        t->users_to_migrate.paused = pause;
        t->plain = true;
    }
    return start(s, t);
}

enum outcome cmd_legacy_pause(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    return pause_or_resume(s, true);
}

enum outcome cmd_legacy_resume(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    return pause_or_resume(s, false);
}

enum outcome cmd_legacy_status(struct resp_client *s, const struct slice *args, size_t n)
{
    (void)args;
    (void)n;
    enum outcome refused;
    struct legacy *legacy = legacy_of(s, &refused);
    if (legacy == NULL) {
        return refused;
    }
    struct legacy_state state;
    legacy_state(legacy, &state);
    struct writer *w = &s->writer;
    struct feed_state mirror;
    feed_state_of(service_dedup(&s->conn)->store, MIRROR_CONSUMER, &mirror);
    struct read_through_status read_through;
    read_through_status(service_dedup(&s->conn)->read_through, &read_through);
    write_map(w, 33);
    write_pair_str(w, "state", legacy_doing_name(state.doing));
    write_pair_str(w, "cause", state.cause);
    write_pair_int(w, "noted", (int64_t)state.users_to_migrate.all);
    write_pair_int(w, "waiting", (int64_t)state.users_to_migrate.waiting);
    write_pair_int(w, "migrated", (int64_t)state.users_to_migrate.done);
    write_pair_int(w, "left", (int64_t)state.users_to_migrate.left);
    write_pair_int(w, "forgotten", (int64_t)state.users_to_migrate.ended);
    write_pair_int(w, "problems", (int64_t)(state.users_to_migrate.problems + state.unlisted));
    write_pair_int(w, "users", (int64_t)state.users);
    write_pair_int(w, "plays", (int64_t)state.plays);
    write_pair_int(w, "deliveries", (int64_t)state.deliveries);
    write_pair_int(w, "too_old", (int64_t)state.too_old);
    write_pair_int(w, "skipped", (int64_t)state.skipped);
    write_pair_int(w, "bytes", (int64_t)state.bytes);
    write_pair_int(w, "users_per_second", (int64_t)(state.users_second + 0.5));
    uint64_t left = legacy_seconds_left(&state);
    write_pair_int(w, "seconds_left", (int64_t)left);
    write_pair_int(w, "estimated_end", left > 0 ? clock_wall_ms() + (int64_t)left * 1000 : 0);
    write_pair_int(w, "waiting_since", state.waiting_since_ms);
    write_pair_int(w, "cluster_masters", (int64_t)state.masters);
    write_pair_int(w, "cluster_moved", (int64_t)state.moved);
    write_pair_int(w, "cluster_asks", (int64_t)state.asks);
    write_pair_str(w, "mirror", mirror.lost_ms != 0 ? "broken" : mirror.listens ? "whole" : "off");
    write_pair_int(w, "mirror_waiting", (int64_t)mirror.events);
    write_pair_int(w, "mirror_broken_since", mirror.lost_ms);
    write_pair_int(w, "mirror_left_out", (int64_t)mirror.left_out);
    write_pair_str(w, "read_through", read_through_doing_name(read_through.doing));
    write_pair_str(w, "read_through_cause", read_through.cause);
    for (int i = 0; i < READ_THROUGH_COUNTS; i++) {
        write_pair_int(w, read_through_count_name((enum read_through_count)i), (int64_t)read_through.counts[i]);
    }
    return OUTCOME_ANSWERED;
}

/* Where each of the users stands. */
enum outcome cmd_legacy_state(struct resp_client *s, const struct slice *args, size_t n)
{
    static const char *const names[MIGRATION_STATES] = {"none", "waiting", "migrated", "left", "forgotten"};
    enum outcome refused;
    if (legacy_of(s, &refused) == NULL) {
        return refused;
    }
    const struct dedup *d = service_dedup(&s->conn);
    for (size_t i = 2; i < n; i++) {
        struct err err;
        if (dedup_check_id("user", i - 1, args[i], &err) < 0) {
            return resp_client_refuse(s, "ERR %s", err.text);
        }
    }
    write_array(&s->writer, n - 2);
    for (size_t i = 2; i < n; i++) {
        write_str(&s->writer, names[d->store->migration->of(d->store, hash_user_key(d->seed, args[i]))]);
    }
    return OUTCOME_ANSWERED;
}

/* They are read from the disk, so that is done on an offload thread that may wait for it. */
struct problems_deferred {
    struct deferred deferred;
    struct offload_job job;
    struct legacy *legacy;
    struct arena arena; /* of the list */
    struct store_problem *list;
    int most, found;
    struct err err;
};

static struct problems_deferred *problems_of(struct loop_message *message)
{
    return (struct problems_deferred *)((char *)message - offsetof(struct problems_deferred, job.message));
}

static void read_problems(struct offload_job *job, struct asker *asker)
{
    (void)asker;
    struct problems_deferred *t = problems_of(&job->message);
    t->list = arena_alloc(&t->arena, (size_t)t->most * sizeof *t->list);
    t->found = t->list != NULL ? legacy_problems(t->legacy, t->list, t->most, &t->arena, &t->err)
                               : err_set(&t->err, ERR_NOMEM, "out of memory");
}

static void answer_problems(struct deferred *deferred, struct resp_client *s)
{
    struct problems_deferred *t = (struct problems_deferred *)deferred;
    if (t->found < 0) {
        resp_client_write_err(s, &t->err);
        return;
    }
    write_array(&s->writer, (size_t)t->found);
    for (int i = 0; i < t->found; i++) {
        write_map(&s->writer, 3);
        write_pair_bulk(&s->writer, "key", t->list[i].key);
        write_pair_bulk(&s->writer, "problem", t->list[i].what);
        write_pair_int(&s->writer, "at", t->list[i].at_ms);
    }
}

static void problems_back(struct loop_message *message, void *owner)
{
    (void)owner;
    struct problems_deferred *t = problems_of(message);
    struct arena arena = t->arena;
    deferred_end(&t->deferred);
    arena_free(&arena);
}

enum outcome cmd_legacy_problems(struct resp_client *s, const struct slice *args, size_t n)
{
    enum outcome refused;
    struct legacy *legacy = legacy_of(s, &refused);
    if (legacy == NULL) {
        return refused;
    }
    int64_t most = PROBLEMS_DEFAULT;
    if (n > 3 || (n == 3 && (!arg_int(args[2], &most) || most < 1 || most > PROBLEMS_MOST))) {
        return resp_client_refuse(s, "ERR LEGACY PROBLEMS takes a number from 1 to %d", PROBLEMS_MOST);
    }
    struct problems_deferred *t = deferred_new(sizeof *t, s, answer_problems);
    if (t == NULL) {
        return resp_client_refuse(s, "OOM out of memory");
    }
    struct worker *w = s->conn.worker;
    t->job = (struct offload_job){{NULL, problems_back}, w, read_problems, OFFLOAD_COLD};
    t->legacy = legacy;
    t->most = (int)most;
    t->found = err_set(&t->err, ERR_CLOSED, "the server is stopping");
    offload_put(&w->pool->service->offload, &t->job);
    return OUTCOME_LATER;
}
