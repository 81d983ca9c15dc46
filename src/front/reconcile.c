/* What stands in the front against the folder: a sample of users whose events were sent, seconds later; at night, or
 * when it is asked for, all of them, at front_users_rate; and then those who stand there and are not in the folder.
 *
 * Both sides go on while they are compared. What stands there is read first, then the folder, then what stands there
 * once more: users who differ are looked at again, and differ only when they do so several times while the front is
 * level with what was read of the folder. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "base/hash.h"
#include "front/front_impl.h"
#include "store/codec/user_compare.h"

enum { NUMBER_TEXT = 24, TRIES = 6, FIRST_WAIT_MS = 10, SCAN_COUNT = 256, NIGHTLY_MS = 20 * 3600 * 1000 };

enum side { SIDE_SAME, SIDE_DIFFERS, SIDE_NOT_NOW };

static void name(struct front *f, struct slice user, const char *why)
{
    pthread_mutex_lock(&f->mutex);
    f->status.differences++;
    if (f->status.n_named < FRONT_NAMED_MAX) {
        snprintf(f->status.named[f->status.n_named++], FRONT_TEXT, "%s: %s", log_quote(user), why);
    }
    pthread_mutex_unlock(&f->mutex);
    log_error("the front differs from the folder: the user is sent again", "user=%s difference=%s", log_quote(user),
              log_quote_str(why));
}

/* What is past retention counts on neither side: it is swept some day here, and there when the user is sent again.
 * Returns whether there was something. */
static bool drop_expired(struct user_snapshot *p, int first_kept)
{
    size_t months = 0, plays = 0;
    while (months < p->n_months && p->months[months].month < first_kept) {
        months++;
    }
    while (plays < p->n_plays && p->plays[plays].month < first_kept) {
        plays++;
    }
    p->months = months > 0 ? p->months + months : p->months;
    p->plays = plays > 0 ? p->plays + plays : p->plays;
    p->n_months -= months;
    p->n_plays -= plays;
    return months + plays > 0;
}

static int first_kept(const struct front *f)
{
    int64_t later, earlier;
    f->store->ops->now(f->store, &later, &earlier);
    return month_of_ms(earlier) - (int)config_now(f->cfg)->retention;
}

/* What stands there, as a snapshot, against the folder's; NULL: it has none. */
static int compare(struct front *f, struct slice user, struct user_snapshot *ours, char why[USER_COMPARE_TEXT],
                   struct err *err)
{
    struct front_question *q = &f->s.question;
    struct user_snapshot theirs;
    struct err bad = {0};
    if (q->user.verdict == FRONT_GIANT) {
        snprintf(why, USER_COMPARE_TEXT, "too large there");
        return ours != NULL && front_user_bytes(ours) > FRONT_USER_MAX;
    }
    int rc = front_user_snapshot(&q->user, user, f->dedup->seed, (size_t)config_now(f->cfg)->delivered_max, &q->codec,
                                 &q->arena, &f->s.blob, &theirs, &bad);
    if (rc == 0) {
        f->s.expired = drop_expired(&theirs, first_kept(f));
        if (ours != NULL) {
            drop_expired(ours, first_kept(f));
        }
        rc = user_compare(ours, q->user.known ? &theirs : NULL, f->dedup->seed, why, &bad);
    }
    if (rc == ERR_CORRUPT) {
        snprintf(why, USER_COMPARE_TEXT, "%.*s", USER_COMPARE_TEXT - 1, bad.text);
        return 0;
    }
    if (rc < 0) {
        *err = bad;
    }
    return rc;
}

/* Of the folder: 1, with *ours; 0: it has nothing; SIDE_NOT_NOW is ERR_BUSY. */
static int read_ours(struct front *f, struct slice user, struct user_snapshot *ours, uint64_t *as_of, struct err *err)
{
    struct front_states *out = &f->s.out;
    buf_clear(&out->snapshot);
    heartbeat_excuse(&f->s.task.heartbeat);
    int there = f->store->copy->whole(f->s.reader, user, &out->snapshot, as_of, err);
    heartbeat_now(&f->s.task.heartbeat);
    if (there == 1) {
        int rc = user_snapshot_decode(out->snapshot.data, out->snapshot.len, &f->s.question.arena, ours, err);
        return rc < 0 ? rc : 1;
    }
    return there;
}

