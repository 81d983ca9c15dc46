/* The thread that carries the states of users: of those whose events have become many, or say too little (the set of
 * layout.h, which is in Redis so that it shares what becomes of that); of all users, in the order of their keys, when
 * they are brought in; and of those whom the reconciliation finds to differ.
 *
 * It waits for history's disk, so it is a thread of its own. Each state is true as of a place in the feed, its
 * revision, and replaces only older ones: it doesn't matter how late it comes. How far the walk is stands in Redis,
 * and moves with the states themselves.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "front/front_impl.h"

enum {
    NUMBER_TEXT = 24,
    DIRTY_TAKEN = 32,
    PAGE_BYTES = 32 * 1024,
    REST_MS = 100,
    FLUSH_AGAIN_MS = 5000,
    AGAIN_MS = 500, /* when none of those who are dirty could be read */
};

void front_rest(struct front *f, int64_t ms)
{
    pthread_mutex_lock(&f->mutex);
    task_rest_real(&f->s.task, clock_real_us() + ms * 1000);
    pthread_mutex_unlock(&f->mutex);
}

static struct front_states *states_of(struct front *f)
{
    return &f->s.out;
}

/* --- packing --- */

static void clear_states(struct front *f)
{
    struct front_states *out = states_of(f);
    arena_reset(&out->arena);
    buf_clear(&out->keys);
    buf_clear(&out->args);
    out->n = out->bytes = 0;
}

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory for the front");
}

static int add_slice(struct buf *to, struct slice word, struct err *err)
{
    return buf_add(to, &word, sizeof word) < 0 ? out_of_memory(err) : 0;
}

static int add_copy(struct front_states *out, struct buf *to, struct slice word, struct err *err)
{
    const char *copy = arena_copy(&out->arena, word.data, word.len);
    return copy == NULL ? out_of_memory(err) : add_slice(to, slice_of(copy, word.len), err);
}

static int add_number(struct front_states *out, uint64_t n, struct err *err)
{
    char text[NUMBER_TEXT];
    snprintf(text, sizeof text, "%" PRIu64, n);
    return add_copy(out, &out->args, slice_str(text), err);
}

/* The words of its state, which are in the arena. */
static int write_words(struct front *f, int there, struct err *err)
{
    struct front_states *out = states_of(f);
    struct user_snapshot p;
    buf_clear(&out->words);
    if (there == 0) {
        return 0;
    }
    const char *bytes = arena_copy(&out->arena, out->snapshot.data, out->snapshot.len);
    if (bytes == NULL) {
        return out_of_memory(err);
    }
    int rc = user_snapshot_decode(bytes, out->snapshot.len, &out->arena, &p, err);
    return rc < 0 ? rc : front_state_write(&p, &out->arena, &out->words, err);
}

static void count_kind(struct front *f)
{
    const struct slice *words = (const struct slice *)states_of(f)->words.data;
    if (states_of(f)->words.len == 2 * sizeof *words && words[0].len == 1) {
        pthread_mutex_lock(&f->mutex);
        f->status.giants += words[0].data[0] == 'g';
        f->status.unread += words[0].data[0] == 'b';
        pthread_mutex_unlock(&f->mutex);
    }
}

static int append(struct front *f, struct slice user, uint64_t revision, struct err *err)
{
    struct front_states *out = states_of(f);
    char key[FRONT_KEY_MAX];
    const struct slice *words = (const struct slice *)out->words.data;
    size_t n = out->words.len / sizeof *words;
    int rc = add_copy(out, &out->keys, front_key_state(f->cfg->front_prefix, user, key), err);
    rc = rc < 0 ? rc : add_copy(out, &out->keys, front_key_events(f->cfg->front_prefix, user, key), err);
    rc = rc < 0 ? rc : add_copy(out, &out->args, user, err);
    rc = rc < 0 ? rc : add_number(out, revision, err);
    rc = rc < 0 ? rc : add_number(out, n, err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = add_slice(&out->args, words[i], err);
        out->bytes += words[i].len;
    }
    out->n += rc == 0;
    return rc;
}

int front_states_add(struct front *f, struct slice user, struct err *err)
{
    struct front_states *out = states_of(f);
    uint64_t as_of = 0;
    buf_clear(&out->snapshot);
    heartbeat_excuse(&f->s.task.heartbeat);
    int there = f->store->copy->whole(f->s.reader, user, &out->snapshot, &as_of, err);
    heartbeat_now(&f->s.task.heartbeat);
    if (there == ERR_BUSY) {
        *err = (struct err){0};
        return 0;
    }
    int rc = there < 0 ? there : write_words(f, there, err);
    if (rc < 0) {
        return rc;
    }
    count_kind(f);
    rc = append(f, user, as_of, err);
    return rc < 0 ? rc : 1;
}

