/* The feed: the ordered, durable list of what was recorded here, for those who carry it elsewhere. A capability of a
 * store (store->feed).
 *
 * An event is committed with the write itself, and only while there is a consumer. A consumer has a name and a cursor
 * that outlives restarts: it reads what lies behind the cursor, in order, and says how far it is done. Events go once
 * every consumer is past them. One that falls behind further than its limit, or that is absent while something is
 * recorded, misses events: from the first one on it is lost, durably, until the consumer accepts that (reset), having
 * brought in what is missing in another way.
 *
 * A consumer is remembered from the first event that is kept for it. It has to listen in each run before anything is
 * recorded, as the mirror does (src/legacy/mirror.h). A remote one, whose name begins with FEED_REMOTE or is
 * FEED_FRONT or FEED_ARCHIVE, is on another machine: it is enlisted once, and from then on the store listens in its
 * place, in each run and in whatever program opens the folder, up to feed_max. What a remote consumer has done is kept
 * for FEED_HOLD_MS more, as far as half of feed_max goes: it may go back to an older state.
 */
#ifndef UNSEEN_STORE_FEED_H
#define UNSEEN_STORE_FEED_H

#include <endian.h>
#include <string.h>

#include "store/grouped.h"
#include "store/store.h"

enum {
    FEED_CONSUMERS_MAX = 16,
    FEED_NAME_MAX = 32, /* with its end */
    FEED_HOLD_MS = 10 * 60 * 1000,
};
#define FEED_REMOTE "replica:" /* then the node, 16 hex digits */
#define FEED_FRONT "front"     /* a remote one, too: the second tier in a Redis (src/front/) */
#define FEED_ARCHIVE "archive" /* and so is this: the archive in a folder or bucket (src/archive/) */

enum feed_kind {
    FEED_PLAY = STORE_PLAY,
    FEED_DELIVERY = STORE_DELIVERY,
    FEED_FORGET, /* a user */
    FEED_UNSEE,  /* an item of a user */
    FEED_USER,   /* more is known of a user than the feed says: an import, LOAD, or a migration brought it. A consumer
                  * takes the user's state again (store/copy.h) */
    FEED_OFFSET, /* user: a source (store/positions.h), at_ms: its position, committed behind the events before it. Of
                  * a node that this one follows, "feed:NODE:RUN", it says which of its events these are */
    FEED_UNSEE_HASH, /* FEED_UNSEE of which only the item's hash is known: `item` is that, see feed_item_hash() */
    FEED_POOL,       /* user: a pool (store/pools.h), which was set, added to or dropped. A consumer takes it again */
    FEED_GROUPED = GROUPED_KIND, /* as it is stored and sent: a FEED_DELIVERY with a group. An event that was read is
                                  * never of it */
    FEED_KINDS,
};

struct feed_event {
    uint64_t seq; /* the row id: higher is later */
    enum feed_kind kind;
    struct slice user, item; /* in the arena that was given; item: of plays, deliveries and what is un-seen */
    int64_t at_ms;           /* when it happened, as its writer said */
    int64_t recorded_ms;     /* wall time of its commit */
    uint64_t group;          /* of a delivery: its hash; 0: none */
};

/* The item of a FEED_UNSEE_HASH: 8 bytes, little endian. */
enum { FEED_HASH_BYTES = 8 };
static inline uint64_t feed_item_hash(struct slice item)
{
    uint64_t hash = 0;
    memcpy(&hash, item.data, item.len == FEED_HASH_BYTES ? FEED_HASH_BYTES : 0);
    return le64toh(hash);
}

/* What an event counts for against a limit: about what it takes of the file. */
static inline uint64_t feed_event_bytes(struct slice user, struct slice item, uint64_t group)
{
    return 24 + user.len + item.len + (group != 0 ? GROUPED_TEXT : 0);
}

struct feed_consumer {
    const char *name;
    uint64_t (*limit)(const struct config *live); /* bytes that may wait; beyond it, events are left out */
    void (*wake)(
        void *arg); /* something waits that wasn't there before; must not call the store. NULL: no thread is woken */
    void *arg;
};

enum feed_place { FEED_IN_STEP, FEED_BEHIND, FEED_LOST, FEED_PLACES };
const char *feed_place_name(enum feed_place place); /* "in step", "behind", "lost" */

