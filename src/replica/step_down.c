/* What an old primary does last: it says up to where its feed goes, when nothing that it has taken can come behind. */
#include "replica/change_impl.h"
#include "replica/replica.h"
#include "store/feed.h"

/* Users who are being imported are in the feed once they are joined, which may be long after they were taken: behind
 * an import of no user, all of them are. */
static int settle_imports(struct store *store, struct err *err)
{
    struct change_wait w = CHANGE_WAIT_INIT;
    struct store_import no_user = {.call = {.done = change_on_call, .owner = &w}};
    store->ops->import(store, &no_user);
    change_wait(&w);
    return no_user.call.err.code < 0 ? (*err = no_user.call.err).code : 0;
}

/* In the store's order behind all that was taken before: once it is durable, so is that. */
int change_look_last(struct replica *r, struct change *ch, struct err *err)
{
    struct store_position position = {slice_str("stepdown"), (int64_t)ch->term};
    struct store_batch batch = {.positions = &position, .n_positions = 1};
    int rc = settle_imports(r->store, err);
    rc = rc < 0 ? rc : change_record(r->store, &batch, err);
    ch->last = r->store->feed->last(r->store);
    return rc;
}
