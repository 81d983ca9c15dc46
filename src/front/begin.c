/* How the writer begins, over each new connection (writer.c): what stands there is gone on with, or removed. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "front/front_impl.h"

enum { NUMBER_TEXT = 24, SCAN_COUNT = 1000 };

static struct slice number(uint64_t n, char out[NUMBER_TEXT])
{
    snprintf(out, NUMBER_TEXT, "%" PRIu64, n);
    return slice_str(out);
}

static struct slice hex(uint64_t n, char out[NUMBER_TEXT])
{
    snprintf(out, NUMBER_TEXT, "%016" PRIx64, n);
    return slice_str(out);
}

/* Whether what stands there is this folder's, and the feed has all that is later. */
static bool can_go_on(struct front *f, const struct front_meta *m, const struct store_node *self, uint64_t evicted,
                      const char **why)
{
    const enum feed_fit fit = feed_fits(f->store, FEED_FRONT, m->node, m->run, m->to);
    *why = !m->present                 ? "nothing stands there"
           : m->seed != f->dedup->seed ? "what stands there has another seed"
           : m->node != self->node     ? "what stands there is of another folder"
           : fit == FEED_UNKNOWN       ? "nothing was kept for it since"
           : fit == FEED_MISSES        ? "too much was recorded while it was away (feed_max)"
           : evicted > m->evicted      ? "that Redis has evicted keys"
           : fit == FEED_TOO_OLD       ? "what stands there is older than what is kept for it"
           : fit != FEED_FITS          ? "what stands there is newer than this folder"
                                       : NULL;
    return *why == NULL;
}

/* A higher term fences the node that begins, also after a start; without one, what began after this one did. */
static bool is_fenced(const struct front *f, const struct front_meta *m, const struct store_node *self)
{
    if (m->present && m->node != self->node && m->seed == f->dedup->seed && m->term != self->term) {
        return m->term > self->term;
    }
    return m->present && f->last_epoch != 0 && m->epoch > f->last_epoch &&
           (m->node != self->node || m->run != self->run);
}

/* whole: everything is to be brought in, up to `to`. */
static int take_epoch(struct front *f, const struct front_meta *m, const struct store_node *self, uint64_t evicted,
                      bool whole, uint64_t to, bool rebuild, struct err *err)
{
    char key[FRONT_KEY_MAX], texts[9][NUMBER_TEXT];
    const uint64_t before = m->present ? m->epoch : 0, last = f->last_epoch;
    const uint64_t epoch = (before > last ? before : last) + 1;
    const struct slice words[] = {slice_str("1"),
                                  front_key_meta(f->cfg->front_prefix, key),
                                  number(before, texts[0]),
                                  number(epoch, texts[1]),
                                  hex(f->dedup->seed, texts[2]),
                                  hex(self->node, texts[3]),
                                  hex(self->run, texts[4]),
                                  number(evicted, texts[5]),
                                  number(self->term, texts[6]),
                                  slice_str(rebuild ? "1" : "0"),
                                  number(to, texts[7]),
                                  number((uint64_t)clock_wall_ms(), texts[8])};
    const struct reply *reply;
    int rc = front_link_run(f->w.link, FRONT_BEGIN, words, whole ? 12 : 10, &reply, err);
    rc = rc < 0 ? rc : front_verdict(reply, err);
    if (rc == 0) {
        f->last_epoch = epoch;
        f->w.run = self->run;
    }
    return rc;
}

/* What has a meaning there is escaped. */
struct slice front_pattern(struct front *f, char out[2 * FRONT_KEY_MAX])
{
    size_t n = 0;
    for (const char *c = f->cfg->front_prefix; *c != '\0'; c++) {
        if (strchr("*?[]^\\-", *c) != NULL) {
            out[n++] = '\\';
        }
        out[n++] = *c;
    }
    memcpy(out + n, "[wt]:*", 7);
    return slice_str(out);
}

static int remove_keys(struct front *f, const struct reply *page, bool last, struct err *err)
{
    char meta[FRONT_KEY_MAX], dirty[FRONT_KEY_MAX], count[NUMBER_TEXT], epoch[NUMBER_TEXT];
    const struct reply *reply;
    size_t n_keys = 1 + page->n + last;
    buf_clear(&f->w.words);
    struct slice word = number(n_keys, count);
    buf_add(&f->w.words, &word, sizeof word);
    word = front_key_meta(f->cfg->front_prefix, meta);
    buf_add(&f->w.words, &word, sizeof word);
    arena_reset(&f->w.arena);
    for (size_t i = 0; i < page->n; i++) { /* the reply goes with the next call, of which there may be several */
        word = page->items[i].text;
        word.data = arena_copy(&f->w.arena, word.data, word.len);
        if (word.data == NULL) {
            return err_set(err, ERR_NOMEM, "out of memory for the front");
        }
        buf_add(&f->w.words, &word, sizeof word);
    }
    if (last) {
        word = front_key_dirty(f->cfg->front_prefix, dirty);
        buf_add(&f->w.words, &word, sizeof word);
    }
    word = number(f->last_epoch, epoch);
    buf_add(&f->w.words, &word, sizeof word);
    word = slice_str(last ? "1" : "0");
    if (buf_add(&f->w.words, &word, sizeof word) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for the front");
    }
    int rc = front_link_run(f->w.link, FRONT_CLEARED, (const struct slice *)f->w.words.data,
                            f->w.words.len / sizeof word, &reply, err);
    return rc < 0 ? rc : front_verdict(reply, err);
}

