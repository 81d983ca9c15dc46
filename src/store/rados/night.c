#include "store/rados/night.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/rados/merge.h"

enum {
    LOOK_MS = 30 * 1000,
    READ_MARKS_EVERY_MS = 3600 * 1000,
    LOCK_SECONDS = 300,
    RENEW_MS = 60 * 1000,
    AT_ONCE = 16,
    NAMES = 256,
};
#define DAY INT64_C(86400000)

enum wanted { NIGHT_TICK, NIGHT_WALK };

struct night {
    struct rados_store *s;
    struct thread_queue queue;
    char cookie[LAYOUT_HEX + 1];
    int64_t marks_ms; /* when they were read, monotonic; -1: never */

    pthread_mutex_t mutex; /* all below */
    pthread_cond_t fewer;
    size_t under_way;
    struct err err; /* the first, of the walk under way */
    bool failed;    /* the cluster did, or memory ended, so the piece isn't walked */
    struct night_piece walked;
    struct night_piece pieces[NIGHT_PIECES];
};

/* Before a wait for the cluster, which its time limit bounds. */
static void excuse(struct night *n)
{
    heartbeat_now(&n->queue.task.heartbeat);
    heartbeat_excuse(&n->queue.task.heartbeat);
}

/* --- one piece --- */

/* Under the mutex. */
static void note_nomem(struct night *n)
{
    n->failed = true;
    if (n->err.code == 0) {
        err_set(&n->err, ERR_NOMEM, "out of memory while walking users");
    }
}

static void on_merged(void *arg, const struct merge_outcome *o)
{
    struct night *n = arg;
    pthread_mutex_lock(&n->mutex);
    if (o->err.code < 0 && !o->lost) {
        n->err = n->err.code == 0 ? o->err : n->err;
        n->failed = n->failed || o->err.code != ERR_CORRUPT;
    } else if (o->err.code == 0 && !o->absent) {
        n->walked.tombstones += o->tombstones;
        for (size_t i = 0; i < o->n_parts; i++) {
            const struct layout_part *p = &o->parts[i];
            bool first = true, sealed = true;
            struct night_month add = {.month = p->month, .plays = p->items, .bytes = p->bytes};
            for (size_t j = 0; j < o->n_parts; j++) {
                first = first && (j >= i || o->parts[j].month != p->month);
                sealed = sealed && (o->parts[j].month != p->month || o->parts[j].sealed);
            }
            add.users = first;
            add.sealed = first && sealed;
            if (night_month_add(&n->walked, &add) < 0) {
                note_nomem(n);
            }
        }
    }
    n->under_way--;
    pthread_cond_broadcast(&n->fewer);
    pthread_mutex_unlock(&n->mutex);
}

static void wait_for(struct night *n, size_t at_most)
{
    pthread_mutex_lock(&n->mutex);
    while (n->under_way > at_most) {
        heartbeat_wait(&n->queue.task.heartbeat, &n->fewer, &n->mutex, INT64_MAX);
    }
    pthread_mutex_unlock(&n->mutex);
}

struct names {
    struct night *night;
    size_t n;
    char users[NAMES][255];
    uint8_t lens[NAMES];
};

static void on_name(void *arg, const char *object)
{
    struct names *names = arg;
    size_t len;
    if (layout_user_of(object, names->users[names->n], &len)) {
        names->lens[names->n++] = (uint8_t)len;
    }
}

static void walk_names(struct night *n, const struct names *names)
{
    for (size_t i = 0; i < names->n; i++) {
        struct slice user = slice_of(names->users[i], names->lens[i]);
        wait_for(n, AT_ONCE - 1);
        heartbeat_now(&n->queue.task.heartbeat);
        pthread_mutex_lock(&n->mutex);
        n->under_way++;
        pthread_mutex_unlock(&n->mutex);
        if (merge_start(n->s, hash_user_key(n->s->seed, user), user, true, on_merged, n) < 0) {
            pthread_mutex_lock(&n->mutex);
            n->under_way--;
            note_nomem(n);
            pthread_mutex_unlock(&n->mutex);
        }
    }
}

