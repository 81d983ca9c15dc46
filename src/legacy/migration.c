/* The thread that migrates.
 *
 * It goes through the notes in about the order in which history keeps its users, with some hundred users under way at a
 * time over one connection: each has one command out, ZSCAN by pages until the cursor is back at 0, then ZREVRANGE;
 * replies come in the order of the commands. What a reply holds goes into the store's bulk load at once. Users that
 * were read to their end are gathered; every so often the load turns: what was handed over before is durable then, so
 * the users that were gathered before are marked, and what was read since is handed over. So a user is marked only when
 * all of him is durable, and whoever isn't marked is read again: a union.
 *
 * What can go wrong. The old Redis is away, slow, or refuses everybody: what was gathered is handed over and marked,
 * the rest is read again after a delay that grows; meanwhile the state names the cause. The store can't merge or mark:
 * the same, but what was gathered is given up. A key that can't be taken over, in whole or in part, is named, and never
 * stops the others. A user who is forgotten meanwhile: his note has ended, the load passes over him, and marking leaves
 * it ended.
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/beat.h"
#include "base/calendar.h"
#include "base/clock.h"
#include "base/log.h"
#include "legacy/legacy.h"
#include "legacy/take.h"

enum {
    UNDER_WAY = 128,          /* users at a time */
    PAGE = 512,               /* notes read at a time */
    MARK_MAX = 1000,          /* users of one transaction */
    HAND_USERS = 8192,        /* handed over at least when so many are gathered ... */
    HAND_US = 1000 * 1000,    /* ... or the first has waited for so long ... */
    HAND_BYTES_MIN = 1 << 20, /* ... or they take a part of staging_memory, within these */
    HAND_BYTES_MAX = 32 << 20,
    HAND_SHARE = 8,
    BURST_US = 100 * 1000, /* by which the rates may be ahead */
    DELAY_MIN_MS = 100,
    DELAY_MAX_MS = 10 * 1000,
    IDLE_MS = 60 * 1000,
    RATE_US = 2 * 1000 * 1000, /* over which users a second are told */
    DAY_MS = 24 * 3600 * 1000,
};

/* Users that are read, and what was found wrong. */
struct gathered {
    struct arena arena;
    struct slice *users[2]; /* that are done, that are left */
    size_t n[2], cap[2];
    struct store_problem *problems;
    size_t n_problems, cap_problems;
    int64_t since_us;
};

/* A rate limit: when the next may come. */
struct pace {
    int64_t free_us;
};

struct legacy {
    const struct dedup *dedup;
    const struct config *cfg;
    struct store *store;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards these, but not the thread's own below: */
    pthread_cond_t wake;
    bool stop, woken;
    struct redis *redis; /* set and cleared under it, used by the thread without */
    struct legacy_state state;
    pthread_mutex_t reader_mutex; /* guards this: */
    struct store_reader *problems_reader;

    /* the thread's own */
    struct beat beat;
    struct store_reader *reader;
    struct take_rules rules;
    struct take takes[UNDER_WAY];
    uint16_t queue[UNDER_WAY], spare[UNDER_WAY]; /* under way, in the order of their commands; not under way */
    size_t queue_at, n_queue, n_spare;
    struct arena arena;      /* of the page */
    struct slice page[PAGE]; /* users */
    int n_page, at_page;
    struct store_notes_walk walk;
    bool loading; /* the store's bulk load is begun */
    struct gathered gathered[2];
    int filling; /* which of them; the other was handed over */
    struct pace users, bytes;
    unsigned failures; /* in a row */
    int64_t rate_from_us;
    uint64_t rate_from;
};

const char *legacy_doing_name(enum legacy_doing doing)
{
    static const char *const names[] = {"idle", "reading", "paused", "waiting"};
    return names[doing];
}

/* --- waiting --- */

static bool stopping(struct legacy *l)
{
    pthread_mutex_lock(&l->mutex);
    bool stop = l->stop;
    pthread_mutex_unlock(&l->mutex);
    return stop;
}

static bool paused(struct legacy *l)
{
    struct store_notes_state notes;
    l->store->ops->notes_state(l->store, &notes);
    return notes.paused;
}