/* --- sending --- */

/* EVALSHA's words: the number of keys, meta, the set, keys, the epoch, both walks, the newest seq, the rest. */
static int gather(struct front *f, const char *old_walk, const char *new_walk, struct buf *all, struct err *err)
{
    struct front_states *out = states_of(f);
    char key[FRONT_KEY_MAX], number[NUMBER_TEXT];
    buf_clear(all);
    snprintf(number, sizeof number, "%zu", 2 + 2 * out->n);
    int rc = add_copy(out, all, slice_str(number), err);
    rc = rc < 0 ? rc : add_copy(out, all, front_key_meta(f->cfg->front_prefix, key), err);
    rc = rc < 0 ? rc : add_copy(out, all, front_key_dirty(f->cfg->front_prefix, key), err);
    rc = rc < 0 ? rc : buf_add(all, out->keys.data, out->keys.len) < 0 ? out_of_memory(err) : 0;
    snprintf(number, sizeof number, "%" PRIu64, f->s.epoch);
    rc = rc < 0 ? rc : add_copy(out, all, slice_str(number), err);
    rc = rc < 0 ? rc : add_copy(out, all, slice_str(old_walk), err);
    rc = rc < 0 ? rc : add_copy(out, all, slice_str(new_walk), err);
    snprintf(number, sizeof number, "%" PRIu64, f->store->feed->last(f->store));
    rc = rc < 0 ? rc : add_copy(out, all, slice_str(number), err);
    return rc < 0 ? rc : buf_add(all, out->args.data, out->args.len) < 0 ? out_of_memory(err) : 0;
}

int front_states_send(struct front *f, const char *old_walk, const char *new_walk, struct err *err)
{
    struct front_states *out = states_of(f);
    const struct reply *reply;
    if (out->n == 0 && new_walk == NULL) {
        clear_states(f);
        return 0;
    }
    int rc = gather(f, old_walk != NULL ? old_walk : "", new_walk != NULL ? new_walk : "", &out->words, err);
    if (rc == 0) {
        heartbeat_excuse(&f->s.task.heartbeat);
        rc = front_link_run(f->s.link, FRONT_STATES, (const struct slice *)out->words.data,
                            out->words.len / sizeof(struct slice), &reply, err);
        heartbeat_now(&f->s.task.heartbeat);
        rc = rc < 0 ? rc : front_verdict(reply, err);
    }
    if (rc == 0) {
        pthread_mutex_lock(&f->mutex);
        f->status.states += out->n;
        f->status.state_bytes += out->bytes;
        pthread_mutex_unlock(&f->mutex);
    }
    clear_states(f);
    return rc;
}

/* One script takes no more than so much. */
static int send_if_large(struct front *f, struct err *err)
{
    return states_of(f)->bytes >= FRONT_STATES_BYTES ? front_states_send(f, NULL, NULL, err) : 0;
}

void front_pay(struct front *f, size_t n)
{
    const int64_t rate = config_now(f->cfg)->front_users_rate, now = clock_real_us();
    f->s.next_us = f->s.next_us > now ? f->s.next_us : now;
    f->s.next_us += rate > 0 ? (int64_t)n * 1000 * 1000 / rate : 0;
}

/* --- those who are dirty --- */

static void set_dirty(struct front *f, uint64_t n)
{
    pthread_mutex_lock(&f->mutex);
    f->status.dirty = n;
    pthread_mutex_unlock(&f->mutex);
}

/* Some of them, by chance, so that one who can't be read holds up no other. 1: some were sent. */
static int send_dirty(struct front *f, struct err *err)
{
    char key[FRONT_KEY_MAX], count[NUMBER_TEXT];
    snprintf(count, sizeof count, "%d", DIRTY_TAKEN);
    const struct slice words[] = {slice_str("SRANDMEMBER"), front_key_dirty(f->cfg->front_prefix, key),
                                  slice_str(count)};
    const struct reply *reply;
    int rc = front_link_call(f->s.link, words, 3, &reply, err);
    if (rc < 0 || reply->kind != REPLY_ARRAY || reply->n == 0) {
        set_dirty(f, 0);
        return rc;
    }
    buf_clear(&f->s.page);
    arena_reset(&f->s.arena);
    const size_t n = reply->n;
    struct slice *users = arena_alloc(&f->s.arena, n * sizeof *users);
    for (size_t i = 0; i < n && users != NULL; i++) { /* the reply goes with the next call */
        struct slice user = reply->items[i].text;
        const char *copy = arena_copy(&f->s.arena, user.data, user.len);
        users[i] = slice_of(copy != NULL ? copy : "", copy != NULL ? user.len : 0);
    }
    if (users == NULL) {
        return out_of_memory(err);
    }
    int sent = 0;
    front_pay(f, n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct err why = {0};
        int added = users[i].len >= 1 && users[i].len <= 255 ? front_states_add(f, users[i], &why) : 0;
        if (added < 0 && log_again(&f->s.log)) {
            log_warn("a user can't be read for the front", "user=%s error=%s", log_quote(users[i]),
                     log_quote_str(why.text));
        }
        sent += added > 0;
        rc = send_if_large(f, err);
    }
    rc = rc < 0 ? rc : front_states_send(f, NULL, NULL, err);
    return rc < 0 ? rc : sent > 0;
}

