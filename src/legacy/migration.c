/* The thread that migrates.
 *
 * It walks through the notes nearly in the order of history, with some hundred users under way at a time over one
 * connection. Each has one command out: ZSCAN by pages until the cursor is back at 0, then ZREVRANGE. Replies arrive in
 * the order of the commands. Their content goes into the store's bulk load at once. Fully read users are collected, and
 * marked once they are durable (migration_batch.h).
 *
 * What can go wrong. The old Redis is away, slow, or refuses everything: collected users are handed over and marked,
 * and the rest is read again after a growing delay; meanwhile the state names the cause. The store can't merge or mark:
 * the same, but collected users are dropped, and a few are tried before more are read. While its disk has no room
 * nothing is read at all. A key that can't be taken over, fully or in part, is named, and never stops the others. A
 * reply that is too large breaks the connection, so the key is tried some times first. A user who is forgotten
 * meanwhile: the note has ended, the load skips them, and marking leaves the note ended.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "dedup/role.h"
#include "legacy/migration_impl.h"
#include "store/bulk.h"
#include "store/migration.h"

enum {
    CAREFUL = 8,                /* users under way at a time, after the store has failed */
    RATE_LIMITER_LOOK_MS = 200, /* at a rate that may have been changed */
    IDLE_MS = 60 * 1000,
};

/* --- waiting --- */

/* Another node takes the writes, and so migrates. */
static bool rests(const struct legacy *l)
{
    struct err err;
    return role_may_write(l->dedup->role, &err) < 0;
}

static bool paused(struct legacy *l)
{
    struct store_migration_counts users_to_migrate;
    l->store->migration->state(l->store, &users_to_migrate);
    return users_to_migrate.paused || rests(l);
}

/* Waits for so long, or until there is something new. */
static void wait_ms(struct legacy *l, int64_t ms)
{
    pthread_mutex_lock(&l->mutex);
    task_wait_real(&l->task, clock_real_us() + ms * 1000);
    pthread_mutex_unlock(&l->mutex);
}

/* The same, whatever is new. */
static void rest_ms(struct legacy *l, int64_t ms)
{
    pthread_mutex_lock(&l->mutex);
    task_rest_real(&l->task, clock_real_us() + ms * 1000);
    pthread_mutex_unlock(&l->mutex);
}

static int64_t users_left_us(struct legacy *l)
{
    return rate_limiter_left(&l->users, clock_real_us(), config_now(l->cfg)->legacy_users_rate);
}

/* Rests while more bytes were read than the rate allows. */
static void keep_bytes_rate(struct legacy *l)
{
    int64_t left;
    while (!task_stops(&l->task) && !paused(l) &&
           (left = rate_limiter_left(&l->bytes, clock_real_us(), config_now(l->cfg)->legacy_bytes_rate)) > 0) {
        rest_ms(l, left / 1000 < RATE_LIMITER_LOOK_MS ? left / 1000 + 1 : RATE_LIMITER_LOOK_MS);
    }
}

static void count_bytes(struct legacy *l, size_t bytes)
{
    migration_state_bytes(&l->state, bytes);
    rate_limiter_take(&l->bytes, clock_real_us(), bytes, config_now(l->cfg)->legacy_bytes_rate);
}

/* --- reading --- */

static void show_cluster(struct legacy *l, bool ended)
{
    struct redis_cluster_figures figures;
    if (l->redis != NULL) {
        redis_cluster_figures(l->redis, &figures);
        migration_state_cluster(&l->state, &figures, ended);
    }
}

void migration_disconnect(struct legacy *l)
{
    show_cluster(l, true);
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
    l->walk = (struct store_migration_walk){0};
}

static int connect_redis(struct legacy *l, struct err *err)
{
    struct redis *redis = NULL;
    if (l->redis != NULL) {
        return 0;
    }
    int rc = redis_new(&l->task.heartbeat, &redis, err);
    if (rc < 0) {
        return rc;
    }
    pthread_mutex_lock(&l->mutex);
    l->redis = redis; /* from now on a stop of the thread interrupts it */
    bool stop = task_stops(&l->task);
    pthread_mutex_unlock(&l->mutex);
    rc = stop ? err_set(err, ERR_CLOSED, "interrupted") : redis_connect(redis, l->cfg, err);
    rc = rc < 0 ? rc : master_keys_look(&l->masters, redis, err);
    if (rc == ERR_BUSY && !l->lost_told) {
        log_error("the old Redis may have lost its data: no user is read from it", "error=%s",
                  log_quote_str(err->text));
    }
    l->lost_told = rc == ERR_BUSY || (l->lost_told && rc < 0);
    return rc;
}