static void pass_ms(struct legacy *l, int64_t ms, bool wakes)
{
    int64_t until = clock_stopwatch_us() + ms * 1000, left = ms;
    bool over = false;
    while (!over && left > 0) {
        beat_now(&l->beat);
        pthread_mutex_lock(&l->mutex);
        if (!l->stop && !(wakes && l->woken)) {
            clock_cond_wait_real(&l->wake, &l->mutex, left < BEAT_EVERY_MS ? left : BEAT_EVERY_MS);
        }
        over = l->stop || (wakes && l->woken);
        l->woken = l->woken && !wakes;
        pthread_mutex_unlock(&l->mutex);
        left = (until - clock_stopwatch_us() + 999) / 1000;
    }
    beat_now(&l->beat);
}

/* Waits for so long, or until there is something new. */
static void wait_ms(struct legacy *l, int64_t ms)
{
    pass_ms(l, ms, true);
}

/* The same, whatever is new. */
static void rest_ms(struct legacy *l, int64_t ms)
{
    pass_ms(l, ms, false);
}

static void show(struct legacy *l, enum legacy_doing doing, const char *cause)
{
    pthread_mutex_lock(&l->mutex);
    l->state.doing = doing;
    snprintf(l->state.cause, sizeof l->state.cause, "%.*s", (int)sizeof l->state.cause - 1, cause);
    if (doing != LEGACY_READING) {
        l->state.users_second = 0;
        l->rate_from_us = 0;
    }
    pthread_mutex_unlock(&l->mutex);
}

/* How long until the next may come, in us; 0: now. */
static int64_t pace_left(struct pace *p, int64_t rate)
{
    int64_t now = clock_stopwatch_us();
    return rate > 0 && p->free_us > now ? p->free_us - now : 0;
}

static void pace_take(struct pace *p, uint64_t n, int64_t rate)
{
    int64_t now = clock_stopwatch_us();
    if (p->free_us < now - BURST_US) {
        p->free_us = now - BURST_US;
    }
    if (rate > 0) {
        p->free_us += (int64_t)((double)n * 1e6 / (double)rate);
    }
}

/* --- the store --- */

struct call {
    struct store_notes notes;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool done;
};

static void on_done(struct store_call *store_call)
{
    struct call *call = (struct call *)store_call;
    pthread_mutex_lock(&call->mutex);
    call->done = true;
    pthread_cond_signal(&call->wake);
    pthread_mutex_unlock(&call->mutex);
}

static int note(struct legacy *l, const struct store_notes *what, uint64_t *changed, struct err *err)
{
    struct call call = {.notes = *what};
    call.notes.call.done = on_done;
    pthread_mutex_init(&call.mutex, NULL);
    pthread_cond_init(&call.wake, NULL);
    beat_excuse(&l->beat);
    l->store->ops->note(l->store, &call.notes);
    pthread_mutex_lock(&call.mutex);
    while (!call.done) {
        pthread_cond_wait(&call.wake, &call.mutex);
    }
    pthread_mutex_unlock(&call.mutex);
    beat_now(&l->beat);
    pthread_cond_destroy(&call.wake);
    pthread_mutex_destroy(&call.mutex);
    *changed = call.notes.changed;
    const struct err *result = &call.notes.call.err;
    return result->code < 0 ? err_set(err, result->code, "%s", result->text) : 0;
}

static void gathered_clear(struct gathered *g)
{
    arena_reset(&g->arena);
    g->n[0] = g->n[1] = g->n_problems = 0;
    g->since_us = 0;
}

static void gathered_free(struct gathered *g)
{
    arena_free(&g->arena);
    free(g->users[0]);
    free(g->users[1]);
    free(g->problems);
}

static int grow(void *array, size_t *cap, size_t n, size_t size)
{
    if (n < *cap) {
        return 0;
    }
    size_t more = *cap > 0 ? 2 * *cap : 256;
    void *grown = reallocarray(*(void **)array, more, size);
    if (grown == NULL) {
        return ERR_NOMEM;
    }
    *(void **)array = grown;
    *cap = more;
    return 0;
}

static int gather_text(struct gathered *g, struct slice from, struct slice *to)
{
    char *copy = arena_copy(&g->arena, from.data, from.len);
    *to = slice_of(copy, from.len);
    return copy != NULL ? 0 : ERR_NOMEM;
}