/* --- all users --- */

struct flush {
    struct store_call call; /* first */
    struct front *f;
    bool *flushed;
    bool *begun;
    uint64_t epoch; /* whose walk it is for: what is staged when the next one begins is not in it */
};

static void on_flushed(struct store_call *call)
{
    struct flush *flush = (struct flush *)call;
    struct front *f = flush->f;
    if (call->err.code < 0) {
        log_warn("what is staged could not be flushed for the front", "error=%s", log_quote_str(call->err.text));
    }
    pthread_mutex_lock(&f->mutex);
    *flush->flushed = call->err.code == 0 && flush->epoch == f->epoch;
    *flush->begun = false;
    f->flush_us = call->err.code == 0 ? 0 : clock_real_us() + FLUSH_AGAIN_MS * 1000;
    pthread_mutex_unlock(&f->mutex);
    free(flush);
}

/* The store may answer when this thread has ended, but not when `front` is gone. */
static int ask_flush(struct front *f, bool *flushed, bool *begun, struct err *err)
{
    struct flush *flush = calloc(1, sizeof *flush);
    if (flush == NULL) {
        return out_of_memory(err);
    }
    *flush =
        (struct flush){.call = {.done = on_flushed}, .f = f, .flushed = flushed, .begun = begun, .epoch = f->s.epoch};
    pthread_mutex_lock(&f->mutex);
    *begun = true;
    pthread_mutex_unlock(&f->mutex);
    f->store->ring->flush(f->store, &flush->call);
    return 0;
}

int front_flush(struct front *f, bool *flushed, bool *begun, struct err *err)
{
    pthread_mutex_lock(&f->mutex);
    const bool is_flushed = *flushed, waits = *begun || clock_real_us() < f->flush_us;
    pthread_mutex_unlock(&f->mutex);
    if (is_flushed || waits) {
        return is_flushed;
    }
    return ask_flush(f, flushed, begun, err);
}

int front_page(struct front *f, int64_t from, struct store_copy_users *page, struct slice **users, struct err *err)
{
    *page = (struct store_copy_users){.from = from, .ends = page->ends};
    buf_clear(&f->s.page);
    arena_reset(&f->s.arena);
    heartbeat_excuse(&f->s.task.heartbeat);
    int rc = f->store->copy->users(f->s.reader, page, &f->s.page, PAGE_BYTES, err);
    heartbeat_now(&f->s.task.heartbeat);
    *users = rc < 0 ? NULL : arena_alloc(&f->s.arena, (page->n + 1) * sizeof **users);
    if (rc == 0 && *users == NULL) {
        rc = out_of_memory(err);
    }
    const size_t *ends = (const size_t *)page->ends.data;
    for (size_t i = 0; i < page->n && rc == 0; i++) {
        size_t begin = i == 0 ? 0 : ends[i - 1];
        struct user_snapshot p;
        rc = user_snapshot_decode(f->s.page.data + begin, ends[i] - begin, &f->s.arena, &p, err);
        (*users)[i] = p.user; /* in s.page */
    }
    return rc;
}

