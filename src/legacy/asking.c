#include "legacy/asking.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "legacy/redis_reply.h"
#include "legacy/redis_words.h"

enum { CHUNK = 500, TABLE = 256 };

static bool is_set(const uint8_t *bits, size_t i)
{
    return (bits[i / 8] & (0x80 >> i % 8)) != 0;
}

static size_t next_asked(const struct read_through_question *q, size_t i)
{
    while (i < q->n && !is_set(q->asked, i)) {
        i += i % 8 == 0 && q->asked[i / 8] == 0 ? 8 : 1;
    }
    return i < q->n ? i : q->n;
}

static size_t count_bits(const uint8_t *bits, size_t n)
{
    size_t sum = 0;
    for (size_t i = 0; i < (n + 7) / 8; i++) {
        sum += (size_t)__builtin_popcount(bits[i]);
    }
    return sum;
}

/* --- commands --- */

static void set_times(struct asking *a)
{
    const struct config *live = config_now(a->dedup->cfg);
    struct store *store = a->dedup->store;
    int64_t later, earlier;
    store->ops->now(store, &later, &earlier);
    legacy_times_now(live, later, earlier, &a->plays, &a->deliveries);
    int64_t window = month_start_ms(month_of_ms(earlier) - (int)live->window);
    a->plays.oldest_ms = a->plays.oldest_ms > window ? a->plays.oldest_ms : window;
    const struct exposure *e = a->question->exposure;
    if (e != NULL && e->first_month != INT_MAX) {
        const int64_t first = month_start_ms(e->first_month);
        a->plays.oldest_ms = a->plays.oldest_ms > first ? a->plays.oldest_ms : first;
    }
}

void asking_again(struct asking *a, enum asking_part part)
{
    if (part == ASKING_SCORES) {
        a->left = count_bits(a->question->asked, a->question->n);
        a->at = next_asked(a->question, 0);
    } else {
        a->question->n_delivered = 0;
    }
}

void asking_begin(struct asking *a, struct read_through_question *q, const struct dedup *dedup, bool zmscore)
{
    a->question = q;
    a->dedup = dedup;
    a->single = !zmscore;
    a->chunk = a->single ? 1 : CHUNK;
    asking_again(a, ASKING_SCORES);
    asking_again(a, ASKING_DELIVERED);
    set_times(a);
}

struct slice asking_key(const struct config *cfg, enum asking_part part, struct slice user, char out[LEGACY_KEY_MAX])
{
    return legacy_key_make(part == ASKING_SCORES ? cfg->legacy_played_key : cfg->legacy_delivered_key, user, out);
}

size_t asking_commands(const struct asking *a, enum asking_part part)
{
    return part == ASKING_SCORES ? (a->left + a->chunk - 1) / a->chunk : a->dedup->cfg->legacy_delivered_key[0] != '\0';
}

static void add_asking(bool once, struct buf *out)
{
    const struct slice word = slice_str("ASKING");
    if (once) {
        redis_words_all(out, &word, 1);
    }
}

static void add_scores(const struct asking *a, struct slice user, const struct slice *items, bool once, struct buf *out)
{
    const struct read_through_question *q = a->question;
    char key_text[LEGACY_KEY_MAX];
    struct slice key = asking_key(a->dedup->cfg, ASKING_SCORES, user, key_text);
    size_t left = a->left, i = next_asked(q, 0);
    while (left > 0) {
        size_t n = left < a->chunk ? left : a->chunk;
        add_asking(once, out);
        redis_words_count(out, 2 + n);
        redis_words_add(out, slice_str(a->single ? "ZSCORE" : "ZMSCORE"));
        redis_words_add(out, key);
        for (left -= n; n > 0; n--, i = next_asked(q, i + 1)) {
            redis_words_add(out, items[i]);
        }
    }
}

static void add_delivered(const struct config *cfg, struct slice user, bool once, struct buf *out)
{
    char key[LEGACY_KEY_MAX], last[24];
    int64_t most = config_now(cfg)->delivered_max;
    snprintf(last, sizeof last, "%" PRId64, (most < READ_THROUGH_DELIVERED ? most : READ_THROUGH_DELIVERED) - 1);
    const struct slice words[] = {slice_str("ZREVRANGE"), asking_key(cfg, ASKING_DELIVERED, user, key), slice_str("0"),
                                  slice_str(last), slice_str("WITHSCORES")};
    add_asking(once, out);
    redis_words_all(out, words, 5);
}

