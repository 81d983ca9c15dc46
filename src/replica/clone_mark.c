#include "replica/clone_mark.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "store/node.h"
#include "store/positions.h"

const char *clone_mark_name(uint64_t node, char out[CLONE_MARK_TEXT])
{
    snprintf(out, CLONE_MARK_TEXT, CLONE_MARK_PREFIX "%016" PRIx64, node);
    return out;
}

const char *clone_feed_name(uint64_t node, uint64_t run, char out[CLONE_MARK_TEXT])
{
    snprintf(out, CLONE_MARK_TEXT, CLONE_FEED_PREFIX "%016" PRIx64 ":%016" PRIx64, node, run);
    return out;
}

bool clone_is_own(struct slice source)
{
    static const char *const prefixes[] = {
        CLONE_FEED_PREFIX, CLONE_MARK_PREFIX, "promoted:", "peer:", "archive:", "restore:"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t len = strlen(prefixes[i]);
        if (source.len >= len && memcmp(source.data, prefixes[i], len) == 0) {
            return true;
        }
    }
    return false;
}

int clone_mark_check(struct store *store, const char *folder, struct err *err)
{
    struct store_node node;
    char name[CLONE_MARK_TEXT];
    int64_t next;
    if (store->node == NULL || store->positions == NULL) {
        return 0;
    }
    if (store->positions->find(store, slice_str(RESTORE_TO), &next) == 1 &&
        (store->positions->find(store, slice_str(RESTORE_ENDED), &next) == 0 || next != 1)) {
        return err_set(
            err, ERR_INVALID,
            "the restore into the data folder %s has not ended: run the same unseen restore again, it goes on "
            "where it was",
            folder);
    }
    store->node->get(store, &node);
    if (node.role != NODE_REPLICA ||
        store->positions->find(store, slice_str(clone_mark_name(node.leader, name)), &next) == 0 ||
        next == CLONE_MARK_ENDED) {
        return 0;
    }
    return err_set(err, ERR_INVALID,
                   "the clone into the data folder %s has not ended: run unseen clone %s --data %s again, it goes on "
                   "where it was",
                   folder, node.address, folder);
}
