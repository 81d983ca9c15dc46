/* Forgets of an old primary whose feed no longer tells what it alone has. What is left of them are tombstones, which
 * know users by their keys and items by their hashes. The new primary still has those users, and so their names: it is
 * asked for the user with the key. There is none: then there is nothing to forget.
 *
 * They are sent in the order in which they happened, and numbered by their place in it: the folder isn't served, so a
 * repetition numbers them alike. They go before the users, since LOAD brings what came after them.
 */
#include <endian.h>
#include <stdlib.h>

#include "base/calendar.h"
#include "base/clock.h"
#include "cli/replica/rejoin_impl.h"
#include "store/codec/user_snapshot.h"

enum { PAGE = 512, NAMES_MAX = 16 };

struct forgets {
    struct rejoining *r;
    struct buf alone; /* struct tombstone each */
    struct arena arena;
    struct slice names[NAMES_MAX]; /* of `key` */
    size_t n_names;
    int64_t key;
    bool has_key;
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory for forgets");
}

/* --- which --- */

/* Whether the new primary knows of it, or of a later one. */
static int is_known_there(struct rejoining *r, const struct tombstone *ours, struct err *err)
{
    int rc = rejoin_theirs_of(r, ours->key, err);
    const struct tombstone *list = (const struct tombstone *)(const void *)r->theirs.of_key.data;
    for (size_t i = 0; rc == 0 && i < r->theirs.of_key.len / sizeof *list; i++) {
        rc = (list[i].item == TOMBSTONE_USER || list[i].item == ours->item) && list[i].at_ms >= ours->at_ms;
    }
    return rc;
}

/* The one that was promoted in this one's place has all up to common_seq. Of another one only its tombstones tell, for
 * as long as they are kept. */
static int is_alone(struct rejoining *r, const struct tombstone *ours, struct err *err)
{
    if (r->parted_from == r->self.node) {
        return ours->id > r->common_seq;
    }
    if (ours->at_ms < month_start_ms(month_of_ms(clock_wall_ms()) - (int)r->cfg.retention)) {
        return 0;
    }
    int known = is_known_there(r, ours, err);
    return known < 0 ? known : !known;
}

static int find_alone(struct forgets *f, struct err *err)
{
    static struct tombstone page[PAGE];
    const struct store_copy_ops *copy = f->r->store->copy;
    struct tombstone after;
    rejoin_theirs_begin(f->r);
    int n = copy->tombstones(f->r->reader, NULL, page, PAGE, err);
    for (; n > 0; n = copy->tombstones(f->r->reader, &after, page, PAGE, err)) {
        for (int i = 0; i < n; i++) {
            int alone = is_alone(f->r, &page[i], err);
            if (alone < 0) {
                return alone;
            }
            if (alone > 0 && buf_add(&f->alone, &page[i], sizeof *page) < 0) {
                return no_memory(err);
            }
        }
        after = page[n - 1];
    }
    return n;
}

static int by_time(const void *a, const void *b)
{
    const struct tombstone *x = a, *y = b;
    return x->id != y->id     ? (x->id < y->id ? -1 : 1)
           : x->key != y->key ? (x->key < y->key ? -1 : 1)
                              : (x->item < y->item ? -1 : x->item > y->item);
}

/* --- who --- */

static int malformed(const struct rejoining *r, struct err *err)
{
    return err_set(err, ERR_VERSION, "%s: the answer to REPLICA USERS can't be read: is it another version?",
                   r->address);
}

/* The users with the key there: mostly one, or none. */
static int find_names(struct forgets *f, int64_t key, struct err *err)
{
    struct rejoining *r = f->r;
    char text[NUMBER_TEXT];
    const struct slice words[] = {slice_str("REPLICA"), slice_str("USERS"), number_text(key, text), slice_str("1")};
    const struct reply *reply;
    if (f->has_key && f->key == key) {
        return 0;
    }
    f->key = key;
    f->has_key = true;
    f->n_names = 0;
    arena_reset(&f->arena);
    int rc = other_node_call(&r->to, words, sizeof words / sizeof *words, &reply, err);
    if (rc < 0) {
        return rc;
    }
    if (reply->kind != REPLY_ARRAY || reply->n == 0) {
        return malformed(r, err);
    }
    for (size_t i = 1; i < reply->n; i++) {
        struct user_snapshot p;
        struct slice snapshot = reply->items[i].text;
        if (reply->items[i].kind != REPLY_TEXT ||
            user_snapshot_decode(snapshot.data, snapshot.len, &f->arena, &p, err) < 0) {
            return malformed(r, err);
        }
        if (p.key == key && f->n_names < NAMES_MAX) {
            const char *copy = arena_copy(&f->arena, p.user.data, p.user.len);
            if (copy == NULL) {
                return no_memory(err);
            }
            f->names[f->n_names++] = slice_of(copy, p.user.len);
        }
    }
    return 0;
}

static int send_one(struct forgets *f, const struct tombstone *t, uint64_t number, struct err *err)
{
    uint64_t hash = htole64(t->item);
    int rc = find_names(f, t->key, err);
    if (rc < 0 || f->n_names == 0) {
        return rc;
    }
    struct feed_event event = {.seq = number,
                               .kind = t->item == TOMBSTONE_USER ? FEED_FORGET : FEED_UNSEE_HASH,
                               .user = f->names[0],
                               .at_ms = t->at_ms,
                               .recorded_ms = t->at_ms};
    if (event.kind == FEED_UNSEE_HASH) {
        event.item = slice_of((const char *)&hash, sizeof hash);
    }
    if (f->n_names > 1 || (!f->r->keeps && f->r->policy == FORGETS_LEAVE)) { /* who share a key can't be forgotten */
        rejoin_leave(f->r, &event);
        return 0;
    }
    return rejoin_put(f->r, &event, err);
}

int rejoin_send_forgets(struct rejoining *r, struct err *err)
{
    struct forgets f = {.r = r};
    const struct slice flush[] = {slice_str("RING"), slice_str("FLUSH")};
    const struct reply *reply;
    int rc = find_alone(&f, err);
    struct tombstone *list = (struct tombstone *)(void *)f.alone.data;
    size_t n = f.alone.len / sizeof *list;
    if (rc == 0 && n > 0) {
        qsort(list, n, sizeof *list, by_time);
        rc = other_node_call(&r->to, flush, 2, &reply, err); /* names are told of history alone */
    }
    r->forgets = true;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = send_one(&f, &list[i], i + 1, err);
    }
    rc = rc < 0 ? rc : rejoin_send(r, err);
    r->forgets = false;
    arena_free(&f.arena);
    buf_free(&f.alone);
    return rc;
}