/* 1: it is walked; 0: another node has it now; or an error. */
static int walk_listed(struct night *n, size_t i, bool locked, struct names *names, struct err *err)
{
    struct rados_store *s = n->s;
    struct cluster_listing *listing;
    char name[NIGHT_NAME];
    int64_t renewed_ms = clock_mono_ms();
    int result = s->ops->list(s->cluster, i, NIGHT_PIECES, &listing, err), more = 1;
    if (result < 0) {
        return result;
    }
    night_piece_name(i, name);
    while (result == 0 && more > 0) {
        names->n = 0;
        excuse(n);
        more = s->ops->list_next(listing, NAMES, on_name, names, err);
        walk_names(n, names);
        if (rados_store_closing(s)) {
            result = err_set(err, ERR_CLOSED, "the store is closing");
        } else if (locked && clock_mono_ms() - renewed_ms >= RENEW_MS) {
            renewed_ms = clock_mono_ms();
            result = s->ops->lock(s->cluster, name, n->cookie, LOCK_SECONDS, err);
            if (result == 0) {
                log_warn("piece of the walk taken over by another node", "piece=%zu", i);
                more = 0;
                names->n = SIZE_MAX;
            }
            result = result > 0 ? 0 : result;
        }
    }
    s->ops->list_end(listing);
    wait_for(n, 0);
    return result < 0 ? result : more < 0 ? more : names->n != SIZE_MAX;
}

/* It becomes what is known of it. */
static void keep_piece(struct night *n, size_t i, struct night_piece *piece)
{
    pthread_mutex_lock(&n->mutex);
    night_piece_free(&n->pieces[i]);
    n->pieces[i] = *piece;
    *piece = (struct night_piece){.day = -1};
    pthread_mutex_unlock(&n->mutex);
}

/* As walk_listed(). */
static int walk_piece(struct night *n, size_t i, bool locked, int64_t day, struct err *err)
{
    struct names *names = malloc(sizeof *names);
    if (names == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory while walking users");
    }
    names->night = n;
    pthread_mutex_lock(&n->mutex);
    n->err = (struct err){0};
    n->failed = false;
    night_piece_free(&n->walked);
    n->walked.day = day;
    pthread_mutex_unlock(&n->mutex);
    int result = walk_listed(n, i, locked, names, err);
    free(names);
    if (result == 1 && n->err.code < 0) {
        err_set(err, n->err.code, "%s", n->err.text);
        result = n->failed ? n->err.code : result;
    }
    excuse(n);
    int written = result == 1 ? night_piece_write(n->s, i, &n->walked, err) : 0;
    if (result == 1 && written == 0) {
        keep_piece(n, i, &n->walked);
    }
    return written < 0 ? written : result;
}

/* --- what is due --- */

static void count_tombstones(struct night *n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < NIGHT_PIECES; i++) {
        sum += n->pieces[i].tombstones;
    }
    pthread_mutex_lock(&n->s->mutex);
    n->s->stats.tombstones = sum;
    pthread_mutex_unlock(&n->s->mutex);
}

/* Unless it was done within the hour. */
static int renew_marks(struct night *n, struct err *err)
{
    int64_t mono = clock_mono_ms();
    int result = 0;
    if (n->marks_ms >= 0 && mono - n->marks_ms < READ_MARKS_EVERY_MS) {
        return 0;
    }
    for (size_t i = 0; i < NIGHT_PIECES && result == 0 && !rados_store_closing(n->s); i++) {
        struct night_piece piece;
        excuse(n);
        result = night_piece_read(n->s, i, &piece, err);
        if (result == 0) {
            keep_piece(n, i, &piece);
        }
    }
    n->marks_ms = result == 0 ? mono : n->marks_ms;
    return result;
}

/* One that was walked the day after tomorrow never was; a node's midnight may be a little earlier. */
static bool is_of_night(int64_t walked, int64_t day)
{
    return walked >= day && walked <= day + 1;
}

/* 1: it is walked, maybe by another node; 0: another one is at it; or an error. */
static int walk_due(struct night *n, size_t i, int64_t day, struct err *err)
{
    struct rados_store *s = n->s;
    struct night_piece now;
    char name[NIGHT_NAME];
    night_piece_name(i, name);
    excuse(n);
    int result = s->ops->lock(s->cluster, name, n->cookie, LOCK_SECONDS, err);
    if (result <= 0) {
        return result;
    }
    result = night_piece_read(s, i, &now, err);
    if (result == 0 && is_of_night(now.day, day)) {
        keep_piece(n, i, &now);
        result = 1;
    } else if (result == 0) {
        result = walk_piece(n, i, true, day, err);
    }
    night_piece_free(&now);
    struct err unlocked;
    if (s->ops->unlock(s->cluster, name, n->cookie, &unlocked) < 0) {
        log_warn("lock of the walk not released: it ends by itself", "piece=%zu error=%s", i,
                 log_quote_str(unlocked.text));
    }
    return result;
}

