/* The thread. While there is more, the next fetch is sent before the last is applied, so that the primary reads while
 * this node writes. What arrives meanwhile waits in the sockets. */
#include "replica/follower_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/background.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/hide.h"
#include "dedup/role.h"
#include "replica/change.h"
#include "replica/feeder.h"
#include "replica/siblings.h"

enum { NUMBER_TEXT = 24, FETCH_WORDS = 11, FETCH_REPLY = 9 };

const char *follower_doing_name(enum follower_doing doing)
{
    static const char *const names[FOLLOWER_DOINGS] = {"connecting", "catching up", "in step",
                                                       "lost",       "refused",     "off"};
    return names[doing];
}

static void show(struct follower *f, enum follower_doing doing, const char *problem)
{
    pthread_mutex_lock(&f->mutex);
    f->state.doing = doing;
    hide_ids_copy(f->state.problem, sizeof f->state.problem, problem);
    pthread_mutex_unlock(&f->mutex);
}

/* --- a fetch --- */

struct fetched {
    int64_t last, now_ms, n, to, term;
    uint64_t node, run;
    bool primary;
};

/* after: an event of that run, or an older one's: what is named must be what was read, not what is durable. */
static int send_fetch(struct follower *f, uint64_t run, uint64_t after, struct err *err)
{
    struct store_node now;
    char texts[FETCH_WORDS][NUMBER_TEXT] = {"REPLICA", "FETCH"};
    struct slice words[FETCH_WORDS];
    role_look(f->r->dedup->role, &now);
    snprintf(texts[2], NUMBER_TEXT, "%016" PRIx64, now.node);
    snprintf(texts[3], NUMBER_TEXT, "%016" PRIx64, f->cursor.node);
    snprintf(texts[4], NUMBER_TEXT, "%016" PRIx64, run);
    snprintf(texts[5], NUMBER_TEXT, "%" PRIu64, after);
    snprintf(texts[6], NUMBER_TEXT, "%" PRIu64, f->cursor.seq);
    snprintf(texts[7], NUMBER_TEXT, "%d", FOLLOWER_FETCH_BYTES);
    snprintf(texts[8], NUMBER_TEXT, "%d", REPLICA_HEARTBEAT_MS);
    snprintf(texts[9], NUMBER_TEXT, "%" PRId64, clock_wall_ms());
    snprintf(texts[10], NUMBER_TEXT, "%" PRIu64, now.term);
    for (int i = 0; i < FETCH_WORDS; i++) {
        words[i] = slice_str(texts[i]);
    }
    int rc = client_queue(f->client, words, FETCH_WORDS, err);
    return rc < 0 || (rc = client_wait(f->client, 0, err)) < 0 ? rc : 0; /* sends it */
}

static int refusal(struct follower *f, struct slice text, struct err *err)
{
    static const struct {
        const char *word;
        int code;
    } words[] = {
        {"LOST ", ERR_NOTFOUND}, {"VERSION ", ERR_VERSION}, {"NOAUTH ", ERR_INVALID}, {"NOPERM ", ERR_INVALID}};
    int code = ERR_SYSTEM;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i].word);
        if (text.len >= n && memcmp(text.data, words[i].word, n) == 0) {
            code = words[i].code;
        }
    }
    return err_set(err, code, "%s: %.*s", f->address, (int)text.len, text.data);
}

static int read_fetched(struct follower *f, struct fetched *out, struct err *err)
{
    const struct reply *reply;
    client_park(f->client, &f->task); /* it may wait at the primary until something is recorded */
    int rc = client_read(f->client, &reply, err);
    client_park(f->client, NULL);
    if (rc < 0) {
        return rc;
    }
    if (reply->kind == REPLY_ERROR) {
        return refusal(f, reply->text, err);
    }
    const struct reply *i = reply->items;
    if (reply->kind != REPLY_ARRAY || reply->n != FETCH_REPLY || !reply_integer(&i[0], &out->term) ||
        !change_read_id(i[2].text, &out->node) || !change_read_id(i[3].text, &out->run) ||
        !reply_integer(&i[4], &out->last) || !reply_integer(&i[5], &out->now_ms) || !reply_integer(&i[6], &out->n) ||
        !reply_integer(&i[7], &out->to) || i[8].kind != REPLY_TEXT || out->node != f->cursor.node) {
        return err_set(err, ERR_INVALID, "%s answers REPLICA FETCH with something else", f->address);
    }
    out->primary = slice_eq(i[1].text, slice_str("primary"));
    buf_clear(&f->events);
    return buf_add(&f->events, i[8].text.data, i[8].text.len) < 0 ? err_set(err, ERR_NOMEM, "out of memory for events")
                                                                  : 0;
}

/* While it catches up, questions go first, here and in the store: of a machine's cores two are busy with it. */
static void note_behind(struct follower *f, uint64_t to, uint64_t last)
{
    bool behind = last - to > FOLLOWER_BEHIND;
    if (last >= to && behind != f->behind) {
        f->behind = behind;
        (void)background_slice(behind ? BACKGROUND_SLICE_LONG_MS : 0); /* refused: questions wait a little longer */
    }
}

