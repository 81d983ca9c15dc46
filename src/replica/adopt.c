#include "replica/adopt.h"

#include <inttypes.h>
#include <stdio.h>

#include "replica/change.h"
#include "replica/clone_mark.h"
#include "store/feed.h"

/* Exactly what this node had when it was promoted: also if it had it so long ago that the mark is gone. */
static bool parted_there(struct store *store, const struct feed_cursor *followed, uint64_t *from)
{
    struct change_parting p;
    if (!change_parting(store, &p) || p.node != followed->node || p.common_seq != followed->seq) {
        return false;
    }
    *from = p.promoted_at_seq;
    return true;
}

int adopt_find(struct store *store, struct store_reader *reader, uint64_t replica, const struct feed_cursor *followed,
               uint64_t *from, struct err *err)
{
    char name[FEED_NAME_MAX], prefix[CLONE_MARK_TEXT];
    struct feed_state queue;
    struct feed_cursor own;
    snprintf(name, sizeof name, FEED_REMOTE "%016" PRIx64, replica);
    feed_state_of(store, name, &queue);
    if (queue.name[0] == '\0' || queue.place == FEED_LOST) {
        return err_set(err, ERR_NOTFOUND, "nothing was kept here for this replica");
    }
    int rc = cursor_find(store, reader, followed->node, &own, err);
    if (rc <= 0) {
        return rc < 0 ? rc : err_set(err, ERR_NOTFOUND, "this node never followed %016" PRIx64, followed->node);
    }
    if (followed->seq > own.seq) {
        return err_set(err, ERR_RANGE,
                       "this replica has %" PRIu64 " events of %016" PRIx64
                       " that this node, which was promoted, never got: either promote the replica, or clone it again "
                       "without them",
                       followed->seq - own.seq, followed->node);
    }
    if (!parted_there(store, followed, from)) {
        int len = snprintf(prefix, sizeof prefix, CLONE_FEED_PREFIX "%016" PRIx64 ":", followed->node);
        rc = store->feed->mark(reader, slice_of(prefix, (size_t)len), (int64_t)followed->seq, from, err);
        if (rc <= 0) {
            return rc < 0 ? rc
                          : err_set(err, ERR_NOTFOUND, "what this replica has last of %016" PRIx64 " was too long ago",
                                    followed->node);
        }
    }
    feed_state_of(store, name, &queue); /* after the reading: it may go meanwhile */
    return *from >= queue.held ? 0 : err_set(err, ERR_NOTFOUND, "what comes next for this replica is no longer kept");
}