static bool is_tonights(size_t i, int64_t day)
{
    return (int64_t)(i / (NIGHT_PIECES / NIGHTS)) == day % NIGHTS;
}

/* 1: nothing of the night is left; 0: other nodes are at it; or the first error, behind which others are walked all the
 * same. Of what earlier nights have missed all nodes together take a few each night, so that a new pool isn't walked in
 * one; as each begins with the first pieces, those that others take at the same time are the same ones. */
static int walk_night(struct night *n, int64_t day, struct err *err)
{
    int missed = 0, result = 1;
    for (size_t i = 0; i < NIGHT_PIECES; i++) {
        missed += !is_tonights(i, day) && is_of_night(n->pieces[i].day, day);
    }
    for (size_t i = 0; i < NIGHT_PIECES && !rados_store_closing(n->s); i++) {
        int64_t last = n->pieces[i].day <= day + 1 ? n->pieces[i].day : -1;
        bool tonight = is_tonights(i, day), overdue = last < day - NIGHTS && missed < NIGHT_MISSED;
        if (last < day && (tonight || overdue)) {
            struct err failed = {0};
            int walked = walk_due(n, i, day, &failed);
            missed += !tonight;
            if (walked < 0 && result >= 0) {
                *err = failed;
                err_prefix(err, "piece %zu: ", i);
            }
            result = result < 0 || walked > 0 ? result : walked;
        }
    }
    return rados_store_closing(n->s) ? err_set(err, ERR_CLOSED, "the store is closing") : result;
}

/* As walk_night(), or 0 while it isn't night, or it isn't known. */
static int walk_by_night(struct night *n, int64_t now, struct err *err)
{
    const struct config *live = config_now(n->s->cfg);
    struct store_clock clock;
    guarded_clock_tell(&n->s->clock, &clock);
    bool night = clock.known && !clock.doubted && config_in_sweep_window(live, now);
    return night ? walk_night(n, now / DAY, err) : 0;
}

static void look(struct night *n)
{
    struct rados_store *s = n->s;
    struct err err = {0};
    int64_t later, earlier;
    guarded_clock_now(&s->clock, &later, &earlier);
    int result = renew_marks(n, &err);
    result = result < 0 ? result : walk_by_night(n, earlier, &err);
    count_tombstones(n);
    if (result < 0 && result != ERR_CLOSED) {
        log_error("nightly walk broken off", "error=%s", log_quote_str(err.text));
        RADOS_COUNT(s, flush_errors, 1);
    } else if (result == 1) {
        pthread_mutex_lock(&s->mutex);
        s->stats.swept_ms = s->stats.sealed_ms = (uint64_t)earlier;
        pthread_mutex_unlock(&s->mutex);
    }
}

/* --- the thread --- */

static void walk_all(struct night *n, struct store_call *call)
{
    int64_t later, earlier;
    guarded_clock_now(&n->s->clock, &later, &earlier);
    for (size_t i = 0; i < NIGHT_PIECES && call->err.code != ERR_CLOSED; i++) {
        struct err err = {0};
        int result = rados_store_closing(n->s) ? err_set(&err, ERR_CLOSED, "the store is closing")
                                               : walk_piece(n, i, false, earlier / DAY, &err);
        if (result < 0 || err.code < 0) {
            call->err = call->err.code == 0 || result == ERR_CLOSED ? err : call->err;
        }
    }
    if (call->err.code == 0) {
        count_tombstones(n);
    }
    call->done(call);
}

/* What earlier walks have found is known from the start on. */
static void run(void *arg)
{
    struct night *n = arg;
    bool stop = false;
    struct err ignored = {0}; /* it is logged, and tried again */
    renew_marks(n, &ignored);
    while (!stop) {
        stop = thread_queue_wait(&n->queue, LOOK_MS);
        for (struct store_message *m = thread_queue_take(&n->queue), *next; m != NULL; m = next) {
            next = m->next;
            struct store_call *call = (struct store_call *)m;
            if ((enum wanted)m->what == NIGHT_WALK) {
                walk_all(n, call);
            } else {
                look(n);
                call->done(call);
            }
        }
        if (!stop) {
            look(n);
        }
    }
}

