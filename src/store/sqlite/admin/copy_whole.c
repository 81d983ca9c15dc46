/* All that is known of a user, staged or stored, as a snapshot that is true as of a place in the feed.
 *
 * In this order: the newest place; whether something is being forgotten; what is staged; what is stored. A row that is
 * merged meanwhile is in one of both or in both, and unites with itself. A forget that begins later is behind the
 * place.
 */
#include "store/sqlite/admin/copy.h"

#include <limits.h>

#include "base/calendar.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/codec/user_snapshot.h"
#include "store/sqlite/read/reader.h"
#include "store/sqlite/staging/feed.h"
#include "store/sqlite/staging/staging.h"
#include "store/sqlite/state.h"

static int out_of_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while a user is copied");
}

/* Staged deliveries, which are among r->out's, with those of history's blob, as one blob. */
static int unite_deliveries(struct store_reader *r, struct user_snapshot *p, struct buf *blob, struct err *err)
{
    struct delivered *all = &r->out.deliveries, stored = {0};
    int result = 0;
    if (all->n == 0) {
        return 0;
    }
    if (p->deliveries.len > 0) {
        result =
            delivered_unpack(&r->codec, p->deliveries.data, p->deliveries.len, r->store->seed, &r->arena, &stored, err);
    }
    if (result == 0 && delivered_add(all, stored.list, stored.n) < 0) {
        result = out_of_memory(err);
    }
    if (result == 0) {
        delivered_unite(all, r->out.deliveries_max);
        result = delivered_pack(&r->codec, all, blob) < 0 ? out_of_memory(err) : 0;
        p->deliveries = slice_of((const char *)blob->data, blob->len);
    }
    return result;
}

/* An import drops the deliveries of a user whose last month is too old. */
static void note_month(struct user_snapshot *p, int month)
{
    p->last_month = month > p->last_month ? month : p->last_month;
}

/* What history has of the user, or nothing, as a snapshot; then what is staged goes into it. */
static int add_staged(struct store_reader *r, struct slice user, int64_t key, bool stored, const struct buf *history,
                      struct buf *out, struct err *err)
{
    struct user_snapshot p = {.key = key, .user = user};
    struct buf blob = {0};
    const struct delivered *sent = &r->out.deliveries;
    int result = stored ? user_snapshot_decode(history->data, history->len, &r->arena, &p, err) : 0;
    struct store_play *plays = r->out.plays;
    if (result == 0 && p.n_plays > 0) { /* of history alone there are none */
        result = err_set(err, ERR_CORRUPT, "a user's copy of history has staged plays");
    }
    if (result == 0) {
        p.n_plays = user_snapshot_sort_plays(plays, r->out.n_plays);
        p.plays = plays;
        note_month(&p, p.n_plays > 0 ? plays[p.n_plays - 1].month : 0);
        result = unite_deliveries(r, &p, &blob, err);
    }
    if (result == 0 && sent->n > 0) {
        note_month(&p, month_of_ms(delivered_ms(sent->list[0].stamp)));
    }
    if (result == 0 && user_snapshot_encode(&p, out) < 0) {
        result = out_of_memory(err);
    }
    buf_free(&blob);
    return result;
}

int copy_whole(struct store_reader *r, struct slice user, struct buf *out, uint64_t *as_of, struct err *err)
{
    struct sqlite_store *s = r->store;
    int64_t key = hash_user_key(s->seed, user);
    struct buf history = {0};
    *as_of = feed_newest(s);
    if (stager_forget_is_under_way(s, key)) { /* its event may be counted, and what it erases still be there */
        return err_set(err, ERR_BUSY, "user %s is being forgotten", log_quote(user));
    }
    staged_out_clear(&r->out);
    arena_reset(&r->arena);
    r->out.plays_max = 0;
    int known = reader_staged(r, key, user, INT_MIN, err);
    int stored = known < 0 ? known : copy_user(r, user, &history, err);
    int result = stored < 0 ? stored : 0;
    if (result == 0 && (known > 0 || stored > 0)) {
        result = add_staged(r, user, key, stored > 0, &history, out, err);
        result = result < 0 ? result : 1;
    }
    buf_free(&history);
    return result;
}