static int gather_problem(struct gathered *g, const char *form, struct slice user, const struct take_problem *p)
{
    if (p->what[0] == '\0') {
        return 0;
    }
    char key[LEGACY_KEY_MAX], what[TAKE_WHAT + 64];
    if (p->members > 1) {
        snprintf(what, sizeof what, "%s (and %" PRIu64 " more members)", p->what, p->members - 1);
    } else {
        snprintf(what, sizeof what, "%s", p->what);
    }
    if (grow(&g->problems, &g->cap_problems, g->n_problems, sizeof *g->problems) < 0) {
        return ERR_NOMEM;
    }
    struct store_problem *problem = &g->problems[g->n_problems];
    if (gather_text(g, legacy_key_make(form, user, key), &problem->key) < 0 ||
        gather_text(g, slice_str(what), &problem->what) < 0) {
        return ERR_NOMEM;
    }
    g->n_problems++;
    return 0;
}

/* A user was read to the end. */
static int gather(struct legacy *l, const struct take *t)
{
    struct gathered *g = &l->gathered[l->filling];
    struct slice user = slice_of(t->user, t->user_len);
    int kind = t->played.whole || t->delivered.whole;
    if (grow(&g->users[kind], &g->cap[kind], g->n[kind], sizeof *g->users[kind]) < 0 ||
        gather_text(g, user, &g->users[kind][g->n[kind]]) < 0 ||
        gather_problem(g, l->rules.played_key, user, &t->played) < 0 ||
        gather_problem(g, l->rules.delivered_key, user, &t->delivered) < 0) {
        return ERR_NOMEM;
    }
    g->n[kind]++;
    if (g->since_us == 0) {
        g->since_us = clock_stopwatch_us();
    }
    pthread_mutex_lock(&l->mutex);
    l->state.users++;
    l->state.plays += t->plays;
    l->state.deliveries += t->deliveries;
    l->state.too_old += t->too_old;
    l->state.skipped += t->played.members + t->delivered.members;
    pthread_mutex_unlock(&l->mutex);
    return 0;
}

static void measure_rate(struct legacy *l)
{
    int64_t now = clock_stopwatch_us();
    pthread_mutex_lock(&l->mutex);
    if (l->rate_from_us == 0) {
        l->rate_from_us = now;
        l->rate_from = l->state.users;
    } else if (now - l->rate_from_us >= RATE_US) {
        l->state.users_second = (double)(l->state.users - l->rate_from) * 1e6 / (double)(now - l->rate_from_us);
        l->rate_from_us = now;
        l->rate_from = l->state.users;
    }
    pthread_mutex_unlock(&l->mutex);
}

/* What was handed over is durable: says so in the notes. Problems first, so that none is lost by a crash in between. */
static int settle(struct legacy *l, struct gathered *g, struct err *err)
{
    static const enum store_note states[] = {NOTE_DONE, NOTE_LEFT};
    int rc = 0;
    uint64_t changed;
    for (size_t at = 0; at < g->n_problems && rc == 0; at += MARK_MAX) {
        size_t n = g->n_problems - at < MARK_MAX ? g->n_problems - at : MARK_MAX;
        struct store_notes_state before, after;
        l->store->ops->notes_state(l->store, &before);
        rc =
            note(l, &(struct store_notes){.kind = NOTES_PROBLEMS, .problems = g->problems + at, .n = n}, &changed, err);
        l->store->ops->notes_state(l->store, &after);
        pthread_mutex_lock(&l->mutex);
        l->state.unlisted += after.problems >= STORE_PROBLEMS_MAX ? n - changed : 0;
        pthread_mutex_unlock(&l->mutex);
    }
    for (int kind = 0; kind < 2; kind++) {
        for (size_t at = 0; at < g->n[kind] && rc == 0; at += MARK_MAX) {
            size_t n = g->n[kind] - at < MARK_MAX ? g->n[kind] - at : MARK_MAX;
            rc = note(
                l,
                &(struct store_notes){.kind = NOTES_MARK, .users = g->users[kind] + at, .n = n, .state = states[kind]},
                &changed, err);
        }
    }
    if (rc == 0) {
        gathered_clear(g);
    }
    return rc;
}