void asking_words(const struct asking *a, enum asking_part part, struct slice user, const struct slice *items,
                  bool once, struct buf *out)
{
    if (part == ASKING_SCORES) {
        add_scores(a, user, items, once, out);
    } else {
        add_delivered(a->dedup->cfg, user, once, out);
    }
}

/* --- replies --- */

static void take_score(struct asking *a, const struct redisReply *reply)
{
    struct read_through_question *q = a->question;
    struct slice score;
    int64_t at_ms;
    char why[LEGACY_WHY];
    const bool hides = q->exposure == NULL || q->exposure->first_month != INT_MAX;
    if (hides && redis_text(reply, &score) && legacy_time_parse(&a->plays, score, &at_ms, why) == LEGACY_TIME_GOOD) {
        q->seen[a->at / 8] |= (uint8_t)(0x80 >> a->at % 8);
    }
    a->at = next_asked(q, a->at + 1);
}

static void take_scores(struct asking *a, const struct redisReply *reply)
{
    size_t n = a->left < a->chunk ? a->left : a->chunk;
    a->left -= n;
    if (a->question == NULL) {
        return;
    }
    if (a->single) {
        take_score(a, reply);
    } else if (redis_count(reply) == n) {
        for (size_t i = 0; i < n; i++) {
            take_score(a, redis_item(reply, i));
        }
    } else {
        a->failed = true;
    }
}

/* Members and scores in turn, newest first. */
static void take_delivered(struct asking *a, const struct redisReply *reply)
{
    struct read_through_question *q = a->question;
    for (size_t i = 0; q != NULL && i + 1 < redis_count(reply) && q->n_delivered < READ_THROUGH_DELIVERED; i += 2) {
        struct slice member, score;
        int64_t at_ms, until_ms;
        char why[LEGACY_WHY];
        if (redis_text(redis_item(reply, i), &member) && redis_text(redis_item(reply, i + 1), &score) &&
            legacy_time_parse(&a->deliveries, score, &at_ms, why) == LEGACY_TIME_GOOD &&
            (q->exposure == NULL || exposure_hides(q->exposure, &at_ms, 1, &until_ms))) {
            q->delivered_ms[q->n_delivered] = at_ms;
            q->delivered[q->n_delivered++] = hash_id(a->dedup->seed, member);
        }
    }
}

void asking_reply(struct asking *a, enum asking_part part, const struct redisReply *reply)
{
    struct slice text;
    a->failed = a->failed || redis_is_error(reply, &text);
    if (part == ASKING_DELIVERED) {
        take_delivered(a, reply);
    } else {
        take_scores(a, reply);
    }
}

/* --- what is seen there --- */

/* The few deliveries in a small table by their hash, since there may be thousands of candidates. */
static void fill_table(const struct read_through_question *q, uint64_t table[TABLE])
{
    memset(table, 0, TABLE * sizeof *table);
    for (size_t i = 0; i < q->n_delivered; i++) {
        size_t at = q->delivered[i] % TABLE;
        while (table[at] != 0) {
            at = (at + 1) % TABLE;
        }
        table[at] = q->delivered[i];
    }
}

static bool in_table(const uint64_t table[TABLE], uint64_t hash)
{
    size_t at = hash % TABLE;
    while (table[at] != 0 && table[at] != hash) {
        at = (at + 1) % TABLE;
    }
    return table[at] != 0;
}

size_t asking_hide(const struct read_through_question *q, const uint64_t *hashes, uint8_t *unseen)
{
    uint64_t table[TABLE];
    size_t hidden = 0;
    fill_table(q, table);
    for (size_t i = next_asked(q, 0); i < q->n; i = next_asked(q, i + 1)) {
        if (is_set(unseen, i) && (is_set(q->seen, i) || (q->n_delivered > 0 && in_table(table, hashes[i])))) {
            unseen[i / 8] &= (uint8_t) ~(0x80 >> i % 8);
            hidden++;
        }
    }
    return hidden;
}