/* The next page of users. 1: there is more to do. */
static int walk(struct front *f, int64_t from, struct err *err)
{
    char old_walk[NUMBER_TEXT], new_walk[NUMBER_TEXT];
    struct store_copy_users page = {.ends = f->s.ends};
    struct slice *users;
    int rc = front_page(f, from, &page, &users, err);
    f->s.ends = page.ends;
    for (size_t i = 0; i < page.n && rc == 0; i++) {
        rc = front_states_add(f, users[i], err); /* 0: they are being forgotten, which is an event */
        rc = rc < 0 ? rc : send_if_large(f, err);
    }
    if (rc < 0) {
        return rc;
    }
    snprintf(old_walk, sizeof old_walk, "%" PRId64, from);
    snprintf(new_walk, sizeof new_walk, "%" PRId64, page.next);
    if ((rc = front_states_send(f, old_walk, page.ended ? "full" : new_walk, err)) < 0) {
        return rc;
    }
    front_pay(f, page.n);
    pthread_mutex_lock(&f->mutex);
    if (f->epoch == f->s.epoch) {
        f->status.filled += page.n;
        f->walk = page.next;
        f->full = f->status.full = page.ended;
    }
    uint64_t filled = f->status.filled;
    pthread_mutex_unlock(&f->mutex);
    if (page.ended) {
        log_info("the front is full", "users=%" PRIu64, filled);
    }
    return 1;
}

/* --- samples --- */

static int compare_sample(struct front *f, struct err *err)
{
    char bytes[255];
    pthread_mutex_lock(&f->mutex);
    bool due = f->n_samples > 0 && f->samples[0].due_ms <= clock_mono_ms();
    size_t len = due ? f->samples[0].user.len : 0;
    if (due) {
        memcpy(bytes, f->samples[0].bytes, len);
        memmove(f->samples, f->samples + 1, (size_t)--f->n_samples * sizeof *f->samples);
    }
    pthread_mutex_unlock(&f->mutex);
    if (!due) {
        return 0;
    }
    int rc = front_compare_user(f, slice_of(bytes, len), err);
    return rc < 0 ? rc : 1;
}

/* --- the thread --- */

static void hang_up(struct front *f)
{
    front_link_close(f->s.link);
    f->s.link = NULL;
    f->s.epoch = 0;
    clear_states(f);
}

/* What there is to do now, in this order. Returns 1: something was done. */
static int work(struct front *f, bool full, int64_t from, bool dirty, struct err *err)
{
    int rc = 0;
    if (full && (rc = compare_sample(f, err)) != 0) {
        return rc;
    }
    if (clock_real_us() < f->s.next_us) {
        return 0;
    }
    if (dirty && clock_real_us() >= f->s.dirty_us) {
        rc = send_dirty(f, err);
        f->s.dirty_us = rc == 0 ? clock_real_us() + AGAIN_MS * 1000 : 0;
    }
    if (rc != 0) {
        return rc;
    }
    if (full) {
        return front_reconcile_step(f, err);
    }
    rc = front_flush(f, &f->flushed, &f->flushing, err);
    return rc <= 0 ? rc : walk(f, from, err);
}

static int step(struct front *f, struct err *err)
{
    pthread_mutex_lock(&f->mutex);
    const uint64_t epoch = f->epoch;
    const bool full = f->full, dirty = f->status.dirty > 0 || f->look_dirty;
    const int64_t from = f->walk;
    f->look_dirty = false;
    pthread_mutex_unlock(&f->mutex);
    if (epoch != f->s.epoch) {
        hang_up(f);
    }
    if (epoch == 0) {
        return 0;
    }
    if (f->s.link == NULL) {
        heartbeat_excuse(&f->s.task.heartbeat);
        int rc = front_link_open(f->cfg, FRONT_PATIENCE_MS, &f->s.link, err);
        if (rc < 0) {
            return rc;
        }
        f->s.epoch = epoch;
    }
    return work(f, full, from, dirty, err);
}

/* Until the rate allows more. */
static int64_t rest_ms(const struct front *f)
{
    const int64_t left_us = f->s.next_us - clock_real_us();
    return left_us <= 0 || left_us > REST_MS * 1000 ? REST_MS : (left_us + 999) / 1000;
}

/* Such as when the reply was lost of a script that moved the walk: only the writer looks at what stands there. */
static void begin_again(struct front *f)
{
    pthread_mutex_lock(&f->mutex);
    f->begin_again = f->epoch == f->s.epoch;
    pthread_mutex_unlock(&f->mutex);
    courier_wake(&f->courier);
}

void front_states_main(void *arg)
{
    struct front *f = arg;
    while (!task_stops(&f->s.task)) {
        struct err err = {0};
        heartbeat_now(&f->s.task.heartbeat);
        int rc = step(f, &err);
        if (rc == ERR_STALE) {
            begin_again(f);
        }
        if (rc < 0) {
            if (log_again(&f->s.log)) {
                log_warn("users can't be brought into the front now", "error=%s", log_quote_str(err.text));
            }
            hang_up(f);
        }
        if (rc <= 0) {
            front_rest(f, rc < 0 ? AGAIN_MS : rest_ms(f));
        }
    }
    hang_up(f);
}
