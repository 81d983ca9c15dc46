/* A round that an end of the server interrupted goes on where it was: what of it lies there is not sent again.
 *
 * Parts know nothing of the start that wrote them. Each is read from history, which has had all events up to FROM since
 * before the first of them, and may know of any event up to its TO. So those that lie there and those that are read now
 * make one round, if nothing has happened since that a round must begin behind (begins() in round.c), the events from
 * FROM on are all there, and the folder has not gone back to before one of the parts. */
#include "archive/archive_impl.h"

#include <inttypes.h>

#include "archive/round_end.h"
#include "base/hash.h"
#include "base/log.h"

/* Whether a part is what a round would have written behind the parts before it. */
static bool follows(struct archive *a, const struct round *r, const struct catalog_shard *s,
                    const struct object_head *h)
{
    struct err err;
    bool rolled_back = false;
    return catalog_check_shard(s, h, &err) == 0 && h->shard == r->shard && h->from == r->from && h->to >= r->to &&
           h->key_from == r->key && h->key == a->keys.now.id && h->seed == hash_seed_fingerprint(a->dedup->seed) &&
           a->store->node->knows(a->store, h->node, h->run, h->to, &rolled_back) == 1;
}

/* 1: it does; 0: the round can't go on; or the depot's error. */
static int take_part(struct archive *a, const struct catalog_shard *s, struct round *r, struct err *err)
{
    char name[DEPOT_NAME_MAX];
    struct object_head head;
    buf_clear(&a->page);
    heartbeat_excuse(&a->task.heartbeat);
    int rc = a->depot->ops->get(a->depot, catalog_shard_name(s, name), OBJECT_HEAD_BYTES, &a->page, err);
    heartbeat_now(&a->task.heartbeat);
    if (rc < 0) {
        return rc == ERR_NOTFOUND ? 0 : rc;
    }
    if (object_look(name, buf_slice(&a->page), &head, err) < 0 || !follows(a, r, s, &head)) {
        return 0;
    }
    const struct round_shard line = {s->shard, s->from, s->to, s->bytes, object_checksum(buf_slice(&a->page))};
    if (round_end_shard(&r->ends, &line) < 0) {
        return err_set(err, ERR_NOMEM, "out of memory for a round of the archive");
    }
    archive_round_pass(r, &head, s->bytes);
    return 1;
}

/* The cursor may be that of some events ago, for it is saved now and then: segments are written again from there. One
 * of them may have events from before and behind FROM, so a round that gives up what was before it begins again. */
static bool may_go_on(const struct archive *a, const struct catalog *c, const struct catalog_round *r)
{
    return !r->ended && r->shards > 0 && r->from + 1 >= a->key_from && r->from >= a->lacks_to && a->purge_to == 0 &&
           catalog_reach(c, r->node, r->from) >= a->cursor;
}

int archive_resume(struct archive *a, const struct catalog *c, struct err *err)
{
    const struct catalog_round *newest = c->n_rounds > 0 ? &c->rounds[c->n_rounds - 1] : NULL;
    archive_round_drop(a);
    if (newest == NULL || !may_go_on(a, c, newest)) {
        return 0;
    }
    size_t n;
    const struct catalog_shard *shards = catalog_shards(c, newest->node, newest->round, &n);
    struct round *r = &a->round;
    r->number = newest->round;
    r->from = r->to = newest->from;
    r->phase = ROUND_HEAD;
    r->key = INT64_MIN;
    int rc = 1;
    for (size_t i = 0; i < n && rc == 1; i++) {
        rc = take_part(a, &shards[i], r, err);
    }
    if (rc != 1) {
        archive_round_drop(a);
        return rc;
    }
    archive_round_go_on(a);
    log_info("a round of the archive goes on", "round=%" PRIu32 " parts=%" PRIu32 " from=%" PRIu64 " spread=%d",
             r->number, r->shard, r->from, r->spread);
    return 0;
}