/* The load turns. */
static int hand_over(struct legacy *l, struct err *err)
{
    beat_excuse(&l->beat); /* the historian merges */
    int rc = l->store->ops->bulk_turn(l->store, err);
    beat_now(&l->beat);
    if (rc == 0) {
        rc = settle(l, &l->gathered[!l->filling], err);
    }
    if (rc == 0) {
        l->filling = !l->filling;
        l->failures = 0;
        measure_rate(l);
    }
    return rc;
}

static bool gathered_any(const struct legacy *l)
{
    return l->gathered[0].since_us != 0 || l->gathered[1].since_us != 0;
}

/* Until nothing is gathered. */
static int drain(struct legacy *l, struct err *err)
{
    int rc = 0;
    while (rc == 0 && gathered_any(l)) {
        rc = hand_over(l, err);
    }
    return rc;
}

static bool hand_over_due(struct legacy *l)
{
    const struct gathered *g = &l->gathered[l->filling];
    int64_t limit = config_now(l->cfg)->staging_memory / HAND_SHARE;
    limit = limit < HAND_BYTES_MIN ? HAND_BYTES_MIN : limit > HAND_BYTES_MAX ? HAND_BYTES_MAX : limit;
    return (int64_t)l->store->ops->bulk_bytes(l->store) >= limit || g->n[0] + g->n[1] >= HAND_USERS ||
           (g->since_us != 0 && clock_stopwatch_us() - g->since_us >= HAND_US);
}

/* Gives up what was gathered and not marked: it is read again. */
static void give_up(struct legacy *l)
{
    if (l->loading) {
        beat_excuse(&l->beat);
        l->store->ops->bulk_end(l->store, NULL);
        beat_now(&l->beat);
        l->loading = false;
    }
    gathered_clear(&l->gathered[0]);
    gathered_clear(&l->gathered[1]);
}

/* --- reading --- */

static void disconnect(struct legacy *l)
{
    pthread_mutex_lock(&l->mutex);
    struct redis *redis = l->redis;
    l->redis = NULL;
    pthread_mutex_unlock(&l->mutex);
    redis_close(redis);
    for (l->n_spare = 0; l->n_spare < UNDER_WAY; l->n_spare++) {
        l->spare[l->n_spare] = (uint16_t)l->n_spare;
    }
    l->n_queue = l->queue_at = 0;
    l->n_page = l->at_page = 0;
    l->walk = (struct store_notes_walk){0};
}

static int connect_redis(struct legacy *l, struct err *err)
{
    struct redis *redis = NULL;
    if (l->redis != NULL) {
        return 0;
    }
    int rc = redis_new(&l->beat, &redis, err);
    if (rc < 0) {
        return rc;
    }
    pthread_mutex_lock(&l->mutex);
    l->redis = redis; /* from now on whoever stops the thread interrupts it */
    bool stop = l->stop;
    pthread_mutex_unlock(&l->mutex);
    return stop ? err_set(err, ERR_CLOSED, "interrupted") : redis_connect(redis, l->cfg, err);
}

/* By the clock and the configuration of now. */
static void renew_rules(struct legacy *l)
{
    const struct config *live = config_now(l->cfg);
    int64_t later, earlier;
    l->store->ops->now(l->store, &later, &earlier);
    int kept = month_of_ms(earlier) - (int)live->retention;
    int taken = month_of_ms(earlier) - (int)live->legacy_months + 1;
    l->rules = (struct take_rules){
        .played_key = l->cfg->legacy_played_key,
        .delivered_key = l->cfg->legacy_delivered_key,
        .deliveries = {(enum config_score)l->cfg->legacy_score, month_start_ms(kept), later + DAY_MS},
        .store = l->store,
        .seed = l->dedup->seed,
    };
    l->rules.plays = l->rules.deliveries;
    l->rules.plays.oldest_ms = month_start_ms(taken > kept ? taken : kept);
}

static int next_page(struct legacy *l, struct err *err)
{
    arena_reset(&l->arena);
    l->at_page = 0;
    l->n_page = 0;
    int n = l->store->ops->notes_read(l->reader, &l->walk, l->page, PAGE, &l->arena, err);
    if (n < 0) {
        return n;
    }
    l->n_page = n;
    renew_rules(l);
    return 0;
}

static bool at_end(const struct legacy *l)
{
    return l->at_page == l->n_page && l->walk.ended;
}