struct feed_state {
    char name[FEED_NAME_MAX];
    enum feed_place place;
    int64_t since_ms;       /* lost: since the first event it misses; behind: what waits first was recorded then */
    bool listens;           /* in this run */
    uint64_t cursor, last;  /* all up to `cursor` is done; the newest event of all is `last` */
    uint64_t held;          /* it may go back to here: a remote one, for a while */
    uint64_t events, bytes; /* that wait */
    uint64_t limit;         /* 0: it doesn't listen */
    int64_t behind_ms;      /* for how long the oldest of them has waited */
    int64_t lost_ms;        /* 0: it isn't lost */
    uint64_t left_out;      /* events, since then, while it listened */
};

struct feed_reset {
    struct store_call call;
    const char *consumer;
};

struct feed_enlist {
    struct store_call call;
    const char *consumer; /* the caller's until done(); of a remote one, or ERR_INVALID */
    uint64_t cursor;
};

/* Any thread, but a reader belongs to one thread at a time. */
struct store_feed_ops {
    /* From now on events are kept for the consumer, also when it calls again to be woken in another way, or no more:
     * once that returns, the old wake() is not called. ERR_INVALID: there are too many, or its name is too
     * long. */
    int (*listen)(struct store *s, const struct feed_consumer *consumer, struct err *err);

    /* Up to max of those that wait for it and are later than `after`, in order; returns how many. ERR_VERSION: the
     * first of them is of a kind that this program doesn't know. */
    int (*read)(struct store_reader *reader, const char *consumer, uint64_t after, struct feed_event *out, int max,
                struct arena *arena, struct err *err);

    /* All up to seq are done, n of so many bytes (feed_event_bytes()). Durable some time later: after a crash, they
     * may be read once more. */
    void (*done)(struct store *s, const char *consumer, uint64_t seq, uint64_t n, uint64_t bytes);

    /* All that is there by now is done. One that is lost stays so. */
    void (*pass)(struct store *s, const char *consumer);

    /* The newest event that says of a source whose name begins like this (FEED_OFFSET) that it was taken up to `most`
     * at the farthest: 1, and its seq; 0: none that is left does. Reads all of the feed. */
    int (*mark)(struct store_reader *reader, struct slice prefix, int64_t most, uint64_t *seq, struct err *err);

    /* What the consumer misses is accepted: it is no longer lost, and what waits still does. One that doesn't listen is
     * given up with what waits for it. No such consumer: nothing is to be done. */
    void (*reset)(struct store *s, struct feed_reset *reset);

    /* Any thread. A remote consumer that is not known yet: everything that is recorded once it returns is kept for it,
     * from after *cursor on. One that is known stays as it is, and *cursor is its own. done() once that is durable. */
    void (*enlist)(struct store *s, struct feed_enlist *enlist);

    /* Whether who has all events up to `to` knows of every forget of this user, or of an item of theirs, that was
     * answered before the call. Any thread, from memory: false where memory doesn't go back that far. */
    bool (*covers)(struct store *s, int64_t key, uint64_t to);

    /* That of the newest event that consumers may read, or would, were there any: all up to it is durable. */
    uint64_t (*last)(struct store *s);

    /* All consumers that are known; returns how many. */
    int (*states)(struct store *s, struct feed_state out[FEED_CONSUMERS_MAX]);
};

bool feed_is_remote(const char *consumer); /* by its name */

/* Whether a remote consumer that has all up to seq, of that run of that node, can go on from there. */
enum feed_fit {
    FEED_FITS,
    FEED_UNKNOWN,     /* nothing is kept for it */
    FEED_FOREIGN,     /* that is not of this feed: of another folder, */
    FEED_ROLLED_BACK, /* or of this one, which was copied or went back since */
    FEED_MISSES,      /* it is lost */
    FEED_TOO_OLD,     /* it went back to a state older than what is kept for it */
};
enum feed_fit feed_fits(struct store *s, const char *consumer, uint64_t node, uint64_t run, uint64_t seq);

/* The same, also of a store without a feed; and one of them, whether or not it is known. */
int feed_look(struct store *s, struct feed_state out[FEED_CONSUMERS_MAX]);
void feed_state_of(struct store *s, const char *consumer, struct feed_state *out);

#endif
