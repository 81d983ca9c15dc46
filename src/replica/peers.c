#include "replica/peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/backoff.h"
#include "replica/change_impl.h"
#include "store/copy.h"
#include "store/positions.h"

enum { DIGITS = NODE_TEXT - 1, PREFIX = 5 + DIGITS + 1, GONE = -1 };

_Static_assert(PREFIX + DIGITS + 1 + NODE_ADDRESS_TEXT <= STORE_SOURCE_MAX, "a peer is a source of positions");

static uint64_t own_node(struct store *store)
{
    struct store_node self;
    store->node->get(store, &self);
    return self.node;
}

/* --- a position --- */

static struct slice write_source(uint64_t own, const struct peer *p, char out[STORE_SOURCE_MAX])
{
    int n = snprintf(out, STORE_SOURCE_MAX, "peer:%016" PRIx64 ":%016" PRIx64 ":%s", own, p->node, p->address);
    return slice_of(out, (size_t)n);
}

static int64_t value_of(const struct peer *p)
{
    return (int64_t)(p->heard << 1 | p->named);
}

static bool read_position(const struct store_position *position, struct peer *out)
{
    struct slice s = position->source;
    const size_t fixed = PREFIX + DIGITS + 1;
    if (s.len <= fixed || s.len - fixed >= NODE_ADDRESS_TEXT || s.data[fixed - 1] != ':' || position->next < 0) {
        return false;
    }
    *out = (struct peer){.heard = (uint64_t)position->next >> 1, .named = position->next & 1};
    (void)change_read_id(slice_of(s.data + PREFIX, DIGITS), &out->node); /* or it is 0, not known */
    memcpy(out->address, s.data + fixed, s.len - fixed);
    return true;
}

/* --- reading --- */

static bool add(void *arg, const struct store_position *position)
{
    struct peers *peers = arg;
    peers->n += read_position(position, &peers->list[peers->n]);
    return peers->n < PEERS_MAX;
}

int peers_load(struct store *store, struct peers *peers, struct err *err)
{
    struct store_reader *reader;
    char prefix[PREFIX + 1];
    peers->n = 0;
    if (store->copy == NULL || store->positions == NULL || store->node == NULL) {
        return 0;
    }
    int rc = store->ops->reader_open(store, &reader, err);
    if (rc == 0) {
        snprintf(prefix, sizeof prefix, "peer:%016" PRIx64 ":", own_node(store));
        rc = copy_positions_each(store, reader, slice_of(prefix, PREFIX), add, peers, err);
        store->ops->reader_close(reader);
    }
    return rc;
}

/* --- writing --- */

static bool is_same(const struct peer *a, const struct peer *b)
{
    return (a->node != 0 && a->node == b->node) || strcmp(a->address, b->address) == 0;
}

static int furthest(const struct peers *peers)
{
    int at = 0;
    for (int i = 1; i < peers->n; i++) {
        at = peers->list[i].heard > peers->list[at].heard ? i : at;
    }
    return at;
}

/* What is said of the peer now, with what was known of it; `gone` are the places that it takes. */
static struct peer unite(const struct peers *peers, const struct peer *peer, int gone[PEERS_MAX], int *n_gone)
{
    struct peer united = *peer;
    *n_gone = 0;
    for (int i = 0; i < peers->n; i++) {
        const struct peer *known = &peers->list[i];
        if (is_same(known, peer)) {
            bool same_node = known->node == peer->node || peer->node == 0 || known->node == 0;
            united.node = united.node != 0 ? united.node : known->node;
            united.heard = same_node && known->heard > united.heard ? known->heard : united.heard;
            united.named = united.named || (known->named && strcmp(known->address, peer->address) == 0);
            gone[(*n_gone)++] = i;
        }
    }
    if (*n_gone == 0 && peers->n == PEERS_MAX) {
        gone[(*n_gone)++] = furthest(peers);
    }
    return united;
}

/* In one transaction; then the list is the same. `now` is NULL: nothing comes in their place. */
static int replace(struct store *store, struct peers *peers, const int *gone, int n_gone, const struct peer *now,
                   struct err *err)
{
    char texts[PEERS_MAX + 1][STORE_SOURCE_MAX];
    struct store_position positions[PEERS_MAX + 1];
    const uint64_t own = own_node(store);
    int n = n_gone;
    for (int i = 0; i < n_gone; i++) {
        positions[i] = (struct store_position){write_source(own, &peers->list[gone[i]], texts[i]), GONE};
    }
    if (now != NULL) {
        positions[n++] = (struct store_position){write_source(own, now, texts[n_gone]), value_of(now)};
    }
    for (int i = 0; i < n_gone && now != NULL; i++) { /* the same source twice would be in no order */
        if (slice_eq(positions[i].source, positions[n_gone].source)) {
            positions[i] = positions[--n];
            break;
        }
    }
    struct store_batch batch = {.positions = positions, .n_positions = (size_t)n};
    int rc = n > 0 ? change_record(store, &batch, err) : 0;
    if (rc == 0) {
        for (int i = n_gone - 1; i >= 0; i--) {
            peers->list[gone[i]] = peers->list[--peers->n];
        }
        if (now != NULL) {
            peers->list[peers->n++] = *now;
        }
    }
    return rc;
}

int peers_note(struct store *store, struct peers *peers, const struct peer *peer, struct err *err)
{
    int gone[PEERS_MAX], n_gone;
    const struct peer now = unite(peers, peer, gone, &n_gone);
    if (n_gone == 1) {
        const struct peer *known = &peers->list[gone[0]];
        if (known->node == now.node && known->heard == now.heard && known->named == now.named &&
            strcmp(known->address, now.address) == 0) {
            return 0;
        }
    }
    return replace(store, peers, gone, n_gone, &now, err);
}

int peers_drop(struct store *store, struct peers *peers, const struct peer *peer, struct err *err)
{
    int gone[PEERS_MAX], n_gone = 0;
    for (int i = 0; i < peers->n; i++) {
        if (is_same(&peers->list[i], peer)) {
            gone[n_gone++] = i;
        }
    }
    return replace(store, peers, gone, n_gone, NULL, err);
}

/* --- when to try one --- */

bool peers_tried(struct peers *peers, const struct peer *peer, bool answered, int64_t now_us)
{
    bool rare = false;
    for (int i = 0; i < peers->n; i++) {
        struct peer *p = &peers->list[i];
        if (is_same(p, peer)) {
            int64_t before = p->delay_us;
            p->delay_us = answered ? 0 : backoff_next(before, PEERS_FIRST_US, PEERS_LAST_US);
            p->due_us = answered ? 0 : now_us + p->delay_us;
            rare = rare || (p->delay_us == PEERS_LAST_US && before != PEERS_LAST_US);
        }
    }
    return rare;
}

void peers_try_all(struct peers *peers)
{
    for (int i = 0; i < peers->n; i++) {
        peers->list[i].delay_us = peers->list[i].due_us = 0;
    }
}