/* By the clock and the configuration of now. */
static void renew_rules(struct legacy *l)
{
    const struct config *live = config_now(l->cfg);
    int64_t later, earlier;
    l->store->ops->now(l->store, &later, &earlier);
    l->rules = (struct fetch_rules){
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
    int n = l->store->migration->read(l->reader, &l->walk, l->page, PAGE, &l->arena, err);
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
    int rc = fetch_user_ask(&l->takes[which], &l->rules, l->redis, err);
    l->queue[(l->queue_at + l->n_queue++) % UNDER_WAY] = which;
    return rc;
}

/* The next user, who may have been migrated since being put first, or since the page was read. 1, 0: none, or an
 * error. */
static int next_user(struct legacy *l, char id[ID_MAX], struct slice *user, struct err *err)
{
    for (;;) {
        if (!priority_users_take(&l->first, id, user)) {
            int rc = l->at_page == l->n_page ? next_page(l, err) : 0;
            if (rc < 0 || l->n_page == 0) {
                return rc;
            }
            *user = l->page[l->at_page++];
        }
        if (user->len >= 1 && user->len <= ID_MAX &&
            l->store->migration->of(l->store, hash_user_key(l->dedup->seed, *user)) == MIGRATION_WAITING) {
            return 1;
        }
    }
}

/* As many users as there is room for and the rate allows. */
static int start_some(struct legacy *l, struct err *err)
{
    int rc = 0;
    size_t most = l->retry.careful ? CAREFUL : UNDER_WAY;
    while (rc == 0 && l->n_queue < most && users_left_us(l) == 0) {
        char id[ID_MAX];
        struct slice user;
        if ((rc = next_user(l, id, &user, err)) <= 0) {
            return rc;
        }
        uint16_t which = l->spare[--l->n_spare];
        fetch_user_begin(&l->takes[which], &l->rules, user);
        rate_limiter_take(&l->users, clock_real_us(), 1, config_now(l->cfg)->legacy_users_rate);
        rc = ask(l, which, err);
    }
    return rc;
}

/* Takes one reply, and sends what is next for its user. */
static int go_on(struct legacy *l, struct err *err)
{
    struct redisReply *reply;
    int rc = redis_read(l->redis, &reply, err);
    uint16_t which = l->queue[l->queue_at];
    struct fetch_user *t = &l->takes[which];
    if (rc == ERR_LARGE && retry_blames(&l->retry, t->key)) {
        take_give_up(t, &l->rules, err->text);
        return migration_batch_user(l->batch, t, &l->rules, NULL) < 0 ? ERR_NOMEM : rc;
    }
    if (rc < 0) {
        return rc;
    }
    l->queue_at = (l->queue_at + 1) % UNDER_WAY;
    l->n_queue--;
    count_bytes(l, redis_bytes(reply));
    rc = fetch_user_reply(t, &l->rules, reply, redis_place(l->redis), err);
    redis_free(reply);
    if (rc < 0) {
        return rc;
    }
    keep_bytes_rate(l);
    if (t->step != FETCH_DONE) {
        return ask(l, which, err);
    }
    l->spare[l->n_spare++] = which;
    migration_state_user(&l->state, t);
    return migration_batch_user(l->batch, t, &l->rules, err);
}

static uint64_t users_settled(struct legacy *l)
{
    struct store_migration_counts users_to_migrate;
    l->store->migration->state(l->store, &users_to_migrate);
    return users_to_migrate.done + users_to_migrate.left;
}

/* After a turn without error: users may have become durable. */
static void turned(struct legacy *l)
{
    if (users_settled(l) != l->settled && retry_proved(&l->retry)) {
        log_info("migration goes on", "redis=%s", log_quote_str(config_legacy(l->cfg)));
    }
    if (l->retry.delay_ms == 0) {
        migration_state_show(&l->state, LEGACY_READING, NULL);
    }
    show_cluster(l, false);
    migration_state_turn(&l->state, migration_batch_unlisted(l->batch));
}

static int turn_when_due(struct legacy *l, struct err *err)
{
    bool proves = l->retry.careful && migration_batch_users(l->batch) >= CAREFUL;
    if (!proves && !migration_batch_due(l->batch, config_now(l->cfg)->staging_memory)) {
        return 0;
    }
    int rc = l->retry.careful ? migration_batch_drain(l->batch, err) : migration_batch_turn(l->batch, err);
    if (rc == 0) {
        turned(l);
    }
    return rc;
}

/* Reads notes to their end. Returns 0 also when it was told to stop or to pause. */
static int read_migration_users(struct legacy *l, struct err *err)
{
    int rc = connect_redis(l, err);
    if (rc == 0 && (rc = migration_batch_begin(l->batch, err)) == 0) {
        renew_rules(l);
        if (l->retry.delay_ms == 0) {
            migration_state_show(&l->state, LEGACY_READING, NULL);
        }
    }
    while (rc == 0 && !task_stops(&l->task) && !paused(l)) {
        heartbeat_now(&l->task.heartbeat);
        rc = start_some(l, err);
        if (rc == 0 && l->n_queue > 0) {
            rc = go_on(l, err);
        } else if (rc == 0 && at_end(l)) {
            break;
        } else if (rc == 0) {
            int64_t ms = users_left_us(l) / 1000 + 1;
            rest_ms(l, ms < RATE_LIMITER_LOOK_MS ? ms : RATE_LIMITER_LOOK_MS);
        }
        if (rc == 0) {
            rc = turn_when_due(l, err);
        }
    }
    return rc;
}

/* --- the thread --- */

static void fail(struct legacy *l, bool by_store, const struct err *err)
{
    bool first = l->retry.delay_ms == 0;
    int64_t delay = retry_failed(&l->retry, by_store);
    l->settled = users_settled(l);
    migration_state_show(&l->state, LEGACY_WAITING, err);
    if (first) {
        log_warn("migration waits", "retry_ms=%" PRId64 " error=%s", delay, log_quote_str(err->text));
    }
    rest_ms(l, delay);
}

/* Whether an error comes from the other side: what was gathered before it is whole. */
static bool is_theirs(int code)
{
    return code == ERR_SYSTEM || code == ERR_BUSY || code == ERR_INVALID || code == ERR_LARGE;
}

/* One round, from the first note that waits to the last. */
static void work(struct legacy *l)
{
    struct err err = {0}, late = {0};
    int rc = l->store->bulk->room(l->store, &err);
    if (rc < 0) {
        fail(l, true, &err);
        return;
    }
    rc = read_migration_users(l, &err);
    bool stop = task_stops(&l->task), theirs = is_theirs(rc);
    migration_disconnect(l);
    if (!stop && (rc == 0 || theirs)) {
        int drained = migration_batch_drain(l->batch, &late);
        if (drained == 0) {
            turned(l);
        } else {
            err = late;
            rc = drained;
            theirs = false;
        }
    }
    if (stop) {
        migration_batch_stop(l->batch);
        return;
    }
    migration_batch_end(l->batch);
    if (rc < 0) {
        fail(l, !theirs, &err);
    }
}

void migration_main(void *arg)
{
    struct legacy *l = arg;
    bool told = false;
    while (!task_stops(&l->task)) {
        heartbeat_now(&l->task.heartbeat);
        struct store_migration_counts users_to_migrate;
        l->store->migration->state(l->store, &users_to_migrate);
        users_to_migrate.paused = users_to_migrate.paused || rests(l);
        if (users_to_migrate.paused || users_to_migrate.waiting == 0) {
            if (told && !users_to_migrate.paused) {
                log_info("migration done", "users=%" PRIu64 " left=%" PRIu64 " problems=%" PRIu64,
                         users_to_migrate.done, users_to_migrate.left, users_to_migrate.problems);
            }
            told = told && users_to_migrate.paused;
            master_keys_free(&l->masters); /* what comes next begins with what is there then */
            migration_state_show(&l->state, users_to_migrate.paused ? LEGACY_PAUSED : LEGACY_IDLE, NULL);
            wait_ms(l, IDLE_MS);
            continue;
        }
        if (!told) {
            log_info("migration begins", "users=%" PRIu64 " redis=%s", users_to_migrate.waiting,
                     log_quote_str(config_legacy(l->cfg)));
            told = true;
        }
        work(l);
    }
    migration_disconnect(l);
    master_keys_free(&l->masters);
}