static void put(struct rados_store *s, struct store_call *call, enum wanted what)
{
    call->message.kind = STORE_CALL;
    call->message.what = (int)what;
    thread_queue_put(&s->night->queue, &call->message);
}

void night_tick(struct rados_store *s, struct store_call *call)
{
    if (s->use == RADOS_SERVES) {
        put(s, call, NIGHT_TICK);
    } else {
        rados_store_post(s, &call->message, RADOS_CALL);
    }
}

struct waiting {
    struct store_call call; /* first */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool done;
};

static void on_walked(struct store_call *call)
{
    struct waiting *w = (struct waiting *)call;
    pthread_mutex_lock(&w->mutex);
    w->done = true;
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->mutex);
}

int night_walk(struct rados_store *s, struct err *err)
{
    struct waiting w = {.call = {.done = on_walked}};
    pthread_mutex_init(&w.mutex, NULL);
    pthread_cond_init(&w.cond, NULL);
    put(s, &w.call, NIGHT_WALK);
    pthread_mutex_lock(&w.mutex);
    while (!w.done) {
        pthread_cond_wait(&w.cond, &w.mutex);
    }
    pthread_mutex_unlock(&w.mutex);
    pthread_mutex_destroy(&w.mutex);
    pthread_cond_destroy(&w.cond);
    return w.call.err.code < 0 ? err_set(err, w.call.err.code, "%s", w.call.err.text) : 0;
}

static void note_age(struct night_age *age, int64_t day)
{
    if (day >= 0) {
        age->oldest_ms = age->walked == 0 || day * DAY < age->oldest_ms ? day * DAY : age->oldest_ms;
        age->newest_ms = day * DAY > age->newest_ms ? day * DAY : age->newest_ms;
        age->walked++;
    }
}

/* Under the mutex. */
static struct night_age age_of(const struct night *n)
{
    struct night_age age = {0};
    for (size_t i = 0; i < NIGHT_PIECES; i++) {
        note_age(&age, n->pieces[i].day);
    }
    return age;
}

struct night_age night_age(struct rados_store *s)
{
    pthread_mutex_lock(&s->night->mutex);
    struct night_age age = age_of(s->night);
    pthread_mutex_unlock(&s->night->mutex);
    return age;
}

int night_months(struct rados_store *s, struct night_month *out, int max, struct night_age *age, struct err *err)
{
    struct night *n = s->night;
    struct night_piece sum = {0};
    int count = 0, result = n->s->use == RADOS_SERVES ? 0 : renew_marks(n, err);
    *age = (struct night_age){0};
    if (result < 0) {
        return result;
    }
    pthread_mutex_lock(&n->mutex);
    *age = age_of(n);
    for (size_t i = 0; i < NIGHT_PIECES; i++) {
        for (size_t j = 0; j < n->pieces[i].n_months && result == 0; j++) {
            result = night_month_add(&sum, &n->pieces[i].months[j]);
        }
    }
    pthread_mutex_unlock(&n->mutex);
    for (size_t i = sum.n_months; i > 0 && count < max && result == 0;) {
        out[count++] = sum.months[--i];
    }
    night_piece_free(&sum);
    return result < 0 ? err_set(err, result, "out of memory while adding up months") : count;
}

int night_start(struct rados_store *s, struct err *err)
{
    struct night *n = calloc(1, sizeof *n);
    if (n == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    s->night = n;
    n->s = s;
    n->marks_ms = -1;
    layout_hex(rados_store_random(s), n->cookie);
    for (size_t i = 0; i < NIGHT_PIECES; i++) {
        n->pieces[i].day = -1;
    }
    thread_queue_init(&n->queue);
    pthread_mutex_init(&n->mutex, NULL);
    pthread_cond_init(&n->fewer, NULL);
    return s->use != RADOS_SERVES ? 0 : task_start(&n->queue.task, "rados night", TASK_BEATS, run, n, err);
}

void night_stop(struct rados_store *s)
{
    struct night *n = s->night;
    if (n != NULL) {
        task_stop(&n->queue.task);
    }
}

void night_free(struct rados_store *s)
{
    struct night *n = s->night;
    if (n != NULL) {
        for (size_t i = 0; i < NIGHT_PIECES; i++) {
            night_piece_free(&n->pieces[i]);
        }
        night_piece_free(&n->walked);
        thread_queue_destroy(&n->queue);
        pthread_mutex_destroy(&n->mutex);
        pthread_cond_destroy(&n->fewer);
        free(n);
    }
}
