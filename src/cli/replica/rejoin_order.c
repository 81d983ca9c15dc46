/* The order of this folder's own events is that of their seqs, whatever times they state. The new primary gets them in
 * runs, and goes by times from one run to the next: so a play that a later forget of this folder has ended is not sent,
 * and one behind a forget is sent with a time behind that, too. */
#include <stdlib.h>

#include "base/hash.h"
#include "cli/replica/rejoin_impl.h"

enum { WHOLE = 0 }; /* instead of an item's hash */

struct own_forget {
    int64_t key;
    uint64_t hash, seq;
    int64_t at_ms;
};

int rejoin_order_note(struct rejoining *r, struct feed_event *e, struct err *err)
{
    struct own_forget f = {hash_user_key(r->to.seed, e->user), WHOLE, e->seq, e->at_ms};
    if (e->kind != FEED_FORGET && e->kind != FEED_UNSEE && e->kind != FEED_UNSEE_HASH) {
        return 0;
    }
    if (e->kind != FEED_FORGET) {
        f.hash = e->kind == FEED_UNSEE ? hash_id(r->to.seed, e->item) : feed_item_hash(e->item);
    }
    return buf_add(&r->own_forgets, &f, sizeof f) < 0 ? err_set(err, ERR_NOMEM, "out of memory for forgets") : 0;
}

static int by_key(const void *a, const void *b)
{
    const struct own_forget *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

void rejoin_order_ready(struct rejoining *r)
{
    if (r->own_forgets.len > 0) {
        qsort(r->own_forgets.data, r->own_forgets.len / sizeof(struct own_forget), sizeof(struct own_forget), by_key);
    }
}

bool rejoin_order_place(const struct rejoining *r, struct feed_event *e)
{
    const struct own_forget *list = (const struct own_forget *)(const void *)r->own_forgets.data;
    int64_t key = hash_user_key(r->to.seed, e->user);
    uint64_t hash = hash_id(r->to.seed, e->item);
    size_t low = 0, n = r->own_forgets.len / sizeof *list;
    for (size_t high = n; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (list[middle].key < key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < n && list[low].key == key; low++) {
        if (list[low].hash != WHOLE && list[low].hash != hash) {
            continue;
        }
        if (list[low].seq > e->seq) {
            return false;
        }
        e->at_ms = list[low].at_ms >= e->at_ms ? list[low].at_ms + 1 : e->at_ms;
    }
    return true;
}