/* One look. ERR_ABSENT: the front is not whole any more. */
static int look(struct front *f, struct slice user, char why[USER_COMPARE_TEXT], enum side *side, struct err *err)
{
    struct front_question *q = &f->s.question;
    struct user_snapshot ours;
    struct err bad = {0};
    uint64_t as_of = 0;
    int rc = front_question_read(f->s.link, f->cfg->front_prefix, &user, f->dedup->seed, q, &bad);
    if (rc == ERR_CORRUPT && q->meta.present) {
        snprintf(why, USER_COMPARE_TEXT, "%.*s", USER_COMPARE_TEXT - 1, bad.text);
        *side = SIDE_DIFFERS;
        return 0;
    }
    if (rc < 0) {
        *err = bad;
        return rc;
    }
    *side = SIDE_NOT_NOW;
    snprintf(why, USER_COMPARE_TEXT, "its state does not come");
    int there = read_ours(f, user, &ours, &as_of, err);
    if (there == ERR_BUSY || (there == 1 && ours.n_damaged > 0)) { /* what can't be read here is no measure */
        *err = (struct err){0};
        *side = there == ERR_BUSY ? SIDE_NOT_NOW : SIDE_SAME;
        return 0;
    }
    const uint64_t last = f->store->feed->last(f->store);
    if (there >= 0 && (q->user.revision > last || q->user.stale > last)) {
        snprintf(why, USER_COMPARE_TEXT, "its revision lies ahead of all that was recorded");
        *side = SIDE_DIFFERS;
        return 0;
    }
    if (there < 0 || q->user.verdict == FRONT_STALE || q->meta.to < as_of) {
        return there < 0 ? there : 0;
    }
    rc = compare(f, user, there == 1 ? &ours : NULL, why, err);
    *side = rc == 1 ? SIDE_SAME : SIDE_DIFFERS;
    return rc < 0 ? rc : 0;
}

/* The next try looks at a front that is as far as the folder was: nothing waits for the writer then but what came
 * meanwhile. */
int front_compare_user(struct front *f, struct slice user, struct err *err)
{
    char why[USER_COMPARE_TEXT];
    enum side side = SIDE_NOT_NOW;
    int differed = 0;
    f->s.expired = false;
    for (int i = 0; i < TRIES && side != SIDE_SAME; i++) {
        if (i > 0) {
            front_rest(f, FIRST_WAIT_MS << i);
        }
        int rc = look(f, user, why, &side, err);
        if (rc < 0 || task_stops(&f->s.task)) {
            return rc;
        }
        differed += side == SIDE_DIFFERS;
    }
    pthread_mutex_lock(&f->mutex);
    f->status.compared++;
    pthread_mutex_unlock(&f->mutex);
    if (side == SIDE_SAME && !f->s.expired) {
        return 0;
    }
    if (side == SIDE_DIFFERS && differed >= TRIES / 2) { /* else it may just be late */
        name(f, user, why);
    }
    int rc = front_states_add(f, user, err);
    return rc < 0 ? rc : front_states_send(f, NULL, NULL, err);
}

/* --- a pass --- */

static bool is_due(struct front *f)
{
    const struct config *live = config_now(f->cfg);
    const int64_t now = clock_wall_ms();
    return config_in_sweep_window(live, now) &&
           (f->status.reconciled_ms == 0 || now < f->status.reconciled_ms || /* the clock was ahead then */
            now - f->status.reconciled_ms >= NIGHTLY_MS);
}

static void begin(struct front *f)
{
    pthread_mutex_lock(&f->mutex);
    f->reconcile = false;
    f->status.comparing = true;
    f->s.compared_before = f->status.compared;
    f->s.differences_before = f->status.differences;
    f->s.flushed = false;
    pthread_mutex_unlock(&f->mutex);
    f->s.from = INT64_MIN;
    f->s.pruning = false;
    f->s.cursor[0] = '\0'; /* not begun */
    log_info("the front is compared with the folder", "");
}