static void note_level(struct follower *f, const struct fetched *got, int64_t sent_us)
{
    bool level = (uint64_t)got->last <= f->cursor.seq;
    struct err why = {0};
    if (level) {
        atomic_store(&f->level_us, sent_us);
    }
    if (got->n == 0) { /* what came was taken; whether more would be is looked at where nothing does */
        (void)f->r->store->ops->refusal(f->r->store, &why);
    }
    pthread_mutex_lock(&f->mutex);
    f->state.last = (uint64_t)got->last;
    f->state.clock_apart_ms = got->now_ms - clock_wall_ms();
    f->state.doing = level ? FOLLOWER_IN_STEP : FOLLOWER_CATCHING_UP;
    hide_ids_copy(f->state.problem, sizeof f->state.problem, why.text);
    pthread_mutex_unlock(&f->mutex);
}

/* Until something fails. */
static int follow(struct follower *f, struct err *err)
{
    bool sent = false;
    int64_t sent_us = 0, next_us = 0;
    for (;;) {
        struct fetched got;
        struct store_node now;
        int rc = 0;
        role_look(f->r->dedup->role, &now);
        if (now.term != f->term) { /* it has met another primary: what is confirmed to this one would be lost */
            return err_set(err, ERR_SYSTEM, "%s is of term %" PRIu64 ", and term %" PRIu64 " has begun", f->address,
                           f->term, now.term);
        }
        siblings_skip(f);
        if (!sent && (rc = follower_greet(f, err)) < 0) {
            return rc;
        }
        if (!sent) {
            sent_us = clock_mono_us();
            rc = send_fetch(f, f->cursor.run, f->cursor.seq, err);
        }
        if (rc < 0 || (rc = read_fetched(f, &got, err)) < 0) {
            return rc;
        }
        sent = got.n > 0 && got.to < got.last;
        if (sent) {
            next_us = clock_mono_us();
            if ((rc = send_fetch(f, got.run, (uint64_t)got.to, err)) < 0) {
                return rc;
            }
        }
        note_behind(f, (uint64_t)got.to, (uint64_t)got.last);
        int64_t arrived_ms = clock_wall_ms();
        if ((rc = follower_apply(f, got.run, (uint64_t)got.to, got.n, err)) < 0) {
            return rc;
        }
        got.now_ms += clock_wall_ms() - arrived_ms; /* what applying took is no difference of clocks */
        if (f->takes_over ? got.primary : !got.primary && got.n == 0) { /* what is to come then, the next hello says */
            return err_set(err, ERR_SYSTEM, "%s is %s", f->address,
                           got.primary ? "the primary again" : "no primary any more");
        }
        note_level(f, &got, sent_us);
        sent_us = sent ? next_us : sent_us;
        f->delay_ms = 0;
        if (f->told > 0) {
            log_info("the primary is back", "primary=%s", log_quote_str(f->address));
        }
        f->told = 0;
    }
}

/* --- the thread --- */

static void trouble(struct follower *f, const struct err *err)
{
    bool lost = err->code == ERR_NOTFOUND, refused = err->code == ERR_INVALID || err->code == ERR_VERSION ||
                                                     err->code == ERR_CORRUPT || err->code == ERR_SEED;
    follower_disconnect(f);
    if (follower_stopping(f)) {
        return;
    }
    show(f, lost ? FOLLOWER_LOST : refused ? FOLLOWER_REFUSED : FOLLOWER_CONNECTING, err->text);
    int grave = lost ? 3 : refused ? 2 : 1; /* one that was away may be refused when it is back */
    if (grave > f->told) {
        log_warn(lost      ? "this replica is lost: it must be cloned again"
                 : refused ? "the primary can't be followed"
                           : "the primary is away",
                 "primary=%s error=%s", log_quote_str(f->address), log_quote_str(err->text));
    }
    f->told = grave > f->told ? grave : f->told;
    f->delay_ms = backoff_next(f->delay_ms, FOLLOWER_FIRST_DELAY_MS, FOLLOWER_LAST_DELAY_MS);
    pthread_mutex_lock(&f->mutex);
    f->state.reconnects++;
    pthread_mutex_unlock(&f->mutex);
    follower_rest(f, lost || refused ? FOLLOWER_REFUSED_MS : f->delay_ms);
}

/* As configured, and as the folder says, in turn: the configured one may be gone for good, and another promoted. */
static void choose_address(struct follower *f)
{
    struct store_node now;
    role_look(f->r->dedup->role, &now);
    const char *of = f->r->cfg->replica_of, *known = now.address[0] != '\0' ? now.address : of;
    reach_secure(&f->r->reach, of[0] != '\0' && f->tries % 2 == 0 ? of : known, f->address);
    f->tries++;
}