static int ask(struct legacy *l, uint16_t which, struct err *err)
{
    int rc = take_ask(&l->takes[which], &l->rules, l->redis, err);
    l->queue[(l->queue_at + l->n_queue++) % UNDER_WAY] = which;
    return rc;
}

/* As many users as there is room for and the rate allows. */
static int start_some(struct legacy *l, struct err *err)
{
    int64_t rate = config_now(l->cfg)->legacy_users_rate;
    int rc = 0;
    while (rc == 0 && l->n_spare > 0 && pace_left(&l->users, rate) == 0) {
        if (l->at_page == l->n_page && ((rc = next_page(l, err)) < 0 || l->n_page == 0)) {
            return rc;
        }
        struct slice user = l->page[l->at_page++];
        if (user.len < 1 || user.len > ID_MAX) {
            continue;
        }
        uint16_t which = l->spare[--l->n_spare];
        take_begin(&l->takes[which], &l->rules, user);
        pace_take(&l->users, 1, rate);
        rc = ask(l, which, err);
    }
    return rc;
}

/* Takes one reply, and sends what is next for its user. */
static int go_on(struct legacy *l, struct err *err)
{
    struct redisReply *reply;
    int rc = redis_read(l->redis, &reply, err);
    if (rc < 0) {
        return rc;
    }
    uint16_t which = l->queue[l->queue_at];
    struct take *t = &l->takes[which];
    l->queue_at = (l->queue_at + 1) % UNDER_WAY;
    l->n_queue--;
    size_t bytes = redis_bytes(reply);
    pthread_mutex_lock(&l->mutex);
    l->state.bytes += bytes;
    pthread_mutex_unlock(&l->mutex);
    rc = take_reply(t, &l->rules, reply, err);
    redis_free(reply);
    if (rc < 0) {
        return rc;
    }
    int64_t rate = config_now(l->cfg)->legacy_bytes_rate;
    pace_take(&l->bytes, bytes, rate);
    int64_t left = pace_left(&l->bytes, rate);
    if (left > 0) {
        rest_ms(l, left / 1000 + 1);
    }
    if (t->step != TAKE_DONE) {
        return ask(l, which, err);
    }
    l->spare[l->n_spare++] = which;
    return gather(l, t) < 0 ? err_set(err, ERR_NOMEM, "out of memory while migrating") : 0;
}

/* Reads notes to their end. Returns 0 also when it was told to stop or to pause. */
static int read_notes(struct legacy *l, struct err *err)
{
    int rc = connect_redis(l, err);
    if (rc == 0 && !l->loading && (rc = l->store->ops->bulk_begin(l->store, true, err)) == 0) {
        l->loading = true;
    }
    if (rc == 0) {
        show(l, LEGACY_READING, "");
    }
    while (rc == 0 && !stopping(l) && !paused(l)) {
        beat_now(&l->beat);
        rc = start_some(l, err);
        if (rc == 0 && l->n_queue > 0) {
            rc = go_on(l, err);
        } else if (rc == 0 && at_end(l)) {
            break;
        } else if (rc == 0) {
            rest_ms(l, pace_left(&l->users, config_now(l->cfg)->legacy_users_rate) / 1000 + 1);
        }
        if (rc == 0 && hand_over_due(l)) {
            rc = hand_over(l, err);
        }
    }
    return rc;
}

/* --- the thread --- */

static void fail(struct legacy *l, const struct err *err)
{
    int64_t delay = DELAY_MIN_MS;
    for (unsigned i = 0; i < l->failures && delay < DELAY_MAX_MS; i++) {
        delay *= 2;
    }
    delay = delay < DELAY_MAX_MS ? delay : DELAY_MAX_MS;
    show(l, LEGACY_WAITING, err->text);
    if (l->failures++ == 0) {
        log_warn("migration waits", "retry_ms=%" PRId64 " error=%s", delay, log_quote_str(err->text));
    }
    rest_ms(l, delay);
}

/* One round, from the first note that waits to the last. */
static void work(struct legacy *l)
{
    struct err err = {0}, late = {0};
    int rc = read_notes(l, &err);
    bool stop = stopping(l);
    disconnect(l);
    if (l->loading && !stop && (rc == 0 || rc == ERR_SYSTEM || rc == ERR_BUSY || rc == ERR_INVALID)) {
        /* What was gathered is whole. */
        int drained = drain(l, &late);
        if (drained < 0) {
            err = late;
            rc = drained;
        }
    }
    if (stop) {
        return;
    }
    give_up(l);
    if (rc < 0) {
        fail(l, &err);
    }
}