static void end(struct front *f)
{
    pthread_mutex_lock(&f->mutex);
    f->status.comparing = false;
    f->status.reconciled_ms = clock_wall_ms();
    uint64_t compared = f->status.compared - f->s.compared_before;
    uint64_t differences = f->status.differences - f->s.differences_before;
    pthread_mutex_unlock(&f->mutex);
    log_info("the front was compared with the folder", "users=%" PRIu64 " differences=%" PRIu64, compared, differences);
}

/* The next page of the folder's users. */
static int compare_page(struct front *f, struct err *err)
{
    struct store_copy_users page = {.ends = f->s.ends};
    struct slice *users;
    int rc = front_page(f, f->s.from, &page, &users, err);
    f->s.ends = page.ends;
    for (size_t i = 0; i < page.n && rc == 0 && !task_stops(&f->s.task); i++) {
        rc = front_compare_user(f, users[i], err);
    }
    if (rc == 0) {
        f->s.from = page.next;
        f->s.pruning = page.ended;
        front_pay(f, page.n);
    }
    return rc;
}

/* Of keys w: and t:, those whose user the folder doesn't have. */
static int prune_user(struct front *f, struct slice user, struct err *err)
{
    struct user_snapshot ours;
    uint64_t as_of;
    arena_reset(&f->s.question.arena);
    int there = read_ours(f, user, &ours, &as_of, err);
    if (there == ERR_BUSY) {
        *err = (struct err){0};
    }
    return there == 0 ? front_compare_user(f, user, err) : there == ERR_BUSY || there > 0 ? 0 : there;
}

static int prune_page(struct front *f, struct err *err)
{
    char match[2 * FRONT_KEY_MAX], count[NUMBER_TEXT];
    snprintf(count, sizeof count, "%d", SCAN_COUNT);
    const struct slice words[] = {slice_str("SCAN"),  slice_str(f->s.cursor[0] != '\0' ? f->s.cursor : "0"),
                                  slice_str("MATCH"), front_pattern(f, match),
                                  slice_str("COUNT"), slice_str(count)};
    const struct reply *reply;
    int rc = front_link_call(f->s.link, words, sizeof words / sizeof *words, &reply, err);
    if (rc < 0 || !front_is_scan(reply)) {
        return rc < 0 ? rc : err_set(err, ERR_SYSTEM, "SCAN answers something else");
    }
    snprintf(f->s.cursor, sizeof f->s.cursor, "%.*s", (int)reply->items[0].text.len, reply->items[0].text.data);
    const struct reply *keys = &reply->items[1];
    const size_t before = strlen(f->cfg->front_prefix) + 2, n = keys->n;
    arena_reset(&f->s.arena);
    struct slice *users = arena_alloc(&f->s.arena, (n + 1) * sizeof *users);
    for (size_t i = 0; i < n && users != NULL; i++) { /* the reply goes with the next call */
        struct slice key = keys->items[i].text;
        const char *copy = arena_copy(&f->s.arena, key.data, key.len);
        users[i] = copy != NULL && key.len > before ? slice_of(copy + before, key.len - before) : slice_str("");
    }
    if (users == NULL) {
        return err_set(err, ERR_NOMEM, "out of memory for the front");
    }
    for (size_t i = 0; i < n && rc == 0 && !task_stops(&f->s.task); i++) {
        rc = users[i].len >= 1 && users[i].len <= 255 ? prune_user(f, users[i], err) : 0;
    }
    front_pay(f, n);
    return rc;
}

int front_reconcile_step(struct front *f, struct err *err)
{
    pthread_mutex_lock(&f->mutex);
    bool wanted = f->reconcile, under_way = f->status.comparing;
    pthread_mutex_unlock(&f->mutex);
    if (!under_way && !wanted && !is_due(f)) {
        return 0;
    }
    if (!under_way) {
        begin(f);
    }
    int rc = front_flush(f, &f->s.flushed, &f->s.flushing, err);
    if (rc <= 0) {
        return rc;
    }
    rc = f->s.pruning ? prune_page(f, err) : compare_page(f, err);
    if (rc == 0 && f->s.pruning && strcmp(f->s.cursor, "0") == 0) {
        end(f);
    }
    return rc < 0 ? rc : 1;
}