bool front_is_scan(const struct reply *reply)
{
    return reply->kind == REPLY_ARRAY && reply->n == 2 && reply->items[0].kind == REPLY_TEXT &&
           reply->items[0].text.len < 32 && reply->items[1].kind == REPLY_ARRAY;
}

/* All users' keys that stand there. SCAN returns each key that is there all the time. */
static int clear(struct front *f, struct err *err)
{
    char cursor[32] = "0", match[2 * FRONT_KEY_MAX], count[NUMBER_TEXT];
    int rc;
    do {
        const struct slice words[] = {slice_str("SCAN"),       slice_str(cursor),  slice_str("MATCH"),
                                      front_pattern(f, match), slice_str("COUNT"), number(SCAN_COUNT, count)};
        const struct reply *reply;
        rc = front_link_call(f->w.link, words, 6, &reply, err);
        if (rc == 0 && !front_is_scan(reply)) {
            rc = err_set(err, ERR_SYSTEM, "SCAN answers something else");
        }
        if (rc == 0) {
            snprintf(cursor, sizeof cursor, "%.*s", (int)reply->items[0].text.len, reply->items[0].text.data);
            bool last = strcmp(cursor, "0") == 0;
            if (reply->items[1].n > 0 || last) {
                rc = remove_keys(f, &reply->items[1], last, err);
            }
        }
        heartbeat_now(&f->courier.task.heartbeat);
    } while (rc == 0 && strcmp(cursor, "0") != 0 && !task_stops(&f->courier.task));
    return rc == 0 && strcmp(cursor, "0") != 0 ? err_set(err, ERR_CLOSED, "the server is stopping") : rc;
}

static void publish_epoch(struct front *f, const struct store_node *self, const struct front_meta *m, bool whole,
                          uint64_t evicted)
{
    pthread_mutex_lock(&f->mutex);
    f->node = self->node;
    f->epoch = f->status.epoch = f->last_epoch;
    f->full = f->status.full = !whole && m->full;
    f->walk = whole ? INT64_MIN : m->walk;
    f->flushed = !whole && m->walk != INT64_MIN && m->run == self->run; /* a power cut may have staged rows again */
    f->evicted = evicted;
    f->rebuild = f->filling = false;
    f->look_dirty = true;
    f->status.rebuilds += whole;
    f->status.filled = whole ? 0 : f->status.filled;
    snprintf(f->status.address, sizeof f->status.address, "%s", front_link_address(f->w.link));
    pthread_mutex_unlock(&f->mutex);
}

/* What stands there can't be read: only a rebuild may remove it, unless it is of no version at all. */
static int read_meta(struct front *f, bool rebuild, struct err *err)
{
    struct err why = {0};
    char key[FRONT_KEY_MAX];
    int rc = front_question_read(f->w.link, f->cfg->front_prefix, NULL, 0, &f->w.question, &why);
    if (rc == 0 || rc == ERR_ABSENT) {
        return 0;
    }
    if (rc == ERR_CORRUPT || (rc == ERR_VERSION && rebuild)) {
        log_error("the front's meta can't be read: all of it is brought in again", "error=%s", log_quote_str(why.text));
        const struct slice words[] = {slice_str("DEL"), front_key_meta(f->cfg->front_prefix, key)};
        const struct reply *reply;
        f->w.question.meta = (struct front_meta){.present = false};
        return front_link_call(f->w.link, words, 2, &reply, err);
    }
    *err = why;
    return rc;
}

/* Over a new connection. */
static int begin_over(struct front *f, bool rebuild, struct err *err)
{
    struct store_node self;
    uint64_t evicted;
    const char *why;
    int rc = front_link_check(f->w.link, &evicted, err);
    if (rc < 0 || (rc = read_meta(f, rebuild, err)) < 0) {
        return rc;
    }
    const struct front_meta m = f->w.question.meta;
    f->store->node->get(f->store, &self);
    if (is_fenced(f, &m, &self) && !rebuild) {
        return err_set(err, ERR_LOCKED,
                       "node %016" PRIx64 " of term %" PRIu64 " writes there, under the same front_prefix, and this is "
                       "term %" PRIu64,
                       m.node, m.term, self.term);
    }
    bool whole = !can_go_on(f, &m, &self, evicted, &why) || rebuild;
    if ((rc = courier_enlist(&f->courier, err)) < 0) {
        return rc;
    }
    uint64_t to = m.to;
    if (whole) {
        to = courier_skip(&f->courier);
        pthread_mutex_lock(&f->mutex);
        f->filling = true;
        pthread_mutex_unlock(&f->mutex);
        log_info("all users are brought into the front", "redis=%s to=%" PRIu64 " why=%s",
                 log_quote_str(front_link_address(f->w.link)), to,
                 log_quote_str(why != NULL ? why : "it was asked for"));
    } else {
        courier_go_from(&f->courier, to);
    }
    if ((rc = take_epoch(f, &m, &self, evicted, whole, to, rebuild, err)) < 0 ||
        ((whole || m.clearing) && (rc = clear(f, err)) < 0)) {
        return rc;
    }
    publish_epoch(f, &self, &m, whole, evicted);
    f->w.sample_us = 0;
    f->w.check_us = clock_real_us();
    return 0;
}

int front_begin(void *front, struct err *err)
{
    struct front *f = front;
    pthread_mutex_lock(&f->mutex);
    bool rebuild = f->rebuild;
    pthread_mutex_unlock(&f->mutex);
    heartbeat_excuse(&f->courier.task.heartbeat);
    int rc = front_link_open(f->cfg, FRONT_PATIENCE_MS, &f->w.link, err);
    return rc < 0 ? rc : begin_over(f, rebuild, err);
}