static void *migration_main(void *arg)
{
    struct legacy *l = arg;
    bool told = false;
    beat_begin(&l->beat, "migration");
    while (!stopping(l)) {
        beat_now(&l->beat);
        struct store_notes_state notes;
        l->store->ops->notes_state(l->store, &notes);
        if (notes.paused || notes.waiting == 0) {
            if (told && !notes.paused) {
                log_info("migration done", "users=%" PRIu64 " left=%" PRIu64 " problems=%" PRIu64, notes.done,
                         notes.left, notes.problems);
            }
            told = told && notes.paused;
            show(l, notes.paused ? LEGACY_PAUSED : LEGACY_IDLE, "");
            wait_ms(l, IDLE_MS);
            continue;
        }
        if (!told) {
            log_info("migration begins", "users=%" PRIu64 " redis=%s", notes.waiting,
                     log_quote_str(l->cfg->legacy_redis));
            told = true;
        }
        work(l);
    }
    disconnect(l);
    beat_end(&l->beat);
    return NULL;
}

int legacy_start(const struct dedup *dedup, struct legacy **legacy, struct err *err)
{
    *legacy = NULL;
    if (dedup->cfg->legacy_redis[0] == '\0') {
        return 0;
    }
    struct legacy *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the migration");
    }
    l->dedup = dedup;
    l->cfg = dedup->cfg;
    l->store = dedup->store;
    pthread_mutex_init(&l->mutex, NULL);
    pthread_mutex_init(&l->reader_mutex, NULL);
    pthread_cond_init(&l->wake, NULL);
    disconnect(l); /* makes all spare */
    int rc = l->store->ops->reader_open(l->store, &l->reader, err);
    if (rc == 0) {
        rc = l->store->ops->reader_open(l->store, &l->problems_reader, err);
    }
    if (rc == 0) {
        int code = pthread_create(&l->thread, NULL, migration_main, l);
        rc = code == 0 ? 0 : err_set(err, ERR_SYSTEM, "can't start a thread: %s", strerror(code));
    }
    if (rc < 0) {
        l->stop = true;
        if (l->reader != NULL) {
            l->store->ops->reader_close(l->reader);
        }
        if (l->problems_reader != NULL) {
            l->store->ops->reader_close(l->problems_reader);
        }
        legacy_free(l);
        return rc;
    }
    *legacy = l;
    return 0;
}

void legacy_stop(struct legacy *l)
{
    if (l == NULL) {
        return;
    }
    pthread_mutex_lock(&l->mutex);
    l->stop = true;
    if (l->redis != NULL) {
        redis_interrupt(l->redis);
    }
    pthread_cond_broadcast(&l->wake);
    pthread_mutex_unlock(&l->mutex);
    pthread_join(l->thread, NULL);
    l->store->ops->reader_close(l->reader);
    l->store->ops->reader_close(l->problems_reader);
}

void legacy_free(struct legacy *l)
{
    if (l != NULL) {
        gathered_free(&l->gathered[0]);
        gathered_free(&l->gathered[1]);
        arena_free(&l->arena);
        pthread_cond_destroy(&l->wake);
        pthread_mutex_destroy(&l->mutex);
        pthread_mutex_destroy(&l->reader_mutex);
        free(l);
    }
}

void legacy_wake(struct legacy *l)
{
    if (l != NULL) {
        pthread_mutex_lock(&l->mutex);
        l->woken = true;
        pthread_cond_broadcast(&l->wake);
        pthread_mutex_unlock(&l->mutex);
    }
}

void legacy_state(struct legacy *l, struct legacy_state *out)
{
    pthread_mutex_lock(&l->mutex);
    *out = l->state;
    pthread_mutex_unlock(&l->mutex);
    l->store->ops->notes_state(l->store, &out->notes);
}

int legacy_problems(struct legacy *l, struct store_problem *out, int max, struct arena *arena, struct err *err)
{
    pthread_mutex_lock(&l->reader_mutex);
    int n = l->store->ops->notes_problems(l->problems_reader, out, max, arena, err);
    pthread_mutex_unlock(&l->reader_mutex);
    return n;
}
