#include "legacy/repeat.h"

#include <inttypes.h>
#include <stdio.h>

#include "legacy/parse.h"

enum {
    PAIRS_MAX = 7, /* score and item, of one command */
    SCORE_TEXT = 24,
    PASSES_MAX = 5,
};

static struct slice key_of(const struct repeat *r, const struct repeat_sent *sent, char text[LEGACY_KEY_MAX])
{
    const struct config *cfg = r->cfg;
    return legacy_key_make(sent->delivered ? cfg->legacy_delivered_key : cfg->legacy_played_key,
                           r->rows[sent->first].user, text);
}

static int send_words(struct repeat *r, const struct repeat_sent *sent, const struct slice *words, size_t n,
                      struct err *err)
{
    r->sent[r->n_sent++] = *sent;
    return redis_send(r->redis, words, n, err);
}

/* So many plays or deliveries of one user. */
static int send_items(struct repeat *r, int first, int n, struct err *err)
{
    const struct repeat_sent sent = {first, n, r->rows[first].kind == FEED_DELIVERY};
    struct slice words[2 + 2 * PAIRS_MAX];
    char scores[PAIRS_MAX][SCORE_TEXT], text[LEGACY_KEY_MAX];
    struct slice key = key_of(r, &sent, text);
    words[0] = slice_str("ZADD");
    words[1] = key;
    for (int i = 0; i < n; i++) {
        int64_t at = r->rows[first + i].at_ms;
        snprintf(scores[i], SCORE_TEXT, "%" PRId64, r->cfg->legacy_score == SCORE_S ? at / 1000 : at);
        words[2 + 2 * i] = slice_str(scores[i]);
        words[3 + 2 * i] = r->rows[first + i].item;
    }
    int rc = send_words(r, &sent, words, (size_t)(2 + 2 * n), err);
    if (rc == 0 && sent.delivered) {
        char last[SCORE_TEXT];
        snprintf(last, sizeof last, "%" PRId64, -(config_now(r->cfg)->delivered_max + 1));
        const struct slice trim[] = {slice_str("ZREMRANGEBYRANK"), key, slice_str("0"), slice_str(last)};
        rc = send_words(r, &(struct repeat_sent){first, 0, true}, trim, 4, err);
    }
    return rc;
}

static int send_forget(struct repeat *r, int at, struct err *err)
{
    const struct feed_event *row = &r->rows[at];
    bool item = row->kind == FEED_UNSEE;
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        const struct repeat_sent sent = {at, i == 0, i == 1};
        if (sent.delivered && r->cfg->legacy_delivered_key[0] == '\0') {
            continue;
        }
        char key[LEGACY_KEY_MAX];
        const struct slice words[] = {slice_str(item ? "ZREM" : "DEL"), key_of(r, &sent, key), row->item};
        rc = send_words(r, &sent, words, item ? 3 : 2, err);
    }
    return rc;
}

static int send_rows(struct repeat *r, int n, struct err *err)
{
    int rc = 0;
    r->n_sent = 0;
    for (int i = 0, next; i < n && rc == 0; i = next) {
        const struct feed_event *row = &r->rows[i];
        next = i + 1;
        if (row->kind == FEED_FORGET || row->kind == FEED_UNSEE) {
            rc = send_forget(r, i, err);
        } else if (row->kind == FEED_UNSEE_HASH) { /* an old primary knew no more of it (unseen rejoin) */
            char key[LEGACY_KEY_MAX];
            r->refused(r->owner, key_of(r, &(struct repeat_sent){i, 1, false}, key), 1,
                       slice_str("an item was forgotten of which only the hash is known"));
        } else if (row->kind == FEED_PLAY || (row->kind == FEED_DELIVERY && r->cfg->legacy_delivered_key[0] != '\0')) {
            while (next < n && next - i < PAIRS_MAX && r->rows[next].kind == row->kind &&
                   slice_eq(r->rows[next].user, row->user)) {
                next++;
            }
            rc = send_items(r, i, next - i, err);
        }
    }
    return rc;
}

/* All replies are read, also behind the first error, so that the connection stays good. */
static int read_replies(struct repeat *r, struct err *err)
{
    int result = 0;
    for (int i = 0; i < r->n_sent; i++) {
        struct redisReply *reply;
        struct slice text;
        int rc = redis_read(r->redis, &reply, err);
        if (rc < 0) {
            return rc;
        }
        if (redis_is_error(reply, &text)) {
            if (!legacy_refuses_key(text)) {
                result = result < 0
                             ? result
                             : err_set(err, ERR_BUSY, "%s: %.*s", config_legacy(r->cfg), (int)text.len, text.data);
            } else if (result == 0) {
                char key[LEGACY_KEY_MAX];
                r->refused(r->owner, key_of(r, &r->sent[i], key), r->sent[i].n, text);
            }
        }
        redis_free(reply);
    }
    return result;
}

static uint64_t count_moved(const struct repeat *r)
{
    struct redis_cluster_figures figures;
    redis_cluster_figures(r->redis, &figures);
    return figures.moved;
}

/* A command that was sent to another node may have come behind later ones about the same key, so all are sent again.
 * What ASK sends elsewhere keeps its order: once a key is away from the node that a slot leaves, it doesn't come back.
 */
int repeat_rows(struct repeat *r, int n, struct err *err)
{
    for (int pass = 0; pass < PASSES_MAX; pass++) {
        uint64_t moved = count_moved(r);
        int rc = send_rows(r, n, err);
        if (rc == 0) {
            rc = read_replies(r, err);
        }
        if (rc < 0 || count_moved(r) == moved) {
            return rc;
        }
    }
    return err_set(err, ERR_BUSY, "%s: its slots are on the move", config_legacy(r->cfg));
}