static void follower_main(void *arg)
{
    struct follower *f = arg;
    bool elsewhere = false; /* go_elsewhere() has said where */
    while (!follower_stopping(f)) {
        struct err err = {0};
        char asked[NODE_ADDRESS_TEXT];
        if (!elsewhere) {
            choose_address(f);
        }
        memcpy(asked, f->address, sizeof asked);
        int rc = follower_connect(f, &err);
        if (rc == 0) {
            f->tries = 0;
            follow(f, &err);
        }
        trouble(f, &err);
        elsewhere = !elsewhere && strcmp(asked, f->address) != 0;
    }
    follower_disconnect(f);
    show(f, FOLLOWER_OFF, "");
}

/* --- from outside --- */

/* Where it is, as the folder has it: the primary may be away for good, or one that was never followed. */
static int look_up(struct follower *f, struct err *err)
{
    struct feed_cursor at;
    struct store_node now;
    role_look(f->r->dedup->role, &now);
    f->n_before = 0;
    int rc = cursor_list(f->r->store, f->reader, f->before, err);
    f->n_before = rc < 0 ? 0 : rc;
    rc = rc < 0 ? rc : cursor_find_last(f->r->store, f->reader, now.leader, &at, err);
    if (rc == 1) {
        f->state.node = at.node;
        f->state.run = at.run;
        f->state.applied = at.seq;
    }
    return rc < 0 ? rc : 0;
}

int follower_resume(struct follower *f, struct err *err)
{
    if (f == NULL || task_started(&f->task)) {
        return 0;
    }
    int rc = f->r->store->ops->reader_open(f->r->store, &f->reader, err);
    if (rc < 0) {
        return rc;
    }
    task_init(&f->task, &f->mutex);
    rc = look_up(f, err);
    rc = rc < 0 ? rc : task_start(&f->task, "follower", TASK_BEATS, follower_main, f, err);
    if (rc < 0) {
        task_destroy(&f->task);
        f->r->store->ops->reader_close(f->reader);
        f->reader = NULL;
    }
    return rc;
}

int follower_start(struct replica *r, struct follower **follower, struct err *err)
{
    *follower = NULL;
    struct follower *f = calloc(1, sizeof *f);
    if (f == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory");
    }
    f->r = r;
    f->state.age_ms = -1;
    pthread_mutex_init(&f->mutex, NULL);
    pthread_cond_init(&f->more, NULL);
    int rc = follower_resume(f, err);
    if (rc < 0) {
        follower_free(f);
        return rc;
    }
    *follower = f;
    return 0;
}

void follower_stop(struct follower *f)
{
    if (f == NULL || !task_started(&f->task)) {
        return;
    }
    task_stop(&f->task);
    task_destroy(&f->task);
    f->r->store->ops->reader_close(f->reader);
    f->reader = NULL;
}

void follower_free(struct follower *f)
{
    if (f == NULL) {
        return;
    }
    buf_free(&f->events);
    buf_free(&f->batch.bytes);
    arena_free(&f->arena);
    pthread_cond_destroy(&f->more);
    pthread_mutex_destroy(&f->mutex);
    free(f);
}

static int64_t age_ms(const struct follower *f)
{
    int64_t level = atomic_load(&f->level_us);
    return level == 0 ? -1 : (clock_mono_us() - level) / 1000;
}

void follower_look(const struct follower *f, struct follower_state *out)
{
    if (f == NULL) {
        *out = (struct follower_state){.doing = FOLLOWER_OFF, .age_ms = -1};
        return;
    }
    pthread_mutex_lock((pthread_mutex_t *)&f->mutex);
    *out = f->state;
    pthread_mutex_unlock((pthread_mutex_t *)&f->mutex);
    out->age_ms = age_ms(f);
}

bool follower_has(struct follower *f, uint64_t node, uint64_t *seq)
{
    bool has = false;
    pthread_mutex_lock(&f->mutex);
    for (int i = 0; i < f->n_before && node != 0; i++) {
        if (f->before[i].node == node) {
            *seq = f->before[i].seq;
            has = true;
        }
    }
    if (node != 0 && f->state.node == node) {
        *seq = f->state.applied;
        has = true;
    }
    pthread_mutex_unlock(&f->mutex);
    return has;
}

int follower_fresh(const struct follower *f, const struct config *live, struct err *err)
{
    if (f == NULL || live->replica_max_age_ms == 0) {
        return 0;
    }
    int64_t age = age_ms(f);
    if (age >= 0 && age <= live->replica_max_age_ms) {
        return 0;
    }
    return age < 0 ? err_set(err, ERR_STALE, "this replica has not been level with its primary since it started")
                   : err_set(err, ERR_STALE,
                             "this replica has not been level with its primary for %" PRId64
                             " ms, more than replica_max_age",
                             age);
}

int follower_wait(struct follower *f, uint64_t seq, int64_t ms, struct err *err)
{
    int64_t until = clock_real_us() + ms * 1000;
    pthread_mutex_lock(&f->mutex);
    int64_t left;
    while (f->state.applied < seq && (left = until - clock_real_us()) > 0) {
        clock_cond_wait_real_us(&f->more, &f->mutex, left);
    }
    bool there = f->state.applied >= seq;
    pthread_mutex_unlock(&f->mutex);
    return there ? 0 : err_set(err, ERR_LATE, "not all that the primary has was applied within %" PRId64 " ms", ms);
}
