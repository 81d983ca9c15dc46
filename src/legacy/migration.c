/* The thread that migrates.
 *
 * It goes through the notes in about the order in which history keeps its users, with some hundred users under way at a
 * time over one connection: each has one command out, ZSCAN by pages until the cursor is back at 0, then ZREVRANGE;
 * replies come in the order of the commands. What a reply holds goes into the store's bulk load at once; users that
 * were read to their end are gathered, and marked once they are durable (gather.h).
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
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "legacy/first.h"
#include "legacy/gather.h"
#include "legacy/legacy.h"
#include "legacy/migration_state.h"
#include "legacy/pace.h"
#include "legacy/take.h"

enum {
    UNDER_WAY = 128,    /* users at a time */
    PAGE = 512,         /* notes read at a time */
    PACE_LOOK_MS = 200, /* at a rate that may have been changed */
    DELAY_MIN_MS = 100,
    DELAY_MAX_MS = 10 * 1000,
    IDLE_MS = 60 * 1000,
};

struct legacy {
    const struct dedup *dedup;
    const struct config *cfg;
    struct store *store;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards these, but not the thread's own below: */
    pthread_cond_t wake;
    bool stop, woken;
    struct redis *redis;          /* set and cleared under it, used by the thread without */
    pthread_mutex_t reader_mutex; /* guards this: */
    struct store_reader *problems_reader;
    struct first first;
    struct migration_state state;

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
    struct gather *gather;
    struct pace users, bytes;
    unsigned failures; /* in a row */
};

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

static int64_t users_left_us(struct legacy *l)
{
    return pace_left(&l->users, clock_stopwatch_us(), config_now(l->cfg)->legacy_users_rate);
}

/* Rests while more bytes were read than the rate allows. */
static void keep_bytes_rate(struct legacy *l)
{
    int64_t left;
    while (!stopping(l) && !paused(l) &&
           (left = pace_left(&l->bytes, clock_stopwatch_us(), config_now(l->cfg)->legacy_bytes_rate)) > 0) {
        rest_ms(l, left / 1000 < PACE_LOOK_MS ? left / 1000 + 1 : PACE_LOOK_MS);
    }
}

static void count_bytes(struct legacy *l, size_t bytes)
{
    migration_state_bytes(&l->state, bytes);
    pace_take(&l->bytes, clock_stopwatch_us(), bytes, config_now(l->cfg)->legacy_bytes_rate);
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
    l->rules = (struct take_rules){
        .played_key = l->cfg->legacy_played_key,
        .delivered_key = l->cfg->legacy_delivered_key,
        .store = l->store,
        .seed = l->dedup->seed,
    };
    legacy_times_now(live, later, earlier, &l->rules.plays, &l->rules.deliveries);
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

/* The next user, who may have been migrated since he was put first, or since the page was read. 1, 0: none, or an
 * error. */
static int next_user(struct legacy *l, char id[ID_MAX], struct slice *user, struct err *err)
{
    for (;;) {
        if (!first_take(&l->first, id, user)) {
            int rc = l->at_page == l->n_page ? next_page(l, err) : 0;
            if (rc < 0 || l->n_page == 0) {
                return rc;
            }
            *user = l->page[l->at_page++];
        }
        if (user->len >= 1 && user->len <= ID_MAX &&
            l->store->ops->noted(l->store, hash_user_key(l->dedup->seed, *user)) == NOTE_WAITING) {
            return 1;
        }
    }
}

/* As many users as there is room for and the rate allows. */
static int start_some(struct legacy *l, struct err *err)
{
    int rc = 0;
    while (rc == 0 && l->n_spare > 0 && users_left_us(l) == 0) {
        char id[ID_MAX];
        struct slice user;
        if ((rc = next_user(l, id, &user, err)) <= 0) {
            return rc;
        }
        uint16_t which = l->spare[--l->n_spare];
        take_begin(&l->takes[which], &l->rules, user);
        pace_take(&l->users, clock_stopwatch_us(), 1, config_now(l->cfg)->legacy_users_rate);
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
    count_bytes(l, redis_bytes(reply));
    rc = take_reply(t, &l->rules, reply, err);
    redis_free(reply);
    if (rc < 0) {
        return rc;
    }
    keep_bytes_rate(l);
    if (t->step != TAKE_DONE) {
        return ask(l, which, err);
    }
    l->spare[l->n_spare++] = which;
    migration_state_user(&l->state, t);
    return gather_user(l->gather, t, &l->rules, err);
}

static int turn_when_due(struct legacy *l, struct err *err)
{
    if (!gather_due(l->gather, config_now(l->cfg)->staging_memory)) {
        return 0;
    }
    int rc = gather_turn(l->gather, err);
    if (rc == 0) {
        l->failures = 0;
        migration_state_turn(&l->state, gather_unlisted(l->gather));
    }
    return rc;
}

/* Reads notes to their end. Returns 0 also when it was told to stop or to pause. */
static int read_notes(struct legacy *l, struct err *err)
{
    int rc = connect_redis(l, err);
    if (rc == 0 && (rc = gather_begin(l->gather, err)) == 0) {
        renew_rules(l);
        migration_state_show(&l->state, LEGACY_READING, "");
    }
    while (rc == 0 && !stopping(l) && !paused(l)) {
        beat_now(&l->beat);
        rc = start_some(l, err);
        if (rc == 0 && l->n_queue > 0) {
            rc = go_on(l, err);
        } else if (rc == 0 && at_end(l)) {
            break;
        } else if (rc == 0) {
            int64_t ms = users_left_us(l) / 1000 + 1;
            rest_ms(l, ms < PACE_LOOK_MS ? ms : PACE_LOOK_MS);
        }
        if (rc == 0) {
            rc = turn_when_due(l, err);
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
    migration_state_show(&l->state, LEGACY_WAITING, err->text);
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
    if (!stop && (rc == 0 || rc == ERR_SYSTEM || rc == ERR_BUSY || rc == ERR_INVALID)) {
        /* What was gathered is whole. */
        int drained = gather_drain(l->gather, &late);
        migration_state_turn(&l->state, gather_unlisted(l->gather));
        if (drained < 0) {
            err = late;
            rc = drained;
        }
    }
    if (stop) {
        gather_stop(l->gather);
        return;
    }
    gather_end(l->gather);
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
            migration_state_show(&l->state, notes.paused ? LEGACY_PAUSED : LEGACY_IDLE, "");
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
    first_init(&l->first);
    migration_state_init(&l->state);
    disconnect(l); /* makes all spare */
    int rc = gather_new(l->store, &l->beat, &l->gather, err);
    if (rc == 0) {
        rc = l->store->ops->reader_open(l->store, &l->reader, err);
    }
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
        gather_free(l->gather);
        arena_free(&l->arena);
        first_free(&l->first);
        migration_state_free(&l->state);
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

void legacy_first(struct legacy *l, int64_t key, struct slice user)
{
    if (l != NULL) {
        first_put(&l->first, key, user, clock_stopwatch_us());
    }
}

void legacy_state(struct legacy *l, struct legacy_state *out)
{
    migration_state_get(&l->state, out);
    l->store->ops->notes_state(l->store, &out->notes);
}

int legacy_problems(struct legacy *l, struct store_problem *out, int max, struct arena *arena, struct err *err)
{
    pthread_mutex_lock(&l->reader_mutex);
    int n = l->store->ops->notes_problems(l->problems_reader, out, max, arena, err);
    pthread_mutex_unlock(&l->reader_mutex);
    return n;
}
