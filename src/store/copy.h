/* The capability `copy`: all that another folder needs to become the same as this one, page by page, while this one
 * works.
 *
 * Users come from history alone. So a copy first makes sure of the feed from now on (feed->enlist()), then has
 * everything that is staged flushed (ring->flush()), then takes positions and tombstones, then the users, and then
 * follows the feed: what was recorded after it was enlisted comes there in its order, and doing it again to a
 * user who has it already ends alike, since of each item the last word counts.
 */
#ifndef UNSEEN_STORE_COPY_H
#define UNSEEN_STORE_COPY_H

#include "store/store.h"
#include "store/tombstones.h"

struct store_copy_users {
    int64_t from;    /* in: users with this key and higher ones; INT64_MIN: all */
    int64_t next;    /* out: go on from here ... */
    bool ended;      /* ... unless there are no more */
    size_t n;        /* snapshots that were appended */
    struct buf ends; /* size_t each: where one ends in the bytes */
};

struct store_adopt;

/* A reader belongs to one thread at a time. ERR_CORRUPT, ERR_IO, ERR_NOMEM. */
struct store_copy_ops {
    /* Appends snapshots (store/codec/user_snapshot.h), all users of a key at once, until out has that many bytes: at
     * least one key's. Blocks while it reads. */
    int (*users)(struct store_reader *reader, struct store_copy_users *page, struct buf *out, size_t bytes,
                 struct err *err);
    /* That of one user, who alone comes with the forgets of their items: 1; 0: history has nothing of them. */
    int (*user)(struct store_reader *reader, struct slice user, struct buf *out, struct err *err);
    /* The same with what is staged: all of the user as of *as_of, a place in the feed, and maybe some of what came
     * later. What is not merged yet are plays; deliveries are one list. ERR_BUSY: a forget of theirs is under way. */
    int (*whole)(struct store_reader *reader, struct slice user, struct buf *out, uint64_t *as_of, struct err *err);
    /* Tombstones behind (key, item) as signed numbers, in their order, at most max; returns how many. after NULL:
     * from the first. */
    int (*tombstones)(struct store_reader *reader, const struct tombstone *after, struct tombstone *out, int max,
                      struct err *err);
    /* Positions (store/positions.h) behind a source, in its order; NULL: from the first. The names in the arena. */
    int (*positions)(struct store_reader *reader, const struct slice *after, struct store_position *out, int max,
                     struct arena *arena, struct err *err);
    /* Takes over tombstones of the folder that this one is a copy of; nothing is erased by them. */
    void (*adopt)(struct store *s, struct store_adopt *adopt);
};

struct store_adopt {
    struct store_call call; /* first */
    const struct tombstone *list;
    size_t n;
};

/* Each position whose source begins with that prefix, in their order, until each() says that it is enough; the slice is
 * the callee's until it returns. A store without this capability has none. Blocks. */
int copy_positions_each(struct store *s, struct store_reader *reader, struct slice prefix,
                        bool (*each)(void *arg, const struct store_position *position), void *arg, struct err *err);

#endif
